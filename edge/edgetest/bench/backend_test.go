package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
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
		era    era
		header string
		body   string
		status int
		code   int    // of the JSON-RPC error; 0 for a result
		holds  string // part of the answer
	}{
		{"legacy handshake with a modern server", modern, "", hello, 400, -32022, `"data":{"supported":["2026-07-28"],"requested":"2025-11-25"}`},
		{"legacy call of a modern server", modern, "", plain, 400, -32020, `"id":7`},
		{"unknown version", modern, "MCP-Protocol-Version: 2030-01-01\r\nMcp-Method: server/discover\r\n", probe, 400, -32022, `"requested":"2030-01-01"`},
		{"discover", modern, on("server/discover"), probe, 200, 0, `"supportedVersions":["2026-07-28"]`},
		{"discover, both eras", both, on("server/discover"), probe, 200, 0, `"supportedVersions":["2026-07-28","2025-11-25"]`},
		{"list", modern, on("tools/list"), list, 200, 0, `"id":"a"`},
		{"list has cache hints", modern, on("tools/list"), list, 200, 0, `"resultType":"complete","ttlMs":60000,"cacheScope":"public","tools":[{"name":"echo"`},
		{"other method in the header", modern, on("tools/list"), call, 400, -32020, `Mcp-Method`},
		{"no name", modern, on("tools/call"), call, 400, -32020, `Mcp-Name`},
		{"call", modern, on("tools/call") + "Mcp-Name: echo\r\n", call, 200, 0, `"text":"hi `},
		{"no _meta", modern, on("tools/call") + "Mcp-Name: echo\r\n", plain, 400, -32602, `_meta`},
		{"removed method", modern, on("ping"), strings.Replace(list, "tools/list", "ping", 1), 404, -32601, `"id":"a"`},
		{"null id", modern, on("tools/list"), strings.Replace(list, `"a"`, "null", 1), 400, -32600, `"id":null`},
		{"object as id", legacy, session, `{"jsonrpc":"2.0","id":{},"method":"ping"}`, 400, -32600, `id is neither`},

		{"modern probe of a legacy server", legacy, on("server/discover"), probe, 400, -32000, `Server not initialized`},
		{"no session", legacy, "", plain, 400, -32000, `Server not initialized`},
		{"unknown session", legacy, "Mcp-Session-Id: nobody\r\n", plain, 404, -32001, `Session not found`},
		{"handshake", legacy, "", hello, 200, 0, `"protocolVersion":"2025-11-25"`},
		{"handshake, older", both, "", strings.Replace(hello, "2025-11-25", "2025-03-26", 1), 200, 0, `"protocolVersion":"2025-03-26"`},
		{"legacy call", legacy, session, plain, 200, 0, `"text":"hi `},
		{"legacy call, both eras", both, session, plain, 200, 0, `"text":"hi `},
		{"unknown tool", legacy, session, strings.Replace(plain, "echo", "none", 1), 200, -32602, `"id":7`},
		{"unknown method", legacy, session, strings.Replace(plain, "tools/call", "what", 1), 200, -32601, `"id":7`},
		{"malformed", legacy, session, `{"jsonrpc":`, 400, -32700, ``},
		{"batch", legacy, session, `[]`, 400, -32700, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBackend(c.era, false, false, 2, 0)
			id, _ := b.tally.begin()
			addr := serveBackend(t, b)
			cl, err := dial(t.Context(), addr, c.era, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer cl.conn.Close()
			head := strings.Replace(c.header, "SESSION", id, 1)
			err = cl.exchange(fmt.Appendf(nil, "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", head, len(c.body), c.body))
			if err != nil {
				t.Fatal(err)
			}
			var m struct {
				Error struct{ Code int }
			}
			if err := json.Unmarshal(cl.answer.body, &m); err != nil {
				t.Fatalf("%v: %s", err, cl.answer.body)
			}
			if cl.answer.status != c.status || m.Error.Code != c.code || !strings.Contains(string(cl.answer.body), c.holds) {
				t.Errorf("%d %s; want %d, code %d, %s", cl.answer.status, cl.answer.body, c.status, c.code, c.holds)
			}
			refused := 0
			for _, n := range b.tally.counts().Refused {
				refused += int(n)
			}
			if want := c.status != 200; (refused == 1) != want {
				t.Errorf("%d refusals were counted for status %d", refused, c.status)
			}
		})
	}
}

