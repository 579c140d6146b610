package mcp

import (
	"bytes"
	"errors"
	"slices"
	"unicode/utf8"
)

// Outline is a valid JSON value taken apart in one walk, so that whoever goes
// down into it never reads a byte twice: Nodes has every value in it in the
// order in which they stand, the value itself first.
type Outline struct {
	Text  []byte
	Nodes []Node
	open  []uint32 // containers that the walk is in

	known map[int]*contents // of wide containers that were looked into
}

// Node is one value of an Outline.
type Node struct {
	Start, End uint32 // of its text
	Next       uint32 // the node behind it and all that is in it
	name       uint32 // where its name begins, behind the quote; 0 in arrays
}

// Bounds is how far an outline goes.
type Bounds struct {
	Values int          // at most; 0 for any number
	Depth  int          // of arrays and objects in each other; 0 for MaxDepth
	Stop   func() error // asked now and then whether to go on; nil for always
}

// Why an outline was not drawn.
var (
	ErrManyValues = errors.New("too many values")
	ErrDeep       = errors.New("nested too deep")
	errNotJSON    = errors.New("no JSON")
)

// between is how many values are read between two questions whether to go on.
const between = 4096

// Read draws the outline of a text that is known to be valid. The error is
// ErrManyValues, ErrDeep or that of Stop.
func (o *Outline) Read(text []byte, b Bounds) error {
	if b.Depth == 0 {
		b.Depth = MaxDepth
	}
	clear(o.known)
	if o.Text, o.Nodes, o.open = text, o.Nodes[:0], o.open[:0]; len(text) > 64<<10 {
		o.Nodes = slices.Grow(o.Nodes, atMost(text, b.Values))
	}
	name := uint32(0)
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case ' ', '\t', '\n', '\r', ',', ':':
			i++
			continue
		case '}', ']':
			last := len(o.open) - 1
			if last < 0 {
				return errNotJSON
			}
			n := &o.Nodes[o.open[last]]
			i++
			n.End, n.Next = uint32(i), uint32(len(o.Nodes))
			o.open = o.open[:last]
			continue
		case '"':
			if name == 0 && len(o.open) > 0 && text[o.Nodes[o.open[len(o.open)-1]].Start] == '{' {
				name = uint32(i + 1)
				i = pastString(text, i)
				continue
			}
		}
		if b.Values > 0 && len(o.Nodes) == b.Values {
			return ErrManyValues
		}
		if b.Stop != nil && len(o.Nodes)%between == between-1 {
			if err := b.Stop(); err != nil {
				return err
			}
		}
		n := Node{Start: uint32(i), name: name}
		name = 0
		switch c := text[i]; c {
		case '{', '[':
			if len(o.open) == b.Depth {
				return ErrDeep
			}
			o.open = append(o.open, uint32(len(o.Nodes)))
			i++
		case '"':
			i = pastString(text, i)
		default:
			for i++; i < len(text) && text[i] > ' ' && text[i] != ',' && text[i] != '}' && text[i] != ']'; i++ {
			}
		}
		n.End, n.Next = uint32(i), uint32(len(o.Nodes)+1)
		o.Nodes = append(o.Nodes, n)
	}
	if len(o.open) > 0 || len(o.Nodes) == 0 {
		return errNotJSON
	}
	return nil
}

// atMost is how many values a text has at most, or most when that is less and not 0.
func atMost(text []byte, most int) int {
	n := 1
	for _, c := range []byte(",[{") {
		n += bytes.Count(text, []byte{c})
	}
	if most > 0 {
		return min(n, most)
	}
	return n
}

// pastString returns the index behind the string whose opening quote is at i.
func pastString(text []byte, i int) int {
	for i++; ; i++ {
		if i = printing(text, i); i >= len(text) {
			return len(text)
		}
		switch text[i] {
		case '"':
			return i + 1
		case '\\':
			i++
			continue
		}
		for i+1 < len(text) && text[i+1] >= utf8.RuneSelf {
			i++
		}
	}
}

// Value is the text of a node.
func (o *Outline) Value(n int) []byte {
	v := o.Nodes[n]
	return o.Text[v.Start:v.End:v.End]
}

// Name is the name of a node as it is written, without the quotes; nil for an
// element of an array.
func (o *Outline) Name(n int) []byte {
	from := o.Nodes[n].name
	if from == 0 {
		return nil
	}
	to := pastString(o.Text, int(from)-1) - 1
	return o.Text[from:to:to]
}

// Member is the text of a member, with its name.
func (o *Outline) Member(n int) []byte {
	v := o.Nodes[n]
	return o.Text[v.name-1 : v.End : v.End]
}

