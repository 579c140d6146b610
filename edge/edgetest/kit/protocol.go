package kit

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
)

// Message is as much of what a client says as a backend reads.
type Message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Result  json.RawMessage `json:"result"`
	Params  struct {
		ProtocolVersion string                `json:"protocolVersion"`
		ClientInfo      struct{ Name string } `json:"clientInfo"`
		Name            string                `json:"name"`
		Arguments       Work                  `json:"arguments"`
		RequestID       json.RawMessage       `json:"requestId"`
		Meta            struct {
			ProtocolVersion    string          `json:"io.modelcontextprotocol/protocolVersion"`
			ClientCapabilities json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
			ProgressToken      json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
}

const (
	complete = `"resultType":"complete",`
	server   = `{"name":"weir-tools","version":"1"}`
)

// request answers the request that has been read; false ends the connection.
func (l *link) request() bool {
	b := l.b
	if !l.suffer() {
		return false
	}
	switch {
	case l.q.path == "/counts":
		if l.first {
			b.controls.Add(1)
		}
		return l.plain(200, string(b.page()), "")
	case l.q.path != "/mcp":
		return l.plain(404, "", "")
	case l.q.method == "POST":
		return l.post()
	}
	b.count(b.methods, l.q.method)
	if status := l.judge(l.q.method, nil); status != 0 {
		return l.plain(status, "", "")
	}
	if b.Era == Modern || l.q.method != "GET" && l.q.method != "DELETE" || l.q.method == "GET" && b.Feed == nil && !b.Silent {
		return l.plain(405, "", "")
	}
	p, ok := l.session(nil)
	switch {
	case p == nil:
		return ok
	case l.q.method == "DELETE":
		b.mu.Lock()
		delete(b.sessions, p.id)
		b.mu.Unlock()
		return l.plain(204, "", "")
	case !strings.HasPrefix(p.name, b.Feeds):
		return l.plain(405, "", "")
	}
	defer p.streams.Add(-1)
	if n := p.streams.Add(1); b.Single && n > 1 {
		return l.plain(409, "", "")
	}
	return l.stream(&Feed{Client: p.name, Session: p.id, LastEvent: string(l.q.lastEvent)})
}

func (l *link) post() bool {
	var m Message
	if err := json.Unmarshal(l.q.Body, &m); err != nil {
		l.b.count(l.b.methods, "malformed")
		return l.refuse(nil, 400, -32700, "Parse error: "+err.Error(), "")
	}
	l.b.count(l.b.methods, m.Method)
	if status := l.judge(m.Method, &m); status != 0 {
		return l.plain(status, "", "")
	}
	switch {
	case m.Version != "2.0" || m.Method == "" && m.Result == nil:
		return l.refuse(m.ID, 400, -32600, "Invalid Request: not JSON-RPC 2.0", "")
	case m.ID != nil && m.ID[0] != '"' && m.ID[0] != '-' && (m.ID[0] < '0' || m.ID[0] > '9'):
		return l.refuse(nil, 400, -32600, "Invalid Request: id is neither string nor number", "")
	case l.b.Era == Modern, l.b.Era == Both && (m.Params.Meta.ProtocolVersion != "" || string(l.q.version) == mcp.V2607):
		return l.modern(&m)
	}
	return l.legacy(&m)
}

// judge asks Admit about the request that has been read.
func (l *link) judge(method string, m *Message) (status int) {
	if l.b.Admit == nil {
		return 0
	}
	return l.b.Admit(&Asked{Method: method, Credential: l.q.credential, Lines: l.q.lines, Message: m})
}

// modern holds a client to the 2026-07-28 revision, "Streamable HTTP": required
// headers, their agreement with the body, required _meta.
func (l *link) modern(m *Message) bool {
	meta, version := &m.Params.Meta, string(l.q.version)
	if m.Method == "initialize" {
		version = m.Params.ProtocolVersion
	}
	switch {
	case m.Method == "initialize", version != "" && version != mcp.V2607:
		data := fmt.Sprintf(`{"supported":[%q],"requested":%q}`, mcp.V2607, version)
		return l.refuse(m.ID, 400, -32022, "Unsupported protocol version", data)
	case version == "":
		return l.refuse(m.ID, 400, -32020, "Header mismatch: MCP-Protocol-Version is missing", "")
	case string(l.q.rpc) != m.Method:
		return l.refuse(m.ID, 400, -32020, "Header mismatch: Mcp-Method", "")
	case m.ID == nil:
		return l.plain(202, "", "")
	case m.Method == "tools/call" && string(l.q.name) != m.Params.Name:
		return l.refuse(m.ID, 400, -32020, "Header mismatch: Mcp-Name", "")
	case meta.ProtocolVersion == "" || meta.ClientCapabilities == nil:
		return l.refuse(m.ID, 400, -32602, "Invalid params: _meta lacks the protocol version or the client capabilities", "")
	case meta.ProtocolVersion != version:
		return l.refuse(m.ID, 400, -32020, "Header mismatch: MCP-Protocol-Version", "")
	}
	switch m.Method {
	case "server/discover":
		versions := `"` + mcp.V2607 + `"`
		if l.b.Era == Both {
			versions += `,"` + mcp.V2511 + `"`
		}
		return l.result(m, `{`+l.b.cached()+`"supportedVersions":[`+versions+`],"capabilities":`+l.b.Capabilities+`,"_meta":{"`+mcp.MetaServerInfo+`":`+server+`}}`)
	case "tools/list":
		return l.result(m, `{`+l.b.cached()+l.b.listed()+`}`)
	case "tools/call":
		return l.call(m, nil)
	case "subscriptions/listen":
		if l.b.Feed != nil {
			return l.stream(&Feed{id: string(m.ID)})
		}
	}
	return l.refuse(m.ID, 404, -32601, "Method not found", "")
}

// cached is the members with which a modern result says how long it lives.
func (b *Backend) cached() string {
	scope := "private"
	if b.Lives > 0 {
		scope = "public"
	}
	return fmt.Sprintf(`%s"ttlMs":%d,"cacheScope":%q,`, complete, b.Lives.Milliseconds(), scope)
}

// legacy holds a client to the 2025-11-25 revision, "Streamable HTTP": a session
// that initialize has begun, and its id in every later request.
func (l *link) legacy(m *Message) bool {
	if m.Method == "initialize" {
		version := m.Params.ProtocolVersion
		if !strings.Contains(" 2024-11-05 2025-03-26 2025-06-18 2025-11-25 ", " "+version+" ") {
			version = mcp.V2511
		}
		id, ok := l.b.begin(m.Params.ClientInfo.Name)
		if !ok {
			return l.refuse(m.ID, 503, -32000, "Too many sessions", "")
		}
		result := fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"serverInfo":%s}`, version, l.b.Capabilities, server)
		return l.plain(200, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+result+`}`, "Mcp-Session-Id: "+id+"\r\n")
	}
	p, ok := l.session(m.ID)
	if p == nil {
		return ok
	}
	if l.b.Heard != nil {
		l.b.Heard(p.id, m)
	}
	switch {
	case m.Method == "notifications/cancelled":
		p.mu.Lock()
		t := p.tasks[string(m.Params.RequestID)]
		p.mu.Unlock()
		if t != nil {
			t.cancel()
		}
		return l.plain(202, "", "")
	case m.ID == nil, m.Method == "":
		return l.plain(202, "", "")
	}
	switch m.Method {
	case "ping", "resources/subscribe":
		return l.result(m, `{}`)
	case "tools/list":
		return l.result(m, `{`+l.b.listed()+`}`)
	case "tools/call":
		return l.call(m, p)
	}
	return l.answer(rpcError(m.ID, -32601, "Method not found", ""))
}

// session returns the session that the request names; nil when there is none,
// which the request has been answered with, and whether the connection goes on.
func (l *link) session(id []byte) (p *peer, ok bool) {
	if len(l.q.Session) == 0 {
		return nil, l.refuse(id, 400, -32000, "Bad Request: Server not initialized", "")
	}
	l.b.mu.Lock()
	p = l.b.sessions[string(l.q.Session)]
	l.b.mu.Unlock()
	if p == nil {
		return nil, l.refuse(id, 404, -32001, "Session not found", "")
	}
	return p, true
}

func (l *link) result(m *Message, result string) bool {
	return l.answer(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`)
}

