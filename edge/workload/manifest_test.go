package workload

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-edge/weir/filters/incoming"
)

// lined is what a command line stands for. Flags are "--name=value"; what stands after "--"
// is a command, and one word before it a server. Without either it is a command.
func lined(t *testing.T, dir string, words ...string) (*Made, error) {
	t.Helper()
	o := DefaultOptions()
	o.Dir, o.Look, o.Given = dir, found, map[string]bool{}
	o.Args = []string{"srv"}
	for i, word := range words {
		if word == "--" {
			o.Args = words[i+1:]
			break
		}
		flag, value, ok := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		if !strings.HasPrefix(word, "--") {
			o.Server, o.Args = word, nil
			continue
		}
		if !ok {
			value = "true"
		}
		give(t, &o, flag, value)
	}
	return Manifest(o)
}

// bad are values that are refused before anything starts (workload documents, "The 88 flags",
// bad).
func TestManifestBad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("profile.json", `{"network": {"outbound": {"allow_host": ["a.example"], "allow_port": [0]}}}`)
	write("hosts.json", `{"network": {"outbound": {"allow_host": ["127.1"]}}}`)
	write("privileged.json", `{"privileged": true}`)
	write("unknown.json", `{"networks": {}}`)
	write("env", "A=b\nno line\n")
	write("twice.json", `{"toolsOverride": {"a": {"name": "x"}, "b": {"name": "x"}}}`)
	write("audit.json", `{"event_typos": []}`)
	write("authz.json", `{"version": "1.0", "type": "policyv1"}`)
	write("hooks.yaml", "validating:\n- {name: a, url: 'https://a.example', failure_policy: perhaps}\n")
	write("nothing.json", "{}")
	write("off.json", `{"enabled": false}`)
	write("empty", "")
	write("two-lines", "a\nb\n")
	const url = "https://mcp.example.com/mcp"
	for _, c := range []struct {
		words string
		code  Code
		flag  string
		said  string
	}{
		{"--name=Files", CodeInvalid, "name", "small letters"},
		{"--name=a-", CodeInvalid, "name", "small letters"},
		{"--group=A/b", CodeInvalid, "group", "no name"},
		{"--transport=http", CodeInvalid, "transport", "none of stdio, streamable-http, sse"},
		{url + " --transport=stdio", CodeInvalid, "transport", "a URL"},
		{"--proxy-mode=http", CodeInvalid, "proxy-mode", "none of"},
		{"--proxy-port=-1", CodeInvalid, "proxy-port", "0 to 65535"},
		{"--proxy-port=65536", CodeInvalid, "proxy-port", "0 to 65535"},
		{"--target-port=0", CodeInvalid, "target-port", "1 to 65535"},
		{"--host=a/b", CodeInvalid, "host", "host name or an IP"},
		{"--publish=80:80/udp", CodeInvalid, "publish", "two ports of TCP"},
		{"--network=bridge", CodeInvalid, "network", "has host or none"},
		{"--run-as=0", CodeInvalid, "run-as", "has your rights at the most"},
		{"--network=host --isolate-network", CodeInvalid, "network", "--isolate-network"},
		{"--network=none --permission-profile=network", CodeInvalid, "permission-profile", "--network none"},
		{"--egress-port=0", CodeInvalid, "egress-port", "1 to 65535"},
		{"--egress-port=65536", CodeInvalid, "egress-port", "1 to 65535"},
		{"--egress-port=22 --isolate-network=false", CodeInvalid, "egress-port", "nothing is blocked"},
		{"--egress-port=22 --network=host", CodeInvalid, "egress-port", "--network host"},
		{"--egress-port=22 --permission-profile=none", CodeInvalid, "egress-port", "names no hosts"},
		{"--allow-container-gateway --network=none", CodeInvalid, "allow-container-gateway", "--network none"},
		{"--env=A", CodeInvalid, "env", "no ="},
		{"--env==b", CodeInvalid, "env", "no name"},
		{"--env=A=\x00", CodeInvalid, "env", "NUL"},
		{"--env=A=caf\xe9", CodeInvalid, "env", "not UTF-8"},
		{"--volume=.:/caf\xe9", CodeInvalid, "volume", "not UTF-8"},
		{"--env-file=nowhere", CodeInvalid, "env-file", "no such file"},
		{"--env-file=env", CodeInvalid, "env-file", "line 2"},
		{"--env-file=.", CodeInvalid, "env-file", "directory"},
		{"--secret=A", CodeInvalid, "secret", "NAME,target=VARIABLE"},
		{"--secret=A,target=", CodeInvalid, "secret", "NAME,target=VARIABLE"},
		{"--secret=A,target=X --secret=B,target=X", CodeInvalid, "secret", "twice"},
		{"--secret=.a,target=X", CodeInvalid, "secret", "no name of a secret"},
		{"--host=", CodeInvalid, "host", "it is empty"},
		{"--permission-profile=", CodeInvalid, "permission-profile", "it is empty"},
		{"--tools=a --tools=", CodeInvalid, "tools", "it is empty"},
		{"--tools=,", CodeInvalid, "tools", "it is empty"},
		{"--authz-config=", CodeInvalid, "authz-config", "it is empty"},
		{"--oidc-issuer=", CodeInvalid, "oidc-issuer", "it is empty"},
		{url + " --token-exchange-url=", CodeInvalid, "token-exchange-url", "it is empty"},
		{"--label=a", CodeInvalid, "label", "no ="},
		{"--label=weir.dev/a=b", CodeInvalid, "label", "by Weir alone"},
		{"--volume=nowhere:/data", CodeInvalid, "volume", "no such file"},
		{"--volume=.:data", CodeInvalid, "volume", "no absolute path"},
		{"--volume=.:/a/../b", CodeInvalid, "volume", "no absolute path"},
		{"--volume=.", CodeInvalid, "volume", "HOST:INSIDE"},
		{"--volume=.:/a --volume=.:/a:ro", CodeInvalid, "volume", "twice"},
		{"--permission-profile=profile.json", CodeInvalid, "permission-profile", "allow_port[0]"},
		{"--permission-profile=unknown.json", CodeInvalid, "permission-profile", "networks"},
		{"--permission-profile=hosts.json", CodeInvalid, "permission-profile", "allow_host[0]: \"127.1\""},
		{"--permission-profile=privileged.json", CodeRefused, "permission-profile", "privileged"},
		{"--image-verification=no", CodeInvalid, "image-verification", "none of"},
		{"--image-verification=enabled", CodeInvalid, "image-verification", "no image of a registry"},
		{"--runtime-image=a", CodeInvalid, "runtime-image", "no image that is built"},
		{"--runtime-add-package=git", CodeInvalid, "runtime-add-package", "no image that is built"},
		{"--ca-cert=a", CodeInvalid, "ca-cert", "no image that is built"},
		{"--allow-privileged", CodeInvalid, "allow-privileged", "a process of this machine"},
		{"--weir-ca-bundle=empty", CodeInvalid, "weir-ca-bundle", "no certificate"},
		{"--endpoint-prefix=a", CodeInvalid, "endpoint-prefix", "begin with /"},
		{"--endpoint-prefix=/a/", CodeInvalid, "endpoint-prefix", "path such as"},
		{"--session-ttl=-1s", CodeInvalid, "session-ttl", "negative"},
		{"--allowed-origins=*", CodeInvalid, "allowed-origins", "exact origin"},
		{"--tools-override=twice.json", CodeInvalid, "tools-override", "both called x"},
		{"--tools-override=nothing.json", CodeInvalid, "tools-override", "names no tool"},
		{"--transport=sse --target-host=127.0.0.2", CodeInvalid, "target-host", "127.0.0.1 and ::1 alone"},
		{"--enable-audit --audit-config=off.json", CodeInvalid, "audit-config", "enabled is false"},
		{"--oidc-issuer=https://a.example --oidc-audience=a --jwks-auth-token-file=empty", CodeInvalid, "jwks-auth-token-file", "it is empty"},
		{url + " --remote-auth-client-id=a --remote-auth-scope-param-name=state", CodeInvalid, "remote-auth-scope-param-name", "says something else"},
		{"--webhook-config=hooks.yaml", CodeInvalid, "webhook-config", "failure_policy"},
		{"--webhook-config=nowhere.yaml", CodeInvalid, "webhook-config", "no such file"},
		{"--audit-config=audit.json", CodeInvalid, "audit-config", "event_typos"},
		{"--authz-config=authz.json", CodeInvalid, "authz-config", "policy"},
		{"--otel-endpoint=collector:4318 --otel-sampling-rate=1.5", CodeInvalid, "otel-sampling-rate", "0 to 1"},
		{"--otel-endpoint=collector:4318 --otel-headers=a", CodeInvalid, "otel-headers", "no ="},
		{"--otel-endpoint=collector:4318 --otel-custom-attributes=a", CodeInvalid, "otel-custom-attributes", "no ="},
		{"--otel-endpoint=ftp://a", CodeInvalid, "otel-endpoint", "scheme"},
		{"--otel-env-vars=WEIR_SECRET_A", CodeInvalid, "otel-env-vars", "secret"},
		{"--oidc-audience=a", CodeInvalid, "oidc-audience", "--oidc-issuer"},
		{"--resource-url=https://a.example", CodeInvalid, "resource-url", "--oidc-issuer"},
		{"--oidc-issuer=https://login.example.com", CodeInvalid, "oidc-issuer", "--oidc-audience"},
		{"--oidc-issuer=login --oidc-audience=a", CodeInvalid, "oidc-issuer", "URL"},
		{"--oidc-introspection-url=https://a.example", CodeInvalid, "oidc-introspection-url", "--oidc-audience"},
		{"--oidc-introspection-url=a --oidc-audience=a", CodeInvalid, "oidc-introspection-url", "URL"},
		{"--oidc-introspection-url=https://a.example --oidc-audience=a --oidc-jwks-url=https://a.example/k", CodeInvalid, "oidc-jwks-url", "--oidc-issuer"},
		{"--oidc-introspection-url=https://a.example --oidc-audience=a --jwks-auth-token-file=two-lines", CodeInvalid, "jwks-auth-token-file", "--oidc-issuer"},
		{"--oidc-introspection-url=https://a.example --oidc-audience=a --jwks-allow-private-ip", CodeInvalid, "jwks-allow-private-ip", "--oidc-issuer"},
		{"--remote-auth", CodeInvalid, "remote-auth", "none at a URL"},
		{url + " --remote-auth-client-secret=s3cr3t", CodeInvalid, "remote-auth-client-secret", "--remote-auth-client-id"},
		{url + " --remote-auth-client-id=a --remote-auth-client-secret=s3cr3t --remote-auth-client-secret-file=two-lines", CodeInvalid, "remote-auth-client-secret-file", "leave one out"},
		{url + " --remote-auth-authorize-url=https://a.example", CodeInvalid, "remote-auth-authorize-url", "--remote-auth-token-url"},
		{url + " --remote-auth-token-url=https://a.example", CodeInvalid, "remote-auth-token-url", "--remote-auth-authorize-url"},
		{url + " --remote-auth-issuer=https://a.example --remote-auth-authorize-url=https://a.example --remote-auth-token-url=https://a.example", CodeInvalid, "remote-auth-issuer", "leave out"},
		{url + " --remote-auth-issuer=http://a.example", CodeInvalid, "remote-auth-issuer", "no https URL"},
		{url + " --remote-auth-issuer=https://a.example --remote-auth-bearer-token=t", CodeInvalid, "remote-auth-issuer", "bearer token"},
		{url + " --remote-auth-callback-port=0", CodeInvalid, "remote-auth-callback-port", "1 to 65535"},
		{url + " --remote-auth-timeout=0s", CodeInvalid, "remote-auth-timeout", "second"},
		{url + " --remote-auth-resource=a", CodeInvalid, "remote-auth-resource", "URI"},
		{url + " --remote-auth-resource=urn:example:crm#x", CodeInvalid, "remote-auth-resource", "fragment"},
		{url + " --remote-auth=false --remote-auth-issuer=https://a.example", CodeInvalid, "remote-auth-issuer", "--remote-auth=false"},
		{"--remote-auth-bearer-token=t", CodeInvalid, "remote-auth-bearer-token", "none at a URL"},
		{url + " --remote-auth-bearer-token=t --remote-auth-bearer-token-file=two-lines", CodeInvalid, "remote-auth-bearer-token-file", "leave one out"},
		{url + " --remote-auth-bearer-token-file=two-lines", CodeInvalid, "remote-auth-bearer-token-file", "one line"},
		{url + " --remote-auth-bearer-token-file=empty", CodeInvalid, "remote-auth-bearer-token-file", "empty"},
		{url + " --remote-forward-headers=Host=a", CodeInvalid, "remote-forward-headers", "set by the edge itself"},
		{url + " --remote-forward-headers=Connection=a", CodeInvalid, "remote-forward-headers", "set by the edge itself"},
		{url + " --remote-forward-headers-secret=Authorization=api --remote-auth", CodeInvalid, "remote-forward-headers-secret", "leave one out"},
		{url + " --remote-forward-headers=authorization=a --remote-auth-client-id=weir", CodeInvalid, "remote-forward-headers", "leave one out"},
		{url + " --remote-forward-headers=a", CodeInvalid, "remote-forward-headers", "no ="},
		{url + " --remote-forward-headers=A=1 --remote-forward-headers=a=2", CodeInvalid, "remote-forward-headers", "twice"},
		{url + " --token-exchange-url=https://a.example", CodeInvalid, "token-exchange-url", "--token-exchange-audience"},
		{url + " --token-exchange-audience=a", CodeInvalid, "token-exchange-audience", "--token-exchange-url"},
		{url + " --webhook-config=hooks.yaml", CodeInvalid, "webhook-config", "failure_policy"},
		{url + " --env=A=b", CodeInvalid, "env", "does not start it"},
		{"--processes=many", CodeInvalid, "processes", "none of"},
		{"--max-processes=0", CodeInvalid, "max-processes", "1 to 1024"},
		{"--restart=never", CodeInvalid, "restart", "none of"},
		{"--memory=lots", CodeInvalid, "memory", "512MiB"},
		{"--memory=1KiB", CodeInvalid, "memory", ""},
		{"--cpus=-1", CodeInvalid, "cpus", "number"},
		{"--sandbox=jail", CodeInvalid, "sandbox", "none of"},
		{"--writable=data", CodeInvalid, "writable", "absolute"},
	} {
		t.Run(c.words, func(t *testing.T) {
			_, err := lined(t, dir, strings.Fields(c.words)...)
			var e *Error
			if !errors.As(err, &e) || e.Code != c.code || e.Field != "--"+c.flag || !strings.Contains(e.Message+" "+e.Next, c.said) || !strings.Contains(e.Message, "--"+c.flag) {
				t.Errorf("%+v", err)
			}
			if err != nil && strings.Contains(err.Error(), "s3cr3t") {
				t.Error("a secret is shown")
			}
		})
	}
}

