package stdio

import (
	"context"
	"fmt"
	"io"
)

// Process is a running server: its streams, and its end. A sandbox has such, a plain
// child of this process, or a connection to a socket. The bridge closes the streams.
type Process interface {
	// Stdin takes what is written to the server. One that is a syscall.Conn in
	// non-blocking mode, as *os.File for a pipe and *net.UnixConn are, is written without
	// a goroutine in between.
	Stdin() io.WriteCloser

	Stdout() io.ReadCloser
	Stderr() io.ReadCloser // nil for none

	// Wait returns how the server ended, once it has. It may be called once.
	Wait() Exit

	// Terminate asks the server and all that it started to end (SIGTERM to its process
	// group). Kill ends all of it, also what left the group where the sandbox can
	// (SIGKILL to its namespace). Both may be called at any time, also after the end of
	// the server for the sake of what it left behind, and by several goroutines.
	Terminate()
	Kill()
}

// Exit is how a server ended.
type Exit struct {
	Code   int    // that it exited with; -1 where it did not
	Signal string // that ended it, such as "killed"; "" for none
	Reason string // why it was ended, such as "memory"; "" where nobody but itself did
}

// String says it in a few words, such as "exit 1".
func (e Exit) String() string {
	switch {
	case e.Reason != "":
		return e.Reason
	case e.Signal != "":
		return "signal " + e.Signal
	case e.Code < 0:
		return "the connection closed"
	}
	return fmt.Sprintf("exit %d", e.Code)
}

// Starter starts the server once more: a sandbox of the principal's, or a child of this
// process. The environment, the secrets among it, is looked up at each start. ctx bounds
// the start alone, not the life of the process.
type Starter interface {
	Start(ctx context.Context, principal string) (Process, error)
}
