package scripting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// FromJSON turns a JSON text of at most MaxIn bytes into the wire form of its value.
// Integers stay exact up to MaxDigits digits; a number with a fraction or an exponent that
// is whole and below 2^53 is an integer, and a float otherwise. Objects keep the order of
// their names; of two equal ones the last value counts. A surrogate alone is U+FFFD.
func FromJSON(text []byte) (wire []byte, err error) {
	if len(text) > MaxIn {
		return nil, fmt.Errorf("larger than %d bytes", MaxIn)
	}
	p := parser{text: text, left: MaxNodes, out: make([]byte, 0, len(text)+len(text)/4+16)}
	p.space()
	if err := p.value(0); err != nil {
		return nil, err
	}
	if p.space(); p.at < len(p.text) {
		return nil, p.unexpected()
	}
	return p.out, nil
}

type parser struct {
	text []byte
	at   int
	left int
	out  []byte
}

func (p *parser) unexpected() error {
	if p.at >= len(p.text) {
		return errors.New("not JSON: it ends too early")
	}
	return fmt.Errorf("not JSON: byte %d is out of place", p.at)
}

func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// next is the byte at hand, or 0 at the end.
func (p *parser) next() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func (p *parser) value(depth int) error {
	if p.left--; p.left < 0 {
		return errNodes
	}
	switch c := p.next(); {
	case c == '{' || c == '[':
		if depth == MaxDepth {
			return errDepth
		}
		if c == '{' {
			return p.object(depth + 1)
		}
		return p.array(depth + 1)
	case c == '"':
		p.out = append(p.out, tagText)
		_, err := p.string()
		return err
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	case c == 't':
		return p.word("true", tagTrue)
	case c == 'f':
		return p.word("false", tagFalse)
	case c == 'n':
		return p.word("null", tagNone)
	}
	return p.unexpected()
}

func (p *parser) word(word string, tag byte) error {
	if !bytes.HasPrefix(p.text[p.at:], []byte(word)) {
		return p.unexpected()
	}
	p.at += len(word)
	p.out = append(p.out, tag)
	return nil
}

// open writes a tag and the place of a count, which close fills in.
func (p *parser) open(tag byte) (count int) {
	p.at++
	p.out = append(p.out, tag, 0, 0, 0, 0)
	p.space()
	return len(p.out) - 4
}

func (p *parser) array(depth int) error {
	place, n := p.open(tagList), 0
	if p.next() == ']' {
		p.at++
		return nil
	}
	for {
		if err := p.value(depth); err != nil {
			return err
		}
		n++
		p.space()
		switch p.next() {
		case ',':
			p.at++
			p.space()
		case ']':
			p.at++
			binary.LittleEndian.PutUint32(p.out[place:], uint32(n))
			return nil
		default:
			return p.unexpected()
		}
	}
}

// member is where a name and its value lie in the wire form.
type member struct{ key, value, end int }

// few is the number of members up to which names are compared one by one.
const few = 12

func (p *parser) object(depth int) error {
	place := p.open(tagDict)
	if p.next() == '}' {
		p.at++
		return nil
	}
	var (
		small   [few]member
		members = small[:0]
		seen    map[string]int
		twice   map[int]int // the index of an earlier member, and of the one that counts for it
	)
	for {
		if p.next() != '"' {
			return p.unexpected()
		}
		m := member{key: len(p.out)}
		name, err := p.string()
		if err != nil {
			return err
		}
		m.value = len(p.out)
		if p.space(); p.next() != ':' {
			return p.unexpected()
		}
		p.at++
		p.space()
		earlier := -1
		if len(members) < few {
			for i, o := range members {
				if string(p.out[o.key+4:o.value]) == string(name) {
					earlier = i
					break
				}
			}
		} else {
			if seen == nil {
				seen = make(map[string]int, 2*few)
				for i := len(members) - 1; i >= 0; i-- { // the first of equal ones stays
					seen[string(p.out[members[i].key+4:members[i].value])] = i
				}
			}
			if i, ok := seen[string(name)]; ok {
				earlier = i
			} else {
				seen[string(name)] = len(members)
			}
		}
		if earlier >= 0 {
			if twice == nil {
				twice = map[int]int{}
			}
			twice[earlier] = len(members)
		}
		if err := p.value(depth); err != nil {
			return err
		}
		m.end = len(p.out)
		members = append(members, m)
		p.space()
		switch p.next() {
		case ',':
			p.at++
			p.space()
		case '}':
			p.at++
			n := len(members)
			if twice != nil {
				n = p.unite(members, twice)
			}
			binary.LittleEndian.PutUint32(p.out[place:], uint32(n))
			return nil
		default:
			return p.unexpected()
		}
	}
}

