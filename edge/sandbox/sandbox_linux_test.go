package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/edgetest/need"
)

// The variables by which a test runs itself once more, as somebody else or somewhere else.
const (
	asVariable   = "WEIR_TEST_AS"   // "nobody"
	roomVariable = "WEIR_TEST_ROOM" // "netns"
	nobody       = 65534
)

func TestMain(m *testing.M) {
	// fasthttp keeps the date for all servers of a process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), goleak.Cleanup(func(code int) {
		if shared.dir != "" {
			_ = os.RemoveAll(shared.dir)
		}
		os.Exit(code)
	}))
}

// shared is what all tests use: the probe, in a directory that every user may see.
var shared struct {
	once sync.Once
	dir  string
	err  error
}

const dirVariable = "WEIR_TEST_DIR"

// probe is the path of the probe.
func probe(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(dirVariable); dir != "" {
		return filepath.Join(dir, "app", "probe")
	}
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "weir-sandbox-"); shared.err != nil {
			return
		}
		if shared.err = os.Chmod(shared.dir, 0o755); shared.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(shared.dir, "app", "probe"), "../edgetest/probe")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			shared.err = fmt.Errorf("build the probe: %w: %s", err, out)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return filepath.Join(shared.dir, "app", "probe")
}

// machine is one for a test, which needs the helper.
func machine(t *testing.T) *Machine {
	t.Helper()
	dir := t.TempDir()
	_, err := Helper(dir)
	var missing *HelperError
	need.Of(t, !errors.As(err, &missing), fmt.Sprint(err))
	if err != nil {
		t.Fatal(err)
	}
	m := NewMachine(dir)
	t.Cleanup(m.Close)
	return m
}

// bwrapped needs bubblewrap that works.
func bwrapped(t *testing.T, m *Machine) {
	t.Helper()
	_, err := m.bwrap()
	need.Of(t, err == nil, fmt.Sprint(err))
}

// config is that of a sandbox in which the probe makes tries.
func config(t *testing.T, grade Grade, tries ...string) Config {
	t.Helper()
	return Config{Name: "test", Grade: grade, Command: append([]string{probe(t)}, tries...), Home: t.TempDir()}
}

func openBox(t *testing.T, m *Machine, c Config) *Sandbox {
	t.Helper()
	s, err := m.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func startIn(t *testing.T, s *Sandbox) *Process {
	t.Helper()
	p, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range []io.Closer{p.Stdin(), p.Stdout(), p.Stderr()} {
			_ = c.Close()
		}
	})
	return p
}

// said starts the server, and returns what the probe says of each try until it ends.
func said(t *testing.T, s *Sandbox) (map[string]string, Exit) {
	t.Helper()
	p := startIn(t, s)
	_ = p.Stdin().Close()
	var stderr bytes.Buffer
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(&stderr, p.Stderr())
		close(done)
	}()
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	exit := p.Wait()
	<-done
	if stderr.Len() > 0 {
		t.Logf("stderr: %s", stderr.String())
	}
	return results(string(out)), exit
}

func results(out string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(out) {
		if try, result, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
			all[try] = result
		}
	}
	return all
}

