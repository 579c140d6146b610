package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/workload"
)

// engined is a place with a container engine, which has the image boxed:1.
func engined(t *testing.T) (*place, *engine.Engine) {
	t.Helper()
	e := engine.Start(t)
	boxed, err := engine.Build(t.TempDir(), "edge/edgetest/boxed")
	if err != nil {
		t.Fatal(err)
	}
	e.Load(t, "boxed:1", engine.Config{Entrypoint: []string{"/boxed"}, Cmd: []string{"from-image"}, Env: []string{"OF_IMAGE=yes"}, ExposedPorts: map[string]struct{}{"7000/tcp": {}}}, map[string]string{"/boxed": boxed}, map[string]string{"/var/lib/there": ""})
	e.Load(t, "plain:latest", engine.Config{Entrypoint: []string{"/boxed"}, User: "1234"}, map[string]string{"/boxed": boxed}, nil)
	p := newPlace(t)
	p.env = append(p.env, "WEIR_ENGINE=unix://"+e.Socket)
	return p, e
}

// says is what a tool of a workload answers.
func (p *place) says(name, tool string, args ...string) string {
	p.t.Helper()
	return strings.TrimSpace(p.ask(append([]string{"call", "-w", name, tool}, args...)...))
}

// Containers are workloads as programs of this machine are: they are run, listed, called,
// logged, stopped, started and removed, and what they are given is what they have.
func TestContainerWorkloads(t *testing.T) {
	p, e := engined(t)
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}

	// 1. On standard streams.
	said := p.ask("run", "boxed:1", "--permission-profile", "none", "-e", "GIVEN=planted-value", "-v", dir+":/data:ro", "--writable", "/scratch", "-l", "team=a")
	if !strings.Contains(said, "no rule says who has to sign docker.io/library/boxed") || !strings.Contains(said, "boxed is running") {
		t.Errorf("run: %s", said)
	}
	for _, one := range []struct{ tool, what, want string }{
		{"args", "", "from-image"}, {"env", "GIVEN", "planted-value"}, {"env", "OF_IMAGE", "yes"}, {"read", "/data/file", "content"}, {"write", "/scratch/x", "wrote"},
		{"write", "/data/x", "refused: open /data/x: read-only file system"}, {"write", "/x", "refused: open /x: read-only file system"}, {"read", "/proc/net/route", "Iface"},
	} {
		if got := p.says("boxed", one.tool, "what="+one.what); !strings.HasPrefix(got, one.want) {
			t.Errorf("%s %s: %s", one.tool, one.what, got)
		}
	}
	if got := p.says("boxed", "id"); !strings.HasPrefix(got, "65532:65532 ") {
		t.Errorf("id: %s", got)
	}
	if got := p.says("boxed", "read", "what=/proc/net/dev"); strings.Contains(got, "eth0") || !strings.Contains(got, "lo:") {
		t.Errorf("network: %s", got)
	}
	s := p.status("boxed")
	if s.Sandbox != "container" || s.Package != "boxed:1" || !s.Isolation || s.Labels["team"] != "a" {
		t.Errorf("%+v", s)
	}
	if said := p.ask("status", "boxed"); !strings.Contains(said, "--run-as image") {
		t.Errorf("status: %s", said)
	}
	edgetest.Until(t, "a line in the log", func() bool { return strings.Contains(p.ask("logs", "boxed"), "boxed starts") })
	ids := e.Containers(t)
	if len(ids) == 0 {
		t.Fatal("there is no container")
	}
	var is struct {
		Config     struct{ Env []string }
		HostConfig struct{ NetworkMode string }
	}
	if e.Get(t, "/containers/"+ids[0]+"/json", &is); strings.Contains(strings.Join(is.Config.Env, " "), "planted-value") || is.HostConfig.NetworkMode != "none" {
		t.Errorf("%+v", is)
	}

	// 2. Stopped, started, written down, removed.
	p.ask("stop", "boxed")
	if left := e.Containers(t); len(left) > 0 {
		t.Errorf("containers of a stopped workload: %v", left)
	}
	p.ask("start", "boxed")
	exported := p.ask("export", "boxed")
	if !strings.Contains(exported, "image: boxed:1") {
		t.Errorf("export: %s", exported)
	}
	file := filepath.Join(t.TempDir(), "boxed.yaml")
	p.ask("export", "boxed", file, "--with-values")
	first, _ := os.ReadFile(file)
	p.ask("rm", "boxed")
	if left := e.Containers(t); len(left) > 0 {
		t.Errorf("containers of a removed workload: %v", left)
	}
	p.ask("run", "--from-config", file)
	p.ask("export", "boxed", file, "--with-values")
	if second, _ := os.ReadFile(file); string(second) != string(first) || len(first) == 0 {
		t.Errorf("exported\n%s\nand again\n%s", first, second)
	}
	p.ask("rm", "boxed")

	// 3. Over HTTP, without a port of this machine's.
	for _, transport := range []string{"streamable-http", "sse"} {
		p.ask("run", "boxed:1", "--name", "web", "--transport", transport, "--permission-profile", "none", "--run-as", "1234:5678", "--", "arg")
		if got := p.says("web", "id"); !strings.HasPrefix(got, "1234:5678 ") {
			t.Errorf("%s: %s", transport, got)
		}
		if got := p.says("web", "args") + " " + p.says("web", "env", "what=MCP_PORT"); got != "arg 7000" {
			t.Errorf("%s: %s", transport, got)
		}
		p.ask("rm", "web")
	}
	if left := e.Containers(t); len(left) > 0 {
		t.Errorf("containers: %v", left)
	}

	// A profile with hosts: it is in no network, and its helper lets it out.
	profile := filepath.Join(t.TempDir(), "hosts.json")
	if err := os.WriteFile(profile, []byte(`{"network":{"outbound":{"allow_host":["allowed.test"],"allow_port":[443]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p.ask("run", "boxed:1", "--name", "let", "--permission-profile", profile)
	for what, want := range map[string]string{"HTTPS_PROXY": "http://127.0.0.1:3128", "NO_PROXY": "localhost,127.0.0.1,::1"} {
		if got := p.says("let", "env", "what="+what); got != want {
			t.Errorf("%s: %s", what, got)
		}
	}
	if got := p.says("let", "read", "what=/etc/resolv.conf"); !strings.Contains(got, "nameserver 127.0.0.1") {
		t.Errorf("resolv.conf: %s", got)
	}
	if got := p.says("let", "read", "what=/proc/net/dev"); strings.Contains(got, "eth0") {
		t.Errorf("network: %s", got)
	}
	if s := p.status("let"); !s.Isolation {
		t.Errorf("%+v", s)
	}
	if said, code := p.try("egress", "test", "let", "93.184.216.34:443"); code != 9 || !strings.Contains(said, "refused") {
		t.Errorf("exit %d: %s", code, said)
	}
	p.ask("rm", "let")

	// Without a profile it reaches what is public, and no network of the engine's; that is for
	// who says so.
	for isolated, more := range map[bool][]string{true: nil, false: {"--isolate-network=false"}} {
		p.ask(append([]string{"run", "boxed:1", "--name", "wide"}, more...)...)
		if got := p.says("wide", "read", "what=/proc/net/dev"); strings.Contains(got, "eth0") == isolated {
			t.Errorf("isolated %v: network: %s", isolated, got)
		}
		if said, code := p.try("egress", "test", "wide", "172.17.0.1:80"); (code == 9) != isolated {
			t.Errorf("isolated %v: exit %d: %s", isolated, code, said)
		}
		p.ask("rm", "wide")
	}

	// A word alone is an image where the registry has no such entry, and the engine has it.
	registry := filepath.Join(t.TempDir(), "registry.json")
	if err := os.WriteFile(registry, []byte(`{"servers": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p.ask("registry", "set", registry)
	p.ask("run", "plain", "--network", "host")
	if got := p.says("plain", "id"); !strings.HasPrefix(got, "1234:") {
		t.Errorf("plain: %s", got)
	}
	if s := p.status("plain"); s.Isolation {
		t.Errorf("%+v", s)
	}
	p.ask("rm", "plain")

	// 4. What fails says why, and what to type.
	for _, one := range []struct {
		code int
		want string
		args []string
	}{
		{9, "it is a socket", []string{"boxed:1", "-v", e.Socket + ":/engine"}},
		{44, "weir run --writable /var/lib, or a directory, -v HOST:/var/lib; weir logs fails", []string{"boxed:1", "--run-as", "image", "--", "needs", "/var/lib/x"}},
		{2, "--sandbox: bwrap is for processes of this machine", []string{"boxed:1", "--sandbox", "bwrap"}},
		{2, "--network: mine, and --isolate-network", []string{"boxed:1", "--network", "mine", "--isolate-network"}},
		{9, "name a network of the container engine", []string{"boxed:1", "--network", "mine"}},
		{43, "cannot be had", []string{"127.0.0.1:1/nothing:1"}},
		{6, "there is no entry", []string{"boxe", "--"}},
		{2, "boxed:1; is no image", []string{"boxed:1;"}},
	} {
		said, code := p.try(append([]string{"run", "--name", "fails"}, one.args...)...)
		if code != one.code || !strings.Contains(said, one.want) {
			t.Errorf("%q: exit %d: %s", one.args, code, said)
		}
		p.try("rm", "fails", "--ignore-missing")
	}
	if left := e.Containers(t); len(left) > 0 {
		t.Errorf("containers: %v", left)
	}
}

// G32: the server, its container, the manager and the engine end, and all comes back, with
// nothing left over.
func TestContainerFaults(t *testing.T) {
	p, e := engined(t)
	p.ask("run", "boxed:1", "--permission-profile", "none")
	p.ask("run", "boxed:1", "--name", "web", "--transport", "streamable-http", "--permission-profile", "none", "--memory", "64MiB")
	answers := func(name string) bool {
		said, code := p.try("call", "-w", name, "id")
		return code == 0 && strings.HasPrefix(said, "65532:")
	}
	back := func(what string) {
		t.Helper()
		for _, name := range []string{"boxed", "web"} {
			edgetest.Until(t, name+" after "+what, func() bool { return answers(name) })
		}
	}
	back("its start")

	// The server ends, or takes more memory than there is.
	_, _ = p.try("call", "-w", "web", "exit")
	_, _ = p.try("call", "-w", "boxed", "exit")
	back("the end of its server")
	_, _ = p.try("call", "-w", "web", "hog")
	back("too much memory")

	// Its container is removed by somebody else.
	for _, id := range e.Containers(t) {
		e.Do(t, "DELETE", "/containers/"+id+"?force=1")
	}
	back("the end of its container")

	// The manager is killed: its containers end, also without the next one.
	before := e.Containers(t)
	kill(t, p.manager().PID)
	edgetest.Until(t, "the end of the containers before", func() bool {
		for _, id := range e.Containers(t) {
			for _, was := range before {
				if id == was {
					return false
				}
			}
		}
		return true
	})
	back("the end of the manager")

	// The engine is killed, and comes back.
	e.Kill()
	if said, code := p.try("run", "boxed:1", "--name", "other"); code != 8 || !strings.Contains(said, "no container engine answers: tried $WEIR_ENGINE") {
		t.Errorf("without an engine: exit %d: %s", code, said)
	}
	if err := e.Run(); err != nil {
		t.Fatal(err)
	}
	back("the end of the engine")
	if s := p.status("boxed"); s.Status != workload.Running {
		t.Errorf("%+v", s)
	}
	p.ask("rm", "--all")
	edgetest.Until(t, "no container", func() bool { return len(e.Containers(t)) == 0 })
}
