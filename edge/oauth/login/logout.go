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

// Logout forgets all logins to a server, and returns one Ended for each; none where none is
// kept. Before that, their refresh tokens are revoked where the authorization server has an
// endpoint for it (RFC 7009), which may take as long as within in all. The logins are forgotten
// in any case, also when ctx has ended; err is of the store.
func Logout(ctx context.Context, store *Store, http *oauth.Client, url string, within time.Duration) (ended []Ended, err error) {
	url = Canonical(url)
	all, err := store.Of(url)
	if err != nil || len(all) == 0 {
		return nil, err
	}

	// 1. The refresh tokens, as they are when no other process is renewing them.
	until := time.Now().Add(within)
	for i := range all {
		one := Ended{URL: url}
		if all[i].Tokens.Refresh != "" {
			one.Err = revoke(ctx, store, http, &all[i], until)
			one.Revoked = one.Err == nil
		}
		ended = append(ended, one)
	}

	// 2. What is kept.
	return ended, store.Remove(context.WithoutCancel(ctx), url)
}

// revoke revokes the refresh token of a login.
func revoke(ctx context.Context, store *Store, http *oauth.Client, old *Kept, until time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	done, err := store.Turn(ctx, old.URL, old.Settings)
	if err != nil {
		return err
	}
	defer done()
	k, _, err := store.Find(old.URL, old.Settings)
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
