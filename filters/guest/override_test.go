package guest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// tool is what a client sees of one.
type tool struct {
	Name, Description string
	Annotations       struct{ DestructiveHint bool }
	InputSchema       struct {
		Properties map[string]json.RawMessage
		Required   []string
	}
}

// tools lists what a client sees, by name.
func tools(t testing.TB, c client) map[string]tool {
	t.Helper()
	var out struct{ Tools []tool }
	text := c.request(t, "tools/list", "").Result()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	all := map[string]tool{}
	for _, one := range out.Tools {
		all[one.Name] = one
	}
	return all
}

var overriding = []string{
	"override_tools|item=echo|rename|say",
	"override_tools|item=echo|describe|says what $item of $backend did",
	"override_tools|item=echo|annotate|destructiveHint|true",
	"override_tools|item=echo|pin_arg|/a|\"pinned\"",
	"override_tools|item=echo|hide_arg|/b",
	"override_tools|item=secret|hide",
}

// TestOverrides has a program rename, describe, hide and pin, before one backend
// and before several. Names lead back to what the backend calls its tools.
func TestOverrides(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		for _, several := range []bool{false, true} {
			back := edgetest.NewServer(t, of)
			offers(back, "echo", "secret", "plain")
			all, prefix := backs{"back": back}, ""
			if several {
				all, prefix = backs{"a": back, "b": edgetest.NewServer(t, of, func(s *edgetest.Server) { offers(s, "other") })}, "a_"
			}
			c := newClient(start(t, manifest(t, all, []filter{{name: "f", rules: overriding}})), era)
			seen := tools(t, c)
			say, ok := seen[prefix+"say"]
			if !ok || seen[prefix+"plain"].Description != "of plain" || len(seen) != len(all)+1 {
				t.Fatalf("a client sees %v", seen)
			}
			if !strings.HasPrefix(say.Description, "says what echo of ") || !say.Annotations.DestructiveHint || len(say.InputSchema.Properties)+len(say.InputSchema.Required) != 0 {
				t.Errorf("the renamed tool: %+v", say)
			}
			if got := text(t, c.call(t, prefix+"say", `{"a":"mine","b":"too","c":1}`)); got != `{"a":"pinned","c":1}` {
				t.Errorf("it is called with %s", got)
			}
			if got := text(t, c.call(t, prefix+"say", `{}`)); got != `{"a":"pinned"}` {
				t.Errorf("it is called with %s", got)
			}
			calls := back.Requests("tools/call")
			if got := edgetest.Member(string(calls[0].Message.Params), "name"); got != `"echo"` {
				t.Errorf("the backend is asked for %s", got)
			}
			for _, gone := range []string{"echo", "secret"} {
				if r := c.call(t, prefix+gone, `{}`); r.Message().Error == nil {
					t.Errorf("%s can still be called: %s", gone, r.Body)
				}
			}
			if len(back.Requests("tools/call")) != 2 {
				t.Error("the backend was asked for what is not there")
			}
		}
	})
}

// TestOverridesAreJudged has policies see tools by the names that clients see,
// and calls with the arguments that go out.
func TestOverridesAreJudged(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	offers(back, "echo", "plain")
	policy := `incomingAuth: {type: anonymous, authzConfig: {type: inline, inline: {policies: ['permit(principal, action == Action::"call_tool", resource == Tool::"say") when { context.arg_a == "pinned" };']}}}`
	yaml := strings.Replace(manifest(t, backs{"back": back}, []filter{{name: "f", rules: overriding}}), "incomingAuth: {type: anonymous}", policy, 1)
	c := newClient(start(t, yaml), edgetest.Modern)
	if seen := tools(t, c); len(seen) != 1 || seen["say"].Name == "" {
		t.Errorf("a client sees %v", seen)
	}
	text(t, c.call(t, "say", `{"a":"mine"}`))
	fails(t, c.call(t, "plain", `{"a":"pinned"}`), 403, 403, "denied by authorization policy")
}

