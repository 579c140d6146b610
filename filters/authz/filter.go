package authz

import (
	"context"
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// refusal is all that a client learns, whether a policy says no or there is no
// such thing.
const refusal = "denied by authorization policy"

// maxAtOnce is how many things one message may name.
const maxAtOnce = 1_024

// filter asks a judge about every message.
type filter struct {
	judge   judge
	tasks   *tasks
	options Options
}

func newFilter(j judge, env edge.Env, o Options) edge.Filter {
	f := &filter{judge: j, tasks: newTasks(env), options: o}
	return func(next edge.Handler) edge.Handler {
		return edge.HandlerFunc(func(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
			return f.handle(ctx, x, next)
		})
	}
}

var unneeded = &Explanation{Allowed: true, Reason: ReasonUnneeded}

// handle lets an exchange pass, or answers that it may not.
func (f *filter) handle(ctx context.Context, x *edge.Exchange, next edge.Handler) (*edge.Response, error) {
	m := x.Request
	if needsNoPolicy(m) {
		return next.Handle(ctx, x)
	}
	if m.Kind != mcp.Request {
		return f.refuse(x, deny(ReasonUnmapped))
	}
	if x.Identity == nil {
		return f.refuse(x, deny(ReasonIdentity))
	}
	if lists(m.Method) || m.Method == "tools/call" && x.Target != nil && x.Target.Unjudged {
		x.View = f.judge.view(ctx, x.Server, clientOf(x))
		f.record(x, unneeded)
		return next.Handle(ctx, x)
	}
	if m.Method == "tasks/list" {
		f.record(x, unneeded)
		r, err := next.Handle(ctx, x)
		if err != nil || r == nil {
			return r, err
		}
		return f.ownTasks(ctx, x, r)
	}

	room := rooms.Get().(*[1]ask)
	defer func() { *room = [1]ask{}; rooms.Put(room) }()
	asks, no := f.asks(ctx, x, room[:0])
	if no != nil {
		return f.refuse(x, no)
	}
	var readings *int
	if len(asks) > 1 {
		most := maxReadings
		readings = &most
	}
	why := unneeded
	for i := range asks {
		asks[i].readings, asks[i].batch = readings, x.Batch
		if why = f.decide(ctx, x, &asks[i]); !why.Allowed {
			if ctx.Err() != nil {
				return nil, &edge.Error{Kind: edge.Gone, Op: "authz", Err: context.Cause(ctx)}
			}
			return f.refuse(x, why)
		}
	}
	f.record(x, why)

	call := m.Method == "tools/call"
	if call && asks[0].thing.Backend == "" {
		x.View = f.judge.view(ctx, x.Server, clientOf(x)) // a tool of the edge may tell of other tools
	}
	r, err := next.Handle(ctx, x)
	switch {
	case err != nil && edge.KindOf(err) == edge.NotFound:
		return f.refuse(x, deny(ReasonUnknown))
	case err == nil && r != nil && call:
		f.tasks.remember(ctx, x, &asks[0], r, f.judge.readsArguments())
	}
	return r, err
}

// rooms are for the one thing that most messages ask for, which would be on the
// heap otherwise.
var rooms = sync.Pool{New: func() any { return new([1]ask) }}

func (f *filter) decide(ctx context.Context, x *edge.Exchange, a *ask) *Explanation {
	return bothWays(a, func(a *ask) *Explanation { return f.judge.decide(ctx, clientOf(x), a) })
}

func (f *filter) refuse(x *edge.Exchange, why *Explanation) (*edge.Response, error) {
	f.record(x, why)
	if f.options.Counters != nil {
		f.options.Counters.Denied.Add(1)
	}
	return nil, edge.Errorf(edge.Denied, "authz", refusal)
}

func (f *filter) record(x *edge.Exchange, why *Explanation) {
	if f.options.Record != nil {
		f.options.Record(x, why)
	}
}

// needsNoPolicy reports whether a message does nothing to anything: a request of
// these methods, or a notification. What is sent as the other of the two is neither,
// whatever its method.
func needsNoPolicy(m *mcp.Message) bool {
	switch m.Method {
	case "initialize", "ping", "server/discover", "logging/setLevel":
		return m.Kind == mcp.Request
	}
	return m.Kind == mcp.Notification && mcp.Notifies(m.Method)
}

// lists reports whether a method lists things, of which each is judged.
func lists(method string) bool {
	switch method {
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list":
		return true
	}
	return false
}

// asks returns what a message asks for, all of which must be allowed; at least
// one thing for every method but subscriptions/listen. The second result says
// why the message is denied whatever the policies say; nil for no such reason.
// A method without an action is denied.
// One thing is put into room.
func (f *filter) asks(ctx context.Context, x *edge.Exchange, room []ask) ([]ask, *Explanation) {
	m := x.Request
	switch m.Method {
	case "tools/call":
		return f.one(room, x, edge.Tool, m.Text("name"), m.Get("arguments").Of(m.Raw))
	case "prompts/get":
		return f.one(room, x, edge.Prompt, m.Text("name"), m.Get("arguments").Of(m.Raw))
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return f.one(room, x, edge.Resource, m.Text("uri"), nil)
	case "completion/complete":
		ref := m.Get("ref").Of(m.Raw)
		switch mcp.String(mcp.Lookup(ref, "type")) {
		case "ref/prompt":
			return f.one(room, x, edge.Prompt, mcp.String(mcp.Lookup(ref, "name")), completed(m))
		case "ref/resource":
			return f.one(room, x, edge.Template, mcp.String(mcp.Lookup(ref, "uri")), completed(m))
		}
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		return f.ofTask(ctx, x, m.Text("taskId"), nil)
	case "subscriptions/listen":
		return f.several(ctx, x)
	}
	return nil, deny(ReasonUnmapped)
}

// one asks for one thing.
func (f *filter) one(room []ask, x *edge.Exchange, thing edge.Thing, name string, arguments []byte) ([]ask, *Explanation) {
	a, ok := f.place(x, thing, name, false)
	if !ok {
		return nil, deny(ReasonUnknown)
	}
	if len(arguments) > 0 && arguments[0] == '{' {
		a.arguments = arguments
	} else if len(arguments) > 0 && arguments[0] != 'n' {
		return nil, deny(ReasonArguments, Fault{What: "not an object"})
	}
	return append(room, a), nil
}

// place finds out which thing a name stands for: what the exchange's target
// says, else what the catalog says. A target without a thing is that of a
// message which no catalog was asked about: it goes to the backend it names.
func (f *filter) place(x *edge.Exchange, thing edge.Thing, name string, several bool) (ask, bool) {
	a := ask{server: x.Server}
	t := x.Target
	resource := thing == edge.Resource || thing == edge.Template
	switch {
	case name == "":
		return a, false
	case t != nil && !several && (t.Thing == thing || resource && (t.Thing == edge.Resource || t.Thing == edge.Template)):
		a.thing = *t
		if resource {
			a.thing.Thing, a.thing.Name = thing, name
		}
		return a, true
	case t != nil && t.Thing == edge.NoThing && t.Backend != "" && f.options.Lookup == nil:
		a.thing = edge.Target{Backend: t.Backend, Thing: thing, Name: name, Original: name}
		return a, true
	case f.options.Lookup != nil && (several || t == nil || t.Thing == edge.NoThing):
		found := f.options.Lookup(x, thing, name)
		if found == nil && thing == edge.Template {
			found = f.options.Lookup(x, edge.Resource, name) // completions may name either
		}
		if found == nil {
			return a, false
		}
		a.thing = *found
		return a, true
	}
	a.thing = edge.Target{Thing: thing, Name: name, Original: name}
	a.unplaced = true
	return a, several
}

// completed is the arguments that a completion is for: those that are settled
// and the one that is being written, as far as it is. Settled arguments that
// are no object are returned as they are.
func completed(m *mcp.Message) []byte {
	argument := m.Get("argument").Of(m.Raw)
	var settled []byte
	mcp.Each(m.Get("context").Of(m.Raw), func(name, value []byte) bool { // which, unlike Lookup, steps over what is large
		if string(mcp.Unquote(name)) == "arguments" {
			settled = value
		}
		return settled == nil
	})
	name, value := mcp.String(mcp.Lookup(argument, "name")), mcp.Lookup(argument, "value")
	if value == nil || len(settled) > 0 && settled[0] != '{' && settled[0] != 'n' {
		return settled
	}
	quoted := mcp.Quote(name)
	return mcp.Change(settled, nil, mcp.Raw(string(quoted[1:len(quoted)-1]), value))
}

// several asks for everything that a subscription names.
func (f *filter) several(ctx context.Context, x *edge.Exchange) ([]ask, *Explanation) {
	wanted := x.Request.Get("notifications").Of(x.Request.Raw)
	uris := mcp.Elements(mcp.Lookup(wanted, "resourceSubscriptions"))
	ids := mcp.Elements(mcp.Lookup(wanted, "taskIds"))
	if len(uris)+len(ids) > maxAtOnce {
		return nil, deny(ReasonTooMany)
	}
	var asks []ask
	for _, uri := range uris {
		a, ok := f.place(x, edge.Resource, mcp.String(uri), true)
		if !ok {
			return nil, deny(ReasonUnknown)
		}
		asks = append(asks, a)
	}
	for _, id := range ids {
		var no *Explanation
		if asks, no = f.ofTask(ctx, x, mcp.String(id), asks); no != nil {
			return nil, no
		}
	}
	return asks, nil
}

// ofTask adds what the call that made a task asked for.
func (f *filter) ofTask(ctx context.Context, x *edge.Exchange, id string, asks []ask) ([]ask, *Explanation) {
	a, ok := f.tasks.recall(ctx, x, id, f.judge.readsArguments())
	if !ok {
		return nil, deny(ReasonTask)
	}
	return append(asks, a), nil
}

// ownTasks leaves of a list of tasks those whose calls the client made and may
// still make.
func (f *filter) ownTasks(ctx context.Context, x *edge.Exchange, r *edge.Response) (*edge.Response, error) {
	span := r.Get("tasks")
	listed := mcp.Elements(span.Of(r.Raw))
	if len(listed) == 0 || r.Kind != mcp.Result {
		return r, nil
	}
	list := []byte{'['}
	for _, task := range listed[:min(len(listed), maxAtOnce)] {
		asks, no := f.ofTask(ctx, x, mcp.String(mcp.Lookup(task, "taskId")), nil)
		if no != nil || !f.decide(ctx, x, &asks[0]).Allowed {
			continue
		}
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = append(list, task...)
	}
	list = append(list, ']')
	text := mcp.Splice(nil, r.Raw, mcp.Edit{Span: span, With: list})
	if err := r.Decode(text); err != nil {
		return nil, edge.Errorf(edge.Internal, "authz", "list of tasks: %w", err)
	}
	return r, nil
}
