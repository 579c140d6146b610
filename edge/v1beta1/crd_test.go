package v1beta1

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// structural is the part of a structural schema of Kubernetes that the kinds
// use.
type structural struct {
	Type          string                 `json:"type"`
	Format        string                 `json:"format"`
	Description   string                 `json:"description"`
	Default       any                    `json:"default"`
	Enum          []any                  `json:"enum"`
	Pattern       string                 `json:"pattern"`
	Minimum       *float64               `json:"minimum"`
	Maximum       *float64               `json:"maximum"`
	MinLength     *int                   `json:"minLength"`
	MaxLength     *int                   `json:"maxLength"`
	MinItems      *int                   `json:"minItems"`
	MaxItems      *int                   `json:"maxItems"`
	MaxProperties *int                   `json:"maxProperties"`
	Required      []string               `json:"required"`
	Properties    map[string]*structural `json:"properties"`
	Items         *structural            `json:"items"`
	Values        *structural            `json:"additionalProperties"`
	Open          bool                   `json:"x-kubernetes-preserve-unknown-fields"`
	IntOrString   bool                   `json:"x-kubernetes-int-or-string"`
	ListType      string                 `json:"x-kubernetes-list-type"`
	AnyOf         []json.RawMessage      `json:"anyOf"`
}

// definition is the part of a custom resource definition that matters.
type definition struct {
	Metadata struct{ Name string }
	Spec     struct {
		Group string
		Scope string
		Names struct {
			Kind, ListKind, Plural, Singular string
			ShortNames                       []string
		}
		Versions []struct {
			Name            string
			Served, Storage bool
			Columns         []struct{ Name, Type, JSONPath string } `json:"additionalPrinterColumns"`
			Subresources    struct{ Status *struct{} }
			Schema          struct {
				Root *structural `json:"openAPIV3Schema"`
			}
		}
	}
}

func define(t testing.TB, kind string) *definition {
	t.Helper()
	text, err := CRD(kind)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.ToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	d := new(definition)
	if err := json.Unmarshal(asJSON, d); err != nil {
		t.Fatal(err)
	}
	return d
}

func root(t testing.TB, kind string) *structural {
	t.Helper()
	return define(t, kind).Spec.Versions[0].Schema.Root
}

// roots returns the schema of every kind.
func roots(t testing.TB) map[string]*structural {
	t.Helper()
	out := map[string]*structural{}
	for _, k := range Kinds() {
		out[k.Name] = root(t, k.Name)
	}
	return out
}

// at returns the schema of a field; [] stands for an item, {} for a value.
func (s *structural) at(path string) *structural {
	path = strings.NewReplacer("[]", ".[]", "{}", ".{}").Replace(path)
	for _, step := range strings.Split(path, ".") {
		if s == nil {
			return nil
		}
		switch step {
		case "[]":
			s = s.Items
		case "{}":
			s = s.Values
		default:
			s = s.Properties[step]
		}
	}
	return s
}

// walk calls visit with every field below s, sections included.
func (s *structural) walk(path string, visit func(path string, s *structural)) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := name
		if path != "" {
			p = path + "." + name
		}
		visit(p, s.Properties[name])
		s.Properties[name].walk(p, visit)
	}
	if s.Items != nil {
		visit(path+"[]", s.Items)
		s.Items.walk(path+"[]", visit)
	}
	if s.Values != nil {
		visit(path+"{}", s.Values)
		s.Values.walk(path+"{}", visit)
	}
}

func TestDefinitionsDescribeTheirKinds(t *testing.T) {
	files, err := crds.ReadDir("crds")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(Kinds()) {
		t.Errorf("%d files in crds for %d kinds", len(files), len(Kinds()))
	}
	for _, k := range Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			d := define(t, k.Name)
			names := d.Spec.Names
			if names.Kind != k.Name || names.ListKind != k.Name+"List" || names.Plural != k.Plural || !slices.Equal(names.ShortNames, k.ShortNames) {
				t.Errorf("names %+v, want those of %+v", names, k)
			}
			if d.Metadata.Name != k.Plural+"."+Group || d.Spec.Group != Group || d.Spec.Scope != "Namespaced" {
				t.Errorf("%s in group %s, scope %s", d.Metadata.Name, d.Spec.Group, d.Spec.Scope)
			}
			if len(d.Spec.Versions) != 1 {
				t.Fatalf("%d versions", len(d.Spec.Versions))
			}
			v := d.Spec.Versions[0]
			if v.Name != Version || !v.Served || !v.Storage || v.Subresources.Status == nil {
				t.Errorf("version %+v", v)
			}
			v.Schema.Root.walk("", func(path string, s *structural) {
				if s.Description == "" && !strings.HasSuffix(path, "[]") && !strings.HasSuffix(path, "{}") && path != "metadata" {
					t.Errorf("%s has no description", path)
				}
			})
		})
	}
}

