package mcp

import (
	"bytes"
	"errors"
	"slices"
)

// Edit replaces a span of a text; an empty span inserts.
type Edit struct {
	Span
	With []byte
}

// Splice appends text to dst with the edits made. The edits must not overlap;
// they may come in any order.
func Splice(dst, text []byte, edits ...Edit) []byte {
	if len(edits) > 1 {
		slices.SortStableFunc(edits, func(a, b Edit) int { return int(a.Start) - int(b.Start) })
	}
	at := uint32(0)
	for _, e := range edits {
		dst = append(dst, text[at:e.Start]...)
		dst = append(dst, e.With...)
		at = e.End
	}
	return append(dst, text[at:]...)
}

// Member is a name and a value of an object. Name has no quotes and, in what
// Members returns, is as written, with its escapes.
type Member struct {
	Name  []byte
	Value []byte
	whole Span // from the opening quote of the name to the end of the value
}

// Members returns the members of a valid JSON object in order; nil for any
// other value.
func Members(object []byte) []Member {
	var out []Member
	each(object, '{', func(s *scanner) error {
		m, err := s.member()
		if err == nil {
			out = append(out, m)
		}
		return err
	})
	return out
}

// member reads a member of a valid object.
func (s *scanner) member() (Member, error) {
	from := s.i
	k, err := s.string()
	if err != nil {
		return Member{}, err
	}
	s.space()
	s.i++ // the colon
	s.space()
	at := s.i
	err = s.value()
	return Member{
		Name:  s.b[k.start:k.end:k.end],
		Value: s.b[at:s.i:s.i],
		whole: Span{uint32(from), uint32(s.i)},
	}, err
}

// same reports whether two names, as written, are one.
func same(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if len(a) < len(b) {
		a, b = b, a
	}
	// An escape is longer than what it says.
	return bytes.IndexByte(a, '\\') >= 0 && alike(a, b)
}

// reads reports whether a name, as written, says name.
func reads(written []byte, name string) bool { return string(Unquote(written)) == name }

// Elements returns the elements of a valid JSON array; nil for any other value.
func Elements(array []byte) [][]byte {
	var out [][]byte
	each(array, '[', func(s *scanner) error {
		from := s.i
		if err := s.value(); err != nil {
			return err
		}
		out = append(out, array[from:s.i:s.i])
		return nil
	})
	return out
}

// each calls f at every member or element of a value that starts with open, as
// long as f returns nil.
func each(value []byte, open byte, f func(*scanner) error) {
	s := newScanner(value)
	defer s.release()
	s.space()
	if s.i >= len(value) || value[s.i] != open {
		return
	}
	for s.i++; ; s.i++ {
		s.space()
		if s.i >= len(value) || value[s.i] == '}' || value[s.i] == ']' {
			return
		}
		if f(s) != nil {
			return
		}
		s.space()
		if s.i >= len(value) || value[s.i] != ',' {
			return
		}
	}
}

// Lookup walks down a valid JSON value by names; nil when one is not there.
func Lookup(value []byte, path ...string) []byte {
	for _, name := range path {
		var found []byte
		each(value, '{', func(s *scanner) error {
			m, err := s.member()
			if err == nil && reads(m.Name, name) {
				found, err = m.Value, errFound
			}
			return err
		})
		if found == nil {
			return nil
		}
		value = found
	}
	return value
}

// LookupTwo is Lookup of two members of one object, in one walk.
func LookupTwo(object []byte, one, two string) (a, b []byte) {
	each(object, '{', func(s *scanner) error {
		m, err := s.member()
		switch {
		case err != nil:
		case a == nil && reads(m.Name, one):
			a = m.Value
		case b == nil && reads(m.Name, two):
			b = m.Value
		}
		if a != nil && b != nil {
			err = errFound
		}
		return err
	})
	return a, b
}

// errFound ends a walk early.
var errFound = errors.New("found")

// Change returns the object without the members named in drop and with those
// in set: an old value is replaced where it stands, a new one comes first. A
// member in both is set. What stays keeps its bytes. A value that is not an
// object is taken as {}. The names in drop are what names say, without escapes.
func Change(object []byte, drop []string, set ...Member) []byte {
	if out, ok := before(object, drop, set); ok {
		return out
	}
	members := Members(object)
	out := make([]byte, 0, len(object)+64)
	out = append(out, '{')
	put := func(name, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), name...), '"', ':')
		out = append(out, value...)
	}
	for _, m := range set {
		if !slices.ContainsFunc(members, func(o Member) bool { return same(o.Name, m.Name) }) {
			put(m.Name, m.Value)
		}
	}
	for _, m := range members {
		if i := slices.IndexFunc(set, func(o Member) bool { return same(o.Name, m.Name) }); i >= 0 {
			put(set[i].Name, set[i].Value)
			continue
		}
		if slices.ContainsFunc(drop, func(name string) bool { return reads(m.Name, name) }) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, m.whole.Of(object)...)
	}
	return append(out, '}')
}

// before is Change where nothing that is there goes: the new members stand before
// the rest, which is copied as it is, however much that is. It reports false
// otherwise.
func before(object []byte, drop []string, set []Member) (out []byte, ok bool) {
	if len(object) == 0 || object[0] != '{' {
		return nil, false
	}
	empty := true
	ok = true
	Each(object, func(name, _ []byte) bool {
		empty = false
		ok = !slices.ContainsFunc(set, func(m Member) bool { return same(name, m.Name) }) && !slices.ContainsFunc(drop, func(d string) bool { return reads(name, d) })
		return ok
	})
	if !ok || empty {
		return nil, false
	}
	size := len(object)
	for _, m := range set {
		size += len(m.Name) + len(m.Value) + len(`"":,`)
	}
	out = append(make([]byte, 0, size), '{')
	for _, m := range set {
		out = append(append(append(out, '"'), m.Name...), '"', ':')
		out = append(append(out, m.Value...), ',')
	}
	return append(out, object[1:]...), true
}

// AppendObject appends an object of these members.
func AppendObject(dst []byte, members ...Member) []byte {
	if dst == nil {
		n := 2
		for _, m := range members {
			n += len(m.Name) + len(m.Value) + len(`"":,`)
		}
		dst = make([]byte, 0, n)
	}
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), m.Name...), '"', ':')
		dst = append(dst, m.Value...)
	}
	return append(dst, '}')
}

// With is a Member of text.
func With(name, value string) Member { return Member{Name: []byte(name), Value: []byte(value)} }

// Raw is a Member whose value is JSON text at hand.
func Raw(name string, value []byte) Member { return Member{Name: []byte(name), Value: value} }

// AppendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r == '\t':
			dst = append(dst, '\\', 't')
		case r == '\r':
			dst = append(dst, '\\', 'r')
		case r < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = append(dst, string(r)...)
		}
	}
	return append(dst, '"')
}

// Quote returns s as a JSON string.
func Quote(s string) []byte { return AppendString(make([]byte, 0, len(s)+2), s) }
