package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/runner"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/stdio"
)

// How long a package runner may take: at its first start, since it fetches the package, and
// when the package is there and it only looks for a newer one.
const (
	firstStart = 300 * time.Second
	laterStart = 20 * time.Second
)

// launcher starts a workload in sandboxes: one for each principal, or one for the process of
// a server that speaks HTTP. Where its command is of a package runner the package is
// installed into its HOME before the first start, in a sandbox too, and then its program is
// started, without the runner and without the network.
type launcher struct {
	machine *sandbox.Machine
	config  sandbox.Config               // with the command as given
	runner  *runner.Runner               // nil for a command that is run as given
	printed func(stdio.Process) []string // takes what the installer prints
	noted   func(note string)
	log     *slog.Logger

	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu   sync.Mutex
	job  *installing   // under way, or done well; nil
	pool *sandbox.Pool // after the first start
}

// installing is an installation that is under way or done.
type installing struct {
	done    chan struct{} // closed when command and err are set
	command []string
	err     error
}

// newLauncher makes one of a workload's sandbox. It starts nothing yet.
func newLauncher(m *sandbox.Machine, c sandbox.Config, log *slog.Logger) (*launcher, error) {
	l := &launcher{machine: m, config: c, log: log}
	var once sync.Once
	l.noted = func(note string) {
		once.Do(func() { log.Warn("a sandbox holds less than it could", "workload", c.Name, "note", note) })
	}
	if runtime.GOOS != "windows" { // where installers are scripts of a shell
		var err error
		if l.runner, err = runner.Parse(c.Command[0], c.Command[1:]); err != nil {
			return nil, fmt.Errorf("spec.args: %w", err)
		}
	}
	l.life, l.end = context.WithCancel(context.Background())
	return l, nil
}

func (l *launcher) halt() { l.end() }

// close ends all sandboxes, and an installation under way.
func (l *launcher) close() {
	l.mu.Lock()
	l.end() // nothing begins any more
	l.mu.Unlock()
	l.work.Wait()
	l.mu.Lock()
	pool := l.pool
	l.mu.Unlock()
	if pool != nil {
		pool.Close()
	}
}

func (l *launcher) collect(m edge.Emitter) { collect(l.config.Outlet, m) }

// collect counts what an outlet lets out; none lets out nothing.
func collect(o sandbox.Outlet, m edge.Emitter) {
	if o, ok := o.(outlet); ok {
		o.Collect(m)
	}
}

// runsAs is the command that is run in place of the given one; nil where that is run, or
// nothing is known yet.
func (l *launcher) runsAs() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j := l.job; j != nil && isClosed(j.done) {
		return slices.Clone(j.command)
	}
	return nil
}

// pending reports whether the next start has to wait for an installation.
func (l *launcher) pending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runner != nil && (l.job == nil || !isClosed(l.job.done))
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Start is stdio.Starter.Start.
func (l *launcher) Start(ctx context.Context, principal string) (stdio.Process, error) {
	c := l.config
	if l.runner != nil {
		var err error
		if c.Command, err = l.installed(ctx); err != nil {
			return nil, err
		}
	}
	if c.Port > 0 {
		return l.listening(ctx, c)
	}
	l.mu.Lock()
	if l.pool == nil {
		l.pool = sandbox.NewPool(l.machine, c, l.noted)
	}
	pool := l.pool
	l.mu.Unlock()
	one, err := pool.Start(ctx, principal)
	if err != nil {
		return nil, err
	}
	return inside{one}, nil
}

// listening starts a server that speaks HTTP, in a sandbox that ends with it.
func (l *launcher) listening(ctx context.Context, c sandbox.Config) (stdio.Process, error) {
	box, err := l.machine.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	if box.Note() != "" {
		l.noted(box.Note())
	}
	one, err := box.Start(ctx)
	if err != nil {
		box.Close()
		return nil, err
	}
	l.work.Go(func() {
		<-one.Ended()
		box.Close()
	})
	return listener{inside{one}, box}, nil
}

// listener is a process that listens on a port of its sandbox.
type listener struct {
	inside
	box dialable
}

// Port is that on which it listens.
func (l listener) Port() int { return l.box.Port() }

