package serve_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// hanging has calls of the tool hidden hang at a fake server until they are cancelled. It
// returns how many do, and a channel that each enters.
func hanging(s *edgetest.Server) (open *atomic.Int64, entered chan struct{}) {
	open, entered = new(atomic.Int64), make(chan struct{}, 1000)
	complete := ""
	if s.Era == edgetest.Modern {
		complete = `"resultType":"complete",`
	}
	s.Always("tools/call", func(c *edgetest.Call) {
		switch edgetest.Member(string(c.Message.Params), "name") {
		case `"hidden"`:
			open.Add(1)
			defer open.Add(-1)
			entered <- struct{}{}
			<-c.Gone()
		case `"fail"`:
			c.Result(`{` + complete + `"isError":true,"content":[{"type":"text","text":"boom"}]}`)
		default:
			c.Result(`{` + complete + `"content":[]}`)
		}
	})
	return open, entered
}

// none waits until the fake server has no open call, and holds the time that it took.
func none(t *testing.T, s *edgetest.Server, open *atomic.Int64, since time.Time) {
	t.Helper()
	edgetest.Until(t, "the end of the calls", func() bool { return open.Load() == 0 })
	if took := time.Since(since); took > 5*time.Second { // 1 s on a machine with nothing else to do
		t.Errorf("the calls ended after %s", took)
	}
	if s.Era == edgetest.Legacy {
		s.Await("notifications/cancelled", 1)
	}
}

// steps are so many steps that call the tool that hangs.
func steps(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("{id: s%d, tool: back.hidden}", i))
	}
	return strings.Join(all, ", ")
}

// terminals counts the events by which steps end in an audit log, and those of workflows.
func terminals(t *testing.T, file string) (steps map[string]int, workflows map[string]int) {
	t.Helper()
	steps, workflows = map[string]int{}, map[string]int{}
	for _, line := range lines(t, file) {
		event := func(name string) string { return edgetest.Member(line, "data", "event", name) }
		switch kind := strings.TrimPrefix(strings.Trim(edgetest.Member(line, "type"), `"`), "vmcp_workflow_"); kind {
		case "step_completed", "step_failed", "step_skipped":
			steps[event("workflow_id")+event("step")]++
		case "completed", "failed", "timed_out":
			workflows[kind]++
		}
	}
	return steps, workflows
}

