package authserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// grace is how long after a rotation the token before the current one is answered with it: a
// client that had no answer asks again.
const grace = 3 * time.Second

// issued is the answer of the token endpoint (RFC 6749 §5.1).
type issued struct {
	Access  string `json:"access_token"`
	Type    string `json:"token_type"`
	Expires int64  `json:"expires_in"`
	Scope   string `json:"scope"`
	Refresh string `json:"refresh_token,omitempty"`
	ID      string `json:"id_token,omitempty"`

	subject string
}

// access are the claims of an access token (RFC 9068 §2.2).
type access struct {
	Issuer   string   `json:"iss"`
	Subject  string   `json:"sub"`
	Audience audience `json:"aud"`
	Expires  int64    `json:"exp"`
	Issued   int64    `json:"iat"`
	From     int64    `json:"nbf,omitempty"`
	ID       string   `json:"jti,omitempty"`
	Client   string   `json:"client_id,omitempty"`
	Scope    string   `json:"scope,omitempty"`
	Grant    string   `json:"tsid,omitempty"`
	AuthTime int64    `json:"auth_time"`
	Nonce    string   `json:"nonce,omitempty"`
	Name     string   `json:"name,omitempty"`
	Email    string   `json:"email,omitempty"`
}

// audience is one text, or several.
type audience []string

// MarshalJSON writes a text for one, an array for several (RFC 7519 §4.1.3).
func (a audience) MarshalJSON() ([]byte, error) {
	if len(a) == 1 {
		return json.Marshal(a[0])
	}
	return json.Marshal([]string(a))
}

// issue makes the tokens of a grant, for scopes of it.
func (s *Server) issue(ctx context.Context, id string, g *grant, nonce string, scopes []string) (*issued, error) {
	m := s.material.current(ctx)
	server := s.config.resource(g.Server)
	if server == nil {
		return nil, refuse("invalid_target", "the server is there no longer")
	}
	now := s.now()
	expires := now.Add(s.config.Access)
	if end := g.ends(); expires.After(end) { // what is good for less than it says surprises whoever has it
		expires = end
	}
	c := access{
		Issuer: s.config.Issuer, Subject: g.Subject, Audience: server.audience(g.Resource), Expires: expires.Unix(), Issued: now.Unix(), From: now.Unix(),
		ID: random(), Client: g.Client, Scope: strings.Join(scopes, " "), Grant: id, AuthTime: g.AuthTime.Unix(), Name: g.Name, Email: g.Email,
	}
	token, err := m.signers[0].Sign("at+jwt", encode(&c))
	if err != nil {
		return nil, err
	}
	t := &issued{Access: string(token), Type: "Bearer", Expires: c.Expires - c.Issued, Scope: c.Scope, subject: g.Subject}
	if g.Refreshes {
		t.Refresh = refreshToken(m.ring, id, g.Generation)
	}
	if slices.Contains(scopes, "openid") {
		c.Audience, c.Nonce = audience{g.ClientID}, nonce
		c.From, c.ID, c.Client, c.Scope, c.Grant = 0, "", "", "", ""
		token, err := m.signers[0].Sign("JWT", encode(&c))
		if err != nil {
			return nil, err
		}
		t.ID = string(token)
	}
	return t, nil
}

// refreshToken is the refresh token of a generation of a grant. It follows from the secret,
// and is kept nowhere.
func refreshToken(r *ring, id string, generation uint64) string {
	return r.signed(useRefresh, id+"."+strconv.FormatUint(generation, 10))
}

// parseRefresh reads a refresh token that is ours.
func parseRefresh(r *ring, token string) (id string, generation uint64, ok bool) {
	at := strings.LastIndexByte(token, '.')
	if at < 0 || len(token) > 256 || !r.holds(useRefresh, token[:at], token[at+1:]) {
		return "", 0, false
	}
	id, number, ok := strings.Cut(token[:at], ".")
	generation, err := strconv.ParseUint(number, 10, 64)
	return id, generation, ok && err == nil
}

// errSame is the end of an update that changes nothing.
var errSame = errors.New("nothing has changed")

