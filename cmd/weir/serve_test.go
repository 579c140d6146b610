package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// process is a running weir and what it says on standard error.
type process struct {
	*exec.Cmd
	t     *testing.T
	lines *bufio.Scanner
	said  []string
}

// run starts weir with arguments and no environment of its own.
func run(t *testing.T, args ...string) *process {
	t.Helper()
	return runWith(t, nil, args...)
}

// runWith is run with variables.
func runWith(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "weir", args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: cmd, t: t, lines: bufio.NewScanner(stderr)}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return p
}

// until reads what the process says up to a line with a text in it.
func (p *process) until(text string) string {
	p.t.Helper()
	for p.lines.Scan() {
		p.said = append(p.said, p.lines.Text())
		if strings.Contains(p.lines.Text(), text) {
			return p.lines.Text()
		}
	}
	p.t.Fatalf("it never said %q, only:\n%s", text, strings.Join(p.said, "\n"))
	return ""
}

// end reads the rest and returns the exit code.
func (p *process) end() int {
	p.t.Helper()
	for p.lines.Scan() {
		p.said = append(p.said, p.lines.Text())
	}
	var failed *exec.ExitError
	if err := p.Wait(); err != nil && !errors.As(err, &failed) {
		p.t.Fatal(err)
	}
	return p.ProcessState.ExitCode()
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// demoProcess starts the demo and returns the URL that it shows.
func demoProcess(t *testing.T, args ...string) (*process, string) {
	t.Helper()
	p := run(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)...)
	_, url, _ := strings.Cut(p.until("Weir serves its demo on "), " on ")
	p.until(`"serving"`)
	return p, url
}

// Every line that the greeting offers for pasting works when pasted.
func TestGreetingCanBePasted(t *testing.T) {
	p, url := demoProcess(t)
	// The log is on the same stream, and may begin before the greeting does.
	shown := strings.Join(slices.DeleteFunc(slices.Clone(p.said), func(line string) bool { return strings.HasPrefix(line, `{"time"`) }), "\n")
	edge := strings.ReplaceAll(shown, " \\\n", " ")
	wants := map[string]string{
		"weir tools":      "countdown",
		"weir call":       "hello",
		"server/discover": `"supportedVersions":["2026-07-28"`,
		"tools/call":      `"text":"hello"`,
	}
	for _, line := range strings.Split(edge, "\n") {
		line = strings.TrimSpace(line)
		for key, want := range wants {
			if !strings.Contains(line, key) || strings.Contains(line, "serve") && !strings.HasPrefix(line, "curl") {
				continue
			}
			delete(wants, key)
			t.Run(key, func(t *testing.T) {
				if strings.HasPrefix(line, "curl") {
					_, err := exec.LookPath("curl")
					edgetest.Need(t, err == nil, "curl is not installed")
				}
				out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
				if err != nil || !strings.Contains(string(out), want) {
					t.Errorf("%s\nprints %s, %v; want %s in it", line, out, err, want)
				}
			})
		}
	}
	if len(wants) > 0 {
		t.Errorf("the greeting lacks %v:\n%s", wants, shown)
	}
	var client struct {
		MCPServers map[string]struct{ Type, URL string }
	}
	at := strings.Index(shown, `{"mcpServers"`)
	if at < 0 {
		t.Fatalf("no configuration of a client in:\n%s", shown)
	}
	if err := json.NewDecoder(strings.NewReader(shown[at:])).Decode(&client); err != nil || client.MCPServers["weir"].URL != url || client.MCPServers["weir"].Type != "http" {
		t.Errorf("configuration %+v, %v; want the URL %s", client, err, url)
	}
	p.signal(syscall.SIGTERM)
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestSignals(t *testing.T) {
	for _, test := range []struct {
		signal os.Signal
		code   int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}} {
		t.Run(test.signal.String(), func(t *testing.T) {
			// One signal: the call in flight is answered.
			p, url := demoProcess(t)
			call := run(t, "call", url, "countdown", "--args", `{"from":3}`)
			call.until("1/3")
			p.signal(test.signal)
			p.until("draining")
			if code := call.end(); code != 0 {
				t.Errorf("the call ends with %d: %q", code, call.said)
			}
			if code := p.end(); code != 0 {
				t.Errorf("exit code %d after one signal", code)
			}

			// Two: it is not.
			p, url = demoProcess(t)
			call = run(t, "call", url, "countdown", "--args", `{"from":100}`)
			call.until("1/100")
			p.signal(test.signal)
			p.until("draining")
			p.signal(test.signal)
			if code := p.end(); code != test.code {
				t.Errorf("exit code %d after two signals, want %d", code, test.code)
			}
			if code := call.end(); code != cli.ExitConnection {
				t.Errorf("the call ends with %d: %q", code, call.said)
			}
		})
	}
}

