package serve

import (
	"context"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/relay"
)

// How an edge leaves: clients are sent elsewhere, what would last for ever ends,
// calls under way finish. What waits for an answer of a person has as long as that
// may take, where the answer can still reach this process by another one.

// looks is how often an edge that leaves looks whether anything is left, and quiet
// how long the admin address may take to end.
const (
	looks = 5 * time.Millisecond
	quiet = 50 * time.Millisecond
)

// leave has everything end that clients have here. replaced says that another
// process goes on with the sessions.
func (e *Edge) leave(replaced bool) {
	began := time.Now()
	if replaced {
		e.ready.Store(false)
		e.door.Leave()
		e.tellHeirs(e.deafen())
	}
	e.ready.Store(false)
	e.door.TurnAway(e.outlets.len)
	e.endStreams()
	e.door.EndLasting()
	reachable := replaced || e.relayed()
	if replaced { // the new process answers at that address
		e.leaveAdmin()
	}
	defer e.leaveAdmin()
	end := e.door.Shut()
	defer end()
	e.drain(began, reachable)
}

// leaveAdmin closes the admin door.
func (e *Edge) leaveAdmin() {
	if e.adminLn == nil {
		return
	}
	soon, cancel := context.WithTimeout(context.Background(), quiet)
	defer cancel()
	_ = e.admin.ShutdownWithContext(soon) // whoever is in the middle of asking may ask again
	e.adminLn.Close()
}

// endStreams ends the streams that would last for ever, in order. One of the
// older transport with calls under way ends after them.
func (e *Edge) endStreams() {
	busy := make(map[*outlet]bool)
	for s := range e.doors.sessions() {
		s.mu.Lock()
		if len(s.calls) > 0 {
			for _, o := range s.outlets {
				busy[o] = true
			}
		}
		s.mu.Unlock()
	}
	var work sync.WaitGroup
	for _, o := range e.outlets.list() {
		if !busy[o] {
			work.Go(o.close)
		}
	}
	work.Wait()
}

// drain waits until nothing is under way. Calls may take until the drain timeout;
// where reachable, those whose clients are asked have as long as an answer may
// take, and the drain timeout anew after it.
func (e *Edge) drain(began time.Time, reachable bool) {
	last := began.Add(e.settings.DrainTimeout)
	if reachable {
		last = last.Add(e.settings.ParkTTL)
	}
	asked := make(map[*exchange]time.Time) // when each was last seen to wait for an answer
	said := false
	arrivals := e.door.Arrivals()
	tick := time.NewTicker(looks)
	defer tick.Stop()
	for {
		// A call that is neither on a connection nor parked is between the two for
		// less than it takes to look at both, twice.
		open := e.door.Served() + e.outlets.len() + e.door.CallsApart()
		waits := reachable && (e.parked.Len() > 0 || e.relay.Busy())
		if open <= 0 && !waits {
			return
		}
		now := <-tick.C
		arrivals.Cut(now)
		if e.outlets.len() > 0 {
			e.endStreams()
		}
		over := now.Sub(began) > e.settings.DrainTimeout
		if !over {
			continue
		}
		cut := 0
		e.each(func(x *exchange) {
			if reachable && x.asks() {
				asked[x] = now
				waits = true
			}
			if at, was := asked[x]; was && now.Sub(at) <= e.settings.DrainTimeout {
				waits = true
				return
			}
			if x.Err() == nil {
				cut++
			}
			x.Cancel()
		})
		if cut > 0 && !said {
			said = true
			e.log.Warn("calls still under way at the end of the drain timeout are cut", "calls", cut)
		}
		if !waits || now.After(last) {
			return
		}
	}
}

// asks reports whether the client of a call is asked something.
func (x *exchange) asks() bool {
	if x.s == nil {
		return false
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	return len(x.s.asked) > 0
}

// tellHeirs tells the processes before this one which one stands in now, and that
// one that this process hears no backend any longer, and up to which event it did.
func (e *Edge) tellHeirs(heard map[string]map[string]string) {
	heir := e.heirNode()
	for _, n := range e.elders.list() {
		if e.mail.Alive(n) {
			_ = e.mail.Send(n, relay.Message{Kind: letterHeir, From: heir}, nil) // one that is gone has nothing to tell
		}
	}
	_ = e.mail.Send(heir, relay.Message{Kind: letterDeaf, From: e.relay.Node}, encoded(heard)) // it hears backends when clients are back
}

// relayed reports whether a client may reach what waits here by way of another
// edge that shares the store.
func (e *Edge) relayed() bool {
	for _, t := range e.stores.list() {
		if e.company(t) {
			return true
		}
	}
	return false
}

// company reports whether another edge shares a store at this moment: it has
// said so since this one began to leave. It is only asked for where something
// waits.
func (e *Edge) company(t *shared) bool {
	if (e.parked.Len() == 0 || !e.sharedKey) && !e.asking() { // without a common key nobody else opens the states of parked calls
		return false
	}
	for by := time.Now().Add(2 * relay.AliveEvery); time.Now().Before(by); time.Sleep(20 * time.Millisecond) {
		who, err := t.Get(context.Background(), relay.LastAlive)
		if err == nil && who != nil && string(who) != e.relay.Node {
			return true
		}
	}
	return false
}

// asking reports whether any call's client is asked something.
func (e *Edge) asking() (yes bool) {
	e.each(func(x *exchange) { yes = yes || x.asks() })
	return yes
}
