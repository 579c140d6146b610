package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

func TestStatusURL(t *testing.T) {
	for _, test := range []struct{ admin, url, want string }{
		{"127.0.0.1:4484", "", "http://127.0.0.1:4484/status"},
		{":4484", "", "http://127.0.0.1:4484/status"},
		{"[::1]:4484", "", "http://[::1]:4484/status"},
		{"", "https://mcp.example.com", "https://mcp.example.com/status"},
		{"", "https://mcp.example.com/", "https://mcp.example.com/status"},
		{"", "https://mcp.example.com/mcp", "https://mcp.example.com/status"},
		{"", "https://mcp.example.com/servers/a/mcp", "https://mcp.example.com/status"},
		{"", "https://mcp.example.com/edge/servers/a/mcp", "https://mcp.example.com/edge/status"},
		{"", "https://mcp.example.com/edge/status", "https://mcp.example.com/edge/status"},
	} {
		var args []string
		if test.url != "" {
			args = append(args, test.url)
		}
		if got, err := statusURL(test.admin, args); err != nil || got != test.want {
			t.Errorf("%q %q is %q, %v; want %q", test.admin, test.url, got, err, test.want)
		}
	}
}

// watched starts weir status --watch at a server of its own and returns the
// lines that it prints, and what it says on standard error, once it has ended.
func watched(t *testing.T, h http.HandlerFunc, args ...string) (*exec.Cmd, *bufio.Scanner, *strings.Builder) {
	t.Helper()
	edge := httptest.NewServer(h)
	t.Cleanup(edge.Close)
	cmd := exec.CommandContext(t.Context(), "weir", append([]string{"status", "--watch", "--interval", "100ms", "--admin", edge.Listener.Addr().String()}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	said := new(strings.Builder)
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out), said
}

// Without a terminal there is a block for each look, and SIGINT ends it well.
// An edge that is away for a while is waited for.
func TestWatchStatus(t *testing.T) {
	var looks atomic.Int64
	cmd, lines, said := watched(t, func(w http.ResponseWriter, _ *http.Request) {
		n := looks.Add(1)
		if n == 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"name":"main","phase":"Ready","discoveredBackends":[{"name":"b","status":"ready","calls":%d,"latencyMillis":2}]}`, n*100)
	})
	var columns []string
	var rates []string
	for len(rates) < 3 && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "BACKEND") {
			columns = strings.Fields(lines.Text())
		}
		if fields := strings.Fields(lines.Text()); len(fields) == len(columns)-1 && fields[0] == "b" { // without a message
			rates = append(rates, fields[10]+" "+fields[11])
		}
	}
	if strings.Join(columns, " ") != "BACKEND STATUS CIRCUIT ERA TOOLS PROMPTS RESOURCES CALLS FAILED LATENCY CALLS/S RECENT CHECKED MESSAGE" {
		t.Errorf("columns %q", columns)
	}
	if len(rates) != 3 || rates[0] != "- -" || !strings.HasSuffix(rates[1], " 2ms") || !strings.HasSuffix(rates[2], " 2ms") {
		t.Errorf("calls a second and latency: %q", rates)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		// What is on its way is read to its end.
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGINT: %v", err)
	}
	if !strings.Contains(said.String(), "/status: answered 503 Service Unavailable") || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("it says %q", said)
	}
}

// With --json there is one line for each look, and SIGTERM ends it well, too.
func TestWatchStatusJSON(t *testing.T) {
	cmd, lines, said := watched(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "{\n  \"name\": \"main\",\n  \"phase\": \"Ready\"\n}\n")
	}, "--json")
	for range 2 {
		if !lines.Scan() || lines.Text() != `{"name":"main","phase":"Ready"}` || !json.Valid(lines.Bytes()) {
			t.Fatalf("%q, %v", lines.Text(), lines.Err())
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		// What is on its way is read to its end.
	}
	if err := cmd.Wait(); err != nil || said.Len() > 0 {
		t.Errorf("after SIGTERM: %v, %q", err, said)
	}
}

// The status of a real edge is read whole.
func TestStatusOfAnEdge(t *testing.T) {
	p, url := demoProcess(t)
	if out, err := exec.CommandContext(t.Context(), "weir", "call", url, "echo", "--args", `{"text":"hello"}`).CombinedOutput(); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	var served struct{ Admin string }
	if err := json.Unmarshal([]byte(p.said[len(p.said)-1]), &served); err != nil || served.Admin == "" {
		t.Fatalf("no admin address in %q, %v", p.said[len(p.said)-1], err)
	}
	out, err := exec.CommandContext(t.Context(), "weir", "status", "--admin", served.Admin, "--exit-code").CombinedOutput()
	for _, want := range []string{": Ready (1 of 1 backend is routable", url, "ready", "modern", "0 in flight"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("no %q in %s, %v", want, out, err)
		}
	}
	rows := strings.Split(string(out), "\n")
	if calls, _, _ := strings.Cut(rows[2], " "); calls == "0" {
		t.Errorf("no call is counted: %s", out)
	}
	// The door of this machine shows it, too.
	if out, err := exec.CommandContext(t.Context(), "weir", "status", url).CombinedOutput(); err != nil || !strings.Contains(string(out), "Ready") {
		t.Errorf("%s, %v", out, err)
	}
}
