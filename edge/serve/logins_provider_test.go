//go:build unix

package serve_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/serve"
)

// company is an identity provider over TLS whose answers are of its own form. It takes programs
// that register themselves, and remembers what it was asked.
type company struct {
	*httptest.Server

	mu    sync.Mutex
	life  int // of an access token, in seconds
	n     int // access tokens issued
	nonce string
	ends  int64 // seconds after which ID tokens end
	next  bool  // refresh tokens stand where they do by RFC 6749
	asked map[string][]wanted

	signer *oauth.Signer // of ID tokens
}

// wanted is a request that a company had.
type wanted struct {
	method string
	head   http.Header
	form   url.Values
	json   map[string]any
}

func newCompany(t testing.TB) *company {
	key, err := oauth.NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	c := &company{life: 3600, ends: 300, asked: map[string][]wanted{}}
	if c.signer, err = oauth.NewSigner(key); err != nil {
		t.Fatal(err)
	}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	return c
}

func (c *company) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := wanted{method: r.Method, head: r.Header}
	if r.Header.Get("Content-Type") == "application/json" {
		_ = json.NewDecoder(r.Body).Decode(&a.json)
	} else {
		_ = r.ParseForm()
		a.form = r.Form
	}
	c.asked[r.URL.Path] = append(c.asked[r.URL.Path], a)
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/about":
		fmt.Fprintf(w, `{"issuer":%q,"registration_endpoint":"%s/programs","token_endpoint_auth_methods_supported":["client_secret_post"],"scopes_supported":["mail","files"]}`, c.URL, c.URL)
	case "/programs":
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"client_id":"made","client_secret":"s3cret-made"}`)
	case "/.well-known/openid-configuration":
		fmt.Fprintf(w, `{"issuer":%q,"authorization_endpoint":"%[1]s/auth","token_endpoint":"%[1]s/token","jwks_uri":"%[1]s/keys","response_types_supported":["code"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256"]}`, c.URL)
	case "/keys":
		_, _ = w.Write(oauth.KeysDocument([]*oauth.Signer{c.signer}))
	case "/auth":
		c.nonce = a.form.Get("nonce")
		http.Redirect(w, r, a.form.Get("redirect_uri")+"?"+url.Values{"state": a.form["state"], "code": {"x"}}.Encode(), http.StatusSeeOther)
	case "/token":
		c.n++
		now := time.Now().Unix()
		id, err := c.signer.Sign("JWT", fmt.Appendf(nil, `{"iss":%q,"aud":"edge","sub":"7","employee":"e-7","iat":%d,"exp":%d,"nonce":%q}`, c.URL, now, now+c.ends, c.nonce))
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		next := ""
		if c.next {
			next = fmt.Sprintf(`"refresh_token":"corp-refresh-%d","expires_in":%d,`, c.n, c.life)
		}
		fmt.Fprintf(w, `{"ok":true,`+next+`"access_token":"corp-token-%d","token_type":"Bearer","id_token":%q,"data":{"access":{"token":"corp-token-%[1]d","life":%[3]d},"next":"corp-refresh-%[1]d","may":["mail"],"user":{"id":"u-7","called":"Alice","mail":"alice@corp.example"}}}`, c.n, string(id), c.life)
	case "/me":
		fmt.Fprint(w, `{"uid":7,"sub":"nobody","called":"Alice","name":"nobody","mail":"alice@corp.example","email":"nobody@corp.example"}`)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// had are the requests of a path.
func (c *company) had(path string) []wanted {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked[path])
}

func (c *company) issues(life int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.life = life
}

// trusting has an edge trust the certificate of a server.
func trusting(t testing.TB, s *httptest.Server) edgetest.Option {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return edgetest.Settings(func(s *serve.Settings) { s.CABundle = file })
}

// claimsOf are those of a JWT, whose signature is for others to check.
func claimsOf(t testing.TB, token string) (all map[string]any) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("no JWT: %q", token)
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFieldsOfAProvider: an edge registers itself at a provider, by the endpoint or by the
// document that the operator names; finds the tokens in its answers, and in userinfo who it is.
func TestFieldsOfAProvider(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]struct{ dcr, scopes, asks string }{
		"registrationEndpoint": {`registrationEndpoint: "%s/programs"`, ", scopes: [mail]", "mail"},
		"discoveryUrl":         {`discoveryUrl: "%s/about"`, "", "mail files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, back := newCompany(t), edgetest.NewServer(t, edgetest.Modern)
			c.issues(3)
			auth := fmt.Sprintf(`{issuer: %q, upstreamProviders: [{name: corp, type: oauth2, oauth2Config: {authorizationEndpoint: "%[2]s/auth", tokenEndpoint: "%[2]s/token", redirectUri: "%[1]s/oauth/callback"%[3]s, additionalAuthorizationParams: {hint: blue}, dcrConfig: {%[4]s, initialAccessTokenRef: {name: corp, key: initial}, softwareId: weir-edge, softwareStatement: a.b.c}, tokenResponseMapping: {accessTokenPath: data.access.token, expiresInPath: data.access.life, refreshTokenPath: data.next, scopePath: data.may}, userInfo: {endpointUrl: "%[2]s/me", httpMethod: POST, additionalHeaders: {X-Version: "7"}, fieldMapping: {subjectFields: [id, uid], nameFields: [called], emailFields: [mail]}}}}]}`,
				loginIssuer, c.URL, form.scopes, fmt.Sprintf(form.dcr, c.URL))
			secret := "---\napiVersion: v1\nkind: Secret\nmetadata: {name: corp}\nstringData: {initial: s3cret-initial}\n"
			e := edgetest.Start(t, entrance(back, auth, `{type: upstreamInject, upstreamInject: {providerName: corp}}`)+secret, loopback(), trusting(t, c.Server))
			v := edgetest.NewVisitor(t, loginIssuer, e.Addr())
			v.Client.Transport = c.Client().Transport
			got := v.SignIn("")
			c.issues(3600)

			// 1. It registered itself once, and is who it was told to be.
			if all := c.had("/programs"); len(all) != 1 || all[0].head.Get("Authorization") != "Bearer s3cret-initial" || all[0].json["software_id"] != "weir-edge" || all[0].json["software_statement"] != "a.b.c" || all[0].json["scope"] != form.asks || fmt.Sprint(all[0].json["redirect_uris"]) != "["+loginIssuer+"/oauth/callback]" {
				t.Errorf("registrations: %+v", all)
			}
			if all := c.had("/auth"); len(all) != 1 || all[0].form.Get("client_id") != "made" || all[0].form.Get("scope") != form.asks || all[0].form.Get("hint") != "blue" {
				t.Errorf("logins: %+v", all)
			}
			byHead := "Basic " + base64.StdEncoding.EncodeToString([]byte("made:s3cret-made"))
			if all := c.had("/token"); len(all) != 1 || (name == "discoveryUrl") != (all[0].form.Get("client_secret") == "s3cret-made") || (name == "discoveryUrl") == (all[0].head.Get("Authorization") == byHead) {
				t.Errorf("redemptions: %+v", all)
			}

			// 2. Who the user is.
			if all := c.had("/me"); len(all) != 1 || all[0].method != http.MethodPost || all[0].head.Get("X-Version") != "7" || all[0].head.Get("Authorization") != "Bearer corp-token-1" {
				t.Errorf("userinfo: %+v", all)
			}
			if who := claimsOf(t, got.Access); who["sub"] != "corp:7" || who["name"] != "Alice" || who["email"] != "alice@corp.example" {
				t.Errorf("the user is %v", who)
			}

			// 3. Its tokens: the lifetime is read, and the refresh token is used.
			client := e.NewClient()
			edgetest.Until(t, "a new token of the provider", func() bool {
				if r := calls(client, "/mcp", got.Access); r.Status != http.StatusOK {
					t.Fatalf("status %d: %s", r.Status, r.Body)
				}
				all := sent(back)
				return all[len(all)-1] == "Bearer corp-token-2"
			})
			if all := c.had("/token"); len(all) != 2 || all[1].form.Get("grant_type") != "refresh_token" || all[1].form.Get("refresh_token") != "corp-refresh-1" {
				t.Errorf("the refresh: %+v", all)
			}
			if n := len(c.had("/programs")); n != 1 {
				t.Errorf("%d registrations", n)
			}
		})
	}
}

