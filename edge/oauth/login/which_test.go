package login_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/oauth/login"
)

// TestKeys: what tells logins to one server apart is what shapes a token, and nothing else.
func TestKeys(t *testing.T) {
	for name, test := range map[string]struct {
		a, b login.Settings
		one  bool // they are one login
	}{
		"nothing in particular": {login.Settings{}, login.Settings{}, true},
		"the grant by its name": {login.Settings{}, login.Settings{Grant: login.Code}, true},
		"the grant":             {login.Settings{}, login.Settings{Grant: login.ClientCredentials}, false},
		"the issuer":            {login.Settings{Issuer: "https://a"}, login.Settings{Issuer: "https://b"}, false},
		"no issuer":             {login.Settings{Issuer: "https://a"}, login.Settings{}, false},
		"endpoints":             {login.Settings{AuthorizeURL: "https://a", TokenURL: "https://t"}, login.Settings{AuthorizeURL: "https://b", TokenURL: "https://t"}, false},
		"the token endpoint":    {login.Settings{TokenURL: "https://a"}, login.Settings{TokenURL: "https://b"}, false},
		"the client":            {login.Settings{ClientID: "a"}, login.Settings{ClientID: "b"}, false},
		"fewer scopes":          {login.Settings{Scopes: []string{"a", "b"}}, login.Settings{Scopes: []string{"a"}}, false},
		"no scopes":             {login.Settings{Scopes: []string{"a"}}, login.Settings{}, false},
		"scopes in order":       {login.Settings{Scopes: []string{"b", "a", "b"}}, login.Settings{Scopes: []string{"a", "b"}}, true},
		"scopes in one":         {login.Settings{Scopes: []string{"a b"}}, login.Settings{Scopes: []string{"a", "b"}}, false},
		"the scope parameter":   {login.Settings{ScopeParam: "user_scope"}, login.Settings{}, false},
		"its usual name":        {login.Settings{ScopeParam: "scope"}, login.Settings{}, true},
		"the resource":          {login.Settings{Resource: "https://a"}, login.Settings{Resource: "https://b"}, false},
		"the identity provider": {login.Settings{IDPTokenURL: "https://a"}, login.Settings{IDPTokenURL: "https://b"}, false},
		"its client":            {login.Settings{IDPClientID: "a"}, login.Settings{IDPClientID: "b"}, false},
		"the user":              {login.Settings{IDTokenFile: "/a"}, login.Settings{IDTokenFile: "/b"}, false},
		"fields side by side":   {login.Settings{Issuer: "x"}, login.Settings{Resource: "x"}, false},
		"how it goes":           {login.Settings{CallbackPort: 1, SkipBrowser: true, ClientMetadataURL: "https://m"}, login.Settings{CallbackPort: 2}, true},
		"where secrets stand":   {login.Settings{ClientSecretFile: "/a", IDPClientSecretFile: "/b"}, login.Settings{PrivateKeyFile: "/c"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOf(t)
			for i, one := range []login.Settings{test.a, test.b} {
				if err := s.Put(t.Context(), login.Kept{URL: "https://a", Settings: one, Tokens: login.Tokens{Access: fmt.Sprint(i)}}); err != nil {
					t.Fatal(err)
				}
			}
			all, err := s.List()
			if err != nil || (len(all) == 1) != test.one {
				t.Fatalf("%d logins, %v", len(all), err)
			}
			if k, there, err := s.Find("https://a", test.a); err != nil || !there || (k.Tokens.Access == "1") != test.one {
				t.Errorf("of the first: %q, there %v, %v", k.Tokens.Access, there, err)
			}
			if k, there, err := s.Find("https://a", test.b); err != nil || !there || k.Tokens.Access != "1" {
				t.Errorf("of the second: %q, there %v, %v", k.Tokens.Access, there, err)
			}
			if _, there, err := s.Find("https://b", test.a); there || err != nil {
				t.Errorf("of another server: there %v, %v", there, err)
			}
		})
	}
}

