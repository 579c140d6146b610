package serve_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// askModern makes the call of a workflow as a modern client that can be asked; more are
// further members of its params.
func askModern(c caller, id, name, more string) *edgetest.Response {
	body, head := c.message(id, "tools/call", `{"name":`+quote(name)+`,"arguments":{}`+more+`}`, edgetest.Capabilities(asks))
	return c.Post(body, head...)
}

// answers are further members of params: what a client answers, by the keys of questions.
func (r required) answers(with map[string]string) string {
	var all []string
	for key, answer := range with {
		all = append(all, quote(key)+":"+answer)
	}
	return `,"inputResponses":{` + strings.Join(all, ",") + `},"requestState":` + quote(r.RequestState)
}

const (
	agrees = `{"action":"accept","content":{"ok":true}}`
	sure   = `type: elicitation, message: "Sure?", schema: {type: object, properties: {ok: {type: boolean}}, required: [ok]}`
)

// twoQuestions is a composite that asks for two things at once, before it calls a tool.
const twoQuestions = `compositeTools:
- name: flow
  steps:
  - {id: first, type: elicitation, message: "First?", schema: {type: object, properties: {n: {type: integer}}, required: [n]}}
  - {id: second, type: elicitation, message: "Second?", schema: {type: object, properties: {s: {type: string}}, required: [s]}}
  - {id: b, tool: back.echo, arguments: {text: "{{.steps.first.content.n}} {{.steps.second.content.s}}"}}`

// TestWorkflowTwoQuestions: two questions that wait at once are asked at once; each answer
// reaches its own step, in whatever order they come.
func TestWorkflowTwoQuestions(t *testing.T) {
	t.Parallel()
	const one, two, want = `{"action":"accept","content":{"n":1}}`, `{"action":"accept","content":{"s":"two"}}`, `"structuredContent":{"text":"1 two"}`
	t.Run("legacy", func(t *testing.T) {
		t.Parallel()
		f := composed(t, edgetest.Legacy, twoQuestions)
		c := f.callerOf(t, edgetest.Legacy, asks)
		r := c.session.Request("1", "tools/call", edgetest.CallParams("flow", "{}"))
		asked := map[string]edgetest.Message{}
		for range 2 {
			q := r.NextMessage()
			asked[strings.Trim(edgetest.Member(string(q.Params), "message"), `"`)] = q
		}
		c.session.Reply(asked["Second?"].ID, two)
		c.session.Reply(asked["First?"].ID, one)
		if m := r.NextMessage(); !strings.Contains(string(m.Result), want) {
			t.Errorf("%s %v", m.Result, m.Error)
		}
	})
	t.Run("modern", func(t *testing.T) {
		t.Parallel()
		f := composed(t, edgetest.Legacy, twoQuestions)
		c := f.callerOf(t, edgetest.Modern, "")
		asked := inputRequired(t, askModern(c, "1", "flow", ""))
		if keys := slices.Sorted(maps.Keys(asked.InputRequests)); !slices.Equal(keys, []string{"first", "second"}) {
			t.Fatalf("asked under %q", keys)
		}
		if got := askModern(c, "2", "flow", asked.answers(map[string]string{"first": one, "second": two})).Result(); !strings.Contains(got, want) {
			t.Error(got)
		}
	})
	t.Run("modern, one after the other", func(t *testing.T) {
		t.Parallel()
		f := composed(t, edgetest.Legacy, twoQuestions)
		c := f.callerOf(t, edgetest.Modern, "")
		asked := inputRequired(t, askModern(c, "1", "flow", ""))
		left := inputRequired(t, askModern(c, "2", "flow", asked.answers(map[string]string{"second": two, "nobody": agrees})))
		if keys := slices.Sorted(maps.Keys(left.InputRequests)); !slices.Equal(keys, []string{"first"}) {
			t.Fatalf("then asked under %q", keys)
		}
		if n := f.back.Count("tools/call"); n != 0 {
			t.Errorf("%d calls before the answers", n)
		}
		if got := askModern(c, "3", "flow", left.answers(map[string]string{"first": one})).Result(); !strings.Contains(got, want) {
			t.Error(got)
		}
	})
}

