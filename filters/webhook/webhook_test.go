package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/webhook"
)

func asEdge(err error, e **edge.Error) bool { return errors.As(err, e) }

func validating(hooks ...v1beta1.Webhook) v1beta1.MCPWebhookConfigSpec {
	return v1beta1.MCPWebhookConfigSpec{Validating: hooks}
}

func mutating(hooks ...v1beta1.Webhook) v1beta1.MCPWebhookConfigSpec {
	return v1beta1.MCPWebhookConfigSpec{Mutating: hooks}
}

// What a webhook is told: the message as it came, who sent it, and from where;
// never a credential.
func TestPayload(t *testing.T) {
	h := newHook(t, says(200, yes))
	s := newStage(t, validating(spec("v", h.URL+"/check?q=1", v1beta1.FailClosed)), nil)
	if got := s.outcome(t, exchange(t, call)); got != "passed" {
		t.Fatal(got)
	}
	anonymous := exchange(t, call)
	anonymous.Identity, anonymous.Target = nil, nil
	if got := s.outcome(t, anonymous); got != "passed" {
		t.Fatal(got)
	}
	all := h.asked()
	if len(all) != 2 {
		t.Fatalf("asked %d times", len(all))
	}
	got := all[0]
	if string(got.said.Request) != call {
		t.Errorf("%s", got.said.Request)
	}
	if !strings.Contains(string(got.body), `"claims":{"groups":["eng","ops"],"n":12345678901234567890}`) {
		t.Errorf("claims: %s", got.body)
	}
	p := got.said.Principal
	if p == nil || p.Sub != "alice" || p.Name != "Alice" || p.Email != "a@example.com" || strings.Join(p.Groups, " ") != "eng ops" {
		t.Errorf("%+v", p)
	}
	c := got.said.Context
	if c["server_name"] != "main" || c["backend_server"] != "github" || c["namespace"] != "prod" || c["source_ip"] != "192.0.2.7" || c["transport"] != "streamable-http" || len(c) != 5 {
		t.Errorf("%v", c)
	}
	at, err := time.Parse(time.RFC3339Nano, got.said.Timestamp)
	if err != nil || time.Since(at) > time.Minute || got.said.Version != "v0.1.0" {
		t.Errorf("%s, %v, %s", got.said.Timestamp, err, got.said.Version)
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(got.said.UID) || got.said.UID == all[1].said.UID {
		t.Errorf("uid %s, %s", got.said.UID, all[1].said.UID)
	}
	if got.header.Get("Content-Type") != "application/json" || got.header.Get("X-Weir-Signature") != "" {
		t.Errorf("%v", got.header)
	}
	if strings.Contains(string(got.body), "planted") {
		t.Errorf("a credential: %s", got.body)
	}
	if all[1].said.Principal != nil || !strings.Contains(string(all[1].body), `"principal":null`) || strings.Contains(string(all[1].body), "backend_server") {
		t.Errorf("%s", all[1].body)
	}
}

// The signature is the HMAC-SHA256 of the timestamp, a dot and the body. A key
// that was changed signs the next request.
func TestSignature(t *testing.T) {
	h := newHook(t, says(200, yes))
	one := spec("v", h.URL, v1beta1.FailClosed)
	one.HMACSecretRef = &v1beta1.SecretRef{Name: "hook", Key: "hmac"}
	s := newStage(t, validating(one), map[string]edge.Secret{"hook/hmac": "planted-hmac-key"})
	for i, key := range []string{"planted-hmac-key", "planted-hmac-key-2"} {
		s.vault.Set("hook/hmac", edge.Secret(key))
		if got := s.outcome(t, exchange(t, call)); got != "passed" {
			t.Fatal(got)
		}
		got := h.asked()[i]
		at := got.header.Get("X-Weir-Timestamp")
		if n, err := strconv.ParseInt(at, 10, 64); err != nil || time.Since(time.Unix(n, 0)).Abs() > time.Minute {
			t.Errorf("timestamp %q", at)
		}
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte(at + "." + string(got.body)))
		if want := "sha256=" + hex.EncodeToString(mac.Sum(nil)); got.header.Get("X-Weir-Signature") != want {
			t.Errorf("%s, want %s", got.header.Get("X-Weir-Signature"), want)
		}
	}
	// A key that is gone is a webhook that cannot be asked.
	s.vault.Remove("hook/hmac")
	if got := s.outcome(t, exchange(t, call)); got != "denied: Request denied by policy" || len(h.asked()) != 2 {
		t.Error(got)
	}
}

