package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/cmd/weir/plugin"
	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/edgetest/program"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// argumentsSize is how long the arguments of P10 are, in bytes.
const argumentsSize = 1 << 10

// guestBars are the languages of P10, and what a call may cost, in µs.
var guestBars = []struct {
	language, name string
	bar            float64
}{{"c", "C", 0.5}, {"assemblyscript", "AssemblyScript", 0.5}, {"rust", "Rust", 1}, {"go", "Go", 2}}

// guestRow is one line of P10.
type guestRow struct {
	name      string
	bar       float64   // µs a call
	cpu       []float64 // µs a call, per round
	idle      float64   // the same of a guest that returns at once
	cold      []float64 // µs of a call that begins with a new instance, per round
	allocated float64   // by the host, objects a call, in the worst round
	missing   string    // why there is no figure; empty where there is one
}

func (g guestRow) verdict() verdict {
	v := verdict{
		"P10", fmt.Sprintf("CPU and host allocations per call of a metered `on_call_request`, %d bytes of arguments, guest in %s", argumentsSize, g.name),
		"–", "–", "–", fmt.Sprintf("≤ %.1f µs; 0", g.bar), "–",
	}
	if g.missing != "" {
		v.value = "not measured: " + g.missing
		return v
	}
	cost := median(g.cpu)
	v.value, v.floor = fmt.Sprintf("%.3f µs; %.4g", cost, g.allocated), fmt.Sprintf("%.3f µs, a guest that returns at once", g.idle)
	if g.idle > 0 {
		v.ratio = fmt.Sprintf("%.2f", cost/g.idle)
	}
	v.reached = yesNo(cost <= g.bar && g.allocated == 0)
	return v
}

// coldest is the row of calls that begin with a new instance, which no bar is for:
// an edge makes instances beside the calls, but for the first call of a session
// under the isolation per_session.
func (g guestRow) coldest() verdict {
	return verdict{
		"P10", "CPU of making an instance and a first call of it, guest in " + g.name,
		fmt.Sprintf("%.0f µs", median(g.cold)), "–", "–", "–", "–",
	}
}

// runGuests is P10: the guest that `weir plugin new` lays out in each language,
// built here and asked in this process, as an edge asks it.
func (b *bench) runGuests(ctx context.Context) {
	b.tryEdge(ctx, "P10", b.guests)
}

func (b *bench) guests(ctx context.Context) {
	// 1. The guests.
	idle := filepath.Join(b.dir, "idle.wasm")
	kit.Check(os.WriteFile(idle, idleModule(), 0o644))
	floor := kit.Must(openGuest(ctx, idle))
	defer floor.close()
	all, missing := make([]*askedGuest, len(guestBars)), make([]string, len(guestBars))
	for i, l := range guestBars {
		b.say("P10, %s: building", l.name)
		file, err := b.buildGuest(ctx, l.language)
		var lacks *plugin.Missing
		if errors.As(err, &lacks) {
			missing[i] = err.Error()
			continue
		}
		kit.Check(err)
		all[i] = kit.Must(openGuest(ctx, file))
		defer all[i].close()
		all[i].answers = true
	}
	// 2. The rounds, in which each has its turn.
	for range b.rounds {
		for _, g := range append([]*askedGuest{floor}, all...) {
			g.round(ctx, b.calls)
		}
	}
	for range b.rounds { // after them: what makes instances disturbs what does not
		for _, g := range all {
			g.begin(ctx)
		}
	}
	// 3. The rows.
	for i, l := range guestBars {
		row := guestRow{name: l.name, bar: l.bar, missing: missing[i], idle: median(floor.cpu)}
		if all[i] != nil {
			row.cpu, row.allocated, row.cold = all[i].cpu, all[i].allocated, all[i].cold
		}
		b.report.guests = append(b.report.guests, row)
		b.say("P10, %s: %s", row.name, row.verdict().value)
	}
}

