package serve_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/serve"
)

// planted is a secret that must appear nowhere but at a backend.
const planted = "planted-7c31!s&cret"

// locked is the YAML of an edge before one server with a credential: auth is a
// field of the backend's object, and more are further documents.
func locked(back *edgetest.Server, auth string, more ...string) string {
	transport := "streamable-http"
	if back.Era == edgetest.SSE {
		transport = "sse"
	}
	return fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: g}
---
apiVersion: weir.dev/v1beta1
kind: MCPServerEntry
metadata: {name: back}
spec:
  groupRef: {name: g}
  remoteUrl: %q
  transport: %s
  allowPrivateEndpoint: true
  %s
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: main}
spec:
  groupRef: {name: g}
  incomingAuth: {type: anonymous}
  passthroughHeaders: [X-Trace]
  config: {aggregation: {conflictResolution: priority}}
%s`, back.URL, transport, auth, strings.Join(more, ""))
}

const (
	byBearer = `---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: auth}
spec: {type: bearerToken, bearerToken: {tokenSecretRef: {name: token, key: value}}}
`
	byHeader = `---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: auth}
spec: {type: headerInjection, headerInjection: {headerName: X-Api-Key, valueSecretRef: {name: token, key: value}}}
`
	byRef = `externalAuthConfigRef: {name: auth}`
)

// document is a Secret document with one value.
func document(value string) string {
	text, err := json.Marshal(value) // which YAML reads, too
	if err != nil {
		panic(err)
	}
	return "---\napiVersion: v1\nkind: Secret\nmetadata: {name: token}\nstringData: {value: " + string(text) + "}\n"
}

// file writes the value into a directory of secrets, as a rotation does.
func file(t *testing.T, dir, value string) {
	t.Helper()
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "token"), 0o700),
		os.WriteFile(filepath.Join(dir, "next"), []byte(value), 0o600),
		os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "token", "value")))
	if err != nil {
		t.Fatal(err)
	}
}

func inDir(dir string) edgetest.Option {
	return edgetest.Settings(func(s *serve.Settings) { s.SecretsDir = dir })
}

// Every request to a backend carries what is configured, once, whatever a client
// sends: the first questions, the calls, the streams, the ends of sessions. Of a
// client's own credentials none arrives (row S35).
func TestS35Credentials(t *testing.T) {
	t.Setenv("WEIR_TEST_KEY", planted)
	ways := []struct {
		what, name, value, auth, more string
	}{
		{"a bearer token", "Authorization", "Bearer " + planted, byRef, byBearer + document(planted)},
		{"a header of a secret", "X-Api-Key", planted, byRef, byHeader + document(planted+"\n")},
		{"a header of the entry", "X-Api-Key", planted, `headerForward: {addHeadersFromSecret: [{headerName: X-Api-Key, valueSecretRef: {name: token, key: value}}]}`, document(planted)},
		{"a plain header of the entry", "X-Api-Key", planted, `headerForward: {addPlaintextHeaders: {X-Api-Key: "` + planted + `"}}`, ""},
	}
	for _, w := range ways {
		for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern, edgetest.SSE} {
			for _, client := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
				t.Run(fmt.Sprintf("%s, %s backend, %s client", w.what, era, client), func(t *testing.T) {
					t.Parallel()
					back := edgetest.NewServer(t, era)
					manifest := locked(back, w.auth, w.more)
					if w.name != "Authorization" { // what is configured is also allowed to clients, in either spelling
						listed := map[edgetest.Era]string{edgetest.Legacy: "X-Api-Key", edgetest.Modern: "X_Api_Key"}[client]
						manifest = strings.Replace(manifest, "[X-Trace]", "[X-Trace, "+listed+"]", 1)
					}
					e := edgetest.Start(t, manifest)
					f := &front{Edge: e, back: back, client: e.NewClient()}
					c := f.callerOf(t, client, "")
					var stream *edgetest.Response
					if c.session != nil {
						stream = c.session.Listen()
					}
					if r := c.request(t, "1", "tools/list", ""); r.Status != 200 {
						t.Fatal(r.Status, string(r.Body))
					}
					body, head := c.message("2", "tools/call", edgetest.CallParams("echo", "{}"))
					evil(t, e, body, head)
					if stream != nil && era != edgetest.SSE {
						kind := "GET"
						if era == edgetest.Modern {
							kind = "subscriptions/listen"
						}
						back.Await(kind, 1)
					}
					e.Stop()
					kinds := map[string]bool{}
					for _, r := range back.Requests("") {
						kinds[r.Kind] = true
						if got := r.Header.Values(w.name); len(got) != 1 || got[0] != w.value {
							t.Errorf("%s carries %d lines %s", r.Kind, len(got), w.name)
						}
						for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization", "X_Api_Key"} {
							if name != w.name && r.Header.Get(name) != "" {
								t.Errorf("%s carries %s", r.Kind, name)
							}
						}
						if text := fmt.Sprint(r.Header); strings.Contains(text, "evil") {
							t.Errorf("%s carries what the client sent: %s", r.Kind, text)
						}
					}
					calls := back.Requests("tools/call")
					if len(calls) != 1 || calls[0].Header.Get("X-Trace") != "t1" {
						t.Errorf("%d calls", len(calls))
					}
					if era == edgetest.Legacy && !kinds["DELETE"] {
						t.Error("no session was ended")
					}
					if strings.Contains(e.Log(), planted) {
						t.Error("the log holds the secret")
					}
				})
			}
		}
	}
}

// evil calls a tool with header lines that try to be, or to take away, what the
// edge sends backends.
func evil(t *testing.T, e *edgetest.Edge, body string, head []string) {
	t.Helper()
	raw := e.Dial()
	text := "POST /mcp HTTP/1.1\r\nHost: " + e.Addr() + "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
	for i := 0; i+1 < len(head); i += 2 {
		text += head[i] + ": " + head[i+1] + "\r\n"
	}
	raw.Write(text + "X-Trace: t1\r\nX-Api-Key: evil\r\nx-api-key: evil\r\nX-API-KEY: evil, more\r\nX_Api_Key: evil\r\nConnection: X-Api-Key, keep-alive\r\n" +
		"Authorization: Bearer evil\r\nCookie: evil=1\r\n" + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
	if r, answer := raw.Read(); r.StatusCode != 200 {
		t.Errorf("status %d: %s", r.StatusCode, answer)
	}
}

// The entries of spec.config.outgoingAuth reach the backends that they are for,
// and no other.
func TestOutgoingAuthOfAConfiguration(t *testing.T) {
	t.Setenv("WEIR_TEST_OUTGOING", planted)
	var backs [3]*edgetest.Server
	list := ""
	for i := range backs {
		backs[i] = edgetest.NewServer(t, edgetest.Modern)
		list += fmt.Sprintf("- {name: %c, url: %q, transport: streamable-http}\n", 'a'+i, backs[i].URL)
	}
	e := edgetest.Start(t, `name: s
