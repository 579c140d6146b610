package backend

import (
	"context"
	"io"
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// toLegacy sends a message to a backend of the legacy era.
func (b *Backend) toLegacy(ctx context.Context, x *edge.Exchange, in *Introduction) (*edge.Response, error) {
	if x.Era == mcp.Modern {
		return b.modernClient(ctx, x, in)
	}
	s, err := b.sessionOf(x.Session, in)
	if err != nil {
		return nil, err
	}
	m := x.Request
	if m.Kind == mcp.Notification {
		return nil, s.notify(ctx, m)
	}
	answer, err := s.call(ctx, x)
	if err != nil {
		return nil, err
	}
	if answer.Status = 200; answer.Kind == mcp.Result {
		s.remember(m)
		if m.Method == "logging/setLevel" {
			x.Session.SetLogLevel(m.Text("level"))
		}
	}
	return answer, nil
}

// sessionOf returns the upstream session of a client session.
func (b *Backend) sessionOf(client *edge.Session, in *Introduction) (*session, error) {
	c := client.Attach(b, func() io.Closer { return newSession(b, in.SSE, client, relayed(client)) })
	s, ok := c.(*session)
	if !ok {
		return nil, edge.Errorf(edge.NoSession, "session", "Session not found")
	}
	if s.sse != in.SSE { // the backend has changed its transport
		client.Detach(b, s)
		s.Close()
		return b.sessionOf(client, in)
	}
	return s, nil
}

// Listen passes on to out what the backend sends a legacy client outside its
// calls, until ctx ends.
func (b *Backend) Listen(ctx context.Context, client *edge.Session, out edge.Client) error {
	in, err := b.Introduced(ctx)
	if err != nil {
		return err
	}
	if in.Era == mcp.Modern {
		return b.listenModern(ctx, client, out)
	}
	s, err := b.sessionOf(client, in)
	if err != nil {
		return err
	}
	return b.named(s.listen(ctx, out))
}

// modernClient carries a modern client's message to a legacy backend, over a
// session that clients share: what the client says with each request goes, the
// results say what a modern server's would.
func (b *Backend) modernClient(ctx context.Context, x *edge.Exchange, in *Introduction) (*edge.Response, error) {
	m := x.Request
	if m.Kind == mcp.Notification {
		return nil, nil
	}
	if m.Method == "subscriptions/listen" {
		return b.subscribe(ctx, x, in)
	}
	level := m.MetaText(mcp.MetaLogLevel)
	if mcp.Lookup(in.Capabilities, "logging") == nil {
		level = ""
	}
	s, err := b.borrow(ctx, in, level)
	if err != nil {
		return nil, err
	}
	defer b.giveBack(s, level)
	answer, err := s.call(ctx, x)
	if err != nil {
		return nil, err
	}
	out := x.Answer()
	if err := out.Decode(mcp.ResultToModern(nil, &answer.Message, m.Method, m.IDText())); err != nil {
		return nil, nonsense(err)
	}
	if out.Status = 200; out.Kind == mcp.Failure {
		out.Status = mcp.Status(out.Code())
	}
	return out, nil
}

// pooled is the sessions of the edge's own that have one log level.
type pooled struct {
	mu   sync.Mutex
	free []*session
	all  int
}

// maxPooled bounds the sessions with one log level; a call beyond it waits for
// no place but is told that there is none.
const maxPooled = 256

func (p *pooled) close() {
	p.mu.Lock()
	free := p.free
	p.free = nil
	p.mu.Unlock()
	for _, s := range free {
		s.Close()
	}
}

// adopt makes a session the one that clients without a session and without a
// log level share.
func (b *Backend) adopt(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shared == nil {
		s.Close()
		return
	}
	old := b.shared[""]
	b.shared[""] = &pooled{free: []*session{s}, all: 1}
	if old != nil {
		old.close()
	}
}

// borrow returns a session of the edge's own. All calls without a log level
// share one; a session with a level carries one call at a time, since nothing
// says whose its messages would be.
func (b *Backend) borrow(ctx context.Context, in *Introduction, level string) (*session, error) {
	b.mu.Lock()
	if b.shared == nil {
		b.mu.Unlock()
		return nil, edge.Errorf(edge.Unavailable, "session", "the backend is closed")
	}
	p := b.shared[level]
	if p == nil {
		p = &pooled{}
		b.shared[level] = p
	}
	b.mu.Unlock()
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		if level != "" {
			p.free = p.free[:n-1]
		}
		p.mu.Unlock()
		if s.sse == in.SSE {
			return s, nil
		}
		p.mu.Lock()
		p.free, p.all = nil, 0 // the backend has changed its transport
	}
	if p.all >= maxPooled {
		p.mu.Unlock()
		return nil, edge.Errorf(edge.Overload, "session", "all %d sessions for log level %q are in use", maxPooled, level)
	}
	s := newSession(b, in.SSE, nil, nil)
	s.level = level
	if p.all++; level == "" {
		p.free = []*session{s}
	}
	p.mu.Unlock()
	return s, nil
}

func (b *Backend) giveBack(s *session, level string) {
	if level == "" {
		return
	}
	b.mu.Lock()
	p := b.shared[level]
	b.mu.Unlock()
	if p == nil {
		s.Close()
		return
	}
	p.mu.Lock()
	p.free = append(p.free, s)
	p.mu.Unlock()
}
