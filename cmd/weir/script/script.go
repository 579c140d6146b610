// Package script runs scripts and composite tools at servers, and shows what they do.
package script

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/optimizer"
)

// Tool is the tool that runs scripts, and Trace the member of _meta that asks for a trace of
// what one calls, and carries it.
const (
	Tool  = "execute_tool_script"
	Trace = "weir.dev/trace"
)

// Help says what running a script is.
const Help = `Run a script at a server and print what it returns, as JSON. Each call that it
makes is shown on standard error when it ends, with what it printed after them.
With - in place of FILE the script is read from standard input.

The script is written in Starlark, and the tools of the server are functions:

  issues = github_list_issues(repo="weir")
  return [i["title"] for i in issues if i["open"]]

The server has to have code mode on: spec.config.codeMode.enabled. Its budgets
hold for the script, and its policies for every call. It is the one at --url, or
with -c one of manifests, for which an edge is started on a port of its own until
the script has ended.

Exit codes: 1 the script failed, 2 the server takes no such script or data, 4 the
server answered with an error, 5 no talking to the server.`

// WorkflowHelp says what running a composite tool is.
const WorkflowHelp = `Call a composite tool and print its result, as JSON. On standard error each call
of a step is shown when it ends: step, tool, attempt, how it ended, and in how many
milliseconds. With -c what a script prints follows, and which properties of the
output were left out, and why. When a step asks something, you are asked on the
terminal; without a terminal the answer is that you decline.

The tool is one of the server at --url, or with -c one of manifests, for which an
edge is started on a port of its own until the tool has ended. That edge has the
settings that the environment gives (WEIR_SECRETS_DIR), and counts rate limits for
itself.

Exit codes: 1 the tool failed, 2 it takes no such arguments, 4 the server answered
with an error, 5 no talking to the server.`

// maxText bounds the text of a script, in bytes, as servers do.
const maxText = 64 << 10

// Read reads the text of a script from a file, or from in for "-".
func Read(in io.Reader, name string) (string, error) {
	var text []byte
	var err error
	if name == "-" {
		text, err = edge.ReadAll(in, name, maxText)
	} else {
		text, err = edge.ReadFile(name, maxText)
	}
	switch {
	case err != nil:
	case len(bytes.TrimSpace(text)) == 0:
		err = fmt.Errorf("%s: there is no script in it", name)
	case !utf8.Valid(text): // no message could hold it as it is
		err = fmt.Errorf("%s: the text is not UTF-8: save it as that", name)
	}
	return string(text), err
}

// Call calls one of the edge's own tools, and has what it calls shown. An edge with an
// optimizer lists none of them: there call_tool calls it, once the edge has refused to.
func Call(ctx context.Context, c *client.Client, tool string, arguments []byte) ([]byte, error) {
	trace := mcp.With(Trace, "true")
	result, err := c.CallTool(ctx, tool, arguments, trace)
	if !refused(err) {
		return result, err
	}
	pages, failed := c.Tools(ctx)
	if failed != nil || client.Find(pages, "tools", tool) != nil || client.Find(pages, "tools", optimizer.Find) == nil || client.Find(pages, "tools", optimizer.Call) == nil {
		return nil, err
	}
	return c.CallTool(ctx, optimizer.Call, mcp.Change(nil, nil, mcp.Raw("tool_name", mcp.Quote(tool)), mcp.Raw("parameters", arguments)), trace)
}

// refused reports whether an error may be that of a tool which is not there.
func refused(err error) bool {
	e := new(client.ProtocolError)
	return errors.As(err, &e) && (e.Code == mcp.CodeInvalidParams || e.Code == 403)
}

// Missing says of a refusal that the server runs no scripts, where that is why.
func Missing(ctx context.Context, c *client.Client, err error) error {
	if !refused(err) {
		return err
	}
	if pages, failed := c.Tools(ctx); failed != nil || client.Find(pages, "tools", Tool) != nil || client.Find(pages, "tools", optimizer.Call) != nil {
		return err
	}
	return fmt.Errorf("%w: it lists no %s for you: spec.config.codeMode.enabled turns that on, and its policies may permit it", err, Tool)
}

// Traced is a line about a call of a script or of a step that has ended, JSON text. It has no
// tool where the caller may not see it.
func Traced(call []byte) string {
	text := func(name string) string {
		return edge.Brief(strings.ReplaceAll(mcp.String(mcp.Lookup(call, name)), "\n", " "))
	}
	var of []string
	if step := text("step"); step != "" {
		of = append(of, "step "+step)
	}
	if tool := text("tool"); tool != "" {
		of = append(of, tool)
	}
	line := strings.Join(of, ": ")
	if n := string(mcp.Lookup(call, "attempt")); n != "" && n != "1" {
		line += ", attempt " + n
	}
	return fmt.Sprintf("%s: %s, %s ms", line, text("outcome"), mcp.Lookup(call, "ms"))
}
