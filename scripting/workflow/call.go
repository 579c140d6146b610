package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/scripting"
)

// callStep calls the tool of a step: call_step("w.t", {"x": 1}).
func (r *run) callStep(t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var (
		tool  string
		given *starlark.Dict
	)
	if err := starlark.UnpackArgs("call_step", args, named, "tool", &tool, "arguments?", &given); err != nil {
		return nil, err
	}
	known, ok := r.host.Tool(tool)
	if !ok {
		return nil, failedCall(tool, &Fault{Message: notFound(tool), Code: 404})
	}
	arguments, err := r.arguments(tool, known, given)
	if err != nil {
		return nil, err
	}
	result, err := r.attempt(t, tool, arguments)
	if err != nil {
		return nil, err
	}
	if string(mcp.Lookup(result, "isError")) == "true" {
		f := failedCall(tool, &Fault{Message: fmt.Sprintf("tool %q: %s", tool, firstText(result))})
		f.again = true
		return nil, f
	}
	output, err := outputOf(result)
	if err != nil {
		return nil, failed("tool %q: result: %s", tool, err)
	}
	v, err := t.Value(output)
	if err != nil {
		if t.Ended() != nil {
			return nil, t.Ended()
		}
		return nil, failed("tool %q: result: %s", tool, err)
	}
	return v, nil
}

// attempt makes one attempt of a call.
func (r *run) attempt(t *scripting.Task, tool string, arguments []byte) ([]byte, error) {
	a := aroundOf(t)
	c := &Call{Tool: tool, Arguments: arguments, Item: a.item, Attempt: a.attempt}
	if a.step != nil {
		c.Step, a.step.attempt = a.step.id, a.attempt
	}
	if r.calls.Load() >= maxCalls {
		return nil, t.End(&scripting.Fault{Message: fmt.Sprintf("more than %d tool calls", maxCalls)})
	}
	var answer Answer
	err := r.outside(t, func(ctx context.Context) {
		select {
		case r.places <- struct{}{}:
			defer func() { <-r.places }()
		case <-ctx.Done():
			answer.Error = &Fault{Message: fmt.Sprintf("tool %q: cancelled", tool)}
			return
		}
		r.calls.Add(1)
		answer = r.host.Call(ctx, c)
	})
	switch {
	case err != nil:
		return nil, err
	case answer.Error != nil:
		f := failedCall(tool, answer.Error)
		if answer.Error.Data != nil {
			f.error = t.Raise(tool, scripting.Fault{Message: f.message, Code: answer.Error.Code, Data: answer.Error.Data})
		}
		return nil, f
	case len(answer.Result) > scripting.MaxIn:
		return nil, failed("tool %q: its result is longer than %d bytes", tool, scripting.MaxIn)
	}
	return answer.Result, nil
}

