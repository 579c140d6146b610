// Package stdio is the bridge to MCP servers that speak on their standard streams, one
// message a line (2025-11-25, basic/transports, stdio): it starts a process for whoever
// needs one, frames what goes in and comes out, and ends it. It is a transport of
// edge/backend, which speaks MCP with what it opens. To it a process is a pair of streams.
package stdio

import (
	"log/slog"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// Mode is who has a process.
type Mode uint8

// The modes.
const (
	// PerSession gives each session of a legacy client a process, and modern clients a
	// pool of each principal's. No process ever serves two principals.
	PerSession Mode = iota

	// Shared has one process for everybody.
	Shared
)

// Restart is what becomes of a server that ended by itself. What a legacy client's
// session had is never started again for it.
type Restart uint8

// The policies.
const (
	Restarted Restart = iota // started again when it is needed, after a rest
	Failures                 // likewise, but one over HTTP that ended with exit 0 waits for a call that needs it
	Never                    // stays ended
)

// Config is what a bridge is told. A zero value takes its default.
type Config struct {
	Name    string // of the backend, for errors and logs
	Digest  string // of everything that shapes the server; what it speaks is remembered by it
	Starter Starter
	Mode    Mode
	Restart Restart

	MaxProcesses int           // that may run at a time; 16
	Pool         int           // that one principal's modern clients may have; 4
	MaxMessage   int           // bytes of one message, either way; 16 MiB
	Introduction time.Duration // from a start until the server has said what it speaks; 30 s
	First        time.Duration // in place of Introduction until it has done so once, for a package runner (300 s); 0 for Introduction
	Idle         time.Duration // after which a process of the edge's own ends; 60 s
	Timeout      time.Duration // from the end of stdin until a server is killed; 10 s
	Stuck        time.Duration // for which a server may take nothing of what it is sent; 30 s

	// Newline says that a stream may begin in the middle of what somebody else wrote:
	// each is begun with a newline. So it is behind a socket.
	Newline bool

	// Remembered and Remember keep what a server speaks beyond this process, by Digest;
	// nil for nobody.
	Remembered func(digest string) (mcp.Era, bool)
	Remember   func(digest string, era mcp.Era)

	// Secrets returns the values that are masked in what a process prints. It is asked when one
	// has started, since a secret may be another one by then; nil for none.
	Secrets func() [][]byte

	Lines   func(Line)   // takes what the server prints and the events of its processes, in order; nil for nobody
	Changed func(Status) // told of each change of State; must return soon; nil for nobody
	Log     *slog.Logger
}

// Line is one line for the log of a server.
type Line struct {
	At     time.Time
	Source string // "stderr", "stdout" for what is no message, or "weir" for events
	Text   string // at most 16 KiB, cleaned of secrets; as the server printed it else
}

// State is how a server is, as far as its processes tell.
type State string

// The states (a part of those of a workload).
const (
	Starting  State = "starting" // nothing of it has introduced itself yet
	Running   State = "running"
	Unhealthy State = "unhealthy" // restarting, or three probes in a row without an answer
	Failed    State = "error"     // it ends again and again
	Stopped   State = "stopped"
)

// Status is what is known of a server at a moment.
type Status struct {
	State     State
	Reason    string    // why it is not running; "" where it is
	Processes int       // that run now
	Restarts  int64     // starts after an end that was a failure
	Ended     string    // how the last process ended; "" for none yet
	Said      []string  // the last lines of stderr of that one, ten at most
	Dropped   int64     // messages that nobody took in time
	Since     time.Time // of State
}
