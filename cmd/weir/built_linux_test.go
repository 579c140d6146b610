package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/edgetest/need"
)

// A server of npm is built from the registry that this machine is set up for, run, called, and
// run again without a build; its image goes with the last workload that uses it.
func TestBuiltFromNPM(t *testing.T) {
	e := engine.Start(t)
	for _, program := range []string{"npm", "node", "nsenter", "ip"} {
		_, err := exec.LookPath(program)
		need.Of(t, err == nil, program+" is not installed")
	}
	relay := e.Relay(t, e.Connect(t))
	e.NodeBase(t, "node-base:1")
	p := newPlace(t)
	const planted = "planted-secret-of-a-build"
	secret := filepath.Join(t.TempDir(), "npmrc")
	if err := os.WriteFile(secret, []byte("//planted-host.example/:_authToken="+planted+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.env = append(p.env, "WEIR_ENGINE=unix://"+e.Socket, "NPM_CONFIG_REGISTRY="+relay.NPM)
	const server = "npx://@modelcontextprotocol/server-everything@2026.8.31"

	// 1. Built by itself, with a secret.
	said := p.ask("build", server, "--runtime-image", "node-base:1", "--build-secret", "npmrc="+secret, "-t", "mine/everything:1")
	if !strings.Contains(said, "npm install @modelcontextprotocol/server-everything@2026.8.31 (") || !strings.HasSuffix(strings.TrimSpace(said), "mine/everything:1") {
		t.Errorf("build: %s", said)
	}
	asked, began := relay.Requests.Load(), time.Now()
	var built struct {
		Tag, ID string
		Built   bool
	}
	out := p.ask("build", server, "--runtime-image", "node-base:1", "--image-verification", "disabled", "--format", "json")
	if err := json.Unmarshal([]byte(out), &built); err != nil || built.Built || relay.Requests.Load() != asked {
		t.Errorf("again: %s, %d requests more: %v", out, relay.Requests.Load()-asked, err)
	}
	t.Logf("the second time in %s", time.Since(began))
	var is struct {
		Config struct {
			User            string
			Entrypoint, Env []string
		}
		RootFS struct{ Layers []string }
	}
	var base struct{ RootFS struct{ Layers []string } }
	e.Get(t, "/images/"+built.Tag+"/json", &is)
	e.Get(t, "/images/node-base:1/json", &base)
	if c := is.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/bin/node", "/app/node_modules/@modelcontextprotocol/server-everything/dist/index.js"}) {
		t.Errorf("%+v", c)
	}
	if len(is.RootFS.Layers) != len(base.RootFS.Layers)+1 {
		t.Errorf("%d layers on %d", len(is.RootFS.Layers), len(base.RootFS.Layers))
	}
	for what, text := range map[string]string{"inspect": e.Raw(t, "/images/"+built.Tag+"/json"), "history": e.Raw(t, "/images/"+built.Tag+"/history"), "image": string(e.Saved(t, built.Tag)), "engine's log": e.Log(), "output": said} {
		if strings.Contains(text, planted) || strings.Contains(text, "planted-host.example") {
			t.Errorf("the secret of the build is in the %s", what)
		}
	}

	// 2. Run of what is there, twice, and called.
	for _, name := range []string{"server-everything", "other"} {
		p.ask("run", server, "--name", name, "--runtime-image", "node-base:1", "--permission-profile", "none")
		if got := p.says(name, "echo", "message=hello"); !strings.Contains(got, "hello") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if relay.Requests.Load() != asked {
		t.Errorf("%d requests of what is there", relay.Requests.Load()-asked)
	}
	if s := p.status("server-everything"); s.Package != server || s.Sandbox != "container" || !s.Isolation {
		t.Errorf("%+v", s)
	}
	exported := p.ask("export", "other")
	if !strings.Contains(exported, "image: "+server) || !strings.Contains(exported, "runtimeImage: node-base:1") {
		t.Errorf("export: %s", exported)
	}

	// 3. Its image goes with the last one that uses it; another name of it stays.
	p.ask("rm", "other")
	if !slices.Contains(e.Images(t), built.Tag) {
		t.Error("the image of another workload is removed")
	}
	p.ask("rm", "server-everything", "--keep-image")
	if !slices.Contains(e.Images(t), built.Tag) {
		t.Error("the image is removed with --keep-image")
	}
	p.ask("run", server, "--runtime-image", "node-base:1", "--permission-profile", "none")
	if said := p.ask("rm", "server-everything"); !strings.Contains(said, "removed "+built.Tag) {
		t.Errorf("rm: %s", said)
	}
	if tags := e.Images(t); slices.Contains(tags, built.Tag) || !slices.Contains(tags, "mine/everything:1") {
		t.Errorf("images: %q", tags)
	}
	if left := e.Containers(t); len(left) > 0 {
		t.Errorf("containers: %v", left)
	}
}

// Builds that fail say why and what to type, and one that is stopped leaves nothing.
func TestBuiltWorkloadsFail(t *testing.T) {
	e := engine.Start(t)
	program, err := engine.Build(t.TempDir(), "edge/edgetest/packager")
	if err != nil {
		t.Fatal(err)
	}
	e.Load(t, "pack:1", engine.Config{Env: []string{"PATH=/usr/bin"}}, map[string]string{"/usr/bin/npm": program, "/usr/bin/node": program}, map[string]string{"/tmp/there": ""})
	p := newPlace(t)
	without := slices.Clone(p.env)
	p.env = append(p.env, "WEIR_ENGINE=unix://"+e.Socket)
	for _, one := range []struct {
		code int
		want string
		args []string
	}{
		{42, "fails cannot be built: npm install fails@1.0.0: exit code 7", []string{"run", "npx://fails@1.0.0", "--runtime-image", "pack:1"}},
		{42, "correct the package's name or its version", []string{"build", "npx://fails@1.0.0", "--runtime-image", "pack:1"}},
		{43, "cannot be had", []string{"build", "npx://tool@1.0.0", "--runtime-image", "127.0.0.1:1/none:1"}},
		{42, "has no package manager that is known", []string{"build", "npx://tool@1.0.0", "--runtime-image", "pack:1", "--runtime-add-package", "git"}},
		{2, "is no package of npx", []string{"run", "npx://--registry=http://evil.test"}},
		{2, "--runtime-image", []string{"run", "npx://tool", "--runtime-image=--privileged"}},
		{2, "--runtime-add-package", []string{"build", "npx://tool", "--runtime-add-package=-y"}},
		{2, "--ca-cert", []string{"build", "npx://tool", "--ca-cert", "/dev/null"}},
		{2, "--build-secret: write NAME=FILE", []string{"build", "npx://tool", "--build-secret", "npmrc"}},
		{2, "--build-secret: write NAME=FILE", []string{"build", "npx://tool@1.0.0", "--build-secret", "../x=/etc/passwd"}},
		{2, "--build-secret: \"npmrc\": open /nowhere: no such file", []string{"build", "npx://tool@1.0.0", "--build-secret", "npmrc=/nowhere"}},
		{2, "is nothing to build", []string{"build", "tool:1"}},
		{2, "name one thing", []string{"build"}},
	} {
		said, code := p.try(one.args...)
		if code != one.code || !strings.Contains(said, one.want) {
			t.Errorf("%q: exit %d: %s", one.args, code, said)
		}
	}
	if said := p.ask("list", "-a"); strings.Contains(said, "fails") {
		t.Errorf("what was never built is kept: %s", said)
	}

	// It is stopped in the middle of a build, and removed.
	if said := p.ask("run", "npx://hangs@1.0.0", "--runtime-image", "pack:1", "--dry-run"); !strings.Contains(said, "# an image of npx://hangs@1.0.0 is built, where the container engine has none") {
		t.Errorf("dry run: %s", said)
	}
	done := make(chan string, 1)
	go func() {
		said, _ := p.try("run", "npx://hangs@1.0.0", "--runtime-image", "pack:1")
		done <- said
	}()
	deadline := time.Now().Add(time.Minute)
	for {
		top := ""
		for _, id := range e.Containers(t) {
			text, _ := e.Try("GET", "/containers/"+id+"/top")
			top += string(text)
		}
		if strings.Contains(top, "server") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no build that hangs: %s", top)
		}
		time.Sleep(50 * time.Millisecond)
	}
	began := time.Now()
	p.ask("stop", "hangs")
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("stopped in %s", took)
	}
	<-done
	if left := e.Containers(t); len(left) > 0 {
		t.Errorf("containers: %v", left)
	}
	p.ask("rm", "hangs")

	// Without an engine nothing is kept, and the same as a program of this machine is named.
	p.env = append(without, "WEIR_ENGINE=unix:///nowhere.sock")
	for _, command := range []string{"run", "build"} {
		said, code := p.try(command, "npx://@a/b@1.0.0")
		if code != 8 || !strings.Contains(said, "unix:///nowhere.sock (not there)") || !strings.Contains(said, "weir run -- npx -y @a/b@1.0.0") {
			t.Errorf("%s: exit %d: %s", command, code, said)
		}
	}
	if said := p.ask("list", "-a"); strings.Contains(said, "npx") {
		t.Errorf("list: %s", said)
	}
}
