package workflow

import (
	"errors"
	"reflect"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The library tries each form of a oneOf and an anyOf to its end. Where a schema is part of itself
// by several forms it goes twice as often, or more, into a value at each level of it, and nothing
// ends that. So it is counted before how often it will go into a schema for a value.

const (
	mostVisits     = 100_000 // of schemas for a value
	visitsPerValue = 16      // as many more for each value in it
)

var errManyForms = errors.New("/: there are too many ways in which the forms of its schema could be tried for it")

// visits counts how often a validation goes into schemas. Each schema is looked at once for each
// value, however often the validation is there.
type visits struct {
	known map[visit]int
	most  int
}

type visit struct {
	of *jsonschema.Schema
	at uintptr // of an object or an array; 0 for all other values
}

// within reports whether a validation of a value goes into schemas no more often than it may.
func within(s *jsonschema.Schema, v any) bool {
	c := visits{known: map[visit]int{}, most: mostVisits + visitsPerValue*valuesIn(v)}
	return c.count(s, v) <= c.most
}

func (c *visits) count(s *jsonschema.Schema, v any) int {
	key := visit{of: s}
	switch v := v.(type) {
	case map[string]any:
		key.at = reflect.ValueOf(v).Pointer()
	case []any:
		if len(v) > 0 { // all empty ones may be at one place
			key.at = reflect.ValueOf(v).Pointer()
		}
	}
	if n, known := c.known[key]; known {
		return n
	}
	c.known[key] = 1 // while it is counted: the library ends a circle
	n := 1
	add := func(s *jsonschema.Schema, v any) {
		if s != nil && n <= c.most {
			n += c.count(s, v)
		}
	}
	maybe := func(s, v any) {
		if s, ok := s.(*jsonschema.Schema); ok {
			add(s, v)
		}
	}

	// 1. Schemas of the same value.
	for _, one := range [...]*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else} {
		add(one, v)
	}
	if s.DynamicRef != nil {
		add(s.DynamicRef.Ref, v)
	}
	for _, forms := range [...][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for _, one := range forms {
			add(one, v)
		}
	}

	// 2. Those of the values in it.
	switch v := v.(type) {
	case map[string]any:
		for _, one := range s.DependentSchemas {
			add(one, v)
		}
		for _, one := range s.Dependencies {
			maybe(one, v)
		}
		for name, x := range v {
			add(s.PropertyNames, name)
			add(s.Properties[name], x)
			for _, one := range s.PatternProperties {
				add(one, x)
			}
			maybe(s.AdditionalProperties, x)
			add(s.UnevaluatedProperties, x)
		}
	case []any:
		items, _ := s.Items.([]*jsonschema.Schema)
		for i, x := range v {
			for _, first := range [...][]*jsonschema.Schema{s.PrefixItems, items} {
				if i < len(first) {
					add(first[i], x)
				}
			}
			add(s.Items2020, x)
			add(s.Contains, x)
			add(s.UnevaluatedItems, x)
			maybe(s.Items, x)
			maybe(s.AdditionalItems, x)
		}
	}
	n = min(n, c.most+1)
	c.known[key] = n
	return n
}

// valuesIn is how many values there are in one, itself among them.
func valuesIn(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, x := range v {
			n += valuesIn(x)
		}
	case []any:
		for _, x := range v {
			n += valuesIn(x)
		}
	}
	return n
}

// circles reports whether a schema can be part of itself: it refers to one.
func circles(document any) bool {
	switch v := document.(type) {
	case map[string]any:
		for name, x := range v {
			if name == "$ref" || name == "$dynamicRef" || name == "$recursiveRef" || circles(x) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, circles)
	}
	return false
}
