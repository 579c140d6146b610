package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/webhook"
)

// planted are secrets that must appear in no error and no log: of the HMAC, of
// the client, and what a webhook says of itself.
var planted = []string{"planted-hmac-key", "planted-client-token", "planted-said-by-webhook"}

// told is a request as a webhook got it.
type told struct {
	header http.Header
	body   []byte
	said   struct {
		Version, UID, Timestamp string
		Principal               *struct {
			Sub, Name, Email string
			Groups           []string
			Claims           map[string]any
		}
		Request json.RawMessage `json:"mcp_request"`
		Context map[string]string
	}
}

// hook is a webhook on a server of its own. answer writes what it says.
type hook struct {
	*httptest.Server
	mu  sync.Mutex
	got []told
}

func (h *hook) asked() []told {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]told(nil), h.got...)
}

func newHook(t testing.TB, answer http.HandlerFunc) *hook {
	t.Helper()
	h := &hook{}
	h.Server = httptest.NewServer(h.note(t, answer))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) note(t testing.TB, answer http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one := told{header: r.Header.Clone()}
		one.body, _ = io.ReadAll(r.Body)
		if err := json.Unmarshal(one.body, &one.said); err != nil || r.Method != http.MethodPost {
			t.Errorf("%s %s: %v", r.Method, one.body, err)
		}
		h.mu.Lock()
		h.got = append(h.got, one)
		h.mu.Unlock()
		answer(w, r)
	})
}

// says answers with a status and a text.
func says(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

const (
	yes = `{"version":"v0.1.0","uid":"x","allowed":true}`
	no  = `{"version":"v0.1.0","uid":"x","allowed":false,"code":451,"message":"planted-said-by-webhook","reason":"planted-said-by-webhook"}`
)

// patch is the answer of a mutating webhook.
func patch(ops string) string {
	return `{"version":"v0.1.0","uid":"x","allowed":true,"patch_type":"json_patch","patch":` + ops + `}`
}

// spec is a webhook at a URL of http.
func spec(name, url string, policy v1beta1.FailurePolicy) v1beta1.Webhook {
	return v1beta1.Webhook{Name: name, URL: url, FailurePolicy: policy, TLSConfig: &v1beta1.WebhookTLS{InsecureSkipVerify: true}}
}

// stage is a filter under test with what it logs and what passes it.
type stage struct {
	part     *webhook.Part
	handler  edge.Handler
	log      bytes.Buffer
	passed   []*edge.Exchange
	resolved int
	vault    *fake.Secrets
}

func parse(t testing.TB, specs v1beta1.MCPWebhookConfigSpec) *webhook.Part {
	t.Helper()
	p, errs := webhook.Parse(webhook.FromKind("prod", field.NewPath("spec"), specs))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return p
}

func newStage(t testing.TB, specs v1beta1.MCPWebhookConfigSpec, secrets map[string]edge.Secret) *stage {
	t.Helper()
	return newStageOf(t, webhook.FromKind("prod", field.NewPath("spec"), specs), secrets)
}

func newStageOf(t testing.TB, spec webhook.Spec, secrets map[string]edge.Secret) *stage {
	t.Helper()
	part, errs := webhook.Parse(spec)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	s := &stage{part: part, vault: fake.Keep(secrets)}
	s.part.Resolve = func(_ context.Context, x *edge.Exchange) (*edge.Target, error) {
		s.resolved++
		return &edge.Target{Backend: "of-" + x.Request.Text("name"), Name: x.Request.Text("name"), Thing: edge.Tool}, nil
	}
	f, err := s.part.Open(s.env(t))
	if err != nil {
		t.Fatal(err)
	}
	s.handler = f(edge.HandlerFunc(func(_ context.Context, x *edge.Exchange) (*edge.Response, error) {
		s.passed = append(s.passed, x)
		return nil, nil
	}))
	return s
}

func (s *stage) env(t testing.TB) edge.Env {
	return edge.Env{Log: slog.New(slog.NewJSONHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Secrets: s.vault, Defer: t.Cleanup}
}

const call = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"deploy","arguments":{"env":"prod","n":12345678901234567890,"html":"<a>&"}}}`

// exchange is one of a client with a token.
func exchange(t testing.TB, text string) *edge.Exchange {
	t.Helper()
	m, err := mcp.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	x := &edge.Exchange{
		Server: "main", Request: m, Head: edge.Head{Remote: "192.0.2.7"},
		Target: &edge.Target{Backend: "github", Name: "deploy", Original: "deploy", Thing: edge.Tool},
		Identity: &edge.Identity{Issuer: "https://idp", Subject: "alice", Name: "Alice", Email: "a@example.com", Token: "planted-client-token",
			Claims: map[string]any{"groups": []any{"eng", "ops"}, "n": json.Number("12345678901234567890")}},
	}
	if m.Meta(mcp.MetaVersion).OK() {
		x.Era, x.Name = mcp.Modern, m.Text("name")
	}
	return x
}

// outcome is what came of an exchange: "passed", or the status, code and text of
// its end.
func (s *stage) outcome(t testing.TB, x *edge.Exchange) string {
	t.Helper()
	before := len(s.passed)
	r, err := s.handler.Handle(t.Context(), x)
	for _, secret := range planted {
		if err != nil && strings.Contains(err.Error(), secret) || r != nil && bytes.Contains(r.Raw, []byte(secret)) || strings.Contains(s.log.String(), secret) {
			t.Errorf("%s: shown by the error %v, the answer %v or the log %s", secret, err, r, s.log.String())
		}
	}
	switch {
	case len(s.passed) > before:
		if r != nil || err != nil {
			t.Errorf("passed, and %v, %v", r, err)
		}
		return "passed"
	case err != nil:
		var e *edge.Error
		if !asEdge(err, &e) {
			t.Fatalf("%v is no edge.Error", err)
		}
		return kinds[e.Kind] + ": " + e.Err.Error()
	case r == nil:
		return "nothing"
	}
	if string(r.IDText()) != string(x.Request.IDText()) {
		t.Errorf("answered under the id %s", r.IDText())
	}
	return strings.Join([]string{http.StatusText(r.Status), string(r.Get("code").Of(r.Raw)), r.Text("message")}, ": ")
}

var kinds = map[edge.Kind]string{edge.Denied: "denied", edge.Internal: "internal", edge.TooLarge: "too large", edge.Gone: "gone"}
