// Package clients has the commands on the configurations of MCP clients, and has these follow
// what is done to workloads. The configurations themselves are package apps.
package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/apps"
	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/cmd/weir/workloads"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/workload"
)

// Commands are the commands on clients of a process.
type Commands struct {
	*cli.App

	// Workloads are the commands on workloads of the same process.
	Workloads func() *workloads.Commands
}

// Command is `weir client`.
func (a *Commands) Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "client COMMAND",
		Short: "Have MCP clients of this machine know the workloads",
		Long: `Have MCP clients of this machine know the workloads: their configurations get an entry
for each, and the entries follow when workloads are started, stopped and removed.

Only entries that Weir wrote are changed: every other byte of a file stays, comments
too. What was there before the first change is kept beside it as NAME.weir.bak. An
entry that somebody has edited or removed since, and one of the same name that Weir
did not write, are left as they are and reported. No token is ever written.`,
		Example: `  weir client setup claude-code cursor
  weir client setup vscode --group work
  weir client status
  weir client remove cursor`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			var known []string
			for _, c := range cmd.Commands() {
				known = append(known, c.Name())
			}
			return cli.Usagef("no such command %q%s", args[0], cli.DidYouMean(args[0], known, "`weir client --help` lists them"))
		},
	}
	cmd.AddCommand(a.setupCommand(), a.removeCommand(), a.statusCommand(), a.appsCommand())
	return cmd
}

// Names are the names of clients that are known.
func Names() (names []string) {
	for _, one := range apps.All() {
		names = append(names, one.Name)
	}
	return names
}

// someApps wants the names of clients.
func someApps(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cli.Usagef("name a client: %s", strings.Join(Names(), ", "))
	}
	for i, name := range args {
		if !slices.Contains(Names(), name) {
			return cli.Usagef("there is no client %s%s", cli.Brief(name), cli.DidYouMean(name, Names(), "`weir client apps` lists those that there are"))
		}
		if slices.Contains(args[:i], name) {
			return cli.Usagef("%s is named twice", name)
		}
	}
	return nil
}

func completeApps(_ *cobra.Command, given []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return slices.DeleteFunc(Names(), func(name string) bool { return slices.Contains(given, name) || !strings.HasPrefix(name, word) }), cobra.ShellCompDirectiveNoFileComp
}

func (a *Commands) setupCommand() *cobra.Command {
	var scope apps.Scope
	cmd := &cobra.Command{
		Use:   "setup APP...",
		Short: "Write workloads into the configurations of clients",
		Long: `Write workloads into the configurations of clients, and have them follow from now on:
a workload has an entry from its start to "weir stop" or "weir rm". Without --group and
--workload a client gets all workloads, those that are made later too. The last setup
of a client says what it gets; what an earlier one gave it goes.

The clients are claude-code, claude-desktop, cursor, vscode, zed, windsurf, codex and
gemini-cli; "weir client apps" says which files these are. An entry is the URL of the
workload. Claude Desktop takes commands only, and gets "weir stdio NAME". Most clients
read their configuration at their start.

It ends with 7 when somebody else wrote an entry of the same name: the others are
written all the same. A file that cannot be read is left as it is, and named with the
line: it ends with 1.`,
		Example: `  weir client setup claude-code
  weir client setup cursor vscode --group work
  weir client setup codex --workload files --workload search
  weir client setup zed --format json`,
		Args:              someApps,
		ValidArgsFunction: completeApps,
		RunE: func(cmd *cobra.Command, names []string) error {
			ctx, stop := cli.UntilSignal(cmd)
			defer stop()
			m, err := a.managerFor(ctx, scope)
			if err != nil {
				return cli.Interrupted(ctx, err)
			}
			k, err := a.keeper()
			if err != nil {
				return err
			}
			reports, err := k.Setup(names, scope, func() ([]apps.Server, error) { return a.servers(ctx, m) })
			return a.reported(cmd, reports, err, true)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&scope.Groups, "group", nil, "only the workloads of group `GROUP`; may be repeated")
	f.StringArrayVar(&scope.Workloads, "workload", nil, "only the workload `NAME`; may be repeated")
	a.Workloads().CompleteGroups(cmd, "group")
	if err := cmd.RegisterFlagCompletionFunc("workload", a.Workloads().Complete(true)); err != nil {
		panic(err) // the flag was added in the lines before
	}
	cli.AddFormat(cmd, "text", "json")
	return cmd
}

func (a *Commands) removeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove APP...",
		Aliases: []string{"rm"},
		Short:   "Take workloads out of the configurations of clients",
		Long: `Take all entries that Weir wrote out of the configurations of clients, which follow no
longer. An entry that somebody has edited since is left, and reported: it is theirs
from now on.`,
		Example: `  weir client remove cursor
  weir client remove claude-code codex --format json`,
		Args:              someApps,
		ValidArgsFunction: completeApps,
		RunE: func(cmd *cobra.Command, names []string) error {
			k, err := a.keeper()
			if err != nil {
				return err
			}
			reports, err := k.Remove(names)
			if !cli.WantsJSON(cmd) {
				for _, name := range names {
					if err == nil && !slices.ContainsFunc(reports, func(r apps.Report) bool { return r.Client == name }) {
						fmt.Fprintf(a.Err, "%s was not set up.\n", name)
					}
				}
			}
			return a.reported(cmd, reports, err, true)
		},
	}
	cli.AddFormat(cmd, "text", "json")
	return cmd
}

