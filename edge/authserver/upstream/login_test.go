package upstream_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// TestPrompts is what is asked of a provider by a client, beside what is configured.
func TestPrompts(t *testing.T) {
	f := newFake(t)
	for _, one := range []struct {
		configured, asked, want string
	}{
		{"", "", ""}, {"consent", "", "consent"}, {"", "login", "login"}, {"consent login", "login select_account", "consent login select_account"}, {"none", "login", "login"},
	} {
		p := f.open(t, f.oidc(func(o *v1beta1.OIDCUpstream) {
			if one.configured != "" {
				o.AdditionalAuthorizationParams = map[string]string{"prompt": one.configured}
			}
		}), nil, nil)
		address, _, err := p.Send(t.Context(), "s", strings.Fields(one.asked))
		if err != nil {
			t.Fatal(err)
		}
		if to, err := url.Parse(address); err != nil || strings.Join(to.Query()["prompt"], "|") != one.want {
			t.Errorf("%q beside %q: sent to %s", one.asked, one.configured, address)
		}
	}
}

// TestLogin is a login at a provider of type oidc, as it should be.
func TestLogin(t *testing.T) {
	f := newFake(t)
	p := f.open(t, f.oidc(func(o *v1beta1.OIDCUpstream) {
		o.AdditionalAuthorizationParams = map[string]string{"access_type": "offline"}
	}), nil, nil)
	query, leg := f.send(t, p)
	for name, want := range map[string]string{
		"response_type": "code", "client_id": clientID, "redirect_uri": redirect, "scope": "openid offline_access", "state": "the-state", "nonce": leg.Nonce,
		"code_challenge_method": "S256", "access_type": "offline", "tenant": "1",
	} {
		if query.Get(name) != want {
			t.Errorf("%s is %q, not %q", name, query.Get(name), want)
		}
	}
	if len(leg.Verifier) != 43 || len(leg.Nonce) != 43 || len(query.Get("code_challenge")) != 43 || query.Get("code_challenge") == leg.Verifier {
		t.Errorf("verifier %q, nonce %q, challenge %q", leg.Verifier, leg.Nonce, query.Get("code_challenge"))
	}
	tokens, who, err := p.Return(t.Context(), leg, url.Values{"code": {"the-code"}, "state": {"the-state"}, "iss": {f.URL}}, true)
	if err != nil {
		t.Fatal(err)
	}
	if *who != (upstream.Who{Subject: "alice", Name: "Alice A.", Email: "alice@example.com"}) {
		t.Errorf("it is %+v", who)
	}
	if tokens.Access != "access-1" || tokens.Refresh != "refresh-1" || tokens.ID == "" || tokens.Subject != "alice" || tokens.Scope != "openid mail" || tokens.Expires.Sub(tokens.Issued) != time.Hour {
		t.Errorf("tokens: %s until %s for %s", tokens.Scope, tokens.Expires, tokens.Subject)
	}
	if groups := fmt.Sprint(tokens.Claims["groups"]); groups != "[eng]" {
		t.Errorf("policies read groups %s", groups)
	}
	form := f.asked[0]
	if form.Get("grant_type") != "authorization_code" || form.Get("code") != "the-code" || form.Get("redirect_uri") != redirect || form.Get("code_verifier") != leg.Verifier || form.Get("basic") != "edge%2B1:edge+secret%2F1" {
		t.Errorf("asked with %v", form)
	}

	// Another login asks for no metadata and no keys again, and two logins share no secret.
	if _, other := f.send(t, p); other.Nonce == leg.Nonce || other.Verifier == leg.Verifier {
		t.Error("two logins share a nonce or a verifier")
	}
	if _, _, err := f.login(t, p); err != nil || f.count("/keys") != 1 || f.count("/.well-known/openid-configuration") != 1 {
		t.Errorf("%v; %d fetches of keys, %d of metadata", err, f.count("/keys"), f.count("/.well-known/openid-configuration"))
	}

	// A provider that only adds tokens is asked for no identity.
	_, leg = f.send(t, p)
	asked := f.count("/userinfo")
	tokens, who, err = p.Return(t.Context(), leg, url.Values{"code": {"the-code"}, "iss": {f.URL}}, false)
	if err != nil || who != nil || tokens.Subject != "alice" || f.count("/userinfo") != asked {
		t.Errorf("%v: %v, and userinfo was asked %d times", err, who, f.count("/userinfo")-asked)
	}
}

