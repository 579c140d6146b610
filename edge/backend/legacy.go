package backend

import (
	"context"
	"errors"
	"io"

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
	s.choose(x)
	m := x.Request
	if m.Kind == mcp.Notification {
		return nil, s.notify(ctx, m)
	}
	undo := func() {}
	if m.Method == "resources/subscribe" {
		if undo, err = s.subscribe(ctx, m.Text("uri")); err != nil {
			return nil, err
		}
	}
	answer, err := s.call(ctx, x)
	if err != nil || answer.Kind != mcp.Result {
		undo()
	}
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
	c := client.Attach(b, func() io.Closer {
		s := newSession(b, in.SSE, client, relayed(client))
		if mcp.Lookup(in.Capabilities, "logging") != nil {
			s.level = client.LogLevel()
		}
		return s
	})
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

// SetLevel has the backend log for a client's session from a level on, where it
// logs at all. One that the session has not met yet is told when it does; a
// modern one with each call.
func (b *Backend) SetLevel(ctx context.Context, client *edge.Session, level string) {
	in := b.Known()
	if in == nil || in.Era == mcp.Modern || mcp.Lookup(in.Capabilities, "logging") == nil {
		return
	}
	s, ok := client.Attached(b).(*session)
	if !ok {
		return
	}
	s.mu.Lock()
	s.level = level
	s.mu.Unlock()
	if l := s.live.Load(); l != nil {
		_, _, _ = s.roundTrip(ctx, l, "logging/setLevel", append(mcp.AppendString([]byte(`{"level":`), level), '}')) // a session that is lost learns it when it is opened anew
	}
}

// Listen passes on to out what the backend sends a legacy client outside its
// calls, until ctx ends.
func (b *Backend) Listen(ctx context.Context, client *edge.Session, out edge.Client) error {
	return b.listen(ctx, client, out, (*session).listen)
}

// Attend is Listen that returns, and goes on without a goroutine, where the
// backend has no stream for what comes outside of calls.
func (b *Backend) Attend(ctx context.Context, client *edge.Session, out edge.Client) error {
	return b.listen(ctx, client, out, (*session).attend)
}

func (b *Backend) listen(ctx context.Context, client *edge.Session, out edge.Client, hear func(*session, context.Context, edge.Client) error) error {
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
	return b.named(hear(s, ctx, out))
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
	if err := b.checkParams(x); err != nil {
		return nil, err
	}
	level := m.MetaText(mcp.MetaLogLevel)
	if mcp.Lookup(in.Capabilities, "logging") == nil {
		level = ""
	}
	caps := x.Capabilities
	if info := mcp.MethodOf(m.Method); info.Cacheable && !info.Interactive {
		// A server may list what needs a client that can be asked only to one.
		caps = mcp.Askable(m.Meta(mcp.MetaCapabilities).Of(m.Raw))
	}
	kind := sort{level: level, caps: string(caps)}
	if x.Chosen != nil {
		kind.credential = x.Chosen.Name
	}
	s, err := b.borrow(in, kind)
	if err != nil {
		return nil, err
	}
	defer b.giveBack(s, kind)
	answer, err := s.call(ctx, x)
	if err != nil {
		return nil, err
	}
	if m.Method == "tools/list" {
		b.noteParams(&answer.Message)
	}
	if answer.Code() == mcp.CodeURLElicitation && mcp.MethodOf(m.Method).Interactive {
		return pagesFirst(m, answer)
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

// pagesFirst is what a modern client hears in place of the error by which a
// legacy server has pages opened before a call; the call comes again after.
func pagesFirst(m *mcp.Message, answer *edge.Response) (*edge.Response, error) {
	required := mcp.PagesRequired(&answer.Message)
	if required == nil {
		return nil, edge.Errorf(edge.Unavailable, "call", "wants pages opened that are none")
	}
	if !mcp.Can(m.Meta(mcp.MetaCapabilities).Of(m.Raw), "elicitation/create", []byte(`{"mode":"url"}`)) {
		return nil, &edge.Error{
			Kind: edge.Capability, Op: "call", Err: errors.New("this call needs a client that opens pages"),
			Data: []byte(`{"requiredCapabilities":{"elicitation":{"url":{}}}}`),
		}
	}
	return result(m, required), nil
}

// sort is what sets one session of the edge's own apart from another.
type sort struct {
	level string // the log level set; one of those that MCP names, or ""
	caps  string // what is declared to the server, in canonical form

	credential string // that a program chose; "" for the configured one
}

// alone reports whether such a session carries one call at a time: nothing
// else would say whose call a message or a question of the server belongs to.
func (k sort) alone() bool { return k.level != "" || k.caps != "" }

// pooled is the sessions of one sort.
type pooled struct {
	free []*session
	all  int
}

// maxPooled bounds the sessions of one sort; a call beyond it waits for no
// place but is told that there is none.
const maxPooled = 256

// adopt makes a session the one that clients share whose calls are plain.
func (b *Backend) adopt(s *session) {
	b.mu.Lock()
	old := b.shared[sort{}]
	open := b.shared != nil
	if open {
		b.shared[sort{}] = &pooled{free: []*session{s}, all: 1}
	}
	b.mu.Unlock()
	if !open {
		s.Close()
	}
	if old != nil {
		for _, s := range old.free {
			s.Close()
		}
	}
}

// borrow returns a session of the edge's own.
func (b *Backend) borrow(in *Introduction, kind sort) (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shared == nil {
		return nil, edge.Errorf(edge.Unavailable, "session", "the backend is closed")
	}
	p := b.shared[kind]
	if p == nil {
		p = &pooled{}
		b.shared[kind] = p
	}
	for n := len(p.free); n > 0; n = len(p.free) {
		s := p.free[n-1]
		if s.sse != in.SSE { // the backend has changed its transport
			p.free = p.free[:n-1]
			p.all--
			b.spawn("session", func() { s.Close() })
			continue
		}
		if kind.alone() {
			p.free = p.free[:n-1]
		}
		return s, nil
	}
	if p.all >= maxPooled {
		return nil, edge.Errorf(edge.Overload, "session", "all %d sessions of this sort with the backend are in use", maxPooled)
	}
	var caps []byte
	if kind.caps != "" {
		caps = []byte(kind.caps)
	}
	s := newSession(b, in.SSE, nil, caps)
	s.level = kind.level
	if kind.caps != "" && kind.caps != "{}" {
		s.hearOwn() // a server may ask beside the call, on the stream of the session
	}
	if p.all++; !kind.alone() {
		p.free = append(p.free, s)
	}
	return s, nil
}

// giveBack returns a session to those that wait for a call.
func (b *Backend) giveBack(s *session, kind sort) {
	if !kind.alone() {
		return
	}
	b.mu.Lock()
	p := b.shared[kind]
	if p != nil {
		p.free = append(p.free, s)
	}
	b.mu.Unlock()
	if p == nil {
		s.Close()
	}
}
