package edge

import (
	"errors"

	"github.com/weir-edge/weir/edge/mcp"
)

// Stream is the way to an MCP server that speaks in lines, over its standard streams or
// a socket (2025-11-25, basic/transports, stdio), in place of HTTP. One is for one
// owner. It is safe for concurrent use.
type Stream interface {
	// Send sends one message, JSON text with the edits made, and returns at once: what
	// the server does not take yet waits in a bounded queue. It keeps neither raw nor
	// edits. Errors are an *Error: of kind Overload where there is no room, of kind
	// TooLarge for a message above the limit, of kind Unavailable when the server has
	// ended. Nothing of the message was written then.
	Send(raw []byte, edits []mcp.Edit) error

	// Listen sends a subscriptions/listen, as Send does. Where the server has a subscription
	// already that has what is wished for, it is acknowledged without another, perhaps before
	// Listen returns: Owner.Hear is called then whoever else calls it.
	Listen(raw []byte, edits []mcp.Edit) error

	// Unlisten ends the subscription of an id, JSON text. why is for the server.
	Unlisten(id []byte, why string)

	// Close lets go of the server, which ends where nobody else has it.
	Close() error
}

// NewsID is the id, JSON text, of the edge's own subscriptions/listen on a stream: it asks for
// the changes of lists, and the ids of all other requests are numbers. Where one process has
// several streams the edge is told once.
const NewsID = `"weir-news"`

// Owner is whom a stream to a server is opened for. Hear, Failed and Ended are called
// one after the other, in the order of what the server says.
type Owner struct {
	Principal string // Identity.Principal; "" for whom nothing tells apart, and for the edge itself
	Session   bool   // for one session of a legacy client, and not for a pool
	Trial     bool   // to find out what the server speaks: that it ends says nothing against it

	// Hear takes a message of the server. Its bytes are the owner's to keep and to
	// change, the Message itself is not. A client that does not read may hold it up, and
	// with it the server.
	Hear func(*mcp.Message)

	// Failed is told that the server answered the request of an id with what is no
	// answer: it was too long, or no message.
	Failed func(id []byte, why error)

	// Ended is told that nothing more comes, once, with the error of the calls that are
	// under way: an *Error whose cause is an *Ended. It is not called where the stream was
	// closed before.
	Ended func(error)

	// Use returns what the stream is used for now. It may be called from any goroutine, and
	// must not wait for anything.
	Use func() Use
}

// Use is what a stream is used for at a moment.
type Use struct {
	Calls   int  // under way
	Listens bool // somebody hears what belongs to no call
	Own     bool // only the edge itself has used it: it ends soon when it rests, and makes room for others
}

// Ended is the cause of an error that says that a server's process is over. Clients may
// read it.
type Ended struct{ How string } // such as "exit 1"

func (e *Ended) Error() string { return "ended: " + e.How }

// ErrRests says of a server that it has ended in order, and that the next call starts it.
var ErrRests = errors.New("it rests until it is called")

// ErrSeveralLines is the cause of an error that says that a server which speaks lines wrote an
// answer over several of them. Clients may read it.
var ErrSeveralLines = errors.New("answered in several lines: a message has to be one line")

// ErrUnreadable is the cause of an error that says that a backend's answer is no JSON, or none that
// everybody reads alike: the log says why. Clients may read it.
var ErrUnreadable = errors.New("gave an answer that cannot be read")
