package egress

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// alone serves a proxy by itself on every address of loopback.
func (w *outside) alone(peers *Peers) (at string, stop func()) {
	w.t.Helper()
	ln, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, end := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- (&Alone{Proxy: w.p, Peers: peers, Log: slog.New(slog.NewTextHandler(w, nil))}).Serve(ctx, ln)
	}()
	stop = func() {
		end()
		select {
		case err := <-done:
			if err != nil {
				w.t.Error(err)
			}
			done <- nil
		case <-time.After(20 * time.Second):
			w.t.Error("it does not end")
		}
	}
	w.t.Cleanup(stop)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port, stop
}

// askAlone sends a request to the proxy from an address of loopback; 0 where nobody answers.
func askAlone(t *testing.T, from, port, target string) (int, net.Conn) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	c, err := d.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(c, connectTo(target))
	r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: "CONNECT"})
	if err != nil {
		return 0, c
	}
	return r.StatusCode, c
}

// TestAlone: the proxy by itself answers the addresses in its file and nobody else, by the
// rules. Who leaves the file is connected no longer, and who enters it is answered; a file
// that is wrong has nobody in it.
func TestAlone(t *testing.T) {
	w := open(t, public, Options{})
	w.host("93.184.216.34:8080", echo)
	path := filepath.Join(t.TempDir(), "peers")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("# pods\n127.0.0.2 # one\n\n127.0.1.0/24\n2001:db8::/32\n")
	peers, err := ReadPeers(path)
	if err != nil {
		t.Fatal(err)
	}
	port, stop := w.alone(peers)
	for from, want := range map[string]int{"127.0.0.2": 200, "127.0.1.9": 200, "127.0.0.1": 0, "127.0.0.3": 0, "127.0.2.1": 0} {
		if n, _ := askAlone(t, from, port, "allowed.test:8080"); n != want {
			t.Errorf("from %s: %d; want %d", from, n, want)
		}
	}
	if n, _ := askAlone(t, "127.0.0.2", port, "evil.test:8080"); n != 403 {
		t.Errorf("another host: %d", n)
	}
	eventually := func(what string, f func() bool) {
		t.Helper()
		fake.Until(t, what, f)
	}
	answers := func(from string) func() bool {
		return func() bool {
			n, c := askAlone(t, from, port, "allowed.test:8080")
			_ = c.Close()
			return n == 200
		}
	}

	_, gone := askAlone(t, "127.0.0.2", port, "allowed.test:8080")
	write("127.0.0.3\n")
	eventually("who has entered the file is answered", answers("127.0.0.3"))
	if answers("127.0.0.2")() {
		t.Error("who has left the file is answered")
	}
	if _, err := gone.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("who has left the file is still connected: %v", err)
	}
	write("127.0.0.3\n127.0.0.0/8\n127.0.0.256\n")
	eventually("a file that is wrong has nobody in it", func() bool { return !answers("127.0.0.3")() })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if answers("127.0.0.3")() {
		t.Error("a file that is away has somebody in it")
	}
	write("127.0.0.4\n")
	eventually("the file is read again", answers("127.0.0.4"))
	if log := w.log(); !strings.Contains(log, "line 3") || !strings.Contains(log, "nobody is answered") {
		t.Errorf("the log:\n%s", log)
	}

	_, open := askAlone(t, "127.0.0.4", port, "allowed.test:8080")
	stop()
	if _, err := open.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("a connection outlives the proxy: %v", err)
	}
}

// TestAloneOnThisMachine: without a file this machine's own programs are answered.
func TestAloneOnThisMachine(t *testing.T) {
	w := open(t, public, Options{})
	w.host("93.184.216.34:8080", echo)
	port, _ := w.alone(LoopbackPeers())
	if n, _ := askAlone(t, "127.0.0.1", port, "allowed.test:8080"); n != 200 {
		t.Errorf("this machine: %d", n)
	}
	for _, text := range []string{"10.0.0.1", "192.168.1.4", "2001:db8::1"} {
		if LoopbackPeers().has(netip.MustParseAddr(text), nil) {
			t.Errorf("%s is of this machine", text)
		}
	}
}

// TestAloneShares: one peer does not take what there is for all.
func TestAloneShares(t *testing.T) {
	w := open(t, public, Options{})
	w.host("93.184.216.34:8080", echo)
	port, _ := w.alone(LoopbackPeers())
	for range maxOfPeer {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		c, err := d.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	if n, _ := askAlone(t, "127.0.0.2", port, "allowed.test:8080"); n != 0 || w.denied(TooMany) != 1 {
		t.Errorf("one more of the peer: %d, and %d were too many", n, w.denied(TooMany))
	}
	if n, _ := askAlone(t, "127.0.0.3", port, "allowed.test:8080"); n != 200 {
		t.Errorf("another peer: %d", n)
	}
}

// TestAloneDials: one peer whose hosts do not answer does not keep others from theirs.
func TestAloneDials(t *testing.T) {
	w := open(t, v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test", "silent.test"}, AllowPort: []int{8080}}, Options{})
	w.names["silent.test"] = []string{"93.184.216.35"}
	w.host("93.184.216.34:8080", echo)
	others := w.p.connector
	var waiting atomic.Int64
	w.p.connector = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		if to.Addr().String() == "93.184.216.35" {
			waiting.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return others(ctx, to)
	}
	w.p.times.dial = time.Minute
	port, _ := w.alone(LoopbackPeers())
	for range maxDialsEach {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		c, err := d.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, connectTo("silent.test:8080"))
	}
	fake.Until(t, "they wait", func() bool { return waiting.Load() == maxDialsEach })
	for _, c := range []struct {
		from, target string
		want         int
	}{{"127.0.0.2", "allowed.test:8080", 503}, {"127.0.0.2", "evil.test:8080", 403}, {"127.0.0.3", "allowed.test:8080", 200}} {
		if n, _ := askAlone(t, c.from, port, c.target); n != c.want {
			t.Errorf("%s from %s: %d; want %d", c.target, c.from, n, c.want)
		}
	}
	if n := w.denied(TooMany); n != 1 {
		t.Errorf("%d were too many", n)
	}
}

// TestPeersFile: what is no peer is an error with its line, and what a file may have is bounded.
func TestPeersFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peers")
	var many bytes.Buffer
	for i := range maxPeers + 1 {
		fmt.Fprintf(&many, "10.%d.%d.1\n", i/256, i%256)
	}
	for text, want := range map[string]string{
		"10.0.0.1\nexample.com\n":                "line 2",
		"10.0.0.1/8\n":                           "line 1",
		"fe80::1%eth0\n":                         "line 1",
		"::ffff:10.0.0.0/104\n":                  "line 1",
		many.String():                            "more than 10000 peers",
		strings.Repeat("#", maxPeersFile) + "\n": "more than 1048576 bytes",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadPeers(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v; want %s", text, err, want)
		}
	}
	if _, err := ReadPeers(path + ".none"); err == nil {
		t.Error("a file that is not there is read")
	}
}
