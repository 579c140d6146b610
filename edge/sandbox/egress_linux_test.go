package sandbox

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/egress"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// farVariable marks the process of a test that is the hosts outside: the internet, metadata
// of clouds, private networks. It has a network namespace of its own, and a cable to the
// test's.
const farVariable = "WEIR_TEST_FAR"

// farAddresses are the hosts outside.
var farAddresses = []string{"93.184.216.34/32", "93.184.216.99/32", "10.77.0.5/32", "169.254.169.254/32", "100.100.100.200/32", "2001:db8:7::5/128", "fd00:ec2::254/128"}

// farPorts are those at which each of them listens; at 443 and 8443 by TLS.
var farPorts = []int{22, 80, 443, 8080, 8443}

// TestFar is the process with the hosts outside. It says how many connections and bytes came,
// for each address and port, whenever it is asked.
func TestFar(t *testing.T) {
	if os.Getenv(farVariable) == "" {
		return // TestV01Egress runs it
	}
	orders := bufio.NewScanner(os.Stdin)
	orders.Scan() // the cable is there
	commands := [][]string{{"link", "set", "lo", "up"}, {"link", "set", "wv1", "up"}}
	for _, a := range farAddresses {
		add := []string{"addr", "add", a, "dev", "wv1"}
		if strings.Contains(a, ":") {
			add = append(add, "nodad")
		}
		commands = append(commands, add)
	}
	ip(t, append(commands, []string{"route", "add", "10.9.8.0/24", "dev", "wv1"}, []string{"-6", "route", "add", "2001:db8:8::/64", "dev", "wv1"})...)
	certificate := selfSigned(t)
	var mu sync.Mutex
	counts := map[string]int{}
	add := func(key string, n int) {
		mu.Lock()
		counts[key] += n
		mu.Unlock()
	}
	for _, port := range farPorts {
		ln, err := net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					key := netip.MustParseAddrPort(c.LocalAddr().String())
					at := netip.AddrPortFrom(key.Addr().Unmap(), key.Port()).String()
					add(at, 1)
					_ = c.SetDeadline(time.Now().Add(time.Minute))
					c = &tally{c, func(n int) { add(at+" bytes", n) }}
					if port == 443 || port == 8443 {
						c = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}})
					}
					in := bufio.NewReader(c)
					if first, err := in.Peek(1); err != nil || first[0] < 'A' {
						return
					}
					_, _ = in.ReadString('\n')
					_, _ = io.WriteString(c, "HTTP/1.1 302 Found\r\nLocation: http://evil.test/\r\nContent-Length: 0\r\n\r\n")
				}()
			}
		}()
	}
	for _, a := range farAddresses {
		for _, port := range []uint16{53, 443} {
			at := netip.AddrPortFrom(netip.MustParsePrefix(a).Addr(), port).String()
			c, err := net.ListenPacket("udp", at)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				b := make([]byte, 512)
				for {
					n, from, err := c.ReadFrom(b)
					if err != nil {
						return
					}
					add("udp "+at, 1)
					_, _ = c.WriteTo(b[:n], from)
				}
			}()
		}
	}
	fmt.Println("ready")
	for orders.Scan() {
		mu.Lock()
		for _, key := range slices.Sorted(maps.Keys(counts)) {
			fmt.Printf("%s = %d\n", key, counts[key])
		}
		clear(counts)
		mu.Unlock()
		fmt.Println("end")
	}
	os.Exit(0) // with all that listens
}

// tally counts what is read.
type tally struct {
	net.Conn
	read func(n int)
}

