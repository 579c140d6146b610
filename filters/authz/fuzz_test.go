package authz

import (
	"testing"

	"github.com/cedar-policy/cedar-go"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
)

// FuzzParse: whatever a set holds, it is refused or it decides, and what a call
// gets is what a list shows.
func FuzzParse(f *testing.F) {
	f.Add(permitAll, `[]`, "THVGroup", `{"a":1}`)
	f.Add(`permit(principal in THVGroup::"g", action in [Action::"call_tool"], resource is Tool in Backend::"b") when { context.arg_a > 1 } unless { resource has arg_b };`,
		`[{"uid":{"type":"Tool","id":"t"},"attrs":{"o":{"__entity":{"type":"Client","id":"alice"}}},"parents":[]}]`, "G", `{"a":{"b":[1.5,null]}}`)
	f.Add(`@id("x") forbid(principal, action, resource) when { if context has arg_a then resource.name like "a*\*" else [1, "\u{0}"].contains({a: -1}) };`, ``, "", `{}`)
	f.Fuzz(func(t *testing.T, text, entities, group, arguments string) {
		p, errs := Parse(Spec{Policies: []string{text}, EntitiesJSON: entities, GroupEntityType: group}, field.NewPath("authz"))
		if len(errs) > 0 {
			if p != nil {
				t.Fatal("an error and a set")
			}
			return
		}
		j := newCedarJudge(p)
		id := person("alice", map[string]any{"groups": "g"})
		a := ask{server: "m", thing: edge.Target{Thing: edge.Tool, Name: "t", Backend: "b"}}
		if mcpValidObject(arguments) {
			a.arguments = []byte(arguments)
		}
		e := j.decide(t.Context(), client{id: id}, &a)
		all := candidates{p, nil}
		for i := range p.policies {
			all.numbers = append(all.numbers, int32(i))
		}
		if e.Allowed && !j.view(t.Context(), "m", client{id: id}).Allows(&a.thing) {
			t.Fatalf("callable and hidden: %s", e)
		}
		if e.Allowed {
			permits := 0
			for _, one := range all.All() {
				if one.Effect() == cedar.Permit {
					permits++
				}
			}
			if permits == 0 {
				t.Fatal("allowed by nothing")
			}
		}
	})
}
