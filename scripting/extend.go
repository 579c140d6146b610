package scripting

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"go.starlark.net/starlark"
)

// Extension adds builtins of another package to the engine in process, for the names in
// Scope.Extra.
type Extension struct {
	// Builtin is a call of a builtin, made by the task that has the baton.
	Builtin func(t *Task, name string, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error)

	// Finish makes the result of a run from what the program returned, or the error it ended
	// with. No task but this one may be left when it returns. Nil leaves both as they are.
	Finish func(t *Task, v starlark.Value, err error) (starlark.Value, error)
}

// extra is a builtin of the extension of whatever run calls it.
func extra(name string) starlark.Value {
	return starlark.NewBuiltin(name, func(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
		t := taskOf(thread)
		if t.run.final != nil {
			return nil, t.run.final
		}
		return t.run.extension.Builtin(t.outer(), b.Name(), args, named)
	})
}

// Task is one thread of the language, for an extension. Only the one that has the baton
// runs, so that what tasks of one run share needs no lock.
type Task struct{ t *task }

// Current returns the task that has the baton, for values whose methods are not told it.
func (t *Task) Current() *Task { return t.t.run.current.outer() }

// Context returns the context of the task's calls.
func (t *Task) Context() context.Context {
	if t.t.ctx == nil {
		return t.Run()
	}
	return t.t.ctx
}

// Run returns the context of the calls of the run.
func (t *Task) Run() context.Context { return t.t.run.calling.ctx }

// Local returns what the extension keeps with the task, and with the tasks that it begins.
func (t *Task) Local() any { return t.t.local }

// With sets the context of the task's calls and what the extension keeps with it, and
// returns what puts both back.
func (t *Task) With(ctx context.Context, local any) (back func()) {
	was, before := t.t.ctx, t.t.local
	t.t.ctx, t.t.local = ctx, local
	return func() { t.t.ctx, t.t.local = was, before }
}

// Go begins a task. It runs when the others wait. A panic in it becomes its error, which
// done is told; both are called by the new task.
func (t *Task) Go(ctx context.Context, local any, f func(*Task) error, done func(error)) {
	r := t.t.run
	c := r.task(t.t.depth)
	c.ctx, c.local = ctx, local
	c.begins = func() { done(c.safely(f)) }
	r.wake(c)
}

func (c *task) safely(f func(*Task) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = c.run.broken(p)
		}
	}()
	return f(c.outer())
}

// Park waits until another task wakes this one, or the run ends. It may return for no
// reason, so whoever parks looks again.
func (t *Task) Park() {
	r := t.t.run
	r.parked = append(r.parked, t.t)
	t.t.park()
}

// Wake lets a task go on that is parked. To wake another does nothing.
func (t *Task) Wake() {
	r := t.t.run
	if i := slices.Index(r.parked, t.t); i >= 0 {
		r.parked = slices.Delete(r.parked, i, i+1)
		r.wake(t.t)
	}
}

// Do does work outside of the language, such as a call or a wait, while other tasks go on.
// The work has to end with the context. The error says why the run ended meanwhile; then the
// work may still be under way, and nothing it writes may be read.
func (t *Task) Do(work func(context.Context)) error {
	r := t.t.run
	if r.final != nil {
		return r.final
	}
	ctx := t.Context()
	if r.alone() { // so nobody waits for the baton meanwhile
		r.aside(func() { work(ctx) })
		if r.calling.ctx.Err() != nil {
			return r.end(r.host.Stop())
		}
		return nil
	}
	r.waiting[r.calling.do(func() { work(ctx) })] = waiting{task: t.t, work: true}
	t.t.park()
	if r.final != nil {
		return r.final
	}
	return nil
}

// Call calls a function of the language.
func (t *Task) Call(f starlark.Callable, args ...starlark.Value) (starlark.Value, error) {
	if t.t.run.final != nil {
		return nil, t.t.run.final
	}
	return starlark.Call(t.t.thread, f, args, nil)
}

// End ends the run: nothing more begins, and what waits goes on with this fault, or with the
// one that came before.
func (t *Task) End(f *Fault) *Fault { return t.t.run.end(f) }

