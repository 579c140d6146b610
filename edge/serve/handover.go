package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/route"
)

// What a process hands to the one that stands in for it, besides its sockets:
// the sessions of legacy clients with what they have set up and with their
// sessions at legacy backends, what streams have carried, whose tasks are where,
// and the keys of states. Calls under way and parked calls stay where they are:
// what clients send about them to the new process goes back as letters, over a
// socket that each process has for the others.

const (
	// maxHandedFrame bounds one thing that is handed over, maxHandedBytes all of
	// them, and maxHandedKeys the keys of states among them.
	maxHandedFrame = 1 << 20
	maxHandedBytes = 256 << 20
	maxHandedKeys  = 16

	// handWithin is how long the handing over of sessions may take, and
	// openingWithin how long it waits for sessions that are being opened at
	// backends at that moment.
	handWithin    = 20 * time.Second
	openingWithin = time.Second

	// awaitedFor is how long what comes for the client of a session that was
	// handed over waits for it to open a stream again, and maxMissed how many
	// messages do, of maxMissedBytes together.
	awaitedFor     = 30 * time.Second
	maxMissed      = 64
	maxMissedBytes = 64 << 10

	// deafWithin is how long a process that stands in for another waits for that
	// to say that it hears no backend any longer.
	deafWithin = 5 * time.Second
)

// The kinds of letters that one process writes to another of the same place.
const (
	letterHello   = "hello"   // begins what is handed over; the body is handedEdge
	letterKey     = "key"     // the body is a key of states
	letterTasks   = "tasks"   // the body is an array of handedTask
	letterSession = "session" // the body is a handedSession
	letterLog     = "log"     // what a stream has carried; Event is its name
	letterAll     = "all"     // there is no more
	letterKept    = "kept"    // answers all of that; the body is an array of leftOver
	letterHeir    = "heir"    // another process stands in from now on: From
	letterDeaf    = "deaf"    // the process before hears no backend any longer
)

// handedEdge is what a process says of itself.
type handedEdge struct {
	Node    string            `json:"node"`
	Elders  []string          `json:"elders,omitempty"`  // other processes before it that may be there still
	Servers map[string]string `json:"servers,omitempty"` // digest of each
}

// handedSession is a session.
type handedSession struct {
	ID           string                    `json:"id"`
	Server       string                    `json:"server"`
	Owner        string                    `json:"owner,omitempty"`
	Holder       string                    `json:"holder"` // whom it is counted for
	Version      string                    `json:"version"`
	Info         json.RawMessage           `json:"info,omitempty"`
	Capabilities json.RawMessage           `json:"capabilities"`
	Level        string                    `json:"level,omitempty"`
	Used         int64                     `json:"used"`             // Unix milliseconds
	Heard        bool                      `json:"heard,omitempty"`  // its client has a stream for what belongs to no call
	Stored       []byte                    `json:"stored,omitempty"` // as a store has it; nothing where none does
	Upstream     map[string]backend.Handed `json:"upstream,omitempty"`
}

// handedTask is where a task is.
type handedTask struct {
	Server  string `json:"server"`
	Owner   string `json:"owner"`
	ID      string `json:"id"`
	Backend string `json:"backend"`
}

// leftOver is what the new process did not take: a session, or what it has with
// one backend.
type leftOver struct {
	Session string `json:"session"` // its key
	Backend string `json:"backend,omitempty"`
}

// frame writes a letter with its length before it.
func frame(w io.Writer, l relay.Message, body []byte) error {
	text := l.Pack(body)
	if len(text) > maxHandedFrame {
		return errTooLargeToHand
	}
	return writeFrame(w, text)
}

var errTooLargeToHand = fmt.Errorf("it has more than %d bytes", maxHandedFrame)

func writeFrame(w io.Writer, text []byte) error {
	var head [4]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(text)))
	_, err := w.Write(append(head[:], text...))
	return err
}

// readFrame reads what writeFrame wrote. Memory is taken for what has come, not
// for what is announced.
func readFrame(r io.Reader, most int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n > int64(most) {
		return nil, fmt.Errorf("%d bytes are announced, and %d is the most", n, most)
	}
	var text bytes.Buffer
	got, err := io.CopyN(&text, r, n)
	if err != nil {
		return nil, fmt.Errorf("it ends after %d of %d bytes: %w", got, n, err)
	}
	return text.Bytes(), nil
}

