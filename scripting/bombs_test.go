package scripting_test

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/scripting"
)

// bomb is a program that would take memory or time without end.
type bomb struct {
	name, text string
	want       string // part of its error
}

// bombs are the attacks that are known on the interpreter, with their sizes as parameters:
// n is what a client gives.
func bombs() []bomb {
	const (
		memory   = "needs more than 64 MiB"
		bytes    = "a value of more than 8 MiB"
		elements = "a value of more than 1000000 elements"
		compared = "a key or a side of a comparison has more than 10000 values"
		steps    = "too many steps"
	)
	large := "x = int('9' * 4000)\n"
	pairs := "t = ()\nfor i in range(40):\n  t = (t, t)\n"
	return []bomb{
		{"repeat a text", "return len('a' * n)", bytes},
		{"repeat a text, the number first", "return len(n * 'a')", bytes},
		{"repeat by assignment", "s = 'a'\ns *= n\nreturn len(s)", bytes},
		{"repeat an element by assignment", "s = ['a']\ns[0] *= n\nreturn len(s)", bytes},
		{"repeat bytes", "return len(b'a' * n)", bytes},
		{"repeat a list", "return len([0] * n)", elements},
		{"repeat a tuple", "return len((0,) * n)", elements},
		{"double a text", "s = 'a'\nfor i in range(n):\n  s = s + s", bytes},
		{"double a text by assignment", "s = 'a'\nfor i in range(n):\n  s += s", bytes},
		{"double a list", "s = [1]\nfor i in range(n):\n  s = s + s", elements},
		{"extend a list by itself", "s = [1]\nfor i in range(n):\n  s += s", elements},
		{"extend by a method", "s = [1]\nfor i in range(n):\n  s.extend(s)", elements},
		{"keep many texts", "s = []\nfor i in range(n):\n  s.append('a' * 1000000)", memory},
		{"list of a range", "return len(list(range(n * n)))", elements},
		{"tuple of a range", "return len(tuple(range(n)))", elements},
		{"set of a range", "return len(set(range(n)))", elements},
		{"sorted range, by name", "return len(sorted(iterable = range(n)))", elements},
		{"number from a text, by name", "return int(x = '9' * 3000000)", "a text of more than 4096 digits"},
		{"sorted range", "return len(sorted(range(n)))", elements},
		{"reversed range", "return len(reversed(range(n)))", elements},
		{"enumerate a range", "return len(list(enumerate(range(n))))", elements},
		{"zip ranges", "return len(zip(range(n), range(n)))", elements},
		{"any of a range", "return any([False] and range(n) or range(0, n))", ""},
		{"all of a range", "return all(range(1, n))", elements},
		{"max of a range", "return max(range(n))", elements},
		{"arguments of a range", "def f(*a): return len(a)\nreturn f(*range(n))", elements},
		{"dict of a range", "return len({i: i for i in range(n)})", ""},
		{"number from a text", "return int('9' * 3000000)", "a text of more than 4096 digits"},
		{"number by squaring", "x = 3\nfor i in range(n):\n  x = x * x", ""},
		{"number by squaring in place", "x = 3\nfor i in range(n):\n  x *= x", ""},
		{"number by shifting", "x = 1\nfor i in range(n):\n  x = x << 500", memory},
		{"numbers that follow a large one", large + "return len([x + i for i in range(n)])", memory},
		{"a large number and one", large + "return len([x + 1 for i in range(n)])", memory},
		{"one and a large number", large + "return len([1 + x for i in range(n)])", memory},
		{"a large number less one", large + "return len([x - 1 for i in range(n)])", memory},
		{"one less a large number", large + "return len([1 - x for i in range(n)])", memory},
		{"a large number, negative", large + "return len([-x for i in range(n)])", memory},
		{"the complement of a large number", large + "return len([~x for i in range(n)])", memory},
		{"the absolute value of a large number", large + "x = -x\nreturn len([abs(x) for i in range(n)])", memory},
		{"a large number, shifted to the right", large + "return len([x >> 1 for i in range(n)])", memory},
		{"bits of a large number", large + "return len([x & -1 for i in range(n)])", memory},
		{"bits set in a large number", large + "return len([x | 1 for i in range(n)])", memory},
		{"bits changed in a large number", large + "return len([x ^ 1 for i in range(n)])", memory},
		{"a large number that is counted up", large + "l = []\nfor i in range(n):\n  x += 1\n  l.append(x)", memory},
		{"a large number that is counted down", large + "l = []\nfor i in range(n):\n  x -= 1\n  l.append(x)", memory},
		{"a large number that is shifted in place", large + "l = []\nfor i in range(n):\n  y = x\n  y >>= 1\n  l.append(y)", memory},
		{"an element that is counted up", large + "l, y = [], [x]\nfor i in range(n):\n  y[0] += 1\n  l.append(y[0])", memory},
		{"an element that is shifted in place", large + "l = []\nfor i in range(n):\n  y = [x]\n  y[0] >>= 1\n  l.append(y)", memory},
		{"a large number of the text and one", "return len(['9' and " + strings.Repeat("9", 4000) + " + i for i in range(n)])", memory},
		{"a large number of the text, negative", "return len([-" + strings.Repeat("9", 4000) + " for i in range(n)])", memory},
		{"division of large numbers", "x = 1\nfor i in range(2000):\n  x = x << 500\nfor i in range(n):\n  y = x // 12345678901234567890123 % 9876543210987", memory},
		{"text of a large number", "x = 3\nfor i in range(17):\n  x = x * x\nfor i in range(n):\n  y = str(x)", steps},
		{"join", "s = 'a' * 1000000\nreturn len(','.join([s] * 3000))", bytes},
		{"join with a long text between", "return len(('a' * 1000000).join([''] * 1000))", bytes},
		{"replace", "return len(('a' * 100000).replace('a', 'b' * 20000))", bytes},
		{"replace nothing", "return len(('a' * 100000).replace('', 'b' * 20000))", bytes},
		{"format", "return len(('{0}' * 1000).format('a' * 100000))", bytes},
		{"format with a conversion in the specification", "return len(('{a:b!s}' * 1000).format(**{'a:b': 'a' * 100000}))", bytes},
		{"format with a number that goes round", "return len(('{18446744073709551616}' * 1000).format('a' * 100000))", bytes},
		{"interpolate after two signs", "return len(('%%(%(a)s' * 1000) % {'a': 'a' * 100000})", bytes},
		{"interpolate after a sign with a name", "return len(('%(b)%%(a)s' * 1000) % {'a': 'a' * 100000, 'b': 1})", bytes},
		{"interpolate numbers with all their digits", "return len(('%f' * 200000) % ((1e308,) * 200000))", bytes},
		{"interpolate", "return len(('%(a)s' * 1000) % {'a': 'a' * 100000})", bytes},
		{"interpolate a tuple", "return len(('%s' * 100) % (('a' * 1000000,) * 100))", bytes},
		{"split", "return len(('a,' * 4000000).split(','))", elements},
		{"split at spaces", "return len(('a ' * 4000000).split())", elements},
		{"split as often as can be", "s = 'a' * 8000000\nfor i in range(50):\n  x = s.split(',', n)\nreturn len(x)", ""},
		{"split from the right as often as can be", "return len('a b'.rsplit(None, n * 10))", ""},
		{"split from the right once", "return len(('a,' * 4000000).rsplit(',', 1))", elements},
		{"lines", "return len(('\\n' * 8000000).splitlines())", elements},
		{"elements of a text", "return len(list(('a' * 8000000).elems()))", elements},
		{"attributes by name", "f = getattr('a', 'replace')\nreturn len(f('', 'b' * 8000000) + f('', 'b' * 8000000))", bytes},
		{"a method in a variable", "f = 'a'.join\nreturn len(f(['b' * 3000000] * 3))", bytes},
		{"search again and again", "l = list(range(500000))\nfor i in range(n):\n  if -1 in l:\n    return 1", steps},
		{"index again and again", "l = list(range(500000)) + [-1]\nfor i in range(n):\n  l.index(-1)", steps},
		{"sort again and again", "l = list(range(100000))\nfor i in range(n):\n  sorted(l)", ""},
		{"read JSON, deep", "return json.decode('[' * 1000000)", "deeper than 100"},
		{"read JSON, many objects", "return len(json.decode('[' + '{},' * 900000 + '{}]'))", ""},
		{"read JSON, long number", "return json.decode('9' * 3000000)", "an integer of more than 4096 digits"},
		{"write JSON", pairs + "return len(json.encode(t))", "more than 1000000 values"},
		{"indent JSON", "return len(json.indent('[' + '1,' * 100000 + '1]', prefix = 'a' * 100000))", "longer than 64 bytes"},
		{"indent JSON, short lines", "return len(json.indent('[' * 100 + '1,' * 200000 + '1' + ']' * 100))", bytes},
		{"indent JSON, by much", "return len(json.indent('[' * 50 + '1,' * 50000 + '1' + ']' * 50, prefix = 'a' * 32, indent = 'a' * 32))", bytes},
		{"write and indent JSON", "x = [1] * 200000\nfor i in range(90):\n  x = [x]\nreturn len(json.encode_indent(x))", bytes},
		{"write JSON of escapes", "return len(json.encode('é' + '<' * 3000000))", bytes},
		{"write JSON of controls", "return len(json.encode('\\1' * 1600000))", bytes},
		{"write JSON of bytes that are no text", "return len(json.encode('é'[:1] * 1600000))", bytes},
		{"write JSON of a range", "return len(json.encode(range(900000)))", bytes},
		{"write JSON of a long range", "return len(json.encode(range(n)))", "more than 1000000 values"},
		{"write JSON of ranges", "return len(json.encode([range(900000)] * 1000))", "more than 1000000 values"},
		{"write JSON of elements", "return len(json.encode([('a' * 900000).elems()] * 1000))", "more than 1000000 values"},
		{"text of elements", "x = ('a' * 900000).elems()\nreturn len(str([x] * 1000))", "more than 1000000 values"},
		{"format elements", "return len(('{0}' * 1000).format(('a' * 100000).elems()))", bytes},
		{"text of pairs", pairs + "return len(str(t))", "more than 1000000 values"},
		{"text of lists", "a = []\nfor i in range(40):\n  a = [a, a]\nreturn len(repr(a))", "more than 1000000 values"},
		{"print pairs", pairs + "print(t)", "more than 1000000 values"},
		{"fail with pairs", pairs + "fail(t)", "more than 1000000 values"},
		{"interpolate pairs", pairs + "return '%s' % (t,)", "more than 1000000 values"},
		{"format pairs", pairs + "return '{}'.format(t)", "more than 1000000 values"},
		{"pairs as a key", pairs + "return {t: 1}", compared},
		{"pairs as a key of a comprehension", pairs + "return {x: 1 for x in [t]}", compared},
		{"pairs as an index", pairs + "d = {}\nreturn d[t]", compared},
		{"pairs as an assigned index", pairs + "d = {}\nd[t] = 1", compared},
		{"pairs as one of two indexes", pairs + "d = {}\nd[t], x = 1, 2", compared},
		{"pairs in a set", pairs + "return set([t])", compared},
		{"pairs in dict()", pairs + "return dict([(t, 1)])", compared},
		{"pairs in update", pairs + "d = {}\nd.update([(t, 1)])", compared},
		{"pairs in get", pairs + "return {}.get(t)", compared},
		{"pairs in setdefault", pairs + "return {}.setdefault(t)", compared},
		{"pairs in add", pairs + "s = set()\ns.add(t)", compared},
		{"pairs in union", pairs + "return set().union([t])", compared},
		{"pairs equal", pairs + "u = ()\nfor i in range(40):\n  u = (u, u)\nreturn t == u", compared},
		{"pairs unequal", pairs + "u = ()\nfor i in range(40):\n  u = (u, u)\nreturn t != u", compared},
		{"pairs in order", pairs + "u = ()\nfor i in range(40):\n  u = (u, u)\nreturn t < u", compared},
		{"pairs in a list", pairs + "u = ()\nfor i in range(40):\n  u = (u, u)\nreturn t in [u]", compared},
		{"pairs in a dict", pairs + "return t in {}", compared},
		{"pairs not in a list", pairs + "u = ()\nfor i in range(40):\n  u = (u, u)\nreturn t not in [u]", compared},
		{"pairs removed", pairs + "u = ()\nfor i in range(40):\n  u = (u, u)\nreturn [u].remove(t)", compared},
		{"pairs sorted", pairs + "u = ()\nfor i in range(40):\n  u = (u, u)\nreturn sorted([t, u])", compared},
		{"pairs as a key function's values", pairs + "u = ()\nfor i in range(40):\n  u = (u, u)\nreturn sorted([1, 2], key = lambda x: [t, u][x - 1])", compared},
		{"pairs as the least", pairs + "u = ()\nfor i in range(40):\n  u = (u, u)\nreturn min(1, 2, key = lambda x: [t, u][x - 1])", compared},
		{"pairs returned", pairs + "return t", "result"},
		{"pairs as arguments", pairs + "return echo(t = t)", "arguments"},
		{"a cycle as a key", "l = []\nl.append(l)\nreturn l == [[]]", ""},
		{"many dicts", "return len([{'a': i} for i in range(n)])", ""},
		{"many lists", "return len([[i] for i in range(n)])", ""},
		{"copies", "l = list(range(500000))\nreturn len([l[:] for i in range(n)])", memory},
		{"functions", "return len([lambda: i for i in range(n)])", ""},
		{"endless loop", "while True: pass", steps},
		{"strip", "s = 'é' * 100000\nfor i in range(n):\n  s.strip('aé' * 50000)", steps},
		{"letters again and again", "s = 'é' * 4000000\nfor i in range(n):\n  s.isalpha()", steps},
		{"small letters again and again", "s = 'é' * 4000000\nfor i in range(n):\n  s.islower()", steps},
		{"digits by name", "f = getattr('1' * 8000000, 'isdigit')\nfor i in range(n):\n  f()", steps},
		{"a prefix again and again", "s, p = 'a' * 8000000, 'a' * 7999999 + 'b'\nfor i in range(n):\n  s.removeprefix(p)", memory},
		{"bytes as a key again and again", "s, d = b'a' * 8000000, {}\nfor i in range(n):\n  d.get(s)", steps},
		{"bytes among bytes again and again", "s, l = b'a' * 1000000 + b'b', [b'a' * 1000000 + b'c'] * 1000\nfor i in range(n):\n  s in l", steps},
		{"bytes compared again and again", "s, z = b'a' * 4000000, b'a' * 3999999 + b'b'\nfor i in range(n):\n  s == z", steps},
		{"elements compared", "s, z = ('a' * 900000).elems(), ('a' * 899999 + 'b').elems()\nreturn [s].index(z)", compared},
		{"a long text in a key that is missing", "return {}[('a' * 500000,) * 9000]", bytes},
		{"a long text in a set", "return ('a' * 500000,) * 9000 in set()", bytes},
		{"a large number as a key that is missing", "x = 3\nfor i in range(20):\n  x = x * x\nreturn {}[x]", steps},
		{"large numbers in a key that is missing", "x = 3\nfor i in range(17):\n  x = x * x\nreturn {}[(x,) * 100]", steps},
		{"a large number in a range", "x = 3\nfor i in range(17):\n  x = x * x\nfor i in range(n):\n  x in range(3)", steps},
		{"zip what has no length", "e = ('a' * 1000000).codepoints()\nreturn len(zip(*([e] * 1000)))", steps},
		{"zip bytes and a list", "e = (b'a' * 8000000).elems()\nreturn len(zip([1], e))", elements},
		{"arguments of what has no length", "e = ('a' * 500000).codepoints()\ndef f(*a): return a\nreturn [f(*e) for i in range(n)]", memory},
		{"all that has no length", "e = ('a' * 1000000).codepoint_ords()\nfor i in range(n):\n  all(e)", steps},
		{"a superset of what has no length", "e = ('a' * 1000000).codepoints()\ns = set(['a'])\nfor i in range(n):\n  s.issuperset(e)", steps},
		{"extend by what has no length", "e = ('a' * 600000).codepoints()\nx = list(e)\nx.extend(e)", elements},
		{"extend by what has no length, in place", "e = ('a' * 600000).codepoints()\nx = list(e)\nx += e", elements},
		{"a dict as a pair, many times", "d = {(0,) * 9000: 0, 1: 0}\nreturn dict([d] * 900000)", steps},
		{"a dict as a pair, many times, in update", "d = {(0,) * 9000: 0, 1: 0}\n{}.update([d] * 900000)", steps},
		{"a set as a pair, many times", "d = set([(0,) * 9000, 1])\n{}.update([d] * 900000)", steps},
		{"parallel of parallels", "def a(): parallel([b] * 100)\ndef b(): parallel([c] * 100)\ndef c(): return list(range(1000))\nparallel([a] * 100)", ""},
		{"parallel within itself", "def f(): parallel([f])\nf()", "nested more than 64 deep"},
	}
}

