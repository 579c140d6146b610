package authserver

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"
)

// Whoever takes a secret off the list ends the clients that are registered under it. usage
// counts, for each secret, the grants of such clients that live, by the day of their end.
//
// It is an estimate that no login waits for. Without a store that replicas share it lies in
// memory, as the grants do; else a replica adds what it has counted to a record from time to
// time, so that a crash loses what it did in the last seconds.

// usageKey is the record of it, and usageLife how long it lasts after the last change.
const (
	usageKey  = "usage"
	usageLife = 400 * 24 * time.Hour
)

// used is how a secret is used.
type used struct {
	Days map[int64]int64 // grants, by the day since 1970 on which they end
	Last time.Time       // when a client of it last had tokens
}

func (u *used) add(day, n int64) {
	if u.Days == nil {
		u.Days = map[int64]int64{}
	}
	u.Days[day] += n
}

// prune forgets the days that are over.
func (u *used) prune(now time.Time) {
	maps.DeleteFunc(u.Days, func(day, _ int64) bool { return day < dayOf(now) })
}

// lives is how many grants live at a time.
func (u *used) lives(now time.Time) (n int64) {
	for day, count := range u.Days {
		if day >= dayOf(now) {
			n += count
		}
	}
	return max(n, 0)
}

func dayOf(t time.Time) int64 { return t.Unix() / (24 * 60 * 60) }

// usage is safe for concurrent use. Its zero value is ready.
type usage struct {
	mu    sync.Mutex
	known map[string]*used // as the record had it when it was last read
	added map[string]*used // since then, here
}

// grant notes that tokens were issued to a client of a secret, "" for one of none: its grant
// now ends at a time, and before at another; zero for a grant that is new, or over.
func (u *usage) grant(secret string, before, until, now time.Time) {
	if secret == "" {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.added == nil {
		u.added = map[string]*used{}
	}
	a := u.added[secret]
	if a == nil {
		a = &used{}
		u.added[secret] = a
	}
	a.prune(now)
	if !before.IsZero() {
		a.add(dayOf(before), -1)
	}
	if !until.IsZero() {
		a.add(dayOf(until), 1)
		a.Last = now
	}
}

// flush adds what was counted here to the record, and reads it. It is written in any case: so
// it is sealed with the current secret.
func (u *usage) flush(ctx context.Context, r *records, now time.Time) error {
	u.mu.Lock()
	added := u.added
	u.added = nil
	u.mu.Unlock()
	var known map[string]*used
	err := r.Update(ctx, usageKey, usageLife, func(old []byte) ([]byte, error) {
		known = map[string]*used{}
		if old != nil && json.Unmarshal(old, &known) != nil {
			known = map[string]*used{}
		}
		for secret, a := range added {
			if known[secret] == nil {
				known[secret] = &used{}
			}
			known[secret].take(a)
		}
		for secret, k := range known {
			if k.prune(now); len(k.Days) == 0 && now.Sub(k.Last) > usageLife {
				delete(known, secret)
			}
		}
		return encode(known), nil
	})
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil {
		u.known = known
		return nil
	}
	for secret, a := range added { // for the next time
		if u.added == nil {
			u.added = map[string]*used{}
		}
		if u.added[secret] == nil {
			u.added[secret] = &used{}
		}
		u.added[secret].take(a)
	}
	return err
}

// take adds what another has counted.
func (u *used) take(a *used) {
	for day, n := range a.Days {
		u.add(day, n)
	}
	if a.Last.After(u.Last) {
		u.Last = a.Last
	}
}

// of is how a secret is used, as far as this replica knows.
func (u *usage) of(secret string, now time.Time) (grants int64, last time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	sum := &used{}
	for _, part := range []*used{u.known[secret], u.added[secret]} {
		if part != nil {
			sum.take(part)
		}
	}
	return sum.lives(now), sum.Last
}
