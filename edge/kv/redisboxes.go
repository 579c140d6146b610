package kv

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/edge"
)

// What a listener reads at once: so many messages, or so many bytes and one.
const (
	fetchMessages = 64
	fetchBytes    = 1 << 20
)

// How often a listener looks into its box although nothing woke it: while the
// store tells of new messages, and while it does not.
const (
	lookHearing = 10 * time.Second
	lookDeaf    = time.Second
)

// lookAgain is how long a listener waits that was woken for nothing: whoever may
// wake it could have it look all the time.
const lookAgain = 2 * time.Millisecond

// earsAfter is how long the ears of a store wait for anything before they ask
// whether the store is still there.
const earsAfter = 2 * time.Second

// errClosed says that the store was closed.
var errClosed = errors.New("store closed")

// boxKeys are the keys of a box: its messages and the count of their bytes. The
// braces put both into one slot of a cluster.
func (s *RedisStore) boxKeys(name string) []string {
	key := s.key("box:{" + url.QueryEscape(name) + "}")
	return []string{key, key + ":bytes"}
}

// Post implements edge.Store.
func (s *RedisStore) Post(ctx context.Context, name string, message []byte, ttl time.Duration) error {
	if err := checkKey("post", name); err != nil {
		return err
	}
	if err := checkValue("post", message, s.options.Value, ttl); err != nil {
		return err
	}
	keys, room := s.boxKeys(name), false
	err := s.doLarge(ctx, "post", len(message), func(ctx context.Context) error {
		var err error
		room, err = s.leave(ctx, keys, message, ttl)
		return err
	})
	if err == nil && !room {
		s.full.Add(1)
		err = fail("post", errFull)
	}
	return err
}

// leave leaves a message in a box, if it has room.
func (s *RedisStore) leave(ctx context.Context, keys []string, message []byte, ttl time.Duration) (room bool, err error) {
	reply, err := s.scripts.post.Run(ctx, s.client, keys, message, milliseconds(ttl), s.options.Box, s.options.BoxBytes, keys[0]).Slice()
	if err != nil {
		return false, err
	}
	yes, isYes := number(reply, 2, 0)
	expired, isExpired := number(reply, 2, 1)
	if !isYes || yes != 0 && yes != 1 || !isExpired || expired < 0 || expired > maxForgotten {
		return false, errReply
	}
	s.expired.Add(uint64(expired))
	return yes == 1, nil
}

// maxForgotten is how many messages can have been in a box, of any edge's
// settings.
const maxForgotten = 1 << 24

// fetch reads the first messages of a box: the id and the text of each.
func (s *RedisStore) fetch(ctx context.Context, keys []string) (messages []string, more bool, err error) {
	reply, err := s.scripts.fetch.Run(ctx, s.client, keys, fetchMessages, fetchBytes, s.options.Value).Slice()
	if err != nil {
		return nil, false, err
	}
	if len(reply) < 2 || len(reply)%2 != 0 || len(reply) > 2+2*fetchMessages {
		return nil, false, errReply
	}
	forgotten, isForgotten := number(reply[:2], 2, 0)
	rest, isRest := number(reply[:2], 2, 1)
	if !isForgotten || forgotten < 0 || forgotten > maxForgotten || !isRest || rest != 0 && rest != 1 {
		return nil, false, errReply
	}
	for i, v := range reply[2:] {
		text, ok := v.(string)
		if !ok || i%2 == 0 && !isMessageID(text) || len(text) > s.options.Value {
			return nil, false, errReply
		}
		messages = append(messages, text)
	}
	s.expired.Add(uint64(forgotten))
	return messages, rest == 1, nil
}

// isMessageID reports whether text is what a Redis calls an entry of a stream.
func isMessageID(text string) bool {
	a, b, ok := strings.Cut(text, "-")
	return ok && a != "" && b != "" && len(text) <= 41 && strings.Trim(a, "0123456789") == "" && strings.Trim(b, "0123456789") == ""
}

// forget removes messages from a box.
func (s *RedisStore) forget(ctx context.Context, keys []string, taken []any, bytes int) error {
	reply, err := s.scripts.done.Run(ctx, s.client, keys, append([]any{bytes}, taken...)...).Result()
	if err == nil && reply != any(int64(0)) {
		err = errReply
	}
	return err
}

