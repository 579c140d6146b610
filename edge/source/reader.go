package source

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge/compile"
)

// What one set may hold. A set is read whole before anything starts, so the
// bounds keep a mistaken path (a log, a disk image) from filling the memory.
const (
	maxFile      = 4 << 20 // bytes of one file
	maxDocuments = 1000    // of all files
	maxValues    = 200_000 // of one file, aliases written out
	maxDepth     = 100     // mappings and lists inside each other
	maxFaults    = 100     // of one document; more say nothing new
	maxPath      = 1000    // bytes of a path in a message
)

// reader takes one file apart into documents.
type reader struct {
	file      string
	documents []*document
	current   *document
	limit     int   // documents that may still be read
	full      bool  // the limit was met
	values    int   // nodes made so far
	aliases   int   // aliases that the node being made stands inside of
	aliasAt   fault // where the outermost of them stands
}

// document is one document of a file and what is wrong with it as text.
type document struct {
	root   *node // nil when it could not be read
	faults []fault
}

// fault is one thing wrong in a file.
type fault struct {
	line, column int
	path         string
	reason       string
	message      string
	meant        string // the path that is meant by one that is no field; "" for none
}

// unread returns the paths that what is faulty may belong to, below a prefix;
// nil for any.
func (d *document) unread(prefix string) []string {
	if len(d.faults) >= maxFaults {
		return nil
	}
	paths := []string{}
	for _, f := range d.faults {
		path := f.path
		if f.reason == compile.ReasonUnknownField {
			if path = f.meant; path == "" {
				continue
			}
		}
		if path == "" || strings.Contains(path, "…") {
			return nil
		}
		paths = append(paths, prefix+path)
	}
	return paths
}

// readFile returns the documents of a file. Its name decides between JSON and
// YAML. limit is how many documents it may hold.
func readFile(name string, data []byte, limit int) []*document {
	r := &reader{file: name, limit: limit}
	if len(data) > maxFile {
		r.begin()
		r.fault(1, 0, "", "the file is larger than 4 MiB: split it, or name another file")
		r.unreadable()
		return r.documents
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(data) {
		r.begin()
		r.fault(badUTF8(data), 0, "", "the file is not UTF-8 text: save it as UTF-8")
		r.unreadable()
		return r.documents
	}
	if strings.EqualFold(filepath.Ext(name), ".json") {
		r.readJSON(data, 0)
	} else {
		r.readYAML(data)
	}
	return r.documents
}

// badUTF8 returns the line of the first byte that is not UTF-8.
func badUTF8(data []byte) int {
	line := 1
	for len(data) > 0 {
		c, size := utf8.DecodeRune(data)
		if c == utf8.RuneError && size == 1 {
			return line
		}
		if c == '\n' {
			line++
		}
		data = data[size:]
	}
	return line
}

// begin starts the next document; faults belong to it from here on.
func (r *reader) begin() { r.current = &document{} }

// document ends the current document with its content and reports whether
// another may follow. A document that says nothing is none.
func (r *reader) document(root *node) bool {
	if root.null() && len(r.current.faults) == 0 {
		return true
	}
	if r.limit--; r.limit < 0 {
		r.current = &document{}
		r.fault(root.line, 0, "", "more than %d documents: split the set", maxDocuments)
		r.unreadable()
		r.full = true
		return false
	}
	r.current.root = root
	r.documents = append(r.documents, r.current)
	return true
}

// unreadable ends the current document without content.
func (r *reader) unreadable() { r.documents = append(r.documents, r.current) }

func (r *reader) fault(line, column int, path, format string, args ...any) {
	if len(r.current.faults) < maxFaults {
		r.current.faults = append(r.current.faults, fault{line: line, column: column, path: path, reason: compile.ReasonUnreadable, message: fmt.Sprintf(format, args...)})
	}
}

// afford counts a new node and reports whether the document may go on.
func (r *reader) afford(n *node, path string, depth int) bool {
	r.values++
	at := r.aliasAt
	switch {
	case depth > maxDepth && r.aliases > 0:
		r.fault(at.line, at.column, shorten(at.path), "an alias holds itself, or is nested deeper than %d levels: write the value out", maxDepth)
	case depth > maxDepth:
		r.fault(n.line, n.column, shorten(path), "nested deeper than %d levels: flatten it", maxDepth)
	case r.values > maxValues && r.aliases > 0:
		r.fault(at.line, at.column, shorten(at.path), "aliases blow the file up to more than %d values: write out what is needed", maxValues)
	case r.values > maxValues:
		r.fault(n.line, n.column, shorten(path), "the file holds more than %d values: split it", maxValues)
	default:
		return true
	}
	return false
}

// shorten keeps the start of a path that would fill the screen.
func shorten(path string) string {
	if len(path) > 120 {
		return strings.ToValidUTF8(path[:100], "") + "…"
	}
	return path
}

// join returns the path of the member key of the mapping at path.
func join(path, key string) string {
	if len(path) > maxPath {
		return path
	}
	key = cut(key, 80)
	for _, c := range key {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return path + "[" + key + "]"
		}
	}
	if path == "" || key == "" {
		return path + key
	}
	return path + "." + key
}

// index returns the path of item i of the list at path.
func index(path string, i int) string {
	if len(path) > maxPath {
		return path
	}
	return path + "[" + strconv.Itoa(i) + "]"
}
