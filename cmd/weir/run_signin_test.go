package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/mcp"
)

// smallHTTP is an MCP server over streamable HTTP, at the port in PORT or MCP_PORT. Its tool says which
// Authorization header a call had.
func smallHTTP() {
	at := "127.0.0.1:" + cmp.Or(os.Getenv("PORT"), os.Getenv("MCP_PORT"))
	err := http.ListenAndServe(at, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != at { // as many refuse it for the sake of browsers
			w.WriteHeader(http.StatusForbidden)
			return
		}
		text, err := io.ReadAll(r.Body)
		m, wrong := mcp.Decode(text)
		if r.Method != http.MethodPost || err != nil || wrong != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if m.Kind != mcp.Request {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		result := `{}`
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"small","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"look","description":"looks","inputSchema":{"type":"object"}}]}`
		case "tools/call":
			said, _ := json.Marshal("<" + r.Header.Get("Authorization") + ">")
			result = `{"content":[{"type":"text","text":` + string(said) + `}]}`
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.IDText(), result)
	}))
	fmt.Fprintln(os.Stderr, "small-http:", err)
	os.Exit(1)
}

// A server that run keeps of a manifest has an authorization server by either reference: its
// clients sign in there, and it is sent the token of the upstream.
func TestRunSignsIn(t *testing.T) {
	h := newHousehold(t).managed()
	hub := edgetest.NewHub(t, "hub")
	small, err := exec.LookPath("small-http")
	if err != nil {
		t.Fatal(err)
	}
	back := edgetest.NewServer(t, edgetest.Legacy)
	local := func() string { // whose network is that of the machine
		_, port, _ := strings.Cut(edgetest.FreeAddress(t), ":")
		return fmt.Sprintf("image: 'exec://%s', transport: streamable-http, mcpPort: %[2]s, env: [{name: PORT, value: '%[2]s'}]", small, port)
	}
	for i, one := range []struct{ kind, spec, ref string }{
		{"MCPServer", local(), "authServerRef: {kind: MCPExternalAuthConfig, name: login}"},
		{"MCPServer", local(), "externalAuthConfigRef: {name: login}"},
		{"MCPRemoteProxy", "remoteUrl: '" + back.URL + "', transport: streamable-http, allowPrivateEndpoint: true", "authServerRef: {kind: MCPExternalAuthConfig, name: login}"},
		{"MCPRemoteProxy", "remoteUrl: '" + back.URL + "', transport: streamable-http, allowPrivateEndpoint: true", "externalAuthConfigRef: {name: login}"},
	} {
		at := edgetest.FreeAddress(t)
		_, port, _ := strings.Cut(at, ":")
		issuer := "http://" + at
		file := h.write(fmt.Sprintf("%d.yaml", i), fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: %s
metadata: {name: one-%d}
spec: {%s, proxyPort: %s, oidcConfigRef: {name: own, audience: "%[5]s/mcp", resourceUrl: "%[5]s/mcp"}, %[6]s}
---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: own}
spec: {type: inline, inline: {issuer: %[5]q, insecureAllowHTTP: true}}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: login}
spec: {type: embeddedAuthServer, embeddedAuthServer: {issuer: %[5]q, upstreamProviders: [%[7]s]}}
`, one.kind, i, one.spec, port, issuer, one.ref, hub.Provider(issuer)))
		address := h.must("run", "--from-config", file)
		if address != issuer+"/mcp" {
			t.Fatalf("%s with %s is at %s", one.kind, one.ref, address)
		}
		v := edgetest.NewVisitor(t, issuer, at)
		before := hub.Issued()
		token := h.write("token", v.SignIn(address).Access)
		tool := map[string]string{"MCPServer": "look", "MCPRemoteProxy": "echo"}[one.kind]
		out, said, code := h.weir("call", address, tool, "text=x", "--bearer-token-file", token)
		want := fmt.Sprintf("Bearer hub-token-%d", before+1)
		if code != 0 || one.kind == "MCPServer" && !strings.Contains(out, "<"+want+">") {
			t.Errorf("%s with %s: exit code %d: %s%s", one.kind, one.ref, code, out, said)
		}
		if one.kind == "MCPRemoteProxy" {
			all := back.Requests("tools/call")
			if len(all) == 0 || all[len(all)-1].Header.Get("Authorization") != want {
				t.Errorf("%s with %s: the server was sent something else", one.kind, one.ref)
			}
		}
		if _, _, code := h.weir("call", address, tool, "text=x"); code == 0 {
			t.Errorf("%s with %s: a call without a token goes through", one.kind, one.ref)
		}
	}
}
