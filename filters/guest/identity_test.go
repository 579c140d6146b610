package guest_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// guarded starts an edge that wants tokens of the mint.
func guarded(t *testing.T, m *edgetest.Mint, yaml string) *edgetest.Edge {
	t.Helper()
	e := start(t, guardedBy(m, yaml))
	edgetest.Until(t, "the keys", func() bool {
		return e.NewClient().Do("GET", "/status", "", m.Bearer("probe")...).Status == 200
	})
	return e
}

// TestMapIdentity has a program say who a token is for: once for each token, and
// what policies see is what it says.
func TestMapIdentity(t *testing.T) {
	t.Parallel()
	m := edgetest.NewMint(t, "weir")
	back := edgetest.NewServer(t, edgetest.Modern)
	rules := []string{
		`map_identity|claims~"org":"acme"|set_principal|$subject@acme|tenant-$issuer|staff,number-$count`,
		"map_identity|subject=mallory|deny|0|not you",
		"on_call_request|*|set_arg|/who|\"$subject of $tenant in $groups\"",
	}
	more := "grants: {identity: true}"
	policy := `incomingAuth: {type: anonymous, authzConfig: {type: inline, inline: {policies: ['permit(principal in THVGroup::"staff", action, resource);']}}}`
	yaml := strings.Replace(manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules, more: more, limits: "instances: 1"}}), "incomingAuth: {type: anonymous}", policy, 1)
	e := guarded(t, m, yaml)
	c := newClient(e, edgetest.Modern)
	alice := m.BearerOf("alice", map[string]any{"org": "acme"})
	first := text(t, c.call(t, "echo", "{}", alice...))
	if !strings.Contains(first, "alice@acme of tenant-"+m.URL+" in staff,number-") {
		t.Errorf("the principal: %s", first)
	}
	if again := text(t, c.call(t, "echo", "{}", alice...)); again != first {
		t.Errorf("the same token, asked about again: %s, then %s", first, again)
	}
	fails(t, c.call(t, "echo", "{}", m.Bearer("mallory")...), 403, 403, "not you")
	if len(back.Requests("tools/call")) != 2 {
		t.Error("a call of nobody went out")
	}
}

// TestAuthenticate has a program know clients by a header of its own: those that
// come without a token, and no others.
func TestAuthenticate(t *testing.T) {
	t.Parallel()
	m := edgetest.NewMint(t, "weir")
	back := edgetest.NewServer(t, edgetest.Modern)
	rules := []string{
		"sub|authenticate|header=x-a,authorization",
		"authenticate|header:x-a=key-of-robot|set_principal|robot|acme|staff",
		"authenticate|header:x-a=key-of-nobody|deny|0|not you",
		"authenticate|header:x-a=key-of-crash|trap",
		"authenticate|header:authorization~Bearer|set_principal|thief|t|staff",
		"on_call_request|*|set_arg|/who|\"$subject of $tenant in $groups\"",
	}
	policy := `incomingAuth: {type: anonymous, authzConfig: {type: inline, inline: {policies: ['permit(principal in THVGroup::"staff", action, resource);']}}}`
	yaml := strings.Replace(manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules, more: "grants: {identity: true}, onError: continue"}}), "incomingAuth: {type: anonymous}", policy, 1)
	c := newClient(guarded(t, m, yaml), edgetest.Modern)
	if got := text(t, c.call(t, "echo", "{}", "X-A", "key-of-robot")); got != `{"who":"robot of acme in staff"}` {
		t.Errorf("a client that it knows: %s", got)
	}
	fails(t, c.call(t, "echo", "{}", "X-A", "key-of-nobody"), 403, 403, "not you")
	fails(t, c.call(t, "echo", "{}", "X-A", "key-of-crash"), 503, 503, "not available")
	for _, head := range [][]string{{"X-A", "another"}, {"X-B", "key-of-robot"}, {"X-A", "key-of-robot", "Authorization", "Bearer broken"}} {
		if r := c.call(t, "echo", "{}", head...); r.Status != 401 || r.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%v: status %d: %s", head, r.Status, r.Body)
		}
	}
	fails(t, c.call(t, "echo", "{}", m.Bearer("ann")...), 403, 403, "denied by authorization policy")
	if len(back.Requests("tools/call")) != 1 {
		t.Error("a call of nobody went out")
	}
}

// TestMapIdentityFails denies, whatever is to become of failures: who somebody
// is must be known. Being somebody else takes a grant.
func TestMapIdentityFails(t *testing.T) {
	t.Parallel()
	m := edgetest.NewMint(t, "weir")
	back := edgetest.NewServer(t, edgetest.Modern)
	for _, rule := range []string{"map_identity|subject=alice|trap", "map_identity|subject=alice|set_principal|root|t|g"} {
		e := guarded(t, m, manifest(t, backs{"back": back}, []filter{{name: "f", rules: []string{rule}, more: "onError: continue"}}))
		fails(t, newClient(e, edgetest.Modern).call(t, "echo", "{}", m.Bearer("alice")...), 503, 503, `filter "f" is not available`)
	}
	if len(back.Requests("tools/call")) != 0 {
		t.Error("a call went out")
	}
}

