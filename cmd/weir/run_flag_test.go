package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/cmd/weir/local"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/workload"
)

// flagRow is what the document says of a flag of `weir run`.
type flagRow struct{ name, kind, usual string }

// flagRows are those of the document: testdata/run-flags.tsv has one a line, with its type, its
// default and its rule.
func flagRows(t *testing.T) (rows []flagRow) {
	t.Helper()
	text, err := os.ReadFile("testdata/run-flags.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(cells) != 5 || cells[0] != "run" || !strings.HasPrefix(cells[1], "--") {
			t.Fatalf("no row: %q", line)
		}
		rows = append(rows, flagRow{cells[1][2:], cells[2], cells[3]})
	}
	if len(rows) != 88 {
		t.Fatalf("%d rows, want 88", len(rows))
	}
	return rows
}

// flagCase gives a flag, and says what becomes of it.
type flagCase struct {
	words   string // of the command line; DIR is a directory with the files of flagFiles
	beside  string // without which the flag makes no sense
	kept    string // what the manifest has by the flag, and else lacks
	path    string // in the plan: Server, Door, Backend, Workload or Facts, and fields
	want    string // what stands there
	usual   string // what stands there without the flag; the default of the document
	refused string // what a flag of containers, builds and so on says: it is refused by name
}

// flagFiles are files that flags name.
var flagFiles = map[string]string{
	"env":          "FROM_FILE=1\n",
	"envs/a":       "FROM_DIR=1\n",
	"profile.json": `{"name": "mine", "network": {"outbound": {"insecure_allow_all": true}}, "read": ["/usr/share"]}`,
	"tools.json":   `{"toolsOverride": {"add": {"name": "plus"}}}`,
	"hooks.yaml":   "validating:\n- {name: gate, url: 'https://hooks.example.com/v', failure_policy: fail}\n",
	"audit.json":   `{"maxDataSize": 4096, "includeRequestData": true}`,
	"authz.json":   `{"version": "1.0", "type": "policyv1", "policy": {"policies": ["permit(principal, action, resource);"], "entities_json": "[]"}}`,
	"token":        "planted-token\n",
	"secret":       "planted-secret\n",
}

const (
	oidcFlags  = "--oidc-issuer=https://login.example.com --oidc-audience=crm"
	otelFlags  = "--otel-endpoint=https://otel.example.com:4318"
	imageName  = "example/image:1"
	remoteURL  = "https://mcp.example.com/mcp?team=a"
	tradeFlags = remoteURL + " " + oidcFlags + " --token-exchange-url=https://sts.example.com/token --token-exchange-audience=crm"
)

