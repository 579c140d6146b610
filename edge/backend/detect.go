package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/mcp"
)

// detect finds out what the backend speaks, the modern era first (2026-07-28,
// server/discover, detection).
func (b *Backend) detect(ctx context.Context, on *edge.Exchange) (*Introduction, error) {
	switch {
	case b.lined != nil:
		return b.detectLocal(ctx)
	case b.served != nil:
		return b.detectServed(ctx, on)
	}
	return b.detectHTTP(ctx, on)
}

// detectHTTP is detect of a server that is reached by HTTP.
func (b *Backend) detectHTTP(ctx context.Context, on *edge.Exchange) (*Introduction, error) {
	if b.SSE {
		return b.detectLegacy(ctx, on, true)
	}
	m, err := b.discover(ctx, on)
	var r *refusal
	if err != nil && !errors.As(err, &r) && edge.KindOf(err) != edge.Unavailable && !(edge.KindOf(err) == edge.Timeout && ctx.Err() == nil) {
		return nil, err
	}
	switch {
	case r != nil && (r.status == 401 || r.status == 403 || r.status == 429 || r.status >= 500 && !r.notImplemented()):
		return nil, r.verdict()
	case r != nil && r.code == mcp.CodeVersion:
		v := versions(mcp.Lookup(r.data, "supported"))
		if slices.Contains(v, mcp.V2607) {
			return modernIntroduction(), nil
		}
		if len(v) == 0 { // it does not say which ones it speaks
			return b.legacyFirst(ctx, on)
		}
		if !slices.ContainsFunc(v, mcp.LegacyVersion) {
			return nil, edge.Errorf(edge.Unavailable, "discover", "speaks none of the revisions that the edge speaks, only %q", v)
		}
	case r != nil && r.lacksMethod():
		return b.legacyFirst(ctx, on)
	case r != nil && r.modern():
		return modernIntroduction(), nil
	case err == nil && m.Kind == mcp.Result && slices.Contains(versions(m.Get("supportedVersions").Of(m.Raw)), mcp.V2607):
		return introductionOf(m), nil
	case err != nil && r == nil:
		// The connection failed, or the answer made no sense, or there was none.
		// A legacy server may do the last two; the attempt below tells.
	}
	return b.detectLegacy(ctx, on, false)
}

// introductionOf is what a modern server says of itself in its answer to server/discover.
func introductionOf(m *mcp.Message) *Introduction {
	return &Introduction{
		Era:          mcp.Modern,
		Version:      mcp.V2607,
		Capabilities: slices.Clone(m.Get("capabilities").Of(m.Raw)),
		Instructions: slices.Clone(m.Get("instructions").Of(m.Raw)),
		Info:         slices.Clone(m.Meta(mcp.MetaServerInfo).Of(m.Raw)),
	}
}

func modernIntroduction() *Introduction {
	return &Introduction{Era: mcp.Modern, Version: mcp.V2607, Capabilities: Everything()}
}

// legacyFirst decides for a backend that has no server/discover: every modern
// server has it, and a bridge answers so on behalf of any legacy one. So it is
// modern only when it refuses initialize as well.
func (b *Backend) legacyFirst(ctx context.Context, on *edge.Exchange) (*Introduction, error) {
	s := newSession(b, false, nil, nil)
	s.chosen.Store(on)
	in, err := s.ready(ctx)
	if err == nil {
		b.adopt(s)
		return in, nil
	}
	s.Close()
	var r *refusal
	var other *revisionError
	switch {
	case errors.As(err, &other) && other.revision == mcp.V2607:
	case !errors.As(err, &r):
		return nil, err
	case !r.unmet():
		return nil, r.verdict()
	}
	in = modernIntroduction()
	in.guessed = true
	return in, nil
}

// confirm asks a backend whose era is a guess again.
func (b *Backend) confirm(ctx context.Context, in *Introduction) error {
	select {
	case b.asking <- struct{}{}:
		defer func() { <-b.asking }()
	case <-ctx.Done():
		return edge.Errorf(edge.Gone, "introduction", "%w", context.Cause(ctx))
	}
	now, err := b.detect(ctx, nil)
	if err != nil || now.guessed {
		return err
	}
	now.at = time.Now()
	if b.intro.CompareAndSwap(in, now) {
		b.introduced(now)
	}
	return nil
}

// discoverWithin is how long a backend may take to answer server/discover until
// it is asked for initialize: there are legacy servers that do not answer what
// they do not know.
const discoverWithin = 5 * time.Second

// discover asks a server of the modern era what it can do. An error answer is a
// *refusal.
func (b *Backend) discover(ctx context.Context, on *edge.Exchange) (*mcp.Message, error) {
	meta := mcp.Change(nil, nil, mcp.Caller{Info: b.Info}.Members()...)
	o := outgoing{
		method: "POST", version: mcp.V2607, rpc: "server/discover", silence: b.Silence, now: time.Now(), x: on,
		body: mcp.AppendRequest(nil, []byte("1"), "server/discover", mcp.Change(nil, nil, mcp.Raw("_meta", meta))),
	}
	o.until = o.now.Add(min(b.Silence, discoverWithin))
	m := new(mcp.Message)
	r, _, err := b.peer.send(ctx, &o)
	if err != nil {
		return m, err
	}
	e := r.refuses()
	_, err = r.answer(ctx, []byte("1"), m, func(*mcp.Message, *reply) {})
	if err == nil && m.Kind == mcp.Failure {
		e.code, e.text, e.data, e.body = m.Code(), m.Text("message"), m.Get("data").Of(m.Raw), m.Raw
		err = e
	}
	return m, err
}

