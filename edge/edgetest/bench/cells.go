package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// bench is one run of the benchmark.
type bench struct {
	options
	dir    string // temporary
	log    io.Writer
	report *report
}

// run runs the cases that are wanted, each to its end or its first failure.
func (b *bench) run(ctx context.Context) {
	for _, c := range []struct {
		name string
		run  func(context.Context)
	}{
		{"cells", b.runCells}, {"p4", b.runCounts}, {"p6", b.runLists}, {"p7", b.runGrowth},
		{"p8", b.runMemory}, {"p9", b.runStart}, {"p10", b.runGuests}, {"p13", b.runTokens}, {"p14", b.runOverload},
	} {
		if ctx.Err() == nil && (c.name == "cells" || b.wants(c.name)) {
			c.run(ctx)
		}
	}
}

func (b *bench) fail(what string, err error) {
	b.report.failures = append(b.report.failures, fmt.Sprintf("%s: %v", what, err))
	b.say("%s FAILED: %v", what, err)
}

func (b *bench) say(format string, args ...any) { fmt.Fprintf(b.log, format+"\n", args...) }

// cell is one load: who calls, what answers, how, over how many connections.
type cell struct {
	client, backend kit.Era
	answer          string // json or sse
	conns           int
	chain           bool // through filters: see chained
}

func (c cell) String() string {
	plural := "s"
	if c.conns == 1 {
		plural = ""
	}
	filters := ""
	if c.chain {
		filters = ", " + chained
	}
	return fmt.Sprintf("%s client, %s backend, %s, %d connection%s%s", c.client, c.backend, c.answer, c.conns, plural, filters)
}

// The targets of a cell, in the order in which the table shows them.
const (
	direct = "direct"
	bare   = "bare"
	weir   = "edge"
	other  = "other edge" // see --against
)

// measurement is what a cell gave: for each target a figure per round.
type measurement struct {
	cell
	calls   int
	figures map[string][]figure
}

// beside is how many times as much of something the edge took as the other edge,
// as the median of the rounds.
func (m *measurement) beside(of func(figure) float64) float64 {
	var ratios []float64
	for i, f := range m.figures[weir] {
		ratios = append(ratios, of(f)/of(m.figures[other][i]))
	}
	slices.Sort(ratios)
	return (ratios[(len(ratios)-1)/2] + ratios[len(ratios)/2]) / 2
}

// wantedCells are the cells that the wanted cases read.
func (b *bench) wantedCells() []cell {
	var cells []cell
	add := func(c cell) {
		if !slices.Contains(cells, c) {
			cells = append(cells, c)
		}
	}
	for _, e := range []kit.Era{kit.Modern, kit.Legacy} {
		if b.wants("p1") {
			add(cell{e, e, "json", 8, false})
			if !b.quick {
				add(cell{e, e, "sse", 8, false})
				add(cell{e, e, "json", 64, false})
			}
		}
		if b.wants("p5") || b.wants("p1") && !b.quick {
			add(cell{e, e, "json", 1, false})
		}
	}
	if b.wants("p3") && !b.floors {
		add(cell{kit.Legacy, kit.Modern, "json", 8, false})
		add(cell{kit.Modern, kit.Legacy, "json", 8, false})
	}
	if b.wants("p2") && !b.floors {
		add(cell{kit.Modern, kit.Modern, "json", 8, true})
	}
	return cells
}

// runCells measures the cells of P1, P2, P3 and P5.
func (b *bench) runCells(ctx context.Context) {
	for _, c := range b.wantedCells() {
		if ctx.Err() != nil {
			return
		}
		m, err := b.measure(ctx, c)
		if err != nil {
			b.fail(c.String(), err)
			continue
		}
		b.report.cells = append(b.report.cells, m)
	}
}

