package guest

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// Limits on the HTTP requests of programs.
const (
	maxFetch     = 10 * time.Second // one request with its answer
	maxFetches   = 16               // of one program at a time
	maxFetched   = 512 << 10        // bytes of an answer's body
	maxFetchHead = 64               // header lines of a request or an answer
)

// place is a destination of programs' requests.
type place struct{ scheme, host, port string }

// placeOf parses an entry of grants.http: HOST, HOST:PORT, or either after
// http:// for a host without TLS.
func placeOf(entry string) place {
	p := place{scheme: "https", port: "443"}
	if rest, plain := strings.CutPrefix(entry, "http://"); plain {
		p.scheme, p.port, entry = "http", "80", rest
	}
	p.host = entry
	if host, port, err := net.SplitHostPort(entry); err == nil {
		p.host, p.port = host, port
	}
	p.host = strings.ToLower(strings.Trim(p.host, "[]"))
	return p
}

// whereTo returns the place that a URL leads to.
func whereTo(u *url.URL) place {
	p := place{u.Scheme, strings.ToLower(u.Hostname()), u.Port()}
	if p.port == "" {
		p.port = map[string]string{"https": "443", "http": "80"}[p.scheme]
	}
	return p
}

// fetcher sends the HTTP requests of a program.
type fetcher struct {
	client *oauth.Client
	places map[place]bool
	slots  chan struct{} // taken by requests under way
}

// newFetcher returns nil for a filter that may call no host. trust is PEM
// certificates that replace those of the system; nil keeps these.
func newFetcher(s *Spec, trust []byte, reach edge.Reach) (*fetcher, error) {
	if len(s.HTTP) == 0 {
		return nil, nil
	}
	client, err := oauth.New(oauth.Options{Timeout: maxFetch, AllowHTTP: true, CABundle: trust, Reach: reach}) // the grants decide about addresses
	if err != nil {
		return nil, err
	}
	f := &fetcher{client: client, places: make(map[place]bool, len(s.HTTP)), slots: make(chan struct{}, maxFetches)}
	for _, entry := range s.HTTP {
		f.places[placeOf(entry)] = true
	}
	return f, nil
}

func (f *fetcher) close() {
	if f != nil {
		f.client.Close()
	}
}

// ErrNotAllowed is the error of what connects for a server, where it does not let it out.
var ErrNotAllowed = errors.New("the host is not allowed")

// askedBy is the key of a request's context in that of its connecting.
type askedBy struct{}

// ServerFetch returns what sends the HTTP requests of a server in WebAssembly, and follows no
// redirects. dial judges where a connection leads, at each: its error is, or wraps,
// ErrNotAllowed for what is refused. It ends with the request that it is for. done closes the
// connections that nothing uses.
func ServerFetch(dial func(ctx context.Context, network, address string) (net.Conn, error), reach edge.Reach) (fetch wasm.Outside, done func(), err error) {
	client, err := oauth.New(oauth.Options{Timeout: maxFetch, AllowHTTP: true, Reach: reach, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		// What an HTTP client of the standard library gives a dial outlives the request.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(ctx.Value(askedBy{}).(context.Context), cancel)()
		return dial(ctx, network, address)
	}})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, record []byte) ([]byte, int64) {
		q, wait, ok := fetchOf(record)
		if !ok {
			return nil, abi.ErrArgument
		}
		u, err := oauth.ParseURL(q.URL, true)
		switch {
		case err != nil:
			return nil, abi.ErrArgument
		case whereTo(u) == place{"http", whereTo(u).host, "443"}: // there TLS names the host, or nobody is let out
			return nil, abi.ErrDenied
		}
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		r, err := client.Do(context.WithValue(ctx, askedBy{}, ctx), q)
		switch {
		case errors.Is(err, ErrNotAllowed):
			return nil, abi.ErrDenied
		case errors.Is(err, oauth.ErrTooLarge):
			return nil, abi.ErrLimit
		case err != nil:
			return nil, unanswered(err, abi.Version)
		}
		return fetched(r), 0
	}, client.Close, nil
}