// handing is what this process has handed over, to whom.
type handing struct {
	mu   sync.Mutex
	node string            // of the process that stands in for this one
	told map[string]string // digest of what was last told of a session, by its id
}

// heirNode is the process that stands in for this one; "" for none.
func (e *Edge) heirNode() string {
	if h := e.heir.Load(); h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.node
	}
	return ""
}

// count is what was handed over.
type count struct {
	sessions, logs, tasks int
	left                  []string // what did not go, and why
}

// leave notes what did not go. The log tells of a few and counts the rest.
func (c *count) leave(format string, args ...any) {
	c.left = append(c.left, fmt.Sprintf(format, args...))
}

// summary is the first few of what did not go.
func (c *count) summary() string {
	some := c.left[:min(len(c.left), 5)]
	var text bytes.Buffer
	for i, one := range some {
		if i > 0 {
			text.WriteString("; ")
		}
		text.WriteString(one)
	}
	if more := len(c.left) - len(some); more > 0 {
		fmt.Fprintf(&text, "; and %d more", more)
	}
	return text.String()
}

// handSessions writes everything that the process at the other end of rw is to go
// on with, and has the sessions that it took end here without their backends
// being told.
func (e *Edge) handSessions(rw io.ReadWriter, node string) error {
	h := &handing{node: node, told: make(map[string]string)}
	e.heir.Store(h)
	ctx, cancel := context.WithTimeout(context.Background(), openingWithin)
	defer cancel()
	var did count
	// 1. Who this is.
	hello := handedEdge{Node: e.relay.Node, Elders: e.elders.list(), Servers: make(map[string]string)}
	for name, s := range e.live.Load().servers {
		hello.Servers[name] = hex.EncodeToString([]byte(s.digest))
	}
	if err := frame(rw, relay.Message{Kind: letterHello, From: e.relay.Node}, encoded(hello)); err != nil {
		return err
	}
	// 2. Keys and tasks.
	for _, key := range e.keys[:min(len(e.keys), maxHandedKeys)] {
		if err := frame(rw, relay.Message{Kind: letterKey}, key); err != nil {
			return err
		}
	}
	for _, s := range e.live.Load().servers {
		for some := range slices.Chunk(s.tasks.list(s.name), 200) {
			if err := frame(rw, relay.Message{Kind: letterTasks}, encoded(some)); err != nil {
				return err
			}
			did.tasks += len(some)
		}
	}
	// 3. Sessions, those first that were used last, and what their streams carried.
	all := e.sessions.every()
	slices.SortFunc(all, func(a, b *session) int { return cmp.Compare(b.used.Load(), a.used.Load()) })
	went := make(map[string]handed, len(all))
	bytes, older := 0, e.doors.sessions()
	for _, s := range all {
		if older[s] {
			did.leave("a session of server %s: it ends with its stream of the older transport", s.server)
			continue
		}
		one, ok := e.hand(ctx, s)
		if !ok {
			continue // it has ended
		}
		text := encoded(one)
		if bytes += len(text); bytes > maxHandedBytes/2 {
			did.leave("a session of server %s: all of them have more than %d bytes", s.server, maxHandedBytes/2)
			continue
		}
		switch err := frame(rw, relay.Message{Kind: letterSession, Session: keyOf(s.ID)}, text); {
		case errors.Is(err, errTooLargeToHand):
			did.leave("a session of server %s: %v", s.server, err)
			continue
		case err != nil:
			return err
		}
		h.note(one)
		went[keyOf(s.ID)] = handed{s, one}
		did.sessions++
	}
	for _, one := range went {
		for _, l := range one.s.finished() {
			text := l.text()
			if bytes += len(text); bytes > maxHandedBytes {
				did.leave("a stream of a session of server %s: all of it has more than %d bytes", one.s.server, maxHandedBytes)
				continue
			}
			switch err := frame(rw, relay.Message{Kind: letterLog, Session: keyOf(one.s.ID), Event: l.stream}, text); {
			case errors.Is(err, errTooLargeToHand):
				did.leave("a stream of a session of server %s: %v", one.s.server, err)
			case err != nil:
				return err
			default:
				l.mu.Lock()
				l.handed = true
				l.mu.Unlock()
				did.logs++
			}
		}
	}
	if err := frame(rw, relay.Message{Kind: letterAll}, nil); err != nil {
		return err
	}
	// 4. What of that was taken.
	text, err := readFrame(rw, maxHandedFrame*8)
	if err != nil {
		return fmt.Errorf("the new process did not say what it took: %w", err)
	}
	l, body, ok := relay.Unpack(text)
	var left []leftOver
	if !ok || l.Kind != letterKept || json.Unmarshal(body, &left) != nil {
		return errors.New("the new process said what is not understood")
	}
	for _, one := range left {
		was, there := went[one.Session]
		switch {
		case !there:
		case one.Backend == "":
			did.leave("a session of server %s: the new process did not take it", was.s.server)
			delete(went, one.Session)
			did.sessions--
		default:
			delete(was.as.Upstream, one.Backend)
		}
	}
	for _, one := range went {
		e.handedOver(one.s, &one.as)
	}
	e.log.Info("sessions were handed over", "sessions", did.sessions, "streams", did.logs, "tasks", did.tasks)
	if len(did.left) > 0 {
		e.log.Warn("not everything was handed over", "left", len(did.left), "what", did.summary())
	}
	return nil
}

