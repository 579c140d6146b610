package wasm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental/table"

	"github.com/weir-edge/weir/sdk/abi"
)

// interpreterEncoder starts an interpreter by hand, whose functions of the host have the
// indices 0 submit, 1 wait, 2 answer, 3 print and 4 progress. Its run does what the first
// byte of its input says, and then returns 16 bytes: what it found at stateAt, where it
// leaves its input, and in its global, to which it adds 1.
func interpreterEncoder() *encoder {
	e := newEncoder()
	for _, f := range scriptFunctions() {
		e.imported(f.module, f.name, f.params, f.results)
	}
	e.memory = &span{min: 2}
	e.tables = []tableType{{elem: 0x70, span: span{min: 2}}}
	g := e.global(typeI64, true, i64(5))
	e.exports = append(e.exports, exportEntry{"memory", kindMemory, 0})
	e.fn(abi.ExportABI, "", vI32, "", i32(ScriptABI))
	e.fn(abi.ExportBuffer, vI32, vI32, "", i32(bufferAt))
	e.fn(exportRest, "", "", "")
	command := func(c byte, body ...[]byte) []byte {
		return seq(i32(bufferAt), load8(0), i32(int(c)), ins(opEq32, opIf, blockVoid), seq(body...), ins(opEnd))
	}
	e.fn(exportRun, vI32, vI64, "",
		command('g', i32(1), ins(0x40, 0, 0x1a)),                                            // memory.grow, drop
		command('t', i32(1), ins(0xd2, 0, 0x26, 0)),                                         // ref.func 0, table.set 0
		command('l', loop(ins(opBr, 0))),                                                    // for ever
		command('u', ins(0)),                                                                // unreachable
		command('w', i64(-1), call(1), ins(0x1a)),                                           // wait
		command('p', i32(bufferAt), get(0), call(3)),                                        // print the input
		command('o', i32(-8), i32(64), call(3)),                                             // print from outside of the memory
		command('h', i32(0), i32(bufferAt), i32(1<<20), i32(0), i32(0), call(0), ins(0x1a)), // a name of 1 MiB
		command('c', // one call, whose answer lands at stateAt
			i32(0), i32(bufferAt), i32(1), i32(bufferAt), get(0), call(0), ins(0x1a),
			i64(-1), call(1), i32(stateAt), i32(16), call(2), ins(0x1a)),
		i32(resultAt), i32(stateAt), ins(0x29, 0, 0, 0x37, 0, 0), // what is at stateAt
		i32(resultAt), gget(g), ins(0x37, 0, 8),
		gget(g), i64(1), ins(0x7c), gset(g),
		i32(stateAt), i32(bufferAt), ins(0x29, 0, 0, 0x37, 0, 0),
		result(resultAt, 16),
	)
	// Table 0 is declared so that ref.func may name an import.
	e.tail = append(e.tail, encodedSection{sectionElement, seq(appendU32(nil, 1), appendU32(nil, 3), []byte{0}, appendU32(nil, 1), appendU32(nil, 0))})
	return e
}

// noHost refuses everything.
func noHost() ScriptHost {
	return ScriptHost{
		Submit:   func(context.Context, uint32, []byte, []byte) (int64, error) { return 0, errors.New("no calls") },
		Wait:     func(context.Context, time.Duration) (int64, error) { return 0, errors.New("no waits") },
		Answer:   func(int64) ([]byte, bool) { return nil, false },
		Forget:   func(int64) {},
		Steps:    func(uint64) {},
		Print:    func([]byte) error { return nil },
		Progress: func(float64, float64, []byte) {},
		Yield:    func() func(context.Context) error { return nil },
	}
}

func scriptRun(input string) *ScriptRun {
	return &ScriptRun{Host: noHost(), Input: []byte(input), CPU: 50 * time.Millisecond}
}

func digestOf(binary []byte) string { return fmt.Sprintf("%x", sha256.Sum256(binary)) }