// fetch is http_call: it sends a request to a granted place and follows no
// redirects.
func (p *program) fetch(ctx context.Context, record []byte) ([]byte, int64) {
	f := p.fetcher
	if f == nil {
		return nil, abi.ErrDenied
	}
	q, wait, ok := fetchOf(record)
	if !ok {
		return nil, abi.ErrArgument
	}
	u, err := oauth.ParseURL(q.URL, true)
	switch {
	case err != nil:
		return nil, abi.ErrArgument
	case !f.places[whereTo(u)]:
		p.outward("a filter may not call this host: name it in grants.http, or use another "+p.spec.instead("script", "module"), "host", u.Host)
		return nil, abi.ErrDenied
	}
	call := ctx
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		return nil, abi.ErrUnavailable
	}
	r, err := f.client.Do(ctx, q)
	switch {
	case errors.Is(err, oauth.ErrTooLarge):
		return nil, abi.ErrLimit
	case err != nil && errors.Is(call.Err(), context.Canceled):
		p.log.Debug("a filter's HTTP request has no answer: the call was cancelled", "server", p.server, "filter", p.spec.Name, "host", u.Host)
		return nil, abi.ErrUnavailable
	case err != nil:
		p.outward("a filter's HTTP request got no answer", "host", u.Host, "error", errors.Unwrap(err)) // the wrapped error names the path, which may hold a secret
		return nil, unanswered(err, p.guest.Version())
	}
	return fetched(r), 0
}

// unanswered is what a guest of a version of the ABI hears of a request without
// an answer. A guest of 1.0 does not know the reasons apart.
func unanswered(err error, version uint32) int64 {
	var (
		name        *net.DNSError
		late        net.Error
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		alert       tls.AlertError
	)
	switch {
	case version&0xffff == 0:
		return abi.ErrUnavailable
	case errors.As(err, &name) && !name.IsTimeout:
		return abi.ErrName
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &late) && late.Timeout():
		return abi.ErrTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return abi.ErrRefused
	case errors.As(err, &certificate) || errors.As(err, &record) || errors.As(err, &alert):
		return abi.ErrTLS
	}
	return abi.ErrUnavailable
}

// outward logs a failed request of a program.
func (p *program) outward(what string, args ...any) {
	if p.lines.allow() {
		p.log.Warn(what, append([]any{"server", p.server, "filter", p.spec.Name}, args...)...)
	}
}

// fetchOf parses a request and its timeout. It reports false for a malformed
// one.
func fetchOf(record []byte) (q oauth.Request, wait time.Duration, ok bool) {
	q = oauth.Request{Method: http.MethodGet, Trust: oauth.Named, Header: http.Header{}, MaxBody: maxFetched}
	wait = maxFetch
	lines := 0
	r := abi.Reader{B: record}
	for r.Next() {
		switch r.Num {
		case abi.FetchMethod:
			q.Method = string(r.Data)
		case abi.FetchURL:
			q.URL = string(r.Data)
		case abi.FetchBody:
			q.Body = r.Data
		case abi.FetchTimeout:
			if r.Uint > 0 && r.Uint < uint64(maxFetch/time.Millisecond) {
				wait = time.Duration(r.Uint) * time.Millisecond
			}
		case abi.FetchHeader:
			name, value := headerOf(r.Data)
			if lines++; lines > maxFetchHead || !sendable(name, value) {
				return q, wait, false
			}
			q.Header.Add(name, value)
		}
	}
	switch q.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return q, wait, false
	}
	return q, wait, !r.Bad && utf8.ValidString(q.URL)
}

func headerOf(record []byte) (name, value string) {
	r := abi.Reader{B: record}
	for r.Next() {
		switch r.Num {
		case abi.HeaderName:
			name = string(r.Data)
		case abi.HeaderValue:
			value = string(r.Data)
		}
	}
	return name, value
}

// sendable reports whether a program may send a header line: those that frame
// the request are the edge's.
func sendable(name, value string) bool {
	if !outgoing.IsName(name) || len(value) > maxValue || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		return false
	}
	for _, free := range [...]string{"content-type", "accept", "user-agent"} {
		if strings.EqualFold(name, free) {
			return true
		}
	}
	return !outgoing.Restricted(name)
}

// fetched encodes the answer.
func fetched(r *oauth.Response) []byte {
	b := abi.AppendUint(nil, abi.FetchedStatus, uint64(r.Status))
	lines := 0
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		for _, v := range r.Header[name] {
			if lines++; lines > maxFetchHead || len(v) > maxValue {
				continue
			}
			line := abi.AppendString(abi.AppendString(nil, abi.HeaderName, strings.ToLower(name)), abi.HeaderValue, strings.ToValidUTF8(v, "\ufffd"))
			b = abi.AppendBytes(b, abi.FetchedHeader, line)
		}
	}
	return abi.AppendBytes(b, abi.FetchedBody, r.Body)
}
