package health

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
)

// answer is an error that stands for an HTTP answer, as a backend's refusal does.
type answer int

func (a answer) Error() string   { return fmt.Sprintf("answered with HTTP %d", int(a)) }
func (a answer) HTTPStatus() int { return int(a) }

// The table of transitions, for a threshold of 3. An event is what a check met
// ("good", "slow", "401", "503", "silence", "cancelled", "busy"), or "cut" and
// "mend" for a breaker that opened and closed; behind it stand the status and
// the failures that follow.
func TestState(t *testing.T) {
	for _, c := range []struct {
		name       string
		credential bool
		threshold  int
		events     string
	}{
		{name: "well from the beginning", events: "good=ready/0 good=ready/0"},
		{name: "first failure from fresh", events: "503=unknown/1 503=unknown/2 503=unavailable/3 503=unavailable/4"},
		{name: "one failure is none yet", events: "good=ready/0 503=ready/1 503=ready/2 503=unavailable/3"},
		{name: "first success after failures, then the next", events: "good=ready/0 503=ready/1 good=degraded/0 good=ready/0"},
		{name: "back from unavailable", events: "503=unknown/1 503=unknown/2 503=unavailable/3 good=degraded/0 good=ready/0"},
		{name: "back from unknown", events: "503=unknown/1 good=degraded/0 good=ready/0"},
		{name: "fails again while it recovers", events: "good=ready/0 503=ready/1 good=degraded/0 503=degraded/1 503=degraded/2 503=unavailable/3"},
		{name: "slow", events: "slow=degraded/0 slow=degraded/0 good=ready/0 slow=degraded/0"},
		{name: "slow while it recovers", events: "503=unknown/1 slow=degraded/0 slow=degraded/0 good=ready/0"},
		{name: "silence", events: "good=ready/0 silence=ready/1 silence=ready/2 silence=unavailable/3"},
		{name: "refused, without a credential", events: "401=unknown/1 403=unknown/2 401=unauthenticated/3 401=unauthenticated/4"},
		{name: "refused, then well", events: "401=unknown/1 401=unknown/2 401=unauthenticated/3 good=degraded/0 good=ready/0"},
		{name: "refused, then dead", events: "401=unknown/1 401=unknown/2 401=unauthenticated/3 503=unavailable/4 401=unauthenticated/5"},
		{name: "the last of the failures says which", events: "503=unknown/1 503=unknown/2 401=unauthenticated/3"},
		{name: "refused, with a credential", credential: true, events: "401=ready/0 403=ready/0 503=ready/1 401=degraded/0 401=ready/0"},
		{name: "no credential to be had", credential: true, events: "nobody=unknown/1 nobody=unknown/2 nobody=unauthenticated/3 401=degraded/0"},
		{name: "its rate is limited", events: "429=ready/0 503=ready/1 429=degraded/0 429=ready/0"},
		{name: "something else lives there", events: "404=unknown/1 404=unknown/2 404=unavailable/3"},
		{name: "what says nothing changes nothing", events: "cancelled=unknown/0 503=unknown/1 cancelled=unknown/1 busy=unknown/1 503=unknown/2 503=unavailable/3 cancelled=unavailable/3 good=degraded/0 busy=degraded/0 good=ready/0 cancelled=ready/0"},
		{name: "a threshold of one", threshold: 1, events: "503=unavailable/1 good=degraded/0 good=ready/0 401=unauthenticated/1"},
		{name: "calls are refused", events: "good=ready/0 cut=unavailable/0 cut=unavailable/0 good=degraded/0 good=ready/0"},
		{name: "calls are refused, and a call mends it", events: "good=ready/0 cut=unavailable/0 mend=degraded/0 mend=degraded/0 good=ready/0"},
		{name: "calls are refused after failed checks", events: "good=ready/0 503=ready/1 cut=unavailable/1 503=unavailable/2 503=unavailable/3 good=degraded/0"},
		{name: "calls are refused, and then they are not", events: "good=ready/0 cut=unavailable/0 401=unavailable/1 mend=unavailable/1 401=unavailable/2 401=unauthenticated/3"},
		{name: "calls to an unauthenticated backend are refused", events: "401=unknown/1 401=unknown/2 401=unauthenticated/3 cut=unavailable/3 401=unauthenticated/4"},
		{name: "nothing to mend", events: "mend=unknown/0 503=unknown/1 mend=unknown/1 good=degraded/0 mend=degraded/0 good=ready/0 mend=ready/0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules := Rules{Threshold: c.threshold, Credential: c.credential}
			var s State
			at := time.Unix(1e9, 0)
			for i, event := range strings.Fields(c.events) {
				what, want, _ := strings.Cut(event, "=")
				before := s
				at = at.Add(time.Minute)
				s = happen(t, s, rules, what, at)
				if got := fmt.Sprintf("%s/%d", s.Is(), s.Failures); got != want {
					t.Fatalf("event %d: %s: got %s", i+1, event, got)
				}
				if s.Is() != before.Is() && !s.Since.Equal(at) || before.Status != "" && s.Is() == before.Is() && !s.Since.Equal(before.Since) {
					t.Errorf("event %d: %s: since %s", i+1, event, s.Since)
				}
				switch what {
				case "cut", "mend", "cancelled", "busy":
					if !s.Checked.Equal(before.Checked) {
						t.Errorf("event %d: %s counts as a check", i+1, event)
					}
				default:
					if !s.Checked.Equal(at) {
						t.Errorf("event %d: %s does not count as a check", i+1, event)
					}
				}
				if s.Status == Ready && s.Failures == 0 && what != "cancelled" && what != "busy" && s.Category != "" {
					t.Errorf("event %d: %s: ready, and %s", i+1, event, s.Category)
				}
				if (s.Status == Unavailable || s.Status == Unauthenticated) && (s.Category == "" || s.Message == "") {
					t.Errorf("event %d: %s: %s without a reason", i+1, event, s.Status)
				}
			}
		})
	}
}

