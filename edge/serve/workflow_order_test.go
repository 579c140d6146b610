package serve_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// watch is a backend that takes its time, and notes when calls come and end, by the argument
// text of theirs.
type watch struct {
	mu         sync.Mutex
	came, went map[string]time.Time
	calls      map[string]int
	open, most int
}

// watched has a fake server take as long as takes says, by the argument text.
func watched(back *edgetest.Server, takes func(text string) time.Duration) *watch {
	w := &watch{came: map[string]time.Time{}, went: map[string]time.Time{}, calls: map[string]int{}}
	back.Always("tools/call", func(c *edgetest.Call) {
		arguments := edgetest.Member(string(c.Message.Params), "arguments")
		text := strings.Trim(edgetest.Member(arguments, "text"), `"`)
		w.mu.Lock()
		w.came[text] = time.Now()
		w.calls[text]++
		w.open++
		w.most = max(w.most, w.open)
		w.mu.Unlock()
		if d := takes(text); d > 0 {
			select {
			case <-time.After(d):
			case <-c.Gone():
			}
		}
		w.mu.Lock()
		w.went[text] = time.Now()
		w.open--
		w.mu.Unlock()
		result := `{"content":[],"structuredContent":` + arguments + `}`
		if back.Era == edgetest.Modern {
			result = `{"resultType":"complete",` + result[1:]
		}
		c.Result(result)
	})
	return w
}

// between is the time from the end of one call to the beginning of another.
func (w *watch) between(a, b string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.came[b].Sub(w.went[a])
}

// TestWorkflowOrder: a step begins as soon as those that it waits for have ended, whatever
// else is under way: there is no barrier by levels.
func TestWorkflowOrder(t *testing.T) {
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		f := composed(t, back, `compositeTools:
- name: flow
  steps:
  - {id: a, tool: back.echo, arguments: {text: a}}
  - {id: b, tool: back.echo, arguments: {text: b}}
  - {id: c, tool: back.echo, arguments: {text: c}, dependsOn: [a]}
  - {id: d, tool: back.echo, arguments: {text: d}, dependsOn: [b]}`)
		w := watched(f.back, func(text string) time.Duration {
			return map[string]time.Duration{"a": 10 * time.Millisecond, "b": 200 * time.Millisecond}[text]
		})
		c := f.callerOf(t, client, "")
		best := time.Hour
		for i := 0; i < 30 && best > 5*time.Millisecond; i++ { // others use the machine too
			if got := c.tool(t, "1", "flow", "{}"); !strings.Contains(got, `"structuredContent":{"text":"d"}`) {
				t.Fatal(got)
			}
			if w.between("b", "c") >= 0 {
				t.Fatal("c waited for b")
			}
			if gap := w.between("a", "c"); gap < 0 {
				t.Fatal("c did not wait for a")
			} else {
				best = min(best, gap)
			}
			if w.between("b", "d") < 0 {
				t.Fatal("d did not wait for b")
			}
		}
		if best > 5*time.Millisecond {
			t.Errorf("c began %s after a ended", best)
		}
	})
}

// TestWorkflowOfHundredSteps: as many steps as there may be, in a chain and side by side; the
// backend sees each of them once, and in its order.
func TestWorkflowOfHundredSteps(t *testing.T) {
	var chain, beside, more strings.Builder
	for i := range 100 {
		after := ""
		if i > 0 {
			after = fmt.Sprintf(", dependsOn: [s%d]", i-1)
		}
		fmt.Fprintf(&chain, "  - {id: s%d, tool: back.echo, arguments: {text: s%d}%s}\n", i, i, after)
		fmt.Fprintf(&beside, "  - {id: s%d, tool: back.echo, arguments: {text: s%d}}\n", i, i)
	}
	more.WriteString("compositeTools:\n- name: chain\n  steps:\n" + chain.String() + "- name: beside\n  steps:\n" + beside.String())
	f := composed(t, edgetest.Legacy, more.String())
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		c := f.callerOf(t, client, "")
		w := watched(f.back, func(string) time.Duration { return 0 })
		if got := c.tool(t, "1", "chain", "{}"); !strings.Contains(got, `"structuredContent":{"text":"s99"}`) {
			t.Error(got)
		}
		for i := range 100 {
			if n := w.calls[fmt.Sprintf("s%d", i)]; n != 1 {
				t.Errorf("step %d was called %d times", i, n)
			}
			if i > 0 && w.between(fmt.Sprintf("s%d", i-1), fmt.Sprintf("s%d", i)) < 0 {
				t.Errorf("step %d did not wait", i)
			}
		}
		if w.most != 1 {
			t.Errorf("%d at once in a chain", w.most)
		}
		w = watched(f.back, func(string) time.Duration { return 20 * time.Millisecond })
		if got := c.tool(t, "2", "beside", "{}"); !strings.Contains(got, `"structuredContent":{"text":"s99"}`) {
			t.Error(got)
		}
		if len(w.calls) != 100 || w.most > 50 || w.most < 10 {
			t.Errorf("%d calls, %d at once", len(w.calls), w.most)
		}
	}
}

// TestWorkflowOfThousandItems: a forEach has no more calls under way than it says, counted at
// the backend, whose calls are each made once.
func TestWorkflowOfThousandItems(t *testing.T) {
	cellsOf(t, func(t *testing.T, client, back edgetest.Era) {
		f := composed(t, back, `compositeTools:
- name: flow
  parameters: {type: object, properties: {rows: {type: array}, who: {type: string}}}
  steps:
  - id: all
    type: forEach
    collection: "{{json .params.rows}}"
    maxIterations: 1000
    maxParallel: 50
    step: {tool: back.echo, arguments: {text: "{{.forEach.item}}"}}
  output: {properties: {n: {type: integer, value: "{{.steps.all.output.completed}}"}, last: {type: string, value: "{{(index .steps.all.output.iterations 999).output.text}}"}}}`)
		w := watched(f.back, func(string) time.Duration { return 2 * time.Millisecond })
		var rows []string
		for i := range 1000 {
			rows = append(rows, fmt.Sprintf(`"row %d"`, i))
		}
		c := f.callerOf(t, client, "")
		got := c.tool(t, "1", "flow", `{"rows":[`+strings.Join(rows, ",")+`]}`)
		if !strings.Contains(got, `"structuredContent":{"last":"row 999","n":1000}`) {
			t.Error(clip(got))
		}
		if len(w.calls) != 1000 || w.most > 50 || w.most < 10 {
			t.Errorf("%d calls, %d at once", len(w.calls), w.most)
		}
		for text, n := range w.calls {
			if n != 1 {
				t.Errorf("%s was called %d times", text, n)
			}
		}
		// X18: one more is too many, and nothing is called.
		before := len(f.back.Requests("tools/call"))
		if got := c.tool(t, "2", "flow", `{"rows":[`+strings.Join(append(rows, "1"), ",")+`]}`); !strings.Contains(got, "1001 items, and at most 1000 are allowed") {
			t.Error(clip(got))
		}
		if n := len(f.back.Requests("tools/call")); n != before {
			t.Errorf("%d calls more", n-before)
		}
	})
}
