// Package sandbox runs scripts of strangers: the interpreter of package scripting as a
// guest in WebAssembly, whose host holds every budget.
//
// A text is compiled outside, by scripting.Compile. What enters the sandbox is a compiled
// program and values in the wire form, and what comes out is a value or an error. A run
// waits for its admission (admission.go), computes when it has a turn (package turns), and
// asks its host for all that is outside of the language (run.go). The guest is built from
// this repository (guest, build) and lies in the program as guest.wasm.gz.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/turns"
	"github.com/weir-edge/weir/wasm"
)

// Options are what an operator sets. Zero means the default.
type Options struct {
	CPU     time.Duration // of one run, waits not counted; 1s
	Timeout time.Duration // of one run, waiting for a place counts; 60s
	Memory  int64         // bytes of one run, from 16 to 64 MiB; 64 MiB

	Most          int // runs at once; 32
	MostPerHolder int // runs of one holder at once; 4

	Places *turns.Places // to compute; nil for half as many as the process has processors

	CacheDir string       // for machine code, which only this user may write to; "" for none
	Log      *slog.Logger // nil for none
}

// Why a run did not begin.
var (
	ErrBusy     = errors.New("too many scripts run already")
	ErrNotReady = errors.New("the interpreter of scripts is not ready")
	errClosed   = errors.New("sandbox: the engine is closed")
)

// How long a run waits to begin.
const (
	admissionWait = time.Second
	readyWait     = 10 * time.Second
)

// The pool of instances, and what passes in and out of one.
const (
	idle      = 2
	maxInput  = 16 << 20 // a program, and data in the wire form
	maxOutput = 16 << 20 // a value of scripting.MaxOut bytes of JSON in the wire form
)

// Engine runs scripts. It is safe for concurrent use.
type Engine struct {
	options   Options
	admission *admission

	stop    context.CancelCauseFunc // of what is under way
	life    context.Context
	opening chan struct{} // closed when the next two are set
	failed  error
	ready   *ready

	mu   sync.Mutex // of beginning and of closing
	work sync.WaitGroup
}

// ready is the compiled interpreter.
type ready struct {
	compiler    *wasm.Compiler
	module      *wasm.Module
	interpreter *wasm.Interpreter
}

// New returns an engine, which begins to compile its interpreter in the background.
func New(o Options) *Engine { return newEngine(o, interpreter) }

