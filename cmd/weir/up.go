package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/local"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/settings"
	"github.com/weir-edge/weir/edge/workload"
)

// upSettings are the settings of a process that a manager has: the others are those of doors,
// which stand in the manifests of its workloads.
var upSettings = []string{
	"admin-listen", "secrets-dir", "ca-bundle", "dev-loopback", "max-header", "max-body", "max-message", "max-connections", "max-inflight", "max-sessions",
	"session-ttl", "call-cap", "drain-timeout", "cache-memory", "filter-cache", "log-format", "log-level",
}

// upFlags are what `weir up` is told.
type upFlags struct {
	detach, replace, install, uninstall bool

	detached bool   // it was started by startManager, which waits for it
	watcher  string // who starts it again; "" for nobody
}

func (a *app) upCommand() *cobra.Command {
	var o upFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Keep the workloads, and start those that are to run",
		Long: `Keep the workloads of this user, and start those that are to run.

The manager is one process for all of them. "weir run" starts it where none runs,
so that it takes this command to have it in the foreground, to have the system
start it (--install), and after the system was started anew.

What it keeps is in $XDG_STATE_HOME/weir (~/.local/state/weir), or in the directory
that WEIR_HOME names; commands ask it over a socket that only this user can open.
Each flag that is a setting of "weir serve" too is also a variable
(--log-level is WEIR_LOG_LEVEL). --install writes down those that are set, and
HTTPS_PROXY, HTTP_PROXY, NO_PROXY and SSL_CERT_FILE: the system has none of them.

It ends after SIGINT or SIGTERM, or with "weir down"; a second signal ends it at
once. The workloads end with it, and come back with the next one.`,
		Example: `  weir up --detach
  weir up --install
  weir up --replace --detach`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, given, err := a.upSettings(cmd)
			if err != nil {
				return err
			}
			paths, err := a.paths()
			if err != nil {
				return err
			}
			switch n := count(o.detach, o.install, o.uninstall); {
			case n > 1:
				return usagef("--detach, --install and --uninstall: one of them")
			case o.replace && (o.install || o.uninstall):
				return usagef("--replace and --install, or --uninstall: `weir down` first")
			case o.install:
				return a.install(cmd.Context(), paths, given)
			case o.uninstall:
				return a.uninstall(cmd.Context())
			}
			if o.replace {
				done, err := a.retire(cmd.Context(), paths)
				if done || err != nil {
					return err
				}
			}
			if o.detach {
				return a.detach(cmd.Context(), paths, given)
			}
			return a.up(cmd.Context(), s, paths, o)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVarP(&o.detach, "detach", "d", false, "start it in the background, where something starts it again when it ends")
	f.BoolVar(&o.replace, "replace", false, "take the place of the manager that runs, such as one of an older version")
	f.BoolVar(&o.install, "install", false, "have the system start it at each login (systemd, or launchd)")
	f.BoolVar(&o.uninstall, "uninstall", false, "have the system start it no longer")
	f.BoolVar(&o.detached, "detached", false, "it was started by another command")
	f.StringVar(&o.watcher, "watcher", "", "who starts it again")
	for _, hidden := range []string{"detached", "watcher"} {
		if err := f.MarkHidden(hidden); err != nil {
			panic(err) // the flag was added in the lines before
		}
	}
	for _, s := range settings.All() {
		if !slices.Contains(upSettings, s.Name) {
			continue
		}
		if s.Name == "admin-listen" {
			s.Default = ""
		}
		f.Var(&textFlag{kind: s.Kind, text: s.Default}, s.Name, s.Help)
		if s.Kind == "BOOL" {
			f.Lookup(s.Name).NoOptDefVal = "true"
		}
		if s.Values != nil || !s.Files() {
			mustRegister(cmd, s.Name, s.Values)
		}
	}
	return cmd
}

func count(all ...bool) (n int) {
	for _, yes := range all {
		if yes {
			n++
		}
	}
	return n
}

