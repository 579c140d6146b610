//go:build unix

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// signingIn is an example in which users sign in at a real provider, which speaks TLS with a
// CA of its own, and with a browser that agrees to everything.
func signingIn(t *testing.T, name string, p *idp.Provider, more ...string) *example {
	t.Helper()
	e := newExample(t, name, append(more,
		"issuerUrl: https://login.example.com", "issuerUrl: "+p.Issuer, "https://login.example.com", p.Issuer,
		"not-a-real-secret", idp.SSOClientSecret, "lientId: weir\n", "lientId: "+idp.SSOClientID+"\n")...)
	browse(t, e)
	e.write("ca.pem", string(p.CA))
	e.env = append(e.env, "WEIR_CA_BUNDLE=ca.pem", "SSL_CERT_FILE="+filepath.Join(e.dir, "ca.pem"))
	return e
}

// browse has commands open a browser that agrees to everything.
func browse(t *testing.T, e *example) {
	t.Helper()
	browser, err := exec.LookPath("visitor")
	if err != nil {
		t.Fatal(err)
	}
	e.env = append(e.env, "BROWSER="+browser, "XDG_CONFIG_HOME="+e.dir)
}

// TestExampleOfSignIn does what the README says, with a provider in place of the company's.
func TestExampleOfSignIn(t *testing.T) {
	signingIn(t, "sign-in", idp.StartTLS(t, idp.NewTLS(t))).follow()
}

// TestExampleOnOneMachine starts all of it on this machine, as make sign-in does, and has a
// command sign in by itself.
func TestExampleOnOneMachine(t *testing.T) {
	node, provider := idp.Node(t), edgetest.FreeAddress(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(provider, ":")
	e := newExample(t, "sign-in", "127.0.0.1:9400", provider, "IDP_PORT=9400", "IDP_PORT="+port, "idp=../..", "idp="+root, "$PWD/../../bin", filepath.Dir(node))
	browse(t, e)
	cmd := e.command("sh local.sh")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = edgetest.Patience
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // all that it started
		_ = cmd.Wait()
	})
	for _, at := range []string{provider, e.swap.Replace("127.0.0.1:9001"), e.swap.Replace("127.0.0.1:4483")} {
		edgetest.Until(t, "all that is started", func() bool {
			c, err := net.Dial("tcp", at)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
	}
	e.expect(e.swap.Replace("weir call http://127.0.0.1:4483/mcp demo_echo text=hello --auth"), []string{"hello"})
}

// TestExampleOfReplicas signs in over two edges, by hand and by what the README says.
func TestExampleOfReplicas(t *testing.T) {
	redis, hub, beside := kvtest.Redis(t, "--requirepass", "not-a-real-password"), edgetest.NewHub(t, "code"), edgetest.FreeAddress(t)
	company := idp.StartTLS(t, idp.NewTLS(t))
	e := signingIn(t, "sign-in-replicas", company, "127.0.0.1:6379", redis.Addr, "https://code.example.com", hub.URL, "clientId: weir\n          scopes", "insecureAllowHTTP: true\n          clientId: weir\n          scopes", "127.0.0.1:9003", beside)
	e.follow()
	if hub.Issued() == 0 {
		t.Error("nobody signed in at the second provider")
	}
	one, two := e.swap.Replace("127.0.0.1:4483"), e.swap.Replace("127.0.0.1:9002")
	v := edgetest.NewVisitor(t, "http://"+one, one, two)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(company.CA)
	v.Client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	got := v.Renew(v.SignIn(""))
	e.write("token", got.Access)
	for _, at := range []string{one, two} {
		e.expect("weir call http://"+at+"/mcp demo_echo text=both --bearer-token-file token", []string{"both"})
	}
	v.Revoke(got.Access)
}

// TestExampleOfUpstreamInject has the backend take nothing but tokens of its provider.
func TestExampleOfUpstreamInject(t *testing.T) {
	hub := edgetest.NewHub(t, "code")
	backend, taken := guarded(t, func(r *http.Request) bool {
		return strings.HasPrefix(r.Header.Get("Authorization"), "Bearer code-token-")
	}, bare)
	e := signingIn(t, "upstream-inject", idp.StartTLS(t, idp.NewTLS(t)), "https://code.example.com", hub.URL, "clientId: weir\n          scopes: [repo]", "insecureAllowHTTP: true\n          clientId: weir\n          scopes: [repo]",
		"remoteUrl: https://repositories.example.com/mcp", "allowPrivateEndpoint: true\n  remoteUrl: "+backend)
	e.follow()
	if taken.Load() != 1 {
		t.Errorf("%d calls with a token of the provider", taken.Load())
	}
}

// TestExampleOfXAA has the backend take nothing but tokens of the partner's provider.
func TestExampleOfXAA(t *testing.T) {
	files := idp.NewTLS(t)
	company, partner := idp.StartTLS(t, files), idp.StartTLS(t, files)
	const resource = "https://partner.example.com/mcp"
	company.Across(t, idp.Across{Issues: &idp.Issues{Audience: partner.Issuer, Resource: resource, Client: idp.ClientID, Scopes: []string{"tools"}}})
	partner.Across(t, idp.Across{Takes: &idp.Takes{Issuer: company.Issuer, Keys: company.Keys(), Resource: resource, Scopes: []string{"tools"}}})
	backend, taken := guarded(t, func(r *http.Request) bool {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		return ok && strings.Contains(claimsOf(token), partner.Issuer)
	}, bare)
	e := signingIn(t, "xaa", company, "https://login.partner.example.com", partner.Issuer, "weir-at-partner", idp.ClientID, "not-a-real-secret-either", idp.ClientSecret, "remoteUrl: "+resource, "allowPrivateEndpoint: true\n  remoteUrl: "+backend)
	e.follow()
	if taken.Load() != 1 {
		t.Errorf("%d calls with a token of the partner", taken.Load())
	}
}

// claimsOf are the claims of a JWT, as text.
func claimsOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	return string(text)
}

