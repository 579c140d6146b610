package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/image"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/stdio"
	"github.com/weir-edge/weir/edge/workload"
	"github.com/weir-edge/weir/edge/workload/logs"
)

// Doors is the edge of a manager: it serves each workload at a door of its own. It is a
// workload.Edge. Each workload is compiled alone, so that what is wrong with one harms no
// other, and the plans of all are served as one.
type Doors struct {
	settings serve.Settings
	paths    workload.Paths
	log      *slog.Logger
	Edge     *serve.Edge // nil before Serve
	locals   *Locals
	Audits   bool // to a file of each workload, where nothing else is said

	applying sync.Mutex // held while the plan changes

	mu      sync.Mutex
	pending []*change
	open    map[string]*opened
	starts  uint64 // of workloads, so far
}

// opened is a workload that is served, or is to be.
type opened struct {
	workload.Opening
	plan *compile.Plan

	mu      sync.Mutex
	local   backend.Local // nil for a remote server
	settled chan struct{} // closed when its first processes have introduced themselves, or have not
	state   stdio.State   // as it settled
	failed  error         // why a process could not be started; nil while they can
	box     string        // what its processes run in: a grade of sandboxes, "container" or "wasm"
	wide    bool          // that cannot hold what the profile names
	notes   []string
	image   *image.Choice // that containers are made of; nil before one was chosen
	stray   string        // the last line of standard output that was no message; "" for none
	met     bool
}

// change is a workload that is to be served, or with nil no longer.
type change struct {
	name string
	to   *opened
	done chan error
}

var (
	_ workload.Edge    = (*Doors)(nil)
	_ workload.Sweeper = (*Doors)(nil)
	_ workload.Remover = (*Doors)(nil)
)

// NewDoors makes the edge of a manager. Nothing is opened before Serve.
func NewDoors(s serve.Settings, paths workload.Paths, log *slog.Logger) *Doors {
	s.StateDir = paths.State
	d := &Doors{settings: s, paths: paths, log: log, open: map[string]*opened{}}
	d.locals = &Locals{settings: s, cache: paths.Cache, keeper: d, config: paths.Config, protected: []string{paths.State, paths.Run, paths.Config, paths.Data, paths.Cache}}
	return d
}

// Serve opens the edge, and serves until end is called, which returns when all has ended.
// failed says that the edge has ended by itself.
func (d *Doors) Serve(options ...serve.Option) (failed <-chan error, end func(), err error) {
	options = append(options, serve.WithPlannedDoors(), serve.WithWorkloads(d.locals.Start))
	e, err := serve.New(d.settings, &compile.Plan{}, d.log, options...)
	if err != nil {
		return nil, nil, err
	}
	d.Edge = e
	ctx, cancel := context.WithCancel(context.Background())
	ended, broken := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(ended)
		if err := e.Serve(ctx); err != nil {
			broken <- fmt.Errorf("the edge ended: %w", err)
		}
	}()
	return broken, func() {
		cancel()
		<-ended
		d.locals.Close()
	}, nil
}

// Sweep is workload.Sweeper.Sweep: of containers, which end by themselves when their manager
// does, but which an engine that was away may still have.
func (d *Doors) Sweep(unwanted func(name string) bool) {
	_, m, err := d.locals.openEngines(d.log) // by which the engine is found when a workload needs it
	if err != nil {
		m = container.NewMachine(container.Options{State: d.settings.StateDir, Log: d.log})
	}
	if err := m.Sweep(context.Background(), unwanted); err != nil {
		d.log.Warn("containers that were left over may still be there", "error", err)
	}
}

// Removed is workload.Remover.Removed: of the volumes that an engine has kept for its containers.
func (d *Doors) Removed(name string) error {
	m := container.NewMachine(container.Options{State: d.settings.StateDir, Log: d.log})
	if err := m.RemoveVolumes(context.Background(), name); err != nil {
		return fmt.Errorf("its volumes: %w", err)
	}
	return nil
}

// Judge is workload.KeeperOptions.Judge.
func (d *Doors) Judge(ctx context.Context, manifest []byte, say func(text string)) error {
	r, ref, err := compileWorkload(manifest)
	if err != nil {
		return err
	}
	w := r.Plan.Servers[0].Backends[0].Workload
	if w == nil {
		return nil
	}
	err = d.locals.judge(ctx, serve.Starting{Workload: *w, Log: d.log}, say)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return (&opened{Opening: workload.Opening{Name: ref.Name}, plan: r.Plan, failed: err}).why(err)
}

