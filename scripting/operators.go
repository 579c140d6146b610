package scripting

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// operators are the tokens of the hidden functions that are operators.
func operators() []syntax.Token {
	return []syntax.Token{
		syntax.PLUS, syntax.MINUS, syntax.STAR, syntax.PERCENT, syntax.SLASHSLASH, syntax.LTLT, syntax.GTGT,
		syntax.AMP, syntax.PIPE, syntax.CIRCUMFLEX, syntax.IN,
		syntax.EQL, syntax.NEQ, syntax.LT, syntax.LE, syntax.GT, syntax.GE,
	}
}

// countedFunctions makes the hidden functions and the counted builtins. They are those of all
// runs: each finds the meter of its own.
func countedFunctions() starlark.StringDict {
	scope := starlark.StringDict{}
	for _, op := range operators() {
		scope[hidden+op.String()] = hiddenBuiltin(1, func(m *meter, thread *starlark.Thread, args starlark.Tuple) (starlark.Value, error) {
			return m.binary(thread, op, args[0], args[1])
		})
	}
	scope[fnNew] = hiddenBuiltin(2, func(m *meter, thread *starlark.Thread, args starlark.Tuple) (starlark.Value, error) {
		return m.made(args[0], m.work(thread, shallow(args[0])/64))
	})
	scope[fnCut] = hiddenBuiltin(2, func(m *meter, thread *starlark.Thread, args starlark.Tuple) (starlark.Value, error) {
		units := 0 // of a range
		if s, text := raw(args[0]); text {
			units = len(s) / 4
		} else if args[0].Type() != "range" { // a list or a tuple grows as it is made
			units = 2 * max(0, starlark.Len(args[0]))
		}
		return args[0], m.work(thread, units)
	})
	scope[fnElem] = hiddenBuiltin(2, func(m *meter, _ *starlark.Thread, args starlark.Tuple) (starlark.Value, error) {
		return args[0], m.allocate(2 * sizeElement)
	})
	scope[fnKey] = hiddenBuiltin(2, func(m *meter, thread *starlark.Thread, args starlark.Tuple) (starlark.Value, error) {
		if n, ok := args[0].(starlark.Int); ok && bitLen(n) <= 64 {
			return n, nil // mostly an index
		}
		return args[0], m.key(thread, args[0], nil)
	})
	scope[fnStored] = hiddenBuiltin(2, func(m *meter, thread *starlark.Thread, args starlark.Tuple) (starlark.Value, error) {
		if err := m.key(thread, args[0], nil); err != nil {
			return nil, err
		}
		if err := m.storing(thread, args[0], nil); err != nil {
			return nil, err
		}
		return args[0], m.allocate(sizeEntry)
	})
	scope[fnStar] = hiddenBuiltin(2, func(m *meter, thread *starlark.Thread, args starlark.Tuple) (starlark.Value, error) {
		n, err := m.sequence(thread, args[0])
		if err != nil {
			return nil, err
		}
		if starlark.Len(args[0]) < 0 {
			n *= 3 // it grows as it is made, and each value of it is made
		}
		if d, ok := args[0].(*starlark.Dict); ok && n > fewKeys {
			if err := m.again(thread, d); err != nil {
				return nil, err
			}
		}
		return args[0], m.allocate(sizeElement * n)
	})
	scope[fnMethod] = hiddenBuiltin(2, func(m *meter, _ *starlark.Thread, args starlark.Tuple) (starlark.Value, error) {
		return m.method(args[0], string(args[1].(starlark.String)))
	})
	scope[fnSet] = hiddenBuiltin(0, func(m *meter, thread *starlark.Thread, args starlark.Tuple) (starlark.Value, error) {
		return starlark.None, m.setIndex(thread, args[1], args[2], args[0])
	})
	scope[fnRight] = hiddenBuiltin(2, func(m *meter, thread *starlark.Thread, args starlark.Tuple) (starlark.Value, error) {
		switch args[0].(type) {
		case starlark.Float, starlark.NoneType, starlark.Bool:
			return args[0], nil // nothing large comes of it
		}
		return &right{args[0], m, thread}, nil
	})
	for _, op := range []syntax.Token{syntax.PERCENT, syntax.LTLT, syntax.GTGT} {
		scope[fnAt+op.String()] = hiddenBuiltin(0, func(m *meter, thread *starlark.Thread, args starlark.Tuple) (starlark.Value, error) {
			at := args[0].(*place)
			v, err := m.binary(thread, op, at.Value, args[1])
			if err != nil {
				return nil, err
			}
			return starlark.None, m.setIndex(thread, at.x, at.k, v)
		})
	}
	scope[fnAt] = hiddenBuiltin(1, func(_ *meter, _ *starlark.Thread, args starlark.Tuple) (starlark.Value, error) {
		old, err := index(args[0], args[1])
		return &place{old, args[0], args[1]}, err
	})
	universe(scope)
	return scope
}

