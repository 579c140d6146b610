package route

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/mcp"
)

// line is a credential of header lines, given as pairs of name and value.
func line(name string, pairs ...string) *edge.Credential {
	c := &edge.Credential{Name: name}
	for i := 0; i < len(pairs); i += 2 {
		c.Headers = append(c.Headers, pairs[i])
	}
	if len(pairs) > 0 {
		c.Attach = func(_ context.Context, _ *edge.Outbound, set func(string, edge.Secret)) (uint64, error) {
			for i := 0; i < len(pairs); i += 2 {
				set(pairs[i], edge.Secret(pairs[i+1]))
			}
			return 1, nil
		}
	}
	return c
}

// TestCredentialOfAnExchange holds which credential a message goes to its backend
// with, and that no line of a client takes its place.
func TestCredentialOfAnExchange(t *testing.T) {
	got := make(chan http.Header, 1)
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		m, err := mcp.Decode(text)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		result := `{"resultType":"complete","content":[]}`
		if m.Method == "server/discover" {
			result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
		} else {
			got <- r.Header.Clone()
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.IDText(), result)
	}))
	defer back.Close()

	configured := line("", "X-Key", "configured", "X-Tenant", "injected")
	beside := line("", "X-Tenant", "injected")
	failing := &edge.Credential{Name: "failing", Headers: []string{"X-Key"}, Attach: func(context.Context, *edge.Outbound, func(string, edge.Secret)) (uint64, error) {
		return 0, edge.Errorf(edge.Unavailable, "attach", "no credential")
	}}
	for what, c := range map[string]struct {
		configured, beside, chosen *edge.Credential
		want                       string // of X-Key, X-Tenant and X-Other
		fails                      bool
	}{
		"nothing":                               {want: "client client client"},
		"configured":                            {configured: configured, beside: beside, want: "configured injected client"},
		"chosen":                                {configured: line("", "X-Key", "configured"), chosen: line("a", "X-Other", "chosen"), want: "client client chosen"},
		"chosen where none is configured":       {configured: line(""), beside: line(""), chosen: line("a", "x_key", "chosen"), want: " client client"},
		"chosen, with headers beside":           {configured: configured, beside: beside, chosen: line("a", "X-Key", "chosen"), want: "chosen injected client"},
		"chosen of a name that is beside":       {configured: configured, beside: beside, chosen: line("a", "x-tenant", "chosen"), want: "client chosen client"},
		"chosen without lines":                  {configured: configured, chosen: line("none"), want: "client client client"},
		"chosen without lines, headers beside":  {configured: configured, beside: beside, chosen: line("none"), want: "client injected client"},
		"chosen that cannot be had":             {configured: configured, chosen: failing, fails: true},
		"chosen that cannot be had, and beside": {configured: configured, beside: beside, chosen: failing, fails: true},
	} {
		t.Run(what, func(t *testing.T) {
			b, err := backend.Open(backend.Config{
				Name: "back", URL: back.URL + "/mcp", Private: true, Silence: 30 * time.Second, Cap: time.Minute, MaxMessage: 1 << 20,
				Info: []byte(`{"name":"test","version":"1"}`), Agent: "test", Log: slog.New(slog.DiscardHandler), Health: health.Config{Interval: time.Hour},
				Credential: c.configured,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = b.Close() }()
			s := New(Options{Name: "s", Now: time.Now, Log: slog.New(slog.DiscardHandler)})
			s.Add(b)
			s.OpenBare()
			if c.beside != nil {
				s.Beside = map[*backend.Backend]*edge.Credential{b: c.beside}
			}
			s.Upstream = func(_ context.Context, x *edge.Exchange, _ string) ([]edge.Header, *edge.Credential, error) {
				return x.Forward, c.chosen, nil
			}
			for range 2 { // the second call finds what the first one made
				m, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`))
				if err != nil {
					t.Fatal(err)
				}
				x := &edge.Exchange{
					Era: mcp.Modern, Request: m, Name: "t", Client: edge.NoClient{}, Target: s.only,
					Forward: []edge.Header{{Name: "X-Key", Value: "client"}, {Name: "X-Tenant", Value: "client"}, {Name: "X-Other", Value: "client"}},
				}
				_, err = s.Handle(t.Context(), x)
				if x.Chosen != nil {
					t.Error("the exchange keeps a choice that was for one backend")
				}
				if c.fails {
					if why := new(edge.Error); !errors.As(err, &why) || why.Kind != edge.Unavailable {
						t.Fatal(err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				var values []string
				h := <-got
				for _, name := range []string{"X-Key", "X-Tenant", "X-Other"} {
					values = append(values, strings.Join(h[name], ","))
				}
				if is := strings.Join(values, " "); is != c.want {
					t.Errorf("%q, not %q", is, c.want)
				}
			}
			if one := c.chosen; one != nil {
				first, again := s.credential(b, one), s.credential(b, one)
				if first != again || first.Name != one.Name {
					t.Error("one choice is two credentials")
				}
			}
		})
	}
}
