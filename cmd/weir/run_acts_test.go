package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/idp"
	"github.com/weir-edge/weir/edge/workload/logs"
)

// small is the path of the small server.
func small(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("small-server")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// fetched sends a request without a body, and returns the status and the first lines.
func fetched(t *testing.T, method, url string, header ...string) (status int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), edgetest.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") { // which does not end
		lines := bufio.NewScanner(answer.Body)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "data:") {
		}
		return answer.StatusCode, lines.Text()
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// Flags of the door and of clients do what they say, at a workload that runs.
func TestRunFlagsAct(t *testing.T) {
	h := newHousehold(t).managed()
	run := func(words string, command ...string) string {
		t.Helper()
		return h.must(append(append([]string{"run"}, strings.Fields(words)...), append([]string{"--", small(t)}, command...)...)...)
	}

	// The door.
	if url := run("--name v6 --host ::1"); !strings.HasPrefix(url, "http://[::1]:") {
		t.Errorf("at %s", url)
	} else {
		h.asks(url, "")
	}
	older := run("--name older --proxy-mode sse --endpoint-prefix /crm")
	if !strings.HasSuffix(older, "/sse") {
		t.Errorf("the older door is told as %s", older)
	}
	if status, line := fetched(t, "GET", older, "Accept", "text/event-stream"); status != 200 || !strings.HasPrefix(line, "data: /crm/") {
		t.Errorf("%s: %d, %s", older, status, line)
	}
	h.asks(strings.TrimSuffix(older, "/sse")+"/mcp", "")
	stateless := run("--name stateless --stateless")
	if status, _ := fetched(t, "GET", stateless, "Accept", "text/event-stream"); status != 405 {
		t.Errorf("GET of a stateless one: %d", status)
	}
	h.asks(stateless, "")
	origins := run("--name origins --allowed-origins https://app.example.com")
	for origin, want := range map[string]bool{"https://app.example.com": true, "https://app.example.org": false} {
		if status, _ := fetched(t, "DELETE", origins, "Origin", origin); (status != 403) != want {
			t.Errorf("from %s: %d", origin, status)
		}
	}

	// The server.
	h.asks(run("--name off --sandbox off --network host"), "")
	if one := h.listed("off"); one.Sandbox != "none" {
		t.Errorf("without a sandbox: %q", one.Sandbox)
	}
	h.asks(h.must("run", "--name", "web", "--sandbox", "off", "--network", "host", "--transport", "streamable-http", "--", filepath.Join(filepath.Dir(small(t)), "small-http")), "") // at a port that was free
	if out, _, code := h.weir("list", "--label", "team=a"); code != 0 || strings.Contains(out, "off") {
		t.Errorf("list by a label: exit code %d, %s", code, out)
	}

	// Clients.
	renamed := run("--name renamed --tools-override " + h.write("tools.json", `{"look": {"name": "see"}}`) + " --tools see")
	if out, _, _ := h.weir("tools", renamed); !strings.HasPrefix(out, "see ") || strings.Contains(out, "\nlook ") {
		t.Errorf("tools: %s", out)
	}
	if out := h.must("call", renamed, "see"); !strings.Contains(out, "<>") {
		t.Errorf("see: %s", out)
	}
	hidden, said, _ := h.weir("run", "--name", "hidden", "--tools", "other", "--", small(t))
	if !strings.Contains(said, "warning: unused: tool hidden.other: --tools names a tool that is not there") {
		t.Errorf("a filter that names no tool: %s", said)
	}
	if out := h.must("status", "hidden"); !strings.Contains(out, "--tools names a tool that is not there") {
		t.Errorf("its status: %s", out)
	}
	hidden = strings.TrimSpace(hidden)
	if out, _, _ := h.weir("tools", hidden); strings.Contains(out, "look") {
		t.Errorf("a hidden tool is listed: %s", out)
	}
	denied := run("--name denied --enable-audit --authz-config " + h.write("authz.json", `{"version": "1.0", "type": "policyv1", "policy": {"policies": ["forbid(principal, action, resource);"], "entities_json": "[]"}}`))
	if out, said, code := h.weir("call", denied, "look", "--args", "{}"); code == 0 || !strings.Contains(out+said, "denied by authorization policy") {
		t.Errorf("a call that is forbidden: exit code %d, %s%s", code, out, said)
	}
	edgetest.Until(t, "a record", func() bool {
		text, _ := os.ReadFile(filepath.Join(h.home, "weir", "state", "workloads", "denied", logs.Audit))
		return strings.Contains(string(text), "denied")
	})
	run("--name debug --debug")
	h.must("call", h.listed("debug").URL, "look")
	edgetest.Until(t, "a line of each exchange", func() bool {
		out, _, _ := h.weir("logs", "debug", "--proxy")
		return strings.Contains(out, "tools/call")
	})

	// Telemetry.
	measured := run("--name measured --otel-enable-prometheus-metrics-path")
	h.must("call", measured, "look")
	for at, want := range map[string]int{measured: 200, origins: 404} {
		if status, text := fetched(t, "GET", strings.TrimSuffix(at, "/mcp")+"/metrics"); status != want {
			t.Errorf("%s: metrics: %d, %.200s", at, status, text)
		}
	}

	// Who clients are.
	provider := idp.Start(t)
	guarded := run("--name guarded --oidc-audience https://crm.example.com --oidc-insecure-allow-http --jwks-allow-private-ip --oidc-issuer " + provider.Issuer)
	if status, _ := fetched(t, "DELETE", guarded); status != 401 {
		t.Errorf("without a token: %d", status)
	}
	token := h.write("token", provider.User(t, "alice", "https://crm.example.com", "tools:read").Access)
	h.asks(guarded, "", "--bearer-token-file", token)
}

