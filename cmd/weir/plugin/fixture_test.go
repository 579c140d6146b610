package plugin

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
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

// TestOperations: what the edge answers with 503 is a failure here, in its words.
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
		"a field that it has not": {abi.OnCallRequest, arg(abi.OpSetTool, abi.ArgName, "x", abi.ArgText, "y"), `[{"set_tool":{"name":"x"}}]`},
		"a code that is none":     {abi.OnCallRequest, arg(abi.OpDeny, abi.ArgCode, 9), `[{"deny":{"code":"forbidden"}}]`},
		"for another hook":        {abi.OnUpstreamRequest, arg(abi.OpDeny), "operation deny is not allowed at this hook"},
		"about a request":         {abi.OnMessage, arg(abi.OpPatchResult, abi.ArgPointer, "/a", abi.ArgRaw, "1"), "operation patch_result is not allowed at this hook"},
		"on_event may nothing":    {abi.OnEvent, arg(abi.OpSetAttr, abi.ArgName, "x", abi.ArgRaw, "1"), "operation set_attr is not allowed"},
		"an operation unknown":    {abi.OnCallRequest, arg(27), "unknown operation 27"},
		"raw that is no JSON":     {abi.OnCallRequest, arg(abi.OpSetArg, abi.ArgPointer, "/a", abi.ArgRaw, "{"), "set_arg: not JSON"},
		"without raw":             {abi.OnCallRequest, arg(abi.OpSetArg, abi.ArgPointer, "/a"), "set_arg: not JSON"},
		"a pointer that is none":  {abi.OnCallRequest, arg(abi.OpDelArg, abi.ArgPointer, "a"), "del_arg: a malformed JSON pointer"},
		"nowhere to put it":       {abi.OnCallRequest, arg(abi.OpSetArg, abi.ArgPointer, "/a/b", abi.ArgRaw, "1"), "set_arg: a JSON pointer to a place that is not there"},
		"arguments that are none": {abi.OnCallRequest, arg(abi.OpSetArg, abi.ArgPointer, "", abi.ArgRaw, "1"), "the arguments are not an object"},
		"a result that is a list": {abi.OnCallRequest, arg(abi.OpRespond, abi.ArgRaw, "[]"), "respond: not a JSON object"},
		"nothing to patch":        {abi.OnCallResponse, arg(abi.OpRedact, abi.ArgPointer, "/a", abi.ArgText, "x"), "redact: there is no result: the call failed"},
		"a header of the edge":    {abi.OnCallRequest, arg(abi.OpSetHeader, abi.ArgName, "Host", abi.ArgText, "x"), "header Host is set by the edge itself"},
		"a header of the door":    {abi.OnHTTPResponse, arg(abi.OpSetHeader, abi.ArgName, "Vary", abi.ArgText, "x"), "header Vary is the edge's own"},
		"a header with a key":     {abi.OnUpstreamRequest, arg(abi.OpSetHeader, abi.ArgName, "Cookie", abi.ArgText, "x"), "header Cookie holds a credential, which is chosen in outgoing_auth"},
		"a key without its grant": {abi.OutgoingAuth, arg(abi.OpSetHeader, abi.ArgName, "Cookie", abi.ArgText, "x"), "header Cookie holds a credential, which needs the grant identity"},
		"no header":               {abi.OnCallRequest, arg(abi.OpSetHeader, abi.ArgName, "a b"), `"a b" is not a header name`},
		"another principal":       {abi.MapIdentity, arg(abi.OpSetPrincipal, abi.ArgRaw, "\x0a\x03bob"), "set_principal: another principal, which needs the grant identity"},
		"no principal":            {abi.Authenticate, arg(abi.OpSetPrincipal, abi.ArgRaw, ""), "set_principal: no principal: it has no subject"},
		"an item beyond the last": {abi.OverrideTools, arg(abi.OpHide, abi.ArgItem, 2), "hide: there is no item 2"},
		"the name of an item":     {abi.OverrideTools, arg(abi.OpPatchItem, abi.ArgPointer, "/name", abi.ArgRaw, `"x"`), "patch_item: item 0: name identifies the item and cannot change"},
		"an argument of a prompt": {abi.OverridePrompts, arg(abi.OpHideArg, abi.ArgPointer, "/x"), "only tools have arguments"},
		"text that is not UTF-8":  {abi.OnCallRequest, arg(abi.OpDeny, abi.ArgText, "\xff"), "the text is not UTF-8"},
		"half a record":           {abi.OnCallRequest, arg(abi.OpDeny, abi.ArgText, "no")[:4], "a malformed answer"},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Tool: "x", Principal: &Principal{Subject: "ann"}, Items: []Item{{Name: "a"}, {Name: "b"}}}
			if err := guest.Judge(filterName, in.asked(c.hook, nil, abi.Version), c.record); err != nil {
				if want := fmt.Sprintf("guest %q: %v: abi: ", filterName, c.hook); !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
				return
			}
			if got := line(operations(c.record)); got != c.want {
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
		"cases: []": "f.yaml:1: cases: there are none: give at least one, with a name",
		"cases: [{name: a, hook: on_call_reqest}]":                 `f.yaml:1: cases[0].hook: there is no hook "on_call_reqest", did you mean on_call_request?`,
		"cases:\n- name: a\n- name: a":                             `f.yaml:3: cases[1].name: there is another case called "a"`,
		"cases:\n- hook: on_event":                                 "f.yaml:2: cases[0].name: required",
		"cases:\n- name: a\n  ops:\n  - deny: {txt: x}":            "f.yaml:4: cases[0].ops[0].deny.txt: unknown field, did you mean text?",
		"cases:\n- name: a\n  ops: [{denny: {}}]":                  `f.yaml:3: cases[0].ops[0]: there is no operation "denny", did you mean deny?`,
		"cases:\n- name: a\n  ops: [{deny: {code: forbiden}}]":     `f.yaml:3: cases[0].ops[0].deny.code: there is no code "forbiden", did you mean forbidden?`,
		"cases:\n- name: a\n  ops: [{deny: {code: 403}}]":          `f.yaml:3: cases[0].ops[0].deny.code: there is no code "403": one of forbidden, `,
		"cases:\n- name: b\n- name: aa\n  after: [aa]":             `f.yaml:4: cases[1].after[0]: there is no case "aa" above this one: one of b`,
		"cases:\n- name: a\n  ops: [null]":                         "f.yaml:3: cases[0].ops[0]: want a value, got nothing",
		"cases: [{name: a, ops: [{deny: {}, hide: {}}]}]":          "cases[0].ops[0]: want one operation with its fields",
		"cases: [{name: a, input: {verbatim: {result: '{'}}}]":     "cases[0].input.verbatim.result: not JSON",
		"cases: [{name: a, input: {verbatim: {tool: '{}'}}}]":      "it is no field with JSON text",
		"cases:\n- name: a\n  input: {tol: x}":                     `f.yaml:3: cases[0].input.tol: unknown field, did you mean tool?`,
		"cases:\n- name: a\n  input: {tool: 7}":                    "f.yaml:3: cases[0].input.tool: want text, got a number: put it in quotes",
		"cases:\n- name: a\n  input: {status: -1}":                 "f.yaml:3: cases[0].input.status: the number is out of range: it must be 0 or more",
		"grants: [kvs]\ncases: [{name: a}]":                        `f.yaml:1: grants[0]: there is no grant "kvs", did you mean kv?`,
		"isolation: per_call\ncases: [{name: a}]":                  `f.yaml:1: isolation: there is no isolation "per_call": one of shared, per_request, per_session`,
		"cases:\n- name: a\n  after: [b]\n- name: b":               `f.yaml:3: cases[0].after[0]: there is no case "b" above this one`,
		"cases:\n- name: a\n- name: b\n  config: {}\n  after: [a]": `cases[1].after[0]: "a" has another config, grants, keys or isolation`,
		"cases: [{name: a}]\n---\ncases: []":                       "f.yaml:3: a second document",
		"":                                                         "f.yaml:1: cases: there are none",
	} {
		if _, err := ParseFixtures("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
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
		in := Input{Tool: "x", Arguments: json.RawMessage("{}"), Items: []Item{{Name: "a"}}}
		for h := abi.Hook(0); h < abi.Hooks; h++ {
			if guest.Judge(filterName, in.asked(h, nil, abi.Version), record) == nil && line(operations(record)) == "" {
				t.Errorf("%x has no text", record)
			}
		}
	})
}

