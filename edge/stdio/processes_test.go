//go:build unix

package stdio_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/stdio"
	"github.com/weir-edge/weir/filters/incoming"
)

// Each legacy session has a process of its own, which ends with it; modern clients share
// one.
func TestProcessPerSession(t *testing.T) {
	t.Parallel()
	b := start(t, "legacy", nil)
	pid := func(c edgetest.Caller) string { return text(t, c.CallTool("1", "pid", "{}")) }
	one, other := b.NewClient().As(edgetest.Legacy, ""), b.NewClient().As(edgetest.Legacy, "")
	mine := pid(one)
	if pid(one) != mine || pid(other) == mine {
		t.Error("two sessions share a process, or one has two")
	}
	modern := pid(b.NewClient().As(edgetest.Modern, ""))
	if again := pid(b.NewClient().As(edgetest.Modern, "")); again != modern || modern == mine {
		t.Errorf("modern clients have the processes %s and %s, a session has %s", modern, again, mine)
	}
	one.Session.Delete()
	await(t, "the process of the session ends", func() bool { return !alive(mine) })
	if !alive(modern) {
		t.Error("the pool has ended with a session")
	}
	b.Stop()
	if alive(modern) {
		t.Error("a process outlives the edge")
	}
}

// owners is a starter that notes for whom it starts processes.
type owners struct {
	stdio.Starter
	seen *sync.Map
}

func (o owners) Start(ctx context.Context, principal string) (stdio.Process, error) {
	o.seen.Store(principal, true)
	return o.Starter.Start(ctx, principal)
}

// Clients that a server takes all for one are one principal, with sessions and without: they
// have one sandbox, which the edge itself uses as well.
func TestClientsThatAreOnePrincipal(t *testing.T) {
	for _, as := range []incoming.Type{incoming.Anonymous, incoming.Local} {
		t.Run(string(as), func(t *testing.T) {
			t.Parallel()
			var seen sync.Map
			b := &behind{t: t}
			plan := planned(t)
			plan.Servers[0].Incoming = &incoming.Spec{Type: as}
			b.Edge = edgetest.StartPlan(t, plan, edgetest.With(serve.WithWorkloads(func(serve.Starting) (backend.Local, error) {
				return stdio.New(stdio.Config{Name: "back", Starter: owners{program(t, "legacy", filepath.Join(t.TempDir(), "told")), &seen}})
			})))
			pids := map[string]bool{}
			for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Legacy, edgetest.Modern} {
				pids[text(t, b.NewClient().As(client, "").CallTool("1", "pid", "{}"))] = true
			}
			if len(pids) != 3 {
				t.Errorf("%d processes of two sessions and a modern client", len(pids))
			}
			seen.Range(func(who, _ any) bool {
				if who != "" {
					t.Errorf("a process was started for %q", who)
				}
				return true
			})
		})
	}
}

// Modern clients that can be asked have four processes at most; the fifth call waits.
func TestPool(t *testing.T) {
	t.Parallel()
	b := start(t, "legacy", nil, edgetest.Settings(func(s *serve.Settings) { s.MaxStreams = 100 }))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			c := b.NewClient().As(edgetest.Modern, canAll)
			r, err := c.TryAsk(fmt.Sprint(i), "tools/call", edgetest.CallParams("wait", `{"ms":300}`))
			if err != nil || r.Status != 200 {
				t.Errorf("call %d: %v", i, err)
				return
			}
			_, _ = r.TryAnswer()
		})
	}
	all.Wait()
	if n := len(b.told("start")); n > 4 {
		t.Errorf("%d processes", n)
	}
}

