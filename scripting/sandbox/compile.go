package sandbox

import (
	"context"

	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/turns"
)

// Compiler bounds how many texts a process compiles at once. Holders take turns: who sends
// many texts keeps those of others waiting for one alone.
type Compiler struct{ places *turns.Places }

// NewCompiler returns a compiler that leaves half of the processors to others.
func NewCompiler() *Compiler { return &Compiler{turns.New(turns.Most(), 0)} }

// Compile is scripting.Compile for a holder, in turn. The error is ErrBusy too where that did
// not come within a second, and the cause of ctx where that ended meanwhile.
func (c *Compiler) Compile(ctx context.Context, holder, file, text string, scope scripting.Scope) (*scripting.Program, error) {
	waiting, stop := context.WithTimeoutCause(ctx, admissionWait, ErrBusy)
	defer stop()
	turn := c.places.Turn(holder, 0)
	if err := turn.Begin(waiting); err != nil {
		return nil, err
	}
	defer turn.Rest()
	return scripting.Compile(file, text, scope)
}
