package serve

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/session"
	"github.com/weir-edge/weir/filters"
	"github.com/weir-edge/weir/filters/authz"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/filters/incoming"
	"github.com/weir-edge/weir/filters/telemetry"
)

// live is what is served at a moment: the servers of one plan, open. It never
// changes; a reload opens another and puts it in its place. Only exchanges
// under way hold on to one that has been replaced.
type live struct {
	servers map[string]*server
	hosts   map[string]*session.Host // the same, as their sessions need them
	main    *server                  // the one that answers on /mcp; nil for none
	secrets *secret.Draft

	documents map[string][]byte // metadata of those that authenticate their clients, by path

	fetched *telemetry.Exposition // metrics that whoever reaches the main port may fetch; nil for none
	metrics *telemetry.Exposition // all there are, for the admin address
}

// open opens the servers of a plan. What has not changed since before is
// carried over as it is, with its connections, sessions and caches.
func (e *Edge) open(plan *compile.Plan, before *live) (*live, error) {
	if len(plan.Servers) == 0 {
		return nil, errors.New("a plan without servers cannot be served")
	}
	next := &live{servers: make(map[string]*server, len(plan.Servers)), hosts: make(map[string]*session.Host, len(plan.Servers)), secrets: e.secrets.Draft(plan.Secrets)}
	if err := needed(plan, next.secrets); err != nil {
		return nil, err
	}
	for _, p := range plan.Servers {
		s, err := e.openServer(p, next.secrets, before, len(plan.Servers) == 1 || p.Name == e.settings.DefaultServer)
		if err != nil {
			next.closeBut(before)
			return nil, err
		}
		next.servers[p.Name], next.hosts[p.Name] = s, s.host()
	}
	if name := e.settings.DefaultServer; name != "" {
		if next.main = next.servers[name]; next.main == nil {
			next.closeBut(before)
			return nil, fmt.Errorf("--default-server: there is no server %q", name)
		}
	} else if len(plan.Servers) == 1 {
		next.main = next.servers[plan.Servers[0].Name]
	}
	next.describe()
	if err := e.expose(next); err != nil {
		next.closeBut(before)
		return nil, err
	}
	return next, nil
}

// needed says which of the secrets that a plan needs are not there, or are not
// sound. Servers that are carried over must have theirs, too.
func needed(plan *compile.Plan, secrets edge.Secrets) error {
	var missing []error
	for _, n := range plan.Needs {
		if _, err := secrets.Secret(context.Background(), n.Name, n.Key); err != nil {
			missing = append(missing, fmt.Errorf("%s: %w", n, err))
		}
	}
	return errors.Join(missing...)
}

// describe lays out the documents that tell clients where to get a token
// (RFC 9728 §3.1: at the well-known path put before that of the resource).
func (l *live) describe() {
	const wellKnown = "/.well-known/oauth-protected-resource"
	l.documents = make(map[string][]byte)
	for name, s := range l.servers {
		if len(s.document) == 0 {
			continue
		}
		l.documents[wellKnown+"/servers/"+name+"/mcp"] = s.document
		if s == l.main {
			l.documents[wellKnown+"/mcp"], l.documents[wellKnown] = s.document, s.document
		}
	}
}

