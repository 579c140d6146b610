//go:build unix

package serve_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
	"github.com/weir-edge/weir/edge/serve"
)

// moving is two edges whose server moves from one Redis to another.
type moving struct {
	*pair
	t      *testing.T
	to     *kvtest.Server
	before string
	after  string
}

func newMoving(t *testing.T) *moving {
	m := &moving{pair: newPair(t, edgetest.Legacy), t: t, to: kvtest.Redis(t)}
	m.before, m.after = edgetest.Manifest(m.back, in(m.redis)), edgetest.Manifest(m.back, in(m.to))
	return m
}

// move has an edge reload.
func (m *moving) move(f *front) {
	m.t.Helper()
	if err := f.Serve.Reload(edgetest.Plan(m.t, m.after)); err != nil {
		m.t.Fatal(err)
	}
	f.stored(m.t)
}

// TestZ42EndsOverAMove: two edges move to another store, one after the other, and
// a session that its client ends meanwhile, before, between or after, at either
// edge, ends at both and is in neither store; others go on at both all the time.
func TestZ42EndsOverAMove(t *testing.T) {
	t.Parallel()
	const before, between, after = 0, 1, 2
	for _, when := range []int{before, between, after} {
		for _, at := range []string{"a", "b"} {
			t.Run(fmt.Sprintf("ended at %s, %d", at, when), func(t *testing.T) {
				t.Parallel()
				m := newMoving(t)
				var ends, idle, lives []caller
				for range 3 {
					ends, idle, lives = append(ends, m.a.callerOf(t, edgetest.Legacy, "")), append(idle, m.a.callerOf(t, edgetest.Legacy, "")), append(lives, m.a.callerOf(t, edgetest.Legacy, ""))
				}
				works := func(all []caller) {
					t.Helper()
					for i, c := range all {
						for name, f := range map[string]*front{"a": m.a, "b": m.b} {
							if r := c.at(f).call(t, "1", "{}"); r.Status != 200 || r.Message().Error != nil {
								t.Fatalf("session %d at %s: status %d: %s", i, name, r.Status, r.Body)
							}
						}
					}
				}
				works(ends)
				works(idle)
				end := func(now int) {
					t.Helper()
					if now != when {
						return
					}
					f := map[string]*front{"a": m.a, "b": m.b}[at]
					for _, c := range append(ends, idle...) {
						if r := c.at(f).session.Delete(); r.Status != 200 {
							t.Errorf("DELETE: status %d: %s", r.Status, r.Body)
						}
					}
				}
				end(before)
				m.move(m.a)
				works(lives)
				if when > before {
					works(ends)
				}
				end(between)
				works(lives)
				if when <= between { // used again and again at the edge that has not heard
					for _, c := range ends {
						for name, f := range map[string]*front{"a": m.a, "b": m.b} {
							there := c.at(f)
							edgetest.Until(t, "the end at "+name, func() bool { return there.call(t, "1", "{}").Status == 404 })
						}
					}
				}
				m.move(m.b)
				works(lives)
				if when > between {
					works(ends)
				}
				end(after)
				works(lives)
				for _, c := range append(ends, idle...) {
					for name, f := range map[string]*front{"a": m.a, "b": m.b} {
						there := c.at(f)
						edgetest.Until(t, "the end at "+name, func() bool { return there.call(t, "1", "{}").Status == 404 })
					}
				}
				// The old store is left, and what ended stays ended.
				edgetest.Until(t, "the end of the old store", func() bool { return m.redis.Do("client", "list", "type", "pubsub") == "" })
				works(lives)
				for _, c := range append(ends, idle...) {
					for _, f := range []*front{m.a, m.b} {
						fails(t, c.at(f).call(t, "1", "{}"), 404, -32001, "1")
					}
				}
			})
		}
	}
}

