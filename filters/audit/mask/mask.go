// Package mask takes secrets out of JSON that is written down: the values of
// members whose names say that they hold one, at any depth, and in JSON that
// is itself the text of a string; and out of URIs.
package mask

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// Redacted stands in the place of a secret.
const Redacted = "[REDACTED]"

// maxName is how long a name may be to be judged; a longer one is taken for
// one of a secret.
const maxName = 256

// maxDepth is how deep values may nest, and maxLevel how many strings of JSON
// in strings of JSON are looked into.
const (
	maxDepth = 128
	maxLevel = 2
)

// words returns what the name of a secret contains.
func words() [16]string {
	return [...]string{"password", "passwd", "passphrase", "passcode", "pwd", "token", "secret", "key",
		"auth", "credential", "private", "cookie", "bearer", "jwt", "assertion", "verifier"}
}

// shortest is how long the shortest of the words is.
const shortest = 3

// Name reports whether a member, a header or a variable of that name holds a
// secret: the name contains one of a few words, whatever its case, its
// separators and the look-alikes of letters that Unicode folds onto them. It
// errs on the side of secrecy; progressToken alone is known to hold none.
func Name[Text string | []byte](name Text) bool {
	if len(name) > maxName {
		return true
	}
	var room [maxName]byte
	folded := room[:0]
	for i, n := 0, 0; i < len(name); i += n {
		r := rune(name[i])
		if n = 1; r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(string(name[i:]))
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				if f < utf8.RuneSelf {
					r = f
					break
				}
			}
		}
		switch {
		case r >= 'A' && r <= 'Z':
			folded = append(folded, byte(r)+'a'-'A')
		case r == '_' || r == '-' || r == '.' || r == ' ':
		case r < utf8.RuneSelf:
			folded = append(folded, byte(r))
		default:
			folded = append(folded, '?')
		}
	}
	if len(folded) < shortest || string(folded) == "progresstoken" {
		return false
	}
	for _, w := range words() {
		if bytes.Contains(folded, []byte(w)) {
			return true
		}
	}
	return false
}

// Append appends a JSON value without its secrets and without the white space
// between its tokens. It appends no more than limit bytes, and looks at a
// bounded multiple of that; whole says whether that was all. What it appends is
// JSON only when it is whole. Characters that move a terminal's cursor or turn
// the direction of text appear as escapes alone.
func Append(dst, value []byte, limit int) (out []byte, whole bool) {
	m := masker{in: value, out: dst, end: len(dst) + limit, looks: 16*limit + 64<<10}
	err := m.value(0)
	if err == done {
		m.space()
		if m.i < len(m.in) {
			err = odd
		}
	}
	return m.out, err == done
}

// state is how reading a value ended.
type state uint8

const (
	done state = iota
	full       // there is no room for more
	odd        // it is no JSON from here on
)

// masker copies JSON from in to out. It relies on nothing about in.
type masker struct {
	in    []byte
	i     int
	out   []byte
	end   int  // how long out may become
	looks int  // how many bytes of in may still be skipped
	level int  // of strings in strings
	part  bool // in is the beginning of something longer
}

func (m *masker) put(s string) state {
	if len(m.out)+len(s) > m.end {
		return full
	}
	m.out = append(m.out, s...)
	return done
}

func (m *masker) space() {
	for m.i < len(m.in) {
		switch m.in[m.i] {
		case ' ', '\t', '\n', '\r':
			m.i++
		default:
			return
		}
	}
}

// peek is the next byte that is no white space; 0 for none.
func (m *masker) peek() byte {
	m.space()
	if m.i < len(m.in) {
		return m.in[m.i]
	}
	return 0
}

// broken is what to say where in goes on otherwise than JSON does.
func (m *masker) broken() state {
	if m.i >= len(m.in) && m.part {
		return full
	}
	return odd
}

