package outgoing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// xaa asks the identity provider of the user for an assertion to the authorization server
// of the backend (RFC 8693), and that one for an access token (RFC 7523). The assertion is
// an ID-JAG (draft-ietf-oauth-identity-assertion-authz-grant), and is never kept.
type xaa struct {
	idp, target        party
	audience, resource string // of the assertion; resource is "" for any
	toIDP, toTarget    url.Values
}

// parseXAA is Parse for the section xaa.
func (r *reader) parseXAA(path *field.Path, s *v1beta1.XAA) Strategy {
	x := &xaa{audience: s.TargetAudience, resource: s.TargetResource}
	x.idp = party{endpoint: r.endpoint(path.Child("idpTokenUrl"), s.IDPTokenURL, false), clientID: s.IDPClientID}
	x.target = party{endpoint: r.endpoint(path.Child("targetTokenUrl"), s.TargetTokenURL, s.InsecureTargetTokenURL), clientID: s.TargetClientID}
	if s.IDPClientSecretRef != nil {
		x.idp.secret = r.ref(path.Child("idpClientSecretRef"), *s.IDPClientSecretRef)
	}
	if s.TargetClientSecretRef != nil {
		x.target.secret = r.ref(path.Child("targetClientSecretRef"), *s.TargetClientSecretRef)
	}
	return r.xaa(path, x, s.SubjectProviderName, s.SubjectTokenType, s.Scopes, s)
}

// parseXAAConfig is the same for spec.config.outgoingAuth.
func (r *reader) parseXAAConfig(path *field.Path, s *v1beta1.ConfigXAA) Strategy {
	x := &xaa{audience: s.TargetAudience, resource: s.TargetResource}
	x.idp = party{endpoint: r.endpoint(path.Child("idpTokenUrl"), s.IDPTokenURL, false), clientID: s.IDPClientID}
	x.target = party{endpoint: r.endpoint(path.Child("targetTokenUrl"), s.TargetTokenURL, s.InsecureTargetTokenURL), clientID: s.TargetClientID}
	x.idp.secret = r.placed(path, "idpClientSecret", s.IDPClientSecret, s.IDPClientSecretEnv)
	x.target.secret = r.placed(path, "targetClientSecret", s.TargetClientSecret, s.TargetClientSecretEnv)
	return r.xaa(path, x, s.SubjectProviderName, s.SubjectTokenType, s.Scopes, s)
}

// xaa is what both kinds have in common.
func (r *reader) xaa(path *field.Path, x *xaa, provider, subject string, scopes []string, spec any) Strategy {
	if x.audience == "" {
		r.required(path.Child("targetAudience"))
	}
	if subject != "" && subject != typeID {
		r.add(field.NotSupported(path.Child("subjectTokenType"), subject, []string{typeID}))
	}
	r.idSecret(path, "idpClientId", x.idp.clientID, x.idp.secret)
	r.idSecret(path, "targetClientId", x.target.clientID, x.target.secret)
	x.toIDP = url.Values{
		"grant_type": {grantExchange}, "requested_token_type": {typeIDJAG}, "subject_token_type": {typeID}, "audience": {x.audience},
	}
	x.toTarget = url.Values{"grant_type": {grantAssert}}
	optional(x.toIDP, "resource", x.resource)
	for _, form := range []url.Values{x.toIDP, x.toTarget} {
		optional(form, "scope", strings.Join(scopes, " "))
	}
	return &personal{
		strategy: string(v1beta1.AuthXAA), header: "Authorization", provider: provider, id: true,
		digest: digest("xaa", spec), maker: func(env edge.Env) (Maker, error) { return x.open(env, provider) },
		asks: []string{x.idp.endpoint, x.target.endpoint},
	}
}

func (x *xaa) open(env edge.Env, provider string) (Maker, error) {
	if provider == "" { // the client's own token is never its subject
		return nil, errors.New("subjectProviderName: it names no upstream to take the ID token from")
	}
	idp, err := x.idp.open(env)
	if err != nil {
		return nil, err
	}
	target, err := x.target.open(env)
	return &across{x, idp, target, env.Clock()}, err
}

// across is an xaa whose endpoints can be asked.
type across struct {
	*xaa
	atIDP, atTarget *oauth.TokenEndpoint
	now             func() time.Time
}

func (x *across) Make(ctx context.Context, a *Ask) (Fresh, error) {
	// 1. An assertion of the identity provider to the target, of an ID token alone.
	if header, err := oauth.Header(a.Subject); err != nil || isAccessToken(header) {
		return Fresh{}, fault(edge.Unauthenticated, true, errors.New("outgoing: xaa: what the upstream issued is no ID token"))
	}
	form := maps.Clone(x.toIDP)
	form.Set("subject_token", string(a.Subject))
	assertion, err := ask(ctx, x.atIDP, form, oauth.Want{Assertion: true, Issued: typeIDJAG}, "xaa")
	if err != nil {
		return Fresh{}, err
	}
	if err := (oauth.IDJAG{Audience: x.audience, Resource: x.resource, ClientID: x.target.clientID}).Fits(assertion.Access, x.now()); err != nil {
		return Fresh{}, fault(edge.Unauthenticated, true, fmt.Errorf("outgoing: xaa: the assertion of the identity provider: %w", err))
	}

	// 2. An access token of the target.
	form = maps.Clone(x.toTarget)
	form.Set("assertion", string(assertion.Access))
	token, err := ask(ctx, x.atTarget, form, oauth.Want{}, "xaa")
	if err != nil {
		return Fresh{}, err
	}
	return fresh(token.Access, token.Expires, defaultSkew)
}

// isAccessToken reports whether the header of a JWT is that of an access token (RFC 9068
// §2.1), which is no proof of a login.
func isAccessToken(header oauth.Object) bool {
	typ, _ := header.Text("typ")
	return slices.Contains([]string{"at+jwt", "application/at+jwt"}, strings.ToLower(typ))
}