// First returns the first node in a container, and End where to stop: the nodes
// in n are First(n), Nodes[First(n)].Next and so on, up to End(n).
func (o *Outline) First(n int) int { return n + 1 }

// End is the node behind all that is in n.
func (o *Outline) End(n int) int { return int(o.Nodes[n].Next) }

// After is the node behind n and all that is in it.
func (o *Outline) After(n int) int { return int(o.Nodes[n].Next) }

// At is the node that a path of names and indexes leads to, as in Find; -1 when
// there is none. However many paths there are, no container is walked through
// more than a few times. It keeps what it learns: one goroutine asks at a time.
func (o *Outline) At(path []string, index func(token string) (int, bool)) int {
	n := 0
	for _, token := range path {
		switch o.Text[o.Nodes[n].Start] {
		case '{':
			n = o.member(n, token)
		case '[':
			i, ok := index(token)
			if !ok {
				return -1
			}
			n = o.element(n, i)
		default:
			return -1
		}
		if n < 0 {
			return -1
		}
	}
	return n
}

// named reports whether a member has a name. Most have another, which their
// beginning tells.
func (o *Outline) named(n int, name string) bool {
	from := int(o.Nodes[n].name)
	if rest := o.Text[from:]; len(rest) > len(name) && rest[0] != '\\' && name != "" && rest[0] != name[0] {
		return false
	}
	return reads(o.Name(n), name)
}

// Each calls f with the members of a valid JSON object, in order, until f
// reports false. The name is as written, without the quotes. Nothing is read
// twice, and nothing is kept.
func Each(object []byte, f func(name, value []byte) bool) {
	i := skipSpace(object, 0)
	if i >= len(object) || object[i] != '{' {
		return
	}
	for i++; ; i++ {
		i = skipSpace(object, i)
		if i >= len(object) || object[i] != '"' {
			return
		}
		from := i + 1
		i = pastString(object, i)
		name := object[from : i-1 : i-1]
		if i = skipSpace(object, i); i >= len(object) || object[i] != ':' {
			return
		}
		from = skipSpace(object, i+1)
		i = pastValue(object, from)
		if !f(name, object[from:i:i]) {
			return
		}
		if i = skipSpace(object, i); i >= len(object) || object[i] != ',' {
			return
		}
	}
}

func skipSpace(text []byte, i int) int {
	for i < len(text) && text[i] <= ' ' {
		i++
	}
	return i
}

// pastValue returns the index behind the value that starts at i in valid text.
func pastValue(text []byte, i int) int {
	for depth := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			i = pastString(text, i)
		case c == '{' || c == '[':
			depth++
			i++
			continue
		case c == '}' || c == ']':
			depth--
			i++
		case c <= ' ' || c == ',' || c == ':':
			i++
			continue
		default:
			for i++; i < len(text) && text[i] > ' ' && text[i] != ',' && text[i] != '}' && text[i] != ']'; i++ {
			}
		}
		if depth <= 0 {
			return i
		}
	}
	return len(text)
}

// Find returns the value that a path of names and indexes leads to in a valid
// JSON value, nil when there is none. It goes down in one walk. index, where it
// is not nil, reads the index of an element from a token, and reports false for
// what is none; without it a path leads through objects alone.
func Find(value []byte, path []string, index func(token string) (int, bool)) []byte {
	i := skipSpace(value, 0)
	for _, token := range path {
		if i = below(value, i, token, index); i < 0 {
			return nil
		}
	}
	if i >= len(value) {
		return nil
	}
	to := pastValue(value, i)
	return value[i:to:to]
}

// below returns where the child of a name or an index begins in the container
// that starts at i; -1 when there is none.
func below(text []byte, i int, token string, index func(string) (int, bool)) int {
	if i >= len(text) {
		return -1
	}
	want := 0
	switch text[i] {
	case '{':
		want = -1
	case '[':
		ok := false
		if index != nil {
			want, ok = index(token)
		}
		if !ok {
			return -1
		}
	default:
		return -1
	}
	for i++; ; i++ {
		i = skipSpace(text, i)
		if i >= len(text) || text[i] == '}' || text[i] == ']' {
			return -1
		}
		found := want == 0
		if want < 0 {
			from := i + 1
			i = pastString(text, i)
			found = reads(text[from:i-1], token)
			if i = skipSpace(text, i); i >= len(text) || text[i] != ':' {
				return -1
			}
			i = skipSpace(text, i+1)
		} else {
			want--
		}
		if found {
			return i
		}
		i = skipSpace(text, pastValue(text, i))
		if i >= len(text) || text[i] != ',' {
			return -1
		}
	}
}
