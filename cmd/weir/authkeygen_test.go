package main

import (
	"bytes"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge/oauth"
)

// TestKeygen: what is printed is a Secret whose key signs and whose HMAC secret is long
// enough, and each time another.
func TestKeygen(t *testing.T) {
	seen := map[string]bool{}
	for range 2 {
		var out, errs bytes.Buffer
		if code := runWeir([]string{"auth", "keygen", "--name", "login"}, &out, &errs); code != 0 {
			t.Fatalf("exit %d: %s", code, errs.String())
		}
		var doc struct {
			Kind       string            `json:"kind"`
			Metadata   map[string]string `json:"metadata"`
			StringData map[string]string `json:"stringData"`
		}
		if err := yaml.Unmarshal(out.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		signer, err := oauth.NewSigner([]byte(doc.StringData["key"]))
		if err != nil || signer.Algorithm() != "ES256" {
			t.Errorf("key: %v", err)
		}
		if len(doc.StringData["hmac"]) < 32 || doc.Kind != "Secret" || doc.Metadata["name"] != "login" || seen[doc.StringData["hmac"]] || seen[signer.ID] {
			t.Errorf("document %+v", doc.Metadata)
		}
		seen[doc.StringData["hmac"]], seen[signer.ID] = true, true
	}
	for _, args := range [][]string{{"--name", "A b"}, {"--name", "-x"}, {"word"}, {"--name", strings.Repeat("a", 64)}} {
		var out bytes.Buffer
		if code := runWeir(append([]string{"auth", "keygen"}, args...), &out, &out); code != 2 || strings.Contains(out.String(), "PRIVATE") {
			t.Errorf("%v: exit %d: %s", args, code, out.String())
		}
	}
}