// TestSecretInTheBody is a provider that takes a secret in the body alone, and says so: it may
// answer another way with anything.
func TestSecretInTheBody(t *testing.T) {
	f := newFake(t)
	for _, one := range []struct {
		takes []string
		body  bool
	}{
		{[]string{"client_secret_post"}, true}, {[]string{"private_key_jwt", "client_secret_post"}, true},
		{[]string{"client_secret_post", "client_secret_basic"}, false}, {[]string{"private_key_jwt"}, false}, {nil, false},
	} {
		f.set(func() { f.metadata["token_endpoint_auth_methods_supported"] = one.takes; f.asked = nil })
		p := f.open(t, f.oidc(nil), nil, nil)
		if _, _, err := f.login(t, p); err != nil {
			t.Fatalf("%v: %v", one.takes, err)
		}
		if form := f.asked[0]; len(f.asked) != 1 || form.Has("basic") == one.body || (form.Get("client_secret") == secret) != one.body {
			t.Errorf("%v: asked with %v", one.takes, f.asked)
		}
	}
	// A client without a secret shows none.
	f.set(func() {
		f.metadata["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"}
		f.asked = nil
	})
	p := f.open(t, f.oidc(func(o *v1beta1.OIDCUpstream) { o.ClientSecretRef = nil }), nil, nil)
	if _, _, err := f.login(t, p); err != nil || f.asked[0].Has("client_secret") || f.asked[0].Has("basic") {
		t.Errorf("%v: asked with %v", err, f.asked)
	}
}

// TestSecretByBasicAfterAll is a provider that says it takes a secret in the body alone, and takes it
// by HTTP Basic alone.
func TestSecretByBasicAfterAll(t *testing.T) {
	f := newFake(t)
	f.metadata["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"}
	shown := ""
	f.spoils("/token", func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if _, _, basic := r.BasicAuth(); basic {
			shown += " basic"
			_ = json.NewEncoder(w).Encode(f.token(w, r))
			return
		}
		shown += " body"
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":"invalid_client"}`)
	})
	p := f.open(t, f.oidc(nil), nil, nil)
	for range 2 {
		if _, _, err := f.login(t, p); err != nil {
			t.Fatal(err)
		}
	}
	if shown != " body basic basic" {
		t.Errorf("the secret was shown by%s", shown)
	}
}

// TestSpoiledCallback is O17, O18 and what else a callback may say.
func TestSpoiledCallback(t *testing.T) {
	f := newFake(t)
	p := f.open(t, f.oidc(nil), nil, nil)
	right := func() url.Values { return url.Values{"code": {"the-code"}, "state": {"the-state"}, "iss": {f.URL}} }
	for name, c := range map[string]struct {
		spoil   func(url.Values, *upstream.Leg)
		refused string // the code of a *Refused; "-" for another error
	}{
		"O17 iss missing":               {func(q url.Values, _ *upstream.Leg) { q.Del("iss") }, "-"},
		"O17 iss empty":                 {func(q url.Values, _ *upstream.Leg) { q.Set("iss", "") }, "-"},
		"O17 iss wrong":                 {func(q url.Values, _ *upstream.Leg) { q.Set("iss", f.URL+"/") }, "-"},
		"O17 iss twice":                 {func(q url.Values, _ *upstream.Leg) { q.Add("iss", f.URL) }, "-"},
		"O17 error with a wrong iss":    {func(q url.Values, _ *upstream.Leg) { q.Set("error", "access_denied"); q.Set("iss", "https://evil") }, "-"},
		"O17 error without iss":         {func(q url.Values, _ *upstream.Leg) { q.Set("error", "access_denied"); q.Del("iss") }, "-"},
		"O17 iss wrong, not advertised": {func(q url.Values, l *upstream.Leg) { l.Strict = false; q.Set("iss", "https://evil") }, "-"},
		"the user said no": {func(q url.Values, _ *upstream.Leg) {
			q.Set("error", "access_denied")
			q.Set("error_description", planted)
		}, "access_denied"},
		"an error that nobody knows":     {func(q url.Values, _ *upstream.Leg) { q.Set("error", planted) }, ""},
		"O18 a leg of another provider":  {func(_ url.Values, l *upstream.Leg) { l.Provider = "other" }, "-"},
		"code twice":                     {func(q url.Values, _ *upstream.Leg) { q.Add("code", "b") }, "-"},
		"code missing":                   {func(q url.Values, _ *upstream.Leg) { q.Del("code") }, "-"},
		"code of 9 KiB":                  {func(q url.Values, _ *upstream.Leg) { q.Set("code", strings.Repeat("a", 9<<10)) }, "-"},
		"a client of another generation": {func(_ url.Values, l *upstream.Leg) { l.Client = "0011223344556677" }, "-"},
	} {
		_, leg := f.send(t, p)
		q := right()
		c.spoil(q, &leg)
		before := len(f.asked)
		_, _, err := p.Return(t.Context(), leg, q, true)
		var refused *upstream.Refused
		got := "-"
		if errors.As(err, &refused) {
			got = refused.Code
		}
		if err == nil || got != c.refused || len(f.asked) != before {
			t.Errorf("%s: %q, %v; %d codes were sent", name, got, err, len(f.asked)-before)
		}
		if err != nil {
			f.silent(t, name, err.Error())
		}
	}
}

