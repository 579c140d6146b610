package kv

import (
	"context"
	"time"
)

// box is the messages that wait for a listener of a MemoryStore.
type box struct {
	messages  []message
	next      uint64        // number of the next message
	listeners int           // a box lives while it has messages or listeners
	posted    chan struct{} // closed when a message comes
}

type message struct {
	number  uint64
	data    []byte
	expires time.Time
}

// Post implements edge.Store.
func (s *MemoryStore) Post(_ context.Context, name string, data []byte, ttl time.Duration) error {
	if err := checkKey("post", name); err != nil {
		return err
	}
	if err := checkValue("post", data, s.limits.Value, ttl); err != nil {
		return err
	}
	s.calls.Add(1)
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	b, entries := s.boxes[name], 0
	if b == nil {
		entries = 1
	} else if len(b.messages) >= s.limits.Box {
		s.expire(now, b)
		if len(b.messages) >= s.limits.Box {
			s.full.Add(1)
			return fail("post", errFull)
		}
	}
	if err := s.room(now, int64(len(data))+perEntry, entries, nil); err != nil {
		return fail("post", err)
	}
	b = s.open(name)
	b.messages = append(b.messages, message{b.next, clone(data), now.Add(ttl)})
	b.next++
	s.bytes += int64(len(data)) + perEntry
	close(b.posted)
	b.posted = make(chan struct{})
	return nil
}

// Listen implements edge.Store.
func (s *MemoryStore) Listen(ctx context.Context, name string, each func([]byte)) error {
	if err := checkKey("listen", name); err != nil {
		return err
	}
	s.mu.Lock()
	b := s.open(name)
	b.listeners++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		b.listeners--
		s.shut(name, b)
	}()
	for ctx.Err() == nil {
		s.mu.Lock()
		s.expire(time.Now(), b)
		posted := b.posted
		if len(b.messages) == 0 {
			s.mu.Unlock()
			select {
			case <-posted:
			case <-ctx.Done():
			}
			continue
		}
		m := b.messages[0]
		s.mu.Unlock()
		each(clone(m.data))
		s.mu.Lock()
		// Another listener may have had the same message meanwhile.
		if len(b.messages) > 0 && b.messages[0].number == m.number {
			s.shift(b)
		}
		s.mu.Unlock()
	}
	return nil
}

// open returns the box of a name. s.mu is held.
func (s *MemoryStore) open(name string) *box {
	b := s.boxes[name]
	if b == nil {
		b = &box{posted: make(chan struct{})}
		s.boxes[name] = b
		s.bytes += int64(len(name)) + perEntry
	}
	return b
}

// shut removes a box that nobody needs. s.mu is held.
func (s *MemoryStore) shut(name string, b *box) {
	if b.listeners == 0 && len(b.messages) == 0 {
		delete(s.boxes, name)
		s.bytes -= int64(len(name)) + perEntry
	}
}

// shift removes the first message of a box. s.mu is held.
func (s *MemoryStore) shift(b *box) {
	s.bytes -= int64(len(b.messages[0].data)) + perEntry
	b.messages[0] = message{}
	b.messages = b.messages[1:]
}

// expire removes the messages that are too old. s.mu is held.
func (s *MemoryStore) expire(now time.Time, b *box) {
	kept := b.messages[:0]
	for _, m := range b.messages {
		if m.expires.After(now) {
			kept = append(kept, m)
			continue
		}
		s.bytes -= int64(len(m.data)) + perEntry
		s.expired.Add(1)
	}
	clear(b.messages[len(kept):])
	b.messages = kept
}

// forgetMessages removes the messages of all boxes that are too old, and the
// boxes that are empty then. s.mu is held.
func (s *MemoryStore) forgetMessages(now time.Time) {
	s.swept = now
	for name, b := range s.boxes {
		s.expire(now, b)
		s.shut(name, b)
	}
}
