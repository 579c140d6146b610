package optimizer

import "container/list"

// recent keeps the values that were used last, up to a number and a sum of bytes. It is not
// safe for concurrent use.
type recent[K comparable, V any] struct {
	most  int
	room  int // bytes; 0 for any number
	bytes int
	by    map[K]*list.Element
	order list.List // of *kept[K, V], the last used first
	gone  func(V)   // is told of each that goes; nil for nobody
}

type kept[K comparable, V any] struct {
	key   K
	value V
	bytes int
}

func newRecent[K comparable, V any](most, room int) *recent[K, V] {
	return &recent[K, V]{most: most, room: room, by: map[K]*list.Element{}}
}

func (r *recent[K, V]) get(key K) (v V, ok bool) {
	e := r.by[key]
	if e == nil {
		return v, false
	}
	r.order.MoveToFront(e)
	return e.Value.(*kept[K, V]).value, true
}

func (r *recent[K, V]) put(key K, v V, bytes int) {
	if e := r.by[key]; e != nil {
		r.drop(e)
	}
	r.by[key] = r.order.PushFront(&kept[K, V]{key, v, bytes})
	r.bytes += bytes
	for r.order.Len() > r.most || r.room > 0 && r.bytes > r.room {
		r.drop(r.order.Back())
	}
}

func (r *recent[K, V]) drop(e *list.Element) {
	k := r.order.Remove(e).(*kept[K, V])
	delete(r.by, k.key)
	r.bytes -= k.bytes
	if r.gone != nil {
		r.gone(k.value)
	}
}

// all calls f for the values.
func (r *recent[K, V]) all(f func(V)) {
	for e := r.order.Front(); e != nil; e = e.Next() {
		f(e.Value.(*kept[K, V]).value)
	}
}
