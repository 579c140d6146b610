package login

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/oauth"
)

// maxTries bounds logins in a row that lead to nothing (MCP 2026-07-28, scope challenge
// handling: few retries).
const maxTries = 3

// renewPause is how long nobody tries to renew a login after that has failed.
const renewPause = time.Second

// Session gives the token for each request to one MCP server. It is safe for concurrent use.
type Session struct {
	client
	store      *Store
	unattended bool

	mu    sync.Mutex   // of whoever was refused, or logs in: one at a time
	from  atomic.Int32 // the origin of the token that was given out last
	tries atomic.Int32 // logins since a token last worked

	turn   chan struct{} // holds a value while a login is renewed, which guards what follows
	failed error         // why that failed last
	quiet  time.Time     // until when nobody tries again
}

// origin is how far the token of a session was got: each is worth one more try when the
// server refuses it.
type origin = int32

const (
	found   origin = iota // it was kept, or has worked
	renewed               // by a refresh token
	fresh                 // by a login
)

// Open returns a session. unattended says that nobody is there: what needs a browser is a
// *NeededError then. The error joins all that is wrong with the options.
func Open(o Options, store *Store, http *oauth.Client, unattended bool) (*Session, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	o.URL = Canonical(o.URL)
	return &Session{client: client{options: o, http: http, dev: http.DevLoopback()}, store: store, unattended: unattended, turn: make(chan struct{}, 1)}, nil
}

// KeptOptions are those of the login to a server that a store has, the first of several in the
// order of List; those of a login that asks for nothing in particular where it has none.
func KeptOptions(store *Store, url string) (Options, error) {
	all, err := store.Of(Canonical(url))
	if err != nil || len(all) == 0 {
		return Options{URL: url}, err
	}
	return all[0].Options(), nil
}

// kept is the login of the store that was made with these options. What was given to another
// generation of its client is none.
func (s *Session) kept() (Kept, bool, error) {
	k, there, err := s.store.Find(s.options.URL, s.options.settings())
	if err != nil || !there {
		return Kept{}, false, err
	}
	if k.Tokens.Of != k.Client.generation() {
		k.Tokens = Tokens{}
	}
	return k, true, nil
}

func (s Settings) grant() Grant {
	if s.Grant == "" {
		return Code
	}
	return s.Grant
}

// Token returns the token for a request; "" where there is none, and the server may be asked
// without. One that is about to end is renewed first, by one process at a time; while that fails
// it is given as long as it is good. The error is for the user, and says what to do.
func (s *Session) Token(ctx context.Context) (edge.Secret, error) {
	if token, err := s.options.bearer(); token != "" || err != nil {
		return token, err
	}
	k, _, err := s.kept()
	if err != nil || k.Tokens.good(time.Now()) || k.Tokens.Refresh == "" {
		return edge.Secret(k.Tokens.Access), err
	}
	return s.renew(ctx, k.Tokens)
}

// renew has the login renewed: one call does it, and the others wait for that until ctx ends. What
// failed is not tried again for a moment; the old token is given as long as it is good.
func (s *Session) renew(ctx context.Context, old Tokens) (token edge.Secret, err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if err = s.failed; !time.Now().Before(s.quiet) {
		if token, err = s.trade(ctx, old.Access); err != nil && ctx.Err() == nil {
			s.failed, s.quiet = err, time.Now().Add(renewPause)
		}
	}
	if err != nil && old.Access != "" && time.Now().Before(old.Expires) {
		return edge.Secret(old.Access), nil
	}
	return token, err
}

// trade trades the refresh token for a new access token, unless another process has done it
// while this one waited: then the token is another than old. It returns "" where
// somebody has to log in.
func (s *Session) trade(ctx context.Context, old string) (edge.Secret, error) {
	done, err := s.store.Turn(ctx, s.options.URL, s.options.settings())
	if err != nil {
		return "", err
	}
	defer done()
	k, _, err := s.kept()
	if err != nil {
		return "", err
	}
	if k.Tokens.Access != old && k.Tokens.good(time.Now()) {
		return edge.Secret(k.Tokens.Access), nil
	}
	if k.Tokens.Refresh == "" {
		return "", nil
	}
	next, err := s.refresh(ctx, k, func(refresh edge.Secret) error {
		if string(refresh) == k.Tokens.Refresh {
			return nil
		}
		k.Tokens.Refresh, k.Tokens.Access = string(refresh), ""
		return s.store.Put(ctx, k)
	})
	var refusal *oauth.TokenError
	switch {
	case err == nil:
		s.from.Store(renewed)
		return edge.Secret(next.Tokens.Access), s.store.Put(ctx, next)
	case errors.As(err, &refusal) && (refusal.Code == "invalid_grant" || refusal.Said && k.Client.How == registered && unknownClient(refusal.Code)):
		// What was kept is worth nothing: it is asked with once. A client that the server does
		// not know any more is registered anew; one that the user gave may be right again as it is.
		k.Tokens = Tokens{}
		if refusal.Code != "invalid_grant" {
			k.Client = Client{}
		}
		return "", s.store.Put(ctx, k)
	}
	return "", fmt.Errorf("renew the login: %w: try again, or log in anew with `%s`", told(err), s.options.settings().Command(s.options.URL))
}

// told is an error of a token endpoint with what its Op says, which is for who runs this.
func told(err error) error {
	var e *edge.Error
	if errors.As(err, &e) && e.Op != "" {
		return errors.New(e.Op)
	}
	return err
}

// Login makes a login, whatever is kept, and keeps it. It returns what was given.
func (s *Session) Login(ctx context.Context) (Kept, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	challenge, asked, err := s.probe(ctx)
	if err != nil {
		return Kept{}, &UnreachableError{s.options.URL, err}
	}
	k, err := s.again(ctx, challenge, nil)
	if err != nil && !asked {
		err = fmt.Errorf("%w (without a credential the server answers, too: it may need no login)", err)
	}
	return k, err
}

