package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge/edgetest/heavy"
)

// undefined names the files of the JSONTestSuite on which RFC 8259 leaves the
// choice to the parser and that are refused here, with the reason.
var undefined = map[string]string{
	"i_object_key_lone_2nd_surrogate.json":                "lone surrogate",
	"i_string_1st_surrogate_but_2nd_missing.json":         "lone surrogate",
	"i_string_1st_valid_surrogate_2nd_invalid.json":       "lone surrogate",
	"i_string_incomplete_surrogate_and_escape_valid.json": "lone surrogate",
	"i_string_incomplete_surrogate_pair.json":             "lone surrogate",
	"i_string_incomplete_surrogates_escape_valid.json":    "lone surrogate",
	"i_string_invalid_lonely_surrogate.json":              "lone surrogate",
	"i_string_invalid_surrogate.json":                     "lone surrogate",
	"i_string_inverted_surrogates_U+1D11E.json":           "lone surrogate",
	"i_string_lone_second_surrogate.json":                 "lone surrogate",
	"i_string_UTF-8_invalid_sequence.json":                "invalid UTF-8",
	"i_string_UTF8_surrogate_U+D800.json":                 "invalid UTF-8",
	"i_string_invalid_utf-8.json":                         "invalid UTF-8",
	"i_string_iso_latin_1.json":                           "invalid UTF-8",
	"i_string_lone_utf8_continuation_byte.json":           "invalid UTF-8",
	"i_string_not_in_unicode_range.json":                  "invalid UTF-8",
	"i_string_overlong_sequence_2_bytes.json":             "invalid UTF-8",
	"i_string_overlong_sequence_6_bytes.json":             "invalid UTF-8",
	"i_string_overlong_sequence_6_bytes_null.json":        "invalid UTF-8",
	"i_string_truncated-utf-8.json":                       "invalid UTF-8",
	"i_string_UTF-16LE_with_BOM.json":                     "UTF-16",
	"i_string_utf16BE_no_BOM.json":                        "UTF-16",
	"i_string_utf16LE_no_BOM.json":                        "UTF-16",
	// RFC 8259 §8.1 lets a parser ignore a byte order mark; a peer that does not
	// would refuse what the edge had passed on.
	"i_structure_UTF-8_BOM_empty_object.json": "byte order mark",
}

// The suite's y_ files that RFC 8259 allows and RFC 7493 §2.3 does not.
var duplicates = map[string]bool{
	"y_object_duplicated_key.json":           true,
	"y_object_duplicated_key_and_value.json": true,
}

func TestB06JSONTestSuite(t *testing.T) {
	files, err := filepath.Glob("testdata/json-parsing/*.json")
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, file := range files {
		name := filepath.Base(file)
		count[name[:2]]++
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		accept := name[0] == 'y' && !duplicates[name] || name[0] == 'i' && undefined[name] == ""
		err = Valid(text)
		var syntax *SyntaxError
		switch {
		case accept && err != nil:
			t.Errorf("%s is refused: %v", name, err)
		case !accept && err == nil:
			t.Errorf("%s is accepted", name)
		case !accept && !errors.As(err, &syntax):
			t.Errorf("%s is refused with %T, not with a *SyntaxError", name, err)
		case !accept && (syntax.Offset < 0 || syntax.Offset > len(text)):
			t.Errorf("%s is refused at byte %d of %d", name, syntax.Offset, len(text))
		}
		// As the body of a request the text is malformed in the same cases,
		// and in the others it is JSON that is no message.
		_, err = Decode(text)
		if malformed := errors.As(err, &syntax); malformed == accept {
			t.Errorf("%s as a message: %v", name, err)
		}
		if err == nil {
			t.Errorf("%s is a message", name)
		}
		// And so it is inside a message.
		body := append(append([]byte(`{"jsonrpc":"2.0","method":"x","params":{"x":`), text...), "}}"...)
		_, err = Decode(body)
		if accept && err != nil {
			t.Errorf("%s in params is refused: %v", name, err)
		}
		if !accept && !errors.As(err, &syntax) {
			t.Errorf("%s in params: %v", name, err)
		}
	}
	if count["n_"] != 188 || count["y_"] != 95 || count["i_"] != 35 {
		t.Errorf("the suite has 188 n_, 95 y_ and 35 i_ files; found %v", count)
	}
}

