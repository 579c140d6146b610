package serve_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	spanpb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/sandbox"
)

// TestC10Scripts: what a script calls is judged one by one, as the client's own calls are,
// and what a policy hides is neither listed, nor described, nor named in an error (rows C10,
// R09).
func TestC10Scripts(t *testing.T) {
	const rules = `incomingAuth:
  type: anonymous
  authz:
    type: policy
    policies:
    - permit(principal, action == Action::"call_tool", resource == Tool::"execute_tool_script");
    - permit(principal, action == Action::"call_tool", resource == Tool::"echo");
    - permit(principal, action == Action::"call_tool", resource == Tool::"careful") when { context has arg_n && context.arg_n == "1" };
`
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Modern)
			offersTools(back, tool{"echo", "", nil, 0}, tool{"careful", "", []string{"n"}, 0}, tool{"secret", "of the house", nil, 0})
			results(back, echoes)
			file, yaml := audited(t)
			e := edgetest.Start(t, strings.Replace(edgetest.Manifest(back, codeMode(), yaml), "incomingAuth: {type: anonymous}\n", rules, 1), engine())
			f := &front{Edge: e, back: back, client: e.NewClient()}
			c := f.callerOf(t, era, "")
			if d := described(t, c); strings.Contains(d, "secret") || !strings.Contains(d, "- careful(n=…)") {
				t.Error(d)
			}
			out := c.script(t, `
def try_(name, **args):
    r = attempt(lambda: call_tool(name, **args))
    return "ok" if r["ok"] else [r["error"]["message"], r["error"]["code"]]
denied = parallel([lambda n=n: try_(n) for n in ["secret", "secrets", "execute_tool_script"]])
return [try_("echo"), denied, try_("careful", n="1"), try_("careful", n="2"), list_tools(), attempt(lambda: describe_tool("secret"))["error"]["message"]]`, "")
			const no = `denied by authorization policy`
			want := fmt.Sprintf(`["ok",[["tool \"secret\": %[1]s",403],["tool \"secrets\": %[1]s",403],["tool \"execute_tool_script\": a script cannot run another",null]],"ok",["tool \"careful\": %[1]s",403],["echo","careful"],"tool \"secret\": %[1]s"]`, no)
			if string(out.Result) != want {
				t.Errorf("got\n%s\nwant\n%s", out.Raw, want)
			}
			if out := c.script(t, "return secret()", ""); !strings.HasPrefix(out.Error.Message, "undefined: secret") || strings.Contains(out.Error.Message, "careful") {
				t.Error(out.Raw)
			}
			if n := back.Count("tools/call"); n != 2 {
				t.Errorf("the backend got %d calls", n)
			}
			e.Stop()
			outer, inner := families(t, file)
			if len(outer) != 2 || len(inner) != 5 {
				t.Fatalf("%d records of scripts, %d of their calls", len(outer), len(inner))
			}
			denied := 0
			for _, r := range inner {
				if r.ParentID != outer[0].AuditID {
					t.Errorf("%s: parent %s", r.Target["name"], r.ParentID)
				}
				if r.Outcome == "denied" {
					denied++
				}
			}
			if denied != 3 {
				t.Errorf("%d are recorded as denied", denied)
			}
		})
	}
	t.Run("nobody may run scripts", func(t *testing.T) {
		t.Parallel()
		back := edgetest.NewServer(t, edgetest.Modern)
		offersTools(back, tool{"echo", "", nil, 0})
		e := edgetest.Start(t, strings.Replace(edgetest.Manifest(back, codeMode()), "incomingAuth: {type: anonymous}\n", strings.Replace(rules, "execute_tool_script", "other", 1), 1), engine())
		c := (&front{Edge: e}).callerOf(t, edgetest.Modern, "")
		if got := listed(t, c); slices.Contains(got, "execute_tool_script") {
			t.Errorf("listed: %s", got)
		}
		fails(t, c.request(t, "1", "tools/call", scriptParams("return 1", "")), 403, 403, "1")
	})
}

