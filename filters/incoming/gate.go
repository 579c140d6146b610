package incoming

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// The issuers of identities that no token vouches for.
const (
	LocalIssuer     = edge.LocalIssuer
	AnonymousIssuer = edge.AnonymousIssuer
)

// remember is for how long an answer of introspection is used. It is also how
// long a revoked token may go on.
const remember = 10 * time.Second

// A token that its issuer once called active is known for a while after that: strangers, whose
// tokens nobody knows, take nothing of the room in which it is asked about again.
const (
	knownFor    = 10 * time.Minute
	askedWithin = 5 * time.Second
)

// Gate is an opened Incoming. It is safe for concurrent use.
type Gate struct {
	incoming   *Incoming
	fixed      *edge.Identity // of local and anonymous
	issuer     *oauth.Issuer  // nil where own is not
	own        *Own           // the issuer is in this process; nil where it is not
	introspect *oauth.Introspector
	now        func() time.Time
	clock      *clock
	memory     *memory
	counts     counts

	// Map makes of who a token is for who that is here, once for each token that
	// is remembered. It is set before the gate is used; nil for nobody.
	Map func(context.Context, *edge.Identity) (*edge.Identity, error)
}

type counts struct{ cached, verified, introspected, refused, away atomic.Uint64 }

// Stats are counts since the gate was opened.
type Stats struct {
	Cached       uint64 // exchanges whose token was remembered
	Verified     uint64 // tokens whose signature was checked and held
	Introspected uint64 // tokens that their issuer called active
	Refused      uint64 // exchanges without a token that holds
	Away         uint64 // exchanges that nobody could decide
	Fetches      uint64 // of the issuer's keys
	Failures     uint64 // of attempts to learn them
}

// Start opens the gate. Servers that are given the same issuers share what is
// known of an issuer. It fails for a secret, a file or a user that cannot be
// read; that the provider is away is no failure.
func (t *Incoming) Start(env edge.Env, issuers *oauth.Issuers) (*Gate, error) {
	s := &t.spec
	g := &Gate{incoming: t, now: env.Clock()}
	g.clock = newClock(g.now)
	switch s.Type {
	case Anonymous:
		g.fixed = &edge.Identity{Issuer: AnonymousIssuer, Subject: "anonymous", Name: "Anonymous User"}
		return g, nil
	case Unverified:
		return g, nil
	case Local:
		u, err := user.Current()
		if uid := os.Getuid(); err != nil && uid >= 0 { // nobody has given it a name, as in many containers
			u, err = &user.User{Username: strconv.Itoa(uid)}, nil
		}
		if err != nil || u.Username == "" {
			return nil, fmt.Errorf("incoming: local user: %w", err)
		}
		g.fixed = &edge.Identity{Issuer: LocalIssuer, Subject: u.Username, Name: u.Name}
		if u.Name == "" {
			g.fixed.Name = u.Username
		}
		return g, nil
	}

	var cache edge.Cache
	if env.Cache != nil {
		cache = env.Cache(cachePart)
	}
	g.memory = newMemory(cache, s)

	// 1. What the configuration names: files and secrets.
	how := oauth.Options{CABundle: []byte(s.CABundle), AllowPrivate: s.AllowPrivate, AllowHTTP: s.AllowHTTP, Reach: env.Reach}
	if s.CABundlePath != "" {
		pem, err := edge.MoreRoots(s.CABundlePath)
		if err != nil {
			return nil, fmt.Errorf("incoming: %w", err)
		}
		how.CABundle = pem
	}
	if err := s.Sound(env); err != nil {
		return nil, err
	}
	secret := s.secret(env)

	// 2. The client of the introspection.
	if s.IntrospectionURL != "" {
		client, err := oauth.New(how)
		if err != nil {
			return nil, fmt.Errorf("incoming: %w", err)
		}
		env.Defer(client.Close)
		g.introspect = oauth.NewIntrospector(oauth.IntrospectorOptions{
			URL: s.IntrospectionURL, Trust: oauth.Named, ClientID: s.ClientID, ClientSecret: secret, Client: client,
			AgainAtOnce: RenewsAtOnce,
		})
	}

	// 3. The keys, fetched in the background from here on, unless they are the edge's own, or
	// nobody's.
	if s.Issuer == "" {
		return g, nil
	}
	if t.own != nil {
		g.own = t.own
		return g, nil
	}
	issuer, done, err := issuers.Open(oauth.IssuerOptions{
		Issuer: s.Issuer, JWKSURL: s.JWKSURL, TokenFile: s.TokenFile, Log: env.Log,
	}, how)
	if err != nil {
		return nil, fmt.Errorf("incoming: %w", err)
	}
	env.Defer(done)
	g.issuer = issuer
	return g, nil
}

