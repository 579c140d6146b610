package guest_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/heavy"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
)

// everyFilter is an edge with every filter that looks at messages: policies that
// read arguments, mutating and validating webhooks, a guest with pointers that
// edits both ways, limits, an audit log of all data, metrics.
func everyFilter(t *testing.T, back *edgetest.Server) *edgetest.Edge {
	t.Helper()
	dir := t.TempDir()
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		text := `{"version":"v0.1.0","uid":"u","allowed":true}`
		if r.URL.Path == "/change" {
			text = `{"version":"v0.1.0","uid":"u","allowed":true,"patch_type":"json_patch","patch":[{"op":"add","path":"/mcp_request/params/arguments/by","value":"hook"},{"op":"remove","path":"/mcp_request/params/arguments/by"}]}`
		}
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(hook.Close)
	ca, hooks, file := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "hooks.yaml"), filepath.Join(dir, "weir.yaml")
	f := filter{name: "f", rules: []string{
		"sub|on_call_request|pointer=/a,/a/0,/a/0/a,/z",
		"on_call_request|*|set_arg|/first|1", "on_call_request|*|set_arg|/second|\"x\"", "on_call_request|*|del_arg|/first",
		"on_call_response|*|patch_result|/seen|true", "on_call_response|*|redact|/content/0/text|gone",
	}, limits: "memory: 64Mi, fuel: 4000000000"}
	yaml := manifest(t, backs{"back": back, "other": back}, []filter{f})
	yaml = strings.Replace(yaml, "incomingAuth: {type: anonymous}", `incomingAuth:
    type: anonymous
    authzConfig:
      type: inline
      inline:
        policies:
        - permit(principal, action, resource);
        - 'forbid(principal, action, resource) when { context has arg_a && context.arg_a == [1, {"b": "x"}] };'
        - 'forbid(principal, action, resource) when { context has arg_a && context has arg_b && context.arg_a == context.arg_b };'
        - 'forbid(principal, action, resource) when { resource has arg_a && resource.arg_a == "x" };'`, 1)
	yaml = strings.Replace(yaml, "  config:\n", fmt.Sprintf(`  config:
    audit: {enabled: true, logFile: %q, includeRequestData: true, includeResponseData: true, maxDataSize: 4194304}
    telemetry: {enablePrometheusMetricsPath: true}
    rateLimiting: {shared: {maxTokens: 100000, refillPeriod: 1s}}
`, filepath.Join(dir, "audit.log")), 1)
	entry := func(name, path string) string {
		return fmt.Sprintf("- {name: %s, url: %q, timeout: 10s, failure_policy: fail, tls_config: {ca_bundle_path: %q}}\n", name, hook.URL+path, ca)
	}
	for path, text := range map[string]string{
		ca:    string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})),
		hooks: "mutating:\n" + entry("change", "/change") + "validating:\n" + entry("look", "/look"),
		file:  yaml,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opened := source.Open(file, source.Webhooks(hooks), func(s *source.Set) { s.LocalRateLimits = true })
	if err := opened.Err(); err != nil {
		t.Fatal(err, opened.Findings)
	}
	return edgetest.StartPlan(t, opened.Plan, edgetest.Settings(guests.Cached), edgetest.Settings(func(s *serve.Settings) { s.LocalRateLimits = true }))
}

// TestZ03 sends an edge with every filter on what is as much work as its size
// allows, and counts the processor time that it takes: its own, the guest's, and
// that of the backend and the webhooks in this process. It grows with the size,
// whatever the shape; the bound leaves room for a slow machine, and none for what
// takes the square.
func TestZ03(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	back.Always("tools/call", func(c *edgetest.Call) {
		c.Result(`{"resultType":"complete","content":[{"type":"text","text":"x"}]}`)
	})
	e := everyFilter(t, back)
	c := newClient(e, edgetest.Modern)
	if r := c.call(t, "echo", `{"a":1}`); r.Status != 200 || text(t, r) != "gone" {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	const slack, perMiB, each = 8 * raceFactor, 40 * time.Millisecond, 25 * time.Millisecond
	for _, shape := range heavy.Shapes() {
		var line strings.Builder
		for _, size := range []int{64 << 10, 256 << 10, 1<<20 - 4<<10, 4<<20 - 4<<10} {
			arguments := `{"a":` + heavy.Value(shape, size-1<<10, 60) + `}`
			for _, deep := range []bool{false, true} {
				if deep && !heavy.Nests(shape) {
					continue
				}
				if deep {
					arguments = `{"a":` + heavy.Value(shape, size-8<<10, 980) + `}`
				}
				from := heavy.Process()
				r := c.call(t, "echo", arguments)
				took := heavy.Process() - from
				switch r.Status {
				case 200, 403, 413, 503:
				default:
					t.Errorf("%s, %d bytes: status %d: %.300s", shape, size, r.Status, r.Body)
				}
				mib := float64(len(arguments)) / (1 << 20)
				if took > slack*(each+time.Duration(mib*float64(perMiB))) {
					t.Errorf("%s, %d bytes, deep %v: %v (status %d)", shape, len(arguments), deep, took, r.Status)
				}
				fmt.Fprintf(&line, " %4.0f ms %d", took.Seconds()*1e3, r.Status)
			}
		}
		t.Logf("%-18s%s", shape, line.String())
	}
}
