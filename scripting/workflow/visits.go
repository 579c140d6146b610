package workflow

import (
	"errors"
	"iter"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The library tries each form of a oneOf and an anyOf to its end. Where a schema is part of itself
// by several forms it goes twice as often, or more, into a value at each level of it, and nothing
// ends that. So it is counted before how often it will go into a schema for a value.

const (
	mostVisits     = 100_000 // of schemas for a value
	visitsPerValue = 16      // as many more for each value in it, or as there are schemas
	againVisits    = 500_000 // of what was met before,
	againSmall     = 256     // but for what is so small: of such things a long list has many
)

var errManyForms = errors.New("/: there are too many ways in which the forms of its schema could be tried for it")

// visits counts how often a validation goes into schemas, each time as much as the value is wide.
// What a reference leads to is looked at once for each value, however often the validation is there.
type visits struct {
	known map[visit]int
	open  map[visit]int // how many were open when it began
	back  int           // the outermost open one that was met again: what is within it was cut short
	most  int
	once  int // visits that were counted one by one: the others are of what was met before
	tried int // visits for finding out what conditions say,
	again int // of these, those of what was met before
}

type visit struct {
	of *jsonschema.Schema
	at uintptr // see placeOf
}

// within reports whether a validation of a value goes into schemas, of which there are so many, no
// more often than it may.
func within(s *jsonschema.Schema, schemas int, v any) bool {
	c := visits{known: map[visit]int{}, open: map[visit]int{}, back: math.MaxInt, most: mostVisits + max(visitsPerValue, schemas)*valuesIn(v)}
	n := c.all(s, v)
	return n <= c.most && n-c.once <= againVisits // however much else there is in the value
}

// referred is all for what a reference leads to.
func (c *visits) referred(s *jsonschema.Schema, v any) int {
	key := visit{s, placeOf(v)}
	if at, open := c.open[key]; open { // the library ends a circle
		c.back = min(c.back, at)
		return 1
	}
	if n, known := c.known[key]; known {
		if n <= againSmall {
			c.once += n
		}
		return n
	}
	depth, outer := len(c.open), c.back
	c.open[key], c.back = depth, math.MaxInt
	n := c.all(s, v)
	delete(c.open, key)
	if c.back >= depth { // no circle around it cut it short
		if c.back = math.MaxInt; deep(v) { // else it is soon counted again
			c.known[key] = n
		}
	}
	c.back = min(c.back, outer)
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
	n := weight(v)
	c.once += n
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
		once := c.once
		tries := c.all(s.If, v) // also where nothing depends on it
		c.tried, c.again = c.tried+tries, c.again+max(0, tries-(c.once-once))
		if c.tried <= c.most && c.again <= againVisits && (then != nil || other != nil) { // else both are counted
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
		first := s.PrefixItems
		if len(first) == 0 {
			first, _ = s.Items.([]*jsonschema.Schema) // as drafts before 2020-12 have them
		}
		for i, x := range v {
			if i < len(first) {
				add(first[i], x)
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
	for x := range inside(v) {
		if placeOf(x) != 0 {
			return true
		}
	}
	return false
}

// inside are the values of an object or an array; of others none.
func inside(v any) iter.Seq[any] {
	switch v := v.(type) {
	case map[string]any:
		return maps.Values(v)
	case []any:
		return slices.Values(v)
	}
	return slices.Values[[]any](nil)
}

// weight is what one visit of a value costs: the library goes over members, items and letters.
func weight(v any) int {
	switch v := v.(type) {
	case string:
		return 1 + len(v)/64
	case map[string]any:
		return 1 + len(v)/8
	case []any:
		return 1 + len(v)/8
	}
	return 1
}

// valuesIn is what it costs to visit each value in one once, itself among them.
func valuesIn(v any) int {
	n := weight(v)
	for x := range inside(v) {
		n += valuesIn(x)
	}
	return n
}
