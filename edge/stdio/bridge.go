package stdio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Defaults of Config.
const (
	maxProcesses = 16
	poolSize     = 4
	maxMessage   = 16 << 20
	introduction = 30 * time.Second
	idle         = 60 * time.Second
	timeout      = 10 * time.Second
	stuck        = 30 * time.Second
)

// Bridge keeps the processes of one server. It is safe for concurrent use.
type Bridge struct {
	Config
	shared *shared // nil in mode PerSession

	uses     atomic.Uint64 // counts what processes are sent: the least of them was used least recently
	overlong atomic.Int64  // lines above MaxMessage
	dropped  atomic.Int64  // messages that nobody took in time, or that nothing says whose they are

	mu       sync.Mutex
	children map[*child]bool // that run
	starts   int             // under way
	gone     chan struct{}   // closed when a process has ended or a start has; nil while nobody waits
	closed   bool
	quit     chan struct{} // closed with the bridge
	watching bool
	watches  sync.WaitGroup
	rests    map[string]*restart // by the principal of the processes; "" for those of the edge, and for a shared one
	common   restart             // of further principals
	now      Status              // without what is counted elsewhere
	era      mcp.Era
	known    bool // era is
	restarts int64
	failed   bool // a process did, and none was started since
}

// New makes a bridge. It starts nothing yet.
func New(c Config) (*Bridge, error) {
	switch {
	case c.Starter == nil:
		return nil, fmt.Errorf("stdio %s: nothing starts the server", c.Name)
	case c.MaxProcesses < 0, c.Pool < 0, c.MaxMessage < 0, c.Introduction < 0, c.First < 0, c.Idle < 0, c.Timeout < 0, c.Stuck < 0:
		return nil, fmt.Errorf("stdio %s: a number is negative", c.Name)
	}
	c.MaxProcesses = cmp.Or(c.MaxProcesses, maxProcesses)
	c.Pool = cmp.Or(c.Pool, poolSize)
	c.MaxMessage = cmp.Or(c.MaxMessage, maxMessage)
	c.Introduction = cmp.Or(c.Introduction, introduction)
	c.First = cmp.Or(c.First, c.Introduction)
	c.Idle = cmp.Or(c.Idle, idle)
	c.Timeout = cmp.Or(c.Timeout, timeout)
	c.Stuck = cmp.Or(c.Stuck, stuck)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	b := &Bridge{Config: c, children: make(map[*child]bool), rests: make(map[string]*restart), quit: make(chan struct{}), now: Status{State: Starting, Since: time.Now()}}
	if c.Remembered != nil {
		b.era, b.known = c.Remembered(c.Digest)
	}
	if c.Mode == Shared {
		b.shared = newShared(b)
	}
	return b, nil
}

// Pool is backend.OverLines.Pool.
func (b *Bridge) Pool() int { return min(b.Config.Pool, b.MaxProcesses) }

// Shared is backend.OverLines.Shared.
func (b *Bridge) Shared() bool { return b.shared != nil }

// Introduction is backend.Local.Introduction.
func (b *Bridge) Introduction() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known {
		return b.Config.Introduction
	}
	return max(b.First, b.Config.Introduction)
}

// Remembered is backend.Local.Remembered.
func (b *Bridge) Remembered() (mcp.Era, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.era, b.known
}

// Introduced is backend.Local.Introduced.
func (b *Bridge) Introduced(era mcp.Era, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		err = b.masked(err)
		rests := b.now.State != Starting && errors.As(err, new(*RestError)) // what that means was said when it ended
		if !b.closed && b.now.State != Stopped && !rests {
			b.is(Failed, err.Error())
		}
		return err
	}
	b.era, b.known = era, true
	b.is(Running, "")
	if b.Remember != nil {
		b.Remember(b.Digest, era)
	}
	return nil
}

// Well is backend.Local.Well.
func (b *Bridge) Well() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.now.State {
	case Failed, Unhealthy, Stopped:
		return edge.Errorf(edge.Unavailable, "probe", "%s", b.now.Reason)
	}
	return nil
}

// Status returns what is known now.
func (b *Bridge) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.now
	s.Processes, s.Restarts, s.Dropped = len(b.children), b.restarts, b.dropped.Load()
	s.Said = slices.Clone(s.Said)
	return s
}

// is changes the state; b.mu is held.
func (b *Bridge) is(state State, reason string) {
	if b.now.State == state && b.now.Reason == reason {
		return
	}
	if b.now.State != state {
		b.now.Since = time.Now()
	}
	b.now.State, b.now.Reason = state, reason
	if b.Changed != nil {
		b.Changed(b.now)
	}
}

// Open is backend.Local.Open.
func (b *Bridge) Open(ctx context.Context, h *edge.Owner) (edge.Stream, error) {
	if b.shared != nil {
		return b.shared.open(ctx, h)
	}
	return b.start(ctx, h)
}

