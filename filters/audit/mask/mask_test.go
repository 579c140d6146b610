package mask_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weir-edge/weir/filters/audit/mask"
)

func TestName(t *testing.T) {
	for _, name := range []string{"password", "PASSWORD", "pass_word", "userPassword", "db-passwd", "access_token", "X-Api-Key", "Authorization",
		"client.secret", "privateKey", "Set-Cookie", "code_verifier", "to\u212Aen", "\u017Fecret", strings.Repeat("x", 257)} {
		if !mask.Name(name) {
			t.Errorf("%q is not taken for the name of a secret", name)
		}
	}
	for _, name := range []string{"", "city", "name", "arguments", "progressToken", "uri", "method", "pässe", "cursor", "shipping"} {
		if mask.Name(name) {
			t.Errorf("%q is taken for the name of a secret", name)
		}
	}
}

func TestAppend(t *testing.T) {
	cases := []struct {
		name, in string
		limit    int
		want     string
		whole    bool
	}{
		{"white space goes", "{ \"a\" :\n[ 1 , true,null ] }", 100, `{"a":[1,true,null]}`, true},
		{"a secret", `{"password":"hunter2","user":"u"}`, 100, `{"password":"[REDACTED]","user":"u"}`, true},
		{"a nested one", `{"a":[{"b":{"api_key":12}}]}`, 100, `{"a":[{"b":{"api_key":"[REDACTED]"}}]}`, true},
		{"an object under the name of one", `{"credentials":{"u":"v","w":["}"]},"x":1}`, 100, `{"credentials":"[REDACTED]","x":1}`, true},
		{"a name with escapes", `{"pass\u0077ord":"hunter2"}`, 100, `{"pass\u0077ord":"[REDACTED]"}`, true},
		{"in a string of JSON", `{"text":"{\"token\": \"abc\", \"n\": 1}"}`, 100, `{"text":"{\"token\":\"[REDACTED]\",\"n\":1}"}`, true},
		{"in a string of JSON in one", `{"a":"{\"b\":\"{\\\"token\\\":\\\"abc\\\"}\"}"}`, 200, `{"a":"{\"b\":\"{\\\"token\\\":\\\"[REDACTED]\\\"}\"}"}`, true},
		{"behind escaped white space", `{"a":"\n\u007b\"token\":\"abc\"}"}`, 100, `{"a":"{\"token\":\"[REDACTED]\"}"}`, true},
		{"several values in a string", `{"a":"{\"token\":\"abc\"}\n{\"key\":1}"}`, 100, `{"a":"{\"token\":\"[REDACTED]\"}\n{\"key\":\"[REDACTED]\"}"}`, true},
		{"behind a number that is none", `{"a":"{\"n\": NaN, \"password\": \"hunter2\"}"}`, 100, `{"a":"{\"n\":NaN,\"password\":\"[REDACTED]\"}"}`, true},
		{"behind others", `{"a":"[-Infinity, {\"n\": None, \"key\": NaN, \"password\": \"hunter2\"}]"}`, 100, `{"a":"[-Infinity,{\"n\":None,\"key\":\"[REDACTED]\",\"password\":\"[REDACTED]\"}]"}`, true},
		{"no such number outside of strings", `{"n":NaN,"password":"hunter2"}`, 100, `{"n":`, false},
		{"a string that only begins like JSON", `{"a":"[see below] text"}`, 100, `{"a":"[see below] text"}`, true},
		{"another", `{"a":"[See Below] text"}`, 100, `{"a":"[See Below] text"}`, true},
		{"cut", `{"a":"0123456789"}`, 10, `{"a":"0123`, false},
		{"cut in a masked string", `{"a":"{\"token\":\"abc\",\"b\":\"0123456789\"}"}`, 40, `{"a":"{\"token\":\"[REDACTED]\",\"b`, false},
		{"cut before a secret", `{"a":1,"token":"abc"}`, 12, `{"a":1,`, false},
		{"no room at all", `{"a":1}`, 0, ``, false},
		{"ANSI and others", "{\"a\":\"\x7f\u009b\u202e\u2028\"}", 100, `{"a":"\u007f\u009b\u202e\u2028"}`, true},
		{"no JSON", `{"a" 1}`, 100, `{"a"`, false},
		{"two values", `1 2`, 100, `1`, false},
		{"a string without an end", `"abc`, 100, `"abc`, false},
	}
	for _, c := range cases {
		out, whole := mask.Append(nil, []byte(c.in), c.limit)
		if whole != c.whole || whole && string(out) != c.want || !whole && !strings.HasPrefix(string(out), c.want) {
			t.Errorf("%s:\n got %s %v\nwant %s %v", c.name, out, whole, c.want, c.whole)
		}
		if whole && !json.Valid(out) {
			t.Errorf("%s: %s is no JSON", c.name, out)
		}
		if len(out) > c.limit {
			t.Errorf("%s: %d bytes", c.name, len(out))
		}
	}
}

