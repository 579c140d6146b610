package stdio

import (
	"context"
	"slices"
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

const (
	// maxShared is how many owners a shared process may have.
	maxShared = 20_000

	// maxAsked is how many questions of a shared process are remembered, for their
	// cancellations.
	maxAsked = 100
)

// everybody is what a shared process is told that clients can do: some of them can, and a
// question goes to one that can or is refused.
const everybody = `{"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true},"sampling":{"context":{},"tools":{}}}`

// shared has one process for all owners. Their requests have numbers that are unique
// among them, by which an answer is told from another's; what the server sends besides
// goes to an owner only where it is nobody else's.
type shared struct {
	b       *Bridge
	opening chan struct{} // one place: whoever is in it starts the process

	mu      sync.Mutex
	c       *child // nil while there is none
	members map[*member]bool
	calls   map[string]*member // requests under way by id, but for those that last
	lasting map[string]*member // subscriptions/listen by themselves, by id
	asked   []asked            // questions of the server
	uris    map[string]subscribed
	subs    map[string]string // resources/subscribe under way by id: the URI
	level   string            // the log level set

	met     []byte    // JSON text: the result of initialize; nil before it
	meeting string    // id of the initialize under way; "" for none
	waits   []greeted // who waits for its result
	known   bool      // initialized was sent
	own     uint64    // the last id of a request of the bridge's own
}

// subscribed is a resource that members are subscribed to.
type subscribed struct {
	members int
	agreed  bool // by the server, which need not hear of another one
}

type asked struct {
	id []byte
	by *member
}

type greeted struct {
	m  *member
	id []byte
}

func newShared(b *Bridge) *shared {
	return &shared{b: b, opening: make(chan struct{}, 1), members: make(map[*member]bool)}
}

// open makes an owner a member, and starts the process where there is none.
func (s *shared) open(ctx context.Context, h *edge.Owner) (edge.Stream, error) {
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, edge.Errorf(edge.Gone, "start", "%w", context.Cause(ctx))
	}
	m := &member{s: s, h: h}
	s.mu.Lock()
	c := s.c
	if c != nil && !c.leaving() {
		defer s.mu.Unlock()
		if len(s.members) >= maxShared {
			return nil, edge.Errorf(edge.Overload, "start", "the shared process has %d clients already", maxShared)
		}
		s.members[m] = true
		return m, nil
	}
	s.mu.Unlock()
	if c != nil { // what it still says is nobody's
		select {
		case <-c.done:
		case <-ctx.Done():
			return nil, edge.Errorf(edge.Gone, "start", "%w", context.Cause(ctx))
		}
	}
	s.mu.Lock()
	s.calls, s.lasting = make(map[string]*member), make(map[string]*member)
	s.uris, s.subs = make(map[string]subscribed), make(map[string]string)
	s.asked, s.level, s.met, s.meeting, s.waits, s.known = nil, "", nil, "", nil, false
	s.members = map[*member]bool{m: true}
	s.mu.Unlock()
	c, err := s.b.start(ctx, &edge.Owner{Trial: h.Trial, Hear: s.hear, Failed: s.failed, Ended: s.ended, Use: s.use})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.members[m] {
		return nil, edge.Errorf(edge.Unavailable, "start", "%w", errOver)
	}
	s.c = c
	return m, nil
}

// use is edge.Owner.Use for all members.
func (s *shared) use() edge.Use {
	s.mu.Lock()
	defer s.mu.Unlock()
	return edge.Use{Calls: len(s.calls), Listens: len(s.lasting) > 0 || s.c != nil && s.c.listeners.some.Load() > 0}
}

// ended tells all members that the process is gone.
func (s *shared) ended(err error) {
	s.mu.Lock()
	all := s.members
	s.members, s.c = map[*member]bool{}, nil
	for m := range all {
		m.left = true
	}
	s.mu.Unlock()
	for m := range all {
		m.tell(0, true, func() { m.h.Ended(err) })
	}
}

// failed is edge.Owner.Failed for whoever sent the request.
func (s *shared) failed(id []byte, why error) {
	s.mu.Lock()
	m := s.takes(string(id))
	s.mu.Unlock()
	if m != nil {
		id = slices.Clone(id)
		m.tell(0, true, func() { m.h.Failed(id, why) })
	}
}

// plain is an id as the bridge gave it: a server that makes a string of it is understood.
func plain[T string | []byte](id T) T {
	if len(id) > 2 && id[0] == '"' {
		return id[1 : len(id)-1]
	}
	return id
}

// takes returns whose a request is, and forgets it; s.mu is held.
func (s *shared) takes(id string) *member {
	id = plain(id)
	m := s.calls[id]
	if m == nil {
		m = s.lasting[id]
	}
	s.drop(id)
	return m
}

// drop forgets a request; s.mu is held.
func (s *shared) drop(id string) {
	delete(s.calls, id)
	delete(s.lasting, id)
	delete(s.subs, id)
}

// settle notes what the server says to a resources/subscribe, which the table still has; s.mu
// is held.
func (s *shared) settle(id string, agreed bool) {
	uri, ok := s.subs[id]
	m := s.calls[id]
	if !ok || m == nil || !m.uris[uri] { // it has unsubscribed meanwhile, perhaps
		return
	}
	if !agreed {
		s.forget(m, uri)
		return
	}
	one := s.uris[uri]
	one.agreed = true
	s.uris[uri] = one
}

