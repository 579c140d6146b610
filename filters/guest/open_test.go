package guest_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/guest"
)

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// refused starts an edge that cannot start, and returns why.
func refused(t testing.TB, yaml string) string {
	t.Helper()
	s := serve.Defaults()
	s.Listen, s.AdminListen = "127.0.0.1:0", ""
	guests.Cached(&s)
	_, err := serve.New(s, edgetest.Plan(t, yaml), slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err == nil {
		t.Fatal("the edge starts")
	}
	return err.Error()
}

// TestRefusedAtOpen says what is wrong with filters that only their start
// shows.
func TestRefusedAtOpen(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	junk := filepath.Join(t.TempDir(), "junk.wasm")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		filter filter
		want   string
	}{
		"events of nothing":          {filter{rules: []string{"on_event|*|hide"}}, "the server keeps no records"},
		"nobody to authenticate":     {filter{rules: []string{"authenticate|*|deny|0|no"}}, "the server lets everybody in"},
		"a configuration it refuses": {filter{rules: []string{"refuse|no such prefix"}}, "no such prefix"},
		"no file":                    {filter{path: "/nowhere.wasm"}, "source: /nowhere.wasm: there is no such file"},
		"no module":                  {filter{path: junk}, "source: module: module section: not a WebAssembly module"},
		"a credential's header":      {filter{rules: []string{"sub|on_call_request|header=authorization"}}, "grant identity"},
		"a session's header":         {filter{rules: []string{"sub|on_call_request|header=Mcp-Session-Id"}}, "grant identity"},
		"a malformed pointer":        {filter{rules: []string{"sub|on_call_request|pointer=/a~2"}}, "a malformed JSON pointer"},
	} {
		t.Run(name, func(t *testing.T) {
			c.filter.name = "f"
			got := refused(t, manifest(t, backs{"back": back}, []filter{c.filter}))
			if !strings.Contains(got, `server s: filter "f": `) && !strings.Contains(got, `guest "f"`) || !strings.Contains(got, c.want) {
				t.Errorf("it says %q, want %q", got, c.want)
			}
		})
	}
}

// TestSelected gives programs what they asked for of a message: headers of the
// client, values behind pointers, and no more.
func TestSelected(t *testing.T) {
	edgetest.Eras(t, func(t *testing.T, era, of edgetest.Era) {
		rules := []string{
			"sub|on_call_request|header=X-A,x-b|pointer=/deep/1/x,/nothing",
			`on_call_request|*|set_arg|/seen|["$header:x-a","$header:x-b",$selected:0,"$selected:1","$session"]`,
		}
		back := edgetest.NewServer(t, of)
		c := newClient(start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules}})), era)
		got := text(t, c.call(t, "echo", `{"deep":[0,{"x":{"y":7}}]}`, "X-A", "one", "X-C", "three"))
		seen := edgetest.Member(got, "seen")
		if !strings.HasPrefix(seen, `["one","",{"y":7},"","`) {
			t.Errorf("it saw %s", seen)
		}
		if key := seen[strings.LastIndexByte(seen, ',')+1:]; (len(key) > 30) != (era == edgetest.Legacy) || c.Session != nil && strings.Contains(seen, c.Session.ID) {
			t.Errorf("what it knows the session by: %s", key)
		}
	})
}

// TestMatch narrows what a program is asked about, beside its own subscription.
func TestMatch(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	offers(back, "echo", "delete_one", "delete_all")
	f := filter{name: "f", rules: []string{"sub|on_call_request|tool=delete_*", "on_call_request|*|deny|0|no", "override_tools|*|describe|seen"}, more: "match: {methods: [tools/*], tools: ['*_all']}"}
	c := newClient(start(t, manifest(t, backs{"back": back}, []filter{f})), edgetest.Modern)
	text(t, c.call(t, "echo", "{}"))
	text(t, c.call(t, "delete_one", "{}"))
	fails(t, c.call(t, "delete_all", "{}"), 403, 403, "no")
	if seen := tools(t, c); seen["delete_all"].Description != "seen" || seen["delete_one"].Description != "of delete_one" {
		t.Errorf("a client sees %v", seen)
	}
}

