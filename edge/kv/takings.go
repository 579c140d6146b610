package kv

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/edge"
)

// Who takes tokens and hears nothing does not know whether he has them, and
// does not go on. Each taking has a record in the store, and what he may have
// taken is given back by that, or not taken when it comes later.
const (
	// recordFor is how long a record is kept, and so for how long what may have
	// been taken can be given back.
	recordFor = 30 * time.Second

	// maxUnsure is how many takings may wait to be given back.
	maxUnsure = 8192
)

// taking is one call of Take.
type taking struct {
	keys    []string // of the buckets, and of the record
	args    []any
	buckets []edge.Bucket
	when    time.Time // it became unsure
}

// takings are the calls of Take whose outcome nobody knows.
type takings struct {
	name string        // of this store, before the number of each of its takings
	last atomic.Uint64 // number
	wake chan struct{} // holds one while there are some

	mu     sync.Mutex
	unsure []taking
}

func (t *takings) begin() {
	t.name, t.wake = strconv.FormatUint(rand.Uint64(), 36), make(chan struct{}, 1)
}

// next is the taking of tokens from buckets. Its record lies where the first of
// them does in a cluster.
func (t *takings) next(s *RedisStore, buckets []edge.Bucket) taking {
	one := taking{keys: make([]string, len(buckets)+1), args: make([]any, 0, 2*len(buckets)+1), buckets: buckets}
	for i := range buckets {
		b := &buckets[i]
		one.keys[i] = s.key(b.Key)
		one.args = append(one.args, b.Capacity, max(b.Refill.Microseconds(), 1))
	}
	one.args = append(one.args, recordFor.Milliseconds())
	one.keys[len(buckets)] = s.prefix + "took:{" + slotOf(one.keys[0]) + "}:" + t.name + "." + strconv.FormatUint(t.last.Add(1), 36)
	return one
}

// slotOf is the part of a key that says where in a cluster it lies.
func slotOf(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// add notes a taking that may have been done.
func (t *takings) add(one taking) (room bool) {
	one.when = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.unsure) >= maxUnsure {
		return false
	}
	t.unsure = append(t.unsure, one)
	select {
	case t.wake <- struct{}{}:
	default:
	}
	return true
}

// first is the oldest of them that can still be given back.
func (t *takings) first() (one taking, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.unsure) > 0 && time.Since(t.unsure[0].when) > recordFor {
		t.unsure = t.unsure[1:]
	}
	if len(t.unsure) == 0 {
		t.unsure = nil
		return one, false
	}
	return t.unsure[0], true
}

func (t *takings) settled() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.unsure) > 0 {
		t.unsure = t.unsure[1:]
	}
}

// Take implements edge.Store. In a cluster the keys of one call lie in one
// slot: what they have in braces is equal. A call that returns an error has
// taken nothing, or what it has taken is given back as soon as the store can be
// asked.
func (s *RedisStore) Take(ctx context.Context, buckets ...edge.Bucket) (wait time.Duration, short int, err error) {
	if err := checkBuckets(buckets); err != nil {
		return 0, -1, err
	}
	if len(buckets) == 0 {
		return 0, -1, nil
	}
	one := s.takings.next(s, buckets)
	asked := false
	err = s.do(ctx, "take", func(ctx context.Context) (err error) {
		wait, short, err = s.takeAll(ctx, one)
		asked = mayBeDone(err)
		return err
	})
	if err == nil {
		return wait, short, nil
	}
	if asked {
		one.buckets = nil // they are the caller's
		if !s.takings.add(one) {
			s.full.Add(1)
		}
	}
	return 0, -1, err
}

// mayBeDone reports whether a call that returned an error may have been done:
// not when the store said that it was not, or was not asked.
func mayBeDone(err error) bool {
	var said redis.Error
	switch {
	case err == nil, errors.Is(err, redis.ErrPoolTimeout):
		return false
	case errors.Is(err, redis.Nil):
		return true
	}
	return !errors.As(err, &said)
}

// takeAll asks for tokens.
func (s *RedisStore) takeAll(ctx context.Context, one taking) (wait time.Duration, short int, err error) {
	reply, err := s.scripts.take.Run(ctx, s.client, one.keys, one.args...).Slice()
	if err != nil {
		return 0, -1, err
	}
	micros, isWait := number(reply, 3, 0)
	which, isShort := number(reply, 3, 1)
	corrupt, isCorrupt := number(reply, 3, 2)
	short = int(which) - 1
	switch {
	case !isWait || !isShort || !isCorrupt, which < 0, which > int64(len(one.buckets)), corrupt < 0, corrupt > int64(len(one.buckets)):
		return 0, -1, errReply
	case micros == -1 && which == 0:
		return 0, -1, errors.New("the call was given up before it was done")
	case (micros == 0) != (which == 0), micros < 0:
		return 0, -1, errReply
	// Nobody waits longer for a token than a bucket takes to fill.
	case short >= 0 && micros > max(one.buckets[short].Refill.Microseconds(), 1)+1:
		return 0, -1, errReply
	}
	s.corrupt.Add(uint64(corrupt))
	return time.Duration(micros) * time.Microsecond, short, nil
}

// number is an element of a reply of so many, if it is a number.
func number(reply []any, size, at int) (int64, bool) {
	if len(reply) != size {
		return 0, false
	}
	n, ok := reply[at].(int64)
	return n, ok
}

// undo gives back what a taking took.
func (s *RedisStore) undo(ctx context.Context, one taking) error {
	reply, err := s.scripts.undo.Run(ctx, s.client, one.keys, one.args...).Result()
	if n, ok := reply.(int64); err == nil && (!ok || n != 0 && n != 1) {
		err = errReply
	}
	return err
}

// settle gives back what may have been taken, as soon as the store can be asked.
// It ends with the store, after one more try.
func (s *RedisStore) settle() {
	defer edge.Contain(s.options.Log, "store takings")
	for s.end.Err() == nil {
		select {
		case <-s.end.Done():
		case <-s.takings.wake:
		}
		for wait := probeFirst; ; {
			one, ok := s.takings.first()
			if !ok {
				break
			}
			mended := s.breaker.mended()
			err := s.do(context.WithoutCancel(s.end), "give back", func(ctx context.Context) error { return s.undo(ctx, one) })
			if err == nil {
				s.takings.settled()
				wait = probeFirst
				continue
			}
			if s.end.Err() != nil {
				return
			}
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-mended:
			case <-s.end.Done():
			}
			timer.Stop()
			wait = min(2*wait, probeLast)
		}
	}
}