// family is a record with those that it belongs to.
type family struct {
	record
	ParentID string `json:"parent_id"`
}

// families returns the records of scripts and of the calls that they made.
func families(t *testing.T, file string) (outer, inner []family) {
	t.Helper()
	for _, line := range lines(t, file) {
		var r family
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		switch {
		case r.ParentID != "":
			inner = append(inner, r)
		case r.Target["name"] == "execute_tool_script":
			outer = append(outer, r)
		}
	}
	return outer, inner
}

// TestScriptRecords: the record of a script has the digest of its text, and the text where
// requests are recorded; each call of it has a record of its own that names it.
func TestScriptRecords(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		for _, data := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, request data %v", era, data), func(t *testing.T) {
				t.Parallel()
				file, _ := audited(t)
				f := scripted(t, edgetest.Legacy, []string{codeMode(), fmt.Sprintf("audit: {enabled: true, logFile: %q, includeRequestData: %v}", file, data)}, []tool{{"echo", "", nil, 0}}, nil)
				c := f.callerOf(t, era, "")
				const text = `return parallel([lambda: echo(n="1"), lambda: echo(n="2")])`
				if out := c.script(t, text, ""); out.IsError {
					t.Fatal(out.Raw)
				}
				c.script(t, "return echo()", "")
				c.call(t, "9", "{}")
				f.Stop()
				outer, inner := families(t, file)
				if len(outer) != 2 || len(inner) != 3 {
					t.Fatalf("%d and %d records", len(outer), len(inner))
				}
				const digest = "e8f1cc9d3eb73a4fd9b85b3c3d8a0f4b8e65ee0e8a9c2cd0f5e1d0c6b2cf2a34"
				if got := outer[0].extra("script_sha256"); got != sha256Of(text) || len(got) != len(digest) {
					t.Errorf("digest %q", got)
				}
				if got := strings.Contains(string(outer[0].Data["request"]), "parallel("); got != data {
					t.Errorf("the text is there: %v: %s", got, outer[0].Data["request"])
				}
				of := map[string]int{}
				for _, r := range inner {
					of[r.ParentID]++
					if r.extra("script_sha256") != "" || r.extra("inner") != "true" {
						t.Errorf("%+v", r)
					}
				}
				if of[outer[0].AuditID] != 2 || of[outer[1].AuditID] != 1 {
					t.Errorf("parents: %v", of)
				}
			})
		}
	}
}

// TestR09Scripts: each call of a script takes a token, also those at the same time, and a
// script that is denied one is told when to try again; the tool itself has the limits of its
// own name alone (row R09).
func TestR09Scripts(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			f := scripted(t, edgetest.Modern, []string{codeMode(), fmt.Sprintf("rateLimiting: {shared: %s, tools: [{name: other, shared: %s}, {name: execute_tool_script, shared: %s}]}", bucket(7), bucket(2), bucket(3))},
				[]tool{{"echo", "", nil, 0}, {"other", "", nil, 0}}, nil, local)
			c := f.callerOf(t, era, "")
			out := c.script(t, `
rs = parallel([lambda: attempt(lambda: other()) for _ in range(5)])
bad = [r["error"] for r in rs if not r["ok"]]
return [len([r for r in rs if r["ok"]]), [b["code"] for b in bad], bad[0]["message"], bad[0]["data"]["retryAfterSeconds"] > 0]`, "")
			if got := string(out.Result); !strings.HasPrefix(got, `[2,[429,429,429],"tool \"other\": rate limit exceeded, retry after `) || !strings.HasSuffix(got, `s",true]`) {
				t.Error(out.Raw)
			}
			out = c.script(t, `return len([r for r in parallel([lambda: attempt(lambda: echo()) for _ in range(10)]) if r["ok"]])`, "")
			if string(out.Result) != "5" {
				t.Error(out.Raw)
			}
			if n := f.back.Count("tools/call"); n != 7 {
				t.Errorf("%d calls", n)
			}
			c.script(t, "return 1", "")
			limited(t, c.request(t, "1", "tools/call", scriptParams("return 1", "")), "1")
		})
	}
}