// measure puts the load of a cell on its targets, round after round. The
// floors of a cell of two eras are those of its client's: what passes a message
// through cannot translate it.
func (b *bench) measure(ctx context.Context, c cell) (*measurement, error) {
	// 1. the processes
	floor, err := b.startBackend(ctx, c.client, c.answer)
	if err != nil {
		return nil, err
	}
	defer floor.Stop()
	pass, err := startHelper(ctx, b.procs, "bare", "--backend", floor.Addr)
	if err != nil {
		return nil, err
	}
	defer pass.Stop()
	targets := []*target{{name: direct, Process: floor.Process}, {name: bare, Process: pass.Process}}
	if !b.floors {
		behind := floor
		if c.backend != c.client {
			if behind, err = b.startBackend(ctx, c.backend, c.answer); err != nil {
				return nil, err
			}
			defer behind.Stop()
		}
		e, token, stop, err := b.startCell(ctx, c, behind.Addr)
		if err != nil {
			return nil, err
		}
		defer stop()
		targets = append(targets, &target{name: weir, Process: e.Process})
		for _, t := range targets {
			t.token = token // the floors are sent what the edge is
		}
		if b.against != "" {
			older := *b
			older.weir, older.dir = b.against, filepath.Join(b.dir, "other")
			if err := os.MkdirAll(older.dir, 0o700); err != nil {
				return nil, err
			}
			e, token, stop, err := older.startCell(ctx, c, behind.Addr)
			if err != nil {
				return nil, err
			}
			defer stop()
			targets = append(targets, &target{name: other, Process: e.Process, token: token})
		}
	}

	// 2. the rounds
	m := &measurement{cell: c, calls: b.calls, figures: map[string][]figure{}}
	for range b.rounds {
		if err := b.round(ctx, c, targets); err != nil {
			return nil, err
		}
		for _, t := range targets {
			m.figures[t.name] = append(m.figures[t.name], figureOf(t.run, t.cpu))
		}
	}
	for _, name := range []string{direct, bare, weir, other} {
		if f := m.figures[name]; f != nil {
			g := middle(f)
			b.say("%s: %s: CPU %.2f µs, p50 %.1f µs, p99 %.1f µs, %.0f calls/s", c, name, g.cpu, g.p50, g.p99, g.rate)
		}
	}
	if b.against != "" {
		b.say("%s: edge beside the other, medians of %d rounds: CPU × %.3f, p50 × %.3f", c, b.rounds,
			m.beside(func(f figure) float64 { return f.cpu }), m.beside(func(f figure) float64 { return f.p50 }))
	}
	return m, nil
}

// startCell starts the edge of a cell. It returns the token that clients have to
// show, which is empty for none, and what stops everything.
func (b *bench) startCell(ctx context.Context, c cell, backend string, flags ...string) (e *kit.Edge, token string, stop func(), err error) {
	if !c.chain {
		if e, err = b.startEdge(ctx, []string{backend}, flags...); err != nil {
			return nil, "", nil, err
		}
		return e, "", e.Stop, nil
	}
	s, err := issuer.New(issuer.RS256, kit.ServerName, nil)
	if err != nil {
		return nil, "", nil, err
	}
	if token, err = mint(s); err == nil {
		logs := filepath.Join(b.dir, "logs") // beside the manifests an edge hears of every record that it writes
		if err = os.MkdirAll(logs, 0o700); err == nil {
			e, err = b.startPlan(ctx, chain(s, backend, filepath.Join(logs, "audit.log")), append(flags, "--local-rate-limits")...)
		}
	}
	if err != nil {
		s.Leave()
		return nil, "", nil, err
	}
	return e, token, func() { e.Stop(); s.Leave() }, nil
}

// target is what a load is put on, and what that took in the round under way.
type target struct {
	name string
	*kit.Process
	prefixes []string                             // of the tools that its clients call; nil for none
	token    string                               // that its clients show; empty for none
	do       func(c *client, number uint64) error // what its clients do; nil for calls of echo
	fleet    *fleet
	run      run
	cpu      time.Duration
}

// sliceCalls are the calls that a target gets before it is the next one's
// turn.
const sliceCalls = 1000

// repeat has the fleet do what it does.
func (t *target) repeat(ctx context.Context, times int) (run, error) {
	if t.do != nil {
		return t.fleet.repeat(ctx, times, t.do)
	}
	return t.fleet.drive(ctx, "echo", times)
}

// round opens a fleet before each target, warms all up, and then gives them
// the load in turn, slice by slice: what else the machine does, and the speed
// at which it happens to run, is the same for all of them. Every second turn
// goes backwards.
func (b *bench) round(ctx context.Context, c cell, targets []*target) error {
	return b.roundOf(ctx, c, targets, b.calls, sliceCalls)
}

// roundOf is round with a number of calls of its own.
func (b *bench) roundOf(ctx context.Context, c cell, targets []*target, calls, each int) error {
	// 1. open and warm up
	for _, t := range targets {
		var err error
		if t.fleet, err = openFleetAs(ctx, t.token, t.Addr, c.client, c.conns, t.prefixes...); err != nil {
			return t.Fault(fmt.Errorf("%s: %w", t.name, err))
		}
		defer t.fleet.hangUp()
		if _, err := t.repeat(ctx, calls/10+10*c.conns); err != nil {
			return t.Fault(fmt.Errorf("%s: warm-up: %w", t.name, err))
		}
		t.run, t.cpu = run{}, 0
	}

	// 2. measure
	turn := slices.Clone(targets)
	for left := calls; left > 0; left -= each {
		for _, t := range turn {
			if err := t.slice(ctx, min(left, each)); err != nil {
				return t.Fault(fmt.Errorf("%s: %w", t.name, err))
			}
		}
		slices.Reverse(turn)
	}

	// 3. close
	for _, t := range targets {
		slices.Sort(t.run.latencies)
		if err := t.fleet.close(); err != nil {
			return t.Fault(fmt.Errorf("%s: %w", t.name, err))
		}
	}
	return nil
}

