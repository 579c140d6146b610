package codemode

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/scripting"
)

// Counters count the scripts of a server. The zero value is ready; they are safe for
// concurrent use.
type Counters struct {
	runs                              [outcomes]atomic.Uint64
	calls                             atomic.Uint64
	took, cpu                         atomic.Int64 // nanoseconds
	running                           atomic.Int64
	busy, unready, misused, defective atomic.Uint64
}

// What becomes of a run.
const (
	succeeded = iota
	failed    // an error of the script
	failedTool
	spent // a budget
	left  // its client was gone
	outcomes
)

func outcomeOf(o *scripting.Outcome) int {
	switch {
	case o.Error == nil:
		return succeeded
	case o.Error.Cause == scripting.Budget:
		return spent
	case o.Error.Cause == scripting.Cancelled:
		return left
	case o.Error.Tool != "":
		return failedTool
	}
	return failed
}

// ended counts a run that came to its end.
func (c *Counters) ended(o *scripting.Outcome, took time.Duration) { c.add(outcomeOf(o), o, took) }

// cancelled counts a run whose client has left. o is nil where there is no outcome.
func (c *Counters) cancelled(o *scripting.Outcome, took time.Duration) {
	if o == nil {
		o = &scripting.Outcome{}
	}
	c.add(left, o, took)
}

func (c *Counters) add(outcome int, o *scripting.Outcome, took time.Duration) {
	c.calls.Add(uint64(o.Calls))
	c.took.Add(int64(took))
	c.cpu.Add(int64(o.CPU))
	c.runs[outcome].Add(1) // at last: who sees the run sees what it has cost
}

// refused counts a script that did not run.
func (c *Counters) refused(err error) {
	switch edge.KindOf(err) {
	case edge.Overload:
		if errors.Is(err, ErrNotReady) {
			c.unready.Add(1)
			return
		}
		c.busy.Add(1)
	case edge.Gone:
		c.runs[left].Add(1)
	default:
		c.defective.Add(1)
	}
}

// Collect is edge.Collector.Collect.
func (c *Counters) Collect(m edge.Emitter) {
	for i, name := range [outcomes]string{"ok", "error", "tool_error", "budget", "cancelled"} {
		m.With("outcome", name).Counter("weir_script_runs", "Scripts that ran, and those that did not compile.", float64(c.runs[i].Load()))
	}
	for reason, n := range map[string]uint64{"busy": c.busy.Load(), "not_ready": c.unready.Load(), "arguments": c.misused.Load(), "defect": c.defective.Load()} {
		m.With("reason", reason).Counter("weir_script_refused", "Scripts that did not run.", float64(n))
	}
	m.Counter("weir_script_calls", "Calls that scripts made.", float64(c.calls.Load()))
	m.Counter("weir_script_duration_seconds", "Time that scripts took, their calls included.", time.Duration(c.took.Load()).Seconds())
	m.Counter("weir_script_cpu_seconds", "Time that scripts computed.", time.Duration(c.cpu.Load()).Seconds())
	m.Gauge("weir_script_running", "Scripts that run.", float64(c.running.Load()))
}
