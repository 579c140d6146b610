package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/serve"
)

const (
	patients = 8               // backends that are looked at at a time
	dialing  = 5 * time.Second // for which the edge waits for a connection with TLS
)

// patient is a backend that is looked at.
type patient struct {
	doctor  *doctor
	subject string // SERVER/BACKEND
	plan    compile.Backend
	url     *url.URL
	roots   *x509.CertPool // nil for those of the system
	limits  serve.Settings
	secrets edge.Secrets

	shown *edge.Credential // after credential; nil for nothing to send
	after []func()         // end what it holds

	checks []check
	conn   net.Conn         // after connect
	open   *backend.Backend // after introduce; nil for one that gave no introduction
}

// server looks at the backends of a server, and at what clients see of them.
func (d *doctor) server(ctx context.Context, s compile.Server, limits serve.Settings, secrets edge.Secrets) []check {
	all := make([]*patient, len(s.Backends))
	room := make(chan struct{}, patients)
	var work sync.WaitGroup
	for i, b := range s.Backends {
		all[i] = &patient{doctor: d, subject: s.Name + "/" + b.Name, plan: b, limits: limits, secrets: secrets}
		work.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			all[i].look(ctx)
		})
	}
	work.Wait()
	var checks []check
	for _, p := range all {
		checks = append(checks, p.checks...)
		for _, f := range p.after {
			defer f()
		}
		if p.open != nil {
			defer p.open.Close()
		}
	}
	return append(checks, d.offers(ctx, s, all)...)
}

// look takes the steps of one backend until one fails.
func (p *patient) look(ctx context.Context) {
	var err error
	if p.url, err = url.Parse(p.plan.URL); err != nil {
		p.checks = append(p.checks, p.doctor.tell(check{Step: "resolve", Subject: p.subject, Level: levelProblem, Class: inManifests, Cause: "its URL is none", Next: "correct the URL"}))
		return
	}
	if path := p.plan.CABundlePath; path != "" && p.url.Scheme == "https" {
		if !p.step(ctx, "files", func(context.Context) check { return p.bundle(path) }) {
			return
		}
	} else if p.plan.CABundle != "" {
		p.roots = x509.NewCertPool()
		p.roots.AppendCertsFromPEM([]byte(p.plan.CABundle)) // compile has refused what holds none
	}
	if p.plan.Outgoing != nil && !p.step(ctx, "secrets", p.credential) {
		return
	}
	if !p.step(ctx, "resolve", p.resolve) || !p.step(ctx, "connect", p.connect) {
		return
	}
	trusted := p.url.Scheme != "https" || p.step(ctx, "tls", p.secure)
	_ = p.conn.Close() // nothing was written to it
	if trusted {
		p.step(ctx, "introduce", p.introduce)
	}
}

// step takes a step, and reports whether the next one can be taken.
func (p *patient) step(ctx context.Context, name string, f func(context.Context) check) bool {
	c := p.doctor.step(ctx, name, p.subject, f)
	p.checks = append(p.checks, c)
	return c.Level != levelProblem
}

func (p *patient) bundle(path string) check {
	var err error
	if p.roots, err = certificates(path); err != nil {
		return problem(inFile, "name a file with certificates in PEM in caBundlePath", "%v", err)
	}
	return fine(path)
}

// address is host:port of the backend.
func (p *patient) address() string {
	port := p.url.Port()
	if port == "" {
		port = "80"
		if p.url.Scheme == "https" {
			port = "443"
		}
	}
	return net.JoinHostPort(p.url.Hostname(), port)
}

// endpoint is the URL without what may be secret in it.
func (p *patient) endpoint() string {
	u := *p.url
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// resolve finds the addresses of the host, and whether the edge may go there.
func (p *patient) resolve(ctx context.Context) check {
	host := p.url.Hostname()
	found := []netip.Addr{}
	if addr, err := netip.ParseAddr(host); err == nil {
		found = append(found, addr)
	} else if found, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
		return p.unresolved(host, err)
	}
	var shown []string
	var refused error
	for _, addr := range found {
		if err := edge.MayDial(addr, p.plan.Private); err != nil {
			refused = err
			continue
		}
		shown = append(shown, addr.Unmap().String())
	}
	if len(shown) == 0 && refused != nil {
		return p.forbidden(refused)
	}
	return fine(strings.Join(shown[:min(len(shown), 4)], ", "))
}

func (p *patient) unresolved(host string, err error) check {
	next := "check how the host is spelt in the URL, and that this machine's name server knows it"
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return problem(ofDNS, next, "there is no address for host %q", host)
	case errors.As(err, &dns) && dns.IsTimeout, errors.Is(err, context.DeadlineExceeded):
		return problem(ofDNS, "check the name server of this machine", "the name server did not answer for host %q", host)
	}
	return problem(ofDNS, next, "no address for host %q: %v", host, err)
}

// forbidden explains an address that the edge does not connect to.
func (p *patient) forbidden(err error) check {
	next := "name the backend by another address: no backend may be there"
	var address *edge.AddressError
	if errors.As(err, &address) && edge.MayDial(address.Addr, true) == nil {
		next = "set allowPrivateEndpoint: true on its MCPServerEntry or MCPRemoteProxy if that is meant"
	}
	return problem(ofPrivacy, next, "host %q: %v", p.url.Hostname(), err)
}

// judge looks at an address before it is connected to, as the edge does.
func (p *patient) judge(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return edge.MayDial(at.Addr(), p.plan.Private)
}

