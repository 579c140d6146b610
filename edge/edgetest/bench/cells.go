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
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// bench is one run of the benchmark.
type bench struct {
	options
	dir    string // temporary
	log    io.Writer
	report *report

	started []*kit.Process // by the case that runs, the last first to end
}

// run runs the cases that are wanted, each to its end or its first failure.
func (b *bench) run(ctx context.Context) {
	for _, c := range []struct {
		name string
		run  func(context.Context)
	}{
		{"cells", b.runCells}, {"p4", b.runCounts}, {"p4 credentials", b.runExchanges}, {"p6", b.runLists}, {"p7", b.runGrowth},
		{"p8", b.runMemory}, {"p9", b.runStart}, {"p10", b.runGuests}, {"p11", b.runScripts}, {"p12", b.runWorkflows}, {"p13", b.runTokens}, {"p14", b.runOverload},
		{"p20", b.runFilters},
		{"p21 p22 p23", b.runFinding}, {"p24", b.runThrough},
		{"credentials", b.runKept},
		{"signin", b.runSignIns},
		{"stdio", b.runStdio},
		{"containers", b.runContainers},
		{"modules", b.runModules},
		{"build", b.runBuild},
	} {
		if c.name == "cells" || slices.ContainsFunc(strings.Fields(c.name), b.wants) {
			c.run(ctx)
		}
	}
}

// try runs a case to its end, and ends the processes that it has started.
// Whatever it fails with is in the report. There is no case any longer when the
// run has been cut short.
func (b *bench) try(ctx context.Context, what string, run func(context.Context)) {
	if ctx.Err() != nil {
		return
	}
	err := kit.Try(func() { run(ctx) })
	for _, p := range slices.Backward(b.started) {
		p.Stop()
		err = p.Fault(err)
	}
	b.started = nil
	if err != nil {
		b.report.failures = append(b.report.failures, fmt.Sprintf("%s: %v", what, err))
		b.say("%s FAILED: %v", what, err)
	}
}

// tryEdge is try for a case that is about edges.
func (b *bench) tryEdge(ctx context.Context, what string, run func(context.Context)) {
	if !b.floors {
		b.try(ctx, what, run)
	}
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
	direct    = "direct"
	bare      = "bare"
	weir      = "edge"
	exchanged = "edge with tokenExchange" // in place of the injected header of P2
	other     = "other edge"              // see --against
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
	if (b.wants("p2") || b.wants("credentials")) && !b.floors {
		add(cell{kit.Modern, kit.Modern, "json", 8, true})
	}
	return cells
}

// runCells measures the cells of P1, P2, P3 and P5.
func (b *bench) runCells(ctx context.Context) {
	for _, c := range b.wantedCells() {
		b.try(ctx, c.String(), func(ctx context.Context) { b.measure(ctx, c) })
	}
}