func (a *Commands) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "status",
		Aliases: []string{"list", "ls"},
		Short:   "Show the clients that were set up, and their entries",
		Long: `Show the clients that were set up, and how each entry is: unchanged (as it has to be),
outdated ("weir client setup" mends it), edited or missing (somebody has changed or
removed it since; it is left so), taken (somebody else wrote an entry of this name).`,
		Example: `  weir client status
  weir client status --format json`,
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.UntilSignal(cmd)
			defer stop()
			k, err := a.keeper()
			if err != nil {
				return err
			}
			var servers []apps.Server
			m, err := a.Manager(ctx, false)
			known := err == nil
			if known {
				servers, err = a.servers(ctx, m)
			}
			if err != nil && !errors.Is(err, workload.ErrNoManager) {
				return cli.Interrupted(ctx, err)
			}
			reports, err := k.Status(servers, known)
			if err == nil && len(reports) == 0 && !cli.WantsJSON(cmd) {
				fmt.Fprintln(a.Err, "No client was set up: `weir client setup APP` does it, and `weir client apps` lists them.")
				return nil
			}
			return a.reported(cmd, reports, err, false)
		},
	}
	cli.AddFormat(cmd, "text", "json")
	return cmd
}

// known is a client, for people and programs.
type known struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	File  string `json:"file"` // "" where there is no such program for this system
	There bool   `json:"there"`
}

func (a *Commands) appsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apps",
		Short: "List the clients that can be set up, and their files",
		Long: `List the clients that can be set up ("weir client setup"), the files of their
configurations on this machine, and whether each file is there.`,
		Example: `  weir client apps
  weir client apps --format json`,
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := a.keeper()
			if err != nil {
				return err
			}
			rows := [][]string{{"NAME", "CLIENT", "THERE", "FILE"}}
			var all []known
			for _, one := range apps.All() {
				c := known{Name: one.Name, Title: one.Title}
				row := []string{one.Name, one.Title, "no", ""}
				if c.File, err = one.File(k.Place); err != nil {
					row[3] = "(" + err.Error() + ")"
				} else if row[3] = c.File; exists(c.File) {
					c.There, row[2] = true, "yes"
				}
				all, rows = append(all, c), append(rows, row)
			}
			if cli.WantsJSON(cmd) {
				return cli.PrintJSON(a.Out, all, "  ")
			}
			return show.Table(a.Out, rows)
		},
	}
	cli.AddFormat(cmd, "text", "json")
	return cmd
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// keeper keeps the entries in configurations of clients.
func (a *Commands) keeper() (*apps.Keeper, error) {
	paths, err := a.Paths()
	if err != nil {
		return nil, err
	}
	weir, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("where weir itself is: %w", err)
	}
	// A program of a desktop has not the environment of a terminal, where these may be set.
	env := map[string]string{}
	for _, name := range []string{"WEIR_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"} {
		if value, _ := a.Lookup(name); value != "" {
			env[name] = value
		}
	}
	return &apps.Keeper{Dir: paths.State, Place: apps.Place{System: runtime.GOOS, Lookup: a.Lookup, Program: weir, Env: env}}, nil
}