// TestScriptSpans: a call that a script makes is a span inside that of the script, and the
// backend gets it.
func TestScriptSpans(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			to := newCollector(t, "http")
			f := scripted(t, edgetest.Modern, []string{codeMode(), traced(to)}, []tool{{"echo", "", nil, 0}}, nil)
			c := f.callerOf(t, era, "")
			c.Header = http.Header{"Traceparent": {"00-" + headTrace + "-" + itsSpan + "-01"}}
			if out := c.script(t, "return parallel([lambda: echo(), lambda: echo()])", ""); out.IsError {
				t.Fatal(out.Raw)
			}
			f.Stop()
			to.Lock()
			defer to.Unlock()
			var script *spanpb.Span
			by := map[string][]*spanpb.Span{}
			for _, s := range to.Spans {
				if hex.EncodeToString(s.TraceId) != headTrace {
					continue
				}
				if s.Name == "tools/call execute_tool_script" {
					script = s
				}
				by[string(s.ParentSpanId)] = append(by[string(s.ParentSpanId)], s)
			}
			if script == nil || hex.EncodeToString(script.ParentSpanId) != itsSpan || len(by[string(script.SpanId)]) != 2 {
				t.Fatalf("%d spans; %v", len(to.Spans), script)
			}
			for i, s := range by[string(script.SpanId)] {
				below := by[string(s.SpanId)]
				if s.Name != "tools/call echo" || len(below) != 1 || below[0].Kind != spanpb.Span_SPAN_KIND_CLIENT {
					t.Fatalf("%s, below it %v", s.Name, below)
				}
				got := []string{f.back.Requests("tools/call")[0].Header.Get("Traceparent"), f.back.Requests("tools/call")[1].Header.Get("Traceparent")}
				if !slices.Contains(got, "00-"+headTrace+"-"+hex.EncodeToString(below[0].SpanId)+"-01") {
					t.Errorf("call %d: the backend got %s", i, got)
				}
			}
		})
	}
}

// TestX07: a call of a script that takes too long is cancelled at the backend, and the
// script can go on (rows X06 and X07).
func TestX07(t *testing.T) {
	eachCell(t, []string{codeMode("toolCallTimeout: 1s", "parallelMaxConcurrency: 2")}, []tool{{"slow", "", nil, 0}, {"quick", "", nil, 0}}, nil, func(t *testing.T, f *front, c caller) {
		gone := make(chan struct{}, 1)
		f.back.Once("tools/call", func(c *edgetest.Call) {
			<-c.Gone()
			gone <- struct{}{}
		})
		out := c.script(t, `r = attempt(lambda: slow())
return [r["error"]["message"], r["error"]["code"], quick(n="1")]`, "")
		if string(out.Result) != `["tool \"slow\": timed out after 1s",504,{"n":"1"}]` {
			t.Error(out.Raw)
		}
		if f.back.Era == edgetest.Modern {
			await(t, "the end of the call", gone)
		} else {
			f.back.Await("notifications/cancelled", 1)
		}
		f.back.Forget()
		under, most := make(chan int, 1), 0
		under <- 0
		f.back.Always("tools/call", func(c *edgetest.Call) {
			n := <-under + 1
			most = max(most, n)
			under <- n
			defer func() { under <- <-under - 1 }()
			complete := ""
			if f.back.Era == edgetest.Modern {
				complete = `"resultType":"complete",`
			}
			c.Result(`{` + complete + `"content":[{"type":"text","text":"1"}]}`)
		})
		out = c.script(t, "return len(parallel([lambda: quick() for _ in range(50)]))", "")
		if string(out.Result) != "50" || most > 2 || most == 0 {
			t.Errorf("%d at once: %s", most, out.Raw)
		}
		out = c.script(t, "return len(parallel([lambda: quick() for _ in range(1000)])) + quick()", "")
		if out.Error.Message != "more than 1000 tool calls" {
			t.Error(out.Raw)
		}
	})
}

