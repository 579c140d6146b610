package outgoing_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// planted is a secret that must appear nowhere but at the backend.
const planted = "planted-3fae!s&cret"

var spec = field.NewPath("spec")

// kind parses a manifest's spec; config an entry of outgoingAuth.
func kind(t testing.TB, text string) (outgoing.Strategy, field.ErrorList) {
	t.Helper()
	var s v1beta1.MCPExternalAuthConfigSpec
	if err := yaml.UnmarshalStrict([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return outgoing.Parse(spec, &s)
}

func config(t testing.TB, text string) (outgoing.Strategy, field.ErrorList) {
	t.Helper()
	var s v1beta1.OutgoingStrategy
	if err := yaml.UnmarshalStrict([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return outgoing.ParseConfig(spec, &s)
}

func open(t testing.TB, s outgoing.Strategy, v *fake.Secrets) outgoing.Attach {
	t.Helper()
	attach, err := s.Open(edge.Env{Secrets: v})
	if err != nil {
		t.Fatal(err)
	}
	return attach
}

// call sends a request as the back door does: lines of the client, without
// those that the strategy sets, and what it attaches. It returns what arrived.
func call(t testing.TB, s outgoing.Strategy, attach outgoing.Attach, client ...edge.Header) (http.Header, error) {
	t.Helper()
	var got http.Header
	backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() }))
	defer backend.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, backend.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range outgoing.Without(client, s.Names()) {
		req.Header[h.Name] = append(req.Header[h.Name], h.Value) // as written, not canonical
	}
	x := &edge.Exchange{Identity: &edge.Identity{Token: "token-of-the-client"}}
	if _, err := attach(t.Context(), &edge.Outbound{Exchange: x}, func(name string, value edge.Secret) {
		req.Header[name] = append(req.Header[name], string(value))
	}); err != nil {
		return nil, err
	}
	resp, err := backend.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for _, values := range got {
		if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, "token-of-the-client") }) {
			t.Error("the client's token reached the backend")
		}
	}
	return got, nil
}

func TestWays(t *testing.T) {
	t.Setenv("OUTGOING_KEY", planted)
	v := &fake.Secrets{}
	v.Set("github/token", planted)
	v.Set("lines/token", planted+"\r\n")
	for _, c := range []struct {
		what, name, want string
		s                outgoing.Strategy
	}{
		{"a header of a secret", "X-Api-Key", planted, must(kind(t, `{type: headerInjection, headerInjection: {headerName: X-Api-Key, valueSecretRef: {name: github, key: token}}}`))},
		{"a line break at the end", "X-Api-Key", planted, must(kind(t, `{type: headerInjection, headerInjection: {headerName: X-Api-Key, valueSecretRef: {name: lines, key: token}}}`))},
		{"a bearer token", "Authorization", "Bearer " + planted, must(kind(t, `{type: bearerToken, bearerToken: {tokenSecretRef: {name: github, key: token}}}`))},
		{"a bearer token with a line break", "Authorization", "Bearer " + planted, must(kind(t, `{type: bearerToken, bearerToken: {tokenSecretRef: {name: lines, key: token}}}`))},
		{"a header in place", "X-Api-Key", planted, must(config(t, `{type: header_injection, headerInjection: {headerName: X-Api-Key, headerValue: "`+planted+`"}}`))},
		{"a header of the environment", "X-Api-Key", planted, must(config(t, `{type: header_injection, headerInjection: {headerName: X-Api-Key, headerValueEnv: OUTGOING_KEY}}`))},
		{"a cookie that a strategy sets", "Cookie", planted, must(config(t, `{type: header_injection, headerInjection: {headerName: Cookie, headerValue: "`+planted+`"}}`))},
		{"nothing", "Authorization", "", must(kind(t, `{type: unauthenticated}`))},
		{"nothing by config", "Authorization", "", must(config(t, `{type: unauthenticated}`))},
	} {
		got, err := call(t, c.s, open(t, c.s, v))
		if err != nil || got.Get(c.name) != c.want || len(got.Values(c.name)) > 1 {
			t.Errorf("%s: %q, %v", c.what, got.Values(c.name), err)
		}
	}
}

