package optimizer

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sync"
)

// Constants of the keyword score BM25, and what makes it a part of the whole score.
const (
	bm25K1   = 1.2
	bm25B    = 0.75
	halfLife = 6 // the keyword score that counts half

	sameText = 1e-6 // below it, a distance is an error of computing
)

// index is the words of all tools of a catalog: a segment for each backend. Tools have
// numbers, in the order of the segments. It never changes.
type index struct {
	segments []*segment
	first    []uint32 // number of the first tool of each segment
	tools    int
}

func newIndex(segments []*segment) *index {
	x := &index{segments: segments}
	for _, s := range segments {
		x.first = append(x.first, uint32(x.tools))
		x.tools += len(s.tools)
	}
	return x
}

// at returns the segment of a tool, and its number in that. No segment is empty.
func (x *index) at(n uint32) (*segment, uint32) {
	s, ok := slices.BinarySearch(x.first, n)
	if !ok {
		s--
	}
	return x.segments[s], n - x.first[s]
}

// each calls f for all tools, in order.
func (x *index) each(f func(n uint32, t *indexed)) {
	for i, s := range x.segments {
		for j := range s.tools {
			f(x.first[i]+uint32(j), &s.tools[j])
		}
	}
}

func (x *index) size() (n int) {
	for _, s := range x.segments {
		n += s.size()
	}
	return n
}

// set is a set of tools, by number.
type set []uint64

func newSet(tools int) set      { return make(set, (tools+63)/64) }
func (s set) add(n uint32)      { s[n/64] |= 1 << (n % 64) }
func (s set) has(n uint32) bool { return s[n/64]&(1<<(n%64)) != 0 }
func (s set) each(f func(n uint32)) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			f(uint32(i*64) + uint32(bits.TrailingZeros64(word)))
		}
	}
}

// seen is the tools of an index that one view allows. What is counted for a search is counted
// of them alone, so that nobody can tell what else there is.
type seen struct {
	allowed set
	tools   int
	words   float64 // that a tool has in the mean, as they count
}

// search says how to search.
type search struct {
	ratio float64 // how much the distance of vectors counts
	most  int     // results
	far   float64 // distance beyond which a tool is not found by its vector
}

// hit is a tool that was found.
type hit struct {
	tool            uint32
	bm25            float64
	keyword, vector float64 // the parts of the score
}

func (h *hit) score() float64 { return h.keyword + h.vector }

// room is what a search works in.
type room struct {
	bm25  []float64 // by tool
	met   []uint32  // the tools in it
	found [][]posting
	where []uint32
}

var rooms = sync.Pool{New: func() any { return new(room) }}

// find returns the best tools for a question among those that are seen, the best first.
// vector is that of the question, nil for none, and of those of tools. name returns the name
// of a tool: it decides between equals.
func (x *index) find(q question, how search, in *seen, vector []float32, of func(n uint32) []float32, name func(n uint32) string) []hit {
	r := rooms.Get().(*room)
	defer r.leave()
	r.score(x, q, in)
	best := &best{most: how.most, name: name}
	take := func(n uint32, distance float64) {
		h := hit{tool: n, bm25: r.bm25[n]}
		h.keyword = (1 - how.ratio) * h.bm25 / (h.bm25 + halfLife)
		near := distance <= how.far
		if near {
			h.vector = how.ratio * max(0, 1-distance)
		}
		if h.bm25 > 0 && how.ratio < 1 || near && how.ratio > 0 {
			best.add(h)
		}
	}
	if vector == nil {
		how.ratio = 0
		for _, n := range r.met {
			take(n, math.Inf(1))
		}
	} else {
		in.allowed.each(func(n uint32) {
			distance := math.Inf(1)
			if v := of(n); v != nil {
				if distance = 1 - dot(vector, v); distance < sameText {
					distance = 0
				}
			}
			take(n, distance)
		})
	}
	return best.sorted()
}

// score fills in the keyword scores of a question. Postings are looked through twice: how
// many of the tools that are seen have a term is known only after the first time.
func (r *room) score(x *index, q question, in *seen) {
	if len(r.bm25) < x.tools {
		r.bm25 = make([]float64, x.tools)
	}
	for _, t := range q.terms {
		r.found, r.where = r.found[:0], r.where[:0]
		n := 0
		for i, s := range x.segments {
			all := s.of(t)
			if all == nil {
				continue
			}
			r.found, r.where = append(r.found, all), append(r.where, uint32(i))
			for _, p := range all {
				if in.allowed.has(x.first[i] + p.tool()) {
					n++
				}
			}
		}
		if n == 0 {
			continue
		}
		idf := math.Log(1 + (float64(in.tools)-float64(n)+0.5)/(float64(n)+0.5))
		for j, all := range r.found {
			s, first := x.segments[r.where[j]], x.first[r.where[j]]
			for _, p := range all {
				at := first + p.tool()
				if !in.allowed.has(at) {
					continue
				}
				if r.bm25[at] == 0 {
					r.met = append(r.met, at)
				}
				w := p.weight()
				r.bm25[at] += idf * w * (bm25K1 + 1) / (w + bm25K1*(1-bm25B+bm25B*float64(s.tools[p.tool()].words)/in.words))
			}
		}
	}
}

func (r *room) leave() {
	for _, n := range r.met {
		r.bm25[n] = 0
	}
	r.met = r.met[:0]
	clear(r.found[:cap(r.found)]) // it must not keep segments alive
	r.found = r.found[:0]
	rooms.Put(r)
}

// dot is the inner product of two vectors of one length.
func dot(a, b []float32) float64 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += a[i] * b[i]
		s1 += a[i+1] * b[i+1]
		s2 += a[i+2] * b[i+2]
		s3 += a[i+3] * b[i+3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return float64(s0 + s1 + s2 + s3)
}

// best keeps the best hits, the worst of them first in a heap.
type best struct {
	most int
	name func(n uint32) string
	all  []hit
}

// order is negative where a comes before b.
func (b *best) order(x, y *hit) int {
	return cmp.Or(cmp.Compare(y.score(), x.score()), cmp.Compare(y.bm25, x.bm25), cmp.Compare(b.name(x.tool), b.name(y.tool)))
}

func (b *best) add(h hit) {
	if len(b.all) < b.most {
		b.all = append(b.all, h)
		for i := len(b.all) - 1; i > 0; {
			up := (i - 1) / 2
			if b.order(&b.all[up], &b.all[i]) >= 0 {
				return
			}
			b.all[up], b.all[i] = b.all[i], b.all[up]
			i = up
		}
		return
	}
	if b.order(&h, &b.all[0]) >= 0 {
		return
	}
	b.all[0] = h
	for i := 0; ; {
		down := 2*i + 1
		if down >= len(b.all) {
			return
		}
		if right := down + 1; right < len(b.all) && b.order(&b.all[right], &b.all[down]) > 0 {
			down = right
		}
		if b.order(&b.all[down], &b.all[i]) <= 0 {
			return
		}
		b.all[down], b.all[i] = b.all[i], b.all[down]
		i = down
	}
}

func (b *best) sorted() []hit {
	slices.SortFunc(b.all, func(x, y hit) int { return b.order(&x, &y) })
	return b.all
}

// hits returns the words of a question that a tool has.
func (x *index) hits(q question, n uint32) []string {
	out := []string{}
	s, local := x.at(n)
	for i, t := range q.terms {
		if _, ok := slices.BinarySearchFunc(s.of(t), local, func(p posting, n uint32) int { return cmp.Compare(p.tool(), n) }); ok {
			out = append(out, q.words[i])
		}
	}
	return out
}