// handed is a session as it was handed over.
type handed struct {
	s  *session
	as handedSession
}

// encoded is the JSON text of what is handed over.
func encoded(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and JSON text that was read before
	}
	return text
}

// hand returns a session as it is handed over; false for one that ends with this
// process.
func (e *Edge) hand(ctx context.Context, s *session) (handedSession, bool) {
	h := handedSession{
		ID: s.ID, Server: s.server, Owner: s.Owner, Holder: e.sessions.holderOf(s), Version: s.Version, Info: s.Info, Capabilities: s.Capabilities,
		Level: s.LogLevel(), Used: s.used.Load(),
	}
	if keyOf(s.ID) == "" {
		return h, false
	}
	if r := s.common.last.Load(); r != nil && s.common.store.Load() != nil {
		h.Stored = r.text()
	}
	s.mu.Lock()
	h.Heard = s.hearing != nil || s.awaited()
	over := s.over
	s.mu.Unlock()
	if served := e.live.Load().servers[s.server]; served != nil && !over {
		for _, b := range served.backends {
			if up, ok := b.Hand(ctx, &s.Session); ok {
				if h.Upstream == nil {
					h.Upstream = make(map[string]backend.Handed)
				}
				h.Upstream[b.Name] = up
			}
		}
	}
	return h, !over
}

// handedOver notes that another process goes on with a session.
func (e *Edge) handedOver(s *session, as *handedSession) {
	s.handed.Store(true)
	if f, ok := s.Attached(farewellKey{}).(*farewell); ok {
		f.due.Store(false)
	}
	if served := e.live.Load().servers[s.server]; served != nil {
		for _, b := range served.backends {
			if up, ok := as.Upstream[b.Name]; ok {
				b.HandedOver(&s.Session, up)
			}
		}
	}
}

// note notes what was told of a session. It reports false when that was told
// before, but for the time and for what each request changes.
func (h *handing) note(one handedSession) bool {
	one.Used, one.Heard = 0, false
	upstream := make(map[string]backend.Handed, len(one.Upstream))
	for name, up := range one.Upstream {
		up.Requests, up.Heard = 0, ""
		upstream[name] = up
	}
	one.Upstream = upstream
	digest := digestText(string(encoded(one)))
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.told[one.ID] == digest {
		return false
	}
	h.told[one.ID] = digest
	return true
}

// handOn tells the process that stands in for this one what has become of a
// session, if anything has: what is set up here while this one still serves has
// to hold there. It waits for the new process's word.
func (e *Edge) handOn(s *session) {
	h := e.heir.Load()
	if e.mail == nil || h == nil || e.doors.sessions()[s] {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), openingWithin)
	defer cancel()
	one, ok := e.hand(ctx, s)
	if !ok {
		return
	}
	if !h.note(one) {
		return
	}
	d, err := e.ask(ctx, e.heirNode(), relay.Message{Kind: letterSession, Session: keyOf(s.ID)}, encoded(one))
	var left []leftOver
	if err == nil {
		err = json.Unmarshal(d.Body, &left)
	}
	if err != nil {
		e.log.Warn("a session was not handed over", "server", s.server, "error", err)
		return
	}
	for _, l := range left {
		if l.Backend == "" {
			return
		}
		delete(one.Upstream, l.Backend)
	}
	e.handedOver(s, &one)
}

