// Package local keeps the local servers of an edge: a process of each in a sandbox, with a
// HOME of its own (locals.go), whose package is installed first where a runner is to fetch it
// (launcher.go); servers in WebAssembly, in this process (modules.go); and the edge of a manager, with a door for each workload (doors.go), what its manifests say of it (facts.go), and how it is (state.go).
package local

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/egress"
	"github.com/weir-edge/weir/edge/envfile"
	"github.com/weir-edge/weir/edge/image"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/stdio"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/edge/workload"
	"github.com/weir-edge/weir/filters/audit"
)

// Locals starts the local processes of an edge, each in a sandbox, with a home directory of
// its own below the state directory. Nothing is made before the first of them.
type Locals struct {
	settings  serve.Settings
	cache     string   // for the helper; "" for the user's
	keeper    *Doors   // of a manager, whose workloads these are; nil for those of a configuration
	protected []string // more places that no server may have mounted
	config    string   // directory of the user's defaults; "" for the usual one

	mu      sync.Mutex
	state   string // "" before the first workload
	made    bool   // state is a temporary directory, which goes with the edge
	held    string // where what can be had again is kept
	machine *sandbox.Machine
	engines *container.Machine // nil before the first container
	modules *modules           // nil before the first server in WebAssembly

	ports ports // that workloads publish
}

// New makes one for the workloads of a configuration.
func New(s serve.Settings) *Locals { return &Locals{settings: s} }

// restarts are the policies of manifests as those of who keeps the processes.
var restarts = map[v1beta1.RestartPolicy]stdio.Restart{v1beta1.RestartAlways: stdio.Restarted, v1beta1.RestartOnFailure: stdio.Failures, v1beta1.RestartNever: stdio.Never}

// place makes the directories that all workloads share; l.mu is held.
func (l *Locals) place() (err error) {
	if l.state != "" {
		return nil
	}
	state := l.settings.StateDir
	if state == "" {
		if state, err = os.MkdirTemp("", "weir-state-"); err != nil {
			return fmt.Errorf("state directory: %w", err)
		}
		l.made = true
	} else if state, err = filepath.Abs(state); err == nil {
		err = Private(state)
	}
	if err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	cache := filepath.Join(state, "cache")
	if l.cache != "" {
		cache = l.cache
	} else if user, err := os.UserCacheDir(); err == nil {
		cache = filepath.Join(user, "weir")
	}
	l.state, l.held = state, cache
	return nil
}

// open makes what all processes share.
func (l *Locals) open() (state string, machine *sandbox.Machine, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.place(); err != nil {
		return "", nil, err
	}
	if l.machine == nil {
		if runtime.GOOS == "linux" {
			if _, err := sandbox.Helper(l.held); err != nil {
				return "", nil, err
			}
		}
		l.machine = sandbox.NewMachine(l.held)
	}
	return l.state, l.machine, nil
}

// openModules makes what all servers in WebAssembly share.
func (l *Locals) openModules(log *slog.Logger) (state string, m *modules, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.place(); err != nil {
		return "", nil, err
	}
	if l.modules == nil {
		if l.modules, err = newModules(l.held, log); err != nil {
			return "", nil, err
		}
	}
	return l.state, l.modules, nil
}

// openEngines makes what all containers share.
func (l *Locals) openEngines(log *slog.Logger) (state string, m *container.Machine, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.place(); err != nil {
		return "", nil, err
	}
	if l.engines == nil {
		d, err := ReadDefaults(l.configured(DefaultsName))
		if err != nil {
			return "", nil, err
		}
		l.engines = container.NewMachine(container.Options{Cache: l.held, State: l.state, Lookup: d.Lookup(os.LookupEnv), Log: log, Link: cmp.Or(d.Link, container.LinkAuto)})
	}
	return l.state, l.engines, nil
}

// Private makes a directory that only this user may look into, or says why one that is there
// is none.
func Private(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err == nil && (!info.IsDir() || runtime.GOOS != "windows" && info.Mode()&0o077 != 0) {
		err = fmt.Errorf("%s is no directory of this user alone: chmod 700 it, or name another", dir)
	}
	return err
}

// Close ends what is left when the edge has ended.
func (l *Locals) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.machine != nil {
		l.machine.Close()
	}
	if l.engines != nil {
		if l.made { // nobody finds them again
			if err := l.engines.RemoveVolumes(context.Background(), ""); err != nil {
				l.engines.Log.Warn("volumes of containers are left", "error", err)
			}
		}
		l.engines.Close()
	}
	if l.modules != nil {
		l.modules.close()
	}
	if l.made {
		_ = os.RemoveAll(l.state) // what a server made unreadable stays
	}
}