// unstarted begins what is said of a process that never was one.
const unstarted = "cannot be started: "

// tellUnstarted logs why a process cannot be started, where that is another reason than the
// one before. Clients are not told.
func (c *Config) tellUnstarted(how, before string) {
	if how != before && strings.HasPrefix(how, unstarted) {
		newLogbook(c).event("%s", how)
	}
}

// told is what is said of a process and how it ended; one that could not be started did not.
func told(what, how string) string {
	if strings.HasPrefix(how, unstarted) {
		return how
	}
	return what + how
}

// StartError says that a process could not be started.
type StartError struct{ Err error }

func (e *StartError) Error() string { return "cannot be started" }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// RestError says that a server that has ended rests, for longer than anybody waits.
type RestError struct{ Err error }

func (e *RestError) Error() string { return e.Err.Error() }

// Unwrap returns what it says of that.
func (e *RestError) Unwrap() error { return e.Err }

// start starts a process for an owner.
func (b *Bridge) start(ctx context.Context, h *edge.Owner) (*child, error) {
	if err := b.admit(ctx, h); err != nil {
		return nil, err
	}
	began := time.Now()
	p, err := b.Starter.Start(ctx, h.Principal)
	if err != nil {
		b.started(nil)
		if ctx.Err() != nil {
			return nil, edge.Errorf(edge.Gone, "start", "%w", context.Cause(ctx))
		}
		b.fail(h.Principal, began, unstarted+err.Error(), nil)
		return nil, &edge.Error{Kind: edge.Unavailable, Op: "start", Err: &StartError{err}}
	}
	c := newChild(b, h, p, began)
	c.used.Store(b.uses.Add(1))
	if !b.started(c) {
		c.deaf.Store(true)
		c.end("closed", edge.Gone, b.Timeout)
	}
	go c.run()
	if b.Newline {
		_ = c.w.send(nil, nil) // what fails here fails again for the first message
	}
	return c, nil
}

// started ends a start that admit let begin. It reports false where the bridge has been
// closed meanwhile.
func (b *Bridge) started(c *child) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.starts--
	b.wake()
	if c == nil {
		return true
	}
	b.children[c] = true
	if b.failed {
		b.failed = false
		b.restarts++
	}
	if !b.watching && !b.closed {
		b.watching = true
		b.watches.Go(b.watch)
	}
	return !b.closed
}

// wake wakes those who wait for room; b.mu is held.
func (b *Bridge) wake() {
	if b.gone != nil {
		close(b.gone)
		b.gone = nil
	}
}

// patience is how long a start may be held up until a server that has just ended may be
// started again; what would take longer fails at once.
const patience = 3 * time.Second

// admit waits until one more process may be started, and makes room for it where it has
// to: the process ends that is used by nobody and was used least recently, of the same
// principal or of the edge itself.
func (b *Bridge) admit(ctx context.Context, h *edge.Owner) error {
	for {
		b.mu.Lock()
		var wait time.Duration
		rest := b.restOf(h.Principal)
		switch {
		case b.closed:
			b.mu.Unlock()
			return edge.Errorf(edge.Unavailable, "start", "%w", errOver)
		case b.now.State == Stopped:
			b.mu.Unlock()
			return edge.Errorf(edge.Unavailable, "start", "it has ended, and is not to be started again")
		default:
			wait = rest.wait(time.Now())
		}
		if wait > patience {
			err := errors.New("it ends again and again: the next attempt has to wait")
			if cause, ok := strings.CutPrefix(rest.how, unstarted); ok { // it is not for clients
				err = &StartError{errors.New(cause)}
			}
			b.mu.Unlock()
			return &edge.Error{Kind: edge.Unavailable, Op: "start", After: wait, Err: &RestError{err}}
		}
		if wait == 0 && len(b.children)+b.starts < b.MaxProcesses {
			b.starts++
			b.mu.Unlock()
			return nil
		}
		if wait == 0 && !b.evict(h) {
			b.mu.Unlock()
			return edge.Errorf(edge.Overload, "start", "all %d processes of this server are in use (--max-processes)", b.MaxProcesses)
		}
		if b.gone == nil {
			b.gone = make(chan struct{})
		}
		gone := b.gone
		b.mu.Unlock()
		var after <-chan time.Time
		if wait > 0 {
			after, gone = time.After(wait), nil
		}
		select {
		case <-gone:
		case <-after:
		case <-ctx.Done():
			return edge.Errorf(edge.Gone, "start", "%w", context.Cause(ctx))
		}
	}
}

