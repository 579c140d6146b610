package scripting_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/scripting"
)

// counting makes each call of `echo` last, and counts those at once.
type counting struct {
	now, most, all atomic.Int64
	gate           chan struct{} // a call ends with each message; nil: at once
}

func (c *counting) call(ctx context.Context, call *scripting.Call) scripting.Answer {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for m := c.most.Load(); n > m && !c.most.CompareAndSwap(m, n); m = c.most.Load() {
	}
	c.all.Add(1)
	if c.gate != nil {
		select {
		case <-c.gate:
		case <-ctx.Done():
		}
	}
	return usual().call(ctx, call)
}

func calls(c *counting, l scripting.Limits) func(*scripting.Run) {
	return func(r *scripting.Run) { r.Call, r.Limits = c.call, l }
}

// TestX01Steps holds the budget of steps, which all children share.
func TestX01Steps(t *testing.T) {
	for text, want := range map[string]string{
		"while True: pass": "error: 1:1: too many steps (100000)",
		"d = {}\nfor i in range(100000):\n  d[i] = i":    "error: 2:1: too many steps (100000)",
		"def f():\n  while True: pass\nparallel([f, f])": "error: 1:1: too many steps (100000)",
	} {
		o := run(t, text)
		if got := told(o); got != want || o.Steps != 100_000 {
			t.Errorf("%s\n got %s, %d steps\nwant %s", text, got, o.Steps, want)
		}
	}
	o := run(t, "def f():\n  for i in range(100): pass\nfor i in range(1000000): parallel([f])")
	if o.Error == nil || o.Error.Message != "too many steps (100000)" || o.Error.Cause != scripting.Budget || o.Steps != 100_000 {
		t.Errorf("parallel([f]) again and again: %v, %d steps", o.Error, o.Steps)
	}
	if o := run(t, "x = 0\nfor i in range(1000): x += 1\nreturn x", func(r *scripting.Run) { r.Limits.Steps = 500 }); o.Error == nil || o.Error.Message != "too many steps (500)" {
		t.Errorf("500 steps: %v", o.Error)
	}
}

// TestX01StepsOfOne holds that what looks at one element of many costs as one.
func TestX01StepsOfOne(t *testing.T) {
	if o := run(t, "s = set(range(10000))\nfor i in range(9000): s.pop()\nreturn len(s)"); told(o) != "1000" {
		t.Error(told(o))
	}
	many := func(r *scripting.Run) { r.Limits.Steps = 200_000 }
	if o := run(t, "x = list(range(100000))\nfor i in range(3000):\n  x.pop()\n  x.pop(-1)\n  x.pop(len(x) - 1)\nreturn len(x)", many); told(o) != "91000" {
		t.Error(told(o))
	}
	for _, at := range []string{"0", "-len(x)"} { // moves all the others
		if o := run(t, "x = list(range(100000))\nwhile x: x.pop("+at+")", many); o.Error == nil || o.Error.Message != "too many steps (200000)" || o.Steps > 20_000 {
			t.Errorf("pop(%s): %.100s, %d steps", at, told(o), o.Steps)
		}
	}
}

// TestX05World holds that there is no world outside.
func TestX05World(t *testing.T) {
	for _, name := range []string{"open", "time", "os", "env", "http", "random", "exec", "eval", "import_module", "struct", "module", "freeze"} {
		if o := run(t, "return "+name); o.Error == nil || !strings.HasPrefix(o.Error.Message, "undefined: "+name) {
			t.Errorf("%s: %v", name, o.Error)
		}
	}
}

// TestX06Calls holds how many calls there are at once, and in all.
func TestX06Calls(t *testing.T) {
	c := &counting{}
	o := run(t, "return len(parallel([lambda: echo()] * 1000))", calls(c, scripting.Limits{Parallel: 3}))
	if told(o) != "1000" || c.most.Load() > 3 || o.Calls != 1000 {
		t.Errorf("%s, %d at once, %d calls", told(o), c.most.Load(), o.Calls)
	}
	o = run(t, "parallel([lambda: echo()] * 1001)", calls(c, scripting.Limits{}))
	if told(o) != "error: 1:9: parallel: 1001 functions, at most 1000" {
		t.Error(told(o))
	}
	c = &counting{}
	o = run(t, "for i in range(11): parallel([lambda: echo()] * 100)", calls(c, scripting.Limits{}))
	if o.Error == nil || o.Error.Message != "more than 1000 tool calls" || c.all.Load() != 1000 || o.Calls != 1000 {
		t.Errorf("%v, %d made, %d counted", o.Error, c.all.Load(), o.Calls)
	}
	c = &counting{}
	o = run(t, "list_tools()\ndescribe_tool('echo')\necho()\nattempt(echo)", calls(c, scripting.Limits{Calls: 3}))
	if o.Error == nil || o.Error.Message != "more than 3 tool calls" || c.all.Load() != 3 {
		t.Errorf("lists count: %v, %d", o.Error, c.all.Load())
	}
}

