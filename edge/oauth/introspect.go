package oauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"github.com/weir-edge/weir/edge"
)

// IntrospectorOptions say where and as whom tokens are introspected.
type IntrospectorOptions struct {
	URL      string
	Trust    Trust // of the URL
	ClientID string
	Client   *Client

	// ClientSecret returns the secret of the moment: with it, HTTP Basic. nil for
	// none, which makes client_id a parameter.
	ClientSecret func(context.Context) (edge.Secret, error)

	AtOnce      int // tokens asked for at the same time; 0 for 64. More are refused.
	AgainAtOnce int // the same of Again, where more wait; 0 for 64
}

const (
	defaultAtOnce    = 64
	maxIntrospection = 64 << 10 // bytes of an answer
)

// BusyError says that too many tokens are being introspected.
type BusyError struct{}

func (*BusyError) Error() string { return "too many tokens are being introspected" }

// Introspector asks an authorization server about tokens (RFC 7662). It keeps
// nothing: the same token asked for several times at once costs one request, and
// asked for later another. It is safe for concurrent use.
type Introspector struct {
	options IntrospectorOptions
	again   chan struct{} // holds a value for each flight of Again
	mu      sync.Mutex
	flights map[[sha256.Size]byte]*flight
	first   int // flights of Introspect
}

// flight is one request under way.
type flight struct {
	done   chan struct{} // closed at its end
	claims []byte
	active bool
	err    error
}

// NewIntrospector returns an introspector.
func NewIntrospector(o IntrospectorOptions) *Introspector {
	if o.AtOnce <= 0 {
		o.AtOnce = defaultAtOnce
	}
	if o.AgainAtOnce <= 0 {
		o.AgainAtOnce = defaultAtOnce
	}
	return &Introspector{options: o, again: make(chan struct{}, o.AgainAtOnce), flights: map[[sha256.Size]byte]*flight{}}
}

// Introspect asks about a token. Only an answer of status 200 whose active is
// the boolean true says that it is active; claims are that answer, a JSON object
// by the rules of CheckJSON. An error says
// that nobody knows: the endpoint is away, refuses, or talks nonsense.
func (i *Introspector) Introspect(ctx context.Context, token edge.Secret) (claims []byte, active bool, err error) {
	digest := sha256.Sum256([]byte(token))
	i.mu.Lock()
	f := i.flights[digest]
	if f == nil {
		if i.first >= i.options.AtOnce {
			i.mu.Unlock()
			return nil, false, &BusyError{}
		}
		i.first++
		f = i.begin(ctx, digest, token, func() { i.first-- })
	}
	i.mu.Unlock()
	return f.wait(ctx)
}

// Again is Introspect for a token that was active a moment ago. It has room of
// its own, which nobody takes by sending tokens that mean nothing, and waits for
// it until ctx ends.
func (i *Introspector) Again(ctx context.Context, token edge.Secret) (claims []byte, active bool, err error) {
	digest := sha256.Sum256([]byte(token))
	i.mu.Lock()
	f := i.flights[digest]
	i.mu.Unlock()
	if f != nil {
		return f.wait(ctx)
	}
	select {
	case i.again <- struct{}{}:
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	i.mu.Lock()
	if f = i.flights[digest]; f != nil { // somebody else has begun meanwhile
		<-i.again
	} else {
		f = i.begin(ctx, digest, token, func() { <-i.again })
	}
	i.mu.Unlock()
	return f.wait(ctx)
}

// begin begins a flight; i.mu is held, and is when free gives its room back.
func (i *Introspector) begin(ctx context.Context, digest [sha256.Size]byte, token edge.Secret, free func()) *flight {
	f := &flight{done: make(chan struct{})}
	i.flights[digest] = f
	go i.fly(context.WithoutCancel(ctx), digest, token, f, free) // ends with the client's timeout at the latest
	return f
}

// wait returns what became of the flight.
func (f *flight) wait(ctx context.Context) ([]byte, bool, error) {
	select {
	case <-f.done:
		return f.claims, f.active, f.err
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
}

func (i *Introspector) fly(ctx context.Context, digest [sha256.Size]byte, token edge.Secret, f *flight, free func()) {
	defer func() {
		if r := recover(); r != nil {
			f.claims, f.active, f.err = nil, false, fmt.Errorf("introspect: panic: %v", r)
		}
		i.mu.Lock()
		delete(i.flights, digest)
		free()
		i.mu.Unlock()
		close(f.done)
	}()
	f.claims, f.active, f.err = i.ask(ctx, token)
}

func (i *Introspector) ask(ctx context.Context, token edge.Secret) ([]byte, bool, error) {
	form := url.Values{"token": {string(token)}, "token_type_hint": {"access_token"}}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}}
	switch {
	case i.options.ClientSecret != nil:
		secret, err := i.options.ClientSecret(ctx)
		if err != nil {
			return nil, false, fmt.Errorf("introspect: %w", err)
		}
		SetBasic(header, i.options.ClientID, secret)
	case i.options.ClientID != "":
		form.Set("client_id", i.options.ClientID)
	}
	answer, err := i.options.Client.Do(ctx, Request{
		Method: http.MethodPost, URL: i.options.URL, Trust: i.options.Trust,
		Header: header, Body: []byte(form.Encode()), MaxBody: maxIntrospection,
	})
	if err != nil {
		return nil, false, fmt.Errorf("introspect: %w", err)
	}
	if answer.Status != http.StatusOK {
		return nil, false, fmt.Errorf("introspect: status %d", answer.Status)
	}
	claims, err := ParseObject(answer.Body, 16)
	if err != nil {
		return nil, false, fmt.Errorf("introspect: %w", err)
	}
	switch string(claims["active"]) {
	case "true":
		return answer.Body, true, nil
	case "false":
		return nil, false, nil
	}
	return nil, false, errors.New("introspect: active is no boolean")
}

// SetBasic puts the credentials of an OAuth client into a header, each encoded
// as a form is (RFC 6749 §2.3.1).
func SetBasic(h http.Header, id string, secret edge.Secret) {
	r := http.Request{Header: h}
	r.SetBasicAuth(url.QueryEscape(id), url.QueryEscape(string(secret)))
}
