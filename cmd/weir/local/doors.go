package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/container/build"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/image"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/oauth/login"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/stdio"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/edge/workload"
	"github.com/weir-edge/weir/edge/workload/logs"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/wasm"
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
	d.locals = &Locals{settings: s, cache: paths.Cache, keeper: d, config: paths.Config, protected: []string{paths.State, paths.Run, paths.Config, paths.Data}}
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
	m := container.NewMachine(container.Options{State: d.settings.StateDir, Log: d.log})
	if err := m.Sweep(context.Background(), unwanted); err != nil {
		d.log.Warn("containers that were left over may still be there", "error", err)
	}
}

// Removed is workload.Remover.Removed: of the volumes that an engine has kept for its containers.
func (d *Doors) Removed(name string) {
	m := container.NewMachine(container.Options{State: d.settings.StateDir, Log: d.log})
	if err := m.RemoveVolumes(context.Background(), name); err != nil {
		d.log.Warn("volumes of a workload that was removed are left", "workload", name, "error", err)
	}
}

// readWorkload reads the manifests of a workload, and finds the one that is the workload.
func readWorkload(manifest []byte) (*source.Set, compile.Ref, error) {
	const file = "manifest.yaml"
	set, err := source.Read(file, manifest)
	if err != nil {
		return nil, compile.Ref{}, &workload.Error{Code: workload.CodeInvalid, Message: err.Error()}
	}
	var ref compile.Ref
	group, groups := "", map[string]bool{}
	refuse := func(format string, args ...any) (*source.Set, compile.Ref, error) {
		return nil, ref, &workload.Error{Code: workload.CodeInvalid, Message: file + ": " + fmt.Sprintf(format, args...)}
	}
	for _, o := range set.Objects {
		var of *v1beta1.NameRef
		switch k := o.Value.(type) {
		case *v1beta1.MCPServer:
			of = k.Spec.GroupRef
		case *v1beta1.MCPRemoteProxy:
			of = k.Spec.GroupRef
		case *v1beta1.MCPGroup:
			groups[k.Name] = true
			continue
		case *v1beta1.VirtualMCPServer:
			return refuse("%s: a workload is an MCPServer or an MCPRemoteProxy: serve this one with `weir serve -c`", o.Ref())
		case *compile.Secret:
			return refuse("%s holds values, and the manifests of a workload name secrets alone: keep them with `weir secret set`, and take it out", o.Ref())
		default:
			continue
		}
		if ref.Name != "" {
			return refuse("%s and %s: a workload is one of them: run each by itself", ref, o.Ref())
		}
		if ref = o.Ref(); of != nil {
			group = of.Name
		}
	}
	switch {
	case ref.Name == "":
		return refuse("there is no MCPServer and no MCPRemoteProxy in it")
	case group == "" || groups[group]:
		return set, ref, nil
	}
	// Groups are the manager's, which knows whether there is one.
	set, err = source.Read(file, append(slices.Clip(manifest), "\n---\napiVersion: weir.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: "+strconv.Quote(group)+"}\n"...))
	if err != nil {
		return refuse("spec.groupRef.name: %q is no name of a group", group)
	}
	return set, ref, nil
}

// compileWorkload makes the plan of a workload.
func compileWorkload(manifest []byte) (*source.Result, compile.Ref, error) {
	set, ref, err := readWorkload(manifest)
	if err != nil {
		return nil, ref, err
	}
	set.Serve, set.Doors, set.Starts, set.LocalRateLimits, set.Modules = ref, true, []compile.Form{compile.FormLocal, compile.FormContainer, compile.FormWasm}, true, guest.ReadModule
	r := set.Compile()
	wrong := r.Findings.Errors()
	if len(wrong) == 0 {
		return r, ref, nil
	}
	e := &workload.Error{Code: workload.CodeInvalid, Field: wrong[0].Path, Message: wrong.Error()}
	if !slices.ContainsFunc(wrong, func(f source.Finding) bool { return f.Reason != compile.ReasonUnsupported }) {
		e.Code = workload.CodeSandbox // somebody else could run it
	}
	return nil, ref, e
}

