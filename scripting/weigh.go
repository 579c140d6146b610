package scripting

import (
	"errors"
	"fmt"
	"math"
	"unicode"
	"unicode/utf8"

	"go.starlark.net/starlark"
)

// The bounds of one value and of one comparison in process.
const (
	maxValueBytes    = 8 << 20
	maxValueElements = 1_000_000
	maxCompared      = 10_000 // values within a key, or on one side of a comparison
)

var (
	errValueBytes    = errors.New("a value of more than 8 MiB")
	errValueElements = fmt.Errorf("a value of more than %d elements", maxValueElements)
	errCompared      = fmt.Errorf("a key or a side of a comparison has more than %d values, or is deeper than %d", maxCompared, MaxDepth)
)

// A walk through a large value is paid for as it goes: so many values at a time, each of which
// takes so many units of work.
const (
	paidAtOnce    = 4096
	unitsPerValue = 4
	unitsPerField = 16 // of a format
)

// weigher walks through a value, and counts shared parts each time: what a comparison, a
// hash or a text of it would meet.
type weigher struct {
	left  int // values
	bytes int // of its text, at the most

	digits int // units of writing its large integers, where plain

	json   bool   // bytes are those of its JSON text
	plain  bool   // bytes are those of the texts in it, as a comparison meets them
	cycles bool   // a value within itself is written as [...]
	payer  *meter // of the walk, 4,096 values at a time; nil for a short one
	thread *starlark.Thread
	path   [MaxDepth]starlark.Value
}

