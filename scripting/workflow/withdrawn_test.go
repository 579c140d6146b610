package workflow_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/scripting/workflow"
)

// TestSkippedQuestions: once the rest is skipped, a question that waits is withdrawn and another
// is not asked, wherever in a step it stands: nothing catches that, and nothing tries again.
func TestSkippedQuestions(t *testing.T) {
	for _, work := range []string{
		`lambda: ask("b", "m")`,
		`lambda: attempt(lambda: ask("b", "m"))`,
		`lambda: retry(3, "1s", lambda: ask("b", "m"))`,
		`lambda: parallel([lambda: ask("b", "m"), lambda: ask("b", "m")])`,
		`lambda: each("b", lambda: [1, 2, 3], lambda item, index: ask("b", "m"), on_error="continue", parallel=2)`,
		`lambda: [call_step("w.slow"), ask("b", "m")]`,
	} {
		tool := composite(t, "timeout: 30m")
		tool.Script = `b = step("b", ` + work + `, on_error="continue", default={"d": 1})
a = step("a", lambda: ask("a", "m", on_decline="skip_remaining"))
return [a.status, b.status, b.output]`
		w := parse(t, tool)
		synctest.Test(t, func(t *testing.T) {
			host := (&world{t: t, attempts: map[string]int{}}).host()
			host.Ask = func(ctx context.Context, q *workflow.Question) (*workflow.Reply, error) {
				if q.Step == "a" {
					time.Sleep(time.Second)
					return &workflow.Reply{Action: "decline"}, nil
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
			began := time.Now()
			out, err := w.Run(t.Context(), nil, host)
			if err != nil || told(out) != `{"result":["completed","skipped",{"d":1}]}` {
				t.Errorf("%s: %v, %v", work, told(out), err)
			}
			if d := time.Since(began); d > time.Second && !strings.Contains(work, "slow") {
				t.Errorf("%s: after %s", work, d)
			}
		})
	}
}

// TestSkippedBesideACall: what items of a forEach call ends by itself when the rest is skipped.
func TestSkippedBesideACall(t *testing.T) {
	tool := composite(t, "timeout: 30m")
	tool.Script = `b = step("b", lambda: each("b", lambda: [1, 2], lambda item, index: call_step("w.slow") if item == 1 else ask("b", "m"), parallel=2), default={"d": 1})
a = step("a", lambda: ask("a", "m", on_decline="skip_remaining"))
return [a.status, b.status, b.output]`
	w := parse(t, tool)
	synctest.Test(t, func(t *testing.T) {
		host := (&world{t: t, attempts: map[string]int{}}).host()
		call, cut := host.Call, false
		host.Call = func(ctx context.Context, c *workflow.Call) workflow.Answer {
			a := call(ctx, c)
			cut = cut || ctx.Err() != nil
			return a
		}
		host.Ask = func(ctx context.Context, q *workflow.Question) (*workflow.Reply, error) {
			if q.Step == "a" {
				time.Sleep(time.Millisecond)
				return &workflow.Reply{Action: "decline"}, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		out, err := w.Run(t.Context(), nil, host)
		if err != nil || cut || told(out) != `{"result":["completed","skipped",{"d":1}]}` {
			t.Errorf("cut off: %t, %s, %v", cut, told(out), err)
		}
	})
}

// TestSkippedItems: once the rest is skipped, no item of a forEach begins that has not.
func TestSkippedItems(t *testing.T) {
	w := parse(t, composite(t, `steps:
- {id: a, type: elicitation, message: m, schema: {type: object, properties: {}}, onDecline: {action: skip_remaining}}
- {id: b, type: forEach, collection: "[1,2,3,4,5,6]", maxParallel: 1, step: {tool: w.slow}}
- {id: c, tool: w.echo, dependsOn: [b]}`))
	out, seen := play(t, w, "", func(w *world) { w.replies = []*workflow.Reply{{Action: "decline"}} })
	if out.Error != nil || len(seen.calls) != 1 {
		t.Errorf("%s after %q", told(out), seen.calls)
	}
}