// TestHotSwap reloads under calls: none fails, each is judged by the program
// before or the one after, and the memory comes back. It runs alone: the heap is
// that of the process.
func TestHotSwap(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	offers(back, "echo")
	version := func(n int) string {
		return manifest(t, backs{"back": back}, []filter{{name: "f", rules: []string{fmt.Sprintf("on_call_request|*|set_arguments|{\"v\":%d}", n)}}})
	}
	e := start(t, version(0))
	text(t, newClient(e, edgetest.Modern).call(t, "echo", `{}`))
	first := heap()
	var work sync.WaitGroup
	var failed, calls atomic.Int64
	stop := make(chan struct{})
	for n := range 4 {
		c := newClient(e, []edgetest.Era{edgetest.Legacy, edgetest.Modern}[n%2])
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, err := c.try("tools/call", edgetest.CallParams("echo", `{}`))
				if err != nil || r.Status != 200 {
					failed.Add(1)
					t.Errorf("a call: %v: %+v", err, r)
					return
				}
				calls.Add(1)
			}
		})
	}
	const reloads = 20
	for n := 1; n <= reloads; n++ {
		if err := e.Serve.Reload(edgetest.Plan(t, version(n))); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	work.Wait()
	if got := text(t, newClient(e, edgetest.Modern).call(t, "echo", `{}`)); got != fmt.Sprintf(`{"v":%d}`, reloads) {
		t.Errorf("after %d reloads: %s", reloads, got)
	}
	edgetest.Until(t, "the end of old programs", func() bool { return strings.Count(e.Log(), "a filter is closed") == reloads })
	back.Forget() // what it has seen
	last := heap()
	t.Logf("%d calls, %d failed, over %d reloads; heap %d KiB before and %d KiB after (busy)", calls.Load(), failed.Load(), reloads, first>>10, last>>10)
	if last > first+16<<20 { // a module of 2 MiB that stays with each reload is 40 MiB
		t.Errorf("%d KiB of heap before, %d KiB after", first>>10, last>>10)
	}
}

// TestMemoryIsGivenBack: what the compilation of a module took, and what one had
// that nobody uses any longer, is given back at once.
func TestMemoryIsGivenBack(t *testing.T) {
	forced := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	k := guest.NewCache("", slog.New(slog.NewTextHandler(io.Discard, nil)))
	loaded, err := guest.Load([]guest.Spec{{
		Name: "f", Path: path(t), Config: `{"rules":""}`, Mode: v1beta1.FilterEnforce, OnError: v1beta1.FilterDeny,
		Isolation: v1beta1.IsolationShared, Timeout: time.Minute, Fuel: 50_000_000, Output: 1 << 20,
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var after []func()
	before := forced()
	if _, _, err := k.Open("s", loaded, guest.Options{}, edge.Env{Defer: func(f func()) { after = append(after, f) }}); err != nil {
		t.Fatal(err)
	}
	edgetest.Until(t, "the collection after a compilation", func() bool { return forced() > before })
	before = forced()
	for _, f := range after {
		f()
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if forced() == before {
		t.Error("nothing is collected when a module is closed")
	}
}

func heap() uint64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// TestCarriedOver keeps a program open through a reload that changes something
// else: its memory goes on.
func TestCarriedOver(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	filters := []filter{{name: "f", rules: []string{"on_call_request|*|set_arg|/n|$count"}, limits: "instances: 1"}}
	e := start(t, manifest(t, backs{"back": back}, filters))
	c := newClient(e, edgetest.Modern)
	text(t, c.call(t, "echo", "{}"))
	if err := e.Serve.Reload(edgetest.Plan(t, manifest(t, backs{"back": back}, filters, "passthroughHeaders: [X-A]"))); err != nil {
		t.Fatal(err)
	}
	if got := text(t, c.call(t, "echo", "{}")); got != `{"n":2}` {
		t.Errorf("after a reload: %s", got)
	}
	if n := strings.Count(e.Log(), "a filter is compiled"); n != 1 {
		t.Errorf("it was compiled %d times", n)
	}
}

// TestKeys opens a program anew when a secret that it computes with is another.
func TestKeys(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	filters := []filter{{name: "f", rules: []string{"on_call_request|*|set_arg|/n|$count"}, limits: "instances: 1", more: "grants: {keys: {sign: {name: hook, key: hmac}}}"}}
	with := func(value string) *compile.Plan {
		return edgetest.Plan(t, manifest(t, backs{"back": back}, filters)+"---\napiVersion: v1\nkind: Secret\nmetadata: {name: hook}\nstringData: {hmac: "+value+"}\n")
	}
	e := edgetest.StartPlan(t, with("one"), edgetest.Settings(guests.Cached))
	c := newClient(e, edgetest.Modern)
	for i, step := range []struct{ secret, want string }{{"one", `{"n":1}`}, {"one", `{"n":2}`}, {"two", `{"n":1}`}} {
		if err := e.Serve.Reload(with(step.secret)); err != nil {
			t.Fatal(err)
		}
		if got := text(t, c.call(t, "echo", "{}")); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	if strings.Contains(e.Log(), "two") {
		t.Error("the log has a secret")
	}
}
