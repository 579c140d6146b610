package optimizer

import (
	"context"
	"crypto/sha256"
	"strconv"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// How the vectors of tools are made in the background: what a catalog has and no vector is
// known of is sent in batches, two at once.

// run works until the service is closed.
func (s *Service) run() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-s.poke:
		case <-t.C:
		}
		t.Reset(s.round())
	}
}

// round does what there is to do, and returns the time until the next round.
func (s *Service) round() time.Duration {
	defer edge.Contain(s.log, "optimizer")
	s.mu.Lock()
	m, due := s.model, time.Until(s.looked.Add(s.again))
	s.mu.Unlock()
	if m == nil || due <= 0 {
		p := granted
		if s.asksModel() {
			p = s.breaker.allows(time.Now())
		}
		if p != refused {
			m = s.look(p)
		}
		due = s.again
	}
	if m != nil {
		s.fill(m, s.missing(m))
	}
	if wait := s.breaker.wait(time.Now()); wait > 0 {
		return wait
	}
	if why, open := s.breaker.fault(); open || m == nil && why != nil {
		return time.Second // a request is under way that decides, or the first has failed
	}
	return due
}

// look asks which model the service has. Another one than before makes all vectors anew, and
// so does one whose vectors have become longer or shorter. Where nothing is asked the breaker
// learns nothing.
func (s *Service) look(p permit) *model {
	began := time.Now()
	ctx, cancel := context.WithTimeout(s.life, s.Timeout)
	defer cancel()
	why, _ := s.breaker.fault()
	name, most, err := s.info(ctx)
	if s.asksModel() && !s.told(p, began, err, (*failure).ofQuestion) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked, s.most = began, most
	if s.model == nil || s.model.name != name || why != nil && why.other {
		next := &model{name: name}
		if s.model != nil && s.model.name == name {
			next.swaps = s.model.swaps + 1
		}
		s.model, s.batch = next, most
		s.questions = newRecent[string, *vector](maxQuestions, 0)
		clear(s.refused)
	}
	return s.model
}

// place is a tool of an edition that wants the vector of a text.
type place struct {
	in   *vectors
	tool uint32
}

// missing is a text whose vector is missing, and where.
type missing struct {
	digest textDigest
	text   string
	places []place
}

// recall gives the tools of an edition the vectors that are known.
func (s *Service) recall(e *edition, m *model) *vectors {
	in := e.vectorsOf(m)
	e.index.each(func(n uint32, t *indexed) {
		if in.of[n].Load() != nil {
			return
		}
		if v := s.library.vector(s.keyOf(m, t.text)); v != nil && m.fits(v) {
			in.set(n, v)
		}
	})
	return in
}

// missing gives the tools of all editions the vectors that are known, and returns the texts
// of the others.
func (s *Service) missing(m *model) []*missing {
	s.mu.Lock()
	var all []*edition
	for e := range s.editions {
		all = append(all, e)
	}
	s.mu.Unlock()
	var todo []*missing
	by := map[textDigest]*missing{}
	for _, e := range all {
		in := s.recall(e, m)
		e.index.each(func(n uint32, t *indexed) {
			if in.of[n].Load() != nil || s.isRefused(t.text) {
				return
			}
			one := by[t.text]
			if one == nil {
				p := partsOf(e.tools[n].raw)
				one = &missing{digest: t.text, text: p.sentence(e.tools[n].target.Backend, e.tools[n].target.Name)}
				by[t.text], todo = one, append(todo, one)
			}
			one.places = append(one.places, place{in, n})
		})
	}
	return todo
}

func (s *Service) isRefused(d textDigest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.refused[d]
	return ok && time.Now().Before(until)
}

// keyOf is by what the vector of a text is known.
func (s *Service) keyOf(m *model, text textDigest) vectorKey {
	h := sha256.New()
	for _, part := range []string{string(s.Provider), s.Address, m.name, strconv.Itoa(m.swaps)} {
		h.Write([]byte(part + "\x00"))
	}
	h.Write(text[:])
	return vectorKey(h.Sum(nil))
}

// fill embeds texts until all are, or the service fails.
func (s *Service) fill(m *model, todo []*missing) {
	var work sync.WaitGroup
	defer work.Wait()
	slots := make(chan struct{}, atOnce)
	for len(todo) > 0 && s.life.Err() == nil && s.breaker.wait(time.Now()) == 0 {
		slots <- struct{}{}
		s.mu.Lock()
		most := s.batch
		s.mu.Unlock()
		n, bytes := 0, 0
		for n < min(most, len(todo)) && (n == 0 || bytes+len(todo[n].text) <= maxBatchBytes) {
			bytes += len(todo[n].text)
			n++
		}
		batch := todo[:n]
		todo = todo[n:]
		work.Go(func() {
			defer func() { <-slots }()
			defer edge.Contain(s.log, "optimizer")
			s.embedAll(m, batch)
		})
	}
}

// embedAll embeds a batch. One that fails is tried again in halves, so that one text cannot
// stop the rest; a text that fails alone is left out for a while.
func (s *Service) embedAll(m *model, batch []*missing) {
	if s.life.Err() != nil {
		return
	}
	p := s.breaker.allows(time.Now())
	if p == refused {
		return
	}
	texts := make([]string, len(batch))
	for i, one := range batch {
		texts[i] = one.text
	}
	all := s.request(p, s.Timeout, m, texts, func(f *failure) weight { return f.ofBatch(len(texts)) })
	s.mu.Lock()
	switch {
	case all != nil:
		s.batch = min(s.most, max(s.batch, 2*len(batch)))
	case len(batch) > 1:
		s.batch = max(1, len(batch)/2)
	default:
		s.refused[batch[0].digest] = time.Now().Add(s.again)
	}
	s.mu.Unlock()
	for i, v := range all {
		s.library.keep(s.keyOf(m, batch[i].digest), v)
		for _, p := range batch[i].places {
			p.in.set(p.tool, v)
		}
	}
	if all == nil && len(batch) > 1 {
		s.embedAll(m, batch[:len(batch)/2])
		s.embedAll(m, batch[len(batch)/2:])
	}
}
