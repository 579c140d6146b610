package backend_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// TestQuestionStopsTheClockOfEveryStream: the clock of a call stands while its client is asked, also
// where the question comes on a stream that was taken up again, or on the session's own.
func TestQuestionStopsTheClockOfEveryStream(t *testing.T) {
	t.Parallel()
	const question = `{"jsonrpc":"2.0","id":"q","method":"roots/list"}`
	for _, way := range []string{"taken up", "the session's own"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Legacy)
			s := edgetest.Start(t, edgetest.Manifest(back, edgetest.Timeout(time.Second))).NewClient().Initialize(`{"roots":{}}`)
			answered := make(chan struct{})
			back.Once("response", func(c *edgetest.Call) {
				close(answered)
				c.Accept()
			})
			s.Call("0", "echo", "{}").Result()
			back.Forget()
			var stream *edgetest.Response
			if way == "taken up" {
				back.Once("tools/call", func(c *edgetest.Call) { c.Raw("id: s-1\nretry: 20\ndata: " + question + "\n\n") })
				back.Once("GET", func(c *edgetest.Call) {
					c.Wait(answered)
					c.Raw("id: s-2\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[]}}\n\n")
				})
			} else {
				stream = s.Listen()
				back.Once("tools/call", func(c *edgetest.Call) {
					back.Session(c.Request.Session).Push(question)
					c.Wait(answered)
					c.Result(`{"content":[]}`)
				})
			}
			done := make(chan *edgetest.Response, 1)
			go func() {
				r, _ := s.TrySend(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + edgetest.CallParams("echo", "{}") + `}`)
				done <- r
			}()
			if stream == nil {
				stream = edgetest.Receive(t, done, "the stream of the call")
				done <- stream
			}
			m := stream.NextMessage()
			time.Sleep(2500 * time.Millisecond) // which the client thinks about it
			s.Reply(m.ID, `{"roots":[]}`)
			if m := edgetest.Receive(t, done, "the answer").Message(); m.Error != nil {
				t.Errorf("%+v", m.Error)
			}
		})
	}
}

// TestProgressOfAnotherStream: progress by the token of a call restarts its clock, also where it comes
// on the session's own stream.
func TestProgressOfAnotherStream(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	s := edgetest.Start(t, edgetest.Manifest(back, edgetest.Timeout(time.Second))).NewClient().Initialize("")
	defer s.Listen().Close()
	back.Always("tools/call", func(c *edgetest.Call) {
		for i := range 8 {
			back.Session(c.Request.Session).Push(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, c.Token(), i))
			time.Sleep(400 * time.Millisecond)
		}
		c.Result(`{"content":[]}`)
	})
	if m := s.Request("1", "tools/call", `{"name":"echo","_meta":{"progressToken":"p"}}`).Message(); m.Error != nil {
		t.Errorf("%+v", m.Error)
	}
}

// TestAnswerWhereConnectionsAreUsedUp: an answer to a question reaches a backend all of whose
// connections are those of calls that wait for it.
func TestAnswerWhereConnectionsAreUsedUp(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	back.Always("tools/call", func(c *edgetest.Call) {
		c.Ask("1", "roots/list", "")
		c.Result(`{"content":[]}`)
	})
	s := edgetest.Start(t, edgetest.Manifest(back), edgetest.Settings(func(s *serve.Settings) { s.MaxBackendConnections = 1 })).NewClient().Initialize(`{"roots":{}}`)
	r := s.Call("1", "echo", "{}")
	s.Reply(r.NextMessage().ID, `{"roots":[]}`)
	if m := r.NextMessage(); m.Error != nil {
		t.Errorf("%+v", m.Error)
	}
}

// TestClientThatTheBackendRefuses: a client whose introduction a backend refuses again and again
// does not have it asked each time what it speaks, and its calls are no failures of the backend.
func TestClientThatTheBackendRefuses(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { s.Sessionless = true })
	c := edgetest.Start(t, edgetest.Manifest(back)).NewClient()
	introduced(back)
	back.Always("initialize", func(c *edgetest.Call) {
		if edgetest.Member(string(c.Message.Params), "capabilities", "sampling") == "true" {
			c.JSON(400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}`)
			return
		}
		c.Result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
	})
	bad := c.Initialize(`{"sampling":true}`)
	back.Forget()
	for i := range 20 {
		if r := bad.Call(fmt.Sprint(i), "echo", "{}"); r.Message().Error == nil {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
	}
	if n := back.Count("server/discover"); n > 1 {
		t.Errorf("asked %d times what it speaks", n)
	}
	if r := c.Initialize("").Call("1", "echo", "{}"); r.Message().Error != nil {
		t.Errorf("another client: status %d: %s", r.Status, r.Body)
	}
}

// TestNotFoundWithoutASession: a backend that hands out no session, and answers a call with 404, does
// not get it twice.
func TestNotFoundWithoutASession(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { s.Sessionless = true })
	c := edgetest.Start(t, edgetest.Manifest(back)).NewClient()
	s := c.Initialize("")
	back.Always("tools/call", func(c *edgetest.Call) { c.Text(404, "text/plain", "no such order") })
	for i := range 3 {
		s.Call(fmt.Sprint(i), "echo", "{}")
		c.Modern(fmt.Sprint(i), "tools/call", edgetest.CallParams("echo", "{}"))
	}
	if n := back.Count("tools/call"); n != 6 {
		t.Errorf("%d calls", n)
	}
}

// TestStreamThatIsTakenUpLater: a server that has not noticed the end of a stream, or fails for a
// moment, is asked for the rest of it once more.
func TestStreamThatIsTakenUpLater(t *testing.T) {
	t.Parallel()
	back, _, c := start(t, edgetest.Legacy)
	back.Once("tools/call", func(c *edgetest.Call) { c.Raw("id: s-0\nretry: 20\ndata: \n\n") })
	for _, status := range []int{409, 429, 503} {
		back.Once("GET", func(c *edgetest.Call) { c.Text(status, "", "") })
	}
	back.Once("GET", func(c *edgetest.Call) {
		call := back.Requests("tools/call")[0]
		c.Raw("id: s-1\ndata: {\"jsonrpc\":\"2.0\",\"id\":" + string(call.Message.ID) + ",\"result\":{\"content\":[]}}\n\n")
	})
	if m := c.Initialize("").Call("1", "echo", "{}").Message(); m.Error != nil {
		t.Errorf("%+v", m.Error)
	}
	back.Once("tools/call", func(c *edgetest.Call) { c.Raw("id: s-0\nretry: 20\ndata: \n\n") })
	back.Once("GET", func(c *edgetest.Call) { c.Text(404, "", "") })
	if m := c.Initialize("").Call("2", "echo", "{}").Message(); m.Error == nil {
		t.Error("a stream that is not there any more was taken up")
	}
}