// refresh renews tokens (RFC 6749 §6): the grant goes on to its next generation by one atomic
// operation, so that of many who show one token one alone makes a new one.
func (s *Server) refresh(ctx context.Context, r *http.Request, c *client, q url.Values) (*issued, error) {
	// 1. The token is ours, before the store is asked.
	id, generation, ok := parseRefresh(s.material.current(ctx).ring, q.Get("refresh_token"))
	if !ok {
		return nil, refuse("invalid_grant", "the refresh token is unknown")
	}

	// 2. The grant goes on, or ends where an old token is shown.
	now := s.now()
	var g *grant
	var scopes []string
	var before time.Time // when it would have ended
	reused := false
	err := s.records.Update(ctx, grantKey(id), s.config.Refresh, func(old []byte) (_ []byte, err error) {
		reused = false
		if g, err = parseGrant(old, now); err != nil {
			return nil, refuse("invalid_grant", "the refresh token has ended")
		}
		age := now.Sub(g.Rotated) // below 0 where the clock of whoever rotated is ahead, or this one was set back
		again := generation+1 == g.Generation && -agreeSkew <= age && age <= grace
		switch {
		case g.Client != c.key():
			return nil, refuse("invalid_grant", "the refresh token is another client's")
		case generation != g.Generation && !again:
			reused = true
			return nil, nil
		case len(g.Again) > 0:
			return nil, refuse("invalid_grant", "the user has to sign in again")
		}
		if scopes, err = s.narrowed(g, q); err != nil {
			return nil, err
		}
		if again {
			return nil, errSame
		}
		before = g.ends()
		g.Generation, g.Rotated, g.Until = g.Generation+1, now, now.Add(s.config.Refresh)
		return encode(g), nil
	})
	switch {
	case err == nil && reused:
		s.tell(r, Event{What: "refresh_reuse", Outcome: Refused, Client: c.key(), Subject: g.Subject})
		return nil, s.end(ctx, id, g, refuse("invalid_grant", "the refresh token has been used"))
	case err != nil && !errors.Is(err, errSame):
		return nil, err
	case err == nil:
		s.lasting.usage.grant(g.Sealed, before, g.ends(), now)
		if err := s.vault.Extend(ctx, id, g.Until); err != nil {
			s.log.Warn("upstream tokens end before their grant", "error", err)
		}
	}

	// 3. Its tokens.
	return s.issue(ctx, id, g, "", scopes)
}

// narrowed are the scopes of a refresh: those of the grant, or fewer.
func (s *Server) narrowed(g *grant, q url.Values) ([]string, error) {
	server := s.config.resource(g.Server)
	if server == nil || q.Has("resource") && s.config.resource(q.Get("resource")) != server {
		return nil, refuse("invalid_target", "resource is another than at authorization, or is there no longer")
	}
	scopes := oauth.Scopes(q.Get("scope"))
	if len(scopes) == 0 {
		return g.Scopes, nil
	}
	if oauth.Lacks(g.Scopes, scopes) {
		return nil, refuse("invalid_scope", "more scopes than were granted")
	}
	slices.Sort(scopes)
	return slices.Compact(scopes), nil
}

// end ends a grant that is in the wrong hands, and returns why. Where the store cannot end it
// that is the error: whoever asks again ends it then.
func (s *Server) end(ctx context.Context, id string, g *grant, why error) error {
	if err := s.revokeGrant(ctx, id, g); err != nil {
		return err
	}
	return why
}

// revokeGrant ends a grant, and what upstreams issued for it: here at once, elsewhere as soon
// as it is looked up.
func (s *Server) revokeGrant(ctx context.Context, id string, g *grant) error {
	if s.alive.of(id, s.now()).end() {
		s.lasting.usage.grant(g.Sealed, g.ends(), time.Time{}, s.now())
	}
	s.lasting.ended.note(id, s.now()) // after its end: Look relies on that
	return errors.Join(s.records.Delete(ctx, grantKey(id)), s.vault.Drop(ctx, id))
}

// revokes ends the grant of a token (RFC 7009 §2.1). What is no token, or another client's,
// changes nothing.
func (s *Server) revokes(ctx context.Context, r *http.Request, c *client, token string) error {
	m := s.material.current(ctx)
	id, _, ok := parseRefresh(m.ring, token)
	if !ok {
		if id, ok = s.grantOf(m, token); !ok {
			return nil
		}
	}
	g, err := s.records.grant(ctx, id, s.now())
	switch {
	case errors.Is(err, errAbsent):
		return nil
	case err != nil:
		return err
	case g.Client != c.key():
		return nil
	}
	if err := s.revokeGrant(ctx, id, g); err != nil {
		return err
	}
	s.tell(r, Event{What: "revoke", Outcome: Done, Client: c.key(), Subject: g.Subject})
	return nil
}

// grantOf is the grant of an access token of ours.
func (s *Server) grantOf(m *material, token string) (id string, ok bool) {
	header, err := oauth.Header(edge.Secret(token))
	if err != nil {
		return "", false
	}
	typ, _ := header.Text("typ")
	alg, _ := header.Text("alg")
	kid, _ := header.Text("kid")
	key := m.keys.Find(kid)
	if key == nil || typ != "at+jwt" {
		return "", false
	}
	payload, err := key.Verify(alg, []byte(token))
	if err != nil {
		return "", false
	}
	claims, err := oauth.ParseObject(payload, maxDepth)
	if err != nil {
		return "", false
	}
	return claims.Text("tsid")
}

// verifies reports whether a verifier is that of a challenge (RFC 7636 §4.6).
func verifies(challenge, verifier string) bool {
	if len(verifier) < 43 || len(verifier) > 128 {
		return false
	}
	for i := range len(verifier) {
		c := verifier[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0) {
			return false
		}
	}
	sum := sha256.Sum256([]byte(verifier))
	return subtle.ConstantTimeCompare([]byte(b64(sum[:])), []byte(challenge)) == 1
}
