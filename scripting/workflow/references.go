package workflow

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/edge/mcp"
)

// The bounds of following references, since backends write the schemas: how many there are one
// after the other, and what is read of a schema for all of them, in bytes.
const (
	maxReferences = 8
	maxFollowed   = 16 << 20
)

// references are those within a schema.
type references struct {
	root []byte // JSON text of the schema
	left int    // of maxFollowed
}

// resolved is what a schema refers to; any other as it is. Schemas that are made from code have a
// reference as the one part of allOf, too, beside a description or a default.
func (r *references) resolved(schema []byte) []byte {
	for n := 0; n < maxReferences && mcp.Lookup(schema, "type") == nil; n++ {
		ref, all := mcp.LookupTwo(schema, "$ref", "allOf")
		switch parts := mcp.Elements(all); {
		case ref != nil:
			schema = r.at(mcp.String(ref))
		case len(parts) == 1:
			schema = parts[0]
		default:
			return schema
		}
	}
	return schema
}

var unpointed = strings.NewReplacer("~1", "/", "~0", "~")

// at is what a reference leads to (RFC 6901, section 6); nil for nothing, and for one that leads
// out of the schema.
func (r *references) at(ref string) []byte {
	pointer, within := strings.CutPrefix(ref, "#")
	pointer, err := url.PathUnescape(pointer)
	names := strings.Split(pointer, "/")
	if !within || err != nil || names[0] != "" {
		return nil
	}
	found := r.root
	for _, name := range names[1:] {
		if r.left -= len(found); r.left < 0 {
			return nil
		}
		all := mcp.Elements(found)
		switch i, err := strconv.Atoi(name); {
		case all == nil:
			found = mcp.Lookup(found, unpointed.Replace(name))
		case err != nil || i < 0 || i >= len(all):
			return nil
		default:
			found = all[i]
		}
	}
	if r.left -= len(found); r.left < 0 { // it is read next
		return nil
	}
	return found
}