groupRef: g
incomingAuth: {type: anonymous}
outgoingAuth:
  source: inline
  default: {type: header_injection, headerInjection: {headerName: X-Api-Key, headerValueEnv: WEIR_TEST_OUTGOING}}
  backends:
    b: {type: unauthenticated}
    c: {type: header_injection, headerInjection: {headerName: Authorization, headerValue: Basic inline}}
backends:
`+list)
	c := e.NewClient()
	for i, name := range []string{"a_echo", "b_echo", "c_echo"} {
		if r := c.Modern("1", "tools/call", edgetest.CallParams(name, "{}")); r.Status != 200 {
			t.Errorf("%s: %d %s", name, r.Status, r.Body)
		}
		want := http.Header{}
		switch i {
		case 0:
			want.Set("X-Api-Key", planted)
		case 2:
			want.Set("Authorization", "Basic inline")
		}
		for _, r := range backs[i].Requests("") {
			for _, h := range []string{"X-Api-Key", "Authorization"} {
				if r.Header.Get(h) != want.Get(h) {
					t.Errorf("%s %s: %s", name, r.Kind, h)
				}
			}
		}
	}
	var s struct {
		DiscoveredBackends []struct{ Name, AuthType, AuthConfigRef string }
	}
	answer := c.Do("GET", "/status", "").Body
	if err := json.Unmarshal(answer, &s); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"header_injection", "unauthenticated", "header_injection"} {
		if got := s.DiscoveredBackends[i]; got.AuthType != want || got.AuthConfigRef != "" {
			t.Errorf("%+v", got)
		}
	}
	if strings.Contains(string(answer), "inline") || strings.Contains(string(answer), planted) {
		t.Error("the status holds a secret")
	}
}

// A secret that is rotated is used by the next call, and /status says where it
// comes from.
func TestRotatedSecret(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	dir := t.TempDir()
	file(t, dir, "one")
	e := edgetest.Start(t, locked(back, byRef, byBearer), inDir(dir))
	c := e.NewClient()
	for _, value := range []string{"one", "two", "three"} {
		file(t, dir, value)
		back.Forget()
		if r := c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}")); r.Status != 200 {
			t.Fatal(r.Status, string(r.Body))
		}
		if got := back.Requests("tools/call"); len(got) != 1 || got[0].Header.Get("Authorization") != "Bearer "+value {
			t.Errorf("%s is not used", value)
		}
	}
	if text := string(c.Do("GET", "/status", "").Body); !strings.Contains(text, `"authType": "bearerToken"`) || !strings.Contains(text, `"authConfigRef": "auth"`) {
		t.Error(text)
	}
}

// A call that is refused with 401 is sent once more where the credential was
// rotated while it was under way, and never else: the backend said that it did
// not run it.
func TestRotatedWhileACallIsUnderWay(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, era)
			dir := t.TempDir()
			file(t, dir, "old")
			e := edgetest.Start(t, locked(back, byRef, byBearer), inDir(dir))
			f := &front{Edge: e, back: back, client: e.NewClient()}
			c := f.callerOf(t, era, "")
			if r := c.call(t, "1", "{}"); r.Status != 200 {
				t.Fatal(r.Status, string(r.Body))
			}
			var once sync.Once
			back.Always("tools/call", func(call *edgetest.Call) {
				if call.Request.Header.Get("Authorization") == "Bearer new" {
					call.Result(`{"content":[]}`)
					return
				}
				once.Do(func() { file(t, dir, "new") })
				call.Text(401, "text/plain", "")
			})
			back.Forget()
			if r := c.call(t, "2", "{}"); r.Status != 200 || !strings.Contains(string(r.Body), `"content":[]`) {
				t.Errorf("%d %s", r.Status, r.Body)
			}
			if n := back.Count("tools/call"); n != 2 {
				t.Errorf("%d calls reached the backend, want 2", n)
			}

			// The same credential again would be refused again.
			back.Always("tools/call", func(call *edgetest.Call) { call.Text(401, "text/plain", "") })
			back.Forget()
			if r := c.call(t, "3", "{}"); !strings.Contains(string(r.Body), `backend \"back\" unavailable`) {
				t.Errorf("%d %s", r.Status, r.Body)
			}
			if n := back.Count("tools/call"); n != 1 {
				t.Errorf("%d calls reached the backend, want 1", n)
			}

			// One that changes every time is tried twice, and no more.
			rotations := 0
			back.Always("tools/call", func(call *edgetest.Call) {
				rotations++
				file(t, dir, fmt.Sprint("r", rotations))
				call.Text(401, "text/plain", "")
			})
			back.Forget()
			c.call(t, "4", "{}")
			if n := back.Count("tools/call"); n != 2 {
				t.Errorf("%d calls reached the backend, want 2", n)
			}
		})
	}
}