func TestB05Depth(t *testing.T) {
	for _, c := range []struct {
		name              string
		open, middle, end string
	}{
		{"arrays", "[", "", "]"},
		{"objects", `{"a":`, "0", "}"},
		{"arrays with space", " [ ", "1", " ] "},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range []int{1, MaxDepth - 1, MaxDepth} {
				if err := Valid(nested(n, c.open, c.middle, c.end)); err != nil {
					t.Errorf("%d deep: %v", n, err)
				}
			}
			for _, n := range []int{MaxDepth + 1, 9_999, 10_001, 2_000_000} {
				var syntax *SyntaxError
				if err := Valid(nested(n, c.open, c.middle, c.end)); !errors.As(err, &syntax) || !strings.Contains(syntax.What, "nesting") {
					t.Errorf("%d deep: %v", n, err)
				} else if limit := len(c.open) * (MaxDepth + 1); syntax.Offset > limit {
					t.Errorf("%d deep: refused only at byte %d, above %d", n, syntax.Offset, limit)
				}
			}
		})
	}
	t.Run("two million alternating in a message", func(t *testing.T) {
		text := nested(1_000_000, `[{"a":`, "0", "}]")
		body := append(append([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":`), text...), "}}"...)
		var err error
		grown := allocated(func() { _, err = Decode(body) })
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("got %v", err)
		}
		if grown > 1<<20 {
			t.Errorf("%d bytes were allocated to refuse it", grown)
		}
	})
	t.Run("siblings do not add up", func(t *testing.T) {
		deep := string(nested(MaxDepth-1, "[", "", "]"))
		text := []byte("[" + strings.Repeat(deep+",", 50) + deep + "]")
		if err := Valid(text); err != nil {
			t.Error(err)
		}
	})
}

// In a hashed object each name is compared with all that are there.
func TestB07EveryPairOfNames(t *testing.T) {
	for _, n := range []int{2, wide, wide + 1, 30, 70, 500} {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf(`"k%d":0`, i)
		}
		plain := "{" + strings.Join(names, ",") + "}"
		if err := Valid([]byte(plain)); err != nil {
			t.Fatalf("%d names: %v", n, err)
		}
		for i := range n {
			for _, again := range []string{`"k%d"`, `"\u006b%d"`} {
				text := plain[:len(plain)-1] + "," + fmt.Sprintf(again, i) + ":1}"
				if Valid([]byte(text)) == nil {
					t.Fatalf("the name %d of %d may come twice", i, n)
				}
			}
		}
	}
}

func TestB07DuplicateNames(t *testing.T) {
	many := func(n int, last string) string {
		var b strings.Builder
		b.WriteByte('{')
		for i := range n {
			fmt.Fprintf(&b, `"key%d":%d,`, i, i)
		}
		return b.String() + last + ":0}"
	}
	for _, c := range []struct {
		name, text string
		twice      bool
	}{
		{"plain", `{"a":1,"a":2}`, true},
		{"apart", `{"a":1,"b":2,"a":2}`, true},
		{"empty names", `{"":1,"":2}`, true},
		{"escaped second", `{"method":1,"me\u0074hod":2}`, true},
		{"escaped first", `{"me\u0074hod":1,"method":2}`, true},
		{"both escaped", `{"\u006dethod":1,"me\u0074hod":2}`, true},
		{"case of the digits", `{"\u00e9":1,"\u00E9":2}`, true},
		{"escape and raw letter", `{"\u00e9":1,"é":2}`, true},
		{"pair and raw letter", `{"\ud83d\ude00":1,"😀":2}`, true},
		{"slash", `{"a/b":1,"a\/b":2}`, true},
		{"short escape and long", `{"\n":1,"\u000a":2}`, true},
		{"inside", `{"x":[{"y":{"a":1,"a":1}}]}`, true},
		{"of an array", `[{"a":1,"a":1}]`, true},
		{"at the limit of comparing", many(wide-1, `"key3"`), true},
		{"one above", many(wide, `"key3"`), true},
		{"above, escaped", many(wide+3, `"key\u0033"`), true},
		{"far above", many(5000, `"key4999"`), true},
		{"far above, escaped", many(5000, `"\u006bey0"`), true},
		{"with a wide object before it", `{"a":` + many(100, `"z"`) + `,"a":1}`, true},
		{"wide, with a wide object inside", many(40, `"z":`+many(100, `"z"`)+`,"key7"`), true},

		{"case", `{"a":1,"A":2}`, false},
		{"long s", `{"s":1,"ſ":2}`, false},
		{"composed and not", `{"\u00e9":1,"e\u0301":2}`, false},
		{"prefix", `{"a":1,"ab":2,"":3}`, false},
		{"prefix, escaped", `{"\u0061":1,"\u0061b":2,"ab\u0063":3}`, false},
		{"NUL and nothing", `{"\u0000":1,"":2}`, false},
		{"inner and outer", `{"a":{"a":{"a":1}},"b":{"a":1}}`, false},
		{"siblings", `[{"a":1},{"a":1}]`, false},
		{"above", many(wide+3, `"key\u005f"`), false},
		{"far above", many(5000, `"key5000"`), false},
		{"wide inside wide", many(40, `"z":`+many(100, `"z"`)+`,"y"`), false},
	} {
		err := Valid([]byte(c.text))
		var syntax *SyntaxError
		if c.twice && (!errors.As(err, &syntax) || !strings.Contains(syntax.What, "duplicate")) {
			t.Errorf("%s: got %v, want a duplicate name", c.name, err)
		}
		if !c.twice && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if other := second([]byte(c.text)); (other != nil) != c.twice {
			t.Errorf("%s: the second implementation says %v", c.name, other)
		}
	}
}

