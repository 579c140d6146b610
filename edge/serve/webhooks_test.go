package serve_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
)

// hook is a webhook with a certificate of its own.
type hook struct {
	*httptest.Server
	ca string // file with its certificate

	mu     sync.Mutex
	answer http.HandlerFunc
	told   []map[string]any
}

func newHook(t *testing.T, answer http.HandlerFunc) *hook {
	t.Helper()
	h := &hook{answer: answer, ca: filepath.Join(t.TempDir(), "ca.pem")}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var said map[string]any
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &said); err != nil {
			t.Errorf("a webhook was told %q", body)
		}
		h.mu.Lock()
		h.told = append(h.told, said)
		answer := h.answer
		h.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(h.Close)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	if err := os.WriteFile(h.ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// methods are those that the webhook was asked about.
func (h *hook) methods() (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.told {
		m, _ := one["mcp_request"].(map[string]any)
		all = append(all, fmt.Sprint(m["method"]))
	}
	return all
}

// last is what the webhook was told last.
func (h *hook) last() map[string]any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.told[len(h.told)-1]
}

func (h *hook) says(answer http.HandlerFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = answer
}

// entry is the webhook in a file of webhooks.
func (h *hook) entry(name, policy string) string {
	return fmt.Sprintf("- {name: %s, url: %q, timeout: 1s, failure_policy: %s, tls_config: {ca_bundle_path: %q}}\n", name, h.URL, policy, h.ca)
}

