package wasm

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/sdk/abi"
)

// Front is what stands before a program, whatever runs it: it keeps messages of senders from
// it on which it fails again and again, counts what comes of calls, bounds the lines of its
// log, and waits at the end for calls under way. It is safe for concurrent use.
type Front struct {
	name    string
	onError [abi.Hooks]Policy
	passes  [abi.Hooks]bool
	to      *slog.Logger

	breaker breaker
	counts  counts
	lines   lineRate
	full    atomic.Int64 // the minute in which the log said last that its share of the store is full

	active atomic.Int64 // calls under way, and one until Close
	closed atomic.Bool
	idle   chan struct{}
	once   sync.Once
}

// Open makes the front ready for calls, for a program with this binding whose limits are
// filled in.
func (f *Front) Open(b *Binding) {
	f.name, f.onError, f.passes, f.to = b.Name, b.OnError, b.Passes, b.Log
	if f.to == nil {
		f.to = slog.New(slog.DiscardHandler)
	}
	f.lines.limit = int64(b.Limits.LogLines)
	f.idle = make(chan struct{})
	f.active.Store(1)
}

// errClosed is what a call gets after Close.
var errClosed = errors.New("wasm: the guest is closed")

// Enter begins a call, which Leave ends. The error is that of the call, which is not made.
func (f *Front) Enter(hook abi.Hook, from Sender) error {
	f.active.Add(1)
	if f.closed.Load() {
		return errClosed
	}
	if f.rests(hook) && !f.breaker.allow(from) {
		f.counts.failed(hook, Open, false)
		return &Failure{Guest: f.name, Hook: hook, Reason: Open}
	}
	return nil
}

// Leave ends a call, also of one that Enter refused.
func (f *Front) Leave() {
	if f.active.Add(-1) == 0 {
		f.once.Do(func() { close(f.idle) })
	}
}

// Settle notes what came of a call: why it failed, nil for a success, and whether the program
// answered anything then. fuel is what it used. The error is that of the call, nil where the
// failure is passed over.
func (f *Front) Settle(hook abi.Hook, from Sender, why *Failure, answered bool) error {
	switch {
	case why == nil:
		f.breaker.success(from, answered)
		f.counts.done(hook, answered)
		return nil
	case why.Reason.fault():
		f.crash(hook, from)
	default:
		f.breaker.undecided(from)
	}
	skip := f.skips(hook) && why.Reason != Canceled
	f.counts.failed(hook, why.Reason, skip)
	if skip {
		return nil
	}
	return why
}

// Used counts fuel.
func (f *Front) Used(fuel uint64) { f.counts.fuel.Add(fuel) }

// skips reports whether a failure in a hook is passed over.
func (f *Front) skips(hook abi.Hook) bool { return f.onError[hook] == Skip }

// rests reports whether the messages of a sender on which the guest fails again and again rest.
// A guest whose failures are passed over is asked about every message all the same: to rest
// would be to let pass what it would have refused.
func (f *Front) rests(hook abi.Hook) bool { return !f.skips(hook) && !f.passes[hook] }

// Reject is for a record that Call returned and that turns out to be no answer
// to the hook: malformed, or with operations that it may not use. It is counted
// as a breach of the ABI and gives what Call would have given for one: the
// failure, or nil under the policy Skip.
func (f *Front) Reject(hook abi.Hook, from Sender, detail string) error {
	skip := f.skips(hook)
	f.counts.failed(hook, Broken, skip)
	f.breaker.rejected(from)
	f.crash(hook, from)
	if skip {
		return nil
	}
	return &Failure{Guest: f.name, Hook: hook, Reason: Broken, Detail: detail}
}

// crash counts a failure that a message caused.
func (f *Front) crash(hook abi.Hook, from Sender) {
	if f.rests(hook) && f.breaker.failure(from) {
		f.counts.opened.Add(1)
		f.to.Warn("guest fails again and again on messages of one sender: they rest for a while", "guest", f.name)
	}
}

// Shut keeps further calls out and waits for those under way. It reports whether it is the
// first time.
func (f *Front) Shut() bool {
	if f.closed.Swap(true) {
		return false
	}
	f.Leave()
	<-f.idle
	return true
}

// Line writes a line of the program to the log, at most so many a second.
func (f *Front) Line(level slog.Level, text []byte) {
	if !f.lines.allow(time.Now().Unix()) {
		f.counts.dropped.Add(1)
		return
	}
	ctx := context.Background()
	if !f.to.Enabled(ctx, level) {
		return
	}
	f.to.Log(ctx, level, strings.ToValidUTF8(string(text), "\ufffd"), "guest", f.name)
}

// Unstored returns what a program is told of an error of the store, below zero. The log says once a
// minute where it is its own share that is full.
func (f *Front) Unstored(err error) int64 {
	if !errors.Is(err, edge.ErrShare) {
		return abi.ErrUnavailable
	}
	if now := time.Now().Unix()/60 + 1; f.full.Swap(now) != now {
		f.to.Warn("a filter's share of the store in memory is full: have it keep less, or for a shorter time (ttl_ms), or give its server a store without shares (sessionStorage of provider kvstore)", "guest", f.name)
	}
	return abi.ErrLimit
}

// Figures returns what the front counts.
func (f *Front) Figures() Stats {
	c := &f.counts
	s := Stats{Fuel: c.fuel.Load(), Made: c.made.Load(), LogsDropped: c.dropped.Load(), Rests: c.opened.Load(), Resting: f.breaker.resting()}
	for h := range s.Hooks {
		to := &s.Hooks[h]
		to.Pass, to.Ops, to.Skipped = c.pass[h].Load(), c.ops[h].Load(), c.skipped[h].Load()
		for r := range to.Failures {
			to.Failures[r] = c.failures[h][r].Load()
		}
	}
	return s
}

// lineRate counts log lines by the second.
type lineRate struct {
	limit  int64
	second atomic.Int64
	lines  atomic.Int64
}

func (r *lineRate) allow(now int64) bool {
	if s := r.second.Load(); s != now && r.second.CompareAndSwap(s, now) {
		r.lines.Store(0)
	}
	return r.lines.Add(1) <= r.limit
}