// TestX39AnswersThatDoNotFit: what does not fit the schema fails the step and is passed on to
// nobody, from a client of either era.
func TestX39AnswersThatDoNotFit(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`{"action":"accept","content":{"ok":"agrees"}}`:      `the answer does not fit: /ok: got string, want boolean`,
		`{"action":"accept","content":{}}`:                   `the answer does not fit: /: missing property 'ok'`,
		`{"action":"accept"}`:                                `the answer does not fit: /: missing property 'ok'`,
		`{"action":"accept","content":{"ok":true,"more":1}}`: `the answer does not fit: /more: the schema has no such property`,
		`{"action":"accept","content":[1]}`:                  `the answer does not fit`,
		`{"action":"accept","content":"ok"}`:                 `the answer does not fit`,
		`{"action":"accept","content":null}`:                 `the answer does not fit`,
		`{"action":"accept","content":{"ok":` + strings.Repeat("[", 101) + strings.Repeat("]", 101) + `}}`: `the answer does not fit`,
		`{"action":"accept","content":{"ok":"` + strings.Repeat("x", 2<<20) + `"}}`:                        `the answer does not fit: longer than 1048576 bytes`,
		`{"action":"approve","content":{"ok":true}}`:                                                       `the answer has the action`,
		`{"content":{"ok":true}}`: `the answer has the action`,
		`{}`:                      `the answer has the action`,
		`{"action":"decline","content":{"ok":true}}`: `the user said: decline`,
		`{"action":"cancel","content":{"ok":true}}`:  `the user said: cancel`,
	} {
		for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(fmt.Sprintf("%s %.60s", era, answer), func(t *testing.T) {
				t.Parallel()
				f := composed(t, edgetest.Legacy, "compositeTools:\n- name: flow\n  steps: [{id: sure, "+sure+"}, {id: b, tool: back.echo, dependsOn: [sure]}]")
				c := f.callerOf(t, era, asks)
				var got string
				if era == edgetest.Legacy {
					r := c.session.Request("1", "tools/call", edgetest.CallParams("flow", "{}"))
					c.session.Reply(r.NextMessage().ID, answer)
					got = string(r.NextMessage().Result)
				} else {
					asked := inputRequired(t, askModern(c, "1", "flow", ""))
					got = askModern(c, "2", "flow", asked.answers(map[string]string{asked.key(t): answer})).Result()
				}
				if !strings.Contains(got, `step \"sure\": `+want) || !strings.Contains(got, `"isError":true`) {
					t.Errorf("%.500s", got)
				}
				if n := f.back.Count("tools/call"); n != 0 {
					t.Errorf("%d calls", n)
				}
			})
		}
	}
}

