// Package language has the values that the interpreter's own test files use besides the
// language: `assert` and `freeze`, and what else their runner gives them. Both engines have
// them in tests alone, the sandbox in a build of its guest with the tag chunks.
package language

import (
	"errors"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/starlarktest"
	"go.starlark.net/syntax"
)

// Reporter is told what `assert` finds.
type Reporter func(text string)

// Error is what `assert` calls.
func (r Reporter) Error(args ...any) {
	for _, a := range args {
		if s, ok := a.(string); ok {
			r(s)
		}
	}
}

// Report has what `assert` finds on a thread told to a function.
func Report(thread *starlark.Thread, told func(text string)) {
	starlarktest.SetReporter(thread, Reporter(told))
}

// Names are the names of the values.
func Names() []string { return []string{"assert", "fibonacci", "freeze", "hasfields", "struct"} }

// Values are the values by their names.
func Values() (starlark.StringDict, error) {
	module, err := starlarktest.LoadAssertModule()
	if err != nil {
		return nil, err
	}
	return starlark.StringDict{
		"assert": module["assert"], "freeze": module["freeze"],
		"struct":    starlark.NewBuiltin("struct", starlarkstruct.Make),
		"hasfields": starlark.NewBuiltin("hasfields", newFields),
		"fibonacci": fibonacci{starlark.None},
	}, nil
}

// fibonacci is a sequence without an end, and fields a value with fields that can be set:
// what the interpreter's own tests have besides.
type fibonacci struct{ starlark.Value }

func (fibonacci) Type() string { return "fib" }

func (fibonacci) Iterate() starlark.Iterator { return &numbers{0, 1} }

type numbers struct{ x, y int }

func (n *numbers) Next(v *starlark.Value) bool {
	*v = starlark.MakeInt(n.x)
	n.x, n.y = n.y, n.x+n.y
	return true
}

func (n *numbers) Done() {}

type fields struct {
	starlark.Value
	attrs  starlark.StringDict
	frozen bool
}

func newFields(*starlark.Thread, *starlark.Builtin, starlark.Tuple, []starlark.Tuple) (starlark.Value, error) {
	return &fields{Value: starlark.None, attrs: starlark.StringDict{}}, nil
}

func (*fields) Type() string { return "hasfields" }

func (f *fields) Freeze() {
	f.frozen = true
	f.attrs.Freeze()
}

func (f *fields) Attr(name string) (starlark.Value, error) { return f.attrs[name], nil }

func (f *fields) AttrNames() []string { return f.attrs.Keys() }

func (f *fields) SetField(name string, v starlark.Value) error {
	if f.frozen {
		return errors.New("cannot set field on a frozen hasfields")
	}
	if strings.HasPrefix(name, "no") {
		return starlark.NoSuchAttrError("no ." + name + " field")
	}
	f.attrs[name] = v
	return nil
}

func (f *fields) Binary(op syntax.Token, y starlark.Value, _ starlark.Side) (starlark.Value, error) {
	if _, ok := y.(*starlark.List); ok && op == syntax.PLUS {
		return starlark.MakeInt(42), nil
	}
	return nil, nil
}
