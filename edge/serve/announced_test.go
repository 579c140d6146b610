package serve_test

import (
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// claim is the head of a POST to a path, with these lines, and no body.
func (f *front) claim(path, lines string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: " + f.Addr() + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" + lines + "\r\n"
}

// heap is how many bytes of memory are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// waitingFor is how many goroutines are in a function.
func waitingFor(function string) int {
	stacks := make([]byte, 8<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), function)
}

// What a head announces takes no memory, however many announce it, at either
// door: it is what has come that does.
func TestZ01AnnouncedBodiesTakeNothing(t *testing.T) {
	// Not parallel: nothing else may allocate.
	f := newFront(t, edgetest.Legacy)
	f.introduced(t)
	old := f.olderDoor(t)
	const many, each = 25, 40 << 10 // of the connection, at both ends
	for name, a := range edgetest.Announcements() {
		for _, path := range []string{"/mcp", old} {
			t.Run(name+" at "+path[:4], func(t *testing.T) {
				before := heap()
				var all []*edgetest.Raw
				for range many {
					c := f.Dial()
					c.Write(f.claim(path, a.Lines) + a.More)
					all = append(all, c)
				}
				edgetest.Until(t, "the edge to wait for the bodies", func() bool { return waitingFor("door.(*Conn).collect(") == many })
				if strings.Contains(a.Lines, "Expect") && a.More == "" {
					for _, c := range all {
						if line := c.Line(); line != "HTTP/1.1 100 Continue" {
							t.Fatalf("%q", line)
						}
					}
				}
				if r := f.callerOf(t, edgetest.Modern, "").call(t, "1", "{}"); r.Status != 200 {
					t.Errorf("a call beside them: status %d: %s", r.Status, r.Body)
				}
				if grown := heap() - before; grown > many*each {
					t.Errorf("%d announcements of 4 MiB took %d bytes", many, grown)
				}
				if taken := f.Serve.BudgetTaken(); taken > many*8<<10 {
					t.Errorf("%d bytes of the budget are taken", taken)
				}
				for _, c := range all {
					c.Close()
				}
				edgetest.Until(t, "their memory", func() bool { return f.Serve.BudgetTaken() == 0 && f.Serve.Owners() == 0 })
			})
		}
	}
}

// olderDoor opens a stream of the older transport and returns the path that it
// names.
func (f *front) olderDoor(t *testing.T) string {
	t.Helper()
	c := f.Dial()
	c.Write("GET /sse HTTP/1.1\r\nHost: " + f.Addr() + "\r\nAccept: text/event-stream\r\n\r\n")
	for {
		if line := c.Line(); strings.HasPrefix(line, "data: /messages") {
			return strings.TrimPrefix(line, "data: ")
		}
	}
}

// A body is not read before its client is known: who has no credential is told
// so at once, by the head alone.
func TestZ01StrangersBodiesAreNotRead(t *testing.T) {
	t.Parallel()
	f, m := newGuarded(t, edgetest.Legacy)
	good := m.token(t, "alice", "weir", nil)
	for _, path := range []string{"/mcp", "/messages?sessionId=x"} {
		for name, a := range edgetest.Announcements() {
			for kind, credential := range map[string]string{"none": "", "not a token": "Authorization: Bearer x\r\n", "of another audience": "Authorization: Bearer " + m.token(t, "alice", "other", nil) + "\r\n"} {
				c := f.Dial()
				c.Write(f.claim(path, credential+a.Lines) + a.More)
				if h, body := c.Read(); h.StatusCode != 401 || !h.Close || h.Header.Get("WWW-Authenticate") == "" {
					t.Errorf("%s, %s, %s: status %d, %s", path, name, kind, h.StatusCode, body)
				}
				if !c.Ended() {
					t.Errorf("%s, %s, %s: the connection stays open", path, name, kind)
				}
				c.Close()
			}
		}
	}
	t.Run("what has come is skipped", func(t *testing.T) {
		// A body that is a request, too, must not be taken for one.
		inner := f.claim("/mcp", "Content-Length: 0\r\nAuthorization: Bearer "+good+"\r\n")
		for _, size := range []int{len(inner), 1 << 10, 30 << 10} {
			body := inner + strings.Repeat(" ", size-len(inner))
			for _, at := range []int{0, 1, len(inner) / 2, size} { // so much comes with the head
				c := f.Dial()
				c.Write(f.claim("/mcp", length(body)) + body[:at])
				if h, text := c.Read(); h.StatusCode != 401 || h.Close {
					t.Fatalf("%d of %d: status %d, header %v: %s", at, size, h.StatusCode, h.Header, text)
				}
				c.Write(body[at:] + f.claim("/mcp", "Content-Length: 2\r\nAuthorization: Bearer "+good+"\r\n") + "{}")
				if h, text := c.Read(); h.StatusCode != 400 {
					t.Errorf("%d of %d, the next: status %d: %s", at, size, h.StatusCode, text)
				}
				c.Close()
			}
		}
	})
	t.Run("nothing is taken", func(t *testing.T) {
		if n := f.Serve.BudgetTaken(); n != 0 {
			t.Errorf("%d bytes of the budget are taken", n)
		}
	})
}

