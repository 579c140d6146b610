//go:build unix

package serve_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// unread opens a connection whose client's kernel takes next to nothing of what
// its client does not read.
func (f *front) unread(t *testing.T) net.Conn {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2048)
		})
	}}
	c, err := d.DialContext(context.Background(), "tcp", f.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestZ01ListenGivesItsRoomBack: who listens for as long as it likes holds no room
// of the budget for that, and says what it wants in few bytes.
func TestZ01ListenGivesItsRoomBack(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy)
	f.introduced(t)
	listen := func(size int) *edgetest.Raw {
		body, head := edgetest.ModernRequest("1", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`, edgetest.Meta())
		body += strings.Repeat(" ", size-len(body))
		lines := ""
		for i := 0; i < len(head); i += 2 {
			lines += head[i] + ": " + head[i+1] + "\r\n"
		}
		c := f.Dial()
		c.Write(f.claim("/mcp", lines+length(body)) + body)
		return c
	}
	for _, size := range []int{1 << 10, 7 << 10, 40 << 10, 64 << 10} {
		c := listen(size)
		for line := ""; !strings.Contains(line, "notifications/subscriptions/acknowledged"); {
			line = c.Line()
		}
		if n := f.Serve.BudgetTaken(); n != 0 {
			t.Errorf("a stream that %d bytes asked for holds %d bytes of the budget", size, n)
		}
		c.Close()
	}
	for _, size := range []int{64<<10 + 1, 4 << 20} {
		c := listen(size)
		if h, text := c.Read(); h.StatusCode != 400 || !strings.Contains(text, "-32602") || !strings.Contains(text, "65536") {
			t.Errorf("%d bytes: status %d: %s", size, h.StatusCode, text)
		}
		c.Close()
	}
	edgetest.Until(t, "an empty budget", func() bool { return f.Serve.BudgetTaken() == 0 && f.Serve.Owners() == 0 })
}

// TestZ01OlderDoorKeepsItsRoom: a large call of the older transport holds its room
// in the budget until it is done, and not only while it is POSTed.
func TestZ01OlderDoorKeepsItsRoom(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.With(serve.WithDoor(func(o *door.Options) { o.BodyBytes, o.BodyShare = 64<<20, 16<<20 })))
	f.introduced(t)
	leave := make(chan struct{})
	f.back.Always("tools/call", func(c *edgetest.Call) {
		if c.Wait(leave) {
			c.Result(`{"content":[]}`)
		}
	})
	s := f.NewClient().OpenSSE()
	s.Initialize("")
	post := func(id string, size int) int {
		return f.client.Do("POST", s.Path, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"echo","arguments":{"x":"`+strings.Repeat("x", size)+`"}}}`).Status
	}
	took := 0
	for i := range 20 {
		switch status := post(fmt.Sprint(i), 3<<20); status {
		case 202:
			took++
		case 503:
		default:
			t.Fatalf("status %d", status)
		}
	}
	if took == 0 || took > 5 {
		t.Errorf("%d calls of 3 MiB are taken where there is room for 5", took)
	}
	if n := f.Serve.BudgetTaken(); n < int64(took)*3<<20 {
		t.Errorf("%d calls hold %d bytes", took, n)
	}
	if status := post(`"small"`, 100); status != 202 {
		t.Errorf("a small call beside them: status %d", status)
	}
	close(leave)
	for range took + 1 {
		if m := s.Stream.NextMessage(); m.Error != nil {
			t.Errorf("%+v", m)
		}
	}
	edgetest.Until(t, "an empty budget", func() bool { return f.Serve.BudgetTaken() == 0 && f.Serve.Owners() == 0 })
	for _, size := range []int{5 << 10, 20 << 10, 100 << 10} { // of each kind of buffer
		if status := post("1", size); status != 202 {
			t.Errorf("%d bytes afterwards: status %d", size, status)
		}
		if m := s.Stream.NextMessage(); m.Error != nil {
			t.Errorf("%+v", m)
		}
		r := f.back.Requests("tools/call")
		if got := edgetest.Member(string(r[len(r)-1].Message.Params), "arguments", "x"); len(got) != size+2 || strings.Trim(got, `x"`) != "" {
			t.Errorf("of %d bytes the backend got %d", size, len(got))
		}
	}
	edgetest.Until(t, "an empty budget", func() bool { return f.Serve.BudgetTaken() == 0 && f.Serve.Owners() == 0 })
}

