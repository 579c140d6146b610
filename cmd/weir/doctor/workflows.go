package doctor

import (
	"cmp"
	"fmt"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/settings"
	"github.com/weir-edge/weir/edge/source"
)

// questions looks at the steps of composite tools that ask the caller: whether the process
// gives an answer the time that they do, and who cannot be asked. What of their tools is not
// there the step names says.
func (d *Doctor) questions(r *source.Result, s settings.Settings) (out []edge.Finding) {
	for _, server := range r.Plan.Servers {
		for i, w := range server.Workflows {
			at := server.Composed[i]
			tell := func(step string, c edge.Finding) {
				f := r.Locate(compile.Finding{Object: at.Object, Path: at.Path})
				c.Step, c.Subject = "manifests", cmp.Or(f.File, server.Name)
				if f.Line > 0 {
					c.Subject = fmt.Sprintf("%s:%d", f.File, f.Line)
				}
				c.Cause = fmt.Sprintf("%s: composite tool %s: step %q %s", at.Object, w.Name(), edge.Brief(step), c.Cause)
				out = append(out, d.tell(c))
			}
			for _, ask := range w.Asks() {
				if ask.Wait > s.ParkTTL {
					tell(ask.Step, edge.Warning(edge.ClassSettings, "raise --park-ttl, or lower the timeout of the step",
						"waits %s for an answer, and a modern client has %s for it (--park-ttl)", ask.Wait, s.ParkTTL))
				}
				if server.CodeMode != nil {
					tell(ask.Step, edge.Finding{Level: edge.LevelNote, Cause: "asks the caller, which fails within a script (codeMode)"})
				}
			}
		}
	}
	return out
}
