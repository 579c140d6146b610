package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/port"
	"github.com/weir-edge/weir/edge/edgetest/program"
)

// edge is the edge under test: a process of its own. It ends by stop, or with
// the row that started it.
type edge struct {
	addr, admin string // host:port
	cmd         *exec.Cmd
	said        program.Tail
	began       time.Time
	ended       chan struct{} // closed when the process has ended
	ready       time.Duration // from its start until /readyz said 200
}

// readyLimit bounds how long an edge may take to be ready.
const readyLimit = 10 * time.Second

// start starts an edge before the backends, with the flags of the row and
// those of the command line, and waits until it is ready.
func (s *storm) start(ctx context.Context, backends []string, flags ...string) (*edge, error) {
	return s.startPlan(ctx, planOf(backends), flags...)
}

// startPlan is start for a plan.
func (s *storm) startPlan(ctx context.Context, p plan, flags ...string) (*edge, error) {
	manifest, err := s.write(p)
	if err != nil {
		return nil, err
	}
	return s.startOn(ctx, manifest, flags...)
}

// startOn is start for a manifest that is written already.
func (s *storm) startOn(ctx context.Context, manifest string, flags ...string) (*edge, error) {
	addr, err := port.Free()
	if err != nil {
		return nil, err
	}
	admin, err := port.Free()
	if err != nil {
		return nil, err
	}
	return s.startAt(ctx, manifest, addr, admin, flags...)
}

// startAt is start at given addresses.
func (s *storm) startAt(ctx context.Context, manifest, addr, admin string, flags ...string) (*edge, error) {
	e, err := s.launch(manifest, addr, admin, flags...)
	if err != nil {
		return nil, err
	}
	return e, e.awaitReady(ctx)
}

// launch starts the process and does not wait.
func (s *storm) launch(manifest, addr, admin string, flags ...string) (*edge, error) {
	args := append([]string{"serve", "-c", manifest, "--listen", addr, "--admin-listen", admin, "--log-level", "warn"}, flags...)
	e := &edge{addr: addr, admin: admin, cmd: exec.Command(s.weir, append(args, s.flags...)...), ended: make(chan struct{})}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WEIR_") {
			e.cmd.Env = append(e.cmd.Env, v)
		}
	}
	e.cmd.Env = append(e.cmd.Env, s.environment...)
	e.cmd.Stderr = &e.said
	e.cmd.SysProcAttr = childAttr()
	e.began = time.Now()
	if err := e.cmd.Start(); err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	go func() { // ends with the process
		_ = e.cmd.Wait() // how it ended is told by what it said
		close(e.ended)
	}()
	s.later(e.stop)
	return e, nil
}

// awaitReady waits until the process says that it is ready.
func (e *edge) awaitReady(ctx context.Context) error {
	for {
		if status, _ := e.get(ctx, "/readyz", time.Second); status == 200 {
			e.ready = time.Since(e.began)
			return nil
		}
		select {
		case <-e.ended:
			return e.fault(errors.New("weir: it ended before it was ready"))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
		if time.Since(e.began) > readyLimit {
			return e.fault(fmt.Errorf("weir: not ready within %s", readyLimit))
		}
	}
}

// plan is what an edge is to serve, as far as rows vary it.
type plan struct {
	backends    []seat
	prefixed    bool    // a tool is called by its backend's name and its own; else there is one backend, or none is called
	operational string  // config.operational, YAML on one line; empty for none
	store       string  // address of a Redis that it shares, with a rate limit that no run reaches; empty for none
	issuer      *issuer // whose tokens the server wants; nil for none
	guest       string  // file of a module that calls go through; empty for none
}

// seat is a backend of a plan.
type seat struct{ name, addr string }

// planOf is nothing but backends: backend-1, backend-2 and so on.
func planOf(backends []string) (p plan) {
	for i, addr := range backends {
		p.backends = append(p.backends, seat{"backend-" + strconv.Itoa(i+1), addr})
	}
	return p
}

// toolOf is what the tool of a backend is called where names are prefixed.
func toolOf(backend int) string { return "backend-" + strconv.Itoa(backend+1) + "_work" }

// text is the plan as manifests.
func (p plan) text() string {
	resolution := "priority"
	if p.prefixed {
		resolution = "prefix"
	}
	auth := "{type: anonymous}"
	var m strings.Builder
	if p.issuer != nil {
		auth = "{type: oidc, oidcConfigRef: {name: storm, audience: " + audience + "}}"
		m.WriteString(p.issuer.text())
	}
	if p.guest != "" {
		fmt.Fprintf(&m, "apiVersion: weir.dev/v1beta1\nkind: EdgeFilter\nmetadata: {name: storm}\nspec: {type: wasm, source: {path: %q}}\n---\n", p.guest)
	}
	m.WriteString(`apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata:
  name: storm
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata:
  name: storm
spec:
  groupRef:
    name: storm
  incomingAuth: ` + auth + `
` + p.shared() + `  config:
    aggregation:
      conflictResolution: ` + resolution + "\n")
	if p.operational != "" {
		m.WriteString("    operational: " + p.operational + "\n")
	}
	if p.store != "" {
		m.WriteString("    rateLimiting: {shared: {maxTokens: 1000000000, refillPeriod: 1s}}\n")
	}
	m.WriteString("    backends:\n")
	for _, b := range p.backends {
		fmt.Fprintf(&m, "      - name: %s\n        url: http://%s/mcp\n        transport: streamable-http\n", b.name, b.addr)
	}
	return m.String()
}

// shared is the YAML of the store and of the guest.
func (p plan) shared() string {
	text := ""
	if p.guest != "" {
		text = "  filterRefs: [{name: storm}]\n"
	}
	if p.store != "" {
		text += fmt.Sprintf("  sessionStorage: {provider: kvstore, address: %q}\n", p.store)
	}
	return text
}

// manifest writes the edge's configuration: nothing but backends.
func (s *storm) manifest(backends []string) (path string, err error) {
	return s.write(planOf(backends))
}

// write writes a plan into a folder of its own.
func (s *storm) write(p plan) (path string, err error) {
	dir, err := os.MkdirTemp(s.dir, "edge-")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "edge.yaml")
	return path, os.WriteFile(path, []byte(p.text()), 0o600)
}