// measure puts the load of a cell on its targets, round after round. The
// floors of a cell of two eras are those of its client's: what passes a message
// through cannot translate it.
func (b *bench) measure(ctx context.Context, c cell) {
	// 1. the processes
	given := func() int64 { return 1 } // exchanges, of which there has to be one
	floor := b.startBackend(ctx, c.client, c.answer)
	pass := b.startHelper(ctx, "bare", "--backend", floor.Addr)
	targets := []*target{{name: direct, Process: floor.Process}, {name: bare, Process: pass.Process}}
	if !b.floors {
		behind := floor
		if c.backend != c.client {
			behind = b.startBackend(ctx, c.backend, c.answer)
		}
		e, token, end := b.startCell(ctx, c, behind.Addr)
		defer end()
		targets = append(targets, &target{name: weir, Process: e.Process})
		for _, t := range targets {
			t.token = token // the floors are sent what the edge is
		}
		if c.chain {
			service := kit.Must(startTokenService())
			defer service.close()
			e, token, end := b.startChain(ctx, exchanging[0].in(service), behind.Addr)
			defer end()
			given = service.given.Load
			targets = append(targets, &target{name: exchanged, Process: e.Process, token: token})
		}
		if b.against != "" {
			older := *b
			older.weir, older.dir = b.against, filepath.Join(b.dir, "other")
			kit.Check(os.MkdirAll(older.dir, 0o700))
			e, token, end := older.startCell(ctx, c, behind.Addr)
			b.started = append(b.started, e.Process)
			defer end()
			targets = append(targets, &target{name: other, Process: e.Process, token: token})
		}
	}

	// 2. the rounds
	m := &measurement{cell: c, calls: b.calls, figures: map[string][]figure{}}
	for range b.rounds {
		b.round(ctx, c, targets)
		for _, t := range targets {
			m.figures[t.name] = append(m.figures[t.name], figureOf(t.run, t.cpu))
		}
	}
	kit.Check(checkExchanges(given(), 0, 0))
	for _, name := range []string{direct, bare, weir, exchanged, other} {
		if f := m.figures[name]; f != nil {
			g := middle(f)
			b.say("%s: %s: CPU %.2f µs, p50 %.1f µs, p99 %.1f µs, %.0f calls/s", c, name, g.cpu, g.p50, g.p99, g.rate)
		}
	}
	if b.against != "" {
		b.say("%s: edge beside the other, medians of %d rounds: CPU × %.3f, p50 × %.3f", c, b.rounds,
			m.beside(func(f figure) float64 { return f.cpu }), m.beside(func(f figure) float64 { return f.p50 }))
	}
	b.report.cells = append(b.report.cells, m)
}

// startCell starts the edge of a cell. It returns the token that clients have to
// show, which is empty for none, and what ends whoever signs it.
func (b *bench) startCell(ctx context.Context, c cell, backend string, flags ...string) (e *kit.Edge, token string, end func()) {
	if !c.chain {
		return b.startEdge(ctx, []string{backend}, flags...), "", func() {}
	}
	return b.startChain(ctx, injected, backend, flags...)
}

// startChain is startCell for an edge of P2 that shows its backend a credential.
func (b *bench) startChain(ctx context.Context, credential *v1beta1.OutgoingStrategy, backend string, flags ...string) (e *kit.Edge, token string, end func()) {
	s := kit.Must(issuer.New(issuer.RS256, kit.ServerName, nil))
	logs := kit.Must(os.MkdirTemp(b.dir, "logs-")) // beside the manifests an edge hears of every record that it writes
	e = b.startPlan(ctx, chain(s, credential, backend, filepath.Join(logs, "audit.log")), append(flags, "--local-rate-limits")...)
	return e, kit.Must(mint(s)), s.Leave
}

