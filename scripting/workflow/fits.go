package workflow

import (
	"encoding/json"
	"strings"
)

// Most schemas of arguments say of what type a value is, and what properties an object has. A
// value that fits one of these is seen without the library, which judges every other one and finds
// the words for what does not fit.

// form is what a schema says that says no more than that.
type form struct {
	kind       string // the type; "" for any
	properties map[string]*form
	required   []string
	closed     bool // an object has no other properties
}

// annotations are the keywords that say nothing of whether a value fits.
var annotations = map[string]bool{"$comment": true, "$schema": true, "default": true, "deprecated": true, "description": true, "examples": true, "readOnly": true, "title": true, "writeOnly": true}

// formOf returns the form of a schema that has been compiled; nil for one that says more.
func formOf(document any) *form {
	d, ok := document.(map[string]any)
	if !ok {
		return nil
	}
	f := &form{}
	for keyword, v := range d {
		switch keyword {
		case "type":
			if f.kind, ok = v.(string); !ok {
				return nil
			}
		case "properties":
			properties, ok := v.(map[string]any)
			if !ok {
				return nil
			}
			f.properties = make(map[string]*form, len(properties))
			for name, p := range properties {
				of := formOf(p)
				if of == nil {
					return nil
				}
				f.properties[name] = of
			}
		case "required":
			names, ok := v.([]any)
			if !ok {
				return nil
			}
			for _, name := range names {
				name, ok := name.(string)
				if !ok {
					return nil
				}
				f.required = append(f.required, name)
			}
		case "additionalProperties":
			open, ok := v.(bool)
			if !ok {
				return nil
			}
			f.closed = !open
		default:
			if !annotations[keyword] {
				return nil
			}
		}
	}
	return f
}

// fits reports that a value fits. It may be false for one that does, such as an integer with an
// exponent.
func (f *form) fits(v any) bool {
	var is string
	switch v := v.(type) {
	case nil:
		is = "null"
	case bool:
		is = "boolean"
	case string:
		is = "string"
	case []any:
		is = "array"
	case json.Number:
		if is = "integer"; f.kind == "number" || strings.ContainsAny(string(v), ".eE") {
			is = "number"
		}
	case map[string]any:
		for _, name := range f.required {
			if _, there := v[name]; !there {
				return false
			}
		}
		for name, value := range v {
			if p := f.properties[name]; p != nil && !p.fits(value) || p == nil && f.closed {
				return false
			}
		}
		is = "object"
	default:
		return false
	}
	return f.kind == "" || f.kind == is
}
