//go:build !linux

package container

import (
	"context"
	"net"
	"runtime"

	"github.com/weir-edge/weir/edge/sandbox"
)

// Box is an open container. There are none on this system yet.
type Box struct {
	config  Config
	image   *Image
	changed bool
}

// Open fails: the helper of a container is reached by a socket of the engine's own kernel, and
// here engines run in a virtual machine.
func (m *Machine) Open(context.Context, Config) (*Box, error) {
	return nil, &Error{NoEngine, "containers on " + runtime.GOOS + " are not supported yet", "run the server as a process of this machine: weir run -- COMMAND"}
}

// Start is never called.
func (b *Box) Start(ctx context.Context) (*sandbox.Process, error) { panic("no container") }

// Command is never called.
func (b *Box) Command() []string { panic("no container") }

// Notes is never called.
func (b *Box) Notes() []string { panic("no container") }

// ID is never called.
func (b *Box) ID() string { panic("no container") }

// Port is never called.
func (b *Box) Port() int { panic("no container") }

// Dial is never called.
func (b *Box) Dial(context.Context, int) (net.Conn, error) { panic("no container") }

// Ended is never called.
func (b *Box) Ended() <-chan struct{} { panic("no container") }

// HasEnded is never called.
func (b *Box) HasEnded() bool { panic("no container") }

// Close is never called.
func (b *Box) Close() { panic("no container") }
