package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/sdk/abi"
)

// What passes beside a request and its answer: notifications of either side, and
// questions of a server with the answers of the client. All of it meets the
// programs in one of two places: the client of an exchange is a guard while
// the request is under way, and so is that of a session outside of its calls; and
// what the modern era puts into answers and retries is looked at there. The
// streams, replicas and logs that carry it further come after the guard, so that
// what is replayed was judged before.

// aside is one such thing, as programs leave it.
type aside struct {
	hook   abi.Hook
	from   uint64         // abi.From…
	method string         // "" where it is not known
	params []byte         // JSON text of an object; nil for none
	answer *edge.Answer   // of the client to a question; nil for everything else
	record *edge.Exchange // that has the notes on it; nil for none
	edited bool
}

// judge asks the programs of a hook about something that passes beside the
// message of x. The error is why it does not pass.
func (h *openFilters) judge(ctx context.Context, x *edge.Exchange, p *aside) error {
	list := h.at[p.hook]
	if len(list) == 0 {
		return nil
	}
	w := newScratch()
	defer w.free()
	for i := range list {
		if p.from == abi.FromServer {
			i = len(list) - 1 - i // the last to see the request sees first what comes back
		}
		if err := list[i].judge(ctx, x, w, p); err != nil {
			return err
		}
	}
	return nil
}

func (a *subscriber) judge(ctx context.Context, x *edge.Exchange, w *scratch, p *aside) error {
	var s subject
	switch {
	case x.Request != nil:
		s = w.about(x)
	case x.Target != nil:
		s.backend = x.Target.Backend
	}
	s.method, s.from, s.arguments, s.values = p.method, p.from, p.params, p.params
	if p.answer != nil {
		s.result, s.failure, s.values = p.answer.Result, p.answer.Error, p.answer.Result
	}
	if !a.mayMatch(a.want, s.method, s.tool, s.backend) || a.calls(ctx, x) {
		return nil
	}
	s.tool = a.told(a.want, &s)
	from := senderOf(x)
	if p.from == abi.FromServer {
		from.Backend = x.Server + "/" + s.backend
		if from.Address == "" && x.Session != nil { // outside of a call
			from.Address = x.Session.ID
		}
	}
	ops, out, err := a.ask(a.within(ctx, p.hook, x), p.hook, a.sessionOf(w, x), from, w.input(a.want, x, &s), w.out[:0], p.verbs(), maxOps)
	if w.out = out; err != nil || len(ops) == 0 {
		return err
	}
	for i := range ops {
		if ops[i].kind == abi.OpDeny {
			a.denied[p.hook].Add(1)
			a.tell(p.record, p.hook, ops)
			return ops[i].denial(a.spec.Name, p.hook)
		}
	}
	next, err := p.apply(ops)
	if err != nil {
		return a.broke(p.hook, from, err)
	}
	*p = next
	a.tell(p.record, p.hook, ops)
	return nil
}

// verbs are the operations that programs may answer with.
func (p *aside) verbs() verbs {
	switch {
	case p.hook == abi.OnNotification:
		return may(p.hook)
	case p.answer != nil:
		return answerVerbs
	}
	return questionVerbs
}

// apply returns what operations make of it: all of them, or none if one cannot be
// applied. It shares no memory with them.
func (p *aside) apply(ops []op) (aside, error) {
	next, text := *p, p.params
	if p.answer != nil {
		text = p.answer.Result
	}
	d := draft{text: text}
	for i := range ops {
		if err := p.revise(&d, &ops[i]); err != nil {
			return next, fmt.Errorf("%s: %w", opNames[ops[i].kind], err)
		}
		next.edited = next.edited || ops[i].kind != abi.OpLogField
	}
	if !next.edited {
		return next, nil
	}
	text = bytes.Clone(d.whole())
	switch {
	case len(text) > 0 && text[0] != '{':
		return next, errors.New("what is left is not an object")
	case p.answer != nil:
		next.answer = &edge.Answer{Result: text, Error: p.answer.Error}
		return next, nil
	case p.hook == abi.OnQuestion && mcp.OpensPage(p.method, text) && !mcp.SafePage(text):
		return next, errors.New("url is no page that a client may be sent to")
	}
	next.params = text
	return next, nil
}