// Sound returns why the client secret of the introspection cannot be read; nil where it can, or
// none is asked for.
func (s *Spec) Sound(env edge.Env) (err error) {
	if secret := s.secret(env); secret != nil {
		_, err = secret(context.Background())
	}
	return err
}

// Await waits for the keys of the issuer, where tokens are judged by some of its own, and returns
// why they cannot be had.
func (g *Gate) Await(ctx context.Context) error {
	if g.issuer != nil && g.introspect == nil {
		_, _, _ = g.issuer.Key(ctx, "") // which waits for the first fetch, and is no key
	}
	return g.Ready()
}

// Ready returns nil when tokens can be judged, and else why the keys of the issuer cannot be had.
func (g *Gate) Ready() error {
	if g.issuer == nil || g.introspect != nil {
		return nil
	}
	return g.issuer.Ready()
}

// Anonymous reports whether nothing tells its clients apart.
func (g *Gate) Anonymous() bool { return g.incoming.spec.Type == Anonymous }

// secret returns what reads the client secret of the introspection; nil for none.
// A secret that is rotated is used by the next question. One line break at its
// end, which editors leave in files, is not part of it.
func (s *Spec) secret(env edge.Env) func(context.Context) (edge.Secret, error) {
	switch r := s.ClientSecret; {
	case r != nil:
		return func(ctx context.Context) (edge.Secret, error) {
			if env.Secrets == nil {
				return "", errors.New("incoming: client secret: there is nowhere to read it")
			}
			v, err := env.Secrets.Secret(ctx, r.Name, r.Key)
			if err != nil {
				return "", fmt.Errorf("incoming: client secret: %w", err)
			}
			return v.Trimmed(), nil
		}
	case s.ClientSecretEnv != "":
		return func(context.Context) (edge.Secret, error) {
			v, ok := os.LookupEnv(s.ClientSecretEnv)
			if !ok || v == "" {
				return "", fmt.Errorf("incoming: client secret: the environment variable %s is not set", s.ClientSecretEnv)
			}
			return edge.Secret(v), nil
		}
	}
	return nil
}

// Stats returns counts.
func (g *Gate) Stats() Stats {
	s := Stats{
		Cached: g.counts.cached.Load(), Verified: g.counts.verified.Load(), Introspected: g.counts.introspected.Load(),
		Refused: g.counts.refused.Load(), Away: g.counts.away.Load(),
	}
	if g.issuer != nil {
		s.Fetches, s.Failures = g.issuer.Fetches()
	}
	return s
}

// Collect is edge.Collector.Collect, of what became of clients' tokens since the
// gate was opened. A gate that takes no tokens counts nothing.
func (g *Gate) Collect(m edge.Emitter) {
	if !g.incoming.Authenticates() {
		return
	}
	s := g.Stats()
	m.Counter("weir_auth_cached", "Messages whose token was remembered.", float64(s.Cached))
	m.Counter("weir_auth_verified", "Tokens whose signature was checked and held.", float64(s.Verified))
	m.Counter("weir_auth_introspected", "Tokens that their issuer called active.", float64(s.Introspected))
	m.Counter("weir_auth_refused", "Messages without a token that holds.", float64(s.Refused))
	m.Counter("weir_auth_away", "Messages that nobody could decide.", float64(s.Away))
	m.Counter("weir_auth_key_fetches", "Times that the issuer was asked for its keys.", float64(s.Fetches))
	m.Counter("weir_auth_key_failures", "Attempts to learn the keys that failed.", float64(s.Failures))
}

