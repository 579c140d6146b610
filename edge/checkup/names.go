package checkup

import (
	"context"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/composite"
)

// offers lists the tools, prompts and resources of the backends that spoke, and
// checks what clients would see of them under the server's own rules.
func (c Config) offers(ctx context.Context, s compile.Server, all []*patient) []edge.Finding {
	var sources []catalog.Source
	var here []*patient
	var absent, theirs []string
	for _, p := range all {
		if p.open == nil {
			absent = append(absent, p.plan.Name)
			continue
		}
		here = append(here, p)
		one := offering{Backend: p.open}
		if p.personal() && p.User != nil {
			one.user = p.User
			theirs = append(theirs, p.plan.Name)
		}
		sources = append(sources, one)
	}
	if len(sources) == 0 {
		return nil
	}

	// 1. The lists, each within the time of a step.
	book := catalog.Open(catalog.Config{
		Rules: s.Names, Sources: sources, BestEffort: true,
		Interval: time.Hour, Wait: c.Timeout, Timeout: c.Timeout,
	})
	defer book.Close()
	for thing := edge.Tool; thing <= edge.Template; thing++ {
		if _, err := book.Catalog(ctx, nil, thing); err != nil {
			return nil // ctx has ended, which is told at the end
		}
	}
	var out []edge.Finding
	for i, one := range book.Status() {
		out = append(out, c.Step(ctx, "lists", here[i].subject, func(context.Context) edge.Finding { return one.Look(here[i].endpoint(), c.Timeout) }))
		if one.Missing || one.Personal {
			absent = append(absent, one.Backend)
		}
	}

	// 2. The names.
	add := func(f edge.Finding) {
		out = append(out, c.Step(ctx, "names", s.Name, func(context.Context) edge.Finding { return f }))
	}
	report := book.Report()
	for _, f := range report.Findings {
		add(f.Advice(s.Bare))
	}
	if report.More > 0 {
		add(edge.Warning(edge.ClassNames, "correct what is named above, and look again", "%d more, for which there is no room", report.More))
	}
	shown, err := book.Catalog(ctx, nil, edge.NoThing)
	if err != nil {
		return out
	}
	if c.Offers != nil {
		c.Offers(shown, absent)
	}
	composed := composite.Look(s.Workflows, shown, nil)
	if len(absent) == 0 { // else it may be one of theirs
		for _, step := range composed.Missing {
			add(edge.Warning(edge.ClassNames, "correct the tool of the step, WORKLOAD.TOOL by its own name: until then calls of the composite tool fail", "composite tool %s, and there is no such tool", step))
		}
	}
	for _, hints := range composed.Lax {
		add(edge.Warning(edge.ClassNames, "take them out of its annotations: clients are told what the steps do", "composite tool %s promises more than its steps do", hints))
	}
	var counts []string
	for _, kind := range []struct {
		thing edge.Thing
		name  string
	}{{edge.Tool, "tool"}, {edge.Prompt, "prompt"}, {edge.Resource, "resource"}, {edge.Template, "template"}} {
		n := 0
		for range shown.Items(kind.thing) {
			n++
		}
		counts = append(counts, edge.Count(n, kind.name))
	}
	detail := "clients see " + strings.Join(counts, ", ")
	if len(theirs) > 0 {
		detail += "; of " + strings.Join(theirs, ", ") + " those of the user"
	}
	if len(absent) > 0 {
		detail += "; without " + strings.Join(absent, ", ")
	}
	add(edge.Fine(detail))
	return out
}
