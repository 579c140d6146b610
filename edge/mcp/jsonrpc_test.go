package mcp

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

func TestAppendMessages(t *testing.T) {
	for _, c := range []struct {
		got  []byte
		want string
		kind Kind
	}{
		{AppendResult(nil, []byte("1"), []byte(`{}`)), `{"jsonrpc":"2.0","id":1,"result":{}}`, Result},
		{AppendResult(nil, []byte(`"a"`), []byte(`[1]`)), `{"jsonrpc":"2.0","id":"a","result":[1]}`, Result},
		{AppendError(nil, []byte("1"), CodeInvalidParams, "no such \"tool\"\n", nil), `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such \"tool\"\n"}}`, Failure},
		{AppendError(nil, nil, CodeParse, "bad", nil), `{"jsonrpc":"2.0","error":{"code":-32700,"message":"bad"}}`, Failure},
		{AppendError(nil, []byte("7"), 429, "limit", []byte(`{"a":1}`)), `{"jsonrpc":"2.0","id":7,"error":{"code":429,"message":"limit","data":{"a":1}}}`, Failure},
		{AppendRequest(nil, []byte("1"), "ping", nil), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, Request},
		{AppendRequest(nil, nil, "notifications/x", []byte(`{"a":1}`)), `{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1}}`, Notification},
	} {
		if string(c.got) != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
		if m, err := Decode(c.got); err != nil || m.Kind != c.kind {
			t.Errorf("%s: %v", c.got, err)
		}
	}
	if got := AppendResult([]byte("before "), []byte("1"), []byte("2")); !bytes.HasPrefix(got, []byte("before {")) {
		t.Errorf("what was there is gone: %s", got)
	}
}

func TestSameID(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`1`, `1`, true}, {`"a"`, `"a"`, true}, {`"a"`, `"\u0061"`, true}, {`"\u00e9"`, `"é"`, true}, {`"\/"`, `"/"`, true}, {`""`, `""`, true},
		{`9007199254740993`, `9007199254740993`, true},
		{`1`, `"1"`, false}, {`"1"`, `1`, false}, {`1`, `2`, false}, {`9007199254740993`, `9007199254740992`, false}, {`"a"`, `"b"`, false}, {`"a"`, `"A"`, false}, {`""`, `"a"`, false},
		{``, `1`, false}, {`1`, ``, false}, {``, `""`, false}, {`"`, `""`, false},
	} {
		if got := SameID([]byte(c.a), []byte(c.b)); got != c.same {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}

func TestCodeAndStatus(t *testing.T) {
	for text, want := range map[string]int{
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":""}}`:         -32002,
		`{"jsonrpc":"2.0","error":{"message":"","code":429}}`:                   429,
		`{"jsonrpc":"2.0","id":1,"error":{"message":""}}`:                       0,
		`{"jsonrpc":"2.0","id":1,"error":{"code":"-32002","message":""}}`:       0,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":""}}`:            0,
		`{"jsonrpc":"2.0","id":1,"error":{"_meta":{"code":1},"message":""}}`:    0,
		`{"jsonrpc":"2.0","id":1,"result":{"code":-32002}}`:                     0,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"code":-32002}}`:        0,
		`{"jsonrpc":"2.0","id":1,"error":{"c\u006fde":-32601,"message":"esc"}}`: -32601,
	} {
		m, err := Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Code(); got != want {
			t.Errorf("%s has code %d, not %d", text, got, want)
		}
	}
	for code, want := range map[int]int{
		CodeMethodNotFound: 404, CodeParse: 400, CodeInvalidRequest: 400, CodeInvalidParams: 400, CodeHeaderMismatch: 400, CodeMissingCapability: 400, CodeVersion: 400,
		CodeInternal: 200, 429: 200, 0: 200, CodeResourceNotFound: 200,
	} {
		if got := Status("no/such", code); got != want {
			t.Errorf("status of %d is %d, not %d", code, got, want)
		}
		if code == CodeMethodNotFound {
			want = 200
		}
		for _, method := range []string{"tools/call", "resources/read", "prompts/get"} {
			if got := Status(method, code); got != want {
				t.Errorf("status of %d to %s is %d, not %d", code, method, got, want)
			}
		}
	}
}

func TestSaysAndText(t *testing.T) {
	m, err := Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"se\u0061rch","n":1,"empty":"","_meta":{"progressToken":"t\n","k":null}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Text("name"); got != "search" {
		t.Errorf("name says %q", got)
	}
	if got := m.MetaText("progressToken"); got != "t\n" {
		t.Errorf("progressToken says %q", got)
	}
	if m.Text("n") != "" || m.Text("absent") != "" || m.MetaText("k") != "" || m.MetaText("name") != "" || m.Text("progressToken") != "" {
		t.Error("something says what it does not")
	}
	if !m.Says("name", "search") || m.Says("name", `se\u0061rch`) || m.Says("n", "1") || m.Says("absent", "") || !m.Says("empty", "") || !m.MetaSays("progressToken", "t\n") {
		t.Error("Says does not say what Text says")
	}
}

func TestAppendString(t *testing.T) {
	all := make([]rune, 0, 0x400)
	for r := rune(0); r < 0x400; r++ {
		all = append(all, r)
	}
	for _, s := range []string{"", "a", string(all), "\u2028\u2029\ufffd\uffff\U0010ffff", "\xff", "a\xc3", "\xed\xa0\x80", `\"/`, "</script>"} {
		text := Quote(s)
		var got string
		if err := json.Unmarshal(text, &got); err != nil || got != string([]rune(s)) {
			t.Errorf("%q is written %s and read as %q, %v", s, text, got, err)
		}
		if err := Valid(text); err != nil {
			t.Errorf("%q is written %q: %v", s, text, err)
		}
		if got := String(text); got != string([]rune(s)) {
			t.Errorf("%q is written %s and says %q", s, text, got)
		}
	}
}

