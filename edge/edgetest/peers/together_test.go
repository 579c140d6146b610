package peers_test

//lint:file-ignore SA1019 Sampling, logging and roots are deprecated and still to be relayed.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// together starts three servers of others behind one edge, each under a prefix,
// and returns their rows of the table with the names that clients see.
func together(t *testing.T) (kit peers.Kit, url string, rows map[string]stock) {
	t.Helper()
	kit, err := peers.Find()
	if err != nil {
		t.Fatal(err)
	}
	edgetest.Need(t, kit.Lacks() == "", kit.Lacks())
	shop := peers.NewShop(kit, t.TempDir())
	document, err := os.ReadFile(kit.Module("@modelcontextprotocol/server-everything/dist/docs/features.md"))
	if err != nil {
		t.Fatal(err)
	}
	prefixes := map[string]string{"npm-http": "http", "npm-sse": "older", "go-sdk-modern": "modern"}
	rows = map[string]stock{}
	var backends []peers.Backend
	for _, row := range stocks(string(document)) {
		prefix := prefixes[row.Name]
		if prefix == "" {
			continue
		}
		backends = append(backends, peers.Backend{Name: prefix, URL: lasting(t)(shop.Start(t.Context(), row.Server)), Transport: row.Transport})
		rows[prefix] = prefixed(row, prefix+"_")
	}
	return kit, lasting(t)(peers.StartEdgeOf(t.Context(), edgeProgram(t, shop), t.TempDir(), backends...)), rows
}

// prefixed is a row of the table as clients see it behind an edge that puts a
// prefix before names.
func prefixed(row stock, prefix string) stock {
	name := func(u *use) *use {
		if u == nil {
			return nil
		}
		out := *u
		out.Name = prefix + u.Name
		return &out
	}
	all := func(names []string) []string {
		out := make([]string, len(names))
		for i, n := range names {
			out[i] = prefix + n
		}
		return out
	}
	h := &row.has
	h.Call, h.Header, h.Progress, h.Prompt = *name(&h.Call), name(h.Header), *name(&h.Progress), *name(&h.Prompt)
	h.Elicit, h.Sample = name(h.Elicit), name(h.Sample)
	row.want.Tools, row.want.Prompts = all(row.want.Tools), all(row.want.Prompts)
	return row
}

// TestPeersTogether is about three servers behind one edge.
func TestPeersTogether(t *testing.T) {
	kit, url, rows := together(t)
	t.Run("table", func(t *testing.T) { meetTogether(t, kit, url, rows) })
	t.Run("features", func(t *testing.T) { featuresTogether(t, url) })
	t.Run("resumption", func(t *testing.T) { resumeTogether(t, kit, url, rows) })
}

// meetTogether is the table for them, each pair a subtest PREFIX/CLIENT: every
// client reaches every feature of each server by its prefixed name.
func meetTogether(t *testing.T, kit peers.Kit, url string, rows map[string]stock) {
	for prefix, row := range rows {
		for _, client := range clients() {
			if client.few && prefix != "http" {
				continue // it sees all three in its lists, and connects for each step
			}
			t.Run(prefix+"/"+client.name, func(t *testing.T) {
				t.Parallel()
				meet(t, kit, client, row, url, false)
			})
		}
	}
}

// resumeTogether has a client of the TypeScript SDK lose its connection
// in the middle of a call, at each backend, and get the answer all the same.
func resumeTogether(t *testing.T, kit peers.Kit, url string, rows map[string]stock) {
	for prefix, row := range rows {
		t.Run(prefix, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			row.has.Transport, row.has.Mode = "streamable-http", "legacy"
			if prefix != "modern" {
				row.has.Progress.Arguments = args{"duration": 2, "steps": 4} // goes on after the cut
			}
			out, err := peers.Run(peers.Command(ctx, kit.Node, filepath.Join(kit.Dir(), "clients", "resume.mjs"), url, encode(row.has)))
			if err != nil {
				t.Fatalf("%v; before that it saw %s", err, out)
			}
			var saw struct {
				Cut      int
				Resumed  int
				Progress []float64
				Content  int
			}
			if err := json.Unmarshal(out, &saw); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if saw.Cut != 1 || saw.Resumed < 1 || saw.Content != 1 || !slices.IsSorted(saw.Progress) || len(saw.Progress) != row.has.Progress.Count {
				t.Errorf("%+v", saw)
			}
		})
	}
}

