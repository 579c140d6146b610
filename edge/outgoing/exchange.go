package outgoing

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// faultError is why a credential cannot be had. Its text may reach a client, so the cause
// is not in it, and only unwrapped.
type faultError struct {
	kind  edge.Kind
	final bool // it was refused, and would be again
	cause error
}

func (e *faultError) Error() string {
	switch e.kind {
	case edge.Unauthenticated:
		return "sign in again"
	case edge.Denied:
		return "access to the backend is refused"
	}
	return "no credential for the backend"
}

func (e *faultError) Unwrap() error { return e.cause }

// fault returns the error of a Maker or of an Attach. Only the log shows its cause. final
// says that whoever was asked has decided, and would decide the same again: the next calls
// wait longer for another attempt.
func fault(kind edge.Kind, final bool, cause error) error {
	return &edge.Error{Kind: kind, Op: cause.Error(), Err: &faultError{kind, final, cause}}
}

// isRefusal reports whether an error is final.
func isRefusal(err error) bool {
	var f *faultError
	return errors.As(err, &f) && f.final || oauth.Refused(err)
}

// personal is a strategy that shows a backend a bearer token which is made of a token of
// the user: the client's own, or one that an upstream issued to the user. Neither ever
// comes from a header of the request.
type personal struct {
	strategy string   // type of it, as an MCPExternalAuthConfig has it
	header   string   // that carries the token
	provider string   // the upstream whose token it is made of; "" for the client's own
	id       bool     // of the upstream's ID token, in place of its access token
	same     bool     // the upstream's token is sent itself: nothing is made anew for a backend that refuses it
	claims   bool     // what is made depends on the user's claims, too
	digest   [16]byte // of all that says how it is made
	maker    func(edge.Env) (Maker, error)
	asks     []string // the URLs that the maker asks, for whoever looks whether they answer
}

// bearer is a header's value that is kept.
type bearer struct{ Line edge.Secret }

// digest tells ways apart: what is made in one is never used for another.
func digest(strategy string, spec any) (sum [16]byte) {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // a spec is data
	}
	all := sha256.Sum256(append([]byte(strategy+"\n"), text...))
	return [16]byte(all[:16])
}

func (p *personal) Names() []string { return []string{p.header} }

func (p *personal) Personal() bool { return true }

// Format writes the names for every verb: no way of printing shows a secret.
func (p *personal) Format(f fmt.State, _ rune) { show(f, p) }

// Open reads the client secrets. Tokens are asked for when somebody needs one.
func (p *personal) Open(env edge.Env) (Attach, error) {
	get, err := p.get(env)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, r *edge.Outbound, set func(string, edge.Secret)) (uint64, error) {
		value, generation, err := get(ctx, r)
		if value == nil {
			return 0, err
		}
		b, ok := value.(*bearer)
		if !ok {
			return 0, unavailable(fmt.Errorf("outgoing: %s: a credential of another kind", p.strategy))
		}
		set(p.header, b.Line)
		return generation, nil
	}, nil
}

