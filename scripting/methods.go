package scripting

import (
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// isMethod reports whether a method of this name is counted, whatever it is a method of.
func isMethod(name string) bool { return slices.Contains(methodNames(), name) }

func methodNames() []string {
	return []string{
		"add", "append", "capitalize", "clear", "codepoint_ords", "codepoints", "count", "difference", "discard", "elem_ords", "elems",
		"endswith", "extend", "find", "format", "get", "index", "insert", "intersection", "isalnum", "isalpha", "isdigit", "islower",
		"isspace", "issubset", "issuperset", "istitle", "isupper", "items", "join", "keys", "lower", "lstrip", "partition", "pop",
		"remove", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "setdefault", "split", "splitlines", "startswith", "strip", "symmetric_difference", "title", "union", "update",
		"upper", "values",
	}
}

// methods are the methods of one of the language's own types, by name, without a receiver.
// What is called in the place of each counts.
type methods map[string]*starlark.Builtin

func methodsOf(x starlark.HasAttrs) methods {
	all := methods{}
	for _, name := range methodNames() {
		if v, _ := x.Attr(name); v != nil {
			all[name] = countedMethod(v.(*starlark.Builtin))
		}
	}
	return all
}

// native are the methods of a value; nil unless it is of one of the language's own types.
// They are there once something counts.
func native(x starlark.Value) methods {
	switch x.(type) {
	case starlark.String:
		return counting.text
	case starlark.Bytes:
		return counting.bytes
	case *starlark.List:
		return counting.list
	case *starlark.Dict:
		return counting.dict
	case *starlark.Set:
		return counting.set
	}
	return nil
}

// method is x.name, counted when it is a method of the language's own types.
func (m *meter) method(x starlark.Value, name string) (starlark.Value, error) {
	if own := native(x); own != nil {
		if f, ok := own[name]; ok {
			return f.BindReceiver(x), nil
		}
	} else if x, ok := x.(starlark.HasAttrs); ok {
		if v, err := x.Attr(name); err != nil || v != nil {
			if b, ok := v.(*starlark.Builtin); ok && isNative(b.Receiver()) && native(b.Receiver())[b.Name()] != nil {
				return native(b.Receiver())[b.Name()].BindReceiver(b.Receiver()), nil
			}
			return v, err
		}
	}
	// The language's own words for what is not there.
	_, err := starlark.EvalOptions(dialect(), &starlark.Thread{}, "", "x."+name, starlark.StringDict{"x": x})
	if err == nil {
		err = fmt.Errorf("%s has no .%s field or method", x.Type(), name)
	}
	return nil, errorText(err)
}

// errorText is an error without the frames of another thread.
func errorText(err error) error {
	if e, ok := err.(*starlark.EvalError); ok {
		return fmt.Errorf("%s", e.Msg)
	}
	return err
}

func isNative(v starlark.Value) bool { return v != nil && native(v) != nil }

// countedMethod is what is called in the place of a method.
func countedMethod(plain *starlark.Builtin) *starlark.Builtin {
	return starlark.NewBuiltin(plain.Name(), func(thread *starlark.Thread, b *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
		m, x := meterOf(thread), b.Receiver()
		if err := m.before(thread, x, b.Name(), args, named); err != nil {
			return nil, err
		}
		length := starlark.Len(x)
		v, err := plain.BindReceiver(x).CallInternal(thread, args, named)
		if more := starlark.Len(x) - length; more > 0 {
			each := sizeEntry
			if _, list := x.(*starlark.List); list {
				each = 2 * sizeElement
			}
			if err := m.allocate(each * more); err != nil {
				return nil, err
			}
		}
		return m.made(v, err)
	})
}

// before looks at the call of a method before it is made.
func (m *meter) before(thread *starlark.Thread, x starlark.Value, name string, args starlark.Tuple, named []starlark.Tuple) error {
	if name == "clear" { // goes through the room for all that a dict or a set ever had, which took this much at the most
		return m.work(thread, int(m.total/256))
	}
	switch x := x.(type) {
	case starlark.String:
		return m.textMethod(thread, string(x), name, args, named)
	case starlark.Bytes:
		return m.fits(thread, 0, len(x))
	case *starlark.List:
		return m.listMethod(thread, x, name, args)
	case *starlark.Dict:
		if name == "update" {
			for _, pair := range named { // one at a time becomes many
				if err := m.storing(thread, pair[0], nil); err != nil {
					return err
				}
			}
		}
		return m.dictMethod(thread, x, name, args)
	case *starlark.Set:
		if name == "pop" {
			return nil // the first one, whatever else there is
		}
		if len(args)+len(named) == 0 && takesOne(name) {
			return lacking(name)
		}
		if name == "add" || name == "discard" || name == "remove" {
			if len(args) == 0 {
				return nil
			}
			if name == "add" && x.Len() >= maxValueElements {
				return errValueElements
			}
			if err := m.key(thread, args[0], x); err != nil || name != "add" {
				return err
			}
			return m.storing(thread, args[0], x)
		}
		total := x.Len()
		for _, other := range args {
			if total += max(0, starlark.Len(other)); total > maxValueElements {
				return errValueElements
			}
		}
		return m.keys(thread, append(starlark.Tuple{x}, args...)...)
	}
	return nil
}

func (m *meter) textMethod(thread *starlark.Thread, s, name string, args starlark.Tuple, named []starlark.Tuple) error {
	arg := func(i int) string {
		if i < len(args) {
			text, _ := starlark.AsString(args[i])
			return text
		}
		return ""
	}
	switch name {
	case "join":
		if len(args) == 0 {
			return nil
		}
		list, ok := args[0].(starlark.Iterable)
		if !ok {
			return nil
		}
		if _, err := m.sequence(thread, list); err != nil {
			return err
		}
		size := 0
		for v := range starlark.Elements(list) {
			text, _ := starlark.AsString(v)
			if size += len(text) + len(s); size > maxValueBytes+len(s) {
				return errValueBytes
			}
		}
		return m.fits(thread, size-min(size, len(s)), 0)
	case "replace":
		size := len(s)
		if len(arg(1)) > len(arg(0)) {
			n := strings.Count(s, arg(0))
			if len(args) > 2 {
				if most, err := starlark.AsInt32(args[2]); err == nil && most >= 0 {
					n = min(n, most)
				}
			}
			size += n * (len(arg(1)) - len(arg(0)))
		}
		return m.runes(thread, max(size, len(s)))
	case "format":
		// Each field is looked for among all names, here and by the language.
		if err := m.work(thread, strings.Count(s, "{")*(len(named)+unitsPerField)); err != nil {
			return err
		}
		size := len(s)
		for n, v := range m.fields(s, args, named) {
			w, err := m.text(thread, v)
			if err != nil {
				return err
			}
			if size += n * w; size > maxValueBytes {
				return errValueBytes
			}
		}
		return m.fits(thread, size, 0)
	case "split", "rsplit", "splitlines":
		n := 1 + strings.Count(s, "\n") + strings.Count(s, "\r")
		if name != "splitlines" {
			if sep := arg(0); sep != "" {
				n = 1 + strings.Count(s, sep)
			} else {
				n = words(s)
			}
			if len(args) > 1 {
				if given, ok := args[1].(starlark.Int); ok {
					switch most, ok := given.Int64(); {
					case ok && most >= int64(n):
						args[1] = starlark.MakeInt(n) // the language makes room for as many as are asked for
					case ok && most >= 0 && (name == "split" || arg(0) == ""): // else it cuts all, and joins some again
						n = int(most) + 1
					}
				}
			}
		}
		if err := m.fits(thread, len(s), n); err != nil {
			return err
		}
		return m.allocate(n * sizeText)
	case "elems", "codepoints", "elem_ords", "codepoint_ords":
		return m.fits(thread, 0, len(s))
	case "strip", "lstrip", "rstrip":
		return m.work(thread, (1+len(s)/16)*(1+len(arg(0))/16))
	case "startswith", "endswith":
		units := 1
		if len(args) > 0 {
			if list, ok := args[0].(starlark.Tuple); ok {
				units += len(list)
			}
		}
		return m.work(thread, units*(1+len(s)/256))
	case "upper", "lower", "title", "capitalize":
		return m.runes(thread, len(s))
	case "isalnum", "isalpha", "isdigit", "islower", "isspace", "istitle", "isupper":
		return m.work(thread, len(s)/4) // character by character
	}
	return m.work(thread, len(s)/16)
}

// fields yields each value that a format asks for, and how often in a row.
func (m *meter) fields(format string, args starlark.Tuple, named []starlark.Tuple) func(yield func(int, starlark.Value) bool) {
	return func(yield func(int, starlark.Value) bool) {
		next := 0
		for {
			_, after, ok := strings.Cut(format, "{")
			if !ok {
				return
			}
			if strings.HasPrefix(after, "{") {
				format = after[1:]
				continue
			}
			field, rest, _ := strings.Cut(after, "}")
			format = rest
			name, _, converted := strings.Cut(field, "!")
			if !converted {
				name, _, _ = strings.Cut(field, ":")
			}
			v := starlark.Value(nil)
			if name == "" {
				if next < len(args) {
					v = args[next]
				}
				next++
			} else if i, ok := number(name); ok {
				if i < len(args) {
					v = args[i]
				}
			} else {
				for _, pair := range named {
					if s, _ := starlark.AsString(pair[0]); s == name {
						v = pair[1]
						break
					}
				}
			}
			if v != nil && !yield(1, v) {
				return
			}
		}
	}
}

// number reads digits as the language does, also where there are too many for a number.
func number(s string) (n int, ok bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		if n = n*10 + int(s[i]-'0'); n < 0 {
			return 0, false
		}
	}
	return n, s != ""
}

