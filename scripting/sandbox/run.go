package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/turns"
	"github.com/weir-edge/weir/wasm"
)

// Why a run ends before the script does.
var (
	errTimeout = errors.New("ran for its whole time") // a budget
	errCalls   = errors.New("made too many calls")    // a budget
	errBroken  = errors.New("the interpreter breaks its contract")
)

// run is one run of a program, as its host sees it. The goroutine of Engine.Run alone uses
// it.
type run struct {
	engine  *Engine
	of      *scripting.Run
	limits  scripting.Limits
	input   []byte
	outcome scripting.Outcome
	logs    scripting.Logs

	calls   *scripting.Calls
	waited  int               // calls that the guest was told of
	answers map[uint32][]byte // that the guest was told of and did not take

	turn *turns.Turn
}

// prepare makes a run ready to begin. A fault in what it is given is Outcome.Error.
func (e *Engine) prepare(holder string, of *scripting.Run) (*run, error) {
	if of.Program == nil || of.Call == nil {
		return nil, errors.New("sandbox: a run without a program or without calls")
	}
	r := &run{engine: e, of: of, limits: e.within(of.Limits), answers: make(map[uint32][]byte), turn: e.options.Places.Turn(holder, 0)}
	var data []byte
	if of.Data != nil {
		if len(of.Data) > scripting.MaxData {
			return nil, fmt.Errorf("sandbox: data: larger than %d bytes", scripting.MaxData)
		}
		var err error
		if data, err = scripting.FromJSON(of.Data); err != nil {
			return nil, fmt.Errorf("sandbox: data: %w", err)
		}
	}
	if r.input = inputOf(r.limits, of.Program.Encode(), data); len(r.input) > maxInput {
		return nil, fmt.Errorf("sandbox: a program and data of %d bytes: at most %d are possible", len(r.input), maxInput)
	}
	return r, nil
}

// inputOf is what the guest is given (guest/main.go reads it): steps, calls at once, calls
// and bytes of memory in 8 bytes each, the length of the program in 4, all with the lowest
// byte first, the program, and the data in the wire form.
func inputOf(l scripting.Limits, program, data []byte) []byte {
	b := make([]byte, 0, 36+len(program)+len(data))
	for _, n := range []uint64{l.Steps, uint64(l.Parallel), uint64(l.Calls), uint64(l.Memory)} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(program)))
	return append(append(b, program...), data...)
}

// within returns limits with every default in place. The engine's own are the most that a
// run may have.
func (e *Engine) within(l scripting.Limits) scripting.Limits {
	l.CPU = least(l.CPU, e.options.CPU)
	l.Timeout = least(l.Timeout, e.options.Timeout)
	l.Memory = max(least(l.Memory, e.options.Memory), minMemory)
	return l.Full()
}

func least[T int64 | time.Duration](v, most T) T {
	if v <= 0 {
		return most
	}
	return min(v, most)
}

// script is the run for the interpreter. The run has a turn; its calls end with ctx.
func (r *run) script(ctx context.Context) *wasm.ScriptRun {
	limited := *r.of
	limited.Limits = r.limits
	r.calls = scripting.NewCalls(ctx, &limited)
	return &wasm.ScriptRun{
		Host: wasm.ScriptHost{
			Submit: r.submit, Wait: r.wait, Answer: r.answer, Forget: r.forget,
			Steps: r.steps, Print: r.print, Progress: r.progress, Yield: r.yield,
		},
		Input: r.input, CPU: r.limits.CPU, Memory: uint64(r.limits.Memory),
	}
}

func (r *run) submit(_ context.Context, kind uint32, name, args []byte) (int64, error) {
	if kind > uint32(scripting.KindDescribe) {
		return 0, fmt.Errorf("%w: a call of kind %d", errBroken, kind)
	}
	id := r.calls.Submit(scripting.Kind(kind), string(name), args)
	if id == 0 {
		return 0, errCalls
	}
	return int64(id), nil
}

