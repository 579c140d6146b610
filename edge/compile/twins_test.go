package compile_test

import (
	"strings"
	"testing"
)

const ofGroup = `apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: g}
---
`

// TestRequiredScopesOfTheTwin: scopes that every token must carry are not dropped in silence where the
// other form of the same section takes precedence.
func TestRequiredScopesOfTheTwin(t *testing.T) {
	plan, said := found(ofGroup + `apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: idp}
spec: {type: inline, inline: {issuer: "https://i.example"}}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: s}
spec:
  groupRef: {name: g}
  incomingAuth: {type: oidc, oidcConfigRef: {name: idp, audience: a}}
  config:
    incomingAuth: {type: oidc, oidc: {issuer: "https://i.example", audience: a, clientId: x, requiredScopes: [admin]}}
    backends: [{name: b, url: "https://b.example/mcp", transport: streamable-http}]
`)
	if plan != nil || !strings.Contains(said, "oidc.requiredScopes: spec.incomingAuth takes precedence") {
		t.Error(plan != nil, said)
	}
}

// TestLoginBesideOutgoingAuth: a login of a member and what its server says of it contradict each other.
func TestLoginBesideOutgoingAuth(t *testing.T) {
	plan, said := found(ofGroup + `apiVersion: v1
kind: Secret
metadata: {name: k}
stringData: {v: x}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: key}
spec: {type: bearerToken, bearerToken: {tokenSecretRef: {name: k, key: v}}}
---
apiVersion: weir.dev/v1beta1
kind: MCPRemoteProxy
metadata: {name: p}
spec: {groupRef: {name: g}, remoteUrl: "https://p.example/mcp", run: {remoteAuth: {}}}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: s}
spec:
  groupRef: {name: g}
  incomingAuth: {type: anonymous}
  outgoingAuth: {backends: {p: {type: externalAuthConfigRef, externalAuthConfigRef: {name: key}}}}
`)
	if plan != nil || !strings.Contains(said, "spec.run.remoteAuth: outgoingAuth of VirtualMCPServer/s") {
		t.Error(plan != nil, said)
	}
}

// TestStaticBackendTakesTheCredentialAlone: of a member beside a backend of its name the rest is said to
// be of no use.
func TestStaticBackendTakesTheCredentialAlone(t *testing.T) {
	_, said := found(ofGroup + `apiVersion: weir.dev/v1beta1
kind: MCPToolConfig
metadata: {name: few}
spec: {toolsFilter: [read]}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: open}
spec: {type: unauthenticated}
---
apiVersion: weir.dev/v1beta1
kind: MCPRemoteProxy
metadata: {name: b}
spec: {groupRef: {name: g}, remoteUrl: "https://b.example/mcp", externalAuthConfigRef: {name: open}, toolConfigRef: {name: few}, headerForward: {addPlaintextHeaders: {X-Team: a}}}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: s}
spec:
  groupRef: {name: g}
  incomingAuth: {type: anonymous}
  config: {backends: [{name: b, url: "https://b.example/mcp", transport: streamable-http}]}
`)
	for _, field := range []string{"spec.toolConfigRef: not used", "spec.headerForward: not used"} {
		if !strings.Contains(said, field) {
			t.Errorf("%s is not said:\n%s", field, said)
		}
	}
}