// words is how many parts a text has between spaces, at the most.
func words(s string) int {
	n, inside := 1, false
	for i := range len(s) {
		space := s[i] <= ' ' || s[i] >= 0x80
		if !space && !inside {
			n++
		}
		inside = !space
		if s[i] >= 0x80 {
			n++
		}
	}
	return n
}

// takesOne reports whether a method takes one value and the interpreter, without it, breaks.
func takesOne(name string) bool {
	return slices.Contains([]string{"difference", "intersection", "issubset", "issuperset", "symmetric_difference"}, name)
}

// lacking is the error of such a method without its value.
func lacking(name string) error { return fmt.Errorf("%s: got 0 arguments, want 1", name) }

// lacks gives the calls of such methods without a value one that fails, in both engines. Only
// sets have methods of these names.
func lacks(f *syntax.File) {
	syntax.Walk(f, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) == 0 {
			if method, ok := unparen(c.Fn).(*syntax.DotExpr); ok && takesOne(method.Name.Name) {
				name := &syntax.Literal{Token: syntax.STRING, TokenPos: c.Lparen, Value: method.Name.Name}
				c.Args = []syntax.Expr{call(c.Lparen, fnLacking, name)}
			}
		}
		return true
	})
}

func (m *meter) listMethod(thread *starlark.Thread, x *starlark.List, name string, args starlark.Tuple) error {
	switch name {
	case "append":
		if x.Len() >= maxValueElements {
			return errValueElements
		}
	case "insert":
		if x.Len() >= maxValueElements {
			return errValueElements
		}
		return m.work(thread, x.Len()/8)
	case "extend":
		if len(args) > 0 {
			return m.longer(thread, x, args[0])
		}
	case "index", "remove":
		if len(args) > 0 {
			return m.search(thread, args[0], x)
		}
	case "pop":
		from := x.Len() - 1 // what stands after it moves
		if len(args) > 0 {
			if i, err := starlark.AsInt32(args[0]); err == nil {
				from = i
			}
			if from < 0 {
				from += x.Len()
			}
		}
		return m.work(thread, max(0, x.Len()-max(0, from))/8)
	}
	return nil
}