// ask writes to another process of this place and waits for its answer.
func (e *Edge) ask(ctx context.Context, node string, l relay.Message, body []byte) (relay.Delivered, error) {
	one, err := e.relay.Open(relay.NewName(), "edge "+node)
	if err != nil {
		return relay.Delivered{}, err
	}
	defer one.Close()
	l.From, l.Stream = e.relay.Node, one.Name
	if err := e.mail.Send(node, l, body); err != nil {
		return relay.Delivered{}, err
	}
	return e.mail.Next(ctx, one, node, e.mail.Gone)
}

// upstreamOpened is told of a session that was begun at a backend.
func (e *Edge) upstreamOpened(client *edge.Session) {
	if e.heir.Load() == nil {
		return
	}
	if s := e.sessions.known(keyOf(client.ID)); s != nil {
		e.handOn(s)
	}
}

// inheritance is what another process handed over, read and judged, and not used
// yet.
type inheritance struct {
	from     handedEdge
	keys     [][]byte
	tasks    []handedTask
	sessions []handedSession
	logs     []handedLog
}

type handedLog struct {
	session, stream string
	text            []byte
}

// readInheritance reads what handSessions writes. What does not come whole is
// not used at all.
func readInheritance(r io.Reader) (*inheritance, error) {
	in := &inheritance{}
	for total, first := 0, true; ; first = false {
		text, err := readFrame(r, maxHandedFrame)
		if err != nil {
			return nil, err
		}
		if total += len(text); total > maxHandedBytes+maxHandedFrame {
			return nil, fmt.Errorf("it has more than %d bytes", maxHandedBytes)
		}
		l, body, ok := relay.Unpack(text)
		if !ok || first != (l.Kind == letterHello) {
			return nil, errors.New("it is not of this version, or of something else")
		}
		switch l.Kind {
		case letterHello:
			err = json.Unmarshal(body, &in.from)
			if err == nil && !relay.IsNode(in.from.Node) {
				err = errors.New("the process has no name")
			}
			in.from.Elders = slices.DeleteFunc(in.from.Elders, func(n string) bool { return !relay.IsNode(n) })
		case letterKey:
			if len(body) != 32 || len(in.keys) == maxHandedKeys {
				return nil, errors.New("a key is none")
			}
			in.keys = append(in.keys, body)
		case letterTasks:
			var some []handedTask
			if err = json.Unmarshal(body, &some); err == nil {
				in.tasks = append(in.tasks, some...)
			}
		case letterSession:
			var one handedSession
			if err = json.Unmarshal(body, &one); err == nil {
				in.sessions = append(in.sessions, one)
			}
		case letterLog:
			in.logs = append(in.logs, handedLog{l.Session, l.Event, body})
		case letterAll:
			return in, nil
		default: // of a later version: what it is about is not gone on with
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Kind, err)
		}
	}
}

// inherit goes on with what another process handed over, and returns what it did
// not take.
func (e *Edge) inherit(in *inheritance) (left []leftOver) {
	var did count
	e.elders.add(append(in.from.Elders, in.from.Node)...)
	e.addKeys(in.keys)
	live := e.live.Load()
	for _, t := range in.tasks {
		if s := live.servers[t.Server]; s != nil && s.targets[t.Backend] != nil {
			s.tasks.add(t.Owner, t.ID, s.targets[t.Backend])
			did.tasks++
		}
	}
	for i := range in.sessions {
		one := &in.sessions[i]
		others, err := e.inheritSession(one)
		if err != nil {
			left = append(left, leftOver{Session: keyOf(one.ID)})
			did.leave("a session: %v", err)
			continue
		}
		did.sessions++
		left = append(left, others...)
		if s := e.sessions.known(keyOf(one.ID)); s != nil && one.Heard && in.from.Servers[one.Server] != hex.EncodeToString([]byte(live.servers[one.Server].digest)) {
			for _, n := range notices(catalog.Changes{Tools: true, Prompts: true, Resources: true}) {
				s.miss(n)
			}
		}
	}
	for _, l := range in.logs {
		if e.inheritLog(l.session, l.stream, l.text) {
			did.logs++
		} else {
			did.leave("a stream: what it carried cannot be read, or has no room")
		}
	}
	for _, l := range left {
		if l.Backend != "" {
			did.leave("a session of backend %s: it is begun anew", l.Backend)
		}
	}
	e.work.Go(func() { // the process before says when it hears no backend any longer, or is gone
		defer edge.Contain(e.log, "listener")
		select {
		case <-time.After(deafWithin):
			e.hearAwaited(nil)
		case <-e.end:
		}
	})
	e.log.Info("sessions were taken over", "sessions", did.sessions, "streams", did.logs, "tasks", did.tasks)
	if len(did.left) > 0 {
		e.log.Warn("not everything was taken over", "left", len(did.left), "what", did.summary())
	}
	return left
}

