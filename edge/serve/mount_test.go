package serve_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// mounted is an edge with a handler under /mounted/.
func mounted(t *testing.T, most int, h http.HandlerFunc, options ...edgetest.Option) *front {
	t.Helper()
	f := newFront(t, edgetest.Legacy, options...)
	f.Serve.Mount(edge.Mount{Prefix: "/mounted/", Handler: h, MaxBody: most})
	return f
}

// dialled sends the text of a request, in which HOST stands for the edge's address, and
// returns the connection and its reader.
func dialled(t *testing.T, f *front, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", f.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(edgetest.Patience))
	if _, err := io.WriteString(c, strings.ReplaceAll(text, "HOST", f.Addr())); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// answered reads an answer with its body.
func answered(t *testing.T, in *bufio.Reader, method string) (*http.Response, string) {
	t.Helper()
	r, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatalf("the body: %v", err)
	}
	return r, string(body)
}

const get = "GET /mounted/x HTTP/1.1\r\nHost: HOST\r\n\r\n"

// TestMountAnswers: a mounted handler answers as it would under net/http: with what it
// writes, in whatever way, and one request after the other on a connection.
func TestMountAnswers(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789abcdef", 1<<16)
	f := mounted(t, 1<<20, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/mounted/large":
			_, _ = io.WriteString(w, large)
		case "/mounted/none":
			w.WriteHeader(http.StatusNoContent)
		case "/mounted/found":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case "/mounted/echo":
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %d %v %s %s", r.Method, r.URL.RawQuery, r.ContentLength, err, r.Header.Get("X-One"), body)
		case "/mounted/lines":
			w.Header().Set("X-Line", "a\r\nX-Other: b")
			w.Header().Set("Connection", "upgrade")
			w.Header().Set("Transfer-Encoding", "gzip")
			w.Header().Set("Bad Name", "c")
		}
	})
	_, in := dialled(t, f, "GET /mounted/large HTTP/1.1\r\nHost: HOST\r\n\r\n"+
		"GET /mounted/none HTTP/1.1\r\nHost: HOST\r\n\r\n"+
		"HEAD /mounted/echo HTTP/1.1\r\nHost: HOST\r\n\r\n"+
		"POST /mounted/echo?a=b HTTP/1.1\r\nHost: HOST\r\nX-One: 1\r\nContent-Length: 5\r\n\r\nhello"+
		"POST /mounted/echo HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"+
		"GET /mounted/found HTTP/1.1\r\nHost: HOST\r\n\r\n"+
		"GET /mounted/lines HTTP/1.1\r\nHost: HOST\r\n\r\n")
	if r, body := answered(t, in, "GET"); r.StatusCode != 200 || body != large || r.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("large: %d, %d bytes, %s", r.StatusCode, len(body), r.Header)
	}
	if r, body := answered(t, in, "GET"); r.StatusCode != 204 || body != "" {
		t.Errorf("none: %d %q", r.StatusCode, body)
	}
	if r, _ := answered(t, in, "HEAD"); r.StatusCode != 200 {
		t.Errorf("HEAD: %d", r.StatusCode)
	}
	if _, body := answered(t, in, "POST"); body != "POST a=b 5 <nil> 1 hello" {
		t.Errorf("echo: %q", body)
	}
	if _, body := answered(t, in, "POST"); body != "POST  5 <nil>  hello" {
		t.Errorf("echo in chunks: %q", body)
	}
	if r, _ := answered(t, in, "GET"); r.StatusCode != 302 || r.Header.Get("Location") != "/elsewhere" {
		t.Errorf("found: %d %s", r.StatusCode, r.Header)
	}
	if r, _ := answered(t, in, "GET"); r.Header.Get("X-Other") != "" || len(r.TransferEncoding) > 0 || r.Header.Get("Connection") != "" || strings.Contains(fmt.Sprint(r.Header), "Bad") {
		t.Errorf("lines: %s", r.Header)
	}
	_, in = dialled(t, f, "GET /mounted/large HTTP/1.0\r\nHost: HOST\r\n\r\n")
	if _, body := answered(t, in, "GET"); body != large {
		t.Errorf("HTTP/1.0: %d bytes", len(body))
	}
	_, in = dialled(t, f, strings.Replace(get, "Host: HOST", "Host: evil.example", 1))
	if r, _ := answered(t, in, "GET"); r.StatusCode != 403 {
		t.Errorf("another Host: %d", r.StatusCode)
	}
	_, in = dialled(t, f, strings.Replace(get, "/mounted/x", "/mountedx", 1))
	if r, _ := answered(t, in, "GET"); r.StatusCode != 404 {
		t.Errorf("another path: %d", r.StatusCode)
	}
}