// At --max-processes the session that was used least recently and that nobody uses makes
// room; where all are in use there is none.
func TestMaxProcesses(t *testing.T) {
	t.Parallel()
	b := start(t, "legacy", func(c *stdio.Config) { c.MaxProcesses = 2 })
	var all []edgetest.Caller
	for range 3 {
		c := b.NewClient().As(edgetest.Legacy, "")
		c.CallTool("1", "echo", "{}").Result()
		all = append(all, c)
	}
	if n := b.bridge.Status().Processes; n > 2 {
		t.Errorf("%d processes", n)
	}
	if r := all[0].CallTool("2", "echo", "{}"); r.Status != 404 {
		t.Errorf("the first session: %d", r.Status)
	}
	all[1].CallTool("2", "echo", "{}").Result()
	for _, c := range all[1:] {
		hears := c.Session.Listen()
		defer hears.Close()
	}
	await(t, "both are listened to", func() bool {
		r := b.NewClient().As(edgetest.Legacy, "").CallTool("1", "echo", "{}")
		_ = r.Answer()
		return r.Status == 503 && r.Header.Get("Retry-After") != ""
	})
}

// opened is a stream as a backend holds one.
type opened struct {
	edge.Stream
	heard chan string
	ended chan error
	use   edge.Use
}

func open(t *testing.T, b *stdio.Bridge, who string) (*opened, error) {
	t.Helper()
	o := &opened{heard: make(chan string, 1000), ended: make(chan error, 1)}
	var err error
	o.Stream, err = b.Open(context.Background(), &edge.Owner{
		Principal: who, Session: true,
		Hear:   func(m *mcp.Message) { o.heard <- string(m.Raw) },
		Failed: func(id []byte, why error) { o.heard <- fmt.Sprintf("%s failed: %v", id, why) },
		Ended:  func(err error) { o.ended <- err },
		Use:    func() edge.Use { return o.use },
	})
	return o, err
}

func bridge(t *testing.T, how string, change func(*stdio.Config)) *stdio.Bridge {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := stdio.Config{Name: "back", Starter: stdio.Command{Path: self, Env: []string{asServer + "=" + how}}, Timeout: time.Second}
	if change != nil {
		change(&c)
	}
	b, err := stdio.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// Room is made by a principal's own processes and never by another's.
func TestRoomOfOnePrincipal(t *testing.T) {
	t.Parallel()
	b := bridge(t, "legacy", func(c *stdio.Config) { c.MaxProcesses = 2 })
	ada, err := open(t, b, "ada")
	if err != nil {
		t.Fatal(err)
	}
	bob, err := open(t, b, "bob")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, b, "eve"); edge.KindOf(err) != edge.Overload {
		t.Errorf("a third principal: %v", err)
	}
	if _, err := open(t, b, "bob"); err != nil {
		t.Errorf("one that has a process at rest: %v", err)
	}
	var over *edge.Ended
	if err := <-bob.ended; !errors.As(err, &over) {
		t.Errorf("the process at rest ended with %v", err)
	}
	select {
	case err := <-ada.ended:
		t.Errorf("another's ended: %v", err)
	default:
	}
}

// unwell is a starter of processes that live, but for those of eve, which say nothing and end when
// they are sent something.
type unwell struct{}

func (unwell) Start(ctx context.Context, principal string) (stdio.Process, error) {
	if strings.HasSuffix(principal, "eve") {
		return inside("modern discover=die").Start(ctx, principal)
	}
	return inside("modern").Start(ctx, principal)
}

// A container that is lost with several processes in it has ended once: its server is started
// again, and does not end again and again.
func TestProcessesThatEndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bridge(t, "", func(c *stdio.Config) { c.Starter = unwell{} })
		b.Introduced(mcp.Modern, nil)
		var all []*opened
		for range 5 {
			o, err := open(t, b, "eve")
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, o)
		}
		time.Sleep(time.Second)
		for _, o := range all {
			_ = o.Send([]byte(`{"jsonrpc":"2.0","id":10000000000000,"method":"server/discover"}`), nil)
			<-o.ended
		}
		if s := b.Status(); s.State != stdio.Unhealthy {
			t.Errorf("one end, and it is %+v", s)
		}
		time.Sleep(2 * time.Second)
		if _, err := open(t, b, "eve"); err != nil {
			t.Errorf("after the rest of one end: %v", err)
		}
	})
}