// TestX07TimeOut holds how long a call may take.
func TestX07TimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := run(t, "return attempt(hang)", func(r *scripting.Run) { r.Limits.PerCall = 1500 * time.Millisecond })
		if want := `{"ok":false,"error":{"message":"tool \"hang\": timed out after 1.5s","tool":"hang","code":null,"data":null}}`; told(o) != want {
			t.Error(told(o))
		}
		if o := run(t, "hang()"); told(o) != `error: 1:5: tool "hang": timed out after 30s` || o.Error.Tool != "hang" {
			t.Error(told(o))
		}
		if o := run(t, "while True: attempt(hang)", func(r *scripting.Run) { r.Limits.Timeout = 40 * time.Second }); o.Error == nil || o.Error.Message != "ran longer than 40s" {
			t.Error(told(o))
		}
	})
}

// TestX08Cancel holds that a run ends with its context, and its calls with it.
func TestX08Cancel(t *testing.T) {
	for _, text := range []string{"hang()", "parallel([hang] * 5)", "attempt(hang)\nhang()", "while True: pass", "parallel([lambda: attempt(hang), hang, echo])"} {
		ctx, cancel := context.WithCancel(t.Context())
		p, err := scripting.Compile("script.star", text, usual().scope())
		if err != nil {
			t.Fatal(err)
		}
		var under atomic.Int64
		began := make(chan struct{}, 100)
		call := func(ctx context.Context, c *scripting.Call) scripting.Answer {
			under.Add(1)
			defer under.Add(-1)
			began <- struct{}{}
			return usual().call(ctx, c)
		}
		go func() {
			if !strings.HasPrefix(text, "while") {
				<-began
			}
			cancel()
		}()
		o, err := scripting.Execute(ctx, &scripting.Run{Program: p, Call: call, Limits: scripting.Limits{Steps: 1 << 60}})
		if err != nil || o.Error == nil || o.Error.Message != "cancelled" {
			t.Errorf("%s: %v, %v", text, o, err)
		}
		if n := under.Load(); n != 0 {
			t.Errorf("%s: %d calls are left", text, n)
		}
		cancel()
	}
}

// TestX11Prints holds how much of what is printed is kept.
func TestX11Prints(t *testing.T) {
	o := run(t, "for i in range(1100): print('line', i)")
	if len(o.Logs) != 1000 || o.Logs[999] != "line 999" || o.Dropped != 100*9 {
		t.Errorf("%d lines, %q, %d bytes dropped", len(o.Logs), o.Logs[len(o.Logs)-1], o.Dropped)
	}
	o = run(t, "s = 'ä' * 10000\nfor i in range(100): print(s)")
	if size := len(strings.Join(o.Logs, "\n")) + 1; size > scripting.MaxLogs || size < scripting.MaxLogs-2 || o.Dropped != 100*20000-len(strings.Join(o.Logs, "")) {
		t.Errorf("%d bytes, %d dropped", size, o.Dropped)
	}
	for source, want := range map[string]string{ // each costs what it is long
		`print(*["a short text"] * 8000)`:           "null",
		`print(*["a" * 1000000] * 9)`:               "error: 1:6: a value of more than 8 MiB",
		`print("", "", "", sep="a" * 8000000)`:      "error: 1:6: a value of more than 8 MiB",
		`print(sep="aaaaaaaaaaaa", *[""] * 900000)`: "error: 1:6: a value of more than 8 MiB",
	} {
		if o := run(t, source); told(o) != want {
			t.Errorf("%s: %s", source, told(o))
		}
	}
	// What is no character is counted as what stands in its place.
	o = run(t, "print(('é'[:1] + 'a') * 32000)")
	if size := len(strings.Join(o.Logs, "")) + 1; size > scripting.MaxLogs || size < scripting.MaxLogs-4 || o.Dropped != 64000-len([]rune(strings.Join(o.Logs, ""))) {
		t.Errorf("no text: %d bytes, %d dropped", size, o.Dropped)
	}
	o = run(t, "s = 'a' * 8000000\nfor i in range(200): print(s)", func(r *scripting.Run) { r.Limits.Steps = 1 << 40 })
	if o.Dropped < 1_500_000_000 || o.Error != nil {
		t.Errorf("1.6 GB: %d dropped, %v", o.Dropped, o.Error)
	}
	if o := run(t, "print(1, 'a', [None], sep = '-')\nprint()\nprint('a\\n\\nb')\nfail('x')"); fmt.Sprintf("%q", o.Logs) != `["1-a-[None]" "" "a" "" "b"]` || told(o) != "error: 4:5: fail: x" {
		t.Errorf("%q, %s", o.Logs, told(o))
	}
}

