//go:build linux

// Command probe tries from inside a sandbox what a sandbox is to refuse. Each argument is one
// try, KIND:WHAT, and makes one line, KIND:WHAT = RESULT. A result is what the kernel said,
// or what could be done.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tries are the kinds. A try returns what could be done, or why it could not.
var tries = map[string]func(what string) (string, error){
	"tcp":       func(what string) (string, error) { return dial("tcp", what) },
	"udp":       func(what string) (string, error) { return dial("udp", what) },
	"unix":      func(what string) (string, error) { return dial("unix", what) },
	"resolve":   resolve,
	"dns":       dns,
	"proxy":     proxy,
	"connect":   func(what string) (string, error) { return proxy(connectTo(what)) },
	"tls":       handshake,
	"say":       say,
	"flood":     flood,
	"socket":    socket,
	"pair":      pair,
	"call":      call,
	"child":     child,
	"clone":     func(what string) (string, error) { return "made", clone(what) },
	"int80":     func(what string) (string, error) { return "returned", enter(what, int80) },
	"x32":       func(what string) (string, error) { return "returned", enter(what, x32) },
	"read":      read,
	"write":     write,
	"list":      list,
	"chmod":     func(what string) (string, error) { return "changed", change(what, 8, unix.Chmod) },
	"chgrp":     func(what string) (string, error) { return "changed", change(what, 10, chgrp) },
	"xattr":     func(path string) (string, error) { return "changed", unix.Setxattr(path, "user.probe", nil, 0) },
	"writable":  writable,
	"signals":   signals,
	"signal":    signalThreads,
	"prlimit":   prlimit,
	"ptrace":    func(what string) (string, error) { return "attached", unix.PtraceSeize(number(what)) },
	"ioctl":     ioctl,
	"env":       func(string) (string, error) { return strings.Join(os.Environ(), "|"), nil },
	"status":    status,
	"files":     files,
	"memory":    memory,
	"memfd":     memfd,
	"bomb":      func(string) (string, error) { bomb(); return "", nil },
	"processes": func(what string) (string, error) { return processes(number(what)) },
	"daemon":    daemon,
	"hold":      hold,
	"echo":      func(string) (string, error) { return "end", echo(os.Stdin, os.Stdout) },
	"listen":    listen,
	"wait": func(what string) (string, error) {
		time.Sleep(time.Duration(number(what)) * time.Millisecond)
		return "", nil
	},
	"exit":  func(what string) (string, error) { os.Exit(number(what)); return "", nil },
	"pid":   func(string) (string, error) { return strconv.Itoa(os.Getpid()), nil },
	"print": func(what string) (string, error) { _, err := os.Stderr.WriteString(what + "\n"); return what, err },
}

func main() {
	for _, arg := range os.Args[1:] {
		kind, what, _ := strings.Cut(arg, ":")
		try := tries[kind]
		if try == nil {
			fmt.Fprintln(os.Stderr, "probe: no such try:", arg)
			os.Exit(2)
		}
		result, err := try(what)
		if err != nil {
			result = "refused: " + err.Error()
		}
		fmt.Printf("%s = %s\n", arg, result)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(2)
	}
	return n
}

// dial connects. A datagram is sent, and its answer awaited.
func dial(network, address string) (string, error) {
	c, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if network != "udp" {
		return "reached", nil
	}
	_, err1 := c.Write([]byte("x"))
	err2 := c.SetReadDeadline(time.Now().Add(2 * time.Second))
	_, err3 := c.Read(make([]byte, 16))
	return "reached", errors.Join(err1, err2, err3)
}

func resolve(name string) (string, error) {
	all, err := net.LookupHost(name)
	return strings.Join(all, " "), err
}

// socket makes a socket: FAMILY,TYPE,PROTOCOL.
func socket(what string) (string, error) {
	var family, kind, protocol int
	if _, err := fmt.Sscanf(what, "%d,%d,%d", &family, &kind, &protocol); err != nil {
		return "", err
	}
	fd, err := unix.Socket(family, kind, protocol)
	if err != nil {
		return "", err
	}
	return "made", unix.Close(fd)
}

