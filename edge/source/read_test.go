package source_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// group is a small valid document.
func group(name string) string {
	return "apiVersion: weir.dev/v1beta1\nkind: MCPGroup\nmetadata:\n  name: " + name + "\n"
}

func read(t *testing.T, name, text string) *source.Set {
	t.Helper()
	s, err := source.Read(name, []byte(text))
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	return s
}

func names(s *source.Set) string {
	var out []string
	for _, o := range s.Objects {
		out = append(out, o.Ref().String())
	}
	return strings.Join(out, " ")
}

func TestDocuments(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"one", "a.yaml", group("a"), "MCPGroup/a"},
		{"several", "a.yaml", group("a") + "---\n" + group("b"), "MCPGroup/a MCPGroup/b"},
		{"no end of line", "a.yaml", strings.TrimSpace(group("a")), "MCPGroup/a"},
		{"empty ones", "a.yaml", "---\n---\n# nothing\n---\n" + group("a") + "---\n", "MCPGroup/a"},
		{"comment first", "a.yaml", "# about\n---\n" + group("a"), "MCPGroup/a"},
		{"directive", "a.yaml", "%YAML 1.2\n---\n" + group("a") + "...\n%YAML 1.2\n---\n" + group("b"), "MCPGroup/a MCPGroup/b"},
		{"end marker", "a.yaml", group("a") + "...\n---\n" + group("b"), "MCPGroup/a MCPGroup/b"},
		{"content on the marker", "a.yaml", "--- {apiVersion: weir.dev/v1beta1, kind: MCPGroup, metadata: {name: a}}\n", "MCPGroup/a"},
		{"marker inside text", "a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: |\n    one\n    ---\n    two\n", "ConfigMap/a"},
		{"windows", "a.yaml", strings.ReplaceAll(group("a")+"---\n"+group("b"), "\n", "\r\n"), "MCPGroup/a MCPGroup/b"},
		{"byte order mark", "a.yaml", "\ufeff" + group("a"), "MCPGroup/a"},
		{"json", "a.json", `{"apiVersion":"weir.dev/v1beta1","kind":"MCPGroup","metadata":{"name":"a"}}` + "\n" + `{"apiVersion":"weir.dev/v1beta1","kind":"MCPGroup","metadata":{"name":"b"}}`, "MCPGroup/a MCPGroup/b"},
		{"json in yaml", "a.yaml", "{\n\t\"apiVersion\": \"weir.dev/v1beta1\",\n\t\"kind\": \"MCPGroup\",\n\t\"metadata\": {\"name\": \"a\", \"annotations\": {\"x\": \"\\ud83d\\ude00\\/\"}}}\n", "MCPGroup/a"},
		{"aliases and merge keys", "a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: &m {name: a}\ndata:\n  a: &x one\n  b: *x\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata:\n  <<: {one: own, two: merged}\n  one: own\n", "ConfigMap/a ConfigMap/b"},
		{"nothing", "a.yaml", "", ""},
		{"null", "a.yaml", "null\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := names(read(t, c.file, c.text)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestValues(t *testing.T) {
	s := read(t, "a.yaml", `
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata:
  name: demo
  annotations: {note: "yes", day: 2026-07-28}
spec:
  groupRef: {name: tools}
  incomingAuth: {type: anonymous}
  outgoingAuth:
  replicas: 0
  podTemplateSpec: {spec: {priority: 0x10, ratio: 1.50, big: 12345678901234567890, on: true, none: ~}}
  config:
    operational:
      timeouts:
        default: {duration: 1m}
        perWorkload: {github: 5s}
    codeMode: {stepLimit: 1_000}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: x}
data:
  a: |
    text
binaryData: {b: aGk=}
---
apiVersion: v1
kind: Secret
metadata: {name: x}
data: {a: aGk=, b: aGk=}
stringData: {b: plain}
`)
	v := s.Objects[0].Value.(*v1beta1.VirtualMCPServer)
	if v.Annotations["note"] != "yes" || v.Annotations["day"] != "2026-07-28" {
		t.Errorf("annotations: %v", v.Annotations)
	}
	if v.Spec.Replicas == nil || *v.Spec.Replicas != 0 || v.Spec.OutgoingAuth != nil {
		t.Errorf("replicas %v, outgoingAuth %v", v.Spec.Replicas, v.Spec.OutgoingAuth)
	}
	if got, want := string(v.Spec.PodTemplateSpec), `{"spec":{"priority":16,"ratio":1.50,"big":12345678901234567890,"on":true,"none":null}}`; got != want {
		t.Errorf("podTemplateSpec: got %s, want %s", got, want)
	}
	if got := v.Spec.Config.Operational.Timeouts; got.Default != "1m" || got.PerWorkload["github"] != "5s" {
		t.Errorf("timeouts: %v", got)
	}
	if *v.Spec.Config.CodeMode.StepLimit != 1000 {
		t.Errorf("stepLimit: %d", *v.Spec.Config.CodeMode.StepLimit)
	}
	if m := s.Objects[1].Value.(*compile.ConfigMap); m.Data["a"] != "text\n" || string(m.BinaryData["b"]) != "hi" {
		t.Errorf("config map: %q %q", m.Data, m.BinaryData)
	}
	for key, want := range map[string]string{"a": "hi", "b": "plain"} {
		if got, ok := s.Secret("x", key); !ok || string(got) != want {
			t.Errorf("secret %s: %q %t, want %q", key, got, ok, want)
		}
	}
	if _, ok := s.Secret("x", "c"); ok {
		t.Error("a secret that nobody wrote")
	}
}

