// Package container runs MCP servers in containers, with the same helper as first process
// and over the same link as the sandboxes of edge/sandbox. It finds the container engine,
// makes containers with less than the engine would give them, and removes what is its own.
// What shapes a container is a Config, and never a label, or the configuration of an image.
//
// What a container holds is in README.md. It is the only package that knows the engine's
// client, github.com/moby/moby/client.
package container

import (
	"context"
	"fmt"
	"strings"

	"github.com/weir-edge/weir/edge/sandbox"
)

// Config is what a container is to be. A zero value takes its default.
type Config struct {
	Name  string   // of the workload
	Image string   // as somebody named it
	Args  []string // of the server, in place of the image's command; nil for that

	// RunAs is the user: "" for the image's unless that is root, "image" for the image's
	// also then, else UID or UID:GID.
	RunAs string

	// Network is "none" for no network but the loopback, "" for the engine's default one,
	// "host" for that of this machine, else the name of one of the engine's.
	Network string

	// Outlet is what the server is let out by, and its Network "none" then; nil where nothing
	// carries it.
	Outlet sandbox.Outlet

	Mounts      []sandbox.Mount
	Writable    []string // paths inside that are empty, writable and in memory (64 MiB each)
	AllowUnsafe []string // as in sandbox.Config
	Ignore      string   // as in sandbox.Config
	Volumes     []Volume // that the engine keeps for the workload

	// Privileged has the engine's privileged mode: the server has all capabilities and devices,
	// no filter of system calls, and is root where its image is.
	Privileged bool
	Protected  []string // as in sandbox.Config

	// Transport is what the server is told to speak, and Port where it listens on its
	// loopback; 0 for a server on its standard streams. AnyPort says that nobody asked for
	// Port: the one that the image exposes takes its place.
	Transport string
	Port      int
	AnyPort   bool

	Published []int // as in sandbox.Config

	Memory    int64   // bytes of all that runs in it, and of what it has written to memory; 1 GiB
	Processes int     // processes and threads together; 256
	Files     int     // open files of one process; 4,096
	CPUs      float64 // processors; 0 for no limit

	Labels map[string]string // of the container, besides its own

	// Sockets is a directory of this user's alone in which those of links are made;
	// required.
	Sockets string

	// Environment returns NAME=VALUE lines of the user's, secrets among them, which are put
	// after those of the image. It is called at each start; nil for none. The engine sees
	// none of them.
	Environment func(ctx context.Context) ([]string, error)

	// Opened is called with each container that was opened; nil for nobody.
	Opened func(*Box)
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
	return c
}

// The user that a server runs as whose image would have it be root.
const (
	nobodyElse = 65532
	ownHome    = "/home/weir" // in memory
)

// user is whom the server runs as, and whether that is another user than the image's.
func (c *Config) user(i *Image) (user string, changed bool) {
	switch {
	case c.RunAs == "image" || c.Privileged && c.RunAs == "":
		return i.User, false
	case c.RunAs != "":
		return c.RunAs, true
	case isRoot(i.User):
		return fmt.Sprintf("%d:%d", nobodyElse, nobodyElse), true
	}
	return i.User, false
}

// isRoot reports whether what an image says of its user is root, as far as its text tells.
func isRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	return name == "" || name == "root" || strings.Trim(name, "0") == ""
}

// command is what is run inside.
func (c *Config) command(i *Image) ([]string, error) {
	args := c.Args
	if len(args) == 0 {
		args = i.Command
	}
	command := append(append([]string{}, i.Entrypoint...), args...)
	if len(command) == 0 || command[0] == "" {
		return nil, fmt.Errorf("image %s has no command: name one after --", c.Image)
	}
	for _, word := range command {
		if strings.ContainsRune(word, 0) {
			return nil, fmt.Errorf("image %s: the command has a NUL byte", c.Image)
		}
	}
	return command, nil
}

// Error says that something was refused or cannot be had, and what to do.
type Error struct {
	Kind Kind
	What string
	Next string // what to do; "" where nothing is known
}

func (e *Error) Error() string {
	if e.Next == "" {
		return e.What
	}
	return e.What + ": " + e.Next
}

// Kind is what an Error is about.
type Kind uint8

// The kinds of errors.
const (
	NoEngine Kind = iota + 1 // no engine answers, or it cannot do what is needed
	NoImage                  // the engine has no such image
	NoPull                   // and it cannot be had from its registry
	Refused                  // by a rule
)
