package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/kv"
	"github.com/weir-edge/weir/edge/serve"
)

// stores looks at the stores that servers share with other edges: whether each
// answers, takes values, and does so in time; and whether the edges have one key
// for what they hand out.
func (d *doctor) stores(ctx context.Context, plan *compile.Plan, s serve.Settings, secrets edge.Secrets) []check {
	var out []check
	seen := map[string]bool{}
	for _, server := range plan.Servers {
		if server.Store == nil {
			continue
		}
		one := *server.Store
		key := fmt.Sprintf("%s %d %q %+v", one.Address, one.DB, one.KeyPrefix, one.Password)
		if seen[key] {
			continue
		}
		seen[key] = true
		out = append(out, d.step(ctx, "store", one.Address, func(ctx context.Context) check {
			c := d.store(ctx, one, s, secrets)
			if c.Level == levelOK && s.StateKeyFile == "" && !hasStateKey(ctx, secrets) {
				return warning(inStore, "give every edge the same --state-key-file, or the secret weir-state with the key key",
					"the edges that share this store have no key in common: a call that waits for a client's answer can only be gone on with where it waits")
			}
			return c
		}))
	}
	return out
}

func hasStateKey(ctx context.Context, secrets edge.Secrets) bool {
	if secrets == nil {
		return false
	}
	_, err := secrets.Secret(ctx, "weir-state", "key")
	return err == nil
}

// store looks at one.
func (d *doctor) store(ctx context.Context, p compile.Store, s serve.Settings, secrets edge.Secrets) check {
	const next = "see that a Redis listens there, that the user and password are its own, and that it takes values; edge/kv/README.md says what Weir needs of it"
	text, _ := lookup(d.environ, storePasswordVariable)
	password := edge.Secret(text)
	if p.Password != nil && secrets != nil {
		var err error
		if password, err = secrets.Secret(ctx, p.Password.Name, p.Password.Key); err != nil {
			return problem(inSecret, "put the value into one of the places, or correct the reference", "%v", err)
		}
	}
	o := p.Options()
	o.Password, o.Timeout = password, d.timeout
	o.SentinelUser, _ = lookup(d.environ, sentinelUserVariable)
	text, _ = lookup(d.environ, sentinelPasswordVariable)
	o.SentinelPassword = edge.Secret(text)
	if o.TLS && s.StoreCA != "" {
		var err error
		if o.CA, err = os.ReadFile(s.StoreCA); err != nil {
			return problem(inStore, "name a file that is there", "--store-ca: %v", err)
		}
	}
	redis, err := kv.Redis(o)
	if err != nil {
		return problem(inStore, next, "%v", err)
	}
	defer redis.Close()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for redis.Ready() != nil {
		select {
		case <-again.C:
		case <-ctx.Done():
			return problem(inStore, next, "%v", redis.Ready())
		}
		if redis.State().Open { // it has been tried often enough
			return problem(inStore, next, "%v", redis.Ready())
		}
	}
	if err := redis.Check(ctx); err != nil {
		return problem(inStore, next, "%v", err)
	}
	best := d.timeout
	for range 5 {
		began := time.Now()
		if _, err := redis.Get(ctx, "doctor"); err != nil {
			return problem(inStore, next, "%v", err)
		}
		best = min(best, time.Since(began))
	}
	if best > s.StoreTimeout {
		return problem(inStore, "have it nearer, or raise --store-timeout", "it answers after %s, and the edge waits for %s", best.Round(time.Millisecond), s.StoreTimeout)
	}
	return fine(fmt.Sprintf("answers after %s", best.Round(100*time.Microsecond)))
}
