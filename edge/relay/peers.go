package relay

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Edges that share a store write there at intervals that they are alive, each time a
// new value. A reader measures by its own clock for how long the value of an edge has
// been the same.
//
// It has two uses. An edge that holds calls counts as gone when its value has been the
// same for aliveFor or was deleted. An edge that was asked something, and neither
// answers nor writes a new value for silentFor, counts as gone for the edge that asked.
// If it lives after all it finds out by itself: an edge that could not renew its value
// for leaseFor asks the store before it answers a call that another edge may have
// declared failed. One that was given up is told so by the edges that served it, unless it
// could not be told for waitFor: then it expects no reply to what it asked before.
const (
	aliveFor   = 5 * time.Second
	AliveEvery = time.Second // interval at which an edge that serves another checks that it is alive

	beatEvery = 200 * time.Millisecond
	leaseFor  = 600 * time.Millisecond
	silentFor = 750 * time.Millisecond

	// looksFor is how many looks must find the same value before silentFor counts,
	// since the edge that looks may have been held up itself.
	looksFor = 4
)

// beat writes at intervals that the edge is alive, until ctx ends.
func (l *Link) beat(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for n := uint64(1); ; n++ {
		began := time.Now()
		if !l.Relay.Leaving() {
			_ = l.Store.Put(ctx, LastAlive, []byte(l.Relay.Node), aliveFor)
		}
		if l.Store.Put(ctx, AliveKey(l.Relay.Node), strconv.AppendUint(nil, n, 36), aliveFor) == nil { // the store logs its own failures
			l.Lease.renew(began, time.Now())
		}
		select {
		case <-ctx.Done():
			if l.Relay.Leaving() { // else it goes on with another store, which may be the same
				_ = l.Store.Delete(context.Background(), AliveKey(l.Relay.Node)) // it is forgotten soon in any case
			}
			return
		case <-tick.C:
		}
	}
}

// Lease records whether other edges may have taken this one to be gone.
type Lease struct {
	mu     sync.Mutex
	said   time.Time // when the last write that succeeded began
	lapses uint64    // how often a write was late
	back   time.Time // when the last one began that was so late that messages to the edge may be lost
}

// renew notes that a write which began at began had succeeded at now.
func (l *Lease) renew(began, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.said.IsZero() {
		if now.Sub(l.said) > leaseFor {
			l.lapses++
		}
		// The calendar counts the time that a machine slept, which its other clock may not.
		if max(now.Sub(l.said), now.Round(0).Sub(l.said.Round(0))) > waitFor {
			l.back = began
		}
	}
	l.said = began
}

// Forgotten reports whether others may have dropped what they served for the edge since a
// moment, and their word of that may be lost.
func (l *Lease) Forgotten(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return since.Before(l.back)
}

// Begun reports whether the edge has written once that it is alive.
func (l *Lease) Begun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.said.IsZero()
}

// Count returns how often the edge was late.
func (l *Lease) Count() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lapses
}

// Lapsed reports whether others may have taken the edge to be gone since Count
// returned the number was.
func (l *Lease) Lapsed(was uint64, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lapses != was || now.Sub(l.said) > leaseFor
}

// peers holds the state of the other replicas as seen by this one.
type peers struct {
	mu sync.Mutex
	of map[string]*peer
}

// peer is one of them.
type peer struct {
	mu    sync.Mutex // held by the goroutine that looks
	asked time.Time  // when its state was last asked for; the mu of peers guards it
	word  string     // "" for none
	since time.Time  // when the word was first seen
	seen  time.Time  // when it was last looked at
	looks int        // looks that found the same word
}

// MaxPeers bounds the remembered edges; the one asked about least recently is
// forgotten.
const MaxPeers = 1024

func (p *peers) get(node string) *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.of[node]
	if one == nil {
		if p.of == nil {
			p.of = make(map[string]*peer)
		}
		if len(p.of) >= MaxPeers {
			oldest := ""
			for name, other := range p.of {
				if oldest == "" || other.asked.Before(p.of[oldest].asked) {
					oldest = name
				}
			}
			delete(p.of, oldest)
		}
		one = new(peer)
		p.of[node] = one
	}
	one.asked = time.Now()
	return one
}

// look looks at an edge, unless somebody just has, or afresh. It returns its word,
// for how long that has been the same, and how often it was looked at in that time.
func (l *Link) look(node string, afresh bool) (word string, silent time.Duration, times int) {
	p := l.peers.get(node)
	p.mu.Lock()
	defer p.mu.Unlock()
	if soon := time.Since(p.seen) < beatEvery*3/4; afresh || !soon {
		said, err := l.Store.Get(context.Background(), AliveKey(node))
		now := time.Now()
		switch {
		case err != nil: // no edge could be heard
			p.since, p.looks = now, 0
			if p.word == "" {
				p.word = "unknown"
			}
		case p.since.IsZero() || string(said) != p.word:
			p.word, p.since, p.looks = string(said), now, 0
		case !soon:
			p.looks++
		}
		p.seen = now
	}
	return p.word, time.Since(p.since), p.looks
}

// Alive reports whether an edge has lately written that it is alive. While the store
// cannot be asked the last state holds.
func (l *Link) Alive(node string) bool {
	if l.Direct {
		said, err := l.Store.Get(context.Background(), AliveKey(node))
		return err != nil || said != nil
	}
	word, _, _ := l.look(node, false)
	return word != ""
}

// Gone reports whether an edge has been silent for so long that it counts as gone.
// After a failure of the store no edge counts as gone for a while.
func (l *Link) Gone(node string) bool {
	return !l.Alive(node) && time.Since(l.Since()) > aliveFor
}

// Silent reports whether an edge that does not answer counts as gone.
func (l *Link) Silent(node string) bool { return l.quietFor(node, silentFor) }

// Hushed is Silent for a caller that has heard from the edge before, and can wait
// longer.
func (l *Link) Hushed(node string) bool { return l.quietFor(node, 2*silentFor) }

// quietFor never says so by what was seen a moment ago alone.
func (l *Link) quietFor(node string, long time.Duration) bool {
	if l.Direct {
		return !l.Alive(node)
	}
	for _, afresh := range []bool{false, true} {
		word, silent, times := l.look(node, afresh)
		left := word == "" && time.Since(l.Since()) > aliveFor
		if !left && (silent < long || times < looksFor) {
			return false
		}
	}
	return true
}

// ErrHolderGone returns the error for a call whose edge is gone.
func ErrHolderGone() error {
	return &edge.Error{Kind: edge.Gone, Op: "relay", Err: ErrGone}
}

// ErrForgotten returns the error for what an edge asked of another one that has taken it to
// be gone since: nothing more comes of it.
func ErrForgotten() error {
	return edge.Errorf(edge.Gone, "relay", "this edge was silent for so long that the edge which holds this call gave it up")
}

// ErrGone is the cause of ErrHolderGone.
var ErrGone = errors.New("the edge that held this call is gone")
