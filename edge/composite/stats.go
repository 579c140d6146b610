package composite

import (
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/scripting/workflow"
)

// Counters count the runs of the composite tools of a server. The zero value is ready; they
// are safe for concurrent use. They have as many labels as the configuration has tools.
type Counters struct {
	mu      sync.Mutex
	runs    map[ending]uint64
	took    time.Duration
	retries uint64
}

// ending is how a run of a workflow ended.
type ending struct{ workflow, outcome string }

// ended counts a run.
func (c *Counters) ended(workflow, outcome string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[ending]uint64{}
	}
	c.runs[ending{workflow, outcome}]++
	c.took += took
}

// retried counts an attempt after the first.
func (c *Counters) retried() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retries++
}

// outcomeOf is one word for what became of a run.
func outcomeOf(o *workflow.Outcome) string {
	switch {
	case o == nil:
		return "cancelled"
	case o.Arguments != "":
		return "arguments"
	case o.TimedOut:
		return "timeout"
	case o.Spent:
		return "budget"
	case o.Error != nil:
		return "error"
	}
	return "ok"
}

// Collect is edge.Collector.Collect.
func (c *Counters) Collect(m edge.Emitter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for of, n := range c.runs {
		m.With("workflow", of.workflow).With("outcome", of.outcome).Counter("weir_workflow_executions", "Calls of composite tools.", float64(n))
	}
	m.Counter("weir_workflow_duration_seconds", "Time that composite tools took.", c.took.Seconds())
	m.Counter("weir_workflow_step_retries", "Attempts of steps after the first.", float64(c.retries))
}
