package main

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/port"
	"github.com/weir-edge/weir/edge/mcp"
)

// era is one of the two wire protocols of MCP.
type era string

const (
	legacy era = "legacy"
	modern era = "modern"
)

// backend is a fake MCP server of one era, in this process, so that what it
// saw can be held against what the clients saw. It has one tool, work, which
// does what its arguments say.
type backend struct {
	era  era
	addr string
	ln   net.Listener
	work sync.WaitGroup
	end  chan struct{} // closed with the backend; ends calls that nobody cancels

	// What a row wants to know or to do. They are set before the edge starts.
	arrived func(*task)        // a call has arrived
	left    func(*task, error) // a call has ended; nil when it was answered, errCancelled when it was cancelled
	feed    func(*feed)        // fills a stream that belongs to no call; nil for a backend without such streams
	feeds   string             // legacy clients whose names begin so get such streams
	mood    atomic.Int32       // what is wrong with it; may change at any time
	closes  atomic.Bool        // every answer is the last on its connection, and says so

	calls   atomic.Int64 // tools/call received
	opened  atomic.Int64 // connections accepted
	streams atomic.Int64 // feeds open now

	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	sessions map[string]*peer
	over     bool
}

// peer is a session of a legacy client.
type peer struct {
	name string // of the client, as it said in initialize

	mu    sync.Mutex
	tasks map[string]*task // under way, by the id of their request
}

// work is the arguments of the tool.
type work struct {
	Text  string `json:"text"`            // answered as it is
	Ms    int    `json:"ms,omitempty"`    // how long it takes, milliseconds
	Steps int    `json:"steps,omitempty"` // progress notifications before the answer
	Size  int    `json:"size,omitempty"`  // the answer is filled up to so many bytes
	Hang  bool   `json:"hang,omitempty"`  // it lasts until it is cancelled
}

// task is one call of the tool.
type task struct {
	work
	id     []byte
	token  []byte // JSON text; nil when no progress is wanted
	client string // who a legacy session belongs to
	seen   time.Time

	once      sync.Once
	cancelled chan struct{} // closed by notifications/cancelled, or when the connection ended
}

var errCancelled = errors.New("cancelled")

func (t *task) cancel() { t.once.Do(func() { close(t.cancelled) }) }

// newBackend starts a backend, which ends with the row. The hooks are set by
// the caller before anything connects.
func (s *storm) newBackend(e era, hooks func(*backend)) (*backend, error) {
	// The port is none of those that the system hands out for connections, so
	// that nobody has it while the backend is down.
	addr, err := port.Free()
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	b := &backend{
		era: e, addr: addr, ln: ln, end: make(chan struct{}),
		conns: map[net.Conn]struct{}{}, sessions: map[string]*peer{},
	}
	if hooks != nil {
		hooks(b)
	}
	b.work.Go(func() { b.accept(ln) })
	s.later(b.close)
	return b, nil
}

// accept ends with the listener.
func (b *backend) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		over := b.over || b.ln != ln
		if !over {
			b.conns[c] = struct{}{}
		}
		b.mu.Unlock()
		if over {
			c.Close()
			return
		}
		b.opened.Add(1)
		b.work.Go(func() { b.serve(c) })
	}
}

// close ends the backend and waits for what it does.
func (b *backend) close() {
	b.mu.Lock()
	if !b.over {
		close(b.end)
	}
	b.over = true
	b.cut()
	b.mu.Unlock()
	b.work.Wait()
}

// cut ends the listener and every connection; b.mu is held.
func (b *backend) cut() {
	if b.ln != nil {
		b.ln.Close()
		b.ln = nil
	}
	for c := range b.conns {
		c.Close()
	}
}

// down has nobody listen, and cuts every connection, as when the process has
// died. What it knows of sessions stays.
func (b *backend) down() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut()
}

// up listens again after down.
func (b *backend) up() error {
	ln, err := net.Listen("tcp", b.addr)
	if err != nil {
		return fmt.Errorf("backend: %w", err)
	}
	b.mu.Lock()
	b.ln = ln
	b.mu.Unlock()
	b.work.Go(func() { b.accept(ln) })
	return nil
}

// forget ends every session, and tells nobody.
func (b *backend) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.sessions)
}

// mood is what is wrong with a backend that listens.
type mood int32

const (
	well   mood = iota
	slow        // every request lasts half a minute longer
	resets      // every request ends with a reset of its connection
)

// slowness is how much longer requests last at a slow backend.
const slowness = 30 * time.Second

