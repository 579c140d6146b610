package mcp

import (
	"strings"
	"testing"
)

func path(pointer string) []string {
	if pointer == "" {
		return nil
	}
	return strings.Split(pointer[1:], "/")
}

func TestDraft(t *testing.T) {
	t.Parallel()
	const text = ` {"a": [1, {"b" :2}, []], "\u0063":"x" , "big":12345678901234567890 }`
	for _, c := range []struct{ does, want string }{
		{"put /a/1/b 7", `{"a":[1,{"b":7},[]],"\u0063":"x","big":12345678901234567890}`},
		{"put /c 7", `{"a": [1, {"b" :2}, []],"\u0063":7,"big":12345678901234567890}`},
		{"put /new/x 7", "a JSON pointer to a place that is not there"},
		{"put /n 7; put /m 8; put /n 9", `{"m":8,"n":9,"a": [1, {"b" :2}, []],"\u0063":"x","big":12345678901234567890}`},
		{"put /a/- 7; put /a/2/- {}", `{"a":[1,{"b" :2},[{}],7],"\u0063":"x","big":12345678901234567890}`},
		{"put /a/7 7", "a JSON pointer to a place that is not there"},
		{"put /a/01 7", "a JSON pointer to a place that is not there"},
		{"put  [1]; put /- 2; put /0 [3]; put /0/- 4", `[[3,4],2]`},
		{"insert /a/0 7; insert /a/4 8; insert /a/- 9", `{"a":[7,1,{"b" :2},[],8,9],"\u0063":"x","big":12345678901234567890}`},
		{"insert /a/5 7", "a JSON pointer to a place that is not there"},
		{"cut /a/1; cut /c; cut /nothing; cut /a/9; cut /big/x", `{"a":[1,[]],"big":12345678901234567890}`},
		{"cut /c; put /c 1; cut /c; put /c 2", `{"c":2,"a": [1, {"b" :2}, []],"big":12345678901234567890}`},
		{"cut ", "a JSON pointer to the whole value"},
		{"put /c/x 1", "a JSON pointer to a place that is not there"},
	} {
		d := NewDraft([]byte(text))
		var err error
		for does := range strings.SplitSeq(c.does, "; ") {
			what, rest, _ := strings.Cut(does, " ")
			at, raw, _ := strings.Cut(rest, " ")
			switch what {
			case "put":
				err = d.Put(path(at), []byte(raw))
			case "insert":
				err = d.Insert(path(at), []byte(raw))
			case "cut":
				_, err = d.Cut(path(at))
			}
		}
		got := string(d.Text())
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.does, got, c.want)
		}
	}
	d := NewDraft([]byte(text))
	if string(d.Text()) != text {
		t.Error("an untouched draft is another text")
	}
	if !d.Has(path("/a/1/b")) || d.Has(path("/a/3")) || string(d.Get(path("/a/1"))) != `{"b" :2}` {
		t.Error(string(d.Get(path("/a/1"))))
	}
}

// TestDraftWide goes to many members of a wide object.
func TestDraftWide(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"first":0`)
	for i := range 1000 {
		b.WriteString(`,"k` + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + strings.Repeat("y", i/26) + `":1`)
	}
	text := b.String() + "}"
	d := NewDraft([]byte(text))
	for _, m := range Members([]byte(text)) {
		if err := d.Put([]string{string(m.Name)}, []byte("2")); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(d.Text()); got != strings.ReplaceAll(strings.Replace(text, ":0", ":2", 1), ":1", ":2") {
		t.Error(got)
	}
}

// FuzzDraft holds edits of a draft against the same made by Change.
func FuzzDraft(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,2]},"c":3}`), "a", "b", []byte(`"x"`))
	f.Add([]byte(`{"a":{}}`), "a", "\u00e9", []byte(`{}`))
	f.Fuzz(func(t *testing.T, text []byte, one, two string, raw []byte) {
		if Valid(text) != nil || Valid(raw) != nil {
			return
		}
		quoted := Quote(two)
		d := NewDraft(text)
		err := d.Put([]string{one, two}, raw)
		inner := Lookup(text, one)
		if inner == nil || inner[0] != '{' {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Get([]string{one, two}); string(got) != string(raw) && len(quoted) == len(two)+2 {
			t.Fatalf("%s is %s", raw, got)
		}
		if err := Valid(d.Text()); err != nil {
			t.Fatal(err)
		}
		want := Members(Lookup(Change(text, nil, Raw(one, Change(inner, nil, Raw(string(quoted[1:len(quoted)-1]), raw)))), one))
		got := Members(Lookup(d.Text(), one))
		if len(got) != len(want) {
			t.Fatalf("%s has %d members, not %d", d.Text(), len(got), len(want))
		}
	})
}