// FuzzFixtures reads what may be no fixtures: every error says where.
func FuzzFixtures(f *testing.F) {
	f.Add("cases:\n- {name: a, hook: on_call_request, input: {tool: x, verbatim: {result: '{}'}}, ops: [{deny: {code: limited}}]}\n- {name: b, after: [a]}")
	f.Add("grants: [kv]\nisolation: shared\ncases: [{name: a, metrics: {x: 1}, subscriptions: [{hook: on_event, inlineLimit: 1}]}]")
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := ParseFixtures("f.yaml", []byte(text))
		if err == nil {
			return
		}
		for line := range strings.Lines(err.Error()) {
			if !strings.HasPrefix(line, "f.yaml:") {
				t.Errorf("no place in %q", line)
			}
		}
	})
}

// TestInlineLimitOfSeveral: of several subscriptions to a hook the largest limit holds, as at an
// edge; one without a limit has the host's, which is the largest.
func TestInlineLimitOfSeveral(t *testing.T) {
	for _, c := range []struct {
		limits []uint64
		want   uint64
	}{
		{[]uint64{10}, 10}, {[]uint64{10, 20}, 20}, {[]uint64{20, 10}, 20},
		{[]uint64{0, 10}, 0}, {[]uint64{10, 0}, 0}, {[]uint64{10, 0, 20}, 0},
	} {
		var asked []wasm.Subscription
		for _, limit := range c.limits {
			asked = append(asked, wasm.Subscription{Hook: abi.OnCallRequest, InlineLimit: limit})
		}
		asked = append(asked, wasm.Subscription{Hook: abi.OnCallResponse, InlineLimit: 1 << 20})
		if w, _ := wants(asked, abi.OnCallRequest, &Input{}); w.inline != c.want {
			t.Errorf("%v: %d", c.limits, w.inline)
		}
	}
}

