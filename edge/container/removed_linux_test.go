package container

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/sandbox"
)

// TestRemovedWhileItStarts: a container that somebody else removes at any moment of its start is
// made again, and says nothing of how its engine is reached.
func TestRemovedWhileItStarts(t *testing.T) {
	e := running(t)
	image(t, e, "probe:1", engine.Config{})
	m := machine(t, e)
	for i := range 10 {
		pool := sandbox.NewPoolOf(func(ctx context.Context) (sandbox.Box, error) { return m.Open(ctx, config(t, "echo:")) })
		type start struct {
			p   *sandbox.Process
			err error
		}
		began, first := time.Now(), make(chan start, 1)
		go func() {
			p, err := pool.Start(t.Context(), "")
			first <- start{p, err}
		}()
		after := time.Duration(i) * 40 * time.Millisecond
		time.Sleep(after)
		for _, id := range e.Containers(t) {
			_, _ = e.Try("DELETE", "/containers/"+id+"?force=1") // it may be on its way already
		}
		got := <-first
		if took := time.Since(began); got.err != nil || took > 10*time.Second {
			t.Errorf("removed after %v: %v in %v", after, got.err, took)
		}
		if got.p != nil {
			go func() { _ = got.p.Wait() }()
		}
		pool.Close()
	}
	here, err := m.Engine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if link := m.linkOf(t.Context(), here); link != LinkAuto {
		t.Errorf("its link is %s from now on", link)
	}
}

// TestRemovedLater: a container that its engine does not remove at once is gone soon after, also
// where the engine says that it was about to.
func TestRemovedLater(t *testing.T) {
	e := running(t)
	image(t, e, "probe:1", engine.Config{})
	m := machine(t, e)
	for _, refused := range []string{"device or resource busy", "removal of container x is already in progress"} {
		var asked atomic.Int32
		forward := &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" },
			Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", e.Socket)
			}},
			FlushInterval: -1,
		}
		t.Cleanup(forward.Transport.(*http.Transport).CloseIdleConnections)
		socket := filepath.Join(t.TempDir(), "s")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		busy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status := map[bool]int{true: http.StatusConflict, false: http.StatusInternalServerError}[strings.Contains(refused, "progress")]
			switch {
			case r.Method == http.MethodDelete && asked.Add(1) <= 2:
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				_, _ = fmt.Fprintf(w, `{"message":%q}`, refused)
			case strings.HasSuffix(r.URL.Path, "/wait"): // as where its end was waited for, and it is there
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprint(w, `{"StatusCode":0,"Error":{"Message":"failed"}}`)
			default:
				forward.ServeHTTP(w, r)
			}
		}))
		busy.Listener = listener
		busy.Start()
		t.Cleanup(busy.Close)
		here, err := place{host: "unix://" + socket}.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(here.Close)
		var made struct{ ID string }
		e.PostFor(t, "/containers/create", `{"Image":"probe:1"}`, &made)
		m.remove(here, made.ID, "probed")
		if left := e.Containers(t); asked.Load() != 1 || len(left) != 1 {
			t.Errorf("%s: asked %d times, and there are %v", refused, asked.Load(), left)
		}
		until(t, "end of what was left", func() bool { return len(e.Containers(t)) == 0 })
		if asked.Load() != 3 {
			t.Errorf("%s: asked %d times", refused, asked.Load())
		}
	}
}

// TestMarkThatIsNotKept: a mark that could not be written is no mark.
func TestMarkThatIsNotKept(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	m, e := NewMachine(Options{State: state}), &Engine{host: "unix:///nowhere.sock"}
	if mark, err := m.mark(e); err == nil {
		t.Fatalf("a mark that is nowhere: %q", mark)
	}
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	mark, err := m.mark(e)
	if err != nil {
		t.Fatal(err)
	}
	if k, err := NewMachine(Options{State: state}).read(); err != nil || k.Manager != mark {
		t.Errorf("%q is used, and kept is %+v, %v", mark, k, err)
	}
}

// TestSettled: what is made for who has left meanwhile is known, and is waited for as long as said.
func TestSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for takes, want := range map[time.Duration]bool{time.Second: true, time.Minute: false} {
			ctx, cancel := context.WithCancel(t.Context())
			made, err := settled(ctx, settlesWithin, func(ctx context.Context) (bool, error) {
				cancel()
				select {
				case <-time.After(takes):
					return true, nil
				case <-ctx.Done():
					return false, ctx.Err()
				}
			})
			if made != want || (err == nil) != want {
				t.Errorf("after %s: %t, %v", takes, made, err)
			}
			if _, err := settled(ctx, settlesWithin, func(context.Context) (bool, error) { t.Error("it is begun for nobody"); return true, nil }); err == nil {
				t.Error("no error")
			}
		}
	})
}
