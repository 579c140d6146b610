package route

import (
	"bytes"
	"container/list"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/relay"
)

// maxTasks bounds the remembered tasks of a server, and maxTasksEach those of one
// owner, so that a client that begins tasks without end displaces only its own; the
// least recently used one is forgotten. maxTasksEach does not apply to clients that
// cannot be told apart, since they are one owner.
const (
	maxTasks     = 10_000
	maxTasksEach = 1_000
)

// tasks remembers the backend and the owner of each task. A task of another owner is
// answered like one that does not exist. In the same way it remembers where the resources are
// that answers have named to a client: their ids are URIs.
type tasks struct {
	kind string // of what is remembered, in the keys of the store

	mu    sync.Mutex
	byID  map[taskKey]*list.Element // of *task
	order list.List                 // the last used first
	of    map[string]*list.List     // those of each owner, in the same order
}

type taskKey struct{ owner, id string }

type task struct {
	key     taskKey
	own     *list.Element // its place among the owner's
	backend string
	kept    time.Time // when it was last written to the store; zero without a store
}

// ofSeveral stands for the backend of a task whose id several backends have given one owner. Nobody
// knows which of them is meant, so that it is none's.
const ofSeveral = "?"

// taskFor is how long a store keeps a task after it was last used.
const taskFor = time.Hour

// began remembers the backend at which an exchange began a task, here and in the store
// for other replicas.
func (s *Server) began(x *edge.Exchange, id string) { s.remember(s.tasks, x, id) }

func (s *Server) remember(t *tasks, x *edge.Exchange, id string) {
	owner, backend := taskOwner(x), x.Target.Backend
	if s.only == nil && s.o.Store != nil {
		_, _ = s.at(t, x, id) // another edge may have had it of another backend
	}
	for _, old := range t.add(owner, id, backend) {
		if s.o.Store != nil && !old.kept.IsZero() {
			_ = s.o.Store.Delete(context.Background(), s.keyOf(t, old.key.owner, old.key.id)) // it is forgotten there in any case
		}
	}
	if now, _, known := t.find(owner, id); known {
		backend = now
	}
	s.tell(t, owner, id, backend)
}

// tell writes a task to the store; if that fails, only this edge knows the task.
func (s *Server) tell(t *tasks, owner, id, backend string) {
	if s.o.Store == nil || id == "" {
		return
	}
	if s.o.Store.Put(context.Background(), s.keyOf(t, owner, id), []byte(backend), taskFor) == nil {
		t.told(owner, id, s.o.Now())
	}
}

func (s *Server) keyOf(t *tasks, owner, id string) string {
	return t.kind + ":" + edge.Digest(t.kind, s.Name, owner, id)
}

// maxLinks bounds how many resources of one answer are remembered, and linksWithin how long other
// replicas are told of them: a client waits for that.
const (
	maxLinks    = 256
	linksWithin = 100 * time.Millisecond
)

// noteLinks remembers where the resources are that an answer to m links to or holds: a backend
// need not list them (resource links of 2025-06-18, server/tools). Those that it lists are known.
func (s *Server) noteLinks(x *edge.Exchange, m *mcp.Message, r *edge.Response) {
	var all []byte
	switch m.Method {
	case "tools/call", "tasks/result":
		all = r.Get("content").Of(r.Raw)
	case "tasks/get":
		all = mcp.Lookup(r.Get("result").Of(r.Raw), "content")
	case "prompts/get":
		all = r.Get("messages").Of(r.Raw)
	}
	if !bytes.Contains(all, []byte(`"resource`)) { // as most have none, they cost no more than this
		return
	}
	c := s.Book.Settled(x.Identity, edge.Resource)
	left, began := maxLinks, time.Now()
	for _, one := range mcp.Elements(all) {
		if m.Method == "prompts/get" {
			one = mcp.Lookup(one, "content")
		}
		uri := mcp.Lookup(one, "resource", "uri")
		if mcp.String(mcp.Lookup(one, "type")) == "resource_link" {
			uri = mcp.Lookup(one, "uri")
		}
		if name := mcp.String(uri); name != "" && (c == nil || c.Located(name) == nil) {
			if left--; left < 0 {
				return
			}
			if time.Since(began) > linksWithin { // the store is slow: this edge alone knows the rest
				s.links.add(taskOwner(x), name, x.Target.Backend)
				continue
			}
			s.remember(s.links, x, name)
		}
	}
}

