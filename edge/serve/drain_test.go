package serve_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// stopping stops the edge and returns a channel that is closed at its end.
func stopping(f *front) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Stop()
	}()
	return done
}

// A call that is under way when the edge is told to end gets its answer.
func TestDrainWaitsForCalls(t *testing.T) {
	t.Parallel()
	cells(t, func(t *testing.T, f *front, c caller) {
		entered, leave := slow(f)
		got := make(chan *edgetest.Response, 1)
		go func() {
			r, _ := c.try("1", "tools/call", edgetest.CallParams("echo", "{}"))
			got <- r
		}()
		edgetest.Receive(t, entered, "the call")
		done := stopping(f)
		edgetest.Until(t, "the end of the door", func() bool {
			conn, err := net.Dial("tcp", f.Addr())
			if err == nil {
				conn.Close()
			}
			return err != nil
		})
		close(leave)
		if r := edgetest.Receive(t, got, "the answer"); r == nil || r.Message().Error != nil {
			t.Errorf("%+v", r)
		}
		edgetest.Receive(t, done, "the end of the edge")
	}, edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = edgetest.Patience }))
}

// Streams that would last for ever end at once, and in order.
func TestDrainEndsStreams(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, era, edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = edgetest.Patience }))
			f.back.Always("subscriptions/listen", func(c *edgetest.Call) {
				c.Event(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
				c.Wait(nil)
			})
			get := f.client.Initialize("").Listen()
			old := f.NewClient().OpenSSE()
			old.Initialize("")
			listen := f.client.Modern("1", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
			listen.Next()
			began := time.Now()
			done := stopping(f)
			get.Rest()
			old.Stream.Rest()
			listen.Rest()
			edgetest.Receive(t, done, "the end of the edge")
			if d := time.Since(began); d > edgetest.Patience/2 {
				t.Errorf("it took %s", d)
			}
		})
	}
}

// What takes longer than the drain timeout is cut, and the backend told.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	cells(t, func(t *testing.T, f *front, c caller) {
		entered, gone := make(chan struct{}, 1), make(chan struct{}, 1)
		f.back.Always("tools/call", func(c *edgetest.Call) {
			entered <- struct{}{}
			if !c.Wait(nil) {
				gone <- struct{}{}
			}
		})
		go func() { _, _ = c.try("1", "tools/call", edgetest.CallParams("echo", "{}")) }()
		edgetest.Receive(t, entered, "the call")
		edgetest.Receive(t, stopping(f), "the end of the edge")
		if f.back.Era == edgetest.Modern {
			edgetest.Receive(t, gone, "the end of the call")
		} else {
			f.back.Await("notifications/cancelled", 1)
		}
	}, edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = 200 * time.Millisecond }))
}

// A client that does not read its stream holds nobody up.
func TestDrainWithAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = edgetest.Patience }))
	s := f.client.Initialize("")
	sent := make(chan struct{}, 1)
	f.back.Always("GET", func(c *edgetest.Call) {
		event := `{"jsonrpc":"2.0","method":"notifications/x","params":{"a":"` + strings.Repeat("a", 256<<10) + `"}}`
		for i := range 200 { // more than all the buffers on the way hold
			if i == 4 { // more than those hold that lie between the edge and the client
				sent <- struct{}{}
			}
			select {
			case <-c.Gone():
				return
			default:
				c.Event(event)
			}
		}
		c.Wait(nil)
	})
	raw := f.Dial()
	raw.Write("GET /mcp HTTP/1.1\r\nHost: " + f.Addr() + "\r\nMcp-Session-Id: " + s.ID + "\r\nAccept: text/event-stream\r\n\r\n")
	edgetest.Receive(t, sent, "the events")
	began := time.Now()
	f.Stop()
	if d := time.Since(began); d > edgetest.Patience/4 {
		t.Errorf("the edge took %s to end", d)
	}
}