// TestSpoiledIDToken is O19, O20 and A11, and what else may be wrong with an ID token. A
// login fails by each, says nothing of it, and the next one succeeds.
func TestSpoiledIDToken(t *testing.T) {
	f := newFake(t)
	p := f.open(t, f.oidc(nil), nil, nil)
	for name, spoil := range map[string]func(map[string]any){
		"O19 nonce missing":            func(c map[string]any) { delete(c, "nonce") },
		"O19 nonce wrong":              func(c map[string]any) { c["nonce"] = "another" },
		"O19 nonce no text":            func(c map[string]any) { c["nonce"] = 1 },
		"O20 at_hash wrong":            func(c map[string]any) { c["at_hash"] = "AAAA" },
		"O20 at_hash no text":          func(c map[string]any) { c["at_hash"] = nil },
		"O20 azp wrong":                func(c map[string]any) { c["azp"] = "other" },
		"O20 azp no text":              func(c map[string]any) { c["azp"] = 1 },
		"O20 two audiences, no azp":    func(c map[string]any) { c["aud"] = []string{clientID, "other"} },
		"O20 two audiences, wrong azp": func(c map[string]any) { c["aud"] = []string{clientID, "other"}; c["azp"] = "other" },
		"aud wrong":                    func(c map[string]any) { c["aud"] = "other" },
		"aud empty":                    func(c map[string]any) { c["aud"] = []string{} },
		"aud missing":                  func(c map[string]any) { delete(c, "aud") },
		"iss wrong":                    func(c map[string]any) { c["iss"] = "https://evil" },
		"iss missing":                  func(c map[string]any) { delete(c, "iss") },
		"exp over":                     func(c map[string]any) { c["exp"] = time.Now().Add(-2 * time.Minute).Unix() },
		"exp missing":                  func(c map[string]any) { delete(c, "exp") },
		"iat ahead":                    func(c map[string]any) { c["iat"] = time.Now().Add(2 * time.Minute).Unix() },
		"iat missing":                  func(c map[string]any) { delete(c, "iat") },
		"nbf ahead":                    func(c map[string]any) { c["nbf"] = time.Now().Add(2 * time.Minute).Unix() },
		"nbf no time":                  func(c map[string]any) { c["nbf"] = "now" },
		"A11 sub empty":                func(c map[string]any) { c["sub"] = "" },
		"A11 sub missing":              func(c map[string]any) { delete(c, "sub") },
		"A11 sub an object":            func(c map[string]any) { c["sub"] = map[string]any{} },
		"A11 sub of 10 KiB":            func(c map[string]any) { c["sub"] = strings.Repeat("a", 10<<10) },
	} {
		f.set(func() { f.claims = spoil })
		if _, who, err := f.login(t, p); err == nil {
			t.Errorf("%s: it is %+v", name, who)
		} else {
			f.silent(t, name, err.Error())
		}
		f.set(func() { f.claims = nil })
	}
	part := func(id string, n int, with string) string {
		parts := strings.Split(id, ".")
		parts[n] = with
		return strings.Join(parts, ".")
	}
	for name, spoil := range map[string]func(id string) string{
		"none":              func(string) string { return "" },
		"no JWT":            func(string) string { return "abc" },
		"alg none":          func(id string) string { return part(id, 0, "eyJhbGciOiJub25lIn0") },
		"alg HS256":         func(id string) string { return part(id, 0, "eyJhbGciOiJIUzI1NiJ9") },
		"no signature":      func(id string) string { return part(id, 2, "") },
		"another signature": func(id string) string { return part(id, 2, strings.Repeat("A", 86)) },
		"odd base64url":     func(id string) string { return id + "=" },
		"other claims":      func(id string) string { return part(id, 1, "eyJzdWIiOiJldmUifQ") },
	} {
		f.set(func() {
			f.tokens = func(a map[string]any) { a["id_token"] = spoil(a["id_token"].(string)) }
		})
		if _, _, err := f.login(t, p); err == nil {
			t.Errorf("%s: taken", name)
		}
		f.set(func() { f.tokens = nil })
	}
	if _, who, err := f.login(t, p); err != nil || who.Subject != "alice" {
		t.Errorf("after all that: %v, %v", who, err)
	}
	f.set(func() {
		f.claims = func(c map[string]any) { c["aud"] = []string{clientID, "other"}; c["azp"] = clientID }
	})
	if _, _, err := f.login(t, p); err != nil {
		t.Errorf("two audiences and the right azp: %v", err)
	}
}