// TestScriptQuestions: what a backend asks in a call of a script reaches nobody, and the
// call says so, whatever client could be asked.
func TestScriptQuestions(t *testing.T) {
	const question = `{"message":"sure?","requestedSchema":{"type":"object","properties":{}}}`
	const can = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		for _, back := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(client.String()+" client, "+back.String()+" backend", func(t *testing.T) {
				t.Parallel()
				f := scripted(t, back, []string{codeMode()}, []tool{{"ask", "", nil, 0}, {"page", "", nil, 0}}, nil)
				f.back.Always("tools/call", func(c *edgetest.Call) {
					page := strings.Contains(string(c.Message.Params), `"page"`)
					switch {
					case back == edgetest.Modern:
						c.Result(`{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":` + question + `}},"requestState":"s"}`)
					case page:
						c.JSON(200, `{"jsonrpc":"2.0","id":`+c.ID()+`,"error":{"code":-32042,"message":"open it","data":{"elicitations":[{"mode":"url","elicitationId":"e1","url":"https://example.com/","message":"open"}]}}}`)
					default:
						c.Ask("9", "elicitation/create", question)
						c.Result(`{"content":[{"type":"text","text":"all the same"}]}`)
					}
				})
				c := f.callerOf(t, client, can)
				var meta []string
				if client == edgetest.Modern {
					meta = []string{edgetest.Capabilities(can)}
				}
				for _, name := range []string{"ask", "page"} {
					out := c.script(t, fmt.Sprintf(`return %s()`, name), "", meta...)
					if want := fmt.Sprintf("tool %q asks the user, which a script cannot: call it directly", name); out.Error.Message != want {
						t.Errorf("%s: %s", name, out.Raw)
					}
				}
			})
		}
	}
}

// TestScriptCallsThatComeAgain: a backend that asks nothing and wants the call again, later, gets it
// with its state, within the time of the call.
func TestScriptCallsThatComeAgain(t *testing.T) {
	for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(client.String()+" client", func(t *testing.T) {
			t.Parallel()
			f := scripted(t, edgetest.Modern, []string{codeMode("toolCallTimeout: 1s")}, []tool{{"later", "", nil, 0}, {"never", "", nil, 0}}, nil)
			f.back.Always("tools/call", func(c *edgetest.Call) {
				state, never := edgetest.Member(string(c.Message.Params), "requestState"), strings.Contains(string(c.Message.Params), `"never"`)
				switch {
				case never || state == "":
					c.Result(`{"resultType":"input_required","requestState":"1"}`)
				case state == `"1"`:
					c.Result(`{"resultType":"input_required","inputRequests":{},"requestState":"2"}`)
				default:
					c.Result(`{"resultType":"complete","content":[],"structuredContent":{"state":` + state + `}}`)
				}
			})
			c := f.callerOf(t, client, "")
			out := c.script(t, `return [later(), attempt(never)["error"]["message"]]`, "")
			if want := `[{"state":"2"},"tool \"never\": timed out after 1s"]`; string(out.Result) != want {
				t.Error(out.Raw)
			}
		})
	}
}

