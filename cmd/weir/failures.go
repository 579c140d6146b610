package main

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/workload"
)

// Codes of errors that no manager has, as --format json says them.
const (
	codeConnection  workload.Code = "connection"  // the server could not be reached
	codeProtocol    workload.Code = "protocol"    // it answered with an error
	codeInterrupted workload.Code = "interrupted" // by the user
)

// why is an error as the user is told it.
type why struct {
	workload.Error
	exit  int
	usage bool   // the command line is wrong
	said  string // all of it, for people
}

// whyOf says why a command failed.
func whyOf(cmd *cobra.Command, err error) why {
	var (
		usage      *usageError
		known      *workload.Error
		connection *client.ConnectionError
		protocol   *client.ProtocolError
	)
	w := why{exit: exitFault, said: err.Error()}
	w.Code = workload.CodeFault
	switch {
	case errors.As(err, &usage):
		w.exit, w.usage, w.Code, w.Next = exitUsage, true, workload.CodeInvalid, "`"+cmd.CommandPath()+" --help`"
	case errors.As(err, &known):
		w.exit, w.Code, w.Field, w.Next = known.Code.Exit(), known.Code, known.Field, known.Next
		if w.Field != "" && !strings.Contains(w.said, w.Field) {
			w.said = w.Field + ": " + w.said
		}
		if w.Next != "" {
			w.said += ": " + w.Next
		}
	case errors.As(err, &connection):
		w.exit, w.Code, w.Next = exitConnection, codeConnection, connection.Next
	case errors.As(err, &protocol):
		w.exit, w.Code, w.Next = exitProtocol, codeProtocol, protocol.Next
	case errors.Is(err, errInterrupted):
		w.exit, w.Code = exitSignal+2, codeInterrupted
	}
	w.Message = strings.TrimSuffix(w.said, ": "+w.Next)
	return w
}

// writeJSON writes the error as one line for programs.
func (w *why) writeJSON(out io.Writer) {
	var all struct {
		Error workload.Error `json:"error"`
	}
	all.Error = w.Error
	_ = printJSON(out, all, "") // there is nobody else to tell
}

// printJSON writes a value as JSON with a line end, with indent for each level; "" for one
// line.
func printJSON(out io.Writer, value any, indent string) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(value)
}

// gravest is the exit code of a command that failed in several ways: the one that its user has
// to know of first.
func gravest(codes []int) int {
	for _, code := range []int{exitSignal + 2, exitFault, exitStart, exitLogin, exitRefused, exitSandbox, exitTaken, exitConnection, exitUsage, exitMissing} {
		if slices.Contains(codes, code) {
			return code
		}
	}
	return exitOK
}

// addFormat adds --format, of which the first one is the default.
func addFormat(cmd *cobra.Command, formats ...string) {
	cmd.Flags().String("format", formats[0], "`FORMAT` to print: "+strings.Join(formats, ", ")+"; with json errors are JSON too")
	mustRegister(cmd, "format", formats)
	args := cmd.Args
	cmd.Args = func(cmd *cobra.Command, words []string) error {
		if given := formatOf(cmd); !slices.Contains(formats, given) {
			return usagef("--format %q: give one of %s", edge.Brief(given), strings.Join(formats, ", "))
		}
		if args == nil {
			return nil
		}
		return args(cmd, words)
	}
}

// formatOf is what --format says; "" for a command without it.
func formatOf(cmd *cobra.Command) string {
	f := cmd.Flags().Lookup("format")
	if f == nil {
		return ""
	}
	return f.Value.String()
}

func wantsJSON(cmd *cobra.Command) bool { return formatOf(cmd) == "json" }