// TestX21AnswersOfAWorkflow: an answer counts once, in time, and from the one who was asked.
func TestX21AnswersOfAWorkflow(t *testing.T) {
	t.Parallel()
	const yaml = `compositeTools:
- name: flow
  timeout: 5m
  steps: [{id: sure, ` + sure + `}, {id: b, tool: back.echo, dependsOn: [sure], arguments: {text: "{{.steps.sure.output.action}}"}}]
- name: hasty
  steps: [{id: sure, ` + sure + `, timeout: 300ms}, {id: b, tool: back.echo, dependsOn: [sure]}]
- name: other
  steps: [{id: sure, ` + sure + `}]`
	people := func(t *testing.T, more ...string) (f *front, alice, bob caller, legacy func(who string) caller) {
		m := newMint(t)
		back := edgetest.NewServer(t, edgetest.Legacy)
		offersTools(back, tool{"echo", "", []string{"text"}, 0})
		results(back, echoes)
		e := edgetest.Start(t, asPeople(m, edgetest.Manifest(back, append(more, yaml)...)))
		f = &front{Edge: e, back: back, client: e.NewClient()}
		return f, f.person(t, m, edgetest.Modern, "alice", ""), f.person(t, m, edgetest.Modern, "bob", ""), func(who string) caller { return f.person(t, m, edgetest.Legacy, who, asks) }
	}
	refused := func(t *testing.T, r *edgetest.Response) {
		t.Helper()
		if m := r.Message(); r.Status != 400 || m.Error == nil || m.Error.Code != -32602 {
			t.Errorf("status %d: %s", r.Status, r.Body)
		}
	}
	t.Run("another user", func(t *testing.T) {
		t.Parallel()
		f, alice, bob, _ := people(t)
		asked := inputRequired(t, askModern(alice, "1", "flow", ""))
		again := asked.answers(map[string]string{asked.key(t): agrees})
		refused(t, askModern(bob, "2", "flow", again))
		refused(t, askModern(alice, "2", "other", again)) // of another tool
		if n := f.back.Count("tools/call"); n != 0 {
			t.Errorf("%d calls", n)
		}
		if got := askModern(alice, "3", "flow", again).Result(); !strings.Contains(got, `"structuredContent":{"text":"accept"}`) {
			t.Error(got)
		}
	})
	t.Run("another user's session", func(t *testing.T) {
		t.Parallel()
		f, _, _, legacy := people(t)
		alice, bob, elsewhere := legacy("alice"), legacy("bob"), legacy("alice")
		r := alice.session.Request("1", "tools/call", edgetest.CallParams("flow", "{}"))
		q := r.NextMessage()
		for _, wrong := range []*edgetest.Session{bob.session, elsewhere.session, {Client: bob.Client, ID: alice.session.ID, Version: alice.session.Version}} {
			if r, err := wrong.TrySend(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":` + agrees + `}`); err != nil || r.Status == 200 {
				t.Errorf("%v %+v", err, r)
			}
		}
		if n := f.back.Count("tools/call"); n != 0 {
			t.Errorf("%d calls", n)
		}
		alice.session.Reply(q.ID, agrees)
		if m := r.NextMessage(); !strings.Contains(string(m.Result), `"structuredContent":{"text":"accept"}`) {
			t.Errorf("%s %v", m.Result, m.Error)
		}
	})
	t.Run("twice at once", func(t *testing.T) {
		t.Parallel()
		f, alice, _, _ := people(t)
		asked := inputRequired(t, askModern(alice, "1", "flow", ""))
		params := `{"name":"flow","arguments":{}` + asked.answers(map[string]string{asked.key(t): agrees}) + `}`
		var group sync.WaitGroup
		var mu sync.Mutex
		statuses := map[int]int{}
		for i := range 10 {
			group.Go(func() {
				r, err := alice.try(fmt.Sprint(i+2), "tools/call", params, edgetest.Capabilities(asks))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				statuses[r.Status]++
			})
		}
		group.Wait()
		if statuses[200] != 1 || statuses[400] != 9 || f.back.Count("tools/call") != 1 {
			t.Errorf("%v, %d calls", statuses, f.back.Count("tools/call"))
		}
	})
	t.Run("twice, legacy", func(t *testing.T) {
		t.Parallel()
		f, _, _, legacy := people(t)
		alice := legacy("alice")
		r := alice.session.Request("1", "tools/call", edgetest.CallParams("flow", "{}"))
		q := r.NextMessage()
		alice.session.Reply(q.ID, agrees)
		_, err := alice.session.TrySend(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"action":"decline"}}`)
		if m := r.NextMessage(); err != nil || !strings.Contains(string(m.Result), `"structuredContent":{"text":"accept"}`) {
			t.Errorf("%s %v %v", m.Result, m.Error, err)
		}
		if n := f.back.Count("tools/call"); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("late", func(t *testing.T) {
		t.Parallel()
		file, log := audited(t)
		f, alice, _, legacy := people(t, log)
		asked := inputRequired(t, askModern(alice, "1", "hasty", ""))
		edgetest.Until(t, "the end of the step", func() bool {
			text, _ := os.ReadFile(file)
			return strings.Contains(string(text), "vmcp_workflow_step_failed")
		})
		r := askModern(alice, "2", "hasty", asked.answers(map[string]string{asked.key(t): agrees}))
		if text := string(r.Answer()); r.Status != 400 && !strings.Contains(text, `step \"sure\": nobody answered within 300ms`) {
			t.Errorf("%d %s", r.Status, text)
		}
		old := legacy("alice")
		stream := old.session.Request("1", "tools/call", edgetest.CallParams("hasty", "{}"))
		q := stream.NextMessage()
		if m := stream.NextMessage(); m.Method != "notifications/cancelled" || !strings.Contains(string(m.Params), `"requestId":`+string(q.ID)+`,`) {
			t.Errorf("the question is not withdrawn: %s %s", m.Method, m.Params)
		}
		if m := stream.NextMessage(); !strings.Contains(string(m.Result), `step \"sure\": nobody answered within 300ms`) {
			t.Errorf("%s %s", m.Method, m.Result)
		}
		if r, err := old.session.TrySend(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":` + agrees + `}`); err != nil || r.Status >= 500 {
			t.Errorf("%v %+v", err, r)
		}
		if n := f.back.Count("tools/call"); n != 0 {
			t.Errorf("%d calls", n)
		}
	})
}

