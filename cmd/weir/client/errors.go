package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/oauth/login"
	"github.com/weir-edge/weir/edge/wire"
)

// ProtocolError is an error that the server answered with, or an answer that
// the protocol does not allow.
type ProtocolError struct {
	Method  string
	Code    int // of JSON-RPC; 0 when the server gave none
	Message string
	Data    []byte // JSON text; nil for none
	Next    string // what to do; empty when the message has to say it
	More    []byte // JSON text of data that Next tells; nil for none
	Asks    string // the credential that the server asks for (WWW-Authenticate)
}

func (e *ProtocolError) Error() string {
	out := e.Method + ": " + e.Message
	if e.Code != 0 {
		out += fmt.Sprintf(" (error %d)", e.Code)
	}
	if e.Data != nil {
		out += ": " + string(e.Data)
	}
	if e.Next != "" {
		out += ": " + e.Next
	}
	return out
}

// failed makes an error of an answer of kind Failure.
func failed(method string, a answer) *ProtocolError {
	e := &ProtocolError{Method: method, Code: a.Code(), Message: a.Text("message"), Data: a.Get("data").Of(a.Raw), Asks: firstLine([]byte(a.challenge))}
	after := a.after
	if seconds := mcp.Lookup(e.Data, "retryAfterSeconds"); seconds != nil {
		after = string(seconds)
		e.Data, e.More = nil, e.Data
	}
	switch {
	case after != "" || a.status == http.StatusTooManyRequests:
		e.Next = later(after)
	case a.status == http.StatusForbidden:
		e.Next = askForAccess
		if scopes := wire.Scopes([]byte(a.challenge)); len(scopes) > 0 {
			e.Next = "get a token with the scope " + edge.Brief(strings.Join(scopes, " ")) + ", or " + askForAccess
		}
	case strings.HasSuffix(e.Message, edge.ErrUnreadable.Error()):
		e.Next = ReadTheLog
	case a.status == http.StatusBadGateway || e.Code == http.StatusBadGateway:
		e.Next = AskTheEdge
	}
	return e
}

// AskTheEdge is what to do about an MCP server behind an edge that does not answer. Only the
// edge knows why.
const AskTheEdge = "`weir status` says why, where the edge runs"

// ReadTheLog is what to do about an MCP server whose answer the edge does not take.
const ReadTheLog = "the log of the edge says why"

const askForAccess = "ask whoever runs the server for access"

// later says when to try again, of a value as Retry-After has it (RFC 9110
// §10.2.3): seconds, or a date.
func later(after string) string {
	seconds, err := strconv.ParseFloat(after, 64)
	if date, wrong := http.ParseTime(after); wrong == nil {
		seconds, err = max(1, time.Until(date).Seconds()), nil
	}
	switch seconds = math.Ceil(seconds); {
	case err != nil || !(seconds > 0 && seconds < 1e9):
		return "try again later"
	case seconds <= 120:
		return fmt.Sprintf("try again in %.0f s", seconds)
	case seconds <= 7200:
		return fmt.Sprintf("try again in %.0f min", math.Ceil(seconds/60))
	}
	return fmt.Sprintf("try again in %.0f h", math.Ceil(seconds/3600))
}