func (p *patient) connect(ctx context.Context) check {
	ctx, cancel := context.WithTimeout(ctx, dialing)
	defer cancel()
	conn, err := (&net.Dialer{Control: p.judge}).DialContext(ctx, "tcp", p.address())
	if err == nil {
		p.conn = conn
		return fine(conn.RemoteAddr().String())
	}
	var address *edge.AddressError
	var dns *net.DNSError
	switch {
	case errors.As(err, &address):
		return p.forbidden(err)
	case errors.As(err, &dns):
		return p.unresolved(p.url.Hostname(), err)
	case nobody(err):
		return problem(ofRefusal, "start the backend, or correct host and port of its URL", "nobody listens at %s", p.address())
	case ctx.Err() != nil || timedOut(err):
		return problem(ofSilence, "check that the backend's machine runs and that no firewall stands between", "%s does not take a connection within %s", p.address(), min(p.doctor.timeout, dialing))
	}
	return problem(ofWay, "check the network between this machine and the backend", "no connection to %s: %v", p.address(), cause(err))
}

func timedOut(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

// cause is what the network says went wrong, without the addresses before it.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// trust is how the edge trusts the backend.
func (p *patient) trust() *tls.Config {
	return &tls.Config{RootCAs: p.roots, MinVersion: tls.VersionTLS12, ServerName: p.url.Hostname(), NextProtos: []string{"http/1.1"}}
}

func (p *patient) secure(ctx context.Context) check {
	ctx, cancel := context.WithTimeout(ctx, dialing)
	defer cancel()
	t := tls.Client(p.conn, p.trust())
	if err := t.HandshakeContext(ctx); err != nil {
		return p.untrusted(ctx, err, time.Now())
	}
	leaf := t.ConnectionState().PeerCertificates[0]
	if time.Now().Add(expiresSoon).After(leaf.NotAfter) {
		return warning(ofTLS, "have whoever runs the backend get a new certificate before that", "its certificate is valid until %s only", day(leaf.NotAfter))
	}
	return fine(tls.VersionName(t.ConnectionState().Version) + ", certificate valid until " + day(leaf.NotAfter))
}

// credential opens what the edge sends the backend besides its calls.
func (p *patient) credential(context.Context) check {
	var err error
	env := edge.Env{Log: slog.New(slog.DiscardHandler), Secrets: p.secrets, Defer: func(f func()) { p.after = append(p.after, f) }}
	if p.shown, err = p.plan.Outgoing.Open(env); err != nil {
		return problem(inSecret, "put a value into that place that can stand in a header", "%v", err)
	}
	return fine(p.plan.Outgoing.Type())
}

// config is what a backend of the edge is told, with the bounds of the doctor.
func (p *patient) config(sse bool) backend.Config {
	info := mcp.AppendString([]byte(`{"name":"weir","version":`), thisBuild().Version)
	return backend.Config{
		Name: p.plan.Name, URL: p.plan.URL, SSE: sse, Roots: p.roots, Private: p.plan.Private, Credential: p.shown,
		Health:  health.Config{Interval: time.Hour, Timeout: p.doctor.timeout},
		Silence: p.doctor.timeout, Cap: p.doctor.timeout, MaxMessage: p.limits.MaxMessage,
		Info: append(info, '}'), Agent: "weir/" + thisBuild().Version, Log: slog.New(slog.DiscardHandler),
	}
}

// introduce has the backend say what it speaks, as the edge does.
func (p *patient) introduce(ctx context.Context) check {
	in, err := p.introduced(ctx, p.plan.Transport == compile.SSE)
	switch {
	case err == nil && in.SSE && p.plan.Transport != compile.SSE:
		return warning(ofTransport, "set transport: sse, which saves the edge an attempt", "it speaks HTTP with SSE, the older transport")
	case err == nil && p.open.Crosses(ctx):
		return warning(ofAnswers, "put a bridge before it that answers each client alone, such as supergateway with --outputTransport streamableHttp --stateful; answers find who asked all the same, questions of the server and its log messages may not", "an answer to one session came to another: it is a bridge that answers all its clients (%s)", spoken(in))
	case err == nil:
		return fine(spoken(in))
	case p.plan.Transport == compile.SSE && ctx.Err() == nil:
		if other, failed := p.introduced(ctx, false); failed == nil && !other.SSE {
			return problem(ofTransport, "set transport: streamable-http", "it does not speak HTTP with SSE, but streamable HTTP (%s)", spoken(other))
		}
	}
	return p.explain(ctx, err)
}

func spoken(in *backend.Introduction) string {
	text := in.Era.String() + " era, revision " + in.Version
	if in.SSE {
		text += ", HTTP with SSE"
	}
	return text
}

// introduced opens the backend as one of a transport and waits for what it says.
// The one that spoke last is the patient's.
func (p *patient) introduced(ctx context.Context, sse bool) (*backend.Introduction, error) {
	open, err := backend.Open(p.config(sse))
	if err != nil {
		return nil, err
	}
	in, err := open.Introduced(ctx)
	if err != nil || p.plan.Transport == compile.SSE && !sse {
		return in, errors.Join(err, open.Close())
	}
	p.open = open
	return in, nil
}

// offering is a backend as the catalog sees it.
type offering struct{ *backend.Backend }

func (o offering) Name() string   { return o.Backend.Name }
func (o offering) Personal() bool { return false }

func (o offering) Capabilities(ctx context.Context) ([]byte, error) {
	in, err := o.Introduced(ctx)
	if err != nil {
		return nil, fmt.Errorf("introduction: %w", err)
	}
	return in.Capabilities, nil
}