// TestX36Bombs lets them off in process, with the steps of a workflow: each ends with an error
// or a value, in little memory and soon, and the next one is not hurt by it.
func TestX36Bombs(t *testing.T) {
	if raceOn {
		t.Skip("the race detector takes memory of its own")
	}
	steps := uint64(1_000_000)
	if os.Getenv("WEIR_PROGRAMS") != "" {
		steps = 10_000_000
	}
	debug.SetGCPercent(50)
	defer debug.SetGCPercent(100)
	for _, b := range bombs() {
		t.Run(b.name, func(t *testing.T) {
			runtime.GC()
			var most atomic.Uint64
			stop := make(chan struct{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				for tick := time.NewTicker(4 * time.Millisecond); ; {
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					most.Store(max(most.Load(), m.HeapInuse))
					select {
					case <-stop:
						tick.Stop()
						return
					case <-tick.C:
					}
				}
			}()
			var before runtime.MemStats
			runtime.ReadMemStats(&before)
			p, err := scripting.Compile("script.star", b.text, usual().scope("n"))
			if err != nil {
				t.Fatal(err)
			}
			from := cpu()
			o, err := scripting.Execute(t.Context(), &scripting.Run{Program: p, Call: usual().call, Data: []byte(`{"n": 1000000000}`), Limits: scripting.Limits{Steps: steps}})
			took := cpu() - from
			close(stop)
			<-done
			if err != nil {
				t.Fatal(err)
			}
			grown := int64(most.Load()-before.HeapInuse) >> 20
			t.Logf("%v, %d MiB, %d steps, counted %d MiB: %.100s", took.Round(time.Millisecond), grown, o.Steps, o.Memory>>20, told(o))
			if strings.HasPrefix(b.want, "a value of more than") && (o.Error == nil || o.Error.Cause != scripting.Budget || o.Error.Spent != scripting.MemorySpent) {
				t.Errorf("its cause is not that a budget is spent: %+v", o.Error)
			}
			if took > 5*time.Second || grown > 80 {
				t.Errorf("%v, %d MiB", took, grown)
			}
			if o.Error == nil && b.want != "" || !strings.Contains(told(o), b.want) {
				t.Errorf("got %.200s, want an error with %q", told(o), b.want)
			}
			if o := run(t, "return [1, 'a'] + [2]"); told(o) != `[1,"a",2]` {
				t.Errorf("the next run: %s", told(o))
			}
		})
	}
	fmt.Fprintln(t.Output(), len(bombs()), "bombs")
}