func TestPrintColumns(t *testing.T) {
	const valid, ready, age = "Valid=.status.conditions[?(@.type=='Valid')].status", "Ready=.status.conditions[?(@.type=='Ready')].status", "Age=.metadata.creationTimestamp"
	for kind, want := range map[string][]string{
		"EdgeFilter":                        {"Type=.spec.type", valid, age},
		"EmbeddingServer":                   {"Status=.status.phase", "Model=.spec.model", "Ready=.status.readyReplicas", "URL=.status.url", age},
		"MCPAuthzConfig":                    {"Type=.spec.type", valid, age},
		"MCPExternalAuthConfig":             {"Type=.spec.type", valid, age},
		"MCPGroup":                          {"Servers=.status.serverCount", "Proxies=.status.remoteProxyCount", "Phase=.status.phase", "Checked=.status.conditions[?(@.type=='MCPServersChecked')].status", age},
		"MCPOIDCConfig":                     {"Source=.spec.type", valid, age},
		"MCPRemoteProxy":                    {"Phase=.status.phase", "Remote URL=.spec.remoteUrl", "URL=.status.url", ready, age},
		"MCPServerEntry":                    {"Phase=.status.phase", "Transport=.spec.transport", "Remote URL=.spec.remoteUrl", "Group=.spec.groupRef.name", age},
		"MCPServer":                         {"Status=.status.phase", ready, "Replicas=.status.readyReplicas", "URL=.status.url", age},
		"MCPTelemetryConfig":                {"Endpoint=.spec.openTelemetry.endpoint", valid, "Tracing=.spec.openTelemetry.tracing.enabled", "Metrics=.spec.openTelemetry.metrics.enabled", age},
		"MCPToolConfig":                     {valid, age},
		"MCPWebhookConfig":                  {valid, age},
		"VirtualMCPCompositeToolDefinition": {"Workflow=.spec.name", "Status=.status.validationStatus", age, ready},
		"VirtualMCPServer":                  {"Phase=.status.phase", "URL=.status.url", "Backends=.status.backendCount", age, ready},
	} {
		var have []string
		for _, c := range define(t, kind).Spec.Versions[0].Columns {
			have = append(have, c.Name+"="+c.JSONPath)
		}
		if !slices.Equal(have, want) {
			t.Errorf("%s prints %q, want %q", kind, have, want)
		}
	}
}

// grafted returns the good manifests, and for sections that kinds share also
// servers with the sections of other kinds' manifests.
func grafted(t testing.TB) []document {
	out := good(t)
	server := one(t, "VirtualMCPServer", "")
	graft := func(from document, path string, section any) {
		out = append(out, document{server.kind, from.name + " in " + path, edit(server.value, split(path), section).(map[string]any)})
	}
	for _, d := range out {
		switch d.kind {
		case "MCPExternalAuthConfig":
			if s := lookup(d.value, "spec.embeddedAuthServer"); s != nil {
				graft(d, "spec.authServerConfig", s)
			}
		case "VirtualMCPCompositeToolDefinition":
			graft(d, "spec.config.compositeTools", []any{d.value["spec"]})
		}
	}
	everything := one(t, "VirtualMCPServer", "spec.config.outgoingAuth.backends")
	for name, s := range lookup(everything.value, "spec.config.outgoingAuth.backends").(map[string]any) {
		out = append(out, document{everything.kind, name + " as default", edit(everything.value, split("spec.config.outgoingAuth.default"), s).(map[string]any)})
	}
	return out
}

// violation is one way to break a rule of a schema.
type violation struct {
	rule string
	path []string // of the value that is changed
	to   any
	want string // the field that the error must name
}

