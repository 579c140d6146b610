package starlark_test

import (
	"strings"
	"testing"

	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// TestFields reads each field of the input, there and absent.
func TestFields(t *testing.T) {
	who := abi.Principal{Subject: "ann", Tenant: "acme", Issuer: "idp", Groups: []string{"a", "b"}, Roles: []string{"r"}, Scopes: []string{"s"}}
	whole := &abi.Input{
		Tool: []byte("t"), Session: []byte("key"), RequestID: []byte(`"id"`), Arguments: []byte(`{"n":9007199254740993,"l":[1.5,null,true]}`),
		Result: []byte(`{"content":[]}`), Error: []byte(`{"code":-1}`), Claims: []byte(`{"sub":"ann"}`), Carry: []byte("left\x00"), Event: []byte(`{"type":"x"}`),
		Backend: "b", Method: "m", Path: "/p", Issuer: "i", Principal: who.Append(nil),
		Headers:  []abi.Header{{Name: "x-a", Value: "1"}, {Name: "x-a", Value: "2"}, {Name: "x-b", Value: "3"}},
		Selected: [][]byte{[]byte(`"v"`), nil, []byte(`{"a":"é\n"}`)}, Items: []abi.Item{{Name: "i", Backend: "b", JSON: []byte(`{"name":"i"}`)}},
		Attrs: []abi.Attr{{Name: "tier", JSON: `"gold"`}}, ClaimValues: [][]byte{[]byte(`["x"]`), nil}, Status: 200, From: abi.FromServer, Now: 1700000000000,
	}
	for _, one := range []struct{ expr, there, absent string }{
		{`c.tool`, `"t"`, `""`},
		{`c.backend`, `"b"`, `""`},
		{`c.session`, `"key"`, `""`},
		{`c.method`, `"m"`, `""`},
		{`c.request_id`, `"id"`, `None`},
		{`c.principal.subject`, `"ann"`, `""`},
		{`c.principal.tenant`, `"acme"`, `""`},
		{`c.principal.issuer`, `"idp"`, `""`},
		{`c.principal.groups`, `("a", "b")`, `()`},
		{`c.principal.roles`, `("r",)`, `()`},
		{`c.principal.scopes`, `("s",)`, `()`},
		{`bool(c.principal)`, `True`, `False`},
		{`c.headers`, `{"x-a": "1", "x-b": "3"}`, `{}`},
		{`c.header_lines`, `(("x-a", "1"), ("x-a", "2"), ("x-b", "3"))`, `()`},
		{`c.args`, `{"n": 9007199254740993, "l": [1.5, None, True]}`, `None`},
		{`c.selected`, `("v", None, {"a": "é\n"})`, `()`},
		{`c.now`, `1700000000000`, `0`},
		{`c.result`, `{"content": []}`, `None`},
		{`c.error`, `{"code": -1}`, `None`},
		{`[(i.name, i.backend, i.json) for i in c.items]`, `[("i", "b", {"name": "i"})]`, `[]`},
		{`c.claims`, `{"sub": "ann"}`, `None`},
		{`c.carry`, `"left\x00"`, `""`},
		{`c.status`, `200`, `0`},
		{`c.path`, `"/p"`, `""`},
		{`c.issuer`, `"i"`, `""`},
		{`c.event`, `{"type": "x"}`, `None`},
		{`c.sender`, `"server"`, `""`},
		{`c.attrs`, `{"tier": "gold"}`, `{}`},
		{`c.selected_claims`, `(["x"], None)`, `()`},
	} {
		// Once as the text says it, and once where the field that is read cannot be known.
		for _, through := range []string{"c", "(lambda x: x)(c)"} {
			expr := strings.ReplaceAll(one.expr, "c.", through+".")
			g := open(t, wasm.Binding{}, "def on_message(c):\n    return log_field(\"v\", repr("+expr+"))")
			for in, want := range map[*abi.Input]string{whole: one.there, {}: one.absent} {
				if got, err := ask(t, g, abi.OnMessage, in); err != nil || got != "log_field name=v text="+want {
					t.Errorf("%s: %q, %v; want %s", expr, got, err, want)
				}
			}
			if reads := g.Reads(abi.OnMessage); (reads == 0) != (through != "c") {
				t.Errorf("%s reads %b", expr, reads)
			}
		}
	}
}

// TestFieldsOfASubscription: a field that a subscription leaves out is an error to read, not
// an empty one.
func TestFieldsOfASubscription(t *testing.T) {
	g := open(t, wasm.Binding{}, `
subscribe("on_message", fields = ["tool", "principal"])
def on_message(c):
    d = c
    return log_field("v", d.tool + d.method)
`)
	if _, err := ask(t, g, abi.OnMessage, &abi.Input{Tool: []byte("t")}); err == nil || !strings.Contains(err.Error(), `f.star:5:37: the input has no method here: name it among the fields of subscribe("on_message")`) {
		t.Errorf("got %v", err)
	}
	if g.Reads(abi.OnMessage) != 1<<abi.CallTool|1<<abi.CallPrincipal {
		t.Errorf("it reads %b", g.Reads(abi.OnMessage))
	}
}

// TestOneTextForEach: what a call changes of its input is the call's own, and what it
// is given in another has nothing of the one before.
func TestOneTextForEach(t *testing.T) {
	g := open(t, wasm.Binding{}, `
def on_message(c):
    c.args["more"] = c.args.get("more", 0) + 1
    return set_arg("/", [c.args, c.tool])
`)
	for range 3 {
		if got, err := ask(t, g, abi.OnMessage, &abi.Input{Arguments: []byte(`{}`), Tool: []byte("t")}); err != nil || got != `set_arg pointer=/ raw=[{"more":1},"t"]` {
			t.Errorf("got %q, %v", got, err)
		}
		if got, err := ask(t, g, abi.OnMessage, &abi.Input{Arguments: []byte(`{}`)}); err != nil || got != `set_arg pointer=/ raw=[{"more":1},""]` {
			t.Errorf("got %q, %v", got, err)
		}
	}
}
