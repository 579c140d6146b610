// Package oauth is the client side of OAuth 2.0 and OpenID Connect: the one
// guarded HTTP client for what is not hot, discovery, the keys of an issuer,
// and introspection.
package oauth

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Trust says who named a URL.
type Trust uint8

// Whoever names a URL decides which addresses it may lead to.
const (
	Learned Trust = iota // a stranger: a document, a header, a redirect. Public addresses only, unless Options.AllowPrivate.
	Named                // the operator, in a field: any address but link-local and metadata ones.
)

// Bounds of a fetch where its Request gives none.
const (
	DefaultTimeout = 5 * time.Second
	DefaultMaxBody = 1 << 20 // bytes
	maxHeader      = 64 << 10
	maxIdle        = 32 // connections to all hosts that nothing uses
	maxURL         = 8 << 10
)

// Options say how a Client connects.
type Options struct {
	CABundle     []byte        // PEM certificates to trust in place of the system's; empty for those of the system
	AllowPrivate bool          // learned URLs may lead to private addresses
	AllowHTTP    bool          // http as well as https: for development
	Reach        edge.Reach    // what the process allows beside
	Timeout      time.Duration // of a whole request with its redirects and body; 0 for DefaultTimeout

	// Proxy names the proxy for a request, nil for none. It is
	// http.ProxyFromEnvironment when nil: HTTPS_PROXY, HTTP_PROXY, NO_PROXY. A
	// proxy counts as named by the operator. It resolves names itself, so that
	// behind one only addresses that are written as such are judged here.
	Proxy func(*http.Request) (*url.URL, error)

	// Dial connects to HOST:PORT, and judges where that leads: in place of the rules of Trust,
	// and of proxies. nil for these. Redirects are not to be followed then.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	resolver *net.Resolver // nil for that of the system
}

// ErrTooLarge is what an error is that says that an answer is larger than its
// request allows.
var ErrTooLarge = errors.New("the answer is too large")

// tooLarge says so with the bound, in bytes.
type tooLarge int64

func (e tooLarge) Error() string      { return fmt.Sprintf("the answer is larger than %d bytes", int64(e)) }
func (tooLarge) Is(target error) bool { return target == ErrTooLarge }

// Client fetches documents and calls endpoints of other parties, guarded: the
// address is judged when it is dialled, after name resolution; redirects are
// few and judged again; size and time of an answer are bounded; answers are
// never decompressed. It is safe for concurrent use.
type Client struct {
	options Options
	public  http.RoundTripper // dials public addresses only
	private http.RoundTripper // dials all but link-local and metadata addresses
	proxied http.RoundTripper // dials proxies
}

// New returns a client. It fails when one of the CA bundles holds no certificate.
func New(o Options) (*Client, error) {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	switch {
	case o.Dial != nil:
		o.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	case o.Proxy == nil:
		o.Proxy = http.ProxyFromEnvironment
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if config.RootCAs, err = edge.Roots(o.CABundle, o.Reach.CAs); err != nil {
		return nil, err
	}
	c := &Client{options: o}
	c.public = c.transport(config, false, nil)
	c.private = c.transport(config, true, nil)
	c.proxied = c.transport(config, true, o.Proxy)
	return c, nil
}

func (c *Client) transport(config *tls.Config, private bool, proxy func(*http.Request) (*url.URL, error)) *http.Transport {
	dialer := &net.Dialer{
		Timeout:  DefaultTimeout,
		Resolver: c.options.resolver,
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			if c.options.Reach.DevLoopback && to.Addr().Unmap().IsLoopback() {
				return nil
			}
			return edge.MayDial(to.Addr(), private)
		},
	}
	dial := dialer.DialContext
	if c.options.Dial != nil {
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := c.options.Dial(ctx, network, address)
			if err != nil {
				err = fmt.Errorf("%w: %w", errDial, err)
			}
			return conn, err
		}
	}
	return &http.Transport{
		Proxy:                  proxy,
		DialContext:            dial,
		TLSClientConfig:        config.Clone(),
		TLSHandshakeTimeout:    DefaultTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: maxHeader,
	}
}

