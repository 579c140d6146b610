package starlark_test

import (
	"testing"

	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// TestOperations makes each operation, with its values in their order and by their names.
func TestOperations(t *testing.T) {
	for _, one := range []struct{ text, want string }{
		{`None`, ``},
		{`[]`, ``},
		{`[None, (), deny(403)][0:1]`, ``},
		{`deny(403, "no")`, `deny text=no`},
		{`deny(401)`, `deny code=1`},
		{`deny(400, text = "bad", data = {"a": [1, 2.5, None]})`, `deny code=2 text=bad raw={"a":[1,2.5,null]}`},
		{`deny(code = 429, text = "later", data = None)`, `deny code=3 text=later`},
		{`deny(404, "none")`, `deny code=4 text=none`},
		{`set_arg("/a", {"x": True})`, `set_arg pointer=/a raw={"x":true}`},
		{`set_arg(value = 2 << 70, pointer = "/a")`, `set_arg pointer=/a raw=2361183241434822606848`},
		{`del_arg("/a")`, `del_arg pointer=/a`},
		{`set_arguments({"k": "v"})`, `set_arguments raw={"k":"v"}`},
		{`(set_tool("t"), set_backend("b"))`, `set_tool name=t; set_backend name=b`},
		{`[set_header("x-a", "1"), None, del_header("x-b")]`, `set_header name=x-a text=1; del_header name=x-b`},
		{`respond({"content": []})`, `respond raw={"content":[]}`},
		{`respond("hello \"you\"")`, `respond raw={"content":[{"type":"text","text":"hello \"you\""}]}`},
		{`set_attr("tier", "gold")`, `set_attr name=tier raw="gold"`},
		{`set_carry("state")`, `set_carry raw=state`},
		{`set_carry(b"\x01\x02")`, "set_carry raw=\x01\x02"},
		{`log_field("name", "text")`, `log_field name=name text=text`},
		{`patch_result("/content/0/text", "x")`, `patch_result pointer=/content/0/text raw="x"`},
		{`[drop_content(0), drop_content(3)]`, `drop_content; drop_content index=3`},
		{`redact("/a", "[gone]")`, `redact pointer=/a text=[gone]`},
		{`[rename(i, "n" + i.name) for i in c.items]`, `rename name=na; rename item=1 name=nb`},
		{`describe(1, "d")`, `describe item=1 text=d`},
		{`hide(c.items[1])`, `hide item=1`},
		{`annotate(1, "readOnlyHint", True)`, `annotate item=1 name=readOnlyHint raw=true`},
		{`set_schema(1, {"type": "object"})`, `set_schema item=1 raw={"type":"object"}`},
		{`pin_arg(1, "/p", None)`, `pin_arg item=1 pointer=/p raw=null`},
		{`hide_arg(1, "/p")`, `hide_arg item=1 pointer=/p`},
		{`patch_item(c.items[0], "/icons", [])`, `patch_item pointer=/icons raw=[]`},
		{`use_credential("admin")`, `use_credential name=admin`},
		{`challenge("Bearer")`, `challenge text=Bearer`},
		{`set_principal(subject = "s", groups = ["g", "h"])`, "set_principal raw=\x0a\x01s\x1a\x01g\x1a\x01h"},
	} {
		g := open(t, wasm.Binding{}, "def override_tools(c):\n    return "+one.text)
		in := &abi.Input{Items: []abi.Item{{Name: "a", Backend: "x", JSON: []byte("{}")}, {Name: "b"}}}
		if got, err := ask(t, g, abi.OverrideTools, in); err != nil || got != one.want {
			t.Errorf("%s: %q, %v; want %q", one.text, got, err, one.want)
		}
	}
}

// TestWrongOperations: what is no operation is a failure whose text says what is wrong, and where.
func TestWrongOperations(t *testing.T) {
	for _, one := range []struct{ text, want string }{
		{`"no"`, `guest "f": on_call_request: abi: it returned string: return None, an operation, or a list of operations`},
		{`[deny(403), 1]`, `abi: it returned int: return None`},
		{`deny(418)`, `trap: f.star:2:16: deny: code: must be 400, 401, 403, 404 or 429`},
		{`deny("no")`, `deny: code: must be 400`},
		{`deny(403, 5)`, `deny: text: got int, want str`},
		{`deny(403, "a", "b", "c")`, `deny: got 4 values, want at most 3: deny(code, text=…, data=…)`},
		{`deny(403, "a", text = "b")`, `deny: unexpected or second "text"`},
		{`set_arg("/a")`, `set_arg: value is missing: set_arg(pointer, value)`},
		{`set_arg("/a", deny)`, `set_arg: value: value: builtin_function_or_method has no JSON form`},
		{`set_arg("/a", float("nan"))`, `has no JSON form`},
		{`set_header("a", 1)`, `set_header: value: got int, want str`},
		{`drop_content(-1)`, `drop_content: index: must be a number of 0 or more`},
		{`hide("x")`, `hide: item: got string, want one of c.items, or its place there`},
		{`respond([])`, `respond: result: got list, want dict or str`},
		{`set_carry(1)`, `set_carry: text: got int, want str or bytes`},
		{`set_principal("s")`, `set_principal: each value has its name: set_principal(subject=…, tenant=…`},
		{`set_principal(name = "s")`, `set_principal: a principal has no name: it has subject`},
		{`set_principal(groups = "s")`, `set_principal: groups: got string, want a list of str`},
		{`set_principal(groups = [1])`, `set_principal: groups: got int in the list, want str`},
		{`subscribe("on_call_request")`, `subscribe: only while the text runs for the first time`},
		{`c.nothing`, `input has no .nothing field or method`},
	} {
		text := "def on_call_request(c):\n    return " + one.text
		if one.text == "c.nothing" { // behind another name, where nothing but running shows it
			text = "def on_call_request(c):\n    d = c\n    return d.nothing"
		}
		g := open(t, wasm.Binding{}, text)
		got, err := ask(t, g, abi.OnCallRequest, &abi.Input{})
		if err == nil || !contains(err.Error(), one.want) {
			t.Errorf("%s: %q, %v; want %q", one.text, got, err, one.want)
		}
	}
}
