package mcp

import (
	"errors"
	"maps"
	"slices"
	"strconv"
)

// Draft is a JSON value that is being edited at many places. It is taken apart
// in one walk and written in one more, however many edits there are in between,
// and what is not edited keeps its bytes.
type Draft struct {
	Behind bool // new members come behind the others, not before them

	root  *piece
	trail []*piece // that the last path led through
}

// NewDraft returns a draft of text, which is known to be valid.
func NewDraft(text []byte) *Draft { return &Draft{root: &piece{raw: text}} }

// Why an edit cannot be made.
var (
	ErrNoPlace  = errors.New("a JSON pointer to a place that is not there")
	errWhole    = errors.New("a JSON pointer to the whole value")
	errTooSteep = errors.New("a JSON pointer that is too long")
)

// piece is a value of a draft.
type piece struct {
	raw    []byte   // its text, as long as it is not edited
	out    *Outline // that its text is a node of; nil for none
	node   int
	open   bool // it has been taken apart
	edited bool // something in it is another
	object bool
	behind bool           // new members come behind the others; else before them, the last first
	added  []child        // new members
	kids   map[int]*child // of an object, by node, where somebody went
	runs   []run          // of an array
}

// child is a member that somebody went to, or a new one.
type child struct {
	name  []byte // as written, without the quotes
	piece *piece
	gone  bool // it was taken out
}

// run is elements of an array that follow each other as they did in its text, or
// one that somebody went to. So an edit costs as much as there are edits, not as
// there are elements.
type run struct {
	from, count int    // elements of the text
	piece       *piece // nil for those; else count is 1
}

// unfold opens a piece, and reports whether it is an array or an object.
func (p *piece) unfold() bool {
	if p.open {
		return true
	}
	if first := skipSpace(p.raw, 0); first >= len(p.raw) || p.raw[first] != '{' && p.raw[first] != '[' {
		return false
	}
	if p.out == nil {
		p.out, p.node = new(Outline), 0
		if p.out.Read(p.raw, Bounds{}) != nil {
			return false
		}
	}
	if p.open, p.object = true, p.out.Value(p.node)[0] == '{'; p.object {
		p.kids = make(map[int]*child)
	} else if n := p.out.length(p.node); n > 0 {
		p.runs = []run{{count: n}}
	}
	return true
}

// part is a piece of the text of a piece.
func (p *piece) part(node int) *piece {
	return &piece{raw: p.out.Value(node), out: p.out, node: node}
}

// member finds a member of an open object; nil for none.
func (p *piece) member(name string) *child {
	for i := range p.added {
		if c := &p.added[i]; !c.gone && reads(c.name, name) {
			return c
		}
	}
	n := p.out.member(p.node, name)
	if n < 0 {
		return nil
	}
	c := p.kids[n]
	if c == nil {
		c = &child{name: p.out.Name(n), piece: p.part(n)}
		p.kids[n] = c
	}
	if c.gone {
		return nil
	}
	return c
}

// place finds the run that an element of an open array is in, and which of it the
// element is; len(p.runs) for one behind the last.
func (p *piece) place(index int) (at, within int) {
	for ; at < len(p.runs) && index >= p.runs[at].count; at++ {
		index -= p.runs[at].count
	}
	return at, index
}

// alone makes the element a run of its own, and returns where it is in p.runs; -1
// for no such element.
func (p *piece) alone(index int) int {
	at, within := p.place(index)
	if at == len(p.runs) {
		return -1
	}
	r := p.runs[at]
	if r.count == 1 {
		return at
	}
	parts := []run{{from: r.from, count: within}, {from: r.from + within, count: 1}, {from: r.from + within + 1, count: r.count - within - 1}}
	if within == r.count-1 {
		parts = parts[:2]
	}
	if within == 0 {
		parts = parts[1:]
	}
	p.runs = slices.Replace(p.runs, at, at+1, parts...)
	if within > 0 {
		at++
	}
	return at
}

