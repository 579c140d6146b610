package compile

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/v1beta1"
)

func someTime() metav1.Time { return metav1.NewTime(time.Unix(1_700_000_000, 0)) }

func TestMinimal(t *testing.T) {
	plan, report := Compile(Set{Objects: []Object{{Value: minimal()}, {Value: named("tools")}}})
	if plan == nil {
		t.Fatalf("no plan: %v", report.Findings)
	}
	want := Server{Name: "demo", Title: "demo", Group: "tools", Backends: []Backend{{
		Name: "one", URL: "https://example.com/mcp", Transport: StreamableHTTP, Private: true, Timeout: 30 * time.Second, Metadata: map[string]string{"group": "tools"},
	}}, Names: catalog.Bare(), Bare: true, Failure: Failure{Interval: 30 * time.Second, Timeout: 10 * time.Second, Threshold: 3, Report: 30 * time.Second},
		Conditions: []Condition{{"GroupRefValidated", true, "GroupRefValid", ""}, {"AuthConfigured", true, "AuthValid", ""}}}
	if len(plan.Servers) != 1 || !reflect.DeepEqual(plan.Servers[0], want) {
		t.Errorf("got %+v, want %+v", plan.Servers, want)
	}
}

// Compile is pure: it changes nothing that it is given, and says the same again.
func TestPure(t *testing.T) {
	s := minimal()
	s.Spec.OutgoingAuth = &v1beta1.OutgoingAuth{}
	s.Spec.Config.Metadata = map[string]string{"a": "b"}
	s.Spec.Config.Backends[0].Metadata = map[string]string{"group": "mine"}
	before := s.DeepCopy()
	set := Set{Objects: []Object{{Value: s}, {Value: named("tools")}, {Value: named("other")}}}
	plan, report := Compile(set)
	if plan == nil {
		t.Fatalf("no plan: %v", report.Findings)
	}
	plan.Servers[0].Metadata["a"] = "changed"
	plan.Servers[0].Backends[0].Metadata["x"] = "changed"
	if !reflect.DeepEqual(s, before) {
		t.Errorf("the object was changed: %+v", s)
	}
	again, second := Compile(set)
	if again.Servers[0].Metadata["a"] != "b" || !reflect.DeepEqual(report, second) {
		t.Error("the second time is not as the first")
	}
	if got := again.Servers[0].Backends[0].Metadata["group"]; got != "tools" {
		t.Errorf("metadata.group is %q: the server sets it", got)
	}
}

// Objects of a cluster come without apiVersion and kind, and from any place.
func TestKindComesFromTheType(t *testing.T) {
	set := Set{Objects: []Object{{Value: minimal()}, {Value: minimal()}, {Value: named("tools")}}}
	_, report := Compile(set)
	found := false
	for _, f := range report.Findings {
		if f.Reason == ReasonDuplicate && f.Index == 1 && f.Object.String() == "VirtualMCPServer/demo" {
			found = strings.Contains(f.Message, "already given before")
		}
	}
	if !found {
		t.Errorf("no duplicate: %v", report.Findings)
	}
}

// Of a set that was read in part nothing is said to be missing, and it has no plan.
func TestPartial(t *testing.T) {
	s := minimal()
	s.Spec.Config.Aggregation = nil
	s.Spec.IncomingAuth = nil
	for _, set := range []Set{
		{Objects: []Object{{Value: s, Partial: true}, {Value: named("tools")}}},
		{Objects: []Object{{Value: minimal()}}, Incomplete: true},
		{Objects: []Object{{Value: named("tools")}}, Incomplete: true},
	} {
		plan, report := Compile(set)
		if plan != nil || len(report.Findings) != 0 {
			t.Errorf("plan %v, findings %v", plan, report.Findings)
		}
	}
}

