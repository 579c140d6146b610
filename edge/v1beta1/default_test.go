package v1beta1

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// completed decodes a manifest, completes it and returns it as JSON values.
func completed(t testing.TB, kind string, value any) any {
	t.Helper()
	o, err := object(kind, value)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	o.Default()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return decodeNumbers(t, text)
}

// vacant is one place where a definition has a default.
type vacant struct {
	path []string
	name string
	def  any
}

func vacancies(s *structural, v any, path []string, name string) []vacant {
	var out []vacant
	switch v := v.(type) {
	case map[string]any:
		for key, p := range s.Properties {
			at := append(slices.Clone(path), key)
			if p.Default != nil {
				out = append(out, vacant{at, name + "." + key, p.Default})
			}
			if e, there := v[key]; there {
				out = append(out, vacancies(p, e, at, name+"."+key)...)
			}
		}
		if s.Values != nil {
			for key, e := range v {
				out = append(out, vacancies(s.Values, e, append(slices.Clone(path), key), name+"["+key+"]")...)
			}
		}
	case []any:
		for i, e := range v {
			out = append(out, vacancies(s.Items, e, append(slices.Clone(path), fmt.Sprint(i)), fmt.Sprintf("%s[%d]", name, i))...)
		}
	}
	return out
}

// TestDefaultFillsWhatTheDefinitionFills takes every field away that has a
// default in a definition, one at a time: Default must put the same back.
func TestDefaultFillsWhatTheDefinitionFills(t *testing.T) {
	roots := roots(t)
	filled := map[string]map[string]bool{}
	for _, d := range grafted(t) {
		if filled[d.kind] == nil {
			filled[d.kind] = map[string]bool{}
		}
		spec := roots[d.kind].Properties["spec"]
		for _, v := range vacancies(spec, d.value["spec"], []string{"spec"}, "spec") {
			have := lookup(completed(t, d.kind, edit(d.value, v.path, gone{})), v.name)
			want := v.def
			if n, ok := want.(float64); ok {
				want = json.Number(fmt.Sprint(int64(n)))
			}
			zero := want == false || want == "" || want == json.Number("0")
			if !(have == nil && zero) && !reflect.DeepEqual(have, want) {
				t.Errorf("%s: %s is %v by default, want %v", d.name, v.name, have, want)
			}
			filled[d.kind][generic(v.name, "", spec)] = true
		}
	}
	for _, k := range Kinds() {
		spec := roots[k.Name].Properties["spec"]
		spec.walk("spec", func(path string, s *structural) {
			if s.Default != nil && !filled[k.Name][path+" "] {
				t.Errorf("%s: no good manifest has the section of %s", k.Name, path)
			}
		})
	}
}

// structuralDefaults fills in the defaults of a definition as a cluster does.
func structuralDefaults(s *structural, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, e := range v {
			if p := s.Properties[key]; p != nil {
				e = structuralDefaults(p, e)
			} else if s.Values != nil {
				e = structuralDefaults(s.Values, e)
			}
			out[key] = e
		}
		for key, p := range s.Properties {
			if _, there := v[key]; !there && p.Default != nil {
				out[key] = p.Default
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = structuralDefaults(s.Items, e)
		}
		return out
	}
	return v
}

// TestDefaultAgreesWithTheCluster: an object that a cluster has completed by
// its definition becomes the same as one that it has not.
func TestDefaultAgreesWithTheCluster(t *testing.T) {
	roots := roots(t)
	for _, d := range grafted(t) {
		cluster := structuralDefaults(roots[d.kind], d.value)
		if have, want := completed(t, d.kind, cluster), completed(t, d.kind, d.value); !reflect.DeepEqual(have, want) {
			t.Errorf("%s: completed by a cluster\n%v\notherwise\n%v", d.name, have, want)
		}
	}
}

func TestDefaultTwiceIsDefaultOnce(t *testing.T) {
	for _, d := range grafted(t) {
		once := completed(t, d.kind, d.value)
		if twice := completed(t, d.kind, once); !reflect.DeepEqual(once, twice) {
			t.Errorf("%s: once\n%v\ntwice\n%v", d.name, once, twice)
		}
	}
}

