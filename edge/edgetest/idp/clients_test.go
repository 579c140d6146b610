package idp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/peers"
	"github.com/weir-edge/weir/edge/oauth"
)

// kit is where the clients of others are. The test is skipped, or fails, where
// they are missing: see edgetest.Need.
func kit(t *testing.T) peers.Kit {
	t.Helper()
	k, err := peers.Find()
	if err != nil {
		t.Fatal(err)
	}
	edgetest.Need(t, k.Lacks() == "", k.Lacks())
	return k
}

// script runs one of the clients in peers/clients, and returns what it saw.
func script(t *testing.T, k peers.Kit, name, url string, plan map[string]any) (seen []map[string]any) {
	t.Helper()
	text, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), edgetest.Patience)
	defer cancel()
	out, err := peers.Run(peers.Command(ctx, k.Node, filepath.Join(k.Dir(), "clients", name), url, string(text)))
	if err != nil {
		t.Fatalf("%s: %v; before that it saw %s", name, err, out)
	}
	for line := range bytes.Lines(out) {
		var one map[string]any
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatalf("%s: %q: %v", name, line, err)
		}
		seen = append(seen, one)
	}
	return seen
}

// TestRealClientsAuthenticate has the TypeScript SDKs, which do what RFC 9728,
// RFC 8414 and RFC 7591 say on their own, get a token and call a tool: with a
// client that they register, one that the provider knows, and one on its own
// account. One that has too narrow a token steps up.
func TestRealClientsAuthenticate(t *testing.T) {
	k := kit(t)
	r := newRealm(t, "", &oauth.Issuers{}, server{name: "a"}, server{name: "strict", ref: ", requiredScopes: [tools:read, tools:write]"})
	const redirect = "http://127.0.0.1/callback" // nobody listens there: the client follows the redirects itself
	for _, c := range []struct{ script, mode string }{{"auth-v1.mjs", "legacy"}, {"auth-v2.mjs", "legacy"}, {"auth-v2.mjs", "modern"}} {
		for _, as := range []struct{ client, server, token, scope string }{
			{client: "dynamic", server: "a", scope: "tools:read"},
			{client: "app", server: "a", scope: "tools:read"},
			{client: "machine", server: "a"},
			{client: "app", server: "strict", scope: "tools:read tools:write"},
			{client: "app", server: "strict", scope: "tools:read tools:write", token: "narrow"},
		} {
			t.Run(fmt.Sprintf("%s %s %s %s %s", c.script, c.mode, as.client, as.server, as.token), func(t *testing.T) {
				plan := map[string]any{
					"mode": c.mode, "client": as.client, "secret": "machine-secret", "issuer": r.provider.Issuer, "redirect": redirect,
					"tool": map[string]any{"name": "echo", "arguments": map[string]any{"a": 1}},
				}
				if as.token != "" {
					plan["token"] = r.provider.User(t, "alice", r.url(as.server), "tools:read").Access
				}
				seen := script(t, k, c.script, r.url(as.server), plan)
				var registered, called bool
				for _, one := range seen {
					if asked, ok := one["asked"].(map[string]any); ok && (asked["scope"] != as.scope || asked["resource"] != r.url(as.server)) {
						t.Errorf("asked for %v", asked)
					}
					registered = registered || one["registered"] == true
					called = called || one["call"] == `{"a":1}`
				}
				if !called || registered != (as.client == "dynamic") {
					t.Errorf("%v", seen)
				}
			})
		}
	}
}

// inspector is the command line of the MCP inspector for one call of a tool,
// with a home of its own. Its last line is the answer, as JSON.
func inspector(ctx context.Context, k peers.Kit, home, url, era string, more ...string) func(browse func(where string) error, env ...string) (string, error) {
	return func(browse func(string) error, env ...string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, edgetest.Patience)
		defer cancel()
		cmd := peers.Command(ctx, k.Node, append([]string{k.Inspector(), "--cli", "--server-url", url, "--transport", "http", "--protocol-era", era,
			"--format", "json", "--method", "tools/call", "--tool-name", "echo", "--tool-args-json", `{"a":1}`}, more...)...)
		cmd.Env = append(append(cmd.Env, "HOME="+home, "PATH="+home, "MCP_INSPECTOR_SECRET_STORE=file"), env...) // nothing there opens a browser
		var out bytes.Buffer
		cmd.Stdout = &out
		said, err := cmd.StderrPipe()
		if err != nil {
			return "", err
		}
		if err := cmd.Start(); err != nil {
			return "", err
		}
		var text strings.Builder
		var wrong error
		for lines := bufio.NewScanner(said); lines.Scan(); {
			text.WriteString(lines.Text() + "\n")
			if _, where, ok := strings.Cut(lines.Text(), "Please navigate to: "); ok {
				wrong = errors.Join(wrong, browse(strings.TrimSpace(where)))
			}
		}
		err = errors.Join(cmd.Wait(), wrong)
		return out.String() + text.String(), err
	}
}

// TestInspectorAuthenticates drives the inspector's command line: with a token
// in a header; without one, which it refuses to do without a terminal; and
// through its own OAuth, where it prints the URL that a browser is to open and
// listens for the redirect. The test follows it in the browser's place.
func TestInspectorAuthenticates(t *testing.T) {
	k := kit(t)
	r := newRealm(t, "", &oauth.Issuers{}, server{name: "a", ref: ", requiredScopes: [tools:read]"})
	noBrowser := func(where string) error { return fmt.Errorf("it wants a browser at %s", where) }
	browse := func(where string) error {
		jar, err := cookiejar.New(nil)
		if err != nil {
			return err
		}
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Jar: jar, Transport: transport, Timeout: edgetest.Patience}).Get(where)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 {
			return fmt.Errorf("%s: status %d: %s", where, resp.StatusCode, body)
		}
		return nil
	}
	const answer = `"text":"{\"a\":1}"`
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			// 1. A token by header.
			token := "Authorization: Bearer " + r.provider.Machine(t, r.url("a"), "tools:read")
			if said, err := inspector(t.Context(), k, t.TempDir(), r.url("a"), era, "--header", token)(noBrowser); err != nil || !strings.Contains(said, answer) {
				t.Errorf("by header: %v: %s", err, said)
			}
			// 2. None, and nobody there.
			if said, err := inspector(t.Context(), k, t.TempDir(), r.url("a"), era, "--stored-auth-only")(noBrowser); err == nil || !strings.Contains(said, "auth_required") {
				t.Errorf("without: %v: %s", err, said)
			}
			// 3. Its own OAuth: discovery, registration or a known client, PKCE. The
			// tokens that it stores serve the next run.
			for name, more := range map[string][]string{"registered": nil, "known": {"--client-id", "app"}} {
				home := t.TempDir()
				callback := "http://" + edgetest.FreeAddress(t) + "/callback"
				run := inspector(t.Context(), k, home, r.url("a"), era, append(more, "--callback-url", callback)...)
				if said, err := run(browse, "MCP_AUTO_OPEN_ENABLED=true"); err != nil || !strings.Contains(said, answer) {
					t.Errorf("%s: %v: %s", name, err, said)
				}
				if said, err := inspector(t.Context(), k, home, r.url("a"), era, "--stored-auth-only")(noBrowser); err != nil || !strings.Contains(said, answer) {
					t.Errorf("%s, again: %v: %s", name, err, said)
				}
			}
		})
	}
}
