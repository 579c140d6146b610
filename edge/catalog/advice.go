package catalog

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Advice is what was found, with the next step. Of a server that shows its one
// backend as it is, which is bare, nothing is withheld.
func (f Finding) Advice(bare bool) edge.Finding {
	const rename = "give it a name of its own with aggregation.tools[].overrides"
	c := edge.Warning(edge.ClassNames, "", "%s", f)
	if f.Reason.Withheld() {
		c.Level = edge.LevelProblem
	}
	switch f.Reason {
	case Conflict:
		c.Next = rename + ", hide the others with filter or excludeAll, or set conflictResolution: prefix"
	case Lost:
		c.Level = edge.LevelWarning
		c.Next = "nothing, if priorityOrder is meant so; else " + rename
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

// Look says whether a backend listed all that it declares within timeout; url is
// the one to show.
func (s BackendStatus) Look(url string, timeout time.Duration) edge.Finding {
	if !s.Missing {
		return edge.Fine(fmt.Sprintf("%s, %s, %s, %s", edge.Count(s.Tools, "tool"), edge.Count(s.Prompts, "prompt"), edge.Count(s.Resources, "resource"), edge.Count(s.Templates, "template")))
	}
	switch {
	case s.Message == "":
		return edge.Problem(edge.ClassTimeout, "look into the backend's log, or give it more time with --timeout", "not all of its lists are there within %s", timeout)
	case strings.Contains(s.Message, "refused the edge with HTTP 403") && !strings.Contains(s.Message, "credential"):
		return edge.Problem(edge.ClassRefused, "look into the backend's log for the reason", "%s", edge.Brief(s.Message))
	case strings.Contains(s.Message, "wants a credential"):
		return edge.Problem(edge.ClassCredential, "give the edge a credential for it: outgoingAuth of the server, externalAuthConfigRef or headerForward of the backend's own object", "%s", edge.Brief(s.Message))
	}
	return edge.Problem(edge.ClassLists, "look into the backend's log; `weir tools "+url+"` asks it without an edge", "%s", edge.Brief(s.Message))
}