// TestZ01OlderStreamThatNobodyReads: answers that wait for a stream that nobody
// reads take no room among the requests of others, and there are only so many.
func TestZ01OlderStreamThatNobodyReads(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.MaxInflight = 100 }))
	f.introduced(t)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Result(`{"content":[{"type":"text","text":"` + strings.Repeat("x", 400<<10) + `"}]}`)
	})
	c := f.unread(t)
	if _, err := io.WriteString(c, "GET /sse HTTP/1.1\r\nHost: "+f.Addr()+"\r\nAccept: text/event-stream\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	br, path := bufio.NewReader(c), ""
	for path == "" {
		line, err := br.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		path = strings.TrimSpace(strings.TrimPrefix(line, "data: "))
		if !strings.HasPrefix(line, "data: ") {
			path = ""
		}
	}
	client := f.NewClient()
	if r := client.Do("POST", path, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`); r.Status != 202 {
		t.Fatalf("status %d", r.Status)
	}
	for i := range 2 {
		client.Do("POST", path, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo"}}`, i+1))
	}
	f.back.Await("tools/call", 2)
	edgetest.Until(t, "the answers", func() bool { return f.Serve.Inflight() == 0 })
	time.Sleep(100 * time.Millisecond) // for the first to fill what the kernel holds
	took := 0
	for i := range 120 {
		r := client.Do("POST", path, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i+10))
		switch {
		case r.Status == 202:
			took++
		case r.Status != 503 || r.Header.Get("Retry-After") == "" || !strings.Contains(string(r.Body), "this stream"):
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
	}
	if took < 32 || took > 64 {
		t.Errorf("%d requests of a stream that nobody reads are taken", took)
	}
	edgetest.Until(t, "room for others", func() bool { return f.Serve.Inflight() == 0 })
	if r := f.NewClient().Modern("1", "tools/call", edgetest.CallParams("echo", "{}")); r.Status != 200 {
		t.Errorf("another client: status %d: %.200s", r.Status, r.Body)
	}
}

// TestZ01ParkedRequests: the requests of calls that wait for their clients are
// bounded in bytes, for each client and together.
func TestZ01ParkedRequests(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, behind, edgetest.Before(func(e *serve.Edge) { e.SetParked(4<<20, 1<<20) }))
	f.introduced(t)
	f.back.Always("tools/call", func(c *edgetest.Call) {
		c.Ask("1", "roots/list", "")
		c.Result(`{"content":[]}`)
	})
	large := `{"x":"` + strings.Repeat("x", 300<<10) + `"}`
	call := func(n int, arguments string) *edgetest.Response {
		body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", arguments), edgetest.Meta(edgetest.Capabilities(asks)))
		return f.client.Post(body, append([]string{"X-Forwarded-For", fmt.Sprintf("192.0.2.%d", n)}, head...)...)
	}
	parks := func(n int) int {
		t.Helper()
		waiting := 0
		for range 5 {
			r := call(n, large)
			if r.Status == 200 {
				waiting++
			} else {
				fails(t, r, 503, 503, "1")
			}
		}
		return waiting
	}
	for n := 1; n <= 4; n++ {
		if got := parks(n); got != 3 {
			t.Errorf("%d calls of 300 KiB wait for client %d, of 1 MiB", got, n)
		}
	}
	if got := parks(5); got != 1 {
		t.Errorf("%d more wait, where 4 MiB are for all", got)
	}
	if r := call(5, `{}`); r.Status != 200 {
		t.Errorf("a small call: status %d", r.Status)
	}
}
