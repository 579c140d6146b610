package authz

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cedar-policy/cedar-go"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
)

// random makes policy sets and requests that meet each other often.
type random struct{ *rand.Rand }

func (r random) of(list ...string) string { return list[r.IntN(len(list))] }

// atom is an expression without parts; one of arguments only when asked for.
func (r random) atom(arguments bool) string {
	if arguments && r.IntN(3) == 0 {
		return r.of(
			`context.arg_x == 1`, `context has arg_x`, `context.arg_x > 1`, `resource.arg_y == "q"`, `resource has arg_y`,
			`context.arg_x`, `context has arg_x && context.arg_x == 2`, `context == {"arg_x": 1}`, `[context.arg_x].contains(2)`,
			`(if principal has claim_role then context else {"arg_x": 1}).arg_x == 1`,
		)
	}
	return r.of(
		`true`, `false`, `principal.claim_role == "a"`, `principal has claim_role`, `principal has claim_role && principal.claim_role == "b"`,
		`resource.readOnlyHint`, `resource has readOnlyHint && resource.readOnlyHint`, `resource.name like "t*1"`,
		`principal in THVGroup::"g1"`, `principal == Client::"s1"`, `principal != Client::"s2"`, `resource in Backend::"b0"`,
		`resource.backend == "b1"`, `context.claim_level < 2`, `resource has owner && resource.owner == principal`,
		`resource has owner && resource.owner in THVGroup::"g2"`, `[principal, Client::"s0"].contains(Client::"s1")`,
		`principal.claim_team.contains("x")`, `principal in [THVGroup::"g0", THVGroup::"g3"]`, `resource in MCP::"m"`, `principal is Client`,
		`principal has boss && principal.boss == Client::"s3"`, `context has claim_level`, `resource.originalName == "o2"`,
	)
}

func (r random) expression(depth int, arguments bool) string {
	if depth == 0 || r.IntN(3) == 0 {
		return r.atom(arguments)
	}
	one, two := r.expression(depth-1, arguments), r.expression(depth-1, arguments)
	switch r.IntN(5) {
	case 0, 1:
		return "(" + one + ") && (" + two + ")"
	case 2:
		return "(" + one + ") || (" + two + ")"
	case 3:
		return "!(" + one + ")"
	}
	return "if " + r.atom(arguments) + " then (" + one + ") else (" + two + ")"
}

func (r random) policy(arguments bool) string {
	var b strings.Builder
	b.WriteString(r.of("permit", "permit", "permit", "forbid"))
	b.WriteString("(" + r.of("principal", "principal", `principal == Client::"s1"`, `principal in THVGroup::"g1"`, `principal in THVGroup::"g2"`, "principal is Client", `principal is Client in THVGroup::"g0"`, "principal is Robot"))
	b.WriteString(", " + r.of("action", `action == Action::"call_tool"`, `action in [Action::"call_tool", Action::"write"]`, `action in Action::"write"`, `action == Action::"get_prompt"`))
	b.WriteString(", " + r.of("resource", "resource", `resource == Tool::"t1"`, `resource in Backend::"b0"`, `resource in MCP::"m"`, "resource is Tool", `resource is Tool in Kit::"k"`, `resource is Prompt in MCP::"m"`) + ")")
	for range r.IntN(3) {
		b.WriteString(r.of(" when { ", " unless { ") + r.expression(2, arguments) + " }")
	}
	return b.String() + ";"
}

func (r random) set(t testing.TB, arguments bool) *Policies {
	var texts []string
	for range 1 + r.IntN(6) {
		texts = append(texts, r.policy(arguments))
	}
	p, errs := Parse(Spec{Policies: texts, EntitiesJSON: r.of("", `[
		{"uid": {"type": "Tool", "id": "t0"}, "attrs": {"owner": {"__entity": {"type": "Client", "id": "s1"}}}, "parents": [{"type": "Kit", "id": "k"}]},
		{"uid": {"type": "Tool", "id": "t2"}, "attrs": {"readOnlyHint": false}, "parents": []},
		{"uid": {"type": "Client", "id": "s2"}, "attrs": {"boss": {"__entity": {"type": "Client", "id": "s3"}}}, "parents": [{"type": "THVGroup", "id": "g2"}]},
		{"uid": {"type": "THVGroup", "id": "g0"}, "attrs": {}, "parents": [{"type": "THVGroup", "id": "g1"}]},
		{"uid": {"type": "THVGroup", "id": "g1"}, "attrs": {}, "parents": [{"type": "THVGroup", "id": "g3"}]},
		{"uid": {"type": "Action", "id": "call_tool"}, "attrs": {}, "parents": [{"type": "Action", "id": "write"}]}
	]`)}, field.NewPath("authz"))
	if len(errs) > 0 {
		t.Fatalf("%v\n%s", errs.ToAggregate(), strings.Join(texts, "\n"))
	}
	return p
}

