package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readYAML reads the documents of data. Each is parsed on its own, so that a
// syntax error in one leaves the others to be read.
func (r *reader) readYAML(data []byte) {
	for _, c := range chunks(data) {
		if text := bytes.TrimSpace(c.text); len(text) > 0 && text[0] == '{' && json.Valid(text) {
			lead := bytes.Count(c.text[:bytes.IndexByte(c.text, '{')], []byte("\n"))
			r.readJSON(text, c.before+lead)
			continue
		}
		d := yaml.NewDecoder(bytes.NewReader(c.text))
		for {
			var y yaml.Node
			err := d.Decode(&y)
			if errors.Is(err, io.EOF) {
				break
			}
			r.begin()
			if err != nil {
				line, message := syntax(c.text, err)
				r.fault(c.before+line, 0, "", "%s", message)
				r.unreadable()
				break
			}
			b := builder{r: r, before: c.before}
			root, ok := b.build(&y, "", 0)
			if !ok {
				r.unreadable()
				continue
			}
			if !r.document(root) {
				return
			}
		}
		if r.full {
			return
		}
	}
}

type chunk struct {
	text   []byte
	before int // lines of the file before the chunk
}

// chunks cuts a file before each line that starts with the marker --- (YAML
// 1.2.2 §9.1.2). No scalar can hold such a line, so the cut is always right.
// Directives say nothing that changes how we read: they are blanked.
func chunks(data []byte) []chunk {
	data = bytes.Clone(data)
	var out []chunk
	start, line, before := 0, 0, 0
	directives := false // so far the chunk holds directives and nothing else
	content := false
	for at := 0; at < len(data); {
		end := at + bytes.IndexByte(data[at:], '\n') + 1
		if end == at {
			end = len(data)
		}
		text := data[at:end]
		marker := bytes.HasPrefix(text, []byte("---")) && (len(text) == 3 || strings.ContainsRune(" \t\r\n", rune(text[3])))
		if marker && content && !directives {
			out = append(out, chunk{data[start:at], before})
			start, before = at, line
		}
		if marker && directives {
			for i, c := range data[start:at] {
				if c != '\n' {
					data[start+i] = ' '
				}
			}
		}
		if string(bytes.TrimRight(text, " \t\r\n")) == "..." { // The document ends (YAML 1.2.2 §9.1.3).
			out = append(out, chunk{data[start:end], before})
			at, line = end, line+1
			start, before, content, directives = at, line, false, false
			continue
		}
		if bare := bytes.TrimSpace(text); len(bare) > 0 && bare[0] != '#' {
			directives = text[0] == '%' && (directives || !content)
			content = true
		}
		at, line = end, line+1
	}
	return append(out, chunk{data[start:], before})
}

// builder turns the nodes of the YAML library into ours.
type builder struct {
	r      *reader
	before int
}

// build returns the value of y, which stands at path. It reports false, with
// the fault noted, when the document must be given up.
func (b *builder) build(y *yaml.Node, path string, depth int) (*node, bool) {
	switch y.Kind {
	case yaml.DocumentNode:
		return b.build(y.Content[0], path, 1)
	case yaml.AliasNode:
		if b.r.aliases == 0 {
			b.r.aliasAt = fault{line: b.before + y.Line, column: y.Column, path: path}
		}
		b.r.aliases++
		n, ok := b.build(y.Alias, path, depth)
		b.r.aliases--
		return n, ok
	}
	n := &node{line: b.before + y.Line, column: y.Column}
	if !b.r.afford(n, path, depth) {
		return nil, false
	}
	switch y.Kind {
	case yaml.SequenceNode:
		n.kind = list
		for i, c := range y.Content {
			item, ok := b.build(c, index(path, i), depth+1)
			if !ok {
				return nil, false
			}
			n.items = append(n.items, item)
		}
	case yaml.MappingNode:
		n.kind = mapping
		return n, b.members(n, y, path, depth)
	default:
		b.scalar(n, y, path)
		return n, true
	}
	return n, true
}

// members fills in the members of a mapping, those of its merge keys last: a
// key that the mapping gives itself wins.
func (b *builder) members(n *node, y *yaml.Node, path string, depth int) bool {
	lines := map[string]int{}
	var merged []*node
	for i := 0; i+1 < len(y.Content); i += 2 {
		k, v := y.Content[i], y.Content[i+1]
		if k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		line := b.before + k.Line
		if k.Kind != yaml.ScalarNode {
			b.r.fault(line, k.Column, path, "a key is %s: a key must be text; put quotes around text that starts with { or [", yamlKind(k))
			continue
		}
		if k.ShortTag() == "!!merge" {
			value, ok := b.build(v, path, depth)
			if !ok {
				return false
			}
			merged = append(merged, value)
			continue
		}
		at := join(path, k.Value)
		value, ok := b.build(v, at, depth+1)
		if !ok {
			return false
		}
		if first, twice := lines[k.Value]; twice {
			b.r.fault(line, k.Column, at, "the key is given twice, first at line %d: keep one", first)
			continue
		}
		lines[k.Value] = line
		n.members = append(n.members, member{key: k.Value, line: line, column: k.Column, value: value})
	}
	for _, m := range merged {
		sources := []*node{m}
		if m.kind == list {
			sources = m.items
		}
		for _, s := range sources {
			if s.kind != mapping {
				b.r.fault(m.line, m.column, path, "the merge key << takes a mapping, not %s", s.describe())
				continue
			}
			for _, f := range s.members {
				if _, own := lines[f.key]; !own {
					lines[f.key] = f.line
					n.members = append(n.members, f)
				}
			}
		}
	}
	return true
}

