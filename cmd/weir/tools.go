package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

func (a *app) toolsCommand() *cobra.Command {
	var r *remote
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tools [URL]",
		Short: "List the tools of an MCP server",
		Long: `List the tools of an MCP server: the name of each and the first line of what it
says about itself.

` + remoteHelp + `

With --json the results of tools/list are printed as the server sent them, one
for each page.`,
		Example: `  weir tools
  weir tools http://127.0.0.1:4483/mcp
  weir tools https://mcp.example.com/mcp --bearer-token-file token.txt
  weir tools --era legacy --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%q is one word too many: one URL is enough", args[1])
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			target := homeURL()
			if len(args) == 1 {
				target = args[0]
			}
			return a.with(cmd, r, target, func(ctx context.Context, c *client.Client) error {
				pages, err := c.Tools(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					for _, page := range pages {
						if _, err := fmt.Fprintf(a.out, "%s\n", page); err != nil {
							return err
						}
					}
					return nil
				}
				return a.listTools(c, pages)
			})
		},
	}
	r = addRemoteFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the results as the server sent them")
	return cmd
}

func toolsOf(pages [][]byte) [][]byte {
	var tools [][]byte
	for _, page := range pages {
		tools = append(tools, mcp.Elements(mcp.Lookup(page, "tools"))...)
	}
	return tools
}

func (a *app) listTools(c *client.Client, pages [][]byte) error {
	var rows [][]string
	for _, tool := range toolsOf(pages) {
		name := firstLine(mcp.String(mcp.Lookup(tool, "name")))
		// A modern client must not offer a tool whose headers it cannot make.
		if err := client.Usable(tool); err != nil && c.Era() == mcp.Modern {
			fmt.Fprintf(a.err, "tool %s is left out: its definition is not valid: %s\n", name, edge.Clean(err.Error()))
			continue
		}
		rows = append(rows, []string{name, firstLine(mcp.String(mcp.Lookup(tool, "description")))})
	}
	if rows == nil {
		_, err := fmt.Fprintln(a.err, "The server offers no tools.")
		return err
	}
	return writeTable(a.out, rows)
}
