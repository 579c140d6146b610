package workloads

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/workload"
)

// Times that commands wait unless they are told.
const (
	StartWait = time.Minute
	stopWait  = 30 * time.Second
)

// removed is how a workload is that is no more.
const removed workload.State = "removed"

// severalHelp is what all commands say that act on workloads.
const severalHelp = `With several names, --all or --group all of them are tried, and the exit code is that
of the gravest failure. It is 6 when there is no such workload, unless --ignore-missing
is given. With --format json a line with an object is printed for each workload that
it worked for, and one on standard error for each error.`

func (a *Commands) Start() *cobra.Command {
	return a.starting("start", "Start workloads that do not run",
		`Start workloads that do not run, and wait until each has introduced itself or failed.
One that waits for a login (unauthenticated) is logged in anew; where one waits for the
password of your secrets, you are asked for it. They are started again
with the manager, until they are stopped.`, workload.Running, workload.Manager.Start)
}

func (a *Commands) Restart() *cobra.Command {
	return a.starting("restart", "Stop workloads and start them again",
		`Stop workloads and start them again, and wait until each has introduced itself or
failed. Sessions of clients that have some end; the URLs stay.`, "", workload.Manager.Restart)
}

// starting makes a command that starts workloads: it need not be done to those that are in a
// state already.
func (a *Commands) starting(name, short, long string, already workload.State, do func(workload.Manager, context.Context, string, time.Duration, func(workload.Event)) error) *cobra.Command {
	var s selection
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   name + " [NAME]...",
		Short: short,
		Long: long + `

` + severalHelp + `

Exit codes: 42 its image cannot be built, 43 it cannot be had, 44 the server ended or did
not introduce itself in time, 45 somebody has to log in, 8 and 9 it may not run as it was
asked for.`,
		Example: "  weir " + name + " files\n  weir " + name + " files search --wait 5m\n  weir " + name + " --group work\n  weir " + name + " --all --format json",
	}
	s.add(a, cmd)
	cmd.Flags().DurationVar(&wait, "wait", StartWait, "`DURATION` that each may take until it has introduced itself")
	cli.MustRegister(cmd, "wait", nil)
	cli.AddFormat(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		if wait <= 0 {
			return cli.Usagef("--wait %s: give a duration such as 60s", wait)
		}
		var asking sync.Mutex // there is one user, one terminal, and one port for callbacks
		var asked bool        // for the password
		var handed error
		return a.act(cmd, &s, names, already, func(ctx context.Context, m workload.Manager, name string, told func(workload.Event)) error {
			err := do(m, ctx, name, wait, told)
			var e *workload.Error
			if errors.As(err, &e) && e.Code == workload.CodeLocked && a.Unlock != nil {
				asking.Lock()
				if !asked {
					asked, handed = true, a.Unlock(ctx)
				}
				asking.Unlock()
				if handed == nil {
					err = m.Start(ctx, name, wait, told)
				} else if errors.Is(handed, secret.ErrPassword) {
					return handed
				} // else nobody knows it, and the workload waits for it
			}
			if !errors.As(err, &e) || e.Code != workload.CodeLogin || a.LogIn == nil {
				return err
			}
			d, failed := m.Inspect(ctx, name)
			if failed != nil {
				return failed
			}
			asking.Lock()
			able, failed := a.LogIn(ctx, cmd, []byte(d.Manifest))
			asking.Unlock()
			switch {
			case failed != nil:
				return failed
			case !able:
				return err
			}
			return m.Start(ctx, name, wait, told)
		})
	}
	return cmd
}

func (a *Commands) Stop() *cobra.Command {
	var s selection
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "stop [NAME]...",
		Short: "Stop workloads",
		Long: `Stop workloads. Calls under way are not waited for: those in sessions fail at once.
Processes are asked to end, for up to --timeout; what is left is killed. They stay stopped, also
after the manager was started again, until "weir start".

` + severalHelp,
		Example: `  weir stop files
  weir stop files search --timeout 5s
  weir stop --group work
  weir stop --all`,
	}
	s.add(a, cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", stopWait, "`DURATION` after which processes are killed")
	cli.MustRegister(cmd, "timeout", nil)
	cli.AddFormat(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		if timeout < 0 {
			return cli.Usagef("--timeout %s: give a duration such as 30s, or 0 to kill at once", timeout)
		}
		// Also for one that is stopped: that may not be kept yet.
		return a.act(cmd, &s, names, "", func(ctx context.Context, m workload.Manager, name string, told func(workload.Event)) error {
			return m.Stop(ctx, name, max(timeout, 1), told) // 0 is the manager's usual time
		})
	}
	return cmd
}

func (a *Commands) Remove() *cobra.Command {
	var s selection
	var o workload.RemoveOptions
	cmd := &cobra.Command{
		Use:     "rm [NAME]...",
		Aliases: []string{"remove"},
		Short:   "Stop workloads and forget them",
		Long: `Stop workloads and forget them: their manifests and the home directories of their
servers go, and so do images that were built for them (npx://, uvx://, go://) and that no
other workload uses, unless --keep-image is given. Secrets that its flags gave, such as
NAME/bearer-token, stay until "weir secret delete". "weir export NAME" keeps what is
needed to run one again. --force also removes one that cannot be stopped or looked at, such as
one in error.

` + severalHelp,
		Example: `  weir rm files
  weir rm files search --ignore-missing
  weir rm --force broken
  weir rm --keep-image everything
  weir rm --group work`,
	}
	s.add(a, cmd)
	cmd.Flags().BoolVar(&o.Force, "force", false, "also remove workloads that cannot be stopped in order")
	cmd.Flags().BoolVar(&o.KeepImage, "keep-image", false, "leave images that were built for them")
	cli.AddFormat(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		return a.act(cmd, &s, names, "", func(ctx context.Context, m workload.Manager, name string, told func(workload.Event)) error {
			err := m.Remove(ctx, name, o, told)
			if err == nil {
				told(workload.Event{State: removed})
			}
			return err
		})
	}
	return cmd
}
