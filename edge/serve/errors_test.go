package serve_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// fails checks that an answer is an error of this status, code and id. An id
// of "" stands for an answer without an id member.
func fails(t *testing.T, r *edgetest.Response, status, code int, id string) edgetest.Message {
	t.Helper()
	text := r.Answer()
	m := edgetest.Parse(t, text)
	if r.Status != status || m.Error == nil || m.Error.Code != code || string(m.ID) != id {
		t.Errorf("status %d: %s\nwant status %d, code %d, id %q", r.Status, text, status, code, id)
	}
	if id == "" && strings.Contains(string(text), `"id"`) {
		t.Errorf("an id where none is known: %s", text)
	}
	if m.Error == nil {
		t.FailNow()
	}
	return m
}

const (
	ping      = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	echo      = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
	handshake = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
)

// meta is a _meta member of a modern request, as it stands in params.
var meta = `"_meta":` + edgetest.Meta()

// modernHead is the header of a modern request.
func modernHead(method, name string, more ...string) []string {
	out := []string{"MCP-Protocol-Version", edgetest.ModernVersion, "Mcp-Method", method}
	if name != "" {
		out = append(out, "Mcp-Name", name)
	}
	return append(out, more...)
}

// What the edge refuses before it asks a backend: the rows of the table of the
// endpoint that depend on the message alone.
func TestMessagesThatAreRefused(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	s := f.client.Initialize("")
	f.introduced(t)
	old := f.client.InitializeAs("2025-03-26", "")
	f.back.Forget()
	session := []string{"Mcp-Session-Id", s.ID, "MCP-Protocol-Version", s.Version}
	call := func(id string) string {
		return `{"jsonrpc":"2.0",` + id + `"method":"tools/call","params":{"name":"echo","arguments":{},` + meta + `}}`
	}
	for _, c := range []struct {
		name   string
		body   string
		head   []string
		status int
		code   int
		id     string
		says   string // part of the message
	}{
		// malformed JSON
		{"cut JSON, legacy", `{"jsonrpc":"2.0","id":1`, session, 400, -32700, "", ""},
		{"cut JSON, modern", `{"jsonrpc":"2.0","id":1`, modernHead("ping", ""), 400, -32700, "", ""},
		{"no JSON", `hello`, session, 400, -32700, "", ""},
		{"empty body", ``, session, 400, -32700, "", ""},
		{"text after the message", ping + `x`, session, 400, -32700, "", ""},
		{"duplicate names", `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, session, 400, -32700, "", "duplicate"},
		{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}", session, 400, -32700, "", ""},
		{"lone surrogate", `{"jsonrpc":"2.0","id":"\ud800","method":"ping"}`, session, 400, -32700, "", ""},
		{"nesting without end", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}}`, session, 400, -32700, "", "nest"},

		// invalid envelope
		{"not an object, legacy", `"hi"`, session, 400, -32600, "", ""},
		{"not an object, modern", `"hi"`, modernHead("ping", ""), 400, -32600, "", ""},
		{"no version of JSON-RPC", `{"id":1,"method":"ping"}`, session, 400, -32600, "1", "jsonrpc"},
		{"other version of JSON-RPC", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, session, 400, -32600, "1", "jsonrpc"},
		{"neither method nor result", `{"jsonrpc":"2.0","id":"a"}`, session, 400, -32600, `"a"`, ""},
		{"method and result", `{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`, session, 400, -32600, "1", ""},
		{"method that is no string", `{"jsonrpc":"2.0","id":1,"method":7}`, session, 400, -32600, "1", ""},
		{"empty method", `{"jsonrpc":"2.0","id":1,"method":""}`, session, 400, -32600, "1", ""},
		{"params that are no object", `{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}`, session, 400, -32600, "1", ""},
		{"null id", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, session, 400, -32600, "", ""},
		{"fractional id", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, session, 400, -32600, "", ""},
		{"huge exponent as id", `{"jsonrpc":"2.0","id":1e400,"method":"ping"}`, session, 400, -32600, "", ""},
		{"object as id", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, session, 400, -32600, "", ""},
		{"id of a mebibyte", `{"jsonrpc":"2.0","id":"` + strings.Repeat("a", 1<<20) + `","method":"ping"}`, session, 400, -32600, "", "long"},
		{"method in another case", `{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`, session, 400, -32600, "1", "case"},
		{"params with a folding letter", `{"jsonrpc":"2.0","id":1,"method":"tools/call","param` + "ſ" + `":{"name":"x"},"params":{"name":"echo"}}`, session, 400, -32600, "1", "misspelt"},
		{"name in another case", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","Name":"rm"}}`, session, 400, -32600, "1", "case"},
		{"escaped name", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","n\u0061me":"rm"}}`, session, 400, -32700, "", "duplicate"},

		// batches
		{"batch of 2025-11-25", `[` + ping + `]`, session, 400, -32600, "", "2025-06-18"},
		{"batch of 2026-07-28", `[` + ping + `]`, modernHead("ping", ""), 400, -32600, "", "2025-06-18"},
		{"empty batch of 2025-03-26", `[]`, []string{"Mcp-Session-Id", old.ID}, 400, -32600, "", "empty"},
		{"batch of too many messages", `[` + strings.Repeat(ping+",", 100) + ping + `]`, []string{"Mcp-Session-Id", old.ID}, 400, -32600, "", "many"},

		// methods
		{"modern method of a legacy client", `{"jsonrpc":"2.0","id":"a","method":"server/discover"}`, session, 200, -32601, `"a"`, "server/discover"},
		{"unknown method at the backend, legacy", `{"jsonrpc":"2.0","id":3,"method":"no/such"}`, session, 200, -32601, "3", ""},
		{"ping of a modern client", `{"jsonrpc":"2.0","id":"a","method":"ping","params":{` + meta + `}}`, modernHead("ping", ""), 404, -32601, `"a"`, "ping"},
		{"initialize of a modern client", `{"jsonrpc":"2.0","id":4,"method":"initialize","params":{` + meta + `}}`, modernHead("initialize", ""), 404, -32601, "4", ""},
		{"logging/setLevel of a modern client", `{"jsonrpc":"2.0","id":4,"method":"logging/setLevel","params":{"level":"info",` + meta + `}}`, modernHead("logging/setLevel", ""), 404, -32601, "4", ""},
		{"resources/subscribe of a modern client", `{"jsonrpc":"2.0","id":4,"method":"resources/subscribe","params":{"uri":"a:b",` + meta + `}}`, modernHead("resources/subscribe", ""), 404, -32601, "4", ""},
		{"removed method by header alone", ping, modernHead("ping", ""), 404, -32601, "1", ""},
		{"unknown method at the backend, modern", `{"jsonrpc":"2.0","id":3,"method":"no/such","params":{` + meta + `}}`, modernHead("no/such", ""), 404, -32601, "3", ""},

		// sessions
		{"no session id", echo, nil, 400, -32600, "1", "Mcp-Session-Id"},
		{"no session id, version header", echo, []string{"MCP-Protocol-Version", "2025-11-25"}, 400, -32600, "1", "Mcp-Session-Id"},
		{"unknown session", echo, []string{"Mcp-Session-Id", "nobody"}, 404, -32001, "1", "Session not found"},
		{"session id with odd bytes", echo, []string{"Mcp-Session-Id", "../*?"}, 404, -32001, "1", "Session not found"},
		{"session id of 8 KiB", echo, []string{"Mcp-Session-Id", strings.Repeat("a", 8<<10)}, 404, -32001, "1", "Session not found"},
		{"batch without a session", `[` + ping + `]`, nil, 400, -32600, "", ""},

		// versions
		{"unsupported version, legacy", echo, []string{"Mcp-Session-Id", s.ID, "MCP-Protocol-Version", "1999-01-01"}, 400, -32600, "1", "2025-11-25, 2025-06-18"},
		{"unsupported version, modern", call(`"id":1,`), []string{"MCP-Protocol-Version", "2099-01-01", "Mcp-Method", "tools/call", "Mcp-Name", "echo"}, 400, -32020, "1", "MCP-Protocol-Version"},
		{"unsupported version in header and body", strings.Replace(call(`"id":1,`), "2026-07-28", "2099-01-01", 1), []string{"MCP-Protocol-Version", "2099-01-01", "Mcp-Method", "tools/call", "Mcp-Name", "echo"}, 400, -32022, "1", "2026-07-28"},
		{"unsupported version without _meta", echo, []string{"MCP-Protocol-Version", "2099-01-01", "Mcp-Method", "tools/call", "Mcp-Name", "echo"}, 400, -32022, "1", "2026-07-28"},

		// header and body
		{"other method in the header", call(`"id":1,`), modernHead("tools/list", "echo"), 400, -32020, "1", "Mcp-Method"},
		{"method in another case in the header", call(`"id":1,`), modernHead("Tools/Call", "echo"), 400, -32020, "1", "Mcp-Method"},
		{"no method in the header", call(`"id":1,`), []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Name", "echo"}, 400, -32020, "1", "Mcp-Method"},
		{"no name in the header", call(`"id":1,`), modernHead("tools/call", ""), 400, -32020, "1", "Mcp-Name"},
		{"other name in the header", call(`"id":1,`), modernHead("tools/call", "safe"), 400, -32020, "1", "Mcp-Name"},
		{"other name in base64", call(`"id":1,`), modernHead("tools/call", "=?base64?ZXZpbA==?="), 400, -32020, "1", "Mcp-Name"},
		{"bad base64", call(`"id":1,`), modernHead("tools/call", "=?base64?ZWNobw?="), 400, -32020, "1", "Mcp-Name"},
		{"base64 in base64", call(`"id":1,`), modernHead("tools/call", "=?base64?PT9iYXNlNjQ/WldOb2J3PT0/PQ==?="), 400, -32020, "1", "Mcp-Name"},
		{"a name that looks like base64, as it is", strings.Replace(call(`"id":1,`), `"echo"`, `"=?base64?ZWNobw==?="`, 1), modernHead("tools/call", "=?base64?ZWNobw==?="), 400, -32020, "1", "Mcp-Name"},
		{"no version in the header", call(`"id":1,`), []string{"Mcp-Method", "tools/call", "Mcp-Name", "echo"}, 400, -32020, "1", "MCP-Protocol-Version"},
		{"older version in the header", call(`"id":1,`), []string{"MCP-Protocol-Version", "2025-11-25", "Mcp-Method", "tools/call", "Mcp-Name", "echo"}, 400, -32020, "1", "MCP-Protocol-Version"},
		{"bad base64 in a parameter header", call(`"id":1,`), modernHead("tools/call", "echo", "Mcp-Param-Region", "=?base64?***?="), 400, -32020, "1", "Mcp-Param-Region"},

		// _meta
		{"no _meta", echo, modernHead("tools/call", "echo"), 400, -32602, "1", "protocolVersion"},
		{"no capabilities", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, modernHead("tools/call", "echo"), 400, -32602, "1", "clientCapabilities"},
		{"capabilities that are no object", strings.Replace(call(`"id":1,`), `clientCapabilities":{}`, `clientCapabilities":[]`, 1), modernHead("tools/call", "echo"), 400, -32602, "1", "clientCapabilities"},
		{"a level that is none", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":` + edgetest.Meta(`"`+edgetest.LogLevel+`":"loud"`) + `}}`, modernHead("tools/call", "echo"), 400, -32602, "1", "logLevel"},
		{"no name in the body", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + meta + `}}`, modernHead("tools/call", "echo"), 400, -32602, "1", "name"},
		{"a name that is no string", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":1,` + meta + `}}`, modernHead("tools/call", "1"), 400, -32602, "1", "name"},
		{"an answer of a modern client", `{"jsonrpc":"2.0","id":1,"result":{}}`, modernHead("ping", ""), 400, -32600, "1", ""},

		// initialize
		{"initialize without a version", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{}}}`, nil, 200, -32602, "1", "protocolVersion"},
		{"logging/setLevel to no level", `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"loud"}}`, session, 200, -32602, "1", "level"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := f.client.Post(c.body, c.head...)
			m := fails(t, r, c.status, c.code, c.id)
			if !strings.Contains(m.Error.Message, c.says) {
				t.Errorf("%q does not say %q", m.Error.Message, c.says)
			}
			if got := r.Header.Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type %q", got)
			}
		})
	}
	// The two unknown methods are the only ones that a backend may have seen.
	for _, r := range f.back.Requests("") {
		if r.Kind != "no/such" && r.Kind != "initialize" && r.Kind != "notifications/initialized" {
			t.Errorf("the backend saw %s: %s", r.Kind, r.Body)
		}
	}
}

// A name that HTTP cannot carry as it is comes in base64, and goes on so.
func TestNamesInBase64(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	for _, c := range []struct{ name, header string }{
		{"échö", "=?base64?w6ljaMO2?="},
		{" padded ", "=?base64?IHBhZGRlZCA=?="},
		{"=?base64?ZWNobw==?=", "=?base64?PT9iYXNlNjQ/WldOb2J3PT0/PQ==?="},
		{"plain", "=?base64?cGxhaW4=?="},
		{"plain", "plain"},
	} {
		body, _ := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams(c.name, `{"n":1}`), edgetest.Meta())
		r := f.client.Post(body, modernHead("tools/call", c.header)...)
		if r.Status != 200 || r.Message().Error != nil {
			t.Errorf("%s as %s: status %d: %s", c.name, c.header, r.Status, r.Body)
		}
	}
}

// The error for a version that the edge does not speak names those it does.
func TestUnsupportedVersionNamesTheSupported(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	body, head := edgetest.ModernRequest("7", "tools/list", "", strings.ReplaceAll(edgetest.Meta(), "2026-07-28", "2027-01-01"))
	head[1] = "2027-01-01"
	m := fails(t, f.client.Post(body, head...), 400, -32022, "7")
	if got, want := string(m.Error.Data), `{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2027-01-01"}`; got != want {
		t.Errorf("data %s\nwant %s", got, want)
	}
}

// What the edge refuses for what HTTP says, whatever the message.
func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.MaxBody = 64 << 10 }))
	s := f.client.Initialize("")
	f.introduced(t)
	_, port, _ := strings.Cut(f.Addr(), ":")
	modern := []string{"MCP-Protocol-Version", "2026-07-28"}
	legacy := []string{"Mcp-Session-Id", s.ID}
	for _, c := range []struct {
		name, method, path string
		body               string
		head               []string
		status             int
	}{
		{"Host of somebody else", "POST", "/mcp", ping, []string{"Host", "evil.example"}, 403},
		{"Host that resolves to loopback", "POST", "/mcp", ping, []string{"Host", "127.0.0.1.nip.io:" + port}, 403},
		{"Host in another case", "POST", "/mcp", ping, []string{"Host", "LOCALHOST:" + port}, 403},
		{"Host with a dot at its end", "POST", "/mcp", ping, []string{"Host", "localhost.:" + port}, 403},
		{"Host as a number", "POST", "/mcp", ping, []string{"Host", "2130706433:" + port}, 403},
		{"Host with another port", "POST", "/mcp", ping, []string{"Host", "localhost:1"}, 403},
		{"Host without a port", "POST", "/mcp", ping, []string{"Host", "localhost"}, 403},
		{"Origin of somebody else", "POST", "/mcp", ping, []string{"Origin", "http://evil.example"}, 403},
		{"Origin null", "POST", "/mcp", ping, []string{"Origin", "null"}, 403},
		{"Origin of a file", "POST", "/mcp", ping, []string{"Origin", "file://"}, 403},
		{"Origin that begins like ours", "POST", "/mcp", ping, []string{"Origin", "http://localhost:" + port + ".evil.example"}, 403},
		{"Origin with a path", "POST", "/mcp", ping, []string{"Origin", "http://localhost:" + port + "/"}, 403},
		{"Origin in another case", "POST", "/mcp", ping, []string{"Origin", "http://LocalHost:" + port}, 403},
		{"Origin of another scheme", "POST", "/mcp", ping, []string{"Origin", "https://localhost:" + port}, 403},
		{"Origin on a GET", "GET", "/mcp", "", append([]string{"Origin", "http://evil.example", "Accept", "text/event-stream"}, legacy...), 403},
		{"Origin on a DELETE", "DELETE", "/mcp", "", append([]string{"Origin", "http://evil.example"}, legacy...), 403},
		{"Origin on the older transport", "GET", "/sse", "", []string{"Origin", "http://evil.example", "Accept", "text/event-stream"}, 403},
		{"Origin of a modern request", "POST", "/mcp", ping, append([]string{"Origin", "http://evil.example"}, modern...), 403},

		{"body above the limit, legacy", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"` + strings.Repeat("a", 64<<10) + `"}}`, legacy, 413},
		{"body above the limit, modern", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"` + strings.Repeat("a", 64<<10) + `"}}`, modern, 413},
		{"text, legacy", "POST", "/mcp", ping, append([]string{"Content-Type", "text/plain"}, legacy...), 415},
		{"text, modern", "POST", "/mcp", ping, append([]string{"Content-Type", "text/plain"}, modern...), 415},
		{"no Content-Type", "POST", "/mcp", ping, append([]string{"Content-Type", ""}, legacy...), 415},
		{"nearly JSON", "POST", "/mcp", ping, append([]string{"Content-Type", "application/jsonp"}, legacy...), 415},
		{"text on the older transport", "POST", "/messages?sessionId=x", ping, []string{"Content-Type", "text/plain"}, 415},
		{"compressed body, legacy", "POST", "/mcp", ping, append([]string{"Content-Encoding", "gzip"}, legacy...), 415},
		{"compressed body, modern", "POST", "/mcp", ping, append([]string{"Content-Encoding", "deflate"}, modern...), 415},

		{"GET without text/event-stream", "GET", "/mcp", "", append([]string{"Accept", "application/json"}, legacy...), 406},
		{"GET with text/event-stream of no weight", "GET", "/mcp", "", append([]string{"Accept", "text/event-stream; Q=0.0, */*"}, legacy...), 406},
		{"GET of the older transport with text/event-stream of no weight", "GET", "/sse", "", []string{"Accept", "text/event-stream;q=0, */*"}, 406},
		{"GET without Accept", "GET", "/mcp", "", legacy, 406},
		{"GET of a modern client", "GET", "/mcp", "", append([]string{"Accept", "text/event-stream"}, modern...), 405},
		{"DELETE of a modern client", "DELETE", "/mcp", "", modern, 405},
		{"GET without a session", "GET", "/mcp", "", []string{"Accept", "text/event-stream"}, 400},
		{"GET of an unknown session", "GET", "/mcp", "", []string{"Accept", "text/event-stream", "Mcp-Session-Id", "nobody"}, 404},
		{"DELETE without a session", "DELETE", "/mcp", "", nil, 400},
		{"DELETE of an unknown session", "DELETE", "/mcp", "", []string{"Mcp-Session-Id", "nobody"}, 404},
		{"PUT", "PUT", "/mcp", "", legacy, 405},
		{"POST to the stream of the older transport", "POST", "/sse", ping, nil, 405},
		{"POST to no session of the older transport", "POST", "/messages?sessionId=nobody", ping, nil, 404},
		{"GET of the older transport's address for messages", "GET", "/messages", "", nil, 405},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := f.client.Do(c.method, c.path, c.body, c.head...)
			m := r.Message()
			if r.Status != c.status || m.Error == nil || m.ID != nil {
				t.Errorf("status %d: %s, want %d and an error without an id", r.Status, r.Body, c.status)
			}
			if r.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Error("an origin is allowed that is not")
			}
			if c.status == 405 && r.Header.Get("Allow") == "" {
				t.Error("no Allow")
			}
		})
	}
	t.Run("Host and Origin of somebody else", func(t *testing.T) {
		r := f.client.Post(ping, "Host", "evil.example", "Origin", "http://evil.example")
		if r.Status != 403 || r.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("status %d, %v", r.Status, r.Header)
		}
	})
	t.Run("a header twice", func(t *testing.T) {
		for _, name := range []string{"Mcp-Session-Id", "Mcp-Method", "Mcp-Name", "MCP-Protocol-Version", "Origin"} {
			raw := f.Dial()
			raw.Write("POST /mcp HTTP/1.1\r\nHost: " + f.Addr() + "\r\nContent-Type: application/json\r\n" +
				name + ": http://evil.example\r\n" + name + ": http://evil.example\r\nContent-Length: 2\r\n\r\n{}")
			h, body := raw.Read()
			if h.StatusCode != 400 || !strings.Contains(body, name+" is there twice") || h.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s: status %d, %v: %s", name, h.StatusCode, h.Header, body)
			}
		}
	})
	if n := f.back.Count(""); n != 0 {
		t.Errorf("the backend saw %d requests", n)
	}
	if r := s.Request("9", "ping", ""); r.Status != 200 {
		t.Errorf("the session does not go on: status %d", r.Status)
	}
}

