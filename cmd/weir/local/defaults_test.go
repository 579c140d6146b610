package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/container"
)

// What a user's file of defaults says is read, and what it cannot say is told with its name.
func TestDefaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), DefaultsName)
	read := func(text string) (Defaults, error) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadDefaults(file)
	}
	for text, want := range map[string]container.Link{"": "", "registry: {source: x}\n": "", "link: auto\n": "auto", "link: socket\n": "socket", "link: attach\nsecrets: {provider: environment}\n": "attach"} {
		if d, err := read(text); d.Link != want || err != nil {
			t.Errorf("%q: %q, %v", text, d.Link, err)
		}
	}
	if d, err := ReadDefaults(filepath.Join(t.TempDir(), "none")); d.Link != "" || err != nil {
		t.Errorf("%+v, %v", d, err)
	}
	for bad, want := range map[string]string{
		"link: wire\n":                     `link: "wire": write auto, socket or attach`,
		"sandbox: [a]\n":                   "sandbox: a value of another type belongs here",
		"link: [a]\n":                      "link: a value of another type belongs here",
		"ports: 1-65536\n":                 `ports: "1-65536": write FIRST-LAST`,
		"ports: 0-9\n":                     `ports: "0-9": write FIRST-LAST`,
		"ports: 9-8\n":                     `ports: "9-8": write FIRST-LAST`,
		"ports: a-b\n":                     `ports: "a-b": write FIRST-LAST`,
		"ports: [9]\n":                     "ports: write FIRST-LAST",
		"runtimeImages: {npx: \"-x\"}\n":   "runtimeImages: npx: ",
		"runtimeImages: {node: a}\n":       "runtimeImages: node: write npx, uvx or go",
		"sandbox: none\n":                  `sandbox: "none": write auto, bwrap, landlock or off`,
		"secret: {provider: x}\n":          "secret: there is no such default: did you mean secrets?",
		"registry: {sources: a}\n":         "sources: there is no such default: did you mean source?",
		"colour: red\n":                    "colour: there is no such default",
		"link: auto\nlink: socket\n":       "link",
		":\n  - x: [\n":                    "",
		strings.Repeat("#", maxDefaults+1): "",
	} {
		if d, err := read(bad); err == nil || !strings.Contains(err.Error(), DefaultsName) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %+v, %v", bad, d, err)
		}
	}
	d, err := read("engine: unix:///run/mine.sock\n")
	if err != nil {
		t.Fatal(err)
	}
	none := func(string) (string, bool) { return "", false }
	if got, ok := d.Lookup(none)(container.DefaultEngine); got != "unix:///run/mine.sock" || !ok {
		t.Errorf("%q, %v", got, ok)
	}
	for _, name := range []string{"WEIR_ENGINE", "DOCKER_HOST"} {
		if got, ok := d.Lookup(none)(name); ok {
			t.Errorf("%s is %q", name, got)
		}
	}
	// Who named an engine that does not answer is said; a variable goes before the default.
	for set, want := range map[string]string{"": "engine in workloads.yaml: unix:///run/mine.sock", "/no/engine": "$WEIR_ENGINE: unix:///no/engine"} {
		_, err := container.Find(t.Context(), d.Lookup(func(name string) (string, bool) { return set, set != "" && name == "WEIR_ENGINE" }))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", set, err)
		}
	}
}
