// Package workloads has the commands on the workloads that are kept for a user: which there
// are (list.go), how one is (inspect.go, logs.go), what is done to some of them (start.go), the
// groups they are in (group.go), and how the other commands find one (served.go).
package workloads

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/near"
	"github.com/weir-edge/weir/edge/workload"
)

// Commands are the commands on workloads of a process.
type Commands struct {
	*cli.App

	// LogIn asks the user for the login that the manifest of a workload describes; false where
	// it describes none, or there is nobody to ask.
	LogIn func(ctx context.Context, cmd *cobra.Command, manifest []byte) (asked bool, err error)
	// Unlock gives the manager the password of the user's secrets, for which the user is asked
	// where need be.
	Unlock func(ctx context.Context) error
	// Reach is what the settings of the process allow to requests of its own.
	Reach func() (edge.Reach, error)
	// Follow has the configurations of MCP clients follow what was done to some workloads, or
	// to whatever ones where about is nil.
	Follow func(ctx context.Context, cmd *cobra.Command, m workload.Manager, about []string)
}

// Kept are the names of the workloads that are kept, by a look at their directories. What a
// process in the foreground left behind when it was killed is kept by nobody.
func (a *Commands) Kept() ([]string, error) {
	paths, err := a.Paths()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(paths.Workloads())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("workloads: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && workload.IsName(e.Name()) && !workload.Abandoned(filepath.Join(paths.Workloads(), e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// asleep is the error of a command that only looks, and finds no manager to ask.
func asleep() error {
	return &workload.Error{Code: workload.CodeFault, Message: "no manager of workloads runs", Next: "`weir up --detach` starts it, and the workloads with it"}
}

// looking finds the manager for a command that changes nothing, and so starts none.
func (a *Commands) looking(ctx context.Context) (workload.Manager, error) {
	m, err := a.Manager(ctx, false)
	if errors.Is(err, workload.ErrNoManager) {
		err = asleep()
	}
	return m, err
}

// Awake finds the manager for a command that needs what is kept to be served: it starts one
// where something is kept. Without a manager and without anything kept it is nil.
func (a *Commands) Awake(ctx context.Context) (workload.Manager, error) {
	m, err := a.Manager(ctx, false)
	if !errors.Is(err, workload.ErrNoManager) {
		return m, err
	}
	if kept, err := a.Kept(); err != nil || len(kept) == 0 {
		return nil, err
	}
	return a.Manager(ctx, true)
}

// CheckName refuses what can be no name of a workload.
func CheckName(name string) error {
	if name == "" || len(name) > 63 || strings.ContainsAny(name, ":/") {
		return cli.Usagef("%s is no name of a workload: `weir list -a` shows them", cli.Brief(name))
	}
	return nil
}

// NoWorkload is the error about a name that no workload has.
func NoWorkload(name string, all []workload.Status) error {
	return Missing("workload", name, Names(all), "`weir list -a` shows what there is")
}

// Missing is the error about a name that nothing has.
func Missing(what, name string, known []string, otherwise string) error {
	next := otherwise
	if _, hint := near.Hint(name, known); hint != "" {
		next = hint
	}
	return &workload.Error{Code: workload.CodeNotFound, Message: fmt.Sprintf("there is no %s %s", what, cli.Brief(name)), Next: next}
}

// Names are those of workloads.
func Names(all []workload.Status) (names []string) {
	for _, w := range all {
		names = append(names, w.Name)
	}
	return names
}

// selection says which workloads a command acts on, beside those that are named.
type selection struct {
	all     bool
	group   string
	lenient bool // names of no workload are no mistake
}

// add adds the flags, and the check that something is named, to a command.
func (s *selection) add(a *Commands, cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&s.all, "all", false, "act on all workloads")
	f.StringVar(&s.group, "group", "", "act on the workloads of group `GROUP`")
	f.BoolVar(&s.lenient, "ignore-missing", false, "a name that no workload has is no mistake")
	a.CompleteGroups(cmd, "group")
	cmd.ValidArgsFunction = a.Complete(true)
	cmd.Args = func(cmd *cobra.Command, names []string) error {
		if err := checkGroup(cmd); err != nil {
			return err
		}
		given := 0
		for _, is := range []bool{len(names) > 0, s.all, s.group != ""} {
			if is {
				given++
			}
		}
		switch given {
		case 0:
			return cli.Usagef("name a workload, or give --all or --group: `weir list -a` shows them")
		case 1:
			for _, name := range names {
				if err := CheckName(name); err != nil {
					return err
				}
			}
			return nil
		}
		return cli.Usagef("names, --all and --group are three ways to say what is meant: leave two out")
	}
}

// checkGroup refuses a --group that was given nothing, as by a variable of the shell that is not
// set: more would be meant than those of one group.
func checkGroup(cmd *cobra.Command) error {
	if f := cmd.Flags().Lookup("group"); f.Changed && f.Value.String() == "" {
		return cli.Usagef("--group: it is empty: name a group, or leave it out")
	}
	return nil
}

// of returns the workloads that are meant, and an error for each that is not there. m is nil
// where nothing is kept.
func (s *selection) of(ctx context.Context, m workload.Manager, names []string) (found []workload.Status, absent []error, err error) {
	var all []workload.Status
	if m != nil {
		if all, err = m.List(ctx); err != nil {
			return nil, nil, err
		}
	}
	if s.group != "" {
		if err := KnownGroup(ctx, m, s.group); err != nil {
			return nil, []error{err}, nil
		}
	}
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(all), func(w workload.Status) bool { return s.group != "" && w.Group != s.group }), nil, nil
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		if at := slices.IndexFunc(all, func(w workload.Status) bool { return w.Name == name }); at >= 0 {
			found = append(found, all[at])
		} else {
			absent = append(absent, NoWorkload(name, all))
		}
	}
	return found, absent, nil
}

