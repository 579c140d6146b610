package catalog

import (
	"strconv"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// rewrite holds the values that replace those of an item; zero values replace
// nothing.
type rewrite struct {
	name, description string
	annotations       v1beta1.ToolAnnotations
}

// add applies an override on top of those added before.
func (r *rewrite) add(o v1beta1.ToolOverride) {
	put(&r.name, o.Name)
	put(&r.description, o.Description)
	if a := o.Annotations; a != nil {
		put(&r.annotations.Title, a.Title)
		put(&r.annotations.ReadOnlyHint, a.ReadOnlyHint)
		put(&r.annotations.DestructiveHint, a.DestructiveHint)
		put(&r.annotations.IdempotentHint, a.IdempotentHint)
		put(&r.annotations.OpenWorldHint, a.OpenWorldHint)
	}
}

func put[T comparable](old *T, given T) {
	var none T
	if given != none {
		*old = given
	}
}

// annotated returns the annotations that are set, as members of JSON text.
func annotated(a v1beta1.ToolAnnotations) []mcp.Member {
	var set []mcp.Member
	if a.Title != nil {
		set = append(set, mcp.Raw("title", mcp.Quote(*a.Title)))
	}
	for _, hint := range []struct {
		name  string
		value *bool
	}{
		{"readOnlyHint", a.ReadOnlyHint}, {"destructiveHint", a.DestructiveHint},
		{"idempotentHint", a.IdempotentHint}, {"openWorldHint", a.OpenWorldHint},
	} {
		if hint.value != nil {
			set = append(set, mcp.With(hint.name, strconv.FormatBool(*hint.value)))
		}
	}
	return set
}

// apply returns the rewritten item: values replace those that are there, or are
// inserted first, and every other byte is kept.
func (r *rewrite) apply(raw []byte) []byte {
	var set []mcp.Member
	if r.name != "" {
		set = append(set, mcp.Raw("name", mcp.Quote(r.name)))
	}
	if r.description != "" {
		set = append(set, mcp.Raw("description", mcp.Quote(r.description)))
	}
	if hints := annotated(r.annotations); hints != nil {
		old := mcp.Lookup(raw, "annotations")
		if old == nil || old[0] != '{' {
			old = []byte("{}")
		}
		set = append(set, mcp.Raw("annotations", splice(old, hints)))
	}
	if set == nil {
		return raw
	}
	return splice(raw, set)
}

// splice returns the object with the members set and every other byte kept.
func splice(object []byte, set []mcp.Member) []byte {
	var edits []mcp.Edit
	placed := make([]bool, len(set))
	w := walker{text: object}
	empty := true
	w.members(func(name []byte) {
		empty = false
		at := w.value()
		for i, m := range set {
			if string(m.Name) == string(name) {
				edits = append(edits, mcp.Edit{Span: at, With: m.Value})
				placed[i] = true
			}
		}
	})
	var added []byte
	for i, m := range set {
		if placed[i] {
			continue
		}
		if added != nil {
			added = append(added, ',')
		}
		added = append(append(append(append(added, '"'), m.Name...), `":`...), m.Value...)
	}
	if added != nil {
		if !empty {
			added = append(added, ',')
		}
		w = walker{text: object}
		w.opens('{')
		edits = append(edits, mcp.Edit{Span: mcp.Span{Start: uint32(w.at), End: uint32(w.at)}, With: added})
	}
	return mcp.Splice(make([]byte, 0, len(object)+64), object, edits...)
}

// hints reads the hints of a tool into a target; those of the rewrite take
// precedence over its own. yes and no are shared by the hints of one table.
func (r *rewrite) hints(t *edge.Target, raw []byte, yes, no *bool) {
	says := func(given *bool, name string) *bool {
		if given != nil {
			if *given {
				return yes
			}
			return no
		}
		switch string(mcp.Lookup(raw, "annotations", name)) {
		case "true":
			return yes
		case "false":
			return no
		}
		return nil
	}
	t.ReadOnly = says(r.annotations.ReadOnlyHint, "readOnlyHint")
	t.Destructive = says(r.annotations.DestructiveHint, "destructiveHint")
	t.Idempotent = says(r.annotations.IdempotentHint, "idempotentHint")
	t.OpenWorld = says(r.annotations.OpenWorldHint, "openWorldHint")
}
