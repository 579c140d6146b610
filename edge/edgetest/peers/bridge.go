package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/weir-edge/weir/edge/edgetest/port"
)

// Bridge is how the npm package supergateway puts a server that speaks over its
// standard input and output behind HTTP.
type Bridge struct {
	Name      string
	Transport string // streamable-http or sse
	args      []string
}

// Bridges are its three ways: a process of the server for each request, for each
// session, and one for everybody.
func Bridges() []Bridge {
	return []Bridge{
		{"stateless", "streamable-http", []string{"--outputTransport", "streamableHttp"}},
		{"stateful", "streamable-http", []string{"--outputTransport", "streamableHttp", "--stateful"}},
		{"sse", "sse", []string{"--outputTransport", "sse"}},
	}
}

// The npm packages of servers that speak over standard input and output.
var bridged = map[string]string{
	"everything":          npmEverything,
	"filesystem":          "@modelcontextprotocol/server-filesystem/dist/index.js",
	"memory":              "@modelcontextprotocol/server-memory/dist/index.js",
	"sequential-thinking": "@modelcontextprotocol/server-sequential-thinking/dist/index.js",
}

// StartBridge starts the bridge before one of the servers: everything, filesystem,
// memory or sequential-thinking. It returns the URL of its endpoint; the caller stops
// the process. dir is a folder for what the server keeps, or serves.
func (s *Shop) StartBridge(ctx context.Context, b Bridge, server, dir string) (p *Process, url string, err error) {
	addr, err := port.Free()
	if err != nil {
		return nil, "", err
	}
	_, number, _ := net.SplitHostPort(addr)
	// The bridge runs a line of the shell; no path here has a quote in it.
	line := fmt.Sprintf("'%s' '%s'", s.Node, s.Module(bridged[server]))
	if server == "filesystem" {
		line += fmt.Sprintf(" '%s'", dir)
	}
	args := append([]string{s.Module(npmBridge), "--stdio", line, "--port", number, "--logLevel", "none"}, b.args...)
	cmd := Command(context.WithoutCancel(ctx), s.Node, args...)
	cmd.Env = append(cmd.Env, "MEMORY_FILE_PATH="+dir+"/memory.json", "DISABLE_THOUGHT_LOGGING=true")
	p, err = start(strings.Join([]string{"supergateway", b.Name, server}, " "), addr, cmd)
	if err != nil {
		return nil, "", err
	}
	if err := p.await(ctx, p.listens); err != nil {
		return nil, "", errors.Join(err, p.Stop())
	}
	path := "/mcp"
	if b.Transport == "sse" {
		path = "/sse"
	}
	return p, "http://" + addr + path, nil
}
