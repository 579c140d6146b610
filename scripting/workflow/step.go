package workflow

import (
	"errors"
	"fmt"
	"time"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/scripting"
)

// The states of a step.
const (
	statusRunning   = "running"
	statusCompleted = "completed"
	statusFailed    = "failed"
	statusSkipped   = "skipped"
)

// handle is a step of a run, and what step() returns. Its attributes wait until the step has
// ended.
type handle struct {
	run     *run
	task    *scripting.Task // any of the run
	id      string
	work    starlark.Callable
	after   []*handle
	held    bool              // after is given, if empty
	when    starlark.Callable // nil for always
	onError string
	def     starlark.Value // nil for none
	timeout time.Duration

	status  string
	ended   bool
	output  starlark.Value // nil for none
	content starlark.Value // of an answer; nil for none
	err     string
	attempt int // the last one
	began   time.Time
	waiters []*scripting.Task

	before map[string]bool // the ids of those that it depends on, also through others; nil before its first template
	sees   map[string]any  // what of the steps its templates read, where that is not all that have ended
}

// precede notes the steps that a step depends on.
func (h *handle) precede(all map[string]bool) {
	for _, other := range h.after {
		if !all[other.id] {
			all[other.id] = true
			other.precede(all)
		}
	}
}

func (h *handle) String() string        { return "step " + quote(h.id) }
func (h *handle) Type() string          { return "step" }
func (h *handle) Freeze()               {}
func (h *handle) Truth() starlark.Bool  { return starlark.True }
func (h *handle) Hash() (uint32, error) { return 0, errors.New("unhashable type: step") }
func (h *handle) AttrNames() []string   { return []string{"content", "error", "output", "status"} }

// Attr waits for the end of the step.
func (h *handle) Attr(name string) (starlark.Value, error) {
	switch name {
	case "content", "error", "output", "status":
	default:
		return nil, nil
	}
	if err := h.wait(h.task.Current()); err != nil {
		return nil, err
	}
	switch name {
	case "content":
		if h.content != nil {
			return h.content, nil
		}
	case "error":
		if h.err != "" {
			return starlark.String(h.err), nil
		}
	case "output":
		return h.value(), nil
	case "status":
		return starlark.String(h.status), nil
	}
	return starlark.None, nil
}

// value is the output; None for none.
func (h *handle) value() starlark.Value {
	if h.output == nil {
		return starlark.None
	}
	return h.output
}

// wait waits for the end of the step.
func (h *handle) wait(t *scripting.Task) error {
	for !h.ended {
		if f := t.Ended(); f != nil {
			return f
		}
		h.waiters = append(h.waiters, t)
		t.Park()
	}
	return nil
}

// step begins a step, as soon as those that it waits for have ended.
func (r *run) step(t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	h := &handle{run: r, task: t, status: statusRunning}
	var given struct { // in one piece
		after     *starlark.List
		when, def starlark.Value
		timeout   string
	}
	h.onError = "abort"
	if err := starlark.UnpackArgs("step", args, named, "id", &h.id, "work", &h.work, "after?", &given.after, "when??", &given.when, "on_error?", &h.onError, "default??", &given.def, "timeout?", &given.timeout); err != nil {
		return nil, err
	}
	switch {
	case h.id == "" || len(h.id) > 128:
		return nil, errors.New("step: an id has 1 to 128 bytes")
	case r.steps[h.id] != nil:
		return nil, fmt.Errorf("step: there are two steps %s", shown(h.id))
	case len(r.steps) >= maxStepsOfRun:
		return nil, fmt.Errorf("step: more than %d steps", maxStepsOfRun)
	case h.onError != "abort" && h.onError != "continue":
		return nil, fmt.Errorf("step: on_error is %s, and must be abort or continue", shown(h.onError))
	}
	var err error
	if h.when, err = callable("step", "when", given.when); err != nil {
		return nil, err
	}
	if h.timeout, err = duration("step", given.timeout, defaultStepTimeout); err != nil {
		return nil, err
	}
	if given.def != nil && given.def != starlark.None {
		h.def = given.def
	}
	if h.held = given.after != nil; h.held {
		for v := range starlark.Elements(given.after) {
			other, ok := v.(*handle)
			if !ok {
				return nil, fmt.Errorf("step: after: %s is no step", v.Type())
			}
			h.after = append(h.after, other)
		}
	}
	r.steps[h.id] = h
	r.live++
	t.Go(t.Run(), &around{step: h, item: -1, attempt: 1}, func(c *scripting.Task) error { return r.do(c, h) }, func(err error) {
		if err != nil { // a panic
			r.broken = true
			h.end(statusFailed, nil, scripting.Broken)
			_ = r.fail(h.task.Current(), h.id, scripting.Broken)
		}
		r.live--
		if r.finisher != nil && r.live == 0 {
			r.finisher.Wake()
		}
	})
	return h, nil
}

// callable is a function that a builtin may be given; nil for None.
func callable(builtin, name string, v starlark.Value) (starlark.Callable, error) {
	if v == nil || v == starlark.None {
		return nil, nil
	}
	f, ok := v.(starlark.Callable)
	if !ok {
		return nil, fmt.Errorf("%s: %s is %s, and must be a function", builtin, name, v.Type())
	}
	return f, nil
}

