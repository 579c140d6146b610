package authz

import (
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

const (
	// maxReadings is how many bytes of other readings of URIs are judged for one
	// message, and perReading what each counts besides.
	maxReadings = 512 << 10
	perReading  = 128
)

// bothWays judges what is asked as it is written, and the URI of a resource
// under all of its readings. What a message says is what a backend gets, so a URI
// that leads to different places for different readers is denied, its canonical
// form has to be allowed as well, and under no other reading may it be forbidden.
func bothWays(a *ask, judge func(*ask) *Explanation) *Explanation {
	if a.thing.Thing != edge.Resource && a.thing.Thing != edge.Template {
		return judge(a)
	}
	r, ok := mcp.ReadURI(a.thing.Name)
	if !ok {
		return deny(ReasonURI)
	}
	e := judge(a)
	if !e.Allowed {
		return e
	}
	other := *a
	if r.Canonical != a.thing.Name {
		other.thing.Name = r.Canonical
		if again := judge(&other); !again.Allowed {
			return again
		}
	}
	for _, name := range r.Others {
		if a.readings != nil {
			if *a.readings -= perReading + len(name); *a.readings < 0 {
				return deny(ReasonReadings)
			}
		}
		other.thing.Name = name
		// That no policy permits what few readers take it for is no reason: most
		// name what they permit by one of its names.
		if again := judge(&other); !again.Allowed && again.Reason != ReasonNoPermit {
			return again
		}
	}
	return e
}
