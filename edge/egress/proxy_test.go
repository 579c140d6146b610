package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// outside is what stands around the proxy of a test: names, hosts that count who reaches
// them, and what is told of decisions.
type outside struct {
	t       testing.TB
	p       *Proxy
	g       *Passage
	lookups atomic.Int64

	mu     sync.Mutex
	names  map[string][]string // name → addresses
	hosts  map[string]*host    // address and port → who listens there
	dialed []string
	told   []Record
	logged bytes.Buffer
}

// host listens at an address that stands for one of the internet.
type host struct {
	ln      net.Listener
	reached atomic.Int64
	read    atomic.Int64 // bytes
}

// awaits waits until so many have reached the host: who connects is told so before the host is.
func (h *host) awaits(t testing.TB, n int64) {
	t.Helper()
	fake.Until(t, "the host to be reached", func() bool { return h.reached.Load() >= n })
}

var public = v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test"}, AllowPort: []int{80, 443, 8080}}

// open opens the passage of a sandbox with a profile.
func open(t testing.TB, out v1beta1.ProfileOutbound, o Options) *outside {
	t.Helper()
	w := &outside{t: t, names: map[string][]string{"allowed.test": {"93.184.216.34"}}, hosts: map[string]*host{}}
	w.p = New(Config{
		Workload: "w", Rules: rules(t, o, out), Log: slog.New(slog.NewTextHandler(w, nil)),
		Resolve: func(_ context.Context, name string) (all []netip.Addr, err error) {
			w.lookups.Add(1)
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, text := range w.names[name] {
				all = append(all, netip.MustParseAddr(text))
			}
			return all, nil
		},
		Tell: func(r Record) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, r)
		},
	})
	w.p.connector = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		w.mu.Lock()
		w.dialed = append(w.dialed, to.String())
		h := w.hosts[to.String()]
		w.mu.Unlock()
		if h == nil {
			return nil, errors.New("nobody listens")
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", h.ln.Addr().String())
	}
	w.g = w.p.Open()
	t.Cleanup(w.g.Close)
	return w
}

// Write takes what is logged.
func (w *outside) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.logged.Write(b)
}

func (w *outside) log() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.logged.String()
}

// host has somebody listen at an address.
func (w *outside) host(at string, serve func(net.Conn)) *host {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	h := &host{ln: ln}
	w.mu.Lock()
	w.hosts[at] = h
	w.mu.Unlock()
	var work sync.WaitGroup
	w.t.Cleanup(func() { _ = ln.Close(); w.g.Close(); work.Wait() })
	work.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			h.reached.Add(1)
			work.Go(func() {
				defer c.Close()
				serve(&counted{c, h})
			})
		}
	})
	return h
}

type counted struct {
	net.Conn
	h *host
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.h.read.Add(int64(n))
	return n, err
}

// echo sends back what comes.
func echo(c net.Conn) { _, _ = io.Copy(c, c) }

// inside is a connection that a server made to an address of its sandbox.
type inside struct {
	net.Conn
	at net.Addr
}

func (c inside) LocalAddr() net.Addr { return c.at }
func (c inside) CloseWrite() error   { return c.Conn.(*net.TCPConn).CloseWrite() }

// halfway is a stream of the link: what is closed at this end can be read until the other one
// is closed, too.
type halfway struct {
	inside
	reading atomic.Int32
}

func (c *halfway) Read(b []byte) (int, error) {
	c.reading.Add(1)
	defer c.reading.Add(-1)
	return c.inside.Read(b)
}

func (c *halfway) Close() error { return c.CloseWrite() }

// connect connects from inside to an address of the sandbox; served says when the passage has
// done with it.
func (w *outside) connect(to string) (c net.Conn, served <-chan struct{}) {
	w.t.Helper()
	c, theirs := w.wire(to)
	done := make(chan struct{})
	g := w.g
	go func() {
		g.Serve(theirs)
		close(done)
	}()
	return c, done
}

// wire is a connection from inside to an address of the sandbox, and its other end.
func (w *outside) wire(to string) (c net.Conn, other inside) {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer ln.Close()
	c, err = net.Dial("tcp", ln.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	theirs, err := ln.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c, inside{theirs, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(to))}
}

func (w *outside) proxy() net.Conn {
	c, _ := w.connect("127.0.0.1:3128")
	return c
}

// say sends a text to the proxy, and returns all that comes back.
func (w *outside) say(text string) string {
	c := w.proxy()
	go func() { _, _ = io.WriteString(c, text) }()
	b, err := io.ReadAll(c)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		w.t.Errorf("%.60q: %v", text, err)
	}
	return string(b)
}

func connectTo(target string) string {
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n\r\n"
}

// tunnel opens one by CONNECT.
func (w *outside) tunnel(target string) net.Conn {
	w.t.Helper()
	c := w.proxy()
	_, _ = io.WriteString(c, connectTo(target))
	head := make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))
	if _, err := io.ReadFull(c, head); err != nil || !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) {
		rest, _ := io.ReadAll(c)
		w.t.Fatalf("%s: %q%q %v", target, head, rest, err)
	}
	return c
}

func (w *outside) denied(r Reason) uint64 { return w.p.denied[r].Load() }

// TestNobodyReadsOn has a client keep its end of a stream of the link open after it was
// answered, refused, or its tunnel was idle: nobody reads the stream any longer. What reads it
// has a buffer that the server gives to the next connection, of another workload maybe.
func TestNobodyReadsOn(t *testing.T) {
	for what, send := range map[string]string{
		"answered": "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"refused":  "GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n",
		"garbage":  "no request\r\n\r\n",
		"a tunnel": connectTo("allowed.test:8080"),
	} {
		t.Run(what, func(t *testing.T) {
			w := open(t, public, Options{})
			w.p.times.idle = 500 * time.Millisecond
			w.host("93.184.216.34:80", func(c net.Conn) {
				_, _ = http.ReadRequest(bufio.NewReader(c))
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			})
			w.host("93.184.216.34:8080", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
			c, theirs := w.wire("127.0.0.1:3128")
			stream := &halfway{inside: theirs}
			served := make(chan struct{})
			go func() {
				w.g.Serve(stream)
				close(served)
			}()
			_, _ = io.WriteString(c, send)
			if b, err := io.ReadAll(c); err != nil || !bytes.HasPrefix(b, []byte("HTTP/1.1 ")) {
				t.Errorf("%q, %v", b, err)
			}
			select {
			case <-served:
			case <-time.After(10 * time.Second):
				t.Fatal("the passage is not done with it")
			}
			for end := time.Now().Add(5 * time.Second); stream.reading.Load() > 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("somebody still reads it")
				}
			}
		})
	}
}

// status is that of an answer; 0 for none.
func status(answer string) (n int) {
	_, _ = fmt.Sscanf(answer, "HTTP/1.1 %d ", &n)
	return n
}