// A backend that took no credential is asked again when it takes one.
func TestUnauthenticatedBackendComesBack(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	dir := t.TempDir()
	file(t, dir, "good")
	var mu sync.Mutex
	good := "Bearer good"
	back.Always("server/discover", func(c *edgetest.Call) {
		mu.Lock()
		defer mu.Unlock()
		if c.Request.Header.Get("Authorization") != good {
			c.Text(401, "text/plain", "")
			return
		}
		c.Result(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
	})
	manifest := strings.Replace(locked(back, byRef, byBearer), "config: {", "config: {operational: {failureHandling: {healthCheckInterval: 1s, unhealthyThreshold: 1}}, ", 1)
	e := edgetest.Start(t, manifest, inDir(dir))
	c := e.NewClient()
	status := func(want string) {
		t.Helper()
		edgetest.Until(t, "the status "+want, func() bool {
			return strings.Contains(string(c.Do("GET", "/status", "").Body), `"status": "`+want+`"`)
		})
	}
	status("ready")
	mu.Lock()
	good = "Bearer better"
	mu.Unlock()
	back.Always("tools/call", func(call *edgetest.Call) {
		if call.Request.Header.Get("Authorization") != "Bearer better" {
			call.Text(401, "text/plain", "")
			return
		}
		call.Result(`{"content":[]}`)
	})
	status("unauthenticated")
	c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}"))
	if !strings.Contains(e.Log(), "does not take the credential that it is sent") {
		t.Error("the log does not say why")
	}
	file(t, dir, "better")
	if r := c.Modern("2", "tools/call", edgetest.CallParams("echo", "{}")); r.Status != 200 {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	status("ready")
}

// One that is sent none is asked on after a 401: that it is well again shows without any call,
// and so does that it has died since.
func TestRefusedWithoutCredentialIsAskedOn(t *testing.T) {
	t.Parallel()
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, era)
			e := edgetest.Start(t, strings.Replace(locked(back, ""), "config: {", "config: {operational: {failureHandling: {healthCheckInterval: 1s, unhealthyThreshold: 1}}, ", 1))
			c := e.NewClient()
			status := func(want string) {
				t.Helper()
				edgetest.Until(t, "the status "+want, func() bool {
					return strings.Contains(string(c.Do("GET", "/status", "").Body), `"status": "`+want+`"`)
				})
			}
			status("ready")
			back.Always("*", func(call *edgetest.Call) { call.Text(401, "text/plain", "") })
			status("unauthenticated")
			back.Always("*", nil)
			status("ready")
			back.Always("*", func(call *edgetest.Call) { call.Text(401, "text/plain", "") })
			status("unauthenticated")
			back.Close()
			status("unavailable")
		})
	}
}

