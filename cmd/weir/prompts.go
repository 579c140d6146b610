package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

func (a *app) promptsCommand() *cobra.Command {
	return a.listing(&cobra.Command{
		Use:   "prompts [URL]",
		Short: "List the prompts of an MCP server",
		Long: `List the prompts of an MCP server: the name of each, its arguments, with those in
brackets that may be left out, and the first line of what it says about itself.

` + remoteHelp + `

With --json the results of prompts/list are printed as the server sent them, one
for each page.`,
		Example: `  weir prompts
  weir prompts http://127.0.0.1:4483/mcp
  weir prompts --json`,
	}, (*client.Client).Prompts, func(_ *client.Client, pages [][]byte) error {
		var rows [][]string
		prompts, names := listed(pages, "prompts", "name")
		for i, prompt := range prompts {
			var arguments []string
			for _, one := range mcp.Elements(mcp.Lookup(prompt, "arguments")) {
				name := show.FirstLine(mcp.String(mcp.Lookup(one, "name"))) + "=VALUE"
				if string(mcp.Lookup(one, "required")) != "true" {
					name = "[" + name + "]"
				}
				arguments = append(arguments, name)
			}
			rows = append(rows, []string{show.FirstLine(names[i]), strings.Join(arguments, " "), show.FirstLine(mcp.String(mcp.Lookup(prompt, "description")))})
		}
		return a.table(rows, "prompts")
	})
}

func (a *app) promptCommand() *cobra.Command {
	var r *remote
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "prompt [URL] NAME [KEY=VALUE...]",
		Short: "Get a prompt of an MCP server",
		Long: `Get a prompt of an MCP server, and print its messages, each after the role that
speaks it. "weir prompts" lists what there is. Arguments are text.

` + remoteHelp + `

With --json the result is printed as the server sent it, byte for byte.

Exit codes: 4 the server answered with an error, 5 no talking to the server.`,
		Example: `  weir prompt greet name=Ada
  weir prompt http://127.0.0.1:4483/mcp greet name='Ada Lovelace'
  weir prompt greet name=Ada --json`,
		Args: func(_ *cobra.Command, args []string) error {
			_, rest := destination(args)
			if len(rest) == 0 {
				return usagef("name a prompt: `weir prompts` lists what there is")
			}
			all, err := wordsOf(rest[1:])
			for _, w := range all {
				if w.Raw {
					return usagef("%s: arguments of prompts are text: write %s=VALUE", edge.Brief(w.Key), edge.Brief(w.Key))
				}
			}
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest := destination(args)
			return a.with(cmd, r, target, func(ctx context.Context, c *client.Client) error {
				pages, err := c.Prompts(ctx)
				if err != nil {
					return err
				}
				prompt := client.Find(pages, "prompts", rest[0])
				if prompt == nil {
					_, known := listed(pages, "prompts", "name")
					return usagef("the server lists no prompt %q%s", edge.Brief(rest[0]), didYouMean(rest[0], known, "`weir prompts` lists what there is"))
				}
				arguments, err := a.form(cmd, fmt.Sprintf("prompt %q", edge.Brief(rest[0])), promptSchema(prompt), rest[1:])
				if err != nil {
					return err
				}
				result, err := c.Prompt(ctx, rest[0], arguments)
				if err != nil {
					return err
				}
				if asJSON {
					_, err := fmt.Fprintf(a.out, "%s\n", result)
					return err
				}
				return a.showMessages(mcp.Elements(mcp.Lookup(result, "messages")))
			})
		},
	}
	r = a.addRemoteFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as the server sent it")
	return cmd
}

// promptSchema is a JSON Schema of the arguments of a prompt, which are text.
func promptSchema(prompt []byte) []byte {
	var properties []mcp.Member
	var required [][]byte
	for _, one := range mcp.Elements(mcp.Lookup(prompt, "arguments")) {
		name, about := mcp.LookupTwo(one, "name", "description")
		if mcp.String(name) == "" {
			continue
		}
		if about == nil {
			about = []byte(`""`)
		}
		properties = append(properties, mcp.Raw(string(name[1:len(name)-1]), mcp.Change(nil, nil, mcp.With("type", `"string"`), mcp.Raw("description", about))))
		if string(mcp.Lookup(one, "required")) == "true" {
			required = append(required, name)
		}
	}
	return mcp.Change(nil, nil, mcp.Raw("properties", mcp.Change(nil, nil, properties...)), mcp.Raw("required", slices.Concat([]byte("["), bytes.Join(required, []byte(",")), []byte("]"))))
}

// showMessages prints the messages of a prompt.
func (a *app) showMessages(messages [][]byte) error {
	var b strings.Builder
	for _, m := range messages {
		text := show.Content(mcp.Lookup(m, "content"))
		if terminal(a.out) {
			text = edge.Clean(text)
		}
		b.WriteString(a.paint(a.out, bold, show.FirstLine(mcp.String(mcp.Lookup(m, "role")))+":") + " " + show.Line(text))
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}
