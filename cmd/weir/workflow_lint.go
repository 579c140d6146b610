package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/composite"
	"github.com/weir-edge/weir/edge/settings"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/scripting/workflow"
)

// finder finds the tool of a step; see composite.Finder.
type finder = func(name string) (*workflow.Tool, bool)

func (a *app) workflowLintCommand() *cobra.Command {
	var config []string
	var server string
	var live, strict bool
	cmd := &cobra.Command{
		Use:   "lint -c FILE|DIR",
		Short: "Find what is likely a mistake in composite tools",
		Long: `Find what is wrong with composite tools, and what is likely a mistake. What is
wrong is printed as "weir validate" prints it. Without that there is a warning for

  a step that no step and no output reads, and that none depends on
  a read of a step that is not among dependsOn (the step waits for it all the same)
  a condition that is a constant
  a default of a parameter that does not fit it, or a required one that is not allowed
  a tool that is called again after a failure (onError: retry) and does not say of
  itself that this changes nothing more: idempotentHint, or readOnlyHint

For the last one the tools have to be known: --live asks the backends for them, as
"weir doctor" does. It warns of steps whose tool is not there, too.

Exit codes: 0, also with warnings; 1 something is wrong, or with --strict there is
a warning.`,
		Example: `  weir workflow lint -c weir.yaml
  weir workflow lint -c weir.yaml --live
  weir workflow lint -c manifests/ --server team --strict`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opened := source.OpenAll(config, source.LocalRateLimits(true), source.AllowWorkloads(settings.Workloads...)) // what is limited and started does not matter here
			if err := a.refuse(opened); err != nil {
				return err
			}
			all, err := composedOf(opened.Plan, server)
			if err != nil {
				return err
			}
			known := map[string]finder{}
			if live {
				if known, err = a.toolsOf(cmd, opened, all); err != nil {
					return err
				}
			}
			found, unknown := lint(opened, all, known)
			if strict {
				found = found.Strict()
			}
			if err := found.Render(a.out); err != nil {
				return err
			}
			if len(unknown) > 0 {
				next := "--live asks the backends"
				if live {
					next = "their backends did not tell"
				}
				fmt.Fprintf(a.err, "%s: tools are called again of which nothing is known, so that nothing is said about their idempotentHint: %s; %s\n", cmd.CommandPath(), strings.Join(unknown, ", "), next)
			}
			if len(found.Errors()) > 0 {
				return cli.Said(exitFault)
			}
			if len(found) == 0 {
				_, err = fmt.Fprintf(a.out, "%s: ok (%s)\n", strings.Join(config, ", "), edge.Count(len(all), "composite tool"))
			}
			return err
		},
	}
	addConfigFlag(cmd, &config, "")
	cmd.Flags().StringVar(&server, "server", "", "`NAME` of the server, where there are several; all of them unless given")
	cmd.Flags().BoolVar(&live, "live", false, "ask the backends for their tools")
	cmd.Flags().BoolVar(&strict, "strict", false, "take warnings for errors")
	mustRegister(cmd, "server", nil)
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic(err) // the flag was added in the lines before
	}
	return cmd
}

// lint returns what is likely a mistake, with its places, and the tools that are called again
// of which nothing is known. known has the tools of servers, as far as they were asked for.
func lint(opened *source.Result, all []composed, known map[string]finder) (found source.Findings, unknown []string) {
	for _, one := range all {
		note := func(path, message string) {
			f := opened.Locate(compile.Finding{Severity: compile.Warning, Object: one.at.Object, Path: one.at.Path + "." + path, Reason: compile.ReasonUnused, Message: message})
			if !slices.Contains(found, f) { // servers may share a definition
				found = append(found, f)
			}
		}
		find := known[one.server]
		for _, f := range one.Lint(find) {
			note(f.Path, f.Message)
		}
		for _, tool := range one.Retried() {
			if find != nil {
				if of, there := find(tool); of != nil || !there {
					continue
				}
			}
			if !slices.Contains(unknown, tool) {
				unknown = append(unknown, tool)
			}
		}
	}
	return found, unknown
}

// toolsOf asks the backends of servers with composite tools for what they offer. What keeps
// one from telling is printed.
func (a *app) toolsOf(cmd *cobra.Command, opened *source.Result, all []composed) (map[string]finder, error) {
	ctx, stop := untilSignal(cmd)
	defer stop()
	s, err := a.settingsInPassing()
	if err != nil {
		return nil, err
	}
	secrets, err := secretsOf(opened.Set, s.SecretsDir, a.environ)
	if err != nil {
		return nil, err
	}
	known := map[string]finder{}
	for _, server := range opened.Plan.Servers {
		if !slices.ContainsFunc(all, func(one composed) bool { return one.server == server.Name }) {
			continue
		}
		a.problems(ctx, cmd, server, s, secrets, func(c *catalog.Catalog, absent []string) {
			find := composite.Finder(c)
			known[server.Name] = func(name string) (*workflow.Tool, bool) {
				tool, ok := find(name)
				return tool, ok || len(absent) > 0 // it may be one of theirs
			}
		})
	}
	return known, interrupted(ctx, ctx.Err())
}
