package authz

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

var update = flag.Bool("update", false, "write the golden files")

// doubtsOf parses policies and returns what is doubtful about them, an error or
// a warning a line.
func doubtsOf(t *testing.T, spec Spec) string {
	t.Helper()
	p, errs := Parse(spec, field.NewPath("authz"))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	var b strings.Builder
	for _, d := range p.Doubts(field.NewPath("authz")) {
		severity := "warning"
		if d.Never {
			severity = "error"
		}
		fmt.Fprintf(&b, "%s: %s: %s\n", severity, d.Field, d.Text)
	}
	return b.String()
}

// What policies say of things that do not exist, in words.
func TestZ20Texts(t *testing.T) {
	var b strings.Builder
	for _, one := range []string{
		`permit(principal, action == Action::"tools/call", resource);`,
		`permit(principal, action == Action::"call_tol", resource);`,
		`@id("by role") permit(principal, action in [Action::"call_tool", Action::"delete"], resource);`,
		`forbid(principal, action in [Action::"x1", Action::"x2"], resource);`,
		`permit(principal, action == Action::"list_tools", resource);`,
		`permit(principal, action, resource == Tol::"x");`,
		`permit(principal == User::"alice", action, resource);`,
		`permit(principal in Group::"eng", action, resource in Server::"main");`,
		`permit(principal == THVGroup::"eng", action, resource);`,
		`permit(principal is THVGroup, action, resource);`,
		`permit(principal in Team::"eng", action, resource);`,
		`permit(principal, action, resource == Backend::"docs");`,
		`permit(principal, action == Tool::"x", resource);`,
		`permit(principal, action, resource) when { action == Action::"tools/list" || resource == Tol::"x" };`,
		`permit(principal, action, resource) when { resource is Tol };`,
		`permit(principal, action, resource) unless { resource in [Tol::"x"] };`,
		`permit(principal, action, resource) when { resource.readonlyHint };`,
		`permit(principal, action, resource) when { resource has readonlyHint && resource.readonlyHint };`,
		`permit(principal, action, resource) when { principal.claims_dept == "a" };`,
		`permit(principal, action, resource) when { context.env == "a" };`,
		`permit(principal, action, resource) when { context has claim_a && principal.arg_b == 1 };`,
		`permit(principal, action, resource) when { context.readOnlyHint };`,
		`permit(principal, action, resource) when { principal.claimset_scope.contains("a") };`,
		`permit(principal, action, resource) when { resource.owner == principal };`,
		`permit(principal, action, resource) when { principal.claim_dept == "a" };`,
		"permit(principal, action, resource);\n  @id(\"prod\")\n  forbid(principal, action, resource) when { context.arg_env == \"prod\" };",
		`permit(principal, action, resource) when { principal["claim_https://a.example/dept"] == "a" };`,
	} {
		fmt.Fprintf(&b, "%s\n%s\n", one, doubtsOf(t, Spec{Policies: []string{one}}))
	}
	golden(t, "testdata/doubts.golden", b.String())
}

// What does not parse hides nothing of what does.
func TestZ20Beside(t *testing.T) {
	spec := Spec{
		Policies:     []string{`permit(principal, acton, resource);`, `permit(principal, action == Action::"call", resource);`, `permit(` + strings.Repeat("(", maxNesting+1), `permit(principal);`},
		EntitiesJSON: `[]`, GroupEntityType: "no name",
	}
	doubts, errs := Judge(spec, field.NewPath("authz"))
	var at []string
	for _, e := range errs {
		at = append(at, e.Field)
	}
	if got := strings.Join(at, " "); got != "authz.groupEntityType authz.policies[2] authz.policies[0] authz.policies[3]" {
		t.Error(got)
	}
	if len(doubts) != 1 || doubts[0].Field != "authz.policies[1]" || !doubts[0].Never {
		t.Errorf("%+v", doubts)
	}
	spec.EntitiesJSON = `[{"uid": {"type": "A", "id": "1"}, "attr": {}}, {"uid": {"type": "B", "id": "1"}, "parent": []}]`
	doubts, errs = Judge(spec, field.NewPath("authz"))
	if len(doubts) != 0 || len(errs) != 5 || !strings.Contains(errs[4].Detail, "entity 0: ") || !strings.Contains(errs[4].Detail, "; entity 1: ") {
		t.Errorf("%+v %v", doubts, errs)
	}
	document, errs := FromDocument([]byte(`{"version":"2","type":"policyv1","policy":{"policies":["permit(principal, acton, resource);"]}}`), field.NewPath("data"))
	if len(errs) != 1 || document.Set == nil {
		t.Errorf("%v %+v", errs, document)
	}
}

// golden compares text with a file. The flag -update writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs, got:\n%s", name, got)
	}
}