// What becomes of one principal's processes is nothing to another's: those begin, the server is
// as well as theirs, and its circuit lets their calls through.
func TestOnePrincipalCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bridge(t, "", func(c *stdio.Config) { c.Starter = unwell{} })
		b.Introduced(mcp.Modern, nil)
		crash := func(times int) {
			var all []*opened
			for range times {
				o, err := open(t, b, "eve")
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, o)
			}
			for _, o := range all {
				_ = o.Send([]byte(`{"jsonrpc":"2.0","id":10000000000000,"method":"server/discover"}`), nil)
				<-o.ended
			}
		}
		crash(5)
		if s := b.Status(); s.State != stdio.Failed {
			t.Errorf("nobody else has a process, and it is %+v", s)
		}
		began := time.Now()
		ada, err := open(t, b, "ada")
		if err != nil || time.Since(began) > 0 {
			t.Fatalf("ada waits %s: %v", time.Since(began), err)
		}
		if _, err := open(t, b, "eve"); edge.KindOf(err) != edge.Unavailable {
			t.Errorf("eve does not wait: %v", err)
		}
		if err := ada.Send([]byte(`{"jsonrpc":"2.0","id":10000000000000,"method":"server/discover"}`), nil); err != nil {
			t.Fatal(err)
		}
		<-ada.heard
		time.Sleep(2 * time.Minute)
		crash(5)
		if s := b.Status(); s.State != stdio.Running || b.Well() != nil {
			t.Errorf("ada's process is well, and it is %+v", s)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := bridge(t, "", func(c *stdio.Config) { c.Starter = unwell{} })
		circuit := health.NewBreaker("back", 5, time.Hour)
		back, err := backend.Open(backend.Config{Name: "back", Local: b, Breaker: circuit, Silence: time.Minute, Cap: time.Minute, Info: []byte("{}"), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer back.Close()
		call := func(who, tool string) error {
			m, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","_meta":{}}}`))
			if err != nil {
				t.Fatal(err)
			}
			_, err = back.Handle(t.Context(), &edge.Exchange{Era: mcp.Modern, Request: m, Name: tool, Client: edge.NoClient{}, Identity: &edge.Identity{Issuer: "https://id.example", Subject: who}})
			return err
		}
		if err := call("ada", "echo"); err != nil {
			t.Fatal(err)
		}
		for range 6 {
			if err := call("eve", "exit"); edge.KindOf(err) != edge.Unavailable {
				t.Errorf("eve: %v", err)
			}
		}
		if now, _ := circuit.State(); now != health.Closed {
			t.Errorf("the circuit is %s", now)
		}
		if err := call("ada", "echo"); err != nil {
			t.Errorf("then ada: %v", err)
		}
	})
}

// counted is a starter that starts nothing, and counts how often it was to.
type counted struct{ n *int }

func (c counted) Start(context.Context, string) (stdio.Process, error) {
	*c.n++
	return nil, errors.New("a reason")
}

// The rests of principals are bounded: those beyond rest together, until others' rests are over.
func TestRestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		b := bridge(t, "", func(c *stdio.Config) { c.Starter = counted{&n} })
		crowd := func(from, to int) (starts int) {
			n = 0
			for i := from; i < to; i++ {
				_, _ = open(t, b, fmt.Sprint(i))
			}
			return n
		}
		if got := crowd(0, 1024); got != 1024 {
			t.Errorf("of 1,024 principals %d were tried", got)
		}
		if got := crowd(2000, 2500); got > 5 { // each after a rest of the one before, until that is long
			t.Errorf("of 500 further ones %d were tried", got)
		}
		time.Sleep(2 * time.Minute)
		if got := crowd(3000, 3500); got != 500 {
			t.Errorf("two minutes later %d of 500 were tried", got)
		}
	})
}

