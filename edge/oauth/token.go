package oauth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
)

// AuthMethod is how a client authenticates at a token endpoint.
type AuthMethod uint8

// The ways of RFC 6749 §2.3.1 and RFC 7523 §2.2.
const (
	AuthEither    AuthMethod = iota // a secret by HTTP Basic; where that is refused, in the body. No secret: as AuthNone
	AuthBasic                       // a secret by HTTP Basic
	AuthBody                        // a secret in the body
	AuthNone                        // client_id in the body, "" for not even that
	AuthSigned                      // private_key_jwt
	AuthBodyFirst                   // as AuthEither, the other way round
)

// TokenOptions say where tokens are asked for, and as whom.
type TokenOptions struct {
	Name      string // of the kind of endpoint, in errors; "" for token endpoint
	URL       string
	Trust     Trust // of the URL
	AllowHTTP bool  // the URL may be of http, since the operator wrote it so
	Client    *Client
	Method    AuthMethod
	ClientID  string

	// Secret returns the client secret of the moment; nil for none.
	Secret func(context.Context) (edge.Secret, error)

	// Sign returns a JWT that authenticates the client at the endpoint (RFC 7523 §3).
	// Only AuthSigned calls it.
	Sign func(ctx context.Context) (edge.Secret, error)

	Now func() time.Time // nil for time.Now
}

// TokenEndpoint is a token endpoint (RFC 6749 §3.2). It keeps nothing but which way of
// authentication worked last. It is safe for concurrent use.
type TokenEndpoint struct {
	options TokenOptions
	body    atomic.Bool // of AuthEither and AuthBodyFirst: the body is tried first
}

// NewTokenEndpoint returns a token endpoint.
func NewTokenEndpoint(o TokenOptions) *TokenEndpoint {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Name == "" {
		o.Name = "token endpoint"
	}
	e := &TokenEndpoint{options: o}
	e.body.Store(o.Method == AuthBodyFirst)
	return e
}

// TokenError is the cause of the errors of Ask. Its text may reach a client, and says
// nothing of the endpoint; the Op of the edge.Error around it is for the log.
type TokenError struct {
	Code   string // error of the answer, where RFC 6749, 8693, 8707 or OpenID Connect has it; else ""
	Status int    // HTTP status of the answer; 0 for none
	Said   bool   // the answer itself has the code: whatever stands before an endpoint may answer 401

	kind  edge.Kind
	cause error // nil where Code and Status say all
}

func (e *TokenError) Error() string {
	switch e.kind {
	case edge.Unauthenticated:
		return "sign in again"
	case edge.Denied:
		return "the authorization server refuses access"
	case edge.Timeout:
		return "the authorization server does not answer"
	}
	return "the authorization server issues no token"
}

func (e *TokenError) Unwrap() error { return e.cause }

// Refused reports whether an error of Ask is the decision of the endpoint: an answer of
// status 4xx, which the same request gets again.
func Refused(err error) bool {
	var e *TokenError
	return errors.As(err, &e) && e.Status >= 400 && e.Status < 500
}

// kindOf is what becomes of a call that an error of RFC 6749 §5.2, RFC 8693 §2.2.2, RFC
// 8707 §2 or OpenID Connect Core §3.1.2.6 stands in the way of; ok is false for a word that
// none of them has.
func kindOf(code string) (kind edge.Kind, ok bool) {
	switch code {
	case "invalid_grant", "login_required", "interaction_required", "consent_required":
		return edge.Unauthenticated, true
	case "access_denied", "invalid_scope", "invalid_target":
		return edge.Denied, true
	case "invalid_client", "unauthorized_client", "invalid_request", "unsupported_grant_type", "unsupported_token_type", "invalid_resource",
		"server_error", "temporarily_unavailable", "slow_down", "authorization_pending", "expired_token", "invalid_dpop_proof", "use_dpop_nonce":
		return edge.Unavailable, true
	}
	return edge.Unavailable, false
}

// fail returns the error of Ask.
func (e *TokenEndpoint) fail(kind edge.Kind, status int, code string, cause error) error {
	op := e.options.Name + " " + place(e.options.URL)
	switch {
	case cause != nil:
		op += ": " + cause.Error()
	case code != "":
		op += fmt.Sprintf(": %s (status %d)", code, status)
	default:
		op += fmt.Sprintf(": status %d", status)
	}
	return &edge.Error{Kind: kind, Op: op, Err: &TokenError{Code: code, Status: status, kind: kind, cause: cause}}
}

