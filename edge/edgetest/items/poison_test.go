package items_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// withheld checks that the status tells of something that clients do not see.
func withheld(t *testing.T, f *stage, text string) {
	t.Helper()
	all := strings.Join(f.status(t).Withheld, "\n")
	if !strings.Contains(all, text) {
		t.Errorf("the status does not tell of %s:\n%s", text, all)
	}
}

// A backend that takes another's tool names gets none of its calls, by no
// strategy: what two have is whose the rules say it is, or nobody's, and the
// status says so.
func TestP05(t *testing.T) {
	for _, one := range []struct{ name, rules, tools, reported string }{
		{"prefix", "aggregation: {conflictResolution: prefix}", "a_b_d a_own a_send bad_own bad_send", "same-name: tool a.b_c"},
		{"priority", "aggregation: {conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [a]}}", "b_c b_d c own send", "lost: tool bad.send"},
		{"priority without an order", "aggregation: {conflictResolution: priority}", "a_own a_send b_c b_d bad_own bad_send c", ""},
		{"manual", "aggregation: {conflictResolution: manual}", "b_c b_d c", "conflict: tool bad.send"},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			backs := servers{
				"a":   edgetest.NewServer(t, edgetest.Legacy, has("send", "own", "b_c", "b_d")),
				"a_b": edgetest.NewServer(t, edgetest.Legacy, has("c")),
				"bad": edgetest.NewServer(t, edgetest.Modern, has("send", "own")),
			}
			for name, s := range backs {
				s.Always("tools/call", answer(s, `"content":[],"of":"`+name+`"`))
			}
			f := open(t, backs, one.rules)
			for _, era := range eras {
				c := f.as(era, "")
				if got := c.tools(t); got != one.tools {
					t.Errorf("%s: tools %s, want %s", era, got, one.tools)
				}
				for _, shown := range strings.Fields(one.tools) {
					want := `"a"`
					switch {
					case strings.HasPrefix(shown, "bad_"):
						want = `"bad"`
					case shown == "c":
						want = `"a_b"`
					}
					if of := edgetest.Member(c.CallTool("1", shown, "{}").Result(), "of"); of != want {
						t.Errorf("%s: %s was run by %s, want %s", era, shown, of, want)
					}
				}
				for _, hidden := range []string{"a_b_c", "send", "bad.send"} {
					if !strings.Contains(" "+one.tools+" ", " "+hidden+" ") {
						unknownTool(t, c, c.CallTool("2", hidden, "{}"))
					}
				}
			}
			if one.reported != "" {
				withheld(t, f, one.reported)
			}
		})
	}
}

// Names that are none are withheld or written with other characters, the names
// of the edge's own tools are nobody else's, and what is listed can be called.
func TestP06(t *testing.T) {
	for _, rules := range []string{"aggregation: {conflictResolution: prefix}", "aggregation: {conflictResolution: manual}"} {
		t.Run(rules, func(t *testing.T) {
			t.Parallel()
			long := strings.Repeat("x", 1024)
			bad := edgetest.NewServer(t, edgetest.Legacy)
			offers(bad, "tools", tool("../x"), tool("a b"), tool(long), tool(""), tool("execute_tool_script"), tool("find_tool"), tool("call_tool"),
				`{"name":"nul\u0000","inputSchema":{"type":"object"}}`, `{"name":"\u202eevil","inputSchema":{"type":"object"}}`,
				`{"name":5,"inputSchema":{"type":"object"}}`, `{"inputSchema":{"type":"object"}}`, `"text"`, `{"name":"a\"}],\"x\":[{","inputSchema":{"type":"object"}}`, tool("fine"), tool("fine"))
			good := edgetest.NewServer(t, edgetest.Modern, has("good"))
			f := open(t, servers{"bad": bad, "good": good}, rules)
			for _, era := range eras {
				c := f.as(era, "")
				seen := map[string]bool{}
				for _, name := range c.list(t, "tools", "name") {
					if name == "" || len(name) > 128 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" || seen[name] {
						t.Errorf("%s: a tool with the name %q", era, name)
					}
					seen[name] = true
					if name == "execute_tool_script" || name == "find_tool" || name == "call_tool" {
						t.Errorf("%s: a backend has the tool %s", era, name)
					}
					if r := c.CallTool("1", name, "{}"); r.Message().Error != nil {
						t.Errorf("%s: %s cannot be called: %s", era, name, r.Answer())
					}
				}
				if len(seen) < 3 {
					t.Errorf("%s: the list is %v", era, seen)
				}
				for _, name := range []string{"execute_tool_script", "../x", "a b", long, ""} {
					if name == "" && era == edgetest.Modern {
						continue // the header that names it would be empty, which is an error of its own
					}
					unknownTool(t, c, c.CallTool("2", name, "{}"))
				}
			}
			withheld(t, f, "bad")
		})
	}
}