// TestWhoIsIt: an operator says where a provider's answers name the user: in the claims of the ID
// token with userinfo beside, or in the answer with the tokens.
func TestWhoIsIt(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]struct{ provider, sub string }{
		"oidcConfig":        {`type: oidc, oidcConfig: {issuerUrl: "%[1]s", clientId: edge, clientSecretRef: {name: corp, key: secret}, scopes: [openid, mail], additionalAuthorizationParams: {hint: blue}, subjectClaim: employee, redirectUri: "%[2]s/oauth/callback", userInfoOverride: {endpointUrl: "%[1]s/me", httpMethod: POST, additionalHeaders: {X-Version: "7"}, fieldMapping: {subjectFields: [uid], nameFields: [called], emailFields: [mail]}}}`, "corp:e-7"},
		"identityFromToken": {`type: oauth2, oauth2Config: {authorizationEndpoint: "%[1]s/auth", tokenEndpoint: "%[1]s/token", clientId: edge, redirectUri: "%[2]s/oauth/callback", identityFromToken: {subjectPath: data.user.id, namePath: data.user.called, emailPath: data.user.mail}}`, "corp:u-7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, back := newCompany(t), edgetest.NewServer(t, edgetest.Modern)
			auth := fmt.Sprintf(`{issuer: %q, upstreamProviders: [{name: corp, %s}]}`, loginIssuer, fmt.Sprintf(form.provider, c.URL, loginIssuer))
			secret := "---\napiVersion: v1\nkind: Secret\nmetadata: {name: corp}\nstringData: {secret: s3cret-edge}\n"
			e := edgetest.Start(t, entrance(back, auth, `{type: unauthenticated}`)+secret, loopback(), trusting(t, c.Server))
			v := edgetest.NewVisitor(t, loginIssuer, e.Addr())
			v.Client.Transport = c.Client().Transport
			if who := claimsOf(t, v.SignIn("").Access); who["sub"] != form.sub || who["name"] != "Alice" || who["email"] != "alice@corp.example" {
				t.Errorf("the user is %v", who)
			}
			if name != "oidcConfig" {
				return
			}
			if all := c.had("/auth"); len(all) != 1 || all[0].form.Get("scope") != "openid mail" || all[0].form.Get("hint") != "blue" {
				t.Errorf("logins: %+v", all)
			}
			if all := c.had("/me"); len(all) != 1 || all[0].method != http.MethodPost || all[0].head.Get("X-Version") != "7" {
				t.Errorf("userinfo: %+v", all)
			}
		})
	}
}

