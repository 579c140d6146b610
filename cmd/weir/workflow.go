package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/settings"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/scripting/workflow"
)

// The commands about composite tools are here, but for two: workflow_lint.go and
// workflow_run.go.
func (a *app) workflowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "workflow COMMAND",
		Short: "Look at composite tools, and run them",
		Long: `Look at the composite tools of a configuration, and run them. "show" prints the
program that the steps are compiled to, "graph" draws which step waits for which,
"lint" finds what is likely a mistake, and "run" calls one and shows each step.`,
		Example: `  weir workflow run report -c weir.yaml --args '{"since":"2026-01-01"}'
  weir workflow lint -c weir.yaml
  weir workflow show report -c weir.yaml
  weir workflow graph report -c weir.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("no such command %q%s", args[0], didYouMean(args[0], []string{"show", "graph", "lint", "run"}, "`weir workflow --help` lists them"))
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(
		a.workflowRunCommand(),
		a.workflowLintCommand(),
		a.workflowLook("show", "Print the program of a composite tool", `Print the program that the steps of a composite tool are compiled to. It is what
runs, and means the same when it is given as script in place of steps.`, (*workflow.Workflow).Show),
		a.workflowLook("graph", "Draw the steps of a composite tool", `Print a flowchart of the steps of a composite tool, in Mermaid, and which waits for
which. A dotted arrow leads to a step that has a condition.`, (*workflow.Workflow).Graph),
	)
	return cmd
}

// workflowLook is a command that prints something of one workflow.
func (a *app) workflowLook(name, short, long string, print func(*workflow.Workflow) string) *cobra.Command {
	var config []string
	var server string
	cmd := &cobra.Command{
		Use:   name + " NAME -c FILE|DIR",
		Short: short,
		Long:  long,
		Example: "  weir workflow " + name + " report -c weir.yaml\n" +
			"  weir workflow " + name + " report -c manifests/ --server team",
		Args: oneWorkflow,
		RunE: func(_ *cobra.Command, args []string) error {
			opened := source.OpenAll(config, source.LocalRateLimits(true), source.AllowWorkloads(settings.Workloads...)) // what is limited and started does not matter here
			if err := a.refuse(opened); err != nil {
				return err
			}
			one, err := workflowOf(opened.Plan, config, server, args[0])
			if err == nil {
				_, err = fmt.Fprintln(a.out, strings.TrimRight(print(one.Workflow), "\n"))
			}
			return err
		},
	}
	addConfigFlag(cmd, &config, "")
	cmd.Flags().StringVar(&server, "server", "", "`NAME` of the server that has the tool; needed where several do")
	mustRegister(cmd, "server", nil)
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err) // the flag was added in the lines before
	}
	return cmd
}

// oneWorkflow wants the name of one composite tool.
func oneWorkflow(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return usagef("name a composite tool")
	case len(args) > 1:
		return usagef("%q is one word too many: one name is enough", args[1])
	}
	return nil
}

// composed is a composite tool of a server.
type composed struct {
	*workflow.Workflow
	server string
	at     compile.Place
}

// composedOf are the composite tools of the servers of a plan; of one when it is named.
func composedOf(plan *compile.Plan, server string) (all []composed, err error) {
	var names []string
	found := server == ""
	for _, s := range plan.Servers {
		names = append(names, s.Name)
		if server != "" && s.Name != server {
			continue
		}
		found = true
		for i, w := range s.Workflows {
			all = append(all, composed{w, s.Name, s.Composed[i]})
		}
	}
	if !found {
		return nil, fmt.Errorf("--server: there is no server %q%s", server, didYouMean(server, names, "the manifests have "+strings.Join(names, ", ")))
	}
	return all, nil
}

// workflowOf finds a composite tool in a plan by its name.
func workflowOf(plan *compile.Plan, config []string, server, name string) (composed, error) {
	all, err := composedOf(plan, server)
	if err != nil {
		return composed{}, err
	}
	var names, servers []string
	var found composed
	for _, one := range all {
		names = append(names, one.Name())
		if one.Name() == name {
			servers, found = append(servers, one.server), one
		}
	}
	switch {
	case len(servers) == 1:
		return found, nil
	case len(servers) > 1:
		return found, usagef("the servers %s have a composite tool %q: name one of them with --server", strings.Join(servers, ", "), name)
	case len(names) == 0 && server != "":
		return found, fmt.Errorf("the server %q has no composite tool: spec.config.compositeTools declares them", server)
	case len(names) == 0:
		return found, fmt.Errorf("%s: there is no composite tool: spec.config.compositeTools of a server declares them", strings.Join(config, ", "))
	}
	return found, fmt.Errorf("there is no composite tool %q%s", name, didYouMean(name, names, "the manifests have "+strings.Join(names, ", ")))
}
