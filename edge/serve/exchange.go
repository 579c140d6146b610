package serve

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// exchange is an edge.Exchange with what the door keeps of it: the context
// under which it runs and the stream that it may become.
type exchange struct {
	edge.Exchange
	call
	way     stream
	number  uint64 // that the way has for it
	request mcp.Message
	id      idText // that the client gave the request
	server  *server
	s       *session
	began   time.Time
	lasts   bool // until the client or the edge ends it

	prev, next *exchange // of those under way on its connection
}

// endsWithClient reports whether the exchange ends when its client leaves: to
// close the response is to cancel the call (2026-07-28,
// basic/transports/streamable-http), in that era alone.
func (x *exchange) endsWithClient() bool { return x.Era == mcp.Modern }

// call is the context of an exchange. It costs no allocation of its own, and
// closes what waits for its end without a goroutine.
type call struct {
	mu     sync.Mutex
	done   chan struct{}
	err    error
	heeded [2]io.Closer // connections of the back door
	after  []*func()    // for contexts that are derived from this one
}

var _ context.Context = (*call)(nil)

// Deadline returns none: the back door bounds a call.
func (c *call) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value returns nil: what belongs to an exchange is a field of it.
func (c *call) Value(any) any { return nil }

// Done returns a channel that is closed when the exchange is cancelled.
func (c *call) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// Err returns an error that is context.Canceled once the exchange is cancelled.
func (c *call) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Heed has something closed when the exchange is cancelled.
func (c *call) Heed(v io.Closer) {
	c.mu.Lock()
	if c.err == nil {
		for i := range c.heeded {
			if c.heeded[i] == nil {
				c.heeded[i] = v
				c.mu.Unlock()
				return
			}
		}
		c.mu.Unlock()
		c.AfterFunc(func() { v.Close() })
		return
	}
	c.mu.Unlock()
	v.Close()
}

// Ignore ends Heed, and reports whether the exchange goes on.
func (c *call) Ignore(v io.Closer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.heeded {
		if c.heeded[i] == v {
			c.heeded[i] = nil
		}
	}
	return c.err == nil
}

// AfterFunc has f called when the exchange is cancelled (the method that
// context.AfterFunc and derived contexts look for).
func (c *call) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	p := &f
	c.after = append(c.after, p)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.after, p)
		if i < 0 {
			return false
		}
		c.after = slices.Delete(c.after, i, i+1)
		return true
	}
}

// untouched reports whether nobody can wait for the end of the exchange.
func (c *call) untouched() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && c.done == nil && len(c.after) == 0 && c.heeded == [2]io.Closer{}
}

// withdrawn is the end of an exchange whose client said why it wants no answer.
type withdrawn struct{ reason string }

func (w *withdrawn) Error() string        { return w.reason }
func (w *withdrawn) Is(target error) bool { return target == context.Canceled }

// cancel ends the exchange: nobody waits for its answer any longer.
func (c *call) cancel() { c.cancelFor(context.Canceled) }

func (c *call) cancelFor(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = why
	if c.done != nil {
		close(c.done)
	}
	for i, v := range c.heeded {
		if v != nil {
			v.Close()
		}
		c.heeded[i] = nil
	}
	for _, f := range c.after {
		go (*f)()
	}
	c.after = nil
}

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
			return "", noMethod(m)
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
	if len(m.Raw) > maxSaid { // else there is no need to look
		info, caps := m.Meta(mcp.MetaClientInfo), m.Meta(mcp.MetaCapabilities)
		if err := errSaidMuch(mcp.MetaClientInfo+" and "+mcp.MetaCapabilities+" in params._meta", len(info.Of(m.Raw)), len(caps.Of(m.Raw))); err != nil {
			return "", err
		}
	}
	if m.Kind == mcp.Notification {
		return "", nil
	}
	if !info.In(mcp.Modern) {
		return "", noMethod(m)
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
	if level := m.Meta(mcp.MetaLogLevel); level.OK() && !logLevel(mcp.String(level.Of(m.Raw))) {
		return "", edge.Errorf(edge.Params, "check", "params._meta.%s is no log level", mcp.MetaLogLevel)
	}
	for _, p := range h.params {
		if _, err := mcp.DecodeHeader(p.Value); err != nil {
			return "", &edge.Error{Kind: edge.Mismatch, Op: "check", Err: errors.New(p.Name + " has " + err.Error())}
		}
	}
	return name, nil
}

// logLevel reports whether s is a level (RFC 5424 §6.2.1, by the names of MCP).
func logLevel(s string) bool {
	switch s {
	case "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency":
		return true
	}
	return false
}

func noMethod(m *mcp.Message) error {
	return edge.Errorf(edge.NoMethod, "check", "method not found: %s", printable(m.Method))
}

func badVersion(requested string) error {
	data := []byte(`{"supported":[`)
	for i, v := range mcp.Versions() {
		if i > 0 {
			data = append(data, ',')
		}
		data = mcp.AppendString(data, v)
	}
	data = mcp.AppendString(append(data, `],"requested":`...), printable(requested))
	return &edge.Error{Kind: edge.Version, Op: "check", Data: append(data, '}'),
		Err: errors.New("unsupported protocol version; supported are 2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05")}
}

func mismatch(header, headerValue, bodyValue string) error {
	data := mcp.AppendString([]byte(`{"header":`), header)
	data = mcp.AppendString(append(data, `,"headerValue":`...), printable(headerValue))
	data = mcp.AppendString(append(data, `,"bodyValue":`...), printable(bodyValue))
	text := "header " + header + " does not match the body"
	if headerValue == "" {
		text = "header " + header + " is missing"
	}
	return &edge.Error{Kind: edge.Mismatch, Op: "check", Data: append(data, '}'), Err: errors.New(text)}
}

// printable bounds what of a client's own words is told back to it.
func printable(s string) string {
	if len(s) > 128 {
		return strconv.Quote(s[:128]) + "…"
	}
	return s
}
