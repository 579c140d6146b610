package plugin

import (
	"encoding/json"
	"testing"

	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// TestPackedManifest: what the configuration says stays where it is, empty lines in texts of
// several lines and every digit of large numbers too.
func TestPackedManifest(t *testing.T) {
	config := `{"huge":123456789012345678901234567890,"text":"first\n\nsecond\n- third\nspec: fourth\n","word":"yes"}`
	packed, err := (&Packed{Digest: "d"}).EdgeFilter(&Project{Manifest: Manifest{Name: "x"}, Config: json.RawMessage(config)}, "x.wasm")
	if err != nil {
		t.Fatal(err)
	}
	var f v1beta1.EdgeFilter
	if err := source.Decode("f.yaml", packed, &f).Err(); err != nil || f.Name != "x" {
		t.Errorf("called %q, %v:\n%s", f.Name, err, packed)
	}
	got, err := json.Marshal(f.Spec.Config)
	if err != nil || string(got) != config {
		t.Errorf("the configuration is %s, %v:\n%s", got, err, packed)
	}
}
