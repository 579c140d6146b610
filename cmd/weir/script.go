package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/cmd/weir/script"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/mcp"
)

func (a *app) scriptCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "script COMMAND",
		Short: "Run scripts that call tools of a server",
		Long: `Run scripts that call tools of a server with code mode on. "run" sends one to the
server, as an agent does, and prints what it returns.`,
		Example: `  weir script run totals.star
  weir script run totals.star --data '{"since":"2026-01-01"}'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("no such command %q%s", args[0], didYouMean(args[0], []string{"run"}, "`weir script --help` lists them"))
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(a.scriptRunCommand())
	return cmd
}

func (a *app) scriptRunCommand() *cobra.Command {
	var r *remote
	at := where{scripts: true}
	var data string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run a script at a server and print what it returns",
		Long:  script.Help,
		Example: `  weir script run totals.star
  weir script run totals.star --data '{"since":"2026-01-01"}'
  weir script run totals.star -c weir.yaml
  weir script run totals.star --url https://mcp.example.com/mcp --data @query.json
  echo 'return list_tools()' | weir script run -`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("name the file of a script, or - for standard input")
			case isURL(args[0]):
				return usagef("%q is a URL: write --url %s, and the file of a script", args[0], args[0])
			case len(args) > 1:
				return usagef("%q is one word too many: one file is enough", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := script.Read(a.in, args[0])
			if err != nil {
				return usagef("%s", err)
			}
			set := []mcp.Member{mcp.Raw("script", mcp.Quote(text))}
			if cmd.Flags().Changed("data") {
				if args[0] == "-" && data == "-" {
					return usagef("standard input cannot be both the script and --data")
				}
				object, err := a.object("--data", `{"since":"2026-01-01"}`, data)
				if err != nil {
					return err
				}
				set = append(set, mcp.Raw("data", object))
			}
			pick := func(plan *compile.Plan) (string, error) { return scriptServer(plan, at.server) }
			return a.at(cmd, r, at, pick, func(ctx context.Context, c *client.Client) error {
				result, err := script.Call(ctx, c, script.Tool, mcp.Change(nil, nil, set...))
				if err != nil {
					return script.Missing(ctx, c, err)
				}
				return a.showRun(cmd, result, asJSON)
			})
		},
	}
	r = a.addRemoteFlags(cmd)
	at.add(cmd, "that has code mode on")
	cmd.Flags().StringVar(&data, "data", "", "values that the script has as variables: a `JSON` object, @FILE, or - for standard input")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as the server sent it")
	mustRegister(cmd, "data", nil)
	return cmd
}

// scriptServer chooses the server of a plan that runs scripts.
func scriptServer(plan *compile.Plan, name string) (string, error) {
	var all, on []string
	for _, s := range plan.Servers {
		all = append(all, s.Name)
		if s.CodeMode != nil {
			on = append(on, s.Name)
		}
	}
	switch {
	case name != "" && !slices.Contains(all, name):
		return "", fmt.Errorf("--server: there is no server %q%s", name, didYouMean(name, all, "the manifests have "+strings.Join(all, ", ")))
	case name != "" && !slices.Contains(on, name):
		return "", fmt.Errorf("the server %q runs no scripts: spec.config.codeMode.enabled turns that on", name)
	case name != "":
		return name, nil
	case len(on) == 0:
		return "", fmt.Errorf("no server of the manifests runs scripts: spec.config.codeMode.enabled turns that on")
	case len(on) > 1:
		return "", usagef("the servers %s run scripts: name one of them with --server", strings.Join(on, ", "))
	}
	return on[0], nil
}

// showRun prints the result of a script or a composite tool.
func (a *app) showRun(cmd *cobra.Command, result []byte, asJSON bool) error {
	failed := string(mcp.Lookup(result, "isError")) == "true"
	if asJSON {
		if _, err := fmt.Fprintf(a.out, "%s\n", result); err != nil {
			return err
		}
	}
	first, value := "", ""
	for i, content := range mcp.Elements(mcp.Lookup(result, "content")) {
		whole := mcp.String(mcp.Lookup(content, "text"))
		said := edge.Clean(whole)
		switch {
		case i == 0:
			first, value = said, whole
		case !asJSON:
			fmt.Fprint(a.err, show.Line(said))
		}
	}
	switch {
	case failed && strings.HasPrefix(first, "invalid arguments: "):
		return usagef("%s", first)
	case failed:
		head, rest, more := strings.Cut(first, "\n")
		fmt.Fprintln(a.err, a.paint(a.err, wrong, cmd.CommandPath()+":"), head)
		if more {
			fmt.Fprint(a.err, show.Line(rest))
		}
		return cli.Said(exitFault)
	case asJSON:
		return nil
	}
	if terminal(a.out) { // elsewhere it is the value, with all its characters
		value = first
	}
	_, err := fmt.Fprintln(a.out, show.Indented([]byte(value)))
	return err
}
