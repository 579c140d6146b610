package login_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/oauth/login"
)

// TestLogin goes the whole way: challenge, metadata, registration, browser, token.
func TestLogin(t *testing.T) {
	w := newWorld(t)
	w.resource = func(doc map[string]any) { doc["scopes_supported"] = []string{"a", "b"} }
	store := storeOf(t)
	s := w.open(store, nil)
	if status, err := get(t, s, w.url()); status != 200 || err != nil {
		t.Fatalf("status %d, %v", status, err)
	}
	w.seen(func() {
		reg, q, form := w.registered[0], w.authorized[0], w.forms[0]
		if reg["application_type"] != "native" || reg["token_endpoint_auth_method"] != "none" {
			t.Errorf("registered %v", reg)
		}
		for name, want := range map[string]string{"response_type": "code", "client_id": "client-1", "code_challenge_method": "S256", "resource": w.url(), "scope": "a b"} {
			if q.Get(name) != want {
				t.Errorf("%s is %q, not %q", name, q.Get(name), want)
			}
		}
		if len(q.Get("state")) < 32 || !strings.HasPrefix(q.Get("redirect_uri"), "http://127.0.0.1:") {
			t.Errorf("asked with %v", q)
		}
		for name, want := range map[string]string{"code": "the-code", "client_id": "client-1", "resource": w.url(), "redirect_uri": q.Get("redirect_uri")} {
			if form.Get(name) != want {
				t.Errorf("%s of the form is %q, not %q", name, form.Get(name), want)
			}
		}
	})
	// The next process uses what was kept, and so does one that speaks of the same server in
	// another way.
	again := w.open(store, func(o *login.Options) { o.URL = strings.Replace(o.URL, "http://", "HTTP://", 1) })
	if status, err := get(t, again, w.url()); status != 200 || err != nil {
		t.Errorf("again: status %d, %v", status, err)
	}
	w.seen(func() {
		if len(w.authorized) != 1 || !slices.Equal(w.calls, []string{"", "access-1", "access-1"}) {
			t.Errorf("%d logins, calls with %q", len(w.authorized), w.calls)
		}
	})
}

// TestPagesForEveryPath: a server that has a page for every path that there is not has no metadata,
// and is taken as one of 2025-03-26.
func TestPagesForEveryPath(t *testing.T) {
	w := newWorld(t)
	site := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/register", "/authorize", "/token":
			w.serveAS(rw, r)
		case "/mcp":
			status := http.StatusOK
			if r.Header.Get("Authorization") == "" {
				status = http.StatusUnauthorized
			}
			answer(rw, status, "{}")
		default:
			rw.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = rw.Write([]byte("<!doctype html><title>Welcome</title>"))
		}
	}))
	t.Cleanup(site.Close)
	s := w.open(storeOf(t), func(o *login.Options) { o.URL = site.URL + "/mcp" })
	if status, err := get(t, s, site.URL+"/mcp"); status != http.StatusOK || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	// Where a server names its metadata a page is none.
	w.judge = func(string, int) (int, string) { return 401, `Bearer resource_metadata="` + site.URL + `/metadata"` }
	if _, err := get(t, w.open(storeOf(t), nil), w.url()); err == nil || !strings.Contains(err.Error(), "metadata of the resource") {
		t.Errorf("error %v", err)
	}
}

