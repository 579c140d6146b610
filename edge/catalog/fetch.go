package catalog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

const (
	maxFetches = 8                      // from one backend at a time
	maxCursor  = 8 << 10                // bytes
	fetchGap   = 100 * time.Millisecond // between the starts of two fetches that notifications of a backend cause
	retryGap   = 500 * time.Millisecond // between the starts of two fetches from a backend that fails and recovers repeatedly
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second // of lists that are the same for everybody: those of one principal are asked for by that one's calls alone
)

// entry is one list of one backend in a list set. mu of the Book guards it.
type entry struct {
	set    *listSet
	source int
	thing  edge.Thing

	list *List // the last one fetched; nil for none
	sum  digest
	size int       // bytes that the Book counts for it
	got  time.Time // when it was fetched, or found to be the same

	fetch  *fetch    // under way; nil for none
	began  time.Time // the last fetch
	due    bool      // list is known to be out of date
	again  bool      // it became due while a fetch was under way
	tried  bool      // one fetch has ended, or has taken longer than Wait
	late   bool      // the last fetch has taken longer than Wait
	tries  int       // fetches that failed since one has not
	retry  time.Time // no fetch starts before this time
	failed error     // of the last fetch; nil when it did not fail
}

// fetch is one fetch of a list, which requests can wait for.
type fetch struct {
	done    chan struct{}
	began   time.Time
	id      *edge.Identity // whose credential it has; nil for none
	cancel  context.CancelFunc
	doubted bool // it began while its backend may not have answered
	renewed bool // it was cancelled, and another one takes its place
}

// tend begins a fetch if the entry needs one, and returns the fetch that is worth
// waiting for; nil for none. mu is held.
func (b *Book) tend(e *entry, now time.Time, fresh bool) *fetch {
	age := now.Sub(e.got)
	wanted := e.list == nil || fresh && (e.due || age >= b.freshFor(e))
	if wanted && e.fetch == nil && !now.Before(e.retry) {
		b.begin(e, now)
	}
	needed := e.list == nil || fresh && (e.due || age > b.maxAge(e.set))
	if e.fetch == nil || !needed || e.late || e.tries > 0 && e.set == b.common {
		return nil
	}
	if now.Sub(e.fetch.began) >= b.Wait {
		e.late = true
		b.try(e)
		return nil
	}
	return e.fetch
}

// freshFor returns for how long a list is served without being fetched again: one
// interval if the backend gives no lifetime, and five minutes where it is a principal's,
// so that what one costs does not grow with the principals.
func (b *Book) freshFor(e *entry) time.Duration {
	most := b.interval(e.set)
	if e.list.TTL <= 0 {
		return most
	}
	return min(max(e.list.TTL, time.Second), most)
}

// interval returns how old the lists of a set get that are fetched again.
func (b *Book) interval(s *listSet) time.Duration {
	if s != b.common {
		return max(b.Interval, personalInterval)
	}
	return b.Interval
}

// personalInterval is interval for lists of one principal.
const personalInterval = 5 * time.Minute

// maxAge is how old a list may be and still count.
func (b *Book) maxAge(s *listSet) time.Duration { return 3 * b.interval(s) }

// absent reports whether an entry has no list that counts; mu is held.
func (b *Book) absent(e *entry, now time.Time) bool {
	gone := e.list == nil || now.Sub(e.got) > b.maxAge(e.set)
	if b.BestEffort && e.list != nil && e.list.Down != gone {
		other := *e.list
		other.Down = gone
		e.list = &other
		b.changed(e)
	}
	return gone
}

// changed marks the catalogs with a list as out of date; mu is held.
func (b *Book) changed(e *entry) {
	b.touch(e.set)
	// Catalogs that differ by principal are not rebuilt just to compare them.
	if b.personal {
		b.pending.Add(changeOf(e.thing))
		b.wake()
	}
}

// try notes that the entry has been answered or has taken too long; mu is held.
func (b *Book) try(e *entry) {
	if !e.tried && e.set == b.common {
		b.untried--
	}
	e.tried = true
}

// drop notes that a list has changed; mu is held.
func (b *Book) drop(e *entry) {
	if e.list == nil && e.fetch == nil && e.tries == 0 {
		return // nobody has asked for it
	}
	if e.set != b.common && !e.due && e.list != nil {
		b.pending.Add(changeOf(e.thing))
	}
	e.due, e.late, e.tries = true, false, 0
	if e.fetch != nil {
		e.again = true
		return
	}
	now := time.Now()
	e.retry = e.began.Add(fetchGap)
	if e.set == b.common && !now.Before(e.retry) {
		b.begin(e, now)
	}
}

// retry fetches a list that could not be fetched from a backend that answers
// again. A fetch that began before may never get its answer, and is doubted. mu is
// held.
func (b *Book) retry(e *entry, now time.Time) {
	if e.fetch == nil && e.tries == 0 && (e.list == nil || now.Sub(e.got) < b.Interval) {
		return // nobody has asked for it, or it is fresh
	}
	e.tries, e.late, e.due = 0, false, true
	if e.fetch != nil {
		e.fetch.doubted = true
		b.renew(e.fetch, now)
		return
	}
	if e.retry = e.began.Add(retryGap); e.set == b.common && !now.Before(e.retry) {
		b.begin(e, now)
	}
}