// TestSpoiledProvider is a provider that is down, slow, or talks nonsense: no login, no word of
// it in the error, and a login as soon as it is well.
func TestSpoiledProvider(t *testing.T) {
	for name, c := range map[string]struct {
		path  string
		spoil http.HandlerFunc
		sends bool // the browser is sent all the same
	}{
		"metadata of another issuer": {"/.well-known/openid-configuration", say(200, `{"issuer":"https://evil","authorization_endpoint":"https://evil/a"}`), false},
		"metadata HTML":              {"/.well-known/openid-configuration", say(200, "<html>"+planted), false},
		"metadata of 2 MiB":          {"/.well-known/openid-configuration", say(200, strings.Repeat(" ", 2<<20)), false},
		"keys of status 500":         {"/keys", say(500, planted), true},
		"keys HTML":                  {"/keys", say(200, "<html>"), true},
		"keys none":                  {"/keys", say(200, `{"keys":[]}`), true},
		"token of status 500":        {"/token", say(500, planted), true},
		"token HTML":                 {"/token", say(200, "<html>"+planted), true},
		"token refused":              {"/token", say(400, `{"error":"invalid_grant","error_description":"`+planted+`"}`), true},
		"token refused by 200":       {"/token", say(200, `{"error":"bad_verification_code","error_description":"`+planted+`"}`), true},
		"token a redirect": {"/token", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		}, true},
		"token of another type":   {"/token", say(200, `{"access_token":"a","token_type":"mac","id_token":"a.b.c"}`), true},
		"token with a line break": {"/token", say(200, `{"access_token":"a\r\nX: y","token_type":"Bearer"}`), true},
		"token of 2 MiB":          {"/token", say(200, strings.Repeat(" ", 2<<20)), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for the pause after a failure
			f := newFake(t)
			p := f.open(t, f.oidc(nil), nil, nil)
			f.spoils(c.path, c.spoil)
			_, leg, err := p.Send(t.Context(), "the-state", nil)
			if c.sends != (err == nil) {
				t.Fatalf("sent: %v", err)
			}
			if err == nil {
				f.set(func() { f.nonce = leg.Nonce })
				_, _, err = p.Return(t.Context(), leg, url.Values{"code": {"the-code"}, "iss": {f.URL}}, true)
			}
			if err == nil {
				t.Fatal("a login")
			}
			f.silent(t, "the error", err.Error())
			f.spoils(c.path, nil)
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
				if _, leg, err = p.Send(t.Context(), "the-state", nil); err == nil {
					f.set(func() { f.nonce = leg.Nonce })
					if _, _, err = p.Return(t.Context(), leg, url.Values{"code": {"the-code"}, "iss": {f.URL}}, true); err == nil {
						break
					}
				}
				if time.Now().After(end) {
					t.Fatalf("after it is well: %v", err)
				}
			}
		})
	}
}

// TestLearnedEndpoints holds that what discovery names on another origin must not lead
// inward, where it may on the origin that the operator named.
func TestLearnedEndpoints(t *testing.T) {
	f, inside := newFake(t), newFake(t)
	f.metadata["token_endpoint"] = inside.URL + "/token"
	p := f.open(t, f.oidc(nil), nil, nil)
	_, leg := f.send(t, p)
	_, _, err := p.Return(t.Context(), leg, url.Values{"code": {"the-code"}, "iss": {f.URL}}, true)
	if err == nil || inside.count("/token") != 0 || edge.KindOf(err) != edge.Unavailable {
		t.Errorf("%v; asked %d times", err, inside.count("/token"))
	}
}