// A document without a kind is a server's spec.config.
// TestNumbers: a number in a value of any kind is that of the file, in all its digits, or is
// refused where it stands.
func TestNumbers(t *testing.T) {
	for in, want := range map[string]string{
		"18446744073709551615": "18446744073709551615", "123456789012345678901234567890": "123456789012345678901234567890",
		"+123456789012345678901234567890": "123456789012345678901234567890", "-123456789012345678901234567890": "-123456789012345678901234567890",
		"1_000_000_000_000_000_000_000": "1000000000000000000000", "0xFFFFFFFFFFFFFFFF": "18446744073709551615", "0x8000000000000000": "9223372036854775808",
		"-0x10": "-16", "0o17": "15", "1_0.5": "10.5", "+1.50": "1.50", ".5": "0.5", "018": "18",
	} {
		var v struct {
			Any json.RawMessage `json:"any"`
		}
		if err := source.Decode("f.yaml", []byte("any:\n  a: "+in+"\n"), &v).Err(); err != nil || string(v.Any) != `{"a":`+want+`}` {
			t.Errorf("%s is %s, %v", in, v.Any, err)
		}
	}
	var v struct {
		Any json.RawMessage `json:"any"`
		N   int             `json:"n"`
	}
	err := source.Decode("f.yaml", []byte("any:\n  a: 1\n  b: [1, .inf]\nn: 123456789012345678901\n"), &v).Err()
	want := "f.yaml:3: any: a number that JSON has no form for: give a finite one, or text in quotes\nf.yaml:4: n: the number is out of range: it must fit 64 bits"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}

func TestConfigFile(t *testing.T) {
	s := read(t, "a.yaml", "name: demo\ngroupRef: tools\nincomingAuth: {type: anonymous}\n")
	o := s.Objects[0]
	v, ok := o.Value.(*v1beta1.VirtualMCPServer)
	if !ok || !o.Config || v.Name != "demo" || v.Spec.Config.GroupRef != "tools" || v.Spec.Config.IncomingAuth.Type != "anonymous" {
		t.Errorf("got %+v of %+v", o, v)
	}
}

func TestLoadDirectory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("b.yml", group("b"))
	write("a.YAML", group("a"))
	write("c.json", `{"apiVersion":"weir.dev/v1beta1","kind":"MCPGroup","metadata":{"name":"c"}}`)
	write("d.txt", "not: a: manifest")
	write(".hidden.yaml", "not: a: manifest")
	write("sub/e.yaml", group("e"))
	write("f.yaml/g.yaml", group("g"))
	s, err := source.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(s), "MCPGroup/a MCPGroup/b MCPGroup/c"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := s.Objects[1].Origin, filepath.Join(dir, "b.yml")+":1"; got != want {
		t.Errorf("origin %s, want %s", got, want)
	}
}

