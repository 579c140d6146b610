package health

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Config configures a monitor. A zero duration takes its default.
type Config struct {
	// Probe asks the backend for a sign of life. It returns nil if the backend
	// answered, even with a JSON-RPC error; else the original error
	// (see Judge). It is called by one goroutine at a time, must return soon after
	// its context ends, and does not ask the breaker itself: the monitor has.
	Probe func(context.Context) error

	Interval time.Duration // between checks (healthCheckInterval); 30 s by default
	Timeout  time.Duration // of one probe (healthCheckTimeout); 10 s by default
	Rules    Rules
	Bare     bool     // probes carry no credential: they go on after 401 and 403
	Breaker  *Breaker // the one that calls to the backend pass; nil for none

	// Changed is called when the status differs from that of its last call
	// (Unknown before the first). It is called by the monitor's own
	// goroutine, so it must be quick and must not call Close; nil for none.
	Changed func(Snapshot)

	// Quiet is the least time between two calls of Changed; 5 s by default. A
	// status that changes and changes back within it is not reported.
	Quiet time.Duration

	Random func() float64 // in [0, 1), for jitter; nil for that of math/rand
	Log    *slog.Logger   // of panics; nil for none
}

// Snapshot is the state of a monitor at a moment, in the form of
// status.discoveredBackends[].
type Snapshot struct {
	State
	Circuit        Circuit   // "" without a breaker
	CircuitChanged time.Time // zero without a breaker
}

// firstWait is the time from a failure to the first attempt. It doubles for each
// later attempt.
const firstWait = time.Second

// firstSpread bounds the time from the start to the first check.
const firstSpread = time.Second

// Monitor watches one backend until it is closed. It is safe for concurrent use.
type Monitor struct {
	Config
	life  context.Context
	end   context.CancelFunc
	ended chan struct{} // closed when run has returned

	again   chan struct{} // holds a value after Again
	results chan result

	mu    sync.Mutex // may be held while the breaker's is taken, never the other way
	state State

	// What follows belongs to run.

	due     time.Time     // of the next check
	attempt time.Time     // of the next attempt; zero for none
	wait    time.Duration // before the attempt after the next failure
	pause   time.Time     // no trial before, since the last one said nothing; zero for none
	halted  bool          // no probes until Again: the backend wants a credential
	redo    bool          // Again was called during the probe under way
	probing bool
	circuit Circuit // last seen

	told     Status
	lastTold time.Time
}

type result struct {
	pass   Pass
	check  bool // else an attempt
	ended  time.Time
	took   time.Duration
	err    error
	timely bool // the probe's time was not over
}

// Watch begins to watch a backend. Close ends it.
func Watch(c Config) *Monitor {
	positive := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	positive(&c.Interval, 30*time.Second)
	positive(&c.Timeout, 10*time.Second)
	positive(&c.Quiet, 5*time.Second)
	c.Rules = c.Rules.withDefaults()
	if c.Random == nil {
		c.Random = rand.Float64
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	life, end := context.WithCancel(context.Background())
	m := &Monitor{
		Config:  c,
		life:    life,
		end:     end,
		ended:   make(chan struct{}),
		again:   make(chan struct{}, 1),
		results: make(chan result),
		wait:    firstWait,
		told:    Unknown,
	}
	m.circuit, _ = c.Breaker.State()
	m.due = time.Now().Add(time.Duration(c.Random() * float64(min(firstSpread, c.Interval))))
	go m.run()
	return m
}

// Close ends the probe under way and the monitor, and returns when both have
// ended. Changed is not called afterwards.
func (m *Monitor) Close() error {
	m.end()
	<-m.ended
	return nil
}

// Again says that the configuration or the credential of the backend is another
// now, or that there is another reason to believe that it answers differently: a
// check follows at once, unless the breaker is open. It is how a monitor that
// stopped asking at 401 or 403 begins again.
func (m *Monitor) Again() {
	select {
	case m.again <- struct{}{}:
	default:
	}
}

// Snapshot returns what holds at this moment.
func (m *Monitor) Snapshot() Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now()
}

// now brings the state up to the breaker and returns both. The caller holds mu.
func (m *Monitor) now() Snapshot {
	circuit, since := m.Breaker.State()
	switch circuit {
	case Open, HalfOpen:
		m.state = m.state.Cut(since)
	case Closed:
		m.state = m.state.Mend(since)
	}
	s := Snapshot{State: m.state, Circuit: circuit, CircuitChanged: since}
	s.Status = s.Is()
	return s
}

// run owns the schedule. What wakes it is acted on, and then it sleeps until
// the next probe or the next thing to tell.
func (m *Monitor) run() {
	defer close(m.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-m.life.Done():
			if m.probing {
				m.conclude(<-m.results)
			}
			return
		case <-m.again:
			m.halted, m.redo, m.wait = false, m.probing, firstWait
			m.due = time.Now()
		case r := <-m.results:
			m.probing = false
			m.schedule(r, m.conclude(r))
		case <-m.Breaker.Changed():
		case <-timer.C:
		}
		if m.life.Err() != nil {
			continue
		}
		if d := min(m.look(), m.next()); d < never {
			timer.Reset(d)
		} else {
			timer.Stop()
		}
	}
}

