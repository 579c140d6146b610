package checkup

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/wire"
)

// untrusted explains a TLS handshake that failed.
func (p *patient) untrusted(ctx context.Context, err error, now time.Time) edge.Finding {
	var (
		verify  *tls.CertificateVerificationError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
		record  tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &record):
		return edge.Problem(edge.ClassTLS, "write http:// instead of https:// in its URL, or name the port that has TLS", "%s does not speak TLS", wire.Address(p.url))
	case ctx.Err() != nil || timedOut(err):
		return edge.Problem(edge.ClassTimeout, "check that "+wire.Address(p.url)+" is a server with TLS", "%s took the connection and does not answer the TLS handshake", wire.Address(p.url))
	case errors.As(err, &host):
		return edge.Problem(edge.ClassTLS, "name the backend in its URL as its certificate does, or get it another certificate", "its certificate is not for host %q: %v", p.url.Hostname(), host)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && now.Before(invalid.Cert.NotBefore):
		return edge.Problem(edge.ClassClock, "check the clock of this machine, or wait", "a certificate of it is not valid before %s; the clock says %s", edge.Day(invalid.Cert.NotBefore), edge.Day(now))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return edge.Problem(edge.ClassTLS, "have whoever runs the backend get a new certificate; check the clock of this machine", "a certificate of it was valid until %s; the clock says %s", edge.Day(invalid.Cert.NotAfter), edge.Day(now))
	case errors.As(err, &verify):
		next := "put the certificate of the authority that signed it, in PEM, into the file that caBundlePath of the backend (with type: entry) names, or the ConfigMap that caBundleRef of its MCPServerEntry names; for all that the edge connects to, into that of --ca-bundle"
		if p.bundled {
			next = "add the certificate of the authority that signed it to the CA bundle of the backend, which lacks it"
		}
		return edge.Problem(edge.ClassTLS, next, "its certificate is not trusted: %v%s", verify.Err, signer(verify))
	}
	return edge.Problem(edge.ClassTLS, "check that the backend speaks TLS 1.2 or 1.3 and wants no certificate of its clients", "the TLS handshake failed: %v", cause(err))
}

// signer says who a certificate is from.
func signer(e *tls.CertificateVerificationError) string {
	if len(e.UnverifiedCertificates) == 0 {
		return ""
	}
	last := e.UnverifiedCertificates[len(e.UnverifiedCertificates)-1]
	if bytes.Equal(last.RawIssuer, last.RawSubject) {
		return fmt.Sprintf(" (signed by %q, itself)", last.Issuer)
	}
	return fmt.Sprintf(" (signed by %q)", last.Issuer)
}

// answer is what a backend says to a plain request, as far as it matters.
type answer struct {
	status    int
	kind      string // media type
	location  string
	challenge string
	start     []byte   // of the body
	secrets   []string // that were sent, and must not be shown
}

// maxStart is how much of a body is looked at, in bytes.
const maxStart = 4096

