//go:build unix

package serve_test

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// postingTo is the client of a stream as it POSTs to another edge.
func postingTo(s *edgetest.OldSession, f *front) *edgetest.OldSession {
	there := *s
	there.Client = f.NewClient()
	return &there
}

// TestItem01OlderTransportAtEveryReplica: what a client of HTTP with SSE POSTs to
// any edge is served, and what comes of it comes on its stream, in its order;
// questions and cancellations reach the edge that has the call.
func TestItem01OlderTransportAtEveryReplica(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"here", "there"} {
		t.Run("initialize "+first, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, edgetest.Legacy)
			here := p.a.NewClient().OpenSSE()
			there := postingTo(here, p.b)
			if first == "here" {
				here.Initialize(asks)
			} else {
				there.Initialize(asks)
			}
			// A call at either edge, with what it says before its answer.
			for i, s := range []*edgetest.OldSession{there, here, there} {
				p.back.Once("tools/call", func(c *edgetest.Call) {
					c.Progress(1)
					c.Progress(2)
					c.Result(`{"content":[],"n":` + string(rune('0'+i)) + `}`)
				})
				s.Request("7", "tools/call", `{"name":"echo","_meta":{"progressToken":"t"}}`)
				for n := 1; n <= 2; n++ {
					if m := here.Stream.NextMessage(); m.Method != "notifications/progress" || edgetest.Member(string(m.Params), "progress") != string(rune('0'+n)) {
						t.Errorf("%+v", m)
					}
				}
				if m := here.Stream.NextMessage(); string(m.ID) != "7" || !strings.Contains(string(m.Result), `"n":`+string(rune('0'+i))) {
					t.Errorf("%+v", m)
				}
			}
			// A question of a call at one edge is answered at the other.
			p.back.Always("tools/call", func(c *edgetest.Call) {
				m := c.Ask(`"q"`, "roots/list", "")
				c.Result(`{"content":[],"said":` + string(m.Result) + `}`)
			})
			for _, way := range [][2]*edgetest.OldSession{{there, here}, {here, there}, {there, there}} {
				way[0].Request("8", "tools/call", `{"name":"echo"}`)
				q := here.Stream.NextMessage()
				if q.Method != "roots/list" {
					t.Fatalf("%+v", q)
				}
				way[1].Accepted(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"roots":[]}}`)
				if m := here.Stream.NextMessage(); string(m.ID) != "8" || !strings.Contains(string(m.Result), `"said":{"roots":[]}`) {
					t.Errorf("%+v", m)
				}
			}
			// So is a cancellation.
			p.back.Always("tools/call", func(c *edgetest.Call) { c.Wait(nil) })
			for i, way := range [][2]*edgetest.OldSession{{there, here}, {here, there}} {
				p.back.Forget()
				id := `"slow ` + strconv.Itoa(i) + `"` // the first may not have ended yet
				way[0].Request(id, "tools/call", `{"name":"echo"}`)
				p.back.Await("tools/call", 1)
				way[1].Accepted(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"enough"}}`)
				if got := p.back.Await("notifications/cancelled", 1); edgetest.Member(string(got.Message.Params), "reason") == "" {
					t.Errorf("%d: %s", i, got.Body)
				}
			}
			// A second initialize is refused at both, and changes nothing.
			again := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
			for _, s := range []*edgetest.OldSession{here, there} {
				fails(t, s.Do("POST", s.Path, again), 400, -32600, "0")
			}
			there.Request("9", "ping", "")
			if got := string(here.Stream.Next().Data); got != `{"jsonrpc":"2.0","id":9,"result":{}}` {
				t.Errorf("ping: %s", got)
			}
			// The end of the stream is the end of what goes on at the other edge, and
			// of the session.
			p.back.Forget()
			there.Request("10", "tools/call", `{"name":"echo"}`)
			p.back.Await("tools/call", 1)
			here.Stream.Close()
			p.back.Await("notifications/cancelled", 1)
			const ping = `{"jsonrpc":"2.0","id":11,"method":"ping"}`
			edgetest.Until(t, "the end of the session", func() bool { return there.Do("POST", there.Path, ping).Status == 404 })
			fails(t, here.Do("POST", here.Path, ping), 404, -32001, "")
			edgetest.Until(t, "the end of the session in the store", func() bool { return p.redis.Do("--raw", "keys", "weir:session:*") == "" })
			if n := p.a.Serve.Sessions() + p.b.Serve.Sessions(); n != 0 {
				t.Errorf("%d sessions are left", n)
			}
		})
	}
}

// TestItem01OlderTransportStrangers: streams that are not there, and those of an
// edge that is gone, are unknown at every edge; nothing is made for them. What
// lies in the store leads nobody to a stream.
func TestItem01OlderTransportStrangers(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	here := p.a.NewClient().OpenSSE()
	there := postingTo(here, p.b)
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	fails(t, there.Do("POST", there.Path, ping), 404, -32001, "1") // before its initialize
	_, address, _ := strings.Cut(here.Path, "sessionId=")
	node, id, _ := strings.Cut(address, ".")
	for name, path := range map[string]string{
		"another stream of that edge": node + "." + strings.Repeat("A", 22),
		"another edge":                "0123456789abcdef." + id,
		"no edge":                     "x." + id,
		"without its edge":            id,
		"nothing behind its edge":     node + ".",
	} {
		for _, body := range []string{hello, ping} {
			if r := there.Do("POST", "/messages?sessionId="+path, body); r.Status != 404 || !strings.Contains(string(r.Body), "Session not found") {
				t.Errorf("%s: status %d: %s", name, r.Status, r.Body)
			}
		}
	}
	if n := p.b.Serve.Sessions(); n != 0 {
		t.Errorf("%d sessions", n)
	}
	there.Initialize("")
	for _, key := range strings.Fields(p.redis.Do("--raw", "keys", "*")) {
		if strings.Contains(key, id) || strings.HasPrefix(key, "weir:session:") && strings.Contains(p.redis.Do("--raw", "get", key), id) {
			t.Errorf("the store tells the address of a stream: %s", key)
		}
	}
	// The session is none of the newer transport.
	r := there.Do("POST", "/mcp", ping, "Mcp-Session-Id", id, "MCP-Protocol-Version", "2025-11-25", "Accept", "application/json, text/event-stream")
	fails(t, r, 404, -32001, "1")
	p.a.Stop()
	edgetest.Until(t, "the end of a stream whose edge is gone", func() bool { return there.Do("POST", there.Path, ping).Status == 404 })
}

// TestZ14OlderCallElsewhere: a replica that leaves while it serves a call of a
// client whose stream is at another one, leaves, and the call ends.
func TestZ14OlderCallElsewhere(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = edgetest.Patience }))
	entered, leave := slow(p.b)
	old := p.a.NewClient().OpenSSE()
	there := postingTo(old, p.b)
	old.Initialize("")
	there.Request("7", "tools/call", edgetest.CallParams("echo", "{}"))
	edgetest.Receive(t, entered, "the call")
	done := stopping(p.b)
	edgetest.Until(t, "the end of the door", func() bool {
		conn, err := net.Dial("tcp", p.b.Addr())
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	select {
	case <-done:
		t.Error("the edge ends before its call")
	case <-time.After(200 * time.Millisecond): // several looks at what is left
	}
	close(leave)
	if m := old.Stream.NextMessage(); string(m.ID) != "7" || m.Error != nil {
		t.Errorf("%+v", m)
	}
	edgetest.Receive(t, done, "the end of the edge")
}
