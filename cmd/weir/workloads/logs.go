package workloads

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/workload"
)

func (a *Commands) Logs() *cobra.Command {
	var o workload.LogOptions
	var since string
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Show the log of a workload",
		Long: `Show the log of a workload in the order of time: what its server wrote to standard
error, what happened to it (event), and with --proxy what the edge before it says
alone. Each line is the time, where it comes from, and the text; --format json prints
an object for each. On a terminal characters that would steer it are left out.

With -f the command goes on with what comes, until Ctrl-C. Logs are kept up to a
size for each workload, and go with it; "weir logs prune" removes what is left of
workloads that are gone.`,
		Example: `  weir logs files
  weir logs files -f --tail 20
  weir logs files --since 10m
  weir logs files --since 2026-01-02T15:04:05Z --proxy
  weir logs prune`,
		Args:              One,
		ValidArgsFunction: a.Complete(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.Since, err = moment(since, time.Now()); err != nil {
				return err
			}
			none := cmd.Flags().Changed("tail") && o.Tail == 0
			if o.Tail < 0 || none && !o.Follow {
				return cli.Usagef("--tail %d: give the number of lines, such as 20, or 0 with -f for what comes alone", o.Tail)
			}
			if none {
				o.Since = time.Now()
			}
			return a.showLog(cmd, args[0], o)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVarP(&o.Follow, "follow", "f", false, "go on with what comes, until Ctrl-C")
	f.StringVar(&since, "since", "", "show what came after a `TIME`: a duration before now such as 10m, or 2026-01-02T15:04:05Z")
	f.IntVar(&o.Tail, "tail", 0, "show the last `LINES` alone, with -f also 0 (default all)")
	f.BoolVarP(&o.Proxy, "proxy", "p", false, "show the lines of the edge before the server alone")
	cli.MustRegister(cmd, "since", nil)
	cli.MustRegister(cmd, "tail", nil)
	cli.AddFormat(cmd, "text", "json")
	cmd.AddCommand(a.logsPruneCommand())
	return cmd
}

// moment reads the time that --since gives; "" is the zero time.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, cli.Usagef("--since %s: give a duration such as 10m, or a time such as 2026-01-02T15:04:05Z", cli.Brief(text))
	}
	return at, nil
}

// showLog prints lines of the log of a workload.
func (a *Commands) showLog(cmd *cobra.Command, name string, o workload.LogOptions) error {
	ctx, stop := cli.UntilSignal(cmd)
	defer stop()
	m, err := a.lookingFor(ctx, name)
	if err != nil {
		return cli.Interrupted(ctx, err)
	}
	out := bufio.NewWriter(a.Out)
	write := func(l workload.Line) error { return a.writeText(out, l) }
	if cli.WantsJSON(cmd) {
		write = func(l workload.Line) error { return cli.PrintJSON(out, l, "") }
	}
	shown, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = m.Logs(shown, name, o, func(l workload.Line) {
		err := write(l)
		if err == nil && o.Follow {
			err = out.Flush()
		}
		if err != nil {
			cancel(err)
		}
	})
	flushed := out.Flush()
	switch {
	case ctx.Err() != nil && o.Follow:
		return nil // that is how it ends
	case ctx.Err() != nil:
		return cli.Interrupted(ctx, ctx.Err())
	case shown.Err() != nil:
		return context.Cause(shown)
	case err != nil:
		return a.nearest(ctx, m, name, err)
	}
	return flushed
}

// writeText writes a line of a log for people.
func (a *Commands) writeText(out io.Writer, l workload.Line) error {
	text := strings.TrimRight(l.Text, "\n")
	at := l.Time.Format("2006-01-02T15:04:05.000Z07:00")
	if cli.Terminal(a.Out) {
		text = edge.Clean(text)
	}
	_, err := fmt.Fprintf(out, "%s %-6s %s\n", a.Paint(a.Out, cli.Dim, at), edge.Clean(l.Source), text)
	return err
}

func (a *Commands) logsPruneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the logs of workloads that are gone",
		Long: `Remove the logs that are left of workloads that are gone, and say how many files
that were and how many bytes they had. (The log of a workload that is called prune
is shown by "weir logs -- prune".)`,
		Example: `  weir logs prune
  weir logs prune --format json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.UntilSignal(cmd)
			defer stop()
			m, err := a.looking(ctx)
			if err != nil {
				return cli.Interrupted(ctx, err)
			}
			files, bytes, err := m.PruneLogs(ctx)
			if err != nil {
				return cli.Interrupted(ctx, err)
			}
			if cli.WantsJSON(cmd) {
				return cli.PrintJSON(a.Out, map[string]int64{"files": int64(files), "bytes": bytes}, "")
			}
			_, err = fmt.Fprintf(a.Out, "%d files removed, %d bytes\n", files, bytes)
			return err
		},
	}
	cli.AddFormat(cmd, "text", "json")
	return cmd
}
