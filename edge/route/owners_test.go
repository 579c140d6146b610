package route

import (
	"fmt"
	"testing"
)

// TestZ06TasksAreTheirOwners: who begins tasks without end has the edge forget
// their own, and nobody else's.
func TestZ06TasksAreTheirOwners(t *testing.T) {
	var all tasks
	const at = "b"
	for i := range 100 {
		all.add("principal a", fmt.Sprint(i), at)
	}
	for i := range 3 * maxTasks {
		all.add("principal b", fmt.Sprint(i), at)
	}
	for i := range 100 {
		if _, _, known := all.find("principal a", fmt.Sprint(i)); !known {
			t.Fatalf("task %d of another is forgotten", i)
		}
	}
	if n := all.order.Len(); n != 100+maxTasksEach || len(all.byID) != n || len(all.of) != 2 || all.of["principal b"].Len() != maxTasksEach {
		t.Errorf("%d tasks, %d by id, of %d owners", n, len(all.byID), len(all.of))
	}
	if _, _, known := all.find("principal b", fmt.Sprint(3*maxTasks-1)); !known {
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
