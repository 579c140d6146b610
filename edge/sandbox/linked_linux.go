package sandbox

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Linked is a sandbox that somebody else made, such as a container: the manager's end of the
// link with the helper in it. Its methods are safe for concurrent use.
type Linked struct{ session *session }

// Link takes up the link with the helper of a sandbox, and returns when that has greeted. It
// takes conn over. Until ctx ends it waits. out is what servers are let out by; nil for nothing.
func Link(ctx context.Context, conn *net.UnixConn, name string, out Outlet) (*Linked, error) {
	var passage Passage
	var ports []int
	if out != nil {
		passage, ports = openOutlet(out)
	}
	l := &Linked{newSession(conn, name, passage, ports, nil)}
	if err := l.session.greet(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// OutletSetup is what the helper is told of an outlet: the ports that it listens on. server are
// the ports at which the server listens itself, and which are left to it; 0 for none.
func OutletSetup(out Outlet, server ...int) (setup string) {
	ports := append(slices.Clone(out.Ports()), proxyPort) // without a port there is the proxy alone
	slices.Sort(ports)
	for _, port := range slices.Compact(ports) {
		if !slices.Contains(server, port) {
			setup += ",port=" + strconv.Itoa(port)
		}
	}
	return setup
}

// TakesPort says that an outlet cannot leave a port to a server: it is that of the proxy or of
// DNS.
func TakesPort(port int) bool { return port == proxyPort || port == dnsPort }

// openOutlet opens the passage of one sandbox, and says by which ports connections may come.
func openOutlet(out Outlet) (Passage, []int) {
	return out.Open(), append([]int{dnsPort, proxyPort}, out.Ports()...)
}

// UID is the user that the helper is inside.
func (l *Linked) UID() int { return l.session.uid }

// Explain has the ends of processes explained by f: why the kernel ended them, or "" for no
// reason of the sandbox's.
func (l *Linked) Explain(f func() string) {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	l.session.why = f
}

// Start starts a process: a program inside, by its path or as the PATH of env finds it, in a
// directory inside. ctx bounds the start alone.
func (l *Linked) Start(ctx context.Context, args, env []string, dir string) (*Process, error) {
	return l.session.start(ctx, args, env, dir)
}

// Dial connects to a port of the sandbox's loopback.
func (l *Linked) Dial(ctx context.Context, port int) (net.Conn, error) {
	return l.session.dial(ctx, port)
}

// Ended is closed when the link has ended, and with it all processes.
func (l *Linked) Ended() <-chan struct{} { return l.session.ended }

// Close ends the link, which the helper answers by ending everything inside.
func (l *Linked) Close() {
	l.session.close("")
	<-l.session.ended
}

// Mounts are mounts that were judged and are held open.
type Mounts struct{ all []opened }

// OpenMounts opens the mounts of a Config, and refuses with a MountError what must not be
// shown. What is opened is what is shown, whatever its path leads to later.
func OpenMounts(c *Config) (*Mounts, error) {
	m, unsafe := &Mounts{}, newUnsafe(c)
	inside := map[string]bool{}
	for _, mount := range c.Mounts {
		o, err := open(mount, unsafe)
		if err == nil && inside[o.Inside] {
			_ = o.file.Close()
			err = &MountError{mount.Host, o.Inside + " is mounted twice", "give one of the two"}
		}
		if err != nil {
			m.Close()
			return nil, err
		}
		inside[o.Inside] = true
		m.all = append(m.all, o)
	}
	for _, path := range c.Writable {
		err := checkInside(path)
		if err == nil && inside[path] {
			err = fmt.Errorf("%s is mounted twice", path)
		}
		if err != nil {
			m.Close()
			return nil, &MountError{path, err.Error(), "name another path"}
		}
		inside[path] = true
	}
	return m, nil
}

// Held is a mount that is held open, with what the kernel knows it by.
type Held struct {
	Mount        // Host is its path without links, as it was when it was opened
	Device, File uint64
}

// All are the mounts. Somebody else mounts them by their paths, which may lead elsewhere by
// then: whoever is inside compares.
func (m *Mounts) All() (all []Held, err error) {
	for _, o := range m.all {
		var stat unix.Stat_t
		h := Held{Mount: o.Mount}
		if h.Host, err = os.Readlink("/proc/self/fd/" + strconv.Itoa(int(o.file.Fd()))); err == nil {
			err = unix.Fstat(int(o.file.Fd()), &stat)
		}
		if err != nil {
			return nil, fmt.Errorf("mount %s: %w", o.Host, err)
		}
		h.Device, h.File = stat.Dev, stat.Ino
		all = append(all, h)
	}
	return all, nil
}

// Close closes what is held open.
func (m *Mounts) Close() {
	for _, o := range m.all {
		_ = o.file.Close()
	}
}
