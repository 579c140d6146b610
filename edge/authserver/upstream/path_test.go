package upstream_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// jwt is an unsigned token with claims.
func jwt(alg, claims string) string {
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"`+alg+`"}`)) + "." + enc([]byte(claims)) + ".c2ln"
}

// TestPaths is A12: paths into answers lead to a text or to none, quickly.
func TestPaths(t *testing.T) {
	nested := "x"
	for range 3 {
		nested = jwt("none", `{"t":"`+nested+`"}`)
	}
	document := []byte(`{"access_token":"` + jwt("none", `{"sub":"alice","n":7,"deep":`+strings.Repeat("[", 12)+strings.Repeat("]", 12)+`}`) + `",
		"user":{"id":"u1","mail.box":"a@b","list":[{"n":"first"},"second"],"number":4711,"null":null,"yes":true,"empty":""},
		"nested":"` + nested + `","abyss":"` + jwt("none", `{"a":`+strings.Repeat(`[`, 40_000)+strings.Repeat(`]`, 40_000)+`}`)[:60<<10] + `"}`)
	for path, want := range map[string]string{
		"user.id":                              "u1",
		"user|id":                              "u1",
		`user.mail\.box`:                       "a@b",
		"user.list.0.n":                        "first",
		"user.list.1":                          "second",
		"user.list.2":                          "",
		"user.list.-1":                         "",
		"user.list.n":                          "",
		"user.list":                            "",
		"user":                                 "",
		"user.number":                          "",
		"user.null":                            "",
		"user.null.x":                          "",
		"user.yes":                             "",
		"user.empty":                           "",
		"user.id.x":                            "",
		"missing.path":                         "",
		"access_token|@upstreamjwt|sub":        "alice",
		"access_token.@upstreamjwt.sub":        "alice",
		"access_token|@upstreamjwt|n":          "",
		"access_token|@upstreamjwt":            "",
		"user.id|@upstreamjwt|sub":             "",
		"user|@upstreamjwt|sub":                "",
		"nested|@upstreamjwt|t|@upstreamjwt|t": jwt("none", `{"t":"x"}`),
		"abyss|@upstreamjwt|a":                 "",
	} {
		began := time.Now()
		got, err := upstream.Find(path, document)
		if took := time.Since(began); err != nil || got != want || took > 100*time.Millisecond {
			t.Errorf("%s: %q, %v, in %s", path, got, err, took)
		}
	}
	for _, path := range []string{"", ".", "a..b", "a.", "|", "a.#.b", "*", "a?", "@this", "a|@valid", "!x", strings.Repeat("a", 257)} {
		if _, err := upstream.Find(path, document); err == nil {
			t.Errorf("%q was taken for a path", path)
		}
	}
}

// BenchmarkPath is a subject in a token of 4 KiB, in an answer of 6.
func BenchmarkPath(b *testing.B) {
	document := []byte(`{"access_token":"` + jwt("RS256", `{"sub":"alice","more":"`+strings.Repeat("a", 3<<10)+`"}`) + `","refresh_token":"r"}`)
	for b.Loop() {
		if got, err := upstream.Find("access_token|@upstreamjwt|sub", document); got != "alice" {
			b.Fatal(got, err)
		}
	}
}

// FuzzPath holds that no path and no document harm.
func FuzzPath(f *testing.F) {
	f.Add("access_token|@upstreamjwt|sub", []byte(`{"access_token":"`+jwt("none", `{"sub":"a"}`)+`"}`))
	f.Add(`a\.b.0`, []byte(`{"a.b":["x"]}`))
	f.Add("a", []byte(`[`))
	f.Fuzz(func(t *testing.T, path string, document []byte) {
		if _, err := upstream.Find(path, document); err != nil && len(document) > 16 && strings.Contains(err.Error(), string(document)) {
			t.Error("the error holds the document")
		}
	})
}

// FuzzTokens holds that what comes of an answer can stand in a header and has an end after
// its start.
func FuzzTokens(f *testing.F) {
	f.Add([]byte(`{"access_token":"a","token_type":"Bearer","expires_in":60,"refresh_token":"r","scope":"a b","id_token":"x"}`))
	f.Add([]byte(`{"access_token":"` + jwt("none", `{"exp":4102444800}`) + `","token_type":"bearer"}`))
	f.Add([]byte(`{"error":"invalid_grant"}`))
	now := time.Unix(1_800_000_000, 0)
	f.Fuzz(func(t *testing.T, answer []byte) {
		tokens, err := upstream.ReadTokens(answer, now)
		if err != nil {
			return
		}
		for _, one := range []string{string(tokens.Access), string(tokens.Refresh), string(tokens.ID)} {
			if strings.ContainsAny(one, "\r\n \x00\x7f") {
				t.Errorf("a token that cannot stand in a header: %q", one)
			}
		}
		if tokens.Access == "" || !tokens.Expires.IsZero() && !tokens.Expires.After(now) {
			t.Errorf("%q until %s", tokens.Access, tokens.Expires)
		}
	})
}

// TestIdentityFromToken is a login whose user stands in the answer of the token endpoint.
func TestIdentityFromToken(t *testing.T) {
	f := newFake(t)
	p := f.open(t, f.oauth2(func(o *v1beta1.OAuth2Upstream) {
		o.IdentityFromToken = &v1beta1.IdentityFromToken{SubjectPath: "access_token|@upstreamjwt|sub", NamePath: "user.name", EmailPath: "user.mail"}
	}), nil, nil)
	for name, c := range map[string]struct {
		claims, user string
		want         upstream.Who // no subject for an error
	}{
		"as it should be":       {`{"sub":"u-1"}`, `{"name":"U","mail":"u@x"}`, upstream.Who{Subject: "u-1", Name: "U", Email: "u@x"}},
		"no name":               {`{"sub":"u-1"}`, `{"mail":7}`, upstream.Who{Subject: "u-1"}},
		"a name of 300 bytes":   {`{"sub":"u-1"}`, `{"name":"` + strings.Repeat("a", 300) + `"}`, upstream.Who{Subject: "u-1"}},
		"a name on two lines":   {`{"sub":"u-1"}`, `{"name":"a\nb"}`, upstream.Who{Subject: "u-1"}},
		"subject a number":      {`{"sub":7}`, `{}`, upstream.Who{}},
		"subject missing":       {`{}`, `{"name":"U"}`, upstream.Who{}},
		"A11 subject empty":     {`{"sub":""}`, `{}`, upstream.Who{}},
		"A11 subject of 10 KiB": {`{"sub":"` + strings.Repeat("a", 10<<10) + `"}`, `{}`, upstream.Who{}},
		"A11 subject with NUL":  {`{"sub":"a\u0000b"}`, `{}`, upstream.Who{Subject: "a\x00b"}}, // whoever makes it a sub hashes it
	} {
		f.set(func() {
			f.tokens = func(a map[string]any) {
				a["access_token"] = jwt("none", c.claims)
				a["user"] = jsonOf(t, c.user)
			}
		})
		_, who, err := f.login(t, p)
		if err != nil != (c.want.Subject == "") || err == nil && *who != c.want {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
	if f.count("/userinfo") != 0 {
		t.Error("userinfo was asked")
	}
}

// TestMapping reads answers of another form.
func TestMapping(t *testing.T) {
	f := newFake(t)
	p := f.open(t, f.oauth2(func(o *v1beta1.OAuth2Upstream) {
		o.TokenResponseMapping = &v1beta1.TokenResponseMapping{AccessTokenPath: "authed_user.access_token", ExpiresInPath: "authed_user.life", RefreshTokenPath: "authed_user.refresh", ScopePath: "authed_user.scopes"}
	}), nil, nil)
	for name, c := range map[string]struct {
		answer string
		life   time.Duration // -1 for an error
	}{
		"all":                 {`{"ok":true,"access_token":"bot","authed_user":{"access_token":"mine","life":120,"refresh":"again","scopes":["a","b"]}}`, 2 * time.Minute},
		"digits in a string":  {`{"authed_user":{"access_token":"mine","life":"120","refresh":"again","scopes":"a b"}}`, 2 * time.Minute},
		"no end":              {`{"authed_user":{"access_token":"mine","refresh":"again","scopes":"a b"}}`, 0},
		"null for an end":     {`{"authed_user":{"access_token":"mine","life":null,"refresh":"again","scopes":"a b"}}`, 0},
		"an end of centuries": {`{"authed_user":{"access_token":"mine","life":1e30,"refresh":"again","scopes":"a b"}}`, 400 * 24 * time.Hour},
		"an end before":       {`{"authed_user":{"access_token":"mine","life":-1}}`, -1},
		"an end at once":      {`{"authed_user":{"access_token":"mine","life":0}}`, -1},
		"an end of words":     {`{"authed_user":{"access_token":"mine","life":"soon"}}`, -1},
		"the bot's alone":     {`{"access_token":"bot"}`, -1},
		"a number":            {`{"authed_user":{"access_token":7}}`, -1},
		"an error":            {`{"ok":false,"error":"invalid_code"}`, -1},
	} {
		f.spoils("/token", say(200, c.answer))
		tokens, _, err := f.login(t, p)
		if c.life < 0 {
			if err == nil {
				t.Errorf("%s: %q", name, string(tokens.Access))
			}
			continue
		}
		if err != nil || tokens.Access != "mine" || tokens.Refresh != "again" || tokens.Scope != "a b" || c.life == 0 != tokens.Expires.IsZero() || c.life > 0 && tokens.Expires.Sub(tokens.Issued) != c.life {
			t.Errorf("%s: %+v, %v", name, tokens, err)
		}
	}
}

// TestParse holds each rule of a provider's fields that its schema does not.
func TestParse(t *testing.T) {
	f := newFake(t)
	for want, u := range map[string]*v1beta1.UpstreamProvider{
		`u.oidcConfig.issuerUrl: Invalid value: "(hidden)": it holds user information`: f.oidc(func(o *v1beta1.OIDCUpstream) { o.IssuerURL = "https://a:b@example.com" }),
		`u.oidcConfig.issuerUrl: Invalid value: "http://example.com": must be https`:   f.oidc(func(o *v1beta1.OIDCUpstream) { o.IssuerURL = "http://example.com" }),
		`u.oidcConfig.scopes: Invalid value: "": must hold openid`:                     f.oidc(func(o *v1beta1.OIDCUpstream) { o.Scopes = []string{"profile"} }),
		`u.oidcConfig.userInfoOverride.endpointUrl: Invalid value: "http://x.com/u": must be https`: f.oidc(func(o *v1beta1.OIDCUpstream) {
			o.UserInfoOverride = &v1beta1.UserInfo{EndpointURL: "http://x.com/u"}
		}),
		`u.oauth2Config.tokenEndpoint: Invalid value: "http://x.com/t": must be https`:      f.oauth2(func(o *v1beta1.OAuth2Upstream) { o.TokenEndpoint = "http://x.com/t" }),
		`u.oauth2Config.identityFromToken.subjectPath: Invalid value: "a.#": must be names`: f.oauth2(func(o *v1beta1.OAuth2Upstream) { o.IdentityFromToken = &v1beta1.IdentityFromToken{SubjectPath: "a.#"} }),
		`u.oauth2Config.tokenResponseMapping.accessTokenPath: Invalid value: "id_token|@upstreamjwt|t": must not decode a token`: f.oauth2(func(o *v1beta1.OAuth2Upstream) {
			o.TokenResponseMapping = &v1beta1.TokenResponseMapping{AccessTokenPath: "id_token|@upstreamjwt|t"}
		}),
	} {
		_, wrong := upstream.Parse(field.NewPath("u"), u, redirect)
		if len(wrong) != 1 || !strings.HasPrefix(wrong[0].Error(), want) {
			t.Errorf("want %s\ngot  %v", want, wrong)
		}
	}
	c, wrong := upstream.Parse(field.NewPath("u"), f.oidc(func(o *v1beta1.OIDCUpstream) { o.RedirectURI = "https://own.example/cb" }), redirect)
	if len(wrong) > 0 || c.Redirect != "https://own.example/cb" || c.Synthesizes() {
		t.Errorf("%+v, %v", c, wrong)
	}
	if c, _ = upstream.Parse(field.NewPath("u"), f.oauth2(nil), redirect); c.Redirect != redirect || !c.Synthesizes() {
		t.Errorf("%+v", c)
	}

	// What Parse lets pass for development needs the setting of the process.
	local := f.oauth2(func(o *v1beta1.OAuth2Upstream) { o.TokenEndpoint = "http://127.0.0.1:1/token" })
	if _, err := f.try(local, nil, nil); err == nil || !strings.Contains(err.Error(), "--dev-loopback") {
		t.Errorf("http on this machine: %v", err)
	}
}
