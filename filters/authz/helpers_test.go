package authz

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

func itoa(n int) string { return strconv.Itoa(n) }

// parsed is a policy set that has to be good.
func parsed(t testing.TB, spec Spec) *Policies {
	t.Helper()
	p, errs := Parse(spec, field.NewPath("authz"))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return p
}

// policies is a set of nothing but policies.
func policies(t testing.TB, texts ...string) *Policies {
	t.Helper()
	return parsed(t, Spec{Policies: texts})
}

// person is an identity with claims.
func person(subject string, claims map[string]any) *edge.Identity {
	return &edge.Identity{Issuer: "https://idp.example", Subject: subject, Claims: claims}
}

// message is an exchange for a request.
func message(t testing.TB, id *edge.Identity, method, params string) *edge.Exchange {
	t.Helper()
	m, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return &edge.Exchange{Server: "main", Request: m, Identity: id, Target: &edge.Target{Backend: "b"}}
}

// room is what lies behind the filter: it counts, and answers with a result.
type room struct {
	calls  int
	result string
	err    error
	last   *edge.Exchange
}

func (r *room) Handle(_ context.Context, x *edge.Exchange) (*edge.Response, error) {
	r.calls++
	r.last = x
	if r.err != nil {
		return nil, r.err
	}
	result := r.result
	if result == "" {
		result = "{}"
	}
	answer := x.Answer()
	answer.Status = 200
	return answer, answer.Decode(mcp.AppendResult(nil, []byte("1"), []byte(result)))
}

// hall is a filter with a room behind it.
type hall struct {
	t       testing.TB
	handler edge.Handler
	room    *room
	why     *Explanation // of the last decision
}

func open(t testing.TB, e Engine, o Options, env edge.Env) *hall {
	t.Helper()
	h := &hall{t: t, room: &room{}}
	if o.Record == nil {
		o.Record = func(_ *edge.Exchange, why *Explanation) { h.why = why }
	}
	filter, err := e.With(o).Open(env)
	if err != nil {
		t.Fatal(err)
	}
	h.handler = filter(h.room)
	return h
}

// passes sends an exchange and reports whether it reached the room; what does
// not must be denied, by the one text there is.
func (h *hall) passes(x *edge.Exchange) bool {
	h.t.Helper()
	before := h.room.calls
	_, err := h.handler.Handle(context.Background(), x)
	reached := h.room.calls > before
	if reached == (err != nil) {
		h.t.Errorf("%s: reached %v, error %v", x.Request.Method, reached, err)
	}
	if err != nil && (edge.KindOf(err) != edge.Denied || err.(*edge.Error).Err.Error() != "denied by authorization policy") {
		h.t.Errorf("%s: %v", x.Request.Method, err)
	}
	return reached
}

func (h *hall) call(id *edge.Identity, tool, arguments string) bool {
	h.t.Helper()
	name, err := json.Marshal(tool)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.passes(message(h.t, id, "tools/call", `{"name":`+string(name)+`,"arguments":`+arguments+`}`))
}

// sink answers nothing.
type sink struct{}

func (*sink) handle(context.Context, *edge.Exchange) (*edge.Response, error) { return nil, nil }

// mcpValidObject reports whether text is a JSON object that a message can hold.
func mcpValidObject(text string) bool {
	return len(text) > 0 && text[0] == '{' && mcp.Valid([]byte(text)) == nil
}
