package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
)

// example is a folder of examples, copied to where a test may change it, with
// addresses of the test's own in place of those that are written there.
type example struct {
	t       *testing.T
	dir     string
	swap    *strings.Replacer
	env     []string
	started []*exec.Cmd
	logs    []*logged // of those
}

func newExample(t *testing.T, name string, more ...string) *example {
	t.Helper()
	var pairs []string
	for _, port := range []string{"4483", "4484", "9001", "9002"} {
		pairs = append(pairs, "127.0.0.1:"+port, edgetest.FreeAddress(t))
	}
	e := &example{t: t, dir: t.TempDir(), swap: strings.NewReplacer(append(pairs, more...)...)}
	e.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + e.dir, "WEIR_LISTEN=" + pairs[1], "WEIR_ADMIN_LISTEN=" + pairs[3]}
	files, err := os.ReadDir(filepath.Join("../../examples", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.IsDir() { // of what is built
			continue
		}
		text, err := os.ReadFile(filepath.Join("../../examples", name, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		e.write(f.Name(), e.swap.Replace(string(text)))
	}
	t.Cleanup(e.stop)
	return e
}

func (e *example) write(name, text string) {
	e.t.Helper()
	if err := os.WriteFile(filepath.Join(e.dir, name), []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
}

// command is a line of a README, run by a shell as it is written there.
func (e *example) command(line string) *exec.Cmd {
	if !strings.HasPrefix(line, "(") { // a list of commands
		line = "exec " + line
	}
	cmd := exec.CommandContext(e.t.Context(), "sh", "-c", line)
	cmd.Dir, cmd.Env = e.dir, e.env
	// The context ends before stop is called, and an edge that is killed leaves its files behind.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = edgetest.Patience
	return cmd
}

// follow runs every command of the README, in its order: one that ends in & is
// left running, of any other the lines below it are expected in what it says.
func (e *example) follow() {
	e.t.Helper()
	text, err := os.ReadFile(filepath.Join(e.dir, "README.md"))
	if err != nil {
		e.t.Fatal(err)
	}
	if commands := e.run(string(text)); commands < 5 {
		e.t.Errorf("%d commands found", commands)
	}
}

// run is follow for a part of a README, and counts its commands.
func (e *example) run(text string) (commands int) {
	e.t.Helper()
	for _, block := range strings.Split(text, "```console\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
			lines := strings.Split(strings.TrimSpace(step), "\n")
			commands++
			if line, ok := strings.CutSuffix(lines[0], " &"); ok {
				e.start(line)
				continue
			}
			e.expect(lines[0], lines[1:])
		}
	}
	return commands
}

// start leaves a command running, and waits until it serves.
func (e *example) start(line string) {
	e.t.Helper()
	cmd := e.command(line)
	said, err := cmd.StderrPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	e.started = append(e.started, cmd)
	serving := make(chan string, 1)
	log := &logged{line: line}
	e.logs = append(e.logs, log)
	go func() { // ends with the command
		var all strings.Builder
		told := false
		buffer := make([]byte, 4096)
		for {
			n, err := said.Read(buffer)
			all.Write(buffer[:n])
			log.add(buffer[:n])
			if !told && strings.Contains(all.String(), `"msg":"serving"`) {
				serving <- ""
				told = true
			}
			if err != nil {
				if !told {
					serving <- all.String()
				}
				_, _ = io.Copy(io.Discard, said)
				return
			}
		}
	}()
	if text := edgetest.Receive(e.t, serving, line); text != "" {
		e.t.Fatalf("%s ended: %s", line, text)
	}
}

// expect runs a command until it says what it should: backends may take a moment
// to be known.
func (e *example) expect(line string, want []string) {
	e.t.Helper()
	var out []byte
	var err error
	for began := time.Now(); time.Since(began) < edgetest.Patience; {
		out, err = e.command(line).CombinedOutput()
		var lacks []string
		for _, w := range want {
			if !strings.Contains(string(out), w) {
				lacks = append(lacks, w)
			}
		}
		if err == nil && len(lacks) == 0 {
			return
		}
	}
	for _, l := range e.logs {
		e.t.Log(l)
	}
	e.t.Fatalf("%s\nprints %s, %v; want %q", line, out, err, want)
}

// logged is the end of what a command that was left running has said.
type logged struct {
	line string
	mu   sync.Mutex
	text []byte
}

func (l *logged) add(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	l.text = l.text[max(0, len(l.text)-8000):]
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line + " says …" + string(l.text)
}

func (e *example) stop() {
	for _, cmd := range e.started {
		var failed *exec.ExitError
		// The end of the test's context has interrupted them; what has ended in time says that.
		if err := cmd.Wait(); err != nil && !errors.As(err, &failed) && !errors.Is(err, context.Canceled) {
			e.t.Error(err)
		}
	}
}

// TestExampleLocal does what the README of the developer's edge says.
func TestExampleLocal(t *testing.T) {
	t.Parallel()
	e := newExample(t, "local")
	e.follow()
	out, err := e.command(e.swap.Replace("weir tools http://127.0.0.1:4483/mcp")).CombinedOutput()
	if err != nil || strings.Contains(string(out), "notes_echo") || strings.Contains(string(out), "notes_add") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestExampleFirstSteps does what the README of the first script and composite tool says.
func TestExampleFirstSteps(t *testing.T) {
	t.Parallel()
	newExample(t, "first-steps").follow()
}

// TestExampleOptimizer finds a tool by what it does, and calls it, as the README says.
func TestExampleOptimizer(t *testing.T) {
	t.Parallel()
	e := newExample(t, "optimizer")
	e.follow()
	find := e.swap.Replace("weir tools http://127.0.0.1:4485/mcp --find 'add two numbers'")
	if out, err := e.command(find).CombinedOutput(); err != nil || strings.Contains(string(out), "words") || !strings.HasPrefix(string(out), "demo_add") {
		t.Errorf("%v: %s", err, out)
	}
	out, err := e.command(find + " --explain").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "number") {
		t.Errorf("it is not said why: %v: %s", err, out)
	}
	for _, c := range [][2]string{
		{e.swap.Replace("weir tools http://127.0.0.1:4483/mcp --find add"), "find_tool"},
		{e.swap.Replace("weir tools http://127.0.0.1:4485/mcp --explain"), "--find"},
		{e.swap.Replace("weir call http://127.0.0.1:4485/mcp demo_add a:=1 b:=2"), "`weir call call_tool --args '{\"tool_name\": \"demo_add\", \"parameters\": {}}'` calls it"},
	} {
		if out, err := e.command(c[0]).CombinedOutput(); err == nil || !strings.Contains(string(out), c[1]) {
			t.Errorf("%s: %v: %s", c[0], err, out)
		}
	}
}

// withReplicas holds that the manifest with the storage of the README is one that
// needs no flag.
func (e *example) withReplicas() {
	e.t.Helper()
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(e.dir, name))
		if err != nil {
			e.t.Fatal(err)
		}
		return string(text)
	}
	_, block, found := strings.Cut(read("README.md"), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	manifest := read("weir.yaml")
	if !found || !strings.Contains(manifest, "  config:\n    aggregation") {
		e.t.Fatal("no storage in the README, or nowhere to put it")
	}
	e.write("shared.yaml", strings.Replace(manifest, "  config:\n    aggregation", block+"  config:\n    aggregation", 1))
	e.expect("weir validate shared.yaml", []string{"shared.yaml: ok"})
	if out, err := e.command("weir validate weir.yaml").CombinedOutput(); err == nil || !strings.Contains(string(out), "rateLimiting") {
		e.t.Errorf("limits without a place to count: %v: %s", err, out)
	}
}

// TestExampleTeam does what the README of the team's edge says, with a real
// identity provider in the place of the company's.
func TestExampleTeam(t *testing.T) {
	p := idp.Start(t)
	e := newExample(t, "team", "issuer: https://login.example.com", fmt.Sprintf("issuer: %s\n    insecureAllowHTTP: true\n    jwksAllowPrivateIP: true", p.Issuer))
	const resource = "https://tools.example.com/mcp"
	for name, scope := range map[string]string{"alice": "tools:read", "olga": "tools:read", "narrow": "tools:write"} {
		e.write(name, p.User(t, name, resource, scope).Access)
	}
	e.follow()
	for _, c := range []struct{ token, call, says string }{
		{"alice", "machines_echo --args '{\"text\":\"x\"}'", "denied by authorization policy"},
		{"olga", "machines_slow --args '{\"seconds\":6}'", "denied by authorization policy"},
		{"narrow", "docs_echo --args '{\"text\":\"x\"}'", "403"},
	} {
		line := e.swap.Replace("weir call http://127.0.0.1:4483/mcp "+c.call) + " --bearer-token-file " + c.token
		if out, err := e.command(line).CombinedOutput(); err == nil || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: %v: %s", line, err, out)
		}
	}
	out, err := e.command(e.swap.Replace("weir tools http://127.0.0.1:4483/mcp --bearer-token-file alice")).CombinedOutput()
	if err != nil || strings.Contains(string(out), "machines_") {
		t.Errorf("alice sees %s, %v", out, err)
	}
	// Three calls of the slow tool, of which the README has made one, and then no
	// more; the others go on.
	slow := e.swap.Replace("weir call http://127.0.0.1:4483/mcp machines_slow --args '{\"seconds\":0}' --bearer-token-file olga")
	for n := 2; ; n++ {
		out, err := e.command(slow).CombinedOutput()
		if err != nil && strings.Contains(string(out), "Rate limit exceeded") && n == 4 {
			break
		}
		if err != nil || n > 3 {
			t.Fatalf("call %d of the slow tool: %v: %s", n, err, out)
		}
	}
	e.expect(e.swap.Replace("weir call http://127.0.0.1:4483/mcp machines_echo --args '{\"text\":\"still\"}' --bearer-token-file olga"), []string{"still"})
	e.withReplicas()
}

// TestExampleStarlarkFilters does what the README of the filters in Starlark says: four of
// them change what the demo offers, takes and answers.
func TestExampleStarlarkFilters(t *testing.T) {
	t.Parallel()
	e := newExample(t, "starlark-filters")
	for _, twin := range []string{"pin-argument", "redact-personal-data"} {
		text, err := os.ReadFile(filepath.Join("../../examples", twin, "fixtures.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		beside := filepath.Join(e.dir, "..", twin)
		if err := os.MkdirAll(beside, 0o700); err != nil {
			t.Fatal(err)
		}
		e.write(filepath.Join("..", twin, "fixtures.yaml"), string(text))
	}
	e.follow()
	for _, c := range []struct{ arguments, says string }{
		{"a=1001", "at most 1000 at once"},
		{"a=1.5", "the amount must be a whole number"},
		{"a=1 b=7", `no argument "b"`},
	} {
		line := e.swap.Replace("weir call http://127.0.0.1:4483/mcp demo_add " + c.arguments)
		if out, err := e.command(line).CombinedOutput(); err == nil || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: %v: %s", line, err, out)
		}
	}
}
