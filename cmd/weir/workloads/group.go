package workloads

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/workload"
)

func (a *Commands) Group() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "group COMMAND",
		Short: "Make groups of workloads",
		Long: `Make groups of workloads, such as those of one project. A workload is in one group:
in that of "weir run --group", or in default, which is always there. list, start,
restart, stop and rm take --group.`,
		Example: `  weir group create work
  weir list --group work
  weir stop --group work
  weir group list`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			var known []string
			for _, c := range cmd.Commands() {
				known = append(known, c.Name())
			}
			return cli.Usagef("no such command %q%s", args[0], cli.DidYouMean(args[0], known, "`weir group --help` lists them"))
		},
	}
	cmd.AddCommand(a.groupCreateCommand(), a.groupListCommand(), a.groupRmCommand(), a.groupRunCommand())
	return cmd
}

// oneGroup wants the name of one group.
func oneGroup(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return cli.Usagef("name a group: `weir group list` shows them")
	case len(args) > 1:
		return cli.Usagef("%q is one word too many: one group is enough", args[1])
	case !workload.IsName(args[0]):
		return cli.Usagef("%s: use small letters, digits and -, at most 63, for the name of a group", cli.Brief(args[0]))
	}
	return nil
}

// completeGroup completes the argument of a command that names one group.
func (a *Commands) completeGroup(cmd *cobra.Command, given []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(given) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.groupNames(cmd, given, word)
}

func (a *Commands) groupCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an empty group",
		Long: `Make an empty group, for workloads that are made after it with "weir run --group".
It ends with 7 when there is one of this name.`,
		Example: `  weir group create work
  weir group create home --format json`,
		Args:              oneGroup,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := cli.UntilSignal(cmd)
			defer stop()
			m, err := a.Manager(ctx, true)
			if err == nil {
				err = m.CreateGroup(ctx, args[0])
			}
			if known := new(workload.Error); errors.As(err, &known) && known.Code == workload.CodeTaken && known.Next == "" {
				known.Next = "`weir group list` shows what there is"
			}
			if err != nil {
				return cli.Interrupted(ctx, err)
			}
			if cli.WantsJSON(cmd) {
				return cli.PrintJSON(a.Out, workload.Group{Name: args[0], Members: []string{}}, "")
			}
			_, err = fmt.Fprintf(a.Out, "%s: made\n", args[0])
			return err
		},
	}
	cli.AddFormat(cmd, "text", "json")
	return cmd
}

func (a *Commands) groupListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the groups and their workloads",
		Long: `List the groups, each with the names of its workloads. With --format json it is an
array of objects with name and members.`,
		Example: `  weir group list
  weir group list --format json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.UntilSignal(cmd)
			defer stop()
			m, err := a.looking(ctx)
			if err != nil {
				return cli.Interrupted(ctx, err)
			}
			groups, err := m.Groups(ctx)
			if err != nil {
				return cli.Interrupted(ctx, err)
			}
			if cli.WantsJSON(cmd) {
				if groups == nil {
					groups = []workload.Group{}
				}
				return cli.PrintJSON(a.Out, groups, "  ")
			}
			rows := [][]string{{"NAME", "WORKLOADS"}}
			for _, g := range groups {
				members := strings.Join(g.Members, ", ")
				if members == "" {
					members = "-"
				}
				rows = append(rows, []string{show.FirstLine(g.Name), show.FirstLine(members)})
			}
			return show.Table(a.Out, rows)
		},
	}
	cli.AddFormat(cmd, "text", "json")
	return cmd
}

func (a *Commands) groupRmCommand() *cobra.Command {
	var with, lenient bool
	cmd := &cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a group",
		Long: `Remove a group. Its workloads run on and move to the group default, unless
