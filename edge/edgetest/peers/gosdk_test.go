package peers_test

//lint:file-ignore SA1019 Sampling is deprecated and still to be relayed.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// runGoSDK is the client of github.com/modelcontextprotocol/go-sdk.
func runGoSDK(ctx context.Context, _ bench, url string, p plan) (s seen, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("go-sdk: %w", err)
		}
	}()

	// 1. What the client does when it is told or asked something.
	told := make(chan float64, 2*p.Progress.Count)
	var elicit, sample string
	options := &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{}, // none but those of the handlers
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			told <- r.Params.Progress
		},
	}
	if p.Elicit != nil {
		options.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			elicit = r.Params.Message
			return &mcp.ElicitResult{Action: "accept", Content: maps.Clone(p.Elicit.Answer.(args))}, nil // the SDK adds defaults to it
		}
	}
	if p.Sample != nil {
		options.CreateMessageHandler = func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			text, ok := r.Params.Messages[0].Content.(*mcp.TextContent)
			if !ok {
				return nil, errors.New("the question is no text")
			}
			sample = text.Text
			return &mcp.CreateMessageResult{Role: "assistant", Model: "none", Content: &mcp.TextContent{Text: p.Sample.Answer.(string)}}, nil
		}
	}

	// 2. Connecting.
	connections := http.DefaultTransport.(*http.Transport).Clone()
	defer connections.CloseIdleConnections()
	web := &http.Client{Transport: connections}
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: web}
	if p.Transport == "sse" {
		transport = &mcp.SSEClientTransport{Endpoint: url, HTTPClient: web}
	}
	version := legacyVersion
	if p.Mode == "modern" {
		version = modernVersion
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "peer-go-sdk", Version: "1.0.0"}, options).
		Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	s.Version = session.InitializeResult().ProtocolVersion

	// 3. Tools.
	call := func(u use, progress bool) (string, error) {
		params := &mcp.CallToolParams{Name: u.Name, Arguments: u.all()}
		if progress {
			params.SetProgressToken("progress-of-" + u.Name)
		}
		result, err := session.CallTool(ctx, params)
		if err != nil {
			return "", fmt.Errorf("%s: %w", u.Name, err)
		}
		var text []string
		for _, content := range result.Content {
			if c, ok := content.(*mcp.TextContent); ok {
				text = append(text, c.Text)
			}
		}
		if result.IsError {
			return "", fmt.Errorf("%s: the tool reports a failure: %q", u.Name, text)
		}
		return strings.Join(text, "\n"), nil
	}
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			return s, fmt.Errorf("tools: %w", err)
		}
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

	// 4. Resources and prompts.
	for resource, err := range session.Resources(ctx, nil) {
		if err != nil {
			return s, fmt.Errorf("resources: %w", err)
		}
		s.Resources = append(s.Resources, resource.URI)
	}
	resource, err := session.ReadResource(ctx, &mcp.ReadResourceParams{URI: p.Resource})
	if err != nil {
		return s, fmt.Errorf("resource: %w", err)
	}
	s.Resource = resource.Contents[0].Text
	for prompt, err := range session.Prompts(ctx, nil) {
		if err != nil {
			return s, fmt.Errorf("prompts: %w", err)
		}
		s.Prompts = append(s.Prompts, prompt.Name)
	}
	prompt, err := session.GetPrompt(ctx, &mcp.GetPromptParams{Name: p.Prompt.Name, Arguments: texts(p.Prompt.Arguments)})
	if err != nil {
		return s, fmt.Errorf("prompt: %w", err)
	}
	text, ok := prompt.Messages[0].Content.(*mcp.TextContent)
	if !ok {
		return s, errors.New("prompt: it is no text")
	}
	s.Prompt = text.Text

	// 5. Tools that ask.
	if p.Elicit != nil {
		if s.Elicit.Said, err = call(*p.Elicit, false); err != nil {
			return s, err
		}
		s.Elicit.Asked = elicit
	}
	if p.Sample != nil {
		if s.Sample.Said, err = call(*p.Sample, false); err != nil {
			return s, err
		}
		s.Sample.Asked = sample
	}
	return s, nil
}

// receive waits for as many values as must come: notifications may be handled
// after the answer that they precede. More than count are returned as well.
func receive(ctx context.Context, told <-chan float64, count int) (values []float64, err error) {
	for len(values) < count || len(told) > 0 {
		select {
		case v := <-told:
			values = append(values, v)
		case <-ctx.Done():
			return values, fmt.Errorf("progress was told %d times, not %d: %w", len(values), count, ctx.Err())
		}
	}
	return values, nil
}

// texts are arguments of a prompt, which are texts.
func texts(a args) map[string]string {
	out := map[string]string{}
	for k, v := range a {
		out[k] = fmt.Sprint(v)
	}
	return out
}
