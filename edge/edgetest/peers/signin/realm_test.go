package signin_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/serve"
)

var background = context.Background()

// realm is an edge over TLS, which is an authorization server before one backend, and the two
// providers at which it has users sign in.
type realm struct {
	*edgetest.Edge
	t         *testing.T
	base      string // its issuer
	corp, hub *idp.Provider
	back      *edgetest.Server
	web       *http.Client // of programs: it trusts the CA and follows nothing
}

// how is what a realm is besides. The zero value has two providers with pages of the two
// forms, and keeps what it knows in memory.
type how struct {
	one     bool          // corp alone
	life    time.Duration // of access tokens of hub
	pages   [2]idp.Page   // of corp and hub; NoPage for one that asks nobody
	storage string        // YAML of authServerConfig.storage; "" for memory
	secrets string        // documents of secrets
	keys    string        // the secret of them that has a signing key "key" and an "hmac"; "" for those of the process
	dev     bool          // documents of clients may lie on this machine
}

// newRealm starts one. Its pages are at https://localhost, those of the providers at 127.0.0.1
// and 127.0.0.2: three sites, as far as browsers are concerned.
func newRealm(t *testing.T, h how) *realm {
	t.Helper()
	_, files := need(t)
	addr := edgetest.FreeAddress(t)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	r := &realm{t: t, base: "https://localhost:" + port, back: edgetest.NewServer(t, edgetest.Modern)}
	callbacks := []string{r.base + "/oauth/callback"}
	r.corp = idp.StartAs(t, files, idp.How{Redirects: callbacks, Page: h.pages[0]})
	injects := "corp"
	if !h.one {
		r.hub = idp.StartAs(t, files, idp.How{Host: "127.0.0.2", Redirects: callbacks, Page: h.pages[1], Life: h.life})
		injects = "hub"
	}
	r.web = program(t, files)
	r.Edge = edgetest.Start(t, r.manifest(h, injects), edgetest.Settings(func(s *serve.Settings) {
		s.Listen, s.TLSCert, s.TLSKey, s.CABundle, s.DevLoopback = addr, files.Cert, files.Key, files.CA, h.dev
	}))
	return r
}

func (r *realm) manifest(h how, injects string) string {
	one := func(name, kind, members string) string {
		return fmt.Sprintf(`
    - {name: %s, type: %s, %sConfig: {clientId: %s, clientSecretRef: {name: providers, key: secret}, redirectUri: %q, scopes: [openid, offline_access], additionalAuthorizationParams: {prompt: consent}, %s}}`,
			name, kind, kind, idp.DoorClientID, r.base+"/oauth/callback", members)
	}
	providers := one("corp", "oidc", fmt.Sprintf("issuerUrl: %q", r.corp.Issuer))
	if r.hub != nil {
		providers += one("hub", "oauth2", fmt.Sprintf("authorizationEndpoint: %q, tokenEndpoint: %q, userInfo: {endpointUrl: %q}", r.hub.Issuer+"/auth", r.hub.Issuer+"/token", r.hub.Issuer+"/me"))
	}
	more := ""
	if h.storage != "" {
		more = "\n    storage: " + h.storage
	}
	if h.keys != "" {
		more += fmt.Sprintf("\n    signingKeySecretRefs: [{name: %s, key: key}]\n    hmacSecretRefs: [{name: %[1]s, key: hmac}]", h.keys)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: providers}
stringData: {secret: %q}
---
%sapiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: own}
spec: {type: inline, inline: {issuer: %[3]q}}
---
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: tools}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: injected}
spec: {type: upstreamInject, upstreamInject: {providerName: %[4]s}}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: tools}
spec:
  groupRef: {name: tools}
  incomingAuth: {type: oidc, oidcConfigRef: {name: own, audience: "%[3]s/mcp"}}
  authServerConfig:
    issuer: %[3]q
    cimd: {enabled: true}%[5]s
    upstreamProviders:%[6]s
  outgoingAuth: {source: inline, backends: {back: {type: externalAuthConfigRef, externalAuthConfigRef: {name: injected}}}}
  config:
    aggregation: {conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [back]}}
    backends: [{name: back, url: %[7]q, transport: streamable-http}]
