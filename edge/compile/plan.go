// Package compile turns objects into a plan and a report. It is pure: it opens
// no file, no connection, and the same objects always give the same plan.
package compile

import "time"

// Plan is what an edge is to serve, with every default filled in and every
// reference resolved. A plan is immutable.
type Plan struct {
	Servers []Server // sorted by name
}

// Server is one virtual MCP server.
type Server struct {
	Name     string            // the object's metadata.name
	Title    string            // what clients see as serverInfo.name: spec.config.name, else Name
	Group    string            // the name of the group; empty for none
	Metadata map[string]string // spec.config.metadata; nil for none
	Backends []Backend         // in the order that the objects give
}

// Transport is how a backend is spoken to.
type Transport string

// The transports of spec.config.backends[].transport.
const (
	StreamableHTTP Transport = "streamable-http"
	SSE            Transport = "sse"
)

// Backend is one MCP server behind the edge.
type Backend struct {
	Name         string
	URL          string // http or https
	Transport    Transport
	CABundle     string            // PEM text; empty for none
	CABundlePath string            // file of PEM text, read when the plan is opened; empty for none
	Timeout      time.Duration     // silence after which a call is given up
	Metadata     map[string]string // the user's own, and group when there is one; nil for none
}