// revise applies one operation.
func (p *aside) revise(d *draft, o *op) error {
	if p.answer != nil {
		if o.kind == abi.OpRedact && len(d.text) == 0 {
			return nil // the client answers with an error
		}
		return revise(nil, d, o)
	}
	tokens, err := tokensOf(o.pointer)
	switch {
	case o.kind == abi.OpLogField:
		return nil
	case err != nil:
		return err
	case o.kind == abi.OpRedact:
		if len(d.text) == 0 || !d.has(tokens...) {
			return nil // a missing value needs no hiding
		}
		return d.put(tokens, mcp.Quote(o.text))
	}
	if len(d.text) == 0 {
		d.set([]byte("{}"))
	}
	if o.kind == abi.OpDelArg {
		return d.cut(tokens)
	}
	return d.put(tokens, o.raw)
}

// guarded is the rest of handle where programs are asked about what passes beside.
func (h *openFilters) guarded(ctx context.Context, x *edge.Exchange, after abi.Hook, carry []carried, next edge.Handler) (*edge.Response, error) {
	if x.Request.Kind == mcp.Notification {
		m, err := h.notification(ctx, x, x, abi.FromClient, x.Request)
		if err != nil {
			return nil, err
		}
		x.Request = m
		return next.Handle(ctx, x)
	}
	if err := h.answers(ctx, x); err != nil {
		return nil, err
	}
	passed := false
	if to := x.Client; to != nil && to != edge.Client(edge.NoClient{}) { // who hears nothing is asked nothing
		g := h.guard(ctx, x, after)
		x.Client = g
		defer func() {
			x.Client = to
			g.end(passed)
		}()
	}
	r, err := next.Handle(ctx, x)
	if err != nil || r == nil {
		return r, err
	}
	if err := h.questions(ctx, x, r); err != nil {
		return nil, err
	}
	r, err = h.responses(ctx, x, after, carry, r)
	passed = err == nil && !(x.Era == mcp.Modern && r.Says("resultType", "input_required")) // the verdict on the call is still to come
	return r, err
}

// notification asks programs about a notification and returns what they make of
// it. record has their notes; nil for none.
func (h *openFilters) notification(ctx context.Context, x, record *edge.Exchange, from uint64, m *mcp.Message) (*mcp.Message, error) {
	p := aside{hook: abi.OnNotification, from: from, method: m.Method, params: m.Params.Of(m.Raw), record: record}
	if err := h.judge(ctx, x, &p); err != nil || !p.edited {
		return m, err
	}
	raw := mcp.AppendRequest(nil, nil, m.Method, p.params)
	if m.Params.OK() {
		raw = mcp.Splice(nil, m.Raw, mcp.Edit{Span: m.Params, With: p.params})
	}
	n, err := mcp.Decode(raw)
	if err != nil {
		return nil, edge.Errorf(edge.Internal, "guest", "%w", err)
	}
	return n, nil
}

// Bounds on the questions of one answer, and the answers of one retry, where
// programs are asked about each.
const (
	maxQuestions = 1000 // as many as a legacy client is asked
	maxAnswers   = 1000
)

// questions asks programs about the questions that an answer of the modern era
// puts to the client, for a call or for a task.
func (h *openFilters) questions(ctx context.Context, x *edge.Exchange, r *edge.Response) error {
	at := r.Get("inputRequests")
	if x.Era != mcp.Modern || r.Kind != mcp.Result || !at.OK() || len(h.at[abi.OnQuestion]) == 0 {
		return nil
	}
	all := mcp.Members(at.Of(r.Raw))
	if len(all) > maxQuestions {
		return edge.Errorf(edge.Unavailable, "guest", "asked %d questions at once", len(all))
	}
	edited := false
	for i, q := range all {
		p := aside{hook: abi.OnQuestion, from: abi.FromServer, method: mcp.String(mcp.Lookup(q.Value, "method")), params: mcp.Lookup(q.Value, "params"), record: x}
		if err := h.judge(ctx, x, &p); err != nil {
			return err
		}
		if p.edited {
			edited, all[i].Value = true, mcp.Change(q.Value, nil, mcp.Raw("params", p.params))
		}
	}
	if !edited {
		return nil
	}
	status := r.Status
	if err := r.Decode(mcp.Splice(nil, r.Raw, mcp.Edit{Span: at, With: object(all)})); err != nil {
		return edge.Errorf(edge.Internal, "guest", "%w", err)
	}
	r.Status = status
	return nil
}

