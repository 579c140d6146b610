package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/ratelimit"
)

func TestMain(m *testing.M) { edgetest.Main(m) }

// limiter is a filter under test, with a backend that counts.
type limiter struct {
	*ratelimit.Part
	h     edge.Handler
	calls int // that reached what is behind the filter
}

func bucket(tokens int32, refill v1beta1.Duration) *v1beta1.RateBucket {
	return &v1beta1.RateBucket{MaxTokens: tokens, RefillPeriod: refill}
}

func parse(t testing.TB, limits v1beta1.RateLimiting, change ...func(*ratelimit.Spec)) *ratelimit.Part {
	t.Helper()
	s := ratelimit.Spec{Server: "srv", Limits: limits, Path: field.NewPath("rateLimiting"), Authenticated: true}
	for _, c := range change {
		c(&s)
	}
	p, errs := ratelimit.Parse(s)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return p
}

func start(t testing.TB, p *ratelimit.Part, store edge.Store) *limiter {
	t.Helper()
	f, err := p.Open(edge.Env{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	l := &limiter{Part: p}
	l.h = f(edge.HandlerFunc(func(context.Context, *edge.Exchange) (*edge.Response, error) {
		l.calls++
		return &edge.Response{Status: 200}, nil
	}))
	return l
}

func memory(t testing.TB) *kv.MemoryStore {
	s := kv.Memory(kv.Limits{})
	t.Cleanup(func() { s.Close() })
	return s
}

// call is an exchange that calls a tool of a backend.
func call(t testing.TB, tool, user string) *edge.Exchange {
	x := &edge.Exchange{Request: message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"as-written"}}`)}
	x.Target = &edge.Target{Backend: "back", Thing: edge.Tool, Name: tool}
	if user != "" {
		x.Identity = &edge.Identity{Issuer: "iss", Subject: user}
	}
	return x
}

func message(t testing.TB, text string) *mcp.Message {
	t.Helper()
	m := &mcp.Message{}
	if err := m.Decode([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return m
}

// own makes it a call of a tool that the edge answers itself.
func own(x *edge.Exchange) *edge.Exchange {
	x.Target = &edge.Target{Thing: edge.Tool, Name: x.Target.Name}
	return x
}

// inner makes it a call that the edge makes for another exchange.
func inner(x, parent *edge.Exchange) *edge.Exchange {
	x.Parent = parent
	return x
}

func (l *limiter) do(x *edge.Exchange) error {
	_, err := l.h.Handle(context.Background(), x)
	return err
}

// admits checks a number of calls that are all admitted.
func (l *limiter) admits(t testing.TB, n int, x *edge.Exchange) {
	t.Helper()
	for i := range n {
		if err := l.do(x); err != nil {
			t.Fatalf("call %d of %d: %v", i+1, n, err)
		}
	}
}

// limits checks a call that finds no token.
func (l *limiter) limits(t testing.TB, x *edge.Exchange) *edge.Error {
	t.Helper()
	before := l.calls
	err := l.do(x)
	var e *edge.Error
	if !errors.As(err, &e) || e.Kind != edge.Limited {
		t.Fatalf("a call over the limit: %v", err)
	}
	if l.calls != before {
		t.Fatal("a call over the limit reached the backend")
	}
	return e
}

func TestKeepsToEachLimit(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits v1beta1.RateLimiting
		kind   ratelimit.Kind
		others []*edge.Exchange // that have tokens of their own
		same   []*edge.Exchange // that have not
	}{
		{"shared by all", v1beta1.RateLimiting{Shared: bucket(3, "1h")}, ratelimit.SharedServer,
			nil, []*edge.Exchange{call(t, "other", "ann"), call(t, "tool", "bob"), call(t, "tool", "")}},
		{"of each user", v1beta1.RateLimiting{PerUser: bucket(3, "1h")}, ratelimit.PerUserServer,
			[]*edge.Exchange{call(t, "tool", "bob")}, []*edge.Exchange{call(t, "other", "ann")}},
		{"of a tool", v1beta1.RateLimiting{Tools: []v1beta1.ToolRateLimit{{Name: "tool", Shared: bucket(3, "1h")}}}, ratelimit.SharedTool,
			[]*edge.Exchange{call(t, "other", "ann")}, []*edge.Exchange{call(t, "tool", "bob")}},
		{"of each user of a tool", v1beta1.RateLimiting{Tools: []v1beta1.ToolRateLimit{{Name: "tool", PerUser: bucket(3, "1h")}}}, ratelimit.PerUserTool,
			[]*edge.Exchange{call(t, "other", "ann"), call(t, "tool", "bob")}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := start(t, parse(t, c.limits), memory(t))
			l.admits(t, 3, call(t, "tool", "ann"))
			l.limits(t, call(t, "tool", "ann"))
			for _, x := range c.same {
				l.limits(t, x)
			}
			for _, x := range c.others {
				l.admits(t, 1, x)
			}
			n := l.Counters()
			if n.Limited[c.kind] != uint64(1+len(c.same)) {
				t.Errorf("%s: %d limited, want %d; all: %+v", c.kind, n.Limited[c.kind], 1+len(c.same), n)
			}
		})
	}
}

// What is no call of a tool costs nothing and is never refused.
func TestOnlyCallsCount(t *testing.T) {
	l := start(t, parse(t, v1beta1.RateLimiting{Shared: bucket(1, "1h")}), memory(t))
	for _, method := range []string{"tools/list", "prompts/get", "resources/read", "initialize", "ping", "notifications/progress", "Tools/call"} {
		x := call(t, "tool", "ann")
		x.Request = message(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{}}`, method))
		l.admits(t, 3, x)
	}
	missing := call(t, "tool", "ann")
	missing.Target = nil
	l.admits(t, 3, missing)
	l.admits(t, 1, call(t, "tool", "ann"))
	l.limits(t, call(t, "tool", "ann"))
}

