package workflow

import (
	"errors"
	"reflect"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The library tries each form of a oneOf and an anyOf to its end. Where a schema is part of itself
// by several forms it goes twice as often, or more, into a value at each level of it, and nothing
// ends that. So it is counted before how often it will go into a schema for a value.

const (
	mostVisits     = 100_000 // of schemas for a value
	visitsPerValue = 16      // as many more for each value in it, or as there are schemas
	againVisits    = 500_000 // of what was met before
)

var errManyForms = errors.New("/: there are too many ways in which the forms of its schema could be tried for it")

// visits counts how often a validation goes into schemas. What a reference leads to is looked at
// once for each value, however often the validation is there.
type visits struct {
	known map[visit]int
	most  int
	once  int // visits that were counted one by one: the others are of what was met before
	tried int // visits for finding out what conditions say
}

type visit struct {
	of *jsonschema.Schema
	at uintptr // see placeOf
}

// within reports whether a validation of a value goes into schemas, of which there are so many, no
// more often than it may.
func within(s *jsonschema.Schema, schemas int, v any) bool {
	c := visits{known: map[visit]int{}, most: mostVisits + max(visitsPerValue, schemas)*valuesIn(v)}
	n := c.all(s, v)
	return n <= c.most && n-c.once <= againVisits // however much else there is in the value
}

// referred is all for what a reference leads to.
func (c *visits) referred(s *jsonschema.Schema, v any) int {
	key := visit{s, placeOf(v)}
	if n, known := c.known[key]; known {
		return n
	}
	c.known[key] = 1 // while it is counted: the library ends a circle
	n := c.all(s, v)
	if deep(v) {
		c.known[key] = n
	} else {
		delete(c.known, key) // it is soon counted again
	}
	return n
}

// placeOf is where an object or an array is; 0 for values that have no others in them, of which one
// at a time is counted.
func placeOf(v any) uintptr {
	switch v := v.(type) {
	case map[string]any:
		return reflect.ValueOf(v).Pointer()
	case []any:
		if len(v) > 0 {
			return reflect.ValueOf(v).Pointer()
		}
	}
	return 0
}

// all counts the visits of a schema for a value, and of all within both.
func (c *visits) all(s *jsonschema.Schema, v any) int {
	c.once++
	n := 1
	add := func(s *jsonschema.Schema, v any) {
		if s != nil && n <= c.most {
			n += c.all(s, v)
		}
	}
	maybe := func(s, v any) {
		if s, ok := s.(*jsonschema.Schema); ok {
			add(s, v)
		}
	}

	// 1. Schemas of the same value.
	references := [...]*jsonschema.Schema{s.Ref, s.RecursiveRef, nil}
	if s.DynamicRef != nil {
		references[2] = s.DynamicRef.Ref
	}
	for _, one := range references {
		if one != nil && n <= c.most {
			n += c.referred(one, v)
		}
	}
	then, other := s.Then, s.Else
	if s.If != nil && n <= c.most {
		tries := c.all(s.If, v) // also where nothing depends on it
		if c.tried += tries; c.tried <= c.most && (then != nil || other != nil) { // else both are counted
			if s.If.Validate(v) == nil {
				other = nil
			} else {
				then = nil
			}
		}
		n += tries
	}
	for _, one := range [...]*jsonschema.Schema{s.Not, then, other} {
		add(one, v)
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
			own, more := s.Properties[name], s.AdditionalProperties
			if own != nil {
				more = nil
			}
			add(s.PropertyNames, name)
			add(own, x)
			for pattern, one := range s.PatternProperties {
				if pattern.MatchString(name) {
					more = nil
					add(one, x)
				}
			}
			maybe(more, x)
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
	return min(n, c.most+1)
}

// deep reports whether a value has objects or arrays in it.
func deep(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, x := range v {
			if container(x) {
				return true
			}
		}
	case []any:
		for _, x := range v {
			if container(x) {
				return true
			}
		}
	}
	return false
}

func container(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
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
