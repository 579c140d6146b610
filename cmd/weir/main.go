// Command weir is the edge: it serves, checks and explains configurations, and
// talks to MCP servers from a terminal.
//
// main.go says what a process is and how it ends; every other file is one
// command, or what one needs: settings.go the settings of the process,
// remote.go and client/ the way to a server, elicit.go its questions.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/edge"
)

// How a process ends.
const (
	exitOK         = 0
	exitFault      = 1   // what it was given cannot be served, or something broke
	exitUsage      = 2   // the command line is wrong
	exitTool       = 3   // the tool that was called reports a failure
	exitProtocol   = 4   // the server answered with an error
	exitConnection = 5   // there was no talking to the server; from 10 on: see classes
	exitSignal     = 128 // plus the number of the signal
)

func main() {
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ(), exit: os.Exit}
	os.Exit(a.run(os.Args[1:]))
}

// app is a process: its streams, its environment, and how it is ended at once.
type app struct {
	in      io.Reader
	out     io.Writer
	err     io.Writer
	environ []string
	exit    func(code int)
}

// terminal reports whether a stream is a terminal.
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// run runs a command line and returns how the process ends.
func (a *app) run(args []string) int {
	root := a.command()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(context.Background())
	// The library has no other mark of this error, and none of ours begins so.
	if err != nil && cmd == root && strings.HasPrefix(err.Error(), "unknown command ") {
		err = unknownCommand(root, args)
	}
	return a.end(cmd, err)
}

// command is the whole tree of commands.
func (a *app) command() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "weir",
		Short: "An edge for the Model Context Protocol",
		Long: `Weir is an edge for the Model Context Protocol (MCP): one URL in front of MCP
servers, for clients of every revision of the protocol.

"weir serve" alone serves a demo to try things on; "weir serve -c FILE" serves
what the file describes. "weir status" shows how it does, and "weir doctor" finds
out why something does not work.

Exit codes: 0 done, 1 what was given cannot be served or something broke,
2 wrong command line, 3 the called tool reports a failure, 4 the server
answered with an error, 5 no talking to the server; 10 to 41 are what "weir
doctor" finds, see there.`,
		Example: `  weir serve
  weir tools
  weir call echo --args '{"text":"hello"}'`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !version {
				return cmd.Help()
			}
			_, err := fmt.Fprintln(a.out, thisBuild())
			return err
		},
	}
	// Cobra's own flag prints a template of its own, or one that is given to it.
	// A program with text/template in it keeps every exported method there is.
	root.Flags().BoolVarP(&version, "version", "v", false, "version for weir")
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(
		a.serveCommand(),
		a.validateCommand(),
		a.authzCommand(),
		a.settingsCommand(),
		a.schemaCommand(),
		a.toolsCommand(),
		a.callCommand(),
		a.statusCommand(),
		a.doctorCommand(),
		a.pluginCommand(),
		a.versionCommand(),
		a.completionCommand(),
	)
	return root
}

// errInterrupted is how a command ends that the user gave up.
var errInterrupted = errors.New("interrupted")

// usageError is a mistake in the command line.
type usageError struct{ what string }

func (e *usageError) Error() string { return e.what }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// saidError is an error of which everything has been said.
type saidError struct{ code int }

func (e *saidError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// end prints an error, a line for each of those that are joined in it, and
// returns the exit code that it stands for.
func (a *app) end(cmd *cobra.Command, err error) int {
	var (
		said       *saidError
		usage      *usageError
		protocol   *client.ProtocolError
		connection *client.ConnectionError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &said):
		return said.code
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(a.err, "%s: %s\n", cmd.CommandPath(), edge.Clean(strings.TrimSuffix(line, "\n")))
	}
	switch {
	case errors.As(err, &usage):
		fmt.Fprintf(a.err, "See `%s --help`.\n", cmd.CommandPath())
		return exitUsage
	case errors.As(err, &connection):
		return exitConnection
	case errors.As(err, &protocol):
		return exitProtocol
	case errors.Is(err, errInterrupted):
		return exitSignal + 2
	}
	return exitFault
}

func unknownCommand(root *cobra.Command, args []string) error {
	var known []string
	for _, c := range root.Commands() {
		known = append(known, c.Name())
	}
	for _, name := range args {
		if !strings.HasPrefix(name, "-") {
			return usagef("no such command %q%s", name, didYouMean(name, known, "`weir --help` lists them"))
		}
	}
	return usagef("no command is given")
}

// flagError explains a flag that a command does not have, or one without a
// value.
func flagError(cmd *cobra.Command, err error) error {
	name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !unknown {
		return usagef("%s", err)
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, "--"+f.Name)
		}
	})
	return usagef("no such flag --%s%s", name, didYouMean("--"+name, known, fmt.Sprintf("`%s --help` lists them", cmd.CommandPath())))
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.Flags().Lookup("config") != nil {
		return usagef("%q is one word too many: did you mean -c %s?", args[0], args[0])
	}
	return usagef("%q is one word too many: %s takes flags only", args[0], cmd.CommandPath())
}