// Nor is one read that goes nowhere: no such path, another method's, another
// media type, a host or a page that may not knock.
func TestZ01RefusedBodiesAreNotRead(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern)
	const announced = "Content-Length: 4194304\r\n"
	for _, c := range []struct {
		raw    string
		status int
	}{
		{f.claim("/nothing", announced), 404},
		{f.claim("/health", announced), 200},
		{f.claim("/servers/x/mcp", announced), 404},
		{f.claim("/mcp", announced+"Origin: http://evil.example\r\n"), 403},
		{strings.Replace(f.claim("/mcp", announced), f.Addr(), "evil.example", 1), 403},
		{strings.Replace(f.claim("/mcp", announced), "application/json\r\n", "text/plain\r\n", 1), 415},
		{f.claim("/mcp", announced+"Content-Encoding: gzip\r\n"), 415},
		{f.claim("/sse", announced), 405},
		{f.claim("/messages?sessionId=x", announced), 404},
		{f.claim("/mcp", "Content-Length: 4194305\r\n"), 413},
		{f.claim("/mcp", "Transfer-Encoding: chunked\r\n") + "400001\r\n", 413},
		{f.claim("/mcp", "Transfer-Encoding: chunked\r\n") + "1\r\n{\r\n400000\r\n", 413},
		{f.claim("/mcp", "Transfer-Encoding: chunked\r\n") + "FFFFFFFFFFFFFFF\r\n", 413},
	} {
		conn := f.Dial()
		conn.Write(c.raw)
		if h, body := conn.Read(); h.StatusCode != c.status || !h.Close {
			t.Errorf("%q: status %d, header %v: %s", c.raw, h.StatusCode, h.Header, body)
		}
		if !conn.Ended() {
			t.Errorf("%q: the connection stays open", c.raw)
		}
	}
}

