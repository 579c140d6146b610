package edgetest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

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
			c.w.Header().Set("Mcp-Session-Id", s.begin(string(c.Message.Params)).ID)
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
		one := s.begin("")
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
