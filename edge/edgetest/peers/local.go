package peers

import (
	"context"
	"fmt"
	"os"
)

// NpmStdio is the npm package @modelcontextprotocol/server-everything on its standard
// streams, which only an edge starts.
func NpmStdio() Server {
	return Server{Name: "npm-stdio", Era: Legacy, Transport: "stdio", npm: "stdio"}
}

// StartLocal starts an edge that starts a server of npm's itself, on its standard streams and
// in a sandbox. dir is for its configuration and its state, and the caller's to remove.
func (s *Shop) StartLocal(ctx context.Context, program, dir string, server Server) (*Process, string, error) {
	state, err := os.MkdirTemp(dir, "state-")
	if err != nil {
		return nil, "", fmt.Errorf("start edge: %w", err)
	}
	return StartEdgeWith(ctx, program, dir, fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPServer
metadata: {name: peer}
spec:
  image: %q
  args: [%q, %s]
  volumes: [{name: modules, hostPath: %q, mountPath: %[4]q, readOnly: true}]
  run: {maxProcesses: 64, memory: 4Gi}
`, "exec://"+s.Node, s.Module(npmEverything), server.npm, s.modules()), "--allow-workloads", "local", "--state-dir", state)
}
