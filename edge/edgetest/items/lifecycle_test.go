package items_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// load calls a tool on several connections until stop is called, which returns
// how many calls there were. Every one must succeed.
type load struct {
	t           *testing.T
	work        sync.WaitGroup
	end         chan struct{}
	calls, lost atomic.Int64
}

func begin(t *testing.T, base, tool string) *load {
	l := &load{t: t, end: make(chan struct{})}
	for i := range 8 {
		l.work.Go(func() {
			c := edgetest.NewClient(t, base)
			var s *edgetest.Session
			if i%2 == 0 {
				var err error
				if s, err = c.TryInitialize(edgetest.LegacyVersion, ""); err != nil {
					t.Error(err)
					return
				}
			}
			for {
				select {
				case <-l.end:
					return
				default:
				}
				var r *edgetest.Response
				var err error
				if s != nil {
					r, err = s.TrySend(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + edgetest.CallParams(tool, "{}") + `}`)
				} else {
					r, err = c.TryModern("1", "tools/call", edgetest.CallParams(tool, "{}"))
				}
				l.calls.Add(1)
				if err != nil || r.Status != 200 || strings.Contains(string(r.Body), `"error"`) {
					l.lost.Add(1)
					if err == nil {
						err = fmt.Errorf("status %d: %s", r.Status, r.Body)
					}
					t.Errorf("a call failed: %v", err)
					return
				}
			}
		})
	}
	return l
}

// more waits for further calls.
func (l *load) more(n int64) {
	l.t.Helper()
	now := l.calls.Load()
	edgetest.Until(l.t, "further calls", func() bool { return l.calls.Load() >= now+n || l.lost.Load() > 0 })
}

func (l *load) stop() {
	close(l.end)
	l.work.Wait()
	l.t.Logf("%d calls, %d failed", l.calls.Load(), l.lost.Load())
}