// counting is what counts, once for all runs. Nothing makes it before it is asked for, so that
// a program that never counts, such as the module of the sandbox, is linked without it.
var counting struct {
	once                         sync.Once
	scope                        starlark.StringDict
	text, bytes, list, dict, set methods
}

func makeCounting() {
	c := &counting
	c.scope = countedFunctions()
	c.text, c.bytes, c.list = methodsOf(starlark.String("")), methodsOf(starlark.Bytes("")), methodsOf(new(starlark.List))
	c.dict, c.set = methodsOf(new(starlark.Dict)), methodsOf(new(starlark.Set))
}

// putCounted puts the hidden functions and the counted builtins of a program into a scope.
func putCounted(scope starlark.StringDict, names []string) {
	counting.once.Do(makeCounting)
	for _, name := range names {
		scope[name] = counting.scope[name]
	}
}

// meterOf is the meter of the run that a thread belongs to.
func meterOf(thread *starlark.Thread) *meter { return taskOf(thread).run.meter }

// hiddenBuiltin makes a hidden function, whose call takes so many steps more than what it stands for.
func hiddenBuiltin(steps uint64, f func(*meter, *starlark.Thread, starlark.Tuple) (starlark.Value, error)) starlark.Value {
	return starlark.NewBuiltin("operator", func(thread *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		thread.Steps -= steps
		v, err := f(meterOf(thread), thread, args)
		if err != nil {
			return nil, err
		}
		return v, nil
	})
}

// binary is an operator, counted.
func (m *meter) binary(thread *starlark.Thread, op syntax.Token, x, y starlark.Value) (starlark.Value, error) {
	switch op {
	case syntax.EQL, syntax.NEQ, syntax.LT, syntax.LE, syntax.GT, syntax.GE:
		if err := m.comparable(thread, op, x, y); err != nil {
			return nil, err
		}
		ok, err := starlark.Compare(op, x, y)
		return starlark.Bool(ok), err
	case syntax.IN:
		if err := m.contained(thread, x, y); err != nil {
			return nil, err
		}
		return starlark.Binary(op, x, y)
	}
	if err := m.operands(thread, op, x, y); err != nil {
		return nil, err
	}
	return m.made(starlark.Binary(op, x, y))
}

// operands looks at both sides of an operator that makes a value.
func (m *meter) operands(thread *starlark.Thread, op syntax.Token, x, y starlark.Value) error {
	switch x := x.(type) {
	case starlark.Int:
		if y, ok := y.(starlark.Int); ok {
			return m.integers(thread, op, x, y)
		}
		if op == syntax.STAR {
			return m.repeated(thread, y, x)
		}
	case starlark.String:
		switch y := y.(type) {
		case starlark.String:
			if op == syntax.PLUS {
				return m.fits(thread, len(x)+len(y), 0)
			}
		case starlark.Int:
			if op == syntax.STAR {
				return m.repeated(thread, x, y)
			}
		}
		if op == syntax.PERCENT {
			return m.interpolated(thread, string(x), y)
		}
	case starlark.Bytes:
		if y, ok := y.(starlark.Bytes); ok {
			return m.fits(thread, len(x)+len(y), 0)
		}
		if y, ok := y.(starlark.Int); ok && op == syntax.STAR {
			return m.repeated(thread, x, y)
		}
	case *starlark.List, starlark.Tuple:
		if y, ok := y.(starlark.Int); ok && op == syntax.STAR {
			return m.repeated(thread, x, y)
		}
		if y, ok := y.(starlark.Sequence); ok {
			return m.fits(thread, 0, starlark.Len(x)+y.Len())
		}
	case *starlark.Dict, *starlark.Set:
		// Hashes again what was hashed before, so each key has its bounds.
		if err := m.fits(thread, 0, starlark.Len(x)+max(0, starlark.Len(y))); err != nil {
			return err
		}
		return m.keys(thread, x, y)
	}
	return nil
}

