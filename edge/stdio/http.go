package stdio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

// HTTP keeps the one process of a server that speaks HTTP, and connects to its port. The
// first connection has it started; from then on it runs until Close, and one that ends is
// started again after a rest, by itself or, with Failures after exit 0, for a call. It is safe
// for concurrent use.
type HTTP struct {
	Config
	dial func(context.Context, Process) (net.Conn, error)

	life  context.Context
	end   context.CancelFunc
	begin sync.Once
	over  chan struct{} // closed when nothing of it runs any more

	calls atomic.Int64 // under way

	mu       sync.Mutex
	at       Process       // that listens; nil for none
	news     chan struct{} // closed when at or now have changed, and made anew
	known    bool          // it has listened once
	within   time.Duration // for its end
	restart  restart
	resting  chan struct{} // closed by the call that has it started again; nil where it starts by itself
	now      Status
	restarts int64
}

// listens is how often a server that starts is tried.
const listens = 50 * time.Millisecond

// NewHTTP makes what keeps a server that speaks HTTP: of the configuration what is about
// messages and about several processes says nothing. dial connects to a process's port.
func NewHTTP(c Config, dial func(context.Context, Process) (net.Conn, error)) (*HTTP, error) {
	if c.Starter == nil || dial == nil {
		return nil, fmt.Errorf("server %s: nothing starts it, or connects to it", c.Name)
	}
	c.Introduction = cmp.Or(c.Introduction, introduction)
	c.First = cmp.Or(c.First, c.Introduction)
	c.Timeout = cmp.Or(c.Timeout, timeout)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	h := &HTTP{Config: c, dial: dial, over: make(chan struct{}), news: make(chan struct{}), within: c.Timeout, now: Status{State: Starting, Since: time.Now()}}
	h.life, h.end = context.WithCancel(context.Background())
	return h, nil
}

// Dial is backend.OverHTTP.Dial. It waits for a server that starts, and has one started that rests
// where that is for a call: what looks after it, or listens to it, leaves it at rest.
func (h *HTTP) Dial(ctx context.Context) (net.Conn, int, error) {
	h.begin.Do(func() { go h.keep() })
	for {
		h.mu.Lock()
		if h.resting != nil && h.calls.Load() > 0 {
			close(h.resting)
			h.resting = nil
		}
		p, news, now, rest, rests := h.at, h.news, h.now, h.restart.wait(time.Now()), h.resting != nil
		h.mu.Unlock()
		switch {
		case h.life.Err() != nil:
			return nil, 0, edge.Errorf(edge.Unavailable, "dial", "%w", errOver)
		case p != nil:
			c, err := h.dial(ctx, p)
			if err != nil {
				return nil, 0, &edge.Error{Kind: edge.Unavailable, Op: "dial", Err: err}
			}
			return c, portOf(p), nil
		case now.State == Stopped || rests || rest > patience:
			err := error(&edge.Ended{How: now.Ended})
			if cause, ok := strings.CutPrefix(now.Ended, unstarted); ok { // it is not for clients
				err = &StartError{errors.New(cause)}
			}
			return nil, 0, &edge.Error{Kind: edge.Unavailable, Op: "start", After: rest, Err: err}
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, 0, edge.Errorf(edge.Gone, "start", "%w", context.Cause(ctx))
		}
	}
}

// portOf is where a process listens; 0 where it does not say it.
func portOf(p Process) int {
	if l, ok := p.(interface{ Port() int }); ok {
		return l.Port()
	}
	return 0
}

// Call is backend.OverHTTP.Call.
func (h *HTTP) Call() (over func()) {
	h.calls.Add(1)
	return func() { h.calls.Add(-1) }
}

// keep has the server run.
func (h *HTTP) keep() {
	defer close(h.over)
	defer edge.Contain(h.Log, "server")
	first := time.Now()
	for h.life.Err() == nil {
		began := time.Now()
		how, said, done := h.live()
		if h.life.Err() != nil || !h.ended(first, began, how, said, done) {
			return
		}
		h.mu.Lock()
		rest, resting := h.restart.wait(time.Now()), h.resting
		h.mu.Unlock()
		select {
		case <-time.After(rest):
		case <-h.life.Done():
		}
		if resting != nil {
			select {
			case <-resting:
			case <-h.life.Done():
			}
		}
	}
}

