package container

import (
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/engine"
)

// TestEngineThatHangs: those who ask for an engine that does not answer wait for it once, not one after
// the other.
func TestEngineThatHangs(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket) // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	m := NewMachine(Options{State: t.TempDir(), Log: slog.New(slog.DiscardHandler), Lookup: func(name string) (string, bool) {
		return map[string]string{"WEIR_ENGINE": "unix://" + socket}[name], name == "WEIR_ENGINE"
	}})
	defer m.Close()
	began := time.Now()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := m.Engine(t.Context()); err == nil {
				t.Error("an engine that does not answer was found")
			}
		})
	}
	all.Wait()
	if took := time.Since(began); took > 2*answersWithin {
		t.Errorf("8 looks took %s", took)
	}
}

// TestForgetTakesWhatWasReplaced: an image whose tag a newer build has taken goes with its source, too.
func TestForgetTakesWhatWasReplaced(t *testing.T) {
	e := running(t)
	for _, version := range []string{"1", "2"} {
		image(t, e, "weir/npx-tool:0123456789abcdef", engine.Config{Env: []string{"V=" + version}, Labels: map[string]string{LabelBuilt: "npx://tool", LabelSource: "0123"}})
	}
	here, err := machine(t, e).Engine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := here.Forget(t.Context(), "0123"); err != nil {
		t.Fatal(err)
	}
	var left []struct{ ID string }
	e.Get(t, "/images/json?filters="+url.QueryEscape(`{"label":["weir.dev/source=0123"]}`), &left)
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
