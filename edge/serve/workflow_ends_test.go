package serve_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// hanger is a backend whose calls last until nobody waits for them any longer. fail is
// answered at once.
type hanger struct {
	mu    sync.Mutex
	open  int
	calls int
	began chan string // the text of each call
}

func hangs(back *edgetest.Server) *hanger {
	h := &hanger{began: make(chan string, 1000)}
	count := func(n int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.open += n
		if n > 0 {
			h.calls++
		}
	}
	back.Always("tools/call", func(c *edgetest.Call) {
		if strings.Trim(edgetest.Member(string(c.Message.Params), "name"), `"`) == "fail" {
			count(1)
			h.began <- "fail"
			count(-1)
			result := `{"isError":true,"content":[{"type":"text","text":"boom"}]}`
			if back.Era == edgetest.Modern {
				result = `{"resultType":"complete",` + result[1:]
			}
			c.Result(result)
			return
		}
		count(1)
		h.began <- strings.Trim(edgetest.Member(string(c.Message.Params), "arguments", "text"), `"`)
		<-c.Gone()
		count(-1)
	})
	return h
}

func (h *hanger) now() (open, calls int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open, h.calls
}

// quiet waits until the backend has no call under way. It returns how long that took.
func (h *hanger) quiet(t *testing.T, f *front) time.Duration {
	t.Helper()
	began := time.Now()
	edgetest.Until(t, "the end of the calls at the backend", func() bool { open, _ := h.now(); return open == 0 })
	return time.Since(began)
}

// everyKind has a step of each kind wait: a call, a wait to try again, a question, a forEach,
// and one that waits for another.
const everyKind = `
  steps:
  - {id: call, tool: back.echo, arguments: {text: call}}
  - {id: again, tool: back.fail, onError: {action: retry, retryCount: 10, retryDelay: 1m}}
  - {id: sure, ` + sure + `, onCancel: {action: continue}, onError: {action: continue}}
  - {id: loop, type: forEach, collection: "[1,2,3]", step: {tool: back.echo, arguments: {text: "item {{.forEach.index}}"}, onError: {action: continue}}}
  - {id: after, tool: back.echo, dependsOn: [call]}
`

// began waits until all that everyKind calls has come to the backend.
func (h *hanger) all(t *testing.T) {
	t.Helper()
	for range 5 {
		edgetest.Receive(t, h.began, "a call")
	}
}

// terminal counts the ends of steps and workflows in an audit log.
func terminal(t *testing.T, file string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, line := range lines(t, file) {
		kind, ok := strings.CutPrefix(strings.Trim(edgetest.Member(line, "type"), `"`), "vmcp_workflow_")
		if ok && !strings.HasSuffix(kind, "started") {
			step := strings.Trim(edgetest.Member(line, "data", "event", "step"), `"`)
			out[step]++
			out[kind]++
		}
	}
	return out
}

// TestX40WorkflowTimeOver: a workflow whose time is over ends within a second, whatever its
// steps do; nothing of it stays at the backend or among the parked calls, and the audit log
// has one end of each step.
func TestX40WorkflowTimeOver(t *testing.T) {
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		file, log := audited(t)
		f := composed(t, back, "compositeTools:\n- name: flow\n  timeout: 2s"+everyKind, log)
		h := hangs(f.back)
		c := f.callerOf(t, client, asks)
		began := time.Now()
		var got string
		if client == edgetest.Legacy {
			r := c.session.Request("1", "tools/call", edgetest.CallParams("flow", "{}"))
			h.all(t)
			if q := r.NextMessage(); q.Method != "elicitation/create" {
				t.Errorf("%s %s", q.Method, q.Result)
			}
			m := r.NextMessage()
			for m.Method == "notifications/cancelled" { // of the question
				m = r.NextMessage()
			}
			got = string(m.Result)
		} else {
			asked := inputRequired(t, askModern(c, "1", "flow", ""))
			h.all(t)
			edgetest.Until(t, "the end of the workflow", func() bool {
				text, _ := os.ReadFile(file)
				return strings.Contains(string(text), "vmcp_workflow_timed_out")
			})
			r := askModern(c, "2", "flow", asked.answers(map[string]string{asked.key(t): agrees}))
			got = string(r.Answer())
			if r.Status == 400 {
				got = "Workflow execution timeout exceeded" // the state is spent
			}
		}
		if !strings.Contains(got, "Workflow execution timeout exceeded") {
			t.Error(got)
		}
		h.quiet(t, f)
		if took := time.Since(began); took > 2*time.Second+2*time.Second {
			t.Errorf("it ended after %s", took)
		}
		_, calls := h.now()
		f.Stop()
		ends := terminal(t, file)
		for _, step := range []string{"call", "again", "sure", "loop", "after", "", "timed_out"} {
			if ends[step] != 1 {
				t.Errorf("%d ends of %q: %v", ends[step], step, ends)
			}
		}
		if _, now := h.now(); now != calls || calls != 5 {
			t.Errorf("%d calls, then %d", calls, now)
		}
	})
}