// TestConnect judges where CONNECT leads: V06 to V10, V13, V14, V17, V18. Nobody is reached
// who must not be, and nothing is asked about names that are not allowed.
func TestConnect(t *testing.T) {
	w := open(t, v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test", "rebind.test", "both.test", "meta.test", "cname.test", "loop.test", "v6.test", "private.test", "mapped.test", "nat64.test", "many.test", "none.test", ".below.test"}, AllowPort: []int{443}}, Options{})
	for name, addrs := range map[string][]string{
		"both.test": {"93.184.216.34", "127.0.0.1"}, "meta.test": {"169.254.169.254"}, "cname.test": {"100.100.100.200"}, "loop.test": {"127.0.0.1"}, "v6.test": {"::1"},
		"private.test": {"10.0.0.7"}, "mapped.test": {"::ffff:127.0.0.1"}, "nat64.test": {"64:ff9b::a9fe:a9fe"}, "x.below.test": {"10.0.0.8"}, "many.test": nil, "evil.test": {"93.184.216.34"},
	} {
		w.names[name] = addrs
	}
	for i := range maxAddresses + 1 {
		w.names["many.test"] = append(w.names["many.test"], fmt.Sprintf("93.184.217.%d", i))
	}
	reached := w.host("93.184.216.34:443", echo)
	w.host("10.0.0.7:443", echo)
	for target, want := range map[string]int{
		"allowed.test:443": 200, "ALLOWED.test.:443": 200, "private.test:443": 200,
		"allowed.test:80": 403, "allowed.test:22": 403, "allowed.test:0": 400, "allowed.test:65536": 400, "allowed.test": 400,
		"127.0.0.1:443": 403, "localhost:443": 403, "0:443": 400, "0.0.0.0:443": 403, "[::1]:443": 403, "[::ffff:127.0.0.1]:443": 400, "2130706433:443": 400, "0x7f.1:443": 400, "127.1:443": 400,
		"169.254.169.254:443": 403, "[fd00:ec2::254]:443": 403, "100.100.100.200:443": 403,
		"host.docker.internal:443": 403, "gateway.docker.internal:443": 403, "host.containers.internal:443": 403, "172.17.0.1:443": 403,
		"93.184.216.34:443": 403, "evil.test:443": 403, "allowed.test.evil:443": 403, "evilallowed.test:443": 403, "allowed.test%00.evil:443": 400, "a@evil:443": 400, "xn--llowed-6fg.test:443": 403,
		strings.Repeat("a", 254) + ":443": 400,
		"both.test:443":                   403, "meta.test:443": 403, "cname.test:443": 403, "loop.test:443": 403, "v6.test:443": 403, "mapped.test:443": 403, "nat64.test:443": 403, "x.below.test:443": 403,
		"none.test:443": 502, "many.test:443": 502,
	} {
		before := w.lookups.Load()
		c := w.proxy()
		_, _ = io.WriteString(c, connectTo(target))
		answer, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || status(answer) != want {
			t.Errorf("%s: %q %v; want %d", target, answer, err, want)
		}
		_ = c.Close()
		if name, _, _ := strings.Cut(target, ":"); want != 200 && w.lookups.Load() != before && w.names[name] == nil && name != "none.test" {
			t.Errorf("%s: somebody was asked about it", target)
		}
	}
	for _, to := range w.dialed {
		if to != "93.184.216.34:443" && to != "10.0.0.7:443" {
			t.Errorf("%s was dialled", to)
		}
	}
	reached.awaits(t, 2)
	if n := reached.reached.Load(); n != 2 {
		t.Errorf("the allowed host was reached %d times", n)
	}
	// What a refusal says.
	c := w.proxy()
	_, _ = io.WriteString(c, connectTo("x.below.test:443"))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(r.Body)
	for _, want := range []string{"weir: egress to x.below.test:443 is not allowed by profile test", "10.0.0.8 is a private address", "add 10.0.0.8/32, or its network, to allow_host"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q; want %q", text, want)
		}
	}
}

// TestNetworkProfile judges under insecure_allow_all: everything public, and no private
// address without a CIDR beside it.
func TestNetworkProfile(t *testing.T) {
	w := open(t, v1beta1.ProfileOutbound{InsecureAllowAll: true, AllowHost: []string{"10.7.0.0/16", "named.test"}}, Options{})
	w.names["private.test"], w.names["near.test"], w.names["named.test"] = []string{"10.0.0.7"}, []string{"10.7.0.1"}, []string{"93.184.216.34"}
	for _, at := range []string{"93.184.216.34:443", "93.184.216.34:25", "10.7.0.1:443", "10.7.0.1:25", "10.0.0.7:443"} {
		w.host(at, echo)
	}
	for target, want := range map[string]int{
		"allowed.test:443": 200, "allowed.test:25": 200, "93.184.216.34:443": 200, "near.test:443": 200, "10.7.0.1:443": 200, "10.7.0.1:25": 200, "named.test:443": 200, "named.test:25": 200,
		"private.test:443": 403, "10.0.0.7:443": 403, "127.0.0.1:443": 403, "169.254.169.254:443": 403, "host.docker.internal:443": 403,
	} {
		c := w.proxy()
		_, _ = io.WriteString(c, connectTo(target))
		answer, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || status(answer) != want {
			t.Errorf("%s: %q %v; want %d", target, answer, err, want)
		}
	}
	// What is said in the tunnel is not judged, also where a list names the host besides.
	for _, target := range []string{"allowed.test:443", "named.test:443", "10.7.0.1:443"} {
		c := w.tunnel(target)
		_, _ = io.WriteString(c, "no TLS")
		b := make([]byte, 6)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "no TLS" {
			t.Errorf("%s: %q %v", target, b, err)
		}
	}
}

