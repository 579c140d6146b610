package workload

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// runConfigs are the ten RunConfigs of testdata, by name.
func runConfigs(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("testdata/runconfig/*.json")
	if err != nil || len(paths) != 10 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	all := map[string][]byte{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".json")] = text
	}
	return all
}

// noted are notes as text.
func noted(notes []Note) string {
	var all []string
	for _, n := range notes {
		all = append(all, n.Text)
	}
	return strings.Join(all, "\n")
}

// RunConfigs of the reference are read, of every transport. Those of servers at a URL can be
// served at once, and those of images where they want nothing that is not there yet.
func TestImportRunConfigs(t *testing.T) {
	for name, want := range map[string]struct {
		has  []string // of the manifest
		said string   // that it is refused for; "" for nothing
	}{
		"stdio-image":      {[]string{"image: ghcr.io/example/fetch:1.2.0", "transport: stdio", "proxyPort: 21001", "name: LOG_LEVEL", "type: builtin"}, ""},
		"stdio-sse-proxy":  {[]string{"proxyMode: sse", "hostPath: /srv/repo", "mountPath: /repo", "readOnly: true", "targetEnvName: GIT_TOKEN", "kind: ConfigMap", "git.internal", "isolateNetwork: true", "name: weir-secrets"}, ""},
		"streamable-image": {[]string{"transport: streamable-http", "mcpPort: 8080", "9090:9090", "stateless: true", "sessionTTL: 1h", "groupRef", "name: none"}, ""},
		"sse-image":        {[]string{"transport: sse", "endpointPrefix: /weather", "trustProxyHeaders: true", "isolateNetwork: false"}, ""},
		"npx-built":        {[]string{"image: npx-server-everything:20261101120000"}, ""},
		"remote-plain":     {[]string{"kind: MCPRemoteProxy", "remoteUrl: https://mcp.example.com/v1/mcp?team=a", "proxyPort: 21006", "sessionTTL: 2h"}, ""},
		"remote-bearer":    {[]string{"transport: sse", "type: bearerToken", "key: API_TOKEN", "X-Team: a", "headerName: X-Key", "key: API_KEY"}, ""},
		"remote-exchange":  {[]string{"type: tokenExchange", "audience: crm", "externalTokenHeaderName: X-Upstream-Token", "key: EXCHANGE", "- crm"}, ""},
		"policies":         {[]string{"proxyHost: 0.0.0.0", "allowedOrigins", "type: cedarv1", "key: OIDC_SECRET", "toolsFilter", "name: find", "maxDataSize: 2048", "debug: true", "resourceUrl: https://tools.example.com/mcp"}, ""},
		"telemetry":        {[]string{"samplingRate: \"0.1\"", "serviceName: docs", "X-Tenant: a", "key: OTLP_TOKEN", "- DEPLOYMENT", "team: a", "prometheus"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			manifest, _, err := Import(name+".json", runConfigs(t)[name])
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range want.has {
				if want, no := strings.CutSuffix(text, "isolateNetwork: true"); no && want == "" {
					if strings.Contains(string(manifest), text) { // it is the default there
						t.Errorf("there is %q in\n%s", text, manifest)
					}
				} else if !strings.Contains(string(manifest), text) {
					t.Errorf("there is no %q in\n%s", text, manifest)
				}
			}
			if strings.Contains(string(manifest), "MCP_TRANSPORT") || strings.Contains(string(manifest), "toolhive") {
				t.Errorf("what the reference sets itself is there:\n%s", manifest)
			}
			plan, _, err := Check(manifest)
			if want.said == "" {
				if err != nil || len(plan.Servers) != 1 || len(plan.Doors) != 1 {
					t.Errorf("plan %v, %v", plan != nil, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), want.said) {
				t.Errorf("%v; want %q", err, want.said)
			}
		})
	}
}

// What is written as a RunConfig is read as what it was made of.
func TestRunConfigRoundTrip(t *testing.T) {
	for name, text := range runConfigs(t) {
		manifest, _, err := Import(name+".json", text)
		if err != nil {
			t.Fatal(err)
		}
		written, notes, err := Export(manifest, FormatRunConfig, ExportOptions{WithValues: true})
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := Import(name+".json", written)
		if err != nil || string(again) != string(manifest) {
			t.Errorf("%s: %v\n%s\nwas\n%s\nas\n%s", name, err, again, manifest, written)
		}
		if noted(notes) != "" && !strings.Contains(noted(notes), "another machine needs") {
			t.Errorf("%s: %s", name, noted(notes))
		}
		if again, _, err := Export(again, FormatRunConfig, ExportOptions{WithValues: true}); err != nil || string(again) != string(written) {
			t.Errorf("%s: %v\n%s\nwas\n%s", name, err, again, written)
		}
	}
}

// Files of credentials are named, not read: whoever sends what they hold reads them again.
func TestImportCredentialFiles(t *testing.T) {
	type m = map[string]any
	for want, section := range map[string]m{
		"bearerTokenPath: /run/token":   {"bearer_token_file": "/run/token"},
		"clientSecretPath: /run/secret": {"client_id": "weir", "client_secret_file": "/run/secret"},
	} {
		manifest, _, err := Import("run.json", changed(t, "remote_auth_config", section))
		if err != nil || !strings.Contains(string(manifest), want) {
			t.Fatalf("%v: there is no %q in\n%s", err, want, manifest)
		}
		if _, _, err := Check(manifest); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		written, _, err := Export(manifest, FormatRunConfig, ExportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if again, _, err := Import("run.json", written); err != nil || string(again) != string(manifest) {
			t.Errorf("%v\n%s\nwas\n%s\nas\n%s", err, again, manifest, written)
		}
		_, path, _ := strings.Cut(want, ": ")
		if _, notes, err := Export(manifest, FormatWeir, ExportOptions{}); err != nil || !strings.Contains(noted(notes), "another machine needs "+path) {
			t.Errorf("%v: %s", err, noted(notes))
		}
	}
}

// The authorities of a collector are those of the workload, which has one file of them.
func TestImportTelemetryAuthorities(t *testing.T) {
	section := map[string]any{"endpoint": "https://otel.example.com:4318", "caCertPath": "/run/ca.pem"}
	text := changed(t, "telemetry_config", section)
	if manifest, _, err := Import("run.json", text); err != nil || !strings.Contains(string(manifest), "caBundle: /run/ca.pem") {
		t.Errorf("%v\n%s", err, manifest)
	}
	both := strings.Replace(string(text), "{", `{"thv_ca_bundle":"/run/other.pem",`, 1)
	if _, _, err := Import("run.json", []byte(both)); err == nil || !strings.Contains(err.Error(), "telemetry_config.caCertPath: and /run/other.pem differ") {
		t.Error(err)
	}
}

// What has no place in a workload is left out with a word, and a share of traces that nobody gave
// stays the usual one.
func TestImportSaysWhatIsLeftOut(t *testing.T) {
	type m = map[string]any
	for _, c := range []struct {
		key   string
		value any
		said  string
	}{
		{"cmd_args", []string{"a"}, "cmd_args: left out"},
		{"env_vars", m{"A": "b"}, "env_vars: left out"},
		{"env_vars", m{"MCP_PORT": "80"}, ""}, // the reference's own
		{"env_file_dir", "/env", "env_file_dir: left out"},
		{"secrets", []string{"a,target=A"}, "secrets: left out"},
		{"volumes", []string{"/a:/a"}, "volumes: left out"},
		{"publish", []string{"80:80"}, "publish: left out"},
		{"target_port", 80, "target_port: left out"},
		{"telemetry_config", m{"endpoint": "a:4318", "serviceVersion": "1.2"}, "telemetry_config.serviceVersion: left out"},
		{"telemetry_config", m{"endpoint": "a:4318"}, ""},
	} {
		if _, notes, err := Import("run.json", changed(t, c.key, c.value)); err != nil || noted(notes) != "" != (c.said != "") || !strings.Contains(noted(notes), c.said) {
			t.Errorf("%s: %v, %q", c.key, err, noted(notes))
		}
	}
	const image = `{"schema_version":"v0.1.0","name":"cat","image":"a.example/b:1","transport":"sse","header_forward":{"add_plaintext_headers":{"X-Team":"a"}}}`
	if _, notes, err := Import("run.json", []byte(image)); err != nil || !strings.Contains(noted(notes), "header_forward: left out") {
		t.Errorf("%v, %q", err, noted(notes))
	}

	for rate, section := range map[string]m{
		"":      {"endpoint": "a:4318", "tracingEnabled": true, "customAttributes": m{"team": "a,b=c"}},
		`"0.5"`: {"endpoint": "a:4318", "tracingEnabled": true, "samplingRate": "0.5", "customAttributes": m{"team": "a,b=c"}},
	} {
		manifest, _, err := Import("run.json", changed(t, "telemetry_config", section))
		if err != nil || !strings.Contains(string(manifest), "team: a,b=c\n") || strings.Contains(string(manifest), "samplingRate: "+rate) != (rate != "") {
			t.Errorf("%v\n%s", err, manifest)
		}
		if _, _, err := Check(manifest); err != nil {
			t.Error(err)
		}
		written, _, err := Export(manifest, FormatRunConfig, ExportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if again, _, err := Import("run.json", written); err != nil || string(again) != string(manifest) {
			t.Errorf("%v\n%s\nwas\n%s", err, again, manifest)
		}
	}
}

// What a manifest says and a RunConfig has no key for is said.
func TestExportSaysWhatIsLost(t *testing.T) {
	const authorities = "caBundleRef: {configMapRef: {name: ca, key: a}}"
	manifest := "apiVersion: weir.dev/v1beta1\nkind: MCPRemoteProxy\nmetadata: {name: crm}\nspec: {remoteUrl: 'https://mcp.example.com/mcp', transport: sse, allowPrivateEndpoint: true, oidcConfigRef: {name: company, audience: a}, telemetryConfigRef: {name: all}}\n" +
		"---\napiVersion: weir.dev/v1beta1\nkind: MCPOIDCConfig\nmetadata: {name: company}\nspec: {type: inline, inline: {issuer: 'https://login.example.com', " + authorities + "}}\n" +
		"---\napiVersion: weir.dev/v1beta1\nkind: MCPTelemetryConfig\nmetadata: {name: all}\nspec: {openTelemetry: {enabled: true, endpoint: 'a:4318', " + authorities + "}}\n"
	_, notes, err := Export([]byte(manifest), FormatRunConfig, ExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"spec.allowPrivateEndpoint", "the caBundleRef of MCPOIDCConfig/company", "the caBundleRef of MCPTelemetryConfig/all"} {
		if !strings.Contains(noted(notes), "no key for "+want) {
			t.Errorf("there is no %q in %q", want, noted(notes))
		}
	}
	private := strings.ReplaceAll(manifest, "mcp.example.com", "10.0.0.1")
	if _, notes, err := Export([]byte(private), FormatRunConfig, ExportOptions{}); err != nil || strings.Contains(noted(notes), "allowPrivateEndpoint") {
		t.Errorf("%v, %s", err, noted(notes))
	}
}

// changed is a RunConfig with a key changed.
func changed(t *testing.T, key string, value any) []byte {
	t.Helper()
	var c map[string]any
	if err := json.Unmarshal(runConfigs(t)["remote-plain"], &c); err != nil {
		t.Fatal(err)
	}
	c[key] = value
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Hostile and mistaken files are errors with the path of what is wrong, and no secret in them
// (V39).
func TestV39(t *testing.T) {
	type m = map[string]any
	for _, c := range []struct {
		key   string
		value any
		said  string
	}{
		{"imagee", "a", "imagee: unknown field"},
		{"schema_version", "v0.2.0", `schema_version: "v0.2.0" is not known`},
		{"schema_version", nil, "schema_version: required"},
		{"port", "80", "port: want a whole number"},
		{"port", 70000, "port: 70000 is no port"},
		{"target_port", -5, "target_port: -5 is no port"},
		{"proxy_mode", "http", `proxy_mode: "http" is neither`},
		{"transport", "inspector", "transport:"},
		{"transport", "stdio", "a server at a URL does not speak stdio"},
		{"name", "", "name: required"},
		{"remote_url", "https://u:s3cr3t@a.example", "remote_url: the URL holds a user"},
		{"session_ttl", -1, "session_ttl: it is negative"},
		{"volumes", []string{"../../etc:/etc"}, "volumes[0]"},
		{"volumes", []string{"/srv/../etc:/etc"}, "volumes[0]"},
		{"volumes", []string{"/etc:../etc"}, "volumes[0]"},
		{"thv_ca_bundle", "../ca.pem", "thv_ca_bundle"},
		{"env_file_dir", "env/../../x", "env_file_dir"},
		{"authz_config_path", "policies.json", "authz_config_path"},
		{"authz_config_path", "/dev/zero", "authz_config_path: /dev/zero: more than 4194304 bytes"},
		{"permission_profile_name_or_path", "../profile.json", "permission_profile_name_or_path"},
		{"permission_profile", m{"networks": m{}}, "permission_profile"},
		{"env_vars", m{"A=B": "c"}, "env_vars"},
		{"secrets", []string{"s3cr3t"}, "secrets[0]: write NAME,target=VARIABLE"},
		{"oidc_config", m{"issuer": "https://a.example", "audience": "a", "client_secret": "s3cr3t"}, "oidc_config.client_secret: it holds a secret in clear"},
		{"oidc_config", m{"issuer": "https://a.example"}, "oidc_config.audience: required"},
		{"oidc_config", m{"issuerr": "a"}, "oidc_config.issuerr: unknown field"},
		{"oidc_config", m{"client_id": "a", "ClientID": "a"}, "given twice"},
		{"oidc_config", m{"issuer": 3}, "oidc_config.Issuer: want text"},
		{"token_exchange_config", m{"token_url": "https://a.example", "client_secret": "s3cr3t"}, "token_exchange_config.client_secret: it holds a secret in clear"},
		{"remote_auth_config", m{"bearer_token": "s3cr3t"}, "remote_auth_config.bearer_token: it holds a secret in clear"},
		{"remote_auth_config", m{"client_id": "a", "client_secret": "s3cr3t"}, "remote_auth_config.client_secret: it holds a secret in clear"},
		{"remote_auth_config", m{"client_id": "a", "client_secret_file": "x"}, `remote_auth_config.client_secret_file: "x" is no absolute path`},
		{"remote_auth_config", m{"issuer": "https://a.example", "oauth_params": m{"a": "b"}}, "remote_auth_config.oauth_params: a login has no parameters"},
		{"remote_auth_config", m{"bearer_token_file": "../x"}, `remote_auth_config.bearer_token_file: "../x" is no absolute path`},
		{"remote_auth_config", m{"bearer_token_file": "/x", "issuer": "https://a.example"}, "remote_auth_config.bearer_token_file: and another credential"},
		{"remote_auth_config", m{"bearer_token_file": "/x", "bearer_token": "a,target=B"}, "remote_auth_config.bearer_token_file: and another credential"},
		{"remote_auth_config", m{"issuer": "https://a.example", "callback_port": 65536}, "remote_auth_config.callback_port: 65536 is no port"},
		{"remote_auth_config", m{"issuer": "https://a.example", "timeout": "soon"}, "remote_auth_config.timeout: no length of time"},
		{"telemetry_config", m{"endpoint": "a:4318", "headers": m{"Authorization": "s3cr3t"}}, "it holds a secret in clear"},
		{"telemetry_config", m{"samplingRate": "2"}, "telemetry_config.samplingRate"},
		{"telemetry_config", m{"endpoint": "a:4318", "caCertPath": "ca.pem"}, `telemetry_config.caCertPath: "ca.pem" is no absolute path`},
		{"embedded_auth_server_config", m{"issuer": "a"}, "embedded_auth_server_config: not supported yet"},
		{"aws_sts_config", m{"region": "a"}, "aws_sts_config: not supported yet"},
		{"rate_limit_config", m{"shared": m{}}, "rate_limit_config: not supported yet"},
		{"middleware_configs", []any{m{"type": "authorization", "parameters": m{"config_data": m{}}}}, `middleware_configs[0].type: "authorization"`},
		{"additional_middleware_configs", []any{m{"type": "mine"}}, "additional_middleware_configs[0].type"},
		{"validating_webhooks", []any{m{"name": "a", "url": "https://a.example", "failure_policy": "fail", "tls_config": m{"ca_bundle_path": "/a"}}}, "validating_webhooks[0].tls_config"},
		{"header_forward", m{"add_headers_from_secret": m{"A": "s3cr3t/a/b"}}, "header_forward.add_headers_from_secret"},
	} {
		_, _, err := Import("run.json", changed(t, c.key, c.value))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.said) || strings.Contains(err.Error()+e.Next, "s3cr3t") {
			t.Errorf("%s: %v: %v; want %q", c.key, c.value, err, c.said)
		}
	}

	// YAML is read, and its bombs are not.
	text := string(runConfigs(t)["remote-plain"])
	if manifest, _, err := Import("run.yaml", []byte(text)); err != nil || !strings.Contains(string(manifest), "MCPRemoteProxy") {
		t.Error(err)
	}
	bomb := "schema_version: v0.1.0\ntransport: stdio\nname: a\nimage: b\nport: 1\nhost: c\nenv_vars: {a: &a [x]}\ncmd_args:\n"
	for i := range 20 {
		bomb += strings.Repeat(" ", 0) + "x" + strings.Repeat("y", i) + ": &b" + string(rune('a'+i)) + " [" + strings.TrimSuffix(strings.Repeat("*b"+string(rune('a'+max(0, i-1)))+", ", 10), ", ") + "]\n"
	}
	for name, text := range map[string]string{
		"bomb.yaml":  bomb,
		"deep.json":  `{"schema_version":"v0.1.0","oidc_config":` + strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5001),
		"large.json": `{"schema_version":"v0.1.0","name":"` + strings.Repeat("a", 64<<20) + `"}`,
		"empty.yaml": "",
		"list.yaml":  "[1, 2]",
		"half.json":  `{"schema_version": "v0.1.0", "name": `,
		"foreign":    "a: b\n",
		"twice.yaml": "kind: MCPServer\nkind: MCPServer\n",
	} {
		_, _, err := Import(name, []byte(text))
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeInvalid || len(err.Error()) > 20_000 {
			t.Errorf("%s: %.300v", name, err)
		}
	}

	// Manifests with secrets in clear are refused by name.
	_, _, err := Import("x.yaml", []byte(strings.Replace(string(mustImport(t, "remote-plain")), "apiVersion", "apiVersion", 1)+"---\napiVersion: v1\nkind: Secret\nmetadata: {name: planted}\nstringData: {a: s3cr3t}\n"))
	if err == nil || !strings.Contains(err.Error(), "Secret/planted") || strings.Contains(err.Error(), "s3cr3t") {
		t.Error(err)
	}
}

func mustImport(t *testing.T, name string) []byte {
	t.Helper()
	manifest, _, err := Import(name+".json", runConfigs(t)[name])
	if err != nil {
		t.Fatal(err)
	}
	return manifest
}

// A group whose name is none is an error of its flag, in manifests and in RunConfigs.
func TestImportedGroup(t *testing.T) {
	for _, group := range []string{"../other", "Team", "a b", "a.b", strings.Repeat("x", 300)} {
		for file, text := range map[string]string{
			"w.json": `{"schema_version":"v0.1.0","name":"w","remote_url":"https://mcp.example.com/mcp","transport":"streamable-http","group":"` + group + `"}`,
			"w.yaml": "apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: w}\nspec: {image: \"exec:///bin/true\", transport: stdio, groupRef: {name: \"" + group + "\"}}\n",
		} {
			manifest, _, err := Import(file, []byte(text))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			var e *Error
			if _, _, err = Check(manifest); !errors.As(err, &e) || e.Code != CodeInvalid || e.Field != "--group" || !strings.HasSuffix(e.Message, "is no name of a group") {
				t.Errorf("%s of the group %.20q: %v", file, group, err)
			}
		}
	}
}

// Exports say what another place lacks, and hide what reads like a secret.
func TestExport(t *testing.T) {
	dir := t.TempDir()
	m, err := lined(t, dir, "--name=files", "--env=API_TOKEN=planted", "--env=PLAIN=shown", "--volume=.:/data:ro", "--group=work", "--memory=512MiB", "--debug", "--proxy-port=21000", "--", "npx", "-y", "@a/files")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		format  string
		values  bool
		has     []string
		lacks   []string
		notes   string
		refused bool
	}{
		{FormatWeir, false, []string{"# The value of API_TOKEN is left out", "name: API_TOKEN", "value: shown", "memory: 512Mi", "debug: true"}, []string{"planted", "weir.dev/wish", "status"}, "another machine needs " + dir, false},
		{FormatWeir, true, []string{"value: planted"}, []string{"left out"}, dir, false},
		{FormatK8s, false, []string{"image: REPLACE-ME", "# left out, it says nothing in a cluster: spec.run.debug: true", "spec.run.memory: \"512Mi\"", "spec.run.sessionTTL", "kind: MCPGroup", "proxyPort: 21000"}, []string{"planted", "\n  run:"}, "npx is a program of this machine", true},
		{FormatRunConfig, false, []string{`"schema_version": "v0.1.0"`, `"image": "npx"`, `"group": "work"`, `"session_ttl": 7200000000000`, `"debug": true`}, []string{"planted"}, "no key for spec.run.memory", false},
	} {
		text, notes, err := Export(m.Manifest, c.format, ExportOptions{WithValues: c.values})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.has {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: there is no %q in\n%s", c.format, want, text)
			}
		}
		for _, not := range c.lacks {
			if strings.Contains(string(text), not) {
				t.Errorf("%s: there is %q in\n%s", c.format, not, text)
			}
		}
		refused := false
		for _, n := range notes {
			refused = refused || n.Refused
		}
		if !strings.Contains(noted(notes), c.notes) || refused != c.refused {
			t.Errorf("%s: %s", c.format, noted(notes))
		}
	}
	if _, _, err := Export(m.Manifest, "yaml", ExportOptions{}); err == nil {
		t.Error("another format is written")
	}

	// What is exported is the same after it was imported (round trip).
	first, _, _ := Export(m.Manifest, FormatWeir, ExportOptions{})
	again, told, err := Import("files.yaml", first)
	if err != nil || !strings.Contains(noted(told), "files.yaml: the value of API_TOKEN is empty") || strings.Contains(noted(told), "PLAIN") {
		t.Fatalf("%v, %s", err, noted(told))
	}
	second, _, err := Export(again, FormatWeir, ExportOptions{})
	if err != nil || string(first) != string(second) {
		t.Errorf("%v\n%s\nwas\n%s", err, second, first)
	}
}

