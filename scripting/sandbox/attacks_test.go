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
	{"repeat a list to the most", `return len([0] * ((1<<30)-1))`, []string{tooLarge, gaveUp}},
	{"a list of 100 million", `return len([0]*100000000)`, []string{tooLarge}},
	{"double a list", "x = [0]\nfor i in range(26):\n  x = x + x\nreturn len(x)", []string{tooLarge}},
	{"a list of a range without end", `return len(list(range(1<<62)))`, []string{tooLarge, gaveUp}},
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
	{"lists within lists", "a = []\nfor i in range(20000):\n  a = [a]\nreturn str(a) == ''", []string{"false", tooLarge, tooMany}},
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
