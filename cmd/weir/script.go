package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// scriptTool is the tool that runs scripts, and traceKey the member of _meta that asks for a
// trace of what one calls.
const (
	scriptTool = "execute_tool_script"
	traceKey   = "weir.dev/trace"
)

func (a *app) scriptCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "script COMMAND",
		Short: "Run scripts that call tools of a server",
		Long: `Run scripts that call tools of a server with code mode on. "run" sends one to the
server, as an agent does, and prints what it returns.`,
		Example: `  weir script run totals.star`,
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
	var url, data string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run a script at a server and print what it returns",
		Long: `Run a script at a server and print what it returns, as JSON. Each call that it
makes is shown on standard error when it ends, with what it printed after them.
With - in place of FILE the script is read from standard input.

The script is written in Starlark, and the tools of the server are functions:

  issues = github_list_issues(repo="weir")
  return [i["title"] for i in issues if i["open"]]

The server has to have code mode on: spec.config.codeMode.enabled. Its budgets
hold for the script, and its policies for every call.

Exit codes: 1 the script failed, 2 the server takes no such script or data, 4 the
server answered with an error, 5 no talking to the server.`,
		Example: `  weir script run totals.star
  weir script run totals.star --data '{"since":"2026-01-01"}'
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
			text, err := a.scriptText(args[0])
			if err != nil {
				return err
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
			return a.with(cmd, r, url, func(ctx context.Context, c *client.Client) error {
				result, err := c.CallTool(ctx, scriptTool, mcp.Change(nil, nil, set...), mcp.With(traceKey, "true"))
				if err != nil {
					return scriptless(ctx, c, err)
				}
				return a.showScript(cmd, result, asJSON)
			})
		},
	}
	r = addRemoteFlags(cmd)
	cmd.Flags().StringVar(&url, "url", homeURL(), "`URL` of the server's endpoint")
	cmd.Flags().StringVar(&data, "data", "", "values that the script has as variables: a `JSON` object, @FILE, or - for standard input")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as the server sent it")
	mustRegister(cmd, "url", nil)
	mustRegister(cmd, "data", nil)
	return cmd
}

// scriptText reads the text of a script.
func (a *app) scriptText(name string) (string, error) {
	var text []byte
	var err error
	if name == "-" {
		text, err = io.ReadAll(a.in)
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return "", usagef("%s", err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return "", usagef("%s: there is no script in it", name)
	}
	return string(text), nil
}

// scriptless says of a refusal that the server runs no scripts, where that is why.
func scriptless(ctx context.Context, c *client.Client, err error) error {
	refused := new(client.ProtocolError)
	if !errors.As(err, &refused) || refused.Code != mcp.CodeInvalidParams && refused.Code != 403 {
		return err
	}
	if pages, failed := c.Tools(ctx); failed != nil || client.Find(pages, "tools", scriptTool) != nil {
		return err
	}
	return fmt.Errorf("%w: it lists no %s for you: spec.config.codeMode.enabled turns that on, and its policies may permit it", err, scriptTool)
}

// showScript prints the result of a script.
func (a *app) showScript(cmd *cobra.Command, result []byte, asJSON bool) error {
	failed := string(mcp.Lookup(result, "isError")) == "true"
	if asJSON {
		if _, err := fmt.Fprintf(a.out, "%s\n", result); err != nil {
			return err
		}
	}
	first := ""
	for i, content := range mcp.Elements(mcp.Lookup(result, "content")) {
		said := edge.Clean(mcp.String(mcp.Lookup(content, "text")))
		switch {
		case i == 0:
			first = said
		case !asJSON:
			fmt.Fprint(a.err, line(said))
		}
	}
	switch {
	case failed && strings.HasPrefix(first, "invalid arguments: "):
		return usagef("%s", first)
	case failed:
		head, rest, more := strings.Cut(first, "\n")
		fmt.Fprintln(a.err, a.paint(a.err, wrong, cmd.CommandPath()+":"), head)
		if more {
			fmt.Fprint(a.err, line(rest))
		}
		return &saidError{exitFault}
	case asJSON:
		return nil
	}
	_, err := fmt.Fprintln(a.out, indented([]byte(first)))
	return err
}

// traced is a line about a call of a script.
func traced(call []byte) string {
	text := func(name string) string { return firstLine(mcp.String(mcp.Lookup(call, name))) }
	return fmt.Sprintf("%s: %s, %s ms", text("tool"), text("outcome"), mcp.Lookup(call, "ms"))
}
