package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/scripting"
)

// TestBudgets: each budget ends a run with its own text.
func TestBudgets(t *testing.T) {
	e := engine(t)
	for _, c := range []struct {
		name, text, want string
		change           func(*scripting.Run)
	}{
		{"X01 steps", "while True:\n  pass", "too many steps (100000)", nil},
		{"X01 fewer steps", "while True:\n  pass", "too many steps (500)", func(r *scripting.Run) { r.Limits.Steps = 500 }},
		{"X03 CPU", "while True:\n  pass", "ran longer than 1s of CPU", func(r *scripting.Run) { r.Limits.Steps = 1 << 60 }},
		{"less CPU", "while True:\n  pass", "ran longer than 50ms of CPU", func(r *scripting.Run) { r.Limits.Steps, r.Limits.CPU = 1<<60, 50*time.Millisecond }},
		{"no more CPU than the engine's", "while True:\n  pass", "ran longer than 1s of CPU", func(r *scripting.Run) { r.Limits.Steps, r.Limits.CPU = 1<<60, time.Hour }},
		{"time", "until()", "ran longer than 50ms", func(r *scripting.Run) { r.Limits.Timeout = 50 * time.Millisecond }},
		{"time in attempt", "attempt(until)\nreturn 1", "ran longer than 50ms", func(r *scripting.Run) { r.Limits.Timeout = 50 * time.Millisecond }},
		{"memory", "return len('a' * 100000000)", "needs more than 64 MiB", nil},
		{"less memory", "return len('a' * 20000000)", "needs more than 16 MiB", func(r *scripting.Run) { r.Limits.Memory = 16 << 20 }},
		{"no less memory than 16 MiB", "return len('a' * 20000000)", "needs more than 16 MiB", func(r *scripting.Run) { r.Limits.Memory = 1 }},
		{"calls", "for i in range(1001):\n  echo()", "more than 1000 tool calls", nil},
		{"calls of all kinds", "for i in range(1001):\n  list_tools()", "more than 1000 tool calls", nil},
		{"fewer calls", "echo()\necho()\necho()", "more than 2 tool calls", func(r *scripting.Run) { r.Limits.Calls = 2 }},
		{"X07 a call", "until()", `tool "until": timed out after 20ms`, func(r *scripting.Run) { r.Limits.PerCall = 20 * time.Millisecond }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := tools{"echo": echo, "until": until, "": value("[]")}
			o := run1(t, e, "print('before')\n"+c.text, s, func(r *scripting.Run) {
				if c.change != nil {
					c.change(r)
				}
			})
			if o.Error == nil || o.Error.Message != c.want {
				t.Errorf("got %s, want %s", said(o), c.want)
			}
			if len(o.Logs) != 1 || o.Logs[0] != "before" {
				t.Errorf("what was printed before is %q", o.Logs)
			}
			if wrong := c.name == "X07 a call"; o.Error != nil && (o.Error.Cause == scripting.Budget) == wrong {
				t.Errorf("its cause is %d", o.Error.Cause)
			}
		})
	}
}

// TestStepsOfEnded: of a run that is ended from outside the steps are told which the guest
// had told until then.
func TestStepsOfEnded(t *testing.T) {
	e := engine(t)
	s := tools{"echo": echo, "until": until}
	for name, c := range map[string]struct {
		text   string
		least  uint64
		change func(*scripting.Limits)
	}{
		"CPU":    {"while True:\n  pass", 20_000, func(l *scripting.Limits) { l.Steps, l.CPU = 1<<60, 200*time.Millisecond }},
		"memory": {"for i in range(1000):\n  echo()\nx = 'a' * 100000000", 5_000, nil},
		"few":    {"x = [i for i in range(100)]\ny = 'a' * 100000000", 200, nil},
		"time":   {"for i in range(10):\n  echo()\nuntil()", 50, func(l *scripting.Limits) { l.Timeout = 100 * time.Millisecond }},
		"calls":  {"for i in range(1001):\n  echo()", 5_000, nil},
	} {
		o := run1(t, e, c.text, s, func(r *scripting.Run) {
			if c.change != nil {
				c.change(&r.Limits)
			}
		})
		if o.Error == nil || o.Error.Cause != scripting.Budget || o.Steps < c.least {
			t.Errorf("%s: %s after %d steps, of which at least %d are known of", name, said(o), o.Steps, c.least)
		}
	}
}

