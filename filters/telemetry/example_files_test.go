package telemetry

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/audit"
)

const examples = "../../examples/observability/"

// exported is what a server with telemetry and an audit log exports once it has
// answered and failed: the labels of each metric, by the names that queries use.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	c := startCollector(t, "http", false)
	c.down = true
	part, errs := audit.Parse(audit.Spec{Server: "s", Config: v1beta1.Audit{Enabled: true, LogFile: filepath.Join(t.TempDir(), "audit.log")}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	records, err := part.Start(edge.Env{Log: slog.New(slog.DiscardHandler), Defer: t.Cleanup})
	if err != nil {
		t.Fatal(err)
	}
	counted := CollectorFunc(func(emit func(Sample)) {
		for name, v := range records.Counters().Samples() {
			emit(Sample{Name: name, Value: float64(v), Labels: []edge.Header{{Name: "server", Value: "s"}}})
		}
	})
	tel, _ := open(t, Spec{Prometheus: true, Legacy: true, Traces: true, Endpoint: c.endpoint, Insecure: true, Sampling: "1"}, func(p *Part) { p.Collectors = []Collector{counted} })
	for _, last := range []edge.Handler{answers(t, good), fails(edge.Errorf(edge.Denied, "authz", "no"))} {
		_, _ = tel.Filter(records.Filter(tel.Backend(last))).Handle(context.Background(), call(t, "echo", "")) // what it answers is the handler's
	}
	flush(t, tel)
	text := scrape(t, tel)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	labels := make(map[string][]string)
	for name, f := range families {
		var all []string
		for _, m := range f.Metric {
			for _, l := range m.Label {
				all = append(all, l.GetName())
			}
		}
		if f.GetType().String() == "HISTOGRAM" {
			labels[name+"_bucket"] = append(all, "le")
			labels[name+"_count"], labels[name+"_sum"] = all, all
			continue
		}
		labels[name] = all
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

func TestFaults(t *testing.T) {
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
	labels := exported(t)
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
	if n < 20 {
		t.Errorf("%d queries", n)
	}
}

// manifests checks the servers and telemetry configurations of a file, and
// returns how many there are.
func manifests(t *testing.T, text string) int {
	t.Helper()
	n := 0
	for doc := range strings.SplitSeq(text, "---\n") {
		var meta struct{ Kind string }
		if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
			t.Fatal(err)
		}
		var o v1beta1.Object
		switch meta.Kind {
		case "VirtualMCPServer":
			o = &v1beta1.VirtualMCPServer{}
		case "MCPTelemetryConfig":
			o = &v1beta1.MCPTelemetryConfig{}
		case "MCPGroup":
			o = &v1beta1.MCPGroup{}
		case "MCPServerEntry":
			o = &v1beta1.MCPServerEntry{}
		case "Secret", "ConfigMap":
			continue
		default:
			t.Fatalf("kind %q", meta.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
			t.Errorf("%s%v", doc, err)
		}
		o.Default()
		if faults := o.Validate(); len(faults) > 0 {
			t.Errorf("%s%v", doc, faults)
		}
		var parsed *Part
		var errs field.ErrorList
		switch o := o.(type) {
		case *v1beta1.VirtualMCPServer:
			if c := o.Spec.Config.Telemetry; c != nil {
				parsed, errs = Parse(FromConfig("s", c, field.NewPath("spec", "config", "telemetry")))
			} else if o.Spec.TelemetryConfigRef != nil {
				continue
			}
			if c := o.Spec.Config.Audit; c != nil {
				p, errs := audit.Parse(audit.Spec{Server: "s", Config: *c})
				if p == nil || len(errs) > 0 {
					t.Errorf("%s%v", doc, errs)
				}
			}
		case *v1beta1.MCPTelemetryConfig:
			parsed, errs = Parse(FromKind("s", "", &o.Spec, nil, field.NewPath("spec")))
		default:
			continue
		}
		if n++; parsed == nil || len(errs) > 0 {
			t.Errorf("%s%v", doc, errs)
		}
	}
	return n
}

func TestExampleManifest(t *testing.T) {
	text, err := os.ReadFile(examples + "weir.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if n := manifests(t, string(text)); n != 1 {
		t.Errorf("%d servers", n)
	}
}

// Every manifest of the README is sound, and it names every metric there is.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	n := 0
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		n += manifests(t, block)
	}
	if n != 2 {
		t.Errorf("%d configurations", n)
	}
	for name := range exported(t) {
		if name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum"); !strings.HasPrefix(name, "weir_audit") && !strings.Contains(string(text), name) {
			t.Errorf("the README does not name %s", name)
		}
	}
}
