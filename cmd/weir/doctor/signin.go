package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/oauth"
)

// signIns looks at the authorization servers: their secrets and keys, who is registered under
// them, their stores, and the providers that users are sent to.
func (d *Doctor) signIns(ctx context.Context, plan *compile.Plan, secrets edge.Secrets, reach edge.Reach) (out []edge.Finding) {
	for _, server := range plan.Servers {
		a := server.AuthServer
		if a == nil || secrets == nil && len(plan.Needs) > 0 { // the step secrets has said why there are none
			continue
		}
		out = append(out, d.step(ctx, "sign-in", a.Issuer, func(ctx context.Context) edge.Finding { return d.keys(ctx, a, secrets, reach) }))
		for _, u := range a.Upstreams {
			out = append(out, d.step(ctx, "provider", u.Name, func(ctx context.Context) edge.Finding { return d.provider(ctx, u, secrets, reach) }))
		}
	}
	return out
}

// keys looks at the secrets and keys of an authorization server, and at its store.
func (d *Doctor) keys(ctx context.Context, a *authserver.Spec, secrets edge.Secrets, reach edge.Reach) edge.Finding {
	var store edge.Store
	if a.Store != nil {
		_, o, err := compile.KVStore(ctx, a.Store, secrets)
		if err != nil {
			return edge.Problem(edge.ClassStore, "correct storage.kvstore, or put the value into one of the places of secrets", "storage.kvstore: %v", err)
		}
		o.Beside = reach.CAs
		if f := kv.LookAt(ctx, o, o.Timeout); f.Level == edge.LevelProblem {
			f.Cause = "storage.kvstore: " + f.Cause
			return f
		}
		redis, err := kv.Redis(o)
		if err != nil {
			return edge.Problem(edge.ClassStore, "correct storage.kvstore", "storage.kvstore: %v", err)
		}
		defer redis.Close()
		store = redis
	}
	e, err := authserver.Examine(ctx, a, secrets, store)
	switch {
	case err != nil:
		return edge.Problem(edge.ClassSecret, "make them with: weir auth keygen", "%v", err)
	case len(e.Missed) > 0:
		return edge.Warning(edge.ClassSecret, "leave old secrets and keys at the end of their lists until nobody uses them: edge/authserver/README.md has the steps", "%s", strings.Join(e.Missed, "; "))
	case e.Ephemeral:
		return edge.Warning(edge.ClassSecret, "set hmacSecretRefs and signingKeySecretRefs: weir auth keygen makes what they name", "a secret or a signing key is made at each start: whoever signed in has to do so again after a restart, and clients have to be added again")
	}
	var all []string
	for i, s := range e.Secrets {
		one := fmt.Sprintf("secret %s", s.Name)
		if i == 0 {
			one += " (current)"
		}
		if store != nil {
			one += fmt.Sprintf(": about %d sign-ins", s.Grants)
			if !s.Last.IsZero() {
				one += ", last used " + s.Last.UTC().Format(time.RFC3339)
			}
		}
		all = append(all, one)
	}
	return edge.Fine(strings.Join(all, "; "))
}

// provider looks whether users can be sent to a provider. Nothing is registered there.
func (d *Doctor) provider(ctx context.Context, u *upstream.Config, secrets edge.Secrets, reach edge.Reach) edge.Finding {
	enter := "enter there as redirect URI: " + u.Redirect
	next := "check its URL, and that this machine can reach it (--ca-bundle for a CA of your own): nobody can sign in without it; " + enter
	if u.OAuth2Config != nil {
		client, err := oauth.New(oauth.Options{AllowHTTP: true, Reach: reach, Timeout: d.Timeout})
		if err != nil {
			return edge.Problem(edge.ClassTLS, next, "%v", err)
		}
		defer client.Close()
		if f := answersAt(ctx, client, u.OAuth2Config.TokenEndpoint, next); f.Level == edge.LevelProblem {
			return f
		}
		return edge.Fine(enter)
	}
	p, err := upstream.New(u, upstream.Env{Reach: reach, Secrets: secrets, Now: time.Now})
	if err != nil {
		return edge.Problem(edge.ClassSecret, next, "%v", err)
	}
	defer p.Close()
	if err := p.Ready(ctx); err != nil {
		return edge.Problem(edge.ClassUnreachable, next, "%v", err)
	}
	return edge.Fine(enter)
}
