package stdio

import (
	"hash/maphash"
	"slices"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// What is listened for besides changes of lists. Of all functions here the mutex of the listeners
// is held, but of tellEnd.

// byItself has the process asked for a subscription, and its answers passed on.
func (l *listeners) byItself(e *listener, n *mcp.Message) {
	if l.alone == nil {
		l.alone, l.left, l.uris = make(map[string]*listener), make(map[string]bool), make(map[uint64]int)
	}
	id := plain(e.key.id)
	if before := l.alone[id]; before != nil {
		l.forget(before)
	}
	l.alone[id] = e
	e.whole, e.rest = nil, nil
	if all := mcp.Elements(mcp.Lookup(n.Get("notifications").Of(n.Raw), "resourceSubscriptions")); len(all) <= maxCompared {
		for _, uri := range all {
			e.uris = append(e.uris, maphash.String(seed, mcp.String(uri)))
		}
	}
	slices.Sort(e.uris)
	e.uris = slices.Compact(e.uris)
	for _, uri := range e.uris {
		l.uris[uri]++
	}
	l.count()
	l.due = append(l.due, func() {
		err := e.pass(n.Raw)
		l.mu.Lock()
		left := e.why != "" && l.alone[id] != e // and was cancelled before it was asked for
		if err != nil {
			l.forget(e)
			l.drop(e)
			l.rest()
		}
		l.unlock()
		switch {
		case err != nil:
			e.fail(err)
		case left:
			l.tellEnd(e)
		}
	})
}

// forget takes out a subscription by itself.
func (l *listeners) forget(e *listener) {
	if id := plain(e.key.id); l.alone[id] == e {
		delete(l.alone, id)
		l.unlist(e)
		l.parked = slices.DeleteFunc(l.parked, func(one *listener) bool { return one == e })
		l.count()
		l.isGone(e)
	}
}

// unlist takes out the resources of a subscription, unless it is parked.
func (l *listeners) unlist(e *listener) {
	if e.why != "" {
		return
	}
	for _, uri := range e.uris {
		if l.uris[uri]--; l.uris[uri] == 0 {
			delete(l.uris, uri)
		}
	}
}

func (l *listeners) count() { l.own.Store(int32(len(l.alone) + len(l.left))) }

// park notes that nobody listens to a subscription any longer.
func (l *listeners) park(e *listener, why string) {
	if e.why != "" {
		return
	}
	l.unlist(e)
	e.why = why
	l.parked = append(l.parked, e)
}

// unpark cancels what is parked, but for subscriptions with a resource to which somebody listens.
func (l *listeners) unpark() {
	var end []*listener
	shared := slices.DeleteFunc(slices.Clone(l.parked), func(e *listener) bool {
		if slices.ContainsFunc(e.uris, func(uri uint64) bool { return l.uris[uri] > 0 }) {
			return false
		}
		end = append(end, e)
		return true
	})
	for _, e := range append(end, shared[:max(0, len(shared)-maxParked)]...) {
		l.forget(e)
		if len(l.left) >= maxLeft {
			clear(l.left)
		}
		l.left[plain(e.key.id)] = true
		l.count()
		l.due = append(l.due, func() { l.tellEnd(e) })
	}
}

// tellEnd cancels a subscription by itself.
func (l *listeners) tellEnd(e *listener) {
	word := cancelled([]byte(e.key.id), e.why)
	if e.pass(word) == nil {
		return
	}
	// Whose it was is no longer there, or the process, which needs no word.
	if err := l.send(word); edge.KindOf(err) == edge.Overload {
		time.AfterFunc(unheard, func() {
			defer edge.Contain(l.log, "listeners")
			l.tellEnd(e)
		})
	}
}