// ServerOf is a workload, for clients.
func ServerOf(w workload.Status) apps.Server {
	s := apps.Server{Name: w.Name, URL: workloads.Endpoint(w.URL), Group: w.Group, Wish: apps.On}
	switch w.Status {
	case workload.Stopped, workload.Stopping, workload.Removing:
		s.Wish = apps.Off
	case workload.Unknown:
		s.Wish = apps.Unknown
	}
	if w.URL == "" && s.Wish == apps.On {
		s.Wish = apps.Unknown
	}
	return s
}

// servers are all workloads, for clients. m is nil where nothing is kept.
func (a *Commands) servers(ctx context.Context, m workload.Manager) (servers []apps.Server, err error) {
	var all []workload.Status
	if m != nil {
		if all, err = m.List(ctx); err != nil {
			return nil, err
		}
	}
	for _, w := range all {
		servers = append(servers, ServerOf(w))
	}
	kept, err := a.Workloads().Kept()
	for _, name := range kept { // such as one that another process keeps in the foreground
		if !slices.ContainsFunc(servers, func(s apps.Server) bool { return s.Name == name }) {
			servers = append(servers, apps.Server{Name: name, Wish: apps.Unknown})
		}
	}
	return servers, err
}

// managerFor is the manager, nil where nothing is kept. The error names a group or a workload of
// the scope that there is not.
func (a *Commands) managerFor(ctx context.Context, scope apps.Scope) (workload.Manager, error) {
	m, err := a.Workloads().Awake(ctx)
	if err != nil {
		return nil, err
	}
	servers, err := a.servers(ctx, m)
	if err != nil {
		return nil, err
	}
	for _, group := range scope.Groups {
		if err := workloads.KnownGroup(ctx, m, group); err != nil {
			return nil, err
		}
	}
	var names []string
	for _, s := range servers {
		names = append(names, s.Name)
	}
	for _, name := range scope.Workloads {
		if !slices.Contains(names, name) {
			return nil, workloads.Missing("workload", name, names, "`weir list -a` shows what there is")
		}
	}
	return m, nil
}

// Check says whether there is a client of a name; no name is well.
func Check(name string) error {
	if name == "" {
		return nil
	}
	return someApps(nil, []string{name})
}

// Include has a client get one more workload, from the next Follow on; no client is well.
func (a *Commands) Include(client, workload, group string) error {
	if client == "" {
		return nil
	}
	k, err := a.keeper()
	if err != nil {
		return err
	}
	return k.Include(client, apps.Server{Name: workload, Group: group})
}

// followWithin is how long the clients may take to follow a command.
const followWithin = 20 * time.Second

// Follow has the clients that were set up follow what a command did, and returns what was left
// as somebody has it, and what failed: the command has done its work all the same. about are
// the workloads that it was about, since what is left of others was said before; nil for all.
func (a *Commands) Follow(ctx context.Context, about []string, list func(context.Context) ([]apps.Server, error), whole bool) (notes []string) {
	k, err := a.keeper()
	if err != nil || !k.Any() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), followWithin)
	defer cancel()
	reports, err := k.Follow(func() ([]apps.Server, error) { return list(ctx) }, whole)
	for _, r := range reports {
		if r.Err != nil {
			notes = append(notes, r.Client+" does not know of it: "+advised(r.Err))
		}
		for _, e := range r.Entries {
			if e.Done.Left() && (about == nil || slices.Contains(about, e.Server)) {
				notes = append(notes, leftText(r, e))
			}
		}
	}
	if err != nil {
		notes = append(notes, "the clients do not know of it: "+advised(err))
	}
	return notes
}

