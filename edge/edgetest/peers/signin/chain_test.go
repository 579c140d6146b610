package signin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/edgetest/peers/signin"
)

// forms are the pages of providers whose policies hold a browser to a form-action.
var forms = [2]idp.Page{idp.RedirectPage, idp.RedirectPage}

// TestChain is all of it, with two providers over TLS: a client that knows nothing is told
// where tokens are, registers itself, and has its user agree and log in; its calls reach the
// backend with a provider's token, which is renewed; revoked, the token is worth nothing.
func TestChain(t *testing.T) {
	r := newRealm(t, how{life: 3 * time.Second, pages: forms})
	program := newSite(t, true)

	// 1. 401, then metadata.
	status, head := r.call("")
	_, where, ok := strings.Cut(head.Get("WWW-Authenticate"), `resource_metadata="`)
	if where, _, _ = strings.Cut(where, `"`); status != http.StatusUnauthorized || !ok {
		t.Fatalf("status %d: %v", status, head)
	}
	_, _, resource := r.send(http.MethodGet, where, "", "")
	if list, _ := resource["authorization_servers"].([]any); len(list) != 1 || list[0] != r.base || resource["resource"] != r.base+"/mcp" {
		t.Fatalf("metadata of the resource: %v", resource)
	}
	_, _, server := r.send(http.MethodGet, r.base+"/.well-known/oauth-authorization-server", "", "")
	if server["issuer"] != r.base || server["authorization_endpoint"] != r.base+"/oauth/authorize" || server["registration_endpoint"] != r.base+"/oauth/register" {
		t.Fatalf("metadata of the server: %v", server)
	}

	// 2. Registration, consent, both logins, and back.
	a := r.register("Walker", program.on("client.example")+"/cb")
	olga := newUser(t, signin.Look{})
	p := olga.tab()
	p.open(a.asks("chain-state", "scope", "openid offline_access"))
	if text := p.text(); !strings.Contains(text, "Walker") || !strings.Contains(text, "client.example") || !strings.Contains(text, r.base+"/mcp") || !strings.Contains(text, "corp") || !strings.Contains(text, "hub") {
		t.Errorf("the consent page says %s", text)
	}
	for _, c := range olga.cookies() {
		if c.Domain == "localhost" && (!strings.HasPrefix(c.Name, "__Host-weir-form-") || !c.Secure || !c.HTTPOnly || c.SameSite != "Strict" || c.Path != "/") {
			t.Errorf("before Allow there is the cookie %+v", c)
		}
	}
	p.click(allow)
	p.logIn(r.corp, "olga")
	p.logIn(r.hub, "olga-at-hub")
	back := p.at(a.redirect)
	if got := a.answered(back); got.Get("state") != "chain-state" || got.Get("error") != "" {
		t.Fatalf("the answer is %v", got)
	}
	for _, c := range olga.cookies() {
		if strings.Contains(c.Name, "weir-") {
			t.Errorf("after the login there is the cookie %s", c.Name)
		}
	}
	quiet(t, p)

	// 3. Tokens, and a call with the upstream's.
	first := a.redeems(back)
	if c := claims(t, first.access); c["sub"] != "corp:olga" || c["iss"] != r.base || c["aud"] != r.base+"/mcp" {
		t.Errorf("the access token says %v", c)
	}
	sent := func(token string) string {
		t.Helper()
		r.back.Forget()
		if status, head := r.call(token); status != http.StatusOK {
			t.Fatalf("a call: status %d: %v", status, head)
		}
		return r.back.Await("tools/call", 1).Header.Get("Authorization")
	}
	upstreams := sent(first.access)
	if !strings.HasPrefix(upstreams, "Bearer ") || strings.Contains(upstreams, first.access) {
		t.Errorf("the backend was sent %q", upstreams)
	}

	// 4. A refresh, and one of the upstream's token by itself.
	second := a.refreshes(first.refresh)
	if second.access == first.access || second.refresh == first.refresh {
		t.Error("a refresh changes nothing")
	}
	edgetest.Until(t, "another token of the upstream", func() bool {
		now := sent(second.access)
		return now != upstreams && strings.HasPrefix(now, "Bearer ")
	})
	if n := r.hub.Hits(t, "/token"); n < 2 {
		t.Errorf("hub was asked %d times for tokens", n)
	}

	// 5. The end.
	if status, all := r.post("/oauth/revoke", url.Values{"client_id": {a.id}, "token": {second.refresh}}); status != http.StatusOK {
		t.Errorf("revoke: status %d: %v", status, all)
	}
	for _, token := range []string{first.access, second.access} {
		if status, _ := r.call(token); status != http.StatusUnauthorized {
			t.Errorf("after the revocation: status %d", status)
		}
	}
	if status, all := r.post("/oauth/token", url.Values{"client_id": {a.id}, "grant_type": {"refresh_token"}, "refresh_token": {second.refresh}}); status != http.StatusBadRequest || all["error"] != "invalid_grant" {
		t.Errorf("a refresh after the revocation: status %d: %v", status, all)
	}
}

// quiet holds a tab to a console that was told nothing: no report of a policy above all. That
// a site has no icon is not told by any page.
func quiet(t *testing.T, p *tab) {
	t.Helper()
	for _, said := range p.said() {
		if !strings.HasSuffix(said, "/favicon.ico") {
			t.Errorf("the console says %s", said)
		}
	}
}
