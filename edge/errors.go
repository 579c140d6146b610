package edge

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Kind is what went wrong, as far as the answer to the client depends on it.
// failure.go has the one table from kinds to answers.
type Kind uint8

// The kinds of error.
const (
	Internal         Kind = iota
	Malformed             // not JSON
	Invalid               // JSON, but no message of this protocol
	Params                // a message whose params cannot be right
	NotFound              // a tool, prompt or resource that is not there
	NoMethod              // a method that nobody here serves
	NoSession             // a session that is unknown or has ended
	Mismatch              // header and body disagree
	Capability            // a client capability that the call needs
	Version               // a revision that the edge does not speak
	Forbidden             // an Origin or Host that is not allowed
	TooLarge              // a body above the limit
	MediaType             // a body that is not JSON
	NotAcceptable         // a stream for a client that takes none
	MethodNotAllowed      // an HTTP method that the endpoint does not have
	Overload              // no room for more
	Unavailable           // a backend that is down or talks nonsense
	Timeout               // a backend that kept silent
	Gone                  // the client left
	Unauthenticated       // no credential, or one that does not hold
	Denied                // a policy says no, or cannot say
	Limited               // a rate limit is reached
	NoServer              // a server that is not there, or not at this path
)

// Known reports whether k is one of the kinds.
func (k Kind) Known() bool { return k <= NoServer }

// Error is an error with a kind. Its text may reach a client: it names things,
// never secrets.
type Error struct {
	Kind      Kind
	Op        string        // what was being done; not shown to clients
	After     time.Duration // when to try again; 0 when unknown
	Challenge string        // WWW-Authenticate of an answer that asks for a (better) credential; "" for none
	Data      []byte        // JSON text for the data member of a JSON-RPC error; nil for none
	Err       error
}

func (e *Error) Error() string {
	if e.Op == "" {
		return e.Err.Error()
	}
	return e.Op + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ScopeError says that a token lacks scopes. Whoever finds it out, in whatever
// filter, returns it inside an Error of kind Denied; the incoming filter
// adds the challenge that tells the client what to ask for (RFC 6750 §3.1).
type ScopeError struct {
	Scopes    []string // all that the operation needs, not only those that lack
	Elsewhere bool     // a backend says so of its own credential: the client's login may not be able to give them
}

func (e *ScopeError) Error() string { return "the access token lacks a scope that this needs" }

// Errorf returns an error of a kind; format is that of fmt.Errorf.
func Errorf(kind Kind, op, format string, args ...any) *Error {
	return &Error{Kind: kind, Op: op, Err: fmt.Errorf(format, args...)}
}

// KindOf returns the kind of an error, Internal for one that has none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// Contain, when deferred, ends a panic of a goroutine that no exchange waits
// for, so that one fault costs one piece of work and not the process.
func Contain(log *slog.Logger, what string) {
	if r := recover(); r != nil {
		log.Error("panic", "in", what, "panic", r, "stack", string(debug.Stack()))
	}
}

// Withdrawn is why a question ends that the server which asked it wants no answer to any
// longer. What it says of the reason is empty where it says nothing.
type Withdrawn struct{ Reason string }

func (*Withdrawn) Error() string { return "the server has withdrawn its question" }

// ErrUnpaid is what an error unwraps to that says of a request that was let
// through as Paid that it goes on with no call: it is charged then.
var ErrUnpaid = errors.New("the request goes on with no call")

// Printable bounds what is repeated of somebody's own words. They stand in quotes where they
// are cut, or hold anything that does not print.
func Printable(s string) string {
	const most = 128
	if len(s) > most {
		return strconv.Quote(s[:most]) + "…"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}
