package container

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weir-edge/weir/edge/edgetest/engine"
	"github.com/weir-edge/weir/edge/sandbox"
)

// outlet lets out everything that comes to it, to itself: it says what came.
type outlet struct {
	mu     sync.Mutex
	came   []string // ADDRESS:PORT that was connected to
	asked  []string // names
	closed int      // passages
}

func (o *outlet) Ports() []int          { return []int{80, 443} }
func (o *outlet) Open() sandbox.Passage { return o }

func (o *outlet) Serve(c net.Conn) {
	defer c.Close()
	o.mu.Lock()
	o.came = append(o.came, c.LocalAddr().String())
	o.mu.Unlock()
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil {
		fmt.Fprintf(c, "HTTP/1.1 200 %q\r\n\r\n", strings.TrimSpace(line))
	}
}

// Answer gives each name one address of the sandbox.
func (o *outlet) Answer(query []byte) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	o.mu.Lock()
	o.asked = append(o.asked, q.Name.String())
	o.mu.Unlock()
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	if q.Type == dnsmessage.TypeA {
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60}, Body: &dnsmessage.AResource{A: [4]byte{127, 77, 0, 1}}}}
	}
	answer, _ := m.Pack()
	return answer
}

func (o *outlet) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed++
}

// A server listens at a port that its profile names, too: there it is not let out but by the
// proxy. The ports of the proxy and of DNS are no server's.
func TestServerAtAPortOfTheOutlet(t *testing.T) {
	e := running(t)
	image(t, e, "listens:80", engine.Config{ExposedPorts: map[string]struct{}{"80/tcp": {}}})
	c := config(t, "listen:0.0.0.0:80")
	out := &outlet{}
	c.Image, c.Outlet, c.Port, c.AnyPort, c.Transport = "listens:80", out, 8080, true, "streamable-http"
	m := machine(t, e)
	b := opened(t, m, c)
	p, err := b.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	until(t, "connection to the server", func() bool {
		conn, err = b.Dial(t.Context(), b.Port())
		return err == nil
	})
	_, _ = conn.Write([]byte("x\n"))
	said := make([]byte, 64)
	n, err := conn.Read(said)
	_ = conn.Close()
	out.mu.Lock()
	if b.Port() != 80 || err != nil || n == 0 || len(out.came) > 0 {
		t.Errorf("port %d says %q, %v; to the way out came %v", b.Port(), said[:n], err, out.came)
	}
	out.mu.Unlock()
	p.Kill()
	p.Wait()
	// What it publishes is left to it, too.
	c.Image, c.Port, c.AnyPort, c.Transport, c.Published = "listens:80", 0, false, "stdio", []int{80}
	b = opened(t, m, c)
	if p, err = b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "connection to what is published", func() bool {
		conn, err = b.Dial(t.Context(), 80)
		return err == nil
	})
	_, _ = conn.Write([]byte("x\n"))
	n, err = conn.Read(said)
	_ = conn.Close()
	out.mu.Lock()
	if err != nil || n == 0 || len(out.came) > 0 {
		t.Errorf("what is published says %q, %v; to the way out came %v", said[:n], err, out.came)
	}
	out.mu.Unlock()
	p.Kill()
	p.Wait()
	for _, port := range []int{53, 3128} {
		c.Port, c.AnyPort, c.Transport, c.Published = port, false, "streamable-http", nil
		if _, err := m.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), "is that of the way out") {
			t.Errorf("port %d: %v", port, err)
		}
	}
}

// What a container is let out to goes by way of its helper: by the proxy, by names and by the
// addresses that they were given. Nothing else goes anywhere. It has no network of the
// engine's, and its user may be anybody.
func TestOutlet(t *testing.T) {
	e := running(t)
	for _, user := range []string{"", "1234:1234"} {
		image(t, e, "probe:1", engine.Config{User: user})
		out := &outlet{}
		c := config(t, "env:", "read:/etc/resolv.conf", "resolve:allowed.test", "tcp:127.77.0.1:443", "tcp:127.77.0.1:8080", "tcp:172.17.0.1:80", "tcp:1.1.1.1:443", "udp:1.1.1.1:53", "tcp:[2001:db8::1]:443", `proxy:CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n`)
		c.Outlet = out
		b := opened(t, machine(t, e), c)
		said := tried(t, b)
		for try, want := range map[string]string{
			"env:": "HTTPS_PROXY=http://127.0.0.1:3128", "resolve:allowed.test": "127.77.0.1", "tcp:127.77.0.1:443": "reached", "read:/etc/resolv.conf": "nameserver 127.0.0.1",
			`proxy:CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n`: "200",
		} {
			if !strings.Contains(said[try], want) {
				t.Errorf("user %q: %s: %s, want %s", user, try, said[try], want)
			}
		}
		for _, try := range []string{"tcp:127.77.0.1:8080", "tcp:172.17.0.1:80", "tcp:1.1.1.1:443", "udp:1.1.1.1:53", "tcp:[2001:db8::1]:443"} {
			if !strings.HasPrefix(said[try], "refused: ") {
				t.Errorf("user %q: %s: %s", user, try, said[try])
			}
		}
		b.Close()
		out.mu.Lock()
		slices.Sort(out.came)
		if came := slices.Compact(out.came); !slices.Equal(came, []string{"127.0.0.1:3128", "127.77.0.1:443"}) || !slices.Contains(out.asked, "allowed.test.") || out.closed != 1 {
			t.Errorf("user %q: %v came, %v were asked for, %d passages ended", user, came, out.asked, out.closed)
		}
		out.mu.Unlock()
	}
}