// Listen implements edge.Store. It also returns, with an error, when the store
// is closed.
func (s *RedisStore) Listen(ctx context.Context, name string, each func([]byte)) error {
	if err := checkKey("listen", name); err != nil {
		return err
	}
	l := &listener{s: s, keys: s.boxKeys(name), each: each, wake: make(chan struct{}, 1)}
	s.ears.add(ctx, l)
	defer s.ears.remove(l)
	woken := false
	for away := time.Duration(0); ; {
		mended := s.breaker.mended()
		wait := lookDeaf
		had, err := l.drain(ctx)
		switch {
		case err != nil:
			away = min(max(2*away, probeFirst), probeLast)
			wait = away
		case s.ears.hearing.Load():
			away, wait = 0, lookHearing
		default:
			away = 0
		}
		if woken && !had {
			_ = pause(ctx, lookAgain) // over is over: the next lines see it
		}
		woken = false
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-s.end.Done():
		case <-mended:
		case <-l.wake:
			woken = true
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
		if s.end.Err() != nil {
			return fail("listen", errClosed)
		}
	}
}

// listener is one Listen.
type listener struct {
	s    *RedisStore
	keys []string
	each func([]byte)
	wake chan struct{}

	// taken are the messages that each has had and the box still has. They are
	// removed before more are read, so that none comes twice unless this edge
	// ends in between.
	taken []any
	bytes int

	before []string // what was read last
}

// drain hands on what is in the box until it is empty or ctx ends, and reports
// whether there was anything.
func (l *listener) drain(ctx context.Context) (had bool, err error) {
	for ctx.Err() == nil {
		if err := l.done(ctx); err != nil {
			return had, err
		}
		messages, err := l.fetch(ctx)
		if err != nil {
			return had, err
		}
		if len(messages) == 0 {
			return had, nil
		}
		had = true
		for i := 0; i < len(messages) && ctx.Err() == nil; i += 2 {
			text := []byte(messages[i+1])
			l.each(text)
			l.taken, l.bytes = append(l.taken, messages[i]), l.bytes+len(messages[i+1])
		}
	}
	return had, l.done(ctx)
}

// fetch reads the first messages. What comes exactly as it came before, although
// it was removed, is no answer: who believed it would never end.
func (l *listener) fetch(ctx context.Context) (messages []string, err error) {
	// How much there is to read nobody knows.
	err = l.s.doFor(ctx, "listen", l.s.options.Value, func(ctx context.Context) (err error) {
		messages, _, err = l.s.fetch(ctx, l.keys)
		if err == nil && len(messages) > 0 && slices.Equal(messages, l.before) {
			messages, err = nil, errReply
		}
		return err
	})
	l.before = messages
	return messages, err
}

// done removes what was taken from the box, also when ctx is over: who listens
// next shall not have it again.
func (l *listener) done(ctx context.Context) error {
	if len(l.taken) == 0 {
		return nil
	}
	err := l.s.do(context.WithoutCancel(ctx), "listen", func(ctx context.Context) error {
		return l.s.forget(ctx, l.keys, l.taken, l.bytes)
	})
	if err == nil {
		l.taken, l.bytes = l.taken[:0], 0
	}
	return err
}

// ears hear of new messages, for all listeners of a store over one connection.
// What they miss is found by looking.
type ears struct {
	s       *RedisStore
	hearing atomic.Bool
	tuning  sync.Mutex // one tunes at a time; taken before mu

	mu    sync.Mutex // guards what follows
	boxes map[string]map[*listener]struct{}
	sub   *redis.PubSub // nil while there is none
	begun bool
	deaf  error     // why nothing is heard
	told  time.Time // when that was last said in the log
}

func newEars(s *RedisStore) *ears {
	return &ears{s: s, boxes: map[string]map[*listener]struct{}{}}
}

// add has a listener woken by messages. The first one starts the goroutine
// that hears; it ends with the store.
func (e *ears) add(ctx context.Context, l *listener) {
	channel := l.keys[0]
	e.mu.Lock()
	if e.boxes[channel] == nil {
		e.boxes[channel] = map[*listener]struct{}{}
	}
	e.boxes[channel][l] = struct{}{}
	first := !e.begun && e.s.end.Err() == nil
	e.begun = e.begun || first
	if first {
		e.s.work.Go(e.run)
	}
	e.mu.Unlock()
	e.tune(ctx, channel)
}

func (e *ears) remove(l *listener) {
	channel := l.keys[0]
	e.mu.Lock()
	delete(e.boxes[channel], l)
	if len(e.boxes[channel]) == 0 {
		delete(e.boxes, channel)
	}
	e.mu.Unlock()
	e.tune(e.s.end, channel)
}

