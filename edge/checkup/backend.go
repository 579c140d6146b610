// Package checkup looks at the backends of a server as the edge would use them,
// step by step, and at what clients would see of them: for each thing that is in
// the way it says the cause and what to do next.
//
// backend.go has the steps of one backend, explain.go what is made of a
// connection or an answer that is not what was hoped for, names.go what all of
// them offer.
package checkup

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/wire"
)

// patients is how many backends are looked at at a time.
const patients = 8

// Config says how to look.
type Config struct {
	Timeout    time.Duration // of a step
	MaxMessage int           // of a backend, in bytes
	Version    string        // of the edge
	Secrets    edge.Secrets  // nil for none
	Reach      edge.Reach    // of requests of the edge's own

	// User is for whom backends are asked that answer users alone; nil for nobody. Others are
	// asked without.
	User *edge.Identity

	// Step takes a step, within Timeout, and tells of it. It is called from
	// several goroutines.
	Step func(ctx context.Context, step, subject string, f func(context.Context) edge.Finding) edge.Finding

	// Offers is told what the backends of a server offer, and which of them did not say; nil
	// for nobody.
	Offers func(c *catalog.Catalog, absent []string)
}

// patient is a backend under examination.
type patient struct {
	Config
	subject string // SERVER/BACKEND
	plan    compile.Backend
	url     *url.URL
	roots   *x509.CertPool // nil for those of the system
	bundled bool           // they are those of a bundle of its own

	shown *edge.Credential // after credential; nil for nothing to send
	after []func()         // end what it holds

	checks []edge.Finding
	conn   net.Conn         // after connect
	open   *backend.Backend // after introduce; nil for one that gave no introduction
}

// Server looks at the backends of a server, and at what clients see of them.
func (c Config) Server(ctx context.Context, s compile.Server) []edge.Finding {
	all := make([]*patient, len(s.Backends))
	room := make(chan struct{}, patients)
	var work sync.WaitGroup
	for i, b := range s.Backends {
		all[i] = &patient{Config: c, subject: s.Name + "/" + b.Name, plan: b}
		work.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			all[i].look(ctx)
		})
	}
	work.Wait()
	var checks []edge.Finding
	for _, p := range all {
		checks = append(checks, p.checks...)
		for _, f := range p.after {
			defer f()
		}
		if p.open != nil {
			defer p.open.Close()
		}
	}
	return append(checks, c.offers(ctx, s, all)...)
}

// look takes the steps of one backend until one fails.
func (p *patient) look(ctx context.Context) {
	if w := p.plan.Workload; w != nil { // which only the edge starts
		p.step(ctx, "files", func(context.Context) edge.Finding { return started(w) })
		return
	}
	var err error
	if p.url, err = url.Parse(p.plan.URL); err != nil {
		p.step(ctx, "resolve", func(context.Context) edge.Finding {
			return edge.Problem(edge.ClassManifest, "correct the URL", "its URL is none")
		})
		return
	}
	if path := p.plan.CABundlePath; path != "" && p.url.Scheme == "https" {
		if !p.step(ctx, "files", func(context.Context) edge.Finding { return p.bundle(path) }) {
			return
		}
	} else {
		p.bundled = p.plan.CABundle != ""
		p.roots, _ = edge.Roots([]byte(p.plan.CABundle), p.Reach.CAs) // compile and Settings.Reach have refused what holds none
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

// started looks at what the edge starts a server of, as far as that is a file of this machine.
func started(w *compile.Workload) edge.Finding {
	what := w.Program
	switch {
	case w.Form == compile.FormLocal:
		if _, err := exec.LookPath(what); err != nil {
			return edge.Problem(edge.ClassFile, "install it, or correct spec.image", "the program %s cannot be run here: %v", what, err)
		}
	case w.Image != "":
		what = w.Image
	case strings.HasPrefix(what, "https://"):
		what = withoutQuery(what)
	default:
		info, err := os.Stat(what)
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is no file", what)
		} else if err == nil {
			var f *os.File
			if f, err = edge.OpenFile(what); err == nil {
				err = f.Close()
			}
		}
		if err != nil {
			return edge.Problem(edge.ClassFile, "make the module, or correct spec.image", "the module cannot be read: %v", err)
		}
	}
	return edge.Finding{Level: edge.LevelNote, Cause: "the edge starts " + what + ", which was not done to look at it"}
}

// step takes a step, and reports whether the next one can be taken.
func (p *patient) step(ctx context.Context, name string, f func(context.Context) edge.Finding) bool {
	c := p.Step(ctx, name, p.subject, f)
	p.checks = append(p.checks, c)
	return c.Level != edge.LevelProblem
}

func (p *patient) bundle(path string) edge.Finding {
	_, err := edge.Authorities(path)
	var pem []byte
	if err == nil {
		pem, err = edge.ReadKeys(path)
	}
	if err == nil {
		p.bundled = true
		p.roots, err = edge.Roots(pem, p.Reach.CAs)
	}
	if err != nil {
		return edge.Problem(edge.ClassFile, "name a file with certificates in PEM in caBundlePath", "%v", err)
	}
	return edge.Fine(path)
}

// endpoint is the URL without what may be secret in it.
func (p *patient) endpoint() string {
	return withoutQuery(p.plan.URL)
}

// resolve finds the addresses of the host, and whether the edge may go there.
func (p *patient) resolve(ctx context.Context) edge.Finding {
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
	return edge.Fine(strings.Join(shown[:min(len(shown), 4)], ", "))
}

func (p *patient) unresolved(host string, err error) edge.Finding {
	next := "check how the host is spelt in the URL, and that this machine's name server knows it"
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return edge.Problem(edge.ClassDNS, next, "there is no address for host %q", host)
	case errors.As(err, &dns) && dns.IsTimeout, errors.Is(err, context.DeadlineExceeded):
		return edge.Problem(edge.ClassDNS, "check the name server of this machine", "the name server did not answer for host %q", host)
	}
	return edge.Problem(edge.ClassDNS, next, "no address for host %q: %v", host, err)
}