// answers asks programs about the answers to questions that a retry of the modern
// era carries. Which question one answers only its server knows.
func (h *openFilters) answers(ctx context.Context, x *edge.Exchange) error {
	m := x.Request
	if x.Era != mcp.Modern || len(h.at[abi.OnQuestion]) == 0 {
		return nil
	}
	at := m.Get("inputResponses")
	all := mcp.Members(at.Of(m.Raw))
	if len(all) > maxAnswers {
		return edge.Errorf(edge.Params, "guest", "params.inputResponses has %d members: at most %d", len(all), maxAnswers)
	}
	edited := false
	for i := range all {
		p := aside{hook: abi.OnQuestion, from: abi.FromClient, answer: &edge.Answer{Result: all[i].Value}, record: x}
		if err := h.judge(ctx, x, &p); err != nil {
			return err
		}
		if p.edited {
			edited, all[i].Value = true, p.answer.Result
		}
	}
	if !edited {
		return nil
	}
	changed, err := mcp.Decode(mcp.Splice(nil, m.Raw, mcp.Edit{Span: at, With: object(all)}))
	if err != nil {
		return edge.Errorf(edge.Internal, "guest", "%w", err)
	}
	x.Request = changed
	return nil
}

// object writes members as they are, their names included.
func object(members []mcp.Member) []byte {
	out := []byte{'{'}
	for i, m := range members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(append(out, '"'), m.Name...), `":`...), m.Value...)
	}
	return append(out, '}')
}

// guard is the way back to a client through the programs of its server. It is an
// edge.Client.
type guard struct {
	h   *openFilters
	ctx context.Context
	x   *edge.Exchange // what programs are told: a copy, which nobody changes
	to  edge.Client
	by  *subscriber // that holds what precedes the answer; nil for none

	mu   sync.RWMutex
	over bool // x and ctx serve something else by now

	holding sync.Mutex
	held    []*mcp.Message
	bytes   int
	lost    int // what was not held, since there was too much
}

var _ edge.Client = (*guard)(nil)

// Bounds on what waits for an answer.
const (
	maxWaiting         = 256       // messages of one call
	maxWaitingBytes    = 256 << 10 // of them
	maxWaitingTogether = 16 << 20  // bytes for all calls of a server
)

var errOver = errors.New("the call is over")

// guard returns the way back to the client of a request.
func (h *openFilters) guard(ctx context.Context, x *edge.Exchange, after abi.Hook) *guard {
	w := newScratch()
	defer w.free()
	m, s := x.Request, w.about(x)
	id := bytes.Clone(m.IDText())
	g := &guard{h: h, ctx: ctx, to: x.Client, x: &edge.Exchange{
		Parent: x.Parent, Server: x.Server, Era: x.Era, Session: x.Session, Identity: x.Identity, Head: x.Head, Target: x.Target,
		Heard: x.Heard, Attributes: x.Attributes, Name: string(s.tool),
		Request: &mcp.Message{Kind: mcp.Request, Method: m.Method, Raw: id, ID: mcp.Span{End: uint32(len(id))}},
	}}
	if m.Method == "subscriptions/listen" { // what precedes its answer is all that it is for
		return g
	}
	for i := range h.at[after] {
		if a := &h.at[after][i]; a.want.hold && !a.observes() && a.matches(a.want, s.method, s.tool, s.backend) {
			g.by = a
			break
		}
	}
	return g
}

// beside puts programs before a client outside of its calls.
func (h *openFilters) beside(ctx context.Context, x *edge.Exchange, to edge.Client) edge.Client {
	return &guard{h: h, ctx: ctx, x: x, to: to}
}

// judge asks programs while x is what it was.
func (g *guard) judge(ask func() error) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.over {
		return errOver
	}
	return ask()
}

// Send asks programs about a notification, and passes on or holds what they make
// of it. What they refuse is dropped: its sender waits for nothing.
func (g *guard) Send(m *mcp.Message) error {
	var refused error
	err := g.judge(func() error {
		m, refused = g.h.notification(g.ctx, g.x, nil, abi.FromServer, m)
		return g.ctx.Err()
	})
	if err != nil || refused != nil {
		return err
	}
	if g.by != nil {
		g.hold(m)
		return nil
	}
	return g.to.Send(m)
}

