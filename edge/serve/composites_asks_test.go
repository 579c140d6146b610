package serve_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// asked is a question that a client got.
type asked struct{ key, method, params string } // key is that of a modern client, "" for a legacy one

// converse calls a tool as a client that answers. It returns the result, and the questions
// by round; a legacy client has them one by one.
func (c caller) converse(t *testing.T, tool, arguments string, answer func(asked) string) (result string, rounds [][]asked) {
	t.Helper()
	if c.session != nil {
		r := c.session.Request("1", "tools/call", edgetest.CallParams(tool, arguments))
		if !r.Stream() {
			return r.Result(), nil
		}
		for {
			m := r.NextMessage()
			switch {
			case m.Method == "":
				return string(m.Result), rounds
			case len(m.ID) > 0:
				q := asked{"", m.Method, string(m.Params)}
				rounds = append(rounds, []asked{q})
				c.session.Reply(m.ID, answer(q))
			}
		}
	}
	for more := ""; ; {
		body, head := c.message(fmt.Sprintf(`"%d"`, len(rounds)), "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s%s}`, tool, arguments, more), edgetest.Capabilities(asks))
		r := c.Post(body, head...)
		got := r.Result()
		if edgetest.Member(got, "resultType") != `"input_required"` {
			return got, rounds
		}
		need := inputRequired(t, r)
		var round []asked
		var said []string
		for _, key := range slices.Sorted(maps.Keys(need.InputRequests)) {
			q := asked{key, need.InputRequests[key].Method, string(need.InputRequests[key].Params)}
			round = append(round, q)
			if a := answer(q); a != "" {
				said = append(said, quote(key)+":"+a)
			}
		}
		rounds = append(rounds, round)
		more = fmt.Sprintf(`,"inputResponses":{%s},"requestState":%s`, strings.Join(said, ","), quote(need.RequestState))
	}
}

// inputs has a modern fake server want input for a tool before it answers, with a state
// that is different for each call.
func wantsInput(s *edgetest.Server, name, method, params string) {
	s.Always("tools/call", func(c *edgetest.Call) {
		p := string(c.Message.Params)
		arguments := edgetest.Member(p, "arguments")
		switch state := edgetest.Member(p, "requestState"); {
		case edgetest.Member(p, "name") != quote(name):
			c.Result(`{"resultType":"complete","content":[],"structuredContent":` + arguments + `}`)
		case state == "":
			c.Result(fmt.Sprintf(`{"resultType":"input_required","inputRequests":{"who":{"method":%q,"params":%s}},"requestState":%s}`, method, params, quote("state of "+arguments)))
		case state != quote("state of "+arguments):
			c.Result(`{"resultType":"complete","isError":true,"content":[{"type":"text","text":"the state of another call"}]}`)
		default:
			c.Result(`{"resultType":"complete","content":[],"structuredContent":{"text":` + quote(edgetest.Member(p, "inputResponses", "who")) + `}}`)
		}
	})
}

// TestCompositeQuestionsOfBackends: what a backend asks in a step reaches the caller, whatever
// the eras of both, and the step goes on with the answer.
func TestCompositeQuestionsOfBackends(t *testing.T) {
	t.Parallel()
	const yaml = `compositeTools:
- name: flow
  steps: [{id: a, tool: back.echo, arguments: {text: x}}, {id: b, tool: back.hidden, dependsOn: [a]}, {id: c, tool: back.echo, arguments: {text: "{{.steps.b.output.text}}!"}}]`
	for method, one := range map[string]struct{ params, answer string }{
		"elicitation/create":     {`{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}`, `{"action":"accept","content":{"who":"me"}}`},
		"sampling/createMessage": {`{"messages":[],"maxTokens":1}`, `{"role":"assistant","model":"m","content":{"type":"text","text":"me"}}`},
		"roots/list":             {`{}`, `{"roots":[{"uri":"file:///me"}]}`},
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
				f := composed(t, back, yaml)
				if back == edgetest.Modern {
					wantsInput(f.back, "hidden", method, one.params)
				} else {
					f.back.Always("tools/call", func(c *edgetest.Call) {
						if edgetest.Member(string(c.Message.Params), "name") != `"hidden"` {
							c.Result(`{"content":[],"structuredContent":` + edgetest.Member(string(c.Message.Params), "arguments") + `}`)
							return
						}
						m := c.Ask("7", method, one.params)
						c.Result(`{"content":[],"structuredContent":{"text":` + quote(string(m.Result)) + `}}`)
					})
				}
				c := f.callerOf(t, client, asks)
				got, rounds := c.converse(t, "flow", "{}", func(q asked) string { return one.answer })
				if want := `"structuredContent":{"text":` + quote(one.answer+"!") + `}`; !strings.Contains(got, want) {
					t.Errorf("%s is not in %s", want, got)
				}
				if len(rounds) != 1 || len(rounds[0]) != 1 || rounds[0][0].method != method || client == edgetest.Modern && !strings.HasPrefix(rounds[0][0].key, "b.") {
					t.Errorf("asked %v", rounds)
				}
				// A client that cannot be asked has the step fail, and only the step.
				r := f.callerOf(t, client, "").request(t, "9", "tools/call", edgetest.CallParams("flow", "{}"))
				if got := r.Result(); !strings.Contains(got, `step \"b\": tool \"back.hidden\": `) && back == edgetest.Modern {
					t.Error(got)
				}
			})
		})
	}
}

