package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-edge/weir/cmd/weir/plugin"
	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/edgetest/program"
	"github.com/weir-edge/weir/wasm"
)

// The bars of servers in WebAssembly.
const (
	moduleCPU    = 60.0 // µs a call more than with an HTTP backend and the same work in a hook
	moduleMemory = 0.5  // MiB of a session besides the pages that it begins with
)

// moduleLanguages are what they are written in, and how long the first session may take, in ms.
var moduleLanguages = []struct {
	language, name string
	bar            float64
}{{"rust", "Rust", 10}, {"go", "Go", 60}}

// runModules is about MCP servers in WebAssembly, by the SDKs of two languages.
func (b *bench) runModules(ctx context.Context) {
	for _, l := range moduleLanguages {
		b.tryEdge(ctx, "modules, "+l.name, func(ctx context.Context) { b.module(ctx, l.language, l.name, l.bar) })
	}
}

// module measures the server of a language: the first session of an edge that has kept the
// machine code, CPU per call, and the memory of a session.
func (b *bench) module(ctx context.Context, language, name string, bar float64) {
	add := func(what, value, floor, ratio, bar, reached string) {
		b.addLocal(verdict{"modules", what + ", server in " + name, value, floor, ratio, bar, reached})
	}
	// 1. The module, which the first edge compiles.
	l, _ := plugin.LanguageNamed(language)
	file := filepath.Join(b.dir, "server-"+language+".wasm")
	root := kit.Must(program.Root(ctx))
	err := plugin.BuildServer(ctx, l, filepath.Join(root, "edge", "edgetest", "bench", "testdata", "echo-"+language), file)
	var lacks *plugin.Missing
	if errors.As(err, &lacks) {
		add("not measured: "+err.Error(), "–", "–", "–", "–", "–")
		return
	}
	kit.Check(err)
	kit.Check(wasm.CheckServer(kit.Must(os.ReadFile(file))))
	home := kit.Must(os.MkdirTemp(b.dir, "home-"))
	e := b.startModule(ctx, file, home)
	began := time.Now()
	firstCall(ctx, e)
	add("until the first call is answered, the machine code being made", fmt.Sprintf("%.1f s", time.Since(began).Seconds()), "–", "–", "–", "–")
	e.Stop()

	// 2. The first session of an edge that is ready, and one after it.
	var first, later []float64
	for range 4 * b.starts {
		e := b.startModule(ctx, file, home)
		first = append(first, firstCall(ctx, e))
		later = append(later, firstCall(ctx, e))
		e.Stop()
	}
	add("first session from kept machine code until its call is answered", fmt.Sprintf("%.1f ms", median(first)), fmt.Sprintf("%.1f ms, a later one", median(later)), fmt.Sprintf("%.2f", median(first)/median(later)), fmt.Sprintf("≤ %.0f ms", bar), yesNo(median(first) <= bar))

	// 3. Calls, in turn with those of an edge with a backend over HTTP.
	c := cell{kit.Legacy, kit.Legacy, "json", 8, false}
	e = b.startModule(ctx, file, home)
	web := b.startEdge(ctx, []string{b.startBackend(ctx, kit.Legacy, "json").Addr})
	targets := []*target{{name: weir, Process: web.Process}, {name: "module", Process: e.Process}}
	figures := b.inTurn(ctx, c, targets)
	floor, mine := figures[weir].cpu, figures["module"].cpu
	beside := fmt.Sprintf("%.2f µs, over HTTP without the server's", floor)
	if language == "go" { // what its JSON takes is more than all else
		work := b.inHook(ctx, l)
		beside = fmt.Sprintf("%.2f µs, over HTTP without the server's, and %.2f µs for the same work in a hook", floor, work)
		floor += work
	}
	add("CPU per call of the edge, the server's with it, 8 connections", fmt.Sprintf("%.2f µs", mine), beside, fmt.Sprintf("%.2f", mine/floor), fmt.Sprintf("≤ + %.0f µs", moduleCPU), yesNo(mine <= floor+moduleCPU))

	// 4. Sessions that rest.
	const sessions = 50
	before := kit.Must(kit.Resident(e.PID()))
	f := kit.Must(openFleet(ctx, e.Addr, kit.Legacy, sessions))
	kit.Must(f.drive(ctx, "echo", 4*sessions))
	each := kit.MiB(kit.Must(kit.Resident(e.PID()))-before) / sessions
	kit.Check(f.close())
	pages := float64(minimumOf(file)) / (1 << 20)
	add("resident memory of a session", fmt.Sprintf("%.2f MiB", each), fmt.Sprintf("%.2f MiB, the pages that it begins with", pages), fmt.Sprintf("%.2f", each/pages), fmt.Sprintf("≤ + %.1f MiB", moduleMemory), yesNo(each <= pages+moduleMemory))
}

// inHook is what it takes a guest to do in a hook what the server does for a call, in µs: a
// tenth of ten calls, so that the beginning of a server counts less.
func (b *bench) inHook(ctx context.Context, l plugin.Language) float64 {
	file := filepath.Join(b.dir, "hook.wasm")
	kit.Check(plugin.Build(ctx, l, filepath.Join(kit.Must(program.Root(ctx)), "edge", "edgetest", "bench", "testdata", "hook-go"), file))
	g := kit.Must(openGuest(ctx, file))
	defer g.close()
	g.answers = true
	for range b.rounds {
		g.round(ctx, b.calls/100)
	}
	return median(g.cpu) / 10
}

// startModule starts an edge with a module as its server. What it keeps is in home.
func (b *bench) startModule(ctx context.Context, file, home string) *kit.Edge {
	dir := kit.Must(os.MkdirTemp(b.dir, "module-"))
	manifest := filepath.Join(dir, "weir.yaml")
	kit.Check(os.WriteFile(manifest, fmt.Appendf(nil, "apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: %s}\nspec: {image: \"wasm://%s\", run: {maxProcesses: 64}}\n", kit.ServerName, file), 0o600))
	env := append(environment(b.procs), "HOME="+home, "XDG_CACHE_HOME="+filepath.Join(home, "cache"))
	e := kit.Must(kit.Launch(b.weir, manifest, kit.Must(kit.FreeSeat()), env, "--allow-workloads", "wasm", "--state-dir", filepath.Join(dir, "state")))
	b.started = append(b.started, e.Process)
	kit.Check(e.AwaitReady(ctx, e.Addr))
	return e
}

// minimumOf is how much memory an instance of a module begins with, in bytes.
func minimumOf(file string) uint32 {
	c := kit.Must(wasm.NewCompiler(wasm.Compilation{}))
	defer c.Close()
	m := kit.Must(c.CompileServer(context.Background(), kit.Must(os.ReadFile(file)), ""))
	defer m.Close()
	return m.Minimum
}
