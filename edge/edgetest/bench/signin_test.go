package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/kit"
	edges "github.com/weir-edge/weir/edge/serve"
)

// TestDoorkeeper signs two users in at an edge of each row about sign-ins: the backend is sent the
// provider's token of each, which is renewed for nobody, and never the edge's own.
func TestDoorkeeper(t *testing.T) {
	for name, chained := range map[string]bool{"users": false, "P2": true} {
		t.Run(name, func(t *testing.T) {
			p, back := startLoginProvider(), edgetest.NewServer(t, edgetest.Modern)
			defer p.Close()
			plan := doorkeeper(p, back.Addr(), filepath.Join(t.TempDir(), "audit.log"), chained, !chained)
			e := edgetest.Start(t, plan.Text(), edgetest.Settings(func(s *edges.Settings) {
				s.LocalRateLimits, s.FilterCache, s.DevLoopback = true, t.TempDir(), true
			}))
			var tokens []string
			if err := kit.Try(func() {
				for _, user := range []string{"ann", "ben"} {
					who := newNewcomer(e.Addr(), len(tokens))
					defer who.web.CloseIdleConnections()
					tokens = append(tokens, who.signIn(t.Context(), who.register(t.Context()), user))
				}
			}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				for _, token := range tokens {
					callEcho(t, e.Addr(), token)
				}
			}
			got := back.Requests("tools/call")
			if len(got) != 4 || p.refreshes.Load() != 0 {
				t.Fatalf("%d calls, %d refreshes", len(got), p.refreshes.Load())
			}
			for i, r := range got {
				if want := []string{"Bearer access-1-x", "Bearer access-2-x"}[i%2]; !strings.HasPrefix(r.Header.Get("Authorization"), want) {
					t.Errorf("call %d: %.30q", i, r.Header.Get("Authorization"))
				}
			}
		})
	}
}