func (m *masker) value(depth int) state {
	if depth > maxDepth {
		return full
	}
	switch c := m.peek(); c {
	case '{':
		return m.object(depth)
	case '[':
		return m.array(depth)
	case '"':
		return m.text()
	case 0:
		return m.broken()
	default:
		from := m.i
		for m.i < len(m.in) && m.bare(m.in[m.i]) {
			m.i++
		}
		if from == m.i {
			return odd
		}
		return m.put(string(m.in[from:m.i]))
	}
}

// bare reports whether c may stand in a number, or in true, false and null. In the text
// of a string any word may: programs print NaN, Infinity and None, behind which are
// secrets as elsewhere.
func (m *masker) bare(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == '+' || c == '-' || c == '.' || c == 'E' ||
		m.level > 0 && c >= 'A' && c <= 'Z'
}

func (m *masker) object(depth int) state {
	m.i++
	if s := m.put("{"); s != done {
		return s
	}
	comma := 0
	for first := true; ; first = false {
		c := m.peek()
		if c == '}' && first {
			break
		}
		if c != '"' {
			if s := m.broken(); s == full || first {
				return s
			}
			m.i = comma
			return odd
		}
		if !first {
			if s := m.put(","); s != done {
				return s
			}
		}
		from := m.i
		if !m.skipText() {
			m.i = from
			if m.part || m.looks <= 0 {
				return full
			}
			return odd
		}
		name := m.in[from+1 : m.i-1]
		if s := m.escaped(name); s != done {
			return s
		}
		if m.peek() != ':' {
			return m.broken()
		}
		m.i++
		if s := m.put(":"); s != done {
			return s
		}
		if secret(name) {
			if s := m.put(`"` + Redacted + `"`); s != done {
				return s
			}
			if s := m.skip(); s != done {
				return s
			}
		} else if s := m.value(depth + 1); s != done {
			return s
		}
		switch m.peek() {
		case ',':
			comma = m.i
			m.i++
			continue
		case '}':
		default:
			return m.broken()
		}
		break
	}
	m.i++
	return m.put("}")
}

func (m *masker) array(depth int) state {
	m.i++
	if s := m.put("["); s != done {
		return s
	}
	if m.peek() != ']' {
		for {
			if s := m.value(depth + 1); s != done {
				return s
			}
			c := m.peek()
			if c == ']' {
				break
			}
			if c != ',' {
				return m.broken()
			}
			m.i++
			if s := m.put(","); s != done {
				return s
			}
		}
	}
	m.i++
	return m.put("]")
}

// skip passes over a value whose text nobody reads.
func (m *masker) skip() state {
	depth := 0
	for {
		switch c := m.peek(); c {
		case 0:
			return m.broken()
		case '"':
			if !m.skipText() {
				return full
			}
		case '{', '[':
			depth++
			m.i++
		case '}', ']':
			depth--
			m.i++
		case ',', ':':
			if depth <= 0 {
				return odd
			}
			m.i++
		default:
			from := m.i
			for m.i < len(m.in) && m.bare(m.in[m.i]) {
				m.i++
			}
			if m.i == from {
				return odd
			}
		}
		if m.looks--; m.looks <= 0 {
			return full
		}
		if depth == 0 {
			return done
		}
		if depth < 0 {
			return odd
		}
	}
}

// skipText passes over a string, as far as it may, and reports whether it saw
// the end of it.
func (m *masker) skipText() bool {
	for m.i++; m.i < len(m.in); m.i++ {
		if m.looks--; m.looks <= 0 {
			return false
		}
		switch m.in[m.i] {
		case '\\':
			m.i++
		case '"':
			m.i++
			return true
		}
	}
	m.i = len(m.in)
	return false
}

