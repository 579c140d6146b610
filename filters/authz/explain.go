package authz

import "strings"

// Explanation says how a decision came about. It is shared by all who get the
// same decision, and never changed.
type Explanation struct {
	Allowed  bool     `json:"allowed"`
	Reason   string   `json:"reason"`             // in words; see the Reason constants
	Action   string   `json:"action,omitempty"`   // as policies name it, such as Action::"call_tool"
	Resource string   `json:"resource,omitempty"` // such as Tool::"weather"
	Policies []string `json:"policies,omitempty"` // that decided: the permits, or the forbids
	Open     []string `json:"open,omitempty"`     // that depend on arguments, where those are not known
	Errors   []Fault  `json:"errors,omitempty"`   // policies that could not be evaluated
	Version  string   `json:"version,omitempty"`  // of the policy set: equal for equal sets
}

// Fault is a policy that could not be evaluated.
type Fault struct {
	Policy string `json:"policy"`
	What   string `json:"what"`
}

// Reasons of decisions.
const (
	ReasonPermitted = "permitted"
	ReasonOpen      = "depends on arguments"
	ReasonUnneeded  = "needs no policy"
	ReasonForbidden = "forbidden"
	ReasonNoPermit  = "no policy permits it"
	ReasonError     = "a policy could not be evaluated"
	ReasonUnknown   = "no such thing"
	ReasonUnmapped  = "the method has no action"
	ReasonIdentity  = "nothing is known of who asks"
	ReasonClaims    = "the claims cannot be read"
	ReasonArguments = "the arguments cannot be read"
	ReasonURI       = "the URI can be read in more than one way"
	ReasonReadings  = "the URIs can be read in too many ways"
	ReasonTask      = "the task is not known"
	ReasonPoint     = "the decision point did not answer"
	ReasonTooMany   = "too many things at once"
	ReasonPointSays = "the decision point says so"
	ReasonNoBackend = "a policy asks where it comes from, which is not known"
)

// String is the explanation on one line.
func (e *Explanation) String() string {
	var b strings.Builder
	if e.Allowed {
		b.WriteString("allow: ")
	} else {
		b.WriteString("deny: ")
	}
	b.WriteString(e.Reason)
	list := func(title string, ids []string) {
		if len(ids) > 0 {
			b.WriteString("; " + title + " " + strings.Join(ids, ", "))
		}
	}
	list("by", e.Policies)
	list("open", e.Open)
	for _, f := range e.Errors {
		b.WriteString("; " + f.Policy + ": " + f.What)
	}
	return b.String()
}

func deny(reason string, faults ...Fault) *Explanation {
	return &Explanation{Reason: reason, Errors: faults}
}
