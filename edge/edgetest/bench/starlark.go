package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/filters/guest/starlark"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// The bars of P20.
const (
	scriptFilterBar     = 3.0 // µs a call
	scriptFilterObjects = 25  // allocations a call
)

// scriptFilter is the filter of P20: one branch, and one pointer into the arguments.
const scriptFilter = `
subscribe("on_call_request", tools = ["write_*"], pointers = ["/path"])

def on_call_request(c):
    if c.selected[0].startswith("/etc/") and "admin" not in c.principal.groups:
        return deny(403, "only admins write there")
    return set_header("x-tool", c.tool)
`

// filterRow is one line of P20.
type filterRow struct {
	name      string
	cpu       []float64 // µs a call, per round
	allocated float64   // objects a call, in the worst round
}

func (f filterRow) verdict() verdict {
	cost := median(f.cpu)
	return verdict{
		"P20", fmt.Sprintf("CPU and allocations per call of a Starlark filter of one branch, %d bytes of arguments, one pointer: %s", argumentsSize, f.name),
		fmt.Sprintf("%.3f µs; %.4g", cost, f.allocated), "–", "–", fmt.Sprintf("≤ %.1f µs; %d", scriptFilterBar, scriptFilterObjects),
		yesNo(cost <= scriptFilterBar && f.allocated <= scriptFilterObjects),
	}
}

// runFilters is P20: a filter in Starlark, asked in this process as an edge asks it.
func (b *bench) runFilters(ctx context.Context) {
	b.tryEdge(ctx, "P20", b.filters)
}

func (b *bench) filters(ctx context.Context) {
	program := kit.Must(starlark.Compile("bench.star", []byte(scriptFilter)))
	g := kit.Must(program.Open(ctx, starlark.Options{Binding: wasm.Binding{Name: "bench", Limits: wasm.Limits{Timeout: time.Minute}}}))
	defer g.Close()
	for _, one := range []struct{ name, path string }{{"it changes the call", "/home/ann/notes"}, {"it denies the call", "/etc/passwd"}} {
		row := filterRow{name: one.name}
		in := filteredCall(one.path)
		for range b.rounds {
			row.round(ctx, g, in, b.calls)
		}
		b.report.filters = append(b.report.filters, row)
		b.say("P20, %s: %s", row.name, row.verdict().value)
	}
}

// round asks so many times, after some that do not count, on a thread of its own.
func (f *filterRow) round(ctx context.Context, g *starlark.Guest, in []byte, calls int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out := make([]byte, 0, 4<<10)
	ask := func(n int) {
		for range n {
			got, err := g.Call(ctx, abi.OnCallRequest, "", wasm.Sender{}, in, out)
			kit.Check(err)
			if len(got) == 0 {
				kit.Fail("the filter answers nothing")
			}
		}
	}
	ask(calls/10 + 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := kit.Must(threadTime())
	ask(calls)
	ended := kit.Must(threadTime())
	runtime.ReadMemStats(&after)
	f.cpu = append(f.cpu, micros(ended-began)/float64(calls))
	f.allocated = max(f.allocated, float64((after.Mallocs-before.Mallocs)/uint64(calls)))
	kit.Check(ctx.Err())
}

// filteredCall is the record of a call with one value behind a pointer.
func filteredCall(path string) []byte {
	who := abi.Principal{Subject: "ann", Tenant: "acme", Groups: []string{"dev", "ops", "staff"}}
	in := abi.Input{
		Tool: []byte("write_file"), Backend: "files", Method: "tools/call", Principal: who.Append(nil),
		Arguments: []byte(fmt.Sprintf(`{"path":%q,"text":%q}`, path, strings.Repeat("a", argumentsSize-24-len(path)))), Selected: [][]byte{[]byte(fmt.Sprintf("%q", path))},
	}
	return in.Append(nil, 0)
}
