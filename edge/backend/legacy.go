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
	if !mcp.SameID(answer.IDText(), m.IDText()) { // the session numbered it
		if err := answer.Decode(mcp.Splice(nil, answer.Raw, answer.WithID(m.IDText()))); err != nil {
			return nil, nonsense(err)
		}
	}
	if answer.Status = 200; answer.Kind == mcp.Result {
		s.remember(m)
		if x.Session.ID == "" {
			b.news.version.Add(1) // the edge's own session has other subscriptions now, perhaps
		}
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
		on := b.on(client.Who())
		if on == nil && len(client.Forward) > 0 {
			on = &edge.Exchange{}
		}
		if on != nil {
			on.Forward = client.Forward
		}
		s.chosen.Store(on)
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

// Notify tells the backend what a client has said at another edge. One that the session has not met
// yet needs no news of it.
func (b *Backend) Notify(ctx context.Context, client *edge.Session, m *mcp.Message) {
	if s, ok := client.Attached(b).(*session); ok {
		_ = s.notify(ctx, m) // one that is away meets the client anew
	}
}

// Listen passes on to out what the backend sends a legacy client outside its
// calls, until ctx ends. It calls opened each time that it begins to hear the
// backend; resumes says that nothing that the backend told before is lost.
func (b *Backend) Listen(ctx context.Context, client *edge.Session, out edge.Client, opened func(resumes bool)) error {
	return b.listen(ctx, client, out, opened, (*session).listen)
}

// Attend is Listen that returns, and goes on without a goroutine, where the
// backend has no stream for what comes outside of calls.
func (b *Backend) Attend(ctx context.Context, client *edge.Session, out edge.Client) error {
	return b.listen(ctx, client, out, func(bool) {}, (*session).attend)
}

func (b *Backend) listen(ctx context.Context, client *edge.Session, out edge.Client, opened func(bool), hear func(*session, context.Context, edge.Client, func(bool)) error) error {
	in, err := b.Introduced(ctx, client.Who())
	if err != nil {
		return err
	}
	if b.lined != nil && client.ID == "" {
		return b.named(b.attendLocal(ctx, client, in, out, opened), false)
	}
	if in.Era == mcp.Modern {
		return b.listenModern(ctx, client, out, opened)
	}
	s, err := b.sessionOf(client, in)
	if err != nil {
		return err
	}
	return b.named(hear(s, ctx, out, opened), false)
}

// modernClient carries a modern client's message to a legacy backend, over a
// pooled session of its principal: what the client says with each request goes,
// the results say what a modern server's would.
func (b *Backend) modernClient(ctx context.Context, x *edge.Exchange, in *Introduction) (*edge.Response, error) {
	m := x.Request
	if m.Kind == mcp.Notification {
		return nil, nil
	}
	if m.Method == "subscriptions/listen" {
		return b.subscribe(ctx, x, in)
	}
	if m.Get("requestState").OK() {
		// A retry of a call that this server knows nothing of must not be a new call.
		return nil, edge.Errorf(edge.Params, "call", "requestState is not valid for this request, or its call is gone")
	}
	if err := b.checkParams(x, principalOf(x.Identity)); err != nil {
		return nil, err
	}
	level := m.MetaText(mcp.MetaLogLevel)
	if mcp.Lookup(in.Capabilities, "logging") == nil {
		level = ""
	}
	caps, said := x.Capabilities, m.Meta(mcp.MetaCapabilities).Of(m.Raw)
	if info := mcp.MethodOf(m.Method); info.Cacheable && !info.Interactive {
		// A server may list what needs a client that can be asked only to one.
		caps = mcp.Askable(said)
	}
	kind := sort{principal: principalOf(x.Identity), level: level, caps: string(caps), apps: mcp.AppsOfHTML(said)}
	if x.Chosen != nil {
		kind.credential = x.Chosen.Name
	}
	p, err := b.lend(ctx, in, kind)
	if err != nil {
		return nil, err
	}
	left := true // until the call has ended at the server, too
	defer func() { b.giveBack(p, left) }()
	answer, err := p.call(ctx, x)
	if left = leaves(err); err != nil {
		return nil, err
	}
	if m.Method == "tools/list" {
		b.params.page(kind.principal, m.Get("cursor").Of(m.Raw), &answer.Message)
	}
	if answer.Code() == mcp.CodeURLElicitation && mcp.MethodOf(m.Method).Interactive {
		return pagesFirst(m, answer)
	}
	if answer.Kind == mcp.Result && answer.Result.Of(answer.Raw)[0] != '{' { // it could not be told its resultType
		return nil, nonsense(&mcp.EnvelopeError{What: "a result that is not an object"})
	}
	out := x.Answer()
	if err := out.Decode(mcp.ResultToModern(nil, &answer.Message, m.Method, m.IDText())); err != nil {
		return nil, nonsense(err)
	}
	if out.Status = 200; out.Kind == mcp.Failure {
		out.Status = mcp.Status(m.Method, out.Code())
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
	if err := PagesRefused(m.Get("inputResponses").Of(m.Raw)); err != nil {
		return nil, err
	}
	return result(m, required), nil
}

// PagesRefused is the error of a call that needs pages opened where the answers to that, JSON
// text of inputResponses, refuse one: who says no is not asked again. nil where none does.
func PagesRefused(answers []byte) error {
	for _, a := range mcp.Members(answers) {
		if mcp.String(mcp.Lookup(a.Value, "action")) != "accept" {
			return edge.Errorf(edge.Params, "call", "the user did not open the page that this call needs")
		}
	}
	return nil
}