// renew cancels a fetch that has taken longer than Wait, so that another takes its
// place, and returns when to look at it again; mu is held.
func (b *Book) renew(f *fetch, now time.Time) time.Duration {
	wait := f.began.Add(b.Wait).Sub(now)
	if wait <= 0 && !f.renewed {
		f.renewed = true
		f.cancel()
	}
	return max(wait, fetchGap)
}

// begin fetches a list; mu is held.
func (b *Book) begin(e *entry, now time.Time) {
	if b.closed || e.set.gone {
		return
	}
	ctx, cancel := context.WithTimeout(b.life, b.Timeout)
	id := e.set.id
	f := &fetch{done: make(chan struct{}), began: now, id: id, cancel: cancel}
	e.fetch, e.began = f, now
	if e.set != b.common { // no health check tells when it is worth waiting for again
		e.late = false
	}
	b.work.Go(func() {
		defer cancel()
		list, caps, err := b.get(ctx, e.source, e.thing, id)
		b.finish(e, f, list, caps, err)
	})
}

// finish stores the result of a fetch.
func (b *Book) finish(e *entry, f *fetch, list *List, caps []byte, err error) {
	var sum digest
	size := 0
	if err == nil {
		sum, size = list.sum()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	defer close(f.done)
	e.fetch = nil
	again := e.again
	e.again = false
	defer b.try(e)
	if e.set.gone {
		return
	}
	now := time.Now()
	if err == nil && !b.admit(e, size) {
		err = edge.Errorf(edge.Overload, "list", "the lists of all backends are more than %d bytes", b.Bounds.Bytes)
	}
	if err != nil && f.renewed {
		b.begin(e, now)
		return
	}
	if err != nil {
		b.fail(e, f, err, now)
		return
	}
	if caps != nil && !bytes.Equal(b.caps[e.source], caps) {
		b.caps[e.source] = caps
		b.touch(b.common)
	}
	old := e.list
	told := e.due && e.set != b.common // clients were told when it was dropped
	e.got, e.tries, e.late, e.failed, e.retry, e.due = now, 0, false, nil, time.Time{}, again
	if old == nil || old.Down || e.sum != sum {
		e.list, e.sum = list, sum
		switch {
		case old == nil || told:
			b.touch(e.set)
		default:
			b.changed(e)
		}
	}
	if again {
		e.retry = e.began.Add(fetchGap)
	}
	b.wake()
}

// admit counts the size of a list, and reports whether it fits into the bounds. A
// list that has not grown always fits. mu is held.
func (b *Book) admit(e *entry, size int) bool {
	more := size - e.size
	b.bytes += more
	if room := b.makeRoom(e.set); !room && more > 0 {
		b.bytes -= more
		return false
	}
	e.size = size
	return true
}

// fail notes that a fetch has failed and when to try again; mu is held.
func (b *Book) fail(e *entry, f *fetch, err error, now time.Time) {
	level := slog.LevelDebug
	if e.tries == 0 && !b.closed {
		level = slog.LevelWarn
	}
	wait := firstRetry
	if e.set == b.common {
		wait = min(firstRetry<<min(e.tries, 10), lastRetry)
	}
	if f.id != nil && f.id.Token != e.set.id.Token { // the user has signed in again meanwhile
		wait = 0
	}
	e.tries++
	e.failed, e.retry = err, now.Add(wait)
	what, _ := method(e.thing)
	b.Log.Log(context.Background(), level, "backend gives no list", "backend", b.Sources[e.source].Name(), "list", what, "error", err, "retry", wait)
	b.wake()
}

// get fetches all pages of a list. A panic becomes an error of that backend.
func (b *Book) get(ctx context.Context, source int, thing edge.Thing, id *edge.Identity) (list *List, caps []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			b.Log.Error("panic", "in", "list", "backend", b.Sources[source].Name(), "panic", r, "stack", string(debug.Stack()))
			list, err = nil, edge.Errorf(edge.Internal, "list", "panic")
		}
	}()
	select {
	case b.slots[source] <- struct{}{}:
		defer func() { <-b.slots[source] }()
	case <-ctx.Done():
		return nil, nil, edge.Errorf(edge.Timeout, "list", "%w", context.Cause(ctx))
	}
	if caps, err = b.Sources[source].Capabilities(ctx, id); err != nil {
		return nil, nil, err
	}
	caps = bytes.Clone(caps)
	if !declares(caps, thing) {
		return &List{}, caps, nil
	}
	list, err = b.walk(ctx, b.Sources[source], thing, id)
	return list, caps, err
}

// declares reports whether capabilities hold the kind of thing. A backend is not
// asked for lists that it does not declare.
func declares(caps []byte, thing edge.Thing) bool {
	name := "tools"
	switch thing {
	case edge.Prompt:
		name = "prompts"
	case edge.Resource, edge.Template:
		name = "resources"
	}
	v := mcp.Lookup(caps, name)
	return len(v) > 0 && v[0] == '{'
}

