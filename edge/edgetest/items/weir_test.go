package items_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/peers"
	"github.com/weir-edge/weir/edge/edgetest/port"
)

// program builds the program of the edge.
func program(t *testing.T) string {
	t.Helper()
	kit, err := peers.Find()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "weir")
	if err := kit.Build(t.Context(), peers.WeirPackage, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// process is a running edge of its own.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	config string // the file of its configuration
	base   string // URL without a path
	admin  string
	ended  chan struct{}

	mu   sync.Mutex
	said bytes.Buffer // on standard error
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(b)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// run starts the program with a configuration, and waits until it is ready.
// shell is what a shell does before; "" for nothing. The process ends with the
// test.
func run(t *testing.T, weir, config, shell string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, config: filepath.Join(t.TempDir(), "weir.yaml"), ended: make(chan struct{})}
	p.write(config)
	addresses := [2]string{}
	for i := range addresses {
		var err error
		if addresses[i], err = port.Free(); err != nil {
			t.Fatal(err)
		}
	}
	p.base, p.admin = "http://"+addresses[0], "http://"+addresses[1]
	all := append([]string{weir, "serve", "-c", p.config, "--listen", addresses[0], "--admin-listen", addresses[1]}, args...)
	if shell != "" {
		all = append([]string{"sh", "-c", shell + `; exec "$@"`, "sh"}, all...)
	}
	p.cmd = peers.Command(t.Context(), all[0], all[1:]...)
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stderr = p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		_ = p.cmd.Wait() // how it ended is the test's business
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("the edge said:\n%s", p.log())
		}
	})
	c := edgetest.NewClient(t, p.base)
	edgetest.Until(t, "the edge", func() bool {
		p.lives()
		r, err := c.Try("GET", "/readyz", "")
		return err == nil && r.Status == 200
	})
	return p
}

// lives fails the test when the process has ended.
func (p *process) lives() {
	p.t.Helper()
	select {
	case <-p.ended:
		p.t.Fatal("the edge has ended")
	default:
	}
}

// write changes the configuration as editors do: a new file in the old one's
// place.
func (p *process) write(config string) {
	p.t.Helper()
	if err := os.WriteFile(p.config+".new", []byte(config), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(p.config+".new", p.config); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) client() *edgetest.Client { return edgetest.NewClient(p.t, p.base) }

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// end waits for the end of the process and returns its exit code.
func (p *process) end() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(edgetest.Patience):
		p.t.Fatal("the edge does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// status returns what the edge says of itself.
func (p *process) status() state {
	p.t.Helper()
	var out state
	text := edgetest.NewClient(p.t, p.admin).Do("GET", "/status", "").Body
	if err := json.Unmarshal(text, &out); err != nil {
		p.t.Fatalf("/status: %v: %s", err, text)
	}
	return out
}

// validate returns what weir validate says of a configuration, and its exit
// code.
func validate(t *testing.T, weir, config string) (string, int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), weir, "validate", file)
	out, _ := cmd.CombinedOutput() // the exit code is in the state
	return strings.ReplaceAll(string(out), file, "weir.yaml"), cmd.ProcessState.ExitCode()
}
