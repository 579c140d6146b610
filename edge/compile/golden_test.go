package compile_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/audit"
	"github.com/weir-edge/weir/filters/authz"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/filters/incoming"
	"github.com/weir-edge/weir/filters/ratelimit"
	"github.com/weir-edge/weir/filters/telemetry"
	"github.com/weir-edge/weir/filters/webhook"
)

var update = flag.Bool("update", false, "write the golden files")

// Each NAME.yaml compiles to NAME.golden: the plan, what a user reads, and the
// conditions of the objects.
func TestGolden(t *testing.T) {
	t.Chdir("testdata")
	files, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 8 {
		t.Errorf("%d pairs, want 8 or more", len(files))
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			golden(t, strings.TrimSuffix(name, ".yaml")+".golden", source.Open(name, how(name)...))
		})
	}
}

// how is how the set of a file is opened: those that start workloads are of an edge that
// may, and those of doors of one that gives each server its own.
func how(name string) (options []source.Option) {
	if strings.HasPrefix(name, "local") {
		options = append(options, source.AllowWorkloads("local"))
	}
	if strings.Contains(name, "-door") {
		options = append(options, func(s *source.Set) { s.Doors = true })
	}
	if strings.Contains(name, "-cluster") {
		options = append(options, func(s *source.Set) { s.Cluster = true })
	}
	return options
}

// Each NAME.yaml of testdata/refused compiles to no plan, and NAME.golden has why.
func TestGoldenRefused(t *testing.T) {
	t.Chdir("testdata/refused")
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d pairs, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			r := source.Open(name)
			if r.Plan != nil {
				t.Fatal("it is served")
			}
			var text bytes.Buffer
			if err := r.Render(&text); err != nil {
				t.Fatal(err)
			}
			same(t, strings.TrimSuffix(name, ".yaml")+".golden", []byte("# what a user reads\n"+text.String()+"\n# conditions\n"+conditions(r.Report)))
		})
	}
}

func TestGoldenDefault(t *testing.T) {
	t.Chdir("testdata")
	golden(t, "default.golden", source.OpenDefault("http://127.0.0.1:4485/mcp"))
}

func golden(t *testing.T, name string, r *source.Result) {
	t.Helper()
	if r.Plan == nil {
		t.Fatalf("no plan:\n%v", r.Findings)
	}
	var text bytes.Buffer
	if err := r.Render(&text); err != nil {
		t.Fatal(err)
	}
	same(t, name, []byte("# what a user reads\n"+text.String()+"\n# plan\n"+plan(t, r.Plan)+secrets(r.Plan)+"\n# conditions\n"+conditions(r.Report)))
}

