// Package edge is the floor plan of Weir: the few types that every room of it
// shares. Read this file first, then filters/filters.go, serve/handle.go and
// route/forward.go.
//
// A message comes in at the door, walks the hallway of filters in a fixed
// order, is told where to go, and leaves by the back door to an MCP server.
// The answer walks back the same way.
package edge

import (
	"context"
	"crypto/sha256"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// Exchange is one message from a client on its way to an answer. One goroutine
// owns it at a time.
type Exchange struct {
	Parent   *Exchange    // the message that this call is made for; nil for the client's own
	Passed   bool         // made in the place of Parent: its answer is the client's
	Server   string       // name of the virtual server that it came to
	Era      mcp.Era      // of the client, decided for each message
	Request  *mcp.Message // scanned once; a filter may replace it, never change it
	Asked    *mcp.Message // what a program was given that has replaced the message; nil where none has
	Head     Head         // what the HTTP request said besides
	Session  *Session     // nil for a stateless exchange
	Identity *Identity    // who sent it, as the door found out; nil where nobody asks
	Target   *Target      // where it goes: resolved before the hallway, and again when a filter replaces the message
	Name     string       // the tool, prompt, resource or task that a modern request names
	View     View         // on lists: what of them the client may see; nil for everything
	Forward  []Header     // header lines of the client that backends receive
	Heard    []Header     // header lines of the client that programs want to see, by names in small letters
	Ready    *Response    // an answer that a program has at hand: who may ask gets it in place of a backend's; nil for none
	Client   Client       // the way back before the answer
	Chosen   *Credential  // that goes to its backend in place of the configured one, as a program chose; nil for the configured one
	Batch    int          // how many messages came in one body with it, itself included; 0 for one alone
	Record   string       // the id of its audit record, which those of the calls that are made for it name; "" where it has none yet
	Decision any          // what the policies said of it, for the record; nil for nothing, or where nobody keeps records

	// Info is what the client of a call that the edge answers itself says of itself in that
	// call: JSON text, of its own memory, for the calls that are made for it and may go on
	// when it was answered. Empty for nothing; nil for other exchanges.
	Info []byte

	// Matched is how many steps of matching URIs against templates the message has taken.
	Matched int

	// Attributes are what programs say of the principal as to this message alone.
	// Identity and Head have more.
	Attributes Attributes

	// Notes are what filters write beside the message, for its record.
	Notes []Note

	// Capabilities is JSON text of what the client behind a modern call to a
	// legacy backend can be asked; nil for nothing.
	Capabilities []byte

	// Parked ends the call that waits for what its answer asks the client; nil for
	// none. It is called when a filter refuses that answer.
	Parked func()

	answer   Response
	answered bool

	room   *room // for a call that is made for this exchange; nil before the first
	roomed int32 // 1 when it is taken; atomic, and not of package atomic, so that tests may copy exchanges
}

// room is a call that is made for another one.
type room struct {
	Exchange
	message mcp.Message
	text    []byte
}

// maxRoom bounds the text that is kept for the next call, in bytes.
const maxRoom = 16 << 10

// Replace returns the exchange of a call that is made in place of x: x's own message with
// edits. It is the caller's to fill beside its message and Parent. The error is that of
// mcp.Decode.
func (x *Exchange) Replace(edits ...mcp.Edit) (*Exchange, error) {
	call, err := x.Inner(func(dst []byte) []byte { return mcp.Splice(dst, x.Request.Raw, edits...) })
	if err == nil {
		call.Passed = true
	}
	return call, err
}

// Inner returns the exchange of a call that is made for x, with the message that write appends
// to what it is given. It is the caller's to fill beside that and Parent. It must not be in use
// any more when x is answered: the first lives as long as x does, and is used again with it, so
// that such a call allocates nothing of its own. Safe for concurrent use. The error is that of
// mcp.Decode.
func (x *Exchange) Inner(write func(dst []byte) []byte) (*Exchange, error) {
	var r *room
	switch {
	case !atomic.CompareAndSwapInt32(&x.roomed, 0, 1):
		r = new(room)
	case x.room == nil:
		x.room = new(room)
		fallthrough
	default:
		r = x.room
	}
	r.text = write(r.text[:0])
	if err := r.message.Decode(r.text); err != nil {
		return nil, err
	}
	r.Parent, r.Passed, r.Request = x, false, &r.message
	return &r.Exchange, nil
}

// Answer returns a Response to fill. An exchange has room for one, so that a
// call allocates none.
func (x *Exchange) Answer() *Response {
	if x.answered {
		return new(Response)
	}
	x.answered = true
	return &x.answer
}

// Replaced puts what a program makes of the message in the place of it.
func (x *Exchange) Replaced(m *mcp.Message) {
	if x.Asked == nil {
		x.Asked = x.Request
	}
	x.Request = m
}

// Reset makes the exchange ready for another message.
func (x *Exchange) Reset() {
	x.Parent, x.Server, x.Era, x.Request, x.Head, x.Session = nil, "", mcp.Legacy, nil, Head{}, nil
	x.Identity, x.Target, x.View, x.Forward, x.Client, x.Capabilities = nil, nil, nil, nil, nil, nil
	x.Name, x.Heard, x.Ready, x.Decision, x.Chosen, x.Batch, x.Attributes, x.Notes, x.Parked = "", nil, nil, nil, nil, 0, nil, nil, nil
	x.Record, x.Info, x.Matched, x.Asked = "", nil, 0, nil
	x.answer.Forget()
	x.answer.Status, x.answer.Shared, x.answered = 0, nil, false
	if atomic.SwapInt32(&x.roomed, 0) == 1 {
		x.room.Reset()
		x.room.message.Forget()
		if cap(x.room.text) > maxRoom {
			x.room.text = nil
		}
	}
}

// Identity is who sends an exchange. It is made once and never changed, and
// may be shared by all exchanges of one credential.
type Identity struct {
	Issuer  string         // who vouches for it: iss of a token; LocalIssuer and AnonymousIssuer for ours
	Subject string         // who it is to the issuer
	Name    string         // for people; "" when unknown
	Email   string         // "" when unknown
	Claims  map[string]any // of the token, numbers as json.Number; nil for none
	Scopes  []string       // that the token grants
	Token   Secret         // as the client sent it; "" for none
	Expires time.Time      // zero for never

	// PolicyClaims are the claims of the upstream provider whose claims policies read, where the
	// server names one: as Claims, and nil for none. An identity with others is another one.
	PolicyClaims map[string]any `json:"-"`

	// Attributes are what programs say of it; nil for nothing.
	Attributes Attributes

	Digested TokenDigest `json:"-"` // of Token, where whoever made the identity has it at hand

	// Rights tells tokens of one principal that may have different rights apart: a digest of what
	// its token says, but for what a token of equal rights says otherwise. Zero for no token.
	Rights [16]byte `json:"-"`
}

// TokenDigest is the SHA-256 of a token. Its fields have names that others see, since
// values of a type that hides itself are printed in the clear where they are not.
type TokenDigest struct {
	Of  Secret
	Sum [sha256.Size]byte
}

// DigestToken returns the digest of a token.
func DigestToken(token Secret) TokenDigest { return TokenDigest{token, sha256.Sum256([]byte(token))} }

// String hides it: nobody reads anything in it.
func (TokenDigest) String() string { return "" }

// Digest returns the SHA-256 of its token.
func (id *Identity) Digest() [sha256.Size]byte {
	if id.Digested.Of != id.Token || id.Token == "" {
		return DigestToken(id.Token).Sum
	}
	return id.Digested.Sum
}

// Principal names an identity among all others: two identities are of the same
// principal when issuer and subject are equal. The principal of an anonymous one is "", be it
// nil or not: whether policies of its server ask who it is changes nothing of what is its own.
func (id *Identity) Principal() string {
	if id.Anonymous() {
		return ""
	}
	return id.Issuer + "\x00" + id.Subject
}

// AnonymousIssuer is the issuer of the identity of all clients whom nothing
// tells apart.
const AnonymousIssuer = "weir-anonymous"

// LocalIssuer is the issuer of the identity of a server's one user, where all of its clients
// are taken for that.
const LocalIssuer = "weir-local"

// UnverifiedIssuer is the issuer of the identity of a client whose token nobody has looked at
// but whoever it is exchanged at: each token is somebody of its own.
const UnverifiedIssuer = "weir-unverified"

// Anonymous reports whether nothing tells the identity from that of others, as
// where a server asks nobody who they are.
func (id *Identity) Anonymous() bool { return id == nil || id.Issuer == AnonymousIssuer }

// Target is where an exchange goes. It belongs to a catalog, is shared by many
// exchanges, and is never changed.
type Target struct {
	Backend  string // name of the backend; "" for what the edge answers itself
	Thing    Thing  // that the exchange names; NoThing for methods that name none
	Name     string // the advertised name, or the URI of a resource
	Original string // what the backend calls it

	// ReadOnly, Destructive, Idempotent and OpenWorld are the hints of a tool's
	// annotations; nil where it gives none.
	ReadOnly, Destructive, Idempotent, OpenWorld *bool

	Fixed []Fixed // arguments of a tool that are not the client's to choose

	// Unjudged says of a tool of the edge's own that whoever comes in may call it: what it
	// does for them is judged.
	Unjudged bool
}

// Thing is a kind of what servers offer.
type Thing uint8

// The kinds of things.
const (
	NoThing Thing = iota
	Tool
	Prompt
	Resource
	Template
)

// Item is one thing of a list: a target by another name.
type Item = Target

// View is what of a list a client may see. It is asked only where the list is
// not yet encoded for its key.
type View interface {
	Key() string // views with equal keys allow the same, as long as a plan lives
	Allows(*Item) bool
}

// Head is what of an HTTP request travels on. It shares no memory with the
// server that read it. What only records and traces tell of is there when a
// filter of the server keeps or makes some.
type Head struct {
	Params      []Header // Mcp-Param-*, of modern requests
	Remade      bool     // a filter changed the message: Params tell nothing of it any longer
	Remote      string   // address of the client, without the port; "unknown" where it is doubted
	Source      string   // the same for records, what X-Forwarded-For says where it is doubted; "" where no record is kept
	SSE         bool     // it came over the older transport, HTTP with SSE
	RequestID   string   // X-Request-Id, made by the edge when the client gave none; "" where no record is kept
	Agent       string   // User-Agent, its beginning; "" where no record is kept
	TraceParent string   // traceparent; "" for none, and where nothing is traced
	TraceState  string   // tracestate, likewise

	// Attributes are what programs say of the principal as to its session and to
	// this request.
	Attributes Attributes
}

// Header is one line of an HTTP header.
type Header struct{ Name, Value string }

// Client is the way back to a client while its call is under way. It is safe
// for concurrent use.
type Client interface {
	// Send passes on a notification: progress, a log message, a change. It
	// returns an error when the client is gone.
	Send(*mcp.Message) error

	// Ask puts a server's questions (elicitation, sampling, roots) to the
	// client and waits for all answers; keys are kept. An error of kind
	// NoMethod says that this client cannot be asked.
	Ask(context.Context, map[string]Question) (map[string]Answer, error)
}

// NoClient is the way back to nobody, for what is asked on no client's behalf:
// what it is told is dropped, and it answers no question. Those who hear of
// something but cannot be asked embed it.
type NoClient struct{}

// Send drops a notification.
func (NoClient) Send(*mcp.Message) error { return nil }

// Ask fails with an error of kind NoMethod.
func (NoClient) Ask(context.Context, map[string]Question) (map[string]Answer, error) {
	return nil, Errorf(NoMethod, "ask", "nobody is there to answer")
}

// Question is one request of a server to a client.
type Question struct {
	Method string
	Params []byte // JSON text; nil for none
	Key    string // the name that a modern client is to know it by, if none that waits has it; "" for any
	Sent   func() // is called when it has its place before whatever the client hears next; nil for nobody
}

// Answer is what the client said: one of the two.
type Answer struct {
	Result []byte // JSON text
	Error  []byte // JSON text of an error object
}

// Response is the answer to an exchange, in the era of its client and under
// the client's id. Status is the HTTP status that goes with it.
type Response struct {
	mcp.Message
	Status int

	// Shared is JSON text of a result that many answers share, such as a list.
	// The message then has an ID and Kind alone until Whole is called.
	Shared []byte
}

// The text around a shared result and its id.
const (
	sharedHead   = `{"jsonrpc":"2.0","id":`
	sharedMiddle = `,"result":`
)

// Share makes the response the answer to id with a result that it does not copy.
func (r *Response) Share(id, result []byte, status int) {
	r.Forget()
	r.Raw = append(append(append(make([]byte, 0, len(sharedHead)+len(id)+len(sharedMiddle)), sharedHead...), id...), sharedMiddle...)
	r.ID = mcp.Span{Start: uint32(len(sharedHead)), End: uint32(len(sharedHead) + len(id))}
	r.Kind, r.Status, r.Shared = mcp.Result, status, result
}

// Reply answers a request with a result, JSON text.
func Reply(m *mcp.Message, result []byte) (*Response, error) {
	return new(Response).reply(m, result)
}

// Reply is the function Reply to the exchange's own message, in the room that it has.
func (x *Exchange) Reply(result []byte) (*Response, error) {
	return x.Answer().reply(x.Request, result)
}

func (r *Response) reply(m *mcp.Message, result []byte) (*Response, error) {
	r.Status = 200
	if err := r.Decode(mcp.AppendResult(nil, m.IDText(), result)); err != nil {
		return nil, Errorf(Internal, "reply", "%w", err)
	}
	return r, nil
}

// Whole returns the text of the answer in one piece.
func (r *Response) Whole() []byte {
	if r.Shared != nil {
		id := r.IDText()
		r.SetResult(append([]byte(nil), id...), r.Shared)
		r.Shared = nil
	}
	return r.Raw
}

// Handler answers exchanges. A nil Response with a nil error answers what
// needs no answer, such as a notification.
type Handler interface {
	Handle(context.Context, *Exchange) (*Response, error)
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(context.Context, *Exchange) (*Response, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, x *Exchange) (*Response, error) { return f(ctx, x) }

// Filter puts something around a handler.
type Filter func(next Handler) Handler

// Session is what a legacy client set up with initialize. What rooms attach to
// it lives as long as the session does.
type Session struct {
	ID           string
	Owner        string   // principal whose session it is
	Version      string   // the revision agreed on
	Info         []byte   // JSON text of clientInfo; nil when it gave none
	Capabilities []byte   // JSON text
	Forward      []Header // header lines of its initialize that backends receive
	Several      bool     // several clients have it together, and none may hear what is another's

	attributes atomic.Pointer[sessionAttributes]

	who      atomic.Pointer[Identity]
	level    atomic.Pointer[string]
	mu       sync.Mutex
	attached []attached
	ended    bool
}

type attached struct {
	key   any
	value io.Closer
}

// Who returns who sent the last message of the session; nil for nobody yet, and where
// it was not noted.
func (s *Session) Who() *Identity { return s.who.Load() }

// Note notes who sends a message of the session. Its credential is the newest.
func (s *Session) Note(who *Identity) {
	if s.who.Load() != who { // nearly always it is the same
		s.who.Store(who)
	}
}

// LogLevel returns the level that the client asked for with logging/setLevel;
// "" when it did not.
func (s *Session) LogLevel() string {
	if p := s.level.Load(); p != nil {
		return *p
	}
	return ""
}

// SetLogLevel keeps the level of a logging/setLevel.
func (s *Session) SetLogLevel(level string) { s.level.Store(&level) }

// Attach returns what is attached to the session under key, which open makes
// when there is nothing yet. It returns nil when the session has ended.
func (s *Session) Attach(key any, open func() io.Closer) io.Closer {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.attached {
		if a.key == key {
			return a.value
		}
	}
	if s.ended {
		return nil
	}
	v := open()
	s.attached = append(s.attached, attached{key, v})
	return v
}

// Attached returns what is attached under key; nil for nothing.
func (s *Session) Attached(key any) io.Closer {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.attached {
		if a.key == key {
			return a.value
		}
	}
	return nil
}

// Detach takes off what Attach gave for key, without closing it, if it still
// is value.
func (s *Session) Detach(key any, value io.Closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range s.attached {
		if a.key == key && a.value == value {
			s.attached = append(s.attached[:i], s.attached[i+1:]...)
			return
		}
	}
}

// End closes what is attached. Further Attach calls return nil.
func (s *Session) End() {
	s.mu.Lock()
	all := s.attached
	s.attached, s.ended = nil, true
	s.mu.Unlock()
	for _, a := range all {
		a.value.Close()
	}
}