// One that took no credential from the start offers its tools as soon as it
// takes one, to whoever asks then.
func TestUnauthenticatedBackendOffersLater(t *testing.T) {
	for _, era := range []edgetest.Era{edgetest.Legacy, edgetest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			t.Parallel()
			back := edgetest.NewServer(t, era)
			dir := t.TempDir()
			file(t, dir, "bad")
			locks := func(c *edgetest.Call) { c.Text(401, "text/plain", "") }
			back.Always("*", locks)
			manifest := strings.Replace(locked(back, byRef, byBearer), "config: {aggregation: {conflictResolution: priority}}",
				"config: {operational: {failureHandling: {partialFailureMode: best_effort, unhealthyThreshold: 1, healthCheckInterval: 1s}}}", 1)
			e := edgetest.Start(t, manifest, inDir(dir))
			c := e.NewClient()
			edgetest.Until(t, "the status", func() bool {
				return strings.Contains(string(c.Do("GET", "/status", "").Body), `"status": "unauthenticated"`)
			})
			file(t, dir, "good")
			back.Always("*", nil)
			edgetest.Until(t, "the tools", func() bool {
				return strings.Contains(string(c.Modern("1", "tools/list", "").Body), `"back_echo"`)
			})
			edgetest.Until(t, "the status", func() bool {
				text := string(c.Do("GET", "/status", "").Body)
				return strings.Contains(text, `"status": "ready"`) || strings.Contains(text, `"status": "degraded"`)
			})
		})
	}
}