// TestMountBody: a body that is too large is refused before the handler sees it, as it is
// announced or as it comes.
func TestMountBody(t *testing.T) {
	t.Parallel()
	calls := make(chan int64, 10)
	f := mounted(t, 10, func(_ http.ResponseWriter, r *http.Request) { calls <- r.ContentLength })
	for _, body := range []string{
		"Content-Length: 11\r\n\r\n", "Content-Length: 11\r\n\r\nhello world", "Content-Length: 11\r\nExpect: 100-continue\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\nb\r\n", "Transfer-Encoding: chunked\r\n\r\n6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n",
	} {
		_, in := dialled(t, f, "POST /mounted/x HTTP/1.1\r\nHost: HOST\r\n"+body)
		if r, _ := answered(t, in, "POST"); r.StatusCode != 413 {
			t.Errorf("%q: status %d", body, r.StatusCode)
		}
	}
	if len(calls) != 0 {
		t.Errorf("the handler was called %d times", len(calls))
	}
	_, in := dialled(t, f, "POST /mounted/x HTTP/1.1\r\nHost: HOST\r\nContent-Length: 10\r\n\r\nhelloworld")
	if r, _ := answered(t, in, "POST"); r.StatusCode != 200 || edgetest.Receive(t, calls, "the call") != 10 {
		t.Errorf("status %d", r.StatusCode)
	}
}

// TestMountRequestID: a handler is told the id of its request: the client's, where that
// is sound, or a new one.
func TestMountRequestID(t *testing.T) {
	t.Parallel()
	f := mounted(t, 0, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%q", r.Header["X-Request-Id"]) })
	for sent, want := range map[string]string{"X-Request-Id: mine-1\r\n": `["mine-1"]`, "X-Request-Id: a b\r\n": "", "": ""} {
		_, in := dialled(t, f, strings.Replace(get, "\r\n\r\n", "\r\n"+sent+"\r\n", 1))
		_, body := answered(t, in, "GET")
		if want != "" && body != want || want == "" && (len(body) != 36 || strings.Contains(body, "a b")) {
			t.Errorf("%q: %s", sent, body)
		}
	}
}

// TestMountEvents: what a handler flushes comes at once, and its context ends when its
// client leaves.
func TestMountEvents(t *testing.T) {
	t.Parallel()
	next, ended := make(chan string), make(chan error, 1)
	f := mounted(t, 0, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			select {
			case one := <-next:
				fmt.Fprintf(w, "data: %s\n\n", one)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
				ended <- err
				return
			}
		}
	})
	c, in := dialled(t, f, get)
	var body *bufio.Reader
	for _, one := range []string{"one", "two", "three"} {
		next <- one
		if body == nil {
			r, err := http.ReadResponse(in, nil)
			if err != nil || r.Header.Get("Content-Type") != "text/event-stream" {
				t.Fatal(err, r)
			}
			body = bufio.NewReader(r.Body)
		}
		line, err := body.ReadString('\n')
		if _, _ = body.ReadString('\n'); err != nil || line != "data: "+one+"\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	c.Close()
	if err := edgetest.Receive(t, ended, "the end of the handler"); err == nil {
		t.Error("a write to nobody succeeded")
	}
}

// TestMountPanics: a panic costs the answer of its own request, and is never taken for
// all of one.
func TestMountPanics(t *testing.T) {
	t.Parallel()
	late := make(chan bool)
	f := mounted(t, 0, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "a part")
		switch r.URL.Path {
		case "/mounted/late":
			w.(http.Flusher).Flush()
			<-late
		case "/mounted/abort":
			panic(http.ErrAbortHandler)
		case "/mounted/status":
			w.Header().Set("X", "y")
			w.WriteHeader(99)
		}
		panic("a secret of the handler")
	})
	c, in := dialled(t, f, get)
	if r, body := answered(t, in, "GET"); r.StatusCode != 500 || strings.Contains(body, "secret") || strings.Contains(body, "part") {
		t.Errorf("early: %d %q", r.StatusCode, body)
	}
	if _, err := io.WriteString(c, strings.ReplaceAll(get, "HOST", f.Addr())); err != nil { // the connection goes on
		t.Fatal(err)
	}
	if r, _ := answered(t, in, "GET"); r.StatusCode != 500 {
		t.Errorf("again: %d", r.StatusCode)
	}
	if !strings.Contains(f.Log(), "panic in a handler") || !strings.Contains(f.Log(), "/mounted/x") {
		t.Error("the log does not tell of the panic")
	}
	_, in = dialled(t, f, strings.Replace(get, "/x", "/late", 1))
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	close(late)
	if body, err := io.ReadAll(r.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("late: %q, %v", body, err)
	}
	_, in = dialled(t, f, strings.Replace(get, "/x", "/abort", 1))
	if r, err := http.ReadResponse(in, nil); err == nil {
		t.Errorf("aborted: %d", r.StatusCode)
	}
}