// TestX08WorkflowLeft: a client that cancels its call, and a modern one that leaves, end the
// workflow, whatever its steps do: the backend has no call under way, and gets none any more.
func TestX08WorkflowLeft(t *testing.T) {
	for _, way := range []string{"legacy cancels", "modern leaves"} {
		for _, back := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(way+", "+back.String()+" backend", func(t *testing.T) {
				t.Parallel()
				file, log := audited(t)
				f := composed(t, back, "compositeTools:\n- name: flow\n  timeout: 5m"+strings.Replace(everyKind, "  - {id: sure, "+sure+", onCancel: {action: continue}, onError: {action: continue}}\n", "", 1), log)
				h := hangs(f.back)
				era := edgetest.Legacy
				if way == "modern leaves" {
					era = edgetest.Modern
				}
				c := f.callerOf(t, era, "")
				conn := f.Dial()
				body, head := c.message("7", "tools/call", edgetest.CallParams("flow", "{}"))
				conn.Write(post(f.Addr(), body, head...))
				h.all(t)
				if era == edgetest.Legacy {
					c.session.Notify("notifications/cancelled", `{"requestId":7}`)
				} else {
					conn.Close()
				}
				if back == edgetest.Legacy && era == edgetest.Legacy {
					f.back.Await("notifications/cancelled", 4)
				}
				if took := h.quiet(t, f); took > 3*time.Second {
					t.Errorf("the calls ended after %s", took)
				}
				edgetest.Until(t, "the end of the workflow", func() bool {
					text, _ := os.ReadFile(file)
					return strings.Contains(string(text), `"vmcp_workflow_failed"`)
				})
				f.Stop()
				ends := terminal(t, file)
				for _, step := range []string{"call", "again", "loop", "after", "", "failed"} {
					if ends[step] != 1 {
						t.Errorf("%d ends of %q: %v", ends[step], step, ends)
					}
				}
				if _, calls := h.now(); calls != 5 {
					t.Errorf("%d calls", calls)
				}
			})
		}
	}
}

// TestX44WorkflowsAtTheEnd: an edge that is told to end ends workflows that wait, as it does
// other calls, when its time to drain is over; no call stays at the backend.
func TestX44WorkflowsAtTheEnd(t *testing.T) {
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(client.String(), func(t *testing.T) {
			t.Parallel()
			file, log := audited(t)
			back := edgetest.NewServer(t, edgetest.Legacy)
			offersTools(back, tool{"echo", "", []string{"text"}, 0}, tool{"fail", "", nil, 0})
			h := hangs(back)
			e := edgetest.Start(t, edgetest.Manifest(back, "compositeTools:\n- name: flow\n  timeout: 5m"+everyKind, log), edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = time.Second }))
			f := &front{Edge: e, back: back, client: e.NewClient()}
			var answers []chan string
			for i := range 10 {
				c := f.callerOf(t, client, asks)
				answer := make(chan string, 1)
				answers = append(answers, answer)
				asked := make(chan struct{})
				go func() {
					r, err := c.try(fmt.Sprint(i), "tools/call", edgetest.CallParams("flow", "{}"), edgetest.Capabilities(asks))
					if err != nil {
						close(asked)
						answer <- err.Error()
						return
					}
					if !r.Stream() {
						close(asked)
						answer <- string(r.Body)
						return
					}
					_, _ = r.TryNext() // the question
					close(asked)
					text, err := r.TryAnswer()
					answer <- fmt.Sprint(string(text), err)
				}()
				edgetest.Receive(t, asked, "the question")
				h.all(t)
			}
			began := time.Now()
			f.Stop()
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it ended after %s", took)
			}
			if open, calls := h.now(); open != 0 && h.quiet(t, f) > 3*time.Second || calls != 50 {
				t.Errorf("%d calls, %d under way", calls, open)
			}
			for _, answer := range answers {
				got := edgetest.Receive(t, answer, "an answer")
				if client == edgetest.Legacy && !strings.Contains(got, `"error":{"code":-32603,"message":"the edge that held this call is gone"}`) || client == edgetest.Modern && !strings.Contains(got, `"input_required"`) {
					t.Errorf("%.300s", got)
				}
			}
			ends := terminal(t, file)
			if ends[""] != 10 || ends["call"] != 10 || ends["sure"] != 10 || ends["loop"] != 10 {
				t.Errorf("%v", ends)
			}
		})
	}
}

