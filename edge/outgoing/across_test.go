package outgoing_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/oauth"
)

// across is two real providers: one at which users log in, and the authorization server of a
// backend. Both speak TLS.
type across struct {
	t            *testing.T
	idp, target  *idp.Provider
	up           *upstreams
	issues       idp.Issues
	takes        idp.Takes
	alice        idp.Tokens
	behind       time.Duration // of the edge's clock
	fields       map[string]string
	object       bool // they are of an MCPExternalAuthConfig, with secrets in objects
	mu           sync.Mutex
	sent         []edge.Fetched
	asked, given int // hits of both that were counted
}

func newAcross(t *testing.T) *across {
	files := idp.NewTLS(t)
	a := &across{t: t, idp: idp.StartTLS(t, files), target: idp.StartTLS(t, files), up: &upstreams{}}
	a.alice = a.idp.SSO(t, "alice")
	a.asked = a.idp.Hits(t, "/token") // of the login
	a.subject(a.alice.ID)
	a.reset()
	return a
}

// subject is the ID token that the upstream has of the user.
func (a *across) subject(id string) {
	a.up.set("corp", "alice", edge.Secret(a.alice.Access), edge.Secret(id))
}

// reset makes all as it should be.
func (a *across) reset() {
	a.issues = idp.Issues{Audience: a.target.Issuer, Resource: target, Client: idp.ClientID, Scopes: []string{"a"}}
	a.takes = idp.Takes{Issuer: a.idp.Issuer, Keys: a.idp.Keys(), Resource: target, Scopes: []string{"a"}}
	a.behind, a.object = 0, false
	a.fields = map[string]string{
		"idpTokenUrl": a.idp.Issuer + "/token", "idpClientId": idp.SSOClientID, "idpClientSecret": idp.SSOClientSecret,
		"targetAudience": a.target.Issuer, "targetTokenUrl": a.target.Issuer + "/token", "targetClientId": idp.ClientID, "targetClientSecret": idp.ClientSecret,
		"targetResource": target, "scopes": "[a]", "subjectProviderName": "corp",
	}
}

// call gets the credential of a call of alice, with nothing kept of what was before, and how
// often each of both was asked for it.
func (a *across) call() (line string, asked, given int, err error) {
	a.t.Helper()
	a.idp.Across(a.t, idp.Across{Issues: &a.issues})
	a.target.Across(a.t, idp.Across{Takes: &a.takes})
	env, _ := world(a.t, nil, a.up)
	kept, parse := map[string]edge.Secret{}, config
	if a.object {
		parse = kind
	}
	var fields []string
	for name, value := range a.fields {
		switch {
		case value == "":
		case a.object && strings.HasSuffix(name, "Secret"):
			kept["xaa/"+name] = edge.Secret(value)
			fields = append(fields, fmt.Sprintf("%sRef: {name: xaa, key: %s}", name, name))
		default:
			fields = append(fields, fmt.Sprintf("%s: %s", name, value))
		}
	}
	env.Secrets = fake.Keep(kept)
	env.Now = func() time.Time { return time.Now().Add(-a.behind) }
	env.Reach = edge.Reach{CAs: a.idp.CA, Saw: func(f edge.Fetched) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.sent = append(a.sent, f)
	}}
	a.sent = nil
	line, _, err = shown(a.t, openIn(a.t, env, must(parse(a.t, text("xaa", "xaa", fields...)))), identity("https://weir.example.com", "alice", "token of alice"), false)
	askedNow, givenNow := a.idp.Hits(a.t, "/token"), a.target.Hits(a.t, "/token")
	asked, given = askedNow-a.asked, givenNow-a.given
	a.asked, a.given = askedNow, givenNow
	return line, asked, given, err
}

// form is what was sent to one of both.
func (a *across) form(to *idp.Provider) url.Values {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.sent {
		if strings.HasPrefix(f.URL, to.Issuer) {
			form, err := url.ParseQuery(string(f.Body))
			if err != nil {
				a.t.Fatal(err)
			}
			return form
		}
	}
	a.t.Fatal("it was not asked")
	return nil
}

// An ID token of one real provider becomes an assertion, and that an access token of another.
// Whatever is wrong with either keeps the call from its backend.
func TestT19T20T21(t *testing.T) {
	a := newAcross(t)
	for _, one := range []struct {
		name string
		test func(*testing.T, *across)
	}{{"sound", soundXAA}, {"T19", assertions}, {"T20", subjects}, {"T21", assertionsForLong}} {
		t.Run(one.name, func(t *testing.T) {
			a.t = t
			a.subject(a.alice.ID)
			a.reset()
			one.test(t, a)
		})
	}
}

