package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// maxRounds is how often one call may come back with input_required before the
// edge gives it up on behalf of a legacy client.
const maxRounds = 10

// toModern sends a message to a backend of the modern era.
func (b *Backend) toModern(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	if x.Era == mcp.Modern {
		return b.modernCall(ctx, x, x.Request, x.Request.Raw, x.Head.Params, false)
	}
	return b.legacyClient(ctx, x)
}

// modernCall sends one request of the modern era. raw is its text, which m was
// decoded from or made from; m tells its method and target.
func (b *Backend) modernCall(ctx context.Context, x *edge.Exchange, m *mcp.Message, raw []byte, params []edge.Header, translate bool) (*edge.Response, error) {
	info := mcp.MethodOf(m.Method)
	o := outgoing{
		method: "POST", version: mcp.V2607, rpc: headerText(m.Method), params: params,
		body: raw, silence: b.Silence, until: time.Now().Add(b.Cap),
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
	status, err := b.peer.converse(ctx, &o, m.IDText(), &answer.Message, func(n *mcp.Message, _ *reply) {
		if n.Kind == mcp.Request {
			b.Log.Warn("backend sent a request on a stream of the modern era; dropped", "backend", b.Name, "method", n.Method)
			return
		}
		if !wanted(m, n) {
			return
		}
		_ = x.Client.Send(n)
	})
	var r *refusal
	switch {
	case errors.As(err, &r) && r.modern():
		return refused(m.IDText(), r), nil
	case errors.As(err, &r) && (r.status == 400 || r.status == 404 || r.status == 405):
		return nil, errEra
	case errors.As(err, &r):
		return nil, r.verdict()
	case err != nil:
		return nil, err
	case answer.Kind == mcp.Invalid:
		return nil, nil // a notification
	}
	if answer.Status = status; !translate && status == 200 && answer.Kind == mcp.Failure {
		answer.Status = mcp.Status(answer.Code()) // it came as an event, whose stream was 200 before
	}
	return answer, nil
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
// progress only under its own token, log messages only when it set a level
// (2026-07-28, basic/utilities/progress and server/utilities/logging).
func wanted(m, n *mcp.Message) bool {
	switch n.Method {
	case "notifications/progress":
		token := m.Meta("progressToken")
		return token.OK() && mcp.SameID(token.Of(m.Raw), n.Get("progressToken").Of(n.Raw))
	case "notifications/message":
		return m.Meta(mcp.MetaLogLevel).OK()
	}
	return true
}

// legacyClient carries a legacy client's message to a modern backend: what the
// client said when its session began goes along with each request, and the
// backend's questions become requests to the client.
func (b *Backend) legacyClient(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
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
	}
	request, err := mcp.Decode(mcp.ToModern(nil, m, caller))
	if err != nil {
		return nil, edge.Errorf(edge.Invalid, "translate", "%w", err)
	}
	for round := 0; ; round++ {
		r, err := b.withParams(ctx, x, request)
		if err != nil || r == nil {
			return nil, err
		}
		if r.Kind == mcp.Result && r.Text("resultType") == "input_required" {
			if round == maxRounds {
				return nil, edge.Errorf(edge.Unavailable, "call", "asked %d times for input", maxRounds)
			}
			if request, err = b.ask(ctx, x, request, &r.Message, round); err != nil {
				return nil, err
			}
			continue
		}
		out, err := mcp.Decode(mcp.ResultToLegacy(nil, &r.Message, m.Method, m.IDText()))
		if err != nil {
			return nil, nonsense(err)
		}
		return &edge.Response{Message: *out, Status: 200}, nil
	}
}

// relayed returns those of a client's capabilities that the edge can relay.
func relayed(s *edge.Session) []byte {
	return mcp.Relayable(s.Capabilities, "sampling", "elicitation", "roots")
}

// result makes the answer to a request that needs no backend.
func result(m *mcp.Message, value []byte) *edge.Response {
	out, err := mcp.Decode(mcp.AppendResult(nil, m.IDText(), value))
	if err != nil {
		out = &mcp.Message{}
	}
	return &edge.Response{Message: *out, Status: 200}
}

// ask puts the questions of an input_required result to the client and returns
// the retry that carries the answers (2026-07-28, basic, multi round-trip
// requests).
func (b *Backend) ask(ctx context.Context, x *edge.Exchange, request, r *mcp.Message, round int) (*mcp.Message, error) {
	questions := make(map[string]edge.Question)
	var order []string
	for _, q := range mcp.Members(r.Get("inputRequests").Of(r.Raw)) {
		key := string(mcp.Unquote(q.Name))
		order = append(order, key)
		questions[key] = edge.Question{Method: mcp.String(mcp.Lookup(q.Value, "method")), Params: mcp.Lookup(q.Value, "params")}
	}
	set := []mcp.Member{}
	if len(questions) > 0 {
		answers, err := x.Client.Ask(ctx, questions)
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
	drop := []string{"inputResponses", "requestState"}
	if state := r.Get("requestState"); state.OK() {
		set = append(set, mcp.Raw("requestState", state.Of(r.Raw)))
	}
	params := mcp.Change(request.Params.Of(request.Raw), drop)
	params = mcp.Change(params, nil, set...)
	id := []byte(`"retry-` + strconv.Itoa(round+1) + `"`)
	retry, err := mcp.Decode(mcp.AppendRequest(nil, id, request.Method, params))
	if err != nil {
		return nil, nonsense(err)
	}
	return retry, nil
}

// headerParam is a parameter of a tool that a modern server wants mirrored in
// a header (2026-07-28, x-mcp-header).
type headerParam struct {
	header string
	path   []string // names down from the arguments
}

// withParams sends a request that the edge made, with the Mcp-Param headers
// that the tool is known to want. A server that misses one says so without
// running the call (HeaderMismatch); then the tools are looked at and the call
// is sent again, once.
func (b *Backend) withParams(ctx context.Context, x *edge.Exchange, m *mcp.Message) (*edge.Response, error) {
	r, err := b.modernCall(ctx, x, m, m.Raw, b.mirrored(m), true)
	if err != nil || r == nil || m.Method != "tools/call" || r.Code() != mcp.CodeHeaderMismatch {
		return r, err
	}
	if err := b.learnParams(ctx); err != nil {
		return nil, err
	}
	return b.modernCall(ctx, x, m, m.Raw, b.mirrored(m), true)
}

// mirrored returns the Mcp-Param headers of a call.
func (b *Backend) mirrored(m *mcp.Message) []edge.Header {
	if m.Method != "tools/call" {
		return nil
	}
	known, ok := b.params.Load(m.Text("name"))
	if !ok {
		return nil
	}
	var out []edge.Header
	for _, p := range known.([]headerParam) {
		v := mcp.Lookup(m.Get("arguments").Of(m.Raw), p.path...)
		switch {
		case v == nil || string(v) == "null" || v[0] == '{' || v[0] == '[':
			continue
		case v[0] == '"':
			out = append(out, edge.Header{Name: mcp.HeaderParam + p.header, Value: mcp.EncodeHeader(mcp.String(v))})
		default:
			out = append(out, edge.Header{Name: mcp.HeaderParam + p.header, Value: string(v)})
		}
	}
	return out
}

// learnParams walks the backend's tools and keeps which of them want headers.
func (b *Backend) learnParams(ctx context.Context) error {
	seen := map[string]bool{}
	cursor := ""
	for page := 0; page < 1000; page++ {
		params := mcp.Change(nil, nil, mcp.Raw("_meta", mcp.Change(nil, nil, mcp.Caller{Info: b.Info}.Members()...)))
		if page > 0 {
			params = mcp.Change(params, nil, mcp.Raw("cursor", []byte(cursor)))
		}
		o := outgoing{
			method: "POST", version: mcp.V2607, rpc: "tools/list", silence: b.Silence, until: time.Now().Add(b.Cap),
			body: mcp.AppendRequest(nil, []byte("1"), "tools/list", params),
		}
		m := new(mcp.Message)
		_, err := b.peer.converse(ctx, &o, []byte("1"), m, func(*mcp.Message, *reply) {})
		if err != nil || m.Kind != mcp.Result {
			return edge.Errorf(edge.Unavailable, "list tools", "cannot learn which headers a tool wants: %v", err)
		}
		for _, tool := range mcp.Elements(m.Get("tools").Of(m.Raw)) {
			if found := headerParams(mcp.Lookup(tool, "inputSchema"), nil, nil); found != nil {
				b.params.Store(mcp.String(mcp.Lookup(tool, "name")), found)
			}
		}
		next := m.Get("nextCursor")
		if cursor = string(next.Of(m.Raw)); !next.OK() || seen[cursor] {
			return nil
		}
		seen[cursor] = true
	}
	return nil
}

// headerParams finds x-mcp-header in a schema, along properties only.
func headerParams(schema []byte, path []string, found []headerParam) []headerParam {
	if len(path) > 32 {
		return found
	}
	for _, p := range mcp.Members(mcp.Lookup(schema, "properties")) {
		here := append(slices.Clip(path), string(mcp.Unquote(p.Name)))
		if h := mcp.String(mcp.Lookup(p.Value, "x-mcp-header")); token(h) {
			found = append(found, headerParam{header: h, path: here})
		}
		found = headerParams(p.Value, here, found)
	}
	return found
}

// token reports whether s is a token by RFC 9110 §5.6.2.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || slices.Contains([]byte(`"(),/:;<=>?@[\]{}`), c) {
			return false
		}
	}
	return s != ""
}

