package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/scriptingtest"
)

// TestDiffer compares the sandbox with the trusted engine, on programs made by chance:
// value, prints, steps, and an error with its place.
func TestDiffer(t *testing.T) {
	n := uint64(1000)
	if testing.Short() {
		n = 200
	}
	differ(t, engine(t, patient), n)
}

// patient is an engine for comparisons: a program that meets no other bound must not meet
// that of the time that it computes, however busy the machine is.
var patient = Options{CPU: time.Minute, Timeout: 5 * time.Minute}

func differ(t *testing.T, e *Engine, n uint64) {
	t.Helper()
	values, failures, bounded := 0, 0, 0
	for seed := range n {
		text := scriptingtest.Generate(seed)
		p, err := scripting.Compile("script.star", text, scripting.Scope{})
		if err != nil {
			continue // no program for either
		}
		r := &scripting.Run{Program: p, Call: tools{}.call}
		want, err := scripting.Execute(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Run(t.Context(), "me", r)
		if err != nil {
			t.Fatal(err)
		}
		if o := want.Error; o != nil && (strings.HasPrefix(o.Message, "a key or a side of a comparison") || strings.HasPrefix(o.Message, "a value of more than")) {
			bounded++ // by the engine in process alone
			continue
		}
		if want.Error != nil {
			failures++
		} else {
			values++
		}
		differs := func(what string, got, want any) { t.Errorf("seed %d: %s %v, want %v\n%s", seed, what, got, want, text) }
		if !bytes.Equal(got.Value, want.Value) {
			differs("value", string(got.Value), string(want.Value))
		}
		if !slices.Equal(got.Logs, want.Logs) || got.Dropped != want.Dropped {
			differs("logs", got.Logs, want.Logs)
		}
		if fmt.Sprint(got.Error) != fmt.Sprint(want.Error) {
			differs("error", fmt.Sprintf("%+v", got.Error), fmt.Sprintf("%+v", want.Error))
		}
		if want.Error == nil && got.Steps != want.Steps {
			differs("steps", got.Steps, want.Steps)
		}
	}
	t.Logf("%d values, %d errors, %d too large to compare", values, failures, bounded)
	if values < int(n)/2 || bounded > int(n)/50 {
		t.Errorf("of %d programs %d had a value, and %d were too large to compare", n, values, bounded)
	}
}

// TestDifferCalls compares both engines on texts that call tools, in every way there is.
func TestDifferCalls(t *testing.T) {
	e := engine(t)
	s := tools{
		"echo":   echo,
		"number": value("12345678901234567890123"), "half": value("0.5"), "whole": value("2.0"), "text": value(`"\ud800 \u00fc"`),
		"twice": value(`{"a":1,"b":2,"a":3}`), "list": value(`[1,[2,[3,{}]],null,true]`), "none": value("null"),
		"bad": func(context.Context, *scripting.Call) scripting.Answer {
			return scripting.Answer{Error: &scripting.Fault{Message: `tool "bad": is bad`, Code: 429, Data: []byte(`{"retry":[7]}`)}}
		},
		"deep":  value(strings.Repeat("[", 101) + strings.Repeat("]", 101)),
		"wrong": value(`{"a":`),
		"large": value(`"` + strings.Repeat("a", 5<<20) + `"`),
		"":      value(`["echo"]`),
	}
	for _, text := range []string{
		"return [number(), half(), whole(), text(), twice(), list(), none()]",
		"return [type(x) for x in [number(), half(), whole(), text(), twice(), list(), none()]]",
		"return echo(a = number(), b = half(), c = [text()], d = {1: 2, 'x': (1, 2)})",
		"return call_tool('echo', name = 1)",
		"bad()", "return attempt(bad)", "return attempt(lambda: fail('x', 1))", "deep()", "wrong()", "large()", "return attempt(deep)",
		"unknown = call_tool('unknown')", "call_tool(1)", "call_tool()", "echo(a = float('nan'))", "echo(a = lambda: 1)", "echo(**{'a' * 10: 1})",
		"return list_tools()", "return describe_tool('echo')", "return call_tool_result('echo', a = 1)",
		"return parallel([lambda: echo(i = 1), bad, lambda: echo(i = 2), bad])",
		"return parallel([lambda: echo(i = i) for i in range(30)])",
		"return parallel([])", "return parallel([1])", "return parallel(1)",
		"return echo(a = 'x' * 2000000)", "return attempt(lambda: echo(a = 'x' * 2000000))['error']['message']",
		"def f():\n  def g():\n    bad()\n  g()\nf()",
		"def f():\n  parallel([lambda: bad()])\nf()",
		"print(1, 'a', [2], sep = '-')\nprint('a\\nb')\nreturn json.decode(json.encode({'a': [1, 2.5, None]}))",
		"return json.decode('[1, 1e400]')", "return json.encode({'a': 1 << 100})", "return math.sqrt(2)",
		"s = set([1])\ns.difference()", "s = set([1])\ns.intersection()", "s = set([1])\nreturn s.issubset()", "def f(s):\n  return s.issuperset()\nf(set())",
		"parallel([lambda: set().symmetric_difference()])", "return set([1, 2]).difference([1])", "[].difference()",
		"return range(-(1 << 63), (1 << 63) - 1)", "return [range(-(1 << 63), (1 << 63) - 1)]", "return json.encode(range(-(1 << 63), (1 << 63) - 1))",
		"return [json.encode('\x7f'), json.encode({'\\\\x7f\x7f': 'é\x7f'}), json.encode_indent(['\x7f', range(2)])]", "json.encode_indent(len)",
		"return 0.1 + 0.2", "return [1e21, 1e20, 1.0, 100000.0, 1e-7, 3.5e300]",
	} {
		p, err := scripting.Compile("script.star", text, s.scope())
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		r := &scripting.Run{Program: p, Call: s.call}
		want, err := scripting.Execute(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Run(t.Context(), "me", r)
		if err != nil {
			t.Fatal(err)
		}
		show := func(o *scripting.Outcome) string {
			if o.Error != nil {
				return fmt.Sprintf("%+v after %d calls, logs %q", *o.Error, o.Calls, o.Logs)
			}
			return fmt.Sprintf("%s after %d calls and %d steps, logs %q", o.Value, o.Calls, o.Steps, o.Logs)
		}
		if show(got) != show(want) {
			t.Errorf("%s\nsandbox:    %s\nin process: %s", text, show(got), show(want))
		}
	}
}