// flagCases are those of all flags of the document but help, by the flags' long names.
func flagCases() map[string]flagCase {
	return map[string]flagCase{
		// The workload and its door.
		"name":                {words: "--name=mine", kept: "name: mine", path: "Server.Name", want: "mine", usual: "srv"},
		"group":               {words: "--group=work", kept: "groupRef:\n    name: work", path: "Facts.Group", want: "work", usual: "default"},
		"transport":           {words: "--transport=streamable-http", kept: "transport: streamable-http", path: "Workload.Transport", want: "streamable-http", usual: "stdio"},
		"proxy-mode":          {words: "--proxy-mode=sse", kept: "proxyMode: sse", path: "Server.Older", want: "true", usual: "false"},
		"proxy-port":          {words: "--proxy-port=21000", kept: "proxyPort: 21000", path: "Door.Listen", want: "127.0.0.1:21000", usual: "127.0.0.1:8080"},
		"host":                {words: "--host=::1", kept: `proxyHost: ::1`, path: "Door.Listen", want: "[::1]:8080", usual: "127.0.0.1:8080"},
		"allowed-origins":     {words: "--allowed-origins=https://app.example.com", kept: "allowedOrigins:", path: "Door.Origins", want: "[https://app.example.com]", usual: "[]"},
		"endpoint-prefix":     {words: "--endpoint-prefix=/crm", kept: "endpointPrefix: /crm", path: "Server.Prefix", want: "/crm", usual: ""},
		"trust-proxy-headers": {words: "--trust-proxy-headers", kept: "trustProxyHeaders: true", path: "Server.Forwarded", want: "true", usual: "false"},
		"stateless":           {words: "--stateless", kept: "stateless: true", path: "Server.Stateless", want: "true", usual: "false"},
		"session-ttl":         {words: "--session-ttl=90s", kept: "sessionTTL: 1m30s", path: "Server.SessionTTL", want: "1m30s", usual: "2h0m0s"},
		"weir-ca-bundle":      {words: "--weir-ca-bundle=DIR/ca.pem", kept: "caBundle: DIR/ca.pem", path: "Server.Roots", want: "DIR/ca.pem", usual: ""},
		"debug":               {words: "--debug", kept: "debug: true", path: "Server.Debug", want: "true", usual: "false"},

		// The server.
		"target-host":        {words: "--target-host=10.1.2.3", beside: "--transport=streamable-http --target-port=9000 --isolate-network=false", kept: "targetHost: 10.1.2.3", path: "Backend.URL", want: "http://10.1.2.3:9000/mcp", usual: "http://127.0.0.1:9000/mcp"},
		"target-port":        {words: "--target-port=9000", beside: "--transport=streamable-http", kept: "mcpPort: 9000", path: "Workload.Port", want: "9000", usual: "8080"},
		"env":                {words: "--env=A=b=c", kept: "name: A\n    value: b=c", path: "Workload.Env", want: "[{Name:A Value:b=c}]", usual: "[]"},
		"env-file":           {words: "--env-file=DIR/env", kept: "- DIR/env", path: "Workload.EnvFiles", want: "[DIR/env]", usual: "[]"},
		"env-file-dir":       {words: "--env-file-dir=DIR/envs", kept: "- DIR/envs", path: "Workload.EnvFiles", want: "[DIR/envs]", usual: "[]"},
		"secret":             {words: "--secret=api,target=API_TOKEN", kept: "targetEnvName: API_TOKEN", path: "Workload.Secrets", want: "API_TOKEN", usual: "[]"},
		"label":              {words: "--label=team=a", kept: "labels:\n      team: a", path: "Server.Metadata", want: "map[team:a]", usual: "map[]"},
		"volume":             {words: "--volume=DIR:/data:ro", kept: "mountPath: /data", path: "Workload.Mounts", want: "[{Source:DIR Target:/data Writable:false}]", usual: "[]"},
		"permission-profile": {words: "--permission-profile=DIR/profile.json", kept: `"name": "mine"`, path: "Workload.Profile", want: "/usr/share", usual: "Outbound:{InsecureAllowAll:true "},
		"isolate-network":    {words: "--isolate-network=false", kept: "isolateNetwork: false", path: "Workload.Isolate", want: "false", usual: "true"},
		"network":            {words: "--network=host", kept: "network: host", path: "Workload.Network", want: "host", usual: ""},
		"ignore-globally":    {words: "--ignore-globally=false", kept: "ignoreGlobally: false", path: "Workload.IgnoreGlobally", want: "false", usual: "true"},
		"image-verification": {words: "--image-verification=enabled", beside: imageName, kept: "imageVerification: enabled", path: "Workload.Verification", want: "enabled", usual: "warn"},

		// What needs an engine.
		"publish":                 {words: "--publish=[::1]:8081:80", kept: `[::1]:8081:80`, path: "Workload.Publish", want: "[{IP:::1 Host:8081 Container:80}]", usual: "[]"},
		"allow-container-gateway": {words: "--allow-container-gateway", kept: "allowContainerGateway: true", path: "Workload.Gateway", want: "true", usual: "false"},
		"runtime-image":           {words: "--runtime-image=node:22-alpine", beside: "npx://tool@1.0.0", kept: "runtimeImage: node:22-alpine", path: "Workload.Build.RuntimeImage", want: "node:22-alpine", usual: ""},
		"runtime-add-package":     {words: "--runtime-add-package=git", beside: "npx://tool@1.0.0", kept: "runtimeAddPackages:\n    - git", path: "Workload.Build.AddPackages", want: "[git]", usual: "[]"},
		"ca-cert":                 {words: "--ca-cert=DIR/ca.pem", beside: "npx://tool@1.0.0", kept: "buildCA: DIR/ca.pem", path: "Workload.Build.CA", want: "DIR/ca.pem", usual: ""},

		// Clients.
		"tools":          {words: "--tools=add,echo", kept: "toolsFilter:\n  - add\n  - echo", path: "Server.Names", want: "add echo", usual: "Workloads:map[]"},
		"tools-override": {words: "--tools-override=DIR/tools.json", kept: "name: plus", path: "Server.Bare", want: "false", usual: "true"},
		"webhook-config": {words: "--webhook-config=DIR/hooks.yaml", kept: "https://hooks.example.com/v", path: "Server.Webhooks.Validating.0.URL", want: "https://hooks.example.com/v", usual: "<nil>"},
		"enable-audit":   {words: "--enable-audit", kept: "audit:\n    enabled: true", path: "Server.Audit.Config.Enabled", want: "true", usual: "<nil>"},
		"audit-config":   {words: "--audit-config=DIR/audit.json", beside: "--enable-audit", kept: "maxDataSize: 4096", path: "Server.Audit.Config.MaxDataSize", want: "4096", usual: "1024"},
		"authz-config":   {words: "--authz-config=DIR/authz.json", kept: "kind: MCPAuthzConfig", path: "Server.Authz.Policies", want: "permit(principal", usual: "<nil>"},

		// Telemetry.
		"otel-endpoint":     {words: otelFlags, kept: "endpoint: https://otel.example.com:4318", path: "Server.Telemetry.Endpoint", want: "https://otel.example.com:4318", usual: "<nil>"},
		"otel-service-name": {words: "--otel-service-name=crm", beside: otelFlags, kept: "serviceName: crm", path: "Server.Telemetry.Service", want: "crm", usual: "weir-srv"},
		"otel-headers":      {words: "--otel-headers=X-Tenant=a", beside: otelFlags, kept: "X-Tenant: a", path: "Server.Telemetry.Headers", want: "map[X-Tenant:a]", usual: "map[]"},
		"otel-insecure":     {words: "--otel-insecure", beside: "--otel-endpoint=otel.example.com:4318", kept: "insecure: true", path: "Server.Telemetry.Insecure", want: "true", usual: "false"},
		"otel-tracing-enabled": {words: "--otel-tracing-enabled=false", beside: otelFlags, kept: `tracing:
      samplingRate: "0.1"`, path: "Server.Telemetry.Traces", want: "false", usual: "true"},
		"otel-metrics-enabled":                {words: "--otel-metrics-enabled=false", beside: otelFlags, kept: "metrics: {}", path: "Server.Telemetry.Metrics", want: "false", usual: "true"},
		"otel-sampling-rate":                  {words: "--otel-sampling-rate=0.75", beside: otelFlags, kept: `samplingRate: "0.75"`, path: "Server.Telemetry.Sampling", want: "0.75", usual: "0.1"},
		"otel-custom-attributes":              {words: "--otel-custom-attributes=team=a,stage=b", beside: otelFlags, kept: "team: a", path: "Server.Telemetry.Attributes", want: "map[stage:b team:a]", usual: "map[]"},
		"otel-env-vars":                       {words: "--otel-env-vars=STAGE,TEAM", beside: otelFlags, kept: "- STAGE", path: "Server.Telemetry.Environment", want: "[STAGE TEAM]", usual: "[]"},
		"otel-enable-prometheus-metrics-path": {words: "--otel-enable-prometheus-metrics-path", kept: "prometheus:\n    enabled: true", path: "Server.Telemetry.Prometheus", want: "true", usual: "<nil>"},
		"otel-use-legacy-attributes":          {words: "--otel-use-legacy-attributes=false", beside: otelFlags, kept: "useLegacyAttributes: false", path: "Server.Telemetry.Legacy", want: "false", usual: "true"},

		// Who clients are.
		"oidc-issuer":              {words: "--oidc-issuer=https://login.example.com", beside: "--oidc-audience=crm", kept: "issuer: https://login.example.com", path: "Server.Incoming.Issuer", want: "https://login.example.com"},
		"oidc-audience":            {words: "--oidc-audience=crm", beside: "--oidc-issuer=https://login.example.com", kept: "audience: crm", path: "Server.Incoming.Audience", want: "crm"},
		"oidc-client-id":           {words: "--oidc-client-id=weir", beside: oidcFlags, kept: "clientId: weir", path: "Server.Incoming.ClientID", want: "weir", usual: ""},
		"oidc-client-secret":       {words: "--oidc-client-secret=planted-secret", beside: oidcFlags + " --oidc-client-id=weir --oidc-introspection-url=https://login.example.com/i", kept: "key: oidc-client-secret", path: "Server.Incoming.ClientSecret", want: "oidc-client-secret", usual: "<nil>"},
		"oidc-introspection-url":   {words: "--oidc-introspection-url=https://login.example.com/i", beside: oidcFlags + " --oidc-client-id=weir", kept: "introspectionUrl: https://login.example.com/i", path: "Server.Incoming.IntrospectionURL", want: "https://login.example.com/i", usual: ""},
		"oidc-jwks-url":            {words: "--oidc-jwks-url=https://login.example.com/keys", beside: oidcFlags, kept: "jwksUrl: https://login.example.com/keys", path: "Server.Incoming.JWKSURL", want: "https://login.example.com/keys", usual: ""},
		"oidc-scopes":              {words: "--oidc-scopes=crm,mail", beside: oidcFlags, kept: "- crm\n    - mail", path: "Server.Incoming.Scopes", want: "[crm mail]", usual: "[openid]"},
		"oidc-insecure-allow-http": {words: "--oidc-insecure-allow-http", beside: oidcFlags, kept: "insecureAllowHTTP: true", path: "Server.Incoming.AllowHTTP", want: "true", usual: "false"},
		"jwks-allow-private-ip":    {words: "--jwks-allow-private-ip", beside: oidcFlags, kept: "jwksAllowPrivateIP: true", path: "Server.Incoming.AllowPrivate", want: "true", usual: "false"},
		"jwks-auth-token-file":     {words: "--jwks-auth-token-file=DIR/token", beside: oidcFlags, kept: "jwksAuthTokenPath: DIR/token", path: "Server.Incoming.TokenFile", want: "DIR/token", usual: ""},
		"resource-url":             {words: "--resource-url=https://crm.example.com/mcp", beside: oidcFlags, kept: "resourceUrl: https://crm.example.com/mcp", path: "Server.Incoming.Resource", want: "https://crm.example.com/mcp", usual: ""},

		// A server at a URL.
		"remote-auth":                    {words: "--remote-auth", beside: remoteURL, kept: "remoteAuth:\n      callbackPort: 8666\n      timeout: 30s", path: "Backend.Login.CallbackPort", want: "8666", usual: "<nil>"},
		"remote-auth-issuer":             {words: "--remote-auth-issuer=https://login.example.com", beside: remoteURL + " --remote-auth", kept: "issuer: https://login.example.com", path: "Backend.Login.Issuer", want: "https://login.example.com", usual: ""},
		"remote-auth-authorize-url":      {words: "--remote-auth-authorize-url=https://login.example.com/a --remote-auth-token-url=https://login.example.com/t", beside: remoteURL + " --remote-auth", kept: "authorizeUrl: https://login.example.com/a", path: "Backend.Login.AuthorizeURL", want: "https://login.example.com/a", usual: ""},
		"remote-auth-token-url":          {words: "--remote-auth-authorize-url=https://login.example.com/a --remote-auth-token-url=https://login.example.com/t", beside: remoteURL + " --remote-auth", kept: "tokenUrl: https://login.example.com/t", path: "Backend.Login.TokenURL", want: "https://login.example.com/t", usual: ""},
		"remote-auth-client-id":          {words: "--remote-auth-client-id=weir", beside: remoteURL + " --remote-auth", kept: "clientId: weir", path: "Backend.Login.ClientID", want: "weir", usual: ""},
		"remote-auth-client-secret":      {words: "--remote-auth-client-secret=planted-secret", beside: remoteURL + " --remote-auth-client-id=weir", kept: "key: remote-auth-client-secret", path: "Backend.Login.ClientSecretRef", want: "remote-auth-client-secret", usual: "<nil>"},
		"remote-auth-client-secret-file": {words: "--remote-auth-client-secret-file=DIR/secret", beside: remoteURL + " --remote-auth-client-id=weir", kept: "clientSecretPath: DIR/secret", path: "Backend.Login.ClientSecretPath", want: "DIR/secret", usual: ""},
		"remote-auth-scopes":             {words: "--remote-auth-scopes=mail,crm", beside: remoteURL + " --remote-auth-issuer=https://login.example.com", kept: "- mail\n      - crm", path: "Backend.Login.Scopes", want: "[mail crm]", usual: "[openid profile email]"},
		"remote-auth-scope-param-name":   {words: "--remote-auth-scope-param-name=scp", beside: remoteURL + " --remote-auth", kept: "scopeParamName: scp", path: "Backend.Login.ScopeParamName", want: "scp", usual: "scope"},
		"remote-auth-resource":           {words: "--remote-auth-resource=https://crm.example.com", beside: remoteURL + " --remote-auth", kept: "resource: https://crm.example.com", path: "Backend.Login.Resource", want: "https://crm.example.com", usual: ""},
		"remote-auth-callback-port":      {words: "--remote-auth-callback-port=8777", beside: remoteURL + " --remote-auth", kept: "callbackPort: 8777", path: "Backend.Login.CallbackPort", want: "8777", usual: "8666"},
		"remote-auth-skip-browser":       {words: "--remote-auth-skip-browser", beside: remoteURL + " --remote-auth", kept: "skipBrowser: true", path: "Backend.Login.SkipBrowser", want: "true", usual: "false"},
		"remote-auth-timeout":            {words: "--remote-auth-timeout=1m", beside: remoteURL + " --remote-auth", kept: "timeout: 1m", path: "Backend.Login.Timeout", want: "1m", usual: "30s"},
		"remote-auth-bearer-token":       {words: "--remote-auth-bearer-token=planted-token", beside: remoteURL, kept: "type: bearerToken", path: "Backend.Outgoing.Kind.BearerToken.TokenSecretRef", want: "bearer-token", usual: "<nil>"},
		"remote-auth-bearer-token-file":  {words: "--remote-auth-bearer-token-file=DIR/token", beside: remoteURL, kept: "bearerTokenPath: DIR/token", path: "Backend.Login.BearerTokenPath", want: "DIR/token", usual: "<nil>"},
		"remote-forward-headers":         {words: "--remote-forward-headers=X-Team=a", beside: remoteURL, kept: "X-Team: a", path: "Backend.Outgoing.Forward.AddPlaintextHeaders", want: "map[X-Team:a]", usual: "<nil>"},
		"remote-forward-headers-secret":  {words: "--remote-forward-headers-secret=X-Key=api", beside: remoteURL, kept: "headerName: X-Key", path: "Backend.Outgoing.Forward.AddHeadersFromSecret", want: "X-Key", usual: "<nil>"},

		// Token exchange.
		"token-exchange-url":                {words: "--token-exchange-url=https://sts.example.com/token --token-exchange-audience=crm", beside: remoteURL + " " + oidcFlags, kept: "tokenUrl: https://sts.example.com/token", path: "Backend.Outgoing.Kind.TokenExchange.TokenURL", want: "https://sts.example.com/token", usual: "<nil>"},
		"token-exchange-audience":           {words: "--token-exchange-audience=mail", beside: remoteURL + " " + oidcFlags + " --token-exchange-url=https://sts.example.com/token", kept: "audience: mail", path: "Backend.Outgoing.Kind.TokenExchange.Audience", want: "mail"},
		"token-exchange-client-id":          {words: "--token-exchange-client-id=weir", beside: tradeFlags, kept: "clientId: weir", path: "Backend.Outgoing.Kind.TokenExchange.ClientID", want: "weir", usual: ""},
		"token-exchange-client-secret":      {words: "--token-exchange-client-secret=planted-secret", beside: tradeFlags + " --token-exchange-client-id=weir", kept: "key: token-exchange-client-secret", path: "Backend.Outgoing.Kind.TokenExchange.ClientSecretRef", want: "token-exchange-client-secret", usual: "<nil>"},
		"token-exchange-client-secret-file": {words: "--token-exchange-client-secret-file=DIR/secret", beside: tradeFlags + " --token-exchange-client-id=weir", kept: "key: token-exchange-client-secret", path: "Backend.Outgoing.Kind.TokenExchange.ClientSecretRef", want: "token-exchange-client-secret", usual: "<nil>"},
		"token-exchange-scopes":             {words: "--token-exchange-scopes=mail,crm", beside: tradeFlags, kept: "- mail\n    - crm", path: "Backend.Outgoing.Kind.TokenExchange.Scopes", want: "[mail crm]", usual: "[]"},
		"token-exchange-subject-token-type": {words: "--token-exchange-subject-token-type=id_token", beside: tradeFlags, kept: "subjectTokenType: id_token", path: "Backend.Outgoing.Kind.TokenExchange.SubjectTokenType", want: "id_token", usual: "access_token"},
		"token-exchange-header-name":        {words: "--token-exchange-header-name=X-Upstream", beside: tradeFlags, kept: "externalTokenHeaderName: X-Upstream", path: "Backend.Outgoing.Kind.TokenExchange.ExternalTokenHeaderName", want: "X-Upstream", usual: ""},
	}
}