// headerText makes text fit for a header: a method with anything else in it is
// no method of any server, and goes out encoded.
func headerText(s string) string { return mcp.EncodeHeader(s) }

// detect finds out what the backend speaks, the modern era first (2026-07-28,
// server/discover, detection).
func (b *Backend) detect(ctx context.Context) (*Introduction, error) {
	if b.SSE {
		return b.detectLegacy(ctx, true)
	}
	meta := mcp.Change(nil, nil, mcp.Caller{Info: b.Info}.Members()...)
	o := outgoing{
		method: "POST", version: mcp.V2607, rpc: "server/discover", silence: b.Silence, until: time.Now().Add(b.Silence),
		body: mcp.AppendRequest(nil, []byte("1"), "server/discover", mcp.Change(nil, nil, mcp.Raw("_meta", meta))),
	}
	m := new(mcp.Message)
	status, err := b.peer.converse(ctx, &o, []byte("1"), m, func(*mcp.Message, *reply) {})
	var r *refusal
	if err != nil && !errors.As(err, &r) && edge.KindOf(err) != edge.Unavailable {
		return nil, err
	}
	if err == nil && m.Kind == mcp.Failure {
		r = &refusal{status: status, code: m.Code(), data: m.Get("data").Of(m.Raw)}
	}
	switch {
	case r != nil && (r.status == 401 || r.status == 403 || r.status >= 500):
		return nil, r.verdict()
	case r != nil && r.code == mcp.CodeVersion:
		if v := versions(mcp.Lookup(r.data, "supported")); !slices.Contains(v, mcp.V2607) {
			if slices.ContainsFunc(v, mcp.LegacyVersion) {
				break
			}
			return nil, edge.Errorf(edge.Unavailable, "discover", "speaks none of the revisions that the edge speaks, only %q", v)
		}
		return &Introduction{Era: mcp.Modern, Version: mcp.V2607, Capabilities: everything()}, nil
	case r != nil && r.modern():
		return &Introduction{Era: mcp.Modern, Version: mcp.V2607, Capabilities: everything()}, nil
	case err == nil && m.Kind == mcp.Result && slices.Contains(versions(m.Get("supportedVersions").Of(m.Raw)), mcp.V2607):
		return &Introduction{
			Era:          mcp.Modern,
			Version:      mcp.V2607,
			Capabilities: slices.Clone(m.Get("capabilities").Of(m.Raw)),
			Instructions: slices.Clone(m.Get("instructions").Of(m.Raw)),
			Info:         slices.Clone(m.Meta(mcp.MetaServerInfo).Of(m.Raw)),
		}, nil
	case err != nil && r == nil:
		// The connection failed, or the answer made no sense. A legacy server
		// may do the second; the attempt below tells.
	}
	return b.detectLegacy(ctx, false)
}

// everything is what a server may offer, for one that does not say.
func everything() []byte {
	return []byte(`{"completions":{},"logging":{},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}`)
}

func versions(array []byte) []string {
	var out []string
	if json.Unmarshal(array, &out) != nil {
		return nil
	}
	return out
}

// detectLegacy introduces the edge to a legacy server. The session it opens
// serves the clients that have none.
func (b *Backend) detectLegacy(ctx context.Context, sse bool) (*Introduction, error) {
	s := newSession(b, sse, nil, nil)
	in, err := s.ready(ctx)
	var r *refusal
	if errors.As(err, &r) && !sse && (r.status == 400 || r.status == 404 || r.status == 405) {
		old := newSession(b, true, nil, nil)
		if again, err2 := old.ready(ctx); err2 == nil {
			in, err, s = again, nil, old
		} else {
			old.Close()
		}
	}
	if err != nil {
		s.Close()
		if errors.As(err, &r) {
			return nil, &edge.Error{Kind: edge.Unavailable, Op: "initialize", Err: fmt.Errorf("speaks no revision that the edge speaks: %w", r)}
		}
		return nil, err
	}
	b.adopt(s)
	return in, nil
}