// TestX07CallTimeout: a call that takes too long is cancelled, the script may go on, and
// its next calls have their own time.
func TestX07CallTimeout(t *testing.T) {
	gone := make(chan error, 1)
	s := tools{"echo": echo, "until": func(ctx context.Context, c *scripting.Call) scripting.Answer {
		a := until(ctx, c)
		gone <- ctx.Err()
		return a
	}}
	o := run1(t, engine(t), "r = attempt(until)\nreturn [r['ok'], r['error']['message'], echo(a = 1)]", s, func(r *scripting.Run) {
		r.Limits.PerCall = 20 * time.Millisecond
	})
	if want := `[false,"tool \"until\": timed out after 20ms",{"a":1}]`; said(o) != want {
		t.Errorf("got %s, want %s", said(o), want)
	}
	if err := <-gone; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call ended with %v", err)
	}
}

// TestX06Parallel: calls at once are bounded by the run's limit, however they are asked
// for, and no time of a waiting call is lost.
func TestX06Parallel(t *testing.T) {
	for _, most := range []int{1, 3, 10} {
		var now, peak, made atomic.Int64
		s := tools{"work": func(ctx context.Context, c *scripting.Call) scripting.Answer {
			n := now.Add(1)
			defer now.Add(-1)
			made.Add(1)
			for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
			}
			if c.Arguments != nil && strings.Contains(string(c.Arguments), "slow") {
				return nap(ctx, c)
			}
			return echo(ctx, c)
		}}
		o := run1(t, engine(t), `
def both(i):
    return lambda: parallel([lambda: work(i = i), lambda: work(slow = i)])
return len(parallel([both(i) for i in range(20)]))`, s, func(r *scripting.Run) { r.Limits.Parallel = most })
		if said(o) != "20" || made.Load() != 40 {
			t.Errorf("%d at once: %s after %d calls", most, said(o), made.Load())
		}
		if peak.Load() > int64(most) || most > 1 && peak.Load() == 1 {
			t.Errorf("%d at once where %d may be", peak.Load(), most)
		}
	}
}

// TestX06TooManyCalls: no more calls than the limit are made, though more are asked for
// at once.
func TestX06TooManyCalls(t *testing.T) {
	var made atomic.Int64
	s := tools{"work": func(ctx context.Context, c *scripting.Call) scripting.Answer { made.Add(1); return echo(ctx, c) }}
	o := run1(t, engine(t), "for i in range(11):\n  parallel([lambda: work() for i in range(1000)])", s)
	if said(o) != "error: more than 1000 tool calls" || made.Load() > 1000 || o.Calls > 1000 {
		t.Errorf("%s after %d calls, of which %d are counted", said(o), made.Load(), o.Calls)
	}
	o = run1(t, engine(t), "return len(parallel([lambda: 1] * 10000))", s)
	if o.Error == nil {
		t.Errorf("10,000 callables: %s", said(o))
	}
}

// TestX08Cancel: a run ends within a second of its context, its calls with it, and its
// place and its turn are free.
func TestX08Cancel(t *testing.T) {
	e := engine(t, Options{Most: 1, MostPerHolder: 1})
	for name, text := range map[string]string{
		"computing": "begin()\nwhile True:\n  pass",
		"waiting":   "begin()\nparallel([until, until, until])",
	} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan struct{})
			var under atomic.Int64
			s := tools{
				"begin": func(ctx context.Context, c *scripting.Call) scripting.Answer { close(begun); return echo(ctx, c) },
				"until": func(ctx context.Context, c *scripting.Call) scripting.Answer {
					under.Add(1)
					defer under.Add(-1)
					return until(ctx, c)
				},
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			cause := errors.New("the client is gone")
			ended := make(chan error)
			var o *scripting.Outcome
			r := &scripting.Run{Program: program(t, text, s), Call: s.call, Limits: scripting.Limits{Steps: 1 << 60}}
			go func() {
				var err error
				o, err = e.Run(ctx, "me", r)
				ended <- err
			}()
			<-begun
			if name == "waiting" {
				eventually(t, "three calls are under way", func() bool { return under.Load() == 3 })
			}
			start := time.Now()
			cancel(cause)
			if err := <-ended; err != cause {
				t.Errorf("it ends with %v", err)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("it took %v", took)
			}
			if under.Load() != 0 {
				t.Errorf("%d calls are still under way", under.Load())
			}
			if calls := map[string]int{"computing": 1, "waiting": 4}[name]; o == nil || o.Calls != calls || o.CPU <= 0 {
				t.Errorf("what it has cost: %+v", o)
			}
			if got := said(run1(t, e, "return 1", nil)); got != "1" {
				t.Error(got)
			}
		})
	}
}