func TestLoadNothing(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                             "no file *.yaml, *.yml or *.json in the directory",
		filepath.Join(dir, "none.yaml"): "no such file or directory",
	} {
		_, err := source.Load(path)
		if err == nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// What would fill the memory or the stack is refused with what to do about it.
func TestBounds(t *testing.T) {
	nested := func(n int) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nbinaryData: " + strings.Repeat("[", n) + strings.Repeat("]", n) + "\n"
	}
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.Repeat(fmt.Sprintf("*%c, ", c-1), 10))
	}
	for _, c := range []struct{ name, file, text, want string }{
		{"file", "a.yaml", strings.Repeat("#", 4<<20) + "\n", "the file is larger than 4 MiB"},
		{"documents", "a.yaml", strings.Repeat(group("a")+"---\n", 1001), "a.yaml:5001: more than 1000 documents"},
		{"json documents", "a.json", strings.Repeat("{\"kind\":\"MCPGroup\"}\n", 1001), "a.json:1001: more than 1000 documents"},
		{"nesting", "a.yaml", nested(99) + "---\n" + nested(101), "nested deeper than 100 levels"},
		{"nesting beyond the parser", "a.yaml", nested(20000), "nested deeper than 100 levels"},
		{"json nesting", "a.json", strings.Repeat("[", 200), "nested deeper than 100 levels"},
		{"values", "a.yaml", "x: [" + strings.Repeat("1,", 250_000) + "]\n", "more than 200000 values"},
		{"aliases", "a.yaml", bomb, "aliases blow the file up to more than 200000 values"},
		{"a circle", "a.yaml", "a: &a\n  b: *a\n", "an alias holds itself"},
		{"a long key", "a.yaml", "? " + strings.Repeat("k", 1<<20) + "\n: {a: {a: {a: {a: 1}}}}\n", "neither an object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := source.Read(c.file, []byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %s", err, c.want)
			}
			if len(err.Error()) > 100_000 {
				t.Errorf("%d bytes of errors", len(err.Error()))
			}
		})
	}
}

// However much is wrong with a document, what is said about it is bounded, and
// so is the time that it takes: each of these would take minutes if every error
// were compared with every other.
func TestBoundedErrors(t *testing.T) {
	head := "apiVersion: weir.dev/v1beta1\nkind: VirtualMCPServer\nmetadata: {name: demo}\nspec:\n  groupRef: {name: tools}\n  incomingAuth: {type: anonymous}\n"
	var unknown, entries strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&unknown, "unknown%d: 5, ", i)
		fmt.Fprintf(&entries, "b%d: {type: xaa}, ", i)
	}
	for name, text := range map[string]string{
		"fields":     head + "  config: {" + unknown.String() + "}\n",
		"references": head + "  filterRefs: [" + strings.Repeat("{name: abcdefgh}, ", 40_000) + "]\n",
		"backends":   head + "  config:\n    backends: [" + strings.Repeat("{name: abcdefgh}, ", 20_000) + "]\n",
		"strategies": head + "  config:\n    backends: [{name: a, url: 'http://x/', transport: sse}]\n    outgoingAuth: {source: inline, backends: {" + entries.String() + "}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := source.Read("a.yaml", []byte(text)) // What it finds is in the result.
			if n := len(s.Compile().Findings); n < 100 || n > 210 {
				t.Errorf("%d findings, want about 100", n)
			}
		})
	}
}

// The limit on documents is on the set, not on a file.
func TestBoundOfDirectory(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		text := strings.Repeat(group("a")+"---\n", 400)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := source.Load(dir)
	if err == nil || !strings.Contains(err.Error(), "2.yaml:1001: more than 1000 documents") {
		t.Errorf("got %v", err)
	}
	if len(s.Objects) != 1000 {
		t.Errorf("%d objects", len(s.Objects))
	}
}

