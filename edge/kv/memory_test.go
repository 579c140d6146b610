package kv_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/kv"
)

// still runs a test of a store in memory, in a world where time stands still
// unless the test waits.
func still(t *testing.T, l kv.Limits, test func(*testing.T, *kv.MemoryStore)) {
	synctest.Test(t, func(t *testing.T) {
		s := kv.Memory(l)
		defer s.Close()
		test(t, s)
	})
}

func take(t *testing.T, s edge.Store, b edge.Bucket) time.Duration {
	t.Helper()
	wait, _, err := s.Take(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return wait
}

// A token is there exactly when it was said to come, and not before.
func TestMemoryTimeIsExact(t *testing.T) {
	still(t, kv.Limits{}, func(t *testing.T, s *kv.MemoryStore) {
		for _, b := range []edge.Bucket{
			{Key: "3/min", Capacity: 3, Refill: time.Minute},
			{Key: "7/s", Capacity: 7, Refill: time.Second},
			{Key: "1/h", Capacity: 1, Refill: time.Hour},
			{Key: "many", Capacity: 1 << 30, Refill: 292 * 365 * 24 * time.Hour},
		} {
			one := b.Refill / time.Duration(b.Capacity)
			for n := range min(b.Capacity, 1000) {
				if wait := take(t, s, b); wait != 0 {
					t.Fatalf("%s: token %d: wait %s", b.Key, n, wait)
				}
			}
			if b.Capacity > 1000 {
				continue
			}
			for range 20 {
				wait := take(t, s, b)
				if wait < one || wait > one+time.Duration(b.Capacity) {
					t.Fatalf("%s: wait %s, want %s", b.Key, wait, one)
				}
				time.Sleep(wait / 2)
				if left := take(t, s, b); left < wait/2-time.Duration(b.Capacity) || left > wait/2+time.Duration(b.Capacity) {
					t.Fatalf("%s: after half of %s it is %s", b.Key, wait, left)
				} else {
					time.Sleep(left)
				}
				if wait := take(t, s, b); wait != 0 {
					t.Fatalf("%s: after the wait there are %s more", b.Key, wait)
				}
			}
		}
	})
}

func TestMemoryLifetimesAreExact(t *testing.T) {
	still(t, kv.Limits{}, func(t *testing.T, s *kv.MemoryStore) {
		ctx := t.Context()
		if err := s.Put(ctx, "k", []byte("v"), time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - time.Nanosecond)
		if v, _ := s.Get(ctx, "k"); string(v) != "v" {
			t.Error("a value went a nanosecond early")
		}
		time.Sleep(time.Nanosecond)
		if v, _ := s.Get(ctx, "k"); v != nil {
			t.Error("a value outlives its lifetime")
		}
		if err := s.Post(ctx, "box", []byte("m"), time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		listening, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		if err := s.Listen(listening, "box", func(m []byte) { t.Errorf("message %q outlives its lifetime", m) }); err != nil {
			t.Error(err)
		}
		if n := s.Counters().Expired; n != 1 {
			t.Errorf("%d messages expired, want 1", n)
		}
	})
}

// One of many owners fills its quarter of the room and no more: others go on, and what it replaces,
// deletes or lets expire is room of its own again.
func TestMemoryOwners(t *testing.T) {
	owner := func(key string) string {
		name, _, _ := strings.Cut(key, ":")
		return strings.TrimSuffix(name, "nobody")
	}
	for name, limits := range map[string]kv.Limits{"values": {Values: 12, Owner: owner}, "bytes": {Bytes: 12 << 10, Owner: owner}} {
		t.Run(name, func(t *testing.T) {
			still(t, limits, func(t *testing.T, s *kv.MemoryStore) {
				ctx, data := t.Context(), make([]byte, 1<<10-128-3) // with its key and what an entry costs 1 KiB
				put := func(key string, fits bool) {
					t.Helper()
					err := s.Put(ctx, key, data, time.Minute)
					if fits && err != nil || !fits && (!errors.Is(err, edge.ErrShare) || edge.KindOf(err) != edge.Overload) {
						t.Errorf("%s: %v", key, err)
					}
				}
				for _, key := range []string{"a:1", "a:2", "a:3"} {
					put(key, true)
				}
				put("a:4", false)
				if err := s.Update(ctx, "a:4", time.Minute, func([]byte) ([]byte, error) { return data, nil }); !errors.Is(err, edge.ErrShare) {
					t.Errorf("an update: %v", err)
				}
				put("a:1", true)
				put("b:1", true)
				for _, key := range []string{"nobody:1", "nobody:2", "nobody:3", "nobody:4"} {
					_ = s.Delete(ctx, key)
					put(key, true)
				}
				if err := s.Delete(ctx, "a:2"); err != nil {
					t.Fatal(err)
				}
				put("a:4", true)
				put("a:5", false)
				time.Sleep(time.Minute)
				put("a:5", true)
				if n := s.Counters().Full; n != 3 {
					t.Errorf("%d values found no room, want 3", n)
				}
			})
		})
	}
}

// A value that finds no room is refused, no other is lost for it, and what
// expires makes room.
func TestMemoryIsBounded(t *testing.T) {
	full := func(t *testing.T, err error) {
		t.Helper()
		if edge.KindOf(err) != edge.Overload {
			t.Errorf("a store that is full: %v", err)
		}
	}
	still(t, kv.Limits{Values: 10}, func(t *testing.T, s *kv.MemoryStore) {
		ctx := t.Context()
		for i := range 10 {
			if err := s.Put(ctx, strconv.Itoa(i), nil, time.Duration(i+1)*time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		full(t, s.Put(ctx, "more", nil, time.Minute))
		full(t, s.Update(ctx, "more", time.Minute, func([]byte) ([]byte, error) { return []byte{}, nil }))
		full(t, s.Post(ctx, "more", nil, time.Minute))
		if err := s.Put(ctx, "3", []byte("again"), 4*time.Minute); err != nil {
			t.Errorf("a value of a full store cannot be replaced: %v", err)
		}
		for i := range 10 {
			if v, _ := s.Get(ctx, strconv.Itoa(i)); v == nil {
				t.Errorf("value %d was lost", i)
			}
		}
		time.Sleep(time.Minute)
		if err := s.Put(ctx, "more", nil, time.Minute); err != nil {
			t.Errorf("what expired makes no room: %v", err)
		}
		full(t, s.Put(ctx, "most", nil, time.Minute))
		if err := s.Delete(ctx, "5"); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(ctx, "most", nil, time.Minute); err != nil {
			t.Errorf("what was deleted makes no room: %v", err)
		}
	})
	still(t, kv.Limits{Bytes: 10_000}, func(t *testing.T, s *kv.MemoryStore) {
		ctx := t.Context()
		for round := range 20 { // what is counted on the way in is counted on the way out
			if err := errors.Join(
				s.Put(ctx, "a", make([]byte, 4000), time.Minute),
				s.Put(ctx, "b", make([]byte, 100), time.Minute),
				s.Put(ctx, "b", make([]byte, 4000), time.Minute),
				s.Post(ctx, "box", make([]byte, 1000), time.Minute),
			); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			full(t, s.Put(ctx, "c", make([]byte, 1000), time.Minute))
			full(t, s.Post(ctx, "box", make([]byte, 1000), time.Minute))
			full(t, s.Put(ctx, "b", make([]byte, 6000), time.Minute))
			switch round % 3 {
			case 0:
				time.Sleep(2 * time.Minute)
			case 1:
				listening, stop := context.WithCancel(ctx)
				if err := s.Listen(listening, "box", func([]byte) { stop() }); err != nil {
					t.Error(err)
				}
				stop()
				if err := errors.Join(s.Delete(ctx, "a"), s.Delete(ctx, "b")); err != nil {
					t.Error(err)
				}
			case 2:
				time.Sleep(time.Minute) // nobody has swept yet
			}
		}
	})
	still(t, kv.Limits{Box: 3}, func(t *testing.T, s *kv.MemoryStore) {
		for range 3 {
			if err := s.Post(t.Context(), "box", nil, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		full(t, s.Post(t.Context(), "box", nil, time.Minute))
		time.Sleep(time.Minute)
		if err := s.Post(t.Context(), "box", nil, time.Minute); err != nil {
			t.Errorf("messages that expired make no room: %v", err)
		}
	})
}

// TestR07ManyUsers: a million users take memory for as many buckets as are
// kept. Who takes from many new buckets evicts those that have lost the least,
// and not the one that is empty.
func TestR07ManyUsers(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	const most = 20_000
	s := kv.Memory(kv.Limits{Buckets: most})
	defer s.Close()
	empty := edge.Bucket{Key: "rl:{local:srv}:user:the-one-that-is-over", Capacity: 10, Refill: 24 * time.Hour}
	for range 10 {
		take(t, s, empty)
	}
	before := heap()
	for i := range users {
		take(t, s, edge.Bucket{Key: fmt.Sprintf("rl:{local:srv}:user:%032d", i), Capacity: 10, Refill: 24 * time.Hour})
	}
	if grown := heap() - before; grown > 500*most {
		t.Errorf("%d users take %d KiB, for %d buckets", users, grown>>10, most)
	}
	if n := s.Counters().Evicted; n < users-most || n > users {
		t.Errorf("%d buckets were evicted", n)
	}
	if take(t, s, empty) == 0 {
		t.Error("the empty bucket was evicted and is full again")
	}
	runtime.KeepAlive(s)
}

// Buckets that are full are forgotten without anybody asking.
func TestFullBucketsAreForgotten(t *testing.T) {
	still(t, kv.Limits{Buckets: 100}, func(t *testing.T, s *kv.MemoryStore) {
		for round := range 10 {
			for i := range 100 {
				take(t, s, edge.Bucket{Key: fmt.Sprint(round, i), Capacity: 2, Refill: time.Second})
			}
			time.Sleep(10 * time.Second)
		}
		if n := s.Counters().Evicted; n != 0 {
			t.Errorf("%d buckets were evicted that were full", n)
		}
	})
}

// A change that uses the store, or takes its time, blocks nobody.
func TestChangeMayUseTheStore(t *testing.T) {
	still(t, kv.Limits{}, func(t *testing.T, s *kv.MemoryStore) {
		ctx, calls := t.Context(), 0
		err := s.Update(ctx, "k", time.Hour, func(old []byte) ([]byte, error) {
			if calls++; calls == 1 {
				if err := s.Put(ctx, "k", []byte("meanwhile"), time.Hour); err != nil {
					t.Error(err)
				}
			}
			return append(old, "+"...), nil
		})
		if v, _ := s.Get(ctx, "k"); string(v) != "meanwhile+" || err != nil || calls != 2 {
			t.Errorf("%q after %d calls: %v", v, calls, err)
		}
	})
}

// A second listener, a listener that comes and goes, and a store that is closed
// twice do no harm.
func TestMemoryListeners(t *testing.T) {
	still(t, kv.Limits{}, func(t *testing.T, s *kv.MemoryStore) {
		ctx, stop := context.WithCancel(t.Context())
		var got [2]int
		for i := range got {
			go func() {
				if err := s.Listen(ctx, "box", func([]byte) { got[i]++ }); err != nil {
					t.Error(err)
				}
			}()
		}
		for range 100 {
			if err := s.Post(ctx, "box", nil, time.Minute); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		stop()
		synctest.Wait()
		if got[0]+got[1] < 100 {
			t.Errorf("100 messages, and the listeners had %v", got)
		}
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkMemoryTake(b *testing.B) {
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprintf("buckets=%d", n), func(b *testing.B) {
			s := kv.Memory(kv.Limits{})
			defer s.Close()
			var buckets []edge.Bucket
			for i := range n {
				buckets = append(buckets, edge.Bucket{Key: "rl:{local:srv}:shared:" + strconv.Itoa(i), Capacity: 1 << 30, Refill: time.Second})
			}
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if wait, _, err := s.Take(ctx, buckets...); wait != 0 || err != nil {
					b.Fatal(wait, err)
				}
			}
		})
	}
}