func says(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

const (
	hookAllows = `{"version":"v0.1.0","uid":"u","allowed":true}`
	hookDenies = `{"version":"v0.1.0","uid":"u","allowed":false,"message":"said by the webhook"}`
)

// renames has a webhook give every call of a tool another name.
func renames(from, to string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"version":"v0.1.0","uid":"u","allowed":true,"patch_type":"json_patch","patch":[`+
			`{"op":"test","path":"/mcp_request/params/name","value":%q},{"op":"replace","path":"/mcp_request/params/name","value":%q}]}`, from, to)
	}
}

// write writes a file of the test.
func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// hooked is an edge that is started from files, as the command does it.
func hooked(t *testing.T, manifest string, webhooks ...string) (*front, func() error) {
	t.Helper()
	path := write(t, filepath.Join(t.TempDir(), "weir.yaml"), manifest)
	opened := source.OpenWith(path, webhooks...)
	if opened.Err() != nil {
		t.Fatal(opened.Findings)
	}
	var e *edgetest.Edge
	reload := func() error {
		r := source.OpenWith(path, webhooks...)
		if err := r.Err(); err != nil {
			return err
		}
		return e.Serve.Reload(r.Plan)
	}
	e = edgetest.StartPlan(t, opened.Plan, edgetest.With(serve.WithReload(func() error { return reload() })))
	return &front{Edge: e, client: e.NewClient()}, e.Serve.ReloadNow
}

// bothEras runs a test with a client of each era.
func bothEras(t *testing.T, run func(*testing.T, edgetest.Era)) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			run(t, era)
		})
	}
}

// TestWebhooks has one webhook rename a tool and another look at what comes of
// it: policies and routing judge the new name, wherever that leads.
func TestWebhooks(t *testing.T) {
	bothEras(t, func(t *testing.T, era edgetest.Era) {
		one, two := edgetest.NewServer(t, edgetest.Modern), edgetest.NewServer(t, edgetest.Legacy)
		offers(one, "safe", "danger")
		offers(two, "safe")
		mutating, validating := newHook(t, renames("one_danger", "two_safe")), newHook(t, says(200, hookAllows))
		manifest := strings.Replace(group(map[string]*edgetest.Server{"one": one, "two": two}, "telemetry: {enablePrometheusMetricsPath: true}"), "{type: anonymous}", `
  type: anonymous
  authz:
    type: policy
    policies:
    - permit(principal, action == Action::"call_tool", resource == Tool::"two_safe");`, 1)
		file := write(t, filepath.Join(t.TempDir(), "hooks.yaml"), "validating:\n"+validating.entry("look", "fail")+"mutating:\n"+mutating.entry("rename", "fail"))
		f, _ := hooked(t, manifest, file)
		c := f.callerOf(t, era, "")

		// 1. What came would be denied; what becomes of it is allowed, and goes elsewhere.
		r := c.request(t, "1", "tools/call", edgetest.CallParams("one_danger", `{"n":12345678901234567890}`))
		if r.Status != 200 {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
		got := two.Requests("tools/call")
		if len(got) != 1 || edgetest.Member(string(got[0].Message.Params), "name") != `"safe"` || edgetest.Member(string(got[0].Message.Params), "arguments", "n") != "12345678901234567890" {
			t.Fatalf("%d calls: %s", len(got), got[0].Message.Params)
		}
		told := validating.last()
		if name := told["mcp_request"].(map[string]any)["params"].(map[string]any)["name"]; name != "two_safe" {
			t.Errorf("the validating webhook was told of %v", name)
		}
		if where := told["context"].(map[string]any); where["server_name"] != "edgetest" || where["backend_server"] != "two" {
			t.Errorf("%v", where)
		}
		if was := mutating.last()["context"].(map[string]any); was["backend_server"] != "one" {
			t.Errorf("the mutating webhook was told of %v", was)
		}

		// 2. What came would be allowed; what becomes of it is not.
		mutating.says(renames("two_safe", "one_danger"))
		r = c.request(t, "2", "tools/call", edgetest.CallParams("two_safe", `{}`))
		fails(t, r, 403, 403, "2")
		if !strings.Contains(string(r.Body), "denied by authorization policy") || one.Count("tools/call") != 0 || two.Count("tools/call") != 1 {
			t.Errorf("%s; the backends got %d and %d calls", r.Body, one.Count("tools/call"), two.Count("tools/call"))
		}

		// 3. A name that leads nowhere is denied like any other.
		mutating.says(renames("two_safe", "nothing"))
		fails(t, c.request(t, "3", "tools/call", edgetest.CallParams("two_safe", `{}`)), 403, 403, "3")

		// 4. A validating webhook that refuses has the last word before policies, and
		// nobody reads what it says.
		mutating.says(says(200, hookAllows))
		validating.says(says(200, hookDenies))
		r = c.request(t, "4", "tools/call", edgetest.CallParams("two_safe", `{}`))
		fails(t, r, 403, 403, "4")
		if !strings.Contains(string(r.Body), "Request denied by policy") || strings.Contains(string(r.Body), "said by") || two.Count("tools/call") != 1 {
			t.Errorf("%s", r.Body)
		}

		// 5. Lists are shown to webhooks, too; a session's own beginning is not.
		validating.says(says(200, hookAllows))
		c.request(t, "5", "tools/list", "").Result()
		if all := strings.Join(mutating.methods(), " "); all != "tools/call tools/call tools/call tools/call tools/list" {
			t.Errorf("asked about %s", all)
		}

		// 6. /status says what became of it all.
		var status struct {
			Webhooks []struct {
				Name, Type                              string
				Asked, Denied, Changed, Failed, Ignored int
			}
		}
		if err := json.Unmarshal(f.client.Do("GET", "/status", "").Body, &status); err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprintf("%+v", status.Webhooks); text != "[{Name:rename Type:mutating Asked:5 Denied:0 Changed:3 Failed:0 Ignored:0} {Name:look Type:validating Asked:5 Denied:1 Changed:0 Failed:0 Ignored:0}]" {
			t.Errorf("%s", text)
		}
		metrics := string(f.client.Do("GET", "/metrics", "").Body)
		for _, want := range []string{`weir_webhook_changed_total{server="edgetest",type="mutating",webhook="rename"} 3`, `weir_webhook_denied_total{server="edgetest",type="validating",webhook="look"} 1`} {
			if !strings.Contains(metrics, want) {
				t.Errorf("/metrics lacks %s", want)
			}
		}
	})
}

// TestT27 is a webhook that answers 500, too slowly, with 10 MiB, or not at all:
// what happens is what its failure_policy says, within its timeout.
func TestT27(t *testing.T) {
	big := strings.Repeat(" ", 10<<20)
	faults := map[string]http.HandlerFunc{
		"500":    says(500, hookAllows),
		"slow":   func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"10 MiB": func(w http.ResponseWriter, r *http.Request) { says(200, hookAllows+big)(w, r) },
		"ends":   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}
	bothEras(t, func(t *testing.T, era edgetest.Era) {
		for _, kind := range []string{"validating", "mutating"} {
			for _, policy := range []string{"fail", "ignore"} {
				back, h := edgetest.NewServer(t, era), newHook(t, says(200, hookAllows))
				file := write(t, filepath.Join(t.TempDir(), "hooks.json"), fmt.Sprintf(`{%q:[{"name":"h","url":%q,"timeout":"1s","failure_policy":%q,"tls_config":{"ca_bundle_path":%q}}]}`, kind, h.URL, policy, h.ca))
				f, _ := hooked(t, edgetest.Manifest(back), file)
				c := f.callerOf(t, era, "")
				if r := c.call(t, "1", "{}"); r.Status != 200 {
					t.Fatalf("%s %s: status %d: %s", kind, policy, r.Status, r.Body)
				}
				for name, fault := range faults {
					h.says(fault)
					r := c.call(t, "2", "{}")
					switch {
					case policy == "ignore":
						if r.Status != 200 {
							t.Errorf("%s %s %s: status %d: %s", name, kind, policy, r.Status, r.Body)
						}
					case kind == "mutating":
						fails(t, r, 500, -32603, "2")
					default:
						fails(t, r, 403, 403, "2")
					}
				}
				want := 1
				if policy == "ignore" {
					want += len(faults)
				}
				if n := back.Count("tools/call"); n != want {
					t.Errorf("%s %s: the backend got %d calls, want %d", kind, policy, n, want)
				}
			}
		}
	})
}

// TestWebhookOfMirroredArguments has a webhook change an argument that a tool
// wants in a header as well: a modern backend gets the same in both places, and
// of the client's header nothing; for a legacy one the client's header is not
// held against what it did not write.
func TestWebhookOfMirroredArguments(t *testing.T) {
	bothEras(t, func(t *testing.T, era edgetest.Era) {
		back := edgetest.NewServer(t, era, func(s *edgetest.Server) {
			s.Tools = `[{"name":"echo","inputSchema":{"type":"object","properties":{"env":{"type":"string","x-mcp-header":"Env"}}}}]`
		})
		if era == edgetest.Modern {
			back.Always("tools/call", func(c *edgetest.Call) {
				if in := c.Request.Header.Get("Mcp-Param-Env"); `"`+in+`"` != edgetest.Member(string(c.Message.Params), "arguments", "env") {
					c.Error(400, -32020, "header Mcp-Param-Env does not match the body")
					return
				}
				c.Result(`{"resultType":"complete","content":[{"type":"text","text":"done"}]}`)
			})
		}
		h := newHook(t, says(200, hookAllows))
		file := write(t, filepath.Join(t.TempDir(), "hooks.yaml"), "mutating:\n"+h.entry("m", "fail"))
		f, _ := hooked(t, edgetest.Manifest(back), file)
		c := f.callerOf(t, edgetest.Modern, "")
		c.request(t, "1", "tools/list", "").Result() // from where the edge knows the header, too
		call := func(env string) *edgetest.Response {
			body, head := c.message("2", "tools/call", edgetest.CallParams("echo", `{"env":"prod"}`))
			return f.client.Post(body, append(head, "Mcp-Param-Env", env)...)
		}
		if r := call("prod"); r.Status != 200 {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
		if r := call("other"); r.Status != 400 {
			t.Errorf("a header that says something else: status %d: %s", r.Status, r.Body)
		}
		h.says(says(200, `{"allowed":true,"patch_type":"json_patch","patch":[{"op":"replace","path":"/mcp_request/params/arguments/env","value":"dev"}]}`))
		if r := call("prod"); r.Status != 200 {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
		all := back.Requests("tools/call")
		last := all[len(all)-1]
		if got := edgetest.Member(string(last.Message.Params), "arguments", "env"); got != `"dev"` {
			t.Errorf("argument %s", got)
		}
		want := "[dev]"
		if era == edgetest.Legacy {
			want = "[]"
		}
		if got := fmt.Sprint(last.Header.Values("Mcp-Param-Env")); got != want {
			t.Errorf("Mcp-Param-Env: %s, want %s", got, want)
		}
	})
}

// TestWebhookReload has a reload read the files of webhooks again: a change is
// taken in, what did not change goes on as it was, and a file that is wrong
// changes nothing.
func TestWebhookReload(t *testing.T) {
	t.Parallel()
	back, first, second := edgetest.NewServer(t, edgetest.Legacy), newHook(t, says(200, hookAllows)), newHook(t, says(200, hookDenies))
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "hooks.yaml"), "validating:\n"+first.entry("h", "fail"))
	more := write(t, filepath.Join(dir, "more.yaml"), "validating:\n"+first.entry("other", "fail"))
	f, reload := hooked(t, edgetest.Manifest(back), file, more)
	c := f.callerOf(t, edgetest.Legacy, "")
	asked := func() string {
		var status struct{ Webhooks []struct{ Name string } }
		if err := json.Unmarshal(f.client.Do("GET", "/status", "").Body, &status); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(status.Webhooks, len(first.methods()), len(second.methods()))
	}
	if r := c.call(t, "1", "{}"); r.Status != 200 || asked() != "[{h} {other}] 2 0" {
		t.Fatalf("status %d, %s", r.Status, asked())
	}
	write(t, file, "validating:\n"+second.entry("h", "fail"))
	if err := reload(); err != nil {
		t.Fatal(err)
	}
	fails(t, c.call(t, "2", "{}"), 403, 403, "2")
	if got := asked(); got != "[{h} {other}] 2 1" {
		t.Error(got)
	}
	write(t, more, "validating:\n"+first.entry("h", "fail")) // the later file wins
	if err := reload(); err != nil {
		t.Fatal(err)
	}
	if r := c.call(t, "3", "{}"); r.Status != 200 || asked() != "[{h}] 3 1" {
		t.Errorf("status %d, %s", r.Status, asked())
	}
	write(t, file, "validating:\n- {name: h}\n")
	if err := reload(); err == nil {
		t.Error("a file that is wrong was taken")
	}
	if r := c.call(t, "4", "{}"); r.Status != 200 || asked() != "[{h}] 4 1" {
		t.Errorf("status %d, %s", r.Status, asked())
	}
}

// TestSignedWebhook signs what a webhook is told with a secret of the edge, and
// with another from the next message on when that changes.
func TestSignedWebhook(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var signed []bool
	keys, key := []string{"first", "second"}, 0
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		mac := hmac.New(sha256.New, []byte(keys[key]))
		mac.Write([]byte(r.Header.Get("X-Weir-Timestamp") + "." + string(body)))
		signed = append(signed, r.Header.Get("X-Weir-Signature") == "sha256="+hex.EncodeToString(mac.Sum(nil)))
		says(200, hookAllows)(w, r)
	}))
	t.Cleanup(h.Close)
	back, dir := edgetest.NewServer(t, edgetest.Modern), t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "hook"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "hook", "hmac"), keys[0])
	file := write(t, filepath.Join(dir, "hooks.yaml"), fmt.Sprintf("validating:\n- {name: h, url: %q, failure_policy: fail, hmac_secret_ref: {name: hook, key: hmac}, tls_config: {insecure_skip_verify: true}}\n", h.URL))
	opened := source.OpenWith(write(t, filepath.Join(dir, "weir.yaml"), edgetest.Manifest(back)), file)
	if opened.Err() != nil {
		t.Fatal(opened.Findings)
	}
	e := edgetest.StartPlan(t, opened.Plan, edgetest.Settings(func(s *serve.Settings) { s.SecretsDir = dir }))
	c := (&front{Edge: e, client: e.NewClient()}).callerOf(t, edgetest.Modern, "")
	for range 2 {
		if r := c.call(t, "1", "{}"); r.Status != 200 {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
		mu.Lock()
		key = 1
		mu.Unlock()
		write(t, filepath.Join(dir, "hook", "hmac"), keys[1])
	}
	if fmt.Sprint(signed) != "[true true]" {
		t.Errorf("signed as it should be: %v", signed)
	}
}

// TestWebhookOfAParkedCall has a webhook change a call whose backend asks its
// client in the middle of it: the client comes back with what it wrote itself,
// that is changed in the same way, and the call goes on. A webhook that makes
// something else of it the second time ends it.
func TestWebhookOfAParkedCall(t *testing.T) {
	t.Parallel()
	back := edgetest.NewServer(t, edgetest.Legacy)
	back.Always("tools/call", func(c *edgetest.Call) {
		answer := c.Ask(`"q"`, "elicitation/create", `{"message":"Who?","requestedSchema":{"type":"object"}}`)
		c.Result(`{"content":[],"answer":` + string(answer.Result) + `}`)
	})
	adds := func(value string) http.HandlerFunc {
		return says(200, `{"allowed":true,"patch_type":"json_patch","patch":[{"op":"add","path":"/mcp_request/params/arguments/by","value":"`+value+`"}]}`)
	}
	h := newHook(t, adds("hook"))
	file := write(t, filepath.Join(t.TempDir(), "hooks.yaml"), "mutating:\n"+h.entry("m", "fail"))
	f, _ := hooked(t, edgetest.Manifest(back), file)
	c := f.callerOf(t, edgetest.Modern, "")
	first := f.begin(t, c, `{"n":1}`)
	responses := fmt.Sprintf(`{%s:{"action":"accept","content":{"name":"x"}}}`, quote(first.key(t)))
	if got := retry(c, `"second"`, `{"n":1}`, responses, first.RequestState).Result(); !strings.Contains(got, `"name":"x"`) {
		t.Errorf("%s", got)
	}
	if calls := back.Requests("tools/call"); len(calls) != 1 || edgetest.Member(string(calls[0].Message.Params), "arguments", "by") != `"hook"` {
		t.Errorf("%d calls", len(calls))
	}
	again := f.begin(t, c, `{"n":2}`)
	h.says(adds("another"))
	fails(t, retry(c, `"third"`, `{"n":2}`, responses, again.RequestState), 400, -32602, `"third"`)
}

// TestWebhookOfARemoteServer: a server at a URL has the webhooks that its spec.run refers to, and
// what they deny does not reach it.
func TestWebhookOfARemoteServer(t *testing.T) {
	bothEras(t, func(t *testing.T, client edgetest.Era) {
		h := newHook(t, says(http.StatusOK, hookAllows))
		back := edgetest.NewServer(t, edgetest.Modern, twoTools)
		e := edgetest.Start(t, remote("weather", back, "run: {webhookConfigRef: {name: hooks}}")+fmt.Sprintf(`---
apiVersion: weir.dev/v1beta1
kind: MCPWebhookConfig
metadata: {name: hooks}
spec: {validating: [{name: policy, url: %q, failurePolicy: fail, tlsConfig: {insecureSkipVerify: true}}]}
`, h.URL))
		f := &front{Edge: e, back: back, client: e.NewClient()}
		c := f.callerOf(t, client, "")
		if r := c.call(t, "1", "{}"); r.Status != http.StatusOK || back.Count("tools/call") != 1 {
			t.Errorf("allowed: status %d, %d calls: %s", r.Status, back.Count("tools/call"), r.Body)
		}
		h.says(says(http.StatusOK, hookDenies))
		if r := c.call(t, "2", "{}"); r.Status != http.StatusForbidden || back.Count("tools/call") != 1 {
			t.Errorf("denied: status %d, %d calls: %s", r.Status, back.Count("tools/call"), r.Body)
		}
	})
}
