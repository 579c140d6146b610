package serve_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// A client of the older transport does all that others do: it is told where to
// post, gets 202 for each message and everything else on its stream.
func TestOlderTransport(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, era)
			s := f.NewClient().OpenSSE()
			if !strings.HasPrefix(s.Path, "/messages?sessionId=") || len(s.Path) < len("/messages?sessionId=")+22 {
				t.Errorf("endpoint %q", s.Path)
			}
			s.Initialize(asks)
			if got := edgetest.Member(s.Result, "protocolVersion"); got != `"2024-11-05"` {
				t.Errorf("version %s", got)
			}
			s.Request("1", "ping", "")
			if got := string(s.Stream.Next().Data); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
				t.Errorf("ping: %s", got)
			}
			// A call with progress; its bytes.
			f.back.Once("tools/call", func(c *edgetest.Call) {
				c.Progress(1)
				c.Event(`{"jsonrpc":"2.0", "result":{"resultType":"complete","content":[],"x":1.0},"id":` + c.ID() + `}`)
			})
			s.Request(`"c\u0041"`, "tools/call", `{"name":"echo","arguments":{"n":1.0},"_meta":{"progressToken":"t"}}`)
			if m := s.Stream.NextMessage(); m.Method != "notifications/progress" || string(m.Params) != `{"progressToken":"t","progress":1}` {
				t.Errorf("%+v", m)
			}
			if m := s.Stream.NextMessage(); string(m.Result) != `{"content":[],"x":1.0}` && era == edgetest.Modern || string(m.ID) != `"c\u0041"` {
				t.Errorf("%s under %s", m.Result, m.ID)
			}
			// Errors come on the stream as well.
			f.back.Once("tools/call", func(c *edgetest.Call) { c.Error(400, -32602, "no such tool") })
			s.Request("2", "tools/call", `{"name":"none"}`)
			if m := s.Stream.NextMessage(); m.Error == nil || m.Error.Code != -32602 || string(m.ID) != "2" {
				t.Errorf("%+v", m)
			}
			s.Request("3", "server/discover", "")
			if m := s.Stream.NextMessage(); m.Error == nil || m.Error.Code != -32601 {
				t.Errorf("%+v", m)
			}
			// Two calls at a time, answered in their own time.
			first := make(chan struct{})
			f.back.Always("tools/call", func(c *edgetest.Call) {
				if edgetest.Member(string(c.Message.Params), "arguments", "n") == "1" && !c.Wait(first) {
					return
				}
				c.Result(`{"resultType":"complete","content":[]}`)
			})
			s.Request("11", "tools/call", `{"name":"echo","arguments":{"n":1}}`)
			s.Request("12", "tools/call", `{"name":"echo","arguments":{"n":2}}`)
			if m := s.Stream.NextMessage(); string(m.ID) != "12" {
				t.Errorf("first %s", m.ID)
			}
			close(first)
			if m := s.Stream.NextMessage(); string(m.ID) != "11" {
				t.Errorf("second %s", m.ID)
			}
			if era == edgetest.Modern {
				return
			}
			// Questions.
			f.back.Always("tools/call", func(c *edgetest.Call) {
				m := c.Ask(`"q"`, "elicitation/create", `{"message":"m","requestedSchema":{"type":"object"}}`)
				c.Result(`{"content":[],"said":` + string(m.Result) + `}`)
			})
			s.Request("4", "tools/call", `{"name":"echo"}`)
			q := s.Stream.NextMessage()
			if q.Method != "elicitation/create" {
				t.Fatalf("%+v", q)
			}
			s.Accepted(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"action":"decline"}}`)
			if m := s.Stream.NextMessage(); edgetest.Member(string(m.Result), "said") != `{"action":"decline"}` {
				t.Errorf("%s", m.Result)
			}
			// What belongs to no call.
			calls := f.back.Requests("tools/call")
			f.back.Session(calls[0].Session).Push(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			if m := s.Stream.NextMessage(); m.Method != "notifications/tools/list_changed" {
				t.Errorf("%+v", m)
			}
		})
	}
}

// The end of the stream ends the session: what is under way is cancelled, the
// session at the backend ends, and its address leads nowhere.
func TestEndOfAnOlderStream(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, era)
			s := f.NewClient().OpenSSE()
			s.Initialize("")
			entered, gone := make(chan *edgetest.Request, 1), make(chan struct{}, 1)
			f.back.Always("tools/call", func(c *edgetest.Call) {
				entered <- c.Request
				if !c.Wait(nil) {
					gone <- struct{}{}
				}
			})
			s.Request("1", "tools/call", `{"name":"echo"}`)
			call := edgetest.Receive(t, entered, "the call")
			s.Stream.Close()
			edgetest.Receive(t, gone, "the end of the call")
			if era == edgetest.Legacy {
				if n := f.back.Await("notifications/cancelled", 1); edgetest.Member(string(n.Message.Params), "requestId") != string(call.Message.ID) {
					t.Errorf("%s", n.Message.Params)
				}
				if d := f.back.Await("DELETE", 1); d.Session != call.Session {
					t.Errorf("DELETE of %s", d.Session)
				}
			}
			if era == edgetest.SSE {
				upstream := f.back.Session(call.Session)
				f.back.Until("the end of the stream", func() bool { return upstream == nil || upstream.Ended() })
			}
			edgetest.Until(t, "the end of the session", func() bool {
				return f.client.Do("POST", s.Path, ping).Status == 404
			})
		})
	}
}

// What the older transport refuses.
func TestOlderTransportRefuses(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	s := f.NewClient().OpenSSE()
	post := func(body string) *edgetest.Response { return f.client.Do("POST", s.Path, body) }
	fails(t, post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), 400, -32600, "1") // before initialize
	fails(t, post(`{"jsonrpc":`), 400, -32700, "")
	fails(t, post(`{"jsonrpc":"2.0","id":1}`), 400, -32600, "1")
	fails(t, post(`[`+ping+`]`), 400, -32600, "")
	fails(t, f.client.Do("POST", "/messages", ping), 404, -32001, "")
	fails(t, f.client.Do("POST", "/messages?sessionId=", ping), 404, -32001, "")
	fails(t, f.client.Do("POST", "/messages?sessionId=%zz", ping), 404, -32001, "")
	// An initialize that fails has its answer where every answer is.
	s.Accepted(`{"jsonrpc":"2.0","id":7,"method":"initialize","params":{}}`)
	if m := s.Stream.NextMessage(); m.Error == nil || m.Error.Code != -32602 || string(m.ID) != "7" {
		t.Errorf("%+v", m)
	}
	s.Initialize("")
	fails(t, post(handshake), 400, -32600, "1")
	// A session of this transport is none of the other's, and the reverse.
	id := strings.TrimPrefix(s.Path, "/messages?sessionId=")
	fails(t, f.client.Post(ping, "Mcp-Session-Id", id), 404, -32001, "1")
	other := f.client.Initialize("")
	fails(t, f.client.Do("POST", "/messages?sessionId="+other.ID, ping), 404, -32001, "")
	s.Request("2", "ping", "")
	if m := s.Stream.NextMessage(); string(m.ID) != "2" {
		t.Errorf("%+v", m)
	}
}

// A full edge refuses a call of the older transport as well, and takes answers.
func TestOlderTransportOfAFullEdge(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.MaxInflight = 1 }))
	s := f.NewClient().OpenSSE()
	s.Initialize(asks)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Ask("1", "roots/list", "")
		c.Result(`{"content":[]}`)
	})
	s.Request("1", "tools/call", `{"name":"echo"}`)
	q := s.Stream.NextMessage()
	r := f.client.Do("POST", s.Path, ping)
	fails(t, r, 503, 503, "1")
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	s.Accepted(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"roots":[]}}`)
	if m := s.Stream.NextMessage(); m.Error != nil || string(m.ID) != "1" {
		t.Errorf("%+v", m)
	}
}