// TestCompositePagesOfBackends: a legacy backend whose error wants a page opened in a step has
// the caller asked, once, whatever its era: the step goes on with who opens it, and fails with who
// does not.
func TestCompositePagesOfBackends(t *testing.T) {
	t.Parallel()
	const yaml = `compositeTools:
- name: flow
  steps: [{id: b, tool: back.hidden}, {id: c, tool: back.echo, arguments: {text: "{{.steps.b.output.text}}!"}}]`
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		for action, want := range map[string]string{
			"accept":  `"structuredContent":{"text":"opened!"}`,
			"decline": `step \"b\": tool \"back.hidden\": the user did not open the page that this call needs`,
			"cancel":  `step \"b\": tool \"back.hidden\": the user did not open the page that this call needs`,
		} {
			t.Run(fmt.Sprintf("%s client, %s", client, action), func(t *testing.T) {
				t.Parallel()
				f := composed(t, edgetest.Legacy, yaml)
				var calls atomic.Int32
				f.back.Always("tools/call", func(c *edgetest.Call) {
					if edgetest.Member(string(c.Message.Params), "name") != `"hidden"` {
						c.Result(`{"content":[],"structuredContent":` + edgetest.Member(string(c.Message.Params), "arguments") + `}`)
						return
					}
					if calls.Add(1) == 1 || action != "accept" {
						c.JSON(200, `{"jsonrpc":"2.0","id":`+c.ID()+`,"error":{"code":-32042,"message":"open it","data":{"elicitations":[{"mode":"url","elicitationId":"e1","url":"https://example.com/","message":"open"}]}}}`)
						return
					}
					c.Result(`{"content":[],"structuredContent":{"text":"opened"}}`)
				})
				got, rounds := f.callerOf(t, client, asks).converse(t, "flow", "{}", func(asked) string { return `{"action":"` + action + `"}` })
				if !strings.Contains(got, want) {
					t.Errorf("%s is not in %s", want, got)
				}
				if len(rounds) != 1 || len(rounds[0]) != 1 || edgetest.Member(rounds[0][0].params, "mode") != `"url"` || edgetest.Member(rounds[0][0].params, "url") != `"https://example.com/"` {
					t.Errorf("asked %v", rounds)
				}
				// One that opens no pages hears why the step fails.
				if got := f.callerOf(t, client, `{"elicitation":{"form":{}}}`).tool(t, "9", "flow", "{}"); action != "accept" && !strings.Contains(got, `step \"b\": tool \"back.hidden\": `) {
					t.Error(got)
				}
			})
		}
	}
}