// duration reads a time such as 1m30s; other for "".
func duration(builtin, s string, other time.Duration) (time.Duration, error) {
	if s == "" {
		return other, nil
	}
	d, err := v1beta1.Duration(s).Parse()
	if err != nil {
		return 0, fmt.Errorf("%s: %s: %w", builtin, shown(s), err)
	}
	return d, nil
}

// do does a step, from the end of those it waits for to its own.
func (r *run) do(t *scripting.Task, h *handle) error {
	// 1. The steps before.
	for _, other := range h.after {
		if err := other.wait(t); err != nil {
			h.end(statusSkipped, nil, "the workflow ended before")
			return nil
		}
	}
	switch {
	case t.Ended() != nil:
		h.end(statusSkipped, nil, "the workflow ended before")
		return nil
	case r.skipping:
		h.end(statusSkipped, h.def, errSkipped.Error())
		return nil
	}

	// 2. The condition.
	h.began = time.Now()
	ctx, cancel := r.limited(t.Context(), h.timeout)
	defer cancel()
	if r.host.Begin != nil {
		within, end := r.host.Begin(ctx, h.id)
		ctx = within
		defer func() { end(h.err) }()
	}
	defer t.With(ctx, t.Local())()
	var (
		v   starlark.Value
		err error
	)
	if h.when != nil {
		var yes bool
		if yes, err = holds(t, h.when); err == nil && !yes {
			h.end(statusSkipped, h.def, "")
			return nil
		}
	}

	// 3. The work.
	r.tell(Event{Kind: StepStarted, Step: h.id})
	if err == nil {
		v, err = t.Call(h.work)
	}
	if err == nil && r.over(t) == nil {
		if bad := readable(v); bad != nil {
			err = failed("its output: %s", bad)
		}
	}

	// 4. What comes of it.
	switch {
	case r.over(t) != nil:
		h.end(statusFailed, nil, "ended with the workflow: "+r.why())
	case err == nil:
		h.end(statusCompleted, v, "")
	case errors.Is(err, errSkipped):
		h.end(statusSkipped, h.def, errSkipped.Error())
	default:
		message := r.message(err)
		var own *failure
		if ctx.Err() != nil && !(errors.As(err, &own) && own.unanswered) { // a question may have all of the step's time
			message = "timed out after " + scripting.Seconds(h.timeout)
		}
		if h.onError == "continue" {
			h.end(statusFailed, h.def, message)
			return nil
		}
		message = fmt.Sprintf("step %q: %s", h.id, message)
		_ = r.fail(t, h.id, message)
		h.end(statusFailed, nil, message)
	}
	return nil
}

// holds calls a condition, which says True or False.
func holds(t *scripting.Task, when starlark.Callable) (bool, error) {
	v, err := t.Call(when)
	if err != nil {
		return false, err
	}
	yes, ok := v.(starlark.Bool)
	if !ok {
		return false, fmt.Errorf("the condition is %s, and must be bool", v.Type())
	}
	return bool(yes), nil
}

// end is the end of a step: it is told, shown to templates, and those that wait go on.
func (h *handle) end(status string, output starlark.Value, err string) {
	r := h.run
	h.status, h.output, h.ended = status, output, true
	if h.content == nil && status != statusCompleted {
		h.content = contentOf(output)
	}
	e := Event{Kind: StepCompleted, Step: h.id, Attempt: h.attempt, Error: err}
	switch status {
	case statusFailed:
		e.Kind, h.err = StepFailed, err
	case statusSkipped:
		e.Kind = StepSkipped
	default:
		r.completed = append(r.completed, h.id)
	}
	for i, v := range []starlark.Value{output, h.content} {
		if v != nil && (i == 0 && status == statusCompleted || readable(v) == nil) { // a default may be within itself, and Freeze has no end then
			v.Freeze()
		}
	}
	if !h.began.IsZero() {
		e.Took = time.Since(h.began)
	}
	r.hidden = append(r.hidden, h)
	r.ended++
	r.tell(e)
	for _, t := range h.waiters {
		t.Wake()
	}
	h.waiters = nil
}

// contentOf is the content of an answer that the defaults of a question have; nil for none.
func contentOf(defaults starlark.Value) starlark.Value {
	if d, ok := defaults.(*starlark.Dict); ok {
		if v, there, _ := d.Get(starlark.String("content")); there {
			return v
		}
	}
	return nil
}

// shown is what templates read of a step that has ended. An error and a content that there was not
// are nothing, so that templates can ask for them.
func (h *handle) shown() map[string]any {
	shown := map[string]any{"status": h.status, "error": nil, "content": nil}
	if h.status == statusFailed {
		shown["error"] = h.err
	}
	if h.output != nil {
		shown["output"], _ = dataOf(h.output) // of which readable has seen that it can be read, or which stands in the text
	}
	if h.content != nil {
		if data, bad := dataOf(h.content); bad == nil {
			shown["content"] = data
		}
	}
	return shown
}