// The time for names is linear however they are chosen. Sixteen times as many
// names take sixteen times as long, a quadratic check would take 256 times.
func TestB09ManyNames(t *testing.T) {
	for _, c := range []struct {
		name string
		key  func(i int) string
		n    int
	}{
		{"a million distinct names", func(i int) string { return fmt.Sprintf("k%07d", i) }, 1_000_000},
		{"a million escaped names", func(i int) string { return fmt.Sprintf(`\u006b%06x`, i) }, 1_000_000},
		// Each of these has the same sum for every hash of the form h*31+c.
		{"names that collide in hashes without a seed", func(i int) string {
			var b [20]byte
			for bit := range 10 {
				copy(b[2*bit:], "Aa")
				if i>>bit&1 == 1 {
					copy(b[2*bit:], "BB")
				}
			}
			return string(b[:]) + fmt.Sprintf("%06d", i>>10)
		}, 1 << 18},
	} {
		t.Run(c.name, func(t *testing.T) {
			object := func(n int) []byte {
				b := []byte{'{'}
				for i := range n {
					b = append(append(append(b, '"'), c.key(i)...), `":0,`...)
				}
				b[len(b)-1] = '}'
				return b
			}
			took := func(text []byte) time.Duration {
				best := time.Duration(1<<63 - 1)
				for range 3 {
					best = min(best, heavy.CPU(func() {
						if err := Valid(text); err != nil {
							t.Fatal(err)
						}
					}))
				}
				return best
			}
			if raceEnabled {
				c.n /= 8 // the detector makes all of it slow
			}
			// Sixteen times the names: 16 if linear, 256 if quadratic. Few fit the
			// processor's caches and many do not, and whoever else runs has a
			// part of those: 20 to 50 is usual, and 92 was seen once, so that one
			// measurement does not decide.
			var few, many time.Duration
			for range 3 {
				few, many = took(object(c.n/16)), took(object(c.n))
				t.Logf("%d names in %v, %d in %v", c.n/16, few, c.n, many)
				if many <= 80*max(few, time.Millisecond) {
					return
				}
			}
			t.Errorf("%d names took %v, %d took %v: more than linear", c.n/16, few, c.n, many)
		})
	}
}

