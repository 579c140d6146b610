package serve_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/edgetest/otlp"
	"github.com/weir-edge/weir/edge/serve"
)

// secured is a server over TLS before another one.
func secured(t *testing.T, back string, pair tls.Certificate) *httptest.Server {
	t.Helper()
	to, err := url.Parse(back)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewUnstartedServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: to.Scheme, Host: to.Host}) }})
	front.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	front.Config.ErrorLog = log.New(io.Discard, "", 0)
	front.StartTLS()
	t.Cleanup(front.Close)
	return front
}

// TestCABundle: authorities of --ca-bundle are trusted by connections to backends, with a
// bundle of their own or without, and by those to collectors in both of their protocols.
// Without it none of them is.
func TestCABundle(t *testing.T) {
	t.Parallel()
	files, dir := idp.NewTLS(t), t.TempDir()
	back := edgetest.NewServer(t, edgetest.Modern)
	front := secured(t, back.URL, files.Pair)
	path := func(name string, text []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	other := path("other.pem", idp.NewTLS(t).Authority)
	for _, c := range []struct{ protocol, own, bundle string }{
		{"grpc", "", "all"},
		{"http", "", "all"},
		{"http", other, "all"},
		{"http", "", ""},
		{"http", other, ""},
	} {
		t.Run(fmt.Sprintf("%s %v %v", c.protocol, c.own != "", c.bundle != ""), func(t *testing.T) {
			to := otlp.Start(t, c.protocol, true)
			yaml := strings.Replace(edgetest.Object("one", back), "  incomingAuth", "  telemetryConfigRef: {name: everywhere}\n  incomingAuth", 1)
			yaml = strings.Replace(yaml, fmt.Sprintf("%q", back.URL), fmt.Sprintf("%q", front.URL+"/mcp"), 1)
			if c.own != "" {
				yaml = strings.Replace(yaml, "transport: streamable-http", "transport: streamable-http, type: entry, caBundlePath: "+c.own, 1)
			}
			yaml += fmt.Sprintf(`---
apiVersion: weir.dev/v1beta1
kind: MCPTelemetryConfig
metadata: {name: everywhere}
spec:
  openTelemetry: {enabled: true, endpoint: %q, tracing: {enabled: true, samplingRate: "1"}, metrics: {enabled: true}}
`, to.Endpoint)
			e := edgetest.Start(t, yaml, edgetest.Settings(func(s *serve.Settings) {
				if c.bundle != "" {
					s.CABundle = path("all.pem", append(append([]byte{}, files.Authority...), to.CA...))
				}
			}))
			r := e.NewClient().Modern("1", "tools/call", edgetest.CallParams("echo", "{}"))
			if (r.Status == http.StatusOK) != (c.bundle != "") {
				t.Errorf("a call: %d %s", r.Status, r.Body)
			}
			err := e.Serve.FlushTelemetry(t.Context())
			to.Lock()
			defer to.Unlock()
			if err != nil && c.bundle != "" || (len(to.Spans) > 0) != (c.bundle != "") {
				t.Errorf("%d spans came: %v", len(to.Spans), err)
			}
		})
	}
}

// TestIncomingCABundle: the file with the authorities of an identity provider is read again with
// the configuration, and one that holds none is an error.
func TestIncomingCABundle(t *testing.T) {
	t.Parallel()
	files, m, back := idp.NewTLS(t), newMint(t), edgetest.NewServer(t, edgetest.Modern)
	front := secured(t, m.URL, files.Pair)
	file := filepath.Join(t.TempDir(), "ca.pem")
	write := func(pem []byte) {
		if err := os.WriteFile(file, pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(idp.NewTLS(t).Authority)
	yaml := strings.Replace(edgetest.Manifest(back), "incomingAuth: {type: anonymous}", fmt.Sprintf(
		"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true, caBundlePath: %s}}", m.URL, front.URL+"/keys", file), 1)
	e := edgetest.Start(t, yaml)
	c := e.NewClient()
	call := func() int {
		body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Meta())
		return c.Post(body, append(bearer(m.token(t, "ada", "weir", nil)), head...)...).Status
	}
	if got := call(); got == http.StatusOK {
		t.Fatal("the keys came from a provider that nobody trusts")
	}
	write(nil)
	if err := e.Serve.Reload(edgetest.Plan(t, yaml)); err == nil || !strings.Contains(err.Error(), "incoming: CA bundle: "+file+": it is empty") {
		t.Errorf("an empty file: %v", err)
	}
	write(files.Authority)
	if err := e.Serve.Reload(edgetest.Plan(t, yaml)); err != nil {
		t.Fatal(err)
	}
	edgetest.Until(t, "the keys", func() bool { return call() == http.StatusOK })
}
