package authserver_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/v1beta1"
)

func TestMain(m *testing.M) { edgetest.Main(m) }

var update = flag.Bool("update", false, "write the golden files")

// Each NAME.yaml holds the fields of an authorization server and what is around it, and is
// judged as NAME.golden says: the rules that it breaks, what to know, and the Spec.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/spec/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d pairs, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var in struct {
				Around           authserver.Around `json:"around"`
				AuthServerConfig json.RawMessage   `json:"authServerConfig"`
			}
			if err := yaml.UnmarshalStrict(text, &in); err != nil {
				t.Fatal(err)
			}
			s := &v1beta1.VirtualMCPServer{}
			if err := yaml.UnmarshalStrict(fmt.Appendf(nil, `{"spec":{"authServerConfig":%s}}`, in.AuthServerConfig), s); err != nil {
				t.Fatal(err)
			}
			s.Default()
			spec, doubts, wrong := authserver.Parse(field.NewPath("spec", "authServerConfig"), s.Spec.AuthServerConfig, in.Around)
			var got bytes.Buffer
			for _, e := range wrong {
				fmt.Fprintf(&got, "error: %s\n", e)
			}
			for _, d := range doubts {
				fmt.Fprintf(&got, "doubt: %s: %s\n", d.Field, d.Text)
			}
			if len(wrong) == 0 {
				for _, at := range spec.Endpoints() {
					fmt.Fprintf(&got, "endpoint: %s\n", at)
				}
				text, err := yaml.Marshal(spec)
				if err != nil {
					t.Fatal(err)
				}
				got.Write(text)
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
