package mask

import (
	"strings"
	"unicode/utf8"
)

// unescape returns what a JSON string says, from behind its opening quote to
// the closing one, of about limit bytes at most; length is how much of text
// that takes, with the quote, and ended whether it is the end of the string.
func unescape(text []byte, limit int) (said []byte, length int, ended bool) {
	said = make([]byte, 0, min(limit, len(text), 64)+utf8.UTFMax) // most strings are short
	for i := 0; i < len(text) && len(said) < limit; {
		c := text[i]
		switch {
		case c == '"':
			return said, i + 1, true
		case c != '\\':
			said = append(said, c)
			i++
			continue
		case i+1 >= len(text):
			return said, len(text), false
		}
		if k := strings.IndexByte(`"\/bfnrt`, text[i+1]); k >= 0 {
			said = append(said, "\"\\/\b\f\n\r\t"[k])
			i += 2
			continue
		}
		r, n := unit(text[i:])
		if n == 0 {
			said = append(said, text[i+1])
			i += 2
			continue
		}
		i += n
		if r >= 0xD800 && r < 0xDC00 {
			if low, n := unit(text[i:]); low >= 0xDC00 && low < 0xE000 {
				r = (r-0xD800)<<10 + (low - 0xDC00) + 0x10000
				i += n
			}
		}
		said = utf8.AppendRune(said, r)
	}
	return said, len(text), false
}

// unit reads an escape of the form \uXXXX; n is 0 when there is none.
func unit(text []byte) (r rune, n int) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, 0
	}
	for _, c := range text[2:6] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 + rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 + rune(c|0x20-'a') + 10
		default:
			return 0, 0
		}
	}
	return r, 6
}

// AppendText appends s as a JSON string that is safe to print: invalid UTF-8
// becomes U+FFFD, and control characters, those of C1, line and paragraph
// separators and those that turn the direction of text become escapes.
func AppendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for at := safe(s, 0); at < len(s); at = safe(s, from) {
		dst = append(dst, s[from:at]...)
		r, n := utf8.DecodeRuneInString(s[at:])
		dst = AppendRune(dst, r)
		from = at + n
	}
	return append(append(dst, s[from:]...), '"')
}

// safe returns the index of the first byte from i on that AppendText looks at:
// a quote, a backslash, a control character or no ASCII; len(s) for none.
func safe(s string, i int) int {
	const (
		low  = 0x0101010101010101
		high = 0x8080808080808080
	)
	for ; i+8 <= len(s); i += 8 {
		w := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		if (w|(w-low*0x20)|(w+low)|(w^(low*'"')-low)|(w^(low*'\\')-low))&high != 0 {
			break
		}
	}
	for i < len(s) && s[i] >= 0x20 && s[i] < 0x7f && s[i] != '"' && s[i] != '\\' {
		i++
	}
	return i
}

// AppendRune appends a character as it stands in a JSON string of AppendText.
func AppendRune(dst []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	switch {
	case r == '"' || r == '\\':
		return append(dst, '\\', byte(r))
	case r == '\n':
		return append(dst, '\\', 'n')
	case r < 0x20, r >= 0x7f && r < 0xa0, r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff:
		return append(dst, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
	}
	return utf8.AppendRune(dst, r)
}
