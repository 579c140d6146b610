package apps

import (
	"bytes"
	"maps"
	"math"
	"reflect"
	"slices"
)

// syntax is how one kind of text is read and changed. None of its functions changes the text
// that it is given. An error is a *mistake.
type syntax struct {
	// read reads the whole of a text.
	read func(data []byte) (text, error)
	// put adds an entry, or replaces one whose form is plain.
	put func(data []byte, key, name string, e entry) ([]byte, error)
	// drop takes out an entry whose form is plain.
	drop func(data []byte, key, name string) ([]byte, error)
}

func syntaxOf(name string) syntax {
	if name == "toml" {
		return syntax{readTOML, putTOML, dropTOML}
	}
	return syntax{readJSON, putJSON, dropJSON}
}

// text is a configuration that was read.
type text struct {
	all map[string]any
	// find looks for the entry of a server.
	find func(key, name string) (found, error)
}

// found is an entry in a text.
type found struct {
	there bool
	line  int // where it begins, from 1
	value any
	plain bool // it has no comment in it and the form in which it is written here
}

// mistake is what is wrong with a text. It holds nothing of the text.
type mistake struct {
	line int
	text string
}

func (m *mistake) Error() string { return m.text }

// edited makes changes to the entries of a text: each name has its new entry, or nil where it
// goes. What comes out is read again: every other value is as it was, or it is an error.
func edited(s syntax, data []byte, key string, changes map[string]entry) ([]byte, error) {
	before, err := s.read(data)
	if err != nil {
		return nil, err
	}
	out := data
	names := slices.Sorted(maps.Keys(changes))
	for _, name := range names {
		if e := changes[name]; e != nil {
			out, err = s.put(out, key, name, e)
		} else {
			out, err = s.drop(out, key, name)
		}
		if err != nil {
			return nil, err
		}
	}
	after, err := s.read(out)
	if err != nil {
		return nil, &mistake{text: "an entry cannot be added to the form in which " + key + " is written there"}
	}
	servers, _ := after.all[key].(map[string]any)
	for _, name := range names {
		value, there := servers[name]
		if e := changes[name]; there != (e != nil) || there && !same(value, e.plain()) {
			return nil, &mistake{text: "an entry cannot be changed in the form in which " + key + " is written there"}
		}
	}
	if !same(without(before.all, key, names), without(after.all, key, names)) {
		return nil, &mistake{text: "an entry cannot be changed there without a change of something else"}
	}
	return out, nil
}

// without is a configuration without some of its servers.
func without(all map[string]any, key string, names []string) map[string]any {
	rest := maps.Clone(all)
	servers, _ := all[key].(map[string]any)
	servers = maps.Clone(servers)
	for _, name := range names {
		delete(servers, name)
	}
	if delete(rest, key); len(servers) > 0 {
		rest[key] = servers
	}
	return rest
}

// same reports whether two values that were read are the same.
func same(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			if other, there := b[name]; !there || !same(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, same)
	case float64:
		b, ok := b.(float64)
		return ok && (a == b || math.IsNaN(a) && math.IsNaN(b))
	}
	return reflect.DeepEqual(a, b)
}

// bom is the mark that some editors put before UTF-8.
var bom = []byte("\ufeff")

// readable is a text for parsers: at every offset stands what stands in the file, but a mark
// at the beginning is spaces, and the last line has an end.
func readable(data []byte) []byte {
	text := append(bytes.Clone(data), '\n')
	if bytes.HasPrefix(text, bom) {
		copy(text, "   ")
	}
	return text
}

// newline is how lines end in a text.
func newline(data []byte) string {
	if i := bytes.IndexByte(data, '\n'); i > 0 && data[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// lineOf is the line of an offset, from 1.
func lineOf(data []byte, at int) int { return 1 + bytes.Count(data[:min(at, len(data))], []byte("\n")) }

// lastLine is the last line that is not empty: parsers name one after it when something is
// missing at the end.
func lastLine(data []byte) int { return lineOf(data, len(bytes.TrimRight(data, " \t\r\n"))) }

// lineStart is the offset at which the line of an offset begins.
func lineStart(data []byte, at int) int { return bytes.LastIndexByte(data[:at], '\n') + 1 }

// lineEnd is the offset after the end of the line of an offset.
func lineEnd(data []byte, at int) int {
	if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(data)
}

// cut is a text without what stands from one offset to another, and with other text there.
func cut(data []byte, from, to int, text string) []byte {
	return slices.Concat(data[:from], []byte(text), data[to:])
}