// TestOverridesOfOthers has a program change prompts and resources.
func TestOverridesOfOthers(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	back.Always("prompts/list", func(c *edgetest.Call) { c.Result(`{"prompts":[{"name":"one"},{"name":"two"}]}`) })
	back.Always("resources/list", func(c *edgetest.Call) {
		c.Result(`{"resources":[{"uri":"file:///a","name":"a"},{"uri":"file:///b","name":"b"}]}`)
	})
	back.Always("prompts/get", func(c *edgetest.Call) {
		c.Result(`{"messages":[],"description":` + edgetest.Member(string(c.Message.Params), "name") + `}`)
	})
	rules := []string{
		"override_prompts|item=one|rename|first", "override_prompts|item=two|hide",
		"override_resources|item=file:///a|rename|the first", "override_resources|item=file:///b|hide",
	}
	c := newClient(start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules}})), edgetest.Modern)
	if got := edgetest.Member(c.request(t, "prompts/list", "").Result(), "prompts"); got != `[{"name":"first"}]` {
		t.Errorf("prompts: %s", got)
	}
	if got := edgetest.Member(c.request(t, "resources/list", "").Result(), "resources"); got != `[{"uri":"file:///a","name":"the first"}]` {
		t.Errorf("resources: %s", got)
	}
	if got := edgetest.Member(c.request(t, "prompts/get", `{"name":"first"}`).Result(), "description"); got != `"one"` {
		t.Errorf("the backend is asked for %s", got)
	}
}

// TestOverridesOfSpellings: a program that asked for resources by globs hears of the spelling that
// is matched, however a backend writes the URI, and of none of one that can be anything.
func TestOverridesOfSpellings(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	back.Always("resources/list", func(c *edgetest.Call) {
		c.Result(`{"resources":[{"uri":"file:///secret/a","name":"a"},{"uri":"file:///%73ecret/b","name":"b"},{"uri":"FILE:///secret/c","name":"c"},` +
			`{"uri":"file:///public/../secret/d","name":"d"},{"uri":"file:///public/e","name":"e"}]}`)
	})
	rules := []string{"sub|override_resources|tool=file:///secret/*"}
	for _, name := range []string{"a", "b", "c", "d"} {
		rules = append(rules, "override_resources|item=file:///secret/"+name+"|hide")
	}
	c := newClient(start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules}})), edgetest.Modern)
	if got := edgetest.Member(c.request(t, "resources/list", "").Result(), "resources"); got != `[{"uri":"file:///public/e","name":"e"}]` {
		t.Errorf("resources: %s", got)
	}
}

// TestPatchItem has a program change what else a backend says of a tool, but not
// what it is known by.
func TestPatchItem(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		`/icons|[]`: `"icons":[]`, `/_meta/a|{"b":1.50}`: `"_meta":{"a":{"b":1.50}}`, `/title|"T"`: `"title":"T"`,
		`/name|"other"`: "", `/_meta/a/b/c|1`: "", `|{}`: "", `icons|[]`: "",
		`/outputSchema|{"type":"object"}`: `"outputSchema":{"type":"object"}`, `/annotations|{"readOnlyHint":true}`: `"readOnlyHint":true`,
		`/inputSchema|"T"`: "", `/outputSchema|{"type":"array"}`: `"outputSchema":{"type":"array"}`, `/outputSchema|"T"`: "", `/annotations|{"readOnlyHint":"yes"}`: "", `/description|5`: "", `/title|null`: `{"name":"echo","icons"`, `/_meta|null`: `[{"name":"echo","icons":[{"src":"x:y"}],"inputSchema":{"type":"object"}}]`,
		`/inputSchema/required|"a"`: "", `/inputSchema/properties|{"a":true}`: `"a":true`, `/inputSchema/properties|{"a":"x"}`: "", `/_meta|"x"`: "", `/icons|[{"src":3}]`: "", `/execution|{"taskSupport":"maybe"}`: "",
		`set_schema|{"type":"nope"}`: "", `annotate|readOnlyHint|"yes"`: "", `annotate|title|null`: `"annotations":{}`, `set_schema|{"type":"object","properties":{"b":true}}`: `"b":true`,
	} {
		back := edgetest.NewServer(t, edgetest.Modern, func(s *edgetest.Server) {
			s.Tools = `[{"name":"echo","icons":[{"src":"x:y"}],"_meta":{"a":1},"inputSchema":{"type":"object"}}]`
		})
		if !strings.HasPrefix(rule, "set_schema|") && !strings.HasPrefix(rule, "annotate|") {
			rule = "patch_item|" + rule
		}
		f := filter{name: "f", rules: []string{"override_tools|*|" + rule}}
		c := newClient(start(t, manifest(t, backs{"back": back}, []filter{f})), edgetest.Modern)
		r := c.request(t, "tools/list", "")
		if want == "" {
			fails(t, r, 503, 503, `filter "f" is not available`)
			continue
		}
		if got := r.Result(); !strings.Contains(got, want) || !strings.Contains(got, `"name":"echo"`) {
			t.Errorf("%s: %s", rule, got)
		}
	}
}

