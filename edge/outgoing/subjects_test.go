package outgoing_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/source"
)

const exchanges = `
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: main}
spec:
  groupRef: {name: tools}
  incomingAuth: %s
---
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: tools}
---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: corp}
spec: {type: inline, inline: {issuer: "https://login.example.com"}}
---
apiVersion: weir.dev/v1beta1
kind: MCPServerEntry
metadata: {name: one}
spec:
  groupRef: {name: tools}
  remoteUrl: https://one.example.com/mcp
  transport: streamable-http
  externalAuthConfigRef: {name: way}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: way}
spec: %s
---
apiVersion: v1
kind: Secret
metadata: {name: tokens}
stringData: {secret: not-a-real-secret}
`

// What a server needs for a credential that is made of a token of the user, by an object.
func TestSubjectsOfServers(t *testing.T) {
	const (
		oidc      = `{type: oidc, oidcConfigRef: {name: corp, audience: "https://edge.example.com/mcp"}}`
		anonymous = `{type: anonymous}`
		exchange  = `{type: tokenExchange, tokenExchange: {tokenUrl: "https://login.example.com/token", audience: a%s}}`
		obo       = `{type: obo, obo: {tenantId: contoso.com, audience: a, clientId: b, clientSecretRef: {name: tokens, key: secret}}}`
		xaa       = `{type: xaa, xaa: {idpTokenUrl: "https://a.example.com", targetAudience: "https://b.example.com", targetTokenUrl: "https://b.example.com/token"}}`
	)
	for _, tt := range []struct{ incoming, way, want, disabled string }{
		{oidc, fmt.Sprintf(exchange, ""), "", ""},
		{oidc, obo, "", ""},
		{anonymous, fmt.Sprintf(exchange, ""), "MCPExternalAuthConfig/way: spec.type: tokenExchange exchanges the token of the client", ""},
		{anonymous, obo, "MCPExternalAuthConfig/way: spec.type: obo exchanges the token of the client", ""},
		{oidc, fmt.Sprintf(exchange, ", subjectProviderName: github"), "spec.type: tokenExchange needs a token that an upstream provider issued, and there are none without spec.authServerConfig", ""},
		{oidc, `{type: upstreamInject, upstreamInject: {providerName: github}}`, "there are none without spec.authServerConfig", ""},
		{oidc, xaa, "there are none without spec.authServerConfig", ""},
		{oidc, obo, "EnterpriseRequired", "1"},
	} {
		t.Setenv("WEIR_DISABLE_OBO", tt.disabled)
		set, _ := source.Read("set.yaml", fmt.Appendf(nil, exchanges, tt.incoming, tt.way)) // what it finds wrong is in the result
		r := set.Compile()
		var said strings.Builder
		if err := r.Render(&said); err != nil {
			t.Fatal(err)
		}
		if (tt.want == "") != (r.Plan != nil) || !strings.Contains(said.String(), tt.want) {
			t.Errorf("%s, %s: %s", tt.incoming, tt.way, said.String())
		}
		if tt.disabled != "" && !strings.Contains(fmt.Sprint(r.Report.Statuses), "{Valid false EnterpriseRequired") {
			t.Errorf("%v", r.Report.Statuses)
		}
	}
}
