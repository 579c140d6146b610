package backend

import (
	"container/list"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// A legacy server may keep state in a session: who logged in, which project was
// opened, which tools it lists since. Modern clients have no sessions, so the
// edge holds some for them, and each is of one principal: what somebody did in
// it nobody else meets. They are bounded; those that rest end, the oldest first.

const (
	// maxSort is how many sessions there may be of one sort: so many calls at a
	// time may need one each.
	maxSort = 256

	// leastPooled is how many pooled sessions a backend may have however few
	// connections it may. It may have as many as connections.
	leastPooled = 64

	// restDefault is how long a session rests until it ends where the
	// configuration does not say.
	restDefault = 30 * time.Minute

	// sweeps is how often the sessions are looked at while they may rest.
	sweeps = 4
)

// principal is who has sent what goes over a pooled session. The zero value
// stands for the edge itself and for everybody whom nothing tells apart.
type principal struct{ issuer, subject string }

func principalOf(id *edge.Identity) principal {
	if id.Anonymous() {
		return principal{}
	}
	return principal{id.Issuer, id.Subject}
}

// sort is what sets one pooled session apart from another.
type sort struct {
	principal principal
	level     string // the log level set; one of those that MCP names, or ""
	caps      string // what is declared to the server, in canonical form
	apps      string // and which apps are shown

	credential string // that a program chose; "" for the configured one
}

// alone reports whether such a session carries one call at a time: nothing
// else would say whose call a message or a question of the server belongs to.
func (k sort) alone() bool { return k.level != "" || k.caps != "" }

// pooled is one session of the pool.
type pooled struct {
	*session
	kind  sort
	users atomic.Int32  // calls that have it
	out   atomic.Bool   // it is of the pool no longer, and ends with its last user
	at    *list.Element // its place among those that may end; nil for the edge's own
	idle  int           // sweeps since it was borrowed last
}

// sorted is the sessions of one sort.
type sorted struct {
	free []*pooled // to be borrowed
	all  int
}

// sessions is the pool of one backend.
type sessions struct {
	sorts map[sort]*sorted  // nil once the backend is closed
	order list.List         // of *pooled: the one that was borrowed last comes first
	held  map[principal]int // of them, by principal
	timer *time.Timer       // looks for those that have rested; nil while there are none
	freed chan struct{}     // closed when one may have become free; nil while nobody waits
}

// free wakes those who wait for a session; b.mu is held.
func (t *sessions) free() {
	if t.freed != nil {
		close(t.freed)
		t.freed = nil
	}
}

// room returns how many pooled sessions there may be, and how many of one
// principal. Over HTTP with SSE each of them has a connection open.
func (b *Backend) room(sse bool) (all, each int) {
	if b.lined != nil {
		return maxLocalSessions, max(1, b.lined.Pool())
	}
	all = max(leastPooled, b.most())
	if sse {
		all = max(1, b.most()/2)
	}
	return all, max(1, all/4)
}

// adopt makes a session the one that the edge itself uses, and clients whom
// nothing tells apart for calls that are plain. Where there is one already that
// serves, over the same transport, that one stays: others may have calls under way
// in it, and what they did in it before.
func (b *Backend) adopt(s *session) {
	if !b.adopted(s) {
		s.Close()
	}
}

func (b *Backend) adopted(s *session) bool {
	if s.chosen.Load() != nil {
		return false // it is a user's
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pool.sorts == nil {
		return false
	}
	if of := b.pool.sorts[sort{}]; of != nil {
		for _, p := range slices.Clone(of.free) {
			if p.sse == s.sse && p.live.Load() != nil && !p.odd.Load() {
				return false
			}
			b.retire(p)
		}
	}
	b.pool.sorts[sort{}] = &sorted{free: []*pooled{{session: s}}, all: 1}
	return true
}

// borrow returns a session of the pool, which giveBack takes again.
func (b *Backend) borrow(in *Introduction, kind sort) (*pooled, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &b.pool
	if t.sorts == nil {
		return nil, edge.Errorf(edge.Unavailable, "session", "the backend is closed")
	}
	of := t.sorts[kind]
	for of != nil && len(of.free) > 0 {
		p := of.free[len(of.free)-1]
		if p.sse != in.SSE { // the backend has changed its transport
			b.retire(p)
			of = t.sorts[kind]
			continue
		}
		if kind.alone() {
			of.free = of.free[:len(of.free)-1]
		}
		p.users.Add(1)
		if p.idle = 0; p.at != nil {
			t.order.MoveToFront(p.at)
		}
		return p, nil
	}
	if of != nil && of.all >= maxSort {
		return nil, edge.Errorf(edge.Overload, "session", "all %d sessions of this sort with the backend are in use", maxSort)
	}
	if err := b.makeRoom(kind, in.SSE); err != nil {
		return nil, err
	}
	if of = t.sorts[kind]; of == nil {
		of = &sorted{}
		t.sorts[kind] = of
	}
	var caps []byte
	if kind.caps != "" {
		caps = []byte(kind.caps)
	}
	if kind.apps != "" {
		caps = mcp.Change(caps, nil, mcp.With("extensions", kind.apps))
	}
	p := &pooled{session: newSession(b, in.SSE, nil, caps), kind: kind}
	p.level, p.personal, p.who = kind.level, kind.principal != principal{}, kind.principal
	if kind.caps != "" && kind.caps != "{}" {
		p.hearOwn() // a server may ask beside the call, on the stream of the session
	}
	p.users.Store(1)
	if of.all++; !kind.alone() {
		of.free = append(of.free, p)
	}
	if kind != (sort{}) {
		p.at = t.order.PushFront(p)
		if b.counts(kind.principal) {
			if t.held == nil {
				t.held = make(map[principal]int)
			}
			t.held[kind.principal]++
		}
		if t.timer == nil {
			t.timer = time.AfterFunc(b.Rest/sweeps, b.sweep)
		}
	}
	return p, nil
}

// counts reports whether the sessions of a principal are counted. With a local server those
// of everybody are, since each is a process.
func (b *Backend) counts(who principal) bool { return who != (principal{}) || b.lined != nil }

// makeRoom ends the session that has rested longest where there may be no
// further one: the principal's own where the principal has as many as it may. It
// fails where none rests; b.mu is held.
func (b *Backend) makeRoom(kind sort, sse bool) error {
	if kind == (sort{}) {
		return nil
	}
	t := &b.pool
	all, each := b.room(sse)
	who := kind.principal
	if b.lined != nil && who == (principal{}) {
		each = max(1, each-1) // the edge's own is one of them
	}
	if b.counts(who) && t.held[who] >= each {
		p := t.oldest(func(p *pooled) bool { return p.kind.principal == who })
		if p == nil {
			return edge.Errorf(edge.Overload, "session", "this client has all %d sessions with the backend in use that it may", each)
		}
		b.retire(p)
	}
	if t.order.Len() >= all {
		p := t.oldest(func(*pooled) bool { return true })
		if p == nil {
			return edge.Errorf(edge.Overload, "session", "all %d sessions with the backend are in use", all)
		}
		b.retire(p)
	}
	return nil
}

// oldest returns, of the sessions that which names, the one that has rested
// longest; nil when none rests.
func (t *sessions) oldest(which func(*pooled) bool) *pooled {
	for e := t.order.Back(); e != nil; e = e.Prev() {
		if p := e.Value.(*pooled); p.users.Load() == 0 && which(p) {
			return p
		}
	}
	return nil
}

// retire takes a session out of the pool, and ends it beside the calls when the
// last that has it has given it back; b.mu is held.
func (b *Backend) retire(p *pooled) {
	t := &b.pool
	of := t.sorts[p.kind]
	if i := slices.Index(of.free, p); i >= 0 {
		of.free = slices.Delete(of.free, i, i+1)
	}
	if of.all--; of.all == 0 {
		delete(t.sorts, p.kind)
	}
	if p.at != nil {
		t.order.Remove(p.at)
		p.at = nil
		if who := p.kind.principal; b.counts(who) {
			if t.held[who]--; t.held[who] == 0 {
				delete(t.held, who)
			}
		}
	}
	t.free()
	if p.out.Store(true); p.users.Load() == 0 {
		b.spawn("session", func() { p.Close() })
	}
}

// giveBack returns a session that a call has had. One that carries a call at a
// time, and whose last one left something behind, ends: what still comes of that
// is for nobody else.
func (b *Backend) giveBack(p *pooled, left bool) {
	if !p.kind.alone() {
		if p.users.Add(-1) == 0 && p.out.Load() {
			b.spawn("session", func() { p.Close() })
		}
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p.users.Add(-1)
	b.pool.free()
	switch t := &b.pool; {
	case t.sorts == nil: // closed with the backend
	case left:
		b.retire(p)
	default:
		of := t.sorts[p.kind]
		of.free = append(of.free, p)
		t.order.MoveToFront(p.at)
	}
}

// leaves reports whether a call that ended so may still be under way at its
// server.
func leaves(err error) bool {
	if err == nil {
		return false
	}
	kind := edge.KindOf(err)
	return kind == edge.Gone || kind == edge.Timeout || kind == edge.Unavailable
}

// sweep ends the sessions that have rested for long enough.
func (b *Backend) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &b.pool
	if t.sorts == nil {
		return
	}
	for e := t.order.Back(); e != nil; {
		p := e.Value.(*pooled)
		e = e.Prev()
		switch {
		case p.users.Load() > 0:
			p.idle = 0
		case p.idle == sweeps:
			b.retire(p)
		default:
			p.idle++
		}
	}
	if t.timer = nil; t.order.Len() > 0 {
		t.timer = time.AfterFunc(b.Rest/sweeps, b.sweep)
	}
}

// closePool ends every session of the pool.
func (b *Backend) closePool() {
	b.mu.Lock()
	t := &b.pool
	own := t.sorts[sort{}]
	t.sorts, t.held = nil, nil
	if t.timer != nil {
		t.timer.Stop()
	}
	all := make([]*pooled, 0, t.order.Len()+1)
	if own != nil {
		all = append(all, own.free...)
	}
	for e := t.order.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*pooled))
	}
	t.order.Init()
	b.mu.Unlock()
	for _, p := range all {
		p.Close()
	}
}
