package weir

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weir-edge/weir/sdk/abi"
)

// fresh begins a test with nothing registered.
func fresh(t *testing.T) {
	t.Helper()
	clean := func() {
		guest.init, registered = nil, nil
		guest.handlers = [abi.Hooks][]*handler{}
	}
	clean()
	t.Cleanup(clean)
}

func start(t *testing.T, n *Native) []byte {
	t.Helper()
	out := n.Init(abi.AppendString(nil, abi.InitName, "test"))
	r := abi.Reader{B: out}
	for r.Next() {
		if r.Num == abi.InitError {
			t.Fatalf("it does not start: %s", r.Data)
		}
	}
	return out
}

func input(tool, subject string) []byte {
	b := abi.AppendString(nil, abi.CallTool, tool)
	return abi.AppendBytes(b, abi.CallPrincipal, abi.AppendString(nil, abi.PrincipalSubject, subject))
}

// TestSDKW10: what a function keeps of one message, against what it is told,
// holds nothing of it when another message comes.
func TestSDKW10(t *testing.T) {
	fresh(t)
	var kept View
	var whole Value
	OnCall(func(c *Call) {
		c.SetHeader("x-before", kept.String()+whole.View().String())
		kept, whole = c.Principal().Subject(), c.Arguments()
	})
	n := &Native{}
	start(t, n)
	buffer := make([]byte, 256)
	ask := func(subject string) string {
		record := abi.AppendString(input("t", subject), abi.CallArguments, `{"of":"`+subject+`"}`)
		in := buffer[:copy(buffer, record)] // as the host writes to one place
		out := string(n.Ask(abi.OnCallRequest, in))
		if strings.Trim(string(in), "\x00") != "" {
			t.Errorf("of the message %q is left", in)
		}
		return out
	}
	ask("secret-of-a")
	if out := ask("b"); strings.Contains(out, "secret") || strings.Contains(out, "of-a") {
		t.Errorf("the second message is answered with parts of the first: %q", out)
	}
	if call.record != nil || call.has != 0 {
		t.Error("the call is over, and its fields are still there")
	}
}

// TestDispatch: functions are asked by their own options, and share one
// subscription.
func TestDispatch(t *testing.T) {
	fresh(t)
	var asked []string
	note := func(who string) func(*Call) {
		return func(c *Call) {
			asked = append(asked, fmt.Sprint(who, ":", c.Selected(0).Text(), c.Selected(1).Text(), c.Selected(-1).Exists()))
		}
	}
	OnCall(note("first"), Tools("a*"), Pointers("/x"), Headers("h"), InlineLimit(10))
	OnCall(note("second"), Tools("ab"), Pointers("/y", "/x"), Headers("h", "i"), InlineLimit(20))
	OnCall(note("third"), Tools("c"), Backends("b"))
	OnCall(func(c *Call) { c.Deny(Limited, "enough"); asked = append(asked, "fourth") }, Tools("abc"))
	OnCall(note("fifth"), Tools("abc"))
	n := &Native{}
	sub := string(start(t, n))
	for _, want := range []string{"a*", "ab", "abc", "h", "i", "/x", "/y"} {
		if !strings.Contains(sub, string([]byte{byte(len(want))})+want) {
			t.Errorf("the subscription lacks %q: %q", want, sub)
		}
	}
	for tool, want := range map[string][]string{
		"a":   {"first:1false"},
		"ab":  {"first:1false", "second:21false"},
		"c":   {},
		"abc": {"first:1false", "fourth"},
	} {
		asked = []string{}
		b := abi.AppendString(nil, abi.CallTool, tool)
		b = abi.AppendString(b, abi.CallBackend, "other")
		for _, s := range []string{`"1"`, `"2"`, `"1"`} {
			b = abi.AppendString(b, abi.CallSelected, s)
		}
		n.Ask(abi.OnCallRequest, b)
		if !reflect.DeepEqual(asked, want) {
			t.Errorf("%s: asked %v, want %v", tool, asked, want)
		}
	}
}

