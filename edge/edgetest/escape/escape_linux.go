// Package escape is what tests have around a sandbox or a container to try to get out of it:
// hosts that live and count who reaches them, and the tables of what is tried (V01 to V20). The
// tries are those of edge/edgetest/probe, which runs inside.
package escape

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/edgetest/need"
)

// farVariable marks the process of a test that is the hosts outside: the internet, metadata
// of clouds, private networks. It has a network namespace of its own, and a cable to the
// test's.
const farVariable = "WEIR_TEST_FAR"

// Outside is what stands around a sandbox: listeners that count who reaches them.
type Outside struct {
	t       *testing.T
	probe   string
	Reached map[string]*atomic.Int64 // by the try that reaches it
}

// NewOutside returns one with nothing in it; probe is the path of the probe.
func NewOutside(t *testing.T, probe string) *Outside {
	return &Outside{t: t, probe: probe, Reached: map[string]*atomic.Int64{}}
}

// addresses are this machine's, in the namespace of the test: of it, of what stands for the
// internet, of clouds' metadata, of an engine's network.
var addresses = []string{"10.9.8.7/24", "93.184.216.34/32", "169.254.169.254/32", "100.100.100.200/32", "172.17.0.1/16", "2001:db8::1/64", "fd00:ec2::254/128"}

// Prepare makes the namespace one without a route out of this machine, with addresses.
func (o *Outside) Prepare() {
	o.t.Helper()
	commands := [][]string{{"link", "set", "lo", "up"}}
	for _, a := range addresses {
		add := []string{"addr", "add", a, "dev", "lo"}
		if strings.Contains(a, ":") {
			add = append(add, "nodad") // it is there at once
		}
		commands = append(commands, add)
	}
	for _, c := range commands {
		if out, err := exec.Command("ip", c...).CombinedOutput(); err != nil {
			o.t.Fatalf("ip %v: %v: %s", c, err, out)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		out, err := exec.Command("ip", "-6", "addr", "show", "tentative").CombinedOutput()
		if err != nil || time.Now().After(deadline) {
			o.t.Fatalf("addresses are not ready: %v: %s", err, out)
		}
		if len(bytes.TrimSpace(out)) == 0 {
			return
		}
	}
}

// TCP listens on all addresses, and names the tries by which that is reached.
func (o *Outside) TCP(port int) {
	o.t.Helper()
	ln, err := net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
	if err != nil {
		o.t.Fatal(err)
	}
	o.accept(ln, o.tries("tcp", port))
}

// UDP is as TCP, of datagrams.
func (o *Outside) UDP(port int) {
	o.t.Helper()
	c, err := net.ListenPacket("udp", fmt.Sprintf("[::]:%d", port))
	if err != nil {
		o.t.Fatal(err)
	}
	count := o.tries("udp", port)
	o.t.Cleanup(func() { _ = c.Close() })
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			count.Add(1)
			_, _ = c.WriteTo(b[:n], from) // who sent it may be gone
		}
	}()
}

// Host is as TCP, by the addresses that this host has in the rounds.
func (o *Outside) Host(port int) {
	o.t.Helper()
	o.TCP(port)
	o.Reached = maps.Collect(func(yield func(string, *atomic.Int64) bool) {
		for try, n := range o.Reached {
			for _, at := range []string{"127.0.0.1:", "[::1]:", "10.9.8.7:", "172.17.0.1:"} {
				if strings.HasPrefix(try, "tcp:"+at) && !yield(try, n) {
					return
				}
			}
		}
	})
}

// Unreached checks that nothing was counted.
func (o *Outside) Unreached() {
	o.t.Helper()
	for try, n := range o.Reached {
		if n.Load() != 0 {
			o.t.Errorf("%s was counted %d times", try, n.Load())
		}
	}
}

// Neighbour is another program of this host, at port 5432 of all its addresses.
func Neighbour(t *testing.T, probe string) {
	t.Helper()
	other := exec.Command(probe, "listen:0.0.0.0:5432")
	said, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = other.Process.Kill(), other.Wait() })
	if _, err := said.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
}

func (o *Outside) tries(network string, port int) *atomic.Int64 {
	count := &atomic.Int64{}
	hosts := []string{"127.0.0.1", "::1", "::ffff:10.9.8.7", "::ffff:93.184.216.34"}
	for _, a := range addresses {
		host, _, _ := strings.Cut(a, "/")
		hosts = append(hosts, host)
	}
	for _, host := range hosts {
		o.Reached[network+":"+net.JoinHostPort(host, strconv.Itoa(port))] = count
	}
	return count
}

// Unix listens at a path, or at an abstract name that begins with @.
func (o *Outside) Unix(path string) {
	o.t.Helper()
	if filepath.IsAbs(path) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			o.t.Fatal(err)
		}
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		o.t.Fatal(err)
	}
	if filepath.IsAbs(path) {
		if err := os.Chmod(path, 0o777); err != nil { // the sandbox is what keeps others out
			o.t.Fatal(err)
		}
	}
	count := &atomic.Int64{}
	o.Reached["unix:"+path] = count
	o.accept(ln, count)
}

func (o *Outside) accept(ln net.Listener, count *atomic.Int64) {
	o.t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			_ = c.Close()
		}
	}()
}

