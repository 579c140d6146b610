package sandbox

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Sizes of what is in memory inside, in bytes.
const (
	tempSize = 64 << 20
	runSize  = 16 << 20
)

// insideHelper is where the helper is seen inside.
const insideHelper = "/run/weir-inside"

// devices are those that a sandbox has.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// maskedProc is what container engines, too, hide of /proc: it tells of this machine and its users.
var maskedProc = []string{"acpi", "asound", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "timer_list", "timer_stats"}

// insideName is the name of the host inside.
const insideName = "sandbox"

// namesInside has the C library find names in files first: one that finds no such file may ask the
// network for "localhost". That of this machine may name what needs sockets of it.
const namesInside = "passwd: files\ngroup: files\nhosts: files dns\n"

// bwrapCommand has bubblewrap make the sandbox and run the helper in it as its first
// process, in a mode, with a link where it is given one. The files of the command are the
// caller's to close.
func bwrapCommand(bwrap, helper string, c *Config, v *view, mode string, link ...any) (*exec.Cmd, error) {
	cmd := exec.Command(bwrap)
	cmd.Env = helperEnvironment
	cmd.Dir = "/"
	inside := []string{insideHelper, mode}
	for _, one := range link {
		switch one := one.(type) {
		case string:
			inside = append(inside, one)
		case *os.File:
			cmd.ExtraFiles = append(cmd.ExtraFiles, one) // descriptor 3, and 4
		}
	}
	a := bwrapArgs{cmd: cmd}
	a.namespaces(c)
	a.system(v)
	a.add("--ro-bind", helper, insideHelper)
	a.data("/etc/passwd", passwd(c.Home))
	hosts, resolver := "127.0.0.1 localhost "+insideName+"\n::1 localhost\n", "nameserver 127.0.0.1\noptions attempts:1 timeout:2\n"
	if c.Network == Host { // whose names are found as this machine finds them
		hosts, resolver = textOf("/etc/hosts", hosts)+"\n127.0.0.1 "+insideName+"\n", textOf("/etc/resolv.conf", resolver)
	}
	a.data("/etc/hosts", hosts)
	a.data("/etc/resolv.conf", resolver)
	a.data("/etc/nsswitch.conf", namesInside)
	a.own(c, v)
	a.add("--remount-ro", "/", "--chdir", "/")
	if a.err != nil {
		closeFiles(a.made)
		return nil, a.err
	}
	// By a descriptor: 10,000 paths would not fit in a command line.
	n := a.file("args", strings.Join(a.args, "\x00")+"\x00")
	if a.err != nil {
		closeFiles(a.made)
		return nil, a.err
	}
	cmd.Args = append([]string{"bwrap", "--args", strconv.Itoa(n), "--"}, inside...)
	return cmd, nil
}

// bwrapArgs are the arguments of bubblewrap, and the files that they name.
type bwrapArgs struct {
	cmd  *exec.Cmd
	args []string
	made []*os.File
	err  error
}

func (a *bwrapArgs) add(args ...string) { a.args = append(a.args, args...) }

