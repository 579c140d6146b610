package guest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// TestG23 has a program trap in one call of a hundred: those get 503, and no
// others.
func TestG23(t *testing.T) {
	for _, isolation := range []string{"shared", "per_request", "per_session"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Modern)
			f := filter{name: "f", rules: []string{"on_call_request|args~bang|trap"}, limits: "instances: 64, isolation: " + isolation}
			e := start(t, manifest(t, backs{"back": back}, []filter{f}))
			const clients, calls = 4, 200
			var work sync.WaitGroup
			var wrong, trapped atomic.Int64
			for n := range clients {
				c := newClient(e, []edgetest.Era{edgetest.Legacy, edgetest.Modern}[n%2])
				work.Go(func() {
					for i := range calls {
						bang := (i*clients+n)%100 == 7
						args := fmt.Sprintf(`{"n":%d}`, i)
						if bang {
							args = `{"n":"bang"}`
						}
						r, err := c.try("tools/call", edgetest.CallParams("echo", args))
						if err != nil {
							t.Error(err)
							return
						}
						if bang {
							trapped.Add(1)
						}
						if (r.Status == 503) != bang || !bang && r.Status != 200 {
							wrong.Add(1)
							t.Errorf("call %d: status %d: %s", i, r.Status, r.Body)
						}
					}
				})
			}
			work.Wait()
			if wrong.Load() > 0 || trapped.Load() != clients*calls/100 {
				t.Errorf("%d calls with a wrong answer, %d that trapped", wrong.Load(), trapped.Load())
			}
			if got := len(back.Requests("tools/call")); got != clients*calls*99/100 {
				t.Errorf("%d calls reached the backend", got)
			}
			if s := status(t, e); s.Hooks[0].Failures != uint64(trapped.Load()) || s.Resting {
				t.Errorf("the status says %+v", s)
			}
		})
	}
}

// filterStatus is what /status says of a filter.
type filterStatus struct {
	Name, SHA256, Mode string
	Resting            bool
	Instances          int
	Hooks              []struct {
		Hook                                      string
		Calls, Changed, Denied, Failures, Skipped uint64
	}
}

// status is what /status says of the one filter.
func status(t testing.TB, e *edgetest.Edge) filterStatus {
	t.Helper()
	all := statuses(t, e)
	if len(all) != 1 {
		t.Fatalf("%+v", all)
	}
	return all[0]
}

// statuses are those of all filters.
func statuses(t testing.TB, e *edgetest.Edge) []filterStatus {
	t.Helper()
	var out struct{ Filters []filterStatus }
	body := e.NewClient().Do("GET", "/status", "").Body
	if err := json.Unmarshal(body, &out); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return out.Filters
}

// TestW04 has programs that do not end, in a call and while they start.
func TestW04(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	f := filter{name: "f", rules: []string{"on_call_request|args~loop|loop"}, limits: "fuel: 2000000"}
	c := newClient(start(t, manifest(t, backs{"back": back}, []filter{f})), edgetest.Modern)
	fails(t, c.call(t, "echo", `{"n":"loop"}`), 503, 503, `filter "f" is not available`)
	text(t, c.call(t, "echo", `{"n":1}`))
}

// TestW09 counts what fails, and lets it pass where that is asked for.
func TestW09(t *testing.T) {
	t.Parallel()
	rules := []string{"on_call_request|args~trap|trap", "on_call_request|args~bad|bad", "on_call_response|result~hide|redact|/content/0/text|hidden"}
	back := edgetest.NewServer(t, edgetest.Modern)
	e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules, more: "onError: continue"}}))
	c := newClient(e, edgetest.Modern)
	for _, how := range []string{"trap", "bad"} {
		if got, want := text(t, c.call(t, "echo", `{"n":"`+how+`"}`)), `{"n":"`+how+`"}`; got != want {
			t.Errorf("%s: %s", how, got)
		}
	}
	if got := text(t, c.call(t, "echo", `{"hide":1}`)); got != "hidden" {
		t.Errorf("another hook of it: %s", got)
	}
	if s := status(t, e); s.Hooks[0].Failures != 2 || s.Hooks[0].Skipped != 2 || s.Hooks[0].Calls != 3 {
		t.Errorf("the status says %+v", s)
	}
}

// TestContinueNeverRests: under onError continue every message is asked about, however often
// messages of its sender made the program fail before: to rest would let pass what it denies.
func TestContinueNeverRests(t *testing.T) {
	t.Parallel()
	rules := []string{"on_call_request|args~trap|trap", "on_call_request|args~forbidden|deny|0|no", "on_call_response|result~hide|redact|/content/0/text|hidden"}
	back := edgetest.NewServer(t, edgetest.Modern)
	e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules, more: "onError: continue"}}))
	c := newClient(e, edgetest.Modern)
	for range 20 {
		if r := c.call(t, "echo", `{"n":"trap"}`); r.Status != 200 {
			t.Fatalf("a call on which it fails: %d %s", r.Status, r.Body)
		}
	}
	if r := c.call(t, "echo", `{"n":"forbidden"}`); r.Status != 403 {
		t.Errorf("what it denies: %d %s", r.Status, r.Body)
	}
	if got := text(t, c.call(t, "echo", `{"hide":1}`)); got != "hidden" {
		t.Errorf("what it hides: %s", got)
	}
	if s := status(t, e); s.Resting {
		t.Errorf("somebody rests: %+v", s)
	}
}

