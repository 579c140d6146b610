//go:build unix

package serve_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// TestFieldsOfSignIn: what an operator writes of an authorization server is what clients meet.
func TestFieldsOfSignIn(t *testing.T) {
	t.Parallel()
	first, second, back := edgetest.NewHub(t, "one"), edgetest.NewHub(t, "two"), edgetest.NewServer(t, edgetest.Modern)
	first.Issues(`["guests"]`, 3600)
	second.Issues(`["staff"]`, 3600)
	policy := `authzConfig: {type: inline, inline: {policies: ['permit(principal, action, resource) when { principal has claim_groups && principal.claim_groups.contains("staff") };']}}, oidcConfigRef:`
	fields := `, authorizationEndpointBaseUrl: "` + loginIssuer + `/start", baselineClientScopes: [openid], cimd: {enabled: true}, primaryUpstreamProvider: two, tokenLifespans: {accessTokenLifespan: 2m}`
	auth := strings.ReplaceAll(embedded(fields, first, second), "/oauth/callback", "/start/oauth/callback")
	e := edgetest.Start(t, strings.Replace(entrance(back, auth, `{type: upstreamInject, upstreamInject: {providerName: two}}`), "oidcConfigRef:", policy, 1), loopback())
	v := edgetest.NewVisitor(t, loginIssuer, e.Addr())
	doc := v.Object("/.well-known/oauth-authorization-server", nil)
	if doc["authorization_endpoint"] != loginIssuer+"/start/oauth/authorize" || doc["token_endpoint"] != loginIssuer+"/oauth/token" || doc["client_id_metadata_document_supported"] != true {
		t.Errorf("metadata: %v", doc)
	}
	resp := e.NewClient().Do("POST", "/oauth/register", `{"redirect_uris":["https://client.example/cb"],"scope":"profile"}`, "Content-Type", "application/json")
	if resp.Status != http.StatusCreated || !strings.Contains(string(resp.Body), `"scope":"profile openid"`) {
		t.Errorf("registration without the baseline: %d: %s", resp.Status, resp.Body)
	}
	v.Start = "/start/oauth/authorize"
	got := v.SignIn("")
	if got.Life != 120 {
		t.Errorf("the token is good for %v s", got.Life)
	}
	if r := calls(e.NewClient(), "/mcp", got.Access); r.Status != http.StatusOK {
		t.Errorf("policies do not read the claims of two: status %d: %s", r.Status, r.Body)
	}
	staff := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"alice","groups":["staff"],"n":1}`))
	if all := sent(back); len(all) != 1 || !strings.Contains(all[0], "."+staff+".") {
		t.Errorf("the backend was sent %v", all)
	}
}