// TestScopePath: what stands where the operator says the scopes are has to be scopes.
func TestScopePath(t *testing.T) {
	t.Parallel()
	c, back := newCompany(t), edgetest.NewServer(t, edgetest.Modern)
	auth := fmt.Sprintf(`{issuer: %q, upstreamProviders: [{name: corp, type: oauth2, oauth2Config: {authorizationEndpoint: "%[2]s/auth", tokenEndpoint: "%[2]s/token", clientId: edge, redirectUri: "%[1]s/oauth/callback", tokenResponseMapping: {accessTokenPath: data.access.token, scopePath: ok}}}]}`, loginIssuer, c.URL)
	e := edgetest.Start(t, entrance(back, auth, `{type: unauthenticated}`), loopback(), trusting(t, c.Server))
	v := edgetest.NewVisitor(t, loginIssuer, e.Addr())
	v.Client.Transport = c.Client().Transport
	v.Register()
	to, err := v.Walk(v.Asks(""), edgetest.VisitorCallback)
	if err != nil {
		t.Fatal(err)
	}
	if u, err := url.Parse(to); err != nil || u.Query().Get("error") != "server_error" {
		t.Errorf("the answer is %s", to)
	}
	if !strings.Contains(e.Log(), "the scope: it is no text") {
		t.Errorf("the log does not say why: %s", e.Log())
	}
}

