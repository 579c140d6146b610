// Package upstream signs users in at identity providers of the operator's choice: it sends a
// browser there, takes what comes back, learns who it is, and renews what was issued. Of a
// user it keeps nothing by itself: what is kept lies sealed in Records.
package upstream

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Leg is what a login remembers of being sent to a provider; the caller seals it.
type Leg struct {
	Provider string // the name of the provider
	Redirect string // the redirect URI that was sent
	Nonce    string // of the ID token; "" for a provider of type oauth2
	Verifier string // of PKCE
	Issuer   string // the issuer that an answer names; "" where nobody knows one
	Strict   bool   // the provider says that each of its answers names it
	Client   string // the generation of the client at the provider
}

// Tokens are what a provider issued to a user.
type Tokens struct {
	Access, Refresh, ID edge.Secret
	Scope               string         // the scopes that were granted, apart by blanks; "" where the provider did not say
	Issued              time.Time      // when they were asked for
	Expires             time.Time      // when the access token ends; zero where nobody says so
	Client              string         // the generation of the client at the provider that they are for
	Subject             string         // who they are for at this provider, compared at each refresh; "" where it never said
	Claims              map[string]any // what policies read, numbers as json.Number; nil for none
}

// Who is the identity that a provider vouches for.
type Who struct {
	Subject     string // as the provider has it; never empty, and at most 8 KiB of anything
	Name, Email string // "" for none; at most 256 bytes, no control characters
	Synthesized bool   // the subject was made of the access token
}

// Refused says that the provider answered a login with an error of its own, be it that the
// user said no. Code is a word of RFC 6749 §4.1.2.1 or OpenID Connect Core §3.1.2.6, "" for
// any other: what else the provider said is kept nowhere.
type Refused struct{ Provider, Code string }

// Error implements error.
func (r *Refused) Error() string {
	return strings.TrimSuffix("the identity provider "+r.Provider+" refused the login: "+r.Code, ": ")
}

// Gone says that tokens cannot be renewed: the user has to sign in with the provider again.
type Gone struct{ Provider, Reason string }

// Error implements error.
func (g *Gone) Error() string { return "the sign-in with " + g.Provider + " is over: " + g.Reason }

// Records are where values are kept for all replicas of an edge, sealed by whoever gives
// them. They are as an edge.Store is: nil is a value that is not there.
type Records interface {
	Get(ctx context.Context, key string) ([]byte, error)
	Update(ctx context.Context, key string, ttl time.Duration, change func(old []byte) ([]byte, error)) error
}

// Env is the world that providers touch.
type Env struct {
	Reach   edge.Reach
	Secrets edge.Secrets
	Records Records          // nil where no provider registers
	Log     *slog.Logger     // nil for none
	Now     func() time.Time // nil for time.Now
}

func (e Env) now() time.Time {
	if e.Now == nil {
		return time.Now()
	}
	return e.Now()
}

// secret returns what reads a secret at each use, so that it may change.
func (e Env) secret(ref *v1beta1.SecretRef) func(context.Context) (edge.Secret, error) {
	return func(ctx context.Context) (edge.Secret, error) {
		value, err := e.Secrets.Secret(ctx, ref.Name, ref.Key)
		if err != nil {
			return "", err
		}
		if value = edge.Secret(strings.TrimRight(string(value), "\r\n")); value == "" {
			return "", fmt.Errorf("secret %s, key %s: it is empty", ref.Name, ref.Key)
		}
		return value, nil
	}
}

// Provider is an identity provider. It is safe for concurrent use.
type Provider struct {
	config    *Config
	env       Env
	client    *oauth.Client
	published *published // of type oidc; else nil
	registrar *registrar // nil where the operator has registered
	secret    func(context.Context) (edge.Secret, error)
	reading   *reading
	userInfo  *userInfo // that the operator describes; nil for none
	identity  *identity // nil for none
	endpoint  memo      // of tokens
}

// New returns the provider of a configuration that Parse took. It touches the secrets, and
// asks the provider nothing. Close ends it.
func New(c *Config, env Env) (*Provider, error) {
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	client, err := oauth.New(oauth.Options{Reach: env.Reach})
	if err != nil {
		return nil, fmt.Errorf("upstream %s: %w", c.Name, err)
	}
	p := &Provider{config: c, env: env, client: client}
	var ref *v1beta1.SecretRef
	var info *v1beta1.UserInfo
	var mapping *v1beta1.TokenResponseMapping
	if o := c.OIDCConfig; o != nil {
		ref, info = o.ClientSecretRef, o.UserInfoOverride
		p.published = newPublished(o.IssuerURL, client, env.now)
	}
	if o := c.OAuth2Config; o != nil {
		ref, info, mapping = o.ClientSecretRef, o.UserInfo, o.TokenResponseMapping
		if o.IdentityFromToken != nil { // which skips userinfo
			info = nil
			p.identity, err = newIdentity(o.IdentityFromToken)
		}
		if o.DCRConfig != nil {
			p.registrar = newRegistrar(c, env, client)
		}
	}
	if err == nil {
		p.reading, err = reads(mapping)
	}
	if info != nil {
		p.userInfo = newUserInfo(info, c.http())
	}
	for _, s := range []*v1beta1.SecretRef{ref, p.initial()} {
		if s != nil && err == nil {
			_, err = env.secret(s)(context.Background())
		}
	}
	if ref != nil {
		p.secret = env.secret(ref)
	}
	if err == nil {
		err = p.loopback()
	}
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("upstream %s: %w", c.Name, err)
	}
	return p, nil
}

