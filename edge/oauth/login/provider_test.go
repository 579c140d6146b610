package login_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/oauth/login"
)

// TestProvider goes the whole way with a real identity provider over TLS: as a client that is
// registered, and as one that is a document; then the token is renewed, and more is asked for.
// The user's browser is an HTTP client here, and once a real one.
func TestProvider(t *testing.T) {
	files := idp.NewTLS(t)
	provider := idp.StartTLS(t, files)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(files.Authority)
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	guard, err := oauth.New(oauth.Options{Reach: edge.Reach{CAs: files.Authority, DevLoopback: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(guard.Close)

	// The MCP server: it takes a token that the provider has signed for it, with the scope that
	// its path asks for.
	var mcp *httptest.Server
	mcp = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		resource := mcp.URL + "/mcp"
		switch r.URL.Path {
		case "/.well-known/oauth-protected-resource/mcp":
			answer(rw, 200, map[string]any{"resource": resource, "authorization_servers": []string{provider.Issuer}})
			return
		case "/client.json":
			answer(rw, 200, map[string]any{
				"client_id": mcp.URL + "/client.json", "client_name": "Weir", "application_type": "native", "token_endpoint_auth_method": "none",
				"redirect_uris": []string{"http://127.0.0.1/callback"}, "grant_types": []string{"authorization_code", "refresh_token"}, "response_types": []string{"code"},
			})
			return
		}
		need := "tools:read"
		if r.URL.RawQuery != "" {
			need = "tools:write"
		}
		challenge := func(status int, word string) {
			rw.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer error=%q, scope=%q, resource_metadata="%s/.well-known/oauth-protected-resource/mcp"`, word, need, mcp.URL))
			answer(rw, status, "{}")
		}
		claims, err := verified(guard, provider.Issuer, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		scope, _ := claims.Text("scope")
		switch {
		case err != nil || !claims.Audience(resource):
			challenge(401, "invalid_token")
		case oauth.Lacks(oauth.Scopes(scope), []string{need}):
			challenge(403, "insufficient_scope")
		default:
			answer(rw, 200, "{}")
		}
	}))
	mcp.TLS = &tls.Config{Certificates: []tls.Certificate{files.Pair}}
	mcp.StartTLS()
	t.Cleanup(mcp.Close)

	fetching := func(text string) error {
		jar, err := cookiejar.New(nil)
		if err != nil {
			return err
		}
		r, err := (&http.Client{Transport: transport, Jar: jar, Timeout: edgetest.Patience}).Get(text)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if text, _ := io.ReadAll(r.Body); !strings.Contains(string(text), "You are back.") {
			return fmt.Errorf("the last page is %.400s", text)
		}
		return nil
	}
	for _, test := range []struct {
		name, document string
		browse         func(*testing.T) func(string) error
	}{
		{"registered", "", func(*testing.T) func(string) error { return fetching }},
		{"document", mcp.URL + "/client.json", func(*testing.T) func(string) error { return fetching }},
		{"registered, in chromium", "", chromium},
	} {
		t.Run(test.name, func(t *testing.T) {
			logins, browse := 0, test.browse(t)
			store := storeOf(t)
			open := func() *login.Session {
				s, err := login.Open(login.Options{
					URL: mcp.URL + "/mcp", CallbackPort: login.AnyPort, ClientMetadataURL: test.document, Timeout: edgetest.Patience, Say: func(line string) { t.Log(line) },
					Browse: func(u string) error {
						if logins++; logins > 1 {
							return fetching(u) // a real browser is slow: once is enough
						}
						return browse(u)
					},
				}, store, guard, false)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			call := func(query string) {
				t.Helper()
				r, err := (&http.Client{Transport: &login.Transport{Session: open(), Base: transport}, Timeout: edgetest.Patience}).Post(mcp.URL+"/mcp"+query, plainJSON, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				if _ = r.Body.Close(); r.StatusCode != 200 {
					t.Fatalf("status %d", r.StatusCode)
				}
			}
			call("")
			before, _, err := store.Find(mcp.URL+"/mcp", login.Settings{})
			if err != nil || before.Tokens.Refresh == "" || (before.Client.ID == test.document) != (test.document != "") {
				t.Fatalf("kept %+v, %v", before.Client, err)
			}
			age(t, store, time.Now().Add(-time.Minute))
			call("")
			after, _, err := store.Find(mcp.URL+"/mcp", login.Settings{})
			if err != nil || after.Tokens.Access == before.Tokens.Access || logins != 1 {
				t.Errorf("it was not renewed: %v, %d logins", err, logins)
			}
			call("?more")
			if last, _, err := store.Find(mcp.URL+"/mcp", login.Settings{}); err != nil || logins != 2 || oauth.Lacks(last.Tokens.Scopes, []string{"tools:read", "tools:write"}) {
				t.Errorf("%v, %d logins, scopes %q", err, logins, last.Tokens.Scopes)
			}

			// Logged out, the refresh token is good for nothing at the provider either.
			last, _, err := store.Find(mcp.URL+"/mcp", login.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			ended, err := login.Logout(t.Context(), store, guard, mcp.URL+"/mcp", edgetest.Patience)
			if err != nil || len(ended) != 1 || !ended[0].Revoked {
				t.Fatalf("%+v, %v", ended, err)
			}
			form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {last.Tokens.Refresh}}
			as := oauth.NewTokenEndpoint(oauth.TokenOptions{URL: last.Endpoint, Trust: oauth.Named, Client: guard, ClientID: last.Client.ID, Method: oauth.AuthNone})
			var refusal *oauth.TokenError
			if _, err := as.Ask(t.Context(), form, oauth.Want{}); !errors.As(err, &refusal) || refusal.Code != "invalid_grant" {
				t.Errorf("a refresh token that was revoked: %v", err)
			}
		})
	}
}

// verified returns the claims of a token that an issuer has signed.
func verified(guard *oauth.Client, issuer, token string) (oauth.Object, error) {
	header, err := oauth.Header(edge.Secret(token))
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequest(http.MethodGet, issuer, nil)
	if err != nil {
		return nil, err
	}
	m, err := guard.Discover(r.Context(), issuer, oauth.Named, nil)
	if err != nil {
		return nil, err
	}
	answer, err := guard.Do(r.Context(), oauth.Request{URL: m.JWKSURI, Trust: oauth.Named})
	if err != nil {
		return nil, err
	}
	keys, err := oauth.ParseKeys(answer.Body)
	if err != nil {
		return nil, err
	}
	id, _ := header.Text("kid")
	alg, _ := header.Text("alg")
	key := keys.Find(id)
	if key == nil {
		return nil, &oauth.UnknownKeyError{Issuer: issuer}
	}
	payload, err := key.Verify(alg, []byte(token))
	if err != nil {
		return nil, err
	}
	return oauth.ParseObject(json.RawMessage(payload), 16)
}

// chromium opens pages in Debian's browser, which shows them to nobody.
func chromium(t *testing.T) func(string) error {
	program, err := exec.LookPath("chromium")
	edgetest.Need(t, err == nil, "there is no chromium: apt-get install chromium")
	return func(url string) error {
		home := t.TempDir()
		cmd := exec.CommandContext(t.Context(), program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
			"--ignore-certificate-errors", "--no-proxy-server", "--user-data-dir="+home, "--timeout=20000", "--dump-dom", url)
		cmd.Env = append(os.Environ(), "HOME="+home)
		out, err := cmd.Output()
		if err == nil && !strings.Contains(string(out), "You are back.") {
			err = fmt.Errorf("the last page is %.400s", out)
		}
		return err
	}
}

// TestProviderOfSeveral: of the logins to one server each session sends its own, with the scopes
// that it was made with, also when it is renewed.
func TestProviderOfSeveral(t *testing.T) {
	provider := idp.Start(t)
	guard := guarded(t, true)
	sent := make(chan string, 1)
	var mcp *httptest.Server
	mcp = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/mcp" {
			answer(rw, 200, map[string]any{"resource": mcp.URL + "/mcp", "authorization_servers": []string{provider.Issuer}})
			return
		}
		claims, err := verified(guard, provider.Issuer, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		if err != nil {
			rw.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer resource_metadata="%s/.well-known/oauth-protected-resource/mcp"`, mcp.URL))
			answer(rw, 401, "{}")
			return
		}
		scope, _ := claims.Text("scope")
		sent <- scope
		answer(rw, 200, "{}")
	}))
	t.Cleanup(mcp.Close)
	store := storeOf(t)
	asked := map[string][]string{"tools:read tools:write": {"openid", "offline_access", "tools:read", "tools:write"}, "tools:read": {"openid", "offline_access", "tools:read"}}
	open := func(scopes []string) *login.Session {
		o := login.Options{URL: mcp.URL + "/mcp", CallbackPort: login.AnyPort, Scopes: scopes, Timeout: edgetest.Patience, Browse: func(text string) error {
			_, err := edgetest.NewBrowser(nil).Walk(text, "")
			return err
		}}
		s, err := login.Open(o, store, guard, false)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for round := range 3 { // a login, what is kept of it, and what renews it
		for _, want := range []string{"tools:read tools:write", "tools:read"} {
			if status, err := get(t, open(asked[want]), mcp.URL+"/mcp"); status != 200 || err != nil {
				t.Fatalf("round %d, %s: status %d, %v", round, want, status, err)
			}
			if got := <-sent; got != want {
				t.Errorf("round %d: the session for %q sends a token for %q", round, want, got)
			}
		}
		all, err := store.List()
		if err != nil || len(all) != 2 || all[0].Client.ID == all[1].Client.ID {
			t.Fatalf("round %d: %d logins, %v", round, len(all), err)
		}
		if round == 1 {
			for _, k := range all {
				k.Tokens.Expires = time.Now().Add(-time.Minute)
				if err := store.Put(t.Context(), k); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if n := provider.Hits(t, "/reg"); n != 2 {
		t.Errorf("%d registrations", n)
	}
}