// forbidden explains an address that the edge does not connect to.
func (p *patient) forbidden(err error) edge.Finding {
	next := "name the backend by another address: no backend may be there"
	var address *edge.AddressError
	if errors.As(err, &address) {
		err = address
	}
	if address != nil && edge.MayDial(address.Addr, true) == nil {
		next = "set allowPrivateEndpoint: true on its MCPServerEntry or MCPRemoteProxy if that is meant"
	}
	return edge.Problem(edge.ClassPrivate, next, "host %q: %v", p.url.Hostname(), err)
}

func (p *patient) connect(ctx context.Context) edge.Finding {
	ctx, cancel := context.WithTimeout(ctx, wire.DialTimeout)
	defer cancel()
	conn, err := wire.Dialer(p.plan.Private).DialContext(ctx, "tcp", wire.Address(p.url))
	if err == nil {
		p.conn = conn
		return edge.Fine(conn.RemoteAddr().String())
	}
	var address *edge.AddressError
	var dns *net.DNSError
	switch {
	case errors.As(err, &address):
		return p.forbidden(err)
	case errors.As(err, &dns):
		return p.unresolved(p.url.Hostname(), err)
	case nobody(err):
		return edge.Problem(edge.ClassRefused, "start the backend, or correct host and port of its URL", "nobody listens at %s", wire.Address(p.url))
	case ctx.Err() != nil || timedOut(err):
		return edge.Problem(edge.ClassTimeout, "check that the backend's machine runs and that no firewall stands between", "%s does not take a connection within %s", wire.Address(p.url), min(p.Timeout, wire.DialTimeout))
	}
	return edge.Problem(edge.ClassUnreachable, "check the network between this machine and the backend", "no connection to %s: %v", wire.Address(p.url), cause(err))
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

func (p *patient) secure(ctx context.Context) edge.Finding {
	ctx, cancel := context.WithTimeout(ctx, wire.DialTimeout)
	defer cancel()
	t := tls.Client(p.conn, wire.TLS(p.url, p.roots))
	if err := t.HandshakeContext(ctx); err != nil {
		return p.untrusted(ctx, err, time.Now())
	}
	leaf := t.ConnectionState().PeerCertificates[0]
	if time.Now().Add(edge.ExpiresSoon).After(leaf.NotAfter) {
		return edge.Warning(edge.ClassTLS, "have whoever runs the backend get a new certificate before that", "its certificate is valid until %s only", edge.Day(leaf.NotAfter))
	}
	return edge.Fine(tls.VersionName(t.ConnectionState().Version) + ", certificate valid until " + edge.Day(leaf.NotAfter))
}

// credential opens the credential that the edge sends the backend.
func (p *patient) credential(context.Context) edge.Finding {
	var err error
	env := edge.Env{Log: slog.New(slog.DiscardHandler), Secrets: p.Secrets, Reach: p.Reach, Upstreams: edge.Nobody{}, Defer: func(f func()) { p.after = append(p.after, f) }}
	if p.shown, err = p.plan.Outgoing.Open(env); err != nil {
		return edge.Problem(edge.ClassSecret, "put a value into that place that can stand in a header", "%v", err)
	}
	return edge.Fine(p.plan.Outgoing.Type())
}

// config is what a backend of the edge is told, with the bounds of the doctor.
func (p *patient) config(sse bool) backend.Config {
	info := mcp.AppendString([]byte(`{"name":"weir","version":`), p.Version)
	return backend.Config{
		Name: p.plan.Name, URL: p.plan.URL, SSE: sse, Roots: p.roots, Private: p.plan.Private, Credential: p.shown,
		Health:  health.Config{Interval: time.Hour, Timeout: p.Timeout},
		Silence: p.Timeout, Cap: p.Timeout, MaxMessage: p.MaxMessage,
		Info: append(info, '}'), Agent: "weir/" + p.Version, Log: slog.New(slog.DiscardHandler),
	}
}

// introduce asks the backend which protocol it speaks, as the edge does.
func (p *patient) introduce(ctx context.Context) edge.Finding {
	in, err := p.introduced(ctx, p.plan.Transport == compile.SSE)
	switch {
	case err == nil && in.SSE && p.plan.Transport != compile.SSE:
		return edge.Warning(edge.ClassTransport, "set transport: sse, which saves the edge an attempt", "it speaks HTTP with SSE, the older transport")
	case err == nil && p.open.Crosses(ctx):
		return edge.Warning(edge.ClassAnswers, "put a bridge before it that answers each client alone, such as supergateway with --outputTransport streamableHttp --stateful; answers find who asked all the same, questions of the server and its log messages may not", "an answer to one session came to another: it is a bridge that answers all its clients (%s)", spoken(in))
	case err == nil:
		return edge.Fine(spoken(in))
	case p.personal() && p.User == nil && refused(err):
		return edge.Fine("it answers users alone: with --token-file it is asked for one")
	case p.personal() && p.User != nil:
		if found, wrong := p.ofUser(ctx, err); wrong {
			return found
		}
	case p.plan.Transport == compile.SSE && ctx.Err() == nil:
		if other, failed := p.introduced(ctx, false); failed == nil && !other.SSE {
			return edge.Problem(edge.ClassTransport, "set transport: streamable-http", "it does not speak HTTP with SSE, but streamable HTTP (%s)", spoken(other))
		}
	}
	return p.explain(ctx, err)
}

// personal reports whether the credential of a backend depends on the user.
func (p *patient) personal() bool { return p.shown != nil && p.shown.Personal }

// exchange is what a request to the backend is made for; nil for the edge itself.
func (p *patient) exchange() *edge.Exchange {
	if p.User == nil || !p.personal() {
		return nil
	}
	return &edge.Exchange{Identity: p.User}
}

// ofUser says what is wrong with the credential of the user, where that is why the backend
// gave no introduction.
func (p *patient) ofUser(ctx context.Context, err error) (_ edge.Finding, wrong bool) {
	shows := "`weir auth test " + p.subject + "` with the same files shows how it is got, and what to mend"
	body := []byte(`{}`)
	asked := &edge.Outbound{Exchange: p.exchange(), Method: http.MethodPost, URL: p.url, Lines: []byte("\r\nHost: " + p.url.Host), Body: body}
	if _, failed := p.shown.Attach(ctx, asked, func(string, edge.Secret) {}); failed != nil {
		text := failed.Error()
		var e *edge.Error
		if errors.As(failed, &e) && e.Op != "" {
			text = strings.TrimPrefix(e.Op, "outgoing: ") // the reason, as the log has it
		}
		if errors.Is(failed, edge.ErrNobody) {
			return edge.Fine("it answers users alone: " + edge.Brief(text)), true
		}
		return edge.Problem(edge.ClassCredential, shows, "no credential for the user: %s", edge.Brief(text)), true
	}
	var r interface{ HTTPStatus() int }
	if refused(err) && errors.As(err, &r) {
		return edge.Problem(edge.ClassCredential, shows+"; check with whoever runs the backend whom and what it is for", "%s answers %d to the credential of the user", p.endpoint(), r.HTTPStatus()), true
	}
	return edge.Finding{}, false
}

// refused reports whether a backend wants a credential, or another one.
func refused(err error) bool {
	var r interface{ HTTPStatus() int }
	return errors.As(err, &r) && (r.HTTPStatus() == http.StatusUnauthorized || r.HTTPStatus() == http.StatusForbidden)
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
	in, err := open.Introduced(ctx, p.User)
	if err != nil || p.plan.Transport == compile.SSE && !sse {
		return in, errors.Join(err, open.Close())
	}
	p.open = open
	return in, nil
}

// offering is a backend as the catalog sees it: what one that answers users alone offers to
// the user is what it offers.
type offering struct {
	*backend.Backend
	user *edge.Identity // nil for nobody, and for a backend that is not personal
}

func (o offering) Name() string { return o.Backend.Name }

func (o offering) Personal() bool { return o.Backend.Personal() && o.user == nil }

func (o offering) List(ctx context.Context, _ *edge.Identity, method string, cursor *string) ([]byte, error) {
	return o.Backend.List(ctx, o.user, method, cursor)
}

func (o offering) Capabilities(ctx context.Context, _ *edge.Identity) ([]byte, error) {
	in, err := o.Introduced(ctx, o.user)
	if err != nil {
		return nil, fmt.Errorf("introduction: %w", err)
	}
	return in.Capabilities, nil
}

// nobody reports whether nobody listens at an address.
func nobody(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.Errno(10061))
}
