// Package composite is the composite tools of a server: each is a workflow whose calls and
// questions walk the hallway as those of its client.
package composite

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/progress"
	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/turns"
	"github.com/weir-edge/weir/scripting/workflow"
)

// Options are what the composite tools of a server work with.
type Options struct {
	// Catalog returns the catalog of this moment for an identity, for calls; see
	// catalog.Book.
	Catalog func(context.Context, *edge.Identity) (*catalog.Catalog, error)

	// Belated returns the latest catalog for a tool that the one before does not have. The error
	// is that of a call of it while its backend has told no tools. It must not wait for them.
	Belated func(x *edge.Exchange, tool string) (*catalog.Catalog, error)

	// Call makes a call for a client, at a target of the catalog.
	Call func(ctx context.Context, x *edge.Exchange, out edge.Client, at *edge.Target, arguments []byte) (result, failure []byte)

	// Begin begins a step of a workflow for traces; see workflow.Host.
	Begin func(ctx context.Context, workflow, step string) (context.Context, func(failed string))

	// Observe is told what happens in a run, for records. It must not block; nil for nobody.
	Observe func(x *edge.Exchange, e workflow.Event)

	// Printed is told what a program prints, line by line, and LeftOut which properties of an
	// output have no value, and why, which may show a value. Neither may block.
	Printed func(workflow, text string)
	LeftOut func(workflow, property, why string)

	// Places are where runs that compute for long do so.
	Places *turns.Places

	// Wait bounds the wait for one answer of a client.
	Wait time.Duration

	Counters *Counters
}

// Tool is one composite tool. It is safe for concurrent use.
type Tool struct {
	o     Options
	w     *workflow.Workflow
	found atomic.Pointer[found]
}

// found are the tools of steps in one catalog, as far as runs have asked for them, by their
// names in steps. Each keeps what was read of its schema.
type found struct {
	in    *catalog.Catalog
	tools sync.Map // of *workflow.Tool
}

// New returns the tool of a workflow.
func New(o Options, w *workflow.Workflow) *Tool { return &Tool{o: o, w: w} }

// Target is what policies may know of a tool besides its name: that its steps may do
// anything.
func Target() edge.Target {
	yes, no := true, false
	return edge.Target{ReadOnly: &no, Destructive: &yes, OpenWorld: &yes}
}

// List returns the tools as the edge lists them. Their annotations are made of those of the
// tools that a run would call; a step whose tool others see and the client does not may do
// anything. What nobody sees is left out of the list by the operator, and does what it says.
func List(all []*workflow.Workflow) *catalog.List {
	byName := map[string]*workflow.Workflow{}
	l := &catalog.List{}
	for _, w := range all {
		byName[w.Name()] = w
		definition, _ := w.Definition(func(string) (*workflow.Tool, bool) { return nil, false })
		l.Items = append(l.Items, definition)
		for _, t := range w.Tools() {
			l.Asks = append(l.Asks, t.Tool)
		}
	}
	l.Describe = func(item []byte, seen catalog.Things, c *catalog.Catalog) []byte {
		w := byName[mcp.String(mcp.Lookup(item, "name"))]
		if w == nil {
			return item
		}
		known := map[*edge.Target]bool{}
		for _, t := range w.Tools() {
			if at := target(c, t.Tool); at != nil {
				known[at] = c.Lookup(edge.Tool, at.Name) != at
			}
		}
		for at := range seen {
			if _, ok := known[at]; ok {
				known[at] = true
			}
		}
		definition, _ := w.Definition(func(name string) (*workflow.Tool, bool) {
			if at := target(c, name); known[at] {
				return &workflow.Tool{Hints: hints(at)}, true
			}
			return nil, false
		})
		return definition
	}
	return l
}

func hints(t *edge.Target) workflow.Hints {
	return workflow.Hints{ReadOnly: t.ReadOnly, Destructive: t.Destructive, Idempotent: t.Idempotent, OpenWorld: t.OpenWorld}
}

