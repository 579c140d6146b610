package mcp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects may be nested in a message. It is
// far above what any tool sends and far below what hurts a recursive parser
// behind the edge.
const MaxDepth = 1000

// SyntaxError says what is not JSON, or not JSON that two parsers are sure to
// read alike: the grammar is RFC 8259, and beyond it duplicate names, invalid
// UTF-8 and lone surrogates are refused (RFC 7493 §2.1 and §2.3).
type SyntaxError struct {
	Offset int // bytes from the start of the text
	What   string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.What, e.Offset) }

// Valid reports whether text is one JSON value by the rules of this package.
// The error is a *SyntaxError.
func Valid(text []byte) error {
	s := newScanner(text)
	defer s.release()
	if err := s.value(); err != nil {
		return err
	}
	return s.end()
}

// scanner walks JSON text once. It validates all of it and allocates nothing
// for ordinary messages.
type scanner struct {
	b     []byte
	i     int
	depth int
	keys  []key    // names of the objects that are open, innermost last
	table []uint64 // hash table for the names of one large object: half of a hash, and which name
	text  []byte   // a name of one large object, unescaped
	note  decoder  // takes down what a message holds
}

// level is where in a message an object stands.
type level uint8

const (
	elsewhere     level = iota // nowhere that matters
	inMessage                  // the message itself
	inParams                   // its params
	inOutcome                  // its result or error
	inParamsMeta               // _meta in params
	inOutcomeMeta              // _meta in a result
	inReference                // ref in params
	inWanted                   // notifications in params: what a subscription is for
	inCompleted                // argument in params: what is being completed
	inContext                  // context in params: what of it is settled
)

type key struct {
	start, end uint32 // without the quotes
	escaped    bool
}

// wide is the number of names above which an object is checked for duplicates
// by hashing rather than by comparing each with each. Escaped names are hashed
// always, for to compare them takes longer.
const wide = 16

func newScanner(b []byte) *scanner {
	s := scanners.Get().(*scanner)
	s.b, s.i, s.depth, s.keys = b, 0, 0, s.keys[:0]
	return s
}

// scanners only saves allocations; no scanner carries anything from one text
// to the next.
var scanners = sync.Pool{New: func() any { return &scanner{keys: make([]key, 0, 64)} }}

func (s *scanner) release() {
	s.b, s.note = nil, decoder{}
	if cap(s.keys) > 4096 || cap(s.table) > 4096 || cap(s.text) > 4096 {
		return // one huge message must not pin its tables
	}
	scanners.Put(s)
}

func (s *scanner) fail(what string) error { return &SyntaxError{Offset: s.i, What: what} }

// blank has a bit for each character of white space (RFC 8259 §2).
const blank = 1<<' ' | 1<<'\t' | 1<<'\n' | 1<<'\r'

func (s *scanner) space() {
	for s.i < len(s.b) && s.b[s.i] <= ' ' && uint64(blank)>>s.b[s.i]&1 != 0 {
		s.i++
	}
}

// end expects nothing but white space up to the end of the text.
func (s *scanner) end() error {
	s.space()
	if s.i < len(s.b) {
		return s.fail("text after the value")
	}
	return nil
}

// value reads one value with the white space before it.
func (s *scanner) value() error {
	s.space()
	if s.i >= len(s.b) {
		return s.fail("the text ends where a value should be")
	}
	switch c := s.b[s.i]; {
	case c == '"':
		_, err := s.string()
		return err
	case c == '{':
		return s.object(elsewhere)
	case c == '[':
		return s.array(nil)
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	}
	return s.fail("no value starts like this")
}

func (s *scanner) word(w string) error {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		return s.fail("no value starts like this")
	}
	s.i += len(w)
	return nil
}

