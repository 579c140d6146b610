package starlark

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
	"github.com/weir-edge/weir/wasm/pattern"
)

// The limits of a call, where a binding says nothing, and those of the text as it runs for the
// first time.
const (
	defaultFuel    = 50_000_000 // steps
	defaultTimeout = 5 * time.Millisecond
	defaultOutput  = 1 << 20
	defaultInput   = 1 << 20
	defaultLines   = 64

	callMemory = 64 << 20
	loadSteps  = 10_000_000
	loadTime   = time.Second
)

// unit is the time that one unit of work is reckoned to take, new memory included.
const unit = 20 * time.Nanosecond

// Guest is a program at its place, ready to be called. It is safe for concurrent use.
type Guest struct {
	front   wasm.Front
	binding wasm.Binding
	file    string
	opened  time.Time
	schema  []byte // of the configuration
	shared  *scripting.Shared

	asked    []wasm.Subscription
	hooks    [abi.Hooks]*starlark.Function
	reads    [abi.Hooks]uint64 // fields that its input has there; 0 for all
	blocking [abi.Hooks]bool   // where it may wait for others

	operations map[string]*operationSpec
	functions  map[string]*hostFunction
	fields     []field
	fieldIndex map[string]int

	calls sync.Pool
}

// Options are what a program is opened with.
type Options struct {
	// Binding is what it is given and what it may do. Of its limits Fuel counts steps, and
	// Memory, Instances, Prewarm, Wait, Init and InitFuel have no meaning; nor has Isolation:
	// what the text made is frozen, so that no call finds anything of another.
	Binding wasm.Binding

	// Conforms judges the configuration by the JSON text of a schema; nil takes any.
	Conforms func(schema []byte) error
}

// Defaults returns limits with what programs get where they say nothing.
func Defaults(l wasm.Limits) wasm.Limits {
	l.Fuel, l.Timeout, l.LogLines = cmp.Or(l.Fuel, defaultFuel), cmp.Or(l.Timeout, defaultTimeout), cmp.Or(l.LogLines, defaultLines)
	l.Output, l.Input = cmp.Or(l.Output, defaultOutput), cmp.Or(l.Input, defaultInput)
	return l
}

// Open runs the text once, and finds the functions for hooks. The error is Faults, or says
// which grant is missing. ctx bounds it.
func (p *Program) Open(ctx context.Context, o Options) (*Guest, error) {
	b := o.Binding
	b.Limits = Defaults(b.Limits)
	l := &b.Limits
	if b.Log == nil {
		b.Log = slog.New(slog.DiscardHandler)
	}
	for h, policy := range b.OnError {
		if policy == wasm.Skip && abi.Hook(h).Identity() {
			return nil, fmt.Errorf("guest %q: a failure in %v cannot be passed over: it decides who somebody is", b.Name, abi.Hook(h))
		}
	}
	var lacks []string
	for _, need := range p.Needs {
		if !slices.Contains(b.Grants, need.Grant) && !slices.Contains(b.Optional, need.Grant) {
			lacks = append(lacks, fmt.Sprintf("it calls %s, which needs the grant %q", need.Function, need.Grant))
		}
	}
	if lacks != nil {
		return nil, fmt.Errorf("guest %q: %s", b.Name, strings.Join(lacks, "; "))
	}
	config := b.Config
	if config == nil {
		config = []byte("{}")
	}
	if !json.Valid(config) {
		return nil, Faults{{File: p.file, Message: "config: not JSON", Config: true}}
	}
	data, err := json.Marshal(map[string]any{"config": json.RawMessage(config), "filter_name": b.Name})
	if err != nil {
		return nil, Faults{{File: p.file, Message: "config: " + err.Error(), Config: true}}
	}
	g := &Guest{binding: b, file: p.file, opened: time.Now(), fields: fields(), fieldIndex: map[string]int{}, operations: map[string]*operationSpec{}, functions: map[string]*hostFunction{}}
	for i, f := range g.fields {
		g.fieldIndex[f.name] = i
	}
	for _, o := range operations() {
		g.operations[o.name] = &o
	}
	for _, f := range hostFunctions() {
		if f.grant != "" && !slices.Contains(b.Grants, f.grant) {
			f.call = denied(f.name)
		}
		g.functions[f.name] = &f
	}
	g.front.Open(&g.binding)
	loading := &loader{guest: g, conforms: o.Conforms}
	c := g.newCall()
	c.loading, c.ctx = loading, ctx
	c.clock.Set(loadTime)
	defer c.clock.Stop()
	shared, err := scripting.Share(p.compiled, scripting.Sharing{
		Load:    scripting.Limits{Steps: loadSteps, Memory: callMemory},
		Call:    scripting.Limits{Steps: uint64(l.Fuel), Memory: callMemory},
		Data:    data,
		Builtin: g.builtin,
		Begin:   func(t *scripting.Task) { t.Local().(*call).running = t },
		Print:   func(local any, text string) { local.(*call).line(slog.LevelInfo, text) },
		Stop:    func(local any, units int) *scripting.Fault { return local.(*call).stop(units) },
	}, c)
	if err != nil {
		var e *scripting.Error
		if !errors.As(err, &e) {
			return nil, err
		}
		f := p.fault(e)
		f.Config = loading.config
		return nil, Faults{f}
	}
	g.shared = shared
	if faults := loading.bind(p, shared.Globals()); faults != nil {
		return nil, faults
	}
	g.calls.New = func() any { return g.newCall() }
	return g, nil
}

// denied stands in for a function that is not granted, in a program that does without it.
func denied(name string) func(*call, *scripting.Task, starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
	return func(*call, *scripting.Task, starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
		return nil, failed(name, abi.ErrDenied)
	}
}

