package serve_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// behind believes what the proxy on this host says of its clients.
var behind = edgetest.Settings(func(s *serve.Settings) { s.TrustedProxies = []string{"127.0.0.1"} })

// begins opens a session with a header and returns its id; "" with the status
// when there is none.
func begins(t *testing.T, c *edgetest.Client, header ...string) (id string, status int) {
	t.Helper()
	r := c.Post(handshake, header...)
	return r.Header.Get("Mcp-Session-Id"), r.Status
}

// alive reports whether a session still is one.
func alive(t *testing.T, c *edgetest.Client, id string, header ...string) bool {
	t.Helper()
	r := c.Post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, append([]string{"Mcp-Session-Id", id}, header...)...)
	if r.Status != 200 && r.Status != 404 {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	return r.Status == 200
}

// asClients are two ways to tell clients apart: by who they are, and by the
// address they come from where nobody asks who they are. Each gives the header
// of a client of a number.
func asClients(t *testing.T, test func(t *testing.T, f *front, as func(n int) []string), options ...edgetest.Option) {
	t.Run("principals", func(t *testing.T) {
		t.Parallel()
		m, back := newMint(t), edgetest.NewServer(t, edgetest.Legacy)
		e := edgetest.Start(t, asPeople(m, edgetest.Manifest(back)), append(options, behind)...)
		f := &front{Edge: e, back: back, client: e.NewClient()}
		f.person(t, m, edgetest.Modern, "probe", "")
		test(t, f, func(n int) []string {
			// Wherever they come from, and with whatever token.
			return append(bearer(m.token(t, fmt.Sprintf("person %d", n), "weir", map[string]any{"jti": fmt.Sprint(time.Now().UnixNano())})),
				"X-Forwarded-For", fmt.Sprintf("192.0.2.%d", time.Now().Nanosecond()%200+1))
		})
	})
	t.Run("addresses", func(t *testing.T) {
		t.Parallel()
		f := newFront(t, edgetest.Legacy, append(options, behind)...)
		test(t, f, func(n int) []string {
			switch n % 3 {
			case 0:
				return []string{"X-Forwarded-For", fmt.Sprintf("198.51.100.7, 192.0.2.%d", n+1)} // what a client says of itself counts for nothing
			case 1:
				return []string{"Forwarded", fmt.Sprintf(`for="192.0.2.%d:%d"`, n+1, 1024+time.Now().Nanosecond()%1000)}
			}
			return []string{"X-Forwarded-For", fmt.Sprintf("2001:db8:0:%x::%x", n+1, time.Now().Nanosecond()%9999+1)}
		})
	})
}

