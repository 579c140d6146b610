package workflow

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/turns"
)

// Limits of one run.
const (
	maxStepsOfLanguage = 10_000_000
	maxCalls           = 100_000
	maxUnderWay        = 50 // calls at once
	maxStepsOfRun      = 100
)

// light is how many bytes of arguments are read without a place to compute.
const light = 16 << 10

// small is how many bytes of arguments are not worth counting what they take as values.
const small = 1 << 10

// Outcome is what became of a run.
type Outcome struct {
	Value     []byte   // JSON text of an object: what the tool returns; nil for an error
	Error     *Failure // nil for none
	Arguments string   // what is wrong with the arguments, from their JSON pointer on; nothing ran
	TimedOut  bool
	Spent     bool     // it needed more than a run may have: steps, memory, calls
	Logs      []string // what was printed
	LeftOut   []LeftOut

	Steps uint64 // of the language
	Calls int    // attempts
	Took  time.Duration
}

// LeftOut is a property of the output that has no value.
type LeftOut struct {
	Property string // such as output.p
	Why      string // which may show a value
}

// Failure is why a workflow has no value.
type Failure struct {
	Workflow  string   `json:"workflow"`
	Step      string   `json:"step,omitempty"` // "" where no step is at fault
	Message   string   `json:"message"`
	Completed []string `json:"completed"` // ids of the steps that were completed, in that order
}

// Result returns the JSON text of a CallToolResult, for a client of the modern era or another.
func (o *Outcome) Result(modern bool) []byte {
	text, structured, failed := "", o.Value, false
	switch {
	case o.Arguments != "":
		text, structured, failed = "invalid arguments: "+o.Arguments, nil, true
	case o.Error == nil:
		text = string(o.Value)
	default:
		text = "Workflow execution failed: " + o.Error.Message
		if o.TimedOut {
			text = "Workflow execution timeout exceeded"
		}
		told, _ := json.Marshal(struct { // texts alone
			Error *Failure `json:"error"`
		}{o.Error})
		structured, failed = told, true
	}
	b := append(make([]byte, 0, len(text)+len(text)/4+len(structured)+100), '{')
	if modern {
		b = append(b, `"resultType":"complete",`...)
	}
	b = append(b, `"content":[{"type":"text","text":`...)
	b = append(mcp.AppendString(b, text), "}]"...)
	if structured != nil {
		b = append(append(b, `,"structuredContent":`...), structured...)
	}
	if failed {
		b = append(b, `,"isError":true`...)
	}
	return append(b, '}')
}

var errTimeout = errors.New("the time of the workflow is over")

