package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/sandbox"
)

// blab is an MCP server that prints its secrets in every spelling, at its start and when it
// crashes, and says to its clients only that it has them.
const blab = `
const crypto = require('crypto');
const names = Object.keys(process.env).filter((n) => n.startsWith('PLANTED_')).sort();
const shout = () => {
  for (const n of names) {
    const v = process.env[n];
    for (const text of [v, 'x' + v + 'y', JSON.stringify({ a: JSON.stringify(v) }), encodeURIComponent(v), Buffer.from(v).toString('base64'),
      Buffer.from('user:' + v).toString('base64'), Buffer.from('a user:' + v).toString('base64url'), Buffer.from('1' + v).toString('hex'), 'l'.repeat(16380) + v]) {
      console.error(n + ' is ' + text);
    }
    console.log('no message: ' + v);
  }
};
shout();
console.error('it has begun');
require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const m = JSON.parse(line);
  const answer = (result) => console.log(JSON.stringify({ jsonrpc: '2.0', id: m.id, result }));
  switch (m.method) {
    case 'initialize': return answer({ protocolVersion: m.params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'blab', version: '1' } });
    case 'tools/list': return answer({ tools: ['digest', 'crash'].map((name) => ({ name, inputSchema: { type: 'object' } })) });
    case 'tools/call':
      if (m.params.name === 'crash') {
        throw new Error('it has crashed with ' + names.map((n) => process.env[n]).join(' '));
      }
      return answer({ content: [{ type: 'text', text: names.map((n) => n + ' ' + crypto.createHash('sha256').update(process.env[n]).digest('hex')).join('\n') }] });
    default:
      if (m.id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id: m.id, error: { code: -32601, message: 'no' } }));
  }
});
`

// hearArguments keeps the arguments of all processes of this machine.
func (g *garden) hearArguments() {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if text, err := os.ReadFile(path); err == nil { // else it has ended
			g.hear("the arguments of a process", strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
}

// hearFiles keeps what lies below a directory, but for files that somebody else wrote.
func (g *garden) hearFiles(dir string, besides ...string) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		for _, one := range besides {
			if path == filepath.Join(dir, one) {
				if d.IsDir() {
					return filepath.SkipDir
				}
				return nil
			}
		}
		if d.Type().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			g.hear("the file "+path, string(text))
		}
		return nil
	})
	if err != nil {
		g.t.Error(err)
	}
}

