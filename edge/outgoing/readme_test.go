package outgoing_test

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Every manifest of the READMEs here and of secrets is sound, and can be parsed
// and opened.
func TestReadme(t *testing.T) {
	for _, name := range []string{"README.md", "../secret/README.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			for _, doc := range strings.Split(block, "---\n") {
				if strings.Contains(doc, "kind: Secret\n") {
					continue
				}
				o := &v1beta1.MCPExternalAuthConfig{}
				if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
					t.Fatal(err)
				}
				o.Default()
				if errs := o.Validate(); len(errs) > 0 {
					t.Errorf("%s%v", doc, errs)
				}
				v := &vault{}
				v.set("search/api-key", "v")
				v.set("github/token", "v")
				open(t, must(outgoing.Parse(field.NewPath("spec"), &o.Spec)), v)
				found++
			}
		}
		if found == 0 {
			t.Errorf("%s has no manifest", name)
		}
	}
}