`, idp.DoorClientSecret, h.secrets, r.base, injects, more, providers, r.back.URL)
}

// program is the HTTP client of a program.
func program(t *testing.T, files idp.TLS) *http.Client {
	transport := &http.Transport{Proxy: nil, TLSClientConfig: &tls.Config{RootCAs: x509.NewCertPool()}}
	transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(files.Authority)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: edgetest.Patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// send sends what a program does, and reads a JSON answer where there is one.
func (r *realm) send(method, url, kind, body string, header ...string) (status int, head http.Header, all map[string]any) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.web.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if bytes.HasPrefix(text, []byte("{")) {
		if err := json.Unmarshal(text, &all); err != nil {
			r.t.Fatal(err)
		}
	}
	return resp.StatusCode, resp.Header, all
}

func (r *realm) post(path string, form url.Values) (status int, all map[string]any) {
	r.t.Helper()
	status, _, all = r.send(http.MethodPost, r.base+path, "application/x-www-form-urlencoded", form.Encode())
	return status, all
}

// call calls a tool with a token; "" for none.
func (r *realm) call(token string) (status int, head http.Header) {
	r.t.Helper()
	body, more := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", `{"a":1}`), edgetest.Meta())
	more = append(more, "Accept", "application/json, text/event-stream")
	if token != "" {
		more = append(more, "Authorization", "Bearer "+token)
	}
	status, head, _ = r.send(http.MethodPost, r.base+"/mcp", "application/json", body, more...)
	return status, head
}

// app is a client that has registered itself.
type app struct {
	*realm
	id, redirect string
	verifier     string
}

// register registers a client. redirect is where its answers go.
func (r *realm) register(name, redirect string) *app {
	r.t.Helper()
	text, err := json.Marshal(map[string]any{"client_name": name, "redirect_uris": []string{redirect}, "grant_types": []string{"authorization_code", "refresh_token"}})
	if err != nil {
		r.t.Fatal(err)
	}
	var all map[string]any
	edgetest.Until(r.t, "a registration", func() bool { // the edge bounds how many come at once
		var status int
		status, _, all = r.send(http.MethodPost, r.base+"/oauth/register", "application/json", string(text))
		return status == http.StatusCreated
	})
	id, _ := all["client_id"].(string)
	return r.app(id, redirect)
}

// app is a client that is known by an id.
func (r *realm) app(id, redirect string) *app {
	return &app{realm: r, id: id, redirect: redirect, verifier: strings.Repeat("verifier-", 6)}
}

// asks is the address that the client sends its user to. A state is what it will know the
// answer by.
func (a *app) asks(state string, more ...string) string {
	sum := sha256.Sum256([]byte(a.verifier))
	q := url.Values{
		"client_id": {a.id}, "redirect_uri": {a.redirect}, "response_type": {"code"}, "state": {state}, "resource": {a.base + "/mcp"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}
	for i := 0; i < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return a.base + "/oauth/authorize?" + q.Encode()
}

// tokens are what a client is issued.
type tokens struct{ access, refresh, id string }

// redeems takes the tokens for what came back.
func (a *app) redeems(back string) tokens {
	a.t.Helper()
	return a.asked(url.Values{"grant_type": {"authorization_code"}, "code": {a.answered(back).Get("code")}, "redirect_uri": {a.redirect}, "code_verifier": {a.verifier}})
}

// refreshes takes new tokens.
func (a *app) refreshes(refresh string) tokens {
	a.t.Helper()
	return a.asked(url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh}})
}

func (a *app) asked(form url.Values) tokens {
	a.t.Helper()
	form.Set("client_id", a.id)
	status, all := a.post("/oauth/token", form)
	if status != http.StatusOK {
		a.t.Fatalf("token: status %d: %v", status, all)
	}
	text := func(name string) string { s, _ := all[name].(string); return s }
	return tokens{text("access_token"), text("refresh_token"), text("id_token")}
}

// answered is the query of what came back, held to the issuer (RFC 9207).
func (a *app) answered(back string) url.Values {
	a.t.Helper()
	u, err := url.Parse(back)
	if err != nil {
		a.t.Fatal(err)
	}
	q := u.Query()
	if q.Get("iss") != a.base {
		a.t.Fatalf("the answer is of the issuer %q: %s", q.Get("iss"), back)
	}
	return q
}

// site is a web server of somebody else's.
type site struct {
	*httptest.Server
	mu   sync.Mutex
	all  []*url.URL // that were asked for
	page map[string]string
}

// newSite starts one that answers each path with a page, or with JSON where that is what was put.
func newSite(t *testing.T, https bool) *site {
	s := &site{page: map[string]string{}}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.all = append(s.all, r.URL)
		text, ok := s.page[r.URL.Path]
		s.mu.Unlock()
		if !ok {
			text = "<p>You are back."
		}
		if strings.HasPrefix(text, "{") {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, text)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, `<!DOCTYPE html><html lang="en"><title>Somebody else</title><link rel="icon" href="data:,">`+text)
	})
	s.Server = httptest.NewUnstartedServer(h)
	if https {
		_, files := need(t)
		s.Server.TLS = secure(files)
		s.Server.StartTLS()
	} else {
		s.Server.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// on is the URL of the site by a name of its own, which this browser takes for it.
func (s *site) on(host string) string {
	u, err := url.Parse(s.URL)
	if err != nil {
		panic(err)
	}
	u.Host = net.JoinHostPort(host, u.Port())
	return u.String()
}

func (s *site) put(path, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.page[path] = text
}

// claims are those of a token, which nobody has verified.
func claims(t *testing.T, token string) (all map[string]any) {
	t.Helper()
	part := strings.Split(token, ".")
	if len(part) != 3 {
		t.Fatalf("no JWT: %.20s", token)
	}
	text, err := base64.RawURLEncoding.DecodeString(part[1])
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return maps.Clone(all)
}

// allow is the button of the consent page, and what a user writes at the providers.
const allow, deny = `button[value=allow]`, `button[value=deny]`

// logIn is a user at the page of a provider.
func (p *tab) logIn(at *idp.Provider, as string) {
	p.t.Helper()
	p.at(at.Issuer)
	p.write("input[name=user]", as)
	p.click("button[value=yes]")
}

// read is the text of an answer.
func read(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// formRequest is a form that a page of the same site posts.
func formRequest(t *testing.T, to string, form url.Values) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	return req
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	edgetest.Until(t, what, done)
}

// Kinds of signing keys.
const ecKey, rsaKey, edKey = "EC", "RSA", "Ed25519"

// newKey makes a private key in PEM.
func newKey(t *testing.T, kind string) string {
	t.Helper()
	var key any
	var err error
	switch kind {
	case ecKey:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case rsaKey:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case edKey:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}
