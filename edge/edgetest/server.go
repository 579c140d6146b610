package edgetest

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Era is what a fake server speaks.
type Era int

// The eras: streamable HTTP with sessions (up to 2025-11-25), streamable HTTP
// without (2026-07-28), and HTTP with SSE (2024-11-05).
const (
	Legacy Era = iota
	Modern
	SSE
)

func (e Era) String() string { return [...]string{"legacy", "modern", "sse"}[e] }

// Lost is how a legacy server answers for a session that it no longer has.
type Lost int

// What servers do. The specification asks for 404; the first TypeScript SDK
// answers 400; the Go SDK answers 404 with plain text; some put the request's
// id into the error, some null.
const (
	LostNotFound Lost = iota
	LostBadRequest
	LostText
	LostEcho
)

// Server is a fake MCP server. What it is to be is set through the options of
// NewServer; what it does is changed by scripts at any time.
type Server struct {
	URL          string // of the endpoint, or of the stream for SSE
	Era          Era
	Capabilities string // JSON text of what it offers
	Instructions string // "" for none
	Tools        string // JSON text of the tools of tools/list
	Lost         Lost
	Sessionless  bool   // a legacy server that hands out no session ids
	Endpoint     string // where an SSE server has messages posted, up to the session id; HOST stands for its address
	KeepAlive    string // the Keep-Alive header of every answer; "" for none
	Address      string // host:port to listen on; "" lets the system choose

	t       testing.TB
	http    *httptest.Server
	closing chan struct{}
	close   sync.Once
	scripts sync.WaitGroup // of SSE, which outlive their POST

	mu       sync.Mutex
	changed  chan struct{} // closed with every change, and replaced
	conns    int
	requests []*Request
	once     map[string][]Script
	always   map[string]Script
	sessions map[string]*ServerSession
	order    []*ServerSession
}

// Script answers one request. One that writes nothing answers 202.
type Script func(*Call)

// Request is an HTTP request that a server got.
type Request struct {
	// Kind is the JSON-RPC method; "response" for an answer to a question of
	// the server; the HTTP method for what is no POST.
	Kind    string
	Path    string // with its query
	Header  http.Header
	Body    []byte
	Message Message
	Session string // the session that it named
	Conn    int    // which connection it came on, counted from 1
}

// ServerSession is a session of a legacy client with a server.
type ServerSession struct {
	ID     string
	Params string // of its initialize; "" over HTTP with SSE

	server  *Server
	over    bool          // ended by a DELETE, by the end of its stream, or by Drop
	out     chan string   // events for its own stream
	cut     chan struct{} // closed to end its own stream
	streams int
	asked   map[string]chan Message // questions that wait, by id
}

// NewServer starts a fake server, which ends with the test.
func NewServer(t testing.TB, era Era, options ...func(*Server)) *Server {
	t.Helper()
	s := &Server{
		Era:          era,
		Capabilities: `{"completions":{},"logging":{},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}`,
		Tools:        `[{"name":"echo","inputSchema":{"type":"object"}}]`,
		Endpoint:     "/messages?sessionId=",
		t:            t,
		closing:      make(chan struct{}),
		changed:      make(chan struct{}),
		once:         map[string][]Script{},
		always:       map[string]Script{},
		sessions:     map[string]*ServerSession{},
	}
	for _, o := range options {
		o(s)
	}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.handle))
	if s.Address != "" {
		if release, ok := holds.LoadAndDelete(s.Address); ok {
			release.(func())()
		}
		var ln net.Listener
		Until(t, "the address of the fake server to come free", func() (free bool) { // another test may have been given its port
			var err error
			ln, err = net.Listen("tcp", s.Address)
			return err == nil
		})
		s.http.Listener.Close()
		s.http.Listener = ln
	}
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.http.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.conns++
		return context.WithValue(ctx, connKey{}, s.conns)
	}
	s.http.Start()
	s.URL = s.http.URL + "/mcp"
	if era == SSE {
		s.URL = s.http.URL + "/sse"
	}
	t.Cleanup(s.end)
	return s
}

// holds keeps the ports of servers that were closed: address -> func().
var holds sync.Map

type connKey struct{}

// Close ends the server, the connections in use included. Until the test ends
// connections to its address are refused: a port that the system chose is given
// to no server of another test, only to one with that Address.
func (s *Server) Close() {
	s.end()
	if s.Address != "" {
		return // nobody else has it
	}
	address := s.http.Listener.Addr().(*net.TCPAddr)
	release, ok := hold(address)
	if !ok {
		return
	}
	release = sync.OnceFunc(release)
	holds.Store(address.String(), release)
	s.t.Cleanup(release)
}