// TestFaults holds what a login refuses, what it says, and that no secret was sent then.
func TestFaults(t *testing.T) {
	for _, test := range []struct {
		name  string
		world func(*world)
		dev   bool
		want  string
		asked bool // the browser was opened
	}{
		{name: "T06 metadata of the resource inward", dev: true, want: "not a public address", world: func(w *world) {
			w.judge = func(string, int) (int, string) { return 401, `Bearer resource_metadata="https://10.0.0.1/secret"` }
		}},
		{name: "T06 another port of this machine", want: "http, which is not allowed", world: func(w *world) {
			w.judge = func(string, int) (int, string) { return 401, `Bearer resource_metadata="` + w.as.URL + `/x"` }
		}},
		{name: "T07 authorization server inward", dev: true, want: "not a public address: where that is right, name it as the issuer", world: func(w *world) {
			w.resource = func(doc map[string]any) { doc["authorization_servers"] = []string{"https://192.168.0.1"} }
		}},
		{name: "T07 authorization server of another scheme", dev: true, want: "scheme", world: func(w *world) {
			w.resource = func(doc map[string]any) { doc["authorization_servers"] = []string{"file:///etc/passwd"} }
		}},
		{name: "T07 authorization server on loopback without the flag", want: "its scheme is http", world: func(*world) {}},
		{name: "T07 token endpoint of http", dev: true, want: "token_endpoint: its scheme is http", world: func(w *world) {
			w.metadata = func(doc map[string]any) { doc["token_endpoint"] = "http://as.example.com/token" }
		}},
		{name: "T07 token endpoint of another scheme", dev: true, want: "token_endpoint: its scheme", world: func(w *world) {
			w.metadata = func(doc map[string]any) { doc["token_endpoint"] = "gopher://x/" }
		}},
		{name: "T07 registration inward", dev: true, want: "a link-local address", world: func(w *world) {
			w.metadata = func(doc map[string]any) { doc["registration_endpoint"] = "https://169.254.169.254/x" }
		}},
		{name: "T08 another issuer", dev: true, want: "it is of another issuer", world: func(w *world) {
			w.metadata = func(doc map[string]any) { doc["issuer"] = w.as.URL + "/" }
		}},
		{name: "T09 a page of another scheme", dev: true, want: "authorization_endpoint: its scheme", world: func(w *world) {
			w.metadata = func(doc map[string]any) { doc["authorization_endpoint"] = "javascript:alert(1)" }
		}},
		{name: "T09 a page over http", dev: true, want: "authorization_endpoint: its scheme is http", world: func(w *world) {
			w.metadata = func(doc map[string]any) { doc["authorization_endpoint"] = "http://x/$(calc)" }
		}},
		{name: "T09 a flag", dev: true, want: "authorization_endpoint: its scheme", world: func(w *world) {
			w.metadata = func(doc map[string]any) { doc["authorization_endpoint"] = "--flag" }
		}},
		{name: "another resource", dev: true, want: "resource: it is of another server", world: func(w *world) {
			w.resource = func(doc map[string]any) { doc["resource"] = "https://evil.example.com/mcp" }
		}},
		{name: "no PKCE", dev: true, want: "does not announce PKCE", world: func(w *world) {
			w.metadata = func(doc map[string]any) { delete(doc, "code_challenge_methods_supported") }
		}},
		{name: "only plain PKCE", dev: true, want: "does not announce PKCE", world: func(w *world) {
			w.metadata = func(doc map[string]any) { doc["code_challenge_methods_supported"] = []string{"plain"} }
		}},
		{name: "nobody registers", dev: true, want: "registers no clients", world: func(w *world) {
			w.metadata = func(doc map[string]any) { delete(doc, "registration_endpoint") }
		}},
		{name: "iss of another", dev: true, asked: true, want: "of another authorization server", world: func(w *world) {
			w.back = func(q url.Values) { q.Set("iss", "https://evil.example.com") }
		}},
		{name: "iss with a slash", dev: true, asked: true, want: "of another authorization server", world: func(w *world) {
			w.back = func(q url.Values) { q.Set("iss", w.as.URL+"/") }
		}},
		{name: "no iss", dev: true, asked: true, want: "does not say of which", world: func(w *world) {
			w.back = func(q url.Values) { q.Del("iss") }
		}},
		{name: "iss that is not announced, of another", dev: true, asked: true, want: "of another authorization server", world: func(w *world) {
			w.metadata = func(doc map[string]any) { delete(doc, "authorization_response_iss_parameter_supported") }
			w.back = func(q url.Values) { q.Set("iss", "x") }
		}},
		{name: "the user says no", dev: true, asked: true, want: "refuses: access_denied", world: func(w *world) {
			w.back = func(q url.Values) {
				q.Del("code")
				q.Set("error", "access_denied")
				q.Set("error_description", "PLANTED")
			}
		}},
		{name: "T28 an error that is a text", dev: true, asked: true, want: "refuses: an error", world: func(w *world) {
			w.back = func(q url.Values) { q.Del("code"); q.Set("error", "PLANTED secret") }
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			test.world(w)
			var asked atomic.Bool
			o := login.Options{URL: w.url(), CallbackPort: login.AnyPort, Timeout: 10 * time.Second, Browse: func(u string) error {
				asked.Store(true)
				return browser(u)
			}}
			store := storeOf(t)
			s, err := login.Open(o, store, guarded(t, test.dev), false)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Login(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "PLANTED") {
				t.Errorf("error %v; want %q", err, test.want)
			}
			if asked.Load() != test.asked {
				t.Errorf("the browser was opened: %v", asked.Load())
			}
			if len(w.forms) != 0 {
				t.Errorf("the token endpoint was asked: %v", w.forms)
			}
			if all, err := store.List(); len(all) != 0 || err != nil {
				t.Errorf("kept %v, %v", all, err)
			}
		})
	}
}

