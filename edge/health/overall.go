package health

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Phase is the state of a server, in the words of status.phase of a
// VirtualMCPServer.
type Phase string

// The phases of a server. Edge and operator use this one table: a server without a
// backend that serves has Failed, and one with some is Degraded.
const (
	PhasePending  Phase = "Pending"  // no backend serves yet, and some are unknown
	PhaseReady    Phase = "Ready"    // every backend is routable, or there are none
	PhaseDegraded Phase = "Degraded" // some serve, and some are not routable or slow
	PhaseFailed   Phase = "Failed"   // every backend is unavailable
)

// Condition is one of status.conditions of a VirtualMCPServer, without the fields
// that only Kubernetes uses.
type Condition struct {
	Type    string    // "Ready", "Degraded" or "BackendsDiscovered"
	Status  string    // "True", "False" or "Unknown"
	Reason  string    // CamelCase
	Message string    // may be ""
	Since   time.Time // lastTransitionTime: when Status last changed
}

// Overview is the state of a server, derived from the statuses of its backends.
type Overview struct {
	Phase        Phase
	Message      string
	BackendCount int // the routable ones: ready and unauthenticated
	Conditions   []Condition
}

// Overall returns the overview of a server whose backends have these statuses. A
// status that is none of the five counts as Unknown. The conditions have no
// Since yet: see Overview.From.
func Overall(statuses ...Status) Overview {
	count := make(map[Status]int, 5)
	for _, s := range statuses {
		switch s {
		case Ready, Degraded, Unavailable, Unauthenticated:
			count[s]++
		default:
			count[Unknown]++
		}
	}
	all, routable := len(statuses), count[Ready]+count[Unauthenticated]
	o := Overview{BackendCount: routable}
	ready := Condition{Type: "Ready", Status: "False"}
	switch {
	case all == 0:
		o.Phase, o.Message = PhaseReady, "there are no backends"
		ready.Status, ready.Reason = "True", "AllBackendsRoutable"
	case routable == all:
		o.Phase, o.Message = PhaseReady, fmt.Sprintf("%s: %s", of(all, all, "routable"), parts(count))
		ready.Status, ready.Reason = "True", "AllBackendsRoutable"
	case routable+count[Degraded] > 0:
		o.Phase, o.Message = PhaseDegraded, fmt.Sprintf("%s: %s", of(routable, all, "routable"), parts(count))
		ready.Reason = "SomeBackendsUnhealthy"
	case count[Unknown] > 0:
		o.Phase, o.Message = PhasePending, fmt.Sprintf("%s: %s", of(routable, all, "routable yet"), parts(count))
		ready.Status, ready.Reason = "Unknown", "BackendsPending"
	default:
		o.Phase, o.Message = PhaseFailed, fmt.Sprintf("%s: %s", of(routable, all, "routable"), parts(count))
		ready.Reason = "NoRoutableBackends"
	}
	ready.Message = o.Message

	degraded := Condition{Type: "Degraded", Status: "False", Reason: "NoBackendsDegraded"}
	if n := count[Degraded]; n > 0 {
		degraded.Status, degraded.Reason, degraded.Message = "True", "BackendsDegraded", of(n, all, "slow or recovering")
	}
	discovered := Condition{Type: "BackendsDiscovered", Status: "True", Reason: "BackendDiscoverySucceeded", Message: fmt.Sprintf("%d in the group", all)}
	o.Conditions = []Condition{ready, degraded, discovered}
	return o
}

// Lacking returns the overview where n routable backends answer and give no lists.
func (o Overview) Lacking(n int) Overview {
	if n == 0 {
		return o
	}
	why := fmt.Sprintf("the lists of %d cannot be had", n)
	if o.Phase == PhaseReady {
		o.Phase = PhaseDegraded
	}
	o.Message += "; " + why
	o.Conditions = slices.Clone(o.Conditions)
	for i := range o.Conditions {
		if c := &o.Conditions[i]; c.Type == "Degraded" {
			if c.Status == "True" {
				why = c.Message + "; " + why
			}
			c.Status, c.Reason, c.Message = "True", "BackendsDegraded", why
		}
	}
	return o
}

// From returns the overview with the time of each condition: that of the
// condition before it if its status is the same, else now.
func (o Overview) From(before []Condition, now time.Time) Overview {
	after := make([]Condition, len(o.Conditions))
	for i, c := range o.Conditions {
		c.Since = now
		for _, b := range before {
			if b.Type == c.Type && b.Status == c.Status {
				c.Since = b.Since
			}
		}
		after[i] = c
	}
	o.Conditions = after
	return o
}

func of(n, all int, what string) string {
	noun, verb := "backends", "are"
	if all == 1 {
		noun = "backend"
	}
	if n == 1 || all == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%d of %d %s %s %s", n, all, noun, verb, what)
}

func parts(count map[Status]int) string {
	var out []string
	for _, s := range []Status{Ready, Degraded, Unavailable, Unauthenticated, Unknown} {
		if n := count[s]; n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(out, ", ")
}
