package mcp

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

// walked writes an outline down again from its nodes alone.
func walked(b *strings.Builder, o *Outline, n int) {
	v := o.Value(n)
	switch v[0] {
	case '{', '[':
		b.WriteByte(v[0])
		for i := o.First(n); i < o.End(n); i = o.After(i) {
			if i > o.First(n) {
				b.WriteByte(',')
			}
			if v[0] == '{' {
				b.WriteString(`"` + string(o.Name(i)) + `":`)
			}
			walked(b, o, i)
		}
		b.WriteByte(v[0] + 2)
	default:
		b.Write(v)
	}
}

func TestOutline(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`1`: `1`, ` "a" `: `"a"`, `{}`: `{}`, `[]`: `[]`,
		` { "a" : [ 1 , { "b\"}" : null } , [ ] ] , "c" : "]" } `: `{"a":[1,{"b\"}":null},[]],"c":"]"}`,
		`{"":{"":""},"é":-1.5e3}`:                                 `{"":{"":""},"é":-1.5e3}`,
		`[["a","b"],["\\"],"\\\""]`:                               `[["a","b"],["\\"],"\\\""]`,
	} {
		var o Outline
		if err := o.Read([]byte(in), Bounds{}); err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		var b strings.Builder
		walked(&b, &o, 0)
		if b.String() != want {
			t.Errorf("%s: %s, want %s", in, b.String(), want)
		}
	}
}

func TestOutlineBounds(t *testing.T) {
	t.Parallel()
	var o Outline
	if err := o.Read([]byte(`[1,2,3]`), Bounds{Values: 4}); err != nil {
		t.Error(err)
	}
	if err := o.Read([]byte(`[1,2,3]`), Bounds{Values: 3}); !errors.Is(err, ErrManyValues) {
		t.Error(err)
	}
	if err := o.Read([]byte(`[{"a":[]}]`), Bounds{Depth: 3}); err != nil {
		t.Error(err)
	}
	if err := o.Read([]byte(`[{"a":[]}]`), Bounds{Depth: 2}); !errors.Is(err, ErrDeep) {
		t.Error(err)
	}
	gone := errors.New("gone")
	if err := o.Read([]byte("["+strings.Repeat("1,", 2*between)+"1]"), Bounds{Stop: func() error { return gone }}); !errors.Is(err, gone) {
		t.Error(err)
	}
	for _, broken := range []string{"", "[", "]", `{"a"`, `"a`, `{"a":`} {
		if o.Read([]byte(broken), Bounds{}) == nil && broken != `"a` {
			t.Errorf("%s is taken", broken)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	text := []byte(` {"a":[10,{"b c":{"x":"y"}},[]],"\u0064":true,"e":{"a":1}} `)
	index := func(s string) (int, bool) { n, err := strconv.Atoi(s); return n, err == nil }
	for path, want := range map[string]string{
		"a/0": "10", "a/1/b c/x": `"y"`, "a/2": "[]", "a/3": "", "d": "true", "e/a": "1", "a/x": "", "x": "", "e/b": "", "d/a": "", "a/1/b c": `{"x":"y"}`,
	} {
		if got := string(Find(text, strings.Split(path, "/"), index)); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := Find(text, []string{"a", "0"}, nil); got != nil {
		t.Errorf("an element without an index: %s", got)
	}
	var all []string
	Each(text, func(name, value []byte) bool {
		all = append(all, string(name)+"="+string(value))
		return len(all) < 2
	})
	if strings.Join(all, ";") != `a=[10,{"b c":{"x":"y"}},[]];\u0064=true` {
		t.Error(all)
	}
}

// FuzzOutline holds the outline against what Members and Elements say.
func FuzzOutline(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":null}],"c":"]"}`, `[[],{},"\\\"",-0.1e-5]`, ` "x" `, `{"":{"":[""]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var o Outline
		err := o.Read(text, Bounds{})
		if Valid(text) != nil {
			return // it need not say anything, and may not panic
		}
		if err != nil {
			t.Fatal(err)
		}
		var same func(n int, v []byte)
		same = func(n int, v []byte) {
			if string(o.Value(n)) != string(v) {
				t.Fatalf("%s is %s", v, o.Value(n))
			}
			at := o.First(n)
			for _, m := range Members(v) {
				if string(o.Name(at)) != string(m.Name) {
					t.Fatalf("%s is %s", m.Name, o.Name(at))
				}
				if got := Find(v, []string{string(Unquote(m.Name))}, nil); string(got) != string(m.Value) {
					t.Fatalf("%s finds %s", m.Name, got)
				}
				same(at, m.Value)
				at = o.After(at)
			}
			for _, e := range Elements(v) {
				same(at, e)
				at = o.After(at)
			}
			if at != o.End(n) {
				t.Fatalf("%d nodes, not %d", at, o.End(n))
			}
		}
		same(0, o.Value(0))
	})
}
