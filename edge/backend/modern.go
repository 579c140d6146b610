package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// MaxRounds is how often one call may come back with input_required before the
// edge, which asks the client itself, gives it up.
const MaxRounds = 10

// maxQuestions is how many questions one input_required may hold for a legacy
// client, to which each is a request of its own.
const maxQuestions = 1000

// toModern sends a message to a backend of the modern era.
func (b *Backend) toModern(ctx context.Context, x *edge.Exchange, in *Introduction) (*edge.Response, error) {
	switch {
	case x.Era == mcp.Modern && b.lined != nil:
		if err := b.checkParams(x, principalOf(x.Identity)); err != nil { // the server does not see them
			return nil, err
		}
		r, err := b.modernCall(ctx, x, x.Request, x.Request.Raw, nil, false)
		if err == nil && r != nil && x.Request.Method == "tools/list" && r.Kind == mcp.Result {
			b.params.page(principalOf(x.Identity), x.Request.Get("cursor").Of(x.Request.Raw), &r.Message)
		}
		return r, err
	case x.Era == mcp.Modern && x.Head.Remade:
		return b.withParams(ctx, x, x.Request, false)
	case x.Era == mcp.Modern:
		if err := b.checkParams(x, b.lister(x)); err != nil {
			return nil, err
		}
		return b.modernCall(ctx, x, x.Request, x.Request.Raw, x.Head.Params, false)
	}
	return b.legacyClient(ctx, x, in)
}

// modernCall sends one request of the modern era. raw is its text, which m was
// decoded from or made from; m tells its method and target.
func (b *Backend) modernCall(ctx context.Context, x *edge.Exchange, m *mcp.Message, raw []byte, params []edge.Header, translate bool) (*edge.Response, error) {
	if b.lined != nil {
		return b.localCall(ctx, x, m, translate)
	}
	info := mcp.MethodOf(m.Method)
	now := time.Now()
	body, id, token := b.kept(m, raw)
	o := outgoing{
		method: "POST", version: mcp.V2607, rpc: headerText(m.Method), params: params,
		body: body, x: x, forward: x.Forward, silence: b.silence(x.Client), now: now, until: now.Add(b.Cap),
	}
	switch {
	case info.Target == "":
	case x.Name != "":
		o.name = mcp.EncodeHeader(x.Name)
	default:
		o.name = mcp.EncodeHeader(m.Text(info.Target))
	}
	if m.Method == "subscriptions/listen" {
		o.silence, o.until = 0, time.Time{} // a stream that lasts as long as the client wants it
	}
	answer := x.Answer()
	status, err := b.peer.converse(ctx, &o, id, &answer.Message, func(n *mcp.Message, r *reply) {
		if n.Kind == mcp.Failure {
			return // no question of a server of this era is answered
		}
		if n.Kind == mcp.Request {
			b.odd(&b.strayed, "a request on a stream of the modern era; dropped", "method", n.Method)
			return
		}
		heard := wanted(m, n, token)
		if r != nil && (heard && n.Method == "notifications/progress" || n.Method == "notifications/message") {
			r.wait() // what is of no call does not bound the silence
		}
		if !heard {
			return
		}
		_ = x.Client.Send(asAsked(m, n, id))
	})
	if err != nil {
		if m.Method == "subscriptions/listen" && ctx.Err() != nil {
			// Whoever ended it, the client hears the end in order if it is
			// still there (2026-07-28, subscriptions/listen, graceful end).
			return result(m, (&Audience{id: m.IDText()}).Done()), nil
		}
		return failedModern(m, err)
	}
	if answer.Kind == mcp.Invalid {
		return nil, nil // a notification
	}
	if own := m.IDText(); !bytes.Equal(id, own) {
		edits := append(make([]mcp.Edit, 0, 2), answer.WithID(own))
		if tag := answer.Meta(mcp.MetaSubscription); tag.OK() {
			edits = append(edits, mcp.Edit{Span: tag, With: own})
		}
		if err := answer.Decode(mcp.Splice(nil, answer.Raw, edits...)); err != nil {
			return nil, nonsense(err)
		}
	}
	if m.Method == "tools/list" && answer.Kind == mcp.Result {
		b.params.page(b.lister(x), m.Get("cursor").Of(m.Raw), &answer.Message)
	}
	return modernAnswer(m, answer, status, translate)
}

