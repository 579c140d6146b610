package backend

import (
	"container/list"
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// A bridge that puts a server of one client (stdio) behind HTTP may send all
// that the server says to everybody who is connected. Its answers find their
// requests all the same, since the edge numbers what it asks so that no two
// sessions meet in a number. What has no number of the edge's own to be known
// by, a question or a log message, goes to a client only where it can be nobody
// else's.

// Sessions number their requests, and the progress tokens in them, from a start
// by chance: sessions of one edge, edges, and whoever else is connected to a
// bridge count apart. Numbers have 14 digits, as many as a reader keeps whole
// that takes them for floating-point numbers and prints those with its default
// precision (%.14g), and are far below 2^53 (RFC 8259 §6).
const (
	firstNumber = 10_000_000_000_000
	lastStart   = 90_000_000_000_000
)

// A local server on standard streams has no other clients, and some of those read ids as integers
// of 32 bits.
const (
	firstLocal = 1_000_000_000
	lastLocal  = 2_000_000_000
)

func startOfNumbers(local bool) uint64 {
	if local {
		return firstLocal + rand.Uint64N(lastLocal-firstLocal)
	}
	return firstNumber + rand.Uint64N(lastStart-firstNumber)
}

// number returns the next number of the session, appended to dst.
func (s *session) number(dst []byte) []byte { return strconv.AppendUint(dst, s.ids.Add(1), 10) }

// gave reports whether the session has given a request this id.
func (s *session) gave(id []byte) bool {
	n, err := strconv.ParseUint(string(id), 10, 64)
	return err == nil && s.first < n && n <= s.ids.Load()
}

// foreign reports whether an id is of the kind that sessions give, and not of
// this one.
func (s *session) foreign(id []byte) bool {
	n, err := strconv.ParseUint(string(id), 10, 64)
	return err == nil && firstNumber <= n && n < firstNumber*10 && !s.gave(id)
}

// bridge is what is known of a backend that sends messages to others than they
// are for. Its mu may be held while that of a session is taken, never the other
// way.
type bridge struct {
	mu       sync.Mutex
	sessions map[*session]bool // that have been opened
	whose    [64]whose         // of the questions heard last
	next     int
	lines    map[[sha256.Size]byte][]*line // heard of late, those of one text in their order
	recent   list.List                     // the same, the oldest first
	hearings int                           // of all of them
}

// line is a notification that came to every session, and whose it is. The first
// session to hear it decides: until then nobody has heard the answer to the call
// that it is of, which comes after it.
type line struct {
	key   [sha256.Size]byte
	owner *session // nil where that cannot be known
	at    time.Time
	by    []*session // who has heard it
	place *list.Element
}

const (
	// lateLine is by how much later than the first a session may hear a line.
	lateLine = 5 * time.Second

	// maxHearings bounds what is remembered of lines, and maxSame the lines of one
	// text. What comes beyond is nobody's.
	maxHearings = 64 << 10
	maxSame     = 64
)

// whose is a question that came to every session, and whose it is.
type whose struct {
	key   [sha256.Size]byte
	owner *session // nil where that cannot be known
	at    time.Time
}

// sameQuestion is for how long a question is the same when it is heard once more.
const sameQuestion = 30 * time.Second

// enter notes a session that is open, and leave that it has ended.
func (g *bridge) enter(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sessions == nil {
		g.sessions = make(map[*session]bool)
	}
	g.sessions[s] = true
}

func (g *bridge) leave(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, s)
}

// sole returns the one session that has a client's calls under way; nil for none
// and where there are several.
func (g *bridge) sole() *session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.soleOf()
}

func (g *bridge) soleOf() (one *session) {
	for s := range g.sessions {
		if !s.serving() {
			continue
		}
		if one != nil {
			return nil
		}
		one = s
	}
	return one
}

// claim returns whose a question is that every session hears, and whether s is
// the first of them to ask.
func (g *bridge) claim(m *mcp.Message) (owner *session, first bool) {
	key := sha256.Sum256(m.Raw)
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.whose {
		if w.key == key && now.Sub(w.at) < sameQuestion {
			return w.owner, false
		}
	}
	owner = g.soleOf()
	g.whose[g.next] = whose{key, owner, now}
	g.next = (g.next + 1) % len(g.whose)
	return owner, true
}

