package route

import (
	"fmt"
	"testing"
)

// TestZ40Tasks: of one owner so many tasks are remembered, the last used, and what
// is forgotten is told, so that the store forgets it, too; nobody loses a task to
// somebody else but to all together.
func TestZ40Tasks(t *testing.T) {
	var all tasks
	const at = "b"
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
	if _, _, known := all.find("quiet", "one"); !known {
		t.Error("somebody else's task is forgotten")
	}
	for i := range 3 * maxTasks {
		all.add(fmt.Sprint("owner ", i%100), fmt.Sprint(i), at)
	}
	if all.order.Len() != maxTasks || len(all.byID) != maxTasks || len(all.of) != 100 {
		t.Errorf("%d, %d, %d", all.order.Len(), len(all.byID), len(all.of))
	}
}
