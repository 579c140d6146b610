package backend

import (
	"context"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
)

// Local is a server that is reached by streams of lines in place of a URL: processes of
// this machine, or one behind a socket. Whoever keeps it starts and ends them; the
// backend speaks MCP with them. It is safe for concurrent use.
type Local interface {
	// Open gives a stream to the server for a holder, and starts a process for it where
	// it needs one. Errors are an *edge.Error: of kind Overload where there may be no
	// further one, of kind Unavailable where it cannot be started, or not yet.
	Open(context.Context, *edge.Holder) (edge.Stream, error)

	// Introduction is how long a server may take from its start until it has said what
	// it speaks.
	Introduction() time.Duration

	// Remembered returns what the server turned out to speak before, also in another
	// life of the edge, and false when nobody knows. Remember keeps that.
	Remembered() (era mcp.Era, ok bool)
	Remember(era mcp.Era)

	// Well returns nil while the server can be called, and else why not. It starts
	// nothing.
	Well() error

	// Close ends all processes, and returns when they have ended.
	Close() error
}