// evict has a process end that makes room for an owner. It reports false where none can,
// and none is ending already; b.mu is held.
func (b *Bridge) evict(h *edge.Owner) bool {
	var victim *child
	waits := false
	for c := range b.children {
		if c.leaving() {
			waits = true
			continue
		}
		use := c.h.Use()
		if use.Calls > 0 || use.Listens || c.h.Principal != h.Principal && !use.Own {
			continue
		}
		if victim == nil || c.used.Load() < victim.used.Load() {
			victim = c
		}
	}
	if waits {
		return true
	}
	if victim != nil {
		victim.end("made room for another: it was used least recently (--max-processes)", edge.Unavailable, b.Timeout)
	}
	return victim != nil
}

// spoke notes that a process has sent its first message.
func (b *Bridge) spoke(c *child) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known && !b.closed && b.now.State != Running {
		b.is(Running, "")
	}
}

// ended notes that a process is gone. asked says that the bridge had it end.
func (b *Bridge) ended(c *child, how string, asked, known bool) {
	if !known {
		b.Log.Error("a process cannot be killed", "server", b.Name)
	}
	said := c.log.said()
	c.log.event("process ended: %s", how)
	b.Log.Debug("process ended", "server", b.Name, "how", how, "stderr", lastOf(said))
	b.mu.Lock()
	delete(b.children, c)
	b.now.Ended, b.now.Said = how, said
	b.wake()
	b.mu.Unlock()
	if asked && c.kindOf() != edge.Timeout || c.h.Trial && !c.spoke.Load() {
		return // nothing is wrong with it
	}
	if c.h.Session && c.spoke.Load() {
		return // its session is over, and nobody starts it again for that
	}
	b.fail(c.h.Principal, c.began, how, said)
}

// maxRests is of how many principals the rests are told apart.
const maxRests = 1024

// restOf returns the rest of a principal's processes: no other principal waits for what one's do.
// b.mu is held.
func (b *Bridge) restOf(principal string) *restart {
	r := b.rests[principal]
	if r == nil && len(b.rests) >= maxRests {
		now := time.Now()
		maps.DeleteFunc(b.rests, func(_ string, r *restart) bool { return now.Sub(r.at) >= steady }) // they begin anew
		if len(b.rests) >= maxRests {
			return &b.common
		}
	}
	if r == nil {
		r = new(restart)
		b.rests[principal] = r
	}
	return r
}

// others reports whether a process of another principal is well; b.mu is held.
func (b *Bridge) others(principal string) bool {
	for c := range b.children {
		if c.h.Principal != principal && c.spoke.Load() && !c.leaving() {
			return true
		}
	}
	return false
}

// fail notes a process of a principal that ended by itself, or that could not be started. The
// server is well where another principal's process is.
func (b *Bridge) fail(principal string, began time.Time, how string, said []string) {
	b.tellUnstarted(how, b.Status().Ended)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.now.Ended, b.now.Said, b.failed = how, said, true
	if b.Restart == Never {
		b.is(Stopped, told("ended: ", how))
		return
	}
	rest := b.restOf(principal)
	rest.how = how
	switch bad := rest.fail(began, time.Now(), rand.Float64()); {
	case b.others(principal):
	case bad:
		b.is(Failed, told("ends again and again, last: ", how))
	case b.now.State != Starting:
		b.is(Unhealthy, told("restarting, ended: ", how))
	}
}

// Close ends all processes, and returns when they are gone.
func (b *Bridge) Close() error { return b.Stop(b.Timeout) }

// Stop is Close that gives the processes another time from the end of their stdin until
// they are killed.
func (b *Bridge) Stop(within time.Duration) error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.quit)
		b.is(Stopped, "")
	}
	all := make([]*child, 0, len(b.children))
	for c := range b.children {
		all = append(all, c)
	}
	b.mu.Unlock()
	for _, c := range all {
		c.end("stopped", edge.Unavailable, within)
	}
	for _, c := range all {
		<-c.done
	}
	for {
		b.mu.Lock()
		if b.starts == 0 && len(b.children) == 0 {
			b.mu.Unlock()
			b.watches.Wait()
			return nil
		}
		if b.gone == nil {
			b.gone = make(chan struct{})
		}
		gone := b.gone
		b.mu.Unlock()
		<-gone // a start that was under way, which ends at once
	}
}

// Collect is edge.Collector.Collect.
func (b *Bridge) Collect(m edge.Emitter) {
	s := b.Status()
	m.Gauge("weir_stdio_processes", "Processes of a server on standard streams that run.", float64(s.Processes))
	m.Counter("weir_stdio_restarts", "Starts of such a server after an end that was a failure.", float64(s.Restarts))
	m.Counter("weir_stdio_overlong", "Lines of such a server above the limit of a message.", float64(b.overlong.Load()))
	m.Counter("weir_stdio_dropped", "Messages of such a server that nobody took in time, or that nothing said whose they are.", float64(s.Dropped))
}
