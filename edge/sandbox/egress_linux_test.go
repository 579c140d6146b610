package sandbox

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/escape"
	"github.com/weir-edge/weir/edge/egress"
	"github.com/weir-edge/weir/edge/sandbox/link"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// TestFar is the process with the hosts outside, which TestV01Egress runs.
func TestFar(t *testing.T) { escape.Serve(t) }

// outlet is the way out of a sandbox.
type outlet struct{ *egress.Proxy }

func (o outlet) Ports() []int  { return o.Rules().Ports() }
func (o outlet) Open() Passage { return o.Proxy.Open() }

// out is what is let out of the sandboxes of a test.
type out struct {
	outlet
	lookups *atomic.Int64
}

func newOut(t *testing.T, r escape.Round) *out {
	t.Helper()
	proxy, lookups := r.Proxy(t)
	return &out{outlet{proxy}, lookups}
}

// TestV01Egress tries from a sandbox that one host is let out of at one port, and from one
// with the profile network, what is not to be reached: V01 to V20. What would be reached
// lives, and is reached from outside.
func TestV01Egress(t *testing.T) {
	if !inRoom(t) {
		return
	}
	m := machine(t)
	bwrapped(t, m)
	asked, _ := escape.Far(t)
	near := escape.NewOutside(t, probe(t))
	near.Host(4484) // V07, V11: this host, at all its addresses
	escape.Sockets(t, near)
	near.Open(nil)

	// 1. What is outside is reached from outside.
	escape.Alive(t, probe(t), asked)

	// 2. Nothing of it from inside, one host at one port.
	isolated := escape.Isolated(near)
	w := newOut(t, isolated)
	s := tryOut(t, m, w, isolated.Wants)
	counts := asked()
	for key, n := range counts {
		if n > 0 && key != "93.184.216.34:443" { // which is dialled, and sent nothing
			t.Errorf("%s was reached: %d", key, n)
		}
	}
	near.Shut(s)
	if n := w.lookups.Load(); n > 20 {
		t.Errorf("%d look-ups", n)
	}

	// 3. What is allowed passes.
	// A dial of the round before may be counted late.
	edgetest.Until(t, "an outside that nobody dials", func() bool { return len(asked()) == 0 })
	passes := escape.Allowed()
	tryOut(t, m, w, passes)
	if counts := asked(); counts["93.184.216.34:443"] != len(passes) || len(counts) != 2 {
		t.Errorf("what is allowed was counted as %v", counts)
	}

	// 4. The profile network.
	network := escape.Network(near)
	near.Shut(tryOut(t, m, newOut(t, network), network.Wants))
	for key := range asked() {
		if !strings.HasPrefix(key, "93.184.216.") {
			t.Errorf("%s was reached", key)
		}
	}

	// 5. The gateway, when it was allowed.
	escape.Neighbour(t, probe(t))
	gateway := escape.Gateway()
	tryOut(t, m, newOut(t, gateway), gateway.Wants)
	near.Unreached()
}

// tryOut makes tries in a sandbox, and holds what comes back to how it is to begin.
func tryOut(t *testing.T, m *Machine, w *out, wants escape.Wants) map[string]string {
	t.Helper()
	c := config(t, Bwrap, slices.Sorted(maps.Keys(wants))...)
	c.Network, c.Outlet, c.Isolate = Profile, w, true
	got, _ := said(t, openBox(t, m, c))
	wants.Check(t, got)
	return got
}

