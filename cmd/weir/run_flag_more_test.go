package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runFlagPrintResolvedOverlays: what is hidden is printed, by the user's patterns and by a
// directory's own.
func runFlagPrintResolvedOverlays(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"config/ignore": ".env\nkeys/\n", "files/.env": "x", "files/keys/a": "x", "files/own": "x", "files/.weirignore": "/own\n"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(words ...string) string {
		t.Helper()
		a, out, errs := asking(t, newFakeManager())
		a.environ = []string{"WEIR_HOME=" + dir}
		code := a.run(append(append([]string{"run", "--dry-run", "-v", dir + "/files:/data:ro"}, words...), "--", idleProgram(t, "srv")))
		if code != 0 || strings.Contains(out.String(), "→") {
			t.Errorf("exit code %d: %s", code, out)
		}
		return errs.String()
	}
	files := dir + "/files/"
	want := files + ".env → /data/.env (empty)\n" + files + "keys → /data/keys (tmpfs)\n" + files + "own → /data/own (empty)\n"
	if said := run("--print-resolved-overlays"); !strings.Contains(said, want) {
		t.Errorf("%s, want %s", said, want)
	}
	if said := run("--print-resolved-overlays", "--ignore-globally=false"); strings.Contains(said, ".env →") || !strings.Contains(said, files+"own → /data/own (empty)\n") {
		t.Errorf("without the user's: %s", said)
	}
	if said := run(); strings.Contains(said, "→") {
		t.Errorf("without the flag: %s", said)
	}
}

// A permission profile is one of two words, or a file.
func TestRunCompletesProfiles(t *testing.T) {
	if said, _ := inHome([]string{"__complete", "run", "--permission-profile", ""}, t.TempDir()); !strings.HasPrefix(said, "none\nnetwork\n:0\n") {
		t.Errorf("%q", said)
	}
}
