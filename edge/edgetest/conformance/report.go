package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// run is what has become of a cell.
type run struct {
	cell      cell
	leg       string // server, stdio, optimizer, client, authorization, issuer, or the name of one of compiledServers: what the suite tests
	scenarios []scenario
	direct    results // without the edge; for a cell of two eras, with a backend of the set's own
	edge      results // nil without an edge
	reasons   map[string]string
}

// report writes the cell's table, and what is wrong besides, and returns the
// number of faults: in a cell of one era, scored scenarios that do not pass; in
// one of two, scenarios that fail without a reason although they pass directly,
// and reasons of such that pass or are not there.
func (r run) report(w io.Writer) (faults int) {
	// 1. The table.
	fmt.Fprintf(w, "\n%s\n", r.title())
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	header := "SCENARIO\tSCORED\tDIRECT"
	if r.leg == "authorization" {
		header = "SCENARIO\tSCORED\tWEIR CALL"
	}
	if r.leg == "issuer" {
		header = "SCENARIO\tSCORED\tTHE EDGE"
	}
	switch _, twice := compiledNamed(r.leg); {
	case twice:
		header = "SCENARIO\tSCORED\tNATIVELY\tAS A MODULE"
	case r.edge != nil:
		header += "\tTHROUGH THE EDGE"
	}
	fmt.Fprintln(table, header)
	for _, s := range r.scenarios {
		scored := "no"
		if s.scored {
			scored = "yes"
		}
		row := s.name + "\t" + scored + "\t" + r.alone(s).String()
		if r.edge != nil {
			row += "\t" + r.through(s).String()
		}
		fmt.Fprintln(table, row)
	}
	_ = table.Flush() // w keeps its errors to itself, as it is a terminal or a pipe

	// 2. What fails, and why.
	for _, s := range r.scenarios {
		v := r.last(s)
		for _, line := range v.noted {
			fmt.Fprintf(w, "- %s: %s\n", s.name, line)
		}
		reason, excused := r.reasons[s.name]
		switch {
		case v.pass && excused:
			faults++
			fmt.Fprintf(w, "✗ %s passes, and %s has a reason why it does not\n", s.name, r.table())
		case v.pass:
		case (r.cell.crosses() || r.leg == "optimizer") && excused:
			fmt.Fprintf(w, "- %s: %s\n", s.name, reason)
		case r.edge != nil && !r.alone(s).pass && (!s.scored || r.cell.crosses()):
			fmt.Fprintf(w, "- %s fails directly as well\n", s.name)
		default:
			mark := "-"
			if s.scored || r.cell.crosses() {
				faults++
				mark = "✗"
			}
			fmt.Fprintf(w, "%s %s: %s\n", mark, s.name, strings.Join(v.faults, "\n    "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.reasons)) {
		if !slices.ContainsFunc(r.scenarios, func(s scenario) bool { return s.name == name }) {
			faults++
			fmt.Fprintf(w, "✗ %s: %s has a reason for it, and it was not run\n", name, r.table())
		}
	}

	// 3. The sum.
	fmt.Fprintln(w, r.summary())
	return faults
}

// table is where the reasons stand.
func (r run) table() string {
	if r.leg == "optimizer" {
		return "reasons.go"
	}
	return "crossera.tsv"
}

func (r run) title() string {
	title := r.cell.String()
	switch r.leg {
	case "stdio":
		title += " on standard streams"
	case "Go", "Rust":
		return title + " in WebAssembly, in " + r.leg
	case "optimizer":
		title += " with the optimizer"
	case "client":
		title = r.cell.set + " client scenarios"
	case "authorization":
		title = r.cell.set + " client scenarios about authorization"
	case "issuer":
		title = r.cell.set + " scenarios for authorization servers"
	}
	if r.cell.crosses() {
		title += " (direct: with a backend of the set's own era)"
	}
	return title
}

// alone and through are the verdicts on a scenario without and with the edge,
// last is the one that counts.
func (r run) alone(s scenario) verdict { return judge(r.direct, s.name, nil) }
func (r run) through(s scenario) verdict {
	if r.leg == "client" {
		// What is seen of a client depends on what it declares, and the edge
		// declares for itself.
		return judge(r.edge, s.name, nil)
	}
	if r.leg == "optimizer" {
		return r.found(s)
	}
	return judge(r.edge, s.name, r.direct)
}

// found is through where clients find tools: a check about the list may come to nothing, and
// has to.
func (r run) found(s scenario) verdict {
	var asked []check
	var noted, faults []string
	for _, c := range r.direct[s.name] {
		reason := unlisted[c.ID]
		switch {
		case reason == "" || c.Status != "SUCCESS":
			asked = append(asked, c)
		case slices.ContainsFunc(r.edge[s.name], func(e check) bool { return e.ID == c.ID && e.Status == "SUCCESS" }):
			faults = append(faults, c.ID+": succeeds, and reasons.go has a reason why it comes to nothing")
		default:
			noted = append(noted, c.ID+" comes to nothing: "+reason)
		}
	}
	v := judge(r.edge, s.name, results{s.name: asked})
	v.noted, v.faults = append(v.noted, noted...), append(v.faults, faults...)
	v.pass = len(v.faults) == 0
	return v
}

func (r run) last(s scenario) verdict {
	if r.edge == nil {
		return r.alone(s)
	}
	return r.through(s)
}

// summary is the line by which a cell is known: `SET ERA backend: N of M scored`.
func (r run) summary() string {
	var pass, scored, also, unscored int
	for _, s := range r.scenarios {
		ok := r.last(s).pass
		switch {
		case s.scored && ok:
			pass, scored = pass+1, scored+1
		case s.scored:
			scored++
		case ok:
			also, unscored = also+1, unscored+1
		default:
			unscored++
		}
	}
	name := r.cell.String()
	switch r.leg {
	case "stdio":
		name += " on standard streams"
	case "Go", "Rust":
		name += " in WebAssembly, in " + r.leg
	case "optimizer":
		name += " with the optimizer"
	case "client":
		name = r.cell.set + " clients"
	case "authorization":
		name = r.cell.set + " authorization of clients"
	case "issuer":
		name = r.cell.set + " authorization server"
	}
	where := ""
	if r.edge == nil && r.leg != "authorization" && r.leg != "issuer" {
		where = ", directly"
	}
	return fmt.Sprintf("%s: %d of %d scored; %d of %d unscored%s", name, pass, scored, also, unscored, where)
}

func (v verdict) String() string {
	word := "FAIL"
	if v.pass {
		word = "pass"
	}
	return fmt.Sprintf("%s %d/%d", word, v.made, v.of)
}
