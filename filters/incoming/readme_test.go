package incoming_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/incoming"
)

// TestReadme holds that every manifest of the README is sound and describes an
// authentication that can be opened.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```yaml\n")[1:]
	if len(blocks) != 3 {
		t.Errorf("%d blocks", len(blocks))
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		var server *v1beta1.VirtualMCPServer
		var provider *v1beta1.MCPOIDCConfig
		var spec *incoming.Spec
		for _, doc := range strings.Split(block, "---\n") {
			var meta struct{ Kind string }
			if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
				t.Fatal(err)
			}
			var o v1beta1.Object
			switch meta.Kind {
			case "VirtualMCPServer":
				server = &v1beta1.VirtualMCPServer{}
				o = server
			case "MCPOIDCConfig":
				provider = &v1beta1.MCPOIDCConfig{}
				o = provider
			case "MCPGroup":
				o = &v1beta1.MCPGroup{}
			case "MCPServerEntry":
				o = &v1beta1.MCPServerEntry{}
			case "Secret":
				continue
			case "":
				config := &v1beta1.ServerConfig{}
				if err := yaml.UnmarshalStrict([]byte(doc), config); err != nil {
					t.Errorf("%s%v", doc, err)
					continue
				}
				s := incoming.FromConfig(config.IncomingAuth)
				spec = &s
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
		}
		if server != nil {
			s := incoming.FromKind(server.Spec.IncomingAuth, &provider.Spec, "")
			spec = &s
		}
		in, err := incoming.Parse(*spec)
		if err != nil {
			t.Errorf("%s%v", block, err)
			continue
		}
		if d := in.Document(); d != nil && !json.Valid(d) {
			t.Errorf("%s", d)
		}
	}
}
