package guest_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// admins is a policy by an attribute that programs alone set.
const admins = `incomingAuth: {type: anonymous, authzConfig: {type: inline, inline: {policies: ['permit(principal, action, resource) when { principal has attr_team && principal.attr_team == "admins" };']}}}`

// judged is a manifest with the policy admins and an audit log, in which filters
// ask about messages.
func judged(t *testing.T, back *edgetest.Server, log string, filters ...filter) string {
	t.Helper()
	yaml := strings.Replace(manifest(t, backs{"back": back}, filters), "incomingAuth: {type: anonymous}", admins, 1)
	return strings.Replace(yaml, "  config:\n", fmt.Sprintf("  config:\n    audit: {enabled: true, logFile: %q}\n", log), 1)
}

// as is a client that sends header lines with every request; those of once with
// the beginning of its session alone.
func as(e *edgetest.Edge, era edgetest.Era, lines []string, once ...string) client {
	c := e.NewClient()
	for i := 0; i < len(lines); i += 2 {
		c.Header.Set(lines[i], lines[i+1])
	}
	for i := 0; i < len(once); i += 2 {
		c.Header.Set(once[i], once[i+1])
	}
	out := client{c.As(era, "")}
	for i := 0; i < len(once); i += 2 {
		c.Header.Del(once[i])
	}
	return out
}

// recorded is an audit log so far.
func recorded(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text[:bytes.LastIndexByte(text, '\n')+1]) // a line may be on its way
}

// guardedBy is a manifest of a server that wants tokens of the mint, for a reload.
func guardedBy(m *edgetest.Mint, yaml string) string {
	yaml = strings.Replace(yaml, "incomingAuth: {type: anonymous", `incomingAuth: {type: oidc, oidcConfigRef: {name: idp, audience: weir, resourceUrl: "http://127.0.0.1/mcp"}`, 1)
	return yaml + fmt.Sprintf("---\napiVersion: weir.dev/v1beta1\nkind: MCPOIDCConfig\nmetadata: {name: idp}\nspec: {type: inline, inline: %s}\n", m.Inline())
}

// TestZ34NoClaimIsAnAttribute has a program say of some clients what a policy
// asks for: they get in, and no token with claims, roles or groups of that name
// does, nor anybody else, before and after.
func TestZ34NoClaimIsAnAttribute(t *testing.T) {
	t.Parallel()
	m := edgetest.NewMint(t, "weir")
	back := edgetest.NewServer(t, edgetest.Modern)
	log := filepath.Join(t.TempDir(), "audit.log")
	says := filter{name: "says", rules: []string{"map_identity|subject=alice|set_attr|team|\"admins\""}}
	reads := filter{name: "reads", rules: []string{"on_call_response|*|patch_result|/content/0/text|\"has $attrs\"", "sub|on_call_response|field=11,25"}}
	yaml := judged(t, back, log, says, reads)
	e := guarded(t, m, yaml)
	c := newClient(e, edgetest.Modern)
	forged := map[string]any{
		"attr_team": "admins", "team": "admins", "claim_attr_team": "admins", "attr": map[string]any{"team": "admins"}, "attributes": map[string]any{"team": "admins"},
		"roles": []any{"admins", "attr_team"}, "groups": []any{"admins", "attr_team"}, "principal.attr_team": "admins",
	}
	alice := m.Bearer("alice")
	for range 3 { // what is decided of one is kept, and is not another's
		fails(t, c.call(t, "echo", "{}", m.BearerOf("mallory", forged)...), 403, 403, "denied by authorization policy")
		fails(t, c.call(t, "echo", "{}", m.Bearer("bob")...), 403, 403, "denied by authorization policy")
		if got := text(t, c.call(t, "echo", "{}", alice...)); got != "has team:'admins'" {
			t.Errorf("a filter behind the call sees %q", got)
		}
	}
	if list := c.request(t, "tools/list", "", m.BearerOf("mallory", forged)...).Result(); strings.Contains(list, "echo") {
		t.Errorf("the list of somebody without the attribute: %s", list)
	}
	if list := c.request(t, "tools/list", "", alice...).Result(); !strings.Contains(list, "echo") {
		t.Errorf("the list of somebody with it: %s", list)
	}
	if n := len(back.Requests("tools/call")); n != 3 {
		t.Errorf("%d calls went out", n)
	}
	const has = `"attributes":{"team":"admins"}`
	edgetest.Until(t, "records of her calls", func() bool { return strings.Count(recorded(t, log), has) >= 4 })
	for _, line := range strings.Split(recorded(t, log), "\n") {
		if strings.Contains(line, `"user_id":"alice"`) != strings.Contains(line, has) {
			t.Errorf("a record: %s", line)
		}
	}

	// A program that says nothing of her takes the place of the one that did.
	says.rules = []string{"map_identity|subject=carol|set_attr|team|\"admins\""}
	next := guardedBy(m, judged(t, back, log, says, reads))
	if err := e.Serve.Reload(edgetest.Plan(t, next)); err != nil {
		t.Fatal(err)
	}
	fails(t, c.call(t, "echo", "{}", alice...), 403, 403, "denied by authorization policy")
	if r := c.call(t, "echo", "{}", m.Bearer("carol")...); r.Status != 200 {
		t.Errorf("after a reload: %s", r.Body)
	}
}