// No form of printing shows a secret's value.
func TestSecretsStayHidden(t *testing.T) {
	s := read(t, "a.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\ndata: {a: aHVudGVyMg==}\nstringData: {b: hunter2}\n")
	r := s.Compile()
	secret := s.Objects[0].Value.(*compile.Secret)
	for _, x := range []any{s, *s, r, *r, s.Set, s.Objects, secret, *secret, secret.Data, secret.StringData["b"]} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			got := fmt.Sprintf(verb, x)
			for _, bad := range []string{"hunter2", "aHVudGVyMg", "68756e74657232", "104 117 110", "0x68, 0x75"} {
				if strings.Contains(got, bad) {
					t.Errorf("%s of %T shows %s", verb, x, bad)
				}
			}
		}
	}
	out, err := json.Marshal(secret)
	if err != nil || strings.Contains(string(out), "hunter2") || strings.Contains(string(out), "aHVud") || !strings.Contains(string(out), "REDACTED") {
		t.Errorf("as JSON: %s, %v", out, err)
	}
	if got, _ := s.Secret("x", "a"); string(got) != "hunter2" {
		t.Errorf("the value itself is %q", got)
	}
}

// Whatever a terminal would act upon is escaped.
func TestMessagesAreOneLine(t *testing.T) {
	_, err := source.Read("a\x1b[31m.yaml", []byte(`{"kind": "MCPGroup\u001b[31m\n", "apiVersion": "x\r\ny", "metadata": {"name": "a\nb"}, "sp\nec": 1}`))
	text := err.Error()
	if strings.ContainsAny(text, "\x1b\r") || strings.Count(text, "\n") != len(err.(source.Findings))-1 {
		t.Errorf("got %q", text)
	}
}

func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/broken/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	more, err := filepath.Glob("../compile/testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range append(files, more...) {
		if strings.HasSuffix(name, "alias-bomb.yaml") {
			continue // Each run of it takes as long as a thousand others.
		}
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(false, data)
	}
	f.Add(true, []byte(`{"kind":"MCPGroup","metadata":{"name":"a"}}{"x":[1,2.5e3,null,true,"\ud83d\ude00"]}`))
	f.Fuzz(func(t *testing.T, isJSON bool, data []byte) {
		name := "a.yaml"
		if isJSON {
			name = "a.json"
		}
		s, err := source.Read(name, data)
		r := s.Compile()
		if err != nil && r.Err() == nil {
			t.Errorf("Read failed and Compile did not: %v", err)
		}
		if (r.Plan == nil) != (r.Err() != nil) {
			t.Errorf("plan %v, error %v", r.Plan, r.Err())
		}
		for _, finding := range r.Findings {
			if text := finding.String(); len(text) > 8192 || strings.ContainsAny(text, "\n\r\x1b") || finding.Message == "" {
				t.Errorf("finding %q", text)
			}
			if lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 1; finding.Line > lines+strings.Count(string(data), "\u0085")+strings.Count(string(data), "\u2028")+strings.Count(string(data), "\u2029") {
				t.Errorf("line %d of %d: %s", finding.Line, lines, finding)
			}
		}
	})
}

// TestAdviceFitsWhatIsUnused: an object that nothing refers to, a field that nothing reads, and
// one that is read and doubtful have different things to be done about.
func TestAdviceFitsWhatIsUnused(t *testing.T) {
	for _, one := range []struct{ path, message, want string }{
		{"", "not used: no server refers to it", "refer to it"},
		{"spec.caBundleRef", "not used: the URL is http, which knows no certificates", "take the field out"},
		{"spec.authServerConfig.hmacSecretRefs", "one is made at each start: weir auth keygen makes one that stays", "do as it says"},
	} {
		f := source.Finding{Finding: compile.Finding{Severity: compile.Warning, Path: one.path, Reason: compile.ReasonUnused, Message: one.message}}
		if got := f.Advice(); !strings.Contains(got.Next, one.want) || one.path != "" && strings.Contains(got.Next, "refer to it") {
			t.Errorf("%s: %q", one.message, got.Next)
		}
	}
}

