package apps

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// readTOML is a text for a parser of TOML, or what is wrong with it: nothing of a file is said
// but the line.
func readTOML(data []byte) ([]byte, error) {
	text := readable(data)
	var p unstable.Parser
	p.Reset(text)
	for p.NextExpression() {
		e := p.Expression()
		if len(path(e)) > maxDepth {
			return nil, &mistake{lineOf(text, keyAt(e)), fmt.Sprintf("its tables lie more than %d deep in each other", maxDepth)}
		}
	}
	return text, nil
}

func decodeTOML(data []byte) (map[string]any, error) {
	text, err := readTOML(data)
	if err != nil {
		return nil, err
	}
	all := map[string]any{}
	err = toml.Unmarshal(text, &all)
	if err == nil {
		return all, nil
	}
	m := &mistake{text: "it is no TOML"}
	if where := new(toml.DecodeError); errors.As(err, &where) {
		m.line, _ = where.Position()
		m.line = min(m.line, lineOf(data, len(data))) // the end of the last line is ours
	}
	return nil, m
}

// path is the key of an expression, in its parts.
func path(e *unstable.Node) (parts []string) {
	if e.Kind != unstable.Table && e.Kind != unstable.ArrayTable && e.Kind != unstable.KeyValue {
		return nil
	}
	for it := e.Key(); it.Next(); {
		parts = append(parts, string(it.Node().Data))
	}
	return parts
}

// keyAt is the offset of the key of an expression.
func keyAt(e *unstable.Node) int {
	it := e.Key()
	it.Next()
	return int(it.Node().Raw.Offset)
}

// block is where the entry of a server stands in a text of TOML.
type block struct {
	from, to int  // its lines
	line     int  // where it is first named, from 1
	plain    bool // it is one table under a header of its own, without comments
}

// blockOf looks for the table of a server. There is one, by what the text decodes to.
func blockOf(text []byte, key, name string) block {
	var p unstable.Parser
	p.Reset(text)
	var b block
	headers := 0
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		parts := path(e)
		at := keyAt(e)
		if e.Kind != unstable.KeyValue {
			table, parts = parts, nil
		}
		whole := slices.Concat(table, parts)
		if len(whole) == 0 || whole[0] != key || len(whole) > 1 && whole[1] != name || len(whole) == 1 && e.Kind != unstable.KeyValue {
			continue
		}
		if b.line == 0 {
			b.line = lineOf(text, at)
		}
		if e.Kind == unstable.Table && len(table) == 2 {
			headers++
			b.from = lineStart(text, at)
		}
		b.to = lineEnd(text, at)
	}
	if headers != 1 || b.to <= b.from {
		return b
	}
	// What is cut out has to be the whole of it, and nothing else.
	own := text[b.from:b.to]
	var alone, all map[string]any
	if toml.Unmarshal(own, &alone) != nil || toml.Unmarshal(text, &all) != nil || hasComment(own) {
		return b
	}
	servers, _ := all[key].(map[string]any)
	b.plain = same(alone, map[string]any{key: map[string]any{name: servers[name]}})
	return b
}

// hasComment reports whether there is a comment in a text of TOML.
func hasComment(text []byte) bool {
	p := unstable.Parser{KeepComments: true}
	p.Reset(text)
	for p.NextExpression() {
		if e := p.Expression(); e.Kind == unstable.Comment || e.Next() != nil && e.Next().Kind == unstable.Comment {
			return true
		}
	}
	return false
}

func findTOML(data []byte, key, name string) (f found, err error) {
	all, err := decodeTOML(data)
	if err != nil {
		return f, err
	}
	servers, ok := all[key].(map[string]any)
	if all[key] != nil && !ok {
		return f, &mistake{text: key + " is no table"}
	}
	if f.value, f.there = servers[name]; f.there {
		b := blockOf(readable(data), key, name)
		f.line, f.plain = b.line, b.plain
	}
	return f, nil
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// tableOf writes an entry as a table under a header of its own.
func tableOf(e entry, key, name, nl string) string {
	if !bareKey.MatchString(name) {
		name = quoted(name)
	}
	var out strings.Builder
	out.WriteString("[" + key + "." + name + "]" + nl)
	for _, f := range e {
		out.WriteString(f.name + " = " + inline(f.value, " = ") + nl)
	}
	return out.String()
}

func putTOML(data []byte, key, name string, e entry) ([]byte, error) {
	nl := newline(data)
	text := tableOf(e, key, name, nl)
	if f, err := findTOML(data, key, name); err != nil || f.there {
		if b := blockOf(readable(data), key, name); err == nil && b.plain {
			return cut(data, b.from, min(b.to, len(data)), text), nil
		}
		return data, err
	}
	if len(bytes.TrimPrefix(data, bom)) > 0 {
		if text = nl + text; !bytes.HasSuffix(data, []byte("\n")) {
			text = nl + text
		}
	}
	return cut(data, len(data), len(data), text), nil
}

func dropTOML(data []byte, key, name string) ([]byte, error) {
	if f, err := findTOML(data, key, name); err != nil || !f.plain {
		return data, err
	}
	b := blockOf(readable(data), key, name)
	from, to := b.from, min(b.to, len(data))
	blank := func(line []byte) bool { return len(line) > 0 && len(bytes.TrimSpace(line)) == 0 }
	if before := lineStart(data, max(from-1, 0)); from > 0 && blank(data[before:from]) {
		from = before // the line that was put before it
	} else if after := lineEnd(data, to); from == 0 && blank(data[to:after]) {
		to = after
	}
	return cut(data, from, to, ""), nil
}