// TestSubjectClaim takes another claim for the subject; userinfo is still held against sub.
func TestSubjectClaim(t *testing.T) {
	f := newFake(t)
	p := f.open(t, f.oidc(func(o *v1beta1.OIDCUpstream) { o.SubjectClaim = "oid" }), nil, nil)
	if _, _, err := f.login(t, p); err == nil {
		t.Error("a login without the claim")
	}
	f.set(func() { f.claims = func(c map[string]any) { c["oid"] = "o-1" } })
	if tokens, who, err := f.login(t, p); err != nil || who.Subject != "o-1" || who.Name != "Alice A." || tokens.Subject != "alice" {
		t.Errorf("%+v, %v", who, err)
	}
}

// TestMappedSubject has userinfo say who users are in a field of the operator's: what has a sub is
// held against the ID token's all the same, at a login and where a refresh asks again.
func TestMappedSubject(t *testing.T) {
	f := newFake(t)
	f.claims = func(c map[string]any) { c["oid"] = "o-1" }
	mapped := func(claim string, fields ...string) *upstream.Provider {
		return f.open(t, f.oidc(func(o *v1beta1.OIDCUpstream) {
			o.SubjectClaim = claim
			o.UserInfoOverride = &v1beta1.UserInfo{EndpointURL: f.URL + "/userinfo", FieldMapping: &v1beta1.UserInfoFields{SubjectFields: fields}}
		}), nil, nil)
	}
	byOID, byID := mapped("oid", "oid", "sub"), mapped("", "id")
	for _, one := range []struct {
		p       *upstream.Provider
		said    string
		subject string // "" for no login
	}{
		{byOID, `{"sub":"alice","oid":"o-1"}`, "o-1"},
		{byOID, `{"sub":"alice","oid":"o-2"}`, "o-1"},
		{byOID, `{"oid":"o-1"}`, "o-1"},
		{byOID, `{"oid":"alice"}`, "o-1"},
		{byOID, `{"sub":"eve","oid":"o-1"}`, ""},
		{byOID, `{"sub":"o-1","oid":"o-1"}`, ""},
		{byOID, `{"sub":"","oid":"o-1"}`, ""},
		{byOID, `{"sub":null,"oid":"o-1"}`, ""},
		{byOID, `{"oid":"o-2"}`, ""},
		{byOID, `{}`, ""},
		{byID, `{"sub":"alice","id":4711}`, "alice"},
		{byID, `{"id":"alice"}`, "alice"},
		{byID, `{"id":4711}`, ""},
		{byID, `{"sub":"eve","id":"alice"}`, "alice"},
	} {
		f.spoils("/userinfo", say(200, one.said))
		_, who, err := f.login(t, one.p)
		if (err == nil) != (one.subject != "") || err == nil && who.Subject != one.subject {
			t.Errorf("a login with %s: %+v, %v", one.said, who, err)
		}

		// The refresh has no ID token, so that userinfo alone says whose it is.
		f.spoils("/userinfo", say(200, `{"sub":"alice"}`))
		tokens, _, err := f.login(t, one.p)
		if err != nil {
			t.Fatal(err)
		}
		f.spoils("/userinfo", say(200, one.said))
		f.set(func() {
			f.tokens = func(a map[string]any) { delete(a, "id_token") }
			tokens.Refresh = edge.Secret(f.valid)
		})
		_, err = one.p.Refresh(t.Context(), tokens, func(*upstream.Tokens) error { return nil })
		f.set(func() { f.tokens = nil })
		var gone *upstream.Gone
		if errors.As(err, &gone) != (one.subject == "") || one.subject != "" && err != nil {
			t.Errorf("a refresh with %s: %v", one.said, err)
		}
	}
}

