package outgoing

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// The grants and types of token that strategies name (RFC 8693 §2.1, §3; RFC 7523 §2.1;
// draft-ietf-oauth-identity-assertion-authz-grant).
const (
	grantExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	grantAssert   = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	typeOfToken   = "urn:ietf:params:oauth:token-type:"
	typeAccess    = typeOfToken + "access_token"
	typeID        = typeOfToken + "id_token"
	typeIDJAG     = typeOfToken + "id-jag"
)

// tokenExchange asks a token endpoint for a token for the backend in exchange for one of
// the user (RFC 8693).
type tokenExchange struct {
	party
	form     url.Values // but for the subject
	audience string     // "" for any
}

// parseTokenExchange is Parse for the section tokenExchange.
func (r *reader) parseTokenExchange(path *field.Path, t *v1beta1.TokenExchange) Strategy {
	x := &tokenExchange{party: party{endpoint: r.endpoint(path.Child("tokenUrl"), t.TokenURL, true), clientID: t.ClientID}}
	if t.ClientSecretRef != nil {
		x.secret = r.ref(path.Child("clientSecretRef"), *t.ClientSecretRef)
	}
	if t.Audience == "" {
		r.required(path.Child("audience"))
	}
	name := t.ExternalTokenHeaderName
	if name == "" {
		name = "Authorization"
	} else {
		r.name(path.Child("externalTokenHeaderName"), name)
	}
	r.idSecret(path, "clientId", t.ClientID, x.secret)
	return x.strategy(name, t.Audience, t.SubjectProviderName, t.SubjectTokenType, t.Scopes, t)
}

// parseTokenExchangeConfig is the same for spec.config.outgoingAuth.
func (r *reader) parseTokenExchangeConfig(path *field.Path, t *v1beta1.ConfigTokenExchange) Strategy {
	x := &tokenExchange{party: party{endpoint: r.endpoint(path.Child("tokenUrl"), t.TokenURL, true), clientID: t.ClientID}}
	x.secret = r.placed(path, "clientSecret", t.ClientSecret, t.ClientSecretEnv)
	r.idSecret(path, "clientId", t.ClientID, x.secret)
	return x.strategy("Authorization", t.Audience, t.SubjectProviderName, t.SubjectTokenType, t.Scopes, t)
}

func (x *tokenExchange) strategy(header, audience, provider, subject string, scopes []string, spec any) Strategy {
	if subject == "" {
		subject = typeAccess
	} else if !strings.HasPrefix(subject, typeOfToken) {
		subject = typeOfToken + subject
	}
	x.form = url.Values{"grant_type": {grantExchange}, "requested_token_type": {typeAccess}, "subject_token_type": {subject}}
	x.audience = audience
	optional(x.form, "audience", audience)
	optional(x.form, "scope", strings.Join(scopes, " "))
	return &personal{
		strategy: string(v1beta1.AuthTokenExchange), header: header, provider: provider, id: subject == typeID,
		digest: digest("tokenExchange", spec), maker: x.open, asks: []string{x.endpoint},
	}
}

// optional sets a parameter that has a value.
func optional(form url.Values, name, value string) {
	if value != "" {
		form.Set(name, value)
	}
}

func (x *tokenExchange) open(env edge.Env) (Maker, error) {
	at, err := x.party.open(env)
	return &exchanger{x, at}, err
}

// exchanger is a tokenExchange whose endpoint can be asked.
type exchanger struct {
	*tokenExchange
	at *oauth.TokenEndpoint
}

func (x *exchanger) Make(ctx context.Context, a *Ask) (Fresh, error) {
	form := maps.Clone(x.form)
	form.Set("subject_token", string(a.Subject))
	token, err := ask(ctx, x.at, form, oauth.Want{Issued: typeAccess}, "tokenExchange")
	if err != nil {
		return Fresh{}, err
	}
	// A token for somebody else is no use to the backend, and would be to whoever runs it.
	if claims, err := oauth.Claims(token.Access); err == nil && x.audience != "" && claims.Has("aud") && !claims.Audience(x.audience) {
		return Fresh{}, unavailable(errors.New("outgoing: tokenExchange: the token that was issued is for another audience"))
	}
	return fresh(token.Access, token.Expires, defaultSkew)
}
