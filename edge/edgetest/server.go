package edgetest

import (
	"context"
	"encoding/base64"
	"encoding/json"
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
	ID string

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
		ln, err := net.Listen("tcp", s.Address)
		if err != nil {
			t.Fatalf("fake server: %v", err)
		}
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
	t.Cleanup(s.Close)
	return s
}

type connKey struct{}

// Close ends the server, the connections in use included.
func (s *Server) Close() {
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

// Forget drops the record of what has come in.
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
func (s *Server) begin() *ServerSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &ServerSession{
		ID:     fmt.Sprintf("session-%d", len(s.order)+1),
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

// handle takes every HTTP request.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client left in the middle of its request
	}
	q := &Request{
		Kind: r.Method, Path: r.URL.RequestURI(), Header: r.Header.Clone(), Body: body,
		Session: r.Header.Get("Mcp-Session-Id"),
	}
	q.Conn, _ = r.Context().Value(connKey{}).(int)
	if s.Era == SSE {
		q.Session = r.URL.Query().Get("sessionId")
	}
	if r.Method == "POST" {
		q.Message, err = parse(body)
		switch {
		case err != nil:
			q.Kind = "malformed"
		case q.Message.Method != "":
			q.Kind = q.Message.Method
		default:
			q.Kind = "response"
		}
	}
	c := &Call{Request: q, server: s, w: w, r: r, gone: r.Context().Done()}
	if s.KeepAlive != "" {
		w.Header().Set("Keep-Alive", s.KeepAlive)
	}
	s.mu.Lock()
	s.requests = append(s.requests, q)
	s.change()
	s.mu.Unlock()
	if f := s.script("*"); f != nil {
		f(c)
		return
	}
	switch s.Era {
	case Legacy:
		s.legacy(c)
	case Modern:
		s.modern(c)
	case SSE:
		s.sse(c)
	}
}

// modern answers as a server of 2026-07-28 that checks everything it must.
func (s *Server) modern(c *Call) {
	m := c.Message
	if c.Kind == "initialize" || c.Kind == "server/discover" {
		if f := s.script(c.Kind); f != nil {
			f(c)
			return
		}
	}
	var p struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	_ = json.Unmarshal(m.Params, &p) // what is missing is found below
	h := c.Request.Header
	name, named := target(m.Method, string(m.Params))
	switch {
	case c.r.Method != "POST":
		c.Text(405, "text/plain", "Method Not Allowed")
	case c.Kind == "malformed":
		c.JSON(400, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"}}`)
	case c.Kind == "initialize":
		c.fault(400, -32022, "Unsupported protocol version", `{"supported":["`+ModernVersion+`"],"requested":"legacy"}`)
	case h.Get("MCP-Protocol-Version") != ModernVersion:
		c.fault(400, -32020, "MCP-Protocol-Version does not match", "")
	case m.ID != nil && string(p.Meta[metaVersion]) != `"`+ModernVersion+`"`:
		c.fault(400, -32602, "_meta lacks the protocol version", "")
	case m.ID != nil && len(p.Meta[metaCaps]) == 0:
		c.fault(400, -32602, "_meta lacks the client's capabilities", "")
	case m.ID != nil && h.Get("Mcp-Method") != m.Method:
		c.fault(400, -32020, "Mcp-Method does not match", "")
	case named && decodeHeader(h.Get("Mcp-Name")) != name:
		c.fault(400, -32020, "Mcp-Name does not match", "")
	default:
		s.answer(c)
	}
}

// decodeHeader reads a value that may be in base64.
func decodeHeader(v string) string {
	text, ok := strings.CutPrefix(v, "=?base64?")
	if !ok {
		return v
	}
	plain, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(text, "?="))
	if err != nil {
		return ""
	}
	return string(plain)
}

// legacy answers as a server with sessions.
func (s *Server) legacy(c *Call) {
	if c.Kind == "initialize" || c.Kind == "server/discover" {
		s.answer(c)
		return
	}
	if !s.Sessionless {
		if c.Request.Session == "" {
			c.JSON(400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}`)
			return
		}
		if one := s.Session(c.Request.Session); one == nil {
			s.refuse(c)
			return
		}
	}
	s.answer(c)
}

// refuse answers for a session that is not there.
func (s *Server) refuse(c *Call) {
	switch s.Lost {
	case LostBadRequest:
		c.JSON(400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)
	case LostText:
		c.Text(404, "text/plain; charset=utf-8", "session not found\n")
	case LostEcho:
		c.fault(404, -32001, "Session not found", "")
	default:
		c.JSON(404, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`)
	}
}

