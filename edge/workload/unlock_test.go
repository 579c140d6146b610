package workload_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/workload"
)

// A manager takes the right password at its socket, and goes on with what waits for it; of
// another one it says that it is, and not which.
func TestUnlock(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, secret.FileName)
	if err := secret.NewEncrypted(path).Create(t.Context(), "the right password", nil); err != nil {
		t.Fatal(err)
	}
	e := secret.NewEncrypted(path)
	unlocked := 0
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(workload.Hello{API: workload.API})
	})
	mux.Handle(workload.UnlockPath, workload.Unlocking(e, func() { unlocked++ }))
	socket := filepath.Join(dir, "m.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(l) }() // ends with the server
	t.Cleanup(func() { _ = server.Close(); <-ended })
	c, err := workload.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	for _, wrong := range []edge.Secret{"", "a wrong password", edge.Secret(strings.Repeat("w", 1<<20))} {
		err := c.Unlock(t.Context(), wrong)
		var said *workload.Error
		if !errors.As(err, &said) || len(wrong) > 0 && strings.Contains(err.Error(), string(wrong)) || unlocked != 0 {
			t.Errorf("%d bytes: %v", len(wrong), err)
		}
	}
	if !e.Locked() {
		t.Error("it is open")
	}
	if err := c.Unlock(t.Context(), "the right password"); err != nil || e.Locked() || unlocked != 1 {
		t.Errorf("%v, %d", err, unlocked)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	var said *workload.Error
	if err := c.Unlock(t.Context(), "the right password"); !errors.As(err, &said) || !strings.Contains(err.Error(), "there is no file of secrets") {
		t.Error(err)
	}
}