// ownerOf returns whose a line is that s hears; nil where that cannot be known.
// A session hears every line once, so that one which it has heard and hears
// again is another.
func (g *bridge) ownerOf(m *mcp.Message, s *session) *session {
	key := sha256.Sum256(m.Raw)
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.expire(now)
	for _, w := range g.lines[key] {
		if !slices.Contains(w.by, s) {
			g.heard(w, s)
			return w.owner
		}
	}
	if g.hearings >= maxHearings || len(g.lines[key]) >= maxSame {
		return nil
	}
	w := &line{key: key, owner: g.soleOf(), at: now}
	if g.lines == nil {
		g.lines = make(map[[sha256.Size]byte][]*line)
	}
	g.lines[key] = append(g.lines[key], w)
	w.place = g.recent.PushBack(w)
	g.heard(w, s)
	return w.owner
}

// heard notes that a session has heard a line. Nobody else will when all have.
func (g *bridge) heard(w *line, s *session) {
	w.by = append(w.by, s)
	g.hearings++
	if len(w.by) >= len(g.sessions) {
		g.forget(w)
	}
}

// expire forgets the lines that nobody hears any more.
func (g *bridge) expire(now time.Time) {
	for e := g.recent.Front(); e != nil; e = g.recent.Front() {
		w := e.Value.(*line)
		if now.Sub(w.at) <= lateLine {
			return
		}
		g.forget(w)
	}
}

func (g *bridge) forget(w *line) {
	g.hearings -= len(w.by)
	g.recent.Remove(w.place)
	same := slices.DeleteFunc(g.lines[w.key], func(o *line) bool { return o == w })
	if len(same) == 0 {
		delete(g.lines, w.key)
		return
	}
	g.lines[w.key] = same
}

// serving reports whether a call of a client is under way.
func (s *session) serving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.client != nil {
			return true
		}
	}
	return false
}

// stray notes an answer to a request that whoever hears it has not sent.
func (b *Backend) stray() {
	if b.strays.Add(1) == 1 {
		b.Log.Warn("backend sends answers to others than who asked: it may be a bridge that sends each answer to all its clients; its requests are numbered apart from now on", "backend", b.Name)
	}
}

// Strays returns how many answers have come to others than who asked.
func (b *Backend) Strays() int64 { return b.strays.Load() }

// crosses reports whether the backend sends messages to others than they are for.
func (b *Backend) crosses() bool { return b.strays.Load() > 0 }

// admits reports whether a question or a notification that may have come to
// every session of a bridge is for this one. A question that is for none is
// refused, once.
func (s *session) admits(l *link, m *mcp.Message) bool {
	if m.Kind == mcp.Notification {
		return s.mine(m)
	}
	owner, first := s.b.bridge.claim(m)
	switch {
	case m.Method == "ping":
		return first
	case owner == nil && first:
		s.refuse(l, slices.Clone(m.IDText()), mcp.CodeInternal, "the bridge before this server sends its questions to all its clients, and nothing says whose this one is")
	}
	return owner == s
}

// mine is admits for a notification.
func (s *session) mine(m *mcp.Message) bool {
	switch m.Method {
	case "notifications/progress", "notifications/cancelled",
		"notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		return true // the token says whose it is; a change is everybody's
	case "notifications/resources/updated":
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.client == nil || s.subs.uris[m.Text("uri")]
	}
	return s.b.bridge.ownerOf(m, s) == s
}

// crossesWithin bounds the look whether answers go to others.
const crossesWithin = 2 * time.Second

// Crosses has a legacy backend answer over two sessions at the same time, and
// reports whether an answer to one has come to the other, then or before.
func (b *Backend) Crosses(ctx context.Context) bool {
	in := b.Known()
	if in == nil || in.Era != mcp.Legacy || b.crosses() {
		return b.crosses()
	}
	ctx, cancel := context.WithTimeout(ctx, crossesWithin)
	defer cancel()
	lent, err := b.borrow(in, sort{})
	if err != nil {
		return false
	}
	defer b.giveBack(lent, false)
	one, other := lent.session, newSession(b, in.SSE, nil, nil)
	defer other.Close()
	for _, s := range []*session{one, other} {
		if _, err := s.link(ctx); err != nil {
			return false
		}
	}
	ping := func(s *session) {
		if l, err := s.link(ctx); err == nil {
			_, _, _ = s.roundTrip(ctx, l, "ping", nil) // what counts is what comes beside the answer
		}
	}
	for range 3 {
		var both sync.WaitGroup
		both.Go(func() { ping(one) })
		both.Go(func() { ping(other) })
		both.Wait()
	}
	return b.crosses()
}