// Read is workload.Edge.Read.
func (d *Doors) Read(manifest []byte) (*workload.Facts, error) {
	r, ref, err := compileWorkload(manifest)
	if err != nil {
		return nil, err
	}
	f := &workload.Facts{Name: ref.Name, ProxyMode: string(v1beta1.TransportStreamableHTTP), Tools: toolsOf(r)}
	var run *v1beta1.ProxyRun
	var group *v1beta1.NameRef
	var port *int32
	for _, o := range r.Set.Objects {
		switch k := o.Value.(type) {
		case *v1beta1.MCPServer:
			if k.Spec.Run != nil {
				run = &k.Spec.Run.ProxyRun
			}
			group, port, f.Transport = k.Spec.GroupRef, k.Spec.ProxyPort, string(k.Spec.Transport)
			if k.Spec.ProxyMode != "" {
				f.ProxyMode = string(k.Spec.ProxyMode)
			}
		case *v1beta1.MCPRemoteProxy:
			run, group, port, f.Transport, f.Remote = k.Spec.Run, k.Spec.GroupRef, k.Spec.ProxyPort, string(k.Spec.Transport), true
			f.Package, _, _ = strings.Cut(k.Spec.RemoteURL, "?") // a query may hold a secret
		}
	}
	if w := r.Plan.Servers[0].Backends[0].Workload; w != nil {
		f.Command = commandOf(w)
		switch w.Form {
		case compile.FormContainer:
			f.Package, f.Isolation = w.Image, isolates(w)
		case compile.FormWasm:
			f.Package, f.Isolation = w.Image, true
		default:
			box, err := boxOf(w, "/")
			f.Isolation = err == nil && box.Network != sandbox.Host
		}
		if f.Package == "" {
			f.Package = strings.Join(append([]string{filepath.Base(w.Program)}, w.Args...), " ")
		}
	}
	if f.Host = "127.0.0.1"; run != nil {
		f.Labels = run.Labels
		if run.ProxyHost != "" {
			f.Host = run.ProxyHost
		}
	}
	if group != nil {
		f.Group = group.Name
	}
	if port != nil {
		f.Port = int(*port)
	}
	return f, nil
}

// toolsOf are the tools that the filter of a workload lets through; nil for all.
func toolsOf(r *source.Result) (tools []string) {
	for _, o := range r.Set.Objects {
		if k, ok := o.Value.(*v1beta1.MCPToolConfig); ok {
			tools = append(tools, k.Spec.ToolsFilter...)
		}
	}
	return tools
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
			if b.Login != nil { // that it is over is to be seen soon
				s.Failure.Interval = loginLook
			}
		}
	}
	return d.apply(&change{o.Name, &opened{Opening: o, plan: plan, settled: make(chan struct{})}, make(chan error, 1)})
}

// loginLook is how often a server is asked that is sent a login.
const loginLook = 10 * time.Second

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
	case door.InUse(err):
		e.Code, e.Field, e.Next = workload.CodeTaken, "--proxy-port", "give another --proxy-port, or none"
	case errors.As(err, &helper):
		e.Code = workload.CodeSandbox
	case errors.Is(err, secret.ErrLocked):
		e.Message, _, _ = strings.Cut(e.Message, ": give it with") // as Next says
		e.Next = "weir secret unlock"
	case errors.As(err, &known) && known.Kind == edge.NotFound:
		e.Code, e.Next = workload.CodeNotFound, "weir secret set"
		if name, ok := strings.CutPrefix(known.Op, "secret "); ok {
			e.Next += " " + name
		}
	}
	return e
}

// Meet is workload.Edge.Meet.
func (d *Doors) Meet(ctx context.Context, name string) error {
	one := d.of(name)
	if one == nil {
		return errNotOpen
	}
	b := d.Edge.Backend(name)
	if b == nil {
		return errNotOpen
	}
	one.mu.Lock()
	again, local := one.met, one.local
	one.met = true
	one.mu.Unlock()
	var err error
	switch {
	case local == nil || again:
		err = b.Renew(ctx)
	default: // what opened the backend has asked it already
		select {
		case <-one.settled:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		one.mu.Lock()
		state := one.state
		one.mu.Unlock()
		if state == stdio.Running {
			_, err = b.Introduced(ctx, nil)
		} else {
			err = errors.New("has not introduced itself")
		}
	}
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case local == nil && b.Personal() && edge.KindOf(err) == edge.Unauthenticated:
		return nil // it answers to users alone, so it lives
	}
	return one.why(err)
}

var errNotOpen = &workload.Error{Code: workload.CodeFault, Message: "the workload is not served"}