func (s *Server) end() {
	s.close.Do(func() {
		close(s.closing)
		s.http.CloseClientConnections()
		s.http.Close()
		s.scripts.Wait()
	})
}

// Addr returns host:port of the server.
func (s *Server) Addr() string { return s.http.Listener.Addr().String() }

// Always has a script answer every request of a kind. "*" stands for all kinds
// and comes before everything else, the server's own checks included; the
// scripts of initialize and server/discover come before the checks too.
func (s *Server) Always(kind string, f Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always[kind] = f // nil takes the script away again
}

// Once has a script answer the next request of a kind, before what Always set.
// Several wait in turn.
func (s *Server) Once(kind string, f Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.once[kind] = append(s.once[kind], f)
}

// script takes the script for a kind; nil when there is none.
func (s *Server) script(kind string) Script {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.once[kind]; len(q) > 0 {
		s.once[kind] = q[1:]
		return q[0]
	}
	return s.always[kind]
}

// change tells those who wait; s.mu is held.
func (s *Server) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Requests returns what has come in of a kind; all of it for "".
func (s *Server) Requests(kind string) []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Request
	for _, r := range s.requests {
		if kind == "" || r.Kind == kind {
			out = append(out, r)
		}
	}
	return out
}

// Count returns how many requests of a kind have come in; all of them for "".
func (s *Server) Count(kind string) int { return len(s.Requests(kind)) }

// Connections returns how many connections have been opened.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// Forget drops the record of what has come in, and counts connections anew.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.conns = nil, 0
}

// Until waits until done holds, asking again with every request that comes in
// and every session that begins or ends.
func (s *Server) Until(what string, done func() bool) {
	s.t.Helper()
	deadline := time.After(Patience)
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if done() {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			s.t.Fatalf("%s: not within %s; the server got %s", what, Patience, s.kinds())
		}
	}
}

// Await waits for the n-th request of a kind, counted from 1, and returns it.
func (s *Server) Await(kind string, n int) *Request {
	s.t.Helper()
	s.Until(fmt.Sprintf("request %d of %s", n, kind), func() bool { return s.Count(kind) >= n })
	return s.Requests(kind)[n-1]
}

func (s *Server) kinds() string {
	var out []string
	for _, r := range s.Requests("") {
		out = append(out, r.Kind)
	}
	return strings.Join(out, ", ")
}

// CloseIdle closes the connections that carry no request.
func (s *Server) CloseIdle() {
	s.http.Config.SetKeepAlivesEnabled(false)
	s.http.Config.SetKeepAlivesEnabled(true)
}

// Sessions returns every session that was ever begun, in order.
func (s *Server) Sessions() []*ServerSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order)
}

// Live returns how many sessions are known.
func (s *Server) Live() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, one := range s.sessions {
		if !one.over {
			n++
		}
	}
	return n
}

// Session returns a session by its id.
func (s *Server) Session(id string) *ServerSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

// Drop forgets all sessions, as a restart does. Streams of theirs end.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, one := range s.sessions {
		one.end()
		delete(s.sessions, id)
	}
	s.change()
}

// end ends a session; the server's mu is held.
func (one *ServerSession) end() {
	if !one.over {
		one.over = true
		close(one.cut)
	}
}

// Push puts an event on the session's own stream. It waits for the stream to
// be opened.
func (one *ServerSession) Push(data string) {
	s := one.server
	s.t.Helper()
	s.Until("a stream of session "+one.ID, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return one.streams > 0
	})
	select {
	case one.out <- data:
	case <-time.After(Patience):
		s.t.Fatal("the stream takes no event")
	}
}

// Ended reports whether the session is over: by a DELETE, by the end of its
// stream, or by Drop.
func (one *ServerSession) Ended() bool {
	one.server.mu.Lock()
	defer one.server.mu.Unlock()
	return one.over
}

// Listening reports whether the session's own stream is open.
func (one *ServerSession) Listening() bool {
	one.server.mu.Lock()
	defer one.server.mu.Unlock()
	return one.streams > 0
}

// begin makes a session.
func (s *Server) begin(params string) *ServerSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &ServerSession{
		ID:     fmt.Sprintf("session-%d", len(s.order)+1),
		Params: params,
		server: s,
		out:    make(chan string),
		cut:    make(chan struct{}),
		asked:  map[string]chan Message{},
	}
	s.sessions[one.ID] = one
	s.order = append(s.order, one)
	s.change()
	return one
}
