package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/filters/webhook"
)

// status is the status of the server in the words of the VirtualMCPServer's
// own status, with what goes on in the process beside it.
type status struct {
	Name               string          `json:"name"`
	Phase              string          `json:"phase"`
	Message            string          `json:"message,omitempty"`
	URL                string          `json:"url"`
	BackendCount       int             `json:"backendCount"`
	Conditions         []condition     `json:"conditions"`
	DiscoveredBackends []backendStatus `json:"discoveredBackends"`
	Withheld           []string        `json:"withheld,omitempty"` // what clients do not see, and why
	Filters            []guest.Status  `json:"filters,omitempty"`
	Webhooks           []webhookStatus `json:"webhooks,omitempty"` // in the order in which they are asked
	Sessions           int             `json:"sessions"`
	Streams            int             `json:"streams"`
	Inflight           int64           `json:"inflight"`
	Parked             int             `json:"parked"`
	Dropped            int64           `json:"dropped"`          // notifications of parked calls whose client was away
	Calls              int64           `json:"calls"`            // requests since the start
	Audit              *auditStatus    `json:"audit,omitempty"`  // nil without a log
	Reloads            int64           `json:"reloads"`          // of the configuration
	Reload             string          `json:"reload,omitempty"` // why the last reload changed nothing
	Version            string          `json:"version"`
	Store              *storeStatus    `json:"store,omitempty"`      // that the server shares with other edges
	RateLimits         *limitStatus    `json:"rateLimits,omitempty"` // calls since the limits began
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// backendStatus is an entry of status.discoveredBackends, with more that the edge
// knows.
type backendStatus struct {
	Name                string     `json:"name"`
	URL                 string     `json:"url"`
	Status              string     `json:"status"`
	AuthType            string     `json:"authType,omitempty"`
	AuthConfigRef       string     `json:"authConfigRef,omitempty"`
	Message             string     `json:"message,omitempty"`
	LastHealthCheck     *time.Time `json:"lastHealthCheck,omitempty"`
	ConsecutiveFailures int        `json:"consecutiveFailures"`
	CircuitBreakerState string     `json:"circuitBreakerState,omitempty"`
	CircuitLastChanged  *time.Time `json:"circuitLastChanged,omitempty"`
	Era                 string     `json:"era,omitempty"`
	Revision            string     `json:"revision,omitempty"`
	*offered                       // nil while the edge does not know, as of a backend that is served as it is
	Calls               int64      `json:"calls"`  // since the start
	Failed              int64      `json:"failed"` // of them
	Millis              float64    `json:"latencyMillis"`
	Strays              int64      `json:"strayAnswers,omitempty"` // that came to others than who asked
}

// offered is how much a backend offers.
type offered struct {
	Tools     int `json:"tools"`
	Prompts   int `json:"prompts"`
	Resources int `json:"resources"`
	Templates int `json:"resourceTemplates"`
}

// webhookStatus is what one webhook has counted since its server was opened.
type webhookStatus struct {
	Name    string  `json:"name"`
	Type    string  `json:"type"`
	Asked   uint64  `json:"asked"`
	Denied  uint64  `json:"denied"`
	Changed uint64  `json:"changed"`
	Failed  uint64  `json:"failed"`
	Ignored uint64  `json:"ignored"` // of the failed
	Millis  float64 `json:"latencyMillis"`
}

func webhookStatuses(part *webhook.Part) (all []webhookStatus) {
	if part == nil {
		return nil
	}
	for _, c := range part.Counters() {
		one := webhookStatus{Name: c.Name, Type: c.Type, Asked: c.Asked, Denied: c.Denied, Changed: c.Changed, Failed: c.Failed, Ignored: c.Ignored}
		if c.Asked > 0 {
			one.Millis = float64(c.Time.Microseconds()) / 1000 / float64(c.Asked)
		}
		all = append(all, one)
	}
	return all
}

// auditStatus is what an audit log has counted since it was opened.
type auditStatus struct {
	Recorded uint64 `json:"recorded"`
	Written  uint64 `json:"written"`
	Lost     uint64 `json:"lost"`
	Failures uint64 `json:"failures"` // attempts to write or to open that failed
}

// writeStatus answers /status: with the status of the one server, or with the list
// of all.
func writeStatus(ctx *fasthttp.RequestCtx, servers []*server) {
	var all []status
	for _, s := range servers {
		all = append(all, s.status())
	}
	var text any = all[0]
	if len(all) > 1 {
		text = map[string]any{"servers": all}
	}
	body, err := json.MarshalIndent(text, "", "  ")
	if err != nil {
		plain(ctx, 500, "internal error\n")
		return
	}
	ctx.Response.Header.SetContentTypeBytes(jsonType)
	ctx.Response.Header.Set("Cache-Control", "no-store")
	ctx.Response.SetBodyRaw(append(body, '\n'))
}

func (served *server) status() status {
	e := served.edge
	s := status{
		Name:     served.Name,
		URL:      served.url(),
		Sessions: len(e.sessions.Of(served.Name)),
		Streams:  e.sessions.Streams.Len(),
		Inflight: e.inflight.Load(),
		Parked:   e.replicas.Parked.Len(),
		Dropped:  e.replicas.Parked.Dropped(),
		Reloads:  e.reloads.done.Load(),
		Webhooks: webhookStatuses(served.webhooks),
		Version:  e.given.version,
		Store:    served.storeStatus(), RateLimits: served.limitStatus(),
	}
	if p := e.reloads.fault.Load(); p != nil {
		s.Reload = *p
	}
	for _, told := range served.programs {
		s.Filters = append(s.Filters, told())
	}
	if l := served.record; l != nil {
		c := auditStatus(l.Counters())
		s.Audit = &c
	}
	listed := map[string]catalog.BackendStatus{}
	if served.Book != nil {
		for _, one := range served.Book.Status() {
			listed[one.Backend] = one
		}
		report := served.Book.Report()
		for _, f := range report.Findings {
			s.Withheld = append(s.Withheld, f.String())
		}
		if report.More > 0 {
			s.Withheld = append(s.Withheld, fmt.Sprintf("and %d more", report.More))
		}
	}
	var statuses []health.Status
	for _, b := range served.Backends {
		now := b.Status()
		offers, known := listed[b.Name]
		statuses = append(statuses, now.Is())
		calls, failed, mean := b.Calls()
		s.Calls += calls
		one := backendStatus{
			Name: now.Name, URL: now.URL, Status: string(now.Is()), Message: now.Message,
			AuthType: served.outgoing[b.Name].Type(), AuthConfigRef: served.outgoing[b.Name].Name(),
			LastHealthCheck: moment(now.Checked), ConsecutiveFailures: now.Failures,
			CircuitBreakerState: string(now.Circuit), CircuitLastChanged: moment(now.CircuitChanged),
			Era: now.Era, Revision: now.Version,
			Calls: calls, Failed: failed, Millis: float64(mean.Microseconds()) / 1000,
			Strays: b.Strays(),
		}
		if known {
			one.offered = &offered{Tools: offers.Tools, Prompts: offers.Prompts, Resources: offers.Resources, Templates: offers.Templates}
		}
		if one.Message == "" && offers.Missing {
			one.Message = offers.Message
		}
		if one.Message == "" && one.Strays > 0 {
			one.Message = "sends answers to others than who asked: a bridge that answers all its clients"
		}
		s.DiscoveredBackends = append(s.DiscoveredBackends, one)
	}
	now := health.Overall(statuses...)
	s.Phase, s.Message, s.BackendCount = string(now.Phase), now.Message, now.BackendCount
	for _, c := range now.Conditions {
		s.Conditions = append(s.Conditions, condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
	}
	return s
}

// lookedAt returns the servers whose status a client of the main port may see.
// Where no server asks who its clients are, that is all of them for clients of
// this host and none for others; else it is the one at /mcp, for whom it lets
// in. It answers when there is none.
func (e *Edge) lookedAt(req *request, now *live) []*server {
	guarded := false
	for _, s := range now.servers {
		guarded = guarded || s.guarded
	}
	switch main := now.main; {
	case !guarded && e.door.Loopback():
		return now.all()
	case main != nil && main.guarded:
		if req.admit(main) {
			return []*server{main}
		}
	default:
		plain(req.ctx, 404, "not found\n")
	}
	return nil
}

// described answers with a protected-resource metadata document (RFC 9728 §3),
// which every page may read.
func described(document []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		switch r.Method {
		case "GET", "HEAD":
			h.Set("Content-Type", "application/json")
			h.Set("Access-Control-Allow-Origin", "*")
			h.Set("Cache-Control", "max-age=300")
			_, _ = w.Write(document)
		case "OPTIONS":
			h.Set("Access-Control-Allow-Origin", "*")
			h.Set("Access-Control-Allow-Methods", "GET")
			h.Set("Access-Control-Allow-Headers", "MCP-Protocol-Version, Authorization, Content-Type")
			w.WriteHeader(http.StatusNoContent)
		default:
			h.Set("Allow", "GET, OPTIONS")
			http.Error(w, "GET reads this document", http.StatusMethodNotAllowed)
		}
	})
}