// Names are given, or those of the server; a derived one that is taken is numbered.
// TestManifestOddWords: what no manifest can hold is refused, and not kept as something else.
func TestManifestOddWords(t *testing.T) {
	for _, words := range [][]string{{"--", "srv", "caf\xe9"}, {"--", "srv", "a\x00b"}, {"exec:///caf\xe9"}, {"image/caf\xe9:1"}} {
		var e *Error
		if _, err := lined(t, t.TempDir(), words...); !errors.As(err, &e) || e.Code != CodeInvalid || !strings.Contains(e.Message, "NUL byte, or bytes that are not UTF-8") {
			t.Errorf("%q: %v", words, err)
		}
	}
	made, err := lined(t, t.TempDir(), "--env=A=café", "--", "srv", "café")
	if err != nil || strings.Count(string(made.Manifest), "café") != 2 {
		t.Errorf("%v: %+v", err, made)
	}
}

func TestManifestNames(t *testing.T) {
	for _, c := range []struct {
		name, want string
		replace    bool
	}{{"", "srv-3", false}, {"", "srv", true}, {"mine", "mine", false}, {"srv", "", false}, {"srv", "srv", true}} {
		o := DefaultOptions()
		o.Dir, o.Look, o.Args, o.Name, o.ReplaceExisting, o.Given = t.TempDir(), found, []string{"srv"}, c.name, c.replace, map[string]bool{"name": c.name != ""}
		o.Named = func(name string) bool { return name == "srv" || name == "srv-2" }
		m, err := Manifest(o)
		var e *Error
		switch {
		case c.want == "" && (!errors.As(err, &e) || e.Code != CodeTaken || e.Field != "--name"):
			t.Errorf("%+v: %v", c, err)
		case c.want != "" && (err != nil || m.Name != c.want || m.Derived != (c.name == "")):
			t.Errorf("%+v: %+v, %v", c, m, err)
		}
	}
}

