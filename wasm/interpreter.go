package wasm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm/linear"
)

// Interpretation says how an interpreter is kept.
type Interpretation struct {
	Memory    uint64 // bytes of one instance, at most MaxMemory
	Input     uint64 // bytes that one run may be given
	Output    uint64 // bytes that one run may return
	Instances int    // at once
	Idle      int    // that are kept ready

	// Warm are runs that an instance does before its image is taken: what they leave
	// behind is what each run begins with. Warmed judges what they return; nil for any.
	Warm   []*ScriptRun
	Warmed func(out []byte) error
}

// ScriptRun is one run of an interpreter.
type ScriptRun struct {
	Host   ScriptHost
	Input  []byte
	CPU    time.Duration // waits not counted
	Memory uint64        // bytes, at most those of the instance; 0 for these
}

// Used is what a run used.
type Used struct {
	CPU    time.Duration // 0 for less than a slice
	Fuel   int64
	Memory int64 // bytes of linear memory at the end, which never becomes less
}

// Interpreter runs scripts in instances of a module, each run in one that is as it was
// after the warm runs. It is safe for concurrent use.
type Interpreter struct {
	guest *Guest

	mu   sync.Mutex
	trim *time.Timer // until more instances than are kept ready are closed; nil for no such
}

// How an interpreter is initialized: what it does is the edge's own, on machines that
// may be busy.
const (
	warmTime   = 10 * time.Second
	warmFuel   = 20_000_000_000
	scriptFuel = 1 << 50 // more than any time allows
	keepSpare  = 10 * time.Second
)

// Prepared is an interpreter that was checked and metered. It may be kept: who compiles it
// answers for it that PrepareInterpreter made it.
type Prepared struct {
	Digest  string   // SHA-256 of the module as it came, in hexadecimal
	Size    int      // of it, in bytes
	Imports []string // as those of a Module
	Minimum uint32   // of its memory, in bytes
	Mutable int      // globals that a reset puts back
	Starts  bool     // it has a start function
	Inits   bool     // it exports _initialize
	Metered []byte   `json:"-"`
}

// PrepareInterpreter checks and meters the edge's own interpreter of scripts, the one
// module that may import weir_script_v1. digest is its SHA-256 in hexadecimal, and has to
// be known. The same bytes give the same.
func PrepareInterpreter(binary []byte, digest string) (*Prepared, error) {
	if digest == "" {
		return nil, errors.New("module: an interpreter is known by its digest, and there is none")
	}
	got, err := digested(binary, digest)
	if err != nil {
		return nil, err
	}
	m, err := prepare(binary, got, true)
	if err != nil {
		return nil, err
	}
	return &Prepared{m.Digest, m.Size, m.Imports, m.Minimum, m.mutable, m.hasStart, m.hasInit, m.metered}, nil
}

// Encode returns the form that is kept in files.
func (p *Prepared) Encode() []byte {
	head, _ := json.Marshal(p) // numbers and texts never fail
	return slices.Concat(head, []byte{'\n'}, p.Metered)
}

// LoadPrepared reads what Encode returned, and shares its memory.
func LoadPrepared(b []byte) (*Prepared, error) {
	head, metered, _ := bytes.Cut(b, []byte{'\n'})
	p := &Prepared{Metered: metered}
	if err := json.Unmarshal(head, p); err != nil {
		return nil, fmt.Errorf("interpreter: its kept form: %w", err)
	}
	return p, nil
}

// CompileInterpreter is Compile for an interpreter.
func (c *Compiler) CompileInterpreter(ctx context.Context, p *Prepared) (*Module, error) {
	return c.compileAs(ctx, p.Digest, func() (*Module, error) {
		return &Module{
			Digest: p.Digest, Size: p.Size, Imports: p.Imports, Minimum: p.Minimum,
			metered: p.Metered, mutable: p.Mutable, hasStart: p.Starts, hasInit: p.Inits, interpreter: true,
		}, nil
	})
}