// arguments are those of a call as JSON. A text becomes what the tool's schema asks for.
func (r *run) arguments(tool string, known *Tool, given *starlark.Dict) ([]byte, error) {
	if given == nil {
		return []byte("{}"), nil
	}
	types := known.propertyTypes()
	b := append(make([]byte, 0, 128), '{')
	for key, v := range given.Entries() {
		if len(b) > scripting.MaxOut { // the values may all be one text, which the run has once
			break
		}
		name, ok := starlark.AsString(key)
		if !ok {
			return nil, failed("tool %q: arguments: a key is %s, and must be string", tool, key.Type())
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(mcp.AppendString(b, name), ':')
		if s, ok := starlark.AsString(v); ok && types[name].kind != "" {
			if types[name].nullable && s == "null" { // what {{json}} makes of a value that is not there
				b = append(b, s...)
				continue
			}
			value, err := coerce(types[name].kind, s)
			if err != nil {
				return nil, failed("tool %q: arguments: %s: %s", tool, short(name), err)
			}
			b = append(b, value...)
			continue
		}
		var err error
		if b, err = scripting.AppendJSON(b, "arguments", v); err != nil {
			return nil, failed("tool %q: %s", tool, err)
		}
	}
	if b = append(b, '}'); len(b) > scripting.MaxOut {
		return nil, failed("tool %q: arguments: larger than %d bytes", tool, scripting.MaxOut)
	}
	return b, nil
}

// argument is the type that a schema gives an argument, and whether it may be null.
type argument struct {
	kind     v1beta1.OutputType
	nullable bool
}

// typesOf are the types that a schema gives its properties, where it gives one that is not
// string.
func typesOf(schema []byte) map[string]argument {
	properties := mcp.Lookup(schema, "properties")
	if properties == nil {
		return nil
	}
	out, refs := map[string]argument{}, &references{root: schema, left: maxFollowed}
	for _, m := range mcp.Members(properties) {
		given, nullable := refs.typeOf(m.Value)
		switch kind := v1beta1.OutputType(given); kind {
		case v1beta1.OutputInteger, v1beta1.OutputNumber, v1beta1.OutputBoolean, v1beta1.OutputObject, v1beta1.OutputArray:
			out[string(mcp.Unquote(m.Name))] = argument{kind, nullable}
		}
	}
	return out
}

// typeOf is the one type that a schema gives a value, null aside; "" where it gives none or
// several. Schemas that are made from code say so of a value that may be missing, which is
// nullable.
func (r *references) typeOf(schema []byte) (kind string, nullable bool) {
	schema = r.resolved(schema)
	one := func(next string) bool {
		nullable = nullable || next == "null"
		if next == "null" || next == kind {
			return true
		}
		if next == "" || kind != "" {
			kind = ""
			return false
		}
		kind = next
		return true
	}
	switch given := mcp.Lookup(schema, "type"); {
	case len(given) > 0 && given[0] == '"':
		return mcp.String(given), false
	case given != nil:
		for _, name := range mcp.Elements(given) {
			if !one(mcp.String(name)) {
				return "", false
			}
		}
		return kind, nullable
	}
	for _, choice := range []string{"anyOf", "oneOf"} {
		for _, branch := range mcp.Elements(mcp.Lookup(schema, choice)) {
			if !one(mcp.String(mcp.Lookup(r.resolved(branch), "type"))) {
				return "", false
			}
		}
	}
	return kind, nullable
}

// outputOf is the output of a step that called a tool: structuredContent, or an object of
// the contents: text, text_1 …, image_0 …, audio_0 …, resource, resource_1 …
func outputOf(result []byte) ([]byte, error) {
	if s := mcp.Lookup(result, "structuredContent"); s != nil {
		return s, nil
	}
	all := mcp.Elements(mcp.Lookup(result, "content"))
	if len(all) == 1 { // as most answers
		if text := mcp.Lookup(all[0], "text"); text != nil && mcp.String(mcp.Lookup(all[0], "type")) == "text" {
			return append(append(append(make([]byte, 0, len(text)+9), `{"text":`...), text...), '}'), nil
		}
	}
	counts := map[string]int{}
	b := []byte{'{'}
	for _, c := range all {
		kind := mcp.String(mcp.Lookup(c, "type"))
		value, name := mcp.Lookup(c, "data"), fmt.Sprintf("%s_%d", kind, counts[kind])
		switch kind {
		case "text":
			value = mcp.Lookup(c, "text")
		case "resource":
			if value = mcp.Lookup(c, "resource", "text"); value == nil {
				value = mcp.Lookup(c, "resource", "blob")
			}
		case "resource_link":
			value = mcp.Lookup(c, "uri")
		case "image", "audio":
		default:
			continue
		}
		if counts[kind] == 0 && (kind == "text" || kind == "resource") {
			name = kind
		}
		counts[kind]++
		if value == nil {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(mcp.AppendString(b, name), ':'), value...)
	}
	return append(b, '}'), nil
}

// firstText is what a tool says of its failure.
func firstText(result []byte) string {
	for _, c := range mcp.Elements(mcp.Lookup(result, "content")) {
		if mcp.String(mcp.Lookup(c, "type")) == "text" {
			if s := mcp.String(mcp.Lookup(c, "text")); s != "" {
				return scripting.Clean(s)
			}
		}
	}
	return "it reports a failure without a word"
}

// plainCall makes the calls of call_tool() and its kin.
func (r *run) plainCall(ctx context.Context, c *scripting.Call) scripting.Answer {
	fault := func(code int, format string, args ...any) scripting.Answer {
		return scripting.Answer{Error: &scripting.Fault{Message: fmt.Sprintf(format, args...), Code: code}}
	}
	if c.Kind != scripting.KindCall {
		if r.host.Other == nil {
			return fault(0, "a workflow has no list of tools")
		}
		return r.host.Other(ctx, c.Kind, c.Tool)
	}
	if len(c.Positional) > 0 {
		return fault(0, "tool %q: values need names here: name(a=1)", c.Tool)
	}
	if _, ok := r.host.Tool(c.Tool); !ok {
		return fault(404, "%s", notFound(c.Tool))
	}
	arguments := c.Arguments
	if arguments == nil {
		arguments = []byte("{}")
	}
	r.calls.Add(1)
	a := r.host.Call(ctx, &Call{Tool: c.Tool, Arguments: arguments, Item: -1, Attempt: 1})
	switch {
	case a.Error != nil:
		if f := failedCall(c.Tool, a.Error); f.again {
			r.mayPass(f)
		}
		return scripting.Answer{Error: &scripting.Fault{Message: a.Error.Message, Code: a.Error.Code, Data: a.Error.Data}}
	case c.Whole:
		return scripting.Answer{Value: a.Result}
	case string(mcp.Lookup(a.Result, "isError")) == "true":
		f := failedCall(c.Tool, &Fault{Message: fmt.Sprintf("tool %q: %s", c.Tool, firstText(a.Result))})
		f.again = true
		r.mayPass(f)
		return fault(0, "%s", f.message)
	}
	return scripting.Answer{Value: plainValue(a.Result)}
}

// plainValue is what call_tool() returns of a result: structuredContent, of which a lone
// result is its value; else the first text, as JSON where it is; else the contents.
func plainValue(result []byte) []byte {
	if s := mcp.Lookup(result, "structuredContent"); s != nil {
		if all := mcp.Members(s); len(all) == 1 && string(mcp.Unquote(all[0].Name)) == "result" {
			return all[0].Value
		}
		return s
	}
	content := mcp.Lookup(result, "content")
	for _, c := range mcp.Elements(content) {
		if mcp.String(mcp.Lookup(c, "type")) != "text" {
			continue
		}
		if s := mcp.String(mcp.Lookup(c, "text")); json.Valid([]byte(s)) {
			return []byte(s)
		} else {
			return mcp.Quote(s)
		}
	}
	if len(mcp.Elements(content)) == 0 {
		return []byte("null")
	}
	return content
}

// maxRetries bounds how often retry() tries again.
const maxRetries = 10

// retry calls a function again when a call in it failed for what may pass: retry(3, "1s", f).
func (r *run) retry(t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var (
		times int
		delay string
		work  starlark.Callable
	)
	if err := starlark.UnpackPositionalArgs("retry", args, named, 3, &times, &delay, &work); err != nil {
		return nil, err
	}
	if times < 1 || times > maxRetries {
		return nil, fmt.Errorf("retry: %d times, and it may be 1 to %d", times, maxRetries)
	}
	base, err := duration("retry", delay, time.Second)
	if err != nil {
		return nil, err
	}
	a := aroundOf(t)
	for i := 0; ; i++ {
		mine := a
		mine.attempt = a.attempt + i
		back := t.With(t.Context(), &mine)
		v, err := t.Call(work)
		back()
		if err == nil {
			return v, nil
		}
		f := r.passing(err)
		if f == nil || i == times || t.Context().Err() != nil || t.Ended() != nil {
			return nil, err
		}
		if end, ok := t.Context().Deadline(); ok && f.after > time.Until(end) { // there is no other attempt
			return nil, err
		}
		wait := max(r.jittered(backoff(base, i)), f.after)
		if err := r.outside(t, func(ctx context.Context) {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}); err != nil {
			return nil, err
		}
		if t.Context().Err() != nil {
			return nil, f
		}
		if a.step != nil {
			r.tell(Event{Kind: StepRetried, Step: a.step.id, Item: a.item, Attempt: a.attempt + i + 1, Error: scripting.Clean(f.message)})
		}
	}
}

// backoff is how long to wait before another attempt when there were i of them: twice as long
// as the time before, up to 60 times. No workflow has the 146 years that a product too large
// for the type becomes.
func backoff(base time.Duration, i int) time.Duration {
	const longest = math.MaxInt64 / 2 // what jitter adds to it fits too
	times := min(time.Duration(1)<<i, 60)
	if base > longest/times {
		return longest
	}
	return base * times
}

// jittered changes a wait by at most a tenth.
func (r *run) jittered(d time.Duration) time.Duration {
	random := rand.Float64
	if r.host.Random != nil {
		random = r.host.Random
	}
	return d + time.Duration(float64(d)*(random()-0.5)/5)
}