// What comes of bodies that never end is bounded, for one client and for those
// together who have not said who they are; whoever has a credential gets
// through, and so does every call that is small.
func TestZ01BudgetOfBodies(t *testing.T) {
	t.Parallel()
	m := newMint(t)
	open, shut := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Modern)
	const most = 4 << 20
	yaml := edgetest.Manifest(open)
	yaml = strings.Replace(yaml, "name: edgetest", "name: open", 1) + "\n---\n" + strings.Replace(strings.Replace(edgetest.Manifest(shut), "name: edgetest", "name: shut", 1), "incomingAuth: {type: anonymous}", fmt.Sprintf(
		"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}}", m.URL, m.URL+"/keys"), 1)
	e := edgetest.Start(t, yaml, edgetest.Settings(func(s *serve.Settings) {
		s.TrustedProxies = []string{"127.0.0.1"}
		s.MaxBody = 1 << 20
	}), edgetest.With(serve.WithDoor(func(o *door.Options) {
		o.BodyBytes, o.BodyShare, o.Grace = most, 1<<20, time.Hour // nobody is too slow
	})))
	f := &front{Edge: e, client: e.NewClient()}
	alice, bob := "Authorization: Bearer "+m.token(t, "alice", "weir", nil)+"\r\n", "Authorization: Bearer "+m.token(t, "bob", "weir", nil)+"\r\n"
	edgetest.Until(t, "the keys", func() bool {
		return f.client.Do("GET", "/servers/shut/status", "", "Authorization", "Bearer "+m.token(t, "probe", "weir", nil)).Status != 503
	})
	body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", `{"x":"`+strings.Repeat("x", 900<<10)+`"}`), edgetest.Meta())
	lines := ""
	for i := 0; i < len(head); i += 2 {
		lines += head[i] + ": " + head[i+1] + "\r\n"
	}
	whole := func(path, who string) (int, string) {
		t.Helper()
		before := f.Serve.BudgetTaken()
		c := f.Dial()
		c.Try(f.claim(path, who+lines+length(body)) + body)
		h, text := c.Read()
		c.Close()
		edgetest.Until(t, "the memory of a body", func() bool { return f.Serve.BudgetTaken() == before })
		return h.StatusCode, text
	}
	edgetest.Until(t, "the tokens", func() bool { s, _ := whole("/servers/shut/mcp", bob); return s == 200 })

	// part sends most of a body and no more. It reports whether the edge holds it.
	part := func(path, who string) (*edgetest.Raw, bool) {
		t.Helper()
		before := f.Serve.BudgetTaken()
		c := f.Dial()
		c.Try(f.claim(path, who+"Content-Length: 1048576\r\n") + strings.Repeat(" ", 600<<10))
		refused := false
		edgetest.Until(t, "what becomes of a part", func() bool {
			refused = c.Waits()
			return refused || f.Serve.BudgetTaken() >= before+1<<20
		})
		if refused {
			if h, text := c.Read(); h.StatusCode != 503 || h.Header.Get("Retry-After") == "" || !h.Close || !strings.Contains(text, "no room") {
				t.Errorf("status %d, header %v: %s", h.StatusCode, h.Header, text)
			}
			c.Close()
			return nil, false
		}
		return c, true
	}
	from := func(n int) string { return "X-Forwarded-For: 192.0.2." + strconv.Itoa(n) + "\r\n" }
	var strangers []*edgetest.Raw
	for n := range 8 {
		if c, held := part("/servers/open/mcp", from(n)); held {
			strangers = append(strangers, c)
		}
		if _, held := part("/servers/open/mcp", from(n)); held {
			t.Errorf("address %d has more than its share", n)
		}
	}
	if len(strangers) != 2 {
		t.Errorf("strangers may send %d bodies of 4 that fit", len(strangers))
	}
	if s, text := whole("/servers/open/mcp", from(99)); s != 503 {
		t.Errorf("a stranger's body: status %d: %s", s, text)
	}
	if s, text := whole("/servers/shut/mcp", alice+from(99)); s != 200 {
		t.Errorf("a body beside those of strangers: status %d: %s", s, text)
	}
	if s, text := whole("/servers/shut/mcp", alice+from(0)); s != 200 {
		t.Errorf("a body from the address of a stranger: status %d: %s", s, text)
	}
	mine, held := part("/servers/shut/mcp", alice)
	if !held {
		t.Fatal("a principal may send nothing")
	}
	if _, held := part("/servers/shut/mcp", alice); held {
		t.Error("a principal has more than its share")
	}
	if s, text := whole("/servers/shut/mcp", bob); s != 200 {
		t.Errorf("another principal: status %d: %s", s, text)
	}
	for _, path := range []string{"/servers/open/mcp", "/servers/shut/mcp"} { // what is small is in no budget
		text, _ := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", `{"x":"`+strings.Repeat("x", 1<<10)+`"}`), edgetest.Meta())
		c := f.Dial()
		c.Write(f.claim(path, alice+lines+length(text)))
		c.Write(text)
		if h, answer := c.Read(); h.StatusCode != 200 {
			t.Errorf("a small call: status %d: %s", h.StatusCode, answer)
		}
		c.Close()
	}
	for _, c := range append(strangers, mine) {
		c.Close()
	}
	edgetest.Until(t, "an empty budget", func() bool { return f.Serve.BudgetTaken() == 0 && f.Serve.Owners() == 0 })
	if s, text := whole("/servers/open/mcp", from(1)); s != 200 {
		t.Errorf("afterwards: status %d: %s", s, text)
	}
}