// inheritSession goes on with a session, and returns what of it was not taken.
// One that is here already learns what is new.
func (e *Edge) inheritSession(h *handedSession) (left []leftOver, err error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	served := e.live.Load().servers[h.Server]
	switch {
	case served == nil:
		return nil, fmt.Errorf("there is no server %q any longer", h.Server)
	case (h.Owner == "") != (served.gate == nil):
		return nil, fmt.Errorf("server %s authenticates its clients in another way now", h.Server)
	case (h.Stored != nil) != (served.shared != nil):
		return nil, fmt.Errorf("server %s keeps its sessions in another place now", h.Server)
	}
	key := keyOf(h.ID)
	s := e.sessions.known(key)
	if s == nil {
		s = e.sessions.make(e.door.Clock.Now(), h.ID, h.Server, h.Owner, h.Version, h.Info, h.Capabilities)
		s.used.Store(min(h.Used, s.used.Load()))
		if h.Stored != nil {
			r := readRecord(h.Stored)
			if r == nil {
				return nil, errors.New("what the store has of it cannot be read")
			}
			e.joined(served.shared, s, key, r)
			s.common.seen.Store(0) // the store is asked with its next request, and learns that it is here
			s.common.slid.Store(0)
		}
		if g := served.guest; g != nil && g.SessionEnd != nil {
			f := &farewell{edge: e, s: s}
			f.due.Store(true)
			s.Attach(farewellKey{}, func() io.Closer { return f })
		}
		if h.Heard {
			s.mu.Lock()
			s.until, s.mute = time.Now().Add(awaitedFor), true
			s.mu.Unlock()
		}
		place, err := e.sessions.placeIfFree(e.door.Clock.Now(), h.Holder)
		if err != nil {
			return nil, err
		}
		s = e.sessions.add(s, place)
	} else if s.Owner != h.Owner || s.server != h.Server {
		return nil, errors.New("another session has its id")
	}
	if h.Level != "" {
		s.SetLogLevel(h.Level)
	}
	for name, up := range h.Upstream {
		if b := served.byName[name]; b == nil || !b.Take(&s.Session, up) {
			left = append(left, leftOver{Session: key, Backend: name})
		}
	}
	return left, nil
}

// check judges a session that was handed over as one of a client is judged.
func (h *handedSession) check() error {
	switch {
	case keyOf(h.ID) == "":
		return errors.New("its id is none")
	case !mcp.LegacyVersion(h.Version):
		return errors.New("its revision is none")
	case len(h.Capabilities) == 0 || h.Capabilities[0] != '{' || !json.Valid(h.Capabilities):
		return errors.New("its capabilities are none")
	case h.Info != nil && !json.Valid(h.Info):
		return errors.New("its client is none")
	case h.Level != "" && !logLevel(h.Level):
		return errors.New("its log level is none")
	case len(h.Owner) > 16<<10 || len(h.Holder) > 16<<10:
		return errors.New("its owner is none")
	}
	return nil
}

// inheritLog keeps what a stream carried at another process.
func (e *Edge) inheritLog(session, stream string, text []byte) bool {
	node, _, ok := cutNode(stream)
	if !ok || node == e.relay.Node || len(session) > 128 || len(stream) > 64 {
		return false
	}
	if _, _, _, ok := pastOf(text, 0); !ok {
		return false
	}
	return e.store.Put(context.Background(), logKey(session, stream), text, logFor) == nil
}

// cutNode takes the name of an edge off the front of the name of a stream, of an
// event or of a question.
func cutNode(name string) (node, rest string, ok bool) {
	i := bytes.IndexByte([]byte(name), '.')
	if i < 0 || !relay.IsNode(name[:i]) {
		return "", name, false
	}
	return name[:i], name[i+1:], true
}

