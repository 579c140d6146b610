package signin_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/peers"
	"github.com/weir-edge/weir/edge/edgetest/peers/signin"
	"github.com/weir-edge/weir/edge/kv/kvtest"
)

// secretsOf is the document of the secrets of an edge with a store.
const secretsOf = `apiVersion: v1
kind: Secret
metadata: {name: as}
stringData: {password: s3cret-pass}
---
`

// TestClients has clients that others wrote sign in with nothing but the URL of the server,
// their users in chromium, over both stores: the MCP inspector, the TypeScript SDKs registered
// and by a metadata document, the go-sdk likewise, and the TypeScript SDK of 2025-03-26, which
// names no resource.
func TestClients(t *testing.T) {
	need(t)
	for name, storage := range map[string]func(*testing.T) (yaml string, kept func() string){
		"memory": func(*testing.T) (string, func() string) { return "", nil },
		"redis": func(t *testing.T) (string, func() string) {
			r := kvtest.Redis(t, "--requirepass", "s3cret-pass")
			kept := func() string { return r.Do("--no-auth-warning", "-a", "s3cret-pass", "keys", "*") }
			return fmt.Sprintf("{type: kvstore, kvstore: {addr: %q, aclUserConfig: {passwordSecretRef: {name: as, key: password}}}}", r.Addr), kept
		},
	} {
		t.Run(name, func(t *testing.T) {
			yaml, kept := storage(t)
			h := how{one: true, dev: true, storage: yaml}
			if h.storage != "" {
				h.secrets = secretsOf
			}
			r := newRealm(t, h)
			back := newSite(t, false)
			documents := newSite(t, true)
			redirect := back.on("127.0.0.1") + "/cb"
			id := documents.URL + "/client.json"
			documents.put("/client.json", fmt.Sprintf(`{"client_id": %q, "client_name": "Documented", "redirect_uris": [%q], "grant_types": ["authorization_code", "refresh_token"], "token_endpoint_auth_method": "none"}`, id, redirect))
			t.Run("clients", func(t *testing.T) {
				for name, test := range map[string]func(*testing.T, *realm, string, string){
					"inspector legacy": inspector("legacy"), "inspector modern": inspector("modern"),
					"TypeScript v1": script("auth-v1.mjs", "legacy", false), "TypeScript v1 by document": script("auth-v1.mjs", "legacy", true),
					"TypeScript v2": script("auth-v2.mjs", "modern", false), "TypeScript v2 by document": script("auth-v2.mjs", "modern", true),
					"2025-03-26": script("auth-older.mjs", "", false),
					"go-sdk":     goSDK(false), "go-sdk by document": goSDK(true),
				} {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						own := *r
						own.t = t
						test(t, &own, redirect, id)
					})
				}
			})
			if kept == nil {
				return
			}
			if keys := kept(); strings.Count(keys, ":grant:") != 9 {
				t.Errorf("the store keeps %s", keys)
			}
		})
	}
}

// agrees is a user who is sent somewhere, allows what is asked, and comes back to a redirect
// URI.
func agrees(t *testing.T, r *realm, where, redirect string) (back string) {
	t.Helper()
	p := newUser(t, signin.Look{}).tab()
	p.open(where)
	p.click(allow)
	back = p.at(redirect)
	if u, err := url.Parse(back); err != nil || u.Query().Get("code") == "" || u.Query().Get("iss") != r.base {
		t.Errorf("the answer is %s", back)
	}
	quiet(t, p)
	return back
}

// echoed is the tool that clients call, and what it answers.
const echoed = `{"a":1}`

// script is a client of peers/clients. What it is not told it finds out: it is given the URL
// of the server, and what it is called.
func script(name, mode string, document bool) func(*testing.T, *realm, string, string) {
	return func(t *testing.T, r *realm, redirect, id string) {
		k, files := need(t)
		plan := map[string]any{
			"mode": mode, "client": "dynamic", "browser": true, "spoil": true, "redirect": redirect,
			"tool": map[string]any{"name": "echo", "arguments": map[string]any{"a": 1}},
		}
		if document {
			plan["document"] = id
		}
		text, err := json.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		seen := talk(t, files.CA, func(where string) string { return agrees(t, r, where, redirect) }, filepath.Join(k.Dir(), "clients", name), r.base+"/mcp", string(text))
		asked, _ := seen["asked"].(map[string]any)
		wantResource := any(r.base + "/mcp")
		if name == "auth-older.mjs" {
			wantResource = nil
		}
		if seen["call"] != echoed || seen["again"] != echoed || seen["renewed"] != true || asked["resource"] != wantResource || seen["registered"] != !document {
			t.Errorf("it saw %v", seen)
		}
	}
}