// Everything is JSON text of what a server may offer, for one that does not say.
func Everything() []byte {
	return []byte(`{"completions":{},"logging":{},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}`)
}

func versions(array []byte) []string {
	var out []string
	if json.Unmarshal(array, &out) != nil {
		return nil
	}
	return out
}

// detectLegacy introduces the edge to a legacy server. The session it opens
// serves the clients that have none.
func (b *Backend) detectLegacy(ctx context.Context, on *edge.Exchange, sse bool) (*Introduction, error) {
	s := newSession(b, sse, nil, nil)
	s.chosen.Store(on)
	in, err := s.ready(ctx)
	var r *refusal
	if errors.As(err, &r) && !sse && (r.plain || r.status == 400 || r.status == 404 || r.status == 405) {
		old := newSession(b, true, nil, nil)
		old.chosen.Store(on)
		if again, err2 := old.ready(ctx); err2 == nil {
			in, err, s = again, nil, old
		} else {
			old.Close()
		}
	}
	if err != nil {
		s.Close()
		if errors.As(err, &r) && (!r.unmet() || r.plain) {
			return nil, r.verdict()
		}
		if errors.As(err, &r) {
			return nil, &edge.Error{Kind: edge.Unavailable, Op: "initialize", Err: fmt.Errorf("speaks no revision that the edge speaks: %w", r)}
		}
		return nil, err
	}
	b.adopt(s)
	return in, nil
}

// sure is for how long a backend that was asked again what it speaks, and still
// speaks it, is not asked once more because of what it answers to calls.
const sure = 10 * time.Second

// allow asks the breaker for an exchange. How long a stream of news lasts, and how it ends, says
// nothing of calls.
func (b *Backend) allow(x *edge.Exchange) (health.Pass, error) {
	pass, err := b.Breaker.Allow()
	if err == nil && x.Request.Method == "subscriptions/listen" {
		pass.Done(health.Neutral)
		return health.Pass{}, nil
	}
	return pass, err
}

// asksAnew reports whether a backend that refuses a session is to be asked again what it speaks.
// Where it was, and refuses still, what the client says of itself may be why: that is no reason
// for everybody to wait until it has said so once more.
func (b *Backend) asksAnew(try int) bool {
	left := b.sureUntil[2].Load() - time.Now().UnixNano()
	if try > 0 {
		b.sureUntil[2].Store(time.Now().Add(sure).UnixNano())
	}
	return try == 0 && (left <= 0 || left > int64(sure))
}

// changed asks a backend again what it speaks, and reports
// whether that is another era now. A doubt that is plain has a time of its own, so that
// an odd answer before it hides no change, and a backend that always says so is asked no more often.
func (b *Backend) changed(ctx context.Context, who *edge.Identity, in *Introduction, plain bool) bool {
	until := &b.sureUntil[0]
	if plain {
		until = &b.sureUntil[1]
	}
	if left := until.Load() - time.Now().UnixNano(); 0 < left && left <= int64(sure) { // more is of a clock that was set back
		return false
	}
	b.forget(in)
	now, err := b.Introduced(ctx, who)
	if err == nil && now.Era == in.Era {
		until.Store(time.Now().Add(sure).UnixNano())
	}
	return err == nil && now.Era != in.Era
}

// Introduced returns what the backend said of itself, and asks it when it has
// not said anything yet: for the user who, where its credential depends on that.
func (b *Backend) Introduced(ctx context.Context, who *edge.Identity) (*Introduction, error) {
	if in := b.intro.Load(); in != nil {
		return in, nil
	}
	before := b.away.Load()
	select {
	case b.asking <- struct{}{}:
		defer func() { <-b.asking }()
	case <-ctx.Done():
		return nil, edge.Errorf(edge.Gone, "introduction", "%w", context.Cause(ctx))
	}
	if in := b.intro.Load(); in != nil {
		return in, nil
	}
	if why := b.away.Load(); why != nil && why != before && edge.KindOf(*why) != edge.Gone && edge.KindOf(*why) != edge.Timeout {
		return nil, *why // another was told so meanwhile, who neither left nor had less time; to ask again may start a server again
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	b.asker.Store(&asker{time.Now(), end})
	defer b.asker.Store(nil)
	return b.meet(ctx, who)
}

// asker is who waits for what the backend says of itself.
type asker struct {
	began time.Time
	end   func() // another has been answered
}

// meet asks the backend what it speaks. What another has been told meanwhile holds, too.
func (b *Backend) meet(ctx context.Context, who *edge.Identity) (*Introduction, error) {
	in, err := b.detect(ctx, b.on(who))
	if other := b.intro.Load(); err != nil && other != nil {
		return other, nil
	}
	if b.wantsUser(err) || err != nil && who != nil && b.Personal() {
		return nil, err // it says nothing of the backend
	}
	if err != nil {
		b.away.Store(&err)
		b.heard(health.Judge(err), false)
		return nil, err
	}
	in.at = time.Now()
	if b.intro.CompareAndSwap(nil, in) {
		b.introduced(in)
	}
	return in, nil
}
