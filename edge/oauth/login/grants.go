package login

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// Names of grants and token types (RFC 7523, RFC 8693, identity assertion authorization grant).
const (
	grantExchange  = "urn:ietf:params:oauth:grant-type:token-exchange"
	grantAssertion = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	typeIDToken    = "urn:ietf:params:oauth:token-type:id_token"
	typeIDJAG      = "urn:ietf:params:oauth:token-type:id-jag"
)

// endpoint is the token endpoint of a login, asked as its client.
func (c *client) endpoint(k Kept) (*oauth.TokenEndpoint, error) {
	return c.endpointAt(k, "token_endpoint", k.Endpoint)
}

// endpointAt is another endpoint of its authorization server, asked likewise. name is that of
// the metadata.
func (c *client) endpointAt(k Kept, name, where string) (*oauth.TokenEndpoint, error) {
	if err := c.options.endpoint(name, where, c.dev); err != nil {
		return nil, err
	}
	secret, err := c.secret(k.Client)
	if err != nil {
		return nil, err
	}
	o := oauth.TokenOptions{Name: strings.ReplaceAll(name, "_", " "), URL: where, Client: c.http, ClientID: k.Client.ID, Method: c.method(k, secret != "")}
	o.Trust, o.AllowHTTP = c.options.trust(where)
	if secret != "" && o.Method != oauth.AuthNone {
		o.Secret = func(context.Context) (edge.Secret, error) { return secret, nil }
	}
	if o.Method == oauth.AuthSigned {
		audience := k.Issuer
		if audience == "" {
			audience = k.Endpoint
		}
		o.Sign = func(context.Context) (edge.Secret, error) {
			key, err := edge.ReadKeys(c.options.PrivateKeyFile)
			if err != nil {
				return "", fmt.Errorf("private-key-file: %w", err)
			}
			signed, err := oauth.SignAssertion(key, k.Client.ID, audience, time.Now())
			if err != nil {
				return "", fmt.Errorf("private-key-file: %s: %w", c.options.PrivateKeyFile, err)
			}
			return signed, nil
		}
	}
	return oauth.NewTokenEndpoint(o), nil
}

// method is how the client proves itself: as its registration says, else in the first way
// that it can and the server takes.
func (c *client) method(k Kept, hasSecret bool) oauth.AuthMethod {
	if k.Client.How == given && c.options.PrivateKeyFile != "" {
		return oauth.AuthSigned
	}
	if !hasSecret {
		return oauth.AuthNone
	}
	for _, of := range [][]string{{k.Client.Method}, k.Methods} {
		for _, m := range []struct {
			name   string
			method oauth.AuthMethod
		}{{"client_secret_basic", oauth.AuthBasic}, {"client_secret_post", oauth.AuthBody}, {"none", oauth.AuthNone}} {
			if slices.Contains(of, m.name) {
				return m.method
			}
		}
	}
	return oauth.AuthEither
}

// granted puts what a server gave into a login.
func granted(k Kept, t *oauth.Token) Kept {
	refresh := k.Tokens.Refresh
	if t.Refresh != "" {
		refresh = string(t.Refresh)
	}
	k.Tokens = Tokens{Access: string(t.Access), Refresh: refresh, Expires: t.Expires, Scopes: oauth.Scopes(t.Scope), Of: k.Client.generation()}
	if t.Scope == "" {
		k.Tokens.Scopes = k.Requested // RFC 6749 §5.1
	}
	return k
}

// redeem trades a code for tokens (RFC 6749 §4.1.3, RFC 7636 §4.5).
func (c *client) redeem(ctx context.Context, k Kept, code, verifier, redirect string) (Kept, error) {
	k.Tokens = Tokens{}
	return c.ask(ctx, k, url.Values{"grant_type": {"authorization_code"}, "code": {code}, "code_verifier": {verifier}, "redirect_uri": {redirect}}, nil)
}

// refresh trades the refresh token for new tokens (RFC 6749 §6). stored is told a new refresh
// token before anything else that came is looked at.
func (c *client) refresh(ctx context.Context, k Kept, stored func(edge.Secret) error) (Kept, error) {
	return c.ask(ctx, k, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {k.Tokens.Refresh}}, stored)
}

// ask asks for tokens for the resource of a login.
func (c *client) ask(ctx context.Context, k Kept, form url.Values, stored func(edge.Secret) error) (Kept, error) {
	endpoint, err := c.endpoint(k)
	if err != nil {
		return k, err
	}
	if k.Resource != "" {
		form.Set("resource", k.Resource)
	}
	t, err := endpoint.Ask(ctx, form, oauth.Want{Refreshed: stored})
	if err != nil {
		return k, err
	}
	return granted(k, t), nil
}

// own asks for a token on the client's own account (RFC 6749 §4.4).
func (c *client) own(ctx context.Context, k Kept) (Kept, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(k.Requested) > 0 {
		form.Set("scope", strings.Join(k.Requested, " "))
	}
	k.Tokens = Tokens{}
	return c.ask(ctx, k, form, nil)
}

// enterprise has the identity provider vouch for the user at the authorization server, and
// trades that for a token (enterprise-managed authorization, §4 and §5).
func (c *client) enterprise(ctx context.Context, k Kept) (Kept, error) {
	// 1. The user's ID token for an assertion.
	if k.Issuer == "" {
		return k, errors.New("the authorization server has no metadata, and so no name to give to the identity provider: name it with issuer")
	}
	idToken, err := secretOf("id-token-file", c.options.IDTokenFile)
	if err != nil {
		return k, err
	}
	if err := c.options.endpoint("idp-token-url", c.options.IDPTokenURL, c.dev); err != nil {
		return k, err
	}
	o := oauth.TokenOptions{URL: c.options.IDPTokenURL, Trust: oauth.Named, AllowHTTP: true, Client: c.http, ClientID: c.options.IDPClientID}
	if c.options.IDPClientSecretFile != "" {
		o.Secret = func(context.Context) (edge.Secret, error) {
			return secretOf("idp-client-secret-file", c.options.IDPClientSecretFile)
		}
	}
	form := url.Values{
		"grant_type": {grantExchange}, "requested_token_type": {typeIDJAG}, "audience": {k.Issuer}, "resource": {k.Resource},
		"subject_token": {string(idToken)}, "subject_token_type": {typeIDToken},
	}
	if len(k.Requested) > 0 {
		form.Set("scope", strings.Join(k.Requested, " "))
	}
	assertion, err := oauth.NewTokenEndpoint(o).Ask(ctx, form, oauth.Want{Assertion: true, Issued: typeIDJAG})
	if err != nil {
		return k, fmt.Errorf("identity provider: %w", err)
	}

	// 2. It has to be for whom it was asked, before it goes there.
	if err := k.asked().Fits(assertion.Access, time.Now()); err != nil {
		return k, fmt.Errorf("identity provider: its assertion: %w", err)
	}

	// 3. The assertion for a token (RFC 7523 §2.1).
	form = url.Values{"grant_type": {grantAssertion}, "assertion": {string(assertion.Access)}}
	if len(k.Requested) > 0 {
		form.Set("scope", strings.Join(k.Requested, " "))
	}
	k.Tokens = Tokens{}
	return c.ask(ctx, k, form, nil)
}

// asked is what an identity assertion for a login is asked for.
func (k *Kept) asked() oauth.IDJAG {
	return oauth.IDJAG{Audience: k.Issuer, Resource: k.Resource, ClientID: k.Client.ID}
}
