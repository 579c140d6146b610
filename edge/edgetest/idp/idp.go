// Package idp is a real identity provider for tests: the npm package
// oidc-provider, started as a process on the loopback interface. It issues JWT
// and opaque access tokens for any resource, to a client on its own account and
// to users by the code flow, rotates its keys, introspects and revokes. Two of them are what
// access across applications needs: see Across.
package idp

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// What the provider knows the edge as: for introspection and with identity assertions, and
// where users log in for SSO. All have to be encoded in HTTP Basic (RFC 6749 §2.3.1).
const (
	ClientID        = "edge+1"
	ClientSecret    = "edge secret/1"
	SSOClientID     = "sso+1"
	SSOClientSecret = "sso secret/1"

	DoorClientID     = "door" // of an edge that users sign in at: see How
	DoorClientSecret = "door-secret"
)

// patience bounds everything that is asked of the provider.
const patience = 20 * time.Second

// Provider is a running identity provider.
type Provider struct {
	Issuer string // its URL
	CA     []byte // PEM of who vouches for it; nil without TLS

	client *http.Client
}

// Keys is the URL of its keys.
func (p *Provider) Keys() string { return p.Issuer + "/jwks" }

// Introspection is the URL of its introspection endpoint.
func (p *Provider) Introspection() string { return p.Issuer + "/token/introspection" }

// Start starts a provider that ends with the test. The test is skipped, or
// fails, where npm packages are missing: see edgetest.Need.
func Start(t testing.TB) *Provider {
	t.Helper()
	return StartAs(t, TLS{}, How{})
}

// StartTLS is Start with TLS, and with the URLs of documents as ids of clients.
func StartTLS(t testing.TB, files TLS) *Provider {
	t.Helper()
	return StartAs(t, files, How{})
}

// How is what a provider is besides. The zero value is what Start starts.
type How struct {
	// Host is the loopback address that it listens on; "" for 127.0.0.1. NewTLS vouches for
	// 127.0.0.2 as well: browsers keep the cookies of two hosts apart, and not those of two ports.
	Host string

	// Redirects are the redirect URIs of the client DoorClientID; none for no such client.
	Redirects []string

	// Page has users whom no login_hint names log in by a page with a form, whose
	// Content-Security-Policy has a form-action. Browsers hold to that what follows the form.
	Page Page

	// Life is how long access tokens live, in whole seconds; 0 for ten minutes.
	Life time.Duration
}

// Page is a form of login page, named by what its form is answered with.
type Page string

// The login pages.
const (
	NoPage       Page = ""
	RedirectPage Page = "redirect" // redirects; the policy lets them lead to this provider and to the client
	LeadingPage  Page = "lead"     // a page that leads on; the policy is form-action 'self'
)

// StartAs is StartTLS for any form of provider; without TLS where files are zero.
func StartAs(t testing.TB, files TLS, how How) *Provider {
	t.Helper()
	dir, node := find(t)
	edgetest.Need(t, node != "", "the npm packages of the identity provider are not installed: run npm ci in edge/edgetest/idp")

	ctx, stop := context.WithCancel(context.Background())
	cmd := peers.Command(ctx, node, filepath.Join(dir, "provider.mjs"))
	if files.Cert != "" {
		cmd.Env = append(cmd.Env, "IDP_CERT="+files.Cert, "IDP_KEY="+files.Key, "NODE_EXTRA_CA_CERTS="+files.CA)
	}
	redirects, err := json.Marshal(how.Redirects)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "IDP_HOST="+how.Host, "IDP_PAGE="+string(how.Page))
	if how.Redirects != nil {
		cmd.Env = append(cmd.Env, "IDP_REDIRECTS="+string(redirects))
	}
	if how.Life > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("IDP_LIFE=%d", int(how.Life.Seconds())))
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first := make(chan string, 1)
	read := make(chan struct{})
	go func() { // ends when the process does
		defer close(read)
		r := bufio.NewReader(out)
		line, _ := r.ReadString('\n') // an empty line says that it ended
		first <- line
		_, _ = io.Copy(io.Discard, r) // until its end, whatever that is
	}()
	t.Cleanup(func() {
		_ = in.Close() // asks it to end
		select {
		case <-read:
		case <-time.After(patience):
			t.Error("the identity provider did not end when it was asked to")
		}
		stop()
		<-read
		_ = cmd.Wait() // it may have been killed
	})
	p := &Provider{CA: files.Authority}
	if err := json.Unmarshal([]byte(edgetest.Receive(t, first, "the identity provider's issuer")), p); err != nil {
		t.Fatalf("identity provider: %v: %s", err, said.String())
	}
	transport := &http.Transport{Proxy: nil}
	if p.CA != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(p.CA)
	}
	t.Cleanup(transport.CloseIdleConnections)
	p.client = &http.Client{Timeout: patience, Transport: transport}
	return p
}

// Node is the node program that runs providers. The test is skipped, or fails, as by Start.
func Node(t testing.TB) string {
	t.Helper()
	_, node := find(t)
	edgetest.Need(t, node != "", "the npm packages of the identity provider are not installed: run npm ci in edge/edgetest/idp")
	return node
}