func happen(t *testing.T, s State, r Rules, what string, at time.Time) State {
	t.Helper()
	c := Check{At: at, Took: 10 * time.Millisecond}
	switch what {
	case "cut":
		return s.Cut(at)
	case "mend":
		return s.Mend(at)
	case "good":
	case "slow":
		c.Took = 5*time.Second + 1
	case "silence":
		c.Err = edge.Errorf(edge.Timeout, "call", "nothing came")
	case "cancelled":
		c.Err = fmt.Errorf("ping: %w", context.Canceled)
	case "busy":
		c.Err = edge.Errorf(edge.Overload, "dial", "all connections are in use")
	case "nobody":
		c.Err = edge.Errorf(edge.Unauthenticated, "attach", "the exchange failed")
	default:
		var code int
		if _, err := fmt.Sscan(what, &code); err != nil {
			t.Fatalf("no event %q", what)
		}
		c.Err = &edge.Error{Kind: edge.Unavailable, Op: "ping", Err: answer(code)}
	}
	return s.After(r, c)
}

// At the limit an answer is not slow yet.
func TestSlow(t *testing.T) {
	for took, want := range map[time.Duration]Status{5 * time.Second: Ready, 5*time.Second + 1: Degraded} {
		if got := (State{}).After(Rules{}, Check{Took: took}); got.Status != want {
			t.Errorf("%s: %s", took, got.Status)
		}
	}
	if got := (State{}).After(Rules{Slow: time.Second}, Check{Took: 1234 * time.Millisecond}); got.Message != "took 1.2s to answer" {
		t.Error(got.Message)
	}
}

// A state is a value: what follows from it leaves it as it was.
func TestStateIsAValue(t *testing.T) {
	s := State{}.After(Rules{}, Check{Err: errors.New("x")})
	before := s
	_ = s.After(Rules{}, Check{})
	_ = s.Cut(time.Unix(1, 0)).Mend(time.Unix(2, 0))
	if s != before {
		t.Error("it changed")
	}
}

// The reason of an unavailable backend is that of its checks, if they failed;
// else that of its breaker.
func TestReasonOfACut(t *testing.T) {
	at := time.Unix(1e9, 0)
	if s := (State{}).After(Rules{}, Check{At: at}).Cut(at); s.Category != BackendUnavailable || !strings.Contains(s.Message, "circuit") {
		t.Errorf("%+v", s)
	}
	failed := State{}.After(Rules{}, Check{At: at, Err: edge.Errorf(edge.Timeout, "ping", "silent")})
	if s := failed.Cut(at); s.Category != TimedOut || s.Message != failed.Message {
		t.Errorf("%+v", s)
	}
	if s := failed.Cut(at).Mend(at); s.Category != "" || s.Message != "answers again" {
		t.Errorf("%+v", s)
	}
}
