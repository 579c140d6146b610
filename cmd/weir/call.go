package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

func (a *app) callCommand() *cobra.Command {
	var r *remote
	var arguments string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "call [URL] TOOL",
		Short: "Call a tool of an MCP server",
		Long: `Call a tool of an MCP server and print what it answers: text as text, structured
content as JSON. Progress and log messages go to standard error. When the server
asks something, you are asked on the terminal; without a terminal the answer is
that you decline.

` + remoteHelp + `

The arguments are a JSON object, @FILE to read one from a file, or - to read it
from standard input.

With --json the result is printed as the server sent it, byte for byte.

Exit codes: 3 the tool reports a failure, 4 the server answered with an error,
5 no talking to the server.`,
		Example: `  weir call echo --args '{"text":"hello"}'
  weir call countdown --args '{"from":5}'
  weir call ask_name
  weir call http://127.0.0.1:4483/mcp add --args '{"a":2,"b":40}' --json
  weir call https://mcp.example.com/mcp search --args @query.json --header 'X-Team: blue'`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("name a tool: `weir tools` lists what there is")
			case len(args) == 1 && isURL(args[0]):
				return usagef("name a tool too: `weir tools %s` lists what there is", args[0])
			case len(args) == 2 && !isURL(args[0]):
				return usagef("%q is not a URL: write `weir call URL %s`, and arguments as --args '{\"name\":\"value\"}'", args[0], args[1])
			case len(args) > 2:
				return usagef("%q is one word too many: arguments are given as --args '{\"name\":\"value\"}'", args[2])
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			target, tool := homeURL(), args[0]
			if len(args) == 2 {
				target, tool = args[0], args[1]
			}
			given, err := a.arguments(arguments)
			if err != nil {
				return err
			}
			return a.with(cmd, r, target, func(ctx context.Context, c *client.Client) error {
				result, err := c.CallTool(ctx, tool, given)
				if err != nil {
					return unknownTool(ctx, c, tool, err)
				}
				return a.showResult(cmd, tool, result, asJSON)
			})
		},
	}
	r = addRemoteFlags(cmd)
	cmd.Flags().StringVar(&arguments, "args", "{}", "arguments of the tool: a `JSON` object, @FILE, or - for standard input")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as the server sent it")
	mustRegister(cmd, "args", nil)
	return cmd
}

// arguments reads the value of --args. The bytes go to the server unchanged.
func (a *app) arguments(given string) ([]byte, error) {
	text, from := []byte(given), "--args"
	var err error
	switch path, isFile := strings.CutPrefix(given, "@"); {
	case given == "-":
		from = "--args: standard input"
		text, err = io.ReadAll(a.in)
	case isFile:
		from = "--args: " + path
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("--args: %w: give a JSON object, @FILE, or - for standard input", err)
	}
	text = bytes.TrimSpace(text)
	if err := mcp.Valid(text); err != nil {
		return nil, usagef("%s: not JSON: %s: give an object, such as --args '{\"text\":\"hello\"}'", from, err)
	}
	if text[0] != '{' {
		return nil, usagef("%s: not an object: give one, such as --args '{\"text\":\"hello\"}'", from)
	}
	return text, nil
}

// showResult prints the result of a tool. A result that reports a failure is an
// error, unless the result is printed as JSON.
func (a *app) showResult(cmd *cobra.Command, tool string, result []byte, asJSON bool) error {
	isError := string(mcp.Lookup(result, "isError")) == "true"
	if asJSON {
		if _, err := fmt.Fprintf(a.out, "%s\n", result); err != nil {
			return err
		}
	} else {
		out := a.out
		if isError {
			fmt.Fprintf(a.err, "%s: the tool %q reports a failure:\n", cmd.CommandPath(), tool)
			out = a.err
		}
		text := readable(result)
		if terminal(out) {
			text = edge.Clean(text)
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
	if isError {
		return &saidError{exitTool}
	}
	return nil
}

// readable writes a result as text.
func readable(result []byte) string {
	var b strings.Builder
	line := func(s string) {
		b.WriteString(s)
		if !strings.HasSuffix(s, "\n") {
			b.WriteByte('\n')
		}
	}
	structured := mcp.Lookup(result, "structuredContent")
	for _, content := range mcp.Elements(mcp.Lookup(result, "content")) {
		text := func(path ...string) string { return mcp.String(mcp.Lookup(content, path...)) }
		switch kind := text("type"); kind {
		case "text":
			// Servers repeat structured content as text for older clients.
			if structured == nil || !sameJSON([]byte(text("text")), structured) {
				line(text("text"))
			}
		case "image", "audio":
			line(fmt.Sprintf("[%s, %s, %d bytes]", kind, text("mimeType"), len(text("data"))/4*3-strings.Count(text("data"), "=")))
		case "resource_link":
			line(strings.TrimSpace(fmt.Sprintf("[resource %s] %s", text("uri"), text("name"))))
		case "resource":
			if inner := text("resource", "text"); inner != "" {
				line(inner)
				break
			}
			line(fmt.Sprintf("[resource %s, %s]", text("resource", "uri"), text("resource", "mimeType")))
		default:
			line(indented(content))
		}
	}
	if structured != nil {
		line(indented(structured))
	}
	return b.String()
}

// indented writes JSON text with two spaces for each level; numbers and the
// order of names stay.
func indented(text []byte) string {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return string(text)
	}
	return b.String()
}

func sameJSON(a, b []byte) bool {
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}