// TestZ34AttributesOfAMessage sets attributes where a message is looked at: they
// are of this message and no other of the same client.
func TestZ34AttributesOfAMessage(t *testing.T) {
	t.Parallel()
	for _, hook := range []string{"on_http_request", "on_call_request"} {
		for _, era := range []edgetest.Era{edgetest.Modern, edgetest.Legacy} {
			t.Run(fmt.Sprint(hook, " ", era), func(t *testing.T) {
				t.Parallel()
				m := edgetest.NewMint(t, "weir")
				back := edgetest.NewServer(t, edgetest.Modern)
				rules := []string{"sub|" + hook + "|header=x-a", hook + "|header:x-a=yes|set_attr|team|\"admins\"", "map_identity|*|set_attr|subject|\"$subject\""}
				reads := filter{name: "reads", rules: []string{"on_call_response|*|patch_result|/content/0/text|\"has $attrs\""}}
				e := guarded(t, m, judged(t, back, filepath.Join(t.TempDir(), "audit.log"), filter{name: "f", rules: rules}, reads))
				ann := m.Bearer("ann")
				c := as(e, era, ann)
				for range 3 {
					fails(t, c.call(t, "echo", "{}"), 403, 403, "denied by authorization policy")
					if got := text(t, c.call(t, "echo", "{}", "X-A", "yes")); got != "has subject:'ann' team:'admins'" {
						t.Errorf("a later hook sees %q", got)
					}
				}
			})
		}
	}
}

// TestZ34AttributesOfASession sets an attribute when a session begins: it is of
// all its messages, and of no other session, and a reload of the filter ends it.
func TestZ34AttributesOfASession(t *testing.T) {
	t.Parallel()
	m := edgetest.NewMint(t, "weir")
	back := edgetest.NewServer(t, edgetest.Modern)
	log := filepath.Join(t.TempDir(), "audit.log")
	f := filter{name: "f", rules: []string{"sub|on_session_start|header=x-a", "on_session_start|header:x-a=yes|set_attr|team|\"admins\""}}
	e := guarded(t, m, judged(t, back, log, f))
	ann := m.Bearer("ann")
	is, other := as(e, edgetest.Legacy, ann, "X-A", "yes"), as(e, edgetest.Legacy, ann)
	for range 2 {
		if r := is.call(t, "echo", "{}"); !strings.Contains(string(r.Body), `"result"`) {
			t.Errorf("in the session: %s", r.Body)
		}
		fails(t, other.call(t, "echo", "{}"), 403, 403, "denied by authorization policy")
	}
	f.rules = append(f.rules, "on_session_start|header:x-a=other|set_attr|team|\"admins\"")
	if err := e.Serve.Reload(edgetest.Plan(t, guardedBy(m, judged(t, back, log, f)))); err != nil {
		t.Fatal(err)
	}
	fails(t, is.call(t, "echo", "{}"), 403, 403, "denied by authorization policy")
	after := as(e, edgetest.Legacy, ann, "X-A", "other")
	if r := after.call(t, "echo", "{}"); !strings.Contains(string(r.Body), `"result"`) {
		t.Errorf("in a session after the reload: %s", r.Body)
	}
	edgetest.Until(t, "records of what two sessions begin with, which is two messages, and of three calls", func() bool {
		return strings.Count(recorded(t, log), `"attributes":{"team":"admins"}`) == 7
	})
}