// kept returns the text of a request, and the id and the progress token that it has there: a
// number in their place where a server may round them, since it would answer to another.
func (b *Backend) kept(m *mcp.Message, raw []byte) (body, id, token []byte) {
	id, token = m.IDText(), m.Meta("progressToken").Of(m.Raw)
	if mcp.Kept(id) && mcp.Kept(token) {
		return raw, id, token
	}
	id = strconv.AppendUint(nil, b.numbers.Add(1), 10)
	edits := append(make([]mcp.Edit, 0, 2), m.WithID(id))
	if token != nil {
		token = id
		edits = append(edits, mcp.Edit{Span: m.Meta("progressToken"), With: id})
	}
	return mcp.Splice(nil, raw, edits...), id, token
}

// asAsked returns a notification of the stream of m, which was sent under an id, in the words
// of m: with its own token, and tagged with its own id.
func asAsked(m, n *mcp.Message, id []byte) *mcp.Message {
	if bytes.Equal(id, m.IDText()) {
		return n
	}
	edit := mcp.Edit{Span: n.Meta(mcp.MetaSubscription), With: m.IDText()}
	if n.Method == "notifications/progress" {
		edit = mcp.Edit{Span: n.Get("progressToken"), With: m.Meta("progressToken").Of(m.Raw)}
	}
	if edit.OK() {
		if own, err := mcp.Decode(mcp.Splice(nil, n.Raw, edit)); err == nil {
			return own
		}
	}
	return n
}

// localCall is modernCall to a local server.
func (b *Backend) localCall(ctx context.Context, x *edge.Exchange, m *mcp.Message, translate bool) (*edge.Response, error) {
	if m.Kind == mcp.Notification {
		return nil, nil // a modern client has none to send over HTTP
	}
	answer := x.Answer()
	if err := b.overLines(ctx, x, m, &answer.Message); err != nil {
		if m.Method == "subscriptions/listen" && (ctx.Err() != nil || errors.Is(err, errTorn)) {
			return result(m, (&Audience{id: m.IDText()}).Done()), nil
		}
		return nil, err
	}
	return modernAnswer(m, answer, 0, translate)
}

// modernAnswer judges an answer of the modern era to m, which came under an HTTP status; 0
// where it has none of its own, as an event of a stream or a line.
func modernAnswer(m *mcp.Message, answer *edge.Response, status int, translate bool) (*edge.Response, error) {
	if !mcp.SafePages(&answer.Message) {
		return nil, edge.Errorf(edge.Unavailable, "call", "the backend asks to open a URL that is not a web page")
	}
	switch answer.Status = status; {
	case status == 0 && !translate && answer.Kind == mcp.Failure:
		answer.Status = mcp.Status(m.Method, answer.Code())
	case status < 300 || answer.Kind == mcp.Result:
		answer.Status = 200 // clients throw the body of a 202 away
	}
	if answer.Kind == mcp.Failure {
		if says := mcp.AccentOf(answer.Code(), answer.Text("message")); says != mcp.ModernAccent {
			return nil, &doubt{answer: answer, unrun: says == mcp.Uninitialized}
		}
	}
	return answer, nil
}

// doubt is what a server of the era that the backend is taken for does not say to a call. Where
// the backend turns out to be of that era all the same, the call may have run: it is not sent
// again, and its sender gets the answer, or else the error.
type doubt struct {
	answer *edge.Response
	err    error // in place of an answer
	unrun  bool  // a server of the other era that says so has not run the call
	plain  bool  // it is what legacy servers say to a call without a session
}

// doubted is the doubt that a refusal is, of a message with this id.
func doubted(id []byte, r *refusal) *doubt {
	if r.code != 0 {
		return &doubt{answer: refused(id, r), unrun: true, plain: r.status == 400 && (r.lostSession() || mcp.AccentOf(r.code, r.text) == mcp.Uninitialized)}
	}
	return &doubt{err: r.verdict(), unrun: true}
}

func (*doubt) Error() string { return errEra.Error() }

// doubtOf returns the doubt that an error is; nil for any other error.
func doubtOf(err error) *doubt {
	var d *doubt
	if errors.As(err, &d) {
		return d
	}
	return nil
}

// failedModern says what it means that a request got no answer of its own.
func failedModern(m *mcp.Message, err error) (*edge.Response, error) {
	var r *refusal
	switch {
	case errors.As(err, &r) && r.modern():
		return refused(m.IDText(), r), nil
	case errors.As(err, &r) && (r.status == 400 || r.status == 404 || r.status == 405):
		return nil, doubted(m.IDText(), r)
	case errors.As(err, &r) && r.code != 0 && r.after == 0 && r.limits():
		return refused(m.IDText(), r), nil // its own error says when, if anything does
	case errors.As(err, &r):
		return nil, r.verdict()
	}
	return nil, err
}