// wait gives the run's turn to others until a call has ended or the time is over.
func (r *run) wait(ctx context.Context, most time.Duration) (int64, error) {
	if r.waited == r.calls.Made() && most != 0 {
		return 0, fmt.Errorf("%w: it waits for no call", errBroken)
	}
	within := ctx
	if most >= 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, most)
		defer cancel()
	}
	r.turn.Rest()
	id, err := r.calls.Wait(within)
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if e := r.turn.Begin(ctx); e != nil {
		return 0, e
	}
	if err != nil {
		return 0, nil // the time that the guest asked for is over
	}
	r.waited++
	r.answers[id] = r.calls.Answer(id)
	return int64(id), nil
}

// yield lets others compute, once the run has for a while.
func (r *run) yield() func(context.Context) error {
	if !r.turn.Due() {
		return nil
	}
	return r.turn.Look
}

func (r *run) answer(id int64) ([]byte, bool) {
	if id <= 0 || id > math.MaxUint32 {
		return nil, false
	}
	b, ok := r.answers[uint32(id)]
	return b, ok
}

func (r *run) forget(id int64) { delete(r.answers, uint32(id)) }

// steps keeps what the guest says of its steps, for a run that does not come to its end.
func (r *run) steps(n uint64) { r.outcome.Steps = min(n, r.limits.Steps) }

func (r *run) print(text []byte) error {
	const most = scripting.MaxLogs + 1 // of which a part is left out in any case
	r.logs.Add(string(text[:min(len(text), most)]))
	r.logs.Dropped += max(0, len(text)-most)
	return nil
}

func (r *run) progress(done, total float64, message []byte) {
	if r.of.Progress != nil {
		r.of.Progress(done, total, scripting.Clean(strings.ToValidUTF8(string(message), "\ufffd")))
	}
}

// count fills in what the host counted.
func (r *run) count(u wasm.Used) {
	o := &r.outcome
	o.Calls, o.CPU, o.Memory = r.calls.Made(), u.CPU, u.Memory
	o.Logs, o.Dropped = r.logs.Lines, r.logs.Dropped
}

// ended reads what the guest says of the run, as one reads what a stranger says.
func (r *run) ended(out []byte) (*scripting.Outcome, error) {
	end, err := scripting.LoadEnd(out)
	if err != nil {
		return r.failed(fmt.Errorf("%w: %w", errBroken, err))
	}
	o := &r.outcome
	o.Steps, o.Error = min(end.Steps, r.limits.Steps), end.Error
	if o.Error != nil {
		return o, nil
	}
	if o.Value, err = scripting.ToJSON(end.Value); scripting.TooLarge(err) {
		o.Value, o.Error = nil, &scripting.Error{Message: "result: " + err.Error()}
		return o, nil
	} else if err != nil {
		return r.failed(fmt.Errorf("%w: its result: %w", errBroken, err))
	}
	if len(o.Value) > scripting.MaxOut {
		return r.failed(fmt.Errorf("%w: a result of %d bytes", errBroken, len(o.Value)))
	}
	return o, nil
}

// failed says what became of a run that did not come to its end: an error of the script
// where a budget was spent or the interpreter failed on it, else err, beside what it has cost.
func (r *run) failed(err error) (*scripting.Outcome, error) {
	text, cause := "", scripting.Budget
	var f *wasm.Failure
	switch errors.As(err, &f); {
	case errors.Is(err, errTimeout):
		text = "ran longer than " + scripting.Seconds(r.limits.Timeout)
	case errors.Is(err, errCalls):
		text = fmt.Sprintf("more than %d tool calls", r.limits.Calls)
	case f != nil && f.Reason == wasm.Deadline:
		text = fmt.Sprintf("ran longer than %s of CPU", scripting.Seconds(r.limits.CPU))
	case f != nil && f.Reason == wasm.Memory:
		text = fmt.Sprintf("needs more than %d MiB", r.limits.Memory>>20)
	case f != nil && f.Reason == wasm.Stack:
		text = "calls or values nest too deep"
	case errors.Is(err, errBroken), f != nil && f.Reason != wasm.Saturated:
		r.engine.options.Log.Warn("the interpreter of scripts failed", "error", err)
		text, cause = scripting.Broken, scripting.Defect
	default:
		return &r.outcome, err
	}
	r.outcome.Value, r.outcome.Error = nil, &scripting.Error{Message: text, Cause: cause}
	return &r.outcome, nil
}