// A server that ends at once is started again after a rest that doubles; what it printed
// last stands in the status and not in the answer.
func TestServerThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	b := start(t, "exit=3", nil)
	c := b.NewClient().As(edgetest.Modern, "")
	await(t, "it has failed", func() bool {
		_ = c.CallTool("1", "echo", "{}").Answer()
		return b.bridge.Status().State == stdio.Failed
	})
	s := b.bridge.Status()
	if s.Ended != "exit 3" || len(s.Said) == 0 || s.Said[len(s.Said)-1] != "cannot find the thing" {
		t.Errorf("status %+v", s)
	}
	m := c.CallTool("1", "echo", "{}").Message()
	if strings.Contains(fault(m), "cannot find") || !strings.Contains(fault(m), "502") {
		t.Errorf("the answer: %s", fault(m))
	}
	if n := len(b.told("start")); n > 8 {
		t.Errorf("started %d times", n)
	}
}

// A server that cannot be started is said to be one, and not to end; why is not for clients.
func TestServerThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	b := bridge(t, "", func(c *stdio.Config) { c.Starter = broken{} })
	await(t, "it has failed", func() bool {
		_, _ = open(t, b, "ada")
		return b.Status().State == stdio.Failed
	})
	if got := b.Status().Reason; got != "cannot be started: a secret reason" {
		t.Errorf("the reason: %q", got)
	}
	var unstarted *stdio.StartError
	if _, err := open(t, b, "ada"); !errors.As(err, &unstarted) || strings.Contains(err.Error(), "secret") {
		t.Errorf("the next attempt, in a minute: %v", err)
	}
}

// A server that rests has not failed for that: what its ends mean was said at each of them.
func TestRestIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bridge(t, "", func(c *stdio.Config) { c.Starter = broken{} })
		b.Introduced(mcp.Legacy, nil)
		var rests *stdio.RestError
		for i := range 3 {
			if _, err := open(t, b, ""); errors.As(err, &rests) {
				t.Fatalf("start %d: %v", i, err)
			}
		}
		_, err := open(t, b, "")
		if !errors.As(err, &rests) {
			t.Fatalf("at once after the third end: %v", err)
		}
		b.Introduced(mcp.Legacy, err)
		if s := b.Status(); s.State != stdio.Unhealthy {
			t.Errorf("after three ends: %+v", s)
		}
		for range 2 {
			time.Sleep(20 * time.Second)
			_, _ = open(t, b, "")
		}
		b.Introduced(mcp.Legacy, err)
		if s := b.Status(); s.State != stdio.Failed || s.Reason != "cannot be started: a secret reason" {
			t.Errorf("after five ends: %+v", s)
		}
		b.Introduced(mcp.Legacy, errors.New("another reason"))
		if s := b.Status(); s.State != stdio.Failed || s.Reason != "another reason" {
			t.Errorf("after an introduction that failed: %+v", s)
		}
	})
}

