package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// freePort is a port of this machine that nobody has.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// fileOf makes a file of a test, in a directory that others can look into.
func fileOf(t *testing.T, path, text string) string {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// What flags give containers alone: published ports, volumes that stay, what is hidden of
// mounted directories, and privileged ones.
func TestContainerFlags(t *testing.T) {
	p, e := engined(t)
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}

	// 1. A published port, of an isolated server, at 127.0.0.1 alone (K09).
	port := freePort(t)
	publish := fmt.Sprintf("%d:7000", port)
	run := []string{"run", "boxed:1", "--name", "web", "--transport", "streamable-http", "--permission-profile", "none", "-p", publish}
	said := p.ask(run...)
	if strings.Contains(said, "others than this machine") {
		t.Errorf("run: %s", said)
	}
	get := func() (code int, err error) {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/mcp", port))
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, nil
	}
	edgetest.Until(t, "an answer at the published port", func() bool { code, err := get(); return err == nil && code >= 200 && code < 500 })
	if c, err := net.Dial("tcp", fmt.Sprintf("[::1]:%d", port)); err == nil {
		_ = c.Close()
		t.Error("it is published at ::1, too")
	}
	if exported := p.ask("export", "web"); !strings.Contains(exported, "- "+publish) {
		t.Errorf("export: %s", exported)
	}
	for _, one := range []struct {
		code int
		want string
		args []string
	}{
		{7, "is that of the workload web, which publishes it", []string{"-p", publish}},
		{2, "--publish", []string{"-p", publish + "/udp"}}, {2, "--publish", []string{"-p", "0:1"}}, {2, "--publish", []string{"-p", "1:65536"}}, {2, "--publish", []string{"-p", "x"}},
		{2, "way out", []string{"-p", fmt.Sprintf("%d:3128", freePort(t))}},
	} {
		said, code := p.try(append([]string{"run", "boxed:1", "--name", "other", "--permission-profile", "none"}, one.args...)...)
		if code != one.code || !strings.Contains(said, one.want) {
			t.Errorf("%q: exit %d: %s", one.args, code, said)
		}
		p.try("rm", "other", "--ignore-missing")
	}
	// The door of a workload is somebody's, too.
	url := strings.TrimSpace(p.ask("run", "boxed:1", "--name", "door", "--permission-profile", "none"))
	url = url[strings.LastIndex(url, "http://")+len("http://"):]
	door, _, _ := strings.Cut(url, "/")
	_, number, err := net.SplitHostPort(door)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	if said, code := p.try("run", "boxed:1", "--name", "other", "--permission-profile", "none", "-p", number+":80"); code != 7 || !strings.Contains(said, "the workload door, whose clients come in there") {
		t.Errorf("exit %d: %s", code, said)
	}
	p.ask("rm", "door")
	p.ask("stop", "web")
	if _, err := get(); err == nil {
		t.Error("a stopped workload publishes its port")
	}
	p.ask("start", "web")
	edgetest.Until(t, "an answer at the published port", func() bool { code, err := get(); return err == nil && code < 500 })
	p.ask("rm", "web")

	// 2. A volume: what one start writes the next one finds, also when the workload is
	// replaced, and nobody else; with the workload it goes.
	profile := fileOf(t, filepath.Join(dir, "profiles", "volume.json"), `{"write": ["volume://data:/var/data"], "read": ["volume://data:/seen"]}`)
	volumes := func() (names []string) {
		var all struct{ Volumes []struct{ Name string } }
		e.Get(t, "/volumes", &all)
		for _, v := range all.Volumes {
			names = append(names, v.Name)
		}
		return names
	}
	p.ask("run", "boxed:1", "--name", "kept", "--permission-profile", profile)
	for _, one := range []struct{ tool, what, want string }{{"write", "/var/data/x", "wrote"}, {"write", "/seen/x", "refused: "}} {
		if got := p.says("kept", one.tool, "what="+one.what); !strings.HasPrefix(got, one.want) {
			t.Errorf("%s %s: %s", one.tool, one.what, got)
		}
	}
	p.ask("stop", "kept")
	p.ask("start", "kept")
	if got := p.says("kept", "read", "what=/seen/x"); strings.HasPrefix(got, "refused") {
		t.Errorf("after a start: %s", got)
	}
	p.ask("run", "boxed:1", "--name", "kept", "--permission-profile", profile, "--replace")
	if got := p.says("kept", "read", "what=/var/data/x"); got != "x" {
		t.Errorf("after it was replaced: %s", got)
	}
	p.ask("run", "boxed:1", "--name", "kept", "--permission-profile", profile, "--replace", "--run-as", "4321")
	if got := p.says("kept", "write", "what=/var/data/y"); got != "wrote" {
		t.Errorf("another user: %s", got)
	}
	// In the foreground what fails takes the data of the workload before as little.
	if said, code := p.try("run", "127.0.0.1:1/nothing:1", "-f", "--name", "kept", "--permission-profile", profile, "--replace"); code == 0 {
		t.Errorf("an image that is nowhere: %s", said)
	}
	p.ask("run", "boxed:1", "--name", "kept", "--permission-profile", profile, "--replace")
	if got := p.says("kept", "read", "what=/var/data/x"); got != "x" {
		t.Errorf("after one in the foreground: %s", got)
	}
	p.ask("run", "boxed:1", "--name", "next", "--permission-profile", profile)
	if got := p.says("next", "read", "what=/var/data/x"); !strings.HasPrefix(got, "refused") {
		t.Errorf("another workload reads %s", got)
	}
	if all := volumes(); !slices.Contains(all, "weir-kept.data") || !slices.Contains(all, "weir-next.data") || len(all) != 2 {
		t.Errorf("volumes: %v", all)
	}
	p.ask("rm", "kept")
	p.ask("rm", "next")
	if all := volumes(); len(all) > 0 {
		t.Errorf("volumes: %v", all)
	}
	e.Post(t, "/volumes/create", `{"Name": "weir-kept.data"}`)
	if said, code := p.try("run", "boxed:1", "--name", "kept", "--permission-profile", profile); code != 9 || !strings.Contains(said, "which is not that of this workload") {
		t.Errorf("somebody else's volume: exit %d: %s", code, said)
	}
	p.try("rm", "kept", "--ignore-missing")
	if all := volumes(); len(all) != 1 {
		t.Errorf("volumes: %v", all)
	}

	// 3. What is hidden.
	fileOf(t, filepath.Join(dir, "files", ".env"), "planted")
	fileOf(t, filepath.Join(dir, "files", "shown"), "content")
	fileOf(t, filepath.Join(p.paths().Config, "ignore"), ".env\n")
	said = p.ask("run", "boxed:1", "--name", "hides", "--permission-profile", "none", "-v", filepath.Join(dir, "files")+":/data", "--print-resolved-overlays")
	if !strings.Contains(said, filepath.Join(dir, "files", ".env")+" → /data/.env (empty)") {
		t.Errorf("run: %s", said)
	}
	if got := p.says("hides", "read", "what=/data/.env") + p.says("hides", "read", "what=/data/shown"); got != "content" {
		t.Errorf("%q", got)
	}
	p.ask("rm", "hides")
	p.ask("run", "boxed:1", "--name", "whole", "--permission-profile", "none", "-v", filepath.Join(dir, "files")+":/data", "--ignore-globally=false")
	if got := p.says("whole", "read", "what=/data/.env"); got != "planted" {
		t.Errorf("%q", got)
	}
	p.ask("rm", "whole")

	// 4. A privileged container is one that was allowed, too.
	profile = fileOf(t, filepath.Join(dir, "profiles", "root.json"), `{"privileged": true}`)
	if said, code := p.try("run", "boxed:1", "--name", "root", "--permission-profile", profile); code != 9 || !strings.Contains(said, "--allow-privileged") {
		t.Errorf("exit %d: %s", code, said)
	}
	if left := e.Containers(t); len(left) > 0 {
		t.Errorf("containers: %v", left)
	}
	said, code := p.try("run", "boxed:1", "--name", "root", "--permission-profile", profile, "--allow-privileged")
	if hasAll(t) {
		if got := p.says("root", "read", "what=/proc/self/status"); code != 0 || !strings.Contains(got, "CapEff:\t"+full(t)) {
			t.Errorf("exit %d: %s: %s", code, said, got)
		}
		if said := p.ask("status", "root"); !strings.Contains(said, "it is privileged") {
			t.Errorf("status: %s", said)
		}
	} else if code != 44 || !strings.Contains(said, "apply caps") { // an engine gives no more than it has
		t.Errorf("exit %d: %s", code, said)
	}
	exported := filepath.Join(t.TempDir(), "root.yaml")
	p.ask("export", "root", exported)
	p.ask("rm", "root")
	text, _ := os.ReadFile(exported)
	if !strings.Contains(string(text), "allowPrivileged: true") {
		t.Errorf("%s", text)
	}
	if err := os.WriteFile(exported, []byte(strings.Replace(string(text), "allowPrivileged: true", "allowPrivileged: false", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, code = p.try("run", "--from-config", exported); code != 9 || !strings.Contains(said, "privileged") {
		t.Errorf("exit %d: %s", code, said)
	}
	if said, code := p.try("run", "--allow-privileged", "--", "true"); code != 2 || !strings.Contains(said, "--allow-privileged") {
		t.Errorf("exit %d: %s", code, said)
	}
	p.ask("rm", "--all", "--ignore-missing")
	if left := e.Containers(t); len(left) > 0 {
		t.Errorf("containers: %v", left)
	}
}

// full are all capabilities that the kernel knows, as /proc writes them.
func full(t *testing.T) string {
	t.Helper()
	last := 0
	if text, err := os.ReadFile("/proc/sys/kernel/cap_last_cap"); err != nil {
		t.Fatal(err)
	} else if _, err := fmt.Sscan(string(text), &last); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%016x", uint64(1)<<(last+1)-1)
}

// hasAll reports whether this process may have all of them.
func hasAll(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(text), "CapBnd:\t"+full(t))
}