// inPlan is what stands in the plan of a manifest at a path, as text; <nil> where nothing is on the way to it.
func inPlan(t *testing.T, manifest []byte, path string) string {
	t.Helper()
	p, _, err := workload.Check(manifest)
	if err != nil {
		t.Fatal(err)
	}
	facts, err := new(local.Doors).Read(manifest)
	if err != nil {
		t.Fatal(err)
	}
	facts.Group = cmp.Or(facts.Group, workload.DefaultGroup)
	whole := struct {
		Server   compile.Server
		Door     compile.Door
		Backend  compile.Backend
		Workload *compile.Workload
		Facts    *workload.Facts
	}{p.Servers[0], p.Doors[0], p.Servers[0].Backends[0], p.Servers[0].Backends[0].Workload, facts}
	v := reflect.ValueOf(whole)
	for part := range strings.SplitSeq(path, ".") {
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return "<nil>"
			}
			v = v.Elem()
		}
		if v.Kind() == reflect.Slice {
			v = v.Index(0)
			continue
		}
		if v = v.FieldByName(part); !v.IsValid() {
			t.Fatalf("the plan has no %s", path)
		}
	}
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	return fmt.Sprintf("%+v", v)
}

// flagHome is a directory with what flags name.
func flagHome(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range flagFiles {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// dryRun is what `weir run --dry-run` says of a command line, whose server is a program of
// this machine where it names no URL, and nothing to build.
func dryRun(t *testing.T, words string) (manifest []byte, said string, code int) {
	t.Helper()
	a, out, errs := asking(t, newFakeManager())
	args := append([]string{"run", "--dry-run"}, strings.Fields(words)...)
	if !strings.Contains(" "+words, " https://") && !strings.Contains(" "+words, " npx://") {
		args = append(args, "--", idleProgram(t, "srv"))
	}
	code = a.run(args)
	return bytes.Clone(out.Bytes()), errs.String(), code
}

// What --dry-run says of the steps is comments of the manifest, whatever the words of a command
// hold: what it prints is a file of --from-config with one workload and nothing else.
func TestDryRunIsOneManifest(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", "\u2028", "\u0085"} {
		a, out, said := asking(t, newFakeManager())
		word := strings.ReplaceAll("x|---|kind: MCPServer|metadata: {name: planted}", "|", end)
		if code := a.run([]string{"run", "--dry-run", "--", idleProgram(t, "srv"), word}); code != 0 {
			t.Fatalf("%q: exit code %d, %s", end, code, said)
		}
		file := filepath.Join(t.TempDir(), "srv.yaml")
		if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(out.String(), "apiVersion:")
		for line := range strings.Lines(head) {
			if !strings.HasPrefix(line, "# ") {
				t.Errorf("%q: %q is no comment", end, line)
			}
		}
		manifest := out.String()[len(head):]
		a, out, said = asking(t, newFakeManager())
		if code := a.run([]string{"run", "--dry-run", "--from-config", file}); code != 0 || !strings.HasSuffix(out.String(), manifest) {
			t.Errorf("%q: read again: exit code %d, %s\n%s\nwas\n%s", end, code, said, out, manifest)
		}
	}
}

// TestDefaultsOfRun has the sandbox and the base of the user's defaults where no flag says otherwise,
// for what has one alone, and refuses a default that there is none of.
func TestDefaultsOfRun(t *testing.T) {
	home, program := t.TempDir(), idleProgram(t, "srv")
	file := filepath.Join(home, "config", "workloads.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text, words string
		want        string // that is printed
		code        int
	}{
		{"sandbox: off\n", "-- " + program, "sandbox: \"off\"", 0},
		{"sandbox: off\n", "--sandbox landlock -- " + program, "sandbox: landlock", 0},
		{"sandbox: off\n", "https://mcp.example.com/mcp", "kind: MCPRemoteProxy", 0},
		{"sandbox: open\n", "-- " + program, `workloads.yaml: sandbox: "open": write auto, bwrap, landlock or off`, 2},
		{"runtimeImages: {npx: \"node:22-slim\"}\n", "npx://a-server", "runtimeImage: node:22-slim", 0},
		{"runtimeImages: {npx: \"node:22-slim\"}\n", "--runtime-image node:26 npx://a-server", "runtimeImage: node:26", 0},
		{"runtimeImages: {npx: \"node:22-slim\"}\n", "uvx://a-server", "image: uvx://a-server", 0},
		{"runtimeImages: {deno: x}\n", "npx://a-server", "workloads.yaml: runtimeImages: deno: write npx, uvx or go", 2},
		{"ports: 30000\n", "npx://a-server", "workloads.yaml: ports: write FIRST-LAST, such as 30000-30999, within 1-65535", 2},
		{"sandboxes: off\n", "-- " + program, "workloads.yaml: sandboxes: there is no such default: did you mean sandbox?", 2},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if said, code := inHome(append([]string{"run", "--dry-run"}, strings.Fields(c.words)...), home); code != c.code || !strings.Contains(said, c.want) {
			t.Errorf("%q, %s: %d %s", c.text, c.words, code, said)
		}
	}
}

// idleProgram is a program of this machine of a name, that does nothing.
func idleProgram(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRunFlag: each flag of the document has an effect, which is there in the manifest and in
// what it compiles to, and there again after an export and an import; or it is refused by
// name. Each has its default.
func TestRunFlag(t *testing.T) {
	cases := flagCases()
	apart := map[string]func(*testing.T){ // what is no part of a manifest
		"help": runFlagHelp, "foreground": runFlagForeground, "from-config": runFlagFromConfig,
		"print-resolved-overlays": runFlagPrintResolvedOverlays,
	}
	flags := testApp().runCommand().Flags()
	for _, row := range flagRows(t) {
		t.Run(row.name, func(t *testing.T) {
			if row.name != "help" {
				f := flags.Lookup(row.name)
				if f == nil {
					t.Fatal("there is no such flag")
				}
				flagIsAsWritten(t, f, row)
			}
			if own := apart[row.name]; own != nil {
				own(t)
				return
			}
			c, ok := cases[row.name]
			if !ok {
				t.Fatal("the flag has no test")
			}
			c.check(t, row.name)
		})
	}
}

// flagIsAsWritten compares a flag with its row: its type and its default.
func flagIsAsWritten(t *testing.T, f *pflag.Flag, row flagRow) {
	t.Helper()
	kinds := map[string]string{"string": "string", "stringArray": "stringArray", "strings": "stringArray", "int": "int", "float": "float64", "bool": "bool", "duration": "duration"}
	zeros := map[string]string{"string": "", "stringArray": "[]", "strings": "[]", "int": "0", "float": "0", "bool": "false", "duration": "0s"}
	usual := strings.Trim(row.usual, "`")
	switch row.name {
	case "name", "session-ttl", "permission-profile", "otel-service-name", "token-exchange-header-name":
		usual = zeros[row.kind] // that it is derived of something
	case "remote-auth-scopes":
		usual = "openid,profile,email"
	}
	if usual == "none" {
		usual = zeros[row.kind]
	}
	if row.kind == "strings" && usual != "[]" {
		usual = "[" + usual + "]"
	}
	if f.DefValue != usual || f.Value.Type() != kinds[row.kind] {
		t.Errorf("a %s of %q, want a %s of %q", f.Value.Type(), f.DefValue, kinds[row.kind], usual)
	}
}

// check gives the flag, and looks at what became of it.
func (c *flagCase) check(t *testing.T, name string) {
	dir := flagHome(t)
	full := func(text string) string { return strings.ReplaceAll(text, "DIR", dir) }

	// 1. Refused by name, before anything starts.
	given, said, code := dryRun(t, full(c.beside+" "+c.words))
	if c.refused != "" {
		if code == 0 || !strings.Contains(said, "--"+name) || !strings.Contains(said, c.refused) || len(given) > 0 {
			t.Errorf("exit code %d, %s", code, said)
		}
		return
	}
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	if strings.Contains(string(given)+said, "planted") {
		t.Errorf("a secret is shown:\n%s\n%s", given, said)
	}

	// 2. In the manifest and in the plan, and not without it.
	c.there(t, full, given)
	if bare, _, code := dryRun(t, full(c.beside)); code == 0 {
		if strings.Contains(string(bare), full(c.kept)) {
			t.Errorf("%q stands there without the flag, too:\n%s", c.kept, bare)
		}
		if has := inPlan(t, bare, c.path); has == full(c.want) || c.usual != has && (c.usual == "" || !strings.Contains(has, c.usual)) {
			t.Errorf("without the flag %s is %s, want %q", c.path, has, c.usual)
		}
	} else if c.usual != "" {
		t.Error("nothing runs without the flag")
	}

	// 3. Once more after an export and an import, which gives the same bytes.
	exported, _, err := workload.Export(given, workload.FormatWeir, workload.ExportOptions{WithValues: true})
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := workload.Import("exported.yaml", exported)
	if err != nil {
		t.Fatal(err)
	}
	c.there(t, full, again)
	if twice, _, err := workload.Export(again, workload.FormatWeir, workload.ExportOptions{WithValues: true}); err != nil || !bytes.Equal(twice, exported) {
		t.Errorf("%v\n%s\nwas\n%s", err, twice, exported)
	}
}

// there looks for the flag in a manifest, and in what it compiles to.
func (c *flagCase) there(t *testing.T, full func(string) string, manifest []byte) {
	t.Helper()
	if !strings.Contains(string(manifest), full(c.kept)) {
		t.Errorf("there is no %q in\n%s", full(c.kept), manifest)
	}
	if has := inPlan(t, manifest, c.path); !strings.Contains(has, full(c.want)) {
		t.Errorf("%s is %s, want %s", c.path, has, full(c.want))
	}
}

// runFlagHelp: the help has each flag, under a theme.
func runFlagHelp(t *testing.T) {
	a, out, _ := asking(t, nil)
	if code := a.run([]string{"run", "--help"}); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, row := range flagRows(t) {
		if !strings.Contains(out.String(), "--"+row.name) {
			t.Errorf("there is no --%s", row.name)
		}
	}
	at := 0
	for _, theme := range []string{"This run", "General", "Door", "Server", "Sandbox", "Clients", "Login of clients", "Remote server", "Token exchange", "Telemetry"} {
		i := strings.Index(out.String()[at:], "\n"+theme+":\n")
		if i < 0 {
			t.Fatalf("there is no theme %s after the one before", theme)
		}
		at += i
	}
}

// runFlagFromConfig: what was exported is the same when it is run again, with no flag but
// those of the run itself.
func runFlagFromConfig(t *testing.T) {
	given, _, code := dryRun(t, "--env=A=b --session-ttl=90s --group=work")
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	exported, _, err := workload.Export(given, workload.FormatWeir, workload.ExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "srv.yaml")
	if err := os.WriteFile(file, exported, 0o600); err != nil {
		t.Fatal(err)
	}
	a, out, said := asking(t, newFakeManager())
	if code := a.run([]string{"run", "--from-config", file, "--dry-run", "--wait", "5s"}); code != 0 || !strings.HasSuffix(out.String(), string(exported)) {
		t.Errorf("exit code %d, %s\n%s\nwant\n%s", code, said, out, exported)
	}
	for _, beside := range []string{"--name=a", "--env=A=b", "--proxy-port=1"} {
		flag, _, _ := strings.Cut(beside, "=")
		a, _, said := asking(t, newFakeManager())
		if code := a.run([]string{"run", "--from-config", file, "--dry-run", beside}); code != 2 || !strings.Contains(said.String(), flag) {
			t.Errorf("%s: exit code %d, %s", beside, code, said)
		}
	}
	for _, with := range [][]string{{"--from-config", ""}, {"--from-config", "", "--", "/bin/true"}} {
		a, _, said := asking(t, newFakeManager())
		if code := a.run(append([]string{"run", "--dry-run"}, with...)); code != 2 || !strings.Contains(said.String(), "--from-config") {
			t.Errorf("%q: exit code %d, %s", with, code, said)
		}
	}
	a, _, said = asking(t, newFakeManager())
	if code := a.run([]string{"run", "--from-config", file, "--dry-run", remoteURL}); code != 2 {
		t.Errorf("a server beside it: exit code %d, %s", code, said)
	}
}

// runFlagForeground: the workload is there as long as the command, and gone after it. The
// command ends as the server did.
func runFlagForeground(t *testing.T) {
	h := newHousehold(t)
	small, err := exec.LookPath("small-server")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "weir", "run", "-f", "--name", "front", "--", small, "one")
	var said lockedBuffer
	cmd.Env, cmd.Dir, cmd.Stderr = h.env, h.home, &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }() // where it did not end
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	h.asks(strings.TrimSpace(url), "one")
	if out, _, code := h.weir("list", "-a"); code != 0 || !strings.Contains(out, "front") {
		t.Errorf("list: exit code %d, %s", code, out)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after an interrupt: %v, %s", err, said.String())
	}
	if out, _, code := h.weir("list", "-a"); code != 0 || strings.Contains(out, "front") {
		t.Errorf("list: exit code %d, %s", code, out)
	}
	if left, err := filepath.Glob(filepath.Join(h.home, "weir", "*", "workloads", "*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	h.fails(44, "exit 1", "run", "-f", "--wait", "20s", "--", "/bin/false")

	// A server that has not introduced itself was not run.
	begun := filepath.Join(t.TempDir(), "begun")
	cmd = exec.CommandContext(t.Context(), "weir", "run", "-f", "--sandbox", "off", "--", "/bin/sh", "-c", "echo > "+begun+"; exec sleep 60")
	var told lockedBuffer
	cmd.Env, cmd.Dir, cmd.Stderr = h.env, h.home, &told
	ended := make(chan error, 1)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- cmd.Wait() }()
	edgetest.Until(t, "the start of the server", func() bool {
		_, err := os.Stat(begun)
		return err == nil
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if <-ended; cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("interrupted before the server was there: %s", cmd.ProcessState)
	}
	if !strings.Contains(told.String(), "weir run: note: sh: sandbox none (--sandbox off): nothing is held") {
		t.Errorf("what is not held is not told: %s", told.String())
	}
}