func TestDrainTimeout(t *testing.T) {
	p, url := demoProcess(t, "--drain-timeout", "10ms")
	call := run(t, "call", url, "countdown", "--args", `{"from":100}`)
	call.until("1/100")
	p.signal(syscall.SIGTERM)
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if code := call.end(); code == 0 {
		t.Errorf("the call that was cut ends well: %q", call.said)
	}
}

func TestInterruptedCall(t *testing.T) {
	_, url := demoProcess(t)
	for _, c := range []struct {
		signal syscall.Signal
		code   int
		said   string
	}{{syscall.SIGINT, 130, "weir call: interrupted"}, {syscall.SIGTERM, 143, "weir call: interrupted by SIGTERM"}} {
		call := run(t, "call", url, "countdown", "--args", `{"from":100}`)
		call.until("1/100")
		call.signal(c.signal)
		if code := call.end(); code != c.code || call.said[len(call.said)-1] != c.said {
			t.Errorf("%s: exit code %d, %q", c.signal, code, call.said)
		}
	}
}

// With -c nothing but the log is on standard error, and that is JSON unless
// it is a terminal.
func TestServesAFile(t *testing.T) {
	_, backend := demoProcess(t)
	file := t.TempDir() + "/weir.yaml"
	manifest := `
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: g}
---
apiVersion: weir.dev/v1beta1
kind: MCPServerEntry
metadata: {name: a}
spec: {groupRef: {name: g}, remoteUrl: "` + backend + `", transport: streamable-http, allowPrivateEndpoint: true}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: main}
spec:
  groupRef: {name: g}
  incomingAuth: {type: anonymous}
  serviceType: ClusterIP
  config: {aggregation: {conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [a]}}}
`
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	p := run(t, "serve", "-c", file, "--listen", "127.0.0.1:0", "--admin-listen", "")
	var serving struct{ Msg, Address string }
	if err := json.Unmarshal([]byte(p.until(`"serving"`)), &serving); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "weir", "call", "http://"+serving.Address+"/mcp", "echo", "--args", `{"text":"hi"}`).CombinedOutput()
	if err != nil || string(out) != "hi\n" {
		t.Errorf("the call prints %s, %v", out, err)
	}
	p.signal(syscall.SIGTERM)
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	notes := 0
	for _, line := range p.said {
		var entry struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Time == "" || entry.Level == "" {
			t.Errorf("%q is no line of the log: %v", line, err)
		}
		if strings.Contains(entry.Msg, "only in a cluster: ") {
			notes++
		}
	}
	if notes != 1 {
		t.Errorf("%d notes about the cluster, want 1:\n%s", notes, strings.Join(p.said, "\n"))
	}
}

func TestDraining(t *testing.T) {
	signals, codes := make(chan os.Signal), make(chan int, 1)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	ctx, stop := draining(t.Context(), log, time.Second, signals, func(code int) { codes <- code })
	if ctx.Err() != nil {
		t.Error("drains unasked")
	}
	signals <- syscall.SIGTERM
	<-ctx.Done()
	signals <- syscall.SIGINT
	if code := <-codes; code != 130 {
		t.Errorf("exit code %d", code)
	}
	stop()

	// Who reads the log, and has stopped to, does not hold up the draining.
	r, w := io.Pipe()
	ctx, stop = draining(t.Context(), slog.New(slog.NewTextHandler(w, nil)), time.Second, signals, nil)
	signals <- syscall.SIGTERM
	edgetest.Receive(t, ctx.Done(), "the draining")
	r.Close()
	stop()

	ctx, stop = draining(t.Context(), log, time.Second, signals, nil)
	stop()
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.Error("the context outlives stop")
	}
}

func TestLogFormatAndLevel(t *testing.T) {
	for _, test := range []struct{ format, level, want string }{
		{"", "info", `"level":"WARN"`}, // no terminal
		{"json", "info", `"level":"WARN"`},
		{"text", "info", "level=WARN"},
		{"text", "error", ""},
	} {
		var out strings.Builder
		newLog(&out, serve.Settings{LogFormat: test.format, LogLevel: test.level}).Warn("w")
		if got := out.String(); !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%+v writes %q", test, got)
		}
	}
}
