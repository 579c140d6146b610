package catalog

import (
	"container/list"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Whose lists there are: a set that is the same for everybody, and one for each principal and the
// rights of its token before backends that answer users alone, of which those that were used least
// recently go.

// perPrincipal is how many sets one principal has, by tokens of different rights, besides those that
// were used within inUse: were these to go, tokens that take turns would find nothing. Where there is
// no room those of who has more go first, and nobody else's.
const (
	perPrincipal = 16
	inUse        = time.Minute
)

// who is a principal with the rights of a token.
type who struct {
	issuer, subject string
	rights          [16]byte
}

// owner is the principal alone.
func (w who) owner() [2]string { return [2]string{w.issuer, w.subject} }

func whoIs(id *edge.Identity) who { return who{id.Issuer, id.Subject, id.Rights} }

// listSet holds lists: those that are the same for everybody, or those of one
// principal.
type listSet struct {
	id      *edge.Identity // nil for everybody
	key     who
	entries [][kinds]*entry // by source; nil for lists of the other kind of set
	used    time.Time
	gone    bool // evicted

	building sync.Mutex
	catalog  *Catalog
	changes  int         // of its lists, counted
	built    int         // of these are in the catalog; -1 before there is one
	complete [kinds]bool // each list of the kind had been tried, and a principal's own was there, when the catalog was built
	renewing bool        // it is being rebuilt in the background
	size     int         // bytes of the catalog
}

func (b *Book) newListSet(id *edge.Identity, key who) *listSet {
	s := &listSet{id: id, key: key, entries: make([][kinds]*entry, len(b.Sources)), built: -1}
	for i, source := range b.Sources {
		if source.Personal() != (id != nil) {
			continue
		}
		for k := range kinds {
			s.entries[i][k] = &entry{set: s, source: i, thing: edge.Thing(k + 1)}
		}
	}
	return s
}

// setOf returns the list set of an identity, which is common unless some lists
// are personal; b.mu is held.
func (b *Book) setOf(id *edge.Identity) *listSet {
	if !b.personal || id == nil {
		return b.common
	}
	key := whoIs(id)
	if e := b.byPrincipal[key]; e != nil {
		return b.use(e, id)
	}
	now, own := time.Now(), 0
	for e, next := b.recent.Front(), (*list.Element)(nil); e != nil; e = next {
		next = e.Next()
		if s := e.Value.(*listSet); s.key.owner() == key.owner() {
			if own++; own >= perPrincipal && now.Sub(s.used) > inUse {
				b.evict(s)
			}
		}
	}
	s := b.newListSet(id, key)
	s.used = now
	b.byPrincipal[key] = b.recent.PushFront(s)
	b.owned[key.owner()]++
	for b.recent.Len() > b.Bounds.Principals {
		b.evict(b.spare(s))
	}
	return s
}

// spare returns the set that goes where there is no room, which is not keep: the least recently used
// of principals that have more than their number, else of all; nil for none. b.mu is held.
func (b *Book) spare(keep *listSet) (last *listSet) {
	for e := b.recent.Back(); e != nil; e = e.Prev() {
		s := e.Value.(*listSet)
		switch {
		case s == keep:
		case b.owned[s.key.owner()] > perPrincipal:
			return s
		case last == nil:
			last = s
		}
	}
	return last
}

// use returns the list set of a principal, whom id is; b.mu is held.
func (b *Book) use(e *list.Element, id *edge.Identity) *listSet {
	b.recent.MoveToFront(e)
	s := e.Value.(*listSet)
	if s.id.Token != id.Token { // who has signed in again is not told what became of the login before
		s.anew()
	}
	s.id, s.used = id, time.Now() // its credential is the newest
	return s
}

// anew lets lists that could not be had be asked for at once; mu of the Book is held.
func (s *listSet) anew() {
	for i := range s.entries {
		for _, e := range s.entries[i] {
			if e != nil && e.list == nil {
				e.retry = time.Time{}
			}
		}
	}
}

// evict drops a principal's list set; b.mu is held.
func (b *Book) evict(s *listSet) {
	b.recent.Remove(b.byPrincipal[s.key])
	delete(b.byPrincipal, s.key)
	if b.owned[s.key.owner()]--; b.owned[s.key.owner()] == 0 {
		delete(b.owned, s.key.owner())
	}
	s.gone = true
	b.bytes -= s.size
	s.size = 0
	for i := range s.entries {
		for _, e := range s.entries[i] {
			if e != nil {
				b.bytes -= e.size
				e.size = 0
			}
		}
	}
}

// touch marks the catalogs with a list of s as out of date; b.mu is held.
func (b *Book) touch(s *listSet) {
	s.changes++
	if s != b.common {
		return
	}
	for e := b.recent.Front(); e != nil; e = e.Next() {
		e.Value.(*listSet).changes++
	}
	b.wake()
}

// makeRoom evicts spare sets but keep until the rest is within bounds, and reports whether it is; b.mu
// is held.
func (b *Book) makeRoom(keep *listSet) bool {
	for b.bytes > b.Bounds.Bytes {
		s := b.spare(keep)
		if s == nil {
			return false
		}
		b.evict(s)
	}
	return true
}
