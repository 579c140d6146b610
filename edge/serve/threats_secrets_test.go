package serve_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// spellings are the forms in which a secret may turn up.
func spellings(secret string) map[string]string {
	percent := ""
	for _, c := range []byte(secret) {
		percent += fmt.Sprintf("%%%02X", c)
	}
	return map[string]string{
		"plain":          secret,
		"base64":         strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(secret)), "="),
		"base64 for URL": base64.RawURLEncoding.EncodeToString([]byte(secret)),
		"hex":            hex.EncodeToString([]byte(secret)),
		"percent":        percent,
		"for a query":    url.QueryEscape(secret),
	}
}

// TestK16 plants secrets in headers, tokens, arguments, answers and the
// configuration, and looks for them in all that an edge says of what it does:
// audit log, spans and metrics, /metrics, /status, the process log (row K16).
func TestK16(t *testing.T) {
	m := newMint(t)
	to := newCollector(t, "http")
	back := edgetest.NewServer(t, edgetest.Modern)
	back.Always("tools/call", func(c *edgetest.Call) {
		c.Result(`{"resultType":"complete","content":[],"structuredContent":{"access_token":"PLANTED+answer/1","inner":{"clientSecret":"PLANTED+answer/2"}}}`)
	})
	t.Setenv("WEIR_K16_TOKEN", "PLANTED+variable/1")
	file, audit := audited(t)
	audit, _, _ = strings.Cut(audit, "telemetry:")
	yaml := edgetest.Manifest(back, audit, fmt.Sprintf(`telemetry:
  endpoint: %q
  insecure: true
  tracingEnabled: true
  metricsEnabled: true
  samplingRate: "1"
  headers: {X-Collector-Key: PLANTED+config/1}
  environmentVariables: [WEIR_K16_TOKEN]
  enablePrometheusMetricsPath: true
passthroughHeaders: [X-Api-Key]
operational: {logLevel: debug}
`, to.Endpoint))
	yaml = strings.Replace(yaml, "incomingAuth: {type: anonymous}", fmt.Sprintf(
		"incomingAuth: {type: oidc, oidc: {issuer: %q, audience: weir, clientId: weir, jwksUrl: %q, jwksAllowPrivateIp: true, insecureAllowHttp: true}}", m.URL, m.URL+"/keys"), 1)
	e := edgetest.Start(t, yaml, edgetest.Settings(func(s *serve.Settings) { s.AdminListen = "127.0.0.1:0" }),
		edgetest.With(serve.WithReload(func() error { return nil })))
	c := caller{Client: e.NewClient()}
	good := m.token(t, "ada", "weir", map[string]any{"note": "PLANTED+claim/1"})
	edgetest.Until(t, "the keys", func() bool { return c.Do("GET", "/status", "", bearer(good)...).Status == 200 })
	secrets := []string{
		"PLANTED+answer/1", "PLANTED+answer/2", "PLANTED+config/1", "PLANTED+variable/1", "PLANTED+claim/1",
		good, good[strings.LastIndexByte(good, '.')+1:],
	}
	plant := func(text string) string {
		s := fmt.Sprintf("PLANTED+%s/%d", text, len(secrets))
		secrets = append(secrets, s)
		return s
	}
	send := func(method, params, token string, head ...string) {
		t.Helper()
		text, own := c.message("1", method, params)
		c.Post(text, append(append(own, "Authorization", "Bearer "+token, "Cookie", "sid="+plant("cookie"), "X-Api-Key", plant("key"), "Proxy-Authorization", plant("proxy")), head...)...)
	}
	for _, token := range []string{good, plant("token"), m.token(t, "ada", "another", map[string]any{"note": plant("claim")})} {
		send("tools/call", edgetest.CallParams("echo", fmt.Sprintf(`{"password":%q,"deep":{"api_key":%q,"list":[{"Authorization":%q}]},"text":%q,"url":%q,"n":1}`,
			plant("argument"), plant("argument"), plant("argument"), `{"token":"`+plant("inside")+`", "n":NaN, "key":"`+plant("inside")+`"}`,
			"https://u:"+url.QueryEscape(plant("userinfo"))+"@h/x?token="+url.QueryEscape(plant("query")))), token)
		send("resources/read", fmt.Sprintf(`{"uri":"https://user:%s@example.com/x?token=%s#key=%s"}`, url.QueryEscape(plant("userinfo")), url.QueryEscape(plant("query")), url.QueryEscape(plant("fragment"))), token)
		send("tools/call", `{"name":"echo","arguments":{"secret":"`+plant("argument")+`"`, token) // not JSON
	}
	send("tools/call", edgetest.CallParams("echo", "{}"), good, "X-Request-Id", plant("id")+"\"") // no id: it is not taken over
	raw(t, e, "POST /mcp HTTP/1.1\r\nHost: "+e.Addr()+"\r\nAuthorization: Bearer "+plant("broken")+"\r\nX-Api-Key: "+plant("broken")+"\x00\r\n\r\n")
	raw(t, e, "POST /mcp?token="+plant("query")+" HTTP/1.1\r\nHost: "+e.Addr()+"\r\nAuthorization: Bearer "+plant("twice")+"\r\nAuthorization: x\r\n\r\n")
	seen := map[string]string{
		"/metrics":       string(c.Do("GET", "/metrics", "").Body),
		"/status":        string(c.Do("GET", "/status", "", bearer(good)...).Body),
		"admin /metrics": string(edgetest.NewClient(t, "http://"+e.Serve.AdminAddr()).Do("GET", "/metrics", "").Body),
		"admin /status":  string(edgetest.NewClient(t, "http://"+e.Serve.AdminAddr()).Do("GET", "/status", "").Body),
	}
	e.Stop()
	log, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	seen["audit"], seen["process log"], seen["collector"] = string(log), e.Log(), string(to.Bytes)
	for where, text := range seen {
		if len(text) == 0 {
			t.Errorf("%s says nothing", where)
		}
		for _, secret := range secrets {
			for form, s := range spellings(secret) {
				if strings.Contains(strings.ToLower(text), strings.ToLower(s)) {
					t.Errorf("%s holds %s (%s)", where, secret, form)
				}
			}
		}
	}
	if got := to.header("X-Collector-Key"); got != "PLANTED+config/1" {
		t.Errorf("the collector was sent %q", got)
	}
	if len(secrets) < 30 {
		t.Errorf("%d secrets", len(secrets))
	}
	// What is looked for would be found.
	if !strings.Contains(seen["audit"], "[REDACTED]") || !strings.Contains(seen["audit"], `"name":"echo"`) || !strings.Contains(seen["collector"], "execute_tool") {
		t.Error("what is no secret is missing too")
	}
}
