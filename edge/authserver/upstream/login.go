package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// Return takes the query of a callback whose state belongs to the leg, and fetches the
// tokens, and who it is where wantWho holds; else Who is nil. The error is a *Refused when
// the provider said error; any other is for the log.
func (p *Provider) Return(ctx context.Context, leg Leg, query url.Values, wantWho bool) (*Tokens, *Who, error) {
	// 1. It is this provider's answer, and says so (RFC 9207).
	code, err := p.answered(&leg, query)
	if err != nil {
		return nil, nil, err
	}
	at, err := p.place(ctx)
	if err != nil {
		return nil, nil, err
	}
	if leg.Client != generation(at.client) {
		return nil, nil, p.fault(errors.New("the client at the provider is another than at the start of the login"))
	}

	// 2. The tokens.
	t, body, err := p.ask(ctx, at, url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {leg.Redirect}, "code_verifier": {leg.Verifier},
	})
	if err != nil {
		return nil, nil, p.fault(err)
	}
	if asked := oauth.Scopes(at.scopes); t.Scope != "" && oauth.Lacks(oauth.Scopes(t.Scope), asked) {
		granted := oauth.Scopes(t.Scope)
		p.env.Log.Info("a provider granted fewer scopes than it was asked for: backends that need them will refuse its token", "upstream", p.Name(),
			"missing", strings.Join(slices.DeleteFunc(slices.Clone(asked), func(one string) bool { return slices.Contains(granted, one) }), " "))
	}

	// 3. Who it is.
	who, err := p.who(ctx, at, &leg, t, body, wantWho)
	if err != nil {
		return nil, nil, p.fault(err)
	}
	if !wantWho {
		who = nil
	}
	return t, who, nil
}

// fault names the provider in an error.
func (p *Provider) fault(err error) error {
	if edge.KindOf(err) != edge.Internal {
		return err // it says whom was asked, and may come to a client
	}
	return unavailable("upstream "+p.Name(), err)
}

// answered judges a callback and returns its code.
func (p *Provider) answered(leg *Leg, query url.Values) (code string, err error) {
	for _, name := range []string{"iss", "code", "error", "state"} {
		if len(query[name]) > 1 {
			return "", p.fault(fmt.Errorf("callback: %s: it is there twice", name))
		}
	}
	code, said, iss := query.Get("code"), query.Get("error"), query.Get("iss")
	switch {
	case leg.Provider != p.Name():
		return "", p.fault(errors.New("callback: the login was sent to another provider"))
	case iss == "" && leg.Strict:
		return "", p.fault(errors.New("callback: iss: there is none, and the provider says that it names itself"))
	case query.Has("iss") && leg.Issuer != "" && iss != leg.Issuer:
		return "", p.fault(errors.New("callback: iss: it is another provider's"))
	case query.Has("error"):
		return "", &Refused{Provider: p.Name(), Code: known(said)}
	case code == "" || len(code) > maxText:
		return "", p.fault(errors.New("callback: code: there is none, or it cannot be right"))
	}
	return code, nil
}

// known returns an error of an authorization endpoint where it is one that RFCs name.
func known(code string) string {
	switch code {
	case "access_denied", "invalid_request", "unauthorized_client", "unsupported_response_type", "invalid_scope", "invalid_target", "server_error",
		"temporarily_unavailable", "interaction_required", "login_required", "account_selection_required", "consent_required":
		return code
	}
	return ""
}

// who checks the ID token, where the provider is of a type that has one, and finds out who
// the user is, as far as it is wanted. It fills in what tokens say of the user.
func (p *Provider) who(ctx context.Context, at *place, leg *Leg, t *Tokens, body []byte, want bool) (*Who, error) {
	var claims, info oauth.Object
	var who *Who
	var err error
	if p.published != nil {
		if claims, err = p.idToken(ctx, at, leg.Nonce, t); err != nil {
			return nil, fmt.Errorf("ID token: %w", err)
		}
		sub, _ := claims.Text("sub")
		if who, info, err = p.byIDToken(ctx, at, t, claims, sub, want); err != nil {
			return nil, err
		}
		t.Subject = sub
	} else {
		if who, info, err = p.byConfig(ctx, t, body, want); err != nil {
			return nil, err
		}
		if who != nil && !who.Synthesized {
			t.Subject = who.Subject
		}
	}
	p.read(ctx, t, claims, info)
	return who, nil
}

