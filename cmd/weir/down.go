package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/workload"
)

func (a *app) downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop all workloads and the manager that keeps them",
		Long: `Stop all workloads and the manager that keeps them. What is kept stays: "weir up"
starts the workloads again that were running.`,
		Example: `  weir down
  weir down && weir up --detach`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			paths, err := a.paths()
			if err != nil {
				return err
			}
			c, err := workload.Find(cmd.Context(), paths)
			if errors.Is(err, workload.ErrNoManager) {
				_, err := fmt.Fprintln(a.err, "no manager runs")
				return err
			}
			if err != nil {
				return err
			}
			defer c.Close()
			if c.Hello.Watcher == watcherSystemd {
				return a.systemctl(cmd.Context(), "stop", unitName)
			}
			return a.endManager(cmd.Context(), c, paths)
		},
	}
}

// endWithin is how long a manager may take to end.
const endWithin = 60 * time.Second

// endManager ends a manager, and returns when another one may begin.
func (a *app) endManager(ctx context.Context, c *workload.Client, paths workload.Paths) error {
	ctx, cancel := context.WithTimeoutCause(ctx, endWithin, fmt.Errorf("the manager has not ended within %s: it is process %d", endWithin, c.Hello.PID))
	defer cancel()
	err := c.Down(ctx, func(e workload.Event) {
		if e.Text != "" {
			fmt.Fprintln(a.err, edge.Clean(e.Text))
		}
	})
	for err == nil && workload.Managed(paths) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return err
}

// retire ends the manager that runs, so that another one takes its place. It reports true
// where the system has started that already.
func (a *app) retire(ctx context.Context, paths workload.Paths) (done bool, err error) {
	c, err := workload.Find(ctx, paths)
	var e *workload.Error
	switch {
	case errors.Is(err, workload.ErrNoManager):
		return false, nil
	case errors.As(err, &e) && c != nil: // of another version: to end is all that it is asked
	case err != nil:
		return false, err
	}
	defer c.Close()
	if c.Hello.Watcher == watcherSystemd {
		return true, a.systemctl(ctx, "restart", unitName)
	}
	err = a.endManager(ctx, c, paths)
	if err == nil && c.Hello.Watcher == watcherLaunchd { // which starts none again that has ended in order
		return true, launchctl(ctx, "kickstart")
	}
	return false, err
}

// launchctl asks the launchd of the user to do something with the manager.
func launchctl(ctx context.Context, verb string) error {
	out, err := exec.CommandContext(ctx, "launchctl", verb, fmt.Sprintf("gui/%d/%s", os.Getuid(), agentName)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("launchctl %s: %w: %s", verb, err, edge.Brief(strings.TrimSpace(string(out))))
	}
	return nil
}

// systemctl asks the systemd of the user.
func (a *app) systemctl(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "systemctl", append([]string{"--user"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl --user %s: %w: %s", args[0], err, edge.Brief(strings.TrimSpace(string(out))))
	}
	return nil
}
