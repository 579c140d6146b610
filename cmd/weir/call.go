package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/cmd/weir/words"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/optimizer"
)

func (a *app) callCommand() *cobra.Command {
	var r *remote
	var given string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "call [URL] TOOL [KEY=VALUE...]",
		Short: "Call a tool of an MCP server",
		Long: `Call a tool of an MCP server and print what it answers: text as text, structured
content as JSON. Progress and log messages go to standard error. When the server
asks something, you are asked on the terminal; without a terminal the answer is
that you decline.

` + remoteHelp + `

` + words.Help + `

In place of words there may be one JSON object, or --args with an object, with
@FILE to read it from a file, or with - to read it from standard input. A tool
that the server does not list can be called in these ways only.

With --json the result is printed as the server sent it, byte for byte.

Exit codes: 3 the tool reports a failure, 4 the server answered with an error,
5 no talking to the server.`,
		Example: `  weir call echo text=hello
  weir call countdown from=5
  weir call ask_name
  weir call -w files read_file path=/tmp/notes.txt
  weir call http://127.0.0.1:4483/mcp add a=2 b=40 --json
  weir call search query=boats tags=old tags=sail filter.since=1890 limits:='{"rows":5}'
  weir call https://mcp.example.com/mcp search --args @query.json --header 'X-Team: blue'`,
		Args: func(cmd *cobra.Command, args []string) error {
			_, rest := destination(args)
			switch {
			case len(args) == 0:
				return usagef("name a tool: `weir tools` lists what there is")
			case len(rest) == 0:
				return usagef("name a tool too: `weir tools %s` lists what there is", args[0])
			case len(rest) > 1 && cmd.Flags().Changed("args"):
				return usagef("--args and words are two ways to say one thing: leave one out")
			case len(rest) == 2 && strings.HasPrefix(rest[1], "{"):
				return nil
			}
			_, err := wordsOf(rest[1:])
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest := destination(args)
			tool, rest := rest[0], rest[1:]
			whole := cmd.Flags().Changed("args") // as they are written
			if len(rest) == 1 && strings.HasPrefix(rest[0], "{") {
				given, whole = rest[0], true
			}
			arguments, err := a.object("--args", `{"text":"hello"}`, given)
			if err != nil {
				return err
			}
			return a.with(cmd, r, target, func(ctx context.Context, c *client.Client) error {
				if !whole { // what is missing, and a name that is misspelt, is said before anything is sent
					typed, err := a.typed(ctx, cmd, r, c, tool, rest)
					switch {
					case err == nil:
						arguments = typed
					case len(rest) > 0 || !errors.Is(err, words.ErrInvolved): // which says nothing of a call without words
						return err
					}
				}
				result, err := c.CallTool(ctx, tool, arguments)
				if err != nil {
					return r.unknown(ctx, err, tool, c.Tools, "tools", "name")
				}
				return a.showResult(cmd, tool, result, asJSON)
			})
		},
	}
	r = a.addRemoteFlags(cmd)
	cmd.Flags().StringVar(&given, "args", "{}", "arguments of the tool: a `JSON` object, @FILE, or - for standard input")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as the server sent it")
	mustRegister(cmd, "args", nil)
	return cmd
}

// typed makes the arguments of a tool from words, by the definition that the
// server lists.
func (a *app) typed(ctx context.Context, cmd *cobra.Command, r *remote, c *client.Client, tool string, given []string) ([]byte, error) {
	pages, err := c.Tools(ctx)
	if err != nil {
		return nil, err
	}
	definition := client.Find(pages, "tools", tool)
	if definition == nil {
		_, known := listed(pages, "tools", "name")
		return nil, usagef("the server lists no tool %q%s", edge.Brief(tool), didYouMean(tool, known, beyond(tool, known, "`weir tools"+r.at()+"` lists what there is; with --args it can be called all the same")))
	}
	return a.form(cmd, fmt.Sprintf("tool %q", edge.Brief(tool)), mcp.Lookup(definition, "inputSchema"), given)
}

// beyond says how a tool is called that an optimizer keeps out of the list of tools; otherwise
// where there is none.
func beyond(tool string, known []string, otherwise string) string {
	if !slices.Contains(known, optimizer.Find) || !slices.Contains(known, optimizer.Call) {
		return otherwise
	}
	return fmt.Sprintf("`weir tools --find WORDS` finds what there is, and `weir call %s --args '{\"tool_name\": %q, \"parameters\": {}}'` calls it", optimizer.Call, edge.Brief(tool))
}

// form makes arguments from words by a schema, and warns of those that it does
// not know.
func (a *app) form(cmd *cobra.Command, what string, schema []byte, given []string) ([]byte, error) {
	read, err := wordsOf(given)
	if err != nil {
		return nil, err
	}
	arguments, warnings, err := words.Arguments(what, schema, read)
	for _, w := range warnings {
		fmt.Fprintf(a.err, "%s: %s\n", cmd.CommandPath(), show.FirstLine(w))
	}
	if err != nil && !errors.Is(err, words.ErrInvolved) {
		err = usagef("%s", err)
	}
	return arguments, err
}

// wordsOf reads words of the command line.
func wordsOf(given []string) ([]words.Word, error) {
	all, err := words.Read(given)
	if err != nil {
		return nil, usagef("%s", err)
	}
	return all, nil
}

// maxGiven bounds a file of arguments, in bytes: no server takes as much.
const maxGiven = 64 << 20

// object reads the value of a flag, a JSON object such as the example. The bytes go to the
// server unchanged.
func (a *app) object(flag, example, given string) ([]byte, error) {
	text, from := []byte(given), flag
	var err error
	switch path, isFile := strings.CutPrefix(given, "@"); {
	case given == "-":
		from = flag + ": standard input"
		text, err = edge.ReadAll(a.in, "standard input", maxGiven)
	case isFile:
		from = flag + ": " + path
		text, err = edge.ReadFile(path, maxGiven)
	}
	if err != nil {
		return nil, usagef("%s: %s: give a JSON object, @FILE, or - for standard input", flag, err)
	}
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff"))) // as manifests may begin with
	if err := mcp.Valid(text); err != nil {
		return nil, usagef("%s: not JSON: %s: give an object, such as %s '%s'", from, err, flag, example)
	}
	if text[0] != '{' {
		return nil, usagef("%s: not an object: give one, such as %s '%s'", from, flag, example)
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
			fmt.Fprintln(a.err, a.paint(a.err, wrong, fmt.Sprintf("%s: the tool %q reports a failure:", cmd.CommandPath(), tool)))
			out = a.err
		}
		text := show.Result(result)
		if terminal(out) {
			text = edge.Clean(text)
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
	if isError {
		return cli.Said(exitTool)
	}
	return nil
}
