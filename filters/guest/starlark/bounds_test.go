package starlark_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// reason is why a call failed.
func reason(err error) string {
	var f *wasm.Failure
	if !errors.As(err, &f) {
		return fmt.Sprint(err)
	}
	return f.Reason.String()
}

// TestX43: what a text does with values of strangers ends by its budgets, and the next call
// is as if there had been none. n is the stranger's.
func TestX43(t *testing.T) {
	for _, one := range []struct{ body, want string }{
		{`while True: pass`, "deadline"},
		{`for i in range(c.args["n"]): x = i * i`, "deadline"},
		{`x = "x" * c.args["n"]`, "memory"},
		{`x = "x" * 8000000
    x += x`, "memory"},
		{`x = ["x" * 8000000 + str(i) for i in range(20)]`, "memory|deadline"},
		{`x = [0] * c.args["n"]`, "memory"},
		{`x = list(range(c.args["n"]))`, "memory"},
		{`x = sorted(range(900000))`, "deadline"},
		{`x = [[i] for i in range(c.args["n"])]`, "deadline|memory"},
		{`x = {}
    for i in range(c.args["n"]): x[i] = {}`, "deadline|memory"},
		{`t = ()
    for i in range(40): t = (t, t)
    x = {t: 1}`, "trap"},
		{`t = []
    for i in range(40): t = [t, t]
    x = str(t)`, "deadline"},
		{`x = c.args["text"].replace("a", c.args["text"])`, "memory"},
		{`x = 3
    for i in range(c.args["n"]): x = x * x`, "memory|deadline"},
		{`x = P.find("a" * 1000000)`, "deadline|memory"},
		{`x = P.replace("a" * 100000, "b" * 100000)`, "deadline|memory"},
		{`x = json.decode("[" + "{}," * 400000 + "0]")`, "deadline|memory"},
		{`x = json.encode([c.args["text"]] * 1000)`, "memory|deadline"},
		{`fail("no")`, "trap"},
		{`x = 1 // 0`, "trap"},
		{`x = N.append(1)`, "trap"},
	} {
		text := "P = pattern('a')\nN = []\ndef map_identity(c):\n    if not c.args:\n        return deny(403, 'works')\n    " + one.body
		g := open(t, wasm.Binding{}, text)
		in := &abi.Input{Arguments: []byte(`{"n":1073741824,"text":"` + strings.Repeat("a", 20000) + `"}`)}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ask(t, g, abi.MapIdentity, in)
		runtime.ReadMemStats(&after)
		if got := reason(err); err == nil || !strings.Contains("|"+one.want+"|", "|"+got+"|") {
			t.Errorf("%s: %v, want %s", one.body, err, one.want)
		}
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 200<<20 {
			t.Errorf("%s: %d MiB were allocated", one.body, spent>>20)
		}
		var told *edge.Error
		if !errors.As(err, &told) || told.Kind != edge.Overload {
			t.Errorf("%s: clients are told %v", one.body, told)
		}
		if got, err := ask(t, g, abi.MapIdentity, &abi.Input{}); got != "deny text=works" {
			t.Errorf("%s: and then %q, %v", one.body, got, err)
		}
	}
}

// TestX43Time: an endless loop ends after the processor's time of its limit and a slice,
// whatever else the machine does; steps end it where they are fewer.
func TestX43Time(t *testing.T) {
	g := open(t, wasm.Binding{}, "def on_message(c):\n    while True: pass")
	least := time.Hour
	for range 5 {
		began := time.Now()
		if _, err := ask(t, g, abi.OnMessage, &abi.Input{}); reason(err) != "deadline" {
			t.Fatal(err)
		}
		least = min(least, time.Since(began))
	}
	if least > 100*time.Millisecond { // 5 ms, on a machine that does nothing else
		t.Errorf("it took %v at the least", least)
	}
	g = open(t, wasm.Binding{Limits: wasm.Limits{Fuel: 1000, Timeout: time.Minute}}, "def on_message(c):\n    while True: pass")
	if _, err := ask(t, g, abi.OnMessage, &abi.Input{}); reason(err) != "fuel" || !strings.Contains(err.Error(), "too many steps (1000)") {
		t.Error(err)
	}
	if s := g.Stats(); s.Fuel != 1000 || s.Hooks[abi.OnMessage].Failures[wasm.Fuel] != 1 {
		t.Errorf("the figures are %+v", s.Hooks[abi.OnMessage])
	}
}