// refused is the answer that a modern server's refusal stands for, under the
// id that it left out.
func refused(id []byte, r *refusal) *edge.Response {
	m, err := mcp.Decode(mcp.AppendError(nil, id, r.code, r.text, r.data))
	if err != nil {
		m = &mcp.Message{}
	}
	return &edge.Response{Message: *m, Status: r.status}
}

// wanted reports whether a notification may go to the client that sent m:
// progress only under its token, which the server knows as token, log messages only when it set a level, and changes only
// where it listens for them (2026-07-28, basic/utilities/progress, server/utilities/logging and
// basic/patterns/subscriptions).
func wanted(m, n *mcp.Message, token []byte) bool {
	switch n.Method {
	case "notifications/progress":
		return token != nil && mcp.SameID(token, n.Get("progressToken").Of(n.Raw))
	case "notifications/message":
		return m.Meta(mcp.MetaLogLevel).OK()
	case "notifications/cancelled", "notifications/resources/updated", "notifications/subscriptions/acknowledged",
		"notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed":
		return m.Method == "subscriptions/listen"
	case "notifications/tasks":
		return mcp.SafePages(n)
	}
	return true
}

// legacyClient carries a legacy client's message to a modern backend: what the
// client said when its session began goes along with each request, and the
// backend's questions become requests to the client.
func (b *Backend) legacyClient(ctx context.Context, x *edge.Exchange, in *Introduction) (*edge.Response, error) {
	m := x.Request
	switch {
	case m.Method == "logging/setLevel":
		x.Session.SetLogLevel(m.Text("level"))
		return result(m, []byte("{}")), nil
	case m.Kind == mcp.Notification:
		return nil, nil // a modern client has none to send over HTTP
	}
	if watching, r, err := b.watch(ctx, x); watching {
		return r, err
	}
	caller := mcp.Caller{Info: b.Info}
	if x.Session != nil {
		caller = mcp.Caller{Info: x.Session.Info, LogLevel: x.Session.LogLevel(), Capabilities: relayed(x.Session)}
		if caller.LogLevel == "" && mcp.Lookup(in.Capabilities, "logging") != nil {
			// A legacy client that sets no level hears what the server chooses (2025-11-25,
			// server/utilities/logging), a modern server that is told none sends nothing.
			caller.LogLevel = "info"
		}
	}
	request, err := mcp.Decode(mcp.ToModern(nil, m, caller))
	if err != nil {
		return nil, edge.Errorf(edge.Invalid, "translate", "%w", err)
	}
	for round := 0; ; round++ {
		r, err := b.withParams(ctx, x, request, true)
		if err != nil || r == nil {
			return nil, err
		}
		if r.Kind == mcp.Result && r.Text("resultType") == "input_required" {
			if round == 0 {
				// Between its rounds no request is under way whose clock would end the call, and a
				// legacy client that leaves ends none: it may never answer.
				asked, end := context.WithTimeoutCause(ctx, b.Cap, errUnanswered)
				defer end()
				ctx = asked
			}
			var caps []byte
			if x.Session != nil {
				caps = x.Session.Capabilities
			}
			set, err := Inputs(ctx, x.Client, caps, &r.Message, round)
			if err != nil {
				return nil, err
			}
			if request, err = again(request, set, round); err != nil {
				return nil, err
			}
			continue
		}
		text := mcp.ResultToLegacy(nil, &r.Message, m.Method, m.IDText())
		if x.Parent != nil && !x.Passed { // a program of the edge reads it as it is: the answer to the client's own call is translated
			text = mcp.Splice(nil, r.Raw, r.WithID(m.IDText()))
		}
		out, err := mcp.Decode(text)
		if err != nil {
			return nil, nonsense(err)
		}
		return &edge.Response{Message: *out, Status: 200}, nil
	}
}

// errUnanswered ends a call whose client was asked and did not answer in the time that a call may
// take. The question is withdrawn.
var errUnanswered = fmt.Errorf("the client was asked and did not answer in time: %w", &edge.Withdrawn{})