// defaults fills in what is not set.
func defaults(o Options) Options {
	o.CPU = orElse(o.CPU, time.Second)
	o.Timeout = orElse(o.Timeout, time.Minute)
	o.Memory = min(max(orElse(o.Memory, wasm.MaxMemory), minMemory), wasm.MaxMemory)
	o.Most = orElse(o.Most, 32)
	o.MostPerHolder = orElse(o.MostPerHolder, 4)
	if o.Places == nil {
		o.Places = turns.New(turns.Most(), 0)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// newEngine is New with another module.
func newEngine(o Options, m func() (module, error)) *Engine {
	o = defaults(o)
	e := &Engine{options: o, admission: newAdmission(o.Most, o.MostPerHolder), opening: make(chan struct{})}
	e.life, e.stop = context.WithCancelCause(context.Background())
	e.work.Go(func() {
		defer close(e.opening)
		start := time.Now()
		if e.ready, e.failed = e.open(m); e.failed != nil {
			e.failed = fmt.Errorf("%w: %w", ErrNotReady, e.failed)
			if e.life.Err() == nil {
				o.Log.Error("the interpreter of scripts does not start", "error", e.failed)
			}
			return
		}
		o.Log.Info("the interpreter of scripts is ready", "compiled", e.ready.module.Elapsed.Round(time.Millisecond).String(), "elapsed", time.Since(start).Round(time.Millisecond).String())
	})
	return e
}

// minMemory is the least that a run may have.
const minMemory = 16 << 20

func orElse[T int | int64 | uint64 | time.Duration](v, other T) T {
	if v <= 0 {
		return other
	}
	return v
}

// open compiles the interpreter and makes its first instances.
func (e *Engine) open(m func() (module, error)) (*ready, error) {
	r := &ready{}
	if err := r.open(e, m); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *ready) open(e *Engine, m func() (module, error)) error {
	own, err := m()
	if err != nil {
		return err
	}
	// The machine may be busy: what is compiled is no stranger's.
	if r.compiler, err = wasm.NewCompiler(wasm.Compilation{Dir: e.options.CacheDir, Timeout: 5 * time.Minute, Log: e.options.Log}); err != nil {
		return err
	}
	prepared, err := own.prepare(e.options.CacheDir)
	if err != nil {
		return err
	}
	if r.module, err = r.compiler.CompileInterpreter(e.life, prepared); err != nil {
		return err
	}
	warm, err := e.warmRun()
	if err != nil {
		return err
	}
	r.interpreter, err = r.module.OpenInterpreter(e.life, wasm.Interpretation{
		Memory: uint64(e.options.Memory), Input: maxInput, Output: maxOutput,
		Instances: e.options.Most, Idle: min(idle, e.options.Most),
		Warm: []*wasm.ScriptRun{warm}, Warmed: warmed,
	})
	return err
}

func (r *ready) close() {
	if r.interpreter != nil {
		r.interpreter.Close()
	}
	if r.module != nil {
		r.module.Close()
	}
	if r.compiler != nil {
		_ = r.compiler.Close() // only files that were read are closed
	}
}

// Ready waits until the interpreter is compiled. Its error is ErrNotReady with the
// reason where it cannot be, or the cause of ctx.
func (e *Engine) Ready(ctx context.Context) error {
	select {
	case <-e.opening:
		return e.failed
	default:
	}
	select {
	case <-e.opening:
		return e.failed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Run runs a program for a holder. What the script did wrong, and a spent budget, is
// Outcome.Error. The error is ErrBusy where no place became free within a second,
// ErrNotReady where the interpreter was not compiled within ten, the cause of ctx when that
// ends before the run does, beside what the run has cost, and any other a defect of the host.
func (e *Engine) Run(ctx context.Context, holder string, r *scripting.Run) (*scripting.Outcome, error) {
	if !e.begin() {
		return nil, errClosed
	}
	defer e.work.Done()
	// 1. The interpreter.
	waiting, stop := context.WithTimeoutCause(ctx, readyWait, ErrNotReady)
	err := e.Ready(waiting)
	stop()
	if err != nil {
		return nil, err
	}
	// 2. What the run is given, before it takes anybody's place.
	one, err := e.prepare(holder, r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, one.limits.Timeout, errTimeout)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(e.life, func() { end(errClosed) })()
	// 3. A place.
	waiting, stop = context.WithTimeoutCause(ctx, admissionWait, ErrBusy)
	err = e.admission.enter(waiting, holder)
	stop()
	if err != nil {
		return one.failed(err)
	}
	defer e.admission.leave(holder)
	if r.Began != nil {
		r.Began()
	}
	// 4. A turn, and the run.
	if err := one.turn.Begin(ctx); err != nil {
		return one.failed(err)
	}
	out, used, err := e.ready.interpreter.Run(ctx, one.script(ctx))
	one.turn.Rest()
	one.calls.Close()
	one.count(used)
	if err != nil {
		return one.failed(err)
	}
	return one.ended(out)
}

// begin counts a run, of which there are none after Close.
func (e *Engine) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.life.Err() != nil {
		return false
	}
	e.work.Add(1)
	return true
}

// Close ends all runs and frees everything. Runs after it fail.
func (e *Engine) Close() {
	e.mu.Lock()
	e.stop(errClosed)
	e.mu.Unlock()
	e.work.Wait()
	if e.ready != nil {
		e.ready.close()
		e.ready = nil
	}
}