// DevLoopback reports whether learned URLs may lead to loopback addresses.
func (c *Client) DevLoopback() bool { return c.options.Reach.DevLoopback }

// Close closes connections that nothing uses. The client may still be used.
func (c *Client) Close() {
	for _, t := range []http.RoundTripper{c.public, c.private, c.proxied} {
		if idle, ok := t.(interface{ CloseIdleConnections() }); ok {
			idle.CloseIdleConnections()
		}
	}
}

// Request is what to fetch.
type Request struct {
	Method    string // GET when empty
	URL       string // absolute
	Trust     Trust
	AllowHTTP bool        // the URL may be of http, since the operator wrote it so
	Header    http.Header // may hold credentials: a redirect to another host receives none of it but Accept
	Body      []byte
	Redirects int   // how many may be followed, of a GET; 0 for none
	MaxBody   int64 // bytes; 0 for DefaultMaxBody
}

// Response is an answer of any status, read to its end.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do sends a request and reads the answer. An answer of any status is no
// error; a redirect that may not be followed is. Errors name the host and never
// hold credentials, a query or what a peer wrote.
func (c *Client) Do(ctx context.Context, r Request) (*Response, error) {
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	if r.MaxBody <= 0 {
		r.MaxBody = DefaultMaxBody
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	to, err := c.parse(r.URL, r.Trust, r.AllowHTTP)
	for hop := 0; err == nil; hop++ {
		var answer *Response
		began := time.Now()
		answer, err = c.once(ctx, &r, to)
		if saw := c.options.Reach.Saw; saw != nil {
			one := edge.Fetched{Method: r.Method, URL: to.String(), Header: r.Header, Body: r.Body, Took: time.Since(began), Err: err}
			if answer != nil {
				one.Status, one.Answer, one.Said = answer.Status, answer.Header, answer.Body
			}
			saw(one)
		}
		if err != nil {
			break
		}
		if !redirects(answer.Status) || r.Redirects == 0 {
			return answer, nil
		}
		if r.Method != http.MethodGet || hop == r.Redirects {
			err = errors.New("too many redirects")
			break
		}
		to, err = c.follow(&r, to, answer.Header.Get("Location"))
	}
	if over := ctx.Err(); over != nil && !errors.Is(err, over) { // what is read then may fail in a way of its own
		err = over
	}
	return nil, fmt.Errorf("%s %s: %w", r.Method, place(r.URL), err)
}

func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// place is a URL as an error may tell it.
func place(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "a malformed URL"
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}

// parse judges a URL before anything is resolved.
func (c *Client) parse(text string, trust Trust, allowHTTP bool) (*url.URL, error) {
	u, err := ParseURL(text, true)
	if err != nil {
		return nil, err
	}
	if c.options.Dial != nil { // which judges it
		return u, nil
	}
	dev := c.options.Reach.DevLoopback && IsLoopback(u.Hostname())
	if u.Scheme == "http" && !c.options.AllowHTTP && !allowHTTP && !dev {
		return nil, ErrPlainHTTP
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	addr, err := netip.ParseAddr(host)
	switch {
	case dev:
		return u, nil
	case err == nil:
		return u, edge.MayDial(addr, c.mayBePrivate(trust))
	case odd(host):
		return nil, errors.New("its host is an address in an unusual form")
	case !c.mayBePrivate(trust) && (host == "localhost" || strings.HasSuffix(host, ".localhost")):
		return nil, errors.New("its host is this machine")
	}
	return u, nil
}

// IsLoopback reports whether a host is this machine by its name: localhost or a name
// below it (RFC 6761 §6.3), or a loopback address.
func IsLoopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && addr.Unmap().IsLoopback()
}

func (c *Client) mayBePrivate(trust Trust) bool { return trust == Named || c.options.AllowPrivate }

// odd reports whether a name is one that some resolvers take for an address:
// its last label is a number (WHATWG URL, "ends in a number").
func odd(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	_, err := strconv.ParseUint(last, 0, 64)
	return err == nil || last != "" && strings.Trim(last, "0123456789") == ""
}

// ErrPlainHTTP is a URL of http where that is not allowed.
var ErrPlainHTTP = errors.New("its scheme is http, which is not allowed")

// ParseURL reads an absolute URL of https, or of http where that is allowed,
// with a host and without user information and fragment.
func ParseURL(text string, allowHTTP bool) (*url.URL, error) {
	if len(text) > maxURL {
		return nil, errors.New("it is too long")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is malformed")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("its scheme is not https")
	case u.Scheme == "http" && !allowHTTP:
		return nil, ErrPlainHTTP
	case u.Opaque != "" || u.Hostname() == "":
		return nil, errors.New("it has no host")
	case u.User != nil:
		return nil, errors.New("it holds user information")
	case u.Fragment != "" || strings.HasSuffix(text, "#"):
		return nil, errors.New("it holds a fragment")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return nil, errors.New("its port is not one")
		}
	}
	return u, nil
}

