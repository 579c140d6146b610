package optimizer

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Catalog is the tools of a server at one time. It never changes, and two that are one
// pointer are equal.
type Catalog interface {
	// Items yields the tools, in the order of the list, each with its definition.
	Items(edge.Thing) iter.Seq2[*edge.Target, []byte]

	// Tool returns a tool of the list by its advertised name, with its definition; nil for
	// none.
	Tool(name string) (*edge.Target, []byte)

	// Shown returns a definition as a list shows it to a client of an era that sees these
	// tools.
	Shown(era mcp.Era, target *edge.Target, definition []byte, seen iter.Seq2[*edge.Target, []byte]) []byte
}

// entry is a tool of a catalog.
type entry struct {
	target *edge.Target
	raw    []byte // its definition
}

// maxViews is how many views of one edition are kept.
const maxViews = 1024

// edition is a catalog with the index of its tools. But for vectors, which come later, and
// for views, which are made when they are asked for, it does not change.
type edition struct {
	of     Catalog
	index  *index
	tools  []entry  // by number
	listed []uint32 // the numbers, in the order of the list

	vectors atomic.Pointer[vectors]

	mu    sync.Mutex
	views *recent[string, *view]
}

// vectors are those of the tools of an edition, as far as they are there.
type vectors struct {
	model *model
	of    []atomic.Pointer[vector] // by number
}

func (v *vectors) set(n uint32, of *vector) { v.of[n].Store(of) }

// any reports whether one of these tools has a vector.
func (v *vectors) any(of set) bool {
	for n := range v.of {
		if of.has(uint32(n)) && v.of[n].Load() != nil {
			return true
		}
	}
	return false
}

// count is how many tools have a vector; v may be nil.
func (v *vectors) count() (n int) {
	if v == nil {
		return 0
	}
	for i := range v.of {
		if v.of[i].Load() != nil {
			n++
		}
	}
	return n
}

// newEdition makes the edition of a catalog. What before has of it is not read again.
func newEdition(c Catalog, l *Library, before *edition) *edition {
	e := &edition{of: c, views: newRecent[string, *view](maxViews, 0)}
	by := map[string][]entry{}
	var names []string // of the backends
	var order []entry
	for target, raw := range c.Items(edge.Tool) {
		t := entry{target, raw}
		if by[target.Backend] == nil {
			names = append(names, target.Backend)
		}
		by[target.Backend], order = append(by[target.Backend], t), append(order, t)
	}
	slices.Sort(names)
	read := newReader()
	var segments []*segment
	numbers := make(map[*edge.Target]uint32, len(order))
	for _, backend := range names {
		segments = append(segments, l.segment(backend, by[backend], before.segmentOf(backend), read))
		for _, t := range by[backend] {
			numbers[t.target] = uint32(len(e.tools))
			e.tools = append(e.tools, t)
		}
	}
	for _, t := range order {
		e.listed = append(e.listed, numbers[t.target])
	}
	e.index = newIndex(segments)
	return e
}

// segmentOf returns the segment of a backend; nil for none.
func (e *edition) segmentOf(backend string) *segment {
	if e == nil {
		return nil
	}
	for i, first := range e.index.first {
		if e.tools[first].target.Backend == backend {
			return e.index.segments[i]
		}
	}
	return nil
}

func (e *edition) name(n uint32) string { return e.tools[n].target.Name }

// vectorsOf returns the vectors of a model. Those of another one are dropped.
func (e *edition) vectorsOf(m *model) *vectors {
	for {
		now := e.vectors.Load()
		if now != nil && now.model == m {
			return now
		}
		if next := (&vectors{model: m, of: make([]atomic.Pointer[vector], len(e.tools))}); e.vectors.CompareAndSwap(now, next) {
			return next
		}
	}
}

// view is what one view sees of an edition.
type view struct {
	seen
	bytes [2]int               // of its list, by era
	own   map[uint32][2][]byte // the edge's own tools, as the list describes them
}

// seenBy returns what a view sees; nil sees all.
func (e *edition) seenBy(v edge.View) *view {
	key := ""
	if v != nil {
		key = "\x00" + v.Key()
	}
	e.mu.Lock()
	known, ok := e.views.get(key)
	e.mu.Unlock()
	if ok {
		return known
	}
	s := e.look(v)
	e.mu.Lock()
	e.views.put(key, s, 0)
	e.mu.Unlock()
	return s
}

func (e *edition) look(v edge.View) *view {
	s := &view{seen: seen{allowed: newSet(len(e.tools))}, bytes: [2]int{2, 2}, own: map[uint32][2][]byte{}}
	for _, n := range e.listed {
		if v == nil || v.Allows(e.tools[n].target) {
			s.allowed.add(n)
		}
	}
	shown := func(yield func(*edge.Target, []byte) bool) {
		for _, n := range e.listed {
			if s.allowed.has(n) && !yield(e.tools[n].target, e.tools[n].raw) {
				return
			}
		}
	}
	total := 0.0
	e.index.each(func(n uint32, t *indexed) {
		if !s.allowed.has(n) {
			return
		}
		if s.tools++; s.tools > 1 {
			s.bytes[mcp.Legacy]++
			s.bytes[mcp.Modern]++
		}
		total += float64(t.words)
		if e.tools[n].target.Backend != "" {
			s.bytes[mcp.Legacy] += int(t.bytes[mcp.Legacy])
			s.bytes[mcp.Modern] += int(t.bytes[mcp.Modern])
			return
		}
		var own [2][]byte
		for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			own[era] = e.of.Shown(era, e.tools[n].target, e.tools[n].raw, shown)
			s.bytes[era] += len(own[era])
		}
		s.own[n] = own
	})
	s.words = total / float64(max(1, s.tools))
	return s
}

// definition returns a tool as the list shows it to a client that has a catalog; nil where
// that does not have it any longer, or the client may not see it.
func (e *edition) definition(n uint32, in *view, c Catalog, x *edge.Exchange) []byte {
	t := e.tools[n]
	if e.of != c { // it has changed since
		was := t.target.Backend
		if t.target, t.raw = c.Tool(t.target.Name); t.target == nil || t.target.Backend != was || x.View != nil && !x.View.Allows(t.target) {
			return nil
		}
	}
	if own, ok := in.own[n]; ok {
		return own[x.Era]
	}
	return c.Shown(x.Era, t.target, t.raw, nil)
}

// size is about how many bytes the edition keeps beyond its catalog.
func (e *edition) size() int { return e.index.size() + 52*len(e.tools) }
