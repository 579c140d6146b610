package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Bounds of a token.
const (
	maxToken = 64 << 10
	maxScope = 16 << 10
	maxLife  = 400 * 24 * time.Hour
)

// refusedError is an answer of status 200 that says error, as some providers write it.
type refusedError struct{ gone bool }

func (refusedError) Error() string { return "the answer says that it is an error" }

// reading is where in an answer the tokens are.
type reading struct {
	access, expires, refresh, scope path
	strict                          bool // token_type has to be Bearer
}

// reads is how the answers of a provider are read.
func reads(m *v1beta1.TokenResponseMapping) (*reading, error) {
	r := &reading{strict: m == nil}
	if m == nil {
		m = &v1beta1.TokenResponseMapping{}
	}
	var err error
	for _, one := range []struct {
		to            *path
		text, without string
	}{
		{&r.access, m.AccessTokenPath, "access_token"},
		{&r.expires, m.ExpiresInPath, "expires_in"},
		{&r.refresh, m.RefreshTokenPath, "refresh_token"},
		{&r.scope, m.ScopePath, "scope"},
	} {
		if one.text == "" {
			one.text = one.without
		}
		if *one.to, err = parsePath(one.text, false); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// tokens reads an answer of a token endpoint to what was asked at a time. Errors hold nothing
// of it.
func (r *reading) tokens(body []byte, asked time.Time) (*Tokens, error) {
	// 1. The tokens.
	o, err := oauth.ParseObject(body, maxDepth)
	if err != nil {
		return nil, fmt.Errorf("the answer: %w", err)
	}
	t := &Tokens{Issued: asked}
	for _, one := range []struct {
		to   *edge.Secret
		what string
		from json.RawMessage
	}{{&t.Access, "the access token", r.access.find(body)}, {&t.Refresh, "the refresh token", r.refresh.find(body)}, {&t.ID, "the ID token", o["id_token"]}} {
		if *one.to, err = token(one.from); err != nil {
			return nil, fmt.Errorf("%s: %w", one.what, err)
		}
	}
	code, failed := o.Text("error")
	kind, _ := o.Text("token_type")
	switch {
	case t.Access == "" && failed:
		return nil, refusedError{code == "invalid_grant" || code == "bad_refresh_token"}
	case t.Access == "":
		return nil, errors.New("the access token: there is none")
	case r.strict && !strings.EqualFold(kind, "Bearer"):
		return nil, errors.New("token_type: it is not Bearer")
	}

	// 2. What it is good for, and how long.
	if t.Scope, err = scope(r.scope.find(body)); err != nil {
		return nil, err
	}
	life, err := seconds(r.expires.find(body))
	if err != nil {
		return nil, fmt.Errorf("the lifetime: %w", err)
	}
	if life > 0 {
		t.Expires = asked.Add(life)
	} else if claims, err := oauth.Claims(t.Access); err == nil && claims.Has("exp") {
		if t.Expires, err = claims.Time("exp"); err != nil || !t.Expires.After(asked) {
			return nil, errors.New("exp of the access token: it is over, or is no time")
		}
	}
	return t, nil
}

// token reads a token; "" for null and for none.
func token(value json.RawMessage) (edge.Secret, error) {
	s := text(value)
	switch {
	case len(value) == 0 || string(value) == "null":
		return "", nil
	case value[0] != '"':
		return "", errors.New("it is no string")
	case len(s) > maxToken:
		return "", fmt.Errorf("it has more than %d bytes", maxToken)
	case strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' }):
		return "", errors.New("it holds what cannot stand in a header")
	}
	return edge.Secret(s), nil
}

// scope reads scopes: a string, or an array of strings as some providers write it.
func scope(value json.RawMessage) (string, error) {
	if len(value) == 0 || string(value) == "null" {
		return "", nil
	}
	s := text(value)
	if list, ok := (oauth.Object{"": value}).Texts(""); ok {
		s = strings.Join(list, " ")
	} else if value[0] != '"' {
		return "", errors.New("the scope: it is no text")
	}
	if len(s) > maxScope {
		return "", errors.New("the scope: it is too long")
	}
	return s, nil
}

// seconds reads a lifetime: a number, or digits in a string; 0 for none.
func seconds(value json.RawMessage) (time.Duration, error) {
	if len(value) == 0 || string(value) == "null" {
		return 0, nil
	}
	s := string(value)
	if value[0] == '"' {
		s = text(value)
		if s == "" || strings.Trim(s, "0123456789") != "" {
			return 0, errors.New("it is no number")
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return 0, errors.New("it is no number")
	case n <= 0:
		return 0, errors.New("it is not above 0")
	case n > maxLife.Seconds():
		return maxLife, nil
	}
	return time.Duration(n * float64(time.Second)), nil
}