// live is one life of the process. It returns how it ended, and what it printed last; done says
// that it had listened, and ended by itself with exit 0.
func (h *HTTP) live() (how string, said []string, done bool) {
	p, err := h.Starter.Start(h.life, "")
	if err != nil {
		return unstarted + err.Error(), nil, false
	}
	h.mu.Lock()
	if h.now.Ended != "" { // of an earlier one
		h.restarts++
	}
	h.mu.Unlock()
	log := newLogbook(&h.Config)
	printed, exited := make(chan struct{}), make(chan Exit, 1)
	go func() {
		defer close(printed)
		defer edge.Contain(h.Log, "stdout")
		log.both(p)
	}()
	go func() { exited <- p.Wait() }()
	var exit Exit
	why := h.serve(p, exited, &exit)
	done = why == "" && exit == Exit{} && h.Status().Processes > 0
	if why != "" {
		h.listening(nil)
		log.event("%s", why)
		exit = h.finish(p, exited, why)
	}
	h.listening(nil)
	p.Kill() // what it has left behind
	select {
	case <-printed:
	case <-time.After(leftovers):
	}
	_ = p.Stdin().Close()
	for _, r := range []interface{ Close() error }{p.Stdout(), p.Stderr()} {
		_ = r.Close()
	}
	<-printed
	if why == "" {
		why = exit.String()
	}
	log.event("process ended: %s", why)
	log.end()
	return why, log.said(), done
}

// serve waits until the server listens, and then for its end. It returns why it is to be
// ended; "" for a server that has ended by itself, as exit says.
func (h *HTTP) serve(p Process, exited chan Exit, exit *Exit) (why string) {
	h.mu.Lock()
	within := h.mayTake()
	h.mu.Unlock()
	late, tick := time.NewTimer(within), time.NewTicker(listens)
	defer late.Stop()
	defer tick.Stop()
	for up := false; !up; {
		select {
		case *exit = <-exited:
			return ""
		case <-h.life.Done():
			return "stopped"
		case <-late.C:
			port := "its port"
			if n := portOf(p); n != 0 {
				port += " " + strconv.Itoa(n)
			}
			return fmt.Sprintf("does not listen on %s within %s", port, within)
		case <-tick.C:
			up = h.connects(p)
		}
	}
	h.listening(p)
	failed := 0
	for probe := time.NewTimer(probeEvery); ; probe.Reset(probeEvery) {
		select {
		case *exit = <-exited:
			probe.Stop()
			return ""
		case <-h.life.Done():
			probe.Stop()
			return "stopped"
		case <-probe.C:
		}
		failed++
		if h.calls.Load() > 0 || h.answers(p) || h.calls.Load() > 0 { // one thread may be at work on it
			failed = 0
		}
		if failed >= probeFailures {
			h.mu.Lock()
			h.within = min(afterStdin, h.Timeout)
			h.is(Unhealthy, "it does not answer")
			h.mu.Unlock()
			return fmt.Sprintf("does not answer: %d probes in a row", failed)
		}
	}
}

// connects reports whether the server listens.
func (h *HTTP) connects(p Process) bool {
	ctx, cancel := context.WithTimeout(h.life, probeWithin)
	defer cancel()
	c, err := h.dial(ctx, p)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// answers reports whether the server says anything to a request.
func (h *HTTP) answers(p Process) bool {
	ctx, cancel := context.WithTimeout(h.life, probeWithin)
	defer cancel()
	c, err := h.dial(ctx, p)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(probeWithin))
	if _, err := c.Write([]byte("HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")); err != nil {
		return false
	}
	n, _ := c.Read(make([]byte, 1))
	return n > 0
}

// finish ends the process: it is asked to, and killed when its time is over.
func (h *HTTP) finish(p Process, exited chan Exit, why string) Exit {
	h.mu.Lock()
	within := h.within
	h.within = h.Timeout
	h.mu.Unlock()
	_ = p.Stdin().Close()
	p.Terminate()
	select {
	case exit := <-exited:
		return exit
	case <-time.After(within):
	}
	p.Kill()
	select {
	case exit := <-exited:
		return exit
	case <-time.After(killed):
		h.Log.Error("a process cannot be killed", "server", h.Name, "why", why)
		return Exit{Code: -1, Reason: "it cannot be killed"}
	}
}

