package workflow_test

import (
	"strings"
	"testing"
)

// Arguments that a script cannot have are wrong arguments, no defect of the engine: they may
// be as large and as deep as arguments of steps, but stand within params, beside defaults.
func TestArgumentsOfScripts(t *testing.T) {
	w := parse(t, composite(t, `
parameters: {type: object, properties: {a/b: {}, d: {type: string, default: `+strings.Repeat("d", 1000)+`}}}
script: return len(params["d"])
`))
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for arguments, want := range map[string]string{
		`{"a/b":` + deep(98) + `}`:                            `{"result":1000}`,
		`{"a/b":` + deep(99) + `}`:                            "arguments /a~1b: deeper than 98",
		`{"a/b":` + deep(100) + `}`:                           "arguments /a~1b: deeper than 100",
		`{"a/b":"` + strings.Repeat("x", 1<<20-2000) + `"}`:   `{"result":1000}`,
		`{"a/b":"` + strings.Repeat("x", 1<<20-100) + `"}`:    "arguments /: longer than 1048565 bytes with the defaults",
		`{"a/b":"` + strings.Repeat("\u2028", 300_000) + `"}`: `{"result":1000}`, // which some write with six bytes
		`{"a/b":[1e400]}`:                                     "arguments /a~1b: number out of range",
		`{"d":"x","n":` + strings.Repeat("9", 4097) + `}`:     "arguments /n: an integer of more than 4096 digits",
	} {
		out, err := w.Run(t.Context(), []byte(arguments), quick())
		if err != nil {
			t.Errorf("%.40s: %s", arguments, err)
		} else if got := told(out); got != want {
			t.Errorf("%.40s:\ngot  %.200s\nwant %s", arguments, got, want)
		}
	}
}

// TestOutcomeTellsTheOperator: what a program printed, and which properties of the output have no
// value, and why.
func TestOutcomeTellsTheOperator(t *testing.T) {
	for text, want := range map[string][2]string{
		"script: |\n  print(\"one\\ntwo\", 3)\n  return {}":                                                                   {"one\ntwo 3", ""},
		"script: |\n  for i in range(1100):\n    print(\"0123456789\")\n  return {}":                                          {strings.Repeat("0123456789\n", 1000) + "… 1000 bytes more", ""},
		"steps: [{id: a, tool: w.t}]\noutput: {properties: {p: {type: integer, value: one}}}":                                 {"", `output.p: left out: "one" is no integer`},
		"steps: [{id: a, tool: w.t}]\noutput: {properties: {p: {type: integer, value: '1'}}}":                                 {"", ""},
		"steps: [{id: a, tool: w.t}]\noutput: {properties: {p: {type: integer, value: x, default: 1}}}":                       {"", ""},
		"steps: [{id: a, tool: w.t}]\noutput: {properties: {o: {type: object, properties: {p: {type: array, value: '{}'}}}}}": {"", `output.o.p: left out: "{}" is no array`},
	} {
		out, err := parse(t, composite(t, text)).Run(t.Context(), nil, quick())
		if err != nil || out.Error != nil {
			t.Errorf("%s: %v, %v", text, err, told(out))
			continue
		}
		got := [2]string{strings.Join(out.Logs, "\n")}
		for _, one := range out.LeftOut {
			got[1] += one.Property + ": left out: " + one.Why
		}
		if got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}