func (r random) identity() *edge.Identity {
	id := &edge.Identity{Issuer: "i", Subject: r.of("s0", "s1", "s2", "s4"), Claims: map[string]any{}}
	var groups []any
	for range r.IntN(3) {
		groups = append(groups, r.of("g0", "g1", "g2", "g4"))
	}
	if groups != nil {
		id.Claims["groups"] = groups
	}
	if role := r.of("", "a", "b"); role != "" {
		id.Claims["role"] = role
	}
	if r.IntN(2) == 0 {
		id.Claims["level"] = json.Number(r.of("1", "3"))
	}
	if r.IntN(2) == 0 {
		id.Claims["team"] = []any{r.of("x", "y")}
	}
	if r.IntN(2) == 0 {
		id.Claims["noise"] = itoa(r.IntN(1000))
	}
	return id
}

func (r random) tool() edge.Target {
	name := r.of("t0", "t1", "t2", "u1")
	t := edge.Target{Thing: edge.Tool, Name: name, Original: "o" + name[1:], Backend: r.of("b0", "b1")}
	if yes := r.IntN(2) == 0; r.IntN(2) == 0 {
		t.ReadOnly = &yes
	}
	return t
}

// choices are the arguments that the atoms tell apart, and none.
func choices() [][]byte {
	list := [][]byte{nil}
	for _, x := range []string{"", `"x":1`, `"x":2`, `"x":3`, `"x":"s"`, `"x":true`, `"x":false`, `"x":null`} {
		for _, y := range []string{"", `"y":"q"`, `"y":"r"`} {
			list = append(list, []byte("{"+strings.Trim(x+","+y, ",")+"}"))
		}
	}
	return list
}

// TestC13 compares what lists show with what calls get: the same where policies
// read no arguments, and otherwise at least what some choice of arguments gets.
func TestC13(t *testing.T) {
	r := random{rand.New(rand.NewPCG(13, 13))}
	shown, hidden, open, tight := 0, 0, 0, 0
	for trial := range 10_000 {
		p := r.set(t, trial%2 == 0)
		j := newCedarJudge(p)
		id, tool := r.identity(), r.tool()
		view := j.view(t.Context(), "m", client{id: id})
		visible := view.Allows(&tool)
		callable := false
		for _, arguments := range choices() {
			a := ask{server: "m", thing: tool, arguments: arguments}
			callable = callable || j.decide(t.Context(), client{id: id}, &a).Allowed
		}
		switch {
		case callable && !visible:
			t.Fatalf("trial %d: callable and yet hidden: %s", trial, describe(p, id, tool))
		case visible && !callable && !j.readsArguments():
			t.Fatalf("trial %d: shown and yet denied: %s", trial, describe(p, id, tool))
		}
		switch {
		case visible && j.readsArguments():
			open++
			if callable {
				tight++
			}
		case visible:
			shown++
		default:
			hidden++
		}
	}
	t.Logf("shown %d, hidden %d, open %d (of which callable by some arguments %d)", shown, hidden, open, tight)
	if shown < 500 || hidden < 500 || open < 500 {
		t.Error("the trials do not reach every kind of answer")
	}
}

