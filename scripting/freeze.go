package scripting

import (
	"errors"
	"slices"

	"go.starlark.net/starlark"
)

// freezer freezes what a text made. The language freezes a list, a dict or a set once, but goes into
// a function or a tuple as often as it meets one: without end where a function is within itself. So
// these are gone into here, once each, and what the lists, dicts and sets need of the language is
// known, and paid for, before it begins.
type freezer struct {
	units map[any]int      // what the language takes for a function or a tuple, without the lists in it
	lists []starlark.Value // lists, dicts and sets, each once
	deep  bool             // functions and tuples were too deep within each other
}

const (
	endless    = 1 << 40 // units of a function that is within itself, or of anything as large
	mostWithin = 10_000  // functions and tuples within each other
)

var errFreeze = errors.New("a list, a dict or a set has a function that is within itself, or too many values")

// freeze freezes the values of all names.
func (m *meter) freeze(thread *starlark.Thread, globals starlark.StringDict) error {
	f := &freezer{units: map[any]int{}}
	for _, v := range globals {
		f.within(v, 0)
	}
	for i := 0; i < len(f.lists); i++ {
		n := 0
		for v := range starlark.Elements(f.lists[i].(starlark.Iterable)) {
			n = min(endless, n+f.within(v, 0))
		}
		if d, ok := f.lists[i].(*starlark.Dict); ok {
			for _, v := range d.Entries() {
				n = min(endless, n+f.within(v, 0))
			}
		}
		if n == endless {
			return errFreeze
		}
		if err := m.work(thread, n); err != nil {
			return err
		}
	}
	if f.deep {
		return errFreeze
	}
	for _, v := range slices.Backward(f.lists) { // those within others were found after them
		v.Freeze()
	}
	return nil
}

// within returns what the language takes to freeze a value that is in another.
func (f *freezer) within(v starlark.Value, depth int) (units int) {
	var id any = v
	var in []starlark.Value
	switch v := v.(type) {
	case nil:
		return 0
	case starlark.Tuple:
		if in = v; len(v) > 0 {
			id = [2]any{&v[0], len(v)}
		} else {
			return 1
		}
	case *starlark.Function:
		for i := range v.NumParams() {
			in = append(in, v.ParamDefault(i))
		}
		for i := range v.NumFreeVars() {
			_, x := v.FreeVar(i)
			in = append(in, x)
		}
	case *starlark.Builtin: // a method
		in = []starlark.Value{v.Receiver()}
	case *starlark.List, *starlark.Dict, *starlark.Set:
		if f.units[v] == 0 {
			f.units[v], f.lists = 1, append(f.lists, v)
		}
		return 1
	default:
		v.Freeze()
		return 1
	}
	if n, known := f.units[id]; known {
		return n
	}
	if depth == mostWithin {
		f.deep = true
		return endless
	}
	f.units[id] = endless // while it is open
	units = 1
	for _, x := range in {
		units = min(endless, units+f.within(x, depth+1))
	}
	f.units[id] = units
	return units
}
