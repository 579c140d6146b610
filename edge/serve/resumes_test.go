package serve_test

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// TestZ06SlowResumesHoldUpNobody: a client that opens a stream again and does not
// read holds up neither other clients, nor heartbeats, nor the making of room for
// sessions, nor what else goes on in its own session.
func TestZ06SlowResumesHoldUpNobody(t *testing.T) {
	t.Parallel()
	const soon = 10 * time.Second // what stops here stops for 30 s
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.MaxSessionsPerPrincipal = 3 }))
	text := strings.Repeat("x", 240<<10)
	f.back.Always("tools/call", func(c *edgetest.Call) { c.Result(`{"content":[{"type":"text","text":"` + text + `"}]}`) })
	slow, other := f.NewClient().Initialize(""), f.NewClient().Initialize("")
	r := slow.Post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`,
		"Mcp-Session-Id", slow.ID, "MCP-Protocol-Version", "2025-11-25", "Accept", "text/event-stream")
	if all := r.Rest(); len(all) != 1 || r.Primed == "" {
		t.Fatalf("%d events after %q", len(all), r.Primed)
	}
	silent, err := net.Dial("tcp", f.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := silent.(*net.TCPConn).SetReadBuffer(2 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(silent, "GET /mcp HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\nMCP-Protocol-Version: 2025-11-25\r\nLast-Event-ID: %s\r\n\r\n", f.Addr(), slow.ID, r.Primed)
	edgetest.Until(t, "somebody who writes to it", func() bool { return waitingFor("session.(*Log).Resume") > 0 })
	time.Sleep(200 * time.Millisecond) // what lies between the edge and the client is full

	quick := func(what string, do func()) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			do()
		}()
		select {
		case <-done:
		case <-time.After(soon):
			t.Errorf("%s: still waiting after %s", what, soon)
			silent.Close()
			<-done
		}
	}
	quick("a heartbeat", func() { f.Serve.Beat(time.Now()) })
	quick("a heartbeat after the log has grown old", func() { f.Serve.Beat(time.Now().Add(90 * time.Second)) })
	quick("a request of another session", func() { other.Request("1", "ping", "") })
	quick("a request of the session", func() { slow.Request("2", "ping", "") })
	quick("room for another session", func() {
		for range 4 {
			f.NewClient().Initialize("")
		}
	})
	quick("the end of the session", func() { slow.Delete() })
}

// TestZ06ResumedInOrder: however often a client comes back in the middle of a
// stream, it has each event once and in order.
func TestZ06ResumedInOrder(t *testing.T) {
	t.Parallel()
	const many = 300
	f := newFront(t, edgetest.Legacy)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		for i := range many {
			c.Progress(i + 1)
		}
		c.Result(`{"content":[]}`)
	})
	s := f.NewClient().Initialize("")
	c := caller{Client: s.Client, session: s}
	r := s.Request("1", "tools/call", `{"name":"echo","arguments":{},"_meta":{"progressToken":1}}`)
	last, seen := "", 0
	for answered := false; !answered; {
		for n := 0; n <= seen%7; n++ {
			e, err := r.TryNext()
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			last = e.ID
			if answered = edgetest.Parse(t, e.Data).Result != nil; answered {
				break
			}
			if seen++; edgetest.Member(string(e.Data), "params", "progress") != strconv.Itoa(seen) {
				t.Fatalf("in place of %d: %s", seen, e.Data)
			}
		}
		if !answered {
			again := resumed(c, last)
			if again.Status != 200 {
				t.Fatalf("after %s: status %d: %s", last, again.Status, again.Body)
			}
			r.Close()
			r = again
		}
	}
	if seen != many {
		t.Errorf("%d events", seen)
	}
}
