package backend

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Local is a server that is reached by no address: processes of this machine, or one behind
// a socket. Whoever keeps it starts and ends them; the backend speaks MCP with them. It is
// OverLines or OverHTTP, and safe for concurrent use.
type Local interface {
	edge.Collector

	// Introduced is told each time that it was found out what the server speaks, or why it
	// was not. It returns that without the secrets that the server was started with.
	Introduced(era mcp.Era, err error) error

	// Well returns nil while the server can be called, edge.ErrRests where a call would start
	// it, and else why it cannot. It starts nothing.
	Well() error

	// Close ends all processes, and returns when they have ended.
	Close() error
}

// OverLines is a local server that is reached by streams of lines.
type OverLines interface {
	Local

	// Open gives a stream to the server for an owner, and starts a process for it where
	// it needs one. Errors are an *edge.Error: of kind Overload where there may be no
	// further one, of kind Unavailable where it cannot be started, or not yet.
	Open(context.Context, *edge.Owner) (edge.Stream, error)

	// Introduction is how long a server may take from its start until it has said what
	// it speaks.
	Introduction() time.Duration

	// Remembered returns what the server turned out to speak before, also in another
	// life of the edge, and false when nobody knows.
	Remembered() (era mcp.Era, ok bool)

	// Pool is how many processes one principal's clients without a session may have.
	Pool() int

	// Shared reports whether all streams are to one process.
	Shared() bool
}

// OverHTTP is a local server that speaks HTTP.
type OverHTTP interface {
	Local

	// Dial connects to the server, and waits for one that starts. Errors are as of Open; while
	// the server rests nothing but a call has it started. port is where it listens; 0 where
	// nobody knows.
	Dial(context.Context) (c net.Conn, port int, err error)

	// Call notes that a call begins, until over is called: a server that is silent
	// meanwhile may be at work.
	Call() (over func())
}

// maxLocalSessions is how many sessions there may be with a local server over all
// principals; how many processes that may take is the server's to say.
const maxLocalSessions = 1 << 16

// most returns how many connections, or sessions, the backend may have.
func (b *Backend) most() int {
	if b.lined != nil {
		return maxLocalSessions
	}
	return b.peer.pool.Most()
}

// ownerOf is for whom processes are started: "" for the edge itself, and for clients whom it
// takes all for one.
func ownerOf(id *edge.Identity) string {
	if id == nil || oneForAll(id.Issuer) {
		return ""
	}
	return id.Principal()
}

// ownerOfSession is ownerOf for a client's session; "" for one of the edge itself.
func ownerOfSession(client *edge.Session) string {
	if who := client.Who(); who != nil || client.ID == "" {
		return ownerOf(who)
	}
	// Whose it is was noted at its beginning.
	if issuer, _, _ := strings.Cut(client.Owner, "\x00"); oneForAll(issuer) {
		return ""
	}
	return client.Owner
}

// oneForAll reports whether an issuer is that of the one identity that a server takes all of
// its clients for.
func oneForAll(issuer string) bool {
	return issuer == edge.AnonymousIssuer || issuer == edge.LocalIssuer
}

// discoverLocal is how long a local server may take to answer server/discover until it
// is asked for initialize as well.
const discoverLocal = 2 * time.Second

// detectLocal finds out what a local server speaks: the modern era first, and on the same
// stream the legacy one after any answer that is not modern, or none. A server that ends
// instead is started once more, and asked for initialize alone (2026-07-28,
// basic/transports/stdio; server/discover, detection).
func (b *Backend) detectLocal(ctx context.Context) (*Introduction, error) {
	in, err := b.inTime(ctx, b.detectLines)
	switch {
	case err == nil:
		_ = b.lined.Introduced(in.Era, nil)
	case edge.KindOf(err) != edge.Gone && edge.KindOf(err) != edge.Overload:
		err = b.lined.Introduced(mcp.Legacy, err)
	}
	return in, err
}