// A server that refuses initialize is asked once, and what it says to that is told, but for its
// secrets.
func TestIntroductionThatIsRefused(t *testing.T) {
	t.Parallel()
	told := &behind{file: filepath.Join(t.TempDir(), "told")}
	b := bridge(t, "", func(c *stdio.Config) {
		c.Starter = program(t, "refuses", told.file)
		c.Secrets = func() [][]byte { return [][]byte{[]byte("sk-0123456789")} }
	})
	back, err := backend.Open(backend.Config{Name: "back", Local: b, Silence: time.Minute, Cap: time.Minute, Info: []byte("{}"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	const want = `introduction: refuses initialize (error -32603), and says "no such key: REDACTED"`
	if _, err := back.Introduced(t.Context(), nil); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if s := b.Status(); s.State != stdio.Failed || s.Reason != want {
		t.Errorf("%+v", s)
	}
	if n := len(told.told("start")); n != 1 {
		t.Errorf("it was started %d times", n)
	}
}

// Who waits while another asks a server that fails is told what that one is, and starts it once
// more only where that one left.
func TestIntroductionThatOthersAwait(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		t.Run(fmt.Sprintf("the first leaves: %v", leaves), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts := make(chan chan bool, 8)
				b := bridge(t, "", func(c *stdio.Config) { c.Starter = held(starts) })
				back, err := backend.Open(backend.Config{Name: "back", Local: b, Silence: time.Minute, Cap: time.Minute, Info: []byte("{}"), Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				defer back.Close()
				ask := func(ctx context.Context) chan error {
					told := make(chan error, 1)
					go func() {
						_, err := back.Introduced(ctx, nil)
						told <- err
					}()
					synctest.Wait()
					return told
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				first, second := ask(ctx), ask(t.Context())
				want := 1
				if leaves {
					leave()
					if err := <-first; edge.KindOf(err) != edge.Gone {
						t.Errorf("the first, which left: %v", err)
					}
					synctest.Wait()
					want = 2
				}
				n := 0
				for len(starts) > 0 {
					n++
					close(<-starts)
					synctest.Wait()
				}
				if err := <-second; n != want || err == nil || !strings.Contains(err.Error(), "refuses initialize") {
					t.Errorf("started %d times, and the second was told: %v", n, err)
				}
			})
		})
	}
}

// held starts a server that refuses initialize, when it is let go.
type held chan chan bool

func (h held) Start(ctx context.Context, principal string) (stdio.Process, error) {
	one := make(chan bool)
	h <- one
	select {
	case <-one:
		return inside("refuses").Start(ctx, principal)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A server that ends on server/discover, that answers it late, or never, is served; the
// first is remembered, and is asked for initialize alone from then on.
func TestIntroduction(t *testing.T) {
	for _, how := range []string{"legacy discover=die", "legacy discover=mute", "legacy discover=late", "modern discover=late", "both"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			eras := map[string]mcp.Era{}
			b := start(t, how, func(c *stdio.Config) {
				c.Remember = func(digest string, era mcp.Era) {
					mu.Lock()
					defer mu.Unlock()
					eras[digest] = era
				}
				c.Remembered = func(digest string) (mcp.Era, bool) {
					mu.Lock()
					defer mu.Unlock()
					era, ok := eras[digest]
					return era, ok
				}
			})
			for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
				if got := text(t, b.NewClient().As(client, "").CallTool("1", "echo", `{"text":"x"}`)); got != "x" {
					t.Errorf("%s: %q", client, got)
				}
			}
			want := mcp.Legacy
			if strings.HasPrefix(how, "modern") || how == "both" {
				want = mcp.Modern
			}
			mu.Lock()
			era, known := eras[how]
			mu.Unlock()
			if !known || era != want {
				t.Errorf("remembered as %v, %t", era, known)
			}
			if s := b.bridge.Status(); s.State != stdio.Running {
				t.Errorf("status %+v", s)
			}
			if strings.Contains(b.log(), "stdout:") {
				t.Errorf("the log: %s", b.log())
			}
		})
	}
}

// A server that says nothing is given up when its time is over.
func TestIntroductionHasAnEnd(t *testing.T) {
	t.Parallel()
	began := time.Now()
	b := start(t, "modern discover=mute", func(c *stdio.Config) { c.First, c.Introduction = 3*time.Second, time.Second })
	m := b.NewClient().As(edgetest.Modern, "").CallTool("1", "echo", "{}").Message()
	if fault(m) == "" {
		t.Error("no error")
	}
	await(t, "it has failed", func() bool { return b.bridge.Status().State == stdio.Failed })
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("after %s", took)
	}
}

// fetched is a bridge to a server that has to be fetched first, which may take a minute.
type fetched struct {
	*stdio.Bridge
	started *atomic.Bool
}

func (f fetched) Introduction() time.Duration {
	if !f.started.Load() {
		return time.Minute
	}
	return f.Bridge.Introduction()
}

