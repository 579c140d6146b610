// Package kvtest is the one suite that every edge.Store must pass, and the real
// Redis servers that tests start, kill, freeze and start again.
package kvtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
)

// long is a lifetime that no test lives to see the end of.
const long = time.Hour

// Run holds a store to what edge.Store promises. a and b are two ways to the
// same data, as two replicas of an edge have them; for a store that has only
// one they are equal.
func Run(t *testing.T, a, b edge.Store) {
	for name, test := range map[string]func(*testing.T, edge.Store, edge.Store){
		"a value is kept as it is":              values,
		"a value has a lifetime":                lifetimes,
		"a value is the caller's own":           ownership,
		"a key is what it is, byte for byte":    keys,
		"what cannot be kept is refused":        refusals,
		"update sees and replaces the value":    update,
		"update is atomic":                      updateRace,
		"take takes all or nothing":             takeAll,
		"take is exact":                         takeRace,
		"take says how long to wait":            takeWait,
		"a bucket holds no more than it may":    takeCap,
		"a box keeps messages in order":         boxOrder,
		"a box keeps messages for its listener": boxEarly,
		"messages have a lifetime":              boxLifetime,
		"what a listener had does not return":   boxOnce,
		"many boxes do not mix":                 boxMany,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, a, b)
		})
	}
}

// key makes a key that no other test uses.
func key(t *testing.T, name string) string {
	return strings.ReplaceAll(t.Name(), " ", "-") + ":" + name
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, s edge.Store, key string) []byte {
	t.Helper()
	v, err := s.Get(t.Context(), key)
	must(t, err)
	return v
}

func values(t *testing.T, a, b edge.Store) {
	ctx, k := t.Context(), key(t, "k")
	if v := get(t, a, k); v != nil {
		t.Fatalf("there is %q before anything was put", v)
	}
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, want := range [][]byte{[]byte("v"), all, {}, {0}, {1}, bytes.Repeat([]byte("x"), 1<<20), []byte("last")} {
		must(t, a.Put(ctx, k, want, long))
		got := get(t, b, k)
		if got == nil || !bytes.Equal(got, want) {
			t.Fatalf("put %d bytes, got %d (nil: %t)", len(want), len(got), got == nil)
		}
	}
	must(t, b.Delete(ctx, k))
	if v := get(t, a, k); v != nil {
		t.Fatalf("after delete there is %q", v)
	}
	must(t, b.Delete(ctx, k))
}

func lifetimes(t *testing.T, a, b edge.Store) {
	ctx := t.Context()
	short, kept, renewed := key(t, "short"), key(t, "kept"), key(t, "renewed")
	must(t, a.Put(ctx, short, []byte("v"), 20*time.Millisecond))
	must(t, a.Put(ctx, kept, []byte("v"), long))
	must(t, a.Put(ctx, renewed, []byte("v"), 20*time.Millisecond))
	must(t, a.Put(ctx, renewed, []byte("w"), long))
	must(t, a.Update(ctx, kept, 20*time.Millisecond, func(old []byte) ([]byte, error) { return old, nil }))
	must(t, a.Update(ctx, kept, long, func(old []byte) ([]byte, error) { return append(old, "ery"...), nil }))
	edgetest.Until(t, "the end of a lifetime", func() bool { return get(t, b, short) == nil })
	if get(t, b, kept) == nil || string(get(t, b, renewed)) != "w" {
		t.Error("a value went before its time")
	}
	must(t, a.Update(ctx, short, 20*time.Millisecond, func(old []byte) ([]byte, error) {
		if old != nil {
			t.Errorf("update sees %q, which has expired", old)
		}
		return []byte("again"), nil
	}))
	edgetest.Until(t, "the end of an updated value's lifetime", func() bool { return get(t, b, short) == nil })
}

func ownership(t *testing.T, a, b edge.Store) {
	ctx, k := t.Context(), key(t, "k")
	mine := []byte("mine")
	must(t, a.Put(ctx, k, mine, long))
	mine[0] = 'x'
	get(t, a, k)[1] = 'x'
	must(t, a.Update(ctx, key(t, "other"), long, func([]byte) ([]byte, error) { return mine, nil }))
	mine[0] = 'y'
	err := errors.New("no")
	if got := a.Update(ctx, k, long, func(old []byte) ([]byte, error) { old[2] = 'x'; return old, err }); !errors.Is(got, err) {
		t.Errorf("update returns %v instead of the error of change", got)
	}
	if v, w := get(t, b, k), get(t, b, key(t, "other")); string(v) != "mine" || string(w) != "xine" {
		t.Errorf("a caller's change to his own bytes changed the value: %q, %q", v, w)
	}
}

