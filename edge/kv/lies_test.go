//go:build unix

package kv_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/liar"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// use asks a store for everything that it does, and says what it should not have
// answered: that there is nothing, or that a call may go on.
func use(t *testing.T, s *kv.RedisStore, kept string) {
	t.Helper()
	ctx := t.Context()
	v, err := s.Get(ctx, kept)
	if err == nil && string(v) != "v" {
		t.Errorf("get says %q of a value that is there", v)
	}
	_, _, takeErr := s.Take(ctx, edge.Bucket{Key: "rl:{lies}:empty", Capacity: 1, Refill: time.Hour})
	for method, err := range map[string]error{
		"get": err, "take": takeErr,
		"put":    s.Put(ctx, "other", []byte("w"), time.Hour),
		"delete": s.Delete(ctx, "none"),
		"post":   s.Post(ctx, "nobody", []byte("m"), time.Second),
		"update": s.Update(ctx, kept, time.Hour, func(old []byte) ([]byte, error) {
			if string(old) != "v" {
				t.Errorf("update sees %q of a value that is there", old)
			}
			return old, nil
		}),
	} {
		if err != nil && edge.KindOf(err) != edge.Overload {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// TestZ46Lies: whatever answers as the Redis, the edge goes on, takes no memory
// for it, admits no call and knows no value for gone, says that the store is
// away, and is well again soon after the lies end.
func TestZ46Lies(t *testing.T) {
	r := kvtest.Redis(t)
	l, err := liar.Listen(r.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	s := open(t, kv.Options{Addresses: []string{l.Addr}})
	ready(t, s)
	listening, stop := context.WithCancel(t.Context())
	var heard atomic.Int64
	ended := make(chan error, 1)
	go func() { ended <- s.Listen(listening, "box", func([]byte) { heard.Add(1) }) }()
	defer func() {
		stop()
		edgetest.Receive(t, ended, "the end of listening")
	}()
	admin := open(t, patient(r.Addr))
	for _, put := range []error{
		admin.Put(t.Context(), "k", []byte("v"), time.Hour),
		func() error {
			_, _, err := admin.Take(t.Context(), edge.Bucket{Key: "rl:{lies}:empty", Capacity: 1, Refill: time.Hour})
			return err
		}(),
	} {
		if put != nil {
			t.Fatal(put)
		}
	}
	for _, lie := range liar.Lies() {
		t.Run(lie.Name, func(t *testing.T) {
			var before runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			l.Lie(&lie)
			end := time.Now().Add(150 * time.Millisecond)
			var most atomic.Uint64
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for time.Now().Before(end) {
						use(t, s, "k")
						<-time.After(5 * time.Millisecond)
					}
				})
			}
			for time.Now().Before(end) {
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				most.Store(max(most.Load(), now.HeapInuse))
				<-time.After(10 * time.Millisecond)
			}
			all.Wait()
			if grew := int64(most.Load()) - int64(before.HeapInuse); grew > 64<<20 {
				t.Errorf("the heap grew by %d MiB", grew>>20)
			}
			edgetest.Until(t, "a store that is not ready", func() bool {
				use(t, s, "k")
				return s.Ready() != nil
			})
			if said := fmt.Sprint(s.Ready()); len(said) > 400 || strings.ContainsAny(said, "\x1b\x00") {
				t.Errorf("ready says %.500q", said)
			}
			l.Lie(nil)
			healed := time.Now()
			edgetest.Until(t, "a store that is ready", func() bool { return s.Ready() == nil })
			if back := time.Since(healed); back > 2*time.Second {
				t.Errorf("well again after %s", back)
			}
			before2 := heard.Load()
			edgetest.Until(t, "a value that is there", func() bool {
				v, err := s.Get(t.Context(), "k")
				return err == nil && string(v) == "v"
			})
			if err := s.Post(t.Context(), "box", []byte("m"), 10*time.Second); err != nil {
				t.Error(err)
			}
			edgetest.Until(t, "a message", func() bool { return heard.Load() > before2 })
		})
	}
}
