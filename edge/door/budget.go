package door

import (
	"container/list"
	"math"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
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
	accounts map[Sender]*account
	classes  [2]account // those who have said who they are, and strangers
}

// Sender is a client that sends bodies: a principal, or an address where there is
// none.
type Sender struct {
	Principal string
	Address   string // of a stranger; "" beside a principal
}

func (t Sender) class() int {
	if t.Principal == "" {
		return 1
	}
	return 0
}

// account is the memory that some clients have.
type account struct {
	bytes    int64
	arriving list.List // of *Reservation, the oldest first
}

// Reservation is the memory of one body. What changes of it is guarded by the mu
// of the budget.
type Reservation struct {
	budget *budget
	from   Sender
	conn   net.Conn
	bytes  int64
	size   int          // of the body, at the most
	came   atomic.Int64 // bytes of it
	place  [2]*list.Element

	marks [2]mark // how much had come at two moments, at least grace apart
	ended bool    // it gave way, or the body has been served
}

type mark struct {
	at   time.Time
	came int64
}

// newBudget returns the budget that options ask for. A client's share holds one body
// at least.
func newBudget(o Options) *budget {
	b := &budget{most: o.BodyBytes, share: o.BodyShare, within: o.Within, grace: o.Grace, accounts: make(map[Sender]*account)}
	if b.most == 0 {
		b.most = MostForBodies()
	}
	if b.share == 0 {
		b.share = min(max(b.most/4, int64(o.MaxBody)), b.most)
	}
	if b.grace == 0 {
		b.grace = time.Second / 2
	}
	return b
}

// MostForBodies is how many bytes of large requests the edge holds at a time. A
// request is held several times over on its way; where the memory of the
// process is limited (GOMEMLIMIT) a twentieth of it is what is safe.
func MostForBodies() int64 {
	const most = 1 << 30
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return min(most, limit/20)
	}
	return most
}

// take gives a body n bytes in place of what it has. It reports false where
// they are not left, and where the body had to give way.
func (b *budget) take(s *Reservation, n int64, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.ended {
		return false
	}
	class := s.from.class()
	all := &b.classes[class]
	mine := b.accounts[s.from]
	if mine == nil {
		mine = &account{}
		b.accounts[s.from] = mine
	}
	more := n - s.bytes
	for mine.bytes+more > b.share {
		if !b.evict(mine, s, now) {
			b.forget(s.from)
			return false
		}
	}
	if class == 1 {
		for all.bytes+more > max(b.most/2, b.share) {
			if !b.evict(all, s, now) {
				b.forget(s.from)
				return false
			}
		}
	}
	for b.taken.Load()+more > b.most {
		if !b.evict(&b.classes[1], s, now) && (class == 1 || !b.evict(all, s, now)) {
			b.forget(s.from)
			return false
		}
	}
	if s.place[0] == nil {
		b.accounts[s.from] = mine // it may have been forgotten with what gave way
		s.place = [2]*list.Element{mine.arriving.PushBack(s), all.arriving.PushBack(s)}
		s.marks = [2]mark{{now, s.came.Load()}, {now, s.came.Load()}}
	}
	b.add(s, more)
	return true
}

// add changes what a body has; b.mu is held.
func (b *budget) add(s *Reservation, n int64) {
	s.bytes += n
	b.taken.Add(n)
	b.accounts[s.from].bytes += n
	b.classes[s.from.class()].bytes += n
}

// evict ends the oldest of the bodies of an account that arrive too slowly, but
// not the one that wants its memory. It reports false where there is none; b.mu
// is held.
func (b *budget) evict(from *account, wants *Reservation, now time.Time) bool {
	const looks = 256
	e := from.arriving.Front()
	for range looks {
		if e == nil {
			return false
		}
		if s := e.Value.(*Reservation); s != wants && b.slow(s, now) {
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
func (b *budget) slow(s *Reservation, now time.Time) bool {
	since := now.Sub(s.marks[0].at)
	came := s.came.Load() - s.marks[0].came
	return since >= b.grace && float64(came)*float64(b.within) < float64(s.size)*float64(since)
}

// mark notes how much of a body has come.
func (b *budget) mark(s *Reservation, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(s.marks[1].at) >= b.grace {
		s.marks[0], s.marks[1] = s.marks[1], mark{now, s.came.Load()}
	}
}

// whole tells that a body has arrived, and keeps its memory until it is served. It
// reports false where the body had to give way.
func (b *budget) whole(s *Reservation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(s)
	return !s.ended
}

// leave takes a body off the lists of those that arrive; b.mu is held.
func (b *budget) leave(s *Reservation) {
	if s.place[0] != nil {
		b.accounts[s.from].arriving.Remove(s.place[0])
		b.classes[s.from.class()].arriving.Remove(s.place[1])
		s.place = [2]*list.Element{}
	}
}

// Give gives back what the body has. nil has nothing.
func (s *Reservation) Give() {
	if s != nil {
		s.budget.give(s)
	}
}

// give gives back what a body has.
func (b *budget) give(s *Reservation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !s.ended {
		b.end(s)
	}
}

// end is the end of a Reservation; b.mu is held.
func (b *budget) end(s *Reservation) {
	b.leave(s)
	if s.bytes != 0 {
		b.add(s, -s.bytes)
	}
	s.ended = true
	b.forget(s.from)
}

// forget forgets a client that has nothing; b.mu is held.
func (b *budget) forget(from Sender) {
	if h := b.accounts[from]; h != nil && h.bytes == 0 && h.arriving.Len() == 0 {
		delete(b.accounts, from)
	}
}

// Stranger is the client at an address, without a port, that has not said who it
// is. All of a network that is given out as one are the same: whoever has
// such a network of IPv6 has all of its addresses (RFC 6177).
func Stranger(address string) Sender {
	if at, err := netip.ParseAddr(address); err == nil && at.Is6() && !at.Is4In6() {
		if network, err := at.WithZone("").Prefix(64); err == nil {
			address = network.String()
		}
	}
	return Sender{Address: address}
}
