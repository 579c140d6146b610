package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// How a session at a legacy backend begins: one introduction, which whoever comes meanwhile
// waits for.

// link is a session that the server knows.
type link struct {
	id      string // Mcp-Session-Id; "" when the server gave none
	version string
	sse     *sseLink    // the stream and the endpoint, over HTTP with SSE
	lines   *lines      // the stream to a local server
	early   bool        // which was opened before, and is not the session's to close
	met     atomic.Bool // the server has answered initialize

	over chan struct{} // closed when lines have ended; nil without them
}

// ended returns what is closed when the one stream on which everything comes has ended; nil
// where there is no such stream.
func (l *link) ended() <-chan struct{} {
	if l.sse != nil {
		return l.sse.done
	}
	return l.over
}

// ready opens a session that nobody has used yet, and returns what the server
// said. Later on nobody asks for that: the session does not keep it.
func (s *session) ready(ctx context.Context) (*Introduction, error) {
	in := new(Introduction)
	if _, err := s.linkFor(ctx, in); err != nil {
		return nil, err
	}
	return in, nil
}

// link returns the session as the server knows it, and opens it when it is not
// open.
func (s *session) link(ctx context.Context) (*link, error) { return s.linkFor(ctx, nil) }

// linkFor is link that leaves what the server says at the opening in said; nil
// for nobody to know.
func (s *session) linkFor(ctx context.Context, said *Introduction) (*link, error) {
	if l := s.live.Load(); l != nil {
		return l, nil
	}
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, edge.Errorf(edge.Gone, "initialize", "%w", context.Cause(ctx))
	}
	if l := s.live.Load(); l != nil {
		return l, nil
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil, edge.Errorf(edge.Gone, "initialize", "the session has ended")
	}
	if s.lost.Load() {
		return nil, errProcessOver
	}
	l, err := s.open(ctx, said)
	if err != nil {
		return nil, err
	}
	s.live.Store(l)
	if l.lines != nil && l.lines.dead() {
		s.drop(l)
	}
	s.b.bridge.enter(s)
	s.mu.Lock()
	closed = s.closed
	if s.own && !closed && s.ownEnd == nil {
		s.ownEnd = s.b.ownStream(s)
	}
	s.mu.Unlock()
	if closed {
		s.b.bridge.leave(s)
		s.leave(l)
		return nil, edge.Errorf(edge.Gone, "initialize", "the session has ended")
	}
	if s.client != nil && s.b.Opened != nil {
		s.b.Opened(s.client)
	}
	return l, nil
}

// open introduces the edge: initialize, initialized, and whatever the session
// had set up before the server lost it. What the server says goes to said, unless
// that is nil.
func (s *session) open(ctx context.Context, said *Introduction) (*link, error) {
	l := &link{}
	if s.sse {
		sse, err := s.dialSSE(ctx)
		if err != nil {
			return nil, err
		}
		l.sse = sse
	}
	if s.b.lined != nil {
		at, err := s.openLocal(ctx, l)
		if err != nil {
			return nil, err
		}
		l.lines = at
	}
	version, info := mcp.V2511, s.b.Info
	if s.sse {
		version = mcp.V2024
	}
	if s.client != nil {
		version = s.client.Version
		if s.client.Info != nil {
			info = s.client.Info
		}
	}
	params := mcp.AppendString([]byte(`{"protocolVersion":`), version)
	params = append(append(params, `,"capabilities":`...), s.caps...)
	params = append(append(append(params, `,"clientInfo":`...), info...), '}')
	m, header, err := s.roundTrip(ctx, l, "initialize", params)
	if err == nil && m.Kind == mcp.Failure {
		e := &refusal{status: 400, plain: true, code: m.Code(), text: m.Text("message")}
		if err = e; l.sse == nil { // what was sent with requests over HTTP is known with their answers alone
			e.body = []byte(e.text)
		}
	}
	if err != nil {
		s.leave(l)
		return nil, err
	}
	l.id, l.version = header, m.Text("protocolVersion")
	if l.met.Store(true); l.sse != nil {
		l.sse.met.Store(true)
	}
	if !mcp.LegacyVersion(l.version) {
		s.leave(l)
		return nil, &edge.Error{Kind: edge.Unavailable, Op: "initialize", Err: &revisionError{l.version}}
	}
	if said != nil {
		*said = Introduction{
			Era:          mcp.Legacy,
			SSE:          s.sse,
			Version:      l.version,
			Capabilities: slices.Clone(m.Get("capabilities").Of(m.Raw)),
			Instructions: slices.Clone(m.Get("instructions").Of(m.Raw)),
			Info:         slices.Clone(m.Get("serverInfo").Of(m.Raw)),
		}
	}
	if err := s.post(ctx, l, mcp.AppendRequest(nil, nil, "notifications/initialized", nil)); err != nil {
		s.leave(l)
		var r *refusal
		if errors.As(err, &r) {
			r.introduced = true
		}
		return nil, err
	}
	s.mu.Lock()
	level, subs := s.level, s.subs.list()
	s.mu.Unlock()
	if level != "" {
		_, _, err = s.roundTrip(ctx, l, "logging/setLevel", append(mcp.AppendString([]byte(`{"level":`), level), '}'))
	}
	for _, uri := range subs {
		if err == nil {
			_, _, err = s.roundTrip(ctx, l, "resources/subscribe", append(mcp.AppendString([]byte(`{"uri":`), uri), '}'))
		}
	}
	if err != nil {
		s.leave(l)
		return nil, err
	}
	l.early = false
	return l, nil
}

// revisionError says that a server answers initialize with a revision that is not
// of the legacy era.
type revisionError struct{ revision string }

func (e *revisionError) Error() string {
	return fmt.Sprintf("speaks revision %.100q, which the edge does not", e.revision)
}

// roundTrip sends a request of the edge's own. The second result is the
// session id that the answer came with.
func (s *session) roundTrip(ctx context.Context, l *link, method string, params []byte) (*mcp.Message, string, error) {
	if l.lines != nil {
		until := time.Now().Add(s.b.Silence)
		if method == "initialize" {
			until = time.Time{} // the introduction has a clock of its own
		}
		m, err := l.lines.request(ctx, method, params, until)
		return m, "", err
	}
	id := s.number(nil)
	body := mcp.AppendRequest(nil, id, method, params)
	if l.sse != nil {
		m, err := s.overSSE(ctx, l, &call{id: id, method: method}, s.chosen.Load(), body)
		return m, "", err
	}
	o := s.outgoing(l, body)
	o.until, o.opens = time.Now().Add(s.b.Silence), method == "initialize"
	r, _, err := s.b.peer.send(ctx, &o)
	if err != nil {
		return nil, "", err
	}
	given := string(r.c.Head.Session)
	m := new(mcp.Message)
	var e *refusal
	if r.status >= 400 || o.opens {
		e = r.refuses()
	}
	_, err = r.answer(ctx, id, m, func(m *mcp.Message, _ *reply) { _ = s.before(ctx, l, nil, m) })
	if err == nil && e != nil && m.Kind == mcp.Failure {
		e.code, e.text, e.plain = m.Code(), m.Text("message"), e.status < 300
		if e.body = []byte(e.text); e.says(method) {
			err = e
		}
	}
	return m, given, err
}
