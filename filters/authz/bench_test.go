package authz

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

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
	return p.decide(who, &a, j.arguments(&a))
}

const readsArgument = `forbid(principal, action, resource) when { context has arg_n && context.arg_n == 7 };`

func BenchmarkDecision(b *testing.B) {
	id := person("alice", groupsOf(3))
	arguments := []byte(`{"n":1,"city":"Bern"}`)
	for _, n := range []int{10, 20, 10_000} {
		for name, p := range map[string]*Policies{"": many(b, n), "/arguments": many(b, n, readsArgument)} {
			who := p.principalOf(id, id.Claims)
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
					j.decide(context.Background(), id, &a)
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
		p.principalOf(id, id.Claims)
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
	view := j.view(context.Background(), "main", id)
	b.ReportAllocs()
	for b.Loop() {
		for i := range items {
			view.Allows(&items[i])
		}
	}
}

// TestCostDoesNotFollowTheNumberOfPolicies: a call costs the same with ten
// policies and with ten thousand. A fresh decision pays for larger maps, the
// smallest of which need no hashing, and for nothing else.
func TestCostDoesNotFollowTheNumberOfPolicies(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("it measures, which -short and the race detector leave no room for")
	}
	id := person("alice", groupsOf(3))
	few, lots := many(t, 10), many(t, 10_000)
	whoFew, whoLots := few.principalOf(id, id.Claims), lots.principalOf(id, id.Claims)
	measure := func(f func()) time.Duration {
		start := time.Now()
		for range 1_000 {
			f()
		}
		return time.Since(start)
	}
	// Taken in turns, and the best of each, so that what else the machine does
	// touches both alike.
	ratio := func(one, other func()) float64 {
		a, b := time.Hour, time.Hour
		for range 40 {
			a, b = min(a, measure(one)), min(b, measure(other))
		}
		return float64(b) / float64(a)
	}
	call := func(p *Policies) func() {
		filter, err := p.Open(edge.Env{})
		if err != nil {
			t.Fatal(err)
		}
		h := filter(edge.HandlerFunc((&sink{}).handle))
		x := message(t, id, "tools/call", `{"name":"t1","arguments":{"n":1}}`)
		to := target(1)
		x.Target = &to
		return func() {
			if _, err := h.Handle(context.Background(), x); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept := ratio(call(few), call(lots))
	made := ratio(func() { fresh(few, whoFew, 1, nil) }, func() { fresh(lots, whoLots, 1, nil) })
	t.Logf("10,000 policies cost %.2f times what 10 do, %.2f where the decision is fresh", kept, made)
	if kept > 1.2 || made > 2 {
		t.Error("the cost follows the number of policies")
	}
}