// Webhooks whose names are the same as keys of secrets have one each.
func TestWebhooksOfOneName(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.pem": "first", "b.pem": "second", "c.pem": "third",
		"hooks.yaml": "mutating:\n- {name: gate, url: 'https://a.example', failure_policy: fail, tls_config: {ca_bundle_path: " + filepath.Join(dir, "a.pem") + "}}\n" +
			"validating:\n- {name: gate, url: 'https://b.example', failure_policy: fail, tls_config: {ca_bundle_path: " + filepath.Join(dir, "b.pem") + "}}\n" +
			"- {name: 'ga.te', url: 'https://c.example', failure_policy: fail, tls_config: {ca_bundle_path: " + filepath.Join(dir, "c.pem") + "}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := lined(t, dir, "--name=crm", "--webhook-config=hooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, s := range m.Secrets {
		if was, twice := seen[s.Key]; twice {
			t.Errorf("%s is of %q and of %q", s.Key, was, s.Value)
		}
		seen[s.Key] = string([]byte(s.Value))
		if !strings.Contains(string(m.Manifest), s.Key) {
			t.Errorf("%s is not in the manifest", s.Key)
		}
	}
	if len(seen) != 3 {
		t.Errorf("%q", seen)
	}
}

// Values of secrets that flags bring are apart from the manifest, which names them (V46).
func TestManifestHoldsNoSecret(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"token": "planted-file\n", "ca.pem": "planted-ca", "hooks.yaml": "validating:\n- {name: a, url: 'https://a.example', failure_policy: fail, tls_config: {ca_bundle_path: " + filepath.Join(dir, "ca.pem") + "}}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	oidc := []string{"--oidc-issuer=https://login.example.com", "--oidc-audience=a", "--oidc-client-id=c", "--oidc-introspection-url=https://login.example.com/i", "--oidc-client-secret=planted-oidc"}
	for want, words := range map[string][]string{
		"crm oidc-client-secret planted-oidc": append([]string{"--name=crm"}, oidc...),
		"crm bearer-token planted-bearer":     {"https://a.example/mcp", "--name=crm", "--remote-auth-bearer-token=planted-bearer"},
		"":                                    {"https://a.example/mcp", "--name=crm", "--remote-auth-bearer-token-file=token"}, // which stays in its file
		"crm oidc-client-secret planted-oidc crm token-exchange-client-secret planted-exchange": append([]string{"https://a.example/mcp", "--name=crm", "--token-exchange-url=https://a.example/t", "--token-exchange-audience=a", "--token-exchange-client-id=c", "--token-exchange-client-secret=planted-exchange"}, oidc...),
		"crm webhook-a-ca planted-ca": {"--name=crm", "--webhook-config=hooks.yaml"},
	} {
		m, err := lined(t, dir, words...)
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		var got []string
		for _, s := range m.Secrets {
			got = append(got, s.Name, s.Key, string([]byte(s.Value)))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("kept: %s\nwant %s", text, want)
		}
		if strings.Contains(string(m.Manifest), "planted") {
			t.Errorf("%s: the manifest holds it:\n%s", want, m.Manifest)
		}
		for _, s := range m.Secrets {
			if !strings.Contains(string(m.Manifest), "key: "+s.Key) {
				t.Errorf("%s: the manifest does not refer to %s:\n%s", want, s.Key, m.Manifest)
			}
		}
	}
}

