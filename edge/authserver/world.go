package authserver

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/authserver/upstream"
)

// Provider signs users in: an upstream.Provider.
type Provider interface {
	Name() string
	Redirect() string
	Send(ctx context.Context, state string, prompts []string) (address string, leg upstream.Leg, err error)
	Return(ctx context.Context, leg upstream.Leg, query url.Values, wantWho bool) (*upstream.Tokens, *upstream.Who, error)
}

// Env is the world that an authorization server touches.
type Env struct {
	Providers []Provider // in place of those of the Spec, for tests; nil for these
	Store     edge.Store // keeps records, for all replicas
	Local     edge.Store // of this process, for limits
	Lasting   *Lasting   // what outlives changes of the Spec; nil for things of its own
	Secrets   edge.Secrets
	Reach     edge.Reach // of requests of its own
	Log       *slog.Logger
	Now       func() time.Time // nil for time.Now
	Told      func(Event)      // hears what is decided, from several goroutines; nil for nobody

	// Renewed hears of each attempt to renew an upstream's tokens, likewise, and whose they are,
	// as in Event; "" where the grant cannot be read.
	Renewed func(v upstream.Renewal, client, subject string)
}

// grantEnd is how long after its login a grant ends, whatever is renewed.
const grantEnd = 90 * 24 * time.Hour

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
// is the only server that there is. A name is that of the server whose audience it is, before
// one whose URL it is: as an audience it would open the former.
func (c *Spec) resource(name string) (found *Resource) {
	for i := range c.Resources {
		switch r := &c.Resources[i]; {
		case name == "" && len(c.Resources) == 1, same(name, r.Audience):
			return r
		case found == nil && same(name, r.URL):
			found = r
		}
	}
	return found
}

// same reports whether two resources are the same by bytes, but that an empty path is a slash
// (RFC 3986 §6.2.3).
func same(a, b string) bool { return a != "" && slashed(a) == slashed(b) }

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

// Issuer is the iss of its tokens.
func (s *Server) Issuer() string { return s.config.Issuer }