// pair makes a socket pair: TYPE, or TYPE,PATH to send a datagram to a path by it.
func pair(what string) (string, error) {
	kind, path, send := strings.Cut(what, ",")
	fds, err := unix.Socketpair(unix.AF_UNIX, number(kind), 0)
	if err != nil {
		return "", err
	}
	if send {
		if err := unix.Sendto(fds[0], []byte("x"), 0, &unix.SockaddrUnix{Name: path}); err != nil {
			return "", err
		}
		return "sent", nil
	}
	return "made", nil
}

// call makes a system call without arguments.
func call(what string) (string, error) {
	if _, _, e := unix.Syscall6(uintptr(number(what)), 0, 0, 0, 0, 0, 0); e != 0 {
		return "", e
	}
	return "done", nil
}

// child makes a try in a process of its own, and says how that ended.
func child(what string) (string, error) {
	out, err := exec.Command("/proc/self/exe", what).CombinedOutput()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.Sys().(syscall.WaitStatus).Signaled() {
		return "killed by " + ended.Sys().(syscall.WaitStatus).Signal().String(), nil
	}
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(out)), nil
}

func enter(what string, f func(nr uintptr) uintptr) error {
	if n := int(f(uintptr(number(what)))); n < 0 && n > -4096 {
		return syscall.Errno(-n)
	}
	return nil
}

func read(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 4096)
	n, err := f.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strconv.Quote(string(b[:n])), nil
}

// write writes bytes into a file: PATH, or PATH,BYTES.
func write(what string) (string, error) {
	path, size, _ := strings.Cut(what, ",")
	n := 1
	if size != "" {
		n = number(size)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, min(n, 1<<20))
	for wrote := 0; wrote < n; wrote += len(b) {
		if _, err := f.Write(b); err != nil {
			return "", fmt.Errorf("after %d bytes: %w", wrote, err)
		}
	}
	return "wrote", nil
}

// change sets a number of a file's: PATH,NUMBER.
func change(what string, base int, set func(path string, to uint32) error) error {
	path, text, _ := strings.Cut(what, ",")
	n, err := strconv.ParseUint(text, base, 32)
	return errors.Join(err, set(path, uint32(n)))
}

func chgrp(path string, gid uint32) error { return unix.Chown(path, -1, int(gid)) }

func list(path string) (string, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " "), nil
}

// writable opens every file below a directory to be written to, but those of processes, and says
// how many there are and which it could open.
func writable(dir string) (string, error) {
	tried := 0
	var opened []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch _, none := strconv.Atoi(filepath.Base(path)); {
		case err != nil || e.Type()&fs.ModeSymlink != 0: // nobody can look into it, or it is looked at elsewhere
		case e.IsDir() && none == nil && filepath.Dir(path) == "/proc":
			return fs.SkipDir
		case !e.IsDir():
			tried++
			if fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0); err == nil {
				opened = append(opened, path)
				_ = unix.Close(fd)
			}
		}
		return nil
	})
	return fmt.Sprintf("of %d: %s", tried, strings.Join(opened, " ")), err
}

// signals sends every signal to a process, in every way, and says which ways the kernel took.
func signals(what string) (string, error) {
	pid := number(what)
	var took []string
	for n := 1; n <= 64; n++ {
		info := [128]byte{}
		info[0], info[8] = byte(n), 0xff // si_signo; si_code -1: SI_QUEUE
		for i := range 3 {
			info[9+i] = 0xff
		}
		if unix.Kill(pid, syscall.Signal(n)) == nil {
			took = append(took, fmt.Sprintf("kill %d", n))
		}
		if unix.Tgkill(pid, pid, syscall.Signal(n)) == nil {
			took = append(took, fmt.Sprintf("tgkill %d", n))
		}
		if _, _, e := unix.Syscall(unix.SYS_TKILL, uintptr(pid), uintptr(n), 0); e == 0 {
			took = append(took, fmt.Sprintf("tkill %d", n))
		}
		if queue(pid, n, &info) == nil {
			took = append(took, fmt.Sprintf("sigqueue %d", n))
		}
	}
	if len(took) > 0 {
		return strings.Join(took, ", "), nil
	}
	return "", syscall.EPERM
}