// target is what a load is put on, and what that took in the round under way.
type target struct {
	name string
	*kit.Process
	prefixes []string                             // of the tools that its clients call; nil for none
	helpers  []int                                // further processes whose CPU counts
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

// inTurn makes all rounds of a load, in which targets take turns, and returns the middle figure of
// each by its name.
func (b *bench) inTurn(ctx context.Context, c cell, targets []*target) map[string]figure {
	all := map[string][]figure{}
	for range b.rounds {
		b.round(ctx, c, targets)
		for _, t := range targets {
			all[t.name] = append(all[t.name], figureOf(t.run, t.cpu))
		}
	}
	figures := map[string]figure{}
	for name, of := range all {
		figures[name] = middle(of)
	}
	return figures
}

// round opens a fleet before each target, warms all up, and then gives them
// the load in turn, slice by slice: what else the machine does, and the speed
// at which it happens to run, is the same for all of them. Every second turn
// goes backwards.
func (b *bench) round(ctx context.Context, c cell, targets []*target) {
	b.roundOf(ctx, c, targets, b.calls, sliceCalls)
}

// roundOf is round with a number of calls of its own.
func (b *bench) roundOf(ctx context.Context, c cell, targets []*target, calls, each int) {
	// 1. open and warm up
	for _, t := range targets {
		t.fleet = kit.Must(openFleetAs(ctx, t.token, t.Addr, c.client, c.conns, t.prefixes...))
		defer t.fleet.hangUp()
		_, err := t.repeat(ctx, calls/10+10*c.conns)
		t.check(err)
		t.run, t.cpu = run{}, 0
	}

	// 2. measure
	turn := slices.Clone(targets)
	for left := calls; left > 0; left -= each {
		for _, t := range turn {
			t.slice(ctx, min(left, each))
		}
		slices.Reverse(turn)
	}

	// 3. close
	for _, t := range targets {
		slices.Sort(t.run.latencies)
		t.check(t.fleet.close())
	}
}

// check ends the case with an error of the target.
func (t *target) check(err error) {
	if err != nil {
		kit.Fail("%s: %w", t.name, err)
	}
}

// slice makes some calls and adds what they took.
func (t *target) slice(ctx context.Context, calls int) {
	pids := append(slices.Clone(t.helpers), t.PID())
	before := cpuOfAll(pids)
	r, err := t.repeat(ctx, calls)
	t.check(err)
	after := cpuOfAll(pids)
	t.run.latencies = append(t.run.latencies, r.latencies...)
	t.run.elapsed += r.elapsed
	t.cpu += after - before
}

func (b *bench) startBackend(ctx context.Context, e kit.Era, answer string, flags ...string) *helper {
	args := append([]string{"backend", "--era", string(e), "--answer", answer}, flags...)
	return b.startHelper(ctx, args...)
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
		b.try(ctx, "P4, "+c.String(), func(ctx context.Context) { b.count(ctx, c, 1) })
	}
	for _, c := range cells[:2] {
		b.tryEdge(ctx, fmt.Sprintf("P4, %s, %d backends", c, severalBackends), func(ctx context.Context) { b.count(ctx, c, severalBackends) })
	}
}

// severalBackends is how many there are in the rows of P4 with several.
const severalBackends = 4

// count makes calls through the edge, or through the bare proxy where there is
// no edge, and compares the backend's counts before and after. Several backends
// are one process with as many addresses, which counts for all of them.
func (b *bench) count(ctx context.Context, c cell, backends int) {
	backend := b.startBackend(ctx, c.backend, c.answer, "--slow", "100ms", "--addresses", strconv.Itoa(backends))
	name, addr := bare, ""
	if b.floors {
		addr = b.startHelper(ctx, "bare", "--backend", backend.Addr).Addr
	} else {
		name, addr = weir, b.startEdge(ctx, backend.addrs).Addr
	}

	var names []string
	if backends > 1 {
		names = prefixes(c.conns, backends)
	}
	f := kit.Must(openFleet(ctx, addr, c.client, c.conns, names...))
	defer f.hangUp()
	warm(ctx, f)
	seen, elapsed := counted(ctx, f, backend.Addr, countCalls)
	wrong := checkCounts(seen, countCalls, backends, elapsed)
	b.report.counts = append(b.report.counts, countRow{cell: c, backends: backends, target: name, calls: countCalls, seen: seen, wrong: wrong})
	b.say("P4, %s: %s: %d requests and %d new connections for %d calls", c, name, seen.Requests(), seen.Connections, countCalls)
	kit.Check(errors.Join(wrong, f.close()))
}

// warm makes calls that do not count. The slow tool keeps every client waiting at
// once, so that all the connections that the load can need are open before the
// counting.
func warm(ctx context.Context, f *fleet) {
	kit.Must(f.drive(ctx, "slow", 3*len(f.clients)))
	kit.Must(f.drive(ctx, "echo", 50*len(f.clients)))
}

// counted makes calls, and returns what reached the backend meanwhile.
func counted(ctx context.Context, f *fleet, backend string, calls int) (seen kit.Counts, elapsed time.Duration) {
	before := kit.Must(kit.CountsAt(ctx, backend))
	r := kit.Must(f.drive(ctx, "echo", calls))
	after := kit.Must(kit.CountsAt(ctx, backend))
	return after.Since(before), r.elapsed
}
