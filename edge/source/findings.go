package source

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
)

// Finding is one thing to say about a set, and where that stands.
type Finding struct {
	compile.Finding
	File   string // empty when it is about no file
	Line   int    // counted from 1; 0 when it is about the whole file
	Column int    // counted from 1; 0 when unknown
}

// String returns the finding on one line:
//
//	FILE:LINE: KIND/NAME: field.path: what is wrong and what to do
//
// A warning or a note says so before the path.
func (f Finding) String() string {
	var b strings.Builder
	part := func(s string) {
		if s != "" {
			b.WriteString(s)
			b.WriteString(": ")
		}
	}
	file := show(f.File, 4096)
	if file != "" && f.Line > 0 {
		file += ":" + strconv.Itoa(f.Line)
	}
	part(file)
	if f.Object != (compile.Ref{}) {
		part(show(f.Object.String(), 320))
	}
	if f.Severity != compile.Error {
		part(f.Severity.String())
	}
	part(show(f.Path, 200))
	b.WriteString(show(f.Message, 2000))
	return b.String()
}

// show makes text fit for a line of output: what a terminal would act upon is
// escaped, what is long is cut.
func show(s string, limit int) string {
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	if strings.IndexFunc(s, func(c rune) bool { return !strconv.IsPrint(c) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, c := range s {
		if strconv.IsPrint(c) {
			b.WriteRune(c)
			continue
		}
		quoted := strconv.QuoteRune(c)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// Advice is the finding with what to do about it. Its subject is the place in a
// file; "" for none.
func (f Finding) Advice() edge.Finding {
	at, line := "", f.String()
	if f.File != "" {
		place := f.File
		if f.Line > 0 {
			place = fmt.Sprintf("%s:%d", place, f.Line)
		}
		// What String escapes in a name of a file is shown in the cause.
		if rest, ok := strings.CutPrefix(line, place+": "); ok {
			at, line = place, rest
		}
	}
	c := edge.Problem(edge.ClassManifest, f.next(), "%s", line)
	c.Subject = at
	switch f.Severity {
	case compile.Error:
	case compile.Warning:
		c.Level = edge.LevelWarning
	default:
		c.Level, c.Class, c.Next = edge.LevelNote, "", ""
	}
	return c
}

// next is what to do about a finding of a manifest. What is said there may
// name the very word to write.
func (f Finding) next() string {
	schema := "`weir schema` has the fields of every kind"
	if f.Object.Kind != "" {
		schema = "`weir schema " + f.Object.Kind + "` has every field"
	}
	switch f.Reason {
	case compile.ReasonUnreadable:
		if f.Line == 0 {
			return "name a file or directory that is there and can be read with -c"
		}
		return "correct the text at that line: it has to be YAML or JSON"
	case compile.ReasonUnknownKind:
		return "correct apiVersion or kind: `weir schema` has every kind"
	case compile.ReasonUnknownField:
		return "correct the name of the field, or take it out: " + schema
	case compile.ReasonDuplicate:
		return "rename one of the two, or take it out"
	case compile.ReasonNotFound, compile.ReasonOutside:
		return "correct the name that is referred to, or add the object"
	case compile.ReasonConflict:
		return "keep one of the two"
	case compile.ReasonUnsupported:
		return "take the field out until it is supported"
	case compile.ReasonNotAllowed:
		return "do as it says"
	case compile.ReasonSetting:
		return "do as it says: give the setting to the edge, and to this command, which judges as the edge would"
	case compile.ReasonUnused:
		switch {
		case f.Path == "":
			return "take it out, or refer to it"
		case strings.HasPrefix(f.Message, "not used"):
			return "take the field out"
		}
		return "do as it says, or leave it so where that is meant"
	}
	return "correct the value: " + schema
}

// Findings are findings in file and line order. As an error they are those of
// severity error, a line each.
type Findings []Finding

// Error returns the errors, a line each.
func (fs Findings) Error() string {
	var lines []string
	for _, f := range fs.Errors() {
		lines = append(lines, f.String())
	}
	return strings.Join(lines, "\n")
}

// Errors returns the findings of severity error.
func (fs Findings) Errors() Findings {
	var out Findings
	for _, f := range fs {
		if f.Severity == compile.Error {
			out = append(out, f)
		}
	}
	return out
}

// Strict returns the findings with warnings as errors.
func (fs Findings) Strict() Findings {
	out := slices.Clone(fs)
	for i := range out {
		if out[i].Severity == compile.Warning {
			out[i].Severity = compile.Error
		}
	}
	return out
}

// Render writes every finding, a line each.
func (fs Findings) Render(w io.Writer) error {
	for _, f := range fs {
		if _, err := io.WriteString(w, f.String()+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// sort orders by file and line.
func (fs Findings) sort() {
	slices.SortStableFunc(fs, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Severity, b.Severity),
			cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Message, b.Message),
		)
	})
}

// err returns what is wrong with the text, nil when nothing is.
func (s *Set) err() error {
	if len(s.findings) == 0 {
		return nil
	}
	out := slices.Clone(Findings(s.findings))
	out.sort()
	return out
}

// place is where an object stands.
type place struct {
	file   string
	root   *node
	config bool     // the document is the object's spec.config alone
	faulty []string // paths of values that could not be read, of which no more is to be said
}

// locate finds the line that a finding of compile is about: that of the field,
// or of the nearest section around it that is there.
func (s *Set) locate(f compile.Finding) Finding {
	if f.Index < 0 || f.Index >= len(s.places) {
		return Finding{Finding: f, File: s.path}
	}
	p := s.places[f.Index]
	if p.config {
		f.Path = configPath(f.Path)
		f.Message = strings.ReplaceAll(f.Message, "spec.config.", "")
	}
	line, column := p.root.at(f.Path)
	return Finding{Finding: f, File: p.file, Line: line, Column: column}
}

// Locate returns a finding about an object of the set with its place.
func (r *Result) Locate(f compile.Finding) Finding {
	f.Index = slices.IndexFunc(r.Set.Objects, func(o compile.Object) bool { return o.Ref() == f.Object })
	return r.Set.locate(f)
}

// at finds the line and column of the field at path, or of the nearest section
// around it that is there.
func (n *node) at(path string) (line, column int) {
	line, column = n.line, n.column
	for _, step := range steps(path) {
		var next *node
		switch n.kind {
		case mapping:
			for _, m := range n.members {
				if m.key == step {
					line, column, next = m.line, m.column, m.value
				}
			}
		case list:
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.items) {
				next = n.items[i]
				line, column = next.line, next.column
			}
		}
		if next == nil {
			break
		}
		n = next
	}
	return line, column
}

// configPath turns the path of a field of a VirtualMCPServer into that of the
// document that holds only its spec.config.
func configPath(path string) string {
	switch {
	case path == "metadata.name":
		return "name"
	case path == "spec", path == "spec.config":
		return ""
	}
	return strings.TrimPrefix(path, "spec.config.")
}

// steps cuts a path as package field writes it, spec.backends[0].url or
// perWorkload[a.b], into the keys and indices that lead there.
func steps(path string) []string {
	var out []string
	for path != "" {
		switch {
		case path[0] == '.':
			path = path[1:]
		case path[0] == '[':
			end := closing(path)
			out = append(out, path[1:end])
			path = path[min(end+1, len(path)):]
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			out = append(out, path[:end])
			path = path[end:]
		}
	}
	return out
}

// closing returns where the bracket that path starts with ends: before a dot,
// another bracket, or the end of the path.
func closing(path string) int {
	for i := 1; i < len(path); i++ {
		if path[i] == ']' && (i+1 == len(path) || path[i+1] == '.' || path[i+1] == '[') {
			return i
		}
	}
	return len(path)
}