// upSettings reads the settings of a manager: flags over variables over defaults. given are
// the flags, for another process.
func (a *app) upSettings(cmd *cobra.Command) (s serve.Settings, given []string, err error) {
	s = serve.Defaults()
	s.AdminListen = ""
	for _, one := range settings.All() {
		if !slices.Contains(upSettings, one.Name) {
			continue
		}
		text, from := "", ""
		if value, ok := lookup(a.environ, one.Variable()); ok {
			text, from = value, " (from variable "+one.Variable()+")"
		} else if !cmd.Flags().Changed(one.Name) {
			continue
		}
		if f := cmd.Flags().Lookup(one.Name); f.Changed {
			text, from = f.Value.String(), ""
		}
		if one.Files() && text != "" { // the manager has another directory
			if text, err = filepath.Abs(text); err != nil {
				return s, nil, fmt.Errorf("--%s: %w", one.Name, err)
			}
		}
		if f := cmd.Flags().Lookup(one.Name); f.Changed {
			given = append(given, "--"+one.Name+"="+text)
		}
		if wrong := one.Set(&s, text); wrong != nil {
			err = errors.Join(err, fmt.Errorf("--%s: %w%s", one.Name, wrong, from))
		}
	}
	return s, given, errors.Join(err, s.Check())
}

// managerVariables are those that say how a manager is, beside those of where things are.
// Those of paths name a file.
func managerVariables() (all, paths []string) {
	for _, one := range settings.All() {
		if !slices.Contains(upSettings, one.Name) {
			continue
		}
		if all = append(all, one.Variable()); one.Files() {
			paths = append(paths, one.Variable())
		}
	}
	all = append(all, secret.ProviderVariable, secret.FallbackVariable, "SSL_CERT_FILE")
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"} {
		all = append(all, name, strings.ToLower(name))
	}
	return all, append(paths, "SSL_CERT_FILE")
}

// rooted is an environment for a manager, which has another directory: relative paths in it
// become absolute.
func rooted(environ []string) ([]string, error) {
	_, paths := managerVariables()
	environ = slices.Clone(environ)
	for i, pair := range environ {
		name, path, _ := strings.Cut(pair, "=")
		if path == "" || !slices.Contains(paths, name) {
			continue
		}
		path, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		environ[i] = name + "=" + path
	}
	return environ, nil
}

// restful has a process that is at rest most of the time take less memory: garbage is
// collected when it is half as much as what is in use, not as much, unless GOGC says when.
func (a *app) restful() {
	if _, given := lookup(a.environ, "GOGC"); !given {
		debug.SetGCPercent(50)
	}
}

// up is the manager, until a signal or a client ends it.
func (a *app) up(ctx context.Context, s serve.Settings, paths workload.Paths, o upFlags) error {
	a.restful()
	// 1. What was kept, and the lock of it.
	a.unhurried(&s)
	var keeper atomic.Pointer[workload.Keeper]
	log := keptLog(a.err, s, &keeper)
	secrets, encrypted, locked, err := a.secrets().OfWorkloads(ctx, s.SecretsDir, !o.detached)
	if err != nil {
		return err
	}
	if locked != nil {
		log.Warn("workloads that need secrets have to wait", "error", locked)
	}
	d := local.NewDoors(s, paths, log)
	d.Audits = true
	k, err := workload.Open(workload.KeeperOptions{
		Paths: paths, Edge: d, Log: log, Version: thisBuild().Version, Watcher: o.watcher, Admin: s.AdminListen,
		Rotated: func() { d.Edge.ReopenLogs() },
		Forget:  d.Forget,
		Ports:   local.Ports(paths),
		Judge:   d.Judge,
	})
	if errors.Is(err, workload.ErrManaged) && o.detached {
		return nil // whoever started this one asks the other
	}
	if err != nil {
		return err
	}
	defer k.Close()
	keeper.Store(k)
	if encrypted != nil {
		k.Unlock = workload.Unlocking(encrypted, k.Again)
	}

	// 2. The edge, and the socket for commands.
	failed, end, err := d.Serve(append(a.edgeOptions(), serve.WithSecrets(secrets), serve.WithCollector(transitions(k)))...)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	stopEdge := func() {
		k.End()
		end()
		close(ended)
	}
	incoming, forget := signals(true)
	defer forget()
	ctx, stop := draining(ctx, log, s.DrainTimeout, incoming, a.exit)
	defer stop()
	ctx, down := context.WithCancel(ctx)
	defer down()
	api, err := k.Listen(func() {
		down()
		<-ended
	})
	if err != nil {
		stopEdge()
		return err
	}
	answering := make(chan error, 1)
	go func() { answering <- api.Serve() }()

	// 3. The workloads, until a signal.
	k.Begin()
	log.Info("the manager is up", "socket", paths.Socket(), "state", paths.State, "admin", d.Edge.AdminAddr(), "watcher", o.watcher)
	if o.watcher == "" {
		log.Info("no watcher: nobody starts the manager again when it ends, but the next command that needs it, or `weir up --install`")
	}
	select {
	case <-ctx.Done():
		err = nil
	case <-k.Lost():
		err = fmt.Errorf("%s was removed, and its workloads end", paths.State)
	case err = <-failed:
	case err = <-answering:
		err = fmt.Errorf("the manager's socket: %w", err)
	}
	stopEdge()
	api.Close()
	log.Info("the manager has ended")
	return err
}

