package optimizer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Bounds of the work with an embedding service.
const (
	maxQuestions = 4096 // whose vectors are kept
	questionWait = time.Second
	maxAsking    = 32 // questions that are being embedded at a time
	atOnce       = 2  // batches
	askAgain     = 5 * time.Minute
)

// Service is an embedding service, as the servers with the same settings share it. In the
// background it makes the vectors of the tools of their catalogs; questions it makes as they
// come. It is safe for concurrent use.
type Service struct {
	client
	library *Library
	log     *slog.Logger
	breaker breaker
	again   time.Duration // between two looks at which model there is
	counts  embedCounts

	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup
	poke chan struct{}

	mu        sync.Mutex
	model     *model // nil while unknown
	looked    time.Time
	most      int // texts that the service takes at once
	batch     int // texts that are sent at once
	editions  map[*edition]bool
	questions *recent[string, *vector]
	asking    map[string]*asking
	refused   map[textDigest]time.Time // texts that the service takes no part of, and until when they are left out
}

// model is what makes vectors. Those of two are never compared.
type model struct {
	name      string
	swaps     int          // how often another one was found under the name
	dimension atomic.Int64 // 0 while unknown
}

// fits reports whether a vector has the dimension of those of the model. The first decides.
func (m *model) fits(v *vector) bool {
	n := int64(len(v.of))
	return m.dimension.CompareAndSwap(0, n) || m.dimension.Load() == n
}

// asking is a question that is being embedded.
type asking struct {
	done   chan struct{}
	vector *vector
}

// ServiceOptions are what a service is opened with. A duration of 0 stands for the usual one.
type ServiceOptions struct {
	ServiceSpec
	Key     edge.Secret // "" for none
	Fetch   Fetch
	Library *Library
	Log     *slog.Logger
	Rest    time.Duration // for which the breaker is open first: 30s
	Again   time.Duration // between two looks at which model there is: 5m
}

// OpenService opens a service. It touches nothing yet but in the background.
func OpenService(o ServiceOptions) *Service {
	s := &Service{
		client: client{o.ServiceSpec, o.Key, o.Fetch}, library: o.Library, log: o.Log, again: o.Again,
		poke: make(chan struct{}, 1), editions: map[*edition]bool{}, batch: usualBatch,
		asking: map[string]*asking{}, refused: map[textDigest]time.Time{},
	}
	s.breaker.rest = o.Rest
	if s.breaker.rest == 0 {
		s.breaker.rest = firstRest
	}
	if s.again == 0 {
		s.again = askAgain
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.work.Go(s.run)
	return s
}

// Close ends what goes on in the background, and waits for it.
func (s *Service) Close() {
	s.end()
	s.work.Wait()
}

// serve has the tools of an edition embedded, until leave. Those whose vectors are known have
// them at once: after a reload too, the next question is answered as the one before was.
func (s *Service) serve(e *edition) {
	s.mu.Lock()
	m := s.model
	s.mu.Unlock()
	if m != nil {
		s.recall(e, m)
	}
	s.mu.Lock()
	s.editions[e] = true
	s.mu.Unlock()
	s.wake()
}

func (s *Service) leave(e *edition) {
	s.mu.Lock()
	delete(s.editions, e)
	s.mu.Unlock()
}

func (s *Service) wake() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// question returns the vector of a question and the model that made it; nil where there is
// none in time.
func (s *Service) question(ctx context.Context, text string) (*vector, *model) {
	s.mu.Lock()
	m := s.model
	if m == nil {
		s.mu.Unlock()
		return nil, nil
	}
	if v, ok := s.questions.get(text); ok {
		s.mu.Unlock()
		return v, m
	}
	one := s.asking[text]
	if one == nil {
		if len(s.asking) >= maxAsking || s.life.Err() != nil {
			s.mu.Unlock()
			return nil, nil
		}
		p := s.breaker.allows(time.Now())
		if p == refused {
			s.mu.Unlock()
			return nil, nil
		}
		one = &asking{done: make(chan struct{})}
		s.asking[text] = one
		s.work.Go(func() { s.ask(p, m, text, one) })
	}
	s.mu.Unlock()
	turn := time.NewTimer(min(s.Timeout, questionWait))
	defer turn.Stop()
	select {
	case <-one.done:
		return one.vector, m
	case <-turn.C:
	case <-ctx.Done():
	}
	return nil, nil
}

func (s *Service) ask(p permit, m *model, text string, one *asking) {
	defer edge.Contain(s.log, "optimizer")
	defer close(one.done)
	all := s.request(p, min(s.Timeout, questionWait), m, []string{text}, (*failure).ofQuestion)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.asking, text)
	if all != nil && s.model == m {
		one.vector = all[0]
		s.questions.put(text, all[0], 0)
	}
}

// request embeds texts after the breaker has allowed it, and tells it what became of them, as
// weigh says; nil where nothing came.
func (s *Service) request(p permit, within time.Duration, m *model, texts []string, weigh func(*failure) weight) []*vector {
	ctx, cancel := context.WithTimeout(s.life, within)
	defer cancel()
	began := time.Now()
	all, err := s.embed(ctx, texts, int(m.dimension.Load()))
	if err == nil && !m.fits(all[0]) {
		err = said("embeddings: vectors of one model have several dimensions")
	}
	if !s.told(p, began, err, weigh) {
		return nil
	}
	return all
}

// told tells the breaker of a request, and reports whether it has succeeded.
func (s *Service) told(p permit, began time.Time, err error, weigh func(*failure) weight) bool {
	if s.life.Err() != nil {
		s.breaker.left(p)
		return false
	}
	now := time.Now()
	_, before := s.breaker.fault()
	var f *failure
	w := plain
	if err != nil {
		if !errors.As(err, &f) {
			f = &failure{what: err.Error()}
		}
		w = weigh(f)
	}
	s.breaker.done(now, p, f, w)
	s.counts.count(f, now.Sub(began))
	switch _, open := s.breaker.fault(); {
	case open && !before:
		s.log.Warn("embeddings are not available: tools are found by keywords alone", "error", f.what)
	case before && !open:
		s.log.Info("embeddings are available again")
		s.mu.Lock()
		clear(s.refused)
		s.mu.Unlock()
		s.wake()
	}
	return f == nil
}

// Fault says why there are no vectors at this time; "" where there are, or may be.
func (s *Service) Fault() string {
	why, open := s.breaker.fault()
	s.mu.Lock()
	known := s.model != nil
	s.mu.Unlock()
	switch {
	case why != nil && (open || !known):
		return why.what
	case !known:
		return "the service has not answered yet"
	}
	return ""
}
