package serve_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// introspected is the YAML of a server whose tokens are asked about with a
// client secret.
func introspected(backend string) string {
	return `apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: g}
---
apiVersion: weir.dev/v1beta1
kind: MCPServerEntry
metadata: {name: back}
spec: {groupRef: {name: g}, remoteUrl: "` + backend + `", transport: streamable-http, allowPrivateEndpoint: true}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: main}
spec:
  groupRef: {name: g}
  incomingAuth: {type: oidc, oidcConfigRef: {name: idp, audience: a}}
---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: idp}
spec:
  type: inline
  inline:
    issuer: http://127.0.0.1:1
    insecureAllowHTTP: true
    jwksAllowPrivateIP: true
    clientId: edge
    introspectionUrl: http://127.0.0.1:1/introspect
    clientSecretRef: {name: idp, key: client}
`
}

const idpSecret = `---
apiVersion: v1
kind: Secret
metadata: {name: idp}
stringData: {client: hunter2}
`

// A secret that is nowhere keeps an edge from starting, and the error names the
// object, the field and the places.
func TestMissingSecretStopsTheStart(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	dir := t.TempDir()
	s := serve.Defaults()
	s.Listen, s.AdminListen, s.SecretsDir = "127.0.0.1:0", "", dir
	_, err := serve.New(s, edgetest.Plan(t, introspected(back.URL)), slog.New(slog.DiscardHandler))
	if err == nil {
		t.Fatal("started")
	}
	for _, part := range []string{"test.yaml:", "MCPOIDCConfig/idp: spec.inline.clientSecretRef: secret idp/client", filepath.Join(dir, "idp", "client"), "WEIR_SECRET_IDP_CLIENT"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	s.SecretsDir = filepath.Join(dir, "nowhere")
	if _, err := serve.New(s, edgetest.Plan(t, introspected(back.URL)), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--secrets-dir") {
		t.Error(err)
	}
}

// A reload that takes a secret away changes nothing, though its servers are as
// before; one that brings it back, in another place, is served.
func TestReloadNeedsItsSecrets(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	dir := t.TempDir()
	manifest := introspected(back.URL)
	var next string
	var e *edgetest.Edge
	e = edgetest.Start(t, manifest+idpSecret, edgetest.Settings(func(s *serve.Settings) { s.SecretsDir = dir }),
		edgetest.With(serve.WithReload(func() error { return e.Serve.Reload(edgetest.Plan(t, next)) })))
	next = manifest
	if err := e.Serve.ReloadNow(); err == nil || !strings.Contains(err.Error(), "spec.inline.clientSecretRef: secret idp/client") {
		t.Error(err)
	}
	if r := e.NewClient().Do("GET", "/readyz", ""); r.Status != 200 {
		t.Error(r.Status)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "idp"), 0o700), os.WriteFile(filepath.Join(dir, "idp", "client"), []byte("hunter2"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := e.Serve.ReloadNow(); err != nil {
		t.Error(err)
	}
	if strings.Contains(e.Log(), "hunter2") {
		t.Error("the log holds the secret")
	}
}
