package upstream_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// TestRefresh is A10 and T30: what a refresh brings is kept before it is judged, and is
// nobody else's.
func TestRefresh(t *testing.T) {
	f := newFake(t)
	p := f.open(t, f.oidc(nil), nil, nil)
	old, _, err := f.login(t, p)
	if err != nil {
		t.Fatal(err)
	}
	var kept []upstream.Tokens
	refresh := func(t0 *upstream.Tokens) (*upstream.Tokens, error) {
		return p.Refresh(t.Context(), t0, func(n *upstream.Tokens) error { kept = append(kept, *n); return nil })
	}

	// 1. As it should be: the new refresh token counts, and the claims are new.
	f.set(func() { f.claims = func(c map[string]any) { c["groups"] = []string{"ops"} } })
	now, err := refresh(old)
	if err != nil || now.Access != "access-2" || now.Refresh != "refresh-2" || now.Subject != "alice" || now.ID == old.ID || len(kept) != 1 || kept[0].Refresh != "refresh-2" {
		t.Fatalf("%+v, %v; kept %d", now, err, len(kept))
	}
	if now.Claims["groups"].([]any)[0] != "ops" {
		t.Errorf("policies read %v", now.Claims)
	}

	// 2. No new refresh token and no ID token: the old ones stay, with what they say.
	f.set(func() {
		f.rotates = false
		f.tokens = func(a map[string]any) { delete(a, "refresh_token"); delete(a, "id_token"); delete(a, "scope") }
	})
	same, err := refresh(now)
	if err != nil || same.Refresh != "refresh-2" || same.ID != now.ID || same.Scope != "openid mail" || same.Claims["sub"] != "alice" {
		t.Fatalf("%+v, %v", same, err)
	}

	// 3. T30: the keys cannot be had. The new refresh token is kept first, and nothing is lost.
	f.set(func() { f.tokens, f.rotates = nil, true })
	fresh := f.open(t, f.oidc(nil), nil, nil) // it has no keys yet
	f.spoils("/keys", func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })
	heard := ""
	now, err = fresh.Refresh(t.Context(), same, func(n *upstream.Tokens) error {
		heard = string(n.Refresh)
		if f.count("/keys") > 1 {
			t.Error("T30: the keys were asked for before the tokens were kept")
		}
		return nil
	})
	if err != nil || heard == "" || heard == "refresh-2" || string(now.Refresh) != heard || now.ID != same.ID {
		t.Fatalf("T30: %v; kept %q", err, heard)
	}

	// 4. A10, without keys and with them: another user's are no tokens, and what was heard is
	// not to be used.
	f.set(func() { f.subject = "eve" })
	_, err = fresh.Refresh(t.Context(), now, func(*upstream.Tokens) error { return nil })
	var gone *upstream.Gone
	if !errors.As(err, &gone) {
		t.Errorf("A10 without keys: %v", err)
	}
	f.spoils("/keys", nil)
	f.set(func() { now.Refresh = edge.Secret(f.valid) })
	if _, err = refresh(now); !errors.As(err, &gone) || gone.Provider != "corp" {
		t.Errorf("A10: %v", err)
	}

	// 5. The provider says no; it is down; it says nothing; whoever keeps cannot.
	if _, err = refresh(old); !errors.As(err, &gone) {
		t.Errorf("invalid_grant: %v", err)
	}
	f.silent(t, "the error", err.Error())
	none := *now
	none.Refresh = ""
	if _, err = refresh(&none); !errors.As(err, &gone) {
		t.Errorf("no refresh token: %v", err)
	}
	f.spoils("/token", say(http.StatusBadGateway, planted))
	if _, err = refresh(now); err == nil || errors.As(err, &gone) || upstream.Silent(err) {
		t.Errorf("status 502: %v", err)
	}
	f.spoils("/token", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if _, err = refresh(now); err == nil || errors.As(err, &gone) || !upstream.Silent(err) {
		t.Errorf("no answer: %v", err)
	}
	f.spoils("/token", say(200, `{"error":"bad_refresh_token"}`))
	if _, err = refresh(now); !errors.As(err, &gone) {
		t.Errorf("an error of status 200: %v", err)
	}
	f.spoils("/token", nil)
	f.set(func() { f.subject = "alice"; now.Refresh = edge.Secret(f.valid) })
	full := errors.New("the store is full")
	if _, err = p.Refresh(t.Context(), now, func(*upstream.Tokens) error { return full }); !errors.Is(err, full) {
		t.Errorf("not kept: %v", err)
	}
}