func (c *tally) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read(n)
	return n, err
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"allowed.test"}}
	der, err := x509.CreateCertificate(rand.Reader, &text, &text, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func ip(t *testing.T, commands ...[]string) {
	t.Helper()
	for _, c := range commands {
		if out, err := exec.Command("ip", c...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", c, err, out)
		}
	}
}

// far starts the hosts outside, and lays the cable to them. asked returns what they counted
// since it was called last.
func far(t *testing.T) (asked func() map[string]int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestFar$", "-test.count=1")
	cmd.Env = append(os.Environ(), farVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
	ip(t, []string{"link", "set", "lo", "up"}, []string{"link", "add", "wv0", "type", "veth", "peer", "name", "wv1"}, []string{"link", "set", "wv1", "netns", strconv.Itoa(cmd.Process.Pid)},
		[]string{"addr", "add", "10.9.8.7/24", "dev", "wv0"}, []string{"addr", "add", "2001:db8:8::7/64", "dev", "wv0", "nodad"}, []string{"link", "set", "wv0", "up"},
		[]string{"link", "add", "docker0", "type", "bridge"}, []string{"addr", "add", "172.17.0.1/16", "dev", "docker0"}, []string{"link", "set", "docker0", "up"})
	for _, a := range farAddresses {
		ip(t, []string{"route", "add", a, "dev", "wv0"})
	}
	_, _ = io.WriteString(in, "go\n")
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the hosts outside say %q", lines.Text())
	}
	return func() map[string]int {
		counts := map[string]int{}
		_, _ = io.WriteString(in, "counts\n")
		for lines.Scan() && lines.Text() != "end" {
			key, n, _ := strings.Cut(lines.Text(), " = ")
			counts[key], _ = strconv.Atoi(n)
		}
		return counts
	}
}

// outlet is the way out of a sandbox.
type outlet struct{ *egress.Proxy }

func (o outlet) Ports() []int  { return o.Rules().Ports() }
func (o outlet) Open() Passage { return o.Proxy.Open() }

// out is what is let out of the sandboxes of a test.
type out struct {
	outlet
	lookups atomic.Int64
}

func newOut(t *testing.T, o egress.Options, p v1beta1.ProfileOutbound) *out {
	t.Helper()
	rules, err := egress.NewRules(&v1beta1.Profile{Name: "test", Network: v1beta1.ProfileNetwork{Outbound: p}}, o)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string][]string{
		"allowed.test": {"93.184.216.34"}, "evil.test": {"93.184.216.99"}, "meta.test": {"169.254.169.254"}, "both.test": {"93.184.216.34", "127.0.0.1"},
		"private.test": {"10.77.0.5"}, "x.below.test": {"10.77.0.5"}, "own.test": {"10.9.8.7"}, "engine.test": {"172.17.0.9"},
	}
	w := &out{}
	w.outlet = outlet{egress.New(egress.Config{Workload: "w", Rules: rules, Log: slog.New(slog.DiscardHandler), Resolve: func(_ context.Context, name string) (all []netip.Addr, err error) {
		w.lookups.Add(1)
		for _, a := range names[name] {
			all = append(all, netip.MustParseAddr(a))
		}
		return all, nil
	}})}
	return w
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
	asked := far(t)
	near := newOutside(t)
	near.tcp(4484) // V07, V11: this host, at all its addresses
	near.reached = maps.Collect(func(yield func(string, *atomic.Int64) bool) {
		for try, n := range near.reached {
			for _, at := range []string{"127.0.0.1:", "[::1]:", "10.9.8.7:", "172.17.0.1:"} {
				if strings.HasPrefix(try, "tcp:"+at) && !yield(try, n) {
					return
				}
			}
		}
	})
	sockets(t, near)
	near.open(nil)

	// 1. What is outside is reached from outside.
	var direct []string
	for _, a := range farAddresses {
		host, _, _ := strings.Cut(a, "/")
		for _, port := range farPorts {
			direct = append(direct, "tcp:"+net.JoinHostPort(host, strconv.Itoa(port)))
		}
		direct = append(direct, "udp:"+net.JoinHostPort(host, "53"), "udp:"+net.JoinHostPort(host, "443"))
	}
	direct = append(direct, "tcp:[::ffff:93.184.216.34]:443")
	text, err := exec.Command(probe(t), direct...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for try, result := range results(string(text)) {
		if result != "reached" {
			t.Errorf("from outside, %s: %s", try, result)
		}
	}
	if counts := asked(); len(counts) < len(farAddresses)*(len(farPorts)+2) {
		t.Errorf("from outside %v were counted", counts)
	}

	// 2. Nothing of it from inside, one host at one port.
	w := newOut(t, egress.Options{}, v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test", "meta.test", "both.test", "own.test", "engine.test", ".below.test"}, AllowPort: []int{443}})
	wants := map[string]string{}
	want := func(result string, tries ...string) {
		for _, try := range tries {
			wants[try] = result
		}
	}
	want("refused: ", direct...)     // V01, V02, V03, V06
	want("refused: ", near.all()...) // V07, V08, V11, V12
	want("refused: ", refused...)    // V05
	want("NameError", "dns:udp,1,evil.test.", "dns:tcp,1,evil.test.", "dns:udp,16,evil.test.", "dns:udp,10,evil.test.", "dns:udp,28,evil.test.", "dns:udp,1,host.docker.internal.")
	for i := range 20 { // V04; the unit tests ask 1,000
		want("NameError", fmt.Sprintf("dns:udp,1,s%d.allowed.test.", i))
	}
	want("Success", "dns:udp,28,allowed.test.")
	want("Success 127.84.0.", "dns:udp,1,allowed.test.", "dns:tcp,1,allowed.test.")
	want("403", "connect:169.254.169.254:443", "connect:[fd00:ec2::254]:443", "connect:100.100.100.200:443", "connect:meta.test:443", // V06
		"connect:10.9.8.7:4484", "connect:10.9.8.7:443", "connect:own.test:443", "connect:[2001:db8:8::7]:443", // V07, V11
		"connect:host.docker.internal:443", "connect:172.17.0.1:443", "connect:engine.test:443", // V08
		"connect:127.0.0.1:443", "connect:localhost:443", "connect:0.0.0.0:443", "connect:[::1]:443", // V09
		"connect:172.17.0.9:443", "connect:10.77.0.5:443", // V10
		"connect:93.184.216.34:443",                          // V13
		"connect:allowed.test:80", "connect:allowed.test:22", // V14
		"connect:allowed.test.evil:443", "connect:evilallowed.test:443", "connect:evil.test:443", "connect:xn--llowed-6fg.test:443", // V17
		"connect:both.test:443", "connect:x.below.test:443", // V18
		"proxy:GET http://evil.test/ HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n") // V19
	want("400 closed", "connect:0:443", "connect:[::ffff:127.0.0.1]:443", "connect:2130706433:443", "connect:0x7f.1:443", "connect:127.1:443", // V09
		"connect:allowed.test:0", "connect:allowed.test:65536", // V14
		"connect:allowed.test%00.evil:443", "connect:a@evil:443", "connect:"+strings.Repeat("a", 254)+":443", // V17
		"proxy:GET http://allowed.test:443/ HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n", // V16
		"proxy:POST http://allowed.test:443/ HTTP/1.1\\r\\nHost: allowed.test:443\\r\\nContent-Length: 4\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n",
		"proxy:GET http://allowed.test:443/ HTTP/1.1\\r\\nHost: allowed.test:443\\r\\nA: b\\r\\n c\\r\\n\\r\\n",
		"proxy:PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n") // V20
	want("", "proxy:\\x05\\x01\\x00")
	want("403 403 403", "proxy:"+strings.Repeat("GET http://evil.test/ HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n", 3))                                                          // V16
	want("refused: ", "tls:proxy,allowed.test:443,evil.test", "tls:proxy,allowed.test:443,", "tls:proxy,allowed.test:443,evil.test,1", "tls:direct,allowed.test:443,evil.test", // V15
		"say:proxy,allowed.test:443,GET / HTTP/1.1\\r\\n\\r\\n", "tls:direct,evil.test:443,evil.test", "say:direct,127.84.9.9:443,x")
	s := tryOut(t, m, w, wants)
	counts := asked()
	for key, n := range counts {
		if n > 0 && key != "93.184.216.34:443" { // which is dialled, and sent nothing
			t.Errorf("%s was reached: %d", key, n)
		}
	}
	near.shut(s)
	if n := w.lookups.Load(); n > 20 {
		t.Errorf("%d look-ups", n)
	}

	// 3. What is allowed passes: by the proxy, without it, in pieces, in any case.
	passes := map[string]string{}
	for _, try := range []string{"tls:proxy,allowed.test:443,allowed.test", "tls:proxy,ALLOWED.test.:443,allowed.test", "tls:proxy,allowed.test:443,allowed.test,1", "tls:direct,allowed.test:443,allowed.test", "tls:direct,allowed.test:443,allowed.test,7"} {
		passes[try] = "reached"
	}
	tryOut(t, m, w, passes)
	if counts := asked(); counts["93.184.216.34:443"] != len(passes) || len(counts) != 2 {
		t.Errorf("what is allowed was counted as %v", counts)
	}

	// 4. The profile network: all that is public, by the proxy and on the web's ports; no
	// private address, nothing of this host, no other way out.
	all := newOut(t, egress.Options{Ports: []int{8443}}, v1beta1.ProfileOutbound{InsecureAllowAll: true})
	wants = map[string]string{}
	want("refused: ", direct...)
	want("refused: ", near.all()...)
	want("403", "connect:10.77.0.5:443", "connect:private.test:443", "connect:127.0.0.1:4484", "connect:10.9.8.7:4484", "connect:own.test:4484", "connect:172.17.0.1:4484", "connect:host.docker.internal:4484", "connect:169.254.169.254:80", "connect:meta.test:80", "connect:both.test:443")
	want("refused: ", "say:direct,evil.test:8080,GET / HTTP/1.1\\r\\n\\r\\n")
	want("reached", "tls:proxy,evil.test:443,any.test", "tls:direct,evil.test:443,any.test", "tls:direct,evil.test:8443,any.test", "tls:proxy,93.184.216.99:443,any.test")
	want("302 closed", "proxy:GET http://evil.test/ HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n", "proxy:GET http://evil.test:8080/ HTTP/1.1\\r\\nHost: evil.test:8080\\r\\n\\r\\n")
	want(`"HTTP/1.1 302`, "say:direct,allowed.test:80,GET / HTTP/1.1\\r\\n\\r\\n", "say:proxy,allowed.test:22,GET / HTTP/1.1\\r\\n\\r\\n")
	near.shut(tryOut(t, m, all, wants))
	for key := range asked() {
		if !strings.HasPrefix(key, "93.184.216.") {
			t.Errorf("%s was reached", key)
		}
	}

	// 5. The gateway, when it was allowed: this host at every port, less what is of an edge
	// (V08, V11). This process listens at 4484, and another program at 5432.
	other := exec.Command(probe(t), "listen:0.0.0.0:5432")
	said, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = other.Process.Kill(), other.Wait() }()
	if _, err := said.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	gateway := newOut(t, egress.Options{Gateway: true}, v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test"}, AllowPort: []int{443}})
	wants = map[string]string{}
	want(`"hello`, "say:proxy,host.docker.internal:5432,hello\\n", "say:proxy,172.17.0.1:5432,hello\\n")
	want("403", "connect:host.docker.internal:4484", "connect:172.17.0.1:4484", "connect:10.9.8.7:5432", "connect:evil.test:443")
	want("refused: ", "tcp:172.17.0.1:5432", "tcp:10.9.8.7:5432")
	tryOut(t, m, gateway, wants)
	for try, n := range near.reached {
		if n.Load() != 0 {
			t.Errorf("%s was counted %d times", try, n.Load())
		}
	}
}

// tryOut makes tries in a sandbox, and holds what comes back to
// how it is to begin.
func tryOut(t *testing.T, m *Machine, w *out, wants map[string]string) map[string]string {
	t.Helper()
	c := config(t, Bwrap, slices.Sorted(maps.Keys(wants))...)
	c.Network, c.Outlet, c.Isolate = Profile, w, true
	got, _ := said(t, openBox(t, m, c))
	for try, want := range wants {
		if !strings.HasPrefix(got[try], want) || got[try] == "" && want != "" {
			t.Errorf("%s: %q; want %q", try, got[try], want)
		}
	}
	return got
}

// TestEgressUser lets a server out that another user than root runs: the helper may listen at
// ports below 1024, and what it starts may not.
func TestEgressUser(t *testing.T) {
	asNobody(t)
	m := machine(t)
	bwrapped(t, m)
	w := newOut(t, egress.Options{}, v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test"}, AllowPort: []int{80, 443, 3128}})
	got := tryOut(t, m, w, map[string]string{
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
	w := newOut(t, egress.Options{}, v1beta1.ProfileOutbound{AllowHost: []string{"allowed.test"}})
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
		held = box.session.held
		box.session.mu.Unlock()
	}
	if held != streams {
		t.Errorf("%d descriptors are held", held)
	}
}