// listening notes the process that can be called; nil for none.
func (h *HTTP) listening(p Process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at = p; p != nil {
		if h.known {
			h.is(Running, "")
		}
		h.known = true
	}
	h.tell()
}

// tell wakes those who wait for a change; h.mu is held.
func (h *HTTP) tell() {
	close(h.news)
	h.news = make(chan struct{})
}

// mayTake is how long the server may take until it listens; h.mu is held.
func (h *HTTP) mayTake() time.Duration {
	if h.known {
		return h.Introduction
	}
	return max(h.First, h.Introduction)
}

// ended notes how a life of the process ended, the first of which began at first. It reports false
// where there is no other; done is as of live.
func (h *HTTP) ended(first, began time.Time, how string, said []string, done bool) bool {
	h.Log.Debug("process ended", "server", h.Name, "how", how, "stderr", lastOf(said))
	h.tellUnstarted(how, h.Status().Ended)
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.tell()
	h.now.Ended, h.now.Said = how, said
	if h.Restart == Never {
		h.is(Stopped, told("ended: ", how))
		return false
	}
	switch bad := h.restart.fail(began, time.Now(), rand.Float64()); {
	case done && h.Restart == Failures: // it can be called
		h.resting = make(chan struct{})
		h.is(Running, "ended: "+how+"; the next call starts it")
	case bad:
		h.is(Failed, told("ends again and again, last: ", how))
	case h.now.State == Failed: // until it is there again: a longer rest is no other state
		h.is(Failed, told("restarting, ended: ", how))
	case h.now.State == Starting && strings.HasPrefix(how, unstarted): // no time cures that
		h.is(Failed, how)
	case h.now.State != Starting:
		h.is(Unhealthy, told("restarting, ended: ", how))
	case time.Since(first) >= h.mayTake(): // whoever waits for its start is told; it is tried on
		h.is(Failed, told("is not there in its time, last: ", how))
	}
	return true
}

// is changes the state; h.mu is held.
func (h *HTTP) is(state State, reason string) {
	if h.now.State == state && h.now.Reason == reason {
		return
	}
	if h.now.State != state {
		h.now.Since = time.Now()
	}
	h.now.State, h.now.Reason = state, reason
	if h.Changed != nil {
		h.Changed(h.now)
	}
}

// Introduced is backend.Local.Introduced.
func (h *HTTP) Introduced(_ mcp.Era, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		err = h.masked(err)
	}
	switch {
	case h.at == nil: // that it does not run says more
	case err != nil:
		h.is(Failed, err.Error())
	default:
		h.is(Running, "")
	}
	return err
}

// Well is backend.Local.Well.
func (h *HTTP) Well() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resting != nil {
		return edge.ErrRests
	}
	switch h.now.State {
	case Failed, Unhealthy, Stopped:
		return edge.Errorf(edge.Unavailable, "probe", "%w", errors.New(h.now.Reason))
	}
	return nil
}

// Status returns what is known now.
func (h *HTTP) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.now
	s.Restarts, s.Said = h.restarts, slices.Clone(s.Said)
	if h.at != nil {
		s.Processes = 1
	}
	return s
}

// Close ends the process, and returns when it is gone.
func (h *HTTP) Close() error { return h.Stop(h.Timeout) }

// Stop is Close that gives the process another time from its signal until it is killed.
func (h *HTTP) Stop(within time.Duration) error {
	h.mu.Lock()
	h.within = within
	h.is(Stopped, "")
	h.mu.Unlock()
	h.end()
	h.begin.Do(func() { close(h.over) }) // it was never started
	<-h.over
	return nil
}

// Collect is edge.Collector.Collect.
func (h *HTTP) Collect(m edge.Emitter) {
	s := h.Status()
	m.Gauge("weir_stdio_processes", "Processes of a server on standard streams that run.", float64(s.Processes))
	m.Counter("weir_stdio_restarts", "Starts of such a server after an end that was a failure.", float64(s.Restarts))
}
