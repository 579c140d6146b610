package incoming

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-edge/weir/edge/oauth"
)

// Own is an issuer in this process: an authorization server of the edge. Its tokens are judged
// without a fetch, and hold as long as their grants live.
type Own struct {
	Keys func() oauth.Snapshot // that it signs with

	// Look finds out whether a grant lives; nil for one that does not. An error says that
	// nobody can tell for now.
	Look func(ctx context.Context, id string) (Grant, error)
}

// Grant is what a user has allowed a client.
type Grant interface {
	// Lives reports whether the grant is known to live at a time; where not, it has to be
	// looked for.
	Lives(now time.Time) bool

	// Claims are what policies read of the user in place of the token's, nil for nothing. The
	// version changes with them.
	Claims() (claims map[string]any, version uint64)
}

// Own is the same authentication where the issuer is in this process.
func (t *Incoming) Own(own *Own) *Incoming {
	with := *t
	with.own = own
	return &with
}

// lives reports whether the grant of a token that is remembered lives, and policies read of
// its user what they did.
func (e *entry) lives(now time.Time) bool {
	if e.grant == nil || !e.grant.Lives(now) {
		return false
	}
	_, version := e.grant.Claims()
	return version == e.version
}

// errStore says that nobody can tell whether a grant lives.
var errStore = errors.New("the grants of the authorization server cannot be looked for")

// keys are those of the issuer, as they are known.
func (g *Gate) keys() (oauth.Snapshot, error) {
	if g.own != nil {
		return g.own.Keys(), nil
	}
	return g.issuer.Keys()
}

// key is the key that a kid names, and the generation that it is of.
func (g *Gate) key(ctx context.Context, kid string) (*oauth.Key, uint64, error) {
	if g.own == nil {
		return g.issuer.Key(ctx, kid)
	}
	now := g.own.Keys()
	if key := now.Keys.Find(kid); key != nil && kid != "" {
		return key, now.Generation, nil
	}
	return nil, 0, &oauth.UnknownKeyError{Issuer: g.incoming.spec.Issuer}
}

// grant is the grant of a token whose issuer is in this process; nil for another's.
func (g *Gate) grant(ctx context.Context, c *claims, access bool) (Grant, error) {
	if g.own == nil {
		return nil, nil
	}
	id, ok := c.all["tsid"].(string)
	if !ok || !access {
		return nil, errors.New("it is no access token of ours")
	}
	grant, err := g.own.Look(ctx, id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errStore, err)
	case grant == nil:
		return nil, errors.New("its grant has ended")
	}
	return grant, nil
}
