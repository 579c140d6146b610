package door

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// Rules say whom an entrance lets in.
type Rules struct {
	Hosts   []string // allowed values of Host, besides those of a loopback address
	Origins []string // allowed values of Origin, besides those of a loopback address
	Proxies []string // networks whose proxies are believed
}

// Entrance is one address of a door. All entrances of a door share its connections,
// limits and memory; each has rules of its own, and may be closed by itself.
type Entrance struct {
	door     *Door
	ln       net.Listener
	bare     net.Listener // ln without TLS
	loopback bool         // only this host can reach it
	rules    atomic.Pointer[judges]
	leaving  atomic.Bool // every answer is the last on its connection

	mu      sync.Mutex
	serving *listener // nil before Serve
	closed  bool
}

// judges are Rules, ready to be asked.
type judges struct {
	hosts, origins Allowed
	proxies        Proxies
}

// Open opens an entrance at a listener, which is closed with it. It fails when the
// certificate cannot be used, or a network of a proxy is none.
func (d *Door) Open(ln net.Listener, r Rules) (*Entrance, error) {
	en := &Entrance{door: d, ln: ln, bare: ln}
	if d.o.TLS.Cert != "" {
		var err error
		if en.ln, err = WithTLS(ln, d.o.TLS, d.o.Log); err != nil {
			return nil, err
		}
	}
	addr, _ := en.ln.Addr().(*net.TCPAddr)
	en.loopback = addr != nil && addr.IP.IsLoopback()
	if err := en.Allow(r); err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.entrances = append(d.entrances, en)
	d.mu.Unlock()
	return en, nil
}

// Allow sets the rules of the entrance, for requests that come from now on. Its error names
// the flag that is wrong.
func (en *Entrance) Allow(r Rules) error {
	proxies, err := ParseProxies(r.Proxies)
	if err != nil {
		return fmt.Errorf("--trusted-proxies: %w", err)
	}
	en.rules.Store(en.judges(r, proxies))
	return nil
}

// judges derives which values of Host and Origin pass. On a loopback address both are
// checked, so that a page in a browser of this host cannot reach the edge under a name of
// its own (DNS rebinding).
func (en *Entrance) judges(r Rules, proxies Proxies) *judges {
	j := &judges{proxies: proxies}
	j.origins.Add(r.Origins...)
	j.hosts.Add(r.Hosts...)
	j.hosts.Any = !en.loopback && len(r.Hosts) == 0
	if !en.loopback {
		return j
	}
	scheme, usual := "http", 80
	if en.door.o.TLS.Cert != "" {
		scheme, usual = "https", 443
	}
	addr := en.ln.Addr().(*net.TCPAddr)
	_, port, _ := net.SplitHostPort(en.Addr())
	for _, name := range []string{"localhost", "127.0.0.1", "[::1]"} {
		j.hosts.Add(name + ":" + port)
		j.origins.Add(scheme + "://" + name + ":" + port)
		if addr.Port == usual {
			j.hosts.Add(name)
			j.origins.Add(scheme + "://" + name)
		}
	}
	return j
}

// Serve takes connections until the entrance is closed, or its door is shut.
func (en *Entrance) Serve() error {
	en.mu.Lock()
	if en.closed {
		en.mu.Unlock()
		return nil
	}
	en.serving = &listener{Listener: en.ln, entrance: en, closed: make(chan struct{})}
	en.mu.Unlock()
	return en.door.server.Serve(en.serving)
}

// Close takes no further connection here, and ends those that wait for a request. Every
// answer is the last on its connection from now on.
func (en *Entrance) Close() {
	en.leaving.Store(true)
	en.mu.Lock()
	en.closed = true
	if en.serving != nil {
		_ = en.serving.Close()
	} else {
		_ = en.ln.Close()
	}
	en.mu.Unlock()
	d := en.door
	d.mu.Lock()
	for i, one := range d.entrances {
		if one == en {
			d.entrances = append(d.entrances[:i:i], d.entrances[i+1:]...)
			break
		}
	}
	d.mu.Unlock()
	d.retire(en)
}

// Socket returns the listener below TLS.
func (en *Entrance) Socket() net.Listener { return en.bare }

// Addr returns host:port.
func (en *Entrance) Addr() string { return en.ln.Addr().String() }

// Loopback reports whether only this host can reach the entrance.
func (en *Entrance) Loopback() bool { return en.loopback }

// Leaving reports whether every answer is the last on its connection.
func (en *Entrance) Leaving() bool { return en.leaving.Load() || en.door.Leaving() }

// AllowsHost reports whether a value of Host passes.
func (en *Entrance) AllowsHost(host []byte) bool { return en.rules.Load().hosts.Allow(host) }

// AllowsOrigin reports whether a value of Origin passes.
func (en *Entrance) AllowsOrigin(origin []byte) bool { return en.rules.Load().origins.Allow(origin) }

// clientOf is the address of the client of a request that came from an address, and whether it is doubted.
func (en *Entrance) clientOf(from string, h *fasthttp.RequestHeader) (client string, doubted bool) {
	if en == nil { // a connection without a socket
		return from, false
	}
	return en.rules.Load().proxies.ClientOf(from, h)
}

// open returns the entrances of the door.
func (d *Door) open() []*Entrance {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*Entrance(nil), d.entrances...)
}

// full reports whether the door has as many connections as it may. The HTTP server holds
// each entrance to that number by itself.
func (d *Door) full() bool {
	d.mu.Lock()
	several := len(d.entrances) > 1
	d.mu.Unlock()
	return several && d.o.MaxConnections > 0 && d.Connections() >= d.o.MaxConnections
}

// turnAway tells a client that there are too many connections.
func turnAway(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(turnDownWithin))
	_, _ = io.WriteString(c, "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	_ = c.Close()
}

// errNoEntrance is the error of a hand-over without an address.
var errNoEntrance = errors.New("there is no address to hand over")