// TestScopesGranted: where a provider grants fewer scopes than it was asked for, the log says which
// are missing, once the answer says so at scopePath; the user is signed in.
func TestScopesGranted(t *testing.T) {
	t.Parallel()
	c, back := newCompany(t), edgetest.NewServer(t, edgetest.Modern)
	auth := fmt.Sprintf(`{issuer: %q, upstreamProviders: [{name: corp, type: oauth2, oauth2Config: {authorizationEndpoint: "%[2]s/auth", tokenEndpoint: "%[2]s/token", clientId: edge, scopes: [mail, files], redirectUri: "%[1]s/oauth/callback", tokenResponseMapping: {accessTokenPath: data.access.token, scopePath: data.may}}}]}`, loginIssuer, c.URL)
	e := edgetest.Start(t, entrance(back, auth, `{type: unauthenticated}`), loopback(), trusting(t, c.Server))
	v := edgetest.NewVisitor(t, loginIssuer, e.Addr())
	v.Client.Transport = c.Client().Transport
	v.SignIn("")
	if log := e.Log(); !strings.Contains(log, "granted fewer scopes") || !strings.Contains(log, "missing=files") {
		t.Errorf("the log does not say what is missing: %s", log)
	}
}

// TestDocumentsAreKept: a metadata document of a client is fetched anew when cacheFallbackTtl is
// over, and when more than cacheMaxSize others were used since.
func TestDocumentsAreKept(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	hits := map[string]int{}
	var docs *httptest.Server
	docs = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		hits[r.URL.Path]++
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"client_id":%q,"redirect_uris":[%q],"grant_types":["authorization_code","refresh_token"]}`, docs.URL+r.URL.Path, edgetest.VisitorCallback)
	}))
	t.Cleanup(docs.Close)
	fetched := func(path string) int {
		mu.Lock()
		defer mu.Unlock()
		return hits[path]
	}
	start := func(t *testing.T, cimd string) *edgetest.Visitor {
		h, back := edgetest.NewHub(t, "hub"), edgetest.NewServer(t, edgetest.Modern)
		e := edgetest.Start(t, entrance(back, embedded(", cimd: {enabled: true, "+cimd+"}", h), `{type: unauthenticated}`), loopback(), trusting(t, docs))
		return edgetest.NewVisitor(t, loginIssuer, e.Addr())
	}
	t.Run("cacheFallbackTtl", func(t *testing.T) {
		v := start(t, "cacheFallbackTtl: 3s")
		v.ID = docs.URL + "/life"
		edgetest.Until(t, "another fetch", func() bool {
			v.Fetch(strings.TrimPrefix(v.Asks(""), loginIssuer), nil) // it may be told to wait
			return fetched("/life") >= 2
		})
	})
	t.Run("cacheMaxSize", func(t *testing.T) {
		v := start(t, "cacheMaxSize: 2, cacheFallbackTtl: 1h")
		for _, path := range strings.Fields("/a /b /a /c /a /b") { // /c took the place of /b
			v.ID = docs.URL + path
			v.SignIn("")
		}
		if a, b, c := fetched("/a"), fetched("/b"), fetched("/c"); a != 1 || b != 2 || c != 1 {
			t.Errorf("fetches of /a, /b and /c: %d, %d, %d", a, b, c)
		}
	})
}

// TestIDTokenThatHasEnded: what a credential is made of is an ID token that has not ended. One that
// has is renewed, though the access token beside it is good; where it cannot be, the client is asked
// to sign in, and the backends that take the access token go on.
func TestIDTokenThatHasEnded(t *testing.T) {
	t.Parallel()
	for name, renews := range map[string]bool{"renewed": true, "no refresh token": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, back, other := newCompany(t), edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Modern)
			c.ends, c.next = 2, renews
			var mu sync.Mutex
			var ends []float64 // of the ID tokens that the token service was shown
			sts := newExchange(t, func(r *http.Request) string {
				mu.Lock()
				defer mu.Unlock()
				end, _ := claimsOf(t, r.PostFormValue("subject_token"))["exp"].(float64)
				ends = append(ends, end)
				return "exchanged"
			})
			auth := fmt.Sprintf(`{issuer: %q, upstreamProviders: [{name: corp, type: oidc, oidcConfig: {issuerUrl: %q, clientId: edge, redirectUri: "%[1]s/oauth/callback"}}]}`, loginIssuer, c.URL)
			yaml := entrance(back, auth, fmt.Sprintf(`{type: tokenExchange, tokenExchange: {tokenUrl: %q, audience: other, subjectTokenType: id_token, subjectProviderName: corp}}`, sts.URL)) + fmt.Sprintf(`---