// Servers at URLs are sent what flags say, and keep their paths and queries.
func TestRunForwards(t *testing.T) {
	h := newHousehold(t).managed()
	back := edgetest.NewServer(t, edgetest.Modern)
	h.must("secret", "setup")
	if _, said, code := h.weirWith("key-1234567", "secret", "set", "api"); code != 0 {
		t.Fatal(said)
	}
	url := h.must("run", back.URL+"?team=a", "--name", "far", "--remote-auth-bearer-token-file", h.write("token", "tok-1234567\n"),
		"--remote-forward-headers", "X-Team=blue", "--remote-forward-headers-secret", "X-Key=api")
	h.must("call", url, "echo")
	calls := back.Requests("tools/call")
	if len(calls) == 0 {
		t.Fatal("nothing came")
	}
	for name, want := range map[string]string{"Authorization": "Bearer tok-1234567", "X-Team": "blue", "X-Key": "key-1234567"} {
		if got := calls[0].Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}

	// What the file holds later is sent from the next request on, by the same process.
	h.write("token", "tok-7654321\n")
	h.must("call", url, "echo")
	calls = back.Requests("tools/call")
	if got := calls[len(calls)-1].Header.Get("Authorization"); got != "Bearer tok-7654321" {
		t.Errorf("after the file has changed: %q", got)
	}
	for _, secret := range []string{"tok-1234567", "tok-7654321", "key-1234567"} {
		if path := h.holds(secret); path != "" && !strings.HasSuffix(path, "/token") {
			t.Errorf("%s holds %s", path, secret)
		}
	}
	if one := h.listed("far"); !one.Remote || one.Sandbox != "" {
		t.Errorf("%+v", one.Status)
	}
}

// RunConfigs of the reference run: here with a program of this machine in the place of the
// image, and servers of the test at the URLs; of the rest it is said what would be started.
func TestRunConfigsRun(t *testing.T) {
	h := newHousehold(t).managed()
	back := edgetest.NewServer(t, edgetest.Modern)
	h.must("secret", "setup")
	for _, name := range []string{"API_TOKEN", "API_KEY"} {
		if _, said, code := h.weirWith("value-"+name, "secret", "set", name); code != 0 {
			t.Fatal(said)
		}
	}
	paths, err := filepath.Glob("../../edge/workload/testdata/runconfig/*.json")
	if err != nil || len(paths) != 10 {
		t.Fatalf("%d RunConfigs, %v", len(paths), err)
	}
	changed := map[string]map[string]any{ // they run with these changes
		"stdio-image":   {"image": "exec://" + small(t), "port": 0},
		"remote-plain":  {"remote_url": back.URL, "port": 0},
		"remote-bearer": {"remote_url": back.URL, "transport": "streamable-http", "port": 0},
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out, said, code := h.weir("run", "--dry-run", "--from-config", h.write(name+".json", string(text)))
		var c map[string]any
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatal(err)
		}
		if code != 0 {
			t.Errorf("%s: exit code %d, %s%s", name, code, out, said)
		}
		changes, ok := changed[name]
		if !ok {
			continue
		}
		for key, value := range changes {
			c[key] = value
		}
		if text, err = json.Marshal(c); err != nil {
			t.Fatal(err)
		}
		url := h.must("run", "--from-config", h.write(name+".json", string(text)))
		if out := h.must("tools", url); out == "" {
			t.Errorf("%s has no tools", name)
		}
		if name == "stdio-image" {
			h.asks(url, "info", "env=LOG_LEVEL")
		}
	}
	if back.Count("tools/list") == 0 {
		t.Error("nothing came to the server at the URL")
	}
}
