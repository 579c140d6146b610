package backend_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// A legacy server may end a stream before its answer and be asked for the rest
// (2025-11-25, basic/transports): the call is sent once, what is left is asked
// for with GET.
func TestStreamThatTheServerInterrupts(t *testing.T) {
	t.Parallel()
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(client.String()+" client", func(t *testing.T) {
			t.Parallel()
			back, _, c := start(t, edgetest.Legacy)
			back.Once("tools/call", func(c *edgetest.Call) {
				c.Raw("id: s-0\nretry: 20\ndata: \n\n")
				c.Raw("id: s-1\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":" + c.Token() + ",\"progress\":1}}\n\n")
			})
			token, id := "", ""
			back.Once("GET", func(c *edgetest.Call) {
				call := back.Requests("tools/call")[0]
				token, id = edgetest.Member(string(call.Message.Params), "_meta", "progressToken"), string(call.Message.ID)
				c.Raw("id: s-2\nretry: 20\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":" + token + ",\"progress\":2}}\n\n")
			})
			back.Once("GET", func(c *edgetest.Call) {
				c.Raw("id: s-3\ndata: {\"jsonrpc\":\"2.0\",\"id\":" + id + ",\"result\":{\"content\":[],\"x\":1.0}}\n\n")
			})
			var r *edgetest.Response
			if client == edgetest.Legacy {
				r = c.Initialize("").Request("5", "tools/call", `{"name":"echo","_meta":{"progressToken":"p"}}`)
			} else {
				r = c.Modern("5", "tools/call", edgetest.CallParams("echo", "{}"), `"progressToken":"p"`)
			}
			all := r.Rest()
			if len(all) != 3 {
				t.Fatalf("%s", all)
			}
			for i, e := range all[:2] {
				if got, want := edgetest.Member(string(e.Data), "params"), fmt.Sprintf(`{"progressToken":"p","progress":%d}`, i+1); got != want {
					t.Errorf("%s, want %s", got, want)
				}
			}
			if m := edgetest.Parse(t, all[2].Data); edgetest.Member(string(m.Result), "x") != "1.0" || string(m.ID) != "5" {
				t.Errorf("%s", all[2].Data)
			}
			call, gets := back.Requests("tools/call"), back.Requests("GET")
			if len(call) != 1 || len(gets) != 2 || gets[0].Header.Get("Last-Event-ID") != "s-1" || gets[1].Header.Get("Last-Event-ID") != "s-2" || gets[0].Session != call[0].Session {
				t.Errorf("%d calls, %d times asked for the rest", len(call), len(gets))
			}
		})
	}
}

// A server that does not give the rest has failed; the call is not sent again.
func TestStreamThatTheServerDoesNotResume(t *testing.T) {
	t.Parallel()
	back, _, c := start(t, edgetest.Legacy)
	back.Always("tools/call", func(c *edgetest.Call) { c.Raw("id: 1\nretry: 10\ndata: \n\n") })
	back.Always("GET", func(c *edgetest.Call) { c.Text(405, "", "") })
	s := c.Initialize("")
	if m := s.Call("1", "echo", "{}").Message(); m.Error == nil || m.Error.Code != 502 || back.Count("tools/call") != 1 || back.Count("GET") != 1 {
		t.Errorf("%+v after %d calls and %d times GET", m, back.Count("tools/call"), back.Count("GET"))
	}
	// Nor does one that ends every stream with nothing new in it.
	back.Forget()
	back.Always("GET", func(c *edgetest.Call) { c.Raw("retry: 10\n\n") })
	if m := s.Call("2", "echo", "{}").Message(); m.Error == nil || m.Error.Code != 502 || back.Count("tools/call") != 1 || back.Count("GET") > 6 {
		t.Errorf("%+v after %d calls and %d times GET", m, back.Count("tools/call"), back.Count("GET"))
	}
}

// The cap of a call holds however often its stream is taken up again.
func TestCallCapOfAnInterruptedStream(t *testing.T) {
	t.Parallel()
	back, _, c := start(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.CallCap = time.Second }))
	n := 0
	again := func(c *edgetest.Call) { c.Raw(fmt.Sprintf("id: %d\nretry: 20\ndata: \n\n", n)); n++ }
	back.Always("tools/call", again)
	back.Always("GET", again) // one at a time: the edge asks after the end of the last
	s := c.Initialize("")
	if m := s.Call("1", "echo", "{}").Message(); m.Error == nil || m.Error.Code != 504 {
		t.Errorf("%+v", m)
	}
}

// A server that wants to be left alone for longer than its call may take is not asked before: the
// call is over.
func TestServerThatIsLeftAlone(t *testing.T) {
	t.Parallel()
	back, _, c := start(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.CallCap = 45 * time.Second }))
	back.Always("tools/call", func(c *edgetest.Call) { c.Raw("id: 1\nretry: 50000\ndata: \n\n") })
	if m := c.Initialize("").Call("1", "echo", "{}").Message(); m.Error == nil || m.Error.Code != 504 || back.Count("GET") != 0 {
		t.Errorf("%+v after %d times GET", m, back.Count("GET"))
	}
}

// How long a server wants to be left alone between its own streams holds until it says otherwise.
func TestRetryOfTheOwnStream(t *testing.T) {
	t.Parallel()
	back, _, c := start(t, edgetest.Legacy)
	introduced(back)
	back.Once("GET", func(c *edgetest.Call) { c.Raw("retry: 700\n\n") })
	ended, again := make(chan time.Time, 1), make(chan time.Time, 1)
	back.Once("GET", func(c *edgetest.Call) {
		c.Raw(":\n\n")
		over := make(chan struct{})
		time.AfterFunc(1100*time.Millisecond, func() { close(over) }) // so long that it is no stream that ends at once
		c.Wait(over)
		ended <- time.Now()
	})
	back.Once("GET", func(c *edgetest.Call) {
		again <- time.Now()
		c.Wait(nil)
	})
	defer c.Initialize("").Listen().Close()
	was := edgetest.Receive(t, ended, "the end of the second stream")
	if after := edgetest.Receive(t, again, "the third stream").Sub(was); after < 700*time.Millisecond {
		t.Errorf("asked again after %s", after)
	}
}

// The id of an event goes into a header only where it may stand there.
func TestEventThatCannotBeNamed(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]string{"control characters": "a\x01b", "spaces": "a b", "too long": strings.Repeat("a", 1025)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			back, _, c := start(t, edgetest.Legacy)
			back.Always("tools/call", func(c *edgetest.Call) { c.Raw("id: " + id + "\nretry: 10\ndata: \n\n") })
			if m := c.Initialize("").Call("1", "echo", "{}").Message(); m.Error == nil || m.Error.Code != 502 || back.Count("GET") != 0 {
				t.Errorf("%+v after %d times GET", m, back.Count("GET"))
			}
		})
	}
}

// A client that cancels while the rest is waited for has cancelled.
func TestCancelOfAnInterruptedStream(t *testing.T) {
	t.Parallel()
	back, _, c := start(t, edgetest.Legacy)
	ended := make(chan struct{}, 1)
	back.Always("tools/call", func(c *edgetest.Call) {
		c.Raw("id: 1\nretry: 60000\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n")
		ended <- struct{}{}
	})
	s := c.Initialize("")
	r := s.Call(`"x"`, "echo", "{}")
	r.Next()
	edgetest.Receive(t, ended, "the end of the stream")
	s.Notify("notifications/cancelled", `{"requestId":"x"}`)
	if all := r.Rest(); len(all) != 0 {
		t.Errorf("%s", all)
	}
	back.Await("notifications/cancelled", 1)
}