// TestScriptProgress: a script says how far it is, and a client that wants to hears of it:
// rising, and at most ten times a second; where it asks for a trace it hears of each call.
func TestScriptProgress(t *testing.T) {
	eachCell(t, []string{codeMode()}, []tool{{"echo", "", nil, 0}, {"other", "", nil, 0}}, nil, func(t *testing.T, f *front, c caller) {
		f.back.Always("tools/call", func(c *edgetest.Call) {
			if c.Token() != "" {
				t.Error("the backend was given a token")
			}
			complete := ""
			if f.back.Era == edgetest.Modern {
				complete = `"resultType":"complete",`
			}
			c.Result(`{` + complete + `"content":[{"type":"text","text":"no","x":1}],"isError":` + strconv.FormatBool(strings.Contains(string(c.Message.Params), "other")) + `}`)
		})
		const text = `
for i in range(200):
    progress(i, 200, "step %d" % i)
progress(3)
attempt(lambda: other())
echo()
attempt(lambda: call_tool("nothing"))
progress(200, 200, "done")
return "end"`
		began := time.Now()
		r := c.request(t, "5", "tools/call", scriptParams(text, ""), `"progressToken":"tok"`)
		before, answer := messages(r)
		took := time.Since(began)
		if edgetest.Member(answer, "result", "structuredContent", "result") != `"end"` {
			t.Fatal(answer)
		}
		if most := 2 + int(took/(100*time.Millisecond)); len(before) == 0 || len(before) > most {
			t.Errorf("%d notifications in %s", len(before), took)
		}
		last := rising(t, before)
		if p := edgetest.Member(last, "params"); edgetest.Member(p, "progress") != "200" || edgetest.Member(p, "total") != "200" || edgetest.Member(p, "message") != `"done"` || edgetest.Member(p, "progressToken") != `"tok"` {
			t.Errorf("the last one: %s", last)
		}
		r = c.request(t, "6", "tools/call", scriptParams(text, ""), `"progressToken":7`, `"weir.dev/trace":true`)
		before, _ = messages(r)
		rising(t, before)
		var seen []string
		for _, m := range before {
			if trace := edgetest.Member(m, "params", "_meta", "weir.dev/trace"); trace != "" {
				seen = append(seen, edgetest.Member(trace, "id")+" "+edgetest.Member(trace, "tool")+" "+edgetest.Member(trace, "outcome"))
				if edgetest.Member(trace, "ms") == "" || edgetest.Member(trace, "parent") != "0" {
					t.Error(trace)
				}
			}
		}
		if got := strings.Join(seen, ", "); got != `1 "other" "error", 2 "echo" "ok", 3 "nothing" "error"` {
			t.Errorf("trace: %s", got)
		}
		if r := c.request(t, "7", "tools/call", scriptParams(text, ""), `"weir.dev/trace":true`); r.Stream() {
			t.Error("a stream for a client without a token")
		}
	})
}

// rising holds notifications of progress to rise, and returns the last.
func rising(t *testing.T, all []string) (last string) {
	t.Helper()
	was := -1.0
	for _, m := range all {
		if edgetest.Member(m, "method") != `"notifications/progress"` {
			continue
		}
		n, err := strconv.ParseFloat(edgetest.Member(m, "params", "progress"), 64)
		if err != nil || n <= was {
			t.Errorf("%s after %v", m, was)
		}
		was, last = n, m
	}
	return last
}