// TestRebinding dials what was judged, once (V18): the second answer of the resolver is never
// asked for.
func TestRebinding(t *testing.T) {
	w := open(t, public, Options{})
	var n atomic.Int64
	w.p.resolve = func(context.Context, string) ([]netip.Addr, error) {
		if n.Add(1) > 1 {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
	}
	w.host("93.184.216.34:80", echo)
	w.tunnel("allowed.test:80")
	c := w.proxy()
	_, _ = io.WriteString(c, connectTo("allowed.test:80"))
	if answer, _ := bufio.NewReader(c).ReadString('\n'); status(answer) != 403 {
		t.Errorf("the second time: %q", answer)
	}
	if n.Load() != 2 || len(w.dialed) != 1 || w.dialed[0] != "93.184.216.34:80" {
		t.Errorf("%d look-ups, dialled %v", n.Load(), w.dialed)
	}
	if w.denied(NeverAddress) != 1 {
		t.Error("it was not counted")
	}
}

// TestOwnAddress refuses the addresses of this host, also those that stand for one.
func TestOwnAddress(t *testing.T) {
	w := open(t, v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test", "0.0.0.0/0", "::/0"}}, Options{})
	w.p.own.at = time.Now()
	w.p.own.addrs = map[netip.Addr]bool{netip.MustParseAddr("93.184.216.34"): true}
	w.p.own.nets = []netip.Prefix{netip.MustParsePrefix("10.88.0.0/16")}
	for _, text := range []string{"93.184.216.34", "64:ff9b::5db8:d822", "2606:2800::5efe:5db8:d822", "10.88.3.4"} {
		h, err := Canonical(text)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = w.p.Check(t.Context(), h, 443)
		var e *Refusal
		if !errors.As(err, &e) || e.Reason != OwnAddress {
			t.Errorf("%s: %v", text, err)
		}
	}
	// Where they cannot be had nothing is allowed.
	addrs, err := net.Interfaces()
	if err != nil || len(addrs) == 0 {
		t.Fatal(err)
	}
	fresh := &own{}
	for _, one := range addrs {
		all, err := one.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if p, err := netip.ParsePrefix(a.String()); err == nil && fresh.judge(p.Addr()) == "" {
				t.Errorf("%s is none of this host", p.Addr())
			}
		}
	}
}

// TestSystem finds names in the file of hosts.
func TestSystem(t *testing.T) {
	addrs, err := system(t.Context(), "localhost")
	if err != nil || len(addrs) == 0 || !addrs[0].Unmap().IsLoopback() {
		t.Errorf("%v %v", addrs, err)
	}
}

// TestGateway reaches the gateway of an engine when that was allowed, and no edge there.
func TestGateway(t *testing.T) {
	w := open(t, public, Options{Gateway: true})
	w.p.own.at = time.Now().Add(time.Hour)
	w.p.own.addrs = map[netip.Addr]bool{}
	w.p.own.gateways, w.p.own.outward = []netip.Addr{netip.MustParseAddr("172.18.0.1")}, []netip.Addr{netip.MustParseAddr("10.9.8.7")}
	w.p.listens = func(port int) (bool, error) {
		if port == 6666 {
			return false, errors.New("nobody knows")
		}
		return port == 4484, nil
	}
	w.host("172.18.0.1:5432", echo)
	for target, want := range map[string]int{
		"host.docker.internal:5432": 200, "host.containers.internal:5432": 200, "172.17.0.1:5432": 200, "gateway.docker.internal:5433": 502,
		"host.docker.internal:4484": 403, "172.17.0.1:4484": 403, "host.docker.internal:6666": 403, "172.18.0.1:5432": 403, "10.9.8.7:5432": 403, "evil.test:5432": 403,
	} {
		c := w.proxy()
		_, _ = io.WriteString(c, connectTo(target))
		if answer, err := bufio.NewReader(c).ReadString('\n'); err != nil || status(answer) != want {
			t.Errorf("%s: %q %v; want %d", target, answer, err, want)
		}
	}
	w.p.own.gateways = nil
	if _, addrs, err := w.p.Check(t.Context(), Host{name: "host.docker.internal"}, 5432); err != nil || len(addrs) != 1 || addrs[0].String() != "10.9.8.7" {
		t.Errorf("without an engine: %v %v", addrs, err)
	}
}

// TestEdgeListens finds listeners of this program.
func TestEdgeListens(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	if got, err := edgeListens(port); err != nil || !got {
		t.Errorf("%v %v", got, err)
	}
	_ = ln.Close()
	if got, err := edgeListens(port); err != nil || got {
		t.Errorf("closed: %v %v", got, err)
	}
}

// TestSNI lets a tunnel to port 443 begin with TLS for its host alone (V15).
func TestSNI(t *testing.T) {
	right := helloOf(t, &tls.Config{ServerName: "allowed.test"})
	none := helloOf(t, &tls.Config{})
	evil := helloOf(t, &tls.Config{ServerName: "evil.test"})
	behind := func(first ...byte) []byte { return append(first, evil...) }
	of := func(major byte) []byte { return append([]byte{22, major}, evil[2:]...) }
	for name, c := range map[string]struct {
		port  string
		raw   []byte
		piece int // bytes at a time; 0 for all at once
		pass  bool
	}{
		"right":                      {"443", right, 0, true},
		"right, byte by byte":        {"443", right, 1, true},
		"right, in records":          {"443", inRecords(right, 50), 0, true},
		"another name":               {"443", helloOf(t, &tls.Config{ServerName: "evil.test"}), 0, false},
		"none":                       {"443", none, 0, false},
		"two":                        {"443", extended(right, 0, sni("evil.test")), 0, false},
		"16 KiB":                     {"443", extended(right, 0xfafa, make([]byte, 16<<10-100)), 0, false},
		"a request":                  {"443", []byte("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n"), 0, false},
		"half":                       {"443", right[:100], 0, false},
		"other port, right":          {"8080", right, 1, true},
		"other port, another name":   {"8080", helloOf(t, &tls.Config{ServerName: "evil.test"}), 1, false},
		"other port, none":           {"8080", none, 0, false},
		"other port, no TLS":         {"8080", []byte("GET / HTTP/1.1\r\n\r\n"), 0, true},
		"other port, begins as TLS":  {"8080", []byte{22, 9, 1, 0}, 1, true},
		"other port, one byte of it": {"8080", []byte{22}, 0, true},

		"other port, behind a warning":                    {"8080", behind(21, 3, 1, 0, 2, 1, 0x5a), 0, false},
		"other port, behind one, byte by byte":            {"8080", behind(21, 3, 1, 0, 2, 1, 0x5a), 1, false},
		"other port, behind a warning of another version": {"8080", behind(21, 9, 1, 0, 2, 1, 0x5a), 0, false},
		"other port, behind an empty record":              {"8080", behind(21, 3, 1, 0, 0), 0, false},
		"other port, behind a change of cipher":           {"8080", behind(20, 3, 3, 0, 1, 1), 0, false},
		"other port, behind data":                         {"8080", behind(23, 3, 3, 0, 1, 0), 0, false},
		"other port, version 2":                           {"8080", of(2), 1, false},
		"other port, version 9":                           {"8080", of(9), 0, false},
		"other port, version 15":                          {"8080", of(15), 0, false},
		"other port, half a head of TLS":                  {"8080", []byte{22, 3}, 1, false},
		"other port, no version of TLS":                   {"8080", []byte{22, 16, 1, 0, 5, 1, 0}, 1, true},
		"other port, another first message":               {"8080", []byte{22, 9, 1, 0, 5, 2, 0}, 1, true},
		"other port, a size of 22 and a number":           {"8080", []byte{22, 0, 0, 1, 5, 0xa6, 3, 0}, 1, true},
		"other port, a size of 278 and a number":          {"8080", []byte{22, 1, 0, 0, 7, 0, 0, 0}, 0, true},
		"other port, a size of 277 and the number 2":      {"8080", []byte{21, 1, 0, 0, 2, 0, 0, 0}, 0, true},
		"other port, a size of 276 and the number 1":      {"8080", []byte{20, 1, 0, 0, 1, 0, 0, 0}, 0, true},
		"other port, a size of 791 and the number 1":      {"8080", []byte{23, 3, 0, 0, 1, 0, 0, 0}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := open(t, public, Options{})
			h := w.host("93.184.216.34:"+c.port, echo)
			conn := w.tunnel("allowed.test:" + c.port)
			for rest := c.raw; len(rest) > 0; {
				n := len(rest)
				if c.piece > 0 {
					n = min(c.piece, n)
				}
				if _, err := conn.Write(rest[:n]); err != nil {
					break // it was closed already
				}
				rest = rest[n:]
			}
			_ = conn.(*net.TCPConn).CloseWrite()
			back, _ := io.ReadAll(conn)
			switch {
			case c.pass && !bytes.Equal(back, c.raw):
				t.Errorf("%d of %d bytes came back", len(back), len(c.raw))
			case !c.pass && (len(back) > 0 || h.read.Load() > 0 || w.denied(WrongName) != 1):
				t.Errorf("%d bytes came back, %d were sent on, %d refusals", len(back), h.read.Load(), w.denied(WrongName))
			}
		})
	}
}

