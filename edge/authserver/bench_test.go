//go:build unix

package authserver_test

import (
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// shared opens a replica with a secret and a key that last, on a store.
func shared(t testing.TB, store edge.Store, config func(*authserver.Spec)) *rig {
	kept := &secrets{all: map[string]string{"as/hmac": strings.Repeat("h", 32), "as/key": signingKey(t)}}
	return open(t, options{store: store, secrets: kept, reach: edge.Reach{DevLoopback: true}, config: func(c *authserver.Spec) {
		c.Secrets, c.Keys = append(c.Secrets, ref("hmac")), append(c.Keys, ref("key"))
		if config != nil {
			config(c)
		}
	}})
}

// eachStore runs a benchmark on memory and on Redis.
func eachStore(b *testing.B, run func(b *testing.B, store edge.Store)) {
	b.Run("memory", func(b *testing.B) {
		m := kv.Memory(kv.Limits{})
		b.Cleanup(func() { _ = m.Close() })
		run(b, m)
	})
	b.Run("redis", func(b *testing.B) {
		p := &place{options: kv.Options{Addresses: []string{kvtest.Redis(b).Addr}}}
		run(b, p.open(b, patience))
	})
}

// cpu is the CPU time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measured runs a benchmark's loop, and tells the CPU and the calls of the store that one takes,
// with what its client does in this process.
func (r *rig) measured(b *testing.B, one func()) {
	calls, before := r.store.calls.Load(), cpu()
	n := 0
	for b.Loop() {
		one()
		n++
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(n), "µs-CPU/op")
	b.ReportMetric(float64(r.store.calls.Load()-calls)/float64(n), "store-calls/op")
}

// BenchmarkCall is a call with a token of ours, verified before, of a grant that is known to
// live.
func BenchmarkCall(b *testing.B) {
	r := shared(b, nil, nil)
	_, got := r.signIn()
	g := r.gate(audience)
	header := []byte("Bearer " + got.Access)
	if _, err := g.Identify(b.Context(), edge.Secret(header), ""); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	r.measured(b, func() {
		if g.Remembered(header) == nil {
			if _, err := g.Identify(b.Context(), edge.Secret(header), ""); err != nil { // 7.5 s are over
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkInject is the upstream's token of such a call.
func BenchmarkInject(b *testing.B) {
	h := newHub(b)
	r := shared(b, nil, func(c *authserver.Spec) {
		c.Upstreams = []*upstream.Config{h.provider(b, "hub", c.Base+"/oauth/callback")}
	})
	s := &scene{t: b, hub: h, reps: []*rig{r}}
	got := s.login(s.client())
	who := &edge.Identity{Issuer: issuer, Subject: "hub:alice", Claims: r.claims(got.Access)}
	b.ReportAllocs()
	r.measured(b, func() {
		if token, _, err := r.Upstreams().Upstream(b.Context(), who, "hub"); err != nil || token == "" {
			b.Fatal(err)
		}
	})
	if h.refreshs != 0 {
		b.Errorf("%d refreshes", h.refreshs)
	}
}

// BenchmarkLogin is one without the upstream's part: authorize, consent, return, code, token.
func BenchmarkLogin(b *testing.B) {
	eachStore(b, func(b *testing.B, store edge.Store) {
		r := shared(b, store, nil)
		client, _ := r.register(nil)
		r.measured(b, func() { r.tokens(r.post("/oauth/token", redeeming(client, r.code(asking(client))))) })
	})
}

// BenchmarkRefresh is a refresh, with the upstream's tokens that are kept for as long.
func BenchmarkRefresh(b *testing.B) {
	eachStore(b, func(b *testing.B, store edge.Store) {
		h := newHub(b)
		r := shared(b, store, func(c *authserver.Spec) {
			c.Upstreams = []*upstream.Config{h.provider(b, "hub", c.Base+"/oauth/callback")}
		})
		s := &scene{t: b, hub: h, reps: []*rig{r}}
		client := s.client()
		got := s.login(client)
		r.measured(b, func() { got = r.tokens(r.post("/oauth/token", refreshing(client, got.Refresh))) })
	})
}

// BenchmarkRegister is a registration.
func BenchmarkRegister(b *testing.B) {
	r := shared(b, nil, nil)
	r.measured(b, func() {
		if w := r.registers(nil); w.Code != http.StatusCreated {
			b.Fatal(w.Body)
		}
	})
}

// BenchmarkForged is what is not ours: a client, a refresh token, a code, an access token.
func BenchmarkForged(b *testing.B) {
	r := shared(b, nil, nil)
	client, got := r.signIn()
	code := r.code(asking(client))
	g := r.gate(audience)
	forged := func(text string) string {
		at := len(text) - 6
		return text[:at] + map[bool]string{true: "B", false: "A"}[text[at] == 'A'] + text[at+1:]
	}
	for name, one := range map[string]func(){
		"client":        func() { r.post("/oauth/token", refreshing(forged(client), got.Refresh)) },
		"refresh token": func() { r.post("/oauth/token", refreshing(client, forged(got.Refresh))) },
		"code":          func() { r.post("/oauth/token", redeeming(client, forged(code))) },
		"access token":  func() { _, _ = g.Identify(b.Context(), edge.Secret("Bearer "+forged(got.Access)), "") },
	} {
		b.Run(name, func(b *testing.B) { r.measured(b, one) })
	}
}

// TestStoreCalls holds what a login and a refresh ask of a store against their bounds, with one
// upstream.
func TestStoreCalls(t *testing.T) {
	onBoth(t, func(t *testing.T, store edge.Store) {
		h := newHub(t)
		r := shared(t, store, func(c *authserver.Spec) {
			c.Upstreams = []*upstream.Config{h.provider(t, "hub", c.Base+"/oauth/callback")}
		})
		s := &scene{t: t, hub: h, reps: []*rig{r}}
		client := s.client()
		counted := func(what string, most int64, do func()) {
			before := r.store.calls.Load()
			do()
			if n := r.store.calls.Load() - before; n > most {
				t.Errorf("%s: %d calls of the store, not %d at most", what, n, most)
			}
		}
		var got tokens
		counted("a login", 11, func() { got = s.login(client) })
		counted("a refresh", 3, func() { got = r.tokens(r.post("/oauth/token", refreshing(client, got.Refresh))) })
		counted("a registration", 0, func() { r.register(nil) })
	})
}

// TestMemoryOfUsers holds what users who have signed in, with one upstream and tokens of 1 KiB,
// take of the memory store's process against 6 KiB each.
func TestMemoryOfUsers(t *testing.T) {
	const users = 2000
	m := kv.Memory(kv.Limits{})
	t.Cleanup(func() { _ = m.Close() })
	h := newHub(t)
	h.pad = strings.Repeat("p", 1<<10)
	r := shared(t, m, func(c *authserver.Spec) {
		c.Upstreams = []*upstream.Config{h.provider(t, "hub", c.Base+"/oauth/callback")}
	})
	s := &scene{t: t, hub: h, reps: []*rig{r}}
	client := s.client()
	held := func() int64 {
		runtime.GC()
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		return int64(now.HeapAlloc)
	}
	for range 100 { // what is made once
		s.login(client)
	}
	r.forget()
	h.forget()
	before := held()
	for range users {
		s.login(client)
	}
	r.forget()
	h.forget()
	each := (held() - before) / users
	t.Logf("%d bytes for each user", each)
	if each > 6<<10 {
		t.Errorf("%d bytes for each user", each)
	}
	runtime.KeepAlive(m)
}

// forget drops what the test itself keeps of users.
func (r *rig) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
	r.log.Reset()
}

func (h *hub) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.good = map[string]string{}
}
