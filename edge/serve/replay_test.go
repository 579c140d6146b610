package serve_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// resumed opens a stream again after an event.
func resumed(c caller, id string) *edgetest.Response {
	return c.Do("GET", "/mcp", "", "Mcp-Session-Id", c.session.ID, "MCP-Protocol-Version", c.session.Version, "Accept", "text/event-stream", "Last-Event-ID", id)
}

// TestResumedStreamIsOne: a legacy client that takes a stream up again while the connection that it
// began on is still there gets each message on one of them, and that connection has its end.
func TestResumedStreamIsOne(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	c := f.callerOf(t, edgetest.Legacy, "")
	next := make(chan struct{})
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		c.Wait(next)
		c.Progress(2)
		c.Wait(next)
		c.Result(`{"content":[]}`)
	})
	r := c.call(t, `"a"`, "{}", `"progressToken":"p"`)
	first := r.Next()
	again := resumed(c, first.ID)
	next <- struct{}{}
	if e := again.Next(); edgetest.Member(string(e.Data), "params", "progress") != "2" {
		t.Errorf("%s", e.Data)
	}
	next <- struct{}{}
	if rest := again.Rest(); len(rest) != 1 || edgetest.Member(string(rest[0].Data), "id") != `"a"` {
		t.Errorf("%s", rest)
	}
	if rest := r.Rest(); len(rest) != 0 {
		t.Errorf("the connection that the stream began on has %s", rest)
	}
}

// A legacy client whose connection broke gets what it missed as it comes, the
// answer included, and nothing of any other stream, whatever the backend is.
func TestStreamIsResumedWhileItGoesOn(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, era)
			c := f.callerOf(t, edgetest.Legacy, "")
			next := make(chan struct{})
			f.back.Always("tools/call", func(c *edgetest.Call) {
				if edgetest.Member(string(c.Message.Params), "arguments", "other") != "" {
					c.Progress(99)
					c.Result(`{"resultType":"complete","content":[],"other":1}`)
					return
				}
				c.Progress(1)
				for i := 2; c.Wait(next); i++ {
					if i == 4 {
						c.Result(`{"resultType":"complete","content":[],"x":1.0}`)
						return
					}
					c.Progress(i)
				}
			})
			step := func() {
				t.Helper()
				select {
				case next <- struct{}{}:
				case <-t.Context().Done():
				}
			}
			r := c.call(t, `"a"`, "{}", `"progressToken":"p"`)
			first := r.Next()
			if first.ID == "" {
				t.Fatalf("no id: %+v", first)
			}
			r.Close()
			// Another stream meanwhile: its events are its own.
			other := c.call(t, `"b"`, `{"other":1}`, `"progressToken":"o"`).Rest()
			if len(other) != 2 || other[0].ID == first.ID {
				t.Errorf("%s", other)
			}
			step()
			again := resumed(c, first.ID)
			if again.Status != 200 {
				t.Fatalf("status %d: %s", again.Status, again.Body)
			}
			e := again.Next()
			if edgetest.Member(string(e.Data), "params", "progress") != "2" || e.ID == "" || e.ID == first.ID {
				t.Errorf("%s %s", e.ID, e.Data)
			}
			step()
			if e := again.Next(); edgetest.Member(string(e.Data), "params", "progress") != "3" {
				t.Errorf("%s", e.Data)
			}
			step()
			all := again.Rest()
			if len(all) != 1 || edgetest.Member(string(all[0].Data), "result", "x") != "1.0" || edgetest.Member(string(all[0].Data), "id") != `"a"` {
				t.Errorf("%s", all)
			}
			// Once more, from the beginning, after the end.
			late := resumed(c, first.ID).Rest()
			if len(late) != 3 || string(late[2].Data) != string(all[0].Data) || late[0].ID != e.ID {
				t.Errorf("%s", late)
			}
			if n := f.back.Count("tools/call"); n != 2 {
				t.Errorf("%d calls", n)
			}
			// The connection of a stream that has ended carries nothing else.
			if r := c.request(t, "9", "ping", ""); r.Status != 200 {
				t.Errorf("status %d", r.Status)
			}
		})
	}
}

