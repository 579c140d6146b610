package mcp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSplice(t *testing.T) {
	text := "0123456789"
	edit := func(from, to uint32, with string) Edit { return Edit{Span{from, to}, []byte(with)} }
	for _, c := range []struct {
		edits []Edit
		want  string
	}{
		{nil, "0123456789"},
		{[]Edit{{}}, "0123456789"},
		{[]Edit{edit(2, 4, "ab")}, "01ab456789"},
		{[]Edit{edit(2, 4, "")}, "01456789"},
		{[]Edit{edit(4, 4, "abc")}, "0123abc456789"},
		{[]Edit{edit(0, 0, "a"), edit(10, 10, "z")}, "a0123456789z"},
		{[]Edit{edit(8, 10, "z"), edit(0, 1, "a"), edit(4, 6, "m")}, "a123m67z"},
		{[]Edit{edit(2, 4, "ab"), edit(4, 6, "cd")}, "01abcd6789"},
		{[]Edit{edit(4, 4, "ab"), edit(4, 6, "cd")}, "0123abcd6789"},
		{[]Edit{edit(0, 10, "")}, ""},
	} {
		if got := string(Splice([]byte(">"), []byte(text), c.edits...)); got != ">"+c.want {
			t.Errorf("%v: got %s, want %s", c.edits, got, c.want)
		}
	}
}