// Run runs the workflow for a call of the tool. It is a route.LocalTool.
func (t *Tool) Run(ctx context.Context, x *edge.Exchange, arguments []byte, _ func(edge.Client) edge.Caller) (*edge.Response, error) {
	if len(arguments) > 0 && arguments[0] != '{' && arguments[0] != 'n' {
		return nil, edge.Errorf(edge.Params, "workflow", "params.arguments is not an object")
	}
	if string(arguments) == "null" {
		arguments = nil
	}
	c, err := t.o.Catalog(ctx, x.Identity)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	r := &run{tool: t, x: x, request: ctx, catalog: c, found: t.found.Load()}
	if r.found == nil || r.found.in != c {
		r.found = &found{in: c}
		t.found.Store(r.found)
	}
	if r.outer, r.within = progress.Of(ctx); r.outer == nil {
		r.outer, r.told = progress.NewOuter(x, 0), true
		defer r.outer.End()
	} else {
		// Within a script the calls are those of the script: it counts them, and its client
		// is told of them.
		ctx, r.stop = context.WithCancelCause(ctx)
		defer r.stop(nil)
	}
	out, err := t.w.Run(ctx, arguments, &workflow.Host{
		Tool: r.find, Call: r.call, Ask: r.ask, Other: r.other, Begin: r.begin, Observe: r.observe, Progress: r.progress,
		Turn: t.o.Places.Turn(edge.Holder(x.Identity, x.Head.Remote), shortRun),
	})
	if out != nil {
		t.tell(out)
	}
	if ctx.Err() != nil {
		out = nil
	}
	if err == nil || ctx.Err() != nil {
		t.o.Counters.ended(t.w.Name(), outcomeOf(out), time.Since(began))
	}
	switch {
	case ctx.Err() != nil:
		return nil, edge.Errorf(edge.Gone, "workflow", "%w", context.Cause(ctx))
	case err != nil:
		return nil, edge.Errorf(edge.Internal, "workflow", "%w", err)
	case out.TimedOut:
		if c, ok := x.Client.(interface{ Late() }); ok {
			c.Late()
		}
	}
	return x.Reply(out.Result(x.Era == mcp.Modern))
}

// tell tells the operator what a run said.
func (t *Tool) tell(out *workflow.Outcome) {
	for _, line := range out.Logs {
		t.o.Printed(t.w.Name(), edge.Clean(line))
	}
	for _, one := range out.LeftOut {
		t.o.LeftOut(t.w.Name(), edge.Clean(one.Property), edge.Clean(one.Why))
	}
}

// run is one run of a workflow.
type run struct {
	tool    *Tool
	x       *edge.Exchange
	request context.Context // of x
	catalog *catalog.Catalog
	found   *found
	outer   *progress.Outer
	within  int64                   // the call of a script that this one is; 0 for a client's own
	told    bool                    // the client hears of the steps
	stop    context.CancelCauseFunc // within a script
}

// target finds the tool of a step: by its whole name, then by an advertised one.
func target(c *catalog.Catalog, name string) *edge.Target {
	if at := c.LookupWhole(name); at != nil {
		return at
	}
	// Who offers a tool by the whole name of another backend's gets no calls that are meant for
	// that one: LookupWhole knows nobody by the name then, as when that tool is gone.
	if at := c.Lookup(edge.Tool, name); at != nil && at.Backend != "" && !c.OfAnother(name, at.Backend) {
		return at
	}
	return nil
}

// find finds the tool of a step. Of one whose backend has been away since the edge began nothing is
// known: the call of it fails as any call of that backend does, until the backend is there.
func (r *run) find(name string) (*workflow.Tool, bool) {
	if t, ok := r.found.tools.Load(name); ok {
		return t.(*workflow.Tool), true
	}
	in, at := r.catalog, target(r.catalog, name)
	if at == nil && r.tool != nil { // else nothing is called
		var away error
		if in, away = r.tool.o.Belated(r.x, name); away != nil {
			return &workflow.Tool{}, true
		}
		at = target(in, name)
	}
	if at == nil {
		return nil, false
	}
	t, _ := r.found.tools.LoadOrStore(name, &workflow.Tool{InputSchema: mcp.Lookup(in.Definition(at), "inputSchema"), Hints: hints(at)})
	return t.(*workflow.Tool), true
}

// call makes one attempt of a call.
func (r *run) call(ctx context.Context, c *workflow.Call) workflow.Answer {
	now, err := r.tool.o.Catalog(ctx, r.x.Identity) // it may be another one than when the run began
	if err == nil && target(now, c.Tool) == nil {
		now, err = r.tool.o.Belated(r.x, c.Tool)
	}
	if err != nil {
		return failed(c.Tool, mcp.Lookup(edge.Fail(r.x.Era, nil, err).Body, "error"))
	}
	at := target(now, c.Tool)
	if was := target(r.catalog, c.Tool); at == nil || was != nil && (was.Backend != at.Backend || was.Original != at.Original) {
		return fault(c.Tool, mcp.CodeInvalidParams, "not found") // nor is another one of its name
	}
	if !r.outer.Spend() {
		r.stop(errSpent)
		return fault(c.Tool, 0, "cancelled")
	}
	id, began := r.outer.NextID(), time.Now()
	a := r.answer(r.outer.Within(ctx, id), c, at)
	if ctx.Err() != nil {
		_ = r.request.Done() // so x is not used again: what was left behind may still look at it
	}
	told := progress.Call{ID: id, Parent: r.within, Step: c.Step, Attempt: c.Attempt, Outcome: became(ctx, a), Took: time.Since(began)}
	if r.sees(now, at) {
		told.Tool = at.Name
	}
	r.outer.Called(told)
	return a
}

// shortRun is how long a run computes before it needs a place for that.
const shortRun = 2 * time.Millisecond

var errSpent = errors.New("the script makes too many calls")

