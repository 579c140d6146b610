package serve_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// TestX01Scripts sends what is meant to hurt (rows X01 to X05, X09, X11 and X29): each is an
// error within the budgets, and the edge serves on; so it does with a hundred at once (X10).
func TestX01Scripts(t *testing.T) {
	t.Parallel()
	f := scripted(t, edgetest.Modern, []string{codeMode()}, []tool{{"echo", "", nil, 0}}, nil)
	c := f.callerOf(t, edgetest.Modern, "")
	bombs := map[string]string{
		"while True: pass":                                      "too many steps (100000)",
		"d = {}\nfor i in range(1000000): d[i] = i":             "too many steps (100000)",
		"x = 'a' * 1000000000":                                  "",
		"x = [0] * 100000000":                                   "",
		"x = list(range(100000000))":                            "",
		"x = 'a'\nfor _ in range(40): x += x":                   "",
		"x = ','.join(['a' * 1000000] * 3000)":                  "",
		"x = ('a' * 100000).replace('a', 'b' * 20000)":          "",
		"x = int('9' * 3000000)":                                "",
		"x = sorted(range(30000000))":                           "",
		"t = 1\nfor _ in range(40): t = (t, t)\nreturn {t: 1}":  "",
		"a = []\nfor _ in range(40): a = [a, a]\nreturn str(a)": "",
		"def f(): return f()\nreturn f()":                       "called recursively",
		"return " + strings.Repeat("(", 20000):                  "",
		"return " + strings.Repeat("[", 20000):                  "",
		"load('x.star', 'x')":                                   "",
		"open('/etc/passwd')":                                   "undefined: open",
		"return time.now()":                                     "undefined: time",
		"x = 'a' * 50000000\nprint(x)\nprint(x)":                "",
	}
	for text, want := range bombs {
		began := time.Now()
		out := c.script(t, text, "")
		if text == "x = 'a' * 50000000\nprint(x)\nprint(x)" {
			if len(out.Raw) > 300<<10 {
				t.Errorf("%d bytes of logs", len(out.Raw))
			}
			continue
		}
		if !out.IsError || !strings.Contains(out.Error.Message, want) {
			t.Errorf("%.60q: %.300s", text, out.Raw)
		}
		if took := time.Since(began); took > edgetest.Patience {
			t.Errorf("%.60q took %s", text, took)
		}
	}
	for _, text := range []string{"\ufeffreturn 1", "return 1\r\n", "x = 1\x00", "\treturn 1"} {
		c.script(t, text, "") // whatever they are, they have an answer
	}
	var all sync.WaitGroup
	status := make([]int, 100)
	for i := range status {
		all.Go(func() {
			r, err := c.try(fmt.Sprint(i), "tools/call", scriptParams("x = list(range(100000000))", ""))
			if err != nil {
				t.Error(err)
				return
			}
			status[i] = r.Status
		})
	}
	all.Wait()
	seen := map[int]int{}
	for _, s := range status {
		seen[s]++
	}
	if seen[200] == 0 || seen[200]+seen[503] != len(status) {
		t.Errorf("answers by status: %v", seen)
	}
	if out := c.script(t, "return echo(n='1')", ""); string(out.Result) != `{"n":"1"}` {
		t.Error(out.Raw)
	}
}

// TestX44Scripts: an edge that leaves drains the scripts under way as it does any call, and
// ends those that take longer, with an error each (row X44).
func TestX44Scripts(t *testing.T) { bothEras(t, leaveScripts) }

func leaveScripts(t *testing.T, era edgetest.Era) {
	back := edgetest.NewServer(t, edgetest.Modern)
	offersTools(back, tool{"slow", "", nil, 0}, tool{"quick", "", nil, 0})
	began, over := make(chan struct{}, 20), make(chan struct{})
	back.Always("tools/call", func(c *edgetest.Call) {
		began <- struct{}{}
		if strings.Contains(string(c.Message.Params), "quick") {
			<-over
			c.Result(`{"resultType":"complete","content":[{"type":"text","text":"1"}]}`)
			return
		}
		<-c.Gone()
	})
	e := edgetest.Start(t, edgetest.Manifest(back, codeMode()), engine(), edgetest.Settings(func(s *serve.Settings) { s.DrainTimeout = time.Second }))
	f := &front{Edge: e}
	c := f.callerOf(t, era, "")
	var all sync.WaitGroup
	answers := make(chan string, 20)
	for i := range 10 {
		text := "return slow()"
		if i == 0 {
			text = "return quick()"
		}
		all.Go(func() {
			if r, err := c.try(fmt.Sprint(i), "tools/call", scriptParams(text, "")); err == nil {
				answers <- string(r.Body)
			} else {
				answers <- ""
			}
		})
		await(t, "a script", began)
	}
	at := time.Now()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		e.Stop()
	}()
	edgetest.Until(t, "the edge to leave", func() bool { return strings.Contains(e.Log(), "draining") || time.Since(at) > 300*time.Millisecond })
	close(over)
	await(t, "the end of the edge", stopped)
	if took := time.Since(at); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	all.Wait()
	close(answers)
	done, ended := 0, 0
	for a := range answers {
		switch {
		case strings.Contains(a, `"structuredContent":{"result":1}`):
			done++
		case strings.Contains(a, `"error":{"code":-32603,"message":"the edge that held this call is gone"}`):
			ended++
		default:
			t.Errorf("an answer is %q", a)
		}
	}
	if done != 1 || ended != 9 {
		t.Errorf("%d scripts were answered, %d ended", done, ended)
	}
}