func keys(t *testing.T, a, b edge.Store) {
	ctx := t.Context()
	names := []string{"a:b", "a", "b", "*", "a*", "a\nb", "a\r\nDEL a\r\n", "{a}", "{a}b", "}{", "{}", "a b", "\x00", "\xff", "日", strings.Repeat("k", 900)}
	for i, n := range names {
		must(t, a.Put(ctx, key(t, n), []byte(strconv.Itoa(i)), long))
	}
	for i, n := range names {
		if v := get(t, b, key(t, n)); string(v) != strconv.Itoa(i) {
			t.Errorf("key %q: %q", n, v)
		}
	}
}

func refusals(t *testing.T, a, _ edge.Store) {
	ctx, k := t.Context(), key(t, "k")
	keep := func([]byte) ([]byte, error) { return []byte("v"), nil }
	take := func(b edge.Bucket) error { _, _, err := a.Take(ctx, b); return err }
	huge := make([]byte, 64<<20)
	for what, err := range map[string]error{
		"a value without a lifetime":   a.Put(ctx, k, nil, 0),
		"a lifetime below nothing":     a.Put(ctx, k, nil, -1),
		"an update without a lifetime": a.Update(ctx, k, 0, keep),
		"a message without a lifetime": a.Post(ctx, k, nil, 0),
		"a huge value":                 a.Put(ctx, k, huge, long),
		"a huge message":               a.Post(ctx, k, huge, long),
		"no key":                       a.Put(ctx, "", nil, long),
		"a long key":                   a.Put(ctx, strings.Repeat("k", 10<<10), nil, long),
		"a long key to get":            func() error { _, err := a.Get(ctx, strings.Repeat("k", 10<<10)); return err }(),
		"no bucket at all":             take(edge.Bucket{Key: k}),
		"a bucket that never fills":    take(edge.Bucket{Key: k, Capacity: 1}),
		"a bucket without a key":       take(edge.Bucket{Capacity: 1, Refill: 1}),
	} {
		if err == nil {
			t.Errorf("%s is not refused", what)
		}
	}
	if v := get(t, a, k); v != nil {
		t.Errorf("what was refused is there: %d bytes", len(v))
	}
}

func update(t *testing.T, a, b edge.Store) {
	ctx, k := t.Context(), key(t, "k")
	to := func(want, next string) func([]byte) ([]byte, error) {
		return func(old []byte) ([]byte, error) {
			if got := fmt.Sprintf("%s/%t", old, old == nil); got != want {
				t.Errorf("update sees %s, want %s", got, want)
			}
			if next == "" {
				return nil, nil
			}
			return []byte(next), nil
		}
	}
	must(t, a.Update(ctx, k, long, to("/true", "")))
	must(t, a.Update(ctx, k, long, to("/true", "one")))
	must(t, b.Update(ctx, k, long, to("one/false", "two")))
	must(t, a.Put(ctx, k, nil, long))
	must(t, b.Update(ctx, k, long, to("/false", "three")))
	must(t, b.Update(ctx, k, long, to("three/false", "")))
	if v := get(t, a, k); v != nil {
		t.Errorf("a nil result leaves %q", v)
	}
	no := errors.New("no")
	if err := a.Update(ctx, k, long, func([]byte) ([]byte, error) { return []byte("x"), no }); err != no {
		t.Errorf("the error of change comes back as %v", err)
	}
	if v := get(t, a, k); v != nil {
		t.Errorf("an update that failed left %q", v)
	}
}

