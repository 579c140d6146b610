package workflow_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/weir-edge/weir/scripting/workflow"
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

// TestX36Conditions: forms that a condition tells apart, and lists whose items are of a schema that is
// referred to, are judged whatever their size and depth.
func TestX36Conditions(t *testing.T) {
	var conditions, forms []string
	for i, op := range []string{"and", "or", "xor", "nor", "not"} {
		conditions = append(conditions, `{if: {properties: {op: {const: "`+op+`"}}}, then: {properties: {of: {$ref: "#/$defs/f"}}}}`)
		for j := range 6 {
			forms = append(forms, fmt.Sprintf(`{properties: {a: {const: %d}, b: {type: integer}, c: {type: integer}}}`, 6*i+j))
		}
	}
	w := parse(t, composite(t, `
parameters: {type: object, properties: {f: {$ref: "#/$defs/f"}, l: {type: array, items: {$ref: "#/$defs/l"}}},
  $defs: {f: {type: object, allOf: [`+strings.Join(conditions, ",")+`]}, l: {oneOf: [`+strings.Join(forms, ",")+`]}}}
steps: [{id: a, tool: w.echo}]`))
	f := `{"op":"x"}`
	for range 12 {
		f = `{"op":"or","of":` + f + `}`
	}
	list := strings.TrimSuffix(strings.Repeat(`{"a":1,"b":2,"c":3},`, 2000), ",")
	if out, _ := play(t, w, `{"f":`+f+`,"l":[`+list+`]}`, nil); told(out) != "{}" {
		t.Error(told(out))
	}
}

// TestX36CirclesOfFlatValues: a schema that is part of itself is counted for a text as for an object.
func TestX36CirclesOfFlatValues(t *testing.T) {
	w := parse(t, composite(t, `
parameters: {type: object, additionalProperties: {anyOf: [{type: string}, {$ref: "#/additionalProperties"}]}}
steps: [{id: a, tool: w.echo}]`))
	if out, _ := play(t, w, `{"k":"v"}`, nil); told(out) != "{}" {
		t.Error(told(out))
	}
	_, _ = workflow.Parse(composite(t, `
steps: [{id: a, type: elicitation, message: m, schema: {type: object, properties: {x: {type: string, default: a, anyOf: [{$ref: "#/properties/x"}, {maxLength: 3}]}}}}]`)) // it returns
}

// TestX36ConditionAlone: a condition on which nothing depends is tried all the same.
func TestX36ConditionAlone(t *testing.T) {
	const condition = `{if: {properties: {of: {$ref: "#/$defs/f"}}}}`
	w := parse(t, composite(t, `
parameters: {type: object, properties: {f: {$ref: "#/$defs/f"}}, $defs: {f: {allOf: [`+condition+`,`+condition+`]}}}
steps: [{id: a, tool: w.echo}]`))
	f := strings.Repeat(`{"of":`, 60) + `{}` + strings.Repeat(`}`, 60)
	if out, _ := play(t, w, `{"f":`+f+`}`, nil); !strings.HasPrefix(told(out), "arguments /: there are too many ways") {
		t.Error(told(out))
	}
}

// TestX36Padding: what else there is in a value allows nobody more ways.
func TestX36Padding(t *testing.T) {
	w := parse(t, composite(t, `
parameters: {type: object, properties: {f: {$ref: "#/$defs/f"}}, $defs: {f: {oneOf: [
  {type: object, properties: {op: {const: and}, of: {$ref: "#/$defs/f"}}, required: [op]},
  {type: object, properties: {op: {const: or}, of: {$ref: "#/$defs/f"}}, required: [op]}]}}}
steps: [{id: a, tool: w.echo}]`))
	f := `{"op":"x"}`
	for range 19 {
		f = `{"op":"x","of":` + f + `}`
	}
	pad := strings.TrimSuffix(strings.Repeat("0,", 400_000), ",")
	if out, _ := play(t, w, `{"f":`+f+`,"pad":[`+pad+`]}`, nil); !strings.HasPrefix(told(out), "arguments /: there are too many ways") {
		t.Errorf("%.80s", told(out))
	}
}

