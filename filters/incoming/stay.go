package incoming

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// Who has opened a stream stays for hours, and the credential that it was opened
// with does not hold for ever: it expires, its key is taken back, or its grant
// ends. A Stay is looked at once a second.

const (
	// askAgain is how old an issuer's word may be for who stays until it is asked
	// again, and staysFor how old until nobody knows any longer. With the second
	// between two looks, who has lost the grant is gone after ten.
	askAgain = 5 * time.Second
	staysFor = 9 * time.Second

	// RenewsAtOnce is how many who stay an issuer may be asked about at a time:
	// one that takes 100 ms is asked about 6,000 every five seconds.
	RenewsAtOnce = 128
)

// Stay is somebody who stays. It is safe for concurrent use.
type Stay struct {
	mu         sync.Mutex
	gate       *Gate
	generation uint64    // of the keys that the token was verified with
	grant      Grant     // of a token of the edge's own; else nil
	good       time.Time // when it was last known to hold; of the monotonic clock
	over       bool
}

// Holds reports whether somebody may stay, and whether Renew has to find out
// about it. It does not wait.
func (g *Gate) Holds(id *edge.Identity, s *Stay) (holds, renew bool) {
	spec := &g.incoming.spec
	if g.fixed != nil {
		return id != nil && id.Issuer == g.fixed.Issuer && id.Subject == g.fixed.Subject, false
	}
	if spec.Type == Unverified {
		return id != nil && id.Issuer == edge.UnverifiedIssuer && id.Token != "", false
	}
	if id == nil || id.Token == "" || g.Map == nil && spec.Issuer != "" && id.Issuer != spec.Issuer || oauth.Lacks(id.Scopes, spec.Required) {
		return false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := g.clock.now()
	if s.over || !id.Expires.IsZero() && !now.Before(id.Expires.Add(skew)) {
		s.over = true
		return false, false
	}
	if s.good.IsZero() {
		s.good = g.now() // it has just been let in
	}
	token := string(id.Token)
	if g.signed(token) {
		keys, err := g.keys()
		if err == nil && s.gate == g && s.generation == keys.Generation && (g.own == nil || s.grant != nil && s.grant.Lives(g.now())) {
			s.good = g.now()
			return true, false
		}
	}
	if s.gate != g || !g.signed(token) { // requests may have found it out already
		if e := g.memory.get(g.memory.key(token), token, now); e != nil && g.holds(e) && !g.lacks(e.identity) {
			s.gate, s.generation, s.grant = g, e.generation, e.grant
			switch {
			case e.asked.IsZero():
				s.good = g.now()
				return true, false
			case e.asked.After(s.good):
				s.good = e.asked
			}
		}
	}
	age := g.now().Sub(s.good)
	if g.signed(token) {
		return age < staysFor, true
	}
	return age < staysFor, age >= askAgain
}

// lacks reports whether an issuer says by now that a token does without a scope that all need.
// Where a program maps identities, that decides which scopes they have, when they come in.
func (g *Gate) lacks(id *edge.Identity) bool {
	return g.Map == nil && oauth.Lacks(id.Scopes, g.incoming.spec.Required)
}

// Asks reports whether Renew waits for an issuer's word on somebody, and does not
// find out by itself.
func (g *Gate) Asks(id *edge.Identity) bool {
	if g.incoming.spec.Type == Unverified {
		return false
	}
	return !g.signed(string(id.Token)) || g.own != nil
}

// Renew finds out whether the credential of somebody who stays holds. Those whom
// nobody knows take nothing of the room that it has at the issuer.
func (g *Gate) Renew(ctx context.Context, id *edge.Identity, s *Stay) {
	if g.fixed != nil || id == nil || g.incoming.spec.Type == Unverified {
		return
	}
	token, asked := string(id.Token), g.now()
	var generation uint64
	var grant Grant
	var err error
	if g.signed(token) {
		generation, grant, err = g.signedStill(ctx, token)
	} else {
		var e *entry
		if e, err = g.ask(ctx, token, g.clock.now(), g.introspect.Again); err == nil && g.Map == nil && (e.identity.Issuer != id.Issuer || e.identity.Subject != id.Subject) {
			err = errors.New("the token is somebody else's")
		}
		if err == nil && g.lacks(e.identity) {
			err = errors.New("the token lacks a scope by now")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var unknown *unknownError
	switch {
	case err == nil:
		s.gate, s.generation, s.grant, s.good = g, generation, grant, asked
	case errors.As(err, &unknown), errors.Is(err, errStore):
	default:
		s.over = true
		g.memory.forget(g.memory.key(token)) // nor does it let anybody in
	}
}

// signedStill reports whether a token that was good still is, by the keys that
// are known: one whose key has gone is not waited for.
func (g *Gate) signedStill(ctx context.Context, token string) (generation uint64, grant Grant, err error) {
	keys, err := g.keys()
	if err != nil {
		var none *oauth.NoKeysError
		if errors.As(err, &none) && none.Stale {
			return 0, nil, err
		}
		return 0, nil, &unknownError{err}
	}
	payload, access, err := signed(token, func(kid string) (*oauth.Key, error) {
		if key := keys.Keys.Find(kid); key != nil {
			return key, nil
		}
		return nil, errors.New("its key has gone")
	})
	if err != nil {
		return 0, nil, err
	}
	c, err := parseClaims(payload, g.rules(g.clock.now(), access, false))
	if err == nil {
		grant, err = g.grant(ctx, &c, access)
	}
	return keys.Generation, grant, err
}

// unknownError says that nobody can tell for now.
type unknownError struct{ error }

func (e *unknownError) Unwrap() error { return e.error }
