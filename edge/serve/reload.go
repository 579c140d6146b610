package serve

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/session"
)

// reloads are the reloads of the configuration so far.
type reloads struct {
	one    sync.Mutex             // held from the reading of the configuration on, so that what was read last is served; taken before mu
	mu     sync.Mutex             // held while one goes on
	begun  bool                   // clients come in; mu guards it
	over   bool                   // nothing is opened any longer; mu guards it
	fault  atomic.Pointer[string] // why the last one changed nothing; nil when it did
	done   atomic.Int64
	failed atomic.Int64
}

// errNoReload is the error of a reload without a configuration.
var errNoReload = errors.New("there is no configuration to read again: the edge was started without one")

// errClosed is the error of a reload after the end.
var errClosed = errors.New("the edge has ended: there is nothing to reload")

// ReloadNow reads the configuration again and serves it. If that fails the error is logged
// and shown at /status, and the plan that was served goes on.
func (e *Edge) ReloadNow() error {
	if e.given.reload == nil {
		return errNoReload
	}
	e.reloads.one.Lock()
	defer e.reloads.one.Unlock()
	err := e.given.reload()
	if err == nil {
		e.reloads.fault.Store(nil)
		e.reloads.done.Add(1)
		return nil
	}
	text := err.Error()
	e.reloads.fault.Store(&text)
	e.reloads.failed.Add(1)
	e.log.Error("reload failed; what was served goes on", "error", err)
	return err
}

// Reload serves another plan from now on. Sessions go on while their server
// exists, and calls under way end as they began, but that those in sessions whose
// server is gone are cut. Doors of the plan that are new are opened, and those that it
// no longer has are closed. A plan that cannot be opened changes nothing.
func (e *Edge) Reload(plan *compile.Plan) error {
	e.reloads.mu.Lock()
	defer e.reloads.mu.Unlock()
	if e.reloads.over {
		return errClosed
	}
	before := e.live.Load()
	next, err := e.open(plan, before)
	if err != nil {
		return err
	}
	for name, s := range next.servers {
		if old := before.servers[name]; old != nil && old != s {
			s.ShareTasks(old.Server)
		}
	}
	e.live.Store(next)
	next.secrets.Adopt()
	if e.reloads.begun {
		e.startDoors(next, before)
	}
	e.dropDoors(before, next)
	changed, again := 0, map[*session.Session][]string{}
	for name, old := range before.servers {
		s := next.servers[name]
		if s == old {
			before.release[name]()
			continue
		}
		changed++
		e.each(func(x *exchange) {
			switch {
			case x.server != old:
			case x.Lasts:
				x.Cancel() // its client subscribes again
			case s == nil && x.s != nil:
				x.CancelFor(cut{errRemoved}) // its session ends
			}
		})
		if s == nil {
			e.sessions.EndAll(func(one *session.Session) bool { return one.Server == name })
		} else {
			if old.store != nil && old.store != s.store {
				e.sessions.Depart(name, old.store, s.store)
			}
			for _, one := range e.sessions.Of(name) {
				if uris := s.follows(old, &one.Session); len(uris) > 0 {
					again[one] = uris
				}
				one.HearAgain()
				e.sessions.Tell(one, catalog.Changes{Tools: true, Prompts: true, Resources: true})
			}
		}
		e.work.Go(func() {
			e.awaitUnused(old)
			before.release[name]()
		})
	}
	if len(again) > 0 {
		e.work.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			go func() {
				select {
				case <-e.end:
					cancel()
				case <-ctx.Done():
				}
			}()
			e.sessions.SubscribeAgain(ctx, again)
		})
	}
	e.log.Info("reloaded", "servers", next.names(), "changed", changed)
	return nil
}

// follows returns what a session is subscribed to at the backends of a server that this one stands
// in for, and that are not its own.
func (s *server) follows(old *server, client *edge.Session) (uris []string) {
	for _, b := range old.Backends {
		if !slices.Contains(s.Backends, b) {
			uris = append(uris, b.Subscribed(client)...)
		}
	}
	return uris
}

// grace is how long a replaced server is kept at least: a request that has just been given it is
// not listed as under way yet.
const grace = 2 * time.Second

// awaitUnused waits until nothing uses a replaced server any longer: requests that were given
// it have come whole, or have had their time for that; its calls are over, or the drain timeout;
// and so are those that wait for their clients, or the time that these have.
func (e *Edge) awaitUnused(old *server) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	parked := func() bool { return false }
	asked := e.live.Load().servers[old.Name] == nil // no client comes back to a server that is gone
	began := time.Now()
	last := began // when a request that was given it was last seen to come: its call has the drain timeout from there
	for waits := max(e.settings.DrainTimeout, grace); time.Since(began) < door.Within+grace+waits+e.settings.ParkTTL; {
		since := time.Since(began)
		busy := since < grace
		if since < door.Within+grace && old.coming.Load() > 0 {
			busy, last = true, time.Now()
		}
		if time.Since(last) < waits {
			e.each(func(x *exchange) {
				if x.server != old {
					return
				}
				if busy = true; x.Lasts {
					x.Cancel() // it came after the reload: its client subscribes again
				}
			})
		}
		if !busy && !asked {
			parked, asked = e.replicas.Parked.Held(old.Name), true
		}
		if !busy && !parked() {
			return
		}
		select {
		case <-e.end:
			return
		case <-tick.C:
		}
	}
}
