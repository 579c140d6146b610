package serve

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
	var all threads
	n := 0
	for ; ; n++ {
		if _, err := all.open(fmt.Sprint("greedy", n), "greedy"); err != nil {
			break
		}
	}
	if n != maxThreads/maxEach {
		t.Errorf("%d exchanges of one", n)
	}
	for i := range n {
		all.give(fmt.Sprint("greedy", i), letter{Kind: letterNote}, make([]byte, waitingBytes))
	}
	if all.bytes > maxWaitingBytes/maxEach {
		t.Errorf("%d bytes wait for one", all.bytes)
	}
	other, err := all.open("other", "other")
	if err != nil {
		t.Fatal(err)
	}
	all.give("other", letter{Kind: letterNote}, make([]byte, waitingBytes))
	if d, there, over := all.take(other); !there || over || len(d.body) != waitingBytes {
		t.Error("another one has no room")
	}
	begun := 0
	for i := range maxThreads {
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

// TestZ40Tasks: of one owner so many tasks are remembered, the last used, and what
// is forgotten is told, so that the store forgets it, too; nobody loses a task to
// somebody else but to all together.
func TestZ40Tasks(t *testing.T) {
	var all tasks
	at := &edge.Target{Backend: "b"}
	all.add("quiet", "one", at)
	for i := range maxTasksEach {
		if old := all.add("busy", fmt.Sprint(i), at); old != nil {
			t.Fatalf("%d: %+v is forgotten", i, old[0])
		}
	}
	all.find("busy", "0")
	for i := range 10 {
		old := all.add("busy", fmt.Sprint("more", i), at)
		if len(old) != 1 || old[0].key != (taskKey{"busy", fmt.Sprint(i + 1)}) {
			t.Fatalf("%d: %+v are forgotten", i, old)
		}
	}
	if found, _ := all.find("quiet", "one"); found == nil {
		t.Error("somebody else's task is forgotten")
	}
	for i := range 3 * maxTasks {
		all.add(fmt.Sprint("owner ", i%100), fmt.Sprint(i), at)
	}
	if all.order.Len() != maxTasks || len(all.byID) != maxTasks || len(all.of) != 100 {
		t.Errorf("%d, %d, %d", all.order.Len(), len(all.byID), len(all.of))
	}
}