// What is worth knowing is said, and only that.
func TestManifestNotes(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "server.js"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for words, want := range map[string]string{
		"":                  "",
		"--env=API_TOKEN=x": "API_TOKEN reads like a secret",
		"--otel-endpoint=a:4318 --otel-headers=X-API-TOKEN=x":                      "give --otel-headers X-API-TOKEN=secret://NAME",
		"--otel-endpoint=a:4318 --otel-headers=Tenant=t":                           "",
		"https://a.example/mcp --remote-forward-headers=Authorization=API_TOKEN=x": "give --remote-forward-headers-secret Authorization=NAME",
		"https://a.example/mcp --remote-forward-headers=X-Tenant=t":                "",
		"--host=0.0.0.0":         "nobody asks them who they are",
		"--host=::1":             "",
		"--proxy-mode=sse":       "the older transport",
		"--otel-sampling-rate=1": "without --otel-endpoint",
		"--network=host":         "nothing of it is kept from it",
		"--env-file-dir=nowhere": "is not there",
		"--target-port=9000":     "not used: the server speaks stdio",
		"--isolate-network=false --allow-container-gateway":    "it says nothing",
		"--isolate-network=false --permission-profile=none":    "the server goes out wherever it likes",
		"--isolate-network=false --permission-profile=network": "",
		"-- node ./server.js":                                  "-v " + dir + "/server.js:",
		"-- node /usr":                                         "",
		"-- /home/a/.pyenv/shims/python3 /usr":                 "/home/a/.pyenv/shims/python3 is a shim",
		"--sandbox=off -- /home/a/.pyenv/shims/python3":        "",
		"--volume=.:" + dir + " -- node server.js":             "in a directory of its own: name server.js as " + dir + "/server.js",
		"--volume=.:" + dir + " -- node " + dir + "/server.js": "",
	} {
		m, err := lined(t, dir, strings.Fields(words)...)
		if err != nil {
			t.Errorf("%s: %v", words, err)
			continue
		}
		var said []string
		for _, n := range m.Notes {
			said = append(said, n.Text)
		}
		if text := strings.Join(said, "\n"); want == "" && text != "" || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", words, text, want)
		}
		if slices.Sort(said); len(slices.Compact(slices.Clone(said))) != len(said) {
			t.Errorf("%s: something is said twice: %q", words, said)
		}
		if strings.Contains(words, "API_TOKEN=x") && strings.Contains(strings.Join(said, ""), "=x") {
			t.Errorf("a value is shown: %q", said)
		}
	}
}