// again runs this test once more in another process, by a change of its command, and takes
// over its verdict. It returns true in that process.
func again(t *testing.T, variable, value string, change func(cmd *exec.Cmd)) bool {
	t.Helper()
	if os.Getenv(variable) == value {
		return true
	}
	probe(t)
	dir := os.Getenv(dirVariable)
	if dir == "" {
		dir = shared.dir
	}
	// Where the go command puts a test nobody else may look.
	self := filepath.Join(dir, "self.test")
	if _, err := os.Stat(self); err != nil {
		text, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(self, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	temp, err := os.MkdirTemp("", "weir-again-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	if err := os.Chmod(temp, 0o1777); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run", "^"+strings.Split(t.Name(), "/")[0]+"$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), variable+"="+value, dirVariable+"="+dir, "TMPDIR="+temp, "HOME=/nonexistent")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	change(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) && !bytes.Contains(out, []byte("--- SKIP")) {
		t.Fatalf("as %s: %v\n%s", value, err, out)
	}
	if bytes.Contains(out, []byte("--- SKIP: "+t.Name())) {
		need.Of(t, false, fmt.Sprintf("as %s: %s", value, out))
	}
	t.Logf("as %s:\n%s", value, out)
	return false
}

// asNobody runs a test once more as a user without rights, when this one has some.
func asNobody(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 && os.Getenv(asVariable) == "" {
		again(t, asVariable, "nobody", func(cmd *exec.Cmd) {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		})
	}
}

// TestBwrap has a server in a sandbox by bubblewrap, as root and as nobody: its streams, its
// environment, and what the kernel holds of it.
func TestBwrap(t *testing.T) {
	asNobody(t)
	m := machine(t)
	bwrapped(t, m)
	t.Setenv("WEIR_SECRET_TOKEN", "planted")
	c := config(t, Auto, "status", "env", "pid", "list:/", "list:/dev", "list:/etc", "list:/run", "read:/etc/passwd", "read:/etc/hosts", "read:/etc/resolv.conf", "read:/etc/nsswitch.conf", "resolve:sandbox", "read:/proc/sys/kernel/hostname",
		"write:/usr/x", "write:/x", "write:/etc/x", "write:/dev/x", "write:/tmp/x", "write:/run/x", "write:/dev/shm/x", "list:/home", "list:/root", "list:/sys", "list:/etc/ssl/private", "socket:2,1,0")
	c.Transport, c.Port = "stdio", 0
	c.Environment = func(context.Context) ([]string, error) { return []string{"TOKEN=s3cret", "LANG=xx"}, nil }
	c.Command = append(c.Command, "write:"+c.Home+"/kept")
	s := openBox(t, m, c)
	if s.Grade() != Bwrap || s.Note() != "" {
		t.Fatalf("grade %q, note %q", s.Grade(), s.Note())
	}
	got, exit := said(t, s)
	if exit != (Exit{}) {
		t.Errorf("exit %+v", exit)
	}
	for _, want := range []string{"CapEff=0000000000000000", "CapPrm=0000000000000000", "CapBnd=0000000000000000", "CapAmb=0000000000000000", "NoNewPrivs=1", "Seccomp=2"} {
		if !strings.Contains(got["status"], want) {
			t.Errorf("status %q: no %s", got["status"], want)
		}
	}
	env := strings.Split(got["env"], "|")
	for _, want := range []string{"HOME=" + c.Home, "TMPDIR=/tmp", "TOKEN=s3cret", "LANG=xx", "MCP_TRANSPORT=stdio", "PATH=" + os.Getenv("PATH")} {
		if !slices.Contains(env, want) {
			t.Errorf("environment %q: no %s", env, want)
		}
	}
	for _, line := range env {
		if name, _, _ := strings.Cut(line, "="); !slices.Contains([]string{"HOME", "TMPDIR", "TOKEN", "LANG", "MCP_TRANSPORT", "PATH", "TZ"}, name) && !strings.HasPrefix(name, "LC_") {
			t.Errorf("the environment has %s", name)
		}
	}
	for try, want := range map[string]string{
		"list:/dev":             "full null random shm urandom zero",
		"list:/run":             "weir-inside",
		"list:/etc/ssl/private": "refused: open /etc/ssl/private: permission denied",
		"write:/tmp/x":          "wrote", "write:/run/x": "wrote", "write:/dev/shm/x": "wrote", "write:" + c.Home + "/kept": "wrote",
		"write:/usr/x": "refused: open /usr/x: read-only file system", "write:/x": "refused: open /x: read-only file system",
		"write:/etc/x": "refused: open /etc/x: read-only file system", "write:/dev/x": "refused: open /dev/x: read-only file system",
		"list:/sys":       "refused: open /sys: no such file or directory",
		"list:/home":      "refused: open /home: no such file or directory",
		"list:/root":      "refused: open /root: no such file or directory",
		"read:/etc/hosts": strconv.Quote("127.0.0.1 localhost sandbox\n::1 localhost\n"),
		"resolve:sandbox": "127.0.0.1", "read:/proc/sys/kernel/hostname": `"sandbox\n"`,
		"read:/etc/nsswitch.conf": strconv.Quote(namesInside),
		"read:/etc/passwd":        strconv.Quote(passwd(c.Home)),
		"read:/etc/resolv.conf":   strconv.Quote("nameserver 127.0.0.1\noptions attempts:1 timeout:2\n"),
		"socket:2,1,0":            "made",
	} {
		if got[try] != want && !(try == "list:/etc/ssl/private" && got[try] == "" || try == "list:/etc/ssl/private" && strings.Contains(got[try], "no such file")) {
			t.Errorf("%s: %q, want %q", try, got[try], want)
		}
	}
	if _, err := os.Stat(c.Home + "/kept"); err != nil {
		t.Errorf("HOME is not kept: %v", err)
	}
	for _, name := range strings.Fields(got["list:/"]) {
		if !slices.Contains([]string{"bin", "sbin", "usr", "opt", "etc", "proc", "dev", "tmp", "run"}, name) && !strings.HasPrefix(name, "lib") {
			t.Errorf("/ has %s", name)
		}
	}
	for _, name := range strings.Fields(got["list:/etc"]) {
		if !slices.Contains([]string{
			"ssl", "ca-certificates", "alternatives", "localtime", "passwd", "hosts", "resolv.conf", "nsswitch.conf",
			"pki", "crypto-policies", "java", "fonts", "mime.types", "os-release", "protocols", "services", "timezone",
		}, name) && !strings.HasPrefix(name, "ld.so.") && !strings.HasPrefix(name, "java-") {
			t.Errorf("/etc has %s", name)
		}
	}
}

// TestStreams has a server answer, as often as it is asked, and end with its stdin.
func TestStreams(t *testing.T) {
	m := machine(t)
	for _, grade := range []Grade{Bwrap, Landlock, None} {
		t.Run(string(grade), func(t *testing.T) {
			grades(t, m, grade)
			s := openBox(t, m, config(t, grade, "echo"))
			p := startIn(t, s)
			line := append(bytes.Repeat([]byte("x"), 100000), '\n')
			for range 3 {
				go func() { _, _ = p.Stdin().Write(line) }()
				got := make([]byte, len(line))
				if _, err := io.ReadFull(p.Stdout(), got); err != nil || !bytes.Equal(got, line) {
					t.Fatalf("%v, %d bytes", err, len(got))
				}
			}
			if exit := p.Stop(10 * time.Second); exit != (Exit{}) {
				t.Errorf("exit %+v", exit)
			}
			p.Terminate() // after the end: nothing
			p.Kill()
		})
	}
}

// grades skips a grade that this machine does not have.
func grades(t *testing.T, m *Machine, grade Grade) {
	t.Helper()
	switch grade {
	case Bwrap:
		bwrapped(t, m)
	case Landlock:
		need.Of(t, m.abi() >= 4, fmt.Sprintf("Landlock of version %d; 4 is needed", m.abi()))
	}
}

// TestStartErrors says what keeps a server from being started.
func TestStartErrors(t *testing.T) {
	m := machine(t)
	for _, grade := range []Grade{Bwrap, Landlock, None} {
		t.Run(string(grade), func(t *testing.T) {
			grades(t, m, grade)
			c := config(t, grade)
			for command, want := range map[string]string{
				"/nowhere/at-all":    "start test: /nowhere/at-all: no such file or directory",
				"no-such-program":    "start test: no-such-program: not found in PATH of the sandbox: no such file or directory",
				c.Home:               "start test: " + c.Home + ": permission denied",
				"/etc/passwd":        "start test: /etc/passwd: permission denied",
				"/usr/bin/env\x00ls": "sandbox of test: the command has a NUL byte",
			} {
				c.Command = []string{command}
				s, err := m.Open(t.Context(), c)
				if err == nil {
					_, err = s.Start(t.Context())
					s.Close()
				}
				if err == nil || err.Error() != want {
					t.Errorf("%q: %v, want %s", command, err, want)
				}
			}
			c.Command = []string{probe(t), "exit:7"}
			if _, exit := said(t, openBox(t, m, c)); exit != (Exit{Code: 7}) {
				t.Errorf("exit %+v", exit)
			}
			c.Environment = func(context.Context) ([]string, error) { return []string{"s3cret-without-equals-sign"}, nil }
			if _, err := openBox(t, m, c).Start(t.Context()); err == nil || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("a line without a name: %v", err)
			}
			c.Environment = func(context.Context) ([]string, error) { return []string{"A=" + strings.Repeat("x", 1<<20)}, nil }
			if _, err := openBox(t, m, c).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "exceed 1 MiB") {
				t.Errorf("a large environment: %v", err)
			}
		})
	}
}