// Ask posts a form, to which the authentication of the client is added, and reads the
// token of the answer. It takes as long as the client's timeout at most, and follows no
// redirect.
//
// The error is an *edge.Error around a *TokenError: Unauthenticated where the user has to
// sign in again, Denied where the server gives the user no such token, Timeout where it
// keeps silent, and Unavailable for the rest: the operator's faults, a server that is down,
// and nonsense. No error holds what the server wrote.
func (e *TokenEndpoint) Ask(ctx context.Context, form url.Values, want Want) (*Token, error) {
	// 1. The answer.
	answer, asked, err := e.post(ctx, form)
	if err != nil {
		return nil, err
	}

	// 2. The token. A new refresh token is kept before anything can be found wrong with the
	// rest: the old one may be worth nothing by now.
	if want.Refreshed != nil {
		o, err := ParseObject(answer.Body, maxTokenDepth)
		if err == nil {
			if refresh, err := o.token("refresh_token"); err == nil && refresh != "" {
				if err := want.Refreshed(refresh); err != nil {
					return nil, e.fail(edge.Unavailable, answer.Status, "", err)
				}
			}
		}
	}
	token, err := ParseToken(answer.Body, asked, want)
	if err != nil {
		return nil, e.fail(edge.Unavailable, answer.Status, "", err)
	}
	return token, nil
}

// Answer posts a form as Ask does, and returns the answer of status 200 as it came, at most 1
// MiB of it, and when it was asked for: for a provider whose answers have a form of their own.
// The error is as that of Ask.
func (e *TokenEndpoint) Answer(ctx context.Context, form url.Values) (body []byte, asked time.Time, err error) {
	answer, asked, err := e.post(ctx, form)
	if err != nil {
		return nil, asked, err
	}
	return answer.Body, asked, nil
}

// Revoke ends a token at a revocation endpoint, which is asked as a token endpoint is (RFC
// 7009 §2.1). hint is access_token or refresh_token. A token that the server does not know is
// as good as revoked. The error is as that of Ask.
func (e *TokenEndpoint) Revoke(ctx context.Context, token edge.Secret, hint string) error {
	_, _, err := e.post(ctx, url.Values{"token": {string(token)}, "token_type_hint": {hint}})
	return err
}

// post posts a form, and returns an answer of status 200 and when it was asked for. A secret
// that is refused in one place is shown in the other.
func (e *TokenEndpoint) post(ctx context.Context, form url.Values) (answer *Response, asked time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.options.Client.options.Timeout)
	defer cancel()
	if e.options.Method != AuthEither && e.options.Method != AuthBodyFirst || e.options.Secret == nil {
		return e.postBy(ctx, form, e.options.Method)
	}
	method, other := AuthBasic, AuthBody
	if e.body.Load() {
		method, other = other, method
	}
	answer, asked, err = e.postBy(ctx, form, method)
	var t *TokenError
	if !errors.As(err, &t) || t.Code != "invalid_client" {
		return answer, asked, err
	}
	if answer, asked, err = e.postBy(ctx, form, other); err == nil {
		e.body.Store(other == AuthBody)
	}
	return answer, asked, err
}

// postBy is post with one way of authentication.
func (e *TokenEndpoint) postBy(ctx context.Context, form url.Values, method AuthMethod) (answer *Response, asked time.Time, err error) {
	// 1. The form, and as whom.
	body, header := url.Values{}, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}}
	for name, values := range form {
		body[name] = slices.Clone(values)
	}
	if err := e.authenticate(ctx, body, header, method); err != nil {
		return nil, asked, e.fail(edge.Unavailable, 0, "", err)
	}

	// 2. The answer.
	asked = e.options.Now()
	answer, err = e.options.Client.Do(ctx, Request{
		Method: http.MethodPost, URL: e.options.URL, Trust: e.options.Trust, AllowHTTP: e.options.AllowHTTP, Header: header, Body: []byte(body.Encode()),
	})
	var slow net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &slow) && slow.Timeout():
		return nil, asked, e.fail(edge.Timeout, 0, "", errors.New("no answer in time"))
	case errors.Is(err, context.Canceled):
		return nil, asked, e.fail(edge.Gone, 0, "", context.Canceled)
	case err != nil:
		return nil, asked, e.fail(edge.Unavailable, 0, "", err)
	case redirects(answer.Status):
		return nil, asked, e.fail(edge.Unavailable, answer.Status, "", fmt.Errorf("status %d: a redirect, which is not followed", answer.Status))
	case answer.Status >= 400 && answer.Status < 500:
		return nil, asked, e.refusal(answer)
	case answer.Status != http.StatusOK:
		return nil, asked, e.fail(edge.Unavailable, answer.Status, "", nil)
	}
	return answer, asked, nil
}

// refusal is the error of an answer of status 4xx. A 401 whose body says nothing is that
// of an unknown client: it has no other meaning here (RFC 6749 §5.2).
func (e *TokenEndpoint) refusal(answer *Response) error {
	code := ""
	if o, err := ParseObject(answer.Body, maxTokenDepth); err == nil {
		code, _ = o.Text("error")
	}
	kind, known := kindOf(code)
	switch {
	case known:
	case answer.Status == http.StatusUnauthorized:
		code = "invalid_client"
	default:
		code = ""
	}
	err := e.fail(kind, answer.Status, code, nil)
	if t := (*TokenError)(nil); errors.As(err, &t) {
		t.Said = known
	}
	return err
}