// byIDToken is who the user of an ID token is, with what userinfo says beside.
func (p *Provider) byIDToken(ctx context.Context, at *place, t *Tokens, claims oauth.Object, sub string, want bool) (who *Who, said oauth.Object, err error) {
	claim := cmp.Or(p.config.OIDCConfig.SubjectClaim, "sub")
	who = &Who{Subject: name(claims[claim]), Name: plain(text(claims["name"])), Email: plain(text(claims["email"]))}
	if want && who.Subject == "" {
		return nil, nil, fmt.Errorf("ID token: %s: there is no such text", claim)
	}
	info, must := p.userInfo, p.userInfo != nil
	if !must && (who.Name == "" || who.Email == "") && at.metadata.UserInfoEndpoint != "" {
		info = (&userInfo{at: at.metadata.UserInfoEndpoint, header: accept(), trust: trust(at.issuer, at.metadata.UserInfoEndpoint)}).filled()
	}
	if info == nil || !want {
		return who, nil, nil
	}
	said, err = info.fetch(ctx, p.client, t.Access)
	if err == nil && !info.agrees(said, sub, who.Subject) {
		return nil, nil, errors.New("userinfo: its subject is another than that of the ID token")
	}
	if err != nil {
		if must {
			return nil, nil, err
		}
		p.env.Log.Info("name and email of a user are not known", "upstream", p.Name(), "error", err)
		return who, nil, nil
	}
	more := info.who(said)
	if more.Name != "" {
		who.Name = more.Name
	}
	if more.Email != "" {
		who.Email = more.Email
	}
	return who, said, nil
}

// byConfig is who the user of a provider without ID tokens is.
func (p *Provider) byConfig(ctx context.Context, t *Tokens, body []byte, want bool) (*Who, oauth.Object, error) {
	switch {
	case p.identity != nil && want:
		who, err := p.identity.who(body)
		return who, nil, err
	case p.userInfo != nil && (want || p.config.Claims):
		said, err := p.userInfo.fetch(ctx, p.client, t.Access)
		if err != nil {
			return nil, nil, err
		}
		who := p.userInfo.who(said)
		if who.Subject == "" || len(who.Subject) > maxText {
			return nil, nil, errors.New("userinfo: it has no subject")
		}
		return who, said, nil
	case want:
		return synthesize(t.Access), nil, nil
	}
	return nil, nil, nil
}

// idToken returns the claims of the ID token of an answer.
func (p *Provider) idToken(ctx context.Context, at *place, nonce string, t *Tokens) (oauth.Object, error) {
	if t.ID == "" {
		return nil, errors.New("there is none")
	}
	claims, alg, err := p.published.signed(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	x := expected{issuer: at.issuer, client: at.client, nonce: nonce, access: t.Access, alg: alg, now: p.env.now()}
	return claims, x.judge(claims)
}

// read takes what policies may read: the claims of the access token when it is a JWT, else
// those of the ID token, else userinfo.
func (p *Provider) read(ctx context.Context, t *Tokens, id, info oauth.Object) {
	if !p.config.Claims {
		return
	}
	claims, err := oauth.Claims(t.Access)
	if err == nil && p.published != nil {
		claims, _, err = p.published.signed(ctx, t.Access)
	}
	switch {
	case err == nil:
	case id != nil:
		claims = id
	default:
		claims = info
	}
	if t.Claims = asClaims(claims); claims != nil && t.Claims == nil {
		p.env.Log.Warn("claims for policies are too large, and left out", "upstream", p.Name(), "most", maxClaims)
	}
}
