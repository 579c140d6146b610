package kv

import (
	"context"
	"errors"
	"time"
)

// RemoveOver removes what is over at a time.
func (c *Cache) RemoveOver(now time.Time) { c.removeOver(now) }

// Taken is a message that was taken from a box.
type Taken struct {
	Text  string
	id    string
	keys  []string
	store *RedisStore
}

// Next takes the first message of a box as a listener does.
func (s *RedisStore) Next(ctx context.Context, name string) (*Taken, error) {
	keys := s.boxKeys(name)
	messages, _, err := s.fetch(ctx, keys)
	if err == nil && len(messages) == 0 {
		err = errors.New("there is none")
	}
	if err != nil {
		return nil, err
	}
	t := &Taken{messages[1], messages[0], keys, s}
	return t, t.Say(ctx)
}

// Say says that it was taken.
func (t *Taken) Say(ctx context.Context) error {
	return t.store.forget(ctx, t.keys, []any{t.id}, len(t.Text))
}