// A secret does not come out because the value before it is cut, is long, or
// used up what may be looked at.
func TestNothingBehindTheCut(t *testing.T) {
	long := strings.Repeat("x", 300_000)
	for _, in := range []string{
		`{"token":"` + long + `","a":"b","secret":"hunter2"}`,
		`{"a":"` + long + `","secret":"hunter2"}`,
		`{"key":["` + strings.Repeat(`a","`, 70_000) + `"],"b":"c","secret":"hunter2"}`,
		`{"a":"{\"b\":\"` + long + `\",\"secret\":\"hunter2\"}","secret":"hunter2"}`,
		`{"` + long + `":"hunter2"}`,
	} {
		for _, limit := range []int{0, 1, 30, 1024, 20_000} {
			out, _ := mask.Append(nil, []byte(in), limit)
			if strings.Contains(string(out), "hunter2") {
				t.Errorf("%.40s… with %d: the secret is in what is written down", in, limit)
			}
		}
	}
}

// Every byte is found at every place, and nothing else is taken for one.
func TestAppendTextEverywhere(t *testing.T) {
	for c := range 256 {
		for at := range 17 {
			text := strings.Repeat("x~ ", 6)[:17]
			text = text[:at] + string([]byte{byte(c)}) + text[at+1:]
			want := []byte{'"'}
			for _, r := range text {
				want = mask.AppendRune(want, r)
			}
			if got := mask.AppendText(nil, text); string(got) != string(want)+`"` {
				t.Fatalf("%q: %s, want %s", text, got, want)
			}
		}
	}
}

func TestAppendText(t *testing.T) {
	for _, s := range []string{"", "plain", "a\"b\\c", "x\n{\"level\":\"AUDIT\"}", "\x1b[31mred", "\u009b31m", "a\r\nb", "\u202egnp.exe", "\xff\xfe", "日本"} {
		got := mask.AppendText(nil, s)
		var back string
		if err := json.Unmarshal(got, &back); err != nil || back != strings.ToValidUTF8(s, "\uFFFD") && utf8.ValidString(s) {
			t.Errorf("%q: %s %v", s, got, err)
		}
		for _, r := range string(got) {
			if r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0x202e {
				t.Errorf("%q: %q in it", s, r)
			}
		}
	}
}

func FuzzAppend(f *testing.F) {
	f.Add([]byte(`{"a":[1,"x",{"token":"SECRET"}],"b":"{\"key\":\"SECRET\"}"}`), 64)
	f.Add([]byte(`{"token":{"a":["SECRET"]},"x`), 1024)
	f.Fuzz(func(t *testing.T, in []byte, limit int) {
		if limit < 0 || limit > 1<<16 {
			return
		}
		out, whole := mask.Append(nil, in, limit)
		if len(out) > limit {
			t.Errorf("%d bytes of %d", len(out), limit)
		}
		if !whole || !json.Valid(in) {
			return
		}
		if !json.Valid(out) {
			t.Errorf("%q became %q", in, out)
		}
		if again, w := mask.Append(nil, out, 2*len(out)+100); !w || string(again) != string(out) {
			t.Errorf("%q became %q, and that %q", in, out, again)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	in := []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello","password":"hunter2","n":12}}}`)
	dst := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		dst, _ = mask.Append(dst[:0], in, 1024)
	}
}

// URIs lose their userinfo and what their query says of secrets, wherever in a
// text they stand.
func TestURI(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                                  "plain",
		"https://example.com/x?a=1#f":            "https://example.com/x?a=1#f",
		"https://u:p@example.com/x":              "https://[REDACTED]@example.com/x",
		"https://h/?token=t&a=1&to%6ben=t":       "https://h/?token=[REDACTED]&a=1&to%6ben=[REDACTED]",
		"https://h/cb#access_token=t&state=s":    "https://h/cb#access_token=[REDACTED]&state=s",
		"https://h/?%zz=t":                       "https://h/?%zz=[REDACTED]",
		"see db://u:p@h/x, and https://v@w?key=": "see db://[REDACTED]@h/x, and https://[REDACTED]@w?key=[REDACTED]",
		"https://h?x=http://u:p@i":               "https://h?x=http://[REDACTED]@i",
	} {
		if got := mask.URI(in); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
		for _, written := range []string{string(mask.AppendText(nil, in)), strings.ReplaceAll(string(mask.AppendText(nil, in)), "/", `\/`)} {
			if got, whole := mask.Append(nil, []byte(`{"uri":`+written+`}`), 1000); !whole || string(got) != `{"uri":`+string(mask.AppendText(nil, want))+`}` && !strings.Contains(written, `\/`) {
				t.Errorf("%s became %s", written, got)
			} else if strings.Contains(string(got), "u:p") {
				t.Errorf("%s became %s", written, got)
			}
		}
	}
}
