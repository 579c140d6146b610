package workflow

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Definition returns the tool as clients see it: the JSON text of an MCP Tool. find finds the
// tool of a step, as Host.Tool does. overruled names the annotations of the composite tool
// that promise more than its steps do: what is listed is what the steps do.
func (w *Workflow) Definition(find func(name string) (*Tool, bool)) (definition []byte, overruled []string) {
	b := append([]byte(`{"name":`), mcp.Quote(w.tool.Name)...)
	if w.tool.Description != "" {
		b = append(append(b, `,"description":`...), mcp.Quote(w.tool.Description)...)
	}
	b = append(b, `,"inputSchema":`...)
	if w.parameters != nil {
		b = append(b, w.parameters.text...)
	} else {
		b = append(b, `{"type":"object"}`...)
	}
	if o := w.tool.Output; o != nil {
		b = append(append(b, `,"outputSchema":`...), outputSchema(o.Properties, true)...)
		if len(o.Required) > 0 {
			// Clients hold what a failed call returns to it, too, which has error alone.
			text, _ := json.Marshal(o.Required) // texts
			b = append(append(append(b[:len(b)-1], `,"anyOf":[{"required":`...), text...), `},{"required":["error"]}]}`...)
		}
	}
	annotations, overruled := w.annotations(find)
	text, _ := json.Marshal(annotations) // texts and booleans
	return append(append(append(b, `,"annotations":`...), text...), '}'), overruled
}

// outputSchema is the JSON Schema of an output, or of an object within one.
func outputSchema(properties map[string]v1beta1.OutputProperty, whole bool) []byte {
	b := []byte(`{"type":"object","properties":{`)
	for i, name := range slices.Sorted(maps.Keys(properties)) {
		o := properties[name]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(mcp.AppendString(b, name), ':')
		failure := whole && name == "error" // which a failed call returns under the same name
		if failure {
			b = append(b, `{"anyOf":[`...)
		}
		if inner, err := nested(o.Properties); o.Properties != "" && err == nil {
			one := outputSchema(inner, false)
			if o.Description != "" {
				one = append(append(append(one[:len(one)-1], `,"description":`...), mcp.Quote(o.Description)...), '}')
			}
			b = append(b, one...)
		} else {
			b = append(append(b, `{"type":`...), mcp.Quote(string(o.Type))...)
			if o.Description != "" {
				b = append(append(b, `,"description":`...), mcp.Quote(o.Description)...)
			}
			b = append(b, '}')
		}
		if failure {
			b = append(b, `,{"type":"object","required":["workflow","message","completed"]}]}`...)
		}
	}
	return append(b, "}}"...)
}

// annotations are what the steps do together, and what the composite tool says of itself
// where that is not laxer. A step whose tool says nothing may do anything.
func (w *Workflow) annotations(find func(name string) (*Tool, bool)) (out v1beta1.ToolAnnotations, overruled []string) {
	readOnly, destructive, open, idempotent := true, false, false, true
	if w.unnamed || w.tool.Script != "" && len(w.tools) == 0 {
		readOnly, destructive, open, idempotent = false, true, true, false // the text does not say which tools it calls
	}
	for _, t := range w.tools {
		var h Hints
		if known, ok := find(t.Tool); ok {
			h = known.Hints
		}
		reads := is(h.ReadOnly, false)
		readOnly = readOnly && reads
		idempotent = idempotent && (reads || is(h.Idempotent, false))
		destructive = destructive || is(h.Destructive, !reads)
		open = open || is(h.OpenWorld, true)
	}
	out = v1beta1.ToolAnnotations{ReadOnlyHint: &readOnly, DestructiveHint: &destructive, OpenWorldHint: &open}
	given := w.tool.Annotations
	if given == nil {
		return out, nil
	}
	out.Title, out.IdempotentHint = given.Title, given.IdempotentHint
	if is(given.IdempotentHint, false) && !idempotent {
		out.IdempotentHint, overruled = &idempotent, append(overruled, "idempotentHint")
	}
	for _, one := range []struct {
		name   string
		given  *bool
		floor  *bool
		strict bool // the value that promises less
	}{
		{"readOnlyHint", given.ReadOnlyHint, &readOnly, false},
		{"destructiveHint", given.DestructiveHint, &destructive, true},
		{"openWorldHint", given.OpenWorldHint, &open, true},
	} {
		switch {
		case one.given == nil || *one.given == *one.floor:
		case *one.given == one.strict:
			*one.floor = one.strict
		default:
			overruled = append(overruled, one.name)
		}
	}
	return out, overruled
}

// is is a hint, or other where there is none.
func is(hint *bool, other bool) bool {
	if hint == nil {
		return other
	}
	return *hint
}
