package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/weir-edge/weir/edge"
)

// Outcome is the verdict on a backend at the end of an exchange.
type Outcome uint8

// The outcomes of an exchange.
const (
	Neutral Outcome = iota // nothing: the client left, or the backend was never reached
	Success                // it is alive
	Failure                // it is at fault
)

// Judge returns the outcome for the breaker of an exchange that ended with an error.
//
// Nil is a Success, whatever the answer says: the error result of a tool and a
// JSON-RPC error come from a backend that lives. An HTTP status below 500 (a
// method HTTPStatus() int in the chain of the error) is a Success, too: clients can
// cause 401, 403, 429 and others by the messages they send, and one client must not
// be able to close the backend to all. Statuses from 500 on and errors of the kinds
// Unavailable, Timeout and Internal (failed connections, silence, malformed answers)
// are a Failure. A client that left (kind Gone, or a cancelled context) and refusals
// by the edge itself (every other kind) are Neutral.
//
// It reads the whole chain of the error, so it needs the original error and not the
// one made for a client.
func Judge(err error) Outcome {
	if err == nil {
		return Success
	}
	return examine(err).outcome
}

// finding is all that an error says of a backend.
type finding struct {
	outcome  Outcome // for the breaker
	bad      bool    // for the status: a failed check
	refused  bool    // with 401 or 403
	category Category
	message  string // with text of the backend only for the first words of a refusal, in quotes
}

// status returns the status of a backend after enough failures of this category.
func (f finding) status() Status {
	if f.category == AuthenticationFailed {
		return Unauthenticated
	}
	return Unavailable
}

// Told returns what a status says of an error: its own text, but of a connection that failed and
// of silence no more than a check says, since that text has addresses. An address that the edge
// may not connect to is told, with what allows it.
func Told(err error) string {
	f := examine(err)
	if errors.As(err, new(*edge.AddressError)) {
		return err.Error()
	}
	if f.category == ConnectionFailed || f.category == TimedOut {
		return f.message
	}
	return err.Error()
}

// answered is an error that stands for an HTTP answer.
type answered interface{ HTTPStatus() int }

// said is an error of an HTTP answer that has its text, and reports whether it asks
// for a credential.
type said interface {
	Words() string
	Challenged() bool
}

// examine is the one table from errors to their meaning. Status and breaker differ
// where a live backend refuses: the breaker passes that answer on to calls, while a
// check has failed.
func examine(err error) finding {
	if err == nil {
		return finding{outcome: Success}
	}
	var a answered
	if errors.As(err, &a) {
		if code := a.HTTPStatus(); code > 0 {
			f := examineHTTP(code)
			var s said
			if !errors.As(err, &s) {
				return f
			}
			if code == 403 && !s.Challenged() {
				f.category, f.message = Refused, "refuses the edge with HTTP 403"
			}
			if words := s.Words(); words != "" && f.message != "" {
				f.message += fmt.Sprintf(", and says %q", words)
			}
			return f
		}
	}
	kind := edge.KindOf(err)
	var u interface{ Unattached() bool }
	if errors.As(err, &u) {
		return finding{outcome: Neutral, bad: true, category: AuthenticationFailed, message: "the edge has no credential for it"}
	}
	switch {
	case kind == edge.Gone || errors.Is(err, context.Canceled):
		return finding{outcome: Neutral, category: Cancelled, message: "the check was cancelled"}
	case kind == edge.Overload:
		return finding{outcome: Neutral, category: CheckFailed, message: "the edge had no connection to spare for the check"}
	case kind == edge.Timeout || kind != edge.Unauthenticated && kind != edge.Denied && timedOut(err):
		return finding{outcome: Failure, bad: true, category: TimedOut, message: "did not answer in time"}
	case kind == edge.Unauthenticated || kind == edge.Denied:
		return finding{outcome: Neutral, bad: true, category: AuthenticationFailed, message: "the edge has no credential for it"}
	case kind == edge.Unavailable || kind == edge.Internal:
		if why := connection(err); why != "" {
			return finding{outcome: Failure, bad: true, category: ConnectionFailed, message: why}
		}
		if kind == edge.Unavailable {
			return finding{outcome: Failure, bad: true, category: BackendUnavailable, message: "gave no answer that makes sense"}
		}
		return finding{outcome: Failure, bad: true, category: CheckFailed, message: "the check failed"}
	}
	return finding{outcome: Neutral, bad: true, category: CheckFailed, message: "the check failed"}
}

func examineHTTP(code int) finding {
	switch {
	case code == 401 || code == 403:
		return finding{outcome: Success, bad: true, refused: true, category: AuthenticationFailed,
			message: fmt.Sprintf("wants a credential: it answered with HTTP %d", code)}
	case code == 429:
		return finding{outcome: Success, message: "answers, and limits the rate with HTTP 429"}
	case code >= 500:
		return finding{outcome: Failure, bad: true, category: BackendUnavailable, message: fmt.Sprintf("answered with HTTP %d", code)}
	}
	return finding{outcome: Success, bad: true, category: CheckFailed, message: fmt.Sprintf("answered with HTTP %d", code)}
}

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// connection says what is wrong with the connection to a backend, "" for an
// error that is about something else. It names no address: those are for the
// log.
func connection(err error) string {
	var (
		dns   *net.DNSError
		cert  *tls.CertificateVerificationError
		plain tls.RecordHeaderError
		errno syscall.Errno
		op    *net.OpError
	)
	switch {
	case errors.As(err, &dns):
		return "its name cannot be resolved"
	case errors.As(err, &cert):
		return "its certificate cannot be verified"
	case errors.As(err, &plain):
		return "does not speak TLS"
	case errors.As(err, &errno):
		return "cannot be connected to: " + errno.Error()
	case errors.As(err, &op):
		return "cannot be connected to"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return "closed the connection"
	}
	return ""
}