// TestWorkflowRetryThirdTime: a step that fails twice and then succeeds has three calls at the
// backend, each with a record of its own, and one end.
func TestWorkflowRetryThirdTime(t *testing.T) {
	t.Parallel()
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		for name, fail := range map[string]func(*edgetest.Call){
			"isError": func(c *edgetest.Call) { c.Result(`{"isError":true,"content":[{"type":"text","text":"not yet"}]}`) },
			"403":     func(c *edgetest.Call) { c.Text(403, "text/plain", "not here") },
			"500":     func(c *edgetest.Call) { c.Text(500, "text/plain", "boom") },
			"502":     func(c *edgetest.Call) { c.Text(502, "text/plain", "down") },
			"503":     func(c *edgetest.Call) { c.Text(503, "text/plain", "down") },
			"aborted": func(c *edgetest.Call) { c.Abort() },
			"half":    func(c *edgetest.Call) { c.Raw("event: message\ndata: {\"jsonrpc\":"); c.Abort() },
		} {
			t.Run(client.String()+" "+name, func(t *testing.T) {
				t.Parallel()
				file, yaml := audited(t)
				f := composed(t, edgetest.Legacy, `compositeTools:
- name: flow
  steps: [{id: a, tool: back.echo, arguments: {text: x}, onError: {action: retry, retryCount: 5, retryDelay: 10ms}}]`, yaml)
				c := f.callerOf(t, client, "")
				f.back.Once("tools/call", fail)
				f.back.Once("tools/call", fail)
				if got := c.tool(t, "1", "flow", "{}"); !strings.Contains(got, `"structuredContent":{"text":"x"}`) {
					t.Error(got)
				}
				if n := f.back.Count("tools/call"); n != 3 {
					t.Errorf("%d calls", n)
				}
				f.Stop()
				inner, ends := 0, 0
				for _, line := range lines(t, file) {
					switch kind := edgetest.Member(line, "type"); {
					case kind == `"mcp_tool_call"` && edgetest.Member(line, "parent_id") != "":
						inner++
					case kind == `"vmcp_workflow_step_completed"`:
						ends++
						if edgetest.Member(line, "data", "event", "attempt") != "3" {
							t.Error(line)
						}
					case strings.HasPrefix(kind, `"vmcp_workflow_step`) && kind != `"vmcp_workflow_step_started"`:
						t.Error(line)
					}
				}
				if inner != 3 || ends != 1 {
					t.Errorf("%d records of calls, %d ends", inner, ends)
				}
			})
		}
	}
}

// TestWorkflowAsksTooMany: a workflow that waits for a modern client has a place among the
// parked calls, and gives it back.
func TestWorkflowAsksTooMany(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	offersTools(back, tool{"echo", "", []string{"text"}, 0})
	results(back, echoes)
	e := edgetest.Start(t, edgetest.Manifest(back, question), edgetest.Settings(func(s *serve.Settings) { s.MaxParked = 1 }))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	c := f.callerOf(t, edgetest.Modern, "")
	first := inputRequired(t, askModern(c, "1", "flow", ""))
	if r := askModern(c, "2", "flow", ""); r.Status != 503 || r.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.Status, r.Answer())
	}
	if got := askModern(c, "3", "flow", first.answers(map[string]string{first.key(t): agrees})).Result(); !strings.Contains(got, `"structuredContent":{"text":"accept"}`) {
		t.Error(got)
	}
	inputRequired(t, askModern(c, "4", "flow", ""))
}