// walk fetches the pages of a list until there is no further cursor, or a cursor
// repeats. A list above the bounds is an error: part of a list is never served.
func (b *Book) walk(ctx context.Context, s Source, thing edge.Thing, id *edge.Identity) (*List, error) {
	what, member := method(thing)
	out := &List{Public: true}
	seen := make(map[string]bool)
	var cursor *string
	size := 0
	for page := 0; ; page++ {
		if page == b.Bounds.Pages {
			return nil, edge.Errorf(edge.Unavailable, what, "more than %d pages", b.Bounds.Pages)
		}
		result, err := s.List(ctx, id, what, cursor)
		if page == 0 && err != nil && edge.KindOf(err) == edge.NoMethod {
			return &List{}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		if size += len(result); size > b.Bounds.ListBytes {
			return nil, edge.Errorf(edge.Unavailable, what, "more than %d bytes", b.Bounds.ListBytes)
		}
		if err := mcp.Valid(result); err != nil {
			return nil, edge.Errorf(edge.Unavailable, what, "not JSON: %w", err)
		}
		items := mcp.Lookup(result, member)
		if string(items) == "null" { // a nil slice of a backend in Go
			items = []byte("[]")
		}
		if len(items) == 0 || items[0] != '[' {
			return nil, &edge.Error{Kind: edge.Unavailable, Op: what, Err: errors.New("no " + member + " in the result")}
		}
		out.Items = append(out.Items, mcp.Elements(items)...)
		if len(out.Items) > b.Bounds.Items {
			return nil, edge.Errorf(edge.Unavailable, what, "more than %d items", b.Bounds.Items)
		}
		ttl := lifetime(mcp.Lookup(result, "ttlMs"))
		if page == 0 || ttl < out.TTL {
			out.TTL = ttl
		}
		out.Public = out.Public && id == nil && mcp.String(mcp.Lookup(result, "cacheScope")) == "public"
		next := mcp.Lookup(result, "nextCursor")
		if len(next) == 0 || next[0] != '"' {
			return out, nil
		}
		if len(next) > maxCursor {
			return nil, edge.Errorf(edge.Unavailable, what, "a cursor of more than %d bytes", maxCursor)
		}
		text := mcp.String(next) // "" is a cursor like any other
		if seen[text] {
			return out, nil
		}
		seen[text] = true
		cursor = &text
	}
}

// lifetime reads ttlMs; 0 if it is not a number of milliseconds.
func lifetime(text []byte) time.Duration {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(min(n, int64(24*time.Hour/time.Millisecond))) * time.Millisecond
}

// sum returns a digest of a list and about how many bytes it keeps.
func (l *List) sum() (digest, int) {
	h := sha256.New()
	var n [8]byte
	size := 64
	for _, raw := range l.Items {
		h.Write(binary.BigEndian.AppendUint64(n[:0], uint64(len(raw))))
		h.Write(raw)
		size += len(raw) + 32
	}
	h.Write(binary.BigEndian.AppendUint64(n[:0], uint64(l.TTL)))
	if l.Public {
		h.Write([]byte{1})
	}
	return digest(h.Sum(nil)), size
}

// wake wakes the keeper.
func (b *Book) wake() {
	select {
	case b.poke <- struct{}{}:
	default:
	}
}

// keeper repeats failed fetches and reports changes, until Close.
func (b *Book) keeper() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-b.life.Done():
			return
		case <-b.poke:
		case <-t.C:
		}
		t.Reset(b.keep())
	}
}

// keep does one round of the keeper, and returns the time until the next.
func (b *Book) keep() time.Duration {
	next := time.Hour
	now := time.Now()
	b.mu.Lock()
	for i := range b.common.entries {
		for _, e := range b.common.entries[i] {
			if e != nil && e.fetch != nil && e.fetch.doubted && !e.fetch.renewed {
				next = min(next, b.renew(e.fetch, now))
			}
			if e == nil || e.fetch != nil || !e.due && e.tries == 0 {
				continue
			}
			if wait := e.retry.Sub(now); wait > 0 {
				next = min(next, wait)
			} else {
				b.begin(e, now)
			}
		}
	}
	build := b.common.built != b.common.changes && ((b.served || b.untried == 0) && !b.personal || b.ready.Load() != nil)
	b.mu.Unlock()
	if build {
		b.current(b.common)
	}
	b.mu.Lock()
	if !b.pending.Any() {
		b.mu.Unlock()
		return next
	}
	if wait := b.told.Add(b.Quiet).Sub(now); wait > 0 {
		b.mu.Unlock()
		return min(next, wait)
	}
	changes := b.pending
	b.pending, b.told = Changes{}, now
	b.mu.Unlock()
	b.tell(changes)
	return next
}

func (b *Book) tell(c Changes) {
	defer edge.Contain(b.Log, "list_changed")
	if b.Changed != nil {
		b.Changed(c)
	}
}
