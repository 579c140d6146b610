package scripting_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/scripting"
)

type ctx = context.Context

// tools are the tools of the tests, by their advertised names.
type tools map[string]func(ctx context.Context, c *scripting.Call) scripting.Answer

// usual are tools that most tests can do with.
func usual() tools {
	return tools{
		"echo": func(_ context.Context, c *scripting.Call) scripting.Answer {
			return scripting.Answer{Value: c.Arguments}
		},
		"first": func(_ context.Context, c *scripting.Call) scripting.Answer {
			return scripting.Answer{Value: c.Positional[0]}
		},
		"break": func(_ context.Context, c *scripting.Call) scripting.Answer {
			return scripting.Answer{Error: &scripting.Fault{Message: `tool "break": broken`, Code: 500, Data: []byte(`{"why":[1]}`)}}
		},
		"hang": func(ctx context.Context, c *scripting.Call) scripting.Answer {
			<-ctx.Done()
			return scripting.Answer{Error: &scripting.Fault{Message: `tool "hang": ` + ctx.Err().Error()}}
		},
		"git-hub.search": func(_ context.Context, c *scripting.Call) scripting.Answer {
			return scripting.Answer{Value: []byte(`{"found":true}`)}
		},
	}
}

func (ts tools) scope(data ...string) scripting.Scope {
	return scripting.Scope{
		Tool: func(name string) (string, bool) {
			for advertised := range ts {
				if scripting.Sanitize(advertised) == name && !scripting.Taken(name) {
					return advertised, true
				}
			}
			return "", false
		},
		Near: func() (names []string) {
			for advertised := range ts {
				names = append(names, scripting.Sanitize(advertised))
			}
			return names
		},
		Data: data,
	}
}

func (ts tools) call(ctx context.Context, c *scripting.Call) scripting.Answer {
	var names []string
	for name := range ts {
		names = append(names, name)
	}
	slices.Sort(names)
	switch c.Kind {
	case scripting.KindList:
		text, _ := json.Marshal(names)
		return scripting.Answer{Value: text}
	case scripting.KindDescribe:
		if ts[c.Tool] == nil {
			return scripting.Answer{Error: &scripting.Fault{Message: fmt.Sprintf("tool %q: not found", c.Tool)}}
		}
		return scripting.Answer{Value: []byte(`{"description":"does ` + c.Tool + `"}`)}
	}
	if ts[c.Tool] == nil {
		return scripting.Answer{Error: &scripting.Fault{Message: fmt.Sprintf("tool %q: not found", c.Tool)}}
	}
	return ts[c.Tool](ctx, c)
}

