package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/container"
)

// How containers are linked, as the user's defaults say it.
func TestLinkIn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "workloads.yaml")
	for text, want := range map[string]container.Link{"": "auto", "registry: {source: x}\n": "auto", "link: auto\n": "auto", "link: socket\n": "socket", "link: attach\nsecrets: {provider: environment}\n": "attach"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if link, err := linkIn(file); link != want || err != nil {
			t.Errorf("%q: %q, %v", text, link, err)
		}
	}
	for _, path := range []string{"", filepath.Join(t.TempDir(), "none")} {
		if link, err := linkIn(path); link != container.LinkAuto || err != nil {
			t.Errorf("%q: %q, %v", path, link, err)
		}
	}
	for _, bad := range []string{"link: wire\n", "link: [a]\n", ":\n  - x: [\n", strings.Repeat("#", maxDefaults+1)} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if link, err := linkIn(file); err == nil || !strings.Contains(err.Error(), "workloads.yaml: ") {
			t.Errorf("%.20q: %q, %v", bad, link, err)
		}
	}
}