// initial is the secret of the registration; nil for none.
func (p *Provider) initial() *v1beta1.SecretRef {
	if d := p.config.dcr(); d != nil {
		return d.InitialAccessTokenRef
	}
	return nil
}

// loopback refuses http endpoints on this machine, which Parse lets pass for development,
// where the process is not set so.
func (p *Provider) loopback() error {
	if p.client.DevLoopback() || p.config.http() {
		return nil
	}
	var all []string
	if o := p.config.OAuth2Config; o != nil {
		all = []string{o.AuthorizationEndpoint, o.TokenEndpoint}
	}
	if p.userInfo != nil {
		all = append(all, p.userInfo.at)
	}
	for _, at := range all {
		if strings.HasPrefix(at, "http://") {
			return fmt.Errorf("%s: it is http: use https, or --dev-loopback for development", at)
		}
	}
	return nil
}

// Close closes connections that nothing uses.
func (p *Provider) Close() { p.client.Close() }

// Name returns the name that the configuration has for the provider.
func (p *Provider) Name() string { return p.config.Name }

// Redirect returns where the provider sends a browser back to: the address to enter there.
func (p *Provider) Redirect() string { return p.config.Redirect }

// Ready returns nil when users can be sent to the provider, else why not.
func (p *Provider) Ready(ctx context.Context) error {
	_, err := p.place(ctx)
	return err
}

// place is the provider at one moment: its endpoints, and as whom the edge is known there.
type place struct {
	authorize, token string
	trust            oauth.Trust // of token
	issuer           string      // "" where nobody knows one
	strict           bool
	client           string
	scopes           string
	registration     *registration   // nil where the operator has registered
	metadata         *oauth.Metadata // of type oidc; else nil
}

// place asks the provider where it does not know already.
func (p *Provider) place(ctx context.Context) (*place, error) {
	at := &place{scopes: strings.Join(p.config.Scopes, " ")}
	if o := p.config.OIDCConfig; o != nil {
		meta, err := p.published.metadata(ctx)
		if err != nil {
			return nil, unavailable("upstream "+p.Name(), err)
		}
		at.metadata, at.authorize, at.token, at.client = meta, meta.AuthorizationEndpoint, meta.TokenEndpoint, o.ClientID
		at.trust, at.issuer, at.strict = trust(o.IssuerURL, meta.TokenEndpoint), o.IssuerURL, meta.ResponseIssuer
		return at, nil
	}
	o := p.config.OAuth2Config
	at.authorize, at.token, at.trust, at.client = o.AuthorizationEndpoint, o.TokenEndpoint, oauth.Named, o.ClientID
	if p.registrar != nil {
		reg, err := p.registrar.get(ctx)
		if err != nil {
			return nil, err
		}
		at.registration, at.client, at.scopes, at.issuer, at.strict = reg, reg.ID, reg.Scopes, reg.Issuer, reg.Strict
	}
	return at, nil
}

// Send returns the address to send a browser to, and what the login has to remember. state is
// what comes back in the query; prompts are values of prompt (OpenID Connect Core §3.1.2.1)
// beside those of the configuration. An error of kind Unavailable says that the provider does
// not answer now.
func (p *Provider) Send(ctx context.Context, state string, prompts []string) (address string, leg Leg, err error) {
	at, err := p.place(ctx)
	if err != nil {
		return "", leg, err
	}
	leg = Leg{
		Provider: p.Name(), Redirect: p.config.Redirect, Verifier: random(), Issuer: at.issuer, Strict: at.strict, Client: generation(at.client),
	}
	to, err := url.Parse(at.authorize)
	if err != nil {
		return "", Leg{}, unavailable("upstream "+p.Name(), errors.New("its authorization endpoint is malformed"))
	}
	challenge := sha256.Sum256([]byte(leg.Verifier))
	query := to.Query()
	for name, value := range p.config.params() {
		query.Set(name, value)
	}
	if len(prompts) > 0 {
		all := slices.DeleteFunc(strings.Fields(query.Get("prompt")), func(one string) bool { return one == "none" || slices.Contains(prompts, one) })
		query.Set("prompt", strings.Join(append(all, prompts...), " "))
	}
	for name, value := range map[string]string{
		"response_type": "code", "client_id": at.client, "redirect_uri": leg.Redirect, "state": state,
		"code_challenge": base64.RawURLEncoding.EncodeToString(challenge[:]), "code_challenge_method": "S256",
	} {
		query.Set(name, value)
	}
	if at.scopes != "" {
		query.Set("scope", at.scopes)
	}
	if p.published != nil {
		leg.Nonce = random()
		query.Set("nonce", leg.Nonce)
	}
	to.RawQuery = query.Encode()
	return to.String(), leg, nil
}

// random is 256 random bits, as PKCE takes them (RFC 7636 §4.1).
func random() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(bits[:])
}