// TestPlainOn443: what is no TLS does not leave for port 443 outside of a tunnel either.
func TestPlainOn443(t *testing.T) {
	w := open(t, public, Options{})
	h := w.host("93.184.216.34:443", echo)
	got := w.say("GET http://allowed.test:443/ HTTP/1.1\r\nHost: allowed.test:443\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 403 ") || h.read.Load() > 0 || w.denied(WrongName) != 1 {
		t.Errorf("%d bytes were sent on, %d refusals: %.200s", h.read.Load(), w.denied(WrongName), got)
	}
}

// TestServerFirst has the host be the first to speak on another port than 443, and nothing of
// it pass on 443 before the client's name is known.
func TestServerFirst(t *testing.T) {
	w := open(t, public, Options{})
	greet := func(c net.Conn) {
		_, _ = io.WriteString(c, "220 hello\r\n")
		echo(c)
	}
	w.host("93.184.216.34:8080", greet)
	w.host("93.184.216.34:443", greet)
	mute := w.tunnel("allowed.test:8080")
	line, err := bufio.NewReader(mute).ReadString('\n')
	if err != nil || line != "220 hello\r\n" {
		t.Errorf("%q %v", line, err)
	}
	// Who leaves with what the host has said, and without a word, was let out.
	_ = mute.(*net.TCPConn).SetLinger(0)
	_ = mute.Close()
	fake.Until(t, "it has left", func() bool { return w.p.open.Load() == 0 })
	w.mu.Lock()
	if len(w.told) != 1 || w.told[0].Reason != Allowed || w.told[0].Port != 8080 || w.p.allowed.Load() != 1 {
		t.Errorf("%d were let out, and told was %+v", w.p.allowed.Load(), w.told)
	}
	w.mu.Unlock()
	c := w.tunnel("allowed.test:443")
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := c.Read(make([]byte, 10)); n > 0 || err == nil {
		t.Errorf("%d bytes of a host that nobody has judged, %v", n, err)
	}
}

// TestNames goes out by the addresses that names were given, without a proxy.
func TestNames(t *testing.T) {
	w := open(t, public, Options{})
	h := w.host("93.184.216.34:443", echo)
	right := helloOf(t, &tls.Config{ServerName: "allowed.test"})
	// An address that nobody was given leads nowhere.
	for _, to := range []string{"127.84.0.1:443", "127.84.0.0:443", "127.84.255.255:443", "127.0.0.1:443", "127.1.2.3:80", "93.184.216.34:443", "[::1]:443"} {
		c, served := w.connect(to)
		if b, _ := io.ReadAll(c); len(b) > 0 {
			t.Errorf("%s: %q", to, b)
		}
		<-served
	}
	if n := w.denied(UnknownAddress); n != 7 {
		t.Errorf("%d refusals", n)
	}
	at := w.ask("allowed.test.", 1)
	if at != "127.84.0.1" {
		t.Fatalf("allowed.test is at %q", at)
	}
	c, served := w.connect(at + ":443")
	_, _ = c.Write(right)
	back := make([]byte, len(right))
	if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(back, right) {
		t.Errorf("%v", err)
	}
	_ = c.Close()
	<-served
	// The port is judged, and the name that is asked for.
	for to, raw := range map[string][]byte{at + ":22": right, at + ":443": helloOf(t, &tls.Config{ServerName: "evil.test"})} {
		before := h.read.Load()
		c, served := w.connect(to)
		_, _ = c.Write(raw)
		if b, _ := io.ReadAll(c); len(b) > 0 || h.read.Load() != before {
			t.Errorf("%s: %q", to, b)
		}
		<-served
	}
}

// TestPlain carries requests of plain HTTP, one on a connection, and judges each of what
// comes on one connection (V16, V19).
func TestPlain(t *testing.T) {
	w := open(t, public, Options{})
	var seen sync.Map
	serve := func(keep bool) func(net.Conn) {
		return func(c net.Conn) {
			in := bufio.NewReader(c)
			for {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				body, _ := io.ReadAll(r.Body)
				seen.Store(r.URL.String(), r)
				_, _ = fmt.Fprintf(c, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 302 Found\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nLocation: http://evil.test/\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				if !keep {
					return
				}
			}
		}
	}
	w.host("93.184.216.34:80", serve(false))
	w.host("93.184.216.34:8080", serve(true)) // it does not close, though it is asked to
	client := &http.Client{
		Transport: &http.Transport{
			Proxy:       func(*http.Request) (*url.URL, error) { return url.Parse("http://proxy:3128") },
			DialContext: func(context.Context, string, string) (net.Conn, error) { return w.proxy(), nil },
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	for _, at := range []string{"http://allowed.test/a?b=c", "http://allowed.test:8080/d", "http://ALLOWED.test./e"} {
		for _, body := range []io.Reader{strings.NewReader("hello"), io.MultiReader(strings.NewReader(strings.Repeat("x", 100<<10)))} { // with a length, and in chunks
			req, _ := http.NewRequest(http.MethodPost, at, body)
			req.Header.Set("Proxy-Authorization", "Basic c2VjcmV0")
			req.Header.Set("X-Kept", "yes")
			req.Header.Set("Connection", "X-Dropped")
			req.Header.Set("X-Dropped", "no")
			r, err := client.Do(req)
			if err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			got, err := io.ReadAll(r.Body)
			_ = r.Body.Close()
			if err != nil || r.StatusCode != 302 || len(got) != 5 && len(got) != 100<<10 || !r.Close || r.Header.Get("Keep-Alive") != "" {
				t.Errorf("%s: %d, %d bytes, close %v, %v", at, r.StatusCode, len(got), r.Close, err)
			}
		}
	}
	one, ok := seen.Load("/a?b=c")
	if !ok {
		t.Fatal("the host saw no request")
	}
	if r := one.(*http.Request); r.Host != "allowed.test" || !r.Close || r.Header.Get("X-Kept") != "yes" || r.Header.Get("Proxy-Authorization") != "" || r.Header.Get("X-Dropped") != "" {
		t.Errorf("the host saw %+v", r)
	}
	// The redirect is the client's, and judged anew.
	r, err := client.Get("http://evil.test/")
	if err != nil || r.StatusCode != 403 {
		t.Errorf("%v %v", r, err)
	}
	_ = r.Body.Close()
	client.CloseIdleConnections()

	// 100 requests on one connection, to changing hosts.
	c := w.proxy()
	in := bufio.NewReader(c)
	for i := range 100 {
		name := fmt.Sprintf("h%d.test", i)
		_, _ = fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: %[1]s\r\n\r\n", name)
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		text, _ := io.ReadAll(r.Body)
		if r.StatusCode != 403 || !strings.Contains(string(text), name+":80") {
			t.Fatalf("%s: %d %q", name, r.StatusCode, text)
		}
	}
	// One that is let out is the last: what was sent behind it reaches nobody.
	w.mu.Lock()
	w.dialed = nil
	w.mu.Unlock()
	answer := w.say("GET http://allowed.test/first HTTP/1.1\r\nHost: allowed.test\r\n\r\nGET http://allowed.test/second HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	if _, second := seen.Load("/second"); status(answer) != 302 || strings.Count(answer, "HTTP/1.1") != 1 || second || len(w.dialed) != 1 {
		t.Errorf("%q, dialled %v", answer, w.dialed)
	}
}

// TestOldClient: what a client of HTTP/1.0 is answered has no chunks in it, which it would take
// for the text itself.
func TestOldClient(t *testing.T) {
	w := open(t, public, Options{})
	w.host("93.184.216.34:80", func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		answer := &http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Request: r, Body: io.NopCloser(strings.NewReader("hello")), ContentLength: -1}
		if r.ProtoAtLeast(1, 1) {
			answer.TransferEncoding = []string{"chunked"}
		}
		_ = answer.Write(c)
	})
	for version, want := range map[string]string{"HTTP/1.0": "\r\n\r\nhello", "HTTP/1.1": "\r\n\r\n5\r\nhello\r\n0\r\n\r\n"} {
		if answer := w.say("GET http://allowed.test/ " + version + "\r\nHost: allowed.test\r\n\r\n"); status(answer) != 200 || !strings.HasSuffix(answer, want) {
			t.Errorf("%s: %q", version, answer)
		}
	}
}

