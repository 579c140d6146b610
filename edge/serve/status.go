package serve

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/door"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/status"
	"github.com/weir-edge/weir/filters/webhook"
)

func webhookStatuses(part *webhook.Part) (all []status.Webhook) {
	if part == nil {
		return nil
	}
	for _, c := range part.Counters() {
		one := status.Webhook{Name: c.Name, Type: c.Type, Asked: c.Asked, Denied: c.Denied, Changed: c.Changed, Failed: c.Failed, Ignored: c.Ignored}
		if c.Asked > 0 {
			one.Millis = float64(c.Time.Microseconds()) / 1000 / float64(c.Asked)
		}
		all = append(all, one)
	}
	return all
}

// writeStatus answers /status: with the status of the one server, or with the list
// of all.
func writeStatus(ctx *fasthttp.RequestCtx, servers []*server) {
	var all []status.Server
	for _, s := range servers {
		all = append(all, s.status())
	}
	var text any
	if len(all) == 1 {
		text = all[0]
	} else {
		text = map[string]any{"servers": append([]status.Server{}, all...)}
	}
	body, err := json.MarshalIndent(text, "", "  ")
	if err != nil {
		door.Plain(ctx, 500, "internal error\n")
		return
	}
	ctx.Response.Header.SetContentTypeBytes(jsonType)
	ctx.Response.Header.Set("Cache-Control", "no-store")
	ctx.Response.SetBodyRaw(append(body, '\n'))
}

func (served *server) status() status.Server {
	e := served.edge
	s := status.Server{
		Name:     served.Name,
		URL:      served.url(),
		Metadata: served.metadata,
		Sessions: len(e.sessions.Of(served.Name)),
		Streams:  e.sessions.Streams.Places(),
		Inflight: e.inflight.Load(),
		Parked:   e.replicas.Parked.Len(),
		Dropped:  e.replicas.Parked.Dropped(),
		Reloads:  e.reloads.done.Load(),
		Webhooks: webhookStatuses(served.webhooks),
		Version:  e.given.version,
		Store:    served.storeStatus(), RateLimits: served.limitStatus(), AuthServer: served.loginStatus(),
	}
	if p := e.reloads.fault.Load(); p != nil {
		s.Reload = *p
	}
	for _, told := range served.programs {
		s.Filters = append(s.Filters, told())
	}
	if l := served.record; l != nil {
		c := status.Audit(l.Counters())
		s.Audit = &c
	}
	listed := map[string]catalog.BackendStatus{}
	var conflicts []string
	lacking := 0 // routable backends whose lists cannot be had
	if served.Book != nil {
		for _, one := range served.Book.Status() {
			listed[one.Backend] = one
		}
		report := served.Book.Report()
		for _, f := range report.Findings {
			s.Withheld = append(s.Withheld, f.String())
			if f.Reason == catalog.Conflict && f.Thing == edge.Tool {
				conflicts = append(conflicts, cmp.Or(f.Name, f.Original))
			}
		}
		if report.More > 0 {
			s.Withheld = append(s.Withheld, fmt.Sprintf("and %d more", report.More))
		}
	}
	var statuses []health.Status
	for _, b := range served.Backends {
		now := b.Status()
		offers, known := listed[b.Name]
		is := now.Is()
		if is == health.Ready && offers.Failing { // it answers, and clients do not see what it has
			is = health.Degraded
			lacking++
		}
		statuses = append(statuses, now.Is())
		calls, failed, mean := b.Calls()
		s.Calls += calls
		one := status.Backend{
			Name: now.Name, URL: now.URL, Metadata: served.about[b.Name], Status: string(is), Message: now.Message,
			AuthType: served.outgoing[b.Name].Type(), AuthConfigRef: served.outgoing[b.Name].Name(),
			LastHealthCheck: moment(now.Checked), ConsecutiveFailures: now.Failures,
			CircuitBreakerState: string(now.Circuit), CircuitLastChanged: moment(now.CircuitChanged),
			Era: now.Era, Revision: now.Version,
			Calls: calls, Failed: failed, Millis: float64(mean.Microseconds()) / 1000,
			Strays: b.Strays(),
		}
		if known {
			one.Offer = &status.Offer{Tools: offers.Tools, Prompts: offers.Prompts, Resources: offers.Resources, Templates: offers.Templates}
		}
		if one.Message == "" && offers.Missing {
			one.Message = offers.Message
		}
		if one.Message == "" && one.Strays > 0 {
			one.Message = "sends answers to others than who asked: a bridge that answers all its clients"
		}
		s.DiscoveredBackends = append(s.DiscoveredBackends, one)
	}
	now := health.Overall(statuses...).Lacking(lacking)
	s.Phase, s.Message, s.BackendCount = string(now.Phase), now.Message, now.BackendCount
	for _, c := range served.judged {
		is := "False"
		if c.True {
			is = "True"
		}
		now.Conditions = append(now.Conditions, health.Condition{Type: c.Type, Status: is, Reason: c.Reason, Message: c.Message})
	}
	if served.gate != nil {
		if err := served.gate.Ready(); err != nil {
			now.Conditions = append(now.Conditions, health.Condition{Type: "AuthReady", Status: "False", Reason: "KeysUnavailable", Message: err.Error()})
		}
	}
	now.Conditions = append(now.Conditions, inConflict(conflicts)...)
	now.Conditions = append(now.Conditions, served.ofComposites()...)
	if c := served.ofEmbeddings(); c != nil {
		now.Conditions = append(now.Conditions, *c)
		if s.Phase == string(health.PhaseReady) {
			s.Phase, s.Message = string(health.PhaseDegraded), s.Message+"; tools are found by keywords alone"
		}
	}
	for _, c := range served.since.of(now) {
		s.Conditions = append(s.Conditions, status.Condition{Type: c.Type, Status: c.Status, LastTransitionTime: moment(c.Since), Reason: c.Reason, Message: c.Message})
	}
	return s
}