// again logs in and keeps the login. s.mu is held.
func (s *Session) again(ctx context.Context, challenge mcp.Challenge, more []string) (Kept, error) {
	old, _, err := s.kept()
	if err == nil {
		err = s.store.Room(s.options.URL, s.options.settings()) // before somebody is asked
	}
	if err != nil {
		return Kept{}, err
	}
	k, err := s.login(ctx, challenge, old, more)
	if err != nil {
		var refusal *oauth.TokenError
		unknown := errors.Is(err, errUnknown) || errors.Is(err, errNobody) || errors.Is(err, context.Canceled)
		if errors.As(err, &refusal) {
			unknown = refusal.Said && unknownClient(refusal.Code)
			err = fmt.Errorf("log in: %w", told(err))
		}
		if unknown && old.Client.How == registered {
			old.Client.Doubted = true // what it was given may be good still
			err = errors.Join(fmt.Errorf("%w: the authorization server may have forgotten this client: log in again, as a new one", err), s.store.Put(context.WithoutCancel(ctx), old))
		}
		return Kept{}, err
	}
	k.Main = old.Main || s.options.Main
	s.from.Store(fresh)
	s.tries.Add(1)
	return k, s.store.Put(ctx, k)
}

// Refused is told what the server answered to a request with a token ("" for none): its
// status, and its challenges. It reports whether the request is to be sent again, with what
// Token returns then: after another process or a refresh token has brought a new one, after a
// login, or after one with more scopes, at most three times in a row. The error is for the
// user.
func (s *Session) Refused(ctx context.Context, status int, challenges []string, token edge.Secret) (again bool, err error) {
	if static, err := s.options.bearer(); static != "" || err != nil {
		return false, err
	}
	challenge := firstOf(challenges)
	s.mu.Lock()
	defer s.mu.Unlock()
	k, _, err := s.kept()
	if err != nil {
		return false, err
	}
	switch {
	case status == http.StatusUnauthorized:
		if k.Tokens.good(time.Now()) && k.Tokens.Access != string(token) {
			return true, nil
		}
		if s.from.Load() == found && k.Tokens.Refresh != "" {
			if next, err := s.renew(ctx, k.Tokens); err != nil || next != "" {
				return next != "" && next != token, err
			}
		}
		if s.from.Load() == fresh && token != "" {
			return false, nil // it refuses what it has just been given for
		}
		why := "no login is kept"
		if token != "" {
			why = "the login is over"
		}
		return s.more(ctx, challenge, nil, why)
	case status == http.StatusForbidden && challenge.Error == "insufficient_scope":
		// The union of what the login has and what the server wants (MCP 2026-07-28, step-up).
		union := slices.Clone(k.Requested)
		for _, one := range slices.Concat(k.Tokens.Scopes, challenge.Scopes) {
			if !slices.Contains(union, one) {
				union = append(union, one)
			}
		}
		if len(union) == len(k.Requested) {
			return false, nil // it has all that is asked for: another login changes nothing
		}
		return s.more(ctx, challenge, union, "the server wants more scopes than the login has")
	}
	return false, nil
}

// more logs in once more, if anybody can.
func (s *Session) more(ctx context.Context, challenge mcp.Challenge, scopes []string, why string) (bool, error) {
	if s.tries.Load() >= maxTries {
		return false, nil
	}
	if s.unattended && s.options.grant() == Code {
		return false, s.Needed(why)
	}
	_, err := s.again(ctx, challenge, scopes)
	return err == nil, err
}

// Needed is the error of a request for which somebody has to log in first.
func (s *Session) Needed(why string) error {
	return &NeededError{s.options.URL, why, s.options.settings()}
}

// Worked is told that the server took a token. It never waits.
func (s *Session) Worked() {
	s.from.Store(found)
	s.tries.Store(0)
}

// Failure is the error of a request that has no token: its text is for the user, and says what
// to do.
type Failure struct{ Err error }

func (e *Failure) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Failure) Unwrap() error { return e.Err }

// UnreachableError says that an MCP server did not answer.
type UnreachableError struct {
	URL string
	Err error
}

func (e *UnreachableError) Error() string {
	return e.Err.Error() + ": check that the server runs and that the URL is right"
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Transport sends requests with the token of a session, and again where a refusal brought a
// new one. What leads elsewhere than to the origin of the server goes without.
type Transport struct {
	Session *Session
	Base    http.RoundTripper
}

// RoundTrip sends a request; its GetBody has to be set where it has a body.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !oauth.SameOrigin(r.URL.String(), t.Session.options.URL) {
		return t.Base.RoundTrip(r)
	}
	for {
		token, err := t.Session.Token(r.Context())
		if err != nil {
			return nil, &Failure{err}
		}
		one := r.Clone(r.Context())
		if r.GetBody != nil {
			if one.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
		if token != "" {
			one.Header.Set("Authorization", "Bearer "+string(token))
		}
		answer, err := t.Base.RoundTrip(one)
		if err != nil {
			return nil, err
		}
		if answer.StatusCode != http.StatusUnauthorized && answer.StatusCode != http.StatusForbidden {
			if token != "" {
				t.Session.Worked()
			}
			return answer, nil
		}
		again, err := t.Session.Refused(r.Context(), answer.StatusCode, answer.Header.Values("WWW-Authenticate"), token)
		if !again && err == nil {
			return answer, nil
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10))
		_ = answer.Body.Close()
		if err != nil {
			return nil, &Failure{err}
		}
	}
}

// CloseIdleConnections closes those of Base.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