func must(s outgoing.Strategy, errs field.ErrorList) outgoing.Strategy {
	if len(errs) > 0 {
		panic(errs)
	}
	return s
}

// S35: whatever a client sends under the name of an injected header, the
// backend sees the configured value once.
func TestInjectedOnce(t *testing.T) {
	v := &fake.Secrets{}
	v.Set("a/b", planted)
	s := must(kind(t, `{type: headerInjection, headerInjection: {headerName: X-Api-Key, valueSecretRef: {name: a, key: b}}}`))
	attach := open(t, s, v)
	for _, name := range []string{"X-Api-Key", "x-api-key", "X-API-KEY", "X_Api_Key", "x_api-key"} {
		client := []edge.Header{{Name: "X-Kept", Value: "1"}, {Name: name, Value: "evil"}, {Name: name, Value: "evil too"}, {Name: "X-Kept", Value: "2"}}
		got, err := call(t, s, attach, client...)
		if err != nil {
			t.Fatal(err)
		}
		for at, values := range got {
			for _, value := range values {
				if strings.Contains(value, "evil") {
					t.Errorf("%s: %s: %s arrived", name, at, value)
				}
			}
		}
		if values := got.Values("X-Api-Key"); len(values) != 1 || values[0] != planted {
			t.Errorf("%s: %q", name, values)
		}
		if kept := got.Values("X-Kept"); !slices.Equal(kept, []string{"1", "2"}) {
			t.Errorf("%s: kept %q", name, kept)
		}
		if client[1].Value != "evil" {
			t.Error("the client's lines were changed")
		}
	}
}

// S36: a value that would end its header is an error at the start, which names
// where the value comes from and not what it is.
func TestUnfitValues(t *testing.T) {
	for _, value := range []string{planted + "\r\nX-Evil: y", planted + "\nX-Evil: y", planted + "\rX", planted + "\x00", planted + "\x1b[0m", planted + "\x7f", "\n", " " + planted, planted + " ", planted + "\n\n", planted + strings.Repeat("x", 16<<10)} {
		v := &fake.Secrets{}
		v.Set("github/token", edge.Secret(value))
		for what, s := range map[string]outgoing.Strategy{
			"header": must(kind(t, `{type: headerInjection, headerInjection: {headerName: X-Api-Key, valueSecretRef: {name: github, key: token}}}`)),
			"bearer": must(kind(t, `{type: bearerToken, bearerToken: {tokenSecretRef: {name: github, key: token}}}`)),
		} {
			_, err := s.Open(edge.Env{Secrets: v})
			if err == nil {
				t.Errorf("%s: %q opened", what, value)
				continue
			}
			if !strings.Contains(err.Error(), "github/token") {
				t.Errorf("%s: %v does not name the secret", what, err)
			}
			clean(t, err)
		}
		// In place, and in the environment, where a NUL cannot be.
		_, errs := outgoing.ParseConfig(spec, &v1beta1.OutgoingStrategy{Type: v1beta1.StrategyHeaderInjection, HeaderInjection: &v1beta1.ConfigHeaderInjection{HeaderName: "X-Api-Key", HeaderValue: value}})
		if len(errs) != 1 || errs[0].Field != "spec.headerInjection.headerValue" {
			t.Errorf("%q in place: %v", value, errs)
		}
		clean(t, errs.ToAggregate())
		if strings.Contains(value, "\x00") {
			continue
		}
		t.Setenv("OUTGOING_KEY", value)
		_, err := must(config(t, `{type: header_injection, headerInjection: {headerName: X-Api-Key, headerValueEnv: OUTGOING_KEY}}`)).Open(edge.Env{})
		if err == nil || !strings.Contains(err.Error(), "OUTGOING_KEY") {
			t.Errorf("%q in the environment: %v", value, err)
		}
		clean(t, err)
	}
	v := &fake.Secrets{}
	v.Set("github/token", "Bearer "+planted)
	if _, err := must(kind(t, `{type: bearerToken, bearerToken: {tokenSecretRef: {name: github, key: token}}}`)).Open(edge.Env{Secrets: v}); err == nil {
		t.Error("a token with Bearer before it")
	} else {
		clean(t, err)
	}
}

