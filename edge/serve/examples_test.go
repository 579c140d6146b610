package serve_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

const examples = "../../examples/observability/"

// exported is what the edge of the example exports once it has answered and
// failed: the labels of each metric, by the names that queries use.
func exported(t *testing.T, change func(yaml string) string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(examples + "weir.yaml")
	if err != nil {
		t.Fatal(err)
	}
	back := edgetest.NewServer(t, edgetest.Legacy)
	offers(back, "echo")
	away := newCollector(t, "http")
	yaml := change(string(text))
	for old, now := range map[string]string{
		"http://127.0.0.1:9000/mcp":                 back.URL,
		"/var/log/weir/audit.log":                   filepath.Join(t.TempDir(), "audit.log"),
		"endpoint: otel-collector.example.com:4317": "endpoint: " + away.Endpoint + "\n      insecure: true",
	} {
		if !strings.Contains(yaml, old) {
			t.Fatalf("the example has no %s", old)
		}
		yaml = strings.Replace(yaml, old, now, 1)
	}
	e := edgetest.Start(t, yaml, edgetest.Settings(func(s *serve.Settings) { s.AdminListen = "127.0.0.1:0" }))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	c := f.callerOf(t, edgetest.Legacy, "")
	for _, name := range listed(t, c) {
		c.request(t, "1", "tools/call", edgetest.CallParams(name, "{}"))
	}
	back.Always("tools/call", func(c *edgetest.Call) { c.Text(500, "text/plain", "no") })
	for _, name := range append(listed(t, c), "nothing") {
		c.request(t, "2", "tools/call", edgetest.CallParams(name, "{}"))
	}
	c.Post("{")
	labels := make(map[string][]string)
	for line := range strings.Lines(string(edgetest.NewClient(t, "http://"+e.Serve.AdminAddr()).Do("GET", "/metrics", "").Body)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		series, _, _ := strings.Cut(line, " ")
		name, rest, _ := strings.Cut(series, "{")
		labels[name] = append(labels[name], "")
		for _, m := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(rest, -1) {
			labels[name] = append(labels[name], m[1])
		}
	}
	return labels
}

// faults says what in a query names no metric, or no label of its metrics.
func faults(query string, labels map[string][]string) []string {
	var wrong, known []string
	words := regexp.MustCompile(`(?:weir|mcp)_[a-z_]+(?:\{|\[| |\)|$|,)`)
	for _, w := range words.FindAllString(query, -1) {
		name := strings.TrimRight(w, "{[ ),")
		if l, ok := labels[name]; ok {
			known = append(known, l...)
		} else if !slices.Contains([]string{"mcp_method_name"}, name) {
			wrong = append(wrong, name)
		}
	}
	for _, m := range regexp.MustCompile(`(?:by \(([^)]*)\)|([a-z_]+)(?:=~|!=|="))`).FindAllStringSubmatch(query, -1) {
		for _, l := range strings.Split(m[1]+m[2], ",") {
			if l = strings.TrimSpace(l); !slices.Contains(known, l) {
				wrong = append(wrong, l)
			}
		}
	}
	return wrong
}

func TestFaultsOfQueries(t *testing.T) {
	labels := map[string][]string{"weir_a_total": {"server"}}
	for query, want := range map[string]int{
		`sum by (server) (rate(weir_a_total{server="x"}[5m])) > 1`: 0,
		`rate(weir_b_total[5m])`:                                   1,
		`sum by (sever) (weir_a_total)`:                            1,
		`weir_a_total{sever=~"x"}`:                                 1,
	} {
		if got := faults(query, labels); len(got) != want {
			t.Errorf("%s: %q", query, got)
		}
	}
}

// The dashboard and the alert rules ask for nothing that is not there.
func TestExampleQueries(t *testing.T) {
	t.Parallel()
	labels := exported(t, func(yaml string) string { return yaml })
	text, err := os.ReadFile(examples + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range dashboard.Panels {
		for _, q := range p.Targets {
			n++
			if wrong := faults(q.Expr, labels); len(wrong) > 0 {
				t.Errorf("%s: no %q in %s", p.Title, wrong, q.Expr)
			}
		}
	}
	if text, err = os.ReadFile(examples + "alerts.yaml"); err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalStrict(text, &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			n++
			if wrong := faults(r.Expr, labels); len(wrong) > 0 || r.Alert == "" || r.Annotations["summary"] == "" || r.Labels["severity"] == "" {
				t.Errorf("%s: no %q in %s", r.Alert, wrong, r.Expr)
			}
		}
	}
	if n < 30 {
		t.Errorf("%d queries", n)
	}
}

// The READMEs of the rooms name every metric there is.
func TestMetricsAreNamed(t *testing.T) {
	t.Parallel()
	var text string
	for _, room := range []string{"telemetry", "audit"} {
		readme, err := os.ReadFile("../../filters/" + room + "/README.md")
		if err != nil {
			t.Fatal(err)
		}
		text += string(readme)
	}
	all := exported(t, func(yaml string) string {
		return strings.Replace(yaml, "incomingAuth: {type: anonymous}", `incomingAuth:
    type: anonymous
    authzConfig: {type: inline, inline: {policies: ["permit(principal, action, resource);"]}}`, 1)
	})
	for name := range all {
		name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("no README names %s", name)
		}
	}
	if len(all) < 40 {
		t.Errorf("%d metrics", len(all))
	}
}

// Every manifest of the READMEs of what observes is served.
func TestReadmesOfWhatObserves(t *testing.T) {
	t.Parallel()
	n := 0
	for _, room := range []string{"telemetry", "audit"} {
		readme, err := os.ReadFile("../../filters/" + room + "/README.md")
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(readme), "```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			e := edgetest.Start(t, strings.Replace(block, "/var/log/weir", t.TempDir(), 1))
			if r := e.NewClient().Do("GET", "/status", ""); r.Status != 200 || !strings.Contains(string(r.Body), `"name": "tools"`) {
				t.Errorf("status %d: %s", r.Status, r.Body)
			}
			n++
		}
	}
	if n != 3 {
		t.Errorf("%d manifests", n)
	}
}
