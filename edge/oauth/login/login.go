package login

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/oauth"
)

// client makes logins with one set of options.
type client struct {
	options Options
	http    *oauth.Client
	dev     bool // learned loopback addresses are allowed
}

// NeededError says that somebody has to log in, and nobody is there who could.
type NeededError struct {
	URL string
	Why string

	Settings Settings // of the login
}

func (e *NeededError) Error() string {
	return fmt.Sprintf("%s: %s: log in with `%s`", shown(e.URL), e.Why, e.Settings.Command(e.URL))
}

// Ends of a login that may mean that the authorization server does not know the client.
var (
	errNobody  = errors.New("nobody came back from the browser")
	errUnknown = errors.New("the authorization server refuses")
)

// unknownClient reports whether a code of an error is that of a client which is not known, or is
// known otherwise (RFC 6749 §4.1.2.1 and §5.2).
func unknownClient(code string) bool {
	return code == "invalid_client" || code == "unauthorized_client"
}

// login gets tokens for the server, given what it answered, what is kept of a former login,
// and the scopes that it has to have besides. Nothing is stored here.
func (c *client) login(ctx context.Context, challenge mcp.Challenge, kept Kept, more []string) (Kept, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()

	// 1. Who gives access, and to what.
	p, err := c.discover(ctx, challenge)
	if err != nil {
		return Kept{}, err
	}
	k := Kept{
		URL: c.options.URL, Settings: c.options.settings(), Resource: p.resource, Issuer: p.server.Issuer,
		Endpoint: p.server.TokenEndpoint, Methods: p.server.TokenAuthMethods, Since: time.Now().UTC().Truncate(time.Second),
	}
	k.Requested = c.scopes(challenge, p, more)

	// 2. Without a user: a client of its own, or one for whom the identity provider vouches.
	switch c.options.grant() {
	case ClientCredentials, Enterprise:
		k.Client = Client{ID: c.options.ClientID, How: given, Issuer: p.server.Issuer}
		if c.options.grant() == ClientCredentials {
			return c.own(ctx, k)
		}
		return c.enterprise(ctx, k)
	}

	// 3. What the way through a browser needs: two endpoints, and PKCE, without which a code
	// is worth something to who steals it. Where there are no metadata to announce it, it is
	// used all the same.
	if err := errors.Join(c.options.endpoint("authorization_endpoint", p.server.AuthorizationEndpoint, c.dev), c.options.endpoint("token_endpoint", p.server.TokenEndpoint, c.dev)); err != nil {
		return Kept{}, err
	}
	if !p.undescribed && !slices.Contains(p.server.ChallengeMethods, "S256") {
		return Kept{}, errors.New("the authorization server does not announce PKCE with S256 (code_challenge_methods_supported), without which no login is safe: ask whoever runs it")
	}

	// 4. Where the browser comes back to, and as whom this asks.
	port := c.options.CallbackPort
	if port == 0 {
		port = DefaultCallbackPort
	}
	state, verifier := rand.Text()+rand.Text(), rand.Text()+rand.Text()
	back, err := listen(port, state)
	if err != nil {
		return Kept{}, err
	}
	defer back.close()
	if k.Client, err = c.register(ctx, p, kept, back.redirect); err != nil {
		return Kept{}, err
	}

	// 5. The user decides.
	where, err := c.authorizeURL(p, k, back.redirect, state, verifier)
	if err != nil {
		return Kept{}, err
	}
	back.begin(func(q url.Values) (string, error) { return judge(q, p) })
	c.show(where)
	code, err := back.wait(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return Kept{}, fmt.Errorf("%w in %s: the page there may say why; else log in again with a longer timeout", errNobody, c.options.Timeout)
	}
	if err != nil {
		return Kept{}, err
	}

	// 6. The code for tokens.
	return c.redeem(ctx, k, code, verifier, back.redirect)
}

