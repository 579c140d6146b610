package backend

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/wire"
)

// sseLink is the older transport (2024-11-05, HTTP with SSE): one stream on
// which everything comes, and an endpoint that takes what is sent.
type sseLink struct {
	b        *Backend
	endpoint *peer
	life     context.Context // ends with the stream
	end      context.CancelFunc
	done     chan struct{} // closed when the stream has ended
	met      atomic.Bool   // the server has answered initialize
	left     atomic.Bool   // nothing that still comes is taken
}

// dialSSE opens the stream and waits for the endpoint.
func (s *session) dialSSE(ctx context.Context) (*sseLink, error) {
	life, end := context.WithCancel(s.b.life)
	stop := context.AfterFunc(ctx, end)
	o := &outgoing{method: "GET", silence: s.b.Silence, x: s.chosen.Load()}
	if o.x != nil {
		o.forward = o.x.Forward
	}
	r, _, err := s.b.peer.send(life, o)
	if err != nil {
		end()
		return nil, err
	}
	if r.status != 200 || !r.sse {
		refused := r.refuses()
		refused.body = r.beginning()
		end()
		return nil, refused
	}
	events := mcp.NewEventReader(r.stream(), s.b.MaxMessage)
	e, err := events.Next()
	for err == nil && e.Type != "endpoint" {
		e, err = events.Next()
	}
	if err != nil {
		err = r.failed(life, err)
		end()
		return nil, err
	}
	endpoint, err := s.b.sameOrigin(string(e.Data))
	if err != nil || !stop() {
		r.close()
		end()
		if err == nil {
			err = edge.Errorf(edge.Gone, "initialize", "%w", context.Cause(ctx))
		}
		return nil, err
	}
	l := &sseLink{b: s.b, endpoint: endpoint, life: life, end: end, done: make(chan struct{})}
	r.ask.silence = 0
	r.wait()
	on := &link{sse: l}
	s.b.spawn("events", func() {
		defer end()
		defer close(l.done)
		for {
			e, err := events.Next()
			if err != nil {
				_ = r.failed(life, err)
				return
			}
			if e.Type != "message" {
				continue
			}
			for _, m := range s.messagesOf(life, on, e.Data, s.unreadable) {
				s.incoming(life, l, m)
			}
		}
	})
	return l, nil
}

// sameOrigin reads the data of an endpoint event. Only the origin of the
// stream itself will do: a backend does not choose whom else the edge talks to.
func (b *Backend) sameOrigin(data string) (*peer, error) {
	base := b.peer.address()
	u, err := base.Parse(strings.TrimSpace(data))
	if err != nil || wire.Origin(u) != wire.Origin(base) || u.User != nil {
		return nil, edge.Errorf(edge.Unavailable, "endpoint", "named an endpoint of another origin")
	}
	u.Host = base.Host
	return b.peer.at(u), nil
}

// incoming takes a message from the stream. One that has been let go may bring
// again what comes on the next.
func (s *session) incoming(ctx context.Context, l *sseLink, m *mcp.Message) {
	if l.left.Load() {
		return
	}
	if m.Kind == mcp.Request && m.Method != "ping" && !l.met.Load() {
		s.b.stray() // no server asks a client that it has not met
		return
	}
	if m.Kind == mcp.Request || m.Kind == mcp.Notification {
		_ = s.before(ctx, &link{sse: l}, nil, m)
		return
	}
	s.mu.Lock()
	c := s.callOf(m.IDText())
	s.mu.Unlock()
	if c == nil {
		if m.ID.OK() && !s.gave(m.IDText()) {
			s.b.stray()
		}
		return
	}
	select {
	case c.answer <- m:
	default: // it has an answer already
	}
}

// unreadable takes what is no message: nobody waits longer for an answer that it was to be.
func (s *session) unreadable(text []byte) {
	_, id := mcp.Begins(text) // some say it last
	s.mu.Lock()
	c := s.callOf(id)
	s.mu.Unlock()
	if c != nil {
		select {
		case c.answer <- nil:
		default: // it has an answer already
		}
	}
}

// errStreamEnded says that no answer can come any more.
var errStreamEnded = edge.Errorf(edge.Unavailable, "call", "ended its stream before the answer")

// refusesWithin is how long after the end of a stream its endpoint may take to say that it
// is gone.
const refusesWithin = 2 * time.Second

// post sends a message, for the exchange x or, when that is nil, for the edge
// itself. It waits little longer than the stream lasts: a server that was started anew may
// know nothing of the endpoint, and say nothing.
func (l *sseLink) post(ctx context.Context, x *edge.Exchange, body []byte) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.life, func() {
		late := time.AfterFunc(refusesWithin, func() { cancel(errStreamEnded) })
		context.AfterFunc(ctx, func() { late.Stop() })
	})()
	o := &outgoing{method: "POST", body: body, x: x, silence: l.b.Silence, until: time.Now().Add(l.b.Cap)}
	if x != nil {
		o.forward, o.silence = x.Forward, l.b.silence(x.Client)
	}
	_, err := l.endpoint.converse(ctx, o, nil, nil, func(*mcp.Message, *reply) {})
	return err
}

func (l *sseLink) close() {
	l.left.Store(true)
	l.end()
}

// read returns an answer; nil is one that cannot be read.
func read(m *mcp.Message) (*mcp.Message, error) {
	if m == nil {
		return nil, nonsense(&mcp.EnvelopeError{What: "what is no message"})
	}
	return m, nil
}

// overSSE sends a request and waits for its answer on the stream.
func (s *session) overSSE(ctx context.Context, l *link, c *call, x *edge.Exchange, body []byte) (*mcp.Message, error) {
	if l.sse.life.Err() != nil { // nothing has been sent
		s.drop(l)
		return nil, errLost
	}
	c.answer = make(chan *mcp.Message, 1)
	s.add(c)
	defer s.remove(c)
	if err := l.sse.post(ctx, x, body); err != nil {
		var r *refusal
		if errors.As(err, &r) && r.lostSession() {
			return nil, errLost
		}
		if errors.As(err, &r) {
			return nil, r.verdict()
		}
		switch {
		case ctx.Err() != nil:
			s.cancelled(l, c, context.Cause(ctx)) // the server may have it all the same
		case l.sse.life.Err() != nil:
			s.drop(l)
			return nil, errStreamEnded
		}
		return nil, err
	}
	begun := time.Now()
	c.heard.Store(begun.UnixNano())
	allowed := s.b.silence(c.client)
	silence := time.NewTimer(min(allowed, s.b.Cap))
	defer silence.Stop()
	for {
		select {
		case m := <-c.answer:
			return read(m)
		case <-l.sse.done:
			s.drop(l)
			select {
			case m := <-c.answer: // it was the last thing on the stream
				return read(m)
			default:
			}
			return nil, errStreamEnded
		case <-ctx.Done():
			s.cancelled(l, c, context.Cause(ctx))
			return nil, edge.Errorf(edge.Gone, "call", "%w", context.Cause(ctx))
		case now := <-silence.C:
			left := time.Unix(0, c.heard.Load()).Add(allowed).Sub(now)
			if c.waits() {
				left = allowed
			}
			if now.Sub(begun) >= s.b.Cap || left <= 0 {
				s.cancelled(l, c, errors.New("timed out"))
				return nil, edge.Errorf(edge.Timeout, "call", "%s without a word", allowed)
			}
			silence.Reset(min(left, s.b.Cap-now.Sub(begun)))
		}
	}
}
