package workload

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// A manager that its watcher starts again after a logout answers, and is found.
func TestSocketAfterALogout(t *testing.T) {
	dir := t.TempDir()
	paths := pathsAt(t, dir)
	paths.Run = filepath.Join(dir, "run", "weir")
	if err := os.WriteFile(filepath.Join(dir, "run"), nil, 0o600); err != nil { // where nothing can be made
		t.Fatal(err)
	}
	k, err := Open(KeeperOptions{Paths: paths, Edge: &played{}, Log: slog.New(slog.DiscardHandler), Version: "test", Boot: "one"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	if _, err := k.Listen(func() {}); err == nil {
		t.Error("without a watcher it is not told")
	}
	k.Watcher = "watcher"
	answer(t, k)
	elsewhere := paths
	elsewhere.Run = paths.State
	c, err := Find(t.Context(), elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