// moment is a time for JSON; nil for never.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Millisecond)
	return &t
}

// reported is what was last logged of a server's status.
type reported struct {
	mu   sync.Mutex
	at   time.Time
	said string
}

// report logs the status of a server when it has changed, as often as its
// statusReportingInterval says.
func (s *server) report(now time.Time) {
	s.reported.mu.Lock()
	defer s.reported.mu.Unlock()
	if now.Sub(s.reported.at) < s.failure.Report {
		return
	}
	s.reported.at = now
	status := s.status()
	said := status.Phase + ": " + status.Message
	for _, b := range status.DiscoveredBackends {
		said += ", " + b.Name + " " + b.Status
	}
	if said == s.reported.said {
		return
	}
	s.reported.said = said
	s.edge.log.Info("status", "server", s.Name, "phase", status.Phase, "message", status.Message, "backends", status.BackendCount)
}

// base is the URL of the edge as clients see it, without a path.
func (e *Edge) base() string {
	if base := strings.TrimSuffix(e.settings.ExternalURL, "/"); base != "" {
		return base
	}
	if e.settings.TLSCert != "" {
		return "https://" + e.Addr()
	}
	return "http://" + e.Addr()
}

// url is where clients reach the server.
func (s *server) url() string {
	base := s.edge.base()
	if s.edge.live.Load().main == s {
		return base + "/mcp"
	}
	return base + "/servers/" + s.Name + "/mcp"
}

// readyz answers 200 while a plan is live whose stores have been met.
func (e *Edge) readyz(ctx *fasthttp.RequestCtx) {
	switch {
	case e.door.Leaving():
		plain(ctx, 503, "draining\n")
	case e.sessions.Stores.Strangers():
		plain(ctx, 503, "waiting\n")
	default:
		plain(ctx, 200, "ready\n")
	}
}
