package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/engine"
)

// Podman keeps workloads as another engine does: on standard streams and over HTTP, isolated,
// with a published port, a volume and what is hidden of a directory; and nothing is left of them.
func TestPodmanWorkloads(t *testing.T) {
	e := engine.StartPodman(t)
	boxed, err := engine.Build(t.TempDir(), "edge/edgetest/boxed")
	if err != nil {
		t.Fatal(err)
	}
	e.Load(t, "boxed:1", engine.Config{Entrypoint: []string{"/boxed"}, ExposedPorts: map[string]struct{}{"7000/tcp": {}}}, map[string]string{"/boxed": boxed}, map[string]string{"/var/lib/there": ""})
	p := newPlace(t)
	p.env = append(p.env, "WEIR_ENGINE=unix://"+e.Socket)
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fileOf(t, filepath.Join(dir, "files", ".env"), "planted")
	fileOf(t, filepath.Join(dir, "files", "keys", "one"), "planted")
	fileOf(t, filepath.Join(dir, "files", "shown"), "content")
	fileOf(t, filepath.Join(p.paths().Config, "ignore"), ".env\nkeys/\n")
	profile := fileOf(t, filepath.Join(dir, "profile.json"), `{"write": ["volume://data:/var/data"], "network": {"outbound": {"allow_host": ["allowed.test"]}}}`)
	p.ask("run", "boxed:1", "--permission-profile", profile, "-v", filepath.Join(dir, "files")+":/data", "-e", "GIVEN=value")
	for _, one := range []struct{ tool, what, want string }{
		{"env", "GIVEN", "value"}, {"env", "HTTPS_PROXY", "http://127.0.0.1:3128"}, {"read", "/data/shown", "content"}, {"read", "/data/keys/one", "refused: "}, {"write", "/data/.env", "refused: "},
		{"write", "/var/data/x", "wrote"}, {"write", "/x", "refused: "}, {"id", "", "65532:"},
	} {
		if got := p.says("boxed", one.tool, "what="+one.what); !strings.HasPrefix(got, one.want) {
			t.Errorf("%s %s: %s", one.tool, one.what, got)
		}
	}
	if got := p.says("boxed", "read", "what=/data/.env"); got != "" {
		t.Errorf("what is hidden is %q", got)
	}
	if got := p.says("boxed", "read", "what=/proc/net/dev"); strings.Contains(got, "eth0") {
		t.Errorf("network: %s", got)
	}
	p.ask("stop", "boxed")
	none := func() bool { return len(e.Containers(t)) == 0 } // Podman takes a moment longer than it says
	edgetest.Until(t, "no container of a stopped workload", none)
	p.ask("start", "boxed")
	if got := p.says("boxed", "read", "what=/var/data/x"); got != "x" {
		t.Errorf("the volume after a start: %s", got)
	}
	p.ask("rm", "boxed")
	port := freePort(t)
	p.ask("run", "boxed:1", "--name", "web", "--transport", "streamable-http", "--permission-profile", "none", "-p", fmt.Sprintf("%d:7000", port))
	edgetest.Until(t, "an answer at the published port", func() bool {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/mcp", port))
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil && resp.StatusCode < 500
	})
	p.ask("rm", "web")
	var volumes struct{ Volumes []struct{ Name string } }
	if e.Get(t, "/volumes", &volumes); len(volumes.Volumes) > 0 {
		t.Errorf("volumes: %v", volumes.Volumes)
	}
	edgetest.Until(t, "no container", none)
}
