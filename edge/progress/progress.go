// Package progress is what the edge keeps of a client's call that makes others: how many
// there were, of how many there may be, and what the client is told of them meanwhile.
package progress

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Outer is the call of a client by which the edge makes others, directly or through a
// composite tool. It is safe for concurrent use.
type Outer struct {
	says  *reporter
	most  int64 // calls; 0 for any number
	made  atomic.Int64
	named atomic.Int64 // ids given
	spent atomic.Bool
}

// NewOuter returns the Outer of an exchange, which may make so many calls; 0 for any number.
// End has to be called.
func NewOuter(x *edge.Exchange, most int) *Outer {
	return &Outer{says: newReporter(x), most: int64(most)}
}

// Spend counts a call before it is made. False says that there were too many.
func (o *Outer) Spend() bool {
	if o.made.Add(1) > o.most && o.most > 0 {
		o.spent.Store(true)
	}
	return !o.spent.Load()
}

// Spent reports whether there were too many calls.
func (o *Outer) Spent() bool { return o.spent.Load() }

// NextID returns the id of a call in the trace, from 1.
func (o *Outer) NextID() int64 { return o.named.Add(1) }

// Progress tells the client how far its call is. What does not rise is not told, and of what
// comes faster than ten times a second the last. total is 0 where it is not known.
func (o *Outer) Progress(done, total float64, message string) { o.says.progress(done, total, message) }

// Called tells the client of a call that has ended, if it asks for a trace.
func (o *Outer) Called(c Call) { o.says.called(&c) }

// End tells what is left to tell. Nothing is told after.
func (o *Outer) End() { o.says.end() }

// Call is a call that has ended, as a trace has it.
type Call struct {
	ID      int64
	Parent  int64  // the id of the call within which it was made; 0 for the client's own
	Tool    string // as the client knows it; "" for one that it may not see
	Step    string // of a composite tool; "" for none
	Attempt int    // from 1
	Outcome Outcome
	Took    time.Duration
}

// Outcome is what became of a call.
type Outcome string

// The outcomes.
const (
	OK        Outcome = "ok"
	Failed    Outcome = "error"
	Denied    Outcome = "denied"
	Limited   Outcome = "limited"
	TimedOut  Outcome = "timeout"
	Cancelled Outcome = "cancelled"
)

// OutcomeOf returns what became of a call that failed with a code, HTTP's or JSON-RPC's.
func OutcomeOf(code int) Outcome {
	switch code {
	case 403:
		return Denied
	case 429:
		return Limited
	case 504:
		return TimedOut
	}
	return Failed
}

type innerKey struct{}

// inner is the context of a call that an Outer makes.
type inner struct {
	context.Context
	outer *Outer
	id    int64
}

// Value returns the context itself for its own key.
func (i *inner) Value(key any) any {
	if key == (innerKey{}) {
		return i
	}
	return i.Context.Value(key)
}

// Within returns the context of a call that is made for the outer one. What it makes in turn
// counts to the outer one too.
func (o *Outer) Within(ctx context.Context, id int64) context.Context {
	return &inner{Context: ctx, outer: o, id: id}
}

// Of returns the Outer within whose call a context is, and the id of that call; nil for none.
func Of(ctx context.Context) (*Outer, int64) {
	if i, ok := ctx.Value(innerKey{}).(*inner); ok {
		return i.outer, i.id
	}
	return nil, 0
}