// TestWhichIsUsed: where the URL alone is named, the login that was made by hand last is used,
// else the one that asks for nothing in particular, else the oldest. A file of the earlier
// form, which had one login for each URL, reads as before.
func TestWhichIsUsed(t *testing.T) {
	s := storeOf(t)
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	earlier := `{"version":1,"logins":[
	 {"url":"https://plain","settings":{},"client":{},"tokenEndpoint":"https://t","tokens":{"access":"kept"},"since":"2026-01-02T00:00:00Z"},
	 {"url":"https://scoped","settings":{"scopes":["a"]},"client":{},"tokenEndpoint":"https://t","tokens":{"access":"kept"},"since":"2026-01-02T00:00:00Z"}]}`
	if err := os.WriteFile(filepath.Join(s.Dir, login.FileName), []byte(earlier), 0o600); err != nil {
		t.Fatal(err)
	}
	used := func(url, want string) {
		t.Helper()
		o, err := login.KeptOptions(s, url)
		if got := strings.Join(o.Scopes, " "); err != nil || got != want || o.URL != url {
			t.Errorf("of %s the one with scopes %q, %v; want %q", url, got, err, want)
		}
	}
	put := func(url, scope, since string, main bool) {
		t.Helper()
		at, err := time.Parse(time.DateOnly, since)
		k := login.Kept{URL: url, Since: at, Main: main}
		if scope != "" {
			k.Settings.Scopes = []string{scope}
		}
		if err == nil {
			err = s.Put(t.Context(), k)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	used("https://plain", "")
	used("https://scoped", "a")
	used("https://none", "")
	if k, there, err := s.Find("https://plain", login.Settings{}); err != nil || !there || k.Tokens.Access != "kept" {
		t.Errorf("the earlier form: there %v, %v", there, err)
	}
	put("https://scoped", "b", "2026-01-03", false) // a workload's
	used("https://scoped", "a")
	put("https://scoped", "", "2026-01-04", false) // a workload's that asks for nothing
	used("https://scoped", "")
	put("https://scoped", "b", "2026-01-05", true) // by hand
	used("https://scoped", "b")
	put("https://scoped", "c", "2026-01-01", true) // by hand once more
	used("https://scoped", "c")
	if all, err := s.Of("https://scoped"); err != nil || len(all) != 4 || all[1].Main {
		t.Errorf("%+v, %v", all, err)
	}
	used("https://plain", "")
}

// TestManyLogins: one server has a bounded number of logins. What is worth nothing makes room;
// else it is said before anybody is asked.
func TestManyLogins(t *testing.T) {
	w := newWorld(t)
	store := storeOf(t)
	put := func(i int, of login.Tokens) error {
		return store.Put(t.Context(), login.Kept{URL: w.url(), Settings: login.Settings{ClientID: fmt.Sprint(i)}, Since: time.Unix(int64(i), 0), Tokens: of})
	}
	for i := range 32 {
		if err := put(i, login.Tokens{Access: "a", Refresh: "r", Expires: time.Unix(1, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	const want = "32 logins to "
	if err := put(32, login.Tokens{Access: "a"}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "weir auth logout "+w.url()) {
		t.Errorf("one more: %v", err)
	}
	s := w.open(store, func(o *login.Options) {
		o.Browse = func(string) error { t.Error("somebody was asked"); return nil }
	})
	if _, err := s.Login(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a login: %v", err)
	}
	if err := put(3, login.Tokens{Access: "a", Expires: time.Unix(1, 0)}); err != nil { // in its own place
		t.Fatal(err)
	}
	if _, err := w.open(store, nil).Login(t.Context()); err != nil {
		t.Errorf("with one that is over: %v", err)
	}
	if _, there, err := store.Find(w.url(), login.Settings{ClientID: "3"}); there || err != nil {
		t.Errorf("the one that was over: there %v, %v", there, err)
	}
	if all, err := store.Of(w.url()); len(all) != 32 || err != nil {
		t.Errorf("%d logins, %v", len(all), err)
	}
	if err := store.Put(t.Context(), login.Kept{URL: "https://other"}); err != nil {
		t.Errorf("another server: %v", err)
	}
}

// TestLogoutOfSeveral: all logins to a server end, each with its own token and client, and those
// to others do not.
func TestLogoutOfSeveral(t *testing.T) {
	w, other, store := newWorld(t), newWorld(t), storeOf(t)
	w.metadata = func(m map[string]any) { m["revocation_endpoint"] = w.as.URL + "/revoke" }
	for _, one := range []*login.Session{w.open(store, nil), w.open(store, func(o *login.Options) { o.Scopes = []string{"less"} }), other.open(store, nil)} {
		if _, err := one.Login(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ended, err := login.Logout(t.Context(), store, guarded(t, true), w.url(), edgetest.Patience)
	if err != nil || len(ended) != 2 || !ended[0].Revoked || !ended[1].Revoked {
		t.Fatalf("%+v, %v", ended, err)
	}
	revoked := map[string]string{}
	w.seen(func() {
		for _, form := range w.revoked {
			revoked[form.Get("token")] = form.Get("client_id")
		}
	})
	if revoked["refresh-1"] != "client-1" || revoked["refresh-2"] != "client-2" {
		t.Errorf("revoked %v", revoked)
	}
	if all, err := store.List(); err != nil || len(all) != 1 || all[0].URL != other.url() {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestCommand: what to type for a login is one line of a shell.
func TestCommand(t *testing.T) {
	s := login.Settings{Grant: login.ClientCredentials, ClientID: "it's me", Scopes: []string{"a", "b"}, PrivateKeyFile: "/k", CallbackPort: login.AnyPort, Resource: "https://x/?a&b"}
	want := `weir auth login https://a/mcp --client-id 'it'\''s me' --private-key-file /k --scopes a,b --resource 'https://x/?a&b' --callback-port 0 --client-credentials`
	if got := s.Command("https://u:p@a/mcp?secret=1"); got != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
}
