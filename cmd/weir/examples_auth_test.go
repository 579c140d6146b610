package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/cloud"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/edgetest/tokens"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/oauth"
)

// guarded is a backend that takes only what good lets pass.
func guarded(t *testing.T, good func(*http.Request) bool, open func(*http.Request) bool) (address string, taken *atomic.Int64) {
	t.Helper()
	to, err := url.Parse(edgetest.NewServer(t, edgetest.Modern).URL)
	if err != nil {
		t.Fatal(err)
	}
	taken = new(atomic.Int64)
	pass := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: to.Scheme, Host: to.Host}) }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ok := good(r)
		if !ok && !open(r) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if ok && r.Header.Get(mcp.HeaderMethod) == "tools/call" {
			taken.Add(1)
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return front.URL, taken
}

// TestExamplesOfCredentials does what the README of each strategy says, before a backend that
// takes that credential alone, and with a real identity provider where users have tokens: it
// speaks TLS with a CA of its own.
func TestExamplesOfCredentials(t *testing.T) {
	const edgeURL = "https://tools.example.com/mcp"
	at := func(backend string) []string {
		return []string{"remoteUrl: https://orders.example.com", "allowPrivateEndpoint: true\n  remoteUrl: " + backend}
	}
	none := func(*http.Request) bool { return false }
	for name, line := range map[string][2]string{
		"header-injection": {"X-Api-Key", "not-a-real-secret"},
		"bearer-token":     {"Authorization", "Bearer not-a-real-secret"},
	} {
		t.Run(name, func(t *testing.T) {
			backend, taken := guarded(t, func(r *http.Request) bool { return r.Header.Get(line[0]) == line[1] }, none)
			newExample(t, name, at(backend)...).follow()
			if taken.Load() != 1 {
				t.Errorf("%d calls with the credential", taken.Load())
			}
		})
	}

	p := idp.StartTLS(t, idp.NewTLS(t))
	company := []string{"issuer: https://login.example.com", fmt.Sprintf("issuer: %s\n    jwksAllowPrivateIP: true", p.Issuer)}
	alice := p.User(t, "alice", edgeURL, "tools:read").Access
	follow := func(t *testing.T, name string, ca []byte, more []string, swaps ...string) {
		e := newExample(t, name, append(swaps, company...)...)
		e.write("alice", alice)
		e.write("ca.pem", string(ca)+string(p.CA)) // both are known by --ca-bundle alone
		e.env = append(e.env, append(more, "WEIR_CA_BUNDLE=ca.pem")...)
		e.follow()
	}
	for name, rules := range map[string]tokens.Rules{
		"token-exchange": {Basic: true, Target: "https://orders.example.com", Scopes: []string{"orders.read"}},
		"obo":            {Scopes: []string{"api://orders/.default"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := map[string]string{"token-exchange": tokens.Exchange, "obo": tokens.OnBehalf}[name]
			rules.ID, rules.Secret, rules.Body, rules.Issuer, rules.Keys, rules.Audience, rules.Type = "edge", "not-a-real-secret", true, p.Issuer, p.Keys(), edgeURL, "access_token"
			s := tokens.Start(t, map[string]tokens.Rules{path: rules})
			s.Trust = p.CA
			backend, taken := guarded(t, func(r *http.Request) bool {
				token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
				return ok && token != alice && oauth.IsBearer(token)
			}, bare)
			follow(t, name, s.CA, nil, append(at(backend), "https://login.example.com/exchange", s.URL+tokens.Exchange, "https://directory.example.com", s.URL)...)
			if n := len(s.Seen(path)); taken.Load() < 1 || n < 2 {
				t.Errorf("%d calls with the credential, %d exchanges", taken.Load(), n)
			}
		})
	}
	t.Run("cloud-sts", func(t *testing.T) {
		c := cloud.Start(t, p.Issuer, p.Keys(), edgeURL, "arn:aws:iam::123456789012:role/orders-write")
		c.Trust = p.CA
		b := c.Before(t, edgetest.NewServer(t, edgetest.Modern).URL, "eu-west-1", "cloud-mcp", bare)
		follow(t, "cloud-sts", c.CA, []string{"WEIR_STS_ENDPOINT=" + c.URL}, at(b.URL)...)
		calls := 0
		for _, one := range b.Seen() {
			if one.Session != nil && one.Session.Subject == "alice" && one.Kind == "tools/call" {
				calls++
			} else if one.Header.Get("Authorization") != "" && one.Refused != "" {
				t.Errorf("%s: %s", one.Kind, one.Refused)
			}
		}
		if calls < 1 {
			t.Error("no call was signed")
		}
	})
}

// bare is a request without a credential: a personal backend is asked so by the edge itself.
func bare(r *http.Request) bool { return r.Header.Get("Authorization") == "" }
