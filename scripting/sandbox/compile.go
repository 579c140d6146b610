package sandbox

import (
	"context"
	"math"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/turns"
)

// Compiler bounds how many texts a process compiles at once. Holders take turns: who sends
// many texts keeps those of others waiting for one alone.
type Compiler struct {
	places  *turns.Places
	waiting *admission // those who wait, at which nobody waits
}

// NewCompiler returns a compiler that leaves half of the processors to others.
func NewCompiler() *Compiler {
	return &Compiler{turns.New(turns.Most(), 0), newAdmission(math.MaxInt, maxWaiting)}
}

// Compile is scripting.Compile for a holder, in turn. The error is ErrBusy too where that did
// not come within a second, or too many of the holder wait for theirs, and the cause of ctx where that ended meanwhile.
func (c *Compiler) Compile(ctx context.Context, holder, file, text string, scope scripting.Scope) (*scripting.Program, error) {
	waiting, stop := context.WithTimeoutCause(ctx, admissionWait, ErrBusy)
	defer stop()
	full, end := context.WithCancelCause(ctx) // there is room among those who wait, or none
	end(ErrBusy)
	if err := c.waiting.enter(full, holder); err != nil {
		return nil, err
	}
	turn := c.places.Turn(holder, 0)
	err := turn.Begin(waiting)
	c.waiting.leave(holder)
	if err != nil {
		return nil, err
	}
	defer turn.Rest()
	return scripting.Compile(file, text, scope)
}
