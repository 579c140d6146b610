package authz

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge/v1beta1"
)

func TestSpecsOfObjects(t *testing.T) {
	want := Spec{
		Policies: []string{permitAll}, EntitiesJSON: "[]", GroupClaimName: "g", RoleClaimName: "r", GroupEntityType: "Team", PrimaryUpstreamProvider: "corp",
	}
	if got := FromConfig(&v1beta1.ConfigAuthz{
		Type: v1beta1.AuthzPolicy, Policies: []string{permitAll}, EntitiesJSON: "[]", GroupClaimName: "g", RoleClaimName: "r", GroupEntityType: "Team", PrimaryUpstreamProvider: "corp",
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := FromInline(&v1beta1.AuthzConfig{
		Type: v1beta1.AuthzInline, GroupClaimName: "g", RoleClaimName: "r", GroupEntityType: "Team",
		Inline: &v1beta1.AuthzPolicies{Policies: []string{permitAll}, EntitiesJSON: "[]", PrimaryUpstreamProvider: "corp"},
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	body := `{"policies":["` + permitAll + `"],"entities_json":"[]","group_claim_name":"g","role_claim_name":"r","group_entity_type":"Team","primary_upstream_provider":"corp"}`
	d, errs := FromObject(&v1beta1.MCPAuthzConfigSpec{Type: "policyv1", Config: v1beta1.JSONObject(body)}, field.NewPath("spec"))
	if len(errs) > 0 || !reflect.DeepEqual(*d.Set, want) {
		t.Errorf("%v %+v", errs, d.Set)
	}
	for _, head := range []string{`"type":"policyv1","policy":`, `"type":"cedarv1","cedar":`, `"type":"policyv1","cedar":`} {
		d, errs = FromDocument([]byte(`{"version":"1.0",`+head+body+`}`), field.NewPath("data"))
		if len(errs) > 0 || !reflect.DeepEqual(*d.Set, want) {
			t.Errorf("%s %v %+v", head, errs, d.Set)
		}
	}
	d = d.Override(&v1beta1.AuthzConfig{GroupClaimName: "other"})
	if d.Set.GroupClaimName != "other" || d.Set.RoleClaimName != "r" || d.Set.GroupEntityType != "Team" {
		t.Errorf("%+v", d.Set)
	}
	if e, errs := d.Parse(field.NewPath("data")); len(errs) > 0 || e.(*Policies).Len() != 1 {
		t.Error(errs)
	}
	d.Set.EntitiesJSON = "x"
	if e, errs := d.Parse(field.NewPath("data")); e != nil || len(errs) != 1 || errs[0].Field != "data.entities_json" {
		t.Error(errs)
	}
}

func TestVirtualServersTakePolicySetsOnly(t *testing.T) {
	at := field.NewPath("spec")
	d, errs := FromObject(&v1beta1.MCPAuthzConfigSpec{Type: "httpv1", Config: `{"http":{"url":"https://pdp.example"},"claim_mapping":"mpe","context":{"include_args":true}}`}, at)
	if len(errs) > 0 || d.Point == nil || d.Point.HTTP.URL != "https://pdp.example" || !d.Point.Context.IncludeArgs {
		t.Fatal(errs, d)
	}
	if errs := d.ForVirtualServer(at); len(errs) != 1 || errs[0].Field != "spec.type" {
		t.Error(errs)
	}
	if e, errs := d.Parse(at); len(errs) > 0 || e == nil {
		t.Error(errs)
	}
	if d.Override(&v1beta1.AuthzConfig{GroupClaimName: "g"}).Set != nil {
		t.Error("a decision point has no group claim")
	}
	d.Set = &Spec{}
	if errs := (Document{Set: &Spec{}}).ForVirtualServer(at); len(errs) > 0 {
		t.Error(errs)
	}
	if _, errs := FromObject(&v1beta1.MCPAuthzConfigSpec{Type: "opa", Config: `{}`}, at); len(errs) != 1 || errs[0].Field != "spec.type" {
		t.Error(errs)
	}
}

func TestDocumentsAreStrict(t *testing.T) {
	for name, text := range map[string]string{
		"unknown member":  `{"version":"1.0","type":"policyv1","policy":{"policies":[]},"x":1}`,
		"another case":    `{"version":"1.0","type":"policyv1","policy":{"Policies":[]}}`,
		"repeated":        `{"version":"1.0","type":"policyv1","type":"httpv1","policy":{"policies":[]}}`,
		"another version": `{"version":"2.0","type":"policyv1","policy":{"policies":[]}}`,
		"no type":         `{"version":"1.0","policy":{"policies":[]}}`,
		"unknown type":    `{"version":"1.0","type":"x"}`,
		"two sets":        `{"type":"policyv1","policy":{"policies":[]},"cedar":{"policies":[]}}`,
		"set and point":   `{"type":"policyv1","policy":{"policies":[]},"pdp":{}}`,
		"point and set":   `{"type":"httpv1","policy":{"policies":[]},"pdp":{}}`,
		"no point":        `{"type":"httpv1"}`,
		"wrong type":      `{"type":"policyv1","policy":{"policies":"x"}}`,
		"too large":       `{"type":"policyv1","policy":{"policies":[]}}` + strings.Repeat(" ", maxDocument),
	} {
		if _, errs := FromDocument([]byte(text), field.NewPath("data")); len(errs) == 0 {
			t.Errorf("%s: accepted", name)
		}
	}
}

const tableText = `
server: main
principals:
  alice: {claims: {groups: [eng]}}
  bob: {subject: bob@example.org}
cases:
  - {as: alice, tool: weather, expect: allow}
  - {as: bob, tool: weather, expect: deny}
  - {as: alice, tool: deploy, arguments: {env: dev}, expect: allow}
  - {as: alice, tool: deploy, arguments: {env: prod}, expect: deny}
  - {as: alice, tool: deploy, listed: true, expect: allow}
  - {name: reads of the handbook are open, as: bob, resource: "file:///handbook/a", expect: allow}
  - {as: bob, resource: "file:///handbook/../secret", expect: deny}
`

func tested(t *testing.T) *Policies {
	return policies(t,
		`permit(principal in THVGroup::"eng", action == Action::"call_tool", resource);`,
		`@id("never prod") forbid(principal, action, resource == Tool::"deploy") when { context has arg_env && context.arg_env == "prod" };`,
		`permit(principal, action == Action::"read_resource", resource) when { resource.uri like "file:///handbook/*" };`)
}

func TestTables(t *testing.T) {
	table, err := ParseTable([]byte(tableText))
	if err != nil {
		t.Fatal(err)
	}
	verdicts, passed := tested(t).Test(table)
	if !passed || len(verdicts) != 7 {
		t.Errorf("%+v", verdicts)
	}
	if v := verdicts[3]; v.Explanation.String() != "deny: forbidden; by never prod" || v.Explanation.Resource != `Tool::"deploy"` || v.Explanation.Action != `Action::"call_tool"` || v.Explanation.Version == "" {
		t.Errorf("%+v", v.Explanation)
	}
	if v := verdicts[4]; v.Explanation.String() != "allow: depends on arguments; by policy0; open never prod" {
		t.Error(v.Explanation)
	}
	table.Cases[1].Expect = "allow"
	if verdicts, passed := tested(t).Test(table); passed || verdicts[1].Passed || !verdicts[0].Passed {
		t.Error("a case that fails is not told")
	}
}

func TestTablesAreStrict(t *testing.T) {
	for name, text := range map[string]string{
		"none": "", "no cases": "principals: {}", "unknown member": "principals: {a: {}}\ncases: [{as: a, tool: t, expect: allow, x: 1}]",
		"nobody": "cases: [{as: a, tool: t, expect: allow}]", "another word": "principals: {a: {}}\ncases: [{as: a, tool: t, expect: allowed}]",
		"nothing": "principals: {a: {}}\ncases: [{as: a, expect: allow}]", "two things": "principals: {a: {}}\ncases: [{as: a, tool: t, prompt: p, expect: allow}]",
		"a subject of its own": "principals: {a: {}}\ncases: [{as: a, subject: b, tool: t, expect: allow}]", "repeated": "principals: {a: {}}\nprincipals: {a: {}}\ncases: [{as: a, tool: t, expect: allow}]",
		"too large": strings.Repeat("#", maxTable+1),
	} {
		if _, err := ParseTable([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for text, want := range map[string]string{
		"principals: {a: {}}\ncases: [{as: a, tool: [t], expect: allow}]": "table: cases.tool: a value of another type belongs here",
		"[1]":                      "table: the document: a value of another type belongs here",
		"cases: [{as: a, tol: t}]": `table: unknown field "tol"`,
	} {
		if _, err := ParseTable([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestExplain(t *testing.T) {
	e, err := tested(t).Explain(&Question{Subject: "alice", Tool: "weather"})
	if err != nil || e.Allowed || e.Reason != ReasonNoPermit {
		t.Error(e, err)
	}
	if _, err := tested(t).Explain(&Question{Subject: "alice"}); err == nil {
		t.Error("a question about nothing is answered")
	}
}

// TestReadme: every manifest in the README is one that is accepted, and every
// table comes out as it says.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var set *Policies
	sets, tables := 0, 0
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if strings.Contains(block, "cases:") {
			table, err := ParseTable([]byte(block))
			if err != nil {
				t.Error(err)
				continue
			}
			verdicts, _ := set.Test(table)
			for _, v := range verdicts {
				if !v.Passed {
					t.Errorf("%+v: %s", v.Question, v.Explanation)
				}
			}
			tables++
			continue
		}
		for _, document := range strings.Split(block, "\n---\n") {
			if p := readmeSet(t, document); p != nil {
				set, sets = p, sets+1
			}
		}
	}
	if sets < 3 || tables < 1 {
		t.Errorf("%d policy sets and %d tables", sets, tables)
	}
}

// readmeSet compiles the policy set of a manifest, whatever its kind; nil where
// it has none.
func readmeSet(t *testing.T, document string) *Policies {
	t.Helper()
	var kind struct {
		Kind string `json:"kind"`
		Data map[string]string
	}
	if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
		t.Fatal(err)
	}
	strict := func(into any) {
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			t.Errorf("%v\n%s", err, document)
		}
	}
	at := field.NewPath("readme")
	var d Document
	var errs field.ErrorList
	switch kind.Kind {
	case "VirtualMCPServer":
		var o v1beta1.VirtualMCPServer
		strict(&o)
		o.Default()
		errs = o.Validate()
		switch a := o.Spec.IncomingAuth; {
		case a != nil && a.AuthzConfig != nil && a.AuthzConfig.Inline != nil:
			s := FromInline(a.AuthzConfig)
			d.Set = &s
		case o.Spec.Config != nil && o.Spec.Config.IncomingAuth != nil && o.Spec.Config.IncomingAuth.Authz != nil:
			s := FromConfig(o.Spec.Config.IncomingAuth.Authz)
			d.Set = &s
		default:
			if len(errs) > 0 {
				t.Errorf("%v\n%s", errs.ToAggregate(), document)
			}
			return nil
		}
	case "MCPAuthzConfig":
		var o v1beta1.MCPAuthzConfig
		strict(&o)
		errs = o.Validate()
		var more field.ErrorList
		d, more = FromObject(&o.Spec, at)
		errs = append(errs, more...)
	case "ConfigMap":
		d, errs = FromDocument([]byte(kind.Data["authz.json"]), at)
	default:
		return nil
	}
	if len(errs) > 0 {
		t.Errorf("%v\n%s", errs.ToAggregate(), document)
		return nil
	}
	e, errs := d.Parse(at)
	if len(errs) > 0 {
		t.Errorf("%v\n%s", errs.ToAggregate(), document)
		return nil
	}
	p, _ := e.(*Policies)
	return p
}
