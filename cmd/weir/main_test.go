package main

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/edge/demo"
	"github.com/weir-edge/weir/edge/edgetest/port"
	"github.com/weir-edge/weir/edge/mcp"
)

// In scripts, and in tests that run it with exec.Command, "weir" is this
// package's main, "small-server" is an MCP server, "small-http" one over HTTP, and "visitor" a
// browser.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"weir": main, "small-server": smallServer, "small-http": smallHTTP, "visitor": visitor})
}

// The scripts are the story of each command, failures and exit codes included.
// They find the demo backend at $DEMO, a server with odd answers at $ODD, at
// $LOCKED with a token and at $SECURE with a certificate that $CA signed, and
// addresses where nobody listens ($NOBODY) and somebody else does ($TAKEN). A
// second demo is at $OTHER, a web page at $PAGE, what answers like no MCP server
// at $STRANGE/KIND, and the status of an edge at $ADMIN (HOST:PORT).
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "fill": fill},
		Setup: func(e *testscript.Env) error {
			backend, err := demo.Start("")
			if err != nil {
				return err
			}
			e.Defer(backend.Close)
			odd := httptest.NewServer(http.HandlerFunc(oddServer))
			e.Defer(odd.Close)
			nobody, err := port.Free()
			if err != nil {
				return err
			}
			taken, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			e.Defer(func() { _ = taken.Close() })
			secure := httptest.NewUnstartedServer(http.HandlerFunc(oddServer))
			secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it will not like the client that does not trust it
			secure.StartTLS()
			e.Defer(secure.Close)
			ca := filepath.Join(e.WorkDir, "ca.pem")
			block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
			if err := os.WriteFile(ca, block, 0o600); err != nil {
				return err
			}
			other, err := demo.Start("")
			if err != nil {
				return err
			}
			e.Defer(other.Close)
			strange := httptest.NewServer(http.HandlerFunc(strangeServer))
			e.Defer(strange.Close)
			admin := httptest.NewServer(http.HandlerFunc(adminDoor))
			e.Defer(admin.Close)
			for _, kept := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOTOOLCHAIN"} { // for what builds guests
				value, err := exec.Command("go", "env", kept).Output()
				if err != nil {
					return err
				}
				e.Setenv(kept, strings.TrimSpace(string(value)))
			}
			e.Setenv("OTHER", other.URL())
			e.Setenv("STRANGE", strange.URL)
			e.Setenv("PAGE", strange.URL+"/page")
			e.Setenv("ADMIN", admin.Listener.Addr().String())
			e.Setenv("SECURE", secure.URL+"/mcp")
			e.Setenv("CA", ca)
			e.Setenv("LOCKED", odd.URL+"/locked")
			e.Setenv("DEMO", backend.URL())
			e.Setenv("ODD", odd.URL+"/mcp")
			e.Setenv("NOBODY", "http://"+nobody+"/mcp")
			e.Setenv("TAKEN", taken.Addr().String())
			return nil
		},
	})
}

// exits runs a command and wants a certain exit code: exits CODE COMMAND...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG]...")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var failed *exec.ExitError
		if !errors.As(err, &failed) {
			ts.Fatalf("%v", err)
		}
		got = failed.ExitCode()
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// fill writes files anew with the variables in them replaced: fill FILE...
func fill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: fill FILE...")
	}
	for _, name := range args {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}

// strangeServer is a web page, a text, and no MCP server.
func strangeServer(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/page":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!doctype html><html><head><title>Welcome\x1b[31m</title></head><body>hello</body></html>")
	case "/text/status":
		_, _ = io.WriteString(w, "hello")
	default:
		http.NotFound(w, r)
	}
}

