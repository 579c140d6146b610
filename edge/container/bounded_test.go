package container

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestLongAnswers: an engine that answers with more than is read as a whole is told by name, and
// sends little of it; what it streams goes on.
func TestLongAnswers(t *testing.T) {
	var sent atomic.Int64
	piece := bytes.Repeat([]byte(" "), 1<<20)
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.44") })
	mux.HandleFunc("/v1.44/version", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { // 32 MiB before the first value
		w.Header().Set("Content-Type", "application/json")
		for range 32 {
			n, err := w.Write(piece)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
		_, _ = w.Write([]byte(`{"status":"Pull complete"}`))
	})
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(mux)
	server.Listener = listener
	server.Start()
	defer server.Close()
	host := "unix://" + socket
	e, err := place{host: host}.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for name, ask := range map[string]func() error{
		"image":      func() error { _, err := e.Image(t.Context(), "probe:1"); return err },
		"containers": func() error { _, err := e.sweep(t.Context(), "m", func(string) bool { return true }); return err },
	} {
		sent.Store(0)
		err := ask()
		if want := "the container engine at " + host + " answers with more than 16 MiB"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		if n := sent.Load(); n > 24<<20 {
			t.Errorf("%s: it sent %d bytes", name, n)
		}
	}
	if err := e.Pull(t.Context(), "probe:1", "", nil); err != nil {
		t.Errorf("a pull: %v", err)
	}
	for _, stream := range []string{"GET images/get", "POST images/load", "GET containers/x/archive"} {
		method, path, _ := strings.Cut(stream, " ")
		q, err := http.NewRequestWithContext(t.Context(), method, "http://engine/v1.44/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := e.carries.RoundTrip(q)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, r.Body); n < 32<<20 || err != nil {
			t.Errorf("%s: %d bytes, %v", stream, n, err)
		}
		_ = r.Body.Close()
	}
}
