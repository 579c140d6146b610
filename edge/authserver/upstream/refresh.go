package upstream

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// memo keeps the token endpoint, which remembers how to prove who asks.
type memo struct{ held atomic.Pointer[endpoint] }

type endpoint struct {
	url, client string
	secret      edge.Secret // of a registration
	method      oauth.AuthMethod
	asks        *oauth.TokenEndpoint
}

// at returns the token endpoint of a place.
func (p *Provider) at(at *place) *oauth.TokenEndpoint {
	var own edge.Secret
	if at.registration != nil {
		own = edge.Secret(at.registration.Secret)
	}
	method := oauth.AuthEither
	if m := at.metadata; m != nil && slices.Contains(m.TokenAuthMethods, "client_secret_post") && !slices.Contains(m.TokenAuthMethods, "client_secret_basic") && p.secret != nil {
		method = oauth.AuthBodyFirst // some call what they do not take malformed, and not the wrong client
	}
	if e := p.endpoint.held.Load(); e != nil && e.url == at.token && e.client == at.client && e.secret == own && e.method == method {
		return e.asks
	}
	o := oauth.TokenOptions{
		Name: "token endpoint of " + p.Name(), URL: at.token, Trust: at.trust, AllowHTTP: p.config.http(), Client: p.client, ClientID: at.client, Secret: p.secret, Method: method, Now: p.env.now,
	}
	if own != "" {
		o.Secret = func(context.Context) (edge.Secret, error) { return own, nil }
		if o.Method = oauth.AuthBasic; at.registration.Method == "client_secret_post" {
			o.Method = oauth.AuthBody
		}
	}
	e := &endpoint{at.token, at.client, own, method, oauth.NewTokenEndpoint(o)}
	p.endpoint.held.Store(e)
	return e.asks
}

// ask asks for tokens, and returns the answer they stand in, too, also one that cannot be read. A client that the provider
// does not know any longer is registered anew for the next login.
func (p *Provider) ask(ctx context.Context, at *place, form url.Values) (*Tokens, []byte, error) {
	body, asked, err := p.at(at).Answer(ctx, form)
	if err != nil {
		var refusal *oauth.TokenError
		if errors.As(err, &refusal) && refusal.Code == "invalid_client" && refusal.Said && p.registrar != nil {
			if err := p.registrar.forget(ctx, at.client); err != nil {
				return nil, nil, err
			}
			return nil, nil, &Gone{p.Name(), "the provider does not know the client any longer"}
		}
		return nil, nil, err
	}
	t, err := p.reading.tokens(body, asked)
	if err != nil {
		return nil, body, err
	}
	t.Client = generation(at.client)
	return t, body, nil
}

// Refresh renews tokens. kept hears the new ones before anything of them is judged: whoever
// keeps them then loses no refresh token, whatever comes of the rest; its error ends the
// refresh. What it hears is not judged: only what Refresh returns may be used.
//
// The error is a *Gone when the provider says that it is over, or the answer is another
// user's. Another error says nothing about the tokens; Silent reports whether it is that of
// a provider that did not answer.
func (p *Provider) Refresh(ctx context.Context, old *Tokens, kept func(*Tokens) error) (*Tokens, error) {
	// 1. The client that they are for is still the client.
	at, err := p.place(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case old.Refresh == "":
		return nil, &Gone{p.Name(), "there is no refresh token"}
	case old.Client != generation(at.client):
		return nil, &Gone{p.Name(), "the client at the provider has changed"}
	}

	// 2. The new ones are kept, whatever comes.
	t, body, err := p.ask(ctx, at, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {string(old.Refresh)}})
	var refused refusedError
	var gone *Gone
	switch {
	case edge.KindOf(err) == edge.Unauthenticated || errors.As(err, &refused) && refused.gone:
		return nil, &Gone{p.Name(), "the provider refuses the refresh token"}
	case errors.As(err, &gone):
		return nil, err
	case err != nil:
		if next, bad := token(p.reading.refresh.find(body)); bad == nil && next != "" { // the old one may be worth nothing by now
			lost := *old
			lost.Refresh = next
			if err := kept(&lost); err != nil {
				return nil, err
			}
		}
		return nil, p.fault(err)
	}
	t.Subject = old.Subject
	if t.Refresh == "" {
		t.Refresh = old.Refresh
	}
	if t.Scope == "" {
		t.Scope = old.Scope
	}
	if err := kept(t); err != nil {
		return nil, err
	}

	// 3. They are the same user's.
	renewed := *t
	if err := p.same(ctx, at, &renewed, old, body); err != nil {
		return nil, err
	}
	return &renewed, nil
}