// Start keeps one workload; its first process is started when somebody needs it.
func (l *Locals) Start(s serve.Starting) (backend.Local, error) {
	w := &s.Workload
	var of *opened
	if l.keeper != nil {
		if of = l.keeper.of(w.Name); of == nil {
			return nil, errNotOpen
		}
	}
	if w.Form == compile.FormWasm {
		return l.startModule(s, of)
	}
	var given handed
	for _, v := range w.Env {
		if sandbox.Risky(v.Name) {
			s.Log.Warn("a variable has programs run code that their command does not name", "workload", w.Name, "variable", v.Name)
		}
	}
	if _, err := secretsOf(context.Background(), &s, &given); err != nil { // one that is missing is told at the start
		return nil, err
	}
	holder := func(string) string { return "" }
	if l.keeper != nil {
		holder = l.keeper.holder
	}
	out, err := l.ports.open(w, s.Log, holder)
	if err != nil {
		return nil, err
	}
	launch, err := l.starter(&s, environment(&s, &given), of, out)
	if err != nil {
		out.close()
		return nil, err
	}
	c := stdio.Config{
		Name: w.Name, Digest: s.Digest, Starter: launch, Restart: restarts[w.Restart], MaxProcesses: w.MaxProcesses, MaxMessage: s.MaxMessage,
		Secrets: given.all, Lines: lines(s.Log, w.Name), Log: s.Log,
	}
	if w.Processes == v1beta1.ProcessShared {
		c.Mode = stdio.Shared
	}
	switch filepath.Base(w.Program) {
	case "npx", "uvx", "pipx", "bunx", "deno":
		c.First = firstStart
	}
	if of != nil {
		of.keep(w, &c)
	}
	switch launch := launch.(type) {
	case *launcher:
		launch.printed = c.Printed
	case *contained:
		if c.Lines != nil {
			launch.said = func(text string) { c.Lines(stdio.Line{At: time.Now(), Source: "weir", Text: text}) }
		}
		if of != nil && of.Say != nil {
			launch.shown = of.Say
		}
	}
	if w.Port > 0 {
		server, err := stdio.NewHTTP(c, dialer(w.Host))
		if err != nil {
			out.close()
			return nil, err
		}
		one := &web{server, launch, out}
		if of != nil {
			of.has(one)
		}
		return one, nil
	}
	bridge, err := stdio.New(c)
	if err != nil {
		out.close()
		return nil, err
	}
	one := &boxed{bridge, launch, out}
	if of != nil {
		of.has(one)
	}
	return one, nil
}

// judge says what keeps a workload from being started, as far as that is to be seen while another
// one has its home and its ports: its sandbox, its mounts, its module. It starts nothing.
func (l *Locals) judge(ctx context.Context, s serve.Starting, say func(string)) error {
	w := &s.Workload
	if w.Form == compile.FormWasm {
		h, err := l.hostOf(w, s.Log, say)
		if err != nil {
			return err
		}
		defer h.close()
		return h.ready(ctx)
	}
	if w.Form == compile.FormContainer {
		return nil // its engine judges it, of an image that may have to be fetched
	}
	machine, c, err := l.box(&s)
	if err != nil {
		return err
	}
	return machine.Judge(c)
}

// box is the sandbox of a workload, of which nothing is made yet.
func (l *Locals) box(s *serve.Starting) (machine *sandbox.Machine, c sandbox.Config, err error) {
	state, machine, err := l.open()
	if err != nil {
		return
	}
	w := &s.Workload
	if c, err = boxOf(w, filepath.Join(state, "workloads", w.Name, "home")); err != nil {
		return
	}
	c.Protected, c.Ignore = l.guarded(state), l.ignores(w)
	c.Outlet, err = outletOf(w, *s)
	return
}