// TestX09Results: what has no form within the bounds is an error with its path.
func TestX09Results(t *testing.T) {
	e := engine(t)
	for text, want := range map[string]string{
		`return {"a": [1, 2, 3, float("nan")]}`:            `error: result["a"][3]: NaN has no JSON form`,
		`return {"a": float("-inf")}`:                      `error: result["a"]: -Inf has no JSON form`,
		`return b"abc"`:                                    `error: result: bytes`,
		`return [len]`:                                     `error: result[0]: `,
		`return "a" * 2000000`:                             `error: result: `,
		`return ["a" * 1000] * 2000`:                       `error: result`,
		"a = 1\nfor i in range(200):\n  a = [a]\nreturn a": `error: result`,
		`return {1: "a", "1": "b"}`:                        `error: result`,
		`return 2000000 * [1]`:                             `error: result`,
		`return "\n" * 900000`:                             `error: result: larger than 1048576 bytes`,
		`return [0.1234567890123456] * 60000`:              `error: result: larger than 1048576 bytes`,
	} {
		if got := said(run1(t, e, text, nil)); !strings.HasPrefix(got, want) {
			t.Errorf("%s\ngot  %.200s\nwant %s", text, got, want)
		}
	}
}

// TestX11Prints: what is printed is kept up to its bounds, and the rest is counted.
func TestX11Prints(t *testing.T) {
	e := engine(t)
	o := run1(t, e, "s = 'a' * 1000000\nfor i in range(1000):\n  print(s)\nreturn 1", nil)
	total := 0
	for _, line := range o.Logs {
		total += len(line) + 1
	}
	if said(o) != "1" || total > 64<<10 || o.Dropped < 999_000_000-total {
		t.Errorf("%s with %d bytes of logs, %d dropped", said(o), total, o.Dropped)
	}
	if o = run1(t, e, "print('a' * 9000000)\nprint(1)\nreturn 1", nil); said(o) != "1" || len(o.Logs) != 1 || o.Dropped != 9_000_001-len(o.Logs[0]) {
		t.Errorf("%s with %d lines, %d dropped", said(o), len(o.Logs), o.Dropped)
	}
	if o = run1(t, e, "for i in range(1500):\n  print(i)", nil); len(o.Logs) != 1000 || o.Logs[999] != "999" || o.Dropped == 0 {
		t.Errorf("%d lines of 1500, %d bytes dropped", len(o.Logs), o.Dropped)
	}
}

// TestX12NoRetry: a run that fails is not begun a second time.
func TestX12NoRetry(t *testing.T) {
	var made atomic.Int64
	s := tools{"work": func(ctx context.Context, c *scripting.Call) scripting.Answer { made.Add(1); return echo(ctx, c) }}
	for _, text := range []string{"work()\nfail('no')", "work()\nreturn len('a' * 100000000)", "work()\nwhile True:\n  pass", "work()\n1 // 0"} {
		made.Store(0)
		if o := run1(t, engine(t), text, s); o.Error == nil || made.Load() != 1 || o.Calls != 1 {
			t.Errorf("%q: %s after %d calls", text, said(o), made.Load())
		}
	}
}

