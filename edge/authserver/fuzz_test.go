package authserver_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/authserver"
)

// soundAnswer holds an answer to what no input may bring: a fault of ours, or a way off the
// addresses that are registered.
func soundAnswer(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	if w.Code >= 500 {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	if to := w.Header().Get("Location"); to != "" && !strings.HasPrefix(to, callback+"&") {
		t.Errorf("location %q", to)
	}
}

func FuzzAuthorize(f *testing.F) {
	r := open(f, options{})
	client, _ := r.register(nil)
	f.Add(asking(client).Encode())
	f.Add(asking(client).Encode() + "&client_id=x")
	f.Add("client_id=" + client + "&redirect_uri=https%3A%2F%2Fevil.example")
	f.Add("%zz&;=")
	f.Fuzz(func(t *testing.T, query string) {
		req := httptest.NewRequest(http.MethodGet, "/oauth/authorize", nil)
		req.URL.RawQuery = query
		soundAnswer(t, r.do(req))
	})
}

func FuzzToken(f *testing.F) {
	r := open(f, options{})
	client, got := r.signIn()
	f.Add(redeeming(client, "x.y").Encode(), "")
	f.Add(refreshing(client, got.Refresh+"x").Encode(), "Basic eDp5")
	f.Add("grant_type=%zz", "Bearer x")
	f.Fuzz(func(t *testing.T, form, authorization string) {
		req := httptest.NewRequest(http.MethodPost, "/oauth/token", strings.NewReader(form))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if authorization != "" {
			req.Header["Authorization"] = []string{authorization}
		}
		w := r.do(req)
		if soundAnswer(t, w); w.Code == http.StatusOK && !strings.Contains(form, "refresh_token="+url.QueryEscape(got.Refresh)) {
			t.Errorf("tokens for %q", form)
		}
	})
}

func FuzzRegister(f *testing.F) {
	r := open(f, options{})
	f.Add(`{"redirect_uris":["https://x.example/"],"client_name":"x"}`)
	f.Add(`{"redirect_uris":["http://127.0.0.1/"],"grant_types":["refresh_token"],"scope":"a b"}`)
	f.Fuzz(func(t *testing.T, text string) {
		w := r.registersText(text)
		if soundAnswer(t, w); w.Code != http.StatusCreated {
			return
		}
		id, _ := answer(t, w)["client_id"].(string)
		if len(id) > 2048 {
			t.Errorf("an id of %d", len(id))
		}
		q := asking(id)
		q.Set("redirect_uri", "https://evil.example.invalid/")
		soundAnswer(t, r.browser().authorize(q))
	})
}

func FuzzDocument(f *testing.F) {
	const id = "https://client.example/id"
	f.Add([]byte(sound(id, nil)))
	f.Add([]byte(`{"client_id":"` + id + `"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if authserver.ParseDocument(id, text) == nil && !strings.Contains(string(text), "redirect_uris") && !strings.Contains(string(text), "\\u") {
			t.Errorf("%q is taken", text)
		}
	})
}

func FuzzRedirect(f *testing.F) {
	f.Add("https://good.example/cb", "https://good.example/cb")
	f.Add("http://127.0.0.1/cb", "http://127.0.0.1:80@evil.example/cb")
	f.Add("cursor://x/cb", "cursor://x/cb?a")
	f.Fuzz(func(t *testing.T, registered, asked string) {
		if !authserver.MatchRedirect([]string{registered}, asked) || asked == registered {
			return
		}
		a, err := url.Parse(asked)
		if err != nil {
			t.Fatal(err)
		}
		b, err := url.Parse(registered)
		if err != nil {
			t.Fatal(err)
		}
		if a.Hostname() != b.Hostname() || a.Scheme != b.Scheme || a.Path != b.Path || a.RawQuery != b.RawQuery || a.User != nil {
			t.Errorf("%q matches %q", asked, registered)
		}
		switch a.Hostname() {
		case "localhost", "127.0.0.1", "::1":
		default:
			t.Errorf("%q matches %q by its port", asked, registered)
		}
	})
}

func FuzzClientID(f *testing.F) {
	secret := []byte(strings.Repeat("h", 32))
	kept := &secrets{all: map[string]string{"as/hmac": string(secret)}}
	r := open(f, options{secrets: kept, config: func(c *authserver.Spec) { c.Secrets = append(c.Secrets, ref("hmac")) }})
	id, _ := r.register(nil)
	if redirects, ok := authserver.OpenClient(issuer, secret, id); !ok || len(redirects) != 1 || redirects[0] != callback {
		f.Fatalf("%v, %v", redirects, ok)
	}
	f.Add(id[:len(id)-1])
	f.Add("weir1.")
	f.Fuzz(func(t *testing.T, text string) {
		if _, ok := authserver.OpenClient(issuer, secret, text); ok && text != id {
			t.Errorf("%q opens", text)
		}
	})
}

func FuzzCallback(f *testing.F) {
	r := open(f, options{})
	f.Add("state="+strings.Repeat("A", 43)+"&code=x", "a=b")
	f.Add("error=access_denied&error_description=x", "__Host-weir-login-00000000=x")
	f.Fuzz(func(t *testing.T, query, cookie string) {
		req := httptest.NewRequest(http.MethodGet, "/oauth/callback", nil)
		req.URL.RawQuery = query
		req.Header["Cookie"] = []string{cookie}
		if w := r.do(req); w.Code != http.StatusBadRequest {
			t.Errorf("status %d", w.Code)
		}
	})
}
