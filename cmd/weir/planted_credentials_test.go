package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/otlp"
)

// teller is every service that gives credentials of users, and says again all that it was sent,
// wherever an answer has room for it.
type teller struct {
	*httptest.Server
	issued map[string]string // what is planted in answers, by what it is

	mu   sync.Mutex
	sent map[string]string // what came, by path
}

// heard is all of a request, as it came and as it is read.
func (s *teller) heard(r *http.Request) string {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20)) // what there is of it
	form, _ := url.ParseQuery(string(body))
	all := []string{string(body)}
	if line := r.Header.Get("Authorization"); line != "" {
		user, secret, _ := r.BasicAuth()
		plain, _ := url.QueryUnescape(secret)
		all = append(all, line, user, secret, plain)
	}
	for name, values := range form {
		switch name {
		case "client_secret", "subject_token", "assertion", "client_assertion", "refresh_token", "code", "code_verifier", "WebIdentityToken":
			all = append(all, values...)
		}
	}
	text := strings.Join(all, " ")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[r.URL.Path] += text + "\n"
	return text
}

// came reports whether a text was sent to a path.
func (s *teller) came(path, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.sent[path], text)
}

func (s *teller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	all := s.heard(r)
	w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token", error_description=`+fmt.Sprintf("%q", all))
	w.Header().Set("X-Said", url.QueryEscape(all))
	answer := func(status int, members map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(members) // who does not take it has gone
	}
	good := map[string]any{
		"access_token": s.issued["access token"], "refresh_token": s.issued["refresh token"], "id_token": s.issued["ID token"], "token_type": "Bearer", "expires_in": 3600,
		"issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "scope": "tools", "error_description": all, all: all, "more": map[string]any{"inside": all},
	}
	switch path := r.URL.Path; {
	case strings.HasPrefix(path, "/good/"), strings.HasSuffix(path, "/oauth2/v2.0/token"):
		answer(200, good)
	case path == "/bad/grant":
		answer(400, map[string]any{"error": "invalid_grant", "error_description": all, "error_uri": "https://example.com/?" + url.QueryEscape(all)})
	case path == "/bad/client":
		answer(401, map[string]any{"error": "invalid_client", "error_description": all, "scope": []string{all}, "token_type": map[string]any{"a": all}})
	case path == "/bad/word":
		answer(400, map[string]any{"error": all, "error_description": all})
	case path == "/bad/status":
		http.Error(w, all, 500)
	case path == "/bad/page":
		_, _ = io.WriteString(w, "<html>"+all)
	case path == "/bad/place":
		http.Redirect(w, r, s.URL+"/elsewhere?"+url.QueryEscape(all), http.StatusFound)
	case path == "/bad/type":
		good["token_type"], good["issued_token_type"] = all, all
		answer(200, good)
	case path == "/sts/":
		s.cloud(w, all)
	default:
		http.Error(w, all, 404)
	}
}

// cloud answers as a security token service: with a session for one user, and with an error for
// another, whose token says so.
func (s *teller) cloud(w http.ResponseWriter, all string) {
	escape := func(text string) string {
		return strings.NewReplacer("&", "&amp;", "<", "&lt;").Replace(text)
	}
	if strings.Contains(all, "RoleSessionName=bob") {
		w.WriteHeader(403)
		fmt.Fprintf(w, "<ErrorResponse><Error><Code>%s</Code><Message>%s</Message></Error></ErrorResponse>", escape(all), escape(all))
		return
	}
	fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><SubjectFromWebIdentityToken>%s</SubjectFromWebIdentityToken><Credentials><AccessKeyId>ASIA%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
		escape(all), "0815", s.issued["secret key"], s.issued["session token"], time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
}

// The ways to a credential that well and badly behaved services give, by the backend.
var (
	wellBehaved = []string{"file", "document", "obo", "cloud"}
	badPaths    = []string{"grant", "client", "word", "status", "page", "place", "type"}
	inConfig    = []string{"inline", "env", "oboinline", "oboenv"}
)