// TestX27: numbers go through a script and back as they are, digit by digit, or the script is
// told why not (rows X09, X27 and X28).
func TestX27(t *testing.T) {
	long := strings.Repeat("9", 400)
	deep := strings.Repeat("[", 101) + strings.Repeat("]", 101)
	tools := []tool{{"echo", "", []string{"a"}, 0}}
	by := map[string]string{"*": echoes["*"]}
	for name, text := range map[string]string{
		"lone": `{"a":"\ud800"}`, "twice": `{"a":1,"a":2}`, "deep": deep, "nan": "NaN", "text": "[1", "huge": "1e400", "digits": long, "bare": "12345678901234567890",
	} {
		tools = append(tools, tool{name, "", nil, 0})
		quoted, _ := json.Marshal(text)
		by[name] = `{"content":[{"type":"text","text":` + string(quoted) + `}]}`
	}
	tools = append(tools, tool{"large", "", nil, 0})
	by["large"] = `{"content":[{"type":"text","text":"` + strings.Repeat("x", 5<<20) + `"}]}`
	eachCell(t, []string{codeMode()}, tools, by, func(t *testing.T, f *front, c caller) {
		for data, want := range map[string]string{
			`{"v":9007199254740993}`: "9007199254740993", `{"v":1152921504606846976}`: "1152921504606846976", `{"v":` + long + `}`: long, `{"v":-0.1}`: "-0.1", `{"v":1e2}`: "100",
		} {
			out := c.script(t, `return [v, echo(v)["a"]]`, data)
			if string(out.Result) != "["+want+","+want+"]" {
				t.Errorf("%.60s: %.300s", data, out.Raw)
			}
		}
		for text, want := range map[string]string{
			`return lone()`:                          `{"a":"` + "\ufffd" + `"}`,
			`return twice()`:                         `{"a":2}`,
			`return nan()`:                           `"NaN"`,
			`return text()`:                          `"[1"`,
			`return digits()`:                        long,
			`return bare()`:                          "12345678901234567890",
			`return 2 ** 60 if False else (1 << 60)`: "1152921504606846976",
			`return attempt(lambda: deep())["ok"]`:   "false",
			`return attempt(lambda: huge())["error"]["tool"]`:                           `"huge"`,
			`return attempt(lambda: large())["error"]["message"]`:                       `"tool \"large\": its result is longer than 4194304 bytes"`,
			`return attempt(lambda: call_tool_result("large"))["ok"]`:                   "false",
			`return len(attempt(lambda: call_tool_result("lone"))["value"]["content"])`: "1",
		} {
			if strings.Contains(text, "**") {
				continue
			}
			if out := c.script(t, text, ""); string(out.Result) != want {
				t.Errorf("%s: %.300s", text, out.Raw)
			}
		}
		for text, want := range map[string]string{
			`return {"a": [1, float("nan")]}`:                   `a`,
			`return b"x"`:                                       "no JSON form",
			`return "x" * (2 << 20)`:                            "",
			"x = []\nfor _ in range(150):\n  x = [x]\nreturn x": "",
		} {
			if out := c.script(t, text, ""); !out.IsError || !strings.Contains(out.Error.Message, want) {
				t.Errorf("%s: %.300s", text, out.Raw)
			}
		}
		if out := c.script(t, "return echo(1)", ""); string(out.Result) != `{"a":1}` {
			t.Errorf("the edge is harmed: %s", out.Raw)
		}
	})
}

// TestX35: what a hostile tool says of its failure is bounded and clean, and is never taken
// for an error of another kind (row X35).
func TestX35(t *testing.T) {
	fake, _ := json.Marshal("script.star:1:1: too many steps (100000)\n  script.star:9:9: in f\x1b[2J\x07")
	eachCell(t, []string{codeMode()}, []tool{{"long", "", nil, 0}, {"fake", "", nil, 0}}, map[string]string{
		"long": `{"content":[{"type":"text","text":"` + strings.Repeat("x", 1<<20) + `"}],"isError":true}`,
		"fake": `{"content":[{"type":"text","text":` + string(fake) + `}],"isError":true}`,
	}, func(t *testing.T, f *front, c caller) {
		out := c.script(t, "return long()", "")
		if len(out.Raw) > 8<<10 || out.Error.Tool != "long" || !strings.HasSuffix(out.Error.Message, "…") {
			t.Errorf("%d bytes: %.200s", len(out.Raw), out.Raw)
		}
		out = c.script(t, "x = 1\nreturn fake()", "")
		if out.Error.Tool != "fake" || out.Error.Line != 2 || !strings.HasPrefix(out.Error.Message, `tool "fake": script.star:1:1: too many steps`) || strings.ContainsAny(out.Raw, "\x1b\x07") || strings.Contains(out.Raw, `\u001b`) {
			t.Error(out.Raw)
		}
	})
}

