package scripting

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzJSON holds that what is JSON goes in and comes back the same, and that nothing else goes in.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,-3e7,"x\u00e9\ud800",true,null],"a":{}}`, `123456789012345678901234567890`, `1e400`, `"\ud83d\ude00"`, `[[[]]]`, ` 0 `, `{"a":1,"b":2,"a":3}`, "\"\xff\"", `-0.0`, `1E+2`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		wire, err := FromJSON(text)
		if err != nil {
			if strings.HasPrefix(err.Error(), "not JSON") && json.Valid(text) && utf8.Valid(text) {
				t.Fatalf("%q is JSON: %v", text, err)
			}
			return
		}
		if !json.Valid(text) {
			t.Fatalf("%q is not JSON", text)
		}
		back, err := ToJSON(wire)
		if err != nil {
			if !strings.Contains(err.Error(), "larger than") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if !json.Valid(back) {
			t.Fatalf("%q: %q is not JSON", text, back)
		}
		again, err := FromJSON(back)
		if err != nil || !bytes.Equal(again, wire) {
			t.Fatalf("%q: %q: %x, want %x: %v", text, back, again, wire, err)
		}
		v, err := decode(wire, nil)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if out, err := encode(nil, "value", v, MaxIn); err != nil || !bytes.Equal(out, wire) {
			t.Fatalf("%q: %v: %x, want %x: %v", text, v, out, wire, err)
		}
	})
}

// FuzzWire holds that bytes of a hostile guest do no harm, and that what they say is bounded.
func FuzzWire(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x",true,null],"b":{}}`, `123456789012345678901234567890`, `[]`} {
		wire, err := FromJSON([]byte(s))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
		f.Add(append([]byte{1, 0, 0, 0, 0}, wire...))
		f.Add((&End{Value: wire, Steps: 3, Calls: 1}).Encode())
	}
	f.Add((&End{Error: &Error{Message: "m", Line: 1, Column: 2, Tool: "t", Frames: []string{"f"}}}).Encode())
	f.Add(EncodeAnswer("t", Answer{Error: &Fault{Message: "m", Code: 3, Data: []byte(`{"a":1}`)}}))
	f.Fuzz(func(t *testing.T, wire []byte) {
		if text, err := ToJSON(wire); err == nil && (!json.Valid(text) || len(text) > MaxOut) {
			t.Fatalf("%x: %q", wire, text)
		}
		m := newMeter(newRun(nil, &Names{}, Limits{}, &Host{}))
		_, _ = decode(wire, m)
		_, _, _ = decodeAnswer(wire, m)
		for kind := range Kind(4) {
			if c, err := DecodeCall(kind, "tool", wire); err == nil && kind == KindCall && !json.Valid(c.Arguments) {
				t.Fatalf("%x: %q", wire, c.Arguments)
			}
		}
		if e, err := LoadEnd(wire); err == nil && e.Error != nil && (len(e.Error.Message) > MaxMessage+3 || len(e.Error.Frames) > MaxFrames || !utf8.ValidString(e.Error.Message)) {
			t.Fatalf("%x: %+v", wire, e.Error)
		}
	})
}

// FuzzProgram holds that any text compiles or says why not, that what compiles loads again, and
// that it runs to an end in process.
func FuzzProgram(f *testing.F) {
	for _, s := range []string{
		"return 1", "x = [i for i in range(3)]\nx[0] += 1\nreturn x", "def f(a, *b, **c): return (a, b, c)\nreturn f(1, 2, d=3)", "while True: pass",
		"return attempt(lambda: parallel([lambda: tool(1, a='x')] * 3))", "{}[[]]", "'%s' % ()", "a %= 2", "(a, b[0]), c = 1", "load('x', 'y')", "return \"\\ud800\"", "x = lambda: (yield)",
	} {
		f.Add(s)
	}
	scope := Scope{Tool: func(name string) (string, bool) { return name, name == "tool" }, Data: []string{"data"}}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Compile("script.star", text, scope)
		if err != nil {
			if e := err.(*Error); e.Message == "" || len(e.Message) > MaxMessage+100 {
				t.Fatalf("%q: %+v", text, e)
			}
			return
		}
		loaded, err := Load(p.Encode())
		if err != nil || !bytes.Equal(loaded.Encode(), p.Encode()) {
			t.Fatalf("%q: %v", text, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		o, err := Execute(ctx, &Run{Program: p, Data: []byte(`{"data":[1]}`), Limits: Limits{Steps: 5000}, Call: func(_ context.Context, c *Call) Answer {
			return Answer{Value: c.Arguments}
		}})
		if err != nil || o.Steps > 5000 || o.Error == nil && !json.Valid(o.Value) {
			t.Fatalf("%q: %v, %+v", text, err, o)
		}
		if o.Error != nil && (strings.Contains(o.Error.Message, "interpreter failed") || strings.Contains(o.Error.Message, "internal error")) {
			t.Fatalf("%q: %v", text, o.Error)
		}
	})
}