// openServer opens one server.
func (e *Edge) openServer(p compile.Server, secrets edge.Secrets, before *live, main bool) (*server, error) {
	var was *server
	if before != nil {
		was = before.servers[p.Name]
	}
	s := &server{edge: e, log: e.logOf(p), secrets: secrets, failure: p.Failure, outgoing: make(map[string]*outgoing.Spec)}
	s.info = append(mcp.AppendString(append(mcp.AppendString([]byte(`{"name":`), p.Title), `,"version":`...), e.version), '}')
	var err error
	if s.store, err = e.use(s, p.Name, p.Store); err != nil {
		return nil, fmt.Errorf("server %s: sessionStorage: %w", p.Name, err)
	}
	s.Server = route.New(e.behind(s, p))
	for _, b := range p.Backends {
		one, err := e.openBackend(p, b, secrets, was)
		if err != nil {
			s.closeBut(was)
			return nil, err
		}
		s.Add(one)
		s.outgoing[b.Name] = b.Outgoing
	}
	programs, err := guest.Load(p.Filters, secrets)
	if err != nil {
		s.closeBut(was)
		return nil, fmt.Errorf("server %s: %w", p.Name, err)
	}
	reads, err := telemetryReads(p, secrets)
	if err != nil {
		s.closeBut(was)
		return nil, fmt.Errorf("server %s: %w", p.Name, err)
	}
	s.digest = digestOf(struct {
		Plan     compile.Server
		Main     bool // which its metadata tell
		Reads    []string
		Store    string
		Programs []guest.Loaded
	}{p, main, reads, s.store.ID(), programs})
	if was != nil && was.digest == s.digest && slices.Equal(was.Backends, s.Backends) {
		s.settle()
		return was, nil
	}
	if err := e.authenticate(s, p, main); err != nil {
		s.closeBut(was)
		return nil, err
	}
	if err := e.openGuest(s, p, programs); err != nil {
		s.closeBut(was)
		return nil, err
	}
	if err := e.observe(s, was, p, main, reads); err != nil {
		s.closeBut(was)
		return nil, fmt.Errorf("server %s: %w", p.Name, err)
	}
	if p.Authz != nil {
		if s.policy = new(authz.Counters); was != nil && was.policy != nil {
			s.policy = was.policy
		}
	}
	entries, err := e.hallway(s, p, was)
	if err != nil {
		s.closeBut(was)
		return nil, err
	}
	s.chain = filters.Chain(append(entries, s.entries...), s.Server)
	if p.Debug {
		s.chain = s.debugged(s.chain)
	}
	if p.Bare && p.Authz == nil && s.guest.Overrides == nil { // policies and programs change lists, which takes a catalog
		s.OpenBare()
		return s, nil
	}
	var known *catalog.Book
	if was != nil {
		known = was.Book
	}
	s.Open(s.guest.Overrides, known, p.Failure.BestEffort, p.Failure.Interval)
	return s, nil
}

// behind is how the part of a server behind the hallway is made.
func (e *Edge) behind(s *server, p compile.Server) route.Options {
	o := route.Options{
		Name: p.Name, Info: s.info, Client: e.client(), Rules: p.Names, Wait: introductionWait, Log: s.log, Now: e.door.Clock.Now,
		Parked: e.parked, Replicas: e.replicas, Hallway: s.call,
		Path: func(node string) *relay.Link {
			if t := e.sessions.PathTo(s.store, node); t != nil {
				return &t.Link
			}
			return nil
		},
		Changed: func(c catalog.Changes) {
			for _, one := range e.sessions.Of(s.Name) {
				e.sessions.Tell(one, c)
			}
		},
	}
	if s.store != nil {
		o.Store = s.store
	}
	return o
}

// call takes a call of the edge's own through the hallway.
func (s *server) call(ctx context.Context, x *edge.Exchange) (_ *edge.Response, err error) {
	if x.Target, err = s.Target(ctx, x); err != nil {
		return s.observed(ctx, x, refusing(err))
	}
	return s.chain.Handle(ctx, x)
}

// openBackend opens a backend, or finds it open already.
func (e *Edge) openBackend(p compile.Server, b compile.Backend, secrets edge.Secrets, was *server) (*backend.Backend, error) {
	pem := []byte(b.CABundle)
	if b.CABundlePath != "" {
		var err error
		if pem, err = os.ReadFile(b.CABundlePath); err != nil {
			return nil, fmt.Errorf("backend %s: CA bundle: %w", b.Name, err)
		}
	}
	var roots *x509.CertPool
	if len(pem) > 0 {
		if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("backend %s: CA bundle: no certificate in PEM form", b.Name)
		}
	}
	own := p.Failure
	own.Report, own.BestEffort = 0, false // which are the server's
	digest := digestOf(struct {
		Backend compile.Backend
		Failure compile.Failure
		Roots   []byte
		Debug   bool
		Choice  bool
		Anybody bool // what clients did whom nobody asked who they are is in its sessions
	}{b, own, pem, p.Debug, choosing(p), p.Incoming == nil || p.Incoming.Type == incoming.Anonymous})
	attach, err := openCredential(e.log, p.Name, b, secrets, choosing(p))
	if err != nil {
		return nil, err
	}
	if was != nil {
		for _, open := range was.Backends {
			if open.Digest == digest {
				attach.done() // it has its own
				return open, nil
			}
		}
	}
	var breaker *health.Breaker
	if f := p.Failure.Breaker; f != nil {
		breaker = health.NewBreaker(b.Name, f.Threshold, f.Timeout)
	}
	opened, err := backend.Open(backend.Config{
		Name:       b.Name,
		Digest:     digest,
		URL:        b.URL,
		SSE:        b.Transport == compile.SSE,
		Roots:      roots,
		Private:    b.Private,
		Attach:     attach.to,
		Own:        attach.own,
		OwnFor:     attach.ownFor,
		Done:       attach.done,
		Rest:       e.settings.SessionTTL,
		Silence:    b.Timeout,
		Cap:        e.settings.CallCap,
		MaxMessage: e.settings.MaxMessage,
		MaxConns:   e.settings.MaxBackendConnections,
		Info:       e.client(),
		Breaker:    breaker,
		Recovered:  e.backendRecovered(p.Name, b.Name),
		Health: health.Config{
			Interval: p.Failure.Interval,
			Timeout:  p.Failure.Timeout,
			Rules:    health.Rules{Threshold: p.Failure.Threshold},
			Changed:  e.backendChanged(p.Name, b.Name),
		},
		Opened: e.sessions.OpenedUpstream,
		Agent:  "weir/" + e.version,
		Log:    e.logOf(p),
	})
	if err != nil {
		attach.done()
	}
	return opened, err
}

