package optimizer

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Bounds of what is read of a tool.
const (
	maxDescription = 4 << 10 // bytes
	maxParameters  = 64
)

// How much a word counts by where it stands.
const (
	inName        = 3.0
	inTitle       = 2.0
	inDescription = 1.0
	inWorkload    = 1.0
	inParameter   = 0.5
)

// digest is that of a definition, by which it is known again in this process.
type digest [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func digestOf(definition []byte) digest {
	return digest{maphash.Bytes(seeds[0], definition), maphash.Bytes(seeds[1], definition)}
}

// textDigest is that of a text that a vector is made of.
type textDigest [sha256.Size]byte

// segment is the words of the tools of one backend. It never changes.
type segment struct {
	tools []indexed
	terms []term   // sorted
	posts []uint32 // where the postings of each term begin, and where those of the last end
	all   []posting
}

// indexed is what is known of a tool beside its postings.
type indexed struct {
	digest digest
	text   textDigest
	words  float32   // all of them together, as they count
	bytes  [2]uint32 // of the definition, as a list of an era shows it
}

// posting says how much a term counts in a tool.
type posting struct {
	tool   uint32 // of its segment
	weight float32
}

// segmentOf makes the segment of the tools of a backend. What before knows of them, nil for
// nothing, is not read again.
func segmentOf(backend string, tools []entry, digests []digest, before *segment, read *reader) *segment {
	s := &segment{tools: make([]indexed, len(tools))}
	known := before.byDigest()
	from := map[uint32]uint32{} // tools by what they were in before
	weights := map[term][]posting{}
	for i, t := range tools {
		if old, ok := known[digests[i]]; ok {
			s.tools[i], from[old] = before.tools[old], uint32(i)
			continue
		}
		s.tools[i] = read.tool(backend, t, digests[i], func(t term, weight float32) {
			weights[t] = append(weights[t], posting{uint32(i), weight})
		})
	}
	if before != nil {
		for i, t := range before.terms {
			for _, p := range before.all[before.posts[i]:before.posts[i+1]] {
				if now, ok := from[p.tool]; ok {
					weights[t] = append(weights[t], posting{now, p.weight})
				}
			}
		}
	}
	n := 0
	s.terms = make([]term, 0, len(weights))
	for t, all := range weights {
		s.terms, n = append(s.terms, t), n+len(all)
	}
	slices.Sort(s.terms)
	s.posts, s.all = make([]uint32, 0, len(s.terms)+1), make([]posting, 0, n)
	for _, t := range s.terms {
		all := weights[t]
		slices.SortFunc(all, func(a, b posting) int { return int(a.tool) - int(b.tool) })
		s.posts, s.all = append(s.posts, uint32(len(s.all))), append(s.all, all...)
	}
	s.posts = append(s.posts, uint32(len(s.all)))
	return s
}

func (s *segment) byDigest() map[digest]uint32 {
	if s == nil {
		return nil
	}
	all := make(map[digest]uint32, len(s.tools))
	for i := range s.tools {
		all[s.tools[i].digest] = uint32(i)
	}
	return all
}

// of returns the postings of a term, by tool.
func (s *segment) of(t term) []posting {
	i, ok := slices.BinarySearch(s.terms, t)
	if !ok {
		return nil
	}
	return s.all[s.posts[i]:s.posts[i+1]]
}

// size is about how many bytes the segment has.
func (s *segment) size() int {
	return 80*len(s.tools) + 12*len(s.terms) + 8*len(s.all)
}

// reader reads definitions. It is for one goroutine.
type reader struct {
	stems  stems
	counts map[term]float32 // of the tool that is read
}

func newReader() *reader { return &reader{stems: stems{}, counts: map[term]float32{}} }

// tool reads a tool, and calls each with its terms.
func (r *reader) tool(backend string, t entry, d digest, each func(t term, weight float32)) indexed {
	clear(r.counts)
	name, p := t.target.Name, partsOf(t.raw)
	r.count(name, true, inName)
	r.count(p.title, true, inTitle)
	r.count(p.description, false, inDescription)
	r.count(backend, true, inWorkload)
	for _, name := range p.parameters {
		r.count(name, true, inParameter)
	}
	is := indexed{digest: d, text: sha256.Sum256([]byte(p.sentence(name))), bytes: [2]uint32{size(t.raw), size(t.raw)}}
	if p.output != nil && mcp.String(mcp.Lookup(p.output, "type")) != "object" { // legacy clients are not shown it
		is.bytes[mcp.Legacy] = size(mcp.Change(t.raw, []string{"outputSchema"}))
	}
	for t, weight := range r.counts {
		is.words += weight
		each(t, weight)
	}
	return is
}

func size(text []byte) uint32 { return uint32(min(len(text), math.MaxUint32)) }

func (r *reader) count(text string, named bool, weight float32) {
	words(text, named, func(word string) { r.counts[r.stems.of(word)] += weight })
}

// parts are the parts of a definition that tools are found by.
type parts struct {
	title, description string
	parameters         []string
	output             []byte // JSON text of the output schema; nil for none
}

func partsOf(definition []byte) (p parts) {
	mcp.Each(definition, func(name, value []byte) bool {
		switch string(name) {
		case "title":
			p.title = mcp.String(value)
		case "description":
			p.description = edge.Cut(mcp.String(value), maxDescription)
		case "annotations":
			if p.title == "" {
				p.title = mcp.String(mcp.Lookup(value, "title"))
			}
		case "inputSchema":
			mcp.Each(mcp.Lookup(value, "properties"), func(name, _ []byte) bool {
				p.parameters = append(p.parameters, string(mcp.Unquote(name)))
				return len(p.parameters) < maxParameters
			})
		case "outputSchema":
			p.output = value
		}
		return true
	})
	return p
}

// sentence is the text of a tool that a vector is made of: its name in words, its title, and
// what it says of itself.
func (p *parts) sentence(name string) string {
	var b strings.Builder
	words(name, true, func(word string) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
	})
	if p.title != "" {
		b.WriteString(". " + edge.Cut(p.title, maxDescription))
	}
	if p.description != "" {
		b.WriteString(". " + p.description)
	}
	return b.String()
}

// segmentKey is by what a segment is known again: its backend and its definitions.
type segmentKey [sha256.Size]byte

func keyOf(backend string, digests []digest) segmentKey {
	h := sha256.New()
	h.Write([]byte(backend + "\x00"))
	var b [16]byte
	for _, d := range digests {
		binary.LittleEndian.PutUint64(b[:], d[0])
		binary.LittleEndian.PutUint64(b[8:], d[1])
		h.Write(b[:])
	}
	return segmentKey(h.Sum(nil))
}
