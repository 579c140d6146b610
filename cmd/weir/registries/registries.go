// Package registries has the commands on registries of MCP servers: which one is used (set.go),
// what is in it (list.go, info.go), and what makes one format of another (convert.go).
package registries

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/local"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/registry"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/workload"
)

// Commands are the commands on registries of a process.
type Commands struct {
	*cli.App

	// Reach is what the settings of the process allow to requests of its own.
	Reach func() (edge.Reach, error)
}

// Command is `weir registry`.
func (a *Commands) Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "registry COMMAND",
		Short: "Use a registry of MCP servers",
		Long: `Use a registry of MCP servers, which "weir run NAME" and "weir search" look names up
in. Without a choice it is ` + registry.Default + `.

What is read of a registry at a URL is kept for a day, and used for longer while the
registry cannot be reached, which is said. A file or a directory is read each time.

An entry is a stranger's. It chooses a package, an image or a URL, arguments, variables
and the public hosts that it is let out to, and no more: no mounts of this machine, no
privileges, no proxy, and no URL that is not of the public internet.

Exit codes: 0 done, 1 the registry cannot be read, 2 wrong command line, 6 no such
entry.`,
		Example: `  weir registry list
  weir registry info io.github.example/files
  weir registry set ./servers
  weir registry set https://registry.example.com`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			var known []string
			for _, c := range cmd.Commands() {
				known = append(known, c.Name())
			}
			return cli.Usagef("no such command %s%s", cli.Brief(args[0]), cli.DidYouMean(args[0], known, "`weir registry --help` lists them"))
		},
	}
	cmd.AddCommand(a.list(), a.info(), a.update(), a.set(), a.unset(), a.convert())
	return cmd
}

// rules are what entries of a registry are judged by.
func rules(r *registry.Registry) registry.Rules {
	return registry.Rules{Risky: sandbox.Risky, Source: r.Source}
}

// Rules are rules for what is to be started here: an image needs a container engine, which is
// looked for once and only where there is one.
func (a *Commands) Rules(ctx context.Context, r *registry.Registry) registry.Rules {
	all := rules(r)
	all.Engine = sync.OnceValue(func() error {
		e, err := local.Engine(ctx, a.Paths, a.Lookup)
		if err != nil {
			return errors.New("no container engine answers")
		}
		e.Close()
		return nil
	})
	return all
}

// Open opens the user's registry, and says on standard error what is to be known of it.
// refresh asks the registry even where what is kept is new.
func (a *Commands) Open(ctx context.Context, cmd *cobra.Command, refresh bool) (*registry.Registry, error) {
	paths, err := a.Paths()
	if err != nil {
		return nil, err
	}
	source, _, err := Chosen(paths)
	if err != nil {
		return nil, err
	}
	return a.open(ctx, cmd, paths, source, refresh)
}

func (a *Commands) open(ctx context.Context, cmd *cobra.Command, paths workload.Paths, source registry.Source, refresh bool) (*registry.Registry, error) {
	reach, err := a.Reach()
	if err != nil {
		return nil, err
	}
	steps := a.Steps(cmd)
	shown := time.Now()
	r, err := registry.Open(ctx, registry.Options{Source: source, Cache: paths.Cache, Reach: reach, Refresh: refresh, Told: func(entries int) {
		if now := time.Now(); now.Sub(shown) >= time.Second {
			shown = now
			steps.Show(fmt.Sprintf("reading the registry %s: %s", source, edge.Count(entries, "server")))
		}
	}})
	steps.End()
	if err != nil {
		return nil, err
	}
	if r.Stale != nil && !refresh { // whoever asked the registry is told by an error
		a.note(cmd, "the registry %s cannot be read now (%s): what was kept %s ago is used", source, edge.Brief(r.Stale.Error()), age(time.Since(r.Fetched)))
	}
	if r.Unkept != nil {
		a.note(cmd, "what was read of the registry is not kept: %s", edge.Brief(r.Unkept.Error()))
	}
	return r, nil
}

// note says something on standard error.
func (a *Commands) note(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintf(a.Err, "%s %s\n", a.Paint(a.Err, cli.Dim, cmd.CommandPath()+": note:"), edge.Clean(fmt.Sprintf(format, args...)))
}

// age is a length of time for people.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "less than a minute"
	case d < time.Hour:
		return edge.Count(int(d.Minutes()), "minute")
	case d < 48*time.Hour:
		return edge.Count(int(d.Hours()), "hour")
	}
	return edge.Count(int(d.Hours()/24), "day")
}

// with is what commands have that look into the registry.
func (a *Commands) with(cmd *cobra.Command, do func(r *registry.Registry) error) error {
	ctx, stop := cli.UntilSignal(cmd)
	defer stop()
	r, err := a.Open(ctx, cmd, false)
	if err == nil {
		err = do(r)
	}
	return cli.Interrupted(ctx, Problem(err))
}

// Complete completes the names of entries, by what is kept or in files: no registry is asked
// for it.
func (a *Commands) Complete(_ *cobra.Command, args []string, begun string) (names []string, _ cobra.ShellCompDirective) {
	paths, err := a.Paths()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if source, _, err := Chosen(paths); err == nil {
		if r, err := registry.Kept(source, paths.Cache); err == nil {
			names = r.Complete(begun, maxCompleted)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// maxCompleted is how many names a completion offers.
const maxCompleted = 200

// oneEntry takes the name of an entry, or nothing.
func oneEntry(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return cli.Usagef("%s is one word too many: give the name of one entry", cli.Brief(args[1]))
	}
	return nil
}

// MayBeEntry reports whether a word before -- may name an entry of a registry: it is no URL,
// no path, and no image with a tag or a digest.
func MayBeEntry(word string) bool {
	return word != "" && !strings.ContainsAny(word, ":@\\") && !strings.HasPrefix(word, ".") && !strings.HasPrefix(word, "/") && !strings.HasPrefix(word, "-")
}

// Problem is an error of a registry as one of a command line.
func Problem(err error) error {
	var e *registry.Error
	if !errors.As(err, &e) {
		return err
	}
	code := map[registry.Kind]workload.Code{
		registry.Broken: workload.CodeFault, registry.Invalid: workload.CodeInvalid, registry.NotFound: workload.CodeNotFound, registry.Refused: workload.CodeRefused, registry.Later: workload.CodeSandbox,
	}[e.Kind]
	return &workload.Error{Code: code, Field: e.Field, Message: err.Error(), Next: e.Next}
}

// away is the error of a command that wants the registry itself, and not what is kept of it;
// nil where it was read.
func away(r *registry.Registry) error {
	if r.Stale == nil {
		return nil
	}
	return &workload.Error{
		Code: workload.CodeFault, Next: "try again later",
		Message: fmt.Sprintf("the registry %s cannot be read now (%s): what was kept %s ago stays", r.Source, edge.Brief(r.Stale.Error()), age(time.Since(r.Fetched))),
	}
}

var errNone = errors.New("there is nothing to read at standard input: name a file")
