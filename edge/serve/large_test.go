package serve_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// tools is so many names of tools.
func tools(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("tool_%04d", i)
	}
	return all
}

// newLarge starts an edge whose list of tools, shared by all answers, is large, and
// whose tool answers with much.
func newLarge(t *testing.T, options ...edgetest.Option) (*front, string) {
	t.Helper()
	back := edgetest.NewServer(t, edgetest.Modern)
	offers(back, tools(900)...)
	much := `{"resultType":"complete","content":[{"type":"text","text":"` + strings.Repeat("much ", 40<<10) + `"}]}`
	back.Always("tools/call", func(c *edgetest.Call) { c.Result(much) })
	e := edgetest.Start(t, group(map[string]*edgetest.Server{"back": back}, "aggregation: {conflictResolution: prefix}"), options...)
	f := &front{Edge: e, back: back, client: e.NewClient()}
	edgetest.Until(t, "the list", func() bool {
		return len(listed(t, f.callerOf(t, edgetest.Modern, ""))) == 900
	})
	return f, much
}

// raw is a modern request as bytes. lines are further header lines.
func (f *front) raw(version, id, method, params, lines string) string {
	body, head := edgetest.ModernRequest(id, method, params, edgetest.Meta())
	text := "POST /mcp HTTP/" + version + "\r\nHost: " + f.Addr() + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" + lines + length(body)
	for i := 0; i < len(head); i += 2 {
		text += head[i] + ": " + head[i+1] + "\r\n"
	}
	return text + "\r\n" + body
}

// An answer that goes out in pieces is what it would be in one: its framing, its
// lines, and what comes after it on the connection.
func TestLargeAnswers(t *testing.T) {
	t.Parallel()
	f, much := newLarge(t)
	list := string(f.callerOf(t, edgetest.Modern, "").request(t, "1", "tools/list", "{}").Result())
	answer := func(id, result string) string { return `{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}` }
	want := func(t *testing.T, r *http.Response, body, text string) {
		t.Helper()
		if r.StatusCode != 200 || r.Header.Get("Content-Type") != "application/json" || r.ContentLength != int64(len(text)) || body != text || r.Header.Get("Date") == "" {
			t.Errorf("status %d, header %v, %d bytes and not the %d that it is: %.100s", r.StatusCode, r.Header, len(body), len(text), body)
		}
	}
	t.Run("one after the other, sent at once", func(t *testing.T) {
		c := f.Dial()
		c.Write(f.raw("1.1", `"a"`, "tools/list", "{}", "") + f.raw("1.1", "2", "tools/call", edgetest.CallParams("back_tool_0001", "{}"), "") +
			f.raw("1.1", "3", "ping", "{}", "") + f.raw("1.1", "4", "tools/list", "{}", ""))
		r, body := c.Read()
		want(t, r, body, answer(`"a"`, list))
		r, body = c.Read()
		want(t, r, body, answer("2", much))
		if r, body = c.Read(); r.StatusCode == 200 && r.ContentLength > 1000 {
			t.Errorf("after a large answer: %d %s", r.StatusCode, body)
		}
		r, body = c.Read()
		want(t, r, body, answer("4", list))
	})
	t.Run("the last on its connection", func(t *testing.T) {
		c := f.Dial()
		c.Write(f.raw("1.1", "1", "tools/list", "{}", "Connection: close\r\n"))
		r, body := c.Read()
		want(t, r, body, answer("1", list))
		if !r.Close || !c.Ended() {
			t.Error("the connection goes on")
		}
	})
	t.Run("HTTP/1.0", func(t *testing.T) {
		c := f.Dial()
		c.Write(f.raw("1.0", "1", "tools/list", "{}", "Connection: keep-alive\r\n"))
		r, body := c.Read()
		want(t, r, body, answer("1", list))
		c.Write(f.raw("1.0", "2", "tools/list", "{}", ""))
		r, body = c.Read()
		want(t, r, body, answer("2", list))
		if !c.Ended() {
			t.Error("the connection goes on")
		}
	})
	t.Run("a page of an allowed origin", func(t *testing.T) {
		c := f.Dial()
		_, port, _ := net.SplitHostPort(f.Addr())
		origin := "http://localhost:" + port
		c.Write(f.raw("1.1", "1", "tools/list", "{}", "Origin: "+origin+"\r\n"))
		r, body := c.Read()
		want(t, r, body, answer("1", list))
		if r.Header.Get("Access-Control-Allow-Origin") != origin || r.Header.Get("Vary") != "Origin" {
			t.Errorf("header %v", r.Header)
		}
	})
	t.Run("as a stream", func(t *testing.T) {
		c := f.Dial()
		raw := strings.Replace(f.raw("1.1", "1", "tools/list", "{}", ""), "Accept: application/json, text/event-stream", "Accept: text/event-stream", 1)
		c.Write(raw)
		r, body := c.Read()
		if r.Header.Get("Content-Type") != "text/event-stream" || body != "event: message\ndata: "+answer("1", list)+"\n\n" {
			t.Errorf("header %v, %d bytes: %.100s", r.Header, len(body), body)
		}
	})
}

// A client that leaves a large answer unread holds none of the room for
// exchanges, and its connection none of the kernel's once it has gone.
func TestLargeAnswersUnread(t *testing.T) {
	t.Parallel()
	f, _ := newLarge(t)
	before := f.Serve.Wide()
	var all []*edgetest.Raw
	for range 5 {
		c := f.Dial()
		c.Write(strings.Repeat(f.raw("1.1", "1", "tools/list", "{}", ""), 20))
		all = append(all, c)
	}
	edgetest.Until(t, "answers that nobody reads", func() bool { return f.Serve.Wide() == before+5 && f.Serve.Inflight() == 0 })
	for _, c := range all {
		c.Close()
	}
	edgetest.Until(t, "the end of their connections", func() bool { return f.Serve.Wide() == before })
}

// Beyond a number of connections large answers go out as before, whole.
func TestLargeAnswersWithoutRoom(t *testing.T) {
	t.Parallel()
	f, _ := newLarge(t, edgetest.With(serve.WithDoor(func(o *door.Options) { o.MaxWide = -1 })))
	before := f.Serve.Wide()
	c := f.Dial()
	for range 3 {
		c.Write(f.raw("1.1", "1", "tools/list", "{}", ""))
		if r, body := c.Read(); int64(len(body)) != r.ContentLength || edgetest.Member(body, "result", "tools") == "" {
			t.Errorf("%d bytes of %d", len(body), r.ContentLength)
		}
	}
	if n := f.Serve.Wide(); n != before {
		t.Errorf("%d connections are wide", n)
	}
}