// fetching is a starter that says when it has started something.
type fetching struct {
	stdio.Starter
	started atomic.Bool
}

func (f *fetching) Start(ctx context.Context, principal string) (stdio.Process, error) {
	p, err := f.Starter.Start(ctx, principal)
	f.started.Store(true)
	return p, err
}

// The time that it takes to fetch a server is not given to the server, too, when it is there:
// also where what it speaks is remembered.
func TestIntroductionBeginsWithTheServer(t *testing.T) {
	for name, remembered := range map[string]func(string) (mcp.Era, bool){
		"unknown": nil,
		"legacy":  func(string) (mcp.Era, bool) { return mcp.Legacy, true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			starter := &fetching{Starter: stdio.Command{Path: "/bin/sleep", Args: []string{"60"}}}
			bridge, err := stdio.New(stdio.Config{Name: "back", Digest: "fetched", Timeout: 3 * time.Second, Introduction: time.Second, Starter: starter, Remembered: remembered})
			if err != nil {
				t.Fatal(err)
			}
			start := func(serve.Starting) (backend.Local, error) { return fetched{bridge, &starter.started}, nil }
			edgetest.StartPlan(t, planned(t), edgetest.With(serve.WithWorkloads(start)))
			await(t, "it has failed", func() bool { return bridge.Status().State == stdio.Failed })
			if took, why := time.Since(began), bridge.Status().Reason; took > 20*time.Second || !strings.Contains(why, "within 1s") {
				t.Errorf("after %s: %s", took, why)
			}
		})
	}
}

// The edge's own process ends when it has rested, and another begins when there is need.
func TestOwnProcessRests(t *testing.T) {
	t.Parallel()
	b := start(t, "legacy", func(c *stdio.Config) { c.Idle = 100 * time.Millisecond })
	await(t, "it begins", func() bool { return b.bridge.Status().State == stdio.Running })
	await(t, "it ends", func() bool { return b.bridge.Status().Processes == 0 })
	if s := b.bridge.Status(); s.State != stdio.Running || s.Ended != "unused" {
		t.Errorf("status %+v", s)
	}
	if got := text(t, b.NewClient().As(edgetest.Modern, "").CallTool("1", "echo", `{"text":"x"}`)); got != "x" {
		t.Errorf("%q", got)
	}
}

// A process at rest that does not answer is unhealthy and ended; one at work is left alone.
func TestProbes(t *testing.T) {
	t.Parallel()
	b := start(t, "legacy", nil)
	c := b.NewClient().As(edgetest.Modern, "")
	pid := text(t, c.CallTool("1", "pid", "{}"))
	busy := b.NewClient().As(edgetest.Legacy, "")
	working := text(t, busy.CallTool("1", "pid", "{}"))
	var works sync.WaitGroup
	works.Go(func() {
		r, err := busy.TryAsk("2", "tools/call", edgetest.CallParams("wait", `{"ms":16000}`))
		if err != nil || r.Status != 200 {
			t.Errorf("the call at work: %v", err)
			return
		}
		if answer, err := r.TryAnswer(); !strings.Contains(string(answer), "waited") {
			t.Errorf("the call at work: %s, %v", answer, err)
		}
	})
	number := 0
	fmt.Sscan(pid, &number)
	began := time.Now()
	if err := syscall.Kill(number, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, "it is unhealthy", func() bool { return b.bridge.Status().State == stdio.Unhealthy })
	if took := time.Since(began); took > 12*time.Second+time.Second {
		t.Errorf("unhealthy after %s", took)
	}
	await(t, "it is gone", func() bool { return !alive(pid) })
	await(t, "it is back", func() bool {
		r := c.CallTool("2", "echo", `{"text":"x"}`)
		_ = r.Answer()
		return r.Status == 200
	})
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("back after %s", took)
	}
	if !alive(working) {
		t.Error("the process at work was ended")
	}
	works.Wait()
}