// A list without measure is cut by none: it counts as missing, and costs the
// others, the clients and the memory of the edge little.
func TestP07(t *testing.T) {
	t.Parallel()
	many := make([]string, 10000)
	for i := range many {
		many[i] = tool(fmt.Sprintf("tool%05d", i))
	}
	endless := edgetest.NewServer(t, edgetest.Legacy)
	var page atomic.Int64
	endless.Always("tools/list", func(c *edgetest.Call) {
		n := page.Add(1)
		c.Result(fmt.Sprintf(`{"tools":[%s],"nextCursor":"%d"}`, tool(fmt.Sprintf("t%d", n)), n))
	})
	huge := edgetest.NewServer(t, edgetest.Modern)
	offers(huge, "tools", tool("small"), `{"name":"huge","inputSchema":{"type":"object","description":"`+strings.Repeat("x", 10<<20)+`"}}`)
	flood := edgetest.NewServer(t, edgetest.Legacy)
	offers(flood, "tools", tool("x", `"description":"`+strings.Repeat("y", 900<<10)+`"`))
	flood.Always("tools/list", func(c *edgetest.Call) {
		n := page.Add(1)
		c.Result(fmt.Sprintf(`{"tools":[%s],"nextCursor":"%d"}`, tool(fmt.Sprintf("f%d", n), `"description":"`+strings.Repeat("y", 900<<10)+`"`), n))
	})
	crowd := edgetest.NewServer(t, edgetest.Legacy)
	offers(crowd, "tools", many...)
	fine := edgetest.NewServer(t, edgetest.Legacy)
	began := time.Now()
	f := open(t, servers{"crowd": crowd, "endless": endless, "fine": fine, "flood": flood, "huge": huge})
	for _, era := range eras {
		c := f.as(era, "")
		count := map[string]int{}
		edgetest.Until(t, "the list of ten thousand", func() bool {
			clear(count)
			for _, name := range c.list(t, "tools", "name") {
				back, _, _ := strings.Cut(name, "_")
				count[back]++
			}
			return count["crowd"] > 0
		})
		if count["crowd"] != 10000 || count["fine"] != 1 || count["endless"] != 0 || count["flood"] != 0 || count["huge"] > 1 {
			t.Errorf("%s: tools by backend: %v", era, count)
		}
		c.CallTool("1", "crowd_tool09999", "{}").Result()
		c.CallTool("2", "fine_echo", "{}").Result()
		unknownTool(t, c, c.CallTool("3", "huge_huge", "{}"))
	}
	// 1,000 pages or 16 MiB are the most of a walk. A walk that failed begins again
	// after 250 ms, then twice that, and so on: a slow machine sees more of them.
	edgetest.Until(t, "the end of the walk", func() bool {
		for _, b := range f.status(t).DiscoveredBackends {
			if (b.Name == "endless" || b.Name == "flood") && b.Message == "" {
				return false
			}
		}
		return true
	})
	ends, floods, walks := endless.Count("tools/list"), flood.Count("tools/list"), 1
	for wait, left := 250*time.Millisecond, time.Since(began); left >= wait; wait *= 2 {
		walks, left = walks+1, left-wait
	}
	if ends > walks*1000 {
		t.Errorf("%d pages of a list without end in %d walks", ends, walks)
	}
	if floods > walks*19 {
		t.Errorf("%d pages of 900 KiB in %d walks", floods, walks)
	}
}