// StepUp adds the challenge to an error that says which scopes are needed, or that the
// client has to sign in again, whoever found that out (RFC 6750 §3.1). It returns any
// other error as it is, and one about scopes that no login here gives.
func (g *Gate) StepUp(err error) error {
	var e *edge.Error
	if g.fixed != nil || !errors.As(err, &e) || e.Challenge != "" {
		return err
	}
	with := *e
	var s *edge.ScopeError
	switch {
	case errors.As(err, &s) && (!s.Elsewhere || g.incoming.spec.gives(s.Scopes)):
		with.Challenge = g.incoming.challenges.insufficient(s.Scopes)
	case e.Kind == edge.Unauthenticated:
		with.Challenge = g.incoming.challenges.again
	default:
		return err
	}
	return &with
}

// gives reports whether clients may ask the issuer for all of some scopes; for none, and
// where no scopes are configured, nobody knows.
func (s *Spec) gives(scopes []string) bool {
	return len(scopes) > 0 && !slices.ContainsFunc(scopes, func(one string) bool {
		return !slices.Contains(s.Scopes, one) && !slices.Contains(s.Required, one)
	})
}

// Identify finds out who sends a request with an Authorization header, "" for
// none, from an address. Errors are of kind Unauthenticated or Denied, with the
// challenge to answer with, or Overload when the provider has to be asked and
// cannot be.
func (g *Gate) Identify(ctx context.Context, authorization edge.Secret, remote string) (*edge.Identity, error) {
	switch g.incoming.spec.Type {
	case Anonymous:
		return g.fixed, nil
	case Local:
		if !edge.Loopback(remote) {
			g.counts.refused.Add(1)
			return nil, &edge.Error{Kind: edge.Unauthenticated, Op: "authenticate", Err: errors.New(textLocal)}
		}
		return g.fixed, nil
	}
	var id *edge.Identity
	var err error
	if g.incoming.spec.Type == Unverified {
		id, err = g.unverified(string(authorization))
	} else {
		id, err = g.token(ctx, string(authorization))
	}
	if err != nil {
		if edge.KindOf(err) == edge.Unauthenticated {
			g.counts.refused.Add(1)
		} else {
			g.counts.away.Add(1)
		}
		return nil, err
	}
	if need := g.incoming.spec.Required; len(need) > 0 && oauth.Lacks(id.Scopes, need) {
		return nil, &edge.Error{
			Kind: edge.Denied, Op: "authenticate", Challenge: g.incoming.challenges.insufficient(nil),
			Err: &edge.ScopeError{Scopes: need},
		}
	}
	return id, nil
}

// Remembered is Identify for a client whose token was good a moment ago; nil for
// any other, whom Identify has to be asked about. It keeps nothing of the header,
// which may be a part of something that is used again.
func (g *Gate) Remembered(authorization []byte) *edge.Identity {
	switch g.incoming.spec.Type {
	case Anonymous:
		return g.fixed
	case Local, Unverified:
		return nil
	}
	token, ok := bearer(unsafe.String(unsafe.SliceData(authorization), len(authorization)))
	if !ok || len(token) > maxToken {
		return nil
	}
	e := g.memory.get(g.memory.key(token), token, g.clock.now())
	if e == nil || !g.holds(e) || oauth.Lacks(e.identity.Scopes, g.incoming.spec.Required) {
		return nil
	}
	g.counts.cached.Add(1)
	return e.identity
}