// What a server prints is masked, cut, and bounded.
func TestStderr(t *testing.T) {
	t.Parallel()
	b := start(t, "legacy", func(c *stdio.Config) {
		c.Secrets = func() [][]byte { return [][]byte{[]byte("hunter2hunter2"), []byte("short")} }
	})
	c := b.NewClient().As(edgetest.Legacy, "")
	c.CallTool("1", "stderr", `{"n":1,"text":"the password is hunter2hunter2, and short"}`).Result()
	await(t, "it is logged", func() bool { return strings.Contains(b.log(), "the password is") })
	if !strings.Contains(b.log(), "stderr: the password is REDACTED, and short 0\n") {
		t.Errorf("logged %s", b.log())
	}
	c.CallTool("2", "stderr", `{"n":300,"text":"`+strings.Repeat("l", 20<<10)+`"}`).Result()
	c.Session.Delete()
	await(t, "what is left out is counted", func() bool { return strings.Contains(b.log(), "lines left out") })
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes := 0
	for _, l := range b.lines {
		if bytes += len(l.Text); len(l.Text) > 16<<10+len("…") {
			t.Errorf("a line of %d bytes", len(l.Text))
		}
	}
	if bytes > 4<<20 {
		t.Errorf("%d bytes logged of 6 MiB", bytes)
	}
}

// A line of stdout that is cut for the log does not end with the beginning of a secret.
func TestCutLineHoldsNoSecret(t *testing.T) {
	t.Parallel()
	const secret = "a-secret-of-the-server-0123456789"
	b := start(t, "legacy", func(c *stdio.Config) { c.Secrets = func() [][]byte { return [][]byte{[]byte(secret)} } })
	c := b.NewClient().As(edgetest.Legacy, "")
	for _, before := range []int{16<<10 - len(secret) + 1, 16<<10 - 20, 16<<10 - 4} {
		rawCall(c, "1", strings.Repeat("z", before)+secret, right).Result()
	}
	log := b.log()
	if n := strings.Count(log, "zzzz\n"); n != 3 || strings.Contains(log, secret[:4]) {
		t.Errorf("%d of 3 lines end before the secret; its beginning is in the log: %t", n, strings.Contains(log, secret[:4]))
	}
}

