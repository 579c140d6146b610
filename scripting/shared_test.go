package scripting_test

import (
	"strings"
	"testing"
	"time"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/scripting"
)

// TestX43Frozen: what a text made is frozen, also where a function or a tuple is within itself or many
// times within another; what the language would not come to an end with is refused.
func TestX43Frozen(t *testing.T) {
	const self = "def make():\n  def f(): return f\n  return f\n"
	const tuples = "def double(n, t=()):\n  for i in range(n): t = (t, t)\n  return t\n"
	const wrapped = "def wrap(f): return lambda: f\ndef all(n, f=None):\n  for i in range(n): f = wrap(f)\n  return f\n"
	for source, want := range map[string]string{
		self + "g = make()":                       "",
		self + "g = (make(), lambda x=make(): x)": "",
		"def make():\n  d = {}\n  def f(): return d\n  d[0] = [f]\n  return f\ng = make()": "",
		"def make():\n  def a(): return b\n  def b(): return a\n  return a\ng = make()":    "",
		self + "g = [make()]":                                     "within itself",
		self + "g = {0: (make(),)}":                               "within itself",
		self + "g = set([make()])":                                "within itself",
		self + "g = [make()].append":                              "within itself",
		tuples + "g = double(60)":                                 "",
		tuples + "g = [double(60)]":                               "too many values",
		tuples + "t = double(21)\ng = [[t] for i in range(1000)]": "too many steps",
		wrapped + "g = all(20000)":                                "too many values",
		wrapped + "g = [all(900)]":                                "",
		"def nest(x):\n  for i in range(10000): x = [x, {0: x}]\n  return x\ng = nest([])": "",
	} {
		p, err := scripting.Compile("filter.star", source, scripting.Scope{Whole: true})
		if err != nil {
			t.Fatal(source, err)
		}
		from := cpu()
		_, err = scripting.Share(p, scripting.Sharing{Load: scripting.Limits{Steps: 1_000_000}}, nil)
		if took := cpu() - from; took > time.Second || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v after %s, want %q", source, err, took, want)
		}
	}

	p, err := scripting.Compile("filter.star", "def make():\n  x, d = [], {}\n  def f():\n    x.append(f)\n  def g():\n    d[0] = f\n  return (f, (g, set))\ny = make()\nf = y[0]\ng = y[1][0]\nh = [[1]]\ndef k(): h[0].append(2)", scripting.Scope{Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := scripting.Share(p, scripting.Sharing{Load: scripting.Limits{Steps: 1_000_000}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f", "g", "k"} {
		if _, _, failed := s.Invoke(s.Globals()[name].(starlark.Callable), nil, nil); failed == nil || !strings.Contains(failed.Message, "frozen") {
			t.Errorf("%s: %v", name, failed)
		}
	}
}