// addKeys has states of another process open here, and those of this one there:
// a random key gives way to that of the process before.
func (e *Edge) addKeys(handed [][]byte) {
	keys := e.keys
	if !e.sharedKey && len(handed) > 0 {
		keys = nil
	}
	for _, k := range handed {
		if len(keys) < maxHandedKeys && !slices.ContainsFunc(keys, func(have []byte) bool { return bytes.Equal(have, k) }) {
			keys = append(keys, k)
		}
	}
	seal, err := route.NewSealer(keys)
	if err != nil {
		e.log.Warn("states of the process before cannot be opened", "error", err)
		return
	}
	e.keys = keys
	e.parked.Reseal(seal)
}

// mailHandlers are what comes of the messages that processes of one place alone
// write to each other.
func (e *Edge) mailHandlers(t *shared) map[string]relay.Handler {
	return map[string]relay.Handler{
		letterSession: func(l relay.Message, body []byte, size int) bool {
			t.Serve(l, size, "edge "+l.From, func(context.Context) {
				var one handedSession
				left := []leftOver{{Session: l.Session}}
				if json.Unmarshal(body, &one) == nil {
					if some, err := e.inheritSession(&one); err == nil {
						left = append([]leftOver{}, some...)
						if s := e.sessions.known(keyOf(one.ID)); s != nil {
							e.handOn(s) // where this process has been replaced meanwhile
						}
					} else {
						e.log.Warn("a session was not taken over", "server", one.Server, "error", err)
					}
				}
				_ = t.Send(l.From, relay.Message{Kind: letterKept, From: e.relay.Node, Stream: l.Stream}, encoded(left)) // who waits gives up by itself
			})
			return true
		},
		letterLog: func(l relay.Message, body []byte, _ int) bool {
			kept := e.inheritLog(l.Session, l.Event, body)
			if heir := e.heirNode(); heir != "" {
				kept = t.Send(heir, relay.Message{Kind: letterLog, Session: l.Session, Event: l.Event}, body) == nil
			}
			if !kept {
				e.log.Warn("what a stream carried was not taken over", "bytes", len(body))
			}
			return true
		},
		letterHeir: func(l relay.Message, _ []byte, _ int) bool {
			if h := e.heir.Load(); h != nil && relay.IsNode(l.From) {
				h.mu.Lock()
				h.node = l.From
				h.told = make(map[string]string)
				h.mu.Unlock()
			}
			return true
		},
		letterDeaf: func(_ relay.Message, body []byte, _ int) bool {
			var heard map[string]map[string]string
			_ = json.Unmarshal(body, &heard) // without it they are heard from now on
			t.Work.Go(func() {
				defer edge.Contain(e.log, "listener")
				e.hearAwaited(heard)
			})
			return true
		},
	}
}

// hearAwaited has the backends heard for the sessions whose clients had a stream
// at the process before: what comes waits for them to open another. heard says up
// to which event they have, by key and backend.
func (e *Edge) hearAwaited(heard map[string]map[string]string) {
	for _, s := range e.sessions.every() {
		if served := e.live.Load().servers[s.server]; served != nil {
			for name, event := range heard[keyOf(s.ID)] {
				if b := served.byName[name]; b != nil {
					b.HearFrom(&s.Session, event)
				}
			}
		}
		listen := e.listener(s)
		s.mu.Lock()
		mute := s.mute
		s.mute = false
		if mute && (s.awaited() || len(s.outlets) > 0) && s.hearing == nil && !s.over {
			ctx, cancel := context.WithCancel(context.Background())
			s.hearing = cancel
			listen(ctx, newest{s})
		}
		s.mu.Unlock()
	}
}

// deafen ends what the backends are heard for here, and the streams of clients:
// they open theirs again at the process that stands in for this one.
// It returns up to which event they have heard each, by key and backend.
func (e *Edge) deafen() map[string]map[string]string {
	var listened []*session
	for _, s := range e.sessions.every() {
		if !s.handed.Load() {
			continue
		}
		s.mu.Lock()
		hearing := s.hearing
		s.hearing = nil
		s.mu.Unlock()
		if hearing != nil {
			hearing()
			listened = append(listened, s)
		}
	}
	e.endStreams()
	heard := make(map[string]map[string]string)
	for _, s := range listened {
		served := e.live.Load().servers[s.server]
		if served == nil {
			continue
		}
		for _, b := range served.backends {
			if event := b.Heard(&s.Session); event != "" {
				if heard[keyOf(s.ID)] == nil {
					heard[keyOf(s.ID)] = make(map[string]string)
				}
				heard[keyOf(s.ID)][b.Name] = event
			}
		}
	}
	return heard
}

