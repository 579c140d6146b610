// Package authserver is an authorization server in the edge (OAuth 2.1, OpenID Connect): it
// knows clients that register themselves, sends users to identity providers of the operator's
// choice, and issues tokens of its own. What it keeps of a user lies sealed in an edge.Store,
// and of a client it keeps nothing.
//
// Read flow.go first: a login from its first request to its tokens.
package authserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver/upstream"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// Config is an authorization server with every default filled in.
type Config struct {
	Issuer string // as tokens name it
	Base   string // of the authorization endpoint

	Resources []Resource // what tokens may be for; at least one
	Scopes    []string   // that are supported
	Baseline  []string   // of every client

	CIMD CIMD

	Secrets []v1beta1.SecretRef // sign and seal; none for one made at start
	Keys    []v1beta1.SecretRef // sign tokens; none for one made at start

	AccessLife, CodeLife, RefreshLife time.Duration
}

// Resource is a server that trusts the issuer.
type Resource struct {
	Name     string // that users are shown
	URL      string // "" for none
	Audience string
	Scopes   []string // advertised
}

// CIMD is how client ID metadata documents are taken.
type CIMD struct {
	Enabled bool
	Life    time.Duration // of a document in the cache
	Most    int           // documents in the cache
}

// Provider signs users in: an upstream.Provider.
type Provider interface {
	Name() string
	Redirect() string
	Send(ctx context.Context, state string) (address string, leg upstream.Leg, err error)
	Return(ctx context.Context, leg upstream.Leg, query url.Values, wantWho bool) (*upstream.Tokens, *upstream.Who, error)
}

// Env is the world that an authorization server touches.
type Env struct {
	Providers []Provider // the first one says who a user is
	Store     edge.Store // keeps records, for all replicas
	Local     edge.Store // of this process, for limits
	Secrets   edge.Secrets
	Client    *oauth.Client // fetches metadata documents; nil where CIMD is off
	Log       *slog.Logger
	Now       func() time.Time // nil for time.Now
	Told      func(Event)      // hears what is decided, from several goroutines; nil for nobody
}

// grantEnd is how long after its login a grant ends, whatever is renewed.
const grantEnd = 90 * 24 * time.Hour

// Bounds of lifetimes.
var lives = []struct {
	name      string
	of        func(*Config) time.Duration
	low, high time.Duration
}{
	{"accessTokenLifespan", func(c *Config) time.Duration { return c.AccessLife }, time.Minute, 24 * time.Hour},
	{"authCodeLifespan", func(c *Config) time.Duration { return c.CodeLife }, 30 * time.Second, 10 * time.Minute},
	{"refreshTokenLifespan", func(c *Config) time.Duration { return c.RefreshLife }, time.Hour, 720 * time.Hour},
}

// Check judges a Config and the addresses that its providers send browsers back to. It returns
// all that is wrong.
func (c *Config) Check(redirects ...string) error {
	var wrong []error
	for _, l := range lives {
		if d := l.of(c); d < l.low || d > l.high {
			wrong = append(wrong, fmt.Errorf("tokenLifespans.%s: %s is not from %s to %s", l.name, d, l.low, l.high))
		}
	}
	for _, scope := range c.Baseline {
		if !slices.Contains(c.Scopes, scope) {
			wrong = append(wrong, fmt.Errorf("baselineClientScopes: no upstream has the scope %q", scope))
		}
	}
	base := origin(c.Base)
	for _, r := range redirects {
		if origin(r) != base {
			wrong = append(wrong, fmt.Errorf("redirectUri: %s and the authorization endpoint %s/oauth/authorize have different origins, and a login is bound to one: set redirectUri to %s/oauth/callback", r, c.Base, c.Base))
		}
	}
	if len(c.Resources) == 0 {
		wrong = append(wrong, errors.New("issuer: no server trusts it"))
	}
	return errors.Join(wrong...)
}

// origin is the origin of a URL, as browsers write it; "" for none.
func origin(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return ""
	}
	host := strings.ToLower(u.Host)
	switch u.Scheme {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	}
	return u.Scheme + "://" + host
}

// resource finds the server that a client asks for a token for; nil for none. An empty name
// is the only server that there is.
func (c *Config) resource(name string) *Resource {
	for i := range c.Resources {
		r := &c.Resources[i]
		if name == "" && len(c.Resources) == 1 || name != "" && (same(name, r.Audience) || same(name, r.URL)) {
			return r
		}
	}
	return nil
}

// same reports whether two resources are the same by bytes, but that an empty path is a slash
// (RFC 3986 §6.2.3).
func same(a, b string) bool { return a == b || slashed(a) == slashed(b) && a != "" && b != "" }

func slashed(text string) string {
	_, rest, ok := strings.Cut(text, "://")
	if ok && !strings.ContainsAny(rest, "/?#") {
		return text + "/"
	}
	return text
}

// audience is whom a token for a resource is for, by the name that the client gave it.
func (r *Resource) audience(name string) []string {
	if name == "" || name == r.Audience {
		return []string{r.Audience}
	}
	return []string{r.Audience, name}
}
