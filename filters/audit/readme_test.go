package audit

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// TestReadme holds that the manifest of the README is sound, and that the
// README names every type of record and every metric.
func TestReadme(t *testing.T) {
	file, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(file)
	_, block, found := strings.Cut(text, "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	_, doc, both := strings.Cut(block, "---\n")
	var server v1beta1.VirtualMCPServer
	if err := yaml.UnmarshalStrict([]byte(doc), &server); err != nil || !found || !both {
		t.Fatal(err)
	}
	server.Default()
	if faults := server.Validate(); len(faults) > 0 {
		t.Error(faults)
	}
	if p, errs := Parse(Spec{Config: *server.Spec.Config.Audit}); p == nil || len(errs) > 0 {
		t.Error(errs)
	}
	for _, name := range Types() {
		short := strings.TrimPrefix(strings.TrimPrefix(name, "vmcp_workflow_step"), "vmcp_workflow")
		if !strings.Contains(text, "`"+short+"`") && !strings.Contains(text, "`"+name+"`") {
			t.Errorf("the README does not name %s", name)
		}
	}
	for name := range (Counters{}).Samples() {
		if !strings.Contains(text, name+"_total") {
			t.Errorf("the README does not name %s", name)
		}
	}
}