// TestMalformed refuses what has more than one reading, and closes (V16, V20).
func TestMalformed(t *testing.T) {
	w := open(t, public, Options{})
	h := w.host("93.184.216.34:80", echo)
	w.host("93.184.216.34:443", echo)
	const target = "POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n"
	for name, text := range map[string]string{
		"another Host":                   "GET http://allowed.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"another port in Host":           "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test:8080\r\n\r\n",
		"no Host":                        "GET http://allowed.test/ HTTP/1.1\r\n\r\n",
		"two Hosts":                      "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nHost: allowed.test\r\n\r\n",
		"another Host of CONNECT":        "CONNECT allowed.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
		"CONNECT with a body":            "CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\nContent-Length: 4\r\n\r\nabcd",
		"CONNECT of a URL":               "CONNECT http://allowed.test:443/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"a length and chunks":            target + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":                    target + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
		"the same length twice":          target + "Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
		"a signed length":                target + "Content-Length: +4\r\n\r\nabcd",
		"a list of lengths":              target + "Content-Length: 4, 4\r\n\r\nabcd",
		"a length in hexadecimal":        target + "Content-Length: 0x4\r\n\r\nabcd",
		"an endless length":              target + "Content-Length: 99999999999999999999\r\n\r\nabcd",
		"two encodings":                  target + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"an encoding that is not there":  target + "Transfer-Encoding: identity\r\n\r\n",
		"an encoding with a tab":         target + "Transfer-Encoding: chunked\v\r\n\r\n0\r\n\r\n",
		"chunks in HTTP/1.0":             "POST http://allowed.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"a folded line":                  target + "X-A: b\r\n c\r\n\r\n",
		"a folded first line":            "GET http://allowed.test/ HTTP/1.1\r\n Host: allowed.test\r\n\r\n",
		"a space before the colon":       target + "Content-Length : 4\r\n\r\nabcd",
		"a line without a colon":         target + "abc\r\n\r\n",
		"a line that ends in LF":         target + "X-A: b\nX-C: d\r\n\r\n",
		"a bare CR":                      target + "X-A: b\rX-C: d\r\n\r\n",
		"NUL in a value":                 target + "X-A: b\x00c\r\n\r\n",
		"a name with a space":            target + "X A: b\r\n\r\n",
		"origin form":                    "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"asterisk form":                  "OPTIONS * HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"https":                          "GET https://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"ftp":                            "GET ftp://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"a user name":                    "GET http://allowed.test@evil.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"a user name before":             "GET http://evil@allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"a backslash":                    "GET http://allowed.test\\@evil.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"a fragment":                     "GET http://allowed.test/#a HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"no port behind the colon":       "GET http://allowed.test:/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"a space in the target":          "GET http://allowed.test/ a HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"a tab in the target":            "GET http://allowed.test/\ta HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"HTTP/2":                         "GET http://allowed.test/ HTTP/2.0\r\nHost: allowed.test\r\n\r\n",
		"no protocol":                    "GET http://allowed.test/\r\n\r\n",
		"HTTP/0.9":                       "GET http://allowed.test/ HTTP/0.9\r\nHost: allowed.test\r\n\r\n",
		"TRACE":                          "TRACE http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"a small method":                 "get http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"the preface of HTTP/2":          "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"a greeting of SOCKS 5":          "\x05\x01\x00",
		"a greeting of SOCKS 4":          "\x04\x01\x01\xbb\x00\x00\x00\x01\x00allowed.test\x00",
		"TLS":                            "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
		"an empty line first and spaces": " GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"a path in UTF-8":                "GET http://allowed.test/caf\xc3\xa9 HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
	} {
		if answer := w.say(text); status(answer) != 400 {
			t.Errorf("%s: %.120q", name, answer)
		}
	}
	// 16 KiB of a head, and not more (§8).
	if answer := w.say(target + "X-A: " + strings.Repeat("a", maxHead) + "\r\n\r\n"); status(answer) != 431 {
		t.Errorf("a large head: %.120q", answer)
	}
	if answer := w.say(target + strings.Repeat("X-A: b\r\n", maxLines) + "\r\n"); status(answer) != 431 || !strings.Contains(answer, "more than "+itoa(maxLines)+" lines") {
		t.Errorf("more lines than may be: %q", answer)
	}
	if answer := w.say("GET http://allowed.test/caf\xc3\xa9 HTTP/1.1\r\nHost: allowed.test\r\n\r\n"); !strings.Contains(answer, "write it as %XX") {
		t.Errorf("a path in UTF-8: %q", answer)
	}
	if h.reached.Load() != 0 || len(w.dialed) != 0 {
		t.Errorf("%d connections, %v", h.reached.Load(), w.dialed)
	}
	// What is harmless passes.
	w.host("93.184.216.34:80", func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nyes")
		}
	})
	for name, text := range map[string]string{
		"HTTP/1.0":              "GET http://allowed.test/ HTTP/1.0\r\n\r\n",
		"Host with its port":    "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test:80\r\n\r\n",
		"no path":               "GET http://allowed.test HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"a query without path":  "GET http://allowed.test?a=b HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"an underscore":         "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\napi_key: x\r\n\r\n",
		"100-continue":          target + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
		"a value of other text": "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nX-A: caf\xc3\xa9\r\n\r\n",
	} {
		if answer := strings.TrimPrefix(w.say(text), "HTTP/1.1 100 Continue\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nyes") {
			t.Errorf("%s: %.120q", name, answer)
		}
	}
}

// TestAnswers passes on no answer that is none.
func TestAnswers(t *testing.T) {
	for name, text := range map[string]string{
		"none": "", "no HTTP": "SSH-2.0-OpenSSH\r\n\r\n", "half": "HTTP/1.1 200 OK\r\nA: b\r\n", "a large head": "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", maxHead) + "\r\n\r\n",
		"more lines than may be": "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", maxLines+1) + "\r\n", "many interim ones": strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 2000),
	} {
		w := open(t, public, Options{})
		w.host("93.184.216.34:80", func(c net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.WriteString(c, text)
			}
		})
		if answer := w.say("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"); status(answer) != 502 {
			t.Errorf("%s: %.120q", name, answer)
		}
	}
}

