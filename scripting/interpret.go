package scripting

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"go.starlark.net/starlark"
)

// Host is what the interpreter asks of the outside. It is the import module weir_script_v1
// as functions: the engine in process fills it with Calls, a guest with its imports. The
// interpreter calls one of them at a time.
type Host struct {
	Submit   func(kind Kind, tool string, args []byte) (id uint32) // begins a call; what DecodeCall reads; the id is not 0
	Wait     func() (id uint32)                                    // of any call that has ended and was not returned before; 0 when the run must end
	Answer   func(id uint32) []byte                                // of a call that Wait returned: what EncodeAnswer wrote
	Print    func(text string)                                     // without the line's end
	Progress func(done, total float64, message string)

	// Stop says why the run must end, or nil. It is asked every 10,000 steps, at first more
	// often, and when Wait returned 0. Nil for a host that ends the interpreter itself.
	Stop func() *Fault

	// Steps is told the steps as often, and before the run waits. Nil for nobody.
	Steps func(n uint64)
}

// slice is how many steps pass between two looks at what may end a run. The first come
// sooner, after as many steps as there were.
const (
	slice      = 10_000
	firstSlice = 100
)

// Full returns the limits with each default in place of zero.
func (l Limits) Full() Limits {
	fill(&l.Steps, 100_000)
	fill(&l.Parallel, 10)
	fill(&l.Calls, 1000)
	fill(&l.PerCall, 30*time.Second)
	fill(&l.CPU, time.Second)
	fill(&l.Timeout, time.Minute)
	fill(&l.Memory, 64<<20)
	return l
}

