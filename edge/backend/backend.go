// Package backend is the back door: it talks to one MCP server, of either era
// and over any of the HTTP transports, and puts on the wire nothing but the
// call itself.
package backend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Config is what a backend is told. Sizes are bytes.
type Config struct {
	Name       string
	Digest     string         // tells this configuration from another
	URL        string         // http or https
	SSE        bool           // the transport is HTTP with SSE (2024-11-05)
	Roots      *x509.CertPool // nil for those of the system
	Silence    time.Duration  // how long the backend may keep silent during a call
	Cap        time.Duration  // how long a call may take whatever happens
	MaxMessage int            // of one answer or event
	Info       []byte         // JSON text: the clientInfo that the edge gives of itself
	Agent      string         // the User-Agent
	Log        *slog.Logger
}

// Backend talks to one MCP server. It is safe for concurrent use.
type Backend struct {
	Config
	peer *peer

	intro   atomic.Pointer[Introduction]
	asking  chan struct{} // one place: whoever is in it finds the introduction out
	lastErr atomic.Pointer[error]

	mu     sync.Mutex
	shared map[sort]*pooled // sessions for clients that have none
	params sync.Map         // tool name to []headerParam, for tools that want headers

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // the goroutines that end with life

	starting sync.Mutex // one that has begun to start one has done so
	closed   bool
}

// Introduction is what a backend said of itself.
type Introduction struct {
	Era          mcp.Era
	SSE          bool   // legacy, over HTTP with SSE
	Version      string // the revision agreed on
	Capabilities []byte // JSON text
	Instructions []byte // JSON text of a string; nil for none
	Info         []byte // JSON text of serverInfo; nil when unknown
}

// Status is what is known of a backend at a moment.
type Status struct {
	Name    string
	URL     string
	Era     string // "legacy", "modern" or "" while unknown
	Version string
	Ready   bool   // it has introduced itself and its last call reached it
	Message string // why it is not ready
}

// Open makes a backend and begins to find out what it speaks. It fails for
// what waiting does not cure; that a backend is down is no such thing.
func Open(c Config) (*Backend, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("backend %s: %q is not an http or https URL", c.Name, c.URL)
	}
	life, end := context.WithCancel(context.Background())
	b := &Backend{
		Config: c,
		asking: make(chan struct{}, 1),
		shared: make(map[sort]*pooled),
		life:   life,
		end:    end,
	}
	b.peer = newPeer(u, newPool(u, &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12}), c.Agent, c.MaxMessage)
	b.spawn("introduce", b.introduce)
	return b, nil
}

// spawn runs f on a goroutine that Close waits for. What comes after Close is
// not begun.
func (b *Backend) spawn(what string, f func()) {
	b.starting.Lock()
	defer b.starting.Unlock()
	if b.closed {
		return
	}
	b.work.Go(func() {
		defer edge.Contain(b.Log, what)
		f()
	})
}

// Close ends what the backend holds: its sessions get a DELETE, its
// connections are closed. Calls under way fail.
func (b *Backend) Close() error {
	b.mu.Lock()
	shared := b.shared
	b.shared = nil
	b.mu.Unlock()
	for _, p := range shared {
		for _, s := range p.free {
			s.Close()
		}
	}
	b.starting.Lock()
	b.closed = true
	b.starting.Unlock()
	b.end()
	b.work.Wait()
	b.peer.pool.close()
	return nil
}

// Leave ends what a client's session has with the backend.
func (b *Backend) Leave(client *edge.Session) {
	for _, key := range []any{b, watchKey{b}} {
		if c := client.Attached(key); c != nil {
			client.Detach(key, c)
			c.Close()
		}
	}
}

// introduce asks the backend what it speaks until it says so.
func (b *Backend) introduce() {
	wait := 250 * time.Millisecond
	for {
		_, err := b.Introduced(b.life)
		if err == nil {
			return
		}
		b.Log.Warn("backend does not answer", "backend", b.Name, "error", err, "retry", wait)
		select {
		case <-b.life.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, 30*time.Second)
	}
}

// Introduced returns what the backend said of itself, and asks it when it has
// not said anything yet.
func (b *Backend) Introduced(ctx context.Context) (*Introduction, error) {
	if in := b.intro.Load(); in != nil {
		return in, nil
	}
	select {
	case b.asking <- struct{}{}:
		defer func() { <-b.asking }()
	case <-ctx.Done():
		return nil, edge.Errorf(edge.Gone, "introduction", "%w", context.Cause(ctx))
	}
	if in := b.intro.Load(); in != nil {
		return in, nil
	}
	in, err := b.detect(ctx)
	b.note(err)
	if err != nil {
		return nil, b.named(err)
	}
	b.intro.Store(in)
	b.Log.Info("backend introduced itself", "backend", b.Name, "era", in.Era.String(), "version", in.Version, "sse", in.SSE)
	return in, nil
}

// Known returns the introduction if there has been one; else nil.
func (b *Backend) Known() *Introduction { return b.intro.Load() }

// forget drops an introduction that a call has proved wrong.
func (b *Backend) forget(in *Introduction) { b.intro.CompareAndSwap(in, nil) }

// note keeps how the last exchange ended, for Status.
func (b *Backend) note(err error) {
	if err == nil {
		if b.lastErr.Load() != nil {
			b.lastErr.Store(nil)
		}
		return
	}
	if k := edge.KindOf(err); k == edge.Unavailable || k == edge.Timeout {
		last := err
		b.lastErr.Store(&last)
	}
}

// Status returns what is known now.
func (b *Backend) Status() Status {
	s := Status{Name: b.Name, URL: b.URL}
	if in := b.intro.Load(); in != nil {
		s.Era, s.Version, s.Ready = in.Era.String(), in.Version, true
	} else {
		s.Message = "has not introduced itself yet"
	}
	if p := b.lastErr.Load(); p != nil {
		s.Ready, s.Message = false, (*p).Error()
	}
	return s
}

// errEra says that the backend is not of the era that it was taken for, and
// that it did not run what it was sent.
var errEra = errors.New("the backend speaks another era of the protocol")

// Handle sends the message of x to the backend and returns the answer in the
// era of the client. The backend's questions and notifications go to x.Client.
func (b *Backend) Handle(ctx context.Context, x *edge.Exchange) (*edge.Response, error) {
	for try := 0; ; try++ {
		in, err := b.Introduced(ctx)
		if err != nil {
			return nil, err
		}
		var r *edge.Response
		if in.Era == mcp.Modern {
			r, err = b.toModern(ctx, x)
		} else {
			r, err = b.toLegacy(ctx, x, in)
		}
		if errors.Is(err, errEra) && try == 0 {
			b.forget(in)
			continue
		}
		b.note(err)
		if err != nil {
			return nil, b.named(err)
		}
		return r, nil
	}
}

// named gives an error the name of the backend, and a client no more of it
// than that: addresses and causes are for the log.
func (b *Backend) named(err error) error {
	if err == nil {
		return nil
	}
	kind := edge.KindOf(err)
	switch kind {
	case edge.Unavailable, edge.Internal:
		b.Log.Debug("backend unavailable", "backend", b.Name, "error", err)
		return &edge.Error{Kind: edge.Unavailable, Op: err.Error(), Err: fmt.Errorf("backend %q unavailable", b.Name)}
	case edge.Timeout:
		b.Log.Debug("backend timed out", "backend", b.Name, "error", err)
		return &edge.Error{Kind: edge.Timeout, Op: err.Error(), Err: fmt.Errorf("backend %q timed out", b.Name)}
	}
	return err
}
