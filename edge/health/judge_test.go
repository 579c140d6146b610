package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/edge"
)

// What an error means, for the breaker and for a check.
func TestJudge(t *testing.T) {
	const secret = "s3cr3t-from-the-other-side"
	unavailable := func(err error) error { return &edge.Error{Kind: edge.Unavailable, Op: secret, Err: err} }
	dial := func(err error) error {
		return unavailable(&net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 80}, Err: os.NewSyscallError("connect", err)})
	}
	for _, c := range []struct {
		name     string
		err      error
		outcome  Outcome
		bad      bool
		category Category
		message  string
	}{
		{"an answer", nil, Success, false, "", ""},
		{"refused connection", dial(syscall.ECONNREFUSED), Failure, true, ConnectionFailed, "cannot be connected to: connection refused"},
		{"reset connection", unavailable(fmt.Errorf("read: %w", syscall.ECONNRESET)), Failure, true, ConnectionFailed, "cannot be connected to: connection reset by peer"},
		{"a connection that was closed", unavailable(io.ErrUnexpectedEOF), Failure, true, ConnectionFailed, "closed the connection"},
		{"a connection that nobody closed properly", unavailable(&net.OpError{Op: "read", Err: errors.New(secret)}), Failure, true, ConnectionFailed, "cannot be connected to"},
		{"no such name", unavailable(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: secret}}), Failure, true, ConnectionFailed, "its name cannot be resolved"},
		{"a name that takes too long", unavailable(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "timeout", IsTimeout: true}}), Failure, true, TimedOut, "did not answer in time"},
		{"a bad certificate", unavailable(&tls.CertificateVerificationError{Err: errors.New(secret)}), Failure, true, ConnectionFailed, "its certificate cannot be verified"},
		{"no TLS", unavailable(tls.RecordHeaderError{Msg: secret}), Failure, true, ConnectionFailed, "does not speak TLS"},
		{"a dial that takes too long", dial(syscall.ETIMEDOUT), Failure, true, TimedOut, "did not answer in time"},
		{"silence", edge.Errorf(edge.Timeout, "call", "%s", secret), Failure, true, TimedOut, "did not answer in time"},
		{"silence of no kind", fmt.Errorf("read: %w", os.ErrDeadlineExceeded), Failure, true, TimedOut, "did not answer in time"},
		{"a deadline", context.DeadlineExceeded, Failure, true, TimedOut, "did not answer in time"},
		{"nonsense", edge.Errorf(edge.Unavailable, "call", "answered with %s", secret), Failure, true, BackendUnavailable, "gave no answer that makes sense"},
		{"an error of no kind", errors.New(secret), Failure, true, CheckFailed, "the check failed"},
		{"HTTP 500", unavailable(answer(500)), Failure, true, BackendUnavailable, "answered with HTTP 500"},
		{"HTTP 503", unavailable(answer(503)), Failure, true, BackendUnavailable, "answered with HTTP 503"},
		{"HTTP 504", unavailable(answer(504)), Failure, true, BackendUnavailable, "answered with HTTP 504"},
		{"HTTP 401", unavailable(answer(401)), Success, true, AuthenticationFailed, "wants a credential: it answered with HTTP 401"},
		{"HTTP 403", unavailable(answer(403)), Success, true, AuthenticationFailed, "wants a credential: it answered with HTTP 403"},
		{"HTTP 429", unavailable(answer(429)), Success, false, "", "answers, and limits the rate with HTTP 429"},
		{"HTTP 404", unavailable(answer(404)), Success, true, CheckFailed, "answered with HTTP 404"},
		{"HTTP 413", unavailable(answer(413)), Success, true, CheckFailed, "answered with HTTP 413"},
		{"an answer of no status", unavailable(answer(0)), Failure, true, BackendUnavailable, "gave no answer that makes sense"},
		{"a client that left", edge.Errorf(edge.Gone, "call", "%w", context.Canceled), Neutral, false, Cancelled, "the check was cancelled"},
		{"a client whose time was over", edge.Errorf(edge.Gone, "call", "%w", context.DeadlineExceeded), Neutral, false, Cancelled, "the check was cancelled"},
		{"a dial that was cancelled", unavailable(context.Canceled), Neutral, false, Cancelled, "the check was cancelled"},
		{"no connection to spare", edge.Errorf(edge.Overload, "dial", "all 1024 connections are in use"), Neutral, false, CheckFailed, "the edge had no connection to spare for the check"},
		{"no credential", edge.Errorf(edge.Unauthenticated, "attach", "%s", secret), Neutral, true, AuthenticationFailed, "the edge has no credential for it"},
		{"no leave for a credential", edge.Errorf(edge.Denied, "attach", "%w", context.DeadlineExceeded), Neutral, true, AuthenticationFailed, "the edge has no credential for it"},
		{"what the edge refuses", edge.Errorf(edge.Params, "call", "uri is missing"), Neutral, true, CheckFailed, "the check failed"},
		{"a session that ended", edge.Errorf(edge.NoSession, "session", "Session not found"), Neutral, true, CheckFailed, "the check failed"},
		{"a method that nobody serves", edge.Errorf(edge.NoMethod, "call", "method not found"), Neutral, true, CheckFailed, "the check failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := examine(c.err)
			if f.outcome != c.outcome || f.bad != c.bad || f.category != c.category || f.message != c.message {
				t.Errorf("got %+v", f)
			}
			if Judge(c.err) != c.outcome {
				t.Errorf("judged %d", Judge(c.err))
			}
			if strings.Contains(f.message, secret) || strings.Contains(f.message, "10.1.2.3") || len(f.message) > 128 {
				t.Errorf("a message that is not fit to be shown: %q", f.message)
			}
		})
	}
}

// A status says no address of a connection that failed or was silent, and all else as it is.
func TestTold(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9101}
	for _, c := range []struct {
		err  error
		want string
	}{
		{edge.Errorf(edge.Timeout, "call", "%w", &net.OpError{Op: "raw-read", Net: "tcp", Source: at, Addr: at, Err: os.ErrDeadlineExceeded}), "did not answer in time"},
		{edge.Errorf(edge.Unavailable, "call", "%w", &net.OpError{Op: "dial", Net: "tcp", Addr: at, Err: syscall.ECONNREFUSED}), "cannot be connected to: connection refused"},
		{edge.Errorf(edge.Unavailable, "discover", "speaks none of the revisions"), "discover: speaks none of the revisions"},
	} {
		if got := Told(c.err); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
