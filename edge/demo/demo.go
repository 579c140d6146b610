// Package demo is the backend that Weir brings along: a small MCP server that
// speaks both eras on one URL, so that an edge without a configuration has
// something to show and a test has something honest to stand behind the edge.
//
// It answers the same to everybody, keeps nothing, and listens on loopback
// only. tools.go is what it offers, era.go how a request finds its era.
package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Path is where the server answers under its address.
const Path = "/mcp"

const (
	idle    = 30 * time.Minute       // a legacy session unused for so long ends
	pace    = 250 * time.Millisecond // between two numbers of a countdown
	maxBody = 1 << 20                // bytes of a request
)

// Server is a running demo backend.
type Server struct {
	listener net.Listener
	http     *http.Server
	mcp      *mcp.Server
	stop     context.CancelFunc // ends the tools that wait
	ended    chan struct{}      // closed when the goroutine of Start has returned
}

// Start serves the demo backend on addr, HOST:PORT with a loopback host; an
// empty addr is 127.0.0.1:0, where the system chooses the port. The caller must
// Close what it returns.
func Start(addr string) (*Server, error) { return start(addr, pace) }

func start(addr string, pace time.Duration) (*Server, error) {
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	if err := loopback(addr); err != nil {
		return nil, fmt.Errorf("demo backend: %w", err)
	}
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("demo backend: %w: choose another port, or 0 for any that is free", err)
	}
	if err != nil {
		return nil, fmt.Errorf("demo backend: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{listener: l, mcp: offer(ctx, pace), stop: stop, ended: make(chan struct{})}
	s.http = &http.Server{
		Handler:           sameMachine(eras(s.mcp)),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
	}
	go func() { // ends when Close closes the listener
		defer close(s.ended)
		_ = s.http.Serve(l)
	}()
	return s, nil
}

// URL is where the server answers, http://HOST:PORT/mcp.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + Path }

// Close ends the server, its sessions and what runs in it. It may be called
// more than once.
func (s *Server) Close() {
	s.stop()
	_ = s.http.Close()
	<-s.ended
	for session := range s.mcp.Sessions() {
		_ = session.Close()
	}
}

// loopback refuses an address that another machine could reach: the server
// authenticates nobody.
func loopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT, such as 127.0.0.1:0", addr)
	}
	if !local(host) {
		return fmt.Errorf("%q is not a loopback address: it serves this machine only, give 127.0.0.1:PORT", addr)
	}
	return nil
}

func local(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
