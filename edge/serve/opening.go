package serve

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/health"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/optimizer"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/relay"
	"github.com/weir-edge/weir/edge/route"
	"github.com/weir-edge/weir/filters"
	"github.com/weir-edge/weir/filters/guest"
	"github.com/weir-edge/weir/filters/incoming"
)

// opening opens one server of a plan.
type opening struct {
	edge    *Edge
	plan    compile.Server
	secrets edge.Secrets
	door    *doorway // by which its clients come
	main    bool     // it answers on /mcp there
	was     *server  // the one of its name before; nil for none

	// What it is made from, apart from the plan.
	store    *sharing // nil for the memory of the process
	backends []backing
	programs []guest.Loaded
	reads    []string // secrets and files of its telemetry
	issuer   *issuing // of the tokens of its clients, where it is in this process; else nil
	trusts   []byte   // certificates in PEM that its own requests trust, besides those of the process
}

// backing is a backend of the plan with the files that it names.
type backing struct {
	compile.Backend
	digest string
	roots  *x509.CertPool // nil for those of the system
}

// open opens the server, or finds one that is made from the same, which goes on.
func (o *opening) open() (*server, func(), error) {
	digest, err := o.read()
	if err != nil && o.stays() {
		o.edge.log.Warn("what a server is made from cannot be read any more: it goes on as it was", "server", o.plan.Name, "error", err)
		digest, err = o.was.digest, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return o.edge.world.servers.Get(digest, func() (*server, func(), error) {
		s, err := o.make()
		if s.digest = digest; o.edge.given.doors {
			s.planned = o.said()
		}
		return s, s.close, err
	})
}

// stays reports whether the server goes on where what it is made from cannot be read any more. A
// process whose doors are all of the plan serves what has nothing to do with each other: a file
// that one lacks keeps no other from being opened and closed.
func (o *opening) stays() bool {
	return o.edge.given.doors && o.was != nil && o.was.planned == o.said()
}

// said is the digest of what the plan says of the server.
func (o *opening) said() string {
	return digestOf(struct {
		Plan compile.Server
		Main bool   // its metadata document names it
		Base string // that document, too, at a door of the plan
	}{o.plan, o.main, o.planned()})
}

// read reads what the server is made from, and returns a digest of all of it. It fails for
// a secret that is missing or cannot be used, also if the server goes on: a set is served
// with sound secrets or not at all.
func (o *opening) read() (digest string, err error) {
	p := o.plan
	if o.trusts, err = edge.MoreRoots(p.Roots); err != nil {
		return "", err
	}
	if err := o.readIssuer(); err != nil {
		return "", err
	}
	if o.store, err = o.sharing(); err != nil {
		return "", fmt.Errorf("sessionStorage: %w", err)
	}
	var issuer []byte // whom the keys of clients' tokens are fetched from
	if p.Incoming != nil {
		if issuer, err = edge.MoreRoots(p.Incoming.CABundlePath); err != nil {
			return "", fmt.Errorf("incoming: %w", err)
		}
	}
	var digests []string
	for _, b := range p.Backends {
		one, err := o.backing(b)
		if err != nil {
			return "", fmt.Errorf("backend %s: %w", b.Name, err)
		}
		o.backends, digests = append(o.backends, one), append(digests, one.digest)
	}
	if o.programs, err = guest.Load(p.Filters, o.secrets); err != nil {
		return "", err
	}
	if o.reads, err = telemetryReads(p, o.secrets); err != nil {
		return "", err
	}
	return digestOf(struct {
		Plan     compile.Server
		Main     bool   // its metadata document names it
		Base     string // that document, too, at a door of the plan
		Store    string
		Backends []string
		Programs []guest.Loaded
		Reads    []string
		Trusts   []byte
		Incoming []byte
		Issuer   *issuing
	}{p, o.main, o.planned(), o.store.id(), digests, o.programs, o.reads, o.trusts, issuer, o.issuer}), nil
}

// planned is the URL of the server's door where the plan says where that is; "" at the door
// of the process, which stays where it is.
func (o *opening) planned() string {
	if o.door.plan.Name == "" {
		return ""
	}
	return o.base()
}

// base is the URL of the server's door as its clients see it, without a path.
func (o *opening) base() string { return o.door.base(o.edge.settings.TLSCert != "") }

// backing reads what a backend is made from.
func (o *opening) backing(b compile.Backend) (backing, error) {
	one, p := backing{Backend: b}, o.plan
	if err := o.startable(b.Workload); err != nil {
		return one, err
	}
	pem := []byte(b.CABundle)
	var err error
	if b.CABundlePath != "" { // an empty one is an error: those of the system are not meant
		if pem, err = edge.MoreRoots(b.CABundlePath); err != nil {
			return one, err
		}
	}
	if one.roots, err = edge.Roots(pem, o.edge.world.trusted(o.trusts)); err != nil {
		return one, err
	}
	own := p.Failure
	own.Report, own.BestEffort = 0, false // which are the server's
	one.digest = digestOf(struct {
		Backend compile.Backend
		Failure compile.Failure
		Roots   []byte
		Trusts  []byte
		Debug   bool
		Choice  bool
		Anybody bool          // its pooled sessions hold what anonymous clients did
		Rest    time.Duration // how long they may go unused
		Issuer  *issuing
	}{b, own, pem, o.trusts, p.Debug, o.choosing(), p.Incoming == nil || p.Incoming.Type == incoming.Anonymous, p.SessionTTL, o.issuer})
	sound := o.credentials()
	if o.issuer != nil {
		sound.Upstreams = edge.Nobody{}
	}
	defer sound.close()
	_, err = b.Outgoing.Open(sound.Env)
	return one, err
}

// credentials is the world that credentials of backends may touch, and what to close with
// them.
type credentials struct {
	edge.Env
	after releases
}

func (o *opening) credentials() *credentials {
	c := &credentials{}
	shared, release := o.edge.world.share(o.plan.Name)
	c.after.add(release)
	http, reach, done := o.edge.world.requests(o.trusts)
	c.after.add(done)
	c.Env = edge.Env{Log: o.edge.log, Secrets: o.secrets, HTTP: http, Reach: reach, Now: time.Now, Defer: c.after.add, Shared: shared, Made: o.edge.made(o.plan.Name)}
	return c
}

func (c *credentials) close() { c.after.run() }

// choosing reports whether programs of the server may choose credentials.
func (o *opening) choosing() bool {
	return slices.ContainsFunc(o.plan.Filters, func(f guest.Spec) bool { return len(f.Credentials) > 0 })
}

// make makes the server.
func (o *opening) make() (s *server, err error) {
	e, p := o.edge, o.plan
	s = &server{
		edge: e, log: o.log(), secrets: o.secrets, failure: p.Failure, outgoing: make(map[string]*outgoing.Spec),
		prefix: p.Prefix, believes: p.Forwarded, ttl: p.SessionTTL, older: p.Older, trusts: o.trusts,
		judged: p.Conditions, metadata: p.Metadata, about: make(map[string]map[string]string),
	}
	if p.Stateless {
		s.stateless = &pooled{}
	}
	s.info = append(mcp.AppendString(append(mcp.AppendString([]byte(`{"name":`), p.Title), `,"version":`...), e.given.version), '}')
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	// 1. The store that it shares, and what is behind the hallway.
	shared, release := e.world.share(p.Name)
	s.after.add(release)
	s.shared, s.exchanged = shared, exchangedOf(shared)
	if err := o.share(s); err != nil {
		return s, fmt.Errorf("sessionStorage: %w", err)
	}
	if o.issuer != nil {
		login, release, err := o.openLogin()
		if err != nil {
			return s, err
		}
		s.login, s.issues = login, p.AuthServer != nil
		s.after.add(release)
	}
	behind := o.behind(s)
	s.Server = route.New(behind)
	if err := o.openScripts(s, behind.Local); err != nil {
		return s, fmt.Errorf("codeMode: %w", err)
	}
	if err := o.openComposites(s, behind.Local); err != nil {
		return s, fmt.Errorf("compositeTools: %w", err)
	}
	if err := o.openOptimizer(s, behind.Local); err != nil {
		return s, fmt.Errorf("optimizer: %w", err)
	}
	s.Beside = make(map[*backend.Backend]*edge.Credential)
	for _, b := range o.backends {
		if err := o.openBackend(s, b); err != nil {
			return s, fmt.Errorf("backend %s: %w", b.Name, err)
		}
	}
	// 2. Who its clients are.
	if err := o.authenticate(s); err != nil {
		return s, err
	}
	// 3. Who observes it, and the hallway of filters.
	if err := o.openGuest(s); err != nil {
		return s, err
	}
	if err := o.observe(s); err != nil {
		return s, err
	}
	entries, err := o.hallway(s)
	if err != nil {
		return s, err
	}
	s.hallway = append(entries, s.entries...)
	s.chain = filters.Chain(s.hallway, s.Server)
	if p.Debug {
		s.chain = s.debugged(s.chain)
	}
	// 4. What it offers.
	if p.Bare && !p.Decides() && s.guest.Overrides == nil && p.CodeMode == nil && len(p.Workflows) == 0 && p.Optimizer == nil { // all of these change lists, which takes a catalog
		s.OpenBare()
		return s, nil
	}
	var known *catalog.Book
	if o.was != nil {
		known = o.was.Book
	}
	s.Open(s.guest.Overrides, known, p.Failure.BestEffort, p.Failure.Interval)
	if s.find != nil {
		s.find.start()
	}
	return s, nil
}

// behind returns the options of the server behind the hallway.
func (o *opening) behind(s *server) route.Options {
	e, p := o.edge, o.plan
	r := route.Options{
		Name: p.Name, Judged: p.Decides() || p.Webhooks != nil || len(p.Filters) > 0, Info: s.info, Client: e.given.client(), Rules: p.Names, Wait: introductionWait, Log: s.log, Now: e.door.Clock.Now,
		Parked: e.replicas.Parked, Replicas: e.replicas, Hallway: s.call, ServeWithoutStore: e.settings.StoreFailure == "open",
		Serving: func() *route.Server {
			if one := e.live.Load().servers[p.Name]; one != nil {
				return one.Server
			}
			return nil
		},
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
		r.Store = s.store
	}
	if r.Own = ownTools(&p); r.Own != nil || p.Optimizer != nil {
		r.Local = route.Local{}
	}
	if p.Optimizer != nil {
		r.Search = &route.Search{List: optimizer.List, Names: map[string]bool{optimizer.Find: true, optimizer.Call: true}}
	}
	return r
}

// openBackend gives the server a backend, open already or new.
func (o *opening) openBackend(s *server, b backing) error {
	e, f := o.edge, o.plan.Failure
	one, release, err := e.world.backends.Get(s.Name+"\x00"+b.digest, func() (*backend.Backend, func(), error) {
		with := o.credentials()
		if o.issuer != nil {
			login, release, err := o.openLogin()
			if err != nil {
				with.close()
				return nil, nil, err
			}
			with.Upstreams = login.Upstreams()
			with.after.add(release)
		}
		credential, err := o.credential(b, with.Env)
		if err != nil {
			with.close()
			return nil, nil, err
		}
		var breaker *health.Breaker
		if f.Breaker != nil {
			breaker = health.NewBreaker(b.Name, f.Breaker.Threshold, f.Breaker.Timeout)
		}
		var local backend.Local
		if b.Workload != nil {
			local, err = o.workload(b.Workload)
		}
		if err != nil {
			with.close()
			return nil, nil, err
		}
		opened, err := backend.Open(backend.Config{
			Name:       b.Name,
			Digest:     b.digest,
			URL:        b.URL,
			Local:      local,
			SSE:        b.Transport == compile.SSE,
			Roots:      b.roots,
			Private:    b.Private,
			Credential: credential,
			Done:       with.close,
			Rest:       cmp.Or(o.plan.SessionTTL, e.settings.SessionTTL),
			Silence:    b.Timeout,
			Patient:    b.Patient,
			Cap:        e.settings.CallCap,
			MaxMessage: e.settings.MaxMessage,
			MaxConns:   e.settings.MaxBackendConnections,
			Info:       e.given.client(),
			Breaker:    breaker,
			Recovered:  o.backendRecovered(b.Name),
			Health: health.Config{
				Interval: f.Interval,
				Timeout:  f.Timeout,
				Rules:    health.Rules{Threshold: f.Threshold},
				Changed:  o.backendChanged(b.Name),
			},
			Opened: e.sessions.OpenedUpstream,
			Over:   e.sessions.LostUpstream,
			Agent:  "weir/" + e.given.version,
			Log:    s.log,
		})
		if err != nil {
			with.close()
			return nil, nil, err
		}
		return opened, func() { o.closeBackend(opened) }, nil
	})
	if err != nil {
		return err
	}
	s.Add(one)
	s.personal = s.personal || one.Personal()
	s.outgoing[b.Name], s.about[b.Name] = b.Outgoing, b.Metadata
	s.behind = append(s.behind, release)
	if !o.choosing() {
		return nil
	}
	beside, err := b.Outgoing.Beside().Open(s.env(&s.after))
	if err == nil && beside != nil {
		s.Beside[one] = beside
	}
	return err
}

// closeBackend closes a backend that no server of its name has any longer. At the end of
// the process it is waited for only while it answers.
func (o *opening) closeBackend(b *backend.Backend) {
	e := o.edge
	select {
	case <-e.end:
		b.CloseNow()
		return
	default:
	}
	for _, one := range e.sessions.Of(o.plan.Name) {
		b.Leave(&one.Session)
	}
	b.Close()
}

// client returns JSON text: clientInfo for backends.
func (g *given) client() []byte {
	return append(mcp.AppendString([]byte(`{"name":"weir","version":`), g.version), '}')
}

// backendChanged returns the function that a backend calls when its status has changed.
// The lists of one that is back are fetched again.
func (o *opening) backendChanged(name string) func(health.Snapshot) {
	e, server := o.edge, o.plan.Name
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

// backendRecovered returns the function that a backend calls when it has answered after a
// failure: lists that failed meanwhile are fetched at once.
func (o *opening) backendRecovered(name string) func() {
	e, server := o.edge, o.plan.Name
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

// digestOf returns a digest of a part of a plan.
func digestOf(part any) string {
	text, err := json.Marshal(part)
	if err != nil {
		panic(err) // a plan is data
	}
	sum := sha256.Sum256(text)
	return string(sum[:])
}