// soundXAA: what either side is sent, and one fault at a time in what it was told of the edge.
func soundXAA(t *testing.T, a *across) {
	line, asked, given, err := a.call()
	if err != nil || asked != 1 || given != 1 {
		t.Fatal(asked, given, err)
	}
	if c := issued(t, line, "Authorization"); said(c, "iss") != a.target.Issuer || said(c, "sub") != "alice" || said(c, "aud") != target || said(c, "client_id") != idp.ClientID || said(c, "scope") != "a" {
		t.Errorf("%v", c)
	}
	assertion := a.form(a.target).Get("assertion")
	header, err := oauth.Header(edge.Secret(assertion))
	if err != nil {
		t.Fatal(err)
	}
	if typ, _ := header.Text("typ"); typ != oauth.TypeIDJAG || strings.Contains(line, assertion) {
		t.Errorf("an assertion of typ %q, or it went to the backend", typ)
	}
	if form := a.form(a.idp); form.Get("subject_token") != a.alice.ID || form.Get("audience") != a.target.Issuer || form.Get("resource") != target {
		t.Errorf("the provider was asked for %v", form["audience"])
	}

	// An assertion is never kept: the next call without a token has another. An object says the
	// same as a configuration.
	a.object = true
	again, asked, given, err := a.call()
	if err != nil || asked != 1 || given != 1 || a.form(a.target).Get("assertion") == assertion || said(issued(t, again, "Authorization"), "aud") != target {
		t.Error(asked, given, err)
	}

	for name, tt := range map[string]struct {
		change func()
		kind   edge.Kind
		given  int
	}{
		"another client at the provider":     {func() { a.fields["idpClientId"] = "other" }, edge.Unavailable, 0},
		"another secret at the provider":     {func() { a.fields["idpClientSecret"] = "other" }, edge.Unavailable, 0},
		"an audience that it does not serve": {func() { a.fields["targetAudience"] = "https://other.example.com" }, edge.Denied, 0},
		"a resource that it does not serve":  {func() { a.fields["targetResource"] = "https://other.example.com" }, edge.Denied, 0},
		"a scope that it does not give":      {func() { a.issues.Scopes = nil }, edge.Denied, 0},
		"another secret at the target":       {func() { a.fields["targetClientSecret"] = "other" }, edge.Unavailable, 2}, // by header, then by body
		"a scope that the target lacks":      {func() { a.takes.Scopes = nil }, edge.Denied, 1},
		"keys that the target takes for it":  {func() { a.takes.Keys = a.target.Keys() }, edge.Unauthenticated, 1},
		"an issuer that the target lacks":    {func() { a.takes.Issuer = "https://other.example.com" }, edge.Unauthenticated, 1},
	} {
		a.reset()
		tt.change()
		_, _, given, err := a.call()
		refusedAs(t, name, err, tt.kind, idp.SSOClientSecret, a.alice.ID)
		if given != tt.given {
			t.Errorf("%s: the target was asked %d times", name, given)
		}
	}
	a.reset()
	if _, _, _, err := a.call(); err != nil {
		t.Error(err)
	}
}

// assertions: what is wrong with an assertion is found before it leaves, where the edge can know
// it, and else by the target: 401 in either case.
func assertions(t *testing.T, a *across) {
	over := time.Now().Add(-time.Second).Unix()
	lie := func(name string, value any) func() { return func() { a.issues.Claims = map[string]any{name: value} } }
	for name, tt := range map[string]struct {
		change func()
		given  int
	}{
		// 1. Here.
		"aud":              {lie("aud", "https://other.example.com"), 0},
		"two aud":          {lie("aud", []string{a.target.Issuer, "https://other.example.com"}), 0},
		"no aud":           {lie("aud", nil), 0},
		"resource":         {lie("resource", "https://other.example.com"), 0},
		"two resources":    {lie("resource", []string{target, "https://other.example.com"}), 0},
		"client_id":        {lie("client_id", "other"), 0},
		"no client_id":     {lie("client_id", nil), 0},
		"expired":          {lie("exp", over), 0},
		"no exp":           {lie("exp", nil), 0},
		"typ":              {func() { a.issues.Type = "JWT" }, 0},
		"typ of an access": {func() { a.issues.Type = "at+jwt" }, 0},

		// 2. There, since here it is as it was asked for, or since the clock is behind.
		"aud, there": {func() {
			a.fields["targetAudience"], a.issues.Audience = "https://other.example.com", "https://other.example.com"
		}, 1},
		"resource, there": {func() {
			a.fields["targetResource"], a.issues.Resource = "https://other.example.com", "https://other.example.com"
		}, 1},
		"resource of no wish, there": {func() { a.fields["targetResource"], a.issues.Resource = "", "https://other.example.com" }, 1},
		"expired, there":             {func() { a.behind, a.issues.Claims = time.Hour, map[string]any{"exp": over} }, 1},
		"no sub, there":              {lie("sub", nil), 1},
		"issuer, there":              {lie("iss", "https://other.example.com"), 1},
	} {
		a.reset()
		tt.change()
		line, asked, given, err := a.call()
		refusedAs(t, name, err, edge.Unauthenticated, a.alice.ID)
		if line != "" || asked != 1 || given != tt.given {
			t.Errorf("%s: the provider was asked %d times, the target %d", name, asked, given)
		}
	}

	// 3. A type is compared without case (RFC 7515 §4.1.9).
	a.reset()
	a.issues.Type = "OAuth-ID-JAG+JWT"
	if _, _, _, err := a.call(); err != nil {
		t.Error(err)
	}

	// 4. An assertion that has come before.
	a.reset()
	a.issues.Claims = map[string]any{"jti": "once"}
	if _, _, _, err := a.call(); err != nil {
		t.Fatal(err)
	}
	_, _, given, err := a.call()
	refusedAs(t, "replayed", err, edge.Unauthenticated, a.alice.ID)
	if given != 1 {
		t.Errorf("replayed: the target was asked %d times", given)
	}
}

