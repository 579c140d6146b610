package serve

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/filters/audit"
)

// Credentials that depend on the user are made by asking others. Each attempt is counted,
// and told to the audit log and the trace of the server that is served then.

// share returns what the credentials of a server have in common, which ends when nobody has
// it any longer: a backend that a reload leaves as it is keeps what its users were given.
func (w *world) share(server string) (*edge.Shared, func()) {
	one, release, _ := w.shared.Get(server, func() (*edge.Shared, func(), error) { // it cannot fail
		one := &edge.Shared{}
		return one, one.Close, nil
	})
	return one, release
}

// made returns what hears of attempts to make a credential for backends of a server.
func (e *Edge) made(server string) func(edge.Made) {
	return func(m edge.Made) {
		l := e.live.Load()
		if l == nil || l.servers[server] == nil {
			return
		}
		l.servers[server].tell(m)
	}
}

// tell counts an attempt, and tells of it.
func (s *server) tell(m edge.Made) {
	s.exchanged.add(m)
	why := ""
	if m.Err != nil {
		why = m.Outcome()
		level := slog.LevelDebug // a user's matter
		if k := edge.KindOf(m.Err); k != edge.Unauthenticated && k != edge.Denied {
			level = slog.LevelWarn
		}
		s.log.Log(context.Background(), level, "no credential for a backend", "strategy", m.Strategy, "outcome", why, "error", m.Err)
	}
	if s.measure != nil && m.Context != nil {
		s.measure.Happened(m.Context, "credential "+m.Strategy, m.Began, m.Took, why, "weir.credential.strategy", m.Strategy, "weir.credential.outcome", m.Outcome())
	}
	if s.record == nil {
		return
	}
	event := audit.Event{
		Type: audit.CredentialMade, Exchange: &edge.Exchange{Server: s.Name, Identity: m.Who}, Name: m.Strategy, Kind: "strategy", Reason: why, Took: m.Took,
	}
	switch {
	case edge.KindOf(m.Err) == edge.Denied || edge.KindOf(m.Err) == edge.Unauthenticated:
		event.Outcome = audit.Denied
	case m.Err != nil:
		event.Outcome = audit.Error
	}
	if m.Err != nil {
		event.Data = mcp.Change(nil, nil, mcp.Raw("error", mcp.Quote(edge.Brief(m.Err.Error()))))
	}
	s.record.Write(event)
}

// exchanged counts attempts to get credentials of users.
type exchanged struct {
	mu   sync.Mutex
	all  map[attempt]int
	took time.Duration
}

type attempt struct{ strategy, outcome string }

type exchangedKey struct{}

// exchangedOf returns the counts of a server, which go on over reloads.
func exchangedOf(shared *edge.Shared) *exchanged {
	return shared.Of(exchangedKey{}, edge.Env{}, func(func(func())) any { return &exchanged{} }).(*exchanged)
}

func (e *exchanged) add(m edge.Made) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil {
		e.all = make(map[attempt]int)
	}
	e.all[attempt{m.Strategy, m.Outcome()}]++
	e.took += m.Took
}

// collect emits the counts, and what is kept.
func (e *exchanged) collect(m edge.Emitter, kept *outgoing.Cache) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for of, n := range e.all {
		m.With("strategy", of.strategy).With("outcome", of.outcome).Counter("weir_credential_exchanges", "Attempts to get a credential of a user for a backend.", float64(n))
	}
	m.Counter("weir_credential_exchange_seconds", "Time that they took.", e.took.Seconds())
	is := kept.Stats()
	m.Counter("weir_credential_hits", "Requests to backends that found their credential kept.", float64(is.Hits))
	m.Gauge("weir_credentials_kept", "Credentials, and refusals, that are kept.", float64(is.Entries))
	m.Gauge("weir_credentials_kept_bytes", "Bytes that they take.", float64(is.Bytes))
}
