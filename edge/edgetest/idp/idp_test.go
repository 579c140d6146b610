package idp_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
)

func TestMain(m *testing.M) { edgetest.Main(m) }

// TestProvider proves that the provider does what its methods say.
func TestProvider(t *testing.T) {
	p := idp.Start(t)
	jwt := p.Machine(t, "https://a.example/mcp", "tools:read")
	if strings.Count(jwt, ".") != 2 {
		t.Errorf("not a JWT: %d dots", strings.Count(jwt, "."))
	}
	if opaque := p.Machine(t, "https://a.example/opaque", "tools:read"); strings.Count(opaque, ".") != 0 {
		t.Errorf("not opaque: %d dots", strings.Count(opaque, "."))
	}
	user := p.User(t, "alice", "https://a.example/mcp", "tools:read")
	if strings.Count(user.Access, ".") != 2 || strings.Count(user.ID, ".") != 2 || user.Refresh == "" {
		t.Error("the code flow did not give an access token, an ID token and a refresh token")
	}
	first, second := p.Rotate(t, false), p.Rotate(t, true)
	if first == second || first == "" {
		t.Errorf("a rotation made no new key: %q, %q", first, second)
	}
	if n := p.Hits(t, "/token"); n != 3 {
		t.Errorf("%d requests for tokens were counted, not 3", n)
	}
}

// TestAcross proves that both grants of access across applications judge each thing
// themselves: a request that is right but for one thing is refused, for that.
func TestAcross(t *testing.T) {
	const resource = "https://backend.example.com"
	company, target := idp.Start(t), idp.Start(t)
	alice := company.SSO(t, "alice")
	issues := idp.Issues{Audience: target.Issuer, Resource: resource, Client: idp.ClientID, Scopes: []string{"a"}}
	takes := idp.Takes{Issuer: company.Issuer, Keys: company.Keys(), Resource: resource, Scopes: []string{"a"}}
	ask := func(p *idp.Provider, id, secret string, form url.Values) (token, why string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodPost, p.Issuer+"/token", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.SetBasicAuth(url.QueryEscape(id), url.QueryEscape(secret))
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport, Timeout: edgetest.Patience}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var said struct {
			Token string `json:"access_token"`
			Error string `json:"error"`
			Why   string `json:"error_description"`
		}
		if err := json.NewDecoder(resp.Body).Decode(&said); err != nil || (resp.StatusCode == http.StatusOK) != (said.Token != "") {
			t.Fatalf("status %d: %v", resp.StatusCode, err)
		}
		return said.Token, fmt.Sprint(said.Error, " ", said.Why)
	}
	type change = func(form url.Values, do *idp.Issues)
	exchange := func(c change) (string, string) {
		t.Helper()
		const urn = "urn:ietf:params:oauth:token-type:"
		form, do := url.Values{
			"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "requested_token_type": {urn + "id-jag"}, "subject_token_type": {urn + "id_token"},
			"subject_token": {alice.ID}, "audience": {target.Issuer}, "resource": {resource}, "scope": {"a"},
		}, issues
		if c != nil {
			c(form, &do)
		}
		company.Across(t, idp.Across{Issues: &do})
		return ask(company, idp.SSOClientID, idp.SSOClientSecret, form)
	}
	assert := func(assertion string, does *idp.Takes) (string, string) {
		t.Helper()
		target.Across(t, idp.Across{Takes: does})
		return ask(target, idp.ClientID, idp.ClientSecret, url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion}})
	}

	// 1. The identity provider.
	user := company.User(t, "alice", "https://a.example/mcp", "tools:read")
	for want, c := range map[string]change{
		"invalid_request an ID-JAG is given": func(f url.Values, _ *idp.Issues) {
			f.Set("subject_token_type", "urn:ietf:params:oauth:token-type:access_token")
		},
		"invalid_target resource":                    func(f url.Values, _ *idp.Issues) { f.Set("audience", "https://other.example") },
		"invalid_target resource indicator":          func(f url.Values, _ *idp.Issues) { f.Set("resource", "https://other.example") },
		"invalid_scope a scope":                      func(f url.Values, _ *idp.Issues) { f.Set("scope", "a b") },
		"invalid_grant subject_token: unexpected":    func(f url.Values, _ *idp.Issues) { f.Set("subject_token", user.Access) },
		`invalid_grant subject_token: unexpected "a`: func(f url.Values, _ *idp.Issues) { f.Set("subject_token", user.ID) },
		"invalid_grant subject_token: no applicable": func(f url.Values, _ *idp.Issues) { f.Set("subject_token", target.SSO(t, "alice").ID) },
		"invalid_grant subject_token: Invalid":       func(f url.Values, _ *idp.Issues) { f.Set("subject_token", alice.Access) },
	} {
		if token, why := exchange(c); token != "" || !strings.HasPrefix(why, want) {
			t.Errorf("%s: %s", want, why)
		}
	}

	// 2. The authorization server.
	lie := func(name string, value any) change {
		return func(_ url.Values, do *idp.Issues) { do.Claims = map[string]any{name: value} }
	}
	for want, c := range map[string]change{
		`unexpected "typ"`:       func(_ url.Values, do *idp.Issues) { do.Type = "at+jwt" },
		`unexpected "aud"`:       lie("aud", "https://other.example"),
		`"aud" of several`:       lie("aud", []string{target.Issuer, "https://other.example"}),
		`unexpected "iss"`:       lie("iss", "https://other.example"),
		`"client_id"`:            lie("client_id", "other"),
		`another "resource"`:     lie("resource", "https://other.example"),
		`"exp" claim timestamp`:  lie("exp", time.Now().Add(-time.Minute).Unix()),
		`"exp" is too far`:       lie("exp", time.Now().Add(6*time.Minute).Unix()),
		`missing required "jti"`: lie("jti", nil),
		`missing required "sub"`: lie("sub", nil),
		`missing required "exp"`: lie("exp", nil),
	} {
		assertion, why := exchange(c)
		if assertion == "" {
			t.Fatal(why)
		}
		if token, why := assert(assertion, &takes); token != "" || !strings.HasPrefix(why, "invalid_grant assertion: ") || !strings.Contains(why, want) {
			t.Errorf("%s: %s", want, why)
		}
	}
	assertion, why := exchange(nil)
	if assertion == "" {
		t.Fatal(why)
	}
	foreign := takes
	foreign.Keys = target.Keys()
	if token, why := assert(assertion, &foreign); token != "" || !strings.Contains(why, "no applicable key") {
		t.Error(why)
	}
	if token, why := assert(assertion[:len(assertion)-8]+"AAAAAAAA", &takes); token != "" || !strings.Contains(why, "signature verification failed") {
		t.Error(why)
	}
	if token, why := assert(assertion, nil); token != "" || !strings.HasPrefix(why, "invalid_grant") {
		t.Error(why)
	}
	if token, why := assert(assertion, &takes); strings.Count(token, ".") != 2 {
		t.Error(why)
	}
	if token, why := assert(assertion, &takes); token != "" || !strings.Contains(why, "has come before") {
		t.Error(why)
	}
}