// The body's length is judged before the body comes.
func TestBodyAboveTheLimitIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	raw := f.Dial()
	raw.Write(fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", f.Addr(), 4<<20+1))
	if h, body := raw.Read(); h.StatusCode != 413 || !strings.Contains(body, "4194304") {
		t.Errorf("status %d: %s", h.StatusCode, body)
	}
	if !raw.Ended() {
		t.Error("the connection stays open")
	}
}

// A batch belongs to the revisions before 2025-06-18: each message in it is
// judged and answered by itself.
func TestBatchOfAnOlderRevision(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	for _, version := range []string{"2025-03-26", "2024-11-05"} {
		s := f.client.InitializeAs(version, "")
		r := s.Send(`[ {"jsonrpc":"2.0","id":1,"method":"ping"}, {"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"echo","arguments":{"n":2}}},
			{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}, {"jsonrpc":"2.0","id":3,"method":"server/discover"}, {"jsonrpc":"2.0","id":4}, {"jsonrpc":"2.0","id":5,"method":"initialize","params":{}} ]`)
		want := `[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":"two","result":{"content":[{"type":"text","text":"{\"n\":2}"}]}},` +
			`{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"method not found: server/discover"}},` +
			`{"jsonrpc":"2.0","id":4,"error":{"code":-32600,"message":"a message has either a method, a result or an error"}},` +
			`{"jsonrpc":"2.0","id":5,"error":{"code":-32600,"message":"initialize is not allowed in a batch"}}]`
		if r.Status != 200 || string(r.Body) != want {
			t.Errorf("%s: status %d:\n%s\nwant\n%s", version, r.Status, r.Body, want)
		}
		if r := s.Send(`[{"jsonrpc":"2.0","method":"notifications/initialized"}]`); r.Status != 202 || len(r.Body) > 0 {
			t.Errorf("%s: a batch without requests: status %d: %s", version, r.Status, r.Body)
		}
	}
}