// Bodies that arrive too slowly to be whole in their time give way to those that
// do not, from the same address as well: whoever sends a body is served while
// others hold memory for theirs.
func TestZ01SlowBodiesGiveWay(t *testing.T) {
	t.Parallel()
	for name, share := range map[string]int64{"the share of an address": 1 << 20, "all of the budget": 2 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFront(t, edgetest.Modern, edgetest.Settings(func(s *serve.Settings) { s.MaxBody = 1 << 20 }), edgetest.With(serve.WithDoor(func(o *door.Options) {
				o.BodyBytes, o.BodyShare, o.Grace = 2<<20, share, 50*time.Millisecond
			})))
			body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", `{"x":"`+strings.Repeat("x", 900<<10)+`"}`), edgetest.Meta())
			lines := ""
			for i := 0; i < len(head); i += 2 {
				lines += head[i] + ": " + head[i+1] + "\r\n"
			}
			var slow []*edgetest.Raw
			for n := range share >> 20 {
				c := f.Dial()
				c.Write(f.claim("/mcp", "Content-Length: 1048576\r\n") + strings.Repeat(" ", 600<<10))
				slow = append(slow, c)
				edgetest.Until(t, "the slow ones", func() bool { return f.Serve.BudgetTaken() == (n+1)<<20 })
			}
			edgetest.Until(t, "a body beside them", func() bool {
				c := f.Dial()
				defer c.Close()
				c.Try(f.claim("/mcp", lines+length(body)) + body)
				h, text := c.Read()
				if h.StatusCode != 200 && h.StatusCode != 503 {
					t.Errorf("status %d: %s", h.StatusCode, text)
				}
				return h.StatusCode == 200
			})
			if h, text := slow[0].Read(); h.StatusCode != 503 || h.Header.Get("Retry-After") == "" || !h.Close {
				t.Errorf("the oldest: status %d, header %v: %s", h.StatusCode, h.Header, text)
			}
			for _, c := range slow {
				c.Close()
			}
			edgetest.Until(t, "an empty budget", func() bool { return f.Serve.BudgetTaken() == 0 && f.Serve.Owners() == 0 })
		})
	}
}

// All addresses of a network that is given to one customer have one share.
func TestZ01ShareOfANetwork(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern, edgetest.Settings(func(s *serve.Settings) { s.TrustedProxies = []string{"127.0.0.1"}; s.MaxBody = 1 << 20 }),
		edgetest.With(serve.WithDoor(func(o *door.Options) {
			o.BodyBytes, o.BodyShare, o.Grace = 8<<20, 1<<20, time.Hour
		})))
	for n := range 3 {
		c := f.Dial()
		c.Try(f.claim("/mcp", fmt.Sprintf("X-Forwarded-For: 2001:db8:1:2::%x\r\nContent-Length: 1048576\r\n", n+1)) + strings.Repeat(" ", 600<<10))
		if n == 0 {
			edgetest.Until(t, "the first body", func() bool { return f.Serve.BudgetTaken() >= 1<<20 })
		} else if h, text := c.Read(); h.StatusCode != 503 {
			t.Errorf("status %d: %s", h.StatusCode, text)
		}
	}
	c := f.Dial()
	c.Write(f.claim("/mcp", "X-Forwarded-For: 2001:db8:1:3::1\r\nContent-Length: 1048576\r\n") + strings.Repeat(" ", 600<<10))
	edgetest.Until(t, "the body of another network", func() bool { return f.Serve.BudgetTaken() >= 2<<20 })
}