// TestBreaker refuses messages of a client for a while without asking a program
// that fails on each of them.
func TestBreaker(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	for _, rule := range []string{"on_call_request|*|trap", "on_call_request|*|hide"} { // which is no answer there
		e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: []string{rule}}}))
		c := newClient(e, edgetest.Modern)
		for range 7 {
			fails(t, c.call(t, "echo", `{}`), 503, 503, "not available")
		}
		if s := status(t, e); !s.Resting {
			t.Errorf("%s: nobody rests: %+v", rule, s)
		}
	}
}

// TestZ35NewKindOfFailure warns once of each kind of failure, and again after the
// program worked.
func TestZ35NewKindOfFailure(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	rules := []string{"on_call_request|args~trap|trap", "on_call_request|args~loop|loop"}
	e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules, limits: "fuel: 2000000"}}))
	c := newClient(e, edgetest.Modern)
	warnings := func(why string) int {
		n := 0
		for line := range strings.Lines(e.Log()) {
			if strings.Contains(line, "level=WARN") && strings.Contains(line, "a filter fails") && strings.Contains(line, why) {
				n++
			}
		}
		return n
	}
	for round := 1; round <= 2; round++ {
		for range 2 {
			c.call(t, "echo", `{"n":"trap"}`)
			c.call(t, "echo", `{"n":"loop"}`)
		}
		if traps, fuel := warnings("trap"), warnings("fuel"); traps != round || fuel != round {
			t.Errorf("round %d: %d warnings of traps and %d of fuel\n%s", round, traps, fuel, e.Log())
		}
		text(t, c.call(t, "echo", `{"n":1}`))
	}
}

// TestZ33OneOfTen has one client of ten make a program fail on purpose: the calls
// of the nine others are all judged, whatever becomes of failures.
func TestZ33OneOfTen(t *testing.T) {
	for _, onError := range []string{"deny", "continue"} {
		for _, named := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, by principal %v", onError, named), func(t *testing.T) {
				t.Parallel()
				const others, calls = 9, 278 // four tests of 2,500 calls
				m := edgetest.NewMint(t, "weir")
				back := edgetest.NewServer(t, edgetest.Modern)
				rules := []string{"on_call_request|args~trap|trap", `on_call_request|*|set_arg|/seen|true`}
				yaml := manifest(t, backs{"back": back}, []filter{{name: "f", rules: rules, more: "onError: " + onError}})
				var e *edgetest.Edge
				if named {
					e = guarded(t, m, yaml)
				} else {
					e = start(t, yaml, edgetest.Settings(func(s *serve.Settings) {
						guests.Cached(s)
						s.TrustedProxies = []string{"127.0.0.0/8"}
					}))
				}
				as := func(n int) []string {
					if named {
						return m.Bearer(fmt.Sprintf("client-%d", n))
					}
					return []string{"X-Forwarded-For", fmt.Sprintf("192.0.2.%d", n+1)}
				}
				var mallory, work sync.WaitGroup
				ctx, stop := context.WithCancel(t.Context())
				mallory.Go(func() {
					c, who := newClient(e, edgetest.Modern), as(others)
					for ctx.Err() == nil {
						r, err := c.try("tools/call", edgetest.CallParams("echo", `{"n":"trap"}`), who...)
						if want := map[string]int{"deny": 503, "continue": 200}[onError]; err == nil && r.Status != want {
							t.Errorf("a call that makes it fail: %d %s", r.Status, r.Body)
							return
						}
					}
				})
				var wrong atomic.Int64
				for n := range others {
					work.Go(func() {
						c, who := newClient(e, edgetest.Modern), as(n)
						for range calls {
							r, err := c.try("tools/call", edgetest.CallParams("echo", `{"n":1}`), who...)
							if err != nil || r.Status != 200 || !strings.Contains(string(r.Body), "seen") {
								if wrong.Add(1) == 1 {
									t.Errorf("a call of another: %v %+v", err, r)
								}
							}
						}
					})
				}
				work.Wait()
				stop()
				mallory.Wait()
				if n := wrong.Load(); n > 0 {
					t.Errorf("%d of %d calls of others failed or were not judged", n, others*calls)
				}
			})
		}
	}
}

