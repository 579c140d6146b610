package workload

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/registry"
)

// made is the manifest of an entry, with flags.
func made(t *testing.T, e *registry.Start, set func(*Options)) (*Made, error) {
	t.Helper()
	o := DefaultOptions()
	o.Server, o.Entry, o.Dir, o.Given, o.Look = "x", e, t.TempDir(), map[string]bool{}, found
	if set != nil {
		set(&o)
	}
	return Manifest(o)
}

// What an entry gives stands in the manifest, its secrets aside, and flags win over it.
func TestManifestOfAnEntry(t *testing.T) {
	local := &registry.Start{
		Name: "io.example/Files", Digest: "sha256:" + strings.Repeat("a", 64), Command: []string{"npx", "-y", "files@1"}, Transport: "streamable-http", Port: 9000,
		Env: []registry.Value{{Name: "LEVEL", Value: "3"}, {Name: "KEY", Value: "planted-1", Secret: true}}, Profile: []byte(`{"network":{"outbound":{"insecure_allow_all":true}}}`),
	}
	m, err := made(t, local, func(o *Options) { o.Args = []string{"--more"} })
	if err != nil {
		t.Fatal(err)
	}
	text := string(m.Manifest)
	for _, want := range []string{"name: io-example-files\n", "- files@1\n  - --more\n", "mcpPort: 9000", "transport: streamable-http", "name: LEVEL\n    value: \"3\"", "targetEnvName: KEY", "name: io.example/Files", "digest: sha256:aaaa", "type: configmap", `{"network":{"outbound":{"insecure_allow_all":true}}}`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "planted") || len(m.Secrets) != 1 || m.Secrets[0].Name != "io-example-files" || m.Secrets[0].Key != "KEY" || string(m.Secrets[0].Value) != "planted-1" {
		t.Errorf("%+v\n%s", m.Secrets, text)
	}
	m, err = made(t, local, func(o *Options) {
		o.Transport, o.TargetPort, o.PermissionProfile, o.Env = "sse", 9001, "none", []string{"LEVEL=4"}
		o.Given = map[string]bool{"transport": true, "target-port": true, "permission-profile": true, "env": true}
	})
	if err != nil {
		t.Fatal(err)
	}
	if text := string(m.Manifest); !strings.Contains(text, "mcpPort: 9001") || !strings.Contains(text, "transport: sse") || !strings.Contains(text, "name: none") || !strings.Contains(text, `value: "4"`) || strings.Contains(text, `value: "3"`) {
		t.Errorf("flags do not win:\n%s", text)
	}

	// A server at a URL: a private address is only where the entry may lead there.
	for private, want := range map[bool]string{false: "", true: "allowPrivateEndpoint: true"} {
		remote := &registry.Start{Name: "io.example/there", URL: "https://intranet/mcp", Private: private, Transport: "sse", Headers: []registry.Value{{Name: "X-Region", Value: "eu"}, {Name: "X-Key", Value: "planted-2", Secret: true}}}
		m, err := made(t, remote, nil)
		if err != nil {
			t.Fatal(err)
		}
		text := string(m.Manifest)
		if strings.Contains(text, "allowPrivateEndpoint") != private || !strings.Contains(text, want) || !strings.Contains(text, "X-Region: eu") || !strings.Contains(text, "key: header-x-key") || strings.Contains(text, "planted") || len(m.Secrets) != 1 {
			t.Errorf("%+v\n%s", m.Secrets, text)
		}
	}

	// What the entry calls a secret is one, whatever its name reads like.
	plain := *local
	plain.Env, plain.Secrets = nil, []string{"FILES_PIN", "X-Pin"}
	m, err = made(t, &plain, func(o *Options) { o.Env = []string{"FILES_PIN=planted-3", "LEVEL=4"} })
	if err != nil || len(m.Notes) != 1 || !strings.Contains(m.Notes[0].Text, "--env: FILES_PIN reads like a secret") || !strings.Contains(m.Notes[0].Text, "--secret FILES_PIN,target=FILES_PIN") {
		t.Errorf("%v, %+v", err, m)
	}
	there := registry.Start{Name: "io.example/there", URL: "https://there.example/mcp", Transport: "streamable-http", Secrets: plain.Secrets}
	m, err = made(t, &there, func(o *Options) { o.RemoteForwardHeaders = []string{"x-pin=planted-4", "X-Tenant=t"} })
	if err != nil || len(m.Notes) != 1 || !strings.Contains(m.Notes[0].Text, "--remote-forward-headers-secret x-pin=NAME") {
		t.Errorf("%v, %+v", err, m)
	}

	// Its profile is the workload's; one that can never hold is refused.
	hosts := *local
	hosts.Profile = []byte(`{"network":{"outbound":{"allow_host":["a.example"]}}}`)
	if m, err := made(t, &hosts, nil); err != nil || !strings.Contains(string(m.Manifest), `"allow_host":["a.example"]`) {
		t.Errorf("%v, %+v", err, m)
	}
	hosts.Profile = []byte(`{"network":{"outbound":{"allow_host":["127.1"]}}}`)
	var e *Error
	if _, err := made(t, &hosts, nil); !errors.As(err, &e) || e.Code != CodeRefused || !strings.Contains(e.Message, "the entry's permissions: network.outbound.allow_host[0]") {
		t.Error(fmt.Sprint(err))
	}
}