// TestZ01BatchOfLargeAnswers: the answers of a batch have as many bytes together as
// one message of a backend may; who wants more is told so, and no backend is asked
// for what there is no room for.
func TestZ01BatchOfLargeAnswers(t *testing.T) {
	t.Parallel()
	const each, most = 64 << 10, 1 << 20
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.MaxMessage = most }))
	f.introduced(t)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Result(`{"content":[{"type":"text","text":"` + strings.Repeat("x", each) + `"}]}`)
	})
	s := f.client.InitializeAs("2025-03-26", "")
	send := func(method, params string, n int) (good int) {
		t.Helper()
		var parts []string
		for i := range n {
			parts = append(parts, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, i, method, params))
		}
		r := s.Send("[" + strings.Join(parts, ",") + "]")
		if len(r.Body) > most+n*256 {
			t.Errorf("%d times %s: an answer of %d bytes", n, method, len(r.Body))
		}
		var all []edgetest.Message
		if err := json.Unmarshal(r.Body, &all); err != nil || len(all) != n || r.Status != 200 {
			t.Fatalf("%d times %s: status %d, %d answers: %v", n, method, r.Status, len(all), err)
		}
		for i, m := range all {
			switch {
			case string(m.ID) != fmt.Sprint(i):
				t.Errorf("answer %d has id %s", i, m.ID)
			case m.Error == nil && good == i:
				good++
			case m.Error == nil || m.Error.Code != 503 || !strings.Contains(m.Error.Message, strconv.Itoa(most)):
				t.Errorf("answer %d behind %d: %+v", i, good, m.Error)
			}
		}
		return good
	}
	if good := send("tools/call", `{"name":"echo"}`, 100); good != 15 {
		t.Errorf("%d answers of 64 KiB in 1 MiB", good)
	}
	if n := f.back.Count("tools/call"); n != 16 {
		t.Errorf("the backend was asked %d times", n)
	}
	if good := send("tools/call", `{"name":"echo"}`, 15); good != 15 {
		t.Errorf("of 15 answers that fit there are %d", good)
	}
	if good := send("tools/list", `{}`, 100); good != 100 {
		t.Errorf("of 100 small lists there are %d", good)
	}
}