// suffer does to a request what the mood of the backend wants; false ends the
// connection.
func (l *link) suffer() bool {
	switch mood(l.b.mood.Load()) {
	case resets:
		if t, ok := l.conn.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		return false
	case slow:
		gone := make(chan struct{})
		l.watch(func() { close(gone) })
		timer := time.NewTimer(slowness)
		defer timer.Stop()
		select {
		case <-timer.C:
			return false // whoever has waited so long may ask again
		case <-gone:
			return false
		}
	}
	return true
}

// link is one connection of the edge to the backend.
type link struct {
	b    *backend
	conn net.Conn
	br   *bufio.Reader
	next chan struct{} // closed when the goroutine that waits for more has ended; nil for none
}

// serve answers the requests of one connection until it ends.
func (b *backend) serve(c net.Conn) {
	defer func() {
		c.Close()
		b.mu.Lock()
		delete(b.conns, c)
		b.mu.Unlock()
	}()
	l := &link{b: b, conn: c, br: bufio.NewReaderSize(c, 4<<10)}
	for {
		h, err := readRequestHead(l.br)
		if err != nil {
			return
		}
		body, err := h.readBody(l.br)
		if err != nil {
			return
		}
		if !l.request(&h, body) {
			return
		}
		if l.next != nil {
			<-l.next
			l.next = nil
		}
	}
}

// watch has f called when the connection ends before the next request. It must
// not be read meanwhile.
func (l *link) watch(f func()) {
	next := make(chan struct{})
	l.next = next
	go func() { // ends with the connection, or with its next request
		defer close(next)
		if _, err := l.br.Peek(1); err != nil {
			f()
		}
	}()
}

// request is what a message of a client says.
type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProtocolVersion string                     `json:"protocolVersion"`
		ClientInfo      struct{ Name string }      `json:"clientInfo"`
		Name            string                     `json:"name"`
		Arguments       work                       `json:"arguments"`
		RequestID       json.RawMessage            `json:"requestId"`
		Meta            map[string]json.RawMessage `json:"_meta"`
	} `json:"params"`
}

const (
	toolList  = `"tools":[{"name":"work","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}]`
	complete  = `"resultType":"complete",`
	cacheable = complete + `"ttlMs":0,"cacheScope":"private",`
	server    = `{"name":"storm","version":"1"}`
)

// request answers one request; false ends the connection.
func (l *link) request(h *header, body []byte) bool {
	if !l.suffer() {
		return false
	}
	var p *peer
	if l.b.era == legacy && h.session != "" {
		l.b.mu.Lock()
		p = l.b.sessions[h.session]
		l.b.mu.Unlock()
		if p == nil {
			return l.plain(404, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"}}`)
		}
	}
	switch {
	case h.method == "GET" && l.b.era == legacy && p != nil && l.b.feed != nil && strings.HasPrefix(p.name, l.b.feeds):
		return l.stream(&feed{Client: p.name}, "")
	case h.method == "GET":
		return l.plain(405, "")
	case h.method == "DELETE":
		l.b.mu.Lock()
		delete(l.b.sessions, h.session)
		l.b.mu.Unlock()
		return l.plain(200, "")
	}
	var m request
	if err := json.Unmarshal(body, &m); err != nil {
		return l.plain(400, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse error"}}`)
	}
	if l.b.era == modern {
		return l.modern(&m)
	}
	return l.legacy(&m, p)
}

func (l *link) modern(m *request) bool {
	switch m.Method {
	case "server/discover":
		return l.result(m, `{`+cacheable+`"supportedVersions":["`+mcp.V2607+`"],"capabilities":{"tools":{"listChanged":true}},"_meta":{"`+mcp.MetaServerInfo+`":`+server+`}}`)
	case "tools/list":
		return l.result(m, `{`+cacheable+toolList+`}`)
	case "tools/call":
		return l.call(m, nil)
	case "subscriptions/listen":
		if l.b.feed != nil {
			return l.stream(&feed{}, string(m.ID))
		}
	}
	return l.plain(404, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID))
}

func (l *link) legacy(m *request, p *peer) bool {
	switch {
	case m.Method == "initialize":
		id := rand.Text()
		l.b.mu.Lock()
		l.b.sessions[id] = &peer{name: m.Params.ClientInfo.Name, tasks: map[string]*task{}}
		l.b.mu.Unlock()
		text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"%s","capabilities":{"tools":{"listChanged":true}},"serverInfo":%s}}`, m.ID, mcp.V2511, server)
		return l.write(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", id, len(text), text))
	case p == nil:
		return l.plain(400, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"Bad Request: Server not initialized"}}`)
	case m.Method == "notifications/cancelled":
		p.mu.Lock()
		t := p.tasks[string(m.Params.RequestID)]
		p.mu.Unlock()
		if t != nil {
			t.cancel()
		}
		return l.plain(202, "")
	case m.ID == nil:
		return l.plain(202, "")
	case m.Method == "ping":
		return l.result(m, `{}`)
	case m.Method == "tools/list":
		return l.result(m, `{`+toolList+`}`)
	case m.Method == "tools/call":
		return l.call(m, p)
	}
	return l.result(m, `{}`)
}

