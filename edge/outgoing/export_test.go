package outgoing

import "time"

// Waiting is how many calls wait for a credential.
func Waiting(c *Cache) int64 { return c.waiting.Load() }

// NewCacheOf is NewCache with another bound of its bytes.
func NewCacheOf(budget int64) *Cache { return newCache(time.Now, budget) }

// Fault is the error of a Maker.
var Fault = fault