func (s *scanner) number() error {
	if s.b[s.i] == '-' {
		s.i++
	}
	switch {
	case s.i < len(s.b) && s.b[s.i] == '0':
		s.i++
	case !s.digits():
		return s.fail("a number without digits")
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if !s.digits() {
			return s.fail("a number without digits after its point")
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if !s.digits() {
			return s.fail("a number without digits in its exponent")
		}
	}
	return nil
}

func (s *scanner) digits() bool {
	from := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > from
}

// string reads a string and returns where its text is.
func (s *scanner) string() (key, error) {
	b, i := s.b, s.i+1
	k := key{start: uint32(i)}
	for {
		i = printing(b, i)
		if i >= len(b) {
			s.i = i
			return k, s.fail("a string without an end")
		}
		switch c := b[i]; {
		case c == '"':
			k.end = uint32(i)
			s.i = i + 1
			return k, nil
		case c == '\\':
			k.escaped = true
			n := escape(b[i:])
			if n == 0 {
				s.i = i
				return k, s.fail("a bad escape in a string")
			}
			i += n
		case c < 0x20:
			s.i = i
			return k, s.fail("a control character in a string")
		default:
			// Letters of other alphabets come in words: the next is likely one too.
			for i < len(b) && b[i] >= utf8.RuneSelf {
				n := letter(b[i:])
				if n == 0 {
					s.i = i
					return k, s.fail("text that is not UTF-8 in a string")
				}
				i += n
			}
		}
	}
}

// printing returns the index of the first byte from i on that is a quote, a
// backslash, a control character or not ASCII; len(b) when there is none.
func printing(b []byte, i int) int {
	const (
		low  = 0x0101010101010101
		high = 0x8080808080808080
	)
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		quote := w ^ (low * '"')
		slash := w ^ (low * '\\')
		// A byte's high bit is set in m when the byte is above 0x7f, below
		// 0x20, a quote or a backslash. A borrow can only make a byte above the
		// first such byte look like one, so the lowest is right.
		m := (w | (w - low*0x20) | (quote - low) | (slash - low)) & high
		if m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
		i += 8
	}
	for i < len(b) && b[i] >= 0x20 && b[i] < 0x80 && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// letter returns the length of the character that b starts with, one of more
// than one byte; 0 when it is not UTF-8 (RFC 3629 §4).
func letter(b []byte) int {
	if len(b) >= 3 {
		switch c := b[0]; {
		case 0xC2 <= c && c <= 0xDF && b[1]&0xC0 == 0x80:
			return 2
		case 0xE1 <= c && c <= 0xEC && b[1]&0xC0 == 0x80 && b[2]&0xC0 == 0x80:
			return 3
		}
	}
	if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1 {
		return n
	}
	return 0
}

// escape returns the length of the escape that b starts with, both halves of a
// surrogate pair together; 0 when it is none.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		r := hex4(b[2:])
		switch {
		case r < 0 || 0xDC00 <= r && r <= 0xDFFF:
			return 0
		case 0xD800 <= r && r <= 0xDBFF:
			if len(b) < 12 || b[6] != '\\' || b[7] != 'u' {
				return 0
			}
			if r = hex4(b[8:]); r < 0xDC00 || 0xDFFF < r {
				return 0
			}
			return 12
		}
		return 6
	}
	return 0
}

func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// object reads an object, the opening brace being next. The members of one at
// a level that matters are taken down.
func (s *scanner) object(at level) error {
	if s.depth++; s.depth > MaxDepth {
		return s.fail("nesting deeper than the limit")
	}
	base := len(s.keys)
	s.i++
	s.space()
	if s.i < len(s.b) && s.b[s.i] == '}' {
		s.i++
		s.depth--
		return nil
	}
	for {
		if s.i >= len(s.b) || s.b[s.i] != '"' {
			return s.fail("an object without a name where one should be")
		}
		k, err := s.string()
		if err != nil {
			return err
		}
		s.keys = append(s.keys, k)
		s.space()
		if s.i >= len(s.b) || s.b[s.i] != ':' {
			return s.fail("a name without a colon")
		}
		s.i++
		if at == elsewhere {
			err = s.value()
		} else {
			s.space()
			err = s.note.member(s, at, k)
		}
		if err != nil {
			return err
		}
		s.space()
		if s.i >= len(s.b) {
			return s.fail("an object without an end")
		}
		switch s.b[s.i] {
		case ',':
			s.i++
			s.space()
		case '}':
			if s.twice(s.keys[base:]) {
				return s.fail("an object with a duplicate name")
			}
			s.i++
			s.keys = s.keys[:base]
			s.depth--
			return nil
		default:
			return s.fail("an object without a comma")
		}
	}
}

