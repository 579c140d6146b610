package serve

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/relay"
)

// TestZ06TasksAreTheirOwners: who begins tasks without end has the edge forget
// their own, and nobody else's.
func TestZ06TasksAreTheirOwners(t *testing.T) {
	var all tasks
	at := &edge.Target{}
	for i := range 100 {
		all.add("principal a", fmt.Sprint(i), at)
	}
	for i := range 3 * maxTasks {
		all.add("principal b", fmt.Sprint(i), at)
	}
	for i := range 100 {
		if found, _ := all.find("principal a", fmt.Sprint(i)); found == nil {
			t.Fatalf("task %d of another is forgotten", i)
		}
	}
	if n := all.order.Len(); n != 100+maxTasksEach || len(all.byID) != n || len(all.of) != 2 || all.of["principal b"].Len() != maxTasksEach {
		t.Errorf("%d tasks, %d by id, of %d owners", n, len(all.byID), len(all.of))
	}
	if found, _ := all.find("principal b", fmt.Sprint(3*maxTasks-1)); found == nil {
		t.Error("the newest is forgotten")
	}
	for i := range 3 * maxTasks { // whom nothing tells apart
		all.add(ownerAnybody, fmt.Sprint(i), at)
	}
	for o := range 50 {
		for i := range maxTasksEach {
			all.add(fmt.Sprint("principal c", o), fmt.Sprint(i), at)
		}
	}
	sum := 0
	for _, of := range all.of {
		sum += of.Len()
	}
	if all.order.Len() != maxTasks || len(all.byID) != maxTasks || sum != maxTasks {
		t.Errorf("%d tasks, %d by id, %d of all owners", all.order.Len(), len(all.byID), sum)
	}
}

// TestZ06LogsAreTheirHolders: what is kept of one holder's streams leaves room
// for those of others.
func TestZ06LogsAreTheirHolders(t *testing.T) {
	table := newSessions(1000, 1000, time.Hour)
	fill := func(holder string) (kept int) {
		h, err := table.place(time.Now(), holder)
		if err != nil {
			t.Fatal(err)
		}
		s := table.add(table.make(time.Now(), relay.NewName(), "s", "", "", nil, nil), h)
		l := s.openLog(nil)
		for range logBytes >> 10 {
			l.add(make([]byte, 1<<10))
		}
		return len(l.events)
	}
	full := 0
	for range 2 * logsBytes / logBytes {
		if fill("a") == logBytes>>10 {
			full++
		}
	}
	if full == 0 || full > holderBytes/logBytes {
		t.Errorf("%d whole logs of one holder", full)
	}
	if fill("b") != logBytes>>10 {
		t.Error("no room for another")
	}
	table.endAll(func(*session) bool { return true })
	if n := table.kept.Load(); n != 0 || len(table.holders) != 0 {
		t.Errorf("%d bytes of %d holders are left", n, len(table.holders))
	}
	if fill("a") != logBytes>>10 {
		t.Error("no room after all have ended")
	}
}
