package guest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/sdk/abi"
)

// openCredentials opens the credentials that a filter may choose among, by name.
// Programs know the names alone.
func (s *Spec) openCredentials(env edge.Env) (map[string]*edge.Credential, error) {
	if len(s.Credentials) == 0 {
		return nil, nil
	}
	all := make(map[string]*edge.Credential, len(s.Credentials))
	for _, one := range s.Credentials {
		attach, own, err := one.Open(env)
		if err != nil {
			return nil, fmt.Errorf("filter %q: grants.credentials: %s: %w", s.Name, one.Name(), err)
		}
		all[one.Name()] = &edge.Credential{Name: one.Name(), Attach: attach, Own: own}
	}
	return all, nil
}

// maxHeld is how many answers of one program are kept. When there are more, all
// are forgotten.
const maxHeld = 4096

// held is what a program said of credentials, for as long as that holds. It is
// safe for concurrent use.
type held struct {
	mu  sync.Mutex
	all map[whose]answer
}

// whose is whom an answer is for: the clients that are of one kind to the program.
type whose struct{ backend, key string }

type answer struct {
	ops   []op
	until time.Time
}

// ask returns what the program says of a backend and of clients that are to it as
// this one is. It is told of nothing else: its answer is for all of them.
func (h *held) ask(ctx context.Context, a *asked, id *edge.Identity, w *work, backend string) ([]op, error) {
	const hook = abi.OutgoingAuth
	of := whose{backend, keyOf(id, a.want.varies)}
	now := time.Now()
	h.mu.Lock()
	is, ok := h.all[of]
	h.mu.Unlock()
	if ok && now.Before(is.until) {
		return is.ops, nil
	}
	in := w.input(a.want, &edge.Exchange{Identity: told(id, a.want.varies)}, &subject{backend: backend})
	ops, out, err := a.ask(a.within(ctx, hook, &edge.Exchange{Identity: id}), hook, "", in, w.out[:0], may(hook), maxOps)
	if w.out = out; err != nil || a.down[hook].Load() {
		return ops, err // what a failure left is nothing to keep
	}
	ops = slices.Clone(ops)
	for i := range ops {
		ops[i].raw = slices.Clone(ops[i].raw) // of the answer's memory, which is used again
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil || len(h.all) >= maxHeld {
		h.all = make(map[whose]answer)
	}
	h.all[of] = answer{ops, now.Add(a.want.keep)}
	return ops, nil
}
