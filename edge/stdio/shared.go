package stdio

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

const (
	// maxHeld and maxHeldBytes bound the notifications and questions that wait for one owner
	// of a shared process: one may be larger if it waits alone.
	maxHeld      = 1024
	maxHeldBytes = 4 << 20

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
// goes to a owner only where it is nobody else's.
type shared struct {
	b       *Bridge
	opening chan struct{} // one place: whoever is in it starts the process

	mu      sync.Mutex
	c       *child // nil while there is none
	members map[*member]bool
	calls   map[string]*member // requests under way by id, but for those that last
	lasting map[string]*member // subscriptions/listen by id
	asked   []asked            // questions of the server
	uris    map[string]subscribed
	subs    map[string]string // resources/subscribe under way by id: the URI
	news    map[*member]bool  // who asked for the news; one of them is told, all being the edge's own
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

// member is one owner of a shared process, and its edge.Stream.
type member struct {
	s *shared
	h *edge.Owner

	// s.mu guards these.
	level string
	uris  map[string]bool
	left  bool

	mu    sync.Mutex
	held  []func() // what the owner is to be told next
	bytes int      // of it
	works bool     // a goroutine tells it
}

func newShared(b *Bridge) *shared {
	return &shared{b: b, opening: make(chan struct{}, 1), members: make(map[*member]bool)}
}

// open makes a owner a member, and starts the process where there is none.
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
	s.calls, s.lasting, s.news = make(map[string]*member), make(map[string]*member), make(map[*member]bool)
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
	return edge.Use{Calls: len(s.calls), Listens: len(s.lasting) > 0}
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
func plain(id string) string {
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
	if id != "" && id == s.meeting {
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
		if id != edge.NewsID && waits == nil {
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
		return some(s.calls[string(n.Get("progressToken").Of(n.Raw))])
	case "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
		"notifications/resources/updated", "notifications/subscriptions/acknowledged":
		if id := n.Meta(mcp.MetaSubscription); id.OK() {
			if string(id.Of(n.Raw)) == edge.NewsID {
				for m := range s.news {
					return some(m)
				}
			}
			return some(s.lasting[string(id.Of(n.Raw))])
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
		for _, a := range s.asked {
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

// Send is edge.Stream.Send. What the server must hear once, or from all of them together,
// is answered here where it has been said before.
func (m *member) Send(raw []byte, edits []mcp.Edit) error {
	s := m.s
	if len(edits) > 0 {
		raw = mcp.Splice(nil, raw, edits...)
	}
	n, err := mcp.Decode(raw)
	if err != nil {
		return edge.Errorf(edge.Invalid, "send", "%w", err)
	}
	s.mu.Lock()
	c := s.c
	if m.left || c == nil {
		s.mu.Unlock()
		return edge.Errorf(edge.Unavailable, "send", "%w", errOver)
	}
	id := string(n.IDText())
	var answer []byte // JSON text of a result, in place of the server's
	send := true
	switch n.Method {
	case "initialize":
		switch {
		case s.met != nil:
			answer, send = s.met, false
		case s.meeting != "":
			s.waits = append(s.waits, greeted{m, slices.Clone(n.IDText())})
			s.mu.Unlock()
			return nil
		default:
			s.meeting = id
			params := mcp.Change(n.Params.Of(n.Raw), nil, mcp.With("capabilities", everybody))
			raw = mcp.AppendRequest(nil, n.IDText(), n.Method, params)
		}
	case "notifications/initialized":
		send, s.known = !s.known, true
	case "logging/setLevel":
		m.level = n.Text("level")
		most := s.loudest()
		if send = most != s.level; send {
			s.level = most
			raw = mcp.AppendRequest(nil, n.IDText(), n.Method, append(mcp.AppendString([]byte(`{"level":`), most), '}'))
		} else {
			answer = []byte("{}")
		}
	case "resources/subscribe":
		uri := n.Text("uri")
		if m.uris == nil {
			m.uris = make(map[string]bool)
		}
		one := s.uris[uri]
		if !m.uris[uri] {
			m.uris[uri] = true
			one.members++
			s.uris[uri] = one
		}
		if send = !one.agreed; send { // it may be refused, whoever else has asked
			s.subs[id] = uri
		} else {
			answer = []byte("{}")
		}
	case "resources/unsubscribe":
		uri := n.Text("uri")
		if m.uris[uri] {
			s.forget(m, uri)
		}
		if send = s.uris[uri].members == 0; !send { // what others have is not one member's to end
			answer = []byte("{}")
		}
	case "subscriptions/listen":
		if id == edge.NewsID {
			s.news[m] = true
			if len(s.news) > 1 {
				s.mu.Unlock()
				return nil // the process has been asked
			}
		}
	case "notifications/cancelled":
		s.drop(string(n.Get("requestId").Of(n.Raw)))
	}
	switch {
	case !send || n.Kind != mcp.Request || id == edge.NewsID:
	case n.Method == "subscriptions/listen":
		s.lasting[id] = m
	default:
		s.calls[id] = m
	}
	s.mu.Unlock()
	if answer != nil {
		one, err := mcp.Decode(mcp.AppendResult(nil, n.IDText(), answer))
		if err == nil {
			m.tell(0, true, func() { m.h.Hear(one) })
		}
		return err
	}
	if !send {
		return nil
	}
	if err = c.Send(raw, nil); err != nil && n.Kind == mcp.Request {
		s.mu.Lock()
		s.settle(id, false)
		s.takes(id)
		var waits []greeted
		if s.meeting == id {
			s.meeting = ""
			waits, s.waits = s.waits, nil
		}
		s.mu.Unlock()
		for _, w := range waits {
			w.m.tell(0, true, func() { w.m.h.Failed(w.id, err) })
		}
	}
	return err
}

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

// Close is edge.Stream.Close. The process goes on for the others.
func (m *member) Close() error {
	s := m.s
	s.mu.Lock()
	if m.left {
		s.mu.Unlock()
		return nil
	}
	m.left = true
	delete(s.members, m)
	var given []string // requests of which it would hear nothing any longer
	for _, table := range []map[string]*member{s.calls, s.lasting} {
		for id, of := range table {
			if of == m {
				s.drop(id)
				if id == s.meeting {
					continue // nobody may cancel it
				}
				given = append(given, id)
			}
		}
	}
	if s.news[m] {
		if delete(s.news, m); len(s.news) == 0 {
			given = append(given, edge.NewsID)
		}
	}
	s.waits = slices.DeleteFunc(s.waits, func(w greeted) bool { return w.m == m })
	var last []string
	for uri := range m.uris {
		if s.forget(m, uri) {
			last = append(last, uri)
		}
	}
	c := s.c
	first := s.own + 1
	s.own += uint64(len(last))
	s.mu.Unlock()
	for _, id := range given {
		if c != nil {
			_ = c.Send(mcp.AppendRequest(nil, nil, "notifications/cancelled", []byte(`{"requestId":`+id+`,"reason":"its client has left"}`)), nil)
		}
	}
	for i, uri := range last {
		if c != nil {
			id := strconv.AppendUint(nil, ownRequests+first+uint64(i), 10)
			_ = c.Send(mcp.AppendRequest(nil, id, "resources/unsubscribe", append(mcp.AppendString([]byte(`{"uri":`), uri), '}')), nil)
		}
	}
	return nil
}

// ownRequests is where the ids of the bridge's own requests begin: they have as many
// digits as questions for a sign of life, whose answers nobody else takes.
const ownRequests = 9_000_000_000_000

// tell has the owner told of something, in order. What need not be heard is dropped, and
// then it reports false, where too much waits.
func (m *member) tell(bytes int, must bool, f func()) bool {
	m.mu.Lock()
	if !must && (len(m.held) >= maxHeld || m.bytes > 0 && m.bytes+bytes > maxHeldBytes) {
		m.mu.Unlock()
		return false
	}
	if !m.works && must && bytes == 0 { // an answer: nobody is held up by that
		m.works = true
		m.mu.Unlock()
		f()
		m.next()
		return true
	}
	m.bytes += bytes
	m.held = append(m.held, func() {
		f()
		m.mu.Lock()
		m.bytes -= bytes
		m.mu.Unlock()
	})
	if m.works {
		m.mu.Unlock()
		return true
	}
	m.works = true
	m.mu.Unlock()
	go m.work()
	return true
}

// next goes on with what waits, on a goroutine where there is something.
func (m *member) next() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.held) == 0 {
		m.works = false
		return
	}
	go m.work()
}

// work tells the owner what waits.
func (m *member) work() {
	defer edge.Contain(m.s.b.Log, "owner")
	for {
		m.mu.Lock()
		if len(m.held) == 0 {
			m.works, m.held = false, nil
			m.mu.Unlock()
			return
		}
		f := m.held[0]
		m.held[0] = nil
		m.held = m.held[1:]
		m.mu.Unlock()
		f()
	}
}