// A legacy session: a list, a stream that lives as long as its connection, and
// an end after which the id is unknown.
func TestBackendSession(t *testing.T) {
	b := newBackend(legacy, true, true, 5, 0)
	addr := serveBackend(t, b)
	cl, err := dial(t.Context(), addr, legacy, 0)
	if err != nil {
		t.Fatal(err)
	}
	session, err := cl.initialize()
	if err != nil {
		t.Fatal(err)
	}
	if err := cl.exchange(cl.request("POST", session, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)); err != nil {
		t.Fatal(err)
	}
	text, err := cl.answer.message()
	if err != nil || strings.Count(string(text), `"name":`) != 5 || !json.Valid(text) || strings.Contains(string(text), "ttlMs") {
		t.Errorf("tools/list: %v: %s", err, text)
	}

	st, err := dial(t.Context(), addr, legacy, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.stream(session); err != nil {
		t.Fatal(err)
	}
	if line, err := st.reader.ReadString('\n'); err != nil || line != ": open\n" {
		t.Fatalf("the stream said %q, %v", line, err)
	}
	if n := b.tally.counts().Streams; n != 1 {
		t.Errorf("%d streams are open, not 1", n)
	}
	if !st.stillOpen() {
		t.Error("the stream has ended")
	}
	st.conn.Close()
	if st.stillOpen() {
		t.Error("a closed stream is open")
	}
	deadline := time.Now().Add(10 * time.Second)
	for b.tally.counts().Streams != 0 && time.Now().Before(deadline) {
		if alive, err := cl.ping(session); err != nil || !alive {
			t.Fatalf("ping: %v, %v", alive, err)
		}
	}
	if n := b.tally.counts().Streams; n != 0 {
		t.Errorf("%d streams are open after the client has left", n)
	}

	cl.session = session
	if err := cl.exchange(cl.request("DELETE", session, "")); err != nil || cl.answer.status != 204 {
		t.Fatalf("DELETE: %d, %v", cl.answer.status, err)
	}
	if alive, err := cl.ping(session); err != nil || alive {
		t.Errorf("ping after the end: %v, %v", alive, err)
	}
	if got := b.tally.counts(); got.Methods["GET"] != 1 || got.Methods["DELETE"] != 1 || got.Methods["initialize"] != 1 || got.Methods["notifications/initialized"] != 1 {
		t.Errorf("counts: %+v", got)
	}
	cl.conn.Close()
}

// Asking for the counts is not counted among the connections.
func TestCountsLeaveThemselvesOut(t *testing.T) {
	b := newBackend(modern, false, false, 2, 0)
	addr := serveBackend(t, b)
	f, err := openFleet(t.Context(), addr, modern, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer f.hangUp()
	if _, err := f.drive(t.Context(), "echo", 30); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := readCounts(t.Context(), addr)
		if err != nil || got.Connections != 3 || got.Methods["tools/call"] != 30 {
			t.Fatalf("%+v, %v", got, err)
		}
	}
}

func TestCheckCounts(t *testing.T) {
	for _, c := range []struct {
		name     string
		counts   counts
		elapsed  time.Duration
		wrong    string
		backends int
	}{
		{"as it must be", counts{Methods: map[string]int64{"tools/call": 100}}, time.Second, "", 1},
		{"a probe", counts{Connections: 1, Methods: map[string]int64{"tools/call": 100, "ping": 1}}, time.Millisecond, "", 1},
		{"probes over a long time", counts{Methods: map[string]int64{"tools/call": 100, "ping": 2, "server/discover": 2}}, 3 * time.Second, "", 1},
		{"a call twice", counts{Methods: map[string]int64{"tools/call": 101}}, time.Second, "101 tools/call", 1},
		{"a call lost", counts{Methods: map[string]int64{"tools/call": 99}}, time.Second, "99 tools/call", 1},
		{"a listing", counts{Methods: map[string]int64{"tools/call": 100, "tools/list": 1}}, time.Second, "1 × tools/list", 1},
		{"a handshake", counts{Methods: map[string]int64{"tools/call": 100, "initialize": 1, "notifications/initialized": 1}}, time.Second, "1 × initialize, 1 × notifications/initialized", 1},
		{"a probe a call", counts{Methods: map[string]int64{"tools/call": 100, "ping": 100}}, time.Second, "100 probes", 1},
		{"connections", counts{Connections: 3, Methods: map[string]int64{"tools/call": 100}}, time.Second, "3 new connections", 1},
		{"refusals", counts{Methods: map[string]int64{"tools/call": 100}, Refused: map[string]int64{"Header mismatch": 2}}, time.Second, "2 refused: Header mismatch", 1},
		{"the same of several backends", counts{Methods: map[string]int64{"tools/call": 100, "ping": 3, "GET": 1}}, time.Millisecond, "", 4},
		{"listening to one backend", counts{Methods: map[string]int64{"tools/call": 100, "GET": 1}}, time.Millisecond, "1 × GET", 1},
		{"listening a call", counts{Methods: map[string]int64{"tools/call": 100, "GET": 100}}, time.Millisecond, "100 probes", 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.counts.check(100, c.backends, c.elapsed)
			if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
				t.Errorf("%v, want an error about %q", err, c.wrong)
			}
		})
	}
}