// The answer says when the next token comes, and then it is there.
func TestTellsTheTrueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, parse(t, v1beta1.RateLimiting{Shared: bucket(3, "1m")}), memory(t))
		l.admits(t, 3, call(t, "tool", "ann"))
		time.Sleep(4500 * time.Millisecond)
		e := l.limits(t, call(t, "tool", "ann"))
		if e.After != 15500*time.Millisecond || string(e.Data) != `{"retryAfterSeconds":16}` || e.Err.Error() != "Rate limit exceeded" {
			t.Errorf("after %s: data %s, text %q", e.After, e.Data, e.Err)
		}
		time.Sleep(e.After - time.Millisecond)
		e = l.limits(t, call(t, "tool", "ann"))
		if e.After != time.Millisecond || string(e.Data) != `{"retryAfterSeconds":1}` {
			t.Errorf("a millisecond early: after %s, data %s", e.After, e.Data)
		}
		time.Sleep(e.After)
		l.admits(t, 1, call(t, "tool", "ann"))
		l.limits(t, call(t, "tool", "ann"))
	})
}

// away is a store that cannot be reached.
type away struct {
	edge.Store
	err error
}

func (s away) Take(context.Context, ...edge.Bucket) (time.Duration, int, error) { return 0, -1, s.err }

var errAway = errors.New("dial tcp 10.1.2.3:6379: no")

