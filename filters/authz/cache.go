package authz

import "sync"

// cache keeps at most 2×limit values: a young and an old generation. When the
// young one is full it becomes the old one, so what is not asked for goes. It is
// safe for concurrent use.
type cache[K comparable, V any] struct {
	limit      int
	mu         sync.RWMutex
	young, old map[K]V
}

func newCache[K comparable, V any](limit int) *cache[K, V] {
	return &cache[K, V]{limit: limit, young: map[K]V{}}
}

func (c *cache[K, V]) get(key K) (V, bool) {
	c.mu.RLock()
	v, ok := c.young[key]
	aged := false
	if !ok {
		v, aged = c.old[key]
	}
	c.mu.RUnlock()
	if aged {
		c.put(key, v)
	}
	return v, ok || aged
}

func (c *cache[K, V]) put(key K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.young) >= c.limit {
		if _, ok := c.young[key]; !ok {
			c.young, c.old = make(map[K]V, c.limit), c.young
		}
	}
	c.young[key] = v
}