// token returns the identity that an Authorization header stands for.
func (g *Gate) token(ctx context.Context, authorization string) (*edge.Identity, error) {
	c := &g.incoming.challenges
	token, ok := bearer(authorization)
	if !ok {
		return nil, &edge.Error{Kind: edge.Unauthenticated, Op: "authenticate: no bearer token", Challenge: c.missing, Err: errors.New(textMissing)}
	}
	if len(token) > maxToken {
		return nil, c.refuse(errors.New("it is too large"))
	}

	// 1. A token that was good a moment ago.
	key, now := g.memory.key(token), g.clock.now()
	old := g.memory.get(key, token, now)
	if old != nil && g.holds(old) {
		g.counts.cached.Add(1)
		return old.identity, nil
	}
	known := old != nil && !old.asked.IsZero()
	if old != nil && !known {
		g.memory.forget(key)
	}

	// 2. A token that says itself who it is, or one that its issuer explains.
	var e *entry
	var err error
	switch {
	case !oauth.IsBearer(token):
		err = errors.New("it holds what no token may")
	case g.signed(token):
		e, err = g.verify(ctx, token, now)
	case known:
		if e, err = g.ask(ctx, token, now, g.again); err != nil && !errors.As(err, new(*unknownError)) {
			g.memory.forget(key)
		}
	default:
		e, err = g.ask(ctx, token, now, g.introspect.Introspect)
	}
	if err != nil {
		return nil, g.kind(ctx, err)
	}
	if g.Map != nil {
		if e.identity, err = g.Map(ctx, e.identity); err != nil {
			return nil, err
		}
	}
	if known && g.memory.get(key, token, now) == old { // what is there stays else
		g.memory.forget(key)
	}
	g.memory.put(key, e, len(authorization))
	return e.identity, nil
}

// unverified is who a token is for that nobody here looks at: whoever has it.
func (g *Gate) unverified(authorization string) (*edge.Identity, error) {
	c := &g.incoming.challenges
	token, ok := bearer(authorization)
	switch {
	case !ok:
		return nil, &edge.Error{Kind: edge.Unauthenticated, Op: "authenticate: no bearer token to exchange", Challenge: c.missing, Err: errors.New(textMissing)}
	case len(token) > maxToken:
		return nil, c.refuse(errors.New("it is too large"))
	case !oauth.IsBearer(token):
		return nil, c.refuse(errors.New("it holds what no token may"))
	}
	mac := hmac.New(sha256.New, unverifiedKey())
	mac.Write([]byte(token))
	return &edge.Identity{
		Issuer: edge.UnverifiedIssuer, Subject: hex.EncodeToString(mac.Sum(nil)[:16]), Name: "a client that nobody has verified",
		Token: edge.Secret(token), Digested: edge.DigestToken(edge.Secret(token)),
	}, nil
}

// unverifiedKey makes what stands for a token in logs worth nothing to who guesses tokens.
var unverifiedKey = sync.OnceValue(func() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // which does not fail (crypto/rand)
	return key
})

// again asks about a token that is known, for a bounded time.
func (g *Gate) again(ctx context.Context, token edge.Secret) ([]byte, bool, error) {
	bounded, done := context.WithTimeout(ctx, askedWithin)
	defer done()
	text, active, err := g.introspect.Again(bounded, token)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = &oauth.BusyError{}
	}
	return text, active, err
}

// holds reports whether what is remembered of a token that is not over is still
// so.
func (g *Gate) holds(e *entry) bool {
	if !e.asked.IsZero() {
		return g.now().Sub(e.asked) < remember && g.clock.now().Before(e.fresh)
	}
	keys, err := g.keys()
	return err == nil && keys.Generation == e.generation && (g.own == nil || e.lives(g.now()))
}

