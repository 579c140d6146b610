// Command weir is the edge: it serves, checks and explains configurations, and
// talks to MCP servers from a terminal.
//
// main.go holds the process and its exit codes; every other file is one
// command, or serves several: settings.go the settings of the process,
// remote.go and client/ the connection to a server, show/ what is printed of
// one. What "weir doctor" looks at is in doctor/.
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

// Exit codes.
const (
	exitOK         = 0
	exitFault      = 1   // the configuration cannot be served, or something broke
	exitUsage      = 2   // the command line is wrong
	exitTool       = 3   // the tool that was called reports a failure
	exitProtocol   = 4   // the server answered with an error
	exitConnection = 5   // the server could not be reached; from 10 on: see doctor.Classes
	exitMissing    = 6   // there is no such workload, group or secret
	exitTaken      = 7   // the name or the port is taken
	exitSandbox    = 8   // no engine, sandbox or grade that was asked for
	exitRefused    = 9   // a rule refuses it
	exitStart      = 44  // the server ended, or did not introduce itself in time
	exitLogin      = 45  // somebody has to log in
	exitSignal     = 128 // plus the number of the signal
)

func main() {
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ(), exit: os.Exit}
	os.Exit(a.run(os.Args[1:]))
}

// app is a process: its streams, its environment, and the function that exits at once.
type app struct {
	in      io.Reader
	out     io.Writer
	err     io.Writer
	environ []string
	exit    func(code int)

	managed managed // in place of the manager of the user; nil for that
}

// terminal reports whether a stream is a terminal.
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// run runs a command line and returns the exit code.
func (a *app) run(args []string) int {
	root := a.command()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(context.Background())
	// Cobra marks this error by its text alone, and no error of ours begins so.
	if err != nil && cmd == root && strings.HasPrefix(err.Error(), "unknown command ") {
		err = unknownCommand(root, args)
	}
	return a.end(cmd, err)
}

// command returns the whole tree of commands.
func (a *app) command() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "weir",
		Short: "An edge for the Model Context Protocol",
		Long: `Weir is an edge for the Model Context Protocol (MCP): one URL in front of MCP
servers, for clients of every revision of the protocol.

"weir serve" alone serves a demo to try things on; "weir serve -c FILE" serves
what the file describes. "weir status" shows the state of a running edge, and "weir
doctor" finds out why something does not work. A workload is an MCP server that
Weir starts, or keeps an address for: "weir list" shows those of yours.

Exit codes: 0 done, 1 the configuration cannot be served or something broke,
2 wrong command line, 3 the called tool reports a failure, 4 the server
answered with an error, 5 the server could not be reached, 6 no such workload,
group or secret, 7 the name or the port is taken, 8 no sandbox as it was asked
for, 9 refused by a rule, 44 the server ended or did not introduce itself in
time, 45 a login is needed; for 10 to 41 see "weir doctor --help".`,
		Example: `  weir serve
  weir tools
  weir call echo text=hello`,
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
	// Cobra's own flag prints by a template, and linking text/template makes the
	// linker keep every exported method of the program.
	root.Flags().BoolVarP(&version, "version", "v", false, "version for weir")
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true
	for _, theme := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Serve:", []*cobra.Command{a.serveCommand(), a.initCommand(), a.validateCommand(), a.statusCommand(), a.doctorCommand(), a.settingsCommand(), a.schemaCommand(), a.authzCommand(), a.pluginCommand()}},
		{"Keep MCP servers (workloads):", []*cobra.Command{a.runCommand(), a.upCommand(), a.downCommand(), a.listCommand(), a.inspectCommand(), a.startCommand(), a.restartCommand(), a.stopCommand(), a.rmCommand(), a.logsCommand(), a.exportCommand(), a.groupCommand(), a.secretCommand(), a.stdioCommand()}},
		{"Talk to MCP servers:", []*cobra.Command{a.toolsCommand(), a.callCommand(), a.resourcesCommand(), a.readCommand(), a.promptsCommand(), a.promptCommand(), a.scriptCommand(), a.workflowCommand(), a.authCommand()}},
		{"Weir itself:", []*cobra.Command{a.versionCommand(), a.completionCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: theme.title, Title: theme.title})
		for _, cmd := range theme.commands {
			cmd.GroupID = theme.title
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommandGroupID("Weir itself:")
	return root
}

// errInterrupted is the error of a command that the user interrupted.
var errInterrupted = errors.New("interrupted")

// usageError is a mistake in the command line.
type usageError struct{ what string }

func (e *usageError) Error() string { return e.what }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// saidError carries an exit code for a failure that is already printed.
type saidError struct{ code int }

func (e *saidError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// end prints an error and returns its exit code.
func (a *app) end(cmd *cobra.Command, err error) int {
	said := new(saidError)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &said):
		return said.code
	}
	w := whyOf(cmd, err)
	if wantsJSON(cmd) {
		w.writeJSON(a.err)
		return w.exit
	}
	for line := range strings.Lines(w.said) {
		line = edge.Clean(strings.TrimSuffix(line, "\n"))
		if said, ok := strings.CutSuffix(line, w.Next); ok {
			line = said + a.paint(a.err, advice, w.Next)
		}
		fmt.Fprintf(a.err, "%s %s\n", a.paint(a.err, wrong, cmd.CommandPath()+":"), line)
	}
	connection, protocol := new(client.ConnectionError), new(client.ProtocolError)
	switch {
	case w.exit == exitUsage && w.usage:
		fmt.Fprintln(a.err, a.paint(a.err, dim, fmt.Sprintf("See `%s --help`.", cmd.CommandPath())))
	case errors.As(err, &connection):
		a.more(cmd, connection.Asks, connection.Body)
	case errors.As(err, &protocol):
		a.more(cmd, "", string(protocol.More))
	}
	return w.exit
}

// more prints what a server answered when it refused: which credential it asks
// for, and with -v its words.
func (a *app) more(cmd *cobra.Command, asks, body string) {
	if asks != "" {
		fmt.Fprintln(a.err, a.paint(a.err, dim, "The server asks for "+edge.Clean(asks)))
	}
	verbose := cmd.Flags().Lookup("verbose")
	switch body = strings.TrimSpace(edge.Clean(body)); {
	case verbose == nil || body == "":
	case verbose.Value.String() == "true":
		fmt.Fprintln(a.err, a.paint(a.err, dim, "The server said: "+body))
	default:
		fmt.Fprintln(a.err, a.paint(a.err, dim, "With -v you see what the server said."))
	}
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
	return usagef("name a command")
}

// flagError explains a flag that a command does not have, or one without a
// value.
func flagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.Name() == "serve" && len(words) > 0 {
		// What looks like a flag may be one of a command that starts a server.
		if _, wrong := urlOf(words[0]); wrong != nil {
			return usagef("%s", wrong)
		}
	}
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
