package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/session"
	"github.com/weir-edge/weir/filters/telemetry"
)

// live is the servers and the doors of one plan, open. It never changes: a reload opens
// another and replaces it. Only exchanges under way hold one that has been replaced.
type live struct {
	servers map[string]*server
	hosts   map[string]*session.Host // the servers as their sessions see them
	release map[string]func()        // gives them back, by name
	secrets *secret.Draft

	doors   []*doorway
	at      map[*door.Entrance]*doorway
	of      map[string]*doorway   // by the names of their servers
	metrics *telemetry.Exposition // for the admin address
}

// needed returns an error for every secret that a plan needs and cannot have. It looks at
// those of servers that go on, too.
func needed(plan *compile.Plan, secrets edge.Secrets) error {
	var missing []error
	for _, n := range plan.Needs {
		if _, err := secrets.Secret(context.Background(), n.Name, n.Key); err != nil {
			missing = append(missing, fmt.Errorf("%s: %w", n, err))
		}
	}
	return errors.Join(missing...)
}

// all returns the servers, sorted by name.
func (l *live) all() []*server {
	var all []*server
	for _, name := range l.names() {
		all = append(all, l.servers[name])
	}
	return all
}

// names returns the names of the servers, sorted.
func (l *live) names() []string {
	var all []string
	for name := range l.servers {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// open opens the servers and the doors of a plan. What is made from the same as before goes
// on as it is, with its connections, sessions and caches. The doors that are new take no
// client yet.
func (e *Edge) open(plan *compile.Plan, before *live) (_ *live, err error) {
	if len(plan.Servers) == 0 && !e.given.doors {
		return nil, errors.New("a plan without servers cannot be served")
	}
	next := &live{servers: make(map[string]*server, len(plan.Servers)), hosts: make(map[string]*session.Host, len(plan.Servers)),
		release: make(map[string]func(), len(plan.Servers)), secrets: e.world.secrets.Draft(plan.Secrets)}
	defer func() {
		if err != nil {
			next.close()
			e.dropDoors(next, before)
		}
	}()
	if err := needed(plan, next.secrets); err != nil {
		return nil, err
	}
	if err := e.openDoors(next, plan, before); err != nil {
		return nil, err
	}
	for _, p := range plan.Servers {
		at := next.of[p.Name]
		if at == nil {
			return nil, fmt.Errorf("server %s: no door of the plan leads to it", p.Name)
		}
		o := opening{edge: e, plan: p, secrets: next.secrets, door: at, main: at.plan.Main == p.Name}
		if before != nil {
			o.was = before.servers[p.Name]
		}
		o.issuer = o.signIn(plan, next.of)
		s, release, err := o.open()
		if err != nil {
			return nil, fmt.Errorf("server %s: %w", p.Name, err)
		}
		next.servers[p.Name], next.hosts[p.Name], next.release[p.Name] = s, s.host(), release
		at.servers[p.Name] = s
		if o.main {
			at.main = s
		}
	}
	for _, d := range next.doors {
		d.describe()
		d.logIn()
	}
	if err := e.expose(next); err != nil {
		return nil, err
	}
	return next, nil
}

// close gives the servers back, side by side: each may have to wait for a log or a
// collector that takes nothing. What another plan holds goes on.
func (l *live) close() {
	var work sync.WaitGroup
	for _, release := range l.release {
		work.Go(release)
	}
	work.Wait()
}

// localsWait bounds how long the taking over from another process waits for local servers. The
// other one waits longer, which serves meanwhile.
const localsWait = 30 * time.Second

// awaitLocals waits until each local server has said what it offers, or has failed to: calls that
// come before fail, where the process before has it running.
func (l *live) awaitLocals(ctx context.Context, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, localsWait)
	defer cancel()
	var work sync.WaitGroup
	for name, s := range l.servers {
		alone := s.Book == nil && len(s.Backends) == 1 && s.Backends[0].Local != nil && s.Backends[0].Known() == nil
		if !alone && (s.Book == nil || !s.pending(true)) {
			continue
		}
		log.Info("local servers start before this process takes over", "server", name, "at most", localsWait.String())
		work.Go(func() {
			if s.await(ctx, true); alone {
				_, _ = s.Backends[0].Introduced(ctx, nil) // its clients are told the error
			}
		})
	}
	work.Wait()
}
