package doctor

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/settings"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/filters/incoming"
)

// filters starts the filters of every server as the edge does: it fetches what
// is behind a URL, compiles, and asks each module to begin with its
// configuration. What a module shows without that, the step manifests has said.
// Without secrets those that compute with some are left out.
func (d *Doctor) filters(ctx context.Context, r *source.Result, s settings.Settings, secrets edge.Secrets) []edge.Finding {
	cache := guest.NewCache(s.FilterCache, slog.New(slog.DiscardHandler))
	reach, _ := s.Reach() // the step files has said what is wrong with it
	cache.Reach(reach)
	store := kv.Memory(kv.Limits{})
	var after []func()
	defer func() {
		for i := len(after) - 1; i >= 0; i-- {
			after[i]()
		}
		_ = cache.Close() // it has nothing open
		_ = store.Close() // it is memory
	}()
	env := edge.Env{Log: slog.New(slog.DiscardHandler), Secrets: secrets, Store: store, Reach: reach, Defer: func(f func()) { after = append(after, f) }}
	var out []edge.Finding
	for _, server := range r.Plan.Servers {
		o := guest.Options{Guarded: server.Incoming != nil && server.Incoming.Type == incoming.OIDC, Audited: server.Audit != nil}
		for _, one := range server.Filters {
			if len(one.Keys) > 0 && secrets == nil {
				continue
			}
			ref := compile.Ref{Kind: "EdgeFilter", Name: one.Name}
			at := r.Locate(compile.Finding{Object: ref})
			out = append(out, d.step(ctx, "filters", fmt.Sprintf("%s:%d", at.File, at.Line), func(context.Context) edge.Finding {
				loaded, err := guest.Load([]guest.Spec{one}, secrets)
				if err == nil {
					_, _, err = cache.Open(server.Name, loaded, o, env)
				}
				if err != nil {
					return edge.Problem(edge.ClassManifest, "correct the filter, or its module: `weir plugin inspect` shows what a module asks for, and `weir plugin test` what it answers",
						"%s: server %s: %v", ref, server.Name, err)
				}
				return edge.Fine(ref.String())
			}))
		}
	}
	return out
}