func TestMembersAndElements(t *testing.T) {
	object := []byte(" { \"a\" : 1 ,\"b\\u0063\":[1, {\"x\":2}],\"\":\"}\\\"\" , \"o\":{ } } ")
	want := []pair{{"a", "1"}, {"bc", `[1, {"x":2}]`}, {"", `"}\""`}, {"o", "{ }"}}
	if got := members(object); !slices.Equal(got, want) || !slices.Equal(pairs(t, object), want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if m := Members(object)[1]; string(m.Name) != `b\u0063` {
		t.Errorf("a name is not as written: %s", m.Name)
	}
	array := []byte(" [ 1 ,\"],\",[ ],{\"a\":[2]} , null ] ")
	elements := []string{"1", `"],"`, "[ ]", `{"a":[2]}`, "null"}
	var got []string
	for _, e := range Elements(array) {
		got = append(got, string(e))
	}
	if !slices.Equal(got, elements) || !slices.Equal(items(t, array), elements) {
		t.Errorf("got %q, want %q", got, elements)
	}
	for i, s := range elementSpans(array) {
		if string(s.Of(array)) != elements[i] {
			t.Errorf("span %d is %s", i, s.Of(array))
		}
	}
	for _, text := range []string{"", " ", "{}", "[]", "1", `"x"`, "null", " { } "} {
		if m, e := Members([]byte(text)), Elements([]byte(text)); m != nil || e != nil {
			t.Errorf("%q has members %v and elements %v", text, m, e)
		}
	}
	// The slices end where the values do: to append to one harms nothing.
	_ = append(Members(object)[0].Value, "xxxx"...)
	_ = append(Elements(array)[0], "xxxx"...)
	if Valid(object) != nil || Valid(array) != nil {
		t.Error("an append to a value wrote into the text")
	}
}

func TestLookup(t *testing.T) {
	text := []byte(`{"a":{"b":[1],"c":{"d":null}},"x\u002fy":{"\"":5},"\u00e9":"é","":0}`)
	for _, c := range []struct {
		path []string
		want string
	}{
		{nil, string(text)}, {[]string{"a", "b"}, "[1]"}, {[]string{"a", "c", "d"}, "null"}, {[]string{"x/y", `"`}, "5"}, {[]string{"é"}, `"é"`}, {[]string{""}, "0"},
		{[]string{"A"}, ""}, {[]string{"a", "z"}, ""}, {[]string{"a", "b", "0"}, ""}, {[]string{"a", "b", ""}, ""}, {[]string{`x\u002fy`}, ""}, {[]string{"é", "x"}, ""}, {[]string{"b"}, ""},
	} {
		got := Lookup(text, c.path...)
		if string(got) != c.want || c.want == "" && got != nil {
			t.Errorf("%q: got %s, want %s", c.path, got, c.want)
		}
	}
}

func TestChange(t *testing.T) {
	for _, c := range []struct {
		object string
		drop   []string
		set    []Member
		want   string
	}{
		{`{}`, nil, nil, `{}`},
		{``, nil, nil, `{}`},
		{`null`, nil, []Member{With("a", "1")}, `{"a":1}`},
		{`[1]`, []string{"a"}, nil, `{}`},
		{`{"a":1}`, []string{"a"}, nil, `{}`},
		{`{"a":1,"b":2,"c":3}`, []string{"a"}, nil, `{"b":2,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, []string{"b"}, nil, `{"a":1,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, []string{"c", "b"}, nil, `{"a":1}`},
		{`{"a":1,"b":2,"c":3}`, []string{"A"}, nil, `{"a":1,"b":2,"c":3}`},
		{`{"a":1,"b":2}`, nil, []Member{With("b", "9")}, `{"a":1,"b":9}`},
		{`{"a":1,"b":2}`, nil, []Member{With("c", "9"), With("a", "0")}, `{"c":9,"a":0,"b":2}`},
		{`{"a":1,"b":2}`, []string{"a"}, []Member{With("c", "9")}, `{"c":9,"b":2}`},
		{`{"a":1,"b":2}`, []string{"a"}, []Member{With("a", "9")}, `{"a":9,"b":2}`},
		{`{"a":1}`, []string{"b"}, []Member{With("b", "9")}, `{"b":9,"a":1}`},
		{`{"\u0061":1,"b":2}`, []string{"a"}, nil, `{"b":2}`},
		{`{"\u0061":1,"b":2}`, nil, []Member{With("a", "9")}, `{"a":9,"b":2}`},
		{`{"a/b":1}`, nil, []Member{With(`a\/b`, "9")}, `{"a\/b":9}`},
		{" { \"a\" : { \"x\" : 1 } , \"b\" : 1e400 } ", nil, []Member{With("c", "0")}, `{"c":0,"a" : { "x" : 1 },"b" : 1e400}`},
	} {
		got := string(Change([]byte(c.object), c.drop, c.set...))
		if got != c.want {
			t.Errorf("%s without %q with %v: got %s, want %s", c.object, c.drop, c.set, got, c.want)
		}
	}
}

// without takes members out with the commas that belong to them, wherever they
// stand.
func TestWithout(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	for mask := range 16 {
		for _, space := range []string{"", " ", "\n\t"} {
			for _, meta := range []string{"", `"_meta":{"a":1,"b":2},`} {
				var params, drop []string
				for i, name := range names {
					text := fmt.Sprintf(`"%s"%s:%s[%d]`, name, space, space, i)
					params = append(params, text)
					if mask>>i&1 == 1 {
						drop = append(drop, name)
					}
				}
				text := `{"jsonrpc":"2.0","id":1,"method":"x","params":{` + space + meta + strings.Join(params, space+","+space) + space + `}}`
				m, err := Decode([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				got := Splice(nil, m.Raw, m.without(drop...)...)
				if err := Valid(got); err != nil {
					t.Fatalf("%s without %q is %s: %v", text, drop, got, err)
				}
				left := pairs(t, Lookup(got, "params"))
				kept := changed(pairs(t, m.Params.Of(m.Raw)), drop)
				if !slices.Equal(left, kept) {
					t.Errorf("%s without %q is %s", text, drop, got)
				}
				if mask == 0 && string(got) != text {
					t.Errorf("%s without nothing is %s", text, got)
				}
			}
		}
	}
}

// The time to change an object, or to take the known part of one, is linear in
// its size: a client sends its capabilities as large as it likes.
func TestRelayable(t *testing.T) {
	for _, c := range []struct{ caps, want string }{
		{`{}`, `{}`}, {``, `{}`}, {`null`, `{}`}, {`[]`, `{}`},
		{`{"sampling":{},"x":1,"elicitation":{"url":{}},"roots":{"listChanged":true},"tasks":{}}`, `{"sampling":{},"elicitation":{"url":{}},"roots":{"listChanged":true}}`},
		{`{"Sampling":{},"roots2":{}}`, `{}`},
		{`{"s\u0061mpling": {"tools" : {}}}`, `{"s\u0061mpling": {"tools" : {}}}`},
	} {
		if got := string(Relayable([]byte(c.caps), "sampling", "elicitation", "roots")); got != c.want {
			t.Errorf("%s: got %s, want %s", c.caps, got, c.want)
		}
	}
	many := func(n int) []byte {
		b := []byte{'{'}
		for i := range n {
			b = fmt.Appendf(b, `"x%d":0,`, i)
		}
		return append(b, `"roots":{}}`...)
	}
	took := func(n int) time.Duration {
		text := many(n)
		best := time.Duration(1<<63 - 1)
		for range 3 {
			start := time.Now()
			Relayable(text, "sampling", "roots")
			best = min(best, time.Since(start))
		}
		return best
	}
	few := took(5_000)
	lot := took(80_000)
	for range 4 { // a busy machine may have kept it waiting
		if lot > 80*max(few, time.Millisecond) {
			lot = min(lot, took(80_000))
		}
	}
	if lot > 80*max(few, time.Millisecond) {
		t.Errorf("16 times as many capabilities take %v instead of %v", lot, few)
	}
}