// signalThreads sends every signal to every thread of a process and by a descriptor of it,
// and then says whether it is there.
func signalThreads(what string) (string, error) {
	pid := number(what)
	threads, err := os.ReadDir("/proc/" + what + "/task")
	if err != nil {
		return "", err
	}
	fd, fdErr := unix.PidfdOpen(pid, 0)
	for n := 1; n <= 64; n++ {
		for _, t := range threads {
			_, _, _ = unix.Syscall(unix.SYS_TKILL, uintptr(number(t.Name())), uintptr(n), 0)
		}
		if fdErr == nil {
			_ = unix.PidfdSendSignal(fd, syscall.Signal(n), nil, 0)
		}
	}
	time.Sleep(100 * time.Millisecond)
	_, err = os.Stat("/proc/" + what)
	return "lives", err
}

func prlimit(what string) (string, error) {
	l := unix.Rlimit{}
	return "set", unix.Prlimit(number(what), unix.RLIMIT_CPU, &l, nil)
}

// ioctl makes one on a terminal of its own, or on stdin: REQUEST, as the kernel has it.
func ioctl(what string) (string, error) {
	request, err := strconv.ParseUint(what, 0, 64)
	if err != nil {
		return "", err
	}
	b := [16]byte{'x'}
	return "done", ioctlPointer(0, uintptr(request), &b)
}

// status is what the kernel holds of this process.
func status(string) (string, error) {
	text, err := os.ReadFile("/proc/self/status")
	var out []string
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Uid":
			out = append(out, name+"="+strings.Join(strings.Fields(value), ","))
		}
	}
	return strings.Join(out, " "), err
}

// files opens as many files as it is told.
func files(what string) (string, error) {
	for n := range number(what) {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
			return "", fmt.Errorf("after %d: %w", n, err)
		}
	}
	return "all", nil
}

// memory takes bytes, and keeps them.
func memory(what string) (string, error) {
	for n := 0; n < number(what); n += 1 << 20 {
		b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return "", err
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}
	time.Sleep(time.Hour)
	return "", nil
}

// memfd takes bytes in files that have no name and that it does not map, and keeps them.
func memfd(what string) (string, error) {
	for n := 0; n < number(what); n += 16 << 20 {
		fd, err := unix.MemfdCreate("probe", 0)
		if err != nil {
			return "", err
		}
		for range 16 {
			if _, err := unix.Write(fd, make([]byte, 1<<20)); err != nil {
				return "", err
			}
		}
	}
	time.Sleep(20 * time.Second) // more than a look takes
	return "", nil
}

// processes starts as many as it is told, which wait.
func processes(n int) (string, error) {
	for i := range n {
		if err := exec.Command("/proc/self/exe", "wait:60000").Start(); err != nil {
			return "", fmt.Errorf("after %d: %w", i, err)
		}
	}
	return "all", nil
}

// daemon leaves a process behind that has left its group and its session, keeps stdout, and
// ignores that it is to end; then it ends, or with "stay" waits for what it ignores, too.
func daemon(what string) (string, error) {
	cmd := exec.Command("/proc/self/exe", "hold:again")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		return "", err
	}
	if what == "stay" {
		fmt.Println("daemon:stay = ready")
		return hold("")
	}
	return "left behind", nil
}

// hold ignores that it is to end. With "again" another process does, which is nobody's child.
func hold(what string) (string, error) {
	if what == "again" {
		cmd := exec.Command("/proc/self/exe", "hold:")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return "", cmd.Start()
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	time.Sleep(time.Hour)
	return "", nil
}

// echo answers each line with itself, until stdin ends.
func echo(r io.Reader, w io.Writer) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
}

// listen serves echo on a port of loopback, and says so when it listens: ADDRESS:PORT.
func listen(address string) (string, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	fmt.Printf("listen:%s = ready\n", address)
	for {
		c, err := ln.Accept()
		if err != nil {
			return "", err
		}
		go func() {
			defer c.Close()
			_ = echo(c, c) // the other end says what is wrong
		}()
	}
}