// Open shows that all of it is reached by who is not in a sandbox, and forgets it.
func (o *Outside) Open(as *syscall.Credential) {
	o.t.Helper()
	left := o.All()
	var got map[string]string
	for range 5 { // the first packet to a new address may be lost
		cmd := exec.Command(o.probe, left...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
		out, err := cmd.CombinedOutput()
		if err != nil {
			o.t.Fatalf("%v: %s", err, out)
		}
		got = Results(string(out))
		left = slices.DeleteFunc(left, func(try string) bool { return got[try] == "reached" })
		if len(left) == 0 {
			break
		}
	}
	for _, try := range left {
		o.t.Errorf("from outside, %s: %s", try, got[try])
	}
	for try, n := range o.Reached {
		deadline := time.Now().Add(5 * time.Second)
		for n.Load() == 0 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if n.Load() == 0 {
			o.t.Errorf("%s was not counted", try)
		}
	}
	time.Sleep(50 * time.Millisecond) // what is on its way is counted before it is forgotten
	for _, n := range o.Reached {
		n.Store(0)
	}
}

// All are the tries by which all of it is reached.
func (o *Outside) All() []string {
	var tries []string
	for try := range o.Reached {
		tries = append(tries, try)
	}
	return tries
}

// Shut checks that none of it was reached, and nothing was counted.
func (o *Outside) Shut(got map[string]string) {
	o.t.Helper()
	for try, n := range o.Reached {
		if !strings.HasPrefix(got[try], "refused: ") {
			o.t.Errorf("%s: %q", try, got[try])
		}
		if n.Load() != 0 {
			o.t.Errorf("%s was counted %d times", try, n.Load())
		}
	}
}

// Sockets are those that programs of a desktop and of this machine listen at.
func Sockets(t *testing.T, o *Outside) {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("run", "/run", "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	// V11: the manager's socket. V12: engines, agents, buses, X11, by path and by name.
	for _, path := range []string{
		"/run/weir/manager.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/user/1000/bus", "/run/dbus/system_bus_socket",
		"/run/user/1000/gnupg/S.gpg-agent", "/tmp/.weir-x11/X0", "/tmp/.weir-ssh/agent.1", "@/tmp/.X11-unix/X0", "@/run/dbus-abstract",
	} {
		o.Unix(path)
	}
	t.Cleanup(func() { _, _ = os.RemoveAll("/tmp/.weir-x11"), os.RemoveAll("/tmp/.weir-ssh") })
}

// Refused are tries of sockets that no sandbox makes.
var Refused = []string{"socket:2,3,1", "socket:10,3,58", "socket:2,3,255", "socket:2,10,768", "socket:17,3,768", "socket:17,2,768", "socket:40,1,0", "socket:38,5,0", "socket:16,3,9", "socket:16,3,15", "socket:31,3,1"}

// farAddresses are the hosts outside.
var farAddresses = []string{"93.184.216.34/32", "93.184.216.99/32", "10.77.0.5/32", "169.254.169.254/32", "100.100.100.200/32", "2001:db8:7::5/128", "fd00:ec2::254/128"}

// farPorts are those at which each of them listens; at 443 and 8443 by TLS.
var farPorts = []int{22, 80, 443, 8080, 8443}

// Serve is the process with the hosts outside, as a test named TestFar, which Far runs; else it
// does nothing. It says how many connections and bytes came,
// for each address and port, whenever it is asked.
func Serve(t *testing.T) {
	if os.Getenv(farVariable) == "" {
		return
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
	if err := os.WriteFile(os.Getenv(farVariable), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}), 0o600); err != nil {
		t.Fatal(err)
	}
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

// Far starts the hosts outside, and lays the cable to them. asked returns what they counted
// since it was called last; ca is the certificate, in PEM, with which they are allowed.test.
func Far(t *testing.T) (asked func() map[string]int, ca []byte) {
	t.Helper()
	certificate := filepath.Join(t.TempDir(), "far.pem")
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestFar$", "-test.count=1")
	cmd.Env = append(os.Environ(), farVariable+"="+certificate)
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
	ca, err := os.ReadFile(certificate)
	if err != nil {
		t.Fatal(err)
	}
	return func() map[string]int {
		counts := map[string]int{}
		_, _ = io.WriteString(in, "counts\n")
		for lines.Scan() && lines.Text() != "end" {
			key, n, _ := strings.Cut(lines.Text(), " = ")
			counts[key], _ = strconv.Atoi(n)
		}
		return counts
	}, ca
}

// roomVariable marks the process in which a test runs once more.
const roomVariable = "WEIR_TEST_ESCAPE"

// InRoom runs a test once more in a network and mount namespace of its own, as root, and takes
// over its verdict. It returns true in that process.
func InRoom(t *testing.T) bool {
	t.Helper()
	need.Of(t, os.Geteuid() == 0, "root makes the network of this test")
	_, err := exec.LookPath("ip")
	need.Of(t, err == nil, "ip (iproute2) makes the network of this test")
	if os.Getenv(roomVariable) != "" {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v", "-test.count=1", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), roomVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the death of the thread that started it would be its own
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Fatalf("in a network of its own: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

// Results are what a probe said of each try.
func Results(out string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(out) {
		if try, result, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
			all[try] = result
		}
	}
	return all
}