// OpenInterpreter makes the first instance and the image that the others begin with.
// It fails where the module is no interpreter, was opened before, or a warm run fails.
func (m *Module) OpenInterpreter(ctx context.Context, how Interpretation) (*Interpreter, error) {
	if !m.interpreter {
		return nil, errors.New("interpreter: the module was compiled as a filter")
	}
	b := Binding{Name: "interpreter", Isolation: PerRequest, Limits: Limits{
		Memory: how.Memory, Input: how.Input, Output: how.Output, Instances: how.Instances, Prewarm: how.Idle,
		Fuel: scriptFuel, Init: warmTime, InitFuel: warmFuel,
	}}
	if err := b.fill(true); err != nil {
		return nil, err
	}
	if uint64(m.Minimum) > b.Limits.Memory {
		return nil, fmt.Errorf("interpreter: it starts with %d bytes of memory: its limit is %d", m.Minimum, b.Limits.Memory)
	}
	g := &Guest{module: m, binding: b, opened: time.Now(), pool: newPool(b.Limits.Instances), how: &how}
	g.front.Open(&g.binding)
	fail := func(err error) (*Interpreter, error) {
		g.free()
		return nil, err
	}
	if err := g.link(); err != nil {
		return fail(err)
	}
	first, _, err := g.newInstance(ctx)
	if err != nil {
		return fail(err)
	}
	g.image, first.own = first.base, false
	g.pool.room()
	g.pool.put(first)
	g.grow()
	g.maker.work.Wait()
	return &Interpreter{guest: g}, nil
}

// warmUp makes an instance ready for its first run, and takes its image.
func (in *instance) warmUp(ctx context.Context) error {
	g := in.guest
	fail := func(what string, err error) error {
		f := in.failure(0, err)
		return fmt.Errorf("interpreter: %s: %v: %s", what, f.Reason, f.Detail)
	}
	// 1. The module itself.
	in.begin(ctx, warmTime, warmFuel)
	v, name, err := in.wake()
	if err != nil {
		return fail(name, err)
	}
	if v != ScriptABI {
		return fmt.Errorf("interpreter: made for version %d.%d of its ABI: this host has %d.%d", v>>16, v&0xffff, ScriptABI>>16, ScriptABI&0xffff)
	}
	in.version = v
	if err := in.reserve(bigBuffer); err != nil {
		return fail(abi.ExportBuffer, err)
	}
	in.clock.stop()
	// 2. The warm runs.
	for i, r := range g.how.Warm {
		out, err := in.interpret(ctx, r, warmTime)
		if err != nil {
			return fail(fmt.Sprint("warm run ", i), err)
		}
		if g.how.Warmed != nil {
			if err := g.how.Warmed(out); err != nil {
				return fmt.Errorf("interpreter: warm run %d: %w", i, err)
			}
		}
	}
	// 3. What they leave behind.
	in.begin(ctx, warmTime, warmFuel)
	err = in.module.ExportedFunction(exportRest).CallWithStack(in.ctx, in.stack[:])
	in.clock.stop()
	if err != nil {
		return fail(exportRest, err)
	}
	in.call = nil
	if in.dirty.Get() != 0 {
		return errors.New("interpreter: it changes tables, which cannot be copied")
	}
	return in.capture(linear.NewCopy)
}

// interpret does one run.
func (in *instance) interpret(ctx context.Context, r *ScriptRun, cpu time.Duration) (out []byte, err error) {
	in.begin(ctx, cpu, scriptFuel)
	in.script = &r.Host
	defer func() { in.script, in.call = nil, nil }()
	err = in.put(r.Input)
	if err == nil {
		in.stack[0] = uint64(len(r.Input))
		err = in.runScript.CallWithStack(in.ctx, in.stack[:])
	}
	in.clock.stop()
	if err != nil {
		return nil, err
	}
	return in.take(in.stack[0], nil)
}

