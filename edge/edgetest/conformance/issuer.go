package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/peers"
	"github.com/weir-edge/weir/edge/edgetest/peers/signin"
	"github.com/weir-edge/weir/edge/edgetest/port"
)

// issuers measures the scenarios for authorization servers. The edge is one, with metadata
// documents on; a client registers first, and its user agrees in chromium.
func (h *harness) issuers(ctx context.Context, r *run) error {
	// 1. The scenarios, which the suite names.
	scenarios, err := h.suite.authorization(ctx, r.cell.set)
	if err != nil {
		return err
	}
	if r.scenarios, err = h.pick(scenarios); err != nil {
		return err
	}

	// 2. A provider, the edge, and a client of it.
	provider, err := newProvider()
	if err != nil {
		return err
	}
	defer provider.Close()
	addr, err := port.Free()
	if err != nil {
		return err
	}
	dir := filepath.Join(h.output, r.cell.set+"-issuer")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	edge, _, err := peers.StartEdgeAt(ctx, h.weir, h.dir, addr, issuerManifest("http://"+addr, provider.url))
	if err != nil {
		return err
	}
	defer h.stop(edge, dir)
	callback, err := port.Free()
	if err != nil {
		return err
	}
	client, err := registers(ctx, "http://"+addr, "http://"+callback+"/callback")
	if err != nil {
		return err
	}

	// 3. The suite, and the user.
	user, err := h.opens(callback)
	if err != nil {
		return err
	}
	_, number, _ := net.SplitHostPort(callback)
	args := []string{"authorization", "--url", "http://" + addr, "--client-id", client, "--resource", "http://" + addr + "/mcp", "--port", number, "--spec-version", r.cell.set, "-o", dir}
	suite := h.suite
	suite.heard = func(line string) { user.hears(ctx, line) }
	_, err = suite.run(ctx, len(r.scenarios), dir, args...)
	if err := errors.Join(err, user.leaves()); err != nil {
		return err
	}
	r.direct, err = readResults(dir, "authorization-server-")
	strict(r.direct)
	return err
}

// authorization are the scenarios for authorization servers that the suite has for a set.
func (s suite) authorization(ctx context.Context, set string) ([]scenario, error) {
	out, err := peers.Run(peers.Command(ctx, s.Node, s.Suite(), "list", "--authorization"))
	if err != nil {
		return nil, fmt.Errorf("suite: list: %w", err)
	}
	var all []scenario
	for _, m := range regexp.MustCompile(`(?m)^ *- (\S+) \[(\S+)\]$`).FindAllSubmatch(out, -1) {
		if strings.Contains(string(m[2]), set) {
			all = append(all, scenario{name: string(m[1]), scored: true})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("suite: it has no scenarios for authorization servers of %s: %s", set, out)
	}
	return all, nil
}

// strict makes a failure of each check that is skipped, warned of or only noted: here there is
// nothing that an authorization server may leave out.
func strict(r results) {
	for _, checks := range r {
		for i, c := range checks {
			if c.Status != "SUCCESS" && c.Status != "FAILURE" {
				checks[i].ErrorMessage = strings.TrimSpace("is " + c.Status + ": " + c.ErrorMessage)
				checks[i].Status = "FAILURE"
			}
		}
	}
}

// issuerManifest is the configuration of an edge that has users sign in at a provider.
func issuerManifest(issuer, provider string) string {
	return fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: own}
spec: {type: inline, inline: {issuer: %[1]q, insecureAllowHTTP: true}}
---
apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: tools}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: tools}
spec:
  groupRef: {name: tools}
  incomingAuth: {type: oidc, oidcConfigRef: {name: own, audience: "%[1]s/mcp"}}
  authServerConfig:
    issuer: %[1]q
    cimd: {enabled: true}
    upstreamProviders:
    - name: provider
      type: oauth2
      oauth2Config:
        authorizationEndpoint: "%[2]s/authorize"
        tokenEndpoint: "%[2]s/token"
        clientId: edge
        redirectUri: "%[1]s/oauth/callback"
        identityFromToken: {subjectPath: user}
        insecureAllowHTTP: true
  outgoingAuth: {source: inline}
  config:
    aggregation: {conflictResolution: priority, conflictResolutionConfig: {priorityOrder: [nobody]}}
    backends: [{name: nobody, url: "http://127.0.0.1:9/mcp", transport: streamable-http}]
`, issuer, provider)
}

// registers registers a client, and returns its id.
func registers(ctx context.Context, issuer, redirect string) (id string, err error) {
	body, err := json.Marshal(map[string]any{"client_name": "conformance", "redirect_uris": []string{redirect}})
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, issuer+"/oauth/register", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", fmt.Errorf("register: %w", err)
	}
	defer resp.Body.Close()
	var answer struct {
		ID string `json:"client_id"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&answer); err != nil || answer.ID == "" {
		return "", fmt.Errorf("register: status %d: %w", resp.StatusCode, err)
	}
	return answer.ID, nil
}

// provider is an upstream at which everybody is the same user. What the suite judges is the
// edge: the providers that others wrote stand in the tests of edge/edgetest/peers/signin.
type provider struct {
	url string
	*http.Server
}

func newProvider() (*provider, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		back := q.Get("redirect_uri") + "?code=x&state=" + q.Get("state")
		http.Redirect(w, r, back, http.StatusFound)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"of-the-provider","token_type":"Bearer","expires_in":3600,"user":"somebody"}`)
	})
	p := &provider{"http://" + ln.Addr().String(), &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}}
	go func() { _ = p.Serve(ln) }() // ends with Close
	return p, nil
}

// user is somebody at a browser, who allows what the suite asks for.
type user struct {
	browser  *signin.Browser
	home     string
	callback string // host and port
	work     sync.WaitGroup

	mu  sync.Mutex
	err error
}

func (h *harness) opens(callback string) (*user, error) {
	if lacks := signin.Lacks(h.Kit); lacks != "" {
		return nil, errors.New(lacks)
	}
	home, err := os.MkdirTemp("", "browser-")
	if err != nil {
		return nil, err
	}
	b, err := signin.Open(h.Kit, home, nil)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(home))
	}
	return &user{browser: b, home: home, callback: callback}, nil
}

// hears goes where a line of the suite's says, when it is an address.
func (u *user) hears(ctx context.Context, line string) {
	if !strings.HasPrefix(line, "http") || !strings.Contains(line, "response_type=code") {
		return
	}
	u.work.Go(func() {
		if err := u.agrees(ctx, line); err != nil {
			u.mu.Lock()
			u.err = errors.Join(u.err, err)
			u.mu.Unlock()
		}
	})
}

func (u *user) agrees(ctx context.Context, where string) error {
	var who, tab int
	if err := u.browser.Do(ctx, signin.Command{Do: "user"}, &who); err != nil {
		return err
	}
	if err := u.browser.Do(ctx, signin.Command{Do: "tab", User: who}, &tab); err != nil {
		return err
	}
	for _, c := range []signin.Command{{Do: "goto", URL: where}, {Do: "click", Selector: "button[value=allow]"}, {Do: "at", URL: "http://" + u.callback + "/callback"}} {
		c.Tab = tab
		if err := u.browser.Do(ctx, c, nil); err != nil {
			return err
		}
	}
	return nil
}

// leaves ends the browser. The error is of what the user could not do.
func (u *user) leaves() error {
	u.work.Wait()
	_ = u.browser.Close() // how it ends is nobody's business here
	_ = os.RemoveAll(u.home)
	return u.err
}
