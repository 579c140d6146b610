package starlark_test

import (
	"context"
	"testing"
	"time"

	"github.com/weir-edge/weir/filters/guest/starlark"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// FuzzText: any text is a program or an error, and a program answers with a record or fails.
func FuzzText(f *testing.F) {
	for _, text := range []string{
		branching, passes, "def on_event(c):\n    return [deny(403), None]", "subscribe('on_event')\non_event = lambda c: set_arg('/', c.args)",
		"def on_message(c):\n    return set_principal(groups = c.principal.groups)", "def f(c): deny(1)", "x = pattern('a')\ndef on_event(c):\n    return x.find(c.tool)",
	} {
		f.Add(text, `{"a":1}`)
	}
	f.Fuzz(func(t *testing.T, text, json string) {
		p, err := starlark.Compile("f.star", []byte(text))
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g, err := p.Open(ctx, starlark.Options{Binding: wasm.Binding{Name: "f", Optional: []string{"random", "kv", "metrics", "keys", "http", "tools", "events"}}})
		if err != nil {
			return
		}
		defer g.Close()
		in := &abi.Input{Tool: []byte("t"), Arguments: []byte(json), Selected: [][]byte{[]byte(json)}, Items: []abi.Item{{Name: "i", JSON: []byte(json)}}}
		for h := range abi.Hooks {
			if out, err := g.Call(ctx, h, "", wasm.Sender{}, in.Append(nil, 0), nil); err == nil {
				shown(t, out)
			}
		}
	})
}

// FuzzInput: a program reads every field of any record, and says what it read.
func FuzzInput(f *testing.F) {
	g := open(f, wasm.Binding{}, `
def on_message(c):
    seen = [c.tool, c.backend, c.session, c.method, c.request_id, c.principal.subject, c.principal.groups, c.headers, c.header_lines, c.args, c.selected, c.now, c.result,
        c.error, [(i.name, i.backend, i.json) for i in c.items], c.claims, c.carry, c.status, c.path, c.issuer, c.event, c.sender, c.attrs, c.selected_claims]
    return [log_field("seen", repr(seen)), set_arg(c.path, seen), set_header(c.method, c.backend), set_carry(c.carry), deny(403, c.issuer, c.args)]
`)
	f.Add(branchingInput("/x").Append(nil, 0))
	f.Add([]byte{0x42, 2, '{', '}', 0x4a, 0, 0x6a, 2, 0x0a, 0})
	f.Fuzz(func(t *testing.T, record []byte) {
		if out, err := g.Call(t.Context(), abi.OnMessage, "", wasm.Sender{}, record, nil); err == nil {
			shown(t, out)
		}
	})
}
