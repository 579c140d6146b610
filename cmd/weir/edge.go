package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/local"
	"github.com/weir-edge/weir/cmd/weir/secrets"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/demo"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
)

// serve serves what config describes, or backends that the command line named,
// or the demo when there is neither, until a signal ends it.
func (a *app) serve(ctx context.Context, s serve.Settings, config []string, backends []source.PlainBackend, pprof bool) error {
	a.unhurried(&s)
	log := newLog(a.err, s)

	// Signals count from the first moment on: none ends a process that begins otherwise than
	// one that serves.
	incoming, forget := signals(len(config) == 0) // else it has the configuration read again
	defer forget()
	ending, stop := draining(ctx, log, s.DrainTimeout, incoming, a.exit)
	defer stop()
	serving := make(chan struct{})
	begun := sync.OnceFunc(func() { close(serving) })
	defer begun()
	go a.endStart(ending, serving, log)
	hangups, rotated := make(chan os.Signal, 1), make(chan os.Signal, 1)
	notifyReopen(rotated)
	if len(config) > 0 {
		notifyHangup(hangups)
		defer signal.Stop(hangups)
	}

	// 1. What to serve.
	var opened *source.Result
	switch {
	case len(backends) > 0:
		opened = source.OpenPlain(plainOf(backends), source.Webhooks(s.WebhookConfig...), source.LocalRateLimits(s.LocalRateLimits))
	case len(config) == 0:
		backend, err := demo.Start("")
		if err != nil {
			return err
		}
		defer backend.Close()
		opened = source.OpenDefaultWith(backend.URL(), s.WebhookConfig...)
	default:
		opened = source.OpenAll(config, source.Webhooks(s.WebhookConfig...), source.LocalRateLimits(s.LocalRateLimits), source.AllowWorkloads(s.AllowWorkloads...))
	}
	if err := a.refuse(opened); err != nil {
		return err
	}
	remark(log, opened)

	// 2. The edge, which now holds its addresses.
	options, end := startsLocals(s)
	defer end()
	options = append(options, a.edgeOptions()...)
	secrets, err := secrets.Searched(ctx, s.SecretsDir, a.environ)
	if err != nil {
		return err
	}
	options = append(options, serve.WithSecrets(secrets))
	if pprof {
		options = append(options, serve.WithPprof())
	}
	var running *serve.Edge
	var modules atomic.Pointer[[]string] // that the plan names
	modules.Store(modulesOf(opened.Plan))
	if len(config) > 0 {
		options = append(options, serve.WithReload(func() error {
			plan, err := reload(log, s, config, running)
			if err == nil {
				modules.Store(modulesOf(plan))
			}
			return err
		}))
	}
	running, err = serve.New(s, opened.Plan, log, options...)
	if err != nil {
		return err
	}
	switch {
	case len(backends) > 0:
		welcome(a.err, s, running.Addr(), backends)
		secrets, err := secretsOf(opened.Set, s.SecretsDir, a.environ)
		if err != nil {
			return err
		}
		var looking sync.WaitGroup
		defer looking.Wait()
		ctx, done := context.WithCancel(ctx)
		defer done()
		looking.Go(func() { a.lookAt(ctx, opened, s, secrets) })
	case len(config) == 0:
		greeting(a.err, s, running.Addr())
	}

	// 3. Until a signal.
	defer reopening(rotated, running.ReopenLogs)()
	if len(config) > 0 {
		unwatch, err := watch(log, hangups, slices.Concat(config, s.WebhookConfig), func() []string { return *modules.Load() }, func() { _ = running.ReloadNow() }) // it logs its error and keeps it
		if err != nil {
			return err
		}
		defer unwatch()
	}
	begun()
	if ending.Err() != nil { // before it served: one that it was to take the place of goes on
		log.Info("ended")
		return nil
	}
	if err := running.Serve(ending); err != nil {
		return fmt.Errorf("the edge ended: %w", err)
	}
	log.Info("ended")
	return nil
}

// startEnds is how long a start may go on after a signal.
const startEnds = 2 * time.Second

// endStart ends the process where a start goes on that was to end: it may wait for a file, or
// for the process before, for long.
func (a *app) endStart(ending context.Context, serving <-chan struct{}, log *slog.Logger) {
	select {
	case <-serving:
		return
	case <-ending.Done():
	}
	select {
	case <-serving:
	case <-time.After(startEnds):
		log.Info("ended before it served")
		by := signaled{syscall.SIGTERM}
		_ = errors.As(context.Cause(ending), &by) // else whoever called ended it
		a.exit(cli.ExitSignal + signalNumber(by.Signal))
	}
}

// edgeOptions are those of every edge: its version, and passwords of the environment.
func (a *app) edgeOptions() []serve.Option {
	sentinelUser, _ := lookup(a.environ, sentinelUserVariable)
	options := []serve.Option{
		serve.WithVersion(thisBuild().Version), serve.WithLogins(a.openLogin),
		serve.WithStorePassword(a.secret(storePasswordVariable)), serve.WithEmbeddingKey(a.secret(embeddingKeyVariable)),
		serve.WithSentinelUser(sentinelUser, a.secret(sentinelPasswordVariable)),
	}
	if a.said != nil {
		options = append(options, serve.WithCollector(a.said))
	}
	return options
}

// secret is that of a variable of the environment, "" for none.
func (a *app) secret(variable string) edge.Secret {
	value, _ := lookup(a.environ, variable)
	return edge.Secret(value).Trimmed()
}

// remark logs the findings about a set.
func remark(log *slog.Logger, r *source.Result) {
	for _, f := range r.Findings {
		switch f.Severity {
		case compile.Error:
			log.Error(f.String())
		case compile.Warning:
			log.Warn(f.String())
		default:
			log.Info(f.String())
		}
	}
}

// modulesOf are the files of modules that a plan names.
func modulesOf(plan *compile.Plan) *[]string {
	var files []string
	for _, s := range plan.Servers {
		for _, f := range s.Filters {
			if f.Path != "" && !slices.Contains(files, f.Path) {
				files = append(files, f.Path)
			}
		}
	}
	return &files
}

// reload reads the configuration again and makes the edge serve it. A set with
// errors changes nothing.
func reload(log *slog.Logger, s serve.Settings, config []string, running *serve.Edge) (*compile.Plan, error) {
	r := source.OpenAll(config, source.Webhooks(s.WebhookConfig...), source.LocalRateLimits(s.LocalRateLimits), source.AllowWorkloads(s.AllowWorkloads...))
	remark(log, r)
	if err := r.Err(); err != nil {
		var text strings.Builder
		if renderErr := r.Render(&text); renderErr != nil {
			return nil, renderErr
		}
		return nil, errors.New(strings.TrimSpace(text.String()))
	}
	return r.Plan, running.Reload(r.Plan)
}

// refuse prints why a set cannot be served; nil when it can.
func (a *app) refuse(r *source.Result) error {
	if r.Err() == nil {
		return nil
	}
	if err := r.Render(a.err); err != nil {
		return err
	}
	return cli.Said(exitFault)
}

// startsLocals are the options with which an edge starts the local servers that the settings
// allow; end is called when it has ended.
func startsLocals(s serve.Settings) (options []serve.Option, end func()) {
	if len(s.AllowWorkloads) == 0 {
		return nil, func() {}
	}
	l := local.New(s)
	return []serve.Option{serve.WithWorkloads(l.Start)}, l.Close
}