// Policies that stand in the workload itself have no place in a RunConfig, and their loss is no
// note among others.
func TestExportOfInlinePolicies(t *testing.T) {
	manifest := string(describe("crm", "  authzConfig: {type: inline, inline: {policies: ['permit(principal, action, resource);']}}\n"))
	text, notes, err := Export([]byte(manifest), FormatRunConfig, ExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(notes, func(n Note) bool { return n.Refused && strings.Contains(n.Text, "spec.authzConfig") }) {
		t.Errorf("%s\n%s", noted(notes), text)
	}
}

// What a workload refers to is written, wherever it stands in the file, and nothing in its place.
func TestExportOfWhatIsReferredTo(t *testing.T) {
	const (
		object  = "---\napiVersion: weir.dev/v1beta1\nkind: "
		config  = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: "
		profile = "  permissionProfile: {type: configmap, name: prof, key: p.json}\n"
	)
	for name, c := range map[string]struct {
		spec, objects string
		has, lacks    string
		refused       string
	}{
		"profile":       {profile, config + "ca}\ndata: {p.json: '{\"read\": [\"/wrong\"]}'}\n" + config + "prof}\ndata: {p.json: '{\"network\": {\"outbound\": {\"allow_host\": [\"right.example\"]}}}'}\n", "right.example", "/wrong", ""},
		"no such key":   {profile, config + "prof}\ndata: {q.json: '{}'}\n", "", "permission_profile", "there is no key p.json of a ConfigMap prof"},
		"policies":      {"  authzConfigRef: {name: mine}\n", object + "MCPAuthzConfig\nmetadata: {name: wrong}\nspec: {type: cedarv1, config: {policies: ['permit(principal, action, resource);']}}\n" + object + "MCPAuthzConfig\nmetadata: {name: mine}\nspec: {type: cedarv1, config: {policies: ['forbid(principal, action, resource);']}}\n", "forbid(", "permit(", ""},
		"no reference":  {"", object + "MCPToolConfig\nmetadata: {name: wrong}\nspec: {toolsFilter: [wrong]}\n", "", "wrong", ""},
		"of a cluster":  {"  oidcConfigRef: {name: mine, audience: a}\n", object + "MCPOIDCConfig\nmetadata: {name: mine}\nspec: {type: kubernetesServiceAccount}\n", "", "oidc_config", "nobody would be asked who they are"},
		"two telemetry": {"  telemetryConfigRef: {name: mine}\n", object + "MCPTelemetryConfig\nmetadata: {name: wrong}\nspec: {openTelemetry: {enabled: true, endpoint: 'wrong:4318', headers: {Authorization: planted}}}\n" + object + "MCPTelemetryConfig\nmetadata: {name: mine}\nspec: {openTelemetry: {enabled: true, endpoint: 'right:4318', headers: {Authorization: planted}}}\n", "right:4318", "wrong", ""},
	} {
		manifest := append(describe("crm", c.spec), c.objects...)
		text, notes, err := Export(manifest, FormatRunConfig, ExportOptions{})
		if err != nil || !strings.Contains(string(text), c.has) || strings.Contains(string(text), c.lacks) {
			t.Errorf("%s: %v\n%s\n%s", name, err, text, noted(notes))
		}
		if got := slices.ContainsFunc(notes, func(n Note) bool { return n.Refused && strings.Contains(n.Text, c.refused) }); got != (c.refused != "") {
			t.Errorf("%s: %s", name, noted(notes))
		}
		if again, _, err := Import("crm.json", text); err != nil || !strings.Contains(string(again), c.has) || strings.Contains(string(again), c.lacks) {
			t.Errorf("%s: imported: %v\n%s", name, err, again)
		}
		for _, format := range Formats() {
			if text, _, err := Export(manifest, format, ExportOptions{}); err != nil || strings.Contains(string(text), "planted") {
				t.Errorf("%s: %s: %v\n%s", name, format, err, text)
			}
		}
		if text := Shown(manifest); strings.Contains(text, "planted") {
			t.Errorf("%s: people are shown\n%s", name, text)
		}
	}
}

// A file says as much of a door to the world as a flag does.
func TestImportOfAnOpenDoor(t *testing.T) {
	for host, want := range map[string]bool{"0.0.0.0": true, "127.0.0.1": false} {
		_, notes, err := Import("crm.yaml", describe("crm", "  run: {proxyHost: "+host+"}\n"))
		if got := strings.Contains(noted(notes), "nobody asks them who they are"); err != nil || got != want {
			t.Errorf("%s: %v, %s", host, err, noted(notes))
		}
	}
}

// Headers whose names read like those of secrets are hidden as variables are, by exports and from
// people; what was exported is imported with a word about each.
func TestExportHidesHeaders(t *testing.T) {
	m, err := lined(t, t.TempDir(), "https://a.example/mcp", "--proxy-port=21000", "--remote-forward-headers=Authorization=Bearer planted", "--remote-forward-headers=X-Tenant=shown",
		"--otel-endpoint=a:4318", "--otel-headers=x-api-key=planted", "--otel-headers=team=blue")
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range Formats() {
		text, notes, err := Export(m.Manifest, format, ExportOptions{})
		if all := string(text) + noted(notes); err != nil || strings.Contains(all, "planted") || !strings.Contains(all, "The value of Authorization is left out") || !strings.Contains(all, "The value of x-api-key is left out") ||
			!strings.Contains(all, "shown") || !strings.Contains(all, "blue") {
			t.Errorf("%s: %v\n%s\n%s", format, err, text, noted(notes))
		}
		if format == FormatK8s {
			continue
		}
		if _, _, err := Import("run", text); err == nil || !strings.Contains(err.Error(), "run: the header Authorization has no value") {
			t.Errorf("%s: a header without a value is imported: %v", format, err)
		}
		filled := strings.NewReplacer(`Authorization: ""`, "Authorization: filled", `"Authorization": ""`, `"Authorization": "filled"`).Replace(string(text))
		again, notes, err := Import("run", []byte(filled))
		if told := noted(notes); err != nil || !strings.Contains(told, "x-api-key is empty") || strings.Contains(told, "Authorization") {
			t.Fatalf("%s: %v, %s\n%s", format, err, told, filled)
		}
		if _, _, err := Check(again); err != nil {
			t.Errorf("%s: %v", format, err)
		}
		if twice, _, err := Export(again, format, ExportOptions{}); err != nil || string(twice) != string(text) {
			t.Errorf("%s: %v\n%s\nwas\n%s", format, err, twice, text)
		}
		if whole, _, err := Export(m.Manifest, format, ExportOptions{WithValues: true}); err != nil || strings.Count(string(whole), "planted") != 2 {
			t.Errorf("%s with values: %v\n%s", format, err, whole)
		}
	}
	if text := Shown(m.Manifest); strings.Contains(text, "planted") || strings.Count(text, "REDACTED") != 2 || !strings.Contains(text, "X-Tenant: shown") {
		t.Errorf("people are shown\n%s", text)
	}
	plain := "# mine\napiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: a}\nspec: {image: npx, args: [a]}\n"
	if text := Shown([]byte(plain)); text != plain {
		t.Errorf("a manifest that holds no secret is shown as\n%s", text)
	}
	if text := Shown([]byte("spec: {env: [{name: API_TOKEN, value: planted}]")); text != "" {
		t.Errorf("of a broken manifest people are shown\n%s", text)
	}
}

// No file brings the reader down, and what it takes it can write and read again.
func FuzzImport(f *testing.F) {
	for _, text := range runConfigs(f) {
		f.Add("run.json", text)
		f.Add("run.yaml", text)
	}
	f.Add("x.yaml", []byte("apiVersion: weir.dev/v1beta1\nkind: MCPServer\nmetadata: {name: a}\nspec: {image: npx, args: [a]}\n"))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		if len(text) > 64<<10 || strings.Contains(string(text), "_path") || strings.Contains(string(text), "file") {
			return // files of this machine are none of the input
		}
		manifest, _, err := Import(name, text)
		if err != nil {
			return
		}
		if _, _, err := Import("manifest.yaml", manifest); err != nil {
			t.Fatalf("%v\n%s", err, manifest)
		}
		for _, format := range Formats() {
			if _, _, err := Export(manifest, format, ExportOptions{}); err != nil {
				t.Fatalf("%s: %v\n%s", format, err, manifest)
			}
		}
	})
}

