package auth

import (
	"cmp"
	"context"
	"hash/maphash"
	"net/http"
	"sync"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth/login"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// OptionsOf are the options of the login that a manifest describes. The client's secret is not
// among them, unless it stands in a file.
func OptionsOf(url string, l *v1beta1.RemoteAuth) login.Options {
	o := login.Options{
		URL: url, Issuer: l.Issuer, AuthorizeURL: l.AuthorizeURL, TokenURL: l.TokenURL, ClientID: l.ClientID,
		ClientSecretFile: l.ClientSecretPath, BearerTokenFile: l.BearerTokenPath,
		Scopes: l.Scopes, ScopeParam: l.ScopeParamName, Resource: l.Resource, SkipBrowser: l.SkipBrowser, Timeout: cmp.Or(l.Timeout.Std(), login.DefaultTimeout),
	}
	if l.CallbackPort != nil {
		o.CallbackPort = int(*l.CallbackPort)
	}
	return o
}

// Credential sends a server the token of a session, renewed where it has to be. Where somebody
// has to log in first, its error is of kind Unavailable around a *login.NeededError.
func Credential(s *login.Session) *edge.Credential {
	a := &attached{session: s, seed: maphash.MakeSeed()}
	return &edge.Credential{Name: "login", Headers: []string{"Authorization"}, Attach: a.attach}
}

// attached is a session as a credential. It knows of answers that were no refusals by the next
// request alone.
type attached struct {
	session *login.Session
	seed    maphash.Seed

	mu            sync.Mutex
	last, refused uint64 // generations of the tokens that were sent, and refused, last
}

func (a *attached) attach(ctx context.Context, r *edge.Outbound, set func(string, edge.Secret)) (uint64, error) {
	a.heard(r)
	token, err := a.session.Token(ctx)
	if err == nil && token != "" && r.Refused && r.Sent == a.generation(token) {
		var again bool
		if again, err = a.session.Refused(ctx, http.StatusUnauthorized, nil, token); again && err == nil {
			token, err = a.session.Token(ctx)
		}
	}
	if err == nil && token == "" {
		err = a.session.Needed("no login is kept")
	}
	if err != nil {
		return 0, &edge.Error{Kind: edge.Unavailable, Op: "log in", Err: err}
	}
	set("Authorization", "Bearer "+token)
	g := a.generation(token)
	a.mu.Lock()
	a.last = g
	a.mu.Unlock()
	return g, nil
}

// heard notes what became of the token that was sent last.
func (a *attached) heard(r *edge.Outbound) {
	a.mu.Lock()
	if r.Refused {
		a.refused = r.Sent
	}
	good := a.last != 0 && a.last != a.refused
	a.mu.Unlock()
	if good {
		a.session.Worked()
	}
}

func (a *attached) generation(token edge.Secret) uint64 {
	return maphash.String(a.seed, string(token)) | 1
}