// insert puts an element before the one that is at an index, or behind the last;
// it reports false for an index beyond that.
func (p *piece) insert(index int, value *piece) bool {
	at, within := p.place(index)
	if at == len(p.runs) && within > 0 {
		return false
	}
	parts := []run{{count: 1, piece: value}}
	if within > 0 {
		r := p.runs[at]
		p.runs[at].count = within
		at++
		parts = append(parts, run{from: r.from + within, count: r.count - within})
	}
	p.runs = slices.Insert(p.runs, at, parts...)
	return true
}

// ArrayIndex reads the index of an element (RFC 6901 §4).
func ArrayIndex(token string) (int, bool) {
	if token == "" || len(token) > 1 && token[0] == '0' || len(token) > 9 {
		return 0, false
	}
	i, err := strconv.ParseUint(token, 10, 31)
	return int(i), err == nil
}

// child finds where the piece is that a token leads to; nil for nothing.
func (p *piece) child(token string) **piece {
	if !p.unfold() {
		return nil
	}
	if p.object {
		if c := p.member(token); c != nil {
			return &c.piece
		}
		return nil
	}
	i, ok := ArrayIndex(token)
	if !ok {
		return nil
	}
	at := p.alone(i)
	if at < 0 {
		return nil
	}
	r := &p.runs[at]
	if r.piece == nil {
		r.piece = p.part(p.out.element(p.node, r.from))
	}
	return &r.piece
}

// walk goes down a path; nil when it leads nowhere.
func (d *Draft) walk(path []string) *piece {
	p := d.root
	d.trail = append(d.trail[:0], p)
	for _, token := range path {
		c := p.child(token)
		if c == nil {
			return nil
		}
		p = *c
		d.trail = append(d.trail, p)
	}
	return p
}

// parent goes down to what the last token of a path is in, and opens it.
func (d *Draft) parent(path []string) (in *piece, last string, err error) {
	switch {
	case len(path) == 0:
		return nil, "", errWhole
	case len(path) > MaxDepth:
		return nil, "", errTooSteep
	}
	if in = d.walk(path[:len(path)-1]); in == nil || !in.unfold() {
		return nil, "", ErrNoPlace
	}
	return in, path[len(path)-1], nil
}

// edited notes that something at the end of the last path is another.
func (d *Draft) edited() {
	for _, p := range d.trail {
		p.edited = true
	}
}

// Has reports whether there is something at the end of a path.
func (d *Draft) Has(path []string) bool { return d.walk(path) != nil }

// Get returns the text of what is at the end of a path; nil for nothing.
func (d *Draft) Get(path []string) []byte {
	p := d.walk(path)
	if p == nil {
		return nil
	}
	return p.text()
}

// Put sets what a path leads to: what is there is replaced, a member that is not
// there is added, "-" stands for the place behind the last element. What it is
// to stand in must be there.
func (d *Draft) Put(path []string, raw []byte) error {
	return d.put(path, &piece{raw: raw})
}

func (d *Draft) put(path []string, value *piece) error {
	if len(path) == 0 {
		d.root = value
		return nil
	}
	in, last, err := d.parent(path)
	if err != nil {
		return err
	}
	switch c := in.child(last); {
	case c != nil:
		*c = value
	case in.object:
		quoted := Quote(last)
		in.added, in.behind = append(in.added, child{name: quoted[1 : len(quoted)-1], piece: value}), d.Behind
	case last == "-":
		in.runs = append(in.runs, run{count: 1, piece: value})
	default:
		return ErrNoPlace
	}
	d.edited()
	return nil
}

// Insert is Put, except that in an array what is at the place and behind it moves
// on by one (RFC 6902 §4.1, add).
func (d *Draft) Insert(path []string, raw []byte) error { return d.insert(path, &piece{raw: raw}) }

func (d *Draft) insert(path []string, value *piece) error {
	if len(path) == 0 {
		return d.put(path, value)
	}
	in, last, err := d.parent(path)
	if err != nil || in.object || last == "-" {
		return d.put(path, value)
	}
	i, ok := ArrayIndex(last)
	if !ok || !in.insert(i, value) {
		return ErrNoPlace
	}
	d.edited()
	return nil
}