// What every answer comes to, for both types of webhook and both policies (T27).
func TestAnswers(t *testing.T) {
	const (
		forbidden = "denied: Request denied by policy"
		never     = "denied: Request denied by webhook policy"
		failed    = "Internal Server Error: -32603: Webhook error"
		passed    = "passed"
	)
	for _, c := range []struct {
		what                                   string
		answer                                 http.HandlerFunc
		validFail, validIgnore, mutFail, mutIg string
	}{
		{"yes", says(200, yes), passed, passed, passed, passed},
		{"no", says(200, no), forbidden, forbidden, never, never},
		{"an answer without allowed", says(200, `{}`), forbidden, forbidden, never, never},
		{"allowed in other letters", says(200, `{"Allowed":true}`), forbidden, forbidden, never, never},
		{"422", says(422, `planted-said-by-webhook`), forbidden, forbidden, "Unprocessable Entity: 403: Request denied by webhook policy", "Unprocessable Entity: 403: Request denied by webhook policy"},
		{"500", says(500, yes), forbidden, passed, failed, passed},
		{"404", says(404, yes), forbidden, passed, failed, passed},
		{"201", says(201, yes), forbidden, passed, failed, passed},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, forbidden, passed, failed, passed},
		{"no JSON", says(200, `planted-said-by-webhook`), forbidden, passed, failed, passed},
		{"nothing", says(200, ``), forbidden, passed, failed, passed},
		{"a list", says(200, `[true]`), forbidden, passed, failed, passed},
		{"allowed is a text", says(200, `{"allowed":"true"}`), forbidden, passed, failed, passed},
		{"allowed twice", says(200, `{"allowed":false,"allowed":true}`), forbidden, passed, failed, passed},
		{"10 MiB", func(w http.ResponseWriter, _ *http.Request) {
			chunk := []byte(strings.Repeat(" ", 1<<16))
			for range 160 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, forbidden, passed, failed, passed},
		{"the connection ends", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, forbidden, passed, failed, passed},
		{"an encoding", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			says(200, yes)(w, nil)
		}, forbidden, passed, failed, passed},
	} {
		h := newHook(t, c.answer)
		for policy, want := range map[v1beta1.FailurePolicy][2]string{v1beta1.FailClosed: {c.validFail, c.mutFail}, v1beta1.FailIgnore: {c.validIgnore, c.mutIg}} {
			if got := newStage(t, validating(spec("v", h.URL, policy)), nil).outcome(t, exchange(t, call)); got != want[0] {
				t.Errorf("%s, validating, %s: %s, want %s", c.what, policy, got, want[0])
			}
			s := newStage(t, mutating(spec("m", h.URL, policy)), nil)
			if got := s.outcome(t, exchange(t, call)); got != want[1] {
				t.Errorf("%s, mutating, %s: %s, want %s", c.what, policy, got, want[1])
			}
			if s.resolved != 0 {
				t.Errorf("%s: resolved again", c.what)
			}
		}
	}
}

// A webhook that nobody can reach, and one that keeps silent.
func TestUnreachable(t *testing.T) {
	gone := "http://" + edgetest.FreeAddress(t)
	silent := newHook(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for what, url := range map[string]string{"gone": gone, "silent": silent.URL} {
		for policy, want := range map[v1beta1.FailurePolicy]string{v1beta1.FailClosed: "denied: Request denied by policy", v1beta1.FailIgnore: "passed"} {
			one := spec("v", url, policy)
			one.Timeout = "1s"
			began := time.Now()
			s := newStage(t, validating(one), nil)
			if got := s.outcome(t, exchange(t, call)); got != want || time.Since(began) > 10*time.Second {
				t.Errorf("%s, %s: %s after %s", what, policy, got, time.Since(began))
			}
			if c := s.part.Counters()[0]; c.Failed != 1 || c.Asked != 1 {
				t.Errorf("%s: %+v", what, c)
			}
		}
	}
}

// What a webhook prints where HTTP wants a header is in no log, with either client.
func TestBrokenAnswers(t *testing.T) {
	h := newHook(t, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n{\"token\":\"planted-said-by-webhook\"}\r\n\r\n")
	})
	one := spec("v", h.URL, v1beta1.FailClosed)
	s := newStage(t, validating(one), nil)
	if got := s.outcome(t, exchange(t, call)); got != refused || !strings.Contains(s.log.String(), "no answer that is HTTP") {
		t.Errorf("%s: %s", got, s.log.String())
	}
}

