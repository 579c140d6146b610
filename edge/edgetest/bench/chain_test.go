package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/edgetest/kit"
	edges "github.com/weir-edge/weir/edge/serve"
)

// TestChain sends calls through an edge of P2: each of the filters that it names
// has its say.
func TestChain(t *testing.T) {
	s, err := issuer.New(issuer.RS256, kit.ServerName, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Leave()
	token, err := mint(s)
	if err != nil {
		t.Fatal(err)
	}
	back := edgetest.NewServer(t, edgetest.Modern)
	log := filepath.Join(t.TempDir(), "audit.log")
	e := edgetest.Start(t, chain(s, injected, back.Addr(), log).Text(), edgetest.Settings(func(s *edges.Settings) {
		s.LocalRateLimits, s.AdminListen, s.FilterCache = true, "127.0.0.1:0", t.TempDir()
	}))
	call := func(token, tool, text string) (status int, body string) {
		t.Helper()
		c, err := dial(t.Context(), e.Addr(), kit.Modern, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Token = token
		c.Wait(edgetest.Patience)
		encoded, _ := json.Marshal(text)
		a, err := c.Do(c.Modern("1", "tools/call", tool, `"name":"`+tool+`","arguments":{"text":`+string(encoded)+`}`, ""))
		if err != nil {
			t.Fatal(err)
		}
		return a.Status, string(a.Body)
	}
	for _, c := range []struct{ name, token, tool, text, says string }{
		{"it passes", token, "echo", "hello", `hello`},
		{"no token", "", "echo", "hello", "401"},
		{"a tool that no policy is about", token, "slow", "hello", "denied by authorization policy"},
		{"what the guest refuses", token, "echo", string(refused), "that byte is refused"},
	} {
		if status, body := call(c.token, c.tool, c.text); !strings.Contains(body, c.says) && !(status == 401 && c.says == "401") {
			t.Errorf("%s: status %d: %s", c.name, status, body)
		}
	}
	if got := back.Requests("tools/call"); len(got) != 1 || got[0].Header.Get("X-Api-Key") != "bench" {
		t.Errorf("%d calls reached the backend", len(got))
	}
	metrics := string(edgetest.NewClient(t, "http://"+e.Serve.AdminAddr()).Do("GET", "/metrics", "").Body)
	for _, want := range []string{`weir_mcp_tool_calls_total`, `weir_rate_limit_decisions_total{decision="admitted"`, `weir_guest_denied_total{filter="tools",hook="on_call_request",server="tools"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	e.Stop()
	if text, err := os.ReadFile(log); err != nil || strings.Count(string(text), "\n") < 4 {
		t.Errorf("the audit log: %v: %s", err, text)
	}
}