// TestW10 has two clients of different tenants and a program that keeps what it
// saw: only shared memory tells one of the other.
func TestW10(t *testing.T) {
	for isolation, leaks := range map[string]bool{"shared": true, "per_request": false, "per_session": false} {
		for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
			t.Run(isolation+", "+era.String(), func(t *testing.T) {
				t.Parallel()
				back := edgetest.NewServer(t, edgetest.Modern)
				f := filter{name: "f", rules: []string{"on_call_request|*|stash"}, limits: "instances: 1, isolation: " + isolation}
				if isolation == "per_session" {
					f.limits = "instances: 2, isolation: per_session"
				}
				e := start(t, manifest(t, backs{"back": back}, []filter{f}))
				a, b := newClient(e, era), newClient(e, era)
				seen := false
				for range 5 {
					text(t, a.call(t, "echo", `{"tenant":"a"}`))
					seen = seen || strings.Contains(text(t, b.call(t, "echo", `{"tenant":"b"}`)), `{\"tenant\":\"a\"}`)
				}
				if seen != leaks {
					t.Errorf("one tenant sees what the other sent: %v", seen)
				}
				if isolation == "per_session" && era == edgetest.Legacy {
					if got := text(t, a.call(t, "echo", `{"tenant":"a"}`)); !strings.Contains(got, `{\"tenant\":\"a\"}`) {
						t.Errorf("a session has no memory of its own: %s", got)
					}
				}
			})
		}
	}
}

// TestW12 refuses what is too large for a program rather than passing it by.
func TestW12(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: []string{"on_call_request|args~forbidden|deny|0|no"}}}))
	c := newClient(e, edgetest.Modern)
	fails(t, c.call(t, "echo", `{"n":"`+strings.Repeat("x", 2<<20)+`forbidden"}`), 503, 503, "not available")
	text(t, c.call(t, "echo", `{"n":"`+strings.Repeat("x", 512<<10)+`"}`))
	if len(back.Requests("tools/call")) != 1 {
		t.Error("the backend saw what nobody judged")
	}
}

// TestW13 does not open a module that is not the one that is meant, and keeps
// what was served when a module changes to such a one.
func TestW13(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	mine := filepath.Join(t.TempDir(), "mine.wasm")
	binary, err := os.ReadFile(path(t))
	if err == nil {
		err = os.WriteFile(mine, binary, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	f := filter{name: "f", path: mine, rules: []string{"on_call_request|*|set_arg|/seen|true"}}
	f.more = "sha256: " + digest(binary)
	plan := edgetest.Plan(t, manifest(t, backs{"back": back}, []filter{f}))
	e := edgetest.StartPlan(t, plan, edgetest.Settings(guests.Cached))
	if err := os.WriteFile(mine, append(binary, 0, 2, 1, 'x'), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.Serve.Reload(plan); err == nil || !strings.Contains(err.Error(), `filter "f": sha256: the module's digest is`) {
		t.Errorf("a reload with another module: %v", err)
	}
	if got := text(t, newClient(e, edgetest.Modern).call(t, "echo", `{}`)); got != `{"seen":true}` {
		t.Errorf("after it: %s", got)
	}
}

// TestW08 keeps programs from headers that frame a message, say who sends it or
// hold a credential.
func TestW08(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"Host|evil", "Content-Length|1", "Transfer-Encoding|chunked", "Authorization|Bearer x", "Cookie|a=b", "Mcp-Session-Id|x", "X-Forwarded-For|1.2.3.4", "X A|b", "|b"} {
		back := edgetest.NewServer(t, edgetest.Modern)
		c := newClient(start(t, manifest(t, backs{"back": back}, []filter{{name: "f", rules: []string{"on_call_request|*|set_header|" + line}}})), edgetest.Modern)
		fails(t, c.call(t, "echo", `{}`), 503, 503, "not available")
		if len(back.Requests("tools/call")) != 0 {
			t.Errorf("%s: the call went out", line)
		}
	}
}

// TestObserve asks a program, counts and logs what it says, and does nothing of
// it.
func TestObserve(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	f := filter{name: "f", more: "mode: observe", rules: []string{"on_call_request|args~no|deny|0|no", "on_call_request|args~edit|set_arguments|{}", "on_call_request|args~trap|trap", "on_call_response|*|redact|/content/0/text|x"}}
	e := start(t, manifest(t, backs{"back": back}, []filter{f}))
	c := newClient(e, edgetest.Modern)
	for _, args := range []string{`{"a":"no"}`, `{"a":"edit"}`, `{"a":"trap"}`} {
		if got := text(t, c.call(t, "echo", args)); got != args {
			t.Errorf("%s became %s", args, got)
		}
	}
	if s := status(t, e); s.Mode != "observe" || s.Hooks[0].Changed != 2 || s.Hooks[0].Denied != 1 || s.Hooks[0].Skipped != 1 || s.Hooks[1].Changed != 3 {
		t.Errorf("the status says %+v", s)
	}
	if !strings.Contains(e.Log(), "operations=deny") || !strings.Contains(e.Log(), "operations=redact") {
		t.Error("the log lacks what would have been done")
	}
}

// TestOff leaves a filter out, whatever its module is.
func TestOff(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Modern)
	e := start(t, manifest(t, backs{"back": back}, []filter{{name: "f", more: `mode: "off"`, path: "/nowhere.wasm"}}))
	text(t, newClient(e, edgetest.Modern).call(t, "echo", `{}`))
}