// answer sends one message, as JSON or as a stream of one event, whose length
// is not said beforehand, as is the way of event streams.
func (l *link) answer(message string) bool {
	if !l.b.SSE {
		return l.plain(200, message, "")
	}
	return l.write(stream + "X-Accel-Buffering: no\r\n\r\n" + chunk("event: message\ndata: "+message+"\n\n") + "0\r\n\r\n")
}

// refuse answers with an HTTP error and counts it.
func (l *link) refuse(id []byte, status, code int, text, data string) bool {
	l.b.count(l.b.refused, text)
	return l.plain(status, rpcError(id, code, text, data), "")
}

// rpcError is the text of a JSON-RPC error; id is null when it is not known, and
// data is JSON text.
func rpcError(id []byte, code int, text, data string) string {
	if len(id) == 0 {
		id = []byte("null")
	}
	if data != "" {
		data = `,"data":` + data
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s%s}}`, id, code, quoted(text), data)
}

// quoted is a text as JSON.
func quoted(text string) string {
	out, _ := json.Marshal(text) // text always marshals
	return string(out)
}

const (
	common = "Server: backend1\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n" // as much as servers say
	stream = "HTTP/1.1 200 OK\r\n" + common + "Content-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n"
)

// head begins a stream of events.
func (l *link) head() bool { return l.write(stream + "\r\n") }

// plain answers with JSON, or with nothing. more is further header lines.
func (l *link) plain(status int, body, more string) bool {
	kind := ""
	if body != "" {
		kind = "Content-Type: application/json\r\n"
	}
	closes := l.b.Closing.Load()
	if closes {
		more += "Connection: close\r\n"
	}
	return l.write("HTTP/1.1 "+strconv.Itoa(status)+" Said\r\n"+common+kind+more+"Content-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body) && !closes
}
