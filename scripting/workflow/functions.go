package workflow

import (
	"errors"
	"fmt"
	"net/url"
	"text/template/parse"
)

// function is a function of templates.
type function struct {
	least, most int // arguments; most is -1 where there is no most
	// call is nil for and and or, which do not evaluate all of their arguments.
	call func(*rendering, []any) (any, error)
}

// functions are those of the language, and json, quote and fromJson. Those that print are
// bounded, and print nothing for nothing.
func functions() map[string]function {
	return map[string]function{
		"and":      {1, -1, nil},
		"or":       {1, -1, nil},
		"not":      {1, 1, func(_ *rendering, v []any) (any, error) { return !isTrue(v[0]), nil }},
		"len":      {1, 1, length},
		"index":    {1, -1, index},
		"slice":    {1, -1, slice},
		"eq":       {1, -1, equal},
		"ne":       {2, 2, negated(equal)},
		"lt":       {2, 2, less},
		"ge":       {2, 2, negated(less)},
		"le":       {2, 2, lessOrEqual},
		"gt":       {2, 2, negated(lessOrEqual)},
		"print":    {0, -1, printing(fmt.Sprint, nil)},
		"println":  {0, -1, printing(fmt.Sprintln, nil)},
		"html":     {0, -1, printing(fmt.Sprint, escapeHTML)},
		"js":       {0, -1, printing(fmt.Sprint, escapeJS)},
		"urlquery": {0, -1, printing(fmt.Sprint, url.QueryEscape)},
		"printf":   {1, -1, printf},
		"json":     {1, 1, func(r *rendering, v []any) (any, error) { return r.json(v[0]) }},
		"quote":    {1, 1, quoted},
		"fromJson": {1, 1, fromJSON},
		"call":     {1, -1, func(*rendering, []any) (any, error) { return nil, errors.New("no value is a function") }},
	}
}

// call evaluates the arguments of a function, and calls it. last is one more argument, if
// piped says so.
func (f *frame) call(dot any, n parse.Node, name string, args []parse.Node, last any, piped bool) (any, error) {
	if err := f.spend(2); err != nil {
		return nil, err
	}
	fn, got := f.text.known[name], len(args)
	if piped {
		got++
	}
	switch {
	case got < fn.least && fn.most < 0:
		return nil, wrongAt(n, "wrong number of args for %s: want at least %d got %d", name, fn.least, got)
	case got < fn.least || fn.most >= 0 && got > fn.most:
		return nil, wrongAt(n, "wrong number of args for %s: want %d got %d", name, fn.least, got)
	}
	values := make([]any, 0, got)
	for _, arg := range args {
		v, err := f.value(dot, arg, false)
		if err != nil {
			return nil, err
		}
		if fn.call == nil && isTrue(v) == (name == "or") {
			return v, nil
		}
		values = append(values, v)
	}
	if piped {
		values = append(values, last)
	}
	if fn.call == nil {
		return values[got-1], nil
	}
	v, err := fn.call(f.rendering, values)
	if _, told := err.(*misprint); err == nil || told {
		return v, err
	}
	return nil, wrongAt(n, "error calling %s: %s", name, err)
}