// TestT10 holds that a document that is large or compressed ends the login.
func TestT10(t *testing.T) {
	for name, doc := range map[string]func(http.ResponseWriter){
		"larger than 1 MiB": func(rw http.ResponseWriter) { _, _ = rw.Write(make([]byte, 1<<20+1)) },
		"compressed": func(rw http.ResponseWriter) {
			rw.Header().Set("Content-Encoding", "gzip")
			_, _ = rw.Write([]byte("x"))
		},
		"nested": func(rw http.ResponseWriter) { _, _ = rw.Write([]byte(strings.Repeat("[", 500_000))) },
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/mcp" {
					rw.WriteHeader(401)
					return
				}
				doc(rw)
			}))
			defer server.Close()
			s, err := login.Open(login.Options{URL: server.URL + "/mcp"}, storeOf(t), guarded(t, true), false)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Login(t.Context()); err == nil || !strings.Contains(err.Error(), "metadata of the resource") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestOptions holds that each option comes where it belongs.
func TestOptions(t *testing.T) {
	t.Run("a client that is given", func(t *testing.T) {
		w := newWorld(t)
		w.metadata = func(doc map[string]any) {
			doc["token_endpoint_auth_methods_supported"] = []string{"client_secret_basic"}
		}
		s := w.open(storeOf(t), func(o *login.Options) {
			o.ClientID, o.ClientSecret, o.Scopes, o.ScopeParam, o.Resource = "me", "mine", []string{"x"}, "user_scope", "https://other.example.com"
		})
		if _, err := s.Login(t.Context()); err != nil {
			t.Fatal(err)
		}
		if q := w.authorized[0]; len(w.registered) != 0 || q.Get("client_id") != "me" || q.Get("user_scope") != "x" || q.Has("scope") || q.Get("resource") != "https://other.example.com" || w.basic[0] != "me" {
			t.Errorf("asked with %v, as %q", q, w.basic[0])
		}
	})
	t.Run("a document", func(t *testing.T) {
		w := newWorld(t)
		w.metadata = func(doc map[string]any) { doc["client_id_metadata_document_supported"] = true }
		s := w.open(storeOf(t), func(o *login.Options) { o.ClientMetadataURL = "https://me.example.com/client.json" })
		if _, err := s.Login(t.Context()); err != nil {
			t.Fatal(err)
		}
		if q := w.authorized[0]; len(w.registered) != 0 || q.Get("client_id") != "https://me.example.com/client.json" {
			t.Errorf("asked with %v", q)
		}
	})
	t.Run("an issuer", func(t *testing.T) {
		w := newWorld(t)
		w.metadata = func(doc map[string]any) { doc["scopes_supported"] = []string{"openid", "offline_access"} }
		s := w.open(storeOf(t), func(o *login.Options) { o.Issuer = w.as.URL })
		if _, err := s.Login(t.Context()); err != nil {
			t.Fatal(err)
		}
		if q := w.authorized[0]; q.Get("scope") != "openid profile email offline_access" || q.Get("prompt") != "consent" {
			t.Errorf("asked with %v", q)
		}
	})
	t.Run("endpoints without metadata", func(t *testing.T) {
		w := newWorld(t)
		s := w.open(storeOf(t), func(o *login.Options) {
			o.AuthorizeURL, o.TokenURL, o.ClientID = w.as.URL+"/authorize", w.as.URL+"/token", "me"
		})
		if _, err := s.Login(t.Context()); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(w.hits, "/.well-known/oauth-authorization-server") {
			t.Errorf("metadata were asked for: %v", w.hits)
		}
	})
	t.Run("a static token", func(t *testing.T) {
		w := newWorld(t)
		s := w.open(storeOf(t), func(o *login.Options) { o.BearerToken = "static" })
		if status, err := get(t, s, w.url()); status != 200 || err != nil || !slices.Equal(w.calls, []string{"static"}) {
			t.Errorf("status %d, %v, %q", status, err, w.calls)
		}
	})
	for resource, sound := range map[string]bool{
		"urn:example:crm": true, "api://crm": true, "https://crm.example.com/?tenant=1": true,
		"crm": false, "//crm.example.com": false, "urn:example:crm#x": false, "api://crm#": false, "https://crm.example.com/#": false, "https://me:mine@crm.example.com": false, "https:crm": false, "%": false,
	} {
		o := login.Options{URL: "https://mcp.example.com/mcp", Resource: resource}
		if err := o.Check(); (err == nil) != sound || !sound && !strings.HasPrefix(err.Error(), "resource: ") {
			t.Errorf("%s: %v", resource, err)
		}
	}
	for name, o := range map[string]login.Options{
		"URL":                 {URL: "ftp://x"},
		"issuer":              {Issuer: "http://as.example.com"},
		"authorize-url":       {AuthorizeURL: "https://a/b"},
		"client-metadata-url": {ClientMetadataURL: "http://localhost/x"},
		"scopes":              {Scopes: []string{"a b"}},
		"callback-port":       {CallbackPort: 70000},
		"client-secret":       {ClientSecretFile: "x"},
		"bearer-token":        {BearerToken: "x", BearerTokenFile: "y"},
		"client-credentials":  {Grant: login.ClientCredentials},
		"id-token-file":       {Grant: login.Enterprise},
		"timeout":             {Timeout: -1},
	} {
		if o.URL == "" {
			o.URL = "https://mcp.example.com/mcp"
		}
		if err := o.Check(); err == nil || !strings.Contains("\n"+err.Error(), "\n"+name+":") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, test := range []struct {
		resource, server string
		want             bool
	}{
		{"https://a/mcp", "https://a/mcp", true},
		{"https://a", "https://a/mcp", true},
		{"https://a/", "https://a/mcp", true},
		{"https://A/x", "https://a/x/mcp", true},
		{"https://a:443/x", "https://a/x", true},
		{"https://a/m", "https://a/mcp", false},
		{"https://a/mcp/more", "https://a/mcp", false},
		{"https://b/mcp", "https://a/mcp", false},
		{"http://a/mcp", "https://a/mcp", false},
		{"https://a/mcp?x=1", "https://a/mcp", false},
		{"", "https://a/mcp", false},
		{"a", "https://a/mcp", false},
	} {
		if got := login.Covers(test.resource, test.server); got != test.want {
			t.Errorf("%q covers %q: %v", test.resource, test.server, got)
		}
	}
}