// answer does what the script for the request says, or what a small server
// with a tool that echoes would.
func (s *Server) answer(c *Call) {
	if f := s.script(c.Kind); f != nil {
		f(c)
		return
	}
	m := c.Message
	complete, cached := "", ""
	if s.Era == Modern {
		complete = `"resultType":"complete",`
		cached = complete + `"ttlMs":0,"cacheScope":"private",`
	}
	switch c.Kind {
	case "GET":
		c.hear(s.Session(c.Request.Session))
	case "DELETE":
		s.mu.Lock()
		if one := s.sessions[c.Request.Session]; one != nil {
			one.end()
			delete(s.sessions, one.ID)
		}
		s.change()
		s.mu.Unlock()
		c.Text(200, "", "")
	case "response":
		s.mu.Lock()
		var ch chan Message
		if one := s.sessions[c.Request.Session]; one != nil {
			ch = one.asked[string(m.ID)]
			delete(one.asked, string(m.ID))
		}
		s.mu.Unlock()
		if ch != nil {
			ch <- m
		}
		c.Accept()
	case "initialize":
		if s.Era == Legacy && !s.Sessionless {
			c.w.Header().Set("Mcp-Session-Id", s.begin().ID)
		}
		c.Result(s.initialized(m))
	case "server/discover":
		if s.Era != Modern {
			c.JSON(400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}`)
			return
		}
		c.Result(`{` + cached + `"supportedVersions":["` + ModernVersion + `"],"capabilities":` + s.Capabilities +
			s.instructions() + `,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}}`)
	case "tools/list":
		c.Result(`{` + cached + `"tools":` + s.Tools + `}`)
	case "tools/call":
		var p struct{ Arguments json.RawMessage }
		_ = json.Unmarshal(m.Params, &p)
		text, _ := json.Marshal(string(p.Arguments))
		c.Result(`{` + complete + `"content":[{"type":"text","text":` + string(text) + `}]}`)
	case "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe":
		if s.Era == Modern {
			c.fault(404, -32601, "Method not found", "")
			return
		}
		c.Result(`{}`)
	default:
		switch {
		case m.ID == nil:
			c.Accept()
		case s.Era == Modern:
			c.fault(404, -32601, "Method not found", "")
		default:
			c.fault(200, -32601, "Method not found", "")
		}
	}
}

func (s *Server) instructions() string {
	if s.Instructions == "" {
		return ""
	}
	text, _ := json.Marshal(s.Instructions)
	return `,"instructions":` + string(text)
}

// initialized is the result of initialize, in the revision that was asked for.
func (s *Server) initialized(m Message) string {
	var p struct{ ProtocolVersion string }
	_ = json.Unmarshal(m.Params, &p)
	return fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"serverInfo":{"name":"fake","version":"1"}%s}`,
		p.ProtocolVersion, s.Capabilities, s.instructions())
}

// sse answers as a server of the older transport.
func (s *Server) sse(c *Call) {
	switch {
	case c.r.Method == "GET" && c.r.URL.Path == "/sse":
		if f := s.script("GET"); f != nil {
			f(c)
			return
		}
		one := s.begin()
		c.Raw("event: endpoint\ndata: " + strings.ReplaceAll(s.Endpoint, "HOST", s.Addr()) + one.ID + "\n\n")
		c.hear(one)
		s.mu.Lock()
		one.end()
		delete(s.sessions, one.ID)
		s.change()
		s.mu.Unlock()
		return
	case c.r.Method != "POST" || c.r.URL.Path != "/messages":
		c.Text(404, "text/html", "<!DOCTYPE html><html><body><pre>Cannot "+c.r.Method+" "+c.r.URL.Path+"</pre></body></html>")
		return
	}
	one := s.Session(c.Request.Session)
	if one == nil {
		s.refuse(c)
		return
	}
	c.session = one
	c.gone = one.cut
	c.Accept()
	if c.Kind == "response" || c.Message.ID == nil {
		s.answer(c)
		return
	}
	s.scripts.Go(func() {
		defer func() { _ = recover() }() // Abort, and what fails in a script, has been told
		s.answer(c)
	})
}
