package scripting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"sort"
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
	if len(p.doubled) > 0 {
		return p.united(), nil
	}
	return p.out, nil
}

type parser struct {
	text    []byte
	at      int
	left    int
	out     []byte
	doubled []doubled // in the order in which they end
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
		twice   map[int]int // the index of a first member, and of the last of its name; of a later one, and -1
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
			twice[earlier], twice[len(members)] = len(members), -1
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
				n = p.double(members, twice)
			}
			binary.LittleEndian.PutUint32(p.out[place:], uint32(n))
			return nil
		default:
			return p.unexpected()
		}
	}
}

// span is a part of the wire form.
type span struct{ from, to int }

// doubled is an object with equal names: where its members lie, and which names and values
// they are in the end.
type doubled struct {
	span
	members []struct{ name, value span }
}

// double notes an object with equal names, and returns how many members it has in the end:
// one of each name, at the first one's place, with the last one's value.
func (p *parser) double(members []member, twice map[int]int) int {
	d := doubled{span: span{members[0].key, len(p.out)}}
	for i, m := range members {
		last, ok := twice[i]
		if ok && last < 0 {
			continue
		}
		v := m
		if ok {
			v = members[last]
		}
		d.members = append(d.members, struct{ name, value span }{span{m.key, m.value}, span{v.value, v.end}})
	}
	p.doubled = append(p.doubled, d)
	return len(d.members)
}

// united is the wire form with one member of each name. All objects are united at once, so
// that one within another is not copied for each of them.
func (p *parser) united() []byte {
	slices.SortFunc(p.doubled, func(a, b doubled) int { return a.from - b.from })
	return p.unite(make([]byte, 0, len(p.out)), span{0, len(p.out)})
}

func (p *parser) unite(out []byte, s span) []byte {
	for {
		i := sort.Search(len(p.doubled), func(i int) bool { return p.doubled[i].from >= s.from })
		if i == len(p.doubled) || p.doubled[i].from >= s.to {
			return append(out, p.out[s.from:s.to]...)
		}
		d := p.doubled[i]
		out = append(out, p.out[s.from:d.from]...)
		for _, m := range d.members {
			out = append(out, p.out[m.name.from:m.name.to]...)
			out = p.unite(out, m.value)
		}
		s.from = d.to
	}
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