func (e *edge) pid() int { return e.cmd.Process.Pid }

func (e *edge) signal(sig syscall.Signal) { _ = e.cmd.Process.Signal(sig) } // one that has ended needs none

// awaitEnd waits until the process has ended; false when it has not in time.
func (e *edge) awaitEnd(within time.Duration) bool {
	select {
	case <-e.ended:
		return true
	case <-time.After(within):
		return false
	}
}

// stop ends the process, by asking and then by force.
func (e *edge) stop() {
	e.signal(syscall.SIGTERM)
	if e.awaitEnd(200 * time.Millisecond) {
		return
	}
	e.signal(syscall.SIGTERM) // the second ends it at once
	if !e.awaitEnd(2 * time.Second) {
		e.signal(syscall.SIGKILL)
		<-e.ended
	}
}

// fault adds to an error what the process said last.
func (e *edge) fault(err error) error {
	if said := e.said.String(); err != nil && said != "" {
		return fmt.Errorf("%w (weir said: %s)", err, said)
	}
	return err
}

// get asks the admin door for a page, over a connection of its own.
func (e *edge) get(ctx context.Context, path string, within time.Duration) (status int, body []byte) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.admin+path, nil)
	if err != nil {
		return 0, nil
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return 0, nil
	}
	return resp.StatusCode, body
}

// status is what the edge says of itself, as far as rows need it.
type status struct {
	Sessions int    `json:"sessions"`
	Streams  int    `json:"streams"`
	Inflight int64  `json:"inflight"`
	Reloads  int64  `json:"reloads"`
	Reload   string `json:"reload"` // why the last one changed nothing

	DiscoveredBackends []backendStatus `json:"discoveredBackends"`

	Store struct { // that it shares, if any
		Connected bool `json:"connected"`
	} `json:"store"`
	Filters []struct {
		SHA256 string `json:"sha256"`
	} `json:"filters"`
}

// backendStatus is what it says of a backend.
type backendStatus struct {
	Name                string `json:"name"`
	Status              string `json:"status"`
	CircuitBreakerState string `json:"circuitBreakerState"`
	Calls               int64  `json:"calls"` // that were let through
	Failed              int64  `json:"failed"`
}

// backend returns what is said of one backend.
func (s status) backend(name string) (one backendStatus) {
	for _, one = range s.DiscoveredBackends {
		if one.Name == name {
			return one
		}
	}
	return backendStatus{}
}

func (e *edge) status(ctx context.Context) (s status, err error) {
	code, body := e.get(ctx, "/status", 10*time.Second)
	if code != 200 {
		return s, e.fault(fmt.Errorf("status: HTTP %d", code))
	}
	return s, json.Unmarshal(body, &s)
}

// goroutines is how many goroutines the edge has, and what they do. It needs
// --pprof.
func (e *edge) goroutines(ctx context.Context) (n int, text []byte, err error) {
	code, text := e.get(ctx, "/debug/pprof/goroutine?debug=1", 10*time.Second)
	if _, err := fmt.Sscanf(string(text), "goroutine profile: total %d", &n); code != 200 || err != nil {
		return 0, nil, e.fault(fmt.Errorf("goroutines: HTTP %d: %.100q", code, text))
	}
	return n, text, nil
}
