//go:build unix

package kv_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// A listener has every message that was posted while its store was there,
// whatever became of the connections.
func TestListenSurvives(t *testing.T) {
	r := kvtest.Redis(t)
	w := kvtest.NewWire(t, r.Addr)
	poster, s := open(t, patient(r.Addr)), open(t, kv.Options{Addresses: []string{w.Addr}})
	ready(t, s)
	got := make(chan string, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Listen(ctx, "box", func(m []byte) { got <- string(m) }) }()

	seen := 0
	expect := func() { // what comes is what was posted, in order, and possibly once more
		t.Helper()
		for want := seen; ; {
			m := edgetest.Receive(t, got, "message "+strconv.Itoa(want))
			n, _ := strconv.Atoi(m)
			if n > want {
				t.Fatalf("message %d before %d", n, want)
			}
			if n == want {
				seen = n + 1
				return
			}
		}
	}
	post := func(n int) {
		t.Helper()
		edgetest.Until(t, "a message that is posted", func() bool {
			return poster.Post(context.Background(), "box", []byte(strconv.Itoa(n)), time.Hour) == nil
		})
	}
	away := func() {
		t.Helper()
		edgetest.Until(t, "a store that is away", func() bool { return s.State().Open })
	}

	post(0)
	expect()
	w.Cut()
	post(1)
	expect()
	w.Reset.Store(true)
	w.Cut()
	away()
	post(2)
	post(3)
	w.Reset.Store(false)
	expect()
	expect()
	r.Freeze()
	away()
	r.Thaw()
	post(4)
	expect()
	r.Kill()
	away()
	r.Start()
	post(5)
	expect()

	cancel()
	if err := edgetest.Receive(t, ended, "the end of listening"); err != nil {
		t.Error(err)
	}
}

// A listener whose word that it took a message is heard twice, since the answer to
// the first was lost, takes no other message out of the box: not even one that
// was posted in the same millisecond.
func TestSayTwice(t *testing.T) {
	r := kvtest.Redis(t)
	s := open(t, patient(r.Addr))
	ready(t, s)
	ctx := t.Context()
	var before *kv.Taken
	for i := range 3000 {
		text := strconv.Itoa(i)
		if err := s.Post(ctx, "box", []byte(text), time.Hour); err != nil {
			t.Fatal(err)
		}
		if before != nil {
			if err := before.Say(ctx); err != nil {
				t.Fatal(err)
			}
		}
		taken, err := s.Next(ctx, "box")
		if err != nil || taken.Text != text {
			t.Fatalf("message %d: %v: %v", i, taken, err)
		}
		before = taken
	}
	edgetest.Until(t, "a box that is gone", func() bool { return r.Do("keys", "weir:box:*") == "" })
}

// A listener that cannot say what it had has it once more, or the next one has.
func TestAtLeastOnce(t *testing.T) {
	r := kvtest.Redis(t)
	s := open(t, kv.Options{Addresses: []string{r.Addr}})
	ready(t, s)
	for _, m := range []string{"one", "two"} {
		if err := s.Post(t.Context(), "box", []byte(m), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var first []string
	err := s.Listen(ctx, "box", func(m []byte) {
		first = append(first, string(m))
		r.Freeze() // the store does not hear that the message was had
		cancel()
	})
	if err != nil || len(first) != 1 || first[0] != "one" {
		t.Fatalf("the first listener had %q: %v", first, err)
	}
	r.Thaw()
	ready(t, s)
	got := make(chan string, 10)
	ctx, cancel = context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Listen(ctx, "box", func(m []byte) { got <- string(m) }) }()
	for m := ""; m != "two"; {
		m = edgetest.Receive(t, got, "a message")
	}
	cancel()
	edgetest.Receive(t, ended, "the end of listening")
}

// A box is bounded in messages and bytes, and what expires makes room.
func TestBoxIsBounded(t *testing.T) {
	r := kvtest.Redis(t)
	o := patient(r.Addr)
	o.Box, o.BoxBytes = 10, 1000
	s := open(t, o)
	post := func(box string, size int, ttl time.Duration) error {
		return s.Post(t.Context(), box, make([]byte, size), ttl)
	}
	for range 10 {
		if err := post("many", 1, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if err := post("many", 1, time.Hour); edge.KindOf(err) != edge.Overload {
		t.Errorf("an eleventh message: %v", err)
	}
	if err := errors.Join(post("large", 600, time.Hour), post("large", 400, time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := post("large", 1, time.Hour); edge.KindOf(err) != edge.Overload {
		t.Errorf("a byte too many: %v", err)
	}
	if n := s.Counters(); n.Full != 2 {
		t.Errorf("%d messages found no room, want 2", n.Full)
	}
	if err := errors.Join(post("old", 1000, time.Millisecond), post("old2", 1, time.Hour)); err != nil {
		t.Fatal(err)
	}
	edgetest.Until(t, "room", func() bool { return post("old", 1000, time.Hour) == nil })

	// Who has it all leaves nothing behind.
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := s.Listen(ctx, "many", func([]byte) {
		if n++; n == 10 {
			cancel()
		}
	})
	if err != nil {
		t.Error(err)
	}
	edgetest.Until(t, "an empty box that is gone", func() bool { return r.Do("keys", "*many*") == "" })
}
