package authserver

import (
	"sync"
	"time"
)

// Status is what an authorization server says of itself.
type Status struct {
	Kids      []string // of the signing keys, the one that signs first
	Ephemeral bool     // a secret or a key was made at start, and ends with the process
	Secrets   []SecretStatus
	Upstreams []UpstreamStatus
	Agreement Agreement // with the other replicas
	Shared    bool      // there may be others: the records are in a shared store
	Waiting   int       // users who are at an upstream
}

// SecretStatus is how one of the secrets is used.
type SecretStatus struct {
	Name   string    // 8 hex that follow from it
	Grants int64     // sign-ins that live, of clients which were registered under it; about so many
	Last   time.Time // when such a client last had tokens; zero for never
}

// UpstreamStatus is how an upstream does.
type UpstreamStatus struct {
	Name     string
	Redirect string // to enter there
	Err      error  // why the last that was asked of it failed; nil for nothing
}

// Status returns what there is to say.
func (s *Server) Status() Status {
	m, now := s.material.now.Load(), s.now()
	out := Status{Ephemeral: m.Ephemeral, Agreement: s.agreement.get(), Shared: s.config.Store != nil, Waiting: s.lasting.waiting.len(now)}
	for _, k := range m.signers {
		out.Kids = append(out.Kids, k.ID)
	}
	for _, k := range m.ring.keys {
		grants, last := s.lasting.usage.of(k.digest, now)
		out.Secrets = append(out.Secrets, SecretStatus{k.digest, grants, last})
	}
	for _, p := range s.providers {
		out.Upstreams = append(out.Upstreams, UpstreamStatus{p.Name(), p.Redirect(), s.faults.of(p.Name())})
	}
	return out
}

// faults are why the last that was asked of each upstream failed. It is safe for concurrent
// use; its zero value is ready.
type faults struct {
	mu  sync.Mutex
	all map[string]error // by the names of upstreams
}

func (f *faults) of(upstream string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[upstream]
}

// note takes what became of something that was asked; nil for a success.
func (f *faults) note(upstream string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[string]error{}
	}
	f.all[upstream] = err
}
