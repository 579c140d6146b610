package main

import (
	"strings"
	"unicode"
	"unicode/utf8"

	weir "github.com/weir-edge/weir/sdk"
)

// rewrite goes over all strings of a JSON text once, however deep they are, and
// returns the text with what edit says in their place. Everything else keeps
// its bytes. key says that a string is the name of a member.
func rewrite(json []byte, edit func(text string, key bool) (string, bool)) ([]byte, bool) {
	var out []byte // nil while nothing has changed
	done := 0
	for i := 0; i < len(json); i++ {
		if json[i] != '"' {
			continue
		}
		end := i + 1
		for end < len(json) && json[end] != '"' {
			if json[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end+1, len(json))
		text := weir.Parse(json[i:end]).Text()
		if to, changed := edit(text, isKey(json[end:])); changed {
			if out == nil {
				out = make([]byte, 0, len(json))
			}
			out = weir.AppendText(append(out, json[done:i]...), to)
			done = end
		}
		i = end - 1
	}
	if out == nil {
		return json, false
	}
	return append(out, json[done:]...), true
}

// isKey says whether what follows a string makes it the name of a member.
func isKey(rest []byte) bool {
	for _, c := range rest {
		switch c {
		case ' ', '\t', '\n', '\r':
		default:
			return c == ':'
		}
	}
	return false
}

// unseen says whether a character shows nothing, or turns around what is shown:
// zero-width characters, tags, bidirectional controls, and so on. Those that
// join emoji and letters of some scripts are left where they join.
func unseen(r rune) bool {
	switch {
	case r < 0xad:
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' && r != 0x1b || r == 0x7f
	case r == 0xad, r == 0x34f, r == 0x61c, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x180e, r == 0x3164, r == 0xfeff, r == 0xffa0:
		return true
	case r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x206f:
		return true
	case r >= 0xfff9 && r <= 0xfffb:
		return true
	}
	return r >= 0xe0000 && r <= 0xe0fff
}

// joins says whether a zero-width joiner or non-joiner at this place does what
// it is for: it stands between characters that are not ASCII and are seen.
func joins(r rune, before, after rune) bool {
	return (r == 0x200c || r == 0x200d) && before > 0x2ff && after > 0x2ff && !unseen(before) && !unseen(after)
}

// strip takes away what is not seen.
func strip(s string) (string, bool) {
	ascii := true
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || c < ' ' || c == 0x7f {
			ascii = false
			break
		}
	}
	if ascii {
		return s, false
	}
	var out strings.Builder
	changed, before := false, rune(0)
	for i, r := range s {
		n := utf8.RuneLen(r)
		if r == utf8.RuneError {
			_, n = utf8.DecodeRuneInString(s[i:])
		}
		if unseen(r) {
			after, _ := utf8.DecodeRuneInString(s[i+n:])
			if !joins(r, before, after) {
				if !changed {
					changed = true
					out.Grow(len(s))
					out.WriteString(s[:i])
				}
				continue
			}
		}
		before = r
		if changed {
			out.WriteString(s[i : i+n])
		}
	}
	if !changed {
		return s, false
	}
	return out.String(), true
}

// looksLatin are letters of other scripts that look like Latin ones.
const looksLatin = "аеорсухіјѕһԁԛԝәʏɡιοανρυκτхАВЕКМНОРСТХУІЈЅΑΒΕΖΗΙΚΜΝΟΡΤΥΧօսոցհӏ"

// disguised says whether a name is made to be taken for another one: it mixes
// Latin letters with those of scripts that look alike, is wholly made of such,
// or has letters of a width or a style of their own.
func disguised(name string) bool {
	latin, other, alike := false, false, true
	for _, r := range name {
		switch {
		case unseen(r):
			return true
		case r >= 0xff01 && r <= 0xff5e, r >= 0x1d400 && r <= 0x1d7ff, r >= 0x2460 && r <= 0x24ff:
			return true
		case r < utf8.RuneSelf:
			latin = latin || unicode.IsLetter(r)
		case unicode.In(r, unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee) || strings.ContainsRune(looksLatin, r):
			other = true
			alike = alike && strings.ContainsRune(looksLatin, r)
		}
	}
	return other && (latin || alike)
}

// word returns the next word at or behind i, of letters, digits and
// apostrophes, and where it ends; "" at the end.
func word(s string, i int) (string, int) {
	for i < len(s) && !inWord(s[i]) {
		i++
	}
	start := i
	for i < len(s) && inWord(s[i]) {
		i++
	}
	return s[start:i], i
}

func inWord(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '\'' || c >= utf8.RuneSelf
}

// hasFold says whether s has a prefix, which is in lower case, in any case.
func hasFold(s, prefix string) bool {
	if len(s) < len(prefix) {
		return false
	}
	for i := 0; i < len(prefix); i++ {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != prefix[i] {
			return false
		}
	}
	return true
}