// TestEgressUser lets a server out that another user than root runs: the helper may listen at
// ports below 1024, and what it starts may not.
func TestEgressUser(t *testing.T) {
	asNobody(t)
	m := machine(t)
	bwrapped(t, m)
	w := newOut(t, escape.Round{Outbound: v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test"}, AllowPort: []int{80, 443, 3128}}})
	got := tryOut(t, m, w, escape.Wants{
		"dns:udp,1,allowed.test.": "Success 127.84.0.1", "connect:evil.test:443": "403", "connect:allowed.test:22": "403", "connect:127.0.0.1:80": "403",
		"listen:127.0.0.9:444": "refused: ", "status": "",
	})
	for _, want := range []string{"CapEff=0000000000000000", "CapPrm=0000000000000000", "CapInh=0000000000000000", "CapAmb=0000000000000000", "NoNewPrivs=1"} {
		if !strings.Contains(got["status"], want) {
			t.Errorf("%s in %s", want, got["status"])
		}
	}
}

// TestEgressBounds has a sandbox hold so many connections out and no more, and the passage close
// with it.
func TestEgressBounds(t *testing.T) {
	m := machine(t)
	bwrapped(t, m)
	w := newOut(t, escape.Round{Outbound: v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test"}}})
	c := config(t, Bwrap, "flood:700,"+"127.0.0.1:3128", "connect:evil.test:443", "env")
	c.Network, c.Outlet = Profile, w
	box := openBox(t, m, c)
	got, _ := said(t, box)
	if n, _ := strconv.Atoi(got["flood:700,127.0.0.1:3128"]); n < 500 || n > 512 {
		t.Errorf("%q of 700 were held", got["flood:700,127.0.0.1:3128"])
	}
	if got["connect:evil.test:443"] != "403" {
		t.Errorf("after it: %q", got["connect:evil.test:443"])
	}
	refused := 0.0
	w.Collect(edge.Emitter{Emit: func(s edge.Sample) {
		if s.Name == "weir_egress_denied" && slices.Contains(s.Labels, edge.Header{Name: "reason", Value: "too_many"}) {
			refused = s.Value
		}
	}})
	if refused < 1 {
		t.Error("no connection that was too many is counted")
	}
	for _, want := range []string{"HTTP_PROXY", "https_proxy", "ALL_PROXY"} {
		if !strings.Contains(got["env"], want+"=http://127.0.0.1:3128") {
			t.Errorf("%s in %s", want, got["env"])
		}
	}
	if !strings.Contains(got["env"], "NO_PROXY=localhost,127.0.0.1,::1") || !strings.Contains(got["env"], "NODE_USE_ENV_PROXY=1") {
		t.Error(got["env"])
	}
	const streams = 2 // of the server, which the test closes at its end
	held := maxHeld
	for deadline := time.Now().Add(5 * time.Second); held > streams && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		box.session.mu.Lock()
		held = box.session.held + box.session.out
		box.session.mu.Unlock()
	}
	if held != streams {
		t.Errorf("%d descriptors are held", held)
	}
}

// still is a wire of a helper that answers nothing, and hands over what a server connects.
type still struct {
	wire
	over chan struct{}
}

func (w still) next() (link.Message, []int, error) {
	<-w.over
	return link.Message{}, nil, io.EOF
}
func (still) send(*link.Message) error { return nil }
func (still) close()                   {}
func (still) accepted(int, *link.Message, []int) (held, error) {
	ours, theirs := net.Pipe()
	_ = theirs.Close()
	return &loose{Conn: ours}, nil
}

// loose is a connection that says when it is closed.
type loose struct {
	net.Conn
	closed func()
}

func (c *loose) onClose(f func()) { c.closed = f }
func (c *loose) Close() error {
	if c.closed != nil {
		c.closed()
	}
	return c.Conn.Close()
}

// served is a passage that keeps what it serves.
type served chan net.Conn

func (s served) Serve(c net.Conn)     { s <- c }
func (served) Answer(_ []byte) []byte { return nil }
func (served) Close()                 {}

// TestWaysInAndOut: connections into a server, and its pipes, take nothing from its ways out, nor
// these from those; all together are no more than may be.
func TestWaysInAndOut(t *testing.T) {
	w, way := still{over: make(chan struct{})}, make(served, maxHeld)
	s := newSessionOver(w, "test", way, nil, nil)
	defer func() { close(w.over); <-s.ended }()
	gone, leave := context.WithCancel(t.Context())
	leave()
	dials := 0
	dial := func() bool { // nobody answers it, so that it is held
		_, err := s.dial(gone, 80)
		return errors.Is(err, context.Canceled)
	}
	for dial() {
		dials++
	}
	out := 0
	for range maxHeld {
		if err := s.outgoing(&link.Message{Kind: link.Accepted}, []int{1}); err != nil {
			t.Fatal(err)
		}
	}
	s.mu.Lock()
	out = s.out
	s.mu.Unlock()
	if out != 513 || dials+out != maxHeld { // the proxy serves 512
		t.Errorf("%d ways in and %d out", dials, out)
	}
	for range out { // what is closed can be had again, and nothing else
		_ = (<-way).Close()
	}
	if s.mu.Lock(); s.out != 0 {
		t.Errorf("%d ways out are held", s.out)
	}
	s.mu.Unlock()
	if dial() {
		t.Error("a way in is made of a way out")
	}
}