// Fifty reloads under load, each with another set of backends, rules or
// timeouts, cost no request; so do reloads by request, by signal and by a change
// of the file.
func TestL03(t *testing.T) {
	t.Run("fifty", func(t *testing.T) {
		t.Parallel()
		kept, fresh, third := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Legacy)
		plans := []string{
			group(servers{"kept": kept}, bestEffort),
			group(servers{"kept": kept, "fresh": fresh}, bestEffort),
			group(servers{"kept": kept, "third": third}, bestEffort, "aggregation: {conflictResolution: prefix, tools: [{workload: third, excludeAll: true}]}"),
			group(servers{"kept": kept, "fresh": fresh}, "operational: {timeouts: {default: 20s}, failureHandling: {partialFailureMode: best_effort}}"),
		}
		f := &stage{Edge: edgetest.Start(t, plans[0])}
		l := begin(t, f.Base(), "kept_echo")
		for i := range 50 {
			l.more(20)
			if err := f.Serve.Reload(edgetest.Plan(t, plans[(i+1)%len(plans)])); err != nil {
				t.Fatal(err)
			}
		}
		l.more(20)
		l.stop()
		if c := f.as(edgetest.Modern, ""); c.tools(t) != "kept_echo" {
			t.Errorf("tools %s", c.tools(t))
		}
	})
	t.Run("by request, signal and file", func(t *testing.T) {
		t.Parallel()
		kept, fresh := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
		one, two := group(servers{"kept": kept}, bestEffort), group(servers{"kept": kept, "fresh": fresh}, bestEffort)
		p := run(t, program(t), one, "", nil)
		l := begin(t, p.base, "kept_echo")
		admin := edgetest.NewClient(t, p.admin)
		c := caller{p.client().As(edgetest.Modern, "")}
		for i, how := range []func(){
			func() {
				if r := admin.Do("POST", "/-/reload", ""); r.Status != 200 {
					t.Errorf("status %d: %s", r.Status, r.Body)
				}
			},
			func() { p.signal(syscall.SIGHUP) },
			func() {}, // the file has changed
		} {
			config, want := two, "fresh_echo kept_echo"
			if i%2 == 1 {
				config, want = one, "kept_echo"
			}
			p.write(config)
			how()
			edgetest.Until(t, "what the new configuration lists", func() bool { return c.tools(t) == want })
			l.more(50)
		}
		l.stop()
		p.signal(syscall.SIGTERM)
		if code := p.end(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}

// A configuration that is wrong changes nothing: what was served goes on, the
// status and whoever asked for the reload are told what is wrong and where, and
// validate says the same with its exit code.
func TestL04(t *testing.T) {
	t.Parallel()
	kept := edgetest.NewServer(t, edgetest.Legacy)
	weir := program(t)
	good := group(servers{"kept": kept}, bestEffort)
	p := run(t, weir, good, "", nil)
	admin := edgetest.NewClient(t, p.admin)
	l := begin(t, p.base, "kept_echo")
	for name, bad := range map[string]struct{ config, says string }{
		"syntax":          {"name: [", "weir.yaml"},
		"nothing":         {"", "weir.yaml"},
		"unknown field":   {good + "\nagregation: {}", "agregation"},
		"wrong value":     {strings.Replace(good, "best_effort", "best-effort", 1), "partialFailureMode"},
		"wrong type":      {strings.Replace(good, "name: edgetest", "name: [1]", 1), "name"},
		"no URL":          {strings.Replace(good, kept.URL, "", 1), "url"},
		"a wrong URL":     {strings.Replace(good, kept.URL, "ftp://x", 1), "url"},
		"unknown backend": {good + "\naggregation: {tools: [{workload: nobody, excludeAll: true}]}", "nobody"},
		"two of a name":   {good + "\nbackends: []", "backends"},
		"not YAML":        {"\x00\x01\x02", "weir.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			p.write(bad.config)
			r := admin.Do("POST", "/-/reload", "")
			if r.Status != 422 || !strings.Contains(string(r.Body), bad.says) {
				t.Errorf("status %d, without %q: %s", r.Status, bad.says, r.Body)
			}
			if now := p.status(); now.Reload == "" {
				t.Error("the status does not tell of it")
			}
			if said, code := validate(t, weir, bad.config); code == 0 || !strings.Contains(said, bad.says) {
				t.Errorf("validate: exit code %d, without %q: %s", code, bad.says, said)
			}
			l.more(10)
		})
	}
	p.write(good)
	if r := admin.Do("POST", "/-/reload", ""); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	if now := p.status(); now.Reload != "" {
		t.Errorf("the status still tells of %s", now.Reload)
	}
	l.stop()
}

// Short of memory the edge refuses with 503 what it has no room for, stays
// within what it was given and is itself again within five seconds. A quarter of
// the figures of the row: 128 MiB, and 100 bodies of nearly 4 MiB at a time.
func TestL05(t *testing.T) {
	edgetest.Need(t, runtime.GOOS == "linux", "memory of a process is read from /proc")
	back := edgetest.NewServer(t, edgetest.Modern)
	goOn := make(chan struct{})
	back.Always("tools/call", func(c *edgetest.Call) {
		if c.Wait(goOn) {
			c.Result(`{"resultType":"complete","content":[]}`)
		}
	})
	p := run(t, program(t), group(servers{"a": back, "b": edgetest.NewServer(t, edgetest.Legacy)}, bestEffort), "", []string{"GOMEMLIMIT=128MiB"})
	caller{p.client().As(edgetest.Modern, "")}.tools(t)
	body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("a_echo", `{"x":"`+strings.Repeat("x", 4<<20-1024)+`"}`), edgetest.Meta())
	var flood sync.WaitGroup
	var done, shed, other atomic.Int64
	for range 100 {
		flood.Go(func() {
			r, err := edgetest.NewClient(t, p.base).Try("POST", "/mcp", body, head...)
			switch {
			case err == nil && r.Status == 503 && r.Header.Get("Retry-After") != "":
				shed.Add(1)
			case err == nil && (r.Status == 200 || r.Stream()):
				done.Add(1)
			default:
				other.Add(1)
			}
		})
	}
	edgetest.Until(t, "the flood", func() bool { return shed.Load()+other.Load()+int64(back.Count("tools/call")) >= 100 })
	most := memory(t, p.cmd.Process.Pid, "VmHWM")
	close(goOn)
	flood.Wait()
	t.Logf("%d done, %d refused with 503, %d otherwise; at most %d MiB", done.Load(), shed.Load(), other.Load(), most>>20)
	if shed.Load() == 0 || other.Load() > 0 {
		t.Errorf("%d of 100 were refused with 503, %d otherwise", shed.Load(), other.Load())
	}
	if most > 192<<20 {
		t.Errorf("the process grew to %d MiB, with a limit of 128", most>>20)
	}
	began := time.Now()
	edgetest.Until(t, "a call after the flood", func() bool {
		p.lives()
		r, err := p.client().TryModern("1", "tools/call", edgetest.CallParams("b_echo", "{}"))
		return err == nil && r.Status == 200
	})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it was itself again after %s", took)
	}
}