// TestMountWaiting: a handler whose client does not read waits, and its memory is bounded.
func TestMountWaiting(t *testing.T) {
	t.Parallel()
	wrote, ended := make(chan int, 1<<12), make(chan error, 1)
	f := mounted(t, 0, func(w http.ResponseWriter, r *http.Request) {
		part := make([]byte, 32<<10)
		for range 1 << 12 {
			n, err := w.Write(part)
			if err != nil {
				ended <- err
				return
			}
			wrote <- n
		}
		ended <- nil
	})
	c, _ := dialled(t, f, get)
	edgetest.Receive(t, wrote, "a write")
	last := -1
	edgetest.Until(t, "the handler to wait", func() bool { // nothing more is written
		n := len(wrote)
		defer func() { last = n }()
		time.Sleep(50 * time.Millisecond)
		return n == last
	})
	if got := len(wrote) * 32; got > 8<<10 {
		t.Errorf("%d KiB were written to a client that does not read", got)
	}
	c.Close()
	if err := edgetest.Receive(t, ended, "the end of the handler"); err == nil {
		t.Error("all of it was written")
	}
}

// TestMountPool: there are so many handlers at a time, and one client address has a part
// of them.
func TestMountPool(t *testing.T) {
	t.Parallel()
	begun, leave := make(chan bool, 100), make(chan bool)
	f := mounted(t, 0, func(http.ResponseWriter, *http.Request) {
		begun <- true
		<-leave
	})
	var all []*bufio.Reader
	for range 16 {
		_, in := dialled(t, f, get)
		all = append(all, in)
		edgetest.Receive(t, begun, "a handler")
	}
	_, in := dialled(t, f, get)
	if r, _ := answered(t, in, "GET"); r.StatusCode != 503 || r.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d", r.StatusCode)
	}
	if r := f.client.Do("GET", "/health", ""); r.Status != 200 {
		t.Errorf("/health: %d", r.Status)
	}
	close(leave)
	for _, in := range all {
		if r, _ := answered(t, in, "GET"); r.StatusCode != 200 {
			t.Errorf("status %d", r.StatusCode)
		}
	}
	_, in = dialled(t, f, get)
	if r, _ := answered(t, in, "GET"); r.StatusCode != 200 {
		t.Errorf("afterwards: %d", r.StatusCode)
	}
}

// TestMountDrain: an edge that ends lets a handler answer that is under way, ends at once
// what lasts, and leaves one behind that does not heed its end.
func TestMountDrain(t *testing.T) {
	t.Parallel()
	begun, leave := make(chan string, 4), make(chan bool)
	lasted := make(chan error, 1)
	f := mounted(t, 0, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/mounted/lasts":
			w.(http.Flusher).Flush()
			begun <- r.URL.Path
			<-r.Context().Done()
			lasted <- context.Cause(r.Context())
		default:
			begun <- r.URL.Path
			<-leave
			_, _ = io.WriteString(w, "done")
		}
	}, edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = edgetest.Patience }))
	_, _ = dialled(t, f, strings.Replace(get, "/x", "/lasts", 1))
	_, in := dialled(t, f, get)
	for range 2 {
		edgetest.Receive(t, begun, "a handler")
	}
	done := stopping(f)
	if err := edgetest.Receive(t, lasted, "the end of what lasts"); err == nil {
		t.Error("no cause")
	}
	close(leave)
	if r, body := answered(t, in, "GET"); r.StatusCode != 200 || body != "done" || !r.Close {
		t.Errorf("%d %q, closes %v", r.StatusCode, body, r.Close)
	}
	edgetest.Receive(t, done, "the end of the edge")
}

// TestMountOrigin: a page of a site that is not allowed reaches a handler that judges origins
// itself, and nothing else.
func TestMountOrigin(t *testing.T) {
	f := newFront(t, edgetest.Legacy)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Header.Get("Origin")) })
	f.Serve.Mount(edge.Mount{Prefix: "/any", Handler: h, AnyOrigin: true})
	f.Serve.Mount(edge.Mount{Prefix: "/own", Handler: h})
	for _, origin := range []string{"null", "https://evil.example"} {
		for path, want := range map[string]int{"/any": 200, "/any?x": 200, "/own": 403, "/any/more": 403, "/mcp": 403, "/mcp?/any": 403, "/servers/edgetest/mcp": 403} {
			if r := f.client.Do("GET", path, "", "Origin", origin); r.Status != want || want == 200 && string(r.Body) != origin {
				t.Errorf("%s from %s: status %d: %s", path, origin, r.Status, r.Body)
			}
		}
	}
	if r := f.client.Do("GET", "/any", "", "Origin", "null", "Host", "evil.example"); r.Status != 403 {
		t.Errorf("another Host: status %d", r.Status)
	}
}
