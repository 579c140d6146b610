package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"
)

// PrintJSON writes a value as JSON with a line end, with indent for each level; "" for one
// line.
func PrintJSON(out io.Writer, value any, indent string) error {
	e := json.NewEncoder(PlainJSON(out))
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(value)
}

// WriteJSON writes JSON text with an indent.
func WriteJSON(w io.Writer, text []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := PlainJSON(w).Write(b.Bytes())
	return err
}

// PlainJSON is a writer of JSON texts, one at each call, for a stream that somebody may read on
// a terminal: what would steer that, or have a text read in another order than it is written,
// is written as \uXXXX.
func PlainJSON(to io.Writer) io.Writer { return plainJSON{to} }

type plainJSON struct{ to io.Writer }

func (p plainJSON) Write(text []byte) (int, error) {
	var plain []byte
	done := 0
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r >= 0x7f && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			plain = fmt.Appendf(append(plain, text[done:at]...), `\u%04x`, r)
			done = at + size
		}
		at += size
	}
	if done == 0 {
		return p.to.Write(text)
	}
	if _, err := p.to.Write(append(plain, text[done:]...)); err != nil {
		return 0, err
	}
	return len(text), nil
}
