package scripting

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// clip cuts a text to a number of bytes, between characters.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// Clean is what of a stranger's text an error may say: MaxMessage bytes, without characters
// that steer a terminal or begin a line.
func Clean(s string) string {
	return clip(strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\u2028', r == '\u2029':
			return ' '
		case unicode.IsControl(r), r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
			return -1
		}
		return r
	}, clip(s, 2*MaxMessage)), MaxMessage)
}