// Of five backends one that is down, slow, or breaks off is left out of the
// lists in best_effort mode, and in fail mode named by an error, in time either
// way, while calls of the four go on.
func TestP12(t *testing.T) {
	const most = 15 * time.Second
	for kind, script := range map[string]edgetest.Script{
		"down":        nil,
		"slow":        func(c *edgetest.Call) { c.Wait(make(chan struct{})) },
		"panicking":   (*edgetest.Call).Abort,
		"half":        func(c *edgetest.Call) { c.Raw("event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":"); c.Abort() },
		"unavailable": func(c *edgetest.Call) { c.Text(503, "text/plain", "try again") },
		"refusing":    func(c *edgetest.Call) { c.Error(200, -32603, "no list today") }, // and well otherwise
	} {
		for _, mode := range []string{"fail", "best_effort"} {
			t.Run(kind+", "+mode, func(t *testing.T) {
				t.Parallel()
				backs := servers{}
				for i, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE, edgetest.Legacy, edgetest.Legacy} {
					backs[fmt.Sprintf("b%d", i)] = edgetest.NewServer(t, era)
				}
				if script == nil {
					backs["b4"].Close()
				} else {
					backs["b4"].Always("tools/list", script)
				}
				f := open(t, backs, "operational: {timeouts: {default: 2s}, failureHandling: {partialFailureMode: "+mode+"}}")
				for _, era := range eras {
					c := f.as(era, "")
					began := time.Now()
					r := c.Ask("1", "tools/list", "")
					if took := time.Since(began); took > most {
						t.Errorf("%s: the list took %s", era, took)
					}
					if mode == "fail" {
						m := fails(t, r, map[edgetest.Era]int{edgetest.Legacy: 200, edgetest.Modern: 502}[era], 502)
						if m.Error != nil && edgetest.Member(string(m.Error.Data), "missing") != `["b4"]` {
							t.Errorf("%s: %s", era, m.Error.Data)
						}
					} else if got := c.tools(t); got != "b0_echo b1_echo b2_echo b3_echo" {
						t.Errorf("%s: tools %s", era, got)
					}
					for i := range 4 {
						c.CallTool("2", fmt.Sprintf("b%d_echo", i), "{}").Result()
					}
				}
				edgetest.Until(t, "the phase", func() bool { return f.status(t).Phase == "Degraded" })
				if kind == "refusing" {
					backs["b4"].Always("tools/list", nil)
					edgetest.Until(t, "the phase when the list is there", func() bool { return f.status(t).Phase == "Ready" })
				}
			})
		}
	}
}

// A backend that comes and goes is not stormed: the breaker opens at its
// threshold, lets one exchange through at a time to see whether the backend is
// back, and clients hear of it seldom.
func TestP13(t *testing.T) {
	t.Parallel()
	flaps, fine := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Legacy)
	f := open(t, servers{"fine": fine, "flaps": flaps},
		"operational: {timeouts: {default: 5s}, failureHandling: {partialFailureMode: best_effort, healthCheckInterval: 1s, healthCheckTimeout: 500ms, circuitBreaker: {enabled: true, failureThreshold: 3, timeout: 1s}}}")
	c := f.as(edgetest.Modern, "")
	c.tools(t)
	stream := c.Ask(`"s"`, "subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
	stream.NextMessage()
	var told atomic.Int64
	var hearing sync.WaitGroup
	hearing.Go(func() { // ends with the stream
		for {
			if _, err := stream.TryNext(); err != nil {
				return
			}
			told.Add(1)
		}
	})
	circuit := func() string { _, circuit := f.status(t).of("flaps"); return circuit }
	began := time.Now()
	const rounds = 3
	for range rounds {
		// 1. It is away: calls fail, until they are refused at once.
		var under, most, got atomic.Int64
		flaps.Always("*", func(c *edgetest.Call) {
			got.Add(1)
			if n := under.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer under.Add(-1)
			c.Abort()
		})
		edgetest.Until(t, "the open breaker", func() bool {
			if r := c.CallTool("1", "flaps_echo", "{}"); r.Status != 502 && r.Status != 400 {
				t.Errorf("status %d: %s", r.Status, r.Body)
			}
			return circuit() == "open"
		})
		// 2. Many ask while it is open: none, or one on trial, gets through.
		before := got.Load()
		most.Store(0)
		var crowd sync.WaitGroup
		for range 50 {
			crowd.Go(func() {
				r, err := c.TryAsk("2", "tools/call", edgetest.CallParams("flaps_echo", "{}"))
				if err != nil || r.Status == 200 {
					t.Errorf("a call of a backend that is away: %v, %+v", err, r)
				}
			})
		}
		crowd.Wait()
		if n := got.Load() - before; n > 4 || most.Load() > 1 {
			t.Errorf("%d of 50 exchanges reached a backend whose breaker is open, %d of them at once", n, most.Load())
		}
		c.CallTool("3", "fine_echo", "{}").Result()
		// 3. It is back.
		flaps.Always("*", nil)
		edgetest.Until(t, "the closed breaker", func() bool { return circuit() == "closed" })
		edgetest.Until(t, "a call that succeeds", func() bool { return c.CallTool("4", "flaps_echo", "{}").Status == 200 })
	}
	took := time.Since(began)
	stream.Close()
	hearing.Wait()
	if limit := int64(took/(2*time.Second)) + 1; told.Load() > limit {
		t.Errorf("%d times told in %s, at most %d", told.Load(), took, limit)
	}
}

// A tool that rules hide is refused to clients under every name that it has or
// would have had, and is not in any list.
func TestP14(t *testing.T) {
	t.Parallel()
	a, b := edgetest.NewServer(t, edgetest.Legacy, has("keep", "hide")), edgetest.NewServer(t, edgetest.Modern, has("one", "two"))
	for _, rules := range []string{
		"aggregation: {conflictResolution: prefix, tools: [{workload: a, filter: [keep]}, {workload: b, excludeAll: true}]}",
		"aggregation: {conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [a, b]}, tools: [{workload: a, filter: [keep]}, {workload: b, excludeAll: true}]}",
		"aggregation: {conflictResolution: prefix, excludeAllTools: true}",
	} {
		f := open(t, servers{"a": a, "b": b}, rules)
		for _, era := range eras {
			c := f.as(era, "")
			all := c.tools(t)
			if strings.Contains(all, "hide") || strings.Contains(all, "one") || strings.Contains(all, "two") {
				t.Errorf("%s: tools %s", era, all)
			}
			for _, name := range []string{"a_hide", "hide", "a.hide", "b_one", "one", "b.one", "two", "b_two", "A_HIDE"} {
				unknownTool(t, c, c.CallTool("1", name, "{}"))
			}
			if era == edgetest.Legacy { // a header cannot say these
				unknownTool(t, c, c.CallTool("2", "a_hide ", "{}"))
				unknownTool(t, c, c.Ask("3", "tools/call", `{"name":"a_hide\u0000","arguments":{}}`))
			}
		}
	}
	if n := a.Count("tools/call") + b.Count("tools/call"); n != 0 {
		t.Errorf("%d calls of hidden tools reached a backend", n)
	}
}

// A tool that has another name is called by that name alone; its own is refused
// and leads to no other tool either, and the rules of one name do not hold for
// the other.
func TestP15(t *testing.T) {
	t.Parallel()
	a, b := edgetest.NewServer(t, edgetest.Legacy, has("delete_everything", "read")), edgetest.NewServer(t, edgetest.Modern, has("read"))
	for _, one := range []struct{ rules, tools, name string }{
		{`aggregation: {conflictResolution: prefix, tools: [{workload: a, overrides: {delete_everything: {name: tidy, description: "Tidies up."}}}]}`, "a_read a_tidy b_read", "a_tidy"},
		{`aggregation: {conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [b, a]}, tools: [{workload: a, overrides: {delete_everything: {name: tidy, description: "Tidies up."}}}]}`, "read tidy", "tidy"},
		{`aggregation: {conflictResolution: manual, tools: [{workload: a, filter: [tidy], overrides: {delete_everything: {name: tidy, description: "Tidies up."}}}]}`, "read tidy", "tidy"},
	} {
		f := open(t, servers{"a": a, "b": b}, one.rules)
		a.Forget()
		for _, era := range eras {
			c := f.as(era, "")
			if got := c.tools(t); got != one.tools {
				t.Errorf("%s: tools %s, want %s", era, got, one.tools)
			}
			if text := c.Ask("1", "tools/list", "").Result(); !strings.Contains(text, `"Tidies up."`) || strings.Contains(text, "delete_everything") {
				t.Errorf("%s: %s", era, text)
			}
			for _, name := range []string{"delete_everything", "a_delete_everything", "a.delete_everything"} {
				unknownTool(t, c, c.CallTool("2", name, "{}"))
			}
			c.CallTool("3", one.name, "{}").Result()
		}
		calls := a.Requests("tools/call")
		if len(calls) != 2 || param(calls[0], "name") != `"delete_everything"` {
			t.Errorf("the backend got %d calls", len(calls))
		}
	}
}