// client is JSON text of what the edge says of itself to backends.
func (e *Edge) client() []byte {
	return append(mcp.AppendString([]byte(`{"name":"weir","version":`), e.version), '}')
}

// backendChanged returns what is told when a backend's status has changed. One
// that is back may offer something else than before.
func (e *Edge) backendChanged(server, name string) func(health.Snapshot) {
	was := health.Unknown
	return func(now health.Snapshot) {
		e.log.Info("backend status", "server", server, "backend", name, "status", string(now.Is()), "message", now.Message)
		away := was == health.Unavailable || was == health.Unauthenticated
		was = now.Is()
		live := e.live.Load()
		if !away || live == nil || was != health.Ready && was != health.Degraded {
			return
		}
		if s := live.servers[server]; s != nil && s.Book != nil {
			s.Book.Drop(name)
		}
	}
}

// backendRecovered returns what is told when a backend has answered after a
// failure: what it did not list meanwhile it is asked for at once.
func (e *Edge) backendRecovered(server, name string) func() {
	return func() {
		live := e.live.Load()
		if live == nil {
			return
		}
		if s := live.servers[server]; s != nil && s.Book != nil {
			s.Book.Retry(name)
		}
	}
}

// digestOf tells one part of a plan from another.
func digestOf(part any) string {
	text, err := json.Marshal(part)
	if err != nil {
		panic(err) // a plan is data
	}
	sum := sha256.Sum256(text)
	return string(sum[:])
}

// close closes all of it at the end of the process. Servers close side by side:
// each may have to wait for a log or a collector that takes nothing.
func (l *live) close() {
	var work sync.WaitGroup
	for _, s := range l.servers {
		work.Go(s.close)
	}
	work.Wait()
}

// closeBut closes what other does not have, servers side by side.
func (l *live) closeBut(other *live) {
	var work sync.WaitGroup
	defer work.Wait()
	for name, s := range l.servers {
		var was *server
		if other != nil {
			was = other.servers[name]
		}
		if s != was {
			work.Go(func() { s.closeBut(was) })
		}
	}
}

// close ends the server and its backends, side by side: what one of them has to
// wait for holds up no other.
func (s *server) close() {
	s.stop()
	var work sync.WaitGroup
	for _, b := range s.Backends {
		work.Go(func() { b.CloseNow() })
	}
	work.Go(s.retired)
	work.Wait()
}

// closeBut ends the server, and closes the backends that other does not have.
func (s *server) closeBut(other *server) {
	s.settle()
	for _, b := range s.Backends {
		if other == nil || !slices.Contains(other.Backends, b) {
			b.Close()
		}
	}
}

// settle ends what the server itself has begun. Its exchanges can still be
// answered, but for lists.
func (s *server) settle() {
	s.stop()
	s.retired()
}

// stop ends what the server hears of its backends.
func (s *server) stop() {
	if s.Server != nil {
		s.Server.Close()
	}
}

// retired has everything end that was to end with the server.
func (s *server) retired() {
	for _, f := range s.after {
		f()
	}
}

