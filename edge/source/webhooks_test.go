package source_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/source"
)

// What is wrong with a file of webhooks is said with its line and field, beside
// what is wrong with the manifests, and nothing is served.
func TestWebhookFiles(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no list":             {"[a]", "hooks.yaml:1: webhooks are a mapping with the lists validating and mutating, not a list"},
		"nothing":             {"# nothing\n", "hooks.yaml:1: required: the file holds no webhooks"},
		"empty":               {"{}", "hooks.yaml:1: required: one of validating and mutating must hold a webhook"},
		"unknown field":       {"validating:\n- {name: a, url: https://a.example/, failure_polcy: fail}\n", "hooks.yaml:2: validating[0].failure_polcy: unknown field, did you mean failure_policy?"},
		"no policy":           {"mutating:\n- name: a\n  url: https://a.example/\n", "hooks.yaml:2: mutating[0].failure_policy: required: say fail or ignore"},
		"http":                {"mutating:\n- name: a\n  url: http://a.example/\n  failure_policy: fail\n", "hooks.yaml:3: mutating[0].url: \"http://a.example/\" must be https, unless tls_config.insecure_skip_verify is true"},
		"password":            {"mutating:\n- name: a\n  url: https://me:planted@a.example/\n  failure_policy: fail\n", "hooks.yaml:3: mutating[0].url: "},
		"timeout":             {"mutating:\n- name: a\n  url: https://a.example/\n  failure_policy: fail\n  timeout: 31s\n", "hooks.yaml:5: mutating[0].timeout: \"31s\" must be from 1s to 30s"},
		"another kind":        {"apiVersion: weir.dev/v1beta1\nkind: MCPGroup\nmetadata: {name: a}\n", "hooks.yaml:2: kind: \"MCPGroup\" is not read here: write an MCPWebhookConfig, or the lists validating and mutating"},
		"a kind that is none": {"apiVersion: weir.dev/v1beta1\nkind: MCPWebhookConfig\nmetadata: {name: a}\nspec:\n  validating:\n  - {name: a, url: http://a.example/}\n", "hooks.yaml:6: spec.validating[0].url: \"http://a.example/\" must be https, unless tlsConfig.insecureSkipVerify is true"},
		"no YAML":             {"validating: [", "hooks.yaml:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			write(t, "set.yaml", "groupRef: g\nname: s\nincomingAuth: {type: anonymous}\nbackends:\n- {name: b, url: \"http://127.0.0.1:1/mcp\", transport: streamable-http}\n")
			write(t, "hooks.yaml", c.text)
			r := source.OpenWith("set.yaml", "hooks.yaml")
			if r.Plan != nil || r.Err() == nil {
				t.Error("it would be served")
			}
			if got := r.Findings.Error(); !strings.HasPrefix(got, c.want) || strings.Contains(got, "planted") {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
	t.Run("not there", func(t *testing.T) {
		if r := source.OpenDefaultWith("http://127.0.0.1:1/mcp", "nowhere.yaml"); r.Plan != nil || r.Findings.Error() != "nowhere.yaml: no such file or directory" {
			t.Errorf("%v", r.Findings)
		}
	})
	t.Run("too many together", func(t *testing.T) {
		t.Chdir(t.TempDir())
		var files []string
		for _, name := range []string{"a", "b"} {
			var text strings.Builder
			text.WriteString("validating:\n")
			for i := range 10 {
				text.WriteString("- {name: " + name + string(rune('0'+i)) + ", url: \"https://a.example/\", failure_policy: fail}\n")
			}
			files = append(files, name+".yaml")
			write(t, name+".yaml", text.String())
		}
		if r := source.OpenDefaultWith("http://127.0.0.1:1/mcp", files...); r.Plan != nil || !strings.HasPrefix(r.Findings.Error(), "b.yaml:1: validating: ") {
			t.Errorf("%v", r.Findings)
		}
	})
}

// Files of either form end up in every server of the plan.
func TestWebhookFilesTogether(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "one.yaml", "validating:\n- {name: a, url: \"https://a.example/1\", failure_policy: fail}\n- {name: b, url: \"https://b.example/1\", failure_policy: fail, tls_config: {ca_bundle_path: ca.pem}}\n")
	write(t, "two.json", `{"apiVersion":"weir.dev/v1beta1","kind":"MCPWebhookConfig","metadata":{"name":"x"},"spec":{"validating":[{"name":"a","url":"https://a.example/2"}],"mutating":[{"name":"m","url":"https://m.example/2","timeout":"2s"}]}}`)
	r := source.OpenDefaultWith("http://127.0.0.1:1/mcp", "one.yaml", "two.json")
	if r.Err() != nil {
		t.Fatal(r.Findings)
	}
	for _, s := range r.Plan.Servers {
		w := s.Webhooks
		if w == nil || len(w.Validating) != 2 || len(w.Mutating) != 1 || w.Validating[0].URL != "https://a.example/2" || w.Validating[1].CAFile != "ca.pem" || w.Mutating[0].Timeout != "2s" {
			t.Errorf("%s: %+v", s.Name, w)
		}
	}
	if r := source.OpenDefaultWith("http://127.0.0.1:1/mcp"); r.Plan.Servers[0].Webhooks != nil {
		t.Error("webhooks that nobody asked for")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Clean(path), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