// TestRunConfigNetwork: the reference keeps the network of a server in its profile, beside a
// built-in one, too. One that has no network there has none here.
func TestRunConfigNetwork(t *testing.T) {
	const begin = `{"schema_version":"v0.1.0","name":"cat","image":"a.example/b:1","transport":"stdio","isolate_network":true,`
	for _, c := range []struct{ mode, name, want, not string }{
		{"none", `"permission_profile_name_or_path":"network",`, "network: none", "x"},
		{"none", "", "network: none", "insecure_allow_all"},
		{"host", `"permission_profile_name_or_path":"network",`, "network: host", "x"},
		{"tools", "", "network: tools", `"mode"`},
		{"bridge", "", "insecure_allow_all", "network: "},
		{"", "", "insecure_allow_all", "network: "},
	} {
		text := begin + c.name + `"permission_profile":{"network":{"mode":"` + c.mode + `","outbound":{"insecure_allow_all":true}}}}`
		manifest, _, err := Import("run.json", []byte(text))
		if err != nil || !strings.Contains(string(manifest), c.want) || c.not != "x" && strings.Contains(string(manifest), c.not) {
			t.Errorf("%s %s: %v\n%s\nwant %s", c.mode, c.name, err, manifest, c.want)
		}
	}
	const broken = begin + `"permission_profile_name_or_path":"network","permission_profile":{"network":{"Mode":"none"}}}`
	if _, _, err := Import("run.json", []byte(broken)); err == nil || !strings.Contains(err.Error(), `permission_profile: unknown field "Mode"`) {
		t.Error(err)
	}
}

