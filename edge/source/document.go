package source

import (
	"reflect"

	"github.com/weir-edge/weir/edge/compile"
)

// Document is the one document of a file that is no manifest, such as the cases
// of a guest. What is wrong with it is said with the file and line.
type Document struct {
	file string
	doc  *document
}

// Decode decodes a document strictly, as manifests are: every member must be a
// field of what v points to, a struct, and every value of the field's type. file
// stands for the file in messages; one that ends in .json says that data is
// JSON. What could be decoded is in v, whatever is wrong with the rest.
func Decode(file string, data []byte, v any) *Document {
	all := readFile(file, data, maxDocuments)
	if len(all) == 0 {
		all = []*document{{root: &node{kind: mapping, line: 1}}}
	}
	d := &Document{file, all[0]}
	if len(all) > 1 && all[1].root != nil {
		d.doc.fault(all[1].root, "", compile.ReasonUnreadable, "a second document: one is read, take the other out")
	}
	if d.doc.root != nil {
		decoder := &decoder{doc: d.doc, kind: reflect.TypeOf(v).Elem()}
		decoder.decode(d.doc.root, reflect.ValueOf(v).Elem(), "")
	}
	return d
}

// Fault notes that something is wrong with the field at path, such as
// cases[0].hook.
func (d *Document) Fault(path, format string, args ...any) {
	at := &node{line: 1}
	if d.doc.root != nil {
		at.line, at.column = d.doc.root.at(path)
	}
	d.doc.fault(at, path, compile.ReasonInvalid, format, args...)
}

// Err returns everything that is wrong, of type Findings; nil when nothing is.
func (d *Document) Err() error {
	var out Findings
	for _, f := range d.doc.faults {
		out = append(out, Finding{
			File: d.file, Line: f.line, Column: f.column,
			Finding: compile.Finding{Index: -1, Path: f.path, Reason: f.reason, Message: f.message},
		})
	}
	if len(out) == 0 {
		return nil
	}
	out.sort()
	return out
}
