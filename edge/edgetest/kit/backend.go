package kit

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// Backend is a fake MCP server in this process. It is strict about what each
// revision asks of a client, so that an edge that forgets a header or mangles an
// id is found out, and counts everything that reaches it. Its tools do what their
// arguments say: see Work.
type Backend struct {
	Era  Era
	Addr string // host:port, the first that it listens on

	// What it is to be. All of it is set before anything connects.
	SSE          bool          // requests are answered with a stream of one event
	Silent       bool          // a GET is answered with a stream that says nothing, and not with 405
	Single       bool          // a session has one stream at a time; another is answered with 409
	Slow         time.Duration // how long the tool slow takes
	Fill         int           // the message that answers a call is filled up to so many bytes
	Capabilities string        // JSON text
	Lives        time.Duration // how long what a modern backend lists may be kept

	// What its user wants to know or to do.
	Admit   func(*Asked) (status int)          // judges a request first: an HTTP status other than 0 is its answer; it is called from several goroutines
	Arrived func(*Task)                        // a call has arrived
	Left    func(*Task, error)                 // a call has ended; nil when it was answered, ErrCancelled when it was cancelled
	Do      func(*Task) (text string, ok bool) // does a call in place of what the arguments say; false for one without an answer
	Heard   func(session string, m *Message)   // any other message of a legacy session, before it is answered
	Feed    func(*Feed)                        // fills a stream that belongs to no call; nil for a backend without such streams
	Feeds   string                             // legacy clients whose names begin so get such streams
	Mood    atomic.Int32                       // what is wrong with it; may change at any time
	Closing atomic.Bool                        // every answer is the last on its connection, and says so

	accepted, controls, streams atomic.Int64

	names map[string]bool // of its tools
	tools string          // the member of a list, JSON text
	work  sync.WaitGroup
	end   chan struct{} // closed with the backend; ends calls that nobody cancels

	mu        sync.Mutex
	listeners []net.Listener
	conns     map[net.Conn]struct{}
	sessions  map[string]*peer
	methods   map[string]int64
	refused   map[string]int64
	over      bool
}

// Asked is a request as Admit is shown it. It is valid until that returns.
type Asked struct {
	Method     string   // of the message; GET and DELETE by their own name
	Credential []byte   // value of Authorization; all of them, one behind the other, where there are several
	Lines      []byte   // all header lines, each with its end
	Message    *Message // nil for a request without one
}

// peer is a session of a legacy client.
type peer struct {
	id, name string // name is what the client said in initialize

	mu    sync.Mutex
	tasks map[string]*Task // under way, by the id of their request

	streams atomic.Int64 // open now
}

// maxSessions bounds the sessions that a backend keeps.
const maxSessions = 1 << 18

// NewBackend returns a backend with tools of these names, or with work alone.
// Listen has it serve.
func NewBackend(e Era, tools ...string) *Backend {
	if len(tools) == 0 {
		tools = []string{"work"}
	}
	b := &Backend{
		Era: e, Capabilities: `{"tools":{"listChanged":true}}`, end: make(chan struct{}), names: map[string]bool{},
		conns: map[net.Conn]struct{}{}, sessions: map[string]*peer{}, methods: map[string]int64{}, refused: map[string]int64{},
	}
	var list bytes.Buffer
	for i, name := range tools {
		if i > 0 {
			list.WriteByte(',')
		}
		b.names[name] = true
		fmt.Fprintf(&list, `{"name":%q,"description":"Answers with the text that it was given.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}`, name)
	}
	b.tools = `"tools":[` + list.String() + `]`
	return b
}

// List has the backend list other tools from now on: JSON text of an array, of whose names calls
// are refused unless NewBackend was given them. It may be called at any time.
func (b *Backend) List(tools string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tools = `"tools":` + tools
}

// listed is the member of a list, JSON text.
func (b *Backend) listed() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tools
}

// Listen serves at one more address, until the backend is closed.
func (b *Backend) Listen(addr string) (at string, err error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("backend: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Addr == "" {
		b.Addr = ln.Addr().String()
	}
	b.listeners = append(b.listeners, ln)
	b.work.Go(func() { b.accept(ln) })
	return ln.Addr().String(), nil
}

// accept ends with the listener.
func (b *Backend) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		over := b.over || len(b.listeners) == 0
		if !over {
			b.conns[c] = struct{}{}
		}
		b.mu.Unlock()
		if over {
			c.Close()
			return
		}
		b.accepted.Add(1)
		b.work.Go(func() { b.serve(c) })
	}
}

// Close ends the backend and waits for what it does.
func (b *Backend) Close() {
	b.mu.Lock()
	if !b.over {
		close(b.end)
	}
	b.over = true
	b.mu.Unlock()
	b.Down()
	b.work.Wait()
}

