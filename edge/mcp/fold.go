package mcp

import (
	"unicode"
	"unicode/utf8"
)

// AppendFold appends what a name is to readers that ignore case: two names that
// one of them may take for each other fold to the same. Those are all that
// strings.EqualFold holds equal (Unicode simple folding: U+017F is an s, U+212A a
// k), and those that become equal in capitals or in small letters, as U+0130 and
// U+0131 become an i.
func AppendFold(dst, name []byte) []byte {
	for i := 0; i < len(name); {
		c := name[i]
		if c < utf8.RuneSelf {
			if 'a' <= c && c <= 'z' {
				c -= 'a' - 'A'
			}
			dst = append(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(name[i:])
		dst = utf8.AppendRune(dst, leastFold(unicode.ToUpper(unicode.ToLower(leastFold(r)))))
		i += n
	}
	return dst
}

// Fold is AppendFold of a string.
func Fold(name string) string { return string(AppendFold(nil, []byte(name))) }

// leastFold is the least of the characters that fold to each other.
func leastFold(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return least
}
