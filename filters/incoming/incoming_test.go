package incoming_test

import (
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/incoming"
)

func TestParse(t *testing.T) {
	sound := incoming.Spec{Type: incoming.OIDC, Issuer: "https://i.example/tenant", Audience: "api"}
	for name, tt := range map[string]struct {
		change func(*incoming.Spec)
		want   string // the fields that are wrong
	}{
		"sound":                      {func(*incoming.Spec) {}, ""},
		"no type":                    {func(s *incoming.Spec) { s.Type = "" }, "type"},
		"another type":               {func(s *incoming.Spec) { s.Type = "oauth" }, "type"},
		"nothing":                    {func(s *incoming.Spec) { *s = incoming.Spec{Type: incoming.OIDC} }, "issuer audience"},
		"http":                       {func(s *incoming.Spec) { s.Issuer = "http://i.example" }, "issuer"},
		"http, allowed":              {func(s *incoming.Spec) { s.Issuer, s.AllowHTTP = "http://i.example", true }, ""},
		"an issuer with a query":     {func(s *incoming.Spec) { s.Issuer += "?x" }, "issuer"},
		"keys by http":               {func(s *incoming.Spec) { s.JWKSURL = "http://i.example/k" }, "jwksURL"},
		"keys in a file":             {func(s *incoming.Spec) { s.JWKSURL = "file:///k" }, "jwksURL"},
		"introspection by http":      {func(s *incoming.Spec) { s.IntrospectionURL = "http://i.example/k" }, "introspectionURL"},
		"introspection alone":        {func(s *incoming.Spec) { s.Issuer, s.IntrospectionURL = "", "https://i.example/i" }, ""},
		"introspection, for anybody": {func(s *incoming.Spec) { s.Issuer, s.IntrospectionURL, s.Audience = "", "https://i.example/i", "" }, "audience"},
		"keys of nobody": {func(s *incoming.Spec) {
			s.Issuer, s.IntrospectionURL, s.JWKSURL = "", "https://i.example/i", "https://i.example/k"
		}, "jwksURL"},
		"a token for no keys": {func(s *incoming.Spec) {
			s.Issuer, s.IntrospectionURL, s.TokenFile = "", "https://i.example/i", "/token"
		}, "jwksAuthTokenPath"},
		"a bundle of nothing":              {func(s *incoming.Spec) { s.CABundle = "x" }, "caBundle"},
		"a scope with a blank":             {func(s *incoming.Spec) { s.Scopes = []string{"a", "b c"} }, "scopes[1]"},
		"a required one with a quote":      {func(s *incoming.Spec) { s.Required = []string{`"`} }, "requiredScopes[0]"},
		"an account without namespace":     {func(s *incoming.Spec) { s.Account = "a" }, "namespace"},
		"a private resource":               {func(s *incoming.Spec) { s.Resource = "https://10.0.0.1/mcp" }, "resource"},
		"a private resource, allowed":      {func(s *incoming.Spec) { s.Resource, s.ResourceAllowPrivate = "https://10.0.0.1/mcp", true }, ""},
		"a resource on this machine":       {func(s *incoming.Spec) { s.Resource = "http://127.0.0.1:4483/mcp" }, ""},
		"a resource that is no URL":        {func(s *incoming.Spec) { s.Resource = "api" }, ""},
		"a resource with a query":          {func(s *incoming.Spec) { s.Resource = "https://edge.example/mcp?tenant=1" }, "resource"},
		"a resource with an empty query":   {func(s *incoming.Spec) { s.Resource = "https://edge.example/mcp?" }, "resource"},
		"everything at once":               {func(s *incoming.Spec) { s.Issuer, s.JWKSURL, s.Scopes = "x", "y", []string{""} }, "issuer jwksURL scopes[0]"},
		"what another type has no use for": {func(s *incoming.Spec) { s.Type, s.Issuer = incoming.Anonymous, "x" }, ""},
	} {
		s := sound
		tt.change(&s)
		_, err := incoming.Parse(s)
		var faults incoming.Faults
		var fields []string
		if errors.As(err, &faults) {
			for _, f := range faults {
				fields = append(fields, f.Field)
			}
		}
		if got := strings.Join(fields, " "); got != tt.want || (err == nil) != (tt.want == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFrom holds that every field of the model arrives.
func TestFrom(t *testing.T) {
	config := incoming.FromConfig(&v1beta1.ConfigIncomingAuth{Type: v1beta1.ConfigIncomingOIDC, OIDC: &v1beta1.ConfigOIDC{
		Issuer: "i", Audience: "a", ClientID: "c", ClientSecretEnv: "E", IntrospectionURL: "n", JWKSURL: "j", JWKSAllowPrivateIP: true,
		ProtectedResourceAllowPrivateIP: true, InsecureAllowHTTP: true, Resource: "r", Scopes: []string{"s"}, CABundlePath: "p",
	}})
	if got, want := fmt.Sprintf("%+v", config), fmt.Sprintf("%+v", incoming.Spec{
		Type: incoming.OIDC, Issuer: "i", Audience: "a", ClientID: "c", ClientSecretEnv: "E", IntrospectionURL: "n", JWKSURL: "j", AllowPrivate: true,
		ResourceAllowPrivate: true, AllowHTTP: true, Resource: "r", Scopes: []string{"s"}, CABundlePath: "p",
	}); got != want {
		t.Errorf("config:\n%s\n%s", got, want)
	}
	auth := &v1beta1.IncomingAuth{Type: v1beta1.IncomingOIDC, OIDCConfigRef: &v1beta1.OIDCConfigRef{Name: "x", Audience: "a", ResourceURL: "r", Scopes: []string{"s"}}}
	ref := &v1beta1.SecretRef{Name: "n", Key: "k"}
	inline := incoming.FromKind(auth, &v1beta1.MCPOIDCConfigSpec{Type: v1beta1.OIDCInline, Inline: &v1beta1.InlineOIDC{
		Issuer: "i", JWKSURL: "j", IntrospectionURL: "n", ClientID: "c", ClientSecretRef: ref, JWKSAuthTokenPath: "t",
		JWKSAllowPrivateIP: true, ProtectedResourceAllowPrivateIP: true, InsecureAllowHTTP: true,
	}}, "PEM")
	if got, want := fmt.Sprintf("%+v", inline), fmt.Sprintf("%+v", incoming.Spec{
		Type: incoming.OIDC, Issuer: "i", Audience: "a", JWKSURL: "j", IntrospectionURL: "n", ClientID: "c", ClientSecret: ref, TokenFile: "t", CABundle: "PEM",
		AllowPrivate: true, ResourceAllowPrivate: true, AllowHTTP: true, Resource: "r", Scopes: []string{"s"},
	}); got != want {
		t.Errorf("inline:\n%s\n%s", got, want)
	}
	no := false
	for _, tt := range []struct {
		spec            v1beta1.ServiceAccountOIDC
		keys, ca, token string
	}{
		{v1beta1.ServiceAccountOIDC{Issuer: "i", Namespace: "n", ServiceAccount: "a"}, "https://kubernetes.default.svc/openid/v1/jwks", "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt", "/var/run/secrets/kubernetes.io/serviceaccount/token"},
		{v1beta1.ServiceAccountOIDC{Issuer: "i", Namespace: "n", ServiceAccount: "a", JWKSURL: "j", UseClusterAuth: &no}, "j", "", ""},
	} {
		s := incoming.FromKind(auth, &v1beta1.MCPOIDCConfigSpec{Type: v1beta1.OIDCServiceAccount, KubernetesServiceAccount: &tt.spec}, "")
		if s.JWKSURL != tt.keys || s.CABundlePath != tt.ca || s.TokenFile != tt.token || s.Namespace != "n" || s.Account != "a" || !s.AllowPrivate || s.Issuer != "i" {
			t.Errorf("service account: %+v", s)
		}
	}
	if s := incoming.FromKind(&v1beta1.IncomingAuth{Type: v1beta1.IncomingAnonymous}, nil, ""); s.Type != incoming.Anonymous {
		t.Errorf("anonymous: %+v", s)
	}
}

// TestMetadata holds the protected resource metadata and where they are.
func TestMetadata(t *testing.T) {
	base := incoming.Spec{Type: incoming.OIDC, Issuer: "https://i.example", Audience: "api", Scopes: []string{"openid", "offline_access", "tools"}}
	for name, tt := range map[string]struct {
		resource, audience, at string
		location, document     string
	}{
		"a resource":      {"https://edge.example/mcp", "api", "https://other.example/mcp", "https://edge.example/.well-known/oauth-protected-resource/mcp", `{"resource":"https://edge.example/mcp","authorization_servers":["https://i.example"],"bearer_methods_supported":["header"],"scopes_supported":["openid","tools"]}`},
		"the audience":    {"", "https://edge.example", "", "https://edge.example/.well-known/oauth-protected-resource", `{"resource":"https://edge.example","authorization_servers":["https://i.example"],"bearer_methods_supported":["header"],"scopes_supported":["openid","tools"]}`},
		"where it is":     {"api", "api", "http://127.0.0.1:4483/servers/a/mcp", "http://127.0.0.1:4483/.well-known/oauth-protected-resource/servers/a/mcp", `{"resource":"http://127.0.0.1:4483/servers/a/mcp","authorization_servers":["https://i.example"],"bearer_methods_supported":["header"],"scopes_supported":["openid","tools"]}`},
		"nobody knows it": {"api", "api", "", "", ""},
	} {
		s := base
		s.Resource, s.Audience = tt.resource, tt.audience
		in := parse(t, s).At(tt.at)
		told := ""
		if tt.location != "" {
			told = `resource_metadata="` + tt.location + `", `
		}
		if in.Missing() != `Bearer `+told+`scope="openid tools"` || string(in.Document()) != tt.document {
			t.Errorf("%s: %s %s", name, in.Missing(), in.Document())
		}
	}
	for _, kind := range []incoming.Type{incoming.Anonymous, incoming.Local} {
		in := parse(t, incoming.Spec{Type: kind}).At("https://edge.example/mcp")
		if in.Document() != nil || in.Missing() != "" || in.Authenticates() {
			t.Errorf("%s: %s", kind, in.Document())
		}
	}
	if in := parse(t, incoming.Spec{Type: incoming.OIDC, Issuer: "https://i.example", Audience: "https://a.example"}); !strings.Contains(string(in.Document()), `"scopes_supported":["openid"]`) || !in.Authenticates() {
		t.Errorf("scopes: %s", in.Document())
	}
}

// TestChallenge holds what each refusal asks for.
func TestChallenge(t *testing.T) {
	p := newProvider(t, theEC())
	s := p.spec()
	s.Scopes = []string{"openid", "tools:read"}
	g := open(t, s)
	const meta = `resource_metadata="https://edge.example.com/.well-known/oauth-protected-resource/mcp"`
	missing := `Bearer ` + meta + `, scope="openid tools:read"`
	invalid := missing + `, error="invalid_token", error_description="the access token is not valid here"`
	good := theEC().mint(p.claims(nil))
	for header, want := range map[string]string{
		"":                         missing,
		"Basic YTpi":               missing,
		"Bearer":                   missing,
		"Bearerx " + good:          missing,
		"Bearer ":                  invalid,
		"Bearer x":                 invalid,
		"Bearer " + good + " x":    invalid,
		"Bearer x, Bearer " + good: invalid,
		"Bearer " + good:           "",
		"bearer " + good:           "",
		"BEARER  " + good + " ":    "",
	} {
		_, err := g.Identify(t.Context(), edge.Secret(header), "")
		got := ""
		if e := (*edge.Error)(nil); errors.As(err, &e) {
			got = e.Challenge
			if e.Kind != edge.Unauthenticated {
				t.Errorf("%.20q: kind %d", header, e.Kind)
			}
		}
		if got != want || (err == nil) != (want == "") {
			t.Errorf("%.20q: %s", header, got)
		}
	}
}

// TestScopes holds required scopes, and the step up that a filter further in
// asks for.
func TestScopes(t *testing.T) {
	p := newProvider(t, theEC())
	s := p.spec()
	s.Required = []string{"openid", "tools:read"}
	g := open(t, s)
	token := func(change map[string]any) string { return theEC().mint(p.claims(change)) }
	const meta = `resource_metadata="https://edge.example.com/.well-known/oauth-protected-resource/mcp"`
	for name, claims := range map[string]map[string]any{
		"scope": nil, "scope as a list": {"scope": []string{"openid", "tools:read"}}, "scp": {"scope": nil, "scp": "tools:read openid"}, "scp as a list": {"scope": nil, "scp": []string{"openid", "tools:read", "x"}},
	} {
		if _, err := identify(t, g, token(claims)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 2 { // also when it is remembered
		id, err := identify(t, g, token(map[string]any{"scope": "openid"}))
		e := (*edge.Error)(nil)
		if !errors.As(err, &e) || e.Kind != edge.Denied || e.Challenge != `Bearer error="insufficient_scope", scope="openid tools:read", `+meta || id != nil {
			t.Errorf("%+v", err)
		}
	}
	inner := edge.Error{Kind: edge.Denied, Err: &edge.ScopeError{Scopes: []string{"tools:write", "tools:read", `bad "`}}}
	err := g.StepUp(&inner)
	e := (*edge.Error)(nil)
	if !errors.As(err, &e) || e.Kind != edge.Denied || e.Challenge != `Bearer error="insufficient_scope", scope="openid tools:read tools:write", `+meta || inner.Challenge != "" {
		t.Errorf("%+v", err)
	}
	inner.Challenge = "its own"
	if err := g.StepUp(&inner); err != &inner {
		t.Errorf("a challenge was replaced: %+v", err)
	}
	other := edge.Errorf(edge.Denied, "x", "no")
	if err := g.StepUp(other); err != other || other.Challenge != "" {
		t.Errorf("an error of another cause was changed: %v", err)
	}
}

// TestStepUpElsewhere: scopes that a backend wants of its own credential are asked of a client
// whose login can give them, and of no other. Who has to sign in again is told so.
func TestStepUpElsewhere(t *testing.T) {
	p := newProvider(t, theEC())
	s := p.spec()
	s.Required, s.Scopes = []string{"openid"}, []string{"openid", "files:read"}
	g := open(t, s)
	for scopes, asked := range map[string]bool{"files:read": true, "files:read openid": true, "files:write": false, "files:read files:write": false, "": false} {
		err := g.StepUp(&edge.Error{Kind: edge.Denied, Err: &edge.ScopeError{Scopes: strings.Fields(scopes), Elsewhere: true}})
		e := (*edge.Error)(nil)
		if !errors.As(err, &e) || e.Kind != edge.Denied || strings.Contains(e.Challenge, "files:read") != asked || (e.Challenge != "") != asked {
			t.Errorf("%q: %+v", scopes, err)
		}
	}
	err := g.StepUp(edge.Errorf(edge.Unauthenticated, "attach", "sign in again"))
	e := (*edge.Error)(nil)
	if !errors.As(err, &e) || !strings.Contains(e.Challenge, `error="invalid_token", error_description="sign in again"`) {
		t.Errorf("%+v", err)
	}
}

// TestIdentity holds what is known of who sends a token, and that it does not
// print the token.
func TestIdentity(t *testing.T) {
	p := newProvider(t, theEC())
	g := open(t, p.spec())
	id, err := identify(t, g, theEC().mint(p.claims(nil)))
	if err != nil || id == nil || id.Subject != "alice" || id.Name != "Alice" || id.Email != "alice@example.com" || !strings.HasPrefix(string(id.Token), "eyJ") {
		t.Fatalf("%v, %+v", err, id)
	}
	if _, err := g.Identify(t.Context(), "", ""); edge.KindOf(err) != edge.Unauthenticated {
		t.Errorf("without a token: %v", err)
	}
	if s := fmt.Sprintf("%v %+v %#v", id, *id, edge.Exchange{Identity: id}); strings.Contains(s, "eyJ") {
		t.Error("an identity prints its token")
	}
}

func TestAnonymous(t *testing.T) {
	g := open(t, incoming.Spec{Type: incoming.Anonymous})
	a, err := g.Identify(t.Context(), "Bearer x", "192.0.2.1")
	b, _ := g.Identify(t.Context(), "", "")
	if err != nil || a != b || a.Issuer != "weir-anonymous" || a.Subject != "anonymous" || a.Name != "Anonymous User" || a.Token != "" || g.Ready() != nil {
		t.Errorf("%v, %+v", err, a)
	}
}

// TestRightsOfTokens: the rights of a token are its claims but for those of one token alone, be it
// signed or explained by its issuer.
func TestRightsOfTokens(t *testing.T) {
	p := newProvider(t, theRSA())
	change := map[string]any{}
	p.introspect = func(w http.ResponseWriter, _ *http.Request) {
		all := map[string]any{"active": true}
		maps.Copy(all, change)
		_, _ = io.WriteString(w, p.claims(all))
	}
	spec := p.spec()
	spec.IntrospectionURL = p.URL + "/introspect"
	g := open(t, spec)
	n := 0
	forms := map[string]func(more map[string]any) string{
		"JWT": func(more map[string]any) string { return theRSA().mint(p.claims(more)) },
		"opaque": func(more map[string]any) string {
			n++
			change = more
			return fmt.Sprint("opaque-", n)
		},
	}
	for form, token := range forms {
		rights := func(more map[string]any) [16]byte { return accepted(t, g, form, token(more)).Rights }
		plain := rights(nil)
		if plain == [16]byte{} {
			t.Errorf("%s: none", form)
		}
		later := time.Now().Add(2 * time.Hour).Unix()
		if rights(map[string]any{"exp": later, "iat": time.Now().Unix(), "nbf": 1, "jti": "2", "auth_time": 3, "sid": "4", "uti": "5"}) != plain {
			t.Errorf("%s: a refreshed token has others", form)
		}
		if rights(map[string]any{"expires_in": 3, "auditTrackingId": "6"}) != plain {
			t.Errorf("%s: another answer about it gives others", form)
		}
		pod := func(pod, account string) [16]byte {
			return rights(map[string]any{"kubernetes.io": map[string]any{
				"namespace": "a", "node": map[string]any{"name": pod}, "pod": map[string]any{"name": pod, "uid": pod},
				"serviceaccount": map[string]any{"name": account}, "warnafter": len(pod),
			}})
		}
		if pod("one", "a") != pod("another", "a") || pod("one", "a") == pod("one", "b") || pod("one", "a") == plain {
			t.Errorf("%s: pods of one service account have others, or those of two the same", form)
		}
		for name, v := range map[string][2]any{
			"scope": {"a b", "b a"}, "scp": {[]string{"a", "b"}, []string{"b", "a"}}, "groups": {[]string{"x", "y"}, []string{"y", "x"}},
			"aud": {[]string{spec.Audience, "z"}, []string{"z", spec.Audience}},
		} {
			if rights(map[string]any{name: v[0]}) != rights(map[string]any{name: v[1]}) {
				t.Errorf("%s: another order of %s has others", form, name)
			}
		}
		if rights(map[string]any{"path": []string{"x", "y"}}) == rights(map[string]any{"path": []string{"y", "x"}}) {
			t.Errorf("%s: the order of any list is lost", form)
		}
		for name, v := range map[string]any{"role": "admin", "scope": "a", "groups": []string{"a"}, "client_id": "other", "tsid": "x", "azp": "y"} {
			if rights(map[string]any{name: v}) == plain {
				t.Errorf("%s: another %s has the same", form, name)
			}
		}
	}
}

func TestLocal(t *testing.T) {
	u, err := user.Current()
	if err != nil { // this user has a number alone
		u = &user.User{Username: strconv.Itoa(os.Getuid())}
	}
	g := open(t, incoming.Spec{Type: incoming.Local})
	for remote, ok := range map[string]bool{"127.0.0.1": true, "127.1.2.3": true, "::1": true, "::ffff:127.0.0.1": true, "192.0.2.1": false, "10.0.0.1": false, "": false, "localhost": false, "127.0.0.1:80": false} {
		id, err := g.Identify(t.Context(), "Bearer x", remote)
		if (err == nil) != ok || err != nil && edge.KindOf(err) != edge.Unauthenticated {
			t.Errorf("%q: %v", remote, err)
		}
		if ok && (id.Issuer != "weir-local" || id.Subject != u.Username || id.Name == "" || id.Token != "") {
			t.Errorf("%q: %+v", remote, id)
		}
	}
}

// TestServiceAccount holds whose tokens a kubernetesServiceAccount takes, with
// a cluster that wants a bearer token for its keys and has a CA of its own.
func TestServiceAccount(t *testing.T) {
	key := newEC("k")
	cluster := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer pod-token" || r.URL.Path != "/openid/v1/jwks" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		p := provider{keys: []signer{key}}
		r.URL.Path = "/keys"
		p.ServeHTTP(w, r)
	}))
	defer cluster.Close()
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cluster.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(token, []byte("pod-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := incoming.FromKind(
		&v1beta1.IncomingAuth{Type: v1beta1.IncomingOIDC, OIDCConfigRef: &v1beta1.OIDCConfigRef{Name: "x", Audience: audience}},
		&v1beta1.MCPOIDCConfigSpec{Type: v1beta1.OIDCServiceAccount, KubernetesServiceAccount: &v1beta1.ServiceAccountOIDC{
			Issuer: "https://kubernetes.default.svc", JWKSURL: cluster.URL + "/openid/v1/jwks", Namespace: "agents", ServiceAccount: "runner",
		}}, "")
	spec.CABundlePath, spec.TokenFile = ca, token
	p := provider{Server: &httptest.Server{URL: spec.Issuer}}
	of := func(sub string) string {
		return key.mint(p.claims(map[string]any{"sub": sub, "aud": []string{audience}, "scope": nil}))
	}
	g := open(t, spec)
	accepted(t, g, "the account", of("system:serviceaccount:agents:runner"))
	for _, sub := range []string{"system:serviceaccount:agents:runner2", "system:serviceaccount:agents:other", "system:serviceaccount:default:runner", "system:serviceaccount:agents", "runner", "system:serviceaccount:agents:runner:x"} {
		refused(t, g, sub, of(sub), "sub")
	}
	spec.Account = ""
	g = open(t, spec)
	accepted(t, g, "any account of the namespace", of("system:serviceaccount:agents:other"))
	refused(t, g, "another namespace", of("system:serviceaccount:agents2:other"), "sub")

	spec.CABundlePath = filepath.Join(dir, "absent")
	if _, err := parse(t, spec).Start(env(t), &oauth.Issuers{}); err == nil || !strings.Contains(err.Error(), "CA bundle") {
		t.Errorf("without the CA: %v", err)
	}
}

// TestClientSecret holds where the secret of the introspection comes from, and
// that its absence is found at once.
func TestClientSecret(t *testing.T) {
	p := newProvider(t, theEC())
	p.introspect = func(w http.ResponseWriter, r *http.Request) {
		if id, secret, _ := r.BasicAuth(); id != "edge" || secret != "s3cret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, p.claims(map[string]any{"active": true}))
	}
	s := p.spec()
	s.IntrospectionURL, s.ClientID, s.ClientSecret = p.URL+"/introspect", "edge", &v1beta1.SecretRef{Name: "idp", Key: "secret"}
	e := env(t)
	for name, world := range map[string]edge.Secrets{"no secrets": nil, "another secret": fake.Keep(map[string]edge.Secret{"idp/other": "x"})} {
		e.Secrets = world
		if _, err := parse(t, s).Start(e, &oauth.Issuers{}); err == nil || !strings.Contains(err.Error(), "client secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	e.Secrets = fake.Keep(map[string]edge.Secret{"idp/secret": "s3cret"})
	g, err := parse(t, s).Start(e, &oauth.Issuers{})
	if err != nil {
		t.Fatal(err)
	}
	accepted(t, g, "with the secret", "opaque")
	if g.Ready() != nil {
		t.Error("not ready, though tokens can be introspected")
	}
	s.ClientSecret, s.ClientSecretEnv = nil, "WEIR_TEST_NO_SUCH_VARIABLE"
	if _, err := parse(t, s).Start(e, &oauth.Issuers{}); err == nil || !strings.Contains(err.Error(), "WEIR_TEST_NO_SUCH_VARIABLE") {
		t.Errorf("without the variable: %v", err)
	}
}

// TestRememberedUntilTheKeysChange holds that what is remembered ends when the
// keys change.
func TestRememberedUntilTheKeysChange(t *testing.T) {
	p := newProvider(t, theEC())
	g := open(t, p.spec(), &oauth.Issuers{Interval: 1, Refresh: 1 << 40, Wait: edgetest.Patience})
	token := theEC().mint(p.claims(nil))
	first := remembered(t, g, token)
	other := newEC("other")
	p.change(theEC(), other)
	accepted(t, g, "one of a new key", other.mint(p.claims(nil)))
	if again := accepted(t, g, "the same after the keys changed", token); again == first {
		t.Error("it was remembered although the keys changed")
	}
	p.change(other)
	accepted(t, g, "one of a third key", func() string {
		third := newEC("third")
		p.change(other, third)
		return third.mint(p.claims(nil))
	}())
	refused(t, g, "one whose key is gone", token, "no key of")
}