// inTime has a local server introduce itself within the time that it may take as things are.
func (b *Backend) inTime(ctx context.Context, introduce func(context.Context) (*Introduction, error)) (*Introduction, error) {
	within := b.lined.Introduction()
	ctx, cancel := context.WithTimeoutCause(ctx, within, edge.Errorf(edge.Timeout, "introduction", "has not introduced itself within %s", within))
	defer cancel()
	in, err := introduce(ctx)
	if err != nil && context.Cause(ctx) != nil && edge.KindOf(context.Cause(ctx)) == edge.Timeout {
		err = context.Cause(ctx)
	}
	return in, err
}

// dialServed connects to a local server that speaks HTTP, and notes where it listens.
func (b *Backend) dialServed(ctx context.Context) (net.Conn, error) {
	c, port, err := b.served.Dial(ctx)
	if err == nil && port != 0 && b.peer.address().Port() != strconv.Itoa(port) {
		u := *b.peer.url
		u.Host = net.JoinHostPort(u.Hostname(), strconv.Itoa(port))
		b.peer.served.Store(&u) // a server that checks Host is asked for its own
	}
	return c, err
}

// detectServed is detect of a local server that speaks HTTP, which it waits for.
func (b *Backend) detectServed(ctx context.Context, on *edge.Exchange) (*Introduction, error) {
	c, err := b.dialServed(ctx)
	if err != nil {
		return nil, err
	}
	_ = c.Close()
	in, err := b.detectHTTP(ctx, on)
	switch {
	case err == nil:
		_ = b.served.Introduced(in.Era, nil)
	case b.wantsUser(err): // it answers to users alone, so it lives
		_ = b.served.Introduced(mcp.Legacy, nil)
	case ctx.Err() == nil:
		err = b.served.Introduced(mcp.Legacy, err)
	}
	return in, err
}

func (b *Backend) detectLines(ctx context.Context) (*Introduction, error) {
	era, known := b.lined.Remembered()
	legacy := known && era == mcp.Legacy
	l := newLane(b, "", nil)
	at, err := l.open(ctx, !legacy)
	if err != nil {
		return nil, err
	}
	// What its first start had to wait for is there: from here the server has a server's time.
	return b.inTime(ctx, func(ctx context.Context) (*Introduction, error) {
		if legacy {
			return b.initializeLocal(ctx, at)
		}
		return b.detectLane(ctx, l, at)
	})
}

// detectLane is detectLines of a server to which a stream is open.
func (b *Backend) detectLane(ctx context.Context, l *lane, at *lines) (*Introduction, error) {
	in, err := at.discover(ctx, discoverLocal)
	if in != nil {
		b.lanes.keep(b, l)
		return in, nil
	}
	if err == nil || !at.dead() {
		in, err = b.initializeLocal(ctx, at)
		if err == nil || !at.dead() || errors.As(err, new(*refusal)) {
			return in, err
		}
	}
	at.close()
	if ctx.Err() != nil {
		return nil, edge.Errorf(edge.Gone, "introduction", "%w", context.Cause(ctx))
	}
	return b.initializeLocal(ctx, nil)
}

// initializeLocal introduces the edge to a legacy server, over a stream that is open or,
// where it is nil, over a new one. A modern server that was slow says so now.
func (b *Backend) initializeLocal(ctx context.Context, at *lines) (*Introduction, error) {
	s := newSession(b, false, nil, nil)
	s.early = at
	in, err := s.ready(ctx)
	if err == nil {
		b.adopt(s)
		return in, nil
	}
	var r *refusal
	if errors.As(err, &r) && at != nil && !at.dead() {
		if in, _ := at.discover(ctx, discoverWithin); in != nil {
			s.early = nil
			at.close() // its place is not the edge's
			return in, nil
		}
	}
	s.Close()
	if at != nil {
		at.close()
	}
	return nil, err
}