// why says for the user why a server has not introduced itself.
func (o *opened) why(err error) error {
	o.mu.Lock()
	failed, local, stray := o.failed, o.local, o.stray
	o.mu.Unlock()
	e := &workload.Error{Code: workload.CodeStart, Message: fmt.Sprintf("%s has not introduced itself: %v", o.Name, err)}
	if local == nil {
		b := o.plan.Servers[0].Backends[0]
		needed := new(login.NeededError)
		var answer interface{ HTTPStatus() int }
		refused := edge.KindOf(err) == edge.Unauthenticated || errors.As(err, &answer) && answer.HTTPStatus() == http.StatusUnauthorized
		switch {
		case errors.As(err, &needed):
			e.Code, e.Message, e.Next = workload.CodeLogin, o.Name+" wants a login: "+needed.Why, "weir start "+o.Name+", at a terminal"
		case refused && b.Login != nil && b.Login.BearerTokenPath != "":
			e.Code, e.Message, e.Next = workload.CodeLogin, o.Name+" refuses the token in "+b.Login.BearerTokenPath+": "+err.Error(), "write one that it takes into the file, then weir start "+o.Name
		case refused && b.Login != nil:
			e.Code, e.Message, e.Next = workload.CodeLogin, o.Name+" wants a login: "+err.Error(), "weir start "+o.Name+", at a terminal"
		case refused:
			e.Code, e.Message, e.Next = workload.CodeLogin, o.Name+" wants a credential: "+err.Error(), "weir run --replace --name "+o.Name+" --remote-auth "+b.URL+", or with --remote-auth-bearer-token-file"
		}
		return e
	}
	var helper *sandbox.HelperError
	var grade *sandbox.GradeError
	var mount *sandbox.MountError
	var module *wasm.Refusal
	var engine *container.Error
	var unbuilt *build.Error
	var unproven *image.Error
	switch {
	case errors.As(failed, &unbuilt):
		return BuildFailure(o.Name, unbuilt)
	case errors.As(failed, &unproven):
		*e = *Unproven(unproven)
	case errors.As(failed, &engine):
		*e = *EngineFailure(engine)
		if engine.Kind == container.NoEngine {
			e.Next += ", or run the server as a process of this machine: " + o.localForm()
		}
	case errors.As(failed, &module):
		e.Code, e.Message, e.Next = workload.CodeRefused, fmt.Sprintf("%s cannot be started: %v", o.Name, failed), "build it for WASI preview 1: `weir plugin new --server` begins one"
	case errors.As(failed, &helper):
		e.Code, e.Message = workload.CodeSandbox, failed.Error()
	case errors.As(failed, &grade):
		e.Code, e.Message, e.Next = workload.CodeSandbox, failed.Error(), grade.Next
	case errors.As(failed, &mount):
		e.Code, e.Message, e.Next = workload.CodeRefused, failed.Error(), mount.Next
	case failed != nil:
		e.Message = fmt.Sprintf("%s cannot be started: %v", o.Name, failed)
	default:
		if s := statusOf(local); s.Ended != "" && s.Ended != "stopped" {
			e.Message = fmt.Sprintf("%s ended before it had introduced itself: %s", o.Name, s.Ended)
		} else if late, ok := strings.CutPrefix(s.Reason, "introduction: "); ok {
			e.Message = o.Name + " " + late
		} else if s.Reason != "" {
			e.Message = fmt.Sprintf("%s has not introduced itself: %s", o.Name, s.Reason)
		}
		if o.plan.Servers[0].Backends[0].Workload.Form == compile.FormContainer {
			e.Next = unwritable(o.Name, statusOf(local).Said)
		}
		if stray != "" {
			e.Message += fmt.Sprintf("; what it writes to standard output is no message of MCP: %q", edge.Brief(stray))
		}
	}
	return e
}

// refusals are what servers say of a path of a container that they may not write to, or not
// read as the user that they are.
var refusals = sync.OnceValue(func() [2]*regexp.Regexp {
	const path = `[^/]*(/[^\s:'",)\]]+)`
	return [2]*regexp.Regexp{regexp.MustCompile(`(?i)(?:EROFS|read-only file system)` + path + `|(/[^\s:'",)\]]+)[^/]*read-only file system`), regexp.MustCompile(`(?i)(?:EACCES|permission denied)` + path + `|(/[^\s:'",)\]]+)[^/]*permission denied`)}
})

// unwritable is what to type for a server that said that it may not write somewhere; "" where
// it said nothing of it.
func unwritable(name string, said []string) string {
	for i, next := range []string{"give it memory to write to there, weir run --writable %s, or a directory, -v HOST:%[1]s", "if it has to be the user of its image, weir run --run-as image; if it is to write there, --writable %s"} {
		for _, line := range said {
			if m := refusals()[i].FindStringSubmatch(line); m != nil {
				return fmt.Sprintf(next, edge.Brief(path.Dir(m[1]+m[2]))) + "; weir logs " + name
			}
		}
	}
	return ""
}

// statusOf is what is known of a local server.
func statusOf(local backend.Local) stdio.Status {
	if s, ok := local.(interface{ Status() stdio.Status }); ok {
		return s.Status()
	}
	return stdio.Status{}
}