// same compares what there is with a golden file, or writes that.
func same(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// plan writes a plan as YAML, with what is empty left out.
func plan(t *testing.T, p *compile.Plan) string {
	t.Helper()
	type sent struct {
		Ref     string                             `json:"ref,omitempty"`
		Kind    *v1beta1.MCPExternalAuthConfigSpec `json:"kind,omitempty"`
		Config  *v1beta1.OutgoingStrategy          `json:"config,omitempty"`
		Forward *v1beta1.HeaderForward             `json:"forward,omitempty"`
	}
	if n, m := reflect.TypeFor[outgoing.Spec]().NumField(), reflect.TypeFor[sent]().NumField(); n != m {
		t.Fatalf("what a backend is sent has %d fields, and %d are written", n, m)
	}
	type backend struct {
		Name         string              `json:"name"`
		URL          string              `json:"url"`
		Workload     *compile.Workload   `json:"workload,omitempty"`
		Transport    compile.Transport   `json:"transport"`
		CABundle     string              `json:"caBundle,omitempty"`
		CABundlePath string              `json:"caBundlePath,omitempty"`
		Private      bool                `json:"private,omitempty"`
		Timeout      string              `json:"timeout"`
		Patient      bool                `json:"patient,omitempty"`
		Metadata     map[string]string   `json:"metadata,omitempty"`
		Outgoing     *sent               `json:"outgoing,omitempty"`
		Login        *v1beta1.RemoteAuth `json:"login,omitempty"`
	}
	type breaker struct {
		Threshold int    `json:"threshold"`
		Timeout   string `json:"timeout"`
	}
	type failure struct {
		Interval   string   `json:"interval"`
		Timeout    string   `json:"timeout"`
		Threshold  int      `json:"threshold"`
		BestEffort bool     `json:"bestEffort"`
		Report     string   `json:"report"`
		Breaker    *breaker `json:"breaker,omitempty"`
	}
	type server struct {
		Name     string            `json:"name"`
		Title    string            `json:"title"`
		Group    string            `json:"group,omitempty"`
		Metadata map[string]string `json:"metadata,omitempty"`
		Backends []backend         `json:"backends"`
		Names    *catalog.Rules    `json:"names,omitempty"`
		Bare     bool              `json:"bare,omitempty"`
		Forward  []string          `json:"forward,omitempty"`
		Incoming *incoming.Spec    `json:"incoming,omitempty"`
		Authz    *authz.Spec       `json:"authz,omitempty"`
		Filters  []guest.Spec      `json:"filters,omitempty"`
		Failure  *failure          `json:"failure,omitempty"`
		Store    *compile.Store    `json:"store,omitempty"`
		Limits   *ratelimit.Spec   `json:"limits,omitempty"`
		Webhooks *webhook.Spec     `json:"webhooks,omitempty"`
		CodeMode *compile.CodeMode `json:"codeMode,omitempty"`

		Optimizer *compile.Optimizer `json:"optimizer,omitempty"`

		Workflows map[string]string `json:"workflows,omitempty"` // programs by name
		Composed  []compile.Place   `json:"composed,omitempty"`

		Audit     *audit.Spec     `json:"audit,omitempty"`
		Telemetry *telemetry.Spec `json:"telemetry,omitempty"`
		Debug     bool            `json:"debug,omitempty"`

		Point      *authz.PointSpec `json:"point,omitempty"`
		SessionTTL string           `json:"sessionTTL,omitempty"`
		Stateless  bool             `json:"stateless,omitempty"`
		Prefix     string           `json:"prefix,omitempty"`
		Forwarded  bool             `json:"forwarded,omitempty"`
		Older      bool             `json:"older,omitempty"`
		Roots      string           `json:"roots,omitempty"`
		AuthServer *authserver.Spec `json:"authServer,omitempty"`

		Conditions []compile.Condition `json:"-"` // written beside those of all objects
	}
	if n := reflect.TypeFor[compile.Plan]().NumField(); n != 4 {
		t.Fatalf("a plan has %d fields, and 4 are written", n)
	}
	if n, m := reflect.TypeFor[compile.Backend]().NumField(), reflect.TypeFor[backend]().NumField(); n != m {
		t.Fatalf("a backend has %d fields, and %d are written", n, m)
	}
	if n, m := reflect.TypeFor[compile.Server]().NumField(), reflect.TypeFor[server]().NumField(); n != m {
		t.Fatalf("a server has %d fields, and %d are written", n, m)
	}
	var servers []server
	for _, s := range p.Servers {
		out := server{Name: s.Name, Title: s.Title, Group: s.Group, Metadata: s.Metadata, Bare: s.Bare, Forward: s.Forward, Incoming: s.Incoming, Authz: s.Authz, Filters: s.Filters, Webhooks: s.Webhooks, CodeMode: s.CodeMode, Optimizer: s.Optimizer, Composed: s.Composed, Store: s.Store, Limits: s.Limits, Audit: s.Audit, Telemetry: s.Telemetry, Debug: s.Debug,
			Point: s.Point, Stateless: s.Stateless, Prefix: s.Prefix, Forwarded: s.Forwarded, Older: s.Older, Roots: s.Roots, AuthServer: s.AuthServer}
		if s.SessionTTL > 0 {
			out.SessionTTL = s.SessionTTL.String()
		}
		for _, w := range s.Workflows {
			if out.Workflows == nil {
				out.Workflows = map[string]string{}
			}
			out.Workflows[w.Name()] = w.Show()
		}
		if !s.Bare { // the rules of a bare server say nothing
			out.Names = s.Names
		}
		if f := s.Failure; f != (compile.Failure{Interval: 30 * time.Second, Timeout: 10 * time.Second, Threshold: 3, Report: 30 * time.Second}) {
			out.Failure = &failure{f.Interval.String(), f.Timeout.String(), f.Threshold, f.BestEffort, f.Report.String(), nil}
			if f.Breaker != nil {
				out.Failure.Breaker = &breaker{f.Breaker.Threshold, f.Breaker.Timeout.String()}
			}
		}
		for _, b := range s.Backends {
			out.Backends = append(out.Backends, backend{b.Name, b.URL, b.Workload, b.Transport, b.CABundle, b.CABundlePath, b.Private, b.Timeout.String(), b.Patient, b.Metadata, (*sent)(b.Outgoing), b.Login})
		}
		servers = append(servers, out)
	}
	text, err := yaml.Marshal(servers)
	if err != nil || len(p.Doors) == 0 {
		return string(text)
	}
	doors, err := yaml.Marshal(p.Doors)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n# doors\n" + string(doors)
}

// secrets writes which secrets a plan needs, and which its documents hold.
func secrets(p *compile.Plan) string {
	var b strings.Builder
	for _, n := range p.Needs {
		fmt.Fprintf(&b, "%s needs %s/%s\n", n, n.Name, n.Key)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Secrets)) {
		fmt.Fprintf(&b, "Secret/%s holds %v\n", name, p.Secrets[name])
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n# secrets\n" + b.String()
}

// conditions writes the conditions as KIND/NAME TYPE=STATUS (REASON) message.
func conditions(r *compile.Report) string {
	var b strings.Builder
	for _, s := range r.Statuses {
		for _, c := range s.Conditions {
			is := "False"
			if c.True {
				is = "True"
			}
			b.WriteString(strings.TrimSpace(s.Object.String()+" "+c.Type+"="+is+" ("+c.Reason+") "+c.Message) + "\n")
		}
	}
	return b.String()
}
