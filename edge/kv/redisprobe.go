package kv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
)

// probe asks the store whether it is there, and does all that calls need: at the
// start, while the breaker is open, and now and then, since other calls may need
// only a part of that. It ends with the store.
func (s *RedisStore) probe() {
	defer edge.Contain(s.options.Log, "store probe")
	wait, timer := time.Duration(0), time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.end.Done():
			return
		case <-s.breaker.tripped:
			wait = probeFirst
			timer.Reset(wait)
			continue
		case <-timer.C:
		}
		if err := s.knock(); err != nil {
			if s.end.Err() == nil {
				s.failed(tell(err), isLasting(err))
			}
			// Not all at once: every replica asks.
			wait = min(max(2*wait, probeFirst), probeLast)
			timer.Reset(wait - rand.N(wait/4))
			continue
		}
		if was := s.breaker.mend(); was > 0 {
			s.options.Log.Info("the store is back", "addresses", s.options.Addresses, "away", was.Round(time.Millisecond))
		}
		wait = 0
		timer.Reset(probeIdle)
	}
}

// knock asks the store for what calls need: an answer on a connection that may
// be new, and then everything that a call may ask of it, as fast as a call needs
// it. A store that refuses a part of that, or answers it with what is no answer,
// is as good as away.
func (s *RedisStore) knock() error {
	ctx, cancel := context.WithTimeout(s.end, max(probeWait, s.options.Timeout))
	defer cancel()
	if err := contained(ctx, s.vouch); err != nil {
		return err
	}
	return s.rehearse(s.end)
}

// rehearsals are how many places the probes of all edges write to.
const rehearsals = 16

// rehearse does everything once that calls may ask of the store.
func (s *RedisStore) rehearse(ctx context.Context) error {
	n := strconv.Itoa(rand.IntN(rehearsals))
	const short = 10 * time.Second
	key, box := "probe:"+n, s.boxKeys("probe:"+n)
	buckets := []edge.Bucket{{Key: "rl:{probe}:" + n, Capacity: 1 << 20, Refill: time.Second}}
	var messages []string
	taking := s.takings.next(s, buckets)
	for _, step := range []struct {
		what string // that is done, and with which commands
		do   func(context.Context) error
	}{
		{"to keep a value (set)", func(ctx context.Context) error { return s.set(ctx, key, wrap([]byte("1")), short) }},
		{"to read a value (getrange)", func(ctx context.Context) error { _, err := s.getRange(ctx, key, header+s.options.Value); return err }},
		{"to change a value (evalsha, eval: get, set, del)", func(ctx context.Context) error {
			_, _, err := s.compareAndSwap(ctx, key, nil, nil, short)
			return err
		}},
		{"to remove a value (del)", func(ctx context.Context) error { return s.remove(ctx, key) }},
		{"to take tokens (evalsha, eval: time, hmget, get, set, pexpire, hset, del)", func(ctx context.Context) error {
			_, _, err := s.takeAll(ctx, taking)
			return err
		}},
		{"to give tokens back (evalsha, eval: get, set, hmget, hset)", func(ctx context.Context) error { return s.undo(ctx, taking) }},
		{"to leave a message (evalsha, eval: type, get, time, xlen, xrange, xdel, pttl, publish, pexpire, set, xadd)", func(ctx context.Context) error {
			_, err := s.leave(ctx, box, []byte("1"), short)
			return err
		}},
		{"to read messages (evalsha, eval: type, get, time, xrange, exists, xlen, pttl, set, pexpire, del)", func(ctx context.Context) (err error) {
			messages, _, err = s.fetch(ctx, box)
			return err
		}},
		{"to remove messages (evalsha, eval: type, get, time, xdel, exists, xlen, del, pttl, pexpire)", func(ctx context.Context) error {
			taken, bytes := []any{"0-1"}, 0 // which is never there
			for i := 0; i < len(messages); i += 2 {
				taken, bytes = append(taken, messages[i]), bytes+len(messages[i+1])
			}
			return s.forget(ctx, box, taken, bytes)
		}},
	} {
		within, cancel := context.WithTimeout(ctx, s.options.Timeout)
		err := contained(within, step.do)
		cancel()
		if err != nil {
			return &stepError{step.what, err}
		}
	}
	return nil
}

// stepError is what the store does not do of all that calls need.
type stepError struct {
	what string
	err  error
}

func (e *stepError) Error() string { return e.err.Error() + ", " + e.what }
func (e *stepError) Unwrap() error { return e.err }

// vouch has the store say what only one that serves can say, so that an answer
// that says nothing, such as that there is no value, is not one that the store
// gives to everything.
func (s *RedisStore) vouch(ctx context.Context) error {
	word := strconv.FormatUint(rand.Uint64(), 36)
	// The key only says which member of a cluster is asked.
	reply, err := s.scripts.echo.Run(ctx, s.client, []string{s.key("probe:0")}, word).Result()
	if err == nil && reply != any(word) {
		err = errReply
	}
	return err
}

// Check does everything once that calls may ask of the store, and returns what
// it does not do. It does not mind whether the store is known to be away.
func (s *RedisStore) Check(ctx context.Context) error {
	if err := s.rehearse(ctx); err != nil {
		return fmt.Errorf("redis: %w", tell(err))
	}
	if err := s.ears.check(ctx); err != nil {
		return fmt.Errorf("redis: %w, to be told of new messages (subscribe, unsubscribe, ping)", tell(err))
	}
	return nil
}