// TestToldAsByAnEdge: a guest whose answer is kept for others sees of an input what these have in
// common, and the pointers of on_event lead into the record.
func TestToldAsByAnEdge(t *testing.T) {
	in := &Input{
		Tool: "the-tool", Backend: "back", Session: "the-session", Arguments: json.RawMessage(`{"a":"the-argument"}`), Event: json.RawMessage(`{"a":"in the record"}`),
		Principal: &Principal{Subject: "the-subject", Tenant: "the-tenant", Groups: []string{"the-group"}, Scopes: []string{"the-scope"}},
	}
	everything := []string{"the-tool", "the-session", "the-argument", "the-subject", "the-tenant", "the-group", "the-scope"}
	for _, c := range []struct {
		hook  abi.Hook
		s     wasm.Subscription
		shown []string
	}{
		{abi.OverrideTools, wasm.Subscription{}, nil},
		{abi.OverrideTools, wasm.Subscription{VariesBy: abi.VariesByTenant}, []string{"the-tenant"}},
		{abi.OverrideResources, wasm.Subscription{VariesBy: abi.VariesByGroups}, []string{"the-tenant", "the-group"}},
		{abi.OverridePrompts, wasm.Subscription{VariesBy: abi.VariesBySubject}, []string{"the-tenant", "the-group", "the-subject"}},
		{abi.OutgoingAuth, wasm.Subscription{VariesBy: abi.VariesByTenant, Cache: time.Minute}, []string{"the-tenant"}},
		{abi.OutgoingAuth, wasm.Subscription{}, everything},
		{abi.OnCallRequest, wasm.Subscription{}, everything},
	} {
		c.s.Hook = c.hook
		w, _ := wants([]wasm.Subscription{c.s}, c.hook, in)
		said := string(in.record(c.hook, w))
		for _, what := range everything {
			if strings.Contains(said, what) != slices.Contains(c.shown, what) {
				t.Errorf("%s, %+v: %s: %q", c.hook, c.s, what, said)
			}
		}
	}
	w, _ := wants([]wasm.Subscription{{Hook: abi.OnEvent, Pointers: []string{"/a"}, Fields: 1 << abi.CallSelected}}, abi.OnEvent, in)
	if said := string(in.record(abi.OnEvent, w)); !strings.Contains(said, "in the record") || strings.Contains(said, "the-argument") {
		t.Errorf("on_event: %q", said)
	}
}
