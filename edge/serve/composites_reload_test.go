package serve_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// reloaded is YAML of a server before back, which has echo, and other, which has talk. tools
// is what of them is listed, rules are policies, and more is what follows.
func reloaded(back, other *edgetest.Server, tools, rules string, more ...string) string {
	backends := fmt.Sprintf("- {name: back, url: %q, transport: streamable-http}\n", back.URL)
	order := "back"
	if other != nil {
		backends += fmt.Sprintf("- {name: other, url: %q, transport: streamable-http}\n", other.URL)
		order += ", other"
	}
	if rules != "" {
		rules = ", authz: {type: policy, policies: [" + rules + "]}"
	}
	return fmt.Sprintf(`name: edgetest
groupRef: edgetest
incomingAuth: {type: anonymous%s}
aggregation:
  conflictResolution: priority
  conflictResolutionConfig: {priorityOrder: [%s]}
  tools: [%s]
backends:
%s%s`, rules, order, tools, backends, strings.Join(more, "\n"))
}

// TestX38Reload: what a reload between two steps of a workflow, or two calls of a script, has
// hidden, renamed, removed or denied is not called: the error names step and tool, nothing
// after it runs, and no other tool is called, also not one that has the name now. A tool that
// is only hidden stays within reach of a step by its whole name. Where the server itself is
// gone nothing is called either.
func TestX38Reload(t *testing.T) {
	const (
		all   = ""
		allow = `'permit(principal, action == Action::"call_tool", resource == Tool::"flow");', 'permit(principal, action == Action::"call_tool", resource == Tool::"execute_tool_script");', 'permit(principal, action == Action::"call_tool", resource == Tool::"echo");'`
	)
	for name, one := range map[string]struct {
		tool         string // of the second step
		tools, rules string // of the second plan
		lacks        bool   // it has no other
		gone         bool   // it has no such server
		want         string // of the error; "" for none
	}{
		"hidden":              {tool: "talk", tools: "{workload: other, filter: [nothing]}", want: "not found"},
		"hidden, whole name":  {tool: "other.talk", tools: "{workload: other, filter: [nothing]}"},
		"renamed":             {tool: "talk", tools: "{workload: other, overrides: {talk: {name: shout}}}", want: "not found"},
		"renamed, whole name": {tool: "other.talk", tools: "{workload: other, overrides: {talk: {name: shout}}}"},
		"another has it":      {tool: "talk", tools: "{workload: other, filter: [nothing]}, {workload: back, overrides: {echo: {name: talk}}}", want: "not found"},
		"removed":             {tool: "other.talk", lacks: true, want: "not found"},
		"removed, advertised": {tool: "talk", lacks: true, want: "not found"},
		"denied":              {tool: "talk", rules: allow, want: "denied by authorization policy"},
		"the server":          {tool: "talk", gone: true, want: "not found"},
		"unchanged":           {tool: "talk", tools: "{workload: back, filter: [echo]}"},
	} {
		for _, kind := range []string{"steps", "program", "script"} {
			if kind == "script" && (strings.Contains(one.tool, ".") || name == "another has it") {
				continue // scripts know the names alone that clients see
			}
			for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
				t.Run(fmt.Sprintf("%s, %s, %s client", name, kind, client), func(t *testing.T) {
					t.Parallel()
					back, other := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
					offersTools(back, tool{"echo", "", []string{"text"}, 0})
					offersTools(other, tool{"talk", "", []string{"text"}, 0})
					results(other, echoes)
					entered, leave := slow(&front{back: back})
					more := []string{fmt.Sprintf(`compositeTools: [{name: flow, steps: [{id: a, tool: back.echo}, {id: b, tool: %[1]s, dependsOn: [a]}, {id: c, tool: back.echo, dependsOn: [b]}]}]`, one.tool), codeMode()}
					if kind == "program" {
						more[0] = fmt.Sprintf("compositeTools:\n- name: flow\n  script: |\n    call_tool(\"back.echo\")\n    call_tool(%q)\n    return call_tool(\"back.echo\")", one.tool)
					}
					e := edgetest.Start(t, reloaded(back, other, all, "", more...), engine())
					f := &front{Edge: e, back: back, client: e.NewClient()}
					c := f.callerOf(t, client, "")
					params := edgetest.CallParams("flow", "{}")
					if kind == "script" {
						params = scriptParams("echo()\ntalk()\nreturn echo()", "")
					}
					got := make(chan string, 1)
					go func() {
						r, err := c.try("1", "tools/call", params)
						if err != nil {
							t.Error(err)
							got <- ""
							return
						}
						text, _ := r.TryAnswer()
						got <- string(text)
					}()
					edgetest.Receive(t, entered, "the first call")
					if one.lacks {
						other.Close()
						other = nil
					}
					plan := reloaded(back, other, one.tools, one.rules, more...)
					if one.gone {
						plan = strings.Replace(plan, "name: edgetest\n", "name: another\n", 1)
					}
					if err := e.Serve.Reload(edgetest.Plan(t, plan)); err != nil {
						t.Fatal(err)
					}
					close(leave)
					said, calls := edgetest.Receive(t, got, "the answer"), back.Count("tools/call")
					if one.want == "" {
						if strings.Contains(said, "isError") || strings.Contains(said, `"error"`) || calls != 2 || other.Count("tools/call") != 1 {
							t.Errorf("%d calls: %s", calls, said)
						}
						return
					}
					want := fmt.Sprintf(`tool \"%s\": %s`, one.tool, one.want)
					if one.gone && client == edgetest.Legacy && strings.Contains(said, `"code":-32603`) { // its session ended before the next call
						if !strings.Contains(said, "the server of this session was removed") || calls != 1 {
							t.Errorf("%d calls: %s", calls, said)
						}
						return
					}
					if kind == "steps" {
						want = `step \"b\": ` + want
					}
					if !strings.Contains(said, want) || !strings.Contains(said, `"isError":true`) {
						t.Errorf("it says %s, want %s", said, want)
					}
					if calls != 1 || other != nil && other.Count("tools/call") != 0 {
						t.Errorf("%d calls after the first", calls-1)
					}
				})
			}
		}
	}
}