// TestCompositeQuestionsAtOnce: two steps whose backend wants input wait in one round, each
// under its own name, and each call goes on with its own state; so do items of a forEach.
func TestCompositeQuestionsAtOnce(t *testing.T) {
	t.Parallel()
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(client.String(), func(t *testing.T) {
			t.Parallel()
			f := composed(t, edgetest.Modern, `compositeTools:
- name: flow
  steps:
  - {id: a, tool: back.hidden, arguments: {text: "1"}}
  - {id: b, tool: back.hidden, arguments: {text: "2"}}
  - {id: e, type: forEach, collection: "[3,4]", step: {tool: back.hidden, arguments: {text: "{{.forEach.item}}"}}}
  output:
    properties:
      a: {type: string, value: "{{.steps.a.output.text}}"}
      b: {type: string, value: "{{.steps.b.output.text}}"}
      e: {type: string, value: "{{(index .steps.e.output.iterations 1).output.text}}"}`)
			wantsInput(f.back, "hidden", "elicitation/create", `{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}`)
			n := 0
			got, rounds := f.callerOf(t, client, asks).converse(t, "flow", "{}", func(q asked) string {
				n++
				return fmt.Sprintf(`{"action":"accept","content":{"n":%q}}`, q.key)
			})
			if n != 4 {
				t.Errorf("%d questions: %v", n, rounds)
			}
			if client == edgetest.Legacy {
				if !strings.Contains(got, `"structuredContent":{"a":"{`) {
					t.Error(got)
				}
				return
			}
			for name, key := range map[string]string{"a": "a.who", "b": "b.who", "e": "e.1.who"} {
				if v := edgetest.Member(got, "structuredContent", name); !strings.Contains(v, key) {
					t.Errorf("%s: %s", name, got)
				}
			}
		})
	}
}

// TestCompositeAsksTogether: elicitation steps that wait at the same time are asked in one
// round of a modern client, by the ids of the steps; what it does not answer is asked again.
func TestCompositeAsksTogether(t *testing.T) {
	t.Parallel()
	const schema = `schema: {type: object, properties: {n: {type: integer}}, required: [n]}`
	f := composed(t, edgetest.Legacy, `compositeTools:
- name: flow
  steps:
  - {id: one, type: elicitation, message: "First?", `+schema+`}
  - {id: two, type: elicitation, message: "Second?", `+schema+`}
  - {id: input_1, type: elicitation, message: "Third?", `+schema+`}
  - {id: last, type: elicitation, message: "{{.steps.two.content.n}}?", `+schema+`}
  output: {properties: {all: {type: string, value: "{{.steps.one.content.n}} {{.steps.two.content.n}} {{.steps.input_1.content.n}} {{.steps.last.content.n}}"}}}`)
	c := f.callerOf(t, edgetest.Modern, "")
	n := 0
	got, rounds := c.converse(t, "flow", "{}", func(q asked) string {
		n++
		if n == 1 {
			return ""
		}
		return fmt.Sprintf(`{"action":"accept","content":{"n":%d}}`, map[string]int{"one": 1, "two": 2, "input_1": 3, "last": 4}[q.key])
	})
	if edgetest.Member(got, "structuredContent", "all") != `"1 2 3 4"` {
		t.Error(got)
	}
	var keys []string
	for _, round := range rounds {
		var of []string
		for _, q := range round {
			of = append(of, q.key)
		}
		keys = append(keys, strings.Join(of, "+"))
	}
	if got := strings.Join(keys, " "); got != "input_1+one+two input_1+last" && got != "input_1+one+two input_1 last" { // the last step may need longer than a round waits
		t.Errorf("rounds: %s", got)
	}
}

