package serve

import (
	"container/list"
	"math"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/route"
)

// budget is the memory that the bodies of large requests may take, those that
// still arrive and those that are being served. One client has a share of it,
// so that no client takes it from all others; those who have not said who they
// are have half of it together, so that strangers leave the rest to those who
// have. What fits the buffer that a request is first read into is in no budget.
//
// Where nothing is left, a body that arrives too slowly to be whole in its time
// gives way to the one that needs its memory: to hold some costs a client as
// much as to use it.
type budget struct {
	most   int64         // bytes
	share  int64         // of them, for one client
	within time.Duration // how long a request may take to arrive
	grace  time.Duration // over which it is measured how fast a body arrives
	taken  atomic.Int64

	mu       sync.Mutex
	accounts map[owner]*account
	classes  [2]account // those who have said who they are, and strangers
}

// owner is a client that has memory: a principal, or an address where there is
// none.
type owner struct {
	principal string
	address   string // of a stranger; "" beside a principal
}

func (t owner) class() int {
	if t.principal == "" {
		return 1
	}
	return 0
}

// account is the memory that some clients have.
type account struct {
	bytes    int64
	arriving list.List // of *reservation, the oldest first
}

// reservation is the memory of one body. What changes of it is guarded by the mu
// of the budget.
type reservation struct {
	who   owner
	conn  net.Conn
	bytes int64
	size  int          // of the body, at the most
	came  atomic.Int64 // bytes of it
	place [2]*list.Element

	marks [2]mark // how much had come at two moments, at least grace apart
	ended bool    // it gave way, or the body has been served
}

type mark struct {
	at   time.Time
	came int64
}

// newBudget returns a budget for bodies of at most one bytes each, which may take
// so long to arrive.
func newBudget(one int, within time.Duration) *budget {
	b := &budget{most: mostForBodies(), within: within, grace: time.Second / 2, accounts: make(map[owner]*account)}
	b.share = min(max(b.most/4, int64(one)), b.most)
	return b
}

// mostForBodies is how many bytes of large requests the edge holds at a time. A
// request is held several times over on its way; where the memory of the
// process is limited (GOMEMLIMIT) a twentieth of it is what is safe.
func mostForBodies() int64 {
	const most = 1 << 30
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return min(most, limit/20)
	}
	return most
}

// take has a body have n bytes in place of what it has. It reports false where
// they are not left, and where the body had to give way.
func (b *budget) take(s *reservation, n int64, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.ended {
		return false
	}
	class := s.who.class()
	all := &b.classes[class]
	mine := b.accounts[s.who]
	if mine == nil {
		mine = &account{}
		b.accounts[s.who] = mine
	}
	more := n - s.bytes
	for mine.bytes+more > b.share {
		if !b.evict(mine, s, now) {
			b.forget(s.who)
			return false
		}
	}
	if class == 1 {
		for all.bytes+more > max(b.most/2, b.share) {
			if !b.evict(all, s, now) {
				b.forget(s.who)
				return false
			}
		}
	}
	for b.taken.Load()+more > b.most {
		if !b.evict(&b.classes[1], s, now) && (class == 1 || !b.evict(all, s, now)) {
			b.forget(s.who)
			return false
		}
	}
	if s.place[0] == nil {
		b.accounts[s.who] = mine // it may have been forgotten with what gave way
		s.place = [2]*list.Element{mine.arriving.PushBack(s), all.arriving.PushBack(s)}
		s.marks = [2]mark{{now, s.came.Load()}, {now, s.came.Load()}}
	}
	b.add(s, more)
	return true
}

// add changes what a body has; b.mu is held.
func (b *budget) add(s *reservation, n int64) {
	s.bytes += n
	b.taken.Add(n)
	b.accounts[s.who].bytes += n
	b.classes[s.who.class()].bytes += n
}

// evict ends the oldest of the bodies of an account that arrive too slowly, but
// not the one that wants its memory. It reports false where there is none; b.mu
// is held.
func (b *budget) evict(from *account, wants *reservation, now time.Time) bool {
	const looks = 256
	e := from.arriving.Front()
	for range looks {
		if e == nil {
			return false
		}
		if s := e.Value.(*reservation); s != wants && b.slow(s, now) {
			b.end(s)
			_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // whoever reads it finds that it has ended
			return true
		}
		e = e.Next()
	}
	return false
}

// slow reports whether a body has lately arrived too slowly to be whole in its
// time, if it went on so from its beginning to its end; b.mu is held.
func (b *budget) slow(s *reservation, now time.Time) bool {
	since := now.Sub(s.marks[0].at)
	came := s.came.Load() - s.marks[0].came
	return since >= b.grace && float64(came)*float64(b.within) < float64(s.size)*float64(since)
}

// mark notes how much of a body has come.
func (b *budget) mark(s *reservation, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(s.marks[1].at) >= b.grace {
		s.marks[0], s.marks[1] = s.marks[1], mark{now, s.came.Load()}
	}
}

// whole tells that a body has arrived, and keeps its memory until it is served. It
// reports false where the body had to give way.
func (b *budget) whole(s *reservation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(s)
	return !s.ended
}

// leave takes a body off the lists of those that arrive; b.mu is held.
func (b *budget) leave(s *reservation) {
	if s.place[0] != nil {
		b.accounts[s.who].arriving.Remove(s.place[0])
		b.classes[s.who.class()].arriving.Remove(s.place[1])
		s.place = [2]*list.Element{}
	}
}

// give gives back what a body has.
func (b *budget) give(s *reservation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !s.ended {
		b.end(s)
	}
}

// end is the end of a reservation; b.mu is held.
func (b *budget) end(s *reservation) {
	b.leave(s)
	if s.bytes != 0 {
		b.add(s, -s.bytes)
	}
	s.ended = true
	b.forget(s.who)
}

// forget forgets a client that has nothing; b.mu is held.
func (b *budget) forget(who owner) {
	if h := b.accounts[who]; h != nil && h.bytes == 0 && h.arriving.Len() == 0 {
		delete(b.accounts, who)
	}
}

// strangerAt is the client at an address, without a port, that has not said who
// it is. All of a network that is given out as one are the same: whoever has
// such a network of IPv6 has all of its addresses (RFC 6177).
func strangerAt(address string) owner {
	if at, err := netip.ParseAddr(address); err == nil && at.Is6() && !at.Is4In6() {
		if network, err := at.WithZone("").Prefix(64); err == nil {
			address = network.String()
		}
	}
	return owner{address: address}
}

// maxParkedBytes is how many bytes the requests of parked calls may have together,
// where the bodies of large requests may have as many. A holder has a quarter of
// them.
const maxParkedBytes = 64 << 20

// parkedFor makes the place where calls are parked by settings.
func parkedFor(s Settings, seal *route.Sealer, r *relay.Relay) *route.Parked {
	room := max(int(min(maxParkedBytes, mostForBodies())), s.MaxBody)
	return route.NewParked(route.ParkOptions{
		Most: s.MaxParked, TTL: s.ParkTTL, Cap: s.CallCap, Node: r.Node, Room: room, Part: max(room/4, s.MaxBody), Claims: &r.Claims,
	}, seal)
}