func TestB08Texts(t *testing.T) {
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{`0`, true}, {`-0`, true}, {`-0.0e-0`, true}, {`1e400`, true}, {`1E+400`, true}, {`9007199254740993`, true},
		{`123456789012345678901234567890.5e-99999`, true},
		{` null`, true}, {"\t\r\n true \n", true}, {`false`, true}, {`""`, true}, {`"\u0000"`, true},
		{`"\"\\\/\b\f\n\r\t\u12aF"`, true}, {"\"\x7f\"", true}, {"\"\u2028\u2029\ufeff\uffff\"", true}, {"\"\U0010ffff\"", true},
		{`[ ]`, true}, {`{ }`, true}, {`{"":""}`, true}, {"{\"a\"\t:\r1\n,\"b\" : 2 }", true},

		{"", false}, {"  ", false}, {"\ufeff{}", false}, {"\ufeff", false}, {`{} {}`, false}, {`{}x`, false}, {"{}\x00", false}, {"1 2", false},
		{`NaN`, false}, {`Infinity`, false}, {`-Infinity`, false}, {`+1`, false}, {`01`, false}, {`-01`, false}, {`-`, false}, {`.5`, false},
		{`1.`, false}, {`1.e5`, false}, {`1e`, false}, {`1e+`, false}, {`0x10`, false}, {`1_000`, false}, {`--1`, false},
		{`nul`, false}, {`nulll`, false}, {`True`, false}, {`t`, false}, {`undefined`, false},
		{`"`, false}, {`"\`, false}, {`"\"`, false}, {`"\u`, false}, {`"\u12`, false}, {`"\u123g"`, false}, {`"\x41"`, false}, {`"\a"`, false},
		{`"\ud800"`, false}, {`"\udc00"`, false}, {`"\ud800\ud800"`, false}, {`"\ud800\u0041"`, false}, {`"\ud800x"`, false}, {`"\ud800\n"`, false},
		{"\"\n\"", false}, {"\"\t\"", false}, {"\"\x00\"", false}, {"\"\x1f\"", false}, {"\"\x80\"", false}, {"\"\xc0\xaf\"", false}, {"\"\xed\xa0\x80\"", false},
		{"\"\xf4\x90\x80\x80\"", false}, {"\"\xf0\x9f\x98\"", false}, {"\"\xc3", false}, {"\xff", false},
		{`'a'`, false}, {`{a:1}`, false}, {`{'a':1}`, false}, {`{"a"}`, false}, {`{"a":}`, false}, {`{"a":1,}`, false}, {`{,}`, false}, {`{"a":1 "b":2}`, false}, {`{1:2}`, false},
		{`{"a":1,,"b":2}`, false}, {`{"a"::1}`, false}, {`[1,]`, false}, {`[,1]`, false}, {`[1 2]`, false}, {`[1,,2]`, false}, {`[`, false}, {`{`, false}, {`{"a"`, false},
		{`{"a":`, false}, {`{"a":1`, false}, {`{"a":1,`, false}, {`]`, false}, {`}`, false}, {`[}`, false}, {`{]`, false}, {`[1}`, false},
		{"\u00a0{}", false}, {"\v{}", false}, {"\f1", false}, {`// x`, false}, {`/* */ 1`, false}, {`{"a":1}//`, false}, {`#`, false},
	} {
		err := Valid([]byte(c.text))
		if (err == nil) != c.ok {
			t.Errorf("%q: %v", c.text, err)
		}
		if other := second([]byte(c.text)); (other == nil) != c.ok {
			t.Errorf("%q: the second implementation says %v", c.text, other)
		}
	}
}

// What is UTF-8 is what the standard library takes for it, at the end of a
// string and before more of it.
func TestStringsOfAnyBytes(t *testing.T) {
	check := func(text ...byte) {
		for _, rest := range []string{"", "x", "xx", "é"} {
			raw := append(append([]byte{'"'}, text...), rest+`"`...)
			if want := utf8.Valid(raw); (Valid(raw) == nil) != want {
				t.Fatalf("%q is UTF-8: %v; valid: %v", raw, want, Valid(raw))
			}
		}
	}
	tails := []byte{0x20, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff}
	for a := 0x80; a < 0x100; a++ {
		check(byte(a))
		for b := 0x7d; b < 0x100; b++ {
			check(byte(a), byte(b))
			for _, c := range tails {
				check(byte(a), byte(b), c)
				if a >= 0xf0 {
					for _, d := range tails {
						check(byte(a), byte(b), c, d)
					}
				}
			}
		}
	}
}

// A quote, a backslash, a control character or a byte that is not ASCII is
// found at every place of a word of eight bytes, whatever surrounds it.
func TestStringsByteByByte(t *testing.T) {
	for size := range 19 {
		for at := range size {
			for c := range 256 {
				for _, fill := range []byte{' ', '!', '#', '/', '[', ']', '~', 0x7f} {
					b := make([]byte, size+2)
					for i := range b {
						b[i] = fill
					}
					b[0], b[size+1] = '"', '"'
					b[at+1] = byte(c)
					want := c >= 0x20 && c < 0x80 && c != '"' && (c != '\\' || at+1 < size && fill == '/')
					if got := Valid(b) == nil; got != want {
						t.Fatalf("%q: valid is %v", b, got)
					}
				}
			}
		}
	}
}

