package doctor

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/demo"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/settings"
	"github.com/weir-edge/weir/edge/source"
)

// examined is what the doctor finds in a manifest whose steps may take timeout.
func examined(t *testing.T, manifest string, timeout time.Duration, environ ...string) Findings {
	t.Helper()
	return examinedAs(t, manifest, timeout, nil, nil, environ...)
}

// examinedAs is examined for a user, and with authorities of --ca-bundle.
func examinedAs(t *testing.T, manifest string, timeout time.Duration, who *edge.Identity, ca []byte, environ ...string) Findings {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	bundle := ""
	if len(ca) > 0 {
		bundle = filepath.Join(t.TempDir(), "all.pem")
		if err := os.WriteFile(bundle, ca, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := &Doctor{
		Config: []string{path}, Timeout: timeout, User: who, Say: func(edge.Finding) {},
		Settings: func() (settings.Settings, error) {
			s := settings.Defaults()
			s.Listen, s.AdminListen, s.CABundle, s.AllowWorkloads = "127.0.0.1:0", "", bundle, []string{"local", "container", "wasm"}
			return s, s.Check()
		},
		Secrets: func(set *source.Set, dir string) (edge.Secrets, error) {
			all, err := secret.New(secret.Options{Dir: dir, Lookup: func(name string) (string, bool) {
				i := slices.IndexFunc(environ, func(pair string) bool { return strings.HasPrefix(pair, name+"=") })
				if i < 0 {
					return "", false
				}
				return strings.TrimPrefix(environ[i], name+"="), true
			}})
			if err != nil {
				return nil, err
			}
			return all.Draft(set.Secrets()), nil
		},
	}
	found, err := d.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// inFront is the manifest of a server with one backend; more are further
// fields of the backend.
func inFront(url, transport, more string) string {
	return fmt.Sprintf("name: main\ngroupRef: g\nincomingAuth: {type: anonymous}\noutgoingAuth: {source: inline}\nbackends:\n  - {name: a, url: %q, transport: %s%s}\n", url, transport, more)
}

// entry is the same with an object for the backend; more are further lines of
// its spec.
func entry(url string, more ...string) string {
	return "apiVersion: weir.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: g}\n---\n" +
		"apiVersion: weir.dev/v1beta1\nkind: MCPServerEntry\nmetadata: {name: a}\nspec:\n  groupRef: {name: g}\n  remoteUrl: " + url + "\n  transport: streamable-http\n  " + strings.Join(more, "\n  ") + "\n---\n" +
		"apiVersion: weir.dev/v1beta1\nkind: VirtualMCPServer\nmetadata: {name: main}\nspec:\n  groupRef: {name: g}\n  incomingAuth: {type: anonymous}\n"
}

// certified is a TLS server whose certificate is valid for a host and a time,
// and the file of that certificate.
func certified(t *testing.T, host string, from, until time.Time, clients tls.ClientAuthType) (url, ca string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: from, NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, ClientAuth: clients}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.URL + "/mcp", ca
}

// strange is everything but an MCP server.
func strange(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/page":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!doctype html><html><head><title>Welcome\x1b[31m</title></head><body>hello</body></html>")
	case "/moved":
		http.Redirect(w, r, "/elsewhere?token=secret", http.StatusFound)
	case "/down":
		http.Error(w, "out of order", http.StatusServiceUnavailable)
	case "/busy":
		http.Error(w, "slowly", http.StatusTooManyRequests)
	case "/forbidden":
		w.WriteHeader(http.StatusForbidden)
	case "/text":
		_, _ = io.WriteString(w, "hello")
	case "/hangup":
		panic(http.ErrAbortHandler)
	default:
		http.NotFound(w, r)
	}
}

// odd is a server with one tool that can be called, which says nothing of what it does, and
// one whose definition the protocol forbids.
func odd(t *testing.T) *edgetest.Server {
	t.Helper()
	s := edgetest.NewServer(t, edgetest.Modern)
	s.Always("tools/list", func(c *edgetest.Call) {
		c.Result(`{"tools":[{"name":"headers","inputSchema":{"type":"object"}},` +
			`{"name":"unusable","inputSchema":{"type":"object","properties":{"n":{"type":"number","x-mcp-header":"N"}}}}]}`)
	})
	return s
}