// array reads an array, the opening bracket being next. element, when not nil,
// is called at each element and has to read it.
func (s *scanner) array(element func() error) error {
	if s.depth++; s.depth > MaxDepth {
		return s.fail("nesting deeper than the limit")
	}
	s.i++
	s.space()
	if s.i < len(s.b) && s.b[s.i] == ']' {
		s.i++
		s.depth--
		return nil
	}
	for {
		var err error
		if element != nil {
			s.space()
			err = element()
		} else {
			err = s.value()
		}
		if err != nil {
			return err
		}
		s.space()
		if s.i >= len(s.b) {
			return s.fail("an array without an end")
		}
		switch s.b[s.i] {
		case ',':
			s.i++
		case ']':
			s.i++
			s.depth--
			return nil
		default:
			return s.fail("an array without a comma")
		}
	}
}

// twice reports whether two of the names are equal once unescaped. It takes
// time linear in their number however they are chosen: the hash is seeded.
func (s *scanner) twice(keys []key) bool {
	if len(keys) <= wide && !slices.ContainsFunc(keys, func(k key) bool { return k.escaped }) {
		// A bit stands for the names of a length and ends. Most names meet no
		// other on theirs, and need not be compared.
		var seen uint64
		for i, k := range keys {
			bit := uint64(1) << ((k.end - k.start + uint32(s.b[k.start])*3 + uint32(s.b[k.end-1])*7) & 63)
			if seen&bit != 0 && slices.ContainsFunc(keys[:i], func(o key) bool { return s.equal(k, o) }) {
				return true
			}
			seen |= bit
		}
		return false
	}
	size := 1 << bits.Len(uint(2*len(keys)))
	if cap(s.table) < size {
		s.table = make([]uint64, size)
	}
	table := s.table[:size]
	clear(table)
	seed := maphash.MakeSeed()
	for i, k := range keys {
		text := s.b[k.start:k.end]
		if k.escaped {
			s.text = appendUnquoted(s.text[:0], text)
			text = s.text
		}
		hash := maphash.Bytes(seed, text)
		at, half := int(hash)&(size-1), hash&^uint64(1<<32-1)
		for table[at] != 0 {
			// The names themselves are somewhere else in memory, which takes longer.
			if is := table[at]; is&^uint64(1<<32-1) == half && s.equal(keys[uint32(is)-1], k) {
				return true
			}
			at = (at + 1) & (size - 1)
		}
		table[at] = half | uint64(i+1)
	}
	return false
}

func (s *scanner) equal(a, b key) bool {
	x, y := s.b[a.start:a.end], s.b[b.start:b.end]
	if !a.escaped && !b.escaped {
		return len(x) == len(y) && bytes.Equal(x, y)
	}
	return alike(x, y)
}

// alike reports whether the texts between the quotes of two valid JSON strings
// say the same.
func alike(x, y []byte) bool {
	for len(x) > 0 && len(y) > 0 {
		r, n := character(x)
		q, m := character(y)
		if r != q || n == 0 || m == 0 {
			return false
		}
		x, y = x[n:], y[m:]
	}
	return len(x) == len(y)
}

// character returns the character that the text of a valid JSON string starts
// with, and how many bytes stand for it.
func character(text []byte) (rune, int) {
	if c := text[0]; c != '\\' {
		if c < utf8.RuneSelf {
			return rune(c), 1
		}
		return utf8.DecodeRune(text)
	}
	n := escape(text)
	switch n {
	case 6:
		return hex4(text[2:]), n
	case 12:
		return (hex4(text[2:])-0xD800)<<10 | (hex4(text[8:]) - 0xDC00) + 0x10000, n
	case 2:
		switch e := text[1]; e {
		case 'b':
			return '\b', n
		case 'f':
			return '\f', n
		case 'n':
			return '\n', n
		case 'r':
			return '\r', n
		case 't':
			return '\t', n
		default:
			return rune(e), n
		}
	}
	return 0, 0
}

// Unquote returns what the text between the quotes of a valid JSON string
// says. Text without escapes is returned as it is, sharing its memory.
func Unquote(text []byte) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		return text
	}
	return appendUnquoted(make([]byte, 0, len(text)), text)
}

func appendUnquoted(dst, text []byte) []byte {
	for {
		at := bytes.IndexByte(text, '\\')
		if at < 0 {
			return append(dst, text...)
		}
		dst, text = append(dst, text[:at]...), text[at:]
		r, n := character(text)
		if n == 0 { // not a valid string: keep what is there
			return append(dst, text...)
		}
		dst, text = utf8.AppendRune(dst, r), text[n:]
	}
}
