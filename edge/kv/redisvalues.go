package kv

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

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
	case !s.wrapped(stored):
		s.corrupt.Add(1)
		return nil
	}
	return stored[header:]
}

// wrapped reports whether what is stored is the form of a value.
func (s *RedisStore) wrapped(stored []byte) bool {
	return len(stored) >= header && stored[0] == mark && len(stored) <= header+s.options.Value
}

// Get implements edge.Store.
func (s *RedisStore) Get(ctx context.Context, key string) ([]byte, error) {
	if err := checkKey("get", key); err != nil {
		return nil, err
	}
	stored, err := s.read(ctx, "get", key)
	return s.unwrap(stored), err
}

// Head returns at most the first most bytes of a value; nil for nothing. It takes
// as long as any small value, however large this one is.
func (s *RedisStore) Head(ctx context.Context, key string, most int) ([]byte, error) {
	if err := checkKey("get", key); err != nil {
		return nil, err
	}
	stored, err := s.first(ctx, "get", key, header+most, 0)
	return s.unwrap(stored[:min(len(stored), header+most)]), err
}

// firstBytes is how much of a value is read before it is known how large it is.
const firstBytes = largeBytes

// read returns what is stored under a key, with at most one byte more than a
// value may have; nil for nothing, and for what is no string. Whether the store
// is there shows with the first bytes; what has more is read again, in the time
// that so much takes.
func (s *RedisStore) read(ctx context.Context, op, key string) ([]byte, error) {
	most := min(firstBytes, header+s.options.Value)
	stored, err := s.first(ctx, op, key, most, 0)
	for err == nil && len(stored) > most && most < header+s.options.Value {
		most = min(16*most, header+s.options.Value)
		stored, err = s.first(ctx, op, key, most, most)
	}
	return stored, err
}

// first reads the first most bytes of what is stored under a key, and one more.
// The time for it is that of so many bytes. That there is nothing, or something
// else, is believed of a store that can say more than that.
func (s *RedisStore) first(ctx context.Context, op, key string, most, bytes int) (stored []byte, err error) {
	err = s.doLarge(ctx, op, bytes, func(ctx context.Context) error {
		var err error
		if stored, err = s.getRange(ctx, key, most); err == nil && !s.wrapped(stored) {
			err = s.vouched(ctx)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return stored, nil
}

// getRange asks for the first most bytes of what is stored, and one more.
func (s *RedisStore) getRange(ctx context.Context, key string, most int) ([]byte, error) {
	reply, err := s.client.Do(ctx, "GETRANGE", s.key(key), 0, most).Result()
	if err != nil {
		if isWrongType(err) {
			s.corrupt.Add(1)
			return nil, nil
		}
		return nil, err
	}
	text, ok := reply.(string)
	if !ok || len(text) > most+1 {
		return nil, errReply
	}
	return []byte(text), nil
}

// isWrongType reports whether something of another kind lies under a key.
func isWrongType(err error) bool {
	var said redis.Error
	return errors.As(err, &said) && kindOf(said) == "WRONGTYPE"
}

// vouchFor is how long a store that has vouched for itself is believed.
const vouchFor = time.Second

// vouched has the store vouch for itself, unless it did lately.
func (s *RedisStore) vouched(ctx context.Context) error {
	now := time.Now().UnixNano()
	if now-s.lastVouched.Load() < int64(vouchFor) {
		return nil
	}
	err := s.vouch(ctx)
	if err == nil {
		s.lastVouched.Store(now)
	}
	return err
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
	return s.doLarge(ctx, "put", len(stored), func(ctx context.Context) error {
		return s.set(ctx, key, stored, ttl)
	})
}

func (s *RedisStore) set(ctx context.Context, key string, stored []byte, ttl time.Duration) error {
	reply, err := s.client.Do(ctx, "SET", s.key(key), stored, "PX", milliseconds(ttl)).Result()
	if err == nil && reply != any("OK") {
		err = errReply
	}
	return err
}

// Delete implements edge.Store.
func (s *RedisStore) Delete(ctx context.Context, key string) error {
	if err := checkKey("delete", key); err != nil {
		return err
	}
	return s.do(ctx, "delete", func(ctx context.Context) error { return s.remove(ctx, key) })
}

func (s *RedisStore) remove(ctx context.Context, key string) error {
	reply, err := s.client.Do(ctx, "DEL", s.key(key)).Result()
	if n, ok := reply.(int64); err == nil && (!ok || n < 0 || n > 1) {
		err = errReply
	}
	return err
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
	err = s.doLarge(ctx, "update", len(seen)+len(stored), func(ctx context.Context) (err error) {
		done, is, err = s.compareAndSwap(ctx, key, seen, stored, ttl)
		return err
	})
	// The client of a cluster asks again when a connection breaks: then what
	// is there may be what this call wrote.
	if !done && len(stored) > 0 && string(is) == string(stored) {
		done = true
	}
	return done, is, err
}

func (s *RedisStore) compareAndSwap(ctx context.Context, key string, seen, stored []byte, ttl time.Duration) (done bool, is []byte, err error) {
	most := header + s.options.Value
	reply, err := s.scripts.swap.Run(ctx, s.client, []string{s.key(key)}, seen, stored, milliseconds(ttl), most).Slice()
	if err != nil {
		return false, nil, err
	}
	yes, text, err := pair(reply)
	if err != nil || yes != 0 && yes != 1 || text != "" && (yes == 1 || !s.wrapped([]byte(text))) {
		return false, nil, errReply
	}
	return yes == 1, []byte(text), nil
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
