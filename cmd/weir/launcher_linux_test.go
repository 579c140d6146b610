package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// served is a weir that serves a configuration with local servers, and its log.
type served struct {
	*process
	base string

	mu  sync.Mutex
	log strings.Builder
}

// serveLocals starts one with a state directory, and with variables of its own.
func serveLocals(t *testing.T, state, config string, env ...string) *served {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := runWith(t, append([]string{"HOME=" + state}, env...), "serve", "-c", file, "--listen", "127.0.0.1:0", "--admin-listen", "", "--allow-workloads", "local", "--state-dir", state, "--log-format", "json")
	return &served{process: p}
}

// up waits until it serves, and keeps what it logs.
func (s *served) up() *served {
	s.t.Helper()
	var serving struct{ Address string }
	if err := json.Unmarshal([]byte(s.until(`"serving"`)), &serving); err != nil {
		s.t.Fatal(err)
	}
	s.base = "http://" + serving.Address
	go func() {
		for s.lines.Scan() {
			s.mu.Lock()
			s.log.WriteString(s.lines.Text() + "\n")
			s.mu.Unlock()
		}
	}()
	return s
}

func (s *served) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.said, "\n") + "\n" + s.log.String()
}

func (s *served) stop() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	if err := s.Wait(); err != nil {
		s.t.Error(err)
	}
}

func stateDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tinyServer is an MCP server without dependencies. Its tool says how it was started.
const tinyServer = `#!/usr/bin/env node
const say = (id, result) => console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const m = JSON.parse(line);
  if (m.method === "initialize") say(m.id, { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: { name: "tiny", version: "1" } });
  else if (m.method === "ping") say(m.id, {});
  else if (m.method === "tools/list") say(m.id, { tools: [{ name: "how", inputSchema: { type: "object" } }] });
  else if (m.method === "tools/call") say(m.id, { content: [{ type: "text", text: JSON.stringify({ argv: process.argv, version: require("fs").readFileSync(__filename + ".version", "utf8") }) }] });
  else if (m.id !== undefined) console.log(JSON.stringify({ jsonrpc: "2.0", id: m.id, error: { code: -32601, message: "Method not found" } }));
});
`

// index is an index of npm's packages that has one, @weir/tiny, and is slow.
type index struct {
	*httptest.Server
	asked  atomic.Int64
	latest atomic.Pointer[string]
}

// newIndex starts one. Each answer takes a while to begin, and comes in pieces.
func newIndex(t *testing.T, wait time.Duration) *index {
	t.Helper()
	i := &index{}
	first := "1.0.0"
	i.latest.Store(&first)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.asked.Add(1)
		time.Sleep(wait)
		var body []byte
		switch path := r.URL.Path; {
		case path == "/@weir/tiny" || path == "/@weir%2ftiny":
			versions := map[string]any{}
			for _, v := range []string{"1.0.0", "2.0.0"} {
				sum := sha512.Sum512(tarball(t, v))
				versions[v] = map[string]any{
					"name": "@weir/tiny", "version": v, "bin": map[string]string{"tiny": "dist/tiny.js"},
					"dist": map[string]string{"tarball": i.URL + "/tiny-" + v + ".tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])},
				}
			}
			body, _ = json.Marshal(map[string]any{"name": "@weir/tiny", "dist-tags": map[string]string{"latest": *i.latest.Load()}, "versions": versions})
		case strings.HasPrefix(path, "/tiny-"):
			body = tarball(t, strings.TrimSuffix(strings.TrimPrefix(path, "/tiny-"), ".tgz"))
		default:
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		for piece := range slices.Chunk(body, 512) {
			if _, err := w.Write(piece); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			time.Sleep(wait / 10)
		}
	}))
	t.Cleanup(i.Close)
	return i
}

