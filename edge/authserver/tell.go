package authserver

import (
	"net/http"
	"strings"
	"sync"

	"github.com/weir-edge/weir/edge"
)

// Outcome is how something ended.
type Outcome string

// The outcomes.
const (
	Done    Outcome = "done"
	Denied  Outcome = "denied"  // by the user, or by an upstream
	Refused Outcome = "refused" // for a fault of the client
	Failed  Outcome = "failed"  // for a fault of an upstream, or of this server
)

// Event is what was decided. It holds no token, code, state, verifier or secret.
type Event struct {
	What     string // authorize, consent, return, token, register, revoke, code_reuse, refresh_reuse
	Outcome  Outcome
	Reason   string // a word of the protocol, or a status; "" for none
	Kind     string // of a grant, for token
	Client   string // a URL, or 8 hex of the digest of a registration; "" for nobody known
	Subject  string // as in our tokens; "" where nobody is known
	Provider string // upstream; "" for none
	Request  string // its id
	Remote   string // address of the client, for records alone
}

// shown is a client as logs, audit and metrics have it.
func shown(key string) string {
	if short, ok := strings.CutPrefix(key, "weir1-"); ok && len(short) > 8 {
		return short[:8]
	}
	return key
}

// tell counts an event, and says it.
func (s *Server) tell(r *http.Request, e Event) {
	s.counts.add(e)
	if s.told == nil {
		return
	}
	e.Client, e.Request, e.Remote = shown(e.Client), r.Header.Get("X-Request-Id"), edge.SourceOf(r)
	s.told(e)
}

// counts are how often what ended how.
type counts struct {
	mu  sync.Mutex
	all map[counted]uint64
}

type counted struct {
	what    string
	outcome Outcome
}

func (c *counts) add(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[counted]uint64{}
	}
	c.all[counted{e.What, e.Outcome}]++
}

// Collect is edge.Collector.Collect.
func (s *Server) Collect(m edge.Emitter) {
	s.counts.mu.Lock()
	for of, n := range s.counts.all {
		m.With("what", of.what).With("outcome", string(of.outcome)).Counter("weir_authserver_decisions", "What the authorization server decided.", float64(n))
	}
	s.counts.mu.Unlock()
	m.Counter("weir_authserver_corrupt", "Records of the authorization server that did not open.", float64(s.records.bad.Load()))
	now := s.Status()
	m.Gauge("weir_authserver_waiting", "Logins whose users are at an upstream.", float64(now.Waiting))
	for _, one := range now.Secrets {
		m.With("secret", one.Name).Gauge("weir_authserver_grants", "About how many sign-ins live, by the secret that their clients are registered under.", float64(one.Grants))
	}
	if now.Shared {
		disagree := 0.0
		if now.Agreement.Message != "" {
			disagree = 1
		}
		m.Gauge("weir_authserver_replicas", "Replicas of the authorization server that were seen in the last minute.", float64(now.Agreement.Replicas))
		m.Gauge("weir_authserver_disagreement", "1 while another replica has other secrets, keys or time.", disagree)
	}
}