func fill[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// Interpret runs a program to its end. The data is the wire form of an object, or nil for
// none; of the limits Steps, Parallel and Calls count. Both engines do this: one in process
// and one as a guest.
func Interpret(p *Program, data []byte, limits Limits, h *Host) *End {
	r := newRun(p.compiled, &p.names, limits, h)
	return r.interpret(r.task(0), data)
}

// run is the state of one run. Whoever has the baton, one task at a time, may use it.
type run struct {
	host    *Host
	limits  Limits
	program *starlark.Program
	whole   bool // the text is a file of functions, not the body of one
	names   *Names
	meter   *meter                    // of what values take; nil where the host bounds the memory
	hold    func(bytes int64) bool    // asks for more of it; see turns.Turn
	scope   starlark.StringDict       // of the program, but for tools and data; nil where each run makes its own
	counted func(starlark.StringDict) // puts the builtins that count into a scope; nil without a meter, so that the sandbox's module lacks them

	init    *initial   // nil where each run makes its own
	idle    *sync.Pool // of tasks that other runs have left; nil where there are none
	tasks   []*task    // that this one leaves; a few
	crashed bool       // the interpreter panicked

	steps uint64 // of all tasks, while none runs
	mark  uint64 // the steps at which to look next
	calls int
	final *Fault // why everything ends; nil while the run goes on

	underway int                // calls
	queue    []*request         // calls that wait for a place
	waiting  map[uint32]waiting // for the answer of a call
	parked   []*task            // that wait for another task to wake them
	ready    []*task            // that may go on
	children int                // tasks besides the first

	ahead func(units int) *Fault // in the place of host.Stop, for a host that looks ahead; nil for none

	current   *task // that has the baton
	extension *Extension
	calling   *Calls       // on which an extension works; nil without one
	aside     func(func()) // does what is outside of the language for an extension
}

func newRun(program *starlark.Program, names *Names, limits Limits, h *Host) *run {
	l := limits.Full()
	return &run{host: h, limits: l, program: program, names: names, mark: min(l.Steps, firstSlice), waiting: map[uint32]waiting{}}
}

// interpret runs the program in the first task.
func (r *run) interpret(t *task, data []byte) (end *End) {
	defer func() {
		if v := recover(); v != nil {
			f := r.broken(v)
			end = &End{Error: &Error{Message: f.Message, Cause: f.Cause}}
		}
		end.Steps, end.Calls = min(t.thread.Steps, r.limits.Steps), r.calls
	}()
	scope, err := r.predeclared(data)
	if err != nil {
		return &End{Error: &Error{Message: Clean(err.Error())}}
	}
	t.take()
	var v starlark.Value
	main, err := r.main(t.thread, scope)
	if err == nil {
		v, err = starlark.Call(t.thread, main, nil, nil)
	}
	if r.extension != nil && r.extension.Finish != nil {
		v, err = r.extension.Finish(&Task{t}, v, err)
	}
	if err != nil || r.final != nil {
		return &End{Error: r.report(err)}
	}
	wire, err := encode(nil, "result", v, MaxOut)
	if err != nil {
		return &End{Error: &Error{Message: Clean(err.Error())}}
	}
	return &End{Value: wire}
}

// initial is what the text of a program is once its file has run, which makes one function. In
// process it is made once, for programs that need nothing of a run.
type initial struct {
	main  starlark.Value // nil where each run makes its own
	steps uint64
}

func (i *initial) make(p *starlark.Program, scope starlark.StringDict) error {
	thread := &starlark.Thread{}
	globals, err := p.Init(thread, scope)
	if err != nil {
		return err
	}
	globals.Freeze()
	i.main, i.steps = globals[entry], thread.Steps
	return nil
}

// main returns the function whose body is the text.
func (r *run) main(thread *starlark.Thread, scope starlark.StringDict) (starlark.Value, error) {
	if r.init != nil && r.init.main != nil && r.scope != nil {
		thread.Steps += r.init.steps
		return r.init.main, nil
	}
	globals, err := r.program.Init(thread, scope)
	if err != nil {
		return nil, err
	}
	return globals[entry], nil
}

func tooManySteps(limit uint64) *Fault {
	return &Fault{Message: fmt.Sprintf("too many steps (%d)", limit), Cause: Budget, Spent: StepsSpent}
}

// broken is the fault for a panic of the interpreter: where it wants a value of more elements
// than memory has addresses, that of a script that needs too much.
func (r *run) broken(v any) *Fault {
	r.crashed = true
	if e, ok := v.(runtime.Error); ok && (strings.Contains(e.Error(), "makeslice") || strings.Contains(e.Error(), "growslice")) {
		return r.needsMore()
	}
	return &Fault{Message: Broken, Cause: Defect}
}

// needsMore is the fault of a run that needs more memory than it may have.
func (r *run) needsMore() *Fault {
	return &Fault{Message: fmt.Sprintf("needs more than %d MiB", r.limits.Memory>>20), Cause: Budget, Spent: MemorySpent}
}

// predeclared are the values of the names that the program uses.
func (r *run) predeclared(data []byte) (starlark.StringDict, error) {
	if r.scope != nil && len(r.names.Tools)+len(r.names.Data) == 0 {
		return r.scope, nil
	}
	scope := make(starlark.StringDict, 8+len(r.scope)+len(r.names.Tools)+len(r.names.Data))
	if r.scope != nil {
		maps.Copy(scope, r.scope)
	} else {
		r.builtins(scope)
	}
	for _, t := range r.names.Tools {
		scope[t.Name] = toolFunction(t)
	}
	if len(r.names.Data) == 0 {
		return scope, nil
	}
	var given *starlark.Dict
	if data != nil {
		v, err := decode(data, r.meter)
		if err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
		given, _ = v.(*starlark.Dict)
	}
	for _, name := range r.names.Data {
		if given == nil {
			return nil, fmt.Errorf("data: %s is missing", name)
		}
		v, found, err := given.Get(starlark.String(name))
		if err != nil || !found {
			return nil, fmt.Errorf("data: %s is missing", name)
		}
		scope[name] = v
	}
	return scope, nil
}

// builtins puts into a scope what the program uses, but tools and data.
func (r *run) builtins(scope starlark.StringDict) {
	builtins(scope, r.names)
	for _, name := range r.names.Extra {
		if scope[name] = starlark.None; r.extension != nil {
			scope[name] = extra(name)
		}
	}
	if r.counted != nil {
		r.counted(scope)
	}
}

// end makes everything stop, with the first reason that was given. Whoever waits goes on,
// and finds the reason.
func (r *run) end(f *Fault) *Fault {
	if r.final != nil {
		return r.final
	}
	if f == nil {
		f = &Fault{Message: "cancelled", Cause: Cancelled}
	}
	f.Final = true
	r.final = f
	for _, q := range r.queue {
		r.wake(q.task)
	}
	r.queue = nil
	for _, id := range slices.Sorted(maps.Keys(r.waiting)) {
		r.wake(r.waiting[id].task)
	}
	clear(r.waiting)
	for _, t := range r.parked {
		r.wake(t)
	}
	r.parked = nil
	return f
}

// stop asks what may end the run. units is the work that is about to be done in one step.
func (r *run) stop(units int) *Fault {
	switch {
	case r.ahead != nil:
		return r.ahead(units)
	case r.host.Stop != nil:
		return r.host.Stop()
	}
	return nil
}

// look is what a thread does at the mark: it ends the run when a budget is spent or the host
// says so, and sets the next mark otherwise.
func (r *run) look(thread *starlark.Thread) {
	r.tell(thread.Steps)
	if thread.Steps >= r.limits.Steps {
		r.end(tooManySteps(r.limits.Steps))
	} else if f := r.stop(0); f != nil {
		r.end(f)
	}
	if r.final != nil {
		thread.Cancel(r.final.Message)
		return
	}
	r.mark = min(thread.Steps+min(thread.Steps, slice), r.limits.Steps)
	thread.SetMaxExecutionSteps(r.mark)
}

// tell tells the host the steps.
func (r *run) tell(steps uint64) {
	if r.host.Steps != nil {
		r.host.Steps(min(steps, r.limits.Steps))
	}
}