// The address in the endpoint event is one that clients outside can reach.
func TestEndpointOutside(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	e := edgetest.Start(t, edgetest.Manifest(back), edgetest.Settings(func(s *serve.Settings) { s.ExternalURL = "https://mcp.example.com/base" }))
	s := e.NewClient().OpenSSE()
	if !strings.HasPrefix(s.Path, "https://mcp.example.com/base/messages?sessionId=") {
		t.Errorf("%s", s.Path)
	}
}

// A backend of the older transport chooses where messages are posted, but not
// at whose.
func TestEndpointOfAnotherOrigin(t *testing.T) {
	t.Parallel()
	thief := edgetest.NewServer(t, edgetest.Modern)
	for _, endpoint := range []string{
		"http://" + thief.Addr() + "/messages", "//" + thief.Addr() + "/messages", "https://HOST/messages", "http://user@HOST/messages", "http://localhost:1/messages", "http://127.0.0.1/messages", "http://127.0.0.1:80/messages", "ftp://HOST/x", "http://[::1/",
	} {
		t.Run(endpoint, func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.SSE)
			back.Always("GET", func(c *edgetest.Call) {
				c.Raw("event: endpoint\ndata: " + strings.ReplaceAll(endpoint, "HOST", back.Addr()) + "\n\n")
				c.Wait(nil)
			})
			e := edgetest.Start(t, edgetest.ManifestFor(back.URL, compile.SSE))
			c := e.NewClient()
			if m := c.Modern("1", "tools/list", "").Message(); m.Error == nil || m.Error.Code != 502 {
				t.Errorf("%+v", m)
			}
			if n := thief.Count("") + back.Count("initialize"); n != 0 {
				t.Errorf("%d messages were posted", n)
			}
			if !strings.Contains(string(c.Do("GET", "/status", "").Body), "another origin") {
				t.Error("the status does not say why")
			}
		})
	}
	// One of the same origin, however it is written.
	for i, endpoint := range []string{"messages?sessionId=", "/messages?sessionId=", "http://HOST/messages?sessionId="} {
		t.Run(fmt.Sprint("own ", i), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.SSE, func(s *edgetest.Server) { s.Endpoint = endpoint })
			e := edgetest.Start(t, edgetest.Manifest(back))
			if m := e.NewClient().Modern("1", "tools/call", edgetest.CallParams("echo", "{}")).Message(); m.Error != nil {
				t.Errorf("%+v", m.Error)
			}
		})
	}
}

// An answer that is the last thing on a stream counts.
func TestAnswerThatEndsTheStream(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.SSE)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Result(`{"content":[]}`)
		f.back.Drop()
	})
	s := f.client.Initialize("")
	for i := range 30 {
		if r := s.Call(fmt.Sprint(i), "echo", "{}"); r.Message().Error != nil {
			t.Fatalf("call %d: %s", i, r.Answer())
		}
	}
}
