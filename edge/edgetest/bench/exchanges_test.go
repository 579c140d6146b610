package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/outgoing"
	edges "github.com/weir-edge/weir/edge/serve"
)

// newTokenService starts a service that ends with the test.
func newTokenService(t *testing.T) *tokenService {
	t.Helper()
	s, err := startTokenService()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// callEcho calls a tool with a token.
func callEcho(t *testing.T, addr, token string) {
	t.Helper()
	c, err := dial(t.Context(), addr, kit.Modern, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Token = token
	c.Wait(edgetest.Patience)
	a, err := c.Do(c.Modern("1", "tools/call", "echo", `"name":"echo","arguments":{"text":"hello"}`, ""))
	if err != nil || a.Status != http.StatusOK || !strings.Contains(string(a.Body), "hello") {
		t.Fatalf("%v: status %d: %s", err, a.Status, a.Body)
	}
}

// TestExchanges sends calls of two users through an edge of each strategy, and through that
// of P2 with tokenExchange: the backend sees what the service gave for each, and never the
// token of a user.
func TestExchanges(t *testing.T) {
	users, err := issuer.New(issuer.ES256, kit.ServerName, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer users.Leave()
	for _, c := range []struct {
		name         string
		of           strategy
		chain        bool
		header, says string
	}{
		{"tokenExchange", exchanging[0], false, "Authorization", "Bearer credential-%d-"},
		{"obo", exchanging[1], false, "Authorization", "Bearer credential-%d-"},
		{"cloudSts", exchanging[2], false, "X-Amz-Security-Token", "credential-%d-"},
		{"P2 with tokenExchange", exchanging[0], true, "Authorization", "Bearer credential-%d-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			service, back := newTokenService(t), edgetest.NewServer(t, edgetest.Modern)
			p := guarded(users, back.Addr(), "")
			p.Config = outgoingAuth(c.of.in(service))
			if c.chain {
				p = chain(users, c.of.in(service), back.Addr(), filepath.Join(t.TempDir(), "audit.log"))
			}
			e := edgetest.Start(t, p.Text(), edgetest.Settings(func(s *edges.Settings) {
				s.LocalRateLimits, s.FilterCache, s.STSEndpoint = true, t.TempDir(), service.url+stsPath
			}))
			tokens, err := mintAll(users, 2, userNamed)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				for _, token := range tokens {
					callEcho(t, e.Addr(), token)
				}
			}
			got := back.Requests("tools/call")
			if len(got) != 6 || service.given.Load() != 2 {
				t.Fatalf("%d calls, %d exchanges", len(got), service.given.Load())
			}
			for i, r := range got {
				if value := r.Header.Get(c.header); !strings.HasPrefix(value, fmt.Sprintf(c.says, i%2+1)) || len(value) < credentialSize || strings.Contains(r.Header.Get("Authorization"), tokens[i%2]) {
					t.Errorf("call %d: %s: %.40q", i, c.header, value)
				}
			}
		})
	}
}

// TestTokenService gives nothing for what is no question of a strategy.
func TestTokenService(t *testing.T) {
	s := newTokenService(t)
	ask := func(path string, form url.Values) int {
		t.Helper()
		answer, err := http.PostForm(s.url+path, form)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	good := exchanging[0].question("token")
	if status := ask(exchanging[0].path, good); status != http.StatusOK {
		t.Errorf("a question of a strategy: %d", status)
	}
	for name, status := range map[string]int{
		"elsewhere":      ask("/token", good),
		"of another":     ask(exchanging[1].path, good),
		"without token":  ask(exchanging[0].path, exchanging[0].question("")),
		"another grant":  ask(exchanging[0].path, url.Values{"grant_type": {"password"}, "subject_token": {"token"}}),
		"beyond bounds":  ask(exchanging[0].path, exchanging[0].question(strings.Repeat("x", maxQuestion))),
		"no form at all": ask(stsPath, nil),
	} {
		if status != http.StatusBadRequest {
			t.Errorf("%s: %d", name, status)
		}
	}
	if n := s.given.Load(); n != 1 {
		t.Errorf("%d credentials were given", n)
	}
}

// TestShown asks for credentials in this process: what allocates is found out, and so is
// what sets none.
func TestShown(t *testing.T) {
	edgetest.Need(t, runtime.GOOS == "linux", "the CPU time of a thread is read on Linux alone")
	service := newTokenService(t)
	kept, end, err := openShown(&outgoing.Spec{Config: exchanging[0].in(service)}, edge.Reach{}, requests(3))
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if err := kit.Try(func() { kept.make(t.Context(), 0, 3); kept.turn(t.Context(), 600) }); err != nil || len(kept.cpu) != 1 || kept.cpu[0] <= 0 || kept.allocated != 0 {
		t.Errorf("%v: %v µs, %v allocations", err, kept.cpu, kept.allocated)
	}
	if n := service.given.Load(); n != 3 {
		t.Errorf("%d exchanges for 3 users", n)
	}
	var texts []string
	allocates := &shown{to: kept.to, attach: func(_ context.Context, _ *edge.Outbound, set func(string, edge.Secret)) (uint64, error) {
		texts = append(texts[:0], strings.Repeat("x", credentialSize))
		set("Authorization", edge.Secret(texts[0]))
		return 1, nil
	}}
	if err := kit.Try(func() { allocates.turn(t.Context(), 600) }); err != nil || allocates.allocated != 1 {
		t.Errorf("%v: %v allocations", err, allocates.allocated)
	}
	silent := &shown{to: kept.to, attach: func(context.Context, *edge.Outbound, func(string, edge.Secret)) (uint64, error) { return 0, nil }}
	if err := kit.Try(func() { silent.turn(t.Context(), 1) }); err == nil || !strings.Contains(err.Error(), "without a credential") {
		t.Errorf("%v", err)
	}
}
