package serve

import (
	"container/list"
	"context"
	"sync"
	"time"

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
	key  taskKey
	at   *edge.Target
	kept time.Time // when the store was last told; zero where there is none
}

// taskFor is how long a store remembers a task that nobody asks for.
const taskFor = time.Hour

// began notes which backend an exchange began a task at. The other edges that
// share the server's store find it there.
func (s *server) began(x *edge.Exchange, id string) {
	owner, at := taskOwner(x), s.targets[x.Target.Backend]
	s.tasks.add(owner, id, at)
	s.tell(owner, id, at)
}

// tell has the store remember a task; one that it cannot be told is known here.
func (s *server) tell(owner, id string, at *edge.Target) {
	if s.shared == nil || id == "" {
		return
	}
	if s.shared.Put(context.Background(), s.taskKey(owner, id), []byte(at.Backend), taskFor) == nil {
		s.tasks.told(owner, id, s.edge.clock.now())
	}
}

func (s *server) taskKey(owner, id string) string {
	return "task:" + digestText("task", s.name, owner, id)
}

// taskAt returns where a task is; nil when it is not the client's.
func (s *server) taskAt(x *edge.Exchange, id string) (*edge.Target, error) {
	owner := taskOwner(x)
	at, kept := s.tasks.find(owner, id)
	if s.shared == nil || id == "" || len(id) > maxTaskID {
		return at, nil
	}
	if at != nil {
		if s.edge.clock.now().Sub(kept) > taskFor/4 {
			s.tell(owner, id, at)
		}
		return at, nil
	}
	name, err := s.shared.Get(context.Background(), s.taskKey(owner, id))
	if err != nil {
		return nil, errAway()
	}
	if at = s.targets[string(name)]; at != nil {
		s.tasks.add(owner, id, at)
	}
	return at, nil
}

// maxTaskID is how long the id of a task may be that is remembered.
const maxTaskID = 1024

// taskOwner is whose the tasks are that an exchange begins or asks for.
func taskOwner(x *edge.Exchange) string {
	if x.Session != nil && x.Identity == nil {
		return "session " + x.Session.ID
	}
	return "principal " + x.Identity.Principal()
}

func (t *tasks) add(owner, id string, at *edge.Target) {
	if id == "" || len(id) > maxTaskID {
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
	t.byID[key] = t.order.PushFront(&task{key: key, at: at})
	if t.order.Len() > maxTasks {
		last := t.order.Back()
		delete(t.byID, t.order.Remove(last).(*task).key)
	}
}

// told notes that the store has been told of a task.
func (t *tasks) told(owner, id string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.byID[taskKey{owner, id}]; e != nil {
		e.Value.(*task).kept = now
	}
}

// find returns where a task is, and when the store was last told; nil when it is
// not the owner's.
func (t *tasks) find(owner, id string) (*edge.Target, time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID[taskKey{owner, id}]
	if e == nil {
		return nil, time.Time{}
	}
	t.order.MoveToFront(e)
	found := e.Value.(*task)
	return found.at, found.kept
}
