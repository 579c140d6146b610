package scripting

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/starlarktest"
	"go.starlark.net/syntax"

	"github.com/weir-edge/weir/scripting/scriptingtest"
)

// reporter is what `assert` tells of a chunk.
type reporter []string

func (r *reporter) Error(args ...any) {
	for _, a := range args {
		*r = append(*r, a.(string))
	}
}

// bounds are errors of the interpreter in place of which the engine in process has its own,
// since its bounds are narrower.
func bounds() *strings.Replacer {
	return strings.NewReplacer(
		`"maximum recursion"`, `"a side of a comparison has more than 10000 values"`,
		`"excessive repeat \\(3000000 \\* 1000000 elements"`, `"a value of more than (8 MiB|1000000 elements)"`,
	)
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

// TestChunks runs the interpreter's own test files in the engine in process.
func TestChunks(t *testing.T) {
	chunks := scriptingtest.Chunks(t)
	if len(chunks) < 60 {
		t.Fatalf("only %d chunks", len(chunks))
	}
	excepted := 0
	for _, c := range chunks {
		if reason := c.Except(); reason != "" {
			t.Logf("%s: not run: %s", c.Name(), reason)
			excepted++
			continue
		}
		t.Run(c.Name(), func(t *testing.T) { chunk(t, c) })
	}
	t.Logf("%d of %d chunks not run", excepted, len(chunks))
	if excepted*20 > len(chunks) {
		t.Errorf("%d of %d chunks are not run", excepted, len(chunks))
	}
}

// chunk runs one chunk with `assert` and `freeze`, and compares the error with the expected one.
func chunk(t *testing.T, c *scriptingtest.Chunk) {
	module, err := starlarktest.LoadAssertModule()
	if err != nil {
		t.Fatal(err)
	}
	extra := starlark.StringDict{
		"assert": module["assert"], "freeze": module["freeze"],
		"struct":    starlark.NewBuiltin("struct", starlarkstruct.Make),
		"hasfields": starlark.NewBuiltin("hasfields", newFields), "fibonacci": fibonacci{starlark.None},
	}
	scope := Scope{Tool: func(name string) (string, bool) { return name, extra.Has(name) }}
	p, err := Compile("script.star", bounds().Replace(c.Text), scope)
	if err == nil {
		_, err = p.forProcess()
	}
	var told reporter
	var e *Error
	if err != nil {
		e = err.(*Error)
	} else {
		host := &Host{Print: func(string) {}}
		r := newRun(p.counted, &p.names, Limits{Steps: 10_000_000, Memory: 512 << 20}, host)
		r.meter = newMeter(r)
		r.counted = countedBuiltins
		task := r.task(0)
		names, err := r.predeclared(nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range extra {
			names[name] = v
		}
		starlarktest.SetReporter(task.thread, &told)
		task.take()
		globals, err := r.program.Init(task.thread, names)
		if err == nil {
			_, err = starlark.Call(task.thread, globals[entry], nil, nil)
		}
		if err != nil {
			e = r.report(err)
		}
	}
	for _, s := range told {
		t.Errorf("%s: %s", c.Name(), s)
	}
	if e != nil {
		want := c.Want[e.Line]
		if c.Refused != "" {
			want = regexp.MustCompile(c.Refused)
		}
		if want == nil || !want.MatchString(e.Message) {
			t.Errorf("%s: %v, want %v", c.Name(), e, want)
		}
	} else if len(c.Want) > 0 || c.Refused != "" {
		t.Errorf("%s: no error, want %v %s", c.Name(), c.Want, c.Refused)
	}
}
