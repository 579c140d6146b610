package authz

import (
	"container/list"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// The bounds of the tasks that a server remembers, in number and in bytes of what is kept of
// them: of one owner, so that who begins tasks without end displaces only their own, and of all
// together. Those of one owner do not hold for clients that cannot be told apart, since they are
// one owner.
const (
	maxTasks         = 10_000
	maxTasksEach     = 1_000
	maxTaskBytes     = 16 << 20
	maxTaskBytesEach = 1 << 20
)

// Ledger knows which tasks the store has from the filters of one server, the least recently used
// of which is forgotten where there are too many. The zero value is ready.
type Ledger struct {
	mu    sync.Mutex
	byKey map[string]*list.Element // of *noted
	all   lot
	of    map[string]*lot // those of each owner, in the same order
}

// lot is tasks, the last used first.
type lot struct {
	list.List
	bytes int
}

// noted is a task without what is kept of it.
type noted struct {
	Task
	bytes int
	own   *list.Element // its place among the owner's
}

// Task is what is kept of a task: under which key of the store, and until when.
type Task struct {
	Owner, Key string
	Value      []byte
	Until      time.Time
}

type ledgerKey struct{}

// taskOwner is whom a task counts for; "" for clients that cannot be told apart.
func taskOwner(x *edge.Exchange) string {
	if x.Session != nil && x.Identity.Anonymous() {
		return "session " + x.Session.ID
	}
	return x.Identity.Principal()
}

// add notes a task, and returns the keys of those that are forgotten for it.
func (l *Ledger) add(one Task) (forgotten []string) {
	n := &noted{Task: one, bytes: len(one.Value)}
	n.Value = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byKey == nil {
		l.byKey, l.of = make(map[string]*list.Element), make(map[string]*lot)
	}
	if old := l.byKey[one.Key]; old != nil {
		l.forget(old.Value.(*noted))
	}
	of := l.of[one.Owner]
	if of == nil {
		of = &lot{}
		l.of[one.Owner] = of
	}
	n.own = of.PushFront(n)
	l.byKey[one.Key] = l.all.PushFront(n)
	of.bytes += n.bytes
	l.all.bytes += n.bytes
	for one.Owner != "" && (of.Len() > maxTasksEach || of.bytes > maxTaskBytesEach) {
		forgotten = append(forgotten, l.forget(of.Back().Value.(*noted)))
	}
	for l.all.Len() > maxTasks || l.all.bytes > maxTaskBytes {
		forgotten = append(forgotten, l.forget(l.all.Back().Value.(*noted)))
	}
	return forgotten
}

// forget forgets a task, and returns its key; l.mu is held.
func (l *Ledger) forget(n *noted) string {
	l.all.Remove(l.byKey[n.Key])
	l.all.bytes -= n.bytes
	delete(l.byKey, n.Key)
	of := l.of[n.Owner]
	of.bytes -= n.bytes
	if of.Remove(n.own); of.Len() == 0 {
		delete(l.of, n.Owner)
	}
	return n.Key
}

// Remembered returns the tasks that the filters of a server remember in store, the last used one
// last. shared is what its parts have in common.
func Remembered(shared *edge.Shared, store edge.Store) (all []Task) {
	l, _ := shared.Look(ledgerKey{}).(*Ledger)
	if l == nil {
		return nil
	}
	l.mu.Lock()
	for e := l.all.Back(); e != nil; e = e.Prev() {
		all = append(all, e.Value.(*noted).Task)
	}
	l.mu.Unlock()
	for i := range all {
		all[i].Value, _ = store.Get(context.Background(), all[i].Key)
	}
	return slices.DeleteFunc(all, func(one Task) bool { return one.Value == nil }) // its lifetime is over
}

// Remember has the filters of a server remember a task that those of another process did, if
// there are any. It reports false if they cannot.
func Remember(shared *edge.Shared, store edge.Store, one Task) bool {
	l, _ := shared.Look(ledgerKey{}).(*Ledger)
	left := time.Until(one.Until)
	if l == nil || left <= 0 {
		return true
	}
	return left <= taskLong && strings.HasPrefix(one.Key, taskPrefix) &&
		(&tasks{store: store, ledger: l}).put(context.Background(), one, left) == nil
}

// used notes that a task is in use, and reports whether it is there.
func (l *Ledger) used(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byKey[key]
	if e == nil {
		return false
	}
	n := e.Value.(*noted)
	l.all.MoveToFront(e)
	l.of[n.Owner].MoveToFront(n.own)
	return true
}
