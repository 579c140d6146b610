package mcp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// protocolKeys are the keys of _meta in a request that only the modern era
// defines.
var protocolKeys = []string{MetaVersion, MetaClientInfo, MetaCapabilities, MetaLogLevel}

var aCaller = Caller{Info: []byte(`{"name":"c","version":"1"}`), Capabilities: []byte(`{"roots":{}}`), LogLevel: "info"}

const (
	plainMeta  = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`
	callerMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/logLevel":"info"`
)

func TestToModern(t *testing.T) {
	for _, c := range []struct {
		name, legacy string
		caller       Caller
		modern       string
	}{
		{"no params", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, Caller{},
			`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{` + plainMeta + `}}}`},
		{"no params, everything known", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, aCaller,
			`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{` + callerMeta + `}}}`},
		{"empty params", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`, Caller{},
			`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{` + plainMeta + `}}}`},
		{"params without _meta", `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"x","arguments":{"n":1152921504606846977}}}`, aCaller,
			`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"_meta":{` + callerMeta + `},"name":"x","arguments":{"n":1152921504606846977}}}`},
		{"empty _meta", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{},"arguments":{}}}`, Caller{},
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{` + plainMeta + `},"arguments":{}}}`},
		{"token, vendor keys and trace", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":9007199254740993,"example.com/x":{"b":1,"a":2},"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},"name":"x"}}`, Caller{},
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{` + plainMeta + `,"progressToken":9007199254740993,"example.com/x":{"b":1,"a":2},"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},"name":"x"}}`},
		{"unknown members, in their order", `{"z":[1, 2],"method":"x/y","params":{"b":{"d":1,"c":2},"a":1e400},"jsonrpc":"2.0","id":7,"a":null}`, Caller{},
			`{"z":[1, 2],"method":"x/y","params":{"_meta":{` + plainMeta + `},"b":{"d":1,"c":2},"a":1e400},"jsonrpc":"2.0","id":7,"a":null}`},
		{"white space", "{ \"jsonrpc\" : \"2.0\",\n  \"id\" : 1,\n  \"method\" : \"x\",\n  \"params\" : {\n    \"a\" : 1\n  }\n}\n", Caller{},
			"{ \"jsonrpc\" : \"2.0\",\n  \"id\" : 1,\n  \"method\" : \"x\",\n  \"params\" : {\"_meta\":{" + plainMeta + "},\n    \"a\" : 1\n  }\n}\n"},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, Caller{},
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"_meta":{` + plainMeta + `},"requestId":1}}`},
		{"what the client said of itself is replaced", `{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"lie"},"io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"k":1,"io.modelcontextprotocol/logLevel":"debug"}}}`, aCaller,
			`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"roots":{}},"k":1,"io.modelcontextprotocol/logLevel":"info"}}}`},
		{"or goes", `{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"lie"},"io.modelcontextprotocol/logLevel":"debug","k":1}}}`, Caller{},
			`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{` + plainMeta + `,"k":1}}}`},
	} {
		m := mustDecode(t, c.legacy)
		got := ToModern(nil, m, c.caller)
		if string(got) != c.modern {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.modern)
		}
		out := mustDecode(t, string(got))
		if out.MetaText(MetaVersion) != V2607 || out.Get("name") != (Span{}) && out.Text("name") != m.Text("name") {
			t.Errorf("%s: %s", c.name, got)
		}
		sameRequest(t, m, out)
	}
}