// TestX36WideLeaf: a wide object costs each time that it is tried.
func TestX36WideLeaf(t *testing.T) {
	w := parse(t, composite(t, `
parameters: {type: object, properties: {f: {$ref: "#/$defs/f"}}, $defs: {f: {oneOf: [
  {type: object, properties: {op: {const: and}, of: {$ref: "#/$defs/f"}}, required: [op]},
  {type: object, properties: {op: {const: or}, of: {$ref: "#/$defs/f"}}, required: [op]}]}}}
steps: [{id: a, tool: w.echo}]`))
	var b strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&b, `,"%d":0`, i)
	}
	f := "{" + b.String()[1:] + "}"
	for range 12 {
		f = `{"op":"x","of":` + f + `}`
	}
	if out, _ := play(t, w, `{"f":`+f+`}`, nil); !strings.HasPrefix(told(out), "arguments /: there are too many ways") {
		t.Errorf("%.80s", told(out))
	}
}

// TestX36LongListOfForms: a long list is judged whose forms have what they refer to in common.
func TestX36LongListOfForms(t *testing.T) {
	var forms []string
	for i := range 12 {
		forms = append(forms, fmt.Sprintf(`{allOf: [{$ref: "#/$defs/b"}], properties: {kind: {const: %d}}}`, i))
	}
	w := parse(t, composite(t, `
parameters: {type: object, properties: {l: {type: array, items: {oneOf: [`+strings.Join(forms, ",")+`]}}}, $defs: {b: {type: object,
  properties: {id: {type: integer}, tags: {type: array, items: {type: string}}, at: {type: object, properties: {x: {type: integer}, y: {type: integer}}}}}}}
steps: [{id: a, tool: w.echo}]`))
	list := strings.TrimSuffix(strings.Repeat(`{"kind":1,"id":1,"tags":["a","b","c"],"at":{"x":1,"y":2}},`, 6000), ",")
	if out, _ := play(t, w, `{"l":[`+list+`]}`, nil); told(out) != "{}" {
		t.Errorf("%.80s", told(out))
	}
}

// TestX36CircleCutShort: what was counted within a circle is not taken for what it costs outside of it.
func TestX36CircleCutShort(t *testing.T) {
	w := parse(t, composite(t, `
parameters: {type: object, properties: {f: {$ref: "#/$defs/a"}}, $defs: {
  a: {anyOf: [{$ref: "#/$defs/b"}, {type: object, properties: {of: {allOf: [{$ref: "#/$defs/a"}, {$ref: "#/$defs/b"}, {$ref: "#/$defs/b"}]}}}]},
  b: {anyOf: [{$ref: "#/$defs/a"}, {type: string}]}}}
steps: [{id: a, tool: w.echo}]`))
	f := strings.Repeat(`{"of":`, 30) + `{}` + strings.Repeat(`}`, 30)
	if out, _ := play(t, w, `{"f":`+f+`}`, nil); !strings.HasPrefix(told(out), "arguments /: there are too many ways") {
		t.Error(told(out))
	}
}

// TestX36ManyFirstItems: the schemas of the first items are not copied for each array.
func TestX36ManyFirstItems(t *testing.T) {
	first := strings.TrimSuffix(strings.Repeat(`{type: integer},`, 5000), ",")
	w := parse(t, composite(t, `
parameters: {type: object, properties: {f: {$ref: "#/$defs/f"}, l: {type: array, items: {type: array, prefixItems: [`+first+`]}}},
  $defs: {f: {anyOf: [{type: integer}, {type: object, properties: {of: {$ref: "#/$defs/f"}}}]}}}
steps: [{id: a, tool: w.echo}]`))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	out, _ := play(t, w, `{"l":[[1]`+strings.Repeat(`,[1]`, 5000)+`]}`, nil)
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; told(out) != "{}" || bytes > 100<<20 {
		t.Errorf("%.100s, %d MiB", told(out), bytes>>20)
	}
	if out, _ := play(t, w, `{"l":[["x"]]}`, nil); !strings.HasPrefix(told(out), "arguments /l/0/0") {
		t.Error(told(out))
	}
}
