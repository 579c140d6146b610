package session

import (
	"context"
	"slices"
	"sync"

	"github.com/weir-edge/weir/edge/relay"
)

// The processes of one place are kin: those before this one, which may still hold calls, and
// the one that stands in for it. They write to each other over sockets.

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
	sent, lost := 0, 0
	for _, s := range ss.every() {
		if !s.handed.Load() {
			continue
		}
		for _, l := range s.carried() {
			l.mu.Lock()
			handed := l.handed
			l.mu.Unlock()
			if handed {
				continue
			}
			if sent++; ss.mail.Send(heir, relay.Message{Kind: kindLog, Session: Key(s.ID), Event: l.stream}, l.text()) != nil {
				lost++
			}
		}
	}
	if sent > lost {
		// A client that comes back once this process is gone finds its stream there.
		soon, cancel := context.WithTimeout(context.Background(), logsWithin)
		defer cancel()
		_, _ = ss.ask(soon, heir, relay.Message{Kind: kindAll}, nil) // an heir of an earlier version does not answer
	}
	if lost > 0 {
		ss.o.Log.Warn("what streams carried was not handed over", "streams", lost)
	}
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

// PathTo returns how messages reach an edge: over the socket of a process of this
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
