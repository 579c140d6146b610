package serve

import (
	"bytes"
	"errors"
	"strings"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/session"
)

// exchange is an edge.Exchange with what the door keeps of it: the context
// under which it runs and the stream that it may become.
type exchange struct {
	edge.Exchange
	door.Call
	way     stream
	number  uint64 // that the way has for it
	request mcp.Message
	id      idText // that the client gave the request
	server  *server
	s       *session.Session
}

// newExchange returns an exchange that serves one request after the other.
func newExchange() any {
	x := new(exchange)
	x.Owner = x
	return x
}

// endsWithClient reports whether the exchange ends when its client leaves: to
// close the response is to cancel the call (2026-07-28,
// basic/transports/streamable-http), in that era alone.
func (x *exchange) endsWithClient() bool { return x.Era == mcp.Modern }

// head is what the door looks at of an HTTP header. It shares the server's
// memory and is good for as long as the handler runs.
type head struct {
	ctx                                        *fasthttp.RequestCtx // of the request
	host, origin, contentType, encoding        []byte
	session, version, method, name             []byte
	lastEvent                                  []byte
	hasSession, hasVersion, hasMethod, hasName bool
	originSet                                  bool
	takes                                      accepted
	params                                     []edge.Header
	authorization                              []byte
	agent, requestID, traceParent, traceState  []byte
	sse                                        bool           // it came by the older door
	query                                      []byte         // of its path; nil for none
	who                                        *edge.Identity // of the client; nil where nobody asks
	body                                       []byte         // of the request; nil until it has been read
	server                                     *server        // that it is for; nil while that is not known
	x                                          *exchange      // of its message; nil until that has been read
}

func (h *head) read(r *fasthttp.RequestHeader) {
	h.host = r.Host()
	h.contentType = r.ContentType()
	for k, v := range r.All() {
		switch len(k) {
		case 6:
			if string(k) == "Origin" {
				h.origin, h.originSet = v, true
			} else if string(k) == "Accept" {
				h.takes |= accepts(v)
			}
		case 8:
			if string(k) == "Mcp-Name" {
				h.name, h.hasName = v, true
			}
		case 10:
			switch string(k) {
			case "Mcp-Method":
				h.method, h.hasMethod = v, true
			case "User-Agent":
				h.agent = v
			case "Tracestate":
				h.traceState = v
			}
		case 11:
			if string(k) == "Traceparent" {
				h.traceParent = v
			}
		case 12:
			if string(k) == "X-Request-Id" {
				h.requestID = v
			}
		case 13:
			if string(k) == "Last-Event-Id" {
				h.lastEvent = v
			} else if string(k) == "Authorization" {
				h.authorization = v
			}
		case 14:
			if string(k) == "Mcp-Session-Id" {
				h.session, h.hasSession = v, true
			}
		case 16:
			if string(k) == "Content-Encoding" {
				h.encoding = v
			}
		case 20:
			if string(k) == "Mcp-Protocol-Version" {
				h.version, h.hasVersion = v, true
			}
		}
		if len(k) > len(mcp.HeaderParam) && string(k[:len(mcp.HeaderParam)]) == mcp.HeaderParam {
			h.params = append(h.params, edge.Header{Name: string(k), Value: string(v)})
		}
	}
}

// holder returns whom the things of the client of a request are counted for: see
// edge.Holder. Behind proxies that are believed its address is the one that they
// tell.
func (e *Edge) holder(h *head) string {
	if !h.who.Anonymous() {
		return h.who.Principal()
	}
	return edge.Holder(h.who, e.door.ClientOf(h.ctx))
}

// accepted is which of the media types that the edge has an Accept header
// names.
type accepted uint8

const (
	takesJSON   accepted = 1 << iota
	takesStream          // text/event-stream by name: a bare */* asks for nothing special
	takesAny
)

func accepts(v []byte) accepted {
	if string(v) == "application/json, text/event-stream" {
		return takesJSON | takesStream // what the specification tells clients to send
	}
	var a accepted
	for one := range bytes.SplitSeq(v, []byte{','}) {
		media, _, _ := bytes.Cut(one, []byte{';'})
		switch strings.ToLower(string(bytes.TrimSpace(media))) {
		case "application/json", "application/*":
			a |= takesJSON
		case "text/event-stream", "text/*":
			a |= takesStream
		case "*/*":
			a |= takesAny
		}
	}
	return a
}

// streamOnly reports whether a client takes an answer as a stream and not as
// JSON.
func (a accepted) streamOnly() bool { return a&takesStream != 0 && a&(takesJSON|takesAny) == 0 }

// era decides the era of a message with its HTTP header (decisions: the
// endpoint): what the body says, then the header.
func era(m *mcp.Message, h *head) mcp.Era {
	if m.Meta(mcp.MetaVersion).OK() {
		return mcp.Modern
	}
	return headEra(h)
}

