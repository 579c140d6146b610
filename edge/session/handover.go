package session

import (
	"bytes"
	"cmp"
	"context"
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
	"github.com/weir-edge/weir/edge/relay"
)

// What a process hands to the one that stands in for it, besides its sockets:
// the sessions of legacy clients with what they have set up and with their
// sessions at legacy backends, what streams have carried, whose tasks are where,
// and the keys of states. Calls under way and parked calls stay where they are:
// what clients send about them to the new process goes back as messages, over a
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

	// logsWithin is how long a process that ends waits for the one after it to have read
	// what its streams carried.
	logsWithin = time.Second

	// deafWithin is how long a process that stands in for another waits for that
	// to say that it hears no backend any longer.
	deafWithin = 5 * time.Second
)

// The kinds of messages that one process writes to another of the same place.
const (
	kindHello   = "hello"   // begins what is handed over; the body is handedEdge
	kindKey     = "key"     // the body is a key of states
	kindTasks   = "tasks"   // the body is an array of Task
	kindSession = "session" // the body is a handedSession
	kindLog     = "log"     // what a stream has carried; Event is its name
	kindAll     = "all"     // there is no more; between processes that run, it is answered with kindKept
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
	Attributes   []byte                    `json:"attributes,omitempty"` // as attributesOf writes them
	Used         int64                     `json:"used"`                 // Unix milliseconds
	Heard        bool                      `json:"heard,omitempty"`      // its client has a stream for what belongs to no call
	Stored       []byte                    `json:"stored,omitempty"`     // as a store has it; nothing where none does
	Upstream     map[string]backend.Handed `json:"upstream,omitempty"`
}

// Task is where a task is, as another process is told it, or where a resource is that an answer
// has named; or, where it has a key, by what policies judge a task, and until when.
type Task struct {
	Server  string          `json:"server"`
	Owner   string          `json:"owner"`
	ID      string          `json:"id,omitempty"`
	Backend string          `json:"backend,omitempty"`
	Link    bool            `json:"link,omitempty"` // a resource, whose URI is ID
	Key     string          `json:"key,omitempty"`
	Call    json.RawMessage `json:"call,omitempty"`
	Until   time.Time       `json:"until,omitzero"`
}

// leftOver is what the new process did not take: a session, or what it has with
// one backend.
type leftOver struct {
	Session string `json:"session"` // its key
	Backend string `json:"backend,omitempty"`
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
	bytes := 0
	for _, s := range ss.o.Servers() {
		for _, one := range s.Tasks() {
			text := encoded([]Task{one})
			if one.Link && bytes+len(text) > maxHandedBytes/8 { // clients choose how long URIs are
				did.leave("where a resource of server %s is: all of them have more than %d bytes", one.Server, maxHandedBytes/8)
				continue
			}
			bytes += len(text)
			switch err := frame(rw, relay.Message{Kind: kindTasks}, text); {
			case errors.Is(err, errTooLargeToHand):
				did.leave("a task of server %s: %v", one.Server, err)
			case err != nil:
				return err
			case one.Key == "" && !one.Link:
				did.tasks++
			}
		}
	}
	// 3. Sessions, those first that were used last, and what their streams carried.
	all := ss.every()
	slices.SortFunc(all, func(a, b *Session) int { return cmp.Compare(b.used.Load(), a.used.Load()) })
	went := make(map[string]handed, len(all))
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
		for name, up := range one.Upstream {
			if up.Over {
				did.leave("a session of server %s: it ends with its process of backend %s", s.Server, name)
			}
		}
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
// process. One that has a process of a local server is handed over as one whose process has
// ended: no other has what that remembers, and what is passed on of its calls finds it.
func (ss *Sessions) hand(ctx context.Context, s *Session) (handedSession, bool) {
	h := handedSession{
		ID: s.ID, Server: s.Server, Owner: s.Owner, Holder: ss.holderOf(s), Version: s.Version, Info: s.Info, Capabilities: s.Capabilities,
		Level: s.LogLevel(), Attributes: attributesOf(s), Used: s.used.Load(),
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
				if up.Over && h.Stored != nil { // where a store has it, it goes on elsewhere in any case
					continue
				}
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

// LostUpstream notes that a backend no longer has what it had for a session, and ends the
// session's streams: who only listens learns by that, and by the answer to its next request,
// that it has to begin another one. Calls under way are answered before.
func (ss *Sessions) LostUpstream(client *edge.Session) {
	ss.mu.RLock()
	s := ss.byID[client.ID]
	ss.mu.RUnlock()
	if s == nil || s.lost.Swap(true) {
		return
	}
	s.mu.Lock()
	streams := slices.Clone(s.streams)
	s.mu.Unlock()
	for _, o := range streams {
		go o.CloseAfterCalls()
	}
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