func describe(p *Policies, id *edge.Identity, tool edge.Target) string {
	var b strings.Builder
	for i := range p.policies {
		b.Write(p.policies[i].compiled.MarshalCedar())
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s %v %+v", id.Subject, id.Claims, tool)
	return b.String()
}

// TestIndexFindsWhatAWalkFinds compares the decisions of the index with those of
// the library's walk over all policies: decision, reasons and errors.
func TestIndexFindsWhatAWalkFinds(t *testing.T) {
	r := random{rand.New(rand.NewPCG(7, 7))}
	allowed, failed := 0, 0
	for trial := range 5_000 {
		p := r.set(t, true)
		id, tool := r.identity(), r.tool()
		who := p.principalOf(id, id.Claims, nil)
		arguments := choices()[r.IntN(len(choices()))]
		j := newCedarJudge(p)
		a := ask{server: "m", thing: tool, arguments: arguments}
		read, err := j.arguments(&a)
		if err != nil {
			t.Fatal(err)
		}
		e := p.decide(t.Context(), who, &a, read)

		flat := *p
		flat.index = branch{}
		flat.reads.mentioned = maps.Clone(p.reads.mentioned) // so that no group is left out
		for i := range 5 {
			flat.reads.mentioned[cedar.NewEntityUID(DefaultGroupEntityType, cedar.String("g"+itoa(i)))] = struct{}{}
		}
		everything := child(&flat.index.typed, typeClient)
		everything.any = &branch{any: &branch{}}
		for i := range p.policies {
			everything.any.any.policies = append(everything.any.any.policies, int32(i))
		}
		want := flat.decide(t.Context(), flat.principalOf(id, id.Claims, nil), &a, read)
		if e.String() != want.String() {
			t.Fatalf("trial %d: %s\nall: %s\n%s %s", trial, e, want, describe(p, id, tool), arguments)
		}
		if e.Allowed {
			allowed++
		}
		if len(e.Errors) > 0 {
			failed++
		}
	}
	if allowed < 200 || failed < 200 {
		t.Errorf("%d allowed, %d with errors: the trials do not reach every kind of answer", allowed, failed)
	}
}

// TestEqualKeysGetEqualDecisions holds the promise that decisions and lists can
// be shared by principals that the policies cannot tell apart.
func TestEqualKeysGetEqualDecisions(t *testing.T) {
	r := random{rand.New(rand.NewPCG(3, 3))}
	shared := 0
	for trial := range 400 {
		p := r.set(t, true)
		j := newCedarJudge(p)
		tools := []edge.Target{r.tool(), r.tool(), r.tool()}
		seen := map[string]string{}
		who := map[string]string{}
		for range 8 {
			id := r.identity()
			principal := p.principalOf(id, id.Claims, nil)
			var b strings.Builder
			for _, tool := range tools {
				for _, arguments := range choices() {
					a := ask{server: "m", thing: tool, arguments: arguments}
					read, err := j.arguments(&a)
					if err != nil {
						t.Fatal(err)
					}
					b.WriteString(anonymous(p.decide(t.Context(), principal, &a, read)) + "\n")
				}
				a := ask{server: "m", thing: tool, open: true}
				b.WriteString(anonymous(p.decide(t.Context(), principal, &a, nil)) + "\n")
			}
			about := fmt.Sprint(id.Subject, id.Claims)
			if before, ok := seen[principal.key]; ok {
				if before != b.String() {
					t.Fatalf("trial %d: %s and %s have one key and different decisions:\n%s", trial, about, who[principal.key], describe(p, id, tools[0]))
				}
				if about != who[principal.key] {
					shared++
				}
			}
			seen[principal.key], who[principal.key] = b.String(), about
		}
	}
	t.Logf("%d keys shared by different principals", shared)
	if shared < 200 {
		t.Error("hardly any principals share a key")
	}
}

// anonymous is an explanation without the text of errors, which names the
// principal.
func anonymous(e *Explanation) string {
	c := *e
	c.Errors = slices.Clone(e.Errors)
	for i := range c.Errors {
		c.Errors[i].What = ""
	}
	return c.String()
}

// TestKeptDecisionsAreTheDecisions asks a judge the same things in random order
// and compares with a judge that keeps nothing.
func TestKeptDecisionsAreTheDecisions(t *testing.T) {
	r := random{rand.New(rand.NewPCG(5, 5))}
	for range 200 {
		p := r.set(t, true)
		j := newCedarJudge(p)
		var people []*edge.Identity
		for range 4 {
			people = append(people, r.identity())
		}
		for range 60 {
			id := people[r.IntN(len(people))]
			a := ask{server: r.of("m", "n"), thing: r.tool(), open: r.IntN(3) == 0, arguments: choices()[r.IntN(len(choices()))]}
			got := j.decide(t.Context(), client{id: id}, &a)
			read, err := j.arguments(&a)
			if err != nil {
				t.Fatal(err)
			}
			want := p.decide(t.Context(), p.principalOf(id, id.Claims, nil), &a, read)
			if got.String() != want.String() {
				t.Fatalf("kept %s, fresh %s\n%s", got, want, describe(p, id, a.thing))
			}
		}
	}
}

// TestLineage compares the ancestors that the index walks with what the
// language's in says.
func TestLineage(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 300 {
		all := cedar.EntityMap{}
		n := 2 + r.IntN(40)
		name := func(i int) cedar.EntityUID { return cedar.NewEntityUID("G", cedar.String(itoa(i))) }
		for i := range n {
			var parents []cedar.EntityUID
			for range r.IntN(4) {
				if i > 0 {
					parents = append(parents, name(r.IntN(i)))
				}
			}
			all[name(i)] = cedar.Entity{UID: name(i), Parents: cedar.NewEntityUIDSet(parents...)}
		}
		start := r.IntN(n)
		l := lineageOf(all, name(start))
		for i := range n {
			var p cedar.Policy
			if err := p.UnmarshalCedar([]byte(`permit(principal in G::"` + itoa(i) + `", action, resource);`)); err != nil {
				t.Fatal(err)
			}
			d, _ := cedar.Authorize(leaf{&p}, all, cedar.Request{Principal: name(start)})
			if (d == cedar.Allow) != l.has(name(i)) || l.has(name(i)) != slices.Contains(l.all, name(i)) {
				t.Fatalf("%d in %d: %v", start, i, d)
			}
		}
	}
}
