package guest_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/sdk/abi"
)

// TestFetch gets modules over HTTPS, knows them by their digest alone, and keeps
// them for the next start.
func TestFetch(t *testing.T) {
	t.Parallel()
	binary, err := os.ReadFile(path(t))
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/f.wasm" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(binary) // a client that left needs none
	}))
	defer server.Close()
	trust := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	dir := t.TempDir()
	open := func(url, digest string) string {
		k := guest.NewCache(dir, slog.New(slog.NewTextHandler(io.Discard, nil)))
		k.Trust(trust)
		defer k.Close()
		loaded, err := guest.Load([]guest.Spec{{
			Name: "f", URL: url, SHA256: digest, Config: `{"rules":""}`, Mode: v1beta1.FilterEnforce, OnError: v1beta1.FilterDeny,
			Isolation: v1beta1.IsolationShared, Timeout: time.Minute, Fuel: 50_000_000, Output: 1 << 20,
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var after []func()
		_, _, err = k.Open("s", loaded, guest.Options{}, edge.Env{Defer: func(f func()) { after = append(after, f) }})
		for _, f := range after {
			f()
		}
		if err != nil {
			return err.Error()
		}
		return ""
	}
	mine := digest(binary)
	if got := open(server.URL+"/g.wasm?token=hush", mine); !strings.Contains(got, `filter "f": source: `) || !strings.Contains(got, "/g.wasm: status 404") || strings.Contains(got, "hush") {
		t.Errorf("what is not there: %q", got)
	}
	if got := open(server.URL+"/f.wasm?token=hush", strings.Repeat("0", 64)); !strings.Contains(got, "the module's sha256 is "+mine) || strings.Contains(got, "hush") {
		t.Errorf("another module: %q", got)
	}
	if got := open(server.URL+"/f.wasm", mine); got != "" {
		t.Errorf("the module: %s", got)
	}
	before := asked
	if got := open(server.URL+"/f.wasm", mine); got != "" || asked != before {
		t.Errorf("the module from before: %q, asked for %d times more", got, asked-before)
	}
	if err := os.WriteFile(filepath.Join(dir, "modules", mine+".wasm"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := open(server.URL+"/f.wasm", mine); got != "" || asked == before {
		t.Errorf("when what was kept is another: %q, asked for %d times more", got, asked-before)
	}
	server.Close()
	if got := open(server.URL+"/f.wasm", mine); got != "" {
		t.Errorf("when the server is away: %s", got)
	}
}

// TestFetchScript gets a script over HTTPS, by its digest, and keeps it.
func TestFetchScript(t *testing.T) {
	t.Parallel()
	const text = "def on_call_request(c):\n    return deny(403)"
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = io.WriteString(w, text) // a client that left needs none
	}))
	defer server.Close()
	dir, mine := t.TempDir(), digest([]byte(text))
	open := func(digest string) error {
		k := guest.NewCache(dir, slog.New(slog.DiscardHandler))
		k.Trust(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
		defer k.Close()
		loaded, err := guest.Load([]guest.Spec{{
			Name: "f", Script: true, URL: server.URL + "/f.star", SHA256: digest, Mode: v1beta1.FilterEnforce, OnError: v1beta1.FilterDeny,
			Timeout: time.Minute, Fuel: 50_000_000, Output: 1 << 20,
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var after []func()
		_, _, err = k.Open("s", loaded, guest.Options{}, edge.Env{Defer: func(f func()) { after = append(after, f) }})
		for _, f := range after {
			f()
		}
		return err
	}
	if err := open(strings.Repeat("0", 64)); err == nil || !strings.Contains(err.Error(), "the script's sha256 is "+mine) {
		t.Errorf("another script: %v", err)
	}
	for range 2 {
		if err := open(mine); err != nil {
			t.Error(err)
		}
	}
	if asked != 2 {
		t.Errorf("it was fetched %d times, want 2", asked)
	}
}

// A server that asks one after another leaves few connections behind, whatever hosts it asks,
// and connects for no request that is over: the places for both are those of all its sessions.
func TestServerFetchLeavesNothing(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	dials, most := 0, 0
	asking := func(dial func(context.Context) (net.Conn, error)) func(url string, millis int) int64 {
		fetch, done, err := guest.ServerFetch(func(ctx context.Context, _, _ string) (net.Conn, error) {
			mu.Lock()
			dials++
			most = max(most, dials)
			mu.Unlock()
			defer func() {
				mu.Lock()
				dials--
				mu.Unlock()
			}()
			return dial(ctx)
		}, edge.Reach{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(done)
		return func(url string, millis int) int64 {
			q := abi.HTTPRequest{Method: http.MethodGet, URL: url, Millis: uint64(millis)}
			_, failed := fetch(t.Context(), q.Append(nil))
			return failed
		}
	}
	ask := asking(func(ctx context.Context) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
		mu.Lock()
		defer mu.Unlock()
		open[c] = true
		return held{c, func() {
			mu.Lock()
			defer mu.Unlock()
			delete(open, c)
		}}, err
	})
	for i := range 200 {
		if failed := ask(fmt.Sprintf("http://host%d.test/", i), 0); failed != 0 {
			t.Fatal(failed)
		}
	}
	mu.Lock()
	if len(open) > 40 {
		t.Errorf("%d connections are open that nothing uses", len(open))
	}
	most = 0
	mu.Unlock()
	ask = asking(func(ctx context.Context) (net.Conn, error) {
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
		return nil, context.DeadlineExceeded
	})
	for i := range 100 {
		if failed := ask(fmt.Sprintf("http://host%d.test/", i), 1); failed != abi.ErrTimeout {
			t.Fatal(failed)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if most > 10 {
		t.Errorf("%d connections were being made at a time", most)
	}
}

// held is a connection that says when it is closed.
type held struct {
	net.Conn
	closed func()
}

func (c held) Close() error {
	c.closed()
	return c.Conn.Close()
}
