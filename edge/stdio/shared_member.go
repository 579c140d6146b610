package stdio

import (
	"slices"
	"strconv"
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// maxHeld and maxHeldBytes bound the notifications and questions that wait for one owner of a
// shared process: one may be larger if it waits alone.
const (
	maxHeld      = 1024
	maxHeldBytes = 4 << 20
)

// member is one owner of a shared process, and its edge.Stream.
type member struct {
	s *shared
	h *edge.Owner

	// s.mu guards these.
	level string
	uris  map[string]bool
	left  bool

	mine map[*listener]bool // the mutex of the process's listeners guards it

	mu    sync.Mutex
	held  []func() // what the owner is to be told next
	bytes int      // of it
	works bool     // a goroutine tells it
}

// Send is edge.Stream.Send. What the server must hear once, or from all of them together,
// is answered here where it has been said before.
func (m *member) Send(raw []byte, edits []mcp.Edit) error {
	s := m.s
	n, err := spliced(raw, edits)
	if err != nil {
		return err
	}
	raw = n.Raw
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
	case "notifications/cancelled":
		s.drop(string(n.Get("requestId").Of(n.Raw)))
	}
	switch {
	case !send || n.Kind != mcp.Request:
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

// Listen is edge.Stream.Listen.
func (m *member) Listen(raw []byte, edits []mcp.Edit) error {
	n, err := spliced(raw, edits)
	if err != nil {
		return err
	}
	c, err := m.process()
	if err == nil {
		err = c.w.over()
	}
	if err != nil {
		return err
	}
	id := slices.Clone(n.IDText())
	err = c.listeners.add(m, n, owner{
		hear: func(one *mcp.Message, must bool) {
			if !m.tell(len(one.Raw), must, func() { m.h.Hear(one) }) {
				m.s.b.dropped.Add(1)
			}
		},
		pass: func(raw []byte) error { return m.Send(raw, nil) },
		done: func() {
			m.s.mu.Lock()
			defer m.s.mu.Unlock()
			m.s.drop(string(id))
		},
		fail: func(why error) { m.tell(0, true, func() { m.h.Failed(id, why) }) },
	})
	if m.gone() { // meanwhile
		c.listeners.leave(m)
	}
	return err
}

// Unlisten is edge.Stream.Unlisten.
func (m *member) Unlisten(id []byte, why string) {
	if c, err := m.process(); err == nil {
		c.listeners.remove(m, id, why)
	}
}

// process returns the process, as long as the member has it.
func (m *member) process() (*child, error) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.left || m.s.c == nil {
		return nil, edge.Errorf(edge.Unavailable, "send", "%w", errOver)
	}
	return m.s.c, nil
}

func (m *member) gone() bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.left
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
	for id, of := range s.calls {
		if of == m {
			s.drop(id)
			if id == s.meeting {
				continue // nobody may cancel it
			}
			given = append(given, id)
		}
	}
	for id, of := range s.lasting {
		if of == m {
			s.drop(id)
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
	if c == nil {
		return nil
	}
	c.listeners.leave(m)
	for _, id := range given {
		_ = c.Send(cancelled([]byte(id), "its client has left"), nil)
	}
	for i, uri := range last {
		id := strconv.AppendUint(nil, ownRequests+first+uint64(i), 10)
		_ = c.Send(mcp.AppendRequest(nil, id, "resources/unsubscribe", append(mcp.AppendString([]byte(`{"uri":`), uri), '}')), nil)
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