// TestWorkflowBackendDies: a backend that dies in a step of each kind fails the step, or has
// it go on as the operator said; what is named is the backend, never its address.
func TestWorkflowBackendDies(t *testing.T) {
	kinds := map[string]struct{ yaml, want string }{
		"a call":          {`{id: a, tool: back.echo}`, `step \"a\": tool \"echo\": `},
		"continue":        {`{id: a, tool: back.echo, onError: {action: continue}, defaultResults: {text: none}}`, `"structuredContent":{"text":"none"}`},
		"a retry":         {`{id: a, tool: back.echo, onError: {action: retry, retryCount: 2, retryDelay: 10ms}}`, `step \"a\": tool \"echo\": `},
		"forEach":         {`{id: a, type: forEach, collection: "[1,2]", step: {tool: back.echo}}`, `step \"a\": item `},
		"continue within": {`{id: a, type: forEach, collection: "[1,2]", step: {tool: back.echo, onError: {action: continue}}}`, `"failed":2`},
	}
	for name, kind := range kinds {
		for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(name+" "+client.String(), func(t *testing.T) {
				t.Parallel()
				f := composed(t, edgetest.Legacy, "compositeTools:\n- name: flow\n  steps:\n  - "+kind.yaml)
				c := f.callerOf(t, client, "")
				var once sync.Once
				f.back.Always("tools/call", func(c *edgetest.Call) {
					once.Do(func() { go f.back.Close() })
					c.Abort()
				})
				got := c.tool(t, "1", "flow", "{}")
				if !strings.Contains(strings.ReplaceAll(got, "back.echo", "echo"), kind.want) || strings.Contains(got, f.back.Addr()) {
					t.Error(got)
				}
			})
		}
	}
}

// TestWorkflowBackendAway: a step whose backend has been away since the edge began fails as a call
// of that backend does, so that its workflow goes on as the step says, and is made once the backend
// is there. A tool that a backend does not have is still one that is not there.
func TestWorkflowBackendAway(t *testing.T) {
	t.Parallel()
	up, away := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Legacy)
	offersTools(up, tool{"echo", "", []string{"text"}, 0})
	results(up, echoes)
	address := away.Addr()
	away.Close()
	e := edgetest.Start(t, group(map[string]*edgetest.Server{"up": up, "away": away}, `telemetry: {enablePrometheusMetricsPath: true}
operational: {failureHandling: {partialFailureMode: best_effort, healthCheckInterval: 50ms}}
compositeTools:
- {name: plain, steps: [{id: u, tool: up.echo}, {id: a, tool: away.echo, dependsOn: [u]}]}
- {name: short, steps: [{id: a, tool: away_echo}]}
- {name: goes_on, steps: [{id: a, tool: away.echo, onError: {action: continue}, defaultResults: {text: none}}]}
- {name: again, steps: [{id: a, tool: away.echo, onError: {action: retry, retryCount: 2, retryDelay: 10ms}}]}
- {name: patient, steps: [{id: a, tool: away.count, arguments: {n: "7"}, timeout: 1m, onError: {action: retry, retryCount: 10, retryDelay: 100ms}}]}
- {name: lost, steps: [{id: u, tool: up.echo}, {id: a, tool: up.nobody}]}
- {name: text, script: 'return call_tool("away.echo")'}`))
	f := &front{Edge: e, back: up, client: e.NewClient()}
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		c := f.callerOf(t, client, "")
		for _, of := range []struct{ name, want string }{
			{"plain", `step \"a\": tool \"away.echo\": backend \"away\" unavailable`},
			{"plain", `"completed":["u"]`},
			{"short", `step \"a\": tool \"away_echo\": backend \"away\" unavailable`},
			{"goes_on", `"structuredContent":{"text":"none"}`},
			{"again", `step \"a\": tool \"away.echo\": backend \"away\" unavailable`},
			{"lost", `step \"a\": tool \"up.nobody\": not found`},
			{"lost", `"completed":[]`},
			{"text", `tool \"away.echo\": backend \"away\" unavailable`},
		} {
			if got := c.tool(t, "1", of.name, "{}"); !strings.Contains(got, of.want) {
				t.Errorf("%s client, %s: %s", client, of.name, got)
			}
		}
	}
	status := string(f.client.Do("GET", "/status", "").Body)
	if !strings.Contains(status, `lost: step \"a\" calls up.nobody`) || strings.Contains(status, "calls away") {
		t.Error(status)
	}

	// What a step calls once its backend is there has the argument that the tool asks for.
	done := make(chan string, 1)
	c := f.callerOf(t, edgetest.Legacy, "")
	retries := func() string {
		_, after, _ := strings.Cut(string(f.client.Do("GET", "/metrics", "").Body), "\nweir_workflow_step_retries_total{")
		line, _, _ := strings.Cut(after, "\n")
		return line
	}
	before := retries()
	go func() { done <- c.request(t, "3", "tools/call", edgetest.CallParams("patient", "{}")).Result() }()
	edgetest.Until(t, "another attempt", func() bool { return retries() != before })
	again := edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { s.Address = address })
	again.Always("tools/list", func(c *edgetest.Call) {
		c.Result(`{"tools":[{"name":"count","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}}}}]}`)
	})
	results(again, echoes)
	if got := <-done; !strings.Contains(got, `"structuredContent":{"n":7}`) {
		t.Error(got)
	}
	if got := string(again.Await("tools/call", 1).Message.Params); !strings.Contains(got, `"arguments":{"n":7}`) {
		t.Error(got)
	}
}