// However a body is cut into packets and chunks, and however large it is, it is
// what was sent, and the next request begins behind it.
func TestZ01BodiesInPieces(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	echoed := func(n int) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"x":"` + strings.Repeat("y", n) + `"}}}`
	}
	chunks := func(text string, size int) string {
		var b strings.Builder
		for len(text) > 0 {
			n := min(size, len(text))
			fmt.Fprintf(&b, "%x;x=y\r\n%s\r\n", n, text[:n])
			text = text[n:]
		}
		return b.String() + "0\r\nX-Sum: 1\r\n\r\n"
	}
	for _, size := range []int{0, 1, 900, 1024, 1900, 2048, 5000, 8 << 10, 9000, 64 << 10, 70_000, 512 << 10, 3 << 20} {
		body := echoed(size)
		for name, raw := range map[string]string{
			"a length":     w.framed("", body),
			"expected":     w.framed("Expect: 100-continue\r\n", body),
			"one chunk":    w.post("Transfer-Encoding: chunked\r\n", chunks(body, len(body))),
			"large chunks": w.post("Transfer-Encoding: chunked\r\n", chunks(body, 10_000)),
			"small chunks": w.post("Transfer-Encoding: chunked\r\n", chunks(body, 7)),
		} {
			if name == "small chunks" && len(body) > 9000 {
				continue
			}
			for _, cut := range []int{len(raw), 1, 3, 500, 2047, 2048, 2049} { // where the first packet ends
				if size > 100<<10 && cut < 2048 {
					continue
				}
				c := w.Dial()
				at := min(cut, len(raw))
				c.Write(raw[:at])
				sent := make(chan struct{})
				go func() { // the edge may answer before it has read all
					defer close(sent)
					if at < len(raw) {
						w.pause(t)
					}
					c.Try(raw[at:] + raw) // and another behind it
				}()
				for range 2 {
					h, answer := c.Read()
					for h.StatusCode == 100 {
						h, answer = c.Read()
					}
					if h.StatusCode != 200 || edgetest.Member(answer, "id") != "1" {
						t.Fatalf("%s of %d bytes, cut at %d: status %d: %.300s", name, len(body), cut, h.StatusCode, answer)
					}
				}
				<-sent
				c.Close()
				got := w.tap.requests(t)
				w.tap.forget()
				if len(got) != 2 {
					t.Fatalf("%s of %d bytes, cut at %d: the backend got %d requests", name, len(body), cut, len(got))
				}
				for _, one := range got {
					if edgetest.Member(one.body, "params") != edgetest.Member(body, "params") {
						t.Fatalf("%s of %d bytes, cut at %d: the backend got %.300s", name, len(body), cut, one.body)
					}
				}
			}
		}
	}
	edgetest.Until(t, "an empty budget", func() bool { return w.Serve.BudgetTaken() == 0 })
}

// pause gives the edge a moment in which it sees what was sent alone: it has
// answered somebody else.
func (w *wire) pause(t *testing.T) {
	conn, err := net.Dial("tcp", w.Addr())
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	var b [1]byte
	if _, err := conn.Write([]byte("GET /health HTTP/1.1\r\nHost: " + w.Addr() + "\r\n\r\n")); err != nil {
		t.Error(err)
	} else if _, err := conn.Read(b[:]); err != nil {
		t.Error(err)
	}
}

// The admin address takes no body worth mentioning.
func TestZ01AdminBodies(t *testing.T) {
	t.Parallel()
	f := newFront(t, edgetest.Modern, edgetest.Settings(func(s *serve.Settings) { s.AdminListen = "127.0.0.1:0" }))
	for _, more := range []string{"Content-Length: 4194304\r\n\r\n", "Content-Length: 8192\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3fffff\r\n"} {
		conn, err := net.Dial("tcp", f.Serve.AdminAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(edgetest.Patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("POST /-/reload HTTP/1.1\r\nHost: " + f.Serve.AdminAddr() + "\r\n" + more)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		if n, err := conn.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "HTTP/1.1 4") {
			t.Errorf("%q: %q, %v", more, buf[:n], err)
		}
	}
}
