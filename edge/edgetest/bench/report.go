package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// report is everything that a run found, to be written as one page.
type report struct {
	machine   []string // lines about where and what
	options   options
	cells     []*measurement
	counts    []countRow
	memory    []memoryRow
	mass      []massRow
	starts    []startRow
	lists     []listRow
	growth    []growthRow
	guests    []guestRow
	filters   []filterRow
	scripts   []scriptRow
	workflows []workflowRow
	finding   []verdict // of find_tool and call_tool
	tokens    []tokenRow
	kept      []keptRow
	resident  []residentRow
	local     []verdict // of servers that the edge starts, and of users who sign in at it
	overload  []overloadRow
	built     *firstBuild
	failures  []string
}

// countRow is one line of P4.
type countRow struct {
	cell     cell
	backends int
	target   string
	calls    int
	seen     kit.Counts
	wrong    error // what P4 does not allow; nil for nothing

	strategy         string // that exchanges the token of the one user who calls; empty for none
	first, exchanges int64  // before the calls that are counted, and during them
}

// verdict is the row of P4.
func (c countRow) verdict() verdict {
	per := func(n int64) string { return fmt.Sprintf("%.4g", float64(n)/float64(c.calls)) }
	v := verdict{
		"P4", fmt.Sprintf("requests to the backend and new connections per call, %s, %s%s", c.target, c.cell.eras(), c.several()),
		per(c.seen.Requests()) + "; " + per(c.seen.Connections), "–", "–", "1; 0", yesNo(c.wrong == nil),
	}
	if c.strategy != "" {
		v.what = fmt.Sprintf("requests to the backend, new connections and exchanges per call, %s, %s, %s, %d calls of one user", c.target, c.cell.eras(), c.strategy, c.calls)
		v.value += fmt.Sprintf("; %s (after %d)", per(c.exchanges), c.first)
		v.bar += "; 0 after the first"
	}
	return v
}

func newReport(ctx context.Context, o options) *report {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return &report{options: o, machine: []string{
		fmt.Sprintf("Machine: %s, %d cores, %s, kernel %s", kit.CPUModel(), runtime.NumCPU(), runtime.GOARCH, strings.TrimSpace(string(kernel))),
		fmt.Sprintf("Load average of the minute before: %s", kit.LoadAverage()),
		fmt.Sprintf("Go: %s, GOMAXPROCS %d in every process", runtime.Version(), runtime.GOMAXPROCS(0)),
		fmt.Sprintf("Date: %s", time.Now().UTC().Format("2006-01-02 15:04 UTC")),
		fmt.Sprintf("Commit: %s", commit(ctx)),
	}}
}

// commit names the commit of the working directory, and says when files that
// git knows differ from it.
func commit(ctx context.Context) string {
	id, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	out := strings.TrimSpace(string(id))
	changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no").Output()
	if err == nil && len(bytes.TrimSpace(changed)) > 0 {
		out += " with changes"
	}
	return out
}

// verdict is one line of the first table.
type verdict struct{ id, what, value, floor, ratio, bar, reached string }

func yesNo(ok bool) string {
	if ok {
		return "yes"
	}
	return "**no**"
}

