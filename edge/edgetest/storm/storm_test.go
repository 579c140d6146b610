package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/edgetest/program"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case asServer:
			play()
			return
		case asHTTP:
			playHTTP()
		}
	}
	edgetest.Main(m, func() { _ = os.RemoveAll(builtIn) })
}

// TestSmoke runs two rows, scaled down, against the real program.
func TestSmoke(t *testing.T) {
	edgetest.Need(t, runtime.GOOS == "linux", "storm reads the kernel's own tables, which are Linux's")
	weir, err := program.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var out, said bytes.Buffer
	if err := command(t.Context(), []string{"--weir", weir, "--quick", "--json", "--count", "3", "kill9"}, &out, &said); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), said.String())
	}
	if err := command(t.Context(), []string{"--weir", weir, "--quick", "--json", "--count", "200", "crosstalk"}, &out, &said); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), said.String())
	}
	d := json.NewDecoder(&out)
	for _, name := range []string{"kill9", "crosstalk"} {
		var one struct {
			outcome
			OK bool `json:"ok"`
		}
		if err := d.Decode(&one); err != nil {
			t.Fatal(err)
		}
		if one.Name != name || !one.OK || len(one.Figures) < 3 || one.Scale == "" {
			t.Errorf("%+v", one)
		}
	}
}

// TestG28 runs the row of the audit log, scaled down: every request leaves one
// record, and where the log cannot be written each lost one is counted.
func TestG28(t *testing.T) {
	edgetest.Need(t, runtime.GOOS == "linux", "storm reads the kernel's own tables, which are Linux's")
	var out bytes.Buffer
	if err := command(t.Context(), []string{"--quick", "--count", "3000", "audit"}, &out, io.Discard); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if n := strings.Count(out.String(), "  ok "); n != 6 {
		t.Errorf("%d bars:\n%s", n, out.String())
	}
}

// TestG32Processes runs the row of local processes, scaled down: whoever calls gets on or is told
// why not, a server at work is left alone, and nothing is left over.
func TestG32Processes(t *testing.T) {
	edgetest.Need(t, runtime.GOOS == "linux", "storm reads the kernel's own tables, which are Linux's")
	_, err := exec.LookPath("bwrap")
	edgetest.Need(t, err == nil, "bubblewrap is not installed")
	var out bytes.Buffer
	if err := command(t.Context(), []string{"--quick", "--count", "3", "processes"}, &out, io.Discard); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if n := strings.Count(out.String(), "  ok "); n != 8 {
		t.Errorf("%d bars:\n%s", n, out.String())
	}
}

// TestV31ManagerKilled runs the row of the manager, scaled down: killed with calls under way
// it comes back with all workloads, nothing is left over, and no call is run twice.
func TestV31ManagerKilled(t *testing.T) {
	edgetest.Need(t, runtime.GOOS == "linux", "storm reads the kernel's own tables, which are Linux's")
	_, err := exec.LookPath("bwrap")
	edgetest.Need(t, err == nil, "bubblewrap is not installed")
	var out bytes.Buffer
	if err := command(t.Context(), []string{"--quick", "--count", "3", "manager"}, &out, io.Discard); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if n := strings.Count(out.String(), "  ok "); n != 7 {
		t.Errorf("%d bars:\n%s", n, out.String())
	}
}

// TestG14 runs the row of the provider that is away, scaled down: tokens are
// taken without it, an edge starts without it, and both are well when it is back.
func TestG14(t *testing.T) {
	edgetest.Need(t, runtime.GOOS == "linux", "storm reads the kernel's own tables, which are Linux's")
	var out bytes.Buffer
	if err := command(t.Context(), []string{"--quick", "--rate", "50", "--length", "1s", "keysaway"}, &out, io.Discard); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if n := strings.Count(out.String(), "  ok "); n != 4 {
		t.Errorf("%d bars:\n%s", n, out.String())
	}
}

// TestG21Workflows runs the row of hostile workflows, scaled down: each ends as it must, those
// that wait for their clients too, and memory comes back.
func TestG21Workflows(t *testing.T) {
	edgetest.Need(t, runtime.GOOS == "linux", "storm reads the kernel's own tables, which are Linux's")
	var out bytes.Buffer
	if err := command(t.Context(), []string{"--quick", "--count", "1", "--length", "1s", "workflows"}, &out, io.Discard); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if n := strings.Count(out.String(), "  ok "); n != 6 {
		t.Errorf("%d bars:\n%s", n, out.String())
	}
}

// TestQ07Storm runs the row of embedding services that fail, scaled down: every question is
// answered, in time, and the cause is named.
func TestQ07Storm(t *testing.T) {
	edgetest.Need(t, runtime.GOOS == "linux", "storm reads the kernel's own tables, which are Linux's")
	var out bytes.Buffer
	if err := command(t.Context(), []string{"--quick", "optimizer"}, &out, io.Discard); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if n := strings.Count(out.String(), "  ok "); n != 81 {
		t.Errorf("%d bars:\n%s", n, out.String())
	}
}

