package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// played is an edge whose servers do as a test says. It serves nothing.
type played struct {
	mu    sync.Mutex
	open  map[string]Opening
	log   []string                               // what was done, in order
	meets map[string]func(context.Context) error // how the servers of workloads introduce themselves
	looks map[string]Look                        // how they are; Running without
	ends  map[string]func(time.Duration) error   // how they end
	opens map[string]func(Opening) error         // how their doors open
}

func (p *played) did(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf(format, args...))
}

func (p *played) said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

func (p *played) Read(text []byte) (*Facts, error) {
	m, err := parseManifests(text)
	if err != nil {
		return nil, &Error{Code: CodeInvalid, Message: err.Error()}
	}
	port, _ := strconv.Atoi(m.get("spec", "proxyPort"))
	return &Facts{Name: m.get("metadata", "name"), Host: cmp.Or(m.get("spec", "host"), "127.0.0.1"), Port: port, Package: m.get("spec", "image"), Transport: "stdio", Group: m.get("spec", "groupRef", "name"), Remote: m.get("kind") == "MCPRemoteProxy"}, nil
}

func (p *played) Open(o Opening) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.did("open %s", o.Name)
	if f := p.opens[o.Name]; f != nil {
		if err := f(o); err != nil {
			return err
		}
	}
	if p.open == nil {
		p.open = map[string]Opening{}
	}
	p.open[o.Name] = o
	return nil
}

func (p *played) Meet(ctx context.Context, name string) error {
	p.mu.Lock()
	p.did("meet %s", name)
	f := p.meets[name]
	p.mu.Unlock()
	if f != nil {
		return f(ctx)
	}
	return nil
}

func (p *played) Look(name string) (Look, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o, ok := p.open[name]
	if !ok {
		return Look{}, false
	}
	look := p.looks[name]
	if look.State == "" {
		look.State = Running
	}
	facts, err := (&played{}).Read(o.Manifest)
	if err != nil {
		panic(err)
	}
	look.URL = fmt.Sprintf("http://127.0.0.1:%d/mcp", facts.Port)
	return look, true
}

func (p *played) Close(name string, within time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.did("close %s", name)
	if f := p.ends[name]; f != nil {
		if err := f(within); err != nil {
			return err
		}
	}
	delete(p.open, name)
	return nil
}