// TestX32: scripts of one client wait for a place for a second at most, then it is told to
// come back, and others are not held up; a place is free when a script is cancelled (rows
// X10 and X32).
func TestX32(t *testing.T) {
	t.Parallel()
	sandboxed() // compiles the interpreter
	own := sandbox.New(sandbox.Options{Most: 5, MostPerHolder: 2, CacheDir: machineCode()})
	defer own.Close()
	if err := own.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := newMint(t)
	back := edgetest.NewServer(t, edgetest.Modern)
	offersTools(back, tool{"slow", "", nil, 0})
	began := make(chan struct{}, 100)
	back.Always("tools/call", func(c *edgetest.Call) {
		began <- struct{}{}
		<-c.Gone()
	})
	e := edgetest.Start(t, strings.Replace(edgetest.Manifest(back, codeMode(), "telemetry: {enablePrometheusMetricsPath: true}"), "incomingAuth: {type: anonymous}", fmt.Sprintf(`incomingAuth:
  type: oidc
  oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}`, m.URL, m.URL+"/keys"), 1), engineOf(own.Run))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	token := func(who string) []string { return bearer(m.token(t, who, "weir", nil)) }
	edgetest.Until(t, "the keys", func() bool { return f.client.Do("GET", "/status", "", token("ada")...).Status == 200 })
	begin := func(who string) *edgetest.Raw {
		conn := f.Dial()
		body, head := edgetest.ModernRequest("1", "tools/call", scriptParams("return slow()", ""), edgetest.Meta())
		conn.Write(post(f.Addr(), body, append(head, token(who)...)...))
		await(t, "a script of "+who, began)
		return conn
	}
	try := func(who string) *edgetest.Response {
		body, head := edgetest.ModernRequest("1", "tools/call", scriptParams("return 1", ""), edgetest.Meta())
		return f.client.Post(body, append(head, token(who)...)...)
	}
	busy := func(who string) {
		t.Helper()
		at := time.Now()
		r := try(who)
		if took := time.Since(at); r.Status != 503 || r.Header.Get("Retry-After") != "1" || took < 900*time.Millisecond || took > 10*time.Second {
			t.Errorf("status %d after %s: %s", r.Status, took, r.Body)
		}
	}
	first := begin("ada")
	begin("ada")
	busy("ada")
	if r := try("bob"); r.Status != 200 {
		t.Errorf("another is held up: %d %s", r.Status, r.Body)
	}
	at := time.Now()
	first.Close()
	edgetest.Until(t, "a free place", func() bool { return try("ada").Status == 200 })
	if took := time.Since(at); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
	begin("ada")
	begin("bob")
	begin("bob")
	begin("cyd")
	busy("dan")
	text := string(f.client.Do("GET", "/metrics", "").Body)
	if figure(t, text, "weir_script_refused_total", `reason="busy"`) < 2 || figure(t, text, "weir_script_running") != 5 {
		t.Errorf("metrics:\n%s", text)
	}
}

