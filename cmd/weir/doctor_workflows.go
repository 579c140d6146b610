package main

import (
	"cmp"
	"fmt"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
)

// questions looks at the steps of composite tools that ask the caller: whether the process
// gives an answer the time that they do, and who cannot be asked. What of their tools is not
// there the step names says.
func (d *doctor) questions(r *source.Result, s serve.Settings) (out []edge.Finding) {
	tell := func(w composed, step string, c edge.Finding) {
		f := r.Locate(compile.Finding{Object: w.at.Object, Path: w.at.Path})
		c.Step, c.Subject = "manifests", cmp.Or(f.File, w.server)
		if f.Line > 0 {
			c.Subject = fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		c.Cause = fmt.Sprintf("%s: composite tool %s: step %q %s", w.at.Object, w.Name(), edge.Brief(step), c.Cause)
		out = append(out, d.tell(c))
	}
	scripts := map[string]bool{}
	for _, server := range r.Plan.Servers {
		scripts[server.Name] = server.CodeMode != nil
	}
	all, _ := composedOf(r.Plan, "") // of all servers, which there are
	for _, w := range all {
		for _, ask := range w.Asks() {
			if ask.Wait > s.ParkTTL {
				tell(w, ask.Step, edge.Warning(edge.ClassSettings, "raise --park-ttl, or lower the timeout of the step",
					"waits %s for an answer, and a modern client has %s for it (--park-ttl)", ask.Wait, s.ParkTTL))
			}
			if scripts[w.server] {
				c := edge.Finding{Level: edge.LevelNote, Cause: "asks the caller, which fails within a script (codeMode)"}
				tell(w, ask.Step, c)
			}
		}
	}
	return out
}
