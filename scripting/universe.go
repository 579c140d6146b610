package scripting

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"go.starlark.net/starlark"
)

// isCounted reports whether a builtin of the language is counted.
func isCounted(name string) bool {
	return slices.Contains([]string{
		"abs", "all", "any", "bytes", "dict", "enumerate", "float", "getattr", "hash", "int", "list", "max", "min", "repr", "reversed",
		"set", "sorted", "str", "tuple", "zip",
	}, name)
}

// universe puts the counted builtins into a scope.
func universe(scope starlark.StringDict) {
	for name, v := range starlark.Universe {
		plain, ok := v.(*starlark.Builtin)
		if !ok || !isCounted(name) {
			continue
		}
		scope[name] = starlark.NewBuiltin(name, func(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
			m := taskOf(thread).run.meter
			args, named, err := m.builtin(thread, b.Name(), args, named)
			if err != nil {
				return nil, err
			}
			v, err := plain.CallInternal(thread, args, named)
			if err != nil {
				return nil, err
			}
			return m.result(b.Name(), v, len(args))
		})
	}
}

// builtin looks at the call of a builtin before it is made. What it returns is called.
func (m *meter) builtin(thread *starlark.Thread, name string, args starlark.Tuple, named []starlark.Tuple) (starlark.Tuple, []starlark.Tuple, error) {
	var first starlark.Value = starlark.None
	if by := byName(name); by != "" && len(args) == 0 {
		for i, pair := range named {
			if s, _ := starlark.AsString(pair[0]); s == by {
				args, named = starlark.Tuple{pair[1]}, slices.Delete(slices.Clone(named), i, i+1)
				break
			}
		}
	}
	if len(args) > 0 {
		first = args[0]
	}
	var err error
	switch name {
	case "all", "any", "list", "tuple", "reversed", "enumerate":
		_, err = m.sequence(thread, first)
	case "bytes", "hash", "float":
		n := 0
		if n, err = m.sequence(thread, first); err == nil {
			err = m.runes(thread, max(n, starlark.Len(first)))
		}
	case "dict":
		err = m.pairs(thread, first, nil)
	case "getattr":
		if text, ok := starlark.AsString(second(args)); ok && isMethod(text) && isNative(first) && len(named) == 0 {
			if v, e := first.(starlark.HasAttrs).Attr(text); e == nil && v != nil {
				return starlark.Tuple{counted{first, text}, args[1]}, nil, nil
			}
		}
	case "int":
		if text, ok := starlark.AsString(first); ok {
			n := len(strings.Trim(text, " \t\r\n+-_"))
			if n > MaxDigits+2 {
				return nil, nil, fmt.Errorf("int: a text of more than %d digits", MaxDigits)
			}
			err = m.work(thread, len(text)/16+square(4*n, 4*n)/2)
		}
	case "repr", "str":
		if _, text := first.(starlark.String); !text || name == "repr" {
			_, err = m.text(thread, first)
		}
	case "set":
		err = m.keys(thread, first)
	case "zip":
		err = m.zipped(thread, args)
	case "sorted", "min", "max":
		return m.ordered(thread, name, args, named)
	}
	return args, named, err
}

// byName is the name by which a builtin takes its first value, too; "" for none.
func byName(builtin string) string {
	switch builtin {
	case "int":
		return "x"
	case "sorted":
		return "iterable"
	}
	return ""
}

func second(args starlark.Tuple) starlark.Value {
	if len(args) > 1 {
		return args[1]
	}
	return starlark.None
}

// counted is a value whose one attribute is a counted method.
type counted struct {
	starlark.Value
	name string
}

// Attr returns the counted method.
func (c counted) Attr(string) (starlark.Value, error) {
	return native(c.Value)[c.name].BindReceiver(c.Value), nil
}

// AttrNames returns its name.
func (c counted) AttrNames() []string { return []string{c.name} }

// result counts what a builtin returned.
func (m *meter) result(name string, v starlark.Value, columns int) (starlark.Value, error) {
	switch name {
	case "enumerate":
		if err := m.allocate(starlark.Len(v) * (sizeList + 2*sizeElement)); err != nil {
			return nil, err
		}
	case "zip":
		if err := m.allocate(starlark.Len(v) * (sizeList + columns*sizeElement)); err != nil {
			return nil, err
		}
	case "getattr", "max", "min", "any", "all", "hash", "float":
		return v, nil
	}
	return m.made(v, nil)
}

func (m *meter) zipped(thread *starlark.Thread, args starlark.Tuple) error {
	if len(args) == 0 {
		return nil
	}
	rows := maxValueElements + 1
	for _, v := range args {
		n := starlark.Len(v)
		if n < 0 {
			var err error
			if n, err = m.sequence(thread, v); err != nil {
				return err
			}
		}
		rows = min(rows, n)
	}
	return m.fits(thread, 0, rows*len(args))
}

// ordered looks at what is compared with one another, and at what a key function returns.
func (m *meter) ordered(thread *starlark.Thread, name string, args starlark.Tuple, named []starlark.Tuple) (starlark.Tuple, []starlark.Tuple, error) {
	var list starlark.Value = args
	if len(args) == 1 || name == "sorted" && len(args) > 0 {
		list = args[0]
	}
	n, err := m.sequence(thread, list)
	if err != nil {
		return nil, nil, err
	}
	rounds := 1
	if name == "sorted" {
		rounds = bits.Len(uint(max(1, n)))
	}
	key, at := starlark.Value(nil), -1
	for i, pair := range named {
		if s, _ := starlark.AsString(pair[0]); s == "key" {
			key, at = pair[1], i
		}
	}
	if name == "sorted" && len(args) > 1 {
		key = args[1]
	}
	f, ok := key.(starlark.Callable)
	if !ok {
		each, ok := list.(starlark.Iterable)
		if !ok {
			return args, named, nil
		}
		units, met := 0, numbers{}
		for v := range starlark.Elements(each) {
			n, err := compared(v)
			if err != nil {
				return nil, nil, err
			}
			if err := m.work(thread, n); err != nil { // as it goes: a list may have one long value many times
				return nil, nil, err
			}
			units += n
			met.add(v)
			if err := m.work(thread, rounds*m.within(v)); err != nil {
				return nil, nil, err
			}
		}
		return args, named, m.work(thread, units*(rounds*met.times()-1))
	}
	var met numbers
	looked := starlark.NewBuiltin(f.Name(), func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		v, err := starlark.Call(thread, f, args, nil)
		if err != nil {
			return nil, err
		}
		n, err := compared(v)
		if err != nil {
			return nil, err
		}
		met.add(v)
		return v, m.work(thread, n*rounds*met.times()+rounds*m.within(v))
	})
	if at >= 0 {
		named = slices.Clone(named)
		named[at] = starlark.Tuple{named[at][0], looked}
		return args, named, nil
	}
	args = slices.Clone(args)
	args[1] = looked
	return args, named, nil
}
