package outgoing_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/edgetest/tokens"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Whom the token services of these tests know, and for what.
const (
	clientID     = "edge+1"
	clientSecret = "edge secret/1"
	resource     = "https://edge.example.com/mcp" // of the users' tokens
	target       = "https://backend.example.com"
)

// upstreams are edge.Upstreams by subject.
type upstreams struct {
	mu     sync.Mutex
	tokens map[string][2]edge.Secret
	renews map[edge.Secret][2]edge.Secret // what comes in the place of a token that is refused
	err    error
}

func (u *upstreams) Upstream(_ context.Context, who *edge.Identity, provider string) (access, id edge.Secret, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil {
		return "", "", u.err
	}
	both, ok := u.tokens[provider+"/"+who.Subject]
	if !ok {
		return "", "", edge.Errorf(edge.Unauthenticated, "upstream", "sign in again")
	}
	return both[0], both[1], nil
}

func (u *upstreams) Refused(_ context.Context, who *edge.Identity, provider string, token edge.Secret, _ bool) error {
	if both, ok := u.renews[token]; ok {
		u.set(provider, who.Subject, both[0], both[1])
	}
	switch token {
	case "revoked":
		return edge.Errorf(edge.Unauthenticated, "upstream", "sign in again")
	case "renewable":
		u.set(provider, who.Subject, "renewed", "")
	}
	return nil
}

func (u *upstreams) set(provider, subject string, access, id edge.Secret) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tokens == nil {
		u.tokens = map[string][2]edge.Secret{}
	}
	u.tokens[provider+"/"+subject] = [2]edge.Secret{access, id}
}

// world is an Env that reaches a token service.
func world(t testing.TB, s *tokens.Service, up edge.Upstreams) (edge.Env, *fake.Secrets) {
	secrets := fake.Keep(map[string]edge.Secret{"client/secret": clientSecret + "\n"})
	env := edge.Env{Log: slog.New(slog.DiscardHandler), Secrets: secrets, Upstreams: up, Shared: new(edge.Shared), Defer: func(f func()) { t.Cleanup(f) }}
	if s != nil {
		env.Reach = s.Reach()
	}
	return env, secrets
}

func openIn(t testing.TB, env edge.Env, s outgoing.Strategy) outgoing.Attach {
	t.Helper()
	attach, err := s.Open(env)
	if err != nil {
		t.Fatal(err)
	}
	return attach
}

// shown returns the line that a backend is sent for a user.
func shown(t testing.TB, attach outgoing.Attach, who *edge.Identity, refused bool) (line string, generation uint64, err error) {
	t.Helper()
	generation, err = attach(t.Context(), &edge.Outbound{Exchange: &edge.Exchange{Identity: who}, Refused: refused}, func(name string, value edge.Secret) {
		if line != "" {
			t.Error("set twice")
		}
		line = name + ": " + string(value)
	})
	if (err == nil) != (line != "") || (err == nil) != (generation != 0) {
		t.Errorf("a line %t, generation %d, %v", line != "", generation, err)
	}
	if who != nil && who.Token != "" && strings.Contains(line, string(who.Token)) {
		t.Error("the client's own token is sent")
	}
	return line, generation, err
}

// issued are the claims of the token in a line.
func issued(t testing.TB, line, header string) oauth.Object {
	t.Helper()
	token, ok := strings.CutPrefix(line, header+": Bearer ")
	if !ok {
		t.Fatalf("%.60s", line)
	}
	claims, err := oauth.Claims(edge.Secret(token))
	if err != nil {
		t.Fatal(err)
	}
	return claims
}

func identity(issuer, subject, token string) *edge.Identity {
	return &edge.Identity{Issuer: issuer, Subject: subject, Token: edge.Secret(token)}
}

// text makes a manifest of a list of fields.
func text(typ, section string, fields ...string) string {
	return "{type: " + typ + ", " + section + ": {" + strings.Join(fields, ", ") + "}}"
}

func said(claims oauth.Object, name string) string { s, _ := claims.Text(name); return s }

