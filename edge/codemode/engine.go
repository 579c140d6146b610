package codemode

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/sandbox"
)

// Process is what the scripts of all servers of a process run in. It begins with the first
// tool that is made with it. The zero value is ready.
type Process struct {
	once     sync.Once
	compiler *sandbox.Compiler
	engine   Engine
	sandbox  *sandbox.Engine // of its own; nil for none
}

// Open begins what has not begun: a sandbox with the options, which compiles its interpreter
// meanwhile, or another engine, which Close does not end.
func (p *Process) Open(o sandbox.Options, other Engine) {
	p.once.Do(func() {
		p.compiler, p.engine = sandbox.NewCompiler(), other
		if other == nil {
			p.sandbox = sandbox.New(o)
			p.engine = p.sandbox.Run
		}
	})
}

// Ready waits until the sandbox takes scripts; at most until ctx ends. The error is why it
// does not.
func (p *Process) Ready(ctx context.Context) error {
	if p.sandbox == nil {
		return nil
	}
	return p.sandbox.Ready(ctx)
}

// Close ends the sandbox and what runs in it.
func (p *Process) Close() {
	if p.sandbox != nil {
		p.sandbox.Close()
	}
}

// compile compiles a text of a holder. One that waits too long for its turn is an error of
// kind Overload.
func (p *Process) compile(ctx context.Context, holder, text string, scope scripting.Scope) (*scripting.Program, error) {
	out, err := p.compiler.Compile(ctx, holder, file, text, scope)
	if ctx.Err() != nil {
		return nil, edge.Errorf(edge.Gone, "compile", "%w", context.Cause(ctx))
	}
	return out, overload(err)
}

// run runs a script. A sandbox that takes no more is an error of kind Overload.
func (p *Process) run(ctx context.Context, holder string, r *scripting.Run) (*scripting.Outcome, error) {
	out, err := p.engine(ctx, holder, r)
	return out, overload(err)
}

// overload makes what the sandbox says of having no room an error of kind Overload.
func overload(err error) error {
	for from, to := range map[error]error{sandbox.ErrBusy: ErrBusy, sandbox.ErrNotReady: ErrNotReady} {
		if errors.Is(err, from) {
			return &edge.Error{Kind: edge.Overload, Op: "script", After: time.Second, Err: to}
		}
	}
	return err
}