// became is what became of an attempt.
func became(ctx context.Context, a workflow.Answer) progress.Outcome {
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return progress.TimedOut
	case ctx.Err() != nil:
		return progress.Cancelled
	case a.Error != nil:
		return progress.OutcomeOf(a.Error.Code)
	case string(mcp.Lookup(a.Result, "isError")) == "true":
		return progress.Failed
	}
	return progress.OK
}

// sees reports whether the client may see a tool.
func (r *run) sees(c *catalog.Catalog, at *edge.Target) bool {
	listed := c.Lookup(edge.Tool, at.Name)
	return listed != nil && listed.Backend == at.Backend && (r.x.View == nil || r.x.View.Allows(listed))
}

func (r *run) answer(ctx context.Context, c *workflow.Call, at *edge.Target) workflow.Answer {
	out := &stepClient{Client: r.x.Client, request: r.request, step: stepOf(c), wait: r.tool.o.Wait}
	result, failure := r.tool.o.Call(ctx, r.x, out, at, c.Arguments)
	switch {
	case ctx.Err() != nil:
		return fault(c.Tool, 0, "cancelled")
	case failure != nil:
		if code, _ := strconv.Atoi(string(mcp.Lookup(failure, "code"))); code == mcp.CodeMissingCapability || code == mcp.CodeURLElicitation {
			out.Unanswered()
		}
		return failed(c.Tool, failure)
	case len(result) > scripting.MaxIn:
		return fault(c.Tool, 0, "its result is longer than "+strconv.Itoa(scripting.MaxIn)+" bytes")
	}
	if kind := mcp.String(mcp.Lookup(result, "resultType")); kind != "" && kind != "complete" {
		return fault(c.Tool, 0, "answers with a "+edge.Brief(kind)+", which a workflow cannot wait for")
	}
	return workflow.Answer{Result: result}
}

func fault(tool string, code int, what string) workflow.Answer {
	return workflow.Answer{Error: &workflow.Fault{Message: fmt.Sprintf("tool %q: %s", edge.Brief(tool), what), Code: code}}
}

// maxFaultData bounds the data of an error, in bytes; longer one is left out.
const maxFaultData = 64 << 10

// failed makes an error of that of a call, JSON text.
func failed(tool string, failure []byte) workflow.Answer {
	code, _ := strconv.Atoi(string(mcp.Lookup(failure, "code")))
	a := fault(tool, code, edge.Clean(mcp.String(mcp.Lookup(failure, "message"))))
	data := mcp.Lookup(failure, "data")
	if len(data) <= maxFaultData {
		a.Error.Data = data
	}
	if seconds, err := strconv.ParseFloat(string(mcp.Lookup(data, "retryAfterSeconds")), 64); err == nil && (code == 429 || code == 503) && seconds > 0 && seconds < 1e6 {
		a.Error.After = time.Duration(seconds * float64(time.Second))
		if code == 503 {
			return a
		}
		a.Error.Message = fmt.Sprintf("tool %q: rate limit exceeded, retry after %ss", edge.Brief(tool), strconv.FormatFloat(seconds, 'f', -1, 64))
	}
	return a
}

// Findings are what of the composite tools of a server clients or operators should know.
type Findings struct {
	Missing []string // steps whose tool is not there
	Lax     []string // annotations that promise more than the steps do
	Taken   []string // names that tools of backends have too
}

// Finder finds the tools of steps in a catalog, as a run does.
func Finder(c *catalog.Catalog) func(name string) (*workflow.Tool, bool) {
	return (&run{catalog: c, found: &found{in: c}}).find
}

// Look looks at the composite tools beside the tools that there are. away reports whether a tool may
// be one of a backend that has told none; nil for no such backend.
func Look(all []*workflow.Workflow, c *catalog.Catalog, away func(tool string) bool) (f Findings) {
	r := &run{catalog: c, found: &found{in: c}}
	taken := map[string][]string{}
	for _, one := range c.Report().Findings {
		if one.Thing == edge.Tool && one.Reason == catalog.SameName && one.Backend != "" {
			taken[one.Name] = append(taken[one.Name], edge.Brief(catalog.Whole(one.Backend, one.Original)))
		}
	}
	for _, w := range all {
		if others := taken[w.Name()]; c.Lookup(edge.Tool, w.Name()) == nil && len(others) > 0 {
			f.Taken = append(f.Taken, fmt.Sprintf("%s: %s has the name too", w.Name(), strings.Join(others, ", ")))
		}
		for _, t := range w.Tools() {
			if target(c, t.Tool) == nil && (away == nil || !away(t.Tool)) {
				f.Missing = append(f.Missing, fmt.Sprintf("%s: step %q calls %s", w.Name(), edge.Brief(t.Step), edge.Brief(t.Tool)))
			}
		}
		if _, overruled := w.Definition(r.find); len(overruled) > 0 {
			f.Lax = append(f.Lax, w.Name()+": "+strings.Join(overruled, ", "))
		}
	}
	return f
}
