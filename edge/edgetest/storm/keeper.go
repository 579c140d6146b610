package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// keeper is a legacy backend that keeps state in its sessions: it counts their
// calls, asks, reports progress, and tells each session's stream of updates, from
// the last that the other side has seen.
type keeper struct {
	*kit.Backend

	mu       sync.Mutex
	sessions map[string]*kept
	ran      map[string]int // calls by their numbers
}

// kept is one session.
type kept struct {
	calls   int
	asked   map[string]chan json.RawMessage
	told    bool // of updates
	updates int
	sent    int
	changed chan struct{}
}

// newKeeper starts one, which ends with the row.
func (s *storm) newKeeper() *keeper {
	k := &keeper{sessions: map[string]*kept{}, ran: map[string]int{}}
	k.Backend = s.newBackend(kit.Legacy, func(b *kit.Backend) {
		b.Capabilities, b.Single = `{"tools":{},"resources":{"subscribe":true}}`, true
		b.Do, b.Heard, b.Feed = k.call, k.heard, k.tell
	})
	return k
}

// session is what it keeps of a session; k.mu is held.
func (k *keeper) session(id string) *kept {
	s := k.sessions[id]
	if s == nil {
		s = &kept{asked: map[string]chan json.RawMessage{}, changed: make(chan struct{})}
		k.sessions[id] = s
	}
	return s
}

// times returns how often a call ran.
func (k *keeper) times(number string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ran[number]
}

// update tells every session that wants to know.
func (k *keeper) update() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.sessions {
		if s.told {
			s.updates++
			close(s.changed)
			s.changed = make(chan struct{})
		}
	}
}

// heard takes answers to questions, and subscriptions.
func (k *keeper) heard(session string, m *kit.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.session(session)
	switch {
	case m.Method == "resources/subscribe":
		s.told = true
	case m.Method == "" && s.asked[string(m.ID)] != nil:
		s.asked[string(m.ID)] <- m.Result
	}
}

// call runs the tool, which says how many calls there have been in the session
// and, when it has asked, what was answered.
func (k *keeper) call(t *kit.Task) (said string, ok bool) {
	answer := make(chan json.RawMessage, 1)
	k.mu.Lock()
	k.ran[t.Text]++
	s := k.session(t.Session)
	s.calls++
	said = strconv.Itoa(s.calls)
	if t.How == "ask" {
		s.asked[`"`+t.Text+`"`] = answer
	}
	k.mu.Unlock()
	switch t.How {
	case "ask":
		if !t.Send(`{"jsonrpc":"2.0","id":"` + t.Text + `","method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object"}}}`) {
			return "", false
		}
		select {
		case a := <-answer:
			return string(a), true
		case <-t.Cancelled:
			return "", false
		}
	case "steps":
		for i := range 10 {
			if !t.Send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, t.Token, i+1)) {
				return "", false
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	return said, true
}

// tell writes the updates of a session to its stream, of which there is one.
func (k *keeper) tell(f *kit.Feed) {
	k.mu.Lock()
	s := k.session(f.Session)
	if last, err := strconv.Atoi(f.LastEvent); err == nil {
		s.sent = last
	}
	k.mu.Unlock()
	for {
		k.mu.Lock()
		from, to, changed := s.sent, s.updates, s.changed
		s.sent = to
		k.mu.Unlock()
		for n := from + 1; n <= to; n++ {
			if !f.NotifyAs(strconv.Itoa(n), "resources/updated", fmt.Sprintf(`"uri":"x:%d"`, n)) {
				return
			}
		}
		select {
		case <-changed:
		case <-f.Gone:
			return
		}
	}
}