// set changes what a server does.
func (p *played) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// pathsAt are the places below a directory.
func pathsAt(t testing.TB, dir string) Paths {
	t.Helper()
	paths, err := PathsOf(func(name string) (string, bool) { return dir, name == "WEIR_HOME" })
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// keep opens a keeper at a directory, which ends with the test.
func keep(t testing.TB, p *played, dir string) *Keeper {
	t.Helper()
	k, err := Open(KeeperOptions{Paths: pathsAt(t, dir), Edge: p, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Version: "test", Boot: "one"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// describe is the manifest of a workload.
func describe(name string, more ...string) []byte {
	return []byte("apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: " + name + "}\nspec:\n  image: exec:///bin/" + name + "\n" + strings.Join(more, ""))
}

// code is the code of an error; "" for none.
func code(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	if err != nil {
		return "other: " + Code(err.Error())
	}
	return ""
}

// listed is the status of a workload; it has to be there.
func listed(t testing.TB, m Manager, name string) Status {
	t.Helper()
	all, err := m.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(s Status) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("%s is not listed: %+v", name, all)
	}
	return all[i]
}

func TestWorkloadsRunStopAndGo(t *testing.T) {
	p := &played{}
	k := keep(t, p, t.TempDir())
	var steps []Event
	if err := k.Run(t.Context(), describe("time", "  env: [{name: A, value: b}] # why\n"), false, time.Minute, func(e Event) { steps = append(steps, e) }); err != nil {
		t.Fatal(err)
	}
	last := steps[len(steps)-1]
	if last.State != Running || !strings.HasPrefix(last.URL, "http://127.0.0.1:2") || !strings.HasSuffix(last.URL, "/mcp") {
		t.Errorf("the last event is %+v", last)
	}
	s := listed(t, k, "time")
	if s.Status != Running || s.URL != last.URL || s.Port < firstPort || s.Group != "default" || s.StartedAt == nil || s.CreatedAt.IsZero() {
		t.Errorf("%+v", s)
	}
	d, err := k.Inspect(t.Context(), "time")
	if err != nil || d.Wish != Running || !strings.Contains(d.Manifest, "# why") || !strings.Contains(d.Manifest, "weir.dev/wish: running") {
		t.Errorf("%v: %+v", err, d)
	}
	folder := filepath.Join(k.Paths.Workloads(), "time")
	for path, mode := range map[string]os.FileMode{"": 0o700, "home": 0o700, "manifest.yaml": 0o600, "status.json": 0o600, "lock": 0o600, "edge.log": 0o600} {
		if info, err := os.Lstat(filepath.Join(folder, path)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}

	// It stops, stays stopped, and starts at the same address.
	if err := k.Stop(t.Context(), "time", 0, nil); err != nil {
		t.Fatal(err)
	}
	if s := listed(t, k, "time"); s.Status != Stopped || s.StartedAt != nil {
		t.Errorf("%+v", s)
	}
	if err := k.Start(t.Context(), "time", time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	if err := k.Restart(t.Context(), "time", time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	if s := listed(t, k, "time"); s.Status != Running || s.URL != last.URL {
		t.Errorf("%+v", s)
	}
	if got := k.Transitions()[Transition{"time", Running}]; got != 3 {
		t.Errorf("it came to run %d times, want 3", got)
	}

	// Each transition is a line of its log.
	var lines []string
	if err := k.Logs(t.Context(), "time", LogOptions{}, func(l Line) { lines = append(lines, l.Source+": "+l.Text) }); err != nil {
		t.Fatal(err)
	}
	round := []string{"event: starting → running", "event: running → stopping", "event: stopping → stopped", "event: stopped → starting"}
	want := slices.Concat([]string{"event: unknown → starting"}, round, round, round[:1])
	if !slices.Equal(lines, want) {
		t.Errorf("the log is %q, want %q", lines, want)
	}

	// It goes, and its logs stay until they are pruned.
	if err := k.Remove(t.Context(), "time", RemoveOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Inspect(t.Context(), "time"); code(err) != CodeNotFound {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
	if files, bytes, err := k.PruneLogs(t.Context()); files != 1 || bytes == 0 || err != nil {
		t.Errorf("pruned %d files, %d bytes, %v", files, bytes, err)
	}
	if got := p.said(); !slices.Equal(got, []string{"open time", "meet time", "close time", "open time", "meet time", "close time", "open time", "meet time", "close time"}) {
		t.Errorf("the edge did %q", got)
	}
}

// V30: of two runs of one name one wins.
func TestTwoRunsOfOneName(t *testing.T) {
	p := &played{meets: map[string]func(context.Context) error{"both": func(context.Context) error { time.Sleep(time.Millisecond); return nil }}}
	k := keep(t, p, t.TempDir())
	for range 20 {
		var both sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			both.Go(func() { errs[i] = k.Run(t.Context(), describe("both"), false, time.Minute, nil) })
		}
		both.Wait()
		codes := []Code{code(errs[0]), code(errs[1])}
		slices.Sort(codes)
		if !slices.Equal(codes, []Code{"", CodeTaken}) {
			t.Fatalf("%v", errs)
		}
		if err := k.Remove(t.Context(), "both", RemoveOptions{}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// A start that is under way ends when the workload is stopped or removed, and nothing is
// left of it.
func TestRemovedWhileItStarts(t *testing.T) {
	met := make(chan bool, 1)
	waits := func(ctx context.Context) error {
		met <- true
		<-ctx.Done()
		return context.Cause(ctx)
	}
	p := &played{meets: map[string]func(context.Context) error{"slow": waits}}
	k := keep(t, p, t.TempDir())
	began := make(chan error, 1)
	go func() { began <- k.Run(t.Context(), describe("slow"), false, time.Minute, nil) }()
	edgetest.Receive(t, met, "its start")
	if s := listed(t, k, "slow"); s.Status != Starting {
		t.Errorf("%+v", s)
	}
	if err := k.Stop(t.Context(), "slow", 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := edgetest.Receive(t, began, "the end of the run"); code(err) != CodeStart || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("%v", err)
	}
	if s := listed(t, k, "slow"); s.Status != Stopped {
		t.Errorf("%+v", s)
	}
	go func() { began <- k.Start(t.Context(), "slow", time.Minute, nil) }()
	edgetest.Receive(t, met, "its start")
	if err := k.Remove(t.Context(), "slow", RemoveOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	if err := edgetest.Receive(t, began, "the end of the start"); err == nil {
		t.Error("the start has succeeded")
	}
	if all, err := k.List(t.Context()); len(all) != 0 || err != nil {
		t.Errorf("%+v, %v", all, err)
	}
	if left, _ := os.ReadDir(k.Paths.Workloads()); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A server that does not start is kept with the reason, and one that is refused is not.
func TestWhatDoesNotStart(t *testing.T) {
	p := &played{
		meets: map[string]func(context.Context) error{
			"bad":  func(context.Context) error { return &Error{Code: CodeStart, Message: "bad ended: exit 3"} },
			"away": func(context.Context) error { return &Error{Code: CodeLogin, Message: "away wants a login"} },
			"box":  func(context.Context) error { return &Error{Code: CodeSandbox, Message: "no bwrap"} },
		},
		looks: map[string]Look{"bad": {State: Failed, Stderr: []string{"no luck"}}},
		opens: map[string]func(Opening) error{"port": func(Opening) error { return &Error{Code: CodeTaken, Message: "somebody listens there"} }},
	}
	k := keep(t, p, t.TempDir())
	err := k.Run(t.Context(), describe("bad"), false, time.Minute, nil)
	if code(err) != CodeStart || code(err).Exit() != 44 || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("%v", err)
	}
	d, err := k.Inspect(t.Context(), "bad")
	if err != nil || d.Status.Status != Failed || d.Failure != "bad ended: exit 3" || d.Next != "weir logs bad" || !slices.Equal(d.Stderr, []string{"no luck"}) {
		t.Errorf("%v: %+v", err, d)
	}
	p.set(func() { p.looks["greedy"] = Look{Ended: "memory", Next: "give it more"} })
	if err := k.Run(t.Context(), describe("greedy"), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	if d, err := k.Inspect(t.Context(), "greedy"); err != nil || d.Status.Status != Running || d.Failure != "a process of it ended: memory" || d.Next != "give it more" {
		t.Errorf("%v: %+v", err, d)
	}
	if err := k.Run(t.Context(), describe("away"), false, time.Minute, nil); code(err) != CodeLogin || listed(t, k, "away").Status != Unauthenticated {
		t.Errorf("%v", err)
	}
	for name, want := range map[string]Code{"box": CodeSandbox, "port": CodeTaken} {
		err := k.Run(t.Context(), describe(name), false, time.Minute, nil)
		if e := new(Error); code(err) != want || !errors.As(err, &e) || e.Next != "" { // its log is gone with it
			t.Errorf("%s: %v", name, err)
		}
		if _, err := k.Inspect(t.Context(), name); code(err) != CodeNotFound {
			t.Errorf("%s was kept: %v", name, err)
		}
	}
	for text, want := range map[string]Code{
		string(describe("UPPER")): CodeInvalid,
		string(describe("../up")): CodeInvalid,
		"kind: Other":             CodeInvalid,
		string(describe("group", "  groupRef: {name: nowhere}\n")):        CodeNotFound,
		string(describe("big", "  # ", strings.Repeat("x", MaxManifest))): CodeInvalid,
	} {
		if err := k.Run(t.Context(), []byte(text), false, time.Minute, nil); code(err) != want {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
	// One of that name can be replaced.
	p.set(func() { p.meets["bad"], p.looks["bad"] = nil, Look{} })
	if err := k.Run(t.Context(), describe("bad"), true, time.Minute, nil); err != nil || listed(t, k, "bad").Status != Running {
		t.Errorf("%v", err)
	}
	// A port that somebody has is not given again.
	port := listed(t, k, "bad").Port
	if err := k.Run(t.Context(), describe("thief", fmt.Sprintf("  proxyPort: %d\n", port)), false, time.Minute, nil); code(err) != CodeTaken || !strings.Contains(err.Error(), "bad") {
		t.Errorf("%v", err)
	}
	// Nothing makes room for what cannot take its place.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := k.Run(t.Context(), describe("other"), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	for _, taken := range []int{port, ln.Addr().(*net.TCPAddr).Port} {
		if err := k.Run(t.Context(), describe("other", fmt.Sprintf("  proxyPort: %d\n", taken)), true, time.Minute, nil); code(err) != CodeTaken || listed(t, k, "other").Status != Running {
			t.Errorf("%v", err)
		}
	}
	no := &Error{Code: CodeRefused, Message: "mount /"}
	k.Judge = func(_ context.Context, manifest []byte, say func(string)) error {
		say("compiling")
		if !strings.Contains(string(manifest), "name: other") {
			t.Errorf("judged: %s", manifest)
		}
		return no
	}
	k.Evict = func(context.Context, string) error { t.Error("evicted"); return nil }
	var told []string
	err = k.Run(t.Context(), describe("other"), true, time.Minute, func(e Event) { told = append(told, e.Text) })
	if e := new(Error); !errors.As(err, &e) || e.Code != no.Code || e.Message != no.Message || !e.Unchanged || listed(t, k, "other").Status != Running || !slices.Equal(told, []string{"other: compiling"}) {
		t.Errorf("%v, after %q", err, told)
	}
	k.Judge, k.Evict = nil, nil
	own := listed(t, k, "other").Port
	if err := k.Run(t.Context(), describe("other", fmt.Sprintf("  proxyPort: %d\n", own)), true, time.Minute, nil); err != nil || listed(t, k, "other").Port != own {
		t.Errorf("%v", err)
	}
}

// A port that another process takes between the choice and the door is not the end of a run
// that named none: the next one is tried. A run that named one says who is in its way.
func TestPortTakenMeanwhile(t *testing.T) {
	p := &played{}
	var tried []int
	p.opens = map[string]func(Opening) error{"late": func(o Opening) error {
		facts, err := (&played{}).Read(o.Manifest)
		if err != nil {
			return err
		}
		if tried = append(tried, facts.Port); len(tried) < 3 {
			ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", facts.Port))
			if err != nil {
				return err
			}
			t.Cleanup(func() { ln.Close() })
			return &Error{Code: CodeTaken, Field: "--proxy-port", Message: "somebody listens there"}
		}
		return nil
	}}
	k := keep(t, p, t.TempDir())
	var events []Event
	if err := k.Run(t.Context(), describe("late", ""), false, time.Minute, func(e Event) { events = append(events, e) }); err != nil {
		t.Fatal(err)
	}
	if last := events[len(events)-1]; last.State != Running || !strings.Contains(last.URL, fmt.Sprint(tried[2])) {
		t.Errorf("the last event is %+v, the ports %v", last, tried)
	}
	for _, e := range events {
		if e.Error != nil {
			t.Errorf("it told of an error that it got over: %v", e.Error)
		}
	}
	if len(tried) != 3 || tried[0] == tried[1] || tried[1] == tried[2] {
		t.Errorf("it tried the ports %v", tried)
	}

	tried = nil
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	p.opens["given"] = p.opens["late"]
	if err := k.Run(t.Context(), describe("given", fmt.Sprintf("  proxyPort: %d\n", port)), false, time.Minute, nil); code(err) != CodeTaken || len(tried) != 1 {
		t.Errorf("%v after the ports %v", err, tried)
	}
}

// TestPortRange: a door has a port of those that the user's defaults name, where no flag says
// another; where none of them is free, that is said with them.
func TestPortRange(t *testing.T) {
	k := keep(t, &played{}, t.TempDir())
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	k.Ports = func() (int, int, error) { return port, port, nil }
	if err := k.Run(t.Context(), describe("one"), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, k, "one").Port; got != port {
		t.Errorf("the port is %d, and not %d", got, port)
	}
	want := fmt.Sprintf("no port from %d to %d is free", port, port)
	if err := k.Run(t.Context(), describe("two"), false, time.Minute, nil); code(err) != CodeTaken || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	k.Ports = func() (int, int, error) { return 0, 0, nil }
	if err := k.Run(t.Context(), describe("two"), false, time.Minute, nil); err != nil || listed(t, k, "two").Port < firstPort {
		t.Errorf("%v", err)
	}
	k.Ports = func() (int, int, error) { return 0, 0, errors.New("workloads.yaml: ports: what is wrong") }
	if err := k.Run(t.Context(), describe("three"), false, time.Minute, nil); code(err) != CodeInvalid || !strings.Contains(err.Error(), "what is wrong") {
		t.Errorf("%v", err)
	}
}

// What a server prints while it starts is told, and what waits gives up in time.
func TestWaiting(t *testing.T) {
	p := &played{}
	k := keep(t, p, t.TempDir())
	release := make(chan bool)
	p.set(func() {
		p.meets = map[string]func(context.Context) error{"slow": func(context.Context) error {
			p.mu.Lock()
			lines := p.open["slow"].Lines
			p.mu.Unlock()
			lines(Line{Time: time.Now(), Source: "stderr", Text: "fetching slow things"})
			<-release
			return nil
		}}
		p.looks = map[string]Look{"slow": {State: Starting, Ended: "exit 3", Stderr: []string{"no luck"}}}
	})
	var said []string
	err := k.Run(t.Context(), describe("slow"), false, time.Second, func(e Event) { said = append(said, e.Text) })
	if code(err) != CodeStart || !strings.Contains(err.Error(), "goes on; its last process ended: exit 3\n  no luck") || !slices.Contains(said, "slow: stderr: fetching slow things") {
		t.Errorf("%v, %q", err, said)
	}
	if d, err := k.Inspect(t.Context(), "slow"); err != nil || d.Status.Status != Starting || d.Failure != "a process of it ended: exit 3" || d.Next != "weir logs slow" {
		t.Errorf("%+v, %v", d, err)
	}
	close(release)
	edgetest.Until(t, "the start", func() bool { return listed(t, k, "slow").Status == Running })
	if d, err := k.Inspect(t.Context(), "slow"); err != nil || d.Failure != "" {
		t.Errorf("once it runs: %+v, %v", d, err)
	}
}

// A start that goes on when nobody waits for it any longer, and fails then, leaves a workload that
// says why.
func TestWaitingForAFailure(t *testing.T) {
	p := &played{}
	k := keep(t, p, t.TempDir())
	release := make(chan bool)
	p.set(func() {
		p.meets = map[string]func(context.Context) error{"slow": func(context.Context) error {
			<-release
			return &Error{Code: CodePull, Message: "the registry has no such image"}
		}}
	})
	if err := k.Run(t.Context(), describe("slow"), false, 50*time.Millisecond, nil); code(err) != CodeStart || !strings.Contains(err.Error(), "goes on") {
		t.Errorf("%v", err)
	}
	close(release)
	edgetest.Until(t, "the end of the start", func() bool { return listed(t, k, "slow").Status == Failed })
	if w := listed(t, k, "slow"); !strings.Contains(w.Reason, "no such image") {
		t.Errorf("%+v", w)
	}
	if err := k.Run(t.Context(), describe("slow"), true, time.Minute, nil); code(err) != CodePull {
		t.Errorf("%v", err)
	}
	if all, err := k.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("one that somebody waits for is kept: %+v, %v", all, err)
	}
}

// What somebody removed from the disk can be removed, and replaced.
func TestDirectoryThatIsGone(t *testing.T) {
	k := keep(t, &played{}, t.TempDir())
	for what, f := range map[string]func(name string) error{
		"rm":            func(name string) error { return k.Remove(t.Context(), name, RemoveOptions{}, nil) },
		"run --replace": func(name string) error { return k.Run(t.Context(), describe(name), true, time.Minute, nil) },
	} {
		if err := k.Run(t.Context(), describe("gone"), false, time.Minute, nil); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(k.Paths.Workloads(), "gone")); err != nil {
			t.Fatal(err)
		}
		if err := f("gone"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if all, err := k.List(t.Context()); err != nil || len(all) != strings.Count(what, "replace") {
			t.Errorf("after %s: %+v, %v", what, all, err)
		}
		_ = k.Remove(t.Context(), "gone", RemoveOptions{Force: true}, nil)
	}
}

// What takes a name in the foreground is judged before the one that has it makes room.
func TestForegroundEvicts(t *testing.T) {
	var evicted []string
	k, err := Open(KeeperOptions{Paths: pathsAt(t, t.TempDir()), Edge: &played{}, Log: slog.New(slog.DiscardHandler), Boot: "one", Foreground: true, Evict: func(_ context.Context, name string) error {
		evicted = append(evicted, name)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := fmt.Sprintf("  proxyPort: %d\n", ln.Addr().(*net.TCPAddr).Port)
	if err := k.Run(t.Context(), describe("time", port), true, time.Minute, nil); code(err) != CodeTaken || len(evicted) > 0 {
		t.Errorf("a port that is taken: %v, %q makes room", err, evicted)
	}
	if err := k.Run(t.Context(), describe("time", "  groupRef: {name: nowhere}\n"), true, time.Minute, nil); err == nil || len(evicted) > 0 {
		t.Errorf("a group that is nowhere: %v, %q makes room", err, evicted)
	}
	if err := k.Run(t.Context(), describe("time"), true, time.Minute, nil); err != nil || !slices.Equal(evicted, []string{"time"}) {
		t.Errorf("%v, %q makes room", err, evicted)
	}
}

// V45: of two managers one is.
func TestTwoManagers(t *testing.T) {
	dir := t.TempDir()
	keep(t, &played{}, dir)
	if _, err := Open(KeeperOptions{Paths: pathsAt(t, dir), Edge: &played{}, Log: slog.Default()}); !errors.Is(err, ErrManaged) {
		t.Errorf("%v", err)
	}
	if !Managed(pathsAt(t, dir)) || Managed(pathsAt(t, t.TempDir())) {
		t.Error("whether one runs is not seen")
	}
}

// noting is a log that a keeper has a line of each record of, as that of a manager.
type noting struct {
	slog.Handler
	k *Keeper
}

func (n *noting) Enabled(context.Context, slog.Level) bool { return true }
func (n *noting) Handle(_ context.Context, r slog.Record) error {
	n.k.Note("time", r.Message)
	return nil
}

// A state that cannot be written, as with a full disk, is told in the log of the workload, and
// stops nothing.
func TestStateThatCannotBeWritten(t *testing.T) {
	k := keep(t, &played{}, t.TempDir())
	k.Log = slog.New(&noting{slog.DiscardHandler, k})
	if err := k.Run(t.Context(), describe("time"), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	w := k.all["time"]
	if err := errors.Join(os.Remove(w.folder.status()), os.Mkdir(w.folder.status(), 0o700)); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- k.Stop(t.Context(), "time", 0, nil) }()
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(edgetest.Patience):
		t.Fatal("it does not stop")
	}
	if text, err := os.ReadFile(filepath.Join(w.folder.path, "edge.log")); err != nil || !strings.Contains(string(text), "the state of a workload is not written") {
		t.Errorf("%v: %s", err, text)
	}
}

// A workload is stopped also where that cannot be kept, which is said.
func TestStopThatCannotBeKept(t *testing.T) {
	k := keep(t, &played{}, t.TempDir())
	if err := k.Run(t.Context(), describe("time"), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	w := k.all["time"]
	if err := errors.Join(os.Remove(w.folder.manifest()), os.Mkdir(w.folder.manifest(), 0o700)); err != nil {
		t.Fatal(err)
	}
	err := k.Stop(t.Context(), "time", 0, nil)
	if code(err) != CodeFault || !strings.Contains(err.Error(), "time is stopped, and that is not kept") {
		t.Errorf("%v", err)
	}
	if now := w.state(); now != Stopped || w.wanted() {
		t.Errorf("it is %s, and wanted: %v", now, w.wanted())
	}
	if err := os.Remove(w.folder.manifest()); err != nil { // there is room again
		t.Fatal(err)
	}
	if err := k.Stop(t.Context(), "time", 0, nil); err != nil {
		t.Errorf("stopped again: %v", err)
	}
	if text, err := os.ReadFile(w.folder.manifest()); err != nil || wishOf(text) != Stopped {
		t.Errorf("what is kept: %v, %s", err, text)
	}
}

// A server that rests until it is called runs, and why it has no process is told.
func TestServerAtRest(t *testing.T) {
	const why = "ended: exit 0; the next call starts it"
	k := keep(t, &played{looks: map[string]Look{"time": {State: Running, Reason: why}}}, t.TempDir())
	if err := k.Run(t.Context(), describe("time"), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	k.all["time"].tend(time.Now())
	if s := listed(t, k, "time"); s.Status != Running || s.StatusContext != why {
		t.Errorf("%+v", s)
	}
}

// A workload whose host takes long to be looked up holds no other command up.
func TestSlowHost(t *testing.T) {
	k := keep(t, &played{}, t.TempDir())
	asked, release := make(chan bool, 100), make(chan struct{})
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		asked <- true
		<-release
		return nil, errors.New("no server answers")
	}}
	var group sync.WaitGroup
	free := sync.OnceFunc(func() { close(release) })
	defer func() {
		free()
		group.Wait()
		net.DefaultResolver = before
	}()
	ran, listed := make(chan error, 1), make(chan error, 1)
	group.Go(func() { ran <- k.Run(t.Context(), describe("time", "  host: slow.example\n"), false, time.Minute, nil) })
	edgetest.Receive(t, asked, "a question to the resolver")
	group.Go(func() {
		_, err := k.List(t.Context())
		listed <- err
	})
	if err := edgetest.Receive(t, listed, "the list"); err != nil {
		t.Error(err)
	}
	free()
	var e *Error
	if err := edgetest.Receive(t, ran, "the end of the run"); !errors.As(err, &e) || e.Code != CodeInvalid || e.Field != "--host" {
		t.Errorf("%+v, %v", e, err)
	}
}

// What runs in the foreground is not started a second time when it is looked after.
func TestForegroundStartsOnce(t *testing.T) {
	e := &played{}
	k, err := Open(KeeperOptions{Paths: pathsAt(t, t.TempDir()), Edge: e, Log: slog.New(slog.DiscardHandler), Boot: "one", Foreground: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	if err := k.Run(t.Context(), describe("time"), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	k.Begin()
	if err := k.Start(t.Context(), "time", time.Minute, nil); err != nil { // after a start under way
		t.Fatal(err)
	}
	if said := e.said(); strings.Count(strings.Join(said, "\n"), "meet time") != 1 {
		t.Errorf("%q", said)
	}
}

// A process that was killed with a workload in its foreground holds neither its name nor its port.
func TestForegroundKilled(t *testing.T) {
	dir := t.TempDir()
	open := func() *Keeper {
		k, err := Open(KeeperOptions{Paths: pathsAt(t, dir), Edge: &played{}, Log: slog.New(slog.DiscardHandler), Boot: "one", Foreground: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Close)
		return k
	}
	port := "  proxyPort: 21999\n"
	killed := open()
	if err := killed.Run(t.Context(), describe("time", port), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	if err := open().Run(t.Context(), describe("other", port), false, time.Minute, nil); code(err) != CodeTaken {
		t.Errorf("while it runs: %v", err)
	}
	managed := keep(t, &played{}, dir)
	want := fmt.Sprintf("runs in the foreground of the process %d", os.Getpid())
	if d, err := managed.Inspect(t.Context(), "time"); err != nil || d.Status.Status != Running || d.StatusContext != want || d.Reason != want {
		t.Errorf("the manager says of it: %v, %+v", err, d)
	}
	if err := managed.Run(t.Context(), describe("kept"), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	if err := open().Run(t.Context(), describe("kept"), false, time.Minute, nil); code(err) != CodeTaken || !strings.Contains(err.Error(), fmt.Sprintf("kept is there already: the process %d keeps it", os.Getpid())) {
		t.Errorf("beside the manager: %v", err)
	}
	killed.all["time"].folder.close() // as its end does
	again := open()
	if err := again.Run(t.Context(), describe("time", port), false, time.Minute, nil); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// sweeps is an edge that another process begins to use while it is asked what is left over.
type sweeps struct {
	*played
	sweep func(unwanted func(name string) bool)
}

func (s sweeps) Sweep(unwanted func(name string) bool) { s.sweep(unwanted) }

// Other processes are told what holds a workload in the foreground.
func TestForegroundIsSeen(t *testing.T) {
	dir := t.TempDir()
	look := map[string]Look{"time": {State: Running, Sandbox: "none", Open: true}}
	one, err := Open(KeeperOptions{Paths: pathsAt(t, dir), Edge: &played{looks: look}, Log: slog.New(slog.DiscardHandler), Boot: "one", Foreground: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.Close)
	if err := one.Run(t.Context(), describe("time"), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	if all, err := keep(t, &played{}, dir).List(t.Context()); err != nil || len(all) != 1 || all[0].Sandbox != "none" || !readRecord(filepath.Join(pathsAt(t, dir).Workloads(), "time")).Open {
		t.Errorf("%+v, %v", all, err)
	}
}

// What is left over of a workload is not that of one which begins in the foreground of another
// process at the same time.
func TestForegroundIsNotLeftOver(t *testing.T) {
	dir := t.TempDir()
	before := keep(t, &played{}, dir)
	if err := before.Run(t.Context(), describe("kept"), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	before.Close()
	other, err := Open(KeeperOptions{Paths: pathsAt(t, dir), Edge: &played{}, Log: slog.New(slog.DiscardHandler), Boot: "one", Foreground: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	e := sweeps{&played{}, func(unwanted func(name string) bool) {
		if err := other.Run(t.Context(), describe("early"), false, time.Minute, nil); err != nil {
			t.Error(err)
		}
		for name, want := range map[string]bool{"early": false, "kept": true, "gone": true, "../kept": true} {
			if unwanted(name) != want {
				t.Errorf("%s is unwanted: %v", name, !want)
			}
		}
	}}
	k, err := Open(KeeperOptions{Paths: pathsAt(t, dir), Edge: e, Log: slog.New(slog.DiscardHandler), Boot: "one"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
}

// A process that is killed while it begins to keep a workload in its foreground leaves nothing
// that a manager would keep.
func TestForegroundIsKnownFromItsBeginning(t *testing.T) {
	real := syncFile
	t.Cleanup(func() { syncFile = real })
	var early []string
	syncFile = func(f *os.File) error {
		if text, err := os.ReadFile(f.Name()); err == nil && strings.Contains(string(text), "kind: MCPServer") && !readRecord(filepath.Dir(f.Name())).Foreground {
			early = append(early, f.Name())
		}
		return real(f)
	}
	k, err := Open(KeeperOptions{Paths: pathsAt(t, t.TempDir()), Edge: &played{}, Log: slog.New(slog.DiscardHandler), Boot: "one", Foreground: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	if err := k.Run(t.Context(), describe("time"), false, time.Minute, nil); err != nil || len(early) > 0 {
		t.Errorf("%v; written before it is known to be of the foreground: %v", err, early)
	}
}

// A workload of a manager that does not run makes room in the foreground where that is asked for.
func TestForegroundReplaces(t *testing.T) {
	dir := t.TempDir()
	m := keep(t, &played{}, dir)
	if err := m.Run(t.Context(), describe("time", "  proxyPort: 21999\n"), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	m.Close()
	k, err := Open(KeeperOptions{Paths: pathsAt(t, dir), Edge: &played{}, Log: slog.New(slog.DiscardHandler), Boot: "one", Foreground: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	if err := k.Run(t.Context(), describe("time"), false, time.Minute, nil); code(err) != CodeTaken {
		t.Errorf("without replace: %v", err)
	}
	if err := k.Run(t.Context(), describe("time", "  proxyPort: 21999\n"), true, time.Minute, nil); err != nil {
		t.Errorf("with it: %v", err)
	}
}

// After a start of the system what is to run runs again, at the same address, 8 at a time.
func TestReboot(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	now, most := 0, 0
	p := &played{meets: map[string]func(context.Context) error{}}
	for i := range 20 {
		p.meets[fmt.Sprint("w", i)] = func(context.Context) error {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(5 * time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			return nil
		}
	}
	k := keep(t, p, dir)
	urls := map[string]string{}
	for i := range 20 {
		name := fmt.Sprint("w", i)
		if err := k.Run(t.Context(), describe(name), false, time.Minute, nil); err != nil {
			t.Fatal(err)
		}
		urls[name] = listed(t, k, name).URL
	}
	if err := k.Stop(t.Context(), "w7", 0, nil); err != nil {
		t.Fatal(err)
	}
	created := listed(t, k, "w7").CreatedAt
	k.Close()
	if r := readRecord(filepath.Join(k.Paths.Workloads(), "w1")); r.State != Unknown || r.Boot != "one" {
		t.Errorf("%+v", r)
	}
	p.set(func() { p.open = nil })
	again, err := Open(KeeperOptions{Paths: k.Paths, Edge: p, Log: k.Log, Boot: "two"})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if s := listed(t, again, "w1"); s.Status != Unknown {
		t.Errorf("before anybody has looked it is %+v", s)
	}
	most = 0
	again.Begin()
	for name, url := range urls {
		want := Running
		if name == "w7" {
			want = Stopped
		}
		edgetest.Until(t, name, func() bool { return listed(t, again, name).Status == want })
		if s := listed(t, again, name); want == Running && s.URL != url {
			t.Errorf("%s was at %s, and is at %s", name, url, s.URL)
		}
	}
	if s := listed(t, again, "w7"); !s.CreatedAt.Equal(created) {
		t.Errorf("it was created %s, and then %s", created, s.CreatedAt)
	}
	if most > startsAtOnce {
		t.Errorf("%d started at once, and %d are the most", most, startsAtOnce)
	}
}

// What becomes of a workload is followed: one that is unwell is started again, one that
// ends again and again rests for a minute, and a clock that goes back changes nothing.
func TestSupervision(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := &played{looks: map[string]Look{}, meets: map[string]func(context.Context) error{}}
		k := keep(t, p, dir)
		k.Begin()
		if err := k.Run(t.Context(), describe("w"), false, time.Minute, nil); err != nil {
			t.Fatal(err)
		}
		meets := func() (n int) {
			for _, line := range p.said() {
				if line == "meet w" {
					n++
				}
			}
			return n
		}

		// 1. Unwell, and well again.
		p.set(func() {
			p.looks["w"] = Look{State: Unhealthy, Reason: "restarting, ended: signal killed"}
			p.meets["w"] = func(context.Context) error {
				time.Sleep(3 * time.Second)
				p.set(func() { p.looks["w"] = Look{} })
				return nil
			}
		})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := listed(t, k, "w"); s.Status != Unhealthy || s.Reason == "" {
			t.Errorf("%+v", s)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if s := listed(t, k, "w"); s.Status != Running || s.Reason != "" || meets() != 2 {
			t.Errorf("%+v, met %d times", s, meets())
		}

		// 2. It ends again and again: a try a minute.
		p.set(func() {
			p.looks["w"] = Look{State: Failed, Reason: "ends again and again", Stderr: []string{"sorry"}}
			p.meets["w"] = func(context.Context) error { return &Error{Code: CodeStart, Message: "exit 1"} }
		})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if s := listed(t, k, "w"); s.Status != Failed || meets() != 2 {
			t.Errorf("%+v, met %d times", s, meets())
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := meets(); n < 6 || n > 8 {
			t.Errorf("tried %d times in 5 minutes", n-2)
		}
		p.set(func() { p.looks["w"], p.meets["w"] = Look{}, nil })
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := listed(t, k, "w"); s.Status != Running {
			t.Errorf("%+v", s)
		}
		k.Close()
	})
}

// A remote server that refuses its credential is tried again every 10 minutes for a day.
func TestRefusedCredential(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p := &played{looks: map[string]Look{}, meets: map[string]func(context.Context) error{}}
		k := keep(t, p, dir)
		k.Begin()
		remote := []byte(strings.Replace(string(describe("r")), "MCPServer", "MCPRemoteProxy", 1))
		if err := k.Run(t.Context(), remote, false, time.Minute, nil); err != nil {
			t.Fatal(err)
		}
		var tries atomic.Int64
		p.set(func() {
			p.looks["r"] = Look{State: AuthRetrying, Reason: "401"}
			p.meets["r"] = func(context.Context) error { tries.Add(1); return &Error{Code: CodeLogin, Message: "401"} }
		})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if s := listed(t, k, "r"); s.Status != AuthRetrying || tries.Load() != 0 {
			t.Errorf("%+v, %d tries", s, tries.Load())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := listed(t, k, "r"); s.Status != AuthRetrying || tries.Load() < 5 || tries.Load() > 6 {
			t.Errorf("%+v, %d tries in an hour", s, tries.Load())
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if s := listed(t, k, "r"); s.Status != Unauthenticated {
			t.Errorf("%+v", s)
		}
		p.set(func() { p.looks["r"], p.meets["r"] = Look{}, nil })
		if err := k.Start(t.Context(), "r", time.Minute, nil); err != nil || listed(t, k, "r").Status != Running {
			t.Errorf("%v", err)
		}
		k.Close()
	})
}

// A state directory that cannot be made is told with what to do about it.
func TestStateThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var e *Error
	if _, err := Open(KeeperOptions{Paths: Paths{State: filepath.Join(file, "weir")}}); !errors.As(err, &e) || !strings.Contains(e.Message, file) || !strings.Contains(e.Next, "WEIR_HOME") {
		t.Errorf("%v", err)
	}
}

// removing is an edge that is told of what was removed.
type removing struct {
	*played
	removed func(name string)
	left    error
}

func (r *removing) Removed(name string) error {
	r.removed(name)
	return r.left
}

// What was kept for a workload goes before another one has its name.
func TestNameIsFreeAtTheEnd(t *testing.T) {
	e := &removing{played: &played{}}
	k, err := Open(KeeperOptions{Paths: pathsAt(t, t.TempDir()), Edge: e, Log: slog.New(slog.DiscardHandler), Version: "test", Boot: "one"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	told := 0
	e.removed = func(string) {
		told++
		if err := k.Run(t.Context(), describe("a"), false, time.Minute, nil); code(err) != CodeTaken {
			t.Errorf("while it is removed: %v", err)
		}
	}
	if err := k.Run(t.Context(), describe("a"), false, time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	e.left = errors.New("its volumes: the engine is away")
	var said []string
	if err := k.Remove(t.Context(), "a", RemoveOptions{}, func(e Event) { said = append(said, e.Text) }); err != nil || told != 1 {
		t.Fatal(err, told)
	}
	if !slices.Contains(said, "what it kept may still be there: its volumes: the engine is away") {
		t.Errorf("what is left is not told: %q", said)
	}
	if err := k.Run(t.Context(), describe("a"), false, time.Minute, nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if err := k.Remove(t.Context(), "a", RemoveOptions{KeepVolumes: true}, nil); err != nil || told != 1 {
		t.Errorf("what another one takes the place of: %v, told %d times", err, told)
	}
}
