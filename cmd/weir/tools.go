package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/optimizer"
)

func (a *app) toolsCommand() *cobra.Command {
	var find string
	var explain bool
	cmd := a.listing(&cobra.Command{
		Use:   "tools [URL]",
		Short: "List the tools of an MCP server, or find some",
		Long: `List the tools of an MCP server: the name of each and the first line of what it
says about itself.

With --find the tools for a task are found, the best first, on servers that have
find_tool (spec.config.optimizer). --explain shows why each was found: its rank,
the parts of its score that are for words and for vectors, and the words of the
question that it has.

` + remoteHelp + `

With --json the results of tools/list, or that of find_tool, are printed as the
server sent them, one for each page.`,
		Example: `  weir tools
  weir tools http://127.0.0.1:4483/mcp
  weir tools --find "read a file" --explain
  weir tools https://mcp.example.com/mcp --bearer-token-file token.txt
  weir tools -w files
  weir tools --era legacy --json`,
	}, func(c *client.Client, ctx context.Context) ([][]byte, error) {
		if find == "" {
			return c.Tools(ctx)
		}
		result, err := findTools(ctx, c, find, explain)
		return [][]byte{result}, err
	}, func(c *client.Client, pages [][]byte) error {
		if find == "" {
			return a.listTools(c, pages)
		}
		return a.foundTools(pages[0], explain)
	})
	cmd.Flags().StringVar(&find, "find", "", "find the tools for a task, which `TEXT` says")
	cmd.Flags().BoolVar(&explain, "explain", false, "with --find: show the scores, and the words that hit")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if explain && find == "" {
			return usagef("--explain says why tools were found: say with --find for what")
		}
		return nil
	}
	mustRegister(cmd, "find", nil)
	return cmd
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

// findTools asks a server which tools there are for a task.
func findTools(ctx context.Context, c *client.Client, task string, explain bool) ([]byte, error) {
	pages, err := c.Tools(ctx)
	if err != nil {
		return nil, err
	}
	if client.Find(pages, "tools", optimizer.Find) == nil {
		return nil, fmt.Errorf("the server lists no %s: spec.config.optimizer turns it on; without --find its tools are listed", optimizer.Find)
	}
	var meta []mcp.Member
	if explain {
		meta = append(meta, mcp.With(optimizer.MetaExplain, "true"))
	}
	return c.CallTool(ctx, optimizer.Find, mcp.Change(nil, nil, mcp.Raw("tool_description", mcp.Quote(task))), meta...)
}

// foundTools prints what find_tool has found.
func (a *app) foundTools(result []byte, explain bool) error {
	if string(mcp.Lookup(result, "isError")) == "true" {
		fmt.Fprint(a.err, edge.Clean(show.Result(result)))
		return cli.Said(exitTool)
	}
	var scores []struct {
		Keyword, Vector float64
		Words           []string
	}
	if explain {
		if err := json.Unmarshal(mcp.Lookup(result, "_meta", "weir.dev/scores"), &scores); err != nil {
			return fmt.Errorf("the server does not say why: %w", err)
		}
	}
	var rows [][]string
	for i, tool := range mcp.Elements(mcp.Lookup(result, "structuredContent", "tools")) {
		row := []string{show.FirstLine(mcp.String(mcp.Lookup(tool, "name")))}
		if i < len(scores) {
			s := scores[i]
			row = append([]string{strconv.Itoa(i + 1)}, row[0], fmt.Sprintf("%.3f", s.Keyword), fmt.Sprintf("%.3f", s.Vector), edge.Brief(strings.Join(s.Words, " ")))
		}
		rows = append(rows, append(row, show.FirstLine(mcp.String(mcp.Lookup(tool, "description")))))
	}
	if rows == nil {
		_, err := fmt.Fprintln(a.err, "No tool was found.")
		return err
	}
	if explain {
		fmt.Fprintf(a.err, "search: %s\n", edge.Brief(mcp.String(mcp.Lookup(result, "_meta", "weir.dev/search"))))
		rows = append([][]string{{"rank", "tool", "words", "vectors", "hit", ""}}, rows...)
	}
	return a.table(rows, "tools")
}