// adminDoor shows the status of an edge with two servers, and nothing else.
func adminDoor(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/status" {
		http.NotFound(w, r)
		return
	}
	if r.Header.Get("Authorization") == "Bearer sesame" {
		_, _ = io.WriteString(w, `{"name":"one","phase":"Ready","url":"http://127.0.0.1:1/mcp","version":"v1"}`+"\n")
		return
	}
	_, _ = io.WriteString(w, `{"servers":[
{"name":"a","phase":"Degraded","message":"1 of 2 backends is routable","url":"http://127.0.0.1:1/servers/a/mcp","backendCount":1,
 "discoveredBackends":[
  {"name":"good","url":"http://127.0.0.1:2/mcp","status":"ready","lastHealthCheck":"2020-01-02T03:04:05Z","circuitBreakerState":"closed","era":"modern",
   "tools":5,"prompts":1,"resources":2,"resourceTemplates":3,"calls":120,"failed":2,"latencyMillis":1.5},
  {"name":"bad","url":"http://127.0.0.1:3/mcp","status":"unavailable","message":"dial: nobody\u001b[31m is there","tools":0,"prompts":0,"resources":0,"calls":0,"failed":0,"latencyMillis":0}],
 "withheld":["conflict: tool good.echo"],"sessions":1,"streams":2,"inflight":3,"parked":4,"dropped":5,"calls":120,"reloads":1,
 "reload":"weir.yaml:1: wrong\nweir.yaml:2: wrong, too","version":"v1"},
{"name":"b","phase":"Ready","url":"http://127.0.0.1:1/servers/b/mcp","version":"v1"}]}`+"\n")
}

// oddServer is a modern server whose answers a typed client would not survive,
// and that shows what it is sent.
func oddServer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	m, err := mcp.Decode(body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	answer := func(result string) { _, _ = w.Write(mcp.AppendResult(nil, m.IDText(), []byte(result))) }
	if r.URL.Path == "/locked" && r.Header.Get("Authorization") != "Bearer sesame" {
		w.Header().Set("WWW-Authenticate", `Bearer realm="odd"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch m.Method {
	case "server/discover":
		answer(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
	case "tools/list":
		if !m.Get("cursor").OK() {
			answer(`{"tools":[{"name":"hologram","description":"First line.\nSecond line.","x":12345678901234567890},` +
				`{"name":"unusable","inputSchema":{"type":"object","properties":{"n":{"type":"number","x-mcp-header":"N"}}}}],"nextCursor":"2"}`)
			return
		}
		answer(`{"tools":[{"name":"headers","description":"\u001b[31mred"}]}`)
	case "tools/call":
		switch m.Text("name") {
		case "hologram":
			answer(`{ "content":[{"type":"hologram","n":12345678901234567890}, {"type":"image","mimeType":"image/png","data":"aGFsbG8="},` +
				`{"type":"resource_link","uri":"odd://x","name":"X"},{"type":"resource","resource":{"uri":"odd://y","text":"inside"}}],"z":1.0 }`)
		case "headers":
			answer(fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, mcp.Quote(r.Header.Get("X-Team")+" "+r.Header.Get("Authorization"))))
		case "scoped":
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="odd:write"`)
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write(mcp.AppendError(nil, m.IDText(), http.StatusForbidden, "not you", nil))
		case "broken":
			answer(`{"content":[{"type":"text","text":"the fuse blew"}],"isError":true}`)
		default:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write(mcp.AppendError(nil, m.IDText(), mcp.CodeInvalidParams, "unknown tool", nil))
		}
	}
}

// each calls f with every command that is not hidden.
func each(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			each(c, f)
		}
	}
}

