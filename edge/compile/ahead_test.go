package compile_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/source"
)

// Each NAME.yaml of testdata/ahead holds an authorization server and what is around it. It
// compiles to NAME.golden for an edge in which they are wired, and to no plan for this one.
func TestGoldenAhead(t *testing.T) {
	files, err := filepath.Glob("testdata/ahead/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d pairs, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			set, err := source.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			if now := set.Compile(); now.Plan != nil {
				t.Errorf("it is served before it is wired")
			}
			p, report := compile.Ahead(set.Set)
			var got bytes.Buffer
			for _, f := range report.Findings {
				fmt.Fprintf(&got, "%s: %s: %s: %s\n", f.Severity, f.Object, f.Path, f.Message)
			}
			got.WriteString("\n# conditions\n" + conditions(report))
			if p != nil {
				got.WriteString("\n# plan\n" + plan(t, p) + secrets(p))
			}
			golden := strings.TrimSuffix(name, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil || !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%v: got\n%s\nwant\n%s", err, got.Bytes(), want)
			}
		})
	}
}
