package login

import (
	"context"
	"net/url"
)

// Opener is what opens browsers.
func Browse(text string) error { return browse(text) }

// Listener is a callback server.
type Listener struct{ c *callback }

// Listen opens a callback server on any port.
func Listen(state string) (*Listener, string, error) {
	c, err := listen(AnyPort, state)
	if err != nil {
		return nil, "", err
	}
	c.begin(func(q url.Values) (string, error) { return judge(q, &place{}) })
	return &Listener{c}, c.redirect, nil
}

// Wait waits for a code.
func (l *Listener) Wait(ctx context.Context) (string, error) {
	defer l.c.close()
	return l.c.wait(ctx)
}

// Covers reports whether a resource is that of a server.
var Covers = covers
