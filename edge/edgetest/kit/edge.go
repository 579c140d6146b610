package kit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/port"
)

// Edge is the edge under test: a process of its own.
type Edge struct {
	*Process
	Admin string        // host:port
	Ready time.Duration // from its start until it said that it is ready
}

// ReadyLimit bounds how long an edge may take to be ready.
const ReadyLimit = 10 * time.Second

// Seat is where an edge listens, host:port.
type Seat struct{ Addr, Admin string }

// FreeSeat returns two addresses on which nothing listens now.
func FreeSeat() (s Seat, err error) {
	if s.Addr, err = port.Free(); err != nil {
		return s, err
	}
	for s.Admin = s.Addr; s.Admin == s.Addr; {
		if s.Admin, err = port.Free(); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Launch starts a program as the edge of a manifest and does not wait.
func Launch(program, manifest string, at Seat, env []string, flags ...string) (*Edge, error) {
	args := slices.Concat([]string{"serve", "-c", manifest, "--listen", at.Addr, "--admin-listen", at.Admin}, flags)
	p, err := Start("weir", exec.Command(program, args...), nil, env...)
	if err != nil {
		return nil, err
	}
	p.Addr = at.Addr
	return &Edge{Process: p, Admin: at.Admin}, nil
}

// AwaitReady asks one of the edge's addresses for /readyz every millisecond
// until it says 200. The error is ErrNotReady for an edge that lives and does
// not say so in time.
func (e *Edge) AwaitReady(ctx context.Context, at string) error {
	for !isReady(ctx, at) {
		select {
		case <-e.Ended:
			return e.Fault(fmt.Errorf("%s: it ended before it was ready", e.Name))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
		if time.Since(e.Began) > ReadyLimit {
			return e.Fault(fmt.Errorf("%s: %w: %s", e.Name, ErrNotReady, ReadyLimit))
		}
	}
	e.Ready = time.Since(e.Began)
	return nil
}

func isReady(ctx context.Context, addr string) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	c := Client{Conn: conn, In: bufio.NewReader(conn)}
	defer c.Close()
	c.Wait(time.Second)
	a, err := c.Do([]byte("GET /readyz HTTP/1.1\r\nHost: " + addr + "\r\nConnection: close\r\n\r\n"))
	return err == nil && a.Status == 200
}

// Get asks the admin address for a page, over a connection of its own; status
// is 0 when there was no answer.
func (e *Edge) Get(ctx context.Context, path string, within time.Duration) (status int, body []byte) {
	return Get(ctx, "http://"+e.Admin+path, within)
}

// Reload asks the edge to read its manifests again, and waits until it has.
func (e *Edge) Reload(ctx context.Context) error {
	if status, _ := Ask(ctx, http.MethodPost, "http://"+e.Admin+"/-/reload", 10*time.Second); status != 200 {
		return fmt.Errorf("reload: HTTP %d", status)
	}
	return nil
}

// Status is what an edge says of itself, as far as tools need it.
type Status struct {
	Sessions int    `json:"sessions"`
	Streams  int    `json:"streams"`
	Inflight int64  `json:"inflight"`
	Reloads  int64  `json:"reloads"`
	Reload   string `json:"reload"` // why the last one changed nothing

	DiscoveredBackends []BackendStatus `json:"discoveredBackends"`

	Store struct { // that it shares, if any
		Connected bool `json:"connected"`
	} `json:"store"`
	RateLimits struct {
		FailOpen int `json:"failOpen"` // calls that were admitted and that the store could not count
	} `json:"rateLimits"`
	Filters []struct {
		SHA256 string `json:"sha256"`
	} `json:"filters"`
}

// BackendStatus is what it says of a backend.
type BackendStatus struct {
	Name                string `json:"name"`
	CircuitBreakerState string `json:"circuitBreakerState"`
	Calls               int64  `json:"calls"` // that were let through
}

// Backend returns what is said of one backend.
func (s Status) Backend(name string) (one BackendStatus) {
	for _, one = range s.DiscoveredBackends {
		if one.Name == name {
			return one
		}
	}
	return BackendStatus{}
}

// Status asks the edge what it says of itself.
func (e *Edge) Status(ctx context.Context) (s Status, err error) {
	code, body := e.Get(ctx, "/status", 10*time.Second)
	if code != 200 {
		return s, fmt.Errorf("status: HTTP %d", code)
	}
	return s, json.Unmarshal(body, &s)
}
