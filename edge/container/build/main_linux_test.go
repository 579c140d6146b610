package build

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/sandbox"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if shared.engine != nil {
			shared.engine.Close()
		}
		os.Exit(code)
	}), goleak.IgnoreTopFunction("os/exec.(*Cmd).Wait"), goleak.IgnoreAnyFunction("github.com/weir-edge/weir/edge/edgetest/engine.(*Engine).Run.func1"))
}

// shared is the engine of all tests.
var shared struct {
	once     sync.Once
	packager sync.Once
	engine   *engine.Engine
	err      error
}

func running(t *testing.T) *engine.Engine {
	t.Helper()
	engine.Need(t)
	shared.once.Do(func() { shared.engine, shared.err = engine.Open() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.engine
}

// helper is the helper's program.
func helper(t *testing.T) []byte {
	t.Helper()
	program, err := sandbox.HelperProgram()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// builds makes images with the engine, as a user whose settings are those.
func builds(t *testing.T, e *engine.Engine, settings map[string]string) *Builds {
	t.Helper()
	lookup := func(name string) (string, bool) {
		if name == "WEIR_ENGINE" {
			return "unix://" + e.Socket, true
		}
		value, ok := settings[name]
		return value, ok
	}
	m := container.NewMachine(container.Options{Cache: t.TempDir(), State: t.TempDir(), Log: slog.New(slog.DiscardHandler), Lookup: lookup})
	t.Cleanup(m.Close)
	return &Builds{Machine: m, Spool: filepath.Clean(t.TempDir()), Home: t.TempDir(), Lookup: lookup, Log: slog.New(slog.DiscardHandler)}
}