// TestK16Credentials plants secrets in every field and every answer that credentials of users
// have, and looks for them in all that is said: by an edge, its audit log, its traces and figures,
// by the commands that try credentials, log in, and use logins.
func TestK16Credentials(t *testing.T) {
	g := &garden{t: t, said: map[string]*bytes.Buffer{}}
	dir := t.TempDir()
	mint, to := edgetest.NewMint(t, "here"), otlp.Start(t, "http", false)

	// 1. Who gives credentials, and who takes them.
	service := &teller{issued: map[string]string{}, sent: map[string]string{}}
	for _, what := range []string{"access token", "refresh token", "ID token", "secret key", "session token"} {
		service.issued[what] = g.plant("an answer's " + what)
	}
	service.Server = httptest.NewTLSServer(service)
	defer service.Close()
	secrets := map[string]string{}
	for _, where := range []string{"file", "document", "obo", "bad", "inline", "env", "oboinline", "oboenv"} {
		secrets[where] = g.plant("a client secret of the way " + where)
		g.keep("the same in HTTP Basic", base64.StdEncoding.EncodeToString([]byte("edge:"+url.QueryEscape(secrets[where]))))
	}
	users := map[string]string{}
	for _, name := range []string{"alice", "bob"} {
		users[name] = mint.Token(name, map[string]any{"aud": []string{"here", "plain"}, "note": g.plant("a claim of " + name)})
		g.keep("the token of "+name, users[name])
		g.keep("the signature of the token of "+name, users[name][strings.LastIndexByte(users[name], '.')+1:])
	}
	backs := map[string]*edgetest.Server{}
	all := append(append(append([]string{}, wellBehaved...), inConfig...), badPaths...)
	for i, name := range all {
		backs[name] = edgetest.NewServer(t, []edgetest.Era{edgetest.Legacy, edgetest.Modern}[i%2])
	}
	write(t, dir, map[string]string{
		"secrets/clients/file": secrets["file"] + "\n",
		"secrets/clients/bad":  secrets["bad"],
		"ca.pem":               string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw})),
		"set/secrets.yaml":     fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: docs}\nstringData: {document: %q, obo: %q}\n", secrets["document"], secrets["obo"]),
		"set/main.yaml":        credentialObjects(backs, mint.URL, service.URL, filepath.Join(dir, "audit.log"), to.Endpoint),
		"set/plain.yaml":       credentialConfig(backs, mint.URL, service.URL, secrets),
		"alice":                users["alice"], "bob": users["bob"] + "\n",
	})
	environ := []string{"HOME=" + dir, "EXCHANGE_SECRET=" + secrets["env"], "OBO_SECRET=" + secrets["oboenv"], "WEIR_SECRETS_DIR=secrets", "WEIR_CA_BUNDLE=ca.pem", "WEIR_STS_ENDPOINT=" + service.URL + "/sts/"}
	flags := []string{"--log-level", "debug", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}

	// 2. An edge, calls of two users through every way, and backends that refuse one.
	e := startEdge(t, g, dir, environ, append([]string{"serve", "-c", "set", "--default-server", "main"}, flags...)...)
	visitor := edgetest.NewClient(t, e.front)
	for name, back := range backs {
		back.Once("tools/call", func(c *edgetest.Call) {
			c.Text(401, "text/plain", strings.Join(c.Request.Header["Authorization"], " ")+g.plantOnce("an error of the backend "+name))
		})
	}
	edgetest.Until(t, "the keys", func() bool {
		return visitor.Do("GET", "/status", "", "Authorization", "Bearer "+users["alice"]).Status == 200
	})
	served := 0
	for user, token := range users {
		for _, name := range all {
			for range 2 { // the first one is refused by the backend
				body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams(name+"_echo", `{"password":"`+g.plant("an argument")+`"}`), edgetest.Meta())
				for _, path := range []string{"/mcp", "/servers/plain/mcp"} {
					r, err := visitor.Try("POST", path, body, append(head, "Authorization", "Bearer "+token)...)
					if err != nil {
						t.Fatal(err)
					}
					if r.Status == 200 { // a result may hold what the client itself sent
						served++
						continue
					}
					g.hear("the answer to a call of "+user+" with the way "+name, string(r.Body), fmt.Sprint(r.Header))
				}
			}
		}
		legacy := edgetest.NewClient(t, e.front)
		legacy.Header.Set("Authorization", "Bearer "+token)
		session := legacy.Initialize("")
		g.keep("the id of a session", session.ID)
		g.hear("the lists of "+user, string(session.Send(`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`).Body))
	}
	if served < 2*(len(wellBehaved)-1+len(inConfig)) {
		t.Errorf("%d calls were served", served)
	}
	for where, path := range map[string]string{"file": "/good/file", "document": "/good/document", "obo": "/contoso.example.com/oauth2/v2.0/token", "bad": "/bad/word", "inline": "/good/inline", "env": "/good/env", "oboinline": "/good/oboinline", "oboenv": "/good/oboenv"} {
		if !service.came(path, secrets[where]) || !service.came(path, users["alice"]) || !service.came(path, users["bob"]) {
			t.Errorf("%s was not sent what was planted for it", path)
		}
	}
	if !service.came("/sts/", users["alice"]) || service.came("/elsewhere", "\n") {
		t.Error("the security token service was not asked, or a redirect was followed")
	}
	if calls := backs["file"].Requests("tools/call"); len(calls) == 0 || !strings.Contains(fmt.Sprint(calls[0].Header), service.issued["access token"]) {
		t.Error("the backend was not sent what was planted for it")
	}

	// 3. A reload of fields that are misused, and the end. The set is good again afterwards.
	write(t, dir, map[string]string{"set/bad.yaml": misusedCredentials(g)})
	g.hear("a reload", e.post("/-/reload"))
	g.weir(dir, environ, "validate", "set")
	g.weir(dir, environ, "doctor", "-c", "set", "--json")
	if err := os.Remove(filepath.Join(dir, "set", "bad.yaml")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/status", "/metrics"} {
		g.hear(path, e.get(path))
	}
	g.hear("the arguments of the process", e.arguments())
	edgetest.Until(t, "the spans", func() bool {
		to.Lock()
		defer to.Unlock()
		return len(to.Spans) >= len(all)
	})
	e.stop()
	record, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	if err != nil || bytes.Count(record, []byte(`"type":"credential_exchange"`)) < len(all) {
		t.Errorf("%d bytes of records, %v", len(record), err)
	}
	g.hear("the audit log", string(record))
	to.Lock()
	g.hear("the traces", string(to.Bytes), fmt.Sprint(to.Spans), fmt.Sprint(to.Metrics))
	to.Unlock()

	// 4. Commands that look at credentials, or try them.
	g.weir(dir, environ, "validate", "set")
	g.weir(dir, environ, append([]string{"settings", "--json"}, flags...)...)
	g.weir(dir, environ, "doctor", "-c", "set")
	g.weir(dir, environ, "doctor", "-c", "set", "--json", "--token-file", "alice")
	for _, name := range all {
		for _, user := range []string{"alice", "bob"} {
			g.weir(dir, environ, "auth", "test", name, "-c", "set", "--token-file", user)
			g.weir(dir, environ, "auth", "test", name, "-c", "set", "--token-file", user, "--json")
		}
	}
	for _, name := range append(append([]string{}, wellBehaved...), badPaths...) {
		if who := g.said["weir auth test "+name+" -c set --token-file alice"]; who == nil || !strings.Contains(who.String(), "POST "+service.URL) {
			t.Errorf("auth test %s asks nobody: %s", name, who)
		}
	}

	// 5. Logins.
	plantedLogins(t, g, dir)
	if len(g.values) < 60 || len(g.said) < 60 || g.said["the log"].Len() < 5000 {
		t.Errorf("%d secrets, %d speakers, %d bytes of log: too few to tell", len(g.values), len(g.said), g.said["the log"].Len())
	}
	hits := g.search()
	for _, hit := range hits {
		t.Error(hit)
	}
	t.Logf("%d hits of %d secrets in %d shapes in what %d said", len(hits), len(g.values), len(shapes(g.values[0])), len(g.said))
}