// starter makes what starts a workload. What it opens is told to of, unless that is nil, and to
// what publishes its ports.
func (l *Locals) starter(s *serve.Starting, environment func(context.Context) ([]string, error), of *opened, ports *published) (starter, error) {
	w := &s.Workload
	if w.Form == compile.FormContainer {
		out, err := outletOf(w, *s)
		if err != nil {
			return nil, err
		}
		state, engines, err := l.openEngines(s.Log)
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(state, "workloads", w.Name)
		if err := Private(dir); err != nil {
			return nil, fmt.Errorf("directory of %s: %w", w.Name, err)
		}
		c := containerOf(w)
		c.Environment, c.Protected, c.Sockets, c.Outlet, c.Ignore = environment, l.guarded(state), filepath.Join(dir, "sock"), out, l.ignores(w)
		c.Opened = func(b *container.Box) {
			ports.has(b)
			if of != nil {
				of.contained(b)
			}
		}
		from, err := l.sourceOf(w)
		if err != nil {
			return nil, err
		}
		if of != nil {
			from.told = of.chosen
		}
		one := newContained(engines, c, from, s.Log)
		if w.Build != nil {
			one.building = &building{newBuilds(engines, state, from.images, w.Verification), w.Build}
		}
		return one, nil
	}
	machine, c, err := l.box(s)
	if err != nil {
		return nil, err
	}
	if err := Private(c.Home); err != nil {
		return nil, fmt.Errorf("home of %s: %w", w.Name, err)
	}
	c.Environment = environment
	c.Opened = func(b *sandbox.Sandbox) {
		ports.has(b)
		if of != nil {
			of.boxed(b)
		}
	}
	return newLauncher(machine, c, s.Log)
}

// sourceOf is where the image of a workload comes from.
func (l *Locals) sourceOf(w *compile.Workload) (origin, error) {
	config := ""
	if l.keeper != nil {
		config = l.keeper.paths.Config
	} else if paths, err := workload.PathsOf(os.LookupEnv); err == nil {
		config = paths.Config
	}
	cas, err := l.trusted(w)
	if err != nil {
		return origin{}, err
	}
	return origin{
		images: &image.Images{PolicyFile: filepath.Join(config, image.PolicyFile), RootsFile: filepath.Join(config, image.RootsFile), CAs: cas},
		want:   image.Want{Mode: w.Verification, Signer: w.Signer},
	}, nil
}

// trusted are the certificates that requests for a workload trust besides those of the system,
// in PEM: the edge's, and those of the workload's own file.
func (l *Locals) trusted(w *compile.Workload) ([]byte, error) {
	reach, err := l.settings.Reach()
	if err != nil || w.Roots == "" {
		return reach.CAs, err
	}
	own, err := edge.MoreRoots(w.Roots)
	if err != nil {
		return nil, fmt.Errorf("spec.run.caBundle: %w", err)
	}
	return bytes.Join([][]byte{reach.CAs, own}, []byte("\n")), nil
}

// guarded are the places that no server may have mounted: what is in the cache is the first process
// of every sandbox, a configuration may be served beside a manager, and who reaches the container
// engine controls this machine.
func (l *Locals) guarded(state string) []string {
	all := append([]string{state, l.held, l.settings.SecretsDir, l.settings.HandOver, l.settings.StateKeyFile}, l.protected...)
	if p, err := workload.PathsOf(os.LookupEnv); err == nil {
		all = append(all, p.State, p.Run, p.Config, p.Data, p.Cache)
	}
	d, _ := ReadDefaults(l.configured(DefaultsName)) // a file that is none keeps the engine from being used
	all = append(all, container.Sockets(d.Lookup(os.LookupEnv))...)
	return slices.DeleteFunc(all, func(path string) bool { return path == "" })
}

// secretsOf are the variables of a workload whose values are secrets, as they are now.
func secretsOf(ctx context.Context, s *serve.Starting, given *handed) (vars []string, err error) {
	for _, v := range s.Workload.Secrets {
		value, err := s.Secrets.Secret(ctx, v.Name, v.Key)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Variable, err)
		}
		text := strings.TrimSuffix(strings.TrimSuffix(string(value), "\n"), "\r")
		given.add(text)
		vars = append(vars, v.Variable+"="+text)
	}
	return vars, nil
}

// environment returns what finds the variables that a workload is given, at each start anew.
func environment(s *serve.Starting, given *handed) func(context.Context) ([]string, error) {
	w := &s.Workload
	open := func(path string) (*os.File, error) { return sandbox.OpenWithin(mountsOf(w), path) }
	return func(ctx context.Context) ([]string, error) {
		vars, err := envfile.ReadBy(open, w.EnvFiles...)
		if err != nil {
			return nil, err
		}
		for _, v := range w.Env {
			vars = append(vars, v.Name+"="+v.Value)
		}
		if w.Form != compile.FormWasm { // what the transport needs to be is not the user's, but for secrets
			vars = slices.DeleteFunc(vars, func(v string) bool {
				name, _, _ := strings.Cut(v, "=")
				return name == "MCP_TRANSPORT" || w.Port > 0 && slices.Contains([]string{"MCP_PORT", "FASTMCP_PORT", "MCP_HOST"}, name)
			})
		}
		own, err := secretsOf(ctx, s, given)
		return append(vars, own...), err
	}
}

// mostHanded is how many values of secrets are known to have been given to a workload's
// processes: those of its processes at a time, and of some before them.
const mostHanded = 256

