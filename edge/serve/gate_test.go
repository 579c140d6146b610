package serve_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/filters"
)

// TestGateMetrics counts what becomes of tokens: verified once, remembered then,
// refused.
func TestGateMetrics(t *testing.T) {
	t.Parallel()
	m, back := newMint(t), edgetest.NewServer(t, edgetest.Modern)
	e := edgetest.Start(t, strings.Replace(edgetest.Manifest(back, "telemetry: {enablePrometheusMetricsPath: true}"), "incomingAuth: {type: anonymous}", fmt.Sprintf(
		"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true, requiredScopes: [tools]}}", m.URL, m.URL+"/keys"), 1))
	c := e.NewClient()
	token := m.token(t, "alice", "weir", map[string]any{"scope": "tools"})
	body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Meta())
	status := func(who ...string) int { return c.Post(body, append(who, head...)...).Status }
	edgetest.Until(t, "the keys", func() bool { return status(bearer(token)...) == 200 })
	for range 3 {
		if got := status(bearer(token)...); got != 200 {
			t.Errorf("status %d", got)
		}
	}
	for want, who := range map[int][]string{401: nil, 403: bearer(m.token(t, "alice", "weir", nil))} {
		if got := status(who...); got != want {
			t.Errorf("status %d, want %d", got, want)
		}
	}
	metrics := string(c.Do("GET", "/metrics", "", bearer(token)...).Body)
	for _, want := range []string{"weir_auth_verified_total", "weir_auth_cached_total", "weir_auth_refused_total", "weir_auth_tokens", "weir_auth_key_fetches_total"} {
		value := figure(t, metrics, want)
		if least := map[string]float64{"weir_auth_verified_total": 2, "weir_auth_cached_total": 3, "weir_auth_refused_total": 1, "weir_auth_tokens": 2, "weir_auth_key_fetches_total": 1}[want]; value < least {
			t.Errorf("%s is %v, not %v or more", want, value, least)
		}
	}
}

// A filter that finds a token short of scopes has its client told which to ask
// for, though the gate let the token in.
func TestStepUpBehindTheGate(t *testing.T) {
	t.Parallel()
	m, back := newMint(t), edgetest.NewServer(t, edgetest.Modern)
	lacks := func(edge.Handler) edge.Handler {
		return edge.HandlerFunc(func(context.Context, *edge.Exchange) (*edge.Response, error) {
			return nil, edge.Errorf(edge.Denied, "test", "%w", &oauth.ScopeError{Scopes: []string{"tools:write"}})
		})
	}
	e := edgetest.Start(t, strings.Replace(edgetest.Manifest(back, ""), "incomingAuth: {type: anonymous}", fmt.Sprintf(
		"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true, requiredScopes: [tools]}}", m.URL, m.URL+"/keys"), 1),
		edgetest.Before(func(e *serve.Edge) { e.SetFilters(filters.Entry{Name: "authz", Filter: lacks}) }))
	c := e.NewClient()
	token := bearer(m.token(t, "alice", "weir", map[string]any{"scope": "tools"}))
	body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Meta())
	var a *edgetest.Response
	edgetest.Until(t, "the keys", func() bool { a = c.Post(body, append(token, head...)...); return a.Status != 503 })
	if got := a.Header.Get("WWW-Authenticate"); a.Status != 403 || !strings.HasPrefix(got, `Bearer error="insufficient_scope", scope="tools tools:write"`) {
		t.Errorf("status %d, %q", a.Status, got)
	}
}
