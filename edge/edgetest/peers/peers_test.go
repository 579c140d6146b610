package peers_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/peers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The negotiated revisions that stand for the eras.
const (
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"
)

// client is a kind of client: an SDK or a program in one of its modes.
type client struct {
	name string
	mode string // legacy, modern, or auto: whatever the server speaks, the newest first
	node bool   // it is a node program
	few  bool   // it takes only the steps of listing and calling
	deaf bool   // it does not hear a server's questions over sse
	run  func(context.Context, bench, string, plan) (seen, error)
}

// bench is what a client may need besides a server.
type bench struct {
	peers.Kit
	home string // a folder of its own
}

// clients are the columns of the table.
func clients() []client {
	return []client{
		{name: "inspector-legacy", mode: "legacy", node: true, few: true, run: runInspector},
		{name: "inspector-auto", mode: "auto", node: true, few: true, run: runInspector},
		{name: "inspector-modern", mode: "modern", node: true, few: true, run: runInspector},
		{name: "ts-v1", mode: "legacy", node: true, run: script("v1.mjs")},
		{name: "ts-v2-legacy", mode: "legacy", node: true, run: script("v2.mjs")},
		{name: "ts-v2-auto", mode: "auto", node: true, run: script("v2.mjs")},
		{name: "ts-v2-modern", mode: "modern", node: true, run: script("v2.mjs")},
		{name: "go-sdk-legacy", mode: "legacy", run: runGoSDK},
		{name: "go-sdk-modern", mode: "modern", run: runGoSDK},
		{name: "mcp-go-legacy", mode: "legacy", deaf: true, run: runMCPGo},
		{name: "mcp-go-modern", mode: "modern", run: runMCPGo},
	}
}

// era is what the client speaks with a server that speaks the given era, or
// with the edge, which speaks both and so is no matter.
func (c client) era(server peers.Era, direct bool) peers.Era {
	switch {
	case c.mode == "legacy":
		return peers.Legacy
	case c.mode == "auto" && direct:
		return server
	}
	return peers.Modern
}

// TestPeers is the table: every client in front of every server, with the edge
// between, each a subtest SERVER/CLIENT. WEIR_PEERS_DIRECT=1 leaves the edge
// out, and the pairs of two eras with it, to prove the rest; WEIR_PEERS_EDGE
// names a program of the edge instead of ./cmd/weir.
func TestPeers(t *testing.T) {
	direct := os.Getenv("WEIR_PEERS_DIRECT") == "1"
	kit, err := peers.Find()
	if err != nil {
		t.Fatal(err)
	}
	shop := peers.NewShop(kit, t.TempDir())
	document, err := os.ReadFile(kit.Module("@modelcontextprotocol/server-everything/dist/docs/features.md"))
	if err != nil {
		document = nil // the npm servers are not there and will not be started
	}
	for _, server := range stocks(string(document)) {
		if direct && server.Transport == "stdio" {
			continue // there is no way to it but an edge
		}
		t.Run(server.Name, func(t *testing.T) {
			if server.NeedsNode() {
				edgetest.Need(t, kit.Lacks() == "", kit.Lacks())
			}
			url := open(t, shop, server, direct)
			for _, client := range clients() {
				if direct && client.era(server.Era, direct) != server.Era {
					continue
				}
				t.Run(client.name, func(t *testing.T) {
					t.Parallel()
					if client.node {
						edgetest.Need(t, kit.Lacks() == "", kit.Lacks())
					}
					meet(t, kit, client, server, url, direct)
				})
			}
		})
	}
}

// open starts the server, and the edge before it, until the end of the test. It
// returns the URL for clients.
func open(t *testing.T, shop *peers.Shop, server stock, direct bool) string {
	t.Helper()
	if server.Transport == "stdio" {
		return lasting(t)(shop.StartLocal(t.Context(), edgeProgram(t, shop), t.TempDir(), server.Server))
	}
	url := lasting(t)(shop.Start(t.Context(), server.Server))
	if direct {
		return url
	}
	return lasting(t)(peers.StartEdge(t.Context(), edgeProgram(t, shop), t.TempDir(), url, server.Transport))
}