// plantOnce is plant for what several goroutines plant.
func (g *garden) plantOnce(where string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.plant(where)
}

// credentialObjects is a server whose backends have objects of their own, each with a way of its
// own.
func credentialObjects(backs map[string]*edgetest.Server, issuer, service, audit, collector string) string {
	var b strings.Builder
	one := func(name, spec string) {
		fmt.Fprintf(&b, "---\napiVersion: weir.dev/v1beta1\nkind: MCPServerEntry\nmetadata: {name: %[1]s}\nspec:\n  groupRef: {name: g}\n  remoteUrl: %[2]q\n  transport: streamable-http\n  allowPrivateEndpoint: true\n  externalAuthConfigRef: {name: %[1]s}\n---\napiVersion: weir.dev/v1beta1\nkind: MCPExternalAuthConfig\nmetadata: {name: %[1]s}\nspec: %[3]s\n", name, backs[name].URL, spec)
	}
	exchange := func(path, ref string) string {
		return fmt.Sprintf("{type: tokenExchange, tokenExchange: {tokenUrl: %q, audience: there, clientId: edge, clientSecretRef: %s}}", service+path, ref)
	}
	b.WriteString("apiVersion: weir.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: g}\n")
	one("file", exchange("/good/file", "{name: clients, key: file}"))
	one("document", exchange("/good/document", "{name: docs, key: document}"))
	one("obo", fmt.Sprintf("{type: obo, obo: {tenantId: contoso.example.com, authority: %q, clientId: edge, clientSecretRef: {name: docs, key: obo}, audience: there}}", service))
	one("cloud", `{type: cloudSts, cloudSts: {region: eu-west-1, fallbackRoleArn: "arn:aws:iam::123456789012:role/tools"}}`)
	for _, name := range badPaths {
		one(name, exchange("/bad/"+name, "{name: clients, key: bad}"))
	}
	fmt.Fprintf(&b, `---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: main}
spec:
  groupRef: {name: g}
  incomingAuth: {type: oidc, oidcConfigRef: {name: idp, audience: here}}
  config:
    operational: {failureHandling: {partialFailureMode: best_effort}}
    audit: {enabled: true, logFile: %q, includeRequestData: true, includeResponseData: true}
    telemetry: {endpoint: %q, insecure: true, tracingEnabled: true, metricsEnabled: true, samplingRate: "1", enablePrometheusMetricsPath: true}
---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: idp}
spec: {type: inline, inline: {issuer: %q, insecureAllowHTTP: true, jwksAllowPrivateIP: true}}
`, audit, collector, issuer)
	return b.String()
}