// clean demands that no way of printing something shows the planted secret (K16).
func clean(t testing.TB, values ...any) {
	t.Helper()
	var log bytes.Buffer
	for _, v := range values {
		fmt.Fprintf(&log, "%v %+v %#v %s %q\n", v, v, v, v, v)
		slog.New(slog.NewJSONHandler(&log, nil)).Error("x", "value", v)
		slog.New(slog.NewTextHandler(&log, nil)).Error("x", "value", v)
		if err, ok := v.(error); ok {
			for ; err != nil; err = errors.Unwrap(err) {
				fmt.Fprintf(&log, "%v %+v %#v\n", err, err, err)
			}
		}
	}
	for _, form := range []string{planted, base64.StdEncoding.EncodeToString([]byte(planted)), url.QueryEscape(planted), strings.ReplaceAll(planted, "&", `\u0026`)} {
		if strings.Contains(log.String(), form) {
			t.Errorf("shows the secret: %s", log.String())
		}
	}
}

// Strategies print without their values.
func TestStrategiesArePrintable(t *testing.T) {
	s := must(config(t, `{type: header_injection, headerInjection: {headerName: X-Api-Key, headerValue: "`+planted+`"}}`))
	two, err := outgoing.Join(s, must(config(t, `{type: header_injection, headerInjection: {headerName: X-Other, headerValue: "`+planted+`"}}`)))
	if err != nil {
		t.Fatal(err)
	}
	clean(t, s, two, struct{ Auth outgoing.Strategy }{two})
	if got := fmt.Sprint(two); got != "outgoing[X-Api-Key X-Other]" {
		t.Error(got)
	}
}

// A secret that was changed is used by the next call; one that is gone, or can
// no longer stand in a header, fails it, and nothing is sent in its place.
func TestRotation(t *testing.T) {
	v := &fake.Secrets{}
	v.Set("a/b", "one")
	s := must(kind(t, `{type: bearerToken, bearerToken: {tokenSecretRef: {name: a, key: b}}}`))
	attach := open(t, s, v)
	for _, value := range []string{"one", "one", "two", "one"} {
		v.Set("a/b", edge.Secret(value))
		got, err := call(t, s, attach)
		if err != nil || got.Get("Authorization") != "Bearer "+value {
			t.Errorf("%q, %v; want %s", got.Get("Authorization"), err, value)
		}
	}
	fails := func(what string) {
		t.Helper()
		_, err := attach(t.Context(), &edge.Outbound{Exchange: &edge.Exchange{}}, func(string, edge.Secret) { t.Errorf("%s: something was attached", what) })
		var e *edge.Error
		if !errors.As(err, &e) || e.Kind != edge.Unavailable {
			t.Fatalf("%s: %v", what, err)
		}
		if e.Err.Error() != "no credential for the backend" || !strings.Contains(err.Error(), "a/b") {
			t.Errorf("%s: a client reads %q, the log %q", what, e.Err, err)
		}
		clean(t, err)
	}
	v.Set("a/b", planted+"\r\nX: y")
	fails("a value that ends its header")
	v.Remove("a/b")
	fails("a secret that is gone")
	v.Set("a/b", "back")
	if got, err := call(t, s, attach); err != nil || got.Get("Authorization") != "Bearer back" {
		t.Error(got, err)
	}
}

