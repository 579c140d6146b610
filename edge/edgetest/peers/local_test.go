package peers_test

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	mcpgotypes "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// What a server on its standard streams completes and tells of its resources comes to the
// clients of two SDKs: the prompt and the resource, and the tool that has it tell, are the npm
// server's.
func TestLocalFeatures(t *testing.T) {
	kit, err := peers.Find()
	if err != nil {
		t.Fatal(err)
	}
	edgetest.Need(t, kit.Lacks() == "", kit.Lacks())
	shop := peers.NewShop(kit, t.TempDir())
	url := open(t, shop, stock{Server: peers.NpmStdio()}, false)
	const (
		watched = "demo://resource/dynamic/text/1"
		toggle  = "toggle-subscriber-updates"
	)
	for name, use := range map[string]func(ctx context.Context, told chan<- string) (completed []string, err error){
		"go-sdk-legacy": func(ctx context.Context, told chan<- string) ([]string, error) {
			c := mcp.NewClient(&mcp.Implementation{Name: "features", Version: "1"}, &mcp.ClientOptions{
				ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { told <- r.Params.URI },
			})
			s, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: web(t)}, &mcp.ClientSessionOptions{ProtocolVersion: legacyVersion})
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = s.Close() })
			if err := s.Subscribe(ctx, &mcp.SubscribeParams{URI: watched}); err != nil {
				return nil, err
			}
			if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: toggle, Arguments: map[string]any{}}); err != nil {
				return nil, err
			}
			return goCompletes(ctx, s)
		},
		"go-sdk-modern": func(ctx context.Context, told chan<- string) ([]string, error) {
			s, err := mcp.NewClient(&mcp.Implementation{Name: "features", Version: "1"}, nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: web(t)}, &mcp.ClientSessionOptions{ProtocolVersion: modernVersion})
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = s.Close() })
			told <- watched // the tool has the process of its call tell, and a modern client has none of its own
			return goCompletes(ctx, s)
		},
		"mcp-go-legacy": func(ctx context.Context, told chan<- string) ([]string, error) {
			//lint:ignore SA1019 a client of the legacy era is what is tested
			wire, err := transport.NewStreamableHTTP(url, transport.WithHTTPBasicClient(web(t)), transport.WithHTTPLogger(slog.New(slog.DiscardHandler)), transport.WithContinuousListening())
			if err != nil {
				return nil, err
			}
			c := mcpgo.NewClient(wire, mcpgo.WithProtocolVersion(legacyVersion))
			c.OnNotification(func(n mcpgotypes.JSONRPCNotification) {
				if uri, ok := n.Params.AdditionalFields["uri"].(string); ok && n.Method == "notifications/resources/updated" {
					told <- uri
				}
			})
			if err := c.Start(ctx); err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = c.Close() })
			hello := mcpgotypes.InitializeRequest{Params: mcpgotypes.InitializeParams{ProtocolVersion: legacyVersion, ClientInfo: mcpgotypes.Implementation{Name: "features", Version: "1"}}}
			if _, err := c.Initialize(ctx, hello); err != nil {
				return nil, err
			}
			//lint:ignore SA1019 a client of the legacy era is what is tested
			if err := c.Subscribe(ctx, mcpgotypes.SubscribeRequest{Params: mcpgotypes.SubscribeParams{URI: watched}}); err != nil {
				return nil, err
			}
			if _, err := c.CallTool(ctx, mcpgotypes.CallToolRequest{Params: mcpgotypes.CallToolParams{Name: toggle, Arguments: map[string]any{}}}); err != nil {
				return nil, err
			}
			r, err := c.Complete(ctx, mcpgotypes.CompleteRequest{Params: mcpgotypes.CompleteParams{
				Ref: mcpgotypes.PromptReference{Type: "ref/prompt", Name: "completable-prompt"}, Argument: mcpgotypes.CompleteArgument{Name: "department", Value: "S"},
			}})
			if err != nil {
				return nil, err
			}
			return r.Completion.Values, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			told := make(chan string, 100)
			completed, err := use(ctx, told)
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{"Sales", "Support"}; !slices.Equal(completed, want) {
				t.Errorf("completed to %q, want %q", completed, want)
			}
			select {
			case uri := <-told:
				if uri != watched {
					t.Errorf("told of %s", uri)
				}
			case <-ctx.Done():
				t.Error("it was not told of the resource")
			}
		})
	}
}

// goCompletes completes an argument of a prompt.
func goCompletes(ctx context.Context, s *mcp.ClientSession) ([]string, error) {
	r, err := s.Complete(ctx, &mcp.CompleteParams{
		Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "completable-prompt"}, Argument: mcp.CompleteParamsArgument{Name: "department", Value: "S"},
	})
	if err != nil {
		return nil, err
	}
	return r.Completion.Values, nil
}

// web is an HTTP client whose connections end with the test.
func web(t *testing.T) *http.Client {
	connections := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(connections.CloseIdleConnections)
	return &http.Client{Transport: connections}
}