// TestStepsAreNotTakenOver: a backend that offers a tool by the whole name of another's gets none
// of the calls that are meant for that one, whether that has such a tool or not.
func TestStepsAreNotTakenOver(t *testing.T) {
	t.Parallel()
	for _, offered := range []string{"echo", "else"} {
		back, other := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
		offersTools(back, tool{offered, "", []string{"text"}, 0})
		offersTools(other, tool{"back.echo", "", []string{"text"}, 0}, tool{"with.dots", "", []string{"text"}, 0})
		results(other, echoes)
		e := edgetest.Start(t, reloaded(back, other, "", "", `compositeTools:
- {name: flow, steps: [{id: a, tool: back.echo, arguments: {text: secret}}]}
- {name: mine, steps: [{id: a, tool: with.dots, arguments: {text: x}}]}`))
		f := &front{Edge: e, back: back, client: e.NewClient()}
		c := f.callerOf(t, edgetest.Legacy, "")
		got := c.tool(t, "1", "flow", "{}")
		if n := other.Count("tools/call"); n != 0 || !strings.Contains(got, `step \"a\": tool \"back.echo\": not found`) {
			t.Errorf("%d calls at the other: %s", n, got)
		}
		if got := c.tool(t, "2", "mine", "{}"); !strings.Contains(got, `"x"`) {
			t.Error(got)
		}
	}
}

// TestReloadOfAComposite: a composite tool that was changed where it stands is the new one after
// a reload, also if nothing else of its server has changed.
func TestReloadOfAComposite(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	offersTools(back, tool{"echo", "", nil, 0})
	results(back, echoes)
	says := func(word string) string {
		return reloaded(back, nil, "", "", "compositeTools:\n- name: flow\n  steps: [{id: a, tool: back.echo}]\n  output: {properties: {said: {type: string, value: "+word+"}}}")
	}
	e := edgetest.Start(t, says("one"))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	for i, word := range []string{"one", "two"} {
		if i > 0 {
			if err := e.Serve.Reload(edgetest.Plan(t, says(word))); err != nil {
				t.Fatal(err)
			}
		}
		c := f.callerOf(t, edgetest.Modern, "")
		if got := edgetest.Member(c.tool(t, "1", "flow", "{}"), "structuredContent", "said"); got != `"`+word+`"` {
			t.Errorf("it says %s, want %s", got, word)
		}
	}
}
