package serve_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// soon is how long an edge with nothing under way may take to leave, on a machine
// that does nothing else. Tests run beside each other and give it some more.
const soon = 400 * time.Millisecond

// leaves stops an edge three times at most and holds the quickest time against
// what it may take: what waits waits every time.
func leaves(t *testing.T, make func(t *testing.T) *front) {
	t.Helper()
	best := time.Hour
	for range 3 {
		f := make(t)
		began := time.Now()
		f.Stop()
		if best = min(best, time.Since(began)); best <= soon {
			return
		}
	}
	t.Errorf("it left after %s", best)
}

// silent is an address that takes connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

// TestZ14LeavesAtOnce: an edge with nothing under way leaves at once, whatever its
// clients and backends are and were asked: idle connections, idle streams,
// sessions that their backends do not let go, collectors that are away.
func TestZ14LeavesAtOnce(t *testing.T) {
	for _, back := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
		for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			for _, what := range []string{"calls", "streams", "a backend that says nothing", "telemetry"} {
				t.Run(fmt.Sprintf("%s client, %s backend, %s", client, back, what), func(t *testing.T) {
					leaves(t, func(t *testing.T) *front {
						b := edgetest.NewServer(t, back)
						yaml := edgetest.Manifest(b)
						if what == "telemetry" {
							at := "127.0.0.1:1"
							if client == edgetest.Modern {
								at = silent(t)
							}
							yaml = edgetest.Manifest(b, fmt.Sprintf("audit: {enabled: true, logFile: %q}\ntelemetry: {endpoint: %q, insecure: true, tracingEnabled: true, metricsEnabled: true}",
								filepath.Join(t.TempDir(), "audit"), at))
						}
						e := edgetest.Start(t, yaml)
						f := &front{Edge: e, back: b, client: e.NewClient()}
						c := f.callerOf(t, client, `{"roots":{}}`)
						for range 3 {
							c.call(t, "1", "{}").Result()
						}
						switch what {
						case "streams":
							if client == edgetest.Modern {
								c.request(t, "2", "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
							} else {
								c.session.Listen()
								old := f.NewClient().OpenSSE()
								old.Initialize("")
							}
						case "a backend that says nothing":
							b.Always("*", func(c *edgetest.Call) { c.Wait(nil) })
						}
						return f
					})
				})
			}
		}
	}
}

// TestZ14ManySessions: a backend that answers hears of the end of every session. It runs
// alone: a backend that gets no processor does not answer.
func TestZ14ManySessions(t *testing.T) {
	f := newFront(t, edgetest.Legacy)
	const sessions = 200
	for range sessions {
		f.callerOf(t, edgetest.Legacy, "").call(t, "1", "{}").Result()
	}
	f.back.Always("DELETE", func(c *edgetest.Call) {
		<-time.After(20 * time.Millisecond)
		c.Text(200, "", "")
	})
	f.Stop()
	if n := f.back.Count("DELETE"); n < sessions {
		t.Errorf("%d of %d sessions were ended", n, sessions)
	}
}

// TestZ14CallsUnderWayStillFinish: what is under way has the drain timeout, also
// where nothing else comes.
func TestZ14CallsUnderWayStillFinish(t *testing.T) {
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
		began := time.Now()
		edgetest.Until(t, "more time than the door lingers", func() bool { return time.Since(began) > 2*time.Second })
		close(leave)
		if r := edgetest.Receive(t, got, "the answer"); r == nil || r.Message().Error != nil {
			t.Errorf("%+v", r)
		}
		edgetest.Receive(t, done, "the end of the edge")
		if strings.Contains(f.Log(), "are cut") {
			t.Error("the log says that calls were cut")
		}
	}, edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = edgetest.Patience }))
}

// TestZ14CallOfAnOlderClient: the stream of the older transport stays until the
// calls of its client are answered.
func TestZ14CallOfAnOlderClient(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = edgetest.Patience }))
	entered, leave := slow(f)
	old := f.NewClient().OpenSSE()
	old.Initialize("")
	old.Request("1", "tools/call", edgetest.CallParams("echo", "{}"))
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
	if m := old.Stream.NextMessage(); string(m.ID) != "1" || m.Error != nil {
		t.Errorf("%+v", m)
	}
	if err := old.Ended(); err != nil {
		t.Errorf("the stream: %v", err)
	}
	edgetest.Receive(t, done, "the end of the edge")
}

