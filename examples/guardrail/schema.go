package main

import (
	"strconv"

	weir "github.com/weir-edge/weir/sdk"
)

// Bounds of what a schema may cost.
const (
	maxSteps = 100_000
	maxDepth = 32
)

// judge holds values to schemas by the keywords type, required, properties,
// additionalProperties, items and enum (JSON Schema 2020-12). Others say nothing.
type judge struct{ budget int }

// value says what is wrong with a value, after a pointer to it; "" for nothing.
func (j *judge) value(s, v weir.Value, at string, depth int) string {
	j.budget -= 1 + v.View().Len()/64 + s.View().Len()/64
	if j.budget < 0 || depth > maxDepth {
		return at + ": there is too much of it to judge"
	}
	if !s.IsObject() {
		if s.View().Is("false") {
			return at + ": it may not be there"
		}
		return "" // true, or null of a tool without a schema
	}
	if t := s.Get("type"); t.Exists() && !typed(t, v) {
		return at + ": it is not of the type " + string(t.JSON())
	}
	if list := s.Get("enum"); list.IsArray() && !j.among(list, v) {
		return at + ": it is none of the values of enum"
	}
	if v.IsArray() {
		return j.items(s.Get("items"), v, at, depth)
	}
	if v.IsObject() {
		return j.object(s, v, at, depth)
	}
	return ""
}

func (j *judge) items(s, v weir.Value, at string, depth int) string {
	if !s.Exists() {
		return ""
	}
	i := 0
	for one := range v.Array() {
		if wrong := j.value(s, one, at+"/"+strconv.Itoa(i), depth+1); wrong != "" {
			return wrong
		}
		i++
	}
	return ""
}

func (j *judge) object(s, v weir.Value, at string, depth int) string {
	for name := range s.Get("required").Array() {
		if j.budget -= 1 + v.View().Len()/64; j.budget < 0 {
			return at + ": there is too much of it to judge"
		}
		if name.IsText() && !v.Get(name.Text()).Exists() {
			return at + ": it lacks " + name.Text()
		}
	}
	properties, rest := s.Get("properties"), s.Get("additionalProperties")
	patterns := s.Get("patternProperties").Exists()
	for name, one := range v.Object() {
		is := properties.Get(name.Text())
		if !is.Exists() {
			if is = rest; !is.Exists() || patterns {
				continue
			}
		}
		j.budget -= properties.View().Len() / 64
		if wrong := j.value(is, one, at+"/"+weir.Token(name.Text()), depth+1); wrong != "" {
			return wrong
		}
	}
	return ""
}

// typed says whether a value is of a type, or of one of several.
func typed(t, v weir.Value) bool {
	if t.IsArray() {
		for one := range t.Array() {
			if typed(one, v) {
				return true
			}
		}
		return false
	}
	switch t.Text() {
	case "object":
		return v.IsObject()
	case "array":
		return v.IsArray()
	case "string":
		return v.IsText()
	case "boolean":
		return v.IsTrue() || v.View().Is("false")
	case "null":
		return v.IsNull()
	case "number", "integer":
		n, ok := v.Number()
		return ok && (t.Text() == "number" || n == float64(int64(n)) || n > 1e18 || n < -1e18)
	}
	return true // a type that this knows nothing of
}

// among says whether a value is one of a list. Texts and numbers are compared by
// what they mean, others as they are written.
func (j *judge) among(list, v weir.Value) bool {
	for one := range list.Array() {
		j.budget -= 1 + v.View().Len()/64
		switch {
		case j.budget < 0:
			return false
		case v.IsText():
			if one.IsText() && one.Is(v.Text()) {
				return true
			}
			continue
		}
		if n, ok := v.Number(); ok {
			if m, is := one.Number(); is && m == n {
				return true
			}
			continue
		}
		if string(v.JSON()) == string(one.JSON()) {
			return true
		}
	}
	return false
}