func (m *meter) integers(thread *starlark.Thread, op syntax.Token, x, y starlark.Int) error {
	a, b, units := bitLen(x), bitLen(y), 0
	size := max(a, b)
	switch op {
	case syntax.STAR:
		size, units = a+b, square(a, b)
	case syntax.SLASHSLASH, syntax.PERCENT:
		units = square(max(a-b, 0), b)
	}
	if err := m.fits(thread, size/8, 0); err != nil {
		return err
	}
	return m.work(thread, units)
}

// repeated is x * n.
func (m *meter) repeated(thread *starlark.Thread, x starlark.Value, n starlark.Int) error {
	i, err := starlark.AsInt32(n)
	if err != nil || i < 0 {
		return nil // refused, or empty
	}
	i = min(i, maxValueBytes+1)
	switch x := x.(type) {
	case starlark.String:
		return m.fits(thread, len(x)*i, 0)
	case starlark.Bytes:
		return m.fits(thread, len(x)*i, 0)
	case *starlark.List, starlark.Tuple:
		return m.fits(thread, 0, starlark.Len(x)*i)
	}
	return nil
}

// interpolated is format % x.
func (m *meter) interpolated(thread *starlark.Thread, format string, x starlark.Value) error {
	if err := m.work(thread, strings.Count(format, "%")*unitsPerField); err != nil {
		return err
	}
	size := len(format)
	each := func(v starlark.Value, times int) error {
		n, err := m.text(thread, v)
		if _, float := v.(starlark.Float); float {
			n += 300 // %d and %f write all its digits
		}
		size += n * times
		return err
	}
	switch x := x.(type) {
	case starlark.Tuple:
		for _, v := range x[:min(len(x), strings.Count(format, "%"))] {
			if err := each(v, 1); err != nil {
				return err
			}
		}
	case *starlark.Dict:
		// Each name that is asked for, as often as it is.
		rest := format
		for {
			_, after, ok := strings.Cut(rest, "%")
			if !ok {
				break
			}
			name, named := strings.CutPrefix(after, "(")
			if named {
				name, after, _ = strings.Cut(name, ")")
			}
			rest = after[min(1, len(after)):] // without the conversion, or the second of two %
			if v, found, _ := x.Get(starlark.String(name)); named && found {
				if err := each(v, 1); err != nil {
					return err
				}
			}
			if size > maxValueBytes {
				return errValueBytes
			}
		}
		if strings.Count(format, "%") > strings.Count(format, "%(") {
			if err := each(x, 1); err != nil {
				return err
			}
		}
	default:
		if err := each(x, 1); err != nil {
			return err
		}
	}
	return m.fits(thread, size, 0)
}