// TestZ14AnswerOfAnOlderClient: an edge that leaves waits for a client of the older transport that
// takes its time to read a large answer, and the streams of others end meanwhile.
func TestZ14AnswerOfAnOlderClient(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = edgetest.Patience }))
	text := strings.Repeat("x", 3<<20)
	f.back.Always("tools/call", func(c *edgetest.Call) { c.Result(`{"content":[{"type":"text","text":"` + text + `"}]}`) })
	conn, err := net.Dial("tcp", f.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(256 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /sse HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n\r\n", f.Addr())
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	stream := bufio.NewReader(r.Body)
	next := func() (data string) {
		t.Helper()
		for {
			line, err := stream.ReadString('\n')
			if err != nil {
				t.Fatalf("after %d bytes: %v", len(data), err)
			}
			if more, ok := strings.CutPrefix(line, "data: "); ok {
				data = strings.TrimSuffix(more, "\n")
			}
			if line == "\n" && data != "" {
				return data
			}
		}
	}
	path, c := next(), f.NewClient()
	path = path[strings.Index(path, "/messages"):]
	post := func(body string) {
		t.Helper()
		if r := c.Do("POST", path, body); r.Status != 202 {
			t.Fatalf("%d: %s", r.Status, r.Body)
		}
	}
	post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	next()
	post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + edgetest.CallParams("echo", "{}") + `}`)
	var others []*edgetest.Response
	for range 9 {
		others = append(others, f.NewClient().Initialize("").Listen())
	}
	if _, err := stream.Peek(1 << 10); err != nil { // it has begun
		t.Fatal(err)
	}
	done := stopping(f)
	for _, one := range others { // which it holds up none of
		one.Rest()
	}
	if got := next(); len(got) < len(text) || !json.Valid([]byte(got)) {
		t.Errorf("%d bytes", len(got))
	}
	if rest, err := io.ReadAll(stream); err != nil || strings.Contains(string(rest), "data:") {
		t.Errorf("the end: %q, %v", rest, err)
	}
	edgetest.Receive(t, done, "the end of the edge")
}

// TestZ14LeavesWithPartsOfRequests: who has sent a part of a request, or nothing of
// what it announced, does not keep an edge; nor does who sends a byte now and then
// for long. A body that is on its way is served.
func TestZ14LeavesWithPartsOfRequests(t *testing.T) {
	head := "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
	for name, text := range map[string]string{
		"a byte": "P", "half a line": "POST /mcp HT", "half a head": head, "an empty line": "\r\n",
		"no body": head + "Content-Length: 100\r\n\r\n", "half a body": head + "Content-Length: 100\r\n\r\n{\"jsonrpc\"",
		"half a large body": head + "Content-Length: 1000000\r\n\r\n" + strings.Repeat(" ", 500_000),
		"a chunk":           head + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a",
		"the next request":  "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /m",
	} {
		t.Run(name, func(t *testing.T) {
			leaves(t, func(t *testing.T) *front {
				f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = edgetest.Patience }))
				for range 3 {
					c := f.Dial()
					c.Write(strings.ReplaceAll(text, "localhost", f.Addr()))
					if strings.HasPrefix(text, "GET") {
						c.Read()
					}
				}
				edgetest.Until(t, "the connections", func() bool { return f.Serve.Arriving() == 3 })
				return f
			})
		})
	}
	t.Run("a byte now and then", func(t *testing.T) {
		f := newFront(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = edgetest.Patience }))
		c := f.Dial()
		c.Write("P")
		edgetest.Until(t, "the connection", func() bool { return f.Serve.Arriving() == 1 })
		began, done := time.Now(), stopping(f)
		tick := time.NewTicker(time.Millisecond) // oftener than the edge looks
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.Try("O")
				continue
			case <-done:
			}
			break
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it left after %s", took)
		}
	})
	t.Run("a body on its way", func(t *testing.T) {
		f := newFront(t, edgetest.Modern, edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = edgetest.Patience }))
		body, lines := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", `{"x":"`+strings.Repeat("x", 100_000)+`"}`), edgetest.Meta())
		c := f.Dial()
		text := strings.ReplaceAll(head, "localhost", f.Addr())
		for i := 0; i < len(lines); i += 2 {
			text += lines[i] + ": " + lines[i+1] + "\r\n"
		}
		c.Write(text + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)))
		edgetest.Until(t, "the connection", func() bool { return f.Serve.Arriving() == 1 })
		done := stopping(f)
		for i := 0; i < len(body); i += 10_000 {
			c.Write(body[i:min(len(body), i+10_000)])
			time.Sleep(20 * time.Millisecond) // as a slow line has it
		}
		if h, text := c.Read(); h.StatusCode != 200 {
			t.Errorf("status %d: %s", h.StatusCode, text)
		}
		edgetest.Receive(t, done, "the end of the edge")
	})
}