// TestRunConfigProfileText: the text of a profile counts, and not the name that stands beside it;
// volumes that it repeats are mounted once.
func TestRunConfigProfileText(t *testing.T) {
	const head = `{"schema_version":"v0.1.0","name":"cat","image":"a.example/b:1","transport":"stdio","isolate_network":true,`
	for text, want := range map[string]string{
		`"permission_profile_name_or_path":"network","permission_profile":{"network":{"outbound":{"allow_host":["api.example.com"],"allow_port":[443]}}}}`:              "api.example.com",
		`"permission_profile_name_or_path":"network","permission_profile":{"network":{"outbound":{"insecure_allow_all":true}}}}`:                                        "type: builtin",
		`"permission_profile_name_or_path":"none","permission_profile":{"network":{"outbound":{"insecure_allow_all":true}}}}`:                                           "insecure_allow_all",
		`"volumes":["/srv/a:/a:ro","/srv/b:/b"],"permission_profile":{"read":["/srv/a:/a"],"write":["/srv/b:/b"],"network":{"outbound":{"allow_host":["x.example"]}}}}`: "x.example",
	} {
		manifest, _, err := Import("run.json", []byte(head+text))
		if err != nil || !strings.Contains(string(manifest), want) || strings.Contains(string(manifest), "type: builtin") != (want == "type: builtin") {
			t.Errorf("%s: %v\n%s", text, err, manifest)
		}
		if strings.Contains(string(manifest), `"write"`) || strings.Count(string(manifest), "/srv/b") > 1 {
			t.Errorf("%s: a volume is there twice\n%s", text, manifest)
		}
	}
}

