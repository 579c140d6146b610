// Package health knows whether a backend is worth a call.
//
// Two state machines watch a backend. The Breaker guards every call and probe: after
// a number of failures in a row it opens, and refuses at once calls that would only
// wait; after its timeout it lets one exchange through on trial, whose result closes
// it or opens it again. The State is the result of checks, in the words of
// status.discoveredBackends: a state machine without a clock and without a lock, whose
// methods take an event and return the next state.
//
// A Monitor drives both for one backend. It calls the probe that it is given, a ping
// or a server/discover and never a listing:
//
//   - every interval (config.operational.failureHandling.healthCheckInterval),
//     a little earlier or later by chance, so that many backends and many edges
//     drift apart. Such a probe is a check: it counts, for the status and for
//     the breaker.
//   - in between, after a failure, at 1 s, 2 s, 4 s and so on for as long as
//     that ends before the next check. Such a probe is an attempt: its
//     purpose is to notice early that the backend is back, and it counts only if it
//     succeeds. So attempts do not shorten, and back-off does not lengthen, the time
//     that interval and threshold promise.
//   - as the trial of an open breaker, as soon as one may be made. An open
//     breaker lets no other probe through.
//   - not at all, once a backend has refused as many checks in a row with 401 or
//     403 as the threshold names: to send the same credential again could only lock
//     an account. Monitor.Again is called when the configuration or the credential
//     has changed, or a call was let in. Checks without a credential (Config.Bare)
//     lock nothing, and go on.
//
// The status follows the breaker. While calls are refused the backend is
// unavailable, whatever its last check said. The monitor reports changes at
// most once in Config.Quiet, with the status at that time; its methods return the
// status at the moment of the call.
//
// Overall derives the phase of a server and its conditions from the statuses of its
// backends.
package health

import (
	"fmt"
	"time"
)

// Status is the state of a backend, in the words of
// status.discoveredBackends[].status of a VirtualMCPServer.
type Status string

// The statuses of a backend. Ready and Unauthenticated ones are routable
// (status.backendCount).
const (
	Ready           Status = "ready"           // it answers, and in time
	Degraded        Status = "degraded"        // it answers slowly, or has only begun to answer again
	Unavailable     Status = "unavailable"     // it failed too many checks in a row, or calls to it are refused
	Unauthenticated Status = "unauthenticated" // it requires a credential, and none is configured
	Unknown         Status = "unknown"         // no check has succeeded yet, and fewer than the threshold failed
)

// Category is the kind of failure of a check; "" for none.
type Category string

// The categories of failure.
const (
	AuthenticationFailed Category = "authentication_failed"
	TimedOut             Category = "timeout"
	Cancelled            Category = "cancelled" // by the edge, which says nothing about the backend
	Refused              Category = "refused"   // with 403, without a challenge
	BackendUnavailable   Category = "backend_unavailable"
	ConnectionFailed     Category = "connection_failed"
	CheckFailed          Category = "health_check_failed" // anything else
)

// Rules say how checks become a status. A zero field takes its default.
type Rules struct {
	// Threshold is the number of failed checks in a row after which a backend is
	// unavailable (failureHandling.unhealthyThreshold); 3 by default.
	Threshold int

	// Slow is how long an answer may take before the backend counts as degraded;
	// 5 s by default.
	Slow time.Duration

	// Credential says that outgoing authentication is configured: a 401 or 403
	// then only says that the edge asked on nobody's behalf, and the backend is
	// healthy.
	Credential bool
}

func (r Rules) withDefaults() Rules {
	if r.Threshold < 1 {
		r.Threshold = 3
	}
	if r.Slow <= 0 {
		r.Slow = 5 * time.Second
	}
	return r
}

// Check is the result of one probe.
type Check struct {
	At   time.Time     // when it ended
	Took time.Duration // from its beginning
	Err  error         // nil if the backend answered, even with a JSON-RPC error
}

// State is the state of a backend at a moment. Its methods return the next state and
// change nothing. The zero State is that of a backend that was never probed.
type State struct {
	Status   Status    // "" is that of the zero State and means Unknown
	Message  string    // result of the last check; short, with the backend's own text only for the first words of a refusal
	Category Category  // of the failure in Message
	Failures int       // failed checks in a row; 0 when healthy
	Checked  time.Time // when the last check ended; zero for never
	Since    time.Time // when the status last changed; zero for never

	cut bool // the breaker opened, and no exchange has succeeded since
}

// Is returns the status, Unknown for the zero State.
func (s State) Is() Status {
	if s.Status == "" {
		return Unknown
	}
	return s.Status
}

// After returns the state after a check.
//
//	good check, none failed before             ready, or degraded when slow
//	good check, the first after a failed one   degraded
//	failed check, fewer than threshold         as it was: unknown from fresh
//	failed check, threshold reached            unavailable, or unauthenticated
//	                                           after a 401 or 403
//	check that says nothing of the backend     as it was
func (s State) After(r Rules, c Check) State {
	r = r.withDefaults()
	f := examine(c.Err)
	s.Message, s.Category = f.message, f.category
	if f.outcome == Neutral && !f.bad {
		return s
	}
	s.Checked = c.At
	if f.bad && !(f.refused && r.Credential) {
		s.Failures++
		s.cut = false // from here on the failures say it
		if s.Failures >= r.Threshold {
			return s.to(f.status(), c.At)
		}
		return s.to(s.Is(), c.At)
	}
	s.Category = ""
	switch again := s.cut || s.Failures > 0; {
	case c.Took > r.Slow:
		s.Message = fmt.Sprintf("took %s to answer", c.Took.Round(100*time.Millisecond))
		fallthrough
	case again:
		if s.Message == "" {
			s.Message = "answers again"
		}
		s = s.to(Degraded, c.At)
	default:
		s = s.to(Ready, c.At)
	}
	s.Failures, s.cut = 0, false
	return s
}

// Cut returns the state of a backend whose breaker is open since a moment:
// calls to it are refused.
func (s State) Cut(at time.Time) State {
	if s.cut {
		return s
	}
	s.cut = true
	if s.Failures == 0 {
		s.Category, s.Message = BackendUnavailable, "failed too many calls in a row: its circuit is open"
	}
	return s.to(Unavailable, at)
}

// Mend returns the state of a backend whose breaker a call has closed at a
// moment. The call was the first success after failures.
func (s State) Mend(at time.Time) State {
	if !s.cut {
		return s
	}
	s.cut, s.Failures, s.Category, s.Message = false, 0, "", "answers again"
	return s.to(Degraded, at)
}

func (s State) to(status Status, at time.Time) State {
	if s.Status != status {
		s.Status, s.Since = status, at
	}
	return s
}