// TestZ34AttributesAreBounded refuses names and amounts beyond what is allowed,
// and says which.
func TestZ34AttributesAreBounded(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	var many, large []string
	for i := range 33 {
		many = append(many, fmt.Sprintf("on_call_request|*|set_attr|a%d|1", i))
	}
	for i := range 9 {
		large = append(large, fmt.Sprintf("on_call_request|*|set_attr|a%d|\"%s\"", i, strings.Repeat("x", 1000)))
	}
	for name, c := range map[string]struct {
		rules []string
		want  string
	}{
		"a name with a capital":  {[]string{"on_call_request|*|set_attr|Team|1"}, `\"Team\" is no name of an attribute: use 1 to 64 of a-z, 0-9 and _`},
		"a name with a dash":     {[]string{"on_call_request|*|set_attr|te-am|1"}, `\"te-am\" is no name of an attribute`},
		"no name":                {[]string{"on_call_request|*|set_attr||1"}, `\"\" is no name of an attribute`},
		"a long name":            {[]string{"on_call_request|*|set_attr|" + strings.Repeat("n", 65) + "|1"}, "is no name of an attribute"},
		"a large value":          {[]string{"on_call_request|*|set_attr|a|\"" + strings.Repeat("x", 1023) + "\""}, "attribute a has 1025 bytes: at most 1024"},
		"too many":               {many, "more than 32 attributes of one principal"},
		"too many bytes":         {large, "more than 8192 bytes of attributes of one principal"},
		"not JSON":               {[]string{"on_call_request|*|set_attr|a|x"}, "set_attr: not JSON"},
		"one of an HTTP request": {[]string{"on_http_request|*|set_attr|Team|1"}, "is no name of an attribute"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: c.rules}}))
			r := newClient(e, edgetest.Modern).call(t, "echo", "{}")
			if r.Status != 503 || !strings.Contains(e.Log(), c.want) {
				t.Errorf("status %d: %s", r.Status, e.Log())
			}
		})
	}
	most := many[:32]
	if r := newClient(start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: most}})), edgetest.Modern).call(t, "echo", "{}"); r.Status != 200 {
		t.Errorf("32 attributes: %s", r.Body)
	}
}

// TestZ34ClaimsAreGranted tells a program of the claims that its filter is
// granted, and starts none that asks for others.
func TestZ34ClaimsAreGranted(t *testing.T) {
	t.Parallel()
	m := edgetest.NewMint(t, "weir")
	back := edgetest.NewServer(t, edgetest.Modern)
	rules := []string{
		"sub|on_call_request|claim=/department,/realm/roles/1",
		"on_call_request|*|set_arg|/of|[\"$subject\",$claim:0,$claim:1]",
		"sub|outgoing_auth|claim=/realm/cost~1centre",
		"outgoing_auth|*|set_header|X-Centre|$claim:0",
	}
	ann := m.BearerOf("ann", map[string]any{"department": "x", "salary": 1, "realm": map[string]any{"roles": []any{"a", "b"}, "cost/centre": 17}})
	e := guarded(t, m, manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules, more: "grants: {claims: [/department, /realm]}"}}))
	c := newClient(e, edgetest.Modern)
	if got := text(t, c.call(t, "echo", "{}", ann...)); got != `{"of":["ann","x","b"]}` {
		t.Errorf("the claims: %s", got)
	}
	if sent := back.Requests("tools/call"); len(sent) != 1 || sent[0].Header.Get("X-Centre") != "17" {
		t.Errorf("to the backend: %v", sent)
	}
	for name, one := range map[string]struct {
		rules []string
		more  string
		want  string
	}{
		"nothing granted":   {rules, "grants: {kv: true}", "hook on_call_request: it wants the claim /department: name it in grants.claims, or use another module"},
		"another granted":   {rules, "grants: {claims: [/depart, /realm]}", "it wants the claim /department: name it in grants.claims"},
		"a part is granted": {rules, "grants: {claims: [/department, /realm/roles/1]}", "hook outgoing_auth: it wants the claim /realm/cost~1centre: name it in grants.claims"},
		"another hook":      {[]string{"sub|on_call_response|claim=/department", "on_call_response|*|log_field|a|b"}, "grants: {claims: [/department]}", "on_call_response is told no claims: ask for them in on_call_request or outgoing_auth"},
		"an answer is kept": {[]string{"sub|outgoing_auth|claim=/department|cache=1000", "outgoing_auth|*|set_header|X-A|b"}, "grants: {claims: [/department]}", "its answers are kept (cache_ms) for clients whose claims it does not see"},
	} {
		t.Run(name, func(t *testing.T) {
			yaml := manifest(t, backs{"back": back}, []filter{{name: "f", rules: one.rules, more: one.more}})
			if err := refused(t, yaml); !strings.Contains(err, one.want) {
				t.Errorf("got %s, want %q", err, one.want)
			}
		})
	}
}

