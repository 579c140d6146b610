package workflow

import (
	"context"
	"sync"
	"time"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/turns"
)

// Host is the world outside of a workflow. Its functions are called from several goroutines
// at once, but for Observe.
type Host struct {
	// Tool finds the tool of a step: by its whole name first, then by an advertised name. It
	// must not block. What is found again is best the same Tool, which keeps what it has read.
	Tool func(name string) (*Tool, bool)

	// Call makes one attempt of a call, and blocks until it has an answer or ctx ends.
	Call func(ctx context.Context, c *Call) Answer

	// Ask asks the caller, and blocks until there is an answer or ctx ends. The error is why
	// there can be none. Nil where nobody can be asked.
	Ask func(ctx context.Context, q *Question) (*Reply, error)

	// Other answers list_tools and describe_tool of a script; nil where there is nothing to
	// list.
	Other func(ctx context.Context, kind scripting.Kind, tool string) scripting.Answer

	// Begin begins a step, and returns the context of its work and what to call at its end
	// with what failed, "" for nothing; nil for nobody. It must not block.
	Begin func(ctx context.Context, step string) (context.Context, func(failed string))

	// Observe is told what happens, in its order, one event at a time. It must not block. Nil
	// for nobody.
	Observe func(Event)

	// Progress is told what a script says of itself by progress(); nil for nobody.
	Progress func(done, total float64, message string)

	// Turn is the computing of the run; nil for one that takes no place.
	Turn *turns.Turn

	// Random returns a number from 0 to 1, below 1, for the jitter of waits; nil for one of
	// its own.
	Random func() float64
}

// Tool is what a workflow knows of a tool that a step calls.
type Tool struct {
	InputSchema []byte // JSON text; nil for none
	Hints       Hints

	once  sync.Once
	types map[string]argument
}

// propertyTypes are the types that the schema gives the tool's arguments.
func (t *Tool) propertyTypes() map[string]argument {
	t.once.Do(func() { t.types = typesOf(t.InputSchema) })
	return t.types
}

// Hints are the annotations of a tool that say what it may do; nil where it does not say.
type Hints struct{ ReadOnly, Destructive, Idempotent, OpenWorld *bool }

// Call is one attempt of a call of a tool.
type Call struct {
	Tool      string // as the workflow names it
	Arguments []byte // JSON text of an object
	Step      string // id; "" for a call outside of steps, and by call_tool()
	Item      int    // of a forEach, from 0; -1 outside of one
	Attempt   int    // from 1
}

// Answer is what became of an attempt: a result, also of a tool that failed, or an error.
type Answer struct {
	Result []byte // JSON text of a CallToolResult; nil for an error
	Error  *Fault
}

// Fault is why an attempt has no result.
type Fault struct {
	Message string        // whole, such as `tool "w.t": denied by authorization policy`
	Code    int           // HTTP status or JSON-RPC code. 408, 429, 502, 503, 504 may be tried again
	Data    []byte        // JSON text, for attempt(); nil for none
	After   time.Duration // not to be tried again earlier; 0 where the other side does not say
}

// Question is what an elicitation step asks the caller.
type Question struct {
	Step    string
	Message string
	Schema  []byte // JSON Schema of the answer, a flat object
}

// Reply is what the caller said.
type Reply struct {
	Action  string // accept, decline or cancel
	Content []byte // JSON text of an object; of accept alone
}

// Kind says what an event tells of.
type Kind string

// The kinds of events. Each step has one of the last three.
const (
	Started       Kind = "started"   // the workflow
	Completed     Kind = "completed" // the workflow
	Failed        Kind = "failed"    // the workflow
	TimedOut      Kind = "timed_out" // the workflow
	StepStarted   Kind = "step_started"
	StepRetried   Kind = "step_retried" // another attempt begins, after a wait
	StepCompleted Kind = "step_completed"
	StepFailed    Kind = "step_failed"
	StepSkipped   Kind = "step_skipped"
)

// Event is something that happened in a run of a workflow.
type Event struct {
	Kind     Kind
	Workflow string // name
	Run      string // the id of the run, as templates read it
	Step     string // id; "" for an event of the workflow
	Item     int    // of a forEach; -1 outside of one
	Attempt  int    // that begins (StepRetried), or that was the last; 0 for none
	Error    string
	Took     time.Duration // of what ended
	Done     int           // steps that have ended
	Steps    int           // that the run has, as far as it knows
}