// ask sends the backend the first request of its transport by other means than
// those of the edge, to see what comes back.
func (p *patient) ask(ctx context.Context) (*answer, error) {
	c := p.config(false)
	method, body := http.MethodGet, []byte(nil)
	if p.plan.Transport != compile.SSE {
		meta := mcp.Change(nil, nil, mcp.Caller{Info: c.Info}.Members()...)
		method = http.MethodPost
		body = mcp.AppendRequest(nil, []byte("1"), "server/discover", mcp.Change(nil, nil, mcp.Raw("_meta", meta)))
	}
	r, err := http.NewRequestWithContext(ctx, method, p.plan.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", c.Agent)
	r.Header.Set("Accept", "text/event-stream")
	if body != nil {
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(mcp.HeaderVersion, mcp.V2607)
		r.Header.Set(mcp.HeaderMethod, "server/discover")
	}
	secrets := wire.SecretsIn(r.URL)
	if p.shown != nil {
		asked := outbound(r, body)
		asked.Exchange = p.exchange()
		if _, err := p.shown.Attach(ctx, asked, func(name string, value edge.Secret) {
			r.Header.Set(name, string(value))
			secrets = append(secrets, wire.SecretsOf(string(value))...)
		}); err != nil {
			return nil, err
		}
	}
	dialer := wire.Dialer(p.plan.Private)
	dialer.Timeout = wire.DialTimeout
	h := &http.Client{
		Transport: &http.Transport{
			DialContext:       dialer.DialContext,
			TLSClientConfig:   wire.TLS(p.url, p.roots),
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	got, err := h.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = got.Body.Close() }() // what matters has been read by then
	out := &answer{status: got.StatusCode, location: got.Header.Get("Location"), challenge: got.Header.Get("WWW-Authenticate"), secrets: secrets}
	out.kind, _, _ = mime.ParseMediaType(got.Header.Get("Content-Type"))
	if out.kind != "text/event-stream" { // a stream may have no end
		out.start, err = io.ReadAll(io.LimitReader(got.Body, maxStart))
	}
	if out.start != nil {
		return out, nil // a body that broke off has said something
	}
	return out, err
}

// outbound is a request as a credential wants to see it.
func outbound(r *http.Request, body []byte) *edge.Outbound {
	lines := []byte("\r\nHost: " + r.URL.Host)
	for name, values := range r.Header {
		for _, value := range values {
			lines = append(lines, "\r\n"+name+": "+value...)
		}
	}
	return &edge.Outbound{Method: r.Method, URL: r.URL, Lines: lines, Body: body}
}

// explain says why a backend gave no introduction.
func (p *patient) explain(ctx context.Context, err error) edge.Finding {
	silent := edge.Problem(edge.ClassTimeout, "look into the backend's log, or give it more time with --timeout", "%s took the connection and gives no answer within %s", p.endpoint(), p.Timeout)
	if ctx.Err() != nil || edge.KindOf(err) == edge.Timeout {
		return silent
	}
	got, failed := p.ask(ctx)
	switch {
	case failed != nil && ctx.Err() != nil:
		return silent
	case failed != nil:
		return p.broken(failed)
	}
	return p.unwanted(got, err)
}

// broken explains a request that got no answer of HTTP.
func (p *patient) broken(err error) edge.Finding {
	text := err.Error()
	var outer *url.Error
	if errors.As(err, &outer) {
		text = outer.Err.Error() // without the URL, which may hold a secret
	}
	switch {
	case strings.Contains(text, "remote error: tls:"):
		return edge.Problem(edge.ClassTLS, "have the backend take clients without a certificate: the edge has none to show", "it ended TLS: %s", text)
	case strings.Contains(text, `malformed HTTP response "\x15\x03`):
		return p.wantsTLS()
	case strings.Contains(text, "malformed HTTP"):
		return edge.Problem(edge.ClassProtocol, "name the URL of an MCP server over HTTP", "what answers at %s does not speak HTTP", wire.Address(p.url))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), strings.Contains(text, "reset by peer"):
		return edge.Problem(edge.ClassProtocol, "look into the backend's log; check that the URL is one of an MCP server over HTTP", "%s closes the connection without an answer", wire.Address(p.url))
	}
	return edge.Problem(edge.ClassProtocol, "check that the URL is one of an MCP server over HTTP", "%s", text)
}

func (p *patient) wantsTLS() edge.Finding {
	return edge.Problem(edge.ClassTLS, "write https:// instead of http:// in its URL", "%s speaks TLS, and the URL does not say so", wire.Address(p.url))
}

// unwanted explains an answer of HTTP that is not the one of an MCP server.
// err is what the edge makes of it.
func (p *patient) unwanted(got *answer, err error) edge.Finding {
	said := fmt.Sprintf("%s answers %d %s", p.endpoint(), got.status, http.StatusText(got.status))
	var refused interface {
		HTTPStatus() int
		Words() string
		Challenged() bool
	}
	status, challenged, words := got.status, got.challenge != "", quote(got)
	if errors.As(err, &refused) && (refused.HTTPStatus() == 401 || refused.HTTPStatus() == 403) {
		if status = refused.HTTPStatus(); status != got.status {
			challenged, words = refused.Challenged(), ""
			if said := refused.Words(); said != "" {
				words = " (" + said + ")"
			}
		}
	}
	switch {
	case status == 403 && !challenged:
		return edge.Problem(edge.ClassRefused, "look into the backend's log for the reason: it may not take the Host or Origin of its URL, the address of this machine, or what the credential stands for", "%s answers 403 and asks for no credential%s", p.endpoint(), words)
	case status == 401 || status == 403:
		cause := fmt.Sprintf("%s answers %d: it wants a credential", p.endpoint(), status)
		if p.shown != nil {
			cause = fmt.Sprintf("%s answers %d: it does not take the credential that it gets, or gets none", p.endpoint(), status)
		}
		if got.challenge != "" {
			cause += ", asking for " + wire.Words([]byte(got.challenge), got.secrets...)
		}
		return edge.Problem(edge.ClassCredential, "give the edge a credential for it: outgoingAuth of the server, externalAuthConfigRef or headerForward of the backend's own object", "%s", cause)
	case got.status >= 300 && got.status < 400:
		return edge.Problem(edge.ClassProtocol, "write that place as the backend's URL: the edge follows no redirect", "%s answers %d and points to %s", p.endpoint(), got.status, edge.Brief(withoutQuery(got.location)))
	case got.status == 400 && bytes.Contains(got.start, []byte("HTTPS")):
		return p.wantsTLS()
	case got.status == 429:
		return edge.Problem(edge.ClassFailing, "try again later", "%s: too many requests", said)
	case got.status >= 500 && got.status != 501: // 501 is from who knows no POST
		return edge.Problem(edge.ClassFailing, "look into the backend's log", "%s%s", said, quote(got))
	case got.kind == "text/html":
		return edge.Problem(edge.ClassProtocol, "name its MCP endpoint: often the path is /mcp, or /sse with transport: sse", "%s%s: a web page, no MCP server", said, quote(got))
	case got.status == 404 || got.status == 405 || got.status == 410 || got.status == 501:
		return edge.Problem(edge.ClassProtocol, "correct the path of the URL: often it is /mcp, or /sse with transport: sse", "%s: no MCP endpoint is there", said)
	case got.status < 300 && got.kind != "application/json" && got.kind != "text/event-stream":
		return edge.Problem(edge.ClassProtocol, "name its MCP endpoint: often the path is /mcp, or /sse with transport: sse", "%s with %q, which is no message of MCP", said, edge.Brief(got.kind))
	}
	return edge.Problem(edge.ClassProtocol, "check that the URL is one of an MCP server, and update it or weir where revisions differ", "%v%s", err, quote(got))
}

// quote returns the server's own text, which is not to be trusted.
func quote(got *answer) string {
	said := wire.Words(got.start, got.secrets...)
	switch {
	case said == "":
		return ""
	case got.kind == "text/html":
		return fmt.Sprintf(" with the page %q", said)
	}
	return " (" + said + ")"
}

func withoutQuery(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return "a place that is no URL"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