// Down closes the listeners and cuts every connection, as when the process has
// died. What it knows of sessions stays.
func (b *Backend) Down() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ln := range b.listeners {
		ln.Close()
	}
	b.listeners = nil
	for c := range b.conns {
		c.Close()
	}
}

// Up listens again after Down, at its first address.
func (b *Backend) Up() error {
	_, err := b.Listen(b.Addr)
	return err
}

// Forget ends every session, and tells nobody.
func (b *Backend) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.sessions)
}

// What is wrong with a backend that listens.
const (
	Well   = iota
	Stuck  // every request lasts half a minute longer
	Resets // every request ends with a reset of its connection
)

// stuckFor is how much longer requests last at a backend that is stuck.
const stuckFor = 30 * time.Second

// suffer does to a request what the mood of the backend wants; false ends the
// connection.
func (l *link) suffer() bool {
	switch l.b.Mood.Load() {
	case Resets:
		reset(l.conn)
		return false
	case Stuck:
		gone := make(chan struct{})
		l.watch(func() { close(gone) })
		timer := time.NewTimer(stuckFor)
		defer timer.Stop()
		select {
		case <-timer.C: // whoever has waited so long may ask again
		case <-gone:
		}
		return false
	}
	return true
}

// reset closes a connection so that the peer sees it at once, whatever is unread
// or unsent.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
}

// link is one connection of the edge to the backend.
type link struct {
	b     *Backend
	conn  net.Conn
	br    *bufio.Reader
	q     inbound       // the request that is being answered
	next  chan struct{} // closed when the goroutine that waits for more has ended; nil for none
	first bool          // nothing has been asked yet
}

// serve answers the requests of one connection until it ends.
func (b *Backend) serve(c net.Conn) {
	defer func() {
		c.Close()
		b.mu.Lock()
		delete(b.conns, c)
		b.mu.Unlock()
	}()
	l := &link{b: b, conn: c, br: bufio.NewReaderSize(c, 4<<10), first: true}
	l.q.keep = b.Admit != nil
	for l.q.read(l.br) == nil && l.request() {
		if l.next != nil {
			<-l.next
			l.next = nil
		}
		l.first = false
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

// begin makes a session, unless there are too many.
func (b *Backend) begin(name string) (id string, ok bool) {
	id = rand.Text()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.sessions) >= maxSessions {
		return "", false
	}
	b.sessions[id] = &peer{id: id, name: name, tasks: map[string]*Task{}}
	return id, true
}

// Work is the arguments of the tools.
type Work struct {
	Text  string `json:"text"`            // answered as it is
	Ms    int    `json:"ms,omitempty"`    // how long it takes, milliseconds
	Steps int    `json:"steps,omitempty"` // progress notifications before the answer
	Size  int    `json:"size,omitempty"`  // the text of the answer is filled up to so many bytes
	Hang  bool   `json:"hang,omitempty"`  // it lasts until it is cancelled
	How   string `json:"how,omitempty"`   // for what does it in place of the backend
}

// Task is one call of a tool.
type Task struct {
	Work
	Client    string        // who a legacy session belongs to
	Session   string        // the legacy session; empty for none
	Token     []byte        // JSON text; nil when no progress is wanted
	Cancelled chan struct{} // closed when nobody waits any longer; nil for a call that takes no time

	l        *link
	id       []byte
	once     sync.Once
	streamed bool
}

// How a call ends without an answer.
var (
	ErrCancelled = errors.New("cancelled")
	errUnsent    = errors.New("the connection broke")
)

// cancel ends the task: notifications/cancelled has come, or the connection has
// ended.
func (t *Task) cancel() { t.once.Do(func() { close(t.Cancelled) }) }

// Send puts a message, JSON text, on the stream of the call; false when it has
// broken.
func (t *Task) Send(message string) bool {
	if !t.streamed && !t.l.head() {
		return false
	}
	t.streamed = true
	return t.l.write(chunk("data: " + message + "\n\n"))
}

// call runs the tool.
func (l *link) call(m *Message, p *peer) bool {
	t := &Task{Work: m.Params.Arguments, l: l, id: m.ID, Token: m.Params.Meta.ProgressToken}
	if !l.b.names[m.Params.Name] {
		return l.answer(rpcError(m.ID, -32602, "Unknown tool", ""))
	}
	if m.Params.Name == "slow" {
		t.Ms = int(l.b.Slow.Milliseconds())
	}
	if p != nil {
		t.Client, t.Session = p.name, p.id
	}
	if t.Hang || t.Ms > 0 || l.b.Do != nil { // one that may be cancelled
		t.Cancelled = make(chan struct{})
		defer p.keep(t)()
		if p == nil || l.b.Do != nil {
			l.watch(t.cancel) // to close the response is to cancel the call (2026-07-28)
		}
	}
	if l.b.Arrived != nil {
		l.b.Arrived(t)
	}
	text, err := l.perform(t)
	ok := err == nil && l.finish(t, text, p == nil)
	if l.b.Left != nil {
		l.b.Left(t, err)
	}
	return ok
}

// keep remembers a task of the session while it is under way. There may be no
// session.
func (p *peer) keep(t *Task) (forget func()) {
	if p == nil {
		return func() {}
	}
	p.mu.Lock()
	p.tasks[string(t.id)] = t
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		delete(p.tasks, string(t.id))
		p.mu.Unlock()
	}
}