// TestX24Names holds which name wins.
func TestX24Names(t *testing.T) {
	odd := tools{}
	for _, name := range []string{"print", "fail", "json", "parallel", "lambda", "call-tool", "len", "true-tool", "7zip", "__main__"} {
		odd[name] = func(context.Context, *scripting.Call) scripting.Answer {
			return scripting.Answer{Value: []byte(`"tool ` + name + `"`)}
		}
	}
	for text, want := range map[string]string{
		"print('x')\nreturn type(json)":                 `"module"`,
		"return call_tool('print')":                     `"tool print"`,
		"return call_tool('lambda')":                    `"tool lambda"`,
		"return call_tool('call-tool')":                 `"tool call-tool"`,
		"return len([1])":                               `1`,
		"return [call_tool('len'), _7zip()]":            `["tool len","tool 7zip"]`,
		"return true_tool()":                            `"tool true-tool"`,
		"def true_tool(): return 1\nreturn true_tool()": `1`,
		"fail = 3\nreturn fail":                         `3`,
		"return __main__()":                             `"tool __main__"`,
	} {
		p, err := scripting.Compile("script.star", text, odd.scope())
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		o, err := scripting.Execute(t.Context(), &scripting.Run{Program: p, Call: odd.call})
		if err != nil || told(o) != want {
			t.Errorf("%s: %s, %v", text, told(o), err)
		}
	}
	for _, name := range []string{"print", "fail", "json", "parallel", "lambda", "call_tool", "len", "None", "assert", "load", "set"} {
		if !scripting.Taken(name) {
			t.Errorf("%s is not taken", name)
		}
	}
	for name, want := range map[string]string{"a-b": "a_b", "7zip": "_7zip", "": "_", "größe": "gr____e", "ok_1": "ok_1", "a.b/c d": "a_b_c_d"} {
		if got := scripting.Sanitize(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// TestX25Data holds what the data is in a program.
func TestX25Data(t *testing.T) {
	p, err := scripting.Compile("script.star", "return [limit, user['name']]", scripting.Scope{Data: []string{"limit", "user", "other"}})
	if err != nil {
		t.Fatal(err)
	}
	if names := p.Names(); fmt.Sprint(names.Data) != "[limit user]" {
		t.Errorf("%v", names)
	}
	for data, want := range map[string]string{
		`{"limit": 3, "user": {"name": "x"}, "other": 1}`: `[3,"x"]`,
		`{"limit": 3}`: `error: data: user is missing`,
	} {
		o, err := scripting.Execute(t.Context(), &scripting.Run{Program: p, Call: usual().call, Data: []byte(data)})
		if err != nil || told(o) != want {
			t.Errorf("%s: %s, %v", data, told(o), err)
		}
	}
	large := `{"limit": "` + strings.Repeat("a", scripting.MaxData) + `"}`
	if _, err := scripting.Execute(t.Context(), &scripting.Run{Program: p, Call: usual().call, Data: []byte(large)}); err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Errorf("large data: %v", err)
	}
}

// TestX26Parallel holds what parallel() promises.
func TestX26Parallel(t *testing.T) {
	nested := "def f0(): return echo(n = 0)\n"
	for i := 1; i <= 20; i++ {
		nested += fmt.Sprintf("def f%d(): return parallel([f%d])[0]\n", i, i-1)
	}
	for _, most := range []int{1, 2, 10} {
		limits := scripting.Limits{Parallel: most, Steps: 1_000_000}
		for text, want := range map[string]string{
			"return parallel([])": `[]`,
			"return parallel([lambda: echo(n = 1), lambda: 2, lambda: echo(n = 3)])":                                                       `[{"n":1},2,{"n":3}]`,
			nested + "return parallel([f20, f20])":                                                                                         `[{"n":0},{"n":0}]`,
			"xs = []\ndef f():\n  for i in range(10):\n    echo()\n    xs.append(i)\nparallel([f] * 20)\nreturn [len(xs), sorted(xs)[-1]]": `[200,9]`,
			"def f(): return parallel([lambda: parallel([lambda: echo(n = 1)] * 3)] * 3)\nreturn len(str(parallel([f] * 30)))":             `2940`,
			// A tree of 1,000 leaves: more children than there may be at once, each of which calls what its parents are within.
			"def tree(n):\n  return sum(parallel([lambda: tree(n - 1)] * 10)) if n else echo(n = 1)['n']\ndef sum(l):\n  x = 0\n  for i in l: x += i\n  return x\nreturn tree(3)": `1000`,
			"parallel([1])":           `error: 1:9: parallel: element 0 is int, want function`,
			"parallel(3)":             `error: 1:9: parallel: for parameter 1: got int, want iterable`,
			"parallel([lambda x: x])": `error: 1:21: function lambda missing 1 argument (x)`,
			"for i in range(10000):\n  parallel([lambda: i])\nreturn 1": `1`,
		} {
			o := run(t, text, func(r *scripting.Run) { r.Limits = limits })
			if got := told(o); got != want {
				t.Errorf("%d at once: %.80s\n got %.300s\nwant %.300s", most, text, got, want)
			}
		}
	}
}

// TestX26Errors holds what becomes of the siblings of a child that fails.
func TestX26Errors(t *testing.T) {
	c := &counting{}
	o := run(t, "parallel([lambda: call_tool('break')] * 3)", calls(c, scripting.Limits{}))
	if told(o) != `error: 1:28: tool "break": broken (and 2 more errors)` || o.Error.Tool != "break" {
		t.Errorf("%s, %+v", told(o), o.Error)
	}
	// With one place, no sibling has begun when the first fails.
	c = &counting{}
	o = run(t, "parallel([lambda: call_tool('break'), echo, echo])", calls(c, scripting.Limits{Parallel: 1}))
	if told(o) != `error: 1:28: tool "break": broken` || c.all.Load() != 1 {
		t.Errorf("%s, %d calls", told(o), c.all.Load())
	}
	// Siblings that have begun go on to their end.
	o = run(t, "xs = []\ndef slow():\n  for i in range(5):\n    echo()\n  xs.append(1)\nr = attempt(lambda: parallel([slow, lambda: fail('no'), slow]))\nreturn [r['error']['message'], xs]")
	if told(o) != `["no",[1,1]]` {
		t.Error(told(o))
	}
	o = run(t, "return attempt(lambda: parallel([lambda: fail('a'), lambda: fail('b')]))['error']")
	if told(o) != `{"message":"a (and 1 more error)","tool":null,"code":null,"data":null}` {
		t.Error(told(o))
	}
	o = run(t, "def f():\n  return 1 // 0\nparallel([echo, f])")
	if told(o) != "error: 2:12: floored division by zero" || fmt.Sprintf("%q", o.Error.Frames) != `["script.star:3:9: in script" "script.star:2:12: in f"]` {
		t.Errorf("%s, %q", told(o), o.Error.Frames)
	}
	// A child that attempts is no failure.
	o = run(t, "return [r['ok'] for r in parallel([lambda: attempt(lambda: call_tool('break')), lambda: attempt(echo)])]")
	if told(o) != "[false,true]" {
		t.Error(told(o))
	}
}

// TestX30Attempt holds what attempt() does not catch.
func TestX30Attempt(t *testing.T) {
	for text, want := range map[string]string{
		"while True: attempt(lambda: [x for x in range(1000000)])":              "too many steps (100000)",
		"def f():\n  while True: pass\nattempt(f)\nreturn 1":                    "too many steps (100000)",
		"attempt(lambda: 1 // 0)\nreturn 1":                                     "floored division by zero",
		"attempt(lambda: [][1])":                                                "index 1 out of range: empty list",
		"while True: attempt(echo)":                                             "more than 1000 tool calls",
		"attempt(lambda: parallel([lambda: 1 // 0]))":                           "floored division by zero",
		"attempt(lambda: 'a' * 10000000)":                                       "a value of more than 8 MiB",
		"def f():\n  l = []\n  while True: l.append('a' * 1000000)\nattempt(f)": "needs more than 64 MiB",
		"attempt(3)": "attempt: for parameter 1: got int, want callable",
		"attempt(lambda: call_tool('final'))\nreturn 1":           "ran out of luck",
		"while True: attempt(lambda: attempt(lambda: fail('x')))": "too many steps (100000)",
	} {
		ts := usual()
		ts["final"] = func(context.Context, *scripting.Call) scripting.Answer {
			return scripting.Answer{Error: &scripting.Fault{Message: "ran out of luck", Final: true}}
		}
		o := run(t, text, func(r *scripting.Run) { r.Call = ts.call })
		if o.Error == nil || o.Error.Message != want {
			t.Errorf("%s\n got %v\nwant %s", text, o.Error, want)
		}
	}
}

// TestX35Texts holds what of a hostile tool's text an error says.
func TestX35Texts(t *testing.T) {
	for text, want := range map[string]string{
		"\x1b[31mred\x1b[0m\r\n":                   `[31mred[0m `,
		"script.star:1:1: in script\n  fake frame": `script.star:1:1: in script   fake frame`,
		"a\u202eb\u2028c\x7f\u0085d":               "ab cd",
		strings.Repeat("ä", 1<<20):                 strings.Repeat("ä", 1024) + "…",
	} {
		ts := tools{"bad": func(context.Context, *scripting.Call) scripting.Answer {
			return scripting.Answer{Error: &scripting.Fault{Message: text}}
		}}
		p, err := scripting.Compile("script.star", "def f(): return bad()\nf()", ts.scope())
		if err != nil {
			t.Fatal(err)
		}
		o, err := scripting.Execute(t.Context(), &scripting.Run{Program: p, Call: ts.call})
		if err != nil || o.Error == nil || o.Error.Message != want || o.Error.Tool != "bad" || o.Error.Line != 1 || o.Error.Column != 20 || len(o.Error.Frames) != 2 {
			t.Errorf("%.60q: %.300q, %v", text, o.Error.Message, o.Error)
		}
	}
	if o := run(t, "fail('\\x1b[2J' + 'a' * 100000)"); len(o.Error.Message) > scripting.MaxMessage+3 || strings.Contains(o.Error.Message, "\x1b") {
		t.Errorf("%d bytes: %.60q", len(o.Error.Message), o.Error.Message)
	}
	deep := "def f0(): fail('deep')\n"
	for i := 1; i < 50; i++ {
		deep += fmt.Sprintf("def f%d(): f%d()\n", i, i-1)
	}
	if o := run(t, deep+"f49()"); len(o.Error.Frames) != scripting.MaxFrames || o.Error.Frames[19] != "script.star:1:15: in f0" {
		t.Errorf("%d frames: %q", len(o.Error.Frames), o.Error.Frames)
	}
}

// TestCalls holds what a host is asked.
func TestCalls(t *testing.T) {
	for text, want := range map[string]string{
		"echo(1, 'a', x = [2], y = None)":   `{"Kind":0,"Tool":"echo","Positional":["MQ==","ImEi"],"Arguments":"eyJ4IjpbMl0sInkiOm51bGx9","Whole":false}`,
		"echo()":                            `{"Kind":0,"Tool":"echo","Positional":null,"Arguments":"e30=","Whole":false}`,
		"call_tool('a b', name = 1)":        `{"Kind":0,"Tool":"a b","Positional":null,"Arguments":"eyJuYW1lIjoxfQ==","Whole":false}`,
		"call_tool_result('x', **{'a': 1})": `{"Kind":0,"Tool":"x","Positional":null,"Arguments":"eyJhIjoxfQ==","Whole":true}`,
		"list_tools()":                      `{"Kind":1,"Tool":"","Positional":null,"Arguments":null,"Whole":false}`,
		"describe_tool('x')":                `{"Kind":2,"Tool":"x","Positional":null,"Arguments":null,"Whole":false}`,
		"call_tool()":                       `error: 1:10: call_tool: got 0 positional arguments, want 1: the tool's name`,
		"call_tool('a', 'b')":               `error: 1:10: call_tool: got 2 positional arguments, want 1: the tool's name`,
		"call_tool(3)":                      `error: 1:10: call_tool: the tool's name is int, want string`,
		"call_tool_result()":                `error: 1:17: call_tool_result: got 0 positional arguments, want 1: the tool's name`,
		"call_tool('a' * 257)":              `error: 1:10: call_tool: the tool's name is longer than 256 bytes`,
		"describe_tool('a', b = 1)":         `error: 1:14: describe_tool: unexpected keyword arguments`,
		"list_tools(1)":                     `error: 1:11: list_tools: unexpected arguments`,
	} {
		var asked string
		o := run(t, text, func(r *scripting.Run) {
			r.Call = func(_ context.Context, c *scripting.Call) scripting.Answer {
				b, _ := json.Marshal(c)
				asked = string(b)
				return scripting.Answer{}
			}
		})
		if asked == "" {
			asked = told(o)
		}
		if asked != want {
			t.Errorf("%s\n got %s\nwant %s", text, asked, want)
		}
	}
	var said []string
	o := run(t, "progress(1)\nprogress(2, 10, 'half\\nway')\nprogress(0.5, total = None, message = 'x')", func(r *scripting.Run) {
		r.Progress = func(done, total float64, message string) { said = append(said, fmt.Sprint(done, total, message)) }
	})
	if o.Error != nil || fmt.Sprintf("%q", said) != `["1 0" "2 10half way" "0.5 0x"]` {
		t.Errorf("%v, %q", o.Error, said)
	}
	if o := run(t, "progress(float('nan'))"); told(o) != "error: 1:9: progress: done is float, want a finite number" {
		t.Error(told(o))
	}
}

// TestNames holds what is suggested for an unknown name.
func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		"return cal_tool":        "error: 1:8: undefined: cal_tool (did you mean call_tool?)",
		"return Echo()":          "error: 1:8: undefined: Echo (did you mean echo?)",
		"return github_search()": "error: 1:8: undefined: github_search (did you mean git_hub_search?)",
		"limit = 1\nreturn limt": "error: 2:8: undefined: limt (did you mean limit?)",
		"return zzzzzzzz":        "error: 1:8: undefined: zzzzzzzz",
		"return sorte([1])":      "error: 1:8: undefined: sorte (did you mean sorted?)",
		"x = y\ny = 1":           "error: 1:5: local variable y referenced before assignment",
		"return __main__()":      "error: 1:8: undefined: __main__ (did you mean min?)",
		"return 'a'.uper()":      "error: 1:11: string has no .uper field or method (did you mean .upper?)",
		"return 'a'.index":       "error: result: builtin_function_or_method has no JSON form",
		"return 1 +":             "error: 1:11: got end of file, want primary expression",
	} {
		if got := told(run(t, text)); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
	var e *scripting.Error
	if _, err := scripting.Compile("f", "return x1", scripting.Scope{Data: []string{"x12"}}); !errors.As(err, &e) || e.Message != "undefined: x1 (did you mean x12?)" {
		t.Error(err)
	}
}

// What stands at an index is read before the right side is evaluated, as in the language.
func TestOrderOfAssignment(t *testing.T) {
	for op, want := range map[string]string{">>=": "4", "<<=": "16", "%=": "0", "+=": "9", "-=": "7", "//=": "8", "|=": "9", "^=": "9", "*=": "8", "&=": "0"} {
		text := fmt.Sprintf("d = {'a': 8}\ndef f():\n  d['a'] = 100\n  return 1\nd['a'] %s f()\nreturn d['a']", op)
		if o := run(t, text); told(o) != want {
			t.Errorf("%s: %s, want %s", op, told(o), want)
		}
		for _, place := range []string{"d['b']", "l[7]"} {
			text = fmt.Sprintf("d, l = {}, [1]\ndef f():\n  print('evaluated')\n  return 1\n%s %s f()", place, op)
			if o := run(t, text); o.Error == nil || o.Error.Line != 5 || o.Error.Column != 2 || len(o.Logs) > 0 {
				t.Errorf("%s %s: %+v, %q", place, op, o.Error, o.Logs)
			}
		}
	}
}