func TestConditions(t *testing.T) {
	s := minimal()
	s.Spec.IncomingAuth = &v1beta1.IncomingAuth{Type: v1beta1.IncomingOIDC, OIDCConfigRef: &v1beta1.OIDCConfigRef{Name: "none", Audience: "a"}}
	_, report := Compile(Set{Objects: []Object{{Value: s}, {Value: named("tools")}}})
	got := map[string]Condition{}
	for _, status := range report.Statuses {
		for _, c := range status.Conditions {
			got[status.Object.String()+" "+c.Type] = c
		}
	}
	for name, want := range map[string]struct {
		is     bool
		reason string
	}{
		"MCPGroup/tools Valid":                         {true, "ValidationSucceeded"},
		"VirtualMCPServer/demo Valid":                  {false, ReasonNotFound},
		"VirtualMCPServer/demo GroupRefValidated":      {true, "GroupRefValid"},
		"VirtualMCPServer/demo AuthConfigured":         {false, ReasonNotFound},
		"VirtualMCPServer/demo OIDCConfigRefValidated": {false, ReasonNotFound},
	} {
		if c := got[name]; c.True != want.is || c.Reason != want.reason || c.True != (c.Message == "") {
			t.Errorf("%s: got %+v, want %+v", name, c, want)
		}
	}
	if len(report.Statuses) != 2 {
		t.Errorf("%d statuses of 2 objects", len(report.Statuses))
	}
}

// TestX42Refused: a composite tool with a reserved name or that of another is refused, and
// the finding names both.
func TestX42Refused(t *testing.T) {
	s := minimal()
	for _, name := range []string{"execute_tool_script", "twice", "twice"} {
		s.Spec.Config.CompositeTools = append(s.Spec.Config.CompositeTools, v1beta1.CompositeTool{Name: name, Description: "x", Steps: []v1beta1.WorkflowStep{{ID: "a", Tool: "one.t"}}})
	}
	_, report := Compile(Set{Objects: []Object{{Value: s}, {Value: named("tools")}}})
	var got []string
	for _, f := range report.Findings {
		if strings.HasPrefix(f.Path, "spec.config.compositeTools") {
			got = append(got, f.Path+": "+f.Message)
		}
	}
	want := []string{
		`spec.config.compositeTools[2].name: "twice" is given twice`,
		"spec.config.compositeTools[0].name: execute_tool_script is a tool of the edge itself",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

func TestFieldsGiven(t *testing.T) {
	s := minimal()
	s.Spec.Replicas = new(int32)
	s.Spec.Config.Optimizer = &v1beta1.Optimizer{}
	s.Spec.Config.Metadata = map[string]string{"a.b": ""}
	s.Spec.Config.CodeMode = &v1beta1.CodeMode{Enabled: false}
	var got []string
	for _, g := range givenIn(s) {
		got = append(got, g.path+"="+g.value)
	}
	want := []string{
		"metadata.name=demo",
		"spec.groupRef.name=tools",
		"spec.incomingAuth.type=anonymous",
		"spec.config.metadata[a.b]=",
		"spec.config.backends[0].name=one",
		"spec.config.backends[0].url=https://example.com/mcp",
		"spec.config.backends[0].transport=streamable-http",
		"spec.config.backends[0].type=entry",
		"spec.config.aggregation.conflictResolution=priority",
		"spec.config.optimizer=",
		"spec.config.codeMode=",
		"spec.replicas=0",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestOverridesThatChangeNothing: each is told once, an empty one as an error, one of empty
// annotations as a note.
func TestOverridesThatChangeNothing(t *testing.T) {
	s := minimal()
	s.Spec.Config.Aggregation = &v1beta1.Aggregation{Tools: []v1beta1.WorkloadTools{{
		Workload: s.Spec.Config.Backends[0].Name, Overrides: map[string]v1beta1.ToolOverride{"bare": {}, "empty": {Annotations: &v1beta1.ToolAnnotations{}}},
	}}}
	_, report := Compile(Set{Objects: []Object{{Value: s}, {Value: named("tools")}}})
	var got []string
	for _, f := range report.Findings {
		got = append(got, f.Severity.String()+" "+f.Path+": "+f.Message)
	}
	want := []string{
		"error spec.config.aggregation.tools[0].overrides[bare]: required: one of name, description and annotations must be set",
		"note spec.config.aggregation.tools[0].overrides[empty]: it changes nothing: set name, description or a member of annotations",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}
