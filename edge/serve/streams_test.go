package serve_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// later is a moment at which everything that is open now is due a heartbeat.
func later() time.Time { return time.Now().Add(serve.Heartbeat + time.Second) }

// slow is a tool that answers when it is told to.
func slow(f *front) (entered chan struct{}, leave chan struct{}) {
	entered, leave = make(chan struct{}, 8), make(chan struct{})
	f.back.Always("tools/call", func(c *edgetest.Call) {
		entered <- struct{}{}
		if c.Wait(leave) {
			c.Result(`{"resultType":"complete","content":[]}`)
		}
	})
	return entered, leave
}

// A call that stays silent becomes a stream with comments, for a client that
// takes one; for any other it stays what it is.
func TestHeartbeatOfASilentCall(t *testing.T) {
	t.Parallel()
	cells(t, func(t *testing.T, f *front, c caller) {
		for _, accept := range []string{"application/json, text/event-stream", "application/json"} {
			entered, leave := slow(f)
			got := make(chan *edgetest.Response, 1)
			body, head := c.message("1", "tools/call", edgetest.CallParams("echo", "{}"))
			go func() {
				r, _ := c.Try("POST", "/mcp", body, append(head, "Accept", accept)...)
				got <- r
			}()
			edgetest.Receive(t, entered, "the call")
			edgetest.Until(t, "the exchange", func() bool { return f.Serve.Underway() == 1 })
			f.Serve.Beat(later())
			if accept == "application/json" {
				close(leave)
				r := edgetest.Receive(t, got, "the answer")
				if r == nil || r.Stream() || r.Message().Error != nil {
					t.Errorf("%+v", r)
				}
				continue
			}
			r := edgetest.Receive(t, got, "the stream")
			if r == nil || !r.Stream() || r.Status != 200 {
				t.Fatalf("%+v", r)
			}
			r.Comment()
			f.Serve.Beat(later().Add(time.Hour))
			r.Comment()
			close(leave)
			if m := r.Message(); m.Error != nil || string(m.ID) != "1" {
				t.Errorf("%+v", m)
			}
			for name, want := range map[string]string{"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no", "Content-Type": "text/event-stream"} {
				if r.Header.Get(name) != want {
					t.Errorf("%s: %q", name, r.Header.Get(name))
				}
			}
		}
	})
}

// A call that has been silent for less is left alone.
func TestHeartbeatThatIsNotDue(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	c := f.callerOf(t, edgetest.Legacy, "")
	entered, leave := slow(f)
	got := make(chan *edgetest.Response, 1)
	go func() {
		r, _ := c.try("1", "tools/call", edgetest.CallParams("echo", "{}"))
		got <- r
	}()
	edgetest.Receive(t, entered, "the call")
	f.Serve.Beat(time.Now())
	close(leave)
	if r := edgetest.Receive(t, got, "the answer"); r == nil || r.Stream() {
		t.Errorf("%+v", r)
	}
}

// Long-lived streams carry comments as well.
func TestHeartbeatOfOpenStreams(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	f.back.Always("subscriptions/listen", func(c *edgetest.Call) {
		c.Event(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
		c.Wait(nil)
	})
	get := f.client.Initialize("").Listen()
	old := f.client.OpenSSE()
	listen := f.client.Modern("1", "subscriptions/listen", `{"notifications":{}}`)
	listen.Next()
	f.Serve.Beat(later())
	get.Comment()
	old.Stream.Comment()
	listen.Comment()
	get.Close()
	old.Stream.Close()
	listen.Close()
}

// An HTTP/1.0 client takes no stream that has no length; what it gets is JSON.
func TestHTTP10(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	s := f.client.Initialize("")
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		c.Result(`{"content":[]}`)
	})
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":1}}}`
	for _, keep := range []string{"", "Connection: keep-alive\r\n"} {
		raw := f.Dial()
		for range 1 + len(keep)/20 {
			raw.Write(fmt.Sprintf("POST /mcp HTTP/1.0\r\nHost: %s\r\n%sMcp-Session-Id: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", f.Addr(), keep, s.ID, len(body), body))
			h, text := raw.Read()
			if h.StatusCode != 200 || text != `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}` || len(h.TransferEncoding) > 0 {
				t.Errorf("%v: %s", h, text)
			}
		}
		if keep == "" && !raw.Ended() {
			t.Error("the connection stays open")
		}
	}
	for _, path := range []string{"/mcp", "/sse"} {
		raw := f.Dial()
		raw.Write(fmt.Sprintf("GET %s HTTP/1.0\r\nHost: %s\r\nMcp-Session-Id: %s\r\nAccept: text/event-stream\r\n\r\n", path, f.Addr(), s.ID))
		if h, text := raw.Read(); h.StatusCode != 406 || len(h.TransferEncoding) > 0 {
			t.Errorf("%s: %v: %s", path, h, text)
		}
	}
}

// withoutIDs takes the event that only has an id from a stream, and the ids
// from the others.
func withoutIDs(stream string) string {
	var out strings.Builder
	for event := range strings.SplitAfterSeq(stream, "\n\n") {
		if strings.Contains(event, "data: \n") {
			continue
		}
		for line := range strings.SplitAfterSeq(event, "\n") {
			if !strings.HasPrefix(line, "id: ") {
				out.WriteString(line)
			}
		}
	}
	return out.String()
}

