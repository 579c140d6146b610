package optimizer

import (
	"sync/atomic"
	"time"
	"weak"

	"github.com/weir-edge/weir/edge"
)

// Counters count for the optimizer of one server. The zero value is ready; they are safe for
// concurrent use.
type Counters struct {
	find, call   calls
	missed       atomic.Uint64 // calls of tools that are not there
	results      atomic.Int64  // of the newest answer
	answers      atomic.Uint64 // of find_tool
	saved        atomic.Uint64 // percent, in tenths, of all answers together
	tools, bytes atomic.Int64  // of the newest index
	indexing     atomic.Int64  // nanoseconds
	newest       atomic.Pointer[weak.Pointer[edition]]
	builds       atomic.Uint64 // indexes
}

// calls count the calls of a tool.
type calls struct {
	all, errors atomic.Uint64
	took        atomic.Int64 // nanoseconds
}

func (c *calls) done(took time.Duration, failed bool) {
	c.all.Add(1)
	if failed {
		c.errors.Add(1)
	}
	c.took.Add(int64(took))
}

func (c *calls) collect(m edge.Emitter, name, what string) {
	m.Counter(name+"_requests", "Calls of "+what+".", float64(c.all.Load()))
	m.Counter(name+"_errors", "Calls of "+what+" that failed.", float64(c.errors.Load()))
	m.Counter(name+"_duration_seconds", "Time that calls of "+what+" took.", time.Duration(c.took.Load()).Seconds())
}

func (c *Counters) found(tools int, saved float64) {
	c.results.Store(int64(tools))
	c.answers.Add(1)
	c.saved.Add(uint64(saved*10 + 0.5))
}

func (c *Counters) indexed(e *edition, took time.Duration) {
	c.tools.Store(int64(len(e.tools)))
	c.bytes.Store(int64(e.size()))
	c.indexing.Store(int64(took))
	c.builds.Add(1)
	is := weak.Make(e)
	c.newest.Store(&is)
}

// vectors is how many tools of the newest index have a vector.
func (c *Counters) vectors() int {
	if newest := c.newest.Load(); newest != nil {
		if e := newest.Value(); e != nil {
			return e.vectors.Load().count()
		}
	}
	return 0
}

// Collect is edge.Collector.Collect.
func (c *Counters) Collect(m edge.Emitter) {
	c.find.collect(m, "weir_optimizer_find_tool", Find)
	c.call.collect(m, "weir_optimizer_call_tool", Call)
	m.Gauge("weir_optimizer_find_tool_results", "Tools that the newest answer names.", float64(c.results.Load()))
	m.Gauge("weir_optimizer_token_savings_percent", "Percent of tokens that answers saved, in the mean.", float64(c.saved.Load())/10/float64(max(1, c.answers.Load())))
	m.Counter("weir_optimizer_call_tool_not_found", "Calls of tools that are not there.", float64(c.missed.Load()))
	m.Gauge("weir_optimizer_index_tools", "Tools of the newest index.", float64(c.tools.Load()))
	m.Gauge("weir_optimizer_index_bytes", "Bytes of the newest index, without vectors.", float64(c.bytes.Load()))
	m.Gauge("weir_optimizer_index_vectors", "Tools of the newest index that have a vector.", float64(c.vectors()))
	m.Counter("weir_optimizer_index_builds", "Indexes that were made.", float64(c.builds.Load()))
	m.Gauge("weir_optimizer_index_seconds", "Time that the newest index took.", time.Duration(c.indexing.Load()).Seconds())
}

// embedCounts count the requests to an embedding service, by what became of them.
type embedCounts struct {
	by   [embedOutcomes]atomic.Uint64
	took atomic.Int64 // nanoseconds
}

const (
	embedOK      = iota
	embedFailed  // no answer
	embedRefused // an answer of the service that is no success
	embedInvalid // an answer that cannot be used
	embedOutcomes
)

func (c *embedCounts) count(f *failure, took time.Duration) {
	is := embedOK
	switch {
	case f == nil:
	case f.status != 0:
		is = embedRefused
	case f.answered:
		is = embedInvalid
	default:
		is = embedFailed
	}
	c.by[is].Add(1)
	c.took.Add(int64(took))
}

// Collect is edge.Collector.Collect.
func (s *Service) Collect(m edge.Emitter) {
	for i, name := range [embedOutcomes]string{"ok", "failed", "refused", "invalid"} {
		m.With("outcome", name).Counter("weir_optimizer_embedding_requests", "Requests to the embedding service.", float64(s.counts.by[i].Load()))
	}
	m.Counter("weir_optimizer_embedding_duration_seconds", "Time that requests to the embedding service took.", time.Duration(s.counts.took.Load()).Seconds())
	m.Gauge("weir_optimizer_embedding_breaker_state", "0 while the service is asked, 1 while it is not, 2 while a request tries it.", float64(s.breaker.state(time.Now())))
}