// TestZ03OverridesOfOneItem: a program may say so much of one item, however many
// others it is asked about.
func TestZ03OverridesOfOneItem(t *testing.T) {
	t.Parallel()
	for _, n := range []int{64, 65} {
		back := edgetest.NewServer(t, edgetest.Modern)
		offers(back, "echo", "b", "c", "d", "e", "f")
		f := filter{name: "f"}
		for i := range n {
			f.rules = append(f.rules, fmt.Sprintf("override_tools|item=echo|annotate|a%d|true", i))
		}
		r := newClient(start(t, manifest(t, backs{"back": back}, []filter{f})), edgetest.Modern).request(t, "tools/list", "")
		if n > 64 {
			fails(t, r, 503, 503, `filter "f" is not available`)
		} else if got := r.Result(); !strings.Contains(got, `"a63":true`) {
			t.Errorf("%d operations: %.300s", n, got)
		}
	}
}

// TestOverridesOnce asks a program once for what a backend offers, and anew when
// that has changed.
func TestOverridesOnce(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	offers(back, "echo")
	f := filter{name: "f", rules: []string{"override_tools|*|describe|time $count"}, limits: "instances: 1"}
	e := start(t, manifest(t, backs{"back": back}, []filter{f}))
	a, b := newClient(e, edgetest.Legacy), newClient(e, edgetest.Modern)
	for range 3 {
		text(t, a.call(t, "echo", "{}"))
		for _, c := range []client{a, b} {
			if seen := tools(t, c); seen["echo"].Description != "time 1" {
				t.Fatalf("a client sees %v", seen)
			}
		}
	}
	back.Always("tools/list", func(c *edgetest.Call) {
		c.Result(`{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"more","inputSchema":{"type":"object"}}]}`)
	})
	told := 0
	edgetest.Until(t, "the edge's own stream", func() bool {
		for _, s := range back.Sessions() {
			if s.Listening() {
				s.Push(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				told++
			}
		}
		return told > 0
	})
	edgetest.Until(t, "the new list", func() bool { return len(tools(t, b)) == 2 })
	if seen := tools(t, b); seen["more"].Description != "time 2" {
		t.Errorf("after a change: %v", seen)
	}
}

// TestOverridesFail: when a program fails on what a backend offers, clients do
// not see what it might have hidden; where failures pass, they do.
func TestOverridesFail(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	offers(back, "echo")
	f := filter{name: "f", rules: []string{"override_tools|*|trap"}}
	c := newClient(start(t, manifest(t, backs{"back": back}, []filter{f})), edgetest.Modern)
	fails(t, c.request(t, "tools/list", ""), 503, 503, `filter "f" is not available`)
	fails(t, c.call(t, "echo", "{}"), 503, 503, `filter "f" is not available`)
	f.more = "onError: continue"
	c = newClient(start(t, manifest(t, backs{"back": back}, []filter{f})), edgetest.Modern)
	if seen := tools(t, c); len(seen) != 1 {
		t.Errorf("a client sees %v", seen)
	}
	text(t, c.call(t, "echo", "{}"))
}