// TestQuestionOfAStepIsWithdrawn: what a backend asks in a step is withdrawn from the client when
// the time of the step is over, or its call has ended, while the workflow goes on.
func TestQuestionOfAStepIsWithdrawn(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]bool{"time": false, "answered": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			within := map[bool]string{false: "2s", true: "1m"}[ends] // where the call ends, its time does not
			f := composed(t, edgetest.Legacy, `compositeTools:
- name: flow
  steps:
  - {id: a, tool: back.hidden, timeout: `+within+`, onError: {action: continue}, defaultResults: {text: none}}
  - {id: b, tool: back.echo, dependsOn: [a], arguments: {text: "{{.steps.a.output.text}}"}}`)
			// The client has the question: one whose call has ended is not put. And it knows that it is
			// withdrawn: the word for that goes on the stream of the workflow, which may not end before.
			asked, withdrawn := make(chan struct{}), make(chan struct{})
			f.back.Once("tools/call", func(c *edgetest.Call) {
				c.Event(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}}`)
				if !ends {
					c.Wait(nil)
					return
				}
				c.Wait(asked)
				c.Result(`{"content":[{"type":"text","text":"done"}]}`)
			})
			f.back.Once("tools/call", func(c *edgetest.Call) { // of the step after it
				c.Wait(withdrawn)
				c.Result(`{"content":[],"structuredContent":` + edgetest.Member(string(c.Message.Params), "arguments") + `}`)
			})
			c := f.callerOf(t, edgetest.Legacy, asks)
			r := c.session.Request("1", "tools/call", edgetest.CallParams("flow", "{}"))
			var q *edgetest.Message
			for m := r.NextMessage(); ; m = r.NextMessage() {
				switch {
				case m.Method == "elicitation/create" && q == nil:
					q = &m
					close(asked)
					continue
				case q != nil && m.Method == "notifications/cancelled" && strings.Contains(string(m.Params), `"requestId":`+string(q.ID)+`,`):
					q = nil
					close(withdrawn)
					continue
				}
				if want := map[bool]string{false: "none", true: "done"}[ends]; q != nil || !strings.Contains(string(m.Result), `"structuredContent":{"text":"`+want+`"}`) {
					t.Errorf("%s %s %s %v", m.Method, m.Params, m.Result, m.Error)
				}
				break
			}
		})
	}
}

// TestQuestionOfAStepThatItsServerWithdraws: why a server takes back what it has asked in a step
// reaches the client.
func TestQuestionOfAStepThatItsServerWithdraws(t *testing.T) {
	t.Parallel()
	f := composed(t, edgetest.Legacy, `compositeTools: [{name: flow, steps: [{id: a, tool: back.hidden}]}]`)
	asked, withdrawn := make(chan struct{}), make(chan struct{})
	f.back.Once("tools/call", func(c *edgetest.Call) {
		c.Event(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}}`)
		c.Wait(asked)
		c.Event(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q","reason":"too late"}}`)
		c.Wait(withdrawn)
		c.Result(`{"content":[{"type":"text","text":"done"}]}`)
	})
	c := f.callerOf(t, edgetest.Legacy, asks)
	r := c.session.Request("1", "tools/call", edgetest.CallParams("flow", "{}"))
	if q := r.NextMessage(); q.Method != "elicitation/create" {
		t.Fatalf("%s %s", q.Method, q.Params)
	}
	close(asked)
	if m := r.NextMessage(); m.Method != "notifications/cancelled" || !strings.Contains(string(m.Params), `"reason":"too late"`) {
		t.Errorf("%s %s", m.Method, m.Params)
	}
	close(withdrawn)
	if m := r.NextMessage(); !strings.Contains(string(m.Result), "done") {
		t.Errorf("%s %v", m.Result, m.Error)
	}
}

