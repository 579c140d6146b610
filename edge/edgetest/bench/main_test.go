package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestMain lets the test program be what the benchmark starts: its own helpers
// and a stand-in for the edge.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "backend", "bare", "static":
			main()
			os.Exit(0)
		case "serve":
			if err := standIn(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// fault is the variable that makes the stand-in do something wrong.
const fault = "BENCH_TEST_FAULT"

// standIn is the bare proxy with the command line, the manifest and the pages
// of an edge. It knows nothing of eras and answers GET by itself.
func standIn(args []string) error {
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	file := f.String("c", "", "")
	listen := f.String("listen", "", "")
	adminListen := f.String("admin-listen", "", "")
	profile := f.Bool("pprof", false, "")
	f.Int("max-sessions", 0, "")
	f.Int("max-sessions-per-principal", 0, "")
	f.Bool("local-rate-limits", false, "")
	sts := f.String("sts-endpoint", "", "")
	if err := f.Parse(args); err != nil {
		return err
	}
	text, err := os.ReadFile(*file)
	if err != nil {
		return err
	}
	found := regexp.MustCompile(`url: http://([^/]+)/mcp,`).FindSubmatch(text)
	if found == nil {
		return fmt.Errorf("no backend in %s", text)
	}
	if *profile {
		pages := http.NewServeMux()
		pages.HandleFunc("/debug/pprof/", pprof.Index)
		pages.HandleFunc("/debug/pprof/profile", pprof.Profile)
		go func() { _ = http.ListenAndServe(*adminListen, pages) }() // ends with the process
	}
	proxy := newBare(string(found[1]))
	prefix := regexp.MustCompile(`backend-\d+_`)
	handler := proxy.Handler
	pass := func(ctx *fasthttp.RequestCtx) {
		if name := ctx.Request.Header.Peek("Mcp-Name"); len(name) > 0 {
			ctx.Request.Header.SetBytesV("Mcp-Name", prefix.ReplaceAll(name, nil))
		}
		ctx.Request.SetBody(prefix.ReplaceAll(ctx.PostBody(), nil))
		handler(ctx)
	}
	how := os.Getenv(fault)
	exchange := exchangeOf(text, *sts, how)
	proxy.Handler = func(ctx *fasthttp.RequestCtx) {
		if err := exchange(string(ctx.Request.Header.Peek("Authorization"))); err != nil {
			ctx.Error(err.Error(), fasthttp.StatusBadGateway)
			return
		}
		switch {
		case string(ctx.Path()) == "/readyz":
			if how == "never ready" {
				ctx.SetStatusCode(fasthttp.StatusServiceUnavailable)
			}
		case ctx.IsGet():
			ctx.HijackSetNoResponse(true)
			ctx.Hijack(func(c net.Conn) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
				_, _ = io.Copy(io.Discard, c)
			})
		case how == "twice" && bytes.Contains(ctx.PostBody(), []byte("tools/call")):
			pass(ctx)
			pass(ctx)
		case how == "a connection a call":
			ctx.Request.SetConnectionClose()
			pass(ctx)
			ctx.Response.Header.ResetConnectionClose()
		case how == "wrong answers" && bytes.Contains(ctx.PostBody(), []byte("tools/call")):
			ctx.SetContentType("application/json")
			ctx.SetBodyString(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		default:
			pass(ctx)
		}
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	return proxy.Serve(ln)
}

// exchangeOf is how the stand-in exchanges the tokens of its clients, once each, where
// its manifest says so.
func exchangeOf(manifest []byte, sts, how string) func(token string) error {
	i := slices.IndexFunc(exchanging, func(s strategy) bool {
		return bytes.Contains(manifest, []byte(`"type":"`+string(s.config("").Type)+`"`))
	})
	if i < 0 || how == "no exchange" {
		return func(string) error { return nil }
	}
	at := sts
	if found := regexp.MustCompile(`"tokenUrl":"([^"]+)"`).FindSubmatch(manifest); found != nil {
		at = string(found[1])
	}
	var mu sync.Mutex
	known := map[string]bool{}
	return func(token string) error {
		mu.Lock()
		defer mu.Unlock()
		if token == "" || known[token] && how != "an exchange a call" {
			return nil
		}
		known[token] = true
		answer, err := http.PostForm(at, exchanging[i].question(token))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("the service answers %d", answer.StatusCode)
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return err
	}
}

// runBench runs one command line with the stand-in for the edge, and makes sure
// that no process is left behind.
func runBench(t *testing.T, ctx context.Context, stderr io.Writer, args ...string) (stdout string, err error) {
	t.Helper()
	edgetest.Need(t, runtime.GOOS == "linux", "there is no /proc but on Linux")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A program with the race detector waits a second before it ends, and a
	// run starts some fifty.
	t.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	// A run of all cases would start this program in a network of its own: these tests once more,
	// from the first one on, in place of this process and of all that they have found so far.
	t.Setenv(ownNetwork, "1")
	var out bytes.Buffer
	err = command(ctx, append([]string{"--weir", program}, args...), nil, &out, stderr)
	left, globErr := filepath.Glob("/proc/self/task/*/children")
	if globErr != nil || len(left) == 0 {
		t.Fatalf("children: %v, %v", left, globErr)
	}
	for _, name := range left {
		if text, _ := os.ReadFile(name); len(bytes.TrimSpace(text)) != 0 {
			t.Errorf("processes are left behind: %s", text)
		}
	}
	return out.String(), err
}

func TestWholeRun(t *testing.T) {
	_, lookErr := exec.LookPath("go")
	edgetest.Need(t, lookErr == nil, "the profile is read with go tool pprof")
	page := filepath.Join(t.TempDir(), "BENCHMARKS.md")
	profile := filepath.Join(t.TempDir(), "cpu.pprof")
	out, err := runBench(t, t.Context(), t.Output(), "--case", "p1,p2,p4,p5,p8,p9,credentials", "--calls", "60", "--rounds", "2", "--users", "30",
		"--sessions", "20", "--streams", "10", "--memory-calls", "100", "--starts", "1", "--backends", "2",
		"-o", page, "--profile", profile, "--profile-seconds", "1")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out, strings.TrimSuffix(string(text), "\n"+marker+"\n")) {
		t.Error("what was printed is not what was written")
	}
	for _, want := range []string{
		`(?m)^- Machine: .+, \d+ cores, \w+, kernel \S+$`,
		`(?m)^- Go: go\S+, GOMAXPROCS \d+`,
		`(?m)^- Load average of the minute before: [\d.]+$`,
		`(?m)^- Commit: \S+`,
		`(?m)^\| P1 \| CPU per call, modern client, modern backend, json, 8 connections \| [\d.]+ µs \| [\d.]+ µs \| [\d.]+ \| ≤ 1.15 × bare \| (yes|\*\*no\*\*) \|$`,
		`(?m)^\| P1 \| CPU per call, legacy client, legacy backend, sse, 8 connections \| [\d.]+ µs \| [\d.]+ µs \| [\d.]+ \| ≤ 1.20 × bare \|`,
		`(?m)^\| P2 \| CPU per call, modern client, modern backend, json, 8 connections, through a verified token .* \| [\d.]+ µs \| [\d.]+ µs \| [\d.]+ \| ≤ 1.45 × bare \|`,
		`(?m)^\| P4 \| .*, edge, legacy client, legacy backend \| 1; 0 \| – \| – \| 1; 0 \| yes \|$`,
		`(?m)^\| P4 \| .*, edge, modern client, modern backends: 4 \| 1; 0 \| – \| – \| 1; 0 \| yes \|$`,
		`(?m)^\| P2 \| the same with tokenExchange in place of the injected header.* \| [\d.]+ µs \| [\d.]+ µs, P2 \| [\d.]+ \| ≤ 1.05 × P2 \|`,
		`(?m)^\| P4 \| .* and exchanges per call, edge, modern client, modern backend, tokenExchange, 60 calls of one user \| 1; 0; 0 \(after 1\) \| – \| – \| 1; 0; 0 after the first \| yes \|$`,
		`(?m)^\| P4 \| .* and exchanges per call, edge, legacy client, legacy backend, cloudSts, 60 calls of one user \| 1; 0; 0 \(after 1\) \|`,
		`(?m)^\| credentials \| .* of obo adds .* \| [+-][\d.]+ µs \([\d.]+ µs\); \d+ \| [\d.]+ µs, bearerToken \| – \| ≤ 0.5 µs; 0 \|`,
		`(?m)^\| credentials \| .* signed, 1024 bytes of body, .* \| [\d.]+ µs; \d+ \| – \| – \| ≤ 6 µs; 2 \|`,
		`(?m)^\| credentials \| .* with those of 30 users, 10 of whom call \| [\d.]+ µs \| [\d.]+ µs, with 10 users \|`,
		`(?m)^\| credentials \| heap that a kept credential .* of 30 users \| -?\d+ bytes \|`,
		`(?m)^\| credentials \| resident memory that 30 users add .* \| [+-][\d.]+ MiB; [+-][\d.]+ MiB .* \| of the credentials ≤ 24 MiB \|`,
		`(?m)^\| legacy \| legacy \| 1 \| edge, obo \| 60 \| 60 tools/call \| 0 \| 1; 0 \|$`,
		`(?m)^\| P5 \| added p50 at one connection, modern client, modern backend \| -?[\d.]+ µs \| -?[\d.]+ µs \|`,
		`(?m)^\| P8 \| an idle legacy session \(20 of 20 alive\) \| -?[\d.]+ KiB \(-?[\d.]+ KiB live\) \| – \| – \| ≤ 2 KiB \|`,
		`(?m)^\| P8 \| an idle SSE stream, the backend has none \(405\) \(10 of 10 alive\) \|`,
		`(?m)^\| P8 \| edge: resident after 100 calls; growth in the second half, modern client, modern backend \| [\d.]+ MiB;`,
		`(?m)^\| P9 \| the edge is ready, 2 backend\(s\) \| [\d.]+ ms .*; first call answered at [\d.]+ ms \| – \| – \| ≤ 150 ms \| (yes|\*\*no\*\*) \|$`,
		`(?m)^\| P9 \| the edge is ready, 2 backend\(s\), one of them black-holed \| [\d.]+ ms .*; first call answered at`,
		`(?m)^\| legacy \| legacy \| json \| 64 \| edge \| [\d.]+ \([\d.]+–[\d.]+\) \| [\d.]+ \|`,
		`(?m)^\| modern \| modern \| json \| 1 \| direct \|`,
	} {
		if !regexp.MustCompile(want).Match(text) {
			t.Errorf("no line like %s", want)
		}
	}
	if !regexp.MustCompile(`(?m)^ +flat +flat% +sum% +cum +cum%$`).MatchString(out) {
		t.Error("the profile was not printed")
	}
	if s, err := os.Stat(profile); err != nil || s.Size() == 0 {
		t.Errorf("the profile was not written: %v", err)
	}
	if t.Failed() {
		t.Log(out)
	}
}

// Another program of the edge has each load in turn with the edge, also that
// through filters, and both are held against each other.
func TestAgainst(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if _, err := runBench(t, t.Context(), &said, "--case", "p2,p5", "--calls", "60", "--rounds", "2", "--against", program); err != nil {
		t.Fatal(err)
	}
	for want, times := range map[string]int{
		`(?m): other edge: CPU [\d.]+ µs, p50 [\d.]+ µs`:                                                    3,
		`(?m): edge beside the other, medians of 2 rounds: CPU × [\d.]+, p50 × [\d.]+$`:                     3,
		`(?m)^modern client, .*, through a verified token .*: edge beside the other, .*: CPU × [\d.]+, p50`: 1,
	} {
		if n := len(regexp.MustCompile(want).FindAllString(said.String(), -1)); n != times {
			t.Errorf("%d lines like %s, want %d: %s", n, want, times, said.String())
		}
	}
	m := measurement{figures: map[string][]figure{
		weir:  {{cpu: 1}, {cpu: 3}, {cpu: 8}},
		other: {{cpu: 1}, {cpu: 2}, {cpu: 2}},
	}}
	if got := m.beside(func(f figure) float64 { return f.cpu }); got != 1.5 {
		t.Errorf("beside: %v", got)
	}
}

// Only failed calls and wrong counts make a run fail, and each does.
func TestRunFails(t *testing.T) {
	for _, c := range []struct {
		fault string
		cases string
		wrong string
	}{
		{"twice", "p4", "10000 tools/call for 5000 calls"},
		{"a connection a call", "p4", "5000 new connections"},
		{"an exchange a call", "p4", "and 20 for 20 calls after them"},
		{"no exchange", "p4", "exchanges: 0 for the first calls"},
		{"wrong answers", "p1", "answer: id 1"},
		{"no cache", "p6", "for its list"}, // as the stand-in is
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Setenv(fault, c.fault)
			out, err := runBench(t, t.Context(), t.Output(), "--quick", "--case", c.cases, "--calls", "20", "--rounds", "1")
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%v, want an error about %q", err, c.wrong)
			}
			if !strings.Contains(out, "**FAILED:**") {
				t.Errorf("the table does not say what failed:\n%s", out)
			}
		})
	}
}

