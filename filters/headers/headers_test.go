package headers_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/headers"
)

var path = field.NewPath("spec", "passthroughHeaders")

func parse(t testing.TB, allow, strip []string) *headers.Part {
	t.Helper()
	p, errs := headers.Parse(path, allow, strip)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return p
}

// pass walks an exchange through the filter.
func pass(t testing.TB, p *headers.Part, x *edge.Exchange) error {
	t.Helper()
	f, err := p.Open(edge.Env{})
	if err != nil {
		t.Fatal(err)
	}
	passed := false
	_, err = f(edge.HandlerFunc(func(context.Context, *edge.Exchange) (*edge.Response, error) { passed = true; return nil, nil })).Handle(t.Context(), x)
	if passed != (err == nil) {
		t.Errorf("passed: %t, error: %v", passed, err)
	}
	return err
}

// from makes an exchange as the door does, of lines such as "Name: value".
func from(p *headers.Part, lines ...string) *edge.Exchange {
	x := &edge.Exchange{}
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		x.Forward = p.Take(x.Forward, []byte(name), []byte(value))
	}
	return x
}

func lines(x *edge.Exchange) []string {
	var out []string
	for _, h := range x.Forward {
		out = append(out, h.Name+": "+h.Value)
	}
	return out
}

// What is listed passes as it came, line by line; nothing else does.
func TestPass(t *testing.T) {
	p := parse(t, []string{"X-Tenant", "traceparent", "X-Empty", "X-Own"}, []string{"x-own"})
	x := from(p, "x-tenant: a", "X-Other: b", "X-TENANT: c, d", "Traceparent: \xe2\x82\xac", "Authorization: Bearer t", "X-Empty: ", "X_Tenant: e", "X-Tenant-2: f", "X-Own: g", ": h")
	if err := pass(t, p, x); err != nil {
		t.Fatal(err)
	}
	if got, want := lines(x), []string{"x-tenant: a", "X-TENANT: c, d", "Traceparent: \xe2\x82\xac", "X-Empty: "}; !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// Lines that something else put there are held to the list, too.
func TestWhoeverPutItThere(t *testing.T) {
	p := parse(t, []string{"X-Tenant"}, nil)
	x := &edge.Exchange{Forward: []edge.Header{{Name: "Cookie", Value: "a"}, {Name: "x-tenant", Value: "b"}, {Name: "Authorization", Value: "Bearer t"}}}
	if err := pass(t, p, x); err != nil || !slices.Equal(lines(x), []string{"x-tenant: b"}) {
		t.Error(lines(x), err)
	}
	none := parse(t, nil, nil)
	x = &edge.Exchange{Forward: []edge.Header{{Name: "X-Tenant", Value: "b"}}}
	if err := pass(t, none, x); err != nil || len(x.Forward) != 0 {
		t.Error(lines(x), err)
	}
}

func TestBounds(t *testing.T) {
	p := parse(t, []string{"X-A"}, nil)
	many := make([]string, headers.MaxLines)
	for i := range many {
		many[i] = "X-A: v"
	}
	if err := pass(t, p, from(p, many...)); err != nil {
		t.Error(err)
	}
	x := from(p, slices.Repeat(many, 100)...)
	if len(x.Forward) != headers.MaxLines+1 {
		t.Errorf("%d lines were kept", len(x.Forward))
	}
	if err := pass(t, p, x); edge.KindOf(err) != edge.Invalid {
		t.Error(err)
	}
	if err := pass(t, p, from(p, "X-A: "+strings.Repeat("v", headers.MaxBytes-3))); err != nil {
		t.Error(err)
	}
	half := "X-A: " + strings.Repeat("v", headers.MaxBytes/2)
	x = from(p, half, half, half, half)
	if len(x.Forward) != 2 {
		t.Errorf("%d lines were kept", len(x.Forward))
	}
	if err := pass(t, p, x); edge.KindOf(err) != edge.Invalid || strings.Contains(err.Error(), "vvv") {
		t.Error(err)
	}
}

// A value that would end its line does not pass, and is not told.
func TestControlCharacters(t *testing.T) {
	p := parse(t, []string{"X-A"}, nil)
	for _, value := range []string{"a\r\nX-Evil: b", "a\nb", "a\rb", "a\x00", "a\x7f", "\x1b[0m"} {
		err := pass(t, p, from(p, "X-A: hunter2"+value))
		if edge.KindOf(err) != edge.Invalid || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", value, err)
		}
	}
	if err := pass(t, p, from(p, "X-A: a\tb")); err != nil {
		t.Error(err)
	}
}

