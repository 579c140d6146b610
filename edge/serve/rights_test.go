//go:build unix

package serve_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/liar"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
	"github.com/weir-edge/weir/edge/serve"
)

// burst makes calls at the same time and counts their answers by status.
func burst(t *testing.T, n int, of func(i int) caller) map[int]int {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	seen := make(map[int]int)
	for i := range n {
		all.Go(func() {
			r, err := of(i).try(fmt.Sprint(i), "tools/call", edgetest.CallParams("echo", "{}"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			seen[r.Status]++
		})
	}
	all.Wait()
	return seen
}

// harmed is an edge in one mode, with a limit of so many tokens and two clients.
func harmed(t *testing.T, mode, address string, tokens int) (*front, []caller) {
	t.Helper()
	back, key := edgetest.NewServer(t, edgetest.Legacy), stateKey(t)
	e := edgetest.Start(t, edgetest.Manifest(back, fmt.Sprintf("sessionStorage: {provider: kvstore, address: %q}", address),
		"rateLimiting: {tools: [{name: echo, shared: "+bucket(tokens)+"}]}"),
		edgetest.With(serve.WithStorePassword("secret")),
		edgetest.Settings(func(s *serve.Settings) {
			s.StoreFailure, s.StoreTimeout, s.StateKeyFile = mode, 200*time.Millisecond, key
		}))
	f := &front{Edge: e, back: back, client: e.NewClient()}
	f.stored(t)
	return f, []caller{f.callerOf(t, edgetest.Legacy, ""), f.callerOf(t, edgetest.Modern, "")}
}

func (f *front) says(word string) bool {
	return strings.Contains(string(f.client.Do("GET", "/status", "").Body), word)
}

// judge holds the answers to calls while the store fails to what the mode says.
func judge(t *testing.T, mode string, seen map[int]int, tokens int) {
	t.Helper()
	if mode == "closed" && seen[200] > tokens {
		t.Errorf("%d calls of %d were admitted: %v", seen[200], tokens, seen)
	}
	for status := range seen {
		if status != 200 && status != 429 && !(mode == "closed" && status == 503) {
			t.Errorf("answers: %v", seen)
		}
	}
}

// TestZ44RightsThroughTheFront: an edge whose store lacks one right refuses what
// needs the store, or admits and counts it; it says so; no session is unknown;
// and it is well when the right is given.
func TestZ44RightsThroughTheFront(t *testing.T) {
	for _, mode := range []string{"closed", "open"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			redis := kvtest.Redis(t)
			redis.Do(append([]string{"acl", "setuser", "weir", "on", ">secret", "resetchannels", "&weir:*", "~weir:*"}, kvtest.Commands(t, "../kv/README.md")...)...)
			f, callers := harmed(t, mode, "redis://weir@"+redis.Addr, 5)
			for _, command := range []string{"hmget", "get", "pexpire", "getrange", "hset", "set", "evalsha", "time", "xadd", "publish"} {
				redis.Do("del", "weir:rl:{local:edgetest}:shared:tool:echo")
				redis.Do("acl", "setuser", "weir", "-"+command)
				judge(t, mode, burst(t, 30, func(i int) caller { return callers[i%2] }), 5)
				edgetest.Until(t, command+" to be told", func() bool {
					judge(t, mode, burst(t, 2, func(i int) caller { return callers[i%2] }), 2)
					return f.says(`"connected": false`) && f.says("NOPERM")
				})
				seen := burst(t, 20, func(i int) caller { return callers[i%2] })
				if want := map[string]int{"closed": 503, "open": 200}[mode]; seen[want] != 20 {
					t.Errorf("%s: %v", command, seen)
				}
				redis.Do("acl", "setuser", "weir", "+"+command)
				edgetest.Until(t, "a store that serves", func() bool { return f.says(`"connected": true`) })
				if seen := burst(t, 4, func(i int) caller { return callers[i%2] }); seen[200]+seen[429] != 4 {
					t.Errorf("after %s: %v", command, seen)
				}
			}
			if mode == "open" && f.says(`"failOpen": 0`) {
				t.Error("calls that were admitted uncounted are not counted")
			}
			if !strings.Contains(f.Log(), "NOPERM") {
				t.Error("the log does not say what is wrong")
			}
		})
	}
}

// TestZ46LiesThroughTheFront: the same for a store that answers with nonsense.
func TestZ46LiesThroughTheFront(t *testing.T) {
	for _, mode := range []string{"closed", "open"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			redis := kvtest.Redis(t)
			l, err := liar.Listen(redis.Addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(l.Close)
			redis.Do("config", "set", "requirepass", "secret")
			f, callers := harmed(t, mode, l.Addr, 1000)
			for i, lie := range liar.Lies() {
				if i%5 != 0 { // the others are told to the store alone
					continue
				}
				l.Lie(&lie)
				edgetest.Until(t, lie.Name+" to be noticed", func() bool {
					judge(t, mode, burst(t, 4, func(i int) caller { return callers[i%2] }), 4)
					return f.says(`"connected": false`)
				})
				judge(t, mode, burst(t, 20, func(i int) caller { return callers[i%2] }), 0)
				l.Lie(nil)
				healed := time.Now()
				edgetest.Until(t, "a store that serves", func() bool { return f.says(`"connected": true`) })
				if back := time.Since(healed); back > 2*time.Second {
					t.Errorf("%s: well again after %s", lie.Name, back)
				}
				if seen := burst(t, 4, func(i int) caller { return callers[i%2] }); seen[200] != 4 {
					t.Errorf("after %s: %v", lie.Name, seen)
				}
			}
		})
	}
}

// TestZ48ForgedMessages: what somebody else writes into the box of an edge is
// dropped and counted, and costs nobody anything.
func TestZ48ForgedMessages(t *testing.T) {
	t.Parallel()
	p := newPair(t, edgetest.Legacy)
	c := p.a.callerOf(t, edgetest.Legacy, "")
	c.at(p.b).call(t, "1", "{}").Result() // both have the session
	forger, err := kv.Redis(kv.Options{Addresses: []string{p.redis.Addr}, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = forger.Close() })
	session := strings.TrimPrefix(strings.Fields(p.redis.Do("keys", "weir:session:*"))[0], "weir:")
	posted := 0
	for _, alive := range strings.Fields(p.redis.Do("keys", "weir:alive:*")) {
		box := "node:" + strings.TrimPrefix(alive, "weir:alive:")
		for i := range 200 {
			text := `{"k":"end","s":"` + session + `"}` + "\n"
			if i%2 == 0 {
				text = "weir2 0123456789abcdef 1 " + fmt.Sprint(time.Now().UnixMilli()) + " AAAA AAAA\n" + text
			}
			if err := forger.Post(context.Background(), box, []byte(text), 10*time.Second); err != nil && edge.KindOf(err) != edge.Overload {
				t.Fatal(err)
			}
			posted++
		}
	}
	for _, f := range []*front{p.a, p.b} {
		edgetest.Until(t, "the messages to be dropped", func() bool { return f.says(fmt.Sprintf(`"droppedMessages": %d`, posted/2)) })
		if n := strings.Count(f.Log(), "a message in the store"); n != 1 {
			t.Errorf("the log tells it %d times", n)
		}
	}
	c.call(t, "2", "{}").Result()
	c.at(p.b).call(t, "3", "{}").Result()
}
