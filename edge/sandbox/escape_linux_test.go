package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/edge/edgetest/escape"
	"github.com/weir-edge/weir/edge/edgetest/need"
)

// inRoom runs a test in a network and mount namespace of its own, as root.
func inRoom(t *testing.T) bool {
	t.Helper()
	need.Of(t, os.Geteuid() == 0, "root makes the network of this test")
	_, err := exec.LookPath("ip")
	need.Of(t, err == nil, "ip (iproute2) makes the network of this test")
	return again(t, roomVariable, "netns", func(cmd *exec.Cmd) {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNET | unix.CLONE_NEWNS
	})
}

// TestV01 tries from a sandbox with the profile none to reach anything: V01 to V12.
func TestV01(t *testing.T) {
	if !inRoom(t) {
		return
	}
	o := escape.NewOutside(t, probe(t))
	o.Prepare()
	for _, port := range []int{80, 443, 8080, 4484} { // V01, V02, V06, V07, V08, V11
		o.TCP(port)
	}
	for _, port := range []int{53, 443, 9999} { // V03, V04
		o.UDP(port)
	}
	escape.Sockets(t, o)
	users := map[string]*syscall.Credential{"root": nil, "nobody": {Uid: nobody, Gid: nobody}}
	for user, as := range users {
		o.Open(as)
		// The sandbox is opened by a process of that user: this test, or the one below.
		if as == nil {
			tryAll(t, o.All(), func(got map[string]string) { o.Shut(got) })
			continue
		}
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestV01Inside$", "-test.v", "-test.count=1")
		home, err := os.MkdirTemp("", "weir-inside-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(home)
		if err := os.Chmod(home, 0o1777); err != nil {
			t.Fatal(err)
		}
		cmd.Env = append(os.Environ(), "TMPDIR="+home, roomVariable+"=inside", asVariable+"="+user, "WEIR_TEST_TRIES="+strings.Join(o.All(), "\n"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
			t.Fatalf("as %s: %v\n%s", user, err, out)
		}
		o.Shut(results(string(out)))
	}
}

// TestV01Inside is the part of TestV01 that another user runs.
func TestV01Inside(t *testing.T) {
	if os.Getenv(roomVariable) != "inside" {
		return // TestV01 runs it
	}
	tryAll(t, strings.Split(os.Getenv("WEIR_TEST_TRIES"), "\n"), func(got map[string]string) {
		for try, result := range got {
			fmt.Printf("%s = %s\n", try, result)
		}
	})
}

// tryAll makes the tries in a sandbox by bubblewrap, beside another one.
func tryAll(t *testing.T, tries []string, check func(got map[string]string)) {
	t.Helper()
	m := machine(t)
	bwrapped(t, m)
	// V10: another workload, which listens.
	other := openBox(t, m, config(t, Bwrap, "listen:127.0.0.1:7777"))
	p := startIn(t, other)
	if _, err := p.Stdout().Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	c, err := other.Dial(t.Context(), 7777)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	own := []string{"tcp:127.0.0.1:7777", "tcp:10.9.8.7:7777", "resolve:allowed.test", "resolve:localhost", "read:" + other.config.Home}
	s := openBox(t, m, config(t, Bwrap, append(append(own, escape.Refused...), tries...)...))
	got, _ := said(t, s)
	for _, try := range append(own[:3:3], append(escape.Refused, own[4])...) {
		if !strings.HasPrefix(got[try], "refused: ") {
			t.Errorf("%s: %q", try, got[try])
		}
	}
	for _, try := range escape.Refused { // V05
		if !strings.HasSuffix(got[try], "operation not permitted") && !strings.HasSuffix(got[try], "address family not supported by protocol") {
			t.Errorf("%s: %q", try, got[try])
		}
	}
	check(got)
}

// TestV01AbstractSockets: a server that has the network of the machine has none of its abstract
// sockets, and can link and rename files as it likes.
func TestV01AbstractSockets(t *testing.T) {
	if !inRoom(t) {
		return
	}
	m := machine(t)
	bwrapped(t, m)
	o := escape.NewOutside(t, probe(t))
	o.Unix("@/tmp/.X11-unix/X7")
	o.Open(nil)
	c := config(t, Bwrap, o.All()...)
	c.Network = Host
	s := openBox(t, m, c)
	got, _ := said(t, s)
	if m.abi() < scopes {
		if !strings.Contains(s.Note(), "not held: abstract sockets of this machine") {
			t.Errorf("the note says %q", s.Note())
		}
		return
	}
	o.Shut(got)
	c = config(t, Bwrap)
	c.Network, c.Command = Host, []string{"/bin/sh", "-c", `cd "$HOME" && mkdir a b && echo x > a/f && ln a/f b/g && mv a/f b/f && echo "linked = done"`}
	if got, _ := said(t, openBox(t, m, c)); got["linked"] != "done" {
		t.Errorf("files cannot be linked: %v", got)
	}
}

// TestV11Landlock tries the same where Landlock is all there is: no socket of any kind, and
// no datagram out of a pair.
func TestV11Landlock(t *testing.T) {
	if !inRoom(t) {
		return
	}
	o := escape.NewOutside(t, probe(t))
	o.Prepare()
	o.TCP(443)
	o.UDP(53)
	escape.Sockets(t, o)
	dgram := filepath.Join(t.TempDir(), "dgram")
	d, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dgram, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	o.Open(nil)
	m := machine(t)
	grades(t, m, Landlock)
	tries := append(append(o.All(), escape.Refused...), "pair:1", "pair:2", "pair:5", "pair:2,"+dgram, "socket:2,2,0", "socket:10,1,0", "socket:1,1,0")
	s := openBox(t, m, config(t, Landlock, tries...))
	got, _ := said(t, s)
	o.Shut(got)
	for _, try := range tries {
		if want := try == "pair:1"; strings.HasPrefix(got[try], "refused: ") == want {
			t.Errorf("%s: %q", try, got[try])
		}
	}
	_ = d.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, _, err := d.ReadFrom(make([]byte, 8)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes came out of a pair: %v", n, err)
	}
}

// TestV21 attacks the helper from inside: by reading it, tracing it, signalling it, limiting
// it. It lives, and the server goes on; and when it dies, all inside die.
func TestV21(t *testing.T) {
	asNobody(t)
	m := machine(t)
	for _, grade := range []Grade{Bwrap, Landlock} {
		t.Run(string(grade), func(t *testing.T) {
			grades(t, m, grade)
			s := openBox(t, m, config(t, grade))
			helper := strconv.Itoa(s.session.pid)
			if grade == Bwrap && helper != "1" {
				t.Fatalf("the helper is %s", helper)
			}
			tries := []string{"read:/proc/" + helper + "/mem", "read:/proc/" + helper + "/fd/3", "list:/proc/" + helper + "/fd/10", "read:/proc/" + helper + "/environ", "write:/proc/" + helper + "/mem",
				"read:/proc/" + helper + "/maps", "ptrace:" + helper, "prlimit:" + helper, "signals:" + helper}
			if os.Geteuid() != 0 { // to root the kernel shows the numbers, and not what they are
				tries = append(tries, "list:/proc/"+helper+"/fd")
			}
			if grade == Bwrap || m.abi() >= 6 {
				tries = append(tries, "signal:"+helper)
			}
			s.config.Command = append(s.config.Command, tries...)
			got, exit := said(t, s)
			for _, try := range tries {
				want := "refused: "
				if strings.HasPrefix(try, "signal:") {
					want = "lives"
				}
				if !strings.HasPrefix(got[try], want) {
					t.Errorf("%s: %q", try, got[try])
				}
			}
			if exit != (Exit{}) {
				t.Errorf("exit %+v", exit)
			}
			// It still does what it is for.
			s.config.Command = []string{probe(t), "daemon:stay"}
			p := startIn(t, s)
			if _, err := p.Stdout().Read(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			all := descendants(s.cmd.Process.Pid)
			if want := map[Grade]int{Bwrap: 4, Landlock: 3}[grade]; len(all) < want {
				t.Fatalf("%d processes: %v", len(all), all)
			}
			dead := s.cmd.Process.Pid // of Landlock, it is the helper
			if grade == Bwrap {
				dead = all[1]
			}
			if err := unix.Kill(dead, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if exit := p.Wait(); exit.Code != -1 {
				t.Errorf("exit %+v", exit)
			}
			if grade == Bwrap {
				gone(t, all)
			} else {
				gone(t, all[:2]) // the helper and the server; what left its group is nobody's to find
				for _, pid := range all[2:] {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
			<-s.Ended()
		})
	}
}

// gone waits until processes are gone, also as zombies.
func gone(t *testing.T, pids []int) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for _, pid := range pids {
		for {
			if _, err := os.Stat("/proc/" + strconv.Itoa(pid)); errors.Is(err, os.ErrNotExist) {
				break
			}
			if time.Now().After(deadline) {
				text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
				t.Fatalf("process %d lives: %s", pid, text)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// TestV23 tries what a terminal would take. There is none inside.
func TestV23(t *testing.T) {
	m := machine(t)
	for _, grade := range []Grade{Bwrap, Landlock} {
		t.Run(string(grade), func(t *testing.T) {
			grades(t, m, grade)
			tries := []string{"ioctl:0x5412", "ioctl:0x541c", "ioctl:0x100005412", "write:/dev/console", "write:/dev/tty", "write:/dev/tty1", "list:/dev/pts", "write:/dev/ptmx", "write:/proc/sysrq-trigger"}
			got, _ := said(t, openBox(t, m, config(t, grade, tries...)))
			for _, try := range tries {
				if !strings.HasPrefix(got[try], "refused: ") {
					t.Errorf("%s: %q", try, got[try])
				}
				if strings.HasPrefix(try, "ioctl:") && !strings.HasSuffix(got[try], "operation not permitted") {
					t.Errorf("%s: %q", try, got[try])
				}
			}
		})
	}
}

// TestProc tries to write to /proc, as root and as nobody: no file opens for it but those of the
// sandbox's own processes. What container engines hide of it nobody reads.
func TestProc(t *testing.T) {
	asNobody(t)
	m := machine(t)
	bwrapped(t, m)
	c := config(t, Bwrap, "writable:/proc", "read:/proc/sys/kernel/ostype", "list:/proc/sys/net/ipv4/conf")
	hides := map[string]string{} // and what is said of it
	for _, name := range maskedProc {
		switch info, err := os.Lstat("/proc/" + name); {
		case err != nil: // this kernel has none
		case info.IsDir():
			hides["list:/proc/"+name] = ""
		default:
			hides["read:/proc/"+name] = "refused: open /proc/" + name + ": permission denied"
		}
	}
	for try := range hides {
		c.Command = append(c.Command, try)
	}
	got, _ := said(t, openBox(t, m, c))
	tried := 0
	if n, err := fmt.Sscanf(got["writable:/proc"], "of %d:", &tried); n != 1 || tried < 100 || got["writable:/proc"] != fmt.Sprintf("of %d:", tried) {
		t.Errorf("%d, %v: %.1000s", tried, err, got["writable:/proc"])
	}
	for try, want := range hides {
		if got[try] != want {
			t.Errorf("%s: %q, want %q", try, got[try], want)
		}
	}
	// It reads what it could before, and the network is the sandbox's.
	if got["read:/proc/sys/kernel/ostype"] != `"Linux\n"` || got["list:/proc/sys/net/ipv4/conf"] != "all default lo" {
		t.Errorf("%q, %q", got["read:/proc/sys/kernel/ostype"], got["list:/proc/sys/net/ipv4/conf"])
	}
}

// TestV36 ends servers that do not want to end: all of them are gone in time, and nothing is
// left of them.
func TestV36(t *testing.T) {
	asNobody(t)
	m := machine(t)
	for _, grade := range []Grade{Bwrap, Landlock, None} {
		t.Run(string(grade), func(t *testing.T) {
			grades(t, m, grade)
			s := openBox(t, m, config(t, grade, "daemon:stay"))
			stay := startIn(t, s)
			if _, err := stay.Stdout().Read(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			s.config.Command = []string{probe(t), "echo"}
			other := startIn(t, s)
			all := descendants(s.cmd.Process.Pid)
			// 1. It ignores SIGTERM, and what it left behind holds its stdout.
			const timeout = 500 * time.Millisecond
			began := time.Now()
			exit := stay.Stop(timeout)
			if took := time.Since(began); exit != (Exit{Code: -1, Signal: "killed"}) || took > timeout+time.Second {
				t.Errorf("%+v after %v", exit, took)
			}
			if _, err := io.ReadAll(stay.Stdout()); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > timeout+time.Second {
				t.Errorf("stdout ended after %v", took)
			}
			// 2. One that ends by itself, and leaves something behind.
			s.config.Command = []string{probe(t), "daemon:"}
			left := startIn(t, s)
			if exit := left.Wait(); exit != (Exit{}) {
				t.Errorf("exit %+v", exit)
			}
			if out, err := io.ReadAll(left.Stdout()); err != nil || !strings.Contains(string(out), "left behind") {
				t.Errorf("%q %v", out, err)
			}
			// 3. What was started beside is untouched.
			go func() { _, _ = other.Stdin().Write([]byte("x\n")) }()
			if _, err := io.ReadFull(other.Stdout(), make([]byte, 2)); err != nil {
				t.Errorf("the other process: %v", err)
			}
			helper := 1
			if grade == Bwrap {
				helper = 2 // and bubblewrap
			}
			deadline := time.Now().Add(5 * time.Second)
			for now := descendants(s.cmd.Process.Pid); len(now) != helper+1; now = descendants(s.cmd.Process.Pid) {
				if time.Now().After(deadline) {
					t.Fatalf("%d processes are left: %v", len(now), now)
				}
				time.Sleep(time.Millisecond)
			}
			s.Close()
			gone(t, all)
			if exit := other.Wait(); exit.Code != -1 {
				t.Errorf("exit %+v", exit)
			}
		})
	}
}

// TestManagerKilled kills what opened sandboxes: nothing is left of them.
func TestManagerKilled(t *testing.T) {
	const variable = "WEIR_TEST_MANAGER"
	if os.Getenv(variable) == "1" {
		m := NewMachine(os.Getenv("WEIR_TEST_CACHE"))
		for _, grade := range strings.Split(os.Getenv("WEIR_TEST_GRADES"), ",") {
			c := config(t, Grade(grade), "daemon:stay")
			s, err := m.Open(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			p, err := s.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Stdout().Read(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Println("ready")
		select {}
	}
	m := machine(t)
	grades(t, m, Bwrap)
	grades(t, m, Landlock)
	probe(t)
	cmd := exec.Command("/proc/self/exe", "-test.run", "^TestManagerKilled$", "-test.count=1")
	// What it makes is in a directory of this test: it is killed, and removes nothing.
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), variable+"=1", dirVariable+"="+filepath.Dir(filepath.Dir(probe(t))), "WEIR_TEST_CACHE="+m.cache, "WEIR_TEST_GRADES=bwrap,landlock,none")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	n, err := out.Read(b)
	if err != nil || string(b[:n]) != "ready\n" {
		t.Fatalf("%q %v", b[:n], err)
	}
	all := descendants(cmd.Process.Pid)
	if len(all) < 4 {
		t.Fatalf("%d processes: %v", len(all), all)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	_ = cmd.Wait()
	gone(t, all)
	t.Logf("%d processes are gone after %v", len(all)-1, time.Since(killed))
}