// Version is that of the ABI that the engine speaks.
func (g *Guest) Version() uint32 { return abi.Version }

// Subscriptions returns what the program asked for. The caller does not change it.
func (g *Guest) Subscriptions() []wasm.Subscription { return g.asked }

// Reads returns the fields of the input that the function for a hook reads, a bit for each;
// 0 where it may read any.
func (g *Guest) Reads(hook abi.Hook) uint64 { return g.reads[hook] }

// Schema returns the JSON text that the program gave config_schema; nil for none.
func (g *Guest) Schema() []byte { return g.schema }

// EndSession does nothing: nothing is kept of a session.
func (g *Guest) EndSession(string) {}

// Stats returns figures.
func (g *Guest) Stats() wasm.Stats { return g.front.Figures() }

// Reject is wasm.Front.Reject.
func (g *Guest) Reject(hook abi.Hook, from wasm.Sender, detail string) error {
	return g.front.Reject(hook, from, detail)
}

// Close waits for calls under way. Calls after it fail.
func (g *Guest) Close() { g.front.Shut() }

// Call asks the program as wasm.Guest.Call does.
func (g *Guest) Call(ctx context.Context, hook abi.Hook, _ string, from wasm.Sender, in, out []byte) ([]byte, error) {
	if hook >= abi.Hooks || g.hooks[hook] == nil {
		return out, nil
	}
	defer g.front.Leave()
	if err := g.front.Enter(hook, from); err != nil {
		return nil, err
	}
	got, why := g.ask(ctx, hook, in, out)
	if err := g.front.Settle(hook, from, why, len(got) > len(out)); err != nil {
		return nil, err
	}
	if why != nil {
		return out, nil
	}
	return got, nil
}

// ask makes a call, and returns the record of what the function returned, appended to out.
func (g *Guest) ask(ctx context.Context, hook abi.Hook, in, out []byte) ([]byte, *wasm.Failure) {
	fail := func(why wasm.Reason, detail string) ([]byte, *wasm.Failure) {
		return nil, &wasm.Failure{Guest: g.binding.Name, Hook: hook, Reason: why, Detail: detail}
	}
	if limit := g.binding.Limits.Input; uint64(len(in)) > limit {
		return fail(wasm.Broken, fmt.Sprintf("an input of %d bytes: its limit is %d", len(in), limit))
	}
	c := g.calls.Get().(*call)
	c.ctx, c.hook = ctx, hook
	c.clock.Set(g.binding.Limits.Timeout)
	if !c.input.read(in) {
		return fail(wasm.Broken, "a malformed input")
	}
	v, steps, e := g.shared.Invoke(g.hooks[hook], c.args[:], c)
	c.clock.Stop()
	g.front.Used(steps)
	if e != nil {
		why, detail := c.why(e), g.detail(e)
		c.forget()
		return fail(why, detail)
	}
	got, err := appendOps(out, v, int(g.binding.Limits.Output))
	c.forget()
	if err != nil {
		return fail(wasm.Broken, err.Error())
	}
	return got, nil
}

// detail is what the log says of a failure.
func (g *Guest) detail(e *scripting.Error) string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", g.file, e.Line, e.Column, e.Message)
}

// call is the state of one call, which is used again for another.
type call struct {
	guest   *Guest
	ctx     context.Context
	hook    abi.Hook
	loading *loader // while the text runs for the first time; nil in a call
	clock   wasm.Clock
	ended   wasm.Reason // Deadline or Canceled, where stopped
	stopped bool
	input   input
	args    [1]starlark.Value // the input
	scratch []byte            // for the record of an operation
	kept    map[string]starlark.Value

	asked    int // requests to others
	waited   time.Duration
	stored   int // requests to the store
	waitedOn time.Duration
	searcher *pattern.Searcher
	searched bool  // in this call
	owed     int64 // fuel that is not paid for yet
	running  *scripting.Task
}

func (g *Guest) newCall() *call {
	c := &call{guest: g, hook: abi.Hooks, kept: make(map[string]starlark.Value)}
	c.input.c = c
	c.args[0] = &c.input
	return c
}

// forget drops what a call had, and gives its state to the next.
func (c *call) forget() {
	c.ctx, c.hook, c.stopped = nil, abi.Hooks, false
	c.asked, c.waited, c.stored, c.waitedOn, c.searched, c.owed, c.running = 0, 0, 0, 0, false, 0, nil
	c.input.forget()
	c.guest.calls.Put(c)
}

// task is that of the call.
func (c *call) task() *scripting.Task { return c.running }

// stop says why the call must end, before work of so many units.
func (c *call) stop(units int) *scripting.Fault {
	if c.ctx.Err() != nil {
		return c.canceled()
	}
	ahead := time.Duration(units) * unit
	over := c.clock.Over() || c.clock.Left() < ahead
	if c.clock.Spend(ahead); over {
		c.stopped, c.ended = true, wasm.Deadline
		limit := c.guest.binding.Limits.Timeout
		if c.loading != nil {
			limit = loadTime
		}
		return &scripting.Fault{Message: fmt.Sprintf("needs more than %s of a processor", limit)}
	}
	return nil
}

func (c *call) canceled() *scripting.Fault {
	c.stopped, c.ended = true, wasm.Canceled
	return &scripting.Fault{Message: "the call is not wanted any more"}
}

// why is the reason of a failure.
func (c *call) why(e *scripting.Error) wasm.Reason {
	switch {
	case c.stopped:
		return c.ended
	case e.Spent == scripting.StepsSpent:
		return wasm.Fuel
	case e.Spent == scripting.MemorySpent:
		return wasm.Memory
	}
	return wasm.Trap
}