func TestToLegacy(t *testing.T) {
	for _, c := range []struct{ name, modern, legacy string }{
		{"only protocol keys", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{` + callerMeta + `}}}`,
			`{"jsonrpc":"2.0","id":"n7","method":"tools/list","params":{"_meta":{}}}`},
		{"with a cursor", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"","_meta":{` + plainMeta + `}}}`,
			`{"jsonrpc":"2.0","id":"n7","method":"tools/list","params":{"cursor":"","_meta":{}}}`},
		{"token, vendor keys and trace", `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"x","_meta":{"traceparent":"00-1-2-01",` + callerMeta + `,"progressToken":"mine","example.com/x":[1152921504606846977]},"arguments":{"b":1,"a":2}}}`,
			`{"jsonrpc":"2.0","id":"n7","method":"tools/call","params":{"name":"x","_meta":{"traceparent":"00-1-2-01","progressToken":"t7","example.com/x":[1152921504606846977]},"arguments":{"b":1,"a":2}}}`},
		{"a retry", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"inputResponses":{"a":{}},"name":"x","requestState":"s","_meta":{` + plainMeta + `}}}`,
			`{"jsonrpc":"2.0","id":"n7","method":"tools/call","params":{"name":"x","_meta":{}}}`},
		{"a retry, another order", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"_meta":{` + plainMeta + `},"name":"x","inputResponses":{},"requestState":"s"}}`,
			`{"jsonrpc":"2.0","id":"n7","method":"tools/call","params":{"_meta":{},"name":"x"}}`},
		{"unknown members, in their order", `{"z":[1, 2],"params":{"b":{"d":1,"c":2},"_meta":{` + plainMeta + `},"a":1e400},"method":"x/y","id":9007199254740993,"jsonrpc":"2.0"}`,
			`{"z":[1, 2],"params":{"b":{"d":1,"c":2},"_meta":{},"a":1e400},"method":"x/y","id":"n7","jsonrpc":"2.0"}`},
		{"extensions of a vendor stay", `{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{` + plainMeta + `,"io.modelcontextprotocol/related-task":{"taskId":"1"}}}}`,
			`{"jsonrpc":"2.0","id":"n7","method":"x","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"1"}}}}`},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1,"_meta":{` + plainMeta + `}}}`,
			`{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1,"_meta":{}}}`},
		{"nothing to change", `{"jsonrpc":"2.0","method":"notifications/x"}`, `{"jsonrpc":"2.0","method":"notifications/x"}`},
	} {
		m := mustDecode(t, c.modern)
		got := ToLegacy(nil, m, []byte(`"n7"`), []byte(`"t7"`))
		if string(got) != c.legacy {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.legacy)
		}
		sameRequest(t, m, mustDecode(t, string(got)))
	}
}

// sameRequest holds that two requests differ in nothing but what the eras
// define differently: the id, the keys of the protocol in _meta, the token of
// progress and what a retry carries. All else has its bytes and its order.
func sameRequest(t testing.TB, a, b *Message) {
	t.Helper()
	envelope := func(m *Message) []pair { return changed(pairs(t, m.Raw), []string{"id", "params"}) }
	if x, y := envelope(a), envelope(b); !slices.Equal(x, y) {
		t.Errorf("the envelope %q became %q", x, y)
	}
	if a.ID.OK() != b.ID.OK() || a.Kind != b.Kind {
		t.Errorf("%s and %s differ in kind", short(a.Raw), short(b.Raw))
	}
	params := func(m *Message) (rest, meta []pair) {
		if !m.Params.OK() {
			return nil, nil
		}
		all := pairs(t, m.Params.Of(m.Raw))
		if text, ok := valueOf(all, "_meta"); ok && text[0] == '{' {
			meta = changed(pairs(t, []byte(text)), append([]string{"progressToken"}, protocolKeys...))
		}
		return changed(all, []string{"_meta", "inputResponses", "requestState"}), meta
	}
	restA, metaA := params(a)
	restB, metaB := params(b)
	if !slices.Equal(restA, restB) {
		t.Errorf("params %q became %q", restA, restB)
	}
	if !slices.Equal(metaA, metaB) {
		t.Errorf("_meta %q became %q", metaA, metaB)
	}
}

func TestResultToModern(t *testing.T) {
	const complete = `"resultType":"complete"`
	const cached = `"resultType":"complete","ttlMs":0,"cacheScope":"private"`
	for _, c := range []struct{ name, method, legacy, modern string }{
		{"tools/call", "tools/call", `{"content":[{"type":"text","text":"é\u00e9"}],"structuredContent":{"n":1152921504606846977},"isError":true}`,
			`{` + complete + `,"content":[{"type":"text","text":"é\u00e9"}],"structuredContent":{"n":1152921504606846977},"isError":true}`},
		{"tools/list", "tools/list", `{"tools":[{"name":"b","inputSchema":{"type":"object","z":1,"a":2}}],"nextCursor":"","_meta":{"k":1}}`,
			`{` + cached + `,"tools":[{"name":"b","inputSchema":{"type":"object","z":1,"a":2}}],"nextCursor":"","_meta":{"k":1}}`},
		{"prompts/list", "prompts/list", `{"prompts":[]}`, `{` + cached + `,"prompts":[]}`},
		{"prompts/get", "prompts/get", `{"messages":[{"role":"user","content":{"type":"text","text":"x"}}]}`, `{` + complete + `,"messages":[{"role":"user","content":{"type":"text","text":"x"}}]}`},
		{"resources/list", "resources/list", `{"resources":[{"uri":"file:///a","size":9007199254740993}]}`, `{` + cached + `,"resources":[{"uri":"file:///a","size":9007199254740993}]}`},
		{"resources/templates/list", "resources/templates/list", `{"resourceTemplates":[]}`, `{` + cached + `,"resourceTemplates":[]}`},
		{"resources/read", "resources/read", `{"contents":[{"uri":"a","blob":"AA=="}]}`, `{` + cached + `,"contents":[{"uri":"a","blob":"AA=="}]}`},
		{"completion/complete", "completion/complete", `{"completion":{"values":["a"],"total":1}}`, `{` + complete + `,"completion":{"values":["a"],"total":1}}`},
		{"ping", "ping", `{}`, `{` + complete + `}`},
		{"a method of a vendor", "example.com/x", `{"ttlMs":7,"z":1,"a":{"y":1,"b":2}}`, `{` + complete + `,"ttlMs":7,"z":1,"a":{"y":1,"b":2}}`},
		{"nothing in a cacheable result", "tools/list", `{ }`, `{` + cached + ` }`},
		{"white space", "tools/call", "{\n  \"content\" : [ ]\n}", "{" + complete + ",\n  \"content\" : [ ]\n}"},
		{"what is said already stays", "tools/list", `{"tools":[],"resultType":"complete","cacheScope":"public","ttlMs":5}`, `{"tools":[],"resultType":"complete","cacheScope":"public","ttlMs":5}`},
		{"some of it", "tools/list", `{"cacheScope":"public","tools":[]}`, `{"resultType":"complete","ttlMs":0,"cacheScope":"public","tools":[]}`},
		{"said with escapes", "tools/call", `{"result\u0054ype":"complete","content":[]}`, `{"result\u0054ype":"complete","content":[]}`},
		{"a question that no legacy server asks so", "tools/call", `{"resultType":"input_required","inputRequests":{"q":1},"content":[]}`, `{` + complete + `,"inputRequests":{"q":1},"content":[]}`},
		{"no text", "x", `{"a":1,"resultType":[1]}`, `{"a":1,` + complete + `}`},
		{"no object", "x", `[1, 2]`, `[1, 2]`},
		{"no object either", "tools/call", `null`, `null`},
	} {
		for _, form := range []string{`{"jsonrpc":"2.0","id":%s,"result":%s}`, "{ \"x\":{\"result\":{}}, \"result\" : %[2]s , \"id\":%[1]s,\"jsonrpc\" : \"2.0\"}\n"} {
			m := mustDecode(t, fmt.Sprintf(form, "1", c.legacy))
			got := string(ResultToModern([]byte("> "), m, c.method, []byte(`"c1"`)))
			if want := "> " + fmt.Sprintf(form, `"c1"`, c.modern); got != want {
				t.Errorf("%s:\n got %s\nwant %s", c.name, got, want)
			}
			if kept := string(ResultToModern(nil, m, c.method, nil)); kept != fmt.Sprintf(form, "1", c.modern) {
				t.Errorf("%s: without an id of its own: %s", c.name, kept)
			}
			sameResult(t, m, mustDecode(t, got[2:]), c.method)
		}
	}
}

func TestResultToLegacy(t *testing.T) {
	const cached = `"resultType":"complete","ttlMs":60000,"cacheScope":"public"`
	const info = `"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}`
	for _, c := range []struct{ name, method, modern, legacy string }{
		{"tools/call", "tools/call", `{"resultType":"complete","content":[],"structuredContent":{"n":1152921504606846977,"b":1,"a":2},"isError":false}`,
			`{"content":[],"structuredContent":{"n":1152921504606846977,"b":1,"a":2},"isError":false}`},
		{"content that is a list", "tools/call", `{"content":[],"structuredContent":[1,2],"resultType":"complete"}`, `{"content":[]}`},
		{"content that is a text", "tools/call", `{"structuredContent":"x","content":[],"resultType":"complete"}`, `{"content":[]}`},
		{"content that is null", "tools/call", `{"content":[],"structuredContent":null,"isError":false}`, `{"content":[],"isError":false}`},
		{"content of another method", "example.com/x", `{"resultType":"complete","structuredContent":5,"ttlMs":1,"cacheScope":"x"}`, `{"structuredContent":5,"ttlMs":1,"cacheScope":"x"}`},
		{"tools/list", "tools/list", `{` + cached + `,"tools":[{"name":"b","inputSchema":{"type":"object","z":1,"a":2}}],"nextCursor":""}`, `{"tools":[{"name":"b","inputSchema":{"type":"object","z":1,"a":2}}],"nextCursor":""}`},
		{"prompts/list", "prompts/list", `{"prompts":[],` + cached + `}`, `{"prompts":[]}`},
		{"prompts/get", "prompts/get", `{"messages":[],"resultType":"complete","description":"d"}`, `{"messages":[],"description":"d"}`},
		{"resources/list", "resources/list", `{"ttlMs":0,"resources":[{"uri":"a","ttlMs":5}],"cacheScope":"private","nextCursor":"n","resultType":"complete"}`, `{"resources":[{"uri":"a","ttlMs":5}],"nextCursor":"n"}`},
		{"resources/templates/list", "resources/templates/list", `{` + cached + `,"resourceTemplates":[]}`, `{"resourceTemplates":[]}`},
		{"resources/read", "resources/read", `{` + cached + `,"contents":[{"uri":"a","text":"t"}]}`, `{"contents":[{"uri":"a","text":"t"}]}`},
		{"completion/complete", "completion/complete", `{"completion":{"values":[]},"resultType":"complete"}`, `{"completion":{"values":[]}}`},
		{"nothing else", "logging/setLevel", `{"resultType":"complete"}`, `{}`},
		{"nothing else in a cacheable one", "tools/list", `{` + cached + `}`, `{}`},
		{"server in _meta alone", "tools/call", `{"resultType":"complete","_meta":{` + info + `},"content":[]}`, `{"content":[]}`},
		{"server in _meta alone, last", "tools/call", `{"content":[],"_meta":{` + info + `}}`, `{"content":[]}`},
		{"server in _meta and nothing else", "ping", `{"_meta":{` + info + `}}`, `{}`},
		{"server in _meta among others", "tools/call", `{"_meta":{"b":{"y":1,"x":2},` + info + `,"a":1152921504606846977},"content":[],"resultType":"complete"}`, `{"_meta":{"b":{"y":1,"x":2},"a":1152921504606846977},"content":[]}`},
		{"_meta without a server", "tools/call", `{"_meta":{ "k" : 1 },"content":[]}`, `{"_meta":{ "k" : 1 },"content":[]}`},
		{"_meta that is none", "tools/call", `{"_meta":[1],"content":[]}`, `{"_meta":[1],"content":[]}`},
		{"schemas of output", "tools/list", `{"resultType":"complete","tools":[{"name":"a","outputSchema":{"type":"object","x":1}}, {"name":"b","outputSchema":{"type":"array"},"title":"B"},{"name":"c"},{"outputSchema":true,"name":"d"},{"name":"e","outputSchema":{"type":["object","null"]}},{"name":"f","outputSchema":{"$ref":"#/x"}}],"ttlMs":1,"cacheScope":"public"}`,
			`{"tools":[{"name":"a","outputSchema":{"type":"object","x":1}}, {"name":"b","title":"B"},{"name":"c"},{"name":"d"},{"name":"e"},{"name":"f"}]}`},
		{"tools that are none", "tools/list", `{"tools":{"outputSchema":{"type":"array"}},"resultType":"complete"}`, `{"tools":{"outputSchema":{"type":"array"}}}`},
		{"schemas elsewhere", "tools/call", `{"tools":[{"outputSchema":{"type":"array"}}]}`, `{"tools":[{"outputSchema":{"type":"array"}}]}`},
		{"white space", "tools/list", "{\n \"resultType\" : \"complete\" ,\n \"tools\" : [ ] ,\n \"ttlMs\" : 0 ,\n \"cacheScope\" : \"private\"\n}", "{\n \"tools\" : [ ]\n}"},
		{"said with escapes", "tools/call", `{"result\u0054ype":"complete","content":[]}`, `{"content":[]}`},
		{"no object", "x", `"text"`, `"text"`},
	} {
		for _, form := range []string{`{"jsonrpc":"2.0","id":%s,"result":%s}`, "{ \"x\":{\"result\":{}}, \"result\" : %[2]s , \"id\":%[1]s,\"jsonrpc\" : \"2.0\"}\n"} {
			m := mustDecode(t, fmt.Sprintf(form, "1", c.modern))
			got := string(ResultToLegacy([]byte("> "), m, c.method, []byte(`"c1"`)))
			if want := "> " + fmt.Sprintf(form, `"c1"`, c.legacy); got != want {
				t.Errorf("%s:\n got %s\nwant %s", c.name, got, want)
			}
			sameResult(t, m, mustDecode(t, got[2:]), c.method)
		}
	}
}