// since has the conditions of a server as they were last told, with the times of their changes.
type since struct {
	mu   sync.Mutex
	last []health.Condition
}

func (s *since) of(now health.Overview) []health.Condition {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = now.From(s.last, time.Now()).Conditions
	return s.last
}

// maxInConflict is how many names the condition of tools in conflict tells.
const maxInConflict = 10

// inConflict is the condition of tools that are withheld since several backends have their names.
func inConflict(names []string) []health.Condition {
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return nil
	}
	message := "withheld, since several backends have these names: " + strings.Join(names[:min(len(names), maxInConflict)], ", ")
	if more := len(names) - maxInConflict; more > 0 {
		message += fmt.Sprintf(" and %d more", more)
	}
	return []health.Condition{{Type: "ToolNamesInConflict", Status: "True", Reason: "NameConflict", Message: message}}
}

// lookedAt returns the servers whose status a client of a door may see. If no server there
// authenticates, clients of this host see all of them and others none; else clients that
// the server at /mcp lets in see that one. Without any it has answered.
func (e *Edge) lookedAt(req *request) []*server {
	guarded := false
	for _, s := range req.at.servers {
		guarded = guarded || s.guarded
	}
	switch main := req.at.main; {
	case !guarded && req.at.loopback() && edge.Loopback(req.client()) && len(req.at.servers) > 0:
		return req.at.all()
	case main != nil && main.guarded:
		if req.admit(main) {
			return []*server{main}
		}
	default:
		door.Plain(req.ctx, 404, "not found\n")
	}
	return nil
}

// described answers with the server's protected-resource metadata document (RFC 9728 §3),
// which every page may read.
func (s *server) described() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		switch r.Method {
		case "GET", "HEAD":
			h.Set("Content-Type", "application/json")
			h.Set("Access-Control-Allow-Origin", "*")
			h.Set("Cache-Control", "max-age=300")
			_, _ = w.Write(s.documentFor(r))
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

// moment returns a time for JSON; nil for never.
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
	is := s.status()
	said := is.Phase + ": " + is.Message
	for _, b := range is.DiscoveredBackends {
		said += ", " + b.Name + " " + b.Status
	}
	if said == s.reported.said {
		return
	}
	s.reported.said = said
	s.edge.log.Info("status", "server", s.Name, "phase", is.Phase, "message", is.Message, "backends", is.BackendCount)
}

// url is where clients reach the server; "" for one that no door leads to any longer.
func (s *server) url() string {
	d := s.edge.live.Load().of[s.Name]
	if d == nil {
		return ""
	}
	path := endpoint(s.Name, d.plan.Main == s.Name)
	if s.older { // whose clients are to come by the older transport
		path = strings.TrimSuffix(path, "/mcp") + "/sse"
	}
	return d.base(s.edge.settings.TLSCert != "") + path
}

// readyz answers 200 while a plan is live whose stores have been met.
func (e *Edge) readyz(ctx *fasthttp.RequestCtx) {
	switch {
	case e.door.Leaving():
		door.Plain(ctx, 503, "draining\n")
	case e.sessions.Stores.Strangers() || e.loginStrangers():
		door.Plain(ctx, 503, "waiting\n")
	default:
		door.Plain(ctx, 200, "ready\n")
	}
}