// tune begins or ends to hear of a channel, as it has listeners or not.
func (e *ears) tune(ctx context.Context, channel string) {
	e.tuning.Lock()
	defer e.tuning.Unlock()
	e.mu.Lock()
	sub, wanted := e.sub, len(e.boxes[channel]) > 0
	e.mu.Unlock()
	if sub == nil {
		return // the next connection begins with all channels that are wanted
	}
	within, cancel := context.WithTimeout(ctx, e.s.options.Timeout)
	defer cancel()
	// What fails here is made up for: listeners also look by themselves, and a
	// message too many wakes nobody.
	if wanted {
		_ = sub.Subscribe(within, channel)
	} else {
		_ = sub.Unsubscribe(within, channel)
	}
}

// run hears until the store is closed.
func (e *ears) run() {
	defer edge.Contain(e.s.options.Log, "store ears")
	for wait := time.Duration(0); e.s.end.Err() == nil; {
		ever := false
		err := contained(e.s.end, func(context.Context) (err error) {
			ever, err = e.hear()
			return err
		})
		if ever {
			wait = 0
		}
		e.because(err)
		e.hearing.Store(false)
		e.wake("")
		wait = min(max(2*wait, probeFirst), 5*time.Second)
		_ = pause(e.s.end, wait) // over is over: the loop sees it
	}
}

// because notes why nothing is heard. What the store refuses is said once, and
// not what comes of a store that is away: that is said elsewhere.
func (e *ears) because(err error) {
	if err != nil && !isLasting(err) && !errors.Is(err, errReply) {
		err = nil
	}
	if err != nil {
		err = tell(err)
	}
	e.mu.Lock()
	first := e.deaf == nil && err != nil && time.Since(e.told) > time.Minute
	if e.deaf = err; first {
		e.told = time.Now()
	}
	e.mu.Unlock()
	if first {
		e.s.options.Log.Warn("the store does not tell of new messages: they are found by looking, a second late", "addresses", e.s.options.Addresses, "err", err)
	}
}

func (e *ears) deafness() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.deaf
}

// check asks whether the store would tell of new messages.
func (e *ears) check(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, max(probeWait, e.s.options.Timeout))
	defer cancel()
	return contained(within, func(ctx context.Context) error {
		sub := e.s.client.Subscribe(ctx)
		defer sub.Close()
		channel := e.s.key("box")
		if err := sub.Subscribe(ctx, channel); err != nil {
			return err
		}
		if _, err := sub.Receive(ctx); err != nil {
			return err
		}
		if err := sub.Ping(ctx); err != nil {
			return err
		}
		if _, err := sub.Receive(ctx); err != nil {
			return err
		}
		if err := sub.Unsubscribe(ctx, channel); err != nil {
			return err
		}
		_, err := sub.Receive(ctx)
		return err
	})
}

// hear wakes listeners until the connection breaks, and reports whether it
// ever heard anything.
func (e *ears) hear() (ever bool, err error) {
	sub := e.s.client.Subscribe(e.s.end)
	e.mu.Lock()
	channels := make([]string, 0, len(e.boxes))
	for c := range e.boxes {
		channels = append(channels, c)
	}
	e.sub = sub
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.sub = nil
		e.mu.Unlock()
		_ = sub.Close() // it is broken, or the store is
	}()
	// A connection needs a channel to start with, also when nobody listens now.
	if err := e.subscribe(sub, append(channels, e.s.key("box"))); err != nil {
		return false, err
	}
	for asked := false; e.s.end.Err() == nil; {
		m, err := sub.ReceiveTimeout(e.s.end, earsAfter)
		if err != nil {
			if !isTimeout(err) || asked {
				return ever, err
			}
			if err := sub.Ping(e.s.end); err != nil {
				return ever, err
			}
			asked = true
			continue
		}
		ever, asked = true, false
		e.because(nil)
		switch m := m.(type) {
		case *redis.Subscription:
			e.hearing.Store(true)
			e.wake(m.Channel) // for what was posted before
		case *redis.Message:
			e.wake(m.Channel)
		}
	}
	return ever, nil
}

func (e *ears) subscribe(sub *redis.PubSub, channels []string) error {
	ctx, cancel := context.WithTimeout(e.s.end, probeWait)
	defer cancel()
	return sub.Subscribe(ctx, channels...)
}

// wake has the listeners of a channel look into their box; all for "".
func (e *ears) wake(channel string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if channel != "" {
		nudge(e.boxes[channel])
		return
	}
	for _, listeners := range e.boxes {
		nudge(listeners)
	}
}

func nudge(listeners map[*listener]struct{}) {
	for l := range listeners {
		select {
		case l.wake <- struct{}{}:
		default: // it will look anyhow
		}
	}
}

// close ends the goroutine that hears.
func (e *ears) close() {
	e.mu.Lock()
	sub := e.sub
	e.mu.Unlock()
	if sub != nil {
		_ = sub.Close() // wakes its reader
	}
}