// lasting has a process run until the end of the test.
func lasting(t *testing.T) func(*peers.Process, string, error) string {
	return func(p *peers.Process, url string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Stop(); err != nil {
				t.Error(err) // its clients are gone, so that nothing is left to wait for
			}
			if t.Failed() {
				t.Logf("%s said: %s", p.Name, p.Said())
			}
		})
		return url
	}
}

// edgeProgram is the edge that is tested.
func edgeProgram(t *testing.T, shop *peers.Shop) string {
	t.Helper()
	if weir := os.Getenv("WEIR_PEERS_EDGE"); weir != "" {
		return weir
	}
	weir, err := shop.Program(t.Context(), peers.WeirPackage)
	if err != nil {
		t.Fatal(err)
	}
	return weir
}

// meet is one pair.
func meet(t *testing.T, kit peers.Kit, c client, server stock, url string, direct bool) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	era := c.era(server.Era, direct)

	// 1. What this client can do with this server.
	plan, want := server.has, server.want
	plan.Mode, plan.Transport = c.mode, "streamable-http"
	if direct {
		plan.Transport = server.Transport
	}
	want.Version = map[peers.Era]string{peers.Legacy: legacyVersion, peers.Modern: modernVersion}[era]
	if c.few {
		want = seen{Tools: want.Tools, Call: want.Call, Resources: want.Resources, Prompts: want.Prompts}
	}
	if c.few || c.deaf && plan.Transport == "sse" || plan.Elicit == nil {
		// These clients answer no questions, or none over the older transport.
		plan.Elicit, plan.Sample = nil, nil
		want.Elicit, want.Sample = asked{}, asked{}
	} else {
		// The npm server has these tools for clients only that can be asked.
		want.Tools = append(slices.Clone(want.Tools), plan.Elicit.Name, plan.Sample.Name)
	}

	// 2. What it saw.
	got, err := c.run(ctx, bench{Kit: kit, home: t.TempDir()}, url, plan)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, want)
}

// compare reports every difference between what was seen and what was to be
// seen. Of a list, want holds what must be in it; no name may be in it twice.
func compare(t *testing.T, got, want seen) {
	t.Helper()
	for _, list := range []struct {
		what      string
		got, want []string
	}{
		{"tools", got.Tools, want.Tools},
		{"resources", got.Resources, want.Resources},
		{"prompts", got.Prompts, want.Prompts},
	} {
		for i, name := range list.got {
			if slices.Contains(list.got[:i], name) {
				t.Errorf("%s: %q is listed twice", list.what, name)
			}
		}
		for _, name := range list.want {
			if !slices.Contains(list.got, name) {
				t.Errorf("%s: %q is not in the list: %q", list.what, name, list.got)
			}
		}
	}
	for _, text := range []struct{ what, got, want string }{
		{"version", got.Version, want.Version},
		{"call", got.Call, want.Call},
		{"header", got.Header, want.Header},
		{"resource", got.Resource, want.Resource},
		{"prompt", got.Prompt, want.Prompt},
		{"elicitation", got.Elicit.Asked, want.Elicit.Asked},
		{"sampling", got.Sample.Asked, want.Sample.Asked},
	} {
		if text.got != text.want {
			t.Errorf("%s: saw %q, not %q", text.what, text.got, text.want)
		}
	}
	if !slices.Equal(got.Progress, want.Progress) {
		t.Errorf("progress: saw %v, not %v", got.Progress, want.Progress)
	}
	for _, said := range []struct{ what, got, want string }{
		{"elicitation", got.Elicit.Said, want.Elicit.Said},
		{"sampling", got.Sample.Said, want.Sample.Said},
	} {
		if !strings.Contains(said.got, said.want) || said.want == "" && said.got != "" {
			t.Errorf("%s: the call said %q, without %q", said.what, said.got, said.want)
		}
	}
}

// encode returns v as JSON.
func encode(t any) string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // the tables hold nothing that JSON lacks
	}
	return string(text)
}
