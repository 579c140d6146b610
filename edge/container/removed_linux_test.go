package container

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
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

// between is an engine at a socket of its own, which meddle stands before: it reports whether it
// has answered, and may have the engine do so.
func between(t *testing.T, e *engine.Engine, socket string, meddle func(w http.ResponseWriter, r *http.Request, engine http.Handler) bool) {
	t.Helper()
	through := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", e.Socket)
	}}
	t.Cleanup(through.CloseIdleConnections)
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" },
		Transport: through,
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	before := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !meddle(w, r, forward) {
			forward.ServeHTTP(w, r)
		}
	}))
	before.Listener = listener
	before.Start()
	t.Cleanup(before.Close)
}

// refusing is an engine that refuses so many times to remove a container, and how often it was asked.
func refusing(t *testing.T, e *engine.Engine, status int, refused string, times int32) (*Engine, *atomic.Int32) {
	t.Helper()
	asked, socket := new(atomic.Int32), filepath.Join(t.TempDir(), "s")
	between(t, e, socket, func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		switch {
		case r.Method == http.MethodDelete && asked.Add(1) <= times:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"message":%q}`, refused)
		case strings.HasSuffix(r.URL.Path, "/wait"): // as where its end was waited for, and it is there
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"StatusCode":0,"Error":{"Message":"failed"}}`)
		default:
			return false
		}
		return true
	})
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

// TestSweptWhenItIsFound: what is left in an engine that was away when it was swept goes when the
// engine is found, and what is wanted stays.
func TestSweptWhenItIsFound(t *testing.T) {
	e := running(t)
	image(t, e, "probe:1", engine.Config{})
	socket, mark := filepath.Join(t.TempDir(), "s"), "a mark of a manager"
	m := NewMachine(Options{State: t.TempDir(), Log: slog.New(slog.DiscardHandler), Lookup: func(name string) (string, bool) {
		return map[string]string{"WEIR_ENGINE": "unix://" + socket}[name], name == "WEIR_ENGINE"
	}})
	t.Cleanup(m.Close)
	if err := m.write(&known{Manager: mark, Hosts: []string{"unix://" + socket}}); err != nil {
		t.Fatal(err)
	}
	made := map[string]string{}
	for _, name := range []string{"left", "wanted"} {
		var one struct{ ID string }
		e.PostFor(t, "/containers/create", fmt.Sprintf(`{"Image":"probe:1","Labels":{"weir.dev/manager":%q,"weir.dev/name":%q}}`, mark, name), &one)
		made[name] = one.ID
	}
	if err := m.Sweep(t.Context(), func(name string) bool { return name == "left" }); err == nil {
		t.Error("an engine that is away was swept")
	}
	between(t, e, socket, func(http.ResponseWriter, *http.Request, http.Handler) bool { return false })
	for range 2 { // the second time nothing is swept
		if _, err := m.Engine(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := e.Containers(t); len(left) != 1 || left[0] != made["wanted"] || len(m.unswept) > 0 {
			t.Errorf("left are %v of %v", left, made)
		}
	}
	e.Do(t, "DELETE", "/containers/"+made["wanted"]+"?force=1")
}

// TestHelperVolumeOfWhoIsKilled: the container in which the helper's volume is filled is found by
// the next manager where this one ends before it is removed, and is known where nobody waits for
// it any longer.
func TestHelperVolumeOfWhoIsKilled(t *testing.T) {
	e := running(t)
	image(t, e, "probe:1", engine.Config{})
	here, err := place{host: "unix://" + e.Socket}.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(here.Close)
	t.Cleanup(func() {
		var volumes struct{ Volumes []struct{ Name string } }
		e.Get(t, "/volumes", &volumes)
		for _, v := range volumes.Volumes {
			e.Do(t, "DELETE", "/volumes/"+v.Name)
		}
	})
	attaching := func(meddle func(m *Machine, w http.ResponseWriter, r *http.Request, engine http.Handler) bool) *Machine {
		m, socket := machine(t, e), filepath.Join(t.TempDir(), "s")
		between(t, e, socket, func(w http.ResponseWriter, r *http.Request, engine http.Handler) bool { return meddle(m, w, r, engine) })
		m.Link, m.Lookup = LinkAttach, func(name string) (string, bool) {
			return map[string]string{"WEIR_ENGINE": "unix://" + socket}[name], name == "WEIR_ENGINE"
		}
		return m
	}
	// 1. Nobody removes it, and another manager looks for what is left.
	var removed []string
	var swept error
	m := attaching(func(m *Machine, w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Method != http.MethodPut {
			return false
		}
		m.mu.Lock()
		mark := m.known.Manager
		m.mu.Unlock()
		removed, swept = here.sweep(context.WithoutCancel(r.Context()), mark, func(name string) bool { return name == "probed" })
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	if b, err := m.Open(t.Context(), config(t, "status:")); err == nil {
		b.Close()
		t.Error("its volume is not filled")
	}
	if left := e.Containers(t); swept != nil || len(removed) != 1 || len(left) > 0 {
		t.Errorf("removed %v, left %v: %v", removed, left, swept)
	}
	// 2. Whoever wants it leaves while it is made.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	made := make(chan struct{})
	m = attaching(func(_ *Machine, w http.ResponseWriter, r *http.Request, engine http.Handler) bool {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/containers/create") {
			return false
		}
		defer close(made)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		cancel()
		r = r.WithContext(t.Context()) // the engine makes it, whoever has left
		r.Body = io.NopCloser(bytes.NewReader(body))
		engine.ServeHTTP(w, r)
		return true
	})
	if b, err := m.Open(ctx, config(t, "status:")); err == nil {
		b.Close()
		t.Error("it is opened for nobody")
	}
	<-made
	if left := e.Containers(t); len(left) > 0 {
		t.Errorf("left are %v", left)
		for _, id := range left {
			e.Do(t, "DELETE", "/containers/"+id+"?force=1")
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
