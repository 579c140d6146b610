package audit

import (
	"os"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// TestReadme holds that the README names every type of record and every
// metric. Its manifest is started by TestReadmesOfWhatObserves.
func TestReadme(t *testing.T) {
	file, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(file)
	for _, name := range Types() {
		short := strings.TrimPrefix(strings.TrimPrefix(name, "vmcp_workflow_step"), "vmcp_workflow")
		if !strings.Contains(text, "`"+short+"`") && !strings.Contains(text, "`"+name+"`") {
			t.Errorf("the README does not name %s", name)
		}
	}
	(&Log{queue: &queue{}}).Collect(edge.Emitter{Emit: func(s edge.Sample) {
		if !strings.Contains(text, s.Name+"_total") {
			t.Errorf("the README does not name %s", s.Name)
		}
	}})
}
