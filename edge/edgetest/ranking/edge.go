package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/edgetest/peers"
	"github.com/weir-edge/weir/edge/edgetest/port"
)

// patience bounds what is waited for: programs that start, and vectors of all tools.
const patience = 2 * time.Minute

// serve has a server of the go-sdk list captured tools, on an address of the loopback
// interface, until the function that it returns is called.
func serve(s server) (url string, stop func(), err error) {
	of := mcp.NewServer(&mcp.Implementation{Name: s.Name, Version: s.Version}, nil)
	for _, text := range s.Tools {
		var schemas struct{ InputSchema, OutputSchema json.RawMessage }
		tool := &mcp.Tool{}
		if err := errors.Join(json.Unmarshal(text, tool), json.Unmarshal(text, &schemas)); err != nil {
			return "", nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		tool.InputSchema = schemas.InputSchema // in the order of the text
		if schemas.OutputSchema != nil {
			tool.OutputSchema = schemas.OutputSchema
		}
		of.AddTool(tool, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return nil, errors.New("it is not there to be called")
		})
	}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	web := &http.Server{
		Handler:           mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return of }, &mcp.StreamableHTTPOptions{Stateless: true}),
		ReadHeaderTimeout: time.Minute,
	}
	go func() { _ = web.Serve(at) }() // ends with stop
	return "http://" + at.Addr().String(), func() { _ = web.Close() }, nil
}

// stage is an edge before the servers of a set.
type stage struct {
	*kit.Edge
	client   *kit.Client
	manifest string // its file
	backends string // YAML
	asked    int
	closers  []func()
}

func (s *stage) close() {
	for _, f := range s.closers {
		defer f()
	}
}

// open starts an edge before servers, with an optimizer, in YAML, or without one for "". dir
// is for its manifest.
func open(ctx context.Context, program, dir string, servers []server, optimizer string) (s *stage, err error) {
	s = &stage{manifest: filepath.Join(dir, "edge.yaml")}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	for _, one := range servers {
		url, stop, err := serve(one)
		if err != nil {
			return s, err
		}
		s.closers = append(s.closers, stop)
		s.backends += fmt.Sprintf("    - {name: %s, url: %q, transport: streamable-http}\n", one.Name, url)
	}
	if err := s.write(optimizer); err != nil {
		return s, err
	}
	seat, err := kit.FreeSeat()
	if err != nil {
		return s, err
	}
	if s.Edge, err = kit.Launch(program, s.manifest, seat, nil); err != nil {
		return s, err
	}
	s.closers = append(s.closers, s.Edge.Stop)
	if err := s.AwaitReady(ctx, seat.Addr); err != nil {
		return s, err
	}
	if s.client, err = kit.Dial(ctx, seat.Addr, kit.Modern, kit.DialOptions{Buffer: 64 << 10}); err != nil {
		return s, err
	}
	s.closers = append(s.closers, s.client.Close)
	return s, nil
}

func (s *stage) write(optimizer string) error {
	if optimizer != "" {
		optimizer = "    optimizer: " + optimizer + "\n"
	}
	return os.WriteFile(s.manifest, []byte(`apiVersion: weir.dev/v1beta1
kind: MCPGroup
metadata: {name: ranking}
---
apiVersion: weir.dev/v1beta1
kind: VirtualMCPServer
metadata: {name: ranking}
spec:
  groupRef: {name: ranking}
  incomingAuth: {type: anonymous}
  config:
    aggregation: {conflictResolution: prefix}
`+optimizer+"    backends:\n"+s.backends), 0o600)
}

// change gives the edge another optimizer; "" for none.
func (s *stage) change(ctx context.Context, optimizer string) error {
	if err := s.write(optimizer); err != nil {
		return err
	}
	if err := s.Reload(ctx); err != nil {
		return err
	}
	status, err := s.Status(ctx)
	if err == nil && status.Reload != "" {
		err = errors.New("reload: " + status.Reload)
	}
	return err
}

// request sends a request of the modern era, and reads its result.
func (s *stage) request(method, name, params string, result any) error {
	s.asked++
	s.client.Wait(kit.Patience)
	a, err := s.client.Do(s.client.Modern(fmt.Sprint(s.asked), method, name, params, ""))
	if err != nil {
		return err
	}
	var m struct {
		Result json.RawMessage
		Error  json.RawMessage
	}
	if err := json.Unmarshal(a.Body, &m); err != nil || a.Status != 200 || m.Result == nil {
		return fmt.Errorf("%s: HTTP %d: %.300s", method, a.Status, a.Body)
	}
	return json.Unmarshal(m.Result, result)
}

// found is an answer of find_tool.
type found struct {
	IsError           bool
	StructuredContent struct {
		Tools   json.RawMessage
		Metrics struct {
			Baseline int `json:"baseline_tokens"`
			Returned int `json:"returned_tokens"`
		} `json:"token_metrics"`
	}
	Meta struct {
		Search string `json:"weir.dev/search"`
	} `json:"_meta"`
}

// find asks for tools.
func (s *stage) find(text string) (f *found, names []string, err error) {
	arguments, err := json.Marshal(map[string]string{"tool_description": text})
	if err != nil {
		return nil, nil, err
	}
	f = &found{}
	if err := s.request("tools/call", "find_tool", `"name":"find_tool","arguments":`+string(arguments), f); err != nil {
		return nil, nil, err
	}
	var tools []struct{ Name string }
	if err := json.Unmarshal(f.StructuredContent.Tools, &tools); err != nil || f.IsError {
		return nil, nil, fmt.Errorf("find_tool %q: no list of tools", text)
	}
	for _, t := range tools {
		names = append(names, t.Name)
	}
	return f, names, nil
}

// list is the tools that a client is listed, JSON text of an array.
func (s *stage) list() (all json.RawMessage, n int, err error) {
	var page struct{ Tools json.RawMessage }
	if err := s.request("tools/list", "", "", &page); err != nil {
		return nil, 0, err
	}
	var each []json.RawMessage
	err = json.Unmarshal(page.Tools, &each)
	return page.Tools, len(each), err
}

// gauge reads a metric of the edge; 0 where it is not there.
func (s *stage) gauge(ctx context.Context, name string) (n float64) {
	_, page := s.Get(ctx, "/metrics", kit.Patience)
	if m := regexp.MustCompile(`(?m)^` + name + `(?:\{[^}]*\})? (\S+)$`).FindSubmatch(page); m != nil {
		_, _ = fmt.Sscan(string(m[1]), &n)
	}
	return n
}

// until waits for something.
func until(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !done() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s", what, patience)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// model starts the sentence model of the npm packages, as an embedding service.
func model(ctx context.Context, k peers.Kit) (url string, p *kit.Process, err error) {
	addr, err := port.Free()
	if err != nil {
		return "", nil, err
	}
	p, err = kit.Start("the sentence model", exec.Command(k.Node, filepath.Join(k.Dir(), "clients", "embeddings.mjs"), addr[strings.LastIndex(addr, ":")+1:]), nil)
	if err != nil {
		return "", nil, err
	}
	url = "http://" + addr
	err = until(ctx, "the sentence model", func() bool {
		status, _ := kit.Get(ctx, url+"/info", kit.Patience)
		return status == 200
	})
	if err != nil {
		p.Stop()
		return "", nil, p.Fault(err)
	}
	return url, p, nil
}
