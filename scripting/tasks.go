package scripting

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"go.starlark.net/starlark"
)

// A run executes one thread of the language at a time: the one whose task has the baton.
// A task that waits, for a call or for its children, gives the baton to the next that is
// ready; when none is, it waits at the host for any call on behalf of all. So nothing here
// needs a lock, values may be shared between children, and nothing can be lost.
//
// A task has a goroutine of its own only where it needs one. The last that may go on, while
// nothing is under way outside, begins on the goroutine of the one that waits, on top of it:
// nobody could wake that one before the new task waits or ends, but the end of the run, which
// wakes both, and then the one on top goes on first.

// The bounds of parallel().
const (
	maxCallables = 1000
	maxNested    = 64  // parallel() within parallel()
	maxChildren  = 256 // at once; beyond, a child runs on top of its parent, to its end
)

// taskKey is where a thread keeps its task.
const taskKey = "task"

// task is a thread of the language, and the goroutine that it runs on.
type task struct {
	run    *run
	thread *starlark.Thread
	depth  int // of parallel()

	ctx   context.Context // of its calls, within that of the run; nil for that of the run
	local any             // of an extension

	begins  func()        // what it does, while it has not begun; nil for the first task of a run
	baton   chan struct{} // made when it first waits for another goroutine
	ready   bool
	covered bool   // another task is under way on top of it
	self    Task   // what an extension is given
	answer  []byte // of the call that it waited for; nil when the run ended meanwhile
}

func (r *run) task(depth int) *task {
	if r.idle == nil || len(r.tasks) >= mostTasks {
		return newTask(r, depth)
	}
	t, _ := r.idle.Get().(*task)
	if t == nil {
		t = newTask(r, depth)
	}
	t.run, t.depth = r, depth
	r.tasks = append(r.tasks, t)
	return t
}

func newTask(r *run, depth int) *task {
	t := &task{run: r, thread: &starlark.Thread{}, depth: depth}
	t.thread.SetLocal(taskKey, t)
	t.thread.OnMaxSteps = func(thread *starlark.Thread) { t.run.look(thread) }
	t.thread.Print = func(*starlark.Thread, string) {} // print is a builtin of ours
	return t
}

// mostTasks is how many tasks a run leaves to others: most runs have no more.
const mostTasks = 8

// free leaves the tasks of a run that is over to others. After a panic their threads are not
// as new.
func (r *run) free() {
	if r.crashed {
		return
	}
	for _, t := range r.tasks {
		t.thread.Steps = 0
		t.thread.Uncancel()
		*t = task{thread: t.thread, self: t.self}
		r.idle.Put(t)
	}
}

// outer is the task as an extension sees it.
func (t *task) outer() *Task {
	t.self.t = t
	return &t.self
}

func taskOf(thread *starlark.Thread) *task { return thread.Local(taskKey).(*task) }

// take is what a task does when it got the baton: the steps of all are its own.
func (t *task) take() {
	t.run.current = t
	t.thread.Steps = t.run.steps
	t.thread.SetMaxExecutionSteps(t.run.mark)
}

// park gives the baton away until the task is ready.
func (t *task) park() {
	r := t.run
	r.steps = t.thread.Steps
	next := r.next()
	for next.begins != nil && r.alone() {
		t.covered = true
		next.begin()
		t.covered = false
		next = r.next()
	}
	if next != t {
		if t.baton == nil {
			t.baton = make(chan struct{}, 1)
		}
		r.hand(next)
		<-t.baton
	}
	t.ready = false
	t.take()
}

// alone reports whether nothing can happen but what the task that has the baton does, or the
// end of the run.
func (r *run) alone() bool { return len(r.ready) == 0 && len(r.waiting) == 0 && len(r.queue) == 0 }

// begin does what a task is there for. It has the baton.
func (t *task) begin() {
	work := t.begins
	t.begins, t.ready = nil, false
	t.take()
	work()
	t.run.steps = t.thread.Steps
}

// hand gives the baton to a task. One that has not begun gets a goroutine, which goes on with
// others that have not.
func (r *run) hand(t *task) {
	if t.begins == nil {
		t.baton <- struct{}{}
		return
	}
	go func() {
		room()
		for t.begins != nil {
			t.begin()
			t = r.next()
		}
		t.baton <- struct{}{}
	}()
}

// wake lets a task go on when it is its turn.
func (r *run) wake(t *task) {
	if !t.ready {
		t.ready = true
		r.ready = append(r.ready, t)
	}
}

// next takes the next task that may go on, and waits for a call to end while there is none.
func (r *run) next() *task {
	for {
		if i := slices.IndexFunc(r.ready, func(t *task) bool { return !t.covered }); i >= 0 {
			t := r.ready[i]
			copy(r.ready[1:], r.ready[:i]) // those before are few: they stand beneath others
			r.ready = r.ready[1:]
			return t
		}
		if len(r.waiting) == 0 && r.final == nil {
			r.end(&Fault{Message: "everything waits for something that never comes"})
			continue
		}
		r.tell(r.steps)
		id := r.host.Wait()
		if id == 0 {
			var f *Fault
			if r.host.Stop != nil {
				f = r.host.Stop()
			}
			r.end(f)
			continue
		}
		w := r.waiting[id]
		if w.task == nil {
			continue // ended after the run did
		}
		delete(r.waiting, id)
		if !w.work {
			w.task.answer = r.host.Answer(id)
			r.underway--
		}
		r.wake(w.task)
		r.submit()
	}
}