// Run runs a script in an instance that nobody else sees, and returns what the guest
// returns. ctx bounds the wait for an instance, too, and its end ends the run.
//
// An error of a function of the host is returned as it is; that of ctx is its cause;
// all others are a *Failure.
func (p *Interpreter) Run(ctx context.Context, r *ScriptRun) (out []byte, used Used, err error) {
	g := p.guest
	g.front.active.Add(1)
	release := g.front.Leave
	defer func() { release() }()
	if g.front.closed.Load() {
		return nil, used, errClosed
	}
	if uint64(len(r.Input)) > g.binding.Limits.Input {
		return nil, used, fmt.Errorf("interpreter: an input of %d bytes: its limit is %d", len(r.Input), g.binding.Limits.Input)
	}
	// 1. An instance.
	in, ok := g.pool.get(ctx, warmTime, nil, g.grow)
	if !ok {
		if ctx.Err() != nil {
			return nil, used, context.Cause(ctx)
		}
		if _, err := g.maker.may(); err != nil {
			return nil, used, err
		}
		return nil, used, &Failure{Guest: g.binding.Name, Reason: Saturated}
	}
	g.grow()
	// 2. The run.
	in.linear.Most = g.binding.Limits.Memory
	if r.Memory > 0 {
		in.linear.Most = min(in.linear.Most, r.Memory)
	}
	out, err = in.interpret(ctx, r, r.CPU)
	used = Used{CPU: in.clock.used, Fuel: in.used(), Memory: int64(in.memory.Size())}
	g.front.counts.fuel.Add(uint64(used.Fuel))
	why := retiredChanged
	if err != nil {
		f := in.failure(0, err)
		if f.Reason == Trap && starved(in.last()) {
			f.Reason = Memory
		}
		why = int(f.Reason)
		switch {
		case hostError(in.failed):
			err = in.failed
		case f.Reason == Canceled:
			err = context.Cause(ctx)
		default:
			err = f
		}
	}
	// 3. What becomes of the instance, once the answer is on its way.
	failed := err != nil
	release = func() {}
	go func() {
		defer g.front.Leave()
		if failed || !in.reset() {
			g.retire(in, nil, why)
			return
		}
		g.pool.put(in)
		p.spare()
	}()
	return out, used, err
}

// starved reports whether a runtime says that it ended for want of memory: one that asks
// for more than there can be is refused by the engine, and not by the memory.
func starved(said string) bool {
	for _, text := range []string{"out of memory", "stack overflow", "goroutine stack exceeds"} {
		if strings.Contains(said, text) {
			return true
		}
	}
	return false
}

// spare begins to wait for instances above those that are kept ready to be of no use.
func (p *Interpreter) spare() {
	g := p.guest
	if g.pool.idle() <= g.binding.Limits.Prewarm {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trim == nil && !g.front.closed.Load() {
		p.trim = time.AfterFunc(keepSpare, p.trimmed)
	}
}

// trimmed closes idle instances above those that are kept ready.
func (p *Interpreter) trimmed() {
	g := p.guest
	g.front.active.Add(1)
	defer g.front.Leave()
	p.mu.Lock()
	p.trim = nil
	p.mu.Unlock()
	for !g.front.closed.Load() && g.pool.idle() > g.binding.Limits.Prewarm {
		in := g.pool.take()
		if in == nil {
			return
		}
		g.pool.drop(in)
	}
}

// Differs says in what an idle instance is not as its image, "" for nothing. It looks at
// all of them, at every byte, and is for tests of what one run leaves to the next.
func (p *Interpreter) Differs() (what string) {
	g := p.guest
	var all []*instance
	for in := g.pool.take(); in != nil; in = g.pool.take() {
		all = append(all, in)
	}
	for _, in := range all {
		memory, _ := in.memory.Read(0, in.memory.Size())
		if !bytes.Equal(memory, g.image.snapshot.Bytes()) {
			what = "the memory"
		}
		for i, global := range in.mutable {
			if global.Get() != g.image.globals[i] {
				what = fmt.Sprintf("global %d", i)
			}
		}
		if in.dirty.Get() != 0 {
			what = "a table"
		}
		g.pool.put(in)
	}
	return what
}

// Stats are figures of the interpreter's instances: of hooks and messages it has none.
func (p *Interpreter) Stats() Stats { return p.guest.Stats() }

// Close waits for the runs under way, and frees everything. Runs after it fail.
func (p *Interpreter) Close() {
	p.mu.Lock()
	if p.trim != nil {
		p.trim.Stop()
		p.trim = nil
	}
	p.mu.Unlock()
	p.guest.Close()
}