// TestRefreshOfAnother is A10 for users whom the answer of the token endpoint names: tokens of
// another are none, and an answer that names nobody changes nothing.
func TestRefreshOfAnother(t *testing.T) {
	f := newFake(t)
	named := "alice"
	f.tokens = func(a map[string]any) {
		if named != "" {
			a["user"] = map[string]any{"id": named}
		}
	}
	p := f.open(t, f.oauth2(func(o *v1beta1.OAuth2Upstream) {
		o.IdentityFromToken = &v1beta1.IdentityFromToken{SubjectPath: "user.id"}
	}), nil, nil)
	tokens, who, err := f.login(t, p)
	if err != nil || who.Subject != "alice" {
		t.Fatalf("%+v, %v", who, err)
	}
	for _, one := range []struct {
		name string
		gone bool
	}{{"alice", false}, {"", false}, {"eve", true}} {
		f.set(func() { named = one.name })
		next, err := p.Refresh(t.Context(), tokens, func(*upstream.Tokens) error { return nil })
		var gone *upstream.Gone
		if errors.As(err, &gone) != one.gone || !one.gone && err != nil {
			t.Errorf("an answer for %q: %v", one.name, err)
		}
		if next != nil {
			tokens = next
		}
	}
}

// TestRefreshUnderAnotherKey is T30 for a provider that signs with a key before it shows it: a new
// ID token under a key that nobody knows is left out, that of another user ends the sign-in, and
// so does a signature that is not that of its key. A login under such a key is none.
func TestRefreshUnderAnotherKey(t *testing.T) {
	f := newFake(t)
	p := f.open(t, f.oidc(nil), nil, nil)
	old, _, err := f.login(t, p)
	if err != nil {
		t.Fatal(err)
	}
	other := edgetest.NewMint(t, clientID)
	under := func(kid bool) func(map[string]any) string {
		return func(claims map[string]any) string {
			id, err := other.SignAs("JWT", claims)
			if err != nil {
				t.Error(err)
			}
			parts := strings.Split(id, ".")
			if kid { // under a name of its own, which the keys do not have
				parts[0] = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"next"}`))
			}
			return strings.Join(parts, ".")
		}
	}
	for _, one := range []struct {
		what, subject string
		sign          func(map[string]any) string
		gone          bool
	}{
		{"a key that nobody knows", "alice", under(true), false},
		{"a key that nobody knows, of another user", "eve", under(true), true},
		{"another signature under a known key", "alice", under(false), true},
	} {
		f.set(func() { f.sign, f.subject = one.sign, one.subject; old.Refresh = edge.Secret(f.valid) })
		next, err := p.Refresh(t.Context(), old, func(*upstream.Tokens) error { return nil })
		var gone *upstream.Gone
		if errors.As(err, &gone) != one.gone || !one.gone && (err != nil || next.ID != old.ID || next.Access == old.Access) {
			t.Errorf("%s: %v", one.what, err)
		}
	}
	f.set(func() { f.sign, f.subject = under(true), "alice" })
	if _, _, err := f.login(t, p); err == nil {
		t.Error("a login under a key that nobody knows was taken")
	}
}

// TestRefreshOfAnotherAccessToken: where nothing else in the answer of a refresh says whose it is,
// an access token that is a JWT does, be its subject that of the login or another of the same user.
func TestRefreshOfAnotherAccessToken(t *testing.T) {
	f := newFake(t)
	claims, first := "", true
	f.tokens = func(a map[string]any) {
		if claims != "" {
			a["access_token"] = "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".e30"
		}
		if first {
			a["user"] = map[string]any{"id": "alice"}
		}
	}
	p := f.open(t, f.oauth2(func(o *v1beta1.OAuth2Upstream) {
		o.IdentityFromToken = &v1beta1.IdentityFromToken{SubjectPath: "user.id"}
	}), nil, nil)
	claims = `{"iss":"i","sub":"pair-1","n":1}`
	tokens, _, err := f.login(t, p)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		claims string
		gone   bool
	}{
		{`{"iss":"i","sub":"pair-1","n":2}`, false}, {`{"iss":"j","sub":"7"}`, false}, {`{"iss":"j","sub":"7","n":3}`, false},
		{`{"iss":"j","sub":"mallory"}`, true},
	} {
		f.set(func() { claims, first = one.claims, false })
		next, err := p.Refresh(t.Context(), tokens, func(*upstream.Tokens) error { return nil })
		var gone *upstream.Gone
		if errors.As(err, &gone) != one.gone || !one.gone && err != nil {
			t.Errorf("%s: %v", one.claims, err)
		}
		if next != nil {
			tokens = next
		}
	}
}

// TestPlain holds that tokens show their secrets in one way alone, by which nothing is lost.
func TestPlain(t *testing.T) {
	f := newFake(t)
	tokens, who, err := f.login(t, f.open(t, f.oidc(nil), nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	hidden, err := json.Marshal(tokens)
	if err != nil {
		t.Fatal(err)
	}
	f.silent(t, "JSON", string(hidden))
	f.silent(t, "%+v", fmt.Sprintf("%+v %#v %v", *tokens, *tokens, who))
	text, err := tokens.Plain()
	if err != nil {
		t.Fatal(err)
	}
	again := upstream.ParseTokens(text)
	if more, err := again.Plain(); err != nil || string(more) != string(text) || again.Access != tokens.Access || again.ID != tokens.ID || !again.Expires.Equal(tokens.Expires) || fmt.Sprint(again.Claims) != fmt.Sprint(tokens.Claims) {
		t.Errorf("%v: %s, not %s", err, more, text)
	}
	for _, bad := range []string{"", "{", "[]", "{}", "null"} {
		if upstream.ParseTokens([]byte(bad)) != nil {
			t.Errorf("%q was taken for tokens", bad)
		}
	}
}

// TestDue is when tokens are renewed.
func TestDue(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	for name, c := range map[string]struct {
		life, age time.Duration
		due, over bool
	}{
		"an hour, new":         {time.Hour, 0, false, false},
		"an hour, 61 s left":   {time.Hour, time.Hour - 61*time.Second, false, false},
		"an hour, 59 s left":   {time.Hour, time.Hour - 59*time.Second, true, false},
		"an hour, over":        {time.Hour, time.Hour, true, true},
		"5 s, new":             {5 * time.Second, 0, false, false},
		"5 s, half left":       {5 * time.Second, 2500 * time.Millisecond, false, false},
		"5 s, less than tenth": {5 * time.Second, 4600 * time.Millisecond, true, false},
		"no end":               {0, 1000 * time.Hour, false, false},
	} {
		tokens := upstream.Tokens{Issued: at}
		if c.life > 0 {
			tokens.Expires = at.Add(c.life)
		}
		if due, over := tokens.Due(at.Add(c.age)); due != c.due || over != c.over {
			t.Errorf("%s: due %v, over %v", name, due, over)
		}
	}
}

// TestRegistration is dcrConfig and T31: the edge registers once for all replicas, is kept, and
// tokens of another registration are over.
func TestRegistration(t *testing.T) {
	f := newFake(t)
	kept := records(t)
	config := func(scopes ...string) *v1beta1.UpstreamProvider {
		return f.oauth2(func(o *v1beta1.OAuth2Upstream) {
			o.ClientID, o.Scopes = "", scopes
			o.DCRConfig = &v1beta1.DCR{DiscoveryURL: f.URL + "/discovery", SoftwareID: "soft", SoftwareStatement: "a.b.c", InitialAccessTokenRef: &v1beta1.SecretRef{Name: "s", Key: "k"}}
		})
	}
	f.metadata["scopes_supported"] = []string{"mail", "files"}
	f.metadata["token_endpoint_auth_methods_supported"] = []string{"client_secret_post", "private_key_jwt"}
	p := f.open(t, config(), kept, nil)
	query, leg := f.send(t, p)
	if query.Get("client_id") != "registered-1" || query.Get("scope") != "mail files" || !leg.Strict || leg.Issuer != f.URL {
		t.Errorf("sent with %v, %+v", query, leg)
	}
	ask := f.came[0]
	if ask["authorization"] != "Bearer "+secret || ask["scope"] != "mail files" || ask["software_id"] != "soft" || ask["software_statement"] != "a.b.c" || ask["token_endpoint_auth_method"] != "client_secret_post" ||
		ask["redirect_uris"].([]any)[0] != redirect {
		t.Errorf("registered with %v", ask)
	}
	tokens, _, err := f.login(t, p)
	if err != nil || f.asked[0].Get("client_secret") != "registered secret" || f.asked[0].Get("client_id") != "registered-1" {
		t.Fatalf("%v; asked with %v", err, f.asked)
	}

	// Another replica, and the same one after a restart, find the registration.
	if query, _ := f.send(t, f.open(t, config(), kept, nil)); query.Get("client_id") != "registered-1" || f.clients != 1 {
		t.Errorf("a second replica is %s", query.Get("client_id"))
	}

	// T31: other scopes are another client, for which the old tokens are not.
	other := f.open(t, config("mail"), kept, nil)
	var gone *upstream.Gone
	asked := len(f.asked)
	if _, err = other.Refresh(t.Context(), tokens, func(*upstream.Tokens) error { return nil }); !errors.As(err, &gone) || len(f.asked) != asked {
		t.Errorf("T31: %v", err)
	}
	if query, _ := f.send(t, other); query.Get("client_id") != "registered-2" {
		t.Errorf("T31: the next login is by %s", query.Get("client_id"))
	}

	// A 401 that is no word of the provider says nothing of the client.
	f.spoils("/token", say(http.StatusUnauthorized, planted))
	if _, err = p.Refresh(t.Context(), tokens, func(*upstream.Tokens) error { return nil }); err == nil || errors.As(err, &gone) {
		t.Errorf("a 401 of a proxy: %v", err)
	}
	if query, _ := f.send(t, p); query.Get("client_id") != "registered-1" {
		t.Errorf("after that it is %s", query.Get("client_id"))
	}

	// The provider has forgotten the client: this refresh is over, and the next login registers.
	f.spoils("/token", say(http.StatusUnauthorized, `{"error":"invalid_client"}`))
	if _, err = p.Refresh(t.Context(), tokens, func(*upstream.Tokens) error { return nil }); !errors.As(err, &gone) {
		t.Errorf("a forgotten client: %v", err)
	}
	f.spoils("/token", nil)
	if query, _ := f.send(t, p); query.Get("client_id") != "registered-3" {
		t.Errorf("after that it is %s", query.Get("client_id"))
	}
	if _, _, err := f.login(t, p); err != nil {
		t.Error(err)
	}
}

// TestSpoiledRegistration is what a registration may go wrong by: no login, no word of the
// provider, no record.
func TestSpoiledRegistration(t *testing.T) {
	providers := map[string]*upstream.Provider{}
	for name, c := range map[string]struct {
		path  string
		spoil http.HandlerFunc
	}{
		"refused":           {"/register", say(400, `{"error":"invalid_software_statement","error_description":"`+planted+`"}`)},
		"HTML":              {"/register", say(201, "<html>"+planted)},
		"no client_id":      {"/register", say(201, `{"client_secret":"x"}`)},
		"client_id 3 KiB":   {"/register", say(201, `{"client_id":"`+strings.Repeat("a", 3<<10)+`"}`)},
		"128 KiB":           {"/register", say(201, `{"client_id":"a","x":"`+strings.Repeat("a", 128<<10)+`"}`)},
		"signs":             {"/register", say(201, `{"client_id":"a","client_secret":"b","token_endpoint_auth_method":"private_key_jwt"}`)},
		"over":              {"/register", say(201, `{"client_id":"a","client_secret":"b","client_secret_expires_at":1000}`)},
		"end of words":      {"/register", say(201, `{"client_id":"a","client_secret":"b","client_secret_expires_at":"soon"}`)},
		"redirect":          {"/register", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusPermanentRedirect) }},
		"document away":     {"/discovery", say(404, planted)},
		"document without":  {"/discovery", say(200, `{"issuer":"https://x"}`)},
		"document redirect": {"/discovery", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) }},
	} {
		f := newFake(t)
		f.spoils(c.path, c.spoil)
		p := f.open(t, f.oauth2(func(o *v1beta1.OAuth2Upstream) {
			o.ClientID, o.DCRConfig = "", &v1beta1.DCR{DiscoveryURL: f.URL + "/discovery"}
		}), records(t), nil)
		_, _, err := p.Send(t.Context(), "s", nil)
		if err == nil || edge.KindOf(err) != edge.Unavailable || strings.Contains(err.Error(), planted) {
			t.Errorf("%s: %v", name, err)
		}
		f.spoils(c.path, nil)
		asked := f.count(c.path)
		for range 20 { // one attempt a second, however many log in
			_, _, _ = p.Send(t.Context(), "s", nil)
		}
		if n := f.count(c.path) - asked; n > 1 {
			t.Errorf("%s: asked %d times", name, n)
		}
		providers[name] = p
	}
	for name, p := range providers {
		edgetest.Until(t, name+", after it is well", func() bool { _, _, err := p.Send(t.Context(), "s", nil); return err == nil })
	}
}

// TestRealProvider signs in at npm oidc-provider, over TLS, and refreshes.
func TestRealProvider(t *testing.T) {
	made := idp.NewTLS(t)
	real := idp.StartTLS(t, made)
	u := &v1beta1.UpstreamProvider{Name: "corp", Type: v1beta1.UpstreamOIDC, OIDCConfig: &v1beta1.OIDCUpstream{
		IssuerURL: real.Issuer, ClientID: idp.SSOClientID, ClientSecretRef: &v1beta1.SecretRef{Name: "s", Key: "k"}, RedirectURI: "http://127.0.0.1/callback",
		Scopes: []string{"openid", "offline_access"}, AdditionalAuthorizationParams: map[string]string{"login_hint": "olga", "prompt": "login consent"},
	}}
	f := &fake{CA: made.Authority}
	p, err := f.tryWith(u, secrets(idp.SSOClientSecret))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	address, leg, err := p.Send(t.Context(), "the-state", nil)
	if err != nil {
		t.Fatal(err)
	}
	back, err := url.Parse(real.Browse(t, address, "http://127.0.0.1/callback"))
	if err != nil || back.Query().Get("state") != "the-state" {
		t.Fatalf("%v, %v", back, err)
	}
	tokens, who, err := p.Return(context.Background(), leg, back.Query(), true)
	if err != nil || who.Subject != "olga" || tokens.Refresh == "" {
		t.Fatalf("%+v, %v", who, err)
	}
	again, err := p.Refresh(t.Context(), tokens, func(*upstream.Tokens) error { return nil })
	if err != nil || again.Access == tokens.Access || again.Subject != "olga" {
		t.Fatalf("%v", err)
	}
}
