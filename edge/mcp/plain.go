package mcp

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// plainText reports whether every reader sees the same characters in a text.
func plainText(s string) bool {
	hidden := (*[unicode.MaxRune/64 + 1]uint64)(nil)
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c < ' ' || c == 0x7f {
				return false
			}
			i++
			continue
		}
		if hidden == nil {
			hidden = notPlain()
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError || hidden[r/64]&(1<<(r%64)) != 0 {
			return false
		}
		i += size
	}
	return true
}

// notPlain is a bit for each character that readers see differently: those that
// they do not see, and those that stand for a dot, a slash, a backslash or another
// delimiter.
var notPlain = sync.OnceValue(func() *[unicode.MaxRune/64 + 1]uint64 {
	bits := new([unicode.MaxRune/64 + 1]uint64)
	add := func(r rune) { bits[r/64] |= 1 << (r % 64) }
	for _, t := range []*unicode.RangeTable{
		unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Noncharacter_Code_Point,
	} {
		for _, some := range t.R16 {
			for r := rune(some.Lo); r <= rune(some.Hi); r += rune(some.Stride) {
				add(r)
			}
		}
		for _, some := range t.R32 {
			for r := rune(some.Lo); r <= rune(some.Hi); r += rune(some.Stride) {
				add(r)
			}
		}
	}
	for _, r := range delimiters {
		add(r)
	}
	return bits
})

// delimiters are the characters beyond ASCII that become one of ./\:;%?#@| when
// they are normalised (NFKC), and those that Windows takes for one where it looks
// for the best fit (bestfit1252.txt and others).
const delimiters = "\u037e\u2024\u2025\u2026\u2047\u2048\u2049\u2100\u2101\u2105\u2106\u2488\u2489\u248a\u248b\u248c\u248d\u248e\u248f" +
	"\u2490\u2491\u2492\u2493\u2494\u2495\u2496\u2497\u2498\u2499\u249a\u249b\u2a74\u33c2\u33c7\u33d8\ufe13\ufe14\ufe16\ufe19\ufe30" +
	"\ufe52\ufe54\ufe55\ufe56\ufe5f\ufe68\ufe6a\ufe6b\uff03\uff05\uff0e\uff0f\uff1a\uff1b\uff1f\uff20\uff3c\uff5c\U0001f100" +
	"\u2044\u2215\u29f8\u2216\u29f5\u00a5\u20a9\u20e5\u066a\u0589\u2236\u01c0\u2223\u2758"
