//go:build unix

package serve_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// in is the YAML of a store in a Redis.
func in(redis *kvtest.Server) string {
	return fmt.Sprintf("sessionStorage: {provider: kvstore, address: %q}", redis.Addr)
}

// atOnce has n callers call echo at the same time. It returns how many passed,
// how many were refused for the limit, and what else was said.
func atOnce(n int, of func(i int) caller) (passed, refused int, other []string) {
	var mu sync.Mutex
	var all sync.WaitGroup
	start := make(chan struct{})
	places := make(chan struct{}, 200) // connections at a time
	for i := range n {
		all.Go(func() {
			<-start
			places <- struct{}{}
			defer func() { <-places }()
			r, err := of(i).try(strconv.Itoa(i), "tools/call", edgetest.CallParams("echo", "{}"))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				other = append(other, err.Error())
			case r.Status == 200 && strings.Contains(string(r.Body), `"result"`):
				passed++
			case r.Status == 429:
				refused++
			default:
				other = append(other, fmt.Sprintf("%d %s", r.Status, r.Body))
			}
		})
	}
	close(start)
	all.Wait()
	return passed, refused, other
}

// TestRateLimitIsExact: of 1,000 calls at the same time exactly as many pass as
// the bucket holds, for clients of both eras.
func TestRateLimitIsExact(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Legacy)
			e := edgetest.Start(t, edgetest.Manifest(back, "rateLimiting: {shared: "+bucket(100)+"}"), local)
			c := (&front{Edge: e, client: e.NewClient()}).callerOf(t, era, "")
			passed, refused, other := atOnce(1000, func(int) caller { return c })
			if passed != 100 || refused != 900 || len(other) > 0 {
				t.Errorf("%d passed, %d were refused, and %q", passed, refused, other)
			}
			if n := back.Count("tools/call"); n != 100 {
				t.Errorf("the backend had %d calls", n)
			}
		})
	}
}

// TestR04TwoEdgesOneBucket: two edges on one Redis admit exactly what one
// bucket holds, in both eras.
func TestR04TwoEdgesOneBucket(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			redis := kvtest.Redis(t)
			back := edgetest.NewServer(t, edgetest.Legacy)
			yaml := edgetest.Manifest(back, "rateLimiting: {shared: "+bucket(100)+"}", in(redis))
			var callers []caller
			for range 2 {
				e := edgetest.Start(t, yaml)
				f := &front{Edge: e, client: e.NewClient()}
				f.stored(t)
				callers = append(callers, f.callerOf(t, era, ""))
			}
			// A busy machine may make the store miss its time: such a call is
			// refused with 503, and may have taken a token. Without any, the
			// bucket gives all that it has.
			passed, refused, lost := 0, 0, 0
			for left := 1000; left > 0 && lost < 50; left = 1000 - passed - refused {
				p, r, other := atOnce(left, func(i int) caller { return callers[i%2] })
				passed, refused = passed+p, refused+r
				for _, one := range other {
					if !strings.HasPrefix(one, "503 ") {
						t.Fatal(one)
					}
					lost++
				}
			}
			if passed > 100 || passed+lost < 100 {
				t.Errorf("%d passed, %d were refused, %d were not answered in time", passed, refused, lost)
			}
			if n := back.Count("tools/call"); n != passed {
				t.Errorf("the backend had %d calls for %d that passed", n, passed)
			}
		})
	}
}

// stored waits until the edge has met its store.
func (f *front) stored(t *testing.T) {
	t.Helper()
	edgetest.Until(t, "the store", func() bool { return f.client.Do("GET", "/readyz", "").Status == 200 })
}

// TestR10RefusedCallsTakeNothing: what is refused says when to come again, does
// not reach the backend, and costs no other bucket; nor does what a policy
// denies, and nothing but calls of tools is counted.
func TestR10RefusedCallsTakeNothing(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Legacy)
			offers(back, "echo", "other", "danger")
			yaml := strings.Replace(edgetest.Manifest(back, `rateLimiting:
  shared: `+bucket(4)+`
  tools:
  - {name: echo, shared: `+bucket(2)+`}
`), "incomingAuth: {type: anonymous}\n", `incomingAuth:
  type: anonymous
  authz: {type: policy, policies: ['permit(principal, action, resource) unless { resource == Tool::"danger" };']}
`, 1)
			e := edgetest.Start(t, yaml, local)
			c := (&front{Edge: e, client: e.NewClient()}).callerOf(t, era, "")
			call := func(tool string) *edgetest.Response {
				return c.request(t, "7", "tools/call", edgetest.CallParams(tool, "{}"))
			}
			passes := func(r *edgetest.Response) {
				t.Helper()
				if r.Status != 200 {
					t.Errorf("status %d: %s", r.Status, r.Body)
				}
			}
			passes(call("echo"))
			passes(call("echo"))
			for range 10 { // R11: what comes again is no load for the backend
				limited(t, call("echo"), "7")
				fails(t, call("danger"), 403, 403, "7")
				fails(t, call("nothing"), 403, 403, "7")
				passes(c.request(t, "8", "tools/list", ""))
			}
			passes(call("other")) // of four, two are left
			passes(call("other"))
			limited(t, call("other"), "7")
			if n := back.Count("tools/call"); n != 4 {
				t.Errorf("the backend had %d calls", n)
			}
			status := string(e.NewClient().Do("GET", "/status", "").Body)
			if !strings.Contains(strings.Join(strings.Fields(status), ""), `"rateLimits":{"admitted":4,"limited":11,"uncounted":0,"failOpen":0}`) {
				t.Errorf("status: %s", status)
			}
		})
	}
}

