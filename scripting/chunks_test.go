package scripting

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/scripting/scriptingtest"
	"github.com/weir-edge/weir/scripting/scriptingtest/language"
)

// bounds are errors of the interpreter in place of which the engine in process has its own,
// since its bounds are narrower.
func bounds() *strings.Replacer {
	return strings.NewReplacer(
		`"maximum recursion"`, `"a side of a comparison has more than 10000 values"`,
		`"excessive repeat \\(3000000 \\* 1000000 elements"`, `"a value of more than (8 MiB|1000000 elements)"`,
	)
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
	values, err := language.Values()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile("script.star", bounds().Replace(c.Text), Scope{Extra: language.Names()})
	if err == nil {
		_, err = p.forProcess()
	}
	var told []string
	var e *Error
	if err != nil {
		e = err.(*Error)
	} else {
		host := &Host{Print: func(string) {}}
		r := newRun(p.counted, &p.names, Limits{Steps: 10_000_000, Memory: 512 << 20}, host)
		r.meter = newMeter(r)
		r.counted = func(scope starlark.StringDict) { putCounted(scope, p.uses) }
		task := r.task(0)
		names, err := r.predeclared(nil)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(names, values)
		language.Report(task.thread, func(text string) { told = append(told, text) })
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