// subjects: what is no ID token is no subject. Nobody is asked with it, and the provider
// refuses what only it can know.
func subjects(t *testing.T, a *across) {
	jwt := a.idp.User(t, "alice", resource, "tools:read") // of another client of the provider
	a.asked = a.idp.Hits(t, "/token")
	for name, tt := range map[string]struct {
		subject string
		kind    edge.Kind
		asked   int
	}{
		"an access token":           {jwt.Access, edge.Unauthenticated, 0},
		"an opaque access token":    {a.alice.Access, edge.Unauthenticated, 0},
		"none":                      {"", edge.Unavailable, 0},
		"an ID token of another":    {jwt.ID, edge.Unauthenticated, 1},
		"a signature that is not":   {a.alice.ID[:len(a.alice.ID)-8] + "AAAAAAAA", edge.Unauthenticated, 1},
		"an ID token of the target": {a.target.SSO(t, "alice").ID, edge.Unauthenticated, 1},
	} {
		a.subject(tt.subject)
		_, asked, _, err := a.call()
		refusedAs(t, name, err, tt.kind, jwt.Access)
		if asked != tt.asked {
			t.Errorf("%s: the provider was asked %d times", name, asked)
		}
	}
	a.subject(a.alice.ID)
	if _, _, _, err := a.call(); err != nil {
		t.Error(err)
	}
}

// assertionsForLong: more of them that a target must not take (RFC 7523 §3).
func assertionsForLong(t *testing.T, a *across) {
	for name, claims := range map[string]map[string]any{
		"good for too long": {"exp": time.Now().Add(6 * time.Minute).Unix()},
		"no jti":            {"jti": nil},
		"no iat":            {"iat": nil},
		"not yet":           {"nbf": time.Now().Add(time.Hour).Unix()},
	} {
		a.reset()
		a.issues.Claims = claims
		_, _, given, err := a.call()
		refusedAs(t, name, err, edge.Unauthenticated, a.alice.ID)
		if given != 1 {
			t.Errorf("%s: the target was asked %d times", name, given)
		}
	}
	a.reset()
	if _, _, _, err := a.call(); err != nil {
		t.Error(err)
	}
}

// An ID token that the provider refuses is told to whoever issued it, once a call, and the call
// goes on where there is another then.
func TestUpstreamTokenThatIsRefused(t *testing.T) {
	a := newAcross(t)
	bad := a.alice.ID[:len(a.alice.ID)-8] + "AAAAAAAA"
	a.subject(bad)
	a.up.renews = map[edge.Secret][2]edge.Secret{edge.Secret(bad): {edge.Secret(a.alice.Access), edge.Secret(a.alice.ID)}}
	if line, asked, given, err := a.call(); err != nil || asked != 2 || given != 1 || said(issued(t, line, "Authorization"), "sub") != "alice" {
		t.Errorf("with another: the provider was asked %d times, the target %d: %v", asked, given, err)
	}
	a.subject(bad)
	a.up.renews = nil
	if _, asked, _, err := a.call(); edge.KindOf(err) != edge.Unauthenticated || asked != 1 {
		t.Errorf("without another: the provider was asked %d times: %v", asked, err)
	}

	// One that has ended is shown to nobody.
	a.subject(a.alice.ID)
	a.behind = -24 * 365 * time.Hour // the edge's clock is ahead
	if _, asked, _, err := a.call(); edge.KindOf(err) != edge.Unauthenticated || asked != 0 {
		t.Errorf("one that has ended: the provider was asked %d times: %v", asked, err)
	}
}
