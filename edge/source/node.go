package source

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// node is one value of a document and where it stands. YAML and JSON both
// become nodes: aliases and merge keys are written out, no key comes twice and
// nothing is nested deeper than maxDepth.
type node struct {
	kind    nodeKind
	tag     tag      // of a scalar
	text    string   // of a scalar
	members []member // of a mapping, in the order of the file
	items   []*node  // of a list
	line    int      // counted from 1
	column  int
}

type member struct {
	key          string
	line, column int
	value        *node
}

type nodeKind int

const (
	scalar nodeKind = iota
	mapping
	list
)

// tag is what a scalar is before anybody asks for a type: the tags of YAML's
// core schema, which are those of JSON.
type tag string

const (
	tagText  tag = "text"
	tagWhole tag = "whole"
	tagFloat tag = "float"
	tagBool  tag = "bool"
	tagNull  tag = "null"
)

// get returns the value under key, nil when a mapping has none or n is none.
func (n *node) get(key string) *node {
	if n == nil || n.kind != mapping {
		return nil
	}
	for _, m := range n.members {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// has reports whether a mapping has key, be its value null.
func (n *node) has(key string) bool { return n.get(key) != nil }

// null reports whether n says nothing: null, ~ or no text at all.
func (n *node) null() bool { return n == nil || n.kind == scalar && n.tag == tagNull }

// str returns the text of a scalar that is text, else "".
func (n *node) str() string {
	if n == nil || n.kind != scalar || n.tag != tagText {
		return ""
	}
	return n.text
}

// describe says what a value is, for a message. It shows no text of it.
func (n *node) describe() string {
	switch {
	case n.kind == mapping:
		return "a mapping"
	case n.kind == list:
		return "a list"
	}
	switch n.tag {
	case tagWhole:
		return "a number"
	case tagFloat:
		return "a number that is not whole"
	case tagBool:
		return n.text
	case tagNull:
		return "nothing"
	}
	return "text"
}

// forget takes the text out of every scalar under n.
func (n *node) forget() {
	n.text = ""
	for _, m := range n.members {
		m.value.forget()
	}
	for _, i := range n.items {
		i.forget()
	}
}

// json writes a value as JSON. Whole numbers keep every digit. bad is the number in it that JSON
// has no form for; nil for none.
func (n *node) json() (text []byte, bad *node) {
	var b strings.Builder
	bad = n.writeJSON(&b)
	return []byte(b.String()), bad
}

func (n *node) writeJSON(b *strings.Builder) (bad *node) {
	switch n.kind {
	case mapping:
		b.WriteByte('{')
		for i, m := range n.members {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(quoteJSON(m.key))
			b.WriteByte(':')
			if bad := m.value.writeJSON(b); bad != nil {
				return bad
			}
		}
		b.WriteByte('}')
		return nil
	case list:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			if bad := item.writeJSON(b); bad != nil {
				return bad
			}
		}
		b.WriteByte(']')
		return nil
	}
	switch n.tag {
	case tagNull:
		b.WriteString("null")
	case tagBool:
		b.WriteString(n.text)
	case tagWhole, tagFloat:
		number, err := jsonNumber(n)
		if err != nil {
			return n
		}
		b.WriteString(number)
	default:
		b.Write(quoteJSON(n.text))
	}
	return nil
}

func quoteJSON(s string) []byte {
	out, err := json.Marshal(s)
	if err != nil { // never: a string always has a JSON form
		return []byte(`""`)
	}
	return out
}

// jsonNumber writes a number of YAML, such as 0x1F or +1, as one of JSON.
func jsonNumber(n *node) (string, error) {
	text := decimal(n.text)
	if json.Valid([]byte(text)) {
		return text, nil
	}
	if n.tag == tagWhole {
		if i, err := whole(n); err == nil {
			return strconv.FormatInt(i, 10), nil
		}
		u, err := strconv.ParseUint(text, 0, 64)
		return strconv.FormatUint(u, 10), err
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return "", err
	}
	out, err := json.Marshal(f)
	return string(out), err
}

// decimal is a number without what YAML allows in one and JSON does not.
func decimal(text string) string { return strings.TrimPrefix(strings.ReplaceAll(text, "_", ""), "+") }

// whole returns the value of a whole number in any notation of YAML.
func whole(n *node) (int64, error) {
	i, err := strconv.ParseInt(decimal(n.text), 0, 64)
	if err != nil {
		return 0, fmt.Errorf("want a whole number of at most 64 bits")
	}
	return i, nil
}