// call runs the tool.
func (l *link) call(m *request, p *peer) bool {
	t := &task{work: m.Params.Arguments, id: m.ID, seen: time.Now(), cancelled: make(chan struct{})}
	t.token = m.Params.Meta["progressToken"]
	l.b.calls.Add(1)
	if p != nil {
		t.client = p.name
		p.mu.Lock()
		p.tasks[string(t.id)] = t
		p.mu.Unlock()
		defer func() {
			p.mu.Lock()
			delete(p.tasks, string(t.id))
			p.mu.Unlock()
		}()
	} else if t.Hang || t.Ms > 0 {
		l.watch(t.cancel) // to close the response is to cancel the call (2026-07-28)
	}
	if l.b.arrived != nil {
		l.b.arrived(t)
	}
	ok, err := l.perform(t, p == nil)
	if l.b.left != nil {
		l.b.left(t, err)
	}
	return ok
}

// perform does what the arguments say. The error says why there is no answer.
func (l *link) perform(t *task, modern bool) (bool, error) {
	streamed := t.Steps > 0 && t.token != nil
	if streamed {
		if !l.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n") {
			return false, io.ErrClosedPipe
		}
		for i := range t.Steps {
			text, _ := json.Marshal(t.Text) // text always marshals
			note := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":%s}}`, t.token, i+1, text)
			if !l.write(string(chunk([]byte("data: " + note + "\n\n")))) {
				return false, io.ErrClosedPipe
			}
		}
	}
	var done <-chan time.Time
	if !t.Hang {
		if t.Ms == 0 {
			return l.answer(t, streamed, modern), nil
		}
		timer := time.NewTimer(time.Duration(t.Ms) * time.Millisecond)
		defer timer.Stop()
		done = timer.C
	}
	select {
	case <-done:
		return l.answer(t, streamed, modern), nil
	case <-l.b.end:
		return false, net.ErrClosed
	case <-t.cancelled:
		// The one who called waits no longer, and a client of the modern era has
		// closed the connection.
		return false, errCancelled
	}
}

func (l *link) answer(t *task, streamed, modern bool) bool {
	text, _ := json.Marshal(t.Text + strings.Repeat(".", max(t.Size-len(t.Text), 0)))
	extra := ""
	if modern {
		extra = complete
	}
	message := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{%s"content":[{"type":"text","text":%s}],"isError":false}}`, t.id, extra, text)
	if streamed {
		return l.write(string(chunk([]byte("data: "+message+"\n\n"))) + "0\r\n\r\n")
	}
	return l.plain(200, message)
}

func (l *link) result(m *request, result string) bool {
	return l.plain(200, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+result+`}`)
}

// plain answers with JSON, or with nothing.
func (l *link) plain(status int, body string) bool {
	kind := ""
	if body != "" {
		kind = "Content-Type: application/json\r\n"
	}
	closes := l.b.closes.Load()
	if closes {
		kind += "Connection: close\r\n"
	}
	return l.write("HTTP/1.1 "+strconv.Itoa(status)+" Storm\r\n"+kind+"Content-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body) && !closes
}

func (l *link) write(text string) bool {
	_, err := io.WriteString(l.conn, text)
	return err == nil
}

// feed is a stream that belongs to no call: the GET of a legacy session, or
// subscriptions/listen. It is used by one goroutine, which is the hook's.
type feed struct {
	Client string // who a legacy session belongs to

	l    *link
	id   string // JSON text: the request that a modern stream answers; "" for a legacy one
	Gone chan struct{}
}

// stream runs the hook on a stream, and ends the connection after it.
func (l *link) stream(f *feed, id string) bool {
	f.l, f.id, f.Gone = l, id, make(chan struct{})
	if !l.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n") {
		return false
	}
	l.watch(func() { close(f.Gone) })
	if id != "" && !f.notify("subscriptions/acknowledged", `"notifications":{"toolsListChanged":true}`) {
		return false
	}
	l.b.streams.Add(1)
	defer l.b.streams.Add(-1)
	l.b.feed(f)
	return false
}

// notify puts a notification on the stream; params is the inside of an object.
// False when the stream has broken.
func (f *feed) notify(method, params string) bool {
	if f.id != "" {
		meta := `"_meta":{"` + mcp.MetaSubscription + `":` + f.id + `}`
		if params != "" {
			meta += ","
		}
		params = meta + params
	}
	text := `data: {"jsonrpc":"2.0","method":"notifications/` + method + `","params":{` + params + "}}\n\n"
	return f.l.write(string(chunk([]byte(text))))
}
