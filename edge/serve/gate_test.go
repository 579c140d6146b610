package serve_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/kv"
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
	for _, want := range []string{"weir_auth_verified_total", "weir_auth_cached_total", "weir_auth_refused_total", "weir_cache_values", "weir_auth_key_fetches_total"} {
		value := figure(t, metrics, want)
		if least := map[string]float64{"weir_auth_verified_total": 2, "weir_auth_cached_total": 3, "weir_auth_refused_total": 1, "weir_cache_values": 2, "weir_auth_key_fetches_total": 1}[want]; value < least {
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
			return nil, edge.Errorf(edge.Denied, "test", "%w", &edge.ScopeError{Scopes: []string{"tools:write"}})
		})
	}
	e := edgetest.Start(t, strings.Replace(edgetest.Manifest(back, ""), "incomingAuth: {type: anonymous}", fmt.Sprintf(
		"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true, requiredScopes: [tools]}}", m.URL, m.URL+"/keys"), 1),
		edgetest.Before(func(e *serve.Edge) { e.SetFilters(filters.Entry{Place: filters.Authz, Filter: lacks}) }))
	c := e.NewClient()
	token := bearer(m.token(t, "alice", "weir", map[string]any{"scope": "tools"}))
	body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Meta())
	var a *edgetest.Response
	edgetest.Until(t, "the keys", func() bool { a = c.Post(body, append(token, head...)...); return a.Status != 503 })
	if got := a.Header.Get("WWW-Authenticate"); a.Status != 403 || !strings.HasPrefix(got, `Bearer error="insufficient_scope", scope="tools tools:write"`) {
		t.Errorf("status %d, %q", a.Status, got)
	}
}

// TestCacheMemory holds that the memory of tokens is the process's, bounded by
// --cache-memory, and that a server which is replaced gives back what it has.
func TestCacheMemory(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]string{0: "--cache-memory: 0 is not between 1048576 and 1073741824", kv.MinCache - 1: "1048575 is not", 1<<30 + 1: "1073741825 is not"} {
		s := serve.Defaults()
		s.CacheMemory = size
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %s", size, err, want)
		}
	}
	m, back := newMint(t), edgetest.NewServer(t, edgetest.Modern)
	manifest := func(audience string) string {
		return strings.Replace(edgetest.Manifest(back, "telemetry: {enablePrometheusMetricsPath: true}"), "incomingAuth: {type: anonymous}", fmt.Sprintf(
			"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: %s, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}}", m.URL, audience, m.URL+"/keys"), 1)
	}
	e := edgetest.Start(t, manifest("a"), edgetest.Settings(func(s *serve.Settings) { s.CacheMemory, s.DrainTimeout = kv.MinCache, time.Second }))
	c := e.NewClient()
	body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams("echo", "{}"), edgetest.Meta())
	status := func(token string) int { return c.Post(body, append(bearer(token), head...)...).Status }
	values := func(token, metric string) float64 {
		return figure(t, string(c.Do("GET", "/metrics", "", bearer(token)...).Body), metric)
	}
	token := func(who, audience string) string { return m.token(t, who, audience, nil) }
	edgetest.Until(t, "the keys", func() bool { return status(token("alice", "a")) == 200 })
	for i := range 3 {
		if got := status(token(fmt.Sprint(i), "a")); got != 200 {
			t.Errorf("status %d", got)
		}
	}
	if n, most := values(token("alice", "a"), "weir_cache_values"), values(token("alice", "a"), "weir_cache_bytes_limit"); n < 4 || most != kv.MinCache {
		t.Errorf("%v tokens in %v bytes", n, most)
	}
	both := m.token(t, "alice", "", map[string]any{"aud": []string{"a", "b"}})
	if got := status(both); got != 200 {
		t.Errorf("status %d", got)
	}
	if err := e.Serve.Reload(edgetest.Plan(t, manifest("b"))); err != nil {
		t.Fatal(err)
	}
	for who, want := range map[string]int{token("alice", "a"): 401, both: 200} {
		if got := status(who); got != want {
			t.Errorf("after a reload: status %d, want %d", got, want)
		}
	}
	edgetest.Until(t, "the room of the server before", func() bool { return values(both, "weir_cache_values") == 1 })
}