// server returns the server of a path such as /servers/NAME/mcp, and the rest
// of the path; nil for none.
func (l *live) server(path string) (s *server, rest string) {
	switch path {
	case "/mcp", "/sse", "/messages":
		return l.main, path
	}
	path, ok := strings.CutPrefix(path, "/servers/")
	i := strings.IndexByte(path, '/')
	if !ok || i < 0 {
		return nil, ""
	}
	return l.servers[path[:i]], path[i:]
}

// all returns the servers by name.
func (l *live) all() []*server {
	var all []*server
	for _, name := range l.names() {
		all = append(all, l.servers[name])
	}
	return all
}

// names lists the servers.
func (l *live) names() []string {
	var all []string
	for name := range l.servers {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// errNoReload is what a reload of an edge without a configuration says.
var errNoReload = errors.New("there is no configuration to read again: the edge was started without one")

// errClosed is what a reload of an edge that has ended says.
var errClosed = errors.New("the edge has ended: there is nothing to reload")

// ReloadNow has the configuration read again and served. What is wrong with it
// is logged and shown by /status; the plan that was served goes on then.
func (e *Edge) ReloadNow() error {
	if e.reload == nil {
		return errNoReload
	}
	err := e.reload()
	if err == nil {
		e.badReload.Store(nil)
		e.reloads.Add(1)
		return nil
	}
	text := err.Error()
	e.badReload.Store(&text)
	e.badReloads.Add(1)
	e.log.Error("reload failed; what was served goes on", "error", err)
	return err
}

// administerReload answers POST /-/reload.
func (e *Edge) administerReload(ctx *fasthttp.RequestCtx) {
	switch err := e.ReloadNow(); {
	case errors.Is(err, errNoReload):
		plain(ctx, 409, err.Error()+"\n")
	case err != nil:
		plain(ctx, 422, err.Error()+"\n")
	default:
		plain(ctx, 200, "reloaded\n")
	}
}

// Reload serves another plan from now on. Sessions go on while their server
// exists, calls under way end as they began, and a plan that cannot be opened
// changes nothing.
func (e *Edge) Reload(plan *compile.Plan) error {
	e.reloading.Lock()
	defer e.reloading.Unlock()
	if e.closed {
		return errClosed
	}
	before := e.live.Load()
	next, err := e.open(plan, before)
	if err != nil {
		return err
	}
	e.live.Store(next)
	next.secrets.Adopt()
	changed := 0
	for name, old := range before.servers {
		s := next.servers[name]
		if s == old {
			continue
		}
		changed++
		e.each(func(x *exchange) {
			if x.Lasts && x.server == old {
				x.Cancel() // its client subscribes anew
			}
		})
		if s == nil {
			e.sessions.EndAll(func(one *session.Session) bool { return one.Server == name })
		} else {
			if old.store != nil && old.store != s.store {
				e.sessions.Depart(name, old.store, s.store)
			}
			e.moved(old, s)
		}
		e.work.Go(func() { e.retire(old, s) })
	}
	e.log.Info("reloaded", "servers", next.names(), "changed", changed)
	return nil
}

// moved takes the sessions of a server over to the one that stands in for it
// from now on.
func (e *Edge) moved(old, s *server) {
	for _, one := range e.sessions.Of(s.Name) {
		one.HearAgain()
		e.sessions.Tell(one, catalog.Changes{Tools: true, Prompts: true, Resources: true})
	}
}

// grace is how long a replaced server is kept whether it is used or not.
const grace = 2 * time.Second

// retire closes what of a replaced server nothing uses any longer: once its
// calls are over, or the drain timeout.
func (e *Edge) retire(old, s *server) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	// Whoever has just been told of the old server is not under way yet.
	soonest := time.Now().Add(grace)
	for by := time.Now().Add(max(e.settings.DrainTimeout, grace)); time.Now().Before(by); {
		busy := time.Now().Before(soonest)
		e.each(func(x *exchange) { busy = busy || x.server == old })
		if !busy {
			break
		}
		select {
		case <-e.end:
			by = time.Time{}
		case <-tick.C:
		}
	}
	old.settle()
	for _, b := range old.Backends {
		if s != nil && slices.Contains(s.Backends, b) {
			continue
		}
		for _, one := range e.sessions.Of(old.Name) {
			b.Leave(&one.Session)
		}
		b.Close()
	}
}
