package peers

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/weir-edge/weir/edge/edgetest/port"
)

// manifest is the edge's configuration: one backend under its own names, for
// anyone.
func manifest(url, transport string) string {
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
      conflictResolution: priority
    backends:
      - name: peer
        url: %s
        transport: %s
`, url, transport)
}

// StartEdge starts an edge, from its program, before the backend at url and
// waits until it is ready. It returns the URL of the edge's endpoint. The
// configuration is written into dir, which the caller removes; the caller stops
// the process.
func StartEdge(ctx context.Context, program, dir, url, transport string) (*Process, string, error) {
	file, err := os.CreateTemp(dir, "edge-*.yaml")
	if err != nil {
		return nil, "", fmt.Errorf("start edge: %w", err)
	}
	_, err = file.WriteString(manifest(url, transport))
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, "", fmt.Errorf("start edge: %w", err)
	}
	addr, err := port.Free()
	if err != nil {
		return nil, "", err
	}
	cmd := Command(context.WithoutCancel(ctx), program, "serve", "-c", file.Name(), "--listen", addr, "--admin-listen", "")
	p, err := start("weir", addr, cmd)
	if err != nil {
		return nil, "", err
	}
	if err := p.await(ctx, p.ready); err != nil {
		return nil, "", errors.Join(err, p.Stop())
	}
	return p, "http://" + addr + "/mcp", nil
}
