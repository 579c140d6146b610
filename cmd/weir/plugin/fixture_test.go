package plugin

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-edge/weir/sdk/abi"
)

// arg is an operation with the fields given: NUMBER VALUE…
func arg(op int, fields ...any) []byte {
	var b []byte
	for i := 0; i < len(fields); i += 2 {
		switch v := fields[i+1].(type) {
		case string:
			b = abi.AppendString(b, fields[i].(int), v)
		case int:
			b = abi.AppendUint(b, fields[i].(int), uint64(v))
		}
	}
	return abi.AppendBytes(nil, abi.OpsOp, abi.AppendBytes(nil, op, b))
}

// TestOperations: what the edge calls a breach of the ABI is a failure here.
func TestOperations(t *testing.T) {
	for name, c := range map[string]struct {
		hook   abi.Hook
		record []byte
		want   string // the operations as JSON, or a part of the error
	}{
		"none":                    {abi.OnCallRequest, nil, `[]`},
		"deny":                    {abi.OnCallRequest, arg(abi.OpDeny, abi.ArgText, "no", abi.ArgCode, 3), `[{"deny":{"code":"limited","text":"no"}}]`},
		"deny without anything":   {abi.OnMessage, arg(abi.OpDeny), `[{"deny":{"code":"forbidden"}}]`},
		"a long length":           {abi.OnCallRequest, []byte("\x0a\x88\x80\x80\x00\x22\x83\x80\x80\x00\x1a\x01x"), `[{"set_tool":{"name":"x"}}]`},
		"an unknown field":        {abi.OnCallRequest, arg(abi.OpSetTool, abi.ArgName, "x", 99, "y"), `[{"set_tool":{"name":"x"}}]`},
		"a code that is none":     {abi.OnCallRequest, arg(abi.OpDeny, abi.ArgCode, 9), "there is no code 9"},
		"for another hook":        {abi.OnUpstreamRequest, arg(abi.OpDeny), "on_upstream_request may not use deny"},
		"on_event may nothing":    {abi.OnEvent, arg(abi.OpSetAttr, abi.ArgName, "x", abi.ArgRaw, "1"), "on_event may not use set_attr"},
		"an operation unknown":    {abi.OnCallRequest, arg(27), "it is none that there is"},
		"raw that is no JSON":     {abi.OnCallRequest, arg(abi.OpSetArg, abi.ArgPointer, "/a", abi.ArgRaw, "{"), "set_arg: raw is no JSON"},
		"without raw":             {abi.OnCallRequest, arg(abi.OpSetArg, abi.ArgPointer, "/a"), "set_arg: without raw"},
		"a pointer that is none":  {abi.OnCallRequest, arg(abi.OpDelArg, abi.ArgPointer, "a"), `"a" is no JSON pointer`},
		"a result that is a list": {abi.OnCallRequest, arg(abi.OpRespond, abi.ArgRaw, "[]"), "raw is not an object"},
		"a header of the edge":    {abi.OnCallRequest, arg(abi.OpSetHeader, abi.ArgName, "Host", abi.ArgText, "x"), "the edge itself sets header Host"},
		"no header":               {abi.OnCallRequest, arg(abi.OpSetHeader, abi.ArgName, "a b"), `"a b" is no name of a header`},
		"an item beyond the last": {abi.OverrideTools, arg(abi.OpHide, abi.ArgItem, 2), "item 2 of 2"},
		"text that is not UTF-8":  {abi.OnCallRequest, arg(abi.OpDeny, abi.ArgText, "\xff"), "text is not UTF-8"},
		"a field that it has not": {abi.OnCallRequest, arg(abi.OpSetTool, abi.ArgName, "x", abi.ArgText, "y"), "set_tool: it has no text"},
		"half a record":           {abi.OnCallRequest, arg(abi.OpDeny, abi.ArgText, "no")[:4], "a malformed record"},
	} {
		t.Run(name, func(t *testing.T) {
			ops, err := operations(c.hook, c.record, 2)
			if err != nil {
				if !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
				return
			}
			if got := line(ops); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestFixturesFail: a difference in anything is one.
func TestFixturesFail(t *testing.T) {
	var want []map[string]map[string]any
	if err := json.Unmarshal([]byte(`[{"deny":{"code":"forbidden","text":"no"}},{"hide":{"item":0}}]`), &want); err != nil {
		t.Fatal(err)
	}
	deny := map[string]any{"deny": map[string]any{"code": "forbidden", "text": "no"}}
	hide := map[string]any{"hide": map[string]any{"item": json.Number("0")}}
	for name, c := range map[string]struct {
		got  []any
		want int // differences, in lines
	}{
		"the same":     {[]any{deny, hide}, 0},
		"another text": {[]any{map[string]any{"deny": map[string]any{"code": "forbidden", "text": "No"}}, hide}, 2},
		"one missing":  {[]any{deny}, 1},
		"one too many": {[]any{deny, hide, hide}, 1},
		"other order":  {[]any{hide, deny}, 4},
		"none":         {nil, 2},
	} {
		if got := compare(c.got, want); len(got) != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	for text, want := range map[string]string{
		"cases: []":                                            "there are none",
		"cases: [{name: a, hook: on_calls}]":                   `cases[0].hook: there is no hook "on_calls"`,
		"cases: [{name: a}, {name: a}]":                        `there is another case called "a"`,
		"cases: [{hook: on_event}]":                            "cases[0]: name is missing",
		"cases: [{name: a, ops: [{deny: {txt: x}}]}]":          "cases[0].ops[0].deny: it has no txt",
		"cases: [{name: a, ops: [{deny: {}, hide: {}}]}]":      "one operation, with its name: got 2",
		"cases: [{name: a, input: {verbatim: {result: '{'}}}]": "cases[0].input.verbatim.result: ",
		"cases: [{name: a, input: {verbatim: {tool: '{}'}}}]":  "it is no field with JSON text",
		"cases: [{name: a, input: {tols: x}}]":                 `unknown field "tols"`,
	} {
		if _, err := ParseFixtures([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestManifestSection: a module says what was packed, once, and any other
// section stays.
func TestManifestSection(t *testing.T) {
	module := []byte("\x00asm\x01\x00\x00\x00")
	module = append(module, 0, 5, 4, 'n', 'a', 'm', 'e')
	for range 2 { // the second takes the place of the first
		var err error
		if module, err = (&Manifest{Name: "x", Version: "1", Hooks: []string{"on_event"}}).with(module); err != nil {
			t.Fatal(err)
		}
	}
	m, err := ManifestOf(module)
	if err != nil || !reflect.DeepEqual(m, &Manifest{Name: "x", Version: "1", Hooks: []string{"on_event"}}) {
		t.Errorf("got %+v, %v", m, err)
	}
	if n := strings.Count(string(module), manifestSection); n != 1 {
		t.Errorf("%d manifests", n)
	}
	if s, err := section(module, "name"); err != nil || s == nil {
		t.Errorf("the other section: %q, %v", s, err)
	}
	for i := 9; i < len(module); i++ {
		if _, err := ManifestOf(module[:i]); err == nil && i != 15 {
			t.Errorf("%d bytes of it are a module", i)
		}
	}
}

func FuzzSections(f *testing.F) {
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x00\x05\x04name"))
	f.Fuzz(func(_ *testing.T, module []byte) {
		_, _ = ManifestOf(module)
		_, _ = (&Manifest{}).with(module)
	})
}

func FuzzOperations(f *testing.F) {
	f.Add(arg(abi.OpDeny, abi.ArgText, "no"))
	f.Add(arg(abi.OpSetPrincipal, abi.ArgRaw, "\x0a\x03ann"))
	f.Fuzz(func(t *testing.T, record []byte) {
		for h := abi.Hook(0); h < abi.Hooks; h++ {
			if ops, err := operations(h, record, 1); err == nil && line(ops) == "" {
				t.Errorf("%x has no text", record)
			}
		}
	})
}
