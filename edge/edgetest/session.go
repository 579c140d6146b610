package edgetest

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Session is a legacy client in a session with the edge.
type Session struct {
	*Client
	ID      string
	Version string // that the edge agreed to
	Result  string // of initialize
}

// Initialize begins a legacy session and says notifications/initialized.
// capabilities is JSON text of what the client can do; "" for nothing.
func (c *Client) Initialize(capabilities string) *Session {
	c.t.Helper()
	return c.InitializeAs(LegacyVersion, capabilities)
}

// InitializeAs is Initialize in a revision.
func (c *Client) InitializeAs(version, capabilities string) *Session {
	c.t.Helper()
	s, err := c.TryInitialize(version, capabilities)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// TryInitialize is InitializeAs for any goroutine.
func (c *Client) TryInitialize(version, capabilities string) (*Session, error) {
	r, err := c.Try("POST", "/mcp", initialize(version, capabilities))
	if err != nil {
		return nil, err
	}
	text, err := r.TryAnswer()
	if err != nil {
		return nil, err
	}
	m, err := parse(text)
	if err != nil || m.Error != nil || r.Header.Get("Mcp-Session-Id") == "" {
		return nil, fmt.Errorf("initialize: status %d: %s", r.Status, text)
	}
	s := &Session{Client: c, ID: r.Header.Get("Mcp-Session-Id"), Result: string(m.Result)}
	if err := json.Unmarshal([]byte(Member(s.Result, "protocolVersion")), &s.Version); err != nil {
		return nil, fmt.Errorf("initialize: %w: %s", err, text)
	}
	r, err = s.Try("POST", "/mcp", request("", "notifications/initialized", ""), s.head()...)
	if err == nil && r.Status != 202 {
		err = fmt.Errorf("notifications/initialized: status %d", r.Status)
	}
	return s, err
}

// initialize is the text of the request, with the id 0.
func initialize(version, capabilities string) string {
	if capabilities == "" {
		capabilities = "{}"
	}
	return request("0", "initialize", fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"edgetest","version":"1"}}`, version, capabilities))
}

// head is the header lines of a request in the session.
func (s *Session) head(more ...string) []string {
	out := []string{"Mcp-Session-Id", s.ID}
	if s.Version != "2025-03-26" && s.Version != "2024-11-05" {
		out = append(out, "MCP-Protocol-Version", s.Version)
	}
	return append(out, more...)
}

// Send sends a body in the session.
func (s *Session) Send(body string, header ...string) *Response {
	s.t.Helper()
	return s.Post(body, s.head(header...)...)
}

// TrySend is Send for any goroutine.
func (s *Session) TrySend(body string, header ...string) (*Response, error) {
	return s.Try("POST", "/mcp", body, s.head(header...)...)
}

// Request sends a request. id and params are JSON text; no params for "".
func (s *Session) Request(id, method, params string) *Response {
	s.t.Helper()
	return s.Send(request(id, method, params))
}

// Call calls a tool. arguments is JSON text.
func (s *Session) Call(id, tool, arguments string) *Response {
	s.t.Helper()
	return s.Request(id, "tools/call", CallParams(tool, arguments))
}

// CallParams is the params of tools/call.
func CallParams(tool, arguments string) string {
	return fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments)
}

// Notify sends a notification, which must be accepted.
func (s *Session) Notify(method, params string) {
	s.t.Helper()
	if r := s.Send(request("", method, params)); r.Status != 202 || len(r.Body) > 0 {
		s.t.Fatalf("%s: status %d: %s", method, r.Status, r.Body)
	}
}

// Reply answers a question of the server; id and result are JSON text.
func (s *Session) Reply(id []byte, result string) {
	s.t.Helper()
	s.replied(s.TrySend(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + `}`))
}

// ReplyError answers a question with an error object, which is JSON text.
func (s *Session) ReplyError(id []byte, object string) {
	s.t.Helper()
	s.replied(s.TrySend(`{"jsonrpc":"2.0","id":` + string(id) + `,"error":` + object + `}`))
}

func (s *Session) replied(r *Response, err error) {
	s.t.Helper()
	if err != nil || r.Status != 202 {
		s.t.Fatalf("an answer was not accepted: %v, %+v", err, r)
	}
}

// Listen opens the session's own stream.
func (s *Session) Listen() *Response {
	s.t.Helper()
	r := s.TryListen()
	if r.Status != 200 || !r.stream {
		s.t.Fatalf("GET: status %d: %s", r.Status, r.Body)
	}
	return r
}

// TryListen is Listen that may be refused.
func (s *Session) TryListen() *Response {
	s.t.Helper()
	return s.Do("GET", "/mcp", "", s.head("Accept", "text/event-stream")...)
}

// Delete ends the session.
func (s *Session) Delete() *Response {
	s.t.Helper()
	return s.Do("DELETE", "/mcp", "", s.head()...)
}

// ModernRequest returns the body and the header lines of a request of
// 2026-07-28. params is JSON text without _meta; meta is what Meta returns.
func ModernRequest(id, method, params, meta string) (body string, header []string) {
	header = []string{"MCP-Protocol-Version", ModernVersion, "Mcp-Method", method}
	if name, ok := target(method, params); ok {
		header = append(header, "Mcp-Name", name)
	}
	return request(id, method, withMeta(params, meta)), header
}

// Modern sends a request of 2026-07-28; more is further members of _meta.
func (c *Client) Modern(id, method, params string, more ...string) *Response {
	c.t.Helper()
	body, header := ModernRequest(id, method, params, Meta(more...))
	return c.Post(body, header...)
}

// TryModern is Modern for any goroutine.
func (c *Client) TryModern(id, method, params string, more ...string) (*Response, error) {
	body, header := ModernRequest(id, method, params, Meta(more...))
	return c.Try("POST", "/mcp", body, header...)
}

// OldSession is a client of the older transport, HTTP with SSE.
type OldSession struct {
	*Client
	Stream *Response
	Path   string // that it posts to
	Result string // of initialize

}

// OpenSSE opens the stream of the older transport and reads where to post.
func (c *Client) OpenSSE() *OldSession {
	c.t.Helper()
	r := c.Do("GET", "/sse", "", "Accept", "text/event-stream")
	if r.Status != 200 {
		c.t.Fatalf("GET /sse: status %d: %s", r.Status, r.Body)
	}
	e := r.Next()
	if e.Type != "endpoint" {
		c.t.Fatalf("the first event is %q in place of endpoint", e.Type)
	}
	return &OldSession{Client: c, Stream: r, Path: strings.TrimPrefix(string(e.Data), c.Base)}
}

// Initialize begins the session.
func (s *OldSession) Initialize(capabilities string) {
	s.t.Helper()
	s.Accepted(initialize("2024-11-05", capabilities))
	m := s.Stream.NextMessage()
	if m.Error != nil || string(m.ID) != "0" {
		s.t.Fatalf("initialize: %+v", m)
	}
	s.Result = string(m.Result)
	s.Accepted(request("", "notifications/initialized", ""))
}

// Accepted posts a message, which must be answered by 202.
func (s *OldSession) Accepted(body string) {
	s.t.Helper()
	if r := s.Do("POST", s.Path, body); r.Status != 202 {
		s.t.Fatalf("POST %s: status %d: %s", s.Path, r.Status, r.Body)
	}
}

// Request posts a request; what comes of it comes on the stream.
func (s *OldSession) Request(id, method, params string) {
	s.t.Helper()
	s.Accepted(request(id, method, params))
}

// Ended waits for the end of the stream.
func (s *OldSession) Ended() error {
	for {
		if _, err := s.Stream.TryNext(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}