// look takes in changes of the breaker and reports a change of status. It returns when
// the next change may be reported.
func (m *Monitor) look() time.Duration {
	s := m.Snapshot()
	if s.Circuit != m.circuit {
		if s.Circuit == Closed { // by a call: the next check completes the status
			m.due, m.wait = time.Now(), firstWait
		}
		m.circuit = s.Circuit
	}
	if s.Status == m.told {
		return never
	}
	if quiet := time.Until(m.lastTold.Add(m.Quiet)); quiet > 0 {
		return quiet
	}
	m.told, m.lastTold = s.Status, time.Now()
	if m.Changed != nil {
		m.tell(s)
	}
	return never
}

func (m *Monitor) tell(s Snapshot) {
	defer edge.Contain(m.Log, "health: changed")
	m.Changed(s)
}

const never time.Duration = 1<<63 - 1

// next begins a probe if it is time for one, and returns how long it is until
// then if not.
func (m *Monitor) next() time.Duration {
	if m.probing {
		return never
	}
	trial := m.circuit == Open || m.circuit == HalfOpen
	now := time.Now()
	check := trial || !now.Before(m.due)
	var wait time.Duration
	switch {
	case trial:
		wait = max(m.Breaker.Wait(), m.pause.Sub(now))
	case m.halted:
		return never
	case m.attempt.IsZero() || m.due.Before(m.attempt):
		wait = m.due.Sub(now)
	default:
		wait = m.attempt.Sub(now)
	}
	if wait > 0 {
		return wait
	}
	pass, err := m.Breaker.Allow()
	if err != nil { // a call was quicker
		return max(m.Breaker.Wait(), time.Millisecond)
	}
	m.probing = true
	go m.probe(pass, check)
	return never
}

var errPanic = errors.New("the probe panicked")

// probe asks the backend once. Its goroutine ends with its result, which run
// waits for.
func (m *Monitor) probe(pass Pass, check bool) {
	ctx, cancel := context.WithTimeout(m.life, m.Timeout)
	defer cancel()
	begun := time.Now()
	err := errPanic
	func() {
		defer edge.Contain(m.Log, "health: probe")
		err = m.Probe(ctx)
	}()
	ended := time.Now()
	m.results <- result{pass, check, ended, ended.Sub(begun), err, !errors.Is(ctx.Err(), context.DeadlineExceeded)}
}

// conclude applies the result of a probe to breaker and state, and returns its
// outcome. A failed attempt counts for neither of them. A success from before the
// breaker opened lasts only until mu is released: the next holder finds the breaker
// open.
func (m *Monitor) conclude(r result) finding {
	if f := examine(r.err); f.outcome == Neutral && !f.bad && !r.timely {
		r.err = edge.Errorf(edge.Timeout, "probe", "%s without an answer", m.Timeout) // the context that was cancelled is the probe's own
	}
	f := examine(r.err)
	bad := f.bad && !(f.refused && m.Rules.Credential)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now()
	outcome := f.outcome
	if !r.check && outcome == Failure {
		outcome = Neutral
	}
	r.pass.Done(outcome)
	if r.check || f.outcome == Success && !bad {
		m.state = m.state.After(m.Rules, Check{At: r.ended, Took: r.took, Err: r.err})
	}
	f.bad = bad
	return f
}

// schedule says when the next probe is, after one that ended so.
func (m *Monitor) schedule(r result, f finding) {
	s := m.Snapshot()
	m.circuit = s.Circuit
	good := f.outcome == Success && !f.bad
	m.attempt, m.pause = time.Time{}, time.Time{}
	switch {
	case f.outcome == Neutral && f.bad:
		m.pause = r.ended.Add(m.Interval)
	case f.outcome == Neutral:
		m.pause = r.ended.Add(firstWait)
	}
	m.halted = s.Is() == Unauthenticated && !m.Rules.Credential && !m.Bare
	if r.check || good {
		m.due = r.ended.Add(m.spread(m.Interval, 0.1))
	}
	switch {
	case m.redo:
		m.redo, m.halted, m.due = false, false, r.ended
	case good:
		m.wait = firstWait
	case f.category == AuthenticationFailed: // nothing but a credential will help
	default:
		// An attempt that could still be under way when the next check is due
		// would put it off.
		if at := r.ended.Add(m.spread(m.wait, 0.5)); at.Add(m.Timeout).Before(m.due) {
			m.attempt = at
			m.wait *= 2
		}
	}
}

// spread returns a duration that is by chance longer or shorter than d, by at
// most a part of it.
func (m *Monitor) spread(d time.Duration, part float64) time.Duration {
	return d + time.Duration(float64(d)*part*(2*m.Random()-1))
}