// sameResult holds that two answers to the method differ in nothing but what
// the eras define differently.
func sameResult(t testing.TB, a, b *Message, method string) {
	t.Helper()
	envelope := func(m *Message) []pair { return changed(pairs(t, m.Raw), []string{"id", "result", "error"}) }
	if x, y := envelope(a), envelope(b); !slices.Equal(x, y) {
		t.Errorf("the envelope %q became %q", x, y)
	}
	if a.Kind != b.Kind {
		t.Errorf("%s and %s differ in kind", short(a.Raw), short(b.Raw))
	}
	if x, y := essence(t, a, method), essence(t, b, method); !slices.Equal(x, y) {
		t.Errorf("the answer %q became %q", x, y)
	}
}

// essence returns what is in an answer besides the fields of one era only.
func essence(t testing.TB, m *Message, method string) []pair {
	t.Helper()
	if m.Kind == Failure {
		return changed(pairs(t, m.Error.Of(m.Raw)), []string{"code"})
	}
	value := m.Result.Of(m.Raw)
	if value[0] != '{' {
		return []pair{{"", string(value)}}
	}
	drop := []string{"resultType"}
	if slices.Contains([]string{"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read", "server/discover"}, method) {
		drop = append(drop, "ttlMs", "cacheScope")
	}
	var out []pair
	for _, p := range changed(pairs(t, value), drop) {
		switch {
		case p.name == "structuredContent" && method == "tools/call" && p.value[0] != '{':
			continue
		case p.name == "_meta" && p.value[0] == '{':
			rest := changed(pairs(t, []byte(p.value)), []string{MetaServerInfo})
			if len(rest) == 0 {
				continue
			}
			p.value = fmt.Sprint(rest)
		case p.name == "tools" && method == "tools/list" && p.value[0] == '[':
			var tools []string
			for _, tool := range items(t, []byte(p.value)) {
				if tool[0] == '{' {
					all := pairs(t, []byte(tool))
					if schema, ok := valueOf(all, "outputSchema"); ok {
						kind := ""
						if schema[0] == '{' {
							kind, _ = valueOf(pairs(t, []byte(schema)), "type")
						}
						if kind == "" || kind[0] != '"' || said(t, []byte(kind)) != "object" {
							all = changed(all, []string{"outputSchema"})
						}
					}
					tool = fmt.Sprint(all)
				}
				tools = append(tools, tool)
			}
			p.value = fmt.Sprint(tools)
		}
		out = append(out, p)
	}
	return out
}

