package compile

import (
	"errors"
	"fmt"

	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/scripting/workflow"
)

// workflows compiles the composite tools of a server: its own, and those that it refers to.
// permits says whether a policy may permit somebody a call of a tool.
func (c *compiler) workflows(o *object, config *v1beta1.ServerConfig, permits func(tool string) bool) []*workflow.Workflow {
	var all []*workflow.Workflow
	names := map[string]bool{}
	add := func(at *object, path string, tool *v1beta1.CompositeTool) {
		w, err := workflow.Parse(tool)
		var faults workflow.Faults
		if errors.As(err, &faults) {
			for _, f := range faults {
				whole := path
				if f.Path != "" {
					whole += "." + f.Path
				}
				if !at.wrong[whole] { // what the model's rules say is said already
					c.fail(at, whole, ReasonInvalid, "%s", f.Message)
				}
			}
			return
		}
		if names[tool.Name] {
			if !at.wrong[path+".name"] {
				c.fail(o, path, ReasonInvalid, "there are two composite tools %q", brief(tool.Name))
			}
			return
		}
		names[tool.Name] = true
		if !permits(tool.Name) {
			where := path
			if at != o {
				where = "spec.config.compositeToolRefs"
			}
			c.find(Note, o, where, ReasonUnused, "nobody can use it: no policy permits a call of Tool::%q", tool.Name)
		}
		all = append(all, w)
	}
	for i := range config.CompositeTools {
		add(o, fmt.Sprintf("spec.config.compositeTools[%d]", i), &config.CompositeTools[i])
	}
	for _, l := range o.links {
		if d, ok := l.to.value.(*v1beta1.VirtualMCPCompositeToolDefinition); ok {
			add(l.to, "spec", &d.Spec.CompositeTool)
		}
	}
	return all
}