// TestRotationOfKeys does what the README of the authorization server says, between logins at
// both replicas: what was issued before goes on until its own key or secret is taken out.
func TestRotationOfKeys(t *testing.T) {
	redis, hub, beside := kvtest.Redis(t, "--requirepass", "not-a-real-password"), edgetest.NewHub(t, "code"), edgetest.FreeAddress(t)
	company := idp.StartTLS(t, idp.NewTLS(t))
	e := signingIn(t, "sign-in-replicas", company, "127.0.0.1:6379", redis.Addr, "https://code.example.com", hub.URL, "clientId: weir\n          scopes", "insecureAllowHTTP: true\n          clientId: weir\n          scopes", "127.0.0.1:9003", beside)
	e.follow()
	text, err := os.ReadFile("../../edge/authserver/README.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := strings.Split(e.swap.Replace(string(text)), "\n### ")[1:]
	if len(steps) != 4 {
		t.Fatalf("%d steps", len(steps))
	}
	one, two := e.swap.Replace("127.0.0.1:4483"), e.swap.Replace("127.0.0.1:9002")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(company.CA)
	visitor := func() *edgetest.Visitor {
		v := edgetest.NewVisitor(t, "http://"+one, one, two)
		v.Client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
		return v
	}
	good := func(what string, token edgetest.Granted) {
		t.Helper()
		e.write("token", token.Access)
		for _, at := range []string{one, two} {
			if out, err := e.command("weir call http://" + at + "/mcp demo_echo text=both --bearer-token-file token").CombinedOutput(); err != nil {
				t.Errorf("%s at %s: %v: %s", what, at, err, out)
			}
		}
	}
	kids := func(n int, first string) (now string) { // waits until both have read the files
		t.Helper()
		for _, at := range []string{e.swap.Replace("127.0.0.1:4484"), beside} {
			edgetest.Until(t, "the keys of the step", func() bool {
				var told struct{ AuthServer struct{ Kids []string } }
				out, err := e.command("weir status --json http://" + at).Output()
				ok := err == nil && json.Unmarshal(out, &told) == nil && len(told.AuthServer.Kids) == n && told.AuthServer.Kids[0] != first
				if ok {
					now = told.AuthServer.Kids[0]
				}
				return ok
			})
		}
		return now
	}

	// 1. New ones are there, the old ones make what is new.
	old := visitor()
	before := old.SignIn("")
	was := kids(1, "")
	e.run(steps[0])
	if kids(2, "") != was {
		t.Error("the new key signs before every replica has it")
	}
	good("a token of before", before)

	// 2. The new ones make what is new; all that was made before is good.
	e.run(steps[1])
	kids(2, was)
	good("a token of the old key", before)
	fresh := visitor()
	after := fresh.SignIn("")
	good("a token of the new key", after)
	before = old.Renew(before)
	good("a refreshed token of a client of the old secret", before)

	// 3. Without the old key.
	e.run(steps[2])
	kids(1, was)
	good("a token of the new key", before)

	// 4. Nobody who is registered under the old secret is signed in any longer.
	old.Revoke(before.Access)
	e.expect(e.swap.Replace("weir auth logout http://127.0.0.1:4483/mcp"), nil)
	e.run(steps[3])
	edgetest.Until(t, "the end of the old secret", func() bool {
		status, _ := old.Fetch("/oauth/token", url.Values{"grant_type": {"refresh_token"}, "client_id": {old.ID}, "refresh_token": {before.Refresh}})
		again, _ := old.Fetch("/oauth/token", url.Values{"grant_type": {"refresh_token"}, "client_id": {old.ID}, "refresh_token": {before.Refresh}})
		return status == http.StatusUnauthorized && again == status // at each of the two
	})
	good("whoever is registered under the new one", fresh.Renew(after))
}