// authenticate adds the authentication of the client to a request.
func (e *TokenEndpoint) authenticate(ctx context.Context, body url.Values, header http.Header, method AuthMethod) error {
	id := e.options.ClientID
	switch {
	case method == AuthSigned:
		assertion, err := e.options.Sign(ctx)
		if err != nil {
			return err
		}
		body.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		body.Set("client_assertion", string(assertion))
	case method != AuthNone && e.options.Secret != nil:
		secret, err := e.options.Secret(ctx)
		if err != nil {
			return err
		}
		if method == AuthBasic {
			SetBasic(header, id, secret)
			return nil
		}
		body.Set("client_secret", string(secret))
	}
	if id != "" {
		body.Set("client_id", id)
	}
	return nil
}

// Bounds of an answer, and how long a token is good of which nobody says it.
const (
	maxTokenDepth = 16
	maxTokenBytes = 64 << 10
	maxTokenLife  = 24 * time.Hour
	defaultLife   = 5 * time.Minute
	maxScopeText  = 16 << 10
	maxTypeName   = 256
)

// Want is what kind of token an answer has to hold.
type Want struct {
	// Assertion is for a token that authenticates nobody at a resource, but is shown to
	// another authorization server: its token_type is N_A (RFC 8693 §2.2.1).
	Assertion bool

	// Issued is what issued_token_type has to be (RFC 8693 §2.2.1); "" for anything.
	Issued string

	// Refreshed is told a refresh token that the answer holds, before anything else in it is
	// looked at; nil for nobody. An error of it is that of Ask.
	Refreshed func(edge.Secret) error
}

// Token is what a token endpoint issued.
type Token struct {
	Access  edge.Secret // visible ASCII without blanks, at most 64 KiB
	Issued  string      // issued_token_type; "" for none
	Refresh edge.Secret // "" for none
	ID      edge.Secret // ID token, not verified; "" for none
	Scope   string      // as the answer has it; "" for none: that which was asked for (RFC 6749 §5.1)
	Expires time.Time   // at most 24 h after it was asked for
}

// ParseToken reads the answer of a token endpoint, of status 200, to what was asked at a
// time (RFC 6749 §5.1). Where it does not say when the token expires, a JWT itself does,
// and any other does after 5 minutes. Errors hold nothing of the answer.
func ParseToken(answer []byte, asked time.Time, want Want) (*Token, error) {
	// 1. The token and its type.
	o, err := ParseObject(answer, maxTokenDepth)
	if err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	for name, raw := range o {
		if string(raw) == "null" { // as if it were absent
			delete(o, name)
		}
	}
	t := &Token{}
	for name, to := range map[string]*edge.Secret{"access_token": &t.Access, "refresh_token": &t.Refresh, "id_token": &t.ID} {
		if *to, err = o.token(name); err != nil {
			return nil, err
		}
	}
	kind, _ := o.Text("token_type")
	switch {
	case t.Access == "":
		return nil, errors.New("access_token: there is none")
	case want.Assertion && kind != "N_A":
		return nil, errors.New("token_type: it is not N_A")
	case !want.Assertion && !strings.EqualFold(kind, "Bearer"):
		return nil, errors.New("token_type: it is not Bearer")
	}

	// 2. What it is.
	for name, bound := range map[string]int{"issued_token_type": maxTypeName, "scope": maxScopeText} {
		if text, ok := o.Text(name); o.Has(name) && (!ok || len(text) > bound) {
			return nil, fmt.Errorf("%s: it cannot be right", name)
		}
	}
	t.Issued, _ = o.Text("issued_token_type")
	t.Scope, _ = o.Text("scope")
	if want.Issued != "" && t.Issued != want.Issued {
		return nil, errors.New("issued_token_type: it is another than was asked for")
	}

	// 3. How long it is good.
	life := defaultLife
	if raw, ok := o["expires_in"]; ok {
		if life, err = seconds(raw); err != nil {
			return nil, fmt.Errorf("expires_in: %w", err)
		}
	} else if claims, err := Claims(t.Access); err == nil && claims.Has("exp") {
		at, err := claims.Time("exp")
		if err != nil || !at.After(asked) {
			return nil, errors.New("exp of the token: it is over, or is no time")
		}
		life = at.Sub(asked)
	}
	t.Expires = asked.Add(min(life, maxTokenLife))
	return t, nil
}

// token returns the token called name; "" when there is none.
func (o Object) token(name string) (edge.Secret, error) {
	text, ok := o.Text(name)
	switch {
	case !o.Has(name):
		return "", nil
	case !ok:
		return "", fmt.Errorf("%s: not a string", name)
	case len(text) > maxTokenBytes:
		return "", fmt.Errorf("%s: it has more than %d bytes", name, maxTokenBytes)
	case strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }):
		return "", fmt.Errorf("%s: it holds what cannot stand in a header", name)
	}
	return edge.Secret(text), nil
}