// What an author may mean is left alone.
func TestZ20Quiet(t *testing.T) {
	entities := `[
		{"uid": {"type": "Tool", "id": "deploy"}, "attrs": {"owner": {"__entity": {"type": "User", "id": "bob"}}, "tier": "gold"}, "parents": [{"type": "Kit", "id": "k"}]},
		{"uid": {"type": "Client", "id": "bob"}, "attrs": {"level": 3}, "parents": [{"type": "Crew", "id": "c"}]},
		{"uid": {"type": "Action", "id": "call_tool"}, "attrs": {}, "parents": [{"type": "Action", "id": "write"}]}
	]`
	for _, one := range []string{
		`permit(principal, action, resource);`,
		`permit(principal == Client::"a", action == Action::"call_tool", resource == Tool::"x");`,
		`permit(principal in THVGroup::"a", action in [Action::"get_prompt", Action::"read_resource"], resource in MCP::"main");`,
		`permit(principal is Client in Crew::"c", action in Action::"write", resource is Tool in Kit::"k");`,
		`permit(principal, action, resource in Backend::"b") when { resource.owner == User::"bob" && resource.tier == "gold" };`,
		`permit(principal, action, resource) when { principal.level > 2 && principal in [Crew::"c", THVGroup::"x"] };`,
		`permit(principal, action, resource == FeatureType::"tool");`,
		`permit(principal, action, resource) when { resource.name == "x" && resource.feature == "tool" && resource.operation == "call" && resource.backend == "b" && resource.originalName like "a*" && resource.uri like "file:*" };`,
		`permit(principal, action, resource) when { resource.readOnlyHint == true && resource has destructiveHint };`,
		`permit(principal, action, resource) when { principal.claim_sub == "alice" && context.claim_sub == "alice" };`,
		// Ways to ask before reading.
		`permit(principal, action, resource) when { principal has claim_a && principal.claim_a == "x" };`,
		`permit(principal, action, resource) when { principal has claim_a } when { principal.claim_a == "x" };`,
		`permit(principal, action, resource) unless { !(principal has claim_a) } when { principal.claim_a == "x" };`,
		`permit(principal, action, resource) when { principal has claim_a && context.claim_a == "x" };`,
		`permit(principal, action, resource) when { context has arg_a && resource.arg_a == "x" };`,
		`permit(principal, action, resource) when { if context has arg_a then context.arg_a == 1 else true };`,
		`permit(principal, action, resource) when { !(context has arg_a) || context.arg_a == 1 };`,
		`permit(principal, action, resource) when { !(context has arg_a && context.arg_a == 1) };`,
		`permit(principal, action, resource) when { (context has arg_a && context has arg_b) && (context.arg_a == 1 || context.arg_b == 2) };`,
		`permit(principal, action, resource) when { false && context.arg_c == 1 };`,
		`permit(principal, action, resource) when { ((context has arg_a && true) || (resource has arg_a && resource.arg_a == 1)) && context.arg_a == 2 };`,
		`permit(principal, action, resource) when { (if context has arg_a then true else false) && context.arg_a == 2 };`,
		`permit(principal, action, resource) when { (context has arg_a) == true && context.arg_a == 2 };`,
		`permit(principal, action, resource) when { (context has arg_a) == false || context.arg_a == 2 };`,
		`permit(principal, action, resource) when { true == (context has arg_a) && [context.arg_a].contains(2) };`,
		`permit(principal, action, resource) when { context has arg_a_present && context.arg_a has b && context.arg_a.b == 2 };`,
		`permit(principal, action, resource) when { context has arg_a.b && context.arg_a.b == 2 };`,
		`permit(principal, action, resource) when { context has "arg_a b" && context["arg_a b"] == 2 };`,
		`permit(principal, action, resource) when { context == {"arg_a": 1} };`,
	} {
		if got := doubtsOf(t, Spec{Policies: []string{one}, EntitiesJSON: entities}); got != "" {
			t.Errorf("%s\n%s", one, got)
		}
	}
	if got := doubtsOf(t, Spec{Policies: []string{`permit(principal in Team::"a", action, resource) when { principal has claimset_scope && principal.claimset_scope.contains("a") };`}, GroupEntityType: "Team", MultiValuedClaims: []string{"scope"}}); got != "" {
		t.Error(got)
	}
}

