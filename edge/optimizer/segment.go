package optimizer

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Bounds of what is read of a tool.
const (
	maxDescription = 4 << 10 // bytes
	maxParameters  = 64
	maxSays        = 96      // bytes of what a parameter says of itself, and of a value
	maxValues      = 16      // values that a parameter allows
	maxOfParams    = 1 << 10 // bytes of all that parameters say and allow
	maxMeaning     = 256     // bytes of the description that a vector is made of
)

// How much a word counts by where it stands.
const (
	inName        = 3.0
	inTitle       = 2.0
	inDescription = 1.0
	inWorkload    = 1.0
	inParameter   = 0.5  // in its name
	inSaid        = 0.25 // in what a parameter says of itself, in a value that it allows
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
	words  float32   // all of them together, as they count, but for what parameters say
	bytes  [2]uint32 // of the definition, as a list of an era shows it
}

// posting says how much a term counts in a tool: the number of the tool in its segment, and
// below it the weight in quarters, of which every place where a word stands has a whole number.
type posting uint32

const (
	weightBits = 10
	mostWeight = 1<<weightBits - 1      // in quarters; what counts more counts so much
	mostTools  = 1 << (32 - weightBits) // of a segment, that words find
)

func post(tool uint32, weight float32) posting {
	return posting(tool<<weightBits | uint32(min(4*weight, mostWeight)))
}

func (p posting) tool() uint32    { return uint32(p) >> weightBits }
func (p posting) weight() float64 { return float64(p&mostWeight) / 4 }

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
			if i < mostTools {
				weights[t] = append(weights[t], post(uint32(i), weight))
			}
		})
	}
	if before != nil {
		for i, t := range before.terms {
			for _, p := range before.all[before.posts[i]:before.posts[i+1]] {
				if now, ok := from[p.tool()]; ok && now < mostTools {
					weights[t] = append(weights[t], post(now, float32(p.weight())))
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
		slices.Sort(all)
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
	return 80*len(s.tools) + 12*len(s.terms) + 4*len(s.all)
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
	is := indexed{digest: d, text: sha256.Sum256([]byte(p.sentence(backend, name))), bytes: [2]uint32{size(t.raw), size(t.raw)}}
	if p.output != nil && mcp.String(mcp.Lookup(p.output, "type")) != "object" { // legacy clients are not shown it
		is.bytes[mcp.Legacy] = size(mcp.Change(t.raw, []string{"outputSchema"}))
	}
	for _, weight := range r.counts {
		is.words += weight
	}
	for _, text := range p.says { // which makes no tool longer: one with many parameters does not do less
		r.count(text, true, inSaid)
	}
	for t, weight := range r.counts {
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
	says               []string // what parameters say of themselves, and values that they allow
	output             []byte   // JSON text of the output schema; nil for none
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
			left := maxOfParams
			mcp.Each(mcp.Lookup(value, "properties"), func(name, schema []byte) bool {
				p.parameters = append(p.parameters, string(mcp.Unquote(name)))
				p.read(schema, &left)
				return len(p.parameters) < maxParameters
			})
		case "outputSchema":
			p.output = value
		}
		return true
	})
	return p
}

// read reads what the schema of a parameter says in words. left is how many bytes of that
// there is room for.
func (p *parts) read(schema []byte, left *int) {
	say := func(value []byte) {
		if text := opening(mcp.String(value), min(maxSays, *left)); text != "" {
			p.says = append(p.says, text)
			*left -= len(text)
		}
	}
	description, enum := mcp.LookupTwo(schema, "description", "enum")
	say(description)
	values := mcp.Elements(enum)
	for _, value := range values[:min(len(values), maxValues)] {
		say(value)
	}
}

// opening returns the beginning of a text, up to most bytes, and of its last word all or
// nothing.
func opening(text string, most int) string {
	if len(text) <= most {
		return text
	}
	text = strings.ToValidUTF8(text[:most], "")
	if end := strings.LastIndexFunc(text, unicode.IsSpace); end > 0 {
		return text[:end]
	}
	return text
}

// sentence is the text of a tool that a vector is made of: its name in words, without those
// of its workload, its title, and the beginning of what it says of itself. The more a text
// says, the less its vector is like that of a question.
func (p *parts) sentence(backend, name string) string {
	var all, lead []string
	words(name, true, func(word string) { all = append(all, word) })
	words(backend, true, func(word string) { lead = append(lead, word) })
	if n := len(lead); n < len(all) && slices.Equal(all[:n], lead) {
		all = all[n:]
	}
	text := strings.Join(all, " ")
	if p.title != "" {
		text += ". " + opening(p.title, maxMeaning)
	}
	if p.description != "" {
		text += ". " + opening(p.description, maxMeaning)
	}
	return text
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
