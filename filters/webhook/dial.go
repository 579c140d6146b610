package webhook

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
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// dial makes the client of a webhook: the guarded one, unless the webhook wants
// a certificate of the edge or has one that is not to be verified. Errors name
// what a secret should hold, and show nothing of it.
func dial(h *hook, material [3]edge.Secret, reach edge.Reach) (client, error) {
	authorities, certificate, key := []byte(material[0]), []byte(material[1]), []byte(material[2])
	insecure := h.tls.InsecureSkipVerify
	if len(certificate) == 0 && !insecure {
		c, err := oauth.New(oauth.Options{CABundle: authorities, Timeout: h.timeout, Reach: reach})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.material(0), err)
		}
		return c, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: insecure}
	var err error
	if config.RootCAs, err = edge.Roots(authorities, reach.CAs); err != nil {
		return nil, fmt.Errorf("%s: it holds no PEM certificate", h.material(0))
	}
	if len(certificate) > 0 {
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("%s and %s do not hold a PEM certificate and its key", h.material(1), h.material(2))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	dialer := &net.Dialer{
		Timeout: oauth.DefaultTimeout,
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			return edge.MayDial(to.Addr(), true) // the operator named it
		},
	}
	return &direct{insecure: insecure, timeout: h.timeout, transport: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    oauth.DefaultTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}}, nil
}

// material names where one of the three comes from: the certificates to trust,
// the certificate, its key.
func (h *hook) material(i int) string {
	if h.files[i] != "" {
		return h.files[i]
	}
	return "tlsConfig." + [3]string{"caSecretRef", "clientCertSecretRef", "clientKeySecretRef"}[i]
}

// direct is a client with TLS of its own. It has the guards of the guarded one:
// the address is judged when it is dialled, nothing is redirected, size and time
// of an answer are bounded, and nothing is decompressed.
type direct struct {
	transport *http.Transport
	insecure  bool
	timeout   time.Duration
}

// Close closes connections that nothing uses.
func (d *direct) Close() { d.transport.CloseIdleConnections() }

// Do sends a request and reads the answer. Errors name the host and hold
// nothing of what a peer wrote.
func (d *direct) Do(ctx context.Context, r oauth.Request) (*oauth.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	u, err := oauth.ParseURL(r.URL, d.insecure)
	if err != nil {
		return nil, err
	}
	fail := func(err error) error {
		return fmt.Errorf("%s %s: %w", r.Method, (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String(), err)
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil { // behind a proxy nothing else judges it
		if err := edge.MayDial(addr, true); err != nil {
			return nil, fail(err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, fail(errors.New("the request is malformed"))
	}
	req.Header = r.Header.Clone()
	req.Header.Set("User-Agent", "weir")
	resp, err := d.transport.RoundTrip(req)
	if err != nil {
		return nil, fail(oauth.Unsaid(err))
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Encoding") != "" {
		return nil, fail(errors.New("the answer is compressed, which was not asked for"))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, r.MaxBody+1))
	if err != nil {
		return nil, fail(fmt.Errorf("read the answer: %w", oauth.Unsaid(err)))
	}
	if int64(len(body)) > r.MaxBody {
		return nil, fail(fmt.Errorf("the answer is larger than %d bytes", r.MaxBody))
	}
	return &oauth.Response{Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}