// comparable looks at both sides of a comparison. Values of different types are not gone into, but
// for numbers, nor is what need but be equal to something empty.
func (m *meter) comparable(thread *starlark.Thread, op syntax.Token, x, y starlark.Value) error {
	equal, several := op == syntax.EQL || op == syntax.NEQ, false
	switch x.(type) {
	case starlark.Int, starlark.Float:
		if x.Type() == y.Type() {
			break
		}
		if _, units := alike(x, y, false); units > unitsOfSmall {
			return m.work(thread, units)
		}
	case starlark.Tuple, *starlark.List, *starlark.Dict, *starlark.Set:
		several = true
	}
	if x.Type() != y.Type() || several && equal && min(starlark.Len(x), starlark.Len(y)) == 0 {
		return nil
	}
	a, err := compared(x)
	if err != nil {
		return err
	}
	b, err := compared(y)
	if err != nil {
		return err
	}
	least, units := min(a, b), 0
	if several { // both were gone through
		units = min(maxCompared, max(a, b)-least)
	}
	if err := m.work(thread, least+units); err != nil || !several {
		return err
	}
	if err := m.work(thread, m.within(x)+m.within(y)); err != nil {
		return err
	}
	_, units = alike(x, y, !equal)
	return m.work(thread, max(0, units-unitsOfAlike*least))
}

const (
	unitsOfSmall = 256 // that the language needs to compare an integer of one word with a float
	unitsOfAlike = 8   // of alike, for each that compared says, where numbers are small or of one kind
)

// contained looks at x in y.
func (m *meter) contained(thread *starlark.Thread, x, y starlark.Value) error {
	switch y := y.(type) {
	case starlark.String:
		return m.work(thread, len(y)/16)
	case starlark.Bytes:
		return m.work(thread, len(y)/16)
	case *starlark.List, starlark.Tuple:
		return m.search(thread, x, y.(starlark.Sequence))
	}
	return m.key(thread, x, y)
}

// search looks at a comparison of x with each element of a sequence.
func (m *meter) search(thread *starlark.Thread, x starlark.Value, in starlark.Sequence) error {
	each, err := compared(x)
	if err != nil {
		return err
	}
	if s, text := raw(x); text {
		if err := m.work(thread, in.Len()+each*16); err != nil || each <= 64 {
			return err // few texts have its length
		}
		units := 0 // unless a long one is there many times
		for v := range starlark.Elements(in) {
			if other, ok := raw(v); ok && len(other) == len(s) {
				units += each
			}
		}
		return m.work(thread, units)
	}
	if err := m.work(thread, (in.Len()+1)*each); err != nil {
		return err
	}
	var own numbers
	slack, looked := unitsOfAlike*each, 0
	if numeric(x) {
		own.add(x) // once: to look at a large integer takes as long as it is
	} else {
		looked = m.within(x)
	}
	for v := range starlark.Elements(in) {
		units := 0
		if !numeric(x) {
			if looked > 0 && v.Type() == x.Type() && starlark.Len(v) == starlark.Len(x) {
				if err := m.work(thread, looked); err != nil {
					return err
				}
			}
			_, units = alike(x, v, false)
			units -= slack
		} else if numeric(v) && v.Type() != x.Type() { // others are not gone into, or soon compared
			met := own
			met.add(v)
			units = each * (met.times() - 1)
		}
		if units > 0 {
			if err := m.work(thread, units); err != nil {
				return err
			}
		}
	}
	return nil
}

func numeric(v starlark.Value) bool {
	switch v.(type) {
	case starlark.Int, starlark.Float:
		return true
	}
	return false
}

// raw is what a text or bytes are made of.
func raw(v starlark.Value) (s string, ok bool) {
	if b, ok := v.(starlark.Bytes); ok {
		return string(b), true
	}
	return starlark.AsString(v)
}

// place is x[k] of x[k] %= v: what stood there before the right side was evaluated.
type place struct {
	starlark.Value
	x, k starlark.Value
}

// index is x[k].
func index(x, k starlark.Value) (starlark.Value, error) {
	switch x := x.(type) {
	case starlark.Mapping:
		v, found, err := x.Get(k)
		if err == nil && !found {
			err = fmt.Errorf("key %v not in %s", k, x.Type())
		}
		return v, err
	case starlark.Indexable:
		n := x.Len()
		i, err := starlark.AsInt32(k)
		if err != nil {
			return nil, fmt.Errorf("%s index: %s", x.Type(), err)
		}
		at := i
		if at < 0 {
			at += n
		}
		if at < 0 || at >= n {
			return nil, outOfRange(i, n, x)
		}
		return x.Index(at), nil
	}
	return nil, fmt.Errorf("unhandled index operation %s[%s]", x.Type(), k.Type())
}