// tarball is a version of the package as npm packs it.
func tarball(t testing.TB, version string) []byte {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	for _, f := range [][2]string{
		{"package/package.json", fmt.Sprintf(`{"name": "@weir/tiny", "version": %q, "bin": {"tiny": "dist/tiny.js"}}`, version)},
		{"package/dist/tiny.js", tinyServer},
		{"package/dist/tiny.js.version", version},
	} {
		if err := w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o755, Size: int64(len(f[1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// tiny is the manifest of a server by npx.
func tiny(pack, index string) string {
	return fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPServer
metadata: {name: tiny}
spec:
  image: npx
  args: ["-y", %q, "--port", "$(id)", "a b"]
  env: [{name: NPM_CONFIG_REGISTRY, value: %q}]
`, pack, index)
}

// how calls the tool in a new legacy session.
func (s *served) how(t *testing.T) (argv []string, version string) {
	t.Helper()
	answer := edgetest.NewClient(t, s.base+"/servers/tiny").Initialize("").Call("1", "how", "{}").Answer()
	var m struct {
		Result struct{ Content []struct{ Text string } }
	}
	var told struct {
		Argv    []string
		Version string
	}
	if json.Unmarshal(answer, &m) != nil || len(m.Result.Content) != 1 || json.Unmarshal([]byte(m.Result.Content[0].Text), &told) != nil {
		t.Fatalf("the tool says %s", answer)
	}
	return told.Argv, told.Version
}

func needNPM(t *testing.T) {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		_, err := exec.LookPath(program)
		edgetest.Need(t, err == nil, program+" is not installed")
	}
	everything(t) // the helper
}

// A package is fetched once, from a slow index with what npm says shown; then its program is
// started for each session, without the runner and without the network; a restart looks for a
// newer one, and without an index starts what is there.
func TestPackageRunner(t *testing.T) {
	needNPM(t)
	i := newIndex(t, 700*time.Millisecond)
	state := stateDir(t)
	home := filepath.Join(state, "workloads", "tiny", "home")

	// 1. Cold.
	s := serveLocals(t, state, tiny("@weir/tiny", i.URL)).up()
	argv, version := s.how(t)
	if version != "1.0.0" || !strings.HasSuffix(argv[0], "/node") || !strings.HasPrefix(argv[1], home+"/.weir/npx-") || !slices.Equal(argv[2:], []string{"--port", "$(id)", "a b"}) {
		t.Errorf("version %s runs as %q", version, argv)
	}
	edgetest.Until(t, "what npm fetches is shown", func() bool { return strings.Contains(s.text(), "npm http fetch GET 200 "+i.URL) })
	if text := s.text(); !strings.Contains(text, `"given":["npx","-y","@weir/tiny"`) || !strings.Contains(text, `"runs":["node"`) {
		t.Errorf("the command as given and as run is not told:\n%s", text)
	}
	asked := i.asked.Load()
	for range 10 {
		s.how(t)
	}
	if now := i.asked.Load(); now != asked {
		t.Errorf("sessions have asked the index %d times", now-asked)
	}
	s.stop()

	// 2. Warm: at a restart it is brought up to date.
	newer := "2.0.0"
	i.latest.Store(&newer)
	s = serveLocals(t, state, tiny("@weir/tiny", i.URL)).up()
	if _, version := s.how(t); version != newer {
		t.Errorf("after a restart it is version %s:\n%s", version, s.text())
	}
	s.stop()

	// 3. Without an index, and without what npm remembers of it, what is there is run.
	i.Close()
	if err := os.RemoveAll(filepath.Join(home, ".npm")); err != nil {
		t.Fatal(err)
	}
	s = serveLocals(t, state, tiny("@weir/tiny", i.URL)).up()
	if _, version := s.how(t); version != newer {
		t.Errorf("without an index it is version %s", version)
	}
	edgetest.Until(t, "it is said", func() bool { return strings.Contains(s.text(), "what is there is run") })
	s.stop()

	// 4. Another version that was never there cannot be had then.
	s = serveLocals(t, state, tiny("@weir/tiny@1.0.0", i.URL)).up()
	edgetest.Until(t, "it is said why", func() bool {
		return strings.Contains(s.text(), "@weir/tiny@1.0.0 cannot be installed: npm install: exit") && strings.Contains(s.text(), "ECONNREFUSED")
	})
	s.stop()
}

// A package that is not there, one whose name looks like an option, and a machine without npm
// are errors that say so.
func TestPackageRunnerFails(t *testing.T) {
	needNPM(t)
	i := newIndex(t, 0)
	s := serveLocals(t, stateDir(t), tiny("@weir/huge", i.URL)).up()
	edgetest.Until(t, "the index has none", func() bool {
		return strings.Contains(s.text(), "@weir/huge cannot be installed: npm install: exit 1: ") && strings.Contains(s.text(), "404")
	})
	s.stop()

	s = serveLocals(t, stateDir(t), strings.Replace(tiny("--prefix=/", i.URL), `"-y"`, `"--"`, 1))
	if code := s.end(); code != exitFault || !strings.Contains(strings.Join(s.said, "\n"), "looks like an option") {
		t.Errorf("exit %d:\n%s", code, strings.Join(s.said, "\n"))
	}

	s = serveLocals(t, stateDir(t), tiny("@weir/tiny", i.URL), "PATH="+t.TempDir()).up()
	edgetest.Until(t, "npm is not there", func() bool { return strings.Contains(s.text(), "node is needed and cannot be run here") })
	s.stop()
	if n := i.asked.Load(); n > 4 {
		t.Errorf("the index was asked %d times", n)
	}

	// The installer is held by the profile, too.
	held := strings.Replace(tiny("@weir/tiny", i.URL), "  env: [", `  permissionProfile: {type: builtin, name: none}
  env: [{name: NPM_CONFIG_FETCH_RETRIES, value: "0"}, `, 1)
	s = serveLocals(t, stateDir(t), held).up()
	edgetest.Until(t, "what to do about the profile is said", func() bool {
		return strings.Contains(s.text(), "ECONNREFUSED") && strings.Contains(s.text(), "the permission profile holds the installer, too: add the index, registry.npmjs.org or your own, to its allow_host")
	})
	s.stop()
}

// What npm fetches a package from may be a file, and with the profile none it can be nothing
// else; the installer writes to HOME alone, also where the server may write elsewhere.
func TestPackageRunnerWritesHome(t *testing.T) {
	needNPM(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "tiny.tgz")
	if err := os.WriteFile(file, tarball(t, "3.0.0"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(tiny(file, "http://127.0.0.1:9"), "  env:", fmt.Sprintf("  volumes: [{name: dir, hostPath: %[1]s, mountPath: %[1]s}]\n  permissionProfile: {type: builtin, name: none}\n  env:", dir), 1)
	s := serveLocals(t, stateDir(t), config).up()
	if _, version := s.how(t); version != "3.0.0" {
		t.Errorf("version %s", version)
	}
	s.stop()
}

// Servers that speak HTTP, of both transports, are started and called as those on standard
// streams are: under the profile none on a loopback of their own, at a port of their own.
func TestServeStartsHTTPServers(t *testing.T) {
	node, modules := everything(t)
	free := func() int {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
	marker := "marker-" + strconv.Itoa(os.Getpid()) + "-http"
	server := func(name, kind, transport, rest string) string {
		return fmt.Sprintf(`---
apiVersion: weir.dev/v1beta1
kind: MCPServer
metadata: {name: %[1]s}
spec:
  image: exec://%[2]s
  args: [%[3]s/@modelcontextprotocol/server-everything/dist/index.js, %[4]s, %[5]s]
  transport: %[6]s
  volumes: [{name: modules, hostPath: %[3]s, mountPath: %[3]s, readOnly: true}]
  %[7]s
`, name, node, modules, kind, marker, transport, rest)
	}
	shared := free()
	_, err := exec.LookPath("bwrap")
	edgetest.Need(t, err == nil, "bubblewrap is not installed")
	config := server("closed", "streamableHttp", "streamable-http", "permissionProfile: {type: builtin, name: none}\n  env: [{name: PORT, value: '8080'}]") +
		server("older", "sse", "sse", "permissionProfile: {type: builtin, name: none}\n  mcpPort: 9000\n  env: [{name: PORT, value: '9000'}]") +
		server("open", "streamableHttp", "streamable-http", fmt.Sprintf("mcpPort: %d\n  env: [{name: PORT, value: '%d'}]", shared, shared))
	s := serveLocals(t, stateDir(t), config).up()
	for _, name := range []string{"closed", "older", "open"} {
		c := edgetest.NewClient(t, s.base+"/servers/"+name)
		edgetest.Until(t, name+" answers", func() bool {
			r, err := c.Try("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
			return err == nil && r.Status == 200 && strings.Contains(string(r.Answer()), "serverInfo")
		})
		session := c.Initialize("")
		if text := string(session.Call("1", "echo", `{"message":"hello"}`).Answer()); !strings.Contains(text, "hello") {
			t.Errorf("%s: the echo is %s", name, text)
		}
		env := string(session.Call("2", "get-env", "{}").Answer())
		for _, want := range []string{"MCP_PORT", "MCP_HOST", "FASTMCP_PORT", "MCP_TRANSPORT"} {
			if !strings.Contains(env, want) {
				t.Errorf("%s: the environment lacks %s: %s", name, want, env)
			}
		}
		if text := said(c.Modern("3", "tools/call", edgetest.CallParams("echo", `{"message":"modern"}`))); !strings.Contains(text, "modern") {
			t.Errorf("%s: the echo is %s", name, text)
		}
	}
	if n := len(marked(marker)); n < 3 {
		t.Errorf("%d processes run", n)
	}
	// One that is killed is started again, and legacy clients begin a new session.
	for _, pid := range marked(marker) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	edgetest.Until(t, "they are back", func() bool {
		for _, name := range []string{"closed", "older", "open"} {
			c := edgetest.NewClient(t, s.base+"/servers/"+name)
			r, err := c.TryModern("4", "tools/call", edgetest.CallParams("echo", `{"message":"again"}`))
			if err != nil || r.Status != 200 || !strings.Contains(said(r), "again") {
				return false
			}
		}
		return true
	})
	s.stop()
	edgetest.Until(t, "the end of all processes", func() bool { return len(marked(marker)) == 0 })

	// A port that somebody has already is no server's.
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(shared))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s = serveLocals(t, stateDir(t), server("open", "streamableHttp", "streamable-http", fmt.Sprintf("mcpPort: %d", shared))).up()
	edgetest.Until(t, "it is said", func() bool {
		return strings.Contains(s.text(), fmt.Sprintf("port %d of this machine cannot be had", shared))
	})
	s.stop()
}
