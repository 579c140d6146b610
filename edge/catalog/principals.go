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

// perPrincipal is how many sets one principal has, by tokens of different rights: it pushes out its
// own beyond, and nobody else's.
const perPrincipal = 16

// who is a principal with the rights of a token.
type who struct {
	issuer, subject string
	rights          [16]byte
}

func whoIs(id *edge.Identity) who { return who{id.Issuer, id.Subject, id.Rights} }

// listSet holds lists: those that are the same for everybody, or those of one
// principal.
type listSet struct {
	id      *edge.Identity // nil for everybody
	key     who
	entries [][kinds]*entry // by source; nil for lists of the other kind of set
	gone    bool            // evicted

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
	own, oldest := 0, (*listSet)(nil)
	for e := b.recent.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*listSet); s.key.issuer == key.issuer && s.key.subject == key.subject {
			own, oldest = own+1, s
		}
	}
	if own >= perPrincipal {
		b.evict(oldest)
	}
	s := b.newListSet(id, key)
	b.byPrincipal[key] = b.recent.PushFront(s)
	for b.recent.Len() > b.Bounds.Principals {
		b.evict(b.recent.Back().Value.(*listSet))
	}
	return s
}

// use returns the list set of a principal, whom id is; b.mu is held.
func (b *Book) use(e *list.Element, id *edge.Identity) *listSet {
	b.recent.MoveToFront(e)
	s := e.Value.(*listSet)
	if s.id.Token != id.Token { // who has signed in again is not told what became of the login before
		s.anew()
	}
	s.id = id // its credential is the newest
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

// makeRoom evicts the least recently used principals but keep until the rest is
// within bounds, and reports whether it is; b.mu is held.
func (b *Book) makeRoom(keep *listSet) bool {
	for b.bytes > b.Bounds.Bytes {
		e := b.recent.Back()
		if e != nil && e.Value.(*listSet) == keep {
			e = e.Prev()
		}
		if e == nil {
			return false
		}
		b.evict(e.Value.(*listSet))
	}
	return true
}
