package serve

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/codemode"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/composite"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/filters/audit"
	"github.com/weir-edge/weir/scripting/workflow"
)

// openComposites puts the composite tools of a server into its table.
func (o *opening) openComposites(s *server, local route.Local) error {
	if len(o.plan.Workflows) == 0 {
		return nil
	}
	counters, err := part(s, &o.edge.world.composites, "", func(edge.Env) (*composite.Counters, error) { return new(composite.Counters), nil })
	if err != nil {
		return err
	}
	s.counting = append(s.counting, counters)
	s.workflows = o.plan.Workflows
	for _, w := range o.plan.Workflows {
		tool := composite.New(composite.Options{
			Catalog: s.CatalogNow, Belated: s.Belated, Call: s.CallAtNow, Places: o.edge.world.places,
			Observe: s.recordWorkflow, Printed: o.printed(s), LeftOut: o.leftOut(s), Begin: s.stepSpan, Wait: o.edge.settings.ParkTTL, Counters: counters,
		}, w)
		local.AddAsking(w.Name(), composite.Target(), tool.Run)
	}
	return nil
}

// printed returns what tells a line that a composite tool prints: to whoever asked for that, or
// to the log.
func (o *opening) printed(s *server) func(tool, text string) {
	if told := o.edge.given.notes; told != nil {
		return told
	}
	return func(tool, text string) { s.log.Info("a composite tool prints", "tool", tool, "text", text) }
}

// leftOut does it with a property of a result. Why it has no value may show one, which is not for
// the log.
func (o *opening) leftOut(s *server) func(tool, property, why string) {
	if told := o.edge.given.notes; told != nil {
		return func(tool, property, why string) { told(tool, property+": left out: "+why) }
	}
	return func(tool, property, _ string) {
		s.log.Debug("a property of a composite tool's result is left out", "tool", tool, "property", property)
	}
}

// stepSpan begins the span of a step.
func (s *server) stepSpan(ctx context.Context, workflow, step string) (context.Context, func(failed string)) {
	if s.measure == nil {
		return ctx, func(string) {}
	}
	return s.measure.Within(ctx, "workflow step "+step, "weir.workflow.name", workflow, "weir.workflow.step", step)
}

// ofComposites are the conditions of composite tools, beside the tools that there are now.
func (s *server) ofComposites() (out []health.Condition) {
	if len(s.workflows) == 0 || s.Book == nil {
		return nil
	}
	c := s.Book.Settled(nil, edge.Tool)
	if c == nil {
		return nil
	}
	f := composite.Look(s.workflows, c, func(tool string) bool { _, err := s.Belated(new(edge.Exchange), tool); return err != nil })
	if len(f.Missing) > 0 && !s.personal { // where it is, what is there depends on the user
		out = append(out, health.Condition{Type: "StepToolMissing", Status: "True", Reason: "ToolNotFound", Message: strings.Join(f.Missing, "; ")})
	}
	if len(f.Taken) > 0 {
		out = append(out, health.Condition{Type: "CompositeNameTaken", Status: "True", Reason: "NameTaken", Message: strings.Join(f.Taken, "; ")})
	}
	if len(f.Lax) > 0 {
		out = append(out, health.Condition{Type: "AnnotationsTooLax", Status: "True", Reason: "StepsPromiseLess", Message: strings.Join(f.Lax, "; ")})
	}
	return out
}

// recordWorkflow writes what happens in a workflow into the audit log.
func (s *server) recordWorkflow(x *edge.Exchange, e workflow.Event) {
	if s.record == nil {
		return
	}
	of := map[workflow.Kind]struct {
		is      audit.Type
		outcome audit.Outcome
	}{
		workflow.Started:       {audit.WorkflowStarted, audit.Success},
		workflow.Completed:     {audit.WorkflowCompleted, audit.Success},
		workflow.Failed:        {audit.WorkflowFailed, audit.Error},
		workflow.TimedOut:      {audit.WorkflowTimedOut, audit.Error},
		workflow.StepStarted:   {audit.StepStarted, audit.Success},
		workflow.StepCompleted: {audit.StepCompleted, audit.Success},
		workflow.StepFailed:    {audit.StepFailed, audit.Error},
		workflow.StepSkipped:   {audit.StepSkipped, audit.Success},
	}
	how, ok := of[e.Kind]
	if !ok {
		return // another attempt: the call has a record of its own
	}
	told, _ := json.Marshal(struct { // texts and a number
		Workflow string `json:"workflow"`
		ID       string `json:"workflow_id"`
		Step     string `json:"step,omitempty"`
		Attempt  int    `json:"attempt,omitempty"`
		Error    string `json:"error,omitempty"`
	}{e.Workflow, e.Run, e.Step, e.Attempt, e.Error})
	event := audit.Event{Type: how.is, Outcome: how.outcome, Exchange: x, Component: audit.Composer, Name: e.Workflow, Kind: "workflow", Took: e.Took, Data: told}
	if e.Step != "" {
		event.Name, event.Kind = e.Step, "step"
	}
	if how.outcome == audit.Error {
		event.Reason = "step"
		if e.Kind == workflow.TimedOut {
			event.Reason = "timeout"
		}
	}
	s.record.Write(event)
}

// ownTools are the tools of the edge's own that a server lists; nil for none.
func ownTools(p *compile.Server) *catalog.List {
	var scripts *catalog.List
	if p.CodeMode != nil {
		scripts = codemode.List()
	}
	if len(p.Workflows) == 0 {
		return scripts
	}
	all := composite.List(p.Workflows)
	if scripts == nil {
		return all
	}
	describe, own := all.Describe, len(scripts.Items)
	return &catalog.List{
		Items: append(scripts.Items[:own:own], all.Items...),
		Asks:  all.Asks,
		Describe: func(item []byte, seen catalog.Things, c *catalog.Catalog) []byte {
			if string(item) == string(scripts.Items[0]) {
				return scripts.Describe(item, seen, c)
			}
			return describe(item, seen, c)
		},
	}
}
