//go:build unix

package kvtest

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/port"
)

// Server is a redis-server of a test, which ends with it.
type Server struct {
	Addr string // host:port

	t    testing.TB
	auth string // the password of its default user; "" for none
	args []string
	cmd  *exec.Cmd
	out  *said
}

// said is what a server wrote, for readers beside it.
type said struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// Redis starts a redis-server that keeps nothing on disk, with more arguments
// if there are any. %s in an argument becomes a directory of its own.
func Redis(t testing.TB, args ...string) *Server {
	t.Helper()
	for _, program := range []string{"redis-server", "redis-cli"} {
		_, err := exec.LookPath(program)
		edgetest.Need(t, err == nil, program+" is not on PATH (Debian: apt-get install redis-server)")
	}
	dir := t.TempDir()
	s := &Server{t: t, Addr: free(t)}
	s.args = append(s.args, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir)
	if !strings.Contains(strings.Join(args, " "), "--tls-port") {
		s.args = append(s.args, "--port", portOf(s.Addr))
	}
	for _, a := range args {
		s.args = append(s.args, strings.NewReplacer("%s", dir, "%p", portOf(s.Addr)).Replace(a))
	}
	s.Start()
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("redis-server at %s said:\n%s", s.Addr, s.out)
		}
	})
	return s
}

// Start starts the server at its address, empty, and waits until it says that it
// serves. A connection would not tell: a program that this process is starting
// at that moment holds, until it runs, each listener that was open when it was
// forked, the one by which the address was found among them.
func (s *Server) Start() {
	s.t.Helper()
	s.out = &said{}
	s.cmd = exec.Command("redis-server", s.args...)
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	edgetest.Until(s.t, "redis-server at "+s.Addr, func() bool {
		out := s.out.String()
		return strings.Contains(out, "Ready to accept connections") || strings.Contains(out, "Sentinel ID is")
	})
}

// Kill ends the server at once, as kill -9 does.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may be gone
	_ = s.cmd.Wait()         // says that it was killed
	s.cmd = nil
}

// Knows tells what Do and Try show a server that was started with a password.
func (s *Server) Knows(password string) { s.auth = password }

// Freeze makes the server a black hole: it accepts and does not answer.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Do is Try that fails the test.
func (s *Server) Do(args ...string) string {
	s.t.Helper()
	out, err := s.Try(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// Try asks the server something in plain text, with redis-cli, and returns what
// that prints. The error is of a server that ends the connection, too, as one
// that becomes the master does.
func (s *Server) Try(args ...string) (string, error) {
	cmd := exec.Command("redis-cli", append([]string{"-h", "127.0.0.1", "-p", portOf(s.Addr)}, args...)...)
	if s.auth != "" {
		cmd.Env = append(os.Environ(), "REDISCLI_AUTH="+s.auth)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("redis-cli %q: %w: %s", args, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// Cluster starts a cluster of three masters.
func Cluster(t testing.TB) []*Server {
	t.Helper()
	var servers []*Server
	create := []string{"--cluster", "create"}
	for range 3 {
		s := Redis(t, "--cluster-enabled", "yes", "--cluster-config-file", "%s/nodes.conf", "--cluster-port", portOf(free(t)), "--cluster-node-timeout", "1000")
		servers, create = append(servers, s), append(create, s.Addr)
	}
	out, err := exec.Command("redis-cli", append(create, "--cluster-yes")...).CombinedOutput()
	if err != nil {
		t.Fatalf("redis-cli --cluster create: %v: %s", err, out)
	}
	for _, s := range servers {
		edgetest.Until(t, "the cluster", func() bool {
			return strings.Contains(s.Do("cluster", "info"), "cluster_state:ok") && strings.Count(s.Do("cluster", "nodes"), "master") == 3
		})
	}
	return servers
}

// Sentinels starts a master, a replica of it and three sentinels, which know
// the master as "main" and have the replica take over within seconds. Both
// kinds have a password each, "" for none.
func Sentinels(t testing.TB, password, ofSentinels string) (master, replica *Server, sentinels []string) {
	t.Helper()
	var args []string
	more := ""
	if password != "" {
		args = []string{"--requirepass", password, "--masterauth", password}
		more = "sentinel auth-pass main " + password + "\n"
	}
	if ofSentinels != "" {
		more += "requirepass " + ofSentinels + "\n"
	}
	master = Redis(t, args...)
	replica = Redis(t, append(args, "--replicaof", "127.0.0.1 "+portOf(master.Addr))...)
	master.auth, replica.auth = password, password
	edgetest.Until(t, "the replica", func() bool { return strings.Contains(replica.Do("info", "replication"), "master_link_status:up") })
	var all []*Server
	for range 3 {
		file := filepath.Join(t.TempDir(), "sentinel.conf")
		text := fmt.Sprintf("sentinel monitor main 127.0.0.1 %s 2\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n%s", portOf(master.Addr), more)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &Server{t: t, Addr: free(t), auth: ofSentinels}
		s.args = []string{file, "--sentinel", "--bind", "127.0.0.1", "--port", portOf(s.Addr), "--dir", filepath.Dir(file)}
		s.Start()
		t.Cleanup(s.Kill)
		all, sentinels = append(all, s), append(sentinels, s.Addr)
	}
	for _, s := range all {
		edgetest.Until(t, "the sentinels", func() bool {
			out := s.Do("sentinel", "master", "main")
			return field(out, "num-other-sentinels") == "2" && field(out, "num-slaves") == "1"
		})
	}
	return master, replica, sentinels
}

// SentinelOverTLS starts one sentinel that speaks nothing but TLS, and knows a master as "main".
func SentinelOverTLS(t testing.TB, ca Authority, master *Server, password string) (address string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor main 127.0.0.1 %s 1\nsentinel auth-pass main %s\n", portOf(master.Addr), password)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, Addr: free(t)}
	s.args = []string{file, "--sentinel", "--bind", "127.0.0.1", "--dir", filepath.Dir(file)}
	for _, a := range ca.TLS() {
		s.args = append(s.args, strings.ReplaceAll(a, "%p", portOf(s.Addr)))
	}
	s.Start()
	t.Cleanup(s.Kill)
	return s.Addr
}

// field finds a value in the lines of a reply that are names and values.
func field(text, name string) string {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if lines.Text() == name && lines.Scan() {
			return lines.Text()
		}
	}
	return ""
}

func portOf(address string) string {
	_, p, _ := net.SplitHostPort(address)
	return p
}

func free(t testing.TB) string {
	t.Helper()
	address, err := port.Free()
	if err != nil {
		t.Fatal(err)
	}
	return address
}