// TestZ42NewerRecords: what a session has set up in the new store is not undone by
// an edge that comes later; and one that an edge which has moved does not know is
// found in the old store.
func TestZ42NewerRecords(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.back.Always("logging/setLevel", func(c *edgetest.Call) { c.Result("{}") })
	c, unknown := m.a.callerOf(t, edgetest.Legacy, ""), m.b.callerOf(t, edgetest.Legacy, "")
	if r := c.at(m.b).call(t, "1", "{}"); r.Status != 200 {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	m.move(m.a)
	if r := unknown.at(m.a).call(t, "2", "{}"); r.Status != 200 {
		t.Errorf("a session that only the old store knows: status %d: %s", r.Status, r.Body)
	}
	if r := c.request(t, "3", "logging/setLevel", `{"level":"critical"}`); r.Status != 200 || r.Message().Error != nil {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	m.move(m.b)
	for range 3 {
		if r := c.at(m.b).call(t, "4", "{}"); r.Status != 200 {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
	}
	m.back.Until("the level at the other edge", func() bool {
		n := 0
		for _, r := range m.back.Requests("logging/setLevel") {
			if edgetest.Member(string(r.Message.Params), "level") == `"critical"` {
				n++
			}
		}
		return n >= 2
	})
}

// TestZ42DeadStore: sessions of a store that is gone when its server leaves it
// cannot be confirmed, and end, soon; clients begin anew in the new one. In memory
// they go on, and can be ended.
func TestZ42DeadStore(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	c := m.a.callerOf(t, edgetest.Legacy, "")
	m.redis.Kill()
	m.move(m.a)
	if r := c.call(t, "1", "{}"); r.Status != 503 && r.Status != 404 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	edgetest.Until(t, "the end of the session", func() bool { return c.call(t, "2", "{}").Status == 404 })
	next := m.a.callerOf(t, edgetest.Legacy, "")
	if r := next.call(t, "3", "{}"); r.Status != 200 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	if err := m.a.Serve.Reload(edgetest.Plan(t, edgetest.Manifest(m.back))); err != nil {
		t.Fatal(err)
	}
	if r := next.call(t, "4", "{}"); r.Status != 200 {
		t.Errorf("in memory: status %d: %s", r.Status, r.Body)
	}
	edgetest.Until(t, "the end of the store", func() bool { return m.to.Do("client", "list", "type", "pubsub") == "" })
	if r := next.session.Delete(); r.Status != 200 {
		t.Errorf("DELETE in memory: status %d: %s", r.Status, r.Body)
	}
	fails(t, next.call(t, "5", "{}"), 404, -32001, "5")
}

// TestZ42NewStoreThatIsAway: a session is not lost when the store that its server
// moves to is away meanwhile. It is moved when that is back, whether its client
// comes or not.
func TestZ42NewStoreThatIsAway(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	m.b.Stop()
	c, idle := m.a.callerOf(t, edgetest.Legacy, ""), m.a.callerOf(t, edgetest.Legacy, "")
	m.to.Kill()
	if err := m.a.Serve.Reload(edgetest.Plan(t, m.after)); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 3*time.Second; time.Sleep(100 * time.Millisecond) {
		if r := c.call(t, "1", "{}"); r.Status != 503 {
			t.Fatalf("without the new store: status %d: %s", r.Status, r.Body)
		}
	}
	m.to.Start()
	m.a.stored(t)
	edgetest.Until(t, "the sessions in the new store", func() bool {
		return len(strings.Fields(m.to.Do("--raw", "keys", "weir:session:*"))) == 2
	})
	edgetest.Until(t, "the end of the old store", func() bool { return m.redis.Do("client", "list", "type", "pubsub") == "" })
	for _, c := range []caller{c, idle} {
		edgetest.Until(t, "a call", func() bool {
			r := c.call(t, "2", "{}")
			if r.Status != 200 && r.Status != 503 {
				t.Fatalf("status %d: %s", r.Status, r.Body)
			}
			return r.Status == 200
		})
	}
}

// TestZ42SessionsInUse: while another edge stays at the old store, a session that is
// used all the time at one that has moved outlives its lifetime, wherever it began.
func TestZ42SessionsInUse(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	for _, memory := range []bool{false, true} {
		t.Run(fmt.Sprintf("memory %t", memory), func(t *testing.T) {
			t.Parallel()
			m := &moving{t: t, to: kvtest.Redis(t), pair: newPair(t, edgetest.Legacy, edgetest.Settings(func(s *serve.Settings) { s.SessionTTL = ttl }))}
			if m.after = edgetest.Manifest(m.back, in(m.to)); memory {
				m.after = edgetest.Manifest(m.back)
			}
			all := map[string]caller{"a": m.a.callerOf(t, edgetest.Legacy, "")}
			if !memory { // which has only what was there before
				all["b"] = m.b.callerOf(t, edgetest.Legacy, "")
			}
			time.Sleep(ttl / 4)
			m.move(m.a)
			for began := time.Now(); time.Since(began) < 2*ttl; time.Sleep(50 * time.Millisecond) {
				for name, c := range all {
					if r := c.at(m.a).call(t, "1", "{}"); r.Status != 200 {
						t.Fatalf("begun at %s, after %s: status %d: %s", name, time.Since(began), r.Status, r.Body)
					}
				}
			}
		})
	}
}
