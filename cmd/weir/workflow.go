package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/scripting/workflow"
)

func (a *app) workflowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "workflow",
		Short: "Look at the composite tools of a configuration",
		Long: `Look at the composite tools of a configuration without an edge and without a
backend. "show" prints the program that the steps are compiled to, "lint" what
is likely a mistake, "graph" which step waits for which.`,
		Example: `  weir workflow show -c weir.yaml report
  weir workflow lint -c weir.yaml
  weir workflow graph -c weir.yaml report`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		a.workflowLook("show", "Print the program of a composite tool", `Print the program that the steps of a composite tool are compiled to. It means the
same when it is given as script in place of steps.`, (*workflow.Workflow).Show),
		a.workflowLook("graph", "Draw the steps of a composite tool", "Print a Mermaid flowchart of the steps of a composite tool, and which waits for which.", (*workflow.Workflow).Graph),
		a.workflowLintCommand(),
	)
	return cmd
}

// workflowLook is a command that prints something of one workflow.
func (a *app) workflowLook(name, short, long string, print func(*workflow.Workflow) string) *cobra.Command {
	var config []string
	var server string
	cmd := &cobra.Command{
		Use:     name + " -c FILE|DIR NAME",
		Short:   short,
		Long:    long,
		Example: "  weir workflow " + name + " -c weir.yaml report",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := a.workflowsOf(config, server)
			if err != nil {
				return err
			}
			var names []string
			for _, w := range all {
				if w.Name() == args[0] {
					_, err := fmt.Fprintln(a.out, strings.TrimRight(print(w), "\n"))
					return err
				}
				names = append(names, w.Name())
			}
			if len(names) == 0 {
				return fmt.Errorf("there is no composite tool")
			}
			return fmt.Errorf("there is no composite tool %q%s", args[0], didYouMean(args[0], names, strings.Join(names, ", ")))
		},
	}
	a.workflowFlags(cmd, &config, &server)
	return cmd
}

func (a *app) workflowLintCommand() *cobra.Command {
	var config []string
	var server string
	cmd := &cobra.Command{
		Use:   "lint -c FILE|DIR",
		Short: "Find what is likely a mistake in composite tools",
		Long: `Say of all composite tools what is likely a mistake: a step that nobody reads, a
read of a step that is not among dependsOn, a condition that is a constant.

Exit codes: 0, also with warnings; 1 the configuration cannot be served.`,
		Example: `  weir workflow lint -c weir.yaml`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := a.workflowsOf(config, server)
			if err != nil {
				return err
			}
			for _, w := range all {
				for _, f := range w.Lint(nil) {
					if _, err := fmt.Fprintf(a.out, "%s: warning: %s\n", w.Name(), f.Error()); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
	a.workflowFlags(cmd, &config, &server)
	return cmd
}

func (a *app) workflowFlags(cmd *cobra.Command, config *[]string, server *string) {
	addConfigFlag(cmd, config, "")
	cmd.Flags().StringVar(server, "server", "", "`NAME` of the server, where there are several; all of them unless given")
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err) // the flag was added in the lines before
	}
}

// workflowsOf returns the composite tools of the servers of a configuration; of one when it
// is named.
func (a *app) workflowsOf(config []string, server string) ([]*workflow.Workflow, error) {
	opened := source.OpenAll(config, source.LocalRateLimits(true)) // rate limits do not matter here
	if err := a.refuse(opened); err != nil {
		return nil, err
	}
	var all []*workflow.Workflow
	var names []string
	found := server == ""
	for _, s := range opened.Plan.Servers {
		names = append(names, s.Name)
		if server == "" || s.Name == server {
			all, found = append(all, s.Workflows...), true
		}
	}
	if !found {
		return nil, fmt.Errorf("--server: there is no server %q%s", server, didYouMean(server, names, strings.Join(names, ", ")))
	}
	return all, nil
}
