package build

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/edgetest/need"
	"github.com/weir-edge/weir/edge/runner"
)

// source reads what is to be built.
func source(t *testing.T, word string) *runner.Source {
	t.Helper()
	s, err := runner.ParseSource(word)
	if err != nil || s == nil {
		t.Fatal(s, err)
	}
	return s
}

// Programs of Go are built of a module, from the proxy that this machine is set up for, by the
// network of the container engine, and of a directory.
func TestBuildGoFromProxy(t *testing.T) {
	e := running(t)
	for _, program := range []string{"npm", "nsenter", "ip"} {
		_, err := exec.LookPath(program)
		need.Of(t, err == nil, program+" is not installed")
	}
	relay := e.Relay(t, e.Connect(t))
	b := builds(t, e, map[string]string{"GOPROXY": relay.Go})
	e.GoBase(t, "go-base:1", "flag", "fmt", "log", "os", "unicode")
	alpine(t, e)
	module := built(t, b, Request{Source: source(t, "go://golang.org/x/example/hello@v0.0.0-20250915201037-7f05d217867b"), RuntimeImage: "go-base:1"})
	if !module.Built || relay.Requests.Load() == 0 {
		t.Errorf("%+v, %d requests", module, relay.Requests.Load())
	}
	asked, began := relay.Requests.Load(), time.Now()
	again := built(t, b, Request{Source: source(t, "go://golang.org/x/example/hello@v0.0.0-20250915201037-7f05d217867b"), RuntimeImage: "go-base:1"})
	if took := time.Since(began); again.Built || again.ID != module.ID || took > time.Second || relay.Requests.Load() != asked {
		t.Errorf("again: %+v in %s, %d requests more", again, took, relay.Requests.Load()-asked)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/local\n\ngo 1.26\n", "main.go": tinyServer, "broken.go": "this is not Go", ".dockerignore": "broken.go\n", ".git/config": "planted",
	} {
		write(t, filepath.Join(dir, name), text)
	}
	local := built(t, b, Request{Source: source(t, "go://"+dir), RuntimeImage: "go-base:1"})
	if said := started(t, b.Machine, local.Tag); !strings.Contains(said, `"name":"tiny"`) {
		t.Errorf("%s says %s", local.Tag, said)
	}
	if said := started(t, b.Machine, module.Tag); !strings.Contains(said, "Hello, world!") {
		t.Errorf("%s says %s", module.Tag, said)
	}
	nothingLeft(t, e, b)
}

// alpine imports what stands for the base that programs of Go run in, once: a second image of
// the name would leave the first one without.
func alpine(t *testing.T, e *engine.Engine) {
	t.Helper()
	if !slices.Contains(e.Images(t), "alpine:3.23") {
		e.Import(t, "docker.io/library/alpine:3.23", "/bin", map[string]engine.Part{"/tmp/": {Mode: 0o1777}})
	}
}

// built has an image built.
func built(t *testing.T, b *Builds, r Request) *Result {
	t.Helper()
	r.Told = func(s Step) {
		if s.Done {
			t.Logf("%6.1f s  %s", s.Took.Seconds(), s.Text)
		}
	}
	got, err := b.Build(t.Context(), r)
	if known := new(Error); errors.As(err, &known) {
		t.Fatalf("%v: %s", err, strings.Join(known.Said, "\n"))
	} else if err != nil {
		t.Fatal(err)
	}
	return got
}

// nothingLeft holds that of builds nothing is left but their images.
func nothingLeft(t *testing.T, e *engine.Engine, b *Builds) {
	t.Helper()
	// One in which a server has run goes a moment after it is closed.
	edgetest.Until(t, "no container", func() bool { return len(e.Containers(t)) == 0 })
	if left, _ := os.ReadDir(b.Spool); len(left) > 0 {
		t.Errorf("left of the builds: %v", left)
	}
	var all []struct{ RepoTags []string }
	e.Get(t, "/images/json", &all)
	for _, one := range all {
		if len(one.RepoTags) == 0 || one.RepoTags[0] == "<none>:<none>" {
			t.Errorf("an image without a name is left: %+v", one)
		}
	}
}

// tinyServer is a server that knows its name alone. It imports the smallest package that it can
// do with, since that is compiled in the builder, too.
const tinyServer = `package main

import "syscall"

func main() {
	var b [4096]byte
	for {
		if n, _ := syscall.Read(0, b[:]); n <= 0 {
			return
		}
		_, _ = syscall.Write(1, []byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"serverInfo\":{\"name\":\"tiny\",\"version\":\"1\"}}}\n"))
	}
}
`

func write(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// started runs an image without a network, and returns the first line that it answers.
func started(t *testing.T, m *container.Machine, image string) string {
	t.Helper()
	box, err := m.Open(t.Context(), container.Config{Name: "built", Image: image, Network: "none", Sockets: filepath.Join(t.TempDir(), "sock")})
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	p, err := box.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = p.Stdout().Close(), p.Stderr().Close() }()
	_, _ = io.WriteString(p.Stdin(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`+"\n")
	stop := time.AfterFunc(30*time.Second, p.Kill)
	defer stop.Stop()
	line, _ := bufio.NewReader(p.Stdout()).ReadString('\n')
	_ = p.Stdin().Close()
	p.Kill()
	p.Wait()
	return line
}
