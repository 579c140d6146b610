package scripting_test

import (
	"fmt"
	"math/big"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/scripting"
)

// crowdedNames are names that a dict of the language keeps in one bucket: the last 17 bits of
// their FNV-1a are 0.
func crowdedNames(n int) (names []string) {
	const letters, bits, prime = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", 1<<17 - 1, 16777619
	inverse := uint32(prime)
	for range 5 {
		inverse *= 2 - prime*inverse
	}
	ends := map[uint32][]string{} // by the hash before them
	for _, a := range letters {
		for _, b := range letters {
			for _, c := range letters {
				h := uint32(0)
				for _, x := range []rune{c, b, a} {
					h = h*inverse ^ uint32(x)
				}
				ends[h&bits] = append(ends[h&bits], string([]rune{a, b, c}))
			}
		}
	}
	for _, a := range letters {
		for _, b := range letters {
			for _, c := range letters {
				h := uint32(2166136261)
				for _, x := range []rune{a, b, c} {
					h = (h ^ uint32(x)) * prime
				}
				for _, end := range ends[h&bits] {
					if names = append(names, string([]rune{a, b, c})+end); len(names) == n {
						return names
					}
				}
			}
		}
	}
	return names
}

// TestX36CrowdedNames: names that were chosen for one bucket of a dict take no processor for
// minutes, whoever sends them and however the dict is made.
func TestX36CrowdedNames(t *testing.T) {
	names := crowdedNames(100_000)
	list := `["` + strings.Join(names[:20_000], `","`) + `"]`
	text := `{"` + strings.Join(names, `":0,"`) + `":0}`
	escaped := `{"` + strings.Join(names, `":0,"\u`+"0061"+`","`) + `":0}` // no object: the decoder ends early
	few := `{"` + strings.Join(names[:20_000], `" : 0, "`) + `":0,"\u00e9":{"a":1}}`
	quoted := fmt.Sprintf("%q", few)
	for name, c := range map[string]struct{ source, value, want string }{
		"a value":          {"return len(first(0))", text, "chosen to be slow to find"},
		"within a value":   {"return len(first(0))", `[1,{"x":` + text + `}]`, "chosen to be slow to find"},
		"json.decode":      {"return len(json.decode(first(0)))", quoted, "chosen to be slow to find"},
		"json.decode, cut": {"return len(json.decode(first(0)))", fmt.Sprintf("%q", few[:len(few)-1]), "chosen to be slow to find"},
		"json.decode, odd": {"return len(json.decode(first(0)))", fmt.Sprintf("%q", escaped[:1<<20]), "json.decode"},
		"dict":             {"return len(dict([(k, 0) for k in first(0)]))", `["` + strings.Join(names[:20_000], `","`) + `"]`, "steps"},
		"set":              {"return len(set(first(0)))", list, "steps"},
		"update, by name":  {"d = {}\nfor k in first(0): d.update(**{k: 0})", list, "steps"},
		"again, by name":   {"d = dict([(k, 0) for k in first(0)[:1000]])\nwhile True: dict(**d)", list, "steps"},
	} {
		t.Run(name, func(t *testing.T) {
			from := cpu()
			o := run(t, c.source, func(r *scripting.Run) {
				r.Call = func(_ ctx, _ *scripting.Call) scripting.Answer { return scripting.Answer{Value: []byte(c.value)} }
			})
			if got := told(o); !strings.Contains(got, c.want) {
				t.Errorf("%.200s, want %s", got, c.want)
			}
			if took := cpu() - from; took > 3*time.Second || strings.HasSuffix(name, "by name") && o.Steps > 50_000 {
				t.Error(took, o.Steps)
			}
		})
	}
}