func TestErrors(t *testing.T) {
	const data = `,"message":"no","data":{"uri":"file:///x","n":1152921504606846977},"x":1}}`
	for _, c := range []struct {
		code, modern, legacy string
	}{
		{"-32002", "-32602", "-32002"},
		{"-32042", "-32603", "-32042"},
		{"-32020", "-32020", "-32600"},
		{"-32021", "-32021", "-32600"},
		{"-32022", "-32022", "-32600"},
		{"-32700", "-32700", "-32700"}, {"-32600", "-32600", "-32600"}, {"-32601", "-32601", "-32601"}, {"-32602", "-32602", "-32602"}, {"-32603", "-32603", "-32603"},
		{"-32000", "-32000", "-32000"}, {"-32001", "-32001", "-32001"}, {"429", "429", "429"}, {"0", "0", "0"}, {"-32002.0", "-32002.0", "-32002.0"}, {`"-32002"`, `"-32002"`, `"-32002"`}, {"1e400", "1e400", "1e400"},
	} {
		for _, method := range []string{"resources/read", "tools/call", "example.com/x"} {
			m := mustDecode(t, `{"jsonrpc":"2.0","id":1,"error":{"code":`+c.code+data)
			got := string(ResultToModern(nil, m, method, []byte("2")))
			if want := `{"jsonrpc":"2.0","id":2,"error":{"code":` + c.modern + data; got != want {
				t.Errorf("to modern:\n got %s\nwant %s", got, want)
			}
			sameResult(t, m, mustDecode(t, got), method)
			got = string(ResultToLegacy(nil, m, method, []byte("2")))
			if want := `{"jsonrpc":"2.0","id":2,"error":{"code":` + c.legacy + data; got != want {
				t.Errorf("to legacy:\n got %s\nwant %s", got, want)
			}
			sameResult(t, m, mustDecode(t, got), method)
		}
	}
	for _, text := range []string{`{"jsonrpc":"2.0","error":{"message":"no id"}}`, `{"jsonrpc":"2.0","id":null,"error":{}}`} {
		m := mustDecode(t, text)
		if got := string(ResultToModern(nil, m, "tools/call", []byte("2"))); got != text {
			t.Errorf("%s became %s", text, got)
		}
		if got := string(ResultToLegacy(nil, m, "tools/call", []byte("2"))); got != text {
			t.Errorf("%s became %s", text, got)
		}
	}
}

