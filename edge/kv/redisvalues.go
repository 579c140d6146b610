package kv

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
)

// A value in the Redis begins with a mark, so that no other writer's value is
// taken for one, and with random bytes, so that no two writes are equal: who
// replaces a value knows whether it is still the one that he saw, and whether
// a change that he lost the answer to was made.
const (
	mark   = 1
	header = 9
)

// swaps is how often Update tries before it gives a key up as contended.
const swaps = 200

// wrap makes the stored form of a value.
func wrap(value []byte) []byte {
	b := make([]byte, header, header+len(value))
	b[0] = mark
	_, _ = rand.Read(b[1:header]) // never fails
	return append(b, value...)
}

// unwrap returns the value of a stored form: nil for nothing, and for what is
// no stored form, which is counted.
func (s *RedisStore) unwrap(stored []byte) []byte {
	switch {
	case len(stored) == 0:
		return nil
	case len(stored) < header || stored[0] != mark || len(stored) > header+s.options.Value:
		s.corrupt.Add(1)
		return nil
	}
	return stored[header:]
}

// Get implements edge.Store.
func (s *RedisStore) Get(ctx context.Context, key string) ([]byte, error) {
	if err := checkKey("get", key); err != nil {
		return nil, err
	}
	stored, err := s.read(ctx, "get", key)
	return s.unwrap(stored), err
}

// read returns what is stored under a key, with at most one byte more than a
// value may have; nil for nothing, and for what is no string.
func (s *RedisStore) read(ctx context.Context, op, key string) (stored []byte, err error) {
	err = s.do(ctx, op, func(ctx context.Context) error {
		var err error
		stored, err = s.client.GetRange(ctx, s.key(key), 0, int64(header+s.options.Value)).Bytes()
		if err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE") {
			s.corrupt.Add(1)
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return stored, nil
}

// Put implements edge.Store.
func (s *RedisStore) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if err := checkKey("put", key); err != nil {
		return err
	}
	if err := checkValue("put", value, s.options.Value, ttl); err != nil {
		return err
	}
	stored := wrap(value)
	return s.doFor(ctx, "put", len(stored), func(ctx context.Context) error {
		return s.client.Do(ctx, "SET", s.key(key), stored, "PX", milliseconds(ttl)).Err()
	})
}

// Delete implements edge.Store.
func (s *RedisStore) Delete(ctx context.Context, key string) error {
	if err := checkKey("delete", key); err != nil {
		return err
	}
	return s.do(ctx, "delete", func(ctx context.Context) error { return s.client.Del(ctx, s.key(key)).Err() })
}

// Update implements edge.Store. When the answer to a change is lost it returns
// an error although the change may have been made.
func (s *RedisStore) Update(ctx context.Context, key string, ttl time.Duration, change func([]byte) ([]byte, error)) error {
	if err := checkKey("update", key); err != nil {
		return err
	}
	pass, err := s.turns.wait(ctx, key)
	if err != nil {
		return fail("update", err)
	}
	defer pass()
	seen, err := s.read(ctx, "update", key)
	if err != nil {
		return err
	}
	for try := range swaps {
		old := s.unwrap(seen)
		if old == nil {
			seen = nil
		} else {
			old = clone(old)
		}
		value, err := change(old)
		if err != nil {
			return err
		}
		var stored []byte
		if value != nil {
			if err := checkValue("update", value, s.options.Value, ttl); err != nil {
				return err
			}
			stored = wrap(value)
		} else if old == nil {
			return nil
		}
		done, is, err := s.swap(ctx, key, seen, stored, ttl)
		if err != nil || done {
			return err
		}
		seen = is
		if err := pause(ctx, mathrand.N(time.Duration(min(try+1, 20))*time.Millisecond/4)); err != nil {
			return fail("update", err)
		}
	}
	return &edge.Error{Kind: edge.Overload, Op: "kv: update", After: time.Second, Err: errors.New("store contended")}
}

// swap puts stored in the place of seen, "" being nothing, or returns what is
// there instead.
func (s *RedisStore) swap(ctx context.Context, key string, seen, stored []byte, ttl time.Duration) (done bool, is []byte, err error) {
	err = s.doFor(ctx, "update", len(seen)+len(stored), func(ctx context.Context) error {
		reply, err := s.scripts.swap.Run(ctx, s.client, []string{s.key(key)}, seen, stored, milliseconds(ttl), header+s.options.Value).Slice()
		if err != nil {
			return err
		}
		yes, text, err := pair(reply)
		done, is = yes == 1, []byte(text)
		return err
	})
	// The client of a cluster asks again when a connection breaks: then what
	// is there may be what this call wrote.
	if !done && len(stored) > 0 && string(is) == string(stored) {
		done = true
	}
	return done, is, err
}

// Take implements edge.Store. In a cluster the keys of one call lie in one
// slot: what they have in braces is equal.
func (s *RedisStore) Take(ctx context.Context, buckets ...edge.Bucket) (wait time.Duration, short int, err error) {
	if err := checkBuckets(buckets); err != nil {
		return 0, -1, err
	}
	if len(buckets) == 0 {
		return 0, -1, nil
	}
	keys, args := make([]string, len(buckets)), make([]any, 0, 2*len(buckets))
	for i := range buckets {
		b := &buckets[i]
		keys[i] = s.key(b.Key)
		args = append(args, b.Capacity, max(b.Refill.Microseconds(), 1))
	}
	short = -1
	err = s.do(ctx, "take", func(ctx context.Context) error {
		reply, err := s.scripts.take.Run(ctx, s.client, keys, args...).Int64Slice()
		if err != nil {
			return err
		}
		if len(reply) != 3 {
			return errReply
		}
		wait, short = time.Duration(reply[0])*time.Microsecond, int(reply[1])-1
		s.corrupt.Add(uint64(reply[2]))
		return nil
	})
	if err != nil {
		return 0, -1, err
	}
	return wait, short, nil
}

// errReply is an answer that no Redis gives to what it was asked.
var errReply = errors.New("an answer of another shape than was asked for")

// pair takes the answer of a script apart that has a number and a text.
func pair(reply []any) (int64, string, error) {
	if len(reply) == 2 {
		n, isNumber := reply[0].(int64)
		text, isText := reply[1].(string)
		if isNumber && isText {
			return n, text, nil
		}
	}
	return 0, "", errReply
}

// milliseconds is a lifetime as the Redis takes it, rounded up.
func milliseconds(ttl time.Duration) int64 {
	return max(1, int64((ttl+time.Millisecond-1)/time.Millisecond))
}

// pause waits, or returns the error of a context that ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
