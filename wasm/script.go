package wasm

import (
	"context"
	"errors"
	"math"
	"time"
)

// ScriptModule is the module that an interpreter imports its host functions from:
//
//	submit(kind i32, name i32, name_len i32, args i32, args_len i32) -> id i64
//	wait(ms i64) -> id i64      of a call that is finished; ms below zero is for ever, 0 comes back when the time is over
//	answer(id i64, p i32, room i32) -> len i64   written where room is enough, and forgotten then; -1 for no such answer
//	print(p i32, len i32)
//	progress(done f64, total f64, p i32, len i32)
//	steps(n i64)                that the run took until now
//
// No filter can import it.
const ScriptModule = "weir_script_v1"

// ScriptABI is the version that an interpreter's weir_abi returns.
const ScriptABI = 1 << 16

// Exports of an interpreter, beside memory, _initialize, weir_abi and weir_buf.
const (
	exportRun  = "weir_script_run"  // (len i32) -> i64; runs what is in the buffer
	exportRest = "weir_script_rest" // (); called once, before the image is taken
)

// Bounds of what one host function takes.
const (
	maxScriptName = 1 << 10
	maxScriptArgs = 8 << 20
	maxScriptText = 1 << 20
)

// ScriptHost is what a run may ask for. The functions are called on the goroutine of
// Run, one at a time; an error ends the run, and is what Run returns. Bytes that they
// are given are the guest's memory: they are valid until the function returns.
type ScriptHost struct {
	Submit   func(ctx context.Context, kind uint32, name, args []byte) (id int64, err error)
	Wait     func(ctx context.Context, most time.Duration) (id int64, err error) // below zero for ever
	Answer   func(id int64) (answer []byte, ok bool)
	Forget   func(id int64) // its answer was taken
	Print    func(text []byte) error
	Progress func(done, total float64, message []byte)
	Steps    func(n uint64) // that the run took until now, as it says

	// Yield is asked after each slice of work. What it returns is run before the next
	// slice, and its time is not the guest's; nil for nothing.
	Yield func() (rest func(ctx context.Context) error)
}

// scriptFunctions are the host functions of an interpreter, beside those of WASI.
func scriptFunctions() []hostFunction {
	all := []hostFunction{
		{name: "submit", params: vI32 + vI32 + vI32 + vI32 + vI32, results: vI64, call: scriptSubmit},
		{name: "wait", params: vI64, results: vI64, call: scriptWait},
		{name: "answer", params: vI64 + vI32 + vI32, results: vI64, call: scriptAnswer},
		{name: "print", params: vI32 + vI32, call: scriptPrint},
		{name: "progress", params: vF64 + vF64 + vI32 + vI32, call: scriptProgress},
		{name: "steps", params: vI64, call: scriptSteps},
	}
	for i := range all {
		all[i].module = ScriptModule
	}
	return all
}

// outer returns the host of the run under way. There is none while the module is
// initialized, which has nothing to ask for.
func (in *instance) outer() *ScriptHost {
	if in.script == nil {
		in.end(errABI)
	}
	return in.script
}

// bounded returns n bytes of the guest's memory, and ends the run where they are more
// than most.
func (in *instance) bounded(p, n uint64, most uint64) []byte {
	if uint64(uint32(n)) > most {
		in.end(errABI)
	}
	in.spend(n / 16)
	return in.view(p, n)
}

func scriptSubmit(in *instance, s []uint64) {
	host := in.outer()
	name := in.bounded(s[1], s[2], maxScriptName)
	args := in.bounded(s[3], s[4], maxScriptArgs)
	id, err := host.Submit(in.call, uint32(s[0]), name, args)
	if err != nil {
		in.end(err)
	}
	s[0] = uint64(id)
}

// scriptWait waits for others, which takes no time of the guest's. To look without
// waiting does.
func scriptWait(in *instance, s []uint64) {
	host := in.outer()
	most := time.Duration(-1)
	if ms := int64(s[0]); ms >= 0 {
		most = time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	}
	resume := func() {}
	if most != 0 {
		resume = in.clock.pause()
	}
	id, err := host.Wait(in.call, most)
	resume()
	if err != nil {
		in.end(err)
	}
	s[0] = uint64(id)
}

func scriptAnswer(in *instance, s []uint64) {
	host := in.outer()
	answer, ok := host.Answer(int64(s[0]))
	if !ok {
		s[0] = math.MaxUint64
		return
	}
	n := uint64(len(answer))
	if n <= uint64(uint32(s[2])) {
		in.spend(n / 16)
		copy(in.view(s[1], n), answer)
		host.Forget(int64(s[0]))
	}
	s[0] = n
}

func scriptSteps(in *instance, s []uint64) { in.outer().Steps(s[0]) }

func scriptPrint(in *instance, s []uint64) {
	if err := in.outer().Print(in.bounded(s[0], s[1], math.MaxUint32)); err != nil {
		in.end(err)
	}
}

func scriptProgress(in *instance, s []uint64) {
	done, total := math.Float64frombits(s[0]), math.Float64frombits(s[1])
	in.outer().Progress(done, total, in.bounded(s[2], s[3], maxScriptText))
}

// breathe gives others their turn between two slices.
func (in *instance) breathe() {
	rest := in.script.Yield()
	if rest == nil {
		return
	}
	resume := in.clock.pause()
	err := rest(in.call)
	resume()
	if err != nil {
		in.end(err)
	}
}

// hostError reports whether a run was ended by its host, and not for a fault of the
// guest's.
func hostError(err error) bool {
	for _, own := range []error{errFuel, errDeadline, errDeep, errABI, errCanceled, errExit} {
		if errors.Is(err, own) {
			return false
		}
	}
	return err != nil
}