// buildGuest lays out and builds the guest of a language, from the sources of
// the SDK that are in this program.
func (b *bench) buildGuest(ctx context.Context, language string) (string, error) {
	l, ok := plugin.LanguageNamed(language)
	if !ok {
		kit.Fail("there is no SDK for %s", language)
	}
	dir, file := filepath.Join(b.dir, "guest-"+language), filepath.Join(b.dir, language+".wasm")
	kit.Must(plugin.New(dir, "bench", l))
	// The compiler of AssemblyScript is where `make peers` puts it.
	if root, err := program.Root(ctx); err == nil {
		asc := filepath.Join(root, "sdk", "assemblyscript", "node_modules")
		if _, err := os.Stat(asc); err == nil && language == "assemblyscript" {
			kit.Check(os.Symlink(asc, filepath.Join(dir, "node_modules")))
		}
	}
	return file, plugin.Build(ctx, l, dir, file)
}

// askedGuest is a guest that is measured.
type askedGuest struct {
	answers   bool // it has something to say to the call
	in, out   []byte
	cpu       []float64
	allocated float64
	cold      []float64
	guest     *wasm.Guest
	sessions  *wasm.Guest // the same, with an instance for each session and one at a time
	close     func()
}

// openGuest opens a module as an edge does.
func openGuest(ctx context.Context, file string) (*askedGuest, error) {
	c, m, err := plugin.Compile(ctx, file, "")
	if err != nil {
		return nil, err
	}
	done := func() {
		m.Close()
		_ = c.Close() // it has no cache to lose
	}
	binding := wasm.Binding{Name: "bench", Config: []byte(`{"group":"admin"}`), Limits: wasm.Limits{Timeout: time.Minute}}
	g, err := m.Open(ctx, binding)
	if err != nil {
		done()
		return nil, err
	}
	binding.Isolation, binding.Limits.Instances = wasm.PerSession, 1
	s, err := m.Open(ctx, binding)
	if err != nil {
		g.Close()
		done()
		return nil, err
	}
	return &askedGuest{in: ordinaryCall(), out: make([]byte, 0, 4<<10), guest: g, sessions: s, close: func() {
		g.Close()
		s.Close()
		done()
	}}, nil
}

// round asks so many times, after some that do not count. The CPU time is that
// of the thread, which nothing else runs on.
func (g *askedGuest) round(ctx context.Context, calls int) {
	if g == nil {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ask := func(n int) {
		for range n {
			g.one(ctx, g.guest, "")
		}
	}
	ask(calls/10 + 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := kit.Must(threadTime())
	ask(calls)
	ended := kit.Must(threadTime())
	runtime.ReadMemStats(&after)
	g.cpu = append(g.cpu, micros(ended-began)/float64(calls))
	// What the runtime allocates for itself meanwhile is not the calls'.
	g.allocated = max(g.allocated, float64((after.Mallocs-before.Mallocs)/uint64(calls)))
	kit.Check(ctx.Err())
}

// begin asks in new sessions, each of which ends the one before it: there is
// one instance at a time.
func (g *askedGuest) begin(ctx context.Context) {
	if g == nil {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const sessions = 50
	g.one(ctx, g.sessions, "first")
	began := kit.Must(threadTime())
	for i := range sessions {
		g.one(ctx, g.sessions, strconv.Itoa(i))
	}
	g.cold = append(g.cold, micros(kit.Must(threadTime())-began)/sessions)
	kit.Check(ctx.Err())
}

// one asks once.
func (g *askedGuest) one(ctx context.Context, guest *wasm.Guest, session string) {
	out, err := guest.Call(ctx, abi.OnCallRequest, session, wasm.Sender{}, g.in, g.out)
	kit.Check(err)
	if len(out) > 0 != g.answers {
		kit.Fail("the guest answers with %d bytes", len(out))
	}
}

// ordinaryCall is the record of a call of an ordinary kind.
func ordinaryCall() []byte {
	b := abi.AppendString(nil, abi.CallTool, "delete_repository")
	b = abi.AppendString(b, abi.CallBackend, "github")
	b = abi.AppendString(b, abi.CallMethod, "tools/call")
	p := abi.AppendString(nil, abi.PrincipalSubject, "ann")
	for _, g := range []string{"dev", "ops", "admin"} {
		p = abi.AppendString(p, abi.PrincipalGroup, g)
	}
	b = abi.AppendBytes(b, abi.CallPrincipal, p)
	const around = `{"text":""}`
	return abi.AppendString(b, abi.CallArguments, around[:9]+strings.Repeat("a", argumentsSize-len(around))+around[9:])
}