// run compiles a text and runs it with the usual tools.
func run(t testing.TB, text string, change ...func(*scripting.Run)) *scripting.Outcome {
	t.Helper()
	p, err := scripting.Compile("script.star", text, usual().scope())
	if err != nil {
		return &scripting.Outcome{Error: err.(*scripting.Error)}
	}
	r := &scripting.Run{Program: p, Call: usual().call}
	for _, c := range change {
		c(r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o, err := scripting.Execute(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// told is the outcome as one text.
func told(o *scripting.Outcome) string {
	if o.Error != nil {
		return "error: " + o.Error.Error()
	}
	return string(o.Value)
}

func TestRun(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "null",
		"return 1":                           "1",
		"x = 1\nx += 2\nreturn x":            "3",
		"return echo(a=1, b=[True, None])":   `{"a":1,"b":[true,null]}`,
		"return first(7)":                    `7`,
		"return git_hub_search()":            `{"found":true}`,
		`return call_tool("git-hub.search")`: `{"found":true}`,
		"return attempt(lambda: call_tool('break'))":      `{"ok":false,"error":{"message":"tool \"break\": broken","tool":"break","code":500,"data":{"why":[1]}}}`,
		"return attempt(lambda: fail('a', 1))":            `{"ok":false,"error":{"message":"a 1","tool":null,"code":null,"data":null}}`,
		"return attempt(lambda: 3)":                       `{"ok":true,"value":3}`,
		"return parallel([lambda: echo(n=1), lambda: 2])": `[{"n":1},2]`,
		"call_tool('break')":                              `error: 1:10: tool "break": broken`,
		"def f():\n  return 1//0\nreturn f()":             "error: 2:11: floored division by zero",
		"return prnt":                                     "error: 1:8: undefined: prnt (did you mean print?)",
		"return ech(1)":                                   "error: 1:8: undefined: ech (did you mean echo?)",
		"return json.decode('[1, 2.5]')":                  "[1,2.5]",
		"return range(-(1 << 63), (1 << 63) - 1)":         "error: result: more than 1000000 values",
		"return math.floor(2.5)":                          "2",
		`return [json.encode("a\x7f"), json.encode({"\\x7f\x7f": "é\x7f"}) == '{"\\\\x7f\x7f":"é\x7f"}', json.encode_indent("\x7f")]`: `["\"a` + "\x7f" + `\"",true,"\"` + "\x7f" + `\""]`,
		`return json.decode(json.encode("\x7f\\x7f"))`:                              `"` + "\x7f" + `\\x7f"`,
		"return json.encode_indent([1, {'a': []}], indent = '  ')":                  `"[\n  1,\n  {\n    \"a\": []\n  }\n]"`,
		"json.encode_indent(len)":                                                   "error: 1:19: json.encode_indent: cannot encode builtin_function_or_method as JSON",
		"json.encode_indent(1, x = 2)":                                              "error: 1:19: json.encode_indent: unexpected keyword argument \"x\"",
		"return len(json.encode_indent([1] * 1000, prefix = '', indent = '\t'))":    "4002",
		"return [json.encode((range(2), 'ab'.elems())), str([range(2)] * 20)[-9:]]": `["[[0,1],[\"a\",\"b\"]]","range(2)]"]`,
		"return json.encode(range(400000))[-7:]":                                    "error: 1:19: json.encode: a value of more than 8 MiB",
		"return json.encode([range(1000000)])":                                      "error: 1:19: json.encode: more than 1000000 values",
		"return json.encode(range(-(1 << 63), (1 << 63) - 1))":                      "error: 1:19: json.encode: more than 1000000 values",
		"return ['a b c'.rsplit(None, 1 << 40), 'a b  c'.rsplit(None, 1), 'a,b,c'.split(',', 1 << 62), 'a,b,c'.rsplit(',', 1)]": `[["a","b","c"],["a b","c"],["a","b","c"],["a,b","c"]]`,
		"return 'a'.rsplit(None, 1 << 64)": "error: 1:18: rsplit: for parameter 2: 18446744073709551616 out of range (want value in signed 64-bit range)",
		"return list_tools()":              `["break","echo","first","git-hub.search","hang"]`,
		"return describe_tool('echo')":     `{"description":"does echo"}`,
		"while True: pass":                 "error: 1:1: too many steps (100000)",
	} {
		if got := told(run(t, text)); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
	for _, name := range []string{"difference", "intersection", "issubset", "issuperset", "symmetric_difference"} {
		for _, form := range []string{"return s.%s()", "return (s.%s)()", "f = s.%s; f()", "s.%s(*[])", "attempt(lambda: s.%s())", "attempt(s.%s)", "getattr(s, '%s')()", "parallel([lambda: s.%s()])"} {
			text := "s = set([1])\n" + fmt.Sprintf(form, name)
			if o := run(t, text); o.Error == nil || o.Error.Message != name+": got 0 arguments, want 1" || o.Error.Line != 2 || o.Error.Cause != scripting.Mistake {
				t.Errorf("%s: %s, %+v", text, told(o), o.Error)
			}
		}
		if got := told(run(t, "[]."+name+"()")); !strings.HasPrefix(got, "error: 1:3: list has no ."+name+" field or method") {
			t.Error(got)
		}
	}
	if o := run(t, "print('a', 1)\nprint('b\\nc')"); strings.Join(o.Logs, "|") != "a 1|b|c" {
		t.Errorf("logs: %q", o.Logs)
	}
}
