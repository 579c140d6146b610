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
	"time"

	"github.com/weir-edge/weir/edge/status"
)

func lookWith(at time.Time, backends ...status.Backend) *look {
	return &look{at: at, servers: []status.Server{{Name: "main", Phase: "Ready", DiscoveredBackends: backends}}}
}

func TestPaces(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, test := range []struct {
		name        string
		before, now status.Backend
		after       time.Duration
		want        []string // of CALLS/S and RECENT
	}{
		{"steady", status.Backend{Calls: 100, Millis: 2}, status.Backend{Calls: 150, Millis: 2}, time.Second, []string{"50.0", "2ms"}},
		{"slower of late", status.Backend{Calls: 100, Millis: 1}, status.Backend{Calls: 200, Millis: 6}, 2 * time.Second, []string{"50.0", "11ms"}},
		{"idle", status.Backend{Calls: 100, Millis: 2}, status.Backend{Calls: 100, Millis: 2}, time.Second, []string{"0", ""}},
		{"the first calls", status.Backend{}, status.Backend{Calls: 4, Millis: 2.5}, 2 * time.Second, []string{"2.0", "2.5ms"}},
		{"few of very many", status.Backend{Calls: 1e6, Millis: 1}, status.Backend{Calls: 1e6 + 10, Millis: 1}, time.Second, []string{"10.0", "~1ms"}},
		{"less than the counters can say", status.Backend{Calls: 1000, Millis: 1}, status.Backend{Calls: 1001, Millis: 0.9}, time.Second, []string{"1.0", "~0s"}},
		{"started again", status.Backend{Calls: 100, Millis: 2}, status.Backend{Calls: 10, Millis: 2}, time.Second, []string{"", ""}},
		{"the same moment", status.Backend{Calls: 100, Millis: 2}, status.Backend{Calls: 100, Millis: 2}, 0, []string{"", ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.before.Name, test.now.Name = "b", "b"
			since := paces(lookWith(start, test.before), lookWith(start.Add(test.after), test.now))
			got := recent(since, named{"main", "b"})
			if strings.Join(got, "|") != strings.Join(test.want, "|") {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	since := paces(lookWith(start), lookWith(start.Add(time.Second), status.Backend{Name: "new", Calls: 3}))
	if got := recent(since, named{"main", "new"}); got[0] != "" {
		t.Errorf("a backend that was not there before has a pace: %q", got)
	}
}

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

func TestReadStatus(t *testing.T) {
	for text, want := range map[string]int{
		`{"name":"a","phase":"Ready"}`:                                             1,
		`{"servers":[{"name":"a","phase":"Ready"},{"name":"b","phase":"Failed"}]}`: 2,
		`{"servers":[]}`:            0,
		`{"servers":[{}]}`:          0,
		`{}`:                        0,
		`[]`:                        0,
		`{"name":1,"phase":2}`:      0,
		`<html>`:                    0,
		`{"name":"a","phase":"R"}x`: 0,
	} {
		servers, err := readStatus([]byte(text))
		if len(servers) != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %d servers, %v; want %d", text, len(servers), err, want)
		}
	}
}

// A frame covers what was there before, and no more than the terminal.
func TestFrame(t *testing.T) {
	for _, test := range []struct {
		text          string
		width, height int
		want          string
	}{
		{"a\nbc\n", 80, 24, "\x1b[Ha\x1b[K\r\nbc\x1b[K\x1b[J"},
		{"abcdef\n", 5, 24, "\x1b[Habc…\x1b[K\x1b[J"},
		{"äöü\n", 4, 24, "\x1b[Häöü\x1b[K\x1b[J"},
		{"a\nb\nc\n", 80, 2, "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J"},
		{"abc\n", 1, 1, "\x1b[H…\x1b[K\x1b[J"},
	} {
		if got := frame(test.text, test.width, test.height); got != test.want {
			t.Errorf("%q in %dx%d is %q, want %q", test.text, test.width, test.height, got, test.want)
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