// Cut takes out what a path leads to, and reports whether there was something.
// The whole value cannot be cut.
func (d *Draft) Cut(path []string) (bool, error) {
	if len(path) == 0 {
		return false, errWhole
	}
	in, last, err := d.parent(path)
	if err != nil {
		return false, nil
	}
	if in.object {
		c := in.member(last)
		if c == nil {
			return false, nil
		}
		c.gone, c.piece = true, nil
		d.edited()
		return true, nil
	}
	at := -1
	if i, ok := ArrayIndex(last); ok {
		at = in.alone(i)
	}
	if at < 0 {
		return false, nil
	}
	in.runs = slices.Delete(in.runs, at, at+1)
	d.edited()
	return true, nil
}

// CutFolded takes out of the object that a path leads to the members that are
// none of those named, and that a reader which ignores case takes for one. Where
// there is no object, nothing happens.
func (d *Draft) CutFolded(path []string, names map[string]struct{}) {
	in := d.walk(path)
	if in == nil || !in.unfold() || !in.object {
		return
	}
	like := make(map[string]struct{}, len(names))
	for name := range names {
		like[Fold(name)] = struct{}{}
	}
	var room [64]byte
	folds := func(written []byte) bool {
		said := Unquote(written)
		if _, is := names[string(said)]; is {
			return false
		}
		_, is := like[string(AppendFold(room[:0], said))]
		return is
	}
	for i := in.out.First(in.node); i < in.out.End(in.node); i = in.out.After(i) {
		if folds(in.out.Name(i)) {
			in.kids[i] = &child{name: in.out.Name(i), gone: true}
			d.edited()
		}
	}
	for i := range in.added {
		if c := &in.added[i]; folds(c.name) {
			c.gone, c.piece = true, nil
			d.edited()
		}
	}
}

// Move takes out what from leads to and inserts it where to leads, which is not
// in itself (RFC 6902 §4.4).
func (d *Draft) Move(from, to []string) error {
	value := d.walk(from)
	if value == nil || len(to) > len(from) && slices.Equal(from, to[:len(from)]) {
		return ErrNoPlace
	}
	if _, err := d.Cut(from); err != nil {
		return err
	}
	return d.insert(to, value)
}

// Text is the value as it is by now.
func (d *Draft) Text() []byte { return d.root.text() }

func (p *piece) text() []byte {
	if !p.edited {
		return p.raw
	}
	return p.append(make([]byte, 0, len(p.raw)+64))
}

func (p *piece) append(dst []byte) []byte {
	if !p.edited {
		return append(dst, p.raw...)
	}
	if !p.object {
		return p.appendArray(dst)
	}
	dst = append(dst, '{')
	first := true
	separate := func() {
		if !first {
			dst = append(dst, ',')
		}
		first = false
	}
	put := func(c *child) {
		if c.gone {
			return
		}
		separate()
		dst = append(append(append(dst, '"'), c.name...), `":`...)
		dst = c.piece.append(dst)
	}
	if !p.behind {
		for i := len(p.added) - 1; i >= 0; i-- {
			put(&p.added[i])
		}
	}
	known := slices.Sorted(maps.Keys(p.kids))
	for i := p.out.First(p.node); i < p.out.End(p.node); i = p.out.After(i) {
		if len(known) > 0 && known[0] == i {
			put(p.kids[i])
			known = known[1:]
			continue
		}
		separate()
		dst = append(dst, p.out.Member(i)...)
	}
	if p.behind {
		for i := range p.added {
			put(&p.added[i])
		}
	}
	return append(dst, '}')
}

func (p *piece) appendArray(dst []byte) []byte {
	dst = append(dst, '[')
	first := true
	for _, r := range p.runs {
		n := -1
		if r.piece == nil {
			n = p.out.element(p.node, r.from)
		}
		for range r.count {
			if !first {
				dst = append(dst, ',')
			}
			if first = false; r.piece != nil {
				dst = r.piece.append(dst)
				continue
			}
			dst = append(dst, p.out.Value(n)...)
			n = p.out.After(n)
		}
	}
	return append(dst, ']')
}