// text copies a string. One that holds JSON itself is masked like it.
func (m *masker) text() state {
	from := m.i
	if m.level < maxLevel && opens(m.in[from+1:]) {
		room := m.end - len(m.out)
		inner, length, ended := unescape(m.in[from+1:], 8*room+256)
		n := masker{in: inner, end: room, looks: m.looks, level: m.level + 1, part: !ended}
		s := n.documents()
		m.looks = n.looks
		m.i = from + 1 + length
		if got := m.quote(n.out); s == full || got == full {
			return full
		}
		return done
	}
	if links(m.in[from+1:], m.end-len(m.out)) {
		said, length, ended := unescape(m.in[from+1:], 8*(m.end-len(m.out))+256)
		m.i = from + 1 + length
		if m.quote([]byte(URI(string(said)))) == full || !ended {
			return full
		}
		return done
	}
	if !m.skipText() {
		// What was seen of it, and nothing behind it, is shown as far as there is room.
		rest := m.in[from+1 : m.i]
		if len(rest) > m.end-len(m.out) {
			rest = rest[:max(0, m.end-len(m.out))]
		}
		m.escaped(rest)
		return full
	}
	return m.escaped(m.in[from+1 : m.i-1])
}

// documents copies values that follow each other, and what follows them that
// is no JSON as it is.
func (m *masker) documents() state {
	for m.i < len(m.in) {
		from, kept := m.i, len(m.out)
		if c := m.peek(); c != '{' && c != '[' {
			m.i = from
			return m.rest()
		}
		if kept > 0 {
			if s := m.put("\n"); s != done {
				return s
			}
		}
		switch s := m.value(0); s {
		case full:
			return s
		case odd:
			return m.rest()
		}
		m.space()
	}
	if m.part {
		return full
	}
	return done
}

// rest copies what is left of in as it is, with the white space before it.
func (m *masker) rest() state {
	for m.i > 0 && bytes.IndexByte([]byte(" \t\r\n"), m.in[m.i-1]) >= 0 {
		m.i--
	}
	rest := m.in[m.i:]
	m.i = len(m.in)
	if room := m.end - len(m.out); len(rest) > room {
		m.out = append(m.out, rest[:max(0, room)]...)
		return full
	}
	m.out = append(m.out, rest...)
	if m.part {
		return full
	}
	return done
}

// quote appends text as a JSON string, as far as there is room.
func (m *masker) quote(text []byte) state {
	if s := m.put(`"`); s != done {
		return s
	}
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		before := len(m.out)
		m.out = AppendRune(m.out, r)
		if len(m.out) > m.end {
			m.out = m.out[:before]
			return full
		}
		text = text[n:]
	}
	return m.put(`"`)
}

// escaped appends what stands between the quotes of a JSON string as a JSON
// string. Escapes stay as they are.
func (m *masker) escaped(text []byte) state {
	if s := m.put(`"`); s != done {
		return s
	}
	for len(text) > 0 {
		n := 0
		for n < len(text) && text[n] >= 0x20 && text[n] < 0x7f {
			n++
		}
		if room := m.end - len(m.out); n > room {
			m.out = append(m.out, text[:max(0, room)]...)
			return full
		}
		m.out = append(m.out, text[:n]...)
		if text = text[n:]; len(text) == 0 {
			break
		}
		r, n := utf8.DecodeRune(text)
		before := len(m.out)
		m.out = AppendRune(m.out, r)
		if len(m.out) > m.end {
			m.out = m.out[:before]
			return full
		}
		text = text[n:]
	}
	return m.put(`"`)
}

// secret is Name for what stands between the quotes of a name.
func secret(written []byte) bool {
	if bytes.IndexByte(written, '\\') < 0 {
		return Name(written)
	}
	name, _, _ := unescape(written, maxName+1)
	return Name(name)
}

// opens reports whether a string begins like an object or an array.
func opens(text []byte) bool {
	if len(text) > 0 && bytes.IndexByte([]byte(" {[\\\t\r\n"), text[0]) < 0 {
		return false
	}
	start, _, _ := unescape(text[:min(len(text), 64)], 16)
	start = bytes.TrimLeft(start, " \t\r\n")
	return len(start) > 0 && (start[0] == '{' || start[0] == '[')
}
