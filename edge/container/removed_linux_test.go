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

// refusing is an engine that refuses so many times to remove a container, and how often it was asked.
func refusing(t *testing.T, e *engine.Engine, status int, refused string, times int32) (*Engine, *atomic.Int32) {
	t.Helper()
	asked := new(atomic.Int32)
	through := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", e.Socket)
	}}
	t.Cleanup(through.CloseIdleConnections)
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" },
		Transport: through,
	}
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	busy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodDelete && asked.Add(1) <= times:
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
	return here, asked
}

// TestRemovedLater: a container that its engine does not remove at once is gone soon after, also
// where the engine says that it was about to.
func TestRemovedLater(t *testing.T) {
	e := running(t)
	image(t, e, "probe:1", engine.Config{})
	m := machine(t, e)
	for refused, status := range map[string]int{"device or resource busy": 500, "removal of container x is already in progress": 409} {
		here, asked := refusing(t, e, status, refused, 2)
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

// TestSweepGoesOn: one container that is not removed keeps none of the others.
func TestSweepGoesOn(t *testing.T) {
	e := running(t)
	image(t, e, "probe:1", engine.Config{})
	here, _ := refusing(t, e, 500, "device or resource busy", 1)
	for range 3 {
		e.Post(t, "/containers/create", `{"Image":"probe:1","Labels":{"weir.dev/manager":"a mark","weir.dev/name":"probed"}}`)
	}
	removed, err := here.sweep(t.Context(), "a mark", func(string) bool { return true })
	if left := e.Containers(t); err == nil || len(removed) != 2 || len(left) != 1 {
		t.Errorf("removed %v, left %v: %v", removed, left, err)
	}
	for _, id := range e.Containers(t) {
		e.Do(t, "DELETE", "/containers/"+id+"?force=1")
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
