package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
)

// The protocol revisions that the benchmark speaks.
const (
	modernVersion = "2026-07-28"
	legacyVersion = "2025-11-25"
)

// An era is one of the two ways to speak MCP over HTTP: by sessions (legacy,
// up to 2025-11-25) or without (modern, from 2026-07-28 on).
type era string

const (
	modern era = "modern"
	legacy era = "legacy"
	both   era = "both" // of a backend only: both on one URL
)

// backend is a fixed MCP server: a tool that echoes, another that does so
// slowly, and a count of everything that reaches it. It is strict about what
// each revision asks of a client, so that a proxy that forgets a header or
// mangles an id is found out and not merely measured.
type backend struct {
	era    era
	sse    bool // answer requests with an event stream of one event
	stream bool // answer GET with a stream that stays silent, else with 405
	slow   time.Duration
	list   []byte // the tools of tools/list, JSON text

	tally *tally
}

// newBackend returns a backend with the number of tools asked for, two at
// least.
func newBackend(e era, sse, stream bool, tools int, slow time.Duration) *backend {
	var list bytes.Buffer
	for i := range max(tools, 2) {
		name := fmt.Sprintf("tool_%d", i+1)
		if i < 2 {
			name = []string{"echo", "slow"}[i]
		} else {
			list.WriteByte(',')
		}
		if i == 1 {
			list.WriteByte(',')
		}
		fmt.Fprintf(&list, `{"name":%q,"description":"Answers with the text that it was given.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}`, name)
	}
	return &backend{era: e, sse: sse, stream: stream, slow: slow, list: list.Bytes(), tally: newTally()}
}

func backendCommand(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	f := flag.NewFlagSet("bench backend", flag.ContinueOnError)
	f.SetOutput(stderr)
	listen := f.String("listen", "127.0.0.1:0", "address to listen on")
	speaks := f.String("era", string(both), "modern, legacy or both")
	answer := f.String("answer", "json", "json or sse")
	get := f.String("get", "405", "what a legacy GET is answered with: 405, or stream for a silent event stream")
	tools := f.Int("tools", 2, "number of tools, 2 at least: echo, slow, tool_3, …")
	slow := f.Duration("slow", 20*time.Millisecond, "how long the tool slow takes")
	addresses := f.Int("addresses", 1, "addresses to listen on; all but the first are chosen by the system")
	attached := f.Bool("attached", false, "end when stdin does")
	if err := f.Parse(args); err != nil {
		return err
	}
	for _, v := range []struct{ flag, value, allowed string }{
		{"era", *speaks, "modern legacy both"}, {"answer", *answer, "json sse"}, {"get", *get, "405 stream"},
	} {
		if v.value == "" || !strings.Contains(" "+v.allowed+" ", " "+v.value+" ") {
			return fmt.Errorf("backend: --%s: %q is not one of %s", v.flag, v.value, v.allowed)
		}
	}
	if *tools < 2 || *tools > 1<<16 {
		return fmt.Errorf("backend: --tools: %d is not between 2 and 65536", *tools)
	}
	if *addresses < 1 || *addresses > 1000 {
		return fmt.Errorf("backend: --addresses: %d is not between 1 and 1000", *addresses)
	}
	b := newBackend(era(*speaks), *answer == "sse", *get == "stream", *tools, *slow)
	var all []net.Listener
	for i := range *addresses {
		at := *listen
		if i > 0 {
			at = "127.0.0.1:0"
		}
		ln, err := net.Listen("tcp", at)
		if err != nil {
			for _, open := range all {
				open.Close()
			}
			return fmt.Errorf("backend: %w", err)
		}
		all = append(all, countedListener{ln, b.tally})
	}
	if !*attached {
		stdin = nil
	}
	return serveHelper(ctx, b.server(), stdin, stdout, all...)
}

func (b *backend) server() *fasthttp.Server {
	return &fasthttp.Server{Handler: b.handle, Concurrency: 1 << 16}
}

func (b *backend) handle(ctx *fasthttp.RequestCtx) {
	switch string(ctx.Path()) {
	case "/counts":
		if ctx.ConnRequestNum() == 1 {
			b.tally.control()
		}
		ctx.SetContentType("application/json")
		ctx.SetBody(b.tally.json())
	case "/mcp":
		switch {
		case ctx.IsPost():
			b.post(ctx)
		case ctx.IsGet() && b.era != modern:
			b.get(ctx)
		case ctx.IsDelete() && b.era != modern:
			b.delete(ctx)
		default:
			b.tally.method(string(ctx.Method()))
			ctx.SetStatusCode(fasthttp.StatusMethodNotAllowed)
		}
	default:
		ctx.SetStatusCode(fasthttp.StatusNotFound)
	}
}