// TestOverridesVary shows tools by the groups of clients: a program is asked once
// for all of equal groups, and is told no more of them than that.
func TestOverridesVary(t *testing.T) {
	t.Parallel()
	m := edgetest.NewMint(t, "weir")
	back := edgetest.NewServer(t, edgetest.Modern)
	offers(back, "echo", "admin")
	rules := []string{
		"sub|override_tools|varies=2",
		"override_tools|item=echo|describe|number $count for [$subject] in $groups",
		"override_tools|item=echo|rename|echo_$groups",
	}
	e := guarded(t, m, manifest(t, backs{"a": back, "b": edgetest.NewServer(t, edgetest.Legacy, func(s *edgetest.Server) { offers(s) })}, []filter{{name: "f", rules: rules, limits: "instances: 1"}}))
	list := func(who []string) map[string]tool {
		var out struct{ Tools []tool }
		text := newClient(e, edgetest.Modern).request(t, "tools/list", "", who...).Result()
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err)
		}
		all := map[string]tool{}
		for _, one := range out.Tools {
			all[one.Name] = one
		}
		return all
	}
	ann, bob, eve := m.Bearer("ann", "dev"), m.Bearer("bob", "dev"), m.Bearer("eve", "ops")
	a, b, o := list(ann)["a_echo_dev"].Description, list(bob)["a_echo_dev"].Description, list(eve)["a_echo_ops"].Description
	if !strings.HasSuffix(a, "for [] in dev") || b != a || !strings.HasSuffix(o, "for [] in ops") {
		t.Errorf("ann sees %q, bob %q, eve %q", a, b, o)
	}
	c := newClient(e, edgetest.Modern)
	text(t, c.call(t, "a_echo_dev", "{}", bob...))
	if r := c.call(t, "a_echo_dev", "{}", eve...); r.Message().Error == nil {
		t.Errorf("eve calls what she does not see: %s", r.Body)
	}
	if got := edgetest.Member(string(back.Requests("tools/call")[0].Message.Params), "name"); got != `"echo"` {
		t.Errorf("the backend is asked for %s", got)
	}
}

// TestUpstream has programs set the header of messages that leave for a backend;
// a credential is set in outgoing_auth alone, and takes a grant.
func TestUpstream(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		a, b := edgetest.NewServer(t, of), edgetest.NewServer(t, of)
		rules := []string{
			"outgoing_auth|backend=a|set_header|Authorization|Bearer for-$backend",
			"outgoing_auth|args~denied|deny|0|not there",
			"on_upstream_request|backend=b|set_header|X-Tool|$tool",
		}
		e := start(t, manifest(t, backs{"a": a, "b": b}, []filter{{name: "f", rules: rules, more: "grants: {identity: true}"}}))
		c := newClient(e, era)
		text(t, c.call(t, "a_echo", "{}"))
		text(t, c.call(t, "b_echo", "{}"))
		fails(t, c.call(t, "b_echo", `{"denied":1}`), 403, 403, "not there")
		one, other := a.Requests("tools/call")[0].Header, b.Requests("tools/call")[0].Header
		if one.Get("Authorization") != "Bearer for-a" || one.Get("X-Tool") != "" {
			t.Errorf("to a: %v", one)
		}
		if other.Get("Authorization") != "" || other.Get("X-Tool") != "b_echo" {
			t.Errorf("to b: %v", other)
		}
		if len(b.Requests("tools/call")) != 1 {
			t.Error("what is denied went out")
		}
	})
	for name, f := range map[string]filter{
		"without a grant":       {rules: []string{"outgoing_auth|*|set_header|Authorization|Bearer x"}},
		"in another hook":       {rules: []string{"on_upstream_request|*|set_header|Authorization|Bearer x"}, more: "grants: {identity: true}"},
		"a failure that passes": {rules: []string{"outgoing_auth|*|trap"}, more: "onError: continue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Modern)
			f.name = "f"
			c := newClient(start(t, manifest(t, backs{"back": back}, []filter{f})), edgetest.Modern)
			fails(t, c.call(t, "echo", "{}"), 503, 503, "not available")
			if len(back.Requests("tools/call")) != 0 {
				t.Error("the call went out")
			}
		})
	}
}

// TestSessionHooks has a program refuse sessions and hear of their end.
func TestSessionHooks(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	rules := []string{
		"sub|on_session_start|header=x-a",
		"on_session_start|header:x-a=no|deny|0|not now",
		"on_session_start|*|set_attr|begun|\"$session\"",
		"on_session_end|*|set_attr|ended|\"$session\"",
		"on_call_request|*|set_arg|/attrs|\"$attrs\"",
	}
	e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules}}))
	c := newClient(e, edgetest.Legacy)
	hello := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	r := c.Post(hello, "X-A", "no")
	fails(t, r, 403, 403, "not now")
	if r.Header.Get("Mcp-Session-Id") != "" {
		t.Error("a session that was refused has an id")
	}
	if got := text(t, c.call(t, "echo", "{}")); !strings.HasPrefix(got, `{"attrs":"begun:'`) {
		t.Errorf("in the session: %s", got)
	}
	if r := c.Do("DELETE", "/mcp", "", "Mcp-Session-Id", c.Session.ID, "MCP-Protocol-Version", c.Session.Version); r.Status != 200 {
		t.Fatalf("status %d", r.Status)
	}
	edgetest.Until(t, "word of the end", func() bool { return strings.Count(e.Log(), "fields.ended=") == 1 })
	if strings.Contains(e.Log(), c.Session.ID) {
		t.Error("the log has a session's id")
	}
}
