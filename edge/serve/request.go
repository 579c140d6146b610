package serve

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
)

// request is an HTTP request of a client, with its header as read and the results of each
// step of serving it. The header shares the HTTP server's memory, and is valid while the
// handler runs.
type request struct {
	ctx  *fasthttp.RequestCtx
	conn *door.Conn // that it came on
	at   *doorway   // that its client came in by

	host, origin, contentType, encoding        []byte
	session, version, method, name             []byte
	lastEvent                                  []byte
	hasSession, hasVersion, hasMethod, hasName bool
	originSet                                  bool
	takes                                      accepted
	params                                     []edge.Header
	authorization                              []byte
	agent, requestID, traceParent, traceState  []byte
	sse                                        bool            // it came by the older transport
	query                                      []byte          // of its path; nil for none
	who                                        *edge.Identity  // of the client; nil where nobody asks
	body                                       []byte          // nil until it has been read
	server                                     *server         // that it is for; nil while that is not known
	x                                          *exchange       // of its message; nil until that has been read
	attributes                                 edge.Attributes // that programs set for it
	comes                                      bool            // its server waits for what it holds
	status                                     int             // that it was refused with before it had a reading; else 0
}

// client is the address of the client, without a port; "unknown" where it is doubted.
func (req *request) client() string { return req.conn.Certain(&req.ctx.Request.Header) }

func (req *request) read(r *fasthttp.RequestHeader) {
	req.host = r.Host()
	req.contentType = r.ContentType()
	for k, v := range r.All() {
		switch len(k) {
		case 6:
			if string(k) == "Origin" {
				req.origin, req.originSet = v, true
			} else if string(k) == "Accept" {
				req.takes |= accepts(v)
			}
		case 8:
			if string(k) == "Mcp-Name" {
				req.name, req.hasName = v, true
			}
		case 10:
			switch string(k) {
			case "Mcp-Method":
				req.method, req.hasMethod = v, true
			case "User-Agent":
				req.agent = v
			case "Tracestate":
				req.traceState = v
			}
		case 11:
			if string(k) == "Traceparent" {
				req.traceParent = v
			}
		case 12:
			if string(k) == "X-Request-Id" {
				req.requestID = v
			}
		case 13:
			if string(k) == "Last-Event-Id" {
				req.lastEvent = v
			} else if string(k) == "Authorization" {
				req.authorization = v
			}
		case 14:
			if string(k) == "Mcp-Session-Id" {
				req.session, req.hasSession = v, true
			}
		case 16:
			if string(k) == "Content-Encoding" {
				req.encoding = v
			}
		case 20:
			if string(k) == "Mcp-Protocol-Version" {
				req.version, req.hasVersion = v, true
			}
		}
		if len(k) > len(mcp.HeaderParam) && string(k[:len(mcp.HeaderParam)]) == mcp.HeaderParam {
			req.params = append(req.params, edge.Header{Name: string(k), Value: string(v)})
		}
	}
}

// holder returns the key under which limits count for the client: see edge.Holder. Behind
// trusted proxies its address is the one that they name.
func (req *request) holder() string {
	if !req.who.Anonymous() && req.who.Issuer != edge.UnverifiedIssuer {
		return req.who.Principal()
	}
	return edge.Holder(req.who, req.client())
}

// accepted is the set of media types that an Accept header names, of those that the edge
// sends.
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
	var a, not accepted
	for one := range bytes.SplitSeq(v, []byte{','}) {
		media, params, more := bytes.Cut(one, []byte{';'})
		var is accepted
		switch strings.ToLower(string(bytes.TrimSpace(media))) {
		case "application/json", "application/*":
			is = takesJSON
		case "text/event-stream", "text/*":
			is = takesStream
		case "*/*":
			is = takesAny
		}
		if more && weighsNothing(params) {
			not |= is
		} else {
			a |= is
		}
	}
	if not&(takesJSON|takesStream) != 0 {
		a &^= takesAny // it stands for what is not named
	}
	return a
}

// weighsNothing reports whether the parameters of a media type give it the weight 0: it is not
// acceptable then (RFC 9110 §12.4.2).
func weighsNothing(params []byte) bool {
	for one := range bytes.SplitSeq(params, []byte{';'}) {
		name, value, _ := bytes.Cut(one, []byte{'='})
		if strings.EqualFold(string(bytes.TrimSpace(name)), "q") {
			weight, err := strconv.ParseFloat(string(bytes.TrimSpace(value)), 64)
			return err == nil && weight == 0
		}
	}
	return false
}

// streamOnly reports whether a client takes an answer as a stream and not as
// JSON.
func (a accepted) streamOnly() bool { return a&takesStream != 0 && a&(takesJSON|takesAny) == 0 }

// Bounds of header values that are kept, in bytes.
const (
	maxAgent = 256
	maxTrace = 512
)

// tell copies into an exchange the header values that audit and telemetry record, except
// the id. A connection remembers its client's User-Agent.
func (req *request) tell(to *edge.Head, s *server) {
	if s.record != nil {
		agent := req.agent[:min(len(req.agent), maxAgent)]
		if req.conn.Agent != string(agent) {
			req.conn.Agent = string(agent)
		}
		to.Agent, to.Source = req.conn.Agent, req.conn.Client(&req.ctx.Request.Header)
	}
	if s.measure != nil && len(req.traceParent) > 0 && len(req.traceParent) <= maxTrace && len(req.traceState) <= maxTrace {
		to.TraceParent, to.TraceState = string(req.traceParent), string(req.traceState)
	}
}

// idText is the X-Request-Id of a client, kept without an allocation until
// somebody asks for it.
type idText struct {
	n    int
	text [door.MaxRequestID]byte
}

func (t *idText) set(id []byte) {
	if t.n = 0; door.SoundID(id) {
		t.n = copy(t.text[:], id)
	}
}

// requestID returns the id of the request in records and in the process log.
func (x *exchange) requestID() string {
	switch {
	case x.Head.RequestID != "":
	case x.id.n > 0:
		x.Head.RequestID = string(x.id.text[:x.id.n])
	default:
		x.Head.RequestID = door.NewRequestID()
	}
	return x.Head.RequestID
}
