package sandbox

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A server in a network of its own listens where it was told; one that shares the loopback of
// this machine gets a port that nobody has, and one that somebody has is refused.
func TestPorts(t *testing.T) {
	m := machine(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	environment := func(s *Sandbox) string {
		said, _ := said(t, s)
		return said["env"]
	}
	for _, grade := range []Grade{Bwrap, None} {
		if grade == Bwrap {
			bwrapped(t, m)
		}
		c := config(t, grade, "env")
		c.Network, c.Port = Host, port
		if _, err := m.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("port %d of this machine cannot be had", port)) {
			t.Errorf("%s: a port that is taken: %v", grade, err)
		}
		c.AnyPort = true
		s := openBox(t, m, c)
		if s.Port() == port || s.Port() == 0 {
			t.Errorf("%s: the port is %d", grade, s.Port())
		}
		if env := environment(s); !strings.Contains(env, "MCP_PORT="+strconv.Itoa(s.Port())) {
			t.Errorf("%s: the environment is %s", grade, env)
		}
	}
	c := config(t, Bwrap, "env")
	c.Network, c.Port, c.AnyPort = Closed, port, true
	s := openBox(t, m, c)
	if env := environment(s); s.Port() != port || !strings.Contains(env, "MCP_PORT="+strconv.Itoa(port)) {
		t.Errorf("the port is %d, the environment %s", s.Port(), env)
	}
}

// A server that puts a link in place of its own program is shown nothing more for it.
func TestProgramInHome(t *testing.T) {
	m := machine(t)
	bwrapped(t, m)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("hidden"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := config(t, Bwrap)
	inside := filepath.Join(c.Home, "probe")
	text, err := os.ReadFile(probe(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(inside, text, 0o700); err != nil {
		t.Fatal(err)
	}
	c.Command = []string{inside, "read:" + secret}
	if got, exit := said(t, openBox(t, m, c)); exit.Code != 0 || !strings.Contains(got["read:"+secret], "no such file") {
		t.Errorf("%v, %+v", got, exit)
	}
	link := filepath.Join(c.Home, "link")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	v, err := m.view(&Config{Name: "test", Home: c.Home, Command: []string{link}})
	if err != nil {
		t.Fatal(err)
	}
	defer v.close()
	if len(v.prefixes) > 0 {
		t.Errorf("shown are %q", v.prefixes)
	}
}

// Where a sandbox has the network of this machine, names are found as this machine finds them.
func TestNamesOfTheMachine(t *testing.T) {
	m := machine(t)
	bwrapped(t, m)
	c := config(t, Bwrap, "read:/etc/resolv.conf", "read:/etc/hosts")
	c.Network = Host
	got, _ := said(t, openBox(t, m, c))
	for _, path := range []string{"/etc/resolv.conf", "/etc/hosts"} {
		want, err := os.ReadFile(path)
		if err != nil {
			continue // this machine has none
		}
		if path == "/etc/hosts" { // and its own name
			want = append(want, "\n127.0.0.1 sandbox\n"...)
		}
		if got["read:"+path] != strconv.Quote(string(want)) {
			t.Errorf("%s is %s, want %q", path, got["read:"+path], want)
		}
	}
}

// A connection to a server's port comes out of its sandbox, whose network nobody else is in.
func TestDialOwnLoopback(t *testing.T) {
	m := machine(t)
	bwrapped(t, m)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	c := config(t, Bwrap, "wait:600000")
	c.Port = port
	s := openBox(t, m, c)
	p := startIn(t, s)
	defer p.Kill()
	if conn, err := s.Dial(t.Context(), port); err == nil {
		_, _ = io.WriteString(conn, "x")
		conn.Close()
		t.Error("a port of this machine was reached in place of the sandbox's")
	}
}