// Run runs the workflow for one call, whose arguments are the JSON text of an object; nil
// for none. What the workflow or its tools did wrong is the outcome's; the error is a defect
// of the engine, or that of a context that ended.
func (w *Workflow) Run(ctx context.Context, arguments []byte, host *Host) (*Outcome, error) {
	began := time.Now()
	turn := host.Turn
	if turn == nil {
		turn = (*turns.Places)(nil).Turn("", 0)
	}
	if err := turn.Begin(ctx); err != nil {
		return nil, ctx.Err()
	}
	defer turn.Rest()
	if len(arguments) > light && turn.Heavy(ctx) != nil {
		return nil, ctx.Err()
	}
	given, err := w.parameters.arguments(arguments)
	if err != nil {
		return &Outcome{Arguments: scripting.Clean(err.Error()), Took: time.Since(began)}, nil
	}
	data, err := w.dataText(given)
	if err != nil {
		return &Outcome{Arguments: scripting.Clean(err.Error()), Took: time.Since(began)}, nil
	}
	r := &run{w: w, host: host, turn: turn, id: rand.Text(), began: began, steps: make(map[string]*handle, w.steps), places: make(chan struct{}, maxUnderWay)}
	r.params, _ = numbers(given).(map[string]any)
	r.tell(Event{Kind: Started})
	defer turn.Free()
	if len(arguments) > small && !turn.Hold(heldBy(r.params)) {
		r.failure = &Failure{Message: scripting.Full}
		return r.outcome(&Outcome{Spent: true}, Failed), nil
	}
	if missing := r.missing(); missing != nil {
		r.failure = missing
		return r.outcome(&Outcome{}, Failed), nil
	}
	within, cancel := timed(ctx, w.timeout)
	defer cancel()
	r.ctx = within
	out, err := scripting.Execute(within, &scripting.Run{
		Cancel:    cancel,
		Program:   w.program,
		Data:      data,
		Limits:    scripting.Limits{Steps: maxStepsOfLanguage, Calls: maxCalls, Parallel: maxUnderWay, PerCall: w.timeout, Timeout: w.timeout + time.Hour},
		Call:      r.plainCall,
		Progress:  host.Progress,
		Extension: &scripting.Extension{Builtin: r.builtin, Finish: r.finish},
		Turn:      turn,
	})
	if err == nil && (out.Error != nil && out.Error.Cause == scripting.Defect || r.broken) {
		err = errors.New("workflow: " + scripting.Broken)
	}
	if err != nil {
		r.failure = &Failure{Message: scripting.Broken}
		r.outcome(&Outcome{}, Failed) // what has begun is told to have ended
		return nil, err
	}
	if out.Dropped > 0 {
		out.Logs = append(out.Logs, fmt.Sprintf("… %d bytes more", out.Dropped))
	}
	o := &Outcome{Logs: out.Logs, LeftOut: r.leftOut, Steps: out.Steps, Spent: out.Error != nil && out.Error.Cause == scripting.Budget}
	switch {
	case out.Error == nil && r.failure == nil:
		if o.Value, err = object(out.Value); err != nil {
			return nil, err
		}
		return r.outcome(o, Completed), nil
	case r.failure == nil && context.Cause(within) == errTimeout:
		r.failure = &Failure{Message: "ran longer than " + scripting.Seconds(w.timeout)}
		o.TimedOut, o.Spent = true, false
		return r.outcome(o, TimedOut), nil
	case r.failure == nil && ctx.Err() != nil:
		r.failure = &Failure{Message: "cancelled"}
		r.outcome(o, Failed)
		return nil, ctx.Err()
	case r.failure == nil:
		r.failure = &Failure{Message: out.Error.Error()}
	}
	return r.outcome(o, Failed), nil
}

// timed bounds a context by the time of a workflow. One that calls a function when it ends
// is asked for that alone: of a request it can be seen then that nothing waits for its end any
// more, and it is used again.
func timed(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	parent, ok := ctx.(interface {
		AfterFunc(f func()) (stop func() bool)
	})
	if !ok || ctx.Err() != nil {
		return context.WithTimeoutCause(ctx, d, errTimeout)
	}
	within, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), d, errTimeout)
	stop := parent.AfterFunc(cancel)
	return within, func() { stop(); cancel() }
}

// object puts a value that is no object under the name result.
func object(value []byte) ([]byte, error) {
	if len(value) > 0 && value[0] == '{' {
		return value, nil
	}
	return append(append([]byte(`{"result":`), value...), '}'), nil
}

// outcome tells the end.
func (r *run) outcome(o *Outcome, kind Kind) *Outcome {
	o.Calls, o.Took = int(r.calls.Load()), time.Since(r.began)
	e := Event{Kind: kind, Took: o.Took}
	if r.failure != nil {
		r.failure.Workflow, r.failure.Completed = r.w.Name(), r.completed
		if r.failure.Completed == nil {
			r.failure.Completed = []string{}
		}
		o.Error, e.Error = r.failure, r.failure.Message
	}
	r.tell(e)
	return o
}

// run is the state of one run. The task that has the baton uses it.
type run struct {
	w     *Workflow
	host  *Host
	turn  *turns.Turn
	ctx   context.Context // of the whole
	id    string
	began time.Time

	params    map[string]any
	steps     map[string]*handle
	read      map[string]any // what templates read; nil before the first
	shown     map[string]any // what they read of the steps that have ended, but for those in hidden
	hidden    []*handle      // that ended since the last template
	completed []string
	leftOut   []LeftOut
	ended     int // steps
	live      int // tasks of steps
	finisher  *scripting.Task
	skipping  bool                             // nothing more begins
	asking    map[*Question]context.CancelFunc // under way
	broken    bool                             // a defect of the engine
	failure   *Failure

	places chan struct{} // for calls at once
	calls  atomic.Int64  // attempts

	failed sync.Mutex // of the next two
	mayBe  []*failure // of call_tool(), which retry() may try again
	oldest int        // of them, once there are maxPassing
}

