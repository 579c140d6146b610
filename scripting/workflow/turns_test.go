package workflow_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/scripting/turns"
	"github.com/weir-edge/weir/scripting/workflow"
)

// counting is a workflow that computes for as long as its parameter says.
const counting = `
parameters: {type: object, properties: {n: {type: integer}}}
script: |
  x = 0
  for i in range(params["n"]):
    x += i
  return x
`

// TestG21ComputingTakesAPlace: a run that computes for long waits for a place of the process,
// within its deadline, and a short one does not. What it waits is no computing.
func TestG21ComputingTakesAPlace(t *testing.T) {
	places := turns.New(1, 0)
	other := places.Turn("other", 0)
	if err := other.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := parse(t, composite(t, counting))
	run := func(ctx context.Context, arguments string, first time.Duration) (*turns.Turn, *workflow.Outcome, error) {
		host := quick()
		host.Turn = places.Turn("me", first)
		out, err := w.Run(ctx, []byte(arguments), host)
		return host.Turn, out, err
	}
	if _, out, err := run(t.Context(), `{"n":10}`, time.Minute); err != nil || told(out) != `{"result":45}` {
		t.Errorf("a short one: %v, %v", out, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		turn, out, err := run(t.Context(), `{"n":200000}`, 0)
		if err != nil || told(out) != `{"result":19999900000}` || turn.Used() > time.Minute {
			t.Errorf("a long one: %v after %v of computing, %v", out, turn.Used(), err)
		}
	}()
	for places.Waiting() == 0 {
		runtime.Gosched()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if turn, _, err := run(ctx, `{"n":200000}`, 0); !errors.Is(err, context.DeadlineExceeded) || turn.Used() > 0 {
		t.Errorf("one that waits until its deadline: %v after %v of computing", err, turn.Used())
	}
	select {
	case <-ended:
		t.Error("it computed without a place")
	default:
	}
	other.Rest()
	<-ended
	if places.Free() != 1 || places.Waiting() != 0 {
		t.Errorf("%d places are free, %d wait", places.Free(), places.Waiting())
	}
}

// TestG21WaitingHasNoPlace: a run that waits for a call has no place, and takes one for a
// template that is long work.
func TestG21WaitingHasNoPlace(t *testing.T) {
	places := turns.New(1, 0)
	host := quick()
	host.Turn = places.Turn("me", 0)
	call, free := host.Call, 0
	host.Call = func(ctx context.Context, c *workflow.Call) workflow.Answer {
		for end := time.Now().Add(10 * time.Second); places.Free() == 0 && time.Now().Before(end); {
			runtime.Gosched() // a call that is made beside the run may begin before it rests
		}
		free += places.Free()
		return call(ctx, c)
	}
	w := parse(t, composite(t, params+`steps: [{id: a, tool: w.t}, {id: b, tool: w.t, dependsOn: [a]}]`))
	if out, err := w.Run(t.Context(), []byte(`{"x":"v"}`), host); err != nil || out.Error != nil || free != 2 {
		t.Errorf("%d of two calls were made without a place: %v, %v", free, out, err)
	}

	other := places.Turn("other", 0)
	if err := other.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	long := parse(t, composite(t, `
parameters: {type: object, properties: {l: {type: array}}}
steps: [{id: a, tool: w.t, arguments: {x: "{{range .params.l}}{{range $.params.l}}{{range $.params.l}}{{end}}{{end}}{{end}}"}}]
`))
	host = quick()
	host.Turn = places.Turn("me", time.Microsecond)
	ended := make(chan string)
	go func() {
		out, err := long.Run(t.Context(), []byte(`{"l":[`+strings.Repeat("1,", 99)+`1]}`), host)
		if err != nil {
			ended <- err.Error()
			return
		}
		ended <- told(out)
	}()
	for places.Waiting() == 0 {
		select {
		case out := <-ended:
			t.Fatalf("it computed without a place: %s", out)
		default:
			runtime.Gosched()
		}
	}
	other.Rest()
	if out := <-ended; out != `{"x":"v"}` && !strings.Contains(out, "steps of a template") && !strings.Contains(out, "turns of range") {
		t.Error(out)
	}
}

// TestP12aOneStep: a composite of one step makes its call where it was called, and few
// allocations besides.
func TestP12aOneStep(t *testing.T) {
	w := parse(t, composite(t, params+`steps: [{id: a, tool: w.t, arguments: {x: "{{.params.x}}"}}]`))
	host := quick()
	call, where := host.Call, ""
	host.Call = func(ctx context.Context, c *workflow.Call) workflow.Answer {
		stack := make([]byte, 64<<10)
		where = string(stack[:runtime.Stack(stack, false)])
		return call(ctx, c)
	}
	run := func() {
		if out, err := w.Run(t.Context(), []byte(`{"x":"v"}`), host); err != nil || out.Error != nil {
			t.Fatal(err, told(out))
		}
	}
	run()
	if !strings.Contains(where, "workflow.(*Workflow).Run(") {
		t.Errorf("the call has a goroutine of its own:\n%s", where)
	}
	host.Call = call
	if n := testing.AllocsPerRun(100, run); n > 160 {
		t.Errorf("%v allocations", n)
	}
}

// TestX22TasksOnTop: tasks that begin on top of who waits for them end with the run, whichever
// of them the run ends for.
func TestX22TasksOnTop(t *testing.T) {
	for script, want := range map[string]string{
		// The step stands on top of the program, and waits for a step of its own.
		"def work():\n  b = step(\"b\", lambda: call_step(\"w.hang\"))\n  return [call_step(\"w.hang\"), b.output]\n" +
			"a = step(\"a\", work)\nreturn a.output": `timeout ran longer than 5s`,
		"def work():\n  b = step(\"b\", lambda: call_step(\"w.echo\", {\"x\": 1}))\n  return b.output[\"x\"] + 1\n" +
			"a = step(\"a\", work)\nreturn a.output": `{"result":2}`,
		// Both wait for what the other does not give.
		"all = []\na = step(\"a\", lambda: step(\"b\", lambda: all[0].output).output)\nall.append(a)\nreturn a.output": `failed everything waits for something that never comes`,
		// A failure ends the run while the program is beneath.
		"a = step(\"a\", lambda: step(\"b\", lambda: call_step(\"w.fail\")).output)\nreturn a.output":     `failed step "b": tool "w.fail": boom`,
		"return parallel([lambda: parallel([lambda: parallel([lambda: call_tool(\"w.echo\", x = 1)])])])": `{"result":[[[{"x":1}]]]}`,
		"return parallel([lambda: parallel([lambda: call_step(\"w.hang\")]), lambda: fail(\"no\")])":      `timeout ran longer than 5s`,
	} {
		tool := composite(t, "timeout: 5s")
		tool.Script = script
		out, _ := play(t, parse(t, tool), "", nil)
		if got := told(out); got != want {
			t.Errorf("%s:\n got %s\nwant %s", script, got, want)
		}
	}
}

// TestG21ValuesOfAHolder: what a run's values take counts for its holder until the run ends,
// while it waits for a call too. Beyond its share a further run of the holder ends with an
// error, and one of another holder does not.
func TestG21ValuesOfAHolder(t *testing.T) {
	places := turns.New(4, 40<<20) // 10 MiB each
	w := parse(t, composite(t, `
parameters: {type: object, properties: {n: {type: integer}}}
script: |
  x = "x" * params["n"]
  call_tool("w.t")
  return len(x)
`))
	run := func(holder string, call func(context.Context, *workflow.Call) workflow.Answer) string {
		host := quick()
		host.Turn = places.Turn(holder, time.Minute)
		if call != nil {
			host.Call = call
		}
		out, err := w.Run(t.Context(), []byte(`{"n":6000000}`), host)
		if err != nil {
			t.Fatal(err)
		}
		return told(out)
	}
	const busy = "hold as much memory as they may now: call it again later"
	answer := quick().Call
	var mine, others string
	first := run("me", func(ctx context.Context, c *workflow.Call) workflow.Answer {
		mine, others = run("me", nil), run("other", nil)
		return answer(ctx, c)
	})
	if want := `{"result":6000000}`; first != want || others != want || !strings.Contains(mine, busy) {
		t.Errorf("the first: %s; beside it one of its holder: %s, and one of another: %s", first, mine, others)
	}
	if again := run("me", nil); again != first {
		t.Errorf("after it has ended: %s", again)
	}
}

// TestG21ArgumentsOfAHolder: so do arguments that no value of the program is made of, and what
// templates read of steps.
func TestG21ArgumentsOfAHolder(t *testing.T) {
	places := turns.New(4, 400<<20) // 100 MiB each
	w := parse(t, composite(t, `steps: [{id: a, tool: w.t}]`))
	arguments := []byte(`{"x":[` + strings.Repeat(`{"":0},`, 140_000) + `0]}`)
	run := func(holder string, call func(context.Context, *workflow.Call) workflow.Answer) string {
		host := quick()
		host.Turn = places.Turn(holder, time.Minute)
		if call != nil {
			host.Call = call
		}
		out, err := w.Run(t.Context(), arguments, host)
		if err != nil {
			t.Fatal(err)
		}
		return told(out)
	}
	const busy = "hold as much memory as they may now: call it again later"
	answer := quick().Call
	var mine, others string
	first := run("me", func(ctx context.Context, c *workflow.Call) workflow.Answer {
		second := run("me", func(ctx context.Context, c *workflow.Call) workflow.Answer {
			mine, others = run("me", nil), run("other", nil)
			return answer(ctx, c)
		})
		if strings.Contains(second, busy) {
			mine, others = second, run("other", nil)
		}
		return answer(ctx, c)
	})
	if strings.Contains(first, busy) || strings.Contains(others, busy) || !strings.Contains(mine, busy) {
		t.Errorf("the first: %s; beside it one of its holder: %s, and one of another: %s", first, mine, others)
	}
	if again := run("me", nil); again != first {
		t.Errorf("after it has ended: %s", again)
	}
}

// request is the context of a request: it calls functions when it ends, and counts who asks it
// for a channel.
type request struct {
	context.Context
	asked atomic.Int32
}

func (r *request) Done() <-chan struct{} {
	r.asked.Add(1)
	return r.Context.Done()
}

func (r *request) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(r.Context, f) }

// A run that goes well leaves nothing with its request; it ends with that all the same.
func TestRequestIsLeftAlone(t *testing.T) {
	w := parse(t, composite(t, params+`steps: [{id: a, tool: w.t, arguments: {x: "{{.params.x}}"}}]`))
	r := &request{Context: t.Context()}
	if out, err := w.Run(r, []byte(`{"x":"v"}`), quick()); err != nil || out.Error != nil || r.asked.Load() != 0 {
		t.Errorf("%v, %v; asked for a channel %d times", told(out), err, r.asked.Load())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	host := quick()
	host.Call = func(ctx context.Context, _ *workflow.Call) workflow.Answer {
		cancel()
		<-ctx.Done()
		return workflow.Answer{}
	}
	if _, err := w.Run(&request{Context: ctx}, []byte(`{"x":"v"}`), host); !errors.Is(err, context.Canceled) {
		t.Errorf("its request ended: %v", err)
	}
}