// TestX26Parallel: steps of all children are one budget, however they are divided;
// nesting ends; children see what the others did.
func TestX26Parallel(t *testing.T) {
	e := engine(t)
	o := run1(t, e, "def f():\n  for i in range(50):\n    pass\nfor i in range(10000):\n  parallel([f])", nil)
	if said(o) != "error: too many steps (100000)" {
		t.Error(said(o))
	}
	s := tools{"echo": echo}
	nested := "f0 = lambda: echo(n = 0)\n"
	for i := 1; i <= 20; i++ {
		nested += fmt.Sprintf("f%d = lambda: parallel([f%d, f%d])[1]\n", i, i-1, 0)
	}
	o = run1(t, e, nested+"return f20()", s, func(r *scripting.Run) { r.Limits.Parallel = 1 })
	if said(o) != `{"n":0}` || o.Calls != 21 {
		t.Errorf("nested: %s after %d calls", said(o), o.Calls)
	}
	o = run1(t, e, `
xs = []
def child(i):
    def run():
        for n in range(10):
            echo(n = n)
            xs.append(i * 10 + n)
    return run
parallel([child(i) for i in range(40)])
return [len(xs), sorted(xs) == list(range(400))]`, s)
	if said(o) != "[400,true]" {
		t.Errorf("children that append: %s", said(o))
	}
}

// TestX30Attempt: nothing catches a spent budget.
func TestX30Attempt(t *testing.T) {
	e := engine(t)
	s := tools{"bad": func(context.Context, *scripting.Call) scripting.Answer {
		return scripting.Answer{Error: &scripting.Fault{Message: `tool "bad": is bad`}}
	}}
	for text, want := range map[string]string{
		"while True:\n  attempt(lambda: fail('x'))":      "error: too many steps (100000)",
		"while True:\n  attempt(bad)":                    "error: more than 1000 tool calls",
		"def f():\n  while True:\n    pass\nattempt(f)":  "error: too many steps (100000)",
		"attempt(lambda: 'a' * 100000000)":               "error: needs more than 64 MiB",
		"attempt(lambda: parallel([lambda: fail('x')]))": "null",
	} {
		if got := said(run1(t, e, text, s)); got != want {
			t.Errorf("%q\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// TestErrors: an error has its place, its tool and its frames, and nothing else.
func TestErrors(t *testing.T) {
	s := tools{"bad": func(context.Context, *scripting.Call) scripting.Answer {
		return scripting.Answer{Error: &scripting.Fault{Message: `tool "bad": is bad`, Code: 7}}
	}}
	o := run1(t, engine(t), "def f():\n  return bad()\n\nf()", s)
	want := scripting.Error{Message: `tool "bad": is bad`, Line: 2, Column: 13, Tool: "bad", Frames: []string{"script.star:4:2: in script", "script.star:2:13: in f"}}
	if o.Error == nil || fmt.Sprint(*o.Error) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", o.Error, want)
	}
}

// TestProgress: what a script says of itself arrives, bounded and cleaned.
func TestProgress(t *testing.T) {
	var got []string
	run1(t, engine(t), `progress(1, 3, "a\nb")
progress(2.5, 3, "x" * 100000)`, nil, func(r *scripting.Run) {
		r.Progress = func(done, total float64, message string) {
			got = append(got, fmt.Sprintf("%v/%v %.5s", done, total, message))
		}
	})
	if fmt.Sprintf("%q", got) != `["1/3 a b" "2.5/3 xxxxx"]` {
		t.Errorf("%q", got)
	}
}

// TestGarbage: memory that a script has no more use for is collected before the cap, so
// that what it needs in all, one after another, is not what is bounded.
func TestGarbage(t *testing.T) {
	e := engine(t)
	for _, memory := range []int64{16 << 20, 64 << 20} {
		for name, text := range map[string]string{
			"texts":  "for i in range(400):\n  s = 'a' * 1000000\nreturn len(s)",
			"small":  "for i in range(300):\n  x = [str(n) for n in range(100)]\nreturn len(x)",
			"copies": "x = list(range(20000))\nfor i in range(100):\n  y = x + x\nreturn len(y)",
		} {
			o := run1(t, e, text, nil, func(r *scripting.Run) { r.Limits.Memory, r.Limits.Steps = memory, 1<<40 })
			if o.Error != nil || o.Memory > memory {
				t.Errorf("%s in %d MiB: %s, %d MiB, %v", name, memory>>20, said(o), o.Memory>>20, o.CPU)
			}
			t.Logf("%s in %d MiB: %d MiB, %v", name, memory>>20, o.Memory>>20, o.CPU)
		}
	}
}
