package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/clients"
	"github.com/weir-edge/weir/cmd/weir/registries"
	"github.com/weir-edge/weir/cmd/weir/secrets"
	"github.com/weir-edge/weir/cmd/weir/workloads"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/workload"
)

// shared is this process as commands of other packages see it.
func (a *app) shared() *cli.App {
	return &cli.App{In: a.in, Out: a.out, Err: a.err, Environ: a.environ, Manager: a.manager, Root: a.command}
}

func (a *app) workloads() *workloads.Commands {
	return &workloads.Commands{App: a.shared(), LogIn: func(ctx context.Context, cmd *cobra.Command, manifest []byte) (bool, error) {
		if plan, _, err := workload.Check(manifest); err != nil || plan.Servers[0].Backends[0].Login == nil || !a.attended() {
			return false, nil
		}
		return true, a.logIn(ctx, cmd, manifest, nil)
	}, Unlock: a.secrets().HandOver, Follow: a.clients().FollowManager, Reach: a.reachInPassing}
}
func (a *app) secrets() *secrets.Commands {
	return &secrets.Commands{App: a.shared(), Password: &a.password}
}
func (a *app) clients() *clients.Commands {
	return &clients.Commands{App: a.shared(), Workloads: a.workloads}
}
func (a *app) registries() *registries.Commands {
	return &registries.Commands{App: a.shared(), Reach: a.reachInPassing}
}

// reachInPassing is what the settings of the process allow to requests of its own.
func (a *app) reachInPassing() (edge.Reach, error) {
	s, err := a.settingsInPassing()
	if err != nil {
		return edge.Reach{}, err
	}
	return s.Reach()
}

// What follows is what all commands share (package cli), by the short names that the commands
// of this package have for it.

const (
	exitOK    = cli.ExitOK
	exitFault = cli.ExitFault
	exitUsage = cli.ExitUsage
	exitTool  = cli.ExitTool
	exitStart = cli.ExitStart

	bold   = cli.Bold
	dim    = cli.Dim
	wrong  = cli.Wrong
	advice = cli.Advice
)

type (
	usageError = cli.UsageError
	outcome    = cli.Outcome
)

var errInterrupted = cli.ErrInterrupted

func (a *app) paths() (workload.Paths, error) { return a.shared().Paths() }
func (a *app) paint(out io.Writer, s cli.Style, text string) string {
	return a.shared().Paint(out, s, text)
}
func (a *app) steps(cmd *cobra.Command) *cli.Steps        { return a.shared().Steps(cmd) }
func (a *app) lookup(name string) (value string, ok bool) { return lookup(a.environ, name) }

func usagef(format string, args ...any) error                      { return cli.Usagef(format, args...) }
func brief(text string) string                                     { return cli.Brief(text) }
func lookup(environ []string, name string) (value string, ok bool) { return cli.Lookup(environ, name) }
func didYouMean(name string, known []string, otherwise string) string {
	return cli.DidYouMean(name, known, otherwise)
}
func mustRegister(cmd *cobra.Command, flag string, values []string) {
	cli.MustRegister(cmd, flag, values)
}
func noArgs(cmd *cobra.Command, args []string) error   { return cli.NoArgs(cmd, args) }
func interrupted(ctx context.Context, err error) error { return cli.Interrupted(ctx, err) }
func untilSignal(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	return cli.UntilSignal(cmd)
}
func terminal(stream any) bool                        { return cli.Terminal(stream) }
func wantsJSON(cmd *cobra.Command) bool               { return cli.WantsJSON(cmd) }
func formatOf(cmd *cobra.Command) string              { return cli.FormatOf(cmd) }
func addFormat(cmd *cobra.Command, formats ...string) { cli.AddFormat(cmd, formats...) }
func printJSON(out io.Writer, value any, indent string) error {
	return cli.PrintJSON(out, value, indent)
}
