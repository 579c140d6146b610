package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// seedTexts are texts from which the fuzzers start.
func seedTexts(f *testing.F) [][]byte {
	files, err := filepath.Glob("testdata/json-parsing/*.json")
	if err != nil {
		f.Fatal(err)
	}
	var out [][]byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(text) < 4096 {
			out = append(out, text)
		}
	}
	return append(out, aCall, escapedNames(300))
}

var seedMessages = []string{
	`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
	`{"jsonrpc":"2.0","id":"a\n","method":"tools/call","params":{"name":"x","arguments":{"a":1e400},"_meta":{"progressToken":1,"traceparent":"00-1-2-01"}}}`,
	`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":0.5}}`,
	`{"jsonrpc":"2.0","id":9007199254740993,"result":{"content":[{"type":"text","text":"é\u00e9😀"}],"structuredContent":5,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}}`,
	`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","outputSchema":{"type":"array"}},{"name":"b","outputSchema":{"type":"object"}}],"ttlMs":5,"cacheScope":"public","resultType":"complete"}}`,
	`{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no","data":{"uri":"file:///x"}}}`,
	`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}`,
	`{"id":1,"jsonrpc":"2.0","params":{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":0,"k":1,"l":2,"m":3,"n":4,"o":5,"p":6,"q":7},"method":"x"}`,
	`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///a b","inputResponses":{},"requestState":"s","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/logLevel":"info"}}}`,
	`{"jsonrpc":"2.0","id":1,"method":"x","params":{"paramſ":1,"Name":2,"_meta":null}}`,
	`{"jsonrpc":"2.0","id":1,"result":{"r\u0065sultType":1,"_meta":{"\u0069o":2}}} `,
	" { \"jsonrpc\" : \"2.0\" , \"id\" : -0 , \"method\" : \"x\" , \"params\" : { } } \r\n\t",
	`[{"jsonrpc":"2.0","id":1,"method":"ping"},1]`,
}

// FuzzValid holds the scanner to a second implementation. They differ in one
// thing on purpose: nothing is nested deeper than MaxDepth here, while jsontext
// goes down to 10000.
func FuzzValid(f *testing.F) {
	for _, text := range seedTexts(f) {
		f.Add(text)
	}
	f.Add(nested(MaxDepth, "[", "", "]"))
	f.Add(nested(MaxDepth+1, `{"a":`, "0", "}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		ours, theirs := Valid(text), second(text)
		if deep := depth(text) > MaxDepth; (ours == nil) != (theirs == nil && !deep) {
			t.Fatalf("%q: %v; the second implementation: %v; depth %d", text, ours, theirs, depth(text))
		}
		if ours != nil {
			var syntax *SyntaxError
			if !errors.As(ours, &syntax) || syntax.Offset < 0 || syntax.Offset > len(text) {
				t.Fatalf("%q: %#v", text, ours)
			}
			// The walks over what was not checked do no harm either.
			Members(text)
			Elements(text)
			Lookup(text, "a", "b")
			Change(text, []string{"a"}, With("b", "1"))
			return
		}
		switch trimmed := bytes.TrimLeft(text, " \t\r\n"); trimmed[0] {
		case '{':
			want := pairs(t, text)
			if got := members(text); !slices.Equal(got, want) {
				t.Fatalf("%q has the members %q, not %q", text, got, want)
			}
			for _, p := range want {
				if got := string(Lookup(text, p.name)); got != p.value {
					t.Fatalf("%q: %q is %q, not %q", text, p.name, got, p.value)
				}
			}
			var drop []string
			set := []pair{{"set", "[1]"}}
			for i, p := range want {
				if i%3 == 0 {
					drop = append(drop, p.name)
				}
				if i%3 == 1 {
					set = append(set, pair{p.name, `"new"`})
				}
			}
			var with []Member
			for _, s := range set {
				quoted := Quote(s.name)
				with = append(with, Raw(string(quoted[1:len(quoted)-1]), []byte(s.value)))
			}
			if set[0].name == "set" && len(set) > 1 && slices.ContainsFunc(set[1:], func(p pair) bool { return p.name == "set" }) {
				return // the member that is to come is there already, twice in the set
			}
			changedText := Change(text, drop, with...)
			if err := Valid(changedText); err != nil {
				t.Fatalf("%q became %q: %v", text, changedText, err)
			}
			if got, want := pairs(t, changedText), changed(want, drop, set...); !slices.Equal(got, want) {
				t.Fatalf("%q without %q with %q became %q", text, drop, set, changedText)
			}
		case '[':
			var got []string
			for _, e := range Elements(text) {
				got = append(got, string(e))
			}
			if want := items(t, text); !slices.Equal(got, want) {
				t.Fatalf("%q has the elements %q, not %q", text, got, want)
			}
			spans, err := Split(text, len(text))
			if empty := len(got) == 0; (err != nil) != empty {
				t.Fatalf("%q: split: %v", text, err)
			}
			for i, s := range spans {
				if string(s.Of(text)) != got[i] {
					t.Fatalf("%q is split into %q", text, s.Of(text))
				}
			}
		case '"':
			if got, want := String(bytes.TrimRight(trimmed, " \t\r\n")), said(t, bytes.TrimSpace(text)); got != want {
				t.Fatalf("%q says %q, not %q", text, got, want)
			}
		}
	})
}

