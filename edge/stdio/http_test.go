//go:build unix

package stdio_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/stdio"
)

// playHTTP is play over HTTP, with one thread: while a call of the tool wait is at work
// nothing else is answered.
func (s *played) playHTTP(address string) int {
	var thread sync.Mutex
	l, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	fmt.Println("listening on", l.Addr())
	if _, is := s.how["quits"]; is {
		quit := make(chan os.Signal, 1)
		signal.Notify(quit, syscall.SIGUSR1)
		go func() {
			<-quit
			os.Exit(0)
		}()
	}
	err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		thread.Lock()
		defer thread.Unlock()
		line, _ := io.ReadAll(r.Body)
		var p packet
		if r.URL.Path != "/mcp" || json.Unmarshal(line, &p) != nil {
			http.NotFound(w, r)
			return
		}
		var out bytes.Buffer
		one := &played{how: s.how, out: bufio.NewWriter(&out), calls: map[string]chan struct{}{}}
		if p.Method == "tools/call" && p.Params.Name != "exit" {
			one.call(&p, line, nil)
		} else if code := one.handle(&p, line); code >= 0 {
			os.Exit(code)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out.Bytes())
	}))
	fmt.Fprintln(os.Stderr, err)
	return 3
}

// site is an edge before a played server that speaks HTTP.
type site struct {
	*edgetest.Edge
	server *stdio.HTTP

	mu    sync.Mutex
	lines []string
}

// startSite starts one. change may change its configuration, and more the plan.
func startSite(t *testing.T, how string, change func(*stdio.Config), more ...func(*compile.Plan)) *site {
	t.Helper()
	address := edgetest.FreeAddress(t) // nobody is given it while the server is away
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{}
	c := stdio.Config{
		Name: "back", Timeout: 3 * time.Second,
		Starter: stdio.Command{Path: self, Env: []string{asServer + "=" + how + " modern http=" + address}},
		Lines: func(l stdio.Line) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lines = append(s.lines, l.Source+": "+l.Text)
		},
	}
	if change != nil {
		change(&c)
	}
	set, _ := source.Read("test.yaml", []byte("apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: back}\nspec: {image: \"exec:///unused\", transport: streamable-http}\n"))
	set.Starts = []compile.Form{compile.FormLocal}
	r := set.Compile()
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	for _, f := range more {
		f(r.Plan)
	}
	start := func(serve.Starting) (backend.Local, error) {
		server, err := stdio.NewHTTP(c, func(ctx context.Context, _ stdio.Process) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		})
		s.server = server
		return server, err
	}
	s.Edge = edgetest.StartPlan(t, r.Plan, edgetest.With(serve.WithWorkloads(start)))
	return s
}

func (s *site) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// A server that speaks HTTP has one process for all, which is waited for, started again when
// it ended, and gone with the edge; what it prints is logged.
func TestHTTPServer(t *testing.T) {
	t.Parallel()
	s := startSite(t, "slow", nil)
	one, other := s.NewClient().As(edgetest.Legacy, ""), s.NewClient().As(edgetest.Modern, "")
	pid := text(t, one.CallTool("1", "pid", "{}"))
	if again := text(t, other.CallTool("1", "pid", "{}")); again != pid {
		t.Errorf("two clients have the processes %s and %s", pid, again)
	}
	if got := s.server.Status(); got.State != stdio.Running || got.Processes != 1 {
		t.Errorf("the status is %+v", got)
	}
	await(t, "its output is logged", func() bool { return strings.Contains(s.log(), "stdout: listening on") })
	n, _ := strconv.Atoi(pid)
	if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var now string
	await(t, "it is back", func() bool {
		r, err := other.TryAsk("2", "tools/call", edgetest.CallParams("pid", "{}"))
		if err != nil || r.Status != 200 {
			return false
		}
		now = text(t, r)
		return true
	})
	if now == pid || s.server.Status().Restarts != 1 {
		t.Errorf("the process is %s, the status %+v", now, s.server.Status())
	}
	if !strings.Contains(s.log(), "process ended: signal killed") {
		t.Errorf("the log says\n%s", s.log())
	}
	s.Stop()
	if alive(now) {
		t.Error("the process outlives the edge")
	}
	if _, _, err := s.server.Dial(t.Context()); err == nil {
		t.Error("it can be dialled after its end")
	}
}

