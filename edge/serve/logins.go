package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/kv"
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
		a, err := authserver.New(context.Background(), spec, authserver.Env{Store: records, Local: w.memory, Secrets: o.secrets, Reach: reach, Log: o.edge.log})
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
		d.mounts.Add(edge.Mount{Prefix: path, MaxBody: most, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
