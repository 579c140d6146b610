package items_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// Each event of a backend is with the client before the next one is made,
// however the backend ends its lines and cuts its writes, on a stream that
// nothing on the way keeps back.
func TestItem21(t *testing.T) {
	for _, era := range eras {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			backs := servers{"a": edgetest.NewServer(t, edgetest.Legacy), "b": edgetest.NewServer(t, edgetest.Modern)}
			read := make(chan struct{})
			for _, s := range backs {
				s.Always("tools/call", func(c *edgetest.Call) {
					told := func(n int) string {
						return `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + c.Token() + `,"progress":` + fmt.Sprint(n) + `}}`
					}
					for _, pieces := range [][]string{
						{"event: message\ndata: " + told(0) + "\n\n"},
						{"event: message\r\ndata: " + told(1) + "\r\n\r\n"},
						{"data:" + told(2)[:20], told(2)[20:] + "\r", "\n\r", "\n"},
						{": keep-alive\n\nretry: 5\nid: x\ndata: " + told(3) + "\n\n"},
						{"event: message\rdata: " + told(4) + "\r\r"},
						{"event: ping\ndata: " + told(99) + "\n\ndata: {\"jsonrpc\":\"2.0\",\ndata: " + told(5)[17:] + "\n\n"},
					} {
						for _, piece := range pieces {
							c.Raw(piece)
						}
						if !c.Wait(read) {
							return
						}
					}
					c.Result(`{"resultType":"complete","content":[]}`)
				})
			}
			f := open(t, backs)
			for name := range backs {
				r := f.as(era, "").CallTool("1", name+"_echo", "{}", `"progressToken":"t"`)
				for i := range 6 {
					if m := r.NextMessage(); edgetest.Member(string(m.Params), "progress") != fmt.Sprint(i) {
						t.Fatalf("%s: event %d is %s %s", name, i, m.Method, m.Params)
					}
					read <- struct{}{}
				}
				if m := r.NextMessage(); m.Result == nil {
					t.Errorf("%s: %+v", name, m)
				}
				h := r.Header
				if h.Get("Content-Type") != "text/event-stream" || h.Get("X-Accel-Buffering") != "no" || !strings.Contains(h.Get("Cache-Control"), "no-") || h.Get("Content-Encoding") != "" {
					t.Errorf("%s: header %v", name, h)
				}
			}
		})
	}
}

// A legacy client that was away gets all that it missed, the answer included,
// whichever backend it is of; where it left off is a matter of GET, of its own
// session and of nothing else.
func TestItem22(t *testing.T) {
	t.Parallel()
	backs := servers{"a": edgetest.NewServer(t, edgetest.Legacy), "b": edgetest.NewServer(t, edgetest.Modern), "c": edgetest.NewServer(t, edgetest.SSE)}
	f := open(t, backs)
	for name, s := range backs {
		goOn := make(chan struct{})
		s.Always("tools/call", func(c *edgetest.Call) {
			c.Progress(1)
			if c.Wait(goOn) {
				c.Progress(2)
				c.Result(`{"resultType":"complete","content":[],"of":"` + name + `"}`)
			}
		})
		c := f.as(edgetest.Legacy, "")
		resume := func(id string, header ...string) *edgetest.Response {
			return c.Do("GET", "/mcp", "", append([]string{"Accept", "text/event-stream", "Mcp-Session-Id", c.Session.ID, "MCP-Protocol-Version", c.Session.Version, "Last-Event-ID", id}, header...)...)
		}
		r := c.CallTool(`"gone"`, name+"_echo", "{}", `"progressToken":"t"`)
		first := r.Next()
		if first.ID == "" {
			t.Fatalf("%s: no id: %+v", name, first)
		}
		r.Close()
		close(goOn)
		// Nobody is attached while the rest happens, and it is there again and again.
		edgetest.Until(t, "the end of the call", func() bool { return f.status(t).Inflight == 0 })
		for range 2 {
			rest := resume(first.ID).Rest()
			if len(rest) != 2 || edgetest.Member(string(rest[0].Data), "params", "progress") != "2" || edgetest.Member(string(rest[1].Data), "result", "of") != `"`+name+`"` || edgetest.Member(string(rest[1].Data), "id") != `"gone"` {
				t.Errorf("%s: resumed with %s", name, rest)
			}
		}
		// On a POST it means nothing.
		body, head := c.Message("2", "ping", "")
		if r := c.Post(body, append(head, "Last-Event-ID", first.ID)...); edgetest.Member(string(r.Answer()), "id") != "2" {
			t.Errorf("%s: a POST with Last-Event-ID: %s", name, r.Answer())
		}
		// In another session it leads nowhere.
		stranger := f.as(edgetest.Legacy, "").Session.ID
		if r := resume(first.ID, "Mcp-Session-Id", stranger); r.Status != 400 {
			t.Errorf("%s: status %d in another session", name, r.Status)
		}
		if r := resume(first.ID, "MCP-Protocol-Version", edgetest.ModernVersion, "Mcp-Session-Id", ""); r.Status != 405 {
			t.Errorf("%s: status %d for a modern client", name, r.Status)
		}
	}
}

// What a session of a client has opened at backends ends with it: by DELETE, by
// the end of an older stream, and by itself when nobody uses it; and a backend
// that never answers initialize keeps nobody waiting for the others.
func TestItem23(t *testing.T) {
	t.Parallel()
	t.Run("the end of a session", func(t *testing.T) {
		t.Parallel()
		a, b := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.SSE)
		f := open(t, servers{"a": a, "b": b})
		f.met(t)
		edgetest.Until(t, "the lists", func() bool {
			now := f.status(t).DiscoveredBackends
			return now[0].Tools > 0 && now[1].Tools > 0
		})
		own := func() (sessions []*edgetest.ServerSession) {
			for _, s := range []*edgetest.Server{a, b} {
				calls := s.Requests("tools/call")
				sessions = append(sessions, s.Session(calls[len(calls)-1].Session))
			}
			return sessions
		}
		over := func(what string, sessions []*edgetest.ServerSession) {
			t.Helper()
			for i, s := range []*edgetest.Server{a, b} {
				s.Until("the end of the session at a backend after "+what, sessions[i].Ended)
			}
		}
		c := f.as(edgetest.Legacy, "")
		c.CallTool("1", "a_echo", "{}").Result()
		c.CallTool("2", "b_echo", "{}").Result()
		sessions := own()
		c.Session.Delete()
		over("DELETE", sessions)

		old := f.NewClient().OpenSSE()
		old.Initialize("")
		for i, name := range []string{"a_echo", "b_echo"} {
			old.Request(fmt.Sprint(i), "tools/call", edgetest.CallParams(name, "{}"))
			if m := old.Stream.NextMessage(); m.Error != nil {
				t.Fatalf("%+v", m)
			}
		}
		sessions = own()
		old.Stream.Close()
		over("the end of its stream", sessions)
	})
	t.Run("nobody uses it", func(t *testing.T) {
		t.Parallel()
		a, b := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.SSE)
		e := edgetest.Start(t, group(servers{"a": a, "b": b}, bestEffort), edgetest.Settings(func(s *serve.Settings) { s.SessionTTL = 3 * time.Second }))
		f := &stage{Edge: e, backs: servers{"a": a, "b": b}}
		c := f.as(edgetest.Legacy, "")
		c.tools(t)
		c.CallTool("1", "a_echo", "{}").Result()
		c.CallTool("2", "b_echo", "{}").Result()
		for _, s := range []*edgetest.Server{a, b} {
			id := s.Requests("tools/call")[0].Session
			s.Until("the end of the idle session at a backend", func() bool {
				one := s.Session(id)
				return one == nil || one.Ended()
			})
		}
		fails(t, c.CallTool("3", "a_echo", "{}"), 404, -32001)
	})
	t.Run("initialize without an answer", func(t *testing.T) {
		t.Parallel()
		hangs, fine := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
		hangs.Always("initialize", func(c *edgetest.Call) { c.Wait(make(chan struct{})) })
		f := open(t, servers{"fine": fine, "hangs": hangs})
		for _, era := range eras {
			began := time.Now()
			c := f.as(era, "")
			if got := c.tools(t); got != "fine_echo" {
				t.Errorf("tools %s", got)
			}
			c.CallTool("1", "fine_echo", "{}").Result()
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("%s: it took %s", era, took)
			}
		}
	})
}

// Origin and Host are checked, and methods, types and notifications are
// answered, before an edge of many backends as before one.
func TestItem24(t *testing.T) {
	t.Parallel()
	f := open(t, servers{"a": edgetest.NewServer(t, edgetest.Legacy), "b": edgetest.NewServer(t, edgetest.Modern)})
	s := f.as(edgetest.Legacy, "").Session
	modern, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("a_echo", "{}"), edgetest.Meta())
	legacy := []string{"Mcp-Session-Id", s.ID, "MCP-Protocol-Version", s.Version}
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a_echo","arguments":{}}}`
	with := func(base []string, more ...string) []string { return append(append([]string{}, base...), more...) }
	for _, c := range []struct {
		name, method, body string
		header             []string
		status             int
	}{
		{"as it should be, modern", "POST", modern, head, 200},
		{"as it should be, legacy", "POST", call, legacy, 200},
		{"Origin of a page", "POST", modern, with(head, "Origin", "https://evil.example"), 403},
		{"Origin null", "POST", modern, with(head, "Origin", "null"), 403},
		{"Origin of a page, legacy", "POST", call, with(legacy, "Origin", "http://localhost.evil.example"), 403},
		{"Origin of a page, GET", "GET", "", with(legacy, "Accept", "text/event-stream", "Origin", "https://evil.example"), 403},
		{"Origin of a page, DELETE", "DELETE", "", with(legacy, "Origin", "https://evil.example"), 403},
		{"Host of a page", "POST", modern, with(head, "Host", "evil.example"), 403},
		{"Host of a page, legacy", "POST", call, with(legacy, "Host", "evil.example:80"), 403},
		{"GET, modern", "GET", "", []string{"MCP-Protocol-Version", edgetest.ModernVersion, "Accept", "text/event-stream"}, 405},
		{"DELETE, modern", "DELETE", "", []string{"MCP-Protocol-Version", edgetest.ModernVersion}, 405},
		{"PUT", "PUT", "", nil, 405},
		{"notification, legacy", "POST", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`, legacy, 202},
		{"notification of nobody's, legacy", "POST", `{"jsonrpc":"2.0","method":"notifications/own"}`, legacy, 202},
		{"answer to no question", "POST", `{"jsonrpc":"2.0","id":5,"result":{}}`, legacy, 202},
		{"no JSON", "POST", modern, with(head, "Content-Type", "text/plain"), 415},
		{"no type", "POST", modern, with(head, "Content-Type", ""), 415},
		{"GET without a stream", "GET", "", with(legacy, "Accept", "application/json"), 406},
	} {
		r := f.NewClient().Do(c.method, "/mcp", c.body, c.header...)
		if r.Status != c.status {
			t.Errorf("%s: status %d, want %d: %s", c.name, r.Status, c.status, r.Body)
		}
		if c.status == 202 && len(r.Body) > 0 {
			t.Errorf("%s: a body: %s", c.name, r.Body)
		}
		if c.status == 405 && r.Header.Get("Allow") == "" {
			t.Errorf("%s: no Allow", c.name)
		}
		r.Close()
	}
	if n := f.backs["a"].Count("tools/call"); n != 2 {
		t.Errorf("the backend got %d calls, want 2", n)
	}
	// A HEAD probe has no body either.
	r, err := http.Head(f.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if body, _ := io.ReadAll(r.Body); len(body) > 0 || r.StatusCode == 200 {
		t.Errorf("HEAD: status %d, %q", r.StatusCode, body)
	}
	http.DefaultClient.CloseIdleConnections()
}