// taskAt returns the target of a task; nil if the task is not the client's.
func (s *Server) taskAt(x *edge.Exchange, id string) (*edge.Target, error) {
	return s.at(s.tasks, x, id)
}

func (s *Server) at(t *tasks, x *edge.Exchange, id string) (*edge.Target, error) {
	owner := taskOwner(x)
	backend, kept, known := t.find(owner, id)
	if s.o.Store == nil || id == "" || len(id) > maxTaskID {
		return s.targets[backend], nil
	}
	if known {
		if s.o.Now().Sub(kept) > taskFor/4 {
			s.tell(t, owner, id, backend)
		}
		return s.targets[backend], nil
	}
	name, err := s.o.Store.Get(context.Background(), s.keyOf(t, owner, id))
	if err != nil {
		return nil, relay.ErrAway()
	}
	at := s.targets[string(name)]
	if at != nil || string(name) == ofSeveral {
		t.add(owner, id, string(name))
	}
	return at, nil
}

// bindsTasks reports whether the tasks that an exchange begins or asks for are those of its
// client alone. Of a bare server they are where the edge knows who the client is, and its
// backend does not: with a credential of the user's own it judges itself. Clients of whom
// nobody knows who they are ask it for any task that they know the id of.
func (s *Server) bindsTasks(x *edge.Exchange) bool {
	switch {
	case s.only == nil:
		return true
	case x.Identity.Anonymous() || x.Identity.Issuer == edge.UnverifiedIssuer:
		return false
	case s.Upstream != nil: // a program may choose a credential that all share
		return true
	}
	return !s.byName[s.only.Backend].Personal() && !slices.ContainsFunc(x.Forward, func(h edge.Header) bool {
		return strings.EqualFold(h.Name, "Authorization")
	})
}

// errNoTask is the error for a task that is not the client's, or is none.
func errNoTask() error { return edge.Errorf(edge.NotFound, "route", "task not found") }

// maxLooked bounds how many tasks of one message are looked for.
const maxLooked = 1024

// bound returns the target of a message to a bare server; nil if it names a task that is not
// the client's.
func (s *Server) bound(x *edge.Exchange) (*edge.Target, error) {
	m := x.Request
	switch m.Method {
	case "tasks/get", "tasks/result", "tasks/cancel", "tasks/update":
		return s.taskAt(x, m.Text("taskId"))
	case "subscriptions/listen":
		ids := mcp.Elements(mcp.Lookup(m.Get("notifications").Of(m.Raw), "taskIds"))
		if len(ids) > maxLooked {
			return nil, edge.Errorf(edge.Params, "route", "params.notifications.taskIds has %d ids, and %d are the most", len(ids), maxLooked)
		}
		for _, id := range ids {
			if at, err := s.taskAt(x, mcp.String(id)); at == nil || err != nil {
				return nil, err
			}
		}
	}
	return s.only, nil
}

// ownTasks leaves of the list of tasks of a bare server's backend those of the client.
func (s *Server) ownTasks(x *edge.Exchange, r *edge.Response) (*edge.Response, error) {
	span := r.Get("tasks")
	list, owner, looked := []byte{'['}, taskOwner(x), 0
	for _, one := range mcp.Elements(span.Of(r.Raw)) {
		id := mcp.String(mcp.Lookup(one, "taskId"))
		if _, _, known := s.tasks.find(owner, id); !known {
			if looked++; s.o.Store == nil || looked > maxLooked {
				continue
			}
			if at, err := s.taskAt(x, id); err != nil {
				return nil, err
			} else if at == nil {
				continue
			}
		}
		if len(list) > 1 {
			list = append(list, ',')
		}
		list = append(list, one...)
	}
	if !span.OK() {
		return r, nil
	}
	return changed(r, span, append(list, ']'))
}

