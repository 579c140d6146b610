package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/cmd/weir/script"
	"github.com/weir-edge/weir/edge/compile"
)

func (a *app) workflowRunCommand() *cobra.Command {
	var r *remote
	var at where
	var given string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "run NAME",
		Short: "Call a composite tool and show each step",
		Long:  script.WorkflowHelp,
		Example: `  weir workflow run report --args '{"since":"2026-01-01"}'
  weir workflow run report -c weir.yaml --args @arguments.json
  weir workflow run report --url https://mcp.example.com/mcp --bearer-token-file token`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && isURL(args[0]) {
				return usagef("%q is a URL: write --url %s, and the name of a composite tool", args[0], args[0])
			}
			return oneWorkflow(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			arguments, err := a.object("--args", `{"since":"2026-01-01"}`, given)
			if err != nil {
				return err
			}
			pick := func(plan *compile.Plan) (string, error) {
				one, err := workflowOf(plan, at.config, at.server, args[0])
				return one.server, err
			}
			return a.at(cmd, r, at, pick, func(ctx context.Context, c *client.Client) error {
				result, err := script.Call(ctx, c, args[0], arguments)
				if err != nil {
					return r.unknown(ctx, err, args[0], c.Tools, "tools", "name")
				}
				return a.showRun(cmd, result, asJSON)
			})
		},
	}
	r = a.addRemoteFlags(cmd)
	at.add(cmd, "that has the tool")
	cmd.Flags().StringVar(&given, "args", "{}", "arguments of the tool: a `JSON` object, @FILE, or - for standard input")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as the server sent it")
	mustRegister(cmd, "args", nil)
	return cmd
}
