package starlark

import (
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// loader is the state of a text that runs for the first time.
type loader struct {
	guest    *Guest
	asked    []subscribed
	patterns int
	conforms func(schema []byte) error
	config   bool // the configuration was refused
}

// subscribed is a subscription and where the text says it.
type subscribed struct {
	wasm.Subscription
	line, column int
}

// subscribe is the builtin: it narrows what the function for a hook is asked about.
func (l *loader) subscribe(t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var (
		hook                                                            string
		tools, backends, methods, headers, pointers, claims, fieldNames starlark.Value
		varies                                                          string
		inline, cache                                                   int
		blocking, hold                                                  bool
	)
	err := starlark.UnpackArgs("subscribe", args, named, "hook", &hook, "tools?", &tools, "backends?", &backends, "methods?", &methods, "headers?", &headers,
		"pointers?", &pointers, "claims?", &claims, "fields?", &fieldNames, "varies_by?", &varies, "inline_limit?", &inline, "cache_ms?", &cache,
		"blocking?", &blocking, "hold?", &hold)
	if err != nil {
		return nil, err
	}
	if _, ok := abi.HookNamed(hook); !ok {
		return nil, fmt.Errorf("subscribe: there is no hook %q%s", hook, meant(hook, hookNames()))
	}
	record := abi.AppendString(nil, abi.SubHook, hook)
	for _, list := range []struct {
		name  string
		field int
		v     starlark.Value
	}{
		{"methods", abi.SubMethod, methods}, {"tools", abi.SubTool, tools}, {"backends", abi.SubBackend, backends},
		{"headers", abi.SubHeader, headers}, {"pointers", abi.SubPointer, pointers}, {"claims", abi.SubClaim, claims},
	} {
		if list.v == nil || list.v == starlark.None {
			continue
		}
		all, err := texts(list.v)
		if err != nil {
			return nil, fmt.Errorf("subscribe: %s: %w", list.name, err)
		}
		for _, s := range all {
			record = abi.AppendString(record, list.field, s)
		}
	}
	if record, err = appendFields(record, fieldNames); err != nil {
		return nil, fmt.Errorf("subscribe: fields: %w", err)
	}
	switch by := []string{"", "tenant", "groups", "subject"}; {
	case !slices.Contains(by, varies):
		return nil, fmt.Errorf("subscribe: varies_by: %q is none of tenant, groups and subject", varies)
	case inline < 0 || cache < 0:
		return nil, fmt.Errorf("subscribe: inline_limit and cache_ms are numbers of 0 or more")
	default:
		record = abi.AppendUint(record, abi.SubVariesBy, uint64(slices.Index(by, varies)))
	}
	record = abi.AppendUint(abi.AppendUint(record, abi.SubInlineLimit, uint64(inline)), abi.SubCache, uint64(cache))
	if blocking {
		record = abi.AppendUint(record, abi.SubBlocking, 1)
	}
	if hold {
		record = abi.AppendUint(record, abi.SubHold, 1)
	}
	s, err := wasm.ReadSubscription(record)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	if len(l.asked) == wasm.MaxSubscriptions {
		return nil, fmt.Errorf("subscribe: more than %d subscriptions", wasm.MaxSubscriptions)
	}
	pos := t.Thread().CallFrame(1).Pos
	l.asked = append(l.asked, subscribed{s, int(pos.Line), int(pos.Col)})
	return starlark.None, nil
}

func appendFields(record []byte, v starlark.Value) ([]byte, error) {
	if v == nil || v == starlark.None {
		return record, nil
	}
	names, err := texts(v)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		f := fieldNamed(name)
		if f == nil {
			return nil, fmt.Errorf("the input has no %s%s", name, meant(name, fieldNames()))
		}
		record = abi.AppendUint(record, abi.SubField, uint64(f.number))
	}
	return record, nil
}

// meant suggests a name.
func meant(name string, names []string) string {
	if near := scripting.Nearest(name, names); near != "" {
		return " (did you mean " + near + "?)"
	}
	return ""
}

// configSchema is the builtin: it holds the configuration to a JSON Schema.
func (l *loader) configSchema(t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	var schema *starlark.Dict
	if err := starlark.UnpackArgs("config_schema", args, named, "schema", &schema); err != nil {
		return nil, err
	}
	text, err := jsonOf(t, schema)
	if err != nil {
		return nil, fmt.Errorf("config_schema: %w", err)
	}
	l.guest.schema = text
	if l.conforms == nil {
		return starlark.None, nil
	}
	if err := l.conforms(text); err != nil {
		l.config = true
		return nil, fmt.Errorf("config_schema: %w", err)
	}
	return starlark.None, nil
}

// bind finds the function of each hook, and combines them with the subscriptions.
func (l *loader) bind(p *Program, globals starlark.StringDict) Faults {
	g := l.guest
	var faults Faults
	for h := range abi.Hooks {
		v, there := globals[h.String()]
		if !there {
			continue
		}
		f, ok := v.(*starlark.Function)
		switch {
		case !ok:
			faults = append(faults, &Fault{File: p.file, Message: fmt.Sprintf("%v is %s, not a function", h, v.Type())})
			continue
		case f.NumParams() == 0 || f.NumKwonlyParams() > 0:
			faults = append(faults, &Fault{File: p.file, Line: int(f.Position().Line), Column: int(f.Position().Col), Message: fmt.Sprintf("%v takes one value, the input: def %v(c):", h, h)})
			continue
		}
		g.hooks[h] = f
		if !slices.ContainsFunc(l.asked, func(s subscribed) bool { return s.Hook == h }) {
			l.asked = append(l.asked, subscribed{Subscription: wasm.Subscription{Hook: h}})
		}
	}
	for _, s := range l.asked {
		if g.hooks[s.Hook] == nil && globals[s.Hook.String()] == nil {
			faults = append(faults, &Fault{File: p.file, Line: s.line, Column: s.column, Message: fmt.Sprintf("subscribe: there is no function %v", s.Hook)})
		}
	}
	if len(l.asked) == 0 {
		faults = append(faults, &Fault{File: p.file, Message: "it subscribes to nothing: define a function that is named as a hook, such as on_call_request"})
	}
	if len(faults) > 0 {
		return faults
	}
	slices.SortStableFunc(l.asked, func(a, b subscribed) int { return int(a.Hook) - int(b.Hook) })
	seen := [abi.Hooks]bool{}
	for _, s := range l.asked {
		g.asked = append(g.asked, s.Subscription)
		g.blocking[s.Hook] = g.blocking[s.Hook] || s.Blocking
		switch {
		case s.Fields == 0 || seen[s.Hook] && g.reads[s.Hook] == 0:
			g.reads[s.Hook] = 0
		default:
			g.reads[s.Hook] |= s.Fields
		}
		seen[s.Hook] = true
	}
	for h := range abi.Hooks {
		if seen[h] && g.reads[h] == 0 {
			g.reads[h] = p.hooks[h].fields
		}
	}
	return nil
}
