package serve

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/filters/incoming"
)

// Servers that trust one issuer may share the authorization server of one of them, which is
// open as long as one of them is. Its records last while any of that issuer is.

// issuing is the authorization server of a plan, and what it is made from.
type issuing struct {
	Spec   *authserver.Spec
	Roots  string   // file of more certificates that its own server trusts; "" for none
	Trusts []byte   // what is in it
	Store  string   // tells its store from others; "" for the memory of the process
	store  *sharing // nil for that
}

// signIn is the authorization server of the plan that issues the tokens of this server's
// clients; nil for none. Whoever takes its tokens is at one of the doors.
func (o *opening) signIn(plan *compile.Plan, doors map[string]*doorway) *issuing {
	if o.plan.Incoming == nil || o.plan.Incoming.Type != incoming.OIDC {
		return nil
	}
	for i := range plan.Servers {
		if s := &plan.Servers[i]; s.AuthServer != nil && s.AuthServer.Issuer == o.plan.Incoming.Issuer {
			spec := *s.AuthServer
			spec.Resources = slices.Clone(spec.Resources)
			for i := range spec.Resources {
				o.named(&spec.Resources[i], plan, doors)
			}
			return &issuing{Spec: &spec, Roots: s.Roots}
		}
	}
	return nil
}

// named gives a server that takes the tokens the URL that its metadata name, since clients ask
// for that one. No header of a request shapes it: it becomes an audience of a token.
func (o *opening) named(r *authserver.Resource, plan *compile.Plan, doors map[string]*doorway) {
	for _, p := range plan.Servers {
		if at := doors[p.Name]; p.Name == r.Server && p.Incoming != nil && at != nil {
			r.URL = p.Incoming.ResourceAt(at.base(o.edge.settings.TLSCert != "") + endpoint(p.Name, at.plan.Main == p.Name))
		}
	}
}

// readIssuer reads what the authorization server is made from.
func (o *opening) readIssuer() (err error) {
	i := o.issuer
	if i == nil {
		return nil
	}
	if i.Trusts, err = edge.MoreRoots(i.Roots); err != nil {
		return err
	}
	if i.store, err = o.loginStore(i.Spec.Store); err != nil {
		return fmt.Errorf("authorization server: storage.kvstore: %w", err)
	}
	i.Store = i.store.id()
	return nil
}

// login is an authorization server, open.
type login struct {
	*authserver.Server
	store  *loginStore     // nil for the memory of the process
	memory *kv.MemoryStore // nil for a store
}

// openLogin opens the authorization server, or finds it open.
func (o *opening) openLogin() (*login, func(), error) {
	w, i := &o.edge.world, o.issuer
	return w.logins.Get(digestOf(i), func() (*login, func(), error) {
		var after releases
		records, lasting, store, err := o.openRecords(&after)
		if err != nil {
			after.run()
			return nil, nil, err
		}
		_, reach, done := w.requests(i.Trusts)
		after.add(done)
		issuer := i.Spec.Issuer
		a, err := authserver.New(context.Background(), i.Spec, authserver.Env{
			Store: records, Local: w.memory, Lasting: lasting, Secrets: o.secrets, Reach: reach, Log: o.edge.log,
			Told: o.edge.loginTold(issuer), Renewed: o.edge.loginRenewed(issuer),
		})
		if err != nil {
			after.run()
			return nil, nil, fmt.Errorf("authorization server: %w", err)
		}
		after = append(releases{a.Close}, after...)
		memory, _ := records.(*kv.MemoryStore)
		return &login{a, store, memory}, after.run, nil
	})
}

// own is the issuer of the server's clients, which is in this process.
func (o *opening) own(a *login) *incoming.Own {
	open := o.edge.settings.StoreFailure == "open"
	return &incoming.Own{Keys: a.Keys, Look: func(ctx context.Context, id string) (incoming.Grant, error) {
		l, err := a.Look(ctx, id)
		if err != nil && open {
			l, err = a.Believe(id), nil
		}
		if l == nil {
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
				m.Handler = s.traced(m.Handler)
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
