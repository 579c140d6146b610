// Package compile turns objects into a plan and a report. It is pure: it opens
// no connection and no file but those that the set has a reader for, and the
// same objects always give the same plan.
package compile

import (
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/audit"
	"github.com/weir-edge/weir/filters/authz"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/filters/incoming"
	"github.com/weir-edge/weir/filters/ratelimit"
	"github.com/weir-edge/weir/filters/telemetry"
	"github.com/weir-edge/weir/filters/webhook"
	"github.com/weir-edge/weir/scripting/workflow"
)

// Plan is what an edge is to serve, with every default filled in and every
// reference resolved. A plan is immutable.
type Plan struct {
	Servers []Server // sorted by name

	// Doors are the addresses of their own of servers, sorted by name. What none of them
	// leads to is served at the door of the process.
	Doors []Door

	// Secrets are the values of the set's Secret documents, by name and key.
	Secrets map[string]map[string]edge.Secret

	// Needs are the secrets without which the servers cannot be opened, in the
	// order of the objects. They may be in the documents or elsewhere.
	Needs []Need
}

// Door is an address at which clients come in, with paths of its own: each of its servers is
// at /servers/NAME/mcp, and the main one at /mcp, too.
type Door struct {
	Name        string   // no other door's
	Listen      string   // HOST:PORT; of a name all addresses that it stands for
	Hosts       []string // allowed values of Host, besides those of a loopback address
	Origins     []string // allowed values of Origin, besides those of a loopback address
	Proxies     []string // networks of proxies whose word on a client's address is believed
	ExternalURL string   // where clients see it; "" for where it listens
	Servers     []string // by name; no other door leads to one of them
	Main        string   // one of them; "" for none
}

// Need is a field that refers to a secret.
type Need struct {
	Index  int    // of the object in the set; -1 for what is none of it
	Object Ref    // that has the field
	Origin string // of the object; empty when it has none
	Path   string // of the field
	Name   string // of the secret
	Key    string // of the value in it
}

// String says where the field is.
func (n Need) String() string {
	if n.Origin == "" {
		return n.Object.String() + ": " + n.Path
	}
	return n.Origin + ": " + n.Object.String() + ": " + n.Path
}

// Server is one virtual MCP server.
type Server struct {
	Name      string               // the object's metadata.name
	Title     string               // what clients see as serverInfo.name: spec.config.name, else Name
	Group     string               // the name of the group; empty for none
	Metadata  map[string]string    // spec.config.metadata; nil for none
	Backends  []Backend            // in the order that the objects give
	Names     *catalog.Rules       // how what the backends offer becomes one offer
	Bare      bool                 // the one backend is served as it is
	Forward   []string             // names of client headers that backends receive, as written
	Incoming  *incoming.Spec       // how clients are authenticated; nil for not at all
	Authz     *authz.Spec          // what clients may do; nil for everything
	Point     *authz.PointSpec     // who is asked that, in place of Authz; nil for nobody
	Filters   []guest.Spec         // programs that messages pass, in their order
	Failure   Failure              // when a backend counts as failed, and what follows
	Store     *Store               // where sessions are kept and calls counted; nil for the memory of the process
	Limits    *ratelimit.Spec      // how often tools may be called; nil for any number of times
	CodeMode  *CodeMode            // what scripts of clients may do; nil for no scripts
	Optimizer *Optimizer           // how clients find tools; nil where they are listed
	Workflows []*workflow.Workflow // tools of many calls, in the order of the manifest
	Composed  []Place              // where each of them stands
	Webhooks  *webhook.Spec        // whom messages are shown first; nil for nobody

	Audit     *audit.Spec     // what of its exchanges is written down; nil for nothing
	Telemetry *telemetry.Spec // what of them is measured and traced; nil for nothing
	Debug     bool            // the process log tells of each exchange

	SessionTTL time.Duration    // how long a session may go unused; 0 for what the process says
	Stateless  bool             // POST alone, and no session ids
	Prefix     string           // put before the path that clients of the older transport POST to
	Forwarded  bool             // X-Forwarded-Proto, -Host, -Port and -Prefix shape the URLs that clients are told
	Older      bool             // the address that is told is that of the older transport
	AuthServer *authserver.Spec // its authorization server; nil for none
	Roots      string           // file of certificates in PEM that its own requests trust besides those of the system; "" for none
	Conditions []Condition      // of its object, and of those that it refers to, whose names their messages begin with
}

// Decides reports whether somebody is asked what clients may do.
func (s *Server) Decides() bool { return s.Authz != nil || s.Point != nil }

// Place is a section of an object.
type Place struct {
	Object Ref
	Path   string // such as spec.config.compositeTools[0]
}

// CodeMode says what a script of a client may do.
type CodeMode struct {
	Parallel int           // calls at once
	Steps    int64         // in all
	PerCall  time.Duration // for one call
}

// Optimizer says how clients find tools.
type Optimizer struct {
	Ratio   float64     // of the score that is for vectors, from 0 to 1
	Most    int         // tools of one answer
	Far     float64     // distance beyond which a tool is not found by its vector, from 0 to 2
	Service *Embeddings // where vectors come from; nil for keywords alone
}

// Embeddings is an embedding service.
type Embeddings struct {
	Provider v1beta1.EmbeddingProvider
	Address  string            // base URL, without a slash at its end
	Model    string            // of compat; else ""
	Headers  map[string]string // nil for none
	Timeout  time.Duration     // of a request
}

// Store is a store that replicas of an edge share.
type Store struct {
	Address   string               // as the object says it; it holds no secret
	At        v1beta1.StoreAddress // what that means
	DB        int
	KeyPrefix string
	Password  *SecretKey // nil for the one that the process was given, if any
}

// Options are those that reach the store, without passwords.
func (s *Store) Options() kv.Options {
	o := kv.Options{
		Addresses: s.At.Hosts, Master: s.At.Master, User: s.At.User, TLS: s.At.TLS,
		DB: s.DB, KeyPrefix: s.KeyPrefix,
	}
	switch s.At.Layout {
	case v1beta1.StoreCluster:
		o.Mode = kv.Cluster
	case v1beta1.StoreSentinel:
		o.Mode = kv.Sentinel
	}
	return o
}

// SecretKey names a value of a secret.
type SecretKey struct{ Name, Key string }

// Failure says when a backend counts as failed and what follows.
type Failure struct {
	Interval   time.Duration // between health checks
	Timeout    time.Duration // of a health check
	Threshold  int           // consecutive failures that make a backend unavailable
	BestEffort bool          // lists show what there is when backends are missing
	Report     time.Duration // between two reports of the status
	Breaker    *Breaker      // nil for none
}

// Breaker says when calls to a failing backend stop for a while.
type Breaker struct {
	Threshold int           // failures that open it
	Timeout   time.Duration // how long it stays open before a trial
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
	URL          string    // http or https; "" with a Workload that speaks stdio
	Workload     *Workload // the process starts it; nil for none
	Transport    Transport
	CABundle     string              // PEM text; empty for none
	CABundlePath string              // file of PEM text, read when the plan is opened; empty for none
	Private      bool                // may be on a private address
	Timeout      time.Duration       // silence after which a call is given up
	Patient      bool                // a client's call may be silent for as long as any call may take
	Metadata     map[string]string   // the user's own, and group when there is one; nil for none
	Outgoing     *outgoing.Spec      // what it is sent besides calls, such as a credential; nil for nothing
	Login        *v1beta1.RemoteAuth // a user's login that it is sent, too; nil for none
}