// discover asks a server of the modern era what it can do; nil for one that says nothing of
// that within a time, or that is of another.
func (l *lines) discover(ctx context.Context, within time.Duration) (*Introduction, error) {
	params := mcp.Change(nil, nil, mcp.Raw("_meta", mcp.Change(nil, nil, mcp.Caller{Info: l.b.Info}.Members()...)))
	m, err := l.request(ctx, "server/discover", params, time.Now().Add(within))
	switch {
	case err != nil:
		return nil, err
	case m.Code() == mcp.CodeVersion && slices.Contains(versions(mcp.Lookup(m.Get("data").Of(m.Raw), "supported")), mcp.V2607):
		return modernIntroduction(), nil
	case m.Kind != mcp.Result || !slices.Contains(versions(m.Get("supportedVersions").Of(m.Raw)), mcp.V2607):
		return nil, nil
	}
	return introductionOf(m), nil
}

// openLocal opens the stream of a session.
func (s *session) openLocal(ctx context.Context, l *link) (*lines, error) {
	at := s.early
	if at == nil {
		at = &lines{}
		s.serve(at, l)
		h := edge.Owner{Principal: s.owner(), Session: s.isClients()}
		if err := s.b.openLines(ctx, at, h); err != nil {
			return nil, err
		}
	} else {
		s.early, l.early = nil, true
		s.serve(at, l)
	}
	return at, nil
}

// serve has the session hear what comes on a stream.
func (s *session) serve(at *lines, l *link) {
	l.over = make(chan struct{})
	over := sync.OnceFunc(func() { close(l.over) })
	at.hears.Store(&hears{
		beside: func(m *mcp.Message) {
			if m.Kind == mcp.Request && m.Method != "ping" && !l.met.Load() {
				return // no server asks a client that it has not met
			}
			s.b.ears.changed(m)
			if s.client == nil && !s.ear {
				s.b.news.tell(s.who, s, m)
			}
			_ = s.before(s.b.life, l, nil, m)
		},
		ended: func() {
			if s.isClients() {
				s.lost.Store(true)
				s.b.over(s.client)
			}
			s.drop(l)
			over()
		},
		listens: func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.notice != nil && (s.client == nil || s.client.ID != "" || len(s.subs.uris) > 0)
		},
	})
	at.served.Store(s.isClients())
}

// over tells that a client's session has lost its process.
func (b *Backend) over(client *edge.Session) {
	if b.Over != nil {
		b.Over(client)
	}
}

// isClients reports whether the session is that of one client, whose state it has: when
// its process has ended it is over. The edge itself has such as well, and begins another.
func (s *session) isClients() bool { return s.client != nil && s.client.ID != "" }

// several reports whether clients that nothing tells apart have the session together.
func (s *session) several() bool { return s.client != nil && s.client.Several }

// owner is whom the session's stream is for.
func (s *session) owner() string {
	switch {
	case s.client != nil:
		return ownerOfSession(s.client)
	case s.who != principal{} && !oneForAll(s.who.issuer):
		return s.who.issuer + "\x00" + s.who.subject
	}
	return ""
}

// errProcessOver is the error of a client's session whose process has ended.
var errProcessOver = edge.Errorf(edge.NoSession, "session", "Session not found")

// onceOver is once over the stream to a local server.
func (s *session) onceOver(ctx context.Context, l *link, x *edge.Exchange) (*edge.Response, error) {
	if s.client == nil && s.b.news.some.Load() {
		s.follow(ctx, l)
	}
	m, answer := x.Request, x.Answer()
	answer.Status = 200
	w := s.b.newWaiter(&answer.Message)
	defer w.release()
	// What comes beside the answer may be looked at when the call is over: it has memory
	// of its own.
	c := &call{id: bytes.Clone(w.id), method: m.Method, client: x.Client, level: true}
	if t := m.Meta("progressToken"); t.OK() {
		c.token, c.known = bytes.Clone(t.Of(m.Raw)), c.id
	}
	body, edits := m.Raw, []mcp.Edit(nil)
	if x.Era == mcp.Modern {
		c.level, c.alone = m.Meta(mcp.MetaLogLevel).OK(), true
		body = mcp.ToLegacy(nil, m, c.id, c.id)
	} else {
		edits = w.numbered(m)
	}
	w.call = c
	if _, own := x.Client.(edge.NoClient); !own && !l.lines.served.Load() {
		l.lines.served.Store(true)
	}
	s.add(c)
	defer s.remove(c)
	err := l.lines.ask(ctx, w, body, edits, s.b.silence(x.Client), time.Now().Add(s.b.Cap))
	if err == nil {
		if x.Era == mcp.Legacy {
			answer.SetID(m.IDText())
		}
		return answer, nil
	}
	var u *unsent
	switch kind := edge.KindOf(err); {
	case errors.As(err, &u) && kind == edge.Unavailable:
		return nil, errLost
	case errors.As(err, &u):
		return nil, u.error
	case kind == edge.Gone:
		s.cancelled(l, c, context.Cause(ctx))
	case kind == edge.Timeout && ctx.Err() == nil && !l.lines.dead():
		s.cancelled(l, c, errors.New("timed out"))
	}
	return nil, err
}

