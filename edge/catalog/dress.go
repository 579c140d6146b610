package catalog

import (
	"strconv"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// dress is what is shown of an item in the place of what its backend says; what
// is not given stays.
type dress struct {
	name, description string
	annotations       v1beta1.ToolAnnotations
}

// wear puts an override over what is worn already.
func (d *dress) wear(o v1beta1.ToolOverride) {
	put(&d.name, o.Name)
	put(&d.description, o.Description)
	if a := o.Annotations; a != nil {
		put(&d.annotations.Title, a.Title)
		put(&d.annotations.ReadOnlyHint, a.ReadOnlyHint)
		put(&d.annotations.DestructiveHint, a.DestructiveHint)
		put(&d.annotations.IdempotentHint, a.IdempotentHint)
		put(&d.annotations.OpenWorldHint, a.OpenWorldHint)
	}
}

func put[T comparable](old *T, given T) {
	var none T
	if given != none {
		*old = given
	}
}

// annotated returns the annotations that are given, as members of JSON text.
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

// on returns the item with the dress on: values that are given replace those
// that are there, or come first, and every other byte is as it was.
func (d *dress) on(raw []byte) []byte {
	var set []mcp.Member
	if d.name != "" {
		set = append(set, mcp.Raw("name", mcp.Quote(d.name)))
	}
	if d.description != "" {
		set = append(set, mcp.Raw("description", mcp.Quote(d.description)))
	}
	if hints := annotated(d.annotations); hints != nil {
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

// hints reads the hints of a tool, those of its dress before its own, into a
// target. yes and no are what the hints of one table point to.
func (d *dress) hints(t *edge.Target, raw []byte, yes, no *bool) {
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
	t.ReadOnly = says(d.annotations.ReadOnlyHint, "readOnlyHint")
	t.Destructive = says(d.annotations.DestructiveHint, "destructiveHint")
	t.Idempotent = says(d.annotations.IdempotentHint, "idempotentHint")
	t.OpenWorld = says(d.annotations.OpenWorldHint, "openWorldHint")
}
