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
	fetchGap   = 100 * time.Millisecond // between the begins of two fetches that a backend's own word causes
	retryGap   = 500 * time.Millisecond // between the begins of two fetches, where a backend fails and answers by turns
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// entry is one list of one backend on a shelf. mu of the Book guards it.
type entry struct {
	shelf  *shelf
	source int
	thing  edge.Thing

	list *List // the last that was fetched; nil for none
	sum  digest
	size int       // bytes that the Book counts for it
	got  time.Time // when it was fetched, or found to be the same

	fetch  *fetch    // under way; nil for none
	began  time.Time // the last fetch
	due    bool      // what is there is known to be old
	again  bool      // it has become so while a fetch was under way
	tried  bool      // one fetch has ended, or has taken longer than Wait
	late   bool      // the last fetch has taken longer than Wait
	tries  int       // fetches that failed since one has not
	retry  time.Time // no fetch before
	failed error     // of the last fetch; nil when it did not fail
}

// fetch is the fetching of a list, for which others wait.
type fetch struct {
	done    chan struct{}
	began   time.Time
	cancel  context.CancelFunc
	doubted bool // it began while its backend may not have answered
	renewed bool // it was cancelled for another to take its place
}

// tend begins a fetch where one is wanted, and returns the one that is worth
// waiting for; nil for none. mu is held.
func (b *Book) tend(e *entry, now time.Time, fresh bool) *fetch {
	age := now.Sub(e.got)
	wanted := e.list == nil || fresh && (e.due || age >= b.freshFor(e.list))
	if wanted && e.fetch == nil && !now.Before(e.retry) {
		b.begin(e, now)
	}
	needed := e.list == nil || fresh && (e.due || age > b.maxAge())
	if e.fetch == nil || !needed || e.late || e.tries > 0 {
		return nil
	}
	if now.Sub(e.fetch.began) >= b.Wait {
		e.late = true
		b.try(e)
		return nil
	}
	return e.fetch
}

// freshFor is how long a list is served without being fetched again. A backend
// that says nothing of it is asked once in an interval.
func (b *Book) freshFor(l *List) time.Duration {
	if l.TTL <= 0 {
		return b.Interval
	}
	return min(max(l.TTL, time.Second), b.Interval)
}

// absent reports whether an entry has no list that counts; mu is held.
func (b *Book) absent(e *entry, now time.Time) bool {
	gone := e.list == nil || now.Sub(e.got) > b.maxAge()
	if b.BestEffort && e.list != nil && e.list.Down != gone {
		other := *e.list
		other.Down = gone
		e.list = &other
		b.changed(e)
	}
	return gone
}

// changed has the catalogs built anew that a list is part of; mu is held.
func (b *Book) changed(e *entry) {
	b.touch(e.shelf)
	// Where catalogs differ by principal, they are not built to compare them.
	if b.personal && b.served {
		b.pending.Add(changeOf(e.thing))
		b.wake()
	}
}

// try notes that there has been an answer for the entry; mu is held.
func (b *Book) try(e *entry) {
	if !e.tried && e.shelf == b.common {
		b.untried--
	}
	e.tried = true
}

// drop notes that a list has changed; mu is held.
func (b *Book) drop(e *entry) {
	if e.list == nil && e.fetch == nil && e.tries == 0 {
		return // nobody has asked for it
	}
	if e.shelf != b.common && b.served && !e.due && e.list != nil {
		b.pending.Add(changeOf(e.thing))
	}
	e.due, e.late, e.tries = true, false, 0
	if e.fetch != nil {
		e.again = true
		return
	}
	now := time.Now()
	e.retry = e.began.Add(fetchGap)
	if e.shelf == b.common && !now.Before(e.retry) {
		b.begin(e, now)
	}
}

// retry fetches a list that could not be fetched from a backend that answers
// again. What is under way since before that may wait for what never comes. mu
// is held.
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
	if e.retry = e.began.Add(retryGap); e.shelf == b.common && !now.Before(e.retry) {
		b.begin(e, now)
	}
}

// renew ends a fetch that takes long, for another to take its place, and returns
// how long it is until then otherwise; mu is held.
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
	if b.closed || e.shelf.gone {
		return
	}
	ctx, cancel := context.WithTimeout(b.life, b.Timeout)
	f := &fetch{done: make(chan struct{}), began: now, cancel: cancel}
	e.fetch, e.began = f, now
	id := e.shelf.id
	b.work.Go(func() {
		defer cancel()
		list, caps, err := b.get(ctx, e.source, e.thing, id)
		b.finish(e, f, list, caps, err)
	})
}

// finish takes in what a fetch has brought.
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
	if e.shelf.gone {
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
		b.fail(e, err, now)
		return
	}
	if caps != nil && !bytes.Equal(b.caps[e.source], caps) {
		b.caps[e.source] = caps
		b.touch(b.common)
	}
	old := e.list
	told := e.due && e.shelf != b.common // clients were told when it was dropped
	e.got, e.tries, e.late, e.failed, e.retry, e.due = now, 0, false, nil, time.Time{}, again
	if old == nil || old.Down || e.sum != sum {
		e.list, e.sum = list, sum
		switch {
		case old == nil || told:
			b.touch(e.shelf)
		default:
			b.changed(e)
		}
	}
	if again {
		e.retry = e.began.Add(fetchGap)
	}
	b.wake()
}

// admit counts the size of a list, and reports whether there is room for it. A
// list that has not grown always has the room of the one before. mu is held.
func (b *Book) admit(e *entry, size int) bool {
	more := size - e.size
	b.bytes += more
	if room := b.makeRoom(e.shelf); !room && more > 0 {
		b.bytes -= more
		return false
	}
	e.size = size
	return true
}

// fail notes that a fetch has failed and when to try again; mu is held.
func (b *Book) fail(e *entry, err error, now time.Time) {
	level := slog.LevelDebug
	if e.tries == 0 && !b.closed {
		level = slog.LevelWarn
	}
	wait := min(firstRetry<<min(e.tries, 10), lastRetry)
	e.tries++
	e.failed, e.retry = err, now.Add(wait)
	what, _ := method(e.thing)
	b.Log.Log(context.Background(), level, "backend gives no list", "backend", b.Sources[e.source].Name(), "list", what, "error", err, "retry", wait)
	b.wake()
}

// get fetches all pages of a list. A panic on the way is an error of the
// backend that it happened for.
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
	if caps, err = b.Sources[source].Capabilities(ctx); err != nil {
		return nil, nil, err
	}
	caps = bytes.Clone(caps)
	if !declares(caps, thing) {
		return &List{}, caps, nil
	}
	list, err = b.walk(ctx, b.Sources[source], thing, id)
	return list, caps, err
}

// declares reports whether capabilities hold the kind of thing. What a backend
// does not declare it is not asked for.
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

// walk fetches the pages of a list until there is no further cursor, or one
// comes again. It ends with an error when the list is above the bounds: half a
// list is none.
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
		if string(items) == "null" { // an empty list of a server in Go
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

// lifetime reads ttlMs; 0 for what is none.
func lifetime(text []byte) time.Duration {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(min(n, int64(24*time.Hour/time.Millisecond))) * time.Millisecond
}

// sum returns a digest of a list and the bytes that it keeps, about.
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

// wake has the keeper look what there is to do.
func (b *Book) wake() {
	select {
	case b.poke <- struct{}{}:
	default:
	}
}

// keeper tries again what has failed and tells of changes, until Close.
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

// keep does what is to be done now, and returns when to look again.
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
	build := b.common.built != b.common.changes && (b.served && !b.personal || b.ready.Load() != nil)
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
