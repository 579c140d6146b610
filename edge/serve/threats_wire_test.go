package serve_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/fake"
)

// wire is an edge with a legacy session, and a tap on the line to its backend:
// what a stranger sends goes in as bytes, and what the backend is sent is seen
// as bytes.
type wire struct {
	*front
	tap     *tap
	session *edgetest.Session
}

func newWire(t *testing.T, options ...edgetest.Option) *wire {
	t.Helper()
	back := edgetest.NewServer(t, edgetest.Legacy)
	line := newTap(t, back.Addr())
	// What reaches the backend is counted, and so no health check may fall due
	// however long the test takes.
	rare := "operational: {failureHandling: {healthCheckInterval: 24h}}"
	e := edgetest.Start(t, edgetest.ManifestFor("http://"+line.Addr+"/mcp", compile.StreamableHTTP, rare), options...)
	w := &wire{front: &front{Edge: e, back: back, client: e.NewClient()}, tap: line}
	w.session = w.client.Initialize("")
	if m := w.session.Call("1", "echo", "{}").Message(); m.Error != nil { // opens the backend's session
		t.Fatalf("%+v", m.Error)
	}
	// The edge has introduced itself, and opened a session for the client.
	back.Await("notifications/initialized", 2)
	back.Forget()
	w.tap.forget()
	return w
}

// post is a POST to the endpoint. lines are further header lines, each with its
// end; they say how the body is framed.
func (w *wire) post(lines, body string) string {
	return "POST /mcp HTTP/1.1\r\nHost: " + w.Addr() + "\r\nContent-Type: application/json\r\n" +
		"Accept: application/json, text/event-stream\r\nMcp-Session-Id: " + w.session.ID + "\r\n" + lines + "\r\n" + body
}

// framed is post with a Content-Length that is right.
func (w *wire) framed(lines, body string) string {
	return w.post(lines+length(body), body)
}

func length(body string) string { return "Content-Length: " + strconv.Itoa(len(body)) + "\r\n" }

// chunked frames a body as one chunk, with the lines of a trailer.
func chunked(body, trailer string) string {
	return fmt.Sprintf("%x\r\n%s\r\n0\r\n%s\r\n", len(body), body, trailer)
}

// reply is one HTTP answer of the edge.
type reply struct {
	status int
	close  bool
	body   string
}

// send sends bytes on a connection of their own, says that there are no more,
// and returns all that the edge answers until it closes.
func (w *wire) send(t *testing.T, raw string) []reply {
	t.Helper()
	conn, err := net.Dial("tcp", w.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(edgetest.Patience)); err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	go func() { // the edge may answer before it has read all
		defer close(written)
		_, _ = io.WriteString(conn, raw)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	defer func() { <-written }()
	defer conn.Close()
	var out []reply
	br := bufio.NewReader(conn)
	for {
		if _, err := br.Peek(1); err != nil {
			if err != io.EOF && len(out) == 0 {
				t.Errorf("no answer to %.200q: %v", raw, err)
			}
			return out
		}
		h, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Errorf("what the edge answers to %.200q is no HTTP: %v", raw, err)
			return out
		}
		body, err := io.ReadAll(h.Body)
		if err != nil {
			t.Errorf("answer to %.200q: %v", raw, err)
		}
		out = append(out, reply{h.StatusCode, h.Close, string(body)})
	}
}

// refused sends what the edge must refuse: one answer of one of these statuses,
// the end of the connection, and nothing for the backend.
func (w *wire) refused(t *testing.T, raw string, statuses ...int) {
	t.Helper()
	got := w.send(t, raw)
	if len(got) != 1 || !slices.Contains(statuses, got[0].status) || !got[0].close {
		t.Errorf("%.300q\n%+v\nwant one answer of %v and the end", raw, got, statuses)
	}
	if n := len(w.tap.requests(t)); n != 0 {
		t.Errorf("%.300q: the backend got %d requests", raw, n)
	}
	w.tap.forget()
}

// passed sends what the edge must take, and returns the one request that the
// backend got for it.
func (w *wire) passed(t *testing.T, raw string) outgoing {
	t.Helper()
	got, sent := w.send(t, raw), w.tap.requests(t)
	w.tap.forget()
	if len(got) != 1 || got[0].status != 200 || len(sent) != 1 {
		t.Fatalf("%.300q\n%+v and %d requests of the backend, want 200 and one", raw, got, len(sent))
	}
	return sent[0]
}

// What the invariant found of one input.
const (
	wasRefused = "refused"
	wasPassed  = "passed on"
	wasOurs    = "answered by the edge"
	wasCut     = "incomplete"
)

