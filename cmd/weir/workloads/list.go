package workloads

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/apps"
	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/workload"
)

// which says what a list shows.
type which struct {
	all    bool
	group  string
	labels []string // K=V; all of them hold
}

func (a *Commands) List() *cobra.Command {
	var w which
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the workloads: MCP servers that Weir keeps",
		Long: `List the workloads, the MCP servers that Weir starts or keeps addresses for: the
name of each, its server, what it does at the moment, the URL for clients, how much
its sandbox holds (bwrap, landlock or none; - for a server elsewhere), its group,
and its age.

Those that run are shown, those that are starting, those that do not answer and are
started again (unhealthy), and those whose credential is tried again
(auth_retrying). What is not shown is counted on standard error, with the names of
those that failed; -a shows everything.

--format json prints an array for programs, --format mcpservers the part of an MCP
client's configuration that names the servers. While no manager runs, nobody knows
more than the names of the workloads, and their status is unknown.`,
		Example: `  weir list
  weir list -a
  weir list --group work --label team=blue
  weir list --format mcpservers > mcp.json
  weir list -a --format json`,
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkGroup(cmd); err != nil {
				return err
			}
			for _, label := range w.labels {
				if name, _, ok := strings.Cut(label, "="); !ok || name == "" {
					return cli.Usagef("--label %s: write NAME=VALUE, such as team=blue", cli.Brief(label))
				}
			}
			ctx, stop := cli.UntilSignal(cmd)
			defer stop()
			m, err := a.Manager(ctx, false)
			if errors.Is(err, workload.ErrNoManager) {
				return a.listAsleep(cmd, w)
			}
			if err != nil {
				return cli.Interrupted(ctx, err)
			}
			all, err := m.List(ctx)
			if err != nil {
				return cli.Interrupted(ctx, err)
			}
			if w.group != "" {
				if err := KnownGroup(ctx, m, w.group); err != nil {
					return cli.Interrupted(ctx, err)
				}
			}
			shown, hidden := w.of(all)
			if err := a.showWorkloads(cli.FormatOf(cmd), shown, len(all) > 0); err != nil {
				return err
			}
			switch {
			case len(hidden) > 0:
				fmt.Fprintln(a.Err, notShown(hidden))
			case len(shown) == 0 && len(all) > 0:
				fmt.Fprintln(a.Err, "No workload is in that group and has these labels: `weir list -a` shows all.")
			}
			if c, ok := m.(*workload.Client); ok && c.Hello.Watcher == "" {
				fmt.Fprintln(a.Err, "The manager has no watcher: when it ends, the next command that needs it starts it again.")
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVarP(&w.all, "all", "a", false, "also show workloads that do not run")
	f.StringVar(&w.group, "group", "", "show the workloads of group `GROUP` alone")
	f.StringArrayVar(&w.labels, "label", nil, "show those with a label alone, `NAME=VALUE`; may be repeated, and then all have to hold")
	cli.MustRegister(cmd, "label", nil)
	a.CompleteGroups(cmd, "group")
	cli.AddFormat(cmd, "text", "json", "mcpservers")
	return cmd
}

// listAsleep lists what is kept while there is no manager to ask.
func (a *Commands) listAsleep(cmd *cobra.Command, w which) error {
	names, err := a.Kept()
	if err != nil {
		return err
	}
	if len(names) > 0 && (w.group != "" || len(w.labels) > 0) {
		return asleep() // who knows of groups and labels does not run
	}
	var all []workload.Status
	for _, name := range names {
		all = append(all, workload.Status{Name: name, Status: workload.Unknown})
	}
	if err := a.showWorkloads(cli.FormatOf(cmd), all, false); err != nil {
		return err
	}
	if len(names) > 0 {
		fmt.Fprintln(a.Err, "No manager runs, and so nobody knows how they are: `weir up --detach` starts it, and the workloads with it.")
	}
	return nil
}

// lively are the states of workloads that run, or are being brought to it.
var lively = []workload.State{workload.Starting, workload.Running, workload.Unhealthy, workload.AuthRetrying}

// of divides workloads into those that a list shows, and those that it would show with -a.
func (w which) of(all []workload.Status) (shown, hidden []workload.Status) {
	for _, one := range all {
		if w.group != "" && one.Group != w.group || !w.labelled(one.Labels) {
			continue
		}
		if w.all || slices.Contains(lively, one.Status) {
			shown = append(shown, one)
		} else {
			hidden = append(hidden, one)
		}
	}
	return shown, hidden
}

func (w which) labelled(has map[string]string) bool {
	return !slices.ContainsFunc(w.labels, func(label string) bool {
		name, value, _ := strings.Cut(label, "=")
		is, there := has[name]
		return !there || is != value
	})
}

// failed reports whether somebody has to do something about a workload.
func failed(s workload.State) bool {
	return s == workload.Failed || s == workload.Unauthenticated || s == workload.PolicyStopped
}

// notShown says how many workloads a list does not show, and which of them failed.
func notShown(hidden []workload.Status) string {
	text := fmt.Sprintf("%d workloads are not shown", len(hidden))
	if len(hidden) == 1 {
		text = "1 workload is not shown"
	}
	const most = 5
	var names []string
	for _, w := range hidden {
		if failed(w.Status) {
			names = append(names, w.Name)
		}
	}
	switch n := len(names); {
	case n > most:
		text += fmt.Sprintf(", of which %d failed (%s and others)", n, strings.Join(names[:most], ", "))
	case n > 0:
		text += fmt.Sprintf(", of which %d failed (%s)", n, strings.Join(names, ", "))
	}
	return text + ": -a shows all."
}

// showWorkloads prints workloads. more says that there are some beside them.
func (a *Commands) showWorkloads(format string, all []workload.Status, more bool) error {
	switch format {
	case "json":
		if all == nil {
			all = []workload.Status{}
		}
		return cli.PrintJSON(a.Out, all, "  ")
	case "mcpservers":
		text, err := apps.Document(mcpServers(all))
		if err != nil {
			return err
		}
		_, err = a.Out.Write(text)
		return err
	}
	if len(all) == 0 {
		if !more {
			fmt.Fprintln(a.Err, "There are no workloads: `weir run -- COMMAND` makes one.")
		}
		return nil
	}
	rows := [][]string{{"NAME", "SERVER", "STATUS", "URL", "SANDBOX", "GROUP", "AGE"}}
	now := time.Now()
	for _, w := range all {
		row := []string{w.Name, edge.Cut(show.FirstLine(w.Package), 48), string(w.Status), w.URL, w.Sandbox, w.Group, age(w.CreatedAt, now)}
		for i := range row {
			if row[i] = show.FirstLine(row[i]); row[i] == "" {
				row[i] = "-"
			}
		}
		rows = append(rows, row)
	}
	return show.Table(a.Out, rows)
}

// mcpServers are workloads for the configuration of a client. One without a URL is left out.
func mcpServers(all []workload.Status) (servers []apps.Server) {
	for _, w := range all {
		s := apps.Server{Name: w.Name, URL: w.URL, Type: "streamable-http"}
		if strings.HasSuffix(w.URL, "/sse") {
			s.Type = "sse"
		}
		if w.URL != "" {
			servers = append(servers, s)
		}
	}
	return servers
}

// age is how long before now a moment was, in the largest unit that says enough; "" for never.
func age(then, now time.Time) string {
	if then.IsZero() {
		return ""
	}
	switch d := max(now.Sub(then), 0); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// completeWithin is how long a completion may take: then it is none.
const completeWithin = 3 * time.Second

// Complete completes the names of workloads; many says that a command takes several.
func (a *Commands) Complete(many bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if !many && len(given) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, done := context.WithTimeout(cmd.Context(), completeWithin)
		defer done()
		var names []string
		if m, err := a.Manager(ctx, false); err == nil {
			all, _ := m.List(ctx) // without a list there is nothing to complete
			names = Names(all)
		} else {
			names, _ = a.Kept()
		}
		return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(given, name) || !strings.HasPrefix(name, word) }), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteGroups completes the value of a flag that names a group.
func (a *Commands) CompleteGroups(cmd *cobra.Command, flag string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, a.groupNames); err != nil {
		panic(err) // the flag was added in the line before
	}
}

// groupNames completes the names of groups.
func (a *Commands) groupNames(cmd *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, done := context.WithTimeout(cmd.Context(), completeWithin)
	defer done()
	names := []string{}
	if m, err := a.Manager(ctx, false); err == nil {
		groups, _ := m.Groups(ctx) // without them there is nothing to complete
		for _, g := range groups {
			if strings.HasPrefix(g.Name, word) {
				names = append(names, g.Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