// Unanswered has the client note that a question was put to nobody, if it wants to know.
func (g *guard) Unanswered() {
	if c, ok := g.to.(interface{ Unanswered() }); ok {
		c.Unanswered()
	}
}

// Ask asks programs about questions and then about the answers. What they refuse is
// answered with an error.
func (g *guard) Ask(ctx context.Context, questions map[string]edge.Question) (map[string]edge.Answer, error) {
	if len(g.h.at[abi.OnQuestion]) == 0 {
		return g.to.Ask(ctx, questions)
	}
	answers, asked := make(map[string]edge.Answer, len(questions)), make(map[string]edge.Question, len(questions))
	for key, q := range questions {
		p := aside{hook: abi.OnQuestion, from: abi.FromServer, method: q.Method, params: q.Params}
		switch err := g.judge(func() error { return g.h.judge(ctx, g.x, &p) }); {
		case ctx.Err() != nil || errors.Is(err, errOver):
			return nil, err
		case err != nil:
			answers[key] = refusal(err)
		default:
			q.Params = p.params
			asked[key] = q
		}
	}
	if len(asked) == 0 {
		return answers, nil
	}
	got, err := g.to.Ask(ctx, asked)
	if err != nil {
		return nil, err
	}
	for key, a := range got {
		q := asked[key]
		p := aside{hook: abi.OnQuestion, from: abi.FromClient, method: q.Method, params: q.Params, answer: &a}
		switch err := g.judge(func() error { return g.h.judge(ctx, g.x, &p) }); {
		case ctx.Err() != nil || errors.Is(err, errOver):
			return nil, err
		case err != nil:
			answers[key] = refusal(err)
		default:
			answers[key] = *p.answer
		}
	}
	return answers, nil
}

// refusal is the answer to a question that programs refuse, or whose answer they
// refuse.
func refusal(err error) edge.Answer {
	return edge.Answer{Error: mcp.Lookup(edge.Fail(mcp.Legacy, []byte("1"), err).Body, "error")}
}

// hold keeps a notification until the answer has been judged. What comes later, or is
// too much, is dropped.
func (g *guard) hold(m *mcp.Message) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.over {
		return
	}
	g.holding.Lock()
	defer g.holding.Unlock()
	n := len(m.Raw)
	if len(g.held) >= maxWaiting || g.bytes+n > maxWaitingBytes {
		g.lost++
		return
	}
	if g.h.waiting.Add(int64(n)) > maxWaitingTogether {
		g.h.waiting.Add(-int64(n))
		g.lost++
		return
	}
	g.held, g.bytes = append(g.held, m.Clone()), g.bytes+n
}

// end is called when the request has its answer. What was held goes out before an
// answer that passed, and is dropped with any other.
func (g *guard) end(passed bool) {
	g.mu.Lock()
	g.over = true
	g.mu.Unlock()
	if g.by == nil {
		return
	}
	g.h.waiting.Add(-int64(g.bytes))
	if g.lost > 0 && g.by.lines.allow() {
		g.by.log.Warn("a call told more before its answer than is held for a filter: the rest is dropped",
			"server", g.by.server, "filter", g.by.spec.Name, "dropped", g.lost, "messages", maxWaiting, "bytes", maxWaitingBytes)
	}
	if !passed {
		return
	}
	for _, m := range g.held {
		if g.to.Send(m) != nil {
			return // the client is gone
		}
	}
}

// mayMatch is matches for what passes beside a call: what of it is not known fits
// any globs, since nobody can say that it does not.
func (p *program) mayMatch(w *want, method string, tool []byte, backend string) bool {
	fit := func(methods, tools, backends []string) bool {
		return called(methods, method) && (len(tool) == 0 || fits(tools, tool)) && (backend == "" || anyGlob(backends, backend))
	}
	m := &p.spec.Match
	if !fit(m.Methods, m.Tools, m.Backends) {
		return false
	}
	for i := range w.on {
		if s := &w.on[i]; fit(s.Methods, s.Tools, s.Backends) {
			return true
		}
	}
	return false
}