func outOfRange(i, n int, x starlark.Value) error {
	if n == 0 {
		return fmt.Errorf("index %d out of range: empty %s", i, x.Type())
	}
	return fmt.Errorf("%s index %d out of range [%d:%d]", x.Type(), i, -n, n-1)
}

// setIndex is x[k] = v.
func (m *meter) setIndex(thread *starlark.Thread, x, k, v starlark.Value) error {
	switch x := x.(type) {
	case starlark.HasSetKey:
		before := starlark.Len(x)
		if before >= maxValueElements {
			return errValueElements
		}
		if err := m.key(thread, k, x); err != nil {
			return err
		}
		if err := m.storing(thread, k, x); err != nil {
			return err
		}
		if err := x.SetKey(k, v); err != nil {
			return err
		}
		if starlark.Len(x) > before {
			return m.allocate(sizeEntry)
		}
		return nil
	case starlark.HasSetIndex:
		i, err := starlark.AsInt32(k)
		if err != nil {
			return err
		}
		n, at := x.Len(), i
		if at < 0 {
			at += n
		}
		if at >= 0 && at < n {
			return x.SetIndex(at, v)
		}
		return outOfRange(i, n, x)
	}
	return fmt.Errorf("%s value does not support item assignment", x.Type())
}

// right is the right side of an assigning operator, which the interpreter gives back to it
// with the left side.
type right struct {
	starlark.Value
	meter  *meter
	thread *starlark.Thread
}

// Binary is the operator, for what the left side is.
func (y *right) Binary(op syntax.Token, x starlark.Value, _ starlark.Side) (starlark.Value, error) {
	m := y.meter
	switch x := x.(type) {
	case *starlark.List:
		if more, ok := y.Value.(starlark.Iterable); ok && op == syntax.PLUS {
			if err := m.extend(y.thread, x, more); err != nil {
				return nil, verb(err, "extend: cannot extend", "cannot apply += to")
			}
			return x, nil
		}
	case *starlark.Dict:
		if more, ok := y.Value.(*starlark.Dict); ok && op == syntax.PIPE {
			return x, m.unite(y.thread, x, more)
		}
	}
	return m.binary(y.thread, op, x, y.Value)
}

// verb replaces what an error says was tried.
func verb(err error, is, should string) error {
	if after, ok := strings.CutPrefix(err.Error(), is); ok {
		return errors.New(should + after)
	}
	return err
}

// longer looks at what is to be appended to a list.
func (m *meter) longer(thread *starlark.Thread, x *starlark.List, more starlark.Value) error {
	n := starlark.Len(more)
	if n < 0 {
		var err error
		if n, err = m.sequence(thread, more); err != nil {
			return err
		}
	}
	return m.fits(thread, 0, x.Len()+n)
}

// extend appends to a list, by the language's own method.
func (m *meter) extend(thread *starlark.Thread, x *starlark.List, more starlark.Iterable) error {
	before := x.Len()
	if err := m.longer(thread, x, more); err != nil {
		return err
	}
	method, err := x.Attr("extend")
	if err != nil {
		return err
	}
	if _, err := method.(*starlark.Builtin).CallInternal(thread, starlark.Tuple{more}, nil); err != nil {
		return err
	}
	return m.allocate(2 * sizeElement * (x.Len() - before))
}

// unite is x |= more.
func (m *meter) unite(thread *starlark.Thread, x, more *starlark.Dict) error {
	if err := m.operands(thread, syntax.PIPE, x, more); err != nil {
		return err
	}
	before := x.Len()
	for key, v := range more.Entries() {
		if err := x.SetKey(key, v); err != nil {
			return verb(err, "cannot insert into", "cannot apply |= to")
		}
	}
	return m.allocate(sizeEntry * (x.Len() - before))
}
