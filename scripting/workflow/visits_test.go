package workflow_test

import (
	"strings"
	"testing"
)

// TestX36FormsWithinForms: a schema that is part of itself in several forms is tried for a deep value
// in more ways than there is time for, so that such a value is refused.
func TestX36FormsWithinForms(t *testing.T) {
	w := parse(t, composite(t, `
parameters: {type: object, properties: {f: {$ref: "#/$defs/f"}}, $defs: {f: {oneOf: [
  {type: object, properties: {op: {const: and}, of: {$ref: "#/$defs/f"}}, required: [op]},
  {type: object, properties: {op: {const: or}, of: {$ref: "#/$defs/f"}}, required: [op]}]}}}
steps: [{id: a, tool: w.echo}]`))
	for _, op := range []string{"or", "x"} {
		for depth, want := range map[int]string{3: map[string]string{"or": "{}", "x": "arguments /f"}[op], 60: "arguments /: there are too many ways"} {
			f := `{"op":"` + op + `"}`
			for range depth {
				f = `{"op":"` + op + `","of":` + f + `}`
			}
			out, _ := play(t, w, `{"f":`+f+`}`, nil)
			if !strings.HasPrefix(told(out), want) {
				t.Errorf("%s, %d deep: %.100s, want %s", op, depth, told(out), want)
			}
		}
	}
}