--with-workloads removes them too. The group default stays.`,
		Example: `  weir group rm work
  weir group rm work --with-workloads`,
		Args:              oneGroup,
		ValidArgsFunction: a.completeGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == defaultGroup {
				return cli.Usagef("the group %s is always there: `weir rm --group %s` removes its workloads", defaultGroup, defaultGroup)
			}
			ctx, stop := cli.UntilSignal(cmd)
			defer stop()
			err := a.removeGroup(ctx, cmd, args[0], with)
			var known *workload.Error
			switch missing := errors.As(err, &known) && known.Code == workload.CodeNotFound; {
			case missing && lenient:
				return nil
			case err != nil:
				return cli.Interrupted(ctx, err)
			case cli.WantsJSON(cmd):
				return cli.PrintJSON(a.Out, map[string]string{"name": args[0]}, "")
			}
			_, err = fmt.Fprintf(a.Out, "%s: removed\n", args[0])
			return err
		},
	}
	cmd.Flags().BoolVar(&with, "with-workloads", false, "remove the workloads of the group too")
	cmd.Flags().BoolVar(&lenient, "ignore-missing", false, "a name that no group has is no mistake")
	cli.AddFormat(cmd, "text", "json")
	return cmd
}

// removeGroup removes a group, and says each step.
func (a *Commands) removeGroup(ctx context.Context, cmd *cobra.Command, name string, with bool) error {
	m, err := a.looking(ctx)
	if err != nil {
		return err
	}
	if err := KnownGroup(ctx, m, name); err != nil {
		return err
	}
	steps := a.Steps(cmd)
	err = m.RemoveGroup(ctx, name, with, steps.Told(&cli.Outcome{Name: name}))
	steps.End()
	a.Follow(ctx, cmd, m, nil)
	return err
}

func (a *Commands) groupRunCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run NAME [-- FLAG...]",
		Short: "Serve the workloads of a group as one server",
		Long: `Serve the workloads of a group that run when it begins as one server, until Ctrl-C:
their tools begin with the names of the workloads. Those that are being started are
waited for, up to a minute, and those that are left out are named. It is an edge before
theirs, that of "weir serve --backend NAME=URL", whose flags may follow after --.`,
		Example: `  weir group run work
  weir group run work -- --listen 127.0.0.1:9000 --admin-listen 127.0.0.1:9001`,
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				args = args[:at]
			}
			return oneGroup(cmd, args)
		},
		ValidArgsFunction: a.completeGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			members, err := a.members(cmd, args[0])
			if err != nil {
				return err
			}
			serve := []string{"serve"}
			for _, w := range members {
				serve = append(serve, "--backend", w.Name+"="+Endpoint(w.URL))
			}
			root := a.Root()
			root.SetArgs(append(serve, args[1:]...))
			return root.ExecuteContext(cmd.Context())
		},
	}
}

// members are the workloads of a group that run. It waits for those that are being
// started, and says which are left out.
func (a *Commands) members(cmd *cobra.Command, group string) ([]workload.Status, error) {
	ctx, stop := cli.UntilSignal(cmd)
	defer stop()
	m, err := a.Awake(ctx)
	if err == nil {
		err = KnownGroup(ctx, m, group)
	}
	if err != nil {
		return nil, cli.Interrupted(ctx, err)
	}
	var all []workload.Status
	for end := time.Now().Add(maxStarting); m != nil; {
		if all, err = m.List(ctx); err != nil {
			return nil, cli.Interrupted(ctx, err)
		}
		all = slices.DeleteFunc(all, func(w workload.Status) bool { return w.Group != group })
		if !slices.ContainsFunc(all, starts) || time.Now().After(end) {
			break
		}
		select {
		case <-ctx.Done():
			return nil, cli.Interrupted(ctx, context.Cause(ctx))
		case <-time.After(lookAgain):
		}
	}
	all = slices.DeleteFunc(all, func(w workload.Status) bool {
		out := w.URL == "" || w.Status != workload.Running
		if out {
			fmt.Fprintln(a.Err, "left out:", edge.Brief(w.Name), "is", strings.TrimSuffix(fmt.Sprintf("%s: %s", w.Status, edge.Brief(w.StatusContext)), ": "))
		}
		return out
	})
	if len(all) == 0 {
		return nil, &workload.Error{Code: workload.CodeFault, Message: "no workload of the group " + cli.Brief(group) + " runs", Next: "`weir start --group " + group + "` starts those that are there"}
	}
	return all, nil
}
