//go:build unix

package doctor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv/kvtest"
	"github.com/weir-edge/weir/edge/oauth"
)

// signingIn is the manifest of a server with an authorization server, whose further members
// and upstream follow, before a backend, a URL.
const signingIn = `apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: main}
spec:
  groupRef: {name: g}
  incomingAuth: {type: oidc, oidcConfigRef: {name: own, audience: "http://127.0.0.1/mcp", resourceUrl: "http://127.0.0.1/mcp"}}
  authServerConfig: {issuer: "http://127.0.0.1", upstreamProviders: [%[2]s]%[1]s}
---
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: g}
---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: own}
spec: {type: inline, inline: {issuer: "http://127.0.0.1", insecureAllowHTTP: true}}
---
apiVersion: weir.dev/v1beta1
kind: MCPServerEntry
metadata: {name: tools}
spec: {groupRef: {name: g}, remoteUrl: %[3]q, transport: streamable-http, allowPrivateEndpoint: true}
---
apiVersion: v1
kind: Secret
metadata: {name: as}
stringData: {hmac: "the-first-secret-has-32-bytes-or-more", next: "the-second-secret-has-32-bytes-or-more", short: "too short", key: %[4]q, key2: %[5]q, password: s3cret-pass}
`

// TestDoctorOfSignIns has the doctor look at secrets that end with the process, that are too
// short and that others still use, at a store, and at providers that are there and are not.
func TestDoctorOfSignIns(t *testing.T) {
	back, hub := edgetest.NewServer(t, edgetest.Modern), edgetest.NewHub(t, "hub")
	redis := kvtest.Redis(t, "--requirepass", "s3cret-pass")
	var keys [2]string
	for i := range keys {
		key, err := oauth.NewSigningKey()
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = string(key)
	}
	manifest := func(more, provider string) string {
		return fmt.Sprintf(signingIn, more, provider, back.URL, keys[0], keys[1])
	}
	good := hub.Provider("http://127.0.0.1")
	store := fmt.Sprintf(", storage: {type: kvstore, kvstore: {aclUserConfig: {passwordSecretRef: {name: as, key: password}}, addr: %q}}", redis.Addr)
	lists := func(hmac, key string) string {
		return fmt.Sprintf(", hmacSecretRefs: [{name: as, key: %s}], signingKeySecretRefs: [{name: as, key: %s}]", hmac, key)
	}
	running := edgetest.Start(t, manifest(lists("hmac", "key")+store, good))
	edgetest.Until(t, "the record of the edge that runs", func() bool {
		out, err := redis.Try("--no-auth-warning", "-a", "s3cret-pass", "keys", "weir:as:*:keys")
		return err == nil && strings.Contains(out, ":keys")
	})
	for name, one := range map[string]struct {
		yaml, step string
		level      edge.Level
		cause      string
	}{
		"ephemeral":      {manifest("", good), "sign-in", edge.LevelWarning, "made at each start"},
		"kept":           {manifest(lists("hmac", "key"), good), "sign-in", edge.LevelOK, ""},
		"short":          {manifest(lists("short", "key"), good), "sign-in", edge.LevelProblem, "has 9 bytes"},
		"shared":         {manifest(lists("hmac", "key")+store, good), "sign-in", edge.LevelOK, ""},
		"another secret": {manifest(lists("next", "key")+store, good), "sign-in", edge.LevelWarning, "none of hmacSecretRefs"},
		"another key":    {manifest(lists("hmac", "key2")+store, good), "sign-in", edge.LevelWarning, "none of signingKeySecretRefs"},
		"no store":       {manifest(lists("hmac", "key")+strings.Replace(store, redis.Addr, edgetest.FreeAddress(t), 1), good), "sign-in", edge.LevelProblem, "storage.kvstore"},
		"provider":       {manifest("", good), "provider", edge.LevelOK, ""},
		"no provider":    {manifest("", strings.ReplaceAll(good, hub.URL, "http://"+edgetest.FreeAddress(t))), "provider", edge.LevelProblem, "does not answer"},
		"no discovery":   {manifest("", `{name: corp, type: oidc, oidcConfig: {issuerUrl: "https://`+edgetest.FreeAddress(t)+`", clientId: a}}`), "provider", edge.LevelProblem, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got edge.Finding
			for _, f := range examined(t, one.yaml, edgetest.Patience) {
				if f.Step == one.step {
					got = f
				}
			}
			if got.Step == "" || got.Level != one.level || !strings.Contains(got.Cause, one.cause) {
				t.Errorf("%+v", got)
			}
			if one.step == "provider" && !strings.Contains(got.Detail+got.Next, "http://127.0.0.1/oauth/callback") && name != "no discovery" {
				t.Errorf("it does not say what to enter: %+v", got)
			}
		})
	}
	running.Stop()
}
