package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/weir-edge/weir/edge/edgetest/port"
)

// Backend is a server behind an edge.
type Backend struct {
	Name      string
	URL       string
	Transport string // streamable-http or sse
}

// manifest is the edge's configuration: one backend under its own names, or
// several under their prefixes, for anyone.
func manifest(backends []Backend) string {
	strategy := "prefix"
	if len(backends) == 1 {
		strategy = "priority"
	}
	var all strings.Builder
	for _, b := range backends {
		fmt.Fprintf(&all, "      - {name: %s, url: %q, transport: %s}\n", b.Name, b.URL, b.Transport)
	}
	return fmt.Sprintf(`apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata:
  name: peers
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata:
  name: peers
spec:
  groupRef:
    name: peers
  incomingAuth:
    type: anonymous
  config:
    aggregation:
      conflictResolution: %s
    backends:
%s`, strategy, all.String())
}

// StartEdge is StartEdgeOf for one backend, whose names stay as they are.
func StartEdge(ctx context.Context, program, dir, url, transport string) (*Process, string, error) {
	return StartEdgeOf(ctx, program, dir, Backend{Name: "peer", URL: url, Transport: transport})
}

// StartEdgeOf is StartEdgeWith for backends.
func StartEdgeOf(ctx context.Context, program, dir string, backends ...Backend) (*Process, string, error) {
	return StartEdgeWith(ctx, program, dir, manifest(backends))
}

// StartEdgeWith starts an edge, from its program, with a configuration and waits until it is
// ready. It returns the URL of the edge's endpoint. The configuration is written into dir,
// which the caller removes; the caller stops the process. flags are more of the edge's.
func StartEdgeWith(ctx context.Context, program, dir, yaml string, flags ...string) (*Process, string, error) {
	addr, err := port.Free()
	if err != nil {
		return nil, "", err
	}
	return StartEdgeAt(ctx, program, dir, addr, yaml, flags...)
}

// StartEdgeAt is StartEdgeWith at an address, which the configuration may name.
func StartEdgeAt(ctx context.Context, program, dir, addr, yaml string, flags ...string) (*Process, string, error) {
	file, err := os.CreateTemp(dir, "edge-*.yaml")
	if err != nil {
		return nil, "", fmt.Errorf("start edge: %w", err)
	}
	_, err = file.WriteString(yaml)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, "", fmt.Errorf("start edge: %w", err)
	}
	cmd := Command(context.WithoutCancel(ctx), program, append([]string{"serve", "-c", file.Name(), "--listen", addr, "--admin-listen", ""}, flags...)...)
	p, err := start("weir", addr, cmd)
	if err != nil {
		return nil, "", err
	}
	if err := p.await(ctx, p.ready); err != nil {
		return nil, "", errors.Join(err, p.Stop())
	}
	return p, "http://" + addr + "/mcp", nil
}

// Searching is YAML of an edge before one server, whose names stay as they are, with the
// optimizer on: clients find tools and call them by others.
func Searching(url, transport string) string {
	const backends = "    backends:\n"
	return strings.Replace(manifest([]Backend{{Name: "peer", URL: url, Transport: transport}}), backends, "    optimizer: {hybridSearchSemanticRatio: \"0\"}\n"+backends, 1)
}
