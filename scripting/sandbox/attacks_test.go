package sandbox

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/scripting"
)

// attack is a text that ends a process, or keeps it busy for seconds, where nothing but
// steps is bounded.
type attack struct {
	name, text string
	ends       []string // what its outcome may begin with; an error begins with "error: "
}

const (
	tooLarge = "error: needs more than 64 MiB"
	tooDeep  = "error: calls or values nest too deep"
	tooLong  = "error: ran longer than 1s of CPU"
	tooMany  = "error: too many steps (100000)"
	gaveUp   = "error: the interpreter failed" // more elements than there can be
)

// attacks are the 25 of the battery that the design was measured with, and five more.
var attacks = []attack{
	{"repeat a text", `return len("a" * ((1<<30)-1))`, []string{tooLarge}},
	{"repeat a text by a number", `return len('a' * 1000000000)`, []string{tooLarge}},
	{"double a text", "s = 'a' * (1 << 20)\nfor i in range(10):\n  s = s + s\nreturn len(s)", []string{tooLarge}},
	{"repeat a list", `return len([0] * (1 << 27))`, []string{tooLarge}},
	{"repeat a list to the most", `return len([0] * ((1<<30)-1))`, []string{tooLarge}},
	{"a list of 100 million", `return len([0]*100000000)`, []string{tooLarge}},
	{"double a list", "x = [0]\nfor i in range(26):\n  x = x + x\nreturn len(x)", []string{tooLarge}},
	{"a list of a range without end", `return len(list(range(1<<62)))`, []string{tooLarge}},
	{"a list of a large range", `return len(list(range(100 * 1000000)))`, []string{tooLarge, "error: "}},
	{"a list of a large range, written out", `return len(list(range(100000000)))`, []string{tooLarge}},
	{"a number of three million digits", `return int("9" * 3000000) > 0`, []string{tooLong, tooLarge, "error: "}},
	{"square a number", "x = 3\nfor i in range(27):\n  x = x * x\nreturn x > 0", []string{tooLong, tooLarge}},
	{"sort a large range", `return len(sorted(range(30000000)))`, []string{tooLarge, tooLong}},
	{"look through a list", "x = list(range(1000000))\nfor i in range(10000):\n  -1 in x\nreturn 1", []string{tooLong, tooLarge}},
	{"nested JSON", `return json.decode("[" * 1000000)`, []string{tooLarge, tooLong, "error: "}},
	{"deeply nested JSON", `return json.decode("[" * 20000000)`, []string{tooLarge, tooLong, "error: "}},
	{"join", `return len(",".join(["a" * 1000000] * 3000))`, []string{tooLarge}},
	{"replace", "x = 'a' * 100000\nreturn len(x.replace('a', 'b' * 20000))", []string{tooLarge}},
	{"format", "x = 'a' * 1000000\nreturn len(('%s' * 1000) % tuple([x] * 1000))", []string{tooLarge}},
	{"a tree of tuples as a key", "t = ()\nfor i in range(40):\n  t = (t, t)\nreturn {t: 1}", []string{tooLong, "error: "}},
	{"a tree of lists as a text", "a = []\nfor i in range(40):\n  a = [a, a]\nreturn len(str(a))", []string{tooLarge, tooLong}},
	{"a tree of lists as JSON", "a = []\nfor i in range(40):\n  a = [a, a]\nreturn len(json.encode(a))", []string{tooLarge, tooLong, "error: "}},
	{"enumerate", `return len(list(enumerate(range(20000000))))`, []string{tooLarge, tooLong}},
	{"an endless loop", "while True:\n  pass", []string{tooMany}},
	{"many keys", "d = {}\nfor i in range(100000):\n  d[i] = i\nreturn len(d)", []string{tooMany}},

	{"a list within itself", "a = []\na.append(a)\nreturn a", []string{"error: "}},
	{"lists within lists", "a = []\nfor i in range(20000):\n  a = [a]\nreturn str(a) == ''", []string{"false", tooDeep, tooMany}},
	{"compare lists within lists", "a = []\nb = []\nfor i in range(6000):\n  a = [a]\n  b = [b]\nreturn a == b", []string{"error: ", "true"}},
	{"shift", "return (1 << 511) << 511 << (1 << 30)", []string{"error: "}},
	{"a text of many formats", "return len('%1000000000s' % 'x')", []string{"error: "}},
	{"elements of a text", "s = 'ab' * (1 << 22)\nreturn len(list(s.elems()))", []string{tooLarge, tooLong}},
}