// TestV46 plants secrets in every way in which a workload may be given one, has the workload
// blab them, well and when it crashes, and looks for them in all that Weir says and writes: its
// log, its commands, its files, the arguments of all processes, and what it says when it is
// killed in the midst of it.
func TestV46(t *testing.T) {
	node, err := exec.LookPath("node")
	edgetest.Need(t, err == nil, "node is not installed")
	var missing *sandbox.HelperError
	_, err = sandbox.Helper(t.TempDir())
	edgetest.Need(t, !errors.As(err, &missing), fmt.Sprint(err))
	g := &garden{t: t, said: map[string]*bytes.Buffer{}}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}

	// 1. Every way to give a secret.
	password := g.plant("the password of the secrets")
	environ := []string{"WEIR_HOME=" + filepath.Join(dir, "home"), "HOME=" + dir, "WEIR_SECRETS_PROVIDER=encrypted", "WEIR_SECRETS_PASSWORD=" + password}
	values := map[string]string{}
	for _, name := range []string{"SET", "LINES", "FILE", "DIR", "KEYED", "ENV", "MOUNTED", "DOCUMENT"} {
		values[name] = g.plant("a secret: " + name)
	}
	values["LINES"] = "-----BEGIN KEY-----\n" + values["LINES"] + "\n" + g.plant("the second line of a secret") + "\n-----END KEY-----"
	environ = append(environ, "WEIR_SECRET_ENV="+values["ENV"])
	write(t, dir, map[string]string{
		"given/vars":               "FILE=" + values["FILE"] + "\n",
		"given/dir/DIR":            values["DIR"],
		"given/dir/keyed/KEY":      values["KEYED"],
		"given/mounted/of/MOUNTED": values["MOUNTED"],
		"server/blab.js":           blab,
	})
	g.weir(dir, environ, "secret", "setup")
	for _, name := range []string{"SET", "LINES"} {
		cmd := exec.CommandContext(t.Context(), "weir", "secret", "set", name)
		cmd.Env, cmd.Dir, cmd.Stdin = append(environ, "PATH="+os.Getenv("PATH")), dir, strings.NewReader(values[name])
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		g.hear("weir secret set", string(out))
	}
	g.weir(dir, environ, "secret", "import", "given/vars")
	g.weir(dir, environ, "secret", "import", "given/dir")
	g.weir(dir, environ, "secret", "set", "SET", values["SET"]) // by whoever does not know better: it is refused
	delete(g.said, "weir secret set SET "+values["SET"])        // which is our own name for it

	// 2. A workload that has them all.
	refs := map[string]string{
		"SET": "weir-secrets/SET", "LINES": "weir-secrets/LINES", "FILE": "weir-secrets/FILE", "DIR": "weir-secrets/DIR", "KEYED": "keyed/KEY",
		"ENV": "weir-secrets/ENV", "MOUNTED": "of/MOUNTED", "DOCUMENT": "doc/DOCUMENT",
	}
	var list []map[string]string
	for name, ref := range refs {
		secret, key, _ := strings.Cut(ref, "/")
		list = append(list, map[string]string{"name": secret, "key": key, "targetEnvName": "PLANTED_" + name})
	}
	secrets, _ := json.Marshal(list) // it is text alone
	server := filepath.Join(dir, "server")
	write(t, dir, map[string]string{
		"given/doc.yaml": fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: doc}\nstringData: {DOCUMENT: %q}\n", values["DOCUMENT"]),
		"weir.yaml": fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPServer
metadata: {name: blab}
spec:
  image: exec://%[1]s
  args: [%[2]s/blab.js]
  volumes: [{name: server, hostPath: %[2]s, mountPath: %[2]s, readOnly: true}]
  permissionProfile: {type: builtin, name: none}
  secrets: %[3]s
`, node, server, secrets),
	})
	args := []string{"serve", "-c", "weir.yaml", "-c", "given/doc.yaml", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--allow-workloads", "local",
		"--state-dir", filepath.Join(dir, "state"), "--secrets-dir", "given/mounted", "--log-format", "json", "--log-level", "debug"}
	cmd := exec.CommandContext(t.Context(), "weir", args...)
	cmd.Env, cmd.Dir = append(environ, "PATH="+os.Getenv("PATH"), "GOTRACEBACK=all"), dir
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	log := g.listen("the log", stderr)
	var serving struct{ Address string }
	edgetest.Until(t, "it serves", func() bool {
		return json.Unmarshal([]byte(log.line(`"serving"`)), &serving) == nil
	})

	// 3. It has them, and prints them.
	client := edgetest.NewClient(t, "http://"+serving.Address+"/servers/blab")
	digests := string(client.Initialize("").Call("1", "digest", "{}").Answer())
	for name, value := range values {
		sum := sha256.Sum256([]byte(value))
		if !strings.Contains(digests, "PLANTED_"+name+" "+hex.EncodeToString(sum[:])) {
			t.Errorf("the server does not have %s: %s", name, digests)
		}
	}
	edgetest.Until(t, "what it prints is logged", func() bool { return log.line("it has begun") != "" })
	if log.line("PLANTED_SET is REDACTED") == "" || log.line("no message: REDACTED") == "" {
		t.Error("nothing is masked")
	}
	g.hearArguments()

	// 4. It crashes, a secret is gone, and the edge is killed in the midst of it all.
	crashed := client.Initialize("")
	g.hear("the answer to a crash", said(crashed.Request("2", "tools/call", edgetest.CallParams("crash", "{}"))))
	edgetest.Until(t, "the crash is logged", func() bool { return log.line("it has crashed with") != "" })
	g.weir(dir, environ, "secret", "list")
	g.weir(dir, environ, "secret", "list", "--format", "json")
	g.weir(dir, environ, "secret", "get", "NONE")
	g.weir(dir, environ, "secret", "delete", "FILE")
	g.weir(dir, environ, "validate", "weir.yaml", "given/doc.yaml")
	g.weir(dir, environ, "settings")
	g.hear("the answer without a secret", string(client.Post(`{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`).Body))
	g.hearArguments()
	if err := cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	log.end()
	_ = cmd.Wait() // it was killed
	if log.line("goroutine ") == "" {
		t.Error("it did not say where it was")
	}

	// 5. Nowhere.
	g.hearFiles(dir, "given", "server")
	for _, hit := range g.search() {
		t.Error(hit)
	}
	if len(g.values) < 10 || len(g.said) < 15 {
		t.Errorf("%d secrets, %d voices", len(g.values), len(g.said))
	}
}
