package serve

import (
	"context"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/codemode"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/scripting/sandbox"
)

// WithScripts sets what runs the scripts of clients, in place of a sandbox of the edge's own.
// The edge does not close it.
func WithScripts(e codemode.Engine) Option { return func(g *given) { g.scripts = e } }

// openScripts puts the tool that runs scripts of clients into the table of a server, if its plan says so.
func (o *opening) openScripts(s *server, local route.Local) error {
	e, p := o.edge, o.plan
	if p.CodeMode == nil {
		return nil
	}
	e.world.scripting.Open(sandbox.Options{
		CPU: e.settings.ScriptCPU, Timeout: e.settings.ScriptTimeout, Memory: int64(e.settings.ScriptMemory),
		Most: e.settings.MaxScripts, MostPerHolder: e.settings.MaxScriptsPerPrincipal, Places: e.world.places, CacheDir: e.settings.FilterCache, Log: e.log,
	}, e.given.scripts)
	counters, err := part(s, &e.world.scripts, "", func(edge.Env) (*codemode.Counters, error) { return new(codemode.Counters), nil })
	if err != nil {
		return err
	}
	s.counting = append(s.counting, counters)
	tool := codemode.New(codemode.Options{
		Spec:    codemode.Spec{Parallel: p.CodeMode.Parallel, Steps: p.CodeMode.Steps, PerCall: p.CodeMode.PerCall},
		Process: &e.world.scripting, Cache: s.env(&s.after).Cache("scripts"), Counters: counters,
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