// KnownGroup is the error about a group that there is not.
func KnownGroup(ctx context.Context, m workload.Manager, group string) error {
	names := []string{defaultGroup}
	if m != nil {
		groups, err := m.Groups(ctx)
		if err != nil {
			return err
		}
		for _, g := range groups {
			names = append(names, g.Name)
		}
	}
	if slices.Contains(names, group) {
		return nil
	}
	return Missing("group", group, names, "`weir group list` shows what there is")
}

// defaultGroup is the group of workloads that are in no other.
const defaultGroup = "default"

// atOnce is how many workloads a command acts on at a time.
const atOnce = 8

// act does one thing to every workload that is meant, also after it has failed with one, and
// says how each ended. already is the state of those that it need not be done to; "" for none.
func (a *Commands) act(cmd *cobra.Command, s *selection, names []string, already workload.State, do func(context.Context, workload.Manager, string, func(workload.Event)) error) error {
	ctx, stop := cli.UntilSignal(cmd)
	defer stop()
	m, err := a.Awake(ctx)
	if err != nil {
		return cli.Interrupted(ctx, err)
	}
	found, absent, err := s.of(ctx, m, names)
	if err != nil {
		return cli.Interrupted(ctx, err)
	}
	steps := a.Steps(cmd)
	done := make([]cli.Outcome, len(found))
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, w := range found {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			done[i] = cli.Outcome{Name: w.Name, Status: w.Status, URL: w.URL}
			if w.Status != already {
				done[i].Err = do(ctx, m, w.Name, steps.Told(&done[i]))
			}
		})
	}
	group.Wait()
	steps.End()
	if len(found) > 0 {
		a.Follow(ctx, cmd, m, Names(found))
	}
	return a.ended(ctx, cmd, s, done, absent)
}

// ended says how each workload ended, and returns the gravest error.
func (a *Commands) ended(ctx context.Context, cmd *cobra.Command, s *selection, done []cli.Outcome, absent []error) error {
	if len(done)+len(absent) == 0 && !cli.WantsJSON(cmd) {
		fmt.Fprintln(a.Err, "There are no workloads to act on.")
	}
	var codes []int
	for _, o := range done {
		if o.Err == nil {
			if err := a.showOutcome(cmd, o); err != nil {
				return err
			}
		} else if ctx.Err() == nil {
			codes = append(codes, a.Fail(cmd, about(o.Name, o.Err)))
		}
	}
	if ctx.Err() != nil {
		return cli.Interrupted(ctx, ctx.Err())
	}
	for _, err := range absent {
		if !s.lenient {
			codes = append(codes, a.Fail(cmd, err))
		}
	}
	if code := cli.Gravest(codes); code != cli.ExitOK {
		return cli.Said(code)
	}
	return nil
}

// about is an error of a manager about a workload, which names it and what to do next.
func about(name string, err error) error {
	e := workload.Error{Code: workload.CodeFault, Message: err.Error()}
	if known := new(workload.Error); errors.As(err, &known) {
		e = *known
	}
	e.Message = cli.Naming(name, e.Message)
	if e.Next == "" {
		e.Next = "`weir status " + name + "` says how it is"
	}
	return &e
}

// showOutcome prints how one workload ended.
func (a *Commands) showOutcome(cmd *cobra.Command, o cli.Outcome) error {
	if o.Status == removed {
		o.URL = ""
	}
	if cli.WantsJSON(cmd) {
		return cli.PrintJSON(a.Out, o, "")
	}
	text := o.Name + ": " + edge.Clean(string(o.Status))
	if o.Status == workload.Running && o.URL != "" {
		text += " at " + edge.Clean(o.URL)
	}
	_, err := fmt.Fprintln(a.Out, text)
	return err
}