// Open is workload.Edge.Open.
func (d *Doors) Open(o workload.Opening) error {
	r, _, err := compileWorkload(o.Manifest)
	if err != nil {
		return err
	}
	for _, f := range r.Findings {
		d.log.Warn(f.String(), "workload", o.Name)
	}
	plan := r.Plan
	d.mu.Lock()
	d.starts++
	start := d.starts
	d.mu.Unlock()
	for i := range plan.Servers {
		s := &plan.Servers[i]
		if s.Audit != nil && s.Audit.Config.LogFile == "" && d.Audits {
			s.Audit.Config.LogFile = filepath.Join(o.Folder, logs.Audit)
		}
		for _, b := range s.Backends {
			if b.Workload != nil {
				b.Workload.Start = start
			}
			if b.Workload == nil { // that it is away, or its login over, is to be seen soon
				s.Failure.Interval = remoteLook
			}
		}
	}
	return d.apply(&change{o.Name, &opened{Opening: o, plan: plan, settled: make(chan struct{})}, make(chan error, 1)})
}

// remoteLook is how often a server elsewhere is asked how it is.
const remoteLook = 10 * time.Second

// Close is workload.Edge.Close.
func (d *Doors) Close(name string, within time.Duration) error {
	one := d.of(name)
	if one == nil {
		return nil
	}
	if err := d.apply(&change{name, nil, make(chan error, 1)}); err != nil {
		return err
	}
	one.mu.Lock()
	local := one.local
	one.mu.Unlock()
	if local == nil {
		return nil
	}
	// Its calls may have gone on for a while; but what is stopped is stopped.
	if s, ok := local.(interface{ Stop(time.Duration) error }); ok {
		if err := s.Stop(within); err != nil {
			return err
		}
	}
	return local.Close()
}

// of returns a workload that is served; nil for none.
func (d *Doors) of(name string) *opened {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open[name]
}

// apply changes the plan. Changes that come while another one is under way are made at once
// together; when that fails each is made by itself.
func (d *Doors) apply(c *change) error {
	d.mu.Lock()
	d.pending = append(d.pending, c)
	d.mu.Unlock()
	d.applying.Lock()
	defer d.applying.Unlock()
	d.mu.Lock()
	all := d.pending
	d.pending = nil
	d.mu.Unlock()
	if len(all) > 0 {
		if err := d.reload(all...); err == nil || len(all) == 1 {
			for _, one := range all {
				one.done <- err
			}
		} else {
			for _, one := range all {
				if one.to != nil { // what it has noted is of processes that ended with the attempt together
					one.to = &opened{Opening: one.to.Opening, plan: one.to.plan, settled: make(chan struct{})}
				}
				one.done <- d.reload(one)
			}
		}
	}
	return <-c.done
}

// reload serves another plan.
func (d *Doors) reload(changes ...*change) error {
	d.mu.Lock()
	before, next := d.open, maps.Clone(d.open)
	for _, c := range changes {
		if delete(next, c.name); c.to != nil {
			next[c.name] = c.to
		}
	}
	d.open = next // whoever keeps processes asks for it
	d.mu.Unlock()
	plan := &compile.Plan{}
	for _, name := range slices.Sorted(maps.Keys(next)) {
		plan.Servers = append(plan.Servers, next[name].plan.Servers...)
		plan.Doors = append(plan.Doors, next[name].plan.Doors...)
	}
	err := d.Edge.Reload(plan)
	if err != nil {
		d.mu.Lock()
		d.open = before
		d.mu.Unlock()
		return refusal(changes[0].name, err)
	}
	return nil
}

// refusal says for the user why a workload is not served.
func refusal(name string, err error) error {
	e := &workload.Error{Code: workload.CodeFault, Message: err.Error()}
	for _, where := range []string{"server " + name + ": ", "backend " + name + ": ", "workload: ", "door " + name + ": "} {
		e.Message = strings.TrimPrefix(e.Message, where)
	}
	var helper *sandbox.HelperError
	var known *edge.Error
	var taken *TakenError
	switch {
	case errors.As(err, &taken):
		e.Code, e.Field, e.Message, e.Next = workload.CodeTaken, "--publish", taken.Error(), "publish it at another port"
		e.Passing = true
	case door.InUse(err):
		e.Code, e.Field, e.Next = workload.CodeTaken, "--proxy-port", "give another --proxy-port, or none"
		e.Passing = true // whoever listens there may end
	case errors.As(err, &helper):
		e.Code = workload.CodeSandbox
	case errors.Is(err, secret.ErrLocked):
		e.Message, _, _ = strings.Cut(e.Message, ": give it with") // as Next says
		e.Code, e.Next, e.Passing = workload.CodeLocked, "weir secret unlock", true
	case errors.As(err, &known) && known.Kind == edge.NotFound:
		e.Code, e.Next, e.Passing = workload.CodeNotFound, "weir secret set", true
		if name, ok := strings.CutPrefix(known.Op, "secret "); ok {
			e.Next += " " + name
		}
		if errors.Is(err, secret.ErrUnset) { // whoever asks may have the variable
			e.Message = strings.Replace(e.Message, "in the environment as", "in the environment of the manager, which was started without it, as", 1)
			e.Next = "`weir secret setup` keeps secrets in a file, or `weir down`, and start the manager again with the variable set"
		}
	}
	return e
}
