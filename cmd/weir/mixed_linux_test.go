package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/engine"
)

// mixed is a place with an engine, and what servers of three members are run of: the image
// boxed:1, its program, and a module.
func mixed(t *testing.T) (p *place, e *engine.Engine, program, module string) {
	t.Helper()
	p, e = engined(t)
	program, err := engine.Build(t.TempDir(), "edge/edgetest/boxed")
	if err != nil {
		t.Fatal(err)
	}
	module = filepath.Join(t.TempDir(), "files.wasm")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", module, "./local/testdata/files")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return p, e, program, module
}

// servesAt reads what an edge says until it serves, and returns where.
func servesAt(t *testing.T, p *process) string {
	t.Helper()
	var serving struct{ Address string }
	if err := json.Unmarshal([]byte(p.until(`"serving"`)), &serving); err != nil {
		t.Fatal(err)
	}
	go func() {
		for p.lines.Scan() { // it says no more than it can get rid of
		}
	}()
	return "http://" + serving.Address
}

// members are the tools of members of three kinds, with what each answers.
var members = map[string][3]string{
	"box":  {"box_args", "{}", "from-image"},
	"here": {"here_args", "{}", "from-here"},
	"wasm": {"wasm_env", "{}", "[from-module]"},
}

// answersAs reports whether a member answers a call as its kind does.
func answersAs(c *edgetest.Client, kind [3]string) bool {
	r, err := c.TryModern("1", "tools/call", edgetest.CallParams(kind[0], kind[1]))
	return err == nil && strings.Contains(said(r), kind[2])
}

// One server has members of every kind: a process of this machine, a container, a module and a
// remote one. One is killed: the calls of the others go on, and it comes back.
func TestMembersOfEveryKind(t *testing.T) {
	_, e, program, module := mixed(t)
	back := edgetest.NewServer(t, edgetest.Legacy)
	dir := t.TempDir()
	config := filepath.Join(dir, "weir.yaml")
	text := fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPServer
metadata: {name: box}
spec: {groupRef: {name: tools}, image: "boxed:1", transport: stdio, permissionProfile: {type: builtin, name: none}}
---
apiVersion: weir.dev/v1beta1
kind: MCPServer
metadata: {name: here}
spec: {groupRef: {name: tools}, image: "exec://%s", args: [from-here], transport: stdio, permissionProfile: {type: builtin, name: none}}
---
apiVersion: weir.dev/v1beta1
kind: MCPServer
metadata: {name: wasm}
spec: {groupRef: {name: tools}, image: "wasm://%s", args: [from-module], transport: stdio}
---
apiVersion: weir.dev/v1beta1
kind: MCPRemoteProxy
metadata: {name: remote}
spec: {groupRef: {name: tools}, remoteUrl: %q, allowPrivateEndpoint: true}
---
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: tools}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: team}
spec: {groupRef: {name: tools}, incomingAuth: {type: anonymous}, config: {name: team, operational: {failureHandling: {partialFailureMode: best_effort}}}}
`, program, module, back.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := runWith(t, []string{"HOME=" + dir, "WEIR_ENGINE=unix://" + e.Socket}, "serve", "-c", config, "--listen", "127.0.0.1:0", "--admin-listen", "", "--allow-workloads", "local,container,wasm", "--state-dir", filepath.Join(dir, "state"), "--log-format", "json")
	team := edgetest.NewClient(t, servesAt(t, p)+"/servers/team")

	// 1. Each answers.
	edgetest.Until(t, "the tools of all", func() bool {
		list := said(team.Modern("1", "tools/list", "{}"))
		for _, name := range []string{"box_args", "here_args", "wasm_env", "remote_echo"} {
			if !strings.Contains(list, `"`+name+`"`) {
				return false
			}
		}
		return true
	})
	all := map[string][3]string{"remote": {"remote_echo", `{"message":"from-afar"}`, "from-afar"}}
	for name, kind := range members {
		all[name] = kind
	}
	for name, kind := range all {
		if text := said(team.Modern("1", "tools/call", edgetest.CallParams(kind[0], kind[1]))); !strings.Contains(text, kind[2]) {
			t.Errorf("%s: %s", name, text)
		}
	}

	// 2. The container is removed by somebody: it alone is away.
	const more = 100 // calls of each of the others after it is back
	ids := e.Containers(t)
	if len(ids) == 0 {
		t.Fatal("there is no container")
	}
	stop := make(chan struct{})
	var calls sync.WaitGroup
	made := map[string]*atomic.Int64{}
	for name, kind := range all {
		if name == "box" {
			continue
		}
		client, n := edgetest.NewClient(t, team.Base), new(atomic.Int64)
		made[name] = n
		calls.Go(func() {
			failed := 0
			for {
				select {
				case <-stop:
					if failed > 0 {
						t.Errorf("%s: %d of %d calls failed", name, failed, n.Load())
					}
					return
				case <-time.After(5 * time.Millisecond):
				}
				if !answersAs(client, kind) {
					failed++
				}
				n.Add(1)
			}
		})
	}
	for _, id := range ids {
		e.Do(t, "DELETE", "/containers/"+id+"?force=1")
	}
	edgetest.Until(t, "the container is back", func() bool { // who calls has it started
		if !answersAs(team, all["box"]) {
			return false
		}
		now := e.Containers(t)
		return len(now) > 0 && now[0] != ids[0]
	})
	for name, n := range made {
		until := n.Load() + more
		edgetest.Until(t, "more calls of "+name, func() bool { return n.Load() >= until })
	}
	close(stop)
	calls.Wait()

	// 3. Nothing is left.
	p.signal(syscall.SIGTERM)
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	edgetest.Until(t, "no container", func() bool { return len(e.Containers(t)) == 0 })
}

// A group of workloads of every kind is served as one server.
func TestGroupRunOfEveryKind(t *testing.T) {
	p, _, program, module := mixed(t)
	p.ask("group", "create", "tools")
	p.ask("run", "boxed:1", "--name", "box", "--group", "tools", "--permission-profile", "none")
	p.ask("run", "--name", "here", "--group", "tools", "--permission-profile", "none", "--", program, "from-here")
	p.ask("run", "wasm://"+module, "--name", "wasm", "--group", "tools", "--", "from-module")
	one := runWith(t, p.env, "group", "run", "tools", "--", "--listen", "127.0.0.1:0", "--admin-listen=", "--log-format", "json")
	c := edgetest.NewClient(t, servesAt(t, one))
	for name, kind := range members {
		edgetest.Until(t, name+" answers", func() bool { return answersAs(c, kind) })
	}
	one.signal(syscall.SIGTERM)
	if err := one.Wait(); err != nil {
		t.Error(err)
	}
	// Its members run on.
	if got := p.says("box", "args"); got != "from-image" {
		t.Errorf("box: %s", got)
	}
	p.ask("rm", "--group", "tools")
}
