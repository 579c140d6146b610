package edge_test

import (
	"context"
	"errors"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// setting is a credential that sets lines of these names to a value.
func setting(value edge.Secret, names ...string) *edge.Credential {
	return &edge.Credential{Name: string(value), Headers: names, Attach: func(_ context.Context, _ *edge.Outbound, set func(string, edge.Secret)) (uint64, error) {
		for _, n := range names {
			set(n, value)
		}
		return 1, nil
	}}
}

// TestCredentialWith: beside a credential go the lines of another that it does not set
// itself, by any name that may be taken for one; and none when either cannot be had.
func TestCredentialWith(t *testing.T) {
	lines := setting("line", "X-Tenant", "x_key")
	for name, test := range map[string]struct {
		c    *edge.Credential
		want map[string]edge.Secret
	}{
		"other names":  {setting("own", "Authorization"), map[string]edge.Secret{"Authorization": "own", "X-Tenant": "line", "x_key": "line"}},
		"a name twice": {setting("own", "X-Key"), map[string]edge.Secret{"X-Key": "own", "X-Tenant": "line"}},
		"no lines":     {&edge.Credential{Name: "none"}, map[string]edge.Secret{"X-Tenant": "line", "x_key": "line"}},
	} {
		both, got := test.c.With(lines), map[string]edge.Secret{}
		if _, err := both.Attach(t.Context(), nil, func(name string, v edge.Secret) { got[name] = v }); err != nil {
			t.Fatal(err)
		}
		if len(got) != len(test.want) || both.Name != test.c.Name {
			t.Errorf("%s: %v, named %q", name, got, both.Name)
		}
		for n, v := range test.want {
			if got[n] != v || !both.Sets(n) {
				t.Errorf("%s: %s is %q, sets %v", name, n, string(got[n]), both.Sets(n))
			}
		}
	}
	if c := setting("own", "X-Key"); c.With(nil) != c || c.With(&edge.Credential{}) != c {
		t.Error("nothing beside makes another credential")
	}
	failing := &edge.Credential{Headers: []string{"X-A"}, Attach: func(context.Context, *edge.Outbound, func(string, edge.Secret)) (uint64, error) {
		return 0, errors.New("away")
	}}
	for _, both := range []*edge.Credential{failing.With(lines), lines.With(failing)} {
		if _, err := both.Attach(t.Context(), nil, func(string, edge.Secret) {}); err == nil {
			t.Error("a credential that cannot be had is left out")
		}
	}
	var none *edge.Credential
	if none.Sets("X") || !edge.SameHeader("X_Key", "x-kEY") || edge.SameHeader("X-Key", "X-Keys") {
		t.Error("names of headers")
	}
}

// TestGenerations: the generation of two credentials is another when either is, and 0 when
// nothing is set.
func TestGenerations(t *testing.T) {
	seen := make(map[uint64][2]uint64)
	for a := range uint64(50) {
		for b := range uint64(50) {
			both := edge.Generations(a, b)
			if (both == 0) != (a == 0 && b == 0) {
				t.Errorf("%d and %d are %d", a, b, both)
			}
			if before, ok := seen[both]; ok && a != 0 && b != 0 {
				t.Errorf("%d and %d are the same as %v", a, b, before)
			}
			if a != 0 && b != 0 {
				seen[both] = [2]uint64{a, b}
			}
		}
	}
}
