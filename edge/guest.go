package edge

import "context"

// Guest is what the programs among the filters of a server want to be asked: a
// function for each phase in the life of a message. One that no program wants to
// be asked in is nil, and costs a comparison. All are safe for concurrent use.
type Guest struct {
	// Filter stands in the hallway before authorization: it asks about calls,
	// about other messages, and about their answers. nil for none.
	Filter Filter

	// Overrides is asked about what backends offer; nil for none.
	Overrides Overrides

	// HTTPRequest is asked about a request before anybody knows who sends it, and
	// says what becomes of its header lines. A result, JSON text of an object,
	// answers the request in place of the edge. nil for nobody.
	HTTPRequest func(context.Context, *HTTP) (lines Lines, result []byte, err error)

	// HTTPResponse is asked about an answer before its head is sent, and says what
	// becomes of its header lines. nil for nobody.
	HTTPResponse func(context.Context, *HTTP) (Lines, error)

	// Authenticate says who sends what comes from an address, with header lines that
	// nothing else knows a credential in: nil without an error for a sender that no program
	// knows either. nil for nobody.
	Authenticate func(ctx context.Context, remote string, heard []Header) (*Identity, error)

	// MapIdentity makes of who a token is for who that is here. nil for nobody.
	MapIdentity func(context.Context, *Identity) (*Identity, error)

	// Upstream returns the header lines that a message goes to its backend with:
	// those of x.Forward, changed; and the credential, nil for the configured one.
	// nil for no change.
	Upstream func(ctx context.Context, x *Exchange, backend string) ([]Header, *Credential, error)

	// SessionStart may refuse a session, SessionEnd hears of its end. nil for
	// nobody.
	SessionStart func(ctx context.Context, x *Exchange, s *Session) error
	SessionEnd   func(s *Session)

	// Beginners names the programs of SessionStart: another program, module or
	// configuration has another name. "" for nobody.
	Beginners string

	// Event takes a record of what happened, JSON text that it does not keep. It
	// does not wait. nil for nobody.
	Event func(record []byte)

	// Headers are the names, in small letters, of the header lines of clients
	// that programs want to see in Exchange.Heard.
	Headers []string
}

// HTTP is a request of a client, or the answer to one, as programs are asked about it:
// without the message that it carries.
type HTTP struct {
	Method string   // POST, GET or DELETE
	Path   string   // without the query
	Remote string   // address of the client, without the port
	Heard  []Header // lines of the request that programs want to see, as in Exchange.Heard
	Status int      // of the answer; 0 before there is one

	// Attributes are what programs say of the principal as to this request, those
	// included that HTTPRequest is told of.
	Attributes Attributes
}

// Lines are what becomes of header lines. Those of Set stand in place of all that
// had their names, which are known in any spelling that may be taken for the same;
// those of a name in Drop go. No name is in both.
type Lines struct {
	Set  []Header
	Drop []string
}

// Overrides are what programs make of the things that backends offer. They are
// safe for concurrent use.
type Overrides interface {
	// Varies reports whether things may look different to different clients.
	Varies() bool

	// Key tells clients apart to whom things may look different.
	Key(*Identity) string

	// Override returns what becomes of the items of a list, in their order, and
	// nil when nothing does. Items are JSON text that is not changed. Clients of
	// equal keys get the same. The error is for whoever asked.
	Override(ctx context.Context, id *Identity, backend string, thing Thing, items [][]byte) ([]Override, error)
}

// Override is what becomes of an item.
type Override struct {
	Item  []byte // its JSON text, under the name that the backend gave it
	Name  string // that it gets before conflicts are resolved; "" for its own
	Hide  bool   // clients do not see it
	Fixed []Fixed
}

// Fixed is an argument of a tool that clients neither see nor choose.
type Fixed struct {
	Pointer []string // the reference tokens of a JSON pointer (RFC 6901 §4)
	Value   []byte   // JSON text; nil for an argument that is never sent
}