// The answer is kept even when nobody was there to take it.
func TestAnswerIsKeptForAClientThatLeft(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	c := f.callerOf(t, edgetest.Legacy, "")
	leave := make(chan struct{})
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		if c.Wait(leave) {
			c.Result(`{"content":[]}`)
		}
	})
	r := c.call(t, "1", "{}", `"progressToken":1`)
	first := r.Next()
	r.Close()
	close(leave)
	edgetest.Until(t, "the end of the call", func() bool { return f.Serve.Underway() == 0 })
	if all := resumed(c, first.ID).Rest(); len(all) != 1 || edgetest.Parse(t, all[0].Data).Result == nil {
		t.Errorf("%s", all)
	}
}

// A client of the revision that knows it learns an id before anything else, so
// that it can come back even from an empty stream; older ones do not see that
// event, but ids.
func TestFirstEventOfAStream(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		c.Result(`{"content":[]}`)
	})
	for version, primed := range map[string]bool{"2025-11-25": true, "2025-06-18": false, "2025-03-26": false, "2024-11-05": false} {
		s := f.client.InitializeAs(version, "")
		raw := f.Dial()
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":1}}}`
		raw.Write(fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", f.Addr(), s.ID, len(body), body))
		_, text := raw.Read()
		if strings.HasPrefix(text, "id: ") != primed || strings.Contains(text, "retry: ") != primed || strings.Count(text, "\nid: ") != 2 {
			t.Errorf("%s: %q", version, text)
		}
	}
	// Modern streams have no ids: they are not resumed (2026-07-28).
	for _, e := range f.client.Modern("1", "tools/call", edgetest.CallParams("echo", "{}"), `"progressToken":1`).Rest() {
		if e.ID != "" {
			t.Errorf("%+v", e)
		}
	}
}

// Ids that lead nowhere, or into another's session, are refused alike.
func TestEventIDsThatLeadNowhere(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		c.Result(`{"content":[]}`)
	})
	a, b := f.callerOf(t, edgetest.Legacy, ""), f.callerOf(t, edgetest.Legacy, "")
	all := a.call(t, "1", "{}", `"progressToken":1`).Rest()
	for _, id := range []string{"x", "1", "1-", "-1", "1-99", "99-1", "1--1", "1-1-1", "18446744073709551616-1", strings.Repeat("1", 1000) + "-1"} {
		fails(t, resumed(a, id), 400, -32600, "")
	}
	fails(t, resumed(b, all[0].ID), 400, -32600, "")
	fails(t, f.client.Do("GET", "/mcp", "", "Mcp-Session-Id", "nobody", "Accept", "text/event-stream", "Last-Event-ID", all[0].ID), 404, -32001, "")
	if late := resumed(a, all[0].ID).Rest(); len(late) != 1 {
		t.Errorf("%s", late)
	}
	a.session.Delete()
	fails(t, resumed(a, all[0].ID), 404, -32001, "")
}

// What is kept for a session is bounded: a stream that carried more cannot be
// resumed from before that, and says so.
func TestStreamThatIsTooLargeToResume(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	c := f.callerOf(t, edgetest.Legacy, "")
	pad := strings.Repeat("a", 100<<10)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		for i := range 5 {
			c.Event(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/x","params":{"n":%d,"pad":%q}}`, i, pad))
		}
		c.Result(`{"content":[]}`)
	})
	all := c.call(t, "1", "{}").Rest()
	if len(all) != 6 {
		t.Fatalf("%d events", len(all))
	}
	fails(t, resumed(c, all[0].ID), 400, -32600, "")
	if late := resumed(c, all[4].ID).Rest(); len(late) != 1 || string(late[0].Data) != string(all[5].Data) {
		t.Errorf("%d events", len(late))
	}
}