// So are parameters of the URL, and a cookie.
func TestExportHidesQueries(t *testing.T) {
	m, err := lined(t, t.TempDir(), "https://a.example/mcp?a=shown&api%5Fkey=planted%31&x", "--proxy-port=21000", "--remote-forward-headers=Cookie=planted")
	if err != nil {
		t.Fatal(err)
	}
	if told := noted(m.Notes); !strings.Contains(told, "api_key in the query of the URL reads like a secret") || !strings.Contains(told, "Cookie reads like a secret") || strings.Contains(told, "planted") {
		t.Error(told)
	}
	for _, format := range Formats() {
		text, notes, err := Export(m.Manifest, format, ExportOptions{})
		if all := string(text) + noted(notes); err != nil || strings.Contains(all, "planted") || !strings.Contains(all, "The value of api_key is left out") || !strings.Contains(all, "The value of Cookie is left out") {
			t.Errorf("%s: %v\n%s\n%s", format, err, text, noted(notes))
		}
		if whole, _, err := Export(m.Manifest, format, ExportOptions{WithValues: true}); err != nil || strings.Count(string(whole), "planted") != 2 {
			t.Errorf("%s with values: %v\n%s", format, err, whole)
		}
	}
	// The name of a parameter is a stranger's, and writes no line of its own.
	odd, err := lined(t, t.TempDir(), "https://a.example/mcp?%0Da%3A%20b%0A%1B%C2%85%E2%80%A8token=planted", "--proxy-port=21000")
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range Formats() {
		text, notes, err := Export(odd.Manifest, format, ExportOptions{})
		if all := string(text) + noted(notes); err != nil || strings.ContainsAny(all, "\r\x1b\u0085\u2028") || !strings.Contains(all, "is left out") {
			t.Errorf("%s: %v\n%q", format, err, all)
		}
		if _, _, err := Check(text); format == FormatWeir && err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
	if text := Shown(m.Manifest); strings.Contains(text, "planted") || !strings.Contains(text, "https://a.example/mcp?a=shown&api%5Fkey=REDACTED&x") {
		t.Errorf("people are shown\n%s", text)
	}
}

// That nothing is audited, and that no scopes are asked for, are said by a RunConfig as by flags.
func TestRunConfigSaysNone(t *testing.T) {
	type m = map[string]any
	manifest, notes, err := Import("run.json", changed(t, "audit_config", m{"enabled": false, "component": "a"}))
	if err != nil || strings.Contains(string(manifest), "audit") || !strings.Contains(noted(notes), "audit_config: left out: enabled is false") {
		t.Errorf("%v, %s\n%s", err, noted(notes), manifest)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "off.json"), []byte(`{"enabled": false}`), 0o600); err != nil {
		t.Fatal(err)
	}
	made, err := lined(t, dir, "--name=a", "--audit-config=off.json", "--oidc-issuer=https://a.example", "--oidc-audience=a", "--oidc-scopes=")
	if err != nil || strings.Contains(string(made.Manifest), "audit:") || !strings.Contains(noted(made.Notes), "--audit-config: enabled is false") {
		t.Fatalf("%v, %s\n%s", err, noted(made.Notes), made.Manifest)
	}
	first, _, err := Export(made.Manifest, FormatRunConfig, ExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := Import("run.json", first)
	if err != nil {
		t.Fatal(err)
	}
	if second, _, err := Export(again, FormatRunConfig, ExportOptions{}); err != nil || string(second) != string(first) || !strings.Contains(string(second), `"Scopes": []`) {
		t.Errorf("%v\n%s\nwas\n%s", err, second, first)
	}
	stateless, _, err := Import("run.json", []byte(`{"schema_version": "v0.1.0", "name": "a", "image": "npx", "transport": "stdio", "proxy_mode": "sse", "stateless": true}`))
	if err != nil {
		t.Fatal(err)
	}
	plan, warnings, err := Check(stateless) // which answers at /mcp alone
	if err != nil || plan.Servers[0].Older || !strings.Contains(noted(warnings), "a stateless server has no streams") {
		t.Errorf("%v %v\n%s", err, warnings, stateless)
	}
}