// inspector is the command line of the MCP inspector, which has a browser open a page, and
// listens for what comes back.
func inspector(era string) func(*testing.T, *realm, string, string) {
	return func(t *testing.T, r *realm, _, _ string) {
		k, files := need(t)
		ctx, cancel := context.WithTimeout(t.Context(), edgetest.Patience)
		defer cancel()
		home := t.TempDir()
		callback := "http://" + edgetest.FreeAddress(t) + "/callback"
		run := func(more ...string) (answer string, opened int) {
			cmd := peers.Command(ctx, k.Node, append([]string{k.Inspector(), "--cli", "--server-url", r.base + "/mcp", "--transport", "http", "--protocol-era", era,
				"--format", "json", "--method", "tools/call", "--tool-name", "echo", "--tool-args-json", echoed}, more...)...)
			cmd.Env = append(cmd.Env, "HOME="+home, "PATH="+home, "MCP_INSPECTOR_SECRET_STORE=file", "MCP_AUTO_OPEN_ENABLED=true", "NODE_EXTRA_CA_CERTS="+files.CA) // nothing there opens a browser
			var out bytes.Buffer
			cmd.Stdout = &out
			said, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			for lines := bufio.NewScanner(said); lines.Scan(); {
				text.WriteString(lines.Text() + "\n")
				if _, where, ok := strings.Cut(lines.Text(), "Please navigate to: "); ok {
					opened++
					agrees(t, r, strings.TrimSpace(where), callback)
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v: %s%s", err, out.String(), text.String())
			}
			return out.String(), opened
		}
		const want = `"text":"{\"a\":1}"`
		if said, opened := run("--callback-url", callback); !strings.Contains(said, want) || opened != 1 {
			t.Errorf("%d pages; it said %s", opened, said)
		}
		if said, opened := run("--stored-auth-only"); !strings.Contains(said, want) || opened != 0 {
			t.Errorf("with what it has kept: %d pages; it said %s", opened, said)
		}
	}
}

// goSDK is the client of the go-sdk with its own authorization.
func goSDK(document bool) func(*testing.T, *realm, string, string) {
	return func(t *testing.T, r *realm, redirect, id string) {
		_, files := need(t)
		web := program(t, files)
		web.CheckRedirect = nil
		pages := 0
		c := &auth.AuthorizationCodeHandlerConfig{
			RedirectURL: redirect, Client: web, RequestRefreshToken: true,
			AuthorizationCodeFetcher: func(_ context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
				pages++
				back, err := url.Parse(agrees(t, r, args.URL, redirect))
				if err != nil {
					return nil, err
				}
				q := back.Query()
				if q.Get("error") != "" {
					return nil, errors.New(q.Get("error"))
				}
				return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}, nil
			},
		}
		if document {
			c.ClientIDMetadataDocumentConfig = &auth.ClientIDMetadataDocumentConfig{URL: id}
		} else {
			c.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
				ClientName: "go-sdk", RedirectURIs: []string{redirect}, GrantTypes: []string{"authorization_code", "refresh_token"},
			}}
		}
		h, err := auth.NewAuthorizationCodeHandler(c)
		if err != nil {
			t.Fatal(err)
		}
		client := mcp.NewClient(&mcp.Implementation{Name: "go-sdk", Version: "1"}, nil)
		s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: r.base + "/mcp", HTTPClient: web, OAuthHandler: h, DisableStandaloneSSE: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		got, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"a": 1}})
		if err != nil {
			t.Fatal(err)
		}
		text, ok := got.Content[0].(*mcp.TextContent)
		if !ok || text.Text != echoed || pages != 1 {
			t.Errorf("%d pages; the call says %v", pages, got.Content)
		}
		source, err := h.TokenSource(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if token, err := source.Token(); err != nil || token.RefreshToken == "" || claims(t, token.AccessToken)["sub"] != "corp:somebody" {
			t.Errorf("its token: %v", err)
		}
	}
}
