package serve

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/codemode"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/scripting"
	"github.com/weir-edge/weir/scripting/sandbox"
)

// WithScripts sets what runs the scripts of clients, in place of a sandbox of the edge's own.
// The edge does not close it.
func WithScripts(e codemode.Engine) Option { return func(g *given) { g.scripts = e } }

// scripts is what the scripts of all servers run in. It begins with the first server that
// has code mode on, and ends with the edge. The zero value is ready.
type scripts struct {
	once     sync.Once
	compiler *codemode.Compiler
	engine   codemode.Engine
	sandbox  *sandbox.Engine // of the edge's own; nil for none
}

// open begins what has not begun. The sandbox compiles its interpreter meanwhile.
func (s *scripts) open(e *Edge) {
	s.once.Do(func() {
		s.compiler, s.engine = codemode.NewCompiler(), e.given.scripts
		if s.engine == nil {
			of := e.settings
			s.sandbox = sandbox.New(sandbox.Options{
				CPU: of.ScriptCPU, Timeout: of.ScriptTimeout, Memory: int64(of.ScriptMemory),
				Most: of.MaxScripts, MostPerHolder: of.MaxScriptsPerPrincipal, CacheDir: of.FilterCache, Log: e.log,
			})
			s.engine = s.sandbox.Run
		}
	})
}

// close ends the sandbox and what runs in it.
func (s *scripts) close() {
	if s.sandbox != nil {
		s.sandbox.Close()
	}
}

// run runs a script. A sandbox that takes no more is an error of kind Overload.
func (s *scripts) run(ctx context.Context, holder string, r *scripting.Run) (*scripting.Outcome, error) {
	out, err := s.engine(ctx, holder, r)
	for from, to := range map[error]error{sandbox.ErrBusy: codemode.ErrBusy, sandbox.ErrNotReady: codemode.ErrNotReady} {
		if errors.Is(err, from) {
			return nil, &edge.Error{Kind: edge.Overload, Op: "script", After: time.Second, Err: to}
		}
	}
	return out, err
}

// openScripts puts the tool that runs scripts of clients into the table of a server, if its plan says so.
func (o *opening) openScripts(s *server, local route.Local) error {
	e, p := o.edge, o.plan
	if p.CodeMode == nil {
		return nil
	}
	e.world.engine.open(e)
	counters, err := part(s, &e.world.scripts, "", func(edge.Env) (*codemode.Counters, error) { return new(codemode.Counters), nil })
	if err != nil {
		return err
	}
	s.counting = append(s.counting, counters)
	tool := codemode.New(codemode.Options{
		Spec:   codemode.Spec{Parallel: p.CodeMode.Parallel, Steps: p.CodeMode.Steps, PerCall: p.CodeMode.PerCall},
		Engine: e.world.engine.run, Compiler: e.world.engine.compiler, Cache: s.env(&s.after).Cache("scripts"), Counters: counters,
		Catalog: func(ctx context.Context, id *edge.Identity) (*catalog.Catalog, error) {
			return s.Book.Catalog(ctx, id, edge.Tool)
		},
		Missing: func() (missing []string) {
			for _, b := range s.Backends {
				if s.Book.Lacks(b.Name, edge.Tool) {
					missing = append(missing, b.Name)
				}
			}
			return missing
		},
	})
	local.Add(codemode.Name, codemode.Target(), true, tool.Run)
	return nil
}
