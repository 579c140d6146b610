// Package cli is what all commands of weir share: the process of a user (App), the errors
// that end a command and their exit codes (errors.go), what they say of it (failures.go), the
// flags that many of them have (flags.go), and what is shown while they wait (steps.go).
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weir-edge/weir/edge/workload"
)

// App is the process of a user: its streams, its environment, and what others need of it.
type App struct {
	In       io.Reader
	Out, Err io.Writer
	Environ  []string

	// Manager finds the manager of the user's workloads. Where none runs the error is
	// workload.ErrNoManager, unless start says to start one.
	Manager func(ctx context.Context, start bool) (workload.Manager, error)
	// Root makes the tree of all commands, for a command that ends as another one.
	Root func() *cobra.Command
}

// Lookup finds a variable of the environment.
func (a *App) Lookup(name string) (value string, ok bool) { return Lookup(a.Environ, name) }

// paths are the directories of what is kept for the user.
func (a *App) Paths() (workload.Paths, error) {
	return workload.PathsOf(func(name string) (string, bool) { return Lookup(a.Environ, name) })
}

// Terminal reports whether a stream is a terminal.
func Terminal(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// Lookup finds a variable; the last one of a name counts.
func Lookup(environ []string, name string) (value string, ok bool) {
	for _, pair := range environ {
		if n, v, _ := strings.Cut(pair, "="); n == name {
			value, ok = v, true
		}
	}
	return value, ok
}

// UntilSignal is a context of a command that ends when the user interrupts it, SIGTERM comes, or
// its terminal closes, unless that is ignored (nohup); a second signal ends the process.
func UntilSignal(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(cmd.Context())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		defer signal.Stop(signals)
		select {
		case s := <-signals:
			switch s {
			case syscall.SIGTERM:
				end(errTerminated)
			case syscall.SIGHUP:
				end(errHungUp)
			default:
				end(ErrInterrupted)
			}
		case <-ctx.Done():
		}
	}()
	return ctx, func() { end(nil) }
}

// Interrupted replaces an error that a signal caused by ErrInterrupted.
func Interrupted(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case errors.Is(context.Cause(ctx), ErrInterrupted):
		return context.Cause(ctx)
	}
	return ErrInterrupted
}