// credentialConfig is a server that is a configuration alone, with secrets in place and in the
// environment.
func credentialConfig(backs map[string]*edgetest.Server, issuer, service string, secrets map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: plain\ngroupRef: plain\nincomingAuth: {type: oidc, oidc: {issuer: %q, clientId: edge, audience: plain, insecureAllowHttp: true, jwksAllowPrivateIp: true}}\noperational: {failureHandling: {partialFailureMode: best_effort}}\noutgoingAuth:\n  source: inline\n  backends:\n", issuer)
	for _, name := range inConfig {
		typ, section, more := "token_exchange", "tokenExchange", ", audience: there"
		if strings.HasPrefix(name, "obo") {
			typ, section, more = "obo", "obo", ", audience: there"
		}
		secret := fmt.Sprintf("clientSecret: %q", secrets[name])
		switch name {
		case "env":
			secret = "clientSecretEnv: EXCHANGE_SECRET"
		case "oboenv":
			secret = "clientSecretEnv: OBO_SECRET"
		}
		fmt.Fprintf(&b, "    %s: {type: %s, %s: {tokenUrl: %q, clientId: edge, %s%s}}\n", name, typ, section, service+"/good/"+name, secret, more)
	}
	b.WriteString("backends:\n")
	for _, name := range inConfig {
		fmt.Fprintf(&b, "- {name: %s, url: %q, transport: streamable-http}\n", name, backs[name].URL)
	}
	return b.String()
}

