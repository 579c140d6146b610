package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/compile"
)

// offers has the backends that spoke list what they offer, and looks at what
// clients would see of it, by the server's own rules.
func (d *doctor) offers(ctx context.Context, s compile.Server, all []*patient) []check {
	var sources []catalog.Source
	var here []*patient
	var absent []string
	for _, p := range all {
		if p.open == nil {
			absent = append(absent, p.plan.Name)
			continue
		}
		here = append(here, p)
		sources = append(sources, offering{p.open})
	}
	if len(sources) == 0 {
		return nil
	}

	// 1. The lists, each within the time of a step.
	book := catalog.Open(catalog.Config{
		Rules: s.Names, Sources: sources, BestEffort: true,
		Interval: time.Hour, Wait: d.timeout, Timeout: d.timeout,
	})
	defer book.Close()
	for thing := edge.Tool; thing <= edge.Template; thing++ {
		if _, err := book.Catalog(ctx, nil, thing); err != nil {
			return nil // ctx has ended, which is told at the end
		}
	}
	var out []check
	for i, one := range book.Status() {
		c := listed(one, here[i], d.timeout)
		c.Step, c.Subject = "lists", here[i].subject
		out = append(out, d.tell(c))
		if one.Missing {
			absent = append(absent, one.Backend)
		}
	}

	// 2. The names.
	add := func(c check) {
		c.Step, c.Subject = "names", s.Name
		out = append(out, d.tell(c))
	}
	report := book.Report()
	for _, f := range report.Findings {
		add(finding(f, s.Bare))
	}
	if report.More > 0 {
		add(warning(ofNames, "correct what is named above, and look again", "%d more, for which there is no room", report.More))
	}
	shown, err := book.Catalog(ctx, nil, edge.NoThing)
	if err != nil {
		return out
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
		counts = append(counts, plural(n, kind.name))
	}
	detail := "clients see " + strings.Join(counts, ", ")
	if len(absent) > 0 {
		detail += "; without " + strings.Join(absent, ", ")
	}
	add(fine(detail))
	return out
}

// listed says whether a backend listed all that it declares.
func listed(s catalog.BackendStatus, p *patient, timeout time.Duration) check {
	if !s.Missing {
		return fine(fmt.Sprintf("%s, %s, %s, %s", plural(s.Tools, "tool"), plural(s.Prompts, "prompt"), plural(s.Resources, "resource"), plural(s.Templates, "template")))
	}
	switch {
	case s.Message == "":
		return problem(ofSilence, "look into the backend's log, or give it more time with --timeout", "not all of its lists are there within %s", timeout)
	case strings.Contains(s.Message, "refused the edge with HTTP 403") && !strings.Contains(s.Message, "credential"):
		return problem(ofRefusal, "look into the backend's log for the reason", "%s", brief(s.Message))
	case strings.Contains(s.Message, "wants a credential"):
		return problem(ofCredential, "give the edge a credential for it: outgoingAuth of the server, externalAuthConfigRef or headerForward of the backend's own object", "%s", brief(s.Message))
	}
	return problem(ofLists, "look into the backend's log; `weir tools "+p.endpoint()+"` asks it without an edge", "%s", brief(s.Message))
}

// finding is what the catalog found, with the next step. Of a server that shows
// its one backend as it is nothing is withheld.
func finding(f catalog.Finding, bare bool) check {
	const rename = "give it a name of its own with aggregation.tools[].overrides"
	c := warning(ofNames, "", "%s", f)
	if f.Reason.Withheld() {
		c.Level = levelProblem
	}
	switch f.Reason {
	case catalog.Conflict:
		c.Next = rename + ", hide the others with filter or excludeAll, or set conflictResolution: prefix"
	case catalog.Lost:
		c.Level = levelWarning
		c.Next = "nothing, if priorityOrder is meant so; else " + rename
	case catalog.SameName, catalog.Taken:
		c.Next = rename
	case catalog.Twice, catalog.Malformed, catalog.Headers, catalog.Claims:
		c.Class = ofDefinitions
		c.Next = "have whoever runs the backend correct its definition; until then clients do not see it"
	case catalog.Unroutable:
		c.Next = "nothing, if no workflow is to call it; else " + rename
	case catalog.Shortened, catalog.Long:
		c.Next = "give it a shorter name with aggregation.tools[].overrides, or set a shorter prefixFormat"
	case catalog.Renamed:
		c.Next = "nothing, if clients and policies may know it by that name; else " + rename
	case catalog.Unused:
		c.Next = "correct the name in the rule, or take the rule out"
	}
	if bare && c.Level == levelProblem {
		c.Level = levelWarning
	}
	return c
}