// memory reads a figure of /proc/PID/status, in bytes.
func memory(t *testing.T, pid int, name string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), name+":")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return kib << 10
}

// spent reads how much processor time a process has taken.
func spent(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks time.Duration
	for _, f := range fields[11:13] { // utime and stime, of 10 ms each
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}

// Out of descriptors the edge waits for some instead of spinning, says nothing
// without end, and serves again when there are.
func TestL06(t *testing.T) {
	t.Parallel()
	edgetest.Need(t, runtime.GOOS == "linux", "processor time of a process is read from /proc")
	a, b := edgetest.NewServer(t, edgetest.Legacy), edgetest.NewServer(t, edgetest.Modern)
	p := run(t, program(t), group(servers{"a": a, "b": b}, bestEffort), "ulimit -n 256", nil)
	c := caller{p.client().As(edgetest.Modern, "")}
	c.CallTool("1", "a_echo", "{}").Result()
	c.CallTool("1", "b_echo", "{}").Result()
	var all []net.Conn
	for range 400 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.base, "http://"))
		if err != nil {
			break
		}
		all = append(all, conn)
	}
	edgetest.Until(t, "the limit", func() bool {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
		return err == nil && len(open) >= 250
	})
	before, began, said := spent(t, p.cmd.Process.Pid), time.Now(), len(p.log())
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	<-tick.C // what is measured is a second of waiting
	took, used := time.Since(began), spent(t, p.cmd.Process.Pid)-before
	if used > took/4 {
		t.Errorf("%s of processor time in %s", used, took)
	}
	if n := len(p.log()) - said; n > 64<<10 {
		t.Errorf("%d bytes of log in %s", n, took)
	}
	for _, conn := range all {
		conn.Close()
	}
	edgetest.Until(t, "a call after that", func() bool {
		p.lives()
		r, err := p.client().TryModern("1", "tools/call", edgetest.CallParams("b_echo", "{}"))
		return err == nil && r.Status == 200
	})
	p.signal(syscall.SIGTERM)
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Without a place for temporary files, with a full disk behind its log, and
// without names of hosts, the edge serves what it can, answers for the rest as
// for a backend that is down, and ends in order.
func TestL07(t *testing.T) {
	t.Parallel()
	_, err := os.Stat("/dev/full")
	edgetest.Need(t, err == nil, "there is no /dev/full")
	a := edgetest.NewServer(t, edgetest.Legacy)
	config := group(servers{"a": a}, bestEffort)
	config = strings.Replace(config, "backends:\n", "backends:\n- {name: lost, url: \"http://nowhere.invalid:9/mcp\", transport: streamable-http}\n- {name: lost-sse, url: \"http://nowhere.invalid:9/sse\", transport: sse}\n", 1)
	p := run(t, program(t), config, "exec 2>/dev/full", []string{"TMPDIR=/proc/nowhere"}, "--log-level", "debug")
	for _, c := range []caller{{p.client().As(edgetest.Modern, "")}, {p.client().As(edgetest.Legacy, "")}} {
		if got := c.tools(t); got != "a_echo" {
			t.Errorf("tools %s", got)
		}
		for range 20 {
			c.CallTool("1", "a_echo", "{}").Result()
		}
		backendAway(t, c, c.CallTool("2", "lost_echo", "{}"))
		body, head := c.Message("3", "tools/call", `{"name":`)
		fails(t, c.Post(body, head...), 400, -32700)
	}
	edgetest.Until(t, "the status of what cannot be found", func() bool {
		for _, b := range p.status().DiscoveredBackends {
			if b.Name != "a" && b.Message == "" {
				return false
			}
		}
		return true
	})
	p.signal(syscall.SIGTERM)
	if code := p.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// What a killed process leaves behind keeps the next one from nothing, and does
// not grow: its socket for handing over is taken, and so is its address; that for
// letters goes.
func TestL10(t *testing.T) {
	t.Parallel()
	a := edgetest.NewServer(t, edgetest.Legacy)
	weir, config := program(t), group(servers{"a": a}, bestEffort)
	folder := t.TempDir()
	socket := filepath.Join(folder, "weir.sock")
	for range 3 {
		p := run(t, weir, config, "", nil, "--hand-over", socket)
		s := p.client().Initialize("")
		s.Call("1", "a_echo", "{}").Result()
		l := begin(t, p.base, "a_echo")
		l.more(50)
		l.stop()
		p.signal(syscall.SIGKILL)
		p.end()
		left, err := os.ReadDir(folder)
		if err != nil || len(left) > 2 {
			t.Errorf("it leaves %v, %v", left, err)
		}
	}
	last := run(t, weir, config, "", nil, "--hand-over", socket)
	last.client().Initialize("").Call("1", "a_echo", "{}").Result()
	last.signal(syscall.SIGTERM)
	if code := last.end(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("an edge that ended in order leaves %v, %v", left, err)
	}
}

// Every key that is misspelt, or in a place where it is not known, is named
// with its line, and nothing starts.
func TestL11(t *testing.T) {
	t.Parallel()
	a := edgetest.NewServer(t, edgetest.Legacy)
	weir := program(t)
	const config = `name: edgetest
groupRef: edgetest
incomingAuth:
  type: anonymous
backends:
- name: a
  url: URL
  transport: streamable-http
aggregation:
  conflictResolution: priority
  conflictResolutionConfig:
    priorityOrder: [a]
  tools:
  - workload: a
    filter: [echo]
    overrides:
      echo:
        name: other
        description: text
operational:
  timeouts:
    default: 20s
    perWorkload: {a: 20s}
  failureHandling:
    healthCheckInterval: 20s
    healthCheckTimeout: 2s
    unhealthyThreshold: 3
    partialFailureMode: best_effort
    circuitBreaker:
      enabled: true
      failureThreshold: 3
      timeout: 20s
`
	whole := strings.Replace(config, "URL", a.URL, 1)
	if said, code := validate(t, weir, whole); code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	lines := strings.Split(whole, "\n")
	cases := 0
	for i, line := range lines {
		trimmed := strings.TrimLeft(line, " -")
		key, _, found := strings.Cut(trimmed, ":")
		if !found || key == "echo" || key == "" {
			continue // a name of a tool is no key
		}
		for _, wrong := range []string{key + "s", strings.ToUpper(key[:1]) + key[1:]} {
			if key == "transport" && wrong == "Transport" {
				continue
			}
			cases++
			changed := append([]string{}, lines...)
			changed[i] = strings.Replace(line, key+":", wrong+":", 1)
			said, code := validate(t, weir, strings.Join(changed, "\n"))
			if code == 0 || !strings.Contains(said, wrong) {
				t.Errorf("%s: exit code %d: %s", wrong, code, said)
			}
		}
	}
	if cases < 50 {
		t.Errorf("%d keys, want 50", cases)
	}
}