// heard is what a client of the go-sdk was told and asked.
type heard struct {
	logs, updated chan string
	lists         chan string
	pages         chan string
}

// connect connects a client of the go-sdk that can be asked everything.
func connect(ctx context.Context, t *testing.T, url, version string) (*mcp.ClientSession, *heard) {
	t.Helper()
	h := &heard{logs: make(chan string, 100), updated: make(chan string, 100), lists: make(chan string, 100), pages: make(chan string, 100)}
	options := &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			RootsV2:     &mcp.RootCapabilities{ListChanged: true},
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
		},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			if r.Params.URL != "" {
				h.pages <- r.Params.URL
				return &mcp.ElicitResult{Action: "accept"}, nil
			}
			return &mcp.ElicitResult{Action: "accept", Content: args{"name": "weir"}}, nil
		},
		LoggingMessageHandler:       func(_ context.Context, r *mcp.LoggingMessageRequest) { h.logs <- fmt.Sprint(r.Params.Data) },
		ResourceUpdatedHandler:      func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { h.updated <- r.Params.URI },
		ToolListChangedHandler:      func(context.Context, *mcp.ToolListChangedRequest) { h.lists <- "tools" },
		PromptListChangedHandler:    func(context.Context, *mcp.PromptListChangedRequest) { h.lists <- "prompts" },
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) {},
	}
	connections := http.DefaultTransport.(*http.Transport).Clone()
	client := mcp.NewClient(&mcp.Implementation{Name: "peer-go-sdk", Version: "1.0.0"}, options)
	client.AddRoots(&mcp.Root{URI: "file:///weir", Name: "weir"})
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: connections}}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close() // what it has under way has been cancelled
		connections.CloseIdleConnections()
	})
	return session, h
}

// next waits for something that a client is told.
func next(t *testing.T, ctx context.Context, ch <-chan string, what, want string) {
	t.Helper()
	for {
		select {
		case got := <-ch:
			if strings.Contains(got, want) {
				return
			}
		case <-ctx.Done():
			t.Errorf("%s: not told of %q", what, want)
			return
		}
	}
}