// TestItemsOfSeveral: each function gets the items that it asked for, and those that it is not told
// the name of.
func TestItemsOfSeveral(t *testing.T) {
	fresh(t)
	got := map[string][]uint64{}
	note := func(who string) func(*Catalog) {
		return func(c *Catalog) {
			for item := range c.Items() {
				got[who] = append(got[who], item.index)
			}
		}
	}
	OnResources(note("first"), Tools("file:///a/*"))
	OnResources(note("second"), Tools("file:///b/*", "c"))
	OnResources(note("all"))
	n := &Native{}
	start(t, n)
	var b []byte
	for _, name := range []string{"file:///a/1", "file:///b/1", "", "file:///a/2"} {
		b = abi.AppendBytes(b, abi.CallItem, abi.AppendString(nil, abi.ItemName, name))
	}
	n.Ask(abi.OverrideResources, b)
	if want := map[string][]uint64{"first": {0, 2, 3}, "second": {1, 2}, "all": {0, 1, 2, 3}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

func TestSubscriptionBounds(t *testing.T) {
	fresh(t)
	var globs, pointers []string
	for i := range 65 {
		globs, pointers = append(globs, fmt.Sprint("tool", i)), append(pointers, fmt.Sprint("/", i))
	}
	OnCall(func(*Call) {}, Tools(globs...), Fields(abi.CallArguments), VariesBy(ByGroups))
	n := &Native{}
	if sub := string(start(t, n)); strings.Contains(sub, "tool") {
		t.Errorf("more globs than the host takes: %q", sub)
	}
	OnResult(func(*CallResult) {}, Pointers(pointers...))
	registered = nil
	r := abi.Reader{B: n.Init(nil)}
	if !r.Next() || r.Num != abi.InitError || string(r.Data) != "on_call_response: more than 64 headers, pointers or claims" {
		t.Errorf("65 pointers: %q", r.Data)
	}
}

// TestZ34Claims: each function sees the claims that it asked for, by their places,
// and attributes by their names.
func TestZ34Claims(t *testing.T) {
	fresh(t)
	var got []string
	note := func(c *Call) {
		for i := -1; i < 3; i++ {
			got = append(got, string(c.Claim(i).JSON()))
		}
	}
	OnCall(note, Claims("/a"), Fields(abi.CallArguments))
	OnCall(note, Claims("/b", "/c"), Fields(abi.CallArguments))
	OnCall(func(c *Call) { got = append(got, string(c.Attr("team").JSON()), string(c.Attr("tea").JSON())) }, Fields(abi.CallAttr))
	n := &Native{}
	sub := string(start(t, n))
	for _, p := range []string{"/a", "/b", "/c"} {
		if !strings.Contains(sub, string(abi.AppendString(nil, abi.SubClaim, p))) {
			t.Errorf("no claim %s in %q", p, sub)
		}
	}
	var b []byte
	for _, s := range []string{`1`, ``, `"3"`} {
		b = abi.AppendString(b, abi.CallClaim, s)
	}
	b = abi.AppendBytes(b, abi.CallAttr, abi.AppendString(abi.AppendString(nil, abi.AttrName, "team"), abi.AttrJSON, `"x"`))
	n.Ask(abi.OnCallRequest, b)
	if want := []string{"", "1", "", "", "", "", `"3"`, "", `"x"`, ""}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestAllocations: a function that copies nothing makes no garbage.
func TestAllocations(t *testing.T) {
	fresh(t)
	OnCall(func(c *Call) {
		if c.Principal().InGroup("admin") || !c.Tool().HasPrefix("t") || c.Header("x-team").Is("z") || !c.Selected(0).Is("a") {
			c.Deny(Forbidden, "no")
		}
		c.SetHeader("x-user", "ann")
		c.Set("/a/b", True)
	}, Headers("x-team"), Pointers("/p"))
	n := &Native{}
	start(t, n)
	record := input("tool", "ann")
	h := abi.AppendString(nil, abi.HeaderName, "x-team")
	record = abi.AppendBytes(record, abi.CallHeader, abi.AppendString(h, abi.HeaderValue, "y"))
	record = abi.AppendString(record, abi.CallSelected, `"a"`)
	in := make([]byte, len(record))
	if got := testing.AllocsPerRun(100, func() {
		copy(in, record)
		if out := n.Ask(abi.OnCallRequest, in); len(out) == 0 {
			t.Fatal("no operations")
		}
	}); got != 0 {
		t.Errorf("%v allocations a call", got)
	}
}

func TestNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"1": "1 true 1 true", " -12 ": "-12 true -12 true", "1.5e1": "15 true 0 false", `"1"`: "0 false 0 false", "": "0 false 0 false",
		"true": "0 false 0 false", "9223372036854775808": "9.223372036854776e+18 true 9223372036854775807 false",
	} {
		f, okF := Parse([]byte(text)).Number()
		i, okI := Parse([]byte(text)).Int()
		if got := fmt.Sprint(f, okF, i, okI); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

func TestTokens(t *testing.T) {
	v := Parse([]byte(`{"a/b":{"~":{"":[10,{"x":"y"}]}}, "01":1}`))
	for pointer, want := range map[string]JSON{
		"/a~1b/~0//0": "10", "/a~1b/~0//1/x": `"y"`, "/a~1b/~0//01": "", "/a~1b/~0//-": "", "/a~1b/~0//2": "", "/01": "1", "a": "", "/a": "",
	} {
		if got := v.At(pointer).JSON(); got != want {
			t.Errorf("%s leads to %q, want %q", pointer, got, want)
		}
	}
	if got := Token("a/b~c"); got != "a~1b~0c" {
		t.Errorf("got %q", got)
	}
}

// FuzzValue reads JSON as encoding/json does, and ends with whatever it gets.
func FuzzValue(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,2,{"b":null}],"c":"\u0041\n\ud83d\ude00\ud800x"}`, `[]`, `"`, `{"a"`, `[1,]`, `{"a":}`, "nul", `"\u12"`, `"\`, "]", "{]", `{"":""}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v := Parse(text)
		_, _, _ = v.Text(), v.At("/a/0").Exists(), v.Get("a").Is("b")
		for range v.Array() {
		}
		for range v.Object() {
		}
		if !json.Valid(text) || !utf8.Valid(text) {
			return
		}
		var want any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&want); err != nil {
			t.Fatal(err)
		}
		switch w := want.(type) {
		case string:
			if v.Text() != w || !v.Is(w) {
				t.Errorf("%s is %q, want %q", text, v.Text(), w)
			}
		case []any:
			n := 0
			for e := range v.Array() {
				if s, ok := w[n].(string); ok && e.Text() != s || !json.Valid(e.View().Bytes()) {
					t.Errorf("%s: element %d is %s", text, n, e.JSON())
				}
				n++
			}
			if n != len(w) {
				t.Errorf("%s: %d elements, want %d", text, n, len(w))
			}
		case map[string]any:
			names := map[string]bool{}
			for name, member := range v.Object() {
				names[name.Text()] = true
				if !json.Valid(member.View().Bytes()) {
					t.Errorf("%s: %s is %q", text, name.JSON(), member.JSON())
				}
			}
			if len(names) != len(w) {
				t.Errorf("%s: %d members, want %d", text, len(names), len(w))
			}
		case json.Number:
			if f, ok := v.Number(); ok {
				if g, _ := w.Float64(); f != g {
					t.Errorf("%s is %v", text, f)
				}
			}
		}
	})
}