// updateRace: 1,000 that count up at the same time, over two ways to the store.
func updateRace(t *testing.T, a, b edge.Store) {
	const n = 1000
	ctx, k := t.Context(), key(t, "k")
	var all sync.WaitGroup
	for i := range n {
		s := a
		if i%2 == 1 {
			s = b
		}
		all.Go(func() {
			err := s.Update(ctx, k, long, func(old []byte) ([]byte, error) {
				now := 0
				if old != nil {
					var err error
					if now, err = strconv.Atoi(string(old)); err != nil {
						return nil, err
					}
				}
				return []byte(strconv.Itoa(now + 1)), nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if v := get(t, a, k); string(v) != strconv.Itoa(n) {
		t.Errorf("%d counted up, and the count is %s", n, v)
	}
}

// bucket makes a bucket of this test; its keys lie in one slot of a cluster.
func bucket(t *testing.T, name string, capacity int32, refill time.Duration) edge.Bucket {
	return edge.Bucket{Key: "rl:{" + key(t, "") + "}:" + name, Capacity: capacity, Refill: refill}
}

func take(t *testing.T, s edge.Store, buckets ...edge.Bucket) (time.Duration, int) {
	t.Helper()
	wait, short, err := s.Take(t.Context(), buckets...)
	must(t, err)
	if (wait == 0) != (short == -1) || wait < 0 {
		t.Fatalf("take: wait %s, short %d", wait, short)
	}
	return wait, short
}

func takeAll(t *testing.T, a, b edge.Store) {
	if wait, short := take(t, a); wait != 0 || short != -1 {
		t.Errorf("to take from no bucket: %s, %d", wait, short)
	}
	wide, narrow := bucket(t, "wide", 3, long), bucket(t, "narrow", 1, long)
	take(t, a, wide, narrow)
	for range 5 {
		if _, short := take(t, b, wide, narrow); short != 1 {
			t.Fatalf("the short bucket is %d", short)
		}
		if _, short := take(t, a, narrow, wide); short != 0 {
			t.Fatalf("the short bucket is %d", short)
		}
	}
	// None of the refused has taken from the wide one: two are left.
	for i, want := range []bool{true, true, false} {
		if wait, _ := take(t, b, wide); (wait == 0) != want {
			t.Fatalf("take %d of what was left: wait %s", i, wait)
		}
	}
	// Both are short: the one that wants the longest wait is told.
	if wait, short := take(t, a, wide, narrow); short != 1 || wait < long/2 {
		t.Errorf("of 20m and 1h: %s, %d", wait, short)
	}
	twice := bucket(t, "twice", 2, long)
	if wait, _ := take(t, a, twice, twice); wait != 0 {
		t.Errorf("a bucket of two does not give two: %s", wait)
	}
	if wait, _ := take(t, b, twice); wait == 0 {
		t.Error("a bucket of two gives three")
	}
}

// takeRace: 1,000 takers at the same time, over two ways to the store, and
// exactly as many tokens as the bucket holds.
func takeRace(t *testing.T, a, b edge.Store) {
	buckets := []edge.Bucket{bucket(t, "one", 100, 24*time.Hour), bucket(t, "two", 1000, 24*time.Hour)}
	var taken atomic.Int32
	var all sync.WaitGroup
	for i := range 1000 {
		s := a
		if i%2 == 1 {
			s = b
		}
		all.Go(func() {
			wait, _, err := s.Take(t.Context(), buckets...)
			if err != nil {
				t.Error(err)
			} else if wait == 0 {
				taken.Add(1)
			}
		})
	}
	all.Wait()
	if taken.Load() != 100 {
		t.Errorf("%d takers got a token of 100", taken.Load())
	}
	// The 900 that were refused cost the other bucket nothing.
	left := 0
	for wait := time.Duration(0); wait == 0; left++ {
		wait, _ = take(t, a, buckets[1])
	}
	if left-1 != 900 {
		t.Errorf("%d tokens are left of 900", left-1)
	}
}

// takeWait: after the time that was told there is a token, and before half of
// it there is none.
func takeWait(t *testing.T, a, b edge.Store) {
	k := bucket(t, "b", 4, 800*time.Millisecond)
	var wait time.Duration
	var began time.Time
	for wait == 0 {
		began = time.Now()
		wait, _ = take(t, b, k)
	}
	if wait > 200*time.Millisecond {
		t.Fatalf("an empty bucket that gets a token every 200ms asks for %s", wait)
	}
	for left := wait; left > 0; {
		<-time.After(left)
		asked := time.Now()
		left, _ = take(t, a, k)
		// What it asks for was true when it was asked, somewhere in between.
		if due := wait - asked.Sub(began); left > max(due, 0)+time.Millisecond {
			t.Fatalf("%s after the start it asks for %s more; at first it was %s", asked.Sub(began), left, wait)
		}
	}
	if since := time.Since(began); since < wait-time.Millisecond {
		t.Errorf("a token came after %s instead of %s", since, wait)
	}
}

func takeCap(t *testing.T, a, _ edge.Store) {
	const refill = 200 * time.Millisecond
	k := bucket(t, "b", 2, refill)
	take(t, a, k)
	<-time.After(3 * refill)
	began, n := time.Now(), 0
	for wait, _ := take(t, a, k); wait == 0; wait, _ = take(t, a, k) {
		n++
	}
	if most := 2 + int(time.Since(began)/(refill/2)); n < 2 || n > most {
		t.Errorf("%d tokens came out of a bucket of 2, within %s", n, time.Since(began))
	}
}

// listen collects what a box gives until stop is called.
func listen(t *testing.T, s edge.Store, box string) (got chan string, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	got, ended := make(chan string, 10000), make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Listen(ctx, box, func(m []byte) { got <- string(m) }); err != nil {
			t.Errorf("listen: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		edgetest.Receive(t, ended, "the end of listening")
	})
	t.Cleanup(stop)
	return got, stop
}

func boxOrder(t *testing.T, a, b edge.Store) {
	const n = 500
	box := key(t, "box")
	got, _ := listen(t, b, box)
	for i := range n {
		must(t, a.Post(t.Context(), box, []byte(strconv.Itoa(i)), long))
	}
	for i := range n {
		if m := edgetest.Receive(t, got, "a message"); m != strconv.Itoa(i) {
			t.Fatalf("message %d is %s", i, m)
		}
	}
}

func boxEarly(t *testing.T, a, b edge.Store) {
	box := key(t, "box")
	want := []string{"one", "", "\x00\xff", strings.Repeat("long", 1<<18), "last"}
	for _, m := range want {
		must(t, a.Post(t.Context(), box, []byte(m), long))
	}
	got, _ := listen(t, b, box)
	for i, w := range want {
		if m := edgetest.Receive(t, got, "a message"); m != w {
			t.Fatalf("message %d has %d bytes, want %d", i, len(m), len(w))
		}
	}
}

func boxLifetime(t *testing.T, a, b edge.Store) {
	box := key(t, "box")
	must(t, a.Post(t.Context(), box, []byte("kept"), long))
	must(t, a.Post(t.Context(), box, []byte("lost"), time.Millisecond))
	<-time.After(50 * time.Millisecond) // much longer than it lives
	must(t, a.Post(t.Context(), box, []byte("last"), long))
	got, _ := listen(t, b, box)
	for _, want := range []string{"kept", "last"} {
		if m := edgetest.Receive(t, got, "a message"); m != want {
			t.Errorf("got %q, want %q", m, want)
		}
	}
}

// boxOnce: what one listener had, the next does not have again; what came in
// between is for the next.
func boxOnce(t *testing.T, a, b edge.Store) {
	box := key(t, "box")
	got, stop := listen(t, a, box)
	must(t, b.Post(t.Context(), box, []byte("first"), long))
	edgetest.Receive(t, got, "the first message")
	stop()
	must(t, b.Post(t.Context(), box, []byte("second"), long))
	got, _ = listen(t, b, box)
	if m := edgetest.Receive(t, got, "the second message"); m != "second" {
		t.Errorf("the next listener has %q", m)
	}
}

func boxMany(t *testing.T, a, b edge.Store) {
	const n = 50
	var boxes []chan string
	for i := range n {
		got, _ := listen(t, b, key(t, strconv.Itoa(i)))
		boxes = append(boxes, got)
	}
	var posted sync.WaitGroup
	for i := range n {
		posted.Go(func() {
			for j := range 5 {
				if err := a.Post(t.Context(), key(t, strconv.Itoa(i)), fmt.Appendf(nil, "%d.%d", i, j), long); err != nil {
					t.Error(err)
				}
			}
		})
	}
	posted.Wait()
	for i, box := range boxes {
		var got, want []string
		for j := range 5 {
			got, want = append(got, edgetest.Receive(t, box, "a message")), append(want, fmt.Sprintf("%d.%d", i, j))
		}
		if !slices.Equal(got, want) {
			t.Errorf("box %d has %q", i, got)
		}
	}
}
