package session

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// What comes of a hand-over in the process that stands in for another: sessions, tasks and
// the logs of streams go on here.

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
				return nil, errors.New("a key of states does not have 32 bytes, or there are too many")
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
		if s := servers[t.Server]; s != nil && s.TakeTask(t) && t.Key == "" && !t.Link {
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
			did.leave("a session of backend %s: it is begun again", l.Backend)
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
		s.said(h.Attributes)
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
		} else if up.Over {
			s.lost.Store(true)
		}
	}
	return left, nil
}

// check judges a session that was handed over as one of a client is judged.
func (h *handedSession) check() error {
	switch {
	case Key(h.ID) == "":
		return errors.New("its id is not a session id")
	case !mcp.LegacyVersion(h.Version):
		return errors.New("its protocol revision is not known")
	case len(h.Capabilities) == 0 || h.Capabilities[0] != '{' || !json.Valid(h.Capabilities):
		return errors.New("its capabilities are not a JSON object")
	case h.Info != nil && !json.Valid(h.Info):
		return errors.New("what its client said of itself cannot be read")
	case h.Level != "" && !mcp.LogLevel(h.Level):
		return errors.New("its log level is not known")
	case len(h.Attributes) > maxAttributes || !soundAttributes(h.Attributes):
		return errors.New("what programs said of it cannot be read")
	case len(h.Owner) > 16<<10 || len(h.Holder) > 16<<10:
		return errors.New("the name of its owner or holder has more than 16 KiB")
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
		kindAll: func(l relay.Message, _ []byte, _ int) bool { // what came before it has been read
			_ = t.Send(l.From, relay.Message{Kind: kindKept, From: ss.o.Relay.Node, Stream: l.Stream}, nil) // who waits gives up by itself
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