func TestUnquote(t *testing.T) {
	// Every character, raw and escaped in either case of the digits, as another
	// decoder reads it.
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		var forms []string
		if r >= 0x20 && r != '"' && r != '\\' {
			forms = append(forms, string(r))
		}
		if r < 0x10000 {
			forms = append(forms, fmt.Sprintf(`\u%04x`, r), fmt.Sprintf(`\u%04X`, r))
		} else {
			hi, lo := 0xD800+(r-0x10000)>>10, 0xDC00+(r-0x10000)&0x3FF
			forms = append(forms, fmt.Sprintf(`\u%04x\u%04X`, hi, lo))
		}
		for _, form := range forms {
			if got := string(Unquote([]byte(form))); got != string(r) {
				t.Fatalf("%s says %q, not %q", form, got, string(r))
			}
			if err := Valid([]byte(`"` + form + `"`)); err != nil {
				t.Fatalf("%q: %v", form, err)
			}
		}
	}
	// Half a character stands for none.
	for r := rune(0xD800); r <= 0xDFFF; r++ {
		for _, text := range []string{fmt.Sprintf(`"\u%04x"`, r), fmt.Sprintf(`"\u%04X\u0061"`, r), fmt.Sprintf(`"\ud800\u%04x"`, r)} {
			if want := text[:7] == `"\ud800` && r >= 0xDC00; (Valid([]byte(text)) == nil) != want {
				t.Fatalf("%s: %v", text, Valid([]byte(text)))
			}
		}
	}
	for _, text := range []string{
		`""`, `"a"`, `"\""`, `"a\\b"`, `"\/\b\f\n\r\t"`, `"\u0041\u0042"`, `"x\ud83d\ude00y"`, `"\u005cn"`, `"\\u0041"`, `"é\u00e9😀\ud83d\ude00"`,
		`"` + strings.Repeat(`\n`, 1000) + `"`, `"` + strings.Repeat("long text ", 1000) + `\t"`,
	} {
		var want string
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if got := String([]byte(text)); got != want {
			t.Errorf("%s says %q, not %q", text, got, want)
		}
	}
	// What is not a valid string comes back without harm.
	for _, text := range []string{`\`, `\u`, `\u00`, `\ud800`, `\ud800\u0041`, `\x`, `a\`, "\xff\\"} {
		if got := string(Unquote([]byte(text))); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	// Text without escapes is not copied.
	text := []byte("plain")
	if got := Unquote(text); &got[0] != &text[0] {
		t.Error("text without escapes was copied")
	}
}

func TestValidAllocatesNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		text []byte
	}{
		{"a call", aCall},
		{"a result of 64 KiB", aResult(1 << 16)},
		{"a structure of 64 KiB", aStructure(1 << 16)},
		{"escaped names", escapedNames(1 << 12)},
	} {
		if n := testing.AllocsPerRun(200, func() {
			if err := Valid(c.text); err != nil {
				t.Fatal(err)
			}
		}); n > 0 && !raceEnabled {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

// A message that has made the scanner's tables large does not leave them
// behind for the small ones.
func TestScannerReleasesLargeTables(t *testing.T) {
	for _, c := range []struct{ names, long int }{{100_000, 1}, {3000, 1}, {2500, 1}, {20, 10_000}} {
		var b strings.Builder
		b.WriteByte('{')
		for i := range c.names {
			fmt.Fprintf(&b, `"%d":0,`, i)
		}
		b.WriteString(`"\u0020` + strings.Repeat("x", c.long) + `":0}`)
		if err := Valid([]byte(b.String())); err != nil {
			t.Fatal(err)
		}
		s := newScanner(nil)
		if cap(s.keys) > 4096 || cap(s.table) > 4096 || cap(s.text) > 4096 || s.note.m != nil {
			t.Fatalf("after %d names, one of %d bytes, a scanner of the pool holds %d keys, a table of %d and a text of %d",
				c.names, c.long, cap(s.keys), cap(s.table), cap(s.text))
		}
		s.release()
	}
}
