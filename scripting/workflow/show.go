package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.starlark.net/syntax"

	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/scripting"
)

// show writes the program of the steps.
func (p *parser) show() string {
	var b strings.Builder
	variable := p.variables()
	for _, s := range p.order() {
		fmt.Fprintf(&b, "%s = step(%s, lambda: %s", variable[s.ID], quote(s.ID), p.work(s))
		if after := p.w.after[s.ID]; len(after) > 0 || p.all[s.ID] {
			list := make([]string, len(after))
			for i, id := range after {
				list[i] = variable[id]
			}
			fmt.Fprintf(&b, ", after=[%s]", strings.Join(list, ", "))
		}
		if s.Condition != "" {
			fmt.Fprintf(&b, ", when=lambda: condition(%s)", quote(s.Condition))
		}
		b.WriteString(keywords(s.OnError, s.DefaultResults, s.Timeout))
		b.WriteString(")\n")
	}
	if o := p.w.tool.Output; o != nil {
		fmt.Fprintf(&b, "return output(%s", shownProperties(o.Properties, 0))
		if len(o.Required) > 0 {
			fmt.Fprintf(&b, ", required=%s", quoteList(o.Required))
		}
		b.WriteString(")\n")
		return b.String()
	}
	fmt.Fprintf(&b, "return %s.output\n", variable[p.w.tool.Steps[len(p.w.tool.Steps)-1].ID])
	return b.String()
}

// variables names the variable of each step: its id where a program can say it.
func (p *parser) variables() map[string]string {
	out, used := map[string]string{}, map[string]bool{}
	for _, s := range p.w.tool.Steps {
		name := scripting.Sanitize(s.ID)
		for taken(name) || used[name] {
			name += "_"
		}
		out[s.ID], used[name] = name, true
	}
	return out
}

// work is what a step does.
func (p *parser) work(s *v1beta1.WorkflowStep) string {
	var call string
	switch s.Type {
	case v1beta1.StepElicitation:
		call = fmt.Sprintf("ask(%s, %s, %s", quote(s.ID), shownText(s.Message), literal(string(s.Schema), "{}"))
		for _, on := range []struct {
			name string
			r    *v1beta1.ElicitationResponse
		}{{"on_decline", s.OnDecline}, {"on_cancel", s.OnCancel}} {
			if on.r != nil && on.r.Action != "" && on.r.Action != v1beta1.ElicitationAbort {
				call += fmt.Sprintf(", %s=%s", on.name, quote(string(on.r.Action)))
			}
		}
		call += ")"
	case v1beta1.StepForEach:
		i := s.Step
		call = fmt.Sprintf("each(%s, lambda: items(%s), lambda item, index: %s, item=%s, max_items=%d, parallel=%d",
			quote(s.ID), quote(s.Collection), retried(i.OnError, shownCall(i.Tool, i.Arguments)), quote(s.ItemVar), *s.MaxIterations, *s.MaxParallel)
		if i.Condition != "" {
			call += fmt.Sprintf(", when=lambda: condition(%s)", quote(i.Condition))
		}
		call += keywords(i.OnError, i.DefaultResults, i.Timeout) + ")"
	default:
		call = shownCall(s.Tool, s.Arguments)
	}
	return retried(s.OnError, call)
}

// keywords are those that steps and items have alike.
func keywords(e *v1beta1.OnError, defaults v1beta1.JSONValue, timeout v1beta1.Duration) (out string) {
	if e != nil && e.Action == v1beta1.ErrorContinue {
		out += `, on_error="continue"`
	}
	if defaults != "" {
		out += ", default=" + literal(string(defaults), "None")
	}
	if timeout != "" {
		out += ", timeout=" + quote(string(timeout))
	}
	return out
}

// retried puts retry() around a call.
func retried(e *v1beta1.OnError, call string) string {
	if e == nil || e.Action != v1beta1.ErrorRetry || e.RetryCount == nil {
		return call
	}
	delay := e.RetryDelay
	if delay == "" {
		delay = "1s"
	}
	return fmt.Sprintf("retry(%d, %s, lambda: %s)", *e.RetryCount, quote(string(delay)), call)
}

// shownCall is the call of a tool. Texts of the first level are templates.
func shownCall(tool string, arguments v1beta1.JSONObject) string {
	members, err := membersOf(string(arguments))
	if err != nil || len(members) == 0 {
		return fmt.Sprintf("call_step(%s)", quote(tool))
	}
	list := make([]string, len(members))
	for i, m := range members {
		value := literal(string(m.value), "None")
		var s string
		if json.Unmarshal(m.value, &s) == nil && m.value[0] == '"' {
			value = shownText(s)
		}
		list[i] = quote(m.name) + ": " + value
	}
	return fmt.Sprintf("call_step(%s, {%s})", quote(tool), strings.Join(list, ", "))
}

// shownText is a text, or a template where there is something to render.
func shownText(s string) string {
	if strings.Contains(s, "{{") {
		return "template(" + quote(s) + ")"
	}
	return quote(s)
}

func shownProperties(properties map[string]v1beta1.OutputProperty, depth int) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		o := properties[name]
		one := fmt.Sprintf("%s: prop(%s", quote(name), quote(string(o.Type)))
		if o.Value != "" {
			one += ", " + quote(o.Value)
		}
		if o.Default != "" {
			one += ", default=" + literal(string(o.Default), "None")
		}
		if o.Properties != "" && depth < 10 {
			if inner, err := nested(o.Properties); err == nil {
				one += ", properties=" + shownProperties(inner, depth+1)
			}
		}
		list = append(list, one+")")
	}
	return "{" + strings.Join(list, ", ") + "}"
}

func quote(s string) string { return syntax.Quote(s, false) }

func quoteList(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quote(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// member is one of an object, in the order of the text.
type member struct {
	name  string
	value json.RawMessage
}

// membersOf returns the members of an object, of two with one name the last; nil for "".
func membersOf(object string) ([]member, error) {
	if strings.TrimSpace(object) == "" {
		return nil, nil
	}
	plain, err := normal([]byte(object))
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(plain))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("no object")
	}
	var out []member
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: key.(string)}
		if err := dec.Decode(&m.value); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// literal is a JSON text as a value of the language; other for "" and what is no JSON.
func literal(text, other string) string {
	if strings.TrimSpace(text) == "" {
		return other
	}
	plain, err := normal([]byte(text))
	if err != nil {
		return other
	}
	dec := json.NewDecoder(bytes.NewReader(plain))
	dec.UseNumber()
	var b strings.Builder
	if writeLiteral(&b, dec) != nil {
		return other
	}
	return b.String()
}

func writeLiteral(b *strings.Builder, dec *json.Decoder) error {
	t, err := dec.Token()
	if err != nil {
		return err
	}
	switch t := t.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[t])
	case json.Number:
		b.WriteString(string(t))
	case string:
		b.WriteString(quote(t))
	case json.Delim:
		b.WriteRune(rune(t))
		for first := true; dec.More(); first = false {
			if !first {
				b.WriteString(", ")
			}
			if t == '{' {
				key, err := dec.Token()
				if err != nil {
					return err
				}
				b.WriteString(quote(key.(string)) + ": ")
			}
			if err := writeLiteral(b, dec); err != nil {
				return err
			}
		}
		end, err := dec.Token()
		if err != nil {
			return err
		}
		b.WriteRune(rune(end.(json.Delim)))
	}
	return nil
}

// nested are the properties of an object within an output.
func nested(j v1beta1.JSONObject) (out map[string]v1beta1.OutputProperty, err error) {
	err = json.Unmarshal([]byte(j), &out)
	return out, err
}
