package scripting_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/scripting"
)

// fill repeats a text up to the longest program.
func fill(text string) string { return strings.Repeat(text, scripting.MaxText/len(text)) }

// hostileSources are texts that are hard to compile: nesting, length, many names.
func hostileSources() map[string]string {
	number := func(format string, n int, sep string) string {
		var b strings.Builder
		for i := range n {
			if b.Len() > scripting.MaxText-2000 {
				break
			}
			if i > 0 {
				b.WriteString(sep)
			}
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	nested := func(head, indent string, most int) string {
		var b strings.Builder
		for i := range most {
			line := strings.Repeat(indent, i) + head + "\n"
			if b.Len()+len(line) > scripting.MaxText-most {
				break
			}
			b.WriteString(line)
		}
		depth := strings.Count(b.String(), "\n")
		return b.String() + strings.Repeat(indent, depth) + "pass"
	}
	return map[string]string{
		"brackets open":          fill("("),
		"brackets closed":        "x = " + strings.Repeat("(", 30000) + "1" + strings.Repeat(")", 30000),
		"lists":                  "x = " + strings.Repeat("[", 30000) + strings.Repeat("]", 30000),
		"dicts":                  "x = " + strings.Repeat("{1:", 20000) + "1" + strings.Repeat("}", 20000)[:5000],
		"calls":                  "x = f" + fill("()")[:60000],
		"indexes":                "x = y" + fill("[0]")[:60000],
		"dots":                   "x = y" + fill(".a")[:60000],
		"minus":                  "x = " + fill("-")[:60000] + "1",
		"not":                    "x = " + fill("not ")[:60000] + "True",
		"pluses":                 "x = 1" + strings.Repeat("+1", 32000),
		"texts joined":           "x = ''" + strings.Repeat("+''", 20000),
		"lists joined":           "x = []" + strings.Repeat("+[1]", 15000),
		"minuses":                "x = 1" + strings.Repeat("-1", 32000),
		"ands":                   "x = 1" + strings.Repeat(" and 1", 10000),
		"conditions":             "x = 1" + strings.Repeat(" if 1 else 1", 5000),
		"lambdas":                "x = " + strings.Repeat("lambda:", 9000) + "1",
		"number":                 "x = 1" + fill("0")[:65000],
		"hexadecimal":            "x = 0x" + fill("f")[:65000],
		"float":                  "x = 1." + fill("3")[:65000],
		"numbers":                "x = [" + number("%d", 20000, ",") + "]",
		"text":                   "x = '" + fill("\\n")[:65000] + "'",
		"open text":              "x = '''" + fill("a")[:65000],
		"parameters":             "def f(" + number("p%d", 5000, ",") + "): pass",
		"arguments":              "f(" + number("a%d=1", 5000, ",") + ")",
		"unknown names":          number("u%d", 8000, "\n"),
		"names":                  number("n%d=1", 8000, "\n") + "\nu",
		"nested functions":       nested("def f():", " ", 300),
		"nested ifs":             nested("if x:", " ", 300),
		"nested loops":           "[" + "1" + strings.Repeat(" for x in y", 5000) + "]",
		"clauses":                "x = [1 for x in y" + strings.Repeat(" if x", 10000) + "]",
		"elifs":                  "if 1: pass\n" + strings.Repeat("elif 1: pass\n", 4900),
		"targets":                strings.Repeat("(", 20000) + "x" + strings.Repeat(",)", 20000) + " = 1",
		"functions":              number("def f%d(): return f%[1]d", 2000, "\n"),
		"closures":               "def f():\n" + number(" a%d=1", 3000, "\n") + "\n def g():\n" + number("  a%d", 3000, "\n"),
		"semicolons":             "x = 1" + strings.Repeat(";x=1", 15000),
		"backslashes and breaks": fill("\\\n"),
		"indents":                nested("while 1:", "\t", 200),
	}
}

// TestX29Sources compiles them, for both engines: an error or a program, soon and in little memory.
func TestX29Sources(t *testing.T) {
	sources := hostileSources()
	if len(sources) < 28 {
		t.Fatal(len(sources))
	}
	for name, text := range sources {
		if len(text) > scripting.MaxText {
			t.Fatalf("%s: %d bytes", name, len(text))
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		from := cpu()
		p, err := scripting.Compile("script.star", text, scripting.Scope{Near: func() []string { return []string{"near"} }})
		took := cpu() - from
		runtime.ReadMemStats(&after)
		allocated := int64(after.TotalAlloc - before.TotalAlloc)
		if took > 500*time.Millisecond && !raceOn || allocated > 32<<20 && !raceOn {
			t.Errorf("%s: %v, %d MiB", name, took, allocated>>20)
		}
		t.Logf("%-24s %6d bytes: %8v %3d MiB, %v", name, len(text), took.Round(time.Microsecond), allocated>>20, short(err))
		if err != nil {
			if e := err.(*scripting.Error); e.Line == 0 {
				t.Errorf("%s: no place: %v", name, e)
			}
			continue
		}
		if _, err := scripting.Load(p.Encode()); err != nil {
			t.Errorf("%s: load: %v", name, err)
		}
		from = cpu()
		if _, err := scripting.Execute(t.Context(), &scripting.Run{Program: p, Call: usual().call, Limits: scripting.Limits{Steps: 1000}}); err != nil {
			t.Errorf("%s: in process: %v", name, err)
		}
		if took := cpu() - from; took > 500*time.Millisecond && !raceOn {
			t.Errorf("%s: in process: %v", name, took)
		}
	}
}

func short(err error) string {
	if err == nil {
		return "compiles"
	}
	return err.Error()[:min(len(err.Error()), 100)]
}

// TestX29Text holds what of a text is refused, and where.
func TestX29Text(t *testing.T) {
	for text, want := range map[string]string{
		"x = 1\nreturn '\x00'":                               "error: 2:9: a NUL character",
		"\ufeffreturn 1":                                     "1",
		"\ufeffreturn prnt":                                  "error: 1:8: undefined: prnt (did you mean print?)",
		"x = 1\r\nreturn x\r\n":                              "1",
		"x = '''a\r\nb'''\nreturn x":                         `"a\nb"`,
		"if True:\n\treturn 2":                               "2",
		"if True:\n\tx = 1\n        return x":                "1",
		"return '\xff'":                                      "error: 1:9: the text is not UTF-8",
		"return 'é' + 1":                                     "error: 1:12: unknown binary op: string + int",
		"\n\n  return 1":                                     "error: 3:3: got indent, want primary expression",
		"for i in [1,2]\n  print(i)":                         "error: 1:15: got newline, want ':'",
		"# one\r\nif 'é': # a\r\n  x = 1\r\nelif 1 # b \r\n": "error: 4:11: got newline, want ':'",
		"x = [1\ny = 2":                                      "error: 2:1: got identifier, want ']'",
		"x = 1\nfor élan y_1 in x: pass":                     "error: 2:10: got identifier, want in",
		"x = (1 }":                                           "error: 1:8: got '}', want ')'",
		"x = 1 if y else\n":                                  "error: 1:16: got newline, want primary expression",
		"load('x.star', 'x')":                                "error: 1:1: load is not available",
		"if True:\n  load('x.star', 'x')":                    "error: 2:3: load is not available",
		strings.Repeat(" ", 65537):                           "error: longer than 65536 bytes",
		"def f(): return f()\nreturn f()":                    "error: 1:17: function f called recursively",
		"# only a comment":                                   "null",
		"'only a text'":                                      "null",
		"\"\"\"a text\nof two lines\"\"\"\nreturn 1 // 0":    "error: 3:10: floored division by zero",
	} {
		if got := told(run(t, text)); got != want {
			t.Errorf("%.60q\n got %s\nwant %s", text, got, want)
		}
	}
}
