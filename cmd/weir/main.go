// Command weir is the edge: it serves, checks and explains configurations, and
// talks to MCP servers from a terminal.
//
// main.go holds the process and its exit codes; every other file is one
// command, or serves several: settings.go the settings of the process,
// remote.go and client/ the connection to a server, show/ what is printed of
// one. What "weir doctor" looks at is in doctor/.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/plugin"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/workload"
)

func main() {
	log.SetOutput(io.Discard) // HTTP libraries quote there what a peer sends unasked, which may be a secret
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

	said     *cli.Queue  // before err, where the process serves; nil elsewhere
	managed  managed     // in place of the manager of the user; nil for that
	password edge.Secret // of the user's secrets, once it is known
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
	code := a.shared().Fail(cmd, err)
	if a.said != nil {
		a.said.Close(exitWait)
	}
	return code
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
for, 9 refused by a rule, 42 an image cannot be built, 43 it cannot be had,
44 the server ended or did not introduce itself in time, 45 a login is needed;
for 10 to 41 see "weir doctor --help".`,
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
		// Cobra's own errors about them, which come later, are not known to be of the command line.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
				return usagef("%s", err)
			}
			return nil
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
	w := a.workloads()
	for _, theme := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Serve:", []*cobra.Command{a.serveCommand(), a.initCommand(), a.validateCommand(), a.statusCommand(), a.doctorCommand(), a.settingsCommand(), a.schemaCommand(), a.authzCommand(), plugin.Command(a.shared())}},
		{"Keep MCP servers (workloads):", []*cobra.Command{a.runCommand(), a.upCommand(), a.downCommand(), w.Build(), w.List(), w.Inspect(), w.Start(), w.Restart(), w.Stop(), w.Remove(), w.Logs(), a.exportCommand(), w.Group(), w.Egress(), a.secrets().Command(), a.registries().Command(), a.registries().Search(), a.clients().Command(), a.stdioCommand()}},
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
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() == "help" { // Cobra's own ends with 0 when there is nothing to explain
			help.Example = "  weir help run\n  weir help group create"
			help.Args = func(_ *cobra.Command, args []string) error {
				if _, _, err := root.Find(args); err != nil {
					return unknownCommand(root, args)
				}
				return nil
			}
		}
	}
	return root
}

// managed finds a manager of workloads. Where none runs the error is workload.ErrNoManager,
// unless start says to start one.
type managed func(ctx context.Context, start bool) (workload.Manager, error)

// manager finds the manager of the user's workloads; see managed.
func (a *app) manager(ctx context.Context, start bool) (workload.Manager, error) {
	if a.managed != nil {
		return a.managed(ctx, start)
	}
	paths, err := a.paths()
	if err != nil {
		return nil, err
	}
	c, err := workload.Find(ctx, paths)
	if start && errors.Is(err, workload.ErrNoManager) {
		c, err = a.startManager(ctx, paths)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
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
	if letter, unknown := strings.CutPrefix(err.Error(), "unknown shorthand flag: "); unknown {
		return usagef("no such flag: %s: `%s --help` lists them", letter, cmd.CommandPath())
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