// TestAdviceOnSettings: a value that is right needs no other one where a setting of the process is
// missing. The finding names the setting.
func TestAdviceOnSettings(t *testing.T) {
	for file, setting := range map[string]string{"laptop": "--allow-workloads local", "team": "--local-rate-limits"} {
		found := source.OpenAll([]string{"../../examples/" + file + "/weir.yaml"}).Findings.Errors()
		if len(found) == 0 {
			t.Errorf("%s: nothing is found", file)
		}
		for _, f := range found {
			if got := f.Advice(); !strings.Contains(got.Cause, setting) || !strings.HasPrefix(got.Next, "do as it says: give the setting to the edge") {
				t.Errorf("%s: %q, %q", file, got.Cause, got.Next)
			}
		}
	}
	f := source.Finding{Finding: compile.Finding{Reason: compile.ReasonNotAllowed, Message: "allow it with spec.run.allowPrivileged"}}
	if got := f.Advice(); got.Next != "do as it says" {
		t.Errorf("%q", got.Next)
	}
}

// TestAuthServerInAPart: an authorization server whose server is in the rest of the set is judged
// as far as that goes, and its type is one that there is.
func TestAuthServerInAPart(t *testing.T) {
	for more, want := range map[string]string{
		"": "",
		", tokenLifespans: {authCodeLifespan: 1h}":                  "spec.embeddedAuthServer.tokenLifespans.authCodeLifespan: ",
		", authorizationEndpointBaseUrl: 'https://login.x.example'": "",
		", baselineClientScopes: [other]":                           "spec.embeddedAuthServer.baselineClientScopes[0]: ",
	} {
		s := read(t, "part.yaml", `apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: login}
spec:
  type: embeddedAuthServer
  embeddedAuthServer: {issuer: 'https://a.example', upstreamProviders: [{name: idp, type: oidc, oidcConfig: {issuerUrl: 'https://i.example', clientId: x}}]`+more+`}
`)
		s.Part = true
		found := s.Compile().Findings.Error()
		if want == "" && found != "" || !strings.Contains(found, want) || strings.Count(found, "\n") > 0 {
			t.Errorf("%s: %q, want %q", more, found, want)
		}
	}
}

// TestCompositeToolInAPart: a composite tool that servers in the rest of the set refer to is held
// to every rule, once for each.
func TestCompositeToolInAPart(t *testing.T) {
	for steps, want := range map[string]string{
		`[{id: a, tool: w.t}]`:                                   "",
		`[{id: a, tool: w.t, condition: '{{.workflow.name}}'}]`:  "spec.steps[0].condition: a workflow has no name",
		`[{id: a, tool: w.t, condition: '{{.steps.a.status}}'}]`: "spec.steps[0].condition: step a reads itself",
		`[{id: a, tool: w.t, dependsOn: [z]}]`:                   "spec.steps[0].dependsOn[0]: ", // which the rules of the model say
		`[{id: a, tool: [w.t]}]`:                                 "spec.steps[0].tool: ",
		`[{id: a, tool: w.t, timeout: [5s]}]`:                    "spec.steps[0].timeout: ",
	} {
		s, _ := source.Read("part.yaml", []byte(`apiVersion: weir.dev/v1beta1
kind: VirtualMCPCompositeToolDefinition
metadata: {name: flow}
spec: {name: flow, description: d, steps: `+steps+`}
`))
		s.Part = true
		if found := s.Compile().Findings.Error(); want == "" && found != "" || !strings.Contains(found, want) || strings.Contains(found, "\n") {
			t.Errorf("%s: %q, want %q", steps, found, want)
		}
	}
}

// TestDecisionPointInAPart: an outside decision point whose server is in the rest of the set is
// judged, too.
func TestDecisionPointInAPart(t *testing.T) {
	for timeout, want := range map[string]string{"30": "", "500": "spec.config.http.timeout: "} {
		s := read(t, "part.yaml", `apiVersion: weir.dev/v1beta1
kind: MCPAuthzConfig
metadata: {name: point}
spec: {type: httpv1, config: {http: {url: 'https://pdp.example', timeout: `+timeout+`}, claim_mapping: standard}}
`)
		s.Part = true
		if found := s.Compile().Findings.Error(); want == "" && found != "" || !strings.Contains(found, want) {
			t.Errorf("timeout %s: %q, want %q", timeout, found, want)
		}
	}
}