// slice makes some calls and adds what they took.
func (t *target) slice(ctx context.Context, calls int) error {
	before, err := kit.CPU(t.PID())
	if err != nil {
		return err
	}
	r, err := t.repeat(ctx, calls)
	if err != nil {
		return err
	}
	after, err := kit.CPU(t.PID())
	if err != nil {
		return err
	}
	t.run.latencies = append(t.run.latencies, r.latencies...)
	t.run.elapsed += r.elapsed
	t.cpu += after - before
	return nil
}

func (b *bench) startBackend(ctx context.Context, e kit.Era, answer string, flags ...string) (*helper, error) {
	args := append([]string{"backend", "--era", string(e), "--answer", answer}, flags...)
	return startHelper(ctx, b.procs, args...)
}

// countCalls are the calls of P4 in each of its cells.
const countCalls = 5000

// runCounts is P4: what reaches the backend during calls on warm connections.
func (b *bench) runCounts(ctx context.Context) {
	cells := []cell{{kit.Modern, kit.Modern, "json", 8, false}, {kit.Legacy, kit.Legacy, "json", 8, false}}
	if b.wants("p3") && !b.floors {
		cells = append(cells, cell{kit.Legacy, kit.Modern, "json", 8, false}, cell{kit.Modern, kit.Legacy, "json", 8, false})
	}
	for _, c := range cells {
		if ctx.Err() != nil {
			return
		}
		if err := b.count(ctx, c, 1); err != nil {
			b.fail("P4, "+c.String(), err)
		}
	}
	for _, c := range cells[:2] {
		if ctx.Err() == nil && !b.floors {
			if err := b.count(ctx, c, severalBackends); err != nil {
				b.fail(fmt.Sprintf("P4, %s, %d backends", c, severalBackends), err)
			}
		}
	}
}

// severalBackends is how many there are in the rows of P4 with several.
const severalBackends = 4

// count makes calls through the edge, or through the bare proxy where there is
// no edge, and compares the backend's counts before and after. Several backends
// are one process with as many addresses, which counts for all of them.
func (b *bench) count(ctx context.Context, c cell, backends int) error {
	backend, err := b.startBackend(ctx, c.backend, c.answer, "--slow", "100ms", "--addresses", strconv.Itoa(backends))
	if err != nil {
		return err
	}
	defer backend.Stop()
	name, target := weir, (*kit.Process)(nil)
	if b.floors {
		name = bare
		var pass *helper
		if pass, err = startHelper(ctx, b.procs, "bare", "--backend", backend.Addr); err == nil {
			target = pass.Process
		}
	} else {
		var e *kit.Edge
		if e, err = b.startEdge(ctx, backend.addrs); err == nil {
			target = e.Process
		}
	}
	if err != nil {
		return err
	}
	defer target.Stop()

	var names []string
	if backends > 1 {
		names = prefixes(c.conns, backends)
	}
	f, err := openFleet(ctx, target.Addr, c.client, c.conns, names...)
	if err != nil {
		return target.Fault(err)
	}
	defer f.hangUp()
	// The slow tool keeps every client waiting at once, so that all the
	// connections that the load can need are open before the counting.
	for _, warm := range []struct {
		tool  string
		calls int
	}{{"slow", 3 * c.conns}, {"echo", 50 * c.conns}} {
		if _, err := f.drive(ctx, warm.tool, warm.calls); err != nil {
			return target.Fault(fmt.Errorf("warm-up: %w", err))
		}
	}
	before, err := kit.CountsAt(ctx, backend.Addr)
	if err != nil {
		return err
	}
	r, err := f.drive(ctx, "echo", countCalls)
	if err != nil {
		return target.Fault(err)
	}
	after, err := kit.CountsAt(ctx, backend.Addr)
	if err != nil {
		return err
	}
	seen := after.Since(before)
	wrong := checkCounts(seen, countCalls, backends, r.elapsed)
	b.report.counts = append(b.report.counts, countRow{cell: c, backends: backends, target: name, calls: countCalls, seen: seen, wrong: wrong})
	b.say("P4, %s: %s: %d requests and %d new connections for %d calls", c, name, seen.Requests(), seen.Connections, countCalls)
	return errors.Join(wrong, f.close())
}
