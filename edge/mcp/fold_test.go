package mcp

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestZ03Folding: names that a reader may take for each other fold to the same,
// and no others.
func TestZ03Folding(t *testing.T) {
	for _, pair := range [][2]string{
		{"path", "Path"}, {"path", "PATH"}, {"paſs", "pass"}, {"\u212aey", "key"}, {"ı\u0130d", "Iid"}, {"straße", "STRAẞE"}, {"ÄÖ", "äö"}, {"σς", "ΣΣ"}, {"", ""},
	} {
		if Fold(pair[0]) != Fold(pair[1]) {
			t.Errorf("%q and %q: %q %q", pair[0], pair[1], Fold(pair[0]), Fold(pair[1]))
		}
	}
	for _, pair := range [][2]string{{"path", "pathx"}, {"a_b", "a-b"}, {"é", "e"}, {"ß", "ss"}, {"@", "`"}, {"[", "{"}} {
		if Fold(pair[0]) == Fold(pair[1]) {
			t.Errorf("%q and %q fold to the same", pair[0], pair[1])
		}
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			if Fold(string(r)) != Fold(string(f)) || !strings.EqualFold(string(r), string(f)) {
				t.Errorf("%q and %q", r, f)
			}
		}
		for _, other := range []rune{unicode.ToUpper(r), unicode.ToLower(r), unicode.ToTitle(r)} {
			if Fold(string(r)) != Fold(string(other)) {
				t.Errorf("%q and %q", r, other)
			}
		}
	}
}

// TestZ03CutFolded: of names that may be taken for each other those stay that are
// named.
func TestZ03CutFolded(t *testing.T) {
	for _, c := range []struct {
		path     []string
		in, want string
	}{
		{nil, `{"a":1, "A":2,"\u0041":3,"b":4,"B":5}`, `{"a":1,"b":4,"B":5}`},
		{nil, `{"A":{"a":1}}`, `{}`},
		{[]string{"x", "0"}, `{"A":1,"x":[{"A":2,"c":3}]}`, `{"A":1,"x":[{"c":3}]}`},
		{[]string{"x"}, `{"x":["A"]}`, `{"x":["A"]}`},
		{[]string{"y"}, `{"x":["A"]}`, `{"x":["A"]}`},
		{nil, `"A"`, `"A"`},
	} {
		d := NewDraft([]byte(c.in))
		d.CutFolded(c.path, map[string]struct{}{"a": {}})
		if got := string(d.Text()); got != c.want {
			t.Errorf("%s: %s", c.in, got)
		}
	}
	d := NewDraft([]byte(`{}`))
	for _, name := range []string{"A", "a", "b"} {
		if err := d.Put([]string{name}, []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	d.CutFolded(nil, map[string]struct{}{"a": {}})
	if got := string(d.Text()); got != `{"b":1,"a":1}` {
		t.Error(got)
	}
}