func compileInterpreter(t testing.TB, binary []byte) *Module {
	t.Helper()
	p, err := PrepareInterpreter(binary, digestOf(binary))
	if err != nil {
		t.Fatal(err)
	}
	m, err := testCompiler(t).CompileInterpreter(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func openInterpreter(t testing.TB, change ...func(*Interpretation)) *Interpreter {
	t.Helper()
	how := Interpretation{Memory: 1 << 20, Input: 1 << 16, Output: 1 << 16, Instances: 4, Idle: 1, Warm: []*ScriptRun{scriptRun("before..")}}
	for _, f := range change {
		f(&how)
	}
	p, err := compileInterpreter(t, interpreterEncoder().bytes()).OpenInterpreter(t.Context(), how)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// afterWarm is what each run finds: the input of the warm run, and one turn of the global.
const afterWarm = "before..\x06\x00\x00\x00\x00\x00\x00\x00"

// settled waits until no run's instance is under way back to the pool.
func settled(t *testing.T, p *Interpreter) {
	t.Helper()
	for p.guest.front.active.Load() > 1 {
		if t.Context().Err() != nil {
			t.Fatal("the pool does not settle")
		}
		time.Sleep(50 * time.Microsecond)
	}
	p.guest.maker.work.Wait()
}

// TestX34Reset: memory, globals and tables of an instance are after each run what they
// were before the first, whatever the run did.
func TestX34Reset(t *testing.T) {
	p := openInterpreter(t)
	p.guest.pool.mu.Lock()
	want := bytes.Clone(p.guest.image.snapshot.Bytes())
	globals := slices.Clone(p.guest.image.globals)
	p.guest.pool.mu.Unlock()
	for i, input := range []string{"secret-1", "p-secret", "t-secret", "g-secret", "u-secret", "x", "l-secret", "secret-2"} {
		out, _, err := p.Run(t.Context(), scriptRun(input))
		var f *Failure
		switch input[0] {
		case 'u', 'l':
			if !errors.As(err, &f) || f.Reason != map[byte]Reason{'u': Trap, 'l': Deadline}[input[0]] {
				t.Errorf("%q: %v", input, err)
			}
		default:
			if err != nil || string(out) != afterWarm {
				t.Errorf("run %d, %q: got %q, %v", i, input, out, err)
			}
		}
		settled(t, p)
		if what := p.Differs(); what != "" {
			t.Errorf("after %q %s differs", input, what)
		}
		for _, in := range p.all() {
			memory, _ := in.memory.Read(0, in.memory.Size())
			if !bytes.Equal(memory, want) {
				t.Errorf("after %q the memory differs", input)
			}
			for i, g := range in.mutable {
				if g.Get() != globals[i] {
					t.Errorf("after %q global %d is %d, and was %d", input, i, g.Get(), globals[i])
				}
			}
			if in.dirty.Get() != 0 || entry(in, 1) {
				t.Errorf("after %q a table differs", input)
			}
			p.guest.pool.put(in)
		}
	}
	in := p.guest.pool.take() // what Differs would have found
	in.memory.WriteByte(stateAt+9, 1)
	p.guest.pool.put(in)
	if what := p.Differs(); what != "the memory" {
		t.Errorf("of a byte that changed it says %q", what)
	}
	if s := p.Stats(); s.Changed != 2 || s.Retired[Trap] != 1 || s.Retired[Deadline] != 1 {
		t.Errorf("instances retired: %d changed, %v", s.Changed, s.Retired)
	}
}

// all takes all idle instances out of the pool.
func (p *Interpreter) all() (all []*instance) {
	for in := p.guest.pool.take(); in != nil; in = p.guest.pool.take() {
		all = append(all, in)
	}
	return all
}

// entry reports whether an entry of table 0 holds a function.
func entry(in *instance, at uint32) (filled bool) {
	defer func() { _ = recover() }() // what the engine does for an empty one
	_ = table.LookupFunction(in.module, 0, at, []api.ValueType{api.ValueTypeI32, api.ValueTypeI32, api.ValueTypeI32, api.ValueTypeI32, api.ValueTypeI32}, []api.ValueType{api.ValueTypeI64})
	return true
}

// TestScriptCalls: what a run asks its host for arrives, its answer too, and an error of
// the host is what Run returns.
func TestScriptCalls(t *testing.T) {
	p := openInterpreter(t)
	r := scriptRun("c-argument")
	var asked string
	r.Host.Submit = func(_ context.Context, kind uint32, name, args []byte) (int64, error) {
		asked = string(name) + " " + string(args)
		return 7, nil
	}
	r.Host.Wait = func(_ context.Context, most time.Duration) (int64, error) {
		if most >= 0 {
			t.Errorf("a wait of %v", most)
		}
		return 7, nil
	}
	r.Host.Answer = func(id int64) ([]byte, bool) { return []byte("answered"), id == 7 }
	forgot := false
	r.Host.Forget = func(id int64) { forgot = id == 7 }
	out, used, err := p.Run(t.Context(), r)
	if err != nil || asked != "c c-argument" || !strings.HasPrefix(string(out), "answered") || !forgot {
		t.Errorf("asked %q, got %q, %v", asked, out, err)
	}
	if used.Fuel == 0 || used.Memory != 2*pageSize {
		t.Errorf("used %+v", used)
	}
	mine := errors.New("a budget is spent")
	r = scriptRun("c")
	r.Host.Submit = func(context.Context, uint32, []byte, []byte) (int64, error) { return 0, mine }
	if _, _, err := p.Run(t.Context(), r); err != mine {
		t.Errorf("the host's error comes back as %v", err)
	}
	for _, breach := range []string{"o", "h"} {
		var f *Failure
		if _, _, err := p.Run(t.Context(), scriptRun(breach)); !errors.As(err, &f) || f.Reason != Broken {
			t.Errorf("%q: %v", breach, err)
		}
	}
	settled(t, p)
}

// TestScriptCancel: a run ends with its context, computing or waiting, with the cause of
// that.
func TestScriptCancel(t *testing.T) {
	p := openInterpreter(t)
	cause := errors.New("the client is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	r := scriptRun("l")
	r.CPU = time.Minute
	r.Host.Yield = func() func(context.Context) error { cancel(cause); return nil }
	if _, _, err := p.Run(ctx, r); err != cause {
		t.Errorf("a computing run: %v", err)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	r = scriptRun("w")
	r.Host.Wait = func(ctx context.Context, _ time.Duration) (int64, error) {
		cancel(cause)
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	if _, _, err := p.Run(ctx, r); err != cause {
		t.Errorf("a waiting run: %v", err)
	}
	settled(t, p)
}

// TestScriptYield: what the host does between two slices takes none of the run's time.
func TestScriptYield(t *testing.T) {
	p := openInterpreter(t)
	r := scriptRun("l")
	rests := 0
	r.Host.Yield = func() func(context.Context) error {
		return func(context.Context) error {
			rests++
			for start := time.Now(); time.Since(start) < time.Millisecond; {
			}
			return nil
		}
	}
	for try := 1; ; try++ { // what else the machine does may make a slice longer, and not each time
		rests = 0
		var f *Failure
		_, used, err := p.Run(t.Context(), r)
		if late := used.CPU > 60*time.Millisecond; late && try < 3 {
			continue
		} else if !errors.As(err, &f) || f.Reason != Deadline || late {
			t.Errorf("ended by %v after %v", err, used.CPU)
		}
		break
	}
	if rests < 100 {
		t.Errorf("%d rests", rests) // of 1 ms each, in 50 ms of work
	}
	settled(t, p)
}

// TestScriptMemory: a run may be held to less memory than the instances have.
func TestScriptMemory(t *testing.T) {
	p := openInterpreter(t)
	r := scriptRun("g")
	r.Memory = 2 * pageSize
	if _, used, err := p.Run(t.Context(), r); err != nil || used.Memory != 2*pageSize {
		t.Errorf("a run that may not grow: %+v, %v", used, err)
	}
	settled(t, p)
	if _, used, err := p.Run(t.Context(), scriptRun("g")); err != nil || used.Memory != 3*pageSize {
		t.Errorf("a run that may: %+v, %v", used, err)
	}
	settled(t, p)
}

// TestScriptSpare: what a burst of runs needed is given back.
func TestScriptSpare(t *testing.T) {
	p := openInterpreter(t)
	release := make(chan struct{})
	waits := make(chan struct{}, 4)
	ended := make(chan error, 4)
	for range 4 {
		go func() {
			r := scriptRun("w")
			r.Host.Wait = func(context.Context, time.Duration) (int64, error) {
				waits <- struct{}{}
				<-release
				return 0, nil
			}
			_, _, err := p.Run(t.Context(), r)
			ended <- err
		}()
	}
	for range 4 {
		<-waits
	}
	close(release)
	for range 4 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	settled(t, p)
	if s := p.Stats(); s.Live < 4 {
		t.Errorf("after four runs at once: %d instances", s.Live)
	}
	p.trimmed()
	if s := p.Stats(); s.Live != 1 || s.Idle != 1 {
		t.Errorf("after a while: %d instances, %d idle", s.Live, s.Idle)
	}
}

// TestInterpreterIsNoFilter: the import module of scripts is the interpreter's alone, which
// has to be known by its digest.
func TestInterpreterIsNoFilter(t *testing.T) {
	binary := interpreterEncoder().bytes()
	c := testCompiler(t)
	var refusal *Refusal
	if _, err := c.Compile(t.Context(), binary, digestOf(binary)); !errors.As(err, &refusal) || !strings.Contains(err.Error(), ScriptModule) {
		t.Errorf("an interpreter as a filter: %v", err)
	}
	if _, err := Check(binary); !errors.As(err, &refusal) {
		t.Errorf("an interpreter, checked as a filter: %v", err)
	}
	if _, err := PrepareInterpreter(binary, ""); err == nil {
		t.Error("an interpreter without a digest is prepared")
	}
	if _, err := PrepareInterpreter(binary, strings.Repeat("0", 64)); err == nil {
		t.Error("an interpreter with another digest is prepared")
	}
	filter := byCommand().bytes()
	if _, err := PrepareInterpreter(filter, digestOf(filter)); !errors.As(err, &refusal) {
		t.Errorf("a filter as an interpreter: %v", err)
	}
	m, err := c.Compile(t.Context(), filter, "")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.OpenInterpreter(t.Context(), Interpretation{}); err == nil {
		t.Error("a filter is opened as an interpreter")
	}
}