// holds checks the invariant: either the edge refuses and closes, or the
// backend gets exactly one well-formed request whose framing the edge wrote. A
// request that the edge reads and answers by itself reaches no backend.
func (w *wire) holds(t *testing.T, raw string) string {
	t.Helper()
	got, sent := w.send(t, raw), w.tap.requests(t)
	w.tap.forget()
	good := 0
	for i, r := range got {
		switch r.status {
		case 200, 202:
			good++
		case 400, 405, 408, 413, 417, 431, 501, 505:
			if r.close && i != len(got)-1 {
				t.Errorf("%q\nwas answered after its refusal: %+v", raw, got)
			}
		}
	}
	if len(sent) > 1 || len(sent) > good {
		t.Errorf("%q\nbrought the backend %d requests: %+v", raw, len(sent), got)
	}
	switch {
	case len(got) == 0:
		return wasCut
	case len(sent) == 1:
		return wasPassed
	case got[len(got)-1].close:
		return wasRefused
	}
	return wasOurs
}

// outgoing is a request as the backend got it.
type outgoing struct {
	header http.Header
	body   string
}

// ours are the headers that the edge writes for a POST of a legacy session.
var ours = []string{"Host", "User-Agent", "Content-Type", "Accept", "Content-Length", "MCP-Protocol-Version", "Mcp-Session-Id"}

// readOutgoing takes one request off what a backend got. It is as strict as can
// be: every byte must be one that the edge writes.
func readOutgoing(raw []byte) (r outgoing, rest []byte, err error) {
	head, rest, ok := bytes.Cut(raw, []byte("\r\n\r\n"))
	if !ok {
		return r, nil, fmt.Errorf("no end of the header in %.200q", raw)
	}
	lines := strings.Split(string(head), "\r\n")
	if lines[0] != "POST /mcp HTTP/1.1" {
		return r, nil, fmt.Errorf("request line %q", lines[0])
	}
	r.header = http.Header{}
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ": ")
		if !ok || strings.ContainsAny(line, "\r\n\x00") || !slices.Contains(ours, name) || r.header[name] != nil {
			return r, nil, fmt.Errorf("header line %q", line)
		}
		r.header[name] = []string{value}
	}
	n, err := strconv.Atoi(strings.Join(r.header["Content-Length"], ""))
	if err != nil || n > len(rest) {
		return r, nil, fmt.Errorf("Content-Length %q before %d bytes", r.header["Content-Length"], len(rest))
	}
	r.body = string(rest[:n])
	return r, rest[n:], nil
}

// tap passes connections on to an address and keeps what goes that way.
type tap struct {
	*fake.Peer
	to   string
	mu   sync.Mutex
	seen []*bytes.Buffer // of each connection
}

func newTap(t *testing.T, to string) *tap {
	t.Helper()
	p := &tap{to: to}
	p.Peer = fake.Listen(t, p.pass)
	return p
}

// pass ends with either end of a connection.
func (p *tap) pass(in net.Conn) {
	out, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	seen := &bytes.Buffer{}
	p.mu.Lock()
	p.seen = append(p.seen, seen)
	p.mu.Unlock()
	var back sync.WaitGroup
	back.Go(func() {
		defer in.Close()
		_, _ = io.Copy(in, out)
	})
	defer back.Wait()
	defer out.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		p.mu.Lock()
		seen.Write(buf[:n])
		p.mu.Unlock()
		if _, failed := out.Write(buf[:n]); failed != nil || err != nil {
			return
		}
	}
}

// requests returns what has been passed on. Bytes that are no well-formed
// requests fail the test.
func (p *tap) requests(t *testing.T) []outgoing {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []outgoing
	for _, seen := range p.seen {
		for raw := seen.Bytes(); len(raw) > 0; {
			r, rest, err := readOutgoing(raw)
			if err != nil {
				t.Fatalf("what the backend got is not what the edge writes: %v", err)
			}
			all, raw = append(all, r), rest
		}
	}
	return all
}

func (p *tap) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, seen := range p.seen {
		seen.Reset()
	}
}

// crude is a backend of 2026-07-28 that answers with bytes: what say returns
// for a method. It closes a connection after an answer only when the answer
// ends with that: the rest stay open for whatever comes next.
type crude struct {
	*fake.Peer
	say   func(conn int, method, id string) (answer string, close bool)
	mu    sync.Mutex
	conns int
	used  []int // which connection each tools/call came on
}

func newCrude(t *testing.T, say func(conn int, method, id string) (string, bool)) *crude {
	t.Helper()
	c := &crude{say: say}
	c.Peer = fake.Listen(t, c.serve)
	return c
}

func (c *crude) url() string {
	return (&url.URL{Scheme: "http", Host: c.Addr, Path: "/mcp"}).String()
}

func (c *crude) serve(conn net.Conn) {
	c.mu.Lock()
	c.conns++
	n := c.conns
	c.mu.Unlock()
	br := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		method, id := r.Header.Get("Mcp-Method"), edgetest.Member(string(body), "id")
		if method == "server/discover" {
			text := whole(id, `{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"crude","version":"1"}}}`)
			if _, err := io.WriteString(conn, text); err != nil {
				return
			}
			continue
		}
		c.mu.Lock()
		c.used = append(c.used, n)
		c.mu.Unlock()
		answer, end := c.say(n, method, id)
		if _, err := io.WriteString(conn, answer); err != nil || end {
			return
		}
	}
}

// whole is an HTTP answer with a result.
func whole(id, result string) string {
	body := `{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}`
	return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + length(body) + "\r\n" + body
}