// transitions counts the states that workloads come to.
func transitions(k *workload.Keeper) edge.Collector {
	return edge.CollectorFunc(func(m edge.Emitter) {
		for t, n := range k.Transitions() {
			m.With("workload", t.Workload).With("to", string(t.To)).Counter("weir_workload_transitions", "States that workloads came to.", float64(n))
		}
	})
}

// keptLog is the log of a manager. What is about a workload is written to its own log, too.
func keptLog(w io.Writer, s serve.Settings, keeper *atomic.Pointer[workload.Keeper]) *slog.Logger {
	h, level := logTo(w, s)
	return slog.New(serve.Leveled(&sorter{Handler: h, keeper: keeper}, level))
}

// sorter writes what is about a workload to its log, and passes everything on.
type sorter struct {
	slog.Handler
	keeper *atomic.Pointer[workload.Keeper]
	with   []slog.Attr
}

// Handle is slog.Handler.Handle.
func (s *sorter) Handle(ctx context.Context, r slog.Record) error {
	if k := s.keeper.Load(); k != nil {
		name, text := "", r.Level.String()+" "+r.Message
		look := func(a slog.Attr) bool {
			switch a.Key {
			case "workload", "server", "backend", "door":
				if a.Value.Kind() == slog.KindString && name == "" {
					name = a.Value.String()
				}
			default:
				text += " " + a.Key + "=" + edge.Printable(fmt.Sprint(a.Value.Resolve().Any()))
			}
			return true
		}
		for _, a := range s.with {
			look(a)
		}
		r.Attrs(look)
		if name != "" {
			k.Note(name, text)
		}
	}
	return s.Handler.Handle(ctx, r)
}

// WithAttrs is slog.Handler.WithAttrs.
func (s *sorter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &sorter{s.Handler.WithAttrs(attrs), s.keeper, slices.Concat(s.with, attrs)}
}

// WithGroup is slog.Handler.WithGroup.
func (s *sorter) WithGroup(name string) slog.Handler {
	return &sorter{s.Handler.WithGroup(name), s.keeper, s.with}
}

// detach starts a manager in the background.
func (a *app) detach(ctx context.Context, paths workload.Paths, given []string) error {
	if c, err := workload.Find(ctx, paths); err == nil {
		c.Close()
		_, err := fmt.Fprintf(a.err, "a manager runs already, of version %s, as process %d\n", c.Hello.Version, c.Hello.PID)
		return err
	} else if !errors.Is(err, workload.ErrNoManager) {
		return err
	}
	c, err := a.startManager(ctx, paths, given...)
	if err != nil {
		return err
	}
	defer c.Close()
	note := ""
	if c.Hello.Watcher == "" {
		note = "; no watcher: the next command that needs it starts it again when it has ended"
	}
	_, err = fmt.Fprintf(a.err, "the manager runs, as process %d%s\n", c.Hello.PID, note)
	return err
}

