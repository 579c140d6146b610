package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/filters/audit"
	"github.com/weir-edge/weir/filters/incoming"
)

// Servers that trust one issuer may share the authorization server of one of them, which is
// open as long as one of them is. Its records last while any of that issuer is.

// Bounds of the records of one issuer in memory.
const (
	loginRecords = 100_000
	loginBytes   = 64 << 20
)

// signIn is the authorization server of the plan that issues the tokens of this server's
// clients; nil for none.
func (o *opening) signIn(plan *compile.Plan) *authserver.Spec {
	if o.plan.Incoming == nil || o.plan.Incoming.Type != incoming.OIDC {
		return nil
	}
	for i := range plan.Servers {
		if a := plan.Servers[i].AuthServer; a != nil && a.Issuer == o.plan.Incoming.Issuer {
			return a
		}
	}
	return nil
}

// openLogin opens the authorization server of a Spec, or finds it open.
func (o *opening) openLogin(spec *authserver.Spec) (*authserver.Server, func(), error) {
	w := &o.edge.world
	return w.logins.Get(digestOf(struct {
		Spec   *authserver.Spec
		Trusts []byte
	}{spec, o.trusts}), func() (*authserver.Server, func(), error) {
		var after releases
		if spec.Store != nil {
			return nil, nil, errors.New("storage of type kvstore is not served yet")
		}
		records, release, err := w.logged.Get(spec.Issuer, func() (*kv.MemoryStore, func(), error) {
			m := kv.Memory(kv.Limits{Values: loginRecords, Bytes: loginBytes})
			return m, func() { _ = m.Close() }, nil
		})
		if err != nil {
			return nil, nil, err
		}
		after.add(release)
		_, reach, done := w.requests(o.trusts)
		after.add(done)
		a, err := authserver.New(context.Background(), spec, authserver.Env{Store: records, Local: w.memory, Secrets: o.secrets, Reach: reach, Log: o.edge.log, Told: o.edge.loginTold(spec.Issuer), Renewed: o.edge.loginRenewed(spec.Issuer)})
		if err != nil {
			after.run()
			return nil, nil, fmt.Errorf("authServerConfig: %w", err)
		}
		after.add(a.Close)
		return a, after.run, nil
	})
}

// nobody has signed in: credentials are judged with it before they are used.
type nobody struct{}

func (nobody) Upstream(context.Context, *edge.Identity, string) (access, id edge.Secret, err error) {
	return "", "", edge.Errorf(edge.Unauthenticated, "upstream", "nobody has signed in")
}

// own is the issuer of the server's clients, which is in this process.
func (o *opening) own(a *authserver.Server) *incoming.Own {
	open := o.edge.settings.StoreFailure == "open"
	return &incoming.Own{Keys: a.Keys, Look: func(ctx context.Context, id string) (incoming.Grant, error) {
		l, err := a.Look(ctx, id)
		switch {
		case err != nil && open:
			return a.Believe(id), nil
		case err != nil || l == nil:
			return nil, err
		}
		return l, nil
	}}
}

// logIn mounts the endpoints of the authorization servers at the door of their servers. Where
// two have one path their hosts tell them apart.
func (d *doorway) logIn() {
	byPath := map[string]map[string]edge.Mount{}
	for _, s := range d.all() {
		if s.login == nil || !s.issues {
			continue
		}
		for host, all := range s.login.Mounts() {
			for _, m := range all {
				if byPath[m.Prefix] == nil {
					byPath[m.Prefix] = map[string]edge.Mount{}
				}
				byPath[m.Prefix][host] = m
			}
		}
	}
	for path, of := range byPath {
		most := 0
		for _, m := range of {
			most = max(most, m.MaxBody)
		}
		d.mounts.Add(edge.Mount{Prefix: path, MaxBody: most, AnyOrigin: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			m, ok := of[strings.ToLower(r.Host)]
			if !ok && len(of) > 1 {
				http.NotFound(w, r)
				return
			}
			for _, only := range of {
				if !ok {
					m = only
				}
			}
			m.Handler.ServeHTTP(w, r)
		})})
	}
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
func (e *Edge) loginRenewed(issuer string) func(upstream.Renewal) {
	return func(v upstream.Renewal) {
		e.log.Debug("upstream tokens", "upstream", v.Provider, "outcome", v.Outcome, "reason", v.Reason)
		event := audit.Event{Type: audit.HTTPRequest, Kind: "authorization", Name: "upstream_refresh", Took: v.Took, Data: told("upstream", v.Provider, "outcome", v.Outcome)}
		if v.Outcome != "renewed" {
			event.Outcome, event.Reason = audit.Error, v.Outcome
		}
		e.loginRecord(issuer, event)
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
	l := e.live.Load()
	if l == nil {
		return
	}
	for _, s := range l.servers {
		if s.issues && s.record != nil && s.login.Issuer() == issuer {
			s.record.Write(event)
		}
	}
}
