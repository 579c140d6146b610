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
// what comes back in the query. An error of kind Unavailable says that the provider does not
// answer now.
func (p *Provider) Send(ctx context.Context, state string) (address string, leg Leg, err error) {
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
	claim := p.config.OIDCConfig.SubjectClaim
	if claim == "" {
		claim = "sub"
	}
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
	if err == nil && info.who(said).Subject != sub {
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
