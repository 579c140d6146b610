package peers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	mcpgo "github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// answerer answers a server's questions, and keeps them.
type answerer struct {
	plan
	elicit, sample string
}

func (a *answerer) Elicit(_ context.Context, r mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	a.elicit = r.Params.Message
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{
		Action: mcp.ElicitationResponseActionAccept, Content: a.plan.Elicit.Answer,
	}}, nil
}

func (a *answerer) CreateMessage(_ context.Context, r mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	a.sample = mcp.GetTextFromContent(r.Messages[0].Content)
	return &mcp.CreateMessageResult{
		SamplingMessage: mcp.SamplingMessage{Role: mcp.RoleAssistant, Content: mcp.NewTextContent(a.plan.Sample.Answer.(string))},
		Model:           "none",
	}, nil
}

// runMCPGo is the client of github.com/mark3labs/mcp-go.
func runMCPGo(ctx context.Context, _ bench, url string, p plan) (s seen, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("mcp-go: %w", err)
		}
	}()

	// 1. Connecting.
	connections := http.DefaultTransport.(*http.Transport).Clone()
	defer connections.CloseIdleConnections()
	web := &http.Client{Transport: connections}
	var wire transport.Interface
	if p.Transport == "sse" {
		wire, err = transport.NewSSE(url, transport.WithHTTPClient(web))
	} else {
		wire, err = transport.NewStreamableHTTP(url, transport.WithHTTPBasicClient(web), transport.WithHTTPLogger(slog.New(slog.DiscardHandler)))
	}
	if err != nil {
		return s, err
	}
	version := legacyVersion
	if p.Mode == "modern" {
		version = modernVersion
	}
	answers := &answerer{plan: p}
	options := []mcpgo.ClientOption{mcpgo.WithProtocolVersion(version)}
	if p.Elicit != nil {
		options = append(options, mcpgo.WithElicitationHandler(answers))
	}
	if p.Sample != nil {
		options = append(options, mcpgo.WithSamplingHandler(answers))
	}
	c := mcpgo.NewClient(wire, options...)
	told := make(chan float64, 2*p.Progress.Count)
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		if v, ok := n.Params.AdditionalFields["progress"].(float64); ok && n.Method == "notifications/progress" {
			told <- v
		}
	})
	if err := c.Start(ctx); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	hello := mcp.InitializeRequest{Params: mcp.InitializeParams{ProtocolVersion: version, ClientInfo: mcp.Implementation{Name: "peer-mcp-go", Version: "1.0.0"}}}
	if _, err := c.Initialize(ctx, hello); err != nil {
		return s, err
	}
	s.Version = c.ProtocolVersion()

	// 2. Tools.
	call := func(u use, progress bool) (string, error) {
		request := mcp.CallToolRequest{Params: mcp.CallToolParams{Name: u.Name, Arguments: u.all()}}
		if progress {
			request.Params.Meta = &mcp.Meta{ProgressToken: "progress-of-" + u.Name}
		}
		result, err := c.CallTool(ctx, request)
		if err != nil {
			return "", fmt.Errorf("%s: %w", u.Name, err)
		}
		var text []string
		for _, content := range result.Content {
			text = append(text, mcp.GetTextFromContent(content))
		}
		if result.IsError {
			return "", fmt.Errorf("%s: the tool reports a failure: %q", u.Name, text)
		}
		return strings.Join(text, "\n"), nil
	}
	tools, err := c.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return s, fmt.Errorf("tools: %w", err)
	}
	for _, tool := range tools.Tools {
		s.Tools = append(s.Tools, tool.Name)
	}
	if s.Call, err = call(p.Call, false); err != nil {
		return s, err
	}
	if p.Header != nil {
		if s.Header, err = call(*p.Header, false); err != nil {
			return s, err
		}
	}
	if _, err = call(p.Progress, true); err != nil {
		return s, err
	}
	if s.Progress, err = receive(ctx, told, p.Progress.Count); err != nil {
		return s, err
	}

	// 3. Resources and prompts.
	resources, err := c.ListResources(ctx, mcp.ListResourcesRequest{})
	if err != nil {
		return s, fmt.Errorf("resources: %w", err)
	}
	for _, resource := range resources.Resources {
		s.Resources = append(s.Resources, resource.URI)
	}
	resource, err := c.ReadResource(ctx, mcp.ReadResourceRequest{Params: mcp.ReadResourceParams{URI: p.Resource}})
	if err != nil {
		return s, fmt.Errorf("resource: %w", err)
	}
	text, ok := mcp.AsTextResourceContents(resource.Contents[0])
	if !ok {
		return s, errors.New("resource: it is no text")
	}
	s.Resource = text.Text
	prompts, err := c.ListPrompts(ctx, mcp.ListPromptsRequest{})
	if err != nil {
		return s, fmt.Errorf("prompts: %w", err)
	}
	for _, prompt := range prompts.Prompts {
		s.Prompts = append(s.Prompts, prompt.Name)
	}
	prompt, err := c.GetPrompt(ctx, mcp.GetPromptRequest{Params: mcp.GetPromptParams{Name: p.Prompt.Name, Arguments: texts(p.Prompt.Arguments)}})
	if err != nil {
		return s, fmt.Errorf("prompt: %w", err)
	}
	s.Prompt = mcp.GetTextFromContent(prompt.Messages[0].Content)

	// 4. Tools that ask.
	if p.Elicit != nil {
		if s.Elicit.Said, err = call(*p.Elicit, false); err != nil {
			return s, err
		}
		s.Elicit.Asked = answers.elicit
	}
	if p.Sample != nil {
		if s.Sample.Said, err = call(*p.Sample, false); err != nil {
			return s, err
		}
		s.Sample.Asked = answers.sample
	}
	return s, nil
}
