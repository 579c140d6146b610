package kit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// What the backend refuses is what an edge relies on to tell the eras apart,
// and what finds out an edge that forgets something.
func TestBackendRefusals(t *testing.T) {
	const (
		hello = `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
		meta  = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		probe = `{"jsonrpc":"2.0","id":7,"method":"server/discover","params":{` + meta + `}}`
		list  = `{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{` + meta + `}}`
		call  = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"},` + meta + `}}`
		plain = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}`
	)
	version := "MCP-Protocol-Version: 2026-07-28\r\n"
	on := func(method string) string { return version + "Mcp-Method: " + method + "\r\n" }
	session := "Mcp-Session-Id: SESSION\r\n"
	for _, c := range []struct {
		name   string
		era    Era
		header string
		body   string
		status int
		code   int    // of the JSON-RPC error; 0 for a result
		holds  string // part of the answer
	}{
		{"legacy handshake with a modern server", Modern, "", hello, 400, -32022, `"data":{"supported":["2026-07-28"],"requested":"2025-11-25"}`},
		{"legacy call of a modern server", Modern, "", plain, 400, -32020, `"id":7`},
		{"unknown version", Modern, "MCP-Protocol-Version: 2030-01-01\r\nMcp-Method: server/discover\r\n", probe, 400, -32022, `"requested":"2030-01-01"`},
		{"discover", Modern, on("server/discover"), probe, 200, 0, `"supportedVersions":["2026-07-28"]`},
		{"discover, both eras", Both, on("server/discover"), probe, 200, 0, `"supportedVersions":["2026-07-28","2025-11-25"]`},
		{"list", Modern, on("tools/list"), list, 200, 0, `"id":"a"`},
		{"list has cache hints", Modern, on("tools/list"), list, 200, 0, `"resultType":"complete","ttlMs":60000,"cacheScope":"public","tools":[{"name":"echo"`},
		{"other method in the header", Modern, on("tools/list"), call, 400, -32020, `Mcp-Method`},
		{"no name", Modern, on("tools/call"), call, 400, -32020, `Mcp-Name`},
		{"call", Modern, on("tools/call") + "Mcp-Name: echo\r\n", call, 200, 0, `"text":"hi `},
		{"no _meta", Modern, on("tools/call") + "Mcp-Name: echo\r\n", plain, 400, -32602, `_meta`},
		{"removed method", Modern, on("ping"), strings.Replace(list, "tools/list", "ping", 1), 404, -32601, `"id":"a"`},
		{"null id", Modern, on("tools/list"), strings.Replace(list, `"a"`, "null", 1), 400, -32600, `"id":null`},
		{"object as id", Legacy, session, `{"jsonrpc":"2.0","id":{},"method":"ping"}`, 400, -32600, `id is neither`},

		{"modern probe of a legacy server", Legacy, on("server/discover"), probe, 400, -32000, `Server not initialized`},
		{"no session", Legacy, "", plain, 400, -32000, `Server not initialized`},
		{"unknown session", Legacy, "Mcp-Session-Id: nobody\r\n", plain, 404, -32001, `Session not found`},
		{"handshake", Legacy, "", hello, 200, 0, `"protocolVersion":"2025-11-25"`},
		{"handshake, older", Both, "", strings.Replace(hello, "2025-11-25", "2025-03-26", 1), 200, 0, `"protocolVersion":"2025-03-26"`},
		{"legacy call", Legacy, session, plain, 200, 0, `"text":"hi `},
		{"legacy call, both eras", Both, session, plain, 200, 0, `"text":"hi `},
		{"unknown tool", Legacy, session, strings.Replace(plain, "echo", "none", 1), 200, -32602, `"id":7`},
		{"unknown method", Legacy, session, strings.Replace(plain, "tools/call", "what", 1), 200, -32601, `"id":7`},
		{"malformed", Legacy, session, `{"jsonrpc":`, 400, -32700, ``},
		{"batch", Legacy, session, `[]`, 400, -32700, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBackend(c.era, "echo", "slow")
			b.Lives, b.Fill = time.Minute, 200
			id, _ := b.begin("x")
			cl := beforeBackend(t, b)
			head := strings.Replace(c.header, "SESSION", id, 1)
			a, err := cl.Do(fmt.Appendf(nil, "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", head, len(c.body), c.body))
			if err != nil {
				t.Fatal(err)
			}
			var m struct {
				Error struct{ Code int }
			}
			if err := json.Unmarshal(a.Body, &m); err != nil {
				t.Fatalf("%v: %s", err, a.Body)
			}
			if a.Status != c.status || m.Error.Code != c.code || !strings.Contains(string(a.Body), c.holds) {
				t.Errorf("%d %s; want %d, code %d, %s", a.Status, a.Body, c.status, c.code, c.holds)
			}
			refused := 0
			for _, n := range b.Counts().Refused {
				refused += int(n)
			}
			if want := c.status != 200; (refused == 1) != want {
				t.Errorf("%d refusals were counted for status %d", refused, c.status)
			}
		})
	}
}

// beforeBackend has the backend serve until the test ends, and returns a client.
func beforeBackend(t *testing.T, b *Backend) *Client {
	t.Helper()
	if b.Addr == "" {
		t.Cleanup(b.Close)
		if _, err := b.Listen("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Dial(t.Context(), b.Addr, b.Era, DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.Wait(edgetest.Patience)
	return c
}

// A legacy session: a list, a stream that lives as long as its connection, and
// an end after which the id is unknown.
func TestBackendSession(t *testing.T) {
	b := NewBackend(Legacy, "a", "b", "c")
	b.SSE, b.Silent = true, true
	c := beforeBackend(t, b)
	if err := c.Begin("x"); err != nil {
		t.Fatal(err)
	}
	a, err := c.Try("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if err != nil {
		t.Fatal(err)
	}
	text, err := a.Message()
	if err != nil || strings.Count(string(text), `"name":`) != 3 || !json.Valid(text) || strings.Contains(string(text), "ttlMs") {
		t.Errorf("tools/list: %v: %s", err, text)
	}

	st := beforeBackend(t, b)
	st.Session = c.Session
	if _, err := st.Conn.Write(st.Request("GET", "")); err != nil {
		t.Fatal(err)
	}
	if err := st.Answer.ReadHead(st.In); err != nil || st.Answer.Kind != EventContent {
		t.Fatal(err)
	}
	if line, err := st.In.ReadString('\n'); err != nil || line != ": open\n" {
		t.Fatalf("the stream said %q, %v", line, err)
	}
	ping := func() int {
		t.Helper()
		a, err := c.Try("POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		if err != nil {
			t.Fatalf("ping: %v", err)
		}
		return a.Status
	}
	edgetest.Until(t, "one stream", func() bool { return ping() == 200 && b.Counts().Streams == 1 })
	st.Close()
	edgetest.Until(t, "the end of the stream", func() bool { return ping() == 200 && b.Counts().Streams == 0 })

	if a, err := c.Try("DELETE", ""); err != nil || a.Status != 204 {
		t.Fatalf("DELETE: %d, %v", a.Status, err)
	}
	if status := ping(); status != 404 {
		t.Errorf("ping after the end: %d", status)
	}
	if got := b.Counts(); got.Methods["GET"] != 1 || got.Methods["DELETE"] != 1 || got.Methods["initialize"] != 1 || got.Methods["notifications/initialized"] != 1 {
		t.Errorf("counts: %+v", got)
	}
}
