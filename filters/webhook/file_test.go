package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/webhook"
)

// file reads a file of webhooks.
func file(t testing.TB, text string) (webhook.Spec, field.ErrorList) {
	t.Helper()
	var f webhook.File
	if err := yaml.UnmarshalStrict([]byte(text), &f); err != nil {
		t.Fatal(err)
	}
	s, wrong := f.Spec()
	_, errs := webhook.Parse(s)
	return s, append(wrong, errs...)
}

// What is wrong with a file is told by the names that its fields have there.
func TestFile(t *testing.T) {
	for text, want := range map[string][]string{
		`{}`: {": Required"},
		`validating: [{name: a, url: "https://a.example/"}]`:                                                                                 {"validating[0].failure_policy: Required"},
		`mutating: [{name: a, url: "http://a.example/", failure_policy: fail}]`:                                                              {"mutating[0].url: Invalid", "tls_config.insecure_skip_verify"},
		`mutating: [{name: a, url: "https://a.example/", failure_policy: later, timeout: 1h}]`:                                               {"mutating[0].failure_policy: Unsupported", "mutating[0].timeout: Invalid"},
		`mutating: [{name: a, url: "https://a.example/", failure_policy: fail, tls_config: {client_cert_path: a.pem}}]`:                      {"mutating[0].tls_config.client_key_path: Required", "client_cert_path"},
		`mutating: [{name: a, url: "https://a.example/", failure_policy: fail, tls_config: {client_key_path: a.pem}}]`:                       {"mutating[0].tls_config.client_cert_path: Required"},
		`mutating: [{name: a, url: "https://a.example/", failure_policy: fail, hmac_secret_ref: {name: hook}}]`:                              {"mutating[0].hmac_secret_ref.key: Required"},
		`mutating: [{name: a, url: "https://a.example/", failure_policy: fail}, {name: a, url: "https://b.example/", failure_policy: fail}]`: {"mutating[1].name: Duplicate"},
	} {
		_, errs := file(t, text)
		for _, part := range want {
			if errs.ToAggregate() == nil || !strings.Contains(errs.ToAggregate().Error(), part) {
				t.Errorf("%s: %v lacks %q", text, errs, part)
			}
		}
	}
}

// Of several files the later one wins, in the place that the name had first.
func TestFiles(t *testing.T) {
	one, errs := file(t, `
validating:
- {name: a, url: "https://a.example/1", failure_policy: fail}
- {name: b, url: "https://b.example/1", failure_policy: fail}
`)
	other, more := file(t, `
validating:
- {name: c, url: "https://c.example/2", failure_policy: ignore}
- {name: a, url: "https://a.example/2", failure_policy: ignore}
mutating:
- {name: a, url: "https://m.example/2", failure_policy: fail}
`)
	if len(errs)+len(more) > 0 {
		t.Fatal(errs, more)
	}
	both := one.With(other)
	var got []string
	for _, h := range append(both.Mutating, both.Validating...) {
		got = append(got, h.URL)
	}
	if want := "https://m.example/2 https://a.example/2 https://b.example/1 https://c.example/2"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
	if one.Validating[0].URL != "https://a.example/1" {
		t.Error("the first file was changed")
	}
}

// Certificates of files are those of secrets: both sides prove who they are, a
// file that changes is used by the next request, and one that holds none is
// found when the plan opens.
func TestFilesOfCertificates(t *testing.T) {
	servers, clients, others := newAuthority(t), newAuthority(t), newAuthority(t)
	h := newTLSHook(t, servers, clients)
	dir := t.TempDir()
	write := func(name string, text edge.Secret) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert, key := clients.issue(t, "edge")
	ca := write("ca.pem", servers.pem)
	write("cert.pem", cert)
	write("key.pem", key)
	spec, errs := file(t, fmt.Sprintf(`validating: [{name: v, url: %q, failure_policy: fail, tls_config: {ca_bundle_path: %q, client_cert_path: %q, client_key_path: %q}}]`,
		h.URL, ca, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	s := newStageOf(t, spec, nil)
	for _, step := range []struct {
		what  string
		certs *authority
		want  string
	}{{"ours", clients, "passed"}, {"another authority's", others, refused}, {"ours again", clients, "passed"}} {
		cert, key := step.certs.issue(t, "edge")
		write("cert.pem", cert)
		write("key.pem", key)
		if got := s.outcome(t, exchange(t, call)); got != step.want {
			t.Errorf("%s: %s: %s", step.what, got, s.log.String())
		}
	}
	for what, text := range map[string]edge.Secret{"empty": "", "no certificate": "planted-hmac-key", "too large": edge.Secret(strings.Repeat(" ", 1<<20+1))} {
		write("ca.pem", text)
		p, errs := webhook.Parse(spec)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if _, err := p.Open(s.env(t)); err == nil || !strings.Contains(err.Error(), ca) || strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// An error of the lookup is the answer: no webhook's policy has a say in it.
func TestTargetThatCannotBeFound(t *testing.T) {
	h := newHook(t, says(200, patch(`[{"op":"replace","path":"/mcp_request/params/name","value":"b"}]`)))
	s := newStage(t, mutating(spec("m", h.URL, v1beta1.FailIgnore)), nil)
	away := edge.Errorf(edge.Unavailable, "route", "backend %q unavailable", "b")
	s.part.Resolve = func(context.Context, *edge.Exchange) (*edge.Target, error) { return nil, away }
	if _, err := s.handler.Handle(t.Context(), exchange(t, call)); !errors.Is(err, away) || len(s.passed) != 0 {
		t.Errorf("%v, passed %d", err, len(s.passed))
	}
	if c := s.part.Counters()[0]; c.Failed != 0 || c.Changed != 1 {
		t.Errorf("%+v", c)
	}
}