// maxTaskID bounds the length of the id of a remembered task.
const maxTaskID = 1024

// taskOwner returns the owner of the tasks that an exchange begins or asks for.
func taskOwner(x *edge.Exchange) string {
	if x.Session != nil && x.Identity.Anonymous() {
		return "session " + x.Session.ID
	}
	return "principal " + x.Identity.Principal()
}

func (t *tasks) add(owner, id, backend string) (forgotten []*task) {
	if id == "" || len(id) > maxTaskID {
		return nil // no id that a client could ask for again
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := taskKey{owner, id}
	if t.byID == nil {
		t.byID = make(map[taskKey]*list.Element)
	}
	if e := t.byID[key]; e != nil {
		if one := t.used(e); one.backend != backend {
			one.backend = ofSeveral
		}
		return nil
	}
	one := &task{key: key, backend: backend}
	if t.of == nil {
		t.of = make(map[string]*list.List)
	}
	if t.of[owner] == nil {
		t.of[owner] = list.New()
	}
	one.own = t.of[owner].PushFront(one)
	t.byID[key] = t.order.PushFront(one)
	if owner != ownerAnybody && t.of[owner].Len() > maxTasksEach {
		forgotten = append(forgotten, t.forget(t.of[owner].Back().Value.(*task)))
	}
	if t.order.Len() > maxTasks {
		forgotten = append(forgotten, t.forget(t.order.Back().Value.(*task)))
	}
	return forgotten
}

// ownerAnybody owns the tasks of clients that cannot be told apart.
var ownerAnybody = taskOwner(&edge.Exchange{})

// forget forgets a task; t.mu is held.
func (t *tasks) forget(one *task) *task {
	t.order.Remove(t.byID[one.key])
	delete(t.byID, one.key)
	of := t.of[one.key.owner]
	if of.Remove(one.own); of.Len() == 0 {
		delete(t.of, one.key.owner)
	}
	return one
}

// used moves a task to the front; t.mu is held.
func (t *tasks) used(e *list.Element) *task {
	one := e.Value.(*task)
	t.order.MoveToFront(e)
	t.of[one.key.owner].MoveToFront(one.own)
	return one
}

// Task is a task and its backend, or a resource that an answer has named.
type Task struct {
	Owner, ID, Backend string
	Link               bool // it is a resource, and ID its URI
}

// Tasks returns the tasks of the server, and then the resources, each with the last used one last.
func (s *Server) Tasks() []Task {
	var all []Task
	for _, t := range []*tasks{s.tasks, s.links} {
		t.mu.Lock()
		for e := t.order.Back(); e != nil; e = e.Prev() {
			one := e.Value.(*task)
			all = append(all, Task{Owner: one.key.owner, ID: one.key.id, Backend: one.backend, Link: t == s.links})
		}
		t.mu.Unlock()
	}
	return all
}

// TakeTask remembers a task or a resource. It reports false if there is no such backend.
func (s *Server) TakeTask(t Task) bool {
	known, in := s.targets[t.Backend] != nil || t.Backend == ofSeveral, s.tasks
	if t.Link {
		in = s.links
	}
	if known {
		in.add(t.Owner, t.ID, t.Backend)
	}
	return known
}

// ShareTasks makes the tasks and resources that another server remembers this one's, too, which stands in
// for it after a reload. It must be called before the server is used, unless that shares them
// already, as where a reload goes back.
func (s *Server) ShareTasks(with *Server) {
	if s.tasks != with.tasks {
		s.tasks, s.links = with.tasks, with.links
	}
}

// told notes when a task was written to the store.
func (t *tasks) told(owner, id string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.byID[taskKey{owner, id}]; e != nil {
		e.Value.(*task).kept = now
	}
}

// find returns the backend of a task and when it was last written to the store. known is
// false if it is not the owner's.
func (t *tasks) find(owner, id string) (backend string, kept time.Time, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.byID[taskKey{owner, id}]
	if e == nil {
		return "", time.Time{}, false
	}
	found := t.used(e)
	return found.backend, found.kept, true
}
