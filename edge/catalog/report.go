package catalog

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/weir-edge/weir/edge"
)

// Reason is what a Finding is about.
type Reason string

// The reasons. Clients can neither list nor call a thing that is withheld.
const (
	Conflict  Reason = "conflict"  // withheld: several backends have the name, and nothing says whose it is
	Lost      Reason = "lost"      // withheld: the name is that of a backend that comes first
	SameName  Reason = "same-name" // withheld: different things end up with one name
	Taken     Reason = "taken"     // withheld: the name is one of the edge's own tools
	Twice     Reason = "twice"     // withheld: its backend lists it a second time
	Malformed Reason = "malformed" // withheld: it does not follow the protocol
	Headers   Reason = "headers"   // withheld: its x-mcp-header annotations are not valid
	Claims    Reason = "claims"    // withheld: its template would stand for every URI, or its backend has too many

	Unroutable Reason = "unroutable" // hidden, and workflows cannot name it either
	Repaired   Reason = "repaired"   // shown without what clients refuse the whole list for
	Shortened  Reason = "shortened"  // shown under a shorter name
	Renamed    Reason = "renamed"    // shown with "_" for characters that names must not have
	Long       Reason = "long"       // shown under a name that is too long for some models
	Unused     Reason = "unused"     // a rule names a tool that does not exist
)

// Withheld reports whether a thing with this finding is withheld from clients.
func (r Reason) Withheld() bool {
	switch r {
	case Conflict, Lost, SameName, Taken, Twice, Malformed, Headers, Claims:
		return true
	}
	return false
}

// Finding is something that the operator of a server should know of its catalog.
type Finding struct {
	Reason   Reason
	Thing    edge.Thing
	Backend  string
	Original string   // what the backend calls it, shortened when very long; "" when it has no name
	Name     string   // what it is shown as, or would have been; "" when that is the same
	With     []string // <backend>.<original> of the others of a conflict, at most ten
	Why      string
}

func (f Finding) String() string {
	var b strings.Builder
	what := Whole(f.Backend, f.Original)
	switch {
	case f.Backend == "" && f.Original != "":
		what = ofComposite + f.Original
	case f.Original == "":
		what = "of " + f.Backend
	}
	fmt.Fprintf(&b, "%s: %s %s", f.Reason, thingNames[f.Thing], plain(what))
	if f.Name != "" {
		fmt.Fprintf(&b, " as %s", plain(f.Name))
	}
	if f.Why != "" {
		fmt.Fprintf(&b, ": %s", f.Why)
	}
	for i, name := range f.With {
		if i == 0 {
			b.WriteString(" (with ")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(plain(name))
	}
	if len(f.With) > 0 {
		b.WriteByte(')')
	}
	return b.String()
}

// Advice is what was found, with the next step. Of a server that shows its one
// backend as it is, which is bare, nothing is withheld.
func (f Finding) Advice(bare bool) edge.Finding {
	meant, rename := "nothing, if priorityOrder is meant so; else ", "give it a name of its own with aggregation.tools[].overrides"
	switch f.Thing { // overrides are for tools alone
	case edge.Prompt:
		rename = "change priorityOrder or prefixFormat: what is not in the order gets the prefix"
	case edge.Resource, edge.Template:
		meant, rename = "nothing, if both backends mean the same by it; else ", "have whoever runs one of them change its URI"
	}
	c := edge.Warning(edge.ClassNames, "", "%s", f)
	if f.Reason.Withheld() {
		c.Level = edge.LevelProblem
	}
	switch f.Reason {
	case Conflict:
		c.Next = rename + ", hide the others with filter or excludeAll, or set conflictResolution: prefix"
	case Lost:
		c.Level = edge.LevelWarning
		c.Next = meant + rename
	case SameName, Taken:
		c.Next = rename
	case Twice, Malformed, Headers, Claims:
		c.Class = edge.ClassDefinition
		c.Next = "have whoever runs the backend correct its definition; until then clients do not see it"
	case Unroutable:
		c.Next = "nothing, if no workflow is to call it; else " + rename
	case Shortened, Long:
		c.Next = "give it a shorter name with aggregation.tools[].overrides, or set a shorter prefixFormat"
	case Renamed:
		c.Next = "nothing, if clients and policies may know it by that name; else " + rename
	case Unused:
		c.Next = "correct the name in the rule, or take the rule out"
	}
	if bare && c.Level == edge.LevelProblem {
		c.Level = edge.LevelWarning
	}
	return c
}

// plain quotes a name with characters that could alter a terminal or a log.
func plain(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

var thingNames = [...]string{"thing", "tool", "prompt", "resource", "template"}

// Report holds the findings made while a catalog was built.
type Report struct {
	Findings []Finding // sorted by thing, backend and name
	More     int       // how many more there were
}

const (
	maxFindings = 200 // of one kind of thing of one backend
	maxWith     = 10
)

func (t *table) found(f Finding) {
	if t.findings == nil {
		t.findings = make(map[string]int)
	}
	if t.findings[f.Backend]++; t.findings[f.Backend] > maxFindings {
		t.report.More++
		return
	}
	f.Thing, f.Original, f.Name, f.Why = t.thing, clip(f.Original), clip(f.Name), clip(f.Why)
	t.report.Findings = append(t.report.Findings, f)
}
