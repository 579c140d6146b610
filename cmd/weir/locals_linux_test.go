package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/sandbox"
)

// everything is where the reference server of the protocol is installed, and a program that
// runs it.
func everything(t *testing.T) (node, modules string) {
	t.Helper()
	node, err := exec.LookPath("node")
	edgetest.Need(t, err == nil, "node is not installed")
	modules, err = filepath.Abs("../../edge/edgetest/peers/node_modules")
	if err == nil {
		_, err = os.Stat(filepath.Join(modules, "@modelcontextprotocol/server-everything/dist/index.js"))
	}
	edgetest.Need(t, err == nil, "the packages of edge/edgetest/peers are not installed")
	var missing *sandbox.HelperError
	_, err = sandbox.Helper(t.TempDir())
	edgetest.Need(t, !errors.As(err, &missing), fmt.Sprint(err))
	return node, modules
}

// marked returns the processes of this machine that have a word among their arguments.
func marked(word string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err == nil && slices.Contains(strings.Split(string(line), "\x00"), word) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// said is the text of an answer, be it a stream.
func said(r *edgetest.Response) string {
	text, _ := r.TryAnswer()
	return string(text)
}

// Servers that the edge starts serve tools, alone and in a group beside a remote one; what
// ends comes back, a reload leaves what did not change alone, and nothing is left at the end.
func TestServeStartsLocalServers(t *testing.T) {
	node, modules := everything(t)
	back := edgetest.NewServer(t, edgetest.Modern)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	marker := "marker-" + filepath.Base(filepath.Dir(dir)) + strconv.Itoa(os.Getpid())
	config := filepath.Join(dir, "weir.yaml")
	write := func(mode, title string) {
		t.Helper()
		text := fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPServer
metadata: {name: alone}
spec:
  image: exec://%[1]s
  args: [%[2]s/@modelcontextprotocol/server-everything/dist/index.js, stdio, %[3]s]
  volumes: [{name: modules, hostPath: %[2]s, mountPath: %[2]s, readOnly: true}]
  permissionProfile: {type: builtin, name: none}
  env: [{name: MODE, value: %[4]s}]
  secrets: [{name: some, key: token, targetEnvName: TOKEN}]
---
apiVersion: weir.dev/v1beta1
kind: MCPServer
metadata: {name: member}
spec:
  groupRef: {name: tools}
  image: exec://%[1]s
  args: [%[2]s/@modelcontextprotocol/server-everything/dist/index.js, stdio, %[3]s]
  volumes: [{name: modules, hostPath: %[2]s, mountPath: %[2]s, readOnly: true}]
---
apiVersion: weir.dev/v1beta1
kind: MCPRemoteProxy
metadata: {name: remote}
spec: {groupRef: {name: tools}, remoteUrl: %[5]q, allowPrivateEndpoint: true}
---
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: tools}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: team}
spec: {groupRef: {name: tools}, incomingAuth: {type: anonymous}, config: {name: %[6]s}}
---
apiVersion: v1
kind: Secret
metadata: {name: some}
stringData: {token: tok-secret-1}
`, node, modules, marker, mode, back.URL, title)
		if err := os.WriteFile(config+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(config+".new", config); err != nil {
			t.Fatal(err)
		}
	}
	write("first", "one")

	// 1. Not without the setting.
	p := run(t, "serve", "-c", config, "--listen", "127.0.0.1:0", "--admin-listen", "")
	if code := p.end(); code != exitFault || !strings.Contains(strings.Join(p.said, "\n"), "--allow-workloads local") {
		t.Errorf("exit %d:\n%s", code, strings.Join(p.said, "\n"))
	}

	// 2. Alone, with what it was given and no more.
	p = run(t, "serve", "-c", config, "--listen", "127.0.0.1:0", "--admin-listen", "", "--allow-workloads", "local", "--state-dir", filepath.Join(dir, "state"), "--log-format", "json")
	p.Env = append(p.Env, "HOME="+dir)
	var serving struct{ Address string }
	if err := json.Unmarshal([]byte(p.until(`"serving"`)), &serving); err != nil {
		t.Fatal(err)
	}
	go func() {
		for p.lines.Scan() { // it says no more than it can get rid of
		}
	}()
	base := "http://" + serving.Address
	alone := edgetest.NewClient(t, base+"/servers/alone")
	session := alone.Initialize("")
	environment := func(s *edgetest.Session) string {
		t.Helper()
		return string(s.Call("1", "get-env", "{}").Answer())
	}
	env := environment(session)
	for _, want := range []string{"MODE", "first", "TOKEN", "tok-secret-1", filepath.Join(dir, "state", "workloads", "alone", "home")} {
		if !strings.Contains(env, want) {
			t.Errorf("the environment lacks %s: %s", want, env)
		}
	}
	if strings.Contains(env, "WEIR_") {
		t.Errorf("the environment has what is Weir's own: %s", env)
	}

	// 3. In a group, beside a remote one.
	team := edgetest.NewClient(t, base+"/servers/team")
	edgetest.Until(t, "the tools of both", func() bool {
		list := said(team.Modern("1", "tools/list", "{}"))
		return strings.Contains(list, `"member_echo"`) && strings.Contains(list, `"remote_echo"`)
	})
	if text := said(team.Modern("2", "tools/call", edgetest.CallParams("member_echo", `{"message":"hello"}`))); !strings.Contains(text, "hello") {
		t.Errorf("the echo is %s", text)
	}

	// 4. What did not change goes on over a reload, with its session.
	write("first", "two")
	p.signal(syscall.SIGHUP)
	edgetest.Until(t, "the reload", func() bool {
		return strings.Contains(said(team.Modern("3", "server/discover", "{}")), `"name":"two"`)
	})
	if environment(session) == "" { // which has a process of its own, and ends with it
		t.Error("the session has ended, and with it its process")
	}

	// 5. What ends comes back.
	for _, pid := range marked(marker) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	edgetest.Until(t, "a new process", func() bool {
		r, err := alone.Try("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
		if err != nil || r.Status != 200 {
			return false
		}
		again := &edgetest.Session{Client: alone, ID: r.Header.Get("Mcp-Session-Id"), Version: "2025-11-25"}
		return strings.Contains(said(again.Request("2", "tools/call", edgetest.CallParams("get-env", "{}"))), "first")
	})

	// 6. What changes is started anew.
	write("second", "two")
	p.signal(syscall.SIGHUP)
	edgetest.Until(t, "the new environment", func() bool {
		return strings.Contains(said(alone.Modern("4", "tools/call", edgetest.CallParams("get-env", "{}"))), "second")
	})

	// 7. Nothing is left.
	p.signal(syscall.SIGTERM)
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	edgetest.Until(t, "the end of all processes", func() bool { return len(marked(marker)) == 0 })
}