func (b *builder) scalar(n *node, y *yaml.Node, path string) {
	n.text = y.Value
	switch t := y.ShortTag(); t {
	case "!!str", "!!timestamp", "!!merge":
		n.tag = tagText
	case "!!null":
		n.tag = tagNull
	case "!!bool":
		n.tag = tagBool
		n.text = strings.ToLower(y.Value)
	case "!!int":
		n.tag = tagWhole
		if whole, err := jsonNumber(n); err == nil {
			n.text = whole
		}
	case "!!float":
		n.tag = tagFloat
		// The library takes whole numbers beyond 64 bits for others.
		if text := decimal(y.Value); json.Valid([]byte(text)) && !strings.ContainsAny(text, ".eE") {
			n.tag, n.text = tagWhole, text
		}
	default:
		n.tag = tagText
		b.r.fault(n.line, n.column, path, "a YAML tag that starts with ! is not accepted: put quotes around text that starts with !")
	}
}

func yamlKind(y *yaml.Node) string {
	if y.Kind == yaml.MappingNode {
		return "a mapping"
	}
	return "a list"
}

// syntax turns an error of the YAML library into the line that it is about,
// counted from 1 within text, and what to do. The library names at times the
// line before, at times where the block began; it never gets to show text of
// the file, which may be a secret's.
func syntax(text []byte, err error) (line int, message string) {
	message = strings.TrimPrefix(err.Error(), "yaml: ")
	line = 1
	if m := regexp.MustCompile(`^line (\d+): `).FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	}
	if strings.HasPrefix(message, "unknown anchor") {
		message = "an alias has no anchor: put quotes around text that starts with *"
		if at := regexp.MustCompile(`(?m)(^|[\s,\[{])\*[^\s]`).FindIndex(text); at != nil {
			line = 1 + bytes.Count(text[:at[1]-1], []byte("\n"))
		}
		return line, message
	}
	if strings.HasPrefix(message, "did not find expected") || strings.HasPrefix(message, "mapping values") {
		line = firstBad(text, line)
	}
	lines := bytes.Split(text, []byte("\n"))
	line = min(max(line, 1), len(lines))
	if at := tabIndented(lines, line); at > 0 {
		return at, "a tab indents the line: YAML takes spaces only"
	}
	switch {
	case strings.HasPrefix(message, "mapping values are not allowed"):
		return line, "a value holds \": \", or the line is indented too far: put quotes around the text, or align the line with its neighbours"
	case strings.Contains(message, "could not find expected ':'"):
		return line, "a line is neither KEY: VALUE nor an item of a list: add the colon, or indent the text under its key"
	case strings.Contains(message, "did not find expected key"), strings.Contains(message, "did not find expected '-' indicator"):
		return line, "the indentation does not match the lines above: align keys of one mapping, and items of one list, in one column"
	case strings.Contains(message, "did not find expected ',' or"):
		return line, "a list or mapping in brackets is not closed: add the missing , or the closing bracket"
	case strings.Contains(message, "found unexpected end of stream"):
		return line, "text in quotes is not closed: add the closing quote"
	case strings.Contains(message, "cannot start any token"):
		return line, "a value starts with a character that YAML keeps for itself: put quotes around the text"
	case strings.Contains(message, "control characters"):
		if at := bytes.IndexFunc(text, func(c rune) bool { return c < ' ' && c != '\n' && c != '\r' && c != '\t' || c == 0x7f }); at >= 0 {
			line = 1 + bytes.Count(text[:at], []byte("\n"))
		}
		return line, "a control character stands in the file: take it out, or write it as an escape in double quotes"
	case strings.Contains(message, "exceeded max depth"):
		return line, "it is nested deeper than " + strconv.Itoa(maxDepth) + " levels: flatten it"
	}
	return line, "not valid YAML: " + message
}

// firstBad finds the first line that makes text fail as it does: the shortest
// run of lines from the start that has the same error. Long texts keep the
// library's line, so that the search stays cheap.
func firstBad(text []byte, line int) int {
	if len(text) > 256<<10 {
		return line
	}
	cause := func(err error) string {
		return regexp.MustCompile(`line \d+: `).ReplaceAllString(err.Error(), "")
	}
	parse := func(text []byte) string {
		var y yaml.Node
		if err := yaml.Unmarshal(text, &y); err != nil {
			return cause(err)
		}
		return ""
	}
	want := parse(text)
	lines := bytes.SplitAfter(text, []byte("\n"))
	low, high := 1, len(lines) // the answer is in low..high
	for low < high {
		middle := (low + high) / 2
		if parse(bytes.Join(lines[:middle], nil)) == want {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// tabIndented returns the line at or right before line that starts with a tab,
// 0 when none does.
func tabIndented(lines [][]byte, line int) int {
	for _, at := range []int{line, line + 1, line - 1} {
		if at < 1 || at > len(lines) {
			continue
		}
		text := lines[at-1]
		lead := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
		if bytes.IndexByte(lead, '\t') >= 0 && len(bytes.TrimSpace(text)) > 0 {
			return at
		}
	}
	return 0
}