// TestZ06SessionsAreTheirHolders: who opens sessions without end loses the own
// ones that are used least, and nobody else's; where all places are taken, or
// all of the own ones are in use, the answer is 503.
func TestZ06SessionsAreTheirHolders(t *testing.T) {
	const each, most = 5, 40
	asClients(t, func(t *testing.T, f *front, as func(int) []string) {
		theirs := map[string]int{}
		for n := 1; n <= 7; n++ { // with each its bound they fill all but a few places
			for range each {
				id, status := begins(t, f.client, as(n)...)
				if id == "" {
					t.Fatalf("status %d", status)
				}
				theirs[id] = n
			}
		}
		others := func(when string) {
			t.Helper()
			for id, n := range theirs {
				if !alive(t, f.client, id, as(n)...) {
					t.Fatalf("%s: a session of client %d is gone", when, n)
				}
			}
		}
		var mine []string
		for range 300 {
			id, status := begins(t, f.client, as(0)...)
			if id == "" {
				t.Fatalf("status %d", status)
			}
			mine = append(mine, id)
		}
		if n := f.Serve.Sessions(); n != 7*each+each {
			t.Errorf("%d sessions", n)
		}
		others("after 300 sessions of one client")
		for i, id := range mine {
			if got := alive(t, f.client, id, as(0)...); got != (i >= len(mine)-each) {
				t.Errorf("own session %d of %d: %v", i, len(mine), got)
			}
		}

		// The one that is used least goes, not the oldest.
		mine = mine[len(mine)-each:]
		kept := mine[0]
		for range 5 {
			alive(t, f.client, kept, as(0)...)
		}
		for i := 1; i < each; i++ {
			begins(t, f.client, as(0)...)
			if alive(t, f.client, mine[i], as(0)...) || !alive(t, f.client, kept, as(0)...) {
				t.Errorf("session %d went in place of the one used least", i)
			}
		}

		// All places are taken: a stranger waits, and ends nobody's.
		if _, status := begins(t, f.client, as(8)...); status != 503 {
			t.Errorf("a stranger: status %d", status)
		}
		others("after a stranger")

		// All of the own are in use.
		var open []*edgetest.Response
		for id, n := range theirs {
			if n == 1 {
				r := f.client.Do("GET", "/mcp", "", append(as(1), "Mcp-Session-Id", id, "Accept", "text/event-stream")...)
				if r.Status != 200 {
					t.Fatalf("status %d", r.Status)
				}
				open = append(open, r)
			}
		}
		if _, status := begins(t, f.client, as(1)...); status != 503 {
			t.Errorf("with all in use: status %d", status)
		}
		others("after one with all in use")
		for _, r := range open {
			r.Close()
		}
		edgetest.Until(t, "a place", func() bool {
			_, status := begins(t, f.client, as(1)...)
			return status == 200
		})
		for id, n := range theirs {
			if n != 1 && !alive(t, f.client, id, as(n)...) {
				t.Errorf("in the end a session of client %d is gone", n)
			}
		}
		// A place that comes free is anybody's.
		for id, n := range theirs {
			if n == 2 {
				f.client.Do("DELETE", "/mcp", "", append(as(2), "Mcp-Session-Id", id)...)
				break
			}
		}
		if _, status := begins(t, f.client, as(8)...); status != 200 {
			t.Errorf("with a place free: status %d", status)
		}
	}, edgetest.Settings(func(s *serve.Settings) { s.MaxSessions, s.MaxSessionsPerPrincipal = most, each }))
}

// TestZ06SessionsBegunAtOnce: the bounds hold however many begin at a time.
func TestZ06SessionsBegunAtOnce(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, behind, edgetest.Settings(func(s *serve.Settings) { s.MaxSessions, s.MaxSessionsPerPrincipal = 20, 3 }))
	var work sync.WaitGroup
	for i := range 200 {
		work.Go(func() {
			_, _ = f.client.Try("POST", "/mcp", handshake, "X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i%10))
			if n := f.Serve.Sessions(); n > 20 {
				t.Errorf("%d sessions", n)
			}
		})
	}
	work.Wait()
	if n := f.Serve.Sessions(); n != 20 {
		t.Errorf("%d sessions", n)
	}
}

// streamsOf are the ways to open a stream that lasts, each for a client's header.
func streamsOf(t *testing.T, f *front, tool string, m func() []string) map[string]func() *edgetest.Response {
	t.Helper()
	id, status := begins(t, f.client, m()...)
	if id == "" {
		t.Fatalf("status %d", status)
	}
	r := f.client.Post(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"`+tool+`","arguments":{},"_meta":{"progressToken":1}}}`, append(m(), "Mcp-Session-Id", id)...)
	first := r.Next()
	r.Close()
	return map[string]func() *edgetest.Response{
		"GET": func() *edgetest.Response {
			return f.client.Do("GET", "/mcp", "", append(m(), "Mcp-Session-Id", id, "Accept", "text/event-stream")...)
		},
		"a resumed one": func() *edgetest.Response {
			return f.client.Do("GET", "/mcp", "", append(m(), "Mcp-Session-Id", id, "Accept", "text/event-stream", "Last-Event-ID", first.ID)...)
		},
		"/sse": func() *edgetest.Response {
			return f.client.Do("GET", "/sse", "", append(m(), "Accept", "text/event-stream")...)
		},
		"subscriptions/listen": func() *edgetest.Response {
			body, head := edgetest.ModernRequest("1", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`, edgetest.Meta())
			return f.client.Post(body, append(m(), head...)...)
		},
	}
}