// verdicts hold the figures against their bars.
func (r *report) verdicts() []verdict {
	var out []verdict
	for _, m := range r.cells {
		out = append(out, m.cpuVerdict())
		if m.figures[exchanged] != nil {
			out = append(out, m.exchangedVerdict())
		}
	}
	for _, c := range r.counts {
		out = append(out, c.verdict())
	}
	for _, m := range r.cells {
		if v, ok := m.addedVerdict(); ok {
			out = append(out, v)
		}
	}
	for _, l := range r.lists {
		out = append(out, l.verdict())
	}
	out = append(out, growthVerdicts(r.growth)...)
	for _, m := range r.memory {
		v := verdict{"P8", fmt.Sprintf("%s (%d of %d alive)", m.what, m.alive, m.opened), "–", "–", "–",
			fmt.Sprintf("≤ %.0f KiB", m.bar/1024), yesNo(m.alive > 0 && m.each <= m.bar)}
		if m.alive > 0 {
			v.value = fmt.Sprintf("%.1f KiB", m.each/1024)
		}
		if !math.IsNaN(m.live) {
			v.value += fmt.Sprintf(" (%.1f KiB live)", m.live/1024)
		}
		out = append(out, v)
	}
	for _, m := range r.mass {
		v := verdict{"P8", fmt.Sprintf("%s: resident after %d calls; growth in the second half, %s", m.target, m.calls, m.cell.eras()),
			fmt.Sprintf("%.1f MiB; %+.1f MiB", kit.MiB(m.full), kit.MiB(m.full-m.half)), "–", "–", "≤ 48 MiB; flat", "floor"}
		if m.target == weir {
			v.reached = yesNo(m.full <= 48<<20 && m.full-m.half <= flat)
			for _, f := range r.mass {
				if f.target == bare && f.cell == m.cell {
					v.floor, v.ratio = fmt.Sprintf("%.1f MiB", kit.MiB(f.full)), fmt.Sprintf("%.2f", kit.MiB(m.full)/kit.MiB(f.full))
				}
			}
		}
		out = append(out, v)
	}
	for _, s := range r.starts {
		v := verdict{"P9", s.what, "not ready", "–", "–", "–", "floor"}
		if len(s.ready) > 0 {
			v.value = fmt.Sprintf("%.1f ms (worst of %d: %.1f)", median(s.ready), len(s.ready), slices.Max(s.ready))
		}
		if s.first != nil {
			v.value += fmt.Sprintf("; first call answered at %.1f ms", median(s.first))
		}
		if s.late > 0 {
			v.value += fmt.Sprintf("; %d start(s) not ready within %s", s.late, kit.ReadyLimit)
		}
		if s.bar > 0 {
			v.bar, v.reached = fmt.Sprintf("≤ %.0f ms", s.bar), yesNo(s.late == 0 && median(s.ready) <= s.bar && median(s.first) <= s.bar)
		}
		out = append(out, v)
	}
	for _, g := range r.guests {
		out = append(out, g.verdict())
		if len(g.cold) > 0 {
			out = append(out, g.coldest())
		}
	}
	for _, f := range r.filters {
		out = append(out, f.verdict())
	}
	for _, s := range r.scripts {
		out = append(out, s.verdict())
	}
	for _, w := range r.workflows {
		out = append(out, w.verdict())
	}
	out = append(out, r.finding...)
	for _, t := range r.tokens {
		out = append(out, t.verdicts()...)
	}
	for _, o := range r.overload {
		out = append(out, o.verdict())
	}
	for _, k := range r.kept {
		out = append(out, k.verdicts()...)
	}
	for _, m := range r.resident {
		out = append(out, m.verdict())
	}
	return append(out, r.local...)
}

// several tells of the backends where there is more than one.
func (c countRow) several() string {
	if c.backends < 2 {
		return ""
	}
	return fmt.Sprintf("s: %d", c.backends)
}

// marker is the line that ends what is measured: what stands below it was
// written by hand.
const marker = "<!-- Below this line nothing is measured: it is written by hand, and kept when the page is written anew. -->"

// writePage writes the page to a file, and keeps what stands there below the
// marker.
func writePage(path, text string) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, kept, _ := strings.Cut(string(old), marker)
	return os.WriteFile(path, []byte(text+"\n"+marker+"\n"+strings.TrimPrefix(kept, "\n")), 0o644)
}

// flat is the growth, in bytes, below which memory counts as not growing.
const flat = 2 << 20

func (c cell) eras() string { return fmt.Sprintf("%s client, %s backend", c.client, c.backend) }

// cpuVerdict is the row of P1 or P3, or a figure printed beside P1.
func (m *measurement) cpuVerdict() verdict {
	floor := m.cpu(bare)
	v := verdict{"P1", "CPU per call, " + m.String(), "–", fmt.Sprintf("%.2f µs", floor), "–", "beside", "–"}
	bar := 0.0
	switch {
	case m.chain:
		v.id, bar = "P2", 1.45
	case m.client != m.backend:
		v.id, bar = "P3", 1.6
	case m.conns == 8 && m.answer == "json":
		bar = 1.15
	case m.conns >= 8:
		bar = 1.2
	}
	if bar > 0 {
		v.bar = fmt.Sprintf("≤ %.2f × bare", bar)
	}
	if edge := m.cpu(weir); edge > 0 && floor > 0 {
		ratio := edge / floor
		v.value, v.ratio = fmt.Sprintf("%.2f µs", edge), fmt.Sprintf("%.2f", ratio)
		if bar > 0 {
			v.reached = yesNo(ratio <= bar)
		}
	}
	return v
}

// exchangedVerdict is the row of P2 with tokenExchange in place of the injected header.
func (m *measurement) exchangedVerdict() verdict {
	floor, edge := m.cpu(weir), m.cpu(exchanged)
	return verdict{
		"P2", fmt.Sprintf("the same with tokenExchange in place of the injected header, a kept credential of %d bytes", credentialSize),
		fmt.Sprintf("%.2f µs", edge), fmt.Sprintf("%.2f µs, P2", floor), fmt.Sprintf("%.3f", edge/floor), fmt.Sprintf("≤ %.2f × P2", exchangedBar), yesNo(edge <= exchangedBar*floor),
	}
}

func (m *measurement) cpu(target string) float64 { return middle(m.figures[target]).cpu }