func FuzzString(f *testing.F) {
	for _, s := range []string{"", "a", "\"\\", "\x00\x1f\x7f", "é😀", "\xff\xfe", `\u0061`, `\ud83d\ude00`, `\ud800`, "a\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// Written as a string, it says what it is.
		text := Quote(s)
		if err := Valid(text); err != nil {
			t.Fatalf("%q is written %q: %v", s, text, err)
		}
		if got := String(text); got != string([]rune(s)) {
			t.Fatalf("%q is written %q and says %q", s, text, got)
		}
		// Taken for what stands between quotes, it says what others read.
		raw := []byte(`"` + s + `"`)
		if Valid(raw) != nil {
			if utf8.ValidString(s) && second(raw) == nil {
				t.Fatalf("%q is a string for the second implementation", raw)
			}
			_ = Unquote([]byte(s)) // does no harm
			return
		}
		want := said(t, raw)
		if got := String(raw); got != want {
			t.Fatalf("%q says %q, not %q", raw, got, want)
		}
		var v1 string
		if err := json.Unmarshal(raw, &v1); err != nil || v1 != want {
			t.Fatalf("%q says %q, %v to encoding/json", raw, v1, err)
		}
		if !alike([]byte(s), text[1:len(text)-1]) && s == want {
			t.Fatalf("%q and %q are not alike", s, text)
		}
		other := Quote(want)
		if !alike([]byte(s), other[1:len(other)-1]) || !same(other[1:len(other)-1], []byte(s)) || !reads([]byte(s), want) {
			t.Fatalf("%q and %s are not alike", raw, other)
		}
		if alike([]byte(s), append(other[1:len(other)-1], 'x')) {
			t.Fatalf("%q is alike one that is longer", raw)
		}
	})
}

func TestLookupTwo(t *testing.T) {
	for _, object := range []string{`{}`, `[]`, `1`, `{"a":1}`, `{"b":2}`, `{"a":1,"b":2}`, `{"b":{"a":3},"x":[],"a":"b"}`, `{"\u0061":1,"b":2}`} {
		a, b := LookupTwo([]byte(object), "a", "b")
		if want := Lookup([]byte(object), "a"); !bytes.Equal(a, want) {
			t.Errorf("%s: a is %s, want %s", object, a, want)
		}
		if want := Lookup([]byte(object), "b"); !bytes.Equal(b, want) {
			t.Errorf("%s: b is %s, want %s", object, b, want)
		}
	}
}

func TestKept(t *testing.T) {
	for id, want := range map[string]bool{
		``: true, `0`: true, `-7`: true, `"9007199254740993"`: true, `99999999999999`: true,
		`-0`: false, `999999999999999`: false, `9007199254740993`: false, `1.0`: false, `1e3`: false,
	} {
		if Kept([]byte(id)) != want {
			t.Errorf("%s: %t", id, !want)
		}
	}
}