// once sends the request to one place.
func (c *Client) once(ctx context.Context, r *Request, to *url.URL) (*Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, to.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, errors.New("the request is malformed")
	}
	req.Header = r.Header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if len(r.Body) == 0 {
		req.Body = nil
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "weir")
	}
	through := c.public
	if c.mayBePrivate(r.Trust) {
		through = c.private
	}
	if proxy, err := c.options.Proxy(req); err != nil {
		return nil, errors.New("the proxy of the environment is malformed")
	} else if proxy != nil {
		through = c.proxied
	}
	resp, err := through.RoundTrip(req)
	if err != nil {
		return nil, Unsaid(err)
	}
	defer resp.Body.Close()
	if e := resp.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, errors.New("the answer is compressed, which was not asked for")
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, r.MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", Unsaid(err))
	}
	if int64(len(body)) > r.MaxBody {
		return nil, tooLarge(r.MaxBody)
	}
	return &Response{Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// errDial is in each error of Options.Dial, in which no peer has a say.
var errDial = errors.New("connect")

func is[T error](err error) bool { _, ok := errors.AsType[T](err); return ok }

// Unsaid is an error of an HTTP transport as a log may tell it. Those of names, connections,
// certificates and time are as they were. Any other may quote what the peer wrote, which may
// be a token in a broken header, and is told without.
func Unsaid(err error) error {
	late, _ := errors.AsType[net.Error](err)
	switch text := err.Error(); {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), late != nil && late.Timeout(),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errDial), is[*net.OpError](err), is[*net.DNSError](err),
		is[*tls.CertificateVerificationError](err), is[tls.RecordHeaderError](err), strings.HasPrefix(text, "tls: "):
		return err
	case strings.Contains(text, `malformed HTTP response "\x15\x03`): // an alert of TLS
		return errors.New("it speaks TLS, and its URL does not say so")
	}
	return errors.New("it gives no answer that is HTTP")
}

// follow judges where a redirect leads, and takes from the request what the
// new place must not see. Whatever named the URL, a redirect is learned.
func (c *Client) follow(r *Request, from *url.URL, location string) (*url.URL, error) {
	rel, err := url.Parse(location)
	if err != nil || location == "" {
		return nil, errors.New("redirect: it leads nowhere")
	}
	to := from.ResolveReference(rel)
	if from.Scheme == "https" && to.Scheme != "https" {
		return nil, errors.New("redirect: it leads away from https")
	}
	same := to.Scheme == from.Scheme && to.Host == from.Host
	if !same {
		r.Trust, r.AllowHTTP = Learned, false
		accept := r.Header.Values("Accept")
		r.Header = http.Header{}
		for _, v := range accept {
			r.Header.Add("Accept", v)
		}
	}
	u, err := c.parse(to.String(), r.Trust, r.AllowHTTP)
	if err != nil {
		return nil, fmt.Errorf("redirect: %w", err)
	}
	return u, nil
}