// ConnectionError says that there was no talking to the server, and what to do
// next.
type ConnectionError struct {
	URL    string
	Status int // of HTTP; 0 when there was no answer
	What   string
	Next   string
	Asks   string // the credential that the server asks for (WWW-Authenticate)
	Body   string // the start of what the server answered, which may be long
	Err    error  // nil when the server answered
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

// Unreachable explains why a login found no server to log in to; other errors stay.
func Unreachable(ctx context.Context, err error) error {
	var absent *login.UnreachableError
	if !errors.As(err, &absent) {
		return err
	}
	err = unreachable(ctx, absent.URL, 0, absent.Err)
	if e := new(ConnectionError); errors.As(err, &e) && e.Next == nameAuthority {
		e.Next = strings.Replace(nameAuthority, "--ca", "--ca-bundle", 1) // a login has no other
	}
	return err
}

const nameAuthority = "name the authority that signed it with --ca FILE"

// NeedsLogin reports whether an error is that somebody has to log in, and nobody is there.
func NeedsLogin(err error) bool {
	var needed *login.NeededError
	return errors.As(err, &needed)
}

// errSilent is why the context of a call ends when the server says nothing.
var errSilent = errors.New("the server kept silent")

// unreachable explains why a request got no answer.
func unreachable(ctx context.Context, target string, silence time.Duration, err error) error {
	e := &ConnectionError{URL: shown(target), Err: err}
	var (
		dns     *net.DNSError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
		cert    *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		access  *login.Failure
	)
	switch {
	case errors.As(err, &access) && context.Cause(ctx) == nil:
		e.URL, e.What = "", access.Error()
	case errors.Is(context.Cause(ctx), errSilent):
		e.What, e.Next = fmt.Sprintf("no word for %s", silence), "give it more time with --timeout"
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, syscall.ECONNREFUSED):
		e.What, e.Next = "nobody listens there", "start an edge with `weir serve`, or name the URL of another server"
	case errors.As(err, &dns):
		e.What, e.Next = fmt.Sprintf("no address for host %q", dns.Name), "check how the host is spelt"
	case errors.As(err, &host):
		e.What, e.Next = "its certificate is for another host: "+edge.Brief(host.Error()), "name the server in its URL as its certificate does, or have whoever runs it get another certificate"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && time.Now().Before(invalid.Cert.NotBefore):
		e.What, e.Next = "a certificate of it is not valid before "+edge.Day(invalid.Cert.NotBefore), "check the clock of this machine, or wait"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		e.What, e.Next = "a certificate of it was valid until "+edge.Day(invalid.Cert.NotAfter), "have whoever runs the server get a new certificate; check the clock of this machine"
	case errors.As(err, &cert):
		e.What, e.Next = fmt.Sprintf("its certificate is not trusted: %s", cert.Err), nameAuthority
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		e.What, e.Next = "it does not speak TLS", "write http:// instead of https://"
	case strings.HasPrefix(target, "http://") && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		e.What, e.Next = "it closed the connection without an answer", "write https:// if it speaks TLS, else check that the URL is right"
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
	e := &ConnectionError{
		URL:    shown(target),
		Status: r.StatusCode,
		What:   strings.TrimSpace(fmt.Sprintf("answered %d %s", r.StatusCode, http.StatusText(r.StatusCode))),
		Asks:   firstLine([]byte(challenge(r))),
		Body:   unsaid(r, strings.ToValidUTF8(string(body), "")),
	}
	switch s := r.StatusCode; {
	case s >= 300 && s < 400:
		e.Next = "name that place as the URL"
		e.What = fmt.Sprintf("answered %d and points to %s", s, shown(r.Header.Get("Location")))
	case s == http.StatusUnauthorized:
		e.Next = "log in with --auth, or give a token with --bearer-token-file or a header with --header"
	case s == http.StatusForbidden:
		e.Next = askForAccess
	case s == http.StatusNotFound, s == http.StatusMethodNotAllowed:
		e.Next = "check the path of the URL: an edge answers on /mcp, or /servers/NAME/mcp when it has several servers"
	case s == http.StatusTooManyRequests, s == http.StatusServiceUnavailable:
		e.Next = later(r.Header.Get("Retry-After"))
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

// challenge is the credential that a server asks for.
func challenge(r *http.Response) string {
	return unsaid(r, strings.Join(r.Header.Values("WWW-Authenticate"), ", "))
}

// unsaid is what a server says without the credentials of the request, which some servers repeat.
func unsaid(r *http.Response, text string) string {
	if r.Request == nil {
		return text
	}
	for name, lines := range r.Request.Header {
		switch name {
		case "Accept", "Content-Type", "User-Agent", "Last-Event-Id":
			continue
		}
		if strings.HasPrefix(name, "Mcp-") && name != "Mcp-Session-Id" {
			continue
		}
		for _, line := range lines {
			_, token, _ := strings.Cut(line, " ")
			for _, value := range []string{line, token} {
				if len(value) < 4 { // it would hide parts of words
					continue
				}
				for _, form := range []string{value, url.QueryEscape(value), url.PathEscape(value), base64.StdEncoding.EncodeToString([]byte(value)), base64.RawURLEncoding.EncodeToString([]byte(value))} {
					text = strings.ReplaceAll(text, form, "(hidden)")
				}
			}
		}
	}
	return text
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
