package compile

import (
	"errors"
	"fmt"

	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/scripting/workflow"
)

// workflows compiles the composite tools of a server: its own, and those that it refers to.
// permits says whether a policy may permit somebody a call of a tool. It returns where each
// stands, too.
func (c *compiler) workflows(o *object, config *v1beta1.ServerConfig, permits func(tool string) bool) (all []*workflow.Workflow, places []Place) {
	names := map[string]bool{}
	add := func(at *object, path, named string, tool *v1beta1.CompositeTool) { // named is where o has it
		w := c.workflow(at, path, tool)
		if w == nil {
			return
		}
		if names[tool.Name] {
			if !at.wrong[path+".name"] {
				c.fail(o, named, ReasonInvalid, "there are two composite tools %q", brief(tool.Name))
			}
			return
		}
		names[tool.Name] = true
		if !permits(tool.Name) {
			c.find(Note, o, named, ReasonUnused, "nobody can use it: no policy permits a call of Tool::%q", tool.Name)
		}
		all, places = append(all, w), append(places, Place{at.ref, path})
	}
	for i := range config.CompositeTools {
		path := fmt.Sprintf("spec.config.compositeTools[%d]", i)
		add(o, path, path, &config.CompositeTools[i])
	}
	for _, l := range o.links {
		if d, ok := l.to.value.(*v1beta1.VirtualMCPCompositeToolDefinition); ok {
			add(l.to, "spec", l.from.path, &d.Spec.CompositeTool)
		}
	}
	return all, places
}

// workflow compiles a composite tool that stands at a path of an object; nil for one with faults,
// which it reports.
func (c *compiler) workflow(at *object, path string, tool *v1beta1.CompositeTool) *workflow.Workflow {
	w, err := workflow.Parse(tool)
	var faults workflow.Faults
	errors.As(err, &faults)
	for _, f := range faults {
		whole := path
		if f.Path != "" {
			whole += "." + f.Path
		}
		if !at.wrong[whole] { // what the model's rules say is said already
			c.fail(at, whole, ReasonInvalid, "%s", f.Message)
		}
	}
	return w
}