func (a *bwrapArgs) namespaces(c *Config) {
	a.add("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
	if c.Network != Host {
		a.add("--unshare-net")
	}
	a.add("--hostname", insideName, "--new-session", "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL")
	if c.Network == Profile { // for the ports of hosts; the helper drops it before a server starts
		a.add("--cap-add", "CAP_NET_BIND_SERVICE")
	}
}

// system is what every sandbox sees of the system.
func (a *bwrapArgs) system(v *view) {
	for _, e := range v.system {
		if e.link != "" {
			a.add("--symlink", e.link, e.path)
		} else {
			a.add("--ro-bind", e.path, e.path)
		}
	}
	a.proc()
	a.memory("/dev", "0755", 1<<16)
	for _, d := range devices {
		a.add("--dev-bind", d, d)
	}
	a.memory("/dev/shm", "1777", tempSize)
	a.add("--remount-ro", "/dev")
	a.memory("/tmp", "1777", tempSize)
	a.memory("/run", "0755", runSize)
	for _, path := range v.hidden {
		a.hide(path)
	}
}

// proc is /proc. What is the machine's there, and somebody may write to, is read-only: without any
// capability a server of root's is its owner. What is of the namespaces of who reads it, as sysctls of
// the network are, is so there, too.
func (a *bwrapArgs) proc() {
	a.add("--proc", "/proc")
	entries, err := os.ReadDir("/proc")
	if err != nil {
		a.err = err
	}
	for _, e := range entries {
		path := "/proc/" + e.Name()
		if _, err := strconv.Atoi(e.Name()); err == nil || e.Name() == "sysvipc" {
			continue // that names processes, and nobody may write to it
		}
		switch info, err := e.Info(); {
		case err != nil: // it has gone
		case slices.Contains(maskedProc, e.Name()):
			a.hide(path)
		case info.IsDir() || info.Mode().IsRegular() && info.Mode()&0o222 != 0:
			a.add("--ro-bind-try", path, path)
		}
	}
}

// own is what this sandbox sees beside: the program, HOME, and mounts, what is hidden of them
// and memory, the outer ones first: what lies over a directory leaves what was asked for in it.
func (a *bwrapArgs) own(c *Config, v *view) {
	for _, path := range v.prefixes {
		a.add("--ro-bind", path, path)
	}
	a.bind(v.home, c.Home, true)
	type layer struct {
		inside string
		show   func()
	}
	var all []layer
	for _, m := range v.mounts {
		all = append(all, layer{m.Inside, func() { a.bind(m.file, m.Inside, m.Writable) }})
	}
	var closed []string
	for _, o := range v.overlays {
		switch {
		case slices.ContainsFunc(c.Writable, func(path string) bool { return below(o.Inside, path) && !v.mountsIn(path, o.Inside) }):
			// What is to be hidden is not seen there.
		case o.Dir:
			closed = append(closed, o.Inside)
			all = append(all, layer{o.Inside, func() { a.memory(o.Inside, "0555", 1<<12) }})
		default:
			all = append(all, layer{o.Inside, func() { a.add("--ro-bind", v.empty, o.Inside) }})
		}
	}
	for _, path := range c.Writable {
		all = append(all, layer{path, func() { a.memory(path, "0755", tempSize) }})
	}
	slices.SortStableFunc(all, func(a, b layer) int { return strings.Count(a.inside, "/") - strings.Count(b.inside, "/") })
	for _, one := range all {
		one.show()
	}
	for _, path := range closed {
		a.add("--remount-ro", path)
	}
}

// memory makes a directory in memory, of a size in bytes.
func (a *bwrapArgs) memory(path, perms string, size int) {
	a.add("--perms", perms, "--size", strconv.Itoa(size), "--tmpfs", path)
}

// hide has a directory be empty, and a file one that nobody opens: a device, where there are none.
func (a *bwrapArgs) hide(path string) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
	case info.IsDir():
		a.memory(path, "0700", 1<<12)
		a.add("--remount-ro", path)
	case info.Mode().IsRegular():
		a.add("--ro-bind", "/dev/null", path)
	}
}

// bind shows an open directory or file.
func (a *bwrapArgs) bind(f *os.File, inside string, writable bool) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		a.err = err
		return
	}
	option := "--ro-bind-fd"
	if writable {
		option = "--bind-fd"
	}
	a.add(option, strconv.Itoa(a.pass(os.NewFile(uintptr(fd), f.Name()))), inside)
}

// data makes a file with a text.
func (a *bwrapArgs) data(path, text string) {
	a.add("--ro-bind-data", strconv.Itoa(a.file(path, text)), path)
}

// file passes a text as a descriptor.
func (a *bwrapArgs) file(name, text string) int {
	fd, err := unix.MemfdCreate("weir", unix.MFD_CLOEXEC)
	if err != nil {
		a.err = fmt.Errorf("%s: %w", name, err)
		return 0
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.WriteString(text)
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		a.err = fmt.Errorf("%s: %w", name, err)
	}
	return a.pass(f)
}

// pass passes a file on, and returns the number that it has there.
func (a *bwrapArgs) pass(f *os.File) int {
	a.made = append(a.made, f)
	a.cmd.ExtraFiles = append(a.cmd.ExtraFiles, f)
	return 2 + len(a.cmd.ExtraFiles)
}

// maxNames bounds a file of names that is shown, in bytes.
const maxNames = 1 << 20

// textOf is what a file of this machine says, or else otherwise.
func textOf(path, otherwise string) string {
	f, err := os.Open(path)
	if err != nil {
		return otherwise
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxNames))
	if err != nil {
		return otherwise
	}
	return string(text)
}

// passwd names the user, by no other name than "weir".
func passwd(home string) string {
	home = strings.Map(func(r rune) rune {
		if r == ':' || r < ' ' {
			return '_'
		}
		return r
	}, home)
	lines := []string{fmt.Sprintf("weir:x:%d:%d:weir:%s:/bin/sh", os.Geteuid(), os.Getegid(), home)}
	if os.Geteuid() != 65534 {
		lines = append(lines, "nobody:x:65534:65534:nobody:/:/bin/false")
	}
	return strings.Join(slices.Concat(lines, []string{""}), "\n")
}