// The copy shares no memory with the server that read the header.
func TestCopies(t *testing.T) {
	p := parse(t, []string{"X-A"}, nil)
	name, value := []byte("X-A"), []byte("before")
	got := p.Take(nil, name, value)
	copy(name, "Z-Z")
	copy(value, "after!")
	if got[0] != (edge.Header{Name: "X-A", Value: "before"}) {
		t.Error(got)
	}
	if got := (*headers.Part)(nil).Take(nil, name, value); got != nil {
		t.Error(got)
	}
}

func TestParse(t *testing.T) {
	for name, field := range map[string]string{
		"": "required", "a b": "invalid", "X:": "invalid", "Host": "forbidden", "connection": "forbidden", "X-Forwarded-For": "forbidden", "X_Forwarded_Host": "forbidden",
		"Authorization": "forbidden", "Cookie": "forbidden", "proxy-authorization": "forbidden", "Mcp-Session-Id": "forbidden", "Mcp-Param-X": "forbidden",
		"Content-Length": "forbidden", "User-Agent": "forbidden", "x-a": "duplicate",
	} {
		p, errs := headers.Parse(path, []string{"X-A", name, "X-B"}, nil)
		if p != nil || len(errs) != 1 || errs[0].Field != "spec.passthroughHeaders[1]" || !strings.Contains(strings.ToLower(string(errs[0].Type)), field) {
			t.Errorf("%q: %v", name, errs)
		}
	}
	if _, errs := headers.Parse(path, []string{"Host", "", "Cookie"}, nil); len(errs) != 3 {
		t.Errorf("not all errors: %v", errs)
	}
	if _, errs := headers.Parse(path, make([]string, headers.MaxNames+1), nil); len(errs) != 1 {
		t.Errorf("%v", errs)
	}
}

// Nothing is allocated for a message with nothing to pass on.
func TestAllocatesNothing(t *testing.T) {
	p := parse(t, []string{"X-A", "X-B"}, nil)
	f, err := p.Open(edge.Env{})
	if err != nil {
		t.Fatal(err)
	}
	h := f(edge.HandlerFunc(func(context.Context, *edge.Exchange) (*edge.Response, error) { return nil, nil }))
	x, ctx, name, value := &edge.Exchange{}, t.Context(), []byte("Content-Type"), []byte("application/json")
	if n := testing.AllocsPerRun(100, func() {
		x.Forward = p.Take(x.Forward[:0], name, value)
		if _, err := h.Handle(ctx, x); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Every manifest of the README is sound, and its list can be parsed.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	lists := 0
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, doc := range strings.Split(block, "---\n") {
			var meta struct{ Kind string }
			if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
				t.Fatal(err)
			}
			server := &v1beta1.VirtualMCPServer{}
			o := map[string]v1beta1.Object{"VirtualMCPServer": server, "MCPGroup": &v1beta1.MCPGroup{}, "MCPServerEntry": &v1beta1.MCPServerEntry{}}[meta.Kind]
			if o == nil {
				t.Fatalf("kind %q", meta.Kind)
			}
			if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
				t.Error(err)
			}
			o.Default()
			if errs := o.Validate(); len(errs) > 0 {
				t.Error(errs)
			}
			if server.Spec.PassthroughHeaders != nil {
				lists++
				parse(t, server.Spec.PassthroughHeaders, nil)
			}
		}
	}
	if lists == 0 {
		t.Error("no list")
	}
}
