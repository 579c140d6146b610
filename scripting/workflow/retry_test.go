package workflow_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/scripting/workflow"
)

// A wait of which 60 times are more than the type of a time holds is waited for all the same.
func TestRetryAfterYears(t *testing.T) {
	for count, want := range map[string]string{
		"1":  `step_failed a #2 50000h0m0s: step "a": tool "w.fail": boom`,
		"10": "step_failed a #4 600000h0m0s: ended with the workflow: ran longer than 2160000000s",
	} {
		w := parse(t, composite(t, `
timeout: 600000h
steps: [{id: a, tool: w.fail, timeout: 600000h, onError: {action: retry, retryCount: `+count+`, retryDelay: 50000h}}]`))
		_, seen := play(t, w, "", nil)
		if !strings.Contains(strings.Join(seen.events, "\n"), want) {
			t.Errorf("retryCount: %s: %q", count, seen.events)
		}
	}
}

// A retry waits as the failure before it said, also where an earlier one had the same text.
func TestRetryOfCallToolWaitsAsLastTold(t *testing.T) {
	for _, after := range [][]time.Duration{{5 * time.Second, time.Second}, {time.Second, 5 * time.Second}} {
		tool := composite(t, "{}")
		tool.Script = `return retry(2, "1s", lambda: call_tool("w.text"))`
		w := parse(t, tool)
		synctest.Test(t, func(t *testing.T) {
			host, n := (&world{t: t, attempts: map[string]int{}}).host(), 0
			host.Call = func(context.Context, *workflow.Call) workflow.Answer {
				if n++; n <= 2 {
					return workflow.Answer{Error: &workflow.Fault{Message: `tool "w.text": backend "w" unavailable for now`, Code: 503, After: after[n-1]}}
				}
				return workflow.Answer{Result: []byte(`{"content":[]}`)}
			}
			began := time.Now()
			out, err := w.Run(t.Context(), nil, host)
			least := max(time.Second, after[0]) + max(2*time.Second, after[1])
			if took := time.Since(began); err != nil || out.Error != nil || took < least || took > least+3*time.Second {
				t.Errorf("%v: after %s, want %s: %v", after, took, least, err)
			}
		})
	}
}

// A time that is told, and is later than the end of the step, is not waited for: what failed is
// told at once.
func TestRetryAfterTheEnd(t *testing.T) {
	w := parse(t, composite(t, "steps: [{id: a, tool: w.text, timeout: 5m, onError: {action: retry, retryCount: 1}}]"))
	synctest.Test(t, func(t *testing.T) {
		host := (&world{t: t, attempts: map[string]int{}}).host()
		host.Call = func(context.Context, *workflow.Call) workflow.Answer {
			return workflow.Answer{Error: &workflow.Fault{Message: `tool "w.text": backend "w" unavailable for now`, Code: 503, After: time.Hour}}
		}
		began := time.Now()
		out, err := w.Run(t.Context(), nil, host)
		if took := time.Since(began); err != nil || took != 0 || !strings.Contains(told(out), `unavailable for now`) {
			t.Errorf("after %s: %s, %v", took, told(out), err)
		}
	})
}
