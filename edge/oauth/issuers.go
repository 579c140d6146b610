package oauth

import (
	"context"
	"sync"
	"time"
)

// Issuers shares what is kept of an issuer among all who ask for the same, so
// that many servers of one identity provider cost it one fetch. The zero value
// is ready. It is safe for concurrent use.
type Issuers struct {
	// Times apply to every issuer: see IssuerOptions. 0 for the defaults.
	Interval, Refresh, MaxStale, Wait time.Duration

	mu     sync.Mutex
	shared map[issuerKey]*sharedIssuer
}

// issuerKey is all that makes two issuers the same.
type issuerKey struct {
	issuer, jwks, tokenFile, ca, more string
	private, http, dev                bool
}

type sharedIssuer struct {
	issuer *Issuer
	users  int
	stop   context.CancelFunc
	ended  chan struct{} // closed when its goroutine has ended
}

// Open returns the issuer of o, whose keys are fetched in the background until
// everyone who opened it has called done. The client of o is made of how, and
// its times are those of s. Each who asks is told in the log of theirs.
func (s *Issuers) Open(o IssuerOptions, how Options) (issuer *Issuer, done func(), err error) {
	key := issuerKey{o.Issuer, o.JWKSURL, o.TokenFile, string(how.CABundle), string(how.Reach.CAs), how.AllowPrivate, how.AllowHTTP, how.Reach.DevLoopback}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil {
		s.shared = map[issuerKey]*sharedIssuer{}
	}
	i := s.shared[key]
	if i == nil {
		if o.Client, err = New(how); err != nil {
			return nil, nil, err
		}
		o.Interval, o.Refresh, o.MaxStale, o.Wait = s.Interval, s.Refresh, s.MaxStale, s.Wait
		ctx, stop := context.WithCancel(context.Background())
		i = &sharedIssuer{issuer: NewIssuer(o), stop: stop, ended: make(chan struct{})}
		s.shared[key] = i
		go func() { // ends when the last user is done
			defer close(i.ended)
			i.issuer.Run(ctx)
			o.Client.Close()
		}()
	} else {
		i.issuer.alsoTell(o.Log)
	}
	i.users++
	var once sync.Once
	return i.issuer, func() { once.Do(func() { i.issuer.tellNoMore(o.Log); s.leave(key, i) }) }, nil
}

// leave counts a user less and, after the last, waits for the goroutine to end.
func (s *Issuers) leave(key issuerKey, i *sharedIssuer) {
	s.mu.Lock()
	i.users--
	last := i.users == 0
	if last {
		delete(s.shared, key)
	}
	s.mu.Unlock()
	if last {
		i.stop()
		<-i.ended
	}
}