// only returns the one call under way of a client; nil for none, and where there are
// several; s.mu is held.
func (s *session) only() (one *call) {
	for _, c := range s.calls {
		if c.client == nil {
			continue
		}
		if one != nil {
			return nil
		}
		one = c
	}
	return one
}

// lend is borrow that waits for a session of a local server where the principal's are all
// in use: it may have a few alone.
func (b *Backend) lend(ctx context.Context, in *Introduction, kind sort) (*pooled, error) {
	if b.lined == nil {
		return b.borrow(in, kind)
	}
	limit := time.NewTimer(b.Silence)
	defer limit.Stop()
	for {
		freed := b.freed()
		p, err := b.borrow(in, kind)
		if err == nil || edge.KindOf(err) != edge.Overload {
			return p, err
		}
		select {
		case <-freed:
		case <-limit.C:
			return nil, err
		case <-ctx.Done():
			return nil, edge.Errorf(edge.Gone, "session", "%w", context.Cause(ctx))
		}
	}
}

// freed returns a channel that is closed when a pooled session may have become free.
func (b *Backend) freed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pool.freed == nil {
		b.pool.freed = make(chan struct{})
	}
	return b.pool.freed
}

// attendLocal passes on to out, the edge itself, what a local server says outside of calls,
// until ctx ends: changes by whatever process tells them, and updates of resources by one
// of its own, where it has subscribed to some.
func (b *Backend) attendLocal(ctx context.Context, client *edge.Session, in *Introduction, out edge.Client, opened func(bool)) error {
	if in.Era == mcp.Modern {
		w := b.watcherOf(client)
		if w == nil {
			return errProcessOver
		}
		if b.apart() {
			defer b.news.listens(b.Log, principal{}, &listener{out: out, uris: w.watched, has: w.watches, own: true})()
		}
		var watching sync.WaitGroup
		defer watching.Wait()
		watching.Go(func() {
			defer edge.Contain(b.Log, "listener")
			select {
			case <-ctx.Done():
			case <-w.renew: // there is something to watch
				_ = b.listenModern(ctx, client, out, opened) // it ends with ctx
			}
		})
	} else {
		s, err := b.sessionOf(client, in)
		if err != nil {
			return err
		}
		s.hear(out)
		defer s.stopHearing(out)
		if b.apart() {
			defer b.news.listens(b.Log, principal{}, &listener{out: out, on: s, uris: s.subscribed, has: s.follows, own: true})()
		}
	}
	b.ears.attend(ctx, out)
	return nil
}

// ears are those of the edge itself, which hear of changes from any process: the edge has
// none of its own for that.
type ears struct {
	some atomic.Bool // there are any

	mu  sync.Mutex
	all []edge.Client
}

// attend passes on changes to out until ctx ends. out must be comparable.
func (e *ears) attend(ctx context.Context, out edge.Client) {
	e.mu.Lock()
	e.all = append(e.all, out)
	e.some.Store(true)
	e.mu.Unlock()
	<-ctx.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.Index(e.all, out); i >= 0 {
		e.all = slices.Delete(e.all, i, i+1)
	}
	e.some.Store(len(e.all) > 0)
}

// changed tells the ears of a list that has changed.
func (e *ears) changed(n *mcp.Message) {
	switch n.Method {
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
	default:
		return
	}
	e.mu.Lock()
	all := slices.Clone(e.all)
	e.mu.Unlock()
	for _, out := range all {
		_ = out.Send(n)
	}
}
