package scripting

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.starlark.net/starlark"

	"github.com/weir-edge/weir/scripting/turns"
)

// Execute runs a program in process: for texts that the operator wrote, with values by
// anybody. What the program did wrong is Outcome.Error; the error is a defect of the caller:
// a program that was loaded, or data that is not that of the program. When ctx ends the run
// does, at the next 10,000 steps, and its calls with it.
func Execute(ctx context.Context, r *Run) (*Outcome, error) {
	if r.Program == nil || r.Call == nil {
		return nil, errors.New("scripting: a run without a program or without calls")
	}
	program, err := r.Program.forProcess()
	if err != nil {
		return nil, err
	}
	var data []byte
	if r.Data != nil {
		if len(r.Data) > MaxData {
			return nil, fmt.Errorf("scripting: data: larger than %d bytes", MaxData)
		}
		if data, err = FromJSON(r.Data); err != nil {
			return nil, fmt.Errorf("scripting: data: %w", err)
		}
	}
	limits := r.Limits.Full()
	turn := r.Turn
	if turn == nil {
		turn = (*turns.Places)(nil).Turn("", 0)
	}
	if end, ok := ctx.Deadline(); !ok || time.Until(end) > limits.Timeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limits.Timeout, errTimeout)
		defer cancel()
	}
	calls := NewCalls(ctx, r)
	defer calls.Close()

	var logs Logs
	stop := func() *Fault {
		switch {
		case calls.Spent() != nil:
			return calls.Spent()
		case ctx.Err() == nil && turn.Look(ctx) == nil:
			return nil
		case context.Cause(ctx) == errTimeout:
			return &Fault{Message: "ran longer than " + Seconds(limits.Timeout), Cause: Budget}
		}
		return &Fault{Message: "cancelled", Cause: Cancelled}
	}
	host := &Host{
		Submit: calls.Submit,
		Wait: func() uint32 {
			turn.Rest()
			id, _ := calls.Wait(ctx)
			if turn.Begin(ctx) != nil {
				return 0
			}
			return id
		},
		Answer:   calls.Answer,
		Print:    logs.Add,
		Progress: func(float64, float64, string) {},
		Stop:     stop,
	}
	if r.Progress != nil {
		host.Progress = r.Progress
	}
	running := newRun(program, &r.Program.names, limits, host)
	running.meter, running.hold = newMeter(running), turn.Hold
	defer turn.Free()
	running.init, running.idle = &r.Program.init, &r.Program.idle
	if r.Extension != nil {
		running.scope = r.Program.scope
	} else {
		running.counted = func(scope starlark.StringDict) { putCounted(scope, r.Program.uses) }
	}
	if running.extension = r.Extension; r.Extension != nil {
		running.calling = calls
		running.aside = func(work func()) {
			turn.Rest()
			work()
			_ = turn.Begin(ctx) // which fails when the run is at its end
		}
	}
	if turn.Begin(ctx) != nil {
		f := stop()
		return &Outcome{Error: &Error{Message: f.Message, Cause: f.Cause}}, nil
	}
	end := running.interpret(running.task(0), data)
	running.free()
	o := &Outcome{
		Error: end.Error, Logs: logs.Lines, Dropped: logs.Dropped,
		Steps: end.Steps, Calls: end.Calls, CPU: turn.Used(), Memory: running.meter.total,
	}
	if end.Error == nil {
		if o.Value, err = ToJSON(end.Value); err != nil {
			o.Error = &Error{Message: "result: " + err.Error()}
		}
	}
	return o, nil
}

var errTimeout = errors.New("the time of the run is over")

// forProcess returns the program with counted operators.
func (p *Program) forProcess() (*starlark.Program, error) {
	if p.loaded {
		return nil, errors.New("scripting: a loaded program runs in the sandbox alone")
	}
	p.once.Do(func() {
		if p.counted, p.failed = p.compile(nil, countedTree); p.failed != nil {
			return
		}
		p.scope = starlark.StringDict{}
		builtins(p.scope, &p.names)
		for _, name := range p.names.Extra {
			p.scope[name] = extra(name)
		}
		putCounted(p.scope, p.uses)
		if !p.whole && len(p.names.Tools)+len(p.names.Data) == 0 {
			p.failed = p.init.make(p.counted, p.scope)
		}
	})
	return p.counted, p.failed
}

// Seconds writes a time as the errors of scripts do: 30s, 90s, 1.5s, 500ms.
func Seconds(d time.Duration) string {
	if d >= time.Second {
		return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
	}
	return d.String()
}
