package workloads

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge/workload"
)

func (a *Commands) Inspect() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect NAME",
		Short: "Print everything about a workload as JSON",
		Long: `Print everything that is known about a workload as a JSON object: how it is, the
command as given and as run, its manifest, its last failure and the last lines of its
standard error, and what its sandbox does not hold. Secrets are there by name only, and
so are variables and headers whose names read like those of secrets.

"weir status NAME" says the same to people.`,
		Example: `  weir inspect files
  weir inspect files > files.json`,
		Args:              One,
		ValidArgsFunction: a.Complete(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := cli.UntilSignal(cmd)
			defer stop()
			d, err := a.Detail(ctx, args[0])
			if err != nil {
				return cli.Interrupted(ctx, err)
			}
			d.Manifest = workload.Shown([]byte(d.Manifest))
			return cli.PrintJSON(a.Out, d, "  ")
		},
	}
}

// One wants the name of one workload.
func One(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return cli.Usagef("name a workload: `weir list -a` shows them")
	case 1:
		return CheckName(args[0])
	}
	return cli.Usagef("%q is one word too many: one workload is enough", args[1])
}

// Detail asks for everything about a workload. It starts no manager.
func (a *Commands) Detail(ctx context.Context, name string) (*workload.Detail, error) {
	m, err := a.lookingFor(ctx, name)
	if err != nil {
		return nil, err
	}
	d, err := m.Inspect(ctx, name)
	return d, a.nearest(ctx, m, name, err)
}

// lookingFor finds the manager to ask about one workload. Where none runs the error says
// whether there is such a workload.
func (a *Commands) lookingFor(ctx context.Context, name string) (workload.Manager, error) {
	m, err := a.looking(ctx)
	if err == nil {
		return m, nil
	}
	var known *workload.Error
	if kept, failed := a.Kept(); failed == nil && errors.As(err, &known) && !slices.Contains(kept, name) {
		return nil, Missing("workload", name, kept, "`weir run -- COMMAND` makes one")
	}
	return nil, err
}

// nearest is an error of a manager about a workload, with the nearest name where it knows none
// of this one.
func (a *Commands) nearest(ctx context.Context, m workload.Manager, name string, err error) error {
	var known *workload.Error
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case !errors.As(err, &known):
		return &workload.Error{Code: workload.CodeFault, Message: err.Error(), Next: "`weir list -a` shows whether the manager is there"}
	case known.Code != workload.CodeNotFound:
		return err
	}
	all, failed := m.List(ctx)
	if failed != nil || slices.Contains(Names(all), name) {
		return err
	}
	return NoWorkload(name, all)
}

// StatusOf is "weir status NAME".
func (a *Commands) StatusOf(cmd *cobra.Command, name string, asJSON, judge bool) error {
	var stray []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"json", "format", "exit-code"}, f.Name) {
			stray = append(stray, "--"+f.Name)
		}
	})
	if len(stray) > 0 {
		return cli.Usagef("%s is about an edge, and %q names a workload: leave one out", strings.Join(stray, ", "), name)
	}
	ctx, stop := cli.UntilSignal(cmd)
	defer stop()
	d, err := a.Detail(ctx, name)
	if err != nil {
		return cli.Interrupted(ctx, err)
	}
	if asJSON {
		err = cli.PrintJSON(a.Out, d.Status, "  ")
	} else {
		err = a.showDetail(a.Out, d, time.Now())
	}
	if err == nil && judge && d.Status.Status != workload.Running {
		err = cli.Said(cli.ExitFault)
	}
	return err
}

// showDetail says how a workload is: what is wrong and what to do about it first.
func (a *Commands) showDetail(out io.Writer, d *workload.Detail, now time.Time) error {
	state := string(d.Status.Status)
	if why := d.StatusContext; why != "" {
		state += " (" + why + ")"
	}
	fmt.Fprintf(out, "%s: %s\n", a.Paint(out, cli.Bold, show.FirstLine(d.Name)), show.FirstLine(state))
	if d.Failure != "" {
		fmt.Fprintf(out, "  %s %s\n", a.Paint(out, cli.Wrong, "failure:"), show.FirstLine(d.Failure))
	}
	if d.Next != "" {
		fmt.Fprintf(out, "  next:    %s\n", a.Paint(out, cli.Advice, show.FirstLine(cli.Advised(d.Next))))
	}
	fmt.Fprintln(out)
	if err := show.Table(out, rowsOf(d, now)); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		lines []string
	}{
		{"What the sandbox does not hold", d.Notes},
		{"What clients do not see of its tools, and rules that name none", d.Withheld},
		{"The last lines of its standard error", d.Stderr},
	} {
		if len(part.lines) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n%s:\n", part.title)
		for _, line := range part.lines {
			fmt.Fprintf(out, "  %s\n", show.FirstLine(line))
		}
	}
	return nil
}

// rowsOf is what there is to say of a workload beside what is wrong with it.
func rowsOf(d *workload.Detail, now time.Time) (rows [][]string) {
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, show.FirstLine(value)})
		}
	}
	if len(d.Command) > 0 {
		add("server", strings.Join(d.Command, " "))
	} else {
		add("server", d.Package)
	}
	add("run as", strings.Join(d.RunAs, " "))
	add("image", d.Image)
	add("verified", d.Verified)
	add("URL", d.URL)
	add("wish", string(d.Wish))
	add("group", d.Group)
	add("sandbox", sandboxOf(&d.Status))
	if d.Processes > 0 {
		text := fmt.Sprint(d.Processes)
		if d.RSSBytes > 0 {
			text += fmt.Sprintf(", %d MiB", (d.RSSBytes+1<<20-1)>>20)
		}
		add("processes", text)
	}
	if d.Restarts > 0 {
		add("restarts", fmt.Sprint(d.Restarts))
	}
	add("tools", strings.Join(d.Tools, ", "))
	for _, name := range slices.Sorted(maps.Keys(d.Labels)) {
		add("label", name+"="+d.Labels[name])
	}
	if d.StartedAt != nil {
		add("started", age(*d.StartedAt, now)+" ago")
	}
	if !d.CreatedAt.IsZero() {
		add("made", age(d.CreatedAt, now)+" ago")
	}
	return rows
}

// sandboxOf says what a workload runs in; "" for one that runs elsewhere.
func sandboxOf(s *workload.Status) string {
	switch {
	case s.Sandbox == "":
		return ""
	case s.Isolation:
		return s.Sandbox + ", its network is isolated"
	}
	return s.Sandbox + ", its network is not isolated"
}
