package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// How long what a provider publishes is used, and how soon it is asked again.
const (
	metadataAge = time.Hour        // of metadata
	keysAge     = 5 * time.Minute  // of keys
	keysStale   = time.Hour        // of keys, while the provider does not answer
	keysPause   = 10 * time.Second // between fetches that tokens with unknown keys ask for
	retryPause  = time.Second      // after a failure
)

// published is what a provider of type oidc publishes, fetched when a login needs it. One
// fetch is under way at a time, and it answers all who wait.
type published struct {
	issuer string
	client *oauth.Client
	now    func() time.Time
	turn   chan struct{} // holds one: whose turn it is

	meta     *oauth.Metadata
	metaAt   time.Time
	keys     *oauth.KeySet
	keysAt   time.Time
	failed   error // of the last fetch
	failedAt time.Time
}

func newPublished(issuer string, client *oauth.Client, now func() time.Time) *published {
	return &published{issuer: issuer, client: client, now: now, turn: make(chan struct{}, 1)}
}

// wait takes the turn; the caller gives it back.
func (p *published) wait(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// metadata returns what the provider says of itself.
func (p *published) metadata(ctx context.Context) (*oauth.Metadata, error) {
	if err := p.wait(ctx); err != nil {
		return nil, err
	}
	defer func() { <-p.turn }()
	return p.discover(ctx)
}

// discover is metadata for whoever has the turn.
func (p *published) discover(ctx context.Context) (*oauth.Metadata, error) {
	now := p.now()
	if p.meta != nil && now.Sub(p.metaAt) < metadataAge {
		return p.meta, nil
	}
	if p.failed != nil && now.Sub(p.failedAt) < retryPause {
		return p.meta, orNone(p.meta != nil, p.failed)
	}
	meta, err := p.ask(ctx)
	if err != nil {
		p.failed, p.failedAt = err, p.now()
		return p.meta, orNone(p.meta != nil, err)
	}
	p.meta, p.metaAt, p.failed = meta, p.now(), nil
	return meta, nil
}

// orNone is an error that does not count where what was known before serves.
func orNone(known bool, err error) error {
	if known {
		return nil
	}
	return err
}

// ask fetches the metadata from where OpenID Connect has them, else from where RFC 8414 has.
func (p *published) ask(ctx context.Context) (*oauth.Metadata, error) {
	place := strings.TrimSuffix(p.issuer, "/") + "/.well-known/openid-configuration"
	answer, err := p.client.Do(ctx, oauth.Request{URL: place, Trust: oauth.Named, Header: accept(), Redirects: 3})
	var meta *oauth.Metadata
	if err == nil && answer.Status == http.StatusOK {
		meta, err = oauth.ParseMetadata(answer.Body, p.issuer, p.client.DevLoopback())
	} else if err == nil {
		meta, err = p.client.Discover(ctx, p.issuer, oauth.Named, nil)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("discovery of %s: %w", p.issuer, err)
	case meta.AuthorizationEndpoint == "" || meta.TokenEndpoint == "" || meta.JWKSURI == "":
		return nil, fmt.Errorf("discovery of %s: the document lacks an authorization_endpoint, a token_endpoint or a jwks_uri", p.issuer)
	}
	return meta, nil
}

// trust says who named a URL that a document of the provider holds: on the very origin that
// the operator named it is the operator.
func trust(named, learned string) oauth.Trust {
	if oauth.SameOrigin(named, learned) {
		return oauth.Named
	}
	return oauth.Learned
}

func accept() http.Header { return http.Header{"Accept": {"application/json"}} }

// errNoKey is a token that names no key of the provider.
var errNoKey = errors.New("the ID token names no key of the provider")

// awayError is keys that cannot be had now: nothing is said about the token.
type awayError struct{ cause error }

func (e awayError) Error() string { return "the keys of the provider: " + e.cause.Error() }
func (e awayError) Unwrap() error { return e.cause }

// key returns the key that a kid names. An error is an awayError, or errNoKey.
func (p *published) key(ctx context.Context, kid string) (*oauth.Key, error) {
	if err := p.wait(ctx); err != nil {
		return nil, awayError{err}
	}
	defer func() { <-p.turn }()
	now := p.now()
	age := now.Sub(p.keysAt)
	if p.keys != nil {
		if key := p.keys.Find(kid); key != nil && age < keysAge {
			return key, nil
		} else if key == nil && age < keysPause {
			return nil, errNoKey
		}
	}
	err := p.failed
	if p.failed == nil || now.Sub(p.failedAt) >= retryPause {
		if err = p.fetch(ctx); err != nil {
			p.failed, p.failedAt = err, p.now()
		}
	}
	if p.keys != nil && (err == nil || age < keysStale) {
		if key := p.keys.Find(kid); key != nil {
			return key, nil
		}
		if err == nil {
			return nil, errNoKey
		}
	}
	return nil, awayError{err}
}

// fetch fetches the keys, for whoever has the turn.
func (p *published) fetch(ctx context.Context) error {
	meta, err := p.discover(ctx)
	if err != nil {
		return err
	}
	answer, err := p.client.Do(ctx, oauth.Request{URL: meta.JWKSURI, Trust: trust(p.issuer, meta.JWKSURI), Header: accept(), Redirects: 3})
	if err != nil {
		return err
	}
	if answer.Status != http.StatusOK {
		return fmt.Errorf("status %d", answer.Status)
	}
	keys, err := oauth.ParseKeys(answer.Body)
	if err != nil {
		return err
	}
	p.keys, p.keysAt, p.failed = keys, p.now(), nil
	return nil
}

// unavailable is the error of a provider that cannot be used now.
func unavailable(op string, err error) error {
	return &edge.Error{Kind: edge.Unavailable, Op: op + ": " + err.Error(), After: retryPause, Err: errors.New("the identity provider cannot be asked now")}
}