apiVersion: weir.dev/v1beta1
kind: MCPServerEntry
metadata: {name: other}
spec: {groupRef: {name: tools}, remoteUrl: %q, transport: streamable-http, allowPrivateEndpoint: true, externalAuthConfigRef: {name: inject}}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: inject}
spec: {type: upstreamInject, upstreamInject: {providerName: corp}}
`, other.URL)
			yaml = strings.Replace(yaml, "conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [back]}", "conflictResolution: prefix, conflictResolutionConfig: {prefixFormat: '{workload}_'}", 1)
			e := edgetest.Start(t, yaml, loopback(), trusting(t, c.Server))
			v := edgetest.NewVisitor(t, loginIssuer, e.Addr())
			v.Client.Transport = c.Client().Transport
			got := v.SignIn("")
			over := time.Now().Add(2 * time.Second)
			edgetest.Until(t, "the ID token to end", func() bool { return time.Now().After(over) })

			client := e.NewClient()
			call := func(tool string) int {
				one := caller{Client: client}
				body, head := one.message("1", "tools/call", edgetest.CallParams(tool, `{"text":"x"}`))
				return client.Post(body, append(head, "Authorization", "Bearer "+got.Access)...).Status
			}
			want, asked := http.StatusOK, 2
			if !renews {
				want, asked = http.StatusUnauthorized, 1
			}
			if status := call("back_echo"); status != want {
				t.Errorf("status %d, want %d", status, want)
			}
			if n := len(c.had("/token")); n != asked {
				t.Errorf("the provider was asked for tokens %d times, want %d", n, asked)
			}
			mu.Lock()
			if (len(ends) == 1 && ends[0] > float64(over.Unix())) != renews || len(ends) > 1 {
				t.Errorf("the token service was shown ID tokens that end at %v, after %d", ends, over.Unix())
			}
			mu.Unlock()
			if status := call("other_echo"); status != http.StatusOK {
				t.Errorf("a backend that takes the access token: status %d", status)
			}
			status, text := v.Fetch("/oauth/token", url.Values{"grant_type": {"refresh_token"}, "client_id": {v.ID}, "refresh_token": {got.Refresh}})
			if renews && status != http.StatusOK || !renews && (status != http.StatusBadRequest || !strings.Contains(text, `"invalid_grant"`)) {
				t.Errorf("the client's refresh: status %d: %s", status, text)
			}
		})
	}
}