// message is as much of a request as the backend reads.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  struct {
		Name            string `json:"name"`
		ProtocolVersion string `json:"protocolVersion"`
		Arguments       struct {
			Text json.RawMessage `json:"text"`
		} `json:"arguments"`
		Meta struct {
			ProtocolVersion    string          `json:"io.modelcontextprotocol/protocolVersion"`
			ClientCapabilities json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
		} `json:"_meta"`
	} `json:"params"`
}

func (b *backend) post(ctx *fasthttp.RequestCtx) {
	var m message
	if err := json.Unmarshal(ctx.PostBody(), &m); err != nil {
		b.tally.method("malformed")
		b.refuse(ctx, nil, 400, -32700, "Parse error: "+err.Error(), "")
		return
	}
	b.tally.method(m.Method)
	switch {
	case m.Version != "2.0" || m.Method == "":
		b.refuse(ctx, m.ID, 400, -32600, "Invalid Request: not JSON-RPC 2.0", "")
	case m.ID != nil && m.ID[0] != '"' && m.ID[0] != '-' && (m.ID[0] < '0' || m.ID[0] > '9'):
		b.refuse(ctx, nil, 400, -32600, "Invalid Request: id is neither string nor number", "")
	case b.isModern(ctx, &m):
		b.postModern(ctx, &m)
	default:
		b.postLegacy(ctx, &m)
	}
}

// isModern decides the era of one request. A server of one era takes every
// request for one of its own, and answers those of the other accordingly.
func (b *backend) isModern(ctx *fasthttp.RequestCtx, m *message) bool {
	switch b.era {
	case both:
		return m.Params.Meta.ProtocolVersion != "" || string(ctx.Request.Header.Peek("Mcp-Protocol-Version")) == modernVersion
	default:
		return b.era == modern
	}
}

// postModern holds a client to the 2026-07-28 revision, "Streamable HTTP":
// required headers, their agreement with the body, required _meta.
func (b *backend) postModern(ctx *fasthttp.RequestCtx, m *message) {
	h, meta := &ctx.Request.Header, &m.Params.Meta
	version := string(h.Peek("Mcp-Protocol-Version"))
	if m.Method == "initialize" {
		version = m.Params.ProtocolVersion
	}
	switch {
	case m.Method == "initialize", version != "" && version != modernVersion:
		data := fmt.Sprintf(`{"supported":[%q],"requested":%q}`, modernVersion, version)
		b.refuse(ctx, m.ID, 400, -32022, "Unsupported protocol version", data)
		return
	case version == "":
		b.refuse(ctx, m.ID, 400, -32020, "Header mismatch: MCP-Protocol-Version is missing", "")
		return
	case string(h.Peek("Mcp-Method")) != m.Method:
		b.refuse(ctx, m.ID, 400, -32020, "Header mismatch: Mcp-Method", "")
		return
	case m.ID == nil:
		ctx.SetStatusCode(fasthttp.StatusAccepted)
		return
	case m.Method == "tools/call" && string(h.Peek("Mcp-Name")) != m.Params.Name:
		b.refuse(ctx, m.ID, 400, -32020, "Header mismatch: Mcp-Name", "")
		return
	case meta.ProtocolVersion == "" || meta.ClientCapabilities == nil:
		b.refuse(ctx, m.ID, 400, -32602, "Invalid params: _meta lacks the protocol version or the client capabilities", "")
		return
	case meta.ProtocolVersion != version:
		b.refuse(ctx, m.ID, 400, -32020, "Header mismatch: MCP-Protocol-Version", "")
		return
	}
	const cached = `"resultType":"complete","ttlMs":60000,"cacheScope":"public"`
	switch m.Method {
	case "server/discover":
		versions := `"` + modernVersion + `"`
		if b.era == both {
			versions += `,"` + legacyVersion + `"`
		}
		b.result(ctx, m, `{`+cached+`,"supportedVersions":[`+versions+`],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"weir-bench","version":"1"}}}`)
	case "tools/list":
		b.result(ctx, m, `{`+cached+`,"tools":[`+string(b.list)+`]}`)
	case "tools/call":
		b.call(ctx, m, `"resultType":"complete",`)
	default:
		b.refuse(ctx, m.ID, 404, -32601, "Method not found", "")
	}
}