// Ended returns why the run is at its end; nil while it goes on.
func (t *Task) Ended() *Fault { return t.t.run.final }

// Value makes a value of a JSON text within the bounds of an answer.
func (t *Task) Value(text []byte) (starlark.Value, error) {
	if v := plainValue(text); v != nil {
		return v, t.t.run.charge(v)
	}
	if err := t.Work(len(text) / 2); err != nil {
		return nil, err
	}
	wire, err := FromJSON(text)
	if err != nil {
		return nil, err
	}
	return decode(wire, t.t.run.meter)
}

// plainValue is the value of a short JSON text without escapes; nil for any other.
func plainValue(text []byte) starlark.Value {
	n := len(text)
	switch {
	case n < 2 || n > 256:
		return nil
	case text[0] == '"' && text[n-1] == '"':
		for _, c := range text[1 : n-1] {
			if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
				return nil
			}
		}
		return starlark.String(text[1 : n-1])
	case string(text) == "true":
		return starlark.True
	case string(text) == "false":
		return starlark.False
	case string(text) == "null":
		return starlark.None
	}
	return nil
}

// Text counts a text that an extension made, and makes it a value.
func (t *Task) Text(s string) (starlark.Value, error) {
	v := starlark.String(s)
	if err := t.t.run.work(t.t.thread, len(s), 0); err != nil {
		return nil, err
	}
	return v, t.t.run.charge(v)
}

// Work counts units of 10 ns of work that is about to be done in one step. The error ends
// the run.
func (t *Task) Work(units int) error {
	if m := t.t.run.meter; m != nil {
		return m.work(t.t.thread, units)
	}
	return nil
}

// Allocate counts bytes of values that an extension makes. The error ends the run.
func (t *Task) Allocate(bytes int) error {
	if m := t.t.run.meter; m != nil {
		return m.allocate(bytes)
	}
	return nil
}

// Fits refuses a value of so many bytes or elements that would be too large, and counts the
// work of making it.
func (t *Task) Fits(bytes, elements int) error { return t.t.run.work(t.t.thread, bytes, elements) }

// Thread is the thread that the task runs on.
func (t *Task) Thread() *starlark.Thread { return t.t.thread }

// TaskOf returns the task that a thread of this package belongs to.
func TaskOf(thread *starlark.Thread) *Task { return taskOf(thread).outer() }

// JSON returns the JSON text of a value, of at most MaxOut bytes. The name stands in front
// of the path in errors.
func JSON(name string, v starlark.Value) ([]byte, error) { return (&encoder{}).json(name, v) }

// AppendJSON appends what JSON returns.
func AppendJSON(b []byte, name string, v starlark.Value) ([]byte, error) {
	if s, ok := v.(starlark.String); ok && len(s) < MaxOut/8 && utf8.ValidString(string(s)) {
		return appendString(b, string(s)), nil
	}
	text, err := JSON(name, v)
	return append(b, text...), err
}

// JSON is JSON, and counts the work and the text.
func (t *Task) JSON(name string, v starlark.Value) ([]byte, error) {
	text, err := (&encoder{payer: t.t.run.meter, thread: t.t.thread}).json(name, v)
	if err == nil {
		err = t.Work(len(text) / 4)
	}
	if err == nil {
		err = t.Allocate(len(text))
	}
	return text, err
}

func (e *encoder) json(name string, v starlark.Value) ([]byte, error) {
	e.left, e.most = MaxNodes, MaxOut
	wire, err := e.whole(name, v)
	if err != nil {
		return nil, err
	}
	text, err := ToJSON(wire)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}

// Raise is Raise with the data of the fault, where it is within the bounds of an answer.
func (t *Task) Raise(tool string, f Fault) error {
	e := &raised{fault: Fault{Message: f.Message, Code: f.Code}, tool: tool}
	if v, err := t.Value(f.Data); err == nil {
		e.data = v
	}
	return e
}

// Raise makes an error that attempt() catches, of a tool; "" for none. It has no data.
func Raise(tool string, f Fault) error { return &raised{fault: f, tool: tool} }