// room makes room on the stack of a goroutine while there is nothing on it that would have to
// move: the interpreter calls deep, and a stack that grows with it moves many times.
//
//go:noinline
func room() {
	var stack [12 << 10]byte
	runtime.KeepAlive(&stack)
}

// waiting is a task that waits for an answer, or for work of an extension.
type waiting struct {
	task *task
	work bool
}

// request is a call that has not begun.
type request struct {
	task *task
	kind Kind
	tool string
	args []byte
}

// submit begins calls of the queue while there are places.
func (r *run) submit() {
	for len(r.queue) > 0 && r.underway < r.limits.Parallel {
		q := r.queue[0]
		r.queue = r.queue[1:]
		r.underway++
		if r.calling != nil {
			r.waiting[r.calling.submit(q.task.ctx, q.kind, q.tool, q.args)] = waiting{task: q.task}
			continue
		}
		r.waiting[r.host.Submit(q.kind, q.tool, q.args)] = waiting{task: q.task}
	}
}

// ask makes one call and waits for its answer. The error is a *Fault that nothing catches.
func (t *task) ask(kind Kind, tool string, args []byte) ([]byte, error) {
	r := t.run
	if r.final != nil {
		return nil, r.final
	}
	if r.calls >= r.limits.Calls {
		return nil, r.end(&Fault{Message: fmt.Sprintf("more than %d tool calls", r.limits.Calls), Cause: Budget})
	}
	r.calls++
	r.queue = append(r.queue, &request{t, kind, tool, args})
	r.submit()
	t.answer = nil
	t.park()
	if r.final != nil {
		return nil, r.final
	}
	return t.answer, nil
}

// Error makes a fault the error of a builtin.
func (f *Fault) Error() string { return f.Message }

// group is one parallel() under way.
type group struct {
	parent    *task
	callables []starlark.Callable
	results   []starlark.Value
	begun     int
	live      int
	err       error // the first one
	more      int   // errors after it
}

// parallel calls the callables, and returns what they return, in their order. At most
// Limits.Parallel of them are under way at once: more could not make calls anyway.
func (t *task) parallel(callables []starlark.Callable) (starlark.Value, error) {
	r := t.run
	if t.depth == maxNested {
		return nil, fmt.Errorf("parallel: nested more than %d deep", maxNested)
	}
	g := &group{parent: t, callables: callables, results: make([]starlark.Value, len(callables))}
	for g.goesOn() {
		if r.children >= maxChildren {
			c, i := g.next()
			c.begins = func() {
				v, err := c.call(g.callables[i])
				g.done(i, v, err)
			}
			r.steps = t.thread.Steps
			c.begin() // a thread of its own: what its parent is within may be called again
			t.take()
			continue
		}
		g.begin()
		t.park()
	}
	switch {
	case g.err != nil:
		return nil, &inChild{err: g.err, more: g.more}
	case r.final != nil:
		return nil, r.final
	}
	return starlark.NewList(g.results), nil
}

// goesOn reports whether something is left to begin.
func (g *group) goesOn() bool {
	return g.begun < len(g.callables) && g.err == nil && g.parent.run.final == nil
}

// next makes the task of the next child.
func (g *group) next() (c *task, i int) {
	i, c = g.begun, g.parent.run.task(g.parent.depth+1)
	c.ctx, c.local = g.parent.ctx, g.parent.local
	g.begun++
	return c, i
}

// begin starts children up to what may run at once.
func (g *group) begin() {
	r := g.parent.run
	for g.goesOn() && g.live < r.limits.Parallel && r.children < maxChildren {
		c, i := g.next()
		g.live++
		r.children++
		c.begins = func() { g.child(c, i) }
		r.wake(c)
	}
}

// child runs one callable on a thread of its own.
func (g *group) child(c *task, i int) {
	v, err := c.call(g.callables[i])
	c.run.children--
	g.live--
	g.done(i, v, err)
	if g.begin(); g.live == 0 {
		c.run.wake(g.parent)
	}
}

// call calls a function, unless the run is at its end. A panic becomes an error.
func (c *task) call(f starlark.Callable) (v starlark.Value, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = c.run.broken(p)
		}
	}()
	if c.run.final != nil {
		return nil, c.run.final
	}
	return starlark.Call(c.thread, f, nil, nil)
}

func (g *group) done(i int, v starlark.Value, err error) {
	switch {
	case err == nil:
		g.results[i] = v
	case g.err == nil:
		g.err = err
	default:
		g.more++
	}
}

// inChild is an error that a child of parallel() ended with.
type inChild struct {
	err  error
	more int
}

func (e *inChild) Error() string { return e.err.Error() + e.suffix() }

// suffix counts the errors that came after the one that is told.
func (e *inChild) suffix() string {
	switch e.more {
	case 0:
		return ""
	case 1:
		return " (and 1 more error)"
	}
	return fmt.Sprintf(" (and %d more errors)", e.more)
}

func (e *inChild) Unwrap() error { return e.err }