// get returns what finds the credential of the user that a request is made for, as its Maker
// made it, and its generation. It is nil, without an error, for a request of the edge's own.
func (p *personal) get(env edge.Env) (func(context.Context, *edge.Outbound) (any, uint64, error), error) {
	if p.provider != "" && env.Upstreams == nil {
		return nil, fmt.Errorf("outgoing: %s: upstream %s: there is no authorization server here", p.strategy, p.provider)
	}
	maker, err := p.maker(env)
	if err != nil {
		return nil, fmt.Errorf("outgoing: %s: %w", p.strategy, err)
	}
	if p.id {
		maker = living{maker, env.Clock()}
	}
	cache, way := CacheOf(env), &Way{Strategy: p.strategy, Digest: p.digest, Maker: maker, Asks: !p.same, Claims: p.claims}
	if !p.same {
		way.Made = env.Made
	}
	return func(ctx context.Context, r *edge.Outbound) (any, uint64, error) {
		if r.Exchange == nil {
			return nil, 0, nil
		}
		a := Ask{Who: r.Exchange.Identity, Refused: r.Refused && !p.same}
		if a.Who.Anonymous() || p.provider == "" && a.Who.Token == "" {
			return nil, 0, fault(edge.Unauthenticated, true, fmt.Errorf("outgoing: %s: the call is of no user with a token", p.strategy))
		}
		a.Subject = a.Who.Token
		if p.provider != "" {
			if err := p.upstream(ctx, env.Upstreams, &a); err != nil {
				return nil, 0, err
			}
			if r.Refused && p.same {
				if _, err := p.another(ctx, env.Upstreams, &a); err != nil {
					return nil, 0, err
				}
			}
		}
		value, generation, err := cache.Get(ctx, way, &a)
		if p.provider != "" && !p.same && edge.KindOf(err) == edge.Unauthenticated { // the same would be refused at each call
			if other, gone := p.another(ctx, env.Upstreams, &a); gone != nil {
				err = gone
			} else if other {
				value, generation, err = cache.Get(ctx, way, &a)
			}
		}
		if err != nil {
			return nil, 0, err
		}
		return value, generation, nil
	}, nil
}

// another tells that the upstream's token is refused, and reports whether there is another now.
func (p *personal) another(ctx context.Context, from edge.Upstreams, a *Ask) (bool, error) {
	old := a.Mark
	err := from.Refused(ctx, a.Who, p.provider, a.Subject, !p.same)
	if err == nil {
		err = p.upstream(ctx, from, a)
	}
	return a.Mark != old, err
}

// living is a Maker that is asked with ID tokens that have not ended alone: token endpoints do
// not agree on how they refuse one that has.
type living struct {
	Maker
	now func() time.Time
}

func (l living) Make(ctx context.Context, a *Ask) (Fresh, error) {
	claims, _ := oauth.Claims(a.Subject) // what is no JWT has no end that can be read
	if end, err := claims.Time("exp"); err == nil && !end.After(l.now()) {
		return Fresh{}, fault(edge.Unauthenticated, true, errors.New("outgoing: the ID token of the upstream has ended"))
	}
	return l.Maker.Make(ctx, a)
}

// upstream finds the token that the credential is made of. Another one makes another.
func (p *personal) upstream(ctx context.Context, from edge.Upstreams, a *Ask) error {
	access, id, err := from.Upstream(ctx, a.Who, p.provider)
	if err == nil && p.id {
		access = id
	}
	switch kind := edge.KindOf(err); {
	case err == nil && access == "":
		return unavailable(fmt.Errorf("outgoing: %s: upstream %s: it issued no such token", p.strategy, p.provider))
	case err == nil:
		a.Subject, a.Mark = access, string(access)
		return nil
	case kind == edge.NotFound:
		return fault(edge.Unauthenticated, true, fmt.Errorf("outgoing: %s: upstream %s: %w", p.strategy, p.provider, err))
	case kind == edge.Unauthenticated || kind == edge.Denied || kind == edge.Timeout || kind == edge.Gone || kind == edge.Overload:
		return err
	default:
		return unavailable(fmt.Errorf("outgoing: %s: upstream %s: %w", p.strategy, p.provider, err))
	}
}

// fresh is a token as a backend is shown it.
func fresh(token edge.Secret, expires time.Time, skew time.Duration) (Fresh, error) {
	line := "Bearer " + string(token)
	if what := unfit(line); what != "" {
		return Fresh{}, unavailable(errors.New("outgoing: the token that was issued: " + what))
	}
	return Fresh{Value: &bearer{edge.Secret(line)}, Cost: len(line), Expires: expires, Skew: skew}, nil
}

// defaultSkew is how long before its end a token is not used any longer: the clocks of
// whoever judges it may be ahead.
const defaultSkew = 30 * time.Second