// A log with a record missing, or one twice, is noticed.
func TestReadAudit(t *testing.T) {
	const line = `{"msg":"audit_event","outcome":"success","source":{"extra":{"request_id":"n-7"}}}` + "\n"
	of := map[int64][]string{}
	if lost, err := readAudit(strings.NewReader(line+`{"msg":"audit_lost","lost":12}`+"\n"+line), of); lost != 12 || err != nil || len(of[7]) != 2 {
		t.Errorf("%d lost, %v, %v", lost, err, of)
	}
	for _, bad := range []string{"{", `{"msg":"audit_event","source":{"extra":{"request_id":"other"}}}`} {
		if _, err := readAudit(strings.NewReader(bad+"\n"), of); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

// TestMissedBar proves that a row which misses its bar ends the program with an
// error: an edge without the flag that the row needs, and one that is none.
func TestMissedBar(t *testing.T) {
	edgetest.Need(t, runtime.GOOS == "linux", "storm reads the kernel's own tables, which are Linux's")
	var out bytes.Buffer
	err := command(t.Context(), []string{"--weir", "/bin/false", "--quick", "kill9"}, &out, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "missed: kill9") || !strings.Contains(out.String(), "MISSED") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestCommandLines(t *testing.T) {
	for _, args := range [][]string{{}, {"nothing"}, {"drain", "nothing"}, {"--rate", "-1", "drain"}, {"--limit", "0s", "drain"}, {"--length", "1h", "keysaway"}, {"--no-such-flag", "drain"}} {
		if err := command(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
	for _, c := range []struct {
		names []string
		want  int
		all   bool
	}{{[]string{"drain"}, 1, false}, {[]string{"g02", "kill9"}, 2, false}, {[]string{"drain", "all"}, len(rows()), true}} {
		chosen, all, err := choose(c.names)
		if err != nil || len(chosen) != c.want || all != c.all {
			t.Errorf("%q: %d rows, all %t, %v", c.names, len(chosen), all, err)
		}
	}
}

func TestScale(t *testing.T) {
	for _, c := range []struct {
		name  string
		said  int
		quick bool
		n     int
		scale string
	}{
		{"goal", 0, false, 100, ""},
		{"said", 7, true, 7, "7 of 100 things"},
		{"quick", 0, true, 10, "10 of 100 things"},
	} {
		s := &storm{options: options{quick: c.quick}}
		if n := s.size(c.said, 100, 10, "things"); n != c.n || s.outcome.Scale != c.scale {
			t.Errorf("%s: %d, %q", c.name, n, s.outcome.Scale)
		}
	}
	s := &storm{options: options{quick: true}}
	s.span(0, time.Minute, time.Second, "load")
	s.span(0, time.Minute, time.Second, "load")
	if s.outcome.Scale != "1s of 1m0s load" {
		t.Errorf("a scale is said once: %q", s.outcome.Scale)
	}
}

func TestSteadyRate(t *testing.T) {
	for _, c := range []struct {
		ceiling, said, want int
		quick               bool
	}{{10_000, 0, 2000, false}, {1000, 0, 700, false}, {1000, 900, 900, false}, {10_000, 0, 500, true}, {1, 0, 1, false}} {
		s := &storm{options: options{rate: c.said, quick: c.quick}}
		if got := s.steady(c.ceiling, 2000); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestVerdict(t *testing.T) {
	good, bad := figure{"5 ms", "10 ms", true}, figure{"50 ms", "10 ms", false}
	for _, c := range []struct {
		name string
		o    outcome
		ok   bool
	}{
		{"every bar reached", outcome{Figures: []figure{good, good}}, true},
		{"one missed", outcome{Figures: []figure{good, bad}}, false},
		{"an error", outcome{Figures: []figure{good}, Error: "it fell over"}, false},
		{"nothing seen", outcome{}, false},
	} {
		if c.o.ok() != c.ok || strings.Contains(c.o.text(), "MISSED") == c.ok {
			t.Errorf("%s: %s", c.name, c.o.text())
		}
	}
	o := outcome{Row: "G00", Name: "x", Scale: "1 of 2", Figures: []figure{good, bad}, Notes: []string{"a note"}}
	want := "G00 x: MISSED  (scaled: 1 of 2)\n  ok      5 ms  (bar: 10 ms)\n  MISSED  50 ms  (bar: 10 ms)\n          a note\n"
	if got := o.text(); got != want {
		t.Errorf("%q", got)
	}
	var table bytes.Buffer
	if err := printTable(&table, []outcome{o}); err != nil || !strings.Contains(table.String(), "MISSED") {
		t.Errorf("%v: %s", err, table.String())
	}
}

func TestTally(t *testing.T) {
	var c tally
	c.count(1, time.Second, nil)
	c.count(2, 0, kit.ErrBusy)
	c.count(3, 0, kit.ErrNoSession)
	c.count(4, 0, kit.ErrWrong)
	c.count(5, 0, io.EOF)
	c.count(6, 0, errors.Join(io.EOF))
	if c.right.Load() != 1 || c.busy.Load() != 1 || c.ended.Load() != 1 || len(c.wrong) != 1 || len(c.lost) != 2 || c.failed() != 4 {
		t.Errorf("%d right, %d busy, %d ended, %d wrong, %d lost, %d failed", c.right.Load(), c.busy.Load(), c.ended.Load(), len(c.wrong), len(c.lost), c.failed())
	}
	l := newLedger()
	l.arrived(&kit.Task{Work: kit.Work{Text: "5"}})
	l.arrived(&kit.Task{Work: kit.Work{Text: "no number"}})
	if ran, unseen := l.ran(c.lost); ran != 1 || unseen != 1 {
		t.Errorf("%d ran, %d unseen", ran, unseen)
	}
}

func TestReadinessInOrder(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name                       string
		notReady, refused, readyAt time.Time
		ok                         bool
	}{
		{"503 first", now, now.Add(time.Millisecond), now.Add(-time.Second), true},
		{"503 seen after the refusal, and 200 asked for before it", now.Add(time.Millisecond), now, now.Add(-time.Millisecond), true},
		{"200 after the refusal", now.Add(time.Second), now, now.Add(time.Millisecond), false},
		{"never 503", time.Time{}, now, now, false},
		{"never refused", now, time.Time{}, now, true},
	} {
		if got := ordered(c.notReady, c.refused, c.readyAt); got.ok != c.ok {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestRecovered(t *testing.T) {
	at := time.Now()
	shots := []kit.Shot{
		{Due: at, Took: 20 * time.Millisecond},
		{Due: at.Add(time.Second), Took: kit.GoodWithin + 1},
		{Due: at.Add(2 * time.Second), Err: kit.ErrBusy},
		{Due: at.Add(3 * time.Second), Err: io.EOF},
		{Due: at.Add(5 * time.Second), Took: 20 * time.Millisecond},
	}
	if d := recovered(shots, at); d != 3*time.Second {
		t.Errorf("recovered after %s", d)
	}
	if d := recovered(shots[:4], at); d != -1 {
		t.Errorf("one that never recovers did so after %s", d)
	}
	if d := recovered(nil, at); d != -1 {
		t.Errorf("nothing was due, and all was well after %s", d)
	}
}

func TestCutWatch(t *testing.T) {
	a, b := netip.MustParseAddrPort("127.0.1.1:1"), netip.MustParseAddrPort("127.0.1.2:1") // ports alone do not tell clients apart
	start := time.Now()
	w := &cutWatch{all: map[netip.AddrPort]*watched{a: {stuck: start}, b: {stuck: start}}}
	second := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	look := func(n, open int, now map[netip.AddrPort]kit.Socket) {
		t.Helper()
		if got := w.look(now, second(n)); got != open {
			t.Errorf("%d s: %d open, not %d", n, got, open)
		}
	}
	look(1, 2, map[netip.AddrPort]kit.Socket{a: {State: kit.Established, Unsent: 1}, b: {State: kit.Established, Unsent: 5}})
	look(2, 2, map[netip.AddrPort]kit.Socket{a: {State: kit.Established, Unsent: 2}, b: {State: kit.Established, Unsent: 5}})
	look(9, 1, map[netip.AddrPort]kit.Socket{a: {State: kit.Established, Unsent: 2}})
	look(12, 0, map[netip.AddrPort]kit.Socket{a: {State: 4, Unsent: 2}})
	if cut, latest := w.result(); cut != 2 || latest != 10*time.Second {
		t.Errorf("%d cut, %s", cut, latest)
	}
}

func TestPulse(t *testing.T) {
	start, a, b := time.Now(), &kit.Events{}, &kit.Events{}
	p := &pulse{}
	for _, one := range []struct {
		in *kit.Events
		at time.Duration
	}{{a, 0}, {b, 0}, {a, 15}, {b, 20}, {a, 30}} {
		p.beat(one.in, start.Add(one.at))
	}
	if got := p.longest(start.Add(31)); got != 20 {
		t.Errorf("between two: %d", got)
	}
	if got := p.longest(start.Add(60)); got != 40 {
		t.Errorf("up to now: %d", got)
	}
}

func TestDigests(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	digest := func() []string {
		all, err := digests(dir)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	write("a", "1")
	write("b", "2")
	before := digest()
	if n := different(before, digest()); n != 0 {
		t.Errorf("%d of the same differ", n)
	}
	write("b", "3")
	write("c", "4")
	if n := different(before, digest()); n != 2 {
		t.Errorf("%d differ, not the changed and the new one", n)
	}
	if n := different(digest(), before[:1]); n != 2 {
		t.Errorf("%d differ, not the two that are gone", n)
	}
}
