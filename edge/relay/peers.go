package relay

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Edges that share a store say there that they are alive, again and again, each
// time with another word. Who looks sees by his own clock for how long an edge has
// said nothing new.
//
// Two things are made of that. An edge that holds calls is taken to be gone when
// it has been silent for aliveFor, or when its word was taken away. An edge that
// was asked something, and neither answers nor says anything for silentFor, is
// taken to be gone by whoever asked; should it live after all, it finds out by
// itself: an edge that could not say for leaseFor that it is alive asks the store
// before it answers a call that somebody else may have declared failed (fence.go).
const (
	aliveFor   = 5 * time.Second
	AliveEvery = time.Second // how often whoever serves somebody looks whether he is alive

	beatEvery = 200 * time.Millisecond
	leaseFor  = 600 * time.Millisecond
	silentFor = 750 * time.Millisecond

	// looksFor is how often an edge was looked at in vain before silentFor counts:
	// who looks may have been held up himself.
	looksFor = 4
)

// beat says that the edge is alive until ctx ends.
func (l *Link) beat(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for n := uint64(1); ; n++ {
		began := time.Now()
		if !l.Relay.Leaving() {
			_ = l.Store.Put(ctx, LastAlive, []byte(l.Relay.Node), aliveFor)
		}
		if l.Store.Put(ctx, AliveKey(l.Relay.Node), strconv.AppendUint(nil, n, 36), aliveFor) == nil { // else the store says in the log that it is away
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

// Lease is what an edge knows of how others see it.
type Lease struct {
	mu     sync.Mutex
	said   time.Time // when it last began to say that it is alive
	lapses uint64    // how often it was late
}

// renew notes that the store took at now what the edge began to say at began.
func (l *Lease) renew(began, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.said.IsZero() && now.Sub(l.said) > leaseFor {
		l.lapses++
	}
	l.said = began
}

// Count is how often the edge was late.
func (l *Lease) Count() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lapses
}

// Lapsed reports whether others may have taken the edge to be gone since Count
// returned was.
func (l *Lease) Lapsed(was uint64, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lapses != was || now.Sub(l.said) > leaseFor
}

// peers are the other replicas as this one sees them.
type peers struct {
	mu sync.Mutex
	of map[string]*peer
}

// peer is one of them.
type peer struct {
	mu    sync.Mutex // one looks at a time
	asked time.Time  // when somebody last wanted to know of it; the mu of peers guards it
	word  string     // "" for none
	since time.Time  // when the word was first seen
	seen  time.Time  // when it was last looked at
	looks int        // how often it was the same
}

// MaxPeers is how many edges are remembered: the one that nobody has asked about
// for longest makes room.
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
		case err != nil: // nobody could have been heard
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

// Alive reports whether an edge has lately said that it is. A store that cannot
// say leaves it so.
func (l *Link) Alive(node string) bool {
	if l.Direct {
		said, err := l.Store.Get(context.Background(), AliveKey(node))
		return err != nil || said != nil
	}
	word, _, _ := l.look(node, false)
	return word != ""
}

// Gone reports whether an edge has said nothing for so long that it is no longer
// there. A store that was away itself has not heard of anybody for a while.
func (l *Link) Gone(node string) bool {
	return !l.Alive(node) && time.Since(l.Since()) > aliveFor
}

// Silent reports whether an edge that does not answer is taken to be gone.
func (l *Link) Silent(node string) bool { return l.quietFor(node, silentFor) }

// Hushed is Silent for whoever has heard of the edge before, and need not be quick.
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

// ErrHolderGone is the end of a call whose edge is no longer there.
func ErrHolderGone() error {
	return &edge.Error{Kind: edge.Gone, Op: "relay", Err: ErrGone}
}

// ErrGone is the cause of ErrHolderGone.
var ErrGone = errors.New("the edge that held this call is gone")
