package container

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/edgetest/escape"
	"github.com/weir-edge/weir/edge/sandbox"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if shared.engine != nil {
			shared.engine.Close()
		}
		if shared.dir != "" {
			_ = os.RemoveAll(shared.dir)
		}
		os.Exit(code)
	}), goleak.IgnoreTopFunction("os/exec.(*Cmd).Wait"), goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), goleak.IgnoreAnyFunction("github.com/weir-edge/weir/edge/edgetest/engine.(*Engine).Run.func1"))
}

// shared is what all tests use: an engine, and the probe.
var shared struct {
	once   sync.Once
	engine *engine.Engine
	dir    string
	probe  string
	err    error
}

// running returns the engine, with the image probe:1, whose user is root.
func running(t *testing.T) *engine.Engine {
	t.Helper()
	engine.Need(t)
	shared.once.Do(func() {
		if shared.dir, shared.err = makeShared(); shared.err == nil {
			shared.engine, shared.err = engine.Open()
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.engine
}

// makeShared makes the directory of what all tests use, with the probe.
func makeShared() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "weir-container-"); err == nil {
		shared.probe, err = engine.Build(dir, "edge/edgetest/probe")
	}
	return dir, err
}

// probed is what a probe says of one try that it makes outside of everything.
func probed(t *testing.T, try string) string {
	t.Helper()
	text, err := exec.Command(shared.probe, try).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return escape.Results(string(text))[try]
}

// image loads one of the probe.
func image(t *testing.T, e *engine.Engine, name string, c engine.Config) {
	t.Helper()
	if c.Entrypoint == nil {
		c.Entrypoint = []string{"/probe"}
	}
	e.Load(t, name, c, map[string]string{"/probe": shared.probe}, map[string]string{"/etc/passwd": "root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\nuser:x:1234:1234::/home/user:/bin/sh\n", "/data/there": "there"})
}

// machine returns a machine that knows the engine.
func machine(t *testing.T, e *engine.Engine) *Machine {
	t.Helper()
	m := NewMachine(Options{Cache: t.TempDir(), State: t.TempDir(), Log: slog.New(slog.DiscardHandler), Lookup: func(name string) (string, bool) {
		return map[string]string{"WEIR_ENGINE": "unix://" + e.Socket}[name], name == "WEIR_ENGINE"
	}})
	t.Cleanup(m.Close)
	return m
}

// config is that of a probe that tries something.
func config(t *testing.T, tries ...string) Config {
	return Config{Name: "probed", Image: "probe:1", Args: tries, Network: "none", Sockets: filepath.Join(t.TempDir(), "sock")}
}

// opened opens a container, which ends with the test.
func opened(t *testing.T, m *Machine, c Config) *Box {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := m.Open(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// tried runs a probe and returns what it says, by try.
func tried(t *testing.T, b *Box) map[string]string {
	t.Helper()
	p, err := b.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	lines := bufio.NewScanner(p.Stdout())
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		try, result, _ := strings.Cut(lines.Text(), " = ")
		said[try] = result
	}
	complaint, _ := io.ReadAll(p.Stderr())
	if exit := p.Wait(); exit != (sandbox.Exit{}) {
		t.Fatalf("the probe ended: %+v: %s", exit, complaint)
	}
	_, _, _ = p.Stdin().Close(), p.Stdout().Close(), p.Stderr().Close()
	return said
}

// until waits for something that comes true.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no " + what)
		}
	}
}