// Look is workload.Edge.Look.
func (d *Doors) Look(name string) (workload.Look, bool) {
	one := d.of(name)
	if one == nil {
		return workload.Look{}, false
	}
	b := d.Edge.Backend(name)
	if b == nil {
		return workload.Look{}, false
	}
	one.mu.Lock()
	local := one.local
	look := workload.Look{State: workload.Running, URL: d.url(one), Sandbox: one.box, Open: one.wide, Notes: slices.Clone(one.notes)}
	if c := one.image; c != nil {
		look.Image, look.Verified = c.Image, verifiedOf(c)
	}
	one.mu.Unlock()
	if local == nil {
		now := b.Status()
		switch now.Is() {
		case health.Unknown: // it was not asked yet
			look.State = workload.Starting
		case health.Unavailable:
			look.State, look.Reason = workload.Unhealthy, now.Message
		case health.Unauthenticated:
			look.State, look.Reason = workload.AuthRetrying, now.Message
		}
		return look, true
	}
	if r, ok := local.(interface{ RunAs() []string }); ok {
		look.RunAs = r.RunAs()
	}
	now := statusOf(local)
	look.Reason, look.Processes, look.Restarts = now.Reason, now.Processes, int(now.Restarts)
	look.Ended, look.Stderr = now.Ended, now.Said
	switch now.State {
	case stdio.Starting:
		look.State = workload.Starting
	case stdio.Unhealthy:
		look.State = workload.Unhealthy
	case stdio.Failed, stdio.Stopped:
		look.State = workload.Failed
	}
	return look, true
}

// url is where clients reach a workload.
func (d *Doors) url(one *opened) string {
	at := d.Edge.DoorAddr(one.Name)
	if at == "" {
		return ""
	}
	s := d.settings
	s.ExternalURL = one.plan.Doors[0].ExternalURL
	url := s.Endpoint(at)
	if one.plan.Servers[0].Older {
		url = strings.TrimSuffix(url, "/mcp") + "/sse"
	}
	return url
}

// has notes who keeps the processes of a workload.
func (o *opened) has(local backend.Local) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.local = local
}

// changed notes how a workload's processes are.
func (o *opened) changed(s stdio.Status) {
	if s.State == stdio.Starting {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state == "" {
		o.state = s.State
		close(o.settled)
	}
}

// boxed notes what a sandbox of the workload holds.
func (o *opened) boxed(s *sandbox.Sandbox) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.box, o.wide, o.failed = string(s.Grade()), s.Open(), nil
	if o.notes = nil; s.Note() != "" {
		o.notes = []string{s.Note()}
	}
}

// chosen notes which image containers of the workload are made of, and says what is not certain
// of it.
func (o *opened) chosen(c *image.Choice) {
	o.mu.Lock()
	o.image = c
	o.mu.Unlock()
	for _, note := range c.Notes {
		o.Say("warning: " + note)
		o.Lines(workload.Line{Time: time.Now(), Source: logs.Event, Text: note})
	}
}

// verifiedOf is what is known of who made an image.
func verifiedOf(c *image.Choice) string {
	if c.Verified == "" {
		return strings.Join(c.Notes, "; ")
	}
	return strings.Join(append([]string{c.Verified}, c.Notes...), "; ")
}

// contained notes what a container of the workload is.
func (o *opened) contained(b *container.Box) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.box, o.failed, o.notes = "container", nil, b.Notes()
}

// printed passes on what a server prints.
func (o *opened) printed(l stdio.Line) {
	switch l.Source {
	case "weir":
		l.Source = logs.Event
	case "stdout":
		l.Text = strings.TrimPrefix(l.Text, "stdout: ")
		o.mu.Lock()
		o.stray = l.Text
		o.mu.Unlock()
	}
	o.Lines(workload.Line{Time: l.At, Source: l.Source, Text: l.Text})
}

// noting is a starter whose failures are noted.
type noting struct {
	stdio.Starter
	of *opened
}

func (n noting) Start(ctx context.Context, principal string) (stdio.Process, error) {
	p, err := n.Starter.Start(ctx, principal)
	if ctx.Err() == nil {
		n.of.mu.Lock()
		n.of.failed = err
		n.of.mu.Unlock()
	}
	return p, err
}

// keep has the processes of a workload looked after, and what its server speaks remembered:
// by what shapes the server, whichever start of it this is.
func (o *opened) keep(w *compile.Workload, c *stdio.Config) {
	same := *w
	same.Start = 0
	text, err := json.Marshal(same)
	if err != nil {
		panic(err) // a plan is data
	}
	sum := sha256.Sum256(text)
	digest := hex.EncodeToString(sum[:])
	c.Digest, c.Starter, c.Lines, c.Changed = digest, noting{c.Starter, o}, o.printed, o.changed
	c.Remembered = func(digest string) (mcp.Era, bool) {
		modern, known := o.Opening.Remembered(digest)
		if modern {
			return mcp.Modern, known
		}
		return mcp.Legacy, known
	}
	c.Remember = func(digest string, era mcp.Era) { o.Opening.Remember(digest, era == mcp.Modern) }
}