// Where a guard does not come before what it guards, the reading is doubtful.
func TestZ20Unguarded(t *testing.T) {
	for _, one := range []string{
		`permit(principal, action, resource) when { context.arg_a == 1 && context has arg_a };`,
		`permit(principal, action, resource) when { context.arg_a == 1 } when { context has arg_a };`,
		`permit(principal, action, resource) unless { context has arg_a } when { context.arg_a == 1 };`,
		`permit(principal, action, resource) when { context has arg_a || context.arg_a == 1 };`,
		`permit(principal, action, resource) when { (context has arg_a || resource.name == "x") && context.arg_a == 1 };`,
		`permit(principal, action, resource) when { if context has arg_a then true else context.arg_a == 1 };`,
		`permit(principal, action, resource) when { (if resource.name == "x" then context has arg_a else true) && context.arg_a == 1 };`,
		`permit(principal, action, resource) when { !(context has arg_a) && context.arg_a == 1 };`,
		`permit(principal, action, resource) when { context has arg_b && context.arg_a == 1 };`,
		`permit(principal, action, resource) when { (context has arg_a) == (resource.name == "x") && context.arg_a == 1 };`,
		`permit(principal, action, resource) when { (context has arg_a) != true && context.arg_a == 1 };`,
		`permit(principal, action, resource) when { {"a": context.arg_a} == {"a": 1} };`,
		`permit(principal, action, resource) when { ip(context.arg_a).isLoopback() };`,
		`permit(principal, action, resource) when { context.arg_a.b == 1 };`,
		`permit(principal, action, resource) when { context.arg_a has b };`,
		`permit(principal, action, resource) when { principal in [context.arg_a] };`,
		`permit(principal, action, resource) when { context.arg_a like "x*" };`,
		`permit(principal, action, resource) when { -context.arg_a == 1 };`,
	} {
		if got := doubtsOf(t, Spec{Policies: []string{one}}); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "warning: ") || !strings.Contains(got, "arg_a, which need not be there") {
			t.Errorf("%s\n%s", one, got)
		}
	}
}

// A policy of random guards of which nothing is doubtful does not fail, whatever
// arguments a call has; and what applies to nothing is said of none that
// applies to something.
func TestZ20Sound(t *testing.T) {
	r := random{rand.New(rand.NewPCG(20, 20))}
	quiet, failed := 0, 0
	for range 4_000 {
		text := `permit(principal, action, resource)`
		for range 1 + r.IntN(2) {
			text += r.of(" when { ", " unless { ") + r.guarded(4) + " }"
		}
		p, errs := Parse(Spec{Policies: []string{text + ";"}}, field.NewPath("authz"))
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		doubts, never := p.Doubts(nil), false
		for _, d := range doubts {
			never = never || d.Never
		}
		if len(doubts) == 0 {
			quiet++
		}
		for n := range 8 {
			arguments := map[string]any{}
			for i, name := range []string{"a", "b", "c"} {
				if n>>i&1 == 1 {
					arguments[name] = true
				}
			}
			e, err := p.Explain(&Question{Subject: "s", Tool: "t", Arguments: arguments})
			if err != nil {
				t.Fatal(err)
			}
			if len(e.Errors) > 0 {
				failed++
			}
			if len(doubts) == 0 && len(e.Errors) > 0 {
				t.Fatalf("fails with %v, and nothing is said of it: %s", arguments, text)
			}
			if never && e.Allowed {
				t.Fatalf("applies with %v, and is said to apply to nothing: %s\n%v", arguments, text, doubts)
			}
		}
	}
	if quiet < 200 || failed < 1_000 {
		t.Errorf("%d policies without a doubt, %d decisions that fail", quiet, failed)
	}
}

// guarded writes a random expression of guards and readings.
func (r random) guarded(depth int) string {
	if depth == 0 || r.IntN(6) == 0 {
		name := r.of("arg_a", "arg_b", "arg_c")
		return r.of("context has "+name, "context has "+name, "resource has "+name, "context."+name, "resource."+name, "true", "false",
			`resource == Tool::"t"`, `resource == Tol::"t"`, `resource in [Tol::"t", Tool::"t"]`, `action == Action::"tools/call"`, `resource.readonlyHint`, `resource has readonlyHint`)
	}
	one, two := r.guarded(depth-1), r.guarded(depth-1)
	switch r.IntN(7) {
	case 0, 1, 2:
		return "(" + one + " && " + two + ")"
	case 3:
		return "(" + one + " || " + two + ")"
	case 4:
		return "!(" + one + ")"
	case 5:
		return "((" + one + ") == " + r.of("true", "false", "("+two+")") + ")"
	}
	return "(if " + r.guarded(depth-1) + " then " + one + " else " + two + ")"
}

// A large policy is walked in time that grows with its size.
func TestZ20Large(t *testing.T) {
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i, i)
		}
		return b.String()
	}
	for name, one := range map[string]string{
		"a chain":  `permit(principal, action, resource) when { ` + many(1_500, `context has arg_a%d && context.arg_a%d == 1 && `) + `true };`,
		"a nest":   `permit(principal, action, resource) when { ` + strings.Repeat("(context has arg_a && !", 400) + "true" + strings.Repeat(")", 400) + ` };`,
		"a set":    `permit(principal, action, resource) when { resource in [` + many(2_000, `Tol%d::"t%d", `) + `Tool::"t"] };`,
		"the same": many(9_000, `permit(principal, action == Action::"a%d%d", resource);`),
	} {
		start := time.Now()
		got := doubtsOf(t, Spec{Policies: []string{one}})
		if spent := time.Since(start); spent > 10*time.Second {
			t.Errorf("%s: %v", name, spent)
		}
		if n := strings.Count(got, "\n"); n > maxDoubts {
			t.Errorf("%s: %d doubts", name, n)
		}
	}
}
