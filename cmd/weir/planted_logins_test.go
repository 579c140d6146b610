package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
)

// lender is an MCP server that wants a login, and the authorization server that gives it. Both say
// again what they were sent.
type lender struct {
	*httptest.Server
	server  *edgetest.Server
	fails   atomic.Bool // the token endpoint refuses, and says what it was sent
	refuses atomic.Bool // the MCP server takes no token, and says which it was sent
	planted map[string]string

	mu        sync.Mutex
	came      []string // at the token endpoint
	verifiers []string
}

func (l *lender) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(status int, members map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(members) // who does not take it has gone
	}
	switch r.URL.Path {
	case "/.well-known/oauth-protected-resource/mcp":
		answer(200, map[string]any{"resource": l.URL + "/mcp", "authorization_servers": []string{l.URL}})
	case "/.well-known/oauth-authorization-server":
		answer(200, map[string]any{
			"issuer": l.URL, "authorization_endpoint": l.URL + "/authorize", "token_endpoint": l.URL + "/token", "registration_endpoint": l.URL + "/register",
			"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"client_secret_basic", "client_secret_post", "none"},
		})
	case "/register":
		answer(201, map[string]any{"client_id": "registered", "client_secret": l.planted["registered secret"], "registration_access_token": l.planted["registration token"], "client_secret_expires_at": 0})
	case "/authorize":
		q := r.URL.Query()
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {l.planted["code"]}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
	case "/token":
		text, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20)) // what there is of it
		form, _ := url.ParseQuery(string(text))
		all := string(text) + " " + r.Header.Get("Authorization") + " " + strings.Join(append(append(form["code"], form["code_verifier"]...), append(form["refresh_token"], form["client_secret"]...)...), " ")
		l.mu.Lock()
		l.came = append(l.came, all)
		if v := form.Get("code_verifier"); v != "" {
			l.verifiers = append(l.verifiers, v)
		}
		l.mu.Unlock()
		if l.fails.Load() {
			answer(400, map[string]any{"error": "invalid_grant", "error_description": all, "error_uri": "https://example.com/?" + url.QueryEscape(all)})
			return
		}
		answer(200, map[string]any{"access_token": l.planted["access token"], "refresh_token": l.planted["refresh token"], "id_token": l.planted["ID token"], "token_type": "Bearer", "expires_in": 3600, "error_description": all})
	case "/mcp":
		line := r.Header.Get("Authorization")
		if line != "Bearer "+l.planted["access token"] || l.refuses.Load() {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer resource_metadata="%s/.well-known/oauth-protected-resource/mcp", error="invalid_token", error_description=%q`, l.URL, line))
			http.Error(w, line, http.StatusUnauthorized)
			return
		}
		to, _ := url.Parse(l.server.URL) // it is one
		(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: to.Scheme, Host: to.Host}) }}).ServeHTTP(w, r)
	default:
		answer(404, map[string]any{})
	}
}

// plantedLogins logs in in every way that needs no browser's page, well and badly, and uses what
// was given.
func plantedLogins(t *testing.T, g *garden, dir string) {
	l := &lender{server: edgetest.NewServer(t, edgetest.Modern), planted: map[string]string{}}
	for _, what := range []string{"registered secret", "registration token", "code", "access token", "refresh token", "ID token"} {
		l.planted[what] = g.plant("a login's " + what)
	}
	l.Server = httptest.NewServer(l)
	defer l.Close()
	secret, seal := g.plant("the client secret of a login"), base64.StdEncoding.EncodeToString([]byte(g.plant("the key of logins") + strings.Repeat("k", 32))[:32])
	g.keep("the key of logins as it is written", seal)
	identity := g.plant("an ID token of a file")
	_, private := pair(t)
	g.keep("a private key of a login", strings.Split(private, "\n")[1])
	write(t, dir, map[string]string{"client": secret + "\n", "seal.key": seal + "\n", "identity": identity, "private.pem": private})
	environ := []string{"HOME=" + dir, "WEIR_DEV_LOOPBACK=true", "BROWSER=none"}
	at := l.URL + "/mcp"

	// A login with a browser, which this test is.
	browse := func(more ...string) {
		ctx, cancel := context.WithTimeout(t.Context(), edgetest.Patience)
		defer cancel()
		args := append([]string{"auth", "login", at, "--skip-browser", "--callback-port", "0", "--timeout", "10s"}, more...)
		cmd := exec.CommandContext(ctx, "weir", args...)
		cmd.Env, cmd.Dir = append(environ, "PATH="+os.Getenv("PATH")), dir
		out, in := io.Pipe()
		cmd.Stdout, cmd.Stderr = in, in
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := make(chan string, 1)
		go func() { // ends with the command
			var all strings.Builder
			opened := false
			buffer := make([]byte, 4096)
			for {
				n, err := out.Read(buffer)
				all.Write(buffer[:n])
				if page := regexp.MustCompile(`http\S+/authorize\?\S+`).FindString(all.String()); page != "" && !opened && strings.Contains(all.String(), "\n") {
					opened = true
					if r, err := http.Get(page); err == nil {
						text, _ := io.ReadAll(r.Body) // what there is of it
						_ = r.Body.Close()
						g.hear("the page after a login", string(text))
					}
				}
				if err != nil {
					said <- all.String()
					return
				}
			}
		}()
		_ = cmd.Wait() // it may fail
		_ = in.Close()
		text := edgetest.Receive(t, said, "the end of a login")
		if !strings.Contains(text, "/authorize?") {
			t.Errorf("%v: no page to open: %s", args, text)
		}
		g.hear("weir "+strings.Join(args, " "), text)
	}
	use := func(more ...string) {
		g.weir(dir, environ, append([]string{"call", at, "echo", "text=x", "--auth"}, more...)...)
		g.weir(dir, environ, append([]string{"tools", at, "--auth"}, more...)...)
	}
	for _, sealed := range [][]string{nil, {"--auth-key-file", "seal.key"}} {
		g.weir(dir, environ, append([]string{"auth", "logout", "--all"}, sealed...)...)
		browse(sealed...)
		g.weir(dir, environ, append([]string{"auth", "list"}, sealed...)...)
		g.weir(dir, environ, append([]string{"auth", "list", "--json"}, sealed...)...)
		use(sealed...)
		if sealed == nil {
			if calls := l.server.Requests("tools/call"); len(calls) == 0 || !strings.Contains(fmt.Sprint(calls[0].Header), l.planted["access token"]) {
				t.Error("the login was not used")
			}
		} else {
			g.weir(dir, environ, "auth", "list") // without the key
		}
		l.refuses.Store(true)
		use(sealed...)
		l.refuses.Store(false)
		l.fails.Store(true)
		browse(sealed...)
		l.fails.Store(false)
	}
	g.weir(dir, environ, "auth", "logout", "--all", "--auth-key-file", "seal.key")
	if err := os.RemoveAll(filepath.Join(dir, ".config", "weir")); err != nil { // the file stays sealed
		t.Fatal(err)
	}
	g.weir(dir, environ, "auth", "login", at, "--client-credentials", "--client-id", "job", "--client-secret-file", "client")
	l.fails.Store(true)
	g.weir(dir, environ, "auth", "login", at, "--client-credentials", "--client-id", "job", "--client-secret-file", "client")
	g.weir(dir, environ, "auth", "login", at, "--client-credentials", "--client-id", "job", "--private-key-file", "private.pem")
	g.weir(dir, environ, "auth", "login", at, "--client-credentials", "--client-id", "job", "--private-key-file", "client")
	g.weir(dir, environ, "auth", "login", at, "--id-token-file", "identity", "--idp-token-url", l.URL+"/token", "--idp-client-id", "idp", "--idp-client-secret-file", "client", "--client-id", "weir")
	g.weir(dir, environ, "auth", "login", "http://user:"+url.QueryEscape(g.plant("the password of a server"))+"@127.0.0.1:1/mcp")
	g.weir(dir, environ, "auth", "list", "--auth-key-file", "client")
	g.weir(dir, environ, "auth", "logout", "--all")
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range l.verifiers {
		g.keep("a code verifier", v)
	}
	if all := strings.Join(l.came, "\n"); !strings.Contains(all, url.QueryEscape(secret)) && !strings.Contains(all, base64.StdEncoding.EncodeToString([]byte("job:"+url.QueryEscape(secret)))) ||
		!strings.Contains(all, l.planted["code"]) {
		t.Errorf("the authorization server was not sent what was planted for it: %s", g.said["weir auth login "+at+" --client-credentials --client-id job --client-secret-file client"])
	}
}