// Each thing that can be wrong with a backend has its class, its cause, and
// what to do next.
func TestDoctorOfBackends(t *testing.T) {
	strange := httptest.NewServer(http.HandlerFunc(strange))
	defer strange.Close()
	locked := edgetest.NewServer(t, edgetest.Modern)
	locked.Always("*", func(c *edgetest.Call) {
		c.Header().Set("WWW-Authenticate", `Bearer realm="odd"`)
		c.Text(401, "application/json", "")
	})
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	shown, err := demo.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	older := edgetest.NewServer(t, edgetest.SSE)
	const long = 10 * time.Second
	now := time.Now()
	valid := func(host string, from, until time.Duration, clients tls.ClientAuthType) string {
		url, ca := certified(t, host, now.Add(from), now.Add(until), clients)
		return inFront(url, "streamable-http", ", type: entry, caBundlePath: "+ca)
	}
	mute := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	for _, test := range []struct {
		name      string
		manifest  string
		timeout   time.Duration
		step      string
		class     string
		level     edge.Level
		cause     string
		next      string
		forbidden string // in neither
	}{
		{"no such host", inFront("http://weir.invalid/mcp", "streamable-http", ""), long, "resolve", edge.ClassDNS, edge.LevelProblem, `host "weir.invalid"`, "name server", ""},
		{"private address", entry("http://127.0.0.1:1/mcp"), long, "resolve", edge.ClassPrivate, edge.LevelProblem, "127.0.0.1 is not a public address", "allowPrivateEndpoint: true", ""},
		{"address of a cloud", entry("http://169.254.169.254/mcp", "allowPrivateEndpoint: true"), long, "resolve", edge.ClassPrivate, edge.LevelProblem, "169.254.169.254 is a link-local address", "by another address", "allowPrivate"},
		{"silence", inFront("http://"+fake.Listen(t, mute).Addr+"/mcp", "streamable-http", ""), 100 * time.Millisecond, "introduce", edge.ClassTimeout, edge.LevelProblem, "gives no answer within 100ms", "--timeout", ""},
		{"silence before TLS", inFront("https://"+fake.Listen(t, mute).Addr+"/mcp", "streamable-http", ""), 100 * time.Millisecond, "tls", edge.ClassTimeout, edge.LevelProblem, "does not answer the TLS handshake", "is a server with TLS", ""},
		{"no TLS there", inFront(strings.Replace(strange.URL, "http:", "https:", 1), "streamable-http", ""), long, "tls", edge.ClassTLS, edge.LevelProblem, "does not speak TLS", "write http://", ""},
		{"TLS there", inFront(strings.Replace(secure.URL, "https:", "http:", 1), "streamable-http", ""), long, "introduce", edge.ClassTLS, edge.LevelProblem, "speaks TLS", "write https://", ""},
		{"another host", valid("elsewhere.example", -time.Hour, 1000*time.Hour, 0), long, "tls", edge.ClassTLS, edge.LevelProblem, `is not for host "127.0.0.1"`, "as its certificate does", ""},
		{"expired", valid("127.0.0.1", -2*time.Hour, -time.Hour, 0), long, "tls", edge.ClassTLS, edge.LevelProblem, "was valid until", "new certificate", ""},
		{"not yet valid", valid("127.0.0.1", time.Hour, 1000*time.Hour, 0), long, "tls", edge.ClassClock, edge.LevelProblem, "is not valid before", "check the clock", ""},
		{"soon over", valid("127.0.0.1", -time.Hour, time.Hour, 0), long, "tls", edge.ClassTLS, edge.LevelWarning, "is valid until", "new certificate before that", ""},
		{"wants a certificate", valid("127.0.0.1", -time.Hour, 1000*time.Hour, tls.RequireAnyClientCert), long, "introduce", edge.ClassTLS, edge.LevelProblem, "it ended TLS", "without a certificate", ""},
		{"bundle not there", inFront("https://127.0.0.1:1/mcp", "streamable-http", ", type: entry, caBundlePath: /nowhere.pem"), long, "files", edge.ClassFile, edge.LevelProblem, "/nowhere.pem", "in PEM", ""},
		{"no HTTP", inFront("http://"+fake.Listen(t, func(c net.Conn) { _, _ = bufio.NewReader(c).ReadString('\n'); _, _ = io.WriteString(c, "220 mail\r\n") }).Addr+"/mcp", "streamable-http", ""), long, "introduce", edge.ClassProtocol, edge.LevelProblem, "does not speak HTTP", "over HTTP", ""},
		{"hangs up", inFront(strange.URL+"/hangup", "streamable-http", ""), long, "introduce", edge.ClassProtocol, edge.LevelProblem, "closes the connection", "log", ""},
		{"page", inFront(strange.URL+"/page", "streamable-http", ""), long, "introduce", edge.ClassProtocol, edge.LevelProblem, "a web page, no MCP server", "/mcp", "\x1b"},
		{"text", inFront(strange.URL+"/text", "streamable-http", ""), long, "introduce", edge.ClassProtocol, edge.LevelProblem, `"text/plain", which is no message of MCP`, "/mcp", ""},
		{"no path", inFront(strange.URL+"/nowhere?key=secret", "streamable-http", ""), long, "introduce", edge.ClassProtocol, edge.LevelProblem, "answers 404 Not Found", "path", "secret"},
		{"moved", inFront(strange.URL+"/moved", "streamable-http", ""), long, "introduce", edge.ClassProtocol, edge.LevelProblem, "points to /elsewhere", "follows no redirect", "secret"},
		{"down", inFront(strange.URL+"/down", "streamable-http", ""), long, "introduce", edge.ClassFailing, edge.LevelProblem, "503 Service Unavailable (out of order)", "log", ""},
		{"busy", inFront(strange.URL+"/busy", "streamable-http", ""), long, "introduce", edge.ClassFailing, edge.LevelProblem, "too many requests", "later", ""},
		{"locked", inFront(locked.URL, "streamable-http", ""), long, "introduce", edge.ClassCredential, edge.LevelProblem, `answers 401: it wants a credential, asking for Bearer realm="odd"`, "outgoingAuth", ""},
		{"locked for this key", entry(locked.URL, "allowPrivateEndpoint: true", "headerForward: {addPlaintextHeaders: {X-Key: hush}}"), long, "introduce", edge.ClassCredential, edge.LevelProblem, "does not take the credential", "headerForward", "hush"},
		{"forbidden", inFront(strange.URL+"/forbidden", "streamable-http", ""), long, "introduce", edge.ClassRefused, edge.LevelProblem, "answers 403", "log", ""},
		{"sse is wrong", inFront(shown.URL(), "sse", ""), long, "introduce", edge.ClassTransport, edge.LevelProblem, "does not speak HTTP with SSE", "transport: streamable-http", ""},
		{"streamable is wrong", inFront(older.URL, "streamable-http", ""), long, "introduce", edge.ClassTransport, edge.LevelWarning, "the older transport", "transport: sse", ""},
		{"neither", inFront(strange.URL+"/nowhere", "sse", ""), long, "introduce", edge.ClassProtocol, edge.LevelProblem, "answers 404", "path", ""},
		{"definitions", inFront(odd(t).URL, "streamable-http", ""), long, "names", edge.ClassDefinition, edge.LevelProblem, "headers: tool a.unusable", "have whoever runs the backend correct", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			found := examined(t, test.manifest, test.timeout)
			at := slices.IndexFunc(found, func(c edge.Finding) bool { return c.Step == test.step && c.Class != "" })
			if at < 0 {
				t.Fatalf("nothing found in step %s: %+v", test.step, found)
			}
			c := found[at]
			if c.Class != test.class || c.Level != test.level || !strings.Contains(c.Cause, test.cause) || !strings.Contains(c.Next, test.next) {
				t.Errorf("found %+v", c)
			}
			if test.forbidden != "" && strings.Contains(c.Cause+c.Next, test.forbidden) {
				t.Errorf("%q is in %+v", test.forbidden, c)
			}
			if code := found.ExitCode(); code == 0 && test.level == edge.LevelProblem {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestDoctorTrustsTheBundle: authorities of --ca-bundle are trusted beside a bundle of the
// backend, and beside those of the system.
func TestDoctorTrustsTheBundle(t *testing.T) {
	now := time.Now()
	at, file := certified(t, "127.0.0.1", now.Add(-time.Hour), now.Add(100*24*time.Hour), tls.NoClientCert)
	_, other := certified(t, "127.0.0.1", now.Add(-time.Hour), now.Add(100*24*time.Hour), tls.NoClientCert)
	ca, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []string{"", ", type: entry, caBundlePath: " + other} {
		for _, bundle := range [][]byte{nil, ca} {
			found := 0
			for _, one := range examinedAs(t, inFront(at, "streamable-http", own), edgetest.Patience, nil, bundle) {
				if one.Step != "tls" {
					continue
				}
				if found++; (one.Level == edge.LevelOK) != (bundle != nil) {
					t.Errorf("%q, %t: %+v", own, bundle != nil, one)
				}
			}
			if found != 1 {
				t.Errorf("%q: %d findings", own, found)
			}
		}
	}
}

// What a server is started of has a look of its own for each form: what is no file of this machine
// is no problem.
func TestDoctorOfWorkloads(t *testing.T) {
	dir := t.TempDir()
	program, module := filepath.Join(dir, "program.exe"), filepath.Join(dir, "m.wasm")
	for path, mode := range map[string]os.FileMode{program: 0o700, module: 0o600} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	slash := "/" + strings.TrimPrefix(filepath.ToSlash(dir), "/")
	digest := strings.Repeat("0a", 32)
	for image, want := range map[string]string{
		"exec://" + slash + "/program.exe":                               "note: the edge starts " + program,
		"exec://" + slash + "/none":                                      "problem: the program " + filepath.Join(dir, "none") + " cannot be run here: ",
		"wasm://" + slash + "/m.wasm":                                    "note: the edge starts " + module,
		"wasm://" + slash + "/none.wasm":                                 "problem: the module cannot be read: ",
		"wasm://" + slash:                                                "problem: the module cannot be read: " + dir + " is no file",
		"wasm+https://example.com/m.wasm?token=planted#sha256=" + digest: "note: the edge starts https://example.com/m.wasm, ",
		"wasm://registry.example/tools/m:1":                              "note: the edge starts registry.example/tools/m:1, ",
		"registry.example/tools/server:1":                                "note: the edge starts registry.example/tools/server:1, ",
		"npx://some-server@1.0.0":                                        "note: the edge starts ",
	} {
		manifest := fmt.Sprintf("apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: tool}\nspec: {image: %q, transport: stdio}\n", image)
		found := examined(t, manifest, time.Second)
		i := slices.IndexFunc(found, func(f edge.Finding) bool { return f.Step == "files" && strings.HasSuffix(f.Subject, "/tool") })
		if i < 0 {
			t.Errorf("%s: %+v", image, found)
			continue
		}
		if got := map[edge.Level]string{edge.LevelNote: "note: ", edge.LevelProblem: "problem: "}[found[i].Level] + found[i].Cause; !strings.HasPrefix(got, want) || strings.Contains(got, "planted") {
			t.Errorf("%s: %s", image, got)
		}
		if code := found.ExitCode(); (code != 0) != strings.HasPrefix(want, "problem: ") {
			t.Errorf("%s: exit code %d", image, code)
		}
	}
}

// TestDoctorOfSecrets has the doctor knock with the credential that the edge
// would have, and say which secret is not there or not sound.
func TestDoctorOfSecrets(t *testing.T) {
	back := edgetest.NewServer(t, edgetest.Modern)
	back.Always("server/discover", func(c *edgetest.Call) {
		if c.Request.Header.Get("X-Key") != "hush" {
			c.Text(401, "text/plain", "")
			return
		}
		c.Result(`{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
	})
	manifest := entry(back.URL, "allowPrivateEndpoint: true", "headerForward: {addHeadersFromSecret: [{headerName: X-Key, valueSecretRef: {name: keys, key: a}}]}")
	for _, c := range []struct {
		environ, step, class, cause string
	}{
		{"WEIR_SECRET_KEYS_A=hush", "", "", ""},
		{"WEIR_SECRET_KEYS_A=wrong-hush", "introduce", edge.ClassCredential, "does not take the credential"},
		{"WEIR_SECRET_KEYS_A=hush\nX-Evil: y", "secrets", edge.ClassSecret, "secret keys/a: it holds a line break"},
		{"WEIR_SECRET_KEYS_B=hush", "secrets", edge.ClassSecret, "secret keys/a: not found"},
	} {
		var worst edge.Finding
		for _, one := range examined(t, manifest, edgetest.Patience, c.environ) {
			if one.Level == edge.LevelProblem && worst.Level != edge.LevelProblem {
				worst = one
			}
			if text := one.Cause + one.Next + one.Detail; strings.Contains(text, "hush") {
				t.Errorf("%s shows the secret", one.Step)
			}
		}
		if worst.Step != c.step || worst.Class != c.class || !strings.Contains(worst.Cause, c.cause) {
			t.Errorf("%q: %+v", c.environ, worst)
		}
	}
}

// TestDoctorOfCompositeTools: steps whose tool is not there, annotations that promise too much,
// and questions that have no time or nobody to answer them.
func TestDoctorOfCompositeTools(t *testing.T) {
	shown, err := demo.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	for _, c := range []struct {
		name, url, tools, step string
		level                  edge.Level
		class, cause, next     string
	}{
		{"a step without its tool", shown.URL(), "compositeTools: [{name: c, steps: [{id: s, tool: a.ecko}]}]", "names", edge.LevelWarning, edge.ClassNames,
			`composite tool c: step "s" calls a.ecko, and there is no such tool`, "correct the tool of the step"},
		{"annotations", odd(t).URL, "compositeTools: [{name: c, annotations: {readOnlyHint: true, idempotentHint: true}, steps: [{id: s, tool: a.headers}]}]", "names", edge.LevelWarning, edge.ClassNames,
			"composite tool c: idempotentHint, readOnlyHint promises more than its steps do", "take them out of its annotations"},
		{"a question without the time", shown.URL(), "compositeTools: [{name: c, steps: [{id: s, type: elicitation, message: m, timeout: 8m}]}]", "manifests", edge.LevelWarning, edge.ClassSettings,
			`VirtualMCPServer/main: composite tool c: step "s" waits 8m0s for an answer, and a modern client has 5m0s for it (--park-ttl)`, "raise --park-ttl"},
		{"a question within scripts", shown.URL(), "codeMode: {enabled: true}\ncompositeTools: [{name: c, steps: [{id: s, type: elicitation, message: m}]}]", "manifests", edge.LevelNote, "",
			`composite tool c: step "s" asks the caller, which fails within a script (codeMode)`, ""},
		{"nothing", shown.URL(), "compositeTools: [{name: c, steps: [{id: s, type: elicitation, message: m}, {id: t, tool: a.echo, dependsOn: [s]}]}]", "", 0, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var found []edge.Finding
			for _, one := range examined(t, inFront(c.url, "streamable-http", "")+c.tools+"\n", edgetest.Patience) {
				if strings.Contains(one.Cause, "composite tool") {
					found = append(found, one)
				}
			}
			if c.step == "" {
				if len(found) > 0 {
					t.Errorf("found %+v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Step != c.step || found[0].Level != c.level || found[0].Class != c.class || !strings.Contains(found[0].Cause, c.cause) || !strings.HasPrefix(found[0].Next, c.next) {
				t.Errorf("found %+v", found)
			}
		})
	}
	// What a backend that is away may have is not said to be missing.
	for _, one := range examined(t, inFront("http://127.0.0.1:1/mcp", "streamable-http", "")+"compositeTools: [{name: c, steps: [{id: s, tool: a.echo}]}]\n", edgetest.Patience) {
		if strings.Contains(one.Cause, "composite tool") {
			t.Errorf("found %+v", one)
		}
	}
}

// A backend that spoke and then does not list is told of, and the others are
// still merged.
func TestDoctorOfLists(t *testing.T) {
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		m, err := mcp.Decode(body)
		if err != nil || m.Method != "server/discover" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(mcp.AppendResult(nil, m.IDText(), []byte(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)))
	}))
	defer broken.Close()
	shown, err := demo.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	found := examined(t, inFront(broken.URL, "streamable-http", "")+fmt.Sprintf("  - {name: b, url: %q, transport: streamable-http}\n", shown.URL()), 10*time.Second)
	var said []string
	for _, c := range found {
		if c.Step == "lists" || c.Step == "names" {
			said = append(said, Progress(c))
		}
	}
	want := []string{
		"lists main/a: problem: lists",
		"lists main/b: ok (5 tools, 1 prompt, 1 resource, 1 template)",
		"names main: ok (clients see 5 tools, 1 prompt, 1 resource, 1 template; without a)",
	}
	if !slices.Equal(said, want) || found.ExitCode() != 34 {
		t.Errorf("exit code %d, said\n%s\nwant\n%s", found.ExitCode(), strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
}

// Long names and rules for nothing are warnings.
func TestDoctorOfNames(t *testing.T) {
	shown, err := demo.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	found := examined(t, inFront(shown.URL(), "streamable-http", "")+
		"aggregation:\n  conflictResolution: prefix\n  conflictResolutionConfig: {prefixFormat: \""+strings.Repeat("x", 60)+"{workload}\"}\n"+
		"  tools:\n    - {workload: a, overrides: {nothing: {name: something}}}\n", 10*time.Second)
	var reasons []string
	for _, c := range found {
		if c.Level == edge.LevelWarning {
			reason, _, _ := strings.Cut(c.Cause, ":")
			reasons = append(reasons, c.Class+" "+reason)
			if c.Next == "" {
				t.Errorf("no next step: %+v", c)
			}
		}
	}
	slices.Sort(reasons)
	if got := slices.Compact(slices.Clone(reasons)); !slices.Equal(got, []string{"names long", "names unused"}) || found.ExitCode() != 0 {
		t.Errorf("exit code %d, %q", found.ExitCode(), reasons)
	}
}

// Every class has an exit code of its own, apart from those of other commands.
func TestClasses(t *testing.T) {
	codes, names := map[int]bool{}, map[string]bool{}
	for _, c := range Classes() {
		if c.Code < 10 || c.Code > 99 || codes[c.Code] || names[c.Name] || c.Means == "" {
			t.Errorf("%+v", c)
		}
		codes[c.Code], names[c.Name] = true, true
		if got := (Findings{{Level: edge.LevelWarning, Class: edge.ClassClock}, {Level: edge.LevelProblem, Class: c.Name}}).ExitCode(); got != c.Code {
			t.Errorf("%s ends with %d", c.Name, got)
		}
	}
	if got := (Findings{{Level: edge.LevelProblem, Class: "?"}}).ExitCode(); got != fault {
		t.Errorf("an unknown class ends with %d", got)
	}
}

func TestClockOfThisMachine(t *testing.T) {
	d := &Doctor{Timeout: time.Second, Say: func(edge.Finding) {}}
	if c := d.clock(time.Now()); c.Level != edge.LevelOK {
		t.Errorf("%+v", c)
	}
	if c := d.step(context.Background(), "x", "a\nb\x1b[31m", func(context.Context) edge.Finding { return edge.Fine("") }); c.Subject != "a b[31m" {
		t.Errorf("subject %q", c.Subject)
	}
}

// TestNamed: what keeps the edge from starting of the files and variables that a server names is
// found one by one, and an audit log is not begun.
func TestNamed(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("empty.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	manifest := func(log, variable string) string {
		return fmt.Sprintf(`name: n
groupRef: n
incomingAuth: {type: oidc, oidc: {issuer: "https://127.0.0.1:1", audience: a, clientId: c, introspectionUrl: "https://127.0.0.1:1/i", clientSecretEnv: %s, caBundlePath: %s}}
outgoingAuth: {source: inline}
telemetry: {endpoint: "https://127.0.0.1:1", tracingEnabled: true, caCertPath: %s}
audit: {enabled: true, logFile: %s}
backends: [{name: a, url: "http://127.0.0.1:1/mcp", transport: streamable-http}]
`, variable, at("empty.pem"), at("nowhere.pem"), log)
	}
	t.Setenv("WEIR_TEST_NAMED", "x")
	for _, c := range []struct {
		log, variable string
		want          []string
	}{
		{at("new.log"), "WEIR_TEST_NAMED", []string{"files n incomingAuth: " + at("empty.pem"), "files n telemetry: open " + at("nowhere.pem")}},
		{at("none/new.log"), "WEIR_TEST_UNNAMED", []string{
			"files n incomingAuth: ", "secrets n incomingAuth: incoming: client secret: the environment variable WEIR_TEST_UNNAMED is not set",
			"files n telemetry: ", "files n audit: open " + at("none"),
		}},
		{dir, "WEIR_TEST_NAMED", []string{"files n incomingAuth: ", "files n telemetry: ", "files n audit: open " + dir}},
		{at("empty.pem/new.log"), "WEIR_TEST_NAMED", []string{"files n incomingAuth: ", "files n telemetry: ", "files n audit: "}},
	} {
		var got []string
		for _, f := range examined(t, manifest(c.log, c.variable), time.Second) {
			if (f.Step == "files" || f.Step == "secrets") && f.Level == edge.LevelProblem {
				got = append(got, f.Step+" "+f.Subject+": "+f.Cause)
			}
		}
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s %s: %s", c.log, c.variable, strings.Join(got, "\n"))
		}
	}
	if _, err := os.Stat(at("new.log")); err == nil {
		t.Error("the log was begun")
	}
}