// hear takes a message of the process.
func (s *shared) hear(n *mcp.Message) {
	one := *n
	if n.Kind == mcp.Result || n.Kind == mcp.Failure {
		s.answered(&one)
		return
	}
	s.mu.Lock()
	to := s.addressees(&one)
	if n.Kind == mcp.Request {
		switch {
		case len(to) == 0:
			s.mu.Unlock()
			s.refuse(&one, mcp.CodeMethodNotFound, "nobody is there to answer, or nothing says who")
			return
		case len(s.asked) == maxAsked:
			s.asked = slices.Delete(s.asked, 0, 1)
		}
		s.asked = append(s.asked, asked{slices.Clone(n.IDText()), to[0]})
	}
	s.mu.Unlock()
	if len(to) == 0 {
		s.b.dropped.Add(1)
		return
	}
	for i, m := range to {
		mine := &one
		if i > 0 {
			mine = one.Clone() // its bytes are the owner's
		}
		if !m.tell(len(n.Raw), false, func() { m.h.Hear(mine) }) {
			s.b.dropped.Add(1)
			if n.Kind == mcp.Request {
				s.refuse(&one, mcp.CodeInternal, "no further question can wait for an answer")
			}
		}
	}
}

// refuse answers a question of the process that reaches no client.
func (s *shared) refuse(n *mcp.Message, code int, why string) {
	s.mu.Lock()
	c := s.c
	s.mu.Unlock()
	if c == nil {
		return
	}
	body := mcp.AppendError(nil, n.IDText(), code, why, nil)
	if n.Method == "ping" {
		body = mcp.AppendResult(nil, n.IDText(), []byte("{}"))
	}
	_ = c.w.send(body, nil)
}

// answered takes an answer to whoever asked.
func (s *shared) answered(n *mcp.Message) {
	id := string(n.IDText())
	s.mu.Lock()
	s.settle(plain(id), n.Kind == mcp.Result)
	m := s.takes(id)
	var waits []greeted
	if id != "" && plain(id) == s.meeting {
		s.meeting = ""
		if n.Kind == mcp.Result {
			s.met = slices.Clone(n.Result.Of(n.Raw))
		}
		waits, s.waits = s.waits, nil
	}
	s.mu.Unlock()
	for _, w := range waits { // an error is theirs as well, and whoever asked may have left
		if one, err := mcp.Decode(mcp.Splice(nil, n.Raw, n.WithID(w.id))); err == nil {
			w.m.tell(0, true, func() { w.m.h.Hear(one) })
		}
	}
	if m == nil {
		if waits == nil {
			s.b.dropped.Add(1)
		}
		return
	}
	m.tell(0, true, func() { m.h.Hear(n) })
}

// addressees returns whom a notification or a question goes to; s.mu is held.
func (s *shared) addressees(n *mcp.Message) []*member {
	switch n.Method {
	case "ping":
		return nil
	case "notifications/progress":
		return some(s.calls[plain(string(n.Get("progressToken").Of(n.Raw)))])
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
		"notifications/resources/updated", "notifications/subscriptions/acknowledged":
		if id := n.Meta(mcp.MetaSubscription); id.OK() {
			return some(s.lasting[plain(string(id.Of(n.Raw)))])
		}
		if n.Method == "notifications/subscriptions/acknowledged" {
			return nil
		}
		uri := ""
		if n.Method == "notifications/resources/updated" {
			uri = n.Text("uri")
		}
		var all []*member
		for m := range s.members {
			if uri == "" || m.uris[uri] {
				all = append(all, m)
			}
		}
		return all
	case "notifications/cancelled":
		id := n.Get("requestId").Of(n.Raw)
		if m := s.lasting[plain(string(id))]; m != nil {
			s.drop(plain(string(id)))
			return some(m)
		}
		for _, a := range slices.Backward(s.asked) { // a server may use an id again
			if mcp.SameID(a.id, id) {
				return some(a.by)
			}
		}
		return nil
	case "notifications/message":
		level := severity(n.Text("level"))
		if one := s.sole(); one != nil {
			if one.level == "" || level >= severity(one.level) {
				return some(one)
			}
			return nil
		}
		if len(s.calls) > 0 {
			return nil // it may say what one of them must not know of another
		}
		var all []*member
		for m := range s.members {
			if m.level != "" && level >= severity(m.level) {
				all = append(all, m)
			}
		}
		return all
	}
	return some(s.sole())
}

func some(m *member) []*member {
	if m == nil || m.left {
		return nil
	}
	return []*member{m}
}

// sole returns the one member that has calls under way; nil for none, and where there are
// several; s.mu is held.
func (s *shared) sole() (one *member) {
	for _, m := range s.calls {
		if one != nil && m != one {
			return nil
		}
		one = m
	}
	return one
}

// levels are those of log messages, the most talkative first (2025-11-25,
// server/utilities/logging).
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func severity(level string) int { return slices.Index(levels, level) }

// loudest returns the most talkative of the levels that members want; s.mu is held.
func (s *shared) loudest() string {
	most := ""
	for m := range s.members {
		if m.level != "" && (most == "" || severity(m.level) < severity(most)) {
			most = m.level
		}
	}
	return most
}

// forget takes a subscription from a member, and reports whether it was the last; s.mu is
// held.
func (s *shared) forget(m *member, uri string) bool {
	delete(m.uris, uri)
	one := s.uris[uri]
	if one.members--; one.members > 0 {
		s.uris[uri] = one
		return false
	}
	delete(s.uris, uri)
	return true
}