// FuzzText writes strings that read back the same.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a\"\\\x00\x1f\u2028é\U0001F600", "\xff\xc0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		text := Text(s)
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != strings.ToValidUTF8(s, "\ufffd") && utf8.ValidString(s) {
			t.Errorf("%q became %s, which is %q, %v", s, text, got, err)
		}
		if utf8.ValidString(s) && Parse([]byte(text)).Text() != s {
			t.Errorf("%q became %s", s, text)
		}
	})
}

// TestZ37PatternsNatively: in an ordinary test patterns do what they do in a guest,
// and those of one start are not there after the next.
func TestZ37PatternsNatively(t *testing.T) {
	fresh(t)
	n := &Native{}
	n.Init(nil)
	word, err := NewPattern(`\w+`)
	if err != nil {
		t.Fatal(err)
	}
	if !word.Match("é a") || word.Match("é →") {
		t.Error("Match")
	}
	if got := word.Find("é ab c"); len(got) != 2 || got[0] != [2]int{3, 5} || got[1] != [2]int{6, 7} {
		t.Errorf("Find: %v", got)
	}
	if got := word.Find(strings.Repeat("a ", 100)); len(got) != 100 || got[99] != [2]int{198, 199} {
		t.Errorf("Find, many: %v", got)
	}
	if got, found := word.Replace("ab c", "$0$"); got != "$0$ $0$" || !found {
		t.Errorf("Replace: %q, %v", got, found)
	}
	if got, found := word.Replace("a b c", strings.Repeat("x", 500)); len(got) != 1502 || !found {
		t.Errorf("Replace by much: %d bytes, %v", len(got), found)
	}
	if got, found := word.Replace("→", "x"); got != "→" || found {
		t.Errorf("Replace nothing: %q, %v", got, found)
	}
	for text, want := range map[string]error{"(": ErrArgument, strings.Repeat("a", 1025): ErrLimit} {
		if _, err := NewPattern(text); err != want {
			t.Errorf("%.10s: %v", text, err)
		}
	}
	if len(n.Lines) != 1 || !strings.Contains(n.Lines[0], "missing closing") {
		t.Errorf("it says %q", n.Lines)
	}
	for i := 1; i < 64; i++ {
		if _, err := NewPattern("a"); err != nil {
			t.Fatalf("pattern %d: %v", i, err)
		}
	}
	if _, err := NewPattern("a"); err != ErrLimit {
		t.Errorf("one more than there may be: %v", err)
	}
	n.Init(nil)
	for what, f := range map[string]func(){"no pattern": func() { Pattern{}.Match("") }, "one of an earlier start": func() { word.Find("") }, "a wrong one": func() { MustPattern("(") }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			f()
		}()
	}
	var late error
	guest.handlers[abi.OnEvent] = []*handler{{run: func() { _, late = NewPattern("a") }}}
	n.Ask(abi.OnEvent, nil)
	guest.handlers[abi.OnEvent] = nil
	if late != ErrDenied {
		t.Errorf("compiled by a hook: %v", late)
	}
}