// TestZ08StreamsAreTheirHolders: a client has so many streams that last, of all
// kinds together; those of others at the same address are theirs.
func TestZ08StreamsAreTheirHolders(t *testing.T) {
	const most = 4
	asClients(t, func(t *testing.T, f *front, as func(int) []string) {
		forever := make(chan struct{})
		f.back.Always("tools/call", func(c *edgetest.Call) {
			c.Progress(1)
			c.Wait(forever)
			c.Result(`{"content":[]}`)
		})
		for n := 1; n <= 3; n++ {
			ways := streamsOf(t, f, "echo", func() []string { return as(n) })
			var open []*edgetest.Response
			for _, name := range []string{"GET", "/sse", "a resumed one", "subscriptions/listen"} {
				r := ways[name]()
				if r.Status != 200 {
					t.Fatalf("client %d, %s: status %d: %s", n, name, r.Status, r.Body)
				}
				open = append(open, r)
			}
			for name, way := range ways {
				if r := way(); r.Status != 503 || !strings.Contains(string(r.Body), fmt.Sprint(most)) {
					t.Errorf("client %d, one more by %s: status %d: %s", n, name, r.Status, r.Body)
				}
			}
			if n == 3 { // what ends makes room
				for i, name := range []string{"subscriptions/listen", "a resumed one", "/sse", "GET"} {
					open[i].Close()
					edgetest.Until(t, "room for "+name, func() bool { return ways[name]().Status == 200 })
				}
			}
		}
	}, edgetest.Settings(func(s *serve.Settings) { s.MaxStreams = most }))
}

// TestZ08StreamsOpenedAtOnce: of many streams opened at the same time as many
// open as may.
func TestZ08StreamsOpenedAtOnce(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.MaxStreams = 10 }))
	s := f.client.Initialize("")
	for round := range 3 {
		var work sync.WaitGroup
		var mu sync.Mutex
		var open []*edgetest.Response
		for range 60 {
			work.Go(func() {
				r, err := f.client.Try("GET", "/mcp", "", "Mcp-Session-Id", s.ID, "Accept", "text/event-stream")
				if err != nil {
					t.Error(err)
					return
				}
				if r.Status == 200 {
					mu.Lock()
					open = append(open, r)
					mu.Unlock()
				}
			})
		}
		work.Wait()
		if len(open) != 10 {
			t.Fatalf("round %d: %d streams", round, len(open))
		}
		for _, r := range open {
			r.Close()
		}
		edgetest.Until(t, "the end of the streams", func() bool {
			return strings.Contains(string(f.client.Do("GET", "/status", "").Body), `"streams": 0`)
		})
	}
}

// TestZ06ParkedCallsAreTheirHolders: one client's questions take no more than a
// quarter of the places for calls that wait.
func TestZ06ParkedCallsAreTheirHolders(t *testing.T) {
	asClients(t, func(t *testing.T, f *front, as func(int) []string) {
		f.back.Always("tools/call", func(c *edgetest.Call) {
			c.Ask("1", "roots/list", "")
			c.Result(`{"content":[]}`)
		})
		parks := func(n int) int {
			body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Meta(edgetest.Capabilities(asks)))
			return f.client.Post(body, append(as(n), head...)...).Status
		}
		for i := range 25 {
			if want := map[bool]int{true: 200, false: 503}[i < 20]; parks(0) != want {
				t.Errorf("call %d of one client: not %d", i, want)
			}
		}
		for n := 1; n <= 3; n++ {
			if got := parks(n); got != 200 {
				t.Errorf("client %d: status %d", n, got)
			}
		}
	}, edgetest.Settings(func(s *serve.Settings) { s.MaxParked = 80 }))
}