// TestEarlyAnswer passes on what a host answers before it has all of a request, also where it
// takes no more of it.
func TestEarlyAnswer(t *testing.T) {
	w := open(t, public, Options{})
	w.host("93.184.216.34:80", func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReaderSize(c, 16)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\n\r\nlarge")
		}
	})
	const size = 16 << 20
	for name, head := range map[string]string{"by length": fmt.Sprintf("Content-Length: %d\r\n\r\n", size), "in chunks": fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", size)} {
		c := w.proxy()
		go func() { // until nobody takes more
			_, _ = io.WriteString(c, "POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n"+head)
			_, _ = c.Write(make([]byte, size))
		}()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || answer.StatusCode != 413 {
			t.Errorf("%s: %+v, %v", name, answer, err)
			_ = c.Close()
			continue
		}
		if text, err := io.ReadAll(answer.Body); string(text) != "large" || err != nil {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		_ = c.Close()
	}
}

// TestLateBody: a request is judged by its head, and its host has that before a byte of the body has
// come, which may take longer than a head and is passed on as it comes. A client that waits to be
// asked for its body is asked by who takes it, and not where the request is refused.
func TestLateBody(t *testing.T) {
	w := open(t, public, Options{})
	w.p.times.head = 500 * time.Millisecond
	took := make(chan string)
	w.host("93.184.216.34:80", func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		took <- r.Method
		for {
			var b [1]byte
			if _, err := io.ReadFull(r.Body, b[:]); err != nil {
				break
			}
			took <- string(b[:])
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes")
	})
	takes := func(name, want string) {
		t.Helper()
		select {
		case got := <-took:
			if got != want {
				t.Fatalf("%s: the host has %q; want %q", name, got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the host waits for %q", name, want)
		}
	}
	const asked = "HTTP/1.1 100 Continue\r\n\r\n"
	for name, one := range map[string]struct{ version, head, asks, a, b string }{
		"by length":                   {"1.1", "Content-Length: 2", "", "a", "b"},
		"in chunks":                   {"1.1", "Transfer-Encoding: chunked", "", "1\r\na\r\n", "1\r\nb\r\n0\r\n\r\n"},
		"by length, when asked":       {"1.1", "Expect: 100-continue\r\nContent-Length: 2", asked, "a", "b"},
		"in chunks, when asked":       {"1.1", "expect: 100-Continue\r\nTransfer-Encoding: chunked", asked, "1\r\na\r\n", "1\r\nb\r\n0\r\n\r\n"},
		"a version that is not asked": {"1.0", "Expect: 100-continue\r\nContent-Length: 2", "", "a", "b"},
		"nothing to be asked for":     {"1.1", "Expect: 100-continue", "", "", ""},
	} {
		c := w.proxy()
		_, _ = io.WriteString(c, "POST http://allowed.test/ HTTP/"+one.version+"\r\nHost: allowed.test\r\n"+one.head+"\r\n\r\n")
		takes(name, "POST")
		got := make([]byte, len(one.asks))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != one.asks {
			t.Fatalf("%s: %q, %v", name, got, err)
		}
		if one.a != "" {
			<-time.After(w.p.times.head + 50*time.Millisecond) // more than a head may take
			_, _ = io.WriteString(c, one.a)
			takes(name, "a")
			_, _ = io.WriteString(c, one.b)
			takes(name, "b")
		}
		if b, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200 OK\r\n") || !strings.HasSuffix(string(b), "\r\n\r\nyes") {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	w.mu.Lock()
	w.dialed = nil
	w.mu.Unlock()
	for head, want := range map[string]string{ // without a byte of the body
		"Host: evil.test":                            "HTTP/1.1 403 the profile does not name the host",
		"Host: evil.test\r\nExpect: 100-continue":    "HTTP/1.1 403 the profile does not name the host",
		"Host: allowed.test\r\nExpect: 100-continue": "HTTP/1.1 400 the Host is another",
	} {
		status, why := want[:len("HTTP/1.1 403 ")], want[len("HTTP/1.1 403 "):]
		b := w.say("POST http://evil.test/ HTTP/1.1\r\n" + head + "\r\nContent-Length: 3\r\n\r\n")
		if !strings.HasPrefix(b, status) || !strings.Contains(b, why) || !strings.Contains(b, "Connection: close\r\n") {
			t.Errorf("%s: %q; want %s", head, b, want)
		}
	}
	if len(w.dialed) != 0 {
		t.Errorf("%v", w.dialed)
	}
}

// TestLateAnswer: the head of an answer has as long as that of a request from its first byte on,
// and what is not there yet has longer, also behind an interim one.
func TestLateAnswer(t *testing.T) {
	w := open(t, public, Options{})
	w.p.times.head = 500 * time.Millisecond
	told := make(chan struct{})
	w.host("93.184.216.34:80", func(c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nA: b\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	w.host("93.184.216.34:8080", func(c net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n")
		<-told
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+strings.Repeat("A: b\r\n", maxLines)+"\r\nyes")
	})
	slow := w.proxy()
	_, _ = io.WriteString(slow, "GET http://allowed.test:8080/ HTTP/1.1\r\nHost: allowed.test:8080\r\n\r\n")
	began := time.Now()
	answer := w.say("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
	if took := time.Since(began); status(answer) != 502 || took < w.p.times.head {
		t.Errorf("half a head, after %v: %q", took, answer)
	}
	time.AfterFunc(w.p.times.head, func() { close(told) }) // the other one has waited for twice as long then
	if b, err := io.ReadAll(slow); err != nil || status(string(b)) != 200 || !strings.HasSuffix(string(b), "\r\n\r\nyes") {
		t.Errorf("behind an interim answer: %.200q, %v", b, err)
	}
}

// TestHostLeaves: a host that has answered and gone ends the request, also where its client has
// not sent all of it.
func TestHostLeaves(t *testing.T) {
	w := open(t, public, Options{})
	w.p.times.leaving = 50 * time.Millisecond
	w.host("93.184.216.34:80", func(c net.Conn) {
		if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.ReadFull(r.Body, make([]byte, 5))
			_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\n\r\nlarge")
		}
	})
	c, served := w.connect("127.0.0.1:3128")
	_, _ = io.WriteString(c, "POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
	if b, err := io.ReadAll(c); err != nil || status(string(b)) != 413 || !strings.HasSuffix(string(b), "large") {
		t.Errorf("%q, %v", b, err)
	}
	select {
	case <-served:
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}

// TestRefusedBody: a client that sends a large body to a host that is not allowed reads why, and
// is not listened to without end.
func TestRefusedBody(t *testing.T) {
	const size = 256 << 10
	body := strings.Repeat("x", size)
	for name, rest := range map[string]string{"by length": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", size, body), "in chunks": fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", size, body), "and closes": fmt.Sprintf("Connection: close\r\nContent-Length: %d\r\n\r\n%s", size, body)} {
		w := open(t, public, Options{})
		c, served := w.connect("127.0.0.1:3128")
		if _, err := io.WriteString(c, "POST http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n"+rest); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		answer, err := io.ReadAll(c)
		if err != nil || status(string(answer)) != 403 || !strings.Contains(string(answer), "Connection: close") || !strings.HasSuffix(string(answer), "the profile does not name the host\n") {
			t.Errorf("%s: %q, %v", name, answer, err)
		}
		_ = c.Close()
		<-served
	}
	w := open(t, public, Options{})
	endless, served := w.connect("127.0.0.1:3128")
	_, _ = io.WriteString(endless, "POST http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 1000000000000\r\n\r\n")
	for {
		if _, err := endless.Write(make([]byte, 64<<10)); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a body without end: %v", err)
			}
			break
		}
	}
	<-served
	w.p.times.leaving = 50 * time.Millisecond
	slow, served := w.connect("127.0.0.1:3128")
	_, _ = io.WriteString(slow, "POST http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
	if answer, err := io.ReadAll(slow); err != nil || status(string(answer)) != 403 {
		t.Errorf("%q, %v", answer, err)
	}
	select {
	case <-served:
	case <-time.After(10 * time.Second):
		t.Error("a body that does not come is waited for")
	}
}

// TestFamilies: a name with many addresses of one family is reached by the first of the other.
func TestFamilies(t *testing.T) {
	w := open(t, public, Options{})
	w.names["allowed.test"] = []string{"2606:2800::1", "2606:2800::2", "2606:2800::3", "2606:2800::4", "2606:2800::5", "93.184.216.34", "93.184.216.35"}
	w.host("93.184.216.35:8080", echo)
	w.tunnel("allowed.test:8080")
	if want := []string{"[2606:2800::1]:8080", "93.184.216.34:8080", "[2606:2800::2]:8080", "93.184.216.35:8080"}; !slices.Equal(w.dialed, want) {
		t.Errorf("dialled %q; want %q", w.dialed, want)
	}
}

// TestEndsOfConnections: clients that leave while they send, and are answered, end their request,
// and the passage can be closed whenever that is.
func TestEndsOfConnections(t *testing.T) {
	w := open(t, public, Options{})
	w.host("93.184.216.34:80", func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReaderSize(c, 16)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			_, _ = c.Write(make([]byte, 1<<20))
		}
	})
	var all sync.WaitGroup
	for range 100 {
		c := w.proxy()
		all.Go(func() {
			defer c.Close()
			_, _ = io.WriteString(c, "POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 1000000\r\n\r\n")
			_, _ = c.Write(make([]byte, 100_000))
		})
	}
	all.Wait()
	ended := make(chan struct{})
	go func() {
		w.g.Close()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the passage does not end")
	}
}

// TestCounts counts what is refused by reason, tells it to who keeps an audit log, and logs a
// destination once a minute.
func TestCounts(t *testing.T) {
	w := open(t, public, Options{})
	w.host("93.184.216.34:80", echo)
	for range 5 {
		w.say(connectTo("evil.test:443")[:len(connectTo("evil.test:443"))-2] + "Connection: close\r\n\r\n")
	}
	w.say("CONNECT allowed.test:22 HTTP/1.1\r\nHost: allowed.test:22\r\nConnection: close\r\n\r\n")
	_ = w.tunnel("allowed.test:80").Close()
	got := map[string]float64{}
	collect := func() {
		w.p.Collect(edge.Emitter{Emit: func(s edge.Sample) {
			key := s.Name
			for _, l := range s.Labels {
				key += " " + l.Name + "=" + l.Value
			}
			got[key] = s.Value
		}})
	}
	for deadline := time.Now().Add(5 * time.Second); got["weir_egress_allowed workload=w"] != 1 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		collect()
	}
	for key, want := range map[string]float64{"weir_egress_denied workload=w reason=host": 5, "weir_egress_denied workload=w reason=port": 1, "weir_egress_allowed workload=w": 1} {
		if got[key] != want {
			t.Errorf("%s: %v; want %v", key, got[key], want)
		}
	}
	if n := strings.Count(w.log(), "host=evil.test"); n != 1 {
		t.Errorf("%d lines: %s", n, w.log())
	}
	w.p.said.since = time.Now().Add(-time.Minute)
	w.say("CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\nConnection: close\r\n\r\n")
	if n := strings.Count(w.log(), "host=evil.test"); n != 2 {
		t.Errorf("%d lines after a minute: %s", n, w.log())
	}
	// So many destinations are logged, and no more.
	for i := range maxTold + 50 {
		w.p.refuse(&Refusal{Host: fmt.Sprintf("h%d.test", i), Port: 443, Reason: UnlistedHost})
	}
	if n := strings.Count(w.log(), "\n"); n > maxTold+3 {
		t.Errorf("%d lines", n)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	denied, allowed := 0, 0
	for _, r := range w.told {
		switch {
		case r.Reason == UnlistedHost && r.Host == "evil.test" && r.Port == 443 && r.Profile == "test" && r.Workload == "w":
			denied++
		case r.Reason == Allowed && r.Host == "allowed.test" && r.Port == 80 && r.Rule == "allowed.test":
			allowed++
		}
	}
	if denied != 6 || allowed != 1 {
		t.Errorf("%d and %d of %+v", denied, allowed, w.told[:8])
	}
}

// TestTunnels has a workload have 512 connections at a time, over all its sandboxes.
func TestTunnels(t *testing.T) {
	w := open(t, public, Options{})
	w.p.open.Store(maxTunnels - 1)
	first := w.proxy()
	for deadline := time.Now().Add(5 * time.Second); w.p.open.Load() != maxTunnels; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it was not counted")
		}
	}
	c, served := w.connect("127.0.0.1:3128")
	<-served
	if b, _ := io.ReadAll(c); len(b) > 0 || w.denied(TooMany) != 1 {
		t.Errorf("%q, %d", b, w.denied(TooMany))
	}
	_ = first.Close()
	for deadline := time.Now().Add(5 * time.Second); w.p.open.Load() != maxTunnels-1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d are open", w.p.open.Load())
		}
	}
	w.host("93.184.216.34:80", echo)
	w.tunnel("allowed.test:80")
	w.p.open.Add(-(maxTunnels - 1))
}

