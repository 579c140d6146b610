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

// A package of npm, and programs of Go of a module and of a directory, come from the indexes
// that this machine is set up for, by the network of the container engine. They are built once,
// and a secret that a build is given is in nothing that is left of it.
func TestBuildFromIndexes(t *testing.T) {
	e := running(t)
	for _, program := range []string{"npm", "node", "nsenter", "ip"} {
		_, err := exec.LookPath(program)
		need.Of(t, err == nil, program+" is not installed")
	}
	relay := e.Relay(t, e.Connect(t))
	e.NodeBase(t, "node-base:1")
	b := builds(t, e, map[string]string{"NPM_CONFIG_REGISTRY": relay.NPM, "GOPROXY": relay.Go})
	const planted = "planted-secret-of-a-build"
	built := func(r Request) *Result {
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

	// 1. A package of npm.
	npm := Request{
		Source: source(t, "npx://@modelcontextprotocol/server-everything@2026.8.31"), RuntimeImage: "node-base:1", Tag: "mine/everything:1",
		Secrets: map[string][]byte{"npmrc": []byte("//registry.example.com/:_authToken=" + planted + "\n")},
	}
	first := built(npm)
	if !first.Built || !strings.HasPrefix(first.Tag, "weir/npx-server-everything:") || relay.Requests.Load() == 0 {
		t.Errorf("%+v, %d requests", first, relay.Requests.Load())
	}
	if tags := e.Images(t); !slices.Contains(tags, "mine/everything:1") || !slices.Contains(tags, first.Tag) {
		t.Errorf("images: %q", tags)
	}
	var is struct {
		Config struct {
			User, WorkingDir string
			Entrypoint, Env  []string
		}
		RootFS struct{ Layers []string }
	}
	var base struct{ RootFS struct{ Layers []string } }
	e.Get(t, "/images/"+first.Tag+"/json", &is)
	e.Get(t, "/images/node-base:1/json", &base)
	if c := is.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/bin/node", "/app/node_modules/@modelcontextprotocol/server-everything/dist/index.js"}) || !slices.Contains(c.Env, "HOME=/home/weir") {
		t.Errorf("%+v", c)
	}
	if len(is.RootFS.Layers) != len(base.RootFS.Layers)+1 {
		t.Errorf("%d layers on %d", len(is.RootFS.Layers), len(base.RootFS.Layers))
	}
	for what, text := range map[string]string{"inspect": e.Raw(t, "/images/"+first.Tag+"/json"), "history": e.Raw(t, "/images/"+first.Tag+"/history"), "image": string(e.Saved(t, first.Tag)), "engine's log": e.Log()} {
		if strings.Contains(text, planted) || strings.Contains(text, "registry.example.com") {
			t.Errorf("the secret of the build is in the %s", what)
		}
	}

	// 2. The second time it is there, and nobody is asked for it.
	asked, began := relay.Requests.Load(), time.Now()
	again := built(npm)
	if took := time.Since(began); again.Built || again.ID != first.ID || took > time.Second || relay.Requests.Load() != asked {
		t.Errorf("again: %+v in %s, %d requests more", again, took, relay.Requests.Load()-asked)
	}

	// 3. A program of a Go module, and one of a directory with a link and what it ignores.
	e.GoBase(t, "go-base:1")
	e.Import(t, "docker.io/library/alpine:3.23", "/bin", map[string]engine.Part{"/tmp/": {Mode: 0o1777}})
	module := built(Request{Source: source(t, "go://github.com/modelcontextprotocol/go-sdk/examples/server/hello@v1.8.0"), RuntimeImage: "go-base:1"})
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/local\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() { serve() }\n", "broken.go": "this is not Go", ".dockerignore": "broken.go\n", ".git/config": planted,
		"serve.go": strings.ReplaceAll(tinyServer, "NAME", "local"),
	} {
		write(t, filepath.Join(dir, name), text)
	}
	local := built(Request{Source: source(t, "go://"+dir), RuntimeImage: "go-base:1"})
	write(t, filepath.Join(dir, "serve.go"), strings.ReplaceAll(tinyServer, "NAME", "changed"))
	changed := built(Request{Source: source(t, "go://"+dir), RuntimeImage: "go-base:1"})
	if changed.Tag == local.Tag {
		t.Error("what changed in the directory changes nothing")
	}

	// 4. They run.
	for tag, want := range map[string]string{first.Tag: "server-everything", module.Tag: "greeter", local.Tag: "local", changed.Tag: "changed"} {
		if said := introduced(t, b.Machine, tag); !strings.Contains(said, want) {
			t.Errorf("%s says %s", tag, said)
		}
	}

	// 5. Of the builds nothing is left but their images.
	if left := e.Containers(t); len(left) > 0 {
		t.Errorf("containers: %v", left)
	}
	for _, tag := range []string{first.Tag, module.Tag} {
		if there, err := b.mustEngine(t).Forget(t.Context(), tag); !there || err != nil {
			t.Errorf("forget %s: %v, %v", tag, there, err)
		}
	}
	if tags := e.Images(t); slices.Contains(tags, first.Tag) || !slices.Contains(tags, "mine/everything:1") {
		t.Errorf("images: %q", tags)
	}
	if _, err := b.mustEngine(t).Forget(t.Context(), "node-base:1"); err == nil {
		t.Error("an image that was not built here is removed")
	}
	if left, _ := os.ReadDir(b.Spool); len(left) > 0 {
		t.Errorf("left of the builds: %v", left)
	}
}

// tinyServer is a server that knows its name alone.
const tinyServer = `package main

import (
	"bufio"
	"fmt"
	"os"
)

func serve() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(` + "`" + `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"NAME","version":"1"}}}` + "`" + `)
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

func (b *Builds) mustEngine(t *testing.T) *container.Engine {
	t.Helper()
	e, err := b.Machine.Engine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// introduced runs an image without a network, and returns what its server says of itself.
func introduced(t *testing.T, m *container.Machine, image string) string {
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