// TestLaterRoundsArePaid: a modern client's call that asks is charged once,
// however many rounds it takes, also where the tool has another name for its
// backend; a requestState that does not verify is charged, and so is one that
// is a backend's own.
func TestLaterRoundsArePaid(t *testing.T) {
	for _, several := range []bool{false, true} {
		t.Run(fmt.Sprintf("several backends %v", several), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, edgetest.Legacy)
			back.Always("tools/call", func(c *edgetest.Call) {
				c.Ask("1", "roots/list", "")
				c.Ask("2", "roots/list", "")
				c.Result(`{"content":[]}`)
			})
			limit := "rateLimiting: {shared: " + bucket(2) + "}"
			name, yaml := "echo", edgetest.Manifest(back, limit)
			if several {
				name, yaml = "a_echo", group(map[string]*edgetest.Server{"a": back, "b": edgetest.NewServer(t, edgetest.Modern)}, bestEffort, limit)
			}
			e := edgetest.Start(t, yaml, local)
			c := (&front{Edge: e, client: e.NewClient()}).callerOf(t, edgetest.Modern, "")
			round := func(more string) *edgetest.Response {
				return c.request(t, "1", "tools/call", `{"name":"`+name+`","arguments":{}`+more+`}`, edgetest.Capabilities(asks))
			}
			first := inputRequired(t, round(""))
			answer := func(r required) string {
				return `,"inputResponses":{"` + r.key(t) + `":{"roots":[]}},"requestState":` + quote(r.RequestState)
			}
			second := inputRequired(t, round(answer(first)))
			if r := round(answer(second)); r.Status != 200 || r.Message().Error != nil {
				t.Fatalf("status %d: %s", r.Status, r.Body)
			}
			// One token is left. A state that was used costs nothing and does nothing.
			fails(t, round(answer(second)), 400, -32602, "1")
			forged := answer(second)
			fails(t, round(forged[:len(forged)-5]+`AAAA"`), 400, -32602, "1")
			limited(t, round(""), "1")
			limited(t, round(`,"requestState":"opaque"`), "1")
			if n := back.Count("tools/call"); n != 1 {
				t.Errorf("%d calls", n)
			}
		})
	}
}

// TestLimitsGoOnOverAReload: what has not changed of the limits is not counted
// anew, whatever else of the server changes.
func TestLimitsGoOnOverAReload(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	manifest := func(tokens int, more ...string) string {
		return edgetest.Manifest(back, append(more, "rateLimiting: {shared: "+bucket(tokens)+"}")...)
	}
	e := edgetest.Start(t, manifest(3), local)
	f := &front{Edge: e, client: e.NewClient()}
	c := f.callerOf(t, edgetest.Modern, "")
	if r := c.call(t, "1", "{}"); r.Status != 200 {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	if err := e.Serve.Reload(edgetest.LocalPlan(t, manifest(3, "passthroughHeaders: [X-Tenant]"))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r := c.call(t, "1", "{}"); r.Status != 200 {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
	}
	limited(t, c.call(t, "1", "{}"), "1")
	if status := string(f.client.Do("GET", "/status", "").Body); !strings.Contains(status, `"admitted": 3`) {
		t.Errorf("the counters began anew: %s", status)
	}
}

// TestR09Bypass: a call in a batch, with another spelling of its method or its
// name, is counted as what it is.
func TestR09Bypass(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	e := edgetest.Start(t, edgetest.Manifest(back, "rateLimiting: {tools: [{name: echo, shared: "+bucket(3)+"}]}"), local)
	s := e.NewClient().InitializeAs("2025-03-26", "")
	one := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{}}}`
	var parts []string
	for i := range 5 {
		parts = append(parts, fmt.Sprintf(one, i))
	}
	r := s.Send("[" + strings.Join(parts, ",") + "]")
	if passed, refused := strings.Count(string(r.Body), `"result"`), strings.Count(string(r.Body), `"code":429`); passed != 3 || refused != 2 {
		t.Errorf("%d passed and %d were refused: %s", passed, refused, r.Body)
	}
	escaped := strings.Replace(fmt.Sprintf(one, 9), `"echo"`, `"ech\u006f"`, 1)
	if r := s.Send(escaped); r.Status == 200 && strings.Contains(string(r.Body), `"result"`) {
		t.Errorf("a name with an escape passed: %s", r.Body)
	}
	if n := back.Count("tools/call"); n != 3 {
		t.Errorf("the backend had %d calls", n)
	}
}
