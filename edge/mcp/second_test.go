package mcp

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// The second opinion on JSON text is jsontext with its strict defaults:
// duplicate names and invalid UTF-8 are refused.

// second reports whether jsontext takes text for one JSON value.
func second(text []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	if _, err := d.ReadValue(); err != nil {
		return err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return errors.New("text after the value")
	}
	return nil
}

// pair is a member of an object: what its name says, and its value as written.
type pair struct{ name, value string }

// pairs returns the members of an object as jsontext sees them.
func pairs(t testing.TB, object []byte) []pair {
	t.Helper()
	d := jsontext.NewDecoder(bytes.NewReader(object))
	if token, err := d.ReadToken(); err != nil || token.Kind() != '{' {
		t.Fatalf("not an object: %q", object)
	}
	var out []pair
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			t.Fatalf("the second implementation: %v: %q", err, object)
		}
		said := name.String()
		value, err := d.ReadValue()
		if err != nil {
			t.Fatalf("the second implementation: %v: %q", err, object)
		}
		out = append(out, pair{said, string(value)})
	}
	return out
}

// items returns the elements of an array as jsontext sees them.
func items(t testing.TB, array []byte) []string {
	t.Helper()
	d := jsontext.NewDecoder(bytes.NewReader(array))
	if token, err := d.ReadToken(); err != nil || token.Kind() != '[' {
		t.Fatalf("not an array: %q", array)
	}
	var out []string
	for d.PeekKind() != ']' {
		value, err := d.ReadValue()
		if err != nil {
			t.Fatalf("the second implementation: %v: %q", err, array)
		}
		out = append(out, string(value))
	}
	return out
}

// said returns what a JSON string says to jsontext.
func said(t testing.TB, value []byte) string {
	t.Helper()
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		t.Fatalf("the second implementation: %v: %q", err, value)
	}
	return string(text)
}

// valueOf returns the value of a member; "" and false when it is not there.
func valueOf(list []pair, name string) (string, bool) {
	for _, p := range list {
		if p.name == name {
			return p.value, true
		}
	}
	return "", false
}

// members returns what Members sees, with names unescaped.
func members(object []byte) []pair {
	var out []pair
	for _, m := range Members(object) {
		out = append(out, pair{string(Unquote(m.Name)), string(m.Value)})
	}
	return out
}

// changed is what Change promises, on a list of members: those in drop go,
// those in set are replaced where they stand or come first.
func changed(list []pair, drop []string, set ...pair) []pair {
	var out []pair
	for _, s := range set {
		if _, ok := valueOf(list, s.name); !ok {
			out = append(out, s)
		}
	}
	for _, p := range list {
		if v, ok := valueOf(set, p.name); ok {
			out = append(out, pair{p.name, v})
			continue
		}
		if !contains(drop, p.name) {
			out = append(out, p)
		}
	}
	return out
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// depth returns how deep the brackets outside strings are nested. It is right
// for JSON, and for what jsontext takes for JSON.
func depth(text []byte) int {
	deepest, open, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			open++
			deepest = max(deepest, open)
		case c == '}' || c == ']':
			open--
		}
	}
	return deepest
}

func short(text []byte) string {
	if len(text) > 200 {
		return string(text[:100]) + " … " + string(text[len(text)-100:])
	}
	return string(text)
}

func nested(n int, open, middle, end string) []byte {
	return []byte(strings.Repeat(open, n) + middle + strings.Repeat(end, n))
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