// A client that leaves ends the wait, and whoever asks is told so.
func TestClientLeaves(t *testing.T) {
	asked := make(chan struct{}, 1)
	h := newHook(t, func(w http.ResponseWriter, r *http.Request) { asked <- struct{}{}; <-r.Context().Done() })
	s := newStage(t, validating(spec("v", h.URL, v1beta1.FailIgnore)), nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := s.handler.Handle(ctx, exchange(t, call)); edge.KindOf(err) != edge.Gone || len(s.passed) != 0 {
		t.Error(err)
	}
}

// Mutating webhooks come first, each sees what the one before made of the
// message, and validating ones see the last.
func TestOrder(t *testing.T) {
	first := newHook(t, says(200, patch(`[{"op":"replace","path":"/mcp_request/params/arguments/env","value":"dev"}]`)))
	second := newHook(t, says(200, patch(`[{"op":"add","path":"/mcp_request/params/arguments/by","value":"hook"}]`)))
	check := newHook(t, says(200, yes))
	s := newStage(t, v1beta1.MCPWebhookConfigSpec{
		Validating: []v1beta1.Webhook{spec("check", check.URL, v1beta1.FailClosed)},
		Mutating:   []v1beta1.Webhook{spec("first", first.URL, v1beta1.FailClosed), spec("second", second.URL, v1beta1.FailClosed)},
	}, nil)
	if got := s.outcome(t, exchange(t, call)); got != "passed" {
		t.Fatal(got)
	}
	const after = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"deploy","arguments":{"env":"dev","n":12345678901234567890,"html":"<a>&"`
	if got := string(first.asked()[0].said.Request); got != call {
		t.Error(got)
	}
	if got := string(second.asked()[0].said.Request); got != after+`}}}` {
		t.Error(got)
	}
	if got := string(check.asked()[0].said.Request); got != after+`,"by":"hook"}}}` {
		t.Error(got)
	}
	if got := string(s.passed[0].Request.Raw); got != after+`,"by":"hook"}}}` {
		t.Error(got)
	}
	all := s.part.Counters()
	if len(all) != 3 || all[0].Name != "first" || all[2].Type != "validating" || all[0].Changed != 1 || all[2].Changed != 0 || all[0].Time <= 0 {
		t.Errorf("%+v", all)
	}

	// The halves, for a hallway with something in between.
	if m, v := s.part.Mutating(), s.part.Validating(); len(m.Counters()) != 2 || len(v.Counters()) != 1 || m.Resolve == nil {
		t.Error("halves")
	}
	if parse(t, validating(spec("v", check.URL, ""))).Mutating() != nil || parse(t, mutating(spec("v", check.URL, ""))).Validating() != nil {
		t.Error("a half of nothing")
	}
}

// The first refusal is the last question.
func TestRefusalEnds(t *testing.T) {
	first, second := newHook(t, says(200, no)), newHook(t, says(200, yes))
	s := newStage(t, validating(spec("first", first.URL, v1beta1.FailIgnore), spec("second", second.URL, v1beta1.FailIgnore)), nil)
	if got := s.outcome(t, exchange(t, call)); got != "denied: Request denied by policy" || len(second.asked()) != 0 {
		t.Error(got)
	}
	if c := s.part.Counters(); c[0].Denied != 1 || c[0].Failed != 0 || c[1].Asked != 0 {
		t.Errorf("%+v", c)
	}
}

// Notifications are asked about, and a refusal of one is an error; answers of
// clients are not asked about.
func TestKinds(t *testing.T) {
	h := newHook(t, says(200, no))
	s := newStage(t, mutating(spec("m", h.URL, v1beta1.FailClosed)), nil)
	if got := s.outcome(t, exchange(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)); got != "denied: Request denied by webhook policy" {
		t.Error(got)
	}
	for _, text := range []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`} {
		if got := s.outcome(t, exchange(t, text)); got != "passed" {
			t.Error(got)
		}
	}
	if n := len(h.asked()); n != 1 {
		t.Errorf("asked %d times", n)
	}
	bad := newHook(t, says(500, ""))
	s = newStage(t, mutating(spec("m", bad.URL, v1beta1.FailClosed)), nil)
	if got := s.outcome(t, exchange(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)); got != "internal: Webhook error" {
		t.Error(got)
	}
}

// What is too large to tell a webhook is refused, whatever its policy.
func TestTooLarge(t *testing.T) {
	h := newHook(t, says(200, yes))
	s := newStage(t, validating(spec("v", h.URL, v1beta1.FailIgnore)), nil)
	text := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a","arguments":{"t":"` + strings.Repeat("x", 1<<20) + `"}}}`
	if got := s.outcome(t, exchange(t, text)); !strings.HasPrefix(got, "too large") || len(h.asked()) != 0 {
		t.Error(got)
	}
}