func testApp() *app {
	return &app{in: strings.NewReader(""), out: io.Discard, err: io.Discard, exit: os.Exit}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	each(testApp().command(), func(cmd *cobra.Command) {
		t.Run(cmd.CommandPath(), func(t *testing.T) {
			if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || len(cmd.Long) < 2*len(cmd.Short) {
				t.Errorf("short %q, long %q", cmd.Short, cmd.Long)
			}
			for _, line := range strings.Split(cmd.Long+"\n"+cmd.Example, "\n") {
				if len([]rune(line)) > 100 {
					t.Errorf("a line of %d characters: %s", len([]rune(line)), line)
				}
			}
			examples := strings.Split(cmd.Example, "\n")
			if len(examples) < 2 {
				t.Errorf("%d examples", len(examples))
			}
			for _, line := range examples {
				t.Run(line, func(t *testing.T) { runnable(t, line) })
			}
		})
	})
}

// runnable checks that every weir command of an example has a command, flags
// and arguments that there are. Files that it names need not be.
func runnable(t *testing.T, line string) {
	args, err := exec.Command("sh", "-c", `weir() { printf '%s\n' "$#" "$@"; }; true; `+redirected(line)).Output()
	if err != nil {
		t.Fatalf("the shell does not like it: %v", err)
	}
	words := strings.Split(strings.TrimSuffix(string(args), "\n"), "\n")
	for len(words) > 0 {
		n, err := strconv.Atoi(words[0])
		if err != nil || n > len(words)-1 {
			t.Fatalf("not a weir command: %q", words)
		}
		cmd, rest, err := testApp().command().Find(words[1 : n+1])
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Fatal(err)
		}
		if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
			t.Fatal(err)
		}
		words = words[n+1:]
	}
}

// redirected makes the output of an example appear where the test reads it.
func redirected(line string) string {
	for _, elsewhere := range []string{" > ", " < "} {
		line, _, _ = strings.Cut(line, elsewhere)
	}
	if strings.HasPrefix(strings.TrimSpace(line), "weir ") {
		line, _, _ = strings.Cut(line, " | ")
	}
	if inner, ok := strings.CutPrefix(strings.TrimSpace(line), "source <("); ok {
		return strings.TrimSuffix(inner, ")")
	}
	if inner, ok := strings.CutPrefix(strings.TrimSpace(line), "("); ok { // a list, whose end may have gone with where it writes to
		return strings.TrimSuffix(inner, ")")
	}
	return line
}

func TestCompletion(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"se", "search secret serve settings"},
		{"serve --log-level ", "debug info warn error"},
		{"serve --log-format ", "text json"},
		{"settings --max-bo", "--max-body"},
		{"call --era ", "auto legacy modern"},
		{"completion ", "bash zsh fish powershell"},
		{"serve --listen ", ""},
		{"tools ", ""},
		{"schema MCPServ", "MCPServer MCPServerEntry"},
		{"serve --ppr", ""},
		{"st", "start status stdio stop"},
		{"re", "read registry resources restart"},
		{"pro", "prompt prompts"},
		{"read --er", "--era"},
		{"call echo --era ", "auto legacy modern"},
		{"prompt ", ""},
		{"status --in", "--interval"},
		{"status --admin ", ""},
		{"doctor --log-level ", "debug info warn error"},
		{"plugin ", "bench build inspect new pack test"},
		{"plugin new --language ", "go assemblyscript rust c starlark"},
	} {
		t.Run(test.line, func(t *testing.T) {
			a := testApp()
			var out strings.Builder
			a.out = &out
			if code := a.run(append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(test.line, " ")...)); code != 0 {
				t.Fatalf("exit code %d", code)
			}
			words := strings.Fields(out.String())
			got := strings.Join(words[:len(words)-1], " ") // the last is the directive
			if got != test.want {
				t.Errorf("completes to %q, want %q", got, test.want)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	weir := filepath.Join(t.TempDir(), "weir")
	made := exec.Command("go", "build", "-ldflags", "-X main.version=v9.8.7", "-o", weir, ".")
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(weir, "version", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var b build
	if err := json.Unmarshal(out, &b); err != nil || b.Version != "v9.8.7" || !strings.HasPrefix(b.Go, "go1.") || b.OS == "" || b.Arch == "" {
		t.Errorf("%s, %v", out, err)
	}
}
