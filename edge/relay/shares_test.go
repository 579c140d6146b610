package relay

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/edge"
)

// TestZ41Shares: whoever has used up his share waits for it, and gets no more than
// it; others go on beside; what waits too long is refused; one thing is always let
// through.
func TestZ41Shares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shares{most: 100, each: 30}
		take := func(who string, n int) func() {
			t.Helper()
			give, err := s.take(t.Context(), who, n)
			if err != nil {
				t.Fatalf("%s: %d: %v", who, n, err)
			}
			return give
		}
		one := take("a", 80)
		began := time.Now()
		if _, err := s.take(t.Context(), "a", 1); edge.KindOf(err) != edge.Overload || time.Since(began) != shareWait {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		two := take("b", 20)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.take(ctx, "b", 20); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		got := make(chan func())
		go func() { got <- take("b", 20) }()
		synctest.Wait()
		one()
		one()
		two()
		three := <-got
		three()
		if s.bytes != 0 || len(s.of) != 0 {
			t.Errorf("%d bytes of %d are left over", s.bytes, len(s.of))
		}
		take("c", 1000)()
	})
}

// TestZ41ThreadsOfOne: one principal has no more exchanges with other edges, and no
// more bytes that wait for them, than his quarter.
func TestZ41ThreadsOfOne(t *testing.T) {
	var all streams
	n := 0
	for ; ; n++ {
		if _, err := all.open(fmt.Sprint("greedy", n), "greedy"); err != nil {
			break
		}
	}
	if n != maxStreams/maxEach {
		t.Errorf("%d exchanges of one", n)
	}
	for i := range n {
		all.give(fmt.Sprint("greedy", i), Message{Kind: KindNote}, make([]byte, waitingBytes))
	}
	if all.bytes > maxWaitingBytes/maxEach {
		t.Errorf("%d bytes wait for one", all.bytes)
	}
	other, err := all.open("other", "other")
	if err != nil {
		t.Fatal(err)
	}
	all.give("other", Message{Kind: KindNote}, make([]byte, waitingBytes))
	if d, there, over := other.Take(); !there || over || len(d.Body) != waitingBytes {
		t.Error("another one has no room")
	}
	begun := 0
	for i := range maxStreams {
		if begins, _ := all.serve(fmt.Sprint(i), "greedy", maxHeld/100, func() {}); begins {
			begun++
		}
	}
	if begun != 25 {
		t.Errorf("%d requests of one are held", begun)
	}
	if begins, full := all.serve("other", "other", 1<<20, func() {}); !begins || full {
		t.Error("another one's request is not served")
	}
}
