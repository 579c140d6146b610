package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

func (a *app) toolsCommand() *cobra.Command {
	return a.listing(&cobra.Command{
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
  weir tools -w files
  weir tools --era legacy --json`,
	}, (*client.Client).Tools, a.listTools)
}

func (a *app) listTools(c *client.Client, pages [][]byte) error {
	var rows [][]string
	tools, _ := listed(pages, "tools", "name")
	for _, tool := range tools {
		name := show.FirstLine(mcp.String(mcp.Lookup(tool, "name")))
		// A modern client must not offer a tool whose headers it cannot make.
		if err := client.Usable(tool); err != nil && c.Era() == mcp.Modern {
			fmt.Fprintf(a.err, "tool %s is left out: its definition is not valid: %s\n", name, edge.Clean(err.Error()))
			continue
		}
		rows = append(rows, []string{name, show.FirstLine(mcp.String(mcp.Lookup(tool, "description")))})
	}
	return a.table(rows, "tools")
}