func (r *run) tell(e Event) {
	if r.host.Observe == nil {
		return
	}
	if e.Step == "" || e.Item == 0 && e.Kind != StepRetried {
		e.Item = -1
	}
	e.Workflow, e.Run = r.w.Name(), r.id
	e.Done, e.Steps = r.ended, max(len(r.steps), r.w.steps)
	r.host.Observe(e)
}

// missing is the failure of a run whose steps name a tool that is not there.
func (r *run) missing() *Failure {
	for _, t := range r.w.tools {
		if _, ok := r.host.Tool(t.Tool); !ok {
			message := notFound(t.Tool)
			if t.Step != "" {
				message = fmt.Sprintf("step %q: %s", t.Step, message)
			}
			return &Failure{Step: t.Step, Message: message}
		}
	}
	return nil
}

func notFound(tool string) string { return fmt.Sprintf("tool %q: not found", short(tool)) }

// builtin is a call of one of the builtins.
func (r *run) builtin(t *scripting.Task, name string, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	switch name {
	case "ask":
		return r.ask(t, args, named)
	case "call_step":
		return r.callStep(t, args, named)
	case "condition":
		return r.condition(t, args, named)
	case "each":
		return r.each(t, args, named)
	case "items":
		return r.items(t, args, named)
	case "output":
		return r.outputOf(t, args, named)
	case "prop":
		return r.prop(args, named)
	case "retry":
		return r.retry(t, args, named)
	case "step":
		return r.step(t, args, named)
	case "template":
		s, err := r.rendered(t, name, args, named)
		if err != nil {
			return nil, err
		}
		return t.Text(s)
	}
	return nil, fmt.Errorf("no builtin is called %s", name)
}

// finish waits for the steps, and makes the result.
func (r *run) finish(t *scripting.Task, v starlark.Value, err error) (starlark.Value, error) {
	if err != nil && r.over(t) == nil {
		_ = r.fail(t, "", r.message(err))
	}
	r.wait(t)
	if f := t.Ended(); f != nil {
		return nil, f
	}
	if r.w.output != nil {
		if v, err = r.resultOf(t, r.w.output); err != nil {
			r.failure = &Failure{Message: r.message(err)}
			return nil, err
		}
	}
	if h, ok := v.(*handle); ok {
		v = h.value()
	}
	return v, nil
}

// wait waits until all steps have ended.
func (r *run) wait(t *scripting.Task) {
	was := r.finisher
	for r.finisher = t; r.live > 0; {
		t.Park()
	}
	r.finisher = was
}

// fail ends the run because of a step, or of the program.
func (r *run) fail(t *scripting.Task, step, message string) error {
	if r.failure == nil && t.Ended() == nil {
		r.failure = &Failure{Step: step, Message: message}
	}
	return t.End(&scripting.Fault{Message: message})
}

// over says why the run is at its end; nil while it goes on. Its time may be over before the
// interpreter has seen it.
func (r *run) over(t *scripting.Task) *scripting.Fault {
	if f := t.Ended(); f != nil || r.ctx.Err() == nil {
		return f
	}
	return t.End(&scripting.Fault{Message: r.why()})
}

// why is why the run is at its end.
func (r *run) why() string {
	switch {
	case r.failure != nil:
		return r.failure.Message
	case context.Cause(r.ctx) == errTimeout:
		return "ran longer than " + scripting.Seconds(r.w.timeout)
	}
	return "cancelled"
}

// outside does work outside of the language. The error says why the run ended meanwhile.
func (r *run) outside(t *scripting.Task, work func(context.Context)) error {
	if err := t.Do(work); err != nil {
		return err
	}
	if f := r.over(t); f != nil {
		return f
	}
	return nil
}