// find returns this package's folder and the node program that npm installed
// there; "" where its packages are not.
func find(t testing.TB) (dir, node string) {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	dir = filepath.Dir(file)
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "oidc-provider", "package.json")); err != nil {
		return dir, ""
	}
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	node = filepath.Join(dir, "node_modules", "node-"+runtime.GOOS+"-"+arch, "bin", "node")
	if _, err := os.Stat(node); err == nil {
		return dir, node
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return dir, ""
	}
	return dir, node
}

// Machine returns an access token for a client on its own account (RFC 6749
// §4.4). It is a JWT, or opaque for a resource whose name ends in /opaque.
func (p *Provider) Machine(t testing.TB, resource, scope string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "scope": {scope}, "resource": {resource}, "client_id": {"machine"}, "client_secret": {"machine-secret"}}
	return p.token(t, form).Access
}

// Tokens are what the code flow gives.
type Tokens struct {
	Access  string `json:"access_token"`
	ID      string `json:"id_token"`
	Refresh string `json:"refresh_token"`
}

// User returns tokens of a user, by the code flow with PKCE (RFC 7636).
func (p *Provider) User(t testing.TB, name, resource, scope string) Tokens {
	t.Helper()
	return p.user(t, name, url.Values{"client_id": {"app"}, "scope": {"openid offline_access " + scope}, "resource": {resource}}, nil)
}

// SSO returns tokens of a user who logs in at the client SSOClientID: its ID token is what
// Across takes.
func (p *Provider) SSO(t testing.TB, name string) Tokens {
	t.Helper()
	return p.user(t, name, url.Values{"client_id": {SSOClientID}, "scope": {"openid"}}, url.Values{"client_secret": {SSOClientSecret}})
}

// user is the code flow: what is asked for, and how the client proves itself.
func (p *Provider) user(t testing.TB, name string, ask, proof url.Values) Tokens {
	t.Helper()
	const verifier = "a-verifier-that-is-long-enough-to-be-one-0123456789"
	const callback = "http://127.0.0.1/callback"
	sum := sha256.Sum256([]byte(verifier))
	query := url.Values{
		"response_type": {"code"}, "redirect_uri": {callback}, "login_hint": {name}, "prompt": {"login consent"}, "state": {"state"}, "nonce": {"nonce"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}
	maps.Copy(query, ask)
	to, err := url.Parse(p.Browse(t, p.Issuer+"/auth?"+query.Encode(), callback))
	if err != nil || to.Query().Get("code") == "" {
		t.Fatalf("code flow: no code: %s", to)
	}
	form := url.Values{
		"grant_type": {"authorization_code"}, "client_id": ask["client_id"], "code": {to.Query().Get("code")}, "redirect_uri": {callback}, "code_verifier": {verifier},
	}
	if resource, ok := ask["resource"]; ok {
		form["resource"] = resource
	}
	maps.Copy(form, proof)
	return p.token(t, form)
}

// Browse goes where a browser is sent, with cookies of its own, until the provider sends it to
// an address that begins with a callback, and returns that.
func (p *Provider) Browse(t testing.TB, where, callback string) string {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := *p.client
	browser.Jar = jar // each user has a browser of its own
	browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for range 20 {
		resp, err := browser.Get(where)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16)) // for the message
		resp.Body.Close()
		to, err := resp.Location()
		if err != nil {
			t.Fatalf("code flow: %s: status %d: %s", where, resp.StatusCode, body)
		}
		if where = to.String(); strings.HasPrefix(where, callback) {
			return where
		}
	}
	t.Fatal("code flow: it does not end")
	return ""
}

func (p *Provider) token(t testing.TB, form url.Values) (all Tokens) {
	t.Helper()
	if err := json.Unmarshal(p.post(t, "/token", form), &all); err != nil || all.Access == "" {
		t.Fatalf("identity provider: no access token: %v", err)
	}
	return all
}

// Revoke revokes an opaque access token of Machine (RFC 7009).
func (p *Provider) Revoke(t testing.TB, token string) {
	t.Helper()
	p.post(t, "/token/revocation", url.Values{"token": {token}, "client_id": {"machine"}, "client_secret": {"machine-secret"}})
}

// Rotate makes a new key, of another type, sign from now on. The old keys stay
// published, unless forget holds.
func (p *Provider) Rotate(t testing.TB, forget bool) (kid string) {
	t.Helper()
	path := "/-/rotate"
	if forget {
		path += "?forget"
	}
	return string(p.post(t, path, nil))
}

// Down makes the provider break every connection, until Up.
func (p *Provider) Down(t testing.TB) { t.Helper(); p.post(t, "/-/down", nil) }

// Up ends Down.
func (p *Provider) Up(t testing.TB) { t.Helper(); p.post(t, "/-/up", nil) }

// Hits is how many requests came for a path, such as /jwks.
func (p *Provider) Hits(t testing.TB, path string) int {
	t.Helper()
	var hits map[string]int
	if err := json.Unmarshal(p.post(t, "/-/hits", nil), &hits); err != nil {
		t.Fatal(err)
	}
	return hits[path]
}

func (p *Provider) post(t testing.TB, path string, form url.Values) []byte {
	t.Helper()
	return p.send(t, path, "application/x-www-form-urlencoded", form.Encode())
}

func (p *Provider) send(t testing.TB, path, kind, text string) []byte {
	t.Helper()
	resp, err := p.client.Post(p.Issuer+path, kind, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(fmt.Errorf("identity provider: %s: status %d: %s: %w", path, resp.StatusCode, body, err))
	}
	return body
}
