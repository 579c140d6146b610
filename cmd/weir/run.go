package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/clients"
	"github.com/weir-edge/weir/cmd/weir/workloads"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/workload"
)

func (a *app) runCommand() *cobra.Command {
	var x runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] [URL|IMAGE|PACKAGE|NAME|FILE.wasm] [-- COMMAND [ARG]...]",
		Short: "Start an MCP server and keep it, or an address for one elsewhere",
		Long: `Start an MCP server and keep it: a program of this machine that stands after --, in a
sandbox where the system has one, an image in a container, a package whose image is built
first (npx://, uvx://, go://: "weir build --help"), an address of your own for a server at a
URL, or what an entry of the registry describes ("weir registry --help"): a package of npm
or PyPI, an image, or a server at a URL. Arguments after -- take the place of the image's
command or of the entry's own, and what the entry needs is asked for, where there is a
terminal.

The URL that clients connect to is the last line of the output. The workload is there
until "weir stop" or "weir rm", and comes back with the manager. What its sandbox does not
hold, and how to get that, is a note on standard error.

A server at a URL that wants a login is logged in to in a browser; the manager has it
renewed. A package runner (npx, uvx) fetches its package into a directory of the workload's
own. A file that ends in .wasm is a server in WebAssembly, which needs no sandbox: it has
the directories, variables and memory that the flags give it, and asks the hosts that its
permission profile names, over HTTP. What is given by the flags stands in a manifest:
--dry-run prints it, "weir export" keeps it for another machine.

Exit codes: 2 wrong command line, 6 no such group, secret or entry, 7 the name or the port is
taken, 8 not supported yet, no sandbox as asked for or no container engine, 9 refused by a
rule, 42 the image cannot be built, 43 it cannot be had, 44 the server ended or did not
introduce itself in time, 45 somebody has to log in.`,
		Example: `  weir run -- npx -y @modelcontextprotocol/server-everything
  weir run --name files -v "$PWD":/data:ro -- npx -y @modelcontextprotocol/server-filesystem /data
  weir run --secret GITHUB_TOKEN,target=GITHUB_TOKEN --permission-profile network -- ./server
  weir run mcp/fetch
  weir run npx://@modelcontextprotocol/server-everything@2026.8.31
  weir run go://./cmd/server -- --verbose
  weir run ./server.wasm -v "$PWD":/data:ro
  weir run https://mcp.example.com/mcp --remote-auth
  weir run io.github.example/files -- /data
  weir run https://mcp.example.com/mcp --remote-auth-bearer-token-file token
  weir run --permission-profile hosts.json --isolate-network -- ./server
  weir run --print-profile --permission-profile network
  weir run --from-config files.yaml`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     a.registries().Complete,
		RunE:                  func(cmd *cobra.Command, args []string) error { return a.runWorkload(cmd, &x, args) },
	}
	x.add(a, cmd)
	if err := cmd.MarkFlagFilename("from-config", "yaml", "yml", "json"); err != nil {
		panic(err) // the flag was added in the line before
	}
	cmd.SetFlagErrorFunc(runFlagError)
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) { a.runHelp(cmd) })
	return cmd
}

// runWorkload makes the manifest and has it kept.
func (a *app) runWorkload(cmd *cobra.Command, x *runFlags, args []string) error {
	if err := x.read(a, cmd, args); err != nil {
		return err
	}
	if x.printed {
		for name := range x.Given {
			if name != "print-profile" && name != "permission-profile" {
				return usagef("--print-profile prints the profile alone: leave --%s out", name)
			}
		}
		if x.Server != "" || len(x.Args) > 0 {
			return usagef("--print-profile starts no server: leave it out")
		}
		return a.workloads().PrintProfile(x.PermissionProfile)
	}
	if err := clients.Check(x.Client); err != nil {
		return fmt.Errorf("--client: %w", err)
	}
	if x.wait <= 0 {
		return usagef("--wait %s: give a duration such as 60s", x.wait)
	}
	ctx, stop := untilSignal(cmd)
	defer stop()
	if !x.Given["from-config"] {
		if err := a.entry(ctx, cmd, x); err != nil {
			return interrupted(ctx, err)
		}
	}

	// A name of the server's own may be taken between the look and the run.
	for tries := 1; ; tries++ {
		made, err := a.made(ctx, x)
		if err != nil {
			return interrupted(ctx, err)
		}
		a.remark(cmd, made.Notes)
		if x.PrintResolvedOverlays {
			if err := a.printHidden(made.Plan.Servers[0].Backends[0].Workload); err != nil {
				return err
			}
		}
		if x.dryRun {
			return a.dryRun(made)
		}
		err = a.keepRunning(ctx, cmd, x, made)
		var taken *workload.Error
		if x.Given["from-config"] && errors.As(err, &taken) && taken.Code == workload.CodeTaken {
			err = ofConfig(err, x.fromConfig, made.Name)
		}
		if again := made.Derived && tries < 5 && errors.As(err, &taken) && taken.Code == workload.CodeTaken && taken.Field == "--name"; !again {
			return interrupted(ctx, err)
		}
	}
}

