package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/sandbox"
	"github.com/weir-edge/weir/edge/workload"
)

// smallServer is an MCP server over stdio. Its tool says how it was started: its arguments,
// and what a variable of its environment or a file holds.
func smallServer() {
	fmt.Fprintln(os.Stderr, "small server: ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		m, err := mcp.Decode(in.Bytes())
		if err != nil || m.Kind != mcp.Request {
			continue
		}
		var text string
		switch m.Method {
		case "initialize":
			text = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"small","version":"1"}}`
		case "ping":
			text = "{}"
		case "tools/list":
			text = `{"tools":[{"name":"look","description":"looks","inputSchema":{"type":"object","properties":{"env":{"type":"string"},"file":{"type":"string"}}}}]}`
		case "tools/call":
			var p struct {
				Arguments struct{ Env, File string }
			}
			_ = json.Unmarshal(m.Params.Of(m.Raw), &p)
			said := strings.Join(os.Args[1:], " ")
			if p.Arguments.Env != "" {
				said = os.Getenv(p.Arguments.Env)
			}
			if strings.HasPrefix(p.Arguments.File, "http://") { // by the proxy, where there is one
				said = "no answer"
				if r, err := http.Get(p.Arguments.File); err == nil {
					content, _ := io.ReadAll(r.Body)
					_ = r.Body.Close()
					said = r.Status + " " + strings.TrimSpace(string(content))
				}
			} else if p.Arguments.File != "" {
				content, err := os.ReadFile(p.Arguments.File)
				said = fmt.Sprint(string(content), err)
			}
			quoted, _ := json.Marshal("<" + said + ">")
			text = `{"content":[{"type":"text","text":` + string(quoted) + `}]}`
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`+"\n", m.IDText())
			continue
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.IDText(), text)
	}
}

// household is a user of weir with a home of its own, and a manager where there is one.
type household struct {
	t    *testing.T
	home string
	env  []string
	up   *exec.Cmd
}

func newHousehold(t *testing.T) *household {
	t.Helper()
	var missing *sandbox.HelperError
	_, err := sandbox.Helper(t.TempDir())
	edgetest.Need(t, !errors.As(err, &missing), fmt.Sprint(err))
	// The path of a socket is short.
	home, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	h := &household{t: t, home: home}
	h.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "WEIR_HOME=" + filepath.Join(home, "weir"), "WEIR_SECRETS_PASSWORD=correct horse"}
	return h
}

// managed starts a manager, in a process of its own.
func (h *household) managed() *household {
	h.t.Helper()
	var said lockedBuffer
	h.up = exec.CommandContext(h.t.Context(), "weir", "up")
	h.up.Env, h.up.Stderr, h.up.Dir = h.env, &said, h.home
	h.up.Cancel = func() error { return h.up.Process.Signal(syscall.SIGTERM) }
	h.up.WaitDelay = edgetest.Patience
	if err := h.up.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = h.up.Wait() })
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if _, said, _ := h.weir("inspect", "nobody"); strings.Contains(said, "there is no workload") {
			return h
		}
		if time.Since(began) > edgetest.Patience {
			h.t.Fatalf("the manager does not answer: %s", said.String())
		}
	}
}

// weir runs a command.
func (h *household) weir(args ...string) (out, said string, code int) {
	h.t.Helper()
	return h.weirWith("", args...)
}