// TestX21Composites: an answer that comes twice, for another request, or from another
// principal, is refused, and no step runs again.
func TestX21Composites(t *testing.T) {
	t.Parallel()
	m := newMint(t)
	f := composed(t, edgetest.Legacy, strings.Replace(question, "{{.steps.sure.output.action}}", "yes", 1), asPeople(m, "incomingAuth: {type: anonymous}"))
	people := map[string]caller{}
	for _, who := range []string{"ada", "bob"} {
		people[who] = f.person(t, m, edgetest.Modern, who, "")
	}
	as := func(who, id, tool, more string) *edgetest.Response {
		c := people[who]
		body, head := c.message(id, "tools/call", `{"name":"`+tool+`","arguments":{}`+more+`}`, edgetest.Capabilities(asks))
		return c.Post(body, head...)
	}
	need := inputRequired(t, as("ada", `"1"`, "flow", ""))
	again := fmt.Sprintf(`,"inputResponses":{"sure":{"action":"accept","content":{"ok":true}}},"requestState":%s`, quote(need.RequestState))
	refused := func(what string, r *edgetest.Response) {
		t.Helper()
		if m := r.Message(); m.Error == nil || m.Error.Code != -32602 || r.Status != 400 {
			t.Errorf("%s: %d %s", what, r.Status, r.Body)
		}
	}
	refused("another principal", as("bob", `"2"`, "flow", again))
	refused("another tool", as("ada", `"3"`, "echo", again))
	if n := len(f.back.Requests("tools/call")); n != 0 {
		t.Errorf("%d calls", n)
	}
	if got := as("ada", `"4"`, "flow", again).Result(); !strings.Contains(got, `"text":"yes"`) {
		t.Error(got)
	}
	refused("twice", as("ada", `"5"`, "flow", again))
	if n := len(f.back.Requests("tools/call")); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// TestCompositeAskedTooLong: a question that nobody answers in the time that parked calls
// have counts as cancelled, in both eras, and so does one that is asked when the client has stayed
// away for so long; the workflow goes on as it says, and an answer that comes later is refused.
func TestCompositeAskedTooLong(t *testing.T) {
	t.Parallel()
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(client.String(), func(t *testing.T) {
			t.Parallel()
			file, audit := audited(t)
			f := composedWith(t, edgetest.Legacy, []string{`compositeTools:
- name: flow
  steps:
  - {id: sure, type: elicitation, message: "Sure?", onCancel: {action: continue}}
  - {id: undo, tool: back.echo, arguments: {text: "{{.steps.sure.output.action}}"}}
  - {id: again, type: elicitation, message: "Again?", dependsOn: [undo], onCancel: {action: continue}}
  - {id: clean, tool: back.echo, arguments: {text: "{{.steps.again.output.action}}"}}`, audit}, edgetest.Settings(func(s *serve.Settings) { s.ParkTTL = 300 * time.Millisecond }))
			given := make(chan struct{}) // the client is given up: the second question comes after that
			f.back.Once("tools/call", func(c *edgetest.Call) {
				c.Wait(given)
				c.Result(`{"content":[],"structuredContent":` + edgetest.Member(string(c.Message.Params), "arguments") + `}`)
			})
			up := func() {
				f.back.Await("tools/call", 1)
				edgetest.Until(t, "the end of what is parked", func() bool {
					return figure(t, string(f.client.Do("GET", "/metrics", "").Body), "weir_parked_calls") == 0
				})
				close(given)
			}
			c := f.callerOf(t, client, asks)
			if client == edgetest.Legacy {
				r := c.session.Request("1", "tools/call", edgetest.CallParams("flow", "{}"))
				up()
				m := r.NextMessage()
				for m.Method != "" {
					m = r.NextMessage()
				}
				if !strings.Contains(string(m.Result), `"structuredContent":{"text":"cancel"}`) {
					t.Errorf("%s", m.Result)
				}
			} else {
				call := func(id, more string) *edgetest.Response {
					body, head := c.message(id, "tools/call", `{"name":"flow","arguments":{}`+more+`}`, edgetest.Capabilities(asks))
					return c.Post(body, head...)
				}
				need := inputRequired(t, call("1", ""))
				up()
				fails(t, call("2", `,"inputResponses":{"sure":{"action":"accept","content":{}}},"requestState":`+quote(need.RequestState)), 400, -32602, "2")
			}
			f.back.Await("tools/call", 2)
			for _, one := range f.back.Requests("tools/call") {
				if edgetest.Member(string(one.Message.Params), "arguments", "text") != `"cancel"` {
					t.Errorf("%s", one.Message.Params)
				}
			}
			f.Stop()
			if steps, workflows := terminals(t, file); len(steps) != 4 || fmt.Sprint(workflows) != "map[completed:1]" || f.back.Count("tools/call") != 2 {
				t.Errorf("%v %v", workflows, steps)
			}
		})
	}
}