// headEra decides by the header alone.
func headEra(h *head) mcp.Era {
	if string(h.version) == mcp.V2607 {
		return mcp.Modern
	}
	if h.hasVersion && !h.hasSession && !mcp.LegacyVersion(string(h.version)) {
		return mcp.Modern
	}
	return mcp.Legacy
}

// checkModern holds a modern message against its header and its own _meta, and
// returns the name that it asks for, if any (2026-07-28, basic/transports/streamable-http, header validation).
func checkModern(m *mcp.Message, h *head) (name string, err error) {
	version := m.Meta(mcp.MetaVersion)
	if m.Kind == mcp.Result || m.Kind == mcp.Failure {
		return "", edge.Errorf(edge.Invalid, "check", "a client of %s sends no answers", mcp.V2607)
	}
	if m.Kind == mcp.Request && !version.OK() {
		if !mcp.MethodOf(m.Method).In(mcp.Modern) {
			return "", route.ErrNoMethod(m)
		}
		if string(h.version) != mcp.V2607 {
			return "", badVersion(string(h.version))
		}
		return "", edge.Errorf(edge.Params, "check", "params._meta lacks %s", mcp.MetaVersion)
	}
	if !h.hasVersion || version.OK() && !m.MetaSays(mcp.MetaVersion, string(h.version)) {
		return "", mismatch(mcp.HeaderVersion, string(h.version), m.MetaText(mcp.MetaVersion))
	}
	if string(h.version) != mcp.V2607 {
		return "", badVersion(string(h.version))
	}
	if !h.hasMethod && m.Kind == mcp.Request || h.hasMethod && string(h.method) != m.Method {
		return "", mismatch(mcp.HeaderMethod, string(h.method), m.Method)
	}
	info := mcp.MethodOf(m.Method)
	if len(m.Raw) > session.MaxSaid { // else there is no need to look
		info, caps := m.Meta(mcp.MetaClientInfo), m.Meta(mcp.MetaCapabilities)
		if err := session.ErrSaidMuch(mcp.MetaClientInfo+" and "+mcp.MetaCapabilities+" in params._meta", len(info.Of(m.Raw)), len(caps.Of(m.Raw))); err != nil {
			return "", err
		}
	}
	if m.Kind == mcp.Notification {
		return "", nil
	}
	if !info.In(mcp.Modern) {
		return "", route.ErrNoMethod(m)
	}
	if caps := m.Meta(mcp.MetaCapabilities); !caps.OK() || m.Raw[caps.Start] != '{' {
		return "", edge.Errorf(edge.Params, "check", "params._meta lacks %s, an object", mcp.MetaCapabilities)
	}
	if info.Target != "" {
		target := m.Get(info.Target)
		if !target.OK() || m.Raw[target.Start] != '"' {
			return "", edge.Errorf(edge.Params, "check", "params.%s is not a string", info.Target)
		}
		name = m.Text(info.Target)
		if !h.hasName {
			return "", mismatch(mcp.HeaderName, "", name)
		}
		if string(h.name) != name || strings.HasPrefix(name, "=?base64?") {
			if said, err := mcp.DecodeHeader(string(h.name)); err != nil || said != name {
				return "", mismatch(mcp.HeaderName, string(h.name), name)
			}
		}
	}
	if level := m.Meta(mcp.MetaLogLevel); level.OK() && !mcp.LogLevel(mcp.String(level.Of(m.Raw))) {
		return "", edge.Errorf(edge.Params, "check", "params._meta.%s is no log level", mcp.MetaLogLevel)
	}
	for _, p := range h.params {
		if _, err := mcp.DecodeHeader(p.Value); err != nil {
			return "", &edge.Error{Kind: edge.Mismatch, Op: "check", Err: errors.New(p.Name + " has " + err.Error())}
		}
	}
	return name, nil
}

func badVersion(requested string) error {
	data := []byte(`{"supported":[`)
	for i, v := range mcp.Versions() {
		if i > 0 {
			data = append(data, ',')
		}
		data = mcp.AppendString(data, v)
	}
	data = mcp.AppendString(append(data, `],"requested":`...), edge.Printable(requested))
	return &edge.Error{Kind: edge.Version, Op: "check", Data: append(data, '}'),
		Err: errors.New("unsupported protocol version; supported are 2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05")}
}

func mismatch(header, headerValue, bodyValue string) error {
	data := mcp.AppendString([]byte(`{"header":`), header)
	data = mcp.AppendString(append(data, `,"headerValue":`...), edge.Printable(headerValue))
	data = mcp.AppendString(append(data, `,"bodyValue":`...), edge.Printable(bodyValue))
	text := "header " + header + " does not match the body"
	if headerValue == "" {
		text = "header " + header + " is missing"
	}
	return &edge.Error{Kind: edge.Mismatch, Op: "check", Data: append(data, '}'), Err: errors.New(text)}
}