// handed are the values of secrets that processes of a workload were given, the newest last.
type handed struct {
	mu     sync.Mutex
	values []string
}

func (h *handed) add(value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.values, value); i >= 0 {
		h.values = slices.Delete(h.values, i, i+1)
	}
	if h.values = append(h.values, value); len(h.values) > mostHanded {
		h.values = slices.Delete(h.values, 0, 1)
	}
}

func (h *handed) all() (values [][]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, value := range h.values {
		values = append(values, []byte(value))
	}
	return values
}

// boxOf is the sandbox of a workload.
func boxOf(w *compile.Workload, home string) (sandbox.Config, error) {
	c := sandbox.Config{
		Name: w.Name, Command: append([]string{w.Program}, w.Args...), Home: home, Writable: w.Writable, AllowUnsafe: w.AllowUnsafe,
		Isolate: w.Asked || w.Network == "none", Transport: string(w.Transport), Port: w.Port, AnyPort: w.AnyPort, Memory: w.Memory, CPUs: float64(w.MilliCPUs) / 1000,
	}
	var err error
	if c.Grade, err = sandbox.ParseGrade(string(w.Sandbox)); err != nil {
		return c, err
	}
	c.Published = publishedOf(w)
	for _, m := range w.Mounts {
		c.Mounts = append(c.Mounts, sandbox.Mount{Host: m.Source, Inside: m.Target, Writable: m.Writable})
	}
	c.Network = networkOf(w)
	return c, nil
}

// LetsOut says what a workload is let out to: isolated, what its profile names; open, all that
// this machine reaches; neither, nothing.
func LetsOut(w *compile.Workload) (isolated, open bool) {
	n := networkOf(w)
	return n == sandbox.Profile, n == sandbox.Host
}

// networkOf is the network of a workload's sandboxes.
func networkOf(w *compile.Workload) sandbox.Network {
	switch {
	case w.Network == "none":
		return sandbox.Closed
	case w.Network != "" || !w.Isolate: // the host's, or one of a container engine
		return sandbox.Host
	case w.Profile.Offline() && !w.Gateway:
		return sandbox.Closed
	case w.Form != compile.FormContainer && w.Profile.Network.Outbound.InsecureAllowAll && !w.Asked && !w.Gateway && len(w.EgressPorts) == 0:
		return sandbox.Host // it names nothing, and nobody asked for more; a container is apart from this machine all the same
	}
	return sandbox.Profile
}

// outlet is what carries connections out of the sandboxes of a workload.
type outlet struct{ *egress.Proxy }

func (o outlet) Ports() []int          { return o.Rules().Ports() }
func (o outlet) Open() sandbox.Passage { return o.Proxy.Open() }

// outletOf is that of a workload whose profile lets something out; nil for another one.
func outletOf(w *compile.Workload, s serve.Starting) (sandbox.Outlet, error) {
	if networkOf(w) != sandbox.Profile {
		return nil, nil
	}
	rules, err := egress.NewRules(&w.Profile, w.Egress())
	if err != nil {
		return nil, fmt.Errorf("spec.permissionProfile: %w", err)
	}
	return outlet{egress.New(egress.Config{Workload: w.Name, Rules: rules, Log: s.Log, Tell: func(r egress.Record) { s.Record(eventOf(r)) }})}, nil
}

// eventOf is a decision as audit logs have it.
func eventOf(r egress.Record) audit.Event {
	event := audit.Event{Type: audit.Egress, Outcome: audit.Success, Name: net.JoinHostPort(r.Host, strconv.Itoa(r.Port)), Kind: "egress"}
	if r.Reason != egress.Allowed {
		event.Outcome, event.Reason = audit.Denied, r.Reason.String()
	}
	members := []mcp.Member{mcp.Raw("workload", mcp.Quote(r.Workload)), mcp.Raw("profile", mcp.Quote(r.Profile))}
	for name, text := range map[string]string{"rule": r.Rule, "more": r.More} {
		if text != "" {
			members = append(members, mcp.Raw(name, mcp.Quote(edge.Clean(text))))
		}
	}
	event.Data = mcp.Change(nil, nil, members...)
	return event
}

// lines logs what a server prints.
func lines(log *slog.Logger, name string) func(stdio.Line) {
	return func(l stdio.Line) {
		log.Info("server", "workload", name, "source", l.Source, "line", edge.Cut(edge.Clean(l.Text), 2000))
	}
}

// inside is a process in a sandbox.
type inside struct{ *sandbox.Process }

func (p inside) Wait() stdio.Exit { return stdio.Exit(p.Process.Wait()) }
