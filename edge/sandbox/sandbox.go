// Package sandbox runs local processes with less than their user may do: a file view of
// their own, no way out over the network, few system calls, and limits. It opens sandboxes,
// one for each principal of a workload, and starts servers in them by way of the helper
// (cmd/weir-inside), which is the first process in each.
//
// What a grade holds, and what it does not, is in README.md.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Grade is how much a sandbox holds.
type Grade string

// The grades, from the best one on.
const (
	Auto     Grade = ""         // the best that this system has
	Bwrap    Grade = "bwrap"    // namespaces by bubblewrap
	Landlock Grade = "landlock" // Landlock and a filter of system calls
	None     Grade = "none"     // nothing
)

// ParseGrade reads what --sandbox says.
func ParseGrade(text string) (Grade, error) {
	switch text {
	case "", "auto":
		return Auto, nil
	case "bwrap", "landlock":
		return Grade(text), nil
	case "off", "none":
		return None, nil
	}
	return "", fmt.Errorf("sandbox %q: one of auto, bwrap, landlock, off", text)
}

// Network is what processes reach beyond themselves.
type Network uint8

// The networks.
const (
	Closed  Network = iota // nothing: the profile lets nothing out
	Profile                // what Config.Outlet lets out, which bwrap alone holds
	Host                   // all that this machine reaches: isolation is off
)

// Mount shows a directory or a file of this machine inside.
type Mount struct {
	Host     string // absolute, after links have been resolved at Open
	Inside   string // absolute; "" for the same path
	Writable bool
}

// Config is what a sandbox is to be. A zero value takes its default.
type Config struct {
	Name    string // of the workload, for errors
	Grade   Grade  // that was asked for
	Network Network

	// Outlet carries what the network Profile lets out; required with it.
	Outlet Outlet

	opened bool // the grade cannot hold what the profile says of the network, which is the host's
	judged bool // nothing is opened: see Judge

	// Isolate says that isolation was asked for by name: a grade that cannot hold it is
	// an error, and not a note.
	Isolate bool

	Command  []string // the server: a program, by a path or as PATH finds it, and its arguments
	Dir      string   // its working directory inside; Home
	Home     string   // a directory of this machine's that is its HOME, and writable; required, absolute
	Mounts   []Mount
	Writable []string // paths inside that are empty, writable and in memory (64 MiB each); bwrap alone

	// AllowUnsafe are mounts, as Mount.Host has them, that were asked for although they
	// are refused else.
	AllowUnsafe []string

	// Protected are Weir's own directories and sockets, which are never mounted unasked.
	Protected []string

	// Ignore is a file of the user's ignore patterns: what they name in mounted directories is
	// hidden, and what these name themselves (see Overlays); "" for no such file.
	Ignore string

	// Transport is what the server is told to speak ("stdio", "streamable-http", "sse"), and
	// Port where it listens on its loopback; 0 for a server on its standard streams. AnyPort
	// says that it listens where it is told to: where its loopback is the machine's, a free
	// port takes the place of Port (Sandbox.Port).
	Transport string
	Port      int
	AnyPort   bool

	// Published are more ports of its loopback at which the server listens: they are left to it,
	// and what it wants to reach at such a port of others goes by way of the proxy alone.
	Published []int

	Memory    int64   // bytes of all processes together; 1 GiB, negative for no limit
	Processes int     // processes and threads together; 256, negative for no limit
	Files     int     // open files of one process; 4,096, negative for no limit of its own
	CPUs      float64 // processors; 0 for no limit. Held by cgroups alone: see Sandbox.Note

	// Opened is called with each sandbox that was opened; nil for nobody.
	Opened func(*Sandbox)

	// Environment returns NAME=VALUE lines of the user's, secrets among them, which are
	// put after those of the sandbox. It is called at each start; nil for none.
	Environment func(ctx context.Context) ([]string, error)
}

const (
	defaultMemory    = 1 << 30
	defaultProcesses = 256
	defaultFiles     = 4096
)

func (c Config) withDefaults() Config {
	if c.Memory == 0 {
		c.Memory = defaultMemory
	}
	if c.Processes == 0 {
		c.Processes = defaultProcesses
	}
	if c.Files == 0 {
		c.Files = defaultFiles
	}
	if c.Dir == "" {
		c.Dir = c.Home
	}
	return c
}

