package mcp

import (
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// The table of characters that become delimiters is that of Unicode.
func TestZ05Delimiters(t *testing.T) {
	bits := notPlain()
	for r := rune(0x80); r <= 0x10FFFF; r++ {
		if 0xD800 <= r && r < 0xE000 || norm.NFKC.PropertiesString(string(r)).Decomposition() == nil {
			continue
		}
		if bits[r/64]&(1<<(r%64)) == 0 && strings.ContainsAny(norm.NFKC.String(string(r)), `./\:;%?#@|`) {
			t.Errorf("U+%04X is %q when it is normalised", r, norm.NFKC.String(string(r)))
		}
	}
	for _, c := range []struct {
		text  string
		plain bool
	}{
		{"", true}, {"a b", true}, {"é日本", true}, {"\u00a0", true}, {"\U0001F600", true},
		{"\x7f", false}, {"\n", false}, {"\xff", false}, {"a\xc3", false}, {"\ufffd", false}, {"\u200d", false}, {"\u202e", false}, {"\ufe0f", false}, {"\U000E0001", false}, {"\uffff", false}, {"／", false}, {"¥", false},
	} {
		if got := plainText(c.text); got != c.plain {
			t.Errorf("%q: %v", c.text, got)
		}
	}
}

// A URI has a bounded number of readings, which are bounded in their size.
func TestZ05Readings(t *testing.T) {
	for _, one := range []string{
		"file://host/" + strings.Repeat("é;x/", 500) + "?y#z", "https://u@h/" + strings.Repeat("%C3%A9;x/", 500) + "?y#z", "file:///" + strings.Repeat("ﬃ", 1000), strings.Repeat("é", 4000),
	} {
		r, ok := ReadURI(one)
		if len(r.Others) > maxReadings+8 {
			t.Errorf("%.40q has %d readings", one, len(r.Others))
		}
		for _, other := range r.Others {
			if ok && len(other) > 4*len(one) {
				t.Errorf("%.40q becomes %d bytes of %d", one, len(other), len(one))
			}
		}
	}
	if _, ok := ReadURI("file:///" + strings.Repeat("ﷺ", 100)); ok {
		t.Error("what becomes many times as long is read")
	}
	for _, plain := range []string{"file:///a/b.txt", "https://h/x?y=z", "test://template/123/data", "urn:isbn:0451450523", "weather"} {
		if r, ok := ReadURI(plain); !ok || len(r.Others) > 0 || r.Canonical != plain {
			t.Errorf("%q: %+v, %v", plain, r, ok)
		}
	}
}
