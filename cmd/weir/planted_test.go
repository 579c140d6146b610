package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest"
)

// garden is the secrets that a test has planted, by where.
type garden struct {
	t      *testing.T
	where  []string
	values []string
	said   map[string]*bytes.Buffer // everything that was said, by who said it
	mu     sync.Mutex
}

// plant makes a secret. It has characters that encodings change.
func (g *garden) plant(where string) string {
	random := make([]byte, 9)
	_, _ = rand.Read(random) // never fails
	value := fmt.Sprintf("pl4nt+%s/%dx", hex.EncodeToString(random), len(g.values))
	g.keep(where, value)
	return value
}

func (g *garden) keep(where, value string) {
	g.where, g.values = append(g.where, where), append(g.values, value)
}

// hear keeps what somebody said.
func (g *garden) hear(who string, text ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.said[who] == nil {
		g.said[who] = &bytes.Buffer{}
	}
	g.said[who].WriteString(strings.Join(text, "\n") + "\n")
}

// shapes are the ways in which a secret may stand in a text: as it is, in JSON,
// in base64 wherever it begins in what was encoded, percent-encoded, in hex.
func shapes(secret string) []string {
	quoted, _ := json.Marshal(secret) // text is always JSON
	out := []string{secret, strings.Trim(string(quoted), `"`), url.QueryEscape(secret), url.PathEscape(secret),
		hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret)))}
	for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for offset := range 3 {
			text := alphabet.EncodeToString([]byte(strings.Repeat("x", offset) + secret))
			out = append(out, text[4*((offset+2)/3):len(text)-4]) // what neighbours do not change
		}
	}
	return out
}

// search says where secrets were found.
func (g *garden) search() (hits []string) {
	for i, secret := range g.values {
		for _, shape := range shapes(secret) {
			for who, text := range g.said {
				if at := strings.Index(text.String(), shape); at >= 0 {
					all := text.String()
					line := all[strings.LastIndexByte(all[:at], '\n')+1:]
					line, _, _ = strings.Cut(line, "\n")
					hits = append(hits, fmt.Sprintf("%s says %s: %s", who, g.where[i], line))
				}
			}
		}
	}
	return hits
}

// The search finds what it looks for, in every shape and in the midst of a text.
func TestPlantedSecretsAreFound(t *testing.T) {
	g := &garden{t: t}
	secret := g.plant("here")
	for name, text := range map[string]string{
		"plain":               "a " + secret + " b",
		"HTTP Basic":          base64.StdEncoding.EncodeToString([]byte("edge:" + secret)),
		"base64":              base64.StdEncoding.EncodeToString([]byte(secret)),
		"base64, one before":  base64.StdEncoding.EncodeToString([]byte("-" + secret + "--")),
		"base64, two before":  base64.URLEncoding.EncodeToString([]byte("--" + secret)),
		"a query":             "?key=" + url.QueryEscape(secret),
		"hex":                 hex.EncodeToString([]byte("x" + secret)),
		"hex in capitals":     fmt.Sprintf("%X", secret),
		"a JSON text in JSON": fmt.Sprintf("%q", `{"a":"`+secret+`"}`),
	} {
		g.said = map[string]*bytes.Buffer{"somebody": bytes.NewBufferString("a line\n" + text + "\nanother")}
		if len(g.search()) == 0 {
			t.Errorf("%s is not found", name)
		}
	}
	g.said = map[string]*bytes.Buffer{"somebody": bytes.NewBufferString("nothing of it: pl4nt+")}
	if hits := g.search(); len(hits) > 0 {
		t.Error(hits)
	}
}

// weir runs a command to its end and keeps what it says.
func (g *garden) weir(dir string, environ []string, args ...string) {
	ctx, cancel := context.WithTimeout(g.t.Context(), edgetest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "weir", args...)
	cmd.Env, cmd.Dir = append(environ, "PATH="+os.Getenv("PATH")), dir
	out, err := cmd.CombinedOutput()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		g.t.Fatal(err)
	}
	if len(out) == 0 {
		g.t.Errorf("weir %v says nothing", args)
	}
	g.hear("weir "+strings.Join(args, " "), string(out))
}

