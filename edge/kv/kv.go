// Package kv keeps small values with a lifetime: in the memory of one edge
// (Memory), or in a Redis that all replicas of it share (Redis). Both are an
// edge.Store, and kvtest holds both to the same promises.
package kv

import (
	"context"
	"errors"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Defaults of what a store holds.
const (
	defaultValues      = 100_000
	defaultBuckets     = 100_000
	defaultBytes       = 64 << 20
	defaultValueBytes  = 17 << 20 // a whole message of the largest size, and what wraps it
	defaultBoxMessages = 1024
)

// maxKey is how many bytes a key or the name of a box may have. Whoever makes
// keys of what strangers send hashes it.
const maxKey = 1024

// maxBuckets is how many buckets one Take may name.
const maxBuckets = 16

// almost is a whole token, less what rounding may have lost.
const almost = 1 - 1e-9

// Counters are what a store has counted since it was opened.
type Counters struct {
	Calls    uint64 // of the store's methods that asked the store
	Failures uint64 // of those, the ones without an answer, or with one that the store cannot serve
	Timeouts uint64 // of those, the ones that had no answer in time
	Refused  uint64 // calls that were not tried, because the store was known to be away
	Busy     uint64 // calls that found no connection free in time
	Opened   uint64 // how often the breaker opened
	Corrupt  uint64 // values that nobody of this kind wrote; they count as absent
	Full     uint64 // values and messages that found no room
	Evicted  uint64 // buckets that were forgotten before they were full
	Expired  uint64 // messages that nobody took within their lifetime
}

// Collect is edge.Collector.Collect.
func (c Counters) Collect(m edge.Emitter) {
	for _, one := range []struct {
		name, help string
		n          uint64
	}{
		{"calls", "Calls that asked the shared store.", c.Calls},
		{"failures", "Calls that the shared store did not serve.", c.Failures},
		{"timeouts", "Calls that the shared store did not answer in time.", c.Timeouts},
		{"refused", "Calls that were not tried, because the shared store was away.", c.Refused},
		{"busy", "Calls that found no connection to the shared store free.", c.Busy},
		{"breaker_opened", "How often the breaker before the shared store opened.", c.Opened},
		{"corrupt", "Values in the shared store that no edge wrote.", c.Corrupt},
		{"full", "Values and messages that found no room in the shared store.", c.Full},
		{"expired", "Messages in the shared store that nobody took.", c.Expired},
	} {
		m.Counter("weir_store_"+one.name, one.help, float64(one.n))
	}
}

// errFull says that a store has no room, which time cures.
var errFull = errors.New("store full")

// awayError is a store that cannot be used now. Its text may reach a client,
// so that the cause, which names addresses, is only unwrapped.
type awayError struct{ cause error }

func (*awayError) Error() string   { return "store unavailable" }
func (e *awayError) Unwrap() error { return e.cause }

// fail makes the error of an operation that the store did not do.
func fail(op string, err error) error {
	kind := edge.Overload
	switch {
	case errors.Is(err, context.Canceled):
		return &edge.Error{Kind: edge.Gone, Op: "kv: " + op, Err: err}
	case errors.Is(err, errFull), errors.Is(err, edge.ErrShare):
	default:
		err = &awayError{err}
	}
	return &edge.Error{Kind: kind, Op: "kv: " + op, After: time.Second, Err: err}
}

// checkKey refuses keys that no caller should have made.
func checkKey(op, key string) error {
	if key == "" || len(key) > maxKey {
		return edge.Errorf(edge.Internal, "kv: "+op, "a key has 1 to %d bytes, not %d", maxKey, len(key))
	}
	return nil
}

// checkValue refuses what is too large or would be gone at once.
func checkValue(op string, value []byte, most int, ttl time.Duration) error {
	if len(value) > most {
		return edge.Errorf(edge.TooLarge, "kv: "+op, "%d bytes are more than the store keeps (%d)", len(value), most)
	}
	if ttl <= 0 {
		return edge.Errorf(edge.Internal, "kv: "+op, "a lifetime of %s", ttl)
	}
	return nil
}

// checkBuckets refuses buckets that hold nothing or never fill.
func checkBuckets(buckets []edge.Bucket) error {
	if len(buckets) > maxBuckets {
		return edge.Errorf(edge.Internal, "kv: take", "%d buckets at once are more than %d", len(buckets), maxBuckets)
	}
	for i := range buckets {
		b := &buckets[i]
		if err := checkKey("take", b.Key); err != nil {
			return err
		}
		if b.Capacity < 1 || b.Refill <= 0 {
			return edge.Errorf(edge.Internal, "kv: take", "a bucket of %d tokens that fills in %s", b.Capacity, b.Refill)
		}
	}
	return nil
}

// or returns v, or the default for what is not given.
func or[T int | int64 | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}

// A store is what this package makes.
var (
	_ edge.Store = (*MemoryStore)(nil)
	_ edge.Store = (*RedisStore)(nil)
)