// CacheOf returns the cache that all strategies of a server share. It ends with the plan.
func CacheOf(env edge.Env) *Cache {
	c, _ := env.Shared.Of(cacheKey{}, env, func(after func(func())) any {
		c := NewCache(env.Clock())
		after(c.Close)
		return c
	}).(*Cache)
	return c
}

// Kept returns the cache that strategies share; nil where none has needed it yet.
func Kept(shared *edge.Shared) *Cache {
	c, _ := shared.Look(cacheKey{}).(*Cache)
	return c
}

type cacheKey struct{}

// ClientOf returns the guarded client with which all strategies of a server ask token
// endpoints. What the operator wrote may be of http, where Parse let it pass.
func ClientOf(env edge.Env) (*oauth.Client, error) {
	made, _ := env.Shared.Of(clientKey{}, env, func(after func(func())) any {
		c, err := oauth.New(oauth.Options{AllowHTTP: true, Reach: env.Reach})
		if err == nil {
			after(c.Close)
		}
		return &madeClient{c, err}
	}).(*madeClient)
	return made.client, made.err
}

type clientKey struct{}

type madeClient struct {
	client *oauth.Client
	err    error
}

// party is as whom the edge asks a token endpoint, and where that is.
type party struct {
	endpoint string
	method   oauth.AuthMethod
	clientID string
	secret   source // none is the zero value
}

// open finds the client secret once, so that one that is missing is found when the plan
// opens. One in a secret is read again for each request.
func (p *party) open(env edge.Env) (*oauth.TokenEndpoint, error) {
	client, err := ClientOf(env)
	if err != nil {
		return nil, err
	}
	o := oauth.TokenOptions{URL: p.endpoint, Trust: oauth.Named, Client: client, Method: p.method, ClientID: p.clientID, Now: env.Now}
	if p.secret != (source{}) {
		if o.Secret, err = p.secret.reader(env); err != nil {
			return nil, err
		}
	}
	return oauth.NewTokenEndpoint(o), nil
}

// reader returns what reads a secret that is no header's value, after it has read it once.
func (s source) reader(env edge.Env) (func(context.Context) (edge.Secret, error), error) {
	fixed := s.value
	read := func(context.Context) (edge.Secret, error) { return fixed, nil }
	switch {
	case s.env != "":
		fixed = edge.Secret(os.Getenv(s.env))
	case s.ref.Name != "":
		if env.Secrets == nil {
			return nil, fmt.Errorf("%s: there are no secrets here", s)
		}
		read = func(ctx context.Context) (edge.Secret, error) { return env.Secrets.Secret(ctx, s.ref.Name, s.ref.Key) }
	}
	sound := func(ctx context.Context) (edge.Secret, error) {
		value, err := read(ctx)
		if err != nil {
			return "", fmt.Errorf("%s: %w", s, err)
		}
		if s.value == "" {
			value = value.Trimmed()
		}
		switch {
		case value == "" && s.env != "":
			return "", fmt.Errorf("%s is not set", s)
		case value == "":
			return "", fmt.Errorf("%s: it is empty", s)
		case len(value) > maxValue:
			return "", fmt.Errorf("%s: it has more than %d bytes", s, maxValue)
		}
		return value, nil
	}
	_, err := sound(context.Background())
	return sound, err
}

// ask asks a token endpoint, and returns an error as Attach does.
func ask(ctx context.Context, at *oauth.TokenEndpoint, form url.Values, want oauth.Want, strategy string) (*oauth.Token, error) {
	token, err := at.Ask(ctx, form, want)
	if err != nil {
		return nil, fault(edge.KindOf(err), oauth.Refused(err), fmt.Errorf("outgoing: %s: %w", strategy, err))
	}
	// Whoever gives back what it was shown would have the user's own token sent on.
	for _, name := range []string{"subject_token", "assertion"} {
		if form.Get(name) == string(token.Access) {
			return nil, unavailable(fmt.Errorf("outgoing: %s: the token that was issued is the one that it was to be made of", strategy))
		}
	}
	return token, nil
}