// dialer is what connects to a listener: by way of its sandbox or, where its port is reached
// at a host, to that.
func dialer(host string) func(context.Context, stdio.Process) (net.Conn, error) {
	return func(ctx context.Context, p stdio.Process) (net.Conn, error) {
		box := p.(listener).box
		if host == "" {
			return box.Dial(ctx, box.Port())
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", net.JoinHostPort(host, fmt.Sprint(box.Port())))
	}
}

// installed is the command of the installed package. It is installed once: whoever comes
// meanwhile waits, and an installation goes on when nobody does. After one that failed the
// next start tries again.
func (l *launcher) installed(ctx context.Context) ([]string, error) {
	l.mu.Lock()
	j := l.job
	if j == nil && l.life.Err() == nil {
		j = &installing{done: make(chan struct{})}
		l.job = j
		l.work.Go(func() {
			defer edge.Contain(l.log, "install")
			l.install(j)
		})
	}
	l.mu.Unlock()
	if j == nil {
		return nil, errors.New("the workload has ended")
	}
	select {
	case <-j.done:
		return j.command, j.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// install installs the package of a runner, and finds its program. Without a network what is
// there is run.
func (l *launcher) install(j *installing) {
	home := l.config.Home
	within, again := laterStart, true
	if _, err := l.runner.Command(home); err != nil {
		within, again = firstStart, false
	}
	ctx, cancel := context.WithTimeoutCause(l.life, within, fmt.Errorf("not done within %s", within))
	defer cancel()
	failed := l.runInstaller(ctx, again)
	command, err := l.runner.Command(home)
	switch {
	case failed != nil && err != nil:
		err = fmt.Errorf("%s cannot be installed: %w", l.runner.Package, failed)
	case failed != nil:
		l.log.Warn("the package cannot be brought up to date: what is there is run", "workload", l.config.Name, "package", l.runner.Package, "error", failed)
	case err == nil:
		if err := l.runner.Tidy(home); err != nil {
			l.log.Warn("what was installed before stays", "workload", l.config.Name, "error", err)
		}
	}
	if err == nil {
		l.log.Info("the package of a workload is installed", "workload", l.config.Name, "given", l.config.Command, "runs", command)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if j.command, j.err = command, err; err != nil {
		l.job = nil
	}
	close(j.done)
}

// runInstaller runs the installer in a sandbox like the server's: it can write to HOME alone.
func (l *launcher) runInstaller(ctx context.Context, again bool) error {
	for _, program := range l.runner.Needs() {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is needed and cannot be run here: %w, which is that of whoever started this process: install it, or start the process again from a shell that finds it (a manager by `weir up --replace`)", program, err)
		}
	}
	c := l.config
	command, more := l.runner.Install(c.Home, again)
	c.Command, c.Writable, c.Port, c.Transport = command, nil, 0, ""
	c.Mounts = slices.Clone(c.Mounts)
	for i := range c.Mounts {
		c.Mounts[i].Writable = false
	}
	given := c.Environment
	c.Environment = func(ctx context.Context) ([]string, error) {
		all, err := given(ctx)
		return append(all, more...), err
	}
	box, err := l.machine.Open(ctx, c)
	if err != nil {
		return err
	}
	defer box.Close()
	p, err := box.Start(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	_ = p.Stdin().Close()
	said := l.printed(inside{p})
	switch exit := stdio.Exit(p.Wait()); {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", strings.Join(command[:2], " "), context.Cause(ctx))
	case exit.Code != 0:
		return fmt.Errorf("%s: %s: %s%s", strings.Join(command[:2], " "), exit, complaint(said), l.advice(said))
	}
	return nil
}

// advice is what to do about an index that is not reached, since the profile holds the installer
// as it does the server, or whose certificate is of an authority that only this machine's own
// settings know: a server has none of its user's variables.
func (l *launcher) advice(said []string) string {
	variable, index := "NODE_EXTRA_CA_CERTS", "registry.npmjs.org"
	if l.runner.Tool == "uvx" {
		variable, index = "SSL_CERT_FILE", "pypi.org and files.pythonhosted.org"
	}
	unreached := regexp.MustCompile(`403 FORBIDDEN|EAI_AGAIN|ENOTFOUND|ECONNREFUSED|DNS ERROR|TUNNEL`)
	for _, line := range said {
		line = strings.ToUpper(line)
		if strings.Contains(line, "CERT") && (strings.Contains(line, "SELF") || strings.Contains(line, "ISSUER") || strings.Contains(line, "VERIFY")) {
			return ": name the file with the certificate of your authority in its environment, " + variable
		}
		if l.config.Network != sandbox.Host && unreached.MatchString(line) {
			return ": the permission profile holds the installer, too: add the index, " + index + " or your own, to its allow_host, or run a program that is installed"
		}
	}
	return ""
}

// complaint is what an installer's last lines say of its failure, in one line.
func complaint(said []string) string {
	const most = 300
	var lines []string
	for _, line := range said {
		// npm writes "npm error", and before its version 10 "npm ERR!". Where its log is says nothing.
		fault := strings.Contains(strings.ToLower(line), "error") || strings.Contains(line, "ERR!")
		if fault && !strings.Contains(line, "complete log") && !strings.HasSuffix(line, "-debug-0.log") {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		lines = said[max(0, len(said)-1):]
	}
	return edge.Cut(edge.Clean(strings.Join(lines, "; ")), most)
}

// starter starts a workload, in sandboxes or in containers.
type starter interface {
	stdio.Starter
	runsAs() []string // in place of the given command; nil for that
	pending() bool    // whether the next start has to wait for something to be fetched
	collect(edge.Emitter)
	halt() // nothing begins any more
	close()
}

// boxed is a bridge to a server in sandboxes, which end with it.
type boxed struct {
	*stdio.Bridge
	launcher starter
	ports    *published // nil for none
}

// Introduction is backend.OverLines.Introduction.
func (b *boxed) Introduction() time.Duration {
	if b.launcher.pending() {
		return max(firstStart, b.Bridge.Introduction())
	}
	return b.Bridge.Introduction()
}

// RunAs is the command that is run in place of the one that was given; nil where that is
// run, or nothing is known yet.
func (b *boxed) RunAs() []string { return b.launcher.runsAs() }

// Collect counts what the bridge does, and what goes out of its sandboxes.
func (b *boxed) Collect(m edge.Emitter) {
	b.Bridge.Collect(m)
	b.launcher.collect(m)
}

func (b *boxed) Close() error {
	b.launcher.halt()
	b.ports.close()
	err := b.Bridge.Close()
	b.launcher.close()
	return err
}

// web is a server in a sandbox that speaks HTTP.
type web struct {
	*stdio.HTTP
	launcher starter
	ports    *published // nil for none
}

// RunAs is as that of a boxed.
func (w *web) RunAs() []string { return w.launcher.runsAs() }

// Collect is as that of a boxed.
func (w *web) Collect(m edge.Emitter) {
	w.HTTP.Collect(m)
	w.launcher.collect(m)
}

func (w *web) Close() error {
	w.launcher.halt()
	w.ports.close()
	err := w.HTTP.Close()
	w.launcher.close()
	return err
}