// write writes files of a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestK16 plants secrets wherever an edge has or meets some, has it do all that
// it does, well and badly, and looks for them in all that it says: the log at
// its most talkative, the status, every command, every answer to a client.
func TestK16(t *testing.T) {
	g := &garden{t: t, said: map[string]*bytes.Buffer{}}
	dir := t.TempDir()

	// 1. What is served: every way to give an edge a secret.
	backs := map[string]*edgetest.Server{}
	for i, name := range []string{"bearer", "document", "encoded", "plain", "variable", "query", "inline", "env"} {
		backs[name] = edgetest.NewServer(t, []edgetest.Era{edgetest.Legacy, edgetest.Modern}[i%2])
	}
	bearer, doc, encoded := g.plant("a bearer token in a file"), g.plant("a header in a document"), g.plant("a header in a document in base64")
	plain, variable, query := g.plant("a plain header"), g.plant("a variable"), g.plant("the query of a backend's URL")
	inline, env := g.plant("a value in place"), g.plant("a value in the environment")
	client, keys := g.plant("the client secret of a provider"), g.plant("the token for its keys")
	other := g.plant("a value that nothing refers to")
	stateKey := base64.StdEncoding.EncodeToString([]byte(g.plant("the key of requestState") + strings.Repeat("k", 32))[:32])
	g.keep("the key of requestState as it is written", stateKey)
	accepted, revoked := g.plant("a token that is taken"), g.plant("a token that is not")
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, secret, _ := r.BasicAuth(); secret != url.QueryEscape(client) {
			w.WriteHeader(401)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, fmt.Sprintf(`{"active":%t,"sub":"alice","aud":"a"}`, r.FormValue("token") == accepted))
	}))
	defer provider.Close()
	hmac, hookQuery, hookAnswer := g.plant("the secret that signs for a webhook"), g.plant("the query of a webhook's URL"), g.plant("a bad answer of a webhook")
	var signed atomic.Int64
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Weir-Signature") != "" && signed.Add(1)%2 == 0 {
			_, _ = io.WriteString(w, `{"version":"v0.1.0","allowed":true}`)
			return
		}
		http.Error(w, hookAnswer, 500)
	}))
	defer hook.Close()
	write(t, dir, map[string]string{
		"secrets/hooks/hmac": hmac,
		"hooks.yaml": fmt.Sprintf("validating:\n- name: policy\n  url: %s/?token=%s\n  failure_policy: ignore\n  hmac_secret_ref: {name: hooks, key: hmac}\n  tls_config: {insecure_skip_verify: true}\n",
			hook.URL, url.QueryEscape(hookQuery)),
		"secrets/tokens/bearer": bearer + "\n",
		"secrets/tokens/unread": other,
		"secrets/idp/client":    client,
		"keys.token":            keys,
		"state.key":             stateKey + "\n",
		"set/secrets.yaml": fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: docs}\nstringData: {doc: %q}\ndata: {encoded: %s}\n",
			doc, base64.StdEncoding.EncodeToString([]byte(encoded))),
		"set/main.yaml":  mainManifest(backs, provider.URL, plain, query),
		"set/plain.yaml": plainManifest(backs, inline),
	})
	environ := []string{"WEIR_SECRET_MORE_VARIABLE=" + variable, "PLAIN_KEY=" + env, "WEIR_SECRETS_DIR=secrets", "WEIR_WEBHOOK_CONFIG=hooks.yaml"}
	flags := []string{"--state-key-file", "state.key", "--log-level", "debug", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}

	// 2. An edge that serves it.
	cmd := exec.CommandContext(t.Context(), "weir", append([]string{"serve", "-c", "set", "--default-server", "main"}, flags...)...)
	cmd.Env, cmd.Dir = append(environ, "PATH="+os.Getenv("PATH")), dir
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	front, admin := make(chan string, 1), make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		d := json.NewDecoder(stderr)
		for {
			var line map[string]any
			if d.Decode(&line) != nil {
				return
			}
			text, _ := json.Marshal(line) // it was JSON
			g.hear("the log", string(text))
			if line["msg"] == "serving" {
				front <- "http://" + line["address"].(string)
				admin <- "http://" + line["admin"].(string)
			}
		}
	}()
	defer func() { _ = cmd.Process.Kill() }()
	base, adminBase := edgetest.Receive(t, front, "the door"), edgetest.Receive(t, admin, "the admin door")

	// 3. Calls that go well and badly, with all that clients have secret.
	for name, back := range backs {
		back.Await(map[edgetest.Era]string{edgetest.Legacy: "initialize", edgetest.Modern: "server/discover"}[back.Era], 1)
		broken := g.plant("an error of the backend " + name)
		back.Once("tools/call", func(c *edgetest.Call) { c.Text(500, "text/plain", broken) })
	}
	visitor := edgetest.NewClient(t, base)
	visitor.Header.Set("X-Passed", g.plant("a header that is passed on"))
	visitor.Header.Set("X-Not-Passed", g.plant("a header that is not passed on"))
	visitor.Header.Set("Cookie", "session="+g.plant("a cookie"))
	answer := func(what string, r *edgetest.Response) {
		g.hear("the answer to "+what, string(r.Body), fmt.Sprint(r.Header))
	}
	for _, token := range []string{"", revoked, accepted} {
		if token != "" {
			visitor.Header.Set("Authorization", "Bearer "+token)
		}
		for name := range backs {
			for range 2 { // the first one fails
				argument := g.plant("an argument")
				body, head := edgetest.ModernRequest("1", "tools/call", edgetest.CallParams(name+"_echo", `{"password":"`+argument+`"}`), edgetest.Meta())
				for _, path := range []string{"/mcp", "/servers/plain/mcp"} {
					r, err := visitor.Try("POST", path, body, head...)
					if err != nil {
						t.Fatal(err)
					}
					if r.Status != 200 { // a result may hold what the client itself sent
						answer("a call", r)
					}
				}
			}
		}
	}
	visitor.Header.Set("Proxy-Authorization", "Basic "+g.plant("a proxy's credential"))
	answer("a call through a proxy", visitor.Modern("2", "tools/list", ""))
	session := visitor.Initialize("")
	g.keep("the id of a session", session.ID)
	session.Call("3", "bearer_echo", `{"token":"`+g.plant("an argument of a legacy call")+`"}`)
	answer("a bad body", visitor.Post(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":"`+g.plant("a body that is no message")+`"`))
	answer("a bad session", visitor.Post(`{"jsonrpc":"2.0","id":5,"method":"ping"}`, "Mcp-Session-Id", g.plant("another's session")))
	for what, line := range map[string]string{
		"a token after a blank": "Authorization : Bearer %s", "a token with a NUL": "Authorization: Bearer %s\x00", "a folded token": "Authorization: Bearer\r\n %s",
		"two tokens": "Authorization: Bearer one\r\nAuthorization: Bearer %s", "a line without a name": ": %s", "a name": "%s: x",
		"a method": "GET %s", "an encoding": "Transfer-Encoding: %s", "a length": "Content-Length: %s", "a cookie in a line of no kind": "Cookie %s",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: x\r\n"+line+"\r\nContent-Type: application/json\r\n\r\n{}", g.plant(what))
		_ = conn.SetReadDeadline(time.Now().Add(edgetest.Patience))
		text, _ := io.ReadAll(conn) // the edge closes what it refuses
		g.hear("the answer to "+what, string(text))
		_ = conn.Close()
	}
	two := g.plant("a header that is sent twice")
	answer("two credentials", visitor.Do("GET", "/status?"+url.QueryEscape(two), ""))
	for name, want := range map[string]string{"bearer": "Bearer " + bearer, "document": doc, "encoded": encoded, "plain": plain, "variable": variable, "inline": inline, "env": env} {
		calls := backs[name].Requests("tools/call")
		if len(calls) < 2 || !strings.Contains(fmt.Sprint(calls[1].Header), want) {
			t.Errorf("backend %s: %d calls, without what was planted for it", name, len(calls))
		}
	}
	if calls := backs["query"].Requests("tools/call"); len(calls) == 0 || !strings.Contains(calls[0].Path, url.QueryEscape(query)) {
		t.Error("the query did not reach the backend")
	}

	if signed.Load() < 10 {
		t.Errorf("the webhook was asked %d times", signed.Load())
	}

	// 4. Reloads that fail.
	reload := func() {
		t.Helper()
		r, err := http.Post(adminBase+"/-/reload", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if r.StatusCode == 200 {
			t.Error("reloaded what cannot be served")
		}
		g.hear("a reload", string(text))
	}
	write(t, dir, map[string]string{"secrets/tokens/bearer": g.plant("a bearer token with lines") + "\r\nX-Evil: y"})
	reload()
	visitor.Modern("6", "tools/call", edgetest.CallParams("bearer_echo", "{}"))
	write(t, dir, map[string]string{"secrets/tokens/bearer": bearer, "set/bad.yaml": misplaced(g)})
	reload()

	// 5. What commands say: of the edge, of what it serves, of what is wrong.
	status, err := http.Get(adminBase + "/status")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(status.Body)
	if err = errors.Join(err, status.Body.Close()); err != nil {
		t.Fatal(err)
	}
	g.hear("/status", string(text))
	write(t, dir, map[string]string{"token": accepted})
	g.weir(dir, environ, "status", adminBase+"/status")
	g.weir(dir, environ, "status", adminBase+"/status", "--json")
	g.weir(dir, environ, "tools", base+"/mcp", "--bearer-token-file", "token")
	g.weir(dir, environ, "tools", base+"/mcp", "--header", "Authorization: Bearer "+revoked)
	g.weir(dir, environ, "validate", "set")
	g.weir(dir, environ, "doctor", "-c", "set", "--json", "--state-key-file", "state.key")
	if err := os.Remove(filepath.Join(dir, "set", "bad.yaml")); err != nil {
		t.Fatal(err)
	}
	g.weir(dir, environ, "validate", "set")
	g.weir(dir, nil, "validate", "set")
	g.weir(dir, environ, append([]string{"settings", "--json"}, flags...)...)
	g.weir(dir, append(environ, "WEIR_SECRETT="+g.plant("a variable that is misspelt")), "settings")
	g.weir(dir, environ, append([]string{"doctor", "-c", "set", "--json"}, flags...)...)
	g.weir(dir, environ, append([]string{"doctor", "-c", "set"}, flags...)...)
	cert, key := pair(t)
	_, another := pair(t)
	write(t, dir, map[string]string{"cert.pem": cert, "key.pem": key, "nokey.pem": another, "nostate.key": g.plant("a key that is none") + "\n"})
	g.keep("the key of a certificate", strings.Split(key, "\n")[1])
	g.keep("the key of another", strings.Split(another, "\n")[1])
	for _, bad := range [][]string{{"--tls-cert", "cert.pem", "--tls-key", "nokey.pem"}, {"--tls-cert", "key.pem", "--tls-key", "key.pem"}, {"--state-key-file", "nostate.key"}} {
		g.weir(dir, environ, append([]string{"serve", "-c", "set", "--listen", "127.0.0.1:0", "--admin-listen", ""}, bad...)...)
		g.weir(dir, environ, append([]string{"doctor", "-c", "set", "--json", "--listen", "127.0.0.1:0", "--admin-listen", ""}, bad...)...)
	}
	write(t, dir, map[string]string{"secrets/docs/doc": g.plant("a header with lines") + "\nX-Evil: y"})
	g.weir(dir, environ, append([]string{"serve", "-c", "set"}, flags...)...)
	g.weir(dir, environ, append([]string{"doctor", "-c", "set", "--json"}, flags...)...)

	// 6. Its end.
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-read:
	case <-time.After(edgetest.Patience):
		t.Fatal("the edge does not end")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if len(g.values) < 30 || len(g.said) < 20 || g.said["the log"].Len() < 5000 {
		t.Errorf("%d secrets, %d speakers, %d bytes of log: too few to tell", len(g.values), len(g.said), g.said["the log"].Len())
	}
	hits := g.search()
	for _, hit := range hits {
		t.Error(hit)
	}
	t.Logf("%d hits of %d secrets in %d shapes in what %d said", len(hits), len(g.values), len(shapes(g.values[0])), len(g.said))
}

// mainManifest is a server whose backends have objects of their own.
func mainManifest(backs map[string]*edgetest.Server, provider, plain, query string) string {
	var b strings.Builder
	entry := func(name, path, more string) {
		fmt.Fprintf(&b, "---\napiVersion: weir.dev/v1beta1\nkind: MCPServerEntry\nmetadata: {name: %s}\nspec:\n  groupRef: {name: g}\n  remoteUrl: %q\n  transport: streamable-http\n  allowPrivateEndpoint: true\n  %s\n", name, backs[name].URL+path, more)
	}
	auth := func(name, spec string) {
		fmt.Fprintf(&b, "---\napiVersion: weir.dev/v1beta1\nkind: MCPExternalAuthConfig\nmetadata: {name: %s}\nspec: %s\n", name, spec)
	}
	b.WriteString("apiVersion: weir.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: g}\n")
	auth("bearer", `{type: bearerToken, bearerToken: {tokenSecretRef: {name: tokens, key: bearer}}}`)
	auth("document", `{type: headerInjection, headerInjection: {headerName: X-Key, valueSecretRef: {name: docs, key: doc}}}`)
	auth("encoded", `{type: headerInjection, headerInjection: {headerName: Cookie, valueSecretRef: {name: docs, key: encoded}}}`)
	entry("bearer", "", "externalAuthConfigRef: {name: bearer}")
	entry("document", "", "externalAuthConfigRef: {name: document}")
	entry("encoded", "", "externalAuthConfigRef: {name: encoded}")
	entry("plain", "", fmt.Sprintf("headerForward: {addPlaintextHeaders: {X-Key: %q}}", plain))
	entry("variable", "", "headerForward: {addHeadersFromSecret: [{headerName: X-Key, valueSecretRef: {name: more, key: variable}}]}")
	entry("query", "?key="+url.QueryEscape(query), "")
	b.WriteString(`---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: main}
spec:
  groupRef: {name: g}
  incomingAuth: {type: oidc, oidcConfigRef: {name: idp, audience: a}}
  passthroughHeaders: [X-Passed]
  config: {operational: {failureHandling: {partialFailureMode: best_effort}}}
---
apiVersion: weir.dev/v1beta1
kind: MCPOIDCConfig
metadata: {name: idp}
spec:
  type: inline
  inline: {issuer: "` + provider + `", clientId: edge, insecureAllowHTTP: true, jwksAllowPrivateIP: true, introspectionUrl: "` + provider + `/introspect", jwksAuthTokenPath: keys.token, clientSecretRef: {name: idp, key: client}}
`)
	return b.String()
}

// plainManifest is a server that is a configuration alone.
func plainManifest(backs map[string]*edgetest.Server, inline string) string {
	return fmt.Sprintf(`name: plain
groupRef: plain
incomingAuth: {type: anonymous}
outgoingAuth:
  source: inline
  default: {type: header_injection, headerInjection: {headerName: X-Key, headerValueEnv: PLAIN_KEY}}
  backends:
    inline: {type: header_injection, headerInjection: {headerName: Authorization, headerValue: %q}}
backends:
- {name: inline, url: %q, transport: streamable-http}
- {name: env, url: %q, transport: streamable-http}
`, inline, backs["inline"].URL, backs["env"].URL)
}

// misplaced is a manifest with secrets where none belong, or that cannot be read.
func misplaced(g *garden) string {
	p := func(where string) string { return g.plant(where) }
	return fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: bad-one}
spec:
  type: headerInjection
  headerInjection: {headerName: %q, valueSecretRef: {name: %q, key: %q}}
---
apiVersion: weir.dev/v1beta1
kind: MCPExternalAuthConfig
metadata: {name: bad-two}
spec: {type: bearerToken, bearerToken: {token: %q, tokenSecretRef: %q}}
---
apiVersion: weir.dev/v1beta1
kind: MCPServerEntry
metadata: {name: bad-three}
spec:
  groupRef: {name: g}
  remoteUrl: "https://user:%s@example.com/mcp"
  transport: streamable-http
  externalAuthConfigRef: {name: bad-one}
  headerForward: {addPlaintextHeaders: {X-Key: "%s\n"}}
---
apiVersion: v1
kind: Secret
metadata: {name: bad-four}
data: {key: "%s!"}
stringDat: {key: %q}
stringData: {key: [%q]}
`, p("a value for a header's name"), p("a value for the name of a secret"), p("a value for a key"), p("a value for a field that there is not"), p("a value for a reference"),
		url.QueryEscape(p("the password of a URL")), p("a plain header with a line break"), p("data that is not base64"), p("a section of a Secret that there is not"), p("a list for a value"))
}

// pair is a certificate and its key in PEM.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "edge"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text}))
}