// addedVerdict is the row of P5: what a proxy adds to the latency of a client
// that is alone.
func (m *measurement) addedVerdict() (verdict, bool) {
	if m.conns != 1 {
		return verdict{}, false
	}
	alone := middle(m.figures[direct]).p50
	floor := middle(m.figures[bare]).p50 - alone
	v := verdict{"P5", "added p50 at one connection, " + m.eras(), "–", fmt.Sprintf("%.1f µs", floor), "–", "≤ 1.25 × bare", "–"}
	if edge := m.figures[weir]; edge != nil {
		added := middle(edge).p50 - alone
		v.value = fmt.Sprintf("%.1f µs", added)
		if floor > 0 {
			v.ratio, v.reached = fmt.Sprintf("%.2f", added/floor), yesNo(added <= 1.25*floor)
		}
	}
	return v, true
}

// markdown is the page.
func (r *report) markdown() string {
	var p strings.Builder
	p.WriteString("# Benchmarks\n\n")
	for _, line := range r.machine {
		fmt.Fprintf(&p, "- %s\n", line)
	}
	fmt.Fprintf(&p, "- Run: %d calls per target and round, %d alternating rounds, medians of the rounds%s\n", r.options.calls, r.options.rounds, r.options.kind())
	p.WriteString("\nFigures are ratios measured side by side in one run, or counts: other machines give other microseconds. `edge/edgetest/bench/README.md` says what each row is and how to measure it again.\n")
	for _, f := range r.failures {
		fmt.Fprintf(&p, "\n**FAILED:** %s\n", strings.ReplaceAll(f, "\n", " "))
	}

	p.WriteString("\n## Against the bars\n\n| # | case | figure | floor | ratio | bar | reached |\n|---|---|---|---|---|---|---|\n")
	for _, v := range r.verdicts() {
		fmt.Fprintf(&p, "| %s | %s | %s | %s | %s | %s | %s |\n", v.id, v.what, v.value, v.floor, v.ratio, v.bar, v.reached)
	}
	if len(r.starts) > 0 && r.options.backends != 10 {
		fmt.Fprintf(&p, "\nThe bar of P9 is meant for 10 backends, one of them black-holed; here the edge has %d.\n", r.options.backends)
	}
	p.WriteString("\nNot measured here: credentials of the strategy xaa, which needs an identity provider that issues ID-JAGs.\n")

	if len(r.cells) > 0 {
		p.WriteString("\n## Every load\n\nCPU is the user and system time of the target's own process per call: for direct that is the backend. In brackets, the lowest and the highest round.\n\n")
		p.WriteString("| client | backend | answers | connections | target | CPU per call, µs | × bare | p50, µs | p99, µs | calls/s |\n|---|---|---|---|---|---|---|---|---|---|\n")
		for _, m := range r.cells {
			for _, name := range []string{direct, bare, weir, exchanged} {
				if fs := m.figures[name]; fs != nil {
					p.WriteString(m.line(name, fs))
				}
			}
		}
	}
	if len(r.counts) > 0 {
		p.WriteString("\n## What reached the backend\n\n| client | backend | backends | through | calls | requests | new connections | exchanges before; during |\n|---|---|---|---|---|---|---|---|\n")
		for _, c := range r.counts {
			through, exchanges := c.target, "–"
			if c.strategy != "" {
				through, exchanges = c.target+", "+c.strategy, fmt.Sprintf("%d; %d", c.first, c.exchanges)
			}
			fmt.Fprintf(&p, "| %s | %s | %d | %s | %d | %s | %d | %s |\n", c.cell.client, c.cell.backend, c.backends, through, c.calls, methods(c.seen.Methods), c.seen.Connections, exchanges)
		}
	}
	p.WriteString(r.built.section())
	return p.String()
}

func (o options) kind() string {
	switch {
	case o.floors:
		return "; floors only"
	case o.quick:
		return "; the short run"
	}
	return ""
}

func (m *measurement) line(name string, fs []figure) string {
	g, cpu := middle(fs), over(fs, func(f figure) float64 { return f.cpu })
	ratio := "–"
	if floor := m.cpu(bare); name != direct && floor > 0 {
		ratio = fmt.Sprintf("%.2f", g.cpu/floor)
	}
	return fmt.Sprintf("| %s | %s | %s | %d | %s | %.2f (%.2f–%.2f) | %s | %.1f | %.1f | %.0f |\n",
		m.client, m.backend, m.answer, m.conns, name, g.cpu, slices.Min(cpu), slices.Max(cpu), ratio, g.p50, g.p99, g.rate)
}

// methods lists counts by method, the most frequent first.
func methods(counts map[string]int64) string {
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if counts[a] != counts[b] {
			return int(counts[b] - counts[a])
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", counts[name], name)
	}
	return strings.Join(names, ", ")
}