// TestUserInfo is A13 and the ways of userinfo.
func TestUserInfo(t *testing.T) {
	f := newFake(t)
	bad := map[string]http.HandlerFunc{
		"redirect":    func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"other sub":   say(200, `{"sub":"eve","name":"`+planted+`"}`),
		"no sub":      say(200, `{"name":"`+planted+`"}`),
		"1 MiB":       say(200, `{"sub":"alice","x":"`+strings.Repeat("a", 1<<20)+`"}`),
		"HTML":        say(200, "<html>"+planted),
		"status 401":  say(401, planted),
		"twice a sub": say(200, `{"sub":"eve","sub":"alice"}`),
	}
	override := f.open(t, f.oidc(func(o *v1beta1.OIDCUpstream) {
		o.UserInfoOverride = &v1beta1.UserInfo{EndpointURL: f.URL + "/userinfo", HTTPMethod: "POST", AdditionalHeaders: map[string]string{"X-Tenant": "1"}}
	}), nil, nil)
	alone := f.open(t, f.oauth2(func(o *v1beta1.OAuth2Upstream) {
		o.UserInfo = &v1beta1.UserInfo{EndpointURL: f.URL + "/userinfo", FieldMapping: &v1beta1.UserInfoFields{SubjectFields: []string{"nothing", "id"}, NameFields: []string{"name"}, EmailFields: []string{"email"}}}
	}), nil, nil)
	var log strings.Builder
	beside := f.open(t, f.oidc(nil), nil, &log)
	for name, spoil := range bad {
		f.spoils("/userinfo", spoil)
		if _, _, err := f.login(t, override); err == nil {
			t.Errorf("%s: a login with userInfoOverride", name)
		} else {
			f.silent(t, name, err.Error())
		}
		if _, _, err := f.login(t, alone); err == nil {
			t.Errorf("%s: a login with userInfo", name)
		}
		_, who, err := f.login(t, beside)
		switch {
		case name == "other sub" || name == "no sub":
			if err == nil {
				t.Errorf("%s: a login with the name of another", name)
			}
		case err != nil || who.Name != "" || who.Subject != "alice":
			t.Errorf("%s: userinfo that was not asked for: %+v, %v", name, who, err)
		}
	}
	f.silent(t, "the log", log.String())
	f.spoils("/userinfo", nil)
	if _, who, err := f.login(t, override); err != nil || who.Name != "Alice A." {
		t.Errorf("override: %+v, %v", who, err)
	}
	if last := f.headers[len(f.headers)-1]; last.Get("X-Tenant") != "1" || !strings.HasPrefix(last.Get("Authorization"), "Bearer access-") {
		t.Errorf("asked with %v", last)
	}
	tokens, who, err := f.login(t, alone)
	if err != nil || *who != (upstream.Who{Subject: "4711", Name: "Alice A.", Email: "alice@example.com"}) {
		t.Errorf("userInfo: %+v, %v", who, err)
	} else if fmt.Sprint(tokens.Claims["id"]) != "4711" {
		t.Errorf("policies read %v", tokens.Claims)
	}
}

// TestSynthesis gives a user of a provider that names nobody a subject.
func TestSynthesis(t *testing.T) {
	f := newFake(t)
	p := f.open(t, f.oauth2(nil), nil, nil)
	_, one, err := f.login(t, p)
	if err != nil || !one.Synthesized || len(one.Subject) != 35 || !strings.HasPrefix(one.Subject, "tk-") || one.Name+one.Email != "" {
		t.Fatalf("%+v, %v", one, err)
	}
	if _, two, err := f.login(t, p); err != nil || two.Subject == one.Subject {
		t.Errorf("two access tokens have one subject: %v", err)
	}
}

// FuzzCallback holds that a code is taken from a query that names the issuer and no error
// alone, and that no error shows what a query holds.
func FuzzCallback(f *testing.F) {
	f.Add("code=c&state=s&iss=https%3A%2F%2Fcorp.example", true)
	f.Add("error=access_denied&error_description=x&iss=https%3A%2F%2Fcorp.example", true)
	f.Add("code=a&code=b", false)
	f.Add("code=c&iss=", false)
	const issuer = "https://corp.example"
	world := newFake(f)
	p := world.open(f, world.oauth2(nil), nil, nil)
	f.Fuzz(func(t *testing.T, text string, strict bool) {
		query, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		code, err := p.Answered(upstream.Leg{Provider: "hub", Issuer: issuer, Strict: strict}, query)
		iss, named := query["iss"]
		right := len(query["code"]) == 1 && !query.Has("error") && (named && len(iss) == 1 && iss[0] == issuer || !named && !strict)
		switch {
		case err == nil && (!right || code != query.Get("code") || code == ""):
			t.Errorf("%q: the code %q was taken", text, code)
		case err != nil:
			for _, name := range []string{"code", "iss", "error_description"} {
				if v := query.Get(name); len(v) > 24 && strings.Contains(err.Error(), v) {
					t.Errorf("the error shows %q", v)
				}
			}
		}
	})
}
