package serve_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/serve"
)

// introspected is the YAML of a server whose tokens are asked about with a
// client secret.
func introspected(backend string) string {
	return introspectedAt(backend, "http://127.0.0.1:1", "http://127.0.0.1:1/introspect", "edge", "a")
}

func introspectedAt(backend, issuer, endpoint, client, audience string) string {
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
  incomingAuth: {type: oidc, oidcConfigRef: {name: idp, audience: "` + audience + `"}}
---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: idp}
spec:
  type: inline
  inline:
    issuer: "` + issuer + `"
    insecureAllowHTTP: true
    jwksAllowPrivateIP: true
    clientId: "` + client + `"
    introspectionUrl: "` + endpoint + `"
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

// The secret of an MCPOIDCConfig is what tokens are asked about with, and one
// that is rotated is used by the next question.
func TestIntrospectionWithASecret(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	var seen []string
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		seen = append(seen, id+":"+secret)
		if secret != "second" {
			w.WriteHeader(401)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"active":true,"sub":"alice","aud":"a"}`)
	}))
	defer endpoint.Close()
	dir := t.TempDir()
	put := func(value string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "idp"), 0o700), os.WriteFile(filepath.Join(dir, "idp", "client"), []byte(value), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put("first\n")
	e := edgetest.Start(t, introspectedAt(back.URL, "http://127.0.0.1:1", endpoint.URL, "edge", "a"), inDir(dir))
	ask := func(token string) int {
		c := e.NewClient()
		c.Header.Set("Authorization", "Bearer "+token)
		return c.Modern("1", "tools/call", edgetest.CallParams("back_echo", "{}")).Status
	}
	if status := ask("opaque-1"); status == 200 {
		t.Error("a token was taken that nobody vouches for")
	}
	put("second\n")
	if status := ask("opaque-2"); status != 200 {
		t.Errorf("status %d", status)
	}
	if !slices.Equal(seen, []string{"edge:first", "edge:second"}) {
		t.Errorf("%d questions", len(seen))
	}
	for _, r := range back.Requests("") {
		if r.Header.Get("Authorization") != "" {
			t.Errorf("%s carries the client's token", r.Kind)
		}
	}
	if log := e.Log(); strings.Contains(log, "opaque-") || strings.Contains(log, "second") {
		t.Error("the log holds a secret")
	}
}

// The same before a provider that others wrote.
func TestRealProviderIntrospects(t *testing.T) {
	p := idp.Start(t)
	const audience = "https://main.example/opaque"
	back := edgetest.NewServer(t, edgetest.Modern)
	manifest := introspectedAt(back.URL, p.Issuer, p.Introspection(), idp.ClientID, audience) + strings.Replace(idpSecret, "hunter2", idp.ClientSecret, 1)
	e := edgetest.Start(t, manifest)
	token := p.Machine(t, audience, "tools:read")
	c := e.NewClient()
	c.Header.Set("Authorization", "Bearer "+token)
	if r := c.Modern("1", "tools/call", edgetest.CallParams("back_echo", "{}")); r.Status != 200 {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	c.Header.Set("Authorization", "Bearer 0123456789abcdefghij")
	if r := c.Modern("2", "tools/call", edgetest.CallParams("back_echo", "{}")); r.Status != 401 {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if strings.Contains(e.Log(), idp.ClientSecret) || strings.Contains(e.Log(), token) {
		t.Error("the log holds a secret")
	}
}

// That the keys of an issuer cannot be had is logged with the server whose clients need them.
func TestServerWithoutKeys(t *testing.T) {
	e := edgetest.Start(t, introspected(edgetest.NewServer(t, edgetest.Modern).URL)+idpSecret)
	edgetest.Until(t, "the keys are missed", func() bool { return strings.Contains(e.Log(), `msg="keys of issuer not fetched" server=main issuer=`) })
}

// Edges that have the secret weir-state/key in common take each other's states,
// and others do not.
func TestStateKeyOfASecret(t *testing.T) {
	const can = `{"elicitation":{"form":{}}}`
	back := edgetest.NewServer(t, edgetest.Modern)
	manifest := group(map[string]*edgetest.Server{"new": back})
	dir := t.TempDir()
	put := func(text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "weir-state"), 0o700), os.WriteFile(filepath.Join(dir, "weir-state", "key"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	put(strings.Repeat("A", 43) + "=\n")
	start := func(options ...edgetest.Option) caller {
		return caller{Client: edgetest.Start(t, manifest, options...).NewClient()}
	}
	one, two, stranger := start(inDir(dir)), start(inDir(dir)), start()
	back.Once("tools/call", func(c *edgetest.Call) {
		c.Result(`{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"sure?","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"own"}`)
	})
	params := edgetest.CallParams("new_echo", "{}")
	first := one.request(t, "1", "tools/call", params, edgetest.Capabilities(can)).Result()
	retry := params[:len(params)-1] + `,"requestState":` + edgetest.Member(first, "requestState") + `,"inputResponses":{"q":{"action":"accept","content":{}}}}`
	fails(t, stranger.request(t, "2", "tools/call", retry, edgetest.Capabilities(can)), 400, -32602, "2")
	if r := two.request(t, "3", "tools/call", retry, edgetest.Capabilities(can)); r.Status != 200 {
		t.Errorf("%d %s", r.Status, r.Body)
	}

	s := serve.Defaults()
	s.Listen, s.AdminListen, s.SecretsDir = "127.0.0.1:0", "", t.TempDir()
	bare := secret.NewEncrypted(filepath.Join(dir, "secrets.enc")) // nobody has set it up
	e, err := serve.New(s, edgetest.Plan(t, manifest), slog.New(slog.DiscardHandler), serve.WithSecrets(secret.Options{Dir: s.SecretsDir, Store: bare}))
	if err != nil {
		t.Fatalf("without any secrets: %v", err)
	}
	over, end := context.WithCancel(t.Context())
	end()
	if err := e.Serve(over); err != nil {
		t.Error(err)
	}
	s.SecretsDir = dir
	for text, want := range map[string]string{"hunter2": "secret weir-state/key:1: not a key", "": "its file is empty"} {
		put(text)
		if _, err := serve.New(s, edgetest.Plan(t, manifest), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Error(err)
		}
	}
}

// TestDamagedSecretsHoldUpNoStart: where the file of secrets is damaged, states have a random key
// as where it is locked. The log says what to do, and the file stays as it is.
func TestDamagedSecretsHoldUpNoStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secrets.enc")
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFront(t, edgetest.Modern, edgetest.With(serve.WithSecrets(secret.Options{Store: secret.NewEncrypted(path)})))
	f.callerOf(t, edgetest.Modern, "").call(t, "1", "{}").Result()
	if log := f.Log(); !strings.Contains(log, "a random key stands in for the key of states") || !strings.Contains(log, "bring back a copy of it") {
		t.Errorf("the log does not say what to do: %s", log)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "damaged" {
		t.Errorf("the file has changed: %q, %v", text, err)
	}
}
