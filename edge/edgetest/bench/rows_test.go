package main

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// TestKeptBelowTheMarker writes a page again and again: what is measured is
// new each time, what was written by hand stays.
func TestKeptBelowTheMarker(t *testing.T) {
	path := filepath.Join(t.TempDir(), "BENCHMARKS.md")
	page := func() string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	write := func(text string) {
		t.Helper()
		if err := writePage(path, text); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	if got, want := page(), "first\n\n"+marker+"\n"; got != want {
		t.Fatalf("%q, want %q", got, want)
	}
	const hand = "## By hand\n\nKept.\n"
	if err := os.WriteFile(path, []byte(page()+"\n"+hand), 0o644); err != nil {
		t.Fatal(err)
	}
	write("second\n")
	write("third\n")
	if got, want := page(), "third\n\n"+marker+"\n\n"+hand; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := writePage(filepath.Join(path, "none"), "x"); err == nil {
		t.Error("a page was written below a file")
	}
}

func TestManifests(t *testing.T) {
	one := kit.PlanOf("a:1").Text()
	many := kit.Plan{Backends: []string{"a:1", "b:2"}, Prefixed: true, Incoming: "{type: oidc}"}.Text()
	for _, c := range []struct{ text, want string }{
		{one, "incomingAuth: {type: anonymous}"}, {one, "conflictResolution: priority"}, {one, "url: http://a:1/mcp,"},
		{many, "incomingAuth: {type: oidc}"}, {many, "conflictResolution: prefix"}, {many, "{name: backend-2, url: http://b:2/mcp,"},
	} {
		if !strings.Contains(c.text, c.want) {
			t.Errorf("no %q in\n%s", c.want, c.text)
		}
	}
	if got := prefixes(8, 2); !slices.Equal(got[3:5], []string{"backend-1_", "backend-2_"}) || len(got) != 8 {
		t.Errorf("%q", got)
	}
	if got := prefixes(8, 100); got[0] != "backend-1_" || got[7] != "backend-88_" {
		t.Errorf("%q", got)
	}
}

func TestRowVerdicts(t *testing.T) {
	figures := func(cpu float64) []figure { return []figure{{cpu: cpu}} }
	list := func(edge float64) string {
		return listRow{figures: map[string][]figure{static: figures(10), weir: figures(edge)}}.verdict().reached
	}
	if list(15) != "yes" || list(15.1) == "yes" {
		t.Error("P6 is not held against 1.5 × its floor")
	}
	rows := []growthRow{
		{1, 10, 0, figures(10)}, {100, 10, 0, figures(12)}, {100, 1000, 0, figures(12.1)}, {1, 1000, 0, figures(5)},
		{1, 10, 1, figures(20)}, {1, 10, 10, figures(24)}, {1, 10, 10_000, figures(24.1)},
	}
	var reached []string
	for _, v := range growthVerdicts(rows) {
		reached = append(reached, v.reached)
	}
	if want := []string{"floor", "yes", "**no**", "yes", "floor", "yes", "**no**"}; !slices.Equal(reached, want) {
		t.Errorf("P7: %q, want %q", reached, want)
	}
	composite := func(times int, more, took time.Duration) string {
		return workflowRow{took: []time.Duration{took}, alone: []time.Duration{time.Millisecond}, times: times, more: more}.verdict().reached
	}
	if composite(1, time.Millisecond, 2*time.Millisecond) != "yes" || composite(1, time.Millisecond, 2*time.Millisecond+1) == "yes" || composite(100, time.Millisecond, 101*time.Millisecond) != "yes" {
		t.Error("P12 is not held against the calls that it is made of")
	}
	added := func(cpu float64) string {
		return workflowRow{cpu: []float64{cpu}, cpuAlone: []float64{40}, cpuBar: 60}.verdict().reached
	}
	if added(100) != "yes" || added(100.1) == "yes" {
		t.Error("P12a is not held against what a composite may add")
	}
	for _, c := range []struct {
		good, failed int
		want         string
	}{{800, 0, "yes"}, {799, 0, "**no**"}, {1000, 1, "**no**"}} {
		o := overloadRow{capacity: 100, offered: 300, good: c.good, failed: c.failed, seconds: 10}
		if v := o.verdict(); v.reached != c.want {
			t.Errorf("P14: %d good, %d failed: %s", c.good, c.failed, v.reached)
		}
	}
}

func TestTokenVerdicts(t *testing.T) {
	row := tokenRow{size: 1024, check: 20, figures: map[string][]figure{
		noToken: {{cpu: 30}, {cpu: 40}, {cpu: 50}}, cachedToken: {{cpu: 31}, {cpu: 42}, {cpu: 58}}, freshToken: {{cpu: 70}, {cpu: 80}, {cpu: 90}},
	}}
	v := row.verdicts()
	if v[0].value != "2.00 µs" || v[0].reached != "yes" || v[1].value != "40.00 µs" || v[1].ratio != "2.00" {
		t.Errorf("%+v", v)
	}
	row.figures[cachedToken][0].cpu, row.figures[cachedToken][1].cpu = 40, 43
	if v := row.verdicts(); v[0].reached == "yes" {
		t.Errorf("%+v", v[0])
	}
}

// TestTokens signs tokens of the size that is meant, each another.
func TestTokens(t *testing.T) {
	s, err := issuer.New(issuer.RS256, kit.ServerName, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Leave()
	all, err := mintAll(s, 5, sameUser)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, token := range all {
		if seen[token] || len(token) < tokenSize || len(token) > tokenSize+8 {
			t.Errorf("%d bytes, seen: %t", len(token), seen[token])
		}
		seen[token] = true
	}
}

func TestGuestVerdicts(t *testing.T) {
	for _, c := range []struct {
		row            guestRow
		value, reached string
	}{
		{guestRow{bar: 0.5, cpu: []float64{0.9, 0.5, 0.1}, idle: 0.1}, "0.500 µs; 0", "yes"},
		{guestRow{bar: 0.5, cpu: []float64{0.501}, idle: 0.1}, "0.501 µs; 0", "**no**"},
		{guestRow{bar: 0.5, cpu: []float64{0.1}, idle: 0.1, allocated: 1}, "0.100 µs; 1", "**no**"},
		{guestRow{bar: 0.5, missing: "clang is missing: install it"}, "not measured: clang is missing: install it", "–"},
	} {
		if v := c.row.verdict(); v.value != c.value || v.reached != c.reached {
			t.Errorf("%+v: %q, %s", c.row, v.value, v.reached)
		}
	}
}

// TestGuests measures a guest that returns at once, and notices one that does
// not say what it is expected to.
func TestGuests(t *testing.T) {
	edgetest.Need(t, runtime.GOOS == "linux", "the CPU time of a thread is read on Linux alone")
	file := filepath.Join(t.TempDir(), "idle.wasm")
	if err := os.WriteFile(file, idleModule(), 0o644); err != nil {
		t.Fatal(err)
	}
	g, err := openGuest(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	if err := kit.Try(func() { g.round(t.Context(), 500) }); err != nil || len(g.cpu) != 1 || g.cpu[0] <= 0 || g.allocated != 0 {
		t.Errorf("%v: %v µs, %v allocations", err, g.cpu, g.allocated)
	}
	g.answers = true
	if err := kit.Try(func() { g.round(t.Context(), 1) }); err == nil {
		t.Error("a guest that says nothing passes for one that does")
	}
}

func TestExchangedVerdict(t *testing.T) {
	m := measurement{figures: map[string][]figure{weir: {{cpu: 100}}, exchanged: {{cpu: 105}}}}
	if v := m.exchangedVerdict(); v.reached != "yes" || v.ratio != "1.050" {
		t.Errorf("%+v", v)
	}
	m.figures[exchanged][0].cpu = 105.1
	if v := m.exchangedVerdict(); v.reached == "yes" {
		t.Errorf("%+v", v)
	}
}

// TestKeptVerdicts takes rows of credentials to just within each bar, and beyond.
func TestKeptVerdicts(t *testing.T) {
	reached := func(change func(*keptRow)) (all []string) {
		k := keptRow{users: 10_000, each: 768, allocated: map[string]float64{"cloudSts": 2}, cpu: map[string][]float64{
			fixedToken: {0.25, 1}, "tokenExchange": {0.75, 1.5}, "obo": {0.5, 1.25}, "cloudSts": {6, 6}, manyUsers: {1.34}, eachUser: {9},
		}}
		change(&k)
		for _, v := range k.verdicts() {
			all = append(all, v.reached)
		}
		return all
	}
	within := []string{"yes", "yes", "yes", "yes", "–", "yes"}
	if got := reached(func(*keptRow) {}); !slices.Equal(got, within) {
		t.Errorf("%q", got)
	}
	for i, change := range map[int][]func(*keptRow){
		0: {func(k *keptRow) { k.cpu["tokenExchange"][1] = 1.51 }, func(k *keptRow) { k.allocated["tokenExchange"] = 1 }},
		1: {func(k *keptRow) { k.cpu["obo"] = []float64{0.76, 1.52} }, func(k *keptRow) { k.allocated["obo"] = 1 }},
		2: {func(k *keptRow) { k.cpu["cloudSts"][0] = 6.1 }, func(k *keptRow) { k.allocated["cloudSts"] = 3 }},
		3: {func(k *keptRow) { k.cpu[manyUsers][0] = 1.36 }},
		5: {func(k *keptRow) { k.each = 769 }},
	} {
		for _, f := range change {
			want := slices.Clone(within)
			want[i] = "**no**"
			if got := reached(f); !slices.Equal(got, want) {
				t.Errorf("verdict %d: %q", i, got)
			}
		}
	}
	for grown, want := range map[int64]string{34 << 20: "yes", 34<<20 + 1: "**no**"} {
		if v := (residentRow{users: 1, grown: grown, floor: 10 << 20}).verdict(); v.reached != want {
			t.Errorf("%+v", v)
		}
	}
}