// The end of the context ends the run and every process of it.
func TestRunIsCutShort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	page := filepath.Join(t.TempDir(), "BENCHMARKS.md")
	_, err := runBench(t, ctx, writerFunc(func([]byte) { cancel() }), "--calls", "100", "--rounds", "1", "-o", page)
	if err == nil || !strings.Contains(err.Error(), "cut short") {
		t.Errorf("%v, want an error that the run was cut short", err)
	}
	if _, err := os.Stat(page); err == nil {
		t.Error("half a table was written")
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// Without an edge the floors are measured all the same.
func TestFloorsAlone(t *testing.T) {
	t.Setenv(fault, "wrong answers") // of an edge, which must not be asked
	out, err := runBench(t, t.Context(), t.Output(), "--floors", "--calls", "20", "--rounds", "1", "--memory-calls", "20", "--starts", "1")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "| P4 | requests to the backend and new connections per call, bare, ") || strings.Contains(out, "| edge |") {
		t.Errorf("the table is not one of the floors:\n%s", out)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct{ args, wrong string }{
		{"--case p1,p15", `"p15" is not one of`},
		{"--calls -1", "--calls: -1 is not between"},
		{"--streams 9000", "--streams: 9000"},
		{"--case credential", `"credential" is not one of p1 p2`},
		{"--users 9", "--users: 9"},
		{"--floors --profile x", "there is no edge"},
		{"--floors --against x", "there is no edge"},
		{"--quick stray", ""},
		{"nonsense", `unknown command "nonsense"`},
		{"backend --era new", `--era: "new"`},
		{"backend --addresses 0", "--addresses: 0"},
		{"static --file none", "--file"},
		{"backend --tools 1", "--tools: 1"},
		{"bare", "--backend is missing"},
		{"load --era both", `--era: "both"`},
		{"load --conns 0", "--conns"},
	} {
		err := command(t.Context(), strings.Fields(c.args), nil, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want an error about %q", c.args, err, c.wrong)
		}
	}
}