// verify judges a JWT.
func (g *Gate) verify(ctx context.Context, token string, now time.Time) (*entry, error) {
	var generation uint64
	payload, access, err := signed(token, func(kid string) (key *oauth.Key, err error) {
		key, generation, err = g.key(ctx, kid)
		return key, err
	})
	if err != nil {
		return nil, err
	}
	c, err := parseClaims(payload, g.rules(now, access, false))
	if err != nil {
		return nil, err
	}
	grant, err := g.grant(ctx, &c, access)
	if err != nil {
		return nil, err
	}
	g.counts.verified.Add(1)
	e := &entry{token: token, identity: g.identity(&c, token), until: c.expires.Add(skew), generation: generation, grant: grant}
	if grant != nil {
		e.identity.PolicyClaims, e.version = grant.Claims()
	}
	return e, nil
}

// signed reports whether a token is judged by the keys of the issuer. Where no issuer is named
// none is: whoever introspects knows which ones are good.
func (g *Gate) signed(token string) bool {
	return g.incoming.spec.Issuer != "" && isJWT(token)
}

// ask has the issuer explain an opaque token, by one of the ways to ask it.
func (g *Gate) ask(ctx context.Context, token string, now time.Time, introspect func(context.Context, edge.Secret) ([]byte, bool, error)) (*entry, error) {
	if g.introspect == nil {
		return nil, errors.New("not a JWT, and there is nobody to introspect it")
	}
	if g.incoming.spec.Issuer != "" && strings.Count(token, ".") == 4 {
		return nil, errors.New("an encrypted JWT")
	}
	asked := g.now()
	text, active, err := introspect(ctx, edge.Secret(token))
	switch {
	case err != nil:
		return nil, &unknownError{err}
	case !active:
		return nil, errors.New("its issuer calls it inactive")
	}
	c, err := parseClaims(text, g.rules(now, false, true))
	if err != nil {
		return nil, err
	}
	delete(c.all, "active")
	g.counts.introspected.Add(1)
	until := now.Add(knownFor)
	if !c.expires.IsZero() && c.expires.Before(until) {
		until = c.expires
	}
	return &entry{token: token, identity: g.identity(&c, token), until: until, asked: asked, fresh: now.Add(remember)}, nil
}

func (g *Gate) rules(now time.Time, access, introspected bool) rules {
	s := &g.incoming.spec
	return rules{
		issuer: s.Issuer, audience: s.Audience, namespace: s.Namespace, account: s.Account,
		now: now, wall: g.clock.wall(), access: access, introspected: introspected,
	}
}

func (g *Gate) identity(c *claims, token string) *edge.Identity {
	return &edge.Identity{
		Issuer: cmp.Or(g.incoming.spec.Issuer, c.issuer, g.incoming.spec.IntrospectionURL), Subject: c.subject, Name: c.name, Email: c.email,
		Claims: c.all, Scopes: c.scopes, Token: edge.Secret(token), Expires: c.expires,
		Digested: edge.DigestToken(edge.Secret(token)), Rights: c.rights(),
	}
}

// kind tells a token that does not hold from one that nobody can judge: keys
// that were never known and introspection without room are answered with 503,
// all else with 401.
func (g *Gate) kind(ctx context.Context, err error) error {
	var none *oauth.NoKeysError
	var busy *oauth.BusyError
	switch {
	case ctx.Err() != nil:
		return &edge.Error{Kind: edge.Gone, Op: "authenticate", Err: ctx.Err()}
	case errors.As(err, &none) && !none.Stale:
		return &edge.Error{Kind: edge.Overload, Op: "authenticate: " + err.Error(), After: time.Second, Err: &reason{textAway, err}}
	case errors.Is(err, errStore):
		return &edge.Error{Kind: edge.Overload, Op: "authenticate: " + err.Error(), After: time.Second, Err: &reason{textGrants, err}}
	case errors.As(err, &busy):
		return &edge.Error{Kind: edge.Overload, Op: "authenticate: " + err.Error(), After: time.Second, Err: &reason{textBusy, err}}
	}
	return g.incoming.challenges.refuse(err)
}
