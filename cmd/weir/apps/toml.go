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

// tomlText is a text of TOML that was read.
type tomlText struct {
	data []byte
	own  []byte // for parsers
	all  map[string]any
}

// parseTOML reads a text. What is wrong with it is told by its line alone.
func parseTOML(data []byte) (*tomlText, error) {
	t := &tomlText{data: data, own: readable(data)}
	var p unstable.Parser
	p.Reset(t.own)
	for p.NextExpression() {
		if e := p.Expression(); len(path(e)) > maxDepth {
			return nil, &mistake{lineOf(t.own, keyAt(e)), fmt.Sprintf("its tables lie more than %d deep in each other", maxDepth)}
		}
	}
	err := toml.Unmarshal(t.own, &t.all)
	if err == nil {
		return t, nil
	}
	m := &mistake{text: "it is no TOML"}
	if where := new(toml.DecodeError); errors.As(err, &where) {
		m.line, _ = where.Position()
		m.line = min(m.line, lastLine(data))
	}
	return nil, m
}

func readTOML(data []byte) (text, error) {
	t, err := parseTOML(data)
	if err != nil {
		return text{}, err
	}
	return text{t.all, t.find}, nil
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

// block looks for the entry of a server. There is one, by what the text decodes to.
func (t *tomlText) block(key, name string) block {
	var p unstable.Parser
	p.Reset(t.own)
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
			b.line = lineOf(t.own, at)
		}
		if e.Kind == unstable.Table && len(table) == 2 {
			headers++
			b.from = lineStart(t.own, at)
		}
		b.to = min(lineEnd(t.own, at), len(t.data))
	}
	if headers != 1 || b.to <= b.from {
		return b
	}
	// What is cut out has to be the whole of it, and nothing else.
	own := t.own[b.from:b.to]
	var alone map[string]any
	if toml.Unmarshal(own, &alone) != nil || hasComment(own) {
		return b
	}
	servers, _ := t.all[key].(map[string]any)
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

func (t *tomlText) find(key, name string) (f found, err error) {
	servers, ok := t.all[key].(map[string]any)
	if t.all[key] != nil && !ok {
		return f, &mistake{text: key + " is no table"}
	}
	if f.value, f.there = servers[name]; f.there {
		b := t.block(key, name)
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
	t, err := parseTOML(data)
	if err != nil {
		return nil, err
	}
	nl := newline(data)
	text := tableOf(e, key, name, nl)
	if f, err := t.find(key, name); err != nil || f.there {
		if b := t.block(key, name); err == nil && b.plain {
			return cut(data, b.from, b.to, text), nil
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
	t, err := parseTOML(data)
	if err != nil {
		return nil, err
	}
	if f, err := t.find(key, name); err != nil || !f.plain {
		return data, err
	}
	b := t.block(key, name)
	from, to := b.from, b.to
	blank := func(line []byte) bool { return len(line) > 0 && len(bytes.TrimSpace(line)) == 0 }
	if before := lineStart(data, max(from-1, 0)); from > 0 && blank(data[before:from]) {
		from = before // the line that was put before it
	} else if after := lineEnd(data, to); from == 0 && blank(data[to:after]) {
		to = after
	}
	return cut(data, from, to, ""), nil
}
