package composite_test

import (
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/composite"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/scripting/workflow"
)

// without is a view that does not show a tool, by the name that its backend gives it.
type without string

func (v without) Key() string              { return string(v) }
func (v without) Allows(i *edge.Item) bool { return i.Original != string(v) }

// TestListReadsWhatRuns: the annotations of a composite tool are those of the tools that its steps
// call, by the names that steps have for them, hidden ones too, but for one that others see and
// the client does not.
func TestListReadsWhatRuns(t *testing.T) {
	yes := true
	flow, err := workflow.Parse(&v1beta1.CompositeTool{
		Name: "flow", Annotations: &v1beta1.ToolAnnotations{ReadOnlyHint: &yes},
		Steps: []v1beta1.WorkflowStep{{ID: "a", Tool: "w.list"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	all := []*workflow.Workflow{flow}
	reads := func(name string) []byte {
		return []byte(`{"name":"` + name + `","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`)
	}
	writes := func(name string) []byte { return []byte(`{"name":"` + name + `","inputSchema":{"type":"object"}}`) }
	renamed := catalog.Workload{Own: catalog.Selection{Overrides: map[string]v1beta1.ToolOverride{"delete": {Name: "list"}, "list": {Name: "other"}}}}
	build := func(w catalog.Workload, hidden bool, tools ...[]byte) *catalog.Catalog {
		r := &catalog.Rules{Conflicts: v1beta1.ConflictPrefix, Prefix: "{workload}_", HideAll: hidden, Workloads: map[string]catalog.Workload{"w": w}}
		return catalog.Build(r, []catalog.Offer{{Tools: composite.List(all)}, {Backend: "w", Tools: &catalog.List{Items: tools}}})
	}
	for _, c := range []struct {
		name string
		in   *catalog.Catalog
		view edge.View
		runs string
		want bool
	}{
		{"its own name", build(catalog.Workload{}, false, reads("list")), nil, "list", true},
		{"its own name, and it writes", build(catalog.Workload{}, false, writes("list")), nil, "list", false},
		{"the name of another before", build(renamed, false, writes("delete"), reads("list")), nil, "delete", false},
		{"the name of another before, which writes", build(renamed, false, reads("delete"), writes("list")), nil, "delete", true},
		{"hidden", build(catalog.Workload{}, true, reads("list")), nil, "list", true},
		{"hidden, and it writes", build(catalog.Workload{}, true, writes("list")), nil, "list", false},
		{"hidden by the server", build(catalog.Workload{Selection: catalog.Selection{Filter: []string{"x"}}}, false, reads("list"), reads("x")), nil, "list", true},
		{"what others see", build(catalog.Workload{}, false, reads("list")), without("list"), "list", false},
		{"what others see is another", build(renamed, false, reads("delete"), writes("list")), without("list"), "delete", true},
	} {
		list, err := c.in.List(edge.Tool, mcp.Modern, c.view, "")
		if err != nil {
			t.Fatal(err)
		}
		_, item, _ := strings.Cut(string(list), `{"name":"flow",`)
		item, _, listed := strings.Cut(item, "}}")
		if got := strings.Contains(item, `"readOnlyHint":true`); !listed || got != c.want || c.in.LookupWhole("w.list").Original != c.runs {
			t.Errorf("%s: w.list is %s; %s", c.name, c.in.LookupWhole("w.list").Original, list)
		}
		if lax := len(composite.Look(all, c.in, nil).Lax) > 0; c.view == nil && lax == c.want {
			t.Errorf("%s: the status says that it promises too much: %v", c.name, lax)
		}
	}
	if build(catalog.Workload{}, true, reads("list")).Version() == build(catalog.Workload{}, true, writes("list")).Version() {
		t.Error("a list is the same whatever a hidden tool of a step says")
	}
	if build(catalog.Workload{}, true, reads("list")).Version() != build(catalog.Workload{}, true, reads("list"), writes("x")).Version() {
		t.Error("a hidden tool of no step changes the list")
	}
}
