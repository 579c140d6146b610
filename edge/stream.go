package edge

import "github.com/weir-edge/weir/edge/mcp"

// Stream is the way to an MCP server that speaks in lines, over its standard streams or
// a socket (2025-11-25, basic/transports, stdio), in place of HTTP. One is for one
// holder. It is safe for concurrent use.
type Stream interface {
	// Send sends one message, JSON text with the edits made, and returns at once: what
	// the server does not take yet waits in a bounded queue. It keeps neither raw nor
	// edits. Errors are an *Error: of kind Overload where there is no room, of kind
	// TooLarge for a message above the limit, of kind Unavailable when the server has
	// ended. Nothing of the message was written then.
	Send(raw []byte, edits []mcp.Edit) error

	// Close lets go of the server, which ends where nobody else has it.
	Close() error
}

// Holder is whom a stream to a server is opened for. Its functions are called by the
// goroutine that reads what the server says, one after the other.
type Holder struct {
	Principal string // Identity.Principal; "" for whom nothing tells apart, and for the edge itself
	Own       bool   // the edge asks for itself: what it opens ends soon when it rests
	Session   bool   // for one session of a legacy client, and not for a pool

	// Hear takes a message of the server. The bytes are its own to keep, the Message is
	// not. A client that does not read may hold it up, and with it the server.
	Hear func(*mcp.Message)

	// Ended is told that nothing more comes, once, with the reason that calls under way
	// fail with. It is not called after Close has returned.
	Ended func(error)

	// Busy reports whether somebody has a call under way or listens. It may be called
	// from any goroutine, and must not wait.
	Busy func() bool
}
