package outgoing

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
)

// claimsOf reads claims as those of a token are read: numbers stay texts.
func claimsOf(t testing.TB, text string) (claims map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// rolesOf reads mappings, which are right.
func rolesOf(t testing.TB, fallback string, all ...mapping) *roles {
	t.Helper()
	r := &reader{}
	out := r.parseRoles(field.NewPath("cloudSts"), "", fallback, all)
	if len(r.errs) > 0 {
		t.Fatal(r.errs)
	}
	return &out
}

func priority(n int64) *int64 { return &n }

// Which role is chosen, or why none is.
func TestT22T23RolesOfClaims(t *testing.T) {
	const claims = `{"sub":"alice","groups":["eng","ops"],"team":"blue","level":7,"ratio":0.5,"big":9223372036854775808,"admin":true,"nested":{"a":{"b":[1,2]}},"none":null}`
	on := func(matcher string) []mapping { return []mapping{{role: "matched", matcher: matcher}} }
	for name, c := range map[string]struct {
		rules []mapping
		want  string // a role, or "403"
	}{
		"a value of a list":              {[]mapping{{role: "a", claim: "sales"}, {role: "b", claim: "ops"}}, "b"},
		"no value":                       {[]mapping{{role: "a", claim: "sales"}}, "fallback"},
		"a text":                         {on(`claims.team == "blue"`), "matched"},
		"a member":                       {on(`"eng" in claims.groups`), "matched"},
		"a whole number":                 {on(`claims.level >= 7 && claims.level < 8`), "matched"},
		"a number":                       {on(`claims.ratio == 0.5`), "matched"},
		"a number above int64":           {on(`claims.big > 1.0`), "matched"},
		"nested":                         {on(`claims.nested.a.b.exists(x, x == 2)`), "matched"},
		"a key that is none":             {on(`claims.absent == "x"`), "fallback"},
		"a key that is none, nested":     {on(`claims.nested.x.y == "x"`), "fallback"},
		"a key that is none, or another": {on(`claims.absent == "x" || claims.admin`), "matched"},
		"an index that is none":          {on(`claims["absent"]`), "fallback"},
		"has":                            {on(`has(claims.absent) && claims.absent == 1`), "fallback"},
		"null":                           {on(`claims.none == null`), "matched"},
		"a value that is no bool":        {on(`claims.team`), "403"},
		"a kind that does not fit":       {on(`claims.team < 7`), "403"},
		"a list that is too short":       {on(`claims.groups[5] == "x"`), "403"},
		"a division by zero":             {on(`claims.level / 0 == 1`), "403"},
		"an error is not the next rule":  {[]mapping{{role: "a", matcher: `claims.team > 7`}, {role: "b", claim: "ops"}}, "403"},
		"the first that matches":         {[]mapping{{role: "a", claim: "ops"}, {role: "b", matcher: `claims.team > 7`}}, "a"},
		"lower priorities first":         {[]mapping{{role: "a", claim: "ops", priority: priority(2)}, {role: "b", claim: "ops", priority: priority(1)}}, "b"},
		"no priority comes last":         {[]mapping{{role: "a", claim: "ops"}, {role: "b", claim: "ops", priority: priority(1 << 30)}}, "b"},
		"order breaks ties":              {[]mapping{{role: "a", claim: "ops", priority: priority(1)}, {role: "b", claim: "ops", priority: priority(1)}}, "a"},
		"0 comes first":                  {[]mapping{{role: "a", claim: "ops", priority: priority(1)}, {role: "b", claim: "ops", priority: priority(0)}}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, fallback := range []string{"fallback", ""} {
				role, err := rolesOf(t, fallback, c.rules...).of(t.Context(), claimsOf(t, claims))
				want := c.want
				if want == "fallback" && fallback == "" {
					want = "403"
				}
				if want == "403" {
					if edge.KindOf(err) != edge.Denied || role != "" || strings.Contains(err.Error(), "blue") {
						t.Errorf("%q, %v", role, err)
					}
				} else if role != want || err != nil {
					t.Errorf("%q, %v, want %q", role, err, want)
				}
			}
		})
	}
	if role, err := rolesOf(t, "fallback", mapping{role: "a", matcher: `has(claims.x)`}).of(t.Context(), nil); role != "fallback" || err != nil {
		t.Errorf("a token without claims: %q, %v", role, err)
	}
	one := &roles{claim: "team", rules: []rule{{role: "a", value: "blue"}}}
	if role, err := one.of(t.Context(), claimsOf(t, claims)); role != "a" || err != nil {
		t.Errorf("a claim that is one text: %q, %v", role, err)
	}
}

