package wasm

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
)

// A guest that fails crashes times one after the other on messages of one
// sender, within crashWindow and with no success in between, is not asked about
// this sender's messages for restMin; twice as long each time that the next call
// fails too, up to restMax. One that fails now and then, however often, is.
const (
	crashes     = 5
	crashWindow = 10 * time.Second
	restMin     = time.Second
	restMax     = time.Minute
	maxSenders  = 1024 // that are remembered at a time
)

// Sender is who caused what a guest is asked about. Its zero value is nobody,
// whose messages never rest.
type Sender struct {
	Identity *edge.Identity // nil where nobody is asked who they are
	Address  string         // that the message came from
	Backend  string         // that sent it to this client; "" for what the client itself sent
}

func (s Sender) nobody() bool { return s == Sender{} }

// key tells senders apart. What a backend sends to a client is not the fault of
// the client, nor concerns what the backend sends to others.
func (s Sender) key() string {
	who := edge.Holder(s.Identity, s.Address)
	if s.Backend != "" {
		return who + "\x00" + s.Backend
	}
	return who
}

// breaker notices senders on whose messages a guest fails again and again. What
// one sender causes does not concern another.
type breaker struct {
	trouble atomic.Int32 // senders that are remembered

	mu sync.Mutex
	of map[string]*row
}

// row is what is remembered of a sender: failures without a success in between.
type row struct {
	failures int
	first    time.Time // of the failures
	last     time.Time
	rest     time.Duration
	until    time.Time // no call before; zero for a sender that is not at rest
	trial    bool      // one call is under way to see whether it works again

	before *row // what the last answer has put aside, which may turn out to be none; nil for nothing
}

// stale reports that nothing follows from a row any more.
func (r *row) stale(now time.Time) bool {
	return now.Sub(r.last) > max(crashWindow, 2*r.rest) && !r.trial
}

// allow reports whether a call may be made for a sender.
func (b *breaker) allow(s Sender) bool {
	if b.trouble.Load() == 0 || s.nobody() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.of[s.key()]
	switch {
	case r == nil || r.until.IsZero():
		return true
	case r.trial || time.Now().Before(r.until):
		return false
	}
	r.trial = true
	return true
}

// success forgets the failures of a sender. Where the program answered something they are only put
// aside until its next call: rejected has them back.
func (b *breaker) success(s Sender, answered bool) {
	if b.trouble.Load() == 0 || s.nobody() {
		return
	}
	key := s.key()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch r := b.of[key]; {
	case r == nil:
	case answered && r.failures > 0:
		was := *r
		was.before = nil
		*r = row{last: r.last, before: &was}
	default:
		b.forget(key)
	}
}

// rejected takes back the success of an answer that is none.
func (b *breaker) rejected(s Sender) {
	if b.trouble.Load() == 0 || s.nobody() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.of[s.key()]; r != nil && r.before != nil {
		*r = *r.before
	}
}

func (b *breaker) forget(key string) {
	delete(b.of, key)
	b.trouble.Store(int32(len(b.of)))
}

// failure counts a failure on a message of the sender, and reports whether the
// sender's messages rest from now on.
func (b *breaker) failure(s Sender) bool {
	if s.nobody() {
		return false
	}
	key, now := s.key(), time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.of[key]
	if r == nil {
		r = b.remember(key, now)
	}
	r.before = nil
	if r.failures == 0 || r.rest == 0 && now.Sub(r.first) > crashWindow {
		r.failures, r.first = 0, now
	}
	r.failures++
	r.last = now
	if !r.until.IsZero() && !r.trial {
		return false // a call that was under way when the rest began
	}
	if r.failures < crashes {
		return false
	}
	r.rest = min(max(2*r.rest, restMin), restMax)
	r.until, r.trial = now.Add(r.rest), false
	return true
}

// remember makes a row. A full table loses the rows that nothing follows from,
// and if there are none, the sender whose last failure is the oldest.
func (b *breaker) remember(key string, now time.Time) *row {
	if b.of == nil {
		b.of = make(map[string]*row)
	}
	if len(b.of) >= maxSenders {
		oldest := ""
		for k, r := range b.of {
			if r.stale(now) {
				delete(b.of, k)
			} else if oldest == "" || r.last.Before(b.of[oldest].last) {
				oldest = k
			}
		}
		if len(b.of) >= maxSenders {
			delete(b.of, oldest)
		}
	}
	r := &row{}
	b.of[key] = r
	b.trouble.Store(int32(len(b.of)))
	return r
}

// undecided ends a trial that showed nothing, such as one whose message was
// canceled.
func (b *breaker) undecided(s Sender) {
	if b.trouble.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.of[s.key()]; r != nil {
		r.trial = false
	}
}

// resting counts the senders at rest, and forgets those that nothing follows
// from any more.
func (b *breaker) resting() (n int) {
	if b.trouble.Load() == 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for k, r := range b.of {
		switch {
		case r.stale(now):
			b.forget(k)
		case !r.until.IsZero():
			n++
		}
	}
	return n
}
