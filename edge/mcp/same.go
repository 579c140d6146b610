package mcp

import (
	"bytes"
	"strconv"
)

// Same reports whether two valid JSON texts are the same value (RFC 6902 §4.6):
// strings by what they say, numbers by how much they are, objects whatever the
// order of their members. It takes time in proportion to their lengths.
func Same(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y Outline
	if x.Read(a, Bounds{}) != nil || y.Read(b, Bounds{}) != nil || len(x.Nodes) != len(y.Nodes) {
		return false
	}
	return sameNodes(&x, &y, 0, 0)
}

func sameNodes(x, y *Outline, n, m int) bool {
	a, b := x.Value(n), y.Value(m)
	switch {
	case a[0] == '"' && b[0] == '"':
		return String(a) == String(b)
	case number(a) && number(b):
		return sameNumber(a, b)
	case a[0] != b[0] || x.End(n)-n != y.End(m)-m:
		return false
	case a[0] == '[':
		i, j := x.First(n), y.First(m)
		for ; i < x.End(n) && j < y.End(m); i, j = x.After(i), y.After(j) {
			if !sameNodes(x, y, i, j) {
				return false
			}
		}
		return i == x.End(n) && j == y.End(m)
	case a[0] == '{':
		members := make(map[string]int)
		for j := y.First(m); j < y.End(m); j = y.After(j) {
			members[string(Unquote(y.Name(j)))] = j
		}
		count := 0
		for i := x.First(n); i < x.End(n); i = x.After(i) {
			j, ok := members[string(Unquote(x.Name(i)))]
			if !ok || !sameNodes(x, y, i, j) {
				return false
			}
			count++
		}
		return count == len(members)
	}
	return bytes.Equal(a, b)
}

func number(v []byte) bool { return v[0] == '-' || '0' <= v[0] && v[0] <= '9' }

func sameNumber(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	n, d, e, ok := magnitude(a)
	m, f, g, also := magnitude(b)
	return ok && also && n == m && e == g && bytes.Equal(d, f)
}

// magnitude is a number as its digits without zeros on either end, and the power
// of ten that they are taken by. It reports false for an exponent beyond all use.
func magnitude(text []byte) (negative bool, digits []byte, power int, ok bool) {
	if text[0] == '-' {
		negative, text = true, text[1:]
	}
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		var err error
		if power, err = strconv.Atoi(string(text[i+1:])); err != nil || power < -1<<40 || power > 1<<40 {
			return false, nil, 0, false
		}
		text = text[:i]
	}
	whole, fraction, _ := bytes.Cut(text, []byte{'.'})
	digits = append(append(make([]byte, 0, len(text)), whole...), fraction...)
	power -= len(fraction)
	digits = bytes.TrimLeft(digits, "0")
	all := len(digits)
	digits = bytes.TrimRight(digits, "0")
	if len(digits) == 0 {
		return false, nil, 0, true
	}
	return negative, digits, power + all - len(digits), true
}
