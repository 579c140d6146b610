package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// chainSteps is how many steps the chain of P12a has.
const chainSteps = 100

// workflowsOf is the configuration of P12: five steps of 20 ms side by side, one step, and a
// chain of steps that take no time.
func workflowsOf() string {
	var p strings.Builder
	p.WriteString("    compositeTools:\n    - name: beside\n      steps:\n")
	for i := range 5 {
		fmt.Fprintf(&p, "      - {id: s%d, tool: BACKEND.slow}\n", i)
	}
	p.WriteString("    - name: one\n      parameters: {type: object, properties: {text: {type: string}}}\n      steps:\n      - {id: a, tool: BACKEND.echo, arguments: {text: \"{{.params.text}}\"}}\n")
	p.WriteString("    - name: chain\n      steps:\n")
	for i := range chainSteps {
		after := ""
		if i > 0 {
			after = fmt.Sprintf(", dependsOn: [s%d]", i-1)
		}
		fmt.Fprintf(&p, "      - {id: s%d, tool: BACKEND.echo, arguments: {text: x}%s}\n", i, after)
	}
	return p.String()
}

// workflowRow is one line of P12 and P12a: a composite beside the call that it is held
// against, made by the same client.
type workflowRow struct {
	row, what     string
	took, alone   []time.Duration // of the composite, and of that call
	cpu, cpuAlone []float64       // of the edge per call and round, µs
	times         int             // the bar is so many of the calls
	more          time.Duration   // and so much more
	cpuBar        float64         // µs that the composite may add; 0 where the bar is time
}

func (r workflowRow) verdict() verdict {
	half, floor := kit.Percentile(r.took, 500), kit.Percentile(r.alone, 500)
	if r.cpuBar > 0 {
		more := median(r.cpu) - median(r.cpuAlone)
		return verdict{r.row, r.what, fmt.Sprintf("%.1f µs (+ %.1f µs)", median(r.cpu), more), fmt.Sprintf("%.1f µs, the call made directly", median(r.cpuAlone)), "–",
			fmt.Sprintf("≤ + %.0f µs", r.cpuBar), yesNo(more <= r.cpuBar)}
	}
	bar := time.Duration(r.times)*floor + r.more
	return verdict{r.row, r.what, fmt.Sprintf("%.2f ms (%.2f ms)", kit.Millis(half), kit.Millis(kit.Percentile(r.took, 990))), fmt.Sprintf("%.2f ms, the call made directly", kit.Millis(floor)), "–",
		fmt.Sprintf("≤ %.2f ms", kit.Millis(bar)), yesNo(half <= bar)}
}

// runWorkflows is P12 and P12a: composite tools that one client calls one after the other.
func (b *bench) runWorkflows(ctx context.Context) { b.tryEdge(ctx, "P12", b.workflows) }

// startWorkflows starts an edge with the composites, and a client of it.
func (b *bench) startWorkflows(ctx context.Context, flags ...string) (*kit.Edge, *poster) {
	backend := b.startBackend(ctx, kit.Modern, "json")
	p := kit.PlanOf(backend.Addr)
	p.Config = strings.ReplaceAll(workflowsOf(), "BACKEND", kit.NameOf(0))
	e := b.startPlan(ctx, p, flags...)
	return e, &poster{url: "http://" + e.Addr + "/mcp"}
}

// must calls a tool that answers with a text, and returns how long that took.
func (c *poster) must(ctx context.Context, tool string) time.Duration {
	began := time.Now()
	status, text, err := c.call(ctx, tool, map[string]any{"text": "x"})
	took := time.Since(began)
	kit.Check(err)
	if status != http.StatusOK || strings.Contains(text, `"isError":true`) || !strings.Contains(text, `"result"`) {
		kit.Fail("%s: status %d: %.300s", tool, status, text)
	}
	return took
}

func (b *bench) workflows(ctx context.Context) {
	e, c := b.startWorkflows(ctx)
	rows := []struct {
		workflowRow
		tool, direct string
		calls        int
	}{
		{workflowRow{row: "P12", what: "composite of 5 steps of 20 ms side by side, p50 (p99), one connection", times: 1, more: 500 * time.Microsecond}, "beside", "slow", max(b.calls/500, 10)},
		{workflowRow{row: "P12a", what: "CPU per call of a composite of one step, one connection", cpuBar: 60}, "one", "echo", max(b.calls, 20)},
		{workflowRow{row: "P12a", what: fmt.Sprintf("composite of %d steps of 0 ms in a chain, p50 (p99), one connection", chainSteps), times: chainSteps, more: 5 * time.Millisecond}, "chain", "echo", max(b.calls/500, 10)},
	}
	for _, r := range rows {
		for round := range b.rounds + 1 { // the first warms it up
			for _, of := range []struct {
				tool string
				took *[]time.Duration
				cpu  *[]float64
			}{{r.tool, &r.took, &r.cpu}, {r.direct, &r.alone, &r.cpuAlone}} {
				before := kit.Must(kit.CPU(e.PID()))
				for range r.calls {
					if took := c.must(ctx, of.tool); round > 0 {
						*of.took = append(*of.took, took)
					}
				}
				if used := kit.Must(kit.CPU(e.PID())) - before; round > 0 {
					*of.cpu = append(*of.cpu, float64(used.Nanoseconds())/1e3/float64(r.calls))
				}
			}
		}
		b.report.workflows = append(b.report.workflows, r.workflowRow)
		v := r.verdict()
		b.say("%s, %s: %s, %s, %s", v.id, v.what, v.value, v.floor, v.bar)
	}
}