// What is missing when the plan opens is an error then.
func TestMissingAtOpen(t *testing.T) {
	for text, part := range map[string]string{
		`{type: bearerToken, bearerToken: {tokenSecretRef: {name: a, key: b}}}`:                                "a/b",
		`{type: headerInjection, headerInjection: {headerName: X-Api-Key, valueSecretRef: {name: a, key: b}}}`: "a/b",
	} {
		for _, env := range []edge.Env{{Secrets: &fake.Secrets{}}, {}} {
			if _, err := must(kind(t, text)).Open(env); err == nil || !strings.Contains(err.Error(), part) {
				t.Error(err)
			}
		}
	}
	_, err := must(config(t, `{type: header_injection, headerInjection: {headerName: X-Api-Key, headerValueEnv: WEIR_TEST_NOT_SET}}`)).Open(edge.Env{})
	if err == nil || !strings.Contains(err.Error(), "WEIR_TEST_NOT_SET") {
		t.Error(err)
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{type: headerInjection}`: "spec.headerInjection",
		`{type: headerInjection, headerInjection: {headerName: "", valueSecretRef: {name: a, key: b}}}`:     "spec.headerInjection.headerName",
		`{type: headerInjection, headerInjection: {headerName: "a b", valueSecretRef: {name: a, key: b}}}`:  "spec.headerInjection.headerName",
		`{type: headerInjection, headerInjection: {headerName: Host, valueSecretRef: {name: "", key: ""}}}`: "spec.headerInjection.headerName spec.headerInjection.valueSecretRef.key spec.headerInjection.valueSecretRef.name",
		`{type: bearerToken}`: "spec.bearerToken",
		`{type: bearerToken, bearerToken: {tokenSecretRef: {name: a, key: ""}}}`: "spec.bearerToken.tokenSecretRef.key",
		`{type: tokenExchange}`:      "spec.tokenExchange",
		`{type: cloudSts}`:           "spec.cloudSts",
		`{type: upstreamInject}`:     "spec.upstreamInject",
		`{type: obo}`:                "spec.obo",
		`{type: xaa}`:                "spec.xaa",
		`{type: embeddedAuthServer}`: "spec.type",
		`{type: ""}`:                 "spec.type",
	} {
		s, errs := kind(t, text)
		check(t, text, s, errs, want)
	}
	for text, want := range map[string]string{
		`{type: header_injection}`:                                                                      "spec.headerInjection",
		`{type: header_injection, headerInjection: {headerName: X}}`:                                    "spec.headerInjection.headerValue",
		`{type: header_injection, headerInjection: {headerName: X, headerValue: a, headerValueEnv: B}}`: "spec.headerInjection.headerValueEnv",
		`{type: header_injection, headerInjection: {headerName: Mcp-Session-Id, headerValue: a}}`:       "spec.headerInjection.headerName",
		`{type: token_exchange}`:  "spec.tokenExchange",
		`{type: upstream_inject}`: "spec.upstreamInject",
		`{type: obo}`:             "spec.obo",
		`{type: xaa}`:             "spec.xaa",
	} {
		s, errs := config(t, text)
		check(t, text, s, errs, want)
	}
}

func check(t *testing.T, text string, s outgoing.Strategy, errs field.ErrorList, want string) {
	t.Helper()
	var fields []string
	for _, e := range errs {
		fields = append(fields, e.Field)
	}
	slices.Sort(fields)
	if got := strings.Join(fields, " "); got != want || s != nil {
		t.Errorf("%s: %s, want %s", text, got, want)
	}
}

func TestRestricted(t *testing.T) {
	for _, name := range strings.Fields(`Host host Connection Keep-Alive TE Trailer Transfer-Encoding Content-Length Upgrade Proxy-Authorization Proxy-Connection
		Content-Type Content-Encoding Accept Accept-Encoding User-Agent Expect Mcp-Session-Id mcp-protocol-version Mcp-Method Mcp-Name Mcp-Param-Region mcp-whatever
		Last-Event-ID Forwarded X-Forwarded-For x_forwarded_for X-Real-IP Transfer_Encoding`) {
		if !outgoing.Restricted(name) {
			t.Errorf("%s is allowed", name)
		}
		s, errs := kind(t, `{type: headerInjection, headerInjection: {headerName: `+name+`, valueSecretRef: {name: a, key: b}}}`)
		check(t, name, s, errs, "spec.headerInjection.headerName")
	}
	for _, name := range strings.Fields(`Authorization Cookie X-Api-Key X-Hostname Accept-Language Traceparent McpX`) {
		if outgoing.Restricted(name) {
			t.Errorf("%s is restricted", name)
		}
	}
	for _, name := range []string{"Authorization", "authorization", "Proxy_Authorization", "COOKIE", "Cookie2"} {
		if !outgoing.Credential(name) {
			t.Errorf("%s is no credential", name)
		}
	}
	if outgoing.Credential("X-Api-Key") {
		t.Error("any header may be one")
	}
}

func TestForward(t *testing.T) {
	v := &fake.Secrets{}
	v.Set("a/b", planted)
	f := &v1beta1.HeaderForward{
		AddPlaintextHeaders:  map[string]string{"X-Tenant": "acme", "X-Area": "eu"},
		AddHeadersFromSecret: []v1beta1.SecretHeader{{HeaderName: "X-Api-Key", ValueSecretRef: v1beta1.SecretRef{Name: "a", Key: "b"}}},
	}
	s := must(outgoing.ParseForward(spec, f))
	got, err := call(t, s, open(t, s, v), edge.Header{Name: "x-tenant", Value: "evil"})
	if err != nil || got.Get("X-Tenant") != "acme" || got.Get("X-Area") != "eu" || got.Get("X-Api-Key") != planted {
		t.Error(got, err)
	}
	f.AddPlaintextHeaders["x-api-key"] = "again"
	f.AddPlaintextHeaders["X-Line"] = planted + "\n"
	refused, errs := outgoing.ParseForward(spec, f)
	check(t, "twice", refused, errs, "spec.addHeadersFromSecret[0].headerName spec.addPlaintextHeaders[X-Line]")
	clean(t, errs.ToAggregate())
	if s := must(outgoing.ParseForward(spec, nil)); len(s.Names()) != 0 {
		t.Error(s.Names())
	}
}

// A credential is one in whichever way it goes, and a header that says something else is none.
func TestAuthorizes(t *testing.T) {
	secret := func(name string) *v1beta1.HeaderForward {
		return &v1beta1.HeaderForward{AddHeadersFromSecret: []v1beta1.SecretHeader{{HeaderName: name}}}
	}
	for want, all := range map[bool][]*outgoing.Spec{
		true: {
			{Kind: &v1beta1.MCPExternalAuthConfigSpec{}}, {Config: &v1beta1.OutgoingStrategy{}}, {Forward: secret("authorization")},
			{Forward: &v1beta1.HeaderForward{AddPlaintextHeaders: map[string]string{"Authorization": "a"}}},
		},
		false: {nil, {}, {Forward: secret("X-Team")}, {Forward: &v1beta1.HeaderForward{AddPlaintextHeaders: map[string]string{"X-Team": "a"}}}},
	} {
		for i, s := range all {
			if s.Authorizes() != want {
				t.Errorf("%t: %d", want, i)
			}
		}
	}
}

func TestJoin(t *testing.T) {
	v := &fake.Secrets{}
	v.Set("a/b", planted)
	token := must(kind(t, `{type: bearerToken, bearerToken: {tokenSecretRef: {name: a, key: b}}}`))
	tenant := must(config(t, `{type: header_injection, headerInjection: {headerName: X-Tenant, headerValue: acme}}`))
	nothing := must(kind(t, `{type: unauthenticated}`))
	s, err := outgoing.Join(nil, token, nothing, tenant)
	if err != nil || !slices.Equal(s.Names(), []string{"Authorization", "X-Tenant"}) {
		t.Fatal(s, err)
	}
	attach := open(t, s, v)
	got, err := call(t, s, attach)
	if err != nil || got.Get("Authorization") != "Bearer "+planted || got.Get("X-Tenant") != "acme" {
		t.Error(got, err)
	}
	v.Remove("a/b")
	if _, err := call(t, s, attach); edge.KindOf(err) != edge.Unavailable {
		t.Error(err)
	}
	if _, err := s.Open(edge.Env{Secrets: v}); err == nil {
		t.Error("opened without its secret")
	}
	if _, err := outgoing.Join(token, tenant, token); err == nil || !strings.Contains(err.Error(), "Authorization") {
		t.Error(err)
	}
	if one, _ := outgoing.Join(nothing, token); !slices.Equal(one.Names(), token.Names()) {
		t.Error(one.Names())
	}
	if none, _ := outgoing.Join(nothing); len(none.Names()) != 0 {
		t.Error(none.Names())
	}
}

// Many calls at once while the secret is changed: each gets a whole value.
func TestConcurrentRotation(t *testing.T) {
	v := &fake.Secrets{}
	v.Set("a/b", "v0")
	s := must(kind(t, `{type: bearerToken, bearerToken: {tokenSecretRef: {name: a, key: b}}}`))
	attach := open(t, s, v)
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for range 2000 {
				if _, err := attach(t.Context(), &edge.Outbound{}, func(_ string, value edge.Secret) {
					if !strings.HasPrefix(string(value), "Bearer v") {
						t.Errorf("%q", string(value))
					}
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 2000 {
		v.Set("a/b", edge.Secret(fmt.Sprint("v", i)))
	}
	work.Wait()
}

func FuzzValue(f *testing.F) {
	f.Add("plain")
	f.Add("a\r\nX: y")
	f.Add("\x00")
	f.Fuzz(func(t *testing.T, value string) {
		v := &fake.Secrets{}
		v.Set("a/b", edge.Secret(value))
		attach, err := must(outgoing.Parse(spec, &v1beta1.MCPExternalAuthConfigSpec{Type: v1beta1.AuthHeaderInjection,
			HeaderInjection: &v1beta1.HeaderInjection{HeaderName: "X-Api-Key", ValueSecretRef: v1beta1.SecretRef{Name: "a", Key: "b"}}})).Open(edge.Env{Secrets: v})
		if err != nil {
			return
		}
		if _, err := attach(t.Context(), &edge.Outbound{}, func(_ string, line edge.Secret) {
			if line == "" || strings.ContainsAny(string(line), "\r\n\x00") {
				t.Errorf("%q", string(line))
			}
		}); err != nil {
			t.Error(err)
		}
	})
}

func BenchmarkStatic(b *testing.B) {
	attach := open(b, must(config(b, `{type: header_injection, headerInjection: {headerName: X-Api-Key, headerValue: abc}}`)), nil)
	benchmark(b, attach)
}

func BenchmarkSecret(b *testing.B) {
	v := &fake.Secrets{}
	v.Set("a/b", "token")
	attach := open(b, must(kind(b, `{type: bearerToken, bearerToken: {tokenSecretRef: {name: a, key: b}}}`)), v)
	benchmark(b, attach)
}

func benchmark(b *testing.B, attach outgoing.Attach) {
	x := &edge.Outbound{Exchange: &edge.Exchange{}}
	var line []byte
	set := func(name string, value edge.Secret) { line = append(append(line[:0], name...), value...) }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := attach(b.Context(), x, set); err != nil {
			b.Fatal(err)
		}
	}
}

// A header with a static value costs no allocation.
func TestStaticAllocatesNothing(t *testing.T) {
	attach := open(t, must(config(t, `{type: header_injection, headerInjection: {headerName: X-Api-Key, headerValue: abc}}`)), nil)
	x := &edge.Outbound{Exchange: &edge.Exchange{}}
	line := make([]byte, 0, 64)
	set := func(name string, value edge.Secret) { line = append(append(line[:0], name...), value...) }
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		if _, err := attach(ctx, x, set); err != nil {
			t.Error("failed")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