// misusedCredentials are ways with secrets in fields where none belong.
func misusedCredentials(g *garden) string {
	var b strings.Builder
	for i, spec := range []string{
		`{type: tokenExchange, tokenExchange: {tokenUrl: "https://user:` + url.QueryEscape(g.plant("the password of a token endpoint")) + `@example.com/t", audience: a, clientId: c}}`,
		fmt.Sprintf(`{type: tokenExchange, tokenExchange: {tokenUrl: "https://example.com/t", audience: a, clientId: c, clientSecret: %q}}`, g.plant("a field that there is not")),
		fmt.Sprintf(`{type: tokenExchange, tokenExchange: {tokenUrl: "https://example.com/t", audience: a, clientId: c, clientSecretRef: %q}}`, g.plant("a value for a reference")),
		fmt.Sprintf(`{type: tokenExchange, tokenExchange: {tokenUrl: "https://example.com/t", audience: a, externalTokenHeaderName: %q}}`, "Bearer "+g.plant("a value for a header's name")),
		fmt.Sprintf(`{type: obo, obo: {tenantId: contoso.example.com, authority: "https://user:%s@example.com", clientId: c, clientSecretRef: {name: a, key: b}, audience: a}}`, url.QueryEscape(g.plant("the password of an authority"))),
		fmt.Sprintf(`{type: obo, obo: {tenantId: contoso.example.com, clientId: c, clientSecretRef: %q, audience: a}}`, g.plant("a value for another reference")),
		fmt.Sprintf(`{type: xaa, xaa: {idpTokenUrl: "https://user:%s@example.com", idpClientId: c, targetAudience: "https://a.example.com", targetTokenUrl: "https://b.example.com"}}`, url.QueryEscape(g.plant("the password of a provider"))),
	} {
		fmt.Fprintf(&b, "---\napiVersion: weir.dev/v1beta1\nkind: MCPExternalAuthConfig\nmetadata: {name: misused-%d}\nspec: %s\n", i, spec)
	}
	fmt.Fprintf(&b, "---\napiVersion: weir.dev/v1beta1\nkind: VirtualMCPServer\nmetadata: {name: misused}\nspec:\n  groupRef: {name: g}\n  incomingAuth: {type: oidc, oidcConfigRef: {name: idp, audience: here}}\n  config:\n    outgoingAuth:\n      source: inline\n      default: {type: token_exchange, tokenExchange: {tokenUrl: \"https://example.com/t\", audience: a, clientId: c, clientSecret: %q, clientSecretEnv: %q}}\n",
		g.plant("a secret in place beside another"), g.plant("a secret for the name of a variable"))
	return b.String()
}

// running is an edge that runs.
type running struct {
	t            *testing.T
	cmd          *exec.Cmd
	front, admin string
	read         chan struct{} // closed when it has said all
}

// startEdge starts an edge, keeps what it says, and waits until it serves.
func startEdge(t *testing.T, g *garden, dir string, environ []string, args ...string) *running {
	t.Helper()
	p := &running{t: t, cmd: exec.CommandContext(t.Context(), "weir", args...), read: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir = append(environ, "PATH="+os.Getenv("PATH")), dir
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	at := make(chan [2]string, 1)
	go func() { // ends with the process
		defer close(p.read)
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			g.hear("the log", lines.Text())
			var line struct{ Msg, Address, Admin string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
				at <- [2]string{"http://" + line.Address, "http://" + line.Admin}
			}
		}
	}()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	var both [2]string
	select {
	case both = <-at:
	case <-p.read:
		t.Fatalf("it does not serve: %s", g.said["the log"])
	case <-time.After(edgetest.Patience):
		t.Fatal("it does not serve in time")
	}
	p.front, p.admin = both[0], both[1]
	return p
}

func (p *running) text(r *http.Response, err error) string {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

func (p *running) get(path string) string  { return p.text(http.Get(p.admin + path)) }
func (p *running) post(path string) string { return p.text(http.Post(p.admin+path, "", nil)) }

// arguments are those of the process, as all users of the machine see them.
func (p *running) arguments() string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.cmd.Process.Pid))
	if errors.Is(err, os.ErrNotExist) { // not Linux
		return strings.Join(p.cmd.Args, " ")
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\x00", " ")
}

// stop ends the edge in order.
func (p *running) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.read:
	case <-time.After(edgetest.Patience):
		p.t.Fatal("the edge does not end")
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Error(err)
	}
}