// Names that nobody has chosen are found as fast as ever, and are not refused.
func TestNamesThatAreManyAreNotCrowded(t *testing.T) {
	for name, of := range map[string]func(i int) string{
		"numbers": func(i int) string { return fmt.Sprint(i) },
		"padded":  func(i int) string { return fmt.Sprintf("k%06d", i) },
		"ids":     func(i int) string { return fmt.Sprintf("%x", i*0x9e3779b1&0xffffffff) },
		"pairs":   func(i int) string { return fmt.Sprintf("%d,%d", i/300, i%300) },
		"stepped": func(i int) string { return fmt.Sprint(i * 4096) },
		"long":    func(i int) string { return fmt.Sprintf("a name that is long %d", i) },
	} {
		var b strings.Builder
		b.WriteByte('{')
		for i := range 60_000 {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%q:%d", of(i), i)
		}
		b.WriteByte('}')
		for _, source := range []string{"return len(first(0))", "return len(json.decode(json.encode(first(0))))"} {
			o := run(t, source, func(r *scripting.Run) {
				r.Call = func(_ ctx, _ *scripting.Call) scripting.Answer {
					return scripting.Answer{Value: []byte(b.String())}
				}
			})
			if got := told(o); got != "60000" {
				t.Errorf("%s, %s: %.200s", name, source, got)
			}
		}
	}
}

// TestX36CrowdedOneByOne: keys that were chosen take no processor for minutes where they are stored
// one after the other either.
func TestX36CrowdedOneByOne(t *testing.T) {
	var b strings.Builder
	for i := range 60_000 { // all have one hash
		fmt.Fprintf(&b, ",%d", int64(i+1)<<32)
	}
	value := "[" + b.String()[1:] + "]"
	for _, source := range []string{
		"return len({k: 0 for k in first(0)})",
		"d = {}\nfor k in first(0): d[k] = 0\nreturn len(d)",
		"s = set()\nfor k in first(0): s.add(k)\nreturn len(s)",
		"d = {}\nfor k in first(0): d.update({k: 0})\nreturn len(d)",
		"d = {}\nfor k in first(0): d.setdefault(k, 0)\nreturn len(d)",
	} {
		from := cpu()
		o := run(t, source, func(r *scripting.Run) {
			r.Limits = scripting.Limits{Steps: 1_000_000}
			r.Call = func(_ ctx, _ *scripting.Call) scripting.Answer { return scripting.Answer{Value: []byte(value)} }
		})
		if got, took := told(o), cpu()-from; !strings.Contains(got, "too many steps") || took > 5*time.Second {
			t.Errorf("%s: %.100s after %s", source, got, took)
		}
	}
}

// TestX36CrowdedAtOnce: integers that were chosen have the steps of a workflow end what hashes them
// in one step, whether they come at once, beside each other or a page at a time.
func TestX36CrowdedAtOnce(t *testing.T) {
	var b strings.Builder
	for i := range 20_000 { // all have one hash
		fmt.Fprintf(&b, ",%d", new(big.Int).Add(new(big.Int).Lsh(big.NewInt(int64(i+1)), 64), big.NewInt(5)))
	}
	value := "[" + b.String()[1:] + "]"
	for _, c := range []struct {
		source string
		steps  uint64
	}{
		{"return len(set(x))", 10_000_000},
		{"return len(dict([(k, 0) for k in x]))", 10_000_000},
		{"return len(set([1]).intersection(x))", 10_000_000},
		{"return len(set().union(*[x[i:i + 200] for i in range(0, 20000, 200)]))", 10_000_000},
		{"return len(set(x[:3000]) | set(x[3000:6000]))", 10_000_000},
		{"d = {}\nfor i in range(0, 20000, 500): d.update([(k, 0) for k in x[i:i + 500]])\nreturn len(d)", 1_000_000},
		{"d = {}\nfor i in range(0, 20000, 500): d.update(dict([(k, 0) for k in x[i:i + 500]]))\nreturn len(d)", 1_000_000},
	} {
		from := cpu()
		o := run(t, "x = first(0)\n"+c.source, func(r *scripting.Run) {
			r.Limits = scripting.Limits{Steps: c.steps}
			r.Call = func(_ ctx, _ *scripting.Call) scripting.Answer { return scripting.Answer{Value: []byte(value)} }
		})
		if got, took := told(o), cpu()-from; !strings.Contains(got, "too many steps") || took > 3*time.Second {
			t.Errorf("%s: %.100s after %s", c.source, got, took)
		}
	}
}

