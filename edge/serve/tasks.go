package serve

import (
	"container/list"
	"sync"

	"github.com/weir-edge/weir/edge"
)

// maxTasks is how many tasks of a server are remembered, the last used ones.
const maxTasks = 10_000

// tasks tells which backend a task is at, and whose it is: a task that somebody
// else began is as unknown as one that nobody did.
type tasks struct {
	mu    sync.Mutex
	byID  map[taskKey]*list.Element // of *task
	order list.List                 // the last used first
}

type taskKey struct{ owner, id string }

type task struct {
	key taskKey
	at  *edge.Target
}

// taskOwner is whose the tasks are that an exchange begins or asks for.
func taskOwner(x *edge.Exchange) string {
	if x.Session != nil && x.Identity == nil {
		return "session " + x.Session.ID
	}
	return "principal " + x.Identity.Principal()
}

func (t *tasks) add(owner, id string, at *edge.Target) {
	if id == "" || len(id) > 1024 {
		return // no id that a client could ask for again
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := taskKey{owner, id}
	if t.byID == nil {
		t.byID = make(map[taskKey]*list.Element)
	}
	if e := t.byID[key]; e != nil {
		e.Value.(*task).at = at
		t.order.MoveToFront(e)
		return
	}
	t.byID[key] = t.order.PushFront(&task{key, at})
	if t.order.Len() > maxTasks {
		last := t.order.Back()
		delete(t.byID, t.order.Remove(last).(*task).key)
	}
}

// find returns where a task is; nil when it is not the owner's.
func (t *tasks) find(owner, id string) *edge.Target {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID[taskKey{owner, id}]
	if e == nil {
		return nil
	}
	t.order.MoveToFront(e)
	return e.Value.(*task).at
}
