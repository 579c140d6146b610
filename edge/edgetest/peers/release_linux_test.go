package peers_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// TestReleaseExample does what the README of examples/release-workflow says, on a terminal,
// before the npm server that it names: each command of a console block says the lines below
// it, and is answered what stands behind a question there.
func TestReleaseExample(t *testing.T) {
	r := startRelease(t)
	text, err := os.ReadFile(filepath.Join(r.dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, block := range strings.Split(string(text), "```console\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, step := range strings.Split("\n"+block, "\n$ ")[1:] {
			lines := strings.Split(strings.TrimSpace(step), "\n")
			if !strings.HasPrefix(lines[0], "weir ") {
				continue // the bridge, which runs
			}
			commands++
			said, err := r.run(t, lines[0], typed(lines[1:])).wait()
			if err != nil {
				t.Fatalf("%s: %v\n%s", lines[0], err, said)
			}
			for _, line := range lines[1:] {
				if want := answer.ReplaceAllString(plain(line), "$1"); !strings.Contains(plain(said), want) {
					t.Errorf("%s\nprints %s\nwithout %s", lines[0], said, line)
				}
			}
		}
	}
	if commands < 6 {
		t.Errorf("%d commands found", commands)
	}
}

// TestReleaseExampleRetries: the page of a release is made while the workflow tries to write
// on it, which works at the next attempt. It does so in both eras.
func TestReleaseExampleRetries(t *testing.T) {
	r := startRelease(t)
	r.serve(t)
	for era, version := range map[string]string{"modern": "2.2", "legacy": "2.3"} {
		t.Run(era, func(t *testing.T) {
			plan := func(more string) {
				t.Helper()
				if said, err := r.run(t, `weir workflow run plan -c weir.yaml --args '{"version": "`+version+`"`+more+`}' --era `+era, "").wait(); err != nil {
					t.Fatal(err, said)
				}
			}
			plan(`, "changes": ["undo ` + version + `"], "page": false`)
			release := r.run(t, `weir workflow run release -c weir.yaml --args '{"version": "`+version+`"}' --era `+era, "beta\n")
			edgetest.Until(t, "the second attempt", func() bool {
				return strings.Contains(release.said(), "step publish: memory_add_observations, attempt 2: error")
			})
			plan("")
			said, err := release.wait()
			if err != nil || !regexp.MustCompile(`publish: memory_add_observations, attempt [3-7]: ok`).MatchString(said) ||
				!strings.Contains(said, `"released": true`) || !strings.Contains(said, `"undo `+version+`"`) {
				t.Errorf("%v\n%s", err, said)
			}
		})
	}
}

// TestReleaseExampleCancelled: who gives no answer ends the workflow, and nothing is marked.
func TestReleaseExampleCancelled(t *testing.T) {
	r := startRelease(t)
	r.serve(t)
	if said, err := r.run(t, `weir workflow run plan -c weir.yaml --args '{"version": "3", "changes": ["undo"]}'`, "").wait(); err != nil {
		t.Fatal(err, said)
	}
	said, err := r.run(t, `weir workflow run release -c weir.yaml --args '{"version": "3"}'`, "\x04").wait()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != 1 || !strings.Contains(said, `Workflow execution failed: step "go": the user said: cancel`) {
		t.Errorf("%v\n%s", err, said)
	}
	graph, err := os.ReadFile(r.memory)
	if err != nil || !strings.Contains(string(graph), "planned for 3.") || strings.Contains(string(graph), "released") {
		t.Errorf("the graph is %s, %v", graph, err)
	}
}

// release is a copy of the example, with its server running.
type release struct {
	dir, memory, path string
	edge              string // URL of an edge that serves it; "" for one that each command starts
}

// serve starts an edge with the example, which commands talk to in place of their own.
func (r *release) serve(t *testing.T) {
	t.Helper()
	yaml, err := os.ReadFile(filepath.Join(r.dir, "weir.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	weir := filepath.Join(r.path, "weir")
	r.edge = lasting(t)(peers.StartEdgeWith(t.Context(), weir, t.TempDir(), string(yaml)))
	edgetest.Until(t, "the tools of the server", func() bool {
		said, err := peers.Command(t.Context(), weir, "tools", r.edge).Output()
		return err == nil && strings.Contains(string(said), "memory_search_nodes")
	})
}

func startRelease(t *testing.T) *release {
	t.Helper()
	_, shop := bridgeKit(t)
	program := edgeProgram(t, shop)
	kept := t.TempDir()
	url := lasting(t)(shop.StartBridge(t.Context(), peers.Bridges()[1], "memory", kept))
	r := &release{dir: t.TempDir(), memory: filepath.Join(kept, "memory.json"), path: t.TempDir()}
	if err := os.Symlink(program, filepath.Join(r.path, "weir")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"weir.yaml", "README.md"} {
		text, err := os.ReadFile("../../../examples/release-workflow/" + name)
		if err == nil && name == "weir.yaml" {
			if !strings.Contains(string(text), "http://127.0.0.1:9001/mcp") {
				t.Fatal("the example names no server")
			}
			text = []byte(strings.Replace(string(text), "http://127.0.0.1:9001/mcp", url, 1))
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(r.dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// running is a command on a terminal.
type running struct {
	cmd   *exec.Cmd
	ended chan error // has what it ended with when everything that it said is here

	mu    sync.Mutex
	shown bytes.Buffer
}

// run starts a command of the shell on a terminal at which somebody types.
func (r *release) run(t *testing.T, line, typed string) *running {
	t.Helper()
	if r.edge != "" {
		line = strings.Replace(line, "-c weir.yaml", "--url "+r.edge, 1)
	}
	shown, terminal := pseudoTerminal(t)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Dir = r.dir
	cmd.Env = []string{"PATH=" + r.path + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + r.dir, "TERM=dumb"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = terminal.Close() // the command has it
	if _, err := shown.WriteString(typed); err != nil {
		t.Fatal(err)
	}
	c := &running{cmd: cmd, ended: make(chan error, 1)}
	go func() { // ends with the command, whose terminal is closed then
		buffer := make([]byte, 4096)
		for {
			n, err := shown.Read(buffer)
			c.mu.Lock()
			c.shown.Write(buffer[:n])
			c.mu.Unlock()
			if err != nil {
				break
			}
		}
		c.ended <- cmd.Wait()
	}()
	return c
}

func (c *running) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ReplaceAll(c.shown.String(), "\r\n", "\n")
}

// wait waits for its end.
func (c *running) wait() (string, error) {
	select {
	case err := <-c.ended:
		return c.said(), err
	case <-time.After(edgetest.Patience):
		return c.said(), errors.New("it does not end")
	}
}

// answer is a line of a question with its answer.
var answer = regexp.MustCompile(`^(.*\]: )(.+)$`)

// typed is what is typed in lines of a README.
func typed(lines []string) (all string) {
	for _, line := range lines {
		if found := answer.FindStringSubmatch(line); found != nil {
			all += found[2] + "\n"
		}
	}
	return all
}

// plain is a text without how long calls took.
func plain(s string) string { return regexp.MustCompile(`[0-9.]+ ms`).ReplaceAllString(s, "N ms") }

// pseudoTerminal is a terminal, and what is shown on it.
func pseudoTerminal(t *testing.T) (shown, terminal *os.File) {
	t.Helper()
	shown, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	edgetest.Need(t, err == nil, "there are no pseudo terminals")
	t.Cleanup(func() { _ = shown.Close() })
	number, err := unix.IoctlGetInt(int(shown.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(shown.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return shown, terminal
}
