package serve

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/session"
)

// How an edge leaves: clients are sent elsewhere, streams end, calls under way finish. A
// call that waits for the answer of a person has as long as that may take, if the answer
// can still reach this process through another one.

// looks is how often an edge that leaves looks whether anything is left, quiet how long the
// admin address may take to end, and parting how long calls that are cut may take to tell
// their clients so.
const (
	looks   = 5 * time.Millisecond
	quiet   = 50 * time.Millisecond
	parting = time.Second
)

// cut is the error of a call that the edge ends. Unlike what a client cancels, such a call is
// answered.
type cut struct{ why error }

func (c cut) Error() string      { return c.why.Error() }
func (cut) Is(target error) bool { return target == context.Canceled }

// errRemoved is why a call in a session is cut whose server a reload has taken.
var errRemoved = errors.New("the server of this session was removed, or is started again")

// errBroken is why a script of a session has ended, the only call of one that does not outlast
// its connection.
var errBroken = errors.New("the script was stopped: the connection of its client broke")

// ended returns what the client of a cancelled call is told in place of its error: why the
// edge has cut it, or that its session has ended, or nothing, where the client itself has ended
// the call and waits no longer. Who has a session and lost the connection may wait: it comes
// back for the stream.
func (x *exchange) ended() error {
	why := x.Err()
	if c, ok := why.(cut); ok {
		why = c.why
	} else if why == door.ErrLeft && x.s != nil {
		why = errBroken
	} else if why != session.ErrOver {
		return nil
	}
	if x.Request.Kind == mcp.Request {
		return &edge.Error{Kind: edge.Gone, Op: "serve", Err: why}
	}
	return nil
}

// leave ends everything that clients have here. replaced says that another process goes on
// with the sessions.
func (e *Edge) leave(replaced bool) {
	began := time.Now()
	if replaced {
		e.door.Leave()
		e.sessions.TellHeirs(e.sessions.Deafen())
	}
	e.door.TurnAway(e.sessions.Streams.Len)
	e.sessions.EndStreams()
	e.door.EndLasting()
	reachable := replaced || e.relayed()
	leave := sync.OnceFunc(e.admin.leave)
	if replaced { // the new process answers at that address
		leave()
	}
	defer leave()
	end := e.door.Shut()
	defer end()
	e.drain(began, reachable)
}

// drain waits until nothing is under way. Calls may take until the drain timeout;
// where reachable, those whose clients are asked have as long as an answer may
// take, and then the whole drain timeout once more.
func (e *Edge) drain(began time.Time, reachable bool) {
	last := began.Add(e.settings.DrainTimeout)
	if reachable {
		last = last.Add(e.settings.ParkTTL)
	}
	asked := make(map[*exchange]time.Time) // when each was last seen to wait for an answer
	said := false
	var parted time.Time // when everything had been cut
	arrivals := e.door.Arrivals()
	tick := time.NewTicker(looks)
	defer tick.Stop()
	for {
		// A call that is neither on a connection nor parked is between the two for
		// less than it takes to look at both, twice.
		open := e.door.Served() + e.sessions.Streams.Len() + e.door.CallsApart()
		waits := reachable && (e.replicas.Parked.Len() > 0 || e.relay.Busy())
		if open <= 0 && (!waits || time.Now().After(last)) {
			return
		}
		now := <-tick.C
		arrivals.Cut(now)
		if e.sessions.Streams.Len() > 0 {
			e.sessions.EndStreams()
		}
		over := now.Sub(began) > e.settings.DrainTimeout
		if !over {
			continue
		}
		final, ended := now.After(last), 0
		e.door.Each(func(c *door.Call) {
			x, ok := c.Owner.(*exchange)
			if !ok {
				c.Cancel()
				return
			}
			if reachable && (x.s != nil && x.s.Asks()) {
				asked[x] = now
				waits = true
			}
			if at, was := asked[x]; was && !final && now.Sub(at) <= e.settings.DrainTimeout {
				waits = true
				return
			}
			if x.Err() == nil {
				ended++
			}
			x.CancelFor(cut{relay.ErrGone})
		})
		if ended > 0 && !said {
			said = true
			e.log.Warn("calls still under way at the end of the drain timeout are cut", "calls", ended)
		}
		if waits && !final {
			continue
		}
		if parted.IsZero() {
			parted = now
		}
		if now.Sub(parted) > parting {
			return
		}
	}
}

// relayed reports whether a client can reach a call that waits here through another edge
// that shares the store.
func (e *Edge) relayed() bool {
	for _, t := range e.sessions.Stores.List() {
		if e.company(t) {
			return true
		}
	}
	return false
}

// company reports whether another edge shares a store: it has said so since this one began
// to leave.
func (e *Edge) company(t *session.Store) bool {
	if (e.replicas.Parked.Len() == 0 || !e.seal.shared) && !e.asking() { // without a common key nobody else opens the states of parked calls
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
	e.each(func(x *exchange) { yes = yes || (x.s != nil && x.s.Asks()) })
	return yes
}
