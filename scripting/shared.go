package scripting

import (
	"errors"
	"fmt"
	"sync"

	"go.starlark.net/starlark"
)

// Shared is a program whose text has run once, so that its functions can be called: in
// process, and many at once. What the text made is frozen, and nothing that one call makes is
// seen by another.
type Shared struct {
	program *Program
	with    Sharing
	globals starlark.StringDict
	callers sync.Pool
}

// Sharing is what the functions of a program are called with.
type Sharing struct {
	Load, Call Limits // Steps and Memory, of the text itself and of each call
	Data       []byte // JSON text of an object: values of the names in Scope.Data; nil for none

	// Builtin is a call of a builtin of Scope.Extra. Task.Local is what Invoke was given.
	Builtin func(t *Task, name string, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error)

	Begin func(t *Task) // is told the task of a call before it begins; nil for nobody

	Print func(local any, text string) // a line, without its end

	// Stop says why a call must end, or nil. It is asked every 10,000 steps, and before work
	// that takes as long or longer in one step: units of 10 ns each.
	Stop func(local any, units int) *Fault
}

// lookEveryCall is after how many units of work a call looks at what may end it: as long as
// a slice of steps takes.
const lookEveryCall = 1 << 14

// Share runs the text of a program that was compiled with Scope.Whole. local is its Task.Local.
func Share(p *Program, with Sharing, local any) (*Shared, error) {
	if p == nil || !p.whole {
		return nil, errors.New("scripting: a program without functions to call")
	}
	compiled, err := p.forProcess()
	if err != nil {
		return nil, err
	}
	var data []byte
	if with.Data != nil {
		if len(with.Data) > MaxData {
			return nil, &Error{Message: fmt.Sprintf("data: larger than %d bytes", MaxData)}
		}
		if data, err = FromJSON(with.Data); err != nil {
			return nil, &Error{Message: "data: " + err.Error()}
		}
	}
	s := &Shared{program: p, with: with}
	c := s.caller(with.Load)
	scope, err := c.run.predeclared(data)
	if err != nil {
		return nil, &Error{Message: Clean(err.Error())}
	}
	for _, name := range p.names.Data {
		scope[name].Freeze()
	}
	_, failed := c.guard(local, func() (starlark.Value, error) {
		if s.globals, err = compiled.Init(c.task.thread, scope); err == nil {
			err = c.meter.freeze(c.task.thread, s.globals)
		}
		return starlark.None, err
	})
	if failed != nil {
		return nil, failed
	}
	s.callers.New = func() any { return s.caller(with.Call) }
	return s, nil
}

// Globals are the names of the text and their values, which are frozen. The caller must not
// change the map.
func (s *Shared) Globals() starlark.StringDict { return s.globals }

// Invoke calls a function of the program. local is Task.Local of the builtins that it calls.
// steps are those of the language, and work that counts as such. What the function did wrong
// is an *Error.
func (s *Shared) Invoke(f starlark.Callable, args starlark.Tuple, local any) (v starlark.Value, steps uint64, failed *Error) {
	c := s.callers.Get().(*caller)
	v, failed = c.guard(local, func() (starlark.Value, error) { return starlark.Call(c.task.thread, f, args, nil) })
	steps = min(c.task.thread.Steps+uint64(c.meter.spent/unitsPerStep), c.run.limits.Steps)
	if !c.broken {
		c.reset()
		s.callers.Put(c)
	}
	return v, steps, failed
}

// caller is a thread of its own for one call at a time.
type caller struct {
	run    run
	task   *task
	meter  meter
	host   Host
	local  any
	begin  func(*Task)
	broken bool // the interpreter panicked on it
}

func (s *Shared) caller(limits Limits) *caller {
	c := &caller{run: run{limits: limits.Full(), names: &s.program.names, program: s.program.counted, whole: true}}
	r := &c.run
	r.host, r.meter = &c.host, &c.meter
	r.counted = func(scope starlark.StringDict) { putCounted(scope, s.program.uses) }
	c.meter = meter{run: r, every: lookEveryCall}
	c.host.Print = func(text string) {
		if s.with.Print != nil {
			s.with.Print(c.local, text)
		}
	}
	if s.with.Stop != nil {
		r.ahead = func(units int) *Fault { return s.with.Stop(c.local, units) }
	}
	r.extension = &Extension{Builtin: s.with.Builtin}
	c.begin = s.with.Begin
	c.task = r.task(0)
	r.current = c.task
	c.reset()
	return c
}

// reset makes the thread as a new one.
func (c *caller) reset() {
	r, thread := &c.run, c.task.thread
	thread.Steps = 0
	thread.Uncancel()
	r.mark = min(r.limits.Steps, slice)
	thread.SetMaxExecutionSteps(r.mark)
	r.final = nil
	c.meter.total, c.meter.spent, c.meter.looked = 0, 0, 0
	c.meter.stored, c.meter.stores, c.meter.room, c.meter.chains = nil, 0, 0, nil
	c.local, c.task.local = nil, nil
}

// guard runs something of the language, and makes an *Error of what it ends with.
func (c *caller) guard(local any, work func() (starlark.Value, error)) (v starlark.Value, failed *Error) {
	c.local, c.task.local = local, local
	defer func() {
		if p := recover(); p != nil {
			v, failed, c.broken = nil, &Error{Message: c.run.broken(p).Message, Cause: Defect}, true
		}
	}()
	if c.begin != nil {
		c.begin(c.task.outer())
	}
	v, err := work()
	if err != nil || c.run.final != nil {
		return nil, c.run.report(err)
	}
	return v, nil
}