// unite leaves one member of each name: at the first one's place, with the last one's value.
func (p *parser) unite(members []member, twice map[int]int) int {
	start := members[0].key
	old := bytes.Clone(p.out[start:])
	p.out = p.out[:start]
	n, first := 0, make(map[string]bool, len(members))
	for i, m := range members {
		name := string(old[m.key+4-start : m.value-start])
		if first[name] {
			continue
		}
		first[name] = true
		v := m
		if j, ok := twice[i]; ok {
			v = members[j]
		}
		p.out = append(p.out, old[m.key-start:m.value-start]...)
		p.out = append(p.out, old[v.value-start:v.end-start]...)
		n++
	}
	return n
}

// string reads a text and appends it with its length, without a tag.
func (p *parser) string() ([]byte, error) {
	p.at++
	place := len(p.out)
	p.out = append(p.out, 0, 0, 0, 0)
	for {
		from := p.at
		ascii := true
		for p.at < len(p.text) && p.text[p.at] != '"' && p.text[p.at] != '\\' && p.text[p.at] >= ' ' {
			ascii = ascii && p.text[p.at] < utf8.RuneSelf
			p.at++
		}
		if part := p.text[from:p.at]; ascii || utf8.Valid(part) {
			p.out = append(p.out, part...)
		} else {
			return nil, fmt.Errorf("not JSON: the text at byte %d is not UTF-8", from)
		}
		switch p.next() {
		case '"':
			p.at++
			binary.LittleEndian.PutUint32(p.out[place:], uint32(len(p.out)-place-4))
			return p.out[place+4:], nil
		case '\\':
			if err := p.escape(); err != nil {
				return nil, err
			}
		default:
			return nil, p.unexpected()
		}
	}
}

func (p *parser) escape() error {
	p.at++
	c := p.next()
	p.at++
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r, ok := p.unit()
		if !ok {
			return p.unexpected()
		}
		if utf16.IsSurrogate(r) {
			second, at := rune(0), p.at
			if bytes.HasPrefix(p.text[p.at:], []byte(`\u`)) {
				p.at += 2
				if second, ok = p.unit(); !ok {
					return p.unexpected()
				}
			}
			if r = utf16.DecodeRune(r, second); r == utf8.RuneError {
				p.at = at // what follows stands for itself
			}
		}
		p.out = utf8.AppendRune(p.out, r)
		return nil
	default:
		p.at--
		return p.unexpected()
	}
	p.out = append(p.out, c)
	return nil
}

// unit reads four hexadecimal digits.
func (p *parser) unit() (r rune, ok bool) {
	if len(p.text)-p.at < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(p.text[p.at:p.at+4]), 16, 16)
	p.at += 4
	return rune(n), err == nil
}

func (p *parser) number() error {
	from := p.at
	digits := func() int {
		start := p.at
		for c := p.next(); c >= '0' && c <= '9'; c = p.next() {
			p.at++
		}
		return p.at - start
	}
	if p.next() == '-' {
		p.at++
	}
	whole := true
	if first, n := p.next(), digits(); n == 0 {
		return p.unexpected()
	} else if first == '0' && n > 1 {
		p.at = from
		return p.unexpected()
	}
	if p.next() == '.' {
		whole = false
		p.at++
		if digits() == 0 {
			return p.unexpected()
		}
	}
	if c := p.next(); c == 'e' || c == 'E' {
		whole = false
		p.at++
		if c := p.next(); c == '+' || c == '-' {
			p.at++
		}
		if digits() == 0 {
			return p.unexpected()
		}
	}
	text := string(p.text[from:p.at])
	if whole {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			p.out = appendInt(p.out, n)
			return nil
		}
		if len(text) > MaxDigits+1 || len(text) > MaxDigits && text[0] != '-' {
			return errDigits
		}
		n, _ := new(big.Int).SetString(text, 10)
		p.out = appendBig(p.out, n)
		return nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return errRange
	}
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		p.out = appendInt(p.out, int64(f))
		return nil
	}
	p.out = appendFloat(p.out, f)
	return nil
}

func appendFloat(b []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(append(b, tagFloat), math.Float64bits(f))
}

func appendBig(b []byte, n *big.Int) []byte {
	sign := byte(0)
	if n.Sign() < 0 {
		sign = 1
	}
	return appendBytes(append(b, tagBig, sign), n.Bytes())
}

// ToJSON turns the wire form of a value into JSON text of at most MaxOut bytes. The bytes
// may come from anybody: what is no value, or has no JSON form, is an error.
func ToJSON(wire []byte) (text []byte, err error) {
	r := reader{rest: wire, left: MaxNodes}
	w := writer{reader: r, out: make([]byte, 0, min(len(wire)+16, MaxOut))}
	if err := w.value(0); err != nil {
		return nil, err
	}
	if len(w.rest) > 0 {
		return nil, errors.New("there are bytes after the value")
	}
	return w.out, nil
}