// TestR01StoreAway: closed refuses with 503 and Retry-After, open admits and
// counts each.
func TestR01StoreAway(t *testing.T) {
	limits := v1beta1.RateLimiting{Shared: bucket(1, "1h")}
	closed := start(t, parse(t, limits), away{err: errAway})
	for range 5 {
		err := closed.do(call(t, "tool", "ann"))
		var e *edge.Error
		if !errors.As(err, &e) || e.Kind != edge.Overload || e.After < time.Second || !errors.Is(err, errAway) {
			t.Fatalf("closed: %v", err)
		}
		if strings.Contains(err.Error(), "10.1.2.3") {
			t.Errorf("the text names the store: %v", err)
		}
	}
	if n := closed.Counters(); closed.calls != 0 || n.StoreErrors != 5 || n.FailOpen != 0 || n.Admitted != 0 {
		t.Errorf("closed: %d calls, %+v", closed.calls, n)
	}
	open := start(t, parse(t, limits, func(s *ratelimit.Spec) { s.FailOpen = true }), away{err: errAway})
	open.admits(t, 5, call(t, "tool", "ann"))
	if n := open.Counters(); open.calls != 5 || n.StoreErrors != 5 || n.FailOpen != 5 || n.Admitted != 0 {
		t.Errorf("open: %d calls, %+v", open.calls, n)
	}
}

// A client that leaves is not a store that is away.
func TestClientGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := start(t, parse(t, v1beta1.RateLimiting{Shared: bucket(1, "1h")}, func(s *ratelimit.Spec) { s.FailOpen = true }), away{err: context.Canceled})
	_, err := l.h.Handle(ctx, call(t, "tool", "ann"))
	if edge.KindOf(err) != edge.Gone || l.calls != 0 || l.Counters().StoreErrors != 0 {
		t.Errorf("%v, %d calls, %+v", err, l.calls, l.Counters())
	}
}