// section returns the members of params, result or error and of the _meta in
// it, as jsontext sees them; nil for what is not an object.
func section(t *testing.T, value []byte) (outer, meta []pair) {
	if len(value) == 0 || value[0] != '{' {
		return nil, nil
	}
	outer = pairs(t, value)
	for _, p := range outer {
		if p.name == "_meta" && p.value[0] == '{' {
			meta = pairs(t, []byte(p.value))
		}
	}
	return outer, meta
}

func FuzzDecode(f *testing.F) {
	for _, text := range seedMessages {
		f.Add([]byte(text))
	}
	for _, text := range seedTexts(f) {
		f.Add(append(append([]byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":`), text...), "}}"...))
	}
	f.Fuzz(checkDecode)
}

// checkDecode holds that what is decoded from a text is what another reader
// finds there, and that edits change what they are for and nothing else.
func checkDecode(t *testing.T, text []byte) {
	before := bytes.Clone(text)
	m, err := Decode(text)
	if !bytes.Equal(text, before) || !bytes.Equal(m.Raw, text) {
		t.Fatalf("%q was changed", before)
	}
	used := mustDecode(t, string(aCall))
	if again := used.Decode(text); fmt.Sprint(again) != fmt.Sprint(err) || used.Kind != m.Kind || used.Method != m.Method || used.ID != m.ID ||
		used.Params != m.Params || used.Result != m.Result || used.Error != m.Error || !slices.Equal(used.members[:used.n], m.members[:m.n]) || !slices.Equal(used.more, m.more) {
		t.Fatalf("%q is another message when decoded into one that was used: %+v, %v; %+v, %v", text, used, again, m, err)
	}
	var syntax *SyntaxError
	if bad := Valid(text); errors.As(err, &syntax) != (bad != nil) {
		t.Fatalf("%q: decoded with %v, valid says %v", text, err, bad)
	}
	if (err == nil) != (m.Kind != Invalid) {
		t.Fatalf("%q: kind %d, %v", text, m.Kind, err)
	}
	if err != nil {
		var envelope *EnvelopeError
		switch {
		case syntax != nil:
			if m.ID.OK() {
				t.Fatalf("%q: an id of malformed text", text)
			}
		case errors.Is(err, ErrBatch):
			if first := bytes.TrimLeft(text, " \t\r\n"); first[0] != '[' {
				t.Fatalf("%q: %v", text, err)
			}
		case !errors.As(err, &envelope):
			t.Fatalf("%q: %T", text, err)
		}
		return
	}

	// 1. What the message says is what the second implementation reads.
	top := pairs(t, text)
	at := func(name string) string { v, _ := valueOf(top, name); return v }
	if at("jsonrpc") != `"2.0"` {
		t.Fatalf("%q is a message", text)
	}
	if id := at("id"); id != "null" && id != string(m.IDText()) || id == "null" && (m.ID.OK() || m.Kind != Failure) {
		t.Fatalf("%q has the id %q", text, m.IDText())
	}
	method, has := valueOf(top, "method")
	if has != (m.Kind == Request || m.Kind == Notification) || has && said(t, []byte(method)) != m.Method {
		t.Fatalf("%q has the method %q", text, m.Method)
	}
	for name, span := range map[string]Span{"params": m.Params, "result": m.Result, "error": m.Error} {
		if v, ok := valueOf(top, name); ok != span.OK() || v != string(span.Of(text)) {
			t.Fatalf("%q: %s is %q", text, name, span.Of(text))
		}
	}
	place := m.Params
	if m.Result.OK() {
		place = m.Result
	} else if m.Error.OK() {
		place = m.Error
	}
	outer, meta := section(t, place.Of(text))
	for _, level := range []struct {
		want []pair
		get  func(string) Span
		text func(string) string
	}{{outer, m.Get, m.Text}, {meta, m.Meta, m.MetaText}} {
		for _, p := range level.want {
			if got := string(level.get(p.name).Of(text)); got != p.value {
				t.Fatalf("%q: %q is %q, not %q", text, p.name, got, p.value)
			}
			says := ""
			if p.value[0] == '"' {
				says = said(t, []byte(p.value))
			}
			if got := level.text(p.name); got != says {
				t.Fatalf("%q: %q says %q, not %q", text, p.name, got, says)
			}
			if _, ok := valueOf(level.want, p.name+"x"); !ok && level.get(p.name+"x").OK() {
				t.Fatalf("%q: %q is there", text, p.name+"x")
			}
		}
	}

	// 2. Without edits it is itself; an edit changes what it says, no more.
	if got := Splice(nil, m.Raw); !bytes.Equal(got, text) {
		t.Fatalf("%q became %q", text, got)
	}
	again := func(how string, got []byte, want []pair) *Message {
		c, err := Decode(got)
		if err != nil || c.Kind != m.Kind {
			t.Fatalf("%s: %q became %q: %v", how, text, got, err)
		}
		if now := pairs(t, got); !slices.Equal(now, want) {
			t.Fatalf("%s: %q became %q", how, text, got)
		}
		return c
	}
	if m.ID.OK() {
		again("id", Splice(nil, m.Raw, m.WithID([]byte(`"new"`))), changed(top, nil, pair{"id", `"new"`}))
	}
	if m.Kind == Request || m.Kind == Notification {
		drop := []string{"progressToken"}
		set := pair{"weir.dev/fuzz", `{"x":1}`}
		c := again("meta", Splice(nil, m.Raw, m.WithMeta(drop, With(set.name, set.value)), m.WithID([]byte("7"))), changedAt(t, m, drop, set))
		_, now := section(t, c.Params.Of(c.Raw))
		if want := changed(meta, drop, set); !slices.Equal(now, want) {
			t.Fatalf("%q became %q", text, c.Raw)
		}
		rest, _ := section(t, c.Params.Of(c.Raw))
		if want := changed(outer, []string{"_meta"}); !slices.Equal(changed(rest, []string{"_meta"}), want) {
			t.Fatalf("%q became %q", text, c.Raw)
		}
	}
	// 3. Any two members can be taken out.
	var drop []string
	for i, p := range outer {
		if i%2 == len(text)%2 {
			drop = append(drop, p.name)
		}
	}
	if place.OK() && text[place.Start] == '{' {
		got := Splice(nil, m.Raw, m.without(drop...)...)
		if err := Valid(got); err != nil {
			t.Fatalf("%q without %q became %q: %v", text, drop, got, err)
		}
		name := "params"
		if m.Result.OK() {
			name = "result"
		} else if m.Error.OK() {
			name = "error"
		}
		if left, want := pairs(t, Lookup(got, name)), changed(outer, drop); !slices.Equal(left, want) {
			t.Fatalf("%q without %q became %q", text, drop, got)
		}
	}
}

// changedAt returns the members of a request after WithMeta and another id,
// with params as they are in the result, which is looked at apart.
func changedAt(t *testing.T, m *Message, drop []string, set pair) []pair {
	got := Splice(nil, m.Raw, m.WithMeta(drop, With(set.name, set.value)))
	params, _ := valueOf(pairs(t, got), "params")
	want := pairs(t, m.Raw)
	if m.ID.OK() {
		want = changed(want, nil, pair{"id", "7"})
	}
	if m.Params.OK() {
		return changed(want, nil, pair{"params", params})
	}
	return append(want, pair{"params", params})
}
