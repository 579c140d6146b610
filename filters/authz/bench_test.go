package authz

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// many is n policies: one per tool and group, as a generator would write them.
func many(t testing.TB, n int, more ...string) *Policies {
	texts := more
	for i := range n - len(more) {
		texts = append(texts, fmt.Sprintf(`permit(principal in THVGroup::"g%d",action==Action::"call_tool",resource==Tool::"t%d");`, i%50, i))
	}
	return policies(t, texts...)
}

func groupsOf(n int) map[string]any {
	groups := make([]any, n)
	for i := range groups {
		groups[i] = "g" + itoa(i)
	}
	return map[string]any{"groups": groups, "role": "user", "level": json.Number("3")}
}

func target(i int) edge.Target {
	return edge.Target{Thing: edge.Tool, Name: "t" + itoa(i), Original: "t" + itoa(i), Backend: "b"}
}

// fresh decides without what is kept of decisions; the principal is kept.
func fresh(p *Policies, who *principal, i int, arguments []byte) *Explanation {
	j := &cedarJudge{set: p}
	a := ask{server: "main", thing: target(i), arguments: arguments}
	read, err := j.arguments(&a)
	if err != nil {
		return deny(ReasonArguments, Fault{What: err.Error()})
	}
	return p.decide(context.Background(), who, &a, read)
}

const readsArgument = `forbid(principal, action, resource) when { context has arg_n && context.arg_n == 7 };`

func BenchmarkDecision(b *testing.B) {
	id := person("alice", groupsOf(3))
	arguments := []byte(`{"n":1,"city":"Bern"}`)
	for _, n := range []int{10, 20, 10_000} {
		for name, p := range map[string]*Policies{"": many(b, n), "/arguments": many(b, n, readsArgument)} {
			who := p.principalOf(id, id.Claims, nil)
			b.Run(fmt.Sprintf("policies=%d%s/fresh", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					fresh(p, who, 1, arguments)
				}
			})
			j := newCedarJudge(p)
			a := ask{server: "main", thing: target(1), arguments: arguments}
			b.Run(fmt.Sprintf("policies=%d%s/kept", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					j.decide(context.Background(), client{id: id}, &a)
				}
			})
		}
	}
}

// BenchmarkFilter is what the filter adds to a call.
func BenchmarkFilter(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("policies=%d", n), func(b *testing.B) {
			filter, err := many(b, n).Open(edge.Env{})
			if err != nil {
				b.Fatal(err)
			}
			h := filter(edge.HandlerFunc((&sink{}).handle))
			x := message(b, person("alice", groupsOf(3)), "tools/call", `{"name":"t1","arguments":{"n":1}}`)
			t := target(1)
			x.Target = &t
			b.ReportAllocs()
			for b.Loop() {
				if _, err := h.Handle(context.Background(), x); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPrincipal(b *testing.B) {
	p := many(b, 20)
	id := person("alice", groupsOf(3))
	b.ReportAllocs()
	for b.Loop() {
		p.principalOf(id, id.Claims, nil)
	}
}

func BenchmarkView(b *testing.B) {
	p := many(b, 1_000)
	j := newCedarJudge(p)
	id := person("alice", groupsOf(3))
	items := make([]edge.Item, 1_000)
	for i := range items {
		items[i] = target(i)
	}
	view := j.view(context.Background(), "main", client{id: id})
	b.ReportAllocs()
	for b.Loop() {
		for i := range items {
			view.Allows(&items[i])
		}
	}
}

// TestCostDoesNotFollowTheNumberOfPolicies: of ten thousand policies a call meets
// those of its scope, as many as of ten.
func TestCostDoesNotFollowTheNumberOfPolicies(t *testing.T) {
	t.Parallel()
	id := person("alice", groupsOf(3))
	thing := target(1)
	for _, n := range []int{10, 10_000} {
		p := many(t, n)
		who := p.principalOf(id, id.Claims, nil)
		a := ask{server: "main", thing: thing}
		v := verbOf(thing.Thing)
		resource := p.resourceOf(&a, v, nil)
		w := &world{static: p.static.all, principal: &who.entity, resource: &resource}
		at := lineageOf(w, resource.UID)
		met := p.index.find(nil, &who.lineage, p.actions[v.action], &at)
		if len(met) != 1 || met[0] != 1 {
			t.Errorf("of %d policies a call of t1 meets %v, want the one that names it", n, met)
		}
	}
}
