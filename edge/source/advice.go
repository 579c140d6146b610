package source

import (
	"fmt"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
)

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
	case compile.ReasonNotFound:
		return "correct the name that is referred to, or add the object"
	case compile.ReasonConflict:
		return "keep one of the two"
	case compile.ReasonUnsupported:
		return "take the field out until it is supported"
	case compile.ReasonUnused:
		return "take it out, or refer to it"
	}
	return "correct the value: " + schema
}