// handLogs hands over what streams have carried since, when this process ends.
func (e *Edge) handLogs() {
	heir := e.heirNode()
	if heir == "" || e.mail == nil {
		return
	}
	lost := 0
	for _, s := range e.sessions.every() {
		if !s.handed.Load() {
			continue
		}
		for _, l := range s.carried() {
			l.mu.Lock()
			handed := l.handed
			l.mu.Unlock()
			if !handed && e.mail.Send(heir, relay.Message{Kind: letterLog, Session: keyOf(s.ID), Event: l.stream}, l.text()) != nil {
				lost++
			}
		}
	}
	if lost > 0 {
		e.log.Warn("what streams carried was not handed over", "streams", lost)
	}
}

// awaited reports whether the client of a session that was handed over is waited
// for; s.mu is held.
func (s *session) awaited() bool { return !s.until.IsZero() }

// miss keeps a message for the client that is waited for. It reports false when
// there is none, or no room.
func (s *session) miss(m *mcp.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.awaited() || len(s.missed) >= maxMissed || s.missedBytes+len(m.Raw) > maxMissedBytes {
		return false
	}
	s.missed = append(s.missed, m.Clone())
	s.missedBytes += len(m.Raw)
	return true
}

// met ends the waiting and returns what has come meanwhile; s.mu is held.
func (s *session) met() []*mcp.Message {
	all := s.missed
	s.missed, s.missedBytes, s.until = nil, 0, time.Time{}
	return all
}

// giveUpWaiting ends the waiting for a client that does not come back in time.
func (s *session) giveUpWaiting(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.awaited() || now.Before(s.until) {
		return
	}
	s.met()
	if len(s.outlets) == 0 && s.hearing != nil {
		s.hearing()
		s.hearing = nil
	}
}

// finished returns the logs of streams that have ended.
func (s *session) finished() []*eventLog {
	return slices.DeleteFunc(s.carried(), func(l *eventLog) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !l.done
	})
}

// carried returns the logs of the session that are still kept.
func (s *session) carried() []*eventLog {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.logs)
}

// elders are the processes before this one that may still hold calls.
type elders struct {
	mu    sync.Mutex
	nodes []string
}

func (t *elders) add(nodes ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range nodes {
		if !slices.Contains(t.nodes, n) {
			t.nodes = append(t.nodes, n)
		}
	}
	t.nodes = t.nodes[max(0, len(t.nodes)-maxNodes):]
}

func (t *elders) list() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.nodes)
}

// tellKin writes to every process of this place that may hold something of a
// session: those before this one, and the one after it.
func (e *Edge) tellKin(s *session, kind string, body []byte) {
	if e.mail == nil {
		return
	}
	nodes := e.elders.list()
	if heir := e.heirNode(); heir != "" && s.handed.Load() {
		nodes = append(nodes, heir)
	}
	for _, n := range nodes {
		if e.mail.Alive(n) {
			_ = e.mail.Send(n, relay.Message{Kind: kind, Session: keyOf(s.ID)}, body) // one that is gone holds nothing
		}
	}
}

// pathTo returns how letters reach an edge: over the socket of a process of this
// place, or through the store; nil for not at all.
func (e *Edge) pathTo(store *shared, node string) *shared {
	if e.mail != nil && e.mail.Alive(node) {
		return e.mail
	}
	return store
}

// takeBack goes on with what was handed over to a process that did not come to
// serve.
func (e *Edge) takeBack() {
	e.heir.Store(nil)
	for _, s := range e.sessions.every() {
		if !s.handed.Swap(false) {
			continue
		}
		if f, ok := s.Attached(farewellKey{}).(*farewell); ok {
			f.due.Store(true)
		}
		if served := e.live.Load().servers[s.server]; served != nil {
			for _, b := range served.backends {
				b.TakenBack(&s.Session)
			}
		}
		for _, l := range s.carried() {
			l.mu.Lock()
			l.handed = false
			l.mu.Unlock()
		}
	}
}
