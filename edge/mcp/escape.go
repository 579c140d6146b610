package mcp

import (
	"strings"
	"unicode/utf8"
)

func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, s)
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func word(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// unescapeUnreserved decodes the escapes of what needs none, but for dots, and
// writes the others in upper case. It reports false for escapes that are none.
func unescapeUnreserved(s string) (string, bool) {
	if !strings.Contains(s, "%") {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		c, ok := escaped(s, i)
		switch {
		case !ok:
			return "", false
		case word(c) || c == '-' || c == '~':
			b.WriteByte(c)
		default:
			b.WriteString(strings.ToUpper(s[i : i+3]))
		}
		i += 2
	}
	return b.String(), true
}

// escaped reads the escape at i.
func escaped(s string, i int) (byte, bool) {
	if i+2 >= len(s) {
		return 0, false
	}
	high, low := hexDigit(s[i+1]), hexDigit(s[i+2])
	return byte(high<<4 | low), high >= 0 && low >= 0
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// unescapeAll undoes every escape, once.
func unescapeAll(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if c, ok := escaped(s, i); ok && s[i] == '%' {
			b.WriteByte(c)
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// needsEscape reports whether a byte has to be escaped in every part of a URI.
func needsEscape(c byte) bool {
	return c >= utf8.RuneSelf || strings.IndexByte(" \"<>^`{|}", c) >= 0
}

// isPlain reports whether a URI has neither escapes nor what needs them.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] == '%' || needsEscape(s[i]) {
			return false
		}
	}
	return true
}

// escapeAll escapes what has to be.
func escapeAll(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; needsEscape(c) {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
