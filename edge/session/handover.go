package session

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
)

// What a process hands to the one that stands in for it, besides its sockets:
// the sessions of legacy clients with what they have set up and with their
// sessions at legacy backends, what streams have carried, whose tasks are where,
// and the keys of states. Calls under way and parked calls stay where they are:
// what clients send about them to the new process goes back as letters, over a
// socket that each process has for the others.

const (
	// maxHandedFrame bounds one thing that is handed over, maxHandedBytes all of
	// them, and MaxKeys how many keys of states are among them.
	maxHandedFrame = 1 << 20
	maxHandedBytes = 256 << 20
	MaxKeys        = 16

	// openingWithin is how long the handing over of sessions waits for sessions that are being opened at
	// backends at that moment.
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
	kindHello   = "hello"   // begins what is handed over; the body is handedEdge
	kindKey     = "key"     // the body is a key of states
	kindTasks   = "tasks"   // the body is an array of Task
	kindSession = "session" // the body is a handedSession
	kindLog     = "log"     // what a stream has carried; Event is its name
	kindAll     = "all"     // there is no more
	kindKept    = "kept"    // answers all of that; the body is an array of leftOver
	kindHeir    = "heir"    // another process stands in from now on: From
	kindDeaf    = "deaf"    // the process before hears no backend any longer
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

// Task is where a task is, as another process is told it.
type Task struct {
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

// Heir is the process that stands in for this one; "" for none.
func (ss *Sessions) Heir() string {
	if h := ss.heir.Load(); h != nil {
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

// HandOver writes everything that the process at the other end of rw is to go
// on with, and has the sessions that it took end here without their backends
// being told.
func (ss *Sessions) HandOver(rw io.ReadWriter) (err error) {
	name := make([]byte, len(ss.o.Relay.Node))
	if _, err := io.ReadFull(rw, name); err != nil {
		return err
	}
	node := string(name)
	if !relay.IsNode(node) {
		return errors.New("the new process has no name")
	}
	defer func() {
		if err != nil {
			ss.heir.Store(nil)
		}
	}()
	h := &handing{node: node, told: make(map[string]string)}
	ss.heir.Store(h)
	ctx, cancel := context.WithTimeout(context.Background(), openingWithin)
	defer cancel()
	var did count
	// 1. Who this is.
	hello := handedEdge{Node: ss.o.Relay.Node, Elders: ss.elders.list(), Servers: make(map[string]string)}
	for name, s := range ss.o.Servers() {
		hello.Servers[name] = hex.EncodeToString([]byte(s.Digest))
	}
	if err := frame(rw, relay.Message{Kind: kindHello, From: ss.o.Relay.Node}, encoded(hello)); err != nil {
		return err
	}
	// 2. Keys and tasks.
	keys := ss.o.Keys()
	for _, key := range keys[:min(len(keys), MaxKeys)] {
		if err := frame(rw, relay.Message{Kind: kindKey}, key); err != nil {
			return err
		}
	}
	for _, s := range ss.o.Servers() {
		for some := range slices.Chunk(s.Tasks(), 200) {
			if err := frame(rw, relay.Message{Kind: kindTasks}, encoded(some)); err != nil {
				return err
			}
			did.tasks += len(some)
		}
	}
	// 3. Sessions, those first that were used last, and what their streams carried.
	all := ss.every()
	slices.SortFunc(all, func(a, b *Session) int { return cmp.Compare(b.used.Load(), a.used.Load()) })
	went := make(map[string]handed, len(all))
	bytes := 0
	for _, s := range all {
		if s.older.Load() {
			did.leave("a session of server %s: it ends with its stream of the older transport", s.Server)
			continue
		}
		one, ok := ss.hand(ctx, s)
		if !ok {
			continue // it has ended
		}
		text := encoded(one)
		if bytes += len(text); bytes > maxHandedBytes/2 {
			did.leave("a session of server %s: all of them have more than %d bytes", s.Server, maxHandedBytes/2)
			continue
		}
		switch err := frame(rw, relay.Message{Kind: kindSession, Session: Key(s.ID)}, text); {
		case errors.Is(err, errTooLargeToHand):
			did.leave("a session of server %s: %v", s.Server, err)
			continue
		case err != nil:
			return err
		}
		h.note(one)
		went[Key(s.ID)] = handed{s, one}
		did.sessions++
	}
	for _, one := range went {
		for _, l := range one.s.finished() {
			text := l.text()
			if bytes += len(text); bytes > maxHandedBytes {
				did.leave("a stream of a session of server %s: all of it has more than %d bytes", one.s.Server, maxHandedBytes)
				continue
			}
			switch err := frame(rw, relay.Message{Kind: kindLog, Session: Key(one.s.ID), Event: l.stream}, text); {
			case errors.Is(err, errTooLargeToHand):
				did.leave("a stream of a session of server %s: %v", one.s.Server, err)
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
	if err := frame(rw, relay.Message{Kind: kindAll}, nil); err != nil {
		return err
	}
	// 4. What of that was taken.
	text, err := readFrame(rw, maxHandedFrame*8)
	if err != nil {
		return fmt.Errorf("the new process did not say what it took: %w", err)
	}
	l, body, ok := relay.Unpack(text)
	var left []leftOver
	if !ok || l.Kind != kindKept || json.Unmarshal(body, &left) != nil {
		return errors.New("the new process said what is not understood")
	}
	for _, one := range left {
		was, there := went[one.Session]
		switch {
		case !there:
		case one.Backend == "":
			did.leave("a session of server %s: the new process did not take it", was.s.Server)
			delete(went, one.Session)
			did.sessions--
		default:
			delete(was.as.Upstream, one.Backend)
		}
	}
	for _, one := range went {
		ss.handedOver(one.s, &one.as)
	}
	ss.o.Log.Info("sessions were handed over", "sessions", did.sessions, "streams", did.logs, "tasks", did.tasks)
	if len(did.left) > 0 {
		ss.o.Log.Warn("not everything was handed over", "left", len(did.left), "what", did.summary())
	}
	return nil
}

// handed is a session as it was handed over.
type handed struct {
	s  *Session
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
func (ss *Sessions) hand(ctx context.Context, s *Session) (handedSession, bool) {
	h := handedSession{
		ID: s.ID, Server: s.Server, Owner: s.Owner, Holder: ss.holderOf(s), Version: s.Version, Info: s.Info, Capabilities: s.Capabilities,
		Level: s.LogLevel(), Used: s.used.Load(),
	}
	if Key(s.ID) == "" {
		return h, false
	}
	if r := s.stored.last.Load(); r != nil && s.stored.store.Load() != nil {
		h.Stored = r.text()
	}
	s.mu.Lock()
	h.Heard = s.hearing != nil || s.awaited()
	over := s.over
	s.mu.Unlock()
	if served := ss.o.Servers()[s.Server]; served != nil && !over {
		for _, b := range served.Backends {
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
func (ss *Sessions) handedOver(s *Session, as *handedSession) {
	s.handed.Store(true)
	if served := ss.o.Servers()[s.Server]; served != nil {
		for _, b := range served.Backends {
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
	digest := edge.Digest(string(encoded(one)))
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.told[one.ID] == digest {
		return false
	}
	h.told[one.ID] = digest
	return true
}

// HandOn tells the process that stands in for this one what has become of a
// session, if anything has: what is set up here while this one still serves has
// to hold there. It waits for the new process's word.
func (ss *Sessions) HandOn(s *Session) {
	h := ss.heir.Load()
	if ss.mail == nil || h == nil || s.older.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), openingWithin)
	defer cancel()
	one, ok := ss.hand(ctx, s)
	if !ok {
		return
	}
	if !h.note(one) {
		return
	}
	d, err := ss.ask(ctx, ss.Heir(), relay.Message{Kind: kindSession, Session: Key(s.ID)}, encoded(one))
	var left []leftOver
	if err == nil {
		err = json.Unmarshal(d.Body, &left)
	}
	if err != nil {
		ss.o.Log.Warn("a session was not handed over", "server", s.Server, "error", err)
		return
	}
	for _, l := range left {
		if l.Backend == "" {
			return
		}
		delete(one.Upstream, l.Backend)
	}
	ss.handedOver(s, &one)
}

// ask writes to another process of this place and waits for its answer.
func (ss *Sessions) ask(ctx context.Context, node string, l relay.Message, body []byte) (relay.Delivered, error) {
	one, err := ss.o.Relay.Open(relay.NewName(), "edge "+node)
	if err != nil {
		return relay.Delivered{}, err
	}
	defer one.Close()
	l.From, l.Stream = ss.o.Relay.Node, one.Name
	if err := ss.mail.Send(node, l, body); err != nil {
		return relay.Delivered{}, err
	}
	return ss.mail.Next(ctx, one, node, ss.mail.Gone)
}

// OpenedUpstream hands on a session that was begun at a backend just now.
func (ss *Sessions) OpenedUpstream(client *edge.Session) {
	if ss.heir.Load() == nil {
		return
	}
	if s := ss.known(Key(client.ID)); s != nil {
		ss.HandOn(s)
	}
}

// inheritance is what another process handed over, read and judged, and not used
// yet.
type inheritance struct {
	from     handedEdge
	keys     [][]byte
	tasks    []Task
	sessions []handedSession
	logs     []handedLog
}

type handedLog struct {
	session, stream string
	text            []byte
}

// readInheritance reads what HandOver writes. What does not come whole is
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
		if !ok || first != (l.Kind == kindHello) {
			return nil, errors.New("it is not of this version, or of something else")
		}
		switch l.Kind {
		case kindHello:
			err = json.Unmarshal(body, &in.from)
			if err == nil && !relay.IsNode(in.from.Node) {
				err = errors.New("the process has no name")
			}
			in.from.Elders = slices.DeleteFunc(in.from.Elders, func(n string) bool { return !relay.IsNode(n) })
		case kindKey:
			if len(body) != 32 || len(in.keys) == MaxKeys {
				return nil, errors.New("a key is none")
			}
			in.keys = append(in.keys, body)
		case kindTasks:
			var some []Task
			if err = json.Unmarshal(body, &some); err == nil {
				in.tasks = append(in.tasks, some...)
			}
		case kindSession:
			var one handedSession
			if err = json.Unmarshal(body, &one); err == nil {
				in.sessions = append(in.sessions, one)
			}
		case kindLog:
			in.logs = append(in.logs, handedLog{l.Session, l.Event, body})
		case kindAll:
			return in, nil
		default: // of a later version: what it is about is not gone on with
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Kind, err)
		}
	}
}

// TakeOver goes on with what the process at the other end of rw writes with HandOver,
// and tells it what was not taken.
func (ss *Sessions) TakeOver(rw io.ReadWriter) error {
	in, err := readInheritance(rw)
	if err != nil {
		_ = frame(rw, relay.Message{Kind: kindKept, From: ss.o.Relay.Node}, []byte("null")) // it is told to leave in any case
		return err
	}
	return writeFrame(rw, relay.Message{Kind: kindKept, From: ss.o.Relay.Node}.Pack(encoded(ss.inherit(in))))
}

// inherit goes on with what another process handed over, and returns what it did
// not take.
func (ss *Sessions) inherit(in *inheritance) (left []leftOver) {
	var did count
	ss.elders.add(append(in.from.Elders, in.from.Node)...)
	ss.o.TakeKeys(in.keys)
	servers := ss.o.Servers()
	for _, t := range in.tasks {
		if s := servers[t.Server]; s != nil && s.TakeTask(t) {
			did.tasks++
		}
	}
	for i := range in.sessions {
		one := &in.sessions[i]
		others, err := ss.inheritSession(one)
		if err != nil {
			left = append(left, leftOver{Session: Key(one.ID)})
			did.leave("a session: %v", err)
			continue
		}
		did.sessions++
		left = append(left, others...)
		if s := ss.known(Key(one.ID)); s != nil && one.Heard && in.from.Servers[one.Server] != hex.EncodeToString([]byte(servers[one.Server].Digest)) {
			for _, n := range (catalog.Changes{Tools: true, Prompts: true, Resources: true}).Notices() {
				s.miss(n)
			}
		}
	}
	for _, l := range in.logs {
		if ss.inheritLog(l.session, l.stream, l.text) {
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
	ss.o.Work.Go(func() { // the process before says when it hears no backend any longer, or is gone
		defer edge.Contain(ss.o.Log, "listener")
		select {
		case <-time.After(deafWithin):
			ss.hearAwaited(nil)
		case <-ss.o.End:
		}
	})
	ss.o.Log.Info("sessions were taken over", "sessions", did.sessions, "streams", did.logs, "tasks", did.tasks)
	if len(did.left) > 0 {
		ss.o.Log.Warn("not everything was taken over", "left", len(did.left), "what", did.summary())
	}
	return left
}

// inheritSession goes on with a session, and returns what of it was not taken.
// One that is here already learns what is new.
func (ss *Sessions) inheritSession(h *handedSession) (left []leftOver, err error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	served := ss.o.Servers()[h.Server]
	switch {
	case served == nil:
		return nil, fmt.Errorf("there is no server %q any longer", h.Server)
	case (h.Owner != "") != served.Guarded:
		return nil, fmt.Errorf("server %s authenticates its clients in another way now", h.Server)
	case (h.Stored != nil) != (served.Store != nil):
		return nil, fmt.Errorf("server %s keeps its sessions in another place now", h.Server)
	}
	key := Key(h.ID)
	s := ss.known(key)
	if s == nil {
		s = ss.make(ss.o.Clock.Now(), h.ID, h.Server, h.Owner, h.Version, h.Info, h.Capabilities)
		s.used.Store(min(h.Used, s.used.Load()))
		if h.Stored != nil {
			r := readRecord(h.Stored)
			if r == nil {
				return nil, errors.New("what the store has of it cannot be read")
			}
			ss.joined(served.Store, s, key, r)
			s.stored.seen.Store(0) // the store is asked with its next request, and learns that it is here
			s.stored.slid.Store(0)
		}
		if served.End != nil {
			s.TellEnd()
		}
		if h.Heard {
			s.mu.Lock()
			s.until, s.mute = time.Now().Add(awaitedFor), true
			s.mu.Unlock()
		}
		place, err := ss.placeIfFree(ss.o.Clock.Now(), h.Holder)
		if err != nil {
			return nil, err
		}
		s = ss.add(s, place)
	} else if s.Owner != h.Owner || s.Server != h.Server {
		return nil, errors.New("another session has its id")
	}
	if h.Level != "" {
		s.SetLogLevel(h.Level)
	}
	for name, up := range h.Upstream {
		if b := served.backend(name); b == nil || !b.Take(&s.Session, up) {
			left = append(left, leftOver{Session: key, Backend: name})
		}
	}
	return left, nil
}

// check judges a session that was handed over as one of a client is judged.
func (h *handedSession) check() error {
	switch {
	case Key(h.ID) == "":
		return errors.New("its id is none")
	case !mcp.LegacyVersion(h.Version):
		return errors.New("its revision is none")
	case len(h.Capabilities) == 0 || h.Capabilities[0] != '{' || !json.Valid(h.Capabilities):
		return errors.New("its capabilities are none")
	case h.Info != nil && !json.Valid(h.Info):
		return errors.New("its client is none")
	case h.Level != "" && !mcp.LogLevel(h.Level):
		return errors.New("its log level is none")
	case len(h.Owner) > 16<<10 || len(h.Holder) > 16<<10:
		return errors.New("its owner is none")
	}
	return nil
}

// inheritLog keeps what a stream carried at another process.
func (ss *Sessions) inheritLog(session, stream string, text []byte) bool {
	node, _, ok := cutNode(stream)
	if !ok || node == ss.o.Relay.Node || len(session) > 128 || len(stream) > 64 {
		return false
	}
	if _, _, _, ok := pastOf(text, 0); !ok {
		return false
	}
	return ss.o.Memory.Put(context.Background(), logKey(session, stream), text, logFor) == nil
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

// mailHandlers are what comes of the messages that processes of one place alone
// write to each other.
func (ss *Sessions) mailHandlers(t *Store) map[string]relay.Handler {
	return map[string]relay.Handler{
		kindSession: func(l relay.Message, body []byte, size int) bool {
			t.Serve(l, size, "edge "+l.From, func(context.Context) {
				var one handedSession
				left := []leftOver{{Session: l.Session}}
				if json.Unmarshal(body, &one) == nil {
					if some, err := ss.inheritSession(&one); err == nil {
						left = append([]leftOver{}, some...)
						if s := ss.known(Key(one.ID)); s != nil {
							ss.HandOn(s) // where this process has been replaced meanwhile
						}
					} else {
						ss.o.Log.Warn("a session was not taken over", "server", one.Server, "error", err)
					}
				}
				_ = t.Send(l.From, relay.Message{Kind: kindKept, From: ss.o.Relay.Node, Stream: l.Stream}, encoded(left)) // who waits gives up by itself
			})
			return true
		},
		kindLog: func(l relay.Message, body []byte, _ int) bool {
			kept := ss.inheritLog(l.Session, l.Event, body)
			if heir := ss.Heir(); heir != "" {
				kept = t.Send(heir, relay.Message{Kind: kindLog, Session: l.Session, Event: l.Event}, body) == nil
			}
			if !kept {
				ss.o.Log.Warn("what a stream carried was not taken over", "bytes", len(body))
			}
			return true
		},
		kindHeir: func(l relay.Message, _ []byte, _ int) bool {
			if h := ss.heir.Load(); h != nil && relay.IsNode(l.From) {
				h.mu.Lock()
				h.node = l.From
				h.told = make(map[string]string)
				h.mu.Unlock()
			}
			return true
		},
		kindDeaf: func(_ relay.Message, body []byte, _ int) bool {
			var heard map[string]map[string]string
			_ = json.Unmarshal(body, &heard) // without it they are heard from now on
			t.Work.Go(func() {
				defer edge.Contain(ss.o.Log, "listener")
				ss.hearAwaited(heard)
			})
			return true
		},
	}
}

// hearAwaited has the backends heard for the sessions whose clients had a stream
// at the process before: what comes waits for them to open another. heard says up
// to which event they have, by key and backend.
func (ss *Sessions) hearAwaited(heard map[string]map[string]string) {
	for _, s := range ss.every() {
		if served := ss.o.Servers()[s.Server]; served != nil {
			for name, event := range heard[Key(s.ID)] {
				if b := served.backend(name); b != nil {
					b.HearFrom(&s.Session, event)
				}
			}
		}
		s.mu.Lock()
		mute := s.mute
		s.mute = false
		if mute && (s.awaited() || len(s.streams) > 0) && s.hearing == nil && !s.over {
			s.hear()
		}
		s.mu.Unlock()
	}
}

// Deafen ends what the backends are heard for here, and the streams of clients:
// they open theirs again at the process that stands in for this one.
// It returns up to which event they have heard each, by key and backend.
func (ss *Sessions) Deafen() map[string]map[string]string {
	var listened []*Session
	for _, s := range ss.every() {
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
	ss.EndStreams()
	heard := make(map[string]map[string]string)
	for _, s := range listened {
		served := ss.o.Servers()[s.Server]
		if served == nil {
			continue
		}
		for _, b := range served.Backends {
			if event := b.Heard(&s.Session); event != "" {
				if heard[Key(s.ID)] == nil {
					heard[Key(s.ID)] = make(map[string]string)
				}
				heard[Key(s.ID)][b.Name] = event
			}
		}
	}
	return heard
}

// HandLogs hands over what streams have carried since, when this process ends.
func (ss *Sessions) HandLogs() {
	heir := ss.Heir()
	if heir == "" || ss.mail == nil {
		return
	}
	lost := 0
	for _, s := range ss.every() {
		if !s.handed.Load() {
			continue
		}
		for _, l := range s.carried() {
			l.mu.Lock()
			handed := l.handed
			l.mu.Unlock()
			if !handed && ss.mail.Send(heir, relay.Message{Kind: kindLog, Session: Key(s.ID), Event: l.stream}, l.text()) != nil {
				lost++
			}
		}
	}
	if lost > 0 {
		ss.o.Log.Warn("what streams carried was not handed over", "streams", lost)
	}
}

// awaited reports whether the client of a session that was handed over is waited
// for; s.mu is held.
func (s *Session) awaited() bool { return !s.until.IsZero() }

// miss keeps a message for the client that is waited for. It reports false when
// there is none, or no room.
func (s *Session) miss(m *mcp.Message) bool {
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
func (s *Session) met() []*mcp.Message {
	all := s.missed
	s.missed, s.missedBytes, s.until = nil, 0, time.Time{}
	return all
}

// giveUpWaiting ends the waiting for a client that does not come back in time.
func (s *Session) giveUpWaiting(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.awaited() || now.Before(s.until) {
		return
	}
	s.met()
	if len(s.streams) == 0 && s.hearing != nil {
		s.hearing()
		s.hearing = nil
	}
}

// finished returns the logs of streams that have ended.
func (s *Session) finished() []*Log {
	return slices.DeleteFunc(s.carried(), func(l *Log) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !l.done
	})
}

// carried returns the logs of the session that are still kept.
func (s *Session) carried() []*Log {
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

// TellKin writes to every process of this place that may hold something of a
// session: those before this one, and the one after it.
func (ss *Sessions) TellKin(s *Session, kind string, body []byte) {
	if ss.mail == nil {
		return
	}
	nodes := ss.elders.list()
	if heir := ss.Heir(); heir != "" && s.handed.Load() {
		nodes = append(nodes, heir)
	}
	for _, n := range nodes {
		if ss.mail.Alive(n) {
			_ = ss.mail.Send(n, relay.Message{Kind: kind, Session: Key(s.ID)}, body) // one that is gone holds nothing
		}
	}
}

// PathTo returns how letters reach an edge: over the socket of a process of this
// place, or through the store; nil for not at all.
func (ss *Sessions) PathTo(store *Store, node string) *Store {
	if ss.mail != nil && ss.mail.Alive(node) {
		return ss.mail
	}
	return store
}

// TakeBack goes on with what was handed over to a process that did not come to
// serve.
func (ss *Sessions) TakeBack() {
	ss.heir.Store(nil)
	for _, s := range ss.every() {
		if !s.handed.Swap(false) {
			continue
		}
		if served := ss.o.Servers()[s.Server]; served != nil {
			for _, b := range served.Backends {
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

// TellHeirs tells the processes before this one which one stands in now, and that
// one that this process hears no backend any longer, and up to which event it did.
func (ss *Sessions) TellHeirs(heard map[string]map[string]string) {
	heir := ss.Heir()
	for _, n := range ss.elders.list() {
		if ss.mail.Alive(n) {
			_ = ss.mail.Send(n, relay.Message{Kind: kindHeir, From: heir}, nil) // one that is gone has nothing to tell
		}
	}
	_ = ss.mail.Send(heir, relay.Message{Kind: kindDeaf, From: ss.o.Relay.Node}, encoded(heard)) // it hears backends when clients are back
}
