package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/near"
	"github.com/weir-edge/weir/edge/workload"
)

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
	c, err := workload.Dial(ctx, paths.Socket())
	if start && errors.Is(err, workload.ErrNoManager) {
		c, err = a.startManager(ctx, paths)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// paths are the directories of what is kept for the user.
func (a *app) paths() (workload.Paths, error) {
	return workload.PathsOf(func(name string) (string, bool) { return lookup(a.environ, name) })
}

// kept are the names of the workloads that are kept, by a look at their directories.
func (a *app) kept() ([]string, error) {
	paths, err := a.paths()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(paths.Workloads())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("workloads: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && plainName.MatchString(e.Name()) {
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
func (a *app) looking(ctx context.Context) (workload.Manager, error) {
	m, err := a.manager(ctx, false)
	if errors.Is(err, workload.ErrNoManager) {
		err = asleep()
	}
	return m, err
}

// awake finds the manager for a command that needs what is kept to be served: it starts one
// where something is kept. Without a manager and without anything kept it is nil.
func (a *app) awake(ctx context.Context) (workload.Manager, error) {
	m, err := a.manager(ctx, false)
	if !errors.Is(err, workload.ErrNoManager) {
		return m, err
	}
	if kept, err := a.kept(); err != nil || len(kept) == 0 {
		return nil, err
	}
	return a.manager(ctx, true)
}

// untilSignal is a context of a command that ends when the user interrupts it; a second signal
// ends the process.
func untilSignal(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// checkWorkloadName refuses what can be no name of a workload.
func checkWorkloadName(name string) error {
	if name == "" || strings.ContainsAny(name, ":/") {
		return usagef("%s is no name of a workload: `weir list -a` shows them", brief(name))
	}
	return nil
}

// noWorkload is the error about a name that no workload has.
func noWorkload(name string, all []workload.Status) error {
	return missing("workload", name, namesOfWorkloads(all), "`weir list -a` shows what there is")
}

// missing is the error about a name that nothing has.
func missing(what, name string, known []string, otherwise string) error {
	next := otherwise
	if _, hint := near.Hint(name, known); hint != "" {
		next = hint
	}
	return &workload.Error{Code: workload.CodeNotFound, Message: fmt.Sprintf("there is no %s %s", what, brief(name)), Next: next}
}

func namesOfWorkloads(all []workload.Status) (names []string) {
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
func (s *selection) add(a *app, cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&s.all, "all", false, "act on all workloads")
	f.StringVar(&s.group, "group", "", "act on the workloads of group `GROUP`")
	f.BoolVar(&s.lenient, "ignore-missing", false, "a name that no workload has is no mistake")
	a.completeGroups(cmd, "group")
	cmd.ValidArgsFunction = a.completeWorkloads(true)
	cmd.Args = func(_ *cobra.Command, names []string) error {
		given := 0
		for _, is := range []bool{len(names) > 0, s.all, s.group != ""} {
			if is {
				given++
			}
		}
		switch given {
		case 0:
			return usagef("name a workload, or give --all or --group: `weir list -a` shows them")
		case 1:
			for _, name := range names {
				if err := checkWorkloadName(name); err != nil {
					return err
				}
			}
			return nil
		}
		return usagef("names, --all and --group are three ways to say what is meant: leave two out")
	}
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
		if err := knownGroup(ctx, m, s.group); err != nil {
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
			absent = append(absent, noWorkload(name, all))
		}
	}
	return found, absent, nil
}

// knownGroup is the error about a group that there is not.
func knownGroup(ctx context.Context, m workload.Manager, group string) error {
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
	return missing("group", group, names, "`weir group list` shows what there is")
}

// defaultGroup is the group of workloads that are in no other.
const defaultGroup = "default"

// atOnce is how many workloads a command acts on at a time.
const atOnce = 8

// outcome is how acting on one workload ended.
type outcome struct {
	Name   string         `json:"name"`
	Status workload.State `json:"status"`
	URL    string         `json:"url,omitempty"`

	err error
}

// act does one thing to every workload that is meant, also after it has failed with one, and
// says how each ended. already is the state of those that it need not be done to; "" for none.
func (a *app) act(cmd *cobra.Command, s *selection, names []string, already workload.State, do func(context.Context, workload.Manager, string, func(workload.Event)) error) error {
	ctx, stop := untilSignal(cmd)
	defer stop()
	m, err := a.awake(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	found, absent, err := s.of(ctx, m, names)
	if err != nil {
		return interrupted(ctx, err)
	}
	steps := a.steps(cmd)
	done := make([]outcome, len(found))
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, w := range found {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			done[i] = outcome{Name: w.Name, Status: w.Status, URL: w.URL}
			if w.Status != already {
				done[i].err = do(ctx, m, w.Name, steps.told(&done[i]))
			}
		})
	}
	group.Wait()
	steps.end()
	return a.ended(ctx, cmd, s, done, absent)
}

// ended says how each workload ended, and returns the gravest error.
func (a *app) ended(ctx context.Context, cmd *cobra.Command, s *selection, done []outcome, absent []error) error {
	if len(done)+len(absent) == 0 && !wantsJSON(cmd) {
		fmt.Fprintln(a.err, "There are no workloads to act on.")
	}
	var codes []int
	for _, o := range done {
		if o.err == nil {
			if err := a.showOutcome(cmd, o); err != nil {
				return err
			}
		} else if ctx.Err() == nil {
			codes = append(codes, a.end(cmd, about(o.Name, o.err)))
		}
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	for _, err := range absent {
		if !s.lenient {
			codes = append(codes, a.end(cmd, err))
		}
	}
	if code := gravest(codes); code != exitOK {
		return &saidError{code}
	}
	return nil
}

// about is an error of a manager about a workload, which names it and what to do next.
func about(name string, err error) error {
	e := workload.Error{Code: workload.CodeFault, Message: err.Error()}
	if known := new(workload.Error); errors.As(err, &known) {
		e = *known
	}
	inName := func(r rune) bool {
		return r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	if words := strings.FieldsFunc(e.Message, func(r rune) bool { return !inName(r) }); !slices.Contains(words, name) {
		e.Message = name + ": " + e.Message
	}
	if e.Next == "" {
		e.Next = "`weir status " + name + "` says how it is"
	}
	return &e
}

// showOutcome prints how one workload ended.
func (a *app) showOutcome(cmd *cobra.Command, o outcome) error {
	if o.Status == removed {
		o.URL = ""
	}
	if wantsJSON(cmd) {
		return printJSON(a.out, o, "")
	}
	text := o.Name + ": " + edge.Clean(string(o.Status))
	if o.Status == workload.Running && o.URL != "" {
		text += " at " + edge.Clean(o.URL)
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}