func TestRetokened(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"n7","progress":1e400,"x":1}}`, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9007199254740993,"progress":1e400,"x":1}}`},
		{`{"jsonrpc":"2.0","method":"x","params":{"_meta":{"progressToken":1}}}`, `{"jsonrpc":"2.0","method":"x","params":{"_meta":{"progressToken":1}}}`},
		{`{"jsonrpc":"2.0","method":"x"}`, `{"jsonrpc":"2.0","method":"x"}`},
	} {
		if got := string(Retokened([]byte(">"), mustDecode(t, c.text), []byte("9007199254740993"))); got != ">"+c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestServerCapabilities(t *testing.T) {
	const legacy = `{"tools":{"listChanged":true},"tasks":{"list":{}},"experimental":{"x":1},"logging":{}}`
	const modern = `{"tools":{"listChanged":true},"extensions":{"io.modelcontextprotocol/tasks":{}},"completions":{}}`
	for _, c := range []struct {
		caps     string
		from, to Era
		want     string
	}{
		{legacy, Legacy, Legacy, legacy},
		{modern, Modern, Modern, modern},
		{legacy, Legacy, Modern, `{"tools":{"listChanged":true},"experimental":{"x":1},"logging":{}}`},
		{modern, Modern, Legacy, `{"tools":{"listChanged":true},"completions":{}}`},
		{"", Legacy, Legacy, `{}`}, {"null", Modern, Modern, `{}`}, {"[]", Legacy, Modern, `{}`},
	} {
		if got := string(ServerCapabilities([]byte(c.caps), c.from, c.to)); got != c.want {
			t.Errorf("%s from %s to %s: %s", c.caps, c.from, c.to, got)
		}
	}
}

func TestGreetings(t *testing.T) {
	if got, want := string(Initialized(V2511, []byte(`{"tools":{}}`), []byte(`{"name":"w"}`), nil)), `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"w"}}`; got != want {
		t.Errorf("got %s", got)
	}
	if got := string(Initialized(V2024, []byte(`{}`), []byte(`{}`), Quote("be \"kind\""))); !strings.HasSuffix(got, `,"instructions":"be \"kind\""}`) || Valid([]byte(got)) != nil {
		t.Errorf("got %s", got)
	}
	const want = `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"capabilities":{},"instructions":"x","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"w"}}}`
	if got := string(Discovered([]byte(`{}`), []byte(`{"name":"w"}`), []byte(`"x"`))); got != want {
		t.Errorf("got %s", got)
	}
	if got := Discovered([]byte(`{}`), []byte(`{"name":"w"}`), nil); Lookup(got, "instructions") != nil || Valid(got) != nil {
		t.Errorf("got %s", got)
	}
}

// Every method of the two revisions is known in its era and in no other.
func TestMethodsOfTheEras(t *testing.T) {
	legacy := strings.Fields("initialize ping tools/list tools/call resources/list resources/templates/list resources/read resources/subscribe resources/unsubscribe prompts/list prompts/get completion/complete logging/setLevel tasks/get tasks/result tasks/cancel tasks/list")
	modern := strings.Fields("server/discover tools/list tools/call resources/list resources/templates/list resources/read prompts/list prompts/get completion/complete subscriptions/listen tasks/get tasks/update tasks/cancel")
	for _, name := range append(slices.Clone(legacy), modern...) {
		m := MethodOf(name)
		if m.In(Legacy) != slices.Contains(legacy, name) || m.In(Modern) != slices.Contains(modern, name) {
			t.Errorf("%s: %+v", name, m)
		}
	}
	for name, target := range map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId", "tools/list": "", "completion/complete": ""} {
		if got := MethodOf(name).Target; got != target {
			t.Errorf("%s names %q", name, got)
		}
	}
	for _, name := range []string{"", "Tools/call", "tools/call ", "example.com/x"} {
		if m := MethodOf(name); m.Known || !m.In(Legacy) || !m.In(Modern) {
			t.Errorf("%q: %+v", name, m)
		}
	}
	for _, v := range Versions() {
		if LegacyVersion(v) != (v < V2607) {
			t.Errorf("%s", v)
		}
	}
	if LegacyVersion("") || LegacyVersion("2025-01-01") || LegacyVersion("9999-01-01") {
		t.Error("a revision that does not exist is spoken")
	}
}

