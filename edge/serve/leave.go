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

const (
	// lingers is how long a door that closes still takes what was on its way to
	// it, and quiet how long nothing must have come for it to close at once.
	lingers = time.Second
	quiet   = 50 * time.Millisecond

	// arrivesWithin is how long nothing may come of a request that has begun for an
	// edge that leaves to wait for the rest of it, and arrivesAtAll how long all of
	// them may take: who sends a byte now and then must not keep an edge.
	arrivesWithin = 100 * time.Millisecond
	arrivesAtAll  = 2 * time.Second

	// looks is how often an edge that leaves looks whether anything is left.
	looks = 5 * time.Millisecond
)

// leave has everything end that clients have here. replaced says that another
// process goes on with the sessions.
func (e *Edge) leave(replaced bool) {
	began := time.Now()
	if replaced {
		e.ready.Store(false)
		e.leaving.Store(true)
		e.tellHeirs(e.deafen())
	}
	e.turnAway()
	e.endStreams()
	e.underway.endLasting()
	reachable := replaced || e.relayed()
	if replaced { // the new process answers at that address
		e.leaveAdmin()
	}
	defer e.leaveAdmin()
	e.closing.Store(true)
	e.underway.retire()
	shut, cut := context.WithCancel(context.Background())
	defer cut()
	down := make(chan struct{})
	go func() {
		defer close(down)
		_ = e.front.ShutdownWithContext(shut) // it ends when it is told to
	}()
	e.drain(began, reachable)
	cut()
	<-down
	e.frontLn.Close() // a server that is told to end before it began leaves it open
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

// turnAway has clients go elsewhere before the door closes: it is no longer
// ready, and every answer is the last on its connection. It ends when no
// connection is left, when nothing has come for a moment, or after a while.
func (e *Edge) turnAway() {
	e.ready.Store(false)
	e.leaving.Store(true)
	began := time.Now()
	tick := time.NewTicker(looks)
	defer tick.Stop()
	for e.underway.connections() > e.outlets.len() {
		now := <-tick.C
		last := began
		if at := time.Unix(0, e.knockedAt.Load()); at.After(last) {
			last = at
		}
		if now.Sub(last) > quiet || now.Sub(began) > lingers {
			return
		}
	}
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
	parts, closed := make(map[*clientConn]arriving), time.Now()
	tick := time.NewTicker(looks)
	defer tick.Stop()
	for {
		// A call that is neither on a connection nor parked is between the two for
		// less than it takes to look at both, twice.
		open := max(0, int(e.front.GetOpenConnectionsCount())) // less than none before it is told to end
		open += e.outlets.len() + e.underway.calls()
		waits := reachable && (e.parked.Len() > 0 || e.relay.Busy())
		if open <= 0 && !waits {
			return
		}
		now := <-tick.C
		within := arrivesWithin
		if now.Sub(closed) > arrivesAtAll {
			within = 0
		}
		e.underway.cutArriving(now, parts, within)
		if e.outlets.len() > 0 {
			e.endStreams()
		}
		over := now.Sub(began) > e.settings.DrainTimeout
		if !over {
			continue
		}
		cut := 0
		e.underway.each(func(x *exchange) {
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
			x.cancel()
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
	e.underway.each(func(x *exchange) { yes = yes || x.asks() })
	return yes
}