// Tokens of a real identity provider, which speaks TLS with a CA of its own, exchanged by every form of both kinds. Whatever one
// thing is wrong, the service refuses it, and the call gets the answer that is for it.
func TestTokenExchange(t *testing.T) {
	provider := idp.StartTLS(t, idp.NewTLS(t))
	alice := provider.User(t, "alice", resource, "tools:read")
	s := tokens.Start(t, nil)
	s.Trust = provider.CA
	rules := tokens.Rules{
		ID: clientID, Secret: clientSecret, Basic: true, Body: true, Issuer: provider.Issuer, Keys: provider.Keys(),
		Audience: resource, Type: "access_token", Target: target, Scopes: []string{"a", "b"},
	}
	reset := func() { s.Change(tokens.Exchange, func(r *tokens.Rules) { *r = rules }) }
	who := identity(provider.Issuer, "alice", alice.Access)
	at := "tokenUrl: " + s.URL + tokens.Exchange
	fields := []string{at, "audience: " + target, "clientId: " + clientID, "scopes: [a, b]"}
	ref := append(slices.Clone(fields), "clientSecretRef: {name: client, key: secret}")
	t.Setenv("EXCHANGE_SECRET", clientSecret)

	exchange := func(strategy outgoing.Strategy, header, scope string) {
		t.Helper()
		env, _ := world(t, s, nil)
		line, _, err := shown(t, openIn(t, env, strategy), who, false)
		if err != nil {
			t.Error(err)
			return
		}
		if c := issued(t, line, header); said(c, "sub") != "alice" || said(c, "aud") != target || said(c, "scope") != scope {
			t.Errorf("%v", c)
		}
	}
	reset()
	exchange(must(kind(t, text("tokenExchange", "tokenExchange", ref...))), "Authorization", "a b")
	exchange(must(kind(t, text("tokenExchange", "tokenExchange", append(ref, "externalTokenHeaderName: X-Token", "subjectTokenType: urn:ietf:params:oauth:token-type:access_token")...))), "X-Token", "a b")
	exchange(must(config(t, text("token_exchange", "tokenExchange", append(fields, "clientSecretEnv: EXCHANGE_SECRET")...))), "Authorization", "a b")
	exchange(must(config(t, text("token_exchange", "tokenExchange", append(fields, "clientSecret: "+clientSecret, "subjectTokenType: access_token")...))), "Authorization", "a b")
	for _, one := range s.Seen(tokens.Exchange) {
		if !one.Basic || one.Form.Has("client_secret") || one.Form.Has("client_id") {
			t.Error("a secret beside the header")
		}
	}
	s.Change(tokens.Exchange, func(r *tokens.Rules) { r.Basic = false })
	exchange(must(kind(t, text("tokenExchange", "tokenExchange", ref...))), "Authorization", "a b")
	s.Change(tokens.Exchange, func(r *tokens.Rules) { r.Secret = "" })
	exchange(must(kind(t, text("tokenExchange", "tokenExchange", fields...))), "Authorization", "a b")
	s.Change(tokens.Exchange, func(r *tokens.Rules) { r.ID = "" })
	exchange(must(kind(t, text("tokenExchange", "tokenExchange", fields[:2]...))), "Authorization", "")
	s.Change(tokens.Exchange, func(r *tokens.Rules) { r.Target = "" })
	exchange2 := must(config(t, text("token_exchange", "tokenExchange", at)))
	env, _ := world(t, s, nil)
	if line, _, err := shown(t, openIn(t, env, exchange2), who, false); err != nil || said(issued(t, line, "Authorization"), "sub") != "alice" {
		t.Error(err)
	}

	other, err := issuer.New(issuer.ES256, resource, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Leave()
	sign := func(claims map[string]any) string {
		token, err := other.Sign(other.Claims("alice", claims))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	cut := alice.Access[:len(alice.Access)-8] + "AAAAAAAA"
	for name, tt := range map[string]struct {
		fields []string
		token  string
		change func(*tokens.Rules)
		kind   edge.Kind
	}{
		"another client":               {nil, "", func(r *tokens.Rules) { r.ID = "other" }, edge.Unavailable},
		"another secret":               {nil, "", func(r *tokens.Rules) { r.Secret = "other" }, edge.Unavailable},
		"a secret in neither place":    {nil, "", func(r *tokens.Rules) { r.Basic, r.Body = false, false }, edge.Unavailable},
		"another audience to ask for":  {nil, "", func(r *tokens.Rules) { r.Target = "https://other.example.com" }, edge.Denied},
		"a scope that is not given":    {nil, "", func(r *tokens.Rules) { r.Scopes = []string{"a"} }, edge.Denied},
		"another issuer":               {nil, "", func(r *tokens.Rules) { r.Issuer = "https://other.example.com" }, edge.Unauthenticated},
		"a token for somebody else":    {nil, "", func(r *tokens.Rules) { r.Audience = "https://other.example.com" }, edge.Unauthenticated},
		"keys of another":              {nil, sign(map[string]any{"iss": provider.Issuer}), nil, edge.Unauthenticated},
		"a signature that is not it":   {nil, cut, nil, edge.Unauthenticated},
		"a token that is over":         {nil, sign(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), func(r *tokens.Rules) { r.Issuer, r.Keys = other.URL, other.URL+"/keys" }, edge.Unauthenticated},
		"an ID token for access":       {nil, alice.ID, func(r *tokens.Rules) { r.Audience = "app" }, edge.Unauthenticated},
		"a type that is not taken":     {[]string{"subjectTokenType: jwt"}, "", nil, edge.Unavailable},
		"a token that is none":         {nil, "opaque", nil, edge.Unauthenticated},
		"an endpoint that is not here": {[]string{"tokenUrl: " + s.URL + "/nothing"}, "", nil, edge.Unavailable},
	} {
		reset()
		if tt.change != nil {
			s.Change(tokens.Exchange, tt.change)
		}
		who := identity(provider.Issuer, "alice", alice.Access)
		if tt.token != "" {
			who.Token = edge.Secret(tt.token)
		}
		all := ref
		if tt.fields != nil && strings.HasPrefix(tt.fields[0], "tokenUrl") {
			all = append(slices.Clone(ref[1:]), tt.fields...)
		} else {
			all = append(slices.Clone(ref), tt.fields...)
		}
		env, _ := world(t, s, nil)
		_, _, err := shown(t, openIn(t, env, must(kind(t, text("tokenExchange", "tokenExchange", all...)))), who, false)
		refusedAs(t, name, err, tt.kind, string(who.Token))
	}
}

// refusedAs demands an error of a kind whose text is for anybody.
func refusedAs(t *testing.T, name string, err error, kind edge.Kind, secrets ...string) {
	t.Helper()
	var e *edge.Error
	if !errors.As(err, &e) || e.Kind != kind {
		t.Errorf("%s: %v", name, err)
		return
	}
	want := map[edge.Kind]string{edge.Unauthenticated: "sign in again", edge.Denied: "access to the backend is refused"}[kind]
	if want == "" {
		want = "no credential for the backend"
	}
	if e.Err.Error() != want {
		t.Errorf("%s: a client reads %q", name, e.Err)
	}
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		for _, secret := range append(secrets, clientSecret) {
			if strings.Contains(fmt.Sprintf("%v %+v %#v", cause, cause, cause), secret) {
				t.Errorf("%s: shows a secret", name)
			}
		}
	}
}

// A directory that is asked on behalf of a user of a real identity provider, by both kinds.
func TestOBO(t *testing.T) {
	provider := idp.StartTLS(t, idp.NewTLS(t))
	alice := provider.User(t, "alice", resource, "tools:read")
	s := tokens.Start(t, map[string]tokens.Rules{tokens.OnBehalf: {
		ID: clientID, Secret: clientSecret, Body: true, Issuer: provider.Issuer, Keys: provider.Keys(),
		Audience: resource, Type: "access_token", Scopes: []string{"api://backend/.default", "a", "b"},
	}})
	s.Trust = provider.CA
	who := identity(provider.Issuer, "alice", alice.Access)
	t.Setenv("OBO_SECRET", clientSecret)
	byKind := []string{"tenantId: contoso.example.com", "authority: " + s.URL, "clientId: " + clientID, "clientSecretRef: {name: client, key: secret}"}
	byConfig := []string{"tokenUrl: " + s.URL + tokens.OnBehalf, "clientId: " + clientID, "clientSecretEnv: OBO_SECRET"}
	for scope, strategy := range map[string]outgoing.Strategy{
		"api://backend/.default": must(kind(t, text("obo", "obo", append(byKind, "audience: api://backend")...))),
		"a b":                    must(kind(t, text("obo", "obo", append(byKind, "audience: api://backend", "scopes: [a, b]")...))),
		"a":                      must(config(t, text("obo", "obo", append(byConfig, "scopes: [a]")...))),
	} {
		env, _ := world(t, s, nil)
		line, _, err := shown(t, openIn(t, env, strategy), who, false)
		if err != nil {
			t.Error(scope, err)
			continue
		}
		if c := issued(t, line, "Authorization"); said(c, "sub") != "alice" || said(c, "scope") != scope {
			t.Errorf("%s: %v", scope, c)
		}
	}
	for _, one := range s.Seen(tokens.OnBehalf) {
		if one.Basic || one.Form.Get("client_secret") != clientSecret {
			t.Error("the secret is not in the body")
		}
	}
	for name, tt := range map[string]struct {
		change func(*tokens.Rules)
		kind   edge.Kind
	}{
		"another client":     {func(r *tokens.Rules) { r.ID = "other" }, edge.Unavailable},
		"another secret":     {func(r *tokens.Rules) { r.Secret = "other" }, edge.Unavailable},
		"a secret by header": {func(r *tokens.Rules) { r.Basic, r.Body = true, false }, edge.Unavailable},
		"another scope":      {func(r *tokens.Rules) { r.Scopes = nil }, edge.Denied},
		"another audience":   {func(r *tokens.Rules) { r.Audience = "other" }, edge.Unauthenticated},
		"another issuer":     {func(r *tokens.Rules) { r.Issuer = "other" }, edge.Unauthenticated},
		"an ID token wanted": {func(r *tokens.Rules) { r.Type = "id_token" }, edge.Unauthenticated},
	} {
		var before tokens.Rules
		s.Change(tokens.OnBehalf, func(r *tokens.Rules) { before = *r; tt.change(r) })
		env, _ := world(t, s, nil)
		_, _, err := shown(t, openIn(t, env, must(config(t, text("obo", "obo", append(byConfig, "scopes: [a]")...)))), who, false)
		refusedAs(t, name, err, tt.kind, alice.Access)
		s.Change(tokens.OnBehalf, func(r *tokens.Rules) { *r = before })
	}
}

// When a token of obo ends for us: as it is written, and else by the rule of its kind.
func TestOBOSkew(t *testing.T) {
	s := tokens.Start(t, map[string]tokens.Rules{tokens.OnBehalf: {Life: time.Hour, ID: clientID, Secret: clientSecret, Body: true, Audience: resource, Type: "access_token", Scopes: []string{"a"}}})
	s.Change(tokens.OnBehalf, func(r *tokens.Rules) { r.Issuer = s.As.URL })
	token, err := s.As.Token("alice", map[string]any{"aud": resource})
	if err != nil {
		t.Fatal(err)
	}
	byKind := []string{"tenantId: contoso.example.com", "authority: " + s.URL, "clientId: " + clientID, "clientSecretRef: {name: client, key: secret}", "scopes: [a]"}
	byConfig := []string{"tokenUrl: " + s.URL + tokens.OnBehalf, "clientId: " + clientID, "clientSecret: " + clientSecret, "scopes: [a]"}
	for _, tt := range []struct {
		s    outgoing.Strategy
		used time.Duration
	}{
		{must(kind(t, text("obo", "obo", byKind...))), time.Hour - 30*time.Second},
		{must(kind(t, text("obo", "obo", append(byKind, "cacheSkew: 5m")...))), 55 * time.Minute},
		{must(kind(t, text("obo", "obo", append(byKind, "cacheSkew: 0s")...))), time.Hour},
		{must(kind(t, text("obo", "obo", append(byKind, "cacheSkew: -5m")...))), time.Hour},
		{must(kind(t, text("obo", "obo", append(byKind, "cacheSkew: 3h")...))), 30 * time.Minute},
		{must(config(t, text("obo", "obo", byConfig...))), time.Hour},
		{must(config(t, text("obo", "obo", append(byConfig, "cacheSkewSeconds: 60")...))), 59 * time.Minute},
		{must(config(t, text("obo", "obo", append(byConfig, "cacheSkewSeconds: -60")...))), time.Hour},
	} {
		var ahead atomic.Int64
		began := time.Now()
		env, _ := world(t, s, nil)
		env.Now = func() time.Time { return began.Add(time.Duration(ahead.Load())) }
		attach, who := openIn(t, env, tt.s), identity(s.As.URL, "alice", token)
		_, first, err := shown(t, attach, who, false)
		if err != nil {
			t.Fatal(err)
		}
		ahead.Store(int64(tt.used - 61*time.Second)) // before it is made anew
		_, same, _ := shown(t, attach, who, false)
		ahead.Store(int64(tt.used))
		_, other, _ := shown(t, attach, who, false)
		if same != first || other == first {
			t.Errorf("%v: %d, %d, %d", tt.used, first, same, other)
		}
	}
}

// The contract of a build that has no handler for obo.
func TestOBOWithoutHandler(t *testing.T) {
	t.Setenv("WEIR_DISABLE_OBO", "1")
	for _, parse := range []func() (outgoing.Strategy, []error){
		func() (outgoing.Strategy, []error) {
			s, errs := kind(t, text("obo", "obo", "tenantId: contoso.example.com", "clientId: a", "clientSecretRef: {name: a, key: b}", "audience: c"))
			return s, []error{errs.ToAggregate()}
		},
		func() (outgoing.Strategy, []error) {
			s, errs := config(t, text("obo", "obo", "tokenUrl: https://a", "clientId: a", "clientSecret: b", "audience: c"))
			return s, []error{errs.ToAggregate()}
		},
	} {
		if s, errs := parse(); s != nil || errs[0] == nil || !strings.Contains(errs[0].Error(), "spec.obo: Forbidden: EnterpriseRequired") {
			t.Error(errs)
		}
	}
}

// Which directory, and where it is, before any URL is built.
func TestT17T18(t *testing.T) {
	base := []string{"clientId: a", "clientSecretRef: {name: a, key: b}", "audience: c"}
	for _, tenant := range []string{"common", "organizations", "consumers", "Common", "../x", "a/b", "a%2fb.com", "a.com/..", "contoso.com?x", "contoso.com#", "a b.com", ".com", "contoso.", strings.Repeat("a.", 126) + "com"} {
		s, errs := kind(t, text("obo", "obo", append(base, fmt.Sprintf("tenantId: %q", tenant))...))
		check(t, tenant, s, errs, "spec.obo.tenantId")
	}
	for _, authority := range []string{"http://login.example.com", "https://user@login.example.com", "https://login.example.com?a=b", "https://login.example.com?", "https://login.example.com#a", "https://login.example.com/", "https://", "login.example.com", "https://login.example.com:0"} {
		s, errs := kind(t, text("obo", "obo", append(base, "tenantId: contoso.com", fmt.Sprintf("authority: %q", authority))...))
		check(t, authority, s, errs, "spec.obo.authority")
	}
	for _, fields := range [][]string{{"tenantId: contoso.com"}, {"tenantId: 72f988bf-86f1-41af-91ab-2d7cd011db47", "authority: https://login.example.com/national"}} {
		if _, errs := kind(t, text("obo", "obo", append(base, fields...)...)); len(errs) > 0 {
			t.Error(errs)
		}
	}
}

// What Parse refuses of each kind.
func TestExchangeParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{type: tokenExchange, tokenExchange: {tokenUrl: "", audience: ""}}`:                                                           "spec.tokenExchange.audience spec.tokenExchange.tokenUrl",
		`{type: tokenExchange, tokenExchange: {tokenUrl: "https://a/#b", audience: c}}`:                                                "spec.tokenExchange.tokenUrl",
		`{type: tokenExchange, tokenExchange: {tokenUrl: "ftp://a", audience: c, clientSecretRef: {name: a, key: b}}}`:                 "spec.tokenExchange.clientId spec.tokenExchange.tokenUrl",
		`{type: tokenExchange, tokenExchange: {tokenUrl: "http://a", audience: c, externalTokenHeaderName: Mcp-Session-Id}}`:           "spec.tokenExchange.externalTokenHeaderName",
		`{type: tokenExchange, tokenExchange: {tokenUrl: "https://a", audience: c, clientId: d, clientSecretRef: {name: "", key: b}}}`: "spec.tokenExchange.clientSecretRef.name",
		`{type: obo, obo: {}}`: "spec.obo.audience spec.obo.clientId spec.obo.clientSecretRef spec.obo.tenantId",
		`{type: obo, obo: {audience: a, clientId: b, clientSecretRef: {name: a, key: b}, tenantId: a.com, cacheSkew: soon}}`:                                       "spec.obo.cacheSkew",
		`{type: upstreamInject, upstreamInject: {providerName: ""}}`:                                                                                               "spec.upstreamInject.providerName",
		`{type: xaa, xaa: {idpTokenUrl: "http://a", targetAudience: "https://b", targetTokenUrl: "http://c"}}`:                                                     "spec.xaa.idpTokenUrl spec.xaa.targetTokenUrl",
		`{type: xaa, xaa: {idpTokenUrl: "http://a", targetAudience: "", targetTokenUrl: "http://c", insecureTargetTokenUrl: true}}`:                                "spec.xaa.idpTokenUrl spec.xaa.targetAudience",
		`{type: xaa, xaa: {idpTokenUrl: "https://a", targetAudience: b, targetTokenUrl: "https://c", subjectTokenType: access_token}}`:                             "spec.xaa.subjectTokenType",
		`{type: xaa, xaa: {idpTokenUrl: "https://a", targetAudience: b, targetTokenUrl: "https://c", idpClientSecretRef: {name: a, key: b}, targetClientId: "x"}}`: "spec.xaa.idpClientId",
	} {
		s, errs := kind(t, text)
		check(t, text, s, errs, want)
	}
	for text, want := range map[string]string{
		`{type: token_exchange, tokenExchange: {tokenUrl: "https://a", clientId: a, clientSecret: b, clientSecretEnv: C}}`:                                                   "spec.tokenExchange.clientSecretEnv",
		`{type: obo, obo: {tokenUrl: "https://a", audience: b, clientId: c}}`:                                                                                                "spec.obo.clientSecret",
		`{type: obo, obo: {tokenUrl: "", clientSecretEnv: B}}`:                                                                                                               "spec.obo.audience spec.obo.clientId spec.obo.tokenUrl",
		`{type: xaa, xaa: {idpTokenUrl: "https://a", targetAudience: b, targetTokenUrl: "https://c", targetClientId: d, targetClientSecret: e, targetClientSecretEnv: "F"}}`: "spec.xaa.targetClientSecretEnv",
	} {
		s, errs := config(t, text)
		check(t, text, s, errs, want)
	}
}

// What is missing when the plan opens is an error then, and names no secret.
func TestExchangeMissingAtOpen(t *testing.T) {
	env, secrets := world(t, nil, nil)
	secrets.Set("empty/secret", "\n")
	for part, s := range map[string]outgoing.Strategy{
		"EXCHANGE_NOT_SET is not set": must(config(t, text("token_exchange", "tokenExchange", "tokenUrl: https://a", "clientId: a", "clientSecretEnv: EXCHANGE_NOT_SET"))),
		"gone/secret":                 must(kind(t, text("tokenExchange", "tokenExchange", "tokenUrl: https://a", "audience: b", "clientId: a", "clientSecretRef: {name: gone, key: secret}"))),
		"empty/secret: it is empty":   must(kind(t, text("obo", "obo", "tenantId: a.com", "audience: b", "clientId: a", "clientSecretRef: {name: empty, key: secret}"))),
		"upstream github":             must(kind(t, text("upstreamInject", "upstreamInject", "providerName: github"))),
		"subjectProviderName":         must(config(t, text("xaa", "xaa", "idpTokenUrl: https://a", "targetAudience: https://b", "targetTokenUrl: https://c"))),
	} {
		if _, err := s.Open(env); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", part, err)
		}
	}
}

// What a strategy needs of a call, by either kind.
func TestNeeds(t *testing.T) {
	for _, tt := range []struct {
		spec outgoing.Spec
		user bool
		of   string
	}{
		{outgoing.Spec{}, false, "[]"},
		{outgoing.Spec{Kind: &v1beta1.MCPExternalAuthConfigSpec{Type: v1beta1.AuthBearerToken}}, false, "[]"},
		{outgoing.Spec{Kind: &v1beta1.MCPExternalAuthConfigSpec{Type: v1beta1.AuthTokenExchange, TokenExchange: &v1beta1.TokenExchange{}}}, true, "[]"},
		{outgoing.Spec{Kind: &v1beta1.MCPExternalAuthConfigSpec{Type: v1beta1.AuthCloudSTS, CloudSTS: &v1beta1.CloudSTS{SubjectProviderName: "a"}}}, true, "[a]"},
		{outgoing.Spec{Kind: &v1beta1.MCPExternalAuthConfigSpec{Type: v1beta1.AuthXAA, XAA: &v1beta1.XAA{}}}, true, "[]"},
		{outgoing.Spec{Config: &v1beta1.OutgoingStrategy{Type: v1beta1.StrategyOBO, OBO: &v1beta1.ConfigOBO{SubjectTokenProviderName: "b"}}}, true, "[b]"},
		{outgoing.Spec{Config: &v1beta1.OutgoingStrategy{Type: v1beta1.StrategyUpstreamInject, UpstreamInject: &v1beta1.UpstreamInject{ProviderName: "c"}}}, true, "[c]"},
	} {
		user, of := tt.spec.Needs()
		if user != tt.user || fmt.Sprint(of) != tt.of {
			t.Errorf("%s: %t, %v", tt.spec.Type(), user, of)
		}
	}
	if _, of := (&outgoing.Spec{Config: &v1beta1.OutgoingStrategy{Type: v1beta1.StrategyXAA, XAA: &v1beta1.ConfigXAA{}}}).Needs(); len(of) != 1 {
		t.Error("xaa can do without an upstream")
	}
}

// local is a token service with an issuer of its own, and tokenExchange by it.
func local(t testing.TB, more ...string) (*tokens.Service, outgoing.Strategy, func(subject string) *edge.Identity) {
	t.Helper()
	s := tokens.Start(t, map[string]tokens.Rules{tokens.Exchange: {
		ID: clientID, Secret: clientSecret, Basic: true, Body: true, Audience: resource, Type: "access_token", Target: target,
	}})
	s.Change(tokens.Exchange, func(r *tokens.Rules) { r.Issuer = s.As.URL })
	fields := append([]string{"tokenUrl: " + s.URL + tokens.Exchange, "audience: " + target, "clientId: " + clientID, "clientSecretRef: {name: client, key: secret}"}, more...)
	return s, must(kind(t, text("tokenExchange", "tokenExchange", fields...))), func(subject string) *edge.Identity {
		token, err := s.As.Token(subject, map[string]any{"aud": resource})
		if err != nil {
			t.Fatal(err)
		}
		return identity(s.As.URL, subject, token)
	}
}

// The edge's own requests go without, and a call of nobody does not go.
func TestCallWithoutUser(t *testing.T) {
	s, strategy, _ := local(t)
	env, _ := world(t, s, nil)
	attach := openIn(t, env, strategy)
	if generation, err := attach(t.Context(), &edge.Outbound{}, func(string, edge.Secret) { t.Error("set") }); generation != 0 || err != nil {
		t.Error(generation, err)
	}
	for _, who := range []*edge.Identity{nil, {Issuer: edge.AnonymousIssuer, Subject: "anonymous"}, {Issuer: "weir-local", Subject: "me"}} {
		_, _, err := shown(t, attach, who, false)
		refusedAs(t, "nobody", err, edge.Unauthenticated)
	}
	if !strategy.Personal() || len(s.Seen(tokens.Exchange)) > 0 {
		t.Error("asked for nobody")
	}
}

// A secret that has changed is used by the next exchange.
func TestClientSecretRotates(t *testing.T) {
	s, strategy, user := local(t)
	env, secrets := world(t, s, nil)
	attach := openIn(t, env, strategy)
	for i, secret := range []string{clientSecret, "another", "a third"} {
		s.Change(tokens.Exchange, func(r *tokens.Rules) { r.Secret = secret })
		secrets.Set("client/secret", edge.Secret(secret))
		if _, _, err := shown(t, attach, user(fmt.Sprint("user", i)), false); err != nil {
			t.Error(err)
		}
	}
	secrets.Remove("client/secret")
	_, _, err := shown(t, attach, user("dave"), false)
	refusedAs(t, "a secret that is gone", err, edge.Unavailable)
}

// T12: a service that is refused, silent, broken or lying: the call fails, and what it
// sends in no case is the client's own token (shown demands that). It works again at once.
func TestT12Strategies(t *testing.T) {
	s, strategy, user := local(t)
	page := func(status int, body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Location", "https://other.example.com/")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
			return true
		}
	}
	token := func(typ, more string) func(http.ResponseWriter, *http.Request) bool {
		return page(200, `{"access_token":"planted-token","token_type":"Bearer","issued_token_type":"urn:ietf:params:oauth:token-type:`+typ+`"`+more+`}`)
	}
	foreign, err := s.As.Token("alice", map[string]any{"aud": "https://other.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request) bool
		kind   edge.Kind
	}{
		"500":                       {page(500, "planted-token"), edge.Unavailable},
		"a redirect":                {page(307, ""), edge.Unavailable},
		"nonsense":                  {page(200, "planted-token"), edge.Unavailable},
		"another issued_token_type": {token("refresh_token", ""), edge.Unavailable},
		"none":                      {page(200, `{"access_token":"planted-token","token_type":"Bearer"}`), edge.Unavailable},
		"a lifetime below 0":        {token("access_token", `,"expires_in":-1`), edge.Unavailable},
		"another audience":          {page(200, `{"access_token":"`+foreign+`","token_type":"Bearer","issued_token_type":"urn:ietf:params:oauth:token-type:access_token"}`), edge.Unavailable},
		"a token too large":         {page(200, `{"access_token":"`+strings.Repeat("a", 17<<10)+`","token_type":"Bearer","issued_token_type":"urn:ietf:params:oauth:token-type:access_token"}`), edge.Unavailable},
		"a broken connection":       {func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, edge.Unavailable},
		"a refusal":                 {page(400, `{"error":"consent_required","error_description":"planted-token"}`), edge.Unauthenticated},
	} {
		s.Instead = tt.answer
		var ahead atomic.Int64
		env, _ := world(t, s, nil)
		env.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		attach, who := openIn(t, env, strategy), user("alice")
		for range 3 {
			_, _, err := shown(t, attach, who, false)
			refusedAs(t, name, err, tt.kind, "planted-token")
		}
		if n := len(s.Seen(tokens.Exchange)); n < 1 || n > 2 { // a client of HTTP may try a broken connection again
			t.Errorf("%s: asked %d times", name, n)
		}
		s.Instead = nil
		ahead.Store(int64(5 * time.Second))
		if _, _, err := shown(t, attach, who, false); err != nil {
			t.Errorf("%s: not back: %v", name, err)
		}
		s.Seen(tokens.Exchange)
	}
}

// 1,000 first calls at once through a strategy make one exchange; what is told of it is
// one attempt.
func TestT15Exchange(t *testing.T) {
	s, strategy, user := local(t)
	var made atomic.Int64
	env, _ := world(t, s, nil)
	env.Made = func(m edge.Made) {
		if m.Strategy != "tokenExchange" || m.Outcome() != "issued" || m.Who.Subject != "alice" || m.Took <= 0 || m.Began.IsZero() {
			t.Errorf("%+v", m)
		}
		made.Add(1)
	}
	attach, who := openIn(t, env, strategy), user("alice")
	var calls sync.WaitGroup
	var generations sync.Map
	for range 1000 {
		calls.Go(func() {
			generation, err := attach(t.Context(), &edge.Outbound{Exchange: &edge.Exchange{Identity: who}}, func(string, edge.Secret) {})
			if err != nil {
				t.Error(err)
			}
			generations.Store(generation, true)
		})
	}
	calls.Wait()
	n := 0
	generations.Range(func(any, any) bool { n++; return true })
	if len(s.Seen(tokens.Exchange)) != 1 || n != 1 || made.Load() != 1 {
		t.Error(n, made.Load())
	}
	if st := outgoing.CacheOf(env).Stats(); st.Entries != 1 || st.Bytes == 0 {
		t.Errorf("%+v", st)
	}
}

// Two strategies that differ in anything share nothing; two that are the same share all.
func TestStrategiesShare(t *testing.T) {
	s, one, user := local(t)
	env, _ := world(t, s, nil)
	who := user("alice")
	same := must(kind(t, text("tokenExchange", "tokenExchange", "tokenUrl: "+s.URL+tokens.Exchange, "audience: "+target, "clientId: "+clientID, "clientSecretRef: {name: client, key: secret}")))
	other := must(kind(t, text("tokenExchange", "tokenExchange", "tokenUrl: "+s.URL+tokens.Exchange, "audience: "+target, "clientId: "+clientID, "clientSecretRef: {name: client, key: secret}", "externalTokenHeaderName: X-Token")))
	for i, strategy := range []outgoing.Strategy{one, same, other} {
		if _, _, err := shown(t, openIn(t, env, strategy), who, false); err != nil {
			t.Fatal(err)
		}
		if n := len(s.Seen(tokens.Exchange)); n != []int{1, 0, 1}[i] {
			t.Errorf("%d: %d exchanges", i, n)
		}
	}
}

// A backend that refuses everything costs one exchange more, however often it does.
func TestBackendThatRefusesAll(t *testing.T) {
	s, strategy, user := local(t)
	env, _ := world(t, s, nil)
	attach, who := openIn(t, env, strategy), user("alice")
	_, first, _ := shown(t, attach, who, false)
	_, second, err := shown(t, attach, who, true)
	if err != nil || second == first {
		t.Fatal(first, second, err)
	}
	for range 100 {
		if _, now, err := shown(t, attach, who, true); err != nil || now != second {
			t.Fatal(now, err)
		}
	}
	if n := len(s.Seen(tokens.Exchange)); n != 2 {
		t.Errorf("%d exchanges", n)
	}
}

// The token of an upstream: as it is, and as what another is made of. It never is another
// user's, and one that the upstream renewed is used at once.
func TestUpstreamSubject(t *testing.T) {
	up := &upstreams{}
	s, exchange, _ := local(t, "subjectProviderName: github")
	env, _ := world(t, s, up)
	inject := openIn(t, env, must(kind(t, text("upstreamInject", "upstreamInject", "providerName: github"))))
	attach := openIn(t, env, exchange)
	for _, name := range []string{"alice", "bob"} {
		who := identity("https://weir.example.com", name, "token of "+name)
		for range 2 {
			token, err := s.As.Token(name, map[string]any{"aud": resource})
			if err != nil {
				t.Fatal(err)
			}
			up.set("github", name, edge.Secret(token), "")
			line, first, err := shown(t, inject, who, false)
			if err != nil || line != "Authorization: Bearer "+token {
				t.Error(err)
			}
			if _, again, _ := shown(t, inject, who, true); again != first { // nothing else can be sent
				t.Error("the same token has another generation")
			}
			line, _, err = shown(t, attach, who, false)
			if err != nil || said(issued(t, line, "Authorization"), "sub") != name {
				t.Error(err)
			}
			asked := s.Seen(tokens.Exchange)
			if len(asked) != 1 || asked[0].Form.Get("subject_token") != token {
				t.Errorf("%d exchanges", len(asked))
			}
		}
	}
	who := identity("https://weir.example.com", "alice", "token of alice")
	up.set("github", "alice", "revoked", "")
	if line, _, err := shown(t, inject, who, false); err != nil || line != "Authorization: Bearer revoked" {
		t.Error(line, err)
	}
	_, _, err := shown(t, inject, who, true)
	refusedAs(t, "a token that the backend refuses, and nobody renews", err, edge.Unauthenticated)
	up.set("github", "alice", "renewable", "")
	_, first, err := shown(t, inject, who, false)
	if err != nil {
		t.Error(err)
	}
	if line, next, err := shown(t, inject, who, true); err != nil || line != "Authorization: Bearer renewed" || next == first {
		t.Errorf("a token that the backend refuses, and that was renewed: %s, generation %d after %d, %v", line, next, first, err)
	}
	for kind, err := range map[edge.Kind]error{
		edge.Unauthenticated: edge.Errorf(edge.NotFound, "upstream", "sign in again"),
		edge.Unavailable:     errors.New("down"),
	} {
		up.err = err
		for _, attach := range []outgoing.Attach{inject, attach} {
			_, _, err := shown(t, attach, who, false)
			refusedAs(t, "upstream", err, kind)
		}
	}
}

// 10,000 users within a minute: each gets a token of its own, and what is kept is bounded.
func TestManyUsers(t *testing.T) {
	const users = 10_000 / 50
	s, strategy, user := local(t)
	env, _ := world(t, s, nil)
	attach := openIn(t, env, strategy)
	var calls sync.WaitGroup
	for g := range 8 {
		calls.Go(func() {
			for i := g; i < users; i += 8 {
				name := fmt.Sprint("user-", i)
				line, _, err := shown(t, attach, user(name), false)
				if err != nil {
					t.Error(err)
				} else if said(issued(t, line, "Authorization"), "sub") != name {
					t.Error("another's token")
				}
			}
		})
	}
	calls.Wait()
	if st := outgoing.CacheOf(env).Stats(); st.Entries != users || st.Bytes > 32<<20 {
		t.Errorf("%+v", st)
	}
}

// A kept credential costs no allocation, in each strategy.
func TestExchangedAllocatesNothing(t *testing.T) {
	up := &upstreams{}
	up.set("github", "alice", "upstream-token", "")
	s, exchange, user := local(t)
	env, _ := world(t, s, up)
	who := user("alice")
	who.Digested = edge.DigestToken(who.Token) // as the gate has it
	for name, strategy := range map[string]outgoing.Strategy{"tokenExchange": exchange, "upstreamInject": must(kind(t, text("upstreamInject", "upstreamInject", "providerName: github")))} {
		attach, ctx := openIn(t, env, strategy), t.Context()
		r := &edge.Outbound{Exchange: &edge.Exchange{Identity: who}}
		set := func(string, edge.Secret) {}
		if n := testing.AllocsPerRun(100, func() {
			if _, err := attach(ctx, r, set); err != nil {
				t.Error(err)
			}
		}); name == "tokenExchange" && n != 0 || n > 1 { // the fake of upstreams makes a text
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkExchanged(b *testing.B) {
	s, exchange, user := local(b)
	env, _ := world(b, s, nil)
	attach, who := openIn(b, env, exchange), user("alice")
	who.Digested = edge.DigestToken(who.Token)
	r := &edge.Outbound{Exchange: &edge.Exchange{Identity: who}}
	var line []byte
	set := func(name string, value edge.Secret) { line = append(append(line[:0], name...), value...) }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := attach(b.Context(), r, set); err != nil {
			b.Fatal(err)
		}
	}
}