// same judges what a refresh brought: an ID token, where there is one, is of the user of the
// old tokens (OpenID Connect Core §12.2), and so is userinfo, where policies read it, and
// whoever the answer itself names.
func (p *Provider) same(ctx context.Context, at *place, t, old *Tokens, body []byte) error {
	other := &Gone{p.Name(), "the provider answered with tokens of another user"}
	if p.identity != nil && old.Subject != "" {
		if who, err := p.identity.who(body); err == nil && who.Subject != old.Subject {
			return other
		}
	}
	var id, info oauth.Object
	switch {
	case p.published == nil || t.ID == "":
		t.ID = old.ID
	default:
		var err error
		var away awayError
		id, err = p.idToken(ctx, at, "", t)
		if errors.As(err, &away) || errors.Is(err, errNoKey) {
			// Without its key, which a provider that rotates may show later, the signature stands for
			// nothing, and the answer came over TLS from the provider itself: whose it is can be read,
			// and the token is used for nothing.
			p.env.Log.Warn("a new ID token is left out", "upstream", p.Name(), "error", err)
			if id, err = oauth.Claims(t.ID); err == nil {
				err = (&expected{issuer: at.issuer, client: at.client, now: p.env.now()}).judge(id)
			}
			t.ID = old.ID
		}
		if err != nil {
			return &Gone{p.Name(), "the new ID token does not hold: " + err.Error()}
		}
		if sub, _ := id.Text("sub"); sub != old.Subject {
			return other
		}
	}
	fresh := id != nil
	if was, _ := oauth.Claims(old.Access); !fresh && was.Has("sub") { // of one login it stays, be it that of the ID token or another
		if now, _ := oauth.Claims(t.Access); now.Has("sub") && string(now["iss"]) == string(was["iss"]) && string(now["sub"]) != string(was["sub"]) {
			return other
		}
	}
	if !fresh && t.ID != "" {
		id, _ = oauth.Claims(t.ID) // it was judged when it came
	}
	if p.config.Claims && p.userInfo != nil && !fresh {
		said, err := p.userInfo.fetch(ctx, p.client, t.Access)
		agrees := p.userInfo.who(said).Subject == old.Subject
		if p.published != nil {
			agrees = p.userInfo.agrees(said, old.Subject, name(id[cmp.Or(p.config.OIDCConfig.SubjectClaim, "sub")]))
		}
		if err == nil && old.Subject != "" && !agrees {
			return other
		}
		info = said // nil after an error: then policies know nothing of the user
	}
	p.read(ctx, t, id, info)
	return nil
}

// Silent reports whether an error of Refresh is that of a provider that gave no answer: it
// may have done what it was asked to.
func Silent(err error) bool {
	var t *oauth.TokenError
	return errors.As(err, &t) && t.Status == 0
}

// Due reports whether tokens are to be renewed: the access token has less than a minute left,
// or a tenth of its life where that is less. over says that it has ended.
func (t *Tokens) Due(now time.Time) (due, over bool) {
	if t.Expires.IsZero() {
		return false, false
	}
	left := t.Expires.Sub(now)
	return left < min(time.Minute, t.Expires.Sub(t.Issued)/10), left <= 0
}

// idEnded reports whether the ID token has ended since the tokens were issued; where a refresh
// brought no other, it may have ended before.
func (t *Tokens) idEnded(now time.Time) bool {
	claims, _ := oauth.Claims(t.ID) // what is no JWT has no end
	end, err := claims.Time("exp")
	return err == nil && end.After(t.Issued) && !end.After(now)
}
