package authz

import (
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// said makes attributes of names and JSON texts.
func said(pairs ...string) (all edge.Attributes) {
	for i := 0; i < len(pairs); i += 2 {
		all = all.Set(pairs[i], pairs[i+1])
	}
	return all
}

// TestZ34Attributes: policies read what programs say of a client, in every type
// that claims have, and only what they say.
func TestZ34Attributes(t *testing.T) {
	t.Parallel()
	set := policies(t,
		`permit(principal, action, resource) when { principal has attr_team && principal.attr_team == "admins" };`,
		`permit(principal, action, resource) when { principal has attr_level && principal.attr_level >= 3 };`,
		`permit(principal, action, resource) when { principal has attr_ok && principal.attr_ok };`,
		`permit(principal, action, resource) when { principal has attr_groups && principal.attr_groups.contains("a") };`,
	)
	j := newCedarJudge(set)
	a := ask{server: "m", thing: edge.Target{Thing: edge.Tool, Name: "t", Original: "t", Backend: "b"}}
	claims := map[string]any{"attr_team": "admins", "team": "admins", "attr": map[string]any{"team": "admins"}, "attr_ok": true, "groups": []any{"attr_team"}}
	plain := person("alice", claims)
	for name, c := range map[string]struct {
		who  client
		want bool
	}{
		"claims of these names":    {client{id: plain}, false},
		"a string":                 {client{id: plain, said: said("team", `"admins"`)}, true},
		"another string":           {client{id: plain, said: said("team", `"users"`)}, false},
		"a number":                 {client{id: plain, said: said("level", "3")}, true},
		"a smaller number":         {client{id: plain, said: said("level", "2")}, false},
		"a boolean":                {client{id: plain, said: said("ok", "true")}, true},
		"a set":                    {client{id: plain, said: said("groups", `["b","a"]`)}, true},
		"under another name":       {client{id: plain, said: said("attr_team", `"admins"`)}, false},
		"a text that is a number":  {client{id: plain, said: said("level", `"3"`)}, false},
		"of the identity":          {client{id: &edge.Identity{Subject: "bob", Attributes: said("team", `"admins"`)}}, true},
		"the message says another": {client{id: &edge.Identity{Subject: "bob", Attributes: said("team", `"admins"`)}, said: said("team", `"users"`)}, false},
	} {
		for range 2 { // decided, and then kept
			if got := j.decide(t.Context(), c.who, &a); got.Allowed != c.want {
				t.Errorf("%s: %v", name, got)
			}
		}
		if got := j.view(t.Context(), "m", c.who).Allows(&a.thing); got != c.want && len(j.decide(t.Context(), c.who, &a).Errors) == 0 {
			t.Errorf("%s: in a list: %v", name, got)
		}
	}
	if j.view(t.Context(), "m", client{id: plain}).Key() == j.view(t.Context(), "m", client{id: plain, said: said("team", `"admins"`)}).Key() {
		t.Error("two who see different lists share one")
	}
	if j.view(t.Context(), "m", client{id: plain}).Key() != j.view(t.Context(), "m", client{id: plain, said: said("colour", `"red"`)}).Key() {
		t.Error("an attribute that no policy reads parts two who see the same")
	}
}

// TestZ34NoEntityHasAttributes: the entities of a set cannot say what programs
// alone say.
func TestZ34NoEntityHasAttributes(t *testing.T) {
	t.Parallel()
	_, err := parseEntities(`[{"uid":{"type":"Client","id":"alice"},"attrs":{"attr_team":"admins"},"parents":[]}]`)
	if err == nil || !strings.Contains(err.Error(), `attrs.attr_team of Client::"alice": what begins with attr_ is what filters say of a client: use another name`) {
		t.Errorf("got %v", err)
	}
	if _, err := parseEntities(`[{"uid":{"type":"Tool","id":"t"},"attrs":{"attr_team":"admins"},"parents":[]}]`); err != nil {
		t.Errorf("of a tool: %v", err)
	}
}

// TestZ34Doubts: every attribute of filters is possible, of principals alone, and
// need not be there.
func TestZ34Doubts(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]string{
		`permit(principal, action, resource) when { principal has attr_team && principal.attr_team == "a" };`: "",
		`permit(principal, action, resource) when { principal.attr_team == "a" };`: "reads principal.attr_team, which need not be there: a client without the attribute team makes the policy fail, and is denied whatever others permit: " +
			"write `principal has attr_team && principal.attr_team …`",
		`permit(principal, action, resource) when { context has attr_team };`:  "context has no attribute attr_team: what filters say of a client is principal.attr_team",
		`permit(principal, action, resource) when { resource has attr_team };`: "resource has no attribute attr_team: what filters say of a client is principal.attr_team",
	} {
		if got := doubtsOf(t, Spec{Policies: []string{policy}}); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %s", policy, got)
		}
	}
}