// A value that would end its header, or cannot stand in one, is an error at the
// start, which names the secret and not its value; later it fails the calls, and
// nothing goes out in its place (row S36).
func TestS36Credentials(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	for what, value := range map[string]string{
		"a line": planted + "\r\nX-Evil: y", "LF": planted + "\nX-Evil: y", "NUL": planted + "\x00", "escape": planted + "\x1b[0m", "a blank": planted + " ",
	} {
		s := serve.Defaults()
		s.Listen, s.AdminListen, s.SecretsDir = "127.0.0.1:0", "", t.TempDir()
		file(t, s.SecretsDir, value)
		for _, auth := range []string{byBearer, byHeader} {
			_, err := serve.New(s, edgetest.Plan(t, locked(back, byRef, auth)), slog.New(slog.DiscardHandler))
			if err == nil || strings.Contains(err.Error(), planted) {
				t.Fatalf("%s: %v", what, err)
			}
			for _, part := range []string{"backend back", "secret token/value", "header "} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v lacks %q", err, part)
				}
			}
		}
	}

	dir := t.TempDir()
	file(t, dir, "good")
	e := edgetest.Start(t, locked(back, byRef, byHeader), inDir(dir))
	c := e.NewClient()
	call := func() *edgetest.Response { return c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}")) }
	if r := call(); r.Status != 200 {
		t.Fatal(r.Status, string(r.Body))
	}
	back.Forget()
	file(t, dir, planted+"\r\nX-Evil: y")
	if r := call(); r.Status != 502 || strings.Contains(string(r.Body), "token") {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if err := os.Remove(filepath.Join(dir, "token", "value")); err != nil {
		t.Fatal(err)
	}
	if r := call(); r.Status != 502 {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if n := back.Count("tools/call"); n != 0 {
		t.Errorf("%d calls without a credential", n)
	}
	file(t, dir, "good again")
	if r := call(); r.Status != 200 {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	for _, part := range []string{"secret token/value: it holds a line break", "secret token/value: not found"} {
		if !strings.Contains(e.Log(), part) {
			t.Errorf("the log lacks %q", part)
		}
	}
	if n := strings.Count(e.Log(), `level=WARN msg="calls fail for want of a credential"`); n != 1 { // in a minute
		t.Errorf("it is told %d times", n)
	}
	if strings.Contains(e.Log(), planted) {
		t.Error("the log holds the secret")
	}
}

// A document that changes with a reload is used from then on, over the
// connection that there is; one that is not sound is refused, and changes
// nothing.
func TestReloadOfASecretDocument(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	next := document("one")
	var e *edgetest.Edge
	manifest := func() string { return locked(back, byRef, byBearer, next) }
	e = edgetest.Start(t, manifest(), edgetest.With(serve.WithReload(func() error { return e.Serve.Reload(edgetest.Plan(t, manifest())) })))
	c := e.NewClient()
	uses := func(value string) {
		t.Helper()
		if r := c.Modern("1", "tools/call", edgetest.CallParams("echo", "{}")); r.Status != 200 {
			t.Fatal(r.Status, string(r.Body))
		}
		if all := back.Requests("tools/call"); all[len(all)-1].Header.Get("Authorization") != "Bearer "+value {
			t.Errorf("%s is not used", value)
		}
	}
	uses("one")
	before := back.Count("server/discover")
	next = document("two")
	if err := e.Serve.ReloadNow(); err != nil {
		t.Fatal(err)
	}
	uses("two")
	if n := back.Count("server/discover"); n != before {
		t.Error("the backend was opened anew")
	}
	next = document(planted + "\nX: y")
	if err := e.Serve.ReloadNow(); err == nil || !strings.Contains(err.Error(), "secret token/value") || strings.Contains(err.Error(), planted) {
		t.Error(err)
	}
	uses("two")
	next = ""
	if err := e.Serve.ReloadNow(); err == nil {
		t.Error("served without its secret")
	}
	uses("two")
	if text := string(c.Do("GET", "/status", "").Body); !strings.Contains(text, "tokenSecretRef") || strings.Contains(text, planted) {
		t.Error(text)
	}
}
