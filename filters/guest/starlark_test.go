package guest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// script is an EdgeFilter of type starlark. Its calls may take their time, as those of filter.
type script struct {
	name string
	text string
	more string // further YAML of its spec, in flow style
}

func (f script) yaml() string {
	more := f.more
	if more != "" {
		more = ", " + more
	}
	if !strings.Contains(more, "limits:") {
		more += ", limits: {timeout: 30s}"
	}
	return fmt.Sprintf("---\napiVersion: weir.dev/v1beta1\nkind: EdgeFilter\nmetadata: {name: %s}\nspec: {type: starlark, source: {inline: %q}%s}\n", f.name, f.text, more)
}

// scripted is manifest with scripts in the place of modules.
func scripted(t testing.TB, all backs, scripts []script, more ...string) string {
	t.Helper()
	var text, names strings.Builder
	for i, f := range scripts {
		text.WriteString(f.yaml())
		if i > 0 {
			names.WriteString(", ")
		}
		fmt.Fprintf(&names, "{name: %s}", f.name)
	}
	return strings.Replace(manifest(t, all, nil, more...), "filterRefs: []", "filterRefs: ["+names.String()+"]", 1) + text.String()
}

// TestScriptCalls: a script denies, changes and answers calls, and edits their results, for
// clients of both eras.
func TestScriptCalls(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		back := edgetest.NewServer(t, of)
		offers(back, "echo", "delete_all", "own")
		c := newClient(start(t, scripted(t, backs{"back": back}, []script{{name: "f", text: `
subscribe("on_call_request", pointers = ["/text"])

def on_call_request(c):
    if c.tool.startswith("delete_"):
        return deny(403, "%s stays away from %s" % (c.method, c.tool))
    if c.tool == "own":
        return respond("mine: %s" % c.args)
    if c.selected[0] == "carried":
        return [set_arg("/seen", [c.tool, c.backend]), set_carry(c.selected[0])]
    return None

def on_call_response(c):
    if c.carry:
        return patch_result("/content/0/text", c.carry.upper() + ": " + c.result["content"][0]["text"])
`}})), era)
		fails(t, c.call(t, "delete_all", "{}"), 403, 403, "tools/call stays away from delete_all")
		if got := text(t, c.call(t, "own", `{"a":1}`)); got != `mine: {"a": 1}` {
			t.Errorf("its own answer: %q", got)
		}
		if got := text(t, c.call(t, "echo", `{"text":"carried"}`)); !strings.HasPrefix(got, "CARRIED: ") {
			t.Errorf("a changed result: %q", got)
		}
		if got := text(t, c.call(t, "echo", `{"text":"plain"}`)); strings.Contains(got, "CARRIED") {
			t.Errorf("a result that it lets pass: %q", got)
		}
		asked := back.Requests("tools/call")
		if len(asked) != 2 || !strings.Contains(string(asked[0].Body), `"seen":["echo","back"]`) || strings.Contains(string(asked[1].Body), "seen") {
			t.Errorf("the backend got %d calls: %s", len(asked), asked[0].Body)
		}
	})
}