// What an expression may cost, and how long one takes that costs more.
func TestT23F13Cost(t *testing.T) {
	groups := make([]any, 300)
	for i := range groups {
		groups[i] = fmt.Sprintf("group-%d", i)
	}
	claims := map[string]any{"groups": groups}
	long := strings.Repeat("a", 1<<20)
	for name, matcher := range map[string]string{
		"three loops":   `claims.groups.all(a, claims.groups.all(b, claims.groups.all(c, a + b + c != "")))`,
		"a long text":   `claims.groups.map(a, a + claims.long).map(a, a + a).map(a, a + a + a + a).size() > 1000`,
		"long texts":    `claims.groups.all(a, claims.long + a > claims.long)`,
		"a long list":   `claims.groups.all(a, claims.groups.all(b, (a + b) in claims.groups == false))`,
		"a long search": `claims.groups.all(a, claims.long.matches("(a*)*b" + a) == false)`,
	} {
		claims["long"] = long
		began := time.Now()
		role, err := rolesOf(t, "fallback", mapping{role: "a", matcher: matcher}).of(t.Context(), claims)
		if edge.KindOf(err) != edge.Denied || role != "" || !strings.Contains(err.Error(), "costs more than") {
			t.Errorf("%s: %q, %v", name, role, err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if role, err := rolesOf(t, "fallback", mapping{role: "a", matcher: `claims.groups.all(a, claims.groups.all(b, a + b != ""))`}).of(ctx, claims); edge.KindOf(err) != edge.Denied || role != "" {
		t.Errorf("a call that has ended: %q, %v", role, err)
	}
}

// What is wrong with an expression is said where it stands.
func TestT23Start(t *testing.T) {
	for matcher, want := range map[string]string{
		`claims.groups.exists(g`:       "must be a CEL expression: line 1, column",
		"true &&\nnobody == 1":         "line 2, column 1: undeclared reference to 'nobody'",
		`"eng"`:                        "must be an expression of type bool, not string",
		`claims.size()`:                "must be an expression of type bool, not int",
		strings.Repeat("true&&", 2000): "must have at most 8192 bytes",
		strings.Repeat("(", 1000):      "must be a CEL expression",

		`claims.email.matches('^(a|b@x.de$')`: "error parsing regexp: missing closing )",
		`matches(claims.email, '[')`:          "error parsing regexp: missing closing ]",
	} {
		r := &reader{}
		r.parseRoles(field.NewPath("cloudSts"), "", "", []mapping{{role: "a", claim: "b"}, {role: "a", matcher: matcher}})
		if len(r.errs) != 1 || r.errs[0].Field != "cloudSts.roleMappings[1].matcher" || !strings.Contains(r.errs[0].Detail, want) {
			t.Errorf("%.40q: %v, want %q", matcher, r.errs, want)
		}
	}
	for path, m := range map[string]mapping{
		"cloudSts.roleMappings[0].roleArn": {claim: "a"},
		"cloudSts.roleMappings[0].claim":   {role: "a"},
		"cloudSts.roleMappings[0].matcher": {role: "a", claim: "a", matcher: "true"},
	} {
		r := &reader{}
		r.parseRoles(field.NewPath("cloudSts"), "", "", []mapping{m})
		if len(r.errs) != 1 || r.errs[0].Field != path {
			t.Errorf("%+v: %v", m, r.errs)
		}
	}
	r := &reader{}
	if r.parseRoles(field.NewPath("cloudSts"), "", "", nil); len(r.errs) != 1 || r.errs[0].Field != "cloudSts.fallbackRoleArn" {
		t.Error(r.errs)
	}
}

// What a session is called after whatever a claim holds.
func TestT24(t *testing.T) {
	for claim, want := range map[string]string{
		"alice":                          "alice",
		"alice@example.com":              "alice@example.com",
		"A_z0+=,.@-":                     "A_z0+=,.@-",
		"auth0|123":                      "auth0-123-",
		"müller":                         "m-ller-",
		"a b":                            "a-b-",
		"a\tb":                           "a-b-",
		"\xff\xfe":                       "---",
		"x":                              "x-",
		strings.Repeat("a", 55):          strings.Repeat("a", 55),
		strings.Repeat("a", 56):          strings.Repeat("a", 55) + "-",
		strings.Repeat("ä", 70):          strings.Repeat("-", 55) + "-",
		strings.Repeat("a", 1<<16) + "/": strings.Repeat("a", 55) + "-",
	} {
		got := sessionName(claim)
		if !regexp.MustCompile(`^[\w+=,.@-]{2,64}$`).MatchString(got) {
			t.Errorf("%.20q: %q is no name of a session", claim, got)
		}
		if rest, ok := strings.CutPrefix(got, want); !ok || got != want && !regexp.MustCompile(`^[0-9a-f]{8}$`).MatchString(rest) {
			t.Errorf("%.20q: %q, want %q", claim, got, want)
		}
	}
	for _, claim := range []string{"a b", "müller"} {
		if n := sessionName(claim); sessionName(n) == n {
			t.Errorf("%q is the name of %q and of itself", n, claim)
		}
	}
	seen := map[string]string{}
	for _, claim := range []string{"a b", "a-b", "a/b", "a|b", "a?b", strings.Repeat("a", 60), strings.Repeat("a", 61), strings.Repeat("a", 54) + "/x", strings.Repeat("a", 54) + "/y"} {
		if other, ok := seen[sessionName(claim)]; ok {
			t.Errorf("%q and %q have one name", claim, other)
		}
		seen[sessionName(claim)] = claim
	}
}