// scopes are those to ask for: what the operator says, else what the challenge says, else all
// that the resource names, else, where the operator names an OpenID provider, those of its
// users; else none. offline_access is added where the server offers it, since it may be what a
// refresh token depends on. A step-up (more) has all that it needs already.
func (c *client) scopes(challenge mcp.Challenge, p *place, more []string) []string {
	var scopes []string
	switch {
	case len(more) > 0:
	case len(c.options.Scopes) > 0:
		scopes = slices.Clone(c.options.Scopes)
	case len(challenge.Scopes) > 0:
		scopes = slices.Clone(challenge.Scopes)
	case len(p.scopes) > 0:
		scopes = slices.Clone(p.scopes)
	case c.options.Issuer != "" && c.options.grant() == Code:
		scopes = []string{"openid", "profile", "email"}
	}
	if c.options.grant() == Code && len(c.options.Scopes) == 0 && slices.Contains(p.server.Scopes, "offline_access") {
		more = append(slices.Clone(more), "offline_access")
	}
	for _, s := range more {
		if !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	return scopes
}

// authorizeURL is what the browser is to open (RFC 6749 §4.1.1, RFC 7636 §4.3, RFC 8707 §2).
func (c *client) authorizeURL(p *place, k Kept, redirect, state, verifier string) (string, error) {
	u, err := url.Parse(p.server.AuthorizationEndpoint)
	if err != nil {
		return "", errors.New("authorization_endpoint: it is malformed")
	}
	sum := sha256.Sum256([]byte(verifier))
	q := u.Query()
	for name, value := range map[string]string{
		"response_type": "code", "client_id": k.Client.ID, "redirect_uri": redirect, "state": state,
		"code_challenge": base64.RawURLEncoding.EncodeToString(sum[:]), "code_challenge_method": "S256", "resource": k.Resource,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if len(k.Requested) > 0 {
		name := c.options.ScopeParam
		if name == "" {
			name = "scope"
		}
		q.Set(name, strings.Join(k.Requested, " "))
	}
	if slices.Contains(k.Requested, "offline_access") {
		q.Set("prompt", "consent") // OpenID Connect Core §11
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// show brings the user to the page.
func (c *client) show(where string) {
	if c.options.SkipBrowser {
		c.options.say("Open this page in a browser to log in:\n%s", where)
		return
	}
	c.options.say("A browser is opened to log in. Where none appears, open this page in one:\n%s", where)
	open := c.options.Browse
	if open == nil {
		open = browse
	}
	if err := open(where); err != nil {
		c.options.say("No browser was opened: %v", err)
	}
}

// judge says what the browser brought: the code, where it is of the server that was asked
// (RFC 9207 §2.4: compared byte by byte), or why there is none.
func judge(q url.Values, p *place) (code string, err error) {
	issuer, there := q.Get("iss"), q.Has("iss")
	switch {
	case there && p.server.Issuer != "" && issuer != p.server.Issuer:
		return "", errors.New("the answer is of another authorization server than the one that was asked (iss): it is not used")
	case !there && p.server.ResponseIssuer:
		return "", errors.New("the answer does not say of which authorization server it is (iss), which this one announces: it is not used")
	case q.Has("error"):
		word := q.Get("error")
		if !isWord(word) {
			word = "an error"
		}
		if unknownClient(word) {
			return "", fmt.Errorf("%w: %s", errUnknown, word)
		}
		return "", fmt.Errorf("the authorization server refuses: %s", word)
	}
	if code = q.Get("code"); code == "" || len(code) > maxCallbackLine {
		return "", errors.New("the answer holds no code")
	}
	return code, nil
}

// firstOf is the first Bearer challenge among values of WWW-Authenticate; one that says nothing
// where there is none.
func firstOf(values []string) (first mcp.Challenge) {
	for first = range mcp.Challenges(values...) {
		break
	}
	return first
}

// probe asks the server something without a credential, for its challenge. asked is false
// where it answers all the same.
func (c *client) probe(ctx context.Context) (challenge mcp.Challenge, asked bool, err error) {
	const body = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"weir","version":"1"}}}}`
	trust, allowHTTP := c.options.trust(c.options.URL)
	answer, err := c.http.Do(ctx, oauth.Request{
		Method: http.MethodPost, URL: c.options.URL, Trust: trust, AllowHTTP: allowHTTP, Body: []byte(body),
		Header: http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
			"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"server/discover"},
		},
	})
	if err != nil {
		return mcp.Challenge{}, false, err
	}
	challenge = firstOf(answer.Header.Values("WWW-Authenticate"))
	return challenge, answer.Status == http.StatusUnauthorized, nil
}

// Canonical is a URL by which one server is known.
func Canonical(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	u.Scheme, u.Host, u.Fragment = strings.ToLower(u.Scheme), strings.ToLower(u.Host), ""
	if port := u.Port(); u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		u.Host = strings.TrimSuffix(u.Host, ":"+port)
	}
	return u.String()
}

// lateBy is how long before its end a token is not used any more.
const lateBy = 30 * time.Second

// good reports whether an access token may be sent at a time.
func (t Tokens) good(now time.Time) bool {
	return t.Access != "" && (t.Expires.IsZero() || now.Before(t.Expires.Add(-lateBy)))
}

// bearer is the static token of the options; "" for none.
func (o *Options) bearer() (edge.Secret, error) {
	token := o.BearerToken
	if o.BearerTokenFile != "" {
		var err error
		if token, err = secretOf("bearer-token-file", o.BearerTokenFile); err != nil {
			return "", err
		}
	}
	if token != "" && !oauth.IsBearer(string(token)) {
		return "", errors.New("bearer-token: it cannot stand in a header")
	}
	return token, nil
}
