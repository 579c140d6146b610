package guest_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/guest"
)

// asking opens a filter of some rules and returns what asks it, with nothing
// behind it.
func asking(t testing.TB, isolation v1beta1.FilterIsolation, rules ...string) edge.Handler {
	t.Helper()
	k := guest.NewCache(filepath.Join(guests.Dir, "cache"), slog.New(slog.NewTextHandler(io.Discard, nil)))
	loaded, err := guest.Load([]guest.Spec{{
		Name: "f", Path: path(t), Config: fmt.Sprintf(`{"rules":%q}`, strings.Join(rules, "\n")),
		Mode: v1beta1.FilterEnforce, OnError: v1beta1.FilterDeny, Isolation: isolation, Timeout: time.Minute, Fuel: 50_000_000, Output: 1 << 20,
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var after []func()
	env := edge.Env{Defer: func(f func()) { after = append(after, f) }}
	g, _, err := k.Open("s", loaded, guest.Options{}, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range after {
			f()
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return g.Filter(edge.HandlerFunc(func(context.Context, *edge.Exchange) (*edge.Response, error) { return nil, nil }))
}

// exchange is a call with arguments of some size, by somebody.
func exchange(t testing.TB, size int) *edge.Exchange {
	t.Helper()
	m, err := mcp.Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a_echo","arguments":{"text":"` + strings.Repeat("x", size) + `"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return &edge.Exchange{
		Request: m, Era: mcp.Modern, Name: "a_echo", Target: &edge.Target{Backend: "a", Thing: edge.Tool, Name: "a_echo", Original: "echo"},
		Identity: &edge.Identity{Issuer: "i", Subject: "ann", Scopes: []string{"a", "b"}, Claims: map[string]any{"groups": []any{"dev", "ops", "admin"}, "tenant": "acme"}},
		Session:  &edge.Session{ID: "abcdefghijklmnopqrstuv"},
		Heard:    []edge.Header{{Name: "x-a", Value: "one"}, {Name: "x-b", Value: "two"}},
	}
}

// BenchmarkCall is a call that a program of the Go toolchain is asked about, and
// one that it is not.
func BenchmarkCall(b *testing.B) {
	for name, rules := range map[string][]string{
		"asked":     {"on_call_request|tool=never|deny|0|no"},
		"changed":   {"on_call_request|*|set_header|X-A|b"},
		"not asked": {"sub|on_call_request|tool=delete_*"},
	} {
		b.Run(name, func(b *testing.B) {
			h, x, ctx := asking(b, v1beta1.IsolationShared, rules...), exchange(b, 1<<10), context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := h.Handle(ctx, x); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
