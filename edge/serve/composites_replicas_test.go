//go:build unix

package serve_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
	"github.com/weir-edge/weir/edge/serve"
)

// asksTwice is a composite tool that asks, calls a tool that asks, and asks again.
const asksTwice = `compositeTools:
- name: flow
  steps:
  - {id: a, tool: back.echo, arguments: {text: begin}}
  - {id: sure, type: elicitation, message: "Sure?", schema: {type: object, properties: {ok: {type: boolean}}, required: [ok]}, dependsOn: [a]}
  - {id: b, tool: back.hidden, arguments: {text: middle}, dependsOn: [sure]}
  - {id: c, tool: back.echo, arguments: {text: "{{.steps.b.output.text}} {{.steps.sure.content.ok}}"}}`

// composedPair is two edges with one Redis and a composite tool.
func composedPair(t *testing.T, era edgetest.Era) *pair {
	t.Helper()
	p, start := composedReplicas(t, era)
	p.a, p.b = start(), start()
	return p
}

// composedReplicas is a Redis and a server for edges with a composite tool, and a function
// that starts one.
func composedReplicas(t *testing.T, era edgetest.Era, options ...edgetest.Option) (*pair, func() *front) {
	t.Helper()
	p := &pair{redis: kvtest.Redis(t)}
	var manifest string
	p.back, manifest = composedOf(t, era, []string{asksTwice, in(p.redis)})
	key := stateKey(t)
	options = append([]edgetest.Option{patient, edgetest.Settings(func(s *serve.Settings) { s.StateKeyFile = key })}, options...)
	start := func() *front {
		e := edgetest.Start(t, manifest, options...)
		f := &front{Edge: e, back: p.back, client: e.NewClient()}
		f.stored(t)
		return f
	}
	const who = `{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}`
	if era == edgetest.Modern {
		wantsInput(p.back, "hidden", "elicitation/create", who)
		return p, start
	}
	p.back.Always("tools/call", func(c *edgetest.Call) {
		if edgetest.Member(string(c.Message.Params), "name") != `"hidden"` {
			c.Result(`{"content":[],"structuredContent":` + edgetest.Member(string(c.Message.Params), "arguments") + `}`)
			return
		}
		m := c.Ask("7", "elicitation/create", who)
		c.Result(`{"content":[],"structuredContent":{"text":` + quote(string(m.Result)) + `}}`)
	})
	return p, start
}

const (
	yes = `{"action":"accept","content":{"ok":true}}`
	me  = `{"action":"accept","content":{}}`
)

// TestCompositeAtTheOtherReplica: what a workflow that began at one edge asks, an elicitation
// step's question and a backend's, is answered through another; each step is called once.
func TestCompositeAtTheOtherReplica(t *testing.T) {
	t.Parallel()
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		p := composedPair(t, back)
		here := p.a.callerOf(t, client, asks)
		there := here.at(p.b)
		want := `"structuredContent":{"text":` + quote(me+" true") + `}`
		if client == edgetest.Legacy {
			r := here.session.Request("1", "tools/call", edgetest.CallParams("flow", "{}"))
			for _, answer := range []string{yes, me} {
				q := r.NextMessage()
				if q.Method != "elicitation/create" {
					t.Fatalf("%s %s", q.Method, q.Result)
				}
				there.session.Reply(q.ID, answer)
			}
			if m := r.NextMessage(); !strings.Contains(string(m.Result), want) {
				t.Errorf("%s", m.Result)
			}
		} else {
			call := func(c caller, id, more string) *edgetest.Response {
				body, head := c.message(id, "tools/call", `{"name":"flow","arguments":{}`+more+`}`, edgetest.Capabilities(asks))
				return c.Post(body, head...)
			}
			first := inputRequired(t, call(here, "1", ""))
			answer := fmt.Sprintf(`,"inputResponses":{%q:%s},"requestState":%s`, first.key(t), yes, quote(first.RequestState))
			second := inputRequired(t, call(there, "2", answer))
			for _, c := range []caller{here, there} { // used before, wherever it comes
				fails(t, call(c, "3", answer), 400, -32602, "3")
			}
			if got := call(there, "4", fmt.Sprintf(`,"inputResponses":{%q:%s},"requestState":%s`, second.key(t), me, quote(second.RequestState))).Result(); !strings.Contains(got, want) {
				t.Errorf("%s is not in %s", want, got)
			}
		}
		calls := 3
		if back == edgetest.Modern { // once more, with the answer
			calls = 4
		}
		if n := p.back.Count("tools/call"); n != calls {
			t.Errorf("%d calls", n)
		}
	})
}

// TestCompositeHolderGone: a workflow whose edge is gone has failed, and none of its steps is
// called again.
func TestCompositeHolderGone(t *testing.T) {
	t.Parallel()
	brief := edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = time.Millisecond })
	p, start := composedReplicas(t, edgetest.Modern, brief)
	p.a = start()
	here := p.a.callerOf(t, edgetest.Modern, "")
	call := func(c caller, id, more string) *edgetest.Response {
		body, head := c.message(id, "tools/call", `{"name":"flow","arguments":{}`+more+`}`, edgetest.Capabilities(asks))
		return c.Post(body, head...)
	}
	first := inputRequired(t, call(here, "1", ""))
	p.a.Stop() // it is alone, and does not stay for the answer
	p.b = start()
	m := fails(t, call(here.at(p.b), "2", fmt.Sprintf(`,"inputResponses":{%q:%s},"requestState":%s`, first.key(t), yes, quote(first.RequestState))), 500, -32603, "2")
	if m.Error.Message != "the edge that held this call is gone" || p.back.Count("tools/call") != 1 {
		t.Errorf("%q after %d calls", m.Error.Message, p.back.Count("tools/call"))
	}
}