// TestX36LookedForInACrowd: to look for many keys in one step, in a set or dict whose keys were
// chosen for one bucket, costs steps. As the keys themselves are few, they cost less than all steps.
func TestX36LookedForInACrowd(t *testing.T) {
	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, ",%d", (i+1)*2048) // of one bucket among 2,048, of many among more
	}
	for source, want := range map[string]string{
		"return len(set(x).intersection([0] * 900000))":                                 "too many steps",
		"return len(set(x).difference([0] * 900000))":                                   "too many steps",
		"d = dict([(k, 0) for k in x])\nd.update([(0, 0)] * 900000)\nreturn len(d)":     "too many steps",
		"return len(set(x).intersection([0] * 1000))":                                   "0",
		"s = set([str(k) for k in x])\nreturn len(s.intersection([\"2048\"] * 900000))": "1",
	} {
		from := cpu()
		o := run(t, "x = first(0)\n"+source, func(r *scripting.Run) {
			r.Limits = scripting.Limits{Steps: 10_000_000}
			r.Call = func(_ ctx, _ *scripting.Call) scripting.Answer {
				return scripting.Answer{Value: []byte("[" + b.String()[1:] + "]")}
			}
		})
		if got, took := told(o), cpu()-from; !strings.Contains(got, want) || took > 3*time.Second {
			t.Errorf("%s: %.100s after %s", source, got, took)
		}
	}
}

// TestX36NumbersOfTwoKinds: integers and floats are compared as fractions, which costs steps.
func TestX36NumbersOfTwoKinds(t *testing.T) {
	var b strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&b, ",%de-300,%d", i+1, 2*i+1)
	}
	for _, source := range []string{"return len(sorted(x))", "return max(x)", "return sorted(x, key=lambda v: v)[0]", "return x.index(1e300)", "return 1e300 in x",
		"return int(\"1\" * 2000) in [1.5] * 500000", "return sorted([[1] * 9000] * 500000)[0]"} {
		from := cpu()
		o := run(t, "x = first(0)\n"+source, func(r *scripting.Run) {
			r.Limits.Steps = 300_000
			r.Call = func(_ ctx, _ *scripting.Call) scripting.Answer {
				return scripting.Answer{Value: []byte("[" + b.String()[1:] + "]")}
			}
		})
		if took := cpu() - from; !strings.Contains(told(o), "too many steps") || took > 2*time.Second {
			t.Errorf("%s: %.80s after %s", source, told(o), took)
		}
	}
	for source, want := range map[string]string{"return sorted([3, 1.5, 2])": "[1.5,2,3]", "return 2 in [1.5, 2.0]": "true", "return max([1, 2.5])": "2.5",
		"x = {}\nx[1] = x\ny = [x, 2.5]\ny[0] = y\nreturn [1 in y, 1.5 in y, 1 in [x, y, 1]]": "[false,false,true]",
		"a = list(range(300))\nb = a[1:] + [2.5]\nreturn len([i for i in a if i in b])":       "299"} {
		if got := told(run(t, source)); got != want {
			t.Errorf("%s: %s", source, got)
		}
	}
}