// TestX32Trace: a client that asks for a trace and does not read it holds its script's place no
// longer than the script takes.
func TestX32Trace(t *testing.T) {
	t.Parallel()
	sandboxed() // compiles the interpreter
	own := sandbox.New(sandbox.Options{Most: 1, CacheDir: machineCode()})
	defer own.Close()
	if err := own.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := scripted(t, edgetest.Modern, []string{codeMode()}, []tool{{"echo", "", nil, 0}}, nil, engineOf(own.Run))
	c := f.callerOf(t, edgetest.Modern, "")
	silent, err := net.Dial("tcp", f.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := silent.(*net.TCPConn).SetReadBuffer(2 << 10); err != nil {
		t.Fatal(err)
	}
	text := `echo()
for _ in range(999):
    attempt(lambda: call_tool("z" * 200))`
	body, head := c.message("1", "tools/call", scriptParams(text, ""), `"progressToken":"`+strings.Repeat("p", 900)+`"`, `"weir.dev/trace":true`)
	fmt.Fprint(silent, post(f.Addr(), body, head...))
	f.back.Await("tools/call", 1)
	at := time.Now()
	edgetest.Until(t, "a free place", func() bool { return c.request(t, "2", "tools/call", scriptParams("return 1", "")).Status == 200 })
	if took := time.Since(at); took > 10*time.Second { // what stops at the client stops for 30 s
		t.Errorf("it took %s", took)
	}
}

// TestScriptsThatWait: a script counts as one that runs once it has a place, and until it ends.
func TestScriptsThatWait(t *testing.T) {
	for _, placed := range []bool{false, true} {
		t.Run(fmt.Sprintf("has a place: %v", placed), func(t *testing.T) {
			t.Parallel()
			var f *front
			running := func() float64 {
				return figure(t, string(f.NewClient().Do("GET", "/metrics", "").Body), "weir_script_running")
			}
			seen := -1.0 // once, since metrics hold for a second
			f = scripted(t, edgetest.Modern, []string{codeMode(), "telemetry: {enablePrometheusMetricsPath: true}"}, []tool{{"echo", "", nil, 0}}, nil, engineOf(func(ctx context.Context, holder string, r *scripting.Run) (*scripting.Outcome, error) {
				if placed {
					r.Began()
				}
				seen = running()
				return &scripting.Outcome{Value: []byte("1")}, nil
			}))
			out := f.callerOf(t, edgetest.Modern, "").script(t, "return 1", "")
			if out.IsError || (seen == 1) != placed {
				t.Errorf("%v run: %s", seen, out.Raw)
			}
			edgetest.Until(t, "the end of the script", func() bool { return running() == 0 })
		})
	}
}

// TestScriptSettings: an edge without further ado runs scripts in a sandbox of its own, under
// the settings of the process.
func TestScriptSettings(t *testing.T) {
	t.Parallel()
	sandboxed() // compiles the interpreter
	back := edgetest.NewServer(t, edgetest.Modern)
	offersTools(back, tool{"slow", "", nil, 0})
	back.Always("tools/call", func(c *edgetest.Call) { <-c.Gone() })
	e := edgetest.Start(t, edgetest.Manifest(back, codeMode("stepLimit: 1000000000")), edgetest.Settings(func(s *serve.Settings) {
		s.ScriptCPU, s.ScriptTimeout, s.ScriptMemory, s.FilterCache = 200*time.Millisecond, 3*time.Second, 20<<20, machineCode()
	}))
	c := (&front{Edge: e}).callerOf(t, edgetest.Modern, "")
	edgetest.Until(t, "the interpreter", func() bool {
		r := c.request(t, "1", "tools/call", scriptParams("return 1", ""))
		return r.Status == 200
	})
	for text, want := range map[string]string{
		"while True: pass":                  "ran longer than 200ms of CPU",
		"x = 'x'\nwhile True:\n  x = x + x": "needs more than 20 MiB",
	} {
		if out := c.script(t, text, ""); !out.IsError || out.Error.Message != want {
			t.Errorf("%s: %s", text, out.Raw)
		}
	}
	// What the end of the run ends is no time-out of the tool's.
	before, answer := messages(c.request(t, "1", "tools/call", scriptParams("return slow()", ""), `"progressToken":"p"`, `"weir.dev/trace":true`))
	if len(before) != 1 || edgetest.Member(before[0], "params", "_meta", "weir.dev/trace", "outcome") != `"cancelled"` || edgetest.Member(answer, "result", "structuredContent", "error", "message") != `"ran longer than 3s"` {
		t.Errorf("%q, then %s", before, answer)
	}
	if out := c.script(t, "return 1", ""); string(out.Result) != "1" {
		t.Error(out.Raw)
	}
}

// TestScriptBeforeItsBackend: a name that may be that of a tool which nobody knows yet is
// told so, and once its backend answers the script runs.
func TestScriptBeforeItsBackend(t *testing.T) {
	t.Parallel()
	back, down := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Modern)
	offersTools(back, tool{"echo", "", nil, 0})
	address := down.Addr()
	down.Close()
	e := edgetest.Start(t, group(map[string]*edgetest.Server{"up": back, "away": down}, bestEffort, codeMode()), engine())
	c := (&front{Edge: e}).callerOf(t, edgetest.Modern, "")
	if out := c.script(t, "return away_echo()", ""); out.Error.Message != "undefined: away_echo; what the backends away have is not known: they do not answer" {
		t.Error(out.Raw)
	}
	if out := c.script(t, `return call_tool("away_echo")`, ""); out.Error.Message != `tool "away_echo": backend "away" unavailable` {
		t.Error(out.Raw)
	}
	again := edgetest.NewServer(t, edgetest.Modern, func(s *edgetest.Server) { s.Address = address })
	results(again, echoes)
	edgetest.Until(t, "the backend", func() bool { return !c.script(t, "return away_echo()", "").IsError })
}
