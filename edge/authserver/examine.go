package authserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Examination is what can be said of an authorization server before it runs.
type Examination struct {
	Ephemeral bool           // a secret or a key would be made at start
	Secrets   []SecretStatus // how those of the list are used
	Missed    []string       // what ends, or is refused, when the Spec is served as it is
}

// Examine reads the secrets and keys of a Spec, and what a store has to say of them; nil for
// no store. The error is about secrets and keys that cannot be served with, or the store's.
func Examine(ctx context.Context, c *Spec, secrets edge.Secrets, store edge.Store) (*Examination, error) {
	lasting, err := NewLasting()
	if err != nil {
		return nil, err
	}
	m, err := newMaterials(ctx, c, secrets, lasting, func(error) {})
	if err != nil {
		return nil, err
	}
	now := m.now.Load()
	out := &Examination{Ephemeral: now.Ephemeral}
	known := map[string]*used{}
	if store != nil {
		s := &Server{config: c, material: m, records: newRecords(store, m, c.Issuer), log: slog.New(slog.DiscardHandler), now: time.Now, lasting: lasting}
		if known, err = s.examine(ctx, out); err != nil {
			return nil, err
		}
	}
	for _, k := range now.ring.keys {
		one := SecretStatus{Name: k.digest}
		if u := known[k.digest]; u != nil {
			one.Grants, one.Last = u.lives(time.Now()), u.Last
		}
		out.Secrets = append(out.Secrets, one)
	}
	return out, nil
}

// examine reads what the replicas that run have written down.
func (s *Server) examine(ctx context.Context, out *Examination) (known map[string]*used, err error) {
	m := s.material.now.Load()
	read := func(key string, to any) error {
		bad := s.records.bad.Load()
		text, err := s.records.Get(ctx, key)
		switch {
		case err != nil:
			return err
		case s.records.bad.Load() > bad:
			out.Missed = append(out.Missed, "what replicas have written last is sealed with none of hmacSecretRefs: all who have signed in have to do so again, and clients have to be added again")
		case text != nil && json.Unmarshal(text, to) != nil:
			return fmt.Errorf("the record %s cannot be read", key)
		}
		return nil
	}
	var replicas map[string]present
	if err := read(usageKey, &known); err != nil {
		return nil, err
	}
	if err := read(keysKey, &replicas); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if n := known[name].lives(s.now()); n > 0 && !m.ring.has(name) {
			out.Missed = append(out.Missed, fmt.Sprintf("about %d sign-ins live of clients that are registered under secret %s, which is none of hmacSecretRefs: they end, and those clients have to be added again", n, name))
		}
	}
	for _, node := range slices.Sorted(maps.Keys(replicas)) {
		if kid := replicas[node].Key; m.keys.Find(kid) == nil {
			out.Missed = append(out.Missed, fmt.Sprintf("replica %s signs with key %s, which is none of signingKeySecretRefs: its tokens are refused", node, kid))
		}
	}
	return known, nil
}