var someMethods = []string{"tools/call", "tools/list", "resources/read", "prompts/get", "completion/complete", "example.com/x"}

func FuzzTranslate(f *testing.F) {
	for i, text := range seedMessages {
		f.Add([]byte(text), uint8(i))
	}
	for _, method := range someMethods {
		f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"_meta":{"progressToken":1,`+callerMeta+`},"name":"x","requestState":"s"}}`), uint8(0))
	}
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"structuredContent":[1],"_meta":{"k":1,"io.modelcontextprotocol/serverInfo":{}},"content":[]}}`), uint8(0))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"outputSchema":{"t\u0079pe":"object"}},{"output\u0053chema":1},5],"ttlMs":1}}`), uint8(1))
	f.Fuzz(checkTranslation)
}

// checkTranslation takes a message to the other era and back and holds that
// nothing is lost, and nothing of one era left in the other.
func checkTranslation(t *testing.T, text []byte, pick uint8) {
	m, err := Decode(text)
	if err != nil {
		return
	}
	decode := func(got []byte) *Message {
		out, err := Decode(got)
		if err != nil {
			t.Fatalf("%q became %q: %v", text, got, err)
		}
		return out
	}
	id, token := []byte(`"new"`), []byte(`"token"`)
	method := someMethods[int(pick)%len(someMethods)]
	switch m.Kind {
	case Request, Notification:
		for _, caller := range []Caller{{}, aCaller} {
			modern := decode(ToModern(nil, m, caller))
			sameRequest(t, m, modern)
			if modern.MetaText(MetaVersion) != V2607 || modern.Meta(MetaClientInfo).OK() != (caller.Info != nil) || modern.Meta(MetaLogLevel).OK() != (caller.LogLevel != "") || string(modern.IDText()) != string(m.IDText()) {
				t.Fatalf("%q became %q", text, modern.Raw)
			}
			legacy := decode(ToLegacy(nil, modern, id, token))
			sameRequest(t, m, legacy)
			for _, key := range protocolKeys {
				if legacy.Meta(key).OK() {
					t.Fatalf("%q became %q, with %s", text, legacy.Raw, key)
				}
			}
			if legacy.Get("requestState").OK() || legacy.Get("inputResponses").OK() {
				t.Fatalf("%q became %q", text, legacy.Raw)
			}
			if m.Meta("progressToken").OK() && legacy.MetaText("progressToken") != "token" || !m.Meta("progressToken").OK() && legacy.Meta("progressToken").OK() {
				t.Fatalf("%q became %q, with another token", text, legacy.Raw)
			}
			if m.ID.OK() && string(legacy.IDText()) != `"new"` {
				t.Fatalf("%q became %q, with another id", text, legacy.Raw)
			}
		}
		if got := Retokened(nil, m, token); m.Get("progressToken").OK() {
			if n := decode(got); n.Text("progressToken") != "token" {
				t.Fatalf("%q became %q", text, got)
			}
		}
	case Result, Failure:
		modern := decode(ResultToModern(nil, m, method, id))
		sameResult(t, m, modern, method)
		if m.Kind == Result && m.Raw[m.Result.Start] == '{' {
			if !modern.Get("resultType").OK() || MethodOf(method).Cacheable && !(modern.Get("ttlMs").OK() && modern.Get("cacheScope").OK()) {
				t.Fatalf("%q became %q", text, modern.Raw)
			}
		}
		if c := modern.Code(); c == CodeResourceNotFound || c == CodeURLElicitation {
			t.Fatalf("%q became %q", text, modern.Raw)
		}
		for _, from := range []*Message{m, modern} {
			legacy := decode(ResultToLegacy(nil, from, method, nil))
			sameResult(t, m, legacy, method)
			if legacy.Kind == Result && (legacy.Get("resultType").OK() || legacy.Meta(MetaServerInfo).OK() || MethodOf(method).Cacheable && legacy.Get("ttlMs").OK()) {
				t.Fatalf("%q became %q", text, legacy.Raw)
			}
			if c := legacy.Code(); c == CodeHeaderMismatch || c == CodeMissingCapability || c == CodeVersion {
				t.Fatalf("%q became %q", text, legacy.Raw)
			}
			if string(legacy.IDText()) != string(from.IDText()) {
				t.Fatalf("%q became %q, with another id", text, legacy.Raw)
			}
		}
	}
}