// TestDials has 64 dials wait at a time, and none of them for longer than it may.
func TestDials(t *testing.T) {
	w := open(t, public, Options{})
	w.p.times.dial = time.Second
	var waiting atomic.Int64
	full := make(chan struct{}) // until then none ends, however slow this machine is
	end := sync.OnceFunc(func() { close(full) })
	w.p.connector = func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
		waiting.Add(1)
		<-full
		<-ctx.Done()
		return nil, ctx.Err()
	}
	w.names["allowed.test"] = []string{"93.184.216.34", "93.184.216.35"}
	answers := make(chan string, maxDials)
	all := []*Passage{w.g, w.p.Open(), w.p.Open()} // of which each has half
	t.Cleanup(all[1].Close)
	t.Cleanup(all[2].Close)
	t.Cleanup(end)
	for i := range maxDials {
		w.g = all[i/maxDialsEach]
		c := w.proxy()
		go func() {
			_, _ = io.WriteString(c, connectTo("allowed.test:443"))
			line, _ := bufio.NewReader(c).ReadString('\n')
			answers <- line
		}()
	}
	fake.Until(t, "all places to be taken", func() bool { return waiting.Load() == maxDials })
	w.g = all[2]
	c := w.proxy()
	_, _ = io.WriteString(c, connectTo("allowed.test:443"))
	if line, err := bufio.NewReader(c).ReadString('\n'); status(line) != 503 || w.denied(TooMany) != 1 {
		t.Errorf("%q %v", line, err)
	}
	began := time.Now()
	end()
	for range maxDials {
		if line := <-answers; status(line) != 502 {
			t.Errorf("%q", line)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a dial took %v", took)
	}
	if len(w.p.dials) != 0 {
		t.Errorf("%d places are taken", len(w.p.dials))
	}
}

