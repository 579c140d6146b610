package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Replicas of one issuer write into one record what they sign with, so that each sees whether
// the others can read what it makes.

// Times of the record of replicas.
const (
	agreeEvery = 20 * time.Second
	agreeLife  = time.Minute
	agreeMost  = 256         // replicas in the record
	agreeSkew  = time.Minute // by which clocks may differ
)

// keysKey is the record of replicas.
const keysKey = "keys"

// present is what a replica says of itself.
type present struct {
	Secret string    // names the current one
	Key    string    // kid of the one that signs
	At     time.Time // by its clock
}

// Agreement is whether replicas with one store can read what the others make.
type Agreement struct {
	Replicas int    // seen in the last minute, this one among them; 0 before the first look
	Message  string // what is wrong; "" for nothing
}

// agreement is an Agreement as it is known. It is safe for concurrent use.
type agreement struct {
	mu  sync.Mutex
	now Agreement
}

func (a *agreement) get() Agreement {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now
}

// set takes what is known now, and reports whether that is another fault than before.
func (a *agreement) set(now Agreement) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	changed := a.now.Message != now.Message
	a.now = now
	return changed
}

// keep does from time to time what no request does: it compares with the other replicas, and
// writes down which secrets are in use. It is for a store that replicas share, and ends with
// ctx.
func (s *Server) keep(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(agreeEvery)
		s.keepOnce(ctx)
	}
}

func (s *Server) keepOnce(ctx context.Context) {
	defer edge.Contain(s.log, "authorization server")
	s.material.current(ctx)
	if err := s.lasting.usage.flush(ctx, s.records, s.now()); err != nil && ctx.Err() == nil {
		s.log.Debug("which secrets are in use was not written down", "error", err)
	}
	now, err := s.compare(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.log.Debug("replicas cannot be compared with", "error", err)
	case s.agreement.set(now) && now.Message != "":
		s.log.Warn("replicas of the authorization server do not agree: who signs in at one is unknown to another", "issuer", s.config.Issuer, "why", now.Message)
	case now.Message == "":
		s.log.Debug("replicas of the authorization server agree", "issuer", s.config.Issuer, "replicas", now.Replicas)
	}
}

// compare writes what this replica signs with, and reads what the others do.
func (s *Server) compare(ctx context.Context) (Agreement, error) {
	m, now := s.material.current(ctx), s.now()
	mine := present{m.ring.keys[0].digest, m.signers[0].ID, now}
	var others map[string]present
	foreign := false
	bad := s.records.bad.Load()
	err := s.records.Update(ctx, keysKey, agreeLife, func(old []byte) ([]byte, error) {
		others = map[string]present{}
		foreign = old == nil && s.records.bad.Load() > bad // it is there, and does not open
		if old != nil && json.Unmarshal(old, &others) != nil {
			others = map[string]present{}
		}
		maps.DeleteFunc(others, func(node string, p present) bool {
			return node == s.lasting.node || now.Sub(p.At) > agreeLife || p.At.Sub(now) > time.Hour
		})
		if len(others) >= agreeMost {
			return nil, errors.New("there are too many replicas")
		}
		all := maps.Clone(others)
		all[s.lasting.node] = mine
		return encode(all), nil
	})
	if err != nil {
		return Agreement{}, err
	}
	a := Agreement{Replicas: len(others) + 1}
	if foreign {
		a.Message = "another replica with this store has none of hmacSecretRefs of this one"
		return a, nil
	}
	for _, node := range slices.Sorted(maps.Keys(others)) {
		p := others[node]
		switch {
		case !m.ring.has(p.Secret):
			a.Message = fmt.Sprintf("replica %s makes codes, refresh tokens and clients with secret %s, which is none of hmacSecretRefs here", node, p.Secret)
		case m.keys.Find(p.Key) == nil:
			a.Message = fmt.Sprintf("replica %s signs with key %s, which is none of signingKeySecretRefs here", node, p.Key)
		case p.At.Sub(now) > agreeSkew:
			a.Message = fmt.Sprintf("the clock of replica %s is %s ahead of this one's: its tokens are refused here until then", node, p.At.Sub(now).Round(time.Second))
		}
	}
	return a, nil
}

// has reports whether a secret is one of the ring's.
func (r *ring) has(name string) bool {
	return slices.ContainsFunc(r.keys, func(d derived) bool { return d.digest == name })
}