// What a login asks for may be any absolute URI (RFC 8707), and is read again from either form of
// export.
func TestManifestResource(t *testing.T) {
	for _, resource := range []string{"urn:example:crm", "api://crm"} {
		m, err := lined(t, t.TempDir(), "https://a.example/mcp", "--name=crm", "--remote-auth-client-id=weir", "--remote-auth-resource="+resource)
		if err != nil {
			t.Fatalf("%s: %v", resource, err)
		}
		for _, format := range []string{FormatWeir, FormatRunConfig} {
			written, _, err := Export(m.Manifest, format, ExportOptions{})
			if err != nil {
				t.Fatal(err)
			}
			again, _, err := Import(map[string]string{FormatWeir: "crm.yaml", FormatRunConfig: "crm.json"}[format], written)
			if err != nil || !strings.Contains(string(again), "resource: "+resource) {
				t.Errorf("%s as %s: %v\n%s", resource, format, err, again)
			}
		}
	}
}

// Tokens that nobody here verifies: those that an introspection endpoint alone knows, and those
// that are exchanged as they come. Each is written out, warned of, and read again from either
// form of export.
func TestManifestUnverified(t *testing.T) {
	for name, c := range map[string]struct {
		words, kept, lacks, said string
		is                       func(*incoming.Spec) bool
	}{
		"introspection alone": {
			"https://a.example/mcp --name=crm --oidc-introspection-url=https://login.example.com/i --oidc-audience=crm --oidc-client-id=weir", "introspectionUrl: https://login.example.com/i", "issuer:",
			"clients are not told who gives them one", func(s *incoming.Spec) bool {
				return s.Type == incoming.OIDC && s.Issuer == "" && s.IntrospectionURL == "https://login.example.com/i" && s.Audience == "crm"
			},
		},
		"exchange alone": {
			"https://a.example/mcp --name=crm --token-exchange-url=https://sts.example.com/t --token-exchange-audience=crm", "exchangeUnverified: true", "oidcConfigRef",
			"nobody verifies the tokens of clients", func(s *incoming.Spec) bool { return s.Type == incoming.Unverified },
		},
		"exchange of introspected ones": {
			"https://a.example/mcp --name=crm --token-exchange-url=https://sts.example.com/t --token-exchange-audience=crm --oidc-introspection-url=https://login.example.com/i --oidc-audience=weir", "introspectionUrl", "exchangeUnverified",
			"", func(s *incoming.Spec) bool { return s.Type == incoming.OIDC },
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := lined(t, t.TempDir(), strings.Fields(c.words)...)
			if err != nil {
				t.Fatal(err)
			}
			text := string(m.Manifest)
			if !strings.Contains(text, c.kept) || strings.Contains(text, c.lacks) || !strings.Contains(noted(m.Notes), c.said) || !c.is(m.Plan.Servers[0].Incoming) {
				t.Errorf("notes %q, %+v,\n%s", noted(m.Notes), m.Plan.Servers[0].Incoming, text)
			}
			for _, format := range []string{FormatWeir, FormatRunConfig} {
				written, _, err := Export(m.Manifest, format, ExportOptions{})
				if err != nil {
					t.Fatal(err)
				}
				again, _, err := Import(map[string]string{FormatWeir: "crm.yaml", FormatRunConfig: "crm.json"}[format], written)
				if err != nil || !strings.Contains(string(again), c.kept) || strings.Contains(string(again), c.lacks) {
					t.Errorf("as %s: %v\n%s\nof\n%s", format, err, again, written)
				}
			}
		})
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "hooks.yaml"), []byte("validating:\n- {name: a, url: 'https://a.example', failure_policy: fail}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := lined(t, dir, "https://a.example/mcp", "--name=crm", "--webhook-config=hooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{FormatWeir, FormatRunConfig} {
		written, _, err := Export(m.Manifest, format, ExportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := Import(map[string]string{FormatWeir: "crm.yaml", FormatRunConfig: "crm.json"}[format], written)
		if err != nil || string(again) != string(m.Manifest) || !strings.Contains(string(again), "webhookConfigRef") || len(m.Plan.Servers[0].Webhooks.Validating) != 1 {
			t.Errorf("webhooks of a server at a URL, as %s: %v\n%s\nof\n%s", format, err, again, m.Manifest)
		}
	}
	_, _, err = Import("crm.json", []byte(`{"schema_version":"v0.1.0","name":"crm","remote_url":"https://a.example/mcp","transport":"sse","oidc_config":{"Audience":"a","JWKSURL":"https://a.example/k"}}`))
	if err == nil || !strings.Contains(err.Error(), "oidc_config.issuer") {
		t.Errorf("keys of nobody: %v", err)
	}
}