// ofConfig says of something that is taken what to do where a file says it, and not a flag.
func ofConfig(err error, file, name string) error {
	var taken *workload.Error
	if !errors.As(err, &taken) {
		return err
	}
	told := *taken
	switch told.Field {
	case "--name":
		told.Next = "change the name in " + file + ", or remove the other one first: weir rm " + name
	case "--proxy-port":
		told.Next = "change the port in " + file
	default:
		return err
	}
	return &told
}

// made makes the manifest, of the flags or of a file.
func (a *app) made(ctx context.Context, x *runFlags) (*workload.Made, error) {
	if x.Given["from-config"] {
		if err := x.onlyConfig(); err != nil {
			return nil, err
		}
		return a.imported(x)
	}
	names, err := a.workloadNames(ctx)
	if err != nil {
		return nil, err
	}
	x.Named = func(name string) bool { return slices.Contains(names, name) }
	m, err := workload.Manifest(x.Options)
	if err != nil {
		return nil, err
	}
	for _, text := range x.Env {
		if name, _, _ := strings.Cut(text, "="); sandbox.Risky(name) {
			m.Notes = append(m.Notes, workload.Note{Text: "--env: " + name + " has programs run code that their command does not name"})
		}
	}
	return m, nil
}

// workloadNames are the names of the workloads that there are. It starts no manager.
func (a *app) workloadNames(ctx context.Context) ([]string, error) {
	m, err := a.manager(ctx, false)
	if errors.Is(err, workload.ErrNoManager) {
		return a.workloads().Kept()
	}
	if err != nil {
		return nil, err
	}
	all, err := m.List(ctx)
	return workloads.Names(all), err
}

// maxConfig is how large a file of --from-config is read, in bytes; more is too large anyway.
const maxConfig = 4<<20 + 1

// imported makes the manifest of a file.
func (a *app) imported(x *runFlags) (*workload.Made, error) {
	if x.fromConfig == "" {
		return nil, usagef("--from-config: it is empty: name a file")
	}
	f, err := edge.OpenFile(x.fromConfig)
	if err != nil {
		return nil, usagef("--from-config: %s", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfig))
	if err != nil {
		return nil, fmt.Errorf("--from-config: %w", err)
	}
	m := &workload.Made{}
	if m.Manifest, m.Notes, err = workload.Import(x.fromConfig, data); err != nil {
		return nil, err
	}
	if x.Debug {
		if m.Manifest, err = workload.Debugged(m.Manifest); err != nil {
			return nil, err
		}
	}
	plan, notes, err := workload.Check(m.Manifest)
	if err != nil {
		return nil, err
	}
	m.Plan, m.Notes, m.Name = plan, append(m.Notes, notes...), plan.Servers[0].Name
	return m, nil
}

// remark says what is good to know, on standard error.
func (a *app) remark(cmd *cobra.Command, notes []workload.Note) {
	for _, n := range notes {
		fmt.Fprintf(a.err, "%s %s\n", a.paint(a.err, dim, cmd.CommandPath()+": note:"), edge.Clean(n.Text))
	}
}

// dryRun prints the manifest and the steps.
func (a *app) dryRun(m *workload.Made) error {
	steps := []string{"the workload is called " + m.Name}
	for _, s := range m.Secrets {
		steps = append(steps, "the secret "+secret.Ref{Name: s.Name, Key: s.Key}.String()+" is kept")
	}
	b := m.Plan.Servers[0].Backends[0]
	if w := b.Workload; w != nil {
		if w.Build != nil {
			steps = append(steps, "an image of "+w.Build.Source+" is built, where the container engine has none")
		}
		switch {
		case w.Form == compile.FormContainer:
			steps = append(steps, "a container of "+w.Image+" is started, by the first container engine that answers, with "+strings.Join(append([]string{"its command"}, w.Args...), " "))
		case w.Image != "":
			steps = append(steps, "the module "+w.Image+" is fetched, and started with "+strings.Join(append([]string{"its name"}, w.Args...), " "))
		default:
			steps = append(steps, "started: "+strings.Join(append([]string{w.Program}, w.Args...), " "))
		}
	} else {
		steps = append(steps, "calls go to "+b.URL)
	}
	if b.Login != nil && b.Login.BearerTokenPath == "" {
		steps = append(steps, "you log in there, where no login is kept")
	}
	if strings.Contains(string(m.Manifest), "\n  proxyPort:") {
		steps = append(steps, "clients come in at "+m.Plan.Doors[0].Listen)
	} else {
		host, _, _ := net.SplitHostPort(m.Plan.Doors[0].Listen)
		steps = append(steps, "clients come in at "+host+", at a port that the name gives")
	}
	for _, s := range steps { // a line each, also where a word of a stranger's has several
		fmt.Fprintf(a.out, "# %s\n", strings.Join(strings.Fields(edge.Clean(s)), " "))
	}
	_, err := a.out.Write(m.Manifest)
	return err
}

