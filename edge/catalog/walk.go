package catalog

import (
	"bytes"

	"github.com/weir-edge/weir/edge/mcp"
)

// walker goes through JSON text once, from left to right, and reports the positions
// of values, so that one can be replaced and every other byte kept. The text has to
// be valid.
type walker struct {
	text []byte
	at   int
}

func (w *walker) space() {
	for w.at < len(w.text) && (w.text[w.at] == ' ' || w.text[w.at] == '\t' || w.text[w.at] == '\n' || w.text[w.at] == '\r') {
		w.at++
	}
}

// opens reports whether the next value starts with c, and enters it if so.
func (w *walker) opens(c byte) bool {
	w.space()
	if w.at >= len(w.text) || w.text[w.at] != c {
		return false
	}
	w.at++
	return true
}

// more reports whether another member or element follows, and leaves the object
// or array if none does.
func (w *walker) more() bool {
	w.space()
	if w.at < len(w.text) && w.text[w.at] == ',' {
		w.at++
		w.space()
	}
	if w.at >= len(w.text) {
		return false
	}
	if c := w.text[w.at]; c == '}' || c == ']' {
		w.at++
		return false
	}
	return true
}

// name reads the name of a member and the colon, and returns the decoded name.
func (w *walker) name() []byte {
	from := w.at + 1
	w.string()
	name := mcp.Unquote(w.text[from : w.at-1])
	w.space()
	w.at++
	return name
}

// string skips a string, whose opening quote is next.
func (w *walker) string() {
	for w.at++; w.text[w.at] != '"'; w.at++ {
		if w.text[w.at] == '\\' {
			w.at++
		}
	}
	w.at++
}

// value skips a value and returns its span.
func (w *walker) value() mcp.Span {
	w.space()
	from := w.at
	switch c := w.text[w.at]; c {
	case '"':
		w.string()
	case '{', '[':
		for depth := 0; ; {
			switch w.text[w.at] {
			case '"':
				w.string()
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			w.at++
			if depth == 0 {
				break
			}
		}
	default:
		n := bytes.IndexAny(w.text[w.at:], ",]} \t\r\n")
		if n < 0 {
			n = len(w.text) - w.at
		}
		w.at += n
	}
	return mcp.Span{Start: uint32(from), End: uint32(w.at)}
}

// members calls f at the value of each member of the next value, if that is an
// object; else it skips the value. f has to skip each value.
func (w *walker) members(f func(name []byte)) {
	if !w.opens('{') {
		w.value()
		return
	}
	for w.more() {
		f(w.name())
	}
}

// elements is members for an array.
func (w *walker) elements(f func()) {
	if !w.opens('[') {
		w.value()
		return
	}
	for w.more() {
		f()
	}
}
