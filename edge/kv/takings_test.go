//go:build unix

package kv_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// TestZ48TokensAfterTimeouts: a token that was taken for somebody who heard
// nothing of it is given back, whatever happened to the question or the answer:
// a bucket of 60 serves 60, no fewer and no more.
func TestZ48TokensAfterTimeouts(t *testing.T) {
	r := kvtest.Redis(t)
	for name, harm := range map[string]struct{ begin, end func(*kvtest.Wire) }{
		"late answers": {func(w *kvtest.Wire) { w.Delay.Store(int64(400 * time.Millisecond)) }, func(w *kvtest.Wire) { w.Delay.Store(0) }},
		"lost answers": {func(w *kvtest.Wire) {
			w.Delay.Store(int64(30 * time.Millisecond))
			for range 10 {
				<-time.After(15 * time.Millisecond)
				w.Cut()
			}
		}, func(w *kvtest.Wire) { w.Delay.Store(0); w.Cut() }},
		"a store that is held up":     {func(*kvtest.Wire) { r.Freeze() }, func(*kvtest.Wire) { r.Thaw() }},
		"a store that cannot be sent": {func(w *kvtest.Wire) { w.Reset.Store(true) }, func(w *kvtest.Wire) { w.Reset.Store(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			r.Do("flushall")
			w := kvtest.NewWire(t, r.Addr)
			o := kv.Options{Addresses: []string{w.Addr}, Failures: 1000, Timeout: 250 * time.Millisecond} // every call asks
			a, b := open(t, o), open(t, o)
			ready(t, a)
			ready(t, b)
			buckets := []edge.Bucket{{Key: "rl:{a}:one", Capacity: 60, Refill: 240 * time.Hour}, {Key: "rl:{a}:two", Capacity: 61, Refill: 240 * time.Hour}}
			var served, failed atomic.Int64
			take := func(s *kv.RedisStore) (left bool) {
				wait, _, err := s.Take(t.Context(), buckets...)
				switch {
				case err != nil:
					failed.Add(1)
				case wait == 0:
					served.Add(1)
				}
				return err != nil || wait == 0
			}
			for range 10 {
				take(a)
			}
			var all sync.WaitGroup
			stop := make(chan struct{})
			for _, s := range []*kv.RedisStore{a, a, b, b} {
				all.Go(func() {
					for range 12 { // not at once: the harm is to begin before the last of them
						select {
						case <-stop:
							return
						default:
							take(s)
						}
						<-time.After(5 * time.Millisecond)
					}
				})
			}
			harm.begin(w)
			<-time.After(500 * time.Millisecond)
			harm.end(w)
			close(stop)
			all.Wait()
			if failed.Load() == 0 {
				t.Error("no call failed: there was no harm")
			}
			edgetest.Until(t, "every token", func() bool {
				take(a)
				return served.Load() >= 60
			})
			// What comes late is not taken, and nothing is given back twice.
			for range 50 {
				take(b)
				<-time.After(2 * time.Millisecond)
			}
			if n := served.Load(); n != 60 {
				t.Errorf("%d calls were served of 60; %d failed", n, failed.Load())
			}
			if n := r.Do("hget", "weir:rl:{a}:two", "tokens"); !strings.HasPrefix(n, "1.0") {
				t.Errorf("the other bucket has %s tokens, and had 61", n)
			}
			for _, k := range strings.Fields(r.Do("keys", "*")) {
				if r.Do("pttl", k) == "-1" {
					t.Errorf("%s stays for ever", k)
				}
			}
		})
	}
}
