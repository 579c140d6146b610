package kv

import "time"

// RemoveOver removes what is over at a time.
func (c *Cache) RemoveOver(now time.Time) { c.removeOver(now) }