func (w *weigher) weigh(v starlark.Value, depth int) error {
	if w.left--; w.left < 0 {
		return errNodes
	}
	if w.left%paidAtOnce == 0 && w.payer != nil {
		if err := w.payer.work(w.thread, paidAtOnce*unitsPerValue); err != nil {
			return err
		}
	}
	var each func(yield func(starlark.Value) bool)
	switch v := v.(type) {
	case starlark.String:
		w.bytes += w.text(string(v))
		return nil
	case starlark.Bytes:
		w.bytes += 1 + w.text(string(v))
		return nil
	case starlark.Int:
		n := bitLen(v)
		w.bytes += 2 + n*3/10
		if n > 64 && w.payer != nil {
			return w.payer.work(w.thread, square(n, n)/4)
		}
		w.digits += square(n, n) / 4
		return nil
	case starlark.Bool, starlark.NoneType:
		w.bytes += 5
		return nil
	case starlark.Float:
		w.bytes += 26
		return nil
	case starlark.Tuple:
		each = starlark.Elements(v)
	case *starlark.List:
		each = starlark.Elements(v)
	case *starlark.Set:
		each = starlark.Elements(v)
	case *starlark.Dict:
		each = func(yield func(starlark.Value) bool) {
			for key, v := range v.Entries() {
				if !yield(key) || !yield(v) {
					return
				}
			}
		}
	case starlark.Iterable: // a range, or what elems() and the like return
		if v.Type() == "range" && !w.json {
			w.bytes += 64
			return nil
		}
		if n := starlark.Len(v); n > w.left || n < 0 && v.Type() == "range" { // more than can be counted
			return errNodes
		}
		each = starlark.Elements(v)
	default:
		w.bytes += 64
		return nil
	}
	w.bytes += 4
	if _, tuple := v.(starlark.Tuple); w.cycles && !tuple {
		for _, p := range w.path[:depth] {
			if same(p, v) {
				return nil
			}
		}
	}
	if depth == MaxDepth {
		return errDepth
	}
	w.path[depth] = v
	for x := range each {
		w.bytes += 2
		if err := w.weigh(x, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// text is how many bytes a text has. One of a value of which nobody makes the text any more is not
// gone through.
func (w *weigher) text(s string) int {
	if w.plain || w.payer != nil && w.bytes > maxValueBytes {
		return len(s)
	}
	return quoted(s, w.json)
}

func same(a, b starlark.Value) bool {
	switch a := a.(type) {
	case *starlark.List:
		b, ok := b.(*starlark.List)
		return ok && a == b
	case *starlark.Dict:
		b, ok := b.(*starlark.Dict)
		return ok && a == b
	}
	return false
}

// bitLen is the size of an integer.
func bitLen(n starlark.Int) int {
	if _, small := n.Int64(); small {
		return 64
	}
	return n.BigInt().BitLen()
}

// quoted is how many bytes a text has when it is quoted, at the most: by the language, or as JSON.
func quoted(s string, json bool) int {
	n, escaped := 2, 4
	if json {
		escaped = 6
	}
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			switch i++; {
			case c < ' ', c == 0x7f, json && (c == '<' || c == '>' || c == '&'):
				n += escaped
			case c == '"' || c == '\\':
				n += 2
			default:
				n++
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch i += size; {
		case size == 1:
			n += escaped
		case unicode.IsPrint(r):
			n += size
		default:
			n += 10
		}
	}
	return n
}

// compared returns how many values a comparison with v meets, when they are few enough.
func compared(v starlark.Value) (int, error) {
	switch v := v.(type) {
	case starlark.String, starlark.Bytes:
		return 1 + starlark.Len(v)/16, nil
	case starlark.Iterable:
		w := weigher{left: maxCompared, plain: true}
		if err := w.weigh(v, 0); err != nil {
			return 0, errCompared
		}
		return maxCompared - w.left + w.bytes/16, nil
	case starlark.Int:
		return 1 + bitLen(v)/64, nil
	}
	return 1, nil
}

// numbers are the kinds of numbers that are compared with one another, in bits; 0 for none. Those
// within lists and tuples are told apart by their places, of which there are mostPlaces.
type numbers struct {
	ints, floats int
	at           []numbers
	most         int // of times
	places       int // of all within
}

const mostPlaces = 4096

// add notes a value that compared has looked at: any other may be within itself.
func (n *numbers) add(v starlark.Value) { n.most = max(n.most, n.put(v, &n.places)) }

// put is add, and returns times of what it noted.
func (n *numbers) put(v starlark.Value, places *int) (most int) {
	switch v := v.(type) {
	case starlark.Int:
		n.ints = max(n.ints, bitLen(v))
	case starlark.Float:
		_, exp := math.Frexp(float64(v))
		n.floats = max(n.floats, 64+max(exp, -exp))
	case starlark.Tuple, *starlark.List:
		list := v.(starlark.Indexable)
		for i := range list.Len() {
			most = max(most, n.place(i, places).put(list.Index(i), places))
		}
	case *starlark.Dict:
		most = n.values(v, places)
	}
	if n.ints > 0 && n.floats > 0 {
		most = max(most, 60+(n.ints+n.floats)/8)
	}
	return most
}

// values is put for the values of a dict, of all keys together.
func (n *numbers) values(d *starlark.Dict, places *int) (most int) {
	for _, x := range d.Entries() {
		most = max(most, n.place(0, places).put(x, places))
	}
	return most
}

// place is that of an element; where there are too many, the same for all.
func (n *numbers) place(i int, places *int) *numbers {
	if i == len(n.at) && *places < mostPlaces {
		*places++
		n.at = append(n.at, numbers{})
	}
	if i < len(n.at) {
		return &n.at[i]
	}
	return n
}

// times is how many times as long a comparison may take as compared says: the language makes
// fractions of an integer and a float, as mixed has it.
func (n *numbers) times() int { return max(1, n.most) }

// The sizes of values in memory, roughly: what the interpreter allocates for them.
const (
	sizeElement = 16  // a value within another
	sizeText    = 32  // a text, besides its bytes
	sizeInt     = 96  // an integer of more than 64 bits, besides its digits
	sizeList    = 72  // a list or a tuple, besides its elements
	sizeDict    = 560 // a dict or a set: it begins with eight places
	sizeEntry   = 168 // a key with its value
	sizeFunc    = 160 // a function
)

// shallow is the size of a value without what it refers to.
func shallow(v starlark.Value) int {
	switch v := v.(type) {
	case starlark.String, starlark.Bytes:
		return sizeText + starlark.Len(v)
	case starlark.Int:
		if _, small := v.Int64(); small {
			return 0
		}
		return sizeInt + bitLen(v)/8*3/2 // what a sum is made of, and its words to spare
	case *starlark.List:
		return sizeList + sizeElement*v.Len()
	case starlark.Tuple:
		return sizeList + sizeElement*len(v)
	case *starlark.Dict:
		return sizeDict + sizeEntry*max(0, v.Len()-8)
	case *starlark.Set:
		return sizeDict + sizeEntry*max(0, v.Len()-8)
	case *starlark.Function:
		return sizeFunc
	}
	return 0
}