// TestIdle ends what stands still, and nothing on which something moves (V25).
func TestIdle(t *testing.T) {
	const idle = 300 * time.Millisecond
	w := open(t, public, Options{})
	w.p.times.idle, w.p.times.hello, w.p.times.head, w.p.times.first = idle, idle, idle, idle
	w.host("93.184.216.34:80", func(c net.Conn) { // ticks, for longer than may be idle
		for range 8 {
			if _, err := c.Write([]byte(".")); err != nil {
				return
			}
			time.Sleep(idle / 3)
		}
		_, _ = io.Copy(io.Discard, c)
	})
	w.host("93.184.216.34:443", echo)
	w.host("93.184.216.34:8080", func(c net.Conn) { // sends without end
		b := make([]byte, 64<<10)
		for {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	takes := open(t, public, Options{})
	takes.p.times.idle = idle
	takes.host("93.184.216.34:80", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	for name, open := range map[string]func() net.Conn{
		"nothing is said": w.proxy,
		"half a head":     func() net.Conn { c := w.proxy(); _, _ = io.WriteString(c, "CONNECT allowed"); return c },
		"no ClientHello":  func() net.Conn { return w.tunnel("allowed.test:443") },
		"nothing of DNS":  func() net.Conn { c, _ := w.connect("127.0.0.1:53"); return c },
		"half a ClientHello": func() net.Conn {
			c := w.tunnel("allowed.test:443")
			_, _ = c.Write([]byte{22, 3, 1})
			return c
		},
		"half a body": func() net.Conn {
			c := takes.proxy()
			_, _ = io.WriteString(c, "POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 100000\r\n\r\nabc")
			return c
		},
	} {
		began := time.Now()
		c := open()
		_, err := io.ReadAll(c)
		if took := time.Since(began); took > 20*idle || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: it ended after %v: %v", name, took, err)
		}
	}
	// One way moves: it lasts, and then ends.
	began := time.Now()
	b, _ := io.ReadAll(w.tunnel("allowed.test:80"))
	if took := time.Since(began); len(b) != 8 || took < 2*idle || took > 20*idle {
		t.Errorf("%d bytes in %v", len(b), took)
	}
	// A download that is not read.
	began = time.Now()
	_, served := func() (net.Conn, <-chan struct{}) {
		c, served := w.connect("127.0.0.1:3128")
		_, _ = io.WriteString(c, connectTo("allowed.test:8080"))
		return c, served
	}()
	<-served
	if took := time.Since(began); took > 20*idle {
		t.Errorf("a download that nobody reads ended after %v", took)
	}
	if n := w.p.open.Load(); n != 0 {
		t.Errorf("%d are open", n)
	}
}

// TestLeaving ends a request whose client has gone, and whose host does not.
func TestLeaving(t *testing.T) {
	w := open(t, public, Options{})
	w.p.times.leaving = 50 * time.Millisecond
	w.host("93.184.216.34:80", func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		_, _ = io.Copy(io.Discard, c)
	})
	c, served := w.connect("127.0.0.1:3128")
	_, _ = io.WriteString(c, "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
	if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || !r.Close {
		t.Errorf("%+v %v", r, err)
	}
	_ = c.Close()
	select {
	case <-served:
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}

// TestClose ends everything with the sandbox.
func TestClose(t *testing.T) {
	w := open(t, public, Options{})
	w.host("93.184.216.34:80", echo)
	conns := []net.Conn{w.tunnel("allowed.test:80"), w.proxy(), w.tunnel("allowed.test:80")}
	dns, _ := w.connect("127.0.0.1:53")
	w.g.Close()
	for i, c := range append(conns, dns) {
		if b, _ := io.ReadAll(c); len(b) > 0 {
			t.Errorf("%d: %q", i, b)
		}
	}
	c, served := w.connect("127.0.0.1:3128")
	<-served
	if b, _ := io.ReadAll(c); len(b) > 0 || w.p.open.Load() != 0 {
		t.Errorf("%q, %d are open", b, w.p.open.Load())
	}
}

// FuzzRequest has the proxy read what strangers send. Nobody is dialled but the host that is
// allowed, at a port that is.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{
		connectTo("allowed.test:80"), "GET http://allowed.test/a HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
		"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 3\r\n\r\nabcGET http://evil.test/ HTTP/1.1\r\n\r\n",
		"GET http://allowed.test@evil.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "\x05\x01\x00", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		w := open(t, public, Options{})
		w.p.connector = func(_ context.Context, to netip.AddrPort) (net.Conn, error) {
			if to.Addr().String() != "93.184.216.34" || to.Port() != 80 && to.Port() != 443 && to.Port() != 8080 {
				t.Errorf("%s was dialled", to)
			}
			ours, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			return ours, nil
		}
		w.p.times = times{time.Second, 50 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond, 20 * time.Millisecond}
		c, served := w.connect("127.0.0.1:3128")
		_, _ = c.Write(text)
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		<-served
	})
}

// FuzzTarget reads hosts and ports. What is a host is one in a form that reads as itself, and
// that is judged as what its text says.
func FuzzTarget(f *testing.F) {
	for _, text := range []string{"allowed.test:443", "ALLOWED.test.:443", "[::1]:443", "127.1:80", "0x7f.1:80", "[::ffff:127.0.0.1]:1", "a@b:80", "xn--a:1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, port, err := ParseTarget(text, 80)
		if err != nil {
			return
		}
		again, err := Canonical(h.String())
		if err != nil || again != h || port < 1 || port > 65535 {
			t.Fatalf("%q: %q %d, then %q %v", text, h, port, again, err)
		}
		if a, err := netip.ParseAddr(h.String()); (err == nil) != h.IsAddr() || err == nil && a != h.addr {
			t.Fatalf("%q: %q is an address: %v", text, h, h.IsAddr())
		}
		if name := h.String(); !h.IsAddr() && (strings.ToLower(name) != name || len(name) > maxHost || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || !strings.HasPrefix(strings.ToLower(text), name)) {
			t.Fatalf("%q: %q", text, name)
		}
	})
}

// BenchmarkConnect opens a tunnel and carries one line and its echo, beside a dial of the
// same host without one.
func BenchmarkConnect(b *testing.B) {
	line := []byte("hello\n")
	round := func(c net.Conn) {
		if _, err := c.Write(line); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, len(line))); err != nil {
			b.Fatal(err)
		}
		_ = c.(*counted).Conn.(*net.TCPConn).SetLinger(0) // no port waits
		_ = c.Close()
	}
	w := &outside{}
	for _, way := range []string{"direct", "proxy"} {
		b.Run(way, func(b *testing.B) {
			w = open(b, public, Options{})
			h := w.host("93.184.216.34:8080", echo)
			for b.Loop() {
				if way == "proxy" {
					c := w.tunnel("allowed.test:8080")
					round(c)
					continue
				}
				ln, err := net.Listen("tcp", "127.0.0.1:0") // as a tunnel of this test has, and none of a sandbox
				if err != nil {
					b.Fatal(err)
				}
				_ = ln.Close()
				c, err := net.Dial("tcp", h.ln.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				round(c)
			}
		})
	}
}