// Requests that come in one go are answered in their order and completely,
// also when the answer of one becomes a stream.
func TestPipelinedRequests(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	s := f.client.Initialize("")
	f.back.Always("tools/call", func(c *edgetest.Call) {
		if edgetest.Member(string(c.Message.Params), "arguments", "stream") != "" {
			c.Progress(1)
		}
		c.Result(`{"id":` + c.ID() + `}`)
	})
	post := func(id int, arguments string) string {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":%s,"_meta":{"progressToken":%d}}}`, id, arguments, id)
		return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", f.Addr(), s.ID, len(body), body)
	}
	for _, order := range [][]bool{{true, false}, {false, true}, {true, true}, {false, true, false, true, true, false, false, true}} {
		raw := f.Dial()
		var all strings.Builder
		for i, stream := range order {
			arguments := `{}`
			if stream {
				arguments = `{"stream":1}`
			}
			all.WriteString(post(i+1, arguments))
		}
		raw.Write(all.String())
		for i, stream := range order {
			h, text := raw.Read()
			answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"id":%d}}`, i+1, i+1)
			want := answer
			if stream {
				want = fmt.Sprintf("event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%d,\"progress\":1}}\n\nevent: message\ndata: %s\n\n", i+1, answer)
			}
			if got := withoutIDs(text); h.StatusCode != 200 || got != want {
				t.Errorf("%v, answer %d: status %d: %q, want %q", order, i+1, h.StatusCode, got, want)
			}
		}
		// The connection goes on.
		raw.Write(post(99, `{}`))
		if h, text := raw.Read(); h.StatusCode != 200 || !strings.Contains(text, `"id":99`) {
			t.Errorf("%v: afterwards: status %d: %q", order, h.StatusCode, text)
		}
		// What cannot be read is answered in its turn, too.
		raw.Write(post(1, `{"stream":1}`) + "BROKEN\r\n\r\n")
		raw.Read()
		if h, _ := raw.Read(); h.StatusCode != 400 {
			t.Errorf("%v: after a stream: status %d", order, h.StatusCode)
		}
	}
}

// An answer does not wait for the request behind its own, whether that came with
// it or while it was being served.
func TestAnswersWaitForNoRequest(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	s := f.client.Initialize("")
	came, answered := make(chan struct{}, 2), make(chan struct{}, 2)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		came <- struct{}{}
		<-answered
		c.Result(`{"id":` + c.ID() + `}`)
	})
	post := func(id int) string {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{}}}`, id)
		return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", f.Addr(), s.ID, len(body), body)
	}
	read := func(raw *edgetest.Raw, id int) {
		t.Helper()
		if h, text := raw.Read(); h.StatusCode != 200 || !strings.Contains(text, fmt.Sprintf(`"id":%d`, id)) {
			t.Errorf("answer %d: status %d: %q", id, h.StatusCode, text)
		}
	}
	raw := f.Dial()
	raw.Write(post(1) + post(2)) // both at once
	<-came
	answered <- struct{}{}
	<-came
	read(raw, 1) // while the second is being served
	answered <- struct{}{}
	read(raw, 2)
	raw.Write(post(3)) // one while the other is being served
	<-came
	raw.Write(post(4))
	answered <- struct{}{}
	read(raw, 3)
	<-came
	answered <- struct{}{}
	read(raw, 4)
	raw.Write(post(5)[:40]) // the beginning of one is not the whole of it
	raw.Write(post(5)[40:])
	<-came
	answered <- struct{}{}
	read(raw, 5)
}

// A client that asks for the connection to be closed gets that with a stream
// as well.
func TestStreamOnAConnectionThatCloses(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	s := f.client.Initialize("")
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Progress(1)
		c.Result(`{}`)
	})
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":1}}}`
	raw := f.Dial()
	raw.Write(fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", f.Addr(), s.ID, len(body), body))
	h, text := raw.Read()
	if !h.Close || strings.Count(withoutIDs(text), "data: ") != 2 || !raw.Ended() {
		t.Errorf("%v: %q", h, text)
	}
}

// A connection carries calls after it carried streams.
func TestConnectionAfterAStream(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	s := f.client.Initialize("")
	f.back.Always("tools/call", func(c *edgetest.Call) {
		if c.Token() != "" {
			c.Progress(1)
		}
		c.Result(`{}`)
	})
	raw := f.Dial()
	for i := range 20 {
		meta := ""
		if i%2 == 0 {
			meta = `,"_meta":{"progressToken":1}`
		}
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo"%s}}`, i, meta)
		raw.Write(fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", f.Addr(), s.ID, len(body), body))
		h, text := raw.Read()
		if h.StatusCode != http.StatusOK || !strings.Contains(text, fmt.Sprintf(`"id":%d,"result":{}`, i)) || h.Close {
			t.Fatalf("call %d: %v: %q", i, h, text)
		}
	}
}

// TestStreamsThatAreCounted: the metric and the status count what --max-streams does, modern
// clients that listen too.
func TestStreamsThatAreCounted(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.AdminListen = "127.0.0.1:0" }))
	counted := func(n int) func() bool {
		return func() bool {
			_, metrics := adminAsk(t, f.Serve.AdminAddr(), "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
			status := string(f.client.Do("GET", "/status", "").Body)
			return strings.Contains(metrics, fmt.Sprintf("\nweir_streams %d\n", n)) && strings.Contains(status, fmt.Sprintf(`"streams": %d,`, n))
		}
	}
	edgetest.Until(t, "no stream to be counted", counted(0))
	listen := f.client.Modern("1", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
	listen.Next()
	edgetest.Until(t, "the one who listens to be counted", counted(1))
	get := f.client.Initialize("").Listen()
	edgetest.Until(t, "the stream of a session to be counted", counted(2))
	get.Close()
	listen.Close()
	edgetest.Until(t, "no stream to be counted any more", counted(0))
}