// limited bounds a context by a time, unless the workflow's own is over before.
func (r *run) limited(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if end, ok := r.ctx.Deadline(); ok && time.Until(end) <= d {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// around is what a task of a step keeps with it.
type around struct {
	step    *handle
	item    int
	forEach map[string]any // nil outside
	attempt int
}

func aroundOf(t *scripting.Task) around {
	if a, ok := t.Local().(*around); ok && a != nil {
		return *a
	}
	return around{item: -1, attempt: 1}
}

// seenBy is what a template of a step reads of the others: of a workflow of steps those that it
// depends on, so that nothing hangs on which of the others have ended. Of a script a template that
// reads all of them is held to what stands in after.
func (r *run) seenBy(h *handle, all bool) map[string]any {
	if h == nil || r.w.tool.Script != "" && !(all && h.held) {
		return r.shown
	}
	if h.before == nil {
		h.before = make(map[string]bool, len(h.after))
		h.precede(h.before)
	}
	if len(h.before) == len(r.shown) { // they have all ended
		return r.shown
	}
	if h.sees == nil {
		h.sees = make(map[string]any, len(h.before))
		for id := range h.before {
			h.sees[id] = r.shown[id]
		}
	}
	return h.sees
}

// data is what a template reads, until the next is rendered.
func (r *run) data(t *scripting.Task, of *text) (map[string]any, error) {
	if r.read == nil {
		r.shown = make(map[string]any, len(r.hidden))
		r.read = map[string]any{"params": r.params, "steps": r.shown, "vars": map[string]any(nil)}
	}
	for _, h := range r.hidden {
		shown := h.shown()
		if !r.turn.Hold(heldBy(shown)) {
			return nil, failed("%s", scripting.Full)
		}
		r.shown[h.id] = shown
	}
	r.hidden = r.hidden[:0]
	r.read["steps"] = r.seenBy(aroundOf(t).step, of.all)
	if of.workflow {
		r.read["workflow"] = map[string]any{
			"id":          r.id,
			"duration_ms": time.Since(r.began).Milliseconds(),
			"step_count":  int64(max(len(r.steps), r.w.steps)),
			"status":      "running",
			"start_time":  r.began.UTC().Format(time.RFC3339),
		}
	}
	delete(r.read, "forEach")
	if a := aroundOf(t); a.forEach != nil {
		r.read["forEach"] = a.forEach
	}
	return r.read, nil
}

// rendered renders the template of a builtin.
func (r *run) rendered(t *scripting.Task, name string, args starlark.Tuple, named []starlark.Tuple) (string, error) {
	var s string
	if err := starlark.UnpackPositionalArgs(name, args, named, 1, &s); err != nil {
		return "", err
	}
	return r.render(t, s)
}

func (r *run) render(t *scripting.Task, s string) (string, error) {
	parsed := r.w.templates[s]
	if parsed == nil {
		return "", errors.New("template: the template must stand in the program as a text")
	}
	data, err := r.data(t, parsed)
	if err != nil {
		return "", err
	}
	out, err := parsed.render(data, r.look)
	if err != nil {
		return "", &failure{error: scripting.Raise("", scripting.Fault{Message: err.Error()}), message: err.Error()}
	}
	return out, nil
}

// look lets others compute while a template is rendered, and says how long that took.
func (r *run) look() (waited time.Duration, err error) {
	if !r.turn.Due() {
		return 0, nil
	}
	from := time.Now()
	err = r.turn.Look(r.ctx)
	return time.Since(from), err
}

// condition renders true or false.
func (r *run) condition(t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	s, err := r.rendered(t, "condition", args, named)
	if err != nil {
		return nil, err
	}
	yes, err := truth(s)
	if err != nil {
		return nil, failed("condition: %s", err)
	}
	return starlark.Bool(yes), nil
}

// items renders an array.
func (r *run) items(t *scripting.Task, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	s, err := r.rendered(t, "items", args, named)
	if err != nil {
		return nil, err
	}
	v, err := t.Value([]byte(s))
	if _, ok := v.(*starlark.List); err != nil || !ok {
		return nil, failed("collection: %s is no array", shown(s))
	}
	return v, nil
}

// shown is a text as an error shows it.
func shown(s string) string { return fmt.Sprintf("%q", short(s)) }