type writer struct {
	reader
	out []byte
}

func (w *writer) value(depth int) error {
	tag, err := w.tag()
	if err != nil {
		return err
	}
	switch tag {
	case tagNone:
		w.out = append(w.out, "null"...)
	case tagFalse:
		w.out = append(w.out, "false"...)
	case tagTrue:
		w.out = append(w.out, "true"...)
	case tagInt:
		n, err := w.uint64()
		if err != nil {
			return err
		}
		w.out = strconv.AppendInt(w.out, int64(n), 10)
	case tagBig:
		negative, magnitude, err := w.big()
		if err != nil {
			return err
		}
		n := new(big.Int).SetBytes(magnitude)
		if negative {
			n.Neg(n)
		}
		if w.out = n.Append(w.out, 10); len(magnitude) >= maxBig-8 && tooLong(n) {
			return errDigits
		}
	case tagFloat:
		n, err := w.uint64()
		if err != nil {
			return err
		}
		f := math.Float64frombits(n)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%s has no JSON form", floatName(f))
		}
		w.out = appendNumber(w.out, f)
	case tagText:
		text, err := w.bytes()
		if err != nil {
			return err
		}
		if err := w.text(text); err != nil {
			return err
		}
	case tagList, tagDict:
		if depth == MaxDepth {
			return errDepth
		}
		if tag == tagList {
			err = w.list(depth + 1)
		} else {
			err = w.dict(depth + 1)
		}
		if err != nil {
			return err
		}
	default:
		return fmt.Errorf("no value begins with byte %d", tag)
	}
	if len(w.out) > MaxOut {
		return errLarge(MaxOut)
	}
	return nil
}

func errLarge(most int) error { return whole(fmt.Sprintf("larger than %d bytes", most)) }

func (w *writer) text(text []byte) error {
	if len(w.out)+len(text) > MaxOut {
		return errLarge(MaxOut)
	}
	if !utf8.Valid(text) {
		return errors.New("text that is not UTF-8 has no JSON form")
	}
	w.out = appendString(w.out, text)
	return nil
}

func (w *writer) list(depth int) error {
	n, err := w.count(1)
	if err != nil {
		return err
	}
	w.out = append(w.out, '[')
	for i := range n {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.value(depth); err != nil {
			return err
		}
	}
	w.out = append(w.out, ']')
	return nil
}

func (w *writer) dict(depth int) error {
	n, err := w.count(5)
	if err != nil {
		return err
	}
	var (
		names [few][]byte // of a small dict, to compare one by one
		seen  map[string]struct{}
	)
	if n > few {
		seen = make(map[string]struct{}, n)
	}
	w.out = append(w.out, '{')
	for i := range n {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		key, err := w.bytes()
		if err != nil {
			return err
		}
		twice := false
		if n > few {
			_, twice = seen[string(key)]
			seen[string(key)] = struct{}{}
		} else {
			for _, name := range names[:i] {
				twice = twice || bytes.Equal(name, key)
			}
			names[i] = key
		}
		if twice {
			return fmt.Errorf("two keys %.64q", key)
		}
		if err := w.text(key); err != nil {
			return err
		}
		w.out = append(w.out, ':')
		if err := w.value(depth); err != nil {
			return err
		}
	}
	w.out = append(w.out, '}')
	return nil
}

// appendNumber appends the shortest text that reads back as the same number: whole numbers
// that FromJSON makes integers of have neither fraction nor exponent.
func appendNumber(b []byte, f float64) []byte {
	if f == 0 {
		return append(b, '0')
	}
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.AppendInt(b, int64(f), 10)
	}
	e := strconv.AppendFloat(nil, f, 'e', -1, 64)
	// e+05 and e-05 are e5 and e-5.
	i := bytes.IndexByte(e, 'e')
	exp, _ := strconv.Atoi(string(e[i+1:]))
	e = strconv.AppendInt(e[:i+1], int64(exp), 10)
	if plain := strconv.AppendFloat(nil, f, 'f', -1, 64); len(plain) <= len(e) && bytes.IndexByte(plain, '.') >= 0 {
		return append(b, plain...)
	}
	return append(b, e...)
}

func floatName(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "+Inf"
	case math.IsInf(f, -1):
		return "-Inf"
	}
	return "NaN"
}

// tooLong reports whether an integer has more than MaxDigits digits.
func tooLong(n *big.Int) bool {
	if n.BitLen() <= 13606 { // MaxDigits × log2(10), rounded down
		return false
	}
	return len(n.Text(10)) > MaxDigits+1 || n.Sign() >= 0 && len(n.Text(10)) > MaxDigits
}

const hex = "0123456789abcdef"

// appendString appends a JSON string of a text that is UTF-8.
func appendString[T string | []byte](b []byte, s T) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}