// TestX36Comparisons: whatever is compared costs steps by what it takes.
func TestX36Comparisons(t *testing.T) {
	const huge = "h = 3\nfor i in range(16): h = h * h\n" // 103,000 bits
	const long = "l = list(range(9900))\n"
	for source, most := range map[string]int{
		huge + "f = float(1e-300)\nwhile True: h < f":                      7_000,
		huge + "while True: h == 1e-300":                                   7_000,
		huge + "while True: 1e-300 != h":                                   7_000,
		huge + "f = 1e-300\nwhile True: f == " + strings.Repeat("9", 4000): 70_000,
		huge + "x, y = [[1e-300]], [[h]]\nwhile True: x == y":              7_000,
		huge + "x, y = [0, 1e-300], [0, h, 1]\nwhile True: x < y":          7_000,
		huge + "x, y = {1: [1e-300]}, {1: [h]}\nwhile True: x != y":        7_000,
		huge + "x = [[h]] * 500000\nreturn [1e-300] in x":                  300,
		huge + "x = [(h, 0)] * 500000\nx.index((1e-300, 0))":               300,
		huge + "x = [{0: (h,)}] * 500000\nx.remove({0: (1e-300,)})":        300,
		long + "m = [[]]\nwhile True: l < m[0]":                            7_000,
		long + "m = [1]\nwhile True: l == m":                               7_000,
		long + "while True: l in []":                                       7_000,
		long + "m = ([l], [0])\nwhile True: m[0] == m[1]":                  7_000,
	} {
		from := cpu()
		o := run(t, source, func(r *scripting.Run) { r.Limits.Steps = 100_000 })
		if took := cpu() - from; !strings.Contains(told(o), "too many steps") || took > time.Second || int(o.Steps) > most {
			t.Errorf("%s: %.80s after %d steps, %s", source, told(o), o.Steps, took)
		}
	}
	for source, most := range map[string]int{ // what is little work is many steps
		long + "m = []\nwhile True: l == m":                                    100_000,
		"x, y = 3, 1.5\nwhile True: x < y":                                     100_000,
		"x, y = [1, 2.5, \"a\"], [1, 2.5, \"b\"]\nwhile True: x == y":          100_000,
		"x = [(1, i) for i in range(1000)]\nfor i in range(10): (1, 2.5) in x": 0,
	} {
		o := run(t, source, func(r *scripting.Run) { r.Limits.Steps = 100_000 })
		if most > 0 && int(o.Steps) < most*9/10 || most == 0 && o.Error != nil {
			t.Errorf("%s: %.80s after %d steps", source, told(o), o.Steps)
		}
	}
	for source, want := range map[string]string{
		"a, b = [1, [2, 3]], [1, [2]]\nreturn [a < b, a > b, a == b, a != b, b < a]":           "[false,true,false,true,true]",
		"x = {\"a\": [1, 2.0]}\nreturn [x == {\"a\": [1.0, 2]}, x == {\"b\": 1}, [x] == [{}]]": "[true,false,false]",
		"return [2 == 2.0, 2.5 == 2, 2 < 2.5, float(\"nan\") == 1, 1 < float(\"inf\")]":        "[true,false,true,false,true]",
		"return len(set([1, 1.0, 2.0, 2, 2.5, 9007199254740993, 9007199254740992.0]))":         "5",
	} {
		if got := told(run(t, source)); got != want {
			t.Errorf("%s: %s", source, got)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o := run(t, "x = [None] * 9000\nmax([[None] * i + [[None] * j + [x]] for i in range(30) for j in range(30)])", func(r *scripting.Run) { r.Limits.Steps = 10_000_000 })
	runtime.ReadMemStats(&after)
	if got, bytes := told(o), after.TotalAlloc-before.TotalAlloc; !strings.Contains(got, "not implemented") || bytes > 200<<20 {
		t.Errorf("%s, %d MiB", got, bytes>>20)
	}
}

// TestX36NumbersOfOneHash: numbers of two kinds that have one hash cost steps where they are keys, few of
// them too, and where others are looked for among them.
func TestX36NumbersOfOneHash(t *testing.T) {
	const huge = "h = 3\nfor i in range(13): h = h * h\nh = [h - h % (1 << 32) + (i << 32) for i in range(64)]\n" // of 12,984 bits
	const small = "i = [(k + 1) << 32 for k in range(128)]\nf = [(k + 1) * 1e-300 for k in range(128)]\n"
	for source, most := range map[string]int{
		huge + "return len(set(h + [(k + 1) * 1e-300 for k in range(9000)]))":                                              120_000,
		"return len(set([k << 32 for k in range(1, 9)] + [1e-300] * 590000))":                                              120_000,
		"return len(dict([(k << 32, 0) for k in range(1, 9)] + [(1e-300, 0)] * 590000))":                                   120_000,
		"d, e = {(k + 1) * 1e-300: 0 for k in range(64)}, {(k + 1) << 32: 0 for k in range(64)}\nreturn d in [e] * 100000": 120_000,
		huge + "return len(set(h).intersection([1e-300] * 500000))":                                                        5_000,
		huge + "s = set(h)\nreturn [k for k in [1e-300] * 90000 if k in s]":                                                5_000,
		huge + "s = dict([(k, 0) for k in h])\nwhile True: s.get(1e-300)":                                                  5_000,
		huge + "s = {k: 0 for k in h}\nk = 1e-300\nwhile True: s.pop(k, 0)":                                                5_000,
		huge + "s = {k: 0 for k in h}\nwhile True: k = s.get(0.5) if 0.5 in s else 0":                                      5_000,
		huge + small + "s, z = set(h), set(f[:64])\nwhile True: z <= s":                                                    5_000,
		huge + small + "s, z = [set(h)], [set(f[:64])]\nwhile True: z == s":                                                5_000,
		huge + small + "s, z = {k: 0 for k in h}, {k: 0 for k in f[:64]}\nwhile True: z == s":                              7_000,
		huge + small + "sorted([set(h[:9]), set(f[:9])] * 5000)":                                                           5_000,
		small + "while True: set(i + f)":                                                                                   5_000,
		small + "s = set(f)\nwhile True: s.discard(0)":                                                                     40_000,
		small + "for k in range(999999): {x: 0 for x in i + f}":                                                            9_000,
		"s = set([(0,) * 3000 + (k << 32,) for k in range(10)])\nx = (0,) * 3001\nwhile True: x in s":                      40_000,
	} {
		from := cpu()
		o := run(t, source, func(r *scripting.Run) { r.Limits.Steps = 300_000 })
		if took := cpu() - from; !strings.Contains(told(o), "too many steps") || took > 2*time.Second || int(o.Steps) > most {
			t.Errorf("%s: %.80s after %d steps, %s", source, told(o), o.Steps, took)
		}
	}
	const scores = "s = [k / 1000 for k in range(1, 200)]\n"
	for _, source := range []string{ // that nobody chose: a round takes no more steps than those that are told
		scores + "for k in range(1000): set(s)",
		scores + "for k in range(20): d = {x: 0 for x in s}",
		scores + "d = {x: 0 for x in s}\nr = [1, 2]\nfor k in range(5000): y = 0.5 in d and d[0.007] or r[k % 2]",
		"s = set([k / 1000 for k in range(1, 1000)])\nd = {0: 1, 2: 3}\nfor k in range(900): d[0] = d.get(0) + 1",
		"s = set([k / 1000 for k in range(1, 1000)])\nfor k in range(900): t = set([0, 1, k])",
		"d, h = {}, [0] * 10\nfor k in range(900):\n  d[(900 - k) / 1000] = k\n  h[0] += 1\n  h[k % 2] = h[0]",
		"p = [3, 3.5, 4, 4.5, 5] * 20\nfor k in range(500): set(p)",
		"p = [3, 3.5, 4, 4.5, 5]\nd = {}\nfor k in range(200): d[p[k % 5]] = k",
		"d = {k: 0 for k in range(3000)}\nfor k in range(3000): d[k] = d[k] + 1",
		"a, b = set([(k, 1) for k in range(200)]), set([(k, 1) for k in range(200)])\nfor k in range(100): a == b",
	} {
		o := run(t, source, func(r *scripting.Run) { r.Limits.Steps = 120_000 })
		if o.Error != nil {
			t.Errorf("%s: %s after %d steps", source, told(o), o.Steps)
		}
	}
}

// TestX36CrowdedTuples: tuples that begin with the same values take as long as they are to compare,
// so they cost steps by their length, few of them too, however they come into a set or dict.
func TestX36CrowdedTuples(t *testing.T) {
	rows := func(n, zeros int) string {
		var b strings.Builder
		for i := range n { // all have one hash
			fmt.Fprintf(&b, ",[%s%d]", strings.Repeat("0,", zeros), int64(i+1)<<32)
		}
		return "[" + b.String()[1:] + "]"
	}
	for _, c := range []struct {
		source, value string
		steps         uint64
	}{
		{"return len(set([tuple(r) for r in x]))", rows(4700, 99), 10_000_000},
		{"return len(dict([(tuple(r), 0) for r in x]))", rows(4700, 99), 10_000_000},
		{"d = {}\nfor r in x: d[tuple(r)] = 0\nreturn len(d)", rows(4700, 99), 10_000_000},
		{"return len(set([tuple(r) for r in x]))", rows(200, 2999), 10_000_000},
		{"d = {}\nfor r in x: d[tuple(r)] = 0\nreturn len(d)", rows(60, 2999), 1_000_000},
		{"d = {}\nfor r in x: d.update([(tuple(r), 0)])\nreturn len(d)", rows(60, 2999), 1_000_000},
	} {
		from := cpu()
		o := run(t, "x = first(0)\n"+c.source, func(r *scripting.Run) {
			r.Limits = scripting.Limits{Steps: c.steps}
			r.Call = func(_ ctx, _ *scripting.Call) scripting.Answer { return scripting.Answer{Value: []byte(c.value)} }
		})
		if got, took := told(o), cpu()-from; !strings.Contains(got, "too many steps") || took > 5*time.Second {
			t.Errorf("%s: %.100s after %s", c.source, got, took)
		}
	}
}

// Floats between two whole numbers have one hash, and so have the points of one place: nobody chose
// them. Integers among floats are dear to compare.
func TestScoresAndPointsAreKeys(t *testing.T) {
	scores, points, mixed := "", "", ""
	for i := range 1000 {
		scores += fmt.Sprintf(",0.%04d1", i)
	}
	for i := range 2000 {
		mixed += fmt.Sprintf(",0.%04d1,%d", i, int64(i+1)<<32)
	}
	for i := range 300 {
		points += fmt.Sprintf(",[52.%04d1,13.%04d1]", i, i*7)
	}
	for _, c := range []struct{ source, value, want string }{
		{"return len(set(x))", scores, "1000"},
		{"return len(dict([(s, 0) for s in x]))", scores, "1000"},
		{"return len({s: 0 for s in x})", scores, "1000"},
		{"return len(set([tuple(p) for p in x]))", points, "300"},
		{"return len({tuple(p): 0 for p in x})", points, "300"},
		{"return len(set(x))", mixed, "error: 2:15: too many steps"},
	} {
		for _, steps := range []uint64{0, 10_000_000} { // those of a script, and of a workflow
			o := run(t, "x = first(0)\n"+c.source, func(r *scripting.Run) {
				r.Limits.Steps = steps
				r.Call = func(_ ctx, _ *scripting.Call) scripting.Answer {
					return scripting.Answer{Value: []byte("[" + c.value[1:] + "]")}
				}
			})
			if got := told(o); !strings.HasPrefix(got, c.want) {
				t.Errorf("%s of %.20s, %d steps: %.100s", c.source, c.value, steps, got)
			}
		}
	}
}

// Values that come again are one key, however often they come.
func TestKeysThatComeAgainAreOne(t *testing.T) {
	for source, want := range map[string]string{
		`return len(set(["ok"] * 50000))`:                          "1",
		`return len(dict([("a", 1), ("b", 2), ("c", 3)] * 20000))`: "3",
		`return len(set([1]).union(["x", "y"] * 20000))`:           "3",
		`return len({k: 1 for k in ["a", "b", "c"] * 30000})`:      "3",
	} {
		o := run(t, source, func(r *scripting.Run) { r.Limits = scripting.Limits{Steps: 1_000_000} })
		if got := told(o); got != want {
			t.Errorf("%s: %.100s", source, got)
		}
	}
}

// TestX36FormatOfManyNames: fields that are looked for among many names count.
func TestX36FormatOfManyNames(t *testing.T) {
	var names []string
	for i := range 20_000 {
		names = append(names, fmt.Sprintf(`"k%d":0`, i))
	}
	value := `{"t":"` + strings.Repeat("{k19999}", 20_000) + `","v":{` + strings.Join(names, ",") + `}}`
	from := cpu()
	o := run(t, "x = first(0)\nreturn len(x[\"t\"].format(**x[\"v\"]))", func(r *scripting.Run) {
		r.Call = func(_ ctx, _ *scripting.Call) scripting.Answer { return scripting.Answer{Value: []byte(value)} }
	})
	if got, took := told(o), cpu()-from; !strings.Contains(got, "too many steps") || took > time.Second {
		t.Errorf("%.100s after %s", got, took)
	}
}

// TestX36SearchOfALongText: a long text that a list has many times is compared as often.
func TestX36SearchOfALongText(t *testing.T) {
	value := `{"a":"` + strings.Repeat("x", 200_000) + `1","b":"` + strings.Repeat("x", 200_000) + `2"}`
	o := run(t, "x = first(0)\nreturn x[\"b\"] in [x[\"a\"]] * 5000", func(r *scripting.Run) {
		r.Limits = scripting.Limits{Steps: 100_000}
		r.Call = func(_ ctx, _ *scripting.Call) scripting.Answer { return scripting.Answer{Value: []byte(value)} }
	})
	if got := told(o); !strings.Contains(got, "too many steps") {
		t.Errorf("%.100s", got)
	}
}