// weirWith runs a command with a text as its input.
func (h *household) weirWith(in string, args ...string) (out, said string, code int) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "weir", args...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = h.env, h.home, strings.NewReader(in), &stdout, &stderr
	var failed *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &failed) {
		h.t.Fatalf("weir %q: %v", args, err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// must is weir for what has to go well. It returns the last line of the output.
func (h *household) must(args ...string) string {
	h.t.Helper()
	out, said, code := h.weir(args...)
	if code != 0 {
		h.t.Fatalf("weir %s: exit code %d: %s%s", strings.Join(args, " "), code, out, said)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

// fails is weir for what has to go wrong, with an exit code and a text.
func (h *household) fails(code int, text string, args ...string) {
	h.t.Helper()
	if out, said, got := h.weir(args...); got != code || !strings.Contains(said, text) {
		h.t.Errorf("weir %s: exit code %d, want %d with %q: %s%s", strings.Join(args, " "), got, code, text, out, said)
	}
}

// write writes a file into the home, and returns its path.
func (h *household) write(name, text string) string {
	h.t.Helper()
	path := filepath.Join(h.home, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return path
}

// asks calls the tool of a small server.
func (h *household) asks(url, want string, args ...string) {
	h.t.Helper()
	if got := h.must(append([]string{"call", url, "look"}, args...)...); !strings.Contains(got, "<"+want+">") {
		h.t.Errorf("%s %v says %s, want %s", url, args, got, want)
	}
}

// listed is what the manager says of a workload.
func (h *household) listed(name string) (one workload.Detail) {
	h.t.Helper()
	out, said, code := h.weir("inspect", name)
	if code != 0 {
		h.t.Fatalf("inspect %s: %s", name, said)
	}
	if err := json.Unmarshal([]byte(out), &one); err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	return one
}

// lockedHousehold has a secret whose password neither a command nor the manager knows, a server,
// and the environment of those who know it.
func lockedHousehold(t *testing.T) (h *household, small string, knowing []string) {
	t.Helper()
	h = newHousehold(t)
	small, err := exec.LookPath("small-server")
	if err != nil {
		t.Fatal(err)
	}
	h.must("secret", "setup")
	if _, said, code := h.weirWith("tok-1234567\n", "secret", "set", "github"); code != 0 {
		t.Fatal(said)
	}
	knowing = h.env
	h.env = slices.DeleteFunc(slices.Clone(h.env), func(v string) bool { return strings.HasPrefix(v, "WEIR_SECRETS_PASSWORD=") })
	h.managed()
	return h, small, knowing
}

// A replacement that is refused leaves the workload as it is, and none of its secrets.
func TestRefusedReplacementKeepsSecrets(t *testing.T) {
	h := newHousehold(t)
	small, err := exec.LookPath("small-server")
	if err != nil {
		t.Fatal(err)
	}
	h.must("secret", "setup")
	h.managed()
	h.must("run", "--name", "stays", "--", small)
	h.fails(9, "mount /", "run", "--replace", "--name", "stays", "--oidc-issuer", "https://login.example.com", "--oidc-audience", "a",
		"--oidc-client-id", "c", "--oidc-client-secret", "new-1234567", "-v", "/:/x", "--", small)
	if out := h.must("secret", "list"); strings.Contains(out, "stays") {
		t.Errorf("a refused replacement left its secret:\n%s", out)
	}
	if one := h.listed("stays"); one.Status.Status != workload.Running {
		t.Errorf("%+v", one)
	}
}

// A workload whose secrets are locked waits for the password. The manager has it from whoever
// knows it first: `weir secret unlock`, or a run.
func TestRunLocked(t *testing.T) {
	h, small, knowing := lockedHousehold(t)
	h.fails(1, "`weir secret unlock`", "run", "--name", "first", "--secret", "github,target=GITHUB", "--", small)
	if one := h.listed("first"); one.Status.Status != workload.Failed || one.Next != "weir secret unlock" {
		t.Errorf("%+v", one)
	}
	h.env = append(slices.Clone(knowing), "WEIR_SECRETS_PASSWORD=another one")
	h.fails(1, "this is not its password", "run", "--replace", "--name", "first", "--secret", "github,target=GITHUB", "--", small)
	h.env = knowing
	h.asks(h.must("run", "--name", "second", "--secret", "github,target=GITHUB", "--", small), "tok-1234567", "env=GITHUB")
	edgetest.Until(t, "the first one runs, too", func() bool { return h.listed("first").Status.Status == workload.Running })
	h.asks(h.listed("first").URL, "tok-1234567", "env=GITHUB")
	h.env = slices.DeleteFunc(slices.Clone(h.env), func(v string) bool { return strings.HasPrefix(v, "WEIR_SECRETS_PASSWORD=") })
	h.asks(h.must("run", "--name", "third", "--secret", "github,target=GITHUB", "--", small), "tok-1234567", "env=GITHUB") // which the manager can read
	h.fails(6, "weir secret set none-such", "run", "--secret", "none-such,target=A", "--", small)
}

// A workload that waits for the password of the secrets is started by whoever knows it.
func TestStartLocked(t *testing.T) {
	h, small, knowing := lockedHousehold(t)
	for _, name := range []string{"first", "second"} {
		h.fails(1, "`weir secret unlock`", "run", "--name", name, "--secret", "github,target=GITHUB", "--", small)
	}
	h.fails(1, "`weir secret unlock`", "start", "first")
	h.env = append(slices.Clone(knowing), "WEIR_SECRETS_PASSWORD=another one")
	h.fails(1, "this is not its password", "start", "first")
	h.env = knowing
	h.must("start", "first", "second")
	for _, name := range []string{"first", "second"} {
		h.asks(h.listed(name).URL, "tok-1234567", "env=GITHUB")
	}
}

// What does not start in the foreground is no client's.
func TestForegroundWithoutAServerHasNoClient(t *testing.T) {
	h := newHousehold(t)
	h.fails(44, "", "run", "-f", "--name", "ends", "--client", "codex", "--", "/bin/false")
	if files, _ := filepath.Glob(filepath.Join(h.home, "weir", "*", "clients.json")); len(files) > 0 {
		t.Errorf("it was set up: %v", files)
	}
	if text, err := os.ReadFile(filepath.Join(h.home, ".codex", "config.toml")); err == nil {
		t.Errorf("it has %s", text)
	}
}

// Servers that run names are kept by the manager, with what flags say: they answer at their
// URLs, are listed, exported, and run again of what was exported.
func TestRunKeepsServers(t *testing.T) {
	h := newHousehold(t).managed()
	small, err := exec.LookPath("small-server")
	if err != nil {
		t.Fatal(err)
	}

	// A command, with a name of its own, and once more with the next.
	first := h.must("run", "--", small, "one", "two")
	h.asks(first, "one two")
	second := h.must("run", "--", small)
	h.asks(second, "")
	if first == second || h.listed("small-server").URL != first || h.listed("small-server-2").URL != second {
		t.Errorf("%s and %s", first, second)
	}

	// A name and a port that are taken.
	h.fails(7, "--name", "run", "--name", "small-server", "--", small)
	port := strings.Split(strings.TrimPrefix(first, "http://127.0.0.1:"), "/")[0]
	h.fails(7, port, "run", "--name", "third", "--proxy-port", port, "--", small)
	h.fails(2, "--host: 203.0.113.9 is no address of this machine", "run", "--name", "third", "--host", "203.0.113.9", "--", small)
	if _, said, code := h.weir("inspect", "third"); code != 6 {
		t.Errorf("what could not start is there: exit code %d, %s", code, said)
	}
	if h.must("run", "--replace", "--name", "small-server", "--proxy-port", port, "--", small, "three") != first {
		t.Error("another URL")
	}
	h.asks(first, "three")

	// What cannot take its place leaves it running, with its home and its log.
	kept := h.write("weir/state/workloads/small-server/home/kept", "")
	junk := h.write("junk.wasm", "no module")
	for _, no := range [][]string{{"-v", "/:/x", "--", small}, {"--permission-profile", h.write("profile.json", `{"read": ["/none-such"]}`), "--", small}, {"--writable", "/proc/x", "--", small}, {junk}, {"-f", "-v", "/:/x", "--", small}} {
		h.fails(9, "", append([]string{"run", "--replace", "--name", "small-server"}, no...)...)
	}
	h.asks(first, "three")
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}

	// Secrets, files of variables, volumes and groups.
	h.must("secret", "setup")
	if _, said, code := h.weirWith("tok\x00\n", "secret", "set", "github"); code != 1 || !strings.Contains(said, "NUL byte") {
		t.Errorf("a NUL is kept: exit code %d, %s", code, said)
	}
	if _, said, code := h.weirWith("tok-1234567\n", "secret", "set", "github"); code != 0 {
		t.Fatal(said)
	}
	h.must("group", "create", "work")
	full := []string{
		"run", "--name", "full", "--group", "work", "--label", "team=a", "--env", "A=flag", "--env-file", h.write("env", "A=file\nB='of a file'\n"),
		"--secret", "github,target=GITHUB", "--volume", h.write("data.txt", "data") + ":/data.txt:ro", "--session-ttl", "90s", "--", small,
	}
	url := h.must(full...)
	h.asks(url, "flag", "env=A")
	h.asks(url, "of a file", "env=B")
	h.asks(url, "tok-1234567", "env=GITHUB")
	h.asks(url, "data<nil>", "file=/data.txt")
	if one := h.listed("full"); one.Group != "work" || one.Labels["team"] != "a" || strings.Contains(fmt.Sprintf("%+v", one), "tok-1234567") {
		t.Errorf("%+v", one)
	}
	h.fails(6, "nowhere", "run", "--group", "nowhere", "--", small)
	h.fails(6, "none-such", "run", "--secret", "none-such,target=A", "--", small)
	h.fails(44, "weir logs", "run", "--name", "ends", "--wait", "20s", "--", "/bin/false")
	h.fails(44, `speaks revision "1999-01-01"`, "run", "--name", "old", "--wait", "20s", "--", "/bin/sh", "-c", // which does not end by itself
		`while read -r l; do id=${l#*\"id\":}; printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"1999-01-01"}}\n' "${id%%,*}"; done`)

	// Exported, removed, run again and exported: the same bytes, and the same server.
	file := filepath.Join(h.home, "full.yaml")
	h.must("export", "full", file)
	text, err := os.ReadFile(file)
	if err != nil || bytes.Contains(text, []byte("tok-1234567")) {
		t.Fatalf("%v\n%s", err, text)
	}
	h.must("rm", "full")
	if again := h.must("run", "--from-config", file); again != url {
		t.Errorf("%s, was %s", again, url)
	}
	h.asks(url, "tok-1234567", "env=GITHUB")
	if out, said, code := h.weir("export", "full"); code != 0 || out != string(text) {
		t.Errorf("exit code %d, %s\n%s\nwas\n%s", code, said, out, text)
	}

	// Nothing happens by --dry-run.
	if last := h.must("run", "--dry-run", "--name", "dry", "--", small); strings.HasPrefix(last, "http") {
		t.Errorf("it ran: %s", last)
	}
	h.fails(6, "dry", "inspect", "dry")
}

// A server elsewhere that is none says so with what to do, and one that is gone is told of by the
// status, and by the log from the first call on, before it counts as away.
func TestRunElsewhereThatIsNone(t *testing.T) {
	h := newHousehold(t).managed()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>hello</html>") }))
	defer page.Close()
	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()
	signed := httptest.NewUnstartedServer(http.NotFoundHandler())
	signed.Config.ErrorLog = log.New(io.Discard, "", 0)
	signed.StartTLS()
	defer signed.Close()
	h.fails(44, "the path is /mcp", "run", "--name", "page", page.URL+"/x")
	h.fails(44, "the path is /mcp", "run", "--name", "missing", missing.URL+"/x")
	h.fails(44, "--weir-ca-bundle FILE", "run", "--name", "signed", signed.URL+"/x")
	if one := h.listed("page"); !strings.Contains(one.Next, "the path is /mcp") {
		t.Errorf("its status says %q", one.Next)
	}

	back := edgetest.NewServer(t, edgetest.Legacy)
	url := h.must("run", "--name", "rem", back.URL)
	h.must("tools", url)
	back.Close()
	if _, said, code := h.weir("call", url, "echo", "message=x"); code == 0 {
		t.Errorf("it answers: %s", said)
	}
	if out, _, _ := h.weir("logs", "rem", "--proxy"); !strings.Contains(out, "backend unavailable") {
		t.Errorf("the log of a call that failed: %s", out)
	}
	edgetest.Until(t, "the status says why, though it runs", func() bool {
		one := h.listed("rem").Status
		return one.Status == workload.Running && one.Reason != ""
	})
}

// Of a variable that a command has, and its manager has not, it is said whose environment lacks it.
func TestRunSecretOfTheEnvironment(t *testing.T) {
	h := newHousehold(t)
	if err := os.MkdirAll(filepath.Join(h.home, "weir", "config"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.write("weir/config/workloads.yaml", "secrets: {provider: environment}\n")
	h.managed()
	h.env = append(h.env, "WEIR_SECRET_API=x")
	h.fails(6, "in the environment of the manager, which was started without it, as WEIR_SECRET_API: `weir secret setup`", "run", "--secret", "API,target=X", "--", "/bin/sleep", "60")
}