// A webhook that fails is logged once, and once when it answers again.
func TestLog(t *testing.T) {
	status := 500
	h := newHook(t, func(w http.ResponseWriter, _ *http.Request) { says(status, yes)(w, nil) })
	s := newStage(t, validating(spec("flaky", h.URL, v1beta1.FailIgnore)), nil)
	for range 3 {
		s.outcome(t, exchange(t, call))
	}
	status = 200
	for range 3 {
		s.outcome(t, exchange(t, call))
	}
	if log := s.log.String(); strings.Count(log, `"WARN"`) != 1 || strings.Count(log, `"INFO"`) != 1 || !strings.Contains(log, "flaky") {
		t.Error(log)
	}
	if c := s.part.Counters()[0]; c.Failed != 3 || c.Ignored != 3 || c.Asked != 6 {
		t.Errorf("%+v", c)
	}
}

// A message that was changed is what everything after the filter judges.
func TestChangedMessage(t *testing.T) {
	const modern = `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"deploy","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	h := newHook(t, says(200, patch(`[{"op":"replace","path":"/mcp_request/params/name","value":"dry-run"}]`)))
	s := newStage(t, mutating(spec("m", h.URL, v1beta1.FailClosed)), nil)
	for text, name := range map[string]string{call: "", modern: "dry-run"} {
		x := exchange(t, text)
		x.Head.Params = []edge.Header{{Name: "Mcp-Param-Env", Value: "prod"}}
		was := x.Request
		if got := s.outcome(t, x); got != "passed" {
			t.Fatal(got)
		}
		if x.Request == was || was.Text("name") != "deploy" || x.Request.Text("name") != "dry-run" || x.Name != name || x.Target.Backend != "of-dry-run" || x.Head.Params != nil || !x.Head.Remade {
			t.Errorf("%s, name %q, target %+v, params %v; it was %s", x.Request.Raw, x.Name, x.Target, x.Head.Params, was.Raw)
		}
	}
	if s.resolved != 2 {
		t.Errorf("resolved %d times", s.resolved)
	}
	p := parse(t, mutating(spec("m", h.URL, v1beta1.FailClosed)))
	if _, err := p.Open(edge.Env{}); err == nil {
		t.Error("opened without Resolve")
	}
}

func TestOpenErrors(t *testing.T) {
	one := spec("signed", "https://hooks.example.com", v1beta1.FailClosed)
	one.HMACSecretRef = &v1beta1.SecretRef{Name: "hook", Key: "hmac"}
	for _, secrets := range []edge.Secrets{&fake.Secrets{}, nil, fake.Keep(map[string]edge.Secret{"hook/hmac": ""})} {
		if _, err := parse(t, validating(one)).Open(edge.Env{Secrets: secrets}); err == nil || !strings.Contains(err.Error(), "hook/hmac") || !strings.Contains(err.Error(), "signed") {
			t.Error(err)
		}
	}
}

func TestParse(t *testing.T) {
	ref := func(name, key string) *v1beta1.SecretRef { return &v1beta1.SecretRef{Name: name, Key: key} }
	for what, c := range map[string]struct {
		spec v1beta1.MCPWebhookConfigSpec
		want string
	}{
		"nothing":   {v1beta1.MCPWebhookConfigSpec{}, "spec"},
		"no name":   {validating(spec("", "https://a", "")), "spec.validating[0].name"},
		"twice":     {mutating(spec("a", "https://a", ""), spec("a", "https://a", "")), "spec.mutating[1].name"},
		"no url":    {validating(spec("a", "", "")), "spec.validating[0].url"},
		"a scheme":  {validating(spec("a", "ftp://a", "")), "spec.validating[0].url"},
		"user info": {validating(spec("a", "https://u:planted-hmac-key@a", "")), "spec.validating[0].url"},
		"http":      {validating(v1beta1.Webhook{Name: "a", URL: "http://a"}), "spec.validating[0].url"},
		"timeouts": {validating(v1beta1.Webhook{Name: "a", URL: "https://a", Timeout: "999ms"}, v1beta1.Webhook{Name: "b", URL: "https://a", Timeout: "31s"}, v1beta1.Webhook{Name: "c", URL: "https://a", Timeout: "soon"}),
			"spec.validating[0].timeout spec.validating[1].timeout spec.validating[2].timeout"},
		"policy":                        {validating(spec("a", "https://a", "open")), "spec.validating[0].failurePolicy"},
		"secrets":                       {validating(v1beta1.Webhook{Name: "a", URL: "https://a", HMACSecretRef: ref("", "k"), TLSConfig: &v1beta1.WebhookTLS{CASecretRef: ref("n", "")}}), "spec.validating[0].hmacSecretRef.name spec.validating[0].tlsConfig.caSecretRef.key"},
		"a certificate without its key": {validating(v1beta1.Webhook{Name: "a", URL: "https://a", TLSConfig: &v1beta1.WebhookTLS{ClientCertSecretRef: ref("n", "k")}}), "spec.validating[0].tlsConfig.clientKeySecretRef"},
		"a key without its certificate": {validating(v1beta1.Webhook{Name: "a", URL: "https://a", TLSConfig: &v1beta1.WebhookTLS{ClientKeySecretRef: ref("n", "k")}}), "spec.validating[0].tlsConfig.clientCertSecretRef"},
		"too many":                      {validating(make([]v1beta1.Webhook, 17)...), "spec.validating"},
	} {
		p, errs := webhook.Parse(webhook.FromKind("", field.NewPath("spec"), c.spec))
		var fields []string
		for _, e := range errs {
			fields = append(fields, e.Field)
			if strings.Contains(e.Error(), "planted") {
				t.Errorf("%s: %v shows a password", what, e)
			}
		}
		if got := strings.Join(fields, " "); got != c.want || p != nil {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
}

// A patched initialize, id, era or kind of a message is no patch that is made.
func TestSuccessors(t *testing.T) {
	const failed = "Internal Server Error: -32603: Failed to apply patch from webhook"
	const modern = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	for _, c := range []struct{ text, ops, want string }{
		{call, `[{"op":"replace","path":"/mcp_request/id","value":8}]`, failed},
		{call, `[{"op":"replace","path":"/mcp_request/id","value":"7"}]`, failed},
		{call, `[{"op":"remove","path":"/mcp_request/id"}]`, failed},
		{call, `[{"op":"replace","path":"/mcp_request/jsonrpc","value":"1.0"}]`, failed},
		{call, `[{"op":"replace","path":"/mcp_request/method","value":"initialize"}]`, failed},
		{call, `[{"op":"replace","path":"/mcp_request/method","value":"tools/list"}]`, failed},
		{call, `[{"op":"replace","path":"/mcp_request/method","value":"prompts/get"}]`, "passed"},
		{call, `[{"op":"remove","path":"/mcp_request/method"}]`, failed},
		{call, `[{"op":"replace","path":"/mcp_request/params","value":[]}]`, failed},
		{call, `[{"op":"add","path":"/mcp_request/Params","value":{}}]`, failed},
		{call, `[{"op":"add","path":"/mcp_request/result","value":{}}]`, failed},
		{call, `[{"op":"add","path":"/mcp_request/params/_meta","value":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}]`, failed},
		{call, `[{"op":"add","path":"/mcp_request/params/_meta","value":{"example.com/audit":1}}]`, "passed"},
		{modern, `[{"op":"replace","path":"/mcp_request/params/_meta/progressToken","value":2}]`, failed},
		{modern, `[{"op":"remove","path":"/mcp_request/params/_meta"}]`, failed},
		{modern, `[{"op":"replace","path":"/mcp_request/params/name","value":5}]`, failed},
		{modern, `[{"op":"remove","path":"/mcp_request/params/name"}]`, failed},
		{modern, `[{"op":"replace","path":"/mcp_request/params/name","value":"b"}]`, "passed"},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}`, `[{"op":"replace","path":"/mcp_request/params/capabilities","value":{"sampling":{}}}]`, failed},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `[{"op":"replace","path":"/mcp_request/method","value":"ping"}]`, failed},
	} {
		h := newHook(t, says(200, patch(c.ops)))
		for policy, want := range map[v1beta1.FailurePolicy]string{v1beta1.FailClosed: c.want, v1beta1.FailIgnore: "passed"} {
			s := newStage(t, mutating(spec("m", h.URL, policy)), nil)
			x := exchange(t, c.text)
			if got := s.outcome(t, x); got != want {
				t.Errorf("%s, %s: %s, want %s", c.ops, policy, got, want)
			}
			if c.want == failed && (string(x.Request.Raw) != c.text || s.resolved != 0) {
				t.Errorf("%s: changed to %s", c.ops, x.Request.Raw)
			}
		}
	}
	if _, err := mcp.Decode([]byte(modern)); err != nil {
		t.Fatal(err)
	}
}
