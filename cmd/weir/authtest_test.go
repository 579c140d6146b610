package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/cmd/weir/auth"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/cloud"
)

// authManifest is a server with one backend, and the spec of the way to it.
func authManifest(issuer, spec string) string {
	return fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: main}
spec: {groupRef: {name: g}, incomingAuth: {type: oidc, oidcConfigRef: {name: idp, audience: here}}}
---
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: g}
---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: idp}
spec: {type: inline, inline: {issuer: %q, insecureAllowHTTP: true, jwksAllowPrivateIP: true}}
---
apiVersion: weir.dev/v1beta1
kind: MCPServerEntry
metadata: {name: tools}
spec: {groupRef: {name: g}, remoteUrl: "https://tools.example.com/mcp", transport: streamable-http, externalAuthConfigRef: {name: way}}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: way}
spec: %s
---
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {k: "pl4nted+secret/0815"}
`, issuer, spec)
}

// tested runs the command, and holds that nothing of what is planted is in what it says.
func tested(t *testing.T, dir string, planted []string, args ...string) (int, string) {
	t.Helper()
	var both bytes.Buffer
	code := runWeir(append([]string{"auth", "test"}, args...), &both, &both, "HOME="+dir)
	for _, p := range planted {
		for _, form := range []string{p, url.QueryEscape(p), url.PathEscape(p), base64.StdEncoding.EncodeToString([]byte(p)), base64.RawURLEncoding.EncodeToString([]byte(p))} {
			if strings.Contains(both.String(), form) {
				t.Errorf("%q: %s", form, both.String())
			}
		}
	}
	return code, both.String()
}

func kept(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAuthTestCloud walks cloudSts: a session, a user without a role, and a service that is down.
func TestAuthTestCloud(t *testing.T) {
	const role = "arn:aws:iam::123456789012:role/tools"
	dir, mint := t.TempDir(), edgetest.NewMint(t, "here")
	c := cloud.Start(t, mint.URL, mint.URL+"/keys", "here", role)
	config := kept(t, dir, "weir.yaml", authManifest(mint.URL, `{type: cloudSts, cloudSts: {region: eu-west-1, roleMappings: [{roleArn: "`+role+`", matcher: '"eng" in claims.groups'}]}}`))
	ca := kept(t, dir, "ca.pem", string(c.CA))
	alice, eve := mint.Token("alice", map[string]any{"groups": []string{"eng"}}), mint.Token("eve", nil)
	args := func(token string, more ...string) []string {
		return append([]string{"tools", "-c", config, "--ca-bundle", ca, "--sts-endpoint", c.URL, "--token-file", kept(t, dir, "token", token)}, more...)
	}
	planted := []string{alice, eve, "pl4nted+secret/0815"}
	code, said := tested(t, dir, planted, args(alice)...)
	for _, want := range []string{"main/tools: cloudSts", "POST " + c.URL, "> RoleArn: " + role, "> WebIdentityToken: (hidden, ", "< status 200", "would be attached:", "Authorization: AWS4-HMAC-SHA256 (hidden, ", "X-Amz-Security-Token: (hidden, "} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q: %s", want, said)
		}
	}
	if code != 0 || strings.Contains(said, "ASIA") || strings.Contains(said, "token/") {
		t.Errorf("code %d: %s", code, said)
	}
	if code, said = tested(t, dir, planted, args(eve)...); code != 1 || !strings.Contains(said, "mend: MCPExternalAuthConfig/way: spec.cloudSts.roleMappings, or fallbackRoleArn") || strings.Contains(said, "POST") {
		t.Errorf("code %d: %s", code, said)
	}
	if code, said = tested(t, dir, planted, "tools", "-c", config); code != 1 || !strings.Contains(said, "mend: give one with --token-file") {
		t.Errorf("code %d: %s", code, said)
	}
	c.Instead = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(503); return true }
	if code, said = tested(t, dir, planted, args(alice, "--json")...); code != 1 {
		t.Errorf("code %d: %s", code, said)
	}
	var got auth.Test
	if err := json.Unmarshal([]byte(said), &got); err != nil || got.OK || len(got.Steps) != 1 || got.Steps[0].Status != 503 || !strings.HasSuffix(got.Mend, "spec.cloudSts.region, or the setting --sts-endpoint") {
		t.Errorf("%s, %v", said, err)
	}
	if code, said = tested(t, dir, planted, "other", "-c", config); code != 2 || !strings.Contains(said, "main/tools") {
		t.Errorf("code %d: %s", code, said)
	}
}

// TestK16AuthTest has a token endpoint say what it was sent, in every field that is shown.
func TestK16AuthTest(t *testing.T) {
	const issued, secret = "pl4nted+issued/4711", "pl4nted+secret/0815"
	dir, mint := t.TempDir(), edgetest.NewMint(t, "here")
	token := mint.Token("alice", nil)
	status := http.StatusOK
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, basic, _ := r.BasicAuth()
		all := strings.Join([]string{secret, basic, token, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret)), issued}, " ")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": issued, "token_type": "Bearer", "expires_in": 60, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "scope": all, "error": all, "error_description": all, all: all})
	}))
	t.Cleanup(server.Close)
	config := kept(t, dir, "weir.yaml", authManifest(mint.URL, `{type: tokenExchange, tokenExchange: {tokenUrl: "`+server.URL+`/token", audience: there, clientId: edge, clientSecretRef: {name: s, key: k}}}`))
	ca := kept(t, dir, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	args := []string{"tools", "-c", config, "--ca-bundle", ca, "--token-file", kept(t, dir, "token", token)}
	planted := []string{issued, secret, token}
	for _, form := range [][]string{nil, {"--json"}} {
		for status = range map[int]bool{200: true, 400: true, 401: true, 500: true} {
			code, said := tested(t, dir, planted, append(args, form...)...)
			if (code == 0) != (status == 200) || !strings.Contains(said, "tokenExchange") || !strings.Contains(said, "/token") {
				t.Errorf("status %d: code %d: %s", status, code, said)
			}
		}
	}
}

// TestAuthTestShowsWords: what an endpoint says for people is hidden in its place alone: its
// words are those of requests too.
func TestAuthTestShowsWords(t *testing.T) {
	dir, mint := t.TempDir(), edgetest.NewMint(t, "here")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_request", "error_description": "it is no token", "hint": "token"})
	}))
	t.Cleanup(server.Close)
	config := kept(t, dir, "weir.yaml", authManifest(mint.URL, `{type: tokenExchange, tokenExchange: {tokenUrl: "`+server.URL+`/token", audience: there}}`))
	code, said := tested(t, dir, []string{"it is no token"}, "tools", "-c", config, "--token-file", kept(t, dir, "token", mint.Token("alice", nil)))
	for _, want := range []string{"POST " + server.URL + "/token\n", "> grant_type: urn:ietf:params:oauth:grant-type:token-exchange\n", "< error_description: (hidden, 14 bytes)\n", "< hint: (hidden, 5 bytes)\n", "invalid_request (status 400)"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q: %s", want, said)
		}
	}
	if code != 1 {
		t.Errorf("code %d", code)
	}
}

// TestAuthTestUpstream: what an upstream issued to users is in an edge that runs alone, and no
// field is named that the strategy does not have.
func TestAuthTestUpstream(t *testing.T) {
	dir, mint := t.TempDir(), edgetest.NewMint(t, "here")
	manifest := strings.Replace(authManifest(mint.URL, `{type: upstreamInject, upstreamInject: {providerName: corp}}`), "incomingAuth:",
		`authServerConfig: {issuer: "`+mint.URL+`", upstreamProviders: [{name: corp, type: oauth2, oauth2Config: {authorizationEndpoint: "https://corp.example.com/a", tokenEndpoint: "https://corp.example.com/t", clientId: x, redirectUri: "`+mint.URL+`/oauth/callback"}}]}, incomingAuth:`, 1)
	alice := mint.Token("alice", nil)
	code, said := tested(t, dir, []string{alice}, "tools", "-c", kept(t, dir, "weir.yaml", manifest), "--token-file", kept(t, dir, "token", alice))
	if code != 1 || !strings.Contains(said, "no credential: upstream corp: ") || !strings.Contains(said, "an edge that runs") || strings.Contains(said, "clientId") {
		t.Errorf("code %d: %s", code, said)
	}
}
