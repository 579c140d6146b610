package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// drive is a client of one revision that does what a scenario wants from one: it
// lists the tools and calls the one that the scenario is about.
func drive(ctx context.Context, url, version, scenario string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", scenario, err)
		}
	}()

	// 1. Connecting.
	options := &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		},
	}
	connections := http.DefaultTransport.(*http.Transport).Clone()
	defer connections.CloseIdleConnections()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "conformance-client", Version: "1.0.0"}, options).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: connections}},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()

	// 2. The tools.
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	tools := map[string]*mcp.Tool{}
	for _, t := range list.Tools {
		tools[t.Name] = t
	}

	// 3. The call.
	call := &mcp.CallToolParams{Arguments: map[string]any{}}
	switch scenario {
	case "initialize", "request-metadata":
		return nil
	case "tools_call":
		call.Name, call.Arguments = "add_numbers", map[string]any{"a": 5, "b": 3}
	case "elicitation-sep1034-client-defaults":
		call.Name = "test_client_elicitation_defaults"
	case "sse-retry":
		call.Name = "test_reconnection"
	case "json-schema-2020-12-preservation": // the schema of one tool, sent to the other
		rich, ok := tools["json_schema_2020_12_tool"]
		if !ok {
			return errors.New("the tool with the schema is not listed")
		}
		call.Name, call.Arguments = "json_schema_echo", map[string]any{"schema": rich.InputSchema}
	default:
		return errors.New("this client does not know the scenario")
	}
	if tools[call.Name] == nil {
		return fmt.Errorf("%s is not listed", call.Name)
	}
	_, err = session.CallTool(ctx, call)
	return err
}