// perform does what the arguments say. The error says why there is no answer.
func (l *link) perform(t *Task) (text string, err error) {
	if l.b.Do != nil {
		text, ok := l.b.Do(t)
		if !ok {
			return "", ErrCancelled
		}
		return text, nil
	}
	for i := range t.Steps {
		if t.Token != nil && !t.Send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":%s}}`, t.Token, i+1, quoted(t.Text))) {
			return "", errUnsent
		}
	}
	var done <-chan time.Time
	if !t.Hang {
		if t.Ms == 0 {
			return t.Text, nil
		}
		timer := time.NewTimer(time.Duration(t.Ms) * time.Millisecond)
		defer timer.Stop()
		done = timer.C
	}
	select {
	case <-done:
		return t.Text, nil
	case <-l.b.end:
		return "", net.ErrClosed
	case <-t.Cancelled:
		// The one who called waits no longer, and a client of the modern era has
		// closed the connection.
		return "", ErrCancelled
	}
}

// finish answers a call with a text.
func (l *link) finish(t *Task, text string, modern bool) bool {
	extra := ""
	if modern {
		extra = complete
	}
	before := `{"jsonrpc":"2.0","id":` + string(t.id) + `,"result":{` + extra + `"content":[{"type":"text","text":`
	const after = `}],"isError":false}}`
	if n := t.Size - len(text); n > 0 {
		text += strings.Repeat(".", n)
	}
	said := quoted(text)
	if n := l.b.Fill - len(before) - len(said) - len(after) - 1; n >= 0 {
		said = said[:len(said)-1] + " " + strings.Repeat(".", n) + `"`
	}
	message := before + said + after
	if t.streamed {
		return l.write(chunk("data: "+message+"\n\n") + "0\r\n\r\n")
	}
	return l.answer(message)
}

// Feed is a stream that belongs to no call: the GET of a legacy session, or
// subscriptions/listen. It is used by one goroutine, which is the hook's.
type Feed struct {
	Client    string // who a legacy session belongs to
	Session   string // the legacy session; empty for none
	LastEvent string // from after which the client reads on; empty for none
	Gone      chan struct{}

	l  *link
	id string // JSON text: the request that a modern stream answers; "" for a legacy one
}

// stream runs the hook on a stream, and ends the connection after it.
func (l *link) stream(f *Feed) bool {
	f.l, f.Gone = l, make(chan struct{})
	if l.b.Silent {
		if !l.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nConnection: close\r\n\r\n: open\n\n") {
			return false
		}
	} else if !l.head() {
		return false
	}
	l.watch(func() { close(f.Gone) })
	if f.id != "" && !f.Notify("subscriptions/acknowledged", `"notifications":{"toolsListChanged":true}`) {
		return false
	}
	l.b.streams.Add(1)
	defer l.b.streams.Add(-1)
	if l.b.Silent {
		<-f.Gone
	} else {
		l.b.Feed(f)
	}
	return false
}

// Notify puts a notification on the stream; params is the inside of an object.
// False when the stream has broken.
func (f *Feed) Notify(method, params string) bool { return f.NotifyAs("", method, params) }

// NotifyAs is Notify for an event with an id.
func (f *Feed) NotifyAs(id, method, params string) bool {
	if f.id != "" {
		meta := `"_meta":{"` + mcp.MetaSubscription + `":` + f.id + `}`
		if params != "" {
			meta += ","
		}
		params = meta + params
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	return f.l.write(chunk(id + `data: {"jsonrpc":"2.0","method":"notifications/` + method + `","params":{` + params + "}}\n\n"))
}

// Every is a hook that tells a stream of a change of the tools again and again.
func Every(interval time.Duration) func(*Feed) {
	return func(f *Feed) {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-f.Gone:
				return
			case <-tick.C:
				if !f.Notify("tools/list_changed", "") {
					return
				}
			}
		}
	}
}

func (l *link) write(text string) bool {
	_, err := io.WriteString(l.conn, text)
	return err == nil
}
