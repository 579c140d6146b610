// Command boxed is an MCP server for images in tests: on its standard streams, or over HTTP
// where MCP_TRANSPORT says so. Its tools say how it is held.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type input struct {
	What string `json:"what,omitempty" jsonschema:"what it is about"`
}

func tool(s *mcp.Server, name string, f func(what string) (string, error)) {
	mcp.AddTool(s, &mcp.Tool{Name: name, Description: "says " + name}, func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
		text, err := f(in.What)
		if err != nil {
			text = "refused: " + err.Error()
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	})
}

func server() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "boxed", Version: "1"}, nil)
	tool(s, "args", func(string) (string, error) { return strings.Join(os.Args[1:], " "), nil })
	tool(s, "env", func(what string) (string, error) { return os.Getenv(what), nil })
	tool(s, "id", func(string) (string, error) { return fmt.Sprint(os.Getuid(), ":", os.Getgid(), " ", os.Getpid()), nil })
	tool(s, "read", func(what string) (string, error) { text, err := os.ReadFile(what); return string(text), err })
	tool(s, "write", func(what string) (string, error) { return "wrote", os.WriteFile(what, []byte("x"), 0o600) })
	tool(s, "exit", func(string) (string, error) { os.Exit(3); return "", nil })
	tool(s, "hog", func(string) (string, error) {
		var all [][]byte
		for range 4096 {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			all = append(all, b)
		}
		return fmt.Sprint(len(all)), nil
	})
	return s
}

func main() {
	fmt.Fprintln(os.Stderr, "boxed starts")
	if len(os.Args) > 2 && os.Args[1] == "needs" { // a path that it writes to
		if err := os.WriteFile(os.Args[2], nil, 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "boxed:", err)
			os.Exit(1)
		}
	}
	var err error
	switch os.Getenv("MCP_TRANSPORT") {
	case "streamable-http":
		err = http.ListenAndServe(os.Getenv("MCP_HOST")+":"+os.Getenv("MCP_PORT"), mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server() }, nil))
	case "sse":
		err = http.ListenAndServe(os.Getenv("MCP_HOST")+":"+os.Getenv("MCP_PORT"), mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return server() }, nil))
	default:
		err = server().Run(context.Background(), &mcp.StdioTransport{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "boxed:", err)
		os.Exit(1)
	}
}