// A server behind a socket is attached to by each connection: a newline ends what an
// attach before left half said, and the server is introduced anew.
func TestSocket(t *testing.T) {
	t.Parallel()
	self, _ := os.Executable()
	dir, err := os.MkdirTemp("", "weir-stdio") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	told := filepath.Join(dir, "told")
	cmd := exec.Command(self)
	cmd.Env = []string{asServer + "=legacy tell=" + told}
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	conns := make(chan net.Conn, 10)
	go func() { // the sidecar: pumps the bytes of one attach at a time
		var mu sync.Mutex
		var now net.Conn
		go func() {
			buf := make([]byte, 4096)
			for {
				n, err := out.Read(buf)
				if err != nil {
					return
				}
				mu.Lock()
				if now != nil {
					now.Write(buf[:n])
				}
				mu.Unlock()
			}
		}()
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			now = c
			mu.Unlock()
			conns <- c
			go func() {
				buf := make([]byte, 4096)
				for {
					n, err := c.Read(buf)
					in.Write(buf[:n])
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	in.Write([]byte(`{"jsonrpc":"2.0","half`)) // of an attach before
	b := &behind{t: t, file: told}
	b.open(stdio.Config{Name: "back", Starter: stdio.Socket(path), Newline: true, Mode: stdio.Shared, Introduction: 10 * time.Second})
	c := b.NewClient().As(edgetest.Legacy, "")
	if got := text(t, c.CallTool("1", "echo", `{"text":"x"}`)); got != "x" {
		t.Fatalf("%q", got)
	}
	if len(b.told("nonsense")) != 1 {
		t.Errorf("the half line: %q", b.told("nonsense"))
	}
	(<-conns).Close()
	await(t, "the attach is over", func() bool { return b.bridge.Status().Processes == 0 })
	await(t, "the session is over", func() bool {
		r := c.CallTool("2", "echo", "{}")
		_ = r.Answer()
		return r.Status == 404
	})
	c = b.NewClient().As(edgetest.Legacy, "")
	await(t, "another attach", func() bool {
		r := c.CallTool("3", "echo", `{"text":"y"}`)
		_ = r.Answer()
		return r.Status == 200
	})
	if n := len(b.told("initialize")); n != 2 {
		t.Errorf("introduced %d times", n)
	}
	b.Stop()
}

// Only a start after an end that was a failure is a restart: sessions come and go.
func TestRestartsAreCounted(t *testing.T) {
	b := start(t, "legacy", nil)
	for range 3 {
		c := b.NewClient().As(edgetest.Legacy, "")
		c.CallTool("1", "echo", "{}").Result()
		n := b.bridge.Status().Processes
		c.Session.Delete()
		await(t, "the process of the session is gone", func() bool { return b.bridge.Status().Processes < n })
	}
	if n := b.bridge.Status().Restarts; n != 0 {
		t.Errorf("%d restarts after sessions that ended in order", n)
	}
	c := b.NewClient().As(edgetest.Modern, "")
	c.CallTool("1", "half", "{}").Message()
	await(t, "the process is gone", func() bool { return b.bridge.Status().Ended == "exit 2" })
	for range 2 {
		c.CallTool("2", "echo", "{}").Result()
	}
	if n := b.bridge.Status().Restarts; n != 1 {
		t.Errorf("%d restarts after one exit", n)
	}
}

// A server that is not to be started again stays so, whatever else is tried with it meanwhile.
func TestNeverAgain(t *testing.T) {
	b := start(t, "legacy", func(c *stdio.Config) { c.Restart = stdio.Never })
	c := b.NewClient().As(edgetest.Modern, "")
	c.CallTool("1", "half", "{}").Message()
	await(t, "the process is gone", func() bool { return b.bridge.Status().State == stdio.Stopped })
	b.bridge.Introduced(0, errors.New("does not answer")) // as when it is asked to introduce itself anew
	if now := b.bridge.Status(); now.State != stdio.Stopped {
		t.Errorf("it is %v: %s", now.State, now.Reason)
	}
	if r := c.CallTool("2", "echo", "{}"); r.Message().Error == nil {
		t.Errorf("it was started again: %s", r.Body)
	}
	if n := b.bridge.Status().Processes; n != 0 {
		t.Errorf("%d processes", n)
	}
}

// Where the edge looks at the lists of a server, as for rules of its tools, it does so with one
// process beside the one that introduced itself.
func TestListsTakeOneProcess(t *testing.T) {
	file := filepath.Join(t.TempDir(), "told")
	bridge, err := stdio.New(stdio.Config{Name: "back", Digest: "lists", Timeout: 3 * time.Second, Starter: program(t, "legacy slow", file)})
	if err != nil {
		t.Fatal(err)
	}
	b := &behind{t: t, file: file, bridge: bridge}
	b.Edge = edgetest.StartPlan(t, plannedAs(t, `apiVersion: weir.dev/v1beta1
kind: MCPServer
metadata: {name: back}
spec: {image: "exec:///unused", transport: stdio, toolConfigRef: {name: some}}
---
apiVersion: weir.dev/v1beta1
kind: MCPToolConfig
metadata: {name: some}
spec: {toolsFilter: [echo]}
`), edgetest.With(serve.WithWorkloads(func(serve.Starting) (backend.Local, error) { return bridge, nil })))
	for _, list := range []string{"asked tools", "asked resources", "asked resources/templates"} {
		await(t, list, func() bool { return len(b.told(list+"/list")) > 0 })
	}
	if n := len(b.told("start")); n > 2 {
		t.Errorf("%d processes were started", n)
	}
}