// TestX22: a workflow whose time is over ends its ten calls, the wait before another attempt
// and its question within a second; a late answer finds nothing; each step has one event of
// its end (rows X22 and X40).
func TestX22(t *testing.T) {
	t.Parallel()
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		file, audit := audited(t)
		f := composed(t, back, `compositeTools:
- name: flow
  timeout: 1s
  steps: [`+steps(10)+`, {id: r, tool: fail, onError: {action: retry, retryCount: 5, retryDelay: 1m}}, {id: q, type: elicitation, message: "Sure?"}, {id: z, tool: back.echo, dependsOn: [q]}]`, audit)
		open, _ := hanging(f.back)
		c := f.callerOf(t, client, asks)
		began := time.Now()
		if client == edgetest.Legacy {
			r := c.session.Request("1", "tools/call", edgetest.CallParams("flow", "{}"))
			q := r.NextMessage()
			m := r.NextMessage()
			for m.Method != "" { // the question is withdrawn
				m = r.NextMessage()
			}
			if !strings.Contains(string(m.Result), `"text":"Workflow execution timeout exceeded"`) {
				t.Errorf("%s %v", m.Result, m.Error)
			}
			_ = c.session.Send(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"action":"accept","content":{}}}`)
		} else {
			body, head := c.message("1", "tools/call", edgetest.CallParams("flow", "{}"), edgetest.Capabilities(asks))
			need := inputRequired(t, c.Post(body, head...))
			edgetest.Until(t, "the end of what is parked", func() bool {
				return figure(t, string(f.client.Do("GET", "/metrics", "").Body), "weir_parked_calls") == 0
			})
			body, head = c.message("2", "tools/call", `{"name":"flow","arguments":{},"inputResponses":{"q":{"action":"accept","content":{}}},"requestState":`+quote(need.RequestState)+`}`, edgetest.Capabilities(asks))
			fails(t, c.Post(body, head...), 400, -32602, "2")
		}
		none(t, f.back, open, began.Add(time.Second))
		f.Stop()
		steps, workflows := terminals(t, file)
		if len(steps) != 13 || fmt.Sprint(workflows) != "map[timed_out:1]" {
			t.Errorf("%v %v", workflows, steps)
		}
		for step, n := range steps {
			if n != 1 {
				t.Errorf("%s ended %d times", step, n)
			}
		}
	})
}

// TestX08Composites: a workflow goes on without its client as any call does: a legacy one's
// does, a modern one's ends with it, and notifications/cancelled ends a legacy one's.
func TestX08Composites(t *testing.T) {
	t.Parallel()
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		file, audit := audited(t)
		f := composed(t, back, `compositeTools: [{name: flow, steps: [`+steps(3)+`, {id: z, tool: back.echo, dependsOn: [s0]}]}]`, audit)
		open, entered := hanging(f.back)
		c := f.callerOf(t, client, asks)
		body, head := c.message("1", "tools/call", edgetest.CallParams("flow", "{}"), edgetest.Capabilities(asks))
		raw := f.Dial()
		raw.Write(post(f.Addr(), body, head...))
		for range 3 {
			await(t, "the calls", entered)
		}
		began := time.Now()
		if client == edgetest.Legacy {
			c.session.Notify("notifications/cancelled", `{"requestId":1}`)
		} else {
			raw.Close()
		}
		none(t, f.back, open, began)
		f.Stop()
		steps, workflows := terminals(t, file)
		if len(steps) != 4 || fmt.Sprint(workflows) != "map[failed:1]" {
			t.Errorf("%v %v", workflows, steps)
		}
	})
	t.Run("a legacy client that leaves", func(t *testing.T) {
		t.Parallel()
		file, audit := audited(t)
		f := composed(t, edgetest.Legacy, `compositeTools: [{name: flow, steps: [{id: a, tool: back.hidden}, {id: b, tool: back.echo, dependsOn: [a]}]}]`, audit)
		entered, leave := slow(f)
		c := f.callerOf(t, edgetest.Legacy, "")
		body, head := c.message("1", "tools/call", edgetest.CallParams("flow", "{}"))
		raw := f.Dial()
		raw.Write(post(f.Addr(), body, head...))
		edgetest.Receive(t, entered, "the first call")
		raw.Close()
		close(leave)
		edgetest.Receive(t, entered, "the second call")
		f.Stop()
		if _, workflows := terminals(t, file); fmt.Sprint(workflows) != "map[completed:1]" {
			t.Error(workflows)
		}
	})
}

// TestX44Composites: an edge that is told to end ends ten workflows that wait for their
// backends and for their clients, within the drain time: each with an error, and none leaves
// a call open.
func TestX44Composites(t *testing.T) {
	t.Parallel()
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		file, audit := audited(t)
		f := composedWith(t, back, []string{`compositeTools:
- name: flow
  steps: [{id: a, tool: back.hidden}, {id: z, tool: back.echo, dependsOn: [a]}]
- name: sure
  steps: [{id: a, tool: back.hidden}, {id: q, type: elicitation, message: "Sure?"}]`, audit}, edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = 300 * time.Millisecond }))
		open, entered := hanging(f.back)
		answers := make(chan *edgetest.Response, 10)
		for i := range 10 {
			c := f.callerOf(t, client, asks)
			name := "flow"
			if i%2 == 1 {
				name = "sure"
			}
			body, head := c.message("1", "tools/call", edgetest.CallParams(name, "{}"), edgetest.Capabilities(asks))
			go func() {
				r, _ := c.Try("POST", "/mcp", body, head...)
				answers <- r
			}()
		}
		for range 10 {
			await(t, "the calls", entered)
		}
		var streams []*edgetest.Response
		for range 5 { // the others have their question
			r := edgetest.Receive(t, answers, "a question")
			if client == edgetest.Modern {
				inputRequired(t, r)
				continue
			}
			if m := r.NextMessage(); m.Method != "elicitation/create" {
				t.Errorf("%s", m.Method)
			}
			streams = append(streams, r)
		}
		began := time.Now()
		f.Stop()
		for range 5 {
			isCut(t, client, edgetest.Receive(t, answers, "an answer"), "1")
		}
		for _, r := range streams {
			isCut(t, client, r, "1")
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it left after %s", took)
		}
		none(t, f.back, open, began)
		steps, workflows := terminals(t, file)
		if len(steps) != 20 || fmt.Sprint(workflows) != "map[failed:10]" {
			t.Errorf("%v %v", workflows, steps)
		}
	})
}
