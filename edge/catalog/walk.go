package catalog

import (
	"bytes"

	"github.com/weir-edge/weir/edge/mcp"
)

// walker goes through JSON text once, from left to right, and says where
// things stand in it, so that an item can be changed without touching a byte
// of what stays. The text has to be valid.
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

// more reports whether another member or element comes, and leaves the object
// or array when none does.
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

// name reads the name of a member and the colon, and returns what it says.
func (w *walker) name() []byte {
	from := w.at + 1
	w.string()
	name := mcp.Unquote(w.text[from : w.at-1])
	w.space()
	w.at++
	return name
}

// string passes a string, the opening quote being next.
func (w *walker) string() {
	for w.at++; w.text[w.at] != '"'; w.at++ {
		if w.text[w.at] == '\\' {
			w.at++
		}
	}
	w.at++
}

// value passes a value and returns where it stands.
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
// object; else it passes the value. f has to pass the value.
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