// relayed returns those of a client's capabilities that the edge can relay.
func relayed(s *edge.Session) []byte {
	caps := mcp.Relayable(s.Capabilities, "sampling", "elicitation", "roots")
	if apps := mcp.Apps(s.Capabilities); apps != nil {
		caps = mcp.Change(caps, nil, mcp.Raw("extensions", apps))
	}
	return caps
}

// result makes the answer to a request that needs no backend.
func result(m *mcp.Message, value []byte) *edge.Response {
	out, err := mcp.Decode(mcp.AppendResult(nil, m.IDText(), value))
	if err != nil {
		out = &mcp.Message{}
	}
	return &edge.Response{Message: *out, Status: 200}
}

// Inputs puts the questions of an input_required result to the client, and returns the
// members of params by which the retry differs (2026-07-28, basic, multi round-trip
// requests). caps is JSON text of what the client can do, and round counts from 0. That a
// client cannot answer, or answers badly, is no fault of the backend: such an error counts
// neither for its breaker nor for its health.
func Inputs(ctx context.Context, client edge.Client, caps []byte, r *mcp.Message, round int) ([]mcp.Member, error) {
	if round == MaxRounds {
		return nil, edge.Errorf(edge.Params, "call", "the backend asked %d times for input, and the answers were not what it needs", MaxRounds)
	}
	questions := make(map[string]edge.Question)
	var order []string
	asked := mcp.Members(r.Get("inputRequests").Of(r.Raw))
	if len(asked) > maxQuestions {
		return nil, edge.Errorf(edge.Params, "call", "the backend asks %d questions at once, and a client of this revision is asked %d at most", len(asked), maxQuestions)
	}
	for _, q := range asked {
		key := string(mcp.Unquote(q.Name))
		order = append(order, key)
		method, params := mcp.String(mcp.Lookup(q.Value, "method")), mcp.Lookup(q.Value, "params")
		switch {
		case mcp.OpensPage(method, params) && !mcp.SafePage(params):
			return nil, edge.Errorf(edge.Unavailable, "call", "asks with a url that is no page which a client may be sent to")
		case client == nil || !mcp.Can(caps, method, params): // the server was told
			if c, ok := client.(interface{ Unanswered() }); ok {
				c.Unanswered()
			}
			return nil, edge.Errorf(edge.Params, "call", "the backend asks for %s, which this client cannot do", edge.Printable(method))
		}
		if mcp.OpensPage(method, params) { // the legacy era numbers them (2025-11-25, schema)
			id := fmt.Sprintf("%d-%s", round, key)
			params = mcp.Change(params, nil, mcp.Raw("elicitationId", mcp.Quote(id)))
		}
		questions[key] = edge.Question{Method: method, Params: params}
	}
	set := []mcp.Member{}
	if len(questions) > 0 {
		answers, err := client.Ask(ctx, questions)
		if err != nil {
			return nil, err
		}
		responses := []byte{'{'}
		for i, key := range order {
			a := answers[key]
			value := a.Result
			if a.Error != nil {
				if questions[key].Method != "elicitation/create" {
					return nil, edge.Errorf(edge.Gone, "ask", "the client refused %s", questions[key].Method)
				}
				value = []byte(`{"action":"cancel"}`)
			}
			if i > 0 {
				responses = append(responses, ',')
			}
			responses = append(append(mcp.AppendString(responses, key), ':'), value...)
		}
		set = append(set, mcp.Raw("inputResponses", append(responses, '}')))
	} else {
		select { // nothing to ask: the server wants the call again, later
		case <-ctx.Done():
			return nil, edge.Errorf(edge.Gone, "ask", "%w", context.Cause(ctx))
		case <-time.After(time.Duration(round+1) * 100 * time.Millisecond):
		}
	}
	if state := r.Get("requestState"); state.OK() {
		set = append(set, mcp.Raw("requestState", state.Of(r.Raw)))
	}
	return set, nil
}

// again makes the retry of a request.
func again(request *mcp.Message, set []mcp.Member, round int) (*mcp.Message, error) {
	params := mcp.Change(request.Params.Of(request.Raw), []string{"inputResponses", "requestState"})
	params = mcp.Change(params, nil, set...)
	id := []byte(`"retry-` + strconv.Itoa(round+1) + `"`)
	retry, err := mcp.Decode(mcp.AppendRequest(nil, id, request.Method, params))
	if err != nil {
		return nil, nonsense(err)
	}
	return retry, nil
}

// headerText makes text fit for a header: a method with anything else in it is
// no method of any server, and goes out encoded.
func headerText(s string) string { return mcp.EncodeHeader(s) }