// keepRunning hands the manifest to the manager, or keeps it in the foreground. The user is
// asked for a login that the server wants, and for a password that the manager lacks.
func (a *app) keepRunning(ctx context.Context, cmd *cobra.Command, x *runFlags, made *workload.Made) error {
	if err := a.needed(ctx, made); err != nil {
		return err
	}
	if err := a.workloads().Buildable(ctx, made.Plan); err != nil {
		return err
	}
	keep := a.byManager
	if x.foreground {
		keep = a.inForeground
	}
	err := keep(ctx, cmd, x, made)
	if e := new(workload.Error); errors.As(err, &e) && e.Code == workload.CodeLocked && !x.foreground {
		switch handed := a.secrets().HandOver(ctx); {
		case handed == nil:
			x.ReplaceExisting = true
			err = keep(ctx, cmd, x, made)
		case errors.Is(handed, secret.ErrPassword) || ctx.Err() != nil:
			return handed
		} // else nobody knows it, and the workload waits for it
	}
	b := made.Plan.Servers[0].Backends[0]
	if !wantsLogin(err) || b.Login != nil && b.Login.BearerTokenPath != "" || b.Login == nil && (b.Outgoing.Authorizes() || x.Given["remote-auth"] || !a.attended()) {
		return err
	}
	if b.Login == nil { // nobody said so, but the server does
		if made.Manifest, err = workload.LoggedIn(made.Manifest); err != nil {
			return err
		}
	}
	if err := a.logIn(ctx, cmd, made.Manifest, made.Secrets); err != nil {
		return err
	}
	x.ReplaceExisting = true
	return keep(ctx, cmd, x, made)
}

// byManager hands the manifest to the manager.
func (a *app) byManager(ctx context.Context, cmd *cobra.Command, x *runFlags, made *workload.Made) error {
	m, err := a.manager(ctx, true)
	if err != nil {
		return err
	}
	if x.Given["group"] {
		if err := workloads.KnownGroup(ctx, m, x.Group); err != nil {
			return err
		}
	}
	undo, err := a.keepSecrets(ctx, made.Secrets)
	if err != nil {
		return err
	}
	o := outcome{Name: made.Name}
	steps := a.steps(cmd)
	err = m.Run(ctx, made.Manifest, x.ReplaceExisting, x.waiting(cmd, made.Plan), steps.Told(&o))
	steps.End()
	if refused(err) {
		err = errors.Join(err, undo())
	}
	if err == nil {
		a.include(cmd, x, made)
	} else if ctx.Err() != nil { // the manager goes on with what it has
		a.remark(cmd, []workload.Note{{Text: "weir status " + made.Name + " says what becomes of it, weir rm " + made.Name + " removes it"}})
	}
	a.clients().FollowManager(ctx, cmd, m, []string{made.Name})
	if err != nil {
		return err
	}
	if wantsJSON(cmd) {
		return printJSON(a.out, o, "")
	}
	_, err = fmt.Fprintln(a.out, edge.Clean(o.URL))
	return err
}

// include has the client that was named get the workload. What keeps it from that is said, and
// the workload runs all the same.
func (a *app) include(cmd *cobra.Command, x *runFlags, made *workload.Made) {
	if err := a.clients().Include(x.Client, made.Name, x.Group); err != nil {
		a.remark(cmd, []workload.Note{{Text: x.Client + " does not know of it: " + err.Error()}})
	}
}

// inForeground keeps the workload as long as this command runs.
func (a *app) inForeground(ctx context.Context, cmd *cobra.Command, x *runFlags, made *workload.Made) error {
	undo, err := a.keepSecrets(ctx, made.Secrets)
	if err != nil {
		return err
	}
	o := outcome{Name: made.Name}
	steps := a.steps(cmd)
	told := steps.Told(&o)
	running := false
	err = a.foreground(ctx, made.Manifest, x.ReplaceExisting, x.waiting(cmd, made.Plan), func(e workload.Event) {
		switch {
		case running && !wantsJSON(cmd): // what the server prints
			fmt.Fprintln(a.err, edge.Clean(e.Text))
		case !running:
			told(e)
		}
		if running || e.State != workload.Running {
			return
		}
		running = true
		a.include(cmd, x, made) // before the clients follow
		if steps.End(); wantsJSON(cmd) {
			_ = printJSON(a.out, o, "") // nobody reads what cannot be written
		} else {
			fmt.Fprintln(a.out, edge.Clean(o.URL))
		}
	})
	if !running {
		steps.End()
	}
	if refused(err) {
		err = errors.Join(err, undo())
	}
	return err
}