// TestCanceled: a call that is not wanted any more ends at the next slice.
func TestCanceled(t *testing.T) {
	g := open(t, wasm.Binding{Limits: wasm.Limits{Timeout: time.Minute, Fuel: 1 << 40}}, "def on_message(c):\n    while True: pass")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(5*time.Millisecond, cancel)
	if _, err := g.Call(ctx, abi.OnMessage, "", wasm.Sender{}, nil, nil); reason(err) != "canceled" {
		t.Error(err)
	}
}

// TestBreaker: messages of a sender on which a program fails again and again rest, and those
// of others do not.
func TestBreaker(t *testing.T) {
	g := open(t, wasm.Binding{}, "def on_message(c):\n    if c.tool == 'bad': fail('so')")
	call := func(address, tool string) string {
		in := &abi.Input{Tool: []byte(tool)}
		_, err := g.Call(t.Context(), abi.OnMessage, "", wasm.Sender{Address: address}, in.Append(nil, 0), nil)
		if err == nil {
			return ""
		}
		return reason(err)
	}
	for range 5 {
		if got := call("1.1.1.1", "bad"); got != "trap" {
			t.Fatal(got)
		}
	}
	if got := call("1.1.1.1", "good"); got != "breaker" {
		t.Errorf("it is asked again: %q", got)
	}
	if got := call("2.2.2.2", "good"); got != "" {
		t.Errorf("another: %q", got)
	}
	if s := g.Stats(); s.Resting != 1 || s.Rests != 1 {
		t.Errorf("the figures are %+v", s)
	}
}

// TestInput: an input that is too large, or no record, is a failure; after Close there are no
// calls, and those under way come to their end.
func TestInput(t *testing.T) {
	g := open(t, wasm.Binding{}, "def on_message(c):\n    return deny(403)")
	if _, err := g.Call(t.Context(), abi.OnMessage, "", wasm.Sender{}, make([]byte, 1<<20+1), nil); reason(err) != "abi" {
		t.Error(err)
	}
	if _, err := g.Call(t.Context(), abi.OnMessage, "", wasm.Sender{}, []byte{0xff}, nil); reason(err) != "abi" {
		t.Error(err)
	}
	if out, err := g.Call(t.Context(), abi.OnEvent, "", wasm.Sender{}, []byte{0xff}, []byte("x")); err != nil || string(out) != "x" {
		t.Errorf("at a hook without a function: %q, %v", out, err)
	}
	g.Close()
	if _, err := g.Call(t.Context(), abi.OnMessage, "", wasm.Sender{}, nil, nil); err == nil {
		t.Error("a call after the end")
	}
}

// TestAtOnce makes calls at once: each has its own input and its own answer.
func TestAtOnce(t *testing.T) {
	g := open(t, wasm.Binding{Limits: wasm.Limits{Timeout: time.Minute}}, `
WORDS = {"a": [1, 2, 3]}
P = pattern("[0-9]+")
def on_message(c):
    seen = []
    for n in WORDS["a"]:
        seen.append(c.tool + str(n))
    return log_field("v", "%s %s %s" % (",".join(seen), P.replace(c.tool, "#"), c.args["n"]))
`)
	var work sync.WaitGroup
	for w := range 8 {
		work.Go(func() {
			for n := range 300 {
				tool := fmt.Sprintf("t%d", w*1000+n)
				in := &abi.Input{Tool: []byte(tool), Arguments: fmt.Appendf(nil, `{"n":%d}`, n)}
				want := fmt.Sprintf("log_field name=v text=%[1]s1,%[1]s2,%[1]s3 t# %[2]d", tool, n)
				if got, err := ask(t, g, abi.OnMessage, in); err != nil || got != want {
					t.Errorf("%q, %v; want %q", got, err, want)
					return
				}
			}
		})
	}
	work.Wait()
}