// featuresTogether reaches, behind the same edge, what the table does
// not: structured content, templates, completion, logging, roots, pages to open,
// subscriptions, changes of lists, and cancellation.
func featuresTogether(t *testing.T, url string) {
	for era, version := range map[string]string{"legacy": legacyVersion, "modern": modernVersion} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			t.Cleanup(cancel)
			session, h := connect(ctx, t, url, version)
			call := func(name string, a args) *mcp.CallToolResult {
				t.Helper()
				r, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: use{Arguments: a}.all()})
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return &mcp.CallToolResult{}
				}
				return r
			}
			said := func(r *mcp.CallToolResult) string { return encode(r.Content) }

			t.Run("structured content", func(t *testing.T) {
				for _, prefix := range []string{"http", "older"} {
					if r := call(prefix+"_get-structured-content", args{"location": "New York"}); !strings.Contains(encode(r.StructuredContent), `"temperature"`) {
						t.Errorf("%s: %s", prefix, encode(r))
					}
				}
			})
			t.Run("templates", func(t *testing.T) {
				var all []string
				for one, err := range session.ResourceTemplates(ctx, nil) {
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, one.URITemplate)
				}
				for _, want := range []string{"demo://resource/dynamic/text/{resourceId}", "test://template/{id}/data"} {
					if !slices.Contains(all, want) {
						t.Errorf("%s is not in %q", want, all)
					}
				}
				for uri, want := range map[string]string{"demo://resource/dynamic/text/7": "7", "test://template/12/data": "12"} {
					r, err := session.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
					if err != nil || !strings.Contains(r.Contents[0].Text, want) {
						t.Errorf("%s: %v, %s", uri, err, encode(r))
					}
				}
			})
			t.Run("completion", func(t *testing.T) {
				for _, prefix := range []string{"http", "older"} {
					r, err := session.Complete(ctx, &mcp.CompleteParams{
						Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: prefix + "_completable-prompt"},
						Argument: mcp.CompleteParamsArgument{Name: "name", Value: "A"},
						Context:  &mcp.CompleteContext{Arguments: map[string]string{"department": "Engineering"}},
					})
					if err != nil || !slices.Equal(r.Completion.Values, []string{"Alice"}) {
						t.Errorf("%s: %v, %s", prefix, err, encode(r))
					}
				}
				if _, err := session.Complete(ctx, &mcp.CompleteParams{
					Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "modern_test_prompt_with_arguments"}, Argument: mcp.CompleteParamsArgument{Name: "arg1", Value: "t"},
				}); err != nil {
					t.Error(err)
				}
			})
			t.Run("roots", func(t *testing.T) {
				if text := said(call("modern_test_input_required_result_list_roots", nil)); !strings.Contains(text, "file:///weir") {
					t.Errorf("modern: %s", text)
				}
			})
			for _, prefix := range []string{"http", "older"} {
				t.Run("roots of "+prefix, func(t *testing.T) { // which asks for them outside of the call
					short, stop := context.WithTimeout(ctx, 5*time.Second)
					defer stop()
					r, err := session.CallTool(short, &mcp.CallToolParams{Name: prefix + "_get-roots-list", Arguments: args{}})
					if err != nil || !strings.Contains(said(r), "file:///weir") {
						t.Errorf("%v, %s", err, encode(r))
					}
				})
			}
			t.Run("pages to open", func(t *testing.T) {
				for _, prefix := range []string{"http", "older"} {
					page := "https://example.org/" + prefix
					call(prefix+"_trigger-url-elicitation", args{"url": page, "message": "open it"})
					next(t, ctx, h.pages, prefix, page)
				}
			})
			t.Run("logging", func(t *testing.T) {
				if era == "legacy" {
					if err := session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "debug"}); err != nil {
						t.Fatal(err)
					}
					call("modern_test_tool_with_logging", nil)
				} else {
					params := &mcp.CallToolParams{Name: "modern_test_tool_with_logging", Arguments: args{}, Meta: mcp.Meta{"io.modelcontextprotocol/logLevel": "debug"}}
					if _, err := session.CallTool(ctx, params); err != nil {
						t.Error(err)
					}
				}
				next(t, ctx, h.logs, "modern", "")
			})
			t.Run("changes of lists", func(t *testing.T) {
				for _, one := range []struct{ tool, kind string }{{"modern_test_trigger_tool_change", "tools"}, {"modern_test_trigger_prompt_change", "prompts"}} {
					call(one.tool, nil)
					next(t, ctx, h.lists, one.tool, one.kind)
				}
			})
			t.Run("subscriptions", func(t *testing.T) {
				uris := []string{"test://watched-resource"}
				if era == "legacy" {
					uris = append(uris, "demo://resource/static/document/features.md") // told to the session that calls the tool
				}
				for _, uri := range uris {
					if err := session.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}); err != nil {
						t.Fatal(err)
					}
					if strings.HasPrefix(uri, "demo:") {
						call("http_toggle-subscriber-updates", nil)
						defer call("http_toggle-subscriber-updates", nil)
					}
					next(t, ctx, h.updated, uri, uri)
					if err := session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri}); err != nil {
						t.Error(err)
					}
				}
			})
			t.Run("cancellation", func(t *testing.T) {
				for _, prefix := range []string{"http", "older"} {
					short, stop := context.WithTimeout(ctx, 500*time.Millisecond)
					began := time.Now()
					_, err := session.CallTool(short, &mcp.CallToolParams{Name: prefix + "_trigger-long-running-operation", Arguments: args{"duration": 30, "steps": 3}})
					stop()
					if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 5*time.Second {
						t.Errorf("%s: %v after %s", prefix, err, time.Since(began))
					}
					if text := said(call(prefix+"_echo", args{"message": "still there"})); !strings.Contains(text, "still there") {
						t.Errorf("%s: %s", prefix, text)
					}
				}
			})
		})
	}
}