// refused reports whether a workload was not taken in at all, so that what was there before goes
// on.
func refused(err error) bool {
	var e *workload.Error
	return errors.As(err, &e) && (e.Unchanged || e.Code == workload.CodeTaken || e.Code == workload.CodeInvalid || e.Code == workload.CodeNotFound)
}

// replaced removes a workload that a manager keeps, where there is one.
func (a *app) replaced(ctx context.Context, name string) error {
	m, err := a.manager(ctx, false)
	if errors.Is(err, workload.ErrNoManager) {
		return nil
	}
	if err == nil {
		err = m.Remove(ctx, name, workload.RemoveOptions{Force: true, KeepImage: true, KeepVolumes: true}, func(workload.Event) {})
	}
	if known := new(workload.Error); errors.As(err, &known) && known.Code == workload.CodeNotFound {
		return nil
	}
	return err
}

// runnerWait is how long the first start of a package runner may take, which fetches, and that
// of a server whose image is built.
const runnerWait = 5 * time.Minute

// waiting is how long the server may take.
func (x *runFlags) waiting(cmd *cobra.Command, plan *compile.Plan) time.Duration {
	if w := plan.Servers[0].Backends[0].Workload; w != nil && !cmd.Flags().Changed("wait") {
		if w.Build != nil {
			return runnerWait
		}
		switch filepath.Base(w.Program) {
		case "npx", "uvx", "pipx", "bunx", "deno":
			return runnerWait
		}
	}
	return x.wait
}

// keepSecrets keeps the values that flags gave with the user's secrets, in the place of those of a
// workload of that name. undo puts these back.
func (a *app) keepSecrets(ctx context.Context, secrets []workload.Secret) (undo func() error, err error) {
	if len(secrets) == 0 {
		return func() error { return nil }, nil
	}
	p, err := a.secrets().Unlocked(ctx, "")
	if err != nil {
		return nil, err
	}
	values, before := map[secret.Ref]edge.Secret{}, map[secret.Ref]edge.Secret{}
	var added []secret.Ref
	for _, s := range secrets {
		r := secret.Ref{Name: s.Name, Key: s.Key}
		values[r] = s.Value
		switch old, err := p.Get(ctx, r); {
		case err == nil:
			before[r] = old
		case errors.Is(err, secret.ErrNowhere):
			added = append(added, r)
		default:
			return nil, err
		}
	}
	if err := p.Set(ctx, values); err != nil {
		return nil, fmt.Errorf("a secret of the command line is kept with your secrets: %w", err)
	}
	return func() error {
		ctx := context.WithoutCancel(ctx)
		var failed error
		if len(before) > 0 {
			failed = p.Set(ctx, before)
		}
		for _, r := range added {
			if err := p.Delete(ctx, r); err != nil && !errors.Is(err, secret.ErrNowhere) {
				failed = errors.Join(failed, err)
			}
		}
		if failed != nil {
			return fmt.Errorf("the secrets of the workload that goes on are not those of before: %w", failed)
		}
		return nil
	}, nil
}

// needed refuses a workload that needs a secret which is nowhere. Where the secrets are locked
// it is for whoever keeps the workload to say so: the manager may have the password.
func (a *app) needed(ctx context.Context, made *workload.Made) error {
	missing := slices.Clone(made.Plan.Needs)
	for _, s := range made.Secrets {
		missing = slices.DeleteFunc(missing, func(n compile.Need) bool { return n.Name == s.Name && n.Key == s.Key })
	}
	if len(missing) == 0 {
		return nil
	}
	o, _, locked, err := a.secrets().OfWorkloads(ctx, "", false)
	if err != nil || locked != nil {
		return err
	}
	all, err := secret.New(o)
	if err != nil {
		return err
	}
	for _, n := range missing {
		_, err := all.Secret(ctx, n.Name, n.Key)
		if err == nil {
			continue
		}
		name := secret.Ref{Name: n.Name, Key: n.Key}.String()
		if edge.KindOf(err) != edge.NotFound {
			return err
		}
		return &workload.Error{Code: workload.CodeNotFound, Field: n.Path, Message: fmt.Sprintf("there is no secret %s, which %s needs", name, n.Path), Next: "weir secret set " + name}
	}
	return nil
}
