package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"

	"github.com/weir-edge/weir/edge/edgetest/port"
)

// Era is a family of protocol revisions: "legacy" up to 2025-11-25, "modern"
// from 2026-07-28 on.
type Era string

// The eras.
const (
	Legacy Era = "legacy"
	Modern Era = "modern"
)

// Server is a kind of server to put behind the edge.
type Server struct {
	Name      string
	Era       Era
	Transport string // streamable-http or sse, as a backend's transport field has it
	npm       string // the argument of the npm server; empty for the server of the go-sdk
}

// GoServer is the conformance server of the go-sdk. It speaks one era; its
// modern form keeps no sessions.
func GoServer(era Era) Server {
	return Server{Name: "go-sdk-" + string(era), Era: era, Transport: "streamable-http"}
}

// NpmHTTP is the npm package @modelcontextprotocol/server-everything over
// streamable HTTP.
func NpmHTTP() Server {
	return Server{Name: "npm-http", Era: Legacy, Transport: "streamable-http", npm: "streamableHttp"}
}

// NpmSSE is the same package over the older transport, HTTP with SSE.
func NpmSSE() Server {
	return Server{Name: "npm-sse", Era: Legacy, Transport: "sse", npm: "sse"}
}

// NeedsNode reports whether the server is a node program.
func (s Server) NeedsNode() bool { return s.npm != "" }

// Shop builds each Go program once, when it is first wanted, into a folder. It
// is safe for concurrent use.
type Shop struct {
	Kit
	dir string

	mu    sync.Mutex
	built map[string]error
}

// NewShop returns a shop that builds into dir, which the caller removes.
func NewShop(k Kit, dir string) *Shop {
	return &Shop{Kit: k, dir: dir, built: map[string]error{}}
}

// Program returns the path of the program of a Go package.
func (s *Shop) Program(ctx context.Context, pkg string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := filepath.Join(s.dir, filepath.Base(pkg))
	err, done := s.built[pkg]
	if !done {
		err = s.Build(ctx, pkg, out)
		s.built[pkg] = err
	}
	return out, err
}

// The Go packages of programs: the edge, and the conformance server and client
// of the go-sdk.
const (
	WeirPackage     = "./cmd/weir"
	GoServerPackage = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"
	GoClientPackage = "github.com/modelcontextprotocol/go-sdk/conformance/everything-client"
)

// Start starts a server and waits until it listens. It returns the URL of its
// endpoint. The caller stops the process.
func (s *Shop) Start(ctx context.Context, server Server) (p *Process, url string, err error) {
	addr, err := port.Free()
	if err != nil {
		return nil, "", err
	}
	endless := context.WithoutCancel(ctx)
	if server.npm != "" {
		_, number, _ := net.SplitHostPort(addr)
		cmd := Command(endless, s.Node, s.Module(npmEverything), server.npm)
		cmd.Env = append(cmd.Env, "PORT="+number)
		p, err = start(server.Name, addr, cmd)
	} else {
		var program string
		if program, err = s.Program(ctx, GoServerPackage); err != nil {
			return nil, "", err
		}
		p, err = start(server.Name, addr, Command(endless, program, "-http="+addr, fmt.Sprintf("-stateless=%t", server.Era == Modern)))
	}
	if err != nil {
		return nil, "", err
	}
	if err := p.await(ctx, p.listens); err != nil {
		return nil, "", errors.Join(err, p.Stop())
	}
	path := "/mcp"
	if server.Transport == "sse" {
		path = "/sse"
	}
	return p, "http://" + addr + path, nil
}
