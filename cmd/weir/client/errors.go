package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge/mcp"
)

// ProtocolError is an error that the server answered with, or an answer that
// the protocol does not allow.
type ProtocolError struct {
	Method  string
	Code    int // of JSON-RPC; 0 when the server gave none
	Message string
	Data    []byte // JSON text; nil for none
}

func (e *ProtocolError) Error() string {
	out := e.Method + ": " + e.Message
	if e.Code != 0 {
		out += fmt.Sprintf(" (error %d)", e.Code)
	}
	if e.Data != nil {
		out += ": " + string(e.Data)
	}
	return out
}

// failed makes an error of a message of kind Failure.
func failed(method string, m *mcp.Message) *ProtocolError {
	return &ProtocolError{Method: method, Code: m.Code(), Message: m.Text("message"), Data: m.Get("data").Of(m.Raw)}
}

// ConnectionError says that there was no talking to the server, and what to do
// next.
type ConnectionError struct {
	URL    string
	Status int // of HTTP; 0 when there was no answer
	What   string
	Next   string
	Err    error // nil when the server answered
}

func (e *ConnectionError) Error() string {
	out := e.What
	if e.URL != "" {
		out = e.URL + ": " + out
	}
	if e.Next != "" {
		out += ": " + e.Next
	}
	return out
}

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }

// older reports whether the answer is one that a server of an older revision
// may give to a request that it does not know.
func (e *ConnectionError) older() bool {
	switch e.Status {
	case 0, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return false
	}
	return e.Status >= 400 && e.Status < 500 || e.Status == http.StatusNotImplemented
}

// errSilent is why the context of a call ends when the server says nothing.
var errSilent = errors.New("the server kept silent")

// unreachable explains why a request got no answer.
func unreachable(ctx context.Context, target string, silence time.Duration, err error) error {
	e := &ConnectionError{URL: shown(target), Err: err}
	var (
		dns    *net.DNSError
		cert   *tls.CertificateVerificationError
		record tls.RecordHeaderError
	)
	switch {
	case errors.Is(context.Cause(ctx), errSilent):
		e.What, e.Next = fmt.Sprintf("no word for %s", silence), "give it more time with --timeout"
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, syscall.ECONNREFUSED):
		e.What, e.Next = "nobody listens there", "start an edge with `weir serve`, or name the URL of another server"
	case errors.As(err, &dns):
		e.What, e.Next = fmt.Sprintf("no address for host %q", dns.Name), "check how the host is spelt"
	case errors.As(err, &cert):
		e.What, e.Next = fmt.Sprintf("its certificate is not trusted: %s", cert.Err), "name the authority that signed it with --ca FILE"
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		e.What, e.Next = "it does not speak TLS", "write http:// instead of https://"
	default:
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		e.What, e.Next = err.Error(), "check that the server runs and that the URL is right"
	}
	return e
}

// refused explains an HTTP answer that is no message.
func refused(target string, r *http.Response, body []byte) *ConnectionError {
	e := &ConnectionError{URL: shown(target), Status: r.StatusCode, What: fmt.Sprintf("answered %d %s", r.StatusCode, http.StatusText(r.StatusCode))}
	if said := firstLine(body); said != "" && !strings.Contains(r.Header.Get("Content-Type"), "html") {
		e.What += fmt.Sprintf(" (%s)", said)
	}
	switch s := r.StatusCode; {
	case s >= 300 && s < 400:
		e.Next = "name that place as the URL"
		e.What = fmt.Sprintf("answered %d and points to %s", s, shown(r.Header.Get("Location")))
	case s == http.StatusUnauthorized:
		e.Next = "give a token with --bearer-token-file, or a header with --header"
		if challenge := firstLine([]byte(r.Header.Get("WWW-Authenticate"))); challenge != "" {
			e.What += ", asking for " + challenge
		}
	case s == http.StatusForbidden:
		e.Next = "ask whoever runs the server for access"
	case s == http.StatusNotFound, s == http.StatusMethodNotAllowed:
		e.Next = "check the path of the URL: an edge answers on /mcp, or /servers/NAME/mcp when it has several servers"
	case s == http.StatusTooManyRequests, s == http.StatusServiceUnavailable:
		e.Next = "try again later"
		if n, err := strconv.Atoi(r.Header.Get("Retry-After")); err == nil {
			e.Next = fmt.Sprintf("try again in %d seconds", n)
		}
	case s >= 500:
		e.Next = "the log of the server says why"
	case s >= 200 && s < 300:
		e.What = fmt.Sprintf("answered with %q, which is no message of MCP", r.Header.Get("Content-Type"))
		e.Next = "check that the URL is one of an MCP server: an edge answers on /mcp"
	default:
		e.Next = "check that the URL is one of an MCP server"
	}
	return e
}

// shown is a URL without the secrets that may be in it.
func shown(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return "the URL"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// firstLine is the start of a text, fit for one line of an error.
func firstLine(s []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(s)), "\n")
	line = strings.ToValidUTF8(line, "")
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (0x80 <= r && r < 0xa0) {
			return -1
		}
		return r
	}, line)
	if runes := []rune(line); len(runes) > 200 {
		line = string(runes[:200]) + "…"
	}
	return line
}