// violations returns the ways to break the rules that a schema has for a value.
func violations(s *structural, v any, path []string, name string) []violation {
	var out []violation
	add := func(rule string, to any, want string) {
		out = append(out, violation{rule, path, to, want})
	}
	switch v := v.(type) {
	case map[string]any:
		if s.Type != "object" {
			return nil
		}
		for _, field := range s.Required {
			p := s.Properties[field]
			if _, there := v[field]; there && (p == nil || p.Default == nil) {
				out = append(out, violation{"required " + field, append(slices.Clone(path), field), gone{}, name + "." + field})
			}
		}
		if s.MaxProperties != nil {
			many := map[string]any{}
			for i := range *s.MaxProperties + 1 {
				many[fmt.Sprintf("x-%d", i)] = "x"
			}
			add("maxProperties", many, name)
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			at := append(slices.Clone(path), key)
			if p := s.Properties[key]; p != nil {
				out = append(out, violations(p, v[key], at, name+"."+key)...)
			} else if s.Values != nil {
				out = append(out, violations(s.Values, v[key], at, name+"["+key+"]")...)
			}
		}
	case []any:
		if s.MinItems != nil && *s.MinItems == 1 {
			add("minItems", []any{}, name)
		}
		if s.MaxItems != nil && len(v) > 0 {
			many := make([]any, *s.MaxItems+1)
			for i := range many {
				many[i] = v[0]
			}
			add("maxItems", many, name)
		}
		for i, item := range v {
			out = append(out, violations(s.Items, item, append(slices.Clone(path), fmt.Sprint(i)), fmt.Sprintf("%s[%d]", name, i))...)
		}
	case json.Number:
		if s.Minimum != nil {
			add("minimum", json.Number(fmt.Sprint(*s.Minimum-1)), name)
		}
		if s.Maximum != nil {
			add("maximum", json.Number(fmt.Sprint(*s.Maximum+1)), name)
		}
	case string:
		if s.Enum != nil {
			add("enum", "no-such-value", name)
		}
		if s.Pattern != "" {
			add("pattern", "µ?/", name)
		}
		if s.MaxLength != nil {
			add("maxLength", strings.Repeat("a", *s.MaxLength+1), name)
		}
		if s.Format == "uri" {
			add("format", "no uri", name)
		}
		// The empty text is the same as absence, which is a fault where the
		// field is required and has no default.
	}
	return out
}

// TestValidateRejectsWhatTheDefinitionRejects breaks every rule of every
// schema, one at a time, in manifests that together give every field: Validate
// must note each at its field.
func TestValidateRejectsWhatTheDefinitionRejects(t *testing.T) {
	roots := roots(t)
	broken := map[string]map[string]bool{} // kind → path and rule
	for _, d := range grafted(t) {
		if broken[d.kind] == nil {
			broken[d.kind] = map[string]bool{}
		}
		spec := roots[d.kind].Properties["spec"]
		for _, v := range violations(spec, d.value["spec"], []string{"spec"}, "spec") {
			if broken[d.kind][v.want+" "+v.rule] {
				continue // in an earlier manifest of the kind
			}
			errs := judge(t, d.kind, edit(d.value, v.path, v.to))
			// A section that is not there may be missed at its only field, and
			// an environment variable without a value has an empty one.
			noted := slices.ContainsFunc(paths(errs), func(path string) bool {
				return path == v.want || v.rule == "required groupRef" && path == v.want+".name"
			})
			if !noted && !(v.rule == "required value" && strings.Contains(v.want, ".env[")) {
				t.Errorf("%s: %s of %s broken: no error there, but: %v", d.name, v.rule, v.want, errs.ToAggregate())
			}
			broken[d.kind][v.want+" "+v.rule] = true
			broken[d.kind][generic(v.want, v.rule, spec)] = true
		}
	}
	// Every rule was broken somewhere.
	for _, k := range Kinds() {
		spec := roots[k.Name].Properties["spec"]
		visit := func(path string, s *structural) {
			var rules []string
			for _, field := range s.Required {
				if s.Properties[field].Default == nil {
					rules = append(rules, "required "+field)
				}
			}
			for rule, has := range map[string]bool{
				"enum": s.Enum != nil, "pattern": s.Pattern != "", "minimum": s.Minimum != nil, "maximum": s.Maximum != nil,
				"maxLength": s.MaxLength != nil, "minItems": s.MinItems != nil, "maxItems": s.MaxItems != nil,
				"maxProperties": s.MaxProperties != nil, "format": s.Format == "uri",
			} {
				if has {
					rules = append(rules, rule)
				}
			}
			for _, rule := range rules {
				if !broken[k.Name][path+" "+rule] {
					t.Errorf("%s: no good manifest lets %s of %s be broken", k.Name, rule, path)
				}
			}
		}
		visit("spec", spec)
		spec.walk("spec", visit)
	}
}

// generic returns the path of a field as the schema has it, and the rule.
func generic(path, rule string, s *structural) string {
	if field, ok := strings.CutPrefix(rule, "required "); ok {
		path = strings.TrimSuffix(path, "."+field)
	}
	out := "spec"
	for _, step := range split(path)[1:] {
		switch {
		case s.Items != nil:
			s, out = s.Items, out+"[]"
		case s.Values != nil:
			s, out = s.Values, out+"{}"
		default:
			s, out = s.Properties[step], out+"."+step
		}
	}
	return out + " " + rule
}
