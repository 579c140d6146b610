package guest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/sdk/abi"
	"github.com/weir-edge/weir/wasm"
)

// openCredentials opens the credentials that a filter may choose from, by
// name. Programs see only the names.
func (s *Spec) openCredentials(env edge.Env) (map[string]*edge.Credential, error) {
	if len(s.Credentials) == 0 {
		return nil, nil
	}
	all := make(map[string]*edge.Credential, len(s.Credentials))
	for _, one := range s.Credentials {
		c, err := one.Open(env)
		if err != nil {
			return nil, fmt.Errorf("filter %q: grants.credentials: %s: %w", s.Name, one.Name(), err)
		}
		if c == nil {
			c = &edge.Credential{Name: one.Name()} // of no lines
		}
		all[one.Name()] = c
	}
	return all, nil
}

// maxHeld is how many answers of one program are kept. At the limit all are
// dropped.
const maxHeld = 4096

// held caches a program's answers about credentials for as long as they are
// valid. It is safe for concurrent use.
type held struct {
	mu  sync.Mutex
	all map[whose]answer
}

// whose is the cache key of an answer: a backend and the clients that the
// program does not tell apart.
type whose struct{ backend, key string }

type answer struct {
	ops   []op
	until time.Time
}

// ask returns the program's answer for a backend and all clients with the
// same key. The program sees only what they have in common.
func (h *held) ask(ctx context.Context, a *subscriber, id *edge.Identity, w *scratch, backend string) ([]op, error) {
	const hook = abi.OutgoingAuth
	of := whose{backend, keyOf(id, a.want.varies)}
	now := time.Now()
	h.mu.Lock()
	is, ok := h.all[of]
	h.mu.Unlock()
	if ok && now.Before(is.until) {
		return is.ops, nil
	}
	in := w.input(a.want, &edge.Exchange{Identity: visibleTo(id, a.want.varies)}, &subject{backend: backend})
	ops, out, err := a.ask(a.within(ctx, hook, &edge.Exchange{Identity: id}), hook, "", wasm.Sender{Identity: id}, in, w.out[:0], may(hook), maxOps)
	if w.out = out; err != nil || a.down[hook].Load() != 0 {
		return ops, err // failures are not cached
	}
	ops = slices.Clone(ops)
	for i := range ops {
		ops[i].raw = slices.Clone(ops[i].raw) // out of the answer's memory, which is reused
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil || len(h.all) >= maxHeld {
		h.all = make(map[whose]answer)
	}
	h.all[of] = answer{ops, now.Add(a.want.keep)}
	return ops, nil
}