func (m *meter) dictMethod(thread *starlark.Thread, x *starlark.Dict, name string, args starlark.Tuple) error {
	switch name {
	case "get", "pop", "setdefault":
		if name == "setdefault" && x.Len() >= maxValueElements {
			return errValueElements
		}
		if len(args) > 0 {
			if err := m.key(thread, args[0], x); err != nil || name != "setdefault" {
				return err
			}
			return m.storing(thread, args[0], x)
		}
	case "update":
		if len(args) > 0 {
			if n := x.Len() + max(0, starlark.Len(args[0])); n > maxValueElements {
				return errValueElements
			}
			return m.pairs(thread, args[0], x)
		}
	case "items":
		if err := m.fits(thread, 0, x.Len()); err != nil {
			return err
		}
		return m.allocate(x.Len() * (sizeList + 2*sizeElement))
	case "keys", "values":
		return m.fits(thread, 0, x.Len())
	}
	return nil
}

// pairs looks at what dict() and update() are given, for a dict; nil for a new one.
func (m *meter) pairs(thread *starlark.Thread, v starlark.Value, into *starlark.Dict) error {
	has := 0
	if into != nil {
		has = into.Len()
	}
	if d, ok := v.(*starlark.Dict); ok {
		if err := m.operands(thread, syntax.PIPE, d, starlark.Tuple{}); err != nil || d.Len() > fewKeys && has == 0 {
			return err
		}
		for key := range d.Entries() { // some at a time become many
			if err := m.storing(thread, key, nil); err != nil {
				return err
			}
		}
		return nil
	}
	list, ok := v.(starlark.Iterable)
	if !ok {
		return nil
	}
	n, err := m.sequence(thread, v)
	if err != nil {
		return err
	}
	crowded := crowdOf(n)
	for pair := range starlark.Elements(list) {
		if two, ok := pair.(starlark.Indexable); ok && two.Len() == 2 {
			crowded.sees(two.Index(0))
		}
	}
	var there chains
	if has > 0 && n > fewKeys && 16*n > has { // of fewer it takes longer to count those that are there
		there = chainsOf(into)
	}
	for pair := range starlark.Elements(list) {
		two, ok := pair.(starlark.Sequence) // a set or a dict of two keys, too
		if !ok || two.Len() != 2 {
			continue
		}
		for key := range starlark.Elements(two) {
			if err := m.key(thread, key, nil); err != nil {
				return err
			}
			if crowded.few || has > 0 { // some at a time become many
				if err := m.storing(thread, key, nil); err != nil {
					return err
				}
			}
			if err := m.crowding(thread, crowded, key, nil); err != nil {
				return err
			}
			if err := m.looking(thread, there, key); err != nil {
				return err
			}
			break // the other is the value
		}
	}
	return nil
}