// TestDefaultsBeyondTheDefinition: the defaults that the documents give and
// that a definition cannot express.
func TestDefaultsBeyondTheDefinition(t *testing.T) {
	minimal := one(t, "VirtualMCPServer", "")
	login := one(t, "MCPExternalAuthConfig", "spec.embeddedAuthServer.storage.kvstore.sentinelConfig")
	composite := one(t, "VirtualMCPCompositeToolDefinition", "spec.steps")
	for _, c := range []struct {
		name  string
		from  document
		edits map[string]any
		path  string
		want  any
	}{
		{"sections of settings", minimal, nil, "spec.config.operational.timeouts.default", "30s"},
		{"sections of settings", minimal, nil, "spec.config.operational.failureHandling.healthCheckInterval", "30s"},
		{"sections of settings", minimal, nil, "spec.config.operational.failureHandling.partialFailureMode", "fail"},
		{"sections of settings", minimal, nil, "spec.config.aggregation.conflictResolution", "prefix"},
		{"sections of settings", minimal, nil, "spec.config.aggregation.conflictResolutionConfig.prefixFormat", "{workload}_"},
		{"an absent optimizer stays absent", minimal, nil, "spec.config.optimizer", nil},
		{"an absent circuit breaker stays absent", minimal, nil, "spec.config.operational.failureHandling.circuitBreaker", nil},
		{"absent code mode stays absent", minimal, nil, "spec.config.codeMode", nil},
		{"absent audit stays absent", minimal, nil, "spec.config.audit", nil},
		{"absent outgoing authentication stays absent", minimal, nil, "spec.outgoingAuth", nil},
		{"replicas are left to an autoscaler", minimal, nil, "spec.replicas", nil},
		{"phase", minimal, nil, "status.phase", "Pending"},
		{"the service name of telemetry is the server's", minimal, map[string]any{"spec.config.telemetry": map[string]any{}}, "spec.config.telemetry.serviceName", "minimal"},
		{"the service name of telemetry is the server's", minimal, map[string]any{"spec.config": map[string]any{"name": "shown", "telemetry": map[string]any{}}}, "spec.config.telemetry.serviceName", "shown"},
		{"resource is the audience", minimal, map[string]any{"spec.config.incomingAuth": map[string]any{"type": "oidc", "oidc": map[string]any{"issuer": "https://i", "audience": "a", "clientId": "c"}}}, "spec.config.incomingAuth.oidc.resource", "a"},
		{"an inline policy set has an entity type of groups", minimal, map[string]any{"spec.incomingAuth.authzConfig": map[string]any{"type": "inline", "inline": map[string]any{"policies": []any{"x"}}}}, "spec.incomingAuth.authzConfig.groupEntityType", "THVGroup"},
		{"that of a config map is not overridden", minimal, map[string]any{"spec.incomingAuth.authzConfig": map[string]any{"configMap": map[string]any{"name": "x"}}}, "spec.incomingAuth.authzConfig.groupEntityType", nil},
		{"authz type", minimal, map[string]any{"spec.incomingAuth.authzConfig": map[string]any{"configMap": map[string]any{"name": "x"}}}, "spec.incomingAuth.authzConfig.type", "configMap"},
		{"an empty list is not an absent one", minimal, map[string]any{"spec.incomingAuth": map[string]any{"type": "oidc", "oidcConfigRef": map[string]any{"name": "a", "audience": "b", "scopes": []any{}}}}, "spec.incomingAuth.oidcConfigRef.scopes", nil},
		{"lifespans", login, nil, "spec.embeddedAuthServer.tokenLifespans.refreshTokenLifespan", "168h"},
		{"the base of the authorization endpoint is the issuer", login, nil, "spec.embeddedAuthServer.authorizationEndpointBaseUrl", "http://edge.default.svc"},
		{"storage", login, map[string]any{"spec.embeddedAuthServer.storage": gone{}}, "spec.embeddedAuthServer.storage.type", "memory"},
		{"absent client documents stay absent", login, nil, "spec.embeddedAuthServer.cimd", nil},
		{"the primary upstream stays open", login, nil, "spec.embeddedAuthServer.primaryUpstreamProvider", nil},
		{"loop variable", composite, map[string]any{"spec.steps[2].itemVar": gone{}}, "spec.steps[2].itemVar", "item"},
		{"iterations", composite, map[string]any{"spec.steps[2].maxIterations": gone{}}, "spec.steps[2].maxIterations", json.Number("100")},
		{"items at once", composite, map[string]any{"spec.steps[2].maxParallel": gone{}}, "spec.steps[2].maxParallel", json.Number("10")},
		{"other steps have no loop", composite, nil, "spec.steps[0].maxIterations", nil},
		{"limits of a filter", one(t, "EdgeFilter", "spec.source.inline"), nil, "spec.limits.timeout", "5ms"},
		{"a script has no memory of its own", one(t, "EdgeFilter", "spec.source.inline"), nil, "spec.limits.isolation", nil},
		{"a module is shared", one(t, "EdgeFilter", "spec.source.configMapRef"), nil, "spec.limits.isolation", "shared"},
	} {
		t.Run(c.name+" "+c.path, func(t *testing.T) {
			var v any = c.from.value
			for path, to := range c.edits {
				v = edit(v, split(path), to)
			}
			if have := lookup(completed(t, c.from.kind, v), c.path); !reflect.DeepEqual(have, c.want) {
				t.Errorf("%s is %v, want %v", c.path, have, c.want)
			}
		})
	}
}