// check says what is wrong with a Config before anything starts.
func (c *Config) check() error {
	switch {
	case len(c.Command) == 0 || c.Command[0] == "":
		return fmt.Errorf("sandbox of %s: no command", c.Name)
	case !strings.HasPrefix(c.Home, "/") && onUnix:
		return fmt.Errorf("sandbox of %s: home %q: must be absolute", c.Name, c.Home)
	case c.Network == Profile && c.Outlet == nil:
		return fmt.Errorf("sandbox of %s: nothing carries what its profile lets out", c.Name)
	}
	for _, word := range append([]string{c.Dir, c.Home}, c.Command...) {
		if strings.ContainsRune(word, 0) {
			return fmt.Errorf("sandbox of %s: the command has a NUL byte", c.Name)
		}
	}
	return nil
}

// Outlet is where connections go out of sandboxes whose network is a profile's: edge/egress.
type Outlet interface {
	// Ports are those on which programs that ignore proxies are listened to.
	Ports() []int

	// Open opens the passage of one sandbox.
	Open() Passage
}

// Passage is where those of one sandbox go.
type Passage interface {
	// Serve serves a connection that a server made to an address of its loopback, which is
	// the connection's local one, and closes it.
	Serve(c net.Conn)

	// Answer answers a query of DNS; nil for what has no answer. It waits for nothing.
	Answer(query []byte) []byte

	// Close ends all connections.
	Close()
}

// Ports of a sandbox's loopback that the way out takes: the answerer of DNS and the proxy.
const (
	dnsPort   = 53
	proxyPort = 3128
)

// avoid keeps the port of a server from those that the way out takes.
func (c *Config) avoid() error {
	taken := append([]int{dnsPort, proxyPort}, c.Outlet.Ports()...)
	for c.Port > 0 && slices.Contains(taken, c.Port) {
		if !c.AnyPort {
			return fmt.Errorf("sandbox of %s: port %d is one that its profile lets out, and the server cannot listen there: name another", c.Name, c.Port)
		}
		if c.Port++; c.Port > 65535 {
			c.Port = 1024
		}
	}
	return nil
}

// place looks whether the port of a server that shares the loopback of this machine is free,
// and chooses one where it may.
func (c *Config) place() (err error) {
	if c.Port == 0 {
		return nil
	}
	if c.AnyPort {
		c.Port = 0
	}
	c.Port, err = FreePort(c.Name, c.Port)
	return err
}

// FreePort looks whether a port of this machine's loopback is free for a server of a workload,
// and chooses one for 0: behind a port that somebody else has, that one would be taken for the
// server.
func FreePort(name string, port int) (int, error) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil && host == "::1" && !errors.Is(err, syscall.EADDRINUSE) {
			continue // there is no IPv6
		}
		if err != nil {
			return 0, &PortError{name, port, err}
		}
		port = l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
	}
	return port, nil
}

// PortError says that a port of this machine cannot be had for a server that shares it.
type PortError struct {
	Name  string // of the workload
	Port  int
	Cause error
}

func (e *PortError) Error() string {
	return fmt.Sprintf("sandbox of %s: port %d of this machine cannot be had, and the server shares it (%v): name another", e.Name, e.Port, e.Cause)
}

// Unwrap returns the cause.
func (e *PortError) Unwrap() error { return e.Cause }

// GradeError says that a grade, or isolation, was asked for and cannot be had here.
type GradeError struct {
	Name  string // of the workload
	Want  string // what was asked for
	Cause string // why it cannot be had
	Next  string // what to do
}

func (e *GradeError) Error() string {
	return fmt.Sprintf("sandbox of %s: %s: %s: %s", e.Name, e.Want, e.Cause, e.Next)
}

// MountError says that a mount is refused.
type MountError struct {
	Path string // as it was given
	Why  string
	Next string
}

func (e *MountError) Error() string { return fmt.Sprintf("mount %s: %s: %s", e.Path, e.Why, e.Next) }

// HelperError says that the helper is not there, or cannot be started.
type HelperError struct{ Cause string }

func (e *HelperError) Error() string { return e.Cause }

// Exit is how a process ended. Its fields are those of edge/stdio's.
type Exit struct {
	Code   int    // that it exited with; -1 where it did not
	Signal string // that ended it, such as "killed"; "" for none
	Reason string // why it was ended: "memory", "processes"; "" where nobody but itself did
}

// The reasons of an Exit.
const (
	ReasonMemory    = "memory"
	ReasonProcesses = "processes"
)

// The end of a process, by Process.Stop: stdin is closed, SIGTERM follows after this long.
const afterStdin = 2 * time.Second

// Open reports whether the network of the sandbox is open though it was to be a profile's,
// which the grade cannot hold.
func (s *Sandbox) Open() bool { return s.config.opened }