// rss is what this process holds of the machine's memory, in bytes, when it rests.
func rss(t testing.TB) int64 {
	t.Helper()
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("the memory of a process is read from /proc")
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// TestX02X03X04Attacks: each attack ends by a budget or as an error of its own, within its
// second of a processor; the next run is as any other.
func TestX02X03X04Attacks(t *testing.T) {
	e := engine(t)
	before := rss(t)
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			p, err := scripting.Compile("script.star", a.text, scripting.Scope{})
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			o, err := e.Run(t.Context(), "mallory", &scripting.Run{Program: p, Call: tools{}.call})
			if err != nil {
				t.Fatal(err)
			}
			got := said(o)
			ok := false
			for _, end := range a.ends {
				ok = ok || strings.HasPrefix(got, end)
			}
			if !ok {
				t.Errorf("it ends with %.200q", got)
			}
			if o.CPU > 1100*time.Millisecond {
				t.Errorf("it used %v of a processor", o.CPU)
			}
			innocent(t, got)
			t.Logf("%.60q after %v, %v of CPU, %d steps, %d MiB", got, time.Since(start).Round(time.Millisecond), o.CPU.Round(time.Millisecond), o.Steps, o.Memory>>20)
		})
	}
	if got := said(run1(t, e, `return "still here"`, nil)); got != `"still here"` {
		t.Error(got)
	}
	if after := rss(t); after-before > 80<<20 {
		t.Errorf("the process holds %d MiB more", (after-before)>>20)
	}
}

// innocent fails the test where a text shows what is behind the language: frames of the
// interpreter, paths of a machine, addresses of memory.
func innocent(t testing.TB, text string) {
	t.Helper()
	for _, bad := range []string{"goroutine", ".go:", "runtime", "0x", "/root", "/home", "/work", "wasm", "recovered", "weir/"} {
		if strings.Contains(text, bad) {
			t.Errorf("%.300q holds %q", text, bad)
		}
	}
}

// TestX29Sources: what hostile sources of 64 KiB compile to runs in the sandbox as any
// other program; the others never get there.
func TestX29Sources(t *testing.T) {
	e := engine(t)
	many := func(format string, n int, sep string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = strings.ReplaceAll(format, "#", strconv.Itoa(i))
		}
		return strings.Join(parts, sep)
	}
	r := strings.Repeat
	sources := []string{
		r("(", 65536), "x = " + r("(", 30000) + "1" + r(")", 30000), "x = " + r("[", 30000) + r("]", 30000), "x = " + r("{1:", 15000) + "1" + r("}", 15000),
		"x = len" + r("()", 30000), "y = [0]\nx = y" + r("[0]", 20000), "y = 1\nx = y" + r(".a", 30000), "x = " + r("-", 60000) + "1", "x = " + r("not ", 15000) + "1",
		"x = 1" + r("+1", 32000), "x = ''" + r("+''", 20000), "x = []" + r("+[1]", 15000), "x = 1" + r("-1", 32000), "x = 1" + r(" and 1", 10000), "x = 1" + r(" if 1 else 1", 5000),
		"x = " + r("lambda:", 9000) + "1", "x = 1" + r("0", 65000), "x = 0x" + r("f", 65000), "x = 1." + r("3", 65000), "x = [" + many("#", 11000, ",") + "]",
		"x = '" + r(`\n`, 32000) + "'", "x = '''" + r("a", 65000), "def f(" + many("p#", 5000, ",") + "): pass", "dict(" + many("a#=1", 5000, ",") + ")",
		many("n#=1", 6000, "\n"), many("def f#(): return f#", 2000, "\n"), "def f():\n" + many(" a#=1", 3000, "\n") + "\n def g():\n" + many("  a#", 3000, "\n") + "\n g()\nf()",
		"x = 1" + r(";x=1", 15000), "if 1: pass\n" + r("elif 1: pass\n", 4900), "x = [1 for x in [1]" + r(" if x", 10000) + "]", "x = [1" + r(" for x in [1, 2]", 4000) + "]",
		r("(", 20000) + "x" + r(",)", 20000) + " = 1", r("\\\n", 32000),
	}
	if len(sources) < 28 {
		t.Fatal(len(sources))
	}
	refused, ran := 0, 0
	for i, text := range sources {
		p, err := scripting.Compile("script.star", text, scripting.Scope{})
		if err != nil {
			refused++
			innocent(t, err.Error())
			continue
		}
		ran++
		start := time.Now()
		o, err := e.Run(t.Context(), "mallory", &scripting.Run{Program: p, Call: tools{}.call})
		if err != nil {
			t.Fatal(err)
		}
		if got := said(o); got == gaveUp || o.CPU > 1100*time.Millisecond {
			t.Errorf("source %d (%.40q): %.100s after %v of CPU", i, text, got, o.CPU)
		} else {
			innocent(t, got)
			t.Logf("%.30q: %.60s after %v", text, got, time.Since(start).Round(time.Millisecond))
		}
	}
	if refused < 5 || ran < 10 {
		t.Errorf("%d refused, %d ran", refused, ran)
	}
}