// postLegacy holds a client to the 2025-11-25 revision, "Streamable HTTP":
// a session that initialize has begun, and its id in every later request.
func (b *backend) postLegacy(ctx *fasthttp.RequestCtx, m *message) {
	if m.Method == "initialize" {
		version := m.Params.ProtocolVersion
		if !strings.Contains(" 2024-11-05 2025-03-26 2025-06-18 2025-11-25 ", " "+version+" ") {
			version = legacyVersion
		}
		session, ok := b.tally.begin()
		if !ok {
			b.refuse(ctx, m.ID, 503, -32000, "Too many sessions", "")
			return
		}
		ctx.Response.Header.Set("Mcp-Session-Id", session)
		b.result(ctx, m, fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"weir-bench","version":"1"}}`, version))
		return
	}
	if !b.inSession(ctx, m.ID) {
		return
	}
	switch {
	case m.ID == nil:
		ctx.SetStatusCode(fasthttp.StatusAccepted)
	case m.Method == "ping":
		b.result(ctx, m, `{}`)
	case m.Method == "tools/list":
		b.result(ctx, m, `{"tools":[`+string(b.list)+`]}`)
	case m.Method == "tools/call":
		b.call(ctx, m, "")
	default:
		b.answer(ctx, rpcError(m.ID, -32601, "Method not found", ""))
	}
}

// inSession reports whether the request names a running session, and answers
// it when it does not.
func (b *backend) inSession(ctx *fasthttp.RequestCtx, id []byte) bool {
	session := ctx.Request.Header.Peek("Mcp-Session-Id")
	switch {
	case len(session) == 0:
		b.refuse(ctx, id, 400, -32000, "Bad Request: Server not initialized", "")
	case !b.tally.running(session):
		b.refuse(ctx, id, 404, -32001, "Session not found", "")
	default:
		return true
	}
	return false
}

// get opens a stream that says nothing and ends when the client does.
func (b *backend) get(ctx *fasthttp.RequestCtx) {
	b.tally.method("GET")
	if !b.stream {
		ctx.SetStatusCode(fasthttp.StatusMethodNotAllowed)
		return
	}
	if !b.inSession(ctx, nil) {
		return
	}
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(c net.Conn) {
		b.tally.streaming(1)
		defer b.tally.streaming(-1)
		const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nConnection: close\r\n\r\n: open\n\n"
		if _, err := io.WriteString(c, head); err == nil {
			_, _ = io.Copy(io.Discard, c)
		}
	})
}

func (b *backend) delete(ctx *fasthttp.RequestCtx) {
	b.tally.method("DELETE")
	if b.inSession(ctx, nil) {
		b.tally.end(ctx.Request.Header.Peek("Mcp-Session-Id"))
		ctx.SetStatusCode(fasthttp.StatusNoContent)
	}
}

// answerSize is what the body of an answer to a call is filled up to, bytes.
const answerSize = 200

// call answers with the text it was given, byte for byte, filled up with dots.
func (b *backend) call(ctx *fasthttp.RequestCtx, m *message, extra string) {
	text := m.Params.Arguments.Text
	if len(text) < 2 || text[0] != '"' {
		b.answer(ctx, rpcError(m.ID, -32602, "Invalid params: text is not a string", ""))
		return
	}
	switch m.Params.Name {
	case "echo":
	case "slow":
		time.Sleep(b.slow)
	default:
		b.answer(ctx, rpcError(m.ID, -32602, "Unknown tool", ""))
		return
	}
	before := `{` + extra + `"content":[{"type":"text","text":`
	const after = `"}],"isError":false}`
	const frame = len(`{"jsonrpc":"2.0","id":,"result":}`)
	rest := answerSize - frame - len(m.ID) - len(before) - len(text) - 1 - len(after) + 1
	b.result(ctx, m, before+string(text[:len(text)-1])+" "+strings.Repeat(".", max(rest, 0))+after)
}

func (b *backend) result(ctx *fasthttp.RequestCtx, m *message, result string) {
	out := make([]byte, 0, 64+len(m.ID)+len(result))
	out = append(out, `{"jsonrpc":"2.0","id":`...)
	out = append(out, m.ID...)
	out = append(out, `,"result":`...)
	out = append(out, result...)
	b.answer(ctx, append(out, '}'))
}

// answer sends one message, as JSON or as a stream of one event, whose length
// is not said beforehand, as is the way of event streams.
func (b *backend) answer(ctx *fasthttp.RequestCtx, text []byte) {
	if !b.sse {
		ctx.SetContentType("application/json")
		ctx.Response.SetBodyRaw(text)
		return
	}
	ctx.SetContentType("text/event-stream")
	ctx.Response.Header.Set("Cache-Control", "no-cache")
	ctx.Response.Header.Set("X-Accel-Buffering", "no")
	event := make([]byte, 0, len(text)+32)
	event = append(event, "event: message\ndata: "...)
	event = append(event, text...)
	ctx.SetBodyStream(bytes.NewReader(append(event, "\n\n"...)), -1)
}

// refuse answers with an HTTP error and counts it.
func (b *backend) refuse(ctx *fasthttp.RequestCtx, id []byte, status, code int, text, data string) {
	b.tally.refused(text)
	ctx.SetStatusCode(status)
	ctx.SetContentType("application/json")
	ctx.Response.SetBodyRaw(rpcError(id, code, text, data))
}

// rpcError is the text of a JSON-RPC error; id is null when it is not known.
func rpcError(id []byte, code int, text, data string) []byte {
	if len(id) == 0 {
		id = []byte("null")
	}
	if data != "" {
		data = `,"data":` + data
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		quoted = []byte(`"error"`) // a Go string always marshals
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s%s}}`, id, code, quoted, data)
}
