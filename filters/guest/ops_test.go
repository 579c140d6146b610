package guest

import (
	"cmp"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/sdk/abi"
)

// said is an answer of one operation.
func said(kind int, parts ...[]byte) []byte {
	var a []byte
	for _, p := range parts {
		a = append(a, p...)
	}
	return abi.AppendBytes(nil, abi.OpsOp, abi.AppendBytes(nil, kind, a))
}

// TestOps refuses answers that are malformed, that the hook does not allow, or
// whose arguments are not what the operation takes.
func TestOps(t *testing.T) {
	text := func(field int, s string) []byte { return abi.AppendString(nil, field, s) }
	header := func(name, value string) []byte {
		return said(abi.OpSetHeader, text(abi.ArgName, name), text(abi.ArgText, value))
	}
	for name, c := range map[string]struct {
		record []byte
		want   string // "" for no error
	}{
		"nothing":                     {nil, ""},
		"a header":                    {header("X-A", "b c"), ""},
		"a tab in a header":           {header("X-A", "b\tc"), ""},
		"a header with a second line": {header("X-A", "b\r\nX-B: c"), `"X-A": not a header value`},
		"a header with a zero":        {header("X-A", "\x00"), "not a header value"},
		"a long header":               {header("X-A", strings.Repeat("x", maxValue+1)), "not a header value"},
		"a header's name":             {header("X A", "b"), "not a header name"},
		"a header of the edge":        {header("Content-Length", "1"), "set by the edge itself"},
		"another spelling of it":      {header("content_length", "1"), "set by the edge itself"},
		"an argument":                 {said(abi.OpSetArg, text(abi.ArgPointer, "/a"), text(abi.ArgRaw, " 1 ")), ""},
		"not JSON":                    {said(abi.OpSetArg, text(abi.ArgPointer, "/a"), text(abi.ArgRaw, "{")), "not JSON"},
		"a name twice":                {said(abi.OpSetArg, text(abi.ArgRaw, `{"a":1,"a":2}`)), "not JSON"},
		"no value":                    {said(abi.OpSetArg, text(abi.ArgPointer, "/a")), "not JSON"},
		"arguments that are a list":   {said(abi.OpSetArguments, text(abi.ArgRaw, "[]")), "not a JSON object"},
		"an answer that is a list":    {said(abi.OpRespond, text(abi.ArgRaw, "[]")), "not a JSON object"},
		"no tool":                     {said(abi.OpSetTool), "no name"},
		"a long name":                 {said(abi.OpSetTool, text(abi.ArgName, strings.Repeat("x", maxName+1))), "a name of"},
		"text that is not UTF-8":      {said(abi.OpSetTool, text(abi.ArgName, "\xff")), "not UTF-8"},
		"too much to carry":           {said(abi.OpSetCarry, abi.AppendBytes(nil, abi.ArgRaw, make([]byte, maxCarry+1))), "bytes to carry"},
		"another hook's":              {said(abi.OpRename, text(abi.ArgName, "x")), "rename is not allowed at this hook"},
		"one that there is not":       {said(99), "unknown"},
		"none":                        {abi.AppendBytes(nil, abi.OpsOp, nil), "malformed operation"},
		"two in one":                  {abi.AppendBytes(nil, abi.OpsOp, append(abi.AppendBytes(nil, abi.OpDeny, nil), abi.AppendBytes(nil, abi.OpDeny, nil)...)), "two operations"},
		"a denial of no kind":         {said(abi.OpDeny, abi.AppendUint(nil, abi.ArgCode, 5)), ""}, // denied all the same
		"a denial of the last kind":   {said(abi.OpDeny, abi.AppendUint(nil, abi.ArgCode, abi.DenyNotFound)), ""},
		"half a record":               {said(abi.OpDeny, text(abi.ArgText, "no"))[:5], "malformed"},
		"too many":                    {[]byte(strings.Repeat(string(said(abi.OpDeny)), maxOps+1)), "more than 256"},
		"a field of the future":       {append(said(abi.OpDeny), abi.AppendString(nil, 7, "x")...), ""},
	} {
		_, err := opsOf(c.record, may(abi.OnCallRequest), maxOps)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestSound: what a program made of an item is one that clients take, member by member. What a backend
// had made of a member is not the program's. null takes an optional member out.
func TestSound(t *testing.T) {
	const was = `{"name":"a","inputSchema":{"type":"object"},"title":5}`
	for is, want := range map[string]string{ // what the item is then, "" for what it was made, or what is wrong
		was: "",
		`{"name":"b","inputSchema":{"type":"object","x":1},"title":"t","description":"d","outputSchema":{"type":"object"},"annotations":{"title":"t","openWorldHint":false,"other":"x"}}`: "",
		`{"name":"a","title":null}`:                `{"name":"a"}`,
		`{"name":null}`:                            "name must be a text",
		`{"inputSchema":{"type":"array"}}`:         `inputSchema.type must be "object"`,
		`{"inputSchema":{}}`:                       "inputSchema.type is missing",
		`{"inputSchema":null}`:                     "inputSchema is missing",
		`{"inputSchema":true}`:                     "inputSchema must be an object",
		`{"outputSchema":"object"}`:                "outputSchema must be an object",
		`{"annotations":[]}`:                       "annotations must be an object",
		`{"annotations":{"destructiveHint":null}}`: `{"annotations":{}}`,
		`{"annotations":{"title":null,"x":null}}`:  `{"annotations":{"x":null}}`,
		`{"annotations":{"idempotentHint":1}}`:     "annotations.idempotentHint must be true or false",
		`{"description":["d"]}`:                    "description must be a text",
		`{"inputSchema":{"type":"object","required":["a"],"properties":{"a":{}}},"_meta":{"a":1},"execution":{"taskSupport":"optional"},"icons":[{"src":"x","mimeType":"y","sizes":["any"],"theme":"dark"}],"arguments":5}`: "",
		`{"inputSchema":{"type":"object","required":"a"}}`:                    "inputSchema.required must be an array",
		`{"inputSchema":{"type":"object","required":[1]}}`:                    "inputSchema.required[0] must be a text",
		`{"inputSchema":{"type":"object","required":null}}`:                   `{"inputSchema":{"type":"object"}}`,
		`{"inputSchema":{"type":"object","properties":[]}}`:                   "inputSchema.properties must be an object",
		`{"inputSchema":{"type":"object","properties":{"a":"x"}}}`:            "inputSchema.properties.a must be a schema",
		`{"inputSchema":{"type":"object","properties":{"a":true,"b":false}}}`: "",
		`{"outputSchema":{"type":"object","properties":{"a":true}}}`:          "",
		`{"outputSchema":{"type":"array","required":[1]}}`:                    "", // legacy clients are not shown it
		`{"annotations":{"title":5}}`:                                         "annotations.title must be a text",
		`{"_meta":"x"}`:                                                       "_meta must be an object",
		`{"_meta":null}`:                                                      `{}`,
		`{"_meta":{"a":null}}`:                                                "",
		`{"execution":{"taskSupport":"maybe"}}`:                               "execution.taskSupport must be",
		`{"execution":[]}`:                                                    "execution must be an object",
		`{"icons":"x"}`:                                                       "icons must be an array",
		`{"icons":[{"src":3}]}`:                                               "icons[0].src must be a text",
		`{"icons":[{}]}`:                                                      "icons[0].src is missing",
		`{"icons":["x"]}`:                                                     "icons[0] must be an object",
		`{"icons":[{"src":"x","mimeType":null}]}`:                             `{"icons":[{"src":"x"}]}`,
		`{"icons":[{"src":"x","sizes":"any"}]}`:                               "icons[0].sizes must be an array",
		`{"icons":[{"src":"x","sizes":[1]}]}`:                                 "icons[0].sizes[0] must be a text",
		`{"icons":[{"src":"x","theme":"red"}]}`:                               "icons[0].theme must be",
	} {
		got, err := sound(edge.Tool, []byte(was), []byte(is))
		switch {
		case want == "" || want[0] == '{':
			if err != nil || string(got) != cmp.Or(want, is) {
				t.Errorf("%s: %s, %v, want %s", is, got, err, cmp.Or(want, is))
			}
		case err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want %q", is, err, want)
		}
	}
	// What a backend did fails no program and stays, and keeps nothing else from being judged.
	const bad = `{"name":"a","icons":"x","_meta":5,"title":null,"mimeType":5,"inputSchema":{"type":"object","properties":{"a":true},"required":[1]}}`
	for _, c := range []struct {
		old, now string
		fails    bool
	}{
		{`"a","icons"`, `"b","icons"`, false}, {`"a":true`, `"b":{}`, false}, {`"_meta":5`, `"_meta":6`, false}, {`[1]`, `[1],"x":1`, false},
		{`"_meta":5`, `"_meta":5,"execution":7`, true}, {`"required":[1]`, `"required":2`, true}, {`"a":true`, `"a":5`, true},
	} {
		is := strings.Replace(bad, c.old, c.now, 1)
		if got, err := sound(edge.Tool, []byte(bad), []byte(is)); (err != nil) != c.fails || err == nil && string(got) != is {
			t.Errorf("%s: %s, %v", is, got, err)
		}
	}
	for thing, is := range map[edge.Thing]string{edge.Prompt: `{"arguments":[{"name":"a","required":"yes"}]}`, edge.Resource: `{"mimeType":5}`, edge.Template: `{"mimeType":5}`} {
		_, err := sound(thing, []byte("{}"), []byte(is))
		if _, other := sound(edge.Tool, []byte("{}"), []byte(is)); err == nil || other != nil {
			t.Errorf("%s passes, or fails a tool: %v", is, other)
		}
	}
}

// FuzzOps reads whatever a guest answers with.
func FuzzOps(f *testing.F) {
	f.Add(said(abi.OpSetArg, abi.AppendString(nil, abi.ArgPointer, "/a"), abi.AppendString(nil, abi.ArgRaw, "1")), []byte(`{"a":{"b":[1,2]}}`))
	f.Add(said(abi.OpDelArg, abi.AppendString(nil, abi.ArgPointer, "/a/b/0")), []byte(`{"a":{"b":[1,2]}}`))
	f.Fuzz(func(t *testing.T, record, arguments []byte) {
		if mcp.Valid(arguments) != nil || len(arguments) == 0 || arguments[0] != '{' {
			return
		}
		ops, err := opsOf(record, may(abi.OnCallRequest), maxOps)
		if err != nil {
			return
		}
		c := change{arguments: draft{text: arguments}}
		for i := range ops {
			if c.take(&ops[i]) != nil {
				return
			}
		}
		if len(c.arguments.whole()) > 0 && mcp.Valid(c.arguments.whole()) != nil {
			t.Errorf("%q became %q", arguments, c.arguments.whole())
		}
	})
}

// TestPointers follows JSON pointers (RFC 6901), and changes what they lead to.
func TestPointers(t *testing.T) {
	const value = `{"a":{"b":[10,{"c":"x"}]},"m/n":1,"o~p":2,"":3," ":4,"é":5}`
	for pointer, want := range map[string]string{
		"": value, "/a/b/0": "10", "/a/b/1/c": `"x"`, "/m~1n": "1", "/o~0p": "2", "/": "3", "/ ": "4", "/é": "5",
		"/a/b/2": "", "/a/b/01": "", "/a/b/-": "", "/a/b/-1": "", "/a/x/y": "", "/m~1n/x": "", "/a/b/99999999999": "",
	} {
		tokens, err := tokensOf(pointer)
		if err != nil || string(at([]byte(value), tokens)) != want {
			t.Errorf("%q leads to %q, %v, want %q", pointer, at([]byte(value), tokens), err, want)
		}
	}
	for _, wrong := range []string{"a", "/~", "/~2", "/a~", strings.Repeat("/a", maxTokens+1), "/" + strings.Repeat("x", maxPointer)} {
		if _, err := tokensOf(wrong); err == nil {
			t.Errorf("%q is taken for a pointer", wrong)
		}
	}
	for _, c := range []struct{ pointer, put, cut string }{
		{"/a/b/0", `{"a":{"b":[7,2]},"n":null}`, `{"a":{"b":[2]},"n":null}`},
		{"/a/b/-", `{"a":{"b":[1,2,7]},"n":null}`, `{"a":{"b":[1,2]},"n":null}`},
		{"/a/x\"y", `{"a":{"x\"y":7,"b":[1,2]},"n":null}`, `{"a":{"b":[1,2]},"n":null}`},
		{"/a", `{"a":7,"n":null}`, `{"n":null}`},
		{"/x/y", "", `{"a":{"b":[1,2]},"n":null}`},
		{"/n/y", "", `{"a":{"b":[1,2]},"n":null}`},
		{"/a/b/5", "", `{"a":{"b":[1,2]},"n":null}`},
		{"", "7", ""},
	} {
		tokens, _ := tokensOf(c.pointer)
		value := []byte(`{"a":{"b":[1,2]},"n":null}`)
		d := draft{text: value}
		if err := d.put(tokens, []byte("7")); err == nil && string(d.whole()) != c.put || (err != nil) != (c.put == "") {
			got := d.whole()
			t.Errorf("put at %q: %s, %v, want %s", c.pointer, got, err, c.put)
		}
		d = draft{text: value}
		if err := d.cut(tokens); err == nil && string(d.whole()) != c.cut || (err != nil) != (c.cut == "") {
			got := d.whole()
			t.Errorf("cut at %q: %s, %v, want %s", c.pointer, got, err, c.cut)
		}
	}
}

// TestGlobs knows * alone.
func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"*", "", true}, {"", "", true}, {"", "a", false}, {"a*", "a", true}, {"a*c", "abbc", true}, {"a*c", "abcd", false},
		{"*b*", "abc", true}, {"**", "x", true}, {"a*a", "a", false}, {"?", "x", false}, {"a.c", "abc", false},
		{strings.Repeat("a*", 20) + "b", strings.Repeat("a", 1000), false},
	} {
		if glob(c.pattern, c.text) != c.want || glob(c.pattern, []byte(c.text)) != c.want {
			t.Errorf("%q and %q: want %v", c.pattern, c.text, c.want)
		}
	}
}

// Policies that read an upstream's claims read what a program puts in the place of an identity.
func TestPrincipalOfPolicies(t *testing.T) {
	p := &program{spec: &Spec{}}
	was := &edge.Identity{Issuer: "i", Subject: "s", Claims: map[string]any{"groups": []any{"users"}, "a": 1}, PolicyClaims: map[string]any{"groups": []any{"admins"}, "roles": []any{"root"}, "b": 2}}
	id, err := p.principal(was, abi.AppendString(nil, abi.PrincipalGroup, "dev"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"b": 2, "sub": "s", "groups": []any{"dev"}, "roles": []any{}}
	if !reflect.DeepEqual(id.PolicyClaims, want) || id.Claims["a"] != 1 || !reflect.DeepEqual(id.Claims["groups"], []any{"dev"}) {
		t.Errorf("%v, want %v; the others %v", id.PolicyClaims, want, id.Claims)
	}
	was.PolicyClaims = nil
	if id, err = p.principal(was, nil); err != nil || id.PolicyClaims != nil {
		t.Errorf("%v, %v", id.PolicyClaims, err)
	}
}
