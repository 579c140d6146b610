package mcp

import (
	"encoding/base64"
	"strings"
	"testing"
	"unicode/utf8"
)

func encoded(text string) string {
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

func TestM03HeaderValues(t *testing.T) {
	for _, c := range []struct{ name, value, header string }{
		{"empty", "", ""},
		{"a name", "search_issues", "search_issues"},
		{"inner spaces", "a b  c", "a b  c"},
		{"all of printing ASCII", "!\"#$%&'()*+,-./09:;<=>?@AZ[\\]^_`az{|}~", "!\"#$%&'()*+,-./09:;<=>?@AZ[\\]^_`az{|}~"},
		{"a URI", "file:///tmp/a%20b?x=1#y", "file:///tmp/a%20b?x=1#y"},
		{"space first", " a", encoded(" a")},
		{"space last", "a ", encoded("a ")},
		{"only a space", " ", encoded(" ")},
		{"tab inside", "a\tb", encoded("a\tb")},
		{"line end", "a\r\nX-Evil: 1", encoded("a\r\nX-Evil: 1")},
		{"NUL", "a\x00", encoded("a\x00")},
		{"DEL", "a\x7f", encoded("a\x7f")},
		{"not ASCII", "погода", encoded("погода")},
		{"emoji", "😀", encoded("😀")},
		{"no-break space at the end", "a\u00a0", encoded("a\u00a0")},
		{"looks encoded", "=?base64?ZXZpbA==?=", encoded("=?base64?ZXZpbA==?=")},
		{"nested twice", encoded("=?base64?ZXZpbA==?="), encoded(encoded("=?base64?ZXZpbA==?="))},
		{"begins like the marker", "=?base64?", encoded("=?base64?")},
		{"markers that share a character", "=?base64?=", encoded("=?base64?=")},
		{"another case of the marker", "=?BASE64?ZXZpbA==?=", "=?BASE64?ZXZpbA==?="},
		{"another encoding", "=?utf-8?B?ZXZpbA==?=", "=?utf-8?B?ZXZpbA==?="},
		{"only the end marker", "abc?=", "abc?="},
		{"marker inside", "x=?base64?ZXZpbA==?=", "x=?base64?ZXZpbA==?="},
	} {
		if got := EncodeHeader(c.value); got != c.header {
			t.Errorf("%s: %q is written %q, not %q", c.name, c.value, got, c.header)
		}
		if got, err := DecodeHeader(c.header); err != nil || got != c.value {
			t.Errorf("%s: %q is read as %q, %v, not %q", c.name, c.header, got, err, c.value)
		}
	}
}

func TestM03HeaderDecoding(t *testing.T) {
	for _, c := range []struct {
		name, header, want string
		bad                bool
	}{
		{name: "plain text in base64", header: "=?base64?ZXZpbA==?=", want: "evil"},
		{name: "nothing in base64", header: "=?base64??=", want: ""},
		{name: "one layer only is taken off", header: encoded("=?base64?ZXZpbA==?="), want: "=?base64?ZXZpbA==?="},
		{name: "tab inside", header: "a\tb", want: "a\tb"},
		{name: "start marker alone", header: "=?base64?ZXZpbA==", want: "=?base64?ZXZpbA=="},
		{name: "markers that share a character", header: "=?base64?=", want: "=?base64?="},
		{name: "case of the marker", header: "=?Base64?ZXZpbA==?=", want: "=?Base64?ZXZpbA==?="},

		{name: "no padding", header: "=?base64?ZXZpbA?=", bad: true},
		{name: "half the padding", header: "=?base64?ZXZpbA=?=", bad: true},
		{name: "too much padding", header: "=?base64?ZXZpbA===?=", bad: true},
		{name: "bits after the end", header: "=?base64?ZXZpbB==?=", bad: true},
		{name: "one character", header: "=?base64?Z?=", bad: true},
		{name: "space inside", header: "=?base64?ZXZp bA==?=", bad: true},
		{name: "tab inside base64", header: "=?base64?ZXZp\tbA==?=", bad: true},
		{name: "line end inside", header: "=?base64?ZXZp\r\nbA==?=", bad: true},
		{name: "line feed inside", header: "=?base64?ZXZp\nbA==?=", bad: true},
		{name: "the alphabet of URLs", header: "=?base64?-_-_?=", bad: true},
		{name: "marker inside the marker", header: "=?base64?=?base64?ZXZpbA==?=?=", bad: true},
		{name: "two values", header: "=?base64?ZXZpbA==?= =?base64?ZXZpbA==?=", bad: true},
		{name: "bytes that are not UTF-8", header: "=?base64?/w==?=", bad: true},
		{name: "a surrogate", header: "=?base64?7aCA?=", bad: true},
		{name: "not ASCII", header: "é", bad: true},
		{name: "NUL", header: "a\x00", bad: true},
		{name: "line end", header: "a\nb", bad: true},
		{name: "DEL", header: "a\x7f", bad: true},
		{name: "a byte above", header: "a\xff", bad: true},
	} {
		got, err := DecodeHeader(c.header)
		if c.bad && (err == nil || got != "") {
			t.Errorf("%s: %q is read as %q, %v", c.name, c.header, got, err)
		}
		if !c.bad && (err != nil || got != c.want) {
			t.Errorf("%s: %q is read as %q, %v, not %q", c.name, c.header, got, err, c.want)
		}
	}
}

func FuzzHeader(f *testing.F) {
	for _, s := range []string{"", "a", " a", "é", "=?base64?ZXZpbA==?=", encoded("=?base64?eA==?="), "=?base64?=", "=?base64??=", "=?base64?Z\nXZp?=", "=?base64?/w==?=", "a\tb", "\x7f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		header := EncodeHeader(s)
		for i := range len(header) {
			if header[i] < 0x20 || header[i] > 0x7e {
				t.Fatalf("%q is written %q", s, header)
			}
		}
		if header != strings.Trim(header, " ") {
			t.Fatalf("%q is written %q, whose ends a server trims", s, header)
		}
		got, err := DecodeHeader(header)
		if utf8.ValidString(s) && (err != nil || got != s) {
			t.Fatalf("%q is written %q and read as %q, %v", s, header, got, err)
		}
		if !utf8.ValidString(s) && err == nil {
			t.Fatalf("%q is written %q and read as %q", s, header, got)
		}
		// A value that is read is that of one text only: written again it is read
		// as the same.
		if text, err := DecodeHeader(s); err == nil {
			if again, err := DecodeHeader(EncodeHeader(text)); err != nil || again != text {
				t.Fatalf("%q is read as %q, and that again as %q, %v", s, text, again, err)
			}
			if !utf8.ValidString(text) {
				t.Fatalf("%q is read as %q", s, text)
			}
		}
	})
}