// TestDial reaches a port of a server's, and no other.
func TestDial(t *testing.T) {
	m := machine(t)
	bwrapped(t, m)
	c := config(t, Bwrap, "listen:127.0.0.1:7777")
	s := openBox(t, m, c)
	p := startIn(t, s)
	if _, err := p.Stdout().Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	conn, err := s.Dial(t.Context(), 7777)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// A stranger may set a socket to blocking again: it is the same one.
	raw, err := conn.(interface {
		SyscallConn() (syscall.RawConn, error)
	}).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.SetNonblock(int(fd), false) })
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 6)
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "hello\n" {
		t.Fatalf("%q %v", b, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := conn.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read of nothing: %v", err)
	}
	if _, err := s.Dial(t.Context(), 7778); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("another port: %v", err)
	}
	s.Close()
	if _, err := s.Dial(t.Context(), 7777); err == nil {
		t.Error("a sandbox that has ended was dialled")
	}
}

// TestHelperIsSmall holds the helper to its memory while a server runs, and says what a
// sandbox and a start in it cost.
func TestHelperIsSmall(t *testing.T) {
	m := machine(t)
	for _, grade := range []Grade{Bwrap, Landlock, None} {
		t.Run(string(grade), func(t *testing.T) {
			grades(t, m, grade)
			if grade == Bwrap {
				if _, err := m.bwrap(); err != nil { // the probe is paid once
					t.Fatal(err)
				}
			}
			m.groups() // and so is the look at cgroups
			c := config(t, grade, "echo")
			began := time.Now()
			s := openBox(t, m, c)
			opened := time.Since(began)
			p := startIn(t, s)
			started := time.Since(began)
			for range 100 {
				go func() { _, _ = p.Stdin().Write([]byte("x\n")) }()
				if _, err := io.ReadFull(p.Stdout(), make([]byte, 2)); err != nil {
					t.Fatal(err)
				}
			}
			helper := s.cmd.Process.Pid
			if grade == Bwrap {
				helper = descendants(helper)[1]
			}
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", helper))
			if err != nil {
				t.Fatal(err)
			}
			kib, anonymous := 0, 0
			for line := range strings.Lines(string(text)) {
				_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &kib)
				_, _ = fmt.Sscanf(line, "RssAnon: %d kB", &anonymous)
			}
			if kib == 0 || kib > 4<<10 {
				t.Errorf("the helper has %d KiB in memory, and the limit is 4 MiB", kib)
			}
			t.Logf("helper %d KiB, %d of its own; opened after %v, started after %v", kib, anonymous, opened, started)
		})
	}
}