// startWithin is how long a manager may take until it answers.
const startWithin = 20 * time.Second

// maxManagerLog is when a detached manager begins its log anew, in bytes.
const maxManagerLog = 10 << 20

// startManager starts a manager in the background, and returns when it answers. Of two that
// start at once one is the manager, and both callers find it.
func (a *app) startManager(ctx context.Context, paths workload.Paths, flags ...string) (*workload.Client, error) {
	if err := local.Private(paths.State); err != nil {
		return nil, paths.Unusable(err)
	}
	if err := local.Private(paths.Run); err != nil { // else the watcher tries again and again
		return nil, workload.NoSocket(err)
	}
	if info, err := os.Lstat(paths.Log()); err == nil && info.Size() > maxManagerLog {
		_ = os.Rename(paths.Log(), paths.Log()+".1")
	}
	log, err := os.OpenFile(paths.Log(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, paths.Unusable(err)
	}
	defer log.Close()
	began, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("log of the manager: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ended, stop, err := a.spawn(paths, log, append([]string{self, "up", "--detached"}, flags...))
	if err != nil {
		return nil, fmt.Errorf("start the manager: %w", err)
	}
	limit, tick := time.NewTimer(startWithin), time.NewTicker(20*time.Millisecond)
	defer limit.Stop()
	defer tick.Stop()
	for {
		c, err := workload.Find(ctx, paths)
		if !errors.Is(err, workload.ErrNoManager) {
			return c, err
		}
		select {
		case <-tick.C:
			continue
		case <-ended:
			ended = nil // another manager was there first, or it has failed: the limit tells
			limit.Reset(2 * time.Second)
			continue
		case <-limit.C:
		case <-ctx.Done():
			stop() // else the watcher goes on with one that cannot be started
			return nil, context.Cause(ctx)
		}
		stop()
		if workload.Managed(paths) {
			return nil, &workload.Error{Code: workload.CodeFault, Message: fmt.Sprintf("another manager keeps what is in %s, and nobody answers at %s", paths.State, paths.Socket()), Next: "end its process (`pgrep -f \"weir up\"` finds it), or set XDG_RUNTIME_DIR to what it was started with"}
		}
		return nil, &workload.Error{Code: workload.CodeFault, Message: "the manager does not start" + saidSince(paths.Log(), began), Next: "`weir up` shows what keeps it from starting"}
	}
}

// saidSince is the end of what a log says since a place in it, for an error.
func saidSince(path string, began int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, began, 64<<10))
	if err != nil || len(text) == 0 {
		return ""
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		// What it logs is for later. The watcher may have tried several times.
		if line = strings.TrimSpace(line); line != "" && line[0] != '{' && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ": " + path + " says why"
	}
	return ":\n  " + edge.Clean(strings.Join(lines[max(0, len(lines)-3):], "\n  "))
}

// spawn starts a command in a session of its own, under the watcher where there is one.
// ended is closed when it has ended; stop ends it.
func (a *app) spawn(paths workload.Paths, log *os.File, command []string) (ended <-chan struct{}, stop func(), err error) {
	environ, err := rooted(a.environ)
	if err != nil {
		return nil, nil, err
	}
	start := func(argv []string) (*exec.Cmd, error) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = environ, filepath.VolumeName(argv[0])+string(filepath.Separator), log, log
		cmd.SysProcAttr = detachedProcess()
		return cmd, cmd.Start()
	}
	var cmd *exec.Cmd
	helper := ""
	if runtime.GOOS == "linux" {
		helper, err = sandbox.Helper(paths.Cache)
	}
	if helper != "" && err == nil {
		cmd, err = start(append([]string{helper, "watch"}, append(command, "--watcher=watcher")...))
	}
	if helper == "" || err != nil { // or its directory is mounted noexec
		if cmd, err = start(command); err != nil {
			return nil, nil, err
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // what it says is in its log
	}()
	return done, func() { _ = cmd.Process.Signal(os.Interrupt) }, nil
}