// TestR04TwoReplicas: two edges of one store, 1,000 calls at the same time, 100
// tokens.
func TestR04TwoReplicas(t *testing.T) {
	store, limits := memory(t), v1beta1.RateLimiting{Shared: bucket(100, "24h")}
	var passed [2]*ratelimit.Part
	var handlers [2]edge.Handler
	for i := range passed {
		passed[i] = parse(t, limits)
		f, err := passed[i].Open(edge.Env{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		handlers[i] = f(edge.HandlerFunc(func(context.Context, *edge.Exchange) (*edge.Response, error) { return nil, nil }))
	}
	var all sync.WaitGroup
	for i := range 1000 {
		x := call(t, "tool", "ann")
		all.Go(func() {
			if _, err := handlers[i%2].Handle(context.Background(), x); err != nil && edge.KindOf(err) != edge.Limited {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := passed[0].Counters().Admitted + passed[1].Counters().Admitted; n != 100 {
		t.Errorf("%d of 1,000 passed", n)
	}
}

// keys is a store that remembers which buckets it was asked for.
type keys struct {
	edge.Store
	seen []string
}

func (k *keys) Take(_ context.Context, buckets ...edge.Bucket) (time.Duration, int, error) {
	for _, b := range buckets {
		k.seen = append(k.seen, b.Key)
	}
	return 0, -1, nil
}

// The names of the buckets in the store.
func TestKeys(t *testing.T) {
	limits := v1beta1.RateLimiting{Shared: bucket(1, "1h"), PerUser: bucket(1, "1h"),
		Tools: []v1beta1.ToolRateLimit{{Name: "tool", Shared: bucket(1, "1h"), PerUser: bucket(1, "1h")}}}
	k := &keys{}
	start(t, parse(t, limits), k).admits(t, 1, call(t, "tool", "ann"))
	uid := regexp.MustCompile(`[0-9a-f]{32}$`)
	var got []string
	for _, key := range k.seen {
		got = append(got, uid.ReplaceAllString(key, "<uid>"))
	}
	want := []string{"rl:{local:srv}:shared", "rl:{local:srv}:user:<uid>", "rl:{local:srv}:shared:tool:tool", "rl:{local:srv}:user-tool:tool:<uid>"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// TestR06NamesDoNotMix: users, tools and servers of any name have buckets of
// their own, whose keys are short and say nothing of the user.
func TestR06NamesDoNotMix(t *testing.T) {
	names := []string{"a", "a:b", "b", "*", "a*", "a\nb", "}", "a}", "{a}", "shared", "user", "tool:a", "é", "~a", strings.Repeat("x", 10<<10), strings.Repeat("x", 10<<10) + "y", "a\x00b"}
	seen := map[string]string{}
	for _, server := range names {
		for _, tool := range names {
			limits := v1beta1.RateLimiting{Shared: bucket(1, "1h"), PerUser: bucket(1, "1h"),
				Tools: []v1beta1.ToolRateLimit{{Name: tool, Shared: bucket(1, "1h"), PerUser: bucket(1, "1h")}}}
			for _, user := range names {
				k := &keys{}
				start(t, parse(t, limits, func(s *ratelimit.Spec) { s.Server = server }), k).admits(t, 1, call(t, tool, user))
				if len(k.seen) != 4 {
					t.Fatalf("%d buckets", len(k.seen))
				}
				tags := map[string]bool{}
				for i, who := range []string{"server", "server user " + user, "tool " + tool, "tool " + tool + " user " + user} {
					key := k.seen[i]
					who = server + " " + who
					if other, ok := seen[key]; ok && other != who {
						t.Fatalf("%q and %q have one bucket: %q", who, other, key)
					}
					seen[key] = who
					if len(key) > 512 || strings.ContainsAny(key, "\n*\x00") {
						t.Errorf("key %q", key)
					}
					tag, _, _ := strings.Cut(key[strings.Index(key, "{")+1:], "}")
					tags[tag] = true
				}
				if len(tags) != 1 || tags[""] {
					t.Errorf("the buckets of a call lie in several slots: %v", tags)
				}
			}
		}
	}
	k := &keys{}
	start(t, parse(t, v1beta1.RateLimiting{PerUser: bucket(1, "1h")}), k).admits(t, 1, call(t, "tool", "ann@example.com"))
	if strings.Contains(k.seen[0], "ann") || strings.Contains(k.seen[0], "iss") {
		t.Errorf("the key names the user: %q", k.seen[0])
	}
}

// Two issuers may have users of one name.
func TestUsersOfTwoIssuers(t *testing.T) {
	l := start(t, parse(t, v1beta1.RateLimiting{PerUser: bucket(1, "1h")}), memory(t))
	for _, id := range []edge.Identity{{Issuer: "a", Subject: "b:c"}, {Issuer: "a:b", Subject: "c"}, {Issuer: "a", Subject: "b"}, {Issuer: "", Subject: "a"}} {
		x := call(t, "tool", "")
		x.Identity = &id
		l.admits(t, 1, x)
		l.limits(t, x)
	}
}

// TestR08PerUserNeedsUsers: a limit for each user without authentication is an
// error when the server starts, and what slips through is denied.
func TestR08PerUserNeedsUsers(t *testing.T) {
	_, errs := ratelimit.Parse(ratelimit.Spec{Server: "srv", Path: field.NewPath("rateLimiting"), Limits: v1beta1.RateLimiting{
		PerUser: bucket(1, "1h"),
		Tools:   []v1beta1.ToolRateLimit{{Name: "a", PerUser: bucket(1, "1h")}, {Name: "b", Shared: bucket(1, "1h")}},
	}})
	if got := paths(errs); got != "rateLimiting.perUser rateLimiting.tools[0].perUser" {
		t.Errorf("errors at %s", got)
	}
	l := start(t, parse(t, v1beta1.RateLimiting{PerUser: bucket(1, "1h")}), memory(t))
	if err := l.do(call(t, "tool", "")); edge.KindOf(err) != edge.Denied || l.calls != 0 {
		t.Errorf("a call of nobody: %v", err)
	}
}

// TestR09NoWayAround: whatever calls a tool, the tool's own limit counts, under
// the name that the catalog gave it and for the client behind it all.
func TestR09NoWayAround(t *testing.T) {
	limits := v1beta1.RateLimiting{Shared: bucket(8, "1h"), PerUser: bucket(6, "1h"), Tools: []v1beta1.ToolRateLimit{
		{Name: "tool", PerUser: bucket(2, "1h")},
		{Name: "call_tool", Shared: bucket(3, "1h")},
	}}
	type exchange = *edge.Exchange
	ways := map[string]func(exchange) exchange{
		"itself":      func(x exchange) exchange { return x },
		"call_tool":   func(x exchange) exchange { return inner(x, own(call(t, "call_tool", "ann"))) },
		"a script":    func(x exchange) exchange { return inner(x, own(call(t, "execute_tool_script", "ann"))) },
		"a composite": func(x exchange) exchange { return inner(x, own(call(t, "composite", "ann"))) },
		"a composite in a script": func(x exchange) exchange {
			return inner(x, inner(own(call(t, "composite", "")), own(call(t, "execute_tool_script", "ann"))))
		},
		"another way to write it": func(x exchange) exchange {
			x.Request = message(t, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"TOOL"}}`)
			return x
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			l := start(t, parse(t, limits), memory(t))
			l.admits(t, 1, call(t, "tool", "ann"))
			x := way(call(t, "tool", ""))
			if x.Parent == nil {
				x.Identity = &edge.Identity{Issuer: "iss", Subject: "ann"}
			}
			l.admits(t, 1, x)
			l.limits(t, x)
			l.limits(t, call(t, "tool", "ann"))
			l.admits(t, 2, call(t, "tool", "bob"))
		})
	}
	t.Run("what the edge answers itself", func(t *testing.T) {
		l := start(t, parse(t, limits), memory(t))
		l.admits(t, 100, own(call(t, "execute_tool_script", "ann")))
		l.admits(t, 100, own(call(t, "find_tool", "ann")))
		l.admits(t, 3, own(call(t, "call_tool", "ann")))
		l.limits(t, own(call(t, "call_tool", "ann")))
		l.admits(t, 6, call(t, "other", "ann")) // of which none was taken
		l.limits(t, call(t, "other", "ann"))
	})
	t.Run("a tool that nobody listed", func(t *testing.T) {
		l := start(t, parse(t, v1beta1.RateLimiting{Tools: []v1beta1.ToolRateLimit{{Name: "as-written", Shared: bucket(1, "1h")}}}), memory(t))
		x := call(t, "", "ann")
		l.admits(t, 1, x)
		l.limits(t, x)
	})
}

// TestR10RefusedCostsNothing: a call that one bucket refuses takes nothing from
// the others.
func TestR10RefusedCostsNothing(t *testing.T) {
	limits := v1beta1.RateLimiting{Shared: bucket(4, "1h"), Tools: []v1beta1.ToolRateLimit{{Name: "tool", Shared: bucket(1, "1h")}}}
	l := start(t, parse(t, limits), memory(t))
	l.admits(t, 1, call(t, "tool", "ann"))
	for range 10 {
		e := l.limits(t, call(t, "tool", "ann"))
		if e.After <= 0 || len(e.Data) == 0 {
			t.Errorf("the answer says nothing of when: %+v", e)
		}
	}
	l.admits(t, 3, call(t, "other", "ann"))
	l.limits(t, call(t, "other", "ann"))
	if n := l.Counters(); n.Admitted != 4 || n.Limited[ratelimit.SharedTool] != 10 || n.Limited[ratelimit.SharedServer] != 1 || n.Checks != 15 {
		t.Errorf("%+v", n)
	}
}

// TestR11Retries: a client that does not wait loads no backend.
func TestR11Retries(t *testing.T) {
	l := start(t, parse(t, v1beta1.RateLimiting{Shared: bucket(5, "1h")}), memory(t))
	l.admits(t, 5, call(t, "tool", "ann"))
	for range 50 {
		l.limits(t, call(t, "tool", "ann"))
	}
	if l.calls != 5 {
		t.Errorf("%d calls reached the backend", l.calls)
	}
}

// A later round of a call that was charged is free.
func TestPaidRounds(t *testing.T) {
	p := parse(t, v1beta1.RateLimiting{Shared: bucket(1, "1h")})
	p.Paid = func(_ context.Context, x *edge.Exchange) bool { return x.Request.Text("requestState") == "valid" }
	l := start(t, p, memory(t))
	round := func(state string) *edge.Exchange {
		x := call(t, "tool", "ann")
		x.Request = message(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool","requestState":%q}}`, state))
		return x
	}
	l.admits(t, 1, call(t, "tool", "ann"))
	l.admits(t, 3, round("valid"))
	l.limits(t, round("forged"))
}

func paths(errs field.ErrorList) string {
	var at []string
	for _, e := range errs {
		at = append(at, e.Field)
	}
	return strings.Join(at, " ")
}

func TestParseSaysEverythingAtOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits v1beta1.RateLimiting
		want   string
	}{
		{"nothing", v1beta1.RateLimiting{}, "r"},
		{"buckets", v1beta1.RateLimiting{Shared: bucket(0, "1m"), PerUser: bucket(-1, "")}, "r.shared.maxTokens r.perUser.maxTokens r.perUser.refillPeriod"},
		{"periods", v1beta1.RateLimiting{Shared: bucket(1, "0s"), PerUser: bucket(1, "soon")}, "r.shared.refillPeriod r.perUser.refillPeriod"},
		{"tools", v1beta1.RateLimiting{Tools: []v1beta1.ToolRateLimit{{Name: "a", Shared: bucket(1, "1m")}, {Name: "a", Shared: bucket(1, "1m")}, {Name: "b"}, {Shared: bucket(1, "1x")}}},
			"r.tools[1].name r.tools[2] r.tools[3].name r.tools[3].shared.refillPeriod"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, errs := ratelimit.Parse(ratelimit.Spec{Server: "s", Path: field.NewPath("r"), Limits: c.limits, Authenticated: true})
			if got := paths(errs); got != c.want || p != nil {
				t.Errorf("errors at %s\nwant      %s", got, c.want)
			}
		})
	}
	if _, err := parse(t, v1beta1.RateLimiting{Shared: bucket(1, "1m")}).Open(edge.Env{}); err == nil {
		t.Error("open without a store succeeds")
	}
}

// The examples are manifests that are served.
func TestExamples(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d examples", len(blocks))
	}
	for i, b := range blocks {
		set, _ := source.Read(fmt.Sprintf("example%d.yaml", i), b[1]) // what it finds wrong is in the result
		var out strings.Builder
		r := set.Compile()
		if err := r.Render(&out); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "example") {
				t.Errorf("example %d: %s", i, line)
			}
		}
		parsed := 0
		for _, o := range set.Objects {
			s, ok := o.Value.(*v1beta1.VirtualMCPServer)
			if !ok {
				continue
			}
			_, errs := ratelimit.Parse(ratelimit.Spec{
				Server: s.Name, Limits: *s.Spec.Config.RateLimiting, Path: field.NewPath("spec", "config", "rateLimiting"),
				Authenticated: s.Spec.IncomingAuth.Type != "anonymous",
			})
			if len(errs) > 0 {
				t.Errorf("example %d: %v", i, errs.ToAggregate())
			}
			parsed++
		}
		if parsed != 1 {
			t.Errorf("example %d has %d servers", i, parsed)
		}
	}
}

func BenchmarkFilter(b *testing.B) {
	p := parse(b, v1beta1.RateLimiting{Shared: bucket(1<<30, "1h"), PerUser: bucket(1<<30, "1h"),
		Tools: []v1beta1.ToolRateLimit{{Name: "tool", Shared: bucket(1<<30, "1h"), PerUser: bucket(1<<30, "1h")}}})
	l := start(b, p, memory(b))
	x := call(b, "tool", "ann")
	b.ReportAllocs()
	for b.Loop() {
		if err := l.do(x); err != nil {
			b.Fatal(err)
		}
	}
}
