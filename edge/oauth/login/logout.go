package login

import (
	"context"
	"errors"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
)

// Ended is a login that was forgotten.
type Ended struct {
	URL     string
	Revoked bool  // its refresh token is good for nothing any more
	Err     error // why it still may be; nil where it was revoked, and where there was none
}

// Logout forgets the login to a server; there is false where none is kept. Before that, its
// refresh token is revoked where the authorization server has an endpoint for it (RFC 7009),
// which may take as long as within. The login is forgotten in any case, also when ctx has
// ended; err is of the store.
func Logout(ctx context.Context, store *Store, http *oauth.Client, url string, within time.Duration) (ended Ended, there bool, err error) {
	ended.URL = Canonical(url)
	k, there, err := store.Find(ended.URL)
	if err != nil || !there {
		return ended, false, err
	}

	// 1. The refresh token, as it is when no other process is renewing it.
	if k.Tokens.Refresh != "" {
		ended.Err = revoke(ctx, store, http, ended.URL, within)
		ended.Revoked = ended.Err == nil
	}

	// 2. What is kept.
	return ended, true, store.Remove(context.WithoutCancel(ctx), ended.URL)
}

// revoke revokes the refresh token of a login.
func revoke(ctx context.Context, store *Store, http *oauth.Client, url string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	done, err := store.Turn(ctx, url)
	if err != nil {
		return err
	}
	defer done()
	k, _, err := store.Find(url)
	if err != nil || k.Tokens.Refresh == "" {
		return err
	}
	if k.Issuer == "" {
		return errors.New("its authorization server has no metadata, which would say where")
	}
	c := &client{options: k.Options(), http: http, dev: http.DevLoopback()}
	m, _, err := c.metadata(ctx, k.Issuer)
	if err != nil {
		return err
	}
	if m.RevocationEndpoint == "" {
		return errors.New("its authorization server has no endpoint for it")
	}
	endpoint, err := c.endpointAt(k, "revocation_endpoint", m.RevocationEndpoint)
	if err != nil {
		return err
	}
	return told(endpoint.Revoke(ctx, edge.Secret(k.Tokens.Refresh), "refresh_token"))
}
