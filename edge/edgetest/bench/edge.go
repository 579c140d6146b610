package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/port"
)

// edge is the edge under test: a process with an admin address besides.
type edge struct {
	*process
	admin string
	ready time.Duration // from its start until /readyz said 200
}

// readyLimit bounds how long an edge may take to be ready.
const readyLimit = 10 * time.Second

// errNotReady says that the edge lived but was not ready in time.
var errNotReady = errors.New("not ready in time")

// startEdge starts an edge of one server with the given backends, anonymous
// and without filters, and waits until it is ready. The tools of one backend
// keep their names; those of several are prefixed.
func (b *bench) startEdge(ctx context.Context, backends []string, flags ...string) (*edge, error) {
	return b.startPlan(ctx, plan{backends: backends, prefixed: len(backends) > 1}, flags...)
}

// startPlan is startEdge for a plan.
func (b *bench) startPlan(ctx context.Context, p plan, flags ...string) (*edge, error) {
	file, err := os.CreateTemp(b.dir, "edge-*.yaml")
	if err == nil {
		_, err = file.WriteString(p.manifest())
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	addr, admin, err := freeAddrs()
	if err != nil {
		return nil, err
	}
	args := slices.Concat([]string{"serve", "-c", file.Name(), "--listen", addr, "--admin-listen", admin}, p.flags, flags)
	e := &edge{admin: admin, process: &process{name: filepath.Base(b.weir), addr: addr, cmd: exec.Command(b.weir, args...)}}
	begin := time.Now()
	if err := e.start(b.procs); err != nil {
		return nil, err
	}
	go e.wait()
	if err := e.awaitReady(ctx, begin); err != nil {
		e.stop()
		return nil, e.fault(err)
	}
	e.ready = time.Since(begin)
	return e, nil
}

// awaitReady asks for /readyz every millisecond.
func (e *edge) awaitReady(ctx context.Context, begin time.Time) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.ended:
			return fmt.Errorf("%s: it ended before it was ready", e.name)
		case <-tick.C:
		}
		if e.isReady(ctx) {
			return nil
		}
		if time.Since(begin) > readyLimit {
			return fmt.Errorf("%s: %w: %s", e.name, errNotReady, readyLimit)
		}
	}
}

func (e *edge) isReady(ctx context.Context) bool {
	c, err := dial(ctx, e.addr, legacy, 0)
	if err != nil {
		return false
	}
	defer c.conn.Close()
	c.deadline(time.Second)
	err = c.exchange([]byte("GET /readyz HTTP/1.1\r\nHost: " + e.addr + "\r\nConnection: close\r\n\r\n"))
	return c.answer.status == 200 && err == nil
}

// freeAddrs returns two addresses on which nothing listens now.
func freeAddrs() (a, b string, err error) {
	if a, err = port.Free(); err != nil {
		return "", "", err
	}
	for b = a; b == a; {
		if b, err = port.Free(); err != nil {
			return "", "", err
		}
	}
	return a, b, nil
}

// plan is what an edge is to serve.
type plan struct {
	backends []string // addresses; they are called backend-1, backend-2 and so on
	prefixed bool     // tools are called by their backend's name and their own; else there is one backend, served as it is
	incoming string   // spec.incomingAuth, YAML on one line; empty for anonymous
	before   string   // manifests that it refers to; empty for none
	spec     string   // further YAML of the server's spec, whole lines
	config   string   // further YAML of spec.config, whole lines
	flags    []string // further flags of the edge
}

// prefixOf is what the names of a backend's tools begin with where they are
// prefixed; the first is 0.
func prefixOf(backend int) string { return "backend-" + strconv.Itoa(backend+1) + "_" }

// prefixes spreads clients over backends, as evenly as they go.
func prefixes(clients, backends int) []string {
	all := make([]string, clients)
	for i := range all {
		all[i] = prefixOf(i * backends / clients)
	}
	return all
}

// manifest is the plan as the edge reads it.
func (p plan) manifest() string {
	incoming, resolution := "{type: anonymous}", "priority"
	if p.incoming != "" {
		incoming = p.incoming
	}
	if p.prefixed {
		resolution = "prefix"
	}
	var m strings.Builder
	m.WriteString(p.before)
	m.WriteString(`apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata:
  name: bench
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata:
  name: bench
spec:
  groupRef:
    name: bench
  incomingAuth: ` + incoming + `
` + p.spec + `  config:
    aggregation:
      conflictResolution: ` + resolution + `
` + p.config + `    backends:
`)
	for i, addr := range p.backends {
		fmt.Fprintf(&m, "      - name: backend-%d\n        url: http://%s/mcp\n        transport: streamable-http\n", i+1, addr)
	}
	return m.String()
}