// TestZ34KeptAnswersSeeNone asks programs whose answers are kept for several
// clients, of whom they are told no attribute, and one whose answers are not.
func TestZ34KeptAnswersSeeNone(t *testing.T) {
	t.Parallel()
	m := edgetest.NewMint(t, "weir")
	back := edgetest.NewServer(t, edgetest.Modern)
	offers(back, "echo")
	rules := []string{
		"map_identity|subject=alice|set_attr|team|\"admins\"",
		"sub|override_tools|varies=3",
		"override_tools|*|describe|seen by $subject: [$attrs]",
		"sub|on_http_request|header=x-a",
		"on_http_request|header:x-a=yes|set_attr|asked|true",
	}
	kept := filter{name: "kept", rules: []string{"sub|outgoing_auth|varies=3|cache=60000", "outgoing_auth|*|set_header|X-Kept|[$attrs]"}}
	asked := filter{name: "asked", rules: []string{"outgoing_auth|*|set_header|X-Asked|[$attrs]"}}
	e := guarded(t, m, manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules}, kept, asked}))
	c := newClient(e, edgetest.Modern)
	alice := m.Bearer("alice")
	if list := c.request(t, "tools/list", "", alice...).Result(); !strings.Contains(list, "seen by alice: []") {
		t.Errorf("the list: %s", list)
	}
	for _, header := range [][]string{nil, {"X-A", "yes"}, nil} {
		c.call(t, "echo", "{}", append(slices.Clip(alice), header...)...)
	}
	var got []string
	for _, q := range back.Requests("tools/call") {
		got = append(got, q.Header.Get("X-Kept")+q.Header.Get("X-Asked"))
	}
	if want := []string{"[][team:'admins']", "[][asked:true team:'admins']", "[][team:'admins']"}; !slices.Equal(got, want) {
		t.Errorf("the backend is told %q, want %q", got, want)
	}
}

// TestZ34GuestsOf10 has a program that was made for ABI 1.0 set attributes where a
// token is mapped and a session begins: as in 1.0, it writes lines of the log.
func TestZ34GuestsOf10(t *testing.T) {
	t.Parallel()
	m := edgetest.NewMint(t, "weir")
	back := edgetest.NewServer(t, edgetest.Modern)
	old := filter{name: "old", path: "../../sdk/fixtures/testdata/abi-1.0/everyhook-c.wasm", more: "grants: {identity: true}, match: {tools: [nothing]}"}
	reads := filter{name: "reads", rules: []string{"on_call_request|*|set_arg|/has|\"$attrs\""}}
	yaml := manifest(t, backs{"back": back}, []filter{old, reads})
	yaml = strings.Replace(yaml, `config: {rules: ""}`, "config: {group: admin}", 1)
	yaml = strings.Replace(yaml, "  config:\n", fmt.Sprintf("  config:\n    audit: {enabled: true, logFile: %q}\n", filepath.Join(t.TempDir(), "audit.log")), 1)
	e := guarded(t, m, yaml)
	c := as(e, edgetest.Legacy, m.Bearer("ann"))
	if got := text(t, c.call(t, "echo", "{}")); got != `{"has":""}` {
		t.Errorf("a filter behind it sees %s", got)
	}
	for _, line := range []string{"hook=map_identity fields.issuer=", "hook=on_session_start fields.since="} {
		if !strings.Contains(e.Log(), line) {
			t.Errorf("no line with %s: %s", line, e.Log())
		}
	}
}
