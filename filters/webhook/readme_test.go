package webhook_test

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge/v1beta1"
)

// Every manifest of the README is sound, and its webhooks can be parsed.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	configs, files := 0, 0
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, doc := range strings.Split(block, "---\n") {
			var meta struct{ Kind string }
			if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
				t.Fatal(err)
			}
			if meta.Kind == "Secret" {
				continue
			}
			if meta.Kind == "" {
				if _, errs := file(t, doc); len(errs) > 0 {
					t.Errorf("%s%v", doc, errs)
				}
				files++
				continue
			}
			hooks := &v1beta1.MCPWebhookConfig{}
			o := map[string]v1beta1.Object{"MCPWebhookConfig": hooks, "MCPServer": &v1beta1.MCPServer{}}[meta.Kind]
			if o == nil {
				t.Fatalf("kind %q", meta.Kind)
			}
			if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
				t.Error(err)
			}
			o.Default()
			if errs := o.Validate(); len(errs) > 0 {
				t.Errorf("%s%v", doc, errs)
			}
			if o == v1beta1.Object(hooks) {
				configs++
				parse(t, hooks.Spec)
			}
		}
	}
	if configs != 2 || files != 1 {
		t.Errorf("%d configurations, %d files", configs, files)
	}
}
