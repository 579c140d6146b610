package peers_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/weir-edge/weir/cmd/weir/apps"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// TestConfigurationsOfClients: what "weir client setup" writes is read by the parser of an
// editor, with our entries and everything that was there.
func TestConfigurationsOfClients(t *testing.T) {
	kit, err := peers.Find()
	if err != nil {
		t.Fatal(err)
	}
	edgetest.Need(t, kit.Lacks() == "", kit.Lacks())
	home := t.TempDir()
	k := &apps.Keeper{Dir: t.TempDir(), Place: apps.Place{System: "darwin", Program: "/opt/weir", Lookup: func(name string) (string, bool) { return home, name == "HOME" }}}
	var names, before, after []string
	for _, app := range apps.All() {
		if app.Syntax != "json" {
			continue
		}
		golden, err := txtar.ParseFile(filepath.Join(kit.Root, "cmd", "weir", "apps", "testdata", app.Name+".txtar"))
		if err != nil {
			t.Fatal(err)
		}
		file, err := app.File(k.Place)
		if err != nil {
			t.Fatal(err)
		}
		text := []byte(strings.ReplaceAll(string(golden.Files[0].Data), "\n", "\r\n"))
		for _, path := range []string{file, file + ".before"} {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		names, before, after = append(names, app.Name), append(before, file+".before"), append(after, file)
	}
	const url = "http://127.0.0.1:20001/mcp"
	reports, err := k.Setup(names, apps.Scope{}, func() ([]apps.Server, error) {
		return []apps.Server{{Name: "files", URL: url, Wish: apps.On}}, nil
	})
	if err != nil || len(reports) != 7 {
		t.Fatalf("%v, %v", reports, err)
	}
	out, err := peers.Run(peers.Command(t.Context(), kit.Node, append([]string{filepath.Join(kit.Dir(), "clients", "jsonc.mjs")}, append(before, after...)...)...))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2*len(names) {
		t.Fatalf("%d lines", len(lines))
	}
	for i, name := range names {
		app, _ := apps.Named(name)
		var was, is map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &was); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(lines[len(names)+i]), &is); err != nil {
			t.Fatal(err)
		}
		servers, _ := is[app.Key].(map[string]any)
		entry := servers["files"]
		want := map[string]any{
			"claude-code": map[string]any{"type": "http", "url": url}, "vscode": map[string]any{"type": "http", "url": url},
			"claude-desktop": map[string]any{"command": "/opt/weir", "args": []any{"stdio", "files"}},
			"cursor":         map[string]any{"url": url}, "zed": map[string]any{"url": url},
			"windsurf": map[string]any{"serverUrl": url}, "gemini-cli": map[string]any{"httpUrl": url},
		}[name]
		if !reflect.DeepEqual(entry, want) {
			t.Errorf("%s: the entry is %v, want %v", name, entry, want)
		}
		delete(servers, "files")
		if was[app.Key] == nil {
			was[app.Key] = map[string]any{}
		}
		if !reflect.DeepEqual(was, is) {
			t.Errorf("%s: %v has become %v", name, was, is)
		}
	}
}