// A server that ends by itself with exit 0 is started again by itself with always, by the next call
// with on-failure, whatever looks at it meanwhile, and never with no.
func TestHTTPServerThatIsDone(t *testing.T) {
	for name, restart := range map[string]stdio.Restart{"always": stdio.Restarted, "on-failure": stdio.Failures, "no": stdio.Never} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, "quits", func(c *stdio.Config) { c.Restart = restart }, func(p *compile.Plan) { p.Servers[0].Failure.Interval = 200 * time.Millisecond })
			c := s.NewClient().As(edgetest.Modern, "")
			pid := text(t, c.CallTool("1", "pid", "{}"))
			n, _ := strconv.Atoi(pid)
			if err := syscall.Kill(n, syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			await(t, "it has ended", func() bool { return s.server.Status().Ended == "exit 0" })
			switch restart {
			case stdio.Restarted:
				await(t, "it is back", func() bool { return s.server.Status().Processes == 1 })
				return
			case stdio.Never:
				if now := s.server.Status(); now.State != stdio.Stopped {
					t.Errorf("the status is %+v", now)
				}
				if r, err := c.TryAsk("2", "tools/call", edgetest.CallParams("pid", "{}")); err != nil || r.Status != 502 {
					t.Errorf("a call: %+v, %v", r, err)
				}
				return
			}
			// Its rest is at most 1.2 s, and health checks come all the time.
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				now := s.server.Status()
				if now.Processes != 0 || now.Restarts != 0 || now.State != stdio.Running || now.Reason != "ended: exit 0; the next call starts it" || !errors.Is(s.server.Well(), edge.ErrRests) {
					t.Fatalf("at rest: %+v", now)
				}
				if conn, _, err := s.server.Dial(t.Context()); err == nil {
					conn.Close()
					t.Fatal("what is no call connects")
				}
			}
			if back, _ := s.Serve.Alone("back"); back.Status().Is() != health.Ready {
				t.Errorf("its health is %+v", back.Status())
			}
			if again := text(t, c.CallTool("2", "pid", "{}")); again == pid {
				t.Error("the process has not changed")
			}
			if now := s.server.Status(); now.Processes != 1 || now.Restarts != 1 || now.Reason != "" {
				t.Errorf("after the call: %+v", now)
			}
		})
	}
}

// A server that does not answer is unhealthy and started anew; one with a call at work is
// left alone.
func TestHTTPProbes(t *testing.T) {
	t.Parallel()
	s := startSite(t, "", nil)
	c := s.NewClient().As(edgetest.Modern, "")
	pid := text(t, c.CallTool("1", "pid", "{}"))
	if got := text(t, c.CallTool("2", "wait", `{"ms":16000}`)); got != "waited" {
		t.Errorf("the call at work: %s", got)
	}
	if again := text(t, c.CallTool("3", "pid", "{}")); again != pid {
		t.Error("the process at work was ended")
	}
	n, _ := strconv.Atoi(pid)
	began := time.Now()
	if err := syscall.Kill(n, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, "it is unhealthy", func() bool { return s.server.Well() != nil })
	t.Logf("unhealthy after %s", time.Since(began))
	await(t, "it is gone", func() bool { return !alive(pid) })
	await(t, "it is back", func() bool {
		r, err := c.TryAsk("4", "tools/call", edgetest.CallParams("pid", "{}"))
		return err == nil && r.Status == 200 && r.Answer() != nil
	})
	t.Logf("back after %s", time.Since(began))
	if s.server.Well() != nil {
		t.Error("it is back, and unhealthy")
	}
}

// A server that does not listen in its time, or ends at once, is an error that says so, and is
// tried ever more seldom; a client reads of it how it ended, and nothing of what it printed.
func TestHTTPServerThatFails(t *testing.T) {
	t.Parallel()
	for how, want := range map[string]string{"exit=3": "exit 3", "exit=0": "exit 0", "deafen": "does not listen on its port"} {
		s := startSite(t, how, func(c *stdio.Config) {
			c.Restart, c.Introduction, c.Timeout = stdio.Failures, 500*time.Millisecond, time.Second
		})
		await(t, how+": its failure is known", func() bool { return strings.Contains(s.server.Status().Ended, want) })
		await(t, how+": it has failed for good", func() bool { return s.server.Status().State == stdio.Failed })
		r, err := s.NewClient().As(edgetest.Modern, "").TryAsk("1", "tools/list", "{}")
		if err != nil {
			t.Fatal(err)
		}
		if body := string(r.Answer()); r.Status != 502 || strings.Contains(body, "cannot find") {
			t.Errorf("%s: a call is answered %d %s", how, r.Status, body)
		}
		s.Stop()
	}
	began := time.Now()
	s := startSite(t, "", func(c *stdio.Config) { c.Starter = broken{} })
	await(t, "it cannot be started", func() bool { return s.server.Status().State == stdio.Failed })
	if got := s.server.Status().Reason; got != "cannot be started: a secret reason" {
		t.Errorf("the reason: %q", got)
	}
	r, err := s.NewClient().As(edgetest.Modern, "").TryAsk("1", "tools/list", "{}")
	if err != nil {
		t.Fatal(err)
	}
	if body := string(r.Answer()); strings.Contains(body, "secret") {
		t.Errorf("a call is answered %s", body)
	}
	if took := time.Since(began); took > 8*time.Second { // and not when its fifth start has failed
		t.Errorf("that is told after %s", took)
	}
	late := startSite(t, "deafen", func(c *stdio.Config) { c.Introduction, c.Timeout = 500*time.Millisecond, time.Second })
	await(t, "it is not there in its time", func() bool { return late.server.Status().State == stdio.Failed })
	if n := late.server.Status().Restarts; n > 1 {
		t.Errorf("it was started %d times more before that was told", n)
	}
}

type broken struct{}

func (broken) Start(context.Context, string) (stdio.Process, error) {
	return nil, errors.New("a secret reason")
}
