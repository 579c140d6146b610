package serve

import (
	"encoding/json"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/status"
	"github.com/weir-edge/weir/filters/audit"
)

// What authorization servers tell: records, spans, and their part of /status.

// loginStatus is what /status says of the server's own authorization server; nil for none.
func (s *server) loginStatus() *status.AuthServer {
	if !s.issues {
		return nil
	}
	now := s.login.Status()
	out := &status.AuthServer{Issuer: s.login.Issuer(), Kids: now.Kids, Ephemeral: now.Ephemeral, Store: s.login.store.status(), Waiting: now.Waiting}
	for _, k := range now.Secrets {
		out.Secrets = append(out.Secrets, status.AuthSecret{Name: k.Name, Grants: k.Grants, LastUsed: moment(k.Last)})
	}
	for _, u := range now.Upstreams {
		one := status.AuthUpstream{Name: u.Name, RedirectURI: u.Redirect}
		if u.Err != nil {
			one.Message = u.Err.Error()
		}
		out.Upstreams = append(out.Upstreams, one)
	}
	if now.Shared {
		out.Replicas = &status.AuthReplicas{Seen: now.Agreement.Replicas, Agree: now.Agreement.Message == "", Message: now.Agreement.Message}
	}
	return out
}

// traced gives each request of a login a span. Documents that anybody reads have none.
func (s *server) traced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.measure == nil || strings.Contains(r.URL.Path, "/.well-known/") {
			next.ServeHTTP(w, r)
			return
		}
		began, seen := time.Now(), &seeing{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(seen, r)
		why := ""
		if seen.status >= http.StatusInternalServerError {
			why = http.StatusText(seen.status)
		}
		s.measure.Beside("authorization server "+path.Base(r.URL.Path), began, time.Since(began), why,
			"http.request.method", r.Method, "http.response.status_code", strconv.Itoa(seen.status), "url.path", r.URL.Path, "server", s.Name)
	})
}

// seeing sees the status of an answer.
type seeing struct {
	http.ResponseWriter
	status int
}

// WriteHeader is http.ResponseWriter.WriteHeader.
func (w *seeing) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// loginTold writes what an authorization server decided into the records of its server.
func (e *Edge) loginTold(issuer string) func(authserver.Event) {
	return func(v authserver.Event) {
		e.log.Debug("authorization server", "what", v.What, "outcome", v.Outcome, "reason", v.Reason, "client", v.Client, "upstream", v.Provider, "request", v.Request)
		event := audit.Event{Type: audit.HTTPRequest, Kind: "authorization", Name: v.What, Reason: v.Reason, Exchange: &edge.Exchange{Head: edge.Head{Remote: v.Remote, RequestID: v.Request}}}
		if v.Subject != "" {
			event.Exchange.Identity = &edge.Identity{Issuer: issuer, Subject: v.Subject}
		}
		switch v.Outcome {
		case authserver.Denied, authserver.Refused:
			event.Outcome = audit.Denied
		case authserver.Failed:
			event.Outcome = audit.Error
		}
		event.Data = told("client", v.Client, "grant_type", v.Kind, "upstream", v.Provider)
		e.loginRecord(issuer, event)
	}
}

// loginRenewed likewise writes that tokens of an upstream were renewed, or were not.
func (e *Edge) loginRenewed(issuer string) func(v upstream.Renewal, client, subject string) {
	return func(v upstream.Renewal, client, subject string) {
		e.log.Debug("upstream tokens", "upstream", v.Provider, "outcome", v.Outcome, "reason", v.Reason)
		event := audit.Event{Type: audit.HTTPRequest, Kind: "authorization", Name: "upstream_refresh", Took: v.Took, Exchange: &edge.Exchange{}, Data: told("client", client, "upstream", v.Provider, "outcome", v.Outcome)}
		if subject != "" {
			event.Exchange.Identity = &edge.Identity{Issuer: issuer, Subject: subject}
		}
		if v.Outcome != upstream.Renewed {
			event.Outcome, event.Reason = audit.Error, v.Outcome
		}
		e.loginRecord(issuer, event)
		e.eachIssuing(issuer, func(s *server) {
			if s.measure == nil {
				return
			}
			why := ""
			if v.Outcome != upstream.Renewed {
				why = v.Outcome
			}
			s.measure.Beside("authorization server upstream_refresh", time.Now().Add(-v.Took), v.Took, why, "weir.upstream", v.Provider, "server", s.Name)
		})
	}
}

// told is a JSON object of names and texts, of which empty ones are left out.
func told(pairs ...string) []byte {
	of := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			of[pairs[i]] = pairs[i+1]
		}
	}
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // texts are data
	}
	return text
}

// loginRecord writes into the records of the server whose authorization server it is.
func (e *Edge) loginRecord(issuer string, event audit.Event) {
	e.eachIssuing(issuer, func(s *server) {
		if s.record != nil {
			s.record.Write(event)
		}
	})
}

// eachIssuing calls f with the servers whose authorization server is that of an issuer.
func (e *Edge) eachIssuing(issuer string, f func(*server)) {
	l := e.live.Load()
	if l == nil {
		return
	}
	for _, s := range l.servers {
		if s.issues && s.login.Issuer() == issuer {
			f(s)
		}
	}
}