// FollowManager is Follow after something was done to workloads of a manager.
func (a *Commands) FollowManager(ctx context.Context, cmd *cobra.Command, m workload.Manager, about []string) {
	notes := a.Follow(ctx, about, func(ctx context.Context) ([]apps.Server, error) { return a.servers(ctx, m) }, true)
	for _, text := range notes {
		if !cli.WantsJSON(cmd) {
			fmt.Fprintf(a.Err, "%s %s\n", a.Paint(a.Err, cli.Dim, cmd.CommandPath()+": note:"), edge.Clean(text))
		}
	}
}

// advised is an error with what to do about it.
func advised(err error) string {
	if known := new(apps.Error); errors.As(err, &known) && known.Next != "" {
		return known.Error() + ": " + known.Next
	}
	return err.Error()
}

// leftText says what is left of an entry, and what to do.
func leftText(r apps.Report, e apps.Entry) string {
	place := r.File
	if e.Line > 0 {
		place = fmt.Sprintf("%s:%d", r.File, e.Line)
	}
	switch e.Done {
	case apps.Edited:
		return fmt.Sprintf("%s: the entry %s was edited, and is left as it is: %s", r.Client, e.Server, place)
	case apps.Missing:
		return fmt.Sprintf("%s: the entry %s was removed by somebody, and stays so: `weir client setup %s` writes it again", r.Client, e.Server, r.Client)
	}
	return fmt.Sprintf("%s: Weir did not write the entry %s, and leaves it: %s", r.Client, e.Server, place)
}

// reported prints what became of clients, and returns the gravest error. did says that
// something was done to them.
func (a *Commands) reported(cmd *cobra.Command, reports []apps.Report, err error, did bool) error {
	var codes []int
	rows := [][]string{{"CLIENT", "WORKLOAD", "ENTRY", "FILE"}}
	for i, r := range reports {
		for _, e := range r.Entries {
			rows = append(rows, []string{r.Client, e.Server, string(e.Done), r.File})
			if e.Done == apps.Taken && did {
				codes = append(codes, a.Fail(cmd, &workload.Error{Code: workload.CodeTaken, Message: leftText(r, e), Next: "rename or remove it there, or run the workload under another name"}))
			} else if e.Done.Left() && did && !cli.WantsJSON(cmd) {
				fmt.Fprintf(a.Err, "%s %s\n", a.Paint(a.Err, cli.Dim, cmd.CommandPath()+": note:"), edge.Clean(leftText(r, e)))
			}
		}
		if r.Err != nil {
			codes = append(codes, a.Fail(cmd, failure(r.Err)))
		} else if len(r.Entries) == 0 {
			rows = append(rows, []string{r.Client, "-", "-", r.File})
			reports[i].Entries = []apps.Entry{}
		}
	}
	reports = slices.DeleteFunc(reports, func(r apps.Report) bool { return r.Err != nil })
	var failed error
	switch {
	case cli.WantsJSON(cmd) && err == nil:
		if reports == nil {
			reports = []apps.Report{}
		}
		failed = cli.PrintJSON(a.Out, reports, "  ")
	case !cli.WantsJSON(cmd) && len(rows) > 1:
		failed = show.Table(a.Out, rows)
	}
	if err != nil {
		codes = append(codes, a.Fail(cmd, failure(err)))
	}
	if code := cli.Gravest(codes); failed == nil && code != cli.ExitOK {
		return cli.Said(code)
	}
	return failed
}

// failure is an error about the configuration of a client, as commands end with it.
func failure(err error) error {
	known := new(apps.Error)
	if !errors.As(err, &known) {
		return err
	}
	code := workload.CodeFault
	if known.Kind == apps.Absent {
		code = workload.CodeInvalid
	}
	return &workload.Error{Code: code, Message: known.Error(), Next: known.Next}
}
