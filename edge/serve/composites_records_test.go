package serve_test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestCompositeSpans: each step is a span inside that of the composite tool, each call of it
// one inside of the step's, and the backend gets it; in a script all are inside of the call
// that the script makes.
func TestCompositeSpans(t *testing.T) {
	t.Parallel()
	const yaml = `compositeTools:
- name: flow
  steps:
  - {id: a, tool: back.echo}
  - {id: c, tool: fail, dependsOn: [a], onError: {action: retry, retryCount: 1, retryDelay: 1ms}}`
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		for _, way := range []string{"direct", "asked", "script"} {
			t.Run(era.String()+" "+way, func(t *testing.T) {
				t.Parallel()
				to := newCollector(t, "http")
				f := composedWith(t, edgetest.Modern, []string{yaml, codeMode(), traced(to)}, engine())
				c := f.callerOf(t, era, "")
				c.Header = http.Header{"Traceparent": {"00-" + headTrace + "-" + itsSpan + "-01"}}
				var meta []string
				if way == "asked" && era == edgetest.Modern { // its call could be parked
					meta = []string{edgetest.Capabilities(asks)}
				}
				params := edgetest.CallParams("flow", "{}")
				if way == "script" {
					params = scriptParams("flow()", "")
				}
				c.request(t, "1", "tools/call", params, meta...).Result()
				f.Stop()
				to.Lock()
				defer to.Unlock()
				names, spans := map[string]string{"": ""}, map[string]*spanpb.Span{}
				for _, s := range to.Spans {
					if hex.EncodeToString(s.TraceId) == headTrace {
						names[string(s.SpanId)], spans[string(s.SpanId)] = s.Name, s
					}
				}
				paths := map[string]int{}
				for _, s := range spans {
					path := s.Name
					for up := spans[string(s.ParentSpanId)]; up != nil; up = spans[string(up.ParentSpanId)] {
						path = up.Name + " > " + path
					}
					paths[path]++
				}
				outer := "tools/call flow"
				if way == "script" {
					outer = "tools/call execute_tool_script > " + outer
				}
				for path, n := range map[string]int{
					"": 1, " > workflow step a": 1, " > workflow step a > tools/call echo": 1, " > workflow step a > tools/call echo > tools/call echo": 1,
					" > workflow step c": 1, " > workflow step c > tools/call fail": 2, " > workflow step c > tools/call fail > tools/call fail": 2,
				} {
					if paths[outer+path] != n {
						t.Errorf("%d of %q, want %d: %v", paths[outer+path], outer+path, n, paths)
					}
				}
				for _, call := range f.back.Requests("tools/call") {
					parent := strings.Split(call.Header.Get("Traceparent"), "-")
					if len(parent) != 4 || parent[1] != headTrace {
						t.Errorf("the backend got %v", parent)
						continue
					}
					id, _ := hex.DecodeString(parent[2])
					if s := spans[string(id)]; s == nil || s.Kind != spanpb.Span_SPAN_KIND_CLIENT {
						t.Errorf("the backend got the span %v", s)
					}
				}
			})
		}
	}
}

// TestCompositeRecordsOfAttempts: the record of the outer call is the parent of one for each
// attempt, those of a script of the composite tool's too; the workflow's own types say which
// step and which attempt it was the last of, also where the call was parked in between.
func TestCompositeRecordsOfAttempts(t *testing.T) {
	t.Parallel()
	const yaml = `compositeTools:
- name: flow
  steps:
  - {id: sure, type: elicitation, message: "Sure?", onError: {action: continue}}
  - {id: c, tool: fail, dependsOn: [sure], onError: {action: retry, retryCount: 2, retryDelay: 1ms}}
- name: plain
  steps: [{id: a, type: forEach, collection: "[1,2,3]", step: {tool: back.echo}}]`
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			file, audit := audited(t)
			f := composedWith(t, edgetest.Modern, []string{yaml, codeMode(), audit}, engine())
			c := f.callerOf(t, era, asks)
			if got, rounds := c.converse(t, "flow", "{}", func(asked) string { return `{"action":"accept","content":{}}` }); len(rounds) != 1 || !strings.Contains(got, `step \"c\"`) {
				t.Errorf("%v %s", rounds, got)
			}
			c.script(t, "return plain()", "")
			f.Stop()
			parents := map[string]string{} // record to what it is of
			of := map[string]int{}
			events := map[string]int{}
			runs := map[string]bool{}
			all := lines(t, file)
			for _, line := range all {
				name := strings.Trim(edgetest.Member(line, "target", "name"), `"`)
				parents[edgetest.Member(line, "audit_id")] = name
			}
			for _, line := range all {
				if kind := strings.Trim(edgetest.Member(line, "type"), `"`); strings.HasPrefix(kind, "vmcp_workflow_") {
					run := edgetest.Member(line, "data", "event", "workflow_id")
					runs[run] = true
					events[fmt.Sprintf("%s %s %s %s", strings.TrimPrefix(kind, "vmcp_workflow_"), edgetest.Member(line, "data", "event", "workflow"), edgetest.Member(line, "data", "event", "step"), edgetest.Member(line, "data", "event", "attempt"))]++
				} else if parent := edgetest.Member(line, "parent_id"); parent != "" {
					of[parents[parent]+" > "+strings.Trim(edgetest.Member(line, "target", "name"), `"`)]++
				}
			}
			if fmt.Sprint(of) != "map[execute_tool_script > plain:1 flow > fail:3 plain > echo:3]" {
				t.Errorf("records of calls: %v", of)
			}
			if len(runs) != 2 {
				t.Errorf("runs: %v", runs)
			}
			for event, n := range map[string]int{
				`started "flow"  `: 1, `step_started "flow" "sure" `: 1, `step_completed "flow" "sure" `: 1, `step_started "flow" "c" `: 1, `step_failed "flow" "c" 3`: 1, `failed "flow"  `: 1,
				`started "plain"  `: 1, `step_started "plain" "a" `: 1, `step_completed "plain" "a" 1`: 1, `completed "plain"  `: 1,
			} {
				if events[event] != n {
					t.Errorf("%d of %q: %v", events[event], event, events)
				}
			}
		})
	}
}
